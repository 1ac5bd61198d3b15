/* The output of a process as it comes: see follow.h.
 *
 * A stream of lines in base64 is good for what trickles and slow for what pours. A line that is long
 * says that more waits behind it: then what is there is fetched raw, and followed again from there. */
#include "cmd/follow.h"

#include "base/base64.h"
#include "base/fd.h"
#include "base/parse.h"
#include "cmd/api.h"
#include "cmd/cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRITE_PIECE 4096    /* PIPE_BUF: a pipe that polls writable takes it without blocking */
#define LONG_LINE 32768     /* bytes of content: the command writes faster than the stream tells */
#define FETCH_ENOUGH 262144 /* a fetch that brought no more than this has caught up */
#define FETCH_MOST (64U << 20) /* so that one stream does not starve the other */

/* ---- writing ---- */

static int write_wait(struct follow *follow, int fd)
{
    for (;;) {
        struct pollfd fds[2] = {{.fd = fd, .events = POLLOUT},
                                {.fd = follow->watch_fd, .events = POLLIN}};
        int ready = poll(fds, 2, -1);

        if (ready < 0 && errno != EINTR)
            return -1;
        if (ready > 0 && fds[1].revents != 0)
            follow->watch_call(follow->watch_arg);
        if (ready > 0 && fds[0].revents != 0)
            return 0;
    }
}

int follow_write(struct follow *follow, int stream, const char *data, size_t size,
                 struct error *err)
{
    int fd = stream == 0 ? STDOUT_FILENO : STDERR_FILENO;

    while (size > 0) {
        ssize_t n = -1;

        if (write_wait(follow, fd) == 0)
            n = write(fd, data, size < WRITE_PIECE ? size : WRITE_PIECE);
        if (n >= 0) {
            data += n;
            size -= (size_t)n;
        } else if (errno != EAGAIN && errno != EINTR) {
            follow->is_unread = errno == EPIPE || errno == EIO;
            return error_set(err, "stdio", errno, "standard %s: it cannot be written",
                             stream == 0 ? "output" : "error");
        }
    }
    return 0;
}

static void say_gap(int stream, uint64_t bytes)
{
    cmd_warn("%" PRIu64 " bytes of the command's standard %s are not kept any more", bytes,
             stream == 0 ? "output" : "error");
}

/* ---- reading ---- */

static int bad_line(struct error *err)
{
    return error_set(err, "bad_answer", 0,
                     "the server's stream of output is none; check that COVE_URL leads to cove");
}

static int stream_of(const char *name)
{
    if (name == NULL)
        return -1;
    return strcmp(name, "stdout") == 0 ? 0 : strcmp(name, "stderr") == 0 ? 1 : -1;
}

static int output_take(struct follow *follow, int stream, const struct doc *event,
                       struct error *err)
{
    const char *text = doc_text(event, "data");
    _cleanup_free_ char *data = text == NULL ? NULL : strdup(text);
    uint64_t from;
    ssize_t size;

    if (data == NULL || !doc_number(event, "from", &from) || from < follow->from[stream])
        return bad_line(err);
    size = base64_decode(data, strlen(data), data);
    if (size < 0)
        return bad_line(err);
    if (from > follow->from[stream] && !follow->is_left_out[stream])
        say_gap(stream, from - follow->from[stream]);
    follow->from[stream] = from + (uint64_t)size;
    follow->is_behind = size >= LONG_LINE;
    if (follow->is_left_out[stream])
        return 0;
    return follow_write(follow, stream, data, (size_t)size, err);
}

static int gap_take(struct follow *follow, const struct doc *event, struct error *err)
{
    int stream = stream_of(doc_text(event, "stream"));
    uint64_t from;
    uint64_t to;

    if (stream < 0 || !doc_number(event, "from", &from) || !doc_number(event, "to", &to) ||
        to < from || to < follow->from[stream])
        return bad_line(err);
    if (!follow->is_left_out[stream])
        say_gap(stream, to - from);
    follow->from[stream] = to;
    return 0;
}

/* Prints a line as it is, and keeps count of where it ends. */
static int line_print(struct follow *follow, const struct doc *event, struct error *err)
{
    const char *type = doc_text(event, "type");
    int stream = stream_of(strcmp(type, "gap") == 0 ? doc_text(event, "stream") : type);
    uint64_t to;

    if (stream >= 0) {
        if (!doc_number(event, "to", &to) || to < follow->from[stream])
            return bad_line(err);
        follow->from[stream] = to;
    }
    return doc_print_line(event, err);
}

