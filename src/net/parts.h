/* Between the files of this room. */
#pragma once

#include "base/rate.h"
#include "net/net.h"

#include <sys/queue.h>

/* ---- dns.c: what is on the wire; pure code ---- */

#define DNS_UDP_MAX 512       /* of an answer without EDNS */
#define DNS_QUESTION_MAX 4096 /* of what is read at all */

enum dns_type {
    DNS_A = 1,
    DNS_NS = 2,
    DNS_CNAME = 5,
    DNS_SOA = 6,
    DNS_PTR = 12,
    DNS_MX = 15,
    DNS_TXT = 16,
    DNS_AAAA = 28,
    DNS_SRV = 33,
    DNS_SVCB = 64,
    DNS_HTTPS = 65,
    DNS_ANY = 255
};
enum dns_code {
    DNS_OK = 0,
    DNS_BAD_FORMAT = 1,
    DNS_FAILED = 2,
    DNS_NO_NAME = 3,
    DNS_NOT_DONE = 4,
    DNS_REFUSED = 5,
    DNS_BAD_VERSION = 16 /* of EDNS */
};

struct dns_question {
    uint16_t id, type, class;
    uint16_t flags; /* as they came */
    bool has_edns;
    uint16_t edns_flags;        /* those that an answer repeats */
    uint16_t size_max;          /* the client takes so much over UDP */
    char name[POLICY_NAME_MAX]; /* normal form; "" where it is no host name */
    uint8_t wire[256];          /* the question's name as it came, for the answer (0x20 bits) */
    size_t wire_size;
};

/* -1: no question that could be answered at all (throw it away); else 0, or the code to answer with. */
int dns_parse(const uint8_t *packet, size_t size, struct dns_question *out);
/* An answer with one address of 4 or 16 bytes, or none (`address` NULL). Returns its size; 0: no room. `why`: the text
 * of an extended error (RFC 8914) where EDNS is, or NULL. */
size_t dns_answer(const struct dns_question *question, enum dns_code code, const uint8_t *address,
                  size_t address_size, uint32_t ttl, const char *why, uint8_t *out, size_t room);

/* ---- tenants.c: what the boxes of one tenant have together ---- */

#define TENANT_DIALS 256
#define TENANT_NAMES_BYTES (64U << 20) /* of text; in memory they take some times that */

struct net_tenant {
    TAILQ_ENTRY(net_tenant) link;
    unsigned boxes;
    unsigned flows;     /* connections, now */
    size_t names_bytes; /* of names that were given an address */
    struct rate lookups, dials[TENANT_DIALS];
    char name[];
};
struct tenants {
    TAILQ_HEAD(tenant_list, net_tenant) all;
    unsigned count; /* that have boxes */
};
void tenants_init(struct tenants *tenants);
/* For one box, which leaves it again; NULL: no memory. */
struct net_tenant *tenants_join(struct tenants *tenants, const char *name);
void tenants_leave(struct tenants *tenants, struct net_tenant *tenant);
void tenants_free(struct tenants *tenants);
/* False: too many lately. */
bool tenant_may_look(struct net_tenant *tenant, uint64_t now_ms);
bool tenants_may_dial(const struct tenants *tenants, struct net_tenant *tenant,
                      const struct policy_address *address, uint16_t port, uint64_t now_ms);

/* ---- names.c: which fake address stands for which name, for ever ---- */

#define NET_NAMES_MAX 16384          /* of one box, in its life */
#define NET_NAMES_BYTES (512U << 10) /* of text, a line each */

