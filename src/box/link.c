/* The outside end of a box's control socket: see link.h.
 *
 * What comes in has its form checked by proto_answer_check() and is then held against what was asked:
 * a box gets no event, no fd and no memory of ours that no request accounts for. */
#include "box/link.h"

#include "base/fd.h"
#include "box/link_parts.h"
#include "box/proto.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Packets that say nothing must not keep the caller from its other work. */
#define PACKETS_MAX 64
/* What a predecessor left unread is no more than a socket holds and init then says anew. */
#define STALE_MAX (4U * PROTO_COMMANDS_MAX)
/* Requests that wait for init: it answers in a millisecond, unless it is stopped or no init. */
#define WAITING_MAX_BYTES (16U << 20)
/* The most fds that an answer of the protocol has, and a request. */
#define ANSWER_FDS 3
#define START_FDS 5

struct link_request {
    struct link_request *next;
    size_t size, fds_count;
    int fds[START_FDS]; /* ours */
    unsigned char packet[];
};

/* ---- open and close ---- */

void link_begin_plain(struct link *link, int control)
{
    *link = (struct link){
        .control = control, .poll = -1, .is_plain = true, .version = PROTO_VERSION};
    link->last = &link->first;
}

int link_open(int control, struct link **out, struct error *err)
{
    _cleanup_close_ int taken = control;
    struct epoll_event event = {.events = EPOLLIN};
    struct link *link = calloc(1, sizeof(*link));

    if (link == NULL)
        return error_set(err, "no_memory", ENOMEM, "cannot talk to a box");
    link->last = &link->first;
    link->version = PROTO_VERSION;
    link->poll = epoll_create1(EPOLL_CLOEXEC);
    if (link->poll < 0 || epoll_ctl(link->poll, EPOLL_CTL_ADD, taken, &event) < 0) {
        bool is_short = control < 0 || errno == EMFILE || errno == ENFILE;

        (void)error_set(err, is_short ? "no_fds" : "link_failed", is_short ? EMFILE : errno,
                        "cannot wait for a box");
        fd_close(&link->poll);
        free(link);
        return -1;
    }
    link->control = fd_take(&taken);
    *out = link;
    return 0;
}

static void request_free(struct link_request *request)
{
    for (size_t i = 0; i < request->fds_count; i++)
        fd_close(&request->fds[i]);
    free(request);
}

static void drop_waiting(struct link *link)
{
    while (link->first != NULL) {
        struct link_request *request = link->first;

        link->first = request->next;
        request_free(request);
    }
    link->last = &link->first;
    link->waiting_bytes = 0;
}

void link_close(struct link *link)
{
    if (link == NULL)
        return;
    drop_waiting(link);
    if (!link->is_watched)
        fd_close(&link->poll);
    else /* others have this socket, too: it would stay in there */
        (void)epoll_ctl(link->poll, EPOLL_CTL_DEL, link->control, NULL);
    fd_close(&link->control);
    free(link);
}

int link_watch(struct link *link, int epoll, void *data)
{
    struct epoll_event event = {.events = link->first != NULL ? EPOLLIN | EPOLLOUT : EPOLLIN,
                                .data.ptr = data};

    if (epoll_ctl(epoll, EPOLL_CTL_ADD, link->control, &event) < 0)
        return -1;
    fd_close(&link->poll);
    link->poll = epoll;
    link->data = data;
    link->is_watched = true;
    return 0;
}

int link_fd(const struct link *link)
{
    return link->poll >= 0 ? link->poll : link->control;
}

/* ---- requests ---- */

static int gone(struct error *err)
{
    return error_set(err, "box_gone", 0, "the box has ended");
}

static bool is_full(int errnum)
{
    return errnum == EAGAIN || errnum == ENOBUFS || errnum == ENOMEM;
}

static bool is_closed(int errnum)
{
    return errnum == EPIPE || errnum == ECONNRESET;
}

static void await_room(struct link *link, bool yes)
{
    struct epoll_event event = {.events = yes ? EPOLLIN | EPOLLOUT : EPOLLIN,
                                .data.ptr = link->data};

    (void)epoll_ctl(link->poll, EPOLL_CTL_MOD, link->control, &event);
}

