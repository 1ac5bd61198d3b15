/* What a front may ask for: each is checked here, and then waits in the queue of its sandbox. */
#include "base/tenancy.h"
#include "engine/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int engine_accepts(const struct engine *engine, struct error *err)
{
    if (engine->is_lost || engine->is_draining || engine->is_closing)
        return error_set(err, "draining", 0, "the engine is about to end; ask again in a moment");
    if (!engine->is_ready)
        return error_set(err, "not_ready", 0,
                         "the engine still waits for the keeper; ask again in a moment");
    return 0;
}

/* ---- create ---- */

static int create_join(struct record *record, struct sandbox *there, engine_created done, void *arg,
                       struct error *err)
{
    struct verb *verb;
    const struct record *is = there->record;

    if (is->state != SANDBOX_DELETED &&
        (strcmp(is->root, record->root) != 0 || is->privileges != record->privileges ||
         is->disk_kind != record->disk_kind))
        return error_set(err, "name_conflict", 0,
                         "sandbox %s has this name, with the root '%s', the privileges '%s' and a "
                         "disk that is %s; delete it, or take another name",
                         there->id, is->root, is->privileges == BOX_PLAIN ? "plain" : "system",
                         is->disk_kind == KEEPER_EPHEMERAL ? "ephemeral" : "persistent");
    verb = verb_new(VERB_JOIN, arg);
    verb->record = record;
    verb->done.created = done;
    sandbox_push(there, verb);
    return 0;
}

static int create_check(struct engine *engine, const struct record *record, struct error *err)
{
    if (!engine_named_is(engine, KEEPER_ROOT, record->root, record->tenant))
        return error_set(err, "unknown_root", 0,
                         "no root '%s' is registered; the operator adds one by `cove root add`",
                         record->root);
    for (size_t i = 0; i < record->mounts_count; i++)
        if (!engine_named_is(engine, KEEPER_MOUNT, record->mounts[i].name, record->tenant))
            return error_set(err, "unknown_mount", 0,
                             "no mount '%s' is registered; the operator adds one to the "
                             "configuration",
                             record->mounts[i].name);
    if (engine->count >= engine->options.sandboxes)
        return error_set(err, "capacity", 0,
                         "this engine has as many sandboxes as it is to have at most; delete some");
    if (record->deadline_ms > 0 && record->deadline_ms <= clock_wall_ms())
        return error_set(err, "bad_request", 0, "lifecycle.deadline has passed already");
    /* The headroom first: where it is not free, no smaller disk helps. */
    if (quota_check(engine, record, true, err) != 0 || capacity_check(engine, err) != 0)
        return -1;
    return disk_room_check(engine, record, err);
}

/* A time and no count: cursors show it, and are to say nothing about other tenants. The wall's may be set back. */
static uint64_t serial_next(struct engine *engine)
{
    const uint64_t now = clock_monotonic_ns();

    if (engine->serial_zero == 0) {
        engine->serial_zero = clock_wall_ms() * 1000000 - now;
        if (engine->serial_zero + now < engine->serial)
            engine->serial_zero = engine->serial - now;
    }
    return engine->serial_zero + now > engine->serial ? engine->serial_zero + now
                                                      : engine->serial + 1;
}

void create_record(struct engine *engine, struct record *record, uint64_t place,
                   engine_created done, void *arg)
{
    struct sandbox *sandbox = NULL;
    struct verb *verb;
    struct error err;

    if (engine_accepts(engine, &err) != 0)
        goto refused;
    if (record->name != NULL) {
        char *key = engine_name_key(record->tenant, record->name);

        sandbox = map_get(&engine->names, key);
        free(key);
    }
    if (sandbox != NULL) {
        if (create_join(record, sandbox, done, arg, &err) != 0)
            goto refused;
        return;
    }
    if (create_check(engine, record, &err) != 0)
        goto refused;
    do
        engine_id(record->id, KEEPER_ID_LENGTH + 1, "c0");
    while (map_get(&engine->ids, record->id) != NULL);
    record->serial = serial_next(engine);
    record->created_ms = record->updated_ms = clock_wall_ms();
    sandbox = sandbox_new(engine, record);
    sandbox->turn.number = place;
    verb = verb_new(VERB_CREATE, arg);
    verb->done.created = done;
    sandbox_push(sandbox, verb);
    return;

refused:
    record_free(record);
    done(arg, NULL, false, &err);
}

