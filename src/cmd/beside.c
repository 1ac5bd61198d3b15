/* The other programs of cove: beside it, as it is built, or where it is installed. */
#include "cmd/cmd.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int cmd_beside(const char *name, char path[PATH_MAX], struct error *err)
{
    static const char *const places[] = {"", "../libexec/cove/"};
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (length <= 0)
        return error_set(err, "not_installed", errno, "cannot find out where cove lies");
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (snprintf(path, PATH_MAX, "%s/%s%s", self, places[i], name) >= PATH_MAX)
            return error_set(err, "not_installed", ENAMETOOLONG, "cannot find %s", name);
        if (access(path, X_OK) == 0)
            return 0;
    }
    return error_set(err, "not_installed", errno,
                     "cannot start %s; install cove anew, with all its programs", path);
}

int cmd_become(const char *name, char **argv)
{
    char path[PATH_MAX];
    struct error err;

    if (cmd_beside(name, path, &err) == 0) {
        (void)execv(path, argv);
        (void)error_set(&err, "not_installed", errno, "cannot start %s", path);
    }
    return cmd_fail(&err);
}
