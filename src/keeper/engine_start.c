/* How an engine is started: as whom, with what, and without all the rest.
 *
 * Between fork and exec everything of the keeper's is given up: its id, its capabilities, its fds, its
 * environment, and as root its view of the host, which becomes read-only but for the engine's own
 * directory. A step that fails ends the child: there is no engine with half of the walls. */
#include "base/fd.h"
#include "base/hear.h"
#include "base/list.h"
#include "base/set_clock.h"
#include "box/sys.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <grp.h>
#include <libgen.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONFIG_MAX (256U << 10) /* of base/conf.h */
#define ENGINE_NICE (-5)
#define ENGINE_GROUP_NICE "-5"
/* Where the engine sees its directory, whatever lies above it on the host: its libraries resolve
 * paths, and what is above may be closed to it. */
#define STATE_PLACE "/run/cove"
#define FDS_ASIDE 64 /* above all that an engine gets */
#define TREE_DEPTH_MAX 64
/* Clients that read nothing and send all they may fill 3.5 GiB: 256 MiB each of bodies, answers, what is told to
 * kernels' clients and snapshots, and half a MiB of each of 4,096 connections; the rest is for 5,000 sandboxes. */
#define MEMORY_USUAL (4ULL << 30)
#define MEMORY_LEAST (256ULL << 20)
#define TRY_MS 8000 /* less than a keeper that is to be replaced waits; it takes milliseconds */

/* ---- before: as whom ---- */

/* The system's user `cove`; no library is asked, which could load others. */
static bool user_find(uid_t *uid, gid_t *gid)
{
    FILE *file = fopen("/etc/passwd", "re");
    char line[1024];
    bool found = false;

    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL)
        // NOLINTNEXTLINE(cert-err34-c): a number that is too large is no id of ours either
        found = sscanf(line, "cove:%*[^:]:%u:%u:", uid, gid) == 2 && *uid != 0 && *gid != 0;
    if (file != NULL)
        (void)fclose(file);
    return found;
}

/* Gives what belonged to `from` to the engine's id. Nobody else's: in there may be a second name of
 * a file that was never the engine's. */
static void give_tree(int directory, const char *name, uid_t from,
                      const struct engine_child *engine, int depth)
{
    _cleanup_close_ int fd = openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    const struct dirent *entry;
    struct stat st;
    DIR *list;

    if (fd < 0 || fstat(fd, &st) < 0)
        return;
    if (st.st_uid == from && fchownat(fd, "", engine->uid, engine->gid, AT_EMPTY_PATH) < 0 &&
        depth == TREE_DEPTH_MAX)
        keeper_say("bad_data", "cannot give the engine its directory: %s",
                   strerror(errno)); // NOLINT
    if (!S_ISDIR(st.st_mode) || depth == 0 || (list = list_open(fd, ".")) == NULL)
        return;
    while ((entry = readdir(list)) != NULL) // NOLINT(concurrency-mt-unsafe): a list of ours
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            give_tree(dirfd(list), entry->d_name, from, engine, depth - 1);
    (void)closedir(list);
}

int engine_identify(struct keeper *keeper, uid_t had, struct error *err)
{
    struct engine_child *engine = &keeper->engine;

    engine->uid = keeper->caller.uid;
    engine->gid = keeper->caller.gid;
    engine->drops_id = keeper->caller.uid == 0 && keeper->caller.maps && keeper->caller.on_host;
    if (!engine->drops_id || user_find(&engine->uid, &engine->gid))
        return 0;
    /* The one it had, so that its files are still its own. */
    if (ids_take_at(&keeper->slots.pool, had, &engine->ids, err) < 0 &&
        ids_take(&keeper->slots.pool, &engine->ids, err) < 0)
        return -1;
    engine->uid = engine->ids.first;
    engine->gid = engine->ids.first_group;
    return 0;
}

static int id_choose(struct keeper *keeper, struct error *err)
{
    const struct engine_child *engine = &keeper->engine;
    struct stat st;

    if (fstat(keeper->places.engine, &st) < 0)
        return error_set(err, "bad_data", errno, "cannot look at the engine's directory");
    if (engine_identify(keeper, st.st_uid, err) < 0)
        return -1;
    if (engine->drops_id && st.st_uid != engine->uid)
        give_tree(keeper->places.data, "engine", st.st_uid, engine, TREE_DEPTH_MAX);
    return 0;
}

