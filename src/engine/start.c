/* Create and start: a box, ready in the pool or made for this sandbox, and then the record that says
 * it runs.
 *
 *   take one of the pool ----------------------------------------+
 *   or a turn -> KEEPER_MAKE -> KEEPER_MADE -> the box stands ---+--> record (name first), claim and network -> answer
 *
 * A box of the pool that turns out to have ended is none: one is made, as if the pool had been empty.
 * Whatever else fails on the way ends the box. A create that fails leaves nothing behind; a start that fails
 * leaves the sandbox as it was, or in the state error where trying again will hardly help. */
#include "base/clock.h"
#include "base/fd.h"
#include "engine/parts.h"

#include <stdio.h>
#include <string.h>

static bool is_create(const struct sandbox *sandbox)
{
    return sandbox->active->kind == VERB_CREATE;
}

/* Not before the record names another one, or is no more: until then a crash finds it by that. */
static void drop_spent_disk(struct sandbox *sandbox)
{
    if (sandbox->spent_disk[0] != '\0')
        sandbox_drop_disk(sandbox->engine, sandbox->spent_disk);
    sandbox->spent_disk[0] = '\0';
}

/* ---- giving up ---- */

/* What says nothing of the sandbox itself: it may be started when that has passed. */
static bool is_passing(const struct error *err)
{
    static const char *const codes[] = {
        "capacity",     "quota",         "draining",      "keeper_lost",    "sandbox_gone",
        "disk_in_use",  "disk_lost",     "disk_ids",      "no_memory",      "no_fds",
        "store_failed", "store_corrupt", "disk_exceeded", "sandbox_stopped"};

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (strcmp(err->code, codes[i]) == 0)
            return true;
    return false;
}

static void start_failed(struct sandbox *sandbox, const struct error *err)
{
    struct error failure = sandbox->failure; /* matters more than that of its record */
    struct record *record = sandbox->record;

    if (err != NULL) {
        /* The box is gone whatever the disk says; the next start finds that out as well. */
        record->state = is_passing(&failure) ? SANDBOX_STOPPED : SANDBOX_ERROR;
        (void)snprintf(record->reason, sizeof(record->reason), "start_failed");
        if (record->state == SANDBOX_ERROR)
            record->error = failure;
    }
    if (sandbox->record->state == SANDBOX_ERROR)
        sandbox_event(sandbox, "sandbox.error");
    sandbox_finish(sandbox, &failure);
}

static void create_undone(void *arg, uint64_t revision, const struct error *err)
{
    struct sandbox *sandbox = arg;
    struct error failure = sandbox->failure;

    (void)revision;
    if (err != NULL && strcmp(err->code, "conflict") != 0)
        log_say(LOG_LEVEL_WARN, "store_failed", "sandbox %s: what was left of its creation: %s",
                sandbox->id, err->text);
    if (sandbox->engine->is_closing || --sandbox->waits > 0)
        return;
    sandbox->record->state = SANDBOX_DELETED;
    sandbox->record->revision = 0;
    sandbox_unlist(sandbox);
    sandbox_finish(sandbox, &failure);
}

static void create_undo(struct sandbox *sandbox)
{
    struct engine *engine = sandbox->engine;
    char key[STORE_KEY_MAX];

    if (sandbox->procs != NULL) {
        procs_close(sandbox->procs, true);
        sandbox->procs = NULL;
    }
    engine_remove_files(engine, sandbox->id);
    if (sandbox->record->disk[0] != '\0')
        sandbox_drop_disk(engine, sandbox->record->disk);
    drop_spent_disk(sandbox);
    sandbox->waits = sandbox->name_key != NULL ? 3 : 2;
    (void)snprintf(key, sizeof(key), "sandbox/%s", sandbox->id);
    store_put(engine->store, key, NULL, 0, STORE_ANY, create_undone, sandbox);
    if (sandbox->name_key != NULL) {
        (void)snprintf(key, sizeof(key), "name/%s", sandbox->name_key);
        store_put(engine->store, key, NULL, 0, STORE_ANY, create_undone, sandbox);
    }
    create_undone(sandbox, 0, NULL);
}

static void box_given_up(struct sandbox *sandbox, const struct keeper_report *report)
{
    struct record *next;

    (void)report;
    sandbox_detach(sandbox, "start_failed");
    if (is_create(sandbox)) {
        create_undo(sandbox);
        return;
    }
    if (sandbox->active->kind == VERB_QUIET) { /* it is as stopped as it was */
        struct error failure = sandbox->failure;

        sandbox_finish(sandbox, &failure);
        return;
    }
    if (sandbox->record->state == SANDBOX_RUNNING || !is_passing(&sandbox->failure)) {
        bool passes = is_passing(&sandbox->failure);

        next = sandbox_next_record(sandbox, passes ? SANDBOX_STOPPED : SANDBOX_ERROR,
                                   "start_failed");
        if (!passes)
            next->error = sandbox->failure;
        sandbox_commit(sandbox, next, start_failed);
        return;
    }
    start_failed(sandbox, NULL);
}

