/* Mounts of a sandbox that is there, with a keeper that the test plays: whatever is refused, lost or left half done, the
 * record has all that the box has. */
#include "check.h"
#include "rig.h"

#include <stdio.h>
#include <string.h>

#define ATTACHED(rig) ((rig)->fake.counts[KEEPER_ATTACH])
#define DETACHED(rig) ((rig)->fake.counts[KEEPER_DETACH])

static const struct keeper_mount data = {.name = "data", .target = "/data", .read_only = 1};

static struct answer *mounted(struct rig *rig, const char *id, const struct keeper_mount *mount,
                              struct answer *answer)
{
    *answer = (struct answer){.count = 0};
    engine_mount(rig->engine, &rig_caller, id, mount, rig_looked, answer);
    return answer;
}

static struct answer *unmounted(struct rig *rig, const char *id, const char *target,
                                struct answer *answer)
{
    *answer = (struct answer){.count = 0};
    engine_unmount(rig->engine, &rig_caller, id, target, rig_looked, answer);
    return answer;
}

/* How many mounts its record has. */
static size_t has(struct rig *rig, const char *id)
{
    struct sandbox_view view = {.mounts_count = 99};
    struct error err;

    (void)engine_look(rig->engine, &rig_caller, id, &view, &err);
    return view.mounts_count;
}

static void begin(struct rig *rig, struct answer *made)
{
    struct answer later;

    fake_names(&rig->fake, KEEPER_MOUNT, "data", "default");
    fake_names(&rig->fake, KEEPER_MOUNT, "theirs", "others");
    rig_made(rig, NULL, made);
    rig_made(rig, "later", &later); /* and the names are known */
}

static void check_mounted(struct rig *rig)
{
    struct keeper_mount other = data;
    struct answer made, answer;

    begin(rig, &made);
    CHECK(rig_done(rig, mounted(rig, made.id, &data, &answer)), "%s", answer.error.text);
    CHECK(has(rig, made.id) == 1 && ATTACHED(rig) == 1, "mounted");
    CHECK(rig_done(rig, mounted(rig, made.id, &data, &answer)) && has(rig, made.id) == 1, "again");
    CHECK(ATTACHED(rig) == 2, "the box may lack what the record has");
    other.read_only = 0;
    CHECK(rig_fails(rig, mounted(rig, made.id, &other, &answer), "mount_conflict"), "another way");
    strcpy(other.target, "/data/deep");
    CHECK(rig_done(rig, mounted(rig, made.id, &other, &answer)), "below: %s", answer.error.text);
    CHECK(rig_done(rig, unmounted(rig, made.id, "/data", &answer)) && has(rig, made.id) == 1,
          "one");
    CHECK(rig_fails(rig, mounted(rig, made.id, &data, &answer), "mount_conflict"), "it would hide");
    CHECK(rig_done(rig, unmounted(rig, made.id, "/data/deep", &answer)) && has(rig, made.id) == 0,
          "both");
    CHECK(rig_fails(rig, unmounted(rig, made.id, "/data", &answer), "mount_not_found"), "gone");
    strcpy(other.name, "theirs");
    CHECK(rig_fails(rig, mounted(rig, made.id, &other, &answer), "unknown_mount"), "theirs");
    strcpy(other.target, "/proc/x");
    CHECK(rig_fails(rig, mounted(rig, made.id, &other, &answer), "bad_request"),
          "the keeper takes none");
    strcpy(other.target, "/usr");
    CHECK(rig_fails(rig, mounted(rig, made.id, &other, &answer), "bad_request"),
          "no command could run");
    CHECK(ATTACHED(rig) == 3 && DETACHED(rig) == 2, "%u, %u", ATTACHED(rig), DETACHED(rig));
}

static bool count_change(void *arg, const struct engine_event *event)
{
    unsigned *count = arg;

    *count += event != NULL && strcmp(event->type, "sandbox.changed") == 0;
    return true;
}