bool follow_is_at_end(const struct follow *follow)
{
    for (int stream = 0; stream < 2; stream++)
        if (!follow->is_left_out[stream] && follow->from[stream] < follow->end[stream])
            return false;
    return follow->has_end;
}

/* No line told of the output that is gone at the end already: with no room on the server's disk that may be all of it. */
static void say_lost(struct follow *follow, const struct doc *process)
{
    static const char *const names[] = {"stdout", "stderr"};
    uint64_t kept;

    for (int stream = 0; stream < 2; stream++) {
        if (follow->is_left_out[stream] || follow->is_json ||
            !doc_number(doc_get(process, names[stream]), "from", &kept) ||
            kept <= follow->from[stream])
            continue;
        say_gap(stream, kept - follow->from[stream]);
        follow->from[stream] = kept;
    }
}

/* One line: 1 with `*process` at the end, 0 to go on, -1. What a later server adds is passed over. */
static int event_take(struct follow *follow, const char *line, size_t size, struct doc **process,
                      struct error *err)
{
    _cleanup_doc_ struct doc *event = NULL;
    const char *type;
    int result = api_line(line, size, &event, &type, err);

    if (result <= 0)
        return result;
    if (follow->is_json && strcmp(type, "keepalive") != 0 && line_print(follow, event, err) < 0)
        return -1;
    if (follow->is_json && strcmp(type, "exit") != 0)
        return follow_is_at_end(follow) ? 1 : 0;
    if (stream_of(type) >= 0)
        return output_take(follow, stream_of(type), event, err);
    if (strcmp(type, "gap") == 0)
        return gap_take(follow, event, err);
    if (strcmp(type, "exit") != 0)
        return 0;
    *process = doc_keep(doc_get(event, "process"));
    if (*process == NULL)
        return bad_line(err);
    say_lost(follow, *process);
    return 1;
}

/* One connection: 1 at the end of the process, 0 when it is behind, -1. */
static int follow_once(struct follow *follow, struct doc **process, uint64_t *heard_ms,
                       struct error *err)
{
    char path[API_PATH_MAX + 128];
    const struct client_request request = {.path = path};
    int result;

    (void)snprintf(path, sizeof(path),
                   "%s/follow?encoding=%s&stdout_from=%" PRIu64 "&stderr_from=%" PRIu64 "%s%s",
                   follow->process, follow->is_json ? "utf8" : "base64", follow->from[0],
                   follow->from[1],
                   follow->is_left_out[0]   ? "&stream=stderr"
                   : follow->is_left_out[1] ? "&stream=stdout"
                                            : "",
                   follow->is_own ? "&ends_with_key=true&ends_with_client=true" : "");
    follow->is_behind = false;
    if (client_start(follow->client, &request, err) < 0)
        return -1;
    do {
        char *line;
        size_t size;

        result = client_line(follow->client, &line, &size, err);
        if (result == 0)
            return error_set(err, "cut", 0, "the server ended the stream before the process ended");
        *heard_ms = api_now_ms();
        if (result > 0)
            result = event_take(follow, line, size, process, err);
    } while (result == 0 && !follow->is_behind);
    return result;
}

static bool header_number(const struct client *client, const char *name, uint64_t *value)
{
    const char *text = client_header(client, name);
    struct error ignored;

    return text != NULL && parse_count(name, text, 0, INT64_MAX, value, &ignored) == 0;
}

/* Asks for `size` bytes from `at`; `*from` is where those begin that are kept. */
static int fetch_start(struct follow *follow, int stream, uint64_t at, uint64_t size,
                       uint64_t *from, struct error *err)
{
    char path[API_PATH_MAX + 128];
    const struct client_request request = {.path = path};

    (void)snprintf(path, sizeof(path), "%s/output?stream=%s&offset=%" PRIu64 "&limit=%" PRIu64,
                   follow->process, stream == 0 ? "stdout" : "stderr", at, size);
    if (client_start(follow->client, &request, err) < 0)
        return -1;
    if (header_number(follow->client, "cove-from", from) && *from >= at)
        return 0;
    return error_set(err, "bad_answer", 0,
                     "the server's answer does not say where its output begins; check that "
                     "COVE_URL leads to cove");
}

