/* Answers of a length that is told, and answers that a thread writes into a pipe, as a box would. */
#include "server.h"

#include "base/fd.h"
#include "http/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PATTERN 65521 /* a prime, so that no block can stand for another */

struct download {
    struct http_request *request;
    uv_poll_t poll;
    uv_thread_t writer;
    int pipe;
    int into;
    int file;
    size_t to_write; /* by the thread */
    size_t left;     /* to be passed on */
    size_t lie;      /* so much more is announced than there is */
    bool has_writer;
};

static char pattern[PATTERN * 17];

static void fill_pattern(void)
{
    for (size_t i = 0; i < sizeof(pattern); i++) {
        pattern[i] = (char)(i % PATTERN % 251);
    }
}

/* `length` bytes are told, `bytes` are written. */
void get_sized(struct http_request *request, void *data)
{
    size_t length = number(request, "length", 10), bytes = number(request, "bytes", length);

    (void)data;
    fill_pattern();
    http_stream_sized(request, 200, "application/octet-stream", length);
    for (size_t done = 0; done < bytes;) {
        size_t part = bytes - done < 1000 ? bytes - done : 1000;
        http_write(request, pattern + done % PATTERN, part);
        done += part;
    }
    http_finish(request);
}

/* ---- from a pipe ---- */

static void write_all(void *arg)
{
    struct download *download = arg;
    size_t done = 0;

    while (done < download->to_write) {
        size_t part = download->to_write - done;
        ssize_t n;
        if (download->file >= 0) {
            n = splice(download->file, NULL, download->into, NULL, part, SPLICE_F_MOVE);
        } else {
            part = part < (size_t)PATTERN * 16 ? part : (size_t)PATTERN * 16;
            n = write(download->into, pattern + done % PATTERN, part);
        }
        if (n <= 0) {
            break;
        }
        done += (size_t)n;
    }
    fd_close(&download->into);
}

static void on_download_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void download_free(void *data)
{
    struct download *download = data;

    live_count--;
    uv_poll_stop(&download->poll);
    /* The writer ends with it. */
    fd_close(&download->pipe);
    if (download->has_writer) {
        uv_thread_join(&download->writer);
    }
    fd_close(&download->file);
    uv_close((uv_handle_t *)&download->poll, on_download_closed);
}

static void on_download_gone(void *arg)
{
    struct download *download = arg;

    gone_count++;
    http_abort(download->request);
}

static void on_pipe(uv_poll_t *poll, int status, int events);

static void on_sent(void *arg)
{
    struct download *download = arg;

    if (download->left == 0) {
        http_finish(download->request);
    } else {
        uv_poll_start(&download->poll, UV_READABLE, on_pipe);
    }
}

static void on_pipe(uv_poll_t *poll, int status, int events)
{
    struct download *download = poll->data;
    int waiting = 0;
    size_t size;

    (void)status, (void)events;
    if (ioctl(download->pipe, FIONREAD, &waiting) || waiting <= 0) {
        http_abort(download->request);
        return;
    }
    size = (size_t)waiting < download->left ? (size_t)waiting : download->left;
    download->left -= size;
    uv_poll_stop(poll);
    http_write_pipe(download->request, download->pipe, size + download->lie, on_sent, download);
}

/* bytes=, file=PATH, chunked=1, lie=N, copied=1 */
void get_pipe(struct http_request *request, void *data)
{
    const char *file = http_query(request, "file");
    struct download *download = calloc(1, sizeof(*download));
    int fds[2];

    (void)data;
    fill_pattern();
    if (!download || pipe2(fds, O_CLOEXEC)) {
        abort();
    }
    (void)fcntl(fds[0], F_SETPIPE_SZ, 1 << 20);
    /* As the engine has it: what nobody waits for. */
    (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
    download->request = request;
    download->pipe = fds[0];
    download->into = fds[1];
    download->file = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    download->left = download->to_write = number(request, "bytes", 1000);
    download->lie = number(request, "lie", 0);
    download->has_writer = true;
    live_count++;
    uv_poll_init(loop, &download->poll, download->pipe);
    download->poll.data = download;
    uv_thread_create(&download->writer, write_all, download);
    http_set_data(request, download, download_free);
    http_on_gone(request, on_download_gone, download);
    if (number(request, "chunked", 0)) {
        http_stream(request, 200, "application/octet-stream");
    } else {
        http_stream_sized(request, 200, "application/octet-stream", download->left + download->lie);
    }
    /* No kind of socket is left that takes no splice, so one is made to look like it. */
    request->conn->copies = number(request, "copied", 0) != 0;
    on_sent(download);
}
