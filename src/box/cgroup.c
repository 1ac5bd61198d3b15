/* Cgroups: the probe, and what both versions share; see cgroup.h.
 *
 * The probe reads two files of /proc once and keeps one fd per hierarchy; from there on each
 * setting is one openat, one write and one close, because a cold box pays for each of them. It must
 * never trust a path alone: a directory counts as a cgroup when it has cgroup.procs. */
#include "box/cgroup.h"

#include "base/fd.h"
#include "base/list.h"
#include "box/cgroup_parts.h"
#include "box/switches.h"
#include "box/sys.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A line of /proc/self/cgroup: a hierarchy, and where we are in it. */
struct membership {
    unsigned controllers; /* 0: v2 */
    char path[PATH_MAX];
};

struct memberships {
    struct membership v1[CGROUP_V1_MAX];
    size_t v1_count;
    struct membership v2;
    bool has_v2;
};

/* The fields of a line of mountinfo that matter; they point into the line. */
struct mount_line {
    char *root;
    char *point;
    char *type;
    char *options;
};

/* ---- small things ---- */

unsigned cgroup_controller_bit(const char *name, size_t length)
{
    static const struct {
        const char *name;
        unsigned bit;
    } known[] = {
        {"memory", CGROUP_MEMORY},   {"cpu", CGROUP_CPU},       {"pids", CGROUP_PIDS},
        {"cpuacct", CGROUP_CPUACCT}, {"cpuset", CGROUP_CPUSET},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strlen(known[i].name) == length && memcmp(known[i].name, name, length) == 0)
            return known[i].bit;
    return 0;
}

unsigned cgroup_controllers_parse(const char *list)
{
    unsigned bits = 0;

    while (*list != '\0') {
        size_t length = strcspn(list, ", \n");

        bits |= cgroup_controller_bit(list, length);
        list += length;
        list += strspn(list, ", \n");
    }
    return bits;
}

bool cgroup_is_usable(int directory)
{
    return faccessat(directory, "cgroup.procs", W_OK, AT_EACCESS) == 0 &&
           faccessat(directory, ".", W_OK, AT_EACCESS) == 0;
}

int cgroup_file_write(int directory, const char *group, const char *file, const char *text)
{
    char path[CGROUP_NAME_MAX + 64];

    (void)snprintf(path, sizeof(path), "%s/%s", group, file);
    return fd_write_file(directory, path, text);
}

int cgroup_file_write_number(int directory, const char *group, const char *file, uint64_t value)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return cgroup_file_write(directory, group, file, text);
}

int cgroup_file_number(int directory, const char *group, const char *file, const char *key,
                       uint64_t *value)
{
    char path[CGROUP_NAME_MAX + 64], text[4096];
    const char *at = text;
    char *end;

    (void)snprintf(path, sizeof(path), "%s/%s", group, file);
    if (fd_read_file(directory, path, text, sizeof(text)) < 0)
        return -1;
    if (key != NULL) {
        size_t length = strlen(key);

        while (at != NULL && (strncmp(at, key, length) != 0 || at[length] != ' ')) {
            at = strchr(at, '\n');
            if (at != NULL)
                at++;
        }
        if (at == NULL) {
            errno = ENODATA;
            return -1;
        }
        at += length + 1;
    }
    errno = 0;
    *value = strtoull(at, &end, 10);
    if (errno != 0 || end == at) {
        errno = ENODATA;
        return -1;
    }
    return 0;
}

uint64_t cgroup_cpu_quota_us(uint32_t cpu_milli)
{
    uint64_t quota = (uint64_t)cpu_milli * CGROUP_CPU_PERIOD_US / 1000;

    return quota > CGROUP_CPU_QUOTA_LEAST_US ? quota : CGROUP_CPU_QUOTA_LEAST_US;
}

void cgroup_cpus_format(const cpu_set_t *cpus, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t cpu = 0; cpu < CPU_SETSIZE && used + 16 < size; cpu++) {
        size_t last = cpu;

        if (!CPU_ISSET(cpu, cpus))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus))
            last++;
        used += (size_t)snprintf(text + used, size - used, last > cpu ? "%s%zu-%zu" : "%s%zu",
                                 used > 0 ? "," : "", cpu, last);
        cpu = last;
    }
}

