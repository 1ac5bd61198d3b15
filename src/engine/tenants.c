/* Keys: who may ask, and for what. A key is 256 random bits that its owner sees once; kept is their
 * SHA-256, which needs no salt, since nobody can guess such a key.
 *
 * On the first start the operator's key is written to operator.key in the engine's directory, 0600. It
 * must never be said anywhere else. */
#include "base/fd.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "engine/parts.h"
#include "engine/token.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define KEYS_MOST 4096
#define KEYS_OF_TENANT_MOST 256 /* that its own keys may make */
#define LABEL_MOST 128
#define SECRET_BYTES 32
#define SECRET_PREFIX "cove_"
#define SECRET_SIZE (sizeof(SECRET_PREFIX) + 2 * (size_t)SECRET_BYTES)
#define SECRET_MOST 512 /* of what is shown as one */

struct key {
    struct key *next;
    char id[24], tenant[64], label[LABEL_MOST + 1];
    unsigned scopes;
    uint64_t created_ms;
    char hash[SHA256_TEXT];
};

struct tenants {
    struct key *keys;
    size_t count;
    uint64_t ended; /* how many, since the engine began */
    struct quotas *quotas;
};

struct quotas *engine_quotas(struct engine *engine)
{
    return engine->tenants->quotas;
}

/* ---- rights ---- */

int caller_may(const struct engine_caller *caller, unsigned scope, struct error *err)
{
    static const char *const names[] = {"read", "write", "keys", "operator"};
    unsigned missing = scope & ~caller->scopes;

    for (unsigned i = 0; i < 4; i++)
        if ((missing & 1U << i) != 0)
            return error_set(err, "forbidden", 0,
                             "this key has not the scope '%s'; use one that has, or ask the "
                             "operator for it",
                             names[i]);
    return 0;
}

int tenant_name_check(const char *tenant, struct error *err)
{
    size_t length = strlen(tenant);

    if (length == 0 || length > 63 || *tenant == '.' || *tenant == '-' ||
        strspn(tenant, "abcdefghijklmnopqrstuvwxyz0123456789._-") != length)
        return error_set(err, "bad_request", 0,
                         "tenant: 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter, "
                         "digit or '_'");
    return 0;
}

/* ---- text ---- */

static void hash_of(const char *secret, char hash[SHA256_TEXT])
{
    struct sha256 sum;

    sha256_begin(&sum);
    sha256_add(&sum, secret, strlen(secret));
    sha256_end(&sum, hash);
}

static void secret_make(char secret[SECRET_SIZE])
{
    unsigned char bytes[SECRET_BYTES];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        abort();
    memcpy(secret, SECRET_PREFIX, sizeof(SECRET_PREFIX));
    hex_encode(bytes, sizeof(bytes), secret + sizeof(SECRET_PREFIX) - 1);
    explicit_bzero(bytes, sizeof(bytes));
}

static char *key_format(const struct key *key)
{
    json_t *object = json_pack("{ss,ss,ss,si,sI}", "tenant", key->tenant, "label", key->label,
                               "hash", key->hash, "scopes", (int)key->scopes, "created_ms",
                               (json_int_t)key->created_ms);
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;

    json_decref(object);
    return text;
}

static bool text_fits(const char *text, char *into, size_t size)
{
    return text != NULL && snprintf(into, size, "%s", text) < (int)size;
}

/* A key that cannot be read is none: nobody comes in by it. */
static struct key *key_parse(const struct store_value *value)
{
    json_t *object = json_loadb(value->data, value->size, JSON_REJECT_DUPLICATES, NULL);
    const char *tenant = json_string_value(json_object_get(object, "tenant"));
    const char *hash = json_string_value(json_object_get(object, "hash"));
    const char *label = json_string_value(json_object_get(object, "label"));
    json_int_t scopes = json_integer_value(json_object_get(object, "scopes"));
    json_int_t created = json_integer_value(json_object_get(object, "created_ms"));
    struct key *key = engine_alloc(sizeof(*key));
    struct error err;

    if (!text_fits(tenant, key->tenant, sizeof(key->tenant)) ||
        !text_fits(hash, key->hash, sizeof(key->hash)) ||
        !text_fits(label, key->label, sizeof(key->label)) ||
        !text_fits(value->key + strlen("key/"), key->id, sizeof(key->id)) ||
        strlen(key->hash) != SHA256_TEXT - 1 || tenant_name_check(key->tenant, &err) != 0 ||
        scopes < 0 || scopes > ENGINE_ALL || created < 0) {
        free(key);
        json_decref(object);
        return NULL;
    }
    key->scopes = (unsigned)scopes;
    key->created_ms = (uint64_t)created;
    json_decref(object);
    return key;
}

