/* `cove run`: one command in a fresh box, without any daemon.
 *
 * Options, box, loop, result, in this order. The loop ends when the command ends, never when a pipe
 * does: what is left in the box is killed then, and only after that is the rest of the output
 * fetched. Signals arrive through a signalfd from the moment there is a box; before that their
 * defaults are right, for the box's guard cleans up behind us. */
#include "cmd/run.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cmd/cmd.h"
#include "cmd/doctor.h"
#include "cmd/run_net.h"
#include "cmd/run_paths.h"
#include "cmd/scope.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN_COMMAND_ID 1
#define EXIT_TIMED_OUT 124
#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND 127
#define EXIT_SIGNAL 128 /* and its number */

/* How a run ended. */
enum run_end {
    RUN_GOES_ON,
    RUN_EXITED,  /* `status` */
    RUN_REFUSED, /* the command could not be executed */
    RUN_TIMED_OUT,
    RUN_INTERRUPTED, /* by `signal_number`, before the command ran */
    RUN_UNREAD,      /* nobody reads our output */
    RUN_FAILED,      /* `error` */
};

struct run {
    struct run_options options;
    struct run_stdio stdio;
    struct box *box;
    struct run_net net;
    int signals; /* signalfd */
    bool started;
    bool at_root;           /* the home does not exist */
    uint32_t early_signals; /* for the command, before it started */
    uint64_t told_ns;       /* when the command was first told to end; 0: it was not */
    bool is_killed;         /* for it was told again */
    uint64_t start_ns, deadline_ns, end_ns;
    enum run_end end;
    int status;
    int refused_errnum;
    int signal_number;
    struct error error;
};

static void run_end(struct run *run, enum run_end end)
{
    if (run->end != RUN_GOES_ON)
        return;
    run->end = end;
    run->end_ns = clock_monotonic_ns();
}

static void warnings_print(const struct run *run)
{
    const char *text;

    for (size_t i = 0; (text = box_warning(run->box, i)) != NULL; i++)
        cmd_warn_once(text);
}

/* ---- signals ---- */

/* Blocks rather than ignores: what is ignored would be so in every process that we start too. */
static int signals_open(struct run *run, struct error *err)
{
    sigset_t taken;
    sigset_t blocked;

    (void)sigemptyset(&taken);
    cmd_signals_add(&taken);
    if (run->options.tty) {
        (void)sigaddset(&taken, SIGWINCH);
        (void)sigaddset(&taken, SIGCONT);
    }
    blocked = taken;
    (void)sigaddset(&blocked, SIGPIPE);
    (void)sigaddset(&blocked, SIGTTIN); /* a read is then EIO; see run_stdio.c */
    (void)sigprocmask(SIG_BLOCK, &blocked, NULL);
    run->signals = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    if (run->signals < 0)
        return error_set(err, "signals", errno,
                         "signalfd: the kernel refused it; end something "
                         "and try again");
    return 0;
}

/* The first is kept for the command. Whoever sends another means it: the command may never start, with
 * its program on a file system that does not answer. */
static bool early_ending(const struct run *run)
{
    for (int number = 1; number < 32; number++)
        if ((run->early_signals & 1U << number) != 0 && cmd_signal_ends(number))
            return true;
    return false;
}

/* A wrapper that passes on what the terminal has told all of its group says one thing twice. */
#define TOLD_AGAIN_NS 100000000U

/* Whether the command was told to end before, and goes on. */
static bool told_again(struct run *run, int number)
{
    uint64_t now = clock_monotonic_ns();

    if (!cmd_signal_ends(number))
        return false;
    if (run->told_ns == 0)
        run->told_ns = now;
    return now - run->told_ns >= TOLD_AGAIN_NS;
}

