/* Commands of a sandbox, where the engine, the keeper or an init that the test plays do not do their
 * part: each has an end all the same, and is told to who waits for it. */
#include "base/fd.h"
#include "check.h"
#include "engine/parts.h"
#include "engine/procs_parts.h"
#include "rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Of a sandbox in whatever state. */
static struct procs *look_at(struct rig *rig, const char *id)
{
    struct answer answer = {0};

    engine_procs(rig->engine, &rig_caller, id, false, false, rig_procs_there, &answer);
    return rig_wait(rig, &answer) ? answer.procs : NULL;
}

static struct procs *procs_of(struct rig *rig, const char *id)
{
    struct answer answer;

    rig_procs(rig, id, false, &answer);
    return rig_wait(rig, &answer) ? answer.procs : NULL;
}

/* ---- what ran when everything ended ---- */

static bool is_forgotten(void *procs)
{
    return procs_find(procs, "1") == NULL;
}

static void check_is_lost(struct rig *rig, struct procs *procs, const char *reason)
{
    struct proc *proc = procs != NULL ? procs_find(procs, "1") : NULL;
    struct rig_ran waited = {0};
    struct error err;

    CHECK(proc != NULL, "it is still known");
    if (proc == NULL)
        return;
    CHECK(proc_wait(proc, 0, rig_ran_done, &waited) != NULL && rig_wait(rig, &waited.answer),
          "a wait ends");
    CHECK(waited.view.state == PROC_LOST && strcmp(waited.view.reason, reason) == 0, "%s",
          waited.view.reason);
    CHECK(procs_running(procs) == 0, "%zu run", procs_running(procs));
    CHECK(proc_forget(proc, &err) == 0, "it can be forgotten: %s", err.text);
    CHECK(rig_until(rig, is_forgotten, procs), "and is");
}

/* The engine ends with a command that runs, and the box is gone when the next one comes. */
static void box_lost(struct rig *rig, struct answer *made)
{
    struct rig_ran ran;

    rig_start(rig);
    rig_open(rig);
    rig_made(rig, NULL, made);
    rig->fake.exec = FAKE_RUNS;
    CHECK(rig_exec(rig, procs_of(rig, made->id), NULL, &ran), "it runs: %s", ran.answer.error.text);
    rig_close(rig);
    rig_other_keeper(rig);
    rig_open(rig);
}

static void check_lost_with_its_box(void)
{
    struct answer made, starts;
    struct procs *procs;
    struct rig rig;

    box_lost(&rig, &made);
    procs = look_at(&rig, made.id); /* maybe before its record says that it fell */
    CHECK(rig_becomes(&rig, made.id, SANDBOX_STOPPED, "box_ended"), "it has no box");
    check_is_lost(&rig, procs, "box_ended");
    rig_end(&rig);

    box_lost(&rig, &made);
    CHECK(rig_becomes(&rig, made.id, SANDBOX_STOPPED, "box_ended"), "it has no box");
    check_is_lost(&rig, look_at(&rig, made.id), "box_ended");
    rig_end(&rig);

    box_lost(&rig, &made);
    CHECK(rig_becomes(&rig, made.id, SANDBOX_STOPPED, "box_ended"), "it has no box");
    CHECK(rig_done(&rig, rig_start_it(&rig, made.id, &starts)), "started again");
    check_is_lost(&rig, look_at(&rig, made.id), "box_ended");
    rig_end(&rig);
}

/* ---- an init that does not answer ---- */

static void check_start_that_nobody_answers(struct rig *rig)
{
    static const char *const argv[] = {"/bin/true", NULL};
    const struct proc_spec spec = {.argv = argv, .cwd = "/", .timeout_ms = 50};
    struct answer made;
    struct procs *procs;
    struct rig_ran ran;

    rig_made(rig, NULL, &made);
    procs = procs_of(rig, made.id);
    rig->fake.exec = FAKE_NEVER_RUNS;
    CHECK(!rig_exec(rig, procs, &spec, &ran) && ran.answer.count == 1 &&
              IS(ran.answer, "sandbox_failed"),
          "%u answers, %s", ran.answer.count, ran.answer.error.code);
    CHECK(procs_running(procs) == 0, "%zu run", procs_running(procs));
    rig->fake.exec = FAKE_ENDS;
    CHECK(rig_exec(rig, procs, NULL, &ran), "the next one: %s", ran.answer.error.text);
}

