/* `cove doctor` in places that cannot be set up here: what it recognises from the files of a place, and
 * what it advises there. Trees of files stand for the places. */
#include "cmd/doctor.h"

#include "base/fd.h"
#include "box/filter/filter.h"
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOT_LINE "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
#define OVERLAY_LINE "27 1 0:50 / / rw,relatime - overlay overlay rw\n"
#define MASK_LINE "28 27 0:60 / /proc/acpi ro - tmpfs tmpfs ro\n"
#define CGROUP_LINE "29 27 0:61 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"
#define HOSTS_LINE "30 27 254:0 /containers/1f/hosts /etc/hosts rw - ext4 /dev/vda rw\n"

struct file {
    const char *path, *text;
};

static char top[] = "/tmp/cove-test-doctor-XXXXXX";

static void put(int root, const char *path, const char *text)
{
    char part[256];
    int fd;

    for (const char *at = strchr(path, '/'); at != NULL; at = strchr(at + 1, '/')) {
        (void)snprintf(part, sizeof(part), "%.*s", (int)(at - path), path);
        (void)mkdirat(root, part, 0755);
    }
    if (strncmp(path, "proc/self/ns/", 13) == 0) {
        if (symlinkat(text, root, path) == 0)
            return;
        perror(path);
        exit(1);
    }
    fd = openat(root, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || fd_write_full(fd, text, strlen(text)) < 0) {
        perror(path);
        exit(1);
    }
    (void)close(fd);
}

