/* The bodies of requests: see body.h. Each is a table of fields, and below it what a table cannot say:
 * fields that exclude each other, and how what was read becomes the engine's struct. */
#include "front/native/body.h"

#include "front/native/body_mounts.h"
#include "front/native/text.h"

#include <stdio.h>
#include <string.h>

#define SIZE_MOST (1ULL << 50)

static int refuse(struct error *err, const char *says)
{
    return error_set(err, "bad_request", 0, "%s", says);
}

/* ---- a sandbox ---- */

struct lifecycle_text {
    uint64_t deadline_ms, lifetime_ms, idle_ms;
    int then;
};

static const char *const then_words[] = {"kill", "stop", NULL};

static const struct read_field lifecycle_fields[] = {
    {.name = "deadline", .kind = READ_TIME, AT(lifecycle_text, deadline_ms), .null_is_zero = true},
    {.name = "lifetime_ms",
     .kind = READ_COUNT,
     AT(lifecycle_text, lifetime_ms),
     .low = 1,
     .high = BODY_TIME_MAX_MS},
    {.name = "idle_ms",
     .kind = READ_COUNT,
     AT(lifecycle_text, idle_ms),
     .high = BODY_TIME_MAX_MS,
     .null_is_zero = true},
    {.name = "then", .kind = READ_WORD, AT(lifecycle_text, then), .words = then_words},
    READ_LATER("pause"),
    READ_LATER("archive"),
    READ_LATER("auto_resume"),
    {.name = NULL},
};

struct resources_text {
    uint64_t memory_bytes, cpu_milli, pids, disk_bytes;
};

static const struct read_field resources_fields[] = {
    {.name = "memory_bytes",
     .kind = READ_COUNT,
     AT(resources_text, memory_bytes),
     .low = 1U << 20,
     .high = SIZE_MOST},
    {.name = "cpus", .kind = READ_MILLI, AT(resources_text, cpu_milli), .low = 10, .high = 1024000},
    {.name = "pids", .kind = READ_COUNT, AT(resources_text, pids), .low = 1, .high = 4194304},
    {.name = "disk_bytes",
     .kind = READ_COUNT,
     AT(resources_text, disk_bytes),
     .low = 1U << 20,
     .high = SIZE_MOST},
    {.name = NULL},
};

struct port_text {
    uint64_t port;
    int is_public;
};

static const struct read_field port_fields[] = {
    {.name = "port",
     .kind = READ_COUNT,
     AT(port_text, port),
     .low = 1,
     .high = 65535,
     .is_needed = true},
    {.name = "public", .kind = READ_FLAG, AT(port_text, is_public)},
    {.name = NULL},
};

static const char *const mode_words[] = {"none", "allow", "public", NULL};

struct network_text {
    int mode; /* -1: none */
    const char *const *allow, *const *deny;
    uint64_t connections, lookups_per_second, bytes_per_second, bytes;
};

static const struct read_field network_fields[] = {
    {.name = "mode", .kind = READ_WORD, AT(network_text, mode), .words = mode_words},
    {.name = "allow", .kind = READ_TEXTS, AT(network_text, allow), .high = POLICY_RULES_MAX},
    {.name = "deny", .kind = READ_TEXTS, AT(network_text, deny), .high = POLICY_RULES_MAX},
    {.name = "connections",
     .kind = READ_COUNT,
     AT(network_text, connections),
     .low = 1,
     .high = 65536,
     .null_is_zero = true},
    {.name = "lookups_per_second",
     .kind = READ_COUNT,
     AT(network_text, lookups_per_second),
     .low = 1,
     .high = 100000,
     .null_is_zero = true},
    {.name = "bytes_per_second",
     .kind = READ_COUNT,
     AT(network_text, bytes_per_second),
     .low = 1024,
     .high = SIZE_MOST,
     .null_is_zero = true},
    {.name = "bytes",
     .kind = READ_COUNT,
     AT(network_text, bytes),
     .low = 1,
     .high = SIZE_MOST,
     .null_is_zero = true},
    {.name = NULL},
};

