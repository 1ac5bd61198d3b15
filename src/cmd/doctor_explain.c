/* Why a probe failed and what to do about it: see doctor.h.
 *
 * The errno of the step says what kind of refusal it is, the host's settings say whose. What cannot be
 * told from these is said to be unknown: a wrong remedy costs more than none. */
#include "cmd/doctor.h"

#include "base/kernel.h"
#include "box/filter/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What to add to the line that starts a container, by what is in the way. */
static const struct {
    enum doctor_place place;
    const char *seccomp, *module, *proc, *cgroup;
} start_lines[] = {
    {PLACE_DOCKER, "docker run --security-opt seccomp=unconfined",
     "docker run --security-opt apparmor=unconfined --security-opt label=disable",
     "docker run --security-opt systempaths=unconfined",
     "docker run --security-opt writable-cgroups=true   # Docker 28 or later, cgroup v2"},
    {PLACE_PODMAN, "podman run --security-opt seccomp=unconfined",
     "podman run --security-opt apparmor=unconfined --security-opt label=disable",
     "podman run --security-opt unmask=ALL", "podman run --security-opt unmask=/sys/fs/cgroup"},
    {PLACE_KUBERNETES, "securityContext: {seccompProfile: {type: Unconfined}}",
     "securityContext: {appArmorProfile: {type: Unconfined}}",
     "spec: {hostUsers: false}, securityContext: {procMount: Unmasked}", ""},
    {PLACE_LXC, "incus config set NAME security.nesting=true   # LXD: lxc config set NAME ...",
     "incus config set NAME security.nesting=true   # LXD: lxc config set NAME ...",
     "incus config set NAME security.nesting=true   # LXD: lxc config set NAME ...",
     "lxc.mount.auto = cgroup:rw:force   # in the container's configuration"},
    {PLACE_FLATPAK, "flatpak-spawn --host cove doctor", "flatpak-spawn --host cove doctor",
     "flatpak-spawn --host cove doctor", "flatpak-spawn --host cove doctor"},
};

enum obstacle { BY_SECCOMP, BY_MODULE, BY_PROC, BY_CGROUP };

static const char *start_line(const struct doctor_host *host, enum obstacle obstacle)
{
    for (size_t i = 0; i < sizeof(start_lines) / sizeof(start_lines[0]); i++) {
        if (!host->is_in[start_lines[i].place])
            continue;
        switch (obstacle) {
        case BY_SECCOMP:
            return start_lines[i].seccomp;
        case BY_MODULE:
            return start_lines[i].module;
        case BY_PROC:
            return start_lines[i].proc;
        case BY_CGROUP:
            return start_lines[i].cgroup;
        }
    }
    return "";
}

/* "this Docker container", or what else there is. */
static const char *here(const struct doctor_host *host)
{
    for (size_t i = 0; i < PLACE_COUNT; i++)
        if (host->is_in[i] && i != PLACE_CHROOT && i != PLACE_WSL2)
            return doctor_place_words(host, (enum doctor_place)i);
    return "a container or a service manager";
}

