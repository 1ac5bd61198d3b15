/* The options of `cove run`: see run_options.h. Adding one is a row of the table and the function
 * that takes its value. */
#include "cmd/run_options.h"

#include "base/fd.h"
#include "base/parse.h"
#include "cmd/env_file.h"
#include "cmd/mounting.h"
#include "cmd/options.h"
#include "cmd/run_paths.h"
#include "policy/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* Below this a shell cannot start, and the failure would not name the cause. */
#define MEMORY_LEAST (8ULL << 20)
#define DISK_BYTES_LEAST (1ULL << 20)
#define DISK_BYTES_MOST (1ULL << 50)
#define DISK_INODES_LEAST 64
#define DISK_INODES_MOST 1000000000ULL
#define PIDS_LEAST 2
#define PIDS_MOST 4194304 /* the kernel's own PID_MAX_LIMIT */
#define TIMEOUT_MOST_MS (1000ULL * 3600 * 24 * 3650)
#define HOSTNAME_MAX 64 /* __NEW_UTS_LEN */

static int take_root(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;

    options->spec.root_path = value;
    return run_root_check(value, &options->spec.root_kind, err);
}

static int bind_add(struct run_options *options, struct box_bind bind, struct error *err)
{
    if (options->binds == NULL) {
        options->binds = calloc(options->words, sizeof(*options->binds));
        if (options->binds == NULL) {
            run_bind_free(&bind);
            return option_no_memory(err);
        }
    }
    options->binds[options->binds_count++] = bind;
    return 0;
}

static int take_workspace(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;
    struct box_bind bind;

    if (options->workspace_given)
        return option_bad_value(err, "workspace", value, "there is one already",
                                "add further directories with --mount SRC:DST");
    options->workspace_given = true;
    if (run_workspace_parse(value, RUN_WORKSPACE, &bind, err) < 0)
        return -1;
    return bind_add(options, bind, err);
}

static int take_mount(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;
    _cleanup_free_ char *spelt = NULL;
    struct box_bind bind;

    if (mounting_spell(value, &spelt, err) < 0 || run_mount_parse(spelt, &bind, err) < 0)
        return -1;
    return bind_add(options, bind, err);
}

static int take_cwd(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;

    if (value[0] != '/')
        return option_bad_value(
            err, "cwd", value, "it is not an absolute path",
            "write the directory as the command sees it, such as " RUN_WORKSPACE);
    options->cwd = value;
    return 0;
}

static int take_user(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;

    if (value[0] == '\0' || value[0] == ':' || value[strlen(value) - 1] == ':')
        return option_bad_value(err, "user", value, "a name or a number is missing",
                                "write NAME, UID, NAME:GROUP or UID:GID");
    options->spec.user = value;
    return 0;
}

static char **pair_find(struct run_pairs *pairs, const char *name, size_t key)
{
    for (size_t i = 0; i < pairs->count; i++)
        if (strncmp(pairs->list[i], name, key) == 0 && pairs->list[i][key] == '=')
            return &pairs->list[i];
    return NULL;
}

/* Sets the variable with a name of `key` bytes, in place of an earlier value. */
static int pair_set(struct run_pairs *pairs, const char *name, size_t key, const char *content,
                    struct error *err)
{
    char **place = pair_find(pairs, name, key), **list;
    char *pair;

    if (asprintf(&pair, "%.*s=%s", (int)key, name, content) < 0)
        return option_no_memory(err);
    if (place != NULL) {
        free(*place);
        *place = pair;
        return 0;
    }
    list = reallocarray(pairs->list, pairs->count + 1, sizeof(*list));
    if (list == NULL) {
        free(pair);
        return option_no_memory(err);
    }
    pairs->list = list;
    list[pairs->count++] = pair;
    return 0;
}

static void pairs_free(struct run_pairs *pairs)
{
    for (size_t i = 0; i < pairs->count; i++)
        free(pairs->list[i]);
    free(pairs->list);
    *pairs = (struct run_pairs){0};
}

static int take_env(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;
    size_t key = strcspn(value, "=");
    const char *content = value[key] == '=' ? value + key + 1 : getenv(value);

    /* What stands in a value may be a secret: no message repeats it. */
    if (key == 0)
        return error_set(err, "bad_value", 0, "--env: the name is missing; write --env NAME=VALUE");
    if (content == NULL)
        return option_bad_value(err, "env", value,
                                "it is not set here, so there is nothing to pass on",
                                "write --env NAME=VALUE");
    return pair_set(&options->env, value, key, content, err);
}

