/* See helper.h. */
#include "keeper/helper.h"

#include "base/fd.h"
#include "box/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

void helper_begin(const char *name)
{
    sigset_t none;

    (void)prctl(PR_SET_NAME, name);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)fd_write_file(AT_FDCWD, "/proc/self/oom_score_adj", "200");
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

void helper_keep(const int *fds, size_t count)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int above[HELPER_FDS_MAX];

    if (null < 0)
        _exit(1);
    for (size_t i = 0; i < count; i++) {
        above[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD_CLOEXEC, HELPER_FD + HELPER_FDS_MAX);
        if (fds[i] >= 0 && above[i] < 0)
            _exit(1);
    }
    for (int i = 0; i < HELPER_FD; i++)
        if (dup2(null, i) < 0)
            _exit(1);
    for (size_t i = 0; i < count; i++) {
        int at = HELPER_FD + (int)i;

        if (above[i] >= 0 ? dup3(above[i], at, O_CLOEXEC) < 0 : close(at) < 0 && errno != EBADF)
            _exit(1);
    }
    if (sys_close_range(HELPER_FD + (unsigned)count, ~0U, 0) < 0)
        _exit(1);
}