int engine_find(struct keeper *keeper, struct error *err)
{
    struct engine_child *engine = &keeper->engine;
    char *path = engine->program_path;
    ssize_t length;

    if (keeper->options.engine != NULL) {
        (void)snprintf(path, sizeof(engine->program_path), "%s", keeper->options.engine);
    } else {
        length = readlink("/proc/self/exe", path, sizeof(engine->program_path) - 32);
        if (length <= 0)
            return error_set(err, "no_engine", errno, "cannot find out where cove-keeper lies");
        path[length] = '\0';
        memcpy(strrchr(path, '/') + 1, "cove-engine", sizeof("cove-engine"));
    }
    engine->program = open(path, O_RDONLY | O_CLOEXEC);
    if (engine->program < 0)
        return error_set(err, "no_engine", errno,
                         "cannot open %s, which belongs beside cove-keeper; install cove anew",
                         path);
    return 0;
}

/* A fresh one each time, which nobody can change: whoever has an fd of it could open it anew. */
int engine_seal(const void *text, size_t size, int *into, struct error *err)
{
    _cleanup_close_ int sealed = memfd_create("cove.conf", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (sealed < 0 || pwrite(sealed, text, size, 0) != (ssize_t)size ||
        fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return error_set(err, "capacity", errno, "cannot hand a file on to the engine");
    fd_close(into);
    *into = fd_take(&sealed);
    return 0;
}

static int hand_on(const char *path, int file, int *into, struct error *err)
{
    _cleanup_free_ char *text = malloc(CONFIG_MAX + 1);
    ssize_t length;
    int failed;

    if (text == NULL)
        return error_set(err, "capacity", ENOMEM, "cannot read %s", path);
    length = fd_read_full(file, text, CONFIG_MAX + 1);
    if (length < 0 || length > (ssize_t)CONFIG_MAX)
        return error_set(err, "bad_config", length < 0 ? errno : EFBIG, "cannot read %s", path);
    failed = engine_seal(text, (size_t)length, into, err);
    explicit_bzero(text, CONFIG_MAX + 1);
    return failed;
}

int engine_config(struct keeper *keeper, struct error *err)
{
    const char *path = keeper->places.config_path;
    _cleanup_close_ int file = -1;

    if (path[0] == '\0')
        return 0;
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return error_set(err, "bad_config", errno, "cannot read %s", path);
    return hand_on(path, file, &keeper->engine.config, err);
}

int engine_headers(struct keeper *keeper, struct error *err)
{
    const char *path = keeper->config.otlp_headers_file;
    _cleanup_close_ int file = -1;
    struct stat st;

    if (path == NULL) {
        fd_close(&keeper->engine.headers);
        return 0;
    }
    file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0 || fstat(file, &st) < 0)
        return error_set(err, "bad_config", errno, "cannot read otlp_headers_file %s", path);
    if (!S_ISREG(st.st_mode) || (st.st_mode & 077) != 0)
        return error_set(err, "bad_config", 0,
                         "otlp_headers_file %s holds secrets, and others may read it; chmod 600 it",
                         path);
    return hand_on(path, file, &keeper->engine.headers, err);
}

int engine_prepare(struct keeper *keeper, struct error *err)
{
    return engine_find(keeper, err) < 0 || id_choose(keeper, err) < 0 ? -1 : 0;
}

/* ---- in the child ---- */

static int all_read_only(void)
{
    struct mount_attr all = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID,
                             .propagation = MS_PRIVATE};

    return unshare(CLONE_NEWNS) < 0 ? -1 : sys_mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &all);
}

