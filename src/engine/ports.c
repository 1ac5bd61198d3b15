/* Ports: from this host into a sandbox, to what listens on its own loopback.
 *
 * The keeper makes a socket in the box's network, and this dials with it: there is no other way in, and none of
 * it passes the box's policy, which is about what the box reaches. A declared port has a listener on the loopback
 * of this host, with a number that it keeps as long as it is free. What listens in a box the kernel tells by a
 * netlink socket of that network: the box has no word in it. */
#include "base/fd.h"
#include "box/network.h"
#include "engine/parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DIALS_MAX 256          /* that last, by one sandbox's name; and again by its listeners */
#define DIAL_NS 10000000000ULL /* to be answered */
#define LISTEN_MAX 128         /* ports that are known to listen, of one sandbox */
#define BACKLOG 128
/* What listens is looked at so often while somebody uses the sandbox, and else so often. */
#define LOOK_NS 1000000000ULL
#define LOOK_SELDOM_NS 10000000000ULL
#define USED_NS 60000000000ULL
#define TCP_LISTENING 10 /* of the kernel's states, in include/net/tcp_states.h */

struct opened {
    struct opened *next;
    struct sandbox *sandbox;
    uint16_t port, host_port;
    struct net_forward *forward;
};

struct ports {
    struct opened *opened;
    size_t uses;
    int diag; /* -1 */
    bool is_asked, is_up;
    bool is_known; /* what listened when this engine came is no news */
    uint64_t looked_ns;
    size_t count;
    uint16_t listening[LISTEN_MAX]; /* in order */
};

/* ---- a call into the box ---- */

struct dial_poll {
    uv_poll_t poll; /* first */
    struct dial *dial;
};

struct dial {
    struct dial *next, *previous;
    struct dial_poll *poll; /* while there is a socket */
    struct engine *engine;
    char sandbox[KEEPER_ID_LENGTH + 4];
    uint64_t box;
    uint16_t port;
    int fd; /* -1 */
    bool tries_v6;
    bool counts;            /* among its sandbox's `uses` */
    bool is_asked, is_late; /* the keeper will answer: it is not freed before */
    struct alarm patience;
    engine_port_dialled done;
    void *arg;
};

static void dial_closed(uv_handle_t *handle)
{
    free(handle);
}

static void dial_free(struct dial *dial)
{
    if (dial->poll != NULL)
        uv_close((uv_handle_t *)&dial->poll->poll, dial_closed);
    fd_close(&dial->fd);
    free(dial);
}

static void dial_unlist(struct dial *dial)
{
    *(dial->previous != NULL ? &dial->previous->next : &dial->engine->dials) = dial->next;
    if (dial->next != NULL)
        dial->next->previous = dial->previous;
    clock_clear(dial->engine->clock, &dial->patience);
}

static void dial_end(struct dial *dial, const struct error *err)
{
    engine_port_dialled done = dial->done;
    void *arg = dial->arg;
    int fd = err == NULL ? fd_take(&dial->fd) : -1;

    if (err != NULL && dial->counts)
        engine_port_left(dial->engine, dial->sandbox);
    dial_unlist(dial);
    dial_free(dial);
    done(arg, fd, err);
}

static void dial_refused(struct dial *dial, int errnum)
{
    struct error err;

    if (errnum == ECONNREFUSED)
        (void)error_set(&err, "port_closed", 0,
                        "nothing listens on port %u in sandbox %s; start what should, or ask "
                        "again when it does",
                        dial->port, dial->sandbox);
    else
        (void)error_set(&err, "port_failed", errnum, "cannot connect to port %u in sandbox %s",
                        dial->port, dial->sandbox);
    dial_end(dial, &err);
}

static void dial_ask(struct dial *dial);

/* A server may listen on either loopback; one socket can be used for one of them. */
static void dial_failed(struct dial *dial, int errnum)
{
    if (errnum != ECONNREFUSED || dial->tries_v6) {
        dial_refused(dial, errnum);
        return;
    }
    dial->tries_v6 = true;
    uv_close((uv_handle_t *)&dial->poll->poll, dial_closed);
    dial->poll = NULL;
    fd_close(&dial->fd);
    dial_ask(dial);
}

