/* Between the files that carry bytes: turns of the loop, pumps, dials, connections of a box.
 *
 * Thousands of sockets stand in one loop with all else that the engine does. So none of them has a handle of
 * libuv: they are watched by an epoll of the room's own, edge by edge, which the loop watches as one fd. What an
 * event says is only noted; the work is done in turns, by shares (a box is one), until the round's time is over. */
#pragma once

#include "net/parts.h"
#include "net/turns.h"

#include <sys/queue.h>

/* ---- turns.c: beside turns.h ---- */

/* What a socket tells: `note` marks, and readies a task; it frees nothing and calls nothing else. */
struct watch {
    void (*note)(struct watch *watch, uint32_t events);
};

/* Times that are waited for are few and each is always the same, so that those of a kind stay in order. */
enum alarm_kind { ALARM_SOON, ALARM_STAGGER, ALARM_PATIENCE, ALARM_KINDS };
#define ALARM_SOON_MS 20
#define ALARM_STAGGER_MS 250
#define ALARM_PATIENCE_MS 10000

struct alarm {
    TAILQ_ENTRY(alarm) next;
    void (*ring)(struct alarm *alarm); /* from the loop; may free itself */
    uint64_t at_ms;
    enum alarm_kind kind;
    bool is_set;
};

/* `edges`: of EPOLLIN, EPOLLPRI, EPOLLOUT, EPOLLRDHUP; each is told when it begins, and at once where it holds. */
int turns_watch(struct turns *turns, int fd, uint32_t edges, struct watch *watch);
/* Before the fd is closed: a duplicate of it may be open elsewhere. */
void turns_unwatch(struct turns *turns, int fd);
void turns_alarm(struct turns *turns, struct alarm *alarm, enum alarm_kind kind);
void turns_calm(struct turns *turns, struct alarm *alarm);

/* ---- meter.c: how much a box may carry ---- */

struct pump;

struct meter {
    struct turns *turns;
    uint64_t rate;                /* bytes a second; 0: no bound */
    struct rate tokens;           /* bytes that may go now */
    uint64_t left;                /* that may ever go; UINT64_MAX: no bound */
    uint64_t bytes_out, bytes_in; /* that went */
    struct alarm alarm;
    TAILQ_HEAD(pumps, pump) waiting;
    unsigned waiting_count;
};

void meter_init(struct meter *meter, struct turns *turns);
void meter_set(struct meter *meter, uint64_t rate, uint64_t left);
void meter_end(struct meter *meter); /* no pump has it any more */
/* How much of `want` may go now; 0: none, and where `left` is not 0 the pump is run when there is some. */
size_t meter_allow(struct meter *meter, struct pump *pump, size_t want);
void meter_take(struct meter *meter, size_t size);

/* ---- pump.c: bytes between two sockets ---- */

#define PUMP_PIPES 128U      /* of the room */
#define PUMP_PIPES_SHARE 16U /* of them, that wait for somebody who does not read, of one share */

enum pump_end {
    PUMP_DONE,   /* both have said all */
    PUMP_BROKEN, /* one has gone */
    PUMP_SPENT,  /* of the meter nothing is left */
};

struct pipes;
int pipes_open(struct pipes **out, struct error *err);
void pipes_close(struct pipes *pipes);

struct pump_counts {
    uint64_t to_server, to_client;
};

struct pump_options {
    struct share *share;
    struct pipes *pipes;
    struct meter *meter; /* NULL: nothing is counted and bounded */
    int client, server;  /* taken; TCP or unix; `server` may still be connecting */
    const void *first;   /* that goes to `server` first */
    size_t first_size;
    /* Once, from the loop; the pump is gone by then. */
    void (*over)(void *arg, enum pump_end end, const struct pump_counts *counts);
    void *arg;
};

/* NULL: no memory, and both sockets are cut. */
struct pump *pump_new(const struct pump_options *options);
void pump_count(const struct pump *pump, struct pump_counts *out);
/* Now, with a RST to both; `over` is not called. */
void pump_cut(struct pump *pump);

