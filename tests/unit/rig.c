/* See rig.h. */
#include "rig.h"

#include "base/fd.h"
#include "base/list.h"
#include "base/remove.h"
#include "base/set_clock.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MS 30000 /* of what comes; a machine can be slow */
#define LOOK_MS 10        /* between two looks at what wakes no loop */

const struct engine_caller rig_caller = {
    .tenant = "default", .key_id = "socket", .scopes = ENGINE_ALL & ~(unsigned)ENGINE_OPERATOR};
const struct engine_caller rig_other = {
    .tenant = "other", .key_id = "k1", .scopes = ENGINE_ALL & ~(unsigned)ENGINE_OPERATOR};
const struct engine_caller rig_reader = {
    .tenant = "default", .key_id = "k2", .scopes = ENGINE_READ};

/* ---- its life ---- */

static void opened(void *arg, const struct error *err)
{
    struct rig *rig = arg;

    rig->opened = true;
    if (err != NULL)
        rig->open_error = *err;
}

static void lost(void *arg)
{
    struct rig *rig = arg;

    if (rig->lost)
        abort(); /* told twice */
    rig->lost = true;
}

void rig_start(struct rig *rig)
{
    (void)signal(SIGPIPE, SIG_IGN);
    *rig = (struct rig){.dir = -1, .fake.socket = -1};
    (void)snprintf(rig->path, sizeof(rig->path), "/tmp/cove-test-engine-XXXXXX");
    if (uv_loop_init(&rig->loop) != 0 || mkdtemp(rig->path) == NULL)
        abort();
    (void)uv_timer_init(&rig->loop, &rig->patience);
    rig->dir = open(rig->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rig->options = (struct engine_options){
        .loop = &rig->loop,
        .defaults = {.memory_bytes = 64 << 20, .pids = 64, .disk_bytes = 64 << 20},
        .sandboxes = 5000,
        .lost = lost,
        .arg = rig,
    };
}

void rig_connect(struct rig *rig)
{
    rig->options.keeper = fake_connect(&rig->fake, &rig->loop);
    /* The fake takes requests as packets: a write to a socket of packets is one. */
    rig->options.keeper_requests = fcntl(rig->options.keeper, F_DUPFD_CLOEXEC, 3);
    rig->options.directory = fcntl(rig->dir, F_DUPFD_CLOEXEC, 3);
}

void rig_begin(struct rig *rig)
{
    struct error err;

    rig->opened = rig->lost = rig->drained = false;
    rig->open_error = (struct error){0};
    rig_connect(rig);
    if (engine_open(&rig->options, &rig->engine, opened, rig, &err) != 0) {
        printf("engine_open: %s: %s\n", err.code, err.text);
        abort();
    }
}

static bool is_open(void *arg)
{
    const struct rig *rig = arg;

    return rig->opened;
}

void rig_open(struct rig *rig)
{
    rig_begin(rig);
    if (!rig_until(rig, is_open, rig) || rig->open_error.code[0] != '\0') {
        printf("not opened: %s\n", rig->open_error.text);
        abort();
    }
}

void rig_close(struct rig *rig)
{
    engine_close(rig->engine);
    rig->engine = NULL;
    fake_vanish(&rig->fake);
    for (int i = 0; i < 20; i++)
        (void)uv_run(&rig->loop, UV_RUN_NOWAIT);
}

void rig_other_keeper(struct rig *rig)
{
    fake_end(&rig->fake);
    rig->fake = (struct fake){.socket = -1};
}

void rig_end(struct rig *rig)
{
    if (rig->engine != NULL)
        rig_close(rig);
    fake_end(&rig->fake);
    uv_close((uv_handle_t *)&rig->patience, NULL);
    (void)uv_run(&rig->loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&rig->loop) != 0) {
        uv_print_all_handles(&rig->loop, stdout);
        abort();
    }
    (void)remove_tree(AT_FDCWD, rig->path);
    fd_close(&rig->dir);
}

void rig_run_unopened(void (*test)(struct rig *rig))
{
    struct rig rig;

    rig_start(&rig);
    test(&rig);
    rig_end(&rig);
}

void rig_run(void (*test)(struct rig *rig))
{
    struct rig rig;

    rig_start(&rig);
    rig_open(&rig);
    test(&rig);
    rig_end(&rig);
}

/* ---- waiting ---- */

static void look_again(uv_timer_t *timer)
{
    (void)timer;
}

