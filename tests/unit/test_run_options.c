/* The command line of `cove run`: what each option gives, and that bad input is refused with one
 * sentence that names it. Also the environment of the command and the buffer that keeps the newest
 * output, which the same words decide. */
#include "base/buf.h"
#include "base/fd.h"
#include "check.h"
#include "cmd/cmd.h"
#include "cmd/run.h"
#include "cmd/run_options.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define WORDS_MAX 32

static char directory[] = "/tmp/cove-test-XXXXXX";

/* Parses "run" and these words. They are copied: a result may borrow, but must not change them. */
static int parse(struct run_options *options, struct error *err, const char *const *words)
{
    static char storage[WORDS_MAX][512];
    static char *argv[WORDS_MAX + 1];
    int argc = 0;

    (void)snprintf(storage[argc], sizeof(storage[0]), "run");
    argv[argc] = storage[argc];
    argc++;
    for (; *words != NULL && argc < WORDS_MAX; words++, argc++) {
        (void)snprintf(storage[argc], sizeof(storage[0]), "%s", *words);
        argv[argc] = storage[argc];
    }
    argv[argc] = NULL;
    *err = (struct error){0};
    return run_options_parse(options, argc, argv, err);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define PARSE(...) parse(&options, &err, WORDS(__VA_ARGS__))

static void test_defaults_are_sane(void)
{
    struct run_options options;
    struct error err;
    struct sysinfo info;

    CHECK(PARSE("true") == 0, "%s", err.text);
    CHECK(sysinfo(&info) == 0, "sysinfo");
    CHECK(options.spec.root_kind == BOX_ROOT_HOST, "another root");
    CHECK(options.spec.privileges == BOX_PLAIN, "more than plain");
    CHECK(options.spec.user == NULL && options.spec.hostname == NULL, "a name of its own");
    CHECK(options.spec.limits.memory_bytes > 0 &&
              options.spec.limits.memory_bytes <= RUN_MEMORY_BYTES &&
              options.spec.limits.memory_bytes <= (uint64_t)info.totalram * info.mem_unit / 2,
          "%llu", (unsigned long long)options.spec.limits.memory_bytes);
    CHECK(options.spec.limits.cpu_milli == 0, "a CPU limit");
    CHECK(options.spec.limits.pids == 1024, "%u", options.spec.limits.pids);
    CHECK(options.spec.limits.disk_bytes == 1ULL << 30, "disk");
    CHECK(options.spec.limits.disk_inodes == 262144, "inodes");
    CHECK(options.timeout_ms == 0, "a timeout");
    CHECK(options.output_limit == 8ULL << 20, "output limit");
    CHECK(options.cwd == NULL, "cwd %s", options.cwd);
    CHECK(!options.json && !options.tty && !options.help, "a switch is on");
    CHECK(options.env.count == 0 && options.spec.binds_count == 0, "something is passed");
    run_options_free(&options);
}

static void test_values_come_after_a_space_or_an_equals_sign(void)
{
    struct run_options options;
    struct error err;

    CHECK(PARSE("--memory", "512M", "--cpus=1.5", "--pids", "64", "--disk=2G,1000", "--timeout",
                "1.5s", "--hostname=a-b.c", "--user", "0:5", "--privileges=system", "--cwd", "/tmp",
                "--net=none", "--json", "--output-limit=1K", "--", "sh", "-c", "x") == 0,
          "%s", err.text);
    CHECK(options.spec.limits.memory_bytes == 512ULL << 20, "memory");
    CHECK(options.spec.limits.cpu_milli == 1500, "cpus");
    CHECK(options.spec.limits.pids == 64, "pids");
    CHECK(options.spec.limits.disk_bytes == 2ULL << 30, "disk");
    CHECK(options.spec.limits.disk_inodes == 1000, "inodes");
    CHECK(options.timeout_ms == 1500, "timeout");
    CHECK(strcmp(options.spec.hostname, "a-b.c") == 0, "hostname");
    CHECK(strcmp(options.spec.user, "0:5") == 0, "user");
    CHECK(options.spec.privileges == BOX_SYSTEM, "privileges");
    CHECK(strcmp(options.cwd, "/tmp") == 0, "cwd");
    CHECK(options.json && options.output_limit == 1024, "json");
    CHECK(strcmp(options.command[0], "sh") == 0 && strcmp(options.command[1], "-c") == 0 &&
              strcmp(options.command[2], "x") == 0 && options.command[3] == NULL,
          "the command");
    run_options_free(&options);
}

static void test_the_command_starts_at_dashes_or_the_first_word(void)
{
    struct run_options options;
    struct error err;

    CHECK(PARSE("--tty", "ls", "--json", "--") == 0, "%s", err.text);
    CHECK(options.tty && !options.json, "an option of the command was taken");
    CHECK(strcmp(options.command[0], "ls") == 0 && strcmp(options.command[1], "--json") == 0,
          "the command");
    run_options_free(&options);
    CHECK(PARSE("--", "--json") == 0, "%s", err.text);
    CHECK(!options.json && strcmp(options.command[0], "--json") == 0, "-- does not end options");
    run_options_free(&options);
    CHECK(PARSE("--", "--", "x") == 0, "%s", err.text);
    CHECK(strcmp(options.command[0], "--") == 0, "the second -- is the command's");
    run_options_free(&options);
    CHECK(PARSE("--help", "--", "x") == 0 && options.help, "help");
    run_options_free(&options);
}

static void test_workspace_and_mounts_become_binds(void)
{
    struct run_options options;
    struct error err;
    char inner[600];
    char outer[600];
    char workspace[600];

    (void)snprintf(inner, sizeof(inner), "%s:/data/in:ro", directory);
    (void)snprintf(outer, sizeof(outer), "%s/a:b:/data/", directory);
    (void)snprintf(workspace, sizeof(workspace), "%s", directory);
    CHECK(PARSE("--mount", inner, "--workspace", workspace, "--mount", outer, "true") == 0, "%s",
          err.text);
    CHECK(options.spec.binds_count == 3, "%zu", options.spec.binds_count);
    if (options.spec.binds_count == 3) {
        const struct box_bind *binds = options.spec.binds;

        CHECK(strcmp(binds[0].target, "/data") == 0, "%s", binds[0].target);
        CHECK(strstr(binds[0].source, "/a:b") != NULL, "%s", binds[0].source);
        CHECK(!binds[0].read_only, "read-only");
        CHECK(strcmp(binds[1].target, "/data/in") == 0, "%s", binds[1].target);
        CHECK(binds[1].read_only, "writable");
        CHECK(strcmp(binds[2].target, "/workspace") == 0, "%s", binds[2].target);
        CHECK(!binds[2].read_only, "read-only");
    }
    CHECK(options.cwd != NULL && strcmp(options.cwd, "/workspace") == 0, "cwd");
    run_options_free(&options);
    (void)snprintf(workspace, sizeof(workspace), "%s:ro", directory);
    CHECK(PARSE("--cwd=/tmp", "--workspace", workspace, "true") == 0, "%s", err.text);
    CHECK(options.spec.binds_count == 1 && options.spec.binds[0].read_only, "writable");
    CHECK(strcmp(options.cwd, "/tmp") == 0, "--cwd is not the last word");
    run_options_free(&options);
}

static const char *env_of(const struct run_env *env, const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; env->list[i] != NULL; i++)
        if (strncmp(env->list[i], name, length) == 0 && env->list[i][length] == '=')
            return env->list[i] + length + 1;
    return "(none)";
}

