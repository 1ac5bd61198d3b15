/* Upgrade in place: see upgrade.h. */
#include "keeper/upgrade.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/hand.h"
#include "base/hear.h"
#include "base/log.h"
#include "base/tenancy.h"
#include "box/sys.h"
#include "keeper/check.h"
#include "keeper/handover.h"
#include "keeper/keeper.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define VARIABLE "COVE_HANDOVER" /* "PID:FD" */
#define REACHED \
    "COVE_REACHED" /* is there, for who is asked, where other machines reach what is listened on */
#define ASK_NS 10000000000ULL /* to answer takes milliseconds */
#define HEAR_MS 100           /* all who could say something have ended */
#define END_NS 30000000000ULL
#define ARGUMENTS_MAX 64

/* ---- the end of an attempt ---- */

static void go_on(struct keeper *keeper)
{
    keeper->upgrade.stage = UPGRADE_NONE;
    keeper->engine.restart_ns = 0;
    notify_say(&keeper->notify, "READY=1");
}

static void refuse(struct keeper *keeper, const char *why)
{
    struct upgrade *upgrade = &keeper->upgrade;

    keeper_say("upgrade_refused",
               "%s: %s, and all goes on as before; mend that, then send SIGHUP again",
               keeper->program, why);
    (void)error_set(&upgrade->outcome, "upgrade_refused", 0, "%s%s%s, and all goes on as before",
                    upgrade->line, upgrade->line[0] != '\0' ? ": " : "", why);
    go_on(keeper);
}

void upgrade_outcome(const struct keeper *keeper, struct error *err)
{
    const struct upgrade *upgrade = &keeper->upgrade;

    if (keeper->is_stopping)
        (void)error_set(err, "stopping", 0, "the server ends");
    else if (upgrade->stage != UPGRADE_NONE || !keeper->engine.beats)
        (void)error_set(err, UPGRADE_UNDER_WAY, 0,
                        "the reload is still under way; the server's log says how far it is");
    else
        *err = upgrade->outcome;
}

bool upgrade_is_ending(const struct keeper *keeper)
{
    return keeper->upgrade.stage == UPGRADE_ENDING;
}

/* ---- asking whether it can ---- */

/* Whoever is asked, with all that it has started. Both: it may not have a group of its own yet. Only as long
 * as it has not been waited for. */
static void ask_kill(const struct upgrade *upgrade)
{
    (void)kill(-upgrade->pid, SIGKILL);
    (void)kill(upgrade->pid, SIGKILL);
}

static _Noreturn void ask_run(const struct keeper *keeper, int sealed, int says)
{
    char *arguments[ARGUMENTS_MAX + 3], value[32], option[] = "--can-take";
    size_t count = 0;
    sigset_t none;

    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setpgid(0, 0);
    if (says >= 0)
        (void)dup2(says, STDERR_FILENO);
    for (; count < ARGUMENTS_MAX && keeper->arguments[count] != NULL; count++)
        arguments[count] = keeper->arguments[count];
    (void)snprintf(value, sizeof(value), "%d:%d", HANDOVER_FORMAT, sealed);
    arguments[count++] = option;
    arguments[count++] = value;
    arguments[count] = NULL;
    (void)fcntl(sealed, F_SETFD, 0); /* this one fd, and none of those that it names */
    if (listeners_are_open(&keeper->listeners) &&
        setenv(REACHED, "1", 1) < 0) // NOLINT(concurrency-mt-unsafe)
        _exit(126);
    (void)execv(keeper->program, arguments);
    keeper_say("upgrade_refused", "cannot start %s: %s", keeper->program,
               strerror(errno)); // NOLINT
    _exit(126);
}

/* What lives on, in a sealed memfd; `hand` is the caller's to free. */
static int write_all(struct keeper *keeper, struct hand *hand, struct error *err)
{
    hand_begin(hand, HANDOVER_FORMAT);
    handover_all(hand, keeper);
    return hand_end(hand, err) < 0 ? -1 : hand_seal(hand, err);
}

static void answered(struct source *source, uint32_t events);

