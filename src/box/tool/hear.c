/* Frames in: see parts.h. What comes is the engine's, which is of one build with us; it is checked all the
 * same, because a half of a frame must never be taken for a whole one. */
#include "box/tool/parts.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

static ssize_t read_once(int fd, void *data, size_t size)
{
    for (;;) {
        struct pollfd more = {.fd = fd, .events = POLLIN};
        ssize_t n = read(fd, data, size);

        if (n >= 0)
            return n;
        if (errno == EAGAIN)
            (void)poll(&more, 1, -1);
        else if (errno != EINTR)
            return -1;
    }
}

static int ended(struct error *err)
{
    return fail(err, 0, "input_ended", "the input ended before it was whole; send all of it");
}

/* How many of `size` came before the end, or -1. */
static ssize_t read_full(int fd, void *data, size_t size, struct error *err)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = read_once(fd, (char *)data + done, size - done);

        if (n < 0)
            return fail(err, errno, "", "read the input");
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

int hear_bytes(struct hear *hear, void *data, size_t size, struct error *err)
{
    ssize_t n;

    if (size > hear->left)
        return fail(err, 0, "bad_input", "a frame of the input is too short");
    n = read_full(hear->fd, data, size, err);
    if (n < 0)
        return -1;
    if ((size_t)n < size)
        return ended(err);
    hear->left -= size;
    return 0;
}

ssize_t hear_some(struct hear *hear, void *data, size_t size, struct error *err)
{
    ssize_t n;

    if (size > hear->left)
        size = (size_t)hear->left;
    if (size == 0)
        return 0;
    n = read_once(hear->fd, data, size);
    if (n < 0)
        return fail(err, errno, "", "read the input");
    if (n == 0)
        return ended(err);
    hear->left -= (size_t)n;
    return n;
}

int hear_head(struct hear *hear, uint32_t *type, uint32_t *size, struct error *err)
{
    struct tool_head head;
    char passed[4096];
    ssize_t n;

    while (hear->left > 0)
        if (hear_some(hear, passed, sizeof(passed), err) < 0)
            return -1;
    n = read_full(hear->fd, &head, sizeof(head), err);
    if (n < 0)
        return -1;
    if ((size_t)n < sizeof(head))
        return ended(err);
    if (head.size > (head.type == TOOL_DATA ? TOOL_DATA_MAX : TOOL_FRAME_MAX))
        return fail(err, 0, "bad_input", "a frame of the input is too long");
    hear->left = head.size;
    *type = head.type;
    *size = head.size;
    return 0;
}

int hear_data(struct hear *hear, struct error *err)
{
    uint32_t type = 0, size = 0;

    do {
        if (hear_head(hear, &type, &size, err) < 0)
            return -1;
        if (type != TOOL_DATA && type != TOOL_FINISH)
            return fail(err, 0, "bad_input", "the input has a frame that is no data");
    } while (type == TOOL_DATA && size == 0);
    return type == TOOL_DATA;
}
