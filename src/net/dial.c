/* A dial: from what a box asked for to one socket that is connected.
 *
 * A name is resolved, the policy is asked about each address that came of it, and those it allows are tried one
 * after the other, of both families in turn, a quarter of a second apart; the first that connects is it. What is
 * dialled is the address that was judged, never a name. When it connects the policy is asked once more: it may be
 * another one by then.
 *
 * A proxy is told the address that was judged, too. An operator may have it told names instead (for a proxy that has
 * rules by name, or where nothing but the proxy resolves any): then it resolves them anew, and whoever owns a name can
 * answer it another address than us. Where our resolver knows the name, every address of it must be allowed; where it
 * does not, the name's rules decide. Such a proxy has to refuse private addresses itself. */
#include "net/carry.h"

#include "base/fd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define AT_ONCE 3 /* attempts of one dial */

struct attempt {
    struct watch watch;
    struct dial *dial;
    int fd; /* -1: none */
    bool has_news;
};

struct dial {
    struct task task;
    struct alarm stagger, patience;
    struct net_box *box;
    const char *name;              /* NULL: `address` */
    struct policy_address address; /* asked for; or the first that the name has */
    uint16_t port;
    void (*done)(void *arg, const struct dial_result *result);
    void *arg;

    struct resolver_lookup *lookup;
    bool is_judged; /* what the box asked for */
    bool is_asking_proxy, has_connected;
    bool is_stagger_due, is_late;
    bool is_limited;     /* one was not tried, for there was no room */
    const char *failure; /* found by a callback, for the next turn */
    struct policy_verdict verdict;
    struct policy_address addresses[RESOLVED_MAX];
    size_t count, next;
    struct attempt attempts[AT_ONCE];
};

/* Stands for the address that a proxy finds: public, and nobody's (RFC 5737). */
static const struct policy_address unknown = {
    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1}};

static struct turns *turns_of(const struct dial *dial)
{
    return net_turns(net_box_net(dial->box));
}

static const struct proxy *proxy_of(const struct dial *dial)
{
    return net_proxy(net_box_net(dial->box));
}

/* Only the proxy knows which address it is. */
static bool is_by_name(const struct net_box *box, const char *name)
{
    return name != NULL && net_proxy_has_names(net_box_net(box));
}

/* ---- the end ---- */

static void attempt_close(struct attempt *attempt)
{
    if (attempt->fd < 0)
        return;
    turns_unwatch(turns_of(attempt->dial), attempt->fd);
    pump_reset(&attempt->fd);
}

void dial_cancel(struct dial *dial)
{
    for (size_t i = 0; i < AT_ONCE; i++)
        attempt_close(&dial->attempts[i]);
    if (dial->lookup != NULL)
        resolver_cancel(dial->lookup);
    turns_calm(turns_of(dial), &dial->stagger);
    turns_calm(turns_of(dial), &dial->patience);
    task_drop(&dial->task);
    free(dial);
}

static void finish(struct dial *dial, int fd, const char *failure)
{
    struct dial_result result = {
        .fd = fd, .address = dial->address, .verdict = dial->verdict, .failure = failure};
    void (*done)(void *arg, const struct dial_result *result) = dial->done;
    void *arg = dial->arg;

    dial_cancel(dial);
    done(arg, &result);
}

/* ---- what the policy says ---- */

static const struct policy_address *judged(const struct net_box *box, const char *name,
                                           const struct policy_address *address)
{
    static const struct policy_address none = {{0}};

    return is_by_name(box, name) && memcmp(address, &none, sizeof(none)) == 0 ? &unknown : address;
}

struct policy_verdict dial_judge(struct net_box *box, const char *name,
                                 const struct policy_address *address, uint16_t port)
{
    return net_box_judge(box, name, judged(box, name, address), port);
}

struct policy_verdict dial_judge_again(struct net_box *box, const char *name,
                                       const struct policy_address *address, uint16_t port)
{
    return net_box_judge_again(box, name, judged(box, name, address), port);
}

/* Keeps the addresses that are allowed; false where there is none (by a name that a proxy resolves: where one is
 * not). What zeros stand for where nobody knows the address, they are not where they were found: "::" is the host. */
