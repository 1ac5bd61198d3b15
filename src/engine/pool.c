/* Boxes that stand before anybody asks: for each root, privileges, disk kind and whether there is a network that
 * was asked for once, as many as the options say, with the usual limits and no mounts. A network is opened
 * ahead, too: its sockets wait here, and nobody accepts before there is a policy.
 *
 * A box of the pool belongs to nobody until KEEPER_CLAIM. Whatever is wrong with one, it is ended and
 * another made; who asks meanwhile gets a box made directly. The link of a box that waits is read here,
 * so that one that ends is noticed while it waits. */
#include "base/clock.h"
#include "base/fd.h"
#include "engine/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_FIRST_MS 500
#define RETRY_MOST_MS 60000
/* So long a shelf that is still half full is left alone: who took a box runs a command in it next, and to
 * make another one beside that costs him more than the making takes. */
#define LULL_MS 3

struct shelf;

struct ready {
    struct ready *next;
    struct shelf *shelf;
    struct pool_box box;
    uv_poll_t poll;
    struct alarm patience;
    bool stands, is_closing;
    bool asks; /* for its sockets */
};

struct shelf { /* of one kind */
    struct shelf *next;
    struct pool *pool;
    char root[KEEPER_NAME_MAX];
    enum box_privileges privileges;
    enum keeper_disk disk_kind;
    bool has_network;
    struct ready *boxes; /* standing or about to */
    size_t count, making;
    struct alarm retry;
    uint64_t retry_ms; /* 0: the last one stood */
    bool is_removed;   /* its root is no longer registered */
};

/* Who waits until boxes of the pool are gone, for he needs their room. */
struct shed {
    struct shed *next;
    void (*done)(void *arg);
    void *arg;
};

struct pool {
    struct engine *engine;
    struct shelf *shelves;
    struct shed *sheds;
    size_t shedding; /* boxes that are being ended for them */
};

static void shelf_fill(struct shelf *shelf);
static void shed_settle(struct pool *pool);

/* ---- a box leaves ---- */

static void ready_freed(uv_handle_t *handle)
{
    struct ready *ready = handle->data;

    fd_close(&ready->box.tcp);
    fd_close(&ready->box.udp);
    free(ready);
}

static void ready_unlink(struct ready *ready)
{
    struct ready **at = &ready->shelf->boxes;

    while (*at != ready)
        at = &(*at)->next;
    *at = ready->next;
    ready->shelf->count--;
    clock_clear(ready->shelf->pool->engine->clock, &ready->patience);
    ready->is_closing = true;
    (void)uv_poll_stop(&ready->poll);
    uv_close((uv_handle_t *)&ready->poll, ready_freed);
}

struct discarded {
    struct engine *engine;
    bool is_shed;
    char disk[KEEPER_ID_LENGTH + 4];
};

static void discarded_ended(void *arg, const union keeper_answer *answer, int fd,
                            const struct error *err)
{
    struct discarded *discarded = arg;

    (void)answer;
    fd_close(&fd);
    if (discarded->disk[0] != '\0' && !discarded->engine->is_closing &&
        (err == NULL || strcmp(err->code, "keeper_lost") != 0))
        sandbox_drop_disk(discarded->engine, discarded->disk);
    /* What is asked for from now on comes behind that. */
    if (discarded->is_shed && !discarded->engine->is_closing) {
        discarded->engine->pool->shedding--;
        shed_settle(discarded->engine->pool);
    }
    engine_settled(discarded->engine);
    free(discarded);
}

static void discard(struct engine *engine, uint64_t box, const char *disk, bool is_shed)
{
    struct discarded *discarded = engine_alloc(sizeof(*discarded));
    union keeper_request request = {.of_box = {.box = box}};

    discarded->engine = engine;
    discarded->is_shed = is_shed;
    (void)snprintf(discarded->disk, sizeof(discarded->disk), "%s", disk);
    keeper_client_ask(engine->keeper, KEEPER_END, &request, discarded_ended, discarded);
}

void pool_discard(struct engine *engine, uint64_t box, const char *disk)
{
    discard(engine, box, disk, false);
}

static void ready_discard(struct ready *ready)
{
    struct engine *engine = ready->shelf->pool->engine;

    ready_unlink(ready);
    pool_discard(engine, ready->box.box, ready->box.disk);
    link_close(ready->box.link);
}

/* ---- it fails ---- */

static void retry(void *arg)
{
    shelf_fill(arg);
}

static void shelf_rest(struct shelf *shelf)
{
    struct engine *engine = shelf->pool->engine;

    shelf->retry_ms = shelf->retry_ms == 0 ? RETRY_FIRST_MS : 2 * shelf->retry_ms;
    if (shelf->retry_ms > RETRY_MOST_MS)
        shelf->retry_ms = RETRY_MOST_MS;
    clock_set(engine->clock, &shelf->retry, clock_monotonic_ns() + shelf->retry_ms * 1000000, retry,
              shelf);
}