static void dial_ready(uv_poll_t *poll, int status, int events)
{
    struct dial *dial = ((struct dial_poll *)poll)->dial;
    int errnum = 0;
    socklen_t size = sizeof(errnum);

    (void)status;
    (void)events;
    if (getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &errnum, &size) < 0)
        errnum = errno;
    if (errnum != 0)
        dial_failed(dial, errnum);
    else
        dial_end(dial, NULL);
}

static void dial_next(struct dial *dial)
{
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(dial->port)};

    to.sin6_addr = in6addr_loopback;
    if (!dial->tries_v6)
        (void)inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.sin6_addr);
    if (connect(dial->fd, (struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS) {
        dial_failed(dial, errno);
        return;
    }
    if (uv_poll_start(&dial->poll->poll, UV_WRITABLE, dial_ready) != 0)
        dial_refused(dial, ENOMEM);
}

static void dial_late(void *arg)
{
    struct dial *dial = arg;

    dial->is_late = dial->is_asked;
    if (!dial->is_late)
        dial_refused(dial, ETIMEDOUT);
}

static bool is_stream(int fd)
{
    int domain = 0, type = 0;
    socklen_t size = sizeof(int);

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_INET6 &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

static void dial_socket(void *arg, const union keeper_answer *answer, int fd,
                        const struct error *err)
{
    struct dial *dial = arg;

    (void)answer;
    dial->fd = fd;
    dial->is_asked = false;
    if (err != NULL) {
        dial_end(dial, err);
        return;
    }
    if (dial->is_late) {
        dial_refused(dial, ETIMEDOUT);
        return;
    }
    if (!is_stream(fd)) {
        dial_refused(dial, EBADFD);
        return;
    }
    dial->poll = engine_alloc(sizeof(*dial->poll));
    dial->poll->dial = dial;
    if (uv_poll_init(dial->engine->options.loop, &dial->poll->poll, fd) != 0) {
        free(dial->poll);
        dial->poll = NULL;
        dial_refused(dial, EBADFD);
        return;
    }
    dial_next(dial);
}

static void dial_ask(struct dial *dial)
{
    union keeper_request request = {.network = {.box = dial->box, .what = KEEPER_NETWORK_DIAL}};

    dial->is_asked = true;
    keeper_client_ask(dial->engine->keeper, KEEPER_NETWORK, &request, dial_socket, dial);
}

static void dial_begin(struct sandbox *sandbox, uint16_t port, bool counts,
                       engine_port_dialled done, void *arg)
{
    struct engine *engine = sandbox->engine;
    struct dial *dial = engine_alloc(sizeof(*dial));

    dial->engine = engine;
    dial->box = sandbox->box;
    dial->counts = counts;
    dial->port = port;
    dial->fd = -1;
    dial->done = done;
    dial->arg = arg;
    memcpy(dial->sandbox, sandbox->id, sizeof(dial->sandbox));
    dial->next = engine->dials;
    if (dial->next != NULL)
        dial->next->previous = dial;
    engine->dials = dial;
    clock_set(engine->clock, &dial->patience, clock_monotonic_ns() + DIAL_NS, dial_late, dial);
    sandbox_touch(sandbox);
    dial_ask(dial);
}

static int may_dial(const struct sandbox *sandbox, struct error *err)
{
    const struct record *record = sandbox->record;

    if (record->state != SANDBOX_RUNNING || sandbox->box == 0 || sandbox->is_quiet ||
        sandbox->step == STEP_END)
        return error_set(err, "sandbox_stopped", 0,
                         "sandbox %s does not run; start it to reach its ports", sandbox->id);
    return 0;
}

static struct ports *ports_of(struct sandbox *sandbox)
{
    if (sandbox->ports == NULL) {
        sandbox->ports = engine_alloc(sizeof(*sandbox->ports));
        sandbox->ports->diag = -1;
    }
    return sandbox->ports;
}

static struct sandbox *find_for_port(struct engine *engine, const struct engine_caller *caller,
                                     const char *id, uint16_t port, struct error *err)
{
    struct sandbox *sandbox = sandbox_find_for(engine, caller, id, ENGINE_PORTS, err);

    if (sandbox == NULL)
        return NULL;
    if (caller->port != 0 && caller->port != port) {
        (void)error_set(err, "forbidden", 0, "this token is for port %u only", caller->port);
        return NULL;
    }
    return sandbox;
}

void engine_port_dial(struct engine *engine, const struct engine_caller *caller, const char *id,
                      uint16_t port, engine_port_dialled done, void *arg)
{
    struct error err;
    struct sandbox *sandbox;

    if (engine_accepts(engine, &err) != 0 ||
        (sandbox = find_for_port(engine, caller, id, port, &err)) == NULL ||
        may_dial(sandbox, &err) != 0) {
        done(arg, -1, &err);
        return;
    }
    if (ports_of(sandbox)->uses >= DIALS_MAX) {
        (void)error_set(&err, "too_many_connections", 0,
                        "%u connections to ports of sandbox %s are open; end some first", DIALS_MAX,
                        sandbox->id);
        done(arg, -1, &err);
        return;
    }
    sandbox->ports->uses++;
    dial_begin(sandbox, port, true, done, arg);
}

void engine_port_left(struct engine *engine, const char *id)
{
    struct sandbox *sandbox = map_get(&engine->ids, id);

    if (sandbox == NULL || sandbox->ports == NULL || sandbox->ports->uses == 0)
        return;
    sandbox->ports->uses--;
    sandbox_touch(sandbox);
}

/* ---- the listeners on this host ---- */

static int host_listener(uint16_t port, uint16_t *bound)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
    _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof(here);
    int yes = 1;

    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) < 0 ||
        bind(fd, (struct sockaddr *)&here, sizeof(here)) < 0 || listen(fd, BACKLOG) < 0 ||
        getsockname(fd, (struct sockaddr *)&here, &size) < 0)
        return -1;
    *bound = ntohs(here.sin_port);
    return fd_take(&fd);
}

