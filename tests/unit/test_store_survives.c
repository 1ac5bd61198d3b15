/* What must survive does: writers that are killed at any moment, a disk that is full, a damaged file, a
 * newer program's store, a change of the schema. COVE_SOAK=1 kills more often. */
#include "store_env.h"

#include "store/store_parts.h"

#include "check.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- killed writers ---- */

#define AT_ONCE 16
#define PATIENCE_MS 60000

struct told { /* through the pipe, for each write that was acknowledged */
    uint64_t number, revision, sequence;
};

struct victim {
    struct env env;
    int pipe;
    uint64_t next;
};

struct errand {
    struct victim *victim;
    struct told told;
};

static void errand_start(struct victim *victim);

static void errand_published(void *arg, uint64_t sequence, const struct error *err)
{
    struct errand *errand = arg;

    errand->told.sequence = sequence;
    if (err != NULL || fd_write_full(errand->victim->pipe, &errand->told, sizeof(errand->told)) < 0)
        _exit(2);
    errand_start(errand->victim);
    free(errand);
}

static void errand_put(void *arg, uint64_t revision, const struct error *err)
{
    struct errand *errand = arg;

    if (err != NULL)
        _exit(2);
    errand->told.revision = revision;
}

static void errand_start(struct victim *victim)
{
    struct errand *errand = calloc(1, sizeof(*errand));
    char key[32], text[32];

    if (errand == NULL)
        _exit(2);
    errand->victim = victim;
    errand->told.number = victim->next++;
    (void)snprintf(key, sizeof(key), "k/%" PRIu64, errand->told.number);
    (void)snprintf(text, sizeof(text), "%" PRIu64, errand->told.number);
    store_put(victim->env.store, "latest", text, strlen(text), STORE_ANY, NULL, NULL);
    store_put(victim->env.store, key, text, strlen(text), STORE_ANY, errand_put, errand);
    store_publish(victim->env.store, "stream", text, strlen(text), 1000, errand_published, errand);
}

static pid_t victim_start(const struct env *env, uint64_t first, int *out)
{
    struct victim victim = {.env = *env, .next = first};
    int ends[2];
    pid_t pid;

    if (pipe(ends) < 0 || (pid = fork()) < 0)
        abort();
    *out = ends[0];
    if (pid > 0) {
        (void)close(ends[1]);
        return pid;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)close(ends[0]);
    victim.pipe = ends[1];
    if (env_open(&victim.env) < 0) {
        printf("%s\n", victim.env.err.text);
        _exit(3);
    }
    for (unsigned i = 0; i < AT_ONCE; i++)
        errand_start(&victim);
    (void)uv_run(&victim.env.loop, UV_RUN_DEFAULT);
    _exit(4);
}

static uint64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Kills it that time after it has told so much, and keeps what it has told; how many. */
static size_t victim_kill(pid_t pid, int fd, size_t first, unsigned after_ms, struct told *told,
                          size_t most)
{
    uint64_t end = now_ms() + (first > 0 ? PATIENCE_MS : after_ms);
    size_t count = 0;
    bool is_killed = false;
    int status = 0;

    while (count < most) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        uint64_t now = now_ms();

        if (!is_killed && now >= end)
            is_killed = kill(pid, SIGKILL) == 0;
        if (poll(&ready, 1, is_killed ? -1 : (int)(end - now)) <= 0)
            continue;
        if (fd_read_full(fd, &told[count], sizeof(*told)) != (ssize_t)sizeof(*told))
            break;
        if (++count == first)
            end = now_ms() + after_ms;
    }
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "it ended by itself: %x", status);
    return count;
}

struct ends {
    uint64_t latest, revision, sequence;
};

