/* Bounds of the kernel's for what a socket keeps that no cgroup counts: they belong to network namespaces. */
#pragma once

/* Sets them for the network namespace that the caller is in. A kernel that has them for the host alone (optmem_max,
 * before Linux 6.7) keeps its own, as does a container whose /proc/sys is read-only. Leaves errno alone. */
void network_bound(void);
