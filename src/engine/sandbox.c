/* A sandbox: its queue of verbs, the table of which verb does what in which state, its processes.
 *
 * A verb that comes while another is at work waits, and then finds the state that the other has left:
 * so a stop during a stop finds it stopped, and is answered. A delete goes ahead of all that wait and
 * makes a start that is under way give up. Each verb is answered once, in sandbox_finish() or in
 * sandbox_next(), whatever fails on the way. */
#include "base/clock.h"
#include "base/fd.h"
#include "engine/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

enum verb_action {
    IMPOSSIBLE,
    WORK,   /* it is done now */
    ANSWER, /* it is so already */
    ANEW,   /* a create that came while this one was deleted: it makes its own */
    NOT_RUNNING,
    NOT_THERE,
};

/* Rows that nothing leads to yet (paused, archived) answer as stopped. */
static const enum verb_action actions[VERB_KINDS][SANDBOX_DELETED + 1] = {
    [VERB_CREATE] = {[SANDBOX_CREATING] = WORK},
    [VERB_JOIN] = {[SANDBOX_CREATING] = ANEW,
                   [SANDBOX_RUNNING] = ANSWER,
                   [SANDBOX_PAUSED] = ANSWER,
                   [SANDBOX_STOPPED] = ANSWER,
                   [SANDBOX_ARCHIVED] = ANSWER,
                   [SANDBOX_ERROR] = ANSWER,
                   [SANDBOX_DELETED] = ANEW},
    [VERB_START] = {[SANDBOX_CREATING] = NOT_THERE,
                    [SANDBOX_RUNNING] = ANSWER,
                    [SANDBOX_PAUSED] = WORK,
                    [SANDBOX_STOPPED] = WORK,
                    [SANDBOX_ARCHIVED] = WORK,
                    [SANDBOX_ERROR] = WORK,
                    [SANDBOX_DELETED] = NOT_THERE},
    [VERB_STOP] = {[SANDBOX_CREATING] = NOT_THERE,
                   [SANDBOX_RUNNING] = WORK,
                   [SANDBOX_PAUSED] = WORK,
                   [SANDBOX_STOPPED] = ANSWER,
                   [SANDBOX_ARCHIVED] = ANSWER,
                   [SANDBOX_ERROR] = WORK,
                   [SANDBOX_DELETED] = NOT_THERE},
    [VERB_DELETE] = {[SANDBOX_CREATING] = ANSWER,
                     [SANDBOX_RUNNING] = WORK,
                     [SANDBOX_PAUSED] = WORK,
                     [SANDBOX_STOPPED] = WORK,
                     [SANDBOX_ARCHIVED] = WORK,
                     [SANDBOX_ERROR] = WORK,
                     [SANDBOX_DELETED] = ANSWER},
    [VERB_CHANGE] = {[SANDBOX_CREATING] = NOT_THERE,
                     [SANDBOX_RUNNING] = WORK,
                     [SANDBOX_PAUSED] = WORK,
                     [SANDBOX_STOPPED] = WORK,
                     [SANDBOX_ARCHIVED] = WORK,
                     [SANDBOX_ERROR] = WORK,
                     [SANDBOX_DELETED] = NOT_THERE},
    [VERB_MOUNT] = {[SANDBOX_CREATING] = NOT_THERE,
                    [SANDBOX_RUNNING] = WORK,
                    [SANDBOX_PAUSED] = WORK,
                    [SANDBOX_STOPPED] = WORK,
                    [SANDBOX_ARCHIVED] = WORK,
                    [SANDBOX_ERROR] = WORK,
                    [SANDBOX_DELETED] = NOT_THERE},
    [VERB_UNMOUNT] = {[SANDBOX_CREATING] = NOT_THERE,
                      [SANDBOX_RUNNING] = WORK,
                      [SANDBOX_PAUSED] = WORK,
                      [SANDBOX_STOPPED] = WORK,
                      [SANDBOX_ARCHIVED] = WORK,
                      [SANDBOX_ERROR] = WORK,
                      [SANDBOX_DELETED] = NOT_THERE},
    [VERB_PROCS] = {[SANDBOX_CREATING] = NOT_THERE,
                    [SANDBOX_RUNNING] = ANSWER,
                    [SANDBOX_PAUSED] = NOT_RUNNING,
                    [SANDBOX_STOPPED] = NOT_RUNNING,
                    [SANDBOX_ARCHIVED] = NOT_RUNNING,
                    [SANDBOX_ERROR] = NOT_RUNNING,
                    [SANDBOX_DELETED] = NOT_THERE},
    [VERB_FALL] = {[SANDBOX_CREATING] = ANSWER,
                   [SANDBOX_RUNNING] = WORK,
                   [SANDBOX_PAUSED] = WORK,
                   [SANDBOX_STOPPED] = ANSWER,
                   [SANDBOX_ARCHIVED] = ANSWER,
                   [SANDBOX_ERROR] = ANSWER,
                   [SANDBOX_DELETED] = ANSWER},
    [VERB_QUIET] = {[SANDBOX_CREATING] = NOT_THERE,
                    [SANDBOX_RUNNING] = ANSWER,
                    [SANDBOX_PAUSED] = NOT_RUNNING,
                    [SANDBOX_STOPPED] = WORK,
                    [SANDBOX_ARCHIVED] = NOT_RUNNING,
                    [SANDBOX_ERROR] = NOT_RUNNING,
                    [SANDBOX_DELETED] = NOT_THERE},
    [VERB_HUSH] = {[SANDBOX_CREATING] = ANSWER,
                   [SANDBOX_RUNNING] = ANSWER,
                   [SANDBOX_PAUSED] = ANSWER,
                   [SANDBOX_STOPPED] = ANSWER,
                   [SANDBOX_ARCHIVED] = ANSWER,
                   [SANDBOX_ERROR] = ANSWER,
                   [SANDBOX_DELETED] = ANSWER},
    [VERB_NETWORK] = {[SANDBOX_CREATING] = ANSWER,
                      [SANDBOX_RUNNING] = WORK,
                      [SANDBOX_PAUSED] = ANSWER,
                      [SANDBOX_STOPPED] = ANSWER,
                      [SANDBOX_ARCHIVED] = ANSWER,
                      [SANDBOX_ERROR] = ANSWER,
                      [SANDBOX_DELETED] = ANSWER},
    [VERB_CEASE] = {[SANDBOX_CREATING] = ANSWER,
                    [SANDBOX_RUNNING] = WORK,
                    [SANDBOX_PAUSED] = WORK,
                    [SANDBOX_STOPPED] = ANSWER,
                    [SANDBOX_ARCHIVED] = ANSWER,
                    [SANDBOX_ERROR] = ANSWER,
                    [SANDBOX_DELETED] = ANSWER},
};