static int file_pair_set(void *into, const char *name, const char *value, struct error *err)
{
    return pair_set(&((struct run_options *)into)->env_file, name, strlen(name), value, err);
}

static int take_env_file(void *into, const char *value, struct error *err)
{
    return env_file_read(value, file_pair_set, into, err);
}

/* --env holds, wherever it stands. */
static int env_merge(struct run_options *options, struct error *err)
{
    for (size_t i = 0; i < options->env_file.count; i++) {
        const char *pair = options->env_file.list[i];
        size_t key = strcspn(pair, "=");

        if (pair_find(&options->env, pair, key) == NULL &&
            pair_set(&options->env, pair, key, pair + key + 1, err) < 0)
            return -1;
    }
    return 0;
}

static bool hostname_is_good(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t length = strlen(name);

    if (length == 0 || length > HOSTNAME_MAX)
        return false;
    for (size_t i = 0; i < length; i++) {
        bool at_edge = i == 0 || i + 1 == length || name[i - 1] == '.' || name[i + 1] == '.';

        if (strchr(letters, name[i]) != NULL)
            continue;
        if (at_edge || (name[i] != '-' && name[i] != '.'))
            return false;
    }
    return true;
}

static int take_hostname(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;

    if (!hostname_is_good(value))
        return option_bad_value(err, "hostname", value, "it is no host name",
                                "use up to 64 letters, digits, and '-' or '.' between them");
    options->spec.hostname = value;
    return 0;
}

static int take_privileges(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;

    if (strcmp(value, "plain") == 0)
        options->spec.privileges = BOX_PLAIN;
    else if (strcmp(value, "system") == 0)
        options->spec.privileges = BOX_SYSTEM;
    else
        return option_bad_value(err, "privileges", value, "there is no such profile",
                                "choose plain or system");
    options->spec.own_root = options->spec.privileges == BOX_SYSTEM;
    return 0;
}

static int take_allow_level(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;

    if (strcmp(value, "full") == 0)
        options->spec.allow_no_fresh_proc = false;
    else if (strcmp(value, "no-fresh-proc") == 0)
        options->spec.allow_no_fresh_proc = true;
    else
        return option_bad_value(err, "allow-level", value, "there is no such level",
                                "choose full or no-fresh-proc");
    return 0;
}

static int take_memory(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;

    if (parse_size("--memory", value, &options->spec.limits.memory_bytes, err) < 0)
        return -1;
    if (options->spec.limits.memory_bytes < MEMORY_LEAST)
        return option_bad_value(err, "memory", value, "no program can start in so little",
                                "give at least 8M");
    return 0;
}

static int take_cpus(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;

    if (parse_cpus("--cpus", value, &options->spec.limits.cpu_milli, err) < 0)
        return -1;
    if (options->spec.limits.cpu_milli < 10)
        return option_bad_value(err, "cpus", value, "no program gets on with so little",
                                "give at least 0.01, or leave it out for all CPUs");
    return 0;
}

static int take_pids(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;
    uint64_t count;

    if (parse_count("--pids", value, 1, PIDS_MOST, &count, err) < 0)
        return -1;
    if (count < PIDS_LEAST)
        return option_bad_value(err, "pids", value,
                                "the first process of a box counts, so the command could not start",
                                "give at least 2");
    options->spec.limits.pids = (uint32_t)count;
    return 0;
}

static int take_disk(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;
    const char *comma = strchr(value, ',');
    struct box_limits *limits = &options->spec.limits;
    char bytes[64];

    if (comma != NULL && parse_count("--disk (inodes)", comma + 1, DISK_INODES_LEAST,
                                     DISK_INODES_MOST, &limits->disk_inodes, err) < 0)
        return -1;
    (void)snprintf(bytes, sizeof(bytes), "%.*s", (int)strcspn(value, ","), value);
    if (parse_size("--disk", bytes, &limits->disk_bytes, err) < 0)
        return -1;
    if (limits->disk_bytes < DISK_BYTES_LEAST)
        return option_bad_value(err, "disk", value, "that is too little to hold a file system",
                                "give at least 1M");
    if (limits->disk_bytes > DISK_BYTES_MOST)
        return option_bad_value(err, "disk", value, "no host has as much", "give at most 1024T");
    return 0;
}