void start_give_up(struct sandbox *sandbox, const struct error *err)
{
    sandbox->failure = *err;
    sandbox->step = STEP_END;
    clock_clear(sandbox->engine->clock, &sandbox->timer);
    if (sandbox->box != 0)
        sandbox_end_box(sandbox, box_given_up);
    else
        box_given_up(sandbox, NULL);
}

static bool gives_up(struct sandbox *sandbox)
{
    struct error err;

    if (!sandbox->is_doomed)
        return false;
    (void)error_set(&err, "sandbox_gone", 0, "sandbox %s was deleted meanwhile", sandbox->id);
    start_give_up(sandbox, &err);
    return true;
}

/* ---- a box of the pool that is none ---- */

static void spent_ended(struct sandbox *sandbox, const struct keeper_report *report)
{
    struct record *record = sandbox->record;

    (void)report;
    sandbox_detach(sandbox, "box_ended");
    if (gives_up(sandbox))
        return;
    memcpy(sandbox->spent_disk, record->disk, sizeof(record->disk));
    record->disk[0] = '\0';
    start_make(sandbox);
}

static void start_anew(struct sandbox *sandbox)
{
    log_say(LOG_LEVEL_INFO, "pool", "sandbox %s: the box that was ready has ended; one is made",
            sandbox->id);
    sandbox->from_pool = false;
    sandbox_end_box(sandbox, spent_ended);
}

/* ---- the record ---- */

/* One of the answers that the last step waits for. */
static void part_done(struct sandbox *sandbox, const struct error *err)
{
    if (sandbox->engine->is_closing)
        return;
    if (err != NULL && sandbox->failure.code[0] == '\0')
        sandbox->failure = *err;
    if (--sandbox->waits > 0)
        return;
    if (sandbox->failure.code[0] != '\0') {
        struct error failure = sandbox->failure;

        start_give_up(sandbox, &failure);
        return;
    }
    /* It may have ended before it was taken, and not have been heard yet. */
    if (sandbox->from_pool && !sandbox->has_lost)
        procs_hear(sandbox->procs);
    if (sandbox->from_pool && sandbox->has_lost) {
        start_anew(sandbox);
        return;
    }
    sandbox->from_pool = false;
    drop_spent_disk(sandbox);
    sandbox_event(sandbox, is_create(sandbox) ? "sandbox.created" : "sandbox.started");
    ports_begin(sandbox, true);
    sandbox_finish(sandbox, NULL);
}

static void claimed(void *arg, const union keeper_answer *answer, int fd, const struct error *err)
{
    struct sandbox *sandbox = arg;
    bool is_keeper_lost = err != NULL && strcmp(err->code, "keeper_lost") == 0;

    (void)answer;
    fd_close(&fd);
    if (err != NULL && !is_keeper_lost)
        sandbox->has_lost = true;
    part_done(sandbox, is_keeper_lost ? err : NULL);
}

static void name_committed(void *arg, uint64_t revision, const struct error *err)
{
    (void)revision;
    part_done(arg, err);
}

static void network_begun(struct sandbox *sandbox, const struct error *err)
{
    /* Where the box has ended there is none: it is found so by its link, too. */
    if (err != NULL && sandbox->from_pool && strcmp(err->code, "no_box") == 0) {
        sandbox->has_lost = true;
        err = NULL;
    }
    part_done(sandbox, err);
}

/* The claim is sent before the record is written: the keeper hears it however we end, so a record that
 * says "running" has a box of its own. The name is written first, so that a record never stands without:
 * see the sweeper in takeover.c. */
static void start_commit(struct sandbox *sandbox, bool claims, bool opens)
{
    struct engine *engine = sandbox->engine;
    bool names = is_create(sandbox) && sandbox->name_key != NULL;
    struct record *next = sandbox_next_record(sandbox, SANDBOX_RUNNING,
                                              is_create(sandbox) ? "created" : "started");

    sandbox->boxed_ns = clock_monotonic_ns();
    sandbox->step = STEP_COMMIT;
    sandbox->failure = (struct error){0};
    sandbox->waits = 1U + (claims ? 2 : 0) + (names ? 1 : 0) + (opens ? 1 : 0);
    if (opens)
        network_begin(sandbox, network_begun);
    if (claims) { /* for that, and for the box's link */
        union keeper_request request = {.claim = {.box = sandbox->box}};

        memcpy(request.claim.owner, sandbox->id, sizeof(sandbox->id));
        memcpy(request.claim.tenant, sandbox->record->tenant, sizeof(request.claim.tenant));
        keeper_client_ask(engine->keeper, KEEPER_CLAIM, &request, claimed, sandbox);
    }
    if (names) {
        char key[STORE_KEY_MAX];

        (void)snprintf(key, sizeof(key), "name/%s", sandbox->name_key);
        store_put(engine->store, key, sandbox->id, strlen(sandbox->id), STORE_ANY, name_committed,
                  sandbox);
    }
    sandbox_commit(sandbox, next, part_done);
}

