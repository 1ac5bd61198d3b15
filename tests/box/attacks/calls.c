/* Entries 48 to 51, 53 to 56: single system calls that must not do what they could. */
#include "attack.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define AF_ALG_FAMILY 38
#define TIOCGPTPEER_REQUEST 0x5441
#define TIOCCONS_REQUEST 0x541d
#define TIOCLINUX_REQUEST 0x541c
#define TIOCSETD_REQUEST 0x5423

/* ---- 48: foreign and unknown system calls ---- */

static void lingering(void)
{
    struct linger asked = {.l_onoff = 1, .l_linger = 30}, is = {.l_onoff = 1};
    socklen_t size = sizeof(is);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &asked, sizeof(asked));
    attack_check("a socket that lingers at close",
                 fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_LINGER, &is, &size) == 0 &&
                     is.l_onoff == 0,
                 "it would");
    (void)close(fd);
}

static void foreign_calls(void)
{
    int odd = 0, first = 0;

    attack_foreign_calls();
    lingering();
    for (long number = 470; number < 1024; number++) {
        if (syscall(number, 0UL, 0UL, 0UL, 0UL, 0UL, 0UL) < 0 && errno == ENOSYS)
            continue;
        odd++;
        first = first == 0 ? (int)number : first;
    }
    attack_check("numbers 470 to 1023", odd == 0, "%d not ENOSYS, the first %d", odd, first);
    REFUSED("a number past all tables", syscall(0x3fffffffL), ENOSYS);
    REFUSED("number -1", syscall(-1L), ENOSYS);
}

/* ---- 49: terminals ---- */

static int open_terminal(int *slave)
{
    int unlock = 0, master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

    *slave = -1;
    if (master >= 0 && ioctl(master, TIOCSPTLCK, &unlock) == 0)
        *slave = ioctl(master, TIOCGPTPEER_REQUEST, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return master;
}

static int be_its_leader(void *slave)
{
    if (setsid() < 0 || ioctl(*(int *)slave, TIOCSCTTY, 0) < 0)
        return 2;
    (void)pause();
    return 0;
}

static int steal(void *slave)
{
    if (setsid() < 0)
        return 2;
    return ioctl(*(int *)slave, TIOCSCTTY, 1) == 0 ? 1 : 0;
}

static void steal_terminal(int master, int slave)
{
    pid_t owner = fork();
    int status;

    if (owner == 0)
        _exit(be_its_leader(&slave));
    for (int i = 0; i < 20000 && tcgetsid(master) != owner; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    attack_check("a terminal has an owner", owner > 0 && tcgetsid(master) == owner, "%d",
                 tcgetsid(master));
    status = attack_child(steal, &slave);
    attack_check("stealing a controlling terminal", WIFEXITED(status) && WEXITSTATUS(status) == 0,
                 "status %#x", (unsigned)status);
    (void)kill(owner, SIGKILL);
    (void)waitpid(owner, NULL, 0);
}

static void push_terminal(void)
{
    static const unsigned requests[] = {TIOCSTI, TIOCLINUX_REQUEST, TIOCCONS_REQUEST,
                                        TIOCSETD_REQUEST};
    static const unsigned long high[] = {0, 1UL << 32, 0xffffffffUL << 32, 1UL << 63};
    int slave, master = open_terminal(&slave);
    char byte = 2, what[64];

    attack_check("a terminal of its own", master >= 0 && slave >= 0, "%d %d", master, slave);
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        for (size_t j = 0; j < sizeof(high) / sizeof(high[0]); j++) {
            (void)snprintf(what, sizeof(what), "ioctl %#lx", high[j] | requests[i]);
            REFUSED(what, syscall(SYS_ioctl, slave, high[j] | requests[i], &byte), EPERM);
            REFUSED(what, syscall(SYS_ioctl, 0, high[j] | requests[i], &byte), EPERM);
        }
    }
    steal_terminal(master, slave);
    if (strcmp(attack_word(0, "no-tty"), "no-tty") == 0)
        REFUSED("/dev/tty", attack_open("/dev/tty", O_RDWR), ENXIO);
}

/* ---- 50 and 51: the processor and the machine ---- */

static void processor(void)
{
    static const unsigned long kinds[] = {0x0008,    0x0400000, 0x0100000, 0x0200000, 0x4000000,
                                          0x8000000, 0x0440000, 0x0001,    0x0020000};
    char what[64];

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        (void)snprintf(what, sizeof(what), "personality %#lx", kinds[i]);
        REFUSED(what, syscall(SYS_personality, kinds[i]), EPERM);
    }
    attack_check("asking for the personality", syscall(SYS_personality, 0xffffffffUL) == 0, "%s",
                 "native");
    attack_processor();
}

