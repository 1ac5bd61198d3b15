/* Directories that are mounted into a sandbox that is there, and unmounted.
 *
 * The record has at least what the box has: it is written before a mount is asked for, and after one is gone. So nothing
 * is mounted that is not shown, whatever fails on the way; what was not mounted after all is taken out again. Of a
 * sandbox without a box the record is all that changes, and its next box is made so. */
#include "engine/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Gives an error of the rooms below the code that the caller is to hear. */
static void translate(struct error *err)
{
    static const struct {
        const char *inner, *outer;
    } codes[] = {
        {"mount_failed", "mount_refused"}, {"mount_moved", "mount_refused"},
        {"bad_mount", "mount_refused"},    {"no_idmap", "mount_refused"},
        {"no_box", "sandbox_stopped"},     {"box_gone", "sandbox_stopped"},
        {"box_not_ready", "capacity"},
    };

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (strcmp(err->code, codes[i].inner) == 0) {
            (void)snprintf(err->code, sizeof(err->code), "%s", codes[i].outer);
            return;
        }
}

static const struct keeper_mount *find(const struct record *record, const char *target)
{
    for (size_t i = 0; i < record->mounts_count; i++)
        if (strcmp(record->mounts[i].target, target) == 0)
            return &record->mounts[i];
    return NULL;
}

static void done(struct sandbox *sandbox, const struct error *err)
{
    if (err == NULL)
        events_add(sandbox->engine, "sandbox.changed", sandbox->record->tenant, sandbox->id, NULL,
                   "mounts");
    sandbox_finish(sandbox, err);
}

/* Asks the keeper, in its turn. */
static void turn_comes(void *arg)
{
    struct sandbox *sandbox = arg;
    const struct keeper_mount *mount = &sandbox->active->mount;
    enum keeper_type type = sandbox->active->mount_request;
    union keeper_request request = {.head = {0}};

    if (sandbox->engine->is_closing)
        return;
    if (type == KEEPER_ATTACH) {
        request.attach.box = sandbox->box;
        memcpy(request.attach.tenant, sandbox->record->tenant, sizeof(request.attach.tenant));
        request.attach.mount = *mount;
    } else {
        request.detach.box = sandbox->box;
        memcpy(request.detach.target, mount->target, sizeof(request.detach.target));
    }
    keeper_client_ask(sandbox->engine->keeper, type, &request, sandbox->active->answered, sandbox);
}

static void ask(struct sandbox *sandbox, enum keeper_type type, keeper_answered answered)
{
    sandbox->step = STEP_MOUNT;
    sandbox->active->mount_request = type;
    sandbox->active->answered = answered;
    box_turn_wait(sandbox->engine, BOX_TURN_MOUNT, &sandbox->active->turn, sandbox->record->tenant,
                  false, turn_comes, sandbox);
}

/* The change is over; false where the engine closes. */
static bool is_over(struct sandbox *sandbox)
{
    box_turn_leave(sandbox->engine, &sandbox->active->turn);
    return !sandbox->engine->is_closing;
}

static void commit_without(struct sandbox *sandbox,
                           void (*committed)(struct sandbox *sandbox, const struct error *err))
{
    struct record *next = record_copy(sandbox->record);

    record_remove_mount(next, sandbox->active->mount.target);
    sandbox->step = STEP_COMMIT;
    sandbox_commit(sandbox, next, committed);
}

/* ---- mounting ---- */

/* Where even that fails the record has more than the box, which its next box makes good. */
static void taken_out(struct sandbox *sandbox, const struct error *err)
{
    (void)err;
    sandbox_finish(sandbox, &sandbox->failure);
}

static void attached(void *arg, const union keeper_answer *answer, int fd, const struct error *err)
{
    struct sandbox *sandbox = arg;

    (void)answer;
    (void)fd;
    if (!is_over(sandbox))
        return;
    if (err == NULL) {
        done(sandbox, NULL);
        return;
    }
    sandbox->failure = *err;
    translate(&sandbox->failure);
    if (strcmp(err->code, "keeper_lost") == 0)
        sandbox_finish(sandbox, &sandbox->failure);
    else
        commit_without(sandbox, taken_out);
}

/* It was in the record before, so the box may have it, and it stays there whatever is answered. */
static void attached_again(void *arg, const union keeper_answer *answer, int fd,
                           const struct error *err)
{
    struct sandbox *sandbox = arg;

    (void)answer;
    (void)fd;
    if (!is_over(sandbox))
        return;
    if (err != NULL) {
        sandbox->failure = *err;
        translate(&sandbox->failure);
    }
    sandbox_finish(sandbox, err == NULL ? NULL : &sandbox->failure);
}

static void noted(struct sandbox *sandbox, const struct error *err)
{
    if (err != NULL || sandbox->box == 0)
        done(sandbox, err);
    else
        ask(sandbox, KEEPER_ATTACH, attached);
}

