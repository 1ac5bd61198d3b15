/* Tokens: what a key lends of itself, for one sandbox, some verbs and a time.
 *
 * Nothing of a token is kept: it says itself what it may, under a HMAC whose key only the engine has. So
 * making one costs no commit, and it is worth nothing where anything of what it names has ended: its time,
 * its sandbox, the key that made it, or the generation of the sandbox's tokens. It must never become a way
 * to anything that its maker could not do. */
#include "engine/parts.h"
#include "engine/token.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_FILE "token.key"

/* ---- what a caller may ---- */

static const char *verb_name(enum engine_verb verb)
{
    switch (verb) {
    case ENGINE_LOOK:
        return "look";
    case ENGINE_EXEC:
        return "exec";
    case ENGINE_FILES_READ:
        return "files_read";
    case ENGINE_FILES_WRITE:
        return "files_write";
    case ENGINE_PORTS:
        return "ports";
    case ENGINE_LIFE:
        return "life";
    }
    return "?";
}

int engine_caller_may(const struct engine_caller *caller, const char *sandbox_id,
                      enum engine_verb verb, struct error *err)
{
    unsigned reads = ENGINE_LOOK | ENGINE_FILES_READ;

    if (caller->sandbox[0] == '\0')
        return caller_may(caller, (verb & ~reads) == 0 ? ENGINE_READ : ENGINE_WRITE, err);
    if (strcmp(caller->sandbox, sandbox_id) != 0)
        return error_set(err, "forbidden", 0, "this token is for another sandbox");
    if (((unsigned)verb & ~caller->verbs) != 0)
        return error_set(err, "forbidden", 0,
                         "this token has not the verb '%s'; ask whoever made it for one that has",
                         verb_name(verb));
    return 0;
}

/* ---- the key ---- */

struct tokens {
    uint8_t key[SHA256_BYTES];
};

int tokens_open(struct engine *engine, struct error *err)
{
    engine->tokens = engine_alloc(sizeof(*engine->tokens));
    return secret_open(engine->options.directory, KEY_FILE, "tokens", engine->tokens->key, err);
}

void tokens_close(struct engine *engine)
{
    if (engine->tokens == NULL)
        return;
    explicit_bzero(engine->tokens, sizeof(*engine->tokens));
    free(engine->tokens);
    engine->tokens = NULL;
}

/* ---- making one ---- */

