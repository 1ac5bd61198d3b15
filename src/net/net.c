/* The room and its boxes: what belongs together is made, found and ended here; the work is done in flow.c (what a
 * box dials) and lookup.c (what it asks for). Which addresses are the host's own, which no policy opens, is asked of
 * the kernel for each address that is dialled; where it does not tell, none is. */
#include "net/carry.h"

#include "base/fd.h"
#include "base/routes.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define ROUND_NS 500000U
#define CONNECTIONS 256
#define LOOKUPS 50
/* For all that the engine does besides: no box may take the last ones. */
#define FDS_LEFT 512
#define FDS_OF_FLOW 2
#define KEPT_PART 16

struct net {
    uv_loop_t *loop;
    struct turns *turns;
    struct pipes *pipes;
    struct resolver *resolver;
    struct syncs *syncs;
    struct proxy *proxy;
    struct tenants tenants;
    bool proxy_names;
    struct policy_nat64 nat64;
    struct policy_bound bound;
    struct routes routes;
    uintptr_t boxes; /* that there ever were */
    void (*closed)(void *arg);
    void *closed_arg;
};

struct net_box {
    struct net *net;
    uintptr_t number; /* of this one, and of no other */
    struct net_tenant *tenant;
    struct policy *policy;
    struct net_limits limits;
    uint64_t bytes_used;
    struct names *names;
    size_t names_counted; /* of their bytes, at the tenant */
    struct lookups *lookups;
    struct flows *flows;
    struct share share;
    struct meter meter;
    struct net_counts counts;
    void (*record)(void *arg, const struct net_record *record);
    void *arg;
};

/* ---- the host's addresses ---- */

struct policy_verdict net_box_judge(const struct net_box *box, const char *name,
                                    const struct policy_address *address, uint16_t port)
{
    struct policy_address own[POLICY_VIEWS_MAX];
    const struct policy_nat64 *nat64 = &box->net->nat64;
    size_t count = policy_views(address, nat64, own), kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (routes_is_own(&box->net->routes, own[i].bytes))
            own[kept++] = own[i];
    }
    return policy_bound_narrow(
        &box->net->bound,
        policy_dial(box->policy, name, address, port, POLICY_TCP, nat64, own, kept), address,
        nat64);
}

struct policy_verdict net_box_judge_again(const struct net_box *box, const char *name,
                                          const struct policy_address *address, uint16_t port)
{
    const struct policy_nat64 *nat64 = &box->net->nat64;

    return policy_bound_narrow(
        &box->net->bound, policy_dial(box->policy, name, address, port, POLICY_TCP, nat64, NULL, 0),
        address, nat64);
}

const struct policy_bound *net_bound(const struct net *net)
{
    return &net->bound;
}

/* ---- the room ---- */

static void net_free(struct net *net)
{
    if (net->pipes != NULL)
        pipes_close(net->pipes);
    proxy_free(net->proxy);
    tenants_free(&net->tenants);
    routes_close(&net->routes);
    free(net);
}

static int open_parts(struct net *net, const struct net_options *options, struct error *err)
{
    if (net->routes.fd < 0)
        return error_set(err, "net_failed", errno, "cannot tell the host's own addresses");
    if (options->nat64 != NULL && policy_nat64_parse(options->nat64, &net->nat64, err) < 0)
        return -1;
    if (policy_bound_parse(options->private != NULL ? options->private : "any", &net->bound, err) <
        0)
        return -1;
    if (options->proxy != NULL && proxy_new(options->proxy, &net->proxy, err) < 0)
        return -1;
    if (pipes_open(&net->pipes, err) < 0 ||
        turns_open(options->loop, ROUND_NS, &net->turns, err) < 0)
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
    net->proxy_names = options->proxy_names;
    tenants_init(&net->tenants);
    routes_open(&net->routes);
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

/* The last sixteenth of all is for tenants that have less than their share of it; one that is alone leaves half of
 * that, for another to begin with. */
bool net_box_has_room(const struct net_box *box)
{
    unsigned others = box->net->tenants.count - 1, kept;
    struct rlimit limit;

    if (!net_has_room() || getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return false;
    kept = limit.rlim_cur > INT_MAX ? INT_MAX / KEPT_PART : (unsigned)limit.rlim_cur / KEPT_PART;
    if (others == 0)
        return fd_are_left(FDS_LEFT + kept / 2);
    return fd_are_left(FDS_LEFT + kept) || box->tenant->flows < kept / FDS_OF_FLOW / (others + 1);
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
    if (box->tenant != NULL) {
        box->tenant->names_bytes -= box->names_counted;
        tenants_leave(&box->net->tenants, box->tenant);
    }
    names_close(box->names);
    policy_free(box->policy);
    free(box);
}

/* What one with sockets needs. */
static int sockets_prepare(struct net_box *box)
{
    net_box_count_names(box);
    box->flows = flows_new(box);
    box->lookups = box->flows != NULL ? lookups_new(box) : NULL;
    return box->lookups != NULL ? 0 : -1;
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
    if (names >= 0 && names_open(fd_take(&names), &box->names, err) < 0) {
        net_box_free(box);
        return -1;
    }
    box->tenant = tenants_join(&net->tenants, options->tenant != NULL ? options->tenant : "");
    if (box->tenant == NULL || (box->names != NULL && sockets_prepare(box) < 0)) {
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

void net_box_count_names(struct net_box *box)
{
    size_t size = names_size(box->names);

    box->tenant->names_bytes += size - box->names_counted;
    box->names_counted = size;
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

struct tenants *net_tenants(struct net *net)
{
    return &net->tenants;
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

bool net_proxy_has_names(const struct net *net)
{
    return net->proxy != NULL && net->proxy_names;
}

const struct proxy *net_proxy(const struct net *net)
{
    return net->proxy;
}

struct net *net_box_net(const struct net_box *box)
{
    return box->net;
}

struct net_tenant *net_box_tenant(const struct net_box *box)
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
