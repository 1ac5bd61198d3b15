/* What sandboxes do, with a keeper and boxes that the test plays: made, met, stopped, started, deleted,
 * listed, changed, and given up by their boxes. */
#include "base/clock.h"
#include "check.h"
#include "engine/parts.h"
#include "net/turns.h"
#include "rig.h"

#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static bool has_state(struct rig *rig, const char *id, enum sandbox_state state, const char *reason)
{
    struct answer seen;

    if (rig_look(rig, id, &seen) != (int)state || strcmp(seen.reason, reason) != 0) {
        printf("%s is %s (%s) %s\n", id, sandbox_state_name(seen.state), seen.reason,
               seen.error.text);
        return false;
    }
    return true;
}

struct expected {
    struct rig *rig;
    const char *id;
};

static bool is_unknown(void *arg)
{
    const struct expected *expected = arg;
    struct answer seen;

    return rig_look(expected->rig, expected->id, &seen) < 0;
}

/* ---- made ---- */

static void check_create(struct rig *rig)
{
    struct answer made, seen;
    struct error error;
    struct sandbox_view view;

    rig_made(rig, NULL, &made);
    CHECK(made.created && made.state == SANDBOX_RUNNING && made.revision > 0, "made");
    CHECK(strlen(made.id) == 20 && made.id[0] == 'c' && made.id[1] == '0', "%s", made.id);
    CHECK(has_state(rig, made.id, SANDBOX_RUNNING, "created"), "runs");
    CHECK(fake_box_of(&rig->fake, made.id) != NULL, "the box is its own");
    CHECK(engine_look(rig->engine, &rig_other, made.id, &view, &error) != 0 &&
              IS_CODE(error, "sandbox_not_found"),
          "another tenant's reads as one that is not there: %s", error.code);
    CHECK(rig_look(rig, "c0aaaaaaaaaaaaaaaaaa", &seen) < 0 && IS(seen, "sandbox_not_found"),
          "one that never was");
    CHECK(strcmp(engine_host(rig->engine)->level, "full") == 0, "the host is known");
}

static void check_refusals(struct rig *rig)
{
    struct answer made;
    struct sandbox_spec spec;
    struct keeper_mount mount = {.name = "nothing", .target = "/data"};

    spec = rig_spec(NULL);
    spec.root = "windows";
    rig_create(rig, &spec, &made);
    CHECK(made.count == 1 && IS(made, "unknown_root"), "%s", made.error.code);
    spec = rig_spec(NULL);
    spec.mounts = &mount;
    spec.mounts_count = 1;
    rig_create(rig, &spec, &made);
    CHECK(made.count == 1 && IS(made, "unknown_mount"), "%s", made.error.code);
    spec = rig_spec("");
    rig_create(rig, &spec, &made);
    CHECK(made.count == 1 && IS(made, "bad_request"), "%s", made.error.code);
    rig->fake.refuse = 1;
    spec = rig_spec("x");
    CHECK(rig_fails(rig, rig_create(rig, &spec, &made), "sandbox_failed"), "%s", made.error.code);
    rig->fake.mood = FAKE_FAILS;
    CHECK(rig_fails(rig, rig_create(rig, &spec, &made), "sandbox_failed"), "%s", made.error.code);
    CHECK(strstr(made.error.text, "set-up failed") != NULL, "%s", made.error.text);
    CHECK(fake_boxes(&rig->fake) == 0, "and is ended");
    CHECK(rig_look(rig, "name:x", &made) < 0, "nothing is left of it");
    rig->fake.mood = FAKE_STANDS;
    rig_made(rig, "x", &made);
    CHECK(made.created, "the name is free");
}

/* ---- whose roots and mounts are ---- */

struct names_seen {
    struct rig *rig;
    const struct engine_caller *caller;
    const char *wanted;
    char text[128]; /* each with a blank behind it */
};

static bool name_seen(void *arg, const char *name, bool is_read_only)
{
    struct names_seen *seen = arg;
    size_t used = strlen(seen->text);

    (void)is_read_only;
    (void)snprintf(seen->text + used, sizeof(seen->text) - used, "%s ", name);
    return true;
}

static bool sees_names(void *arg)
{
    struct names_seen *seen = arg;

    seen->text[0] = '\0';
    engine_named_each(seen->rig->engine, seen->caller, KEEPER_ROOT, name_seen, seen);
    engine_named_each(seen->rig->engine, seen->caller, KEEPER_MOUNT, name_seen, seen);
    return strcmp(seen->text, seen->wanted) == 0;
}

