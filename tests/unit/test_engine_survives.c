/* What the engine survives: a keeper that vanishes at any step or lies, a restart of the engine at any
 * step, a store that cannot write, a crowd. Every verb is answered exactly once, what was acknowledged
 * is there afterwards, and nothing leaks. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/remove.h"
#include "check.h"
#include "rig.h"
#include "store/store.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_lost(void *arg)
{
    const struct rig *rig = arg;

    return rig->lost;
}

static bool is_opened(void *arg)
{
    const struct rig *rig = arg;

    return rig->opened;
}

/* ---- the keeper vanishes ---- */

/* Something of everything is going on: a sandbox runs, one is stopped, one is being made, one starts. */
struct crowd {
    struct answer runs, stopped, made, named, starts, stops, deletes, execs;
};

static void crowd_prepare(struct rig *rig, struct crowd *crowd)
{
    struct answer other;

    rig_made(rig, "runs", &crowd->runs);
    rig_made(rig, "stopped", &crowd->stopped);
    (void)rig_wait(rig, rig_stop(rig, crowd->stopped.id, &other));
}

static void crowd_acts(struct rig *rig, struct crowd *crowd)
{
    struct sandbox_spec spec = rig_spec(NULL), named = rig_spec("named");

    rig_create(rig, &spec, &crowd->made);
    rig_create(rig, &named, &crowd->named);
    rig_start_it(rig, crowd->stopped.id, &crowd->starts);
    rig_procs(rig, crowd->stopped.id, true, &crowd->execs);
}

static void crowd_check(struct rig *rig, struct crowd *crowd, const char *when)
{
    struct answer *answers[] = {&crowd->made, &crowd->named, &crowd->starts, &crowd->execs};
    struct answer seen;

    CHECK(rig_until(rig, is_lost, rig), "%s: it says that the keeper is lost", when);
    for (size_t i = 0; i < 4; i++)
        CHECK(answers[i]->count == 1, "%s: verb %zu was answered %u times", when, i,
              answers[i]->count);
    CHECK(rig_look(rig, crowd->runs.id, &seen) == SANDBOX_STOPPED &&
              strcmp(seen.reason, "keeper_lost") == 0,
          "%s: %s", when, seen.reason);
    CHECK(rig_look(rig, crowd->stopped.id, &seen) == SANDBOX_STOPPED, "%s: the other", when);
}

/* What the disk says, by a new engine with a new keeper that has no boxes. */
static void crowd_check_after(struct rig *rig, struct crowd *crowd, const char *when)
{
    struct answer seen;

    rig_close(rig);
    rig_other_keeper(rig);
    rig_open(rig);
    CHECK(rig_becomes(rig, crowd->runs.id, SANDBOX_STOPPED, "keeper_lost"), "%s, after a restart",
          when);
    CHECK((rig_look(rig, "name:named", &seen) >= 0) == !crowd->named.failed,
          "%s: what was acknowledged is there, and nothing else", when);
    rig_made(rig, "named", &seen);
    CHECK(seen.created == crowd->named.failed, "%s: the name", when);
}

static void check_vanishing(void)
{
    static const struct {
        uint32_t at;
        const char *when;
    } steps[] = {{KEEPER_MAKE, "at make"}, {KEEPER_END, "at end"}, {KEEPER_CLAIM, "at claim"}};
    struct answer stops;
    struct crowd crowd;
    struct rig rig;

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        rig_start(&rig);
        rig.options.pool = steps[i].at == KEEPER_CLAIM ? 2 : 0;
        rig_open(&rig);
        crowd_prepare(&rig, &crowd);
        rig_turn(&rig, 30);
        rig.fake.vanish_at = steps[i].at;
        if (steps[i].at == KEEPER_END)
            rig_stop(&rig, crowd.runs.id, &stops);
        crowd_acts(&rig, &crowd);
        if (steps[i].at == KEEPER_END) {
            struct answer seen;

            CHECK(rig_until(&rig, is_lost, &rig), "at end: lost");
            CHECK(stops.count == 1, "at end: the stop was answered %u times", stops.count);
            CHECK(rig_look(&rig, crowd.runs.id, &seen) == SANDBOX_STOPPED, "at end: stopped");
        } else {
            crowd_check(&rig, &crowd, steps[i].when);
            crowd_check_after(&rig, &crowd, steps[i].when);
        }
        rig_end(&rig);
    }
}

