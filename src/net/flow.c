/* The connections of one box, from the moment they come out of its socket: what was dialled, the verdict, the
 * dial, the pump, the record. Who is refused gets a RST at once, not silence.
 *
 * Port 53 is the DNS of the box whatever address is dialled, unless a rule opens that very address: else every
 * resolver there is would be a way out for names. */
#include "net/carry.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define DNS_PORT 53
/* Of one box, in a second and at once; beyond it they wait to be accepted. The host has some 28,000 ports to one
 * address, and each is gone for a minute after its connection: near their end every connect() of ours takes
 * milliseconds, and then fails, for everybody. */
#define BEGUN_PER_SECOND 100
#define BEGUN_AT_ONCE 4096

struct flow {
    TAILQ_ENTRY(flow) next;
    struct flows *flows;
    int fd; /* until a pump or a stream has it */
    char *name;
    struct policy_address
        address; /* that was dialled, or is to be; of a name zeros until it is known */
    uint16_t port;
    struct policy_verdict verdict; /* of the policy of now */
    uint64_t begun_ns, begun_ms;
    struct dial *dial;
    struct pump *pump;
    struct stream *stream;
};

struct flows {
    struct watch watch;
    struct task accepting;
    struct alarm again; /* when there were no fds, or too many connections lately */
    struct rate rate;
    bool may_begin; /* one was taken from it */
    struct net_box *box;
    int tcp;
    TAILQ_HEAD(flow_list, flow) all;
    unsigned count;
};

static struct turns *turns_of(const struct flows *flows)
{
    return net_turns(net_box_net(flows->box));
}

/* ---- the end of one ---- */

static void flow_free(struct flow *flow)
{
    if (flow->dial != NULL)
        dial_cancel(flow->dial);
    if (flow->pump != NULL)
        pump_cut(flow->pump);
    if (flow->stream != NULL)
        stream_cut(flow->stream);
    pump_reset(&flow->fd);
    TAILQ_REMOVE(&flow->flows->all, flow, next);
    flow->flows->count--;
    net_box_tenant(flow->flows->box)->flows--;
    free(flow->name);
    free(flow);
}

/* `reason` NULL: the verdict's. The record is the last that is done: who hears of it may look at the box. */
static void flow_over(struct flow *flow, const char *reason, const struct pump_counts *counts)
{
    struct net_box *box = flow->flows->box;
    _cleanup_free_ char *name = flow->name;
    struct net_record record = {
        .kind = NET_CONNECTION,
        .time_ms = flow->begun_ms,
        .lasted_ms = (clock_monotonic_ns() - flow->begun_ns) / 1000000,
        .name = name,
        .address = flow->address,
        .port = flow->port,
        .allowed = flow->verdict.allowed,
        .reason = reason != NULL ? reason : flow->verdict.reason,
        .rule = flow->verdict.rule,
        .bytes_out = counts != NULL ? counts->to_server : 0,
        .bytes_in = counts != NULL ? counts->to_client : 0,
    };

    flow->name = NULL;
    flow_free(flow);
    net_box_record(box, &record);
}

static void flow_cut(struct flow *flow, const char *reason)
{
    struct pump_counts counts = {0};

    if (flow->pump != NULL)
        pump_count(flow->pump, &counts);
    flow_over(flow, reason, &counts);
}

static void flow_refuse(struct flow *flow, const char *reason)
{
    flow->verdict = (struct policy_verdict){.reason = reason};
    flow_over(flow, NULL, NULL);
}

/* ---- what becomes of one ---- */

static void on_pumped(void *arg, enum pump_end end, const struct pump_counts *counts)
{
    struct flow *flow = arg;

    flow->pump = NULL;
    flow_over(flow, end == PUMP_SPENT ? "limit" : NULL, counts);
}

