/* Cgroups, made for real: the limits bite, all of a box can be killed and billed, and nothing is
 * left. What this machine does not have (other mounts, other controllers) is played by directories.
 *
 * Needs to be root. Makes groups only as children of its own, named after its pid. */
#include "box/cgroup.h"

#include "base/clock.h"
#include "base/fd.h"
#include "box/cgroup_enter.h"
#include "box/cgroup_parts.h"
#include "box/sys.h"
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define CLONE_INTO_CGROUP_FLAG 0x200000000ULL
#define MIB (1ULL << 20)

/* Whom the v2 group is given to: an id that nobody has. */
#define OWNER 524288U

static struct cgroup_host host;
static const struct cgroup_limits usual = {.memory_bytes = 64 * MIB, .cpu_milli = 1500, .pids = 32};

/* A name that no other run of this test has at the same time. */
static const char *name_next(void)
{
    static char name[CGROUP_NAME_MAX];
    static unsigned count;

    (void)snprintf(name, sizeof(name), "test-%d-%u", getpid(), count++);
    return name;
}

static void pause_ms(long ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&time, NULL);
}

/* ---- processes in a group ---- */

static pid_t clone_into(int cgroup)
{
    struct clone_args args = {.exit_signal = SIGCHLD};

    if (cgroup >= 0) {
        args.flags = CLONE_INTO_CGROUP_FLAG;
        args.cgroup = (unsigned)cgroup;
    }
    return sys_clone3(&args);
}

/* Starts a process in the group as a box starts its first one: born in v2, and in v1 it goes in by
 * itself. */
static pid_t spawn(const struct cgroup *cgroup, int (*run)(void))
{
    struct cgroup_gate gate;
    struct error err = {0};
    int go[2];
    pid_t pid;
    char byte;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, go) < 0)
        exit(1);
    CHECK(cgroup_gate_open(cgroup, &gate, &err) == 0, "%s", err.text);
    (void)fflush(stdout);
    pid = clone_into(cgroup_into_fd(cgroup));
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close(go[1]);
        if (cgroup_enter(&gate) < 0)
            _exit(126);
        _exit(write(go[0], "e", 1) == 1 && read(go[0], &byte, 1) == 1 ? run() : 125);
    }
    (void)close(go[0]);
    cgroup_gate_close(&gate);
    CHECK(read(go[1], &byte, 1) == 1, "the process could not enter %s", cgroup->name);
    CHECK(pid > 0, "cannot start a process in %s: %m", cgroup->name);
    (void)send(go[1], "x", 1, MSG_NOSIGNAL); /* what failed is counted, and the rest still runs */
    (void)close(go[1]);
    return pid;
}

static int reap(pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return status;
}

static bool make(struct cgroup *cgroup, const struct cgroup_limits *limits, bool leaves)
{
    struct error err = {0};
    bool is_made = cgroup_make(&host, name_next(), limits, OWNER, OWNER, leaves, cgroup, &err) == 0;

    CHECK(is_made, "%s", err.text);
    return is_made;
}

static void end(struct cgroup *cgroup)
{
    struct error err = {0};

    CHECK(cgroup_kill(cgroup) == 0, "cannot kill %s: %m", cgroup->name);
    CHECK(cgroup_remove(cgroup, &err) == 0, "%s", err.text);
    CHECK(cgroup->v1_made == 0 && !cgroup->v2_made, "%s is said to stand", cgroup->name);
}

/* What stands of this test in any hierarchy. */
static unsigned left_count(void)
{
    char prefix[32];
    unsigned count = 0;

    (void)snprintf(prefix, sizeof(prefix), "cove-test-%d-", getpid());
    for (size_t i = 0; i <= host.v1_count; i++) {
        int parent = i < host.v1_count ? host.v1[i].parent : host.v2;
        int fd = parent >= 0 ? openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
        DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
        const struct dirent *entry;

        while (list != NULL && (entry = readdir(list)) != NULL)
            count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
        if (list != NULL)
            (void)closedir(list);
    }
    return count;
}

/* ---- what runs inside ---- */

