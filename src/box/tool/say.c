/* Frames out: see parts.h. They are gathered, so that a hundred thousand entries are a few hundred
 * writes. There is nobody to tell that the listener has gone, so the program ends there. */
#include "box/tool/parts.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LATE_NS 50000000ULL

int fail(struct error *err, int errnum, const char *code, const char *fmt, ...)
{
    va_list args;

    err->errnum = errnum;
    (void)snprintf(err->code, sizeof(err->code), "%s", code);
    va_start(args, fmt);
    (void)vsnprintf(err->text, sizeof(err->text), fmt, args);
    va_end(args);
    return -1;
}

/* The pipe may not block, if whoever made it liked it so. */
static void write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        struct pollfd room = {.fd = fd, .events = POLLOUT};
        ssize_t n = write(fd, data, size);

        if (n < 0 && errno == EAGAIN)
            (void)poll(&room, 1, -1);
        else if (n < 0 && errno != EINTR)
            _exit(1);
        if (n > 0) {
            data += n;
            size -= (size_t)n;
        }
    }
}

void say_flush(struct say *say)
{
    write_all(say->fd, say->data, say->used);
    say->used = 0;
    say->flushed_ns = clock_monotonic_ns();
}

void say_flush_late(struct say *say)
{
    if (say->used > 0 && clock_monotonic_ns() - say->flushed_ns > LATE_NS)
        say_flush(say);
}

void say_bytes(struct say *say, const void *data, size_t size)
{
    if (size > sizeof(say->data) - say->used)
        say_flush(say);
    if (size > sizeof(say->data)) {
        write_all(say->fd, data, size);
        return;
    }
    memcpy(say->data + say->used, data, size);
    say->used += size;
}

void say_begin(struct say *say, uint32_t type, size_t size)
{
    struct tool_head head = {.type = type, .size = (uint32_t)size};

    say_bytes(say, &head, sizeof(head));
}

/* With its NUL. */
static size_t path_size(const char *path)
{
    return strnlen(path, TOOL_PATH_MAX - 1) + 1;
}

static void say_path(struct say *say, const char *path, size_t size)
{
    say_bytes(say, path, size - 1);
    say_bytes(say, "", 1);
}

void say_error(struct say *say, int operand, const char *path, const struct error *err)
{
    struct tool_error error = {.operand = operand, .errnum = err->errnum};
    size_t size = path_size(path);

    (void)snprintf(error.code, sizeof(error.code), "%s", err->code);
    (void)snprintf(error.text, sizeof(error.text), "%.*s", (int)sizeof(error.text) - 1, err->text);
    say_begin(say, TOOL_ERROR, sizeof(error) + size);
    say_bytes(say, &error, sizeof(error));
    say_path(say, path, size);
}

void say_done(struct say *say)
{
    struct tool_done done = {
        .count = say->count, .bytes = say->bytes, .is_truncated = say->is_truncated};

    say_begin(say, TOOL_DONE, sizeof(done));
    say_bytes(say, &done, sizeof(done));
}

static int64_t in_ns(const struct timespec *at)
{
    int64_t ns;

    /* A file may say that it is of any year. */
    if (__builtin_mul_overflow((int64_t)at->tv_sec, INT64_C(1000000000), &ns) ||
        __builtin_add_overflow(ns, (int64_t)at->tv_nsec, &ns))
        return at->tv_sec < 0 ? INT64_MIN : INT64_MAX;
    return ns;
}

static struct tool_entry frame_of(const struct entry *entry)
{
    const struct stat *st = entry->st;

    return (struct tool_entry){
        .operand = entry->operand,
        .mode = st->st_mode,
        .uid = st->st_uid,
        .gid = st->st_gid,
        .size = (uint64_t)st->st_size,
        .inode = st->st_ino,
        .device = st->st_dev,
        .links = st->st_nlink,
        .blocks = (uint64_t)st->st_blocks,
        .modified_ns = in_ns(&st->st_mtim),
        .changed_ns = in_ns(&st->st_ctim),
        .accessed_ns = in_ns(&st->st_atim),
        .depth = entry->depth,
    };
}

void say_entry(struct say *say, struct users *users, uint32_t type, const struct entry *entry)
{
    const char *target = entry->target != NULL ? entry->target : "";
    const char *user = users_name(users, entry->st->st_uid);
    const char *group = users_group(users, entry->st->st_gid);
    size_t path = path_size(entry->path), link = path_size(target);
    struct tool_entry frame = frame_of(entry);

    say_begin(say, type, sizeof(frame) + path + link + strlen(user) + 1 + strlen(group) + 1);
    say_bytes(say, &frame, sizeof(frame));
    say_path(say, entry->path, path);
    say_path(say, target, link);
    say_bytes(say, user, strlen(user) + 1);
    say_bytes(say, group, strlen(group) + 1);
}

void say_begin_bytes(struct say *say, const struct entry *entry, uint64_t size, uint64_t offset)
{
    struct tool_begin begin = {.size = size, .offset = offset, .entry = frame_of(entry)};

    say_begin(say, TOOL_BEGIN, sizeof(begin));
    say_bytes(say, &begin, sizeof(begin));
}