bool rig_until(struct rig *rig, bool (*holds)(void *arg), void *arg)
{
    uint64_t end;
    bool held;

    uv_update_time(&rig->loop);
    end = uv_now(&rig->loop) + PATIENCE_MS;
    (void)uv_timer_start(&rig->patience, look_again, LOOK_MS, LOOK_MS);
    while (!(held = holds(arg)) && uv_now(&rig->loop) < end)
        (void)uv_run(&rig->loop, UV_RUN_ONCE);
    (void)uv_timer_stop(&rig->patience);
    return held; /* a moment later it may not, where other threads have a part in it */
}

static bool is_answered(void *arg)
{
    const struct answer *answer = arg;

    return answer->count > 0;
}

bool rig_wait(struct rig *rig, struct answer *answer)
{
    return rig_until(rig, is_answered, answer);
}

bool rig_done(struct rig *rig, struct answer *answer)
{
    return rig_wait(rig, answer) && !answer->failed;
}

bool rig_fails(struct rig *rig, struct answer *answer, const char *code)
{
    return rig_wait(rig, answer) && IS(*answer, code);
}

static void turned(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
    uv_stop(timer->loop); /* where it was due at once, uv_run() would go on to wait for an event */
}

void rig_turn(struct rig *rig, unsigned ms)
{
    bool is_over = false;

    rig->patience.data = &is_over;
    uv_update_time(&rig->loop);
    (void)uv_timer_start(&rig->patience, turned, ms, 0);
    while (!is_over)
        (void)uv_run(&rig->loop, UV_RUN_ONCE);
    /* What came in time, where a stall took all of it. */
    for (int i = 0; i < 50; i++)
        (void)uv_run(&rig->loop, UV_RUN_NOWAIT);
}

void rig_pass(struct rig *rig, uint64_t ms)
{
    set_clock_advance(ms * 1000000);
    for (int i = 0; i < 50; i++)
        (void)uv_run(&rig->loop, UV_RUN_NOWAIT);
}

/* ---- verbs ---- */

static void take(struct answer *answer, const struct sandbox_view *view, const struct error *err)
{
    answer->count++;
    answer->failed = err != NULL;
    if (err != NULL)
        answer->error = *err;
    if (view == NULL)
        return;
    (void)snprintf(answer->id, sizeof(answer->id), "%s", view->id);
    (void)snprintf(answer->reason, sizeof(answer->reason), "%s", view->reason);
    (void)snprintf(answer->name, sizeof(answer->name), "%s", view->name != NULL ? view->name : "");
    (void)snprintf(answer->tenant, sizeof(answer->tenant), "%s", view->tenant);
    answer->state = view->state;
    answer->revision = view->revision;
}

void rig_created(void *arg, const struct sandbox_view *view, bool anew, const struct error *err)
{
    struct answer *answer = arg;

    answer->created = anew;
    take(answer, view, err);
}

void rig_looked(void *arg, const struct sandbox_view *view, const struct error *err)
{
    take(arg, view, err);
}

void rig_ended(void *arg, const struct error *err)
{
    take(arg, NULL, err);
}

void rig_procs_there(void *arg, struct procs *procs, const struct error *err)
{
    struct answer *answer = arg;

    answer->procs = procs;
    take(answer, NULL, err);
}

struct sandbox_spec rig_spec(const char *name)
{
    return (struct sandbox_spec){
        .name = name, .privileges = BOX_PLAIN, .disk_kind = KEEPER_EPHEMERAL};
}

struct answer *rig_create(struct rig *rig, const struct sandbox_spec *spec, struct answer *answer)
{
    *answer = (struct answer){0};
    engine_create(rig->engine, &rig_caller, spec, rig_created, answer);
    return answer;
}

struct answer *rig_start_it(struct rig *rig, const char *id, struct answer *answer)
{
    *answer = (struct answer){0};
    engine_start_sandbox(rig->engine, &rig_caller, id, rig_looked, answer);
    return answer;
}

struct answer *rig_stop(struct rig *rig, const char *id, struct answer *answer)
{
    *answer = (struct answer){0};
    engine_stop_sandbox(rig->engine, &rig_caller, id, rig_looked, answer);
    return answer;
}

struct answer *rig_delete(struct rig *rig, const char *id, struct answer *answer)
{
    *answer = (struct answer){0};
    engine_delete_sandbox(rig->engine, &rig_caller, id, rig_ended, answer);
    return answer;
}

