/* See record.h. The text is one JSON object; fields that are as usual are left out, so that a record
 * of a plain sandbox is some hundred bytes. */
#include "engine/record.h"

#include "base/fd.h"

#include <ctype.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {
    [SANDBOX_CREATING] = "creating", [SANDBOX_RUNNING] = "running",   [SANDBOX_PAUSED] = "paused",
    [SANDBOX_STOPPED] = "stopped",   [SANDBOX_ARCHIVED] = "archived", [SANDBOX_ERROR] = "error",
    [SANDBOX_DELETED] = "deleted",
};
#define STATES (sizeof(state_names) / sizeof(state_names[0]))

const char *sandbox_state_name(enum sandbox_state state)
{
    return (size_t)state < STATES ? state_names[state] : "unknown";
}

static void json_freep(json_t **json)
{
    json_decref(*json);
}
#define _cleanup_json_ _cleanup_(json_freep)

static void *need(void *pointer)
{
    if (pointer == NULL)
        abort(); /* out of memory: see parts.h */
    return pointer;
}

/* ---- lists of texts ---- */

static const char *const no_texts[] = {NULL};

static size_t texts_count(const char *const *texts)
{
    size_t count = 0;

    while (texts[count] != NULL)
        count++;
    return count;
}

static char **texts_copy(const char *const *given)
{
    const char *const *texts = given != NULL ? given : no_texts;
    size_t count = texts_count(texts);
    char **copy = need(calloc(count + 1, sizeof(char *)));

    for (size_t i = 0; i < count && texts[i] != NULL; i++)
        copy[i] = need(strdup(texts[i]));
    return copy;
}

static void texts_free(char **texts)
{
    for (size_t i = 0; texts != NULL && texts[i] != NULL; i++)
        free(texts[i]);
    free(texts);
}

static char *text_copy(const char *text)
{
    return text != NULL ? need(strdup(text)) : NULL;
}

void record_free(struct record *record)
{
    if (record == NULL)
        return;
    free(record->name);
    free(record->cwd);
    free(record->user);
    free(record->hostname);
    texts_free(record->labels);
    texts_free(record->env);
    free(record->mounts);
    policy_free(record->policy);
    free(record);
}

void record_freep(struct record **record)
{
    record_free(*record);
}

static void *mounts_copy(const struct keeper_mount *mounts, size_t count)
{
    struct keeper_mount *copy = need(calloc(count + 1, sizeof(*copy)));

    if (count > 0)
        memcpy(copy, mounts, count * sizeof(*copy));
    return copy;
}

struct record *record_copy(const struct record *record)
{
    struct record *copy = need(malloc(sizeof(*copy)));

    *copy = *record;
    copy->name = text_copy(record->name);
    copy->cwd = text_copy(record->cwd);
    copy->user = text_copy(record->user);
    copy->hostname = text_copy(record->hostname);
    copy->labels = texts_copy((const char *const *)record->labels);
    copy->env = texts_copy((const char *const *)record->env);
    copy->mounts = mounts_copy(record->mounts, record->mounts_count);
    copy->policy = need(policy_copy(record->policy));
    return copy;
}

/* ---- checks, the same for a wish and for what the store has ---- */

static bool is_name_of(const char *name, size_t max)
{
    size_t length = strlen(name);

    if (length == 0 || length >= max || *name == '.' || *name == '-')
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == length;
}

static bool is_id(const char *id)
{
    return strlen(id) == KEEPER_ID_LENGTH &&
           strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == KEEPER_ID_LENGTH;
}

