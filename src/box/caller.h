/* Who runs cove, and what that lets it do while it makes a box.
 *
 * There are two ways to make one. A caller that rules the host's mounts opens trees and maps their
 * owners itself; everybody else lets the set-up child do what its own namespaces allow. What counts
 * is what the kernel grants, never whether a uid is 0: root of a container often may not mount. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct caller {
    uid_t uid;
    gid_t gid;
    bool mounts;  /* rules the host's mounts and owners: opens trees, maps ids of mounts */
    bool maps;    /* may give a process any id of this user namespace */
    bool on_host; /* in the initial user namespace: its ids are the host's */
};

void caller_look(struct caller *caller);
