/* A cgroup to make boxes in: see scope.h.
 *
 * A process that logged in lies in a group of root's. Only the user's systemd can put it into one that
 * is the user's: moving there by oneself would need rights over all that lies between. systemd-run
 * executes us again in the scope it made, as the same process, so signals and terminals stay as they
 * are. It is only called where the user's systemd answers: if it failed there would be no way back. */
#include "cmd/scope.h"

#include "base/fd.h"
#include "base/program.h"
#include "box/cgroup.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#define CGROUP2_MAGIC 0x63677270
#define SCOPE_MARK "COVE_SCOPE" /* in the environment: we are in the scope */

static bool can_limit(void)
{
    struct cgroup_host host;
    struct error ignored;
    bool limits;

    if (cgroup_probe(&host, &ignored) < 0)
        return false;
    limits = host.limits_memory && host.limits_pids;
    cgroup_host_close(&host);
    return limits;
}

static bool systemd_answers(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int length;

    if (runtime == NULL || fd < 0)
        return false;
    length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/systemd/private", runtime);
    return (size_t)length < sizeof(address.sun_path) &&
           connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
}

static bool is_pure_v2(void)
{
    struct statfs fs;

    return statfs("/sys/fs/cgroup", &fs) == 0 && fs.f_type == CGROUP2_MAGIC;
}

static void run_again(char **argv)
{
    char program[64];
    char *const head[] = {program,     "--user", "--scope",      "--quiet",
                          "--collect", "-p",     "Delegate=yes", "--"};
    size_t fixed = sizeof(head) / sizeof(head[0]), words = 0;
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char **again;

    while (argv[words] != NULL)
        words++;
    again = calloc(fixed + 1 + words + 1, sizeof(*again));
    if (again == NULL || length <= 0 || !program_find("systemd-run", program, sizeof(program)) ||
        setenv(SCOPE_MARK, "1", 1) < 0) {
        free(again);
        return;
    }
    self[length] = '\0';
    memcpy(again, head, sizeof(head));
    again[fixed] = self;
    memcpy(again + fixed + 1, argv, words * sizeof(*again));
    (void)execv(program, again); /* where it cannot be executed we go on as we are */
    (void)unsetenv(SCOPE_MARK);
    free(again);
}

void scope_obtain(char **argv)
{
    if (getenv(SCOPE_MARK) != NULL) {
        (void)unsetenv(SCOPE_MARK);
        cgroup_make_room();
        return;
    }
    if (geteuid() != 0 && is_pure_v2() && !can_limit() && systemd_answers())
        run_again(argv);
}