static void ask(struct keeper *keeper)
{
    struct upgrade *upgrade = &keeper->upgrade;
    _cleanup_close_ int sealed = -1, says = -1;
    struct error err;
    struct hand hand;
    int ends[2];

    upgrade->is_asked_again = false;
    upgrade->line[0] = '\0';
    if (stat(keeper->program, &upgrade->program) < 0) {
        refuse(keeper, "it is not there");
        return;
    }
    sealed = write_all(keeper, &hand, &err);
    hand_free(&hand);
    if (sealed < 0) {
        refuse(keeper, err.text);
        return;
    }
    if (pipe2(ends, O_CLOEXEC) == 0) {
        upgrade->said = ends[0];
        says = ends[1];
    }
    upgrade->pid = fork();
    if (upgrade->pid == 0)
        ask_run(keeper, sealed, says);
    if (upgrade->pid > 0)
        (void)setpgid(upgrade->pid, upgrade->pid); /* whoever comes first */
    upgrade->pidfd = upgrade->pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, upgrade->pid, 0);
    if (upgrade->pidfd >= 0 && loop_add(&keeper->loop, &upgrade->answered, upgrade->pidfd, EPOLLIN,
                                        answered, keeper, &err) == 0) {
        upgrade->deadline_ns = clock_monotonic_ns() + ASK_NS;
        return;
    }
    if (upgrade->pid > 0) {
        ask_kill(upgrade);
        (void)waitpid(upgrade->pid, NULL, 0);
    }
    fd_close(&upgrade->said);
    fd_close(&upgrade->pidfd);
    upgrade->pid = 0;
    refuse(keeper, "it cannot be started now");
}

void upgrade_begin(struct keeper *keeper)
{
    struct upgrade *upgrade = &keeper->upgrade;
    char state[64];

    if (keeper->is_stopping || upgrade->stage == UPGRADE_ENDING)
        return; /* whatever was changed is read by the next program */
    if (upgrade->stage == UPGRADE_ASKING) {
        upgrade->is_asked_again = true;
        ask_kill(upgrade);
        return;
    }
    (void)snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%llu",
                   (unsigned long long)clock_monotonic_ns() / 1000);
    notify_say(&keeper->notify, state);
    upgrade->stage = UPGRADE_ASKING;
    ask(keeper);
}

/* Its words go into our log, and the last line, without time, level and program, to those who ask. */
static void hear(struct upgrade *upgrade)
{
    char text[4096] = "", *line;

    if (upgrade->said >= 0)
        hear_all(upgrade->said, text, sizeof(text), HEAR_MS);
    fd_close(&upgrade->said);
    if (text[0] == '\0')
        return;
    (void)dprintf(STDERR_FILENO, "%s\n", text);
    line = strrchr(text, '\n');
    line = line != NULL ? line + 1 : text;
    for (int words = 0; words < 3 && isdigit((unsigned char)text[0]) && strchr(line, ' ') != NULL;
         words++)
        line = strchr(line, ' ') + 1;
    (void)snprintf(upgrade->line, sizeof(upgrade->line), "%.400s", line);
}

static void answered(struct source *source, uint32_t events)
{
    struct keeper *keeper = source->owner;
    struct upgrade *upgrade = &keeper->upgrade;
    int status = 0;

    (void)events;
    if (waitpid(upgrade->pid, &status, WNOHANG) == 0)
        return;
    (void)kill(-upgrade->pid, SIGKILL); /* what it has left behind */
    loop_remove(&keeper->loop, source);
    hear(upgrade);
    fd_close(&upgrade->pidfd);
    upgrade->pid = 0;
    if (upgrade->is_asked_again) {
        ask(keeper);
        return;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        refuse(keeper, WIFEXITED(status) ? "it says that it cannot take over"
                                         : "it has not said in time that it can take over");
        return;
    }
    upgrade->stage = UPGRADE_ENDING;
    upgrade->outcome = (struct error){0};
    upgrade->deadline_ns = clock_monotonic_ns() + END_NS;
    engine_signal(keeper, SIGTERM);
}

/* ---- becoming it ---- */

static int environment_say(int fd)
{
    char value[32];

    (void)snprintf(value, sizeof(value), "%d:%d", (int)getpid(), fd);
    return setenv(VARIABLE, value, 1); // NOLINT(concurrency-mt-unsafe): there is one thread
}

/* The one that was asked, or its answer means nothing. */
static bool is_same_program(const struct keeper *keeper)
{
    const struct stat *was = &keeper->upgrade.program;
    struct stat st;

    return stat(keeper->program, &st) == 0 && st.st_dev == was->st_dev &&
           st.st_ino == was->st_ino && st.st_size == was->st_size &&
           st.st_mtim.tv_sec == was->st_mtim.tv_sec && st.st_mtim.tv_nsec == was->st_mtim.tv_nsec;
}