void cgroup_cpus_choose(const cpu_set_t *allowed, uint32_t cpu_milli, unsigned skip, cpu_set_t *out)
{
    uint32_t wanted = cpu_milli / 1000 + (cpu_milli % 1000 != 0);
    uint32_t have = (uint32_t)CPU_COUNT(allowed);

    *out = *allowed;
    if (cpu_milli == 0 || wanted >= have)
        return;
    CPU_ZERO(out);
    skip %= have;
    /* Twice around, so that a choice may wrap. */
    for (size_t i = 0; i < (size_t)2 * CPU_SETSIZE && wanted > 0; i++) {
        if (!CPU_ISSET(i % CPU_SETSIZE, allowed))
            continue;
        if (skip > 0) {
            skip--;
            continue;
        }
        CPU_SET(i % CPU_SETSIZE, out);
        wanted--;
    }
}

/* Boxes start at random places, so that two small ones rarely share a CPU. */
static void cpus_pick(uint32_t cpu_milli, cpu_set_t *out)
{
    cpu_set_t allowed;
    unsigned skip = 0;

    CPU_ZERO(out);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
        return; /* more CPUs than the set has room for: nobody is pinned */
    if (cpu_milli != 0 && getrandom(&skip, sizeof(skip), GRND_NONBLOCK) < 0)
        skip = 0;
    cgroup_cpus_choose(&allowed, cpu_milli, skip, out);
}

/* ---- the probe ---- */

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static void unescape(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0'; to++) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
            from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
            *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

static bool mount_line_parse(char *line, struct mount_line *mount)
{
    char *save = NULL, *field = strtok_r(line, " ", &save);

    for (int i = 0; field != NULL && i < 3; i++)
        field = strtok_r(NULL, " ", &save);
    mount->root = field;
    mount->point = strtok_r(NULL, " ", &save);
    do
        field = strtok_r(NULL, " ", &save);
    while (field != NULL && strcmp(field, "-") != 0);
    mount->type = field != NULL ? strtok_r(NULL, " ", &save) : NULL;
    if (mount->type == NULL || strtok_r(NULL, " ", &save) == NULL)
        return false;
    mount->options = strtok_r(NULL, " ", &save);
    if (mount->options == NULL || mount->root == NULL || mount->point == NULL)
        return false;
    unescape(mount->root);
    unescape(mount->point);
    return true;
}

static void memberships_parse(char *text, struct memberships *found)
{
    char *line, *rest = text;

    found->v1_count = 0;
    found->has_v2 = false;
    while ((line = strsep(&rest, "\n")) != NULL) {
        const char *number = strsep(&line, ":");
        const char *controllers = strsep(&line, ":");
        struct membership *to = NULL;

        /* A path outside of our cgroup namespace leads nowhere. */
        if (line == NULL || line[0] != '/' || strncmp(line, "/..", 3) == 0 ||
            strlen(line) >= sizeof(to->path))
            continue;
        if (controllers[0] == '\0' && strcmp(number, "0") == 0) {
            to = &found->v2;
            found->has_v2 = true;
        } else if (cgroup_controllers_parse(controllers) != 0 && found->v1_count < CGROUP_V1_MAX) {
            to = &found->v1[found->v1_count++];
        }
        if (to == NULL)
            continue;
        to->controllers = cgroup_controllers_parse(controllers);
        (void)snprintf(to->path, sizeof(to->path), "%s", line);
    }
}

/* Our path below the mount: the mount may show only a part of the hierarchy. NULL: not in there. */
static const char *path_in_mount(const char *path, const char *root)
{
    size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);

    if (strncmp(path, root, length) != 0 || (path[length] != '/' && path[length] != '\0'))
        return NULL;
    path += length;
    return path + strspn(path, "/");
}