static size_t env_count(const struct run_env *env)
{
    size_t count = 0;

    while (env->list[count] != NULL)
        count++;
    return count;
}

static void test_the_environment_holds_nothing_of_the_caller(void)
{
    struct box_user user = {.uid = 1000, .name = "user", .home = "/home/user"};
    struct run_options options;
    struct run_env env = {0};
    struct error err;

    (void)setenv("COVE_TEST_TOKEN", "secret", 1);
    (void)setenv("TERM", "xterm-256color", 1);
    (void)setenv("LANG", "de_DE.UTF-8", 1);
    CHECK(PARSE("true") == 0, "%s", err.text);
    CHECK(run_env_make(&env, &options, &user, &err) == 0, "%s", err.text);
    CHECK(env_count(&env) == 5, "%zu", env_count(&env));
    CHECK(strcmp(env_of(&env, "PATH"),
                 "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") == 0,
          "%s", env_of(&env, "PATH"));
    CHECK(strcmp(env_of(&env, "HOME"), "/home/user") == 0, "%s", env_of(&env, "HOME"));
    CHECK(strcmp(env_of(&env, "USER"), "user") == 0, "%s", env_of(&env, "USER"));
    CHECK(strcmp(env_of(&env, "LANG"), "C.UTF-8") == 0, "%s", env_of(&env, "LANG"));
    CHECK(strcmp(env_of(&env, "TERM"), "xterm-256color") == 0, "%s", env_of(&env, "TERM"));
    run_env_free(&env);
    run_options_free(&options);

    (void)setenv("TERM", "x\033[31m", 1);
    (void)setenv("LANG", "C", 1);
    user = (struct box_user){.uid = 4711};
    CHECK(PARSE("--env", "A=1", "--env", "COVE_TEST_TOKEN", "--env=PATH=/x", "--env", "A=2=3",
                "--env", "AB=", "true") == 0,
          "%s", err.text);
    CHECK(run_env_make(&env, &options, &user, &err) == 0, "%s", err.text);
    CHECK(env_count(&env) == 8, "%zu", env_count(&env));
    CHECK(strcmp(env_of(&env, "A"), "2=3") == 0, "%s", env_of(&env, "A"));
    CHECK(strcmp(env_of(&env, "AB"), "") == 0, "%s", env_of(&env, "AB"));
    CHECK(strcmp(env_of(&env, "COVE_TEST_TOKEN"), "secret") == 0, "not passed on");
    CHECK(strcmp(env_of(&env, "PATH"), "/x") == 0, "%s", env_of(&env, "PATH"));
    CHECK(strcmp(env_of(&env, "TERM"), "dumb") == 0, "an escape sequence is passed");
    CHECK(strcmp(env_of(&env, "LANG"), "C") == 0, "%s", env_of(&env, "LANG"));
    CHECK(strcmp(env_of(&env, "USER"), "4711") == 0, "%s", env_of(&env, "USER"));
    CHECK(strcmp(env_of(&env, "HOME"), "/") == 0, "%s", env_of(&env, "HOME"));
    run_env_free(&env);
    run_options_free(&options);
}

