/* term ROWS COLUMNS [--shell] -- ARGV...: a command on a terminal, which lives as long as the command.
 *
 * The terminal is held here, inside the box, and not by the engine: so the engine moves bytes of pipes
 * as for any command, and may be killed and replaced without the command noticing. Input is frames of
 * TOOL_DATA, TOOL_RESIZE and TOOL_FINISH, output is bare. We lead the session ourselves, for the kernel throws away
 * what a terminal has not passed on when its leader exits: so that happens only once all is passed on.
 *
 * Nothing here may wait but poll(2): while nobody takes the output, signals and sizes still count. */
#include "base/clock.h"
#include "base/fd.h"
#include "box/search.h"
#include "box/tool/input_end.h"
#include "box/tool/tool.h"
#include "box/tool/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif
#ifndef TIOCSIG
#define TIOCSIG _IOW('T', 0x36, int)
#endif

#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND 127
/* What the terminal has not taken. Beyond it input waits, and a change of size behind it, too: so this is
 * more than anybody types, and costs nothing until it is used. */
#define KEYS_MAX ((1U << 20) + INPUT_MAX)
/* Of input at once. The engine's pipe keeps packets of a page, which are read as a whole. */
#define INPUT_MAX 65536U
#define OUTPUT_MAX 65536U

extern char **environ;

struct bytes {
    char data[KEYS_MAX];
    size_t from, to;
};

_Static_assert(OUTPUT_MAX <= KEYS_MAX, "one kind of buffer is for both");

struct terminal {
    int master, slave, signals;
    pid_t child;
    bool has_ended, input_ended;
    int status;
    struct bytes keys, output;
    struct input_end end;
    /* Of the input: the frame that is being read. */
    struct tool_head head;
    size_t head_got, body_got;
    struct tool_resize resize;
};

/* ---- the terminal ---- */

static int open_terminal(struct terminal *terminal, uint16_t rows, uint16_t columns)
{
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    struct termios modes;
    int unlock = 0;

    terminal->master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (terminal->master < 0 || ioctl(terminal->master, TIOCSPTLCK, &unlock) < 0 ||
        ioctl(terminal->master, TIOCSWINSZ, &size) < 0)
        return -1;
    /* Kept open: so the master never says that nobody has the terminal, which a program that closed
     * it may open again. */
    terminal->slave = ioctl(terminal->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal->slave < 0 || tcgetattr(terminal->slave, &modes) < 0)
        return -1;
    modes.c_iflag |= IUTF8;
    if (tcsetattr(terminal->slave, TCSANOW, &modes) < 0)
        return -1;
    (void)setsid(); /* init has done so already */
    return ioctl(terminal->slave, TIOCSCTTY, 0);
}

/* ---- the command ---- */