static int run_wait(void)
{
    int woken;

    do
        woken = pause();
    while (woken < 0);
    return woken;
}

static int run_spin(void)
{
    uint64_t start = clock_monotonic_ns();

    /* A second, and longer where the machine did other things: 60 ms of CPU time in any case. */
    while (clock_monotonic_ns() - start < 1000000000U || clock() < CLOCKS_PER_SEC / 1000 * 60)
        ;
    return 0;
}

static int run_anonymous_bomb(void)
{
    char *memory = mmap(NULL, 512 * MIB, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        return 1;
    for (size_t at = 0; at < 512 * MIB; at += 4096)
        ((volatile char *)memory)[at] = 1;
    return 0;
}

static int run_memfd_bomb(void)
{
    static char block[65536];
    int fd = memfd_create("bomb", MFD_CLOEXEC);

    for (size_t at = 0; at < 512 * MIB; at += sizeof(block))
        if (write(fd, block, sizeof(block)) < 0)
            return 1;
    return 0;
}

/* Ends with how many it could start, and leaves all of them. */
static int run_fork_bomb(void)
{
    int count = 0;

    for (int i = 0; i < 200; i++) {
        pid_t pid = clone_into(-1);

        if (pid == 0)
            (void)run_wait();
        count += pid > 0;
    }
    return count;
}

/* Forks and dies at once, each child too: nothing that was listed a moment ago is still there. */
static int run_fork_storm(void)
{
    for (;;)
        if (clone_into(-1) > 0)
            _exit(0);
}

static int run_affinity(void)
{
    cpu_set_t cpus;

    return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 255;
}

/* ---- the real thing ---- */

static void check_every_hierarchy_is_ours(void)
{
    char path[64], text[4096], *line, *rest = text;
    struct cgroup cgroup;
    unsigned found = 0, foreign = 0;
    pid_t pid;

    if (!make(&cgroup, &usual, true))
        return;
    pid = spawn(&cgroup, run_wait);
    (void)snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
    CHECK(fd_read_file(AT_FDCWD, path, text, sizeof(text)) > 0, "%s: %m", path);
    while ((line = strsep(&rest, "\n")) != NULL) {
        const char *controllers = strchr(line, ':');

        if (controllers == NULL)
            continue;
        if (strstr(line, cgroup.name) != NULL)
            found++;
        else if (cgroup_controllers_parse(
                     strndupa(controllers + 1, strcspn(controllers + 1, ":"))) != 0)
            foreign++;
    }
    CHECK(found == host.v1_count + (host.v2 >= 0), "the process is in %u groups of the box", found);
    CHECK(foreign == 0, "%u hierarchies show a group of the host", foreign);
    end(&cgroup);
    CHECK(WTERMSIG(reap(pid)) == SIGKILL, "the process lived on");
}

static uint64_t setting(const struct cgroup *cgroup, unsigned controller, const char *v1,
                        const char *v2)
{
    uint64_t value = 0;

    for (size_t i = 0; i < host.v1_count; i++)
        if ((host.v1[i].controllers & controller) != 0 &&
            cgroup_file_number(host.v1[i].parent, cgroup->name, v1, NULL, &value) == 0)
            return value;
    if ((host.v2_controllers & controller) != 0)
        (void)cgroup_file_number(host.v2, cgroup->name, v2, NULL, &value);
    return value;
}

static void check_limits_are_set(void)
{
    struct cgroup cgroup;

    if (!make(&cgroup, &usual, false))
        return;
    CHECK(setting(&cgroup, CGROUP_MEMORY, "memory.limit_in_bytes", "memory.max") == 64 * MIB,
          "the memory limit is not there");
    CHECK((host.v2_controllers & CGROUP_MEMORY) != 0 ||
              setting(&cgroup, CGROUP_MEMORY, "memory.kmem.tcp.limit_in_bytes", "") == 16 * MIB,
          "the limit of what TCP and UDP hold is not there");
    CHECK(setting(&cgroup, CGROUP_PIDS, "pids.max", "pids.max") == 32,
          "the process limit is not there");
    CHECK(setting(&cgroup, CGROUP_CPU, "cpu.cfs_quota_us", "cpu.max") == 150000,
          "the CPU limit is not there");
    end(&cgroup);
}

static void check_memory_bomb(int (*bomb)(void), const char *what)
{
    struct cgroup cgroup;
    struct cgroup_usage usage;
    int status;

    if (!make(&cgroup, &usual, true))
        return;
    CHECK(cgroup_usage(&cgroup, &usage) == 0 && usage.oom_kills == 0, "%s: killed before", what);
    status = reap(spawn(&cgroup, bomb));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%s: status %#x", what, status);
    CHECK(cgroup_usage(&cgroup, &usage) == 0 && usage.known, "%s: no bill", what);
    CHECK(usage.oom_kills == 1, "%s: %llu kills", what, (unsigned long long)usage.oom_kills);
    CHECK(usage.peak_memory_bytes > 32 * MIB && usage.peak_memory_bytes <= 64 * MIB,
          "%s: peak of %llu bytes", what, (unsigned long long)usage.peak_memory_bytes);
    CHECK(usage.cpu_ns > 0, "%s: it took no time", what);
    end(&cgroup);
}

static void check_cpu_limit(void)
{
    const struct cgroup_limits limits = {.memory_bytes = 64 * MIB, .cpu_milli = 200, .pids = 8};
    struct cgroup_usage usage = {.cpu_ns = UINT64_MAX};

    /* A machine that does nothing for a while may call that its time. */
    for (int i = 0; i < 5 && usage.cpu_ns >= 450000000; i++) {
        struct cgroup cgroup;

        if (!make(&cgroup, &limits, true))
            return;
        CHECK(CPU_COUNT(&cgroup.cpus) == 1, "%d CPUs for a fifth of one", CPU_COUNT(&cgroup.cpus));
        CHECK(reap(spawn(&cgroup, run_spin)) == 0, "spinning failed");
        CHECK(cgroup_usage(&cgroup, &usage) == 0 && usage.known, "no bill");
        end(&cgroup);
    }
    CHECK(usage.cpu_ns > 50000000 && usage.cpu_ns < 450000000,
          "a second of spinning with a fifth of a CPU cost %llu ns",
          (unsigned long long)usage.cpu_ns);
}

static void check_cpuset(void)
{
    const struct cgroup_limits one = {.cpu_milli = 1000}, all = {0};
    unsigned v1 = 0;
    struct cgroup cgroup;
    cpu_set_t mine;

    for (size_t i = 0; i < host.v1_count; i++)
        v1 |= host.v1[i].controllers;
    CHECK(sched_getaffinity(0, sizeof(mine), &mine) == 0, "%m");
    if (!make(&cgroup, &one, false))
        return;
    CHECK(CPU_COUNT(&cgroup.cpus) == 1, "%d CPUs were chosen", CPU_COUNT(&cgroup.cpus));
    if (((v1 | host.v2_controllers) & CGROUP_CPUSET) != 0)
        CHECK(WEXITSTATUS(reap(spawn(&cgroup, run_affinity))) == 1, "the cpuset does not hold");
    end(&cgroup);
    if (!make(&cgroup, &all, false))
        return;
    CHECK(CPU_EQUAL(&cgroup.cpus, &mine), "a box without a limit lacks CPUs");
    CHECK(WEXITSTATUS(reap(spawn(&cgroup, run_affinity))) == CPU_COUNT(&mine), "inside too");
    end(&cgroup);
}

static void check_fork_bomb(bool with_v2)
{
    int v2 = host.v2;
    struct cgroup cgroup;
    uint64_t start;
    int status;

    if (!with_v2)
        host.v2 = -1;
    if (make(&cgroup, &usual, true)) {
        status = reap(spawn(&cgroup, run_fork_bomb));
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 31,
              "with 32 processes allowed, status %#x", status);
        start = clock_monotonic_ns();
        end(&cgroup);
        printf("fork bomb of 32, %s: killed and removed in %.2f ms\n", with_v2 ? "v2" : "v1 only",
               (double)(clock_monotonic_ns() - start) / 1e6);
    }
    if (make(&cgroup, &usual, true)) {
        (void)reap(spawn(&cgroup, run_fork_storm));
        pause_ms(20);
        start = clock_monotonic_ns();
        end(&cgroup);
        printf("fork storm, %s: killed and removed in %.2f ms\n", with_v2 ? "v2" : "v1 only",
               (double)(clock_monotonic_ns() - start) / 1e6);
    }
    host.v2 = v2;
}