/* For the connection of a listener: whom to tell, who may be gone by then. */
struct caller_in {
    struct engine *engine;
    char sandbox[KEEPER_ID_LENGTH + 4];
    uint16_t port;
    uint64_t number;
};

static struct opened *opened_find(const struct sandbox *sandbox, uint16_t port)
{
    struct opened *opened = sandbox->ports != NULL ? sandbox->ports->opened : NULL;

    while (opened != NULL && opened->port != port)
        opened = opened->next;
    return opened;
}

static void forward_dialled(void *arg, int socket, const struct error *err)
{
    struct caller_in *in = arg;
    const struct sandbox *sandbox = map_get(&in->engine->ids, in->sandbox);
    struct opened *opened = sandbox != NULL ? opened_find(sandbox, in->port) : NULL;

    (void)err;
    if (opened != NULL)
        net_forward_connected(opened->forward, in->number, socket);
    else
        fd_close(&socket);
    free(in);
}

static void forward_connect(void *arg, uint64_t number)
{
    struct opened *opened = arg;
    struct sandbox *sandbox = opened->sandbox;
    struct caller_in *in;
    struct error err;

    if (may_dial(sandbox, &err) != 0) {
        net_forward_connected(opened->forward, number, -1);
        return;
    }
    in = engine_alloc(sizeof(*in));
    in->engine = sandbox->engine;
    in->port = opened->port;
    in->number = number;
    memcpy(in->sandbox, sandbox->id, sizeof(in->sandbox));
    dial_begin(sandbox, opened->port, false, forward_dialled, in);
}

static void opened_free(struct opened *opened)
{
    net_forward_free(opened->forward);
    free(opened);
}

