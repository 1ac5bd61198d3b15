/* The engine's end of the keeper's protocol: requests with ids, answers with fds.
 *
 * Each request is answered once, by the keeper or, when it is lost, with the code "keeper_lost"; never
 * before the call that asked has returned. What comes in is checked for size, type and fds although
 * the keeper is trusted: a wrong answer means that the two are not of one build, and counts as lost. */
#pragma once

#include "keeper/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct keeper_client;

/* `fd` is the callee's, -1 where there is none (of KEEPER_SOCKET there is one). On an error `answer` is NULL. */
typedef void (*keeper_answered)(void *arg, const union keeper_answer *answer, int fd,
                                const struct error *err);

struct keeper_calls {
    void (*host)(void *arg, const struct keeper_host *host);
    void (*named)(void *arg, const struct keeper_named *named);   /* also unasked */
    void (*box)(void *arg, const struct keeper_box *box, int fd); /* takes the fd */
    void (*disk)(void *arg, const char *disk);
    void (*tls)(void *arg, int fd); /* unasked; takes the fd */
    void (*lost)(void *arg,
                 const struct error *err); /* once, after all that was asked is answered */
};

/* Takes the socket. */
int keeper_client_open(uv_loop_t *loop, int socket, int requests, const struct keeper_calls *calls,
                       void *arg, struct keeper_client **out, struct error *err);

/* Fills in type and id; `request` is copied. */
void keeper_client_ask(struct keeper_client *client, enum keeper_type type,
                       union keeper_request *request, keeper_answered answered, void *arg);

/* Says that this loop turns. */
void keeper_client_beat(struct keeper_client *client);

size_t keeper_client_pending(const struct keeper_client *client);

/* Who still waits is answered before this returns, with "keeper_lost", and asks nothing more. */
void keeper_client_close(struct keeper_client *client);