static void (*const works[VERB_KINDS])(struct sandbox *sandbox) = {
    [VERB_CREATE] = start_work,    [VERB_START] = start_work,     [VERB_STOP] = stop_work,
    [VERB_DELETE] = delete_work,   [VERB_CHANGE] = change_work,   [VERB_PROCS] = start_work,
    [VERB_FALL] = fall_work,       [VERB_QUIET] = quiet_work,     [VERB_HUSH] = hush_work,
    [VERB_CEASE] = stop_work,      [VERB_NETWORK] = network_work, [VERB_MOUNT] = mount_work,
    [VERB_UNMOUNT] = unmount_work,
};

/* ---- verbs ---- */

struct verb *verb_new(enum verb_kind kind, void *arg)
{
    struct verb *verb = engine_alloc(sizeof(*verb));

    verb->kind = kind;
    verb->arg = arg;
    return verb;
}

bool sandbox_is_steady(const struct sandbox *sandbox)
{
    const struct verb *active = sandbox->active;

    return active == NULL || active->kind == VERB_CHANGE || active->kind == VERB_MOUNT ||
           active->kind == VERB_UNMOUNT;
}

static void verb_free(struct verb *verb)
{
    record_free(verb->record);
    free(verb);
}

/* A caller gets codes that engine.h and procs.h name; what is only between the rooms below gets the one
 * that says what it means for him. */
