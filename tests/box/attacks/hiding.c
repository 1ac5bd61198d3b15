/* Entry 68: memory where whoever only adds up resident sizes does not look: page tables, threads whose
 * first one has ended, a process with an endless /proc/PID/status, one whose mappings take long to
 * read, shared pages that nothing maps in, System V objects and pinned pages, and what the kernel keeps of files
 * and mappings. One that comes to its end was not stopped, and says so. */
#include "attack.h"

#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024UL * 1024UL)
#define PAGE 4096UL

static void rest(long ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&time, NULL);
}

static char *map(size_t size, int flags)
{
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

    return at == MAP_FAILED ? NULL : at;
}

/* Three times the limit, in steps, and a while to be found. */
static void take(size_t limit)
{
    for (size_t taken = 0; taken < 3 * limit; taken += MIB) {
        char *at = map(MIB, MAP_PRIVATE);

        if (at == NULL)
            return;
        memset(at, 'x', MIB);
        rest(2);
    }
    rest(300);
}

static void survive(const char *kind)
{
    attack_check(kind, false, "it was not stopped");
    (void)fflush(stdout);
}

static size_t limit;

static void *outlive(void *nothing)
{
    rest(50);
    take(limit);
    survive("leader");
    _exit(0);
    return nothing;
}

static void hide_leader(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, outlive, NULL) == 0)
        (void)syscall(SYS_exit, 0);
}

/* One page table of 4 KiB for each 2 MiB, and the zero page in all of them. */
static void hide_tables(void)
{
    size_t step = 2 * MIB, size = 3 * limit / PAGE * step;
    const volatile char *at = map(size, MAP_PRIVATE | MAP_NORESERVE);

    if (at == NULL)
        return;
    (void)madvise((void *)(uintptr_t)at, size, MADV_NOHUGEPAGE);
    for (size_t byte = 0; byte < size; byte += step) {
        (void)at[byte];
        if (byte / step % 256 == 0)
            rest(2);
    }
    rest(300);
}

static void hide_groups(void)
{
    static gid_t groups[1000];

    for (size_t i = 0; i < 1000; i++)
        groups[i] = (gid_t)(i % 1000);
    (void)!setgroups(1000, groups); /* whoever has one id has no groups to hide behind */
    take(limit);
}

/* So many mappings that to read them takes longer than a watchdog has. */
static void hide_mappings(void)
{
    for (int i = 0; i < 4; i++) {
        if (fork() != 0)
            continue;
        for (size_t made = 0; made < 30000; made++)
            (void)mmap(NULL, PAGE, made % 2 == 0 ? PROT_READ : PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        rest(60000);
        _exit(0);
    }
    rest(500);
    take(limit);
}

/* Memory of the kernel for mappings, and for open files: hardly a page of the processes that have them. */
static void keep_in_kernel(void (*take_one)(size_t number))
{
    for (int i = 0; i < 16; i++) {
        if (fork() != 0)
            continue;
        for (size_t number = 0; number < 60000; number++)
            take_one(number);
        rest(60000);
        _exit(0);
    }
    rest(10000);
}

static void map_page(size_t number)
{
    (void)mmap(NULL, PAGE, number % 2 == 0 ? PROT_READ : PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
               -1, 0);
}

static void open_event(size_t number)
{
    (void)number;
    (void)eventfd(0, EFD_CLOEXEC);
}

static void hide_many_mappings(void)
{
    (void)prctl(PR_SET_DUMPABLE, 0);
    keep_in_kernel(map_page);
}

static void hide_many_files(void)
{
    keep_in_kernel(open_event);
}

/* Three times the limit of a shared mapping, of which no page is in any process: each is written and
 * let go of, and stays in the file behind it. */
static void let_go(int fd, int flags)
{
    char *at = mmap(NULL, 3 * limit, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);

    if (at == MAP_FAILED)
        return;
    for (size_t taken = 0; taken < 3 * limit; taken += MIB) {
        memset(at + taken, 'x', MIB);
        (void)madvise(at + taken, MIB, MADV_DONTNEED);
        rest(2);
    }
    rest(300);
}

static void hide_anonymous(void)
{
    let_go(-1, MAP_ANONYMOUS);
}

static void hide_zero(void)
{
    let_go(open("/dev/zero", O_RDWR | O_CLOEXEC), 0);
}

/* Where whoever watches only adds up processes, there is no such memory. */
static void refuse_shared(void)
{
    static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR};
    char byte = 'x';

    /* Not libc's: musl makes ENOMEM of it. */
    REFUSED("shared memory of no file",
            syscall(SYS_mmap, 0UL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0L),
            EPERM);
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        int fd = open("/dev/zero", flags[i] | O_CLOEXEC);

        REFUSED("shared memory of /dev/zero",
                mmap(NULL, MIB, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0, ENODEV,
                EACCES);
        (void)close(fd);
    }
    attack_check("zeros of /dev/zero",
                 read(open("/dev/zero", O_RDONLY | O_CLOEXEC), &byte, 1) == 1 && byte == 0,
                 "errno %d", errno);
}

static void hide_pinned(void)
{
    int ends[2];
    char *at = map(4 * MIB, MAP_PRIVATE);
    struct iovec page = {.iov_base = at, .iov_len = PAGE};

    if (at != NULL && pipe(ends) == 0)
        REFUSED("vmsplice", vmsplice(ends[1], &page, 1, 0), ENOSYS);
    REFUSED("semget", semget(IPC_PRIVATE, 32000, IPC_CREAT | 0600), ENOSYS);
    REFUSED("shmget", shmget(IPC_PRIVATE, MIB, IPC_CREAT | 0600), ENOSYS);
    refuse_shared();
}

static void hide(void)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } kinds[] = {{"leader", hide_leader},         {"tables", hide_tables},
                 {"groups", hide_groups},         {"mappings", hide_mappings},
                 {"anonymous", hide_anonymous},   {"zero", hide_zero},
                 {"many-files", hide_many_files}, {"many-mappings", hide_many_mappings},
                 {"pinned", hide_pinned}};
    const char *kind = attack_word(0, "leader");

    limit = (size_t)attack_number(1, 64) * MIB;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, kind) != 0)
            continue;
        kinds[i].run();
        if (kinds[i].run != hide_pinned)
            survive(kind);
    }
}

const struct attack hiding_attacks[] = {
    {68, hide},
    {0, NULL},
};
