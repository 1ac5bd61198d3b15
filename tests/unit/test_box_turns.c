/* Turns of boxes that are made: a tenant's burst waits and is not refused, and no other tenant waits behind it. What
 * still waits at the end of a test is answered when the engine closes, so those answers are static. */
#include "base/clock.h"
#include "check.h"
#include "rig.h"

#include <stdlib.h>

#define AT_ONCE 4 /* of this keeper's host */
#define OF_TENANT 2
#define BURST 100

static struct answer *create_of(struct rig *rig, const char *tenant, const char *name,
                                struct answer *answer)
{
    struct engine_caller caller = rig_caller;
    struct sandbox_spec spec = rig_spec(name);

    (void)snprintf(caller.tenant, sizeof(caller.tenant), "%s", tenant);
    *answer = (struct answer){0};
    engine_create(rig->engine, &caller, &spec, rig_created, answer);
    return answer;
}

static size_t waiting(struct rig *rig)
{
    struct engine_counts counts;

    engine_count(rig->engine, &counts);
    return counts.boxes_waiting;
}

struct holding {
    struct rig *rig;
    unsigned count;
};

static bool holds(void *arg)
{
    const struct holding *holding = arg;

    return holding->rig->fake.held_count == holding->count;
}

/* Until the keeper has been asked for exactly so many boxes that it does not make yet. */
static bool is_held(struct rig *rig, unsigned count)
{
    struct holding holding = {rig, count};

    return rig_until(rig, holds, &holding);
}

static const char *tenant_of(struct rig *rig, const struct keeper_make *make)
{
    static char tenant[64];
    const struct engine_caller *callers[] = {&rig_caller, &rig_other};
    struct sandbox_view view;
    struct error err;

    for (size_t i = 0; i < 2; i++)
        if (engine_look(rig->engine, callers[i], make->owner, &view, &err) == 0)
            (void)snprintf(tenant, sizeof(tenant), "%s", view.tenant);
    return tenant;
}

static void check_burst(struct rig *rig)
{
    static struct answer made[BURST];
    struct answer other;

    rig->fake.holds = true;
    for (size_t i = 0; i < BURST; i++)
        (void)create_of(rig, "default", NULL, &made[i]);
    CHECK(is_held(rig, OF_TENANT) && waiting(rig) == BURST - OF_TENANT, "%u are made, %zu wait",
          rig->fake.held_count, waiting(rig));
    (void)create_of(rig, "other", NULL, &other);
    CHECK(is_held(rig, OF_TENANT + 1) &&
              strcmp(tenant_of(rig, rig->fake.held[OF_TENANT]), "other") == 0,
          "another tenant's is made at once");
    rig->fake.holds = false;
    while (rig->fake.held_count > 0)
        fake_release(&rig->fake);
    CHECK(rig_done(rig, &other), "and done: %s", other.error.text);
    for (size_t i = 0; i < BURST; i++)
        CHECK(rig_done(rig, &made[i]), "none is refused: %zu: %s", i, made[i].error.text);
    CHECK(waiting(rig) == 0, "and none waits");
}

/* Of each tenant's creates two at least. */
static bool are_done(void *arg)
{
    const struct answer(*made)[6] = arg;

    for (size_t tenant = 0; tenant < 3; tenant++) {
        size_t count = 0;

        for (size_t i = 0; i < 6; i++)
            count += made[tenant][i].count;
        if (count < 2)
            return false;
    }
    return true;
}

/* Four places, and three tenants that want all of them. */
static void check_turns(struct rig *rig)
{
    static const char *const tenants[] = {"default", "other", "third"};
    static struct answer made[3][6];

    rig->fake.holds = true;
    for (size_t tenant = 0; tenant < 3; tenant++)
        for (size_t i = 0; i < 6; i++)
            (void)create_of(rig, tenants[tenant], NULL, &made[tenant][i]);
    for (unsigned round = 0; round < 9; round++) {
        CHECK(is_held(rig, AT_ONCE), "all places are taken: %u", rig->fake.held_count);
        fake_release(&rig->fake);
    }
    CHECK(is_held(rig, AT_ONCE), "%u", rig->fake.held_count);
    CHECK(rig_until(rig, are_done, made), "of nine that were made three are each tenant's");
}

static void check_start_goes_ahead(struct rig *rig)
{
    static struct answer made[6], started;
    struct answer stopped;

    rig_made(rig, "old", &stopped);
    CHECK(rig_done(rig, rig_stop(rig, stopped.id, &started)), "it is stopped");
    rig->fake.holds = true;
    for (size_t i = 0; i < 6; i++)
        (void)create_of(rig, "default", NULL, &made[i]);
    (void)rig_start_it(rig, stopped.id, &started);
    CHECK(is_held(rig, OF_TENANT) && waiting(rig) == 5, "it waits, too");
    fake_release(&rig->fake);
    CHECK(rig_done(rig, &made[0]), "%s", made[0].error.text);
    CHECK(is_held(rig, OF_TENANT) && strcmp(rig->fake.held[1]->owner, stopped.id) == 0,
          "it is next");
}

/* ---- those that leave ---- */

/* One that waits, behind those that take the tenant's places. */
static void make_wait(struct rig *rig, uint64_t deadline_ms, struct answer *waits)
{
    static struct answer before[OF_TENANT];
    struct sandbox_spec spec = rig_spec("waits");

    rig->fake.holds = true;
    for (size_t i = 0; i < OF_TENANT; i++)
        (void)create_of(rig, "default", NULL, &before[i]);
    spec.deadline_ms = deadline_ms;
    (void)rig_create(rig, &spec, waits);
    CHECK(is_held(rig, OF_TENANT) && waiting(rig) == 1 && waits->count == 0, "it waits");
}