static void shelf_failed(struct shelf *shelf, const struct error *err)
{
    if (shelf->retry_ms == 0)
        log_say(LOG_LEVEL_WARN, "pool", "no box for the pool of root '%s': %s", shelf->root,
                err->text);
    shelf_rest(shelf);
}

static void ready_failed(struct ready *ready, const struct error *err)
{
    struct shelf *shelf = ready->shelf;

    ready_discard(ready);
    shelf_failed(shelf, err);
}

static void too_slow(void *arg)
{
    struct error err;

    (void)error_set(&err, "sandbox_failed", 0, "it did not stand within %d s",
                    ENGINE_READY_MS / 1000);
    ready_failed(arg, &err);
}

/* ---- it comes ---- */

static void event_close(struct link_event *event)
{
    for (size_t i = 0; i < 3; i++)
        fd_close(&event->fds[i]);
}

static void ready_stands(struct ready *ready)
{
    ready->stands = true;
    ready->shelf->retry_ms = 0;
    clock_clear(ready->shelf->pool->engine->clock, &ready->patience);
}

/* ---- its network ---- */

struct socket_question {
    struct engine *engine;
    uint64_t box; /* it may have left meanwhile */
    enum keeper_network what;
};

static struct ready *ready_find(const struct pool *pool, uint64_t box)
{
    for (const struct shelf *shelf = pool->shelves; shelf != NULL; shelf = shelf->next)
        for (struct ready *ready = shelf->boxes; ready != NULL; ready = ready->next)
            if (ready->box.box == box)
                return ready;
    return NULL;
}

static void socket_answered(void *arg, const union keeper_answer *answer, int fd,
                            const struct error *err)
{
    struct socket_question question = *(struct socket_question *)arg;
    struct ready *ready = NULL;

    (void)answer;
    free(arg);
    if (!question.engine->is_closing && !question.engine->is_lost)
        ready = ready_find(question.engine->pool, question.box);
    if (ready == NULL) {
        fd_close(&fd);
    } else if (err != NULL) {
        ready_failed(ready, err);
    } else {
        *(question.what == KEEPER_NETWORK_TCP ? &ready->box.tcp : &ready->box.udp) = fd;
        if (ready->box.tcp >= 0 && ready->box.udp >= 0)
            ready_stands(ready);
    }
    engine_settled(question.engine);
}

static void sockets_ask(struct ready *ready)
{
    static const enum keeper_network both[] = {KEEPER_NETWORK_TCP, KEEPER_NETWORK_UDP};
    struct engine *engine = ready->shelf->pool->engine;

    ready->asks = true;
    for (size_t i = 0; i < 2; i++) {
        struct socket_question *question = engine_alloc(sizeof(*question));
        union keeper_request request = {.network = {.box = ready->box.box, .what = both[i]}};

        *question = (struct socket_question){engine, ready->box.box, both[i]};
        keeper_client_ask(engine->keeper, KEEPER_NETWORK, &request, socket_answered, question);
    }
}

static void ready_polled(uv_poll_t *poll, int status, int events)
{
    struct ready *ready = poll->data;
    struct link_event event;
    struct error err;
    int got;

    (void)events;
    (void)status; /* the link says what is wrong */
    while ((got = link_next(ready->box.link, &event, &err)) > 0) {
        event_close(&event);
        if (event.kind == LINK_READY && !ready->stands && !ready->asks) {
            if (ready->shelf->has_network)
                sockets_ask(ready);
            else
                ready_stands(ready);
        } else {
            if (event.kind != LINK_GONE)
                (void)error_set(&event.error, "bad_init", 0, "a box that nobody uses speaks");
            ready_failed(ready, &event.error);
            return;
        }
    }
    if (got < 0)
        ready_failed(ready, &err);
}

struct making {
    struct shelf *shelf;
    struct box_turn turn;
    char disk[KEEPER_ID_LENGTH + 4];
};

static int ready_add(struct shelf *shelf, uint64_t box, const char *disk, int fd, struct error *err)
{
    struct engine *engine = shelf->pool->engine;
    struct ready *ready = engine_alloc(sizeof(*ready));

    ready->shelf = shelf;
    ready->box = (struct pool_box){.box = box, .tcp = -1, .udp = -1};
    memcpy(ready->box.disk, disk, sizeof(ready->box.disk));
    ready->poll.data = ready;
    if (link_open(fd, &ready->box.link, err) != 0) {
        free(ready);
        return -1;
    }
    if (uv_poll_init(engine->options.loop, &ready->poll, link_fd(ready->box.link)) != 0) {
        link_close(ready->box.link);
        free(ready);
        return error_set(err, "sandbox_failed", 0, "its socket cannot be waited for");
    }
    (void)uv_poll_start(&ready->poll, UV_READABLE, ready_polled);
    ready->next = shelf->boxes;
    shelf->boxes = ready;
    shelf->count++;
    clock_set(engine->clock, &ready->patience, clock_monotonic_ns() + ENGINE_READY_MS * 1000000ULL,
              too_slow, ready);
    return 0;
}