static void signal_take(struct run *run, int number)
{
    struct error ignored;

    if (number == SIGWINCH)
        run_stdio_resize(&run->stdio);
    else if (number == SIGCONT)
        run_stdio_resume(&run->stdio);
    else if (run->started && told_again(run, number)) {
        run->is_killed = true;
        run->status = SIGKILL;
        run_end(run, RUN_EXITED); /* the box goes with all in it */
    } else if (run->started)
        (void)box_signal(run->box, RUN_COMMAND_ID, number, &ignored); /* it may just have ended */
    else if (!cmd_signal_ends(number) || !early_ending(run))
        run->early_signals |= 1U << number;
    else {
        run->signal_number = number;
        run_end(run, RUN_INTERRUPTED);
    }
}

/* The next signal, or 0. */
static int signal_next(const struct run *run)
{
    struct signalfd_siginfo info;

    return read(run->signals, &info, sizeof(info)) == (ssize_t)sizeof(info) ? (int)info.ssi_signo
                                                                            : 0;
}

/* ---- the command ---- */

static int command_send(struct run *run, const char *cwd)
{
    const struct run_options *options = &run->options;
    struct run_env env = {0};
    struct box_command command = {
        .argv = (const char *const *)options->command,
        .cwd = cwd,
        .tty = options->tty,
    };
    int result;

    if (run_env_make(&env, options, box_default_user(run->box), &run->error) < 0)
        return -1;
    command.env = env.list;
    memcpy(command.stdio, run->stdio.child, sizeof(command.stdio));
    run_stdio_size(&run->stdio, &command.tty_rows, &command.tty_columns);
    result = box_exec(run->box, RUN_COMMAND_ID, &command, &run->error);
    run_env_free(&env);
    return result;
}

/* A user such as nobody has a home that does not exist; login(1) starts at the root then. */
static bool command_send_again(struct run *run, const struct box_event *event)
{
    if (event->step != BOX_STEP_CWD || run->options.cwd != NULL || run->at_root)
        return false;
    run->at_root = true;
    return command_send(run, "/") == 0;
}

/* ---- events of the box ---- */

static void started_take(struct run *run, struct box_event *event)
{
    struct error ignored;

    if (run->started) { /* said twice: by an init that is no longer ours */
        fd_close(&event->tty);
        return;
    }
    run->started = true;
    if (early_ending(run))
        run->told_ns = clock_monotonic_ns();
    run_stdio_release(&run->stdio);
    if (run->options.tty) {
        if (run_stdio_attach(&run->stdio, event->tty, &run->error) < 0)
            run_end(run, RUN_FAILED);
    } else {
        fd_close(&event->tty);
    }
    for (int number = 1; number < 32; number++)
        if ((run->early_signals & 1U << number) != 0)
            (void)box_signal(run->box, RUN_COMMAND_ID, number, &ignored);
}

static void refused_take(struct run *run, const struct box_event *event)
{
    const char *name = run->options.command[0];
    const char *cause = strerror(event->errnum);
    const char *cwd = run->options.cwd == NULL ? "/" : run->options.cwd;
    struct error *err = &run->error;

    run->refused_errnum = event->errnum;
    switch (event->step) {
    case BOX_STEP_EXEC:
        if (event->errnum == ENOENT && run_is_image(name))
            (void)error_set(
                err, "command_not_found", 0,
                "%.200s: there is no such command in the box, and images by name are "
                "planned; run the host's programs with cove run -- COMMAND, or those of "
                "a directory with --root DIR, which mmdebstrap or debootstrap makes",
                name);
        else if (event->errnum == ENOENT)
            (void)error_set(err, "command_not_found", 0,
                            "%.200s: there is no such command in the box; check the name, or "
                            "bring it in with --root or --mount",
                            name);
        else
            (void)error_set(err, "command_not_executable", 0,
                            "%.200s: it cannot be executed: %s; check its mode and its format",
                            name, cause);
        run_end(run, RUN_REFUSED);
        return;
    case BOX_STEP_CWD:
        (void)error_set(err, "cwd_missing", 0,
                        "--cwd %.200s: %s; name a directory that the user can enter in the box",
                        cwd, cause);
        break;
    case BOX_STEP_USER:
        (void)error_set(err, "user_refused", 0,
                        "--user: the box cannot become that user: %s; choose another, or add "
                        "--privileges system",
                        cause);
        break;
    case BOX_STEP_TTY:
        (void)error_set(err, "tty_refused", 0,
                        "--tty: the box has no terminal to give: %s; leave it out", cause);
        break;
    case BOX_STEP_SPAWN:
        (void)error_set(err, "spawn_refused", 0,
                        "%.200s: no process could be started for it: %s; raise --pids or --memory",
                        name, cause);
        break;
    }
    run_end(run, RUN_FAILED);
}