static void open_one(struct sandbox *sandbox, const struct record_port *port)
{
    struct ports *ports = ports_of(sandbox);
    struct opened *opened;
    uint16_t bound = 0;
    struct error err;
    int listener;

    if (opened_find(sandbox, port->port) != NULL)
        return;
    listener = host_listener(port->host_port, &bound);
    if (listener < 0 && port->host_port != 0)
        listener = host_listener(0, &bound);
    if (listener < 0) {
        log_say(LOG_LEVEL_WARN, "port_failed", "sandbox %s: no listener for its port %u",
                sandbox->id, port->port);
        return;
    }
    opened = engine_alloc(sizeof(*opened));
    opened->sandbox = sandbox;
    opened->port = port->port;
    opened->host_port = bound;
    if (net_forward_new(sandbox->engine->net, listener, DIALS_MAX, forward_connect, opened,
                        &opened->forward, &err) != 0) {
        log_say(LOG_LEVEL_WARN, err.code, "sandbox %s: %s", sandbox->id, err.text);
        free(opened);
        return;
    }
    opened->next = ports->opened;
    ports->opened = opened;
}

static const struct record_port *declared_find(const struct record *record, uint16_t port)
{
    for (size_t i = 0; i < record->ports_count; i++)
        if (record->ports[i].port == port)
            return &record->ports[i];
    return NULL;
}

static void close_undeclared(struct sandbox *sandbox, bool all)
{
    struct opened **at = sandbox->ports != NULL ? &sandbox->ports->opened : NULL;

    while (at != NULL && *at != NULL) {
        struct opened *opened = *at;

        if (!all && declared_find(sandbox->record, opened->port) != NULL) {
            at = &opened->next;
            continue;
        }
        *at = opened->next;
        opened_free(opened);
    }
}

void ports_apply(struct sandbox *sandbox)
{
    const struct record *record = sandbox->record;

    if (sandbox->ports == NULL || !sandbox->ports->is_up)
        return;
    close_undeclared(sandbox, false);
    for (size_t i = 0; i < record->ports_count; i++)
        open_one(sandbox, &record->ports[i]);
}

/* ---- what listens in the box ---- */

struct found {
    size_t count;
    uint16_t ports[LISTEN_MAX];
};

static void found_add(struct found *found, uint16_t port)
{
    size_t at = 0;

    while (at < found->count && found->ports[at] < port)
        at++;
    if ((at < found->count && found->ports[at] == port) || found->count == LISTEN_MAX)
        return;
    memmove(&found->ports[at + 1], &found->ports[at], (found->count - at) * sizeof(uint16_t));
    found->ports[at] = port;
    found->count++;
}

/* The network's own listener is none of the box's. */
static bool is_ours(const struct inet_diag_msg *message, uint64_t listener)
{
    uint16_t port = ntohs(message->id.idiag_sport);

    return (listener != 0 && message->idiag_inode == listener) ||
           (port >= NETWORK_TCP_PORT && port < NETWORK_TCP_PORT + NETWORK_PORTS &&
            message->idiag_uid == 0 && message->idiag_family == AF_INET6);
}

/* 1: there is more; 0: that was all; -1. */
static int take_messages(int diag, uint64_t listener, struct found *found)
{
    union {
        struct nlmsghdr head;
        char bytes[16384];
    } buffer;
    ssize_t got = recv(diag, &buffer, sizeof(buffer), MSG_DONTWAIT);
    const struct nlmsghdr *head = &buffer.head;

    if (got <= 0)
        return -1;
    for (size_t left = (size_t)got; NLMSG_OK(head, left); head = NLMSG_NEXT(head, left)) {
        const struct inet_diag_msg *message = NLMSG_DATA(head);

        if (head->nlmsg_type == NLMSG_DONE)
            return 0;
        if (head->nlmsg_type == NLMSG_ERROR || head->nlmsg_len < NLMSG_LENGTH(sizeof(*message)))
            return -1;
        if (!is_ours(message, listener))
            found_add(found, ntohs(message->id.idiag_sport));
    }
    return 1;
}