static void error_translate(const struct error *inner, struct error *out)
{
    static const struct {
        const char *inner, *outer;
    } codes[] = {
        {"keeper_lost", "draining"},       {"disk_in_use", "capacity"},
        {"no_memory", "capacity"},         {"no_fds", "capacity"},
        {"store_corrupt", "store_failed"}, {"conflict", "store_failed"},
    };
    static const char *const known[] = {
        "bad_request",
        "capacity",
        "draining",
        "mount_busy",
        "mount_conflict",
        "mount_not_found",
        "mount_refused",
        "name_conflict",
        "not_ready",
        "not_yet",
        "quota",
        "revision_conflict",
        "sandbox_gone",
        "sandbox_not_found",
        "sandbox_outdated",
        "sandbox_stopped",
        "store_failed",
        "too_many_ports",
        "unknown_mount",
        "unknown_root",
    };

    *out = *inner;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (strcmp(inner->code, codes[i].inner) == 0)
            (void)snprintf(out->code, sizeof(out->code), "%s", codes[i].outer);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(out->code, known[i]) == 0)
            return;
    (void)snprintf(out->code, sizeof(out->code), "sandbox_failed");
}

/* Tells who waits. A callback may ask for anything, also of the same sandbox. */
static void verb_answer(struct sandbox *sandbox, const struct verb *verb, const struct error *inner)
{
    struct sandbox_view view = {.id = NULL};
    const struct sandbox_view *seen = inner == NULL ? &view : NULL;
    const struct error *err = NULL;
    struct error outer;

    sandbox_look(sandbox, &view);
    if (inner != NULL) {
        error_translate(inner, &outer);
        err = &outer;
    }
    switch (verb->kind) {
    case VERB_CREATE:
    case VERB_JOIN:
        if (verb->done.created != NULL)
            verb->done.created(verb->arg, seen, verb->kind == VERB_CREATE && err == NULL, err);
        break;
    case VERB_DELETE:
        if (verb->done.plain != NULL)
            verb->done.plain(verb->arg, err);
        break;
    case VERB_PROCS:
    case VERB_QUIET:
        if (verb->done.procs != NULL)
            verb->done.procs(verb->arg, err == NULL ? sandbox->procs : NULL, err);
        break;
    default:
        if (verb->done.sandbox != NULL)
            verb->done.sandbox(verb->arg, seen, err);
        break;
    }
}

static void verb_refuse(struct sandbox *sandbox, const struct verb *verb, enum verb_action action)
{
    struct error err;

    if (action == NOT_RUNNING)
        (void)error_set(&err, "sandbox_stopped", 0,
                        "sandbox %s is %s (%s); start it first, or ask for that with the command",
                        sandbox->id, sandbox_state_name(sandbox->record->state),
                        sandbox->record->reason);
    else if (sandbox->record->state == SANDBOX_DELETED && sandbox->record->revision > 0)
        (void)error_set(&err, "sandbox_gone", 0, "sandbox %s was deleted; make another one",
                        sandbox->id);
    else
        (void)error_set(&err, "sandbox_not_found", 0,
                        "there is no such sandbox; list those there are");
    verb_answer(sandbox, verb, &err);
}

/* ---- the queue ---- */

static void bury(struct sandbox *sandbox)
{
    if (sandbox->is_buried || sandbox->active != NULL || sandbox->first != NULL ||
        sandbox->record->state != SANDBOX_DELETED)
        return;
    sandbox->is_buried = true;
    engine_later(sandbox->engine, (void (*)(void *))sandbox_free_now, sandbox);
}

/* A create that failed: who wanted the same hears why, for to try again for each of them would keep them
 * waiting for as many failures. Where it was deleted meanwhile, or its client left, they make their own: the
 * first of them has its place among those that wait. */
static bool has_failed(const struct sandbox *sandbox)
{
    return sandbox->record->revision == 0 && sandbox->failure.code[0] != '\0' &&
           strcmp(sandbox->failure.code, "sandbox_gone") != 0;
}

