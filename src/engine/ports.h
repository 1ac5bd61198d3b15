/* What the three files of ports share: ports.c (listeners on this host, verbs), dials.c (a call into a box) and
 * listening.c (what listens in one). */
#pragma once

#include "box/network.h"
#include "engine/parts.h"

#define DIALS_MAX 256 /* that last, by one sandbox's name; and again by its listeners */
/* Of those by name, what visitors of a public port may have: the rest is for who has a key. */
#define DIALS_PUBLIC_MAX (DIALS_MAX - DIALS_MAX / 4)
#define LISTEN_MAX 128 /* ports that are known to listen, of one sandbox */

struct opened {
    struct opened *next;
    struct sandbox *sandbox;
    uint16_t port, host_port;
    struct net_forward *forward;
};

struct ports {
    struct opened *opened;
    size_t uses, public_uses;         /* that last, by name; the second are among the first */
    uint64_t turn_ns, public_turn_ns; /* of the next call: dials.c */
    int diag;                         /* -1 */
    bool is_asked, is_up;
    bool is_known;               /* what listened when this engine came is no news */
    uint64_t looked_ns, rest_ns; /* when it was looked at, and for how long it is not again */
    size_t count;
    uint16_t listening[LISTEN_MAX]; /* in order */
};

struct ports *ports_of(struct sandbox *sandbox); /* made when it is asked for first */

/* ---- dials.c ---- */

enum dial_for {
    DIAL_LISTENER, /* of this host */
    DIAL_CALLER,   /* with a key or a token; counts among `uses` */
    DIAL_PUBLIC,   /* of whoever sees what is public; counts, too */
};
/* 0, or -1 "sandbox_stopped". */
int dial_may(const struct sandbox *sandbox, struct error *err);
/* `done` comes later, once. */
void dial_begin(struct sandbox *sandbox, uint16_t port, enum dial_for who, engine_port_dialled done,
                void *arg);
void dial_left(struct engine *engine, const char *id, enum dial_for who);

/* ---- listening.c ---- */

/* Port numbers in order, each once: the lowest of all that were added. */
struct found {
    size_t count, most; /* of `ports`, as many as may be used */
    uint16_t ports[LISTEN_MAX + ENGINE_PORTS_MAX];
};
void found_add(struct found *found, uint16_t port);

void listening_begin(struct sandbox *sandbox, bool is_new);
void listening_end(struct sandbox *sandbox); /* whatever listened listens no more */
/* Makes `listening` what it is now, or nearly; `looked` comes at once or later, once, with NULL where the sandbox
 * was deleted meanwhile and an error where the engine ends. */
typedef void (*listening_looked)(void *arg, struct sandbox *sandbox, const struct error *err);
void listening_look(struct sandbox *sandbox, listening_looked looked, void *arg);