void engine_create(struct engine *engine, const struct engine_caller *caller,
                   const struct sandbox_spec *spec, engine_created done, void *arg)
{
    struct record *record;
    struct error err;

    if (caller_may(caller, ENGINE_WRITE, &err) != 0 ||
        record_new(spec, caller->tenant, &engine->options.defaults, &engine->options.most,
                   engine->policy, &record, &err) != 0) {
        done(arg, NULL, false, &err);
        return;
    }
    if (policy_bound_check(net_bound(engine->net), record->policy, &err) != 0) {
        record_free(record);
        done(arg, NULL, false, &err);
        return;
    }
    ports_choose(engine, record);
    create_record(engine, record, 0, done, arg);
}

/* It is among the newest. */
void engine_create_leave(struct engine *engine, const void *arg)
{
    struct sandbox *sandbox = engine->newest;
    struct error err;

    while (sandbox != NULL && (sandbox->active == NULL || sandbox->active->kind != VERB_CREATE ||
                               sandbox->active->arg != arg))
        sandbox = sandbox->older;
    if (sandbox == NULL)
        return;
    (void)error_set(&err, "sandbox_gone", 0, "the client of sandbox %s has left", sandbox->id);
    (void)start_leave(sandbox, &err);
}

/* ---- start, stop, delete, change ---- */

/* `verb` 0: what a key alone may do. */
static struct sandbox *find_for(struct engine *engine, const struct engine_caller *caller,
                                const char *id, unsigned verb, struct error *err)
{
    struct sandbox *sandbox;

    if ((verb == 0 && caller_may(caller, ENGINE_WRITE, err) != 0) ||
        engine_accepts(engine, err) != 0)
        return NULL;
    sandbox = verb == 0 ? sandbox_find(engine, caller, id, err)
                        : sandbox_find_for(engine, caller, id, (enum engine_verb)verb, err);
    if (sandbox != NULL)
        sandbox_touch(sandbox);
    return sandbox;
}

static void push_plain(struct engine *engine, const struct engine_caller *caller, const char *id,
                       enum verb_kind kind, const char *reason, engine_sandbox_done done, void *arg)
{
    struct sandbox *sandbox;
    struct verb *verb;
    struct error err;

    sandbox = find_for(engine, caller, id, ENGINE_LIFE, &err);
    if (sandbox == NULL) {
        done(arg, NULL, &err);
        return;
    }
    verb = verb_new(kind, arg);
    (void)snprintf(verb->reason, sizeof(verb->reason), "%s", reason);
    verb->done.sandbox = done;
    sandbox_push(sandbox, verb);
}

void engine_start_sandbox(struct engine *engine, const struct engine_caller *caller, const char *id,
                          engine_sandbox_done done, void *arg)
{
    push_plain(engine, caller, id, VERB_START, "started", done, arg);
}

void engine_stop_sandbox(struct engine *engine, const struct engine_caller *caller, const char *id,
                         engine_sandbox_done done, void *arg)
{
    push_plain(engine, caller, id, VERB_STOP, "stopped", done, arg);
}

void engine_delete_sandbox(struct engine *engine, const struct engine_caller *caller,
                           const char *id, engine_done done, void *arg)
{
    struct sandbox *sandbox;
    struct verb *verb;
    struct error err;

    sandbox = find_for(engine, caller, id, 0, &err);
    if (sandbox == NULL) {
        done(arg, strcmp(err.code, "sandbox_gone") == 0 ? NULL : &err);
        return;
    }
    verb = verb_new(VERB_DELETE, arg);
    (void)snprintf(verb->reason, sizeof(verb->reason), "deleted");
    verb->done.plain = done;
    sandbox_push(sandbox, verb);
}

/* The lists stay with the policy that was made of them. */
static int change_network(const struct sandbox_network *wish, struct verb *verb, struct error *err)
{
    const struct record *record = verb->record;

    if (record_set_network(verb->record, wish, err) != 0)
        return -1;
    verb->change_fields |= CHANGE_NETWORK;
    verb->network = *wish;
    if (wish->mode == NULL && wish->allow == NULL)
        return 0;
    verb->network.mode = policy_mode_name(policy_mode(record->policy));
    verb->network.allow = policy_allow(record->policy);
    verb->network.deny = policy_deny(record->policy);
    return 0;
}

