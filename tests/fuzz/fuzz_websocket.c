/* Any bytes as what a server says over a WebSocket to a client: the same messages whether they come at once
 * or byte by byte, none larger than the limit, each terminated, and what is none ends it with a sentence. */
#include "cmd/websocket.h"
#include "seen.h"

#include <stdlib.h>
#include <string.h>

/* In the place of a connection: what is there, so many bytes at a time. */
static const uint8_t *next_bytes;
static size_t bytes_left, step, sent;

int client_upgrade(struct client *client, const char *path, struct error *err)
{
    (void)client;
    (void)path;
    (void)err;
    return 0;
}

void client_abandon(struct client *client)
{
    (void)client;
}

int client_raw_send(struct client *client, const void *data, size_t size, struct error *err)
{
    const unsigned char *head = data;

    (void)client;
    (void)err;
    /* Pongs alone: masked, and no longer than the ping. */
    must(size >= 6 && head[0] == 0x8a && head[1] == (0x80 | (size - 6)) && size - 6 <= 125);
    sent++;
    return 0;
}

ssize_t client_raw_receive(struct client *client, void *into, size_t size, struct error *err)
{
    size_t some = bytes_left < step ? bytes_left : step;

    (void)client;
    if (some > size)
        some = size;
    if (some == 0)
        return error_set(err, "no_server", 0, "the connection has ended");
    memcpy(into, next_bytes, some);
    next_bytes += some;
    bytes_left -= some;
    return (ssize_t)some;
}

static void hear(const uint8_t *data, size_t size, size_t at_once, struct seen *seen)
{
    struct websocket websocket;
    struct websocket_message message;
    struct error err = {0};

    next_bytes = data;
    bytes_left = size;
    step = at_once;
    sent = 0;
    seen->size = 0;
    must(websocket_open(&websocket, NULL, "/", &err) == 0);
    while (websocket_next(&websocket, &message, &err) == 0) {
        unsigned char mark[3] = {(unsigned char)message.kind, (unsigned char)(message.code >> 8),
                                 (unsigned char)message.code};

        must(message.size <= (message.kind == WEBSOCKET_CLOSED ? 125 : WEBSOCKET_MESSAGE_MAX));
        must(message.data >= websocket.data &&
             message.data + message.size < websocket.data + websocket.room);
        must(message.data[message.size] == '\0');
        note(seen, mark, sizeof(mark));
        note(seen, message.data, message.size);
    }
    must(err.code[0] != '\0' && err.text[0] != '\0');
    must(websocket.room <= WEBSOCKET_MESSAGE_MAX + 16);
    note(seen, err.code, strlen(err.code));
    note(seen, &sent, sizeof(sent));
    websocket_close(&websocket);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct seen one, other;

    if (size == 0 || size > INPUT_MAX)
        return 0;
    hear(data, size, size, &one);
    hear(data, size, 1, &other);
    must(seen_same(&one, &other));
    hear(data, size, 3, &other);
    must(seen_same(&one, &other));
    return 0;
}
