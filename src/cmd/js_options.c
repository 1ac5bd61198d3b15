/* The options of `cove js`, for the help of cove, and for cove-js, which takes them. */
#include "cmd/js.h"

#include "base/parse.h"
#include "cmd/cmd.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int js_list_add(struct js_list *list, const char *name, const char *value, struct error *err)
{
    if (list->count == JS_LIST_MAX)
        return option_bad_value(err, name, value, "there are too many of them",
                                "grant a directory above them");
    list->text[list->count++] = value;
    return 0;
}

static int take_code(void *into, const char *value, struct error *err)
{
    struct js_options *options = into;

    if (options->code != NULL)
        return option_bad_value(err, "eval", value, "there is code already",
                                "join the pieces with ';'");
    options->code = value;
    return 0;
}

static int take_ms(const char *name, const char *value, uint64_t *ms, struct error *err)
{
    return parse_count(name, value, 1, KERNEL_MS_MAX, ms, err);
}

static int take_cpu(void *into, const char *value, struct error *err)
{
    return take_ms("--cpu-ms", value, &((struct js_options *)into)->cpu_ms, err);
}

static int take_wall(void *into, const char *value, struct error *err)
{
    return take_ms("--wall-ms", value, &((struct js_options *)into)->wall_ms, err);
}

static int take_memory(void *into, const char *value, struct error *err)
{
    struct js_options *options = into;

    if (parse_size("--memory", value, &options->memory_bytes, err) < 0)
        return -1;
    if (options->memory_bytes == 0 || options->memory_bytes > KERNEL_MEMORY_MAX)
        return option_bad_value(err, "memory", value, "a kernel has up to 4G",
                                "give less, such as 256M");
    return 0;
}

/* Paths are granted by their full names; a relative one is one of the working directory. */
static int list_add_path(struct js_list *list, const char *name, const char *value,
                         struct error *err)
{
    char here[PATH_MAX];
    char *full;

    if (value[0] == '/')
        return js_list_add(list, name, value, err);
    if (getcwd(here, sizeof(here)) == NULL || asprintf(&full, "%s/%s", here, value) < 0)
        return option_no_memory(err);
    return js_list_add(list, name, full, err); /* kept until cove ends */
}

static int take_read(void *into, const char *value, struct error *err)
{
    return list_add_path(&((struct js_options *)into)->reads, "allow-read", value, err);
}

static int take_write(void *into, const char *value, struct error *err)
{
    return list_add_path(&((struct js_options *)into)->writes, "allow-write", value, err);
}

static int take_host(void *into, const char *value, struct error *err)
{
    return js_list_add(&((struct js_options *)into)->hosts, "allow-host", value, err);
}

static int take_env(void *into, const char *value, struct error *err)
{
    size_t name = strcspn(value, "=");

    /* What stands in a value may be a secret: no message repeats it. */
    if (name == 0 || value[name] == 0)
        return error_set(err, "bad_value", 0, "--env: write --env NAME=VALUE");
    return js_list_add(&((struct js_options *)into)->env, "env", value, err);
}

static const struct option_row rows[] = {
    {"eval", "CODE", NULL, "run CODE, in place of a file", take_code, 'e', 0},
    {"ts", NULL, NULL, "it is TypeScript, as a file that ends in .ts is", NULL, 0,
     offsetof(struct js_options, typescript)},
    {"module", NULL, NULL, "it is an ES module, as a file that ends in .mjs is", NULL, 0,
     offsetof(struct js_options, module)},
    {"cpu-ms", "NUMBER", "5000", "milliseconds of CPU time; exit 124", take_cpu, 0, 0},
    {"wall-ms", "NUMBER", "30000", "milliseconds of time; exit 124", take_wall, 0, 0},
    {"memory", "SIZE", "128M", "memory, up to 4G", take_memory, 0, 0},
    {"allow-read", "PATH", "nothing",
     "let it read this file, or all below this directory; repeatable", take_read, 0, 0},
    {"allow-write", "PATH", "nothing",
     "let it write this file, or all below this directory; repeatable", take_write, 0, 0},
    {"allow-host", "RULE", "nothing",
     "let it fetch from this host: NAME, *.NAME, ADDRESS or CIDR, with :PORT if only that; * is all "
     "of the public internet; repeatable",
     take_host, 0, 0},
    {"env", "NAME=VALUE", "none", "set a variable of process.env; repeatable", take_env, 0, 0},
    OPTION_JSON("print one JSON object with the value, the log and what it cost"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "js",
    .usage = "[FILE [ARGUMENT...]]",
    .about =
        "Runs JavaScript or TypeScript where it can touch nothing, and prints the value of its\n"
        "last expression. FILE may be - for standard input; without any, a terminal is asked line\n"
        "by line, and what was declared stays. It begins in microseconds: nothing is started and\n"
        "nothing is installed for it. Exits with 1 if it threw, with 124 if its time was up.",
    .examples =
        "cove js -e '[3, 1, 2].sort().join()'\n"
        "cove js --json --cpu-ms 100 script.ts\n"
        "cove js --allow-read /etc/hosts -e 'require(\"fs\").readFileSync(\"/etc/hosts\", \"utf8\")'",
    OPTION_ROWS(rows),
    .words = 1,
    .many = true,
};

const struct cmd cmd_js = {.name = "js",
                           .summary = "run JavaScript or TypeScript in a kernel",
                           .run = js_run,
                           .table = &table};
