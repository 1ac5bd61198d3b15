/* A small HTTP/1.1 client for the native API: one connection (conn.h) that is kept, answers that are
 * read whole or followed.
 *
 * Nothing that a server says is trusted: lengths are limited, times are bounded, and a text of its
 * that gets into an error has no control characters left. Must never send a request twice that might
 * do something twice. */
#pragma once

#include "base/err.h"
#include "cmd/doc.h"
#include "cmd/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CLIENT_ANSWER_MS 60000 /* for the head of an answer, unless the request says otherwise */
#define CLIENT_IDLE_MS 60000 /* between two pieces of it; a stream has a sign of life every 15 s */
#define CLIENT_BODY_MAX (64U << 20) /* of a whole answer */
#define CLIENT_LINE_MAX (4U << 20)

struct client;

/* Finds the server (client_find.c): COVE_URL, else the system's if its socket may be used, else the
 * private engine of this user, which is started if it does not run. */
int client_open(struct client **out, struct error *err);

/* Only that private engine. */
int client_open_private(struct client **out, struct error *err);

/* Opens the directory of this user's own engine's socket, which only this user may look into; makes it if need be. -1:
 * there is none that is safe. */
int client_place(void);

/* As client_open(), but only if one runs already; nothing is said and nothing is started. */
int client_open_running(struct client **out);

/* Whether that is the system's socket and another user's, who is not root: who uses it needs a key. */
bool client_is_others_socket(const struct wire_address *address);

/* For a server that is known. Connects with the first request. COVE_API_KEY is sent along. */
int client_new(const struct wire_address *address, struct client **out, struct error *err);

/* Connects now, if it is not connected. */
int client_connect(struct client *client, struct error *err);

/* Another connection to the same server. */
int client_copy(const struct client *client, struct client **out, struct error *err);

/* The path of its unix socket, or NULL. */
const char *client_socket(const struct client *client);

void client_close(struct client *client);
void client_closep(struct client **client);
#define _cleanup_client_ __attribute__((cleanup(client_closep)))

/* While the client waits, `call` is called whenever `fd` is readable. */
void client_watch(struct client *client, int fd, void (*call)(void *arg), void *arg);

struct client_request {
    const char *method; /* NULL: GET */
    const char *path;   /* with its query, encoded */
    const struct doc *json;
    const void *bytes; /* or this, which `size` says */
    size_t size;
    unsigned answer_ms;      /* 0: CLIENT_ANSWER_MS; UINT_MAX: as long as it takes */
    const char *repeat_key;  /* an Idempotency-Key; with it a cut request is sent once more */
    const char *upgrade_key; /* client_upgrade()'s */
    bool is_tunnel;          /* client_tunnel()'s */
};

/* Asks, and has the answer parsed: NULL where it has no body. An answer that is no success is an
 * error: its code, its sentence. `answer` may be NULL. */
int client_call(struct client *client, const struct client_request *request, struct doc **answer,
                struct error *err);

/* Asks and reads the head; what follows is taken with one of the two below until that returns 0. */
int client_start(struct client *client, const struct client_request *request, struct error *err);
ssize_t client_read(struct client *client, void *into, size_t size, struct error *err);
/* The next line, without its end and terminated; 1, 0 at the end, -1. It lasts until the next call. */
int client_line(struct client *client, char **line, size_t *size, struct error *err);

/* A request whose body comes in parts: of `length` bytes, or UINT64_MAX where nobody knows how many. Then
 * client_send() until there is no more, or 1 is returned: the server has answered already. Then
 * client_sent(), as client_call() ends. */
int client_begin(struct client *client, const struct client_request *request, uint64_t length,
                 struct error *err);
int client_send(struct client *client, const void *data, size_t size, struct error *err);
int client_sent(struct client *client, struct doc **answer, struct error *err);

/* Asks for a WebSocket (websocket.h), and from then on the connection is bytes, both ways. */
int client_upgrade(struct client *client, const char *path, struct error *err);
int client_raw_send(struct client *client, const void *data, size_t size, struct error *err);
/* Some of what comes, after as long a wait as it takes; the end of the connection is an error. */
ssize_t client_raw_receive(struct client *client, void *into, size_t size, struct error *err);

/* Asks for a stream of bytes ("Upgrade: tcp"), and carries it from and to `fd`, a socket that must not block,
 * until both sides have said all; each may end its half before. An error is an end in the middle. */
int client_tunnel(struct client *client, const char *path, struct error *err);
int client_carry(struct client *client, int fd, struct error *err);

/* How long the body was that client_call() read last. */
size_t client_answer_bytes(const struct client *client);

/* A header of the last answer by its name in lower case, or NULL. */
const char *client_header(const struct client *client, const char *name);

/* How much of the answer's body is to come; UINT64_MAX: nobody knows. */
uint64_t client_left(const struct client *client);

/* Stops in the middle of an answer: the next request has a connection of its own. */
void client_abandon(struct client *client);

/* Whether an error means that the connection ended, not that the server refused. */
bool client_was_cut(const struct error *err);
/* Whether it may be that of a restart, after which the same can be asked again. */
bool client_may_come_back(const struct error *err);

/* A key for `repeat_key`. */
#define CLIENT_KEY_SIZE 33
int client_repeat_key(char key[CLIENT_KEY_SIZE], struct error *err);
