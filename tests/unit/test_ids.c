/* Id ranges: never one that somebody else has, given back by release and by death alone, and the
 * files that say who has what may hold anything. */
#include "box/ids.h"
#include "box/owner.h"

#include "base/clock.h"
#include "base/fd.h"
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char top[] = "/tmp/cove-test-ids-XXXXXX";
static char directory[64], lock_path[80], subuid[64], subgid[64];

static void file_put(const char *path, const char *text, size_t size)
{
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || fd_write_full(fd, text, size) < 0) {
        perror(path);
        exit(1);
    }
}

static int pool_open(struct ids_pool *pool, const char *users, const char *groups,
                     struct error *err)
{
    file_put(subuid, users, strlen(users));
    file_put(subgid, groups, strlen(groups));
    return ids_open_files(pool, directory, subuid, subgid, err);
}

/* The slots that the files took. */
static uint32_t taken_count(const struct ids_pool *pool)
{
    uint32_t count = 0;

    for (size_t i = 0; i < sizeof(pool->taken); i++)
        count += (uint32_t)__builtin_popcount(pool->taken[i]);
    return count;
}

static bool is_taken(const struct ids_pool *pool, uint32_t first)
{
    uint32_t slot = (first - IDS_FIRST) / IDS_COUNT;

    return (pool->taken[slot / 8] >> slot % 8 & 1) != 0;
}

static void check_ranges_are_apart(void)
{
    struct ids_pool one, other;
    struct ids a[500], b[500];
    struct error err = {0};
    bool apart = true;

    CHECK(pool_open(&one, "", "", &err) == 0, "%s", err.text);
    CHECK(pool_open(&other, "", "", &err) == 0, "%s", err.text);
    other.next = one.next; /* the worst start: every slot of one is tried by the other */
    for (int i = 0; i < 500; i++) {
        CHECK(ids_take(&one, &a[i], &err) == 0, "%s", err.text);
        CHECK(ids_take(&other, &b[i], &err) == 0, "%s", err.text);
        CHECK(a[i].first >= IDS_FIRST && a[i].first % IDS_COUNT == 0 && a[i].count == IDS_COUNT &&
                  a[i].first + a[i].count <= IDS_END,
              "the range %u+%u", a[i].first, a[i].count);
    }
    for (int i = 0; i < 500; i++)
        for (int j = 0; j < 500; j++)
            apart = apart && a[i].first != b[j].first && (i == j || a[i].first != a[j].first);
    CHECK(apart, "two boxes have one range");
    ids_close(&one);
    ids_close(&other);
}

static void check_subids_are_kept(void)
{
    struct ids_pool pool;
    struct error err = {0};

    CHECK(pool_open(&pool, "a:100000:65536\nb:524288:1\n", "c:655359:2\n", &err) == 0, "%s",
          err.text);
    CHECK(taken_count(&pool) == 3, "%u slots are taken, not 3", taken_count(&pool));
    CHECK(is_taken(&pool, 524288) && is_taken(&pool, 589824) && is_taken(&pool, 655360),
          "one entry may touch two ranges");
    ids_close(&pool);
    CHECK(pool_open(&pool, "a:1879048191:1", "b:458752:65536\nc:1879048192:9\n", &err) == 0, "%s",
          err.text);
    CHECK(taken_count(&pool) == 1 && is_taken(&pool, 1878982656),
          "the last line lacks its end and takes the last slot; the others lie outside");
    ids_close(&pool);
    CHECK(pool_open(&pool, "a:0:18446744073709551615\n", "", &err) == 0, "%s", err.text);
    CHECK(taken_count(&pool) == IDS_SLOTS, "one entry can take all");
    CHECK(ids_take(&pool, &(struct ids){0}, &err) == -1 && strcmp(err.code, "ids_used_up") == 0,
          "a range was taken from a user of the host");
    ids_close(&pool);
    CHECK(pool_open(&pool, "", "a:600000:99999999999999999999999\n", &err) == 0, "%s", err.text);
    CHECK(taken_count(&pool) == IDS_SLOTS - 1, "a count too large for a number takes the rest");
    CHECK(ids_take(&pool, &(struct ids){0}, &err) == 0, "the one that is left can be had");
    CHECK(ids_take(&pool, &(struct ids){0}, &err) == -1, "and only once");
    ids_close(&pool);
}