static void check_vanishing_in_peace(struct rig *rig)
{
    struct crowd crowd;

    crowd_prepare(rig, &crowd);
    rig->fake.mood = FAKE_NEVER_STANDS;
    crowd_acts(rig, &crowd);
    rig_turn(rig, 30);
    fake_vanish(&rig->fake);
    crowd_check(rig, &crowd, "while boxes are being made");
    crowd_check_after(rig, &crowd, "while boxes are being made");
}

static void check_vanishing_at_hello(void)
{
    struct rig rig;

    rig_start(&rig);
    rig.fake.vanish_at = KEEPER_HELLO;
    rig_begin(&rig);
    CHECK(rig_until(&rig, is_opened, &rig) && strcmp(rig.open_error.code, "keeper_lost") == 0, "%s",
          rig.open_error.code);
    rig_end(&rig);
    rig_start(&rig);
    rig.fake.silent_at = KEEPER_HELLO;
    rig_begin(&rig);
    rig_turn(&rig, 30);
    CHECK(!rig.opened && !rig.lost, "it waits");
    rig_end(&rig);
}

/* ---- lies ---- */

static void check_lies(void)
{
    static const uint32_t types[] = {KEEPER_MAKE, KEEPER_END, KEEPER_CLAIM};
    struct answer made, first, second;
    struct sandbox_spec spec = rig_spec(NULL);
    struct rig rig;

    for (size_t type = 0; type < 3; type++) {
        for (int lie = FAKE_SHORT; lie < FAKE_LIES; lie++) {
            rig_start(&rig);
            rig.options.pool = types[type] == KEEPER_CLAIM ? 1 : 0;
            rig_open(&rig);
            rig_made(&rig, NULL, &made);
            rig_turn(&rig, 20);
            rig.fake.lie_at = types[type];
            rig.fake.lie = (enum fake_lie)lie;
            if (types[type] == KEEPER_END)
                rig_stop(&rig, made.id, &first);
            else
                rig_create(&rig, &spec, &first);
            rig_delete(&rig, "c0aaaaaaaaaaaaaaaaaa", &second);
            CHECK(rig_until(&rig, is_lost, &rig), "type %u, lie %d: lost", types[type], lie);
            CHECK(first.count == 1, "type %u, lie %d: %u answers", types[type], lie, first.count);
            CHECK(types[type] == KEEPER_END || IS(first, "draining"), "type %u, lie %d: %s",
                  types[type], lie, first.error.code);
            rig_end(&rig);
        }
    }
}

/* ---- a restart of the engine ---- */

static bool has_four_boxes(void *arg)
{
    const struct rig *rig = arg;

    return fake_boxes(&rig->fake) == 4;
}

static void check_restart(struct rig *rig)
{
    struct answer runs, dies, stopped, gone, seen, execs;

    rig->options.pool = 2;
    rig_open(rig);
    rig_made(rig, "runs", &runs);
    rig_made(rig, "dies", &dies);
    rig_made(rig, "stopped", &stopped);
    (void)rig_wait(rig, rig_stop(rig, stopped.id, &seen));
    rig_made(rig, "gone", &gone);
    (void)rig_wait(rig, rig_delete(rig, gone.id, &seen));
    CHECK(rig_until(rig, has_four_boxes, rig), "two run, two are ready: %zu",
          fake_boxes(&rig->fake));
    rig_turn(rig, 50);
    CHECK(fake_boxes(&rig->fake) == 4, "and no more: %zu", fake_boxes(&rig->fake));
    rig_close(rig);
    fake_box_dies(fake_box_of(&rig->fake, dies.id));
    fake_box_of(&rig->fake, dies.id)->owner[0] = 'x'; /* and the keeper has forgotten it */
    rig->options.pool = 0;
    rig_open(rig);
    rig_turn(rig, 50);
    CHECK(rig_look(rig, runs.id, &seen) == SANDBOX_RUNNING, "what ran runs on");
    CHECK(rig_becomes(rig, dies.id, SANDBOX_STOPPED, "box_ended"), "the same keeper has no box");
    CHECK(rig_look(rig, stopped.id, &seen) == SANDBOX_STOPPED &&
              strcmp(seen.reason, "stopped") == 0,
          "what was stopped is: %s", seen.reason);
    CHECK(rig_look(rig, gone.id, &seen) < 0 && IS(seen, "sandbox_gone"), "%s", seen.error.code);
    CHECK(fake_boxes(&rig->fake) == 1, "all other boxes are ended: %zu", fake_boxes(&rig->fake));
    rig_procs(rig, runs.id, false, &execs);
    CHECK(execs.count == 1 && execs.procs != NULL, "commands go on");
    rig_made(rig, "gone", &seen);
    CHECK(seen.created, "a name that was given back");
    rig_made(rig, "runs", &seen);
    CHECK(!seen.created && strcmp(seen.id, runs.id) == 0, "a name that was not");
}

