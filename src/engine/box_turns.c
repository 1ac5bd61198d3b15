/* Turns of boxes that are made, and those of changes of their mounts. The keeper makes few at once, because more of
 * them only make each other slow, and the tenants have their turns. So a burst waits here, behind its own tenant's
 * boxes and nobody else's.
 *
 * A tenant has fewer places than there are: one is free when another tenant comes, or is about to be. A box of a
 * sandbox that is there goes ahead of the tenant's new ones. The pool has a line as any tenant has. */
#include "engine/parts.h"

#include <stdio.h>
#include <stdlib.h>

#define AT_ONCE_LEAST 4
#define AT_ONCE_MOST 16
#define AT_ONCE_PER_CPU 2

TAILQ_HEAD(box_turn_list, box_turn);

/* Of a tenant, as long as it has a turn or waits for one. */
struct box_line {
    TAILQ_ENTRY(box_line) link;
    char tenant[64];
    struct box_turn_list first, waiting;
    unsigned taken;
};

struct box_turns {
    TAILQ_HEAD(box_lines, box_line) lines; /* the next one first */
    struct map by_tenant;
    unsigned taken;
    size_t waiting;
    uint64_t numbers;
    bool is_giving;
};

void box_turns_open(struct engine *engine)
{
    for (size_t i = 0; i < BOX_TURN_KINDS; i++) {
        engine->box_turns[i] = engine_alloc(sizeof(*engine->box_turns[i]));
        TAILQ_INIT(&engine->box_turns[i]->lines);
    }
}

/* A change of a mount waits for file systems more than it works. */
static unsigned at_once(const struct engine *engine, enum box_turn_kind kind)
{
    unsigned count = AT_ONCE_PER_CPU * engine->host.cpus;

    if (count > AT_ONCE_MOST || kind == BOX_TURN_MOUNT)
        return AT_ONCE_MOST;
    return count < AT_ONCE_LEAST ? AT_ONCE_LEAST : count;
}

static struct box_line *line_of(struct box_turns *turns, const char *tenant)
{
    struct box_line *line = map_get(&turns->by_tenant, tenant);

    if (line != NULL)
        return line;
    line = engine_alloc(sizeof(*line));
    (void)snprintf(line->tenant, sizeof(line->tenant), "%s", tenant);
    TAILQ_INIT(&line->first);
    TAILQ_INIT(&line->waiting);
    TAILQ_INSERT_TAIL(&turns->lines, line, link);
    map_put(&turns->by_tenant, line->tenant, line);
    return line;
}

static struct box_turn *line_next(const struct box_line *line)
{
    return !TAILQ_EMPTY(&line->first) ? TAILQ_FIRST(&line->first) : TAILQ_FIRST(&line->waiting);
}

static void line_free_if_empty(struct box_turns *turns, struct box_line *line)
{
    if (line->taken > 0 || line_next(line) != NULL)
        return;
    TAILQ_REMOVE(&turns->lines, line, link);
    (void)map_remove(&turns->by_tenant, line->tenant);
    free(line);
}

static struct box_turn_list *list_of(const struct box_turn *turn)
{
    return turn->is_first ? &turn->line->first : &turn->line->waiting;
}

/* Only lines with a taken turn are passed over, so they are few. */
static struct box_line *line_of_next(const struct box_turns *turns, unsigned most)
{
    struct box_line *line = NULL;

    TAILQ_FOREACH(line, &turns->lines, link)
    {
        if (line->taken < most && line_next(line) != NULL)
            return line;
    }
    return NULL;
}

static void give(struct box_turns *turns, struct box_line *line)
{
    struct box_turn *turn = line_next(line);

    TAILQ_REMOVE(list_of(turn), turn, link);
    TAILQ_REMOVE(&turns->lines, line, link);
    TAILQ_INSERT_TAIL(&turns->lines, line, link);
    turns->waiting--;
    turns->taken++;
    line->taken++;
    turn->step = BOX_TURN_TAKEN;
    turn->go(turn->arg);
}

/* A turn that is given may be left at once, which comes here again. */
static void give_some(struct engine *engine, enum box_turn_kind kind)
{
    struct box_turns *turns = engine->box_turns[kind];
    unsigned most = at_once(engine, kind);
    struct box_line *line;

    if (turns->is_giving)
        return;
    turns->is_giving = true;
    while (turns->taken < most && (line = line_of_next(turns, most / 2)) != NULL)
        give(turns, line);
    turns->is_giving = false;
}

/* Most come last. */
static void insert(struct box_turn *turn)
{
    struct box_turn_list *list = list_of(turn);
    struct box_turn *before = TAILQ_LAST(list, box_turn_list);

    while (before != NULL && before->number > turn->number)
        before = TAILQ_PREV(before, box_turn_list, link);
    if (before != NULL)
        TAILQ_INSERT_AFTER(list, before, turn, link);
    else
        TAILQ_INSERT_HEAD(list, turn, link);
}

void box_turn_wait(struct engine *engine, enum box_turn_kind kind, struct box_turn *turn,
                   const char *tenant, bool is_first, void (*go)(void *arg), void *arg)
{
    struct box_turns *turns = engine->box_turns[kind];
    uint64_t number = turn->number > 0 ? turn->number : ++turns->numbers;

    *turn = (struct box_turn){.line = line_of(turns, tenant),
                              .kind = kind,
                              .step = BOX_TURN_WAITS,
                              .is_first = is_first,
                              .number = number,
                              .go = go,
                              .arg = arg};
    insert(turn);
    turns->waiting++;
    give_some(engine, kind);
}

void box_turn_leave(struct engine *engine, struct box_turn *turn)
{
    struct box_turns *turns = engine->box_turns[turn->kind];
    bool was_taken = turn->step == BOX_TURN_TAKEN;

    if (turns == NULL || turn->step == BOX_TURN_NONE)
        return;
    turn->step = BOX_TURN_NONE;
    if (was_taken) {
        turns->taken--;
        turn->line->taken--;
        turn->number = 0;
    } else {
        turns->waiting--;
        TAILQ_REMOVE(list_of(turn), turn, link);
    }
    line_free_if_empty(turns, turn->line);
    give_some(engine, turn->kind);
}

bool box_turns_has_line(const struct engine *engine, const char *tenant)
{
    const struct box_line *line = map_get(&engine->box_turns[BOX_TURN_MAKE]->by_tenant, tenant);

    return line != NULL && line_next(line) != NULL;
}

size_t box_turns_waiting(const struct engine *engine)
{
    return engine->box_turns[BOX_TURN_MAKE]->waiting;
}

/* Those that wait are told to go, and find that the engine closes. */
static void close_kind(struct engine *engine, enum box_turn_kind kind)
{
    struct box_turns *turns = engine->box_turns[kind];
    struct box_line *line;

    if (turns == NULL)
        return;
    engine->box_turns[kind] = NULL;
    while ((line = TAILQ_FIRST(&turns->lines)) != NULL) {
        struct box_turn *turn;

        while ((turn = line_next(line)) != NULL) {
            TAILQ_REMOVE(list_of(turn), turn, link);
            turn->go(turn->arg);
        }
        TAILQ_REMOVE(&turns->lines, line, link);
        free(line);
    }
    map_free(&turns->by_tenant);
    free(turns);
}

void box_turns_close(struct engine *engine)
{
    for (unsigned kind = 0; kind < BOX_TURN_KINDS; kind++)
        close_kind(engine, kind);
}
