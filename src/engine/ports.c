/* Ports: from this host into a sandbox, to what listens on its own loopback. See dials.c for the way in, and
 * listening.c for what listens.
 *
 * None of it passes the box's policy, which is about what the box reaches. A declared port has a listener on the
 * loopback of this host, with a number that it keeps as long as it is free. */
#include "engine/ports.h"
#include "base/fd.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BACKLOG 128

struct ports *ports_of(struct sandbox *sandbox)
{
    if (sandbox->ports == NULL) {
        sandbox->ports = engine_alloc(sizeof(*sandbox->ports));
        sandbox->ports->diag = -1;
    }
    return sandbox->ports;
}

/* ---- calls by name ---- */

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

static enum dial_for dial_for_whom(bool is_public)
{
    return is_public ? DIAL_PUBLIC : DIAL_CALLER;
}

void engine_port_dial(struct engine *engine, const struct engine_caller *caller, const char *id,
                      uint16_t port, engine_port_dialled done, void *arg)
{
    bool is_public = strcmp(caller->key_id, ENGINE_PUBLIC) == 0;
    struct error err;
    struct sandbox *sandbox;

    if (engine_accepts(engine, &err) != 0 ||
        (sandbox = find_for_port(engine, caller, id, port, &err)) == NULL) {
        done(arg, -1, &err);
        return;
    }
    dial_begin(sandbox, port, dial_for_whom(is_public), done, arg);
}

void engine_port_left(struct engine *engine, const char *id, bool is_public)
{
    dial_left(engine, id, dial_for_whom(is_public));
}

uint64_t engine_port_box(struct engine *engine, const char *id)
{
    const struct sandbox *sandbox = map_get(&engine->ids, id);
    struct error err;

    return sandbox != NULL && dial_may(sandbox, &err) == 0 ? sandbox->box : 0;
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

static bool is_somebodys(const struct engine *engine, uint16_t host_port)
{
    for (const struct sandbox *sandbox = engine->oldest; sandbox != NULL; sandbox = sandbox->newer)
        for (size_t i = 0; i < sandbox->record->ports_count; i++)
            if (sandbox->record->ports[i].host_port == host_port)
                return true;
    return false;
}

/* With any number but those of sandboxes that are stopped: whoever knows such a URL is to reach nobody else. Where
 * nearly all are somebody's, it is one of those. */
static int free_listener(const struct engine *engine, uint16_t *bound)
{
    int tried[16];
    size_t count = 0;
    int fd;

    do
        tried[count++] = fd = host_listener(0, bound);
    while (fd >= 0 && is_somebodys(engine, *bound) && count < sizeof(tried) / sizeof(tried[0]));
    for (size_t i = 0; i + 1 < count; i++)
        fd_close(&tried[i]);
    return fd;
}

/* For the connection of a listener: whom to tell, who may be gone by then. */
struct caller_in {
    struct engine *engine;
    char sandbox[KEEPER_ID_LENGTH + 4];
    uint64_t box;
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
    if (opened != NULL && sandbox->box == in->box)
        net_forward_connected(opened->forward, in->number, socket);
    else
        fd_close(&socket);
    free(in);
}

static void forward_connect(void *arg, uint64_t number)
{
    struct opened *opened = arg;
    struct sandbox *sandbox = opened->sandbox;
    struct caller_in *in = engine_alloc(sizeof(*in));

    in->engine = sandbox->engine;
    in->box = sandbox->box;
    in->port = opened->port;
    in->number = number;
    memcpy(in->sandbox, sandbox->id, sizeof(in->sandbox));
    dial_begin(sandbox, opened->port, DIAL_LISTENER, forward_dialled, in);
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
        listener = free_listener(sandbox->engine, &bound);
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

/* ---- begin and end ---- */

void ports_begin(struct sandbox *sandbox, bool is_new)
{
    ports_of(sandbox)->is_up = true;
    listening_begin(sandbox, is_new);
    ports_apply(sandbox);
}

void ports_end(struct sandbox *sandbox)
{
    if (sandbox->ports == NULL || !sandbox->ports->is_up)
        return;
    sandbox->ports->is_up = false;
    listening_end(sandbox);
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

/* Who comes without a key keeps it awake by coming, and not by staying. */
bool ports_in_use(const struct sandbox *sandbox)
{
    const struct ports *ports = sandbox->ports;
    bool uses = ports != NULL && ports->uses > ports->public_uses;

    for (const struct opened *at = ports != NULL ? ports->opened : NULL; at != NULL && !uses;
         at = at->next)
        uses = net_forward_is_used(at->forward);
    return uses;
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

/* Whoever waits for a list of ports: there may be several. */
struct lister {
    char sandbox[KEEPER_ID_LENGTH + 4];
    engine_ports_listed done;
    void *arg;
};

static void list_tell(void *arg, struct sandbox *sandbox, const struct error *err)
{
    _cleanup_free_ struct lister *lister = arg;
    struct sandbox_port all[LISTEN_MAX + ENGINE_PORTS_MAX];
    struct found numbers = {.most = LISTEN_MAX + ENGINE_PORTS_MAX};
    const struct ports *ports = sandbox != NULL ? sandbox->ports : NULL;
    struct error gone;

    if (sandbox == NULL) {
        (void)error_set(&gone, "sandbox_gone", 0, "sandbox %s was deleted meanwhile",
                        lister->sandbox);
        lister->done(lister->arg, NULL, 0, err != NULL ? err : &gone);
        return;
    }
    for (size_t i = 0; i < sandbox->record->ports_count; i++)
        found_add(&numbers, sandbox->record->ports[i].port);
    for (size_t i = 0; ports != NULL && i < ports->count; i++)
        found_add(&numbers, ports->listening[i]);
    for (size_t i = 0; i < numbers.count; i++)
        all[i] = port_of(sandbox, numbers.ports[i]);
    lister->done(lister->arg, all, numbers.count, NULL);
}

void engine_ports_list(struct engine *engine, const struct engine_caller *caller, const char *id,
                       engine_ports_listed done, void *arg)
{
    struct sandbox *sandbox;
    struct lister *lister;
    struct error err;

    if (engine_accepts(engine, &err) != 0 ||
        (sandbox = sandbox_find_for(engine, caller, id, ENGINE_LOOK, &err)) == NULL) {
        done(arg, NULL, 0, &err);
        return;
    }
    lister = engine_alloc(sizeof(*lister));
    lister->done = done;
    lister->arg = arg;
    memcpy(lister->sandbox, sandbox->id, sizeof(lister->sandbox));
    listening_look(sandbox, list_tell, lister);
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
void ports_choose(const struct engine *engine, struct record *record)
{
    int listeners[ENGINE_PORTS_MAX];

    for (size_t i = 0; i < record->ports_count; i++)
        listeners[i] = free_listener(engine, &record->ports[i].host_port);
    for (size_t i = 0; i < record->ports_count; i++)
        fd_close(&listeners[i]);
}

/* One that is free now: it is taken where the sandbox runs, and else kept for then. */
static uint16_t free_port(const struct engine *engine)
{
    uint16_t port = 0;
    int fd = free_listener(engine, &port);

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
    change.host_port = free_port(engine);
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
