/* Keeps disks from filling the file system under the data directory. Disks are promised beyond what is there, for most
 * never take what they may; so the sum of what is promised has a bound, and what is written is looked after.
 *
 * While room is short, each tenant's disks may grow by its share of what is left and no more: those that have least
 * share it first, so that a tenant which has filled much gets nothing, and the others go on. The keeper holds a disk
 * to that (keeper/disk_hold.h): a write beyond it is ENOSPC in that box alone. Where a disk cannot be held, or has
 * allocated before what is not there, the box of the tenant that has grown most is ended before the rest is gone, and
 * what of its disk was only in caches is lost; but none as long as what is free is not short. Nothing else here takes
 * anything from a disk. */
#include "base/fd.h"
#include "engine/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In this time boxes cannot write what stays free: that is twice the headroom, 1 GiB. */
#define PERIOD_NS 100000000ULL
#define IDLE_NS 1000000000ULL /* while nobody can write */
/* A disk that can grow by less is as good as full. */
#define LEAST_BYTES (1U << 20)
/* Of the headroom, the part that nobody has by accident where nothing may grow. */
#define GROWN_SHARE 16
/* Of what is really left, the part that all others have while the tenant that took it is being ended. */
#define SPARE_SHARE 4
/* A box that is ended writes what is in its caches first. */
#define END_NS 2000000000ULL
/* Of stopped sandboxes, so that a new engine with very many asks for them by and by. */
#define WEIGHED_AT_ONCE 256

struct disk_room {
    struct engine *engine;
    struct alarm alarm;
    size_t asked; /* answers that are not there yet */
    bool is_short;
    bool is_unsure; /* until it looked: boxes may be held by an engine that was here before */
    uint64_t free, left;
    char ended[KEEPER_ID_LENGTH + 4]; /* the sandbox that was, last, and when */
    uint64_t ended_ns;
};

/* A tenant while room is shared out. */
struct claim {
    const char *tenant;
    uint64_t used, lease, grown;
    size_t boxes;
};

struct claims {
    struct map map;
    struct claim *all;
    size_t count;
};

static bool has_disk(const struct sandbox *sandbox)
{
    return sandbox->record->disk_kind == KEEPER_PERSISTENT &&
           sandbox->record->state != SANDBOX_DELETED;
}

static bool writes(const struct sandbox *sandbox)
{
    return has_disk(sandbox) && sandbox->box != 0;
}

/* ---- what is promised ---- */

static uint64_t promised_to(const struct engine *engine, const char *tenant, uint64_t *all)
{
    uint64_t own = 0;

    *all = 0;
    for (const struct sandbox *sandbox = engine->oldest; sandbox != NULL;
         sandbox = sandbox->newer) {
        if (!has_disk(sandbox))
            continue;
        *all += sandbox->record->limits.disk_bytes;
        if (strcmp(sandbox->record->tenant, tenant) == 0)
            own += sandbox->record->limits.disk_bytes;
    }
    return own;
}

uint64_t disk_room_promised(const struct engine *engine)
{
    uint64_t all;

    (void)promised_to(engine, "", &all);
    return all;
}

uint64_t disk_room_most(struct engine *engine)
{
    uint64_t headroom = engine->options.headroom_disk_bytes,
             times = engine->options.disk_overcommit;
    struct engine_capacity capacity;
    uint64_t bytes;

    capacity_look(engine, &capacity);
    if (capacity.disk_bytes == UINT64_MAX || times == 0)
        return UINT64_MAX;
    bytes = capacity.disk_bytes > headroom ? capacity.disk_bytes - headroom : 0;
    return bytes > UINT64_MAX / times ? UINT64_MAX : bytes * times;
}

/* A tenant without a quota may be promised as much as that leaves to all others, as it is with places for requests: so
 * the last part is never taken. One with a quota has what the operator gave it. */