/* ---- checking ---- */

static unsigned differ(const char *a, const char *b, size_t size)
{
    unsigned char difference = 0;

    for (size_t i = 0; i < size; i++)
        difference = (unsigned char)(difference | (a[i] ^ b[i]));
    return difference;
}

/* All keys are compared, and all of each. */
int engine_key_check(struct engine *engine, const char *secret, struct engine_caller *out,
                     struct error *err)
{
    const struct key *found = NULL;
    char hash[SHA256_TEXT];

    *out = (struct engine_caller){.scopes = 0};
    if (token_is(secret))
        return token_check(engine, secret, out, err);
    if (strnlen(secret, SECRET_MOST + 1) <= SECRET_MOST) {
        hash_of(secret, hash);
        for (const struct key *key = engine->tenants->keys; key != NULL; key = key->next)
            if (differ(key->hash, hash, SHA256_TEXT - 1) == 0)
                found = key;
    }
    if (found == NULL)
        return error_set(err, "bad_key", 0,
                         "this key is not known here, or was ended; ask the operator for one");
    memcpy(out->tenant, found->tenant, sizeof(out->tenant));
    memcpy(out->key_id, found->id, sizeof(out->key_id));
    out->keys_ended = engine->tenants->ended;
    out->scopes = found->scopes;
    return 0;
}

/* ---- making and ending ---- */

static void key_add(struct tenants *tenants, struct key *key)
{
    struct key **at = &tenants->keys;

    while (*at != NULL)
        at = &(*at)->next;
    *at = key;
    tenants->count++;
}

static void key_look(const struct key *key, struct engine_key_view *view)
{
    *view = (struct engine_key_view){.id = key->id,
                                     .tenant = key->tenant,
                                     .label = key->label,
                                     .scopes = key->scopes,
                                     .created_ms = key->created_ms};
}

struct key_verb {
    struct engine *engine;
    struct key *key;
    char secret[SECRET_SIZE];
    char id[24];
    engine_key_done made;
    engine_done ended;
    void *arg;
};

static void key_made(void *arg, uint64_t revision, const struct error *err)
{
    struct key_verb *verb = arg;
    struct engine_key_view view;

    (void)revision;
    if (err == NULL) {
        key_add(verb->engine->tenants, verb->key);
        events_add_key(verb->engine, "key.created", verb->key->tenant, NULL, verb->key->id);
        key_look(verb->key, &view);
        verb->made(verb->arg, &view, verb->secret, NULL);
    } else {
        free(verb->key);
        verb->made(verb->arg, NULL, NULL, err);
    }
    explicit_bzero(verb->secret, sizeof(verb->secret));
    free(verb);
}

static size_t keys_of(const struct engine *engine, const char *tenant)
{
    size_t count = 0;

    for (const struct key *key = engine->tenants->keys; key != NULL; key = key->next)
        count += strcmp(key->tenant, tenant) == 0;
    return count;
}

static int key_make_check(const struct engine *engine, const struct engine_caller *caller,
                          const char *tenant, const char *label, unsigned scopes, struct error *err)
{
    bool own = strcmp(tenant, caller->tenant) == 0;
    bool is_operator = (caller->scopes & ENGINE_OPERATOR) != 0;

    if (caller_may(caller, own ? ENGINE_KEYS : ENGINE_OPERATOR, err) != 0 ||
        tenant_name_check(tenant, err) != 0)
        return -1;
    if (scopes == 0 || (scopes & ~(unsigned)ENGINE_ALL) != 0)
        return error_set(err, "bad_request", 0, "scopes: name at least one of those there are");
    /* Nobody gives away what he has not. */
    if (!is_operator && caller_may(caller, scopes, err) != 0)
        return -1;
    if (strlen(label) > LABEL_MOST)
        return error_set(err, "bad_request", 0, "label is longer than %d bytes; shorten it",
                         LABEL_MOST);
    if (!is_operator && keys_of(engine, tenant) >= KEYS_OF_TENANT_MOST)
        return error_set(err, "quota", 0, "tenant '%s' has %d keys already; end some", tenant,
                         KEYS_OF_TENANT_MOST);
    if (engine->tenants->count >= KEYS_MOST)
        return error_set(err, "quota", 0, "there are %d keys already; end some", KEYS_MOST);
    return 0;
}

