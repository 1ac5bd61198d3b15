/* Probes: see probe.h. This file runs them and tries what needs no privileges; probe_namespaces.c
 * has those that live in a user namespace. */
#include "box/probe.h"

#include "base/fd.h"
#include "box/cgroup.h"
#include "box/embed.h"
#include "box/filter/filter.h"
#include "box/handle.h"
#include "box/probe_parts.h"
#include "box/sys.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>

#define PROBE_LIMIT_MS 10000

/* ---- a child for each ---- */

void *probe_share(size_t size)
{
    void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return shared == MAP_FAILED ? NULL : shared;
}

void probe_unshare(void *shared, size_t size)
{
    if (shared != NULL)
        (void)munmap(shared, size);
}

int probe_in_child(void (*function)(void *), void *shared, unsigned limit_ms)
{
    int pipe_fds[2], status = 0;
    struct pollfd alive;
    bool late;
    pid_t pid;

    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        (void)close(pipe_fds[0]);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        function(shared);
        _exit(0);
    }
    (void)close(pipe_fds[1]);
    /* It reads nothing: it ends when the last of the probe's processes does. */
    alive = (struct pollfd){.fd = pipe_fds[0], .events = POLLIN};
    late = pid > 0 && poll(&alive, 1, (int)limit_ms) == 0;
    if (late)
        (void)kill(pid, SIGKILL);
    (void)close(pipe_fds[0]);
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return -1;
    return late ? -1 : status;
}