int disk_room_check(struct engine *engine, const struct record *record, struct error *err)
{
    uint64_t most = disk_room_most(engine), wanted = record->limits.disk_bytes, own, all, left,
             largest;
    struct engine_capacity capacity;

    if (record->disk_kind != KEEPER_PERSISTENT)
        return 0;
    /* No waiting makes room for that: no disk is larger than what it lies on. */
    capacity_look(engine, &capacity);
    largest = most == UINT64_MAX || most < capacity.disk_bytes ? most : capacity.disk_bytes;
    if (wanted > largest)
        return error_set(
            err, "bad_request", 0,
            "resources.disk_bytes: %llu is more than this host can give one sandbox, which is %llu; ask for less "
            "(--disk) or for an ephemeral disk, or set 'disk' below [boxes], which holds where none is asked for",
            (unsigned long long)wanted, (unsigned long long)largest);
    own = promised_to(engine, record->tenant, &all);
    left = most > all ? most - all : 0;
    if (wanted > left)
        return error_set(err, "capacity", 0,
                         "the disks of sandboxes are promised all that this host gives them "
                         "(disk_overcommit); ask for a smaller or an ephemeral one, or delete "
                         "sandboxes");
    if (own + wanted <= left - wanted || quota_disk(engine, record->tenant) > 0)
        return 0;
    return error_set(err, "capacity", 0,
                     "tenant '%s' has %llu bytes of disk and asks for %llu more, which would leave "
                     "less to all others; ask for a smaller or an ephemeral disk, delete "
                     "sandboxes, or ask the operator for a quota of disk (cove quota --disk)",
                     record->tenant, (unsigned long long)own, (unsigned long long)wanted);
}

/* ---- sharing out what is left ---- */

static struct claim *claim_of(struct claims *claims, const char *tenant)
{
    struct claim *claim = map_get(&claims->map, tenant);

    if (claim == NULL) {
        claim = &claims->all[claims->count++];
        *claim = (struct claim){.tenant = tenant};
        map_put(&claims->map, tenant, claim);
    }
    return claim;
}

static void claims_read(struct engine *engine, struct claims *claims)
{
    *claims = (struct claims){.all = engine_alloc((engine->count + 1) * sizeof(*claims->all))};
    for (const struct sandbox *sandbox = engine->oldest; sandbox != NULL;
         sandbox = sandbox->newer) {
        struct claim *claim;

        if (!has_disk(sandbox))
            continue;
        claim = claim_of(claims, sandbox->record->tenant);
        claim->used += sandbox->weight.used;
        claim->boxes += writes(sandbox);
        claim->grown += writes(sandbox) ? sandbox->weight.grown : 0;
    }
}

static void claims_free(struct claims *claims)
{
    map_free(&claims->map);
    free(claims->all);
}

static int by_use(const void *a, const void *b)
{
    const struct claim *const *one = a, *const *other = b;

    return ((*one)->used > (*other)->used) - ((*one)->used < (*other)->used);
}

/* Raises those that have least to the same level, as water does, until nothing is left. */
static void claims_fill(struct claims *claims, uint64_t left)
{
    struct claim **sorted = engine_alloc((claims->count + 1) * sizeof(struct claim *));
    uint64_t level = 0;
    size_t count = 0, filled = 0;

    for (size_t i = 0; i < claims->count; i++)
        if (claims->all[i].boxes > 0)
            sorted[count++] = &claims->all[i];
    qsort(sorted, count, sizeof(struct claim *), by_use);
    while (filled < count && filled * (sorted[filled]->used - level) <= left) {
        left -= filled * (sorted[filled]->used - level);
        level = sorted[filled++]->used;
    }
    level += filled > 0 ? left / filled : 0;
    for (size_t i = 0; i < filled; i++)
        sorted[i]->lease = level - sorted[i]->used;
    free(sorted);
}

/* ---- asking ---- */

struct question {
    struct disk_room *room;
    char sandbox[KEEPER_ID_LENGTH + 4];
};

static struct sandbox *answered(struct question *question, int fd)
{
    struct disk_room *room = question->room;
    struct sandbox *sandbox = map_get(&room->engine->ids, question->sandbox);

    fd_close(&fd);
    free(question);
    room->asked--;
    engine_settled(room->engine);
    return room->engine->is_closing ? NULL : sandbox;
}

static void ask(struct disk_room *room, const struct sandbox *sandbox, enum keeper_type type,
                union keeper_request *request, keeper_answered done)
{
    struct question *question = engine_alloc(sizeof(*question));