/* The one form in which a path names a place: so that what lies below it can be told by its text. */
static bool is_plain_path(const char *path)
{
    if (path[0] != '/' || strlen(path) >= ENGINE_TOKEN_PATH_MAX)
        return false;
    if (path[1] == '\0')
        return true;
    for (const char *part = path; *part != '\0';) {
        size_t length = strcspn(++part, "/");

        if (length == 0 || length > NAME_MAX || (length == 1 && part[0] == '.') ||
            (length == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        part += length;
    }
    return true;
}

static int spec_check(const struct engine_caller *caller, const char *sandbox_id,
                      const struct engine_token_spec *spec, struct error *err)
{
    if (caller->sandbox[0] != '\0')
        return error_set(err, "forbidden", 0, "a token makes no tokens; use a key");
    if (spec->verbs == 0)
        return error_set(err, "bad_request", 0, "verbs: name at least one of those there are");
    for (unsigned verb = 1; verb <= ENGINE_LIFE; verb <<= 1)
        if ((spec->verbs & verb) != 0 &&
            engine_caller_may(caller, sandbox_id, (enum engine_verb)verb, err) != 0)
            return -1;
    if (spec->path != NULL && !is_plain_path(spec->path))
        return error_set(err, "bad_request", 0,
                         "path: an absolute one of less than %d bytes, without '.', '..', '//' and "
                         "a '/' at its end",
                         ENGINE_TOKEN_PATH_MAX);
    if (spec->method != NULL && (spec->path == NULL || spec->path[1] == '\0'))
        return error_set(err, "bad_request", 0, "path: a signed URL needs that of a file");
    if (spec->lives_ms > ENGINE_TOKEN_MOST_MS)
        return error_set(err, "bad_request", 0, "expires_in_ms: a token lives %llu ms at most",
                         ENGINE_TOKEN_MOST_MS);
    return 0;
}

int engine_token_make(struct engine *engine, const struct engine_caller *caller, const char *id,
                      const struct engine_token_spec *spec, struct engine_token *out,
                      struct error *err)
{
    struct token_claims claims = {.verbs = spec->verbs, .port = spec->port};
    const struct sandbox *sandbox;

    if (spec_check(caller, id, spec, err) != 0 || engine_accepts(engine, err) != 0)
        return -1;
    sandbox = sandbox_find(engine, caller, id, err);
    if (sandbox == NULL)
        return -1;
    engine_id(claims.id, sizeof(claims.id), "t");
    (void)snprintf(claims.tenant, sizeof(claims.tenant), "%s", sandbox->record->tenant);
    (void)snprintf(claims.sandbox, sizeof(claims.sandbox), "%s", sandbox->id);
    (void)snprintf(claims.key_id, sizeof(claims.key_id), "%s", caller->key_id);
    (void)snprintf(claims.path, sizeof(claims.path), "%s", spec->path != NULL ? spec->path : "");
    if (spec->method != NULL)
        claims.method = strcmp(spec->method, "PUT") == 0 ? TOKEN_PUT : TOKEN_GET;
    claims.generation = sandbox->record->tokens;
    claims.expires_ms = clock_wall_ms() +
                        (spec->lives_ms > 0 ? spec->lives_ms : ENGINE_TOKEN_USUAL_MS);
    (void)snprintf(out->id, sizeof(out->id), "token:%s", claims.id);
    (void)snprintf(out->sandbox, sizeof(out->sandbox), "%s", sandbox->id);
    out->expires_ms = claims.expires_ms;
    token_format(engine->tokens->key, &claims, out->text);
    events_add_key(engine, "token.created", claims.tenant, sandbox->id, out->id);
    return 0;
}

/* ---- taking one ---- */

bool engine_is_token(const char *secret)
{
    return token_is(secret);
}

/* Of a signed file: where it lies, so that a link in its place leads nowhere else. */
static void parent_of(const char *path, char parent[ENGINE_TOKEN_PATH_MAX])
{
    size_t length = (size_t)(strrchr(path, '/') - path);

    (void)snprintf(parent, ENGINE_TOKEN_PATH_MAX, "%.*s", (int)(length > 0 ? length : 1), path);
}

static void caller_fill(const struct token_claims *claims, struct engine_caller *out)
{
    static const char *const methods[] = {"", "GET", "PUT"};

    memcpy(out->tenant, claims->tenant, sizeof(out->tenant));
    memcpy(out->sandbox, claims->sandbox, sizeof(out->sandbox));
    (void)snprintf(out->key_id, sizeof(out->key_id), "token:%s", claims->id);
    out->verbs = claims->verbs;
    out->port = claims->port;
    memcpy(out->maker, claims->key_id, sizeof(out->maker));
    out->keys_ended = UINT64_MAX; /* looked at once, in any case */
    out->generation = claims->generation;
    out->expires_ms = claims->expires_ms;
    memcpy(out->path, claims->path, sizeof(out->path));
    if (claims->method == TOKEN_ANY)
        return;
    (void)snprintf(out->method, sizeof(out->method), "%s", methods[claims->method]);
    memcpy(out->signed_path, claims->path, sizeof(out->signed_path));
    parent_of(claims->path, out->path);
}

/* What the MAC covers was said by this engine or one before it, so only what may have ended since is
 * looked at. */
int token_check(struct engine *engine, const char *text, struct engine_caller *out,
                struct error *err)
{
    struct token_claims claims;
    const struct sandbox *sandbox;

    if (!token_parse(engine->tokens->key, text, &claims))
        return error_set(err, "bad_key", 0, "this token was not made here; ask for another one");
    if (claims.expires_ms <= clock_wall_ms())
        return error_set(err, "bad_key", 0, "this token's time is over; ask for another one");
    sandbox = map_get(&engine->ids, claims.sandbox);
    if (sandbox == NULL || sandbox->record->state == SANDBOX_DELETED ||
        strcmp(sandbox->record->tenant, claims.tenant) != 0)
        return error_set(err, "bad_key", 0, "the sandbox of this token is gone");
    if (sandbox->record->tokens != claims.generation ||
        !tenants_key_lives(engine, claims.key_id, claims.tenant))
        return error_set(err, "bad_key", 0, "this token was revoked; ask for another one");
    caller_fill(&claims, out);
    return 0;
}

bool engine_caller_lives(struct engine *engine, struct engine_caller *caller)
{
    const struct sandbox *sandbox;

    if (strcmp(caller->key_id, ENGINE_PUBLIC) == 0) {
        struct engine_caller same;

        return engine_port_is_public(engine, caller->sandbox, caller->port, &same);
    }
    if (!tenants_caller_lives(engine, caller))
        return false;
    if (caller->sandbox[0] == '\0')
        return true;
    sandbox = map_get(&engine->ids, caller->sandbox);
    return caller->expires_ms > clock_wall_ms() &&
           (sandbox == NULL || sandbox->record->tokens == caller->generation);
}
