/* A record as text, as the store keeps it: one JSON object; fields that are as usual are left out, so that a record
 * of a plain sandbox is some hundred bytes. What is read back is checked like a wish: a store that somebody wrote
 * into makes no record that a client could not have asked for. */
#include "engine/record.h"

#include "base/fd.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#ifndef __clang__
/* The analyser of gcc 12 loses sight of a text once it is in a list. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

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
    if (record->mountable)
        failed |= json_object_set_new(object, "mountable", json_true());
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
    *out = need(strdup(json_string_value(value)));
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
        (*out)[i] = need(strdup(json_string_value(item)));
    }
    return 0;
}

static int get_mounts(const json_t *object, struct record *record, struct error *err)
{
    const json_t *array = json_object_get(object, "mounts");
    size_t count = json_array_size(array);

    if ((array != NULL && !json_is_array(array)) || count > KEEPER_MOUNTS_MAX)
        return wrong("mounts", err);
    record->mounts = need(calloc(count + 1, sizeof(*record->mounts)));
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(array, i);
        struct keeper_mount *mount = &record->mounts[i];

        if (get_array(item, "name", mount->name, sizeof(mount->name), err) != 0 ||
            get_array(item, "target", mount->target, sizeof(mount->target), err) != 0)
            return -1;
        mount->read_only = json_is_true(json_object_get(item, "read_only"));
    }
    record->mounts_count = count;
    record->mountable = json_is_true(json_object_get(object, "mountable"));
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

    record->policy = record_no_network();
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
    record_texts_free(allow);
    record_texts_free(deny);
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

static bool is_id(const char *id)
{
    return strlen(id) == KEEPER_ID_LENGTH &&
           strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == KEEPER_ID_LENGTH;
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
    if (!record_is_name(record->tenant, sizeof(record->tenant)))
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