static void check_gone(struct rig *rig, struct answer *waits)
{
    CHECK(rig_fails(rig, waits, "sandbox_gone"), "%s: %s", waits->error.code, waits->error.text);
    CHECK(waiting(rig) == 0, "nobody waits");
    rig->fake.holds = false;
    while (rig->fake.held_count > 0)
        fake_release(&rig->fake);
    rig_turn(rig, 20);
    CHECK(rig->fake.counts[KEEPER_MAKE] == OF_TENANT, "no box was asked for");
    CHECK(rig->fake.dropped_count == 0, "and no disk was dropped");
    rig_made(rig, "waits", waits);
    CHECK(waits->created, "the name is free");
}

static void check_delete(struct rig *rig)
{
    struct answer waits, gone;

    make_wait(rig, 0, &waits);
    CHECK(rig_done(rig, rig_delete(rig, "name:waits", &gone)), "%s", gone.error.text);
    check_gone(rig, &waits);
}

static void check_deadline(struct rig *rig)
{
    struct answer waits;

    make_wait(rig, clock_wall_ms() + 60000, &waits);
    rig_pass(rig, 30000);
    CHECK(waits.count == 0 && waiting(rig) == 1, "it has time");
    rig_pass(rig, 31000);
    check_gone(rig, &waits);
}

static void check_client_leaves(struct rig *rig)
{
    struct answer waits, nobody;

    make_wait(rig, 0, &waits);
    engine_create_leave(rig->engine, &nobody);
    rig_turn(rig, 5);
    CHECK(waits.count == 0, "another client leaves");
    engine_create_leave(rig->engine, &waits);
    check_gone(rig, &waits);
}

/* Those that want the same make their own, and wait where the one that left did. */
static void check_joined(struct rig *rig)
{
    struct answer waits, joins, behind;
    struct sandbox_spec spec = rig_spec("waits");
    struct sandbox_view view;
    struct error err;

    make_wait(rig, 0, &waits);
    (void)rig_create(rig, &spec, &joins);
    (void)create_of(rig, "default", "behind", &behind);
    engine_create_leave(rig->engine, &waits);
    CHECK(rig_fails(rig, &waits, "sandbox_gone"), "%s", waits.error.text);
    fake_release(&rig->fake);
    CHECK(is_held(rig, OF_TENANT), "one more is made");
    CHECK(engine_look(rig->engine, &rig_caller, rig->fake.held[1]->owner, &view, &err) == 0 &&
              strcmp(view.name, "waits") == 0,
          "before those that came later");
    rig->fake.holds = false;
    while (rig->fake.held_count > 0)
        fake_release(&rig->fake);
    CHECK(rig_done(rig, &joins) && joins.created, "%s", joins.error.text);
    CHECK(rig_done(rig, &behind), "%s", behind.error.text);
}

/* A box that is being made is not given up: the keeper has been asked. */
static void check_turn_taken(struct rig *rig)
{
    struct answer made;

    rig->fake.holds = true;
    (void)create_of(rig, "default", NULL, &made);
    CHECK(is_held(rig, 1), "it is made");
    engine_create_leave(rig->engine, &made);
    rig->fake.holds = false;
    fake_release(&rig->fake);
    CHECK(rig_done(rig, &made), "%s", made.error.text);
}

/* ---- the end ---- */

static void check_keeper_lost(struct rig *rig)
{
    struct answer waits;

    make_wait(rig, 0, &waits);
    fake_vanish(&rig->fake);
    CHECK(rig_fails(rig, &waits, "draining"), "%s: %s", waits.error.code, waits.error.text);
}

/* Three of a tenant wait, and one of the pool. */
static void check_close(struct rig *rig)
{
    static struct answer made[OF_TENANT + 3];

    rig->options.pool = OF_TENANT + 1;
    rig_open(rig);
    rig->fake.holds = true;
    for (size_t i = 0; i < OF_TENANT + 3; i++)
        (void)create_of(rig, "default", NULL, &made[i]);
    CHECK(is_held(rig, AT_ONCE) && waiting(rig) == 4, "%zu wait", waiting(rig));
}

/* ---- the pool ---- */

static bool has_two_ready(void *arg)
{
    const struct rig *rig = arg;
    struct engine_counts counts;

    engine_count(rig->engine, &counts);
    return counts.pool_ready == 2;
}

static void check_pool(struct rig *rig)
{
    struct sandbox_spec odd = rig_spec(NULL);
    static struct answer unusual[3], usual;
    struct answer first, other;

    rig->options.pool = 2;
    rig_open(rig);
    rig_made(rig, NULL, &first);
    CHECK(rig_until(rig, has_two_ready, rig), "two stand ready");
    rig->fake.holds = true;
    odd.limits.memory_bytes = 32 << 20;
    for (size_t i = 0; i < 3; i++)
        (void)rig_create(rig, &odd, &unusual[i]);
    CHECK(is_held(rig, OF_TENANT) && waiting(rig) == 1, "one of the tenant waits");
    (void)create_of(rig, "default", NULL, &usual);
    CHECK(rig_done(rig, create_of(rig, "other", NULL, &other)), "%s", other.error.text);
    CHECK(rig->fake.counts[KEEPER_CLAIM] == 1 && usual.count == 0,
          "what stands ready is for a tenant that does not");
}

int main(void)
{
    rig_run(check_burst);
    rig_run(check_turns);
    rig_run(check_start_goes_ahead);
    rig_run(check_delete);
    rig_run(check_deadline);
    rig_run(check_client_leaves);
    rig_run(check_joined);
    rig_run(check_turn_taken);
    rig_run(check_keeper_lost);
    rig_run_unopened(check_close);
    rig_run_unopened(check_pool);
    return check_finish();
}