static int directory_open(const char *top, const char *below)
{
    char path[PATH_MAX];

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", top, below) >= sizeof(path))
        return -1;
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static bool v1_take(struct cgroup_host *host, const struct membership *membership,
                    const struct mount_line *mount)
{
    const char *below = path_in_mount(membership->path, mount->root);
    _cleanup_close_ int own = below != NULL ? directory_open(mount->point, below) : -1;

    if (own < 0 || !cgroup_is_usable(own))
        return false;
    if ((membership->controllers & CGROUP_CPUSET) != 0 &&
        fd_read_file(own, "cpuset.effective_mems", host->mems, sizeof(host->mems)) < 0 &&
        fd_read_file(own, "cpuset.mems", host->mems, sizeof(host->mems)) < 0)
        return false;
    host->v1[host->v1_count].parent = fd_take(&own);
    host->v1[host->v1_count].controllers = membership->controllers;
    host->v1_count++;
    return true;
}

static unsigned v1_controllers(const struct cgroup_host *host)
{
    unsigned bits = 0;

    for (size_t i = 0; i < host->v1_count; i++)
        bits |= host->v1[i].controllers;
    return bits;
}

/* Takes what one mount offers; true when nothing more is missing. */
static bool mount_take(struct cgroup_host *host, struct memberships *ours,
                       const struct mount_line *mount, int *v2_mount, const char **v2_path)
{
    if (strcmp(mount->type, "cgroup") == 0) {
        unsigned controllers = cgroup_controllers_parse(mount->options);

        for (size_t i = 0; controllers != 0 && i < ours->v1_count; i++) {
            if (ours->v1[i].controllers != controllers || !v1_take(host, &ours->v1[i], mount))
                continue;
            ours->v1[i] = ours->v1[--ours->v1_count];
            break;
        }
    } else if (strcmp(mount->type, "cgroup2") == 0 && ours->has_v2) {
        *v2_path = path_in_mount(ours->v2.path, mount->root);
        *v2_mount = *v2_path != NULL ? directory_open(mount->point, "") : -1;
        ours->has_v2 = *v2_mount < 0;
    }
    return ours->v1_count == 0 && !ours->has_v2;
}

/* Hosts with thousands of mounts exist: the file is read in pieces, and no further than needed. */
static int mounts_scan(struct cgroup_host *host, struct memberships *ours, const char *mountinfo,
                       int *v2_mount, const char **v2_path)
{
    _cleanup_close_ int fd = open(mountinfo, O_RDONLY | O_CLOEXEC);
    char text[16384];
    size_t used = 0;
    bool done = false;

    if (fd < 0)
        return -1;
    while (!done) {
        ssize_t n = read(fd, text + used, sizeof(text) - 1 - used);
        char *line = text, *end;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        used += (size_t)n;
        text[used] = '\0';
        while (!done && (end = strchr(line, '\n')) != NULL) {
            struct mount_line mount;

            *end = '\0';
            /* Most lines are no cgroup: told without taking them apart. */
            if (strstr(line, " - cgroup") != NULL && mount_line_parse(line, &mount))
                done = mount_take(host, ours, &mount, v2_mount, v2_path);
            line = end + 1;
        }
        used -= (size_t)(line - text);
        memmove(text, line, used);
        if (used == sizeof(text) - 1)
            used = 0; /* a line that long is no cgroup mount of ours */
    }
    return 0;
}

int cgroup_probe_files(struct cgroup_host *host, const char *self_cgroup, const char *mountinfo,
                       struct error *err)
{
    struct memberships ours;
    _cleanup_close_ int v2_mount = -1;
    const char *v2_path = NULL;
    unsigned granted;
    char text[8192];

    *host = (struct cgroup_host){.v2 = -1};
    if (fd_read_file(AT_FDCWD, self_cgroup, text, sizeof(text)) < 0)
        return error_set(err, "no_cgroup", errno, "cannot read %s", self_cgroup);
    memberships_parse(text, &ours);
    if (switched_off("cgroup2"))
        ours.has_v2 = false;
    if (mounts_scan(host, &ours, mountinfo, &v2_mount, &v2_path) < 0) {
        int saved = errno;

        cgroup_host_close(host);
        return error_set(err, "no_cgroup", saved, "cannot read %s", mountinfo);
    }
    if (v2_mount >= 0)
        cgroup_v2_find(host, v2_mount, v2_path,
                       (CGROUP_LIMITING | CGROUP_CPUSET) & ~v1_controllers(host));
    granted = v1_controllers(host) | host->v2_controllers;
    host->limits_memory = (granted & CGROUP_MEMORY) != 0;
    host->limits_cpu = (granted & CGROUP_CPU) != 0;
    host->limits_pids = (granted & CGROUP_PIDS) != 0;
    if ((granted & CGROUP_LIMITING) != 0)
        return 0;
    cgroup_host_close(host);
    return error_set(err, "no_cgroup", 0,
                     "neither memory nor CPU nor processes can be limited, because there is no "
                     "cgroup in which this process may make others: run cove as root, or under "
                     "`systemd-run --user --scope -p Delegate=yes`, or in a container whose "
                     "/sys/fs/cgroup is writable");
}

int cgroup_probe(struct cgroup_host *host, struct error *err)
{
    return cgroup_probe_files(host, "/proc/self/cgroup", "/proc/self/mountinfo", err);
}

void cgroup_make_room(void)
{
    static const char *const controllers[] = {"+memory", "+pids", "+cpu", "+cpuset"};
    char text[PATH_MAX], *path = NULL;
    _cleanup_close_ int group = -1;

    if (fd_read_file(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) < 0 ||
        (path = strstr(text, "0::/")) == NULL)
        return;
    path += strlen("0::/");
    path[strcspn(path, "\n")] = '\0';
    group = directory_open("/sys/fs/cgroup", path);
    if (group < 0 || mkdirat(group, "cove-main", 0755) < 0 ||
        fd_write_file(group, "cove-main/cgroup.procs", "0") < 0)
        return;
    for (size_t i = 0; i < sizeof(controllers) / sizeof(controllers[0]); i++)
        (void)fd_write_file(group, "cgroup.subtree_control", controllers[i]);
}

void cgroup_host_close(struct cgroup_host *host)
{
    for (size_t i = 0; i < host->v1_count; i++)
        fd_close(&host->v1[i].parent);
    host->v1_count = 0;
    fd_close(&host->v2);
}

/* ---- a box's groups ---- */

static void handle_init(struct cgroup *cgroup, const struct cgroup_host *host, const char *name)
{
    *cgroup = (struct cgroup){.host = host, .into = -1, .leaves = -1};
    CPU_ZERO(&cgroup->cpus);
    (void)snprintf(cgroup->name, sizeof(cgroup->name), "cove-%s", name);
}

static bool is_name(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

    return length > 0 && length < CGROUP_NAME_MAX - sizeof("cove-") && name[length] == '\0';
}

int cgroup_make(const struct cgroup_host *host, const char *name,
                const struct cgroup_limits *limits, uid_t owner, gid_t owner_gid, bool leaves,
                struct cgroup *out, struct error *err)
{
    struct error ignored;

    if (!is_name(name))
        return error_set(err, "bad_value", 0, "\"%.60s\" cannot name a cgroup: use a-z, 0-9 and -",
                         name);
    handle_init(out, host, name);
    cpus_pick(limits->cpu_milli, &out->cpus);
    if (cgroup_v1_make(out, limits, err) == 0 &&
        (host->v2 < 0 || cgroup_v2_make(out, limits, owner, owner_gid, leaves, err) == 0))
        return 0;
    (void)cgroup_remove(out, &ignored);
    return -1;
}

int cgroup_into_fd(const struct cgroup *cgroup)
{
    return cgroup->into;
}

int cgroup_leaves_fd(const struct cgroup *cgroup)
{
    return cgroup->leaves;
}

bool cgroup_leaves_limited(const struct cgroup *cgroup)
{
    return cgroup->delegated && (cgroup->host->v2_controllers & CGROUP_LIMITING) == CGROUP_LIMITING;
}

/* As a v1 mount point is usually called: "memory", "cpu,cpuacct". */
static void view_name(unsigned controllers, char *name, size_t size)
{
    static const char *const names[] = {"memory", "cpu", "pids", "cpuacct", "cpuset"};
    size_t used = 0;

    name[0] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if ((controllers & 1U << i) != 0)
            used += (size_t)snprintf(name + used, size - used, "%s%s", used > 0 ? "," : "",
                                     names[i]);
}

static int view_open(int parent, const char *name)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                          MOUNT_ATTR_NOEXEC,
                              .propagation = MS_PRIVATE};
    _cleanup_close_ int mount = sys_open_tree(parent, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (mount < 0 || sys_mount_setattr(mount, "", AT_EMPTY_PATH, &attr) < 0)
        return -1;
    return fd_take(&mount);
}