/* ---- the box ---- */

void start_ready(struct sandbox *sandbox)
{
    clock_clear(sandbox->engine->clock, &sandbox->timer);
    if (gives_up(sandbox))
        return;
    sandbox->is_quiet = sandbox->active->kind == VERB_QUIET;
    if (sandbox->is_quiet)
        sandbox_finish(sandbox, NULL);
    else
        start_commit(sandbox, false, network_is_wanted(sandbox->record));
}

static void too_slow(void *arg)
{
    struct sandbox *sandbox = arg;
    struct error err;

    (void)error_set(&err, "sandbox_failed", 0,
                    "the box did not stand within %d s; is the host overloaded?",
                    ENGINE_READY_MS / 1000);
    start_give_up(sandbox, &err);
}

static void make_again(void *arg)
{
    if (!gives_up(arg))
        start_make(arg);
}

/* Boxes that nobody uses yet are in the way of one that is asked for. */
static bool is_shed(struct sandbox *sandbox, const struct error *err)
{
    bool had_shed = sandbox->has_shed;

    sandbox->has_shed = !had_shed && err != NULL && strcmp(err->code, "capacity") == 0 &&
                        !sandbox->is_doomed && pool_shed(sandbox->engine, make_again, sandbox);
    return sandbox->has_shed;
}

static void made(void *arg, const union keeper_answer *answer, int fd, const struct error *err)
{
    struct sandbox *sandbox = arg;
    struct link *link;
    struct error why;

    box_turn_leave(sandbox->engine, &sandbox->turn);
    if (sandbox->engine->is_closing) {
        fd_close(&fd);
        return;
    }
    if (err != NULL) {
        if (is_create(sandbox))
            sandbox->record->disk[0] = '\0'; /* it was not made either */
        if (!is_shed(sandbox, err))
            start_give_up(sandbox, err);
        return;
    }
    sandbox->has_shed = false;
    sandbox->box = answer->made.box;
    if (sandbox->is_doomed) {
        fd_close(&fd);
        (void)gives_up(sandbox);
        return;
    }
    if (link_open(fd, &link, &why) != 0) {
        start_give_up(sandbox, &why);
        return;
    }
    sandbox->step = STEP_READY;
    clock_set(sandbox->engine->clock, &sandbox->timer,
              clock_monotonic_ns() + ENGINE_READY_MS * 1000000ULL, too_slow, sandbox);
    if (sandbox_attach(sandbox, link, true, &why) != 0)
        start_give_up(sandbox, &why);
}

static void make_fill(struct keeper_make *make, const struct record *record)
{
    (void)snprintf(make->root, sizeof(make->root), "%s", record->root);
    make->privileges = record->privileges;
    make->disk_kind = record->disk_kind;
    (void)snprintf(make->disk, sizeof(make->disk), "%s", record->disk);
    (void)snprintf(make->owner, sizeof(make->owner), "%s", record->id);
    memcpy(make->tenant, record->tenant, sizeof(make->tenant));
    (void)snprintf(make->hostname, sizeof(make->hostname), "%s",
                   record->hostname != NULL ? record->hostname : "");
    make->limits = record->limits;
    make->mounts_count = (uint32_t)record->mounts_count;
    make->takes_mounts = record->mountable;
    memcpy(make->mounts, record->mounts, record->mounts_count * sizeof(make->mounts[0]));
}

/* ---- its turn ---- */

bool start_leave(struct sandbox *sandbox, const struct error *err)
{
    if (sandbox->turn.step != BOX_TURN_WAITS)
        return false;
    box_turn_leave(sandbox->engine, &sandbox->turn);
    start_give_up(sandbox, err);
    return true;
}

static void wait_is_over(void *arg);

static void wait_arm(struct sandbox *sandbox)
{
    uint64_t deadline = sandbox_deadline_ns(sandbox->record);

    if (deadline != UINT64_MAX)
        clock_set(sandbox->engine->clock, &sandbox->timer, clock_monotonic_ns() + deadline,
                  wait_is_over, sandbox);
}