/* The engine ends while everything is going on: nothing acknowledged is missing, and what was not is
 * whole or not there. */
static void check_restart_anywhere(void)
{
    for (unsigned turns = 0; turns < 40; turns++) {
        struct answer first, second, stops = {0}, deletes = {0}, seen;
        struct sandbox_spec spec = rig_spec("a"), other = rig_spec("b");
        struct rig rig;
        int look;

        rig_start(&rig);
        rig.options.pool = turns % 2;
        rig_open(&rig);
        rig_made(&rig, NULL, &seen);
        rig_made(&rig, "old", &second);
        rig_create(&rig, &spec, &first);
        rig_create(&rig, &other, &second);
        rig_stop(&rig, seen.id, &stops);
        rig_delete(&rig, "name:old", &deletes);
        for (unsigned i = 0; i < turns; i++)
            (void)uv_run(&rig.loop, UV_RUN_NOWAIT);
        rig_close(&rig);
        CHECK(first.count == 1 && second.count == 1 && stops.count == 1 && deletes.count == 1,
              "after %u turns: %u %u %u %u answers", turns, first.count, second.count, stops.count,
              deletes.count);
        rig_open(&rig);
        rig_turn(&rig, 10);
        look = rig_look(&rig, "name:a", &seen);
        CHECK(first.failed || look == SANDBOX_RUNNING, "after %u turns: what was made runs", turns);
        CHECK(look < 0 || look == SANDBOX_RUNNING || look == SANDBOX_STOPPED, "or is whole");
        CHECK(deletes.failed || rig_look(&rig, "name:old", &seen) < 0, "what was deleted is gone");
        rig_made(&rig, "a", &seen);
        rig_made(&rig, "b", &seen);
        rig_made(&rig, "old", &seen);
        rig_end(&rig);
    }
}

/* ---- what a crash leaves in the store ---- */

static void put_done(void *arg, uint64_t revision, const struct error *err)
{
    (void)arg;
    (void)revision;
    CHECK(err == NULL, "%s", err->text);
}

static void put(struct rig *rig, const char *const (*pairs)[2], size_t count)
{
    struct store *store;
    struct error err;
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/store", rig->path);
    if (store_open(path, &rig->loop, &store, &err) != 0) {
        printf("%s\n", err.text);
        abort();
    }
    for (size_t i = 0; i < count; i++)
        store_put(store, pairs[i][0], pairs[i][1], pairs[i][1] != NULL ? strlen(pairs[i][1]) : 0,
                  STORE_ANY, put_done, NULL);
    store_close(store);
    (void)uv_run(&rig->loop, UV_RUN_NOWAIT);
}

static bool has(struct rig *rig, const char *key)
{
    struct store_value value;
    struct store *store;
    struct error err;
    char path[128];
    int got;

    (void)snprintf(path, sizeof(path), "%s/store", rig->path);
    if (store_open(path, &rig->loop, &store, &err) != 0)
        abort();
    got = store_get(store, key, &value, &err);
    if (got > 0)
        store_value_free(&value);
    store_close(store);
    (void)uv_run(&rig->loop, UV_RUN_NOWAIT);
    return got > 0;
}

