/* Commands of a sandbox, where the engine, the keeper or an init that the test plays do not do their
 * part: each has an end all the same, and is told to who waits for it. */
#include "base/fd.h"
#include "check.h"
#include "engine/parts.h"
#include "rig.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define IS(answer, wanted) (strcmp((answer).error.code, wanted) == 0)

struct ran {
    struct answer answer;
    struct procs *procs;
    struct proc *proc;
    struct proc_view view;
};

static void ran_done(void *arg, struct proc *proc, const struct error *err)
{
    struct ran *ran = arg;

    ran->answer.count++;
    ran->answer.failed = err != NULL;
    if (err != NULL)
        ran->answer.error = *err;
    ran->proc = proc;
    if (proc != NULL)
        proc_look(proc, &ran->view);
}

static bool start_spec(struct rig *rig, struct procs *procs, const struct proc_spec *spec,
                       struct ran *ran)
{
    *ran = (struct ran){.procs = procs};
    procs_start(procs, spec, ran_done, ran);
    return rig_wait(rig, &ran->answer) && !ran->answer.failed;
}

static bool start(struct rig *rig, struct procs *procs, struct ran *ran)
{
    static const char *const argv[] = {"/bin/true", NULL};
    const struct proc_spec spec = {.argv = argv, .cwd = "/"};

    return start_spec(rig, procs, &spec, ran);
}

static bool has_ended(void *arg)
{
    struct ran *ran = arg;

    proc_look(ran->proc, &ran->view);
    return ran->view.state != PROC_STARTING && ran->view.state != PROC_RUNNING;
}

static void procs_there(void *arg, struct procs *procs, const struct error *err)
{
    struct answer *answer = arg;

    answer->count++;
    answer->failed = err != NULL;
    if (err != NULL)
        answer->error = *err;
    answer->procs = procs;
}

/* Of a sandbox in whatever state. */
static struct procs *look_at(struct rig *rig, const char *id)
{
    struct answer answer = {0};

    engine_procs(rig->engine, &rig_caller, id, false, false, procs_there, &answer);
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
    struct ran waited = {0};
    struct error err;