/* Values that the kernel would refuse with EINVAL if it came to look at them, or that are so
 * already: where the wall is missing, nothing happens. */
static void machine(void)
{
    struct timespec never = {.tv_nsec = 2000000000};
    struct timex adjust = {.modes = ADJ_TICK, .tick = 1};
    char name[256] = "", buffer[64] = {0};

    (void)gethostname(name, sizeof(name) - 1);
    REFUSED("clock_settime", clock_settime(CLOCK_REALTIME, &never), EPERM);
    REFUSED("settimeofday", syscall(SYS_settimeofday, &(long[2]){0, 2000000}, NULL), EPERM);
    REFUSED("adjtimex", syscall(SYS_adjtimex, &adjust), EPERM);
    REFUSED("clock_adjtime", syscall(SYS_clock_adjtime, CLOCK_REALTIME, &adjust), EPERM);
    REFUSED("sethostname", sethostname(name, strlen(name)), EPERM);
    REFUSED("setdomainname", syscall(SYS_setdomainname, name, 65), EPERM);
    REFUSED("swapon", syscall(SYS_swapon, "/tmp/none", 0), EPERM);
    REFUSED("swapoff", syscall(SYS_swapoff, "/tmp/none"), EPERM);
    /* An unknown command: nothing would happen. */
    REFUSED("reboot", syscall(SYS_reboot, 0xfee1dead, 672274793, 0x12345678, NULL), EPERM);
    REFUSED("kexec_load", syscall(SYS_kexec_load, 0UL, 0UL, NULL, 0xffUL), EPERM);
    REFUSED("kexec_file_load", syscall(SYS_kexec_file_load, -1, -1, 0UL, NULL, 0xffUL), EPERM);
    REFUSED("init_module", syscall(SYS_init_module, buffer, 0UL, ""), EPERM);
    REFUSED("finit_module", syscall(SYS_finit_module, -1, "", 0), EPERM);
    REFUSED("delete_module", syscall(SYS_delete_module, "no_such_module", 0x800), EPERM);
    REFUSED("acct", syscall(SYS_acct, "/tmp/none"), EPERM);
    REFUSED("quotactl", syscall(SYS_quotactl, 0x80000700, "/dev/none", 0, buffer), EPERM);
    REFUSED("quotactl_fd", syscall(443, 0, 0x80000700, 0, buffer), EPERM);
    REFUSED("fanotify_init", syscall(SYS_fanotify_init, 0, 0), EPERM);
    REFUSED("fanotify_mark", syscall(SYS_fanotify_mark, -1, 1, 1UL, AT_FDCWD, "/"), EPERM);
    REFUSED("syslog", syscall(SYS_syslog, 3, buffer, sizeof(buffer)), EPERM);
    REFUSED("vhangup", syscall(SYS_vhangup), EPERM);
    REFUSED("lookup_dcookie", syscall(SYS_lookup_dcookie, 0UL, buffer, sizeof(buffer)), EPERM);
    REFUSED("move_pages", syscall(SYS_move_pages, 1, 0UL, NULL, NULL, NULL, 0), EPERM);
    REFUSED("nfsservctl", syscall(SYS_nfsservctl, 0, NULL, NULL), ENOSYS);
}

/* ---- 53: limits ---- */

/* By what came of it: a filter may also answer 0 and do nothing. */
static void raise_limit(const char *name, pid_t pid, int resource)
{
    struct rlimit before = {0}, after = {0}, more;
    char what[64];

    (void)syscall(SYS_prlimit64, pid, resource, NULL, &before);
    more = (struct rlimit){before.rlim_max + 1, before.rlim_max + 1};
    (void)syscall(SYS_prlimit64, pid, resource, &more, NULL);
    if (pid == 0)
        (void)setrlimit(resource, &more);
    (void)syscall(SYS_prlimit64, pid, resource, NULL, &after);
    (void)snprintf(what, sizeof(what), "raising %s of %s", name, pid == 0 ? "itself" : "init");
    attack_check(what, after.rlim_max == before.rlim_max && after.rlim_max != RLIM_INFINITY,
                 "%llu to %llu", (unsigned long long)before.rlim_max,
                 (unsigned long long)after.rlim_max);
}