static void on_dialled(void *arg, const struct dial_result *result)
{
    struct flow *flow = arg;

    flow->dial = NULL;
    flow->address = result->address;
    if (result->failure != NULL && strcmp(result->failure, "limit") == 0) {
        flow_refuse(flow, "limit");
        return;
    }
    if (result->failure != NULL) {
        flow_over(flow, result->failure, NULL);
        return;
    }
    flow->verdict = result->verdict;
    if (result->fd < 0) {
        flow_over(flow, NULL, NULL);
        return;
    }
    flow->pump = pump_new(&(struct pump_options){
        .share = net_box_share(flow->flows->box),
        .pipes = net_pipes(net_box_net(flow->flows->box)),
        .meter = net_box_meter(flow->flows->box),
        .client = fd_take(&flow->fd),
        .server = result->fd,
        .over = on_pumped,
        .arg = flow,
    });
    if (flow->pump == NULL)
        flow_over(flow, "limit", NULL);
}

/* DNS is no connection to anybody: what it asks for is recorded as lookups. */
static void on_streamed(void *arg)
{
    struct flow *flow = arg;

    flow->stream = NULL;
    flow_free(flow);
}

static void answer_names(struct flow *flow)
{
    flow->stream = stream_new(flow->flows->box, fd_take(&flow->fd), on_streamed, flow);
    if (flow->stream == NULL)
        flow_free(flow);
}

static bool is_loopback(const struct policy_address *address)
{
    static const uint8_t six[16] = {[15] = 1}, four[13] = {[10] = 0xff, [11] = 0xff, [12] = 127};

    return memcmp(address->bytes, six, sizeof(six)) == 0 ||
           memcmp(address->bytes, four, sizeof(four)) == 0;
}

static void decide(struct flow *flow)
{
    struct net_box *box = flow->flows->box;
    struct policy_address asked = flow->address;
    bool is_dns = flow->port == DNS_PORT && !is_loopback(&asked);
    const char *name = NULL;
    uint32_t number;

    if (names_number(&asked, &number)) {
        memset(&flow->address, 0, sizeof(flow->address));
        name = names_find(net_box_names(box), number);
        flow->name = name != NULL ? strdup(name) : NULL;
        flow->verdict = flow->name != NULL ? policy_lookup(net_box_policy(box), flow->name)
                                           : (struct policy_verdict){.reason = "fake"};
    } else {
        flow->verdict = dial_judge(box, NULL, &asked, flow->port);
    }
    if (is_dns && (!flow->verdict.allowed || flow->verdict.rule == NULL)) {
        answer_names(flow);
        return;
    }
    if (flow->name == NULL)
        flow->address = asked;
    if (!flow->verdict.allowed) {
        flow_over(flow, NULL, NULL);
        return;
    }
    if (net_box_meter(box)->left == 0) {
        flow_refuse(flow, "limit");
        return;
    }
    flow->dial = dial_new(box, flow->name, &flow->address, flow->port, on_dialled, flow);
    if (flow->dial == NULL)
        flow_refuse(flow, "limit");
}

/* ---- accepting ---- */

static bool dialled_address(int fd, struct policy_address *address, uint16_t *port)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } name;
    socklen_t size = sizeof(name);

    memset(&name, 0, sizeof(name));
    if (getsockname(fd, &name.any, &size) < 0)
        return false;
    if (name.any.sa_family == AF_INET6) {
        memcpy(address->bytes, &name.in6.sin6_addr, 16);
        *port = ntohs(name.in6.sin6_port);
        return true;
    }
    memcpy(address->bytes, mapped, sizeof(mapped));
    memcpy(address->bytes + 12, &name.in.sin_addr, 4);
    *port = ntohs(name.in.sin_port);
    return name.any.sa_family == AF_INET;
}

static void take(struct flows *flows, int fd)
{
    struct flow *flow = calloc(1, sizeof(*flow));

    if (flow == NULL) {
        pump_reset(&fd);
        return;
    }
    *flow = (struct flow){
        .flows = flows, .fd = fd, .begun_ns = clock_monotonic_ns(), .begun_ms = clock_wall_ms()};
    TAILQ_INSERT_TAIL(&flows->all, flow, next);
    flows->count++;
    net_box_tenant(flows->box)->flows++;
    if (!dialled_address(fd, &flow->address, &flow->port))
        flow_free(flow);
    else if (flows->count > net_box_limits(flows->box)->connections ||
             !net_box_has_room(flows->box))
        flow_refuse(flow, "limit");
    else
        decide(flow);
}

