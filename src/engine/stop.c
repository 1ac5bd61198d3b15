/* Stop, delete, change, and what is left to do when a box ended by itself.
 *
 * A stop ends the box and then writes down that it is so: a record never says "stopped" of a box that
 * lives. A delete writes first: from then on the sandbox is gone, and what a crash leaves of it (box,
 * disk, files) is cleared away at the next start. */
#include "base/fd.h"
#include "engine/parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the keeper's part ---- */

struct ending {
    struct sandbox *sandbox;
    void (*ended)(struct sandbox *sandbox, const struct keeper_report *report);
};

static void box_ended(void *arg, const union keeper_answer *answer, int fd, const struct error *err)
{
    struct ending ending = *(struct ending *)arg;

    fd_close(&fd);
    free(arg);
    if (ending.sandbox->engine->is_closing)
        return;
    /* "no_box": it has ended before. "keeper_lost": with the keeper. */
    if (err != NULL && strcmp(err->code, "keeper_lost") != 0 && strcmp(err->code, "no_box") != 0)
        log_say(LOG_LEVEL_WARN, "box_end", "sandbox %s: its box could not be ended: %s",
                ending.sandbox->id, err->text);
    /* Its boxes are heard to end before it is itself. */
    if (err != NULL && strcmp(err->code, "keeper_lost") == 0 && ending.sandbox->active != NULL &&
        ending.sandbox->active->kind == VERB_FALL)
        (void)snprintf(ending.sandbox->active->reason, sizeof(ending.sandbox->active->reason),
                       "keeper_lost");
    spent_take(ending.sandbox, err == NULL ? &answer->report : NULL, true);
    ending.sandbox->box = 0;
    ending.sandbox->protocol = 0;
    ending.ended(ending.sandbox, err == NULL ? &answer->report : NULL);
}

void sandbox_end_box(struct sandbox *sandbox,
                     void (*ended)(struct sandbox *sandbox, const struct keeper_report *report))
{
    struct ending *ending = engine_alloc(sizeof(*ending));
    union keeper_request request = {.of_box = {.box = sandbox->box}};

    *ending = (struct ending){sandbox, ended};
    sandbox->step = STEP_END;
    outdated_close(sandbox);
    keeper_client_ask(sandbox->engine->keeper, KEEPER_END, &request, box_ended, ending);
}

struct disk_drop {
    struct engine *engine;
    char disk[KEEPER_ID_LENGTH + 4];
};

static void disk_dropped(void *arg, const union keeper_answer *answer, int fd,
                         const struct error *err)
{
    struct disk_drop *drop = arg;
    struct engine *engine = drop->engine;

    (void)answer;
    fd_close(&fd);
    if (err != NULL)
        log_say(LOG_LEVEL_WARN, "disk_drop",
                "disk %s could not be removed, and will be tried again at the next start: %s",
                drop->disk, err->text);
    free(drop);
    engine_settled(engine);
}

void sandbox_drop_disk(struct engine *engine, const char *disk)
{
    struct disk_drop *drop = engine_alloc(sizeof(*drop));
    union keeper_request request = {.of_disk = {.head = {0}}};

    drop->engine = engine;
    (void)snprintf(drop->disk, sizeof(drop->disk), "%s", disk);
    memcpy(request.of_disk.disk, drop->disk, sizeof(drop->disk));
    keeper_client_ask(engine->keeper, KEEPER_DROP_DISK, &request, disk_dropped, drop);
}

/* ---- stop, and fall ---- */

static void stopped(struct sandbox *sandbox, const struct error *err)
{
    if (err != NULL) {
        /* The box is gone whatever the disk says; the next start finds that out as well. */
        sandbox->record->state = SANDBOX_STOPPED;
        (void)snprintf(sandbox->record->reason, sizeof(sandbox->record->reason), "%s",
                       sandbox->active->reason);
    }
    sandbox_event(sandbox, "sandbox.stopped");
    sandbox_finish(sandbox, err);
}