/* What it may reach is in force before the command is sent. */
static void ready_take(struct run *run)
{
    if (run->options.net == NULL || run->net.engine > 0)
        return;
    if (run_net_begin(&run->net, run->box, run->options.net, &run->error) < 0)
        run_end(run, RUN_FAILED);
}

static void net_take(struct run *run)
{
    int heard = run_net_hear(&run->net, &run->error);

    if (heard < 0 || (heard > 0 && command_send(run, run->options.cwd) < 0))
        run_end(run, RUN_FAILED);
}

static void event_take(struct run *run, struct box_event *event)
{
    switch (event->kind) {
    case BOX_READY:
        ready_take(run);
        break;
    case BOX_STARTED:
        started_take(run, event);
        break;
    case BOX_REFUSED:
        if (command_send_again(run, event))
            break;
        refused_take(run, event);
        break;
    case BOX_EXITED:
        run->status = event->status;
        run_end(run, RUN_EXITED);
        break;
    case BOX_GONE:
        run->error = event->error;
        run_end(run, RUN_FAILED);
        break;
    }
}

#define EVENTS_AT_ONCE 64

static void events_take(struct run *run)
{
    struct box_event event;
    int got;

    /* No more at a time than this: the clock and the signals have their turn, whatever init sends. */
    for (int events = 0; events < EVENTS_AT_ONCE; events++) {
        if (run->end != RUN_GOES_ON || (got = box_next(run->box, &event, &run->error)) == 0)
            return;
        if (got < 0)
            run_end(run, RUN_FAILED);
        else
            event_take(run, &event);
    }
}

/* ---- the loop ---- */

/* Waits until something can be done, or until `wake_ns`. */
static void run_wait(struct pollfd *fds, size_t count, uint64_t now_ns, uint64_t wake_ns)
{
    uint64_t left = wake_ns > now_ns ? wake_ns - now_ns : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left / 1000000000U),
                               .tv_nsec = (long)(left % 1000000000U)};

    if (ppoll(fds, count, wake_ns == UINT64_MAX ? NULL : &timeout, NULL) < 0)
        for (size_t i = 0; i < count; i++)
            fds[i].revents = 0;
}

enum { SLOT_SIGNALS, SLOT_BOX, SLOT_NET, SLOT_STDIO, SLOTS = SLOT_STDIO + RUN_POLL_MAX };

/* A program whose reader went away ends by SIGPIPE, and so do we in its place. */
static void output_check(struct run *run)
{
    int errnum = run_stdio_broken(&run->stdio);

    if (errnum == 0 || run->end != RUN_GOES_ON)
        return;
    if (errnum == EPIPE || errnum == EIO) {
        run_end(run, RUN_UNREAD);
        return;
    }
    (void)error_set(&run->error, "stdio", 0,
                    "standard output: it cannot be written: %s; give it more room",
                    strerror(errnum));
    run_end(run, RUN_FAILED);
}

static void input_check(struct run *run, uint64_t now)
{
    enum input_end_act act = run_stdio_end(&run->stdio, now);
    struct error ignored; /* it has just ended */

    if (act == INPUT_END_HANG_UP)
        cmd_say("the input has ended, and the command reads on: its terminal is hung up");
    if (act != INPUT_END_NOTHING && run->end == RUN_GOES_ON)
        (void)box_signal(run->box, RUN_COMMAND_ID, act == INPUT_END_KILL ? SIGKILL : SIGHUP,
                         &ignored);
}