static void check_removal_waits_and_tells(void)
{
    struct error err = {0};
    struct cgroup cgroup;
    uint64_t start;
    pid_t pid;

    if (!make(&cgroup, &usual, true))
        return;
    pid = spawn(&cgroup, run_wait);
    start = clock_monotonic_ns();
    CHECK(cgroup_remove(&cgroup, &err) == -1 && strcmp(err.code, "cgroup_failed") == 0 &&
              strstr(err.text, cgroup.name) != NULL,
          "a group with a process in it was removed: %s", err.text);
    CHECK(clock_monotonic_ns() - start < 20000000000U, "it waited too long");
    CHECK(kill(pid, 0) == 0, "removing killed");
    end(&cgroup); /* what is left of the handle still works */
    (void)reap(pid);
}

static void check_removal_by_name(void)
{
    struct error err = {0};
    struct cgroup cgroup;
    const char *name;
    pid_t pid;

    if (!make(&cgroup, &usual, true))
        return;
    pid = spawn(&cgroup, run_fork_bomb);
    (void)reap(pid);
    name = strdupa(cgroup.name + strlen("cove-"));
    cgroup_forget(&cgroup);
    CHECK(left_count() > 0, "forgetting removed it");
    CHECK(cgroup_remove_named(&host, name, &err) == 0, "%s", err.text);
    CHECK(left_count() == 0, "%u groups are left", left_count());
    CHECK(cgroup_remove_named(&host, name, &err) == 0, "twice: %s", err.text);
    CHECK(cgroup_remove_named(&host, "../x", &err) == -1, "a path is no name");
}

