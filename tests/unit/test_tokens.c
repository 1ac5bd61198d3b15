/* Tokens: what they claim, that nobody forges one, and all that ends them. */
#include "check.h"
#include "engine/parts.h"
#include "engine/token.h"
#include "rig.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct engine_caller keeper_of_keys = {
    .tenant = "default", .key_id = "socket", .scopes = ENGINE_ALL};

/* ---- the text ---- */

static void check_hmac(void)
{
    /* RFC 4231, test case 1, its key of 20 bytes filled with zeros, which HMAC does, too. */
    static const uint8_t wanted[] = {0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53};
    uint8_t key[SHA256_BYTES] = {0}, mac[SHA256_BYTES];

    memset(key, 0x0b, 20);
    sha256_hmac(key, "Hi There", 8, mac);
    CHECK(memcmp(mac, wanted, sizeof(wanted)) == 0, "begins with %02x%02x", mac[0], mac[1]);
}

static void check_text(void)
{
    static const uint8_t key[SHA256_BYTES] = "the key of nobody";
    /* Made by another program. */
    static const char golden[] =
        "covetok_AQMAAAAAAAAAAAAAAQAAAbpg0zgABHRhYmMHZGVmYXVsdBRjMGFhYWFhYWFhYWFhYWFhYWFh"
        "YQJrMAAFL3dvcmsFkdYXMmDQwMq3olq_wQtUsdBOVCo3Czt_32ilAi4gFQ";
    struct token_claims claims, again;
    char text[TOKEN_TEXT_MAX];

    CHECK(token_parse(key, golden, &claims), "it is read");
    CHECK(claims.verbs == 3 && claims.generation == 1 && claims.expires_ms == 1900000000000ULL &&
              strcmp(claims.tenant, "default") == 0 && strcmp(claims.key_id, "k0") == 0 &&
              strcmp(claims.path, "/work") == 0,
          "as it was said");
    token_format(key, &claims, text);
    CHECK(strcmp(text, golden) == 0, "one text for one token");
    memset(claims.path, 'p', sizeof(claims.path) - 1);
    claims.path[0] = '/';
    token_format(key, &claims, text);
    CHECK(token_parse(key, text, &again) && strcmp(again.path, claims.path) == 0, "the longest");
}

static void check_forgery(void)
{
    static const uint8_t key[SHA256_BYTES] = "one", other[SHA256_BYTES] = "two";
    struct token_claims claims = {.id = "t1", .tenant = "a", .sandbox = "c0", .verbs = ENGINE_LOOK};
    char text[TOKEN_TEXT_MAX], wrong[TOKEN_TEXT_MAX + 2];
    unsigned taken = 0;
    size_t length;

    token_format(key, &claims, text);
    length = strlen(text);
    CHECK(token_parse(key, text, &claims) && !token_parse(other, text, &claims), "its own key");
    for (size_t i = 0; i < length; i++) {
        memcpy(wrong, text, length + 1);
        wrong[i] = wrong[i] == 'A' ? 'B' : 'A';
        taken += token_parse(key, wrong, &claims);
        wrong[i] = '\0';
        taken += token_parse(key, wrong, &claims);
    }
    (void)snprintf(wrong, sizeof(wrong), "%sA", text);
    taken += token_parse(key, wrong, &claims);
    CHECK(taken == 0, "%u forgeries were taken", taken);
}

/* ---- what it is worth ---- */

static int make(struct rig *rig, const struct engine_caller *caller, const char *id, unsigned verbs,
                struct engine_token *token, struct error *err)
{
    struct engine_token_spec spec = {.verbs = verbs};

    return engine_token_make(rig->engine, caller, id, &spec, token, err);
}

