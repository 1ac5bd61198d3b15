/* The engine's life: it opens the store, greets the keeper, takes over what lives, and ends.
 *
 * It can be killed at any moment; closing it is only for tests and for whoever wants to see that
 * nothing leaks. */
#include "base/fd.h"
#include "engine/parts.h"
#include "net/turns.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#define TICK_NS (600ULL * 1000000000)

/* ---- small things ---- */

void *engine_alloc(size_t size)
{
    void *memory = calloc(1, size);

    if (memory == NULL)
        abort();
    return memory;
}

char *engine_name_key(const char *tenant, const char *name)
{
    char *key = NULL;

    if (asprintf(&key, "%s/%s", tenant, name) < 0)
        abort();
    return key;
}

void engine_id(char *id, size_t size, const char *first)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    size_t at = strlen(first);

    memcpy(id, first, at);
    while (at < size - 1) {
        unsigned char bytes[32];

        if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
            abort();
        for (size_t i = 0; i < sizeof(bytes) && at < size - 1; i++)
            if (bytes[i] < 252) /* 7 * 36: each letter is as likely */
                id[at++] = letters[bytes[i] % 36];
    }
    id[at] = '\0';
}

/* ---- later, in the loop ---- */

/* What is put off while this runs has its turn in the next round. */
static void run_later(uv_idle_t *idle)
{
    struct engine *engine = idle->data;
    const struct later *last = engine->later_last;
    bool more = true;

    while (more && engine->later_first != NULL) {
        struct later *later = engine->later_first;

        more = later != last;
        engine->later_first = later->next;
        if (engine->later_first == NULL)
            engine->later_last = NULL;
        later->call(later->arg);
        free(later);
    }
    if (engine->later_first == NULL && !engine->is_closing)
        (void)uv_idle_stop(idle);
}

void engine_later(struct engine *engine, void (*call)(void *arg), void *arg)
{
    struct later *later = engine_alloc(sizeof(*later));

    *later = (struct later){.call = call, .arg = arg};
    if (engine->later_last != NULL)
        engine->later_last->next = later;
    else
        engine->later_first = later;
    engine->later_last = later;
    if (!engine->is_closing)
        (void)uv_idle_start(&engine->idle, run_later);
}

/* ---- being there ---- */

/* From within the loop: who hears it knows that clients are answered. */
static void beat(void *arg)
{
    struct engine *engine = arg;

    if (engine->options.beat_ms == 0)
        return;
    keeper_client_beat(engine->keeper);
    clock_set(engine->clock, &engine->beat,
              clock_monotonic_ns() + engine->options.beat_ms * 1000000ULL, beat, engine);
}

/* ---- the end, when all has come to its own ---- */

static void settle(void *arg)
{
    struct engine *engine = arg;

    engine->will_settle = false;
    if (engine->is_opening && engine->verbs == 0) {
        engine->is_opening = false;
        beat(engine);
        engine->opened(engine->opened_arg, NULL);
    }
    if ((!engine->is_lost && !engine->is_draining) || engine->takeover != NULL ||
        engine->verbs > 0 || engine->removals > 0 || keeper_client_pending(engine->keeper) > 0)
        return;
    events_flush(engine);
    if (events_pending(engine))
        return;
    if (engine->is_lost && !engine->has_told) {
        engine->has_told = true;
        engine->options.lost(engine->options.arg);
    } else if (engine->drained != NULL) {
        void (*drained)(void *arg) = engine->drained;

        engine->drained = NULL;
        drained(engine->drained_arg);
    }
}

void engine_settled(struct engine *engine)
{
    if ((!engine->is_lost && !engine->is_draining && !engine->is_opening) || engine->will_settle ||
        engine->is_closing)
        return;
    engine->will_settle = true;
    engine_later(engine, settle, engine);
}

/* ---- what the keeper says ---- */

static void told_host(void *arg, const struct keeper_host *host)
{
    struct engine *engine = arg;

    engine->host = *host;
}

static void told_named(void *arg, const struct keeper_named *named)
{
    engine_named_add(arg, named);
    pool_named(arg, named);
}