#define RECORD(id, name, disk)                                                                     \
    "{\"id\":\"" id "\",\"tenant\":\"default\",\"name\":\"" name "\",\"state\":\"stopped\","       \
    "\"reason\":\"stopped\",\"root\":\"host\",\"disk_kind\":\"persistent\",\"disk\":\"" disk "\"," \
    "\"privileges\":\"system\",\"then\":\"kill\",\"serial\":7}"

static bool is_orphan_gone(void *arg)
{
    const struct rig *rig = arg;
    struct stat st;

    return fstatat(rig->dir, "sandboxes/c0orphan", &st, 0) != 0;
}

static void check_half_writes(struct rig *rig)
{
    static const char *const pairs[][2] = {
        {"name/default/alone", "c0zzzzzzzzzzzzzzzzzz"},
        {"sandbox/c0bbbbbbbbbbbbbbbbbb",
         RECORD("c0bbbbbbbbbbbbbbbbbb", "nameless", "d0uuuuuuuuuuuuuuuuuu")},
    };
    struct answer made, seen;

    rig_close(rig);
    put(rig, pairs, 2);
    (void)mkdirat(rig->dir, "sandboxes/c0orphan", 0700);
    strcpy(rig->fake.disks[0], "d0oooooooooooooooooo");
    strcpy(rig->fake.disks[1], "d0uuuuuuuuuuuuuuuuuu");
    rig_open(rig);
    rig_turn(rig, 50);
    CHECK(rig_look(rig, "name:alone", &seen) < 0, "a name without a record is none");
    CHECK(rig_look(rig, "name:nameless", &seen) == SANDBOX_STOPPED &&
              strcmp(seen.id, "c0bbbbbbbbbbbbbbbbbb") == 0,
          "a record without a name key has its name");
    rig_made(rig, "alone", &made);
    CHECK(made.created, "and may be taken");
    CHECK(rig_until(rig, is_orphan_gone, rig), "files of nobody are removed");
    CHECK(rig->fake.dropped_count == 1 && strcmp(rig->fake.dropped[0], "d0oooooooooooooooooo") == 0,
          "a disk of nobody is dropped");
    rig_close(rig);
    CHECK(has(rig, "name/default/alone"), "the new one's name");
    CHECK(has(rig, "name/default/nameless"), "the name key is mended");
}

/* A record that cannot be read: nothing that might be its own is thrown away. */
static void check_damaged_record(struct rig *rig)
{
    static const char *const pairs[][2] = {
        {"sandbox/c0cccccccccccccccccc", "{\"id\":"},
        {"sandbox/c0dddddddddddddddddd", "not even that"},
        {"sandbox/c0eeeeeeeeeeeeeeeeee", RECORD("c0ffffffffffffffffff", "another's", "")}};
    struct answer seen;
    struct stat st;

    rig_made(rig, "good", &seen);
    rig_close(rig);
    put(rig, pairs, 3);
    (void)mkdirat(rig->dir, "sandboxes/c0cccccccccccccccccc", 0700);
    strcpy(rig->fake.disks[0], "d0cccccccccccccccccc");
    rig_open(rig);
    rig_turn(rig, 50);
    CHECK(rig_look(rig, "name:good", &seen) == SANDBOX_RUNNING, "the good one runs");
    CHECK(rig->fake.dropped_count == 0, "no disk is dropped");
    CHECK(fstatat(rig->dir, "sandboxes/c0cccccccccccccccccc", &st, 0) == 0, "no file is removed");
    rig_close(rig);
    CHECK(has(rig, "sandbox/c0cccccccccccccccccc"), "the record stays for its owner to mend");
}

static bool has_dropped(void *arg)
{
    const struct rig *rig = arg;

    return rig->fake.dropped_count > 0;
}