static int check_text(const char *what, const char *text, size_t max, struct error *err)
{
    if (text == NULL)
        return 0;
    if (*text == '\0')
        return error_set(err, "bad_request", 0, "%s is empty; leave it out instead", what);
    if (strlen(text) > max)
        return error_set(err, "bad_request", 0, "%s is longer than %zu bytes; shorten it", what,
                         max);
    for (const char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return error_set(err, "bad_request", 0, "%s has a control character; take it out",
                             what);
    return 0;
}

static int check_texts(const char *what, const char *const *texts, size_t most, size_t longest,
                       struct error *err)
{
    size_t bytes = 0, count = texts_count(texts);

    if (count > most)
        return error_set(err, "bad_request", 0, "%s: %zu are more than the %zu that may be", what,
                         count, most);
    for (size_t i = 0; i < count; i++) {
        const char *equals = strchr(texts[i], '=');

        if (equals == NULL || equals == texts[i])
            return error_set(err, "bad_request", 0, "%s: \"%.40s\" is not NAME=VALUE", what,
                             texts[i]);
        if (strlen(texts[i]) > longest)
            return error_set(err, "bad_request", 0, "%s: \"%.*s\" is longer than %zu bytes", what,
                             (int)(equals - texts[i] < 40 ? equals - texts[i] : 40), texts[i],
                             longest);
        bytes += strlen(texts[i]) + 1;
    }
    if (bytes > RECORD_TEXTS_BYTES)
        return error_set(err, "bad_request", 0, "%s: %zu bytes are more than the %u that may be",
                         what, bytes, RECORD_TEXTS_BYTES);
    return 0;
}

/* The one form in which a path names a place in a box, and not where the box has something of its own;
 * the keeper takes no other. */
static bool is_target(const char *path)
{
    static const char *const kept[] = {"/proc", "/dev", "/sys"};

    if (path[0] != '/' || path[1] == '\0')
        return false;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        size_t length = strlen(kept[i]);

        if (strncmp(path, kept[i], length) == 0 && (path[length] == '/' || path[length] == '\0'))
            return false;
    }
    for (const char *part = path; *part != '\0';) {
        size_t length = strcspn(++part, "/");

        if (length == 0 || length > NAME_MAX || (length == 1 && part[0] == '.') ||
            (length == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        part += length;
    }
    return true;
}

static int check_mounts_count(size_t count, struct error *err)
{
    if (count <= KEEPER_MOUNTS_MAX)
        return 0;
    return error_set(err, "bad_request", 0, "mounts: %zu are more than the %d that may be", count,
                     KEEPER_MOUNTS_MAX);
}

static int check_mounts(const struct keeper_mount *mounts, size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        const char *target = mounts[i].target;

        if (memchr(mounts[i].name, '\0', KEEPER_NAME_MAX) == NULL ||
            !is_name_of(mounts[i].name, KEEPER_NAME_MAX))
            return error_set(err, "bad_request", 0,
                             "mounts: a name is 1 to %d of a-z, 0-9, '.', '_' and '-'",
                             KEEPER_NAME_MAX - 1);
        if (memchr(target, '\0', KEEPER_TARGET_MAX) == NULL || !is_target(target) ||
            check_text("mounts.target", target, KEEPER_TARGET_MAX - 1, err) != 0)
            return error_set(err, "bad_request", 0,
                             "mounts: the target of '%s' must be an absolute path of less than %d "
                             "bytes, without '.', '..' and '//', and not in /proc, /dev or /sys",
                             mounts[i].name, KEEPER_TARGET_MAX);
        for (size_t j = 0; j < i; j++)
            if (strcmp(mounts[j].target, target) == 0)
                return error_set(err, "bad_request", 0, "mounts: two have the target '%s'", target);
    }
    return 0;
}

static int check_hostname(const char *name, struct error *err)
{
    size_t length = name != NULL ? strlen(name) : 1;

    if (name == NULL)
        return 0;
    if (length == 0 || length > 64 || !isalnum((unsigned char)*name) ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") != length)
        return error_set(err, "bad_request", 0,
                         "hostname: 1 to 64 letters, digits, '.' and '-', beginning with a letter "
                         "or digit");
    return 0;
}

static int record_check(const struct record *record, struct error *err)
{
    if (!is_name_of(record->root, KEEPER_NAME_MAX))
        return error_set(err, "bad_request", 0,
                         "root: a name is 1 to %d of a-z, 0-9, '.', '_' and '-'",
                         KEEPER_NAME_MAX - 1);
    if (record->cwd != NULL && *record->cwd != '/')
        return error_set(err, "bad_request", 0, "cwd must be an absolute path");
    if (record->privileges != BOX_PLAIN && record->privileges != BOX_SYSTEM)
        return error_set(err, "bad_request", 0, "privileges: there are no such");
    if (record->disk_kind != KEEPER_EPHEMERAL && record->disk_kind != KEEPER_PERSISTENT)
        return error_set(err, "bad_request", 0, "disk_kind: there is no such");
    if (record->then != SANDBOX_THEN_KILL && record->then != SANDBOX_THEN_STOP)
        return error_set(err, "bad_request", 0, "lifecycle.then: there is no such");
    if (check_text("name", record->name, ENGINE_NAME_MAX, err) != 0 ||
        check_text("cwd", record->cwd, RECORD_PATH_MAX, err) != 0 ||
        check_text("user", record->user, RECORD_USER_MAX, err) != 0 ||
        check_hostname(record->hostname, err) != 0 ||
        check_texts("labels", (const char *const *)record->labels, ENGINE_LABELS_MAX,
                    RECORD_LABEL_MAX, err) != 0 ||
        check_texts("env", (const char *const *)record->env, ENGINE_ENV_MAX, RECORD_TEXTS_BYTES,
                    err) != 0)
        return -1;
    return check_mounts(record->mounts, record->mounts_count, err);
}

int record_set_labels(struct record *record, const char *const *labels, struct error *err)
{
    if (check_texts("labels", labels, ENGINE_LABELS_MAX, RECORD_LABEL_MAX, err) != 0)
        return -1;
    texts_free(record->labels);
    record->labels = texts_copy(labels);
    return 0;
}

/* ---- its network: see record_network.c ---- */

static struct policy *policy_none(void)
{
    struct policy *policy = NULL;
    struct error err;

    (void)policy_new("none", NULL, NULL, &policy, &err);
    return need(policy);
}

void record_clear(struct record *record)
{
    texts_free(record->env);
    record->env = texts_copy(NULL);
    texts_free(record->labels);
    record->labels = texts_copy(NULL);
    free(record->name);
    free(record->cwd);
    free(record->user);
    free(record->hostname);
    record->name = record->cwd = record->user = record->hostname = NULL;
    record->mounts_count = 0;
    record->limits = (struct box_limits){0};
    record->network = (struct net_limits){0};
    record->ports_count = 0;
    policy_free(record->policy);
    record->policy = policy_none();
    record->deadline_ms = record->idle_ms = 0;
}

/* ---- from a wish ---- */

/* What the keeper gives at least and at most; what is below is no box, what is above no machine has. */
#define MEMORY_LEAST (8ULL << 20)
#define DISK_LEAST (1ULL << 20)
#define BYTES_MOST (1ULL << 50)
#define CPU_MOST 1024000
#define PIDS_MOST 4194304
#define INODES_LEAST 4096
#define INODES_MOST 1000000000
#define BYTES_PER_INODE 8192 /* where nobody says how many: a disk of small files */

struct bound {
    const char *what;
    uint64_t least, most;
};

static int limit(const struct bound *bound, uint64_t wished, uint64_t usual, uint64_t most,
                 uint64_t *out, struct error *err)
{
    *out = wished > 0 ? wished : usual;
    if (most == 0 || most > bound->most)
        most = bound->most;
    if (*out >= bound->least && *out <= most)
        return 0;
    return error_set(err, "bad_request", 0,
                     "resources.%s: %llu is not between %llu and %llu, which this engine gives",
                     bound->what, (unsigned long long)*out, (unsigned long long)bound->least,
                     (unsigned long long)most);
}

static uint64_t inodes_of(uint64_t disk_bytes)
{
    uint64_t inodes = disk_bytes / BYTES_PER_INODE;

    return inodes < INODES_LEAST ? INODES_LEAST : inodes > INODES_MOST ? INODES_MOST : inodes;
}

static int limits_set(const struct box_limits *wished, const struct box_limits *usual,
                      const struct box_limits *most, struct box_limits *out, struct error *err)
{
    static const struct bound memory = {"memory_bytes", MEMORY_LEAST, BYTES_MOST};
    static const struct bound cpu = {"cpus (thousandths)", 0, CPU_MOST};
    static const struct bound processes = {"pids", 1, PIDS_MOST};
    static const struct bound disk = {"disk_bytes", DISK_LEAST, BYTES_MOST};
    static const struct bound inodes = {"disk_inodes", 64, INODES_MOST};
    uint64_t cpus, pids;

    if (limit(&memory, wished->memory_bytes, usual->memory_bytes, most->memory_bytes,
              &out->memory_bytes, err) != 0 ||
        limit(&cpu, wished->cpu_milli, usual->cpu_milli, most->cpu_milli, &cpus, err) != 0 ||
        limit(&processes, wished->pids, usual->pids, most->pids, &pids, err) != 0 ||
        limit(&disk, wished->disk_bytes, usual->disk_bytes, most->disk_bytes, &out->disk_bytes,
              err) != 0 ||
        limit(&inodes, wished->disk_inodes, inodes_of(out->disk_bytes), most->disk_inodes,
              &out->disk_inodes, err) != 0)
        return -1;
    if (cpus == 0 && most->cpu_milli > 0)
        return error_set(err, "bad_request", 0,
                         "resources.cpus: all of the host's are more than this engine gives; ask "
                         "for %u thousandths at most",
                         most->cpu_milli);
    out->cpu_milli = (uint32_t)cpus;
    out->pids = (uint32_t)pids;
    return 0;
}

int record_limits(struct box_limits *defaults, const struct box_limits *most, struct error *err)
{
    const struct box_limits as = *defaults;

    if (limits_set(&as, &as, most, defaults, err) == 0)
        return 0;
    (void)snprintf(err->code, sizeof(err->code), "bad_config");
    return -1;
}

static int set_ports_of(struct record *record, const struct sandbox_spec *spec, struct error *err)
{
    for (size_t i = 0; i < spec->ports_count; i++)
        if (record_set_port(record, spec->ports[i].port, 0, spec->ports[i].is_public, err) != 0)
            return -1;
    return 0;
}

int record_new(const struct sandbox_spec *spec, const char *tenant,
               const struct box_limits *defaults, const struct box_limits *most,
               const struct policy *network, struct record **out, struct error *err)
{
    _cleanup_(record_freep) struct record *record = need(calloc(1, sizeof(*record)));
    _cleanup_free_ char *text = NULL;
    const char *root = spec->root != NULL ? spec->root : "host";

    if (strlen(root) >= sizeof(record->root))
        return error_set(err, "bad_request", 0, "root: a name has at most %d characters",
                         KEEPER_NAME_MAX - 1);
    if (check_mounts_count(spec->mounts_count, err) != 0)
        return -1;
    (void)snprintf(record->root, sizeof(record->root), "%s", root);
    (void)snprintf(record->tenant, sizeof(record->tenant), "%s", tenant);
    record->name = text_copy(spec->name);
    record->cwd = text_copy(spec->cwd);
    record->user = text_copy(spec->user);
    record->hostname = text_copy(spec->hostname);
    record->labels = texts_copy(spec->labels);
    record->env = texts_copy(spec->env);
    record->privileges = spec->privileges;
    record->disk_kind = spec->disk_kind;
    record->mounts = mounts_copy(spec->mounts, spec->mounts_count);
    record->mounts_count = spec->mounts_count;
    record->policy = network != NULL ? need(policy_copy(network)) : policy_none();
    record->deadline_ms = spec->deadline_ms;
    record->idle_ms = spec->idle_ms;
    record->then = spec->then;
    record->state = SANDBOX_CREATING;
    (void)snprintf(record->reason, sizeof(record->reason), "creating");
    if (record_check(record, err) != 0 || record_set_network(record, &spec->network, err) != 0 ||
        set_ports_of(record, spec, err) != 0 ||
        limits_set(&spec->limits, defaults, most, &record->limits, err) != 0)
        return -1;
    text = record_format(record, err);
    if (text == NULL)
        return -1;
    *out = record;
    record = NULL;
    return 0;
}

/* ---- to text ---- */

/* Numbers of 64 bits that do not fit in JSON's integers here (jansson's are signed) never occur: what
 * would is cut. */
static json_t *number(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static int set_text(json_t *object, const char *key, const char *text)
{
    return text == NULL || *text == '\0' ? 0 : json_object_set_new(object, key, json_string(text));
}

static int set_number(json_t *object, const char *key, uint64_t value)
{
    return value == 0 ? 0 : json_object_set_new(object, key, number(value));
}

static int set_texts(json_t *object, const char *key, const char *const *texts)
{
    json_t *array;

    if (texts[0] == NULL)
        return 0;
    array = need(json_array());
    for (size_t i = 0; texts[i] != NULL; i++) {
        if (json_array_append_new(array, json_string(texts[i])) != 0) {
            json_decref(array);
            return -1;
        }
    }
    return json_object_set_new(object, key, array);
}

static int set_mounts(json_t *object, const struct record *record)
{
    json_t *array;

    if (record->mounts_count == 0)
        return 0;
    array = need(json_array());
    for (size_t i = 0; i < record->mounts_count; i++) {
        const struct keeper_mount *mount = &record->mounts[i];
        json_t *item = json_pack("{ss,ss,sb}", "name", mount->name, "target", mount->target,
                                 "read_only", mount->read_only != 0);

        if (json_array_append_new(array, item) != 0) {
            json_decref(array);
            return -1;
        }
    }
    return json_object_set_new(object, "mounts", array);
}

/* Nothing is said of one that has none, as of those that were written before there was any. */
static int set_network(json_t *object, const struct record *record)
{
    const struct net_limits *limits = &record->network;
    json_t *network = need(json_object());
    int failed = 0;

    if (policy_mode(record->policy) != POLICY_NONE) {
        failed |= set_text(network, "mode", policy_mode_name(policy_mode(record->policy)));
        failed |= set_texts(network, "allow", policy_allow(record->policy));
        failed |= set_texts(network, "deny", policy_deny(record->policy));
    }
    failed |= set_number(network, "connections", limits->connections);
    failed |= set_number(network, "lookups_per_second", limits->lookups_per_second);
    failed |= set_number(network, "bytes_per_second", limits->bytes_per_second);
    failed |= set_number(network, "bytes", limits->bytes);
    if (failed != 0 || json_object_size(network) == 0) {
        json_decref(network);
        return failed;
    }
    return json_object_set_new(object, "network", network);
}

static int set_ports(json_t *object, const struct record *record)
{
    json_t *array;
    int failed = 0;

    if (record->ports_count == 0)
        return 0;
    array = need(json_array());
    for (size_t i = 0; i < record->ports_count; i++) {
        const struct record_port *port = &record->ports[i];
        json_t *item = need(json_object());

        failed |= set_number(item, "port", port->port) |
                  set_number(item, "host_port", port->host_port);
        if (port->is_public)
            failed |= json_object_set_new(item, "public", json_true());
        failed |= json_array_append_new(array, item);
    }
    return failed | json_object_set_new(object, "ports", array);
}

char *record_format(const struct record *record, struct error *err)
{
    _cleanup_json_ json_t *object = need(json_object());
    const struct box_limits *limits = &record->limits;
    char *text;
    int failed = 0;

    failed |= set_text(object, "id", record->id);
    failed |= set_text(object, "tenant", record->tenant);
    failed |= set_text(object, "name", record->name);
    failed |= set_text(object, "state", sandbox_state_name(record->state));
    failed |= set_text(object, "reason", record->reason);
    failed |= set_text(object, "root", record->root);
    failed |= set_text(object, "disk", record->disk);
    failed |= set_text(object, "disk_kind",
                       record->disk_kind == KEEPER_PERSISTENT ? "persistent" : "ephemeral");
    failed |= set_text(object, "privileges", record->privileges == BOX_PLAIN ? "plain" : "system");
    failed |= set_text(object, "cwd", record->cwd);
    failed |= set_text(object, "user", record->user);
    failed |= set_text(object, "hostname", record->hostname);
    failed |= set_texts(object, "labels", (const char *const *)record->labels);
    failed |= set_texts(object, "env", (const char *const *)record->env);
    failed |= set_number(object, "memory_bytes", limits->memory_bytes);
    failed |= set_number(object, "cpu_milli", limits->cpu_milli);
    failed |= set_number(object, "pids", limits->pids);
    failed |= set_number(object, "disk_bytes", limits->disk_bytes);
    failed |= set_number(object, "disk_inodes", limits->disk_inodes);
    failed |= set_mounts(object, record);
    failed |= set_network(object, record);
    failed |= set_ports(object, record);
    failed |= set_number(object, "deadline_ms", record->deadline_ms);
    failed |= set_number(object, "idle_ms", record->idle_ms);
    failed |= set_text(object, "then", record->then == SANDBOX_THEN_STOP ? "stop" : "kill");
    failed |= set_text(object, "error_code", record->error.code);
    failed |= set_text(object, "error_text", record->error.text);
    failed |= set_number(object, "created_ms", record->created_ms);
    failed |= set_number(object, "updated_ms", record->updated_ms);
    failed |= set_number(object, "serial", record->serial);
    failed |= set_number(object, "tokens", record->tokens);
    text = failed == 0 ? json_dumps(object, JSON_COMPACT) : NULL;
    if (text == NULL)
        (void)error_set(err, "bad_request", 0,
                        "a name, label, variable, path or user is not UTF-8; encode it so");
    return text;
}

/* ---- from text ---- */

static int wrong(const char *key, struct error *err)
{
    return error_set(err, "bad_record", 0,
                     "the field '%s' is missing or not what it must be; restore the store from a "
                     "backup, or remove this record",
                     key);
}

static int get_text(const json_t *object, const char *key, char **out, struct error *err)
{
    const json_t *value = json_object_get(object, key);

    if (value == NULL)
        return 0;
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
        return wrong(key, err);
    *out = text_copy(json_string_value(value));
    return 0;
}

static int get_array(const json_t *object, const char *key, char *out, size_t size,
                     struct error *err)
{
    _cleanup_free_ char *text = NULL;

    if (get_text(object, key, &text, err) != 0)
        return -1;
    if (text != NULL && strlen(text) >= size)
        return wrong(key, err);
    (void)snprintf(out, size, "%s", text != NULL ? text : "");
    return 0;
}

static int get_number(const json_t *object, const char *key, uint64_t most, uint64_t *out,
                      struct error *err)
{
    const json_t *value = json_object_get(object, key);

    *out = 0;
    if (value == NULL)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > most)
        return wrong(key, err);
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

static int get_choice(const json_t *object, const char *key, const char *const *names, size_t count,
                      unsigned *out, struct error *err)
{
    const char *text = json_string_value(json_object_get(object, key));

    for (*out = 0; text != NULL && *out < count; (*out)++)
        if (names[*out] != NULL && strcmp(names[*out], text) == 0)
            return 0;
    return wrong(key, err);
}

static int get_texts(const json_t *object, const char *key, char ***out, struct error *err)
{
    const json_t *array = json_object_get(object, key);
    size_t count = json_array_size(array);

    if (array != NULL && !json_is_array(array))
        return wrong(key, err);
    *out = need(calloc(count + 1, sizeof(char *)));
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(array, i);

        if (!json_is_string(item) || strlen(json_string_value(item)) != json_string_length(item))
            return wrong(key, err);
        (*out)[i] = text_copy(json_string_value(item));
    }
    return 0;
}

static int get_mounts(const json_t *object, struct record *record, struct error *err)
{
    const json_t *array = json_object_get(object, "mounts");
    size_t count = json_array_size(array);

    if ((array != NULL && !json_is_array(array)) || count > KEEPER_MOUNTS_MAX)
        return wrong("mounts", err);
    record->mounts = mounts_copy(NULL, 0);
    record->mounts = need(realloc(record->mounts, (count + 1) * sizeof(*record->mounts)));
    memset(record->mounts, 0, (count + 1) * sizeof(*record->mounts));
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(array, i);
        struct keeper_mount *mount = &record->mounts[i];

        if (get_array(item, "name", mount->name, sizeof(mount->name), err) != 0 ||
            get_array(item, "target", mount->target, sizeof(mount->target), err) != 0)
            return -1;
        mount->read_only = json_is_true(json_object_get(item, "read_only"));
    }
    record->mounts_count = count;
    return 0;
}

static int get_network(const json_t *object, struct record *record, struct error *err)
{
    const json_t *network = json_object_get(object, "network");
    struct sandbox_network wish = {.mode = NULL};
    _cleanup_free_ char *mode = NULL;
    char **allow = NULL, **deny = NULL;
    struct error why;
    int got = -1;

    record->policy = policy_none();
    if (network == NULL)
        return 0;
    if (json_is_object(network) && get_text(network, "mode", &mode, err) == 0 &&
        get_texts(network, "allow", &allow, err) == 0 &&
        get_texts(network, "deny", &deny, err) == 0 &&
        get_number(network, "connections", UINT32_MAX, &wish.connections, err) == 0 &&
        get_number(network, "lookups_per_second", UINT32_MAX, &wish.lookups_per_second, err) == 0 &&
        get_number(network, "bytes_per_second", INT64_MAX, &wish.bytes_per_second, err) == 0 &&
        get_number(network, "bytes", INT64_MAX, &wish.bytes, err) == 0) {
        wish.mode = mode;
        wish.allow = mode != NULL ? (const char *const *)allow : NULL;
        wish.deny = mode != NULL ? (const char *const *)deny : NULL;
        got = record_set_network(record, &wish, &why);
    }
    texts_free(allow);
    texts_free(deny);
    return got == 0 ? 0 : wrong("network", err);
}

static int get_ports(const json_t *object, struct record *record, struct error *err)
{
    const json_t *array = json_object_get(object, "ports");
    size_t count = json_array_size(array);
    uint64_t port, host_port;

    if (array != NULL && !json_is_array(array))
        return wrong("ports", err);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(array, i);

        if (get_number(item, "port", UINT16_MAX, &port, err) != 0 ||
            get_number(item, "host_port", UINT16_MAX, &host_port, err) != 0)
            return -1;
        if (record_set_port(record, (uint16_t)port, (uint16_t)host_port,
                            json_is_true(json_object_get(item, "public")), err) != 0)
            return wrong("ports", err);
    }
    return 0;
}