static void say(char *to, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void say(char *to, size_t size, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(to, size, fmt, args);
    va_end(args);
}

#define CAUSE(...) say(check->cause, sizeof(check->cause), __VA_ARGS__)
#define REMEDY(...) say(check->remedy, sizeof(check->remedy), __VA_ARGS__)
#define COMMAND(...) say(check->command, sizeof(check->command), __VA_ARGS__)

static void with_start_line(struct doctor_check *check, const struct doctor_host *host,
                            enum obstacle obstacle, const char *otherwise)
{
    const char *line = start_line(host, obstacle);

    if (line[0] == '\0') {
        REMEDY("%s", otherwise);
        return;
    }
    REMEDY(host->is_in[PLACE_FLATPAK]      ? "run cove outside of the sandbox"
           : host->is_in[PLACE_KUBERNETES] ? "add to the pod"
                                           : "start the container with this option more");
    COMMAND("%s", line);
}

/* ---- refusals that look alike everywhere ---- */

static void explain_seccomp(struct doctor_check *check, const struct doctor_host *host)
{
    CAUSE("a system call filter (seccomp) of %s refuses it", here(host));
    with_start_line(check, host, BY_SECCOMP,
                    "allow clone3, unshare, setns, pivot_root, mount, umount2, the new mount calls "
                    "and keyctl in that filter, or start cove without it");
}

static void explain_module(struct doctor_check *check, const struct doctor_host *host)
{
    CAUSE("a security module (AppArmor or SELinux: %s) refuses it",
          host->confinement[0] != '\0' ? host->confinement : "no label on us");
    with_start_line(check, host, BY_MODULE,
                    "allow it in that module's policy; its log (dmesg, journalctl -k) names the "
                    "rule");
}

/* A profile of its own for one program: the way that Ubuntu means. */
static void explain_apparmor(struct doctor_check *check, const struct doctor_host *host)
{
    const char *program = host->program[0] != '\0' ? host->program : "/usr/local/bin/cove";

    CAUSE("AppArmor takes the capabilities out of user namespaces of programs without a profile "
          "(kernel.apparmor_restrict_unprivileged_userns = 1, as Ubuntu 24.04 sets it)");
    REMEDY("give this program a profile that allows them, as root");
    COMMAND("printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile cove %s "
            "flags=(unconfined) {\\n  userns,\\n}\\n' > /etc/apparmor.d/cove && "
            "apparmor_parser -r /etc/apparmor.d/cove",
            program);
}

/* Places in which nothing can be added to a start line. */
static bool explain_place(struct doctor_check *check, const struct doctor_host *host)
{
    if (host->is_in[PLACE_GVISOR]) {
        CAUSE("gVisor is a kernel of its own and has not all of Linux");
        REMEDY("run cove on the host, or in a container of another runtime");
    } else if (host->is_in[PLACE_WSL1]) {
        CAUSE("WSL 1 is no Linux kernel");
        REMEDY("turn this distribution into one of WSL 2, in PowerShell");
        COMMAND("wsl.exe --set-version DISTRIBUTION 2");
    } else if (host->is_in[PLACE_COVE]) {
        CAUSE("this is a cove box, and a box makes no boxes");
        REMEDY("start the second box from outside, beside this one");
    } else {
        return false;
    }
    return true;
}

static bool explain_old_kernel(struct doctor_check *check, unsigned major, unsigned minor)
{
    if (kernel_is_at_least(major, minor))
        return false;
    CAUSE("this kernel is too old: it came with Linux %u.%u", major, minor);
    REMEDY("start a kernel of %u.%u or later", major, minor);
    return true;
}

static void explain_unknown(struct doctor_check *check)
{
    CAUSE("nothing that cove knows to look at says why");
    REMEDY(
        "look for a refusal in the kernel's log (dmesg), and start cove outside of any container");
}

/* A call that a kernel of this age has, and that is not there; or is refused, where there is a filter. */
static bool is_by_filter(const struct probe_result *result, const struct doctor_host *host)
{
    return result->signal == SIGSYS || (result->errnum == EPERM && host->has_seccomp) ||
           (result->errnum == ENOSYS && kernel_is_at_least(5, 15));
}

/* What any step can run into. */
static void explain_common(struct doctor_check *check, const struct probe_result *result,
                           const struct doctor_host *host)
{
    if (explain_place(check, host))
        return;
    if (result->timed_out) {
        CAUSE("it did not come to an end in 10 seconds");
        REMEDY("look at the load of this machine and at the kernel's log (dmesg), and try again");
    } else if (is_by_filter(result, host)) {
        explain_seccomp(check, host);
    } else if (result->errnum == ENOSYS) {
        (void)explain_old_kernel(check, 5, 15);
    } else if ((result->errnum == EPERM || result->errnum == EACCES) &&
               host->apparmor_restricts == 1 && host->uid != 0) {
        explain_apparmor(check, host);
    } else if (result->errnum == EACCES ||
               (result->errnum == EPERM && host->confinement[0] != '\0')) {
        explain_module(check, host);
    } else if (result->errnum == FILTER_NO_ROOM) {
        CAUSE("all programs of this host together have as much compiled BPF as "
              "net.core.bpf_jit_limit allows, and each box needs some");
        REMEDY("end programs that load many filters, or raise that limit, as root of the host");
        COMMAND("sysctl -w net.core.bpf_jit_limit=$((2 * $(sysctl -n net.core.bpf_jit_limit)))");
    } else if (result->errnum == ENOSPC) {
        CAUSE("a limit in /proc/sys/user of this namespace, or of one above it, is used up");
        REMEDY("raise the max_*_namespaces there, as root of the host");
        COMMAND("sysctl -w user.max_user_namespaces=65536");
    } else if (!explain_old_kernel(check, 5, 15)) {
        explain_unknown(check);
    }
}

/* ---- each check ---- */

static void explain_userns(struct doctor_check *check, const struct probe_result *result,
                           const struct doctor_host *host)
{
    if (explain_place(check, host))
        return;
    if (result->errnum == EPERM && host->is_in[PLACE_CHROOT]) {
        CAUSE("this is a chroot, and the kernel makes no user namespace in one");
        REMEDY("run cove outside of it, and give it the tree with --root");
    } else if (result->errnum == ENOSPC || result->errnum == EUSERS) {
        if (host->userns_max == 0)
            CAUSE("user.max_user_namespaces is 0, which forbids user namespaces");
        else
            CAUSE("the user namespaces that are allowed here are used up, or 32 are nested "
                  "(user.max_user_namespaces = %ld; one above may allow fewer)",
                  host->userns_max);
        REMEDY("allow more of them, as root of who set this: %s",
               host->has_own_userns ? "this namespace, or one above it" : "the host");
        COMMAND("sysctl -w user.max_user_namespaces=65536");
    } else if (result->errnum == EPERM && host->userns_clone == 0 && host->uid != 0) {
        CAUSE("this kernel lets only root make user namespaces "
              "(kernel.unprivileged_userns_clone = 0)");
        REMEDY("allow them, as root");
        COMMAND("sysctl -w kernel.unprivileged_userns_clone=1");
    } else if (result->errnum == EINVAL) {
        CAUSE("this kernel was built without user namespaces (CONFIG_USER_NS)");
        REMEDY("start a kernel that has them");
    } else {
        explain_common(check, result, host);
    }
}

static const char *user_name(const struct doctor_host *host)
{
    const struct passwd *entry = getpwuid(host->uid);

    return entry != NULL ? entry->pw_name : "USER";
}

/* Above the ids that root's boxes and systemd's containers take there are free ones, by systemd's
 * account of who uses which; a million for each of 255 users. */
static void command_add_ids(struct doctor_check *check, const struct doctor_host *host)
{
    unsigned first = 0x70000000U + host->uid % 255U * 0x100000U;
    unsigned last = first + 0xFFFFFU;

    COMMAND("usermod --add-subuids %u-%u --add-subgids %u-%u %s", first, last, first, last,
            user_name(host));
}

static void explain_ids(struct doctor_check *check, const struct probe_result *result,
                        const struct doctor_host *host)
{
    if (result->ids_refused) {
        if (host->uid == 0)
            CAUSE("this root lacks the capabilities to map ids (SETUID and SETGID)");
        else
            CAUSE(
                "newuidmap could not map them: it lies on a nosuid mount, or the ids of /etc/subuid "
                "and /etc/subgid do not exist here");
        REMEDY(host->uid == 0 ? "give it these, or run cove as an ordinary user"
                              : "check the mount of newuidmap, and these files");
        return;
    }
    switch (result->ids_gap) {
    case IDS_NO_PROGRAM:
        CAUSE(
            "newuidmap and newgidmap, which map ids for users, are not installed or not set-user-id");
        REMEDY("install them, as root");
        COMMAND("apt-get install uidmap   # elsewhere: shadow-utils or shadow");
        return;
    case IDS_NO_ENTRY:
        CAUSE("user %s has no ids in /etc/subuid and /etc/subgid", user_name(host));
        REMEDY(
            "give them a million that nobody has, as root; if these are somebody's, take others");
        command_add_ids(check, host);
        return;
    case IDS_NO_RIGHTS:
        CAUSE("newuidmap is set-user-id, and this process may gain no rights (no_new_privs)");
        REMEDY("start cove outside of what set no_new_privs");
        return;
    case IDS_OUTSIDE:
        CAUSE(
            "the user namespace that this root is root of has few ids beside those of its accounts "
            "(/proc/self/uid_map)");
        REMEDY("give it 65,536 ids at least, and a million for ranges, or run cove outside of it");
        return;
    case IDS_ENOUGH:
        break;
    }
    explain_common(check, result, host);
}

static void explain_proc(struct doctor_check *check, const struct probe_result *result,
                         const struct doctor_host *host)
{
    /* A filter cannot tell /proc from any other mount, and those worked. */
    if (result->errnum != EPERM) {
        explain_common(check, result, host);
        return;
    }
    if (explain_place(check, host))
        return;
    if (host->proc_is_masked)
        CAUSE("%s masks parts of /proc (%s and others), so the kernel gives no unmasked one",
              here(host), host->proc_mask);
    else
        CAUSE("no whole /proc is mounted here, so the kernel gives no new one");
    with_start_line(check, host, BY_PROC,
                    "start cove where /proc is whole; or take a weaker box, with "
                    "cove run --allow-level no-fresh-proc");
    if (check->command[0] != '\0')
        say(check->remedy + strlen(check->remedy), sizeof(check->remedy) - strlen(check->remedy),
            ", or take a weaker box with cove run --allow-level no-fresh-proc");
}

static void explain_cgroup(struct doctor_check *check, const struct probe_result *result,
                           const struct doctor_host *host)
{
    (void)result;
    if (host->is_in[PLACE_WSL2]) {
        CAUSE("WSL 2 starts without a systemd that gives cgroups to its users");
        REMEDY("put systemd=true below [boot] in /etc/wsl.conf, then in PowerShell");
        COMMAND("wsl.exe --shutdown");
    } else if (!host->cgroup_is_mounted) {
        CAUSE("no cgroup filesystem is mounted here");
        with_start_line(check, host, BY_CGROUP, "mount cgroup2 on /sys/fs/cgroup, as root");
    } else if (host->cgroup_is_read_only) {
        CAUSE("/sys/fs/cgroup is mounted read-only by %s", here(host));
        with_start_line(check, host, BY_CGROUP,
                        "mount /sys/fs/cgroup so that it can be written to");
    } else if (host->uid == 0) {
        CAUSE("root cannot make groups with limits of memory and processes here");
        REMEDY("let the group that cove runs in have them (cgroup.subtree_control above it), and "
               "see cgroup_disable= on the kernel's command line");
    } else if (host->has_systemd) {
        CAUSE("systemd's user manager of %s gave no group with memory and pids", user_name(host));
        REMEDY("log in by the login manager or ssh (su and sudo start no user manager), with "
               "cgroup v2");
        COMMAND(
            "loginctl enable-linger %s && systemd-run --user --scope -p Delegate=yes cove doctor",
            user_name(host));
    } else {
        CAUSE("the cgroup of this process belongs to root, and there is no systemd to ask for one");
        REMEDY(
            "run cove as root; or, with cgroup v2, let root make a group, give it to %s and move "
            "the shell there",
            user_name(host));
    }
}

static void explain_clocks(struct doctor_check *check, const struct probe_result *result,
                           const struct doctor_host *host)
{
    if (explain_old_kernel(check, 6, 3))
        return;
    if (result->errnum == EINVAL) {
        CAUSE("this kernel was built without time namespaces (CONFIG_TIME_NS)");
        REMEDY("none is needed: boxes see how long the host is up");
        return;
    }
    explain_common(check, result, host);
}

static void explain_landlock(struct doctor_check *check, const struct probe_result *result,
                             const struct doctor_host *host)
{
    if (result->errnum == EOPNOTSUPP) {
        CAUSE("Landlock was not started with this kernel");
        REMEDY("add landlock to lsm= on the kernel's command line");
    } else if (!explain_old_kernel(check, 5, 19)) {
        if (result->errnum == ENOSYS && !host->has_seccomp) {
            CAUSE("this kernel was built without Landlock (CONFIG_SECURITY_LANDLOCK)");
            REMEDY("none is needed: it stands behind walls that hold without it");
        } else {
            explain_common(check, result, host);
        }
    }
}

static void explain_memfd(struct doctor_check *check, const struct probe_result *result,
                          const struct doctor_host *host)
{
    if (result->errnum == EACCES && host->memfd_noexec == 2) {
        CAUSE("programs in memory are forbidden here (vm.memfd_noexec = 2)");
        REMEDY("allow them to who asks, as root");
        COMMAND("sysctl -w vm.memfd_noexec=1");
        return;
    }
    explain_common(check, result, host);
}

static void explain_optional(struct doctor_check *check, enum probe_id id,
                             const struct probe_result *result, const struct doctor_host *host)
{
    switch (id) {
    case PROBE_OVERLAY:
        if (result->state == PROBE_PARTLY) {
            if (!explain_old_kernel(check, 6, 6))
                explain_unknown(check);
        } else if (result->errnum == ENODEV) {
            CAUSE("this kernel has no overlayfs");
            REMEDY("load it, as root; without it there is no --root");
            COMMAND("modprobe overlay");
        } else {
            explain_common(check, result, host);
        }
        return;
    case PROBE_IDMAP:
        if (result->errnum == EINVAL) {
            CAUSE("the filesystem of the current directory cannot map owners");
            REMEDY("root's --workspace works on ext4, xfs, btrfs, and tmpfs (Linux 6.3); :ro works "
                   "everywhere");
        } else {
            explain_common(check, result, host);
        }
        return;
    case PROBE_EROFS:
        if (result->errnum == ENODEV) {
            CAUSE("this kernel has no erofs");
            REMEDY("load it, or give --root a directory");
            COMMAND("modprobe erofs");
        } else {
            explain_common(check, result, host);
        }
        return;
    case PROBE_PROCESS_LIMIT:
        if (result->errnum == 0 && !explain_old_kernel(check, 5, 14))
            explain_unknown(check);
        else if (result->errnum != 0)
            explain_common(check, result, host);
        return;
    default:
        explain_common(check, result, host);
        return;
    }
}

void doctor_explain(struct doctor_check *check, enum probe_id id, const struct probe_result *result,
                    const struct doctor_host *host)
{
    check->cause[0] = check->remedy[0] = check->command[0] = '\0';
    if (result->state == PROBE_WORKS || result->state == PROBE_SKIPPED)
        return;
    switch (id) {
    case PROBE_USERNS:
        explain_userns(check, result, host);
        return;
    case PROBE_IDS:
        explain_ids(check, result, host);
        return;
    case PROBE_PROC:
        explain_proc(check, result, host);
        return;
    case PROBE_CGROUP:
        explain_cgroup(check, result, host);
        return;
    case PROBE_CLOCKS:
        explain_clocks(check, result, host);
        return;
    case PROBE_LANDLOCK:
        explain_landlock(check, result, host);
        return;
    case PROBE_MEMFD:
        explain_memfd(check, result, host);
        return;
    default:
        explain_optional(check, id, result, host);
        return;
    }
}

const char *doctor_container_line(const struct doctor *doctor)
{
    const bool *in = doctor->host.is_in;
    bool has_all = doctor->has_box && strcmp(doctor->level, "full") == 0;

    return has_all || in[PLACE_GVISOR] || in[PLACE_WSL1] || in[PLACE_COVE] ? ""
                                                                           : DOCTOR_CONTAINER_LINE;
}

/* ---- the same, for an error of `cove run` ---- */

static const struct {
    const char *code;
    enum probe_id id;
} codes[] = {
    {"namespace_failed", PROBE_USERNS}, {"no_fresh_proc", PROBE_PROC},
    {"no_cgroup", PROBE_CGROUP},        {"mount_failed", PROBE_NAMESPACES},
    {"filter_failed", PROBE_SECCOMP},   {"ids_failed", PROBE_NAMESPACES},
    {"init_failed", PROBE_MEMFD},
};

/* A mount or a map that fails for another reason than a refusal is no matter of the host. */
static bool is_refusal(int errnum)
{
    return errnum == EPERM || errnum == EACCES || errnum == ENOSYS || errnum == ENOSPC ||
           errnum == EUSERS;
}

void doctor_hint(struct error *err)
{
    static const char see[] = "; see cove doctor";
    struct probe_result result = {.state = PROBE_FAILS, .errnum = err->errnum};
    struct doctor_check check;
    struct doctor_host host;
    size_t used = strlen(err->text);
    int root;

    if (strstr(err->text, "cove doctor") != NULL)
        return;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (strcmp(err->code, codes[i].code) != 0 ||
            (err->errnum == 0 ? codes[i].id != PROBE_CGROUP : !is_refusal(err->errnum)))
            continue;
        root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        doctor_host_read(&host, root);
        (void)close(root);
        doctor_explain(&check, codes[i].id, &result, &host);
        if (used + strlen(check.cause) + sizeof(see) + 2 > sizeof(err->text))
            check.cause[0] = '\0';
        (void)snprintf(err->text + used, sizeof(err->text) - used, "%s%s%s",
                       check.cause[0] != '\0' ? "; " : "", check.cause, see);
        return;
    }
}