static void run_loop(struct run *run)
{
    while (run->end == RUN_GOES_ON) {
        struct pollfd fds[SLOTS];
        uint64_t now = clock_monotonic_ns();
        uint64_t wake = run->deadline_ns;
        size_t count;
        int number;

        fds[SLOT_SIGNALS] = (struct pollfd){.fd = run->signals, .events = POLLIN};
        fds[SLOT_BOX] = (struct pollfd){.fd = box_fd(run->box), .events = POLLIN};
        fds[SLOT_NET] = (struct pollfd){.fd = run->net.link, .events = POLLIN};
        wake = run->net.until_ns < wake ? run->net.until_ns : wake;
        count = run_stdio_poll(&run->stdio, fds + SLOT_STDIO, now, &wake);
        run_wait(fds, SLOT_STDIO + count, now, wake);
        /* The end of the command comes first: at a deadline that passed while we were stopped, what
         * it did is still the truth. */
        if (fds[SLOT_BOX].revents != 0)
            events_take(run);
        now = clock_monotonic_ns();
        if (run->end == RUN_GOES_ON && (fds[SLOT_NET].revents != 0 || now >= run->net.until_ns))
            net_take(run);
        if (now >= run->deadline_ns)
            run_end(run, RUN_TIMED_OUT);
        if (fds[SLOT_SIGNALS].revents != 0)
            while (run->end == RUN_GOES_ON && (number = signal_next(run)) != 0)
                signal_take(run, number);
        run_stdio_serve(&run->stdio, fds + SLOT_STDIO, count, now);
        input_check(run, now);
        output_check(run);
    }
}

#define DRAIN_LATE_NS 200000000U

/* Writes what is left to a slow reader; a signal ends that, and soon so does the clock when the time
 * of the command was up. */
static void run_drain(struct run *run)
{
    uint64_t until = run->end == RUN_TIMED_OUT ? clock_monotonic_ns() + DRAIN_LATE_NS : UINT64_MAX;

    while (!run_stdio_is_done(&run->stdio)) {
        struct pollfd fds[SLOT_STDIO + RUN_POLL_MAX];
        uint64_t now = clock_monotonic_ns(), wake = until;
        size_t count;
        int number;

        fds[SLOT_SIGNALS] = (struct pollfd){.fd = run->signals, .events = POLLIN};
        fds[SLOT_BOX] = fds[SLOT_NET] = (struct pollfd){.fd = -1};
        if (now >= until)
            return;
        count = run_stdio_poll(&run->stdio, fds + SLOT_STDIO, now, &wake);
        run_wait(fds, SLOT_STDIO + count, now, wake);
        while ((number = signal_next(run)) != 0)
            if (cmd_signal_ends(number))
                return;
        run_stdio_serve(&run->stdio, fds + SLOT_STDIO, count, now);
    }
}

static void progress_say(const char *what)
{
    if (cmd_warns())
        cmd_say("%s", what);
}

static int run_start(struct run *run)
{
    const struct run_options *options = &run->options;

    run->options.spec.tell = progress_say;
    if (box_create(&options->spec, &run->box, &run->error) < 0)
        return -1;
    (void)prctl(PR_SET_DUMPABLE, 0);
    run->start_ns = clock_monotonic_ns();
    run->deadline_ns = options->timeout_ms == 0 ? UINT64_MAX
                                                : run->start_ns + options->timeout_ms * 1000000U;
    if (signals_open(run, &run->error) < 0)
        return -1;
    /* Only now: the box is being made meanwhile, and its guard has none of our pipes open. */
    if (run_stdio_open(&run->stdio, options, &run->error) < 0)
        return -1;
    if (options->net != NULL) /* when it is ready */
        return 0;
    if (command_send(run, options->cwd) == 0)
        return 0;
    /* If the box has gone already, it says why. */
    events_take(run);
    return -1;
}