static void check_verbs(struct rig *rig)
{
    struct answer made, other;
    struct engine_token token;
    struct engine_caller caller;
    struct sandbox_view view;
    struct error err;

    rig_made(rig, "one", &made);
    rig_made(rig, "two", &other);
    CHECK(make(rig, &rig_caller, made.id, ENGINE_LOOK, &token, &err) == 0, "%s", err.text);
    CHECK(engine_key_check(rig->engine, token.text, &caller, &err) == 0 && caller.scopes == 0 &&
              strcmp(caller.sandbox, made.id) == 0 && strcmp(caller.key_id, token.id) == 0,
          "it opens");
    CHECK(engine_look(rig->engine, &caller, made.id, &view, &err) == 0, "its sandbox");
    CHECK(engine_look(rig->engine, &caller, "name:one", &view, &err) == 0, "by its name, too");
    CHECK(engine_look(rig->engine, &caller, other.id, &view, &err) != 0 &&
              IS_CODE(err, "sandbox_not_found"),
          "no other: %s", err.code);
    CHECK(engine_look(rig->engine, &caller, "name:two", &view, &err) != 0 &&
              IS_CODE(err, "sandbox_not_found"),
          "nor by name: %s", err.code);
    CHECK(engine_caller_may(&caller, made.id, ENGINE_LOOK, &err) == 0, "what it says");
    CHECK(engine_caller_may(&caller, made.id, ENGINE_EXEC, &err) != 0 && IS_CODE(err, "forbidden"),
          "and no more");
    CHECK(engine_caller_may(&caller, other.id, ENGINE_LOOK, &err) != 0 && IS_CODE(err, "forbidden"),
          "nowhere else");
    CHECK(make(rig, &caller, made.id, ENGINE_LOOK, &token, &err) != 0 && IS_CODE(err, "forbidden"),
          "it makes no other");
    CHECK(engine_listen(rig->engine, &caller, 0, &(bool){false}, NULL, NULL) == NULL, "no events");
}

static void check_lending(struct rig *rig)
{
    struct engine_token_spec spec = {.verbs = ENGINE_FILES_READ};
    static const char *const wrong[] = {"a", "/a/../b", "/a//b", "/a/", "//", "/./a", ""};
    struct engine_caller caller;
    struct engine_token token;
    struct answer made;
    struct error err;

    rig_made(rig, NULL, &made);
    CHECK(make(rig, &rig_reader, made.id, ENGINE_LOOK | ENGINE_FILES_READ, &token, &err) == 0,
          "what one has");
    CHECK(make(rig, &rig_reader, made.id, ENGINE_LOOK | ENGINE_EXEC, &token, &err) != 0 &&
              IS_CODE(err, "forbidden"),
          "not what one has not");
    CHECK(make(rig, &rig_other, made.id, ENGINE_LOOK, &token, &err) != 0 &&
              IS_CODE(err, "sandbox_not_found"),
          "of one's own sandboxes");
    CHECK(make(rig, &rig_caller, made.id, 0, &token, &err) != 0 && IS_CODE(err, "bad_request"),
          "none");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        spec.path = wrong[i];
        CHECK(engine_token_make(rig->engine, &rig_caller, made.id, &spec, &token, &err) != 0 &&
                  IS_CODE(err, "bad_request"),
              "the path '%s'", wrong[i]);
    }
    spec.path = "/work/report.pdf";
    spec.method = "GET";
    CHECK(engine_token_make(rig->engine, &rig_caller, made.id, &spec, &token, &err) == 0 &&
              engine_key_check(rig->engine, token.text, &caller, &err) == 0 &&
              strcmp(caller.method, "GET") == 0 && strcmp(caller.path, "/work") == 0 &&
              strcmp(caller.signed_path, "/work/report.pdf") == 0,
          "a signed one: %s in %s", caller.signed_path, caller.path);
    spec.lives_ms = ENGINE_TOKEN_MOST_MS + 1;
    CHECK(engine_token_make(rig->engine, &rig_caller, made.id, &spec, &token, &err) != 0 &&
              IS_CODE(err, "bad_request"),
          "for too long");
}

