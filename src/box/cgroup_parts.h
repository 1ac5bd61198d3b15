/* What cgroup.c asks of the two versions, and what the unit tests ask of cgroup.c. Nobody else
 * includes this. */
#pragma once

#include "box/cgroup.h"

/* The controllers that a box cannot be limited without. */
#define CGROUP_LIMITING (CGROUP_MEMORY | CGROUP_CPU | CGROUP_PIDS)

/* Groups below a box's v2 group: one per command that runs at once, one for init. */
#define CGROUP_DESCENDANTS_MAX "1100"

/* "100 ms", the kernel's default period of a CPU quota, and the least quota it takes. */
#define CGROUP_CPU_PERIOD_US 100000U
#define CGROUP_CPU_QUOTA_LEAST_US 1000U

/* cgroup_probe() from other files than those in /proc. */
int cgroup_probe_files(struct cgroup_host *host, const char *self_cgroup, const char *mountinfo,
                       struct error *err);

/* The bit of a controller, 0 for one that is of no use here. */
unsigned cgroup_controller_bit(const char *name, size_t length);

/* The bits in a list such as "cpu,cpuacct" or "cpuset cpu memory\n". */
unsigned cgroup_controllers_parse(const char *list);

/* Whether groups can be made in this directory, and processes moved there. */
bool cgroup_is_usable(int directory);

/* Writes, or reads, "GROUP/FILE" below `directory`; as fd_write_file() and fd_read_file(). */
int cgroup_file_write(int directory, const char *group, const char *file, const char *text);
int cgroup_file_write_number(int directory, const char *group, const char *file, uint64_t value);
int cgroup_file_number(int directory, const char *group, const char *file, const char *key,
                       uint64_t *value);

/* The CPU quota of a limit, per period. */
uint64_t cgroup_cpu_quota_us(uint32_t cpu_milli);

/* "0-1,4". */
void cgroup_cpus_format(const cpu_set_t *cpus, char *text, size_t size);

/* As many CPUs as the limit needs, out of the allowed ones, from the `skip`th on. */
void cgroup_cpus_choose(const cpu_set_t *allowed, uint32_t cpu_milli, unsigned skip,
                        cpu_set_t *out);

/* Removes a group and the groups below it: 0 or -1 (EBUSY while processes are in there). */
int cgroup_directory_remove(int directory, const char *name);

/* v1: each works on all hierarchies of the host. */
int cgroup_v1_make(struct cgroup *cgroup, const struct cgroup_limits *limits, struct error *err);
int cgroup_v1_doors_open(const struct cgroup *cgroup, int doors[CGROUP_V1_MAX], struct error *err);
/* The parent directory of the hierarchy with this controller, in which our group stands; or -1. */
int cgroup_v1_parent(const struct cgroup *cgroup, unsigned controller);
/* Begins what is a maximum again; 0 or -1. */
int cgroup_v1_renew(const struct cgroup *cgroup);
void cgroup_v1_usage(const struct cgroup *cgroup, struct cgroup_usage *out, unsigned *counted);
int cgroup_v1_files(const struct cgroup *cgroup, uint64_t *bytes);
void cgroup_v1_unthrottle(const struct cgroup *cgroup);
int cgroup_v1_kill(const struct cgroup *cgroup);

/* v2. Finds in `mount` the nearest group from `path` upwards that grants `wanted` to its children,
 * or else as many of them as can be had: sets v2 and v2_controllers of `host`. */
void cgroup_v2_find(struct cgroup_host *host, int mount, const char *path, unsigned wanted);
int cgroup_v2_make(struct cgroup *cgroup, const struct cgroup_limits *limits, uid_t owner,
                   gid_t owner_gid, bool leaves, struct error *err);
void cgroup_v2_usage(const struct cgroup *cgroup, struct cgroup_usage *out, unsigned *counted);
int cgroup_v2_files(const struct cgroup *cgroup, uint64_t *bytes);
int cgroup_v2_kill(const struct cgroup *cgroup);