    question->room = room;
    if (sandbox != NULL)
        memcpy(question->sandbox, sandbox->id, sizeof(sandbox->id));
    room->asked++;
    keeper_client_ask(room->engine->keeper, type, request, done, question);
}

static uint64_t beyond(uint64_t value, uint64_t base)
{
    return value > base ? value - base : 0;
}

static void held(void *arg, const union keeper_answer *answer, int fd, const struct error *err)
{
    struct sandbox *sandbox = answered(arg, fd);
    struct disk_weight *weight;
    uint64_t used, written;

    if (sandbox == NULL || err != NULL || answer->disks.used_bytes == UINT64_MAX)
        return;
    weight = &sandbox->weight;
    used = answer->disks.used_bytes;
    written = answer->disks.written_bytes;
    if (weight->base_used == UINT64_MAX) {
        weight->base_used = used;
        weight->base_written = written;
    }
    weight->used = used;
    weight->is_known = true;
    weight->is_held = answer->disks.is_held != 0;
    weight->grown = beyond(used, weight->base_used);
    if (weight->grown < beyond(written, weight->base_written))
        weight->grown = beyond(written, weight->base_written);
    if (weight->grown < beyond(used, written))
        weight->grown = beyond(used, written);
}

static void weighed(void *arg, const union keeper_answer *answer, int fd, const struct error *err)
{
    struct sandbox *sandbox = answered(arg, fd);

    if (sandbox == NULL || err != NULL || sandbox->weight.is_known)
        return;
    sandbox->weight.is_known = true;
    if (answer->report.disk_bytes != UINT64_MAX)
        sandbox->weight.used = answer->report.disk_bytes;
}

static void hold(struct disk_room *room, const struct sandbox *sandbox, uint64_t most)
{
    union keeper_request request = {.hold = {.box = sandbox->box, .most = most}};

    ask(room, sandbox, KEEPER_HOLD_DISK, &request, held);
}

/* A disk that no box has stays as it is. */
static void weigh_stopped(struct disk_room *room)
{
    size_t count = 0;

    for (struct sandbox *sandbox = room->engine->oldest; sandbox != NULL && count < WEIGHED_AT_ONCE;
         sandbox = sandbox->newer) {
        union keeper_request request = {0};

        if (!has_disk(sandbox) || sandbox->box != 0 || sandbox->weight.is_known ||
            sandbox->record->disk[0] == '\0')
            continue;
        memcpy(request.of_disk.disk, sandbox->record->disk, sizeof(request.of_disk.disk));
        ask(room, sandbox, KEEPER_WEIGH_DISK, &request, weighed);
        count++;
    }
}

/* ---- while room is short ---- */

static uint64_t floor_of(const struct engine *engine)
{
    uint64_t headroom = engine->options.headroom_disk_bytes;

    return headroom + headroom / 8; /* so that sandboxes can be made and started still */
}

static uint64_t short_of(const struct engine *engine)
{
    uint64_t headroom = engine->options.headroom_disk_bytes;

    return headroom > UINT64_MAX / 4 ? UINT64_MAX / 2 : 2 * headroom;
}

static void tell(struct sandbox *sandbox)
{
    if (sandbox->weight.is_told)
        return;
    sandbox->weight.is_told = true;
    events_add(sandbox->engine, "sandbox.disk_held", sandbox->record->tenant, sandbox->id, NULL,
               "host_full");
    log_say(LOG_LEVEL_WARN, "disk_held",
            "the disk of sandbox %s of tenant '%s' may not grow: the host's disk is nearly full; "
            "delete sandboxes, or make room below the data directory",
            sandbox->id, sandbox->record->tenant);
}

/* True if less is left than was leased: boxes had allocated what is not there. */
static bool is_overdrawn(const struct disk_room *room)
{
    return room->left < room->engine->options.headroom_disk_bytes / 2;
}

/* True if the file system itself says so, too. The amount that is left is a guess: a host that compresses disks may never
 * need what boxes have allocated. The caches hold so much that to wait for less would leave nothing to the others'
 * disks. */