static void run(char **argv, bool is_shell)
{
    static char bash[] = "/bin/bash", sh[] = "/bin/sh", option[] = "-c";
    char *line[5] = {NULL, bash, option, argv[0], NULL};
    int why;

    if (is_shell) {
        search_and_execute(line + 1, environ);
        line[1] = sh;
        argv = line + 1;
    }
    search_and_execute(argv, environ);
    why = errno;
    (void)fprintf(stderr, "cove: %s: %s\n", argv[0],
                  why == ENOENT || why == ENOTDIR ? "command not found" : strerror(why));
    _exit(why == ENOENT || why == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

static void become_command(const struct terminal *terminal, pid_t parent, char **argv,
                           bool is_shell)
{
    sigset_t none;

    /* Where the host cannot kill all of a command at once it is ours alone that is killed. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || setpgid(0, 0) < 0 || tcsetpgrp(terminal->slave, getpid()) < 0)
        _exit(EXIT_NOT_EXECUTABLE);
    for (int i = 0; i < 3; i++)
        if (dup2(terminal->slave, i) < 0)
            _exit(EXIT_NOT_EXECUTABLE);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    run(argv, is_shell);
}

/* All that somebody may send us is taken as it comes, but what a fault of ours raises. */
static int hear_signals(struct terminal *terminal)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t set;

    (void)sigfillset(&set);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        (void)sigdelset(&set, faults[i]);
    if (sigprocmask(SIG_SETMASK, &set, NULL) < 0)
        return -1;
    (void)signal(SIGPIPE, SIG_IGN);
    terminal->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return terminal->signals;
}

static int start(struct terminal *terminal, char **argv, bool is_shell)
{
    pid_t self = getpid();

    if (hear_signals(terminal) < 0 || setenv("TERM", "xterm-256color", 0) < 0)
        return -1;
    terminal->child = fork();
    if (terminal->child == 0)
        become_command(terminal, self, argv, is_shell);
    if (terminal->child > 0)
        (void)setpgid(terminal->child, terminal->child);
    return terminal->child;
}

/* ---- signals ---- */

/* To whoever is in front. The kernel's own three reach it whoever that is. */
static void pass_on(const struct terminal *terminal, int signal_number)
{
    pid_t front;

    if ((signal_number == SIGINT || signal_number == SIGQUIT || signal_number == SIGTSTP) &&
        ioctl(terminal->master, TIOCSIG, (long)signal_number) == 0)
        return;
    if (ioctl(terminal->master, TIOCGPGRP, &front) < 0 || front <= 1)
        front = terminal->child;
    (void)kill(-front, signal_number);
}

static void reap(struct terminal *terminal)
{
    int status;

    while (waitpid(terminal->child, &status, WNOHANG | WUNTRACED) > 0) {
        if (!WIFSTOPPED(status)) {
            terminal->has_ended = true;
            terminal->status = status;
            return;
        }
        /* Nobody is there who could take it to the front again. */
        if (WSTOPSIG(status) != SIGSTOP) {
            (void)tcsetpgrp(terminal->slave, terminal->child);
            (void)kill(-terminal->child, SIGCONT);
        }
    }
}

static void take_signals(struct terminal *terminal)
{
    struct signalfd_siginfo info;

    while (read(terminal->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            reap(terminal);
        else if (info.ssi_code <= 0 && info.ssi_signo != SIGPIPE && !terminal->has_ended)
            pass_on(terminal, (int)info.ssi_signo);
    }
}

/* ---- input ---- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void resize(struct terminal *terminal)
{
    struct winsize size = {.ws_row = terminal->resize.rows, .ws_col = terminal->resize.columns};

    if (terminal->head.size == sizeof(terminal->resize))
        (void)ioctl(terminal->master, TIOCSWINSZ, &size);
}

/* As much of the frame's payload as there is: how much of it was taken. */
static size_t take_body(struct terminal *terminal, const char *data, size_t size)
{
    struct bytes *keys = &terminal->keys;
    size_t taken = least(size, terminal->head.size - terminal->body_got);

    if (terminal->head.type == TOOL_DATA) {
        memcpy(keys->data + keys->to, data, taken); /* there is room: see input() */
        keys->to += taken;
        terminal->end.has_come = false; /* somebody else types */
    } else if (terminal->head.type == TOOL_RESIZE &&
               terminal->body_got < sizeof(terminal->resize)) {
        memcpy((char *)&terminal->resize + terminal->body_got, data,
               least(taken, sizeof(terminal->resize) - terminal->body_got));
    }
    terminal->body_got += taken;
    return taken;
}

static void take_frames(struct terminal *terminal, const char *data, size_t size)
{
    while (size > 0) {
        size_t taken = least(size, sizeof(terminal->head) - terminal->head_got);

        memcpy((char *)&terminal->head + terminal->head_got, data, taken);
        terminal->head_got += taken;
        data += taken;
        size -= taken;
        if (terminal->head_got < sizeof(terminal->head))
            return;
        taken = take_body(terminal, data, size);
        data += taken;
        size -= taken;
        if (terminal->body_got < terminal->head.size)
            continue;
        if (terminal->head.type == TOOL_RESIZE)
            resize(terminal);
        if (terminal->head.type == TOOL_FINISH)
            input_end_begin(&terminal->end, clock_monotonic_ns());
        terminal->head_got = terminal->body_got = 0;
    }
}

static void pack(struct bytes *bytes)
{
    if (bytes->to <= KEYS_MAX - INPUT_MAX)
        return;
    memmove(bytes->data, bytes->data + bytes->from, bytes->to - bytes->from);
    bytes->to -= bytes->from;
    bytes->from = 0;
}

/* Called where there is room for all of it. */
static void input(struct terminal *terminal)
{
    static char data[INPUT_MAX];
    ssize_t n;

    pack(&terminal->keys);
    n = read(0, data, sizeof(data));
    if (n > 0)
        take_frames(terminal, data, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        terminal->input_ended = true; /* and the command goes on */
}

/* ---- both ways ---- */

/* False where it cannot take any more, ever. */
static bool put(int fd, struct bytes *bytes)
{
    ssize_t n = write(fd, bytes->data + bytes->from, bytes->to - bytes->from);

    if (n > 0)
        bytes->from += (size_t)n;
    if (bytes->from == bytes->to)
        bytes->from = bytes->to = 0;
    return n >= 0 || errno == EAGAIN || errno == EINTR;
}

/* Whether there was any; a read that finds none has seen all that was written before. */
static bool get(const struct terminal *terminal, struct bytes *bytes)
{
    while (bytes->to < OUTPUT_MAX) {
        ssize_t n = read(terminal->master, bytes->data + bytes->to, OUTPUT_MAX - bytes->to);

        if (n <= 0)
            break;
        bytes->to += (size_t)n;
    }
    return bytes->to > 0;
}

/* Told to a command that takes no end of its input, in place of it. */
static void end_input(struct terminal *terminal)
{
    if (terminal->has_ended || terminal->keys.to > 0)
        return;
    switch (
        input_end_look(&terminal->end, terminal->master, terminal->slave, clock_monotonic_ns())) {
    case INPUT_END_HANG_UP:
        pass_on(terminal, SIGHUP);
        break;
    case INPUT_END_KILL:
        (void)kill(-terminal->child, SIGKILL);
        break;
    case INPUT_END_NOTHING:
        break;
    }
}

/* How long nothing needs to be done; -1: until something comes. */
static int pause_ms(const struct terminal *terminal)
{
    uint64_t now = clock_monotonic_ns();

    if (!terminal->end.has_come || terminal->keys.to > 0)
        return -1;
    return now >= terminal->end.due_ns ? 0 : (int)((terminal->end.due_ns - now) / 1000000U) + 1;
}

static void pump(struct terminal *terminal)
{
    enum { SIGNALS, MASTER, STDOUT, STDIN };
    struct pollfd wait[4] = {[SIGNALS] = {.fd = terminal->signals, .events = POLLIN}};
    bool is_full = terminal->output.to > 0, is_owed = terminal->keys.to > 0;
    bool has_room = terminal->keys.to - terminal->keys.from <= KEYS_MAX - INPUT_MAX;

    wait[MASTER] = (struct pollfd){
        .fd = is_full && !is_owed ? -1 : terminal->master,
        .events = (short)((is_full ? 0 : POLLIN) | (is_owed ? POLLOUT : 0))};
    wait[STDOUT] = (struct pollfd){.fd = is_full ? 1 : -1, .events = POLLOUT};
    wait[STDIN] = (struct pollfd){.fd = terminal->input_ended || !has_room ? -1 : 0,
                                  .events = POLLIN};
    if (poll(wait, 4, pause_ms(terminal)) < 0)
        return;
    if (wait[SIGNALS].revents != 0)
        take_signals(terminal);
    if (wait[STDIN].revents != 0)
        input(terminal);
    if (terminal->keys.to > 0 && !put(terminal->master, &terminal->keys))
        terminal->keys.from = terminal->keys.to = 0;
    if (wait[MASTER].revents != 0 && !is_full)
        (void)get(terminal, &terminal->output);
    if (terminal->output.to > 0 && !put(1, &terminal->output))
        terminal->output.from = terminal->output.to = 0; /* nobody will ever read it */
    end_input(terminal);
}

/* What was there when the command ended; no more, for a daemon may go on writing. */
static void drain(struct terminal *terminal)
{
    struct pollfd wait = {.fd = 1, .events = POLLOUT};
    size_t left = 4 * (size_t)OUTPUT_MAX; /* more a terminal does not hold */

    while (left > 0 && (terminal->output.to > 0 || get(terminal, &terminal->output))) {
        size_t had = terminal->output.to - terminal->output.from;

        if (!put(1, &terminal->output))
            return;
        left -= least(left, had - (terminal->output.to - terminal->output.from));
        if (terminal->output.to > 0)
            (void)poll(&wait, 1, -1);
    }
}

/* As the command did. */
static int end_as(int status)
{
    sigset_t none;

    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    (void)signal(WTERMSIG(status), SIG_DFL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)kill(getpid(), WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

static bool size_of(const char *text, uint16_t *out)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);

    *out = (uint16_t)number;
    return *text >= '0' && *text <= '9' && *end == '\0' && number <= UINT16_MAX;
}

int term_main(int argc, char **argv)
{
    static struct terminal terminal; /* large: set below, and not in the program's file */
    bool is_shell = argc > 3 && strcmp(argv[3], "--shell") == 0;
    int command = is_shell ? 5 : 4;
    uint16_t rows, columns;

    terminal.master = terminal.slave = terminal.signals = -1;
    if (argc <= command || !size_of(argv[1], &rows) || !size_of(argv[2], &columns) ||
        strcmp(argv[command - 1], "--") != 0)
        return 2;
    if (open_terminal(&terminal, rows, columns) < 0 ||
        start(&terminal, argv + command, is_shell) < 0) {
        if (errno == ENOSPC)
            (void)dprintf(
                1,
                "cove: all terminals of the box, or of the host, are taken; end a command that has one, "
                "then start this one again\r\n");
        else
            (void)dprintf(1, "cove: the box has no terminal for the command: %s\r\n",
                          strerror(errno));
        return EXIT_NOT_EXECUTABLE;
    }
    (void)fcntl(0, F_SETFL, O_RDONLY | O_NONBLOCK);
    (void)fcntl(1, F_SETFL, O_WRONLY | O_NONBLOCK);
    while (!terminal.has_ended)
        pump(&terminal);
    drain(&terminal);
    return end_as(terminal.status);
}
