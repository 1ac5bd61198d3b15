/* Our terminal as that of a process: see terminal.h.
 *
 * One connection, both ways: while we wait for what is shown, keys and signals are served. A server that
 * is replaced meanwhile is found again, and asked for what comes after what we have; the process notices
 * nothing. The mode of our terminal is changed in one place and given back on every way out. */
#include "cmd/terminal.h"

#include "base/fd.h"
#include "cmd/websocket.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <termios.h>
#include <unistd.h>

#define ROWS_USUAL 24
#define COLUMNS_USUAL 80
#define KEYS_AT_ONCE 16384
#define WRITE_PIECE 4096
#define END_OF_TRANSMISSION "\x04"
#define DETACHES "{\"type\":\"detach\"}"
#define INPUT_HAS_ENDED "{\"type\":\"end\"}"
#define CLOSE_AWAY 1001
#define DETACH_PATIENCE_S 2

struct session {
    const struct terminal_options *options;
    struct client *client;
    struct websocket websocket;
    char path[API_PATH_MAX];
    int signals; /* signalfd */
    int news;    /* epoll: of the signals, and of our input while that is taken */
    int ready;   /* -1, or in that in place of our input */
    bool is_connected, has_offset, input_ended;
    bool owes_size; /* the terminal changed while something else was being said */
    bool from_terminal, is_raw;
    struct termios saved;
    uint64_t offset; /* of the next byte */
    uint64_t heard_ms;
    size_t matched; /* of the keys that detach */
    int endings;    /* how often we were told to end what takes no keys of ours */
    /* The keys that detach were pressed; and the timer until when the server has to say that it heard so, or -1. */
    bool is_detaching;
    int patience;
};

/* ---- the keys that detach ---- */

static int keys_bad(const char *text, struct error *err)
{
    return option_bad_value(err, "detach-keys", text, "it is no list of keys",
                            "write keys as ctrl-p,ctrl-q or a, or none");
}

int terminal_keys_parse(const char *text, struct terminal_keys *keys, struct error *err)
{
    const char *at = text;

    *keys = (struct terminal_keys){0};
    if (strcmp(text, "none") == 0)
        return 0;
    for (;;) {
        size_t length = strcspn(at, ",");
        char key = at[0];

        if (length == 6 && strncmp(at, "ctrl-", 5) == 0 && at[5] >= '@' && at[5] <= '~')
            key = (char)(at[5] & 0x1f);
        else if (length != 1 || key < ' ' || key > '~')
            return keys_bad(text, err);
        if (keys->count == TERMINAL_KEYS_MAX)
            return keys_bad(text, err);
        keys->key[keys->count++] = key;
        if (at[length] == '\0')
            return 0;
        at += length + 1;
    }
}

/* What of `data` is passed on, in place; those that may be the beginning of the sequence are held back
 * until it is known. `*detaches` where it is whole. */
static size_t keys_match(struct session *session, char *data, size_t size, bool *detaches)
{
    const struct terminal_keys *keys = &session->options->keys;
    char passed[KEYS_AT_ONCE + TERMINAL_KEYS_MAX];
    size_t used = 0;

    *detaches = false;
    for (size_t i = 0; i < size && keys->count > 0 && !*detaches; i++) {
        if (data[i] == keys->key[session->matched]) {
            *detaches = ++session->matched == keys->count;
            continue;
        }
        memcpy(passed + used, keys->key, session->matched);
        used += session->matched;
        session->matched = data[i] == keys->key[0] ? 1 : 0;
        if (session->matched == 0)
            passed[used++] = data[i];
    }
    if (keys->count == 0)
        return size;
    memcpy(data, passed, used);
    return used;
}

/* ---- our terminal ---- */