static void check_told(struct rig *rig)
{
    struct engine_listener *listener;
    struct answer made, answer;
    unsigned count = 0;
    bool missed;

    begin(rig, &made);
    listener = engine_listen(rig->engine, &rig_caller, 0, &missed, count_change, &count);
    for (int i = 0; i < 2; i++)
        CHECK(rig_done(rig, mounted(rig, made.id, &data, &answer)), "%s", answer.error.text);
    rig_turn(rig, 50);
    CHECK(count == 1, "what changed nothing is told of: %u", count);
    CHECK(rig_done(rig, unmounted(rig, made.id, "/data", &answer)), "%s", answer.error.text);
    CHECK(rig_wait(rig, rig_stop(rig, made.id, &answer)), "stopped");
    for (int i = 0; i < 2; i++)
        CHECK(rig_done(rig, mounted(rig, made.id, &data, &answer)), "%s", answer.error.text);
    rig_turn(rig, 50);
    CHECK(count == 3, "nor of a sandbox that is stopped: %u", count);
    engine_unlisten(listener);
}

static void check_too_many(struct rig *rig)
{
    struct keeper_mount mount = data;
    struct answer made, answer;

    begin(rig, &made);
    for (int i = 0; i < KEEPER_MOUNTS_MAX; i++) {
        (void)snprintf(mount.target, sizeof(mount.target), "/data%d", i);
        CHECK(rig_done(rig, mounted(rig, made.id, &mount, &answer)), "%d", i);
    }
    CHECK(rig_fails(rig, mounted(rig, made.id, &data, &answer), "bad_request"), "one too many");
}

static void check_refused(struct rig *rig)
{
    static const char *const codes[][2] = {{"mount_failed", "mount_refused"},
                                           {"mount_refused", "mount_refused"},
                                           {"unknown_mount", "unknown_mount"},
                                           {"no_box", "sandbox_stopped"},
                                           {"capacity", "capacity"}};
    struct answer made, answer;

    begin(rig, &made);
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        rig->fake.refuse_mounts = codes[i][0];
        CHECK(rig_fails(rig, mounted(rig, made.id, &data, &answer), codes[i][1]), "%s: %s",
              codes[i][0], answer.error.code);
        CHECK(has(rig, made.id) == 0, "it is not shown");
    }
    rig->fake.refuse_mounts = NULL;
    CHECK(rig_done(rig, mounted(rig, made.id, &data, &answer)), "%s", answer.error.text);
    rig->fake.refuse_mounts = "unknown_mount"; /* removed this moment */
    CHECK(rig_fails(rig, mounted(rig, made.id, &data, &answer), "unknown_mount") &&
              has(rig, made.id) == 1,
          "the box has what it had");
    rig->fake.refuse_mounts = "mount_busy";
    CHECK(rig_fails(rig, unmounted(rig, made.id, "/data", &answer), "mount_busy"), "busy");
    rig->fake.refuse_mounts = "mount_moved";
    CHECK(rig_fails(rig, unmounted(rig, made.id, "/data", &answer), "mount_refused"), "moved");
    CHECK(has(rig, made.id) == 1, "it is there");
    rig->fake.refuse_mounts = "mount_not_found";
    CHECK(rig_done(rig, unmounted(rig, made.id, "/data", &answer)) && has(rig, made.id) == 0,
          "gone");
}

static void check_stopped(struct rig *rig)
{
    struct answer made, answer;

    begin(rig, &made);
    CHECK(rig_wait(rig, rig_stop(rig, made.id, &answer)), "stopped");
    CHECK(rig_done(rig, mounted(rig, made.id, &data, &answer)) && has(rig, made.id) == 1, "noted");
    CHECK(rig_wait(rig, rig_start_it(rig, made.id, &answer)) && ATTACHED(rig) == 0, "made with it");
    CHECK(rig_wait(rig, rig_stop(rig, made.id, &answer)), "stopped");
    CHECK(rig_done(rig, unmounted(rig, made.id, "/data", &answer)) && has(rig, made.id) == 0,
          "gone");
    CHECK(ATTACHED(rig) == 0 && DETACHED(rig) == 0, "without a box there is nothing to ask");
}