static int get_choices(const json_t *object, struct record *record, struct error *err)
{
    static const char *const disks[] = {NULL, "ephemeral", "persistent"};
    static const char *const privileges[] = {"plain", "system"};
    static const char *const thens[] = {"kill", "stop"};
    unsigned state, disk, privilege, then;

    if (get_choice(object, "state", state_names, STATES, &state, err) != 0 ||
        get_choice(object, "disk_kind", disks, 3, &disk, err) != 0 ||
        get_choice(object, "privileges", privileges, 2, &privilege, err) != 0 ||
        get_choice(object, "then", thens, 2, &then, err) != 0)
        return -1;
    record->state = (enum sandbox_state)state;
    record->disk_kind = disk == 1 ? KEEPER_EPHEMERAL : KEEPER_PERSISTENT;
    record->privileges = privilege == 0 ? BOX_PLAIN : BOX_SYSTEM;
    record->then = then == 0 ? SANDBOX_THEN_KILL : SANDBOX_THEN_STOP;
    return 0;
}

static int get_numbers(const json_t *object, struct record *record, struct error *err)
{
    struct box_limits *limits = &record->limits;
    uint64_t cpus, pids;

    if (get_number(object, "memory_bytes", INT64_MAX, &limits->memory_bytes, err) != 0 ||
        get_number(object, "cpu_milli", UINT32_MAX, &cpus, err) != 0 ||
        get_number(object, "pids", UINT32_MAX, &pids, err) != 0 ||
        get_number(object, "disk_bytes", INT64_MAX, &limits->disk_bytes, err) != 0 ||
        get_number(object, "disk_inodes", INT64_MAX, &limits->disk_inodes, err) != 0 ||
        get_number(object, "deadline_ms", INT64_MAX, &record->deadline_ms, err) != 0 ||
        get_number(object, "idle_ms", INT64_MAX, &record->idle_ms, err) != 0 ||
        get_number(object, "created_ms", INT64_MAX, &record->created_ms, err) != 0 ||
        get_number(object, "updated_ms", INT64_MAX, &record->updated_ms, err) != 0 ||
        get_number(object, "serial", INT64_MAX, &record->serial, err) != 0 ||
        get_number(object, "tokens", INT64_MAX, &record->tokens, err) != 0)
        return -1;
    limits->cpu_milli = (uint32_t)cpus;
    limits->pids = (uint32_t)pids;
    return 0;
}

