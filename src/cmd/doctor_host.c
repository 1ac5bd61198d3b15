/* Where we are: see doctor.h. Every mark here is one that its container leaves on purpose, or that
 * nothing else leaves; a single file that an image may have brought along (/.dockerenv in the disk of
 * a virtual machine) is no proof. */
#include "cmd/doctor.h"

#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The namespaces that a kernel begins with have fixed numbers. */
#define FIRST_USERNS "user:[4026531837]"

static const struct {
    const char *name, *words;
} places[PLACE_COUNT] = {
    [PLACE_GVISOR] = {"gvisor", "gVisor"},
    [PLACE_WSL1] = {"wsl1", "WSL 1"},
    [PLACE_WSL2] = {"wsl2", "WSL 2"},
    [PLACE_COVE] = {"cove", "a cove box"},
    [PLACE_KUBERNETES] = {"kubernetes", "a Kubernetes pod"},
    [PLACE_PODMAN] = {"podman", "a Podman container"},
    [PLACE_DOCKER] = {"docker", "a Docker container"},
    [PLACE_LXC] = {"lxc", "an LXC container"},
    [PLACE_NSPAWN] = {"systemd-nspawn", "a systemd-nspawn container"},
    [PLACE_FLATPAK] = {"flatpak", "a Flatpak sandbox"},
    [PLACE_BUBBLEWRAP] = {"bubblewrap", "a bubblewrap sandbox"},
    [PLACE_CONTAINER] = {"container", "a container"},
    [PLACE_USERNS] = {"user-namespace", "a user namespace"},
    [PLACE_CHROOT] = {"chroot", "a chroot"},
};

const char *doctor_place_name(enum doctor_place place)
{
    return places[place].name;
}

const char *doctor_place_words(const struct doctor_host *host, enum doctor_place place)
{
    (void)host;
    return places[place].words;
}

/* ---- small files ---- */

/* Its text without the newline at its end; "" where it cannot be read. */
static const char *file_text(int root, const char *path, char *text, size_t size)
{
    text[0] = '\0';
    if (fd_read_file(root, path, text, size) < 0 && errno != EFBIG)
        text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return text;
}

static long file_number(int root, const char *path)
{
    char text[32], *end;
    long number;

    (void)file_text(root, path, text, sizeof(text));
    number = strtol(text, &end, 10);
    return end == text ? -1 : number;
}

