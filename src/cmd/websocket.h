/* A WebSocket as a client of our own server speaks it (RFC 6455): messages in one frame each.
 *
 * Nothing that the server says is trusted: lengths are limited, and what is not as the standard has it ends
 * the connection. A library for this (wslay) would be one more to be there for what are a few bytes before
 * each message. */
#pragma once

#include "cmd/client.h"

#include <stdbool.h>

#define WEBSOCKET_MESSAGE_MAX (1U << 20)

enum websocket_kind { WEBSOCKET_TEXT = 1, WEBSOCKET_BINARY = 2, WEBSOCKET_CLOSED = 8 };

struct websocket {
    struct client *client; /* borrowed; what it watches is served while we wait */
    char *data;            /* what came */
    size_t used, room, taken;
    /* Told before a frame is sent and after: nothing that is called meanwhile may send another, which would
     * be in the middle of the first. NULL: nobody; after websocket_open(). */
    void (*sends)(void *arg, bool begins);
    void *sends_arg;
};

struct websocket_message {
    enum websocket_kind kind;
    char *data; /* valid until the next call; terminated */
    size_t size;
    unsigned code; /* of WEBSOCKET_CLOSED */
};

/* Asks for `path`; an answer that is no WebSocket is an error, as of client_call(). */
int websocket_open(struct websocket *websocket, struct client *client, const char *path,
                   struct error *err);
void websocket_close(struct websocket *websocket);

int websocket_send(struct websocket *websocket, enum websocket_kind kind, const void *data,
                   size_t size, struct error *err);
/* Waits for the next message as long as it takes. */
int websocket_next(struct websocket *websocket, struct websocket_message *message,
                   struct error *err);
