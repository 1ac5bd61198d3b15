/* The kernel's version: see kernel.h. */
#include "base/kernel.h"

#include <stdlib.h>
#include <sys/utsname.h>

bool kernel_is_at_least(unsigned major, unsigned minor)
{
    struct utsname name;
    unsigned long has_major, has_minor;
    char *rest;

    if (uname(&name) < 0)
        return false;
    has_major = strtoul(name.release, &rest, 10);
    has_minor = *rest == '.' ? strtoul(rest + 1, NULL, 10) : 0;
    return has_major > major || (has_major == major && has_minor >= minor);
}
