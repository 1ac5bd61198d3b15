/* PID 1 of a box: starts commands when the outside asks, reaps everything, ends with the outside.
 *
 * Static and small: there is one in every box. It already carries the filter and no capability
 * beyond its profile's, so what it starts inherits both and pays nothing. Output never passes
 * through it. It trusts its control socket and nothing inside the box: no file of the box is read
 * here but cgroup leaves of its own. */
#include "base/fd.h"
#include "box/init/command.h"
#include "box/init/leaves.h"
#include "box/proto.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMANDS_MAX 4096
#define POINTERS_INLINE 1024

struct command {
    uint32_t id;
    pid_t pid; /* 0: the slot is free */
    int leaf;
};

static struct command commands[COMMANDS_MAX];
static int commands_top; /* slots from here on were never used */
static struct proto_config config;

static void answer(const void *packet, size_t size, int fd)
{
    /* Nobody to tell is the end, and the loop will see it. */
    (void)proto_send(PROTO_CONTROL_FD, packet, size, NULL, 0, &fd, fd >= 0 ? 1 : 0);
}

static void refuse(uint32_t id, enum box_step step, int errnum)
{
    struct proto_refused refused = {
        .head = {.type = PROTO_REFUSED, .id = id}, .step = step, .errnum = errnum};

    answer(&refused, sizeof(refused), -1);
}

static struct command *find(uint32_t id)
{
    for (int i = 0; i < commands_top; i++)
        if (commands[i].pid != 0 && commands[i].id == id)
            return &commands[i];
    return NULL;
}

static struct command *free_slot(void)
{
    for (int i = 0; i < commands_top; i++)
        if (commands[i].pid == 0)
            return &commands[i];
    return commands_top < COMMANDS_MAX ? &commands[commands_top++] : NULL;
}

static void start(struct command_start *what, uint32_t id)
{
    struct proto_started started = {.head = {.type = PROTO_STARTED, .id = id}};
    bool tty = (what->request->flags & PROTO_EXEC_TTY) != 0;
    struct command *slot = find(id) == NULL ? free_slot() : NULL;
    pid_t pid;

    if (slot == NULL) {
        refuse(id, BOX_STEP_SPAWN, find(id) != NULL ? EEXIST : EAGAIN);
        return;
    }
    if (tty) {
        what->fds[0] = command_terminal(what->request->rows, what->request->columns);
        if (what->fds[0] < 0) {
            refuse(id, BOX_STEP_TTY, errno);
            return;
        }
    }
    what->leaf = config.has_leaves != 0 ? leaves_take() : -1;
    if (config.has_leaves != 0 && what->leaf < 0) {
        refuse(id, BOX_STEP_SPAWN, errno);
        goto out;
    }
    pid = command_start(what);
    if (pid < 0 || what->errnum != 0) {
        if (pid > 0)
            (void)waitpid(pid, NULL, 0);
        if (what->leaf >= 0)
            leaves_give(what->leaf);
        refuse(id, what->step, what->errnum);
        goto out;
    }
    *slot = (struct command){.id = id, .pid = pid, .leaf = what->leaf};
    started.pid = pid;
    answer(&started, sizeof(started), tty ? what->fds[0] : -1);
out:
    if (tty)
        (void)close(what->fds[0]);
}

/* The strings of a request: behind it in the packet, or in a memfd. */
static char *map_strings(const struct proto_exec *request, int memfd)
{
    void *at = mmap(NULL, request->strings_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, memfd, 0);

    return at == MAP_FAILED ? NULL : at;
}