static void raise_limits(void)
{
    static const struct {
        const char *name;
        int resource;
    } limits[] = {{"core", RLIMIT_CORE},
                  {"nofile", RLIMIT_NOFILE},
                  {"nproc", RLIMIT_NPROC},
                  {"memlock", RLIMIT_MEMLOCK},
                  {"nice", RLIMIT_NICE},
                  {"rtprio", RLIMIT_RTPRIO},
                  {"sigpending", RLIMIT_SIGPENDING},
                  {"msgqueue", RLIMIT_MSGQUEUE}};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        raise_limit(limits[i].name, 0, limits[i].resource);
        raise_limit(limits[i].name, 1, limits[i].resource);
    }
}

/* ---- 54: crashes ---- */

static int crash(void *argument)
{
    (void)argument;
    (void)signal(SIGSEGV, SIG_DFL);
    (void)raise(SIGSEGV);
    return 0;
}

static void dump_core(void)
{
    static const rlim_t wanted[] = {RLIM_INFINITY, 1 << 20, 2, 0};
    struct rlimit limit;
    int status;

    /* A core_pattern that starts a program of the host heeds no limit but 1. */
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        limit = (struct rlimit){wanted[i], wanted[i]};
        (void)setrlimit(RLIMIT_CORE, &limit);
        (void)syscall(SYS_prlimit64, 0, RLIMIT_CORE, &limit, NULL);
        (void)getrlimit(RLIMIT_CORE, &limit);
        attack_check("the size of a core", limit.rlim_cur == 1 && limit.rlim_max == 1, "%llu, %llu",
                     (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    }
    status = attack_child(crash, NULL);
    attack_check("a crash", WIFSIGNALED(status) && !WCOREDUMP(status), "status %#x",
                 (unsigned)status);
}

/* ---- 55 and 56: files that cannot be written, by way of memory ---- */

static unsigned long sum_of(const char *path)
{
    unsigned long sum = 5381;
    unsigned char buffer[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    while (fd >= 0 && (n = read(fd, buffer, sizeof(buffer))) > 0)
        for (ssize_t i = 0; i < n; i++)
            sum = sum * 33 + buffer[i];
    if (fd >= 0)
        (void)close(fd);
    return sum;
}

static void write_by_memory(void)
{
    const char *path = attack_word(0, "/usr/bin/env");
    int fd = open(path, O_RDONLY | O_CLOEXEC), mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    unsigned long before = sum_of(path);
    char *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    char *shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

    attack_check("mapping a file of the root", mapped != MAP_FAILED && shared != MAP_FAILED, "%s",
                 path);
    if (mem >= 0) {
        /* A private mapping may be written this way: it must be a copy. */
        (void)!pwrite(mem, "XXXX", 4, (off_t)(uintptr_t)(mapped + 16));
        REFUSED("a shared mapping by /proc/self/mem",
                pwrite(mem, "XXXX", 4, (off_t)(uintptr_t)(shared + 16)), EIO, EFAULT, EPERM);
        (void)close(mem);
    }
    REFUSED("making a shared mapping writable", mprotect(shared, 4096, PROT_READ | PROT_WRITE),
            EACCES);
    attack_check("the file afterwards", sum_of(path) == before, "%s", path);
    (void)close(fd);
}

/* Splices a page of the file into a pipe and writes on: that must not go into the page. */
static void write_by_pipe(void)
{
    const char *path = attack_word(0, "/usr/bin/env");
    unsigned long before = sum_of(path);
    int ends[2], fd = open(path, O_RDONLY | O_CLOEXEC);
    static char fill[65536];
    loff_t offset = 1;

    if (pipe(ends) == 0) {
        /* Full and empty again, so that every slot of the ring was used with merging allowed. */
        (void)fcntl(ends[1], F_SETFL, O_NONBLOCK);
        (void)!write(ends[1], fill, sizeof(fill));
        (void)!read(ends[0], fill, sizeof(fill));
        (void)splice(fd, &offset, ends[1], NULL, 1, 0);
        (void)!write(ends[1], "XXXX", 4);
        (void)close(ends[0]);
        (void)close(ends[1]);
    }
    attack_check("writing on behind a spliced page", sum_of(path) == before, "%s", path);
    REFUSED("AF_ALG", socket(AF_ALG_FAMILY, SOCK_SEQPACKET, 0), EAFNOSUPPORT);
    REFUSED("AF_ALG, pair", socketpair(AF_ALG_FAMILY, SOCK_SEQPACKET, 0, ends), EAFNOSUPPORT);
    REFUSED("writing to the file", attack_open(path, O_WRONLY), EROFS, EACCES, EPERM, ETXTBSY);
    (void)close(fd);
}

const struct attack calls_attacks[] = {
    {48, foreign_calls},   {49, push_terminal}, {50, processor},
    {51, machine},         {53, raise_limits},  {54, dump_core},
    {55, write_by_memory}, {56, write_by_pipe}, {0, NULL},
};
