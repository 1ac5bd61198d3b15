/* PID 1 of a box: starts commands when the outside asks, reaps everything, ends with the outside.
 *
 * Static and small: there is one in every box. It already carries the filter and no capability
 * beyond its profile's, so what it starts inherits both and pays nothing. Output never passes
 * through it. It trusts its control socket and nothing inside the box: no file of the box is read
 * here but cgroup leaves of its own, and of a command only what it asks to watch (watches.c). It
 * never waits for the outside, which may be killed, or busy: what is not heard stays in the table
 * (table.h), and init goes on reaping. */
#include "base/fd.h"
#include "box/init/command.h"
#include "box/init/files.h"
#include "box/init/leaves.h"
#include "box/init/table.h"
#include "box/init/watches.h"
#include "box/proto.h"
#include "box/sys.h"

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

#define POINTERS_INLINE 1024
/* What no room in the socket holds up is tried again after this. */
#define AGAIN_MS 50

static struct proto_config config;
static uint32_t highest_held; /* id */
static bool is_over;          /* once all is told */

static void refuse(uint32_t id, enum box_step step, int errnum)
{
    struct proto_refused refused = {
        .head = {.type = PROTO_REFUSED, .id = id}, .step = step, .errnum = errnum};

    table_answer(&refused, sizeof(refused), -1);
}

/* Where it may not be started: because it is known, or never was and is too low. */
static bool answer_known(uint32_t id, bool hold)
{
    struct command *known = table_find(id);

    if (known != NULL && known->is_held && hold) {
        table_say(known, TABLE_BEGUN);
        if (known->has_ended)
            table_say(known, TABLE_EXITED);
        return true;
    }
    if (known == NULL && (!hold || id > highest_held))
        return false;
    refuse(id, BOX_STEP_SPAWN, EEXIST);
    return true;
}

/* The command's ends and the outside's, where they are ours to make. */
static int make_stdio(struct command_start *what, int far[3])
{
    unsigned flags = what->request->flags;

    if ((flags & PROTO_EXEC_PIPES) != 0)
        return command_pipes(what->fds, far, (flags & PROTO_EXEC_NO_STDIN) != 0);
    if ((flags & PROTO_EXEC_TTY) == 0)
        return 0;
    what->fds[0] = far[0] = command_terminal(what->request->rows, what->request->columns);
    return far[0] >= 0 ? 0 : -1;
}

static void close_near(struct command_start *what)
{
    for (int i = 0; i < 3 && (what->request->flags & PROTO_EXEC_PIPES) != 0; i++)
        if (what->fds[i] > 2)
            fd_close(&what->fds[i]);
}

/* The pid, or -1 with step and errnum. */
static pid_t start_in_leaf(struct command_start *what)
{
    pid_t pid;

    what->leaf = config.has_leaves != 0 ? leaves_take() : -1;
    if (config.has_leaves != 0 && what->leaf < 0) {
        what->step = BOX_STEP_SPAWN;
        what->errnum = errno;
        return -1;
    }
    pid = command_start(what);
    if (pid > 0 && what->errnum == 0)
        return pid;
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    if (what->leaf >= 0)
        leaves_give(what->leaf);
    return -1;
}

static void start(struct command_start *what, uint32_t id)
{
    unsigned flags = what->request->flags;
    bool hold = (flags & PROTO_EXEC_HOLD) != 0;
    struct command *slot;

    if (answer_known(id, hold))
        return;
    slot = table_slot();
    if (slot == NULL) {
        refuse(id, BOX_STEP_SPAWN, EAGAIN);
        return;
    }
    if (make_stdio(what, slot->fds) < 0) {
        refuse(id, (flags & PROTO_EXEC_TTY) != 0 ? BOX_STEP_TTY : BOX_STEP_SPAWN, errno);
        table_drop(slot);
        return;
    }
    slot->pid = start_in_leaf(what);
    close_near(what);
    if (slot->pid < 0) {
        refuse(id, what->step, what->errnum);
        table_drop(slot);
        return;
    }
    slot->id = id;
    slot->leaf = what->leaf;
    slot->is_there = true;
    slot->is_held = hold;
    slot->is_tty = (flags & PROTO_EXEC_TTY) != 0;
    if (hold)
        highest_held = id;
    table_say(slot, TABLE_BEGUN);
}