/* Of changes that the keeper has been asked for. */
struct asked {
    const struct rig *rig;
    unsigned count;
};

static bool is_asked(void *arg)
{
    const struct asked *asked = arg;

    return ATTACHED(asked->rig) >= asked->count;
}

/* Between the record and the answer: it is in the record, and the next engine makes it so when it is asked again. */
static void check_lost(struct rig *rig)
{
    struct answer made, answer;

    begin(rig, &made);
    rig->fake.silent_at = KEEPER_ATTACH;
    mounted(rig, made.id, &data, &answer);
    CHECK(rig_until(rig, is_asked, &(struct asked){rig, 1}) && answer.count == 0, "it waits");
    rig_close(rig);
    rig->fake.silent_at = 0;
    rig_open(rig);
    CHECK(has(rig, made.id) == 1, "the record has it");
    fake_names(&rig->fake, KEEPER_MOUNT, "data", "default");
    rig_made(rig, "another", &answer);
    CHECK(rig_done(rig, mounted(rig, made.id, &data, &answer)) && ATTACHED(rig) == 2, "%s",
          answer.error.text);
    CHECK(has(rig, made.id) == 1, "once");
}

#define MANY 12
#define PLACES 8 /* of one tenant */

/* The keeper has few places for changes, and one tenant has not all of them. */
static void check_turns(struct rig *rig)
{
    const struct keeper_mount theirs = {.name = "others", .target = "/data"};
    const struct sandbox_spec spec = rig_spec("of-another");
    struct answer made[MANY], answers[MANY], other = {.count = 0}, answer = {.count = 0};

    begin(rig, &answer);
    for (size_t i = 0; i < MANY; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "s%zu", i);
        rig_made(rig, name, &made[i]);
    }
    other = (struct answer){.count = 0};
    fake_names(&rig->fake, KEEPER_MOUNT, "others", "other");
    engine_create(rig->engine, &rig_other, &spec, rig_created, &other);
    CHECK(rig_wait(rig, &other), "%s", other.error.text);
    rig->fake.silent_at = KEEPER_ATTACH;
    for (size_t i = 0; i < MANY; i++)
        mounted(rig, made[i].id, &data, &answers[i]);
    CHECK(rig_until(rig, is_asked, &(struct asked){rig, PLACES}), "%u", ATTACHED(rig));
    rig_made(rig, "after-them", &answer); /* whatever was asked for before has come to the keeper */
    CHECK(ATTACHED(rig) == PLACES, "%u of %d are asked for", ATTACHED(rig), MANY);
    answer = (struct answer){.count = 0};
    engine_mount(rig->engine, &rig_other, other.id, &theirs, rig_looked, &answer);
    CHECK(rig_until(rig, is_asked, &(struct asked){rig, PLACES + 1}),
          "the other tenant's waits for none of them");
    rig_made(rig, "after-that", &made[0]);
    CHECK(ATTACHED(rig) == PLACES + 1, "it is the only one more: %u", ATTACHED(rig));
    rig_close(rig); /* those that wait, too */
}

/* Its keeper cannot do it, nor make the next box of a disk with other mounts. */
static void check_ordinary_user(struct rig *rig)
{
    struct answer made, answer;

    rig->fake.is_user = true;
    rig_open(rig);
    begin(rig, &made);
    CHECK(rig_fails(rig, mounted(rig, made.id, &data, &answer), "mount_refused"), "it runs");
    CHECK(rig_wait(rig, rig_stop(rig, made.id, &answer)), "stopped");
    CHECK(rig_fails(rig, mounted(rig, made.id, &data, &answer), "mount_refused"), "it is stopped");
    CHECK(has(rig, made.id) == 0 && ATTACHED(rig) == 0, "nothing was asked");
}

int main(void)
{
    rig_run(check_mounted);
    rig_run(check_told);
    rig_run(check_too_many);
    rig_run(check_refused);
    rig_run(check_stopped);
    rig_run(check_lost);
    rig_run(check_turns);
    rig_run_unopened(check_ordinary_user);
    return check_finish();
}