/* A new store beside what an old one knew: it is somebody's, also at the starts after that. */
static void check_new_store(struct rig *rig)
{
    struct answer made;
    struct stat st;
    char path[160];

    rig_made(rig, "kept", &made);
    rig_close(rig);
    rig_other_keeper(rig);
    strcpy(rig->fake.disks[0], "d0cccccccccccccccccc");
    (void)snprintf(path, sizeof(path), "%s/store", rig->path);
    CHECK(remove_tree(AT_FDCWD, path) == 0, "the store is lost");
    (void)snprintf(path, sizeof(path), "sandboxes/%s", made.id);
    (void)mkdirat(rig->dir, path, 0700);
    for (int i = 0; i < 3; i++) {
        rig_open(rig);
        rig_turn(rig, 50);
        CHECK(rig->fake.dropped_count == 0, "start %d: no disk is dropped", i);
        CHECK(fstatat(rig->dir, path, &st, 0) == 0, "start %d: no file is removed", i);
        rig_close(rig);
    }
    (void)unlinkat(rig->dir, path, AT_REMOVEDIR);
    rig->fake.disks[0][0] = '\0';
    rig_open(rig); /* the operator has cleared up */
    rig_close(rig);
    strcpy(rig->fake.disks[0], "d0cccccccccccccccccc");
    rig_open(rig);
    CHECK(rig_until(rig, has_dropped, rig), "it is dropped");
    rig_turn(rig, 50);
    CHECK(rig->fake.dropped_count == 1, "what is left behind now is the engine's own");
}

static void check_reboot(struct rig *rig)
{
    static const char *const pairs[][2] = {{"host/identity", "another-boot 1 1"}};
    struct answer made;

    rig_made(rig, NULL, &made);
    rig_close(rig);
    fake_end(&rig->fake);
    put(rig, pairs, 1);
    rig_open(rig);
    CHECK(rig_becomes(rig, made.id, SANDBOX_STOPPED, "host_reboot"), "it says so");
}

/* ---- a store that cannot write ---- */

static void files_limit(rlim_t bytes)
{
    struct rlimit limit;

    (void)getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    (void)setrlimit(RLIMIT_FSIZE, &limit);
}

static void check_full_disk(struct rig *rig)
{
    struct answer runs, made, stops, deletes, seen;
    struct sandbox_spec spec = rig_spec("more");

    rig_made(rig, "runs", &runs);
    rig_made(rig, "other", &made);
    rig_turn(rig, 50);
    files_limit(1);
    CHECK(rig_wait(rig, rig_create(rig, &spec, &seen)) && seen.failed, "a create fails");
    CHECK(IS(seen, "store_failed") || IS(seen, "capacity"), "%s: %s", seen.error.code,
          seen.error.text);
    rig_delete(rig, made.id, &deletes);
    CHECK(rig_fails(rig, &deletes, "store_failed"), "a delete fails: %s", deletes.error.code);
    CHECK(rig_look(rig, made.id, &seen) == SANDBOX_RUNNING, "and changes nothing");
    rig_stop(rig, runs.id, &stops);
    CHECK(rig_fails(rig, &stops, "store_failed"), "a stop says that it is not written");
    CHECK(rig_look(rig, runs.id, &seen) == SANDBOX_STOPPED, "but the box has ended");
    files_limit(RLIM_INFINITY);
    CHECK(fake_boxes(&rig->fake) == 1, "one box lives: %zu", fake_boxes(&rig->fake));
    rig_made(rig, "more", &seen);
    CHECK(seen.created, "the name was free, and the disk is not full any more");
    CHECK(rig_done(rig, rig_delete(rig, made.id, &deletes)), "deleted now");
    rig_close(rig);
    rig_open(rig);
    CHECK(rig_becomes(rig, runs.id, SANDBOX_STOPPED, "box_ended"), "also for the next engine");
}

struct doomed {
    struct rig *rig;
    const char *id;
};

static bool is_gone(void *arg)
{
    const struct doomed *doomed = arg;
    struct answer seen;

    return rig_look(doomed->rig, doomed->id, &seen) < 0 && IS(seen, "sandbox_gone");
}