static struct key *key_new(const char *tenant, const char *label, unsigned scopes,
                           const char *secret)
{
    struct key *key = engine_alloc(sizeof(*key));

    engine_id(key->id, 17, "k");
    (void)snprintf(key->tenant, sizeof(key->tenant), "%s", tenant);
    (void)snprintf(key->label, sizeof(key->label), "%s", label);
    key->scopes = scopes;
    key->created_ms = clock_wall_ms();
    hash_of(secret, key->hash);
    return key;
}

void engine_key_make(struct engine *engine, const struct engine_caller *caller, const char *tenant,
                     const char *label, unsigned scopes, engine_key_done done, void *arg)
{
    const char *whose = tenant != NULL ? tenant : caller->tenant;
    const char *label_or_none = label != NULL ? label : "";
    _cleanup_free_ char *text = NULL;
    char name[STORE_KEY_MAX];
    struct key_verb *verb;
    struct error err;

    if (engine_accepts(engine, &err) != 0 ||
        key_make_check(engine, caller, whose, label_or_none, scopes, &err) != 0) {
        done(arg, NULL, NULL, &err);
        return;
    }
    verb = engine_alloc(sizeof(*verb));
    *verb = (struct key_verb){.engine = engine, .made = done, .arg = arg};
    secret_make(verb->secret);
    verb->key = key_new(whose, label_or_none, scopes, verb->secret);
    text = key_format(verb->key);
    if (text == NULL) {
        (void)error_set(&err, "bad_request", 0, "label is not UTF-8; encode it so");
        key_made(verb, 0, &err);
        return;
    }
    (void)snprintf(name, sizeof(name), "key/%s", verb->key->id);
    store_put(engine->store, name, text, strlen(text), 0, key_made, verb);
}

void engine_key_each(struct engine *engine, const struct engine_caller *caller,
                     bool (*each)(void *arg, const struct engine_key_view *key), void *arg)
{
    bool all = (caller->scopes & ENGINE_OPERATOR) != 0;
    struct engine_key_view view;

    for (const struct key *key = engine->tenants->keys; key != NULL; key = key->next) {
        if (!all &&
            ((caller->scopes & ENGINE_KEYS) == 0 || strcmp(key->tenant, caller->tenant) != 0))
            continue;
        key_look(key, &view);
        if (!each(arg, &view))
            return;
    }
}

static struct key **key_find(struct tenants *tenants, const char *id)
{
    struct key **at = &tenants->keys;

    while (*at != NULL && strcmp((*at)->id, id) != 0)
        at = &(*at)->next;
    return at;
}

bool tenants_key_lives(const struct engine *engine, const char *key_id, const char *tenant)
{
    const struct key *key = engine->tenants->keys;

    if (strcmp(key_id, "socket") == 0)
        return true;
    while (key != NULL && strcmp(key->id, key_id) != 0)
        key = key->next;
    return key != NULL &&
           ((key->scopes & ENGINE_OPERATOR) != 0 || strcmp(key->tenant, tenant) == 0);
}

bool engine_is_secret(const char *text)
{
    return engine_is_token(text) || strncmp(text, SECRET_PREFIX, strlen(SECRET_PREFIX)) == 0;
}

bool tenants_caller_lives(const struct engine *engine, struct engine_caller *caller)
{
    const char *key_id = caller->sandbox[0] != '\0' ? caller->maker : caller->key_id;

    if (caller->keys_ended == engine->tenants->ended)
        return true;
    if (!tenants_key_lives(engine, key_id, caller->tenant))
        return false;
    caller->keys_ended = engine->tenants->ended;
    return true;
}

static void key_ended(void *arg, uint64_t revision, const struct error *err)
{
    struct key_verb *verb = arg;
    struct key **at = key_find(verb->engine->tenants, verb->id);

    (void)revision;
    if (err == NULL && *at != NULL) {
        struct key *key = *at;

        events_add_key(verb->engine, "key.ended", key->tenant, NULL, key->id);
        events_end_key(verb->engine, key->id);
        *at = key->next;
        verb->engine->tenants->count--;
        verb->engine->tenants->ended++;
        free(key);
    }
    verb->ended(verb->arg, err);
    free(verb);
}