/* What need not be worked on is answered at once. */
static void verb_settle(struct sandbox *sandbox, struct verb *verb, enum verb_action action)
{
    struct engine *engine = sandbox->engine;
    struct error err;

    sandbox->active = NULL;
    engine->verbs--;
    if (verb->kind == VERB_PROCS && action == ANSWER && outdated_check(sandbox, &err) != 0) {
        verb_answer(sandbox, verb, &err);
    } else if (action == ANSWER) {
        verb_answer(sandbox, verb, NULL);
    } else if (action == ANEW && has_failed(sandbox)) {
        verb_answer(sandbox, verb, &sandbox->failure);
    } else if (action == ANEW) {
        create_record(engine, verb->record, sandbox->turn.number, verb->done.created, verb->arg);
        verb->record = NULL;
    } else {
        verb_refuse(sandbox, verb, action);
    }
    verb_free(verb);
    engine_settled(engine);
}

/* A box that stands quietly is ended by what would find none else. */
static enum verb_action action_of(const struct sandbox *sandbox, const struct verb *verb)
{
    enum verb_action action = actions[verb->kind][sandbox->record->state];

    if (action == NOT_RUNNING && verb->with_start)
        return WORK;
    if (sandbox->is_quiet &&
        (verb->kind == VERB_STOP || verb->kind == VERB_FALL || verb->kind == VERB_HUSH))
        return WORK;
    return action;
}

static void sandbox_next(struct sandbox *sandbox)
{
    if (sandbox->is_stepping)
        return;
    sandbox->is_stepping = true;
    while (sandbox->active == NULL && sandbox->first != NULL) {
        struct verb *verb = sandbox->first;
        enum verb_action action = action_of(sandbox, verb);

        sandbox->first = verb->next;
        if (sandbox->first == NULL)
            sandbox->last = NULL;
        verb->next = NULL;
        sandbox->active = verb;
        if (action == WORK)
            works[verb->kind](sandbox);
        else
            verb_settle(sandbox, verb, action);
    }
    sandbox->is_stepping = false;
    bury(sandbox);
}

void sandbox_push(struct sandbox *sandbox, struct verb *verb)
{
    bool goes_ahead = verb->kind == VERB_DELETE || verb->kind == VERB_FALL;

    sandbox->engine->verbs++;
    if (goes_ahead) {
        verb->next = sandbox->first;
        sandbox->first = verb;
        if (sandbox->last == NULL)
            sandbox->last = verb;
    } else {
        if (sandbox->last != NULL)
            sandbox->last->next = verb;
        else
            sandbox->first = verb;
        sandbox->last = verb;
    }
    if (verb->kind == VERB_DELETE && sandbox->active != NULL) {
        struct error err;

        sandbox->is_doomed = true;
        (void)error_set(&err, "sandbox_gone", 0, "sandbox %s was deleted meanwhile", sandbox->id);
        if (sandbox->step == STEP_READY)
            start_give_up(sandbox, &err);
        else
            (void)start_leave(sandbox, &err);
    }
    sandbox_next(sandbox);
}

void sandbox_finish(struct sandbox *sandbox, const struct error *err)
{
    struct engine *engine = sandbox->engine;
    struct verb *verb = sandbox->active;

    sandbox->active = NULL;
    sandbox->step = STEP_NONE;
    sandbox->is_doomed = false;
    engine->verbs--;
    sandbox_touch(sandbox);
    sandbox_arm(sandbox);
    verb_answer(sandbox, verb, err);
    verb_free(verb);
    sandbox_next(sandbox);
    engine_settled(engine);
}

/* ---- the record ---- */

struct record *sandbox_next_record(const struct sandbox *sandbox, enum sandbox_state state,
                                   const char *reason)
{
    struct record *next = record_copy(sandbox->record);

    next->state = state;
    (void)snprintf(next->reason, sizeof(next->reason), "%s", reason);
    next->error = (struct error){0};
    return next;
}

static void record_committed(void *arg, uint64_t revision, const struct error *err)
{
    struct sandbox *sandbox = arg;
    struct record *next = sandbox->next;

    sandbox->next = NULL;
    if (sandbox->engine->is_closing) {
        record_free(next);
        return;
    }
    if (err == NULL) {
        next->revision = revision;
        record_free(sandbox->record);
        sandbox->record = next;
    } else {
        log_say(LOG_LEVEL_WARN, "store_failed", "sandbox %s: its record could not be written: %s",
                sandbox->id, err->text);
        record_free(next);
    }
    sandbox->committed(sandbox, err);
}

