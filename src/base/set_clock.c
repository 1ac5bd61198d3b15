/* See set_clock.h. In no list of sources but that of test builds. */
#include "base/set_clock.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The file. The test writes the first two, the second one last; each program its own of the others. */
struct page {
    _Atomic uint64_t ahead_ns, asked;
    _Atomic uint64_t ran[SET_CLOCK_PROGRAMS];
};

static struct page own;
static struct page *page = &own;
static int news = -1;

/* Libraries call this one, too: a program's own function goes before that of the C library. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *now)
{
    uint64_t ahead_ns;

    if (syscall(SYS_clock_gettime, id, now) < 0)
        return -1;
    if (id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_COARSE && id != CLOCK_REALTIME &&
        id != CLOCK_REALTIME_COARSE)
        return 0;
    ahead_ns = atomic_load(&page->ahead_ns) + (uint64_t)now->tv_nsec;
    now->tv_sec += (time_t)(ahead_ns / 1000000000U);
    now->tv_nsec = (long)(ahead_ns % 1000000000U);
    return 0;
}

static int follow(int file, struct error *err)
{
    void *there = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

    if (there == MAP_FAILED)
        return error_set(err, "bad_start", errno, "cannot follow the file of COVE_TEST_CLOCK");
    page = there;
    return 0;
}

static const char *path_given(void)
{
    return getenv("COVE_TEST_CLOCK"); // NOLINT(concurrency-mt-unsafe): nobody sets it
}

static int watch(const char *path)
{
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

    if (fd >= 0 && inotify_add_watch(fd, path, IN_MODIFY) < 0)
        fd_close(&fd);
    return fd;
}

int set_clock_open(struct error *err)
{
    _cleanup_close_ int file = -1;
    const char *path = path_given();

    if (path == NULL)
        return 0;
    file = open(path, O_RDWR | O_CLOEXEC);
    news = watch(path);
    if (file < 0 || news < 0)
        return error_set(err, "bad_start", errno, "cannot open %s of COVE_TEST_CLOCK", path);
    return follow(file, err);
}

size_t set_clock_give(int fds[SET_CLOCK_FDS])
{
    const char *path = path_given();

    if (path == NULL)
        return 0;
    fds[0] = open(path, O_RDWR | O_CLOEXEC);
    fds[1] = watch(path);
    return SET_CLOCK_FDS;
}

int set_clock_take(int first, struct error *err)
{
    _cleanup_close_ int file = first;

    news = first + 1;
    if (fcntl(file, F_SETFD, FD_CLOEXEC) < 0 || fcntl(news, F_SETFD, FD_CLOEXEC) < 0)
        return error_set(err, "bad_start", errno, "the fds of COVE_TEST_CLOCK are missing");
    return follow(file, err);
}

int set_clock_news(void)
{
    return news;
}

uint64_t set_clock_heard(void)
{
    char events[1024];

    while (news >= 0 && read(news, events, sizeof(events)) > 0)
        ;
    return atomic_load(&page->asked);
}

void set_clock_ran(enum set_clock_program program, uint64_t asked)
{
    atomic_store(&page->ran[program], asked);
}

void set_clock_advance(uint64_t ns)
{
    (void)atomic_fetch_add(&page->ahead_ns, ns);
}