/* 1: it is in the record already. */
static int check(const struct sandbox *sandbox, const struct keeper_mount *mount, struct error *err)
{
    const struct record *record = sandbox->record;
    const struct keeper_mount *there = find(record, mount->target);
    size_t length = strlen(mount->target);

    if (sandbox->engine->host.is_root == 0)
        return error_set(
            err, "mount_refused", 0,
            "this server is an ordinary user's, which can mount only when a sandbox is "
            "created: name its mounts then");
    if (!engine_named_is(sandbox->engine, KEEPER_MOUNT, mount->name, record->tenant))
        return error_set(err, "unknown_mount", 0,
                         "no mount '%s' is registered; the operator adds one by `cove mount add`",
                         mount->name);
    if (there != NULL && strcmp(there->name, mount->name) == 0 &&
        there->read_only == mount->read_only)
        return 1;
    if (there != NULL)
        return error_set(err, "mount_conflict", 0,
                         "'%s' is mounted at %s of sandbox %s already; unmount it first",
                         there->name, mount->target, sandbox->id);
    for (size_t i = 0; i < record->mounts_count; i++)
        if (strncmp(record->mounts[i].target, mount->target, length) == 0 &&
            record->mounts[i].target[length] == '/')
            return error_set(err, "mount_conflict", 0,
                             "a mount at %s of sandbox %s would hide the one at %s; unmount that "
                             "first",
                             mount->target, sandbox->id, record->mounts[i].target);
    return 0;
}

void mount_work(struct sandbox *sandbox)
{
    const struct keeper_mount *mount = &sandbox->active->mount;
    struct record *next;
    struct error err;
    int checked = check(sandbox, mount, &err);

    if (checked < 0) {
        sandbox_finish(sandbox, &err);
        return;
    }
    if (checked > 0) { /* perhaps for an engine before us that ended before it was mounted */
        if (sandbox->box == 0)
            sandbox_finish(sandbox, NULL);
        else
            ask(sandbox, KEEPER_ATTACH, attached_again);
        return;
    }
    next = record_copy(sandbox->record);
    if (record_add_mount(next, mount, &err) != 0) {
        record_free(next);
        sandbox_finish(sandbox, &err);
        return;
    }
    sandbox->step = STEP_COMMIT;
    sandbox_commit(sandbox, next, noted);
}

/* ---- unmounting ---- */

static void detached(void *arg, const union keeper_answer *answer, int fd, const struct error *err)
{
    static const char *const gone[] = {"mount_not_found", "no_box", "box_gone"};
    struct sandbox *sandbox = arg;
    struct error outer;

    (void)answer;
    (void)fd;
    if (!is_over(sandbox))
        return;
    for (size_t i = 0; err != NULL && i < sizeof(gone) / sizeof(gone[0]); i++)
        if (strcmp(err->code, gone[i]) == 0)
            err = NULL;
    if (err == NULL) {
        commit_without(sandbox, done);
        return;
    }
    outer = *err;
    translate(&outer);
    sandbox_finish(sandbox, &outer);
}

void unmount_work(struct sandbox *sandbox)
{
    const char *target = sandbox->active->mount.target;
    struct error err;

    if (find(sandbox->record, target) == NULL) {
        (void)error_set(&err, "mount_not_found", 0,
                        "nothing is mounted at %s of sandbox %s; look at its mounts", target,
                        sandbox->id);
        sandbox_finish(sandbox, &err);
    } else if (sandbox->box != 0) {
        ask(sandbox, KEEPER_DETACH, detached);
    } else if (sandbox->engine->host.is_root == 0) {
        (void)error_set(&err, "mount_refused", 0,
                        "this server is an ordinary user's, which can change no mounts after a "
                        "sandbox was created: delete it, and create it without");
        sandbox_finish(sandbox, &err);
    } else {
        commit_without(sandbox, done);
    }
}

/* ---- what a front asks for ---- */

static void push(struct engine *engine, const struct engine_caller *caller, const char *id,
                 enum verb_kind kind, const struct keeper_mount *mount, engine_sandbox_done told,
                 void *arg)
{
    struct sandbox *sandbox = NULL;
    struct verb *verb;
    struct error err;

    /* One that is no target is none that there is. */
    if (caller_may(caller, ENGINE_WRITE, &err) == 0 && engine_accepts(engine, &err) == 0 &&
        (kind == VERB_UNMOUNT || record_check_mount(mount, &err) == 0))
        sandbox = sandbox_find(engine, caller, id, &err);
    if (sandbox == NULL) {
        told(arg, NULL, &err);
        return;
    }
    sandbox_touch(sandbox);
    verb = verb_new(kind, arg);
    verb->mount = *mount;
    verb->done.sandbox = told;
    sandbox_push(sandbox, verb);
}

void engine_mount(struct engine *engine, const struct engine_caller *caller, const char *id,
                  const struct keeper_mount *mount, engine_sandbox_done told, void *arg)
{
    push(engine, caller, id, VERB_MOUNT, mount, told, arg);
}

void engine_unmount(struct engine *engine, const struct engine_caller *caller, const char *id,
                    const char *target, engine_sandbox_done told, void *arg)
{
    struct keeper_mount mount = {.read_only = 0};

    (void)snprintf(mount.target, sizeof(mount.target), "%s", target);
    push(engine, caller, id, VERB_UNMOUNT, &mount, told, arg);
}