static void check_hostile_files(void)
{
    static const char odd[] = "\n:\n::\n:::\nname\na:b:c\na:1\na:-600000:1\na: 600000:1\n"
                              "a:600000:1x\na:600000:\na::1\na:600000:0\na:600000:1:1\n\0:1:2\n"
                              "x:18446744073709551616:5\ngood:786432:1\n";
    static const char after[] = "\nb:851968:1\n";
    struct ids_pool pool;
    struct error err = {0};
    char *large = malloc(5U << 20);

    if (large == NULL)
        exit(1);
    file_put(subuid, odd, sizeof(odd) - 1);
    file_put(subgid, "", 0);
    CHECK(ids_open_files(&pool, directory, subuid, subgid, &err) == 0, "%s", err.text);
    CHECK(taken_count(&pool) == 1 && is_taken(&pool, 786432),
          "%u slots are taken: only the last line is an entry", taken_count(&pool));
    ids_close(&pool);
    /* A line longer than any buffer is passed over, and what follows it is read. */
    memset(large, ':', 5U << 20);
    memcpy(large + 100000, after, sizeof(after));
    file_put(subuid, large, 100000 + sizeof(after) - 1);
    CHECK(ids_open_files(&pool, directory, subuid, subgid, &err) == 0, "%s", err.text);
    CHECK(taken_count(&pool) == 1 && is_taken(&pool, 851968), "the line after the long one");
    ids_close(&pool);
    memset(large, ':', 5U << 20);
    file_put(subuid, large, 5U << 20);
    CHECK(ids_open_files(&pool, directory, subuid, subgid, &err) == -1 &&
              strstr(err.text, subuid) != NULL,
          "a file too large to be right was taken: %s", err.text);
    free(large);
    (void)unlink(subuid);
    (void)unlink(subgid);
    CHECK(ids_open_files(&pool, directory, subuid, subgid, &err) == 0 && taken_count(&pool) == 0,
          "a host without these files: %s", err.text);
    ids_close(&pool);
    CHECK(ids_open_files(&pool, directory, directory, subgid, &err) == -1,
          "a directory was taken for a file");
}

/* A range is held by whoever has a copy of the fd, and by nobody else. */
static void check_death_frees(void)
{
    struct ids_pool pool;
    struct ids mine = {0}, theirs = {0};
    struct error err = {0};
    int pipe_fds[2];
    uint32_t start;
    pid_t child;
    char byte;

    /* Only one slot is left, so that who has it is no question. */
    const char *all_but_one = "a:0:524288\na:589824:4000000000\n";

    if (pipe(pipe_fds) < 0)
        exit(1);
    child = fork();
    if (child == 0) {
        if (pool_open(&pool, all_but_one, "", &err) < 0 || ids_take(&pool, &theirs, &err) < 0)
            _exit(1);
        (void)!write(pipe_fds[1], "x", 1);
        (void)pause();
        _exit(0);
    }
    CHECK(read(pipe_fds[0], &byte, 1) == 1, "the child got no range");
    CHECK(pool_open(&pool, all_but_one, "", &err) == 0, "%s", err.text);
    CHECK(ids_take(&pool, &mine, &err) == -1, "a range of a living process was taken");
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    CHECK(ids_take(&pool, &mine, &err) == 0 && mine.first == IDS_FIRST,
          "a range of a dead process was not free: %s", err.text);

    /* A guard that was forked keeps it when the maker closes. */
    start = mine.first;
    child = fork();
    if (child == 0) {
        (void)pause();
        _exit(0);
    }
    ids_close(&pool);
    CHECK(pool_open(&pool, all_but_one, "", &err) == 0, "%s", err.text);
    CHECK(ids_take(&pool, &mine, &err) == -1, "the range %u of a living guard was taken", start);
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    CHECK(ids_take(&pool, &mine, &err) == 0, "%s", err.text);

    ids_release(&pool, &mine);
    CHECK(mine.count == 0, "a released range still names ids");
    ids_release(&pool, &mine); /* does nothing */
    CHECK(ids_take(&pool, &mine, &err) == 0, "a released range is free: %s", err.text);
    ids_close(&pool);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
}