/* The create of a sandbox that names this is refused as one that names what never was. */
static void check_as_if_never(struct rig *rig, const struct sandbox_spec *spec, const char *name,
                              const char *code)
{
    struct sandbox_spec never = *spec;
    struct keeper_mount nothing = {.name = "nothing", .target = "/data"};
    struct answer refused = {0}, unknown = {0};
    char text[sizeof(unknown.error.text)];
    char *at;

    if (spec->mounts_count > 0)
        never.mounts = &nothing;
    else
        never.root = "nothing";
    engine_create(rig->engine, &rig_other, spec, rig_created, &refused);
    engine_create(rig->engine, &rig_other, &never, rig_created, &unknown);
    CHECK(refused.count == 1 && IS(refused, code), "%s: %s", name, refused.error.code);
    CHECK(unknown.count == 1 && IS(unknown, code), "nothing: %s", unknown.error.code);
    at = strstr(unknown.error.text, "nothing");
    CHECK(at != NULL, "it is named: %s", unknown.error.text);
    if (at == NULL)
        return;
    (void)snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - unknown.error.text),
                   unknown.error.text, name, at + strlen("nothing"));
    CHECK(strcmp(refused.error.text, text) == 0, "%s", refused.error.text);
}

static void check_whose_names_are(struct rig *rig)
{
    const struct engine_caller operator= {
        .tenant = "default", .key_id = "socket", .scopes = ENGINE_ALL};
    struct names_seen seen = {rig, &operator, "debian data ", ""};
    struct keeper_mount mount = {.name = "data", .target = "/data"};
    struct sandbox_spec mounted = rig_spec(NULL), rooted = rig_spec(NULL);
    struct answer made = {0};

    mounted.mounts = &mount;
    mounted.mounts_count = 1;
    rooted.root = "debian";
    fake_names(&rig->fake, KEEPER_MOUNT, "data", "default");
    CHECK(rig_until(rig, sees_names, &seen), "an operator sees all: %s", seen.text);
    seen.caller = &rig_caller;
    CHECK(sees_names(&seen), "the tenant sees its own: %s", seen.text);
    seen = (struct names_seen){rig, &rig_other, "", ""};
    CHECK(sees_names(&seen), "another one none of them: %s", seen.text);
    check_as_if_never(rig, &mounted, "data", "unknown_mount");
    check_as_if_never(rig, &rooted, "debian", "unknown_root");
    CHECK(rig->fake.counts[KEEPER_MAKE] == 0, "and no box is asked for");
    CHECK(rig_done(rig, rig_create(rig, &mounted, &made)), "its own: %s", made.error.text);
    CHECK(rig_done(rig, rig_create(rig, &rooted, &made)), "its own: %s", made.error.text);
    fake_names(&rig->fake, KEEPER_MOUNT, "data", "others,other");
    fake_names(&rig->fake, KEEPER_ROOT, "debian", "*");
    seen.wanted = "debian data ";
    CHECK(rig_until(rig, sees_names, &seen), "now it is: %s", seen.text);
    made = (struct answer){0};
    engine_create(rig->engine, &rig_other, &mounted, rig_created, &made);
    CHECK(rig_done(rig, &made), "the list of one: %s", made.error.text);
    made = (struct answer){0};
    engine_create(rig->engine, &rig_other, &rooted, rig_created, &made);
    CHECK(rig_done(rig, &made), "that of all: %s", made.error.text);
}

/* Of a sandbox that has a root and a mount of its tenant's: it goes on, and is not started again. */
static void check_lists_that_shrink(struct rig *rig)
{
    struct names_seen seen = {rig, &rig_caller, "debian data ", ""};
    struct keeper_mount mount = {.name = "data", .target = "/data"};
    struct sandbox_spec spec = rig_spec(NULL);
    struct answer made, answer;

    spec.root = "debian";
    spec.mounts = &mount;
    spec.mounts_count = 1;
    fake_names(&rig->fake, KEEPER_MOUNT, "data", "default");
    CHECK(rig_until(rig, sees_names, &seen), "%s", seen.text);
    CHECK(rig_done(rig, rig_create(rig, &spec, &made)), "%s", made.error.text);
    fake_names(&rig->fake, KEEPER_MOUNT, "data", "other");
    seen.wanted = "debian ";
    CHECK(rig_until(rig, sees_names, &seen), "%s", seen.text);
    CHECK(has_state(rig, made.id, SANDBOX_RUNNING, "created"), "it goes on");
    CHECK(rig_done(rig, rig_stop(rig, made.id, &answer)), "%s", answer.error.text);
    CHECK(rig_fails(rig, rig_start_it(rig, made.id, &answer), "unknown_mount"), "%s",
          answer.error.code);
    CHECK(has_state(rig, made.id, SANDBOX_STOPPED, "stopped"), "it stays stopped");
    fake_names(&rig->fake, KEEPER_MOUNT, "data", "default");
    fake_names(&rig->fake, KEEPER_ROOT, "debian", "other");
    seen.wanted = "data ";
    CHECK(rig_until(rig, sees_names, &seen), "%s", seen.text);
    CHECK(rig_fails(rig, rig_start_it(rig, made.id, &answer), "unknown_root"), "%s",
          answer.error.code);
    fake_names(&rig->fake, KEEPER_ROOT, "debian", "default");
    seen.wanted = "debian data ";
    CHECK(rig_until(rig, sees_names, &seen), "%s", seen.text);
    CHECK(rig_done(rig, rig_start_it(rig, made.id, &answer)), "%s", answer.error.text);
}

