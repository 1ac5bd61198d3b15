/* Standard input and output of `cove run`: see run.h.
 *
 * Files, pipes and sockets are given to the command as they are: no byte passes through here. Only
 * a terminal is kept out, because a program that holds one can read what is typed next and, on many
 * kernels, type itself (TIOCSTI); then bytes are pumped. What the caller gave stays in the mode it
 * is in, for it is shared with the caller: nothing here sets O_NONBLOCK on 0, 1 or 2. */
#include "base/clock.h"
#include "base/fd.h"
#include "cmd/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PIPEFS_MAGIC_NUMBER 0x50495045 /* linux/magic.h: PIPEFS_MAGIC */
#define BLOCKING_WRITE_MAX 4096 /* a pipe that polls writable takes a page without blocking */
#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif
#define TERMINAL_PAUSE_NS 100000000U
#define TERMINAL_BUDGET (1U << 20)
#define ROWS_DEFAULT 24
#define COLUMNS_DEFAULT 80

/* Closes what is ours. */
static void end_drop(int *fd)
{
    if (*fd > STDERR_FILENO)
        fd_close(fd);
    *fd = -1;
}

static int stdio_failed(struct error *err, const char *what)
{
    int saved = errno;

    (void)error_set(err, "stdio", 0, "%s: %s; raise the limit of open files, or end something",
                    what, strerror(saved));
    err->errnum = saved;
    return -1;
}

static int set_non_blocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

/* A program may open its output again by name (`echo > /dev/stderr`), and may do so under an id
 * that does not own the pipe. An anonymous pipe can be reached by that name only, so its mode may
 * say yes to everybody; a named one is left alone. */
static void pipe_let_reopen(int fd)
{
    struct statfs fs;

    if (fstatfs(fd, &fs) == 0 && fs.f_type == PIPEFS_MAGIC_NUMBER)
        (void)fchmod(fd, 0666);
}

/* A pipe of which `*ours` never blocks. */
static int pipe_make(bool we_read, int *ours, int *theirs, struct error *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return stdio_failed(err, "pipe");
    *ours = we_read ? ends[0] : ends[1];
    *theirs = we_read ? ends[1] : ends[0];
    if (set_non_blocking(*ours) < 0)
        return stdio_failed(err, "pipe");
    pipe_let_reopen(*theirs);
    return 0;
}

/* Where to write for a terminal without ever blocking: a description of our own for it, if there
 * can be one. */
static void outlet_open(struct run_pump *pump, int fd, bool is_terminal)
{
    char path[32];

    pump->to = fd;
    pump->to_blocks = true;
    if (!is_terminal)
        return;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    pump->to = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (pump->to < 0)
        pump->to = fd;
    else
        pump->to_blocks = false;
}

struct stream {
    struct stat st;
    bool is_terminal;
};

static int stream_look(int fd, struct stream *stream, struct error *err)
{
    static const char *const names[] = {"input", "output", "error"};

    if (fstat(fd, &stream->st) < 0)
        return stdio_failed(err, names[fd]);
    /* From a directory, openat() leads to everything beside it on the host. */
    if (S_ISDIR(stream->st.st_mode))
        return error_set(err, "stdio", 0,
                         "standard %s: it is a directory, and so a way out of the box; give a "
                         "file, a pipe or /dev/null",
                         names[fd]);
    stream->is_terminal = S_ISCHR(stream->st.st_mode) && isatty(fd);
    if (S_ISFIFO(stream->st.st_mode) && (stream->st.st_mode & 0666U) != 0666U)
        pipe_let_reopen(fd);
    return 0;
}

static int input_open(struct run_stdio *stdio, const struct stream *stream, struct error *err)
{
    stdio->child[0] = STDIN_FILENO;
    if (!stream->is_terminal)
        return 0;
    stdio->input.from = STDIN_FILENO;
    stdio->input.from_terminal = true;
    return pipe_make(false, &stdio->input.to, &stdio->child[0], err);
}

static int output_open(struct run_stdio *stdio, int fd, const struct stream *stream,
                       struct error *err)
{
    struct run_pump *pump = &stdio->output[fd - 1];

    stdio->child[fd] = fd;
    if (!stream->is_terminal)
        return 0;
    outlet_open(pump, fd, true);
    return pipe_make(true, &pump->from, &stdio->child[fd], err);
}