static void check_half_made_is_undone(void)
{
    struct cgroup_limits limits = usual;
    struct error err = {0};
    struct cgroup cgroup;
    const char *name = name_next();
    char directory[CGROUP_NAME_MAX + sizeof("cove-")];
    int parent = host.v2 >= 0 ? host.v2 : host.v1[host.v1_count - 1].parent;

    /* Somebody has the name in the last hierarchy. */
    (void)snprintf(directory, sizeof(directory), "cove-%s", name);
    CHECK(mkdirat(parent, directory, 0755) == 0, "%m");
    CHECK(cgroup_make(&host, name, &limits, OWNER, OWNER, true, &cgroup, &err) == -1 &&
              strcmp(err.code, "cgroup_failed") == 0,
          "a name was taken twice");
    CHECK(left_count() == 1, "%u groups are left, not somebody's one", left_count());
    CHECK(unlinkat(parent, directory, AT_REMOVEDIR) == 0, "somebody's group was touched: %m");
    CHECK(cgroup_make(&host, "A", &limits, OWNER, OWNER, true, &cgroup, &err) == -1, "a bad name");
    CHECK(cgroup_make(&host, "", &limits, OWNER, OWNER, true, &cgroup, &err) == -1, "no name");
    CHECK(cgroup_make(&host, "../a", &limits, OWNER, OWNER, true, &cgroup, &err) == -1, "a path");
    CHECK(cgroup_make(&host, "0123456789012345678901234567890123456789012345678901234567890",
                      &limits, OWNER, OWNER, true, &cgroup, &err) == -1,
          "a name too long");
}

/* What init does: with nothing but the fd and the owner's ids, a process below in a group of its
 * own, killed alone. Exits with the number of the step that failed. */