struct bad {
    const char *words[6];
    const char *code;
    const char *named; /* in the sentence */
};

static const struct bad bad_inputs[] = {
    {{"--memroy", "1G", "true"}, "unknown_option", "did you mean --memory?"},
    {{"--memroy=1G", "true"}, "unknown_option", "--memroy: "},
    {{"--mem", "1G", "true"}, "unknown_option", "did you mean --memory?"},
    {{"--workspaces=/", "true"}, "unknown_option", "did you mean --workspace?"},
    {{"--frobnicate", "true"}, "unknown_option", "cove run --help"},
    {{"-x", "true"}, "unknown_option", "-x"},
    {{NULL}, "no_command", "-- COMMAND"},
    {{"--json", "--"}, "no_command", "-- COMMAND"},
    {{""}, "no_command", "empty"},
    {{"--memory"}, "bad_value", "--memory SIZE"},
    {{"--memory", "lots", "true"}, "bad_value", "lots"},
    {{"--memory", "1K", "true"}, "bad_value", "8M"},
    {{"--memory", "-1", "true"}, "bad_value", "-1"},
    {{"--cpus", "0", "true"}, "bad_value", "--cpus"},
    {{"--cpus", "two", "true"}, "bad_value", "two"},
    {{"--pids", "0", "true"}, "bad_value", "--pids"},
    {{"--pids", "1x", "true"}, "bad_value", "1x"},
    {{"--disk", "1", "true"}, "bad_value", "1M"},
    {{"--disk", "1G,many", "true"}, "bad_value", "many"},
    {{"--disk", "1G,1", "true"}, "bad_value", "inodes"},
    {{"--disk", ",1000", "true"}, "bad_value", "--disk"},
    {{"--timeout", "soon", "true"}, "bad_value", "soon"},
    {{"--timeout", "999999h", "true"}, "bad_value", "ten years"},
    {{"--output-limit", "1M", "true"}, "bad_value", "add --json"},
    {{"--json", "--output-limit", "2G", "true"}, "bad_value", "1G"},
    {{"--json", "--tty", "true"}, "bad_value", "--tty"},
    {{"--json=yes", "true"}, "bad_value", "no value"},
    {{"--net", "host", "true"}, "bad_value", "--net host: a policy"},
    {{"--privileges", "root", "true"}, "bad_value", "plain or system"},
    {{"--hostname", "-a", "true"}, "bad_value", "-a"},
    {{"--hostname", "a..b", "true"}, "bad_value", "a..b"},
    {{"--hostname", "a b", "true"}, "bad_value", "letters"},
    {{"--hostname", "", "true"}, "bad_value", "--hostname"},
    {{"--hostname", "0123456789012345678901234567890123456789012345678901234567890123x", "true"},
     "bad_value",
     "64"},
    {{"--user", "", "true"}, "bad_value", "UID"},
    {{"--user", ":5", "true"}, "bad_value", ":5"},
    {{"--env", "=x", "true"}, "bad_value", "NAME=VALUE"},
    {{"--env", "COVE_TEST_UNSET", "true"}, "bad_value", "COVE_TEST_UNSET"},
    {{"--cwd", "here", "true"}, "bad_value", "absolute"},
    {{"--root", "/nonexistent-root", "true"}, "root_missing", "/nonexistent-root"},
    {{"--root", "/proc/self/exe", "true"}, "root_unreadable", "mkfs.erofs"},
    {{"--root", "/dev/null", "true"}, "root_unreadable", "/dev/null"},
    {{"--workspace", "/nonexistent-ws", "true"}, "workspace_missing", "/nonexistent-ws"},
    {{"--workspace", "/proc/self/exe", "true"}, "workspace_missing", "not a directory"},
    {{"--workspace", "/", "--workspace=/", "true"}, "bad_value", "--mount"},
    {{"--workspace", "/", "--mount=/:/workspace", "true"}, "bad_mount", "/workspace"},
    {{"--mount", "/usr", "true"}, "bad_mount", "SRC:DST"},
    {{"--mount", ":/usr", "true"}, "bad_mount", "SRC:DST"},
    {{"--mount", "/usr:ro", "true"}, "bad_mount", "SRC:DST"},
    {{"--mount", "/nonexistent:/x", "true"}, "mount_missing", "/nonexistent"},
    {{"--mount", "/dev/null:/x", "true"}, "bad_mount", "way out"},
    {{"--mount", "/:x", "true"}, "bad_mount", "absolute"},
    {{"--mount", "/:", "true"}, "bad_mount", "absolute"},
    {{"--mount", "/:/", "true"}, "bad_mount", "root of the box"},
    {{"--mount", "/://", "true"}, "bad_mount", "root of the box"},
    {{"--mount", "/:/a//b", "true"}, "bad_mount", "empty"},
    {{"--mount", "/:/a/../b", "true"}, "bad_mount", "'..'"},
    {{"--mount", "/:/./b", "true"}, "bad_mount", "'.'"},
    {{"--mount", "/:/proc", "true"}, "bad_mount", "/proc"},
    {{"--mount", "/:/dev/x", "true"}, "bad_mount", "/dev"},
    {{"--mount", "/:/sys/", "true"}, "bad_mount", "/sys"},
    {{"--mount", "/:/a", "--mount=/:/a/", "true"}, "bad_mount", "already"},
};