struct names;
/* Reads what the file has; a torn last line (a crash) is cut off. Takes the fd. */
int names_open(int fd, struct names **out, struct error *err);
void names_close(struct names *names);
/* The number of a name, which is made if it is new; -1: "names_full", or the disk. Written, not yet synced. */
int names_take(struct names *names, const char *name, bool *is_new, struct error *err);
uint32_t names_look(const struct names *names, const char *name); /* its number; 0: it has none */
int names_fd(const struct names *names);
size_t names_size(const struct names *names);                       /* of its text */
const char *names_find(const struct names *names, uint32_t number); /* NULL: never given */
/* The fake addresses of a number, and back; false where it is none. */
void names_address4(uint32_t number, uint8_t out[4]);
void names_address6(uint32_t number, uint8_t out[16]);
bool names_number(const struct policy_address *address, uint32_t *number);

/* ---- syncs.c: fdatasync() in turns ---- */

struct syncs;
typedef void (*syncs_done)(void *arg, int status); /* of libuv: 0, or negative */
int syncs_open(uv_loop_t *loop, struct syncs **out, struct error *err);
/* Nobody waits for an answer any more: what was not begun is not. `closed` is called when nothing is left in the
 * loop. */
void syncs_close(struct syncs *syncs, void (*closed)(void *arg), void *arg);
/* Takes the fd. `done` is called once, never before this returns; -1: there is no memory, and it is not called. */
int syncs_ask(struct syncs *syncs, const char *tenant, int fd, syncs_done done, void *arg);

/* ---- resolve.c: c-ares; the one file that knows it ---- */

#define RESOLVED_MAX 16

struct resolver;
struct resolver_lookup;
typedef void (*resolver_done)(void *arg, const struct policy_address *addresses, size_t count,
                              uint32_t ttl_s, enum dns_code code);
int resolver_open(uv_loop_t *loop, const char *servers, struct resolver **out, struct error *err);
void resolver_close(struct resolver *resolver, void (*closed)(void *arg), void *arg);
/* Both families. Answered once, never before this returns, within 10 s; a result is kept for its TTL (at most 60 s,
 * failures 2 s). Each `lane` (a box) has so many at once, each `tenant` so many, and all together; beyond it they
 * wait their turn, and beyond a bound they fail (DNS_FAILED). NULL: there is no memory, and `done` was called so. */
struct resolver_lookup *resolver_look(struct resolver *resolver, const char *tenant,
                                      const void *lane, const char *name, resolver_done done,
                                      void *arg);
void resolver_cancel(struct resolver_lookup *lookup); /* `done` is not called */

/* ---- lookup.c: the DNS of one box ---- */

struct lookups;
struct lookups *lookups_new(struct net_box *box);
void lookups_free(struct lookups *lookups);
void lookups_attach(struct lookups *lookups, int udp); /* takes it */
void lookups_detach(struct lookups *lookups);
/* A question that came over TCP (port 53 of any address), without its length; `answer` is called once, maybe now, with
 * what to send back; size 0: cut. */
void lookups_ask(struct lookups *lookups, const uint8_t *packet, size_t size,
                 void (*answer)(void *arg, const uint8_t *packet, size_t size), void *arg);
/* Whoever asked so is gone: no `answer` is called with `arg` any more. */
void lookups_forget(struct lookups *lookups, const void *arg);

/* ---- net.c: what the others need of a box and of the room ---- */

uv_loop_t *net_loop(const struct net *net);
struct resolver *net_resolver(const struct net *net);
struct syncs *net_syncs(const struct net *net);
/* All that is dialled goes through a proxy that is told names, and may know more of them. */
bool net_proxy_has_names(const struct net *net);
struct net *net_box_net(const struct net_box *box);
struct tenants *net_tenants(struct net *net);
struct net_tenant *net_box_tenant(const struct net_box *box);
/* Of its lookups: none that another box ever had, though it may lie where that one lay. Not to be looked into. */
const void *net_box_lane(const struct net_box *box);
struct names *net_box_names(const struct net_box *box);
void net_box_count_names(struct net_box *box); /* there are more of them */
const struct net_limits *net_box_limits(
    const struct net_box *box); /* no field is 0 but bytes and bytes_per_second */
void net_box_record(struct net_box *box, const struct net_record *record); /* counts it, too */