static void check_names(struct rig *rig)
{
    struct answer made, again;
    struct sandbox_spec spec = rig_spec("a/b c");

    rig_made(rig, "a/b c", &made);
    CHECK(rig_done(rig, rig_create(rig, &spec, &again)) && !again.created, "it is there");
    CHECK(strcmp(again.id, made.id) == 0 && fake_boxes(&rig->fake) == 1, "the same");
    CHECK(has_state(rig, "name:a/b c", SANDBOX_RUNNING, "created"), "by its name");
    spec.root = "debian";
    CHECK(rig_fails(rig, rig_create(rig, &spec, &again), "name_conflict"), "another root");
    spec = rig_spec("a/b c");
    spec.privileges = BOX_SYSTEM;
    CHECK(rig_fails(rig, rig_create(rig, &spec, &again), "name_conflict"), "other privileges");
}

/* Twenty at once of one name: one is made, all are told the same. */
static void check_race(struct rig *rig)
{
    struct answer answers[20];
    struct sandbox_spec spec = rig_spec("one");
    unsigned created = 0;

    for (size_t i = 0; i < 20; i++)
        rig_create(rig, &spec, &answers[i]);
    for (size_t i = 0; i < 20; i++) {
        CHECK(rig_done(rig, &answers[i]), "%s", answers[i].error.text);
        CHECK(strcmp(answers[i].id, answers[0].id) == 0, "the same sandbox");
        CHECK(answers[i].state == SANDBOX_RUNNING, "which runs");
        created += answers[i].created;
    }
    CHECK(created == 1 && answers[0].created, "%u made it", created);
    CHECK(fake_boxes(&rig->fake) == 1, "%zu boxes", fake_boxes(&rig->fake));
}

/* One fails while others wait for it: they hear why, and none is kept waiting for a failure of its own. */
static void check_race_with_failure(struct rig *rig)
{
    struct answer answers[5], again;
    struct sandbox_spec spec = rig_spec("one");

    rig->fake.refuse = 1;
    for (size_t i = 0; i < 5; i++)
        rig_create(rig, &spec, &answers[i]);
    for (size_t i = 0; i < 5; i++) {
        CHECK(rig_wait(rig, &answers[i]) && answers[i].failed && answers[i].count == 1,
              "%zu is answered", i);
        CHECK(strcmp(answers[i].error.code, answers[0].error.code) == 0, "%zu: %s", i,
              answers[i].error.code);
    }
    CHECK(rig->fake.counts[KEEPER_MAKE] == 1, "%u were made", rig->fake.counts[KEEPER_MAKE]);
    rig_made(rig, "one", &again);
    CHECK(again.created && fake_boxes(&rig->fake) == 1, "the name is free");
}

/* ---- the pool ---- */

static bool pool_is_full(void *arg)
{
    const struct rig *rig = arg;

    return fake_boxes(&rig->fake) == 4;
}

static bool pool_is_full_again(void *arg)
{
    const struct rig *rig = arg;

    return fake_boxes(&rig->fake) == 5;
}

static void check_pool(struct rig *rig)
{
    struct answer made;
    struct sandbox_spec spec = rig_spec(NULL);
    unsigned makes;

    rig->options.pool = 3;
    rig_open(rig);
    rig_made(rig, NULL, &made);
    CHECK(rig->fake.counts[KEEPER_CLAIM] == 0, "the first is made for it");
    CHECK(rig_until(rig, pool_is_full, rig), "three stand ready: %zu", fake_boxes(&rig->fake));
    rig_turn(rig, 20);
    makes = rig->fake.counts[KEEPER_MAKE];
    rig_made(rig, "second", &made);
    CHECK(rig->fake.counts[KEEPER_CLAIM] == 1, "the second has one of them");
    CHECK(fake_box_of(&rig->fake, made.id) != NULL, "and the keeper knows");
    CHECK(rig_until(rig, pool_is_full_again, rig), "%zu boxes", fake_boxes(&rig->fake));
    rig_turn(rig, 50);
    CHECK(rig->fake.counts[KEEPER_MAKE] == makes + 1, "one is made anew");
    spec.limits.memory_bytes = 32 << 20;
    rig_create(rig, &spec, &made);
    CHECK(rig_done(rig, &made) && rig->fake.counts[KEEPER_CLAIM] == 1,
          "one with other limits is made for it");
}

/* A box of the pool that dies is replaced; one that dies just when it is taken fails that create and no
 * other. */
static bool has_ready(void *arg)
{
    struct rig *rig = arg;

    return fake_box_of(&rig->fake, "") != NULL;
}

/* A box of the pool that has ended is as good as none, whoever notices it: the link of a process of its own
 * (0, 1), or the keeper, which does not know it any more (2). With 1 the keeper makes no other one. */
