/* Work beside the loop: what takes milliseconds for one request is done by a thread of the loop's pool, for meanwhile
 * the loop would hear nobody else.
 *
 * A tenant has one piece of work there at a time, and tenants take turns, so nobody waits behind all that another one
 * has to be done, and a tenant's pieces are done in their order. A thread gets what its piece names and looks at nothing
 * else. */
#include "front/native/parts.h"

#include <stdio.h>
#include <string.h>

/* Of the pool's four threads: the disk, handshakes and names need the others. */
#define WORKING_MAX 2

static void serve(struct native *native);

static void work(uv_work_t *work_of)
{
    struct beside *piece = work_of->data;

    piece->work(piece);
}

static void worked(uv_work_t *work_of, int status)
{
    struct beside *piece = work_of->data;
    struct native *native = piece->native;
    (void)status;

    TAILQ_REMOVE(&native->besides.working, piece, next);
    native->besides.working_count--;
    piece->is_working = false;
    serve(native);
    piece->done(piece, native->besides.is_closing);
}

static bool is_same_tenant(const struct beside *one, const struct beside *other)
{
    return strcmp(one->tenant, other->tenant) == 0;
}

static bool is_at_work(const struct native *native, const struct beside *piece)
{
    const struct beside *other;

    TAILQ_FOREACH(other, &native->besides.working, next)
    if (is_same_tenant(piece, other))
        return true;
    return false;
}

static struct beside *choose(const struct native *native)
{
    struct beside *piece;

    TAILQ_FOREACH(piece, &native->besides.waiting, next)
    if (!is_at_work(native, piece))
        return piece;
    return NULL;
}

/* Its tenant has had a turn: what else the tenant has waits behind everybody else's. */
static void leave_waiting(struct native *native, struct beside *piece)
{
    struct beside *last = TAILQ_LAST(&native->besides.waiting, beside_list), *other, *after;

    for (other = TAILQ_FIRST(&native->besides.waiting); other != NULL; other = after) {
        after = other != last ? TAILQ_NEXT(other, next) : NULL;
        if (other != piece && !is_same_tenant(other, piece))
            continue;
        TAILQ_REMOVE(&native->besides.waiting, other, next);
        if (other != piece)
            TAILQ_INSERT_TAIL(&native->besides.waiting, other, next);
    }
}

static void serve(struct native *native)
{
    struct beside *piece;

    while (!native->besides.is_closing && native->besides.working_count < WORKING_MAX &&
           (piece = choose(native)) != NULL) {
        leave_waiting(native, piece);
        TAILQ_INSERT_TAIL(&native->besides.working, piece, next);
        native->besides.working_count++;
        piece->is_working = true;
        (void)uv_queue_work(native->options.loop, &piece->work_of, work, worked);
    }
}

void besides_open(struct native *native)
{
    TAILQ_INIT(&native->besides.waiting);
    TAILQ_INIT(&native->besides.working);
}

void beside_add(struct beside *piece, struct native *native, const char *tenant)
{
    piece->native = native;
    (void)snprintf(piece->tenant, sizeof(piece->tenant), "%s", tenant);
    piece->work_of.data = piece;
    /* The loop turns once more when all is settled. */
    if (native->besides.is_closing) {
        piece->done(piece, true);
        return;
    }
    TAILQ_INSERT_TAIL(&native->besides.waiting, piece, next);
    serve(native);
}

bool beside_cancel(struct beside *piece)
{
    if (piece->is_working)
        return false;
    TAILQ_REMOVE(&piece->native->besides.waiting, piece, next);
    return true;
}

void native_settle(struct native *native)
{
    native->besides.is_closing = true;
    while (!TAILQ_EMPTY(&native->besides.waiting)) {
        struct beside *piece = TAILQ_FIRST(&native->besides.waiting);

        TAILQ_REMOVE(&native->besides.waiting, piece, next);
        piece->done(piece, true);
    }
    while (native->besides.working_count > 0)
        (void)uv_run(native->options.loop, UV_RUN_ONCE);
}