static int wait_for_room(struct link *link, const void *packet, size_t size, const void *more,
                         size_t more_size, const int *fds, size_t count, struct error *err)
{
    struct link_request *request;

    if (link->waiting_bytes + size + more_size > WAITING_MAX_BYTES)
        return error_set(err, "busy", 0, "the box's init takes no more requests; try again later");
    request = calloc(1, sizeof(*request) + size + more_size);
    if (request == NULL)
        return error_set(err, "no_memory", ENOMEM, "cannot ask the box's init");
    for (; request->fds_count < count; request->fds_count++) {
        int fd = fcntl(fds[request->fds_count], F_DUPFD_CLOEXEC, 0);

        if (fd < 0) {
            (void)error_set(err, "no_fds", errno, "cannot ask the box's init");
            request_free(request);
            return -1;
        }
        request->fds[request->fds_count] = fd;
    }
    memcpy(request->packet, packet, size);
    if (more_size > 0)
        memcpy(request->packet + size, more, more_size);
    request->size = size + more_size;
    if (link->first == NULL)
        await_room(link, true);
    *link->last = request;
    link->last = &request->next;
    link->waiting_bytes += request->size;
    return 0;
}

static int ask(struct link *link, const void *packet, size_t size, const void *more,
               size_t more_size, const int *fds, size_t count, struct error *err)
{
    int sent = -1;

    if (link->is_gone)
        return gone(err);
    errno = EAGAIN;
    if (link->is_plain)
        sent = proto_send(link->control, packet, size, more, more_size, fds, count);
    else if (link->first == NULL)
        sent = proto_send_now(link->control, packet, size, more, more_size, fds, count);
    if (sent == 0)
        return 0;
    if (is_closed(errno))
        return gone(err);
    if (!link->is_plain && is_full(errno))
        return wait_for_room(link, packet, size, more, more_size, fds, count, err);
    return error_set(err, "exec_failed", errno, "cannot reach the box's init");
}

static void send_waiting(struct link *link)
{
    bool waited = link->first != NULL;

    while (link->first != NULL) {
        struct link_request *request = link->first;

        if (proto_send_now(link->control, request->packet, request->size, NULL, 0, request->fds,
                           request->fds_count) < 0) {
            if (is_full(errno))
                return;
            drop_waiting(link); /* what is heard next says that the box is gone */
            break;
        }
        link->first = request->next;
        if (link->first == NULL)
            link->last = &link->first;
        link->waiting_bytes -= request->size;
        request_free(request);
    }
    if (waited)
        await_room(link, false);
}

int link_hello(struct link *link, struct error *err)
{
    struct proto_hello request = {.head.type = PROTO_HELLO, .version = PROTO_VERSION};

    assert(!link->is_plain);
    if (getrandom(&request.head.id, sizeof(request.head.id), GRND_NONBLOCK) < 0)
        return error_set(err, "link_failed", errno, "cannot ask the box's init who it is");
    if (ask(link, &request, sizeof(request), NULL, 0, NULL, 0, err) < 0)
        return -1;
    link->hello = request.head.id;
    link->awaits_welcome = true;
    link->is_ready = true;
    link->in_table = false;
    link->stale = link->entries = link->commands = link->briefs = link->running = link->files = 0;
    return 0;
}

static int ask_of(struct link *link, enum proto_type type, uint32_t id, struct error *err)
{
    struct proto_head request = {.type = type, .id = id};

    return ask(link, &request, sizeof(request), NULL, 0, NULL, 0, err);
}

int link_signal(struct link *link, uint32_t id, int signal_number, struct error *err)
{
    struct proto_signal request = {.head = {.type = PROTO_SIGNAL, .id = id},
                                   .signal_number = signal_number};

    return ask(link, &request, sizeof(request), NULL, 0, NULL, 0, err);
}

int link_kill(struct link *link, uint32_t id, struct error *err)
{
    return ask_of(link, PROTO_KILL, id, err);
}

int link_close_stdin(struct link *link, uint32_t id, struct error *err)
{
    return ask_of(link, PROTO_SHUT, id, err);
}

