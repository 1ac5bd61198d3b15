/* The room and its boxes: what belongs together is made, found and ended here; the work is done in flow.c (what a
 * box dials) and lookup.c (what it asks for). The host's own addresses, which no policy opens, are asked of the
 * kernel again when it says that there is another one, and every five seconds in any case; where it does not tell
 * them there is no network at all. */
#include "net/carry.h"

#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define OWN_NS 5000000000U
#define OWN_NEWS_MAX 1024 /* that are read at once */
#define CONNECTIONS 256
#define LOOKUPS 50
/* For all that the engine does besides: no box may take the last ones. */
#define FDS_LEFT 512

struct net {
    uv_loop_t *loop;
    struct turns *turns;
    struct pipes *pipes;
    struct resolver *resolver;
    struct syncs *syncs;
    struct proxy *proxy;
    struct policy_address *own;
    size_t own_count;
    uint64_t own_at;
    int own_news;    /* of the kernel: -1 where it gives none */
    uintptr_t boxes; /* that there ever were */
    void (*closed)(void *arg);
    void *closed_arg;
};

struct net_box {
    struct net *net;
    uintptr_t number; /* of this one, and of no other */
    char *tenant;
    struct policy *policy;
    struct net_limits limits;
    uint64_t bytes_used;
    struct names *names;
    struct lookups *lookups;
    struct flows *flows;
    struct share share;
    struct meter meter;
    struct net_counts counts;
    void (*record)(void *arg, const struct net_record *record);
    void *arg;
};

/* ---- the host's addresses ---- */

static bool address_of(const struct sockaddr *from, struct policy_address *to)
{
    memset(to, 0, sizeof(*to));
    if (from != NULL && from->sa_family == AF_INET6) {
        memcpy(to->bytes, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, 16);
        return true;
    }
    if (from == NULL || from->sa_family != AF_INET)
        return false;
    to->bytes[10] = to->bytes[11] = 0xff;
    memcpy(to->bytes + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    return true;
}

static int ask_own(struct net *net)
{
    struct policy_address *own;
    struct ifaddrs *all;
    size_t count = 0, used = 0;

    if (getifaddrs(&all) < 0)
        return -1;
    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next)
        count++;
    own = calloc(count + 1, sizeof(*own));
    for (const struct ifaddrs *one = all; one != NULL && own != NULL; one = one->ifa_next)
        used += address_of(one->ifa_addr, &own[used]);
    freeifaddrs(all);
    if (own == NULL)
        return -1;
    free(net->own);
    net->own = own;
    net->own_count = used;
    net->own_at = clock_monotonic_ns();
    return 0;
}

static int open_own_news(void)
{
    const struct sockaddr_nl both = {.nl_family = AF_NETLINK,
                                     .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
                                    NETLINK_ROUTE);

    if (fd < 0 || bind(fd, (const struct sockaddr *)&both, sizeof(both)) < 0)
        return -1;
    return fd_take(&fd);
}

/* What they say does not matter: all is asked for again. Too many at once (ENOBUFS) are news as well. */
static bool has_own_news(const struct net *net)
{
    bool any = false;
    char part[64];

    for (unsigned i = 0; i < OWN_NEWS_MAX && net->own_news >= 0; i++) {
        if (recv(net->own_news, part, sizeof(part), MSG_DONTWAIT) < 0 && errno != ENOBUFS)
            break;
        any = true;
    }
    return any;
}

const struct policy_address *net_own(struct net *net, size_t *count)
{
    bool has_news = has_own_news(net);

    /* The last answer holds where there is no new one: what was the host's is refused, as before. */
    if (has_news || clock_monotonic_ns() - net->own_at >= OWN_NS)
        (void)ask_own(net);
    *count = net->own_count;
    return net->own;
}

/* ---- the room ---- */

static void net_free(struct net *net)
{
    if (net->pipes != NULL)
        pipes_close(net->pipes);
    proxy_free(net->proxy);
    fd_close(&net->own_news);
    free(net->own);
    free(net);
}

static int open_parts(struct net *net, const struct net_options *options, struct error *err)
{
    if (ask_own(net) < 0)
        return error_set(err, "net_failed", errno, "cannot tell the host's own addresses");
    if (options->proxy != NULL && proxy_new(options->proxy, &net->proxy, err) < 0)
        return -1;
    if (pipes_open(&net->pipes, err) < 0 || turns_open(options->loop, &net->turns, err) < 0)
        return -1;
    if (syncs_open(options->loop, &net->syncs, err) == 0 &&
        resolver_open(options->loop, options->resolvers, &net->resolver, err) == 0)
        return 0;
    if (net->syncs != NULL)
        syncs_close(net->syncs, NULL, NULL);
    turns_close(net->turns, NULL, NULL);
    return -1;
}

int net_open(const struct net_options *options, struct net **out, struct error *err)
{
    struct net *net = calloc(1, sizeof(*net));

    if (net == NULL)
        return error_set(err, "net_failed", ENOMEM, "cannot prepare the network of boxes");
    net->loop = options->loop;
    net->own_news = open_own_news(); /* before they are asked for */
    if (open_parts(net, options, err) < 0) {
        net_free(net);
        return -1;
    }
    *out = net;
    return 0;
}

static void on_syncs_closed(void *arg)
{
    struct net *net = arg;
    void (*closed)(void *arg) = net->closed;
    void *closed_arg = net->closed_arg;

    net_free(net);
    if (closed != NULL)
        closed(closed_arg);
}

