/* Entry 75: watches that tell what others read, of files that all boxes share. Each way has an inotify instance of its
 * own. The test reads the files in another box and on the host, and then says so on stdin. */
#include "attack.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READS (IN_ACCESS | IN_CLOSE_NOWRITE | IN_OPEN)
#define OWN "/tmp/own"
#define RACES 500

static int plain(int inotify, const char *path)
{
    return inotify_add_watch(inotify, path, IN_ALL_EVENTS);
}

static int added(int inotify, const char *path)
{
    if (inotify_add_watch(inotify, path, IN_DELETE_SELF) < 0)
        return -1;
    return inotify_add_watch(inotify, path, IN_MASK_ADD | READS);
}

static int by_number(int inotify, const char *path)
{
    char link[64];
    int fd = open(path, O_PATH | O_CLOEXEC), watch;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    watch = inotify_add_watch(inotify, link, READS);
    (void)close(fd);
    return watch;
}

static int by_link(int inotify, const char *path)
{
    (void)unlink("/tmp/link");
    return symlink(path, "/tmp/link") < 0 ? -1 : inotify_add_watch(inotify, "/tmp/link", READS);
}

static int with_high_bits(int inotify, const char *path)
{
    return (int)syscall(SYS_inotify_add_watch, inotify, path, 0xffffffff00000000UL | READS);
}

static int with_forged_keys(int inotify, const char *path)
{
    static const unsigned long keys[] = {0, ~0UL, 1};
    int watch = -1;

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        watch = (int)syscall(SYS_inotify_add_watch, inotify, path, READS, keys[i], keys[i],
                             keys[i]);
    return watch;
}

/* ---- a path that changes while it is looked at ---- */

static char raced[256];
static atomic_bool is_over;

static void *change(void *path)
{
    while (!is_over) {
        memcpy(raced, OWN, sizeof(OWN));
        memcpy(raced, path, strlen(path) + 1);
    }
    return NULL;
}

static int by_race(int inotify, const char *path)
{
    pthread_t thread;

    (void)snprintf(raced, sizeof(raced), "%s", path);
    is_over = false;
    if (pthread_create(&thread, NULL, change, (void *)(uintptr_t)path) != 0)
        return -1;
    for (int i = 0; i < RACES; i++)
        (void)inotify_add_watch(inotify, raced, READS);
    is_over = true;
    (void)pthread_join(thread, NULL);
    (void)inotify_rm_watch(inotify, inotify_add_watch(inotify, OWN, IN_MODIFY));
    return inotify_add_watch(inotify, path, IN_MASK_ADD | IN_MODIFY);
}

static const struct {
    const char *name;
    int (*add)(int inotify, const char *path);
} ways[] = {{"all events", plain},
            {"added to a watch", added},
            {"by the number of an fd", by_number},
            {"by a link", by_link},
            {"with high bits", with_high_bits},
            {"with forged keys", with_forged_keys},
            {"with a path that changes", by_race}};

#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* What was heard of reads, since it was asked last. */
static unsigned heard(int inotify)
{
    char events[4096] __attribute__((aligned(8)));
    unsigned reads = 0;
    ssize_t n;

    while ((n = read(inotify, events, sizeof(events))) > 0)
        for (ssize_t at = 0; at < n;) {
            struct inotify_event *event = (struct inotify_event *)(void *)(events + at);

            reads |= event->mask & READS;
            at += (ssize_t)(sizeof(*event) + event->len);
        }
    return reads;
}

/* What a box has for itself it may watch: else nothing here would say anything. */
static void watch_own(void)
{
    int inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    int watch = inotify_add_watch(inotify, OWN, IN_ALL_EVENTS);

    (void)attack_open(OWN, O_RDONLY);
    attack_check("a file of its own", watch >= 0 && heard(inotify) == (IN_OPEN | IN_CLOSE_NOWRITE),
                 "%d", watch);
    (void)close(inotify);
}

static void watch_shared(void)
{
    int inotify[WAYS];
    const char *path;
    char line[16];

    (void)attack_open(OWN, O_WRONLY | O_CREAT);
    watch_own();
    for (size_t way = 0; way < WAYS; way++) {
        bool taken = true;

        inotify[way] = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
        for (int i = 0; (path = attack_word(i, NULL)) != NULL; i++)
            taken = ways[way].add(inotify[way], path) >= 0 && taken;
        attack_check(ways[way].name, taken, "such a watch is taken: %d", errno);
        (void)heard(inotify[way]);
    }
    (void)puts("ready");
    (void)fflush(stdout);
    (void)!read(0, line, sizeof(line));
    for (size_t way = 0; way < WAYS; way++) {
        unsigned reads = heard(inotify[way]);

        attack_check(ways[way].name, reads == 0, "heard of reads: %#x", reads);
    }
}

const struct attack watching_attacks[] = {{75, watch_shared}, {0, NULL}};
