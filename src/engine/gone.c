/* Sandboxes that are gone: for a day, their ids answer that they were deleted.
 *
 * The store has their records; here is only when which of them may go. That is a ring of one size, all
 * of it in memory from the start: an engine is not to grow with every sandbox that it has ever had. */
#include "engine/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gone_init(struct gone_ring *ring)
{
    ring->all = engine_alloc(ENGINE_GONE_MAX * sizeof(*ring->all));
    memset(ring->all, 0xff, ENGINE_GONE_MAX * sizeof(*ring->all));
    ring->first = ring->count = 0;
}

void gone_free(struct gone_ring *ring)
{
    free(ring->all);
    ring->all = NULL;
}

static void forgotten(void *arg, uint64_t revision, const struct error *err)
{
    (void)arg;
    (void)revision;
    if (err != NULL && strcmp(err->code, "conflict") != 0)
        log_say(LOG_LEVEL_WARN, "store_failed",
                "the record of a deleted sandbox could not be removed: %s", err->text);
}

static void drop_first(struct engine *engine)
{
    struct gone_ring *ring = &engine->gone;
    char key[STORE_KEY_MAX];

    (void)snprintf(key, sizeof(key), "sandbox/%.*s", KEEPER_ID_LENGTH, ring->all[ring->first].id);
    store_put(engine->store, key, NULL, 0, STORE_ANY, forgotten, NULL);
    ring->first = (ring->first + 1) % ENGINE_GONE_MAX;
    ring->count--;
}

struct gone gone_of(const char *id, uint64_t at_ms)
{
    struct gone gone = {.at_s = (uint32_t)(at_ms / 1000)};

    memcpy(gone.id, id, sizeof(gone.id));
    return gone;
}

void gone_add(struct engine *engine, struct gone gone)
{
    struct gone_ring *ring = &engine->gone;

    if (ring->count == ENGINE_GONE_MAX)
        drop_first(engine);
    ring->all[(ring->first + ring->count++) % ENGINE_GONE_MAX] = gone;
}

void gone_expire(struct engine *engine)
{
    const struct gone_ring *ring = &engine->gone;
    uint64_t now = clock_wall_ms() / 1000;

    while (ring->count > 0 && ring->all[ring->first].at_s + ENGINE_GONE_S < now)
        drop_first(engine);
}

/* 1; 0: there was none that we know of. */
int gone_find(struct engine *engine, const char *id, struct record **out, struct error *err)
{
    struct store_value value;
    char key[STORE_KEY_MAX];
    int got;

    *out = NULL;
    if (strlen(id) != KEEPER_ID_LENGTH)
        return 0;
    (void)snprintf(key, sizeof(key), "sandbox/%s", id);
    got = store_get(engine->store, key, &value, err);
    if (got <= 0)
        return got;
    if (record_parse(value.data, value.size, out, err) != 0)
        *out = NULL;
    store_value_free(&value);
    if (*out != NULL && (*out)->state != SANDBOX_DELETED) {
        record_free(*out);
        *out = NULL;
    }
    return *out != NULL;
}
