/* Starting one command: see command.h. The child shares init's memory until its program starts, so
 * it allocates nothing and init waits for it. */
#include "box/init/command.h"

#include "base/fd.h"
#include "box/init/leaves.h"
#include "box/search.h"
#include "box/spawn.h"
#include "box/sys.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif
#define CLONE_INTO_CGROUP_FLAG 0x200000000ULL

static char stack[65536] __attribute__((aligned(16)));

bool command_strings(struct command_start *start)
{
    const struct proto_exec *request = start->request;
    char *at = start->strings, *end = start->strings + request->strings_size;
    uint32_t count = 1 + request->argc + request->envc;

    if (request->argc == 0 || request->strings_size == 0 || end[-1] != '\0')
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (at >= end)
            return false;
        if (i >= 1 && i <= request->argc)
            start->argv[i] = at; /* argv[0] of the array is kept free */
        else if (i > request->argc)
            start->env[i - 1 - request->argc] = at;
        at += strlen(at) + 1;
    }
    start->argv[request->argc + 1] = NULL;
    start->env[request->envc] = NULL;
    return at == end;
}

int command_terminal(uint16_t rows, uint16_t columns)
{
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    int unlock = 0;
    int master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (master >= 0 &&
        (ioctl(master, TIOCSPTLCK, &unlock) < 0 || ioctl(master, TIOCSWINSZ, &size) < 0)) {
        (void)close(master);
        return -1;
    }
    return master;
}

/* The ends are two descriptions, so that O_NONBLOCK of one is nothing to the other. */
static int make_pipe(int *near, int *far, bool is_stdin)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    *near = ends[is_stdin ? 0 : 1];
    *far = ends[is_stdin ? 1 : 0];
    return fcntl(*far, F_SETFL, O_NONBLOCK);
}

int command_pipes(int near[3], int far[3], bool no_stdin)
{
    near[0] = near[1] = near[2] = far[0] = far[1] = far[2] = -1;
    if ((no_stdin || make_pipe(&near[0], &far[0], true) == 0) &&
        make_pipe(&near[1], &far[1], false) == 0 && make_pipe(&near[2], &far[2], false) == 0) {
        if (no_stdin)
            near[0] = 0;
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        fd_close(&near[i]);
        fd_close(&far[i]);
    }
    return -1;
}

static int place_stdio(struct command_start *start)
{
    if ((start->request->flags & PROTO_EXEC_TTY) != 0) {
        int slave = ioctl(start->fds[0], TIOCGPTPEER, O_RDWR | O_NOCTTY);

        if (slave < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
            return -1;
        return dup2(slave, 0) < 0 || dup2(slave, 1) < 0 || dup2(slave, 2) < 0 ? -1 : 0;
    }
    for (int i = 0; i < 3; i++)
        if (dup2(start->fds[i], i) < 0)
            return -1;
    return 0;
}

static int become_user(const struct proto_exec *request)
{
    gid_t groups[PROTO_GROUPS_MAX];

    if ((request->flags & PROTO_EXEC_USER) == 0)
        return 0;
    for (uint32_t i = 0; i < request->groups_count; i++)
        groups[i] = request->groups[i];
    /* Not libc's, which keeps books that init shares with this child. */
    if (syscall(SYS_setgroups, (size_t)request->groups_count, groups) < 0 ||
        syscall(SYS_setresgid, request->gid, request->gid, request->gid) < 0)
        return -1;
    return (int)syscall(SYS_setresuid, request->uid, request->uid, request->uid);
}

/* Hard and soft; never above what the box has. */
static int limit(int resource, uint64_t most, uint64_t grace)
{
    struct rlimit now;

    if (most == 0)
        return 0;
    if (syscall(SYS_prlimit64, 0, resource, NULL, &now) < 0)
        return -1;
    if (now.rlim_max > most + grace)
        now.rlim_max = most + grace;
    now.rlim_cur = now.rlim_max < most ? now.rlim_max : most;
    return (int)syscall(SYS_prlimit64, 0, resource, &now, NULL);
}

static int limit_all(const struct proto_limits *limits)
{
    if (limits == NULL)
        return 0;
    /* At the hard limit of CPU time the kernel kills; a second before, it asks. */
    if (limit(RLIMIT_FSIZE, limits->file_bytes, 0) < 0 ||
        limit(RLIMIT_CPU, limits->cpu_seconds, 1) < 0 ||
        limit(RLIMIT_NOFILE, limits->open_files, 0) < 0)
        return -1;
    return limit(RLIMIT_AS, limits->memory_bytes, 0);
}

/* All but stdio, and the program until it is executed. */
static int close_others(const struct command_start *start)
{
    unsigned program = (unsigned)start->program;

    if (start->program < 0)
        return sys_close_range(3, ~0U, 0);
    return (program > 3 && sys_close_range(3, program - 1, 0) < 0) ||
                   sys_close_range(program + 1, ~0U, 0) < 0
               ? -1
               : 0;
}

static int child(void *argument)
{
    struct command_start *start = argument;
    sigset_t none;

    (void)setsid();
    start->step = BOX_STEP_TTY;
    if (place_stdio(start) < 0)
        goto failed;
    start->step = BOX_STEP_USER;
    if (become_user(start->request) < 0)
        goto failed;
    start->step = BOX_STEP_CWD;
    if (chdir(start->strings) < 0)
        goto failed;
    start->step = BOX_STEP_EXEC;
    if (close_others(start) < 0 || limit_all(start->limits) < 0)
        goto failed;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (start->program >= 0)
        (void)sys_execveat(start->program, start->argv + 1, start->env);
    else
        search_and_execute(start->argv + 1, start->env);
failed:
    start->errnum = errno;
    return 127;
}

pid_t command_start(struct command_start *start)
{
    struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK,
        .exit_signal = SIGCHLD,
        .stack = (uint64_t)(uintptr_t)stack,
        .stack_size = sizeof(stack),
    };
    long pid;

    if (start->leaf >= 0) {
        args.flags |= CLONE_INTO_CGROUP_FLAG;
        args.cgroup = (unsigned)leaves_fd(start->leaf);
    }
    start->errnum = 0;
    pid = spawn_clone3(&args, start->key, child, start);
    if (pid < 0) {
        start->step = BOX_STEP_SPAWN;
        start->errnum = (int)-pid;
        return -1;
    }
    return (pid_t)pid;
}
