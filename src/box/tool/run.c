/* What every verb begins and ends with: see parts.h. */
#include "box/tool/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

static const struct tool_row *find(const struct tool_row *rows, const char *name)
{
    for (; rows->name != NULL; rows++)
        if (strcmp(rows->name, name) == 0)
            return rows;
    return NULL;
}

static int run(const struct tool_row *row, struct tool *tool, struct error *err)
{
    const struct options *options = &tool->options;

    if (options->operands_count < row->operands_min || options->operands_count > row->operands_max)
        return fail(err, 0, "bad_option", "%s takes another number of paths", row->name);
    tool->at = options->operands_count > 0 ? options->operands[0] : "";
    if (places_open(&tool->places, options->beneath, err) < 0)
        return -1;
    return row->run(tool, err);
}

int tool_run(const struct tool_row *rows, int argc, char **argv)
{
    static struct tool tool; /* its buffer is not for the program's file */
    const struct tool_row *row = argc > 0 ? find(rows, argv[0]) : NULL;
    struct error err;
    int done = -1;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ,
                 SIG_IGN); /* of RLIMIT_FSIZE, where the disk is watched: a write says EFBIG then */
    tool.say.fd = STDOUT_FILENO;
    tool.hear.fd = STDIN_FILENO;
    tool.at = "";
    tool.users = users_new();
    if (row == NULL)
        (void)fail(&err, 0, "bad_option", "there is no verb \"%.60s\"", argc > 0 ? argv[0] : "");
    else if (options_parse(argc, argv, &tool.options, &err) == 0)
        done = run(row, &tool, &err);
    if (done < 0)
        say_error(&tool.say, -1, tool.at, &err);
    else
        say_done(&tool.say);
    say_flush(&tool.say);
    return done < 0 ? 1 : 0;
}

int tool_tell(struct tool *tool, uint32_t type, unsigned operand, const char *path,
              const struct place *place, struct error *err)
{
    char target[TOOL_PATH_MAX];
    struct stat st;

    if (place_stat(place, &st, err) < 0)
        return -1;
    place_target(place->dir, place->name, &st, target, sizeof(target));
    say_entry(&tool->say, tool->users, type,
              &(struct entry){.operand = operand, .st = &st, .path = path, .target = target});
    return 0;
}

void tool_fail(struct tool *tool, unsigned operand, const char *path, const struct error *err)
{
    say_error(&tool->say, (int)operand, path, err);
}

int tool_chmod(int fd, mode_t mode)
{
    char path[FD_PATH_MAX];

    if (syscall(SYS_fchmodat2, fd, "", mode, AT_EMPTY_PATH) == 0)
        return 0;
    if (errno != ENOSYS && errno != EINVAL)
        return -1;
    fd_path(fd, path);
    return chmod(path, mode);
}

int tool_fail_owner(struct error *err, const char *what)
{
    if (errno == EINVAL)
        return fail(err, 0, "unknown_user", "cannot %s: the sandbox has no such id; name another",
                    what);
    return fail(err, errno, "", "%s", what);
}

void tool_temporary(char name[TOOL_NAME_MAX])
{
    uint64_t random[2] = {0};

    if (getrandom(random, sizeof(random), 0) < 0)
        random[0] = (uint64_t)getpid(); /* taken names are refused, not written over */
    (void)snprintf(name, TOOL_NAME_MAX, ".cove-%016" PRIx64 "%016" PRIx64, random[0], random[1]);
}