static int outputs_open(struct run_stdio *stdio, const struct stream streams[3], struct error *err)
{
    if (output_open(stdio, STDOUT_FILENO, &streams[1], err) < 0)
        return -1;
    /* One terminal is one pipe, so that what was written first is seen first. */
    if (streams[1].is_terminal && streams[2].is_terminal &&
        streams[1].st.st_rdev == streams[2].st.st_rdev) {
        stdio->child[2] = stdio->child[1];
        return 0;
    }
    return output_open(stdio, STDERR_FILENO, &streams[2], err);
}

static int captures_open(struct run_stdio *stdio, uint64_t limit, struct error *err)
{
    for (int i = 0; i < 2; i++) {
        buf_tail_init(&stdio->capture[i], (size_t)limit);
        if (pipe_make(true, &stdio->captured[i], &stdio->child[i + 1], err) < 0)
            return -1;
    }
    return 0;
}

static void pump_init(struct run_pump *pump)
{
    pump->from = -1;
    pump->to = -1;
    pump->from_terminal = false;
    pump->from_master = false;
    pump->to_blocks = false;
    pump->to_terminal = false;
    pump->last = false;
    pump->broken = 0;
    pump->pause_ns = 0;
    pump->end = (struct input_end){0};
    pump->budget = 0;
    pump->start = 0;
    pump->used = 0;
}

void run_stdio_init(struct run_stdio *stdio)
{
    /* Field by field: the buffers of the pumps are not touched before they are needed. */
    pump_init(&stdio->input);
    for (int i = 0; i < 2; i++) {
        pump_init(&stdio->output[i]);
        stdio->captured[i] = -1;
        buf_tail_init(&stdio->capture[i], 0);
    }
    for (int fd = 0; fd < 3; fd++)
        stdio->child[fd] = -1;
    stdio->tty = false;
    stdio->raw = false;
}

int run_stdio_open(struct run_stdio *stdio, const struct run_options *options, struct error *err)
{
    struct stream streams[3];

    for (int fd = 0; fd < 3; fd++)
        if (stream_look(fd, &streams[fd], err) < 0)
            return -1;
    stdio->tty = options->tty;
    if (options->tty) {
        stdio->input.from_terminal = streams[0].is_terminal;
        outlet_open(&stdio->output[0], STDOUT_FILENO, streams[1].is_terminal);
        return 0;
    }
    if (input_open(stdio, &streams[0], err) < 0)
        return -1;
    return options->json ? captures_open(stdio, options->output_limit, err)
                         : outputs_open(stdio, streams, err);
}

void run_stdio_release(struct run_stdio *stdio)
{
    if (stdio->child[2] == stdio->child[1])
        stdio->child[2] = -1;
    for (int fd = 0; fd < 3; fd++)
        end_drop(&stdio->child[fd]);
}

/* ---- the command's terminal ---- */

void run_stdio_size(const struct run_stdio *stdio, uint16_t *rows, uint16_t *columns)
{
    struct winsize size = {0};

    *rows = ROWS_DEFAULT;
    *columns = COLUMNS_DEFAULT;
    if (!stdio->tty)
        return;
    for (int fd = 0; fd < 3; fd++) {
        if (ioctl(fd, TIOCGWINSZ, &size) < 0 || size.ws_row == 0 || size.ws_col == 0)
            continue;
        *rows = size.ws_row;
        *columns = size.ws_col;
        return;
    }
}

void run_stdio_resize(struct run_stdio *stdio)
{
    struct winsize size = {0};

    if (!stdio->tty || stdio->output[0].from < 0)
        return;
    run_stdio_size(stdio, &size.ws_row, &size.ws_col);
    (void)ioctl(stdio->output[0].from, TIOCSWINSZ, &size);
}

static void terminal_make_raw(struct run_stdio *stdio)
{
    struct termios raw = stdio->saved;

    cfmakeraw(&raw);
    while (tcsetattr(STDIN_FILENO, TCSANOW, &raw) < 0 && errno == EINTR)
        ;
}