static void check_pool_of_the_dying(enum keeper_disk kind, int how)
{
    struct rig rig;
    struct answer made, gone;
    struct sandbox_spec spec = rig_spec("again");
    struct fake_box *box;
    char disk[KEEPER_ID_LENGTH + 4];

    spec.disk_kind = kind;
    rig_start(&rig);
    rig.options.pool = 1;
    rig_open(&rig);
    CHECK(rig_done(&rig, rig_create(&rig, &spec, &made)), "one was asked for once");
    CHECK(rig_done(&rig, rig_delete(&rig, made.id, &gone)), "and is gone");
    CHECK(rig_until(&rig, has_ready, &rig), "one is made ahead");
    rig_turn(&rig, 50);
    box = fake_box_of(&rig.fake, "");
    CHECK(box != NULL, "one is ready");
    if (box == NULL)
        abort();
    memcpy(disk, box->disk, sizeof(disk));
    rig.fake.dropped_count = 0;
    if (how == 2)
        box->id += 1000;
    else
        fake_box_dies(box);
    rig.fake.refuse = how == 1 ? 1000 : 0; /* those of the pool, too, until it is answered */
    CHECK(rig_wait(&rig, rig_create(&rig, &spec, &made)), "answered");
    CHECK(rig.fake.refuse == 0 || rig.fake.refuse >= 996, "%u", 1000 - rig.fake.refuse);
    rig.fake.refuse = 0;
    CHECK(made.failed == (how == 1), "%s: %s", made.error.code, made.error.text);
    if (how != 1)
        CHECK(made.created && has_state(&rig, made.id, SANDBOX_RUNNING, "created"), "it runs");
    box = fake_box_of(&rig.fake, made.id);
    CHECK((box != NULL) == (how != 1), "in a box of its own");
    CHECK(rig_until(&rig, has_ready, &rig), "there is another one");
    rig_turn(&rig, 20);
    if (how != 1)
        CHECK(has_state(&rig, made.id, SANDBOX_RUNNING, "created"), "and goes on");
    if (kind == KEEPER_PERSISTENT) {
        bool is_dropped = false;

        for (unsigned i = 0; i < rig.fake.dropped_count; i++)
            is_dropped |= strcmp(rig.fake.dropped[i], disk) == 0;
        CHECK(is_dropped, "the disk of the one that has ended is dropped");
        CHECK(box == NULL || strcmp(box->disk, disk) != 0, "and not its own");
    }
    rig_made(&rig, NULL, &made);
    CHECK(has_state(&rig, made.id, SANDBOX_RUNNING, "created"), "which serves");
    rig_end(&rig);
}

/* A keeper that refuses is asked again later and later, but at least once a minute. */
static void check_pool_rests(struct rig *rig)
{
    struct answer made;
    unsigned makes;

    rig->options.pool = 1;
    rig_open(rig);
    rig_made(rig, NULL, &made);
    CHECK(rig_until(rig, has_ready, rig), "one is ready");
    rig->fake.refuse = 1000;
    fake_box_dies(fake_box_of(&rig->fake, ""));
    rig_pass(rig, 0);
    for (uint64_t ms = 500; ms < 60000; ms *= 2) {
        makes = rig->fake.counts[KEEPER_MAKE];
        rig_pass(rig, ms);
        CHECK(rig->fake.counts[KEEPER_MAKE] == makes + 1, "after %u ms", (unsigned)ms);
    }
    makes = rig->fake.counts[KEEPER_MAKE];
    rig_pass(rig, 30000);
    CHECK(rig->fake.counts[KEEPER_MAKE] == makes, "it rests");
    rig_pass(rig, 30000);
    CHECK(rig->fake.counts[KEEPER_MAKE] == makes + 1, "for a minute");
    rig->fake.refuse = 0;
    rig_pass(rig, 60000);
    CHECK(rig_until(rig, has_ready, rig), "then there is one");
}

/* ---- stop, start, delete, and when they meet ---- */

static void check_stop_and_start(struct rig *rig)
{
    struct answer made, first, second, third;

    rig_made(rig, NULL, &made);
    rig_stop(rig, made.id, &first);
    rig_stop(rig, made.id, &second);
    CHECK(rig_wait(rig, &first) && rig_wait(rig, &second), "both are answered");
    CHECK(!first.failed && !second.failed && second.state == SANDBOX_STOPPED, "and well");
    CHECK(rig->fake.ended == 1 && has_state(rig, made.id, SANDBOX_STOPPED, "stopped"),
          "ended once");
    rig_start_it(rig, made.id, &first);
    rig_start_it(rig, made.id, &second);
    rig_stop(rig, made.id, &third);
    CHECK(rig_wait(rig, &first) && rig_wait(rig, &second) && rig_wait(rig, &third), "answered");
    CHECK(first.state == SANDBOX_RUNNING && second.state == SANDBOX_RUNNING,
          "both found it running");
    CHECK(third.state == SANDBOX_STOPPED && !third.failed, "and then it stopped");
    CHECK(fake_boxes(&rig->fake) == 0, "no box is left");
    rig_stop(rig, "c0aaaaaaaaaaaaaaaaaa", &first);
    CHECK(first.count == 1 && IS(first, "sandbox_not_found"), "one that is not there");
}