/* What every socket gets that is carried: it never blocks, delays nothing, and a peer that vanished is found out. */
void pump_prepare(int fd);
/* Closes with a RST. */
void pump_reset(int *fd);

/* ---- proxy.c: by way of an upstream proxy ---- */

struct proxy;
int proxy_new(const char *url, struct proxy **out, struct error *err);
void proxy_free(struct proxy *proxy);
const char *proxy_host(const struct proxy *proxy); /* a name or an address */
uint16_t proxy_port(const struct proxy *proxy);
/* The request for `host` (a name, or NULL: the address); false where it does not fit. */
bool proxy_request(const struct proxy *proxy, const char *host,
                   const struct policy_address *address, uint16_t port, char *text, size_t room);
/* Of what a proxy said so far: how many bytes its answer's header has, 0 if it is not whole; `ok` whether it is
 * a yes. What cannot be one, or is longer than PROXY_HEAD_MAX, is a no of SIZE_MAX bytes. */
#define PROXY_HEAD_MAX 8192
size_t proxy_answer(const char *text, size_t size, bool *ok);

/* ---- dial.c: from a name or an address to a socket ---- */

struct dial_result {
    int fd;                        /* connected, the callee's; -1: none */
    struct policy_address address; /* that was dialled, or refused; zeros: none */
    struct policy_verdict verdict; /* of it, where there is no failure */
    const char *
        failure; /* "no_such_name", "unreachable", "limit"; NULL: connected, or refused by the verdict */
};

struct dial;
/* `name` is borrowed until it ends; NULL: `address`. `done` is called once, from the loop, and the dial is gone by
 * then. NULL: no memory. */
struct dial *dial_new(struct net_box *box, const char *name, const struct policy_address *address,
                      uint16_t port, void (*done)(void *arg, const struct dial_result *result),
                      void *arg);
void dial_cancel(struct dial *dial);
/* The verdict of the box's policy about an address that was dialled; zeros stand for one that only the proxy
 * knows. */
struct policy_verdict dial_judge(struct net_box *box, const char *name,
                                 const struct policy_address *address, uint16_t port);
/* The same of one that was dialled: whose it is was asked then. */
struct policy_verdict dial_judge_again(struct net_box *box, const char *name,
                                       const struct policy_address *address, uint16_t port);

/* ---- flow.c: the connections of one box ---- */

struct flows;
struct flows *flows_new(struct net_box *box);
void flows_free(struct flows *flows);            /* no record is made */
void flows_attach(struct flows *flows, int tcp); /* takes it */
void flows_detach(struct flows *flows);          /* cuts all, and records them */
/* The policy or the limits are others now; texts of the policy of before are still there. */
void flows_judge(struct flows *flows);
unsigned flows_count(const struct flows *flows);

/* ---- stream.c: DNS over TCP ---- */

struct stream;
/* Takes the socket. `over` once, from the loop; the stream is gone by then. NULL: no memory. */
struct stream *stream_new(struct net_box *box, int fd, void (*over)(void *arg), void *arg);
void stream_cut(struct stream *stream);

/* ---- net.c ---- */

struct turns *net_turns(const struct net *net);
struct pipes *net_pipes(const struct net *net);
const struct proxy *net_proxy(const struct net *net);
struct share *net_box_share(struct net_box *box);
struct meter *net_box_meter(struct net_box *box);
struct lookups *net_box_lookups(const struct net_box *box);
/* Whether the host has fds for one more; they are the whole engine's. */
bool net_has_room(void);
/* The same for a connection of this box: what one tenant alone may use up is not all there is. */
bool net_box_has_room(const struct net_box *box);
/* What the policy says of an address, where the host's own are what the host's routes deliver to itself. */
struct policy_verdict net_box_judge(const struct net_box *box, const char *name,
                                    const struct policy_address *address, uint16_t port);
/* The same where nobody asks any more which addresses are the host's own. */
struct policy_verdict net_box_judge_again(const struct net_box *box, const char *name,
                                          const struct policy_address *address, uint16_t port);