static const char *why_it_fell(const struct sandbox *sandbox, const struct keeper_report *report)
{
    if (sandbox->engine->is_lost)
        return "keeper_lost";
    if (report == NULL)
        return sandbox->active->reason;
    if (report->oom_kills > sandbox->oom_seen)
        return "oom";
    if (report->pids_exceeded > 0)
        return "pids_exceeded";
    if (report->disk_exceeded > 0)
        return "disk_exceeded";
    if (report->locks_exceeded > 0)
        return "locks_exceeded";
    if (report->sockets_exceeded > 0)
        return "sockets_exceeded";
    if (report->files_exceeded > 0)
        return "files_exceeded";
    return sandbox->active->reason;
}

static void stop_ended(struct sandbox *sandbox, const struct keeper_report *report)
{
    struct verb *verb = sandbox->active;
    const char *reason = verb->kind == VERB_FALL ? why_it_fell(sandbox, report) : verb->reason;

    if (reason != verb->reason)
        (void)snprintf(verb->reason, sizeof(verb->reason), "%s", reason);
    sandbox_detach(sandbox, verb->reason);
    sandbox_commit(sandbox, sandbox_next_record(sandbox, SANDBOX_STOPPED, verb->reason), stopped);
}

void stop_work(struct sandbox *sandbox)
{
    if (sandbox->is_quiet) {
        hush_work(sandbox);
        return;
    }
    if (sandbox->box != 0)
        sandbox_end_box(sandbox, stop_ended);
    else
        stop_ended(sandbox, NULL);
}

void fall_work(struct sandbox *sandbox)
{
    stop_work(sandbox);
}

/* ---- all of them, for the server ends ---- */

static void ceased(void *arg, const struct sandbox_view *view, const struct error *err)
{
    struct engine *engine = arg;
    void (*done)(void *arg) = engine->ceased;

    (void)view;
    (void)err; /* its box ends with the server in any case */
    if (--engine->ceasing > 0 || done == NULL)
        return;
    engine->ceased = NULL;
    done(engine->ceased_arg);
}

/* What waits in a sandbox's queue is done before, as far as it is nothing new. The keeper ends their boxes
 * side by side, and the store writes their records many at a time. */
void engine_stop_mark(struct engine *engine)
{
    takeover_mark_stop(engine);
}

void engine_stop_all(struct engine *engine, void (*done)(void *arg), void *arg)
{
    if (engine->is_ceasing)
        return;
    engine->is_ceasing = engine->is_draining = true;
    engine->ceased = done;
    engine->ceased_arg = arg;
    engine->ceasing = 1; /* this loop */
    takeover_mark_stop(engine);
    for (struct sandbox *sandbox = engine->is_ready ? engine->oldest : NULL, *next; sandbox != NULL;
         sandbox = next) {
        struct verb *verb;

        next = sandbox->newer;
        if (sandbox->record->state != SANDBOX_RUNNING && sandbox->active == NULL)
            continue;
        verb = verb_new(VERB_CEASE, engine);
        verb->done.sandbox = ceased;
        (void)snprintf(verb->reason, sizeof(verb->reason), "server_stopped");
        engine->ceasing++;
        sandbox_push(sandbox, verb);
    }
    ceased(engine, NULL, NULL);
    engine_settled(engine);
}

/* ---- delete ---- */

static void delete_ended(struct sandbox *sandbox, const struct keeper_report *report)
{
    struct engine *engine = sandbox->engine;
    const struct record *record = sandbox->record;

    (void)report;
    sandbox->is_quiet = false;
    sandbox_detach(sandbox, "deleted");
    if (sandbox->procs != NULL) {
        procs_close(sandbox->procs, true);
        sandbox->procs = NULL;
    }
    engine_remove_files(engine, sandbox->id);
    if (record->disk[0] != '\0')
        sandbox_drop_disk(engine, record->disk);
    sandbox_event(sandbox, "sandbox.deleted");
    sandbox_unlist(sandbox);
    gone_add(engine, gone_of(sandbox->id, record->updated_ms));
    sandbox_finish(sandbox, NULL);
}

static void name_deleted(void *arg, uint64_t revision, const struct error *err)
{
    (void)arg;
    (void)revision;
    if (err != NULL)
        log_say(LOG_LEVEL_WARN, "store_failed",
                "the name of a deleted sandbox will be removed at the next start: %s", err->text);
}