static bool judge_all(struct dial *dial)
{
    size_t kept = 0;
    bool needs_all = is_by_name(dial->box, dial->name);

    for (size_t i = 0; i < dial->count; i++) {
        struct policy_verdict verdict = net_box_judge(dial->box, dial->name, &dial->addresses[i],
                                                      dial->port);

        if (i == 0 || (needs_all && !verdict.allowed) || (verdict.allowed && kept == 0)) {
            dial->verdict = verdict;
            dial->address = dial->addresses[i];
        }
        if (verdict.allowed)
            dial->addresses[kept++] = dial->addresses[i];
        else if (needs_all)
            return false;
    }
    dial->count = kept;
    return kept > 0;
}

/* ---- names ---- */

static bool is_ipv4(const struct policy_address *address)
{
    return memcmp(address->bytes, unknown.bytes, 12) == 0;
}

/* Of both families in turn, IPv6 first; within one as they came. */
static void take_addresses(struct dial *dial, const struct policy_address *addresses, size_t count)
{
    size_t six = 0, four = 0;

    dial->count = 0;
    if (count > RESOLVED_MAX)
        count = RESOLVED_MAX;
    while (dial->count < count) {
        while (six < count && is_ipv4(&addresses[six]))
            six++;
        if (six < count)
            dial->addresses[dial->count++] = addresses[six++];
        while (four < count && !is_ipv4(&addresses[four]))
            four++;
        if (four < count)
            dial->addresses[dial->count++] = addresses[four++];
    }
}

static void on_resolved(void *arg, const struct policy_address *addresses, size_t count,
                        uint32_t ttl_s, enum dns_code code)
{
    struct dial *dial = arg;

    (void)ttl_s;
    dial->lookup = NULL;
    take_addresses(dial, addresses, count);
    if (count == 0)
        dial->failure = code == DNS_NO_NAME || code == DNS_OK ? "no_such_name" : "unreachable";
    task_ready(&dial->task);
}

static void look(struct dial *dial, const char *tenant, const void *lane, const char *name)
{
    dial->failure = NULL;
    dial->lookup = resolver_look(net_resolver(net_box_net(dial->box)), tenant, lane, name,
                                 on_resolved, dial);
}

/* ---- sockets ---- */

static void note(struct watch *watch, uint32_t events)
{
    struct attempt *attempt = (struct attempt *)watch;

    (void)events;
    attempt->has_news = true;
    task_ready(&attempt->dial->task);
}