/* The host of a tree with these files. */
static void read_tree(struct doctor_host *host, const struct file *files, size_t count)
{
    char command[128];
    int root;

    (void)snprintf(command, sizeof(command), "rm -rf %s", top);
    if (system(command) != 0 || mkdir(top, 0755) < 0) /* NOLINT(cert-env33-c): a path of ours */
        exit(1);
    root = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
    put(root, "proc/self/ns/user", "user:[4026531837]");
    put(root, "proc/self/mountinfo", ROOT_LINE);
    put(root, "proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
    put(root, "proc/1/comm", "systemd\n");
    for (size_t i = 0; i < count; i++)
        put(root, files[i].path, files[i].text);
    doctor_host_read(host, root);
    (void)close(root);
}

#define READ_TREE(host, ...)                                         \
    do {                                                             \
        static const struct file files_[] = {__VA_ARGS__};           \
        read_tree(host, files_, sizeof(files_) / sizeof(files_[0])); \
    } while (0)

static void only(const struct doctor_host *host, int place)
{
    for (int i = 0; i < PLACE_COUNT; i++)
        CHECK(host->is_in[i] == (i == place), "%s, expected %s",
              doctor_place_name((enum doctor_place)i),
              place < 0 ? "nothing" : doctor_place_name((enum doctor_place)place));
}

static void check_places(void)
{
    struct doctor_host host;

    READ_TREE(&host, {"etc/os-release", "ID=debian\n"});
    only(&host, -1);
    /* An image that became the disk of a machine is no container. */
    READ_TREE(&host, {".dockerenv", ""});
    only(&host, -1);
    READ_TREE(&host, {".dockerenv", ""}, {"proc/self/mountinfo", OVERLAY_LINE});
    only(&host, PLACE_DOCKER);
    READ_TREE(&host, {".dockerenv", ""}, {"proc/self/mountinfo", ROOT_LINE HOSTS_LINE});
    only(&host, PLACE_DOCKER);
    READ_TREE(&host, {"run/.containerenv", "engine=\"podman-5.0.0\"\nrootless=1\n"},
              {"proc/self/mountinfo", OVERLAY_LINE});
    only(&host, PLACE_PODMAN);
    READ_TREE(&host,
              {"proc/self/mountinfo", OVERLAY_LINE
               "31 27 8:1 /var/lib/kubelet/pods/1/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw\n"});
    only(&host, PLACE_KUBERNETES);
    READ_TREE(&host, {"proc/self/mountinfo", ROOT_LINE
                      "31 27 0:50 /proc/cpuinfo /proc/cpuinfo rw - fuse.lxcfs lxcfs rw\n"});
    only(&host, PLACE_LXC);
    READ_TREE(&host, {"run/host/container-manager", "systemd-nspawn\n"});
    only(&host, PLACE_NSPAWN);
    READ_TREE(&host, {".flatpak-info", "[Application]\n"}, {"proc/1/comm", "bwrap\n"});
    only(&host, PLACE_FLATPAK);
    READ_TREE(&host, {"proc/1/comm", "bwrap\n"});
    only(&host, PLACE_BUBBLEWRAP);
    READ_TREE(&host, {"proc/1/cmdline", "cove-init"});
    only(&host, PLACE_COVE);
    READ_TREE(&host, {"proc/version", "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n"});
    only(&host, PLACE_GVISOR);
    READ_TREE(&host, {"proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n"});
    only(&host, PLACE_WSL2);
    READ_TREE(&host, {"proc/sys/kernel/osrelease", "4.4.0-22621-Microsoft\n"});
    only(&host, PLACE_WSL1);
    READ_TREE(&host, {"run/systemd/container", "firejail\n"});
    only(&host, PLACE_CONTAINER);
    CHECK(strcmp(host.manager, "firejail") == 0, "%s", host.manager);
    READ_TREE(&host, {"proc/self/mountinfo", "28 27 0:60 / /proc rw - proc proc rw\n"});
    only(&host, PLACE_CHROOT);
}

static void check_facts(void)
{
    struct doctor_host host;

    READ_TREE(
        &host, {"proc/self/mountinfo", OVERLAY_LINE MASK_LINE CGROUP_LINE},
        {"proc/self/status", "Name:\tx\nCapEff:\t00000000a80425fb\nNoNewPrivs:\t1\nSeccomp:\t2\n"},
        {"proc/self/attr/current", "docker-default (enforce)\n"},
        {"proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n"},
        {"proc/sys/user/max_user_namespaces", "0\n"});
    CHECK(host.has_seccomp && host.no_new_privs, "status");
    CHECK(host.proc_is_masked && strcmp(host.proc_mask, "/proc/acpi") == 0, "%s", host.proc_mask);
    CHECK(host.cgroup_is_mounted && host.cgroup_is_read_only, "cgroup");
    CHECK(host.apparmor_restricts == 1 && host.userns_max == 0 && host.userns_clone == -1,
          "sysctl");
    CHECK(strcmp(host.confinement, "docker-default (enforce)") == 0, "%s", host.confinement);
    /* What systemd mounts there on an ordinary host masks nothing. */
    READ_TREE(&host,
              {"proc/self/mountinfo",
               ROOT_LINE "31 27 0:33 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n"},
              {"proc/self/attr/current", "unconfined\n"});
    CHECK(!host.proc_is_masked && host.confinement[0] == '\0', "%s", host.proc_mask);
}

/* What is advised when this step fails so. */
static struct doctor_check advise(const struct doctor_host *host, enum probe_id id, int errnum)
{
    struct probe_result result = {.state = PROBE_FAILS, .errnum = errnum};
    struct doctor_check check;

    (void)snprintf(result.step, sizeof(result.step), "a step");
    doctor_check_fill(&check, id, &result);
    doctor_explain(&check, id, &result, host);
    CHECK(check.cause[0] != '\0' && check.remedy[0] != '\0', "%s, errno %d: not explained",
          check.name, errnum);
    return check;
}

static void says(const char *text, const char *part)
{
    CHECK(strstr(text, part) != NULL, "\"%s\" says nothing of \"%s\"", text, part);
}

static void check_advice(void)
{
    struct doctor_host host;
    struct doctor_check check;

    /* Ubuntu: a namespace can be made, and no capability is in it. */
    READ_TREE(&host, {"proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n"});
    host.uid = 1000;
    (void)snprintf(host.program, sizeof(host.program), "/opt/bin/cove");
    check = advise(&host, PROBE_USERNS_CAPS, EPERM);
    says(check.cause, "AppArmor");
    says(check.command, "profile cove /opt/bin/cove flags=(unconfined)");
    says(check.command, "userns,");
    check = advise(&host, PROBE_USERNS_CAPS, EACCES);
    says(check.cause, "AppArmor");
    host.uid = 0; /* root is not restricted */
    check = advise(&host, PROBE_USERNS_CAPS, EPERM);
    CHECK(strstr(check.cause, "AppArmor takes") == NULL, "%s", check.cause);

    check = advise(&host, PROBE_SECCOMP, FILTER_NO_ROOM);
    says(check.found, "the host's memory for compiled filters is used up");
    says(check.cause, "net.core.bpf_jit_limit");
    says(check.command, "sysctl -w net.core.bpf_jit_limit=");

    READ_TREE(&host, {"proc/sys/kernel/unprivileged_userns_clone", "0\n"});
    host.uid = 1000;
    check = advise(&host, PROBE_USERNS, EPERM);
    says(check.command, "sysctl -w kernel.unprivileged_userns_clone=1");

    READ_TREE(&host, {".dockerenv", ""},
              {"proc/self/mountinfo", OVERLAY_LINE MASK_LINE CGROUP_LINE},
              {"proc/self/status", "Name:\tx\nSeccomp:\t2\n"},
              {"proc/self/attr/current", "docker-default (enforce)\n"});
    check = advise(&host, PROBE_USERNS, ENOSYS);
    says(check.command, "--security-opt seccomp=");
    check = advise(&host, PROBE_NAMESPACES, EACCES);
    says(check.command, "--security-opt apparmor=unconfined");
    check = advise(&host, PROBE_PROC, EPERM);
    says(check.command, "--security-opt systempaths=unconfined");
    says(check.remedy, "--allow-level no-fresh-proc");
    check = advise(&host, PROBE_CGROUP, 0);
    says(check.command, "--security-opt writable-cgroups=true");

    READ_TREE(&host, {"run/.containerenv", ""},
              {"proc/self/mountinfo", OVERLAY_LINE MASK_LINE CGROUP_LINE});
    check = advise(&host, PROBE_PROC, EPERM);
    says(check.command, "--security-opt unmask=ALL");

    READ_TREE(&host, {"run/secrets/kubernetes.io/serviceaccount/token", ""},
              {"proc/self/mountinfo", OVERLAY_LINE MASK_LINE});
    check = advise(&host, PROBE_PROC, EPERM);
    says(check.command, "procMount: Unmasked");
    says(check.command, "hostUsers: false");

    READ_TREE(&host, {"proc/self/mountinfo", "28 27 0:60 / /proc rw - proc proc rw\n"});
    check = advise(&host, PROBE_USERNS, EPERM);
    says(check.cause, "chroot");

    READ_TREE(&host, {"proc/sys/kernel/osrelease", "4.4.0-22621-Microsoft\n"});
    check = advise(&host, PROBE_USERNS, EINVAL);
    says(check.command, "wsl.exe --set-version");

    READ_TREE(&host, {"proc/sys/kernel/osrelease", "5.15.1-microsoft-standard-WSL2\n"});
    check = advise(&host, PROBE_CGROUP, 0);
    says(check.remedy, "/etc/wsl.conf");

    READ_TREE(&host, {"proc/sys/vm/memfd_noexec", "2\n"});
    check = advise(&host, PROBE_MEMFD, EACCES);
    says(check.command, "vm.memfd_noexec=1");
}

/* A pipe heeds RLIMIT_CORE, with which boxes stop it; a socket does not. */
static void check_cores(void)
{
    static const char *const patterns[] = {
        "core\n",        "|/usr/lib/systemd/systemd-coredump %P\n",
        "/var/@/core\n", "\n",
        "@/run/cores\n", "@@/run/cores\n"};
    struct doctor_host host;
    struct doctor_check check;

    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        const struct file file = {"proc/sys/kernel/core_pattern", patterns[i]};
        bool leads_to_socket = i >= 4;

        read_tree(&host, &file, 1);
        doctor_check_cores(&check, &host);
        CHECK(check.state == (leads_to_socket ? DOCTOR_LESS : DOCTOR_YES), "%s", patterns[i]);
        CHECK((check.cause[0] != '\0') == leads_to_socket, "%s: %s", patterns[i], check.cause);
        if (leads_to_socket)
            says(check.command, "sysctl -w kernel.core_pattern=");
    }
}