static int leaves_fd_inside;
static bool leaves_are_limited;
static int run_as_init(void)
{
    int outside, leaf;
    struct stat here, above;
    pid_t pid;

    if (unshare(CLONE_NEWCGROUP) < 0 || setgid(OWNER) < 0 || setuid(OWNER) < 0)
        return 1;
    if (cgroup_settle(leaves_fd_inside) < 0)
        return 9;
    outside = openat(leaves_fd_inside, "..", O_PATH | O_CLOEXEC);
    if (outside < 0 || fstat(leaves_fd_inside, &here) < 0 || fstat(outside, &above) < 0 ||
        here.st_ino != above.st_ino)
        return 2; /* ".." led out of the group */
    if (mkdirat(leaves_fd_inside, "c0", 0755) < 0 || mkdirat(leaves_fd_inside, "c1", 0755) < 0)
        return 3;
    leaf = openat(leaves_fd_inside, "c0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pid = leaf >= 0 ? clone_into(leaf) : -1;
    if (pid == 0) {
        (void)clone_into(-1);
        (void)run_wait();
    }
    if (pid < 0)
        return 4;
    if (fd_write_file(leaf, "cgroup.kill", "1") < 0 || WTERMSIG(reap(pid)) != SIGKILL)
        return 5;
    if (mkdirat(leaf, "deeper", 0755) == 0)
        return 6;
    if (fd_write_file(leaves_fd_inside, "cgroup.max.depth", "max") == 0 ||
        fd_write_file(leaves_fd_inside, "memory.max", "max") == 0)
        return 7; /* the limits are not init's */
    if (leaves_are_limited && fd_write_file(leaf, "memory.max", "1000000") < 0)
        return 8;
    if (clone_into(leaf) == 0)
        (void)run_wait();
    return 0;
}

static void check_leaves(void)
{
    struct cgroup cgroup;
    int status;

    if (!make(&cgroup, &usual, true))
        return;
    if (host.v2 < 0) {
        CHECK(cgroup_leaves_fd(&cgroup) < 0 && cgroup_into_fd(&cgroup) < 0, "leaves without v2");
        end(&cgroup);
        return;
    }
    leaves_fd_inside = cgroup_leaves_fd(&cgroup);
    CHECK(leaves_fd_inside >= 0 && cgroup_into_fd(&cgroup) >= 0, "no leaves");
    leaves_are_limited = cgroup_leaves_limited(&cgroup);
    CHECK(leaves_are_limited == (host.v1_count == 0), "limits of leaves: %d", leaves_are_limited);
    status = reap(spawn(&cgroup, run_as_init));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "init's step failed: %#x", status);
    end(&cgroup); /* with both leaves, one of them full */
}

/* A slot serves one box after the other, also where v2 limits, and init's group is in the way. */
static int run_as_next_init(void)
{
    return cgroup_settle(leaves_fd_inside) < 0 || mkdirat(leaves_fd_inside, "c0", 0755) < 0;
}

static void check_leaves_again(void)
{
    struct cgroup cgroup;

    if (!make(&cgroup, &usual, true))
        return;
    leaves_fd_inside = cgroup_leaves_fd(&cgroup);
    for (int box = 0; box < 3 && leaves_fd_inside >= 0; box++) {
        int status = reap(spawn(&cgroup, run_as_next_init));

        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "box %d: %#x", box, status);
        cgroup_leaves_remove(&cgroup);
    }
    end(&cgroup);
}

static void check_nothing_is_left(void)
{
    CHECK(left_count() == 0, "%u groups are left", left_count());
}

/* ---- parts, and hosts of other kinds ---- */