int link_ack(struct link *link, uint32_t id, struct error *err)
{
    return ask_of(link, PROTO_ACK, id, err);
}

int link_open_file(struct link *link, uint32_t id, const char *path, uint64_t flags, uint32_t mode,
                   struct error *err)
{
    size_t size = strlen(path) + 1;
    struct proto_open request = {.head = {.type = PROTO_OPEN, .id = id},
                                 .flags = flags,
                                 .mode = mode,
                                 .path_size = (uint32_t)size};

    if (size > PROTO_PATH_MAX)
        return error_set(err, "too_long", ENAMETOOLONG, "the path of a file is too long");
    if (ask(link, &request, sizeof(request), path, size, NULL, 0, err) < 0)
        return -1;
    link->files++;
    return 0;
}

/* ---- a command ---- */

/* What goes into one packet, in this order. */
struct start {
    struct proto_exec exec;
    struct proto_limits limits;
};

_Static_assert(sizeof(struct start) == sizeof(struct proto_exec) + sizeof(struct proto_limits),
               "the limits follow at once");

static size_t strings_length(const char *const *strings, uint32_t *count)
{
    size_t size = 0;

    for (*count = 0; strings[*count] != NULL; (*count)++)
        size += strlen(strings[*count]) + 1;
    return size;
}

static char *append(char *at, const char *text)
{
    size_t size = strlen(text) + 1;

    memcpy(at, text, size);
    return at + size;
}

/* All strings of a command in one piece: cwd, argv, env. */
static char *pack_strings(const struct link_command *command, struct proto_exec *request,
                          struct error *err)
{
    size_t size = strlen(command->cwd) + 1 + strings_length(command->argv, &request->argc) +
                  strings_length(command->env, &request->envc);
    char *strings, *at;

    if (size > PROTO_STRINGS_MAX) {
        (void)error_set(err, "too_long", 0,
                        "the command and its environment are too long (%zu bytes, 4 MiB at most)",
                        size);
        return NULL;
    }
    at = strings = malloc(size);
    if (strings == NULL) {
        (void)error_set(err, "no_memory", ENOMEM, "cannot prepare the command");
        return NULL;
    }
    at = append(at, command->cwd);
    for (uint32_t i = 0; i < request->argc; i++)
        at = append(at, command->argv[i]);
    for (uint32_t i = 0; i < request->envc; i++)
        at = append(at, command->env[i]);
    request->strings_size = (uint32_t)size;
    return strings;
}