static void check_files(void)
{
    static const char *const most[] = {"9223372036854775807\n", "2466170\n", "524288\n", "524287\n",
                                       "98000\n"};
    struct doctor_host host;
    struct doctor_check check;

    for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
        const struct file file = {"proc/sys/fs/file-max", most[i]};

        read_tree(&host, &file, 1);
        doctor_check_files(&check, &host);
        CHECK(check.state == (i >= 3 ? DOCTOR_LESS : DOCTOR_YES), "%s", most[i]);
        if (i >= 3)
            says(check.command, "sysctl -w fs.file-max=");
    }
    READ_TREE(&host, {"etc/os-release", "ID=debian\n"});
    doctor_check_files(&check, &host);
    CHECK(check.state == DOCTOR_YES, "a kernel that does not tell");
}

/* Nothing that a step can end with is left unexplained, wherever we are. */
static void check_everything_is_explained(void)
{
    static const int errnums[] = {0,      EPERM,  EACCES, ENOSYS,     EINVAL,
                                  ENOSPC, EUSERS, ENODEV, EOPNOTSUPP, ENOMEM};
    struct doctor_host host;

    READ_TREE(&host, {"etc/os-release", "ID=debian\n"});
    for (int place = -1; place < PLACE_COUNT; place++) {
        memset(host.is_in, 0, sizeof(host.is_in));
        if (place >= 0)
            host.is_in[place] = true;
        for (int id = 0; id < PROBE_COUNT; id++)
            for (size_t i = 0; i < sizeof(errnums) / sizeof(errnums[0]); i++)
                (void)advise(&host, (enum probe_id)id, errnums[i]);
    }
}