static void network_fill(const struct network_text *text, struct sandbox_network *network)
{
    *network = (struct sandbox_network){
        .mode = text->mode >= 0 ? mode_words[text->mode] : NULL,
        .allow = text->allow,
        .deny = text->deny,
        .connections = text->connections,
        .lookups_per_second = text->lookups_per_second,
        .bytes_per_second = text->bytes_per_second,
        .bytes = text->bytes,
    };
}

struct sandbox_text {
    const char *name, *root, *cwd, *user, *hostname;
    const char *const *labels;
    const char *const *env;
    int privileges, disk_kind;
    struct resources_text resources;
    struct lifecycle_text lifecycle;
    struct read_objects mounts, ports;
    bool mountable;
    struct network_text network;
};

static const char *const privileges_words[] = {"plain", "system", NULL};
static const char *const disk_words[] = {"ephemeral", "persistent", NULL};

static const struct read_field sandbox_fields[] = {
    {.name = "name", .kind = READ_LINE, AT(sandbox_text, name), .low = 1, .high = ENGINE_NAME_MAX},
    {.name = "labels", .kind = READ_PAIRS, AT(sandbox_text, labels), .high = ENGINE_LABELS_MAX},
    {.name = "env", .kind = READ_PAIRS, AT(sandbox_text, env), .high = ENGINE_ENV_MAX},
    {.name = "root",
     .kind = READ_LINE,
     AT(sandbox_text, root),
     .low = 1,
     .high = KEEPER_NAME_MAX - 1},
    {.name = "privileges",
     .kind = READ_WORD,
     AT(sandbox_text, privileges),
     .words = privileges_words},
    {.name = "disk_kind", .kind = READ_WORD, AT(sandbox_text, disk_kind), .words = disk_words},
    {.name = "cwd", .kind = READ_TEXT, AT(sandbox_text, cwd), .low = 1, .high = 4095},
    {.name = "user", .kind = READ_LINE, AT(sandbox_text, user), .low = 1, .high = 128},
    {.name = "hostname", .kind = READ_LINE, AT(sandbox_text, hostname), .low = 1, .high = 63},
    {.name = "resources",
     .kind = READ_OBJECT,
     AT(sandbox_text, resources),
     .inner = resources_fields},
    {.name = "mounts",
     .kind = READ_OBJECTS,
     AT(sandbox_text, mounts),
     .high = KEEPER_MOUNTS_MAX,
     .inner = body_mount_fields,
     .inner_size = sizeof(struct body_mount_text)},
    {.name = "mountable", .kind = READ_BOOL, AT(sandbox_text, mountable)},
    {.name = "network", .kind = READ_OBJECT, AT(sandbox_text, network), .inner = network_fields},
    {.name = "ports",
     .kind = READ_OBJECTS,
     AT(sandbox_text, ports),
     .high = ENGINE_PORTS_MAX,
     .inner = port_fields,
     .inner_size = sizeof(struct port_text)},
    {.name = "lifecycle",
     .kind = READ_OBJECT,
     AT(sandbox_text, lifecycle),
     .inner = lifecycle_fields},
    READ_LATER("snapshot"),
    READ_LATER("template"),
    READ_LATER("volumes"),
    READ_LATER("pause"),
    READ_LATER("archive"),
    {.name = NULL},
};

/* Of either lifecycle: a point in time, from what the caller gave. */
static int lifecycle_check(struct lifecycle_text *text, uint64_t now_ms, struct error *err)
{
    bool has_deadline = text->deadline_ms != 0 && text->deadline_ms != UINT64_MAX;

    if (has_deadline && text->lifetime_ms != 0)
        return refuse(err, "fields \"lifecycle.deadline\" and \"lifecycle.lifetime_ms\" say the "
                           "same: give one of them");
    if (has_deadline && text->deadline_ms <= now_ms)
        return refuse(err,
                      "field \"lifecycle.deadline\" is in the past: DELETE ends a sandbox now");
    if (text->lifetime_ms != 0)
        text->deadline_ms = now_ms + text->lifetime_ms;
    return 0;
}