static bool is_bad(struct rig *rig, const struct engine_token *token)
{
    struct engine_caller caller;
    struct error err;

    return engine_key_check(rig->engine, token->text, &caller, &err) != 0 &&
           IS_CODE(err, "bad_key");
}

static void check_ends(struct rig *rig)
{
    struct engine_token_spec spec = {.verbs = ENGINE_LOOK, .lives_ms = 600000};
    struct answer made, answer = {0};
    struct rig_key key;
    struct engine_caller caller;
    struct engine_token token, brief;
    struct error err;

    rig_made(rig, NULL, &made);
    CHECK(engine_token_make(rig->engine, &rig_caller, made.id, &spec, &brief, &err) == 0, "brief");
    rig_pass(rig, 300000);
    CHECK(!is_bad(rig, &brief), "its time is not over");
    rig_pass(rig, 300000);
    CHECK(make(rig, &rig_caller, made.id, ENGINE_LOOK, &token, &err) == 0, "one");
    CHECK(is_bad(rig, &brief) && !is_bad(rig, &token), "its time is over");
    rig_close(rig);
    rig_open(rig);
    CHECK(!is_bad(rig, &token), "the next engine knows it");
    engine_tokens_end(rig->engine, &rig_caller, made.id, rig_looked, &answer);
    CHECK(rig_done(rig, &answer) && is_bad(rig, &token), "all are ended");
    CHECK(make(rig, &rig_caller, made.id, ENGINE_LOOK, &token, &err) == 0 && !is_bad(rig, &token),
          "a newer one is good");
    rig_close(rig);
    rig_open(rig);
    CHECK(!is_bad(rig, &token), "which is on record");

    CHECK(rig_key_make(rig, &keeper_of_keys, NULL, "short", ENGINE_READ, &key), "a key");
    CHECK(engine_key_check(rig->engine, key.secret, &caller, &err) == 0, "%s", err.text);
    CHECK(make(rig, &caller, made.id, ENGINE_LOOK, &brief, &err) == 0 && !is_bad(rig, &brief),
          "a token of it");
    (void)rig_key_end(rig, &keeper_of_keys, key.id);
    CHECK(is_bad(rig, &brief) && !is_bad(rig, &token), "it ends with its key");
    CHECK(rig_wait(rig, rig_delete(rig, made.id, &answer)) && is_bad(rig, &token),
          "it ends with its sandbox");
}

static void check_key_file(struct rig *rig)
{
    struct engine_token token;
    struct answer made;
    struct error err;
    struct stat st;
    int fd;

    rig_made(rig, NULL, &made);
    CHECK(fstatat(rig->dir, "token.key", &st, 0) == 0 && (st.st_mode & 07777) == 0600 &&
              st.st_size == SHA256_BYTES,
          "mode %o, %lld bytes", st.st_mode, (long long)st.st_size);
    CHECK(make(rig, &rig_caller, made.id, ENGINE_LOOK, &token, &err) == 0, "%s", err.text);
    rig_close(rig);
    CHECK(unlinkat(rig->dir, "token.key", 0) == 0, "removed");
    rig_open(rig);
    CHECK(is_bad(rig, &token), "another key voids all");
    rig_close(rig);
    fd = openat(rig->dir, "token.key", O_WRONLY | O_TRUNC | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, "short", 5) == 5 && close(fd) == 0, "cut");
    rig_connect(rig);
    CHECK(engine_open(&rig->options, &rig->engine, NULL, NULL, &err) != 0 &&
              IS_CODE(err, "store_failed"),
          "a broken one is told");
    fake_vanish(&rig->fake);
}

int main(void)
{
    check_hmac();
    check_text();
    check_forgery();
    rig_run(check_verbs);
    rig_run(check_lending);
    rig_run(check_ends);
    rig_run(check_key_file);
    return check_finish();
}