static void made(void *arg, const union keeper_answer *answer, int fd, const struct error *err)
{
    struct making making = *(struct making *)arg;
    struct shelf *shelf = making.shelf;
    struct engine *engine = shelf->pool->engine;
    struct error why;

    box_turn_leave(engine, &((struct making *)arg)->turn);
    free(arg);
    shelf->making--;
    if (engine->is_closing) {
        fd_close(&fd);
        return;
    }
    if (err != NULL) {
        shelf_failed(shelf, err);
    } else if (shelf->pool->sheds != NULL) {
        fd_close(&fd);
        shelf->pool->shedding++;
        discard(engine, answer->made.box, making.disk, true);
    } else if (engine->is_draining || shelf->is_removed) {
        fd_close(&fd);
        pool_discard(engine, answer->made.box, making.disk);
    } else if (ready_add(shelf, answer->made.box, making.disk, fd, &why) != 0) {
        pool_discard(engine, answer->made.box, making.disk);
        shelf_failed(shelf, &why);
    }
    shed_settle(shelf->pool);
    engine_settled(engine);
}

static void turn_comes(void *arg)
{
    struct making *making = arg;
    struct shelf *shelf = making->shelf;
    struct engine *engine = shelf->pool->engine;
    union keeper_request request;

    if (engine->is_closing) {
        free(making);
        return;
    }
    if (shelf->pool->sheds != NULL || shelf->is_removed) { /* it would be thrown away */
        box_turn_leave(engine, &making->turn);
        free(making);
        shelf->making--;
        shed_settle(shelf->pool);
        engine_settled(engine);
        return;
    }
    memset(&request, 0, sizeof(request));
    if (shelf->disk_kind == KEEPER_PERSISTENT)
        engine_id(making->disk, KEEPER_ID_LENGTH + 1, "d0");
    memcpy(request.make.root, shelf->root, sizeof(shelf->root));
    memcpy(request.make.disk, making->disk, sizeof(making->disk));
    request.make.privileges = shelf->privileges;
    request.make.disk_kind = shelf->disk_kind;
    request.make.disk_new = shelf->disk_kind == KEEPER_PERSISTENT;
    request.make.limits = engine->options.defaults;
    keeper_client_ask(engine->keeper, KEEPER_MAKE, &request, made, making);
}

static void shelf_make(struct shelf *shelf)
{
    struct making *making = engine_alloc(sizeof(*making));

    making->shelf = shelf;
    shelf->making++;
    box_turn_wait(shelf->pool->engine, BOX_TURN_MAKE, &making->turn, "", false, turn_comes, making);
}

static void shelf_fill(struct shelf *shelf)
{
    struct engine *engine = shelf->pool->engine;
    struct error err;

    if (shelf->retry.place > 0 || shelf->is_removed || engine_accepts(engine, &err) != 0)
        return;
    if (capacity_check(engine, &err) != 0) {
        shelf_failed(shelf, &err);
        return;
    }
    while (shelf->count + shelf->making < engine->options.pool)
        shelf_make(shelf);
}

static void shelf_taken(struct shelf *shelf)
{
    struct engine *engine = shelf->pool->engine;

    if (shelf->retry_ms == 0 && 2 * shelf->count >= engine->options.pool) {
        if (shelf->retry.place == 0)
            clock_set(engine->clock, &shelf->retry, clock_monotonic_ns() + LULL_MS * 1000000ULL,
                      retry, shelf);
        return;
    }
    if (shelf->retry_ms == 0)
        clock_clear(engine->clock, &shelf->retry);
    /* After the one who asks, whose request is sent first. */
    engine_later(engine, retry, shelf);
}

/* ---- the verbs ---- */

void pool_open(struct engine *engine)
{
    engine->pool = engine_alloc(sizeof(*engine->pool));
    engine->pool->engine = engine;
}

static bool is_usual(const struct engine *engine, const struct record *record)
{
    const struct box_limits *a = &record->limits, *b = &engine->options.defaults;

    return record->mounts_count == 0 && !record->mountable && record->hostname == NULL &&
           a->memory_bytes == b->memory_bytes && a->cpu_milli == b->cpu_milli &&
           a->pids == b->pids && a->disk_bytes == b->disk_bytes && a->disk_inodes == b->disk_inodes;
}

static struct shelf *shelf_of(struct pool *pool, const struct record *record)
{
    struct shelf *shelf = pool->shelves;