/* What had to be done at a deadline and could not be written is tried again, and not at once. */
static void check_deadline_on_a_full_disk(struct rig *rig)
{
    struct sandbox_spec spec = rig_spec(NULL);
    struct answer made, seen;
    clock_t used;

    spec.deadline_ms = clock_wall_ms() + 600000;
    CHECK(rig_done(rig, rig_create(rig, &spec, &made)), "%s", made.error.text);
    rig_turn(rig, 50);
    files_limit(1);
    rig_pass(rig, spec.deadline_ms - clock_wall_ms());
    used = clock();
    rig_turn(rig, 400);
    used = clock() - used;
    files_limit(RLIM_INFINITY);
    CHECK(rig_look(rig, made.id, &seen) == SANDBOX_RUNNING, "it is there as long as that failed");
    CHECK(used < CLOCKS_PER_SEC / 4, "%ld ms of work meanwhile",
          (long)used * 1000 / CLOCKS_PER_SEC);
    CHECK(rig_until(rig, is_gone, &(struct doomed){rig, made.id}), "and then not");
}

/* ---- a crowd; the end ---- */

#define CROWD 300

struct crowded {
    struct answer *answers;
    size_t count;
};

static bool all_answered(void *arg)
{
    const struct crowded *crowded = arg;

    for (size_t i = 0; i < crowded->count; i++)
        if (crowded->answers[i].count == 0)
            return false;
    return true;
}

/* Once the pool has all that it makes ahead. */
static int settled_fds(struct rig *rig)
{
    int fds;

    do {
        fds = rig_fds();
        rig_turn(rig, 200);
    } while (rig_fds() != fds);
    return fds;
}

static void check_crowd(struct rig *rig)
{
    static struct answer made[CROWD], deletes[CROWD];
    struct crowded crowded = {made, CROWD};
    struct sandbox_spec spec = rig_spec(NULL);
    size_t failed = 0;
    int fds;

    fds = settled_fds(rig);
    for (size_t i = 0; i < CROWD; i++)
        rig_create(rig, &spec, &made[i]);
    CHECK(rig_until(rig, all_answered, &crowded), "all are answered");
    for (size_t i = 0; i < CROWD; i++)
        failed += made[i].failed || made[i].count != 1;
    CHECK(failed == 0 && fake_boxes(&rig->fake) == CROWD, "%zu failed", failed);
    for (size_t i = 0; i < CROWD; i++)
        rig_delete(rig, made[i].id, &deletes[i]);
    crowded.answers = deletes;
    CHECK(rig_until(rig, all_answered, &crowded), "all are answered");
    for (size_t i = 0; i < CROWD; i++)
        failed += deletes[i].failed || deletes[i].count != 1;
    CHECK(failed == 0 && fake_boxes(&rig->fake) == 0, "%zu failed", failed);
    /* What was written is removed by other threads. */
    CHECK(rig_until(rig, rig_fds_are, &fds), "%d fds, before %d", rig_fds(), fds);
}

static void set_drained(void *arg)
{
    *(bool *)arg = true;
}

static bool is_set(void *arg)
{
    return *(bool *)arg;
}

static void check_drain(struct rig *rig)
{
    struct answer made, refused;
    struct sandbox_spec spec = rig_spec(NULL);
    bool drained = false;
    struct error err;

    rig->options.pool = 2;
    rig_open(rig);
    rig_create(rig, &spec, &made);
    engine_drain(rig->engine, set_drained, &drained);
    CHECK(!engine_is_ready(rig->engine, &err), "it is not ready for more");
    rig_create(rig, &spec, &refused);
    CHECK(refused.count == 1 && IS(refused, "draining"), "%s", refused.error.code);
    CHECK(rig_until(rig, is_set, &drained), "drained");
    CHECK(made.count == 1 && !made.failed, "after what was asked for was done");
    CHECK(fake_box_of(&rig->fake, made.id) != NULL, "boxes live on");
}

/* ---- the end of all ---- */

