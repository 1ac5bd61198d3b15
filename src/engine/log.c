/* Output files: see log.h.
 *
 * The other end of a pipe is in a hostile box, and what is at ours is shared with its init: whether
 * a read blocks is not ours to say, for O_NONBLOCK belongs to the description and anybody who has it
 * may clear it. SPLICE_F_NONBLOCK belongs to the call. */
#include "engine/log.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void log_init(struct proc_log *log_file, int directory, uint32_t number, int stream)
{
    *log_file = (struct proc_log){.directory = directory, .fd = -1};
    (void)snprintf(log_file->name, sizeof(log_file->name), "%u.%s", number,
                   stream == 0 ? "out" : "err");
}

static int open_file(struct proc_log *log_file, int flags)
{
    if (log_file->fd < 0)
        log_file->fd = openat(log_file->directory, log_file->name,
                              O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    return log_file->fd < 0 ? -1 : 0;
}

void log_recover(struct proc_log *log_file)
{
    struct stat st;
    off_t data;

    if (open_file(log_file, 0) < 0 || fstat(log_file->fd, &st) < 0)
        return;
    log_file->is_made = true;
    log_file->bytes = (uint64_t)st.st_size;
    data = lseek(log_file->fd, 0, SEEK_DATA);
    log_file->from = data >= 0 && data < st.st_size ? (uint64_t)data : log_file->bytes;
    log_file->is_dropping = log_file->from == log_file->bytes && log_file->bytes % LOG_ALIGN != 0;
    log_close(log_file);
}

/* ---- room ---- */

bool log_trim(struct proc_log *log_file, uint64_t bytes)
{
    uint64_t from = (log_file->from + bytes) / LOG_ALIGN * LOG_ALIGN;
    uint64_t most = log_file->bytes / LOG_ALIGN * LOG_ALIGN;

    if (from > most)
        from = most;
    if (from <= log_file->from || open_file(log_file, 0) < 0 ||
        fallocate(log_file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)log_file->from,
                  (off_t)(from - log_file->from)) < 0)
        return false;
    log_file->from = from;
    return true;
}

void log_drop(struct proc_log *log_file)
{
    if (open_file(log_file, 0) == 0) {
        (void)!ftruncate(log_file->fd, 0);
        (void)!ftruncate(log_file->fd, (off_t)log_file->bytes);
    }
    log_file->from = log_file->bytes;
    log_file->is_dropping = log_file->bytes % LOG_ALIGN != 0;
}

static bool is_full(int errnum)
{
    return errnum == ENOSPC || errnum == EDQUOT || errnum == EFBIG || errnum == EIO ||
           errnum == EROFS;
}

/* ---- from the pipe ---- */

static ssize_t splice_once(int pipe, int to, loff_t *at, size_t size)
{
    ssize_t n;

    do
        n = splice(pipe, NULL, to, at, size, SPLICE_F_NONBLOCK);
    while (n < 0 && errno == EINTR);
    return n;
}

static ssize_t discard(int pipe, size_t size)
{
    _cleanup_close_ int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

    return nowhere < 0 ? -1 : splice_once(pipe, nowhere, NULL, size);
}

/* No disk for it: the stream goes on, and the file ends where it does. */
static ssize_t drop(struct proc_log *log_file, int pipe, size_t size)
{
    size_t room = LOG_ALIGN - log_file->bytes % LOG_ALIGN;
    ssize_t n = discard(pipe, size < room ? size : room);

    if (n <= 0)
        return n;
    log_file->bytes += (uint64_t)n;
    log_file->from = log_file->bytes;
    log_file->is_dropping = log_file->bytes % LOG_ALIGN != 0;
    if (log_file->fd >= 0)
        (void)!ftruncate(log_file->fd, (off_t)log_file->bytes);
    return n;
}

static ssize_t store(struct proc_log *log_file, int pipe, size_t size)
{
    loff_t at = (loff_t)log_file->bytes;
    ssize_t n;

    /* One that is not ours to continue is nobody's. */
    if (open_file(log_file, log_file->is_made ? O_CREAT : O_CREAT | O_TRUNC) < 0)
        return -1;
    log_file->is_made = true;
    n = splice_once(pipe, log_file->fd, &at, size);
    if (n > 0)
        log_file->bytes += (uint64_t)n;
    return n;
}

/* Like splice(2). Where the disk is full, the oldest of this stream makes room for its newest. */
static ssize_t move(struct proc_log *log_file, int pipe, size_t size)
{
    bool is_last = false;

    while (!log_file->is_dropping) {
        ssize_t n = store(log_file, pipe, size);

        if (n >= 0 || !is_full(errno))
            return n;
        if (is_last)
            break;
        if (!log_trim(log_file, (log_file->bytes - log_file->from) / 8 + LOG_ALIGN)) {
            log_drop(log_file);
            is_last = true;
        }
    }
    return drop(log_file, pipe, size);
}

/* A file is made for a first byte only, so there is a look before. */
static enum log_state look(int pipe)
{
    struct pollfd poll_fd = {.fd = pipe, .events = POLLIN};

    if (poll(&poll_fd, 1, 0) <= 0)
        return LOG_EMPTY;
    return (poll_fd.revents & POLLIN) != 0 ? LOG_MORE : LOG_ENDED;
}

static enum log_state state_of(ssize_t n)
{
    if (n > 0)
        return LOG_MORE;
    if (n == 0)
        return LOG_ENDED;
    if (errno == EAGAIN)
        return LOG_EMPTY;
    return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? LOG_LATER : LOG_ENDED;
}

enum log_state log_pump(struct proc_log *log_file, int pipe, size_t most)
{
    enum log_state state = log_file->is_made ? LOG_MORE : look(pipe);
    size_t moved = 0;

    while (state == LOG_MORE && moved < most) {
        ssize_t n = move(log_file, pipe, most - moved);

        state = state_of(n);
        moved += n > 0 ? (size_t)n : 0;
    }
    return state;
}

enum log_state log_discard(int pipe, size_t most)
{
    return state_of(discard(pipe, most));
}

/* ---- to a reader ---- */

ssize_t log_read(struct proc_log *log_file, uint64_t offset, void *data, size_t size,
                 uint64_t *from, struct error *err)
{
    ssize_t n;

    *from = offset < log_file->from ? log_file->from : offset;
    if (*from >= log_file->bytes || size == 0)
        return 0;
    if (size > log_file->bytes - *from)
        size = (size_t)(log_file->bytes - *from);
    if (open_file(log_file, 0) < 0)
        return error_set(err, "output_unreadable", errno, "cannot open the output of the process");
    do
        n = pread(log_file->fd, data, size, (off_t)*from);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return error_set(err, "output_unreadable", errno, "cannot read the output of the process");
    return n;
}

void log_close(struct proc_log *log_file)
{
    fd_close(&log_file->fd);
}

void log_remove(struct proc_log *log_file)
{
    log_close(log_file);
    if (log_file->is_made)
        (void)unlinkat(log_file->directory, log_file->name, 0);
    log_file->is_made = false;
}