/* Its view of the host: all of it read-only, and its own directory. The fd of that, or -1. */
static int enter_view(int state)
{
    struct mount_attr own = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC};
    _cleanup_close_ int mount = -1;

    /* Taken before: a mount of the namespace that was left is none to clone. */
    mount = sys_open_tree(state, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    if (mount < 0 || sys_mount_setattr(mount, "", AT_EMPTY_PATH, &own) < 0 || all_read_only() < 0 ||
        sys_move_mount(mount, "", AT_FDCWD, STATE_PLACE, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return -1;
    return open(STATE_PLACE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The engine refuses what is new when it uses so much, and gets none beyond twice that: what it has, but has not
 * touched, counts there. */
static void limit_memory(const struct keeper *keeper)
{
    uint64_t bytes = keeper->config.engine_memory;
    struct rlimit data;
    struct sysinfo host;

    if (bytes == 0) {
        bytes = sysinfo(&host) == 0 ? (uint64_t)host.totalram * host.mem_unit / 4 : MEMORY_USUAL;
        bytes = bytes > MEMORY_USUAL ? MEMORY_USUAL : bytes < MEMORY_LEAST ? MEMORY_LEAST : bytes;
    }
    if (getrlimit(RLIMIT_DATA, &data) < 0 || data.rlim_max / 2 < bytes)
        return;
    data.rlim_cur = data.rlim_max = 2 * bytes;
    (void)setrlimit(RLIMIT_DATA, &data);
}

static int drop(const struct engine_child *engine)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    struct rlimit core = {0};

    if (engine->drops_id &&
        (setgroups(0, NULL) < 0 || setresgid(engine->gid, engine->gid, engine->gid) < 0 ||
         setresuid(engine->uid, engine->uid, engine->uid) < 0))
        return -1;
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capset, &header, none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    (void)setrlimit(RLIMIT_CORE, &core);
    return 0;
}

/* Of a test's clock. */
struct clock_given {
    int fds[SET_CLOCK_FDS + 1];
    size_t count;
};

/* For one engine. */
struct given {
    int fds[KEEPER_ENGINE_LISTEN]; /* as request.h says */
    size_t listening;
    struct clock_given clock;
    bool is_trial; /* it only says whether it could start */
};

/* Puts its fds where request.h says, and closes all others but the program. */
static int arrange(const struct keeper *keeper, const struct given *given, int *program)
{
    const struct listeners *listeners = &keeper->listeners;
    int fds[KEEPER_ENGINE_LISTEN + LISTENERS_MAX + 3 + SET_CLOCK_FDS],
        null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int texts[] = {keeper->engine.config, keeper->engine.headers, keeper->engine.tls};
    int count = 0;
    char path[32];

    memcpy(fds, given->fds, KEEPER_ENGINE_LISTEN * sizeof(fds[0]));
    fds[STDIN_FILENO] = null;
    fds[STDOUT_FILENO] = fds[STDERR_FILENO] = STDERR_FILENO;
    count = KEEPER_ENGINE_LISTEN;
    for (size_t i = 0; i < given->listening; i++)
        fds[count++] = listeners->api[i];
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i] < 0)
            continue;
        /* With an offset of its own: the next one reads it from its beginning, too. */
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", texts[i]);
        fds[count] = open(path, O_RDONLY | O_CLOEXEC);
        if (fds[count++] < 0)
            return -1;
    }
    for (size_t i = 0; i < given->clock.count; i++)
        fds[count++] = given->clock.fds[i];
    *program = fcntl(*program, F_DUPFD_CLOEXEC, FDS_ASIDE);
    for (int i = 0; i < count; i++) {
        fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, FDS_ASIDE);
        if (fds[i] < 0 || *program < 0)
            return -1;
    }
    for (int i = 0; i < count; i++)
        if (dup2(fds[i], i) < 0)
            return -1;
    if (dup3(*program, count, O_CLOEXEC) < 0)
        return -1;
    *program = count;
    return sys_close_range((unsigned)count + 1, ~0U, 0);
}

/* All of its environment. */
struct environment {
    char text[12][64];
    char config[PATH_MAX + 16];
    char *list[16];
};

