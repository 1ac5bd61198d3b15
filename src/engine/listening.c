/* What listens in a box, as the kernel tells by a netlink socket of its network: the box has no word in it.
 *
 * A box may have listeners without end, and the loop is everybody's: a look takes so many messages and no more, all
 * looks together a small part of the loop's time. What is left out for that is some of many numbers, never another
 * sandbox's turn. */
#include "base/fd.h"
#include "engine/ports.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#define TCP_LISTENING 10 /* of the kernel's states, in include/net/tcp_states.h */
/* What listens is looked at so often while somebody uses the sandbox, and else so often. */
#define LOOK_NS 1000000000ULL
#define LOOK_SELDOM_NS 10000000000ULL
#define USED_NS 60000000000ULL
/* Of one look. Each is of some 150 listeners. */
#define BUFFERS_MAX 16
/* After a look that took so many a sandbox is not looked at again for a while, whoever asks; after one that was
 * given up, for a long while. */
#define BUFFERS_FEW 4
#define REST_NS 250000000ULL
#define REST_LONG_NS 60000000000ULL
/* All looks together have so much of so much time. */
#define TURN_NS 2000000ULL
#define TURN_REST_NS 20000000ULL

/* ---- a set of numbers ---- */

void found_add(struct found *found, uint16_t port)
{
    size_t at = 0;

    while (at < found->count && found->ports[at] < port)
        at++;
    if (at == found->most || (at < found->count && found->ports[at] == port))
        return;
    if (found->count == found->most)
        found->count--;
    memmove(&found->ports[at + 1], &found->ports[at], (found->count - at) * sizeof(uint16_t));
    found->ports[at] = port;
    found->count++;
}

/* ---- a look ---- */

struct look {
    int diag;
    unsigned buffers;
    struct found found;
};

/* The network's own listener is none of the box's. */
static bool is_ours(const struct inet_diag_msg *message, uint64_t listener)
{
    uint16_t port = ntohs(message->id.idiag_sport);

    return (listener != 0 && message->idiag_inode == listener) ||
           (port >= NETWORK_TCP_PORT && port < NETWORK_TCP_PORT + NETWORK_PORTS &&
            message->idiag_uid == 0 && message->idiag_family == AF_INET6);
}

/* 1: there is more; 0: that was all; -1. */
static int take_messages(struct look *look, uint64_t listener)
{
    union {
        struct nlmsghdr head;
        char bytes[16384];
    } buffer;
    ssize_t got = recv(look->diag, &buffer, sizeof(buffer), MSG_DONTWAIT);
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
            found_add(&look->found, ntohs(message->id.idiag_sport));
    }
    return 1;
}