static bool are_equal(const struct rig *rig, const char *one, const char *other)
{
    struct store_value values[2];
    struct store *store;
    struct error err;
    char path[96];
    bool equal;

    (void)snprintf(path, sizeof(path), "%s/store", rig->path);
    if (store_open(path, (uv_loop_t *)(uintptr_t)&rig->loop, &store, &err) != 0 ||
        store_get(store, one, &values[0], &err) != 1 ||
        store_get(store, other, &values[1], &err) != 1)
        abort();
    equal = strcmp(values[0].data, values[1].data) == 0;
    store_value_free(&values[0]);
    store_value_free(&values[1]);
    store_close(store);
    (void)uv_run((uv_loop_t *)(uintptr_t)&rig->loop, UV_RUN_NOWAIT);
    return equal;
}

static void check_stop_all(struct rig *rig)
{
    struct answer runs, is_stopped, stops, made, refused, seen;
    struct sandbox_spec spec = rig_spec("late");
    bool stopped = false;

    rig->options.pool = 2;
    rig_open(rig);
    rig_made(rig, "runs", &runs);
    rig_made(rig, "stopped", &is_stopped);
    CHECK(rig_wait(rig, rig_stop(rig, is_stopped.id, &stops)), "one was stopped before");
    rig_create(rig, &spec, &made);
    engine_stop_all(rig->engine, set_drained, &stopped);
    rig_create(rig, &spec, &refused);
    CHECK(refused.count == 1 && IS(refused, "draining"), "%s", refused.error.code);
    CHECK(rig_until(rig, is_set, &stopped), "all are stopped");
    CHECK(made.count == 1 && !made.failed, "what was asked for before was done");
    rig_close(rig);
    CHECK(are_equal(rig, "host/identity", "host/stopped"), "which keeper was told to end");
    rig_open(rig);
    CHECK(rig_look(rig, runs.id, &seen) == SANDBOX_STOPPED &&
              strcmp(seen.reason, "server_stopped") == 0,
          "%s", seen.reason);
    CHECK(rig_look(rig, made.id, &seen) == SANDBOX_STOPPED &&
              strcmp(seen.reason, "server_stopped") == 0,
          "the one that was being made: %s", seen.reason);
    CHECK(rig_look(rig, is_stopped.id, &seen) == SANDBOX_STOPPED &&
              strcmp(seen.reason, "stopped") == 0,
          "the one that was stopped: %s", seen.reason);
}

/* The keeper ends no box any more: what could not be written down is known at the next start. */
static void check_stop_all_in_vain(struct rig *rig)
{
    static const char *const stopped[][2] = {{"host/identity", "boot 1 1"},
                                             {"host/stopped", "boot 1 1"}},
                             *const later[][2] = {{"host/identity", "boot 1 1"}};
    struct answer first, second;
    bool done = false;

    rig_made(rig, NULL, &first);
    rig->fake.silent_at = KEEPER_END;
    engine_stop_all(rig->engine, set_drained, &done);
    rig_turn(rig, 100);
    CHECK(!done, "it waits for the box");
    rig_close(rig);
    CHECK(are_equal(rig, "host/identity", "host/stopped"), "a stop was meant");
    rig_other_keeper(rig);
    put(rig, stopped, 2);
    rig_open(rig);
    CHECK(rig_becomes(rig, first.id, SANDBOX_STOPPED, "server_stopped"), "it says so");
    rig_made(rig, NULL, &second);
    rig_close(rig);
    rig_other_keeper(rig);
    put(rig, later, 1);
    rig_open(rig);
    CHECK(rig_becomes(rig, second.id, SANDBOX_STOPPED, "host_reboot"),
          "that stop was for those that ran then");
}

int main(void)
{
    (void)signal(SIGXFSZ, SIG_IGN);
    check_vanishing();
    rig_run(check_vanishing_in_peace);
    check_vanishing_at_hello();
    check_lies();
    rig_run_unopened(check_restart);
    check_restart_anywhere();
    rig_run(check_half_writes);
    rig_run(check_damaged_record);
    rig_run(check_new_store);
    rig_run(check_reboot);
    rig_run(check_full_disk);
    rig_run(check_deadline_on_a_full_disk);
    rig_run(check_crowd);
    rig_run_unopened(check_drain);
    rig_run_unopened(check_stop_all);
    rig_run(check_stop_all_in_vain);
    return check_finish();
}
