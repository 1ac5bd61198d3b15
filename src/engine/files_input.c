/* Files: what goes to the tool, frames and bytes: see files.h.
 *
 * Nothing is written to the tool's pipe itself, as files.c says: it goes into a pipe of our own and is spliced
 * from there. What that has no room for waits in memory, up to a bound, and whoever gives it is held back. */
#include "engine/files_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define REST_MAX (1U << 20) /* of input that waits in memory; then it is held back */

static void input_break(struct files *files)
{
    files->is_broken = true;
    files->rest_at = files->rest_used = files->in_feed = 0;
    files_watch_close(&files->input);
}

static bool has_rest(const struct files *files)
{
    return files->rest_at < files->rest_used || files->in_feed > 0;
}

/* 1: some went on; 0: nothing now; -1: nobody reads it. */
static int move_out(struct files *files, size_t *moved)
{
    ssize_t n = 0;

    if (files->rest_at < files->rest_used) {
        n = write(files->feed[1], files->rest + files->rest_at, files->rest_used - files->rest_at);
        if (n > 0) {
            files->rest_at += (size_t)n;
            files->in_feed += (size_t)n;
        }
        if (files->rest_at == files->rest_used)
            files->rest_at = files->rest_used = 0;
    }
    if (files->in_feed == 0)
        return 0;
    do
        n = splice(files->feed[0], NULL, files->input->fd, NULL, files->in_feed, SPLICE_F_NONBLOCK);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n < 0 && errno == EAGAIN ? 0 : -1;
    files->in_feed -= (size_t)n;
    *moved += (size_t)n;
    return 1;
}

static void input_ready(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    files_pump(((struct watch *)poll)->files);
}

/* Moves what waits; false while some of it does. */
static bool flush(struct files *files)
{
    size_t moved = 0;
    int status = 1;

    if (files->is_broken || !files->has_started || files->input == NULL)
        return files->is_broken || !has_rest(files);
    while (status > 0 && has_rest(files) && moved < FILES_TURN_BYTES)
        status = move_out(files, &moved);
    if (status < 0) {
        input_break(files);
        return true;
    }
    if (has_rest(files)) {
        files_watch_set(files->input, UV_WRITABLE, input_ready);
        return false;
    }
    files_watch_stop(files->input);
    if (files->is_finished)
        files_watch_close(&files->input);
    return true;
}

void files_pump(struct files *files)
{
    if (!flush(files) || !files->wants_room || files->is_closed)
        return;
    files->wants_room = false;
    files->calls.room(files->arg);
}

static int keep(struct files *files, const char *data, size_t size)
{
    if (files->rest_used + size > files->rest_room) {
        size_t room = (files->rest_used + size) * 2;
        char *rest = realloc(files->rest, room);

        if (rest == NULL)
            return -1;
        files->rest = rest;
        files->rest_room = room;
    }
    memcpy(files->rest + files->rest_used, data, size);
    files->rest_used += size;
    return 0;
}

/* What is small, or comes while something waits, is kept; else it goes into the pipe as it is. */
static bool put(struct files *files, uint32_t type, const void *data, size_t size)
{
    struct tool_head head = {.type = type, .size = (uint32_t)size};
    struct iovec parts[2] = {{&head, sizeof(head)}, {(void *)data, size}};
    ssize_t n = 0;

    if (files->is_broken || files->is_finished || files->engine == NULL)
        return true;
    if (files_open_pipe(files, files->feed, true) != 0) {
        files_fail_tool(files, "has no pipe that can be used");
        files_put_off(files);
        return true;
    }
    if (files->rest_at == files->rest_used) {
        n = writev(files->feed[1], parts, 2);
        n = n < 0 ? 0 : n;
        files->in_feed += (size_t)n;
    }
    for (int i = 0; i < 2; i++) {
        size_t done = (size_t)n < parts[i].iov_len ? (size_t)n : parts[i].iov_len;

        n -= (ssize_t)done;
        if (keep(files, (const char *)parts[i].iov_base + done, parts[i].iov_len - done) != 0) {
            files_fail_tool(files, "could not be given all: there is no memory");
            files_put_off(files);
            return true;
        }
    }
    files->is_finished = type == TOOL_FINISH;
    if (files->is_finished)
        files_room_waits(files);
    else
        files_room_taken(files);
    if (flush(files) || files->rest_used - files->rest_at < REST_MAX / 4)
        return files->is_broken || !files->wants_room;
    files->wants_room = true;
    return false;
}

bool files_put_data(struct files *files, const void *data, size_t size)
{
    const char *at = data;
    bool may_go_on = true;

    while (size > 0) {
        size_t part = size < TOOL_DATA_MAX ? size : TOOL_DATA_MAX;

        may_go_on = put(files, TOOL_DATA, at, part);
        at += part;
        size -= part;
    }
    return may_go_on;
}

bool files_put_target(struct files *files, const struct files_target *target)
{
    char frame[sizeof(struct tool_file) + TOOL_PATH_MAX];
    size_t size = strnlen(target->path, TOOL_PATH_MAX - 1) + 1;
    struct tool_file file = {
        .mode = target->mode == FILES_NOT_SAID ? UINT32_MAX : (uint32_t)target->mode,
        .uid = target->uid == FILES_NOT_SAID ? UINT32_MAX : (uint32_t)target->uid,
        .gid = target->gid == FILES_NOT_SAID ? UINT32_MAX : (uint32_t)target->gid,
        .flags = target->flags,
        .offset = target->offset,
        .size = target->size,
    };

    memcpy(frame, &file, sizeof(file));
    memcpy(frame + sizeof(file), target->path, size - 1);
    frame[sizeof(file) + size - 1] = '\0';
    return put(files, TOOL_FILE, frame, sizeof(file) + size);
}

bool files_put_commit(struct files *files)
{
    return put(files, TOOL_COMMIT, "", 0);
}

bool files_put_finish(struct files *files)
{
    return put(files, TOOL_FINISH, "", 0);
}