/* Returns only where it fails. */
static void become(struct keeper *keeper)
{
    _cleanup_close_ int sealed = -1;
    struct error err = {0};
    struct hand hand;

    if (!is_same_program(keeper)) {
        refuse(keeper, "it was replaced meanwhile");
        return;
    }
    /* What serves nobody is not worth the hand-over. */
    (void)slots_shed(&keeper->slots);
    crowd_free(keeper);
    uncounted_stop(keeper);
    sealed = write_all(keeper, &hand, &err);
    if (sealed >= 0 && environment_say(sealed) == 0) {
        hand_keep(&hand, sealed, true);
        (void)execv(keeper->program, keeper->arguments);
        (void)error_set(&err, "upgrade_refused", errno, "it cannot be executed");
        hand_keep(&hand, sealed, false);
    }
    (void)unsetenv(VARIABLE); // NOLINT(concurrency-mt-unsafe)
    hand_free(&hand);
    refuse(keeper, err.text);
}

uint64_t upgrade_tick(struct keeper *keeper, uint64_t now_ns)
{
    struct upgrade *upgrade = &keeper->upgrade;

    if (upgrade->stage == UPGRADE_NONE || keeper->is_stopping || keeper->has_ended)
        return 0;
    if (upgrade->stage == UPGRADE_ENDING && keeper->engine.pid == 0) {
        if (!mounts_are_under_way(keeper)) /* each ends within its time, and is noted then */
            become(keeper);
        return 0;
    }
    if (now_ns < upgrade->deadline_ns)
        return upgrade->deadline_ns;
    upgrade->deadline_ns = now_ns + END_NS;
    if (upgrade->stage == UPGRADE_ASKING) {
        ask_kill(upgrade);
    } else {
        keeper_say("engine_slow", "the engine does not end by itself and is killed");
        engine_signal(keeper, SIGKILL);
    }
    return upgrade->deadline_ns;
}

void upgrade_close(struct keeper *keeper)
{
    struct upgrade *upgrade = &keeper->upgrade;

    if (upgrade->pid > 0) {
        ask_kill(upgrade);
        (void)waitpid(upgrade->pid, NULL, 0);
    }
    upgrade->pid = 0;
    fd_close(&upgrade->said);
    fd_close(&upgrade->pidfd);
}

/* ---- the new program's side ---- */

int upgrade_find(void)
{
    const char *text = getenv(VARIABLE); // NOLINT(concurrency-mt-unsafe)
    int pid = 0, fd = -1;

    /* Once it is for us it is no start any more, whatever it names. */
    // NOLINTNEXTLINE(cert-err34-c): a number that is too large is none of ours either
    if (text == NULL || sscanf(text, "%d:%d", &pid, &fd) < 1 || pid != (int)getpid())
        fd = -1;
    else if (fd < 0)
        fd = 0;
    (void)unsetenv(VARIABLE); // NOLINT(concurrency-mt-unsafe)
    return fd;
}

/* With `is_trial` the form is all that is looked at. */
static int read_all(struct keeper *keeper, int handover, bool is_trial, struct error *err)
{
    const void *data;
    struct hand hand;
    size_t size;
    int sound;

    if (hand_open(handover, &data, &size, err) < 0)
        return -1;
    hand_read(&hand, data, size, HANDOVER_FORMAT);
    hand.is_trial = is_trial;
    handover_all(&hand, keeper);
    sound = hand_end(&hand, err);
    hand_free(&hand);
    (void)munmap((void *)(uintptr_t)data, size);
    return sound;
}

/* The names of `[serve]` that are not as the options say now. A socket that a service manager made is its own. */
static void say_waits(const struct keeper *keeper, const struct places *found)
{
    const char *names[LISTENERS_UNLIKE_MAX + 1];
    char text[128] = "";
    size_t count = listeners_unlike(&keeper->listeners, &keeper->options, &keeper->places, found,
                                    names);
    struct stat said, held;

    if (keeper->options.data != NULL && fstat(keeper->places.data, &held) == 0 &&
        (stat(keeper->options.data, &said) < 0 || said.st_dev != held.st_dev ||
         said.st_ino != held.st_ino))
        names[count++] = "data";
    for (size_t i = 0; i < count; i++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i > 0 ? ", " : "",
                       names[i]);
    if (count > 0)
        keeper_say("config_waits",
                   "%s: what the configuration says now holds from the next start of cove serve "
                   "on; until then it is as it was",
                   text);
}