static void check_delete(struct rig *rig)
{
    struct answer made, first, second, seen;

    rig_made(rig, "gone", &made);
    rig_delete(rig, made.id, &first);
    rig_delete(rig, made.id, &second);
    CHECK(rig_wait(rig, &first) && rig_wait(rig, &second), "both are answered");
    CHECK(!first.failed && !second.failed && fake_boxes(&rig->fake) == 0, "and well");
    CHECK(rig_look(rig, made.id, &seen) < 0 && IS(seen, "sandbox_gone"), "%s", seen.error.code);
    CHECK(rig_look(rig, "name:gone", &seen) < 0 && IS(seen, "sandbox_not_found"), "its name");
    rig_delete(rig, made.id, &first);
    CHECK(first.count == 1 && !first.failed, "deleted again");
    rig_start_it(rig, made.id, &first);
    CHECK(first.count == 1 && IS(first, "sandbox_gone"), "%s", first.error.code);
    rig_made(rig, "gone", &second);
    CHECK(second.created && strcmp(second.id, made.id) != 0, "the name is another's now");
}

static bool has_box(void *arg)
{
    return fake_boxes(&((const struct rig *)arg)->fake) > 0;
}

static bool has_no_box(void *arg)
{
    return !has_box(arg);
}

static void check_never_stands(struct rig *rig)
{
    struct sandbox_spec spec = rig_spec("slow");
    struct answer made;

    rig->fake.mood = FAKE_NEVER_STANDS;
    rig_create(rig, &spec, &made);
    CHECK(rig_until(rig, has_box, rig), "a box is made");
    rig_pass(rig, 0);
    rig_pass(rig, 30000);
    CHECK(made.count == 0, "it may take its time");
    rig_pass(rig, 30000);
    CHECK(rig_fails(rig, &made, "sandbox_failed"), "and not more than a minute: %s",
          made.error.code);
    CHECK(rig_until(rig, has_no_box, rig), "no box is left");
}

/* A delete does not wait for a box that never stands. */
static void check_delete_overtakes(struct rig *rig)
{
    struct answer made, starts, execs, stops, deletes, again;
    struct sandbox_spec spec = rig_spec("slow");

    rig->fake.mood = FAKE_NEVER_STANDS;
    rig_create(rig, &spec, &made);
    rig_create(rig, &spec, &again);
    rig_turn(rig, 30);
    CHECK(made.count == 0, "it waits");
    rig->fake.mood = FAKE_STANDS;
    CHECK(rig_done(rig, rig_delete(rig, "name:slow", &deletes)), "deleted: %s", deletes.error.text);
    CHECK(rig_fails(rig, &made, "sandbox_gone"), "the create says so: %s", made.error.code);
    CHECK(rig_wait(rig, &again) && again.created, "who waited for it makes another one");

    CHECK(rig_wait(rig, rig_stop(rig, again.id, &stops)), "stopped");
    rig->fake.mood = FAKE_NEVER_STANDS;
    rig_start_it(rig, again.id, &starts);
    rig_procs(rig, again.id, false, &execs);
    rig_stop(rig, again.id, &stops);
    rig_turn(rig, 30);
    CHECK(rig_done(rig, rig_delete(rig, again.id, &deletes)), "deleted");
    CHECK(rig_fails(rig, &starts, "sandbox_gone"), "start: %s", starts.error.code);
    CHECK(rig_fails(rig, &execs, "sandbox_gone"), "exec: %s", execs.error.code);
    CHECK(rig_fails(rig, &stops, "sandbox_gone"), "stop: %s", stops.error.code);
    CHECK(fake_boxes(&rig->fake) == 0, "no box is left");
}

/* Create, delete and create of one name, all at once. */
static void check_name_in_a_hurry(struct rig *rig)
{
    struct answer first, deletes, second;
    struct sandbox_spec spec = rig_spec("n");

    rig_made(rig, "n", &first);
    rig_delete(rig, first.id, &deletes);
    rig_create(rig, &spec, &second);
    CHECK(rig_wait(rig, &second) && second.created && deletes.count == 1, "made after the delete");
    CHECK(strcmp(first.id, second.id) != 0, "another one");
    CHECK(has_state(rig, "name:n", SANDBOX_RUNNING, "created"), "and runs");
}

/* ---- processes ---- */

static void run_one(struct rig *rig, struct procs *procs, struct rig_ran *ran)
{
    if (!rig_exec(rig, procs, NULL, ran) || !rig_until(rig, rig_has_ended, ran))
        printf("not run: %s\n", ran->answer.error.text);
}

