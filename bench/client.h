/* A client of the engine that costs as little as one can: HTTP/1.1 over the unix socket, connections
 * that are kept, one thread, requests that were written before the clock runs.
 *
 * It reads only what its own engine answers (a status and a Content-Length), so it is no model of how
 * to read HTTP. What it cannot read ends the bench: a number beside a wrong answer is worth nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLIENT_ID_MAX 32
#define CLIENT_ANSWER_MAX ((size_t)65536)

struct client {
    int fd;
    uint64_t asked_ns;      /* when its last request was sent */
    int status;             /* of the last answer */
    const char *body;       /* of the last answer, ends with a zero byte */
    size_t step;            /* the caller's */
    char id[CLIENT_ID_MAX]; /* the caller's: the sandbox it works with */
    char answer[CLIENT_ANSWER_MAX];
    size_t length;
};

/* A request as it goes over the wire. */
struct request {
    char *text;
    size_t length;
};

/* `body` may be NULL. Whoever makes it frees `text`. */
struct request request_new(const char *method, const char *path, const char *body);
void request_free(struct request *request);

/* `where` is the path of a socket, or a port of loopback. The first two say that they failed; the others end the
 * bench. */
int client_connect(const char *where);
bool client_try_open(struct client *client, const char *where);
void client_open(struct client *client, const char *where);
void client_close(struct client *client);

/* Sends it and notes when. */
void client_ask(struct client *client, const struct request *request);

/* Waits for the answer of what was asked; returns its status. */
int client_await(struct client *client);

/* Both, and how long it took. */
int client_call(struct client *client, const struct request *request, uint64_t *took_ns);

/* The same; false when there is no answer. */
bool client_try_call(struct client *client, const struct request *request);

/* Reads what has come without waiting; true when the answer is complete. */
bool client_hear(struct client *client);

/* Calls `answered` for each of `clients` whose answer is complete, until all of them are idle. It asks
 * anew or leaves its client idle by returning false. All have asked before this is called. */
void client_drive(struct client *clients, size_t count,
                  bool (*answered)(struct client *client, void *arg), void *arg);

/* The text after "name":" in the last answer, up to the next quote; false if there is none. */
bool client_text(const struct client *client, const char *name, char *into, size_t size);