static int configure_now(struct keeper *keeper, struct error *err)
{
    const struct options given = keeper->options;
    struct places found;

    if (places_find(&found, &keeper->options, err) < 0)
        return -1;
    memcpy(keeper->places.config_path, found.config_path, sizeof(found.config_path));
    if (found.config_path[0] == '\0')
        fd_close(&keeper->engine.config);
    if (engine_config(keeper, err) < 0 ||
        config_read(keeper->engine.config, keeper->places.config_path, &keeper->config,
                    &keeper->options, err) < 0)
        return -1;
    log_use_json(keeper->options.log_json);
    if (listeners_check(listeners_are_open(&keeper->listeners), &keeper->options, err) < 0) {
        keeper->options = given; /* nothing borrowed from what is read next */
        return -1;
    }
    if (engine_headers(keeper, err) < 0)
        keeper_say(err->code, "%s", err->text);
    if (tls_read(keeper, err) < 0)
        keeper_say(err->code, "%s; the certificate that was read before holds on", err->text);
    if (engine_try(keeper, err) < 0) {
        keeper->options = given;
        return -1;
    }
    names_configure_again(keeper);
    if (places_find_socket(&found, &keeper->options, err) == 0)
        say_waits(keeper, &found);
    return 0;
}

/* Read before it was agreed to take over; who changes it at this very moment is told, and has what was
 * there before. Where even that is nothing for this program, it settles for no less than it does unasked,
 * and the engine sees for itself. */
static void configure(struct keeper *keeper)
{
    int *const files[] = {&keeper->engine.config, &keeper->engine.headers, &keeper->engine.tls};
    int before[sizeof(files) / sizeof(files[0])];
    struct error err, why;

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        before[i] = fcntl(*files[i], F_DUPFD_CLOEXEC, 3);
    if (configure_now(keeper, &err) == 0) {
        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
            fd_close(&before[i]);
        keeper_note("config_read",
                    "a new engine gets it; listen, socket, socket_group, socket_mode, data and "
                    "insecure_http hold from the next start of cove serve on");
        return;
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        fd_close(files[i]);
        *files[i] = fd_take(&before[i]);
    }
    if (config_read(keeper->engine.config, "cove.conf", &keeper->config, &keeper->options, &why) <
        0) {
        (void)config_read(-1, "", &keeper->config, &keeper->options, &why);
        (void)snprintf(keeper->config.host_tenants, sizeof(keeper->config.host_tenants),
                       TENANCY_USUAL);
    }
    log_use_json(keeper->options.log_json);
    keeper_say(err.code, "%s; what was read before holds on", err.text);
    (void)error_wrap(&err, "what was read before holds on");
    keeper->upgrade.outcome = err;
}

static int watch_all(struct keeper *keeper, struct error *err)
{
    if (names_serve(keeper, keeper->listeners.keeper, err) < 0 || names_resume(keeper, err) < 0)
        return -1;
    name_finds_resume(keeper);
    disks_resume(keeper);
    mounts_resume(keeper);
    boxes_resume(keeper);
    return 0;
}

int upgrade_resume(struct keeper *keeper, int handover, struct error *err)
{
    if (read_all(keeper, handover, false, err) < 0)
        return -1;
    (void)close(handover);
    keeper->names.directory = keeper->places.data;
    if (engine_find(keeper, err) < 0)
        return -1;
    configure(keeper);
    boxes_find_level(keeper);
    if (watch_all(keeper, err) < 0)
        return -1;
    keeper_note("upgraded", "boxes live on, with those that are kept ready (pool): %zu",
                keeper->boxes.count);
    return 0;
}

int upgrade_can_take(struct keeper *keeper, struct error *err)
{
    const struct options *options = &keeper->options;
    bool is_reached = getenv(REACHED) != NULL; // NOLINT(concurrency-mt-unsafe): there is one thread

    if (options->can_take != HANDOVER_FORMAT)
        return error_set(err, "other_format", 0,
                         "this program takes over format %d and not %u: end cove serve, and start "
                         "it again",
                         HANDOVER_FORMAT, options->can_take);
    caller_look(&keeper->caller);
    if (read_all(keeper, options->can_take_fd, true, err) < 0 ||
        places_find(&keeper->places, options, err) < 0 || check_configuration(keeper, err) < 0 ||
        listeners_check(is_reached, options, err) < 0 || names_can_configure_again(keeper, err) < 0)
        return -1;
    return check_engine(keeper, err);
}