int run_stdio_attach(struct run_stdio *stdio, int master, struct error *err)
{
    stdio->output[0].from = master;
    stdio->output[0].from_master = true;
    stdio->input.to = fcntl(master, F_DUPFD_CLOEXEC, 3);
    if (stdio->input.to < 0 || set_non_blocking(master) < 0)
        return stdio_failed(err, "the terminal of the box");
    stdio->input.from = STDIN_FILENO;
    stdio->input.to_terminal = true;
    run_stdio_resize(stdio);
    if (!stdio->input.from_terminal || tcgetattr(STDIN_FILENO, &stdio->saved) < 0)
        return 0;
    stdio->raw = true;
    terminal_make_raw(stdio);
    return 0;
}

void run_stdio_resume(struct run_stdio *stdio)
{
    /* The shell that stopped us put its own mode back. */
    if (stdio->raw)
        terminal_make_raw(stdio);
}

void run_stdio_restore(struct run_stdio *stdio)
{
    sigset_t stop;
    sigset_t before;

    if (!stdio->raw)
        return;
    stdio->raw = false;
    /* In the background this would stop us instead of restoring the terminal. */
    (void)sigemptyset(&stop);
    (void)sigaddset(&stop, SIGTTOU);
    (void)sigprocmask(SIG_BLOCK, &stop, &before);
    while (tcsetattr(STDIN_FILENO, TCSANOW, &stdio->saved) < 0 && errno == EINTR)
        ;
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
}

/* ---- pumps ---- */

/* The end of the caller's input. A terminal has no end of file: see run_stdio_end(). */
static void pump_end(struct run_pump *pump)
{
    end_drop(&pump->from);
    if (!pump->to_terminal) {
        end_drop(&pump->to);
        return;
    }
    input_end_begin(&pump->end, clock_monotonic_ns());
}

/* Whether an error of a terminal may pass. The caller's: another job has it now, and a command that
 * may not even read must not be stopped for that. The command's: nothing in the box has it open
 * now, but may open it again. */
static bool pump_is_patient(const struct run_pump *pump, short revents)
{
    if (pump->from_terminal)
        return (revents & POLLHUP) == 0;
    return pump->from_master && !pump->last;
}

static void pump_read(struct run_pump *pump, short revents, uint64_t now_ns)
{
    size_t most = sizeof(pump->data);
    ssize_t n;

    if (pump->last && pump->budget < most)
        most = pump->budget;
    do
        n = read(pump->from, pump->data, most);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        pump->start = 0;
        pump->used = (size_t)n;
        if (pump->last)
            pump->budget -= (size_t)n;
        return;
    }
    if (n < 0 && errno == EAGAIN && !pump->last)
        return;
    if (n < 0 && errno == EIO && pump_is_patient(pump, revents)) {
        pump->pause_ns = now_ns + TERMINAL_PAUSE_NS;
        return;
    }
    pump_end(pump);
}

static void pump_write(struct run_pump *pump)
{
    size_t most = pump->used;
    ssize_t n;

    if (pump->to_blocks && most > BLOCKING_WRITE_MAX)
        most = BLOCKING_WRITE_MAX;
    n = write(pump->to, pump->data + pump->start, most);
    if (n >= 0) {
        pump->start += (size_t)n;
        pump->used -= (size_t)n;
        return;
    }
    if (errno == EINTR || errno == EAGAIN)
        return;
    pump->broken = errno;
    pump->used = 0;
    end_drop(&pump->from);
    end_drop(&pump->to);
}

static void pump_serve(struct run_pump *pump, short revents, uint64_t now_ns)
{
    bool may_write = pump->used > 0 || !pump->to_blocks;

    if (revents == 0)
        return;
    if (pump->used == 0 && pump->from >= 0)
        pump_read(pump, revents, now_ns);
    if (pump->used > 0 && may_write)
        pump_write(pump);
    if (pump->used == 0 && pump->last && pump->from >= 0)
        pump_read(pump, revents, now_ns);
}

static void pump_poll(const struct run_pump *pump, struct pollfd *slot, uint64_t now_ns,
                      uint64_t *wake_ns)
{
    *slot = (struct pollfd){.fd = -1};
    if (pump->used > 0) {
        slot->fd = pump->to;
        slot->events = POLLOUT;
    } else if (pump->pause_ns > now_ns) {
        if (pump->pause_ns < *wake_ns)
            *wake_ns = pump->pause_ns;
    } else if (pump->to >= 0) {
        slot->fd = pump->from;
        slot->events = POLLIN;
    }
}