    CHECK(proc != NULL, "it is still known");
    if (proc == NULL)
        return;
    CHECK(proc_wait(proc, 0, ran_done, &waited) != NULL && rig_wait(rig, &waited.answer),
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
    struct ran ran;

    rig_start(rig);
    rig_open(rig);
    rig_made(rig, NULL, made);
    rig->fake.exec = FAKE_RUNS;
    CHECK(start(rig, procs_of(rig, made->id), &ran), "it runs: %s", ran.answer.error.text);
    rig_close(rig);
    fake_end(&rig->fake);
    rig->fake = (struct fake){.socket = -1};
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
    rig_start_it(&rig, made.id, &starts);
    CHECK(rig_wait(&rig, &starts) && !starts.failed, "started again");
    check_is_lost(&rig, look_at(&rig, made.id), "box_ended");
    rig_end(&rig);
}

/* ---- an init that does not answer ---- */

static void check_start_that_nobody_answers(void)
{
    static const char *const argv[] = {"/bin/true", NULL};
    const struct proc_spec spec = {.argv = argv, .cwd = "/", .timeout_ms = 50};
    struct answer made;
    struct procs *procs;
    struct ran ran;
    struct rig rig;

    rig_start(&rig);
    rig_open(&rig);
    rig_made(&rig, NULL, &made);
    procs = procs_of(&rig, made.id);
    rig.fake.exec = FAKE_NEVER_RUNS;
    CHECK(!start_spec(&rig, procs, &spec, &ran) && ran.answer.count == 1 &&
              IS(ran.answer, "sandbox_failed"),
          "%u answers, %s", ran.answer.count, ran.answer.error.code);
    CHECK(procs_running(procs) == 0, "%zu run", procs_running(procs));
    rig.fake.exec = FAKE_ENDS;
    CHECK(start(&rig, procs, &ran), "the next one: %s", ran.answer.error.text);
    rig_end(&rig);
}

/* ---- names ---- */

static void check_a_pid_is_no_id(void)
{
    struct answer made;
    struct procs *procs;
    struct ran ran;
    struct rig rig;

    rig_start(&rig);
    rig_open(&rig);
    rig_made(&rig, NULL, &made);
    procs = procs_of(&rig, made.id);
    CHECK(start(&rig, procs, &ran) && ran.view.pid == 7 && procs_find(procs, "1") == ran.proc,
          "pid %d", (int)ran.view.pid);
    CHECK(procs_find(procs, "7") == NULL, "nobody is found by it");
    rig_end(&rig);
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
static void check_follower_of_a_forgotten_one(void)
{
    static const uint64_t from[2] = {0, 0};
    struct follower follower = {0};
    struct answer made, deletes;
    struct error err;
    struct ran ran;
    struct rig rig;

    rig_start(&rig);
    rig_open(&rig);
    rig_made(&rig, NULL, &made);
    CHECK(start(&rig, procs_of(&rig, made.id), &ran) && rig_until(&rig, has_ended, &ran), "it ran");
    follower.follow = proc_follow(ran.proc, from, on_news, &follower);
    rig_turn(&rig, 20);
    CHECK(proc_forget(ran.proc, &err) == 0, "%s", err.text);
    follower.cancels = true;
    follower.news = 0;
    rig_delete(&rig, made.id, &deletes);
    CHECK(rig_wait(&rig, &deletes) && !deletes.failed, "deleted");
    CHECK(follower.news > 0 && follower.follow == NULL, "told %u times", follower.news);
    rig_end(&rig);
}

/* ---- what does not run ---- */

static void check_stopped_costs_no_fd(void)
{
    struct answer made[10], stops;
    struct procs *procs;
    struct ran ran;
    struct rig rig;
    int fds;

    rig_start(&rig);
    rig_open(&rig);
    rig_turn(&rig, 20);
    fds = rig_fds();
    for (int i = 0; i < 10; i++) {
        rig_made(&rig, NULL, &made[i]);
        CHECK(start(&rig, procs_of(&rig, made[i].id), &ran) && rig_until(&rig, has_ended, &ran),
              "it ran");
        rig_stop(&rig, made[i].id, &stops);
        CHECK(rig_wait(&rig, &stops) && !stops.failed, "stopped");
    }
    rig_turn(&rig, 20);
    CHECK(rig_fds() >= fds + 10, "%d fds, before %d", rig_fds(), fds);
    engine_close_quiet(rig.engine);
    CHECK(rig_until(&rig, rig_fds_are, &fds), "%d fds, before %d", rig_fds(), fds);
    procs = look_at(&rig, made[3].id);
    CHECK(procs != NULL && procs_find(procs, "1") != NULL, "what it ran is still known");
    rig_end(&rig);
}

/* ---- what a power loss leaves ---- */

static void check_output_of_nobody(void)
{
    struct answer made, stops, execs;
    struct ran ran = {.proc = NULL};
    char path[64];
    struct stat st;
    struct rig rig;
    int fd;

    rig_start(&rig);
    rig_open(&rig);
    rig_made(&rig, NULL, &made);
    CHECK(start(&rig, procs_of(&rig, made.id), &ran) && rig_until(&rig, has_ended, &ran), "it ran");
    rig_stop(&rig, made.id, &stops);
    CHECK(rig_wait(&rig, &stops) && !stops.failed, "stopped");
    rig_close(&rig);
    (void)snprintf(path, sizeof(path), "sandboxes/%s/9.out", made.id);
    fd = openat(rig.dir, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd_write_full(fd, "of nobody", 9) == 0, "written");
    fd_close(&fd);
    rig_open(&rig);
    rig_procs(&rig, made.id, true, &execs);
    CHECK(rig_wait(&rig, &execs) && execs.procs != NULL && procs_find(execs.procs, "1") != NULL,
          "what is on record is there");
    CHECK(fstatat(rig.dir, path, &st, 0) != 0, "what is of nobody is not");
    CHECK(start(&rig, execs.procs, &ran) && strcmp(ran.view.id, "10") == 0,
          "no other has its number: %s", ran.view.id);
    rig_end(&rig);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    check_lost_with_its_box();
    check_start_that_nobody_answers();
    check_a_pid_is_no_id();
    check_follower_of_a_forgotten_one();
    check_stopped_costs_no_fd();
    check_output_of_nobody();
    return check_finish();
}