static void check_processes(struct rig *rig)
{
    struct answer made, stops, execs;
    struct rig_ran ran;

    rig_made(rig, NULL, &made);
    rig_procs(rig, made.id, false, &execs);
    CHECK(execs.count == 1 && execs.procs != NULL, "at once");
    run_one(rig, execs.procs, &ran);
    CHECK(ran.view.state == PROC_EXITED && ran.view.exit_code == 0 && ran.view.out_bytes[0] == 5,
          "it ran");
    rig->fake.exit_status = SIGKILL;
    run_one(rig, execs.procs, &ran);
    CHECK(ran.view.state == PROC_EXITED && ran.view.signal == SIGKILL && !ran.view.oom_killed,
          "killed");
    rig->fake.oom_kills = 1;
    run_one(rig, execs.procs, &ran);
    CHECK(ran.view.oom_killed, "out of memory");
    run_one(rig, execs.procs, &ran);
    CHECK(ran.view.signal == SIGKILL && !ran.view.oom_killed,
          "not again, for the count is as it was");
    CHECK(rig_done(rig, rig_stop(rig, made.id, &stops)), "stopped");
    rig_procs(rig, made.id, false, &execs);
    CHECK(execs.count == 1 && IS(execs, "sandbox_stopped"), "%s", execs.error.code);
    rig_procs(rig, made.id, true, &execs);
    CHECK(rig_wait(rig, &execs) && execs.procs != NULL, "started first");
    CHECK(has_state(rig, made.id, SANDBOX_RUNNING, "started"), "runs again");
    CHECK(execs.procs != NULL && procs_find(execs.procs, "1") != NULL,
          "what ran before is remembered");
}

/* ---- a box that ends by itself ---- */

static void check_fall(struct rig *rig)
{
    struct answer made, starts;

    rig_made(rig, NULL, &made);
    fake_box_dies(fake_box_of(&rig->fake, made.id));
    CHECK(rig_becomes(rig, made.id, SANDBOX_STOPPED, "box_ended"), "it says so");
    CHECK(fake_boxes(&rig->fake) == 0, "what is left of the box is ended");
    CHECK(rig_done(rig, rig_start_it(rig, made.id, &starts)), "started again");
    rig->fake.oom_kills = 1;
    fake_box_dies(fake_box_of(&rig->fake, made.id));
    CHECK(rig_becomes(rig, made.id, SANDBOX_STOPPED, "oom"), "it says why");
    CHECK(rig_done(rig, rig_start_it(rig, made.id, &starts)), "started again");
    rig->fake.oom_kills = 0;
    fake_box_raves(fake_box_of(&rig->fake, made.id), 200);
    CHECK(rig_becomes(rig, made.id, SANDBOX_STOPPED, "box_ended"), "a box that raves is ended");
    CHECK(fake_boxes(&rig->fake) == 0, "and gone");
    rig->fake.mood = FAKE_DIES_STANDING;
    rig_start_it(rig, made.id, &starts);
    CHECK(rig_wait(rig, &starts), "one that dies as it stands is answered");
    rig->fake.mood = FAKE_FAILS;
    rig_turn(rig, 50);
    rig_start_it(rig, made.id, &starts);
    CHECK(rig_fails(rig, &starts, "sandbox_failed"), "%s", starts.error.code);
    CHECK(has_state(rig, made.id, SANDBOX_ERROR, "start_failed"), "the state says so");
    rig->fake.mood = FAKE_STANDS;
    CHECK(rig_done(rig, rig_start_it(rig, made.id, &starts)), "and may be tried again");
}

/* ---- lists ---- */

struct listed {
    char ids[64][24];
    size_t count;
};

static bool list_one(void *arg, const struct sandbox_view *view)
{
    struct listed *listed = arg;

    (void)snprintf(listed->ids[listed->count++], 24, "%s", view->id);
    return true;
}

static void check_lists(struct rig *rig)
{
    struct answer made[25], stops;
    struct listed all = {.count = 0}, some = {.count = 0};
    struct sandbox_filter filter = {.state = "stopped"};
    struct error err;
    char next[64] = "", last[64];

    for (size_t i = 0; i < 25; i++)
        rig_made(rig, NULL, &made[i]);
    do {
        (void)snprintf(last, sizeof(last), "%s", next);
        CHECK(engine_list(rig->engine, &rig_caller, NULL, last, 10, list_one, &all, next, &err) ==
                  0,
              "%s", err.text);
        if (all.count == 10) { /* what the cursor names goes away */
            (void)rig_wait(rig, rig_delete(rig, made[9].id, &stops));
        }
    } while (next[0] != '\0' && all.count < 60);
    CHECK(all.count == 25, "%zu are listed", all.count);
    for (size_t i = 0; i < 25; i++)
        CHECK(strcmp(all.ids[i], made[i].id) == 0, "in order of creation");
    (void)rig_wait(rig, rig_stop(rig, made[3].id, &stops));
    CHECK(engine_list(rig->engine, &rig_caller, &filter, NULL, 0, list_one, &some, next, &err) ==
                  0 &&
              some.count == 1 && strcmp(some.ids[0], made[3].id) == 0,
          "by state");
    some.count = 0;
    CHECK(engine_list(rig->engine, &rig_other, NULL, NULL, 0, list_one, &some, next, &err) == 0 &&
              some.count == 0,
          "another tenant sees none");
    filter.all_tenants = true;
    CHECK(engine_list(rig->engine, &rig_caller, &filter, NULL, 0, list_one, &some, next, &err) !=
                  0 &&
              IS_CODE(err, "forbidden"),
          "all tenants are the operator's");
    CHECK(engine_list(rig->engine, &rig_caller, NULL, "x-1", 0, list_one, &some, next, &err) != 0,
          "a cursor that is none");
}