static bool is_nearly_full(const struct disk_room *room)
{
    return room->free < 2 * short_of(room->engine);
}

/* The tenant to blame; NULL: none, or nobody knows yet. */
static struct claim *most_grown(const struct engine *engine, const struct claims *claims)
{
    struct claim *most = NULL;

    for (size_t i = 0; i < claims->count; i++)
        if (claims->all[i].grown >= engine->options.headroom_disk_bytes / GROWN_SHARE &&
            (most == NULL || claims->all[i].grown > most->grown))
            most = &claims->all[i];
    return most;
}

/* While room is overdrawn, the headroom serves those who are not to blame. */
static const struct claim *share_spare(struct engine *engine, struct claims *claims)
{
    struct claim *most = most_grown(engine, claims);
    struct engine_capacity capacity;

    capacity_look(engine, &capacity);
    claims_fill(claims, beyond(capacity.disk_available, engine->options.headroom_disk_bytes / 2) /
                            SPARE_SHARE);
    if (most != NULL)
        most->lease = 0;
    return most;
}

static bool is_ending(const struct disk_room *room)
{
    const struct sandbox *sandbox = map_get(&room->engine->ids, room->ended);

    return sandbox != NULL && sandbox->box != 0 && clock_monotonic_ns() - room->ended_ns < END_NS;
}

static void cut(void *arg, const union keeper_answer *answer, int fd, const struct error *err)
{
    (void)answer;
    (void)err; /* it has ended before, or its disk is none that can be cut */
    (void)answered(arg, fd);
}

static void end(struct disk_room *room, struct sandbox *sandbox)
{
    union keeper_request request = {.of_box = {.box = sandbox->box}};
    struct verb *verb;

    memcpy(room->ended, sandbox->id, sizeof(room->ended));
    room->ended_ns = clock_monotonic_ns();
    log_say(LOG_LEVEL_WARN, "host_full",
            "sandbox %s of tenant '%s' is stopped: the host's disk is nearly full, and it has "
            "written most since room was short; delete sandboxes, or make room below the data "
            "directory",
            sandbox->id, sandbox->record->tenant);
    ask(room, sandbox, KEEPER_CUT_DISK, &request, cut);
    verb = verb_new(VERB_STOP, NULL);
    (void)snprintf(verb->reason, sizeof(verb->reason), "host_full");
    sandbox_push(sandbox, verb);
}

/* Whether its box is to end: of the tenant that is to blame while room is overdrawn (`most`, or NULL), or one that
 * grows where it may not. Nobody is ended for what others than boxes have written. */
static bool is_over(const struct sandbox *sandbox, const struct claim *claim,
                    const struct claim *most)
{
    const struct disk_weight *weight = &sandbox->weight;
    uint64_t least = sandbox->engine->options.headroom_disk_bytes / GROWN_SHARE;

    return sandbox->active == NULL && weight->is_known &&
           (claim == most || (!weight->is_held && claim->lease == 0 && weight->grown >= least));
}

static void share_out(struct disk_room *room)
{
    struct engine *engine = room->engine;
    struct sandbox *over = NULL;
    const struct claim *most = NULL;
    struct claims claims;

    claims_read(engine, &claims);
    if (is_overdrawn(room))
        most = share_spare(engine, &claims);
    else
        claims_fill(&claims, beyond(room->left, floor_of(engine)));
    for (struct sandbox *sandbox = engine->oldest; sandbox != NULL; sandbox = sandbox->newer) {
        const struct claim *claim;
        uint64_t lease;

        if (!writes(sandbox))
            continue;
        claim = claim_of(&claims, sandbox->record->tenant);
        lease = claim->lease / claim->boxes;
        if (lease < LEAST_BYTES && sandbox->weight.is_known)
            tell(sandbox);
        hold(room, sandbox, lease);
        if (is_over(sandbox, claim, most) &&
            (over == NULL || sandbox->weight.grown > over->weight.grown))
            over = sandbox;
    }
    claims_free(&claims);
    if (over != NULL && is_nearly_full(room) && !is_ending(room))
        end(room, over);
}