/* The strings of a request: behind it in the packet, or in a memfd. */
static char *map_strings(const struct proto_exec *request, int memfd)
{
    void *at = mmap(NULL, request->strings_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, memfd, 0);

    return at == MAP_FAILED ? NULL : at;
}

/* Whether the parts of a request are there and go together. */
static bool is_whole(const struct proto_exec *request, size_t size)
{
    unsigned flags = request->flags;
    size_t pointers = (size_t)request->argc + request->envc + 3;
    size_t wanted = sizeof(*request);

    if ((flags & PROTO_EXEC_LIMITS) != 0)
        wanted += sizeof(struct proto_limits);
    if ((flags & PROTO_EXEC_MEMFD) == 0)
        wanted += request->strings_size;
    if ((flags & PROTO_EXEC_PIPES) != 0 &&
        ((flags & PROTO_EXEC_TTY) != 0 || (flags & PROTO_EXEC_HOLD) == 0))
        return false;
    return request->strings_size <= PROTO_STRINGS_MAX && request->strings_size > 0 &&
           request->groups_count <= PROTO_GROUPS_MAX && pointers <= PROTO_STRINGS_MAX &&
           size == wanted;
}

static void on_exec(struct proto_exec *request, size_t size, int fds[PROTO_FDS_MAX])
{
    static char *few[POINTERS_INLINE];
    struct command_start what = {.request = request, .key = config.clone_key, .program = -1};
    size_t pointers = (size_t)request->argc + request->envc + 3;
    bool given = (request->flags & (PROTO_EXEC_TTY | PROTO_EXEC_PIPES)) == 0;
    bool far = (request->flags & PROTO_EXEC_MEMFD) != 0;
    void *many = MAP_FAILED;

    if ((request->flags & PROTO_EXEC_PROGRAM) != 0)
        what.program = fds[(given ? 3 : 0) + (far ? 1 : 0)];
    if (!is_whole(request, size) ||
        ((request->flags & PROTO_EXEC_PROGRAM) != 0 &&
         (what.program < 0 || config.version < PROTO_VERSION_WITH_PROGRAM))) {
        refuse(request->head.id, BOX_STEP_SPAWN, EINVAL);
        return;
    }
    what.strings = (char *)(request + 1);
    if ((request->flags & PROTO_EXEC_LIMITS) != 0) {
        what.limits = (const struct proto_limits *)(request + 1);
        what.strings += sizeof(struct proto_limits);
    }
    if (far)
        what.strings = map_strings(request, fds[given ? 3 : 0]);
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

/* A process group outlives its command, but then its number may be anybody's. */
static struct command *find_running(uint32_t id)
{
    struct command *command = table_find(id);

    return command != NULL && !command->has_ended ? command : NULL;
}

static void on_signal(const struct proto_signal *request)
{
    struct command *command = find_running(request->head.id);

    if (command != NULL)
        (void)kill(-command->pid, request->signal_number);
}

static void kill_all_of(const struct command *command)
{
    if (command->leaf < 0 || leaves_kill(command->leaf) < 0)
        (void)kill(-command->pid, SIGKILL);
}

static void on_kill(const struct proto_head *request)
{
    struct command *command = find_running(request->id);

    if (command != NULL)
        kill_all_of(command);
}

/* Whoever asked for what is not held does not hear of it any more, be it another one or the same. */
static void on_hello(const struct proto_head *request)
{
    struct command *brief;

    while ((brief = table_find_brief()) != NULL) {
        if (!brief->has_ended)
            kill_all_of(brief);
        table_orphan(brief);
    }
    table_hello(request->id, config.version);
}

static void on_ack(const struct proto_head *request)
{
    struct command *command = table_find(request->id);

    if (command != NULL && command->is_held && command->has_ended)
        table_drop(command);
}

static void on_shut(const struct proto_head *request)
{
    struct command *command = table_find(request->id);

    if (command != NULL && command->is_held && !command->is_tty)
        fd_close(&command->fds[0]);
}

static void on_open(const struct proto_open *request, size_t size)
{
    const char *path = (const char *)(request + 1);
    struct proto_opened opened = {.head = {.type = PROTO_OPENED, .id = request->head.id}};
    int fd = -1;

    if (request->path_size == 0 || request->path_size > PROTO_PATH_MAX ||
        size != sizeof(*request) + request->path_size || path[request->path_size - 1] != '\0') {
        opened.errnum = EINVAL;
    } else {
        fd = files_open(request, config.clone_key);
        opened.errnum = fd < 0 ? errno : 0;
    }
    table_answer(&opened, sizeof(opened), fd);
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
    else if (head->type == PROTO_HELLO && size == sizeof(struct proto_hello))
        on_hello(head);
    else if (head->type == PROTO_ACK)
        on_ack(head);
    else if (head->type == PROTO_SHUT)
        on_shut(head);
    else if (head->type == PROTO_OPEN && size >= sizeof(struct proto_open))
        on_open((struct proto_open *)(void *)packet, size);
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
        struct command *command = table_find_running(pid);

        if (command == NULL)
            continue; /* an orphan: somebody's daemon */
        command->has_ended = true;
        command->status = status;
        command->cpu_ns = nanoseconds(&usage.ru_utime) + nanoseconds(&usage.ru_stime);
        if (command->leaf >= 0)
            leaves_give(command->leaf);
        if (command->is_orphan)
            table_drop(command);
        else
            table_say(command, TABLE_EXITED);
        if (config.one_shot != 0)
            is_over = true;
    }
}

