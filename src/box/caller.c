/* Who runs cove: see caller.h. */
#include "box/caller.h"

#include "box/switches.h"

#include <linux/capability.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's PROC_USER_INIT_INO. */
#define INITIAL_USER_NAMESPACE 0xEFFFFFFDU

static uint64_t capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};

    if (syscall(SYS_capget, &header, data) < 0)
        return 0;
    return (uint64_t)data[1].effective << 32 | data[0].effective;
}

static bool has(uint64_t capabilities, unsigned wanted)
{
    return (capabilities & 1ULL << wanted) != 0;
}

void caller_look(struct caller *caller)
{
    uint64_t held = capabilities();
    struct stat st;

    *caller = (struct caller){.uid = geteuid(), .gid = getegid()};
    caller->on_host = stat("/proc/self/ns/user", &st) == 0 && st.st_ino == INITIAL_USER_NAMESPACE;
    caller->maps = has(held, CAP_SETUID) && has(held, CAP_SETGID);
    caller->mounts = caller->on_host && caller->maps && has(held, CAP_SYS_ADMIN) &&
                     has(held, CAP_CHOWN) && has(held, CAP_DAC_OVERRIDE) && !switched_off("mounts");
}