struct answer *rig_procs(struct rig *rig, const char *id, bool start, struct answer *answer)
{
    *answer = (struct answer){0};
    engine_procs(rig->engine, &rig_caller, id, true, start, rig_procs_there, answer);
    return answer;
}

struct answer *rig_change(struct rig *rig, const char *id, const struct sandbox_change *change,
                          struct answer *answer)
{
    *answer = (struct answer){0};
    engine_change_sandbox(rig->engine, &rig_caller, id, change, rig_looked, answer);
    return answer;
}

static void key_made(void *arg, const struct engine_key_view *view, const char *secret,
                     const struct error *err)
{
    struct rig_key *key = arg;

    take(&key->answer, NULL, err);
    if (err != NULL)
        return;
    (void)snprintf(key->id, sizeof(key->id), "%s", view->id);
    (void)snprintf(key->tenant, sizeof(key->tenant), "%s", view->tenant);
    (void)snprintf(key->secret, sizeof(key->secret), "%s", secret);
}

bool rig_key_make(struct rig *rig, const struct engine_caller *caller, const char *tenant,
                  const char *label, unsigned scopes, struct rig_key *key)
{
    *key = (struct rig_key){.id = ""};
    engine_key_make(rig->engine, caller, tenant, label, scopes, key_made, key);
    return rig_done(rig, &key->answer);
}

struct answer rig_key_end(struct rig *rig, const struct engine_caller *caller, const char *id)
{
    struct answer answer = {0};

    engine_key_end(rig->engine, caller, id, rig_ended, &answer);
    (void)rig_wait(rig, &answer);
    return answer;
}

void rig_ran_done(void *arg, struct proc *proc, const struct error *err)
{
    struct rig_ran *ran = arg;

    take(&ran->answer, NULL, err);
    ran->proc = proc;
    if (proc != NULL)
        proc_look(proc, &ran->view);
}

bool rig_exec(struct rig *rig, struct procs *procs, const struct proc_spec *spec,
              struct rig_ran *ran)
{
    static const char *const argv[] = {"/bin/true", NULL};
    static const struct proc_spec plain = {.argv = argv, .cwd = "/"};

    *ran = (struct rig_ran){.proc = NULL};
    procs_start(procs, spec != NULL ? spec : &plain, rig_ran_done, ran);
    return rig_done(rig, &ran->answer);
}

bool rig_has_ended(void *arg)
{
    struct rig_ran *ran = arg;

    proc_look(ran->proc, &ran->view);
    return ran->view.state != PROC_STARTING && ran->view.state != PROC_RUNNING;
}

int rig_look(struct rig *rig, const char *id, struct answer *answer)
{
    struct sandbox_view view;

    *answer = (struct answer){0};
    if (engine_look(rig->engine, &rig_caller, id, &view, &answer->error) != 0)
        return -1;
    take(answer, &view, NULL);
    return (int)view.state;
}

void rig_made(struct rig *rig, const char *name, struct answer *answer)
{
    struct sandbox_spec spec = rig_spec(name);

    rig_create(rig, &spec, answer);
    if (!rig_done(rig, answer)) {
        printf("not made: %s: %s\n", answer->error.code, answer->error.text);
        abort();
    }
}

struct expected {
    struct rig *rig;
    const char *id, *reason;
    enum sandbox_state state;
};

static bool is_as_expected(void *arg)
{
    const struct expected *expected = arg;
    struct answer seen;

    return rig_look(expected->rig, expected->id, &seen) == (int)expected->state &&
           strcmp(seen.reason, expected->reason) == 0;
}

bool rig_becomes(struct rig *rig, const char *id, enum sandbox_state state, const char *reason)
{
    struct expected expected = {rig, id, reason, state};
    struct answer seen;

    if (rig_until(rig, is_as_expected, &expected))
        return true;
    printf("%s: %s (%s) %s\n", id, sandbox_state_name((enum sandbox_state)rig_look(rig, id, &seen)),
           seen.reason, seen.error.text);
    return false;
}

int rig_fds(void)
{
    DIR *dir = list_open(AT_FDCWD, "/proc/self/fd");
    int count = 0;

    while (dir != NULL && readdir(dir) != NULL)
        count++;
    if (dir != NULL)
        (void)closedir(dir);
    return count;
}

bool rig_fds_are(void *arg)
{
    return rig_fds() == *(const int *)arg;
}