static int change_verb(const struct sandbox_change *change, struct verb *verb, struct error *err)
{
    /* Only what changes of it is looked at. */
    static const struct sandbox_spec usual = {.privileges = BOX_SYSTEM,
                                              .disk_kind = KEEPER_PERSISTENT};
    static const struct box_limits some = {
        .memory_bytes = 1 << 30, .pids = 2, .disk_bytes = 1 << 30};
    static const struct box_limits unbounded;

    if (change->then > SANDBOX_THEN_STOP || change->then < -1)
        return error_set(err, "bad_request", 0, "lifecycle.then: there is no such");
    if (record_new(&usual, "none", &some, &unbounded, NULL, &verb->record, err) != 0 ||
        (change->labels != NULL && record_set_labels(verb->record, change->labels, err) != 0))
        return -1;
    if (change->network != NULL && change_network(change->network, verb, err) != 0)
        return -1;
    if (change->labels != NULL)
        verb->change_fields |= CHANGE_LABELS;
    if (change->deadline_ms != UINT64_MAX)
        verb->change_fields |= CHANGE_DEADLINE;
    if (change->idle_ms != UINT64_MAX)
        verb->change_fields |= CHANGE_IDLE;
    if (change->then >= 0)
        verb->change_fields |= CHANGE_THEN;
    verb->record->deadline_ms = change->deadline_ms;
    verb->record->idle_ms = change->idle_ms;
    verb->record->then = change->then > 0 ? SANDBOX_THEN_STOP : SANDBOX_THEN_KILL;
    verb->if_revision = change->if_revision;
    return 0;
}

void engine_change_sandbox(struct engine *engine, const struct engine_caller *caller,
                           const char *id, const struct sandbox_change *change,
                           engine_sandbox_done done, void *arg)
{
    struct sandbox *sandbox;
    struct verb *verb;
    struct error err;

    sandbox = find_for(engine, caller, id, 0, &err);
    if (sandbox == NULL) {
        done(arg, NULL, &err);
        return;
    }
    verb = verb_new(VERB_CHANGE, arg);
    verb->done.sandbox = done;
    if (change_verb(change, verb, &err) != 0 ||
        policy_bound_check(net_bound(engine->net), verb->record->policy, &err) != 0) {
        record_free(verb->record);
        free(verb);
        done(arg, NULL, &err);
        return;
    }
    sandbox_push(sandbox, verb);
}

void engine_tokens_end(struct engine *engine, const struct engine_caller *caller, const char *id,
                       engine_sandbox_done done, void *arg)
{
    struct sandbox *sandbox;
    struct verb *verb;
    struct error err;

    sandbox = find_for(engine, caller, id, 0, &err);
    if (sandbox == NULL) {
        done(arg, NULL, &err);
        return;
    }
    verb = verb_new(VERB_CHANGE, arg);
    verb->change_fields = CHANGE_TOKENS;
    verb->done.sandbox = done;
    sandbox_push(sandbox, verb);
}

/* ---- its processes ---- */

/* Whether they can be had without waiting for a turn: this is the way of every command. */
static bool procs_at_once(struct sandbox *sandbox, bool must_run)
{
    if (sandbox->record->state == SANDBOX_CREATING)
        return false;
    return !must_run || (sandbox_is_steady(sandbox) && sandbox->first == NULL &&
                         sandbox->record->state == SANDBOX_RUNNING);
}

/* A key by its scopes. What exactly a token may, the front asks for each route; here only that it may do
 * anything of the kind, and that whoever may not start the sandbox does not so along the way. */
