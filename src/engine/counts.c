/* What the engine is asked about itself: counted where it happens, summed up here when somebody looks. */
#include "engine/parts.h"

#include <stdio.h>
#include <string.h>

static size_t running_of(const struct sandbox *sandbox)
{
    return sandbox->procs != NULL ? procs_running(sandbox->procs) : 0;
}

void engine_count(struct engine *engine, struct engine_counts *out)
{
    *out = (struct engine_counts){
        .pool_hits = engine->pool_hits,
        .pool_misses = engine->pool_misses,
        .pool_ready = pool_ready(engine),
        .boxes_waiting = box_turns_waiting(engine),
        .events = events_told(engine),
        .commits = *store_commits(engine->store),
    };
    for (const struct sandbox *sandbox = engine->oldest; sandbox != NULL;
         sandbox = sandbox->newer) {
        out->sandboxes[sandbox->record->state]++;
        out->processes += running_of(sandbox);
        out->network.connections += network_open_now(sandbox);
    }
    network_tally(engine);
    spent_network_all(engine, &out->network);
}

/* The last one found is mostly the next one looked for. */
static struct engine_use *use_of(struct engine_use *uses, size_t *count, size_t room,
                                 struct engine_use *last, const char *tenant)
{
    if (last != NULL && strcmp(last->tenant, tenant) == 0)
        return last;
    for (size_t i = 0; i < *count; i++)
        if (strcmp(uses[i].tenant, tenant) == 0)
            return &uses[i];
    if (*count + 1 == room)
        tenant = "";
    if (*count == room)
        return &uses[room - 1];
    uses[*count] = (struct engine_use){.tenant = ""};
    (void)snprintf(uses[*count].tenant, sizeof(uses[*count].tenant), "%s", tenant);
    return &uses[(*count)++];
}

size_t engine_uses(struct engine *engine, struct engine_use *uses, size_t room)
{
    struct engine_use *use = NULL;
    size_t count = 0;

    for (const struct sandbox *sandbox = engine->oldest; sandbox != NULL;
         sandbox = sandbox->newer) {
        const struct record *record = sandbox->record;

        use = use_of(uses, &count, room, use, record->tenant);
        use->sandboxes++;
        use->waiting += sandbox->turn.step == BOX_TURN_WAITS;
        use->processes += running_of(sandbox);
        use->disk_bytes += record->disk_kind == KEEPER_PERSISTENT ? record->limits.disk_bytes : 0;
        if (record->state == SANDBOX_RUNNING) {
            use->running++;
            use->memory_bytes += record->limits.memory_bytes;
            use->memory_used_bytes += sandbox->memory_bytes;
        }
    }
    return count;
}
