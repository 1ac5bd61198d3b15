/* The verb read: the bytes of a regular file, spliced from the page cache into the pipe.
 *
 * What is promised in TOOL_BEGIN is what comes; a file that shrinks meanwhile ends the output early, and the
 * exit status says so, for there is no taking back. */
#include "box/tool/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#define BLOCK (128U << 10)
#define SPLICE_MAX (1U << 20)

/* How many bytes went by splice(2); it stops where that cannot be done, too. */
static uint64_t splice_some(int out, int file, uint64_t size)
{
    uint64_t done = 0;

    while (done < size) {
        struct pollfd room = {.fd = out, .events = POLLOUT};
        uint64_t left = size - done;
        ssize_t n = splice(file, NULL, out, NULL, left < SPLICE_MAX ? (size_t)left : SPLICE_MAX,
                           SPLICE_F_MOVE);

        if (n < 0 && errno == EAGAIN)
            (void)poll(&room, 1, -1);
        else if (n == 0 || (n < 0 && errno != EINTR))
            break;
        if (n > 0)
            done += (uint64_t)n;
    }
    return done;
}

static int send(struct tool *tool, int file, uint64_t size)
{
    static char block[BLOCK];
    uint64_t done;

    say_flush(&tool->say);
    done = splice_some(tool->say.fd, file, size);
    while (done < size) {
        uint64_t left = size - done;
        ssize_t n = read(file, block, left < sizeof(block) ? (size_t)left : sizeof(block));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(1);
        say_bytes(&tool->say, block, (size_t)n);
        done += (uint64_t)n;
    }
    tool->say.bytes = size;
    return 0;
}

/* Files that the kernel makes up say that they are empty. What they hold is sent as far as is known, or as
 * frames. */
static int send_made_up(struct tool *tool, int file, const struct entry *entry, struct error *err)
{
    static char block[BLOCK];
    uint64_t skip = tool->options.offset, length = tool->options.length, done = 0;
    ssize_t n = fd_read_full(file, block, sizeof(block));
    bool is_whole = n >= 0 && (size_t)n < sizeof(block);

    if (n < 0)
        return fail(err, errno, "", "read it");
    if (is_whole) {
        uint64_t from = skip < (uint64_t)n ? skip : (uint64_t)n, size = (uint64_t)n - from;

        size = size < length ? size : length;
        say_begin_bytes(&tool->say, entry, size, from);
        say_bytes(&tool->say, block + from, (size_t)size);
        tool->say.bytes = size;
        return 0;
    }
    say_begin_bytes(&tool->say, entry, UINT64_MAX, skip);
    for (; n > 0 && done < length; n = read(file, block, sizeof(block))) {
        uint64_t from = skip < (uint64_t)n ? skip : (uint64_t)n, size = (uint64_t)n - from;

        size = size < length - done ? size : length - done;
        skip -= from;
        if (size == 0)
            continue; /* a frame of nothing is none */
        say_begin(&tool->say, TOOL_DATA, (size_t)size);
        say_bytes(&tool->say, block + from, (size_t)size);
        done += size;
    }
    tool->say.bytes = done;
    return n < 0 ? fail(err, errno, "", "read it") : 0;
}

int verb_read(struct tool *tool, struct error *err)
{
    _cleanup_place_ struct place place = PLACE_NONE;
    uint64_t offset = tool->options.offset, size, length = tool->options.length;
    _cleanup_close_ int file = -1;
    struct entry entry = {.path = tool->at};
    struct stat st;

    tool->options.offset = offset = offset == TOOL_SAID_NOT ? 0 : offset;
    if (place_find(&tool->places, tool->at, PLACE_FOLLOW, &place, err) < 0)
        return -1;
    file = place_open_file(&place, O_RDONLY, &st, err);
    if (file < 0)
        return -1;
    entry.st = &st;
    if (st.st_size == 0)
        return send_made_up(tool, file, &entry, err);
    size = (uint64_t)st.st_size;
    offset = offset < size ? offset : size;
    size -= offset;
    size = size < length ? size : length;
    if (offset > 0 && lseek(file, (off_t)offset, SEEK_SET) < 0)
        return fail(err, errno, "", "go to the offset");
    say_begin_bytes(&tool->say, &entry, size, offset);
    return send(tool, file, size);
}