static int connect_to(const struct policy_address *address, uint16_t port)
{
    bool four = is_ipv4(address);
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    _cleanup_close_ int fd = socket(four ? AF_INET : AF_INET6,
                                    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    memcpy(&in.sin_addr, address->bytes + 12, 4);
    memcpy(&in6.sin6_addr, address->bytes, 16);
    if (connect(fd, four ? (struct sockaddr *)&in : (struct sockaddr *)&in6,
                four ? sizeof(in) : sizeof(in6)) < 0 &&
        errno != EINPROGRESS)
        return -1;
    return fd_take(&fd);
}

static struct attempt *attempt_free(struct dial *dial)
{
    for (size_t i = 0; i < AT_ONCE; i++) {
        if (dial->attempts[i].fd < 0)
            return &dial->attempts[i];
    }
    return NULL;
}

static unsigned attempts_count(const struct dial *dial)
{
    unsigned count = 0;

    for (size_t i = 0; i < AT_ONCE; i++)
        count += dial->attempts[i].fd >= 0;
    return count;
}

/* Sockets and ports are the whole host's. */
static bool may_try(const struct dial *dial, const struct policy_address *address, uint16_t port)
{
    return net_box_has_room(dial->box) &&
           tenants_may_dial(net_tenants(net_box_net(dial->box)), net_box_tenant(dial->box), address,
                            port, uv_now(net_loop(net_box_net(dial->box))));
}

/* The next one that can be tried at all; nothing where there is none, or enough are under way. */
static void try_next(struct dial *dial)
{
    struct attempt *attempt = attempt_free(dial);
    uint16_t port = proxy_of(dial) != NULL ? proxy_port(proxy_of(dial)) : dial->port;

    while (attempt != NULL && dial->next < dial->count) {
        const struct policy_address *address = &dial->addresses[dial->next++];

        attempt->has_news = false;
        if (!may_try(dial, address, port)) {
            dial->is_limited = true;
            continue;
        }
        attempt->fd = connect_to(address, port);
        if (attempt->fd < 0)
            continue;
        if (turns_watch(turns_of(dial), attempt->fd, EPOLLIN | EPOLLOUT, &attempt->watch) < 0) {
            fd_close(&attempt->fd);
            continue;
        }
        turns_alarm(turns_of(dial), &dial->stagger, ALARM_STAGGER);
        return;
    }
}

/* 1: it stands. 0: not yet. -1: it does not. */
static int has_connected(const struct attempt *attempt)
{
    struct sockaddr_storage peer;
    socklen_t size = sizeof(peer);
    int error = 0;
    socklen_t error_size = sizeof(error);

    if (getsockopt(attempt->fd, SOL_SOCKET, SO_ERROR, &error, &error_size) < 0 || error != 0)
        return -1;
    return getpeername(attempt->fd, (struct sockaddr *)&peer, &size) == 0;
}

/* Which address it is, of those that were judged. */
static void found(struct dial *dial, struct attempt *attempt)
{
    struct sockaddr_storage peer = {0};
    socklen_t size = sizeof(peer);
    struct policy_address *address = &dial->address;

    (void)getpeername(attempt->fd, (struct sockaddr *)&peer, &size);
    if (peer.ss_family == AF_INET6)
        memcpy(address->bytes, &((struct sockaddr_in6 *)&peer)->sin6_addr, 16);
    else {
        *address = unknown;
        memcpy(address->bytes + 12, &((struct sockaddr_in *)&peer)->sin_addr, 4);
    }
}

/* ---- the proxy ---- */

static void ask_proxy(struct dial *dial, struct attempt *attempt)
{
    char text[2048];
    size_t size;
    ssize_t n;
    const char *name = is_by_name(dial->box, dial->name) ? dial->name : NULL;
    bool fits = proxy_request(proxy_of(dial), name, &dial->address, dial->port, text, sizeof(text));

    size = fits ? strlen(text) : 0;
    n = fits ? send(attempt->fd, text, size, MSG_NOSIGNAL | MSG_DONTWAIT) : -1;
    explicit_bzero(text, sizeof(text));
    /* What does not fit into the buffer of a new socket is no request of ours. */
    if (n != (ssize_t)size) {
        finish(dial, -1, "unreachable");
        return;
    }
    for (size_t i = 0; i < AT_ONCE; i++) {
        if (&dial->attempts[i] != attempt)
            attempt_close(&dial->attempts[i]);
    }
    turns_calm(turns_of(dial), &dial->stagger);
    dial->is_asking_proxy = true;
}

static void connected(struct dial *dial, struct attempt *attempt);

static void hear_proxy(struct dial *dial)
{
    char text[PROXY_HEAD_MAX];
    struct attempt *attempt = dial->attempts;
    bool ok = false;
    ssize_t n;
    size_t size;

    while (attempt->fd < 0) /* the only one */
        attempt++;
    n = recv(attempt->fd, text, sizeof(text), MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    size = n > 0 ? proxy_answer(text, (size_t)n, &ok) : SIZE_MAX;
    if (size == 0)
        return;
    if (!ok || recv(attempt->fd, text, size, MSG_DONTWAIT) != (ssize_t)size) {
        finish(dial, -1, "unreachable");
        return;
    }
    connected(dial, attempt);
}

/* ---- turns ---- */

/* The policy may have changed since. Through a proxy nobody knows the address, but what was judged holds. */
static void connected(struct dial *dial, struct attempt *attempt)
{
    int fd;

    dial->verdict = dial_judge(dial->box, dial->name, &dial->address, dial->port);
    if (!dial->verdict.allowed) {
        finish(dial, -1, NULL);
        return;
    }
    turns_unwatch(turns_of(dial), attempt->fd);
    fd = fd_take(&attempt->fd);
    finish(dial, fd, NULL);
}

/* False where the dial has ended. */
static bool hear(struct dial *dial)
{
    for (size_t i = 0; i < AT_ONCE; i++) {
        struct attempt *attempt = &dial->attempts[i];
        int stands = attempt->fd >= 0 && attempt->has_news ? has_connected(attempt) : 0;

        attempt->has_news = false;
        if (stands < 0) {
            attempt_close(attempt);
            dial->is_stagger_due = true; /* nobody needs to wait for it */
        }
        if (stands <= 0)
            continue;
        if (proxy_of(dial) != NULL) {
            ask_proxy(dial, attempt);
        } else {
            found(dial, attempt);
            connected(dial, attempt);
        }
        return false;
    }
    return true;
}

/* Of those that are allowed one that the proxy can most likely reach. */
static void choose(struct dial *dial)
{
    size_t i = 0;

    while (i + 1 < dial->count && !is_ipv4(&dial->addresses[i]))
        i++;
    dial->address = dial->addresses[is_ipv4(&dial->addresses[i]) ? i : 0];
}

/* What is to be dialled is known now: the box's wish, judged, or the proxy. False where the dial has ended, or
 * waits for the proxy's address. */
static bool begin(struct dial *dial)
{
    const struct proxy *proxy = proxy_of(dial);

    dial->is_judged = true;
    if (dial->count > 0 && !judge_all(dial)) {
        finish(dial, -1, NULL);
        return false;
    }
    if (proxy == NULL)
        return true;
    if (dial->count == 0) {
        memset(&dial->address, 0, sizeof(dial->address));
        dial->verdict = dial_judge(dial->box, dial->name, &dial->address, dial->port);
        if (!dial->verdict.allowed) {
            finish(dial, -1, NULL);
            return false;
        }
    }
    if (!is_by_name(dial->box, dial->name))
        choose(dial);
    dial->count = 1;
    if (policy_address_parse(proxy_host(proxy), &dial->addresses[0]) == 0) {
        dial->failure = NULL;
        return true;
    }
    dial->count = 0;
    look(dial, "", proxy,
         proxy_host(proxy)); /* a lane of its own: boxes cannot fill it with names */
    return false;
}

static void run(struct task *task)
{
    struct dial *dial = (struct dial *)((char *)task - offsetof(struct dial, task));

    if (dial->lookup != NULL && !dial->is_late)
        return;
    if (dial->is_late ||
        (dial->failure != NULL && (dial->is_judged || !is_by_name(dial->box, dial->name)))) {
        finish(dial, -1, dial->failure != NULL && !dial->is_judged ? dial->failure : "unreachable");
        return;
    }
    if (!dial->is_judged && !begin(dial))
        return;
    if (dial->is_asking_proxy) {
        hear_proxy(dial);
        return;
    }
    if (!hear(dial))
        return;
    if (dial->is_stagger_due || attempts_count(dial) == 0)
        try_next(dial);
    dial->is_stagger_due = false;
    if (attempts_count(dial) == 0 && dial->next >= dial->count)
        finish(dial, -1, dial->is_limited ? "limit" : "unreachable");
}

static void on_stagger(struct alarm *alarm)
{
    struct dial *dial = (struct dial *)((char *)alarm - offsetof(struct dial, stagger));

    dial->is_stagger_due = true;
    task_ready(&dial->task);
}

static void on_patience(struct alarm *alarm)
{
    struct dial *dial = (struct dial *)((char *)alarm - offsetof(struct dial, patience));

    dial->is_late = true;
    task_ready(&dial->task);
}

struct dial *dial_new(struct net_box *box, const char *name, const struct policy_address *address,
                      uint16_t port, void (*done)(void *arg, const struct dial_result *result),
                      void *arg)
{
    struct dial *dial = calloc(1, sizeof(*dial));

    if (dial == NULL)
        return NULL;
    dial->box = box;
    dial->name = name;
    dial->port = port;
    dial->done = done;
    dial->arg = arg;
    dial->task = (struct task){.share = net_box_share(box), .run = run};
    dial->stagger.ring = on_stagger;
    dial->patience.ring = on_patience;
    for (size_t i = 0; i < AT_ONCE; i++)
        dial->attempts[i] = (struct attempt){.watch.note = note, .dial = dial, .fd = -1};
    turns_alarm(turns_of(dial), &dial->patience, ALARM_PATIENCE);
    if (name == NULL) {
        dial->address = dial->addresses[0] = *address;
        dial->count = 1;
        task_ready(&dial->task);
    } else {
        look(dial, net_box_tenant(box)->name, net_box_lane(box), name);
    }
    return dial;
}