int cgroup_gate_open(const struct cgroup *cgroup, struct cgroup_gate *gate, struct error *err)
{
    const struct cgroup_host *host = cgroup->host;

    memset(gate, 0, sizeof(*gate));
    if (host->box_mounts) {
        gate->own_view = cgroup->v2_made;
        return 0;
    }
    if (cgroup_v1_doors_open(cgroup, gate->doors, err) < 0)
        return -1;
    gate->doors_count = (uint32_t)host->v1_count;
    for (size_t i = 0; i < host->v1_count; i++) {
        gate->views[i] = view_open(host->v1[i].parent, cgroup->name);
        if (gate->views[i] < 0)
            goto failed;
        gate->views_count++;
        view_name(host->v1[i].controllers, gate->names[i], sizeof(gate->names[i]));
    }
    if (host->v1_count > 0 || !cgroup->v2_made)
        return 0;
    gate->views[0] = view_open(host->v2, cgroup->name);
    if (gate->views[0] < 0)
        goto failed;
    gate->views_count = 1;
    return 0;
failed:
    (void)error_set(err, "cgroup_failed", errno, "cannot show the cgroup %s", cgroup->name);
    cgroup_gate_close(gate);
    return -1;
}

void cgroup_gate_close(struct cgroup_gate *gate)
{
    for (size_t i = 0; i < gate->doors_count; i++)
        fd_close(&gate->doors[i]);
    for (size_t i = 0; i < gate->views_count; i++)
        fd_close(&gate->views[i]);
    gate->doors_count = gate->views_count = 0;
}