/* Reads what is there, at most `budget` bytes; false at the end. */
static bool capture_read(int fd, struct buf_tail *capture, size_t budget)
{
    char nowhere[4096];
    char *into = nowhere;
    size_t room = buf_tail_room(capture, &into);
    size_t most = room == 0 ? sizeof(nowhere) : room;
    ssize_t n = read(fd, into, most < budget ? most : budget);

    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    if (room == 0)
        capture->dropped += (uint64_t)n;
    else
        buf_tail_commit(capture, (size_t)n);
    return n > 0;
}

size_t run_stdio_poll(struct run_stdio *stdio, struct pollfd *fds, uint64_t now_ns,
                      uint64_t *wake_ns)
{
    pump_poll(&stdio->input, &fds[0], now_ns, wake_ns);
    if (stdio->input.end.has_come && stdio->input.used == 0 && stdio->input.end.due_ns < *wake_ns)
        *wake_ns = stdio->input.end.due_ns;
    for (int i = 0; i < 2; i++) {
        pump_poll(&stdio->output[i], &fds[1 + i], now_ns, wake_ns);
        fds[3 + i] = (struct pollfd){.fd = stdio->captured[i], .events = POLLIN};
    }
    return RUN_POLL_MAX;
}

void run_stdio_serve(struct run_stdio *stdio, const struct pollfd *fds, size_t count,
                     uint64_t now_ns)
{
    if (count < RUN_POLL_MAX)
        return;
    pump_serve(&stdio->input, fds[0].revents, now_ns);
    for (int i = 0; i < 2; i++) {
        pump_serve(&stdio->output[i], fds[1 + i].revents, now_ns);
        if (fds[3 + i].revents != 0 &&
            !capture_read(stdio->captured[i], &stdio->capture[i], (size_t)-1))
            fd_close(&stdio->captured[i]);
    }
}

enum input_end_act run_stdio_end(struct run_stdio *stdio, uint64_t now_ns)
{
    struct run_pump *pump = &stdio->input;
    enum input_end_act act;
    int peer;

    if (!pump->end.has_come || now_ns < pump->end.due_ns || pump->used > 0 || pump->to < 0)
        return INPUT_END_NOTHING;
    peer = ioctl(pump->to, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    act = input_end_look(&pump->end, pump->to, peer, now_ns);
    fd_close(&peer);
    return act;
}

int run_stdio_broken(const struct run_stdio *stdio)
{
    return stdio->output[0].broken != 0 ? stdio->output[0].broken : stdio->output[1].broken;
}

/* How much a dead writer can have left behind. Somebody outside may have been handed the other end,
 * and could write for ever. */
static size_t rest_budget(int fd)
{
    int size = fcntl(fd, F_GETPIPE_SZ);

    return size > 0 ? (size_t)size : TERMINAL_BUDGET;
}

static void capture_finish(int *fd, struct buf_tail *capture)
{
    size_t budget = *fd < 0 ? 0 : rest_budget(*fd);

    while (*fd >= 0 && budget > 0) {
        uint64_t before = capture->used + capture->dropped;
        bool more = capture_read(*fd, capture, budget);
        size_t got = (size_t)(capture->used + capture->dropped - before);

        if (!more || got == 0)
            break;
        budget -= got;
    }
    fd_close(fd);
    buf_tail_close(capture);
}

void run_stdio_finish(struct run_stdio *stdio)
{
    end_drop(&stdio->input.from);
    end_drop(&stdio->input.to);
    stdio->input.end.has_come = false;
    stdio->input.used = 0;
    for (int i = 0; i < 2; i++) {
        struct run_pump *pump = &stdio->output[i];

        capture_finish(&stdio->captured[i], &stdio->capture[i]);
        if (pump->from < 0)
            continue;
        pump->last = true;
        pump->budget = rest_budget(pump->from);
        if (pump->used == 0)
            pump_read(pump, 0, 0);
    }
}

bool run_stdio_is_done(const struct run_stdio *stdio)
{
    return stdio->output[0].used == 0 && stdio->output[1].used == 0;
}

void run_stdio_free(struct run_stdio *stdio)
{
    run_stdio_restore(stdio);
    run_stdio_release(stdio);
    end_drop(&stdio->input.from);
    end_drop(&stdio->input.to);
    for (int i = 0; i < 2; i++) {
        end_drop(&stdio->output[i].from);
        end_drop(&stdio->output[i].to);
        fd_close(&stdio->captured[i]);
        buf_tail_free(&stdio->capture[i]);
    }
}