static void test_bad_input_is_one_sentence_that_names_it(void)
{
    for (size_t i = 0; i < sizeof(bad_inputs) / sizeof(bad_inputs[0]); i++) {
        const struct bad *bad = &bad_inputs[i];
        struct run_options options;
        struct error err;
        int result = parse(&options, &err, bad->words);

        CHECK(result < 0, "%s %s was accepted", bad->words[0],
              bad->words[0] == NULL || bad->words[1] == NULL ? "" : bad->words[1]);
        CHECK(strcmp(err.code, bad->code) == 0, "%zu: %s: %s", i, err.code, err.text);
        CHECK(strstr(err.text, bad->named) != NULL, "%zu: %s", i, err.text);
        CHECK(strchr(err.text, '\n') == NULL, "%zu: %s", i, err.text);
        run_options_free(&options);
    }
}

static void test_names_near_the_walls_are_accepted(void)
{
    struct run_options options;
    struct error err;

    CHECK(PARSE("--mount=/usr:/process", "--mount=/usr:/developer", "--mount=/usr:/a...b",
                "--hostname=0", "--timeout=0", "--memory=8M", "--disk=1M,64", "--cpus=0.01",
                "true") == 0,
          "%s", err.text);
    CHECK(options.spec.binds_count == 3, "%zu", options.spec.binds_count);
    run_options_free(&options);
}