int main(void)
{
    struct proto_head ready = {.type = PROTO_READY};
    struct pollfd wait[4] = {{.fd = PROTO_CONTROL_FD, .events = POLLIN},
                             {.events = POLLIN},
                             {.fd = -1}, /* of its end one always hears */
                             {.fd = -1, .events = POLLIN}};
    int fds[PROTO_FDS_MAX];
    sigset_t children;
    bool told, room;

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
        config.head.type != PROTO_CONFIG || config.version < PROTO_VERSION_LEAST ||
        config.version > PROTO_VERSION)
        return 1;
    sys_take_short_turns(false); /* somebody waits for each thing that it does */
    if (config.has_leaves != 0 && fcntl(PROTO_LEAVES_FD, F_SETFD, FD_CLOEXEC) < 0)
        return 1;
    if (fcntl(PROTO_WATCHDOG_FD, F_SETFD, FD_CLOEXEC) == 0)
        wait[2].fd = PROTO_WATCHDOG_FD;
    if (fcntl(PROTO_LISTENER_FD, F_SETFD, FD_CLOEXEC) == 0)
        wait[3].fd = PROTO_LISTENER_FD;
    leaves_open(&config);
    table_answer(&ready, sizeof(ready), -1);
    for (;;) {
        told = table_tell(&room);
        if (told && is_over)
            return 0; /* and the kernel ends all that is left in the box */
        /* Nothing new is asked of us while there is something to say: so no answer is ever lost, and
         * what waits is bounded. The end of the outside is heard all the same. */
        wait[0].events = told ? POLLIN : room ? POLLOUT : 0;
        if (poll(wait, 4, room ? -1 : AGAIN_MS) < 0 || wait[2].revents != 0)
            return 1; /* without its watchdog a box has no limits */
        if (wait[1].revents != 0)
            reap(wait[1].fd);
        if (wait[3].revents != 0)
            watches_serve(wait[3].fd, config.clone_key);
        if (told ? wait[0].revents != 0 && !serve() : (wait[0].revents & (POLLHUP | POLLERR)) != 0)
            return 0;
    }
}