static int get_all(const json_t *object, struct record *record, struct error *err)
{
    if (get_array(object, "id", record->id, sizeof(record->id), err) != 0 ||
        get_array(object, "tenant", record->tenant, sizeof(record->tenant), err) != 0 ||
        get_array(object, "disk", record->disk, sizeof(record->disk), err) != 0 ||
        get_array(object, "root", record->root, sizeof(record->root), err) != 0 ||
        get_array(object, "reason", record->reason, sizeof(record->reason), err) != 0 ||
        get_array(object, "error_code", record->error.code, sizeof(record->error.code), err) != 0 ||
        get_array(object, "error_text", record->error.text, sizeof(record->error.text), err) != 0 ||
        get_text(object, "name", &record->name, err) != 0 ||
        get_text(object, "cwd", &record->cwd, err) != 0 ||
        get_text(object, "user", &record->user, err) != 0 ||
        get_text(object, "hostname", &record->hostname, err) != 0 ||
        get_texts(object, "labels", &record->labels, err) != 0 ||
        get_texts(object, "env", &record->env, err) != 0 || get_choices(object, record, err) != 0 ||
        get_numbers(object, record, err) != 0 || get_mounts(object, record, err) != 0 ||
        get_network(object, record, err) != 0 || get_ports(object, record, err) != 0)
        return -1;
    if (!is_id(record->id))
        return wrong("id", err);
    if (!is_name_of(record->tenant, sizeof(record->tenant)))
        return wrong("tenant", err);
    if (record->disk_kind == KEEPER_PERSISTENT && record->disk[0] != '\0' && !is_id(record->disk))
        return wrong("disk", err);
    if (record_check(record, err) != 0) {
        (void)snprintf(err->code, sizeof(err->code), "bad_record");
        return -1;
    }
    return 0;
}

