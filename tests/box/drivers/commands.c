/* Drives one box through several commands, which `cove run` cannot: what holds for the first one
 * has to hold for every other.
 *
 *   commands plain|system WORD...
 *
 * Words: exec ID LINE, wait ID, kill ID, signal ID NUMBER, sleep MS. The commands' stdio is ours;
 * how each ended is said on stderr. */
#include "box/box.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const environment[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", NULL};

static int statuses[64]; /* -1: not ended */

static int fail(const char *what, const struct error *err)
{
    (void)fprintf(stderr, "commands: %s: %s\n", what, err->text);
    return 1;
}

static int take_events(struct box *box, struct error *err)
{
    struct box_event event;
    int got;

    while ((got = box_next(box, &event, err)) > 0) {
        if (event.kind == BOX_GONE) {
            *err = event.error;
            return -1;
        }
        if (event.kind == BOX_EXITED)
            statuses[event.command] = event.status;
        if (event.kind == BOX_REFUSED) {
            (void)fprintf(stderr, "%u: refused at step %d: %s\n", event.command, event.step,
                          strerror(event.errnum));
            statuses[event.command] = 127 << 8;
        }
    }
    return got;
}

static int wait_for(struct box *box, unsigned id, struct error *err)
{
    struct pollfd poll_fd = {.fd = box_fd(box), .events = POLLIN};

    while (statuses[id] < 0) {
        (void)poll(&poll_fd, 1, -1);
        if (take_events(box, err) < 0)
            return -1;
    }
    (void)fprintf(stderr, "%u: %s %d\n", id, WIFSIGNALED(statuses[id]) ? "signal" : "exit",
                  WIFSIGNALED(statuses[id]) ? WTERMSIG(statuses[id]) : WEXITSTATUS(statuses[id]));
    return 0;
}

static int start(struct box *box, unsigned id, const char *line, struct error *err)
{
    const char *const argv[] = {"/bin/sh", "-c", line, NULL};
    struct box_command command = {
        .argv = argv, .env = environment, .cwd = "/tmp", .stdio = {0, 1, 2}};

    statuses[id] = -1;
    return box_exec(box, id, &command, err);
}

/* One word with its arguments: how many words it took, or -1. */
static int act(struct box *box, char **words, struct error *err)
{
    unsigned id = words[1] != NULL ? (unsigned)atoi(words[1]) % 64 : 0;

    if (strcmp(words[0], "exec") == 0)
        return start(box, id, words[2], err) < 0 ? -1 : 3;
    if (strcmp(words[0], "wait") == 0)
        return wait_for(box, id, err) < 0 ? -1 : 2;
    if (strcmp(words[0], "kill") == 0)
        return box_kill(box, id, err) < 0 ? -1 : 2;
    if (strcmp(words[0], "signal") == 0)
        return box_signal(box, id, atoi(words[2]), err) < 0 ? -1 : 3;
    if (strcmp(words[0], "sleep") == 0) {
        int ms = atoi(words[1]);

        (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L},
                        NULL);
        return 2;
    }
    return error_set(err, "bad_word", 0, "%s is no word", words[0]);
}

int main(int argc, char **argv)
{
    const char *attacks = getenv("COVE_TEST_ATTACKS");
    struct box_bind bind = {.source = attacks, .target = "/attack", .read_only = true};
    struct box_spec spec = {
        .root_kind = BOX_ROOT_HOST,
        .binds = &bind,
        .binds_count = 1,
        .many_commands = true,
        .limits = {.memory_bytes = 512ULL << 20,
                   .pids = 256,
                   .disk_bytes = 64 << 20,
                   .disk_inodes = 4096},
    };
    struct box_report report;
    struct error err = {0};
    struct box *box;
    int status = 0;

    if (argc < 3 || attacks == NULL)
        return 2;
    spec.privileges = strcmp(argv[1], "system") == 0 ? BOX_SYSTEM : BOX_PLAIN;
    if (box_create(&spec, &box, &err) < 0)
        return fail("create", &err);
    for (int i = 2, took; i < argc && status == 0; i += took) {
        took = act(box, argv + i, &err);
        if (took < 0) {
            status = fail(argv[i], &err);
            took = 1;
        }
    }
    if (box_destroy(box, &report, &err) < 0)
        return fail("destroy", &err);
    return status;
}