/* Of the data directory, or of the directory in which it would be made. */
static int disk_look(const struct keeper *keeper, struct statvfs *disk)
{
    char path[sizeof(keeper->places.data_path)];
    int failed;

    memcpy(path, keeper->places.data_path, sizeof(path));
    if (path[0] == '\0')
        return -1;
    while ((failed = statvfs(path, disk)) < 0 && errno == ENOENT && strcmp(path, "/") != 0) {
        const char *above = dirname(path); /* cuts it, or is a text elsewhere */

        memmove(path, above, strlen(above) + 1);
    }
    return failed;
}

static void describe(const struct keeper *keeper, const struct given *given,
                     struct environment *environment)
{
    static char path[] = "PATH=/usr/local/bin:/usr/bin:/bin", locale[] = "LANG=C.UTF-8";
    size_t sockets = given->listening, used = 0, texts = 0;
    size_t fd = KEEPER_ENGINE_LISTEN + sockets;
    struct statvfs disk;
    char(*text)[64] = environment->text;

    (void)snprintf(text[texts++], 64, "COVE_LISTEN_FDS=%zu", sockets);
    (void)snprintf(text[texts++], 64, "COVE_OWNER_UID=%u", (unsigned)keeper->caller.uid);
    if (keeper->engine.config >= 0)
        (void)snprintf(text[texts++], 64, "COVE_CONFIG_FD=%zu", fd++);
    if (keeper->engine.headers >= 0)
        (void)snprintf(text[texts++], 64, "COVE_HEADERS_FD=%zu", fd++);
    if (keeper->engine.tls >= 0)
        (void)snprintf(text[texts++], 64, "COVE_TLS_FD=%zu", fd++);
#ifdef COVE_TEST_SWITCHES
    if (given->clock.count > 0)
        (void)snprintf(text[texts++], 64, "COVE_TEST_CLOCK_FD=%zu", fd);
#endif
    (void)snprintf(text[texts++], 64, "COVE_RESTARTS=%u", keeper->engine.starts);
    (void)snprintf(text[texts++], 64, "COVE_BEAT_MS=%u", engine_beat_ms(keeper));
    if (keeper->options.log_json)
        (void)snprintf(text[texts++], 64, "COVE_LOG_FORMAT=json");
    if (keeper->options.is_private)
        (void)snprintf(text[texts++], 64, "COVE_PRIVATE=1");
    if (given->is_trial && disk_look(keeper, &disk) == 0) {
        (void)snprintf(text[texts++], 64, "COVE_DISK_BYTES=%llu",
                       (unsigned long long)disk.f_blocks * disk.f_frsize);
        (void)snprintf(text[texts++], 64, "COVE_DISK_FREE=%llu",
                       (unsigned long long)disk.f_bavail * disk.f_frsize);
    }
    for (size_t i = 0; i < texts; i++)
        environment->list[used++] = text[i];
    if (keeper->places.config_path[0] != '\0') {
        (void)snprintf(environment->config, sizeof(environment->config), "COVE_CONFIG=%s",
                       keeper->places.config_path);
        environment->list[used++] = environment->config;
    }
    environment->list[used++] = path;
    environment->list[used++] = locale;
    environment->list[used] = NULL;
}

static _Noreturn void fail(const char *step)
{
    keeper_say("engine_failed", "cannot start the engine (%s): %s", step,
               strerror(errno)); // NOLINT
    _exit(125);
}

/* A trial has no directory of its own, and so nothing that it could write to. */
static int enter(const struct keeper *keeper, struct given *given)
{
    int *state = &given->fds[KEEPER_ENGINE_STATE];

    if (!keeper->caller.mounts)
        return 0;
    if (given->is_trial)
        return all_read_only();
    *state = enter_view(*state);
    return *state < 0 ? -1 : 0;
}