void engine_key_end(struct engine *engine, const struct engine_caller *caller, const char *id,
                    engine_done done, void *arg)
{
    const struct key *key = *key_find(engine->tenants, id);
    bool is_operator = (caller->scopes & ENGINE_OPERATOR) != 0;
    char name[STORE_KEY_MAX];
    struct key_verb *verb;
    struct error err;

    if (key != NULL && !is_operator && strcmp(key->tenant, caller->tenant) != 0)
        key = NULL; /* another's reads as one that is not there */
    if (caller_may(caller, is_operator ? ENGINE_OPERATOR : ENGINE_KEYS, &err) != 0 ||
        engine_accepts(engine, &err) != 0) {
        done(arg, &err);
        return;
    }
    if (key == NULL) {
        (void)error_set(&err, "key_not_found", 0, "there is no key '%.24s'; list those there are",
                        id);
        done(arg, &err);
        return;
    }
    /* Nor does anybody end what may do more than he may: a tenant's lesser key its greater one. */
    if (!is_operator && caller_may(caller, key->scopes, &err) != 0) {
        done(arg, &err);
        return;
    }
    verb = engine_alloc(sizeof(*verb));
    *verb = (struct key_verb){.engine = engine, .ended = done, .arg = arg};
    memcpy(verb->id, key->id, sizeof(verb->id));
    (void)snprintf(name, sizeof(name), "key/%s", verb->id);
    store_put_leaving(engine->store, STORE_ROOM_ENDS, name, NULL, 0, STORE_ANY, key_ended, verb);
}

/* ---- the first key ---- */

/* The file is whole before the key is in the store: a crash between the two leaves a file that the
 * next start replaces, never a store whose only key nobody has seen. */
static int secret_write(int dir, const char *secret, struct error *err)
{
    _cleanup_close_ int fd = -1;
    char line[SECRET_SIZE + 2];
    int length = snprintf(line, sizeof(line), "%s\n", secret), failed;

    (void)unlinkat(dir, "operator.key.new", 0);
    fd = openat(dir, "operator.key.new", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                0600);
    failed = fd < 0 || fd_write_full(fd, line, (size_t)length) != 0 || fsync(fd) != 0 ||
             renameat(dir, "operator.key.new", dir, "operator.key") != 0 || fsync(dir) != 0;
    explicit_bzero(line, sizeof(line));
    if (failed)
        return error_set(err, "store_failed", errno,
                         "cannot write operator.key, the first key, in the engine's directory");
    return 0;
}

static void first_key_made(void *arg, const struct engine_key_view *key, const char *secret,
                           const struct error *err)
{
    (void)arg;
    (void)key;
    (void)secret;
    if (err != NULL)
        log_say(LOG_LEVEL_ERROR, "store_failed", "the first key could not be kept: %s", err->text);
}

static int first_key(struct engine *engine, struct error *err)
{
    struct key_verb *verb = engine_alloc(sizeof(*verb));
    _cleanup_free_ char *text = NULL;
    char name[STORE_KEY_MAX];

    *verb = (struct key_verb){.engine = engine, .made = first_key_made};
    secret_make(verb->secret);
    if (secret_write(engine->options.directory, verb->secret, err) != 0) {
        explicit_bzero(verb->secret, sizeof(verb->secret));
        free(verb);
        return -1;
    }
    verb->key = key_new("default", "operator", ENGINE_ALL, verb->secret);
    text = key_format(verb->key);
    if (text == NULL)
        abort(); /* out of memory: see parts.h */
    (void)snprintf(name, sizeof(name), "key/%s", verb->key->id);
    store_put(engine->store, name, text, strlen(text), 0, key_made, verb);
    return 0;
}

/* ---- opening ---- */

struct loading {
    struct engine *engine;
    bool any;
};

static bool key_load(void *arg, const struct store_value *value)
{
    struct loading *loading = arg;
    struct key *key = key_parse(value);

    loading->any = true;
    if (key != NULL)
        key_add(loading->engine->tenants, key);
    else
        log_say(LOG_LEVEL_WARN, "bad_record", "a key cannot be read and opens nothing; end it: %s",
                log_quote(value->key).text);
    return true;
}

static bool quota_load(void *arg, const struct store_value *value)
{
    struct loading *loading = arg;

    quotas_load(loading->engine, value);
    return true;
}

int tenants_open(struct engine *engine, struct error *err)
{
    struct loading loading = {.engine = engine};

    engine->tenants = engine_alloc(sizeof(*engine->tenants));
    engine->tenants->quotas = quotas_new();
    if (store_list(engine->store, "key/", NULL, SIZE_MAX, key_load, &loading, err) != 0 ||
        store_list(engine->store, "quota/", NULL, SIZE_MAX, quota_load, &loading, err) != 0)
        return -1;
    return loading.any ? 0 : first_key(engine, err);
}

void tenants_close(struct engine *engine)
{
    if (engine->tenants == NULL)
        return;
    for (struct key *key = engine->tenants->keys, *next; key != NULL; key = next) {
        next = key->next;
        free(key);
    }
    quotas_free(engine->tenants->quotas);
    free(engine->tenants);
    engine->tenants = NULL;
}