static void check_parts(void)
{
    cpu_set_t allowed, out;
    char text[64];

    CHECK(cgroup_controllers_parse("cpu,cpuacct") == (CGROUP_CPU | CGROUP_CPUACCT), "a v1 list");
    CHECK(cgroup_controllers_parse("cpuset cpu io memory hugetlb pids\n") ==
              (CGROUP_CPUSET | CGROUP_CPU | CGROUP_MEMORY | CGROUP_PIDS),
          "a v2 list");
    CHECK(cgroup_controllers_parse("rw,name=systemd,cpus,pid") == 0, "near misses");
    CHECK(cgroup_controllers_parse("") == 0, "nothing");

    CPU_ZERO(&allowed);
    for (size_t i = 0; i < 12; i++)
        if (i != 4 && i != 7)
            CPU_SET(i, &allowed);
    cgroup_cpus_format(&allowed, text, sizeof(text));
    CHECK(strcmp(text, "0-3,5-6,8-11") == 0, "%s", text);
    cgroup_cpus_choose(&allowed, 0, 7, &out);
    CHECK(CPU_EQUAL(&out, &allowed), "no limit leaves all");
    cgroup_cpus_choose(&allowed, 99000, 7, &out);
    CHECK(CPU_EQUAL(&out, &allowed), "more than there are leaves all");
    cgroup_cpus_choose(&allowed, 1, 4, &out);
    cgroup_cpus_format(&out, text, sizeof(text));
    CHECK(strcmp(text, "5") == 0, "%s", text);
    cgroup_cpus_choose(&allowed, 2001, 8, &out);
    cgroup_cpus_format(&out, text, sizeof(text));
    CHECK(strcmp(text, "0,10-11") == 0, "a choice wraps: %s", text);
    cgroup_cpus_choose(&allowed, UINT32_MAX, 4000000000U, &out);
    CHECK(CPU_EQUAL(&out, &allowed), "the largest limit");

    CHECK(cgroup_cpu_quota_us(1000) == 100000 && cgroup_cpu_quota_us(250) == 25000 &&
              cgroup_cpu_quota_us(1) == 1000 && cgroup_cpu_quota_us(UINT32_MAX) == 429496729500,
          "quotas");
}

static char top[] = "/tmp/cove-test-cgroup-XXXXXX";

static void path_put(char *path, size_t size, const char *name)
{
    (void)snprintf(path, size, "%s/%s", top, name);
}

static void file_put(const char *name, const char *text)
{
    char path[256];
    int fd;

    path_put(path, sizeof(path), name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || fd_write_full(fd, text, strlen(text)) < 0) {
        perror(path);
        exit(1);
    }
    (void)close(fd);
}

/* A directory that looks like a cgroup. */
static void group_put(const char *name, const char *subtree_control)
{
    char path[256];

    path_put(path, sizeof(path), name);
    if (mkdir(path, 0755) < 0 && errno != EEXIST) {
        perror(path);
        exit(1);
    }
    (void)snprintf(path, sizeof(path), "%s/cgroup.procs", name);
    file_put(path, "");
    if (subtree_control == NULL)
        return;
    (void)snprintf(path, sizeof(path), "%s/cgroup.subtree_control", name);
    file_put(path, subtree_control);
}

/* Probes with these files in place of those in /proc; TOP in them is our directory. */
static int probe(struct cgroup_host *found, const char *self, const char *mounts, struct error *err)
{
    static char text[200000];
    char self_path[256], mounts_path[256];
    size_t used = 0;

    for (const char *at = mounts; *at != '\0' && used < sizeof(text) - 256;) {
        if (strncmp(at, "TOP", 3) == 0) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", top);
            at += 3;
        } else {
            text[used++] = *at++;
        }
    }
    text[used] = '\0';
    file_put("self", self);
    file_put("mountinfo", text);
    path_put(self_path, sizeof(self_path), "self");
    path_put(mounts_path, sizeof(mounts_path), "mountinfo");
    return cgroup_probe_files(found, self_path, mounts_path, err);
}