/* ---- names ---- */

static void check_a_pid_is_no_id(struct rig *rig)
{
    struct answer made;
    struct procs *procs;
    struct rig_ran ran;

    rig_made(rig, NULL, &made);
    procs = procs_of(rig, made.id);
    CHECK(rig_exec(rig, procs, NULL, &ran) && ran.view.pid == 7 &&
              procs_find(procs, "1") == ran.proc,
          "pid %d", (int)ran.view.pid);
    CHECK(procs_find(procs, "7") == NULL, "nobody is found by it");
}

/* ---- who follows ---- */

struct follower {
    struct proc_follow *follow;
    unsigned news;
    bool cancels;
};

static void on_news(void *arg)
{
    struct follower *follower = arg;

    follower->news++;
    if (follower->cancels && follower->follow != NULL) {
        proc_follow_cancel(follower->follow);
        follower->follow = NULL;
    }
}

/* The last follower of one that is forgotten goes while all are closed: it is freed once. */
static void check_follower_of_a_forgotten_one(struct rig *rig)
{
    static const uint64_t from[2] = {0, 0};
    struct follower follower = {0};
    struct answer made, deletes;
    struct error err;
    struct rig_ran ran;

    rig_made(rig, NULL, &made);
    CHECK(rig_exec(rig, procs_of(rig, made.id), NULL, &ran) && rig_until(rig, rig_has_ended, &ran),
          "it ran");
    follower.follow = proc_follow(ran.proc, from, on_news, &follower);
    rig_turn(rig, 20);
    CHECK(proc_forget(ran.proc, &err) == 0, "%s", err.text);
    follower.cancels = true;
    follower.news = 0;
    CHECK(rig_done(rig, rig_delete(rig, made.id, &deletes)), "deleted");
    CHECK(follower.news > 0 && follower.follow == NULL, "told %u times", follower.news);
}

/* ---- what does not run ---- */

static void check_stopped_costs_no_fd(struct rig *rig)
{
    struct answer made[10], stops;
    struct procs *procs;
    struct rig_ran ran;
    int fds;

    rig_turn(rig, 20);
    fds = rig_fds();
    for (int i = 0; i < 10; i++) {
        rig_made(rig, NULL, &made[i]);
        CHECK(rig_exec(rig, procs_of(rig, made[i].id), NULL, &ran) &&
                  rig_until(rig, rig_has_ended, &ran),
              "it ran");
        CHECK(rig_done(rig, rig_stop(rig, made[i].id, &stops)), "stopped");
    }
    rig_turn(rig, 20);
    CHECK(rig_fds() >= fds + 10, "%d fds, before %d", rig_fds(), fds);
    engine_close_quiet(rig->engine);
    CHECK(rig_until(rig, rig_fds_are, &fds), "%d fds, before %d", rig_fds(), fds);
    procs = look_at(rig, made[3].id);
    CHECK(procs != NULL && procs_find(procs, "1") != NULL, "what it ran is still known");
}

/* ---- what a power loss leaves ---- */