static void test_a_secret_in_env_is_never_repeated(void)
{
    struct run_options options;
    struct error err;

    CHECK(PARSE("--env", "=hunter2", "true") < 0, "accepted");
    CHECK(strstr(err.text, "hunter2") == NULL, "%s", err.text);
    run_options_free(&options);
}

static bool wants_json(const char *const *words)
{
    char *argv[WORDS_MAX] = {NULL};
    char copy[WORDS_MAX][64];
    int argc = 0;

    for (; words[argc] != NULL; argc++) {
        (void)snprintf(copy[argc], sizeof(copy[0]), "%s", words[argc]);
        argv[argc] = copy[argc];
    }
    return run_options_wants_json(argc, argv);
}

static void test_json_is_seen_where_the_rest_is_wrong(void)
{
    CHECK(wants_json(WORDS("run", "--bogus", "--json", "--", "x")), "not seen");
    CHECK(wants_json(WORDS("run", "--memory", "lots", "--json")), "not seen");
    CHECK(!wants_json(WORDS("run", "--root", "--json", "x")), "a value was taken for it");
    CHECK(!wants_json(WORDS("run", "--bogus", "--", "--json")), "the command's was taken");
    CHECK(!wants_json(WORDS("run", "sh", "--json")), "the command's was taken");
}

static void test_help_names_every_option_with_its_default(void)
{
    static const char *const wanted[] = {"--root",      "--workspace",    "--mount",
                                         "--cwd",       "--user",         "--env",
                                         "--hostname",  "--privileges",   "--memory",
                                         "--cpus",      "--pids",         "--disk",
                                         "--timeout",   "--output-limit", "--net",
                                         "--tty",       "--json",         "--help",
                                         "default: 2G", "default: 1024",  "default: 1G,262144",
                                         "default: 8M", "default: none",  "default: plain",
                                         "set-id"};
    _cleanup_free_ char *text = options_help(&run_options_table);

    CHECK(text != NULL, "no memory");
    if (text == NULL)
        return;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        CHECK(strstr(text, wanted[i]) != NULL, "%s is not in it", wanted[i]);
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");

        CHECK(length <= 100, "%.*s", (int)length, line);
        line += length + (line[length] != '\0');
    }
}

static void test_misspelt_names_are_near(void)
{
    CHECK(cmd_distance("memory", "memory") == 0, "equal");
    CHECK(cmd_distance("memroy", "memory") == 1, "swapped");
    CHECK(cmd_distance("", "abc") == 3, "empty");
    CHECK(cmd_distance("cpu", "cpus") == 1, "shorter");
    CHECK(cmd_distance("mem", "memory") == 1, "the beginning");
    CHECK(cmd_is_near("cpu", 1) && !cmd_is_near("cpu", 3), "near");
}