    while (shelf != NULL &&
           (strcmp(shelf->root, record->root) != 0 || shelf->privileges != record->privileges ||
            shelf->disk_kind != record->disk_kind ||
            shelf->has_network != network_is_wanted(record)))
        shelf = shelf->next;
    if (shelf != NULL)
        return shelf;
    shelf = engine_alloc(sizeof(*shelf));
    shelf->pool = pool;
    memcpy(shelf->root, record->root, sizeof(shelf->root));
    shelf->privileges = record->privileges;
    shelf->disk_kind = record->disk_kind;
    shelf->has_network = network_is_wanted(record);
    shelf->next = pool->shelves;
    pool->shelves = shelf;
    return shelf;
}

/* A tenant that has a line stands in it, and leaves what is ready to others. */
bool pool_take(struct engine *engine, const struct record *record, struct pool_box *out)
{
    struct shelf *shelf;
    struct ready *ready;

    if (engine->options.pool == 0 || !is_usual(engine, record) ||
        box_turns_has_line(engine, record->tenant)) {
        engine->pool_misses++;
        return false;
    }
    shelf = shelf_of(engine->pool, record);
    for (ready = shelf->boxes; ready != NULL && !ready->stands;)
        ready = ready->next;
    if (ready == NULL)
        engine->pool_misses++;
    if (ready != NULL) {
        engine->pool_hits++;
        *out = ready->box;
        ready->box.tcp = ready->box.udp = -1;
        ready_unlink(ready);
    }
    shelf_taken(shelf);
    return ready != NULL;
}

size_t pool_ready(const struct engine *engine)
{
    size_t count = 0;

    if (engine->pool == NULL)
        return 0;
    for (const struct shelf *shelf = engine->pool->shelves; shelf != NULL; shelf = shelf->next)
        for (const struct ready *ready = shelf->boxes; ready != NULL; ready = ready->next)
            count += ready->stands;
    return count;
}

/* A root that was removed or replaced: its boxes show what is not registered any more. */
void pool_named(struct engine *engine, const struct keeper_named *named)
{
    if (named->kind != KEEPER_ROOT || engine->pool == NULL)
        return;
    for (struct shelf *shelf = engine->pool->shelves; shelf != NULL; shelf = shelf->next) {
        if (strcmp(shelf->root, named->name) != 0)
            continue;
        shelf->is_removed = named->is_there == 0;
        while (shelf->boxes != NULL)
            ready_discard(shelf->boxes);
        if (!shelf->is_removed)
            engine_later(engine, retry, shelf);
    }
}

/* ---- who needs the room more ---- */

static bool is_shedding(const struct pool *pool)
{
    bool is_making = false;

    for (const struct shelf *shelf = pool->shelves; shelf != NULL; shelf = shelf->next)
        is_making |= shelf->making > 0;
    return is_making || pool->shedding > 0;
}

static void shed_settle(struct pool *pool)
{
    while (pool->sheds != NULL && !is_shedding(pool)) {
        struct shed *shed = pool->sheds;

        pool->sheds = shed->next;
        shed->done(shed->arg);
        free(shed);
    }
}

bool pool_shed(struct engine *engine, void (*done)(void *arg), void *arg)
{
    struct pool *pool = engine->pool;
    struct shed **last = &pool->sheds, *shed;

    for (struct shelf *shelf = pool->shelves; shelf != NULL; shelf = shelf->next) {
        if (shelf->boxes != NULL || shelf->making > 0)
            shelf_rest(shelf);
        while (shelf->boxes != NULL) {
            struct ready *ready = shelf->boxes;

            ready_unlink(ready);
            pool->shedding++;
            discard(engine, ready->box.box, ready->box.disk, true);
            link_close(ready->box.link);
        }
    }
    if (!is_shedding(pool))
        return false;
    shed = engine_alloc(sizeof(*shed));
    shed->done = done;
    shed->arg = arg;
    while (*last != NULL)
        last = &(*last)->next;
    *last = shed;
    return true;
}

/* The keeper is gone, and the boxes with it. */
void pool_lost(struct engine *engine)
{
    for (struct shelf *shelf = engine->pool->shelves; shelf != NULL; shelf = shelf->next) {
        clock_clear(engine->clock, &shelf->retry);
        while (shelf->boxes != NULL) {
            struct ready *ready = shelf->boxes;

            ready_unlink(ready);
            link_close(ready->box.link);
        }
    }
}

void pool_close(struct engine *engine)
{
    if (engine->pool == NULL)
        return;
    pool_lost(engine);
    for (struct shelf *shelf = engine->pool->shelves, *next; shelf != NULL; shelf = next) {
        next = shelf->next;
        free(shelf);
    }
    for (struct shed *shed = engine->pool->sheds, *next; shed != NULL; shed = next) {
        next = shed->next;
        free(shed);
    }
    free(engine->pool);
    engine->pool = NULL;
}