/* All that was told is there, and nothing has gone back. */
static void told_check(struct env *env, const struct told *told, size_t count, struct ends *ends)
{
    struct heard heard = {.most = 1};
    struct store_value value;
    struct error err;
    uint64_t first = 0, next = 0;
    char key[32];

    for (size_t i = 0; i < count; i++) {
        (void)snprintf(key, sizeof(key), "k/%" PRIu64, told[i].number);
        CHECK(store_get(env->store, key, &value, &err) == 1 && value.revision == told[i].revision &&
                  strcmp(value.data, key + 2) == 0,
              "%s was acknowledged and is lost", key);
        store_value_free(&value);
        if (told[i].number > ends->latest)
            ends->latest = told[i].number;
        if (told[i].revision > ends->revision)
            ends->revision = told[i].revision;
        if (told[i].sequence > ends->sequence)
            ends->sequence = told[i].sequence;
    }
    CHECK(store_revision(env->store) >= ends->revision, "the revision went back");
    CHECK(store_read(env->store, "stream", 0, 1, heard_each, &heard, &first, &next, &err) == 0 &&
              next > ends->sequence,
          "the stream went back to %" PRIu64, next);
    if (ends->latest == 0)
        return;
    CHECK(store_get(env->store, "latest", &value, &err) == 1 &&
              strtoull(value.data, NULL, 10) >= ends->latest,
          "\"latest\" went back");
    store_value_free(&value);
}

static void check_killed(void)
{
    static struct told told[200000];
    unsigned rounds = getenv("COVE_SOAK") != NULL ? 400 : 20, random = 12345;
    struct ends ends = {0};
    size_t all = 0, count;
    struct env env;

    env_directory(&env);
    for (unsigned i = 0; i < rounds; i++) {
        int fd;
        /* Never the same number twice, for some were written and not told. */
        pid_t pid = victim_start(&env, (uint64_t)i * 1000000 + 1, &fd);

        random = random * 1103515245 + 12345;
        /* Every second one has begun to write, however slow the disk. */
        count = victim_kill(pid, fd, i % 2 == 1 ? AT_ONCE : 0, (random >> 16) % 150, told,
                            sizeof(told) / sizeof(told[0]));
        (void)close(fd);
        all += count;
        CHECK(env_open(&env) == 0, "after kill %u: %s", i, env.err.text);
        if (env.store == NULL)
            break;
        told_check(&env, told, count, &ends);
        env_close(&env);
    }
    CHECK(all / rounds > 5, "only %zu writes were acknowledged", all);
    printf("%u kills, %zu acknowledged writes\n", rounds, all);
    env_remove(&env);
}

/* ---- what an answer stands for ---- */

static _Atomic unsigned syncs;
static _Atomic bool sync_fails;

static int sync_do(long call, int fd)
{
    if (sync_fails) {
        errno = EIO;
        return -1;
    }
    syncs++;
    return (int)syscall(call, fd);
}

/* In the place of libc's, for SQLite too. */
__attribute__((visibility("default"))) int fdatasync(int fd)
{
    return sync_do(SYS_fdatasync, fd);
}

__attribute__((visibility("default"))) int fsync(int fd)
{
    return sync_do(SYS_fsync, fd);
}

/* A kill loses nothing that was written; a power cut loses what was not synced. So each answer has a sync
 * before it, and where the disk fails at that, the answer says so. */
static void check_synced(struct env *env)
{
    struct answer answer;
    struct store_value value;
    struct error err;

    for (unsigned i = 0; i < 20; i++) {
        unsigned before = syncs;

        CHECK(answer_is(env_put(env, "a", "x", STORE_ANY), "") && syncs > before,
              "acknowledged after %u syncs", syncs - before);
    }
    sync_fails = true;
    answer = env_put(env, "a", "lost", STORE_ANY);
    CHECK(answer_is(answer, "store_failed"), "%s: %s", answer.code, answer.err.text);
    CHECK(store_get(env->store, "a", &value, &err) == 1 && strcmp(value.data, "x") == 0 &&
              store_revision(env->store) == 20,
          "what was refused is read");
    store_value_free(&value);
    sync_fails = false;
    answer = env_put(env, "a", "y", 20);
    CHECK(answer_is(answer, "") && answer.revision == 21, "%s", answer.err.text);
}

/* ---- a full disk ---- */

/* A file system of its own, seen by this process only. */
static int small_disk(const char *path, const char *size)
{
    char uid_map[64], gid_map[64];
    uid_t uid = getuid();
    gid_t gid = getgid();

    if (uid == 0) {
        if (unshare(CLONE_NEWNS) < 0)
            return -1;
    } else {
        (void)snprintf(uid_map, sizeof(uid_map), "%u %u 1", uid, uid);
        (void)snprintf(gid_map, sizeof(gid_map), "%u %u 1", gid, gid);
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ||
            fd_write_file(AT_FDCWD, "/proc/self/setgroups", "deny") < 0 ||
            fd_write_file(AT_FDCWD, "/proc/self/uid_map", uid_map) < 0 ||
            fd_write_file(AT_FDCWD, "/proc/self/gid_map", gid_map) < 0)
            return -1;
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -1;
    return mount("small", path, "tmpfs", MS_NOSUID | MS_NODEV, size);
}