int cgroup_usage(const struct cgroup *cgroup, struct cgroup_usage *out)
{
    unsigned counted = 0;

    *out = (struct cgroup_usage){0};
    if (cgroup->v1_made == 0 && !cgroup->v2_made)
        return -1;
    cgroup_v1_usage(cgroup, out, &counted);
    cgroup_v2_usage(cgroup, out, &counted);
    out->known = (counted & CGROUP_MEMORY) != 0 && (counted & CGROUP_CPUACCT) != 0;
    return 0;
}

int cgroup_files(const struct cgroup *cgroup, uint64_t *bytes)
{
    if (cgroup->v1_made == 0 && !cgroup->v2_made)
        return -1;
    return cgroup_v1_files(cgroup, bytes) == 0 || cgroup_v2_files(cgroup, bytes) == 0 ? 0 : -1;
}

static int pids_parent(const struct cgroup *cgroup)
{
    int parent = cgroup_v1_parent(cgroup, CGROUP_PIDS);

    if (parent < 0 && cgroup->v2_made && (cgroup->host->v2_controllers & CGROUP_PIDS) != 0)
        parent = cgroup->host->v2;
    return parent;
}

int cgroup_pids(const struct cgroup *cgroup, uint64_t *now, uint64_t *most)
{
    int parent = pids_parent(cgroup);

    if (parent < 0)
        return -1;
    return cgroup_file_number(parent, cgroup->name, "pids.current", NULL, now) < 0
               ? -1
               : cgroup_file_number(parent, cgroup->name, "pids.max", NULL, most);
}

int cgroup_limit_pids(const struct cgroup *cgroup, uint64_t most)
{
    int parent = pids_parent(cgroup);

    return parent < 0 ? -1 : cgroup_file_write_number(parent, cgroup->name, "pids.max", most);
}

void cgroup_borrow(const struct cgroup_host *host, const char *name, struct cgroup *out)
{
    handle_init(out, host, name);
    out->v1_made = (1U << host->v1_count) - 1;
    out->v2_made = host->v2 >= 0;
}

int cgroup_renew(const struct cgroup *cgroup)
{
    uint64_t below = 0;

    /* A peak of v2 can only be begun again by whoever reads it, through one fd. */
    if (cgroup->v2_made && (cgroup->host->v2_controllers & CGROUP_MEMORY) != 0)
        return -1;
    if (cgroup->delegated && (cgroup_file_number(cgroup->host->v2, cgroup->name, "cgroup.stat",
                                                 "nr_descendants", &below) < 0 ||
                              below != 0))
        return -1;
    return cgroup_v1_renew(cgroup);
}

void cgroup_unthrottle(const struct cgroup *cgroup)
{
    cgroup_v1_unthrottle(cgroup);
    if (cgroup->v2_made && (cgroup->host->v2_controllers & CGROUP_CPU) != 0)
        (void)cgroup_file_write(cgroup->host->v2, cgroup->name, "cpu.max", "max");
}

int cgroup_kill(const struct cgroup *cgroup)
{
    cgroup_unthrottle(cgroup);
    /* Whoever is in a v1 group was born in the v2 one, or came there before it ran anything. */
    if (cgroup->v2_made)
        return cgroup_v2_kill(cgroup);
    return cgroup->v1_made != 0 ? cgroup_v1_kill(cgroup) : 0;
}

/* ---- removing ---- */

/* Deeper than init can make them (cgroup.max.depth), for a group whose settings were not made. */
#define REMOVE_DEPTH_MAX 4

