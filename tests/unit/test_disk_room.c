/* Room for disks: what may be promised, who may grow by how much while room is short, and who is ended when that does
 * not help. The keeper says what is left; how a disk is held is tried on real ones (tests/engine/test_full_disk.py). */
#include "check.h"
#include "engine/parts.h"
#include "rig.h"

#include <sys/statvfs.h>

#define MIB (1ULL << 20)
#define HEADROOM (1ULL << 30)
#define FLOOR (HEADROOM + HEADROOM / 8)
#define LARGE (1ULL << 45) /* more than any host of these tests has */

static struct engine_caller caller_of(const char *tenant)
{
    struct engine_caller caller = rig_caller;

    (void)snprintf(caller.tenant, sizeof(caller.tenant), "%s", tenant);
    return caller;
}

static struct answer *create_of(struct rig *rig, const char *tenant, struct answer *answer)
{
    struct engine_caller caller = caller_of(tenant);
    struct sandbox_spec spec = rig_spec(NULL);

    *answer = (struct answer){0};
    spec.disk_kind = KEEPER_PERSISTENT;
    engine_create(rig->engine, &caller, &spec, rig_created, answer);
    (void)rig_wait(rig, answer);
    return answer;
}

static struct fake_box *box_of(struct rig *rig, const char *tenant, struct answer *made)
{
    (void)create_of(rig, tenant, made);
    CHECK(!made->failed, "%s", made->error.text);
    return fake_box_of(&rig->fake, made->id);
}

/* A look asks, and the next one shares out what was answered. */
static void look_again(struct rig *rig)
{
    for (int i = 0; i < 3; i++)
        rig_pass(rig, 150);
}

static bool is_in(struct rig *rig, const char *tenant, const char *id, const char *reason)
{
    struct engine_caller caller = caller_of(tenant);
    struct sandbox_view view;
    struct error err;

    return engine_look(rig->engine, &caller, id, &view, &err) == 0 &&
           strcmp(view.reason, reason) == 0;
}

/* ---- what is promised ---- */

static uint64_t total(struct rig *rig)
{
    struct statvfs disk;

    return statvfs(rig->path, &disk) == 0 ? (uint64_t)disk.f_blocks * disk.f_frsize : 0;
}

static void check_promise(struct rig *rig)
{
    const struct engine_caller operator= {.tenant = "default",
                                          .scopes = ENGINE_READ | ENGINE_WRITE | ENGINE_OPERATOR};
    struct answer made, set = {0};
    struct sandbox_spec spec = rig_spec(NULL);

    rig->options.disk_overcommit = 1;
    rig->options.defaults.disk_bytes = total(rig) / 8 + MIB;
    rig_open(rig);
    for (int i = 0; i < 3; i++)
        CHECK(!create_of(rig, "one", &made)->failed, "%d: %s", i, made.error.text);
    CHECK(IS(*create_of(rig, "one", &made), "capacity") &&
              strstr(made.error.text, "less to all others"),
          "half is nobody's: %s", made.error.text);
    CHECK(!create_of(rig, "two", &made)->failed, "there is room for others: %s", made.error.text);
    spec.disk_kind = KEEPER_PERSISTENT;
    spec.limits.disk_bytes = total(rig) + MIB;
    CHECK(IS(*rig_create(rig, &spec, &made), "bad_request") &&
              strstr(made.error.text, "disk_bytes"),
          "no waiting helps: %s", made.error.text);
    spec.limits.disk_bytes = 0;
    spec.disk_kind = KEEPER_EPHEMERAL;
    CHECK(!rig_create(rig, &spec, &made)->failed, "an ephemeral one is not promised any");
    engine_quota_set(rig->engine, &operator, "one",
                     &(struct engine_quota){.disk_bytes = total(rig) * 2}, rig_ended, &set);
    CHECK(rig_done(rig, &set), "a quota");
    while (!create_of(rig, "one", &made)->failed)
        continue;
    CHECK(IS(made, "capacity") && strstr(made.error.text, "disk_overcommit"),
          "what an operator gives is no more than there is: %s", made.error.text);
    CHECK(disk_room_promised(rig->engine) <= disk_room_most(rig->engine), "it is not");
}

/* ---- what is left ---- */

