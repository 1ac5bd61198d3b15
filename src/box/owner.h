/* The user who makes a box's user namespace, as far as the kernel counts.
 *
 * The use, in a user namespace, of inotify instances and watches, queued signals, timers and processes counts against
 * the user who made it, too, with the limits of that user. Made by root, all boxes of a host and root's own services share
 * 128 inotify instances. So the thread that makes a box has the id of the box's own root meanwhile. Its capabilities
 * stay, and so does what the kernel forgets when an id changes; no other thread notices. */
#pragma once

#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

struct owner {
    uid_t before;
    int securebits, dumpable, parent_signal;
    bool is_other;
};

static inline bool owner_is(uid_t id)
{
    return syscall(SYS_setresuid, (uid_t)-1, id, (uid_t)-1) == 0;
}

/* The owner may write the ids of a namespace, and so may a process with CAP_SYS_ADMIN, which a container's root lacks. */
static inline bool owner_may_differ(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct held[_LINUX_CAPABILITY_U32S_3] = {{0}};

    return syscall(SYS_capget, &header, held) == 0 &&
           (held[0].effective & 1U << CAP_SYS_ADMIN) != 0;
}

/* Where the kernel does not let us, a box is made by us as before. */
static inline void owner_become(struct owner *owner, uid_t id)
{
    *owner = (struct owner){.before = geteuid(),
                            .securebits = prctl(PR_GET_SECUREBITS),
                            .dumpable = prctl(PR_GET_DUMPABLE)};
    (void)prctl(PR_GET_PDEATHSIG, &owner->parent_signal);
    if (!owner_may_differ() || owner->securebits < 0 ||
        prctl(PR_SET_SECUREBITS, owner->securebits | SECBIT_NO_SETUID_FIXUP) < 0) {
        owner->securebits = -1; /* as they were */
        return;
    }
    owner->is_other = owner_is(id);
    (void)prctl(PR_SET_DUMPABLE, owner->dumpable == 1);
}

/* Ends the process where it would go on as a box's root. */
static inline void owner_leave(const struct owner *owner)
{
    if ((owner->is_other && !owner_is(owner->before)) ||
        (owner->securebits >= 0 && prctl(PR_SET_SECUREBITS, owner->securebits) < 0))
        abort();
    (void)prctl(PR_SET_DUMPABLE, owner->dumpable == 1);
    (void)prctl(PR_SET_PDEATHSIG, owner->parent_signal);
}
