/* The network of boxes: what they dial is decided, resolved, dialled and carried here.
 *
 * One loop, one thread. Of each box there are two sockets (box/network.h): connections come out of the one with
 * the address that the box dialled, DNS questions out of the other. A name is answered with an address of a fake
 * range that stands for this name in this box for ever; who dials it dials the name: it is resolved here, the
 * policy is asked about the address that came of it, and that very address is dialled. Whoever is refused gets a
 * RST at once, and a record says why.
 *
 * All that comes from a box or from the internet is hostile and bounded: connections, questions, names, bytes. No
 * box holds up another: each has its share of lookups, of dials and of each round of the loop. */
#pragma once

#include "base/err.h"
#include "policy/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct net;
struct net_box;

/* ---- the room ---- */

struct net_options {
    uv_loop_t *loop;
    const char *resolvers; /* "ADDRESS[:PORT],..."; NULL: the host's, of /etc/resolv.conf */
    const char *nat64;     /* as of policy_nat64_parse(); NULL: no prefix of this site's own */
    const char *private;   /* as of policy_bound_parse(); NULL: any */
    const char *
        proxy; /* "http://[USER:PASSWORD@]HOST:PORT", by CONNECT, for all that is dialled; NULL: none */
    bool proxy_names; /* it is told names, and resolves them; else addresses, which were judged */
};
int net_open(const struct net_options *options, struct net **out, struct error *err);
/* What its boxes may reach of private networks, whatever their policies say. */
const struct policy_bound *net_bound(const struct net *net);
/* Tell whether net_open() takes such a text. */
int net_proxy_check(const char *text, struct error *err);
int net_resolvers_check(const char *text, struct error *err);
/* All boxes were freed before. `closed` is called from the loop, when nothing of it is left there. */
void net_close(struct net *net, void (*closed)(void *arg), void *arg);

/* ---- a box ---- */

struct net_limits {              /* 0: the default */
    uint32_t connections;        /* at once; 256 */
    uint32_t lookups_per_second; /* 50, with a burst of 200 */
    uint64_t bytes_per_second;   /* both ways together; default: no bound */
    uint64_t bytes;              /* in its life, both ways together; default: no bound */
};

enum net_record_kind {
    NET_LOOKUP,     /* a name that was asked for */
    NET_CONNECTION, /* refused, or allowed and now at its end */
};

/* One line of the log of what went out. Texts are borrowed. */
struct net_record {
    enum net_record_kind kind;
    uint64_t time_ms; /* wall clock, of its begin */
    uint64_t lasted_ms;
    const char *name; /* NULL: the address itself was dialled */
    struct policy_address
        address;   /* that was dialled, or to be; zeros where none came of the name */
    uint16_t port; /* 0 of a lookup */
    bool allowed;
    const char *
        reason; /* of the verdict; or "limit", "no_such_name", "unreachable", "cut" (by a new policy) */
    const char *rule;             /* or NULL */
    uint64_t bytes_out, bytes_in; /* out of the box, into it */
};

struct net_counts {       /* since the box was made here */
    uint32_t connections; /* now */
    uint64_t connections_all, denied, lookups, bytes_out, bytes_in;
};

struct net_box_options {
    const char *tenant; /* lookups take turns by tenant */
    /* File of the names that were given an address, opened for reading and appending; taken. -1: it is no box that
     * has sockets, but code of the tenant's that net_call_new() dials for. */
    int names;
    struct policy *policy; /* taken */
    struct net_limits limits;
    uint64_t bytes_used; /* of limits.bytes, before this engine */
    /* May be NULL. Also called from within net_box_set(), net_box_attach() and net_box_detach(); frees no box. */
    void (*record)(void *arg, const struct net_record *record);
    void *arg;
};
int net_box_new(struct net *net, const struct net_box_options *options, struct net_box **out,
                struct error *err);
/* Nothing is called of it any more. Connections are cut. */
void net_box_free(struct net_box *box);

/* Its sockets, taken; whatever it had before is closed and cut, as by net_box_detach(). */
void net_box_attach(struct net_box *box, int tcp, int udp);
void net_box_detach(struct net_box *box);

/* From now on; what is open and would now be refused is cut (RST), the rest goes on. Takes the policy. */
void net_box_set(struct net_box *box, struct policy *policy, const struct net_limits *limits);
const struct policy *net_box_policy(const struct net_box *box);
void net_box_count(const struct net_box *box, struct net_counts *out);

/* ---- for code without sockets of its own ---- */

/* One connection: the name is looked up, each address judged, and one that is allowed dialled, by the proxy if there
 * is one. `done` is called once, from the loop, with a socket that is connected and the caller's, or -1: then
 * `failure` is "no_such_name", "unreachable" or "limit", or NULL where the verdict is why. */
struct net_call;
typedef void (*net_call_done)(void *arg, int fd, const struct policy_verdict *verdict,
                              const char *failure);
/* `name` in normal form; NULL: `address`. NULL: no memory. */
struct net_call *net_call_new(struct net_box *box, const char *name,
                              const struct policy_address *address, uint16_t port,
                              net_call_done done, void *arg);
/* Before its box, and when the socket is closed, for it is counted until then; before `done` nothing is dialled
 * any more. */
void net_call_free(struct net_call *call);

/* ---- into a box ---- */

/* A listener whose connections are carried to one that `connect` makes, byte for byte, half-closes too. Takes the
 * listening socket. For each connection `connect` is called with a number; net_forward_connected() answers it, now
 * or later, with a socket that is connecting or connected (taken), or -1: the client is cut. */
struct net_forward;
int net_forward_new(struct net *net, int listener, uint32_t connections,
                    void (*connect)(void *arg, uint64_t number), void *arg,
                    struct net_forward **out, struct error *err);
void net_forward_connected(struct net_forward *forward, uint64_t number, int socket);
bool net_forward_is_used(const struct net_forward *forward); /* it has connections now */
void net_forward_free(struct net_forward *forward);

/* The same of one pair of connected sockets, both taken: bytes that were read of `client` already go first. `over`
 * is called once, from the loop. */
struct net_pair;
struct net_pair *net_pair_new(struct net *net, int client, int server, const void *first,
                              size_t first_size, void (*over)(void *arg), void *arg);
void net_pair_cut(struct net_pair *pair);