static int take_timeout(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;

    if (parse_duration("--timeout", value, &options->timeout_ms, err) < 0)
        return -1;
    if (options->timeout_ms > TIMEOUT_MOST_MS)
        return option_bad_value(err, "timeout", value, "that is more than ten years",
                                "give less, or 0 for no limit");
    return 0;
}

static int take_output_limit(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;

    options->output_limit_given = true;
    if (parse_size("--output-limit", value, &options->output_limit, err) < 0)
        return -1;
    if (options->output_limit > RUN_OUTPUT_LIMIT_MAX)
        return option_bad_value(err, "output-limit", value,
                                "so much does not fit into one JSON object", "give at most 1G");
    return 0;
}

static int take_net(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;
    struct policy *policy;
    struct error why;

    if (policy_new_text(value, &policy, &why) != 0)
        return error_set(err, "bad_value", 0, "--net %.64s: %.400s", value, why.text);
    options->net = policy_mode(policy) != POLICY_NONE ? value : NULL;
    options->spec.keeps_network = options->net != NULL;
    policy_free(policy);
    return 0;
}

static int take_tty(void *into, const char *value, struct error *err)
{
    struct run_options *options = into;

    (void)value;
    (void)err;
    options->tty = true;
    return 0;
}

static const struct option_row run_rows[] = {
    {"root", "DIR|IMAGE", "the host's /usr, /bin, /lib*, read-only",
     "root of the box: a directory or an erofs image; what the command changes in it is kept "
     "apart and thrown away",
     take_root, 0, 0},
    {"workspace", "DIR[:ro]", NULL,
     "put DIR at /workspace and start there; what is written belongs to you outside, and has no limit",
     take_workspace, 0, 0},
    {"mount", "SRC:DST[:ro]", NULL, "put SRC, a directory or a file, at DST; repeatable",
     take_mount, 'v', 0},
    {"cwd", "DIR", "/workspace if a directory is mounted there, else the home",
     "directory to start in", take_cwd, 'w', 0},
    {"user", "USER[:GROUP]", "user; root with --privileges system",
     "who runs the command, by name or number inside the box", take_user, 'u', 0},
    {"env", "NAME[=VALUE]", "PATH, HOME, USER, LANG and TERM only",
     "set a variable; without a value, pass yours on; repeatable", take_env, 'e', 0},
    ENV_FILE_ROW,
    {"hostname", "NAME", "box",
     "host name inside; --name is the same, for a box that ends with its command has no other name",
     take_hostname, 'h', 0},
    {"privileges", "plain|system", "plain",
     "plain: no privilege at all; system: root inside the box, who may write at /, too, for apt, su "
     "and sudo",
     take_privileges, 0, 0},
    {"allow-level", "full|no-fresh-proc", "full",
     "the weakest level to run at; cove doctor says which this host has", take_allow_level, 0, 0},
    {"memory", "SIZE", "2G, or half of the machine's if that is less",
     "memory of all processes together", take_memory, 'm', 0},
    {"cpus", "NUMBER", "all", "CPUs, such as 2 or 0.5", take_cpus, 0, 0},
    {"pids", "NUMBER", "1024", "processes and threads", take_pids, 0, 0},
    {"disk", "SIZE[,INODES]", "1G,262144",
     "what the command may write, but for directories of yours; /tmp too; held in memory, with 1M more for "
     "the box",
     take_disk, 0, 0},
    {"timeout", "TIME", "none", "kill everything after this long, such as 90s or 1.5m; exit 124",
     take_timeout, 0, 0},
    {"output-limit", "SIZE", "8M", "newest bytes kept of each output stream, with --json",
     take_output_limit, 0, 0},
    {"net", "POLICY", "none",
     "whom it may reach: none, public, or allow=RULE,RULE...; cove net --help says more", take_net,
     0, 0},
    {"tty", NULL, NULL, "give the command a terminal of its own", take_tty, 't', 0},
    {"no-warnings", NULL, NULL,
     "do not say where the box is weaker than elsewhere; COVE_WARNINGS=none silences all commands",
     NULL, 0, offsetof(struct run_options, no_warnings)},
    {"json", NULL, NULL, "print one JSON object with the result and the output", NULL, 0,
     offsetof(struct run_options, json)},
    {"help", NULL, NULL, "print this", NULL, 0, offsetof(struct run_options, help)},
};