int record_parse(const char *text, size_t size, struct record **out, struct error *err)
{
    _cleanup_(record_freep) struct record *record = need(calloc(1, sizeof(*record)));
    _cleanup_json_ json_t *object = NULL;
    json_error_t why;

    object = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(object))
        return error_set(err, "bad_record", 0,
                         "it is not a JSON object (%.100s); restore the store from a backup, or "
                         "remove this record",
                         object == NULL ? why.text : "it is something else");
    if (get_all(object, record, err) != 0)
        return -1;
    *out = record;
    record = NULL;
    return 0;
}

/* ---- looking ---- */

void record_look(const struct record *record, struct sandbox_view *view)
{
    *view = (struct sandbox_view){
        .id = record->id,
        .name = record->name,
        .tenant = record->tenant,
        .labels = (const char *const *)record->labels,
        .env = (const char *const *)record->env,
        .root = record->root,
        .cwd = record->cwd,
        .user = record->user,
        .hostname = record->hostname,
        .privileges = record->privileges,
        .disk_kind = record->disk_kind,
        .limits = record->limits,
        .mounts = record->mounts,
        .mounts_count = record->mounts_count,
        .policy = record->policy,
        .network = record->network,
        .deadline_ms = record->deadline_ms,
        .idle_ms = record->idle_ms,
        .then = record->then,
        .state = record->state,
        .reason = record->reason,
        .error = record->error,
        .created_ms = record->created_ms,
        .updated_ms = record->updated_ms,
        .revision = record->revision,
    };
}