static void full_fill(struct env *env)
{
    static char data[20000];
    struct answer answer = {0}, small = {0};
    struct store_value value;
    struct error err;
    unsigned count = 0;
    char key[32];

    do {
        (void)snprintf(key, sizeof(key), "k/%03u", count++);
        answer = (struct answer){0};
        memset(data, 'a' + (int)(count % 26), sizeof(data));
        store_put(env->store, key, data, sizeof(data), 0, answer_take, &answer);
        env_wait(env);
    } while (answer.code[0] == '\0' && count < 1000);
    CHECK(answer_is(answer, "store_failed") && answer.err.errnum == ENOSPC && count > 10,
          "%u: %s: %s", count, answer.code, answer.err.text);
    CHECK(strstr(answer.err.text, "make room") != NULL, "%s", answer.err.text);
    /* One that is too big must not take the small one behind it along, if that fits. */
    CHECK(unlink("/tmp/ballast") == 0, "no ballast");
    memset(&answer, 0, sizeof(answer));
    store_put(env->store, "small", "x", 1, 0, answer_take, &small);
    env_wait(env);
    CHECK(answer_is(small, ""), "there is room and it says: %s", small.err.text);
    for (unsigned i = 0; i + 1 < count; i++) {
        (void)snprintf(key, sizeof(key), "k/%03u", i);
        CHECK(store_get(env->store, key, &value, &err) == 1 && value.size == sizeof(data), "%s",
              key);
        store_value_free(&value);
    }
    (void)snprintf(key, sizeof(key), "k/%03u", count - 1);
    CHECK(store_get(env->store, key, &value, &err) == 0, "what was refused is there");
    CHECK(store_revision(env->store) == count, "%" PRIu64 " after %u", store_revision(env->store),
          count);
}

/* Two at once, of which only one has room: they share a batch, not their fate. */
static void full_together(struct env *env)
{
    static char data[STORE_VALUE_MAX];
    struct answer big = {0}, small = {0};

    store_put(env->store, "too-big", data, sizeof(data), 0, answer_take, &big);
    store_put(env->store, "fits", "x", 1, 0, answer_take, &small);
    env_wait(env);
    CHECK(answer_is(big, "store_failed") && big.err.errnum == ENOSPC, "%s: %s", big.code,
          big.err.text);
    CHECK(answer_is(small, ""), "%s", small.err.text);
}

static unsigned full_put(struct env *env, const char *prefix, size_t leave)
{
    static const char data[1000];
    struct answer answer = {0};
    unsigned count = 0;
    char key[32];

    do {
        (void)snprintf(key, sizeof(key), "%s/%03u", prefix, count++);
        answer = (struct answer){0};
        store_put_leaving(env->store, leave, key, data, sizeof(data), 0, answer_take, &answer);
        env_wait(env);
    } while (answer.code[0] == '\0' && count < 10000);
    CHECK(answer_is(answer, "store_failed") && answer.err.errnum == ENOSPC &&
              strstr(answer.err.text, "make room") != NULL,
          "%s %u: %s: %s", prefix, count, answer.code, answer.err.text);
    return count - 1;
}

/* On a disk without a single block the log has room still, and who may use it is told apart; also by a
 * store that is opened anew there. */