static _Noreturn void run(const struct keeper *keeper, struct given *given, pid_t parent)
{
    const struct engine_child *engine = &keeper->engine;
    char name[] = "cove-engine", check[] = "--check";
    char *argv[] = {name, given->is_trial ? check : NULL, NULL};
    struct environment environment = {0};
    int program = engine->program;
    sigset_t none;

    (void)sigemptyset(&none);
    /* No terminal is its own, so it cannot type into the operator's. */
    (void)setsid();
    (void)fd_write_file(AT_FDCWD, "/proc/self/oom_score_adj", "0");
    /* It works for all tenants and briefly for each: it is not to wait behind what one of them runs. Where the kernel
     * groups by sessions, its nice value counts within its own alone, and against boxes that of the group does. Its threads
     * have both; its filter lets it make no processes. */
    sys_take_short_turns(true);
    (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + ENGINE_NICE);
    (void)fd_write_file(AT_FDCWD, "/proc/self/autogroup", ENGINE_GROUP_NICE);
    if (!given->is_trial)
        given->clock.count = set_clock_give(given->clock.fds);
    if (enter(keeper, given) < 0)
        fail("its view of the host");
    describe(keeper, given, &environment);
    limit_memory(keeper);
    if (drop(engine) < 0)
        fail("its rights");
    /* Ids that change forget it, so it comes after. It says to end: there may be something to write. */
    (void)prctl(PR_SET_PDEATHSIG, given->is_trial ? SIGKILL : SIGTERM);
    if (getppid() != parent)
        _exit(1);
    if (arrange(keeper, given, &program) < 0)
        fail("its fds");
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (engine_filter_load() < 0)
        fail("its filter");
    /* The one that was there when the keeper began: both are of one build, whatever is installed now. */
    (void)syscall(SYS_execveat, program, "", argv, environment.list, AT_EMPTY_PATH);
    fail("its program");
}

pid_t engine_fork(struct keeper *keeper, int socket, int requests, struct error *err)
{
    struct given given = {
        .fds = {[KEEPER_ENGINE_SOCKET] = socket,
                [KEEPER_ENGINE_STATE] = keeper->places.engine,
                [KEEPER_ENGINE_REQUESTS] = requests},
        .listening = keeper->listeners.api_count,
    };
    pid_t parent = getpid(), pid = fork();

    if (pid == 0)
        run(keeper, &given, parent);
    if (pid < 0)
        return error_set(err, "capacity", errno, "cannot fork the engine");
    return pid;
}

/* ---- a trial ---- */

static pid_t trial_fork(const struct keeper *keeper, int said)
{
    pid_t parent = getpid(), pid = fork();
    struct given given = {.is_trial = true};
    int null;

    if (pid != 0)
        return pid;
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = KEEPER_ENGINE_SOCKET; fd < KEEPER_ENGINE_LISTEN; fd++)
        given.fds[fd] = null;
    if (null < 0 || dup2(said, STDERR_FILENO) < 0)
        _exit(125);
    run(keeper, &given, parent);
}

/* Its last line is "CODE: TEXT", or the loader's of programs. */
static int trial_refused(const struct engine_child *engine, const char *said, struct error *err)
{
    const char *line = strrchr(said, '\n');
    size_t code;

    line = line != NULL ? line + 1 : said;
    code = strspn(line, "abcdefghijklmnopqrstuvwxyz_");
    if (code > 0 && code < ERROR_CODE_MAX && strncmp(line + code, ": ", 2) == 0) {
        (void)error_set(err, "", 0, "%s", line + code + 2);
        (void)snprintf(err->code, sizeof(err->code), "%.*s", (int)code, line);
        return -1;
    }
    return error_set(
        err, "no_engine", 0, "%.200s does not start: %s%s", engine->program_path,
        line[0] != '\0' ? line : "it said nothing",
        strstr(line, "shared librar") != NULL
            ? "; of Debian the engine needs libuv1, libc-ares2, libsqlite3-0 and libssl3"
            : "");
}

int engine_try_said(const struct keeper *keeper, char *said, size_t size, struct error *err)
{
    int ends[2], status = -1;
    pid_t pid;

    said[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set(err, "capacity", errno, "cannot try the engine");
    pid = trial_fork(keeper, ends[1]);
    (void)close(ends[1]);
    if (pid > 0) {
        hear_all(ends[0], said, size, TRY_MS);
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, &status, 0);
    }
    (void)close(ends[0]);
    if (pid < 0)
        return error_set(err, "capacity", errno, "cannot try the engine");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return trial_refused(&keeper->engine, said, err);
    return 0;
}

int engine_try(const struct keeper *keeper, struct error *err)
{
    char said[2048];

    return engine_try_said(keeper, said, sizeof(said), err);
}