/* ---- the result ---- */

static const char *size_text(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;

    while (unit < 4 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    (void)snprintf(text, size, "%llu %s", (unsigned long long)bytes, units[unit]);
    return text;
}

static int status_exit(int status)
{
    return WIFSIGNALED(status) ? EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

/* The box went down with the command in it because of a limit: the command was killed. */
static void gone_by_limit(struct run *run, const struct box_report *report)
{
    if (run->end != RUN_FAILED || !run->started ||
        !(report->oom_killed || report->pids_exceeded || report->disk_exceeded))
        return;
    run->end = RUN_EXITED;
    run->status = SIGKILL;
}

static int exit_status(const struct run *run)
{
    switch (run->end) {
    case RUN_EXITED:
        return status_exit(run->status);
    case RUN_REFUSED:
        return run->refused_errnum == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
    case RUN_TIMED_OUT:
        return EXIT_TIMED_OUT;
    case RUN_INTERRUPTED:
        return EXIT_SIGNAL + run->signal_number;
    case RUN_UNREAD:
        return EXIT_SIGNAL + SIGPIPE;
    case RUN_FAILED:
    case RUN_GOES_ON:
        break;
    }
    return CMD_FAILED;
}

/* What a person is told beside the command's own output: one line, or nothing. */
static void result_say(const struct run *run, const struct run_result *result)
{
    char text[64];

    if (run->end == RUN_REFUSED)
        cmd_say("%s", run->error.text);
    if (run->options.json)
        return;
    if (run->is_killed)
        cmd_say("the command went on after the first signal, and was killed at the second");
    if (result->report.oom_killed && result->exit_status != 0 && run->end == RUN_EXITED)
        cmd_say("the command ran out of its memory limit (%s); raise it with --memory",
                size_text(run->options.spec.limits.memory_bytes, text, sizeof(text)));
    if (result->report.pids_exceeded && run->end == RUN_EXITED)
        cmd_say(
            "the command had more processes and threads than its limit (%u); raise it with --pids",
            run->options.spec.limits.pids);
    if (result->report.disk_exceeded && run->end == RUN_EXITED)
        cmd_say("the command wrote more than its disk limit (%s); raise it with --disk",
                size_text(run->options.spec.limits.disk_bytes, text, sizeof(text)));
    if (run->end == RUN_TIMED_OUT)
        cmd_say("the command was killed at its time limit (%g s); raise it with --timeout",
                (double)run->options.timeout_ms / 1000.0);
}

/* A mount of an ordinary user's box takes along nothing that lies below the root: the kernel says only EINVAL. */
static void root_explain(struct run *run)
{
    const struct box_spec *spec = &run->options.spec;
    struct error why = run->error;

    if (spec->root_path == NULL || spec->root_kind != BOX_ROOT_DIR || geteuid() == 0 ||
        strcmp(why.code, "mount_failed") != 0)
        return;
    (void)error_set(&run->error, why.code, 0,
                    "--root %.200s: %.200s; an ordinary user's root has no other file system "
                    "mounted below it: give such a directory, or leave --root out",
                    spec->root_path, why.text);
}

/* cove itself failed: where this host is in the way, the error says how. */
static int run_fail(struct error *err, bool json)
{
    doctor_hint(err);
    if (json)
        (void)cmd_json_error(err);
    return cmd_fail(err);
}

static int run_report(struct run *run, struct run_result *result)
{
    result->status = run->status;
    result->ended = run->end == RUN_EXITED;
    result->timed_out = run->end == RUN_TIMED_OUT;
    result->exit_status = exit_status(run);
    result->wall_ns = run->end_ns - run->start_ns;
    if (run->end == RUN_INTERRUPTED)
        (void)error_set(
            &run->error, "interrupted", 0,
            "run: it was told twice to end before the command had started; run it again");
    if (run->end == RUN_FAILED)
        root_explain(run);
    if (run->end == RUN_FAILED)
        return run_fail(&run->error, run->options.json);
    if (run->end == RUN_INTERRUPTED) {
        (void)run_fail(&run->error, run->options.json);
        return result->exit_status;
    }
    if (run->end == RUN_REFUSED)
        result->refused = run->error;
    result_say(run, result);
    if (!run->options.json)
        return result->exit_status;
    if (run_json_result(result, run->stdio.capture) == 0)
        return result->exit_status;
    if (errno == EPIPE)
        return EXIT_SIGNAL + SIGPIPE;
    (void)error_set(&run->error, "stdio", 0,
                    "standard output: the result could not be written: %s; give it more room",
                    strerror(errno));
    return cmd_fail(&run->error);
}

/* Everything from the box's creation to its end. */
static int run_box(struct run *run)
{
    struct run_result result = {0};
    struct error destroyed;
    struct rlimit core;
    bool counted;
    int status;

    /* The environment of the command may hold secrets: they do not go into a core dump, with 1 not even
     * into one that a program of the host takes. To be no more dumpable would keep an ordinary user's box
     * from its ids, so that comes with the box. */
    if (getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max > 0)
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){1, 1});
    if (run_start(run) < 0) {
        run_end(run, RUN_FAILED);
    } else {
        warnings_print(run);
        run_loop(run);
    }
    if (run->box != NULL) {
        for (size_t i = 0; i < RUN_WARNINGS_MAX && box_warning(run->box, i) != NULL; i++)
            (void)snprintf(result.warnings[i], sizeof(result.warnings[i]), "%s",
                           box_warning(run->box, i));
        result.level = box_level(run->box);
        result.limits = box_limits_kind(run->box);
        result.ids = box_ids_kind(run->box);
        result.disk = box_disk_kind(run->box);
        /* Who only sees a success does not wait for the bill. */
        counted = run->options.json || run->end != RUN_EXITED || run->status != 0;
        if (box_destroy(run->box, counted ? &result.report : NULL, &destroyed) < 0 &&
            run->end != RUN_FAILED) {
            /* Something of the box may be left: that must not look like success. */
            run->error = destroyed;
            run->end = RUN_FAILED;
        }
        gone_by_limit(run, &result.report);
    }
    run_net_end(&run->net);
    run_stdio_finish(&run->stdio);
    if (run->end != RUN_UNREAD)
        run_drain(run);
    run_stdio_restore(&run->stdio);
    status = run_report(run, &result);
    fd_close(&run->signals);
    return status;
}