static void full_kept(struct env *env)
{
    static char zeros[4096];
    struct error err;
    int fd = open("/tmp/ballast", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    CHECK(store_keep_room(env->store, &err) == 0, "%s", err.text);
    while (write(fd, zeros, sizeof(zeros)) > 0) {
    }
    (void)close(fd);
    (void)full_put(env, "usual", STORE_ROOM);
    CHECK(full_put(env, "again", STORE_ROOM) == 0, "what is usual takes of the room");
    CHECK(full_put(env, "half", STORE_ROOM / 2) > 50, "there is no room for it");
    CHECK(full_put(env, "usual again", STORE_ROOM) == 0, "what is usual takes of the room");
    CHECK(full_put(env, "all", 0) > 50, "there is no room for it");
}

static int kept_child(void)
{
    struct env env = {.directory = "/tmp/store"};

    CHECK(small_disk("/tmp", "size=16m") == 0, "a small disk");
    CHECK(env_open(&env) == 0, "%s", env.err.text);
    if (env.store != NULL) {
        full_kept(&env);
        env_close(&env);
    }
    (void)fflush(stdout);
    return check_failed > 0;
}

static int full_child(void)
{
    struct env env = {.directory = "/tmp/store"};
    int fd;

    if (small_disk("/tmp", "size=2m") < 0) {
        perror("a small disk");
        return 1;
    }
    fd = open("/tmp/ballast", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && posix_fallocate(fd, 0, 500000) == 0, "no ballast");
    (void)close(fd);
    CHECK(env_open(&env) == 0, "%s", env.err.text);
    if (env.store != NULL) {
        full_fill(&env);
        full_together(&env);
        env_close(&env);
        CHECK(env_open(&env) == 0, "%s", env.err.text);
        CHECK(store_revision(env.store) > 10, "%" PRIu64, store_revision(env.store));
        env_close(&env);
    }
    (void)fflush(stdout);
    return check_failed > 0;
}

static void check_full(int (*child)(void))
{
    int status = -1;
    pid_t pid;

    (void)fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit(child());
    (void)waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a full disk: %x", status);
}

/* ---- what is not to be opened ---- */

static void file_set(const struct env *env, const char *name, off_t at, const void *data,
                     size_t size)
{
    char path[256];
    _cleanup_close_ int fd = -1;

    (void)snprintf(path, sizeof(path), "%s/%s", env->directory, name);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && pwrite(fd, data, size, at) == (ssize_t)size, "%s", path);
}

static void check_refused(struct env *env, const char *code, const char *word)
{
    env->store = NULL;
    CHECK(env_open(env) == -1, "it was opened");
    if (env->store != NULL)
        env_close(env);
    CHECK(strcmp(env->err.code, code) == 0 && strstr(env->err.text, word) != NULL &&
              strstr(env->err.text, env->directory) != NULL,
          "%s: %s", env->err.code, env->err.text);
}

static void check_damaged(void)
{
    static char noise[4096];
    char text[64];
    struct env env;

    memset(noise, 0xa5, sizeof(noise));
    env_new(&env);
    for (unsigned i = 0; i < 2000; i++) {
        (void)snprintf(text, sizeof(text), "key/%u", i);
        store_put(env.store, text, text, strlen(text), 0, NULL, NULL);
    }
    env_close(&env);
    file_set(&env, "store.db", 4096 * 12L, noise, sizeof(noise)); /* a page in the middle */
    check_refused(&env, "store_corrupt", "damaged");
    file_set(&env, "store.db", 0, noise, 100);
    check_refused(&env, "store_corrupt", "put back a copy");
    file_set(&env, "FORMAT", 0, noise, 10);
    check_refused(&env, "store_corrupt", "FORMAT");
    file_set(&env, "FORMAT", 0, "cove-store 2\n", 13);
    check_refused(&env, "store_too_new", "newer cove");
    env_remove(&env);
}

/* What the page holds is damaged in a way that only the reader of it sees. */
static void check_damaged_later(struct env *env)
{
    static char noise[4096];
    struct store_value value;
    struct error err;
    char text[64];
    int found = 0;

    memset(noise, 0xa5, sizeof(noise));
    for (unsigned i = 0; i < 30000; i++) {
        (void)snprintf(text, sizeof(text), "key/%u", i);
        store_put(env->store, text, text, strlen(text), 0, NULL, NULL);
    }
    env_close(env);
    CHECK(env_open(env) == 0, "%s", env->err.text);
    for (off_t page = 20; page < 200; page++)
        file_set(env, "store.db", 4096 * page, noise, sizeof(noise));
    for (unsigned i = 0; i < 30000 && found == 0; i++) {
        (void)snprintf(text, sizeof(text), "key/%u", i);
        if (store_get(env->store, text, &value, &err) == -1)
            found = strcmp(err.code, "store_corrupt") == 0 ? 1 : -1;
        store_value_free(&value);
    }
    CHECK(found == 1, "%s: %s", err.code, err.text);
}

