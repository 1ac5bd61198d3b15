/* Programs of the host: see program.h. */
#include "base/program.h"

#include <stdio.h>
#include <unistd.h>

bool program_find(const char *name, char *path, size_t size)
{
    /* The last two are NixOS's. */
    static const char *const places[] = {"/usr/bin",
                                         "/usr/sbin",
                                         "/bin",
                                         "/sbin",
                                         "/usr/local/bin",
                                         "/usr/local/sbin",
                                         "/run/wrappers/bin",
                                         "/run/current-system/sw/bin"};

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        int length = snprintf(path, size, "%s/%s", places[i], name);

        if (length > 0 && (size_t)length < size && access(path, X_OK) == 0)
            return true;
    }
    return false;
}