static int check_cwd(const char *cwd, struct error *err)
{
    if (cwd != NULL && cwd[0] != '/')
        return refuse(err, "field \"cwd\" must be an absolute path in the sandbox");
    return 0;
}

static int check_hostname(const char *name, struct error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

    if (name == NULL)
        return 0;
    if (strchr(letters, name[0]) == NULL ||
        name[strspn(name, "-."
                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")] !=
            '\0')
        return refuse(err, "field \"hostname\" must be letters, digits, \"-\" and \".\", and begin "
                           "with a letter or a digit");
    return 0;
}

static int ports_fill(const struct read_objects *text, struct sandbox_port_wish *ports,
                      struct error *err)
{
    const struct port_text *list = text->list;

    for (size_t i = 0; i < text->count; i++) {
        ports[i] = (struct sandbox_port_wish){(uint16_t)list[i].port, list[i].is_public > 0};
        for (size_t j = 0; j < i; j++)
            if (ports[j].port == ports[i].port)
                return error_set(err, "bad_request", 0,
                                 "field \"ports[%zu].port\": %u is there twice", i, ports[i].port);
    }
    return 0;
}

static void limits_fill(const struct resources_text *text, struct box_limits *limits)
{
    limits->memory_bytes = text->memory_bytes;
    limits->cpu_milli = (uint32_t)text->cpu_milli;
    limits->pids = (uint32_t)text->pids;
    limits->disk_bytes = text->disk_bytes;
}

static int sandbox_check(struct sandbox_text *text, uint64_t now_ms, struct error *err)
{
    if (text->name != NULL && strncmp(text->name, BODY_OUR_NAMES, strlen(BODY_OUR_NAMES)) == 0)
        return refuse(err, "field \"name\" must not begin with \"" BODY_OUR_NAMES "\"");
    if (check_cwd(text->cwd, err) < 0 || check_hostname(text->hostname, err) < 0 ||
        body_check_registered(text->root, "unknown_root", err) < 0)
        return -1;
    return lifecycle_check(&text->lifecycle, now_ms, err);
}

int body_sandbox(struct read_body from, uint64_t now_ms, struct body_sandbox *out,
                 struct error *err)
{
    struct sandbox_text text = {.privileges = 1, .disk_kind = 1, .network = {.mode = -1}};

    memset(out, 0, sizeof(*out));
    if (read_object("a sandbox", from, true, sandbox_fields, &text, &out->owner, err) < 0 ||
        sandbox_check(&text, now_ms, err) < 0 ||
        body_fill_mounts(&text.mounts, out->mounts, err) < 0 ||
        ports_fill(&text.ports, out->ports, err) < 0)
        return -1;
    out->spec = (struct sandbox_spec){
        .name = text.name,
        .labels = text.labels,
        .env = text.env,
        .root = text.root,
        .privileges = text.privileges == 1 ? BOX_SYSTEM : BOX_PLAIN,
        .disk_kind = text.disk_kind == 1 ? KEEPER_PERSISTENT : KEEPER_EPHEMERAL,
        .cwd = text.cwd,
        .user = text.user,
        .hostname = text.hostname,
        .mounts = out->mounts,
        .mounts_count = text.mounts.count,
        .mountable = text.mountable,
        .ports = out->ports,
        .ports_count = text.ports.count,
        .deadline_ms = text.lifecycle.deadline_ms,
        .idle_ms = text.lifecycle.idle_ms,
        .then = text.lifecycle.then == 1 ? SANDBOX_THEN_STOP : SANDBOX_THEN_KILL,
    };
    limits_fill(&text.resources, &out->spec.limits);
    network_fill(&text.network, &out->spec.network);
    return 0;
}

struct change_text {
    const char *const *labels;
    struct lifecycle_text lifecycle;
    struct network_text network;
};

static const struct read_field change_fields[] = {
    {.name = "labels", .kind = READ_PAIRS, AT(change_text, labels), .high = ENGINE_LABELS_MAX},
    {.name = "lifecycle",
     .kind = READ_OBJECT,
     AT(change_text, lifecycle),
     .inner = lifecycle_fields},
    {.name = "network", .kind = READ_OBJECT, AT(change_text, network), .inner = network_fields},
    {.name = NULL},
};

/* What is not there stays. */
static bool network_changes(const struct network_text *text)
{
    return text->mode >= 0 || text->allow != NULL || text->deny != NULL ||
           text->connections != UINT64_MAX || text->lookups_per_second != UINT64_MAX ||
           text->bytes_per_second != UINT64_MAX || text->bytes != UINT64_MAX;
}

int body_change(struct read_body from, uint64_t now_ms, struct body_change *out, struct error *err)
{
    struct change_text text = {
        .lifecycle = {.deadline_ms = UINT64_MAX, .idle_ms = UINT64_MAX, .then = -1},
        .network = {.mode = -1,
                    .connections = UINT64_MAX,
                    .lookups_per_second = UINT64_MAX,
                    .bytes_per_second = UINT64_MAX,
                    .bytes = UINT64_MAX},
    };

    memset(out, 0, sizeof(*out));
    if (read_object("labels, lifecycle or network", from, false, change_fields, &text, &out->owner,
                    err) < 0 ||
        lifecycle_check(&text.lifecycle, now_ms, err) < 0)
        return -1;
    out->change = (struct sandbox_change){
        .labels = text.labels,
        .deadline_ms = text.lifecycle.deadline_ms,
        .idle_ms = text.lifecycle.idle_ms,
        .then = text.lifecycle.then,
    };
    network_fill(&text.network, &out->network);
    if (network_changes(&text.network))
        out->change.network = &out->network;
    if (text.lifecycle.then >= 0)
        out->change.then = text.lifecycle.then == 1 ? SANDBOX_THEN_STOP : SANDBOX_THEN_KILL;
    return 0;
}

/* ---- a process ---- */

struct limits_text {
    uint64_t memory_bytes, file_bytes, cpu_seconds, open_files;
};

static const struct read_field limits_fields[] = {
    {.name = "memory_bytes",
     .kind = READ_COUNT,
     AT(limits_text, memory_bytes),
     .low = 1U << 20,
     .high = SIZE_MOST},
    {.name = "file_bytes",
     .kind = READ_COUNT,
     AT(limits_text, file_bytes),
     .low = 1,
     .high = SIZE_MOST},
    {.name = "cpu_seconds",
     .kind = READ_COUNT,
     AT(limits_text, cpu_seconds),
     .low = 1,
     .high = 315576000},
    {.name = "open_files",
     .kind = READ_COUNT,
     AT(limits_text, open_files),
     .low = 3,
     .high = 1048576},
    {.name = NULL},
};

struct terminal_text {
    uint64_t rows, columns;
};

static const struct read_field terminal_fields[] = {
    {.name = "rows",
     .kind = READ_COUNT,
     AT(terminal_text, rows),
     .low = 1,
     .high = PROCS_TERMINAL_MAX,
     .is_needed = true},
    {.name = "columns",
     .kind = READ_COUNT,
     AT(terminal_text, columns),
     .low = 1,
     .high = PROCS_TERMINAL_MAX,
     .is_needed = true},
    {.name = NULL},
};

struct process_text {
    const char *const *argv;
    const char *command, *cwd, *user, *tag;
    const char *const *env;
    uint64_t timeout_ms, output_limit, log_bytes;
    struct read_bytes stdin_text, stdin_base64;
    struct limits_text limits;
    struct terminal_text terminal;
    bool start, detach, open_stdin;
};

#define PROCESS_FIELDS                                                                             \
    {.name = "argv", .kind = READ_TEXTS, AT(process_text, argv), .low = 1, .high = 4096},          \
        {.name = "command",                                                                        \
         .kind = READ_TEXT,                                                                        \
         AT(process_text, command),                                                                \
         .low = 1,                                                                                 \
         .high = READ_VALUE_MAX},                                                                  \
        {.name = "env", .kind = READ_PAIRS, AT(process_text, env), .high = ENGINE_ENV_MAX},        \
        {.name = "cwd", .kind = READ_TEXT, AT(process_text, cwd), .low = 1, .high = 4095},         \
        {.name = "user", .kind = READ_LINE, AT(process_text, user), .low = 1, .high = 128},        \
        {.name = "tag",                                                                            \
         .kind = READ_LINE,                                                                        \
         AT(process_text, tag),                                                                    \
         .low = 1,                                                                                 \
         .high = PROCS_TAG_MAX - 1},                                                               \
        {.name = "timeout_ms",                                                                     \
         .kind = READ_COUNT,                                                                       \
         AT(process_text, timeout_ms),                                                             \
         .high = BODY_TIME_MAX_MS},                                                                \
        {.name = "stdin", .kind = READ_RAW, AT(process_text, stdin_text)},                         \
        {.name = "stdin_base64", .kind = READ_BYTES, AT(process_text, stdin_base64)},              \
        {.name = "log_bytes",                                                                      \
         .kind = READ_COUNT,                                                                       \
         AT(process_text, log_bytes),                                                              \
         .low = 65536,                                                                             \
         .high = 1ULL << 40},                                                                      \
        {.name = "limits", .kind = READ_OBJECT, AT(process_text, limits), .inner = limits_fields}, \
        {.name = "start", .kind = READ_BOOL, AT(process_text, start)},                             \
    {                                                                                              \
        .name = "terminal", .kind = READ_OBJECT, AT(process_text, terminal),                       \
        .inner = terminal_fields                                                                   \
    }

static const struct read_field exec_fields[] = {
    PROCESS_FIELDS,
    {.name = "output_limit",
     .kind = READ_COUNT,
     AT(process_text, output_limit),
     .high = BODY_OUTPUT_MAX},
    {.name = "detach_on_disconnect", .kind = READ_BOOL, AT(process_text, detach)},
    {.name = NULL},
};

static const struct read_field process_fields[] = {
    PROCESS_FIELDS,
    {.name = "open_stdin", .kind = READ_BOOL, AT(process_text, open_stdin)},
    {.name = NULL},
};

static int process_check(const struct process_text *text, struct error *err)
{
    if ((text->argv == NULL) == (text->command == NULL))
        return refuse(err, "give either \"argv\" (a program and its arguments) or \"command\" (a "
                           "line for the shell)");
    if (text->argv != NULL && text->argv[0][0] == '\0')
        return refuse(err, "field \"argv[0]\" must name a program");
    if (text->stdin_text.data != NULL && text->stdin_base64.data != NULL)
        return refuse(err, "fields \"stdin\" and \"stdin_base64\" say the same: give one of them");
    return check_cwd(text->cwd, err);
}

static int terminal_check(const struct process_text *text, bool is_exec, struct error *err)
{
    if (text->terminal.rows > 0 && is_exec)
        return error_set(err, "no_terminal", 0,
                         "exec returns what was printed, and gives no terminal: start a process "
                         "(POST .../processes) with \"terminal\", and attach to that");
    if (text->terminal.rows > 0 && text->open_stdin)
        return refuse(err, "a terminal is always open: leave \"open_stdin\" out");
    return 0;
}

int body_process(struct read_body from, bool is_exec, struct body_process *out, struct error *err)
{
    /* What is waited for ends by itself one day; what runs in the background is often a server. */
    struct process_text text = {
        .timeout_ms = is_exec ? BODY_TIMEOUT_DEFAULT_MS : 0,
        .output_limit = BODY_OUTPUT_DEFAULT,
    };

    memset(out, 0, sizeof(*out));
    if (read_object("a command", from, false, is_exec ? exec_fields : process_fields, &text,
                    &out->owner, err) < 0 ||
        process_check(&text, err) < 0 || terminal_check(&text, is_exec, err) < 0)
        return -1;
    out->stdin_data = text.stdin_text.data != NULL ? text.stdin_text : text.stdin_base64;
    out->open_stdin = text.open_stdin || text.terminal.rows > 0;
    out->start = text.start;
    out->detach = text.detach;
    out->output_limit = text.output_limit;
    out->spec = (struct proc_spec){
        .argv = text.argv,
        .shell_line = text.command,
        .env = text.env,
        .cwd = text.cwd,
        .user = text.user,
        .tag = text.tag,
        .timeout_ms = text.timeout_ms,
        .log_bytes = text.log_bytes,
        .has_stdin = text.open_stdin || out->stdin_data.size > 0,
        .rows = (uint16_t)text.terminal.rows,
        .columns = (uint16_t)text.terminal.columns,
        .limits = {.memory_bytes = text.limits.memory_bytes,
                   .file_bytes = text.limits.file_bytes,
                   .cpu_seconds = (uint32_t)text.limits.cpu_seconds,
                   .open_files = (uint32_t)text.limits.open_files},
    };
    return 0;
}

/* ---- a signal, a key, a quota ---- */

int body_signal_number(const char *name)
{
    int number = 0;

    if (strncmp(name, "SIG", 3) == 0)
        name += 3;
    for (int i = 1; i <= 64 && number == 0; i++) {
        const char *known = sigabbrev_np(i);

        if (known != NULL && strcmp(name, known) == 0)
            number = i;
    }
    return number;
}

int body_signal(struct read_body from, int *signal_number, struct error *err)
{
    static const struct read_field fields[] = {
        {.name = "signal", .kind = READ_NAME_OR_COUNT, .low = 1, .high = 64, .is_needed = true},
        {.name = NULL},
    };
    struct read_name_or_count text = {.name = NULL};
    struct read_owner owner = {0};
    int status = read_object("a signal", from, false, fields, &text, &owner, err);

    if (status == 0 && text.name != NULL)
        text.count = (uint64_t)body_signal_number(text.name);
    if (status == 0 && text.count == 0)
        status = error_set(
            err, "bad_request", 0,
            "field \"signal\": \"%s\" is no signal; \"TERM\", \"SIGTERM\" and 15 are", text.name);
    *signal_number = (int)text.count;
    read_free(&owner);
    return status;
}

int body_port(struct read_body from, uint16_t *port, int *is_public, struct error *err)
{
    struct port_text text = {.is_public = -1};
    struct read_owner owner = {0};
    int status = read_object("a port", from, false, port_fields, &text, &owner, err);

    *port = (uint16_t)text.port;
    *is_public = text.is_public;
    read_free(&owner);
    return status;
}

const char *const body_verbs[] = {"look",  "exec", "files_read", "files_write",
                                  "ports", "life", NULL};

bool body_is_tenant(const char *name)
{
    size_t length = strlen(name);

    return length >= 1 && length <= 63 && name[0] != '.' && name[0] != '-' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == length;
}

int body_key(struct read_body from, struct body_key *out, struct error *err)
{
    /* In the order of the bits of enum engine_scope. */
    static const char *const words[] = {"read", "write", "keys", "operator", NULL};
    static const struct read_field fields[] = {
        {.name = "tenant", .kind = READ_LINE, AT(body_key, tenant), .low = 1, .high = 63},
        {.name = "label",
         .kind = READ_LINE,
         AT(body_key, label),
         .low = 1,
         .high = 128,
         .is_needed = true},
        {.name = "scopes",
         .kind = READ_WORDS,
         AT(body_key, scopes),
         .words = words,
         .is_needed = true},
        {.name = NULL},
    };

    memset(out, 0, sizeof(*out));
    if (read_object("a key's label and scopes", from, false, fields, out, &out->owner, err) < 0)
        return -1;
    if (out->tenant != NULL && !body_is_tenant(out->tenant))
        return refuse(err, "field \"tenant\" must be lower-case letters, digits, \".\", \"_\" and "
                           "\"-\", and not begin with \".\" or \"-\"");
    return 0;
}

struct token_text {
    unsigned verbs;
    const char *path;
    uint64_t port, expires_in_ms;
    int method;
};

#define TOKEN_PATH                                                         \
    {                                                                      \
        .name = "path", .kind = READ_LINE, AT(token_text, path), .low = 1, \
        .high = ENGINE_TOKEN_PATH_MAX - 1                                  \
    }
#define TOKEN_EXPIRES                                                                         \
    {                                                                                         \
        .name = "expires_in_ms", .kind = READ_COUNT, AT(token_text, expires_in_ms), .low = 1, \
        .high = ENGINE_TOKEN_MOST_MS                                                          \
    }

int body_token(struct read_body from, struct body_token *out, struct error *err)
{
    static const struct read_field fields[] = {
        {.name = "verbs",
         .kind = READ_WORDS,
         AT(token_text, verbs),
         .words = body_verbs,
         .is_needed = true},
        TOKEN_PATH,
        {.name = "port", .kind = READ_COUNT, AT(token_text, port), .low = 1, .high = 65535},
        TOKEN_EXPIRES,
        {.name = NULL},
    };
    struct token_text text = {0};

    memset(out, 0, sizeof(*out));
    if (read_object("a token's verbs", from, false, fields, &text, &out->owner, err) < 0)
        return -1;
    out->spec = (struct engine_token_spec){
        .verbs = text.verbs,
        .path = text.path,
        .port = (uint16_t)text.port,
        .lives_ms = text.expires_in_ms,
    };
    return 0;
}

int body_url(struct read_body from, struct body_token *out, struct error *err)
{
    static const char *const methods[] = {"GET", "PUT", NULL};
    static const struct read_field fields[] = {
        {.name = "method",
         .kind = READ_WORD,
         AT(token_text, method),
         .words = methods,
         .is_needed = true},
        TOKEN_PATH,
        TOKEN_EXPIRES,
        {.name = NULL},
    };
    struct token_text text = {0};

    memset(out, 0, sizeof(*out));
    if (read_object("a method and a path", from, false, fields, &text, &out->owner, err) < 0)
        return -1;
    if (text.path == NULL)
        return refuse(err, "field \"path\" is missing");
    out->spec = (struct engine_token_spec){
        .verbs = text.method == 0 ? ENGINE_FILES_READ : ENGINE_FILES_WRITE,
        .path = text.path,
        .method = methods[text.method],
        .lives_ms = text.expires_in_ms,
    };
    return 0;
}

int body_quota(struct read_body from, struct engine_quota *quota, struct error *err)
{
    struct quota_text {
        uint64_t sandboxes, cpu_milli, memory_bytes, disk_bytes, ports, pids, requests_per_second;
    } text = {0};
    static const struct read_field fields[] = {
        {.name = "sandboxes", .kind = READ_COUNT, AT(quota_text, sandboxes), .high = 1000000000},
        {.name = "cpus", .kind = READ_MILLI, AT(quota_text, cpu_milli), .high = 1000000000},
        {.name = "memory_bytes",
         .kind = READ_COUNT,
         AT(quota_text, memory_bytes),
         .high = SIZE_MOST},
        {.name = "disk_bytes", .kind = READ_COUNT, AT(quota_text, disk_bytes), .high = SIZE_MOST},
        {.name = "ports", .kind = READ_COUNT, AT(quota_text, ports), .high = 1000000},
        {.name = "pids", .kind = READ_COUNT, AT(quota_text, pids), .high = 1000000000},
        {.name = "requests_per_second",
         .kind = READ_COUNT,
         AT(quota_text, requests_per_second),
         .high = 1000000000},
        {.name = NULL},
    };
    struct read_owner owner = {0};
    int status = read_object("a quota", from, false, fields, &text, &owner, err);

    *quota = (struct engine_quota){
        .sandboxes = text.sandboxes,
        .cpu_milli = text.cpu_milli,
        .memory_bytes = text.memory_bytes,
        .disk_bytes = text.disk_bytes,
        .ports = text.ports,
        .pids = text.pids,
        .requests_per_second = (uint32_t)text.requests_per_second,
    };
    read_free(&owner);
    return status;
}

int body_none(struct read_body from, struct error *err)
{
    static const struct read_field fields[] = {{.name = NULL}};
    struct read_owner owner = {0};
    char nothing = 0;
    int status = read_object("{}", from, true, fields, &nothing, &owner, err);

    read_free(&owner);
    return status;
}