/* Neither cursors, which are of serial numbers, nor revisions count what other tenants do. */
static void check_numbers_count_nobody(struct rig *rig)
{
    struct answer made[2];
    const struct record *records[2];

    for (size_t i = 0; i < 2; i++) {
        rig_made(rig, NULL, &made[i]);
        records[i] = ((struct sandbox *)map_get(&rig->engine->ids, made[i].id))->record;
        CHECK(made[i].revision == records[i]->updated_ms, "a time: %" PRIu64, made[i].revision);
    }
    CHECK(records[1]->serial > records[0]->serial + 1000, "times in ns: %" PRIu64 ", %" PRIu64,
          records[0]->serial, records[1]->serial);
}

/* ---- changes, time ---- */

static void check_changes(struct rig *rig)
{
    static const char *const labels[] = {"a=b", NULL}, *const bad[] = {"a", NULL};
    struct sandbox_change change = {
        .labels = labels, .deadline_ms = UINT64_MAX, .idle_ms = UINT64_MAX, .then = -1};
    struct answer made, first;
    struct listed some = {.count = 0};
    struct sandbox_filter filter = {.labels = labels};
    struct error err;
    char next[64];
    uint64_t revision;

    rig_made(rig, NULL, &made);
    change.if_revision = made.revision + 7;
    rig_change(rig, made.id, &change, &first);
    CHECK(rig_fails(rig, &first, "revision_conflict"), "%s", first.error.code);
    change.if_revision = made.revision;
    rig_change(rig, made.id, &change, &first);
    CHECK(rig_done(rig, &first) && first.revision > made.revision, "changed");
    CHECK(first.state == SANDBOX_RUNNING, "it runs on");
    (void)engine_list(rig->engine, &rig_caller, &filter, NULL, 0, list_one, &some, next, &err);
    CHECK(some.count == 1, "found by its label");
    revision = first.revision;
    for (unsigned i = 0; i < 30; i++) {
        change.if_revision = revision;
        rig_change(rig, made.id, &change, &first);
        CHECK(rig_done(rig, &first) && first.revision > revision, "it rises each time: %" PRIu64,
              first.revision);
        revision = first.revision;
    }
    change.if_revision = 0;
    change.labels = bad;
    rig_change(rig, made.id, &change, &first);
    CHECK(first.count == 1 && IS(first, "bad_request"), "%s", first.error.code);
}

static void check_time(struct rig *rig)
{
    struct answer made;
    struct sandbox_spec spec = rig_spec(NULL);
    struct expected expected = {.rig = rig};
    struct answer seen;

    spec.idle_ms = 600000;
    spec.then = SANDBOX_THEN_STOP;
    CHECK(rig_done(rig, rig_create(rig, &spec, &made)), "made");
    for (int i = 0; i < 10; i++) {
        rig_pass(rig, 300000);
        rig_procs(rig, made.id, false, &seen);
    }
    rig_made(rig, NULL, &seen); /* what would be done by now is done before that */
    CHECK(has_state(rig, made.id, SANDBOX_RUNNING, "created"), "a sandbox in use is not idle");
    rig_pass(rig, 300000);
    rig_made(rig, NULL, &seen);
    CHECK(has_state(rig, made.id, SANDBOX_RUNNING, "created"), "nor before its time");
    rig_pass(rig, 300000);
    CHECK(rig_becomes(rig, made.id, SANDBOX_STOPPED, "idle"), "and then stops");
    spec = rig_spec(NULL);
    spec.deadline_ms = clock_wall_ms() + 600000;
    CHECK(rig_done(rig, rig_create(rig, &spec, &made)), "made");
    expected.id = made.id;
    rig_pass(rig, 300000);
    rig_made(rig, NULL, &seen);
    CHECK(has_state(rig, made.id, SANDBOX_RUNNING, "created"), "not before its deadline");
    rig_pass(rig, 300000);
    CHECK(rig_until(rig, is_unknown, &expected), "deleted at its deadline");
    CHECK(rig_look(rig, made.id, &seen) < 0 && IS(seen, "sandbox_gone"), "and gone");
    spec.deadline_ms = clock_wall_ms() - 1;
    rig_create(rig, &spec, &made);
    CHECK(made.count == 1 && IS(made, "bad_request"), "a deadline that has passed");
}

/* ---- limits ---- */