/* Puts `size` bytes of a repeating alphabet, which starts at `*at`, into the buffer. */
static void tail_put(struct buf_tail *tail, size_t size, size_t *at)
{
    while (size > 0) {
        char *into = NULL;
        size_t room = buf_tail_room(tail, &into);
        size_t most = room < size ? room : size;

        CHECK(room > 0, "no room");
        if (room == 0)
            return;
        for (size_t i = 0; i < most; i++)
            into[i] = (char)('a' + (*at)++ % 26);
        buf_tail_commit(tail, most);
        size -= most;
    }
}

static void test_the_newest_bytes_are_kept_and_the_rest_counted(void)
{
    static const size_t limits[] = {0, 1, 100, 65536, 65537, 200000, 1 << 20};
    static const size_t sizes[] = {0, 1, 99, 100, 65535, 65536, 65537, 131072, 200001, 3000001};

    for (size_t l = 0; l < sizeof(limits) / sizeof(limits[0]); l++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            size_t kept = sizes[s] < limits[l] ? sizes[s] : limits[l];
            struct buf_tail tail;
            size_t at = 0;
            bool good = true;

            buf_tail_init(&tail, limits[l]);
            /* In unequal pieces, so that the ring turns at many places. */
            while (at < sizes[s])
                tail_put(&tail, sizes[s] - at < 777 ? sizes[s] - at : 777, &at);
            buf_tail_close(&tail);
            CHECK(tail.used == kept, "%zu of %zu: %zu", limits[l], sizes[s], tail.used);
            CHECK(tail.dropped == sizes[s] - kept, "%zu of %zu: %llu", limits[l], sizes[s],
                  (unsigned long long)tail.dropped);
            for (size_t i = 0; i < tail.used; i++)
                good = good && tail.data[i] == (char)('a' + (sizes[s] - kept + i) % 26);
            CHECK(good, "%zu of %zu: other bytes", limits[l], sizes[s]);
            CHECK(tail.capacity <= (limits[l] > 65536 ? limits[l] : 65536), "%zu", tail.capacity);
            buf_tail_free(&tail);
        }
    }
}

static void test_a_cut_does_not_start_inside_a_character(void)
{
    /* In the middle a character of four bytes. */
    static const char text[8] = {'x', 'x', '\xF0', '\x9F', '\x98', '\x80', 'y', 'z'};
    static const size_t kept[] = {0, 1, 2, 2, 2, 2, 6, 7, 8};

    for (size_t limit = 0; limit <= 8; limit++) {
        struct buf_tail tail;
        char *into = NULL;

        buf_tail_init(&tail, limit);
        CHECK(buf_tail_room(&tail, &into) >= 8, "no room");
        memcpy(into, text, 8);
        buf_tail_commit(&tail, 8);
        buf_tail_close(&tail);
        CHECK(tail.used == kept[limit] && tail.dropped == 8 - kept[limit], "%zu: %zu kept", limit,
              tail.used);
        CHECK(memcmp(tail.data, text + 8 - kept[limit], kept[limit]) == 0, "%zu: other bytes",
              limit);
        buf_tail_free(&tail);
    }
}

static bool file_make(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    return fd >= 0 && close(fd) == 0;
}

int main(void)
{
    char path[600];
    int result;

    if (mkdtemp(directory) == NULL)
        return 1;
    (void)snprintf(path, sizeof(path), "%s/a:b", directory);
    if (!file_make(path))
        return 1;
    test_defaults_are_sane();
    test_values_come_after_a_space_or_an_equals_sign();
    test_the_command_starts_at_dashes_or_the_first_word();
    test_workspace_and_mounts_become_binds();
    test_the_environment_holds_nothing_of_the_caller();
    test_bad_input_is_one_sentence_that_names_it();
    test_names_near_the_walls_are_accepted();
    test_a_secret_in_env_is_never_repeated();
    test_json_is_seen_where_the_rest_is_wrong();
    test_help_names_every_option_with_its_default();
    test_misspelt_names_are_near();
    test_the_newest_bytes_are_kept_and_the_rest_counted();
    test_a_cut_does_not_start_inside_a_character();
    result = check_finish();
    (void)unlink(path);
    (void)rmdir(directory);
    return result;
}