static void on_resolver_closed(void *arg)
{
    struct net *net = arg;

    syncs_close(net->syncs, on_syncs_closed, net);
}

static void on_turns_closed(void *arg)
{
    struct net *net = arg;

    resolver_close(net->resolver, on_resolver_closed, net);
}

void net_close(struct net *net, void (*closed)(void *arg), void *arg)
{
    net->closed = closed;
    net->closed_arg = arg;
    turns_close(net->turns, on_turns_closed, net);
}

bool net_has_room(void)
{
    return fd_are_left(FDS_LEFT);
}

/* ---- a box ---- */

static void take_limits(struct net_box *box, const struct net_limits *limits)
{
    uint64_t used = box->bytes_used + box->meter.bytes_out + box->meter.bytes_in;

    box->limits = *limits;
    if (box->limits.connections == 0)
        box->limits.connections = CONNECTIONS;
    if (box->limits.lookups_per_second == 0)
        box->limits.lookups_per_second = LOOKUPS;
    meter_set(&box->meter, limits->bytes_per_second,
              limits->bytes == 0     ? UINT64_MAX
              : limits->bytes > used ? limits->bytes - used
                                     : 0);
}

void net_box_free(struct net_box *box)
{
    box->record = NULL;
    if (box->flows != NULL)
        flows_free(box->flows); /* some ask, by TCP */
    if (box->lookups != NULL)
        lookups_free(box->lookups);
    meter_end(&box->meter);
    share_leave(&box->share);
    if (box->names != NULL)
        names_close(box->names);
    policy_free(box->policy);
    free(box->tenant);
    free(box);
}

int net_box_new(struct net *net, const struct net_box_options *options, struct net_box **out,
                struct error *err)
{
    struct net_box *box = calloc(1, sizeof(*box));
    _cleanup_close_ int names = options->names;

    if (box == NULL) {
        policy_free(options->policy);
        return error_set(err, "net_failed", ENOMEM, "cannot prepare the network of a box");
    }
    box->net = net;
    box->number = ++net->boxes;
    box->policy = options->policy;
    box->bytes_used = options->bytes_used;
    box->record = options->record;
    box->arg = options->arg;
    share_init(&box->share, net->turns);
    meter_init(&box->meter, net->turns);
    take_limits(box, &options->limits);
    if (names_open(fd_take(&names), &box->names, err) < 0) {
        net_box_free(box);
        return -1;
    }
    box->tenant = strdup(options->tenant != NULL ? options->tenant : "");
    box->flows = box->tenant != NULL ? flows_new(box) : NULL;
    box->lookups = box->flows != NULL ? lookups_new(box) : NULL;
    if (box->lookups == NULL) {
        net_box_free(box);
        return error_set(err, "net_failed", ENOMEM, "cannot prepare the network of a box");
    }
    *out = box;
    return 0;
}

void net_box_attach(struct net_box *box, int tcp, int udp)
{
    net_box_detach(box);
    flows_attach(box->flows, tcp);
    lookups_attach(box->lookups, udp);
}

void net_box_detach(struct net_box *box)
{
    flows_detach(box->flows);
    lookups_detach(box->lookups);
}

void net_box_set(struct net_box *box, struct policy *policy, const struct net_limits *limits)
{
    struct policy *before = box->policy;

    box->policy = policy;
    take_limits(box, limits);
    flows_judge(box->flows);
    policy_free(before); /* until now records could name rules of it */
}

void net_box_count(const struct net_box *box, struct net_counts *out)
{
    *out = box->counts;
    out->connections = flows_count(box->flows);
    out->bytes_out = box->meter.bytes_out;
    out->bytes_in = box->meter.bytes_in;
}

void net_box_record(struct net_box *box, const struct net_record *record)
{
    box->counts.connections_all += record->kind == NET_CONNECTION;
    box->counts.lookups += record->kind == NET_LOOKUP;
    box->counts.denied += !record->allowed;
    if (box->record != NULL)
        box->record(box->arg, record);
}

/* ---- what the others need ---- */

uv_loop_t *net_loop(const struct net *net)
{
    return net->loop;
}

struct syncs *net_syncs(const struct net *net)
{
    return net->syncs;
}

struct resolver *net_resolver(const struct net *net)
{
    return net->resolver;
}

struct turns *net_turns(const struct net *net)
{
    return net->turns;
}

struct pipes *net_pipes(const struct net *net)
{
    return net->pipes;
}

bool net_is_proxied(const struct net *net)
{
    return net->proxy != NULL;
}

const struct proxy *net_proxy(const struct net *net)
{
    return net->proxy;
}

struct net *net_box_net(const struct net_box *box)
{
    return box->net;
}

const char *net_box_tenant(const struct net_box *box)
{
    return box->tenant;
}

const struct policy *net_box_policy(const struct net_box *box)
{
    return box->policy;
}

const void *net_box_lane(const struct net_box *box)
{
    return (const void *)box->number;
}

struct names *net_box_names(const struct net_box *box)
{
    return box->names;
}

const struct net_limits *net_box_limits(const struct net_box *box)
{
    return &box->limits;
}

struct share *net_box_share(struct net_box *box)
{
    return &box->share;
}

struct meter *net_box_meter(struct net_box *box)
{
    return &box->meter;
}

struct lookups *net_box_lookups(const struct net_box *box)
{
    return box->lookups;
}