/* 1: it is given up, and `diag` has an answer that nobody takes. */
static int look_family(struct look *look, int family, uint64_t listener)
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

    if (sendto(look->diag, &ask, sizeof(ask), 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
        return -1;
    while (more > 0 && look->buffers < BUFFERS_MAX) {
        look->buffers++;
        more = take_messages(look, listener);
    }
    return more;
}

static void tell(struct sandbox *sandbox, const char *type, uint16_t port)
{
    const struct engine_event_traffic traffic = {.port = port};

    shares_tell(sandbox, SHARE_PORTS, type, NULL, &traffic);
}

/* Beyond this number nothing is known. */
static uint16_t top_of(const uint16_t *ports, size_t count)
{
    return count == LISTEN_MAX ? ports[count - 1] : UINT16_MAX;
}

static void compare(struct sandbox *sandbox, const struct found *found)
{
    struct ports *ports = sandbox->ports;
    uint16_t top_was = top_of(ports->listening, ports->count);
    uint16_t top_is = top_of(found->ports, found->count);
    size_t was = 0, is = 0;

    while (ports->is_known && (was < ports->count || is < found->count)) {
        uint32_t one = was < ports->count ? ports->listening[was] : UINT32_MAX;
        uint32_t other = is < found->count ? found->ports[is] : UINT32_MAX;

        if (one < other && one <= top_is)
            tell(sandbox, "port.closed", (uint16_t)one);
        if (other < one && other <= top_was)
            tell(sandbox, "port.opened", (uint16_t)other);
        was += one <= other;
        is += other <= one;
    }
    ports->is_known = true;
    ports->count = found->count;
    memcpy(ports->listening, found->ports, found->count * sizeof(found->ports[0]));
}

/* Of very many listeners those that came first are kept, and nothing is told of them. */
static void given_up(struct sandbox *sandbox, const struct look *look)
{
    struct ports *ports = sandbox->ports;

    ports->is_known = false;
    compare(sandbox, &look->found);
    ports->is_known = false;
    ports->rest_ns = REST_LONG_NS;
    fd_close(&ports->diag);
}

static void look(struct sandbox *sandbox)
{
    struct ports *ports = sandbox->ports;
    struct look look = {.diag = ports->diag, .found.most = LISTEN_MAX};
    int more = look_family(&look, AF_INET, 0);

    ports->looked_ns = clock_monotonic_ns();
    ports->rest_ns = 0;
    /* A kernel without one of the families has none that listens by it. */
    if (more == 0)
        more = look_family(&look, AF_INET6, network_listener(sandbox)) > 0;
    if (more > 0)
        given_up(sandbox, &look);
    else if (more == 0)
        compare(sandbox, &look.found);
    if (more <= 0 && look.buffers > BUFFERS_FEW)
        ports->rest_ns = REST_NS;
}

static bool is_resting(const struct ports *ports, uint64_t now)
{
    return now - ports->looked_ns < ports->rest_ns;
}

/* ---- the socket to look by ---- */

struct looker {
    struct engine *engine;
    char sandbox[KEEPER_ID_LENGTH + 4];
    uint64_t box;
    listening_looked looked; /* NULL: nobody waits */
    void *arg;
};

static void diag_answered(void *arg, const union keeper_answer *answer, int fd,
                          const struct error *err)
{
    _cleanup_close_ int diag = fd;
    _cleanup_free_ struct looker *looker = arg;
    struct engine *engine = looker->engine;
    struct sandbox *sandbox = engine->is_closing ? NULL : map_get(&engine->ids, looker->sandbox);
    struct ports *ports = sandbox != NULL ? sandbox->ports : NULL;

    (void)answer;
    /* Of another box, that was before this one, it says nothing of this one. */
    if (ports != NULL && sandbox->box == looker->box) {
        ports->is_asked = false;
        if (ports->is_up && ports->diag < 0 && diag >= 0) {
            ports->diag = fd_take(&diag);
            look(sandbox);
        }
    }
    if (looker->looked != NULL)
        looker->looked(looker->arg, sandbox, engine->is_closing ? err : NULL);
}

static void diag_ask(struct sandbox *sandbox, listening_looked looked, void *arg)
{
    union keeper_request request = {.network = {.box = sandbox->box, .what = KEEPER_NETWORK_DIAG}};
    struct looker *looker = engine_alloc(sizeof(*looker));

    looker->engine = sandbox->engine;
    looker->box = sandbox->box;
    looker->looked = looked;
    looker->arg = arg;
    memcpy(looker->sandbox, sandbox->id, sizeof(looker->sandbox));
    sandbox->ports->is_asked = true;
    keeper_client_ask(sandbox->engine->keeper, KEEPER_NETWORK, &request, diag_answered, looker);
}

void listening_look(struct sandbox *sandbox, listening_looked looked, void *arg)
{
    const struct ports *ports = sandbox->ports;
    bool may_look = ports != NULL && ports->is_up && !is_resting(ports, clock_monotonic_ns());

    if (may_look && ports->diag < 0) {
        diag_ask(sandbox, looked, arg);
        return;
    }
    if (may_look)
        look(sandbox);
    looked(arg, sandbox, NULL);
}

/* ---- all of them, now and then ---- */

static bool is_due(const struct sandbox *sandbox, uint64_t now)
{
    const struct ports *ports = sandbox->ports;
    bool is_used = now - sandbox->touched_ns < USED_NS;

    return ports != NULL && ports->is_up && !is_resting(ports, now) &&
           now - ports->looked_ns >= (is_used ? LOOK_NS / 2 : LOOK_SELDOM_NS);
}

/* In order, and from where it stopped: so that all have their turn, however many there are. */
static void look_all(void *arg)
{
    struct engine *engine = arg;
    uint64_t begin = clock_monotonic_ns(), now = begin, wait = LOOK_NS;

    for (struct sandbox *sandbox = engine->oldest; sandbox != NULL; sandbox = sandbox->newer) {
        if (sandbox->record->serial <= engine->ports_looked || !is_due(sandbox, now))
            continue;
        if (now - begin > TURN_NS) {
            wait = TURN_REST_NS;
            break;
        }
        engine->ports_looked = sandbox->record->serial;
        if (sandbox->ports->diag >= 0)
            look(sandbox);
        else if (!sandbox->ports->is_asked)
            diag_ask(sandbox, NULL, NULL);
        now = clock_monotonic_ns();
    }
    if (wait == LOOK_NS)
        engine->ports_looked = 0;
    clock_set(engine->clock, &engine->ports_look, now + wait, look_all, engine);
}

void listening_begin(struct sandbox *sandbox, bool is_new)
{
    struct engine *engine = sandbox->engine;
    struct ports *ports = ports_of(sandbox);

    ports->is_known = is_new;
    ports->is_asked = false;
    ports->count = 0;
    ports->looked_ns = clock_monotonic_ns();
    ports->rest_ns = 0;
    if (engine->ports_look.place == 0)
        clock_set(engine->clock, &engine->ports_look, clock_monotonic_ns() + LOOK_NS, look_all,
                  engine);
}

void listening_end(struct sandbox *sandbox)
{
    struct ports *ports = sandbox->ports;

    for (size_t i = 0; i < ports->count; i++)
        tell(sandbox, "port.closed", ports->listening[i]);
    ports->count = 0;
    fd_close(&ports->diag);
}