const struct option_table run_options_table = {
    .command = "run",
    .usage = "[--] COMMAND [ARG...]",
    .about =
        "Runs one command in a fresh box: it sees a root of its own, no network and none of your\n"
        "files, and whatever it leaves running dies when it ends. Ctrl-C interrupts the command; a\n"
        "second one kills it with all that it started.",
    .notes =
        "SIZE is bytes, or has a K, M, G or T; TIME is seconds, or has ms, s, m, h or d.\n"
        "Standard input is the command's; as with docker, -it and --rm may be written, and --workdir,\n"
        "--volume and --network for --cwd, --mount and --net.\n"
        "\n"
        "In a box with a writable workspace or mount no set-id file can be made, because it would be\n"
        "one outside too: a package that ships set-id programs does not install there, even with\n"
        "--privileges system.\n"
        "\n"
        "Exit status: the command's own; 128+N if signal N killed it; 124 at the timeout; 125 if cove\n"
        "itself failed; 126 if the command cannot be executed; 127 if it is not there.",
    .examples = "cove run -- sh -c 'id; ls /home'\n"
                "cove run --workspace . --timeout 10m -- make test\n"
                "cove run --json -m 256m --timeout 5s -- python3 -c 'print(6 * 7)'\n"
                "cove run --root ./debian --privileges system -it -- bash",
    OPTION_ROWS(run_rows),
    .command_follows = true,
};

static uint64_t memory_default(void)
{
    struct sysinfo info;
    uint64_t half;

    if (sysinfo(&info) < 0)
        return RUN_MEMORY_BYTES;
    half = (uint64_t)info.totalram * info.mem_unit / 2;
    return half < RUN_MEMORY_BYTES ? half : RUN_MEMORY_BYTES;
}

/* By --workspace, or by a mount of a directory at the same place. */
static bool has_workspace(const struct run_options *options)
{
    struct stat st;

    for (size_t i = 0; i < options->binds_count; i++)
        if (strcmp(options->binds[i].target, RUN_WORKSPACE) == 0)
            return stat(options->binds[i].source, &st) == 0 && S_ISDIR(st.st_mode);
    return false;
}

/* What only the whole of the options can tell. */
static int options_finish(struct run_options *options, struct error *err)
{
    if (options->command[0] == NULL)
        return error_set(err, "no_command", 0,
                         "run: no command was given; write cove run [options] -- COMMAND [ARG...]");
    if (options->command[0][0] == '\0')
        return error_set(err, "no_command", 0,
                         "run: the name of the command is empty; write cove "
                         "run [options] -- COMMAND [ARG...]");
    if (options->json && options->tty)
        return error_set(err, "bad_value", 0,
                         "--json: it cannot describe what a terminal shows; leave out --tty");
    if (options->output_limit_given && !options->json)
        return error_set(err, "bad_value", 0,
                         "--output-limit: without --json all output is passed on; add --json");
    if (env_merge(options, err) < 0 ||
        run_binds_sort(options->binds, options->binds_count, err) < 0)
        return -1;
    options->spec.binds = options->binds;
    options->spec.binds_count = options->binds_count;
    if (options->cwd == NULL && has_workspace(options))
        options->cwd = RUN_WORKSPACE;
    if (options->spec.limits.memory_bytes == 0)
        options->spec.limits.memory_bytes = memory_default();
    return 0;
}

int run_options_parse(struct run_options *options, int argc, char **argv, struct error *err)
{
    struct option_words words;

    *options = (struct run_options){
        .output_limit = RUN_OUTPUT_LIMIT,
        .words = (size_t)argc,
        .spec.root_kind = BOX_ROOT_HOST,
        .spec.privileges = BOX_PLAIN,
        .spec.limits.pids = RUN_PIDS,
        .spec.limits.disk_bytes = RUN_DISK_BYTES,
        .spec.limits.disk_inodes = RUN_DISK_INODES,
    };
    if (options_parse(&run_options_table, options, argc, argv, &words, err) < 0)
        return -1;
    options->command = words.rest;
    return options->help ? 0 : options_finish(options, err);
}

bool run_options_wants_json(int argc, char **argv)
{
    return options_have(&run_options_table, "json", argc, argv);
}

void run_options_free(struct run_options *options)
{
    for (size_t i = 0; i < options->binds_count; i++)
        run_bind_free(&options->binds[i]);
    free(options->binds);
    pairs_free(&options->env);
    pairs_free(&options->env_file);
    *options = (struct run_options){0};
}