static int look_family(int diag, int family, uint64_t listener, struct found *found)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 request;
    } ask = {
        .head = {.nlmsg_len = sizeof(ask),
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .request = {.sdiag_family = (uint8_t)family,
                    .sdiag_protocol = IPPROTO_TCP,
                    .idiag_states = 1U << TCP_LISTENING},
    };
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    int more = 1;

    if (sendto(diag, &ask, sizeof(ask), 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
        return -1;
    while (more > 0)
        more = take_messages(diag, listener, found);
    return more;
}

static void tell(struct sandbox *sandbox, const char *type, uint16_t port)
{
    const struct engine_event_traffic traffic = {.port = port};

    shares_tell(sandbox, SHARE_PORTS, type, NULL, &traffic);
}

static void compare(struct sandbox *sandbox, const struct found *found)
{
    struct ports *ports = sandbox->ports;
    size_t was = 0, is = 0;

    while (ports->is_known && (was < ports->count || is < found->count)) {
        bool has_was = was < ports->count, has_is = is < found->count;

        if (has_was && has_is && ports->listening[was] == found->ports[is]) {
            was++;
            is++;
        } else if (has_was && (!has_is || ports->listening[was] < found->ports[is])) {
            tell(sandbox, "port.closed", ports->listening[was++]);
        } else {
            tell(sandbox, "port.opened", found->ports[is++]);
        }
    }
    ports->is_known = true;
    ports->count = found->count;
    memcpy(ports->listening, found->ports, sizeof(ports->listening));
}

static void look(struct sandbox *sandbox)
{
    struct ports *ports = sandbox->ports;
    struct found found = {0};

    ports->looked_ns = clock_monotonic_ns();
    /* A kernel without one of the families has none that listens by it. */
    if (look_family(ports->diag, AF_INET, 0, &found) == 0) {
        (void)look_family(ports->diag, AF_INET6, network_listener(sandbox), &found);
        compare(sandbox, &found);
    }
}

/* Whoever waits for a list of ports: there may be several. */
struct lister {
    struct engine *engine;
    char sandbox[KEEPER_ID_LENGTH + 4];
    engine_ports_listed done; /* NULL: nobody waits */
    void *arg;
};

static void list_tell(struct sandbox *sandbox, engine_ports_listed done, void *arg);

static void diag_answered(void *arg, const union keeper_answer *answer, int fd,
                          const struct error *err)
{
    _cleanup_close_ int diag = fd;
    _cleanup_free_ struct lister *lister = arg;
    struct engine *engine = lister->engine;
    struct sandbox *sandbox = engine->is_closing ? NULL : map_get(&engine->ids, lister->sandbox);
    struct ports *ports = sandbox != NULL ? sandbox->ports : NULL;
    struct error gone;

    (void)answer;
    if (ports != NULL) {
        ports->is_asked = false;
        if (ports->is_up && ports->diag < 0 && diag >= 0) {
            ports->diag = fd_take(&diag);
            look(sandbox);
        }
    }
    if (lister->done == NULL)
        return;
    if (engine->is_closing) {
        lister->done(lister->arg, NULL, 0, err);
        return;
    }
    if (sandbox != NULL) {
        list_tell(sandbox, lister->done, lister->arg);
        return;
    }
    (void)error_set(&gone, "sandbox_gone", 0, "sandbox %s was deleted meanwhile", lister->sandbox);
    lister->done(lister->arg, NULL, 0, &gone);
}

static void diag_ask(struct sandbox *sandbox, engine_ports_listed done, void *arg)
{
    union keeper_request request = {.network = {.box = sandbox->box, .what = KEEPER_NETWORK_DIAG}};
    struct lister *lister = engine_alloc(sizeof(*lister));

    lister->engine = sandbox->engine;
    lister->done = done;
    lister->arg = arg;
    memcpy(lister->sandbox, sandbox->id, sizeof(lister->sandbox));
    sandbox->ports->is_asked = true;
    keeper_client_ask(sandbox->engine->keeper, KEEPER_NETWORK, &request, diag_answered, lister);
}

static void look_all(void *arg)
{
    struct engine *engine = arg;
    uint64_t now = clock_monotonic_ns();

    for (struct sandbox *sandbox = engine->oldest; sandbox != NULL; sandbox = sandbox->newer) {
        struct ports *ports = sandbox->ports;
        bool is_used = now - sandbox->touched_ns < USED_NS;

        if (ports == NULL || !ports->is_up ||
            now - ports->looked_ns < (is_used ? LOOK_NS / 2 : LOOK_SELDOM_NS))
            continue;
        if (ports->diag >= 0)
            look(sandbox);
        else if (!ports->is_asked)
            diag_ask(sandbox, NULL, NULL);
    }
    clock_set(engine->clock, &engine->ports_look, now + LOOK_NS, look_all, engine);
}

/* ---- begin and end ---- */

void ports_begin(struct sandbox *sandbox, bool is_new)
{
    struct engine *engine = sandbox->engine;
    struct ports *ports = ports_of(sandbox);

    ports->is_up = true;
    ports->is_known = is_new;
    ports->count = 0;
    ports->looked_ns = clock_monotonic_ns();
    ports_apply(sandbox);
    if (engine->ports_look.place == 0)
        clock_set(engine->clock, &engine->ports_look, clock_monotonic_ns() + LOOK_NS, look_all,
                  engine);
}

void ports_end(struct sandbox *sandbox)
{
    struct ports *ports = sandbox->ports;

    if (ports == NULL || !ports->is_up)
        return;
    ports->is_up = false;
    for (size_t i = 0; i < ports->count; i++)
        tell(sandbox, "port.closed", ports->listening[i]);
    ports->count = 0;
    fd_close(&ports->diag);
    close_undeclared(sandbox, true);
}

void ports_free(struct sandbox *sandbox)
{
    if (sandbox->ports == NULL)
        return;
    fd_close(&sandbox->ports->diag);
    close_undeclared(sandbox, true);
    free(sandbox->ports);
    sandbox->ports = NULL;
}

bool ports_in_use(const struct sandbox *sandbox)
{
    const struct ports *ports = sandbox->ports;
    bool uses = ports != NULL && ports->uses > 0;

    for (const struct opened *at = ports != NULL ? ports->opened : NULL; at != NULL && !uses;
         at = at->next)
        uses = net_forward_is_used(at->forward);
    return uses;
}

void ports_close_all(struct engine *engine)
{
    struct error err;

    (void)error_set(&err, "draining", 0, "the engine is about to end");
    while (engine->dials != NULL)
        dial_end(engine->dials, &err);
}

/* ---- verbs ---- */

static struct sandbox_port port_of(const struct sandbox *sandbox, uint16_t number)
{
    const struct record_port *declared = declared_find(sandbox->record, number);
    const struct opened *opened = opened_find(sandbox, number);
    const struct ports *ports = sandbox->ports;
    struct sandbox_port port = {
        .port = number,
        .is_declared = declared != NULL,
        .is_public = declared != NULL && declared->is_public,
        .host_port = opened != NULL ? opened->host_port : 0,
    };

    for (size_t i = 0; ports != NULL && i < ports->count; i++)
        port.is_listening |= ports->listening[i] == number;
    return port;
}

static void list_tell(struct sandbox *sandbox, engine_ports_listed done, void *arg)
{
    const struct record *record = sandbox->record;
    const struct ports *ports = sandbox->ports;
    struct sandbox_port all[LISTEN_MAX + ENGINE_PORTS_MAX];
    struct found numbers = {0};
    size_t count = 0;

    for (size_t i = 0; i < record->ports_count; i++)
        found_add(&numbers, record->ports[i].port);
    for (size_t i = 0; ports != NULL && i < ports->count; i++)
        found_add(&numbers, ports->listening[i]);
    for (size_t i = 0; i < numbers.count; i++)
        all[count++] = port_of(sandbox, numbers.ports[i]);
    done(arg, all, count, NULL);
}

void engine_ports_list(struct engine *engine, const struct engine_caller *caller, const char *id,
                       engine_ports_listed done, void *arg)
{
    struct sandbox *sandbox;
    struct error err;

    if (engine_accepts(engine, &err) != 0 ||
        (sandbox = sandbox_find_for(engine, caller, id, ENGINE_LOOK, &err)) == NULL) {
        done(arg, NULL, 0, &err);
        return;
    }
    if (sandbox->ports != NULL && sandbox->ports->is_up && sandbox->ports->diag < 0) {
        diag_ask(sandbox, done, arg);
        return;
    }
    if (sandbox->ports != NULL && sandbox->ports->is_up)
        look(sandbox);
    list_tell(sandbox, done, arg);
}

struct opening {
    struct engine *engine;
    uint16_t port;
    engine_port_done opened;
    engine_done closed;
    void *arg;
};

static void port_changed(void *arg, const struct sandbox_view *view, const struct error *err)
{
    _cleanup_free_ struct opening *opening = arg;
    const struct sandbox *sandbox = view != NULL ? map_get(&opening->engine->ids, view->id) : NULL;

    if (opening->closed != NULL) {
        opening->closed(opening->arg, err);
    } else if (err != NULL || sandbox == NULL) {
        opening->opened(opening->arg, NULL, err);
    } else {
        struct sandbox_port port = port_of(sandbox, opening->port);

        opening->opened(opening->arg, &port, NULL);
    }
}

static void push_change(struct sandbox *sandbox, const struct port_change *change,
                        const struct opening *opening)
{
    struct opening *kept = engine_alloc(sizeof(*kept));
    struct verb *verb;

    *kept = *opening;
    verb = verb_new(VERB_CHANGE, kept);
    verb->change_fields = CHANGE_PORTS;
    verb->port = *change;
    verb->done.sandbox = port_changed;
    sandbox_push(sandbox, verb);
}

/* All at once: one that is closed again could be given out twice. */
void ports_choose(struct record *record)
{
    int listeners[ENGINE_PORTS_MAX];

    for (size_t i = 0; i < record->ports_count; i++)
        listeners[i] = host_listener(0, &record->ports[i].host_port);
    for (size_t i = 0; i < record->ports_count; i++)
        fd_close(&listeners[i]);
}

/* One that is free now: it is taken where the sandbox runs, and else kept for then. */
static uint16_t free_port(void)
{
    uint16_t port = 0;
    int fd = host_listener(0, &port);

    fd_close(&fd);
    return port;
}

void engine_port_open(struct engine *engine, const struct engine_caller *caller, const char *id,
                      uint16_t port, int is_public, engine_port_done done, void *arg)
{
    const struct opening opening = {.engine = engine, .port = port, .opened = done, .arg = arg};
    struct port_change change = {.port = port, .is_public = is_public};
    struct sandbox *sandbox;
    struct error err;

    /* Who holds a token of its ports does not say who else may see them. */
    if (engine_accepts(engine, &err) != 0 || caller_may(caller, ENGINE_WRITE, &err) != 0 ||
        (sandbox = find_for_port(engine, caller, id, port, &err)) == NULL) {
        done(arg, NULL, &err);
        return;
    }
    change.host_port = free_port();
    push_change(sandbox, &change, &opening);
}

void engine_port_close(struct engine *engine, const struct engine_caller *caller, const char *id,
                       uint16_t port, engine_done done, void *arg)
{
    const struct opening opening = {.engine = engine, .port = port, .closed = done, .arg = arg};
    const struct port_change change = {.port = port, .is_removed = true};
    struct sandbox *sandbox;
    struct error err;

    if (engine_accepts(engine, &err) != 0 || caller_may(caller, ENGINE_WRITE, &err) != 0 ||
        (sandbox = find_for_port(engine, caller, id, port, &err)) == NULL) {
        done(arg, &err);
        return;
    }
    if (declared_find(sandbox->record, port) == NULL) {
        (void)error_set(&err, "port_not_found", 0,
                        "port %u of sandbox %s is not open; list its ports", port, sandbox->id);
        done(arg, &err);
        return;
    }
    push_change(sandbox, &change, &opening);
}

bool engine_port_is_public(struct engine *engine, const char *id, uint16_t port,
                           struct engine_caller *out)
{
    const struct sandbox *sandbox = map_get(&engine->ids, id);
    const struct record_port *declared = sandbox != NULL ? declared_find(sandbox->record, port)
                                                         : NULL;

    if (declared == NULL || !declared->is_public)
        return false;
    *out = (struct engine_caller){.verbs = ENGINE_PORTS, .port = port};
    (void)snprintf(out->tenant, sizeof(out->tenant), "%s", sandbox->record->tenant);
    (void)snprintf(out->key_id, sizeof(out->key_id), ENGINE_PUBLIC);
    (void)snprintf(out->sandbox, sizeof(out->sandbox), "%s", sandbox->id);
    return true;
}