/* One request: how many bytes it brought, or -1. */
static int64_t fetch_once(struct follow *follow, int stream, uint64_t size, struct error *err)
{
    char data[65536];
    uint64_t from = 0;
    ssize_t n;

    if (fetch_start(follow, stream, follow->from[stream], size, &from, err) < 0)
        return -1;
    if (from > follow->from[stream])
        say_gap(stream, from - follow->from[stream]);
    follow->from[stream] = from;
    while ((n = client_read(follow->client, data, sizeof(data), err)) > 0) {
        follow->from[stream] += (uint64_t)n;
        if (follow_write(follow, stream, data, (size_t)n, err) < 0)
            return -1;
    }
    return n < 0 ? -1 : (int64_t)(follow->from[stream] - from);
}

int follow_fetch(struct follow *follow, int stream, uint64_t end, struct error *err)
{
    while (!follow->is_left_out[stream] && follow->from[stream] < end) {
        int64_t got = fetch_once(follow, stream, end - follow->from[stream], err);

        if (got <= 0)
            return (int)got; /* no more, whatever was promised */
    }
    return 0;
}

/* Reads one piece: how many bytes of it are there, or -1. */
static ssize_t piece_read(struct follow *follow, int stream, uint64_t at, char *piece, size_t size,
                          struct error *err)
{
    uint64_t from = 0;
    size_t used = 0;
    ssize_t n = 1;

    if (fetch_start(follow, stream, at, size, &from, err) < 0)
        return -1;
    while (n > 0 && from == at && used < size) {
        n = client_read(follow->client, piece + used, size - used, err);
        used += n > 0 ? (size_t)n : 0;
    }
    client_abandon(follow->client);
    return n < 0 ? -1 : (ssize_t)used;
}

/* Looks backwards, piece by piece. Where output is dropped meanwhile it ends: a gap is told by the one that prints. */
int follow_tail(struct follow *follow, int stream, uint64_t end, uint64_t lines, struct error *err)
{
    char piece[65536];
    uint64_t first = follow->from[stream], at = end;

    if (lines == 0)
        follow->from[stream] = first = end;
    while (at > first) {
        size_t size = at - first < sizeof(piece) ? (size_t)(at - first) : sizeof(piece);
        ssize_t got = piece_read(follow, stream, at - size, piece, size, err);

        if (got < 0)
            return -1;
        for (size_t i = (size_t)got; i-- > 0;) {
            uint64_t next = at - size + i + 1; /* where the line after this byte begins */

            if (piece[i] != '\n' || next == end || --lines > 0)
                continue;
            follow->from[stream] = next;
            return 0;
        }
        if ((size_t)got < size)
            return 0;
        at -= size;
    }
    return 0;
}

/* What poured meanwhile, until it is little. */
static int fetch_rest(struct follow *follow, struct error *err)
{
    int64_t most = INT64_MAX;

    while (most > FETCH_ENOUGH) {
        most = 0;
        for (int stream = 0; stream < 2; stream++) {
            int64_t got = follow->is_left_out[stream] ? 0
                                                      : fetch_once(follow, stream, FETCH_MOST, err);

            if (got < 0)
                return -1;
            most = got > most ? got : most;
        }
    }
    return 0;
}

/* The stream that was left stays open meanwhile: so the server knows that we are there, however slowly we write. */
static int catch_up(struct follow *follow, struct error *err)
{
    struct client *stream = follow->client;
    _cleanup_client_ struct client *other = NULL;
    int result;

    if (client_copy(stream, &other, err) < 0)
        return -1;
    client_watch(other, follow->watch_fd, follow->watch_call, follow->watch_arg);
    follow->client = other;
    result = fetch_rest(follow, err);
    follow->client = stream;
    return result;
}

int follow_run(struct follow *follow, struct doc **process, struct error *err)
{
    uint64_t heard_ms = api_now_ms();

    for (;;) {
        int result = follow_once(follow, process, &heard_ms, err);

        if (result > 0)
            return 0;
        if (result == 0) {
            result = catch_up(follow, err);
            heard_ms = api_now_ms();
        }
        client_abandon(follow->client);
        if (result == 0)
            continue;
        if (follow->is_unread || !api_goes_on(follow->client, heard_ms, err))
            return -1;
    }
}