/* One in each turn. */
static void run(struct task *task)
{
    struct flows *flows = (struct flows *)((char *)task - offsetof(struct flows, accepting));
    int fd;

    flows->may_begin = flows->may_begin ||
                       rate_take(&flows->rate, BEGUN_PER_SECOND, BEGUN_AT_ONCE,
                                 uv_now(net_loop(net_box_net(flows->box))) * 1000000);
    if (!flows->may_begin) {
        turns_alarm(turns_of(flows), &flows->again, ALARM_SOON);
        return;
    }
    fd = accept4(flows->tcp, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        flows->may_begin = false;
        task_ready(&flows->accepting);
        take(flows, fd);
        return;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        turns_alarm(turns_of(flows), &flows->again, ALARM_SOON);
    else if (errno != EAGAIN && errno != EINVAL && errno != EBADF)
        task_ready(&flows->accepting); /* that one connection was none */
}

static void on_again(struct alarm *alarm)
{
    struct flows *flows = (struct flows *)((char *)alarm - offsetof(struct flows, again));

    task_ready(&flows->accepting);
}

static void note(struct watch *watch, uint32_t events)
{
    struct flows *flows = (struct flows *)watch;

    (void)events;
    task_ready(&flows->accepting);
}

/* ---- all of them ---- */

struct flows *flows_new(struct net_box *box)
{
    struct flows *flows = calloc(1, sizeof(*flows));

    if (flows == NULL)
        return NULL;
    *flows = (struct flows){.watch.note = note, .box = box, .tcp = -1, .again.ring = on_again};
    flows->accepting = (struct task){.share = net_box_share(box), .run = run};
    TAILQ_INIT(&flows->all);
    return flows;
}

static void stop_accepting(struct flows *flows)
{
    task_drop(&flows->accepting);
    turns_calm(turns_of(flows), &flows->again);
    if (flows->tcp >= 0)
        turns_unwatch(turns_of(flows), flows->tcp);
    fd_close(&flows->tcp);
}

void flows_attach(struct flows *flows, int tcp)
{
    flows_detach(flows);
    flows->tcp = tcp;
    if (turns_watch(turns_of(flows), tcp, EPOLLIN, &flows->watch) < 0)
        log_say(LOG_LEVEL_ERROR, "flows_failed", "a sandbox reaches nothing: %s", strerror(errno));
}

void flows_detach(struct flows *flows)
{
    struct flow *flow;

    stop_accepting(flows);
    while ((flow = TAILQ_FIRST(&flows->all)) != NULL) {
        if (flow->stream != NULL)
            flow_free(flow);
        else
            flow_cut(flow, "cut");
    }
}

void flows_free(struct flows *flows)
{
    stop_accepting(flows);
    while (!TAILQ_EMPTY(&flows->all))
        flow_free(TAILQ_FIRST(&flows->all));
    free(flows);
}

void flows_judge(struct flows *flows)
{
    struct flow *flow = TAILQ_FIRST(&flows->all), *following;

    for (; flow != NULL; flow = following) {
        following = TAILQ_NEXT(flow, next);
        if (flow->stream != NULL)
            continue; /* each of its questions is asked of the policy of then */
        if (flow->name != NULL && flow->dial != NULL)
            flow->verdict = policy_lookup(net_box_policy(flows->box), flow->name);
        else
            flow->verdict = dial_judge_again(flows->box, flow->name, &flow->address, flow->port);
        if (!flow->verdict.allowed) {
            flow->verdict.allowed = true; /* it was, and is cut now */
            flow_cut(flow, "cut");
        }
    }
}

unsigned flows_count(const struct flows *flows)
{
    return flows->count;
}