static bool exists(int root, const char *path)
{
    return faccessat(root, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool link_is(int root, const char *path, const char *target)
{
    char text[64];
    ssize_t n = readlinkat(root, path, text, sizeof(text) - 1);

    if (n < 0)
        return true; /* cannot be told */
    text[n] = '\0';
    return strcmp(text, target) == 0;
}

/* ---- /proc/self/status ---- */

static const char *status_field(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at != NULL ? at + strlen(name) : "";
}

static void status_read(struct doctor_host *host, int root)
{
    char text[8192];

    if (fd_read_file(root, "proc/self/status", text, sizeof(text)) < 0)
        return;
    host->has_seccomp = strtol(status_field(text, "\nSeccomp:"), NULL, 10) == 2;
    host->no_new_privs = strtol(status_field(text, "\nNoNewPrivs:"), NULL, 10) == 1;
}

/* ---- /proc/self/mountinfo ---- */

struct mounts {
    bool has_root;
    bool root_is_overlay;
    bool gives_names; /* /etc/hosts and the like are mounts, as container engines make them */
    bool of_kubelet;
    bool has_lxcfs;
};

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static void mount_read(struct doctor_host *host, struct mounts *mounts, char *line)
{
    char *type = strstr(line, " - "), *save = NULL, *field[6] = {NULL};

    if (type == NULL)
        return;
    type += 3;
    for (int i = 0; i < 6; i++) {
        field[i] = strtok_r(i == 0 ? line : NULL, " ", &save);
        if (field[i] == NULL)
            return;
    }
    type[strcspn(type, " ")] = '\0';
    /* field[3] is what of the filesystem is mounted, [4] where, [5] its flags. */
    if (strcmp(field[4], "/") == 0) {
        mounts->has_root = true;
        mounts->root_is_overlay = strcmp(type, "overlay") == 0 ||
                                  strcmp(type, "fuse.fuse-overlayfs") == 0;
    }
    if (strcmp(field[4], "/etc/hosts") == 0 || strcmp(field[4], "/etc/hostname") == 0 ||
        strcmp(field[4], "/etc/resolv.conf") == 0) {
        mounts->gives_names = true;
        mounts->of_kubelet |= strstr(field[3], "/pods/") != NULL;
    }
    mounts->has_lxcfs |= strcmp(type, "fuse.lxcfs") == 0;
    if (begins(field[4], "/proc/") && strcmp(type, "binfmt_misc") != 0 &&
        strcmp(type, "autofs") != 0 && strcmp(type, "nfsd") != 0) {
        host->proc_is_masked = true;
        if (host->proc_mask[0] == '\0')
            (void)snprintf(host->proc_mask, sizeof(host->proc_mask), "%.60s", field[4]);
    }
    if (strcmp(type, "cgroup") == 0 || strcmp(type, "cgroup2") == 0) {
        host->cgroup_is_mounted = true;
        host->cgroup_is_read_only |= begins(field[5], "ro");
    }
}

static void mounts_read(struct doctor_host *host, struct mounts *mounts, int root)
{
    int fd = openat(root, "proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "re") : NULL;
    char *line = NULL;
    size_t size = 0;

    while (file != NULL && getline(&line, &size, file) > 0)
        mount_read(host, mounts, line);
    free(line);
    if (file != NULL)
        (void)fclose(file);
    else
        fd_close(&fd);
}

/* ---- who made this place ---- */

/* What container managers write down by agreement: in files of /run, else in the environment of their
 * first process, and so often in ours. */
static void manager_read(struct doctor_host *host, int root)
{
    static const char key[] = "container=";
    char text[4096];
    const char *own = getenv("container");
    ssize_t n;

    if (file_text(root, "run/host/container-manager", text, sizeof(text))[0] == '\0')
        (void)file_text(root, "run/systemd/container", text, sizeof(text));
    if (text[0] == '\0' && (n = fd_read_file(root, "proc/1/environ", text, sizeof(text))) > 0) {
        const char *at = text, *end = text + n;

        while (at < end && !begins(at, key))
            at += strlen(at) + 1;
        (void)snprintf(host->manager, sizeof(host->manager), "%.31s",
                       at < end ? at + sizeof(key) - 1 : "");
    } else {
        (void)snprintf(host->manager, sizeof(host->manager), "%.31s", text);
    }
    if (host->manager[0] == '\0' && own != NULL)
        (void)snprintf(host->manager, sizeof(host->manager), "%.31s", own);
}

static bool version_is_gvisor(int root)
{
    char text[256];

    (void)file_text(root, "proc/version", text, sizeof(text));
    /* The date is the same in all of its releases. */
    return strcasestr(text, "gvisor") != NULL ||
           strstr(text, "#1 SMP Sun Jan 10 15:06:54 PST 2016") != NULL;
}

/* As the kernel sees it: the root is no root of a mount, or not that of the namespace. */
static bool root_is_changed(int root, const struct mounts *mounts)
{
    struct stat ours, first;
    char mine[64], theirs[64];
    ssize_t n = readlinkat(root, "proc/self/ns/mnt", mine, sizeof(mine));
    ssize_t m = readlinkat(root, "proc/1/ns/mnt", theirs, sizeof(theirs));

    if (!exists(root, "proc/self/mountinfo"))
        return false;
    if (!mounts->has_root)
        return true;
    return n > 0 && n == m && memcmp(mine, theirs, (size_t)n) == 0 &&
           fstatat(root, "proc/1/root/.", &first, 0) == 0 && fstatat(root, ".", &ours, 0) == 0 &&
           (first.st_dev != ours.st_dev || first.st_ino != ours.st_ino);
}

static void places_find(struct doctor_host *host, int root, const struct mounts *mounts)
{
    char first[32], init[64];
    bool *in = host->is_in;
    bool known = false;

    (void)file_text(root, "proc/1/comm", first, sizeof(first));
    manager_read(host, root);
    in[PLACE_GVISOR] = version_is_gvisor(root);
    in[PLACE_WSL2] = strstr(host->release, "microsoft") != NULL;
    in[PLACE_WSL1] = !in[PLACE_WSL2] && strstr(host->release, "Microsoft") != NULL;
    in[PLACE_COVE] = strcmp(file_text(root, "proc/1/cmdline", init, sizeof(init)), "cove-init") ==
                     0;
    in[PLACE_KUBERNETES] = mounts->of_kubelet || getenv("KUBERNETES_SERVICE_HOST") != NULL ||
                           exists(root, "run/secrets/kubernetes.io");
    if (!in[PLACE_KUBERNETES]) {
        in[PLACE_PODMAN] = exists(root, "run/.containerenv") ||
                           strcmp(host->manager, "podman") == 0;
        in[PLACE_DOCKER] = !in[PLACE_PODMAN] && exists(root, ".dockerenv") &&
                           (mounts->root_is_overlay || mounts->gives_names);
    }
    in[PLACE_LXC] = mounts->has_lxcfs || begins(host->manager, "lxc") ||
                    exists(root, "dev/lxd/sock") || exists(root, "dev/incus/sock");
    in[PLACE_NSPAWN] = strcmp(host->manager, "systemd-nspawn") == 0;
    in[PLACE_FLATPAK] = exists(root, ".flatpak-info");
    in[PLACE_BUBBLEWRAP] = !in[PLACE_FLATPAK] && strcmp(first, "bwrap") == 0;
    for (size_t i = 0; i < PLACE_CONTAINER; i++)
        known |= in[i];
    in[PLACE_CONTAINER] = !known && host->manager[0] != '\0';
    in[PLACE_USERNS] = !known && !in[PLACE_CONTAINER] && host->has_own_userns;
    in[PLACE_CHROOT] = root_is_changed(root, mounts);
}

void doctor_host_read(struct doctor_host *host, int root)
{
    struct mounts mounts = {0};
    char pattern[128];
    ssize_t n;

    *host = (struct doctor_host){.uid = geteuid()};
    (void)file_text(root, "proc/sys/kernel/osrelease", host->release, sizeof(host->release));
    status_read(host, root);
    mounts_read(host, &mounts, root);
    host->has_systemd = exists(root, "run/systemd/system");
    host->apparmor_restricts = file_number(root,
                                           "proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    host->userns_clone = file_number(root, "proc/sys/kernel/unprivileged_userns_clone");
    host->userns_max = file_number(root, "proc/sys/user/max_user_namespaces");
    host->memfd_noexec = file_number(root, "proc/sys/vm/memfd_noexec");
    host->open_files = file_number(root, "proc/sys/fs/file-max");
    host->cores_to_socket = file_text(root, "proc/sys/kernel/core_pattern", pattern,
                                      sizeof(pattern))[0] == '@';
    (void)file_text(root, "proc/self/attr/current", host->confinement, sizeof(host->confinement));
    if (strcmp(host->confinement, "unconfined") == 0)
        host->confinement[0] = '\0';
    n = readlinkat(root, "proc/self/exe", host->program, sizeof(host->program) - 1);
    host->program[n > 0 ? n : 0] = '\0';
    host->has_own_userns = !link_is(root, "proc/self/ns/user", FIRST_USERNS);
    places_find(host, root, &mounts);
}