static int strings_memfd(const char *strings, size_t size, struct error *err)
{
    _cleanup_close_ int fd = memfd_create("cove-exec", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || fd_write_full(fd, strings, size) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return error_set(err, "exec_failed", errno, "cannot pass a long command to the box");
    return fd_take(&fd);
}

static void set_user(struct proto_exec *request, const struct box_user *user)
{
    request->flags |= PROTO_EXEC_USER;
    request->uid = user->uid;
    request->gid = user->gid;
    request->groups_count = (uint32_t)user->groups_count;
    for (size_t i = 0; i < user->groups_count; i++)
        request->groups[i] = user->groups[i];
}

/* All but the strings; what it takes of a `struct start`. */
static size_t fill_start(const struct link *link, const struct link_command *command,
                         struct start *start)
{
    const struct link_limits *limits = &command->limits;
    struct proto_exec *exec = &start->exec;

    exec->rows = command->rows;
    exec->columns = command->columns;
    if (!link->is_plain && !command->is_brief)
        exec->flags |= PROTO_EXEC_HOLD;
    if (command->stdio == LINK_TTY)
        exec->flags |= PROTO_EXEC_TTY;
    if (command->stdio == LINK_PIPES)
        exec->flags |= PROTO_EXEC_PIPES | (command->no_stdin ? PROTO_EXEC_NO_STDIN : 0U);
    if (command->user != NULL)
        set_user(exec, command->user);
    if (limits->memory_bytes == 0 && limits->file_bytes == 0 && limits->cpu_seconds == 0 &&
        limits->open_files == 0)
        return sizeof(*exec);
    exec->flags |= PROTO_EXEC_LIMITS;
    start->limits = (struct proto_limits){.memory_bytes = limits->memory_bytes,
                                          .file_bytes = limits->file_bytes,
                                          .cpu_seconds = limits->cpu_seconds,
                                          .open_files = limits->open_files};
    return sizeof(*start);
}

int link_start(struct link *link, uint32_t id, const struct link_command *command,
               struct error *err)
{
    struct start start = {.exec.head = {.type = PROTO_EXEC, .id = id}};
    _cleanup_free_ char *strings = pack_strings(command, &start.exec, err);
    size_t size = fill_start(link, command, &start), more = start.exec.strings_size, count = 0;
    _cleanup_close_ int memfd = -1;
    int fds[START_FDS];

    if (strings == NULL)
        return -1;
    if (command->program > 0 && link->awaits_welcome)
        return error_set(err, "busy", 0, "the box has not said yet which version it is; try again");
    if (command->program > 0 && link->version < PROTO_VERSION_WITH_PROGRAM)
        return error_set(
            err, "outdated", 0,
            "the box was made by an older version, which runs no programs of ours; stop "
            "it and start it again");
    if (command->stdio == LINK_GIVEN)
        for (; count < 3; count++)
            fds[count] = command->fds[count];
    if (more > PROTO_INLINE_MAX) {
        memfd = strings_memfd(strings, more, err);
        if (memfd < 0)
            return -1;
        fds[count++] = memfd;
        start.exec.flags |= PROTO_EXEC_MEMFD;
        more = 0;
    }
    if (command->program > 0) {
        fds[count++] = command->program;
        start.exec.flags |= PROTO_EXEC_PROGRAM;
    }
    if (ask(link, &start, size, strings, more, fds, count, err) < 0)
        return -1;
    link->commands++;
    link->briefs += command->is_brief;
    return 0;
}

int link_exec(struct link *link, uint32_t id, const struct link_command *command, struct error *err)
{
    assert(!link->is_plain);
    assert(!command->is_brief || (command->stdio == LINK_GIVEN && command->program > 0));
    return link_start(link, id, command, err);
}

/* ---- what fds of the box are ---- */

static bool is_on(int fd, long magic)
{
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && (long)fs.f_type == magic;
}

static bool is_open_for(int fd, int mode)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && (flags & (O_ACCMODE | O_PATH)) == mode;
}

/* A FIFO of a file system that the box has its hands in would be no pipe. */
static bool is_pipe(int fd, int mode)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && is_on(fd, PIPEFS_MAGIC) &&
           is_open_for(fd, mode);
}

/* The master's side, for only that has a number to give. */
static bool is_terminal(int fd)
{
    struct stat st;
    unsigned number;

    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && is_on(fd, DEVPTS_SUPER_MAGIC) &&
           is_open_for(fd, O_RDWR) && ioctl(fd, TIOCGPTN, &number) == 0 && isatty(fd) == 1;
}