static int run_main(const struct cmd *cmd, int argc, char **argv)
{
    struct run run;
    int result;

    /* Not the whole of it: the buffers of `stdio` are large, and often not needed. */
    run.box = NULL;
    run.signals = -1;
    run.net = (struct run_net){.link = -1, .until_ns = UINT64_MAX};
    run.started = run.at_root = false;
    run.early_signals = 0;
    run.told_ns = 0;
    run.is_killed = false;
    run.start_ns = run.end_ns = 0;
    run.end = RUN_GOES_ON;
    run.status = 0;
    run.refused_errnum = run.signal_number = 0;
    run.error = (struct error){0};
    run_stdio_init(&run.stdio);
    if (run_options_parse(&run.options, argc, argv, &run.error) < 0)
        result = run_fail(&run.error, run_options_wants_json(argc, argv));
    else if (run.options.help)
        result = options_help_print(cmd->table);
    else {
        if (run.options.json || run.options.no_warnings)
            cmd_no_warnings();
        scope_obtain(argv);
        result = run_box(&run);
    }
    run_stdio_free(&run.stdio);
    run_options_free(&run.options);
    return result;
}

const struct cmd cmd_run = {.name = "run",
                            .summary = "run one command in a fresh box",
                            .run = run_main,
                            .table = &run_options_table};