static void told_tls(void *arg, int fd)
{
    struct engine *engine = arg;

    if (engine->options.tls != NULL)
        engine->options.tls(engine->options.arg, fd);
    else
        fd_close(&fd);
}

static void keeper_lost(void *arg, const struct error *err)
{
    struct engine *engine = arg;

    engine->is_lost = true;
    pool_lost(engine);
    kernels_lost(engine, "the engine has lost its keeper");
    log_say(LOG_LEVEL_ERROR, "keeper_lost", "%s", err->text);
    for (struct sandbox *sandbox = engine->oldest, *next; sandbox != NULL; sandbox = next) {
        next = sandbox->newer;
        if (sandbox->step == STEP_READY)
            start_give_up(sandbox, err);
        else if ((sandbox->record->state == SANDBOX_RUNNING || sandbox->is_quiet) &&
                 engine->is_ready)
            sandbox_fall(sandbox, "keeper_lost");
    }
    engine_settled(engine);
}

static const struct keeper_calls keeper_calls = {
    .host = told_host,
    .named = told_named,
    .box = takeover_box,
    .disk = takeover_disk,
    .tls = told_tls,
    .lost = keeper_lost,
};

/* ---- opening ---- */

/* A sandbox that does not run costs no fd, unless somebody has just looked at it. */
void engine_close_quiet(struct engine *engine)
{
    for (struct sandbox *sandbox = engine->oldest; sandbox != NULL; sandbox = sandbox->newer) {
        if (sandbox->procs == NULL || sandbox->box != 0 || sandbox->active != NULL ||
            sandbox->first != NULL || !procs_is_quiet(sandbox->procs))
            continue;
        procs_close(sandbox->procs, false);
        sandbox->procs = NULL;
    }
}

static void tick(void *arg)
{
    struct engine *engine = arg;

    gone_expire(engine);
    engine_close_quiet(engine);
    if (!capacity_disk_is_low(engine))
        capacity_keep_room(engine);
    clock_set(engine->clock, &engine->tick, clock_monotonic_ns() + TICK_NS, tick, engine);
}

