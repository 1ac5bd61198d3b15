/* openat2(2) fails with EAGAIN when something is renamed while it walks up: each function of ours that opens
 * a path below a directory asks again, and gives up at last. The linker puts our own syscall() in the place
 * of libc's, which fails so as often as a test asks for it. */
#include "base/fd.h"
#include "box/init/files.h"
#include "box/sys.h"
#include "check.h"
#include "kernel/parts.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The linker says how they are called. */
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

static unsigned failing, asked;
static unsigned long seen[2]; /* the key */

/* Takes as many arguments as there may be, also where fewer were given, as libc's does. */
__attribute__((no_sanitize("address", "undefined"))) long __wrap_syscall(long number, ...)
{
    unsigned long argument[6];
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++)
        argument[i] = va_arg(list, unsigned long);
    va_end(list);
    if (number == SYS_openat2) {
        asked++;
        seen[0] = argument[4];
        seen[1] = argument[5];
        if (failing > 0) {
            failing--;
            errno = EAGAIN;
            return -1;
        }
    }
    return __real_syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4],
                          argument[5]);
}

static char directory[] = "/tmp/cove-openat2-XXXXXX";
static int dir = -1;
static const uint32_t key[4] = {1, 2, 3, 4};

static int by_fd(void)
{
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC, .resolve = RESOLVE_BENEATH};

    return fd_openat2(dir, "inner/../file", &how, NULL);
}

static int by_below(void)
{
    return fd_open_below(dir, "inner/../file", O_RDONLY, 0, FD_IN_ROOT);
}

static int by_kernel(void)
{
    return path_open(dir, "inner/../file", O_RDONLY, 0);
}

/* As init opens for the engine: below the root that it is in. */
static int by_init(void)
{
    struct {
        struct proto_open head;
        char path[64];
    } request = {.head = {.flags = O_RDONLY}};
    int fd;

    (void)snprintf(request.path, sizeof(request.path), "%s/inner/../file", directory);
    fd = files_open(&request.head, key);
    CHECK(seen[0] == (1UL | 2UL << 32) && seen[1] == (3UL | 4UL << 32), "the key: %lx %lx", seen[0],
          seen[1]);
    return fd;
}

static const struct {
    const char *name;
    int (*open)(void);
    unsigned calls; /* at most, where it never succeeds */
} ways[] = {
    {"fd_openat2", by_fd, FD_OPENAT2_TRIES},
    {"fd_open_below", by_below, FD_OPENAT2_TRIES},
    {"files_open", by_init, FD_OPENAT2_TRIES},
    /* It asks in addition whether the path, or a part of it, leads to /proc. */
    {"path_open", by_kernel, 4 * FD_OPENAT2_TRIES},
};

static void test_asks_again(void)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        _cleanup_close_ int fd = -1;

        failing = FD_OPENAT2_TRIES - 1;
        asked = 0;
        fd = ways[i].open();
        CHECK(fd >= 0, "%s: %s", ways[i].name, strerror(errno));
        CHECK(asked == FD_OPENAT2_TRIES, "%s: asked %u times", ways[i].name, asked);
    }
}

static void test_gives_up(void)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        _cleanup_close_ int fd = -1;

        failing = UINT32_MAX;
        asked = 0;
        fd = ways[i].open();
        CHECK(fd < 0 && errno == EAGAIN, "%s: %s", ways[i].name, strerror(errno));
        CHECK(asked >= FD_OPENAT2_TRIES && asked <= ways[i].calls, "%s: asked %u times",
              ways[i].name, asked);
    }
    failing = 0;
}

static void test_other_errors_are_told_at_once(void)
{
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC, .resolve = RESOLVE_BENEATH};

    asked = 0;
    CHECK(fd_openat2(dir, "../file", &how, NULL) < 0 && errno == EXDEV, "%s", strerror(errno));
    CHECK(fd_openat2(dir, "absent", &how, NULL) < 0 && errno == ENOENT, "%s", strerror(errno));
    CHECK(asked == 2, "asked %u times", asked);
    CHECK(seen[0] == 0 && seen[1] == 0, "a key without one: %lx %lx", seen[0], seen[1]);
}

static void test_each_way_keeps_below(void)
{
    static const struct {
        const char *path;
        int errors[3]; /* of each way; 0: the file is opened */
    } rows[] = {
        {"file", {0, 0, 0}},
        {"inner/../file", {0, 0, 0}},
        {"../file", {0, EXDEV, EXDEV}},
        {"/file", {0, EXDEV, EXDEV}},
        {"within", {0, 0, ELOOP}},
        {"absolute", {0, EXDEV, ELOOP}},
        {"above", {0, EXDEV, ELOOP}},
        {"outside", {ENOENT, EXDEV, ELOOP}},
    };

    CHECK(symlinkat("file", dir, "within") == 0 && symlinkat("/file", dir, "absolute") == 0 &&
              symlinkat("../file", dir, "above") == 0 &&
              symlinkat("/etc/passwd", dir, "outside") == 0,
          "%s", strerror(errno));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (enum fd_way way = FD_IN_ROOT; way <= FD_NO_LINKS; way++) {
            _cleanup_close_ int fd = -1;

            errno = 0;
            fd = fd_open_below(dir, rows[i].path, O_RDONLY, 0, way);
            CHECK((fd >= 0) == (rows[i].errors[way] == 0) && errno == rows[i].errors[way],
                  "%s by way %d: %s", rows[i].path, (int)way, strerror(errno));
            CHECK(fd < 0 || fcntl(fd, F_GETFD) == FD_CLOEXEC, "%s stays open", rows[i].path);
        }
    }
    for (size_t i = 4; i < sizeof(rows) / sizeof(rows[0]); i++)
        (void)unlinkat(dir, rows[i].path, 0);
}

int main(void)
{
    if (mkdtemp(directory) == NULL ||
        (dir = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0 ||
        mkdirat(dir, "inner", 0700) < 0 || mknodat(dir, "file", S_IFREG | 0600, 0) < 0) {
        perror(directory);
        return 1;
    }
    test_asks_again();
    test_gives_up();
    test_other_errors_are_told_at_once();
    test_each_way_keeps_below();
    (void)unlinkat(dir, "file", 0);
    (void)unlinkat(dir, "inner", AT_REMOVEDIR);
    (void)rmdir(directory);
    fd_close(&dir);
    return check_finish();
}