static void on_exec(struct proto_exec *request, size_t size, int fds[PROTO_FDS_MAX])
{
    static char *few[POINTERS_INLINE];
    struct command_start what = {.request = request, .key = config.clone_key};
    size_t pointers = (size_t)request->argc + request->envc + 3;
    bool tty = (request->flags & PROTO_EXEC_TTY) != 0;
    bool far = (request->flags & PROTO_EXEC_MEMFD) != 0;
    void *many = MAP_FAILED;

    if (request->strings_size > PROTO_STRINGS_MAX || request->strings_size == 0 ||
        request->groups_count > PROTO_GROUPS_MAX || pointers > PROTO_STRINGS_MAX ||
        (!far && size != sizeof(*request) + request->strings_size)) {
        refuse(request->head.id, BOX_STEP_SPAWN, EINVAL);
        return;
    }
    what.strings = far ? map_strings(request, fds[tty ? 0 : 3]) : (char *)(request + 1);
    what.argv = few;
    if (pointers > POINTERS_INLINE) {
        many = mmap(NULL, pointers * sizeof(char *), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        what.argv = many == MAP_FAILED ? NULL : many;
    }
    if (what.strings == NULL || what.argv == NULL) {
        refuse(request->head.id, BOX_STEP_SPAWN, ENOMEM);
    } else {
        what.env = what.argv + request->argc + 2;
        memcpy(what.fds, fds, sizeof(what.fds));
        if (command_strings(&what))
            start(&what, request->head.id);
        else
            refuse(request->head.id, BOX_STEP_SPAWN, EINVAL);
    }
    if (many != MAP_FAILED)
        (void)munmap(many, pointers * sizeof(char *));
    if (far && what.strings != NULL)
        (void)munmap(what.strings, request->strings_size);
}

static void on_signal(const struct proto_signal *request)
{
    struct command *command = find(request->head.id);

    if (command != NULL)
        (void)kill(-command->pid, request->signal_number);
}

static void on_kill(const struct proto_head *request)
{
    struct command *command = find(request->id);

    if (command == NULL)
        return;
    if (command->leaf < 0 || leaves_kill(command->leaf) < 0)
        (void)kill(-command->pid, SIGKILL);
}

static void on_request(char *packet, size_t size, int fds[PROTO_FDS_MAX])
{
    struct proto_head *head = (struct proto_head *)(void *)packet;

    if (size < sizeof(*head))
        return;
    if (head->type == PROTO_EXEC && size >= sizeof(struct proto_exec))
        on_exec((struct proto_exec *)(void *)packet, size, fds);
    else if (head->type == PROTO_SIGNAL && size == sizeof(struct proto_signal))
        on_signal((struct proto_signal *)(void *)packet);
    else if (head->type == PROTO_KILL)
        on_kill(head);
}

/* False when the outside is gone. */
static bool serve(void)
{
    static char packet[sizeof(struct proto_exec) + PROTO_INLINE_MAX] __attribute__((aligned(16)));
    int fds[PROTO_FDS_MAX];
    ssize_t n = proto_receive(PROTO_CONTROL_FD, packet, sizeof(packet), fds, MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN || errno == EMSGSIZE;
    if (n == 0)
        return false;
    on_request(packet, (size_t)n, fds);
    for (size_t i = 0; i < PROTO_FDS_MAX; i++)
        fd_close(&fds[i]);
    return true;
}

static uint64_t nanoseconds(const struct timeval *time)
{
    return (uint64_t)time->tv_sec * 1000000000U + (uint64_t)time->tv_usec * 1000U;
}

static void reap(int signals)
{
    struct signalfd_siginfo info;
    struct rusage usage;
    int status;
    pid_t pid;

    (void)!read(signals, &info, sizeof(info));
    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        struct proto_exited exited = {.head.type = PROTO_EXITED, .status = status};
        struct command *command = NULL;

        for (int i = 0; i < commands_top && command == NULL; i++)
            if (commands[i].pid == pid)
                command = &commands[i];
        if (command == NULL)
            continue; /* an orphan: somebody's daemon */
        exited.head.id = command->id;
        exited.cpu_ns = nanoseconds(&usage.ru_utime) + nanoseconds(&usage.ru_stime);
        command->pid = 0;
        if (command->leaf >= 0)
            leaves_give(command->leaf);
        answer(&exited, sizeof(exited), -1);
        if (config.one_shot != 0)
            _exit(0); /* and the kernel ends all that is left in the box */
    }
}

int main(void)
{
    struct proto_head ready = {.type = PROTO_READY};
    struct pollfd wait[3] = {{.fd = PROTO_CONTROL_FD, .events = POLLIN},
                             {.events = POLLIN},
                             {.fd = -1}}; /* of its end one always hears */
    int fds[PROTO_FDS_MAX];
    sigset_t children;

    /* Its memory holds the box's key. That nobody may read the memfd it runs from does not suffice:
     * where one id is all a box has, init started with the capability to read any file of that id. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return 1;
    (void)sigemptyset(&children);
    (void)sigaddset(&children, SIGCHLD);
    wait[1].fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    if (wait[1].fd < 0 || fcntl(PROTO_CONTROL_FD, F_SETFD, FD_CLOEXEC) < 0)
        return 1;
    if (proto_receive(PROTO_CONTROL_FD, &config, sizeof(config), fds, 0) != sizeof(config) ||
        config.head.type != PROTO_CONFIG || config.version != PROTO_VERSION)
        return 1;
    if (config.has_leaves != 0 && fcntl(PROTO_LEAVES_FD, F_SETFD, FD_CLOEXEC) < 0)
        return 1;
    if (fcntl(PROTO_WATCHDOG_FD, F_SETFD, FD_CLOEXEC) == 0)
        wait[2].fd = PROTO_WATCHDOG_FD;
    leaves_open(&config);
    answer(&ready, sizeof(ready), -1);
    for (;;) {
        if (poll(wait, 3, -1) < 0 || wait[2].revents != 0)
            return 1; /* without its watchdog a box has no limits */
        if (wait[1].revents != 0)
            reap(wait[1].fd);
        if (wait[0].revents != 0 && !serve())
            return 0;
    }
}