static void wait_is_over(void *arg)
{
    struct sandbox *sandbox = arg;
    struct error err;

    if (sandbox_deadline_ns(sandbox->record) > 0) {
        wait_arm(sandbox);
        return;
    }
    (void)error_set(&err, is_create(sandbox) ? "sandbox_gone" : "sandbox_stopped", 0,
                    "the deadline of sandbox %s has passed while it waited for its turn; set a "
                    "later one, then try again",
                    sandbox->id);
    (void)start_leave(sandbox, &err);
}

static void turn_comes(void *arg)
{
    struct sandbox *sandbox = arg;
    struct record *record = sandbox->record;
    union keeper_request request;

    if (sandbox->engine->is_closing)
        return;
    clock_clear(sandbox->engine->clock, &sandbox->timer);
    memset(&request, 0, sizeof(request));
    if (record->disk_kind == KEEPER_PERSISTENT && record->disk[0] == '\0') {
        engine_id(record->disk, KEEPER_ID_LENGTH + 1, "d0");
        request.make.disk_new = 1;
    }
    make_fill(&request.make, record);
    keeper_client_ask(sandbox->engine->keeper, KEEPER_MAKE, &request, made, sandbox);
}

/* One with mounts may wait for a file system of the host, and takes no turn of those that work meanwhile. */
void start_make(struct sandbox *sandbox)
{
    bool has_mounts = sandbox->record->mounts_count > 0;

    sandbox->step = STEP_MAKE;
    if (!is_create(sandbox))
        sandbox->turn.number = 0; /* an earlier one's is over */
    box_turn_wait(sandbox->engine, has_mounts ? BOX_TURN_MOUNT : BOX_TURN_MAKE, &sandbox->turn,
                  sandbox->record->tenant, !is_create(sandbox), turn_comes, sandbox);
    if (sandbox->turn.step == BOX_TURN_WAITS)
        wait_arm(sandbox);
}

/* ---- the verb ---- */

static bool start_from_pool(struct sandbox *sandbox)
{
    struct pool_box taken;
    struct error err;

    /* The disk of a persistent sandbox that was stopped is not one of the pool's. */
    if (sandbox->record->disk[0] != '\0' || !pool_take(sandbox->engine, sandbox->record, &taken))
        return false;
    sandbox->box = taken.box;
    memcpy(sandbox->record->disk, taken.disk, sizeof(taken.disk));
    sandbox->from_pool = true;
    /* First, for the disk is what is waited for longest. */
    start_commit(sandbox, true, false);
    if (sandbox_attach(sandbox, taken.link, true, &err) != 0)
        sandbox->has_lost = true;
    if (taken.tcp >= 0 && network_take(sandbox, taken.tcp, taken.udp, &err) != 0)
        part_done(sandbox, &err);
    else
        part_done(sandbox, NULL);
    return true;
}

/* What was checked at create, when it is started again. */
int start_check(struct sandbox *sandbox, struct error *err)
{
    const struct record *record = sandbox->record;
    struct engine *engine = sandbox->engine;

    if (engine_accepts(engine, err) != 0)
        return -1;
    if (record->deadline_ms > 0 && record->deadline_ms <= clock_wall_ms())
        return error_set(err, "sandbox_stopped", 0,
                         "the deadline of sandbox %s has passed; set a later one, then start it",
                         sandbox->id);
    if (!engine_named_is(engine, KEEPER_ROOT, record->root, record->tenant))
        return error_set(err, "unknown_root", 0,
                         "the root '%s' of sandbox %s is not registered any more; ask the "
                         "operator to add it",
                         record->root, sandbox->id);
    for (size_t i = 0; i < record->mounts_count; i++)
        if (!engine_named_is(engine, KEEPER_MOUNT, record->mounts[i].name, record->tenant))
            return error_set(err, "unknown_mount", 0,
                             "the mount '%s' of sandbox %s is not registered any more; ask the "
                             "operator to add it",
                             record->mounts[i].name, sandbox->id);
    if (sandbox->is_quiet) /* what it needs it has */
        return 0;
    if (quota_check(engine, record, false, err) != 0)
        return -1;
    return capacity_check(engine, err);
}

void start_work(struct sandbox *sandbox)
{
    struct error err;

    sandbox->begun_ns = clock_monotonic_ns();
    sandbox->failure = (struct error){0};
    sandbox->from_pool = sandbox->has_lost = false;
    if (!is_create(sandbox) && start_check(sandbox, &err) != 0) {
        sandbox_finish(sandbox, &err);
        return;
    }
    if (sandbox->is_quiet) {
        sandbox->is_quiet = false;
        start_commit(sandbox, false, network_is_wanted(sandbox->record));
        return;
    }
    if (!start_from_pool(sandbox))
        start_make(sandbox);
}