static void never_wait(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0 && (flags & O_PATH) == 0)
        (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

/* The fds of a command that is held, each to its place. */
static bool take_fds(const struct proto_held *held, int *fds, struct link_event *event)
{
    event->is_tty = (held->flags & PROTO_HELD_TTY) != 0;
    for (int place = 0, at = 0; place < 3; place++) {
        if ((held->fds & 1U << place) == 0)
            continue;
        if (event->is_tty ? !is_terminal(fds[at])
                          : !is_pipe(fds[at], place == 0 ? O_WRONLY : O_RDONLY))
            return false;
        never_wait(fds[at]);
        event->fds[place] = fd_take(&fds[at++]);
    }
    return true;
}

/* ---- events ---- */

/* What an answer came to. */
enum taken { TAKEN_NOTHING, TAKEN_EVENT, TAKEN_BAD };

static int say_gone(struct link *link, struct link_event *event)
{
    for (size_t i = 0; i < 3; i++)
        fd_close(&event->fds[i]);
    if (!link->failed)
        (void)error_set(&link->failure, "box_gone", 0,
                        "the box ended before its command did (its init was killed)");
    link->failed = link->is_gone = true;
    drop_waiting(link);
    event->kind = LINK_GONE;
    event->error = link->failure;
    return 1;
}

static int say_bad(struct link *link, struct link_event *event)
{
    link->failed = true;
    (void)error_set(&link->failure, "bad_init", 0,
                    "the box's init does not speak the protocol; the box is ended");
    return say_gone(link, event);
}

static bool count_down(uint32_t *count)
{
    if (*count == 0)
        return false;
    --*count;
    return true;
}

static enum taken take_held(struct link *link, const union proto_answer *answer, int *fds,
                            struct link_event *event)
{
    const struct proto_held *held = &answer->held;

    event->kind = held->head.type == PROTO_BEGUN ? LINK_STARTED : LINK_ENTRY;
    event->pid = held->pid;
    event->has_ended = (held->flags & PROTO_HELD_ENDED) != 0;
    event->status = held->status;
    event->cpu_ns = held->cpu_ns;
    if (event->kind == LINK_STARTED ? !count_down(&link->commands)
                                    : !link->in_table || link->entries++ >= PROTO_COMMANDS_MAX)
        return TAKEN_BAD;
    /* The end of one that was started again in vain is said again. */
    if (event->kind == LINK_STARTED || !event->has_ended)
        link->running++;
    return take_fds(held, fds, event) ? TAKEN_EVENT : TAKEN_BAD;
}

static enum taken take_started(struct link *link, const union proto_answer *answer, int *fds,
                               struct link_event *event)
{
    event->kind = LINK_STARTED;
    event->pid = answer->started.pid;
    /* Of a link that holds it is the answer to a brief one, which has no fds of init's. */
    if (!count_down(&link->commands) || (!link->is_plain && !count_down(&link->briefs)) ||
        (fds[0] >= 0 && (!link->is_plain || !is_terminal(fds[0]))))
        return TAKEN_BAD;
    link->running++;
    event->is_tty = fds[0] >= 0;
    event->fds[0] = fd_take(&fds[0]);
    return TAKEN_EVENT;
}

static enum taken take_end(struct link *link, const union proto_answer *answer,
                           struct link_event *event)
{
    event->kind = LINK_EXITED;
    event->status = answer->exited.status;
    event->cpu_ns = answer->exited.cpu_ns;
    return count_down(&link->running) ? TAKEN_EVENT : TAKEN_BAD;
}

static enum taken take_opened(struct link *link, const union proto_answer *answer, int *fds,
                              struct link_event *event)
{
    event->kind = LINK_OPENED;
    event->errnum = answer->opened.errnum;
    if (!count_down(&link->files))
        return TAKEN_BAD;
    if (fds[0] >= 0)
        never_wait(fds[0]);
    event->fds[0] = fd_take(&fds[0]);
    return TAKEN_EVENT;
}

static bool is_our_welcome(const struct link *link, const union proto_answer *answer)
{
    return answer->head.type == PROTO_WELCOME && answer->head.id == link->hello;
}

static enum taken take_welcome(struct link *link, const union proto_answer *answer,
                               struct link_event *event)
{
    event->kind = LINK_HELLO;
    event->id = 0;
    event->version = answer->welcome.version;
    if (!link->awaits_welcome || event->version < PROTO_VERSION_WITH_HELLO)
        return TAKEN_BAD;
    link->version = event->version;
    link->awaits_welcome = false;
    link->in_table = true;
    return TAKEN_EVENT;
}

/* Of a link that holds; a plain one never hears these. */
static enum taken take_of_version_2(struct link *link, const union proto_answer *answer, int *fds,
                                    struct link_event *event)
{
    if (link->is_plain)
        return TAKEN_BAD;
    switch (answer->head.type) {
    case PROTO_WELCOME:
        return take_welcome(link, answer, event);
    case PROTO_BEGUN:
    case PROTO_ENTRY:
        return take_held(link, answer, fds, event);
    case PROTO_TABLE_END:
        event->kind = LINK_TABLE_END;
        if (!link->in_table)
            return TAKEN_BAD;
        link->in_table = false;
        return TAKEN_EVENT;
    case PROTO_OPENED:
        return take_opened(link, answer, fds, event);
    default:
        return TAKEN_BAD;
    }
}

/* Of the set-up child, once: an init that runs has been set up. It may have said so to a predecessor. */
static enum taken take_failed(struct link *link, const union proto_answer *answer)
{
    if (link->failed || (link->is_ready && !link->awaits_welcome))
        return TAKEN_BAD;
    link->failure = answer->failed.error;
    link->failed = true;
    return TAKEN_NOTHING;
}

static enum taken take_answer(struct link *link, const union proto_answer *answer, int *fds,
                              struct link_event *event)
{
    event->id = answer->head.id;
    if (answer->head.type == PROTO_FAILED)
        return take_failed(link, answer);
    if (link->awaits_welcome && !is_our_welcome(link, answer))
        return link->stale++ < STALE_MAX ? TAKEN_NOTHING : TAKEN_BAD;
    switch (answer->head.type) {
    case PROTO_READY:
        event->kind = LINK_READY;
        if (link->is_ready)
            return TAKEN_BAD;
        link->is_ready = true;
        return TAKEN_EVENT;
    case PROTO_STARTED:
        return take_started(link, answer, fds, event);
    case PROTO_REFUSED:
        event->kind = LINK_REFUSED;
        event->errnum = answer->refused.errnum;
        event->step = (enum box_step)answer->refused.step;
        return count_down(&link->commands) ? TAKEN_EVENT : TAKEN_BAD;
    case PROTO_EXITED:
        return take_end(link, answer, event);
    default:
        return take_of_version_2(link, answer, fds, event);
    }
}

/* A packet whose fds found no room here looks as one that has too many. */
static bool is_out_of_fds(void)
{
    int fds[ANSWER_FDS];
    bool is_out = false;

    for (size_t i = 0; i < ANSWER_FDS; i++) {
        fds[i] = epoll_create1(EPOLL_CLOEXEC);
        is_out = is_out || fds[i] < 0;
    }
    for (size_t i = 0; i < ANSWER_FDS; i++)
        fd_close(&fds[i]);
    return is_out;
}

/* One packet: as link_next(), and 0 with `*more` where it said nothing. */
static int hear(struct link *link, struct link_event *event, bool *more, struct error *err)
{
    union proto_answer answer;
    enum taken taken = TAKEN_BAD;
    int fds[PROTO_FDS_MAX];
    ssize_t n = proto_receive(link->control, &answer, sizeof(answer), fds, MSG_DONTWAIT);
    int errnum = n < 0 ? errno : 0;
    size_t count = 0;

    /* The other end closed with something of ours unread: what it said before comes after this. */
    if (errnum == ECONNRESET) {
        n = proto_receive(link->control, &answer, sizeof(answer), fds, MSG_DONTWAIT);
        errnum = n < 0 ? errno : 0;
    }
    if (errnum == EAGAIN)
        return 0;
    if (errnum == EMSGSIZE && is_out_of_fds())
        return error_set(err, "no_fds", EMFILE, "cannot take what the box's init sends");
    if (errnum != 0 && errnum != ECONNRESET && errnum != EMSGSIZE)
        return error_set(err, "box_gone", errnum, "cannot hear the box's init");
    while (count < PROTO_FDS_MAX && fds[count] >= 0)
        count++;
    if (n > 0 && proto_answer_check(&answer, (size_t)n, count))
        taken = take_answer(link, &answer, fds, event);
    for (size_t i = 0; i < PROTO_FDS_MAX; i++)
        fd_close(&fds[i]);
    if (n == 0 || errnum == ECONNRESET)
        return say_gone(link, event);
    *more = taken == TAKEN_NOTHING;
    return taken == TAKEN_BAD ? say_bad(link, event) : taken == TAKEN_EVENT;
}

int link_next(struct link *link, struct link_event *event, struct error *err)
{
    bool more = true;
    int got = 0;

    if (!link->is_gone)
        send_waiting(link);
    for (int packets = 0; got == 0 && more && packets < PACKETS_MAX; packets++) {
        *event = (struct link_event){.fds = {-1, -1, -1}};
        more = false;
        got = link->is_gone ? say_gone(link, event) : hear(link, event, &more, err);
    }
    return got;
}
