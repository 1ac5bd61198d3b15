/* A call into a box: a socket that is connected to what listens on the box's own loopback.
 *
 * The keeper makes the socket in the box's network; there is no other way in. It is the keeper of all, and enters
 * that network for each: so whoever calls has his turn by sandbox, and one sandbox's visitors never keep the keeper
 * from another's. */
#include "base/fd.h"
#include "engine/ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define DIAL_NS 10000000000ULL /* to be answered */
/* Of one sandbox: a call each so often, and so many at once where there were none before. Who would wait for his
 * turn longer is refused. Visitors of what is public have turns of their own, and do not wait. */
#define TURN_NS 5000000ULL
#define TURNS_AT_ONCE 512
#define TURN_WAIT_NS 2000000000ULL

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
    bool tries_v4;
    enum dial_for who;
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

    if (err != NULL)
        dial_left(dial->engine, dial->sandbox, dial->who);
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

static void dial_next(struct dial *dial);

/* A server may listen on either loopback. ::1 is first, for a socket that was used for an address of IPv4 cannot be
 * used for one of IPv6 any more, and another socket were another call of the keeper. */
static void dial_failed(struct dial *dial, int errnum)
{
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};

    (void)uv_poll_stop(&dial->poll->poll);
    if (dial->tries_v4 || connect(dial->fd, &nobody, sizeof(nobody)) < 0) {
        dial_refused(dial, errnum);
        return;
    }
    dial->tries_v4 = true;
    dial_next(dial);
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
    if (dial->tries_v4)
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

    clock_set(dial->engine->clock, &dial->patience, clock_monotonic_ns() + DIAL_NS, dial_late,
              dial);
    dial->is_asked = true;
    keeper_client_ask(dial->engine->keeper, KEEPER_NETWORK, &request, dial_socket, dial);
}

int dial_may(const struct sandbox *sandbox, struct error *err)
{
    const struct record *record = sandbox->record;

    if (record->state != SANDBOX_RUNNING || sandbox->box == 0 || sandbox->is_quiet ||
        sandbox->step == STEP_END)
        return error_set(err, "sandbox_stopped", 0,
                         "sandbox %s does not run; start it to reach its ports", sandbox->id);
    return 0;
}

static void dial_has_turn(void *arg)
{
    struct dial *dial = arg;
    const struct sandbox *sandbox = map_get(&dial->engine->ids, dial->sandbox);
    struct error err;

    if (sandbox != NULL && sandbox->box == dial->box && dial_may(sandbox, &err) == 0) {
        dial_ask(dial);
        return;
    }
    (void)error_set(&err, "sandbox_stopped", 0, "sandbox %s has ended meanwhile", dial->sandbox);
    dial_end(dial, &err);
}

/* Takes a turn, which is at *at; false where that is too late. */
static bool turn_take(struct ports *ports, enum dial_for who, uint64_t *at)
{
    uint64_t *turn = who == DIAL_PUBLIC ? &ports->public_turn_ns : &ports->turn_ns;
    uint64_t now = clock_monotonic_ns();

    if (*turn + TURNS_AT_ONCE * TURN_NS < now)
        *turn = now - TURNS_AT_ONCE * TURN_NS;
    if (*turn > now + (who == DIAL_PUBLIC ? 0 : TURN_WAIT_NS))
        return false;
    *at = *turn;
    *turn += TURN_NS;
    return true;
}

/* What may be known at once. */
static int dial_check(struct sandbox *sandbox, enum dial_for who, uint64_t *at, struct error *err)
{
    struct ports *ports = ports_of(sandbox);

    if (dial_may(sandbox, err) != 0)
        return -1;
    if (who == DIAL_PUBLIC && ports->public_uses >= DIALS_PUBLIC_MAX)
        return error_set(err, "too_many_connections", 0,
                         "%u connections to public ports of sandbox %s are open; try again later",
                         DIALS_PUBLIC_MAX, sandbox->id);
    if (who != DIAL_LISTENER && ports->uses >= DIALS_MAX)
        return error_set(err, "too_many_connections", 0,
                         "%u connections to ports of sandbox %s are open; end some first",
                         DIALS_MAX, sandbox->id);
    if (!turn_take(ports, who, at))
        return error_set(err, "too_many_requests", 0,
                         "connections to ports of sandbox %s are begun too fast, more than %u a "
                         "second; keep them open, or try again later",
                         sandbox->id, (unsigned)(1000000000 / TURN_NS));
    return 0;
}

void dial_begin(struct sandbox *sandbox, uint16_t port, enum dial_for who, engine_port_dialled done,
                void *arg)
{
    struct engine *engine = sandbox->engine;
    struct dial *dial;
    struct error err;
    uint64_t at = 0;

    if (dial_check(sandbox, who, &at, &err) != 0) {
        done(arg, -1, &err);
        return;
    }
    dial = engine_alloc(sizeof(*dial));
    dial->engine = engine;
    dial->box = sandbox->box;
    dial->who = who;
    dial->port = port;
    dial->fd = -1;
    dial->done = done;
    dial->arg = arg;
    memcpy(dial->sandbox, sandbox->id, sizeof(dial->sandbox));
    dial->next = engine->dials;
    if (dial->next != NULL)
        dial->next->previous = dial;
    engine->dials = dial;
    sandbox->ports->uses += who != DIAL_LISTENER;
    sandbox->ports->public_uses += who == DIAL_PUBLIC;
    sandbox_touch(sandbox);
    if (at > clock_monotonic_ns())
        clock_set(engine->clock, &dial->patience, at, dial_has_turn, dial);
    else
        dial_ask(dial);
}

void dial_left(struct engine *engine, const char *id, enum dial_for who)
{
    struct sandbox *sandbox = map_get(&engine->ids, id);

    if (who == DIAL_LISTENER || sandbox == NULL || sandbox->ports == NULL ||
        sandbox->ports->uses == 0)
        return;
    sandbox->ports->uses--;
    sandbox->ports->public_uses -= who == DIAL_PUBLIC && sandbox->ports->public_uses > 0;
    sandbox_touch(sandbox);
}

void ports_close_all(struct engine *engine)
{
    struct error err;

    (void)error_set(&err, "draining", 0, "the engine is about to end");
    while (engine->dials != NULL)
        dial_end(engine->dials, &err);
}