static void check_busy(struct env *env)
{
    struct store *second = NULL;
    struct error err;
    uv_loop_t loop;

    CHECK(uv_loop_init(&loop) == 0, "loop");
    CHECK(store_open(env->directory, &loop, &second, &err) == -1 &&
              strcmp(err.code, "store_busy") == 0 && strstr(err.text, env->directory) != NULL,
          "%s: %s", err.code, err.text);
    CHECK(uv_loop_close(&loop) == 0, "a handle is left");
}

static void check_private(void)
{
    static const char *const names[] = {"",       "store.db", "store.db-wal", "store.db-shm",
                                        "FORMAT", "lock"};
    mode_t old = umask(0);
    struct stat stat;
    struct env env;
    char path[256];

    env_new(&env);
    (void)env_put(&env, "a", "b", 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", env.directory, names[i]);
        CHECK(lstat(path, &stat) == 0 && (stat.st_mode & 077) == 0, "%s: mode %o", path,
              stat.st_mode);
    }
    (void)umask(old);
    env_end(&env);
    env_directory(&env);
    memcpy(env.directory + strlen(env.directory) - strlen("store"), "no/st", strlen("no/st"));
    CHECK(env_open(&env) == -1 && strstr(env.err.text, env.directory) != NULL, "%s", env.err.text);
    env.directory[strlen(env.directory) - strlen("/no/st")] = '\0';
    CHECK(remove_tree(AT_FDCWD, env.directory) == 0, "%s", env.directory);
}

/* ---- another schema ---- */

/* Today's and one step more. */
static void schema_next(struct schema *next, const char *steps[], const char *step)
{
    for (unsigned i = 0; i < schema_now.count; i++)
        steps[i] = schema_now.steps[i];
    steps[schema_now.count] = step;
    *next = (struct schema){steps, schema_now.count + 1};
}

static int open_as(struct env *env, const struct schema *schema)
{
    if (uv_loop_init(&env->loop) != 0)
        abort();
    env->store = NULL;
    if (store_open_as(env->directory, &env->loop, schema, &env->store, &env->err) == 0)
        return 0;
    if (uv_loop_close(&env->loop) != 0)
        abort();
    return -1;
}

static void check_value(struct env *env, const char *expected)
{
    struct store_value value;
    struct error err;

    CHECK(store_get(env->store, "a", &value, &err) == 1 && strcmp(value.data, expected) == 0,
          "%s: %s", expected, value.data == NULL ? err.text : (char *)value.data);
    store_value_free(&value);
}

static void check_migration(struct env *env)
{
    const char *steps[16];
    char copy[256], path[256];
    struct schema next;

    (void)env_put(env, "a", "before", 0);
    env_close(env);
    (void)snprintf(copy, sizeof(copy), "%s/store.db.schema-%u", env->directory, schema_now.count);
    CHECK(access(copy, F_OK) < 0, "a copy without a migration");

    /* A step that fails leaves all as it was. */
    schema_next(&next, steps, "UPDATE kv SET value = x'00'; SELECT nothing FROM nowhere");
    CHECK(open_as(env, &next) == -1 && strstr(env->err.text, "schema") != NULL, "%s",
          env->err.text);
    CHECK(env_open(env) == 0, "%s", env->err.text);
    check_value(env, "before");
    env_close(env);

    schema_next(&next, steps, "UPDATE kv SET value = CAST('after' AS BLOB)");
    CHECK(open_as(env, &next) == 0, "%s", env->err.text);
    check_value(env, "after");
    CHECK(answer_is(env_put(env, "b", "x", 0), ""), "it cannot be written to");
    env_close(env);
    CHECK(open_as(env, &next) == 0, "the step was taken twice: %s", env->err.text);
    check_value(env, "after");
    env_close(env);

    /* The older program refuses it; with the copy in its place it goes on from there. */
    check_refused(env, "store_too_new", "newer cove");
    (void)snprintf(path, sizeof(path), "%s/store.db", env->directory);
    CHECK(rename(copy, path) == 0, "%s was not kept", copy);
    CHECK(env_open(env) == 0, "%s", env->err.text);
    check_value(env, "before");
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    check_full(full_child);
    check_full(kept_child);
    check_killed();
    env_run(check_synced);
    check_damaged();
    env_run(check_damaged_later);
    env_run(check_busy);
    check_private();
    env_run(check_migration);
    return check_finish();
}