static int sandboxes_open(struct engine *engine, struct error *err)
{
    int dir = engine->options.directory;

    if (mkdirat(dir, "sandboxes", 0700) != 0 && errno != EEXIST)
        return error_set(err, "store_failed", errno,
                         "cannot make the directory 'sandboxes' in the engine's own");
    engine->sandboxes_dir = openat(dir, "sandboxes",
                                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (engine->sandboxes_dir < 0)
        return error_set(err, "store_failed", errno,
                         "cannot open the directory 'sandboxes' in the engine's own");
    return 0;
}

static int open_all(struct engine *engine, struct error *err)
{
    const struct engine_options *options = &engine->options;
    char path[64];
    int keeper, requests;

    if (record_limits(&engine->options.defaults, &options->most, err) != 0)
        return -1;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d/store", options->directory);
    if (turns_open(options->loop, PROCS_ROUND_NS, &engine->turns, err) != 0 ||
        sandboxes_open(engine, err) != 0 || tool_programs_open(engine->programs, err) != 0 ||
        store_open(path, options->loop, &engine->store, err) != 0 ||
        tenants_open(engine, err) != 0 || tokens_open(engine, err) != 0 ||
        events_open(engine, err) != 0 || network_open_room(engine, err) != 0 ||
        takeover_load(engine, err) != 0)
        return -1;
    box_turns_open(engine);
    pool_open(engine);
    disk_room_open(engine);
    kernels_open(engine);
    keeper = fd_take(&engine->options.keeper);
    requests = fd_take(&engine->options.keeper_requests);
    if (keeper_client_open(options->loop, keeper, requests, &keeper_calls, engine, &engine->keeper,
                           err) != 0)
        return -1;
    takeover_begin(engine);
    return 0;
}

/* Where it gets no memory jansson goes on, and reads behind what it has: so the engine ends there, as it does for
 * its own, and the next one goes on. */
static void *json_memory(size_t size)
{
    void *memory = malloc(size);

    if (memory == NULL)
        abort();
    return memory;
}

int engine_open(const struct engine_options *options, struct engine **out,
                void (*done)(void *arg, const struct error *err), void *arg, struct error *err)
{
    struct engine *engine = engine_alloc(sizeof(*engine));

    json_set_alloc_funcs(json_memory, free);
    engine->options = *options;
    engine->options.network = NULL; /* lent for this call, as the two below */
    engine->policy = options->network != NULL ? policy_copy(options->network) : NULL;
    engine->sandboxes_dir = -1;
    for (int i = 0; i < TOOL_PROGRAMS; i++)
        engine->programs[i] = -1;
    gone_init(&engine->gone);
    engine->used_ns = clock_monotonic_ns();
    engine->opened = done;
    engine->opened_arg = arg;
    (void)uv_idle_init(options->loop, &engine->idle);
    engine->idle.data = engine;
    engine->clock = clock_new(options->loop);
    if (open_all(engine, err) != 0) {
        engine_close(engine);
        return -1;
    }
    engine->options.resolvers = engine->options.nat64 = engine->options.proxy = NULL;
    engine->options.private = NULL;
    capacity_begin(engine);
    clock_set(engine->clock, &engine->tick, clock_monotonic_ns() + TICK_NS, tick, engine);
    *out = engine;
    return 0;
}

/* ---- closing ---- */

void engine_drain(struct engine *engine, void (*done)(void *arg), void *arg)
{
    engine->is_draining = true;
    engine->drained = done;
    engine->drained_arg = arg;
    if (engine->kernels != NULL)
        kernels_drain(engine);
    engine_settled(engine);
}

void engine_free_if_done(struct engine *engine)
{
    if (!engine->is_closed || engine->has_net || engine->removals > 0)
        return;
    tool_programs_close(engine->programs);
    fd_close(&engine->sandboxes_dir);
    fd_close(&engine->options.directory);
    free(engine);
}

static void idle_closed(uv_handle_t *handle)
{
    struct engine *engine = handle->data;

    engine->is_closed = true;
    engine_free_if_done(engine);
}

static void sandboxes_close(struct engine *engine)
{
    for (struct sandbox *sandbox = engine->oldest; sandbox != NULL; sandbox = sandbox->newer)
        sandbox_abandon(sandbox);
    while (engine->oldest != NULL) {
        struct sandbox *sandbox = engine->oldest;

        sandbox_unlist(sandbox);
        sandbox_free_now(sandbox);
    }
    map_free(&engine->ids);
    map_free(&engine->names);
}

static void later_close(struct engine *engine)
{
    for (struct later *later = engine->later_first, *next; later != NULL; later = next) {
        next = later->next;
        /* A sandbox that was deleted is in no list but this. */
        if (later->call == (void (*)(void *))sandbox_free_now)
            later->call(later->arg);
        free(later);
    }
    engine->later_first = engine->later_last = NULL;
}

/* Callbacks that come while this runs find is_closing, and begin nothing. */
void engine_close(struct engine *engine)
{
    if (engine == NULL)
        return;
    engine->is_closing = true;
    box_turns_close(engine);
    if (engine->keeper != NULL)
        keeper_client_close(engine->keeper);
    fd_close(&engine->options.keeper);
    fd_close(&engine->options.keeper_requests);
    if (engine->store != NULL) {
        events_end(engine);
        store_close(engine->store);
    }
    files_end_all(engine);
    ports_close_all(engine);
    sandboxes_close(engine);
    kernels_close(engine);
    pool_close(engine);
    disk_room_close(engine);
    takeover_free(engine);
    later_close(engine);
    events_close(engine);
    tokens_close(engine);
    tenants_close(engine);
    gone_free(&engine->gone);
    clock_free(engine->clock);
    spent_free(engine);
    shares_free(engine);
    if (engine->turns != NULL)
        turns_close(engine->turns, NULL, NULL);
    free(engine->named);
    policy_free(engine->policy);
    uv_close((uv_handle_t *)&engine->idle, idle_closed);
}