static void check_hints(void)
{
    struct error err;

    (void)error_set(&err, "namespace_failed", ENOSPC, "cannot make the box's namespaces");
    doctor_hint(&err);
    says(err.text, "see cove doctor");
    (void)error_set(&err, "bad_mount", ENOENT, "cannot mount /x into the box");
    doctor_hint(&err);
    CHECK(strstr(err.text, "doctor") == NULL, "%s", err.text);
    (void)error_set(&err, "mount_failed", ENOENT, "cannot make the mount target");
    doctor_hint(&err);
    CHECK(strstr(err.text, "doctor") == NULL, "%s", err.text);
    /* However long it is already, where to look comes last and whole. */
    (void)error_set(&err, "no_cgroup", 0, "%0450d", 0);
    doctor_hint(&err);
    says(err.text, "; see cove doctor");
}

int main(void)
{
    char command[128];

    if (mkdtemp(top) == NULL)
        return 1;
    /* What this very place says of itself must not count for the trees. */
    (void)unsetenv("container");
    (void)unsetenv("KUBERNETES_SERVICE_HOST");
    check_places();
    check_facts();
    check_advice();
    check_cores();
    check_files();
    check_everything_is_explained();
    check_hints();
    (void)snprintf(command, sizeof(command), "rm -rf %s", top);
    if (system(command) != 0) /* NOLINT(cert-env33-c): a path of ours */
        return 1;
    return check_finish();
}