static struct sandbox *find_for_procs(struct engine *engine, const struct engine_caller *caller,
                                      const char *id, bool must_run, bool start, struct error *err)
{
    unsigned runs = ENGINE_EXEC | ENGINE_FILES_READ | ENGINE_FILES_WRITE | ENGINE_PORTS;
    struct sandbox *sandbox;

    if (caller->sandbox[0] == '\0' &&
        caller_may(caller, must_run ? ENGINE_WRITE : ENGINE_READ, err) != 0)
        return NULL;
    if (engine_accepts(engine, err) != 0 ||
        (sandbox = sandbox_find(engine, caller, id, err)) == NULL)
        return NULL;
    if (caller->sandbox[0] == '\0')
        return sandbox;
    if (start && engine_caller_may(caller, sandbox->id, ENGINE_LIFE, err) != 0)
        return NULL;
    if ((caller->verbs & (must_run ? runs : runs | ENGINE_LOOK)) != 0)
        return sandbox;
    (void)engine_caller_may(caller, sandbox->id, must_run ? ENGINE_EXEC : ENGINE_LOOK, err);
    return NULL;
}

void engine_procs(struct engine *engine, const struct engine_caller *caller, const char *id,
                  bool must_run, bool start, engine_procs_done done, void *arg)
{
    struct sandbox *sandbox = NULL;
    struct verb *verb;
    struct error err;

    sandbox = find_for_procs(engine, caller, id, must_run, start, &err);
    if (sandbox == NULL)
        goto refused;
    sandbox_touch(sandbox);
    if (procs_at_once(sandbox, must_run)) {
        if ((must_run && outdated_check(sandbox, &err) != 0) ||
            sandbox_open_procs(sandbox, &err) != 0)
            goto refused;
        done(arg, sandbox->procs, NULL);
        return;
    }
    verb = verb_new(VERB_PROCS, arg);
    verb->with_start = start;
    verb->done.procs = done;
    sandbox_push(sandbox, verb);
    return;

refused:
    done(arg, NULL, &err);
}

/* ---- the host ---- */

const struct keeper_host *engine_host(const struct engine *engine)
{
    return &engine->host;
}

static struct keeper_named *named_find(const struct engine *engine, uint32_t kind, const char *name)
{
    for (size_t i = 0; i < engine->named_count; i++)
        if (engine->named[i].kind == kind && strcmp(engine->named[i].name, name) == 0)
            return &engine->named[i];
    return NULL;
}

bool engine_named_is_read_only(const struct engine *engine, enum keeper_kind kind, const char *name)
{
    const struct keeper_named *named = named_find(engine, kind, name);

    return named != NULL && named->read_only != 0;
}

bool engine_named_is(const struct engine *engine, enum keeper_kind kind, const char *name,
                     const char *tenant)
{
    const struct keeper_named *named = named_find(engine, kind, name);

    if (named == NULL)
        return kind == KEEPER_ROOT && strcmp(name, "host") == 0 &&
               tenancy_has(engine->host.tenants, tenant);
    return named->is_there != 0 && tenancy_has(named->tenants, tenant);
}

void engine_named_add(struct engine *engine, const struct keeper_named *named)
{
    struct keeper_named *there = named_find(engine, named->kind, named->name);

    if (there == NULL) {
        engine->named = realloc(engine->named, (engine->named_count + 1) * sizeof(*there));
        if (engine->named == NULL)
            abort();
        there = &engine->named[engine->named_count++];
    }
    *there = *named;
}

void engine_named_each(struct engine *engine, const struct engine_caller *caller,
                       enum keeper_kind kind,
                       bool (*each)(void *arg, const char *name, bool is_read_only), void *arg)
{
    bool is_operator = (caller->scopes & ENGINE_OPERATOR) != 0;

    for (size_t i = 0; i < engine->named_count; i++) {
        const struct keeper_named *named = &engine->named[i];

        if (named->kind != kind || named->is_there == 0 ||
            (!is_operator && !tenancy_has(named->tenants, caller->tenant)))
            continue;
        if (!each(arg, named->name, named->read_only != 0))
            return;
    }
}

bool engine_is_ready(const struct engine *engine, struct error *err)
{
    return engine_accepts(engine, err) == 0;
}

uint64_t engine_idle_ms(const struct engine *engine)
{
    if (engine->verbs > 0 || events_has_listener(engine) || kernels_are_used(engine))
        return 0;
    for (const struct sandbox *sandbox = engine->oldest; sandbox != NULL; sandbox = sandbox->newer)
        if (sandbox->record->state == SANDBOX_RUNNING)
            return 0;
    return (clock_monotonic_ns() - engine->used_ns) / 1000000;
}