static void check_output_of_nobody(struct rig *rig)
{
    struct answer made, stops, execs;
    struct rig_ran ran = {.proc = NULL};
    char path[64];
    struct stat st;
    int fd;

    rig_made(rig, NULL, &made);
    CHECK(rig_exec(rig, procs_of(rig, made.id), NULL, &ran) && rig_until(rig, rig_has_ended, &ran),
          "it ran");
    CHECK(rig_done(rig, rig_stop(rig, made.id, &stops)), "stopped");
    rig_close(rig);
    (void)snprintf(path, sizeof(path), "sandboxes/%s/9.out", made.id);
    fd = openat(rig->dir, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd_write_full(fd, "of nobody", 9) == 0, "written");
    fd_close(&fd);
    rig_open(rig);
    rig_procs(rig, made.id, true, &execs);
    CHECK(rig_wait(rig, &execs) && execs.procs != NULL && procs_find(execs.procs, "1") != NULL,
          "what is on record is there");
    CHECK(fstatat(rig->dir, path, &st, 0) != 0, "what is of nobody is not");
    CHECK(rig_exec(rig, execs.procs, NULL, &ran) && strcmp(ran.view.id, "10") == 0,
          "no other has its number: %s", ran.view.id);
}

/* ---- a journal that is written anew ---- */

/* The youngest process is forgotten, and the journal that is written then does not name it. */
static void check_no_id_is_given_twice(struct rig *rig)
{
    static char waste[2U << 20];
    struct answer made, answer;
    struct rig_ran ran;
    struct error err;
    char path[64];
    struct stat st;
    int fd;

    memset(waste, '\n', sizeof(waste));
    rig_made(rig, NULL, &made);
    rig->fake.exec = FAKE_RUNS;
    CHECK(rig_exec(rig, procs_of(rig, made.id), NULL, &ran), "the first runs");
    rig->fake.exec = FAKE_ENDS;
    CHECK(rig_exec(rig, procs_of(rig, made.id), NULL, &ran) && strcmp(ran.view.id, "2") == 0 &&
              rig_until(rig, rig_has_ended, &ran) && proc_forget(ran.proc, &err) == 0,
          "the second is forgotten");
    rig_close(rig);
    (void)snprintf(path, sizeof(path), "sandboxes/%s/journal", made.id);
    fd = openat(rig->dir, path, O_WRONLY | O_APPEND | O_CLOEXEC);
    CHECK(fd_write_full(fd, waste, sizeof(waste)) == 0, "the journal is large");
    fd_close(&fd);
    rig_open(rig);
    CHECK(procs_of(rig, made.id) != NULL && rig_done(rig, rig_stop(rig, made.id, &answer)),
          "the end of the first is written");
    CHECK(fstatat(rig->dir, path, &st, 0) == 0 && st.st_size < (off_t)sizeof(waste),
          "and all anew");
    rig_close(rig);
    rig_open(rig);
    CHECK(rig_done(rig, rig_start_it(rig, made.id, &answer)) &&
              rig_exec(rig, procs_of(rig, made.id), NULL, &ran) && strcmp(ran.view.id, "3") == 0,
          "the next is %s", ran.view.id);
}

/* ---- turns ---- */

static const struct share *share_of(struct rig *rig, const struct engine_caller *caller)
{
    struct sandbox_spec spec = rig_spec(NULL);
    struct answer made = {0}, there = {0};

    engine_create(rig->engine, caller, &spec, rig_created, &made);
    if (!rig_done(rig, &made))
        abort();
    engine_procs(rig->engine, caller, made.id, true, false, rig_procs_there, &there);
    return rig_wait(rig, &there) && there.procs != NULL ? there.procs->task.share : NULL;
}

/* test_procs_turns.c sees what is done in each turn, and how long a round is. */
static void check_turns_are_of_tenants(struct rig *rig)
{
    const struct share *first = share_of(rig, &rig_caller);

    CHECK(first != NULL && share_of(rig, &rig_caller) == first, "a tenant's sandboxes have one");
    CHECK(share_of(rig, &rig_other) != first, "another tenant's have another");
}

int main(void)
{
    check_lost_with_its_box();
    rig_run(check_start_that_nobody_answers);
    rig_run(check_a_pid_is_no_id);
    rig_run(check_follower_of_a_forgotten_one);
    rig_run(check_stopped_costs_no_fd);
    rig_run(check_output_of_nobody);
    rig_run(check_no_id_is_given_twice);
    rig_run(check_turns_are_of_tenants);
    return check_finish();
}