static void base_forget(struct disk_weight *weight)
{
    weight->base_used = weight->base_written = UINT64_MAX;
    weight->grown = 0;
}

static void short_set(struct disk_room *room, bool is_short)
{
    struct engine *engine = room->engine;
    bool was_short = room->is_short;

    if (was_short == is_short && !room->is_unsure)
        return;
    room->is_short = is_short;
    room->is_unsure = false;
    if (is_short)
        log_say(LOG_LEVEL_WARN, "disk_short",
                "the host's disk has %llu MiB left below the data directory, so disks of sandboxes "
                "grow by their tenant's share of that; delete sandboxes, or make room there",
                (unsigned long long)room->left >> 20);
    else if (was_short)
        log_say(LOG_LEVEL_INFO, "disk_short", "the host's disk has room again");
    for (struct sandbox *sandbox = engine->oldest; sandbox != NULL; sandbox = sandbox->newer) {
        base_forget(&sandbox->weight);
        sandbox->weight.is_told = false;
        if (!is_short && writes(sandbox))
            hold(room, sandbox, UINT64_MAX);
    }
}

/* ---- looking ---- */

static void room_told(void *arg, const union keeper_answer *answer, int fd, const struct error *err)
{
    struct disk_room *room = ((struct question *)arg)->room;
    struct engine *engine = room->engine;
    uint64_t bound = short_of(engine);

    (void)answered(arg, fd);
    if (engine->is_closing || err != NULL)
        return;
    room->free = answer->disks.free_bytes;
    room->left = answer->disks.left_bytes;
    short_set(room, room->left < (room->is_short ? bound + bound / 4 : bound));
    if (!room->is_short)
        return;
    weigh_stopped(room);
    share_out(room);
}

/* To all disks that boxes have. */
static uint64_t promised_now(const struct engine *engine)
{
    uint64_t promised = 0;

    for (const struct sandbox *sandbox = engine->oldest; sandbox != NULL; sandbox = sandbox->newer)
        promised += writes(sandbox) ? sandbox->record->limits.disk_bytes : 0;
    return promised;
}

/* Nothing is asked where all that boxes may write is there. */
static void look(void *arg)
{
    struct disk_room *room = arg;
    struct engine *engine = room->engine;
    uint64_t promised = promised_now(engine);
    union keeper_request request = {0};
    struct engine_capacity capacity;

    if (engine->is_draining || engine->is_lost || (promised == 0 && !room->is_short))
        return;
    clock_set(engine->clock, &room->alarm,
              clock_monotonic_ns() + (promised == 0 ? IDLE_NS : PERIOD_NS), look, room);
    capacity_look(engine, &capacity);
    if (!engine->is_ready || room->asked > 0 ||
        (!room->is_short && !room->is_unsure &&
         beyond(capacity.disk_available, short_of(engine)) >= promised))
        return;
    ask(room, NULL, KEEPER_DISK_ROOM, &request, room_told);
}

void disk_room_explain(const struct engine *engine, const char *sandbox, struct error *err)
{
    if (strcmp(err->code, "disk_full") == 0 && engine->disk_room->is_short)
        (void)error_set(err, "disk_full", err->errnum,
                        "sandbox %s may write no more, for the host's disk is nearly full; remove "
                        "files or sandboxes that are not needed, or ask the operator to make room",
                        sandbox);
}

void disk_room_wake(struct sandbox *sandbox)
{
    struct engine *engine = sandbox->engine;
    struct disk_room *room = engine->disk_room;

    base_forget(&sandbox->weight);
    room->is_unsure |= engine->takeover != NULL; /* a box that is taken over */
    if (room->alarm.place == 0 && engine->options.headroom_disk_bytes > 0)
        clock_set(engine->clock, &room->alarm, clock_monotonic_ns() + PERIOD_NS, look, room);
}

void disk_room_open(struct engine *engine)
{
    engine->disk_room = engine_alloc(sizeof(*engine->disk_room));
    engine->disk_room->engine = engine;
}

void disk_room_close(struct engine *engine)
{
    if (engine->disk_room != NULL)
        clock_clear(engine->clock, &engine->disk_room->alarm);
    free(engine->disk_room);
    engine->disk_room = NULL;
}
