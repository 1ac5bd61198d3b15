/* A WebSocket of a client: see websocket.h. */
#include "cmd/websocket.h"

#include "base/fd.h"
#include "cmd/options.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define HEAD_MAX 14
#define MASK_SIZE 4
#define CONTROL_MAX 125
#define FINAL 0x80U
#define OPCODE 0x0fU
#define MASKED 0x80U
#define OP_PING 9
#define OP_PONG 10
#define NO_CODE 1005

int websocket_open(struct websocket *websocket, struct client *client, const char *path,
                   struct error *err)
{
    *websocket = (struct websocket){.client = client};
    return client_upgrade(client, path, err);
}

void websocket_close(struct websocket *websocket)
{
    free(websocket->data);
    websocket->data = NULL;
    websocket->used = websocket->room = websocket->taken = 0;
    client_abandon(websocket->client);
}

/* ---- out ---- */

static size_t head_make(unsigned char head[HEAD_MAX], unsigned opcode, size_t size)
{
    unsigned bytes = size < 126 ? 0 : size < 65536 ? 2 : 8;

    head[0] = (unsigned char)(FINAL | opcode);
    head[1] = (unsigned char)(MASKED | (bytes == 0 ? size : bytes == 2 ? 126 : 127));
    for (unsigned i = 0; i < bytes; i++)
        head[2 + i] = (unsigned char)((uint64_t)size >> 8 * (bytes - 1 - i));
    return 2 + bytes;
}

static int frame_send(struct websocket *websocket, unsigned opcode, const void *data, size_t size,
                      struct error *err)
{
    const unsigned char *from = data;
    _cleanup_free_ unsigned char *frame = malloc(HEAD_MAX + size);
    unsigned char mask[MASK_SIZE];
    size_t at;
    int sent;

    if (frame == NULL)
        return option_no_memory(err);
    if (getrandom(mask, sizeof(mask), 0) != (ssize_t)sizeof(mask))
        // cppcheck-suppress memleak ; it goes with its scope
        return error_set(err, "random", errno, "getrandom: the kernel refused it");
    at = head_make(frame, opcode, size);
    memcpy(frame + at, mask, sizeof(mask));
    at += sizeof(mask);
    for (size_t i = 0; i < size; i++)
        frame[at + i] = from[i] ^ mask[i % MASK_SIZE];
    if (websocket->sends != NULL)
        websocket->sends(websocket->sends_arg, true);
    sent = client_raw_send(websocket->client, frame, at + size, err);
    if (websocket->sends != NULL)
        websocket->sends(websocket->sends_arg, false);
    return sent;
}

int websocket_send(struct websocket *websocket, enum websocket_kind kind, const void *data,
                   size_t size, struct error *err)
{
    return frame_send(websocket, (unsigned)kind, data, size, err);
}

/* ---- in ---- */

static int bad(struct error *err)
{
    return error_set(
        err, "bad_answer", 0,
        "the server's answer is no WebSocket of cove; check that COVE_URL leads to cove");
}

/* Makes at least `size` bytes of what comes be there. */
static int need(struct websocket *websocket, size_t size, struct error *err)
{
    while (websocket->used - websocket->taken < size) {
        ssize_t n;

        if (websocket->taken > 0) {
            memmove(websocket->data, websocket->data + websocket->taken,
                    websocket->used - websocket->taken);
            websocket->used -= websocket->taken;
            websocket->taken = 0;
        }
        if (websocket->room <= size) { /* with a byte more, for the end of a text */
            size_t room = size < 65535 ? 65536 : size + 1;
            char *data = realloc(websocket->data, room);

            if (data == NULL)
                return option_no_memory(err);
            websocket->data = data;
            websocket->room = room;
        }
        n = client_raw_receive(websocket->client, websocket->data + websocket->used,
                               websocket->room - 1 - websocket->used, err);
        if (n < 0)
            return -1;
        websocket->used += (size_t)n;
    }
    return 0;
}

static int frame_next(struct websocket *websocket, unsigned *opcode, char **data, size_t *size,
                      struct error *err)
{
    const unsigned char *head;
    size_t bytes;
    uint64_t length = 0;

    if (need(websocket, 2, err) < 0)
        return -1;
    head = (const unsigned char *)websocket->data + websocket->taken;
    *opcode = head[0] & OPCODE;
    bytes = head[1] == 126 ? 2 : head[1] == 127 ? 8 : 0;
    if ((head[0] & ~OPCODE) != FINAL || (head[1] & MASKED) != 0)
        return bad(err);
    if (need(websocket, 2 + bytes, err) < 0)
        return -1;
    head = (const unsigned char *)websocket->data + websocket->taken;
    length = bytes == 0 ? head[1] : 0;
    for (size_t i = 0; i < bytes; i++)
        length = length << 8 | head[2 + i];
    if (length > (*opcode >= WEBSOCKET_CLOSED ? CONTROL_MAX : WEBSOCKET_MESSAGE_MAX))
        return bad(err);
    if (need(websocket, 2 + bytes + (size_t)length, err) < 0)
        return -1;
    *data = websocket->data + websocket->taken + 2 + bytes;
    *size = (size_t)length;
    websocket->taken += 2 + bytes + (size_t)length;
    return 0;
}

/* What is behind a text belongs to the next frame: so it is moved to the front of its own head. */
static void message_end(struct websocket_message *message)
{
    memmove(message->data - 1, message->data, message->size);
    message->data--;
    message->data[message->size] = '\0';
}

int websocket_next(struct websocket *websocket, struct websocket_message *message,
                   struct error *err)
{
    unsigned opcode;

    for (;;) {
        if (frame_next(websocket, &opcode, &message->data, &message->size, err) < 0)
            return -1;
        if (opcode == OP_PING &&
            frame_send(websocket, OP_PONG, message->data, message->size, err) < 0)
            return -1;
        if (opcode == OP_PING || opcode == OP_PONG)
            continue;
        if (opcode != WEBSOCKET_TEXT && opcode != WEBSOCKET_BINARY && opcode != WEBSOCKET_CLOSED)
            return bad(err);
        message->kind = (enum websocket_kind)opcode;
        message->code = message->size >= 2 ? (unsigned)(unsigned char)message->data[0] << 8 |
                                                 (unsigned char)message->data[1]
                                           : NO_CODE;
        message_end(message);
        return 0;
    }
}