static void check_capacity(struct rig *rig)
{
    struct answer made;
    struct sandbox_spec spec = rig_spec(NULL);

    rig->options.headroom_memory_bytes = 1ULL << 50;
    rig_open(rig);
    rig_create(rig, &spec, &made);
    CHECK(made.count == 1 && IS(made, "capacity") && strstr(made.error.text, "less memory left"),
          "%s", made.error.text);
    rig_close(rig);
    rig->options.headroom_memory_bytes = 0;
    rig->options.headroom_disk_bytes = 1ULL << 60;
    rig_open(rig);
    rig_create(rig, &spec, &made);
    CHECK(made.count == 1 && IS(made, "capacity") && strstr(made.error.text, "less disk left"),
          "%s", made.error.text);
    rig_close(rig);
    rig->options.headroom_disk_bytes = 0;
    rig->options.sandboxes = 2;
    rig_open(rig);
    rig_made(rig, NULL, &made);
    rig_made(rig, NULL, &made);
    rig_create(rig, &spec, &made);
    CHECK(made.count == 1 && IS(made, "capacity"), "a third: %s", made.error.code);
}

static void check_scopes(struct rig *rig)
{
    struct answer made, stops = {0};
    struct sandbox_view view;
    struct error err;

    rig_made(rig, NULL, &made);
    CHECK(engine_look(rig->engine, &rig_reader, made.id, &view, &err) == 0, "a reader reads");
    engine_stop_sandbox(rig->engine, &rig_reader, made.id, rig_looked, &stops);
    CHECK(stops.count == 1 && IS(stops, "forbidden"), "and does no more: %s", stops.error.code);
    stops = (struct answer){0};
    engine_stop_sandbox(rig->engine, &rig_other, made.id, rig_looked, &stops);
    CHECK(stops.count == 1 && IS(stops, "sandbox_not_found"), "another tenant: %s",
          stops.error.code);
    CHECK(has_state(rig, made.id, SANDBOX_RUNNING, "created"), "it runs on");
}

/* What a client sent is read by jansson, which would go on without memory and read behind what it has. */
static void check_json_without_memory(struct rig *rig)
{
    json_malloc_t allocate;
    json_free_t release;
    int status = 0;
    pid_t pid;

    (void)rig;
    json_get_alloc_funcs(&allocate, &release);
    CHECK(allocate != malloc, "malloc gives NULL, or is the sanitizer's, which ends here anyway");
    pid = fork();
    if (pid == 0) {
        (void)signal(SIGABRT, SIG_DFL); // NOLINT(cert-err33-c)
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        (void)setrlimit(RLIMIT_DATA, &(struct rlimit){0, 0});
        release(allocate((size_t)1 << 46));
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid &&
              !(WIFEXITED(status) && WEXITSTATUS(status) == 0),
          "it goes on: %d", status);
}

/* Texts of ended commands are a tenant's up to its share, and what others have leaves it less. */
static void check_texts_of_tenants(struct rig *rig)
{
    static const char *const tenants[] = {"a", "b", "c", "d"};
    uint64_t most = engine_memory_kept();

    for (size_t i = 0; i < 4; i++) {
        struct share *share = shares_turns(rig->engine, tenants[i]);

        share->texts = most / 4;
        CHECK(shares_texts_are_many(rig->engine, tenants[i]) == (i == 3),
              "%s has a quarter beside %zu others", tenants[i], i);
        share->texts += 1;
        CHECK(shares_texts_are_many(rig->engine, tenants[i]), "%s has more", tenants[i]);
        share->texts = i < 3 ? most / 4 : most / 8;
    }
    CHECK(!shares_texts_are_many(rig->engine, "d"), "a half of what is left");
    CHECK(!shares_texts_are_many(rig->engine, "e"), "one that has nothing");
    for (size_t i = 0; i < 4; i++)
        shares_turns(rig->engine, tenants[i])->texts = 0;
}

int main(void)
{
    rig_run(check_json_without_memory);
    rig_run(check_texts_of_tenants);
    rig_run(check_create);
    rig_run(check_refusals);
    rig_run(check_whose_names_are);
    rig_run(check_lists_that_shrink);
    rig_run(check_names);
    rig_run(check_race);
    rig_run(check_race_with_failure);
    rig_run_unopened(check_pool);
    rig_run_unopened(check_pool_rests);
    for (int how = 0; how < 3; how++) {
        check_pool_of_the_dying(KEEPER_EPHEMERAL, how);
        check_pool_of_the_dying(KEEPER_PERSISTENT, how);
    }
    rig_run(check_stop_and_start);
    rig_run(check_delete);
    rig_run(check_never_stands);
    rig_run(check_delete_overtakes);
    rig_run(check_name_in_a_hurry);
    rig_run(check_processes);
    rig_run(check_fall);
    rig_run(check_lists);
    rig_run(check_numbers_count_nobody);
    rig_run(check_changes);
    rig_run(check_time);
    rig_run_unopened(check_capacity);
    rig_run(check_scopes);
    return check_finish();
}