bool terminal_size(uint16_t *rows, uint16_t *columns)
{
    struct winsize size = {0};

    *rows = ROWS_USUAL;
    *columns = COLUMNS_USUAL;
    for (int fd = 0; fd < 3; fd++) {
        if (ioctl(fd, TIOCGWINSZ, &size) < 0 || size.ws_row == 0 || size.ws_col == 0)
            continue;
        *rows = size.ws_row;
        *columns = size.ws_col;
        return true;
    }
    return false;
}

static void make_raw(const struct session *session)
{
    struct termios raw = session->saved;

    if (!session->is_raw)
        return;
    cfmakeraw(&raw);
    while (tcsetattr(STDIN_FILENO, TCSANOW, &raw) < 0 && errno == EINTR)
        ;
}

static void restore(struct session *session)
{
    sigset_t stop, before;

    if (!session->is_raw)
        return;
    session->is_raw = false;
    /* In the background this would stop us instead of restoring the terminal. */
    (void)sigemptyset(&stop);
    (void)sigaddset(&stop, SIGTTOU);
    (void)sigprocmask(SIG_BLOCK, &stop, &before);
    while (tcsetattr(STDIN_FILENO, TCSANOW, &session->saved) < 0 && errno == EINTR)
        ;
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
}

/* From within a call of the client's, which knows of no other way out. */
static void leave(struct session *session, int status) __attribute__((noreturn));
static void leave_detached(struct session *session, bool is_heard) __attribute__((noreturn));
static void leave(struct session *session, int status)
{
    restore(session);
    _exit(status);
}

static int session_open(struct session *session, struct error *err)
{
    struct epoll_event event = {.events = EPOLLIN};
    sigset_t taken, blocked;
    int added;

    (void)sigemptyset(&taken);
    (void)sigaddset(&taken, SIGWINCH);
    (void)sigaddset(&taken, SIGCONT);
    cmd_signals_add(&taken);
    blocked = taken;
    (void)sigaddset(&blocked, SIGPIPE);
    (void)sigprocmask(SIG_BLOCK, &blocked, NULL);
    session->signals = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    session->news = epoll_create1(EPOLL_CLOEXEC);
    if (session->signals < 0 || session->news < 0 ||
        epoll_ctl(session->news, EPOLL_CTL_ADD, session->signals, &event) < 0)
        return error_set(err, "signals", errno, "signalfd: the kernel refused it; end something");
    if (!session->options->takes_input)
        return 0;
    added = epoll_ctl(session->news, EPOLL_CTL_ADD, STDIN_FILENO, &event);
    if (added < 0 && errno == EPERM) {
        /* A file is always ready, and epoll takes none: this is ready in its place. */
        session->ready = eventfd(1, EFD_CLOEXEC);
        added = epoll_ctl(session->news, EPOLL_CTL_ADD, session->ready, &event);
    }
    if (added < 0)
        return error_set(err, "stdio", errno,
                         "standard input: it cannot be waited for; pass it through a pipe");
    session->from_terminal = isatty(STDIN_FILENO) == 1 &&
                             tcgetattr(STDIN_FILENO, &session->saved) == 0;
    session->is_raw = session->from_terminal;
    make_raw(session);
    return 0;
}

static void session_close(struct session *session)
{
    restore(session);
    client_watch(session->client, -1, NULL, NULL);
    websocket_close(&session->websocket);
    fd_close(&session->patience);
    fd_close(&session->ready);
    fd_close(&session->news);
    fd_close(&session->signals);
}

/* ---- what we say ---- */

static void watch_signals(void *arg);
static void watch_all(void *arg);

static void say_size(struct session *session);

/* While something is sent (the answer to a ping, too) no more is read: only signals count, and our patience. */
static void sends(void *arg, bool begins)
{
    struct session *session = arg;

    if (begins) {
        client_watch(session->client, session->is_detaching ? session->news : session->signals,
                     watch_signals, session);
        return;
    }
    client_watch(session->client, session->news, watch_all, session);
    if (session->owes_size)
        say_size(session);
}

/* What fails is heard by who receives. */
static void say(struct session *session, enum websocket_kind kind, const void *data, size_t size)
{
    struct error ignored;

    if (!session->is_connected)
        return;
    (void)websocket_send(&session->websocket, kind, data, size, &ignored);
}

