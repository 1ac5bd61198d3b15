/* What the boxes of each tenant spend: processor time and traffic since this engine began, which never become
 * less, and the memory they have now.
 *
 * A box says it when it ends, and each is asked now and then, when somebody wants to know: a few at once, so
 * that the keeper has time for others, and not more often than every SPENT_EVERY_NS. What is answered is older
 * by that much. Of how many tenants it is kept apart is bounded; the others are one. */
#include "base/clock.h"
#include "base/fd.h"
#include "engine/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPENT_EVERY_NS (10ULL * 1000000000)
#define AT_ONCE 8

struct spent {
    struct engine_spent tenants[ENGINE_SPENT_TENANTS + 1]; /* the last is the others' */
    size_t count;
    uint64_t looked_ns; /* 0: never */
    /* A look that goes on: whom to ask still. */
    char (*ids)[KEEPER_ID_LENGTH + 4];
    size_t ids_count, ids_next, asked;
};

struct question {
    struct engine *engine;
    char sandbox[KEEPER_ID_LENGTH + 4];
    uint64_t box;
};

static struct spent *spent_of(struct engine *engine)
{
    if (engine->spent == NULL)
        engine->spent = engine_alloc(sizeof(*engine->spent));
    return engine->spent;
}

static struct engine_spent *tenant_of(struct spent *spent, const char *tenant)
{
    size_t i = 0;

    while (i < spent->count && strcmp(spent->tenants[i].tenant, tenant) != 0)
        i++;
    if (i == ENGINE_SPENT_TENANTS)
        return &spent->tenants[i];
    if (i == spent->count) {
        (void)snprintf(spent->tenants[i].tenant, sizeof(spent->tenants[i].tenant), "%s", tenant);
        spent->count++;
    }
    return &spent->tenants[i];
}

void spent_take(struct sandbox *sandbox, const struct keeper_report *report, bool is_end)
{
    struct spent *spent = spent_of(sandbox->engine);

    if (report != NULL && report->usage_known != 0) {
        /* What a box had spent before this engine was there, another one has counted. */
        if (!sandbox->spent_unknown && report->cpu_ns > sandbox->cpu_ns)
            tenant_of(spent, sandbox->record->tenant)->cpu_ns += report->cpu_ns - sandbox->cpu_ns;
        if (sandbox->spent_unknown || report->cpu_ns > sandbox->cpu_ns)
            sandbox->cpu_ns = report->cpu_ns;
        sandbox->spent_unknown = false;
        sandbox->memory_bytes = report->memory_bytes;
    }
    if (is_end) {
        sandbox->cpu_ns = sandbox->memory_bytes = 0;
        sandbox->spent_unknown = false;
    }
}

static void network_add(struct net_counts *sum, const struct net_counts *seen,
                        const struct net_counts *now)
{
    sum->connections_all += now->connections_all - seen->connections_all;
    sum->denied += now->denied - seen->denied;
    sum->lookups += now->lookups - seen->lookups;
    sum->bytes_out += now->bytes_out - seen->bytes_out;
    sum->bytes_in += now->bytes_in - seen->bytes_in;
}

void spent_network(struct sandbox *sandbox, struct net_counts *seen, const struct net_counts *now)
{
    struct spent *spent = spent_of(sandbox->engine);

    network_add(&tenant_of(spent, sandbox->record->tenant)->network, seen, now);
    *seen = *now;
}

void spent_network_all(struct engine *engine, struct net_counts *out)
{
    static const struct net_counts nothing;
    const struct spent *spent = spent_of(engine);

    for (size_t i = 0; i <= ENGINE_SPENT_TENANTS; i++)
        network_add(out, &nothing, &spent->tenants[i].network);
}

/* ---- the look ---- */

static void ask_some(struct engine *engine);

static void answered(void *arg, const union keeper_answer *answer, int fd, const struct error *err)
{
    struct question question = *(struct question *)arg;
    struct sandbox *sandbox;

    fd_close(&fd);
    free(arg);
    if (question.engine->is_closing)
        return;
    question.engine->spent->asked--;
    sandbox = map_get(&question.engine->ids, question.sandbox);
    if (err == NULL && sandbox != NULL && sandbox->box == question.box)
        spent_take(sandbox, &answer->report, false);
    ask_some(question.engine);
}

static void ask_some(struct engine *engine)
{
    struct spent *spent = engine->spent;

    if (engine->is_draining)
        spent->ids_next = spent->ids_count;
    while (spent->asked < AT_ONCE && spent->ids_next < spent->ids_count) {
        const char *id = spent->ids[spent->ids_next++];
        const struct sandbox *sandbox = map_get(&engine->ids, id);
        union keeper_request request = {0};
        struct question *question;

        if (sandbox == NULL || sandbox->box == 0)
            continue;
        question = engine_alloc(sizeof(*question));
        *question = (struct question){.engine = engine, .box = sandbox->box};
        memcpy(question->sandbox, sandbox->id, sizeof(question->sandbox));
        request.of_box.box = sandbox->box;
        spent->asked++;
        keeper_client_ask(engine->keeper, KEEPER_USAGE, &request, answered, question);
    }
    if (spent->asked > 0 || spent->ids_next < spent->ids_count)
        return;
    free(spent->ids);
    spent->ids = NULL;
    spent->ids_count = spent->ids_next = 0;
}

void spent_look(struct engine *engine)
{
    struct spent *spent = spent_of(engine);
    uint64_t now = clock_monotonic_ns();
    size_t count = 0;

    if (!engine->is_ready || engine->is_draining || spent->ids != NULL ||
        (spent->looked_ns != 0 && now - spent->looked_ns < SPENT_EVERY_NS))
        return;
    spent->looked_ns = now;
    for (const struct sandbox *sandbox = engine->oldest; sandbox != NULL; sandbox = sandbox->newer)
        count += sandbox->box != 0;
    if (count == 0)
        return;
    spent->ids = engine_alloc(count * sizeof(*spent->ids));
    for (const struct sandbox *sandbox = engine->oldest; sandbox != NULL; sandbox = sandbox->newer)
        if (sandbox->box != 0)
            memcpy(spent->ids[spent->ids_count++], sandbox->id, sizeof(*spent->ids));
    ask_some(engine);
}

size_t engine_spent(struct engine *engine, const struct engine_spent **tenants)
{
    struct spent *spent = spent_of(engine);

    const struct engine_spent *others = &spent->tenants[ENGINE_SPENT_TENANTS];

    spent_look(engine);
    network_tally(engine);
    *tenants = spent->tenants;
    return spent->count + (others->cpu_ns > 0 || others->network.lookups > 0 ||
                           others->network.connections_all > 0);
}

void spent_free(struct engine *engine)
{
    if (engine->spent != NULL)
        free(engine->spent->ids);
    free(engine->spent);
    engine->spent = NULL;
}
