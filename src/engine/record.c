/* See record.h: how a record is made of a wish, and what is checked of every record, wherever it comes from. */
#include "engine/record.h"

#include "base/fd.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef __clang__
/* The analyser of gcc 12 loses sight of a text once it is in a list. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

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

void record_texts_free(char **texts)
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
    record_texts_free(record->labels);
    record_texts_free(record->env);
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

bool record_is_name(const char *name, size_t max)
{
    size_t length = strlen(name);

    if (length == 0 || length >= max || *name == '.' || *name == '-')
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == length;
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
            !record_is_name(mounts[i].name, KEEPER_NAME_MAX))
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

/* A directory in the place of programs, or of what they are linked with, would leave a sandbox that runs and in which no
 * command can. Records of before may have one. */
static int check_programs_stay(const struct keeper_mount *mounts, size_t count, struct error *err)
{
    static const char *const places[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

    for (size_t i = 0; i < count; i++) {
        const char *target = mounts[i].target;
        const char *last = strncmp(target, "/usr/", 5) == 0 ? target + 5 : target + 1;
        bool hides = strcmp(target, "/usr") == 0;

        for (size_t j = 0; j < sizeof(places) / sizeof(places[0]); j++)
            hides |= strcmp(last, places[j]) == 0;
        if (hides)
            return error_set(
                err, "bad_request", 0,
                "mounts: '%s' at %s would hide the sandbox's programs, and no command could run; take another "
                "target, such as /data",
                mounts[i].name, target);
    }
    return 0;
}

int record_check_mount(const struct keeper_mount *mount, struct error *err)
{
    return check_mounts(mount, 1, err) != 0 ? -1 : check_programs_stay(mount, 1, err);
}

int record_add_mount(struct record *record, const struct keeper_mount *mount, struct error *err)
{
    struct keeper_mount *mounts;

    if (check_mounts_count(record->mounts_count + 1, err) != 0)
        return -1;
    mounts = need(realloc(record->mounts, (record->mounts_count + 1) * sizeof(*mounts)));
    record->mounts = mounts;
    mounts[record->mounts_count++] = *mount;
    return 0;
}

void record_remove_mount(struct record *record, const char *target)
{
    struct keeper_mount *mounts = record->mounts;

    for (size_t i = 0; i < record->mounts_count; i++) {
        if (strcmp(mounts[i].target, target) != 0)
            continue;
        record->mounts_count--;
        memmove(&mounts[i], &mounts[i + 1], (record->mounts_count - i) * sizeof(*mounts));
        return;
    }
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

int record_check(const struct record *record, struct error *err)
{
    if (!record_is_name(record->root, KEEPER_NAME_MAX))
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
    record_texts_free(record->labels);
    record->labels = texts_copy(labels);
    return 0;
}

/* ---- its network: see record_network.c ---- */

void record_clear(struct record *record)
{
    record_texts_free(record->env);
    record->env = texts_copy(NULL);
    record_texts_free(record->labels);
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
    record->policy = record_no_network();
    record->deadline_ms = record->idle_ms = 0;
}

/* ---- from a wish ---- */

/* What the keeper gives at least and at most; what is below is no box, what is above no machine has. */
#define MEMORY_LEAST (8ULL << 20)
#define DISK_LEAST (1ULL << 20)
#define BYTES_MOST (1ULL << 50)
#define CPU_MOST 1024000
#define PIDS_LEAST 2 /* the box's init is one */
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
    static const struct bound processes = {"pids", PIDS_LEAST, PIDS_MOST};
    static const struct bound disk = {"disk_bytes", DISK_LEAST, BYTES_MOST};
    static const struct bound inodes = {"disk_inodes", 64, INODES_MOST};
    uint64_t cpus, pids;

    if (wished->pids > 0 && wished->pids < PIDS_LEAST)
        return error_set(err, "bad_request", 0,
                         "resources.pids: %u: the first process of a box counts, so no command "
                         "could start; give at least %d",
                         wished->pids, PIDS_LEAST);
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
    record->mountable = spec->mountable;
    record->policy = network != NULL ? need(policy_copy(network)) : record_no_network();
    record->deadline_ms = spec->deadline_ms;
    record->idle_ms = spec->idle_ms;
    record->then = spec->then;
    record->state = SANDBOX_CREATING;
    (void)snprintf(record->reason, sizeof(record->reason), "creating");
    if (record_check(record, err) != 0 ||
        check_programs_stay(record->mounts, record->mounts_count, err) != 0 ||
        record_set_network(record, &spec->network, err) != 0 ||
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

/* ---- looking ---- */

uint64_t record_revision(const struct record *record)
{
    return record->revision > 0 ? record->updated_ms : 0;
}

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
        .mountable = record->mountable,
        .policy = record->policy,
        .network = record->network,
        .ports_count = record->ports_count,
        .deadline_ms = record->deadline_ms,
        .idle_ms = record->idle_ms,
        .then = record->then,
        .state = record->state,
        .reason = record->reason,
        .error = record->error,
        .created_ms = record->created_ms,
        .updated_ms = record->updated_ms,
        .revision = record_revision(record),
    };
    for (size_t i = 0; i < record->ports_count; i++)
        view->ports[i] = (struct sandbox_port_wish){.port = record->ports[i].port,
                                                    .is_public = record->ports[i].is_public};
}