/* Of the store's room for a full disk. */
static size_t room_to_leave(const struct record *before, const struct record *after)
{
    if (after->state == SANDBOX_DELETED)
        return 0;
    if (after->state == SANDBOX_STOPPED && before->state != after->state)
        return STORE_ROOM / 2;
    return after->tokens != before->tokens ? STORE_ROOM_ENDS : STORE_ROOM;
}

/* The last thing that a step does: `committed` may be called before this returns. */
void sandbox_commit(struct sandbox *sandbox, struct record *next,
                    void (*committed)(struct sandbox *sandbox, const struct error *err))
{
    _cleanup_free_ char *text = NULL;
    char key[STORE_KEY_MAX];
    struct error err;

    sandbox->next = next;
    sandbox->committed = committed;
    next->updated_ms = clock_wall_ms();
    if (next->updated_ms <= sandbox->record->updated_ms)
        next->updated_ms = sandbox->record->updated_ms + 1;
    text = record_format(next, &err);
    if (text == NULL) {
        record_committed(sandbox, 0, &err);
        return;
    }
    (void)snprintf(key, sizeof(key), "sandbox/%s", sandbox->id);
    store_put_leaving(sandbox->engine->store, room_to_leave(sandbox->record, next), key, text,
                      strlen(text), sandbox->record->revision, record_committed, sandbox);
}

/* ---- being there ---- */

struct sandbox *sandbox_new(struct engine *engine, struct record *record)
{
    struct sandbox *sandbox = engine_alloc(sizeof(*sandbox));

    sandbox->engine = engine;
    sandbox->record = record;
    memcpy(sandbox->id, record->id, sizeof(sandbox->id));
    sandbox->touched_ns = clock_monotonic_ns();
    if (record->name != NULL) {
        sandbox->name_key = engine_name_key(record->tenant, record->name);
        map_put(&engine->names, sandbox->name_key, sandbox);
    }
    map_put(&engine->ids, sandbox->id, sandbox);
    sandbox->older = engine->newest;
    if (engine->newest != NULL)
        engine->newest->newer = sandbox;
    else
        engine->oldest = sandbox;
    engine->newest = sandbox;
    engine->count++;
    if (record->serial > engine->serial)
        engine->serial = record->serial;
    return sandbox;
}

void sandbox_unlist(struct sandbox *sandbox)
{
    struct engine *engine = sandbox->engine;

    (void)map_remove(&engine->ids, sandbox->id);
    if (sandbox->name_key != NULL && map_get(&engine->names, sandbox->name_key) == sandbox)
        (void)map_remove(&engine->names, sandbox->name_key);
    if (sandbox->older != NULL)
        sandbox->older->newer = sandbox->newer;
    else
        engine->oldest = sandbox->newer;
    if (sandbox->newer != NULL)
        sandbox->newer->older = sandbox->older;
    else
        engine->newest = sandbox->older;
    sandbox->older = sandbox->newer = NULL;
    engine->count--;
}

/* At the end of the engine: who still waits is told, and nothing is lost by it, for a box lives on with
 * the keeper and a record is as it was committed. */
void sandbox_abandon(struct sandbox *sandbox)
{
    struct error err;
    struct verb *verb = sandbox->active;

    (void)error_set(&err, "draining", 0, "the engine ends; ask again in a moment");
    sandbox->is_stepping = true;
    do {
        if (verb != NULL) {
            sandbox->engine->verbs--;
            verb_answer(sandbox, verb, &err);
            verb_free(verb);
        }
        verb = sandbox->first;
        if (verb != NULL)
            sandbox->first = verb->next;
    } while (verb != NULL);
    sandbox->active = sandbox->last = NULL;
}

void sandbox_free_now(struct sandbox *sandbox)
{
    clock_clear(sandbox->engine->clock, &sandbox->timer);
    clock_clear(sandbox->engine->clock, &sandbox->hush);
    outdated_close(sandbox);
    if (sandbox->procs != NULL)
        procs_close(sandbox->procs, false);
    ports_free(sandbox);
    network_free(sandbox);
    record_free(sandbox->record);
    record_free(sandbox->next);
    free(sandbox->name_key);
    free(sandbox);
}