static int children_remove(int directory, const char *name, int depth);

/* Removes what lies below; 0, or -1 where it could not be listed. */
static int children_of(int directory, const char *name, int depth)
{
    DIR *list = list_open(directory, name);
    const struct dirent *entry;

    if (list == NULL)
        return -1;
    while ((entry = readdir(list)) != NULL) { // NOLINT(concurrency-mt-unsafe): a list of our own
        if (entry->d_type != DT_DIR || strcmp(entry->d_name, ".") == 0 ||
            strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(list), entry->d_name, AT_REMOVEDIR) < 0 && errno == EBUSY && depth > 0)
            (void)children_remove(dirfd(list), entry->d_name, depth - 1);
    }
    (void)closedir(list);
    return 0;
}

static int children_remove(int directory, const char *name, int depth)
{
    if (children_of(directory, name, depth) < 0)
        return -1;
    return unlinkat(directory, name, AT_REMOVEDIR);
}

void cgroup_leaves_remove(const struct cgroup *cgroup)
{
    if (!cgroup->delegated)
        return;
    (void)children_of(cgroup->host->v2, cgroup->name, REMOVE_DEPTH_MAX);
    /* What cgroup_settle() switched on: the next box's first process could not be born in there. */
    (void)cgroup_file_write(cgroup->host->v2, cgroup->name, "cgroup.subtree_control",
                            "-memory -cpu -pids");
}

int cgroup_directory_remove(int directory, const char *name)
{
    if (unlinkat(directory, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (errno != EBUSY)
        return -1;
    return children_remove(directory, name, REMOVE_DEPTH_MAX) == 0 || errno == ENOENT ? 0 : -1;
}

/* One round over what still stands; 0 when nothing does. */
static int groups_remove(struct cgroup *cgroup)
{
    int failed = 0;

    for (size_t i = 0; i < cgroup->host->v1_count; i++) {
        if ((cgroup->v1_made & 1U << i) == 0)
            continue;
        if (cgroup_directory_remove(cgroup->host->v1[i].parent, cgroup->name) == 0)
            cgroup->v1_made &= ~(1U << i);
        else
            failed = errno;
    }
    if (cgroup->v2_made) {
        if (cgroup_directory_remove(cgroup->host->v2, cgroup->name) == 0)
            cgroup->v2_made = false;
        else
            failed = errno;
    }
    errno = failed;
    return failed == 0 ? 0 : -1;
}

#define REMOVE_WAIT_US 2000000L
#define REMOVE_SLEEP_FIRST_US 200
#define REMOVE_SLEEP_MOST_US 20000

void cgroup_forget(struct cgroup *cgroup)
{
    fd_close(&cgroup->into);
    fd_close(&cgroup->leaves);
    cgroup->v1_made = 0;
    cgroup->v2_made = false;
}

int cgroup_remove(struct cgroup *cgroup, struct error *err)
{
    long sleep_us = REMOVE_SLEEP_FIRST_US, waited_us = 0;

    fd_close(&cgroup->into);
    fd_close(&cgroup->leaves);
    while (groups_remove(cgroup) < 0) {
        int failed = errno;
        struct timespec pause = {.tv_nsec = sleep_us * 1000};

        if (failed != EBUSY || waited_us >= REMOVE_WAIT_US)
            return error_set(err, "cgroup_failed", failed, "cannot remove the cgroup %s%s",
                             cgroup->name,
                             failed == EBUSY ? ", because processes in it do not end" : "");
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
        waited_us += sleep_us;
        sleep_us = sleep_us < REMOVE_SLEEP_MOST_US / 2 ? sleep_us * 2 : REMOVE_SLEEP_MOST_US;
    }
    return 0;
}

int cgroup_remove_named(const struct cgroup_host *host, const char *name, struct error *err)
{
    struct cgroup cgroup;

    if (!is_name(name))
        return error_set(err, "bad_value", 0, "\"%.60s\" names no cgroup of a box", name);
    handle_init(&cgroup, host, name);
    cgroup.v1_made = (1U << host->v1_count) - 1;
    cgroup.v2_made = host->v2 >= 0;
    (void)cgroup_kill(&cgroup); /* if it failed, removing says so */
    /* A process that was in the v1 groups only: its maker died between its birth and the rest. */
    if (cgroup.v1_made != 0)
        (void)cgroup_v1_kill(&cgroup);
    return cgroup_remove(&cgroup, err);
}