static void check_lock_file_is_ours(void)
{
    struct ids_pool pool;
    struct error err = {0};
    struct stat st;

    CHECK(stat(directory, &st) == 0 && (st.st_mode & 07777) == 0755, "mode %o of the directory",
          st.st_mode);
    CHECK(stat(lock_path, &st) == 0 && (st.st_mode & 07777) == 0600 && st.st_size == 0,
          "mode %o of the lock file", st.st_mode);

    (void)chmod(lock_path, 0666);
    CHECK(pool_open(&pool, "", "", &err) == -1, "a lock file that all may write was taken");
    (void)unlink(lock_path);
    CHECK(symlink(subuid, lock_path) == 0, "symlink");
    CHECK(pool_open(&pool, "", "", &err) == -1, "a link was followed");
    (void)unlink(lock_path);
    CHECK(mkfifo(lock_path, 0600) == 0, "mkfifo");
    CHECK(pool_open(&pool, "", "", &err) == -1, "a FIFO was taken");
    (void)unlink(lock_path);
    if (geteuid() == 0) {
        file_put(lock_path, "", 0);
        CHECK(chown(lock_path, 12345, 12345) == 0, "chown");
        CHECK(pool_open(&pool, "", "", &err) == -1, "a lock file of somebody else was taken");
        (void)unlink(lock_path);
    }
    (void)chmod(directory, 0777);
    CHECK(pool_open(&pool, "", "", &err) == -1 && strstr(err.text, directory) != NULL,
          "a directory that all may write was taken");
    (void)rmdir(directory);
    CHECK(symlink(top, directory) == 0, "symlink");
    CHECK(pool_open(&pool, "", "", &err) == -1, "a link to a directory was followed");
    (void)unlink(directory);
    CHECK(pool_open(&pool, "", "", &err) == 0, "a missing directory is made: %s", err.text);
    ids_close(&pool);
}

static uint64_t cpu_ns(void)
{
    struct timespec used;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000U + (uint64_t)used.tv_nsec;
}

/* 5,000 boxes in one process. The bound is a hundred times what it takes, for a busy machine. */
static void check_many_are_fast(void)
{
    static struct ids ids[5000];
    struct ids_pool pool, other;
    struct error err = {0};
    uint64_t start;
    bool is_good = true;

    CHECK(pool_open(&pool, "", "", &err) == 0, "%s", err.text);
    start = cpu_ns();
    for (int i = 0; i < 5000; i++)
        is_good = ids_take(&pool, &ids[i], &err) == 0 && is_good;
    printf("take: %.2f us each, 5,000 held\n", (double)(cpu_ns() - start) / 5000 / 1000);
    CHECK(is_good && cpu_ns() - start < 1000000000U, "5,000 ranges took over a second");

    CHECK(pool_open(&other, "", "", &err) == 0, "%s", err.text);
    other.next = (ids[0].first - IDS_FIRST) / IDS_COUNT;
    start = cpu_ns();
    CHECK(ids_take(&other, &ids[0], &err) == 0, "%s", err.text);
    printf("take behind 5,000 of somebody else: %.1f us\n", (double)(cpu_ns() - start) / 1000);
    CHECK(cpu_ns() - start < 100000000U, "the holder's ranges were tried one by one");
    ids_close(&other);
    ids_close(&pool);
}

/* A process that could not become itself again after it made a box would serve all others as that box's root. */
static void check_nobody_stays_an_owner(void)
{
    const struct owner owner = {.is_other = true, .before = 0, .securebits = -1};
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        (void)prctl(PR_SET_DUMPABLE, 0); /* no core file */
        if (geteuid() == 0 && setresuid(12345, 12345, 12345) < 0)
            _exit(1);
        owner_leave(&owner);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT,
          "it went on: %x", (unsigned)status);
}

int main(void)
{
    if (mkdtemp(top) == NULL) {
        perror(top);
        return 1;
    }
    (void)snprintf(directory, sizeof(directory), "%s/run", top);
    (void)snprintf(lock_path, sizeof(lock_path), "%s/ids.lock", directory);
    (void)snprintf(subuid, sizeof(subuid), "%s/subuid", top);
    (void)snprintf(subgid, sizeof(subgid), "%s/subgid", top);
    check_ranges_are_apart();
    check_subids_are_kept();
    check_hostile_files();
    check_death_frees();
    check_lock_file_is_ours();
    check_many_are_fast();
    check_nobody_stays_an_owner();
    (void)unlink(lock_path);
    (void)unlink(subuid);
    (void)unlink(subgid);
    (void)rmdir(directory);
    CHECK(rmdir(top) == 0, "%s is left", top);
    return check_finish();
}