static void say_size(struct session *session)
{
    char text[80];
    uint16_t rows, columns;

    session->owes_size = false;
    if (session->options->only_looks || !terminal_size(&rows, &columns))
        return;
    (void)snprintf(text, sizeof(text), "{\"type\":\"resize\",\"rows\":%u,\"columns\":%u}", rows,
                   columns);
    say(session, WEBSOCKET_TEXT, text, strlen(text));
}

static void say_signal(struct session *session, int number)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "{\"type\":\"signal\",\"signal\":%d}", number);
    if (!session->options->only_looks)
        say(session, WEBSOCKET_TEXT, text, strlen(text));
}

/* Our own end: what was started for us is told, as by a terminal that is hung up. */
static void end_by_signal(struct session *session, int number)
{
    if (session->options->is_own)
        say_signal(session, SIGHUP);
    leave(session, API_EXIT_SIGNAL + number);
}

/* Whether this signal ends us. Where our terminal is not that of the process, no key detaches: one that only
 * looks leaves at the first Ctrl-C, all others at the second, as cove exec does without a terminal. */
static bool ends_us(struct session *session, int number)
{
    if (session->is_raw || !cmd_signal_ends(number))
        return false;
    return session->options->only_looks || ++session->endings > 1;
}

static void take_signals(struct session *session, bool may_say)
{
    struct signalfd_siginfo info;

    while (read(session->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        int number = (int)info.ssi_signo;

        if (session->is_detaching && cmd_signal_ends(number))
            leave_detached(session, false);
        if (!may_say && cmd_signal_ends(number))
            leave(session, API_EXIT_SIGNAL + number);
        if (number == SIGCONT)
            make_raw(session); /* the shell that stopped us put its own mode back */
        if ((number == SIGCONT || number == SIGWINCH) && !may_say)
            session->owes_size = true;
        else if (number == SIGCONT || number == SIGWINCH)
            say_size(session);
        else if (number == SIGTERM || number == SIGHUP || ends_us(session, number))
            end_by_signal(session, number);
        else if (!session->is_connected && cmd_signal_ends(number))
            leave(session, API_EXIT_SIGNAL + number);
        else
            say_signal(session, number);
    }
}

/* The server that was to say that it heard of our leave has not. */
static void check_patience(struct session *session)
{
    struct pollfd patience = {.fd = session->patience, .events = POLLIN};

    if (poll(&patience, 1, 0) > 0)
        leave_detached(session, false);
}

static void watch_signals(void *arg)
{
    take_signals(arg, false);
    check_patience(arg);
}

/* What came of it, on standard output behind what was shown there. */
static int result_print(const struct doc *process, bool is_detached, struct error *err)
{
    _cleanup_doc_ struct doc *result = doc_new();
    int failed = doc_set_copy(result, "process", process);

    failed |= doc_set_flag(result, "detached", is_detached);
    return failed != 0 ? option_no_memory(err) : doc_print(result, err);
}

/* The server hears of it behind what was typed, so it is waited for until that has closed the connection, or does not. */
static void detach(struct session *session)
{
    const struct itimerspec patience = {.it_value.tv_sec = DETACH_PATIENCE_S};
    struct epoll_event event = {.events = EPOLLIN};

    restore(session);
    session->is_detaching = true;
    (void)epoll_ctl(session->news, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
    session->patience = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    if (session->patience < 0 || timerfd_settime(session->patience, 0, &patience, NULL) < 0 ||
        epoll_ctl(session->news, EPOLL_CTL_ADD, session->patience, &event) < 0)
        leave_detached(session, false);
    say(session, WEBSOCKET_TEXT, DETACHES, strlen(DETACHES));
}

static void leave_unheard(struct session *session) __attribute__((noreturn));
static void leave_unheard(struct session *session)
{
    struct error err;

    (void)error_set(&err, "no_answer", 0,
                    "left, but the server did not say that it heard so; cove ps %s shows whether "
                    "process %s runs on",
                    session->options->sandbox, session->options->process);
    if (session->options->json)
        (void)cmd_json_error(&err);
    (void)fprintf(stderr, "\r\ncove: %s\n", err.text);
    leave(session, CMD_FAILED);
}

static void leave_detached(struct session *session, bool is_heard)
{
    _cleanup_doc_ struct doc *process = doc_new();
    struct error err;

    if (!is_heard)
        leave_unheard(session);
    /* Within a call of the client's nothing can be asked; whoever comes back needs no more. */
    if (session->options->json && (doc_set_text(process, "id", session->options->process) < 0 ||
                                   result_print(process, true, &err) < 0))
        leave(session, CMD_FAILED);
    (void)fprintf(stderr, "\r\ncove: detached; cove attach %s %s comes back\n",
                  session->options->sandbox, session->options->process);
    leave(session, 0);
}

/* Types as its user would. Where the process is ours, it is typed until that ends; whoever only attaches leaves it to
 * others. */
static void say_end(struct session *session)
{
    if (session->options->is_own)
        say(session, WEBSOCKET_TEXT, INPUT_HAS_ENDED, strlen(INPUT_HAS_ENDED));
    else
        say(session, WEBSOCKET_BINARY, END_OF_TRANSMISSION, 1);
}

static void take_input(struct session *session)
{
    char data[KEYS_AT_ONCE + TERMINAL_KEYS_MAX];
    ssize_t n = read(STDIN_FILENO, data, KEYS_AT_ONCE);
    bool detaches = false;
    size_t size;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        (void)epoll_ctl(session->news, EPOLL_CTL_DEL,
                        session->ready >= 0 ? session->ready : STDIN_FILENO, NULL);
        session->input_ended = true;
        if (session->from_terminal)
            end_by_signal(session, SIGHUP);
        say_end(session);
        return;
    }
    size = (size_t)n;
    if (session->from_terminal)
        size = keys_match(session, data, size, &detaches);
    if (size > 0)
        say(session, WEBSOCKET_BINARY, data, size);
    if (detaches)
        detach(session);
}

static void watch_all(void *arg)
{
    struct session *session = arg;
    bool takes_input = session->options->takes_input && !session->input_ended &&
                       !session->is_detaching;
    struct pollfd input = {.fd = takes_input ? STDIN_FILENO : -1, .events = POLLIN};

    take_signals(session, true);
    check_patience(session);
    if (session->is_connected && poll(&input, 1, 0) > 0)
        take_input(session);
}

/* ---- what we hear ---- */

static int show(struct session *session, const char *data, size_t size, struct error *err)
{
    while (size > 0) {
        struct pollfd fds[2] = {{.fd = STDOUT_FILENO, .events = POLLOUT},
                                {.fd = session->signals, .events = POLLIN}};
        ssize_t n = 0;

        if (poll(fds, 2, -1) > 0 && fds[1].revents != 0)
            take_signals(session, true);
        if (fds[0].revents != 0)
            n = write(STDOUT_FILENO, data, size < WRITE_PIECE ? size : WRITE_PIECE);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return error_set(err, "stdio", errno, "standard output: it cannot be written");
        data += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int show_gap(struct session *session, const struct doc *message, struct error *err)
{
    char text[128];
    uint64_t from, to;

    if (!doc_number(message, "from", &from) || !doc_number(message, "to", &to) || to < from)
        return 0;
    session->offset = to;
    (void)snprintf(text, sizeof(text),
                   "\r\n[cove: %" PRIu64 " bytes of what was shown are not kept any more]\r\n",
                   to - from);
    return show(session, text, strlen(text), err);
}

/* 1 where the process has ended; then `*status` is ours. */
static int take_word(struct session *session, const struct websocket_message *said, int *status,
                     struct error *err)
{
    _cleanup_doc_ struct doc *message = NULL;
    const char *type;

    if (doc_parse(said->data, said->size, &message, err) < 0 ||
        api_text(message, "type", &type, err) < 0)
        return -1;
    if (strcmp(type, "gap") == 0)
        return show_gap(session, message, err);
    if (strcmp(type, "attached") == 0 && !session->has_offset)
        session->has_offset = doc_number(message, "from", &session->offset);
    if (strcmp(type, "exit") != 0)
        return 0; /* of an error somebody else may have been the cause; a shell goes on, too */
    restore(session);
    *status = api_process_status(doc_get(message, "process"));
    if (session->options->json && result_print(doc_get(message, "process"), false, err) < 0)
        return -1;
    return 1;
}

static int hear(struct session *session, int *status, struct error *err)
{
    struct websocket_message message;

    if (websocket_next(&session->websocket, &message, err) < 0)
        return -1;
    session->heard_ms = api_now_ms();
    if (message.kind == WEBSOCKET_TEXT)
        return take_word(session, &message, status, err);
    if (message.kind == WEBSOCKET_BINARY) {
        session->offset += message.size;
        return show(session, message.data, message.size, err);
    }
    if (message.code == CLOSE_AWAY)
        return error_set(err, "draining", 0, "the server is being replaced");
    return error_set(err, "bad_answer", 0,
                     "the server ended the connection with code %u; attach again", message.code);
}

/* ---- the whole ---- */

static int session_connect(struct session *session, struct error *err)
{
    const struct terminal_options *options = session->options;
    char path[API_PATH_MAX + 128];
    uint16_t rows, columns;
    size_t used;

    used = (size_t)snprintf(path, sizeof(path), "%s?", session->path);
    if (options->only_looks)
        used += (size_t)snprintf(path + used, sizeof(path) - used, "read_only=true&");
    else if (terminal_size(&rows, &columns)) /* else it keeps the size that it has */
        used += (size_t)snprintf(path + used, sizeof(path) - used, "rows=%u&columns=%u&", rows,
                                 columns);
    if (options->is_own)
        used += (size_t)snprintf(path + used, sizeof(path) - used,
                                 "ends_with_key=true&ends_with_client=true&");
    if (session->has_offset || options->has_from)
        (void)snprintf(path + used, sizeof(path) - used, "from=%" PRIu64, session->offset);
    else
        path[used - 1] = '\0';
    client_watch(session->client, session->signals, watch_signals, session);
    if (websocket_open(&session->websocket, session->client, path, err) < 0)
        return -1;
    session->is_connected = true;
    /* The engine before this one may have gone with it. */
    if (session->input_ended && session->options->is_own)
        say_end(session);
    session->websocket.sends = sends;
    session->websocket.sends_arg = session;
    sends(session, false); /* and what came up meanwhile */
    return 0;
}

static int session_run(struct session *session, int *status, struct error *err)
{
    int heard = session_connect(session, err);

    while (heard == 0)
        heard = hear(session, status, err);
    session->is_connected = false;
    if (heard < 0 && session->is_detaching) /* by its closing, or by a connection that was cut */
        leave_detached(session, !client_may_come_back(err));
    websocket_close(&session->websocket);
    return heard;
}

int terminal_run(struct client *client, const struct terminal_options *options, struct error *err)
{
    struct session session = {.options = options,
                              .client = client,
                              .signals = -1,
                              .news = -1,
                              .ready = -1,
                              .patience = -1,
                              .has_offset = options->has_from,
                              .heard_ms = api_now_ms()};
    int status = CMD_FAILED;
    int result = -1;

    session.websocket.client = client;
    if (api_path(session.path, options->path, "/terminal", err) < 0)
        return -1;
    if (session_open(&session, err) == 0) {
        do
            result = session_run(&session, &status, err);
        while (result < 0 && api_goes_on(client, session.heard_ms, err));
    }
    session_close(&session);
    return result < 0 ? -1 : status;
}