static void check_share(struct rig *rig)
{
    struct answer made[3];
    struct fake_box *hog, *small, *second;

    rig->options.headroom_disk_bytes = HEADROOM;
    rig->options.defaults.disk_bytes = LARGE;
    rig->fake.left_bytes = 2 * HEADROOM;
    rig_open(rig);
    hog = box_of(rig, "hog", &made[0]);
    small = box_of(rig, "small", &made[1]);
    hog->used = 100 * MIB;
    small->used = 10 * MIB;
    hog->most = small->most = 4711;
    look_again(rig);
    CHECK(hog->most == 4711 && small->most == 4711, "there is room");

    rig->fake.left_bytes = FLOOR + 30 * MIB;
    look_again(rig);
    CHECK(hog->most == 0 && small->most == 30 * MIB, "%llu, %llu", (unsigned long long)hog->most,
          (unsigned long long)small->most);
    second = box_of(rig, "small", &made[2]);
    look_again(rig);
    CHECK(hog->most == 0 && small->most == 15 * MIB && second->most == 15 * MIB,
          "a tenant's boxes share: %llu", (unsigned long long)small->most);
    rig->fake.left_bytes = FLOOR + 200 * MIB;
    look_again(rig);
    CHECK(hog->most == 55 * MIB && small->most + second->most == 145 * MIB,
          "all end at one level: %llu, %llu", (unsigned long long)hog->most,
          (unsigned long long)small->most);
    rig->fake.left_bytes = FLOOR - 1;
    look_again(rig);
    CHECK(hog->most == 0 && small->most == 0 && second->most == 0, "below it nothing is given");

    rig->fake.left_bytes = 2 * HEADROOM + 1;
    look_again(rig);
    CHECK(hog->most != UINT64_MAX, "it takes more than it took to become short");
    rig->fake.left_bytes = 3 * HEADROOM;
    look_again(rig);
    CHECK(hog->most == UINT64_MAX && small->most == UINT64_MAX, "there is room again");
}

/* What a tenant has on stopped disks counts, so that nobody has more by stopping. */
static void check_stopped(struct rig *rig)
{
    struct engine_caller caller = caller_of("hog");
    struct answer made[3], stopped = {0};
    struct fake_box *hog, *small;

    rig->options.headroom_disk_bytes = HEADROOM;
    rig->options.defaults.disk_bytes = LARGE;
    rig->fake.left_bytes = FLOOR + 30 * MIB;
    rig_open(rig);
    hog = box_of(rig, "hog", &made[0]);
    hog->used = 100 * MIB;
    look_again(rig);
    engine_stop_sandbox(rig->engine, &caller, made[0].id, rig_looked, &stopped);
    CHECK(rig_done(rig, &stopped), "stopped");
    hog = box_of(rig, "hog", &made[1]);
    small = box_of(rig, "small", &made[2]);
    small->used = 10 * MIB;
    look_again(rig);
    CHECK(hog->most == 0 && small->most == 30 * MIB, "%llu, %llu", (unsigned long long)hog->most,
          (unsigned long long)small->most);
}

/* ---- when holding does not help ---- */

static void check_end(struct rig *rig)
{
    struct answer made[2];
    struct fake_box *hog, *large;

    rig->options.headroom_disk_bytes = HEADROOM;
    rig->options.defaults.disk_bytes = LARGE;
    rig->fake.left_bytes = FLOOR;
    rig_open(rig);
    large = box_of(rig, "large", &made[0]);
    hog = box_of(rig, rig_caller.tenant, &made[1]);
    large->used = 1000 * MIB;
    look_again(rig);
    rig->fake.left_bytes = 0;
    look_again(rig);
    CHECK(is_in(rig, "large", made[0].id, "created") &&
              is_in(rig, rig_caller.tenant, made[1].id, "created"),
          "nobody has written");
    rig->fake.free_bytes = 4 * HEADROOM;
    hog->used = 100 * MIB;
    look_again(rig);
    look_again(rig);
    CHECK(rig->fake.counts[KEEPER_CUT_DISK] == 0, "there is room all the same");
    rig->fake.free_bytes = 4 * HEADROOM - 1;
    look_again(rig);
    CHECK(rig_becomes(rig, made[1].id, SANDBOX_STOPPED, "host_full"), "it has grown most");
    CHECK(is_in(rig, "large", made[0].id, "created"), "and nobody else is ended");
}

/* It would go on where it may not. */
static void check_unheld(struct rig *rig)
{
    struct answer made[2];
    struct fake_box *hog, *other;

    rig->options.headroom_disk_bytes = HEADROOM;
    rig->options.defaults.disk_bytes = LARGE;
    rig->fake.left_bytes = FLOOR + 300 * MIB;
    rig->fake.holds_no_disk = true;
    rig_open(rig);
    hog = box_of(rig, rig_caller.tenant, &made[0]);
    other = box_of(rig, "other", &made[1]);
    hog->used = 1000 * MIB;
    look_again(rig);
    hog->used += 63 * MIB;
    other->used = 200 * MIB;
    look_again(rig);
    CHECK(is_in(rig, rig_caller.tenant, made[0].id, "created"), "that is little");
    hog->used += 2 * MIB;
    look_again(rig);
    CHECK(rig_becomes(rig, made[0].id, SANDBOX_STOPPED, "host_full"), "that is too much");
    CHECK(is_in(rig, "other", made[1].id, "created"), "the other has its share");
}

int main(void)
{
    rig_run_unopened(check_promise);
    rig_run_unopened(check_share);
    rig_run_unopened(check_stopped);
    rig_run_unopened(check_end);
    rig_run_unopened(check_unheld);
    return check_finish();
}