static void deleted(struct sandbox *sandbox, const struct error *err)
{
    if (err != NULL) {
        sandbox_finish(sandbox, err);
        return;
    }
    if (sandbox->name_key != NULL) {
        char key[STORE_KEY_MAX];

        (void)snprintf(key, sizeof(key), "name/%s", sandbox->name_key);
        store_put_leaving(sandbox->engine->store, 0, key, NULL, 0, STORE_ANY, name_deleted, NULL);
    }
    if (sandbox->box != 0)
        sandbox_end_box(sandbox, delete_ended);
    else
        delete_ended(sandbox, NULL);
}

/* The record becomes its own tombstone: one write says that it is gone and that it was there. */
void delete_work(struct sandbox *sandbox)
{
    struct record *next = sandbox_next_record(
        sandbox, SANDBOX_DELETED,
        sandbox->active->reason[0] != '\0' ? sandbox->active->reason : "deleted");

    record_clear(next);
    sandbox->step = STEP_COMMIT;
    sandbox_commit(sandbox, next, deleted);
}

/* ---- change ---- */

static const char *why_changed(const struct verb *verb)
{
    if ((verb->change_fields & CHANGE_TOKENS) != 0)
        return "tokens_ended";
    if ((verb->change_fields & CHANGE_PORTS) != 0)
        return "ports";
    return (verb->change_fields & CHANGE_NETWORK) != 0 ? "network" : NULL;
}

static void changed(struct sandbox *sandbox, const struct error *err)
{
    if (err == NULL)
        events_add(sandbox->engine, "sandbox.changed", sandbox->record->tenant, sandbox->id, NULL,
                   why_changed(sandbox->active));
    if (err == NULL && (sandbox->active->change_fields & CHANGE_PORTS) != 0)
        ports_apply(sandbox);
    if (err == NULL && (sandbox->active->change_fields & CHANGE_NETWORK) != 0)
        network_apply(sandbox, sandbox_finish);
    else
        sandbox_finish(sandbox, err);
}

static int change_make(const struct verb *verb, struct record *next, struct error *err)
{
    const struct record *wish = verb->record;

    if ((verb->change_fields & CHANGE_LABELS) != 0)
        (void)record_set_labels(next, (const char *const *)wish->labels, err);
    if ((verb->change_fields & CHANGE_DEADLINE) != 0)
        next->deadline_ms = wish->deadline_ms;
    if ((verb->change_fields & CHANGE_IDLE) != 0)
        next->idle_ms = wish->idle_ms;
    if ((verb->change_fields & CHANGE_THEN) != 0)
        next->then = wish->then;
    if ((verb->change_fields & CHANGE_TOKENS) != 0)
        next->tokens++;
    if ((verb->change_fields & CHANGE_PORTS) != 0 && verb->port.is_removed)
        record_remove_port(next, verb->port.port);
    else if ((verb->change_fields & CHANGE_PORTS) != 0 &&
             record_set_port(next, verb->port.port, verb->port.host_port, verb->port.is_public,
                             err) != 0)
        return -1;
    if ((verb->change_fields & CHANGE_NETWORK) == 0)
        return 0;
    return record_set_network(next, &verb->network, err);
}

void change_work(struct sandbox *sandbox)
{
    const struct verb *verb = sandbox->active;
    const uint64_t revision = record_revision(sandbox->record);
    struct record *next;
    struct error err;

    if (verb->if_revision != 0 && verb->if_revision != revision) {
        (void)error_set(&err, "revision_conflict", 0,
                        "sandbox %s has revision %llu, not %llu; look at it again", sandbox->id,
                        (unsigned long long)revision, (unsigned long long)verb->if_revision);
        sandbox_finish(sandbox, &err);
        return;
    }
    next = record_copy(sandbox->record);
    if (change_make(verb, next, &err) != 0 ||
        (next->ports_count > sandbox->record->ports_count &&
         quota_check_ports(sandbox->engine, next->tenant,
                           next->ports_count - sandbox->record->ports_count, &err) != 0)) {
        record_free(next);
        sandbox_finish(sandbox, &err);
        return;
    }
    sandbox->step = STEP_COMMIT;
    sandbox_commit(sandbox, next, changed);
}