pid_t probe_fork(void)
{
    pid_t pid = fork();

    if (pid == 0)
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

void probe_step(struct probe_result *result, const char *step)
{
    (void)snprintf(result->step, sizeof(result->step), "%s", step);
}

bool probe_fail(struct probe_result *result, int errnum)
{
    result->state = PROBE_FAILS;
    result->errnum = errnum;
    return false;
}

bool probe_did(struct probe_result *result, long returned)
{
    return returned >= 0 || probe_fail(result, errno);
}

/* ---- the kernel ---- */

/* Arguments that are wrong tell a call that is there (EINVAL and the like) from one that is not, or
 * that a filter refuses. The calls that ask for a capability first cannot tell the latter. */
static bool call_is_there(struct probe_result *result, const char *name, bool asks_first,
                          long returned)
{
    if (returned >= 0 || (errno != ENOSYS && (asks_first || errno != EPERM)))
        return true;
    result->errnum = errno;
    probe_step(result, name);
    return probe_fail(result, result->errnum);
}

static void try_kernel(struct probe_result *result)
{
    struct utsname name;

    if (uname(&name) == 0)
        (void)snprintf(result->found, sizeof(result->found), "%.60s", name.release);
    if (call_is_there(result, "clone3", false, syscall(SYS_clone3, NULL, 0)) &&
        call_is_there(result, "openat2", false, syscall(SYS_openat2, -1, NULL, NULL, 0)) &&
        call_is_there(result, "close_range", false, syscall(SYS_close_range, 1, 0, 0)) &&
        call_is_there(result, "fsopen", true, syscall(SYS_fsopen, NULL, 255)) &&
        call_is_there(result, "mount_setattr", true,
                      syscall(SYS_mount_setattr, -1, NULL, 0, NULL, 0)))
        result->state = PROBE_WORKS;
}

/* ---- the filter ---- */

static void try_seccomp(struct probe_result *result)
{
    static const uint32_t key[FILTER_KEY_WORDS] = {1, 2, 3, 4};
    struct sock_filter program[FILTER_MAX];
    size_t count = filter_program(program, 0, key);
    int failed;

    if (!PROBE_TRY(result, "no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)))
        return;
    probe_step(result, "seccomp");
    failed = filter_load(program, count, NULL);
    if (failed < 0) {
        (void)probe_fail(result, -failed);
        return;
    }
    if (syscall(SYS_mount, NULL, NULL, NULL, 0, NULL) == 0 || errno != EPERM) {
        (void)probe_fail(result, 0);
        return;
    }
    result->state = PROBE_WORKS;
    (void)snprintf(result->found, sizeof(result->found), "the filter of a box holds");
}

/* ---- Landlock ---- */

static void try_landlock(struct probe_result *result)
{
    uint64_t handled = 1U << 6; /* making character devices: the first version has it */
    int abi, ruleset;

    abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, 1U);
    if (!PROBE_TRY(result, "landlock_create_ruleset", abi))
        return;
    ruleset = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0U);
    if (!PROBE_TRY(result, "landlock_create_ruleset", ruleset) ||
        !PROBE_TRY(result, "no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) ||
        !PROBE_TRY(result, "landlock_restrict_self",
                   syscall(SYS_landlock_restrict_self, ruleset, 0U)))
        return;
    /* A box does without the first version, which cannot let files be moved. */
    result->state = abi >= 2 ? PROBE_WORKS : PROBE_PARTLY;
    (void)snprintf(result->found, sizeof(result->found), "version %d", abi);
}

/* ---- a program from memory ---- */

static void try_memfd(struct probe_result *result)
{
    char name[] = "cove-init", *argv[] = {name, NULL}, *env[] = {NULL};
    int fd, said[2], failed = 0;
    struct error err;
    pid_t pid;

    probe_step(result, "a program in memory");
    fd = box_program("cove-probe", embed_init_start, embed_init_end, &err);
    if (fd < 0) {
        (void)probe_fail(result, err.errnum);
        return;
    }
    if (!PROBE_TRY(result, "pipe", pipe2(said, O_CLOEXEC)))
        return;
    pid = probe_fork();
    if (pid == 0) {
        /* It is the init of no box: without a control socket it ends at once. */
        (void)close(3);
        (void)sys_execveat(fd, argv, env);
        failed = errno;
        (void)fd_write_full(said[1], &failed, sizeof(failed));
        _exit(1);
    }
    if (!PROBE_TRY(result, "fork", pid))
        return;
    (void)close(said[1]);
    if (fd_read_full(said[0], &failed, sizeof(failed)) == (ssize_t)sizeof(failed)) {
        probe_step(result, "executing a memfd");
        (void)probe_fail(result, failed);
    } else {
        result->state = PROBE_WORKS;
    }
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* ---- cgroups ---- */

static void controllers_say(char *text, size_t size, const char *version, unsigned controllers)
{
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {{CGROUP_MEMORY, " memory"}, {CGROUP_PIDS, " pids"}, {CGROUP_CPU, " cpu"}};
    size_t used = strlen(text);

    used += (size_t)snprintf(text + used, size - used, "%s%s:", used > 0 ? "; " : "", version);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if ((controllers & names[i].bit) != 0 && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s", names[i].name);
    if ((controllers & (CGROUP_MEMORY | CGROUP_PIDS | CGROUP_CPU)) == 0 && used < size)
        (void)snprintf(text + used, size - used, " no controller");
}

static void cgroup_say(const struct cgroup_host *host, struct probe_result *result)
{
    unsigned v1 = 0;

    result->found[0] = '\0';
    for (size_t i = 0; i < host->v1_count; i++)
        v1 |= host->v1[i].controllers;
    if (host->v1_count > 0)
        controllers_say(result->found, sizeof(result->found), "v1", v1);
    if (host->v2 >= 0)
        controllers_say(result->found, sizeof(result->found), "v2", host->v2_controllers);
}

/* A group with limits is made and removed: that a directory may be written to says nothing of the
 * files in it. */
static bool cgroup_try(const struct cgroup_host *host, struct probe_result *result)
{
    struct cgroup_limits limits = {.memory_bytes = 64U << 20, .pids = 16};
    struct cgroup group;
    struct error err;
    uint32_t random;
    char name[32];

    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
        random = (uint32_t)getpid();
    (void)snprintf(name, sizeof(name), "probe-%08x", random);
    if (cgroup_make(host, name, &limits, geteuid(), getegid(), false, &group, &err) < 0) {
        probe_step(result, "making a group");
        return probe_fail(result, err.errnum);
    }
    probe_step(result, "removing a group");
    return cgroup_remove(&group, &err) == 0 || probe_fail(result, err.errnum);
}

static void try_cgroup(struct probe_result *result)
{
    struct cgroup_host host;
    struct error err;

    probe_step(result, "finding a group that can have children");
    if (cgroup_probe(&host, &err) < 0) {
        (void)probe_fail(result, 0);
        (void)snprintf(result->found, sizeof(result->found),
                       "no group in which others can be made");
        return;
    }
    cgroup_say(&host, result);
    if (!cgroup_try(&host, result))
        return;
    result->state = host.limits_memory && host.limits_pids && host.limits_cpu ? PROBE_WORKS
                    : host.limits_memory && host.limits_pids                  ? PROBE_PARTLY
                                                                              : PROBE_FAILS;
    cgroup_host_close(&host);
}

/* ---- the table ---- */

static const struct {
    void (*try)(struct probe_result *result);
    unsigned limit_ms;
} probes[PROBE_COUNT] = {
    [PROBE_KERNEL] = {try_kernel, PROBE_LIMIT_MS},
    [PROBE_USERNS] = {probe_try_userns, PROBE_LIMIT_MS},
    [PROBE_USERNS_CAPS] = {probe_try_userns_caps, PROBE_LIMIT_MS},
    [PROBE_IDS] = {probe_try_ids, PROBE_LIMIT_MS},
    [PROBE_NAMESPACES] = {probe_try_namespaces, PROBE_LIMIT_MS},
    [PROBE_NETWORK] = {probe_try_network, PROBE_LIMIT_MS},
    [PROBE_PROC] = {probe_try_proc, PROBE_LIMIT_MS},
    [PROBE_DEVPTS] = {probe_try_devpts, PROBE_LIMIT_MS},
    [PROBE_OVERLAY] = {probe_try_overlay, PROBE_LIMIT_MS},
    [PROBE_IDMAP] = {probe_try_idmap, PROBE_LIMIT_MS},
    [PROBE_EROFS] = {probe_try_erofs, PROBE_LIMIT_MS},
    [PROBE_SECCOMP] = {try_seccomp, PROBE_LIMIT_MS},
    [PROBE_LANDLOCK] = {try_landlock, PROBE_LIMIT_MS},
    [PROBE_CLOCKS] = {probe_try_clocks, PROBE_LIMIT_MS},
    [PROBE_MEMFD] = {try_memfd, PROBE_LIMIT_MS},
    [PROBE_CGROUP] = {try_cgroup, PROBE_LIMIT_MS},
    [PROBE_PROCESS_LIMIT] = {probe_try_process_limit, PROBE_LIMIT_MS},
};

struct probing {
    enum probe_id id;
    struct probe_result result;
};

static void probe_child(void *shared)
{
    struct probing *probing = shared;

    probes[probing->id].try(&probing->result);
}

void probe_run(enum probe_id id, struct probe_result *result)
{
    struct probing *probing = probe_share(sizeof(*probing));
    int status;

    *result = (struct probe_result){.state = PROBE_FAILS, .errnum = ENOMEM};
    if (probing == NULL)
        return;
    probing->id = id;
    status = probe_in_child(probe_child, probing, probes[id].limit_ms);
    *result = probing->result;
    probe_unshare(probing, sizeof(*probing));
    if (status == 0)
        return;
    result->state = PROBE_FAILS;
    result->timed_out = status == -1;
    if (status > 0 && WIFSIGNALED(status))
        result->signal = WTERMSIG(status);
}