static bool is_directory_at(int fd, const char *name)
{
    char path[256];
    struct stat a, b;

    path_put(path, sizeof(path), name);
    return fd >= 0 && fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

#define V2_MOUNT \
    "40 31 0:38 / TOP/v2 rw,relatime shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"

/* 0: refused. Else the place that was chosen must be this. */
static void check_v2_place(const char *self, const char *place, unsigned controllers)
{
    struct cgroup_host found;
    struct error err = {0};
    int result = probe(&found, self, V2_MOUNT, &err);

    if (place == NULL) {
        CHECK(result == -1 && strcmp(err.code, "no_cgroup") == 0 && strstr(err.text, "run cove"),
              "%s: was taken", self);
        return;
    }
    CHECK(result == 0, "%s: %s", self, err.text);
    if (result < 0)
        return;
    CHECK(is_directory_at(found.v2, place), "%s: boxes do not go to %s", self, place);
    CHECK(found.v2_controllers == controllers, "%s: controllers %x", self, found.v2_controllers);
    CHECK(found.limits_memory == ((controllers & CGROUP_MEMORY) != 0) &&
              found.limits_cpu == ((controllers & CGROUP_CPU) != 0) &&
              found.limits_pids == ((controllers & CGROUP_PIDS) != 0),
          "%s: what is said to be limited is not what is", self);
    cgroup_host_close(&found);
}

static void check_pure_v2(void)
{
    const unsigned all = CGROUP_LIMITING | CGROUP_CPUSET;

    group_put("v2", "cpuset cpu io memory pids\n");
    group_put("v2/system.slice", "cpu memory pids\n");
    group_put("v2/system.slice/a.service", "\n");
    group_put("v2/user.slice", "memory pids\n");
    group_put("v2/user.slice/session", "\n");
    group_put("v2/system.slicer", "\n");

    check_v2_place("0::/\n", "v2", all);
    check_v2_place("0::/system.slice/a.service\n", "v2/system.slice", CGROUP_LIMITING);
    check_v2_place("1:name=systemd:/x\n0::/user.slice/session\n", "v2", all);
    check_v2_place("0::/system.slicer\n", "v2", all);
    check_v2_place("0::/../outside\n", NULL, 0);
    check_v2_place("", NULL, 0);

    /* Nobody gives all: most of it, as near as possible. */
    group_put("v2", "memory\n");
    check_v2_place("0::/user.slice/session\n", "v2/user.slice", CGROUP_MEMORY | CGROUP_PIDS);
    group_put("v2", "hugetlb\n");
    group_put("v2/user.slice", "\n");
    check_v2_place("0::/user.slice/session\n", NULL, 0);
}

static void check_hybrid_and_v1(void)
{
    static const char self[] = "12:cpu,cpuacct:/own\n9:pids:/own/deep\n4:memory:/box/own\n"
                               "3:cpuset:/\n2:freezer:/x\n1:name=systemd:/x\n0::/own\n";
    static const char mounts[] =
        "31 23 0:28 / TOP rw,relatime - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / TOP/gone rw - cgroup cgroup rw,pids\n" /* overmounted */
        "32 31 0:29 / TOP/cpu\\040set rw,relatime - cgroup cgroup rw,cpuset\n"
        "33 31 0:30 / TOP/cpu rw,relatime shared:3 - cgroup cgroup rw,cpu,cpuacct\n"
        "34 31 0:31 /other TOP/memory rw,relatime - cgroup cgroup rw,memory\n"
        "34 31 0:31 /bo TOP/memory rw,relatime - cgroup cgroup rw,memory\n"
        "34 31 0:31 /box TOP/memory rw,relatime - cgroup cgroup rw,memory\n"
        "35 31 0:32 / TOP/pids rw,relatime - cgroup cgroup rw,pids\n"
        "36 31 0:33 / TOP/freezer rw,relatime - cgroup cgroup rw,freezer\n" V2_MOUNT;
    static const char *const places[] = {"cpu set", "cpu/own", "memory/own", "pids/own/deep"};
    static const unsigned bits[] = {CGROUP_CPUSET, CGROUP_CPU | CGROUP_CPUACCT, CGROUP_MEMORY,
                                    CGROUP_PIDS};
    struct cgroup_host found;
    struct error err = {0};

    group_put("cpu set", NULL);
    file_put("cpu set/cpuset.effective_mems", "0\n");
    group_put("cpu", NULL);
    group_put("cpu/own", NULL);
    group_put("memory", NULL);
    group_put("memory/own", NULL);
    group_put("pids", NULL);
    group_put("pids/own", NULL);
    group_put("pids/own/deep", NULL);
    group_put("v2", "hugetlb\n");
    group_put("v2/own", "\n");
    if (probe(&found, self, mounts, &err) < 0) {
        CHECK(false, "%s", err.text);
        return;
    }
    CHECK(found.v1_count == 4, "%zu hierarchies", found.v1_count);
    for (size_t i = 0; i < found.v1_count; i++)
        CHECK(found.v1[i].controllers == bits[i] && is_directory_at(found.v1[i].parent, places[i]),
              "%s is not where groups go", places[i]);
    CHECK(strcmp(found.mems, "0\n") == 0, "mems: %s", found.mems);
    CHECK(is_directory_at(found.v2, "v2/own") && found.v2_controllers == 0,
          "v2 beside v1 is used for killing, where we are");
    CHECK(found.limits_memory && found.limits_cpu && found.limits_pids, "all is limited");
    cgroup_host_close(&found);

    /* One that is missing is said to be missing. */
    CHECK(probe(&found, "4:memory:/own\n",
                "34 31 0:31 / TOP/memory rw,relatime - cgroup cgroup rw,memory\n", &err) == 0,
          "%s", err.text);
    CHECK(found.limits_memory && !found.limits_cpu && !found.limits_pids && found.v2 == -1,
          "memory alone");
    cgroup_host_close(&found);
}

/* Lines of any form and length, before and after what counts. */
static void check_odd_mounts(void)
{
    static char mounts[120000];
    struct cgroup_host found;
    struct error err = {0};
    size_t used = 0;

    used += (size_t)snprintf(mounts, sizeof(mounts),
                             "\n - cgroup\n1 - cgroup x\n1 2 3 4 - cgroup2\n"
                             "1 2 3 / / rw - cgroup2 none\n");
    memset(mounts + used, 'x', 50000);
    used += 50000;
    used += (size_t)snprintf(mounts + used, sizeof(mounts) - used, "\n");
    for (int i = 0; i < 500; i++)
        used += (size_t)snprintf(mounts + used, sizeof(mounts) - used,
                                 "%d 31 0:%d / /mnt/some/where/%d rw,relatime - ext4 /dev/x rw\n",
                                 i + 100, i, i);
    (void)snprintf(mounts + used, sizeof(mounts) - used, "%s", V2_MOUNT);
    group_put("v2", "cpu memory pids\n");
    CHECK(probe(&found, "junk\n::\n0:\nx::/\n0::relative\n0::/\n", mounts, &err) == 0, "%s",
          err.text);
    CHECK(is_directory_at(found.v2, "v2"), "the mount at the end was not found");
    cgroup_host_close(&found);
}

static void tree_remove(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    while (list != NULL && (entry = readdir(list)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlinkat(fd, entry->d_name, 0) < 0)
            tree_remove(fd, entry->d_name);
    if (list != NULL)
        (void)closedir(list);
    (void)unlinkat(at, name, AT_REMOVEDIR);
}

static void check_other_hosts(void)
{
    if (mkdtemp(top) == NULL) {
        perror(top);
        exit(1);
    }
    check_pure_v2();
    check_hybrid_and_v1();
    check_odd_mounts();
    tree_remove(AT_FDCWD, top);
    CHECK(access(top, F_OK) < 0, "%s is left", top);
}

int main(void)
{
    struct error err = {0};

    (void)unsetenv("COVE_TEST_OFF"); /* what is switched off is chosen here */
    check_parts();
    check_other_hosts();
    if (cgroup_probe(&host, &err) < 0) {
        CHECK(false, "this machine: %s", err.text);
        return check_finish();
    }
    CHECK(host.limits_memory && host.limits_cpu && host.limits_pids,
          "this machine limits memory %d, CPU %d, processes %d", host.limits_memory,
          host.limits_cpu, host.limits_pids);
    check_every_hierarchy_is_ours();
    check_limits_are_set();
    check_memory_bomb(run_anonymous_bomb, "anonymous");
    check_memory_bomb(run_memfd_bomb, "memfd");
    check_cpu_limit();
    check_cpuset();
    check_fork_bomb(true);
    if (host.v1_count > 0)
        check_fork_bomb(false);
    check_removal_waits_and_tells();
    check_removal_by_name();
    check_half_made_is_undone();
    check_leaves();
    check_leaves_again();
    check_nothing_is_left();
    cgroup_host_close(&host);
    return check_finish();
}
