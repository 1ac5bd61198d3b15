/* `cove doctor`: what of a box works on this host, what does not, why, and what to do.
 *
 * Every mechanism is tried (box/probe.h), and last a box is made as `cove run` makes one: its level is
 * the verdict, whatever the probes said. */
#include "cmd/doctor.h"

#include "base/fd.h"
#include "base/program.h"
#include "box/caller.h"
#include "box/filter/filter.h"
#include "box/open_files.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

/* Boxes that can have as many files open as one may, before the host can have no more. */
#define FILES_BOXES 8

static const struct option_row rows[] = {
    OPTION_JSON("print one object that says the same"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "doctor",
    .about =
        "Tries everything that a box needs of this host, each in a process of its own, makes a box,\n"
        "asks the server whether it could start, and says what works, what does not, why, and what to\n"
        "do. Nothing of the host is changed.",
    .notes =
        "Each line starts with yes, less (it works, with less), no, or - (not tried). The last lines\n"
        "are what cove run has here:\n"
        "\n"
        "  level     full; no-fresh-proc (has to be asked for); none\n"
        "  limits    cgroup; rlimit (a watchdog counts memory, and kills late)\n"
        "  ids       range (65,536 of its own per box); slice (fewer); single (the caller's one id)\n"
        "  disk      hard (the kernel keeps the limit); watched (a watchdog does)\n"
        "\n"
        "Exit status: 0 where a box of level full can be made, the server starts and sandboxes have\n"
        "disks, 1 where not, 125 if cove doctor itself was misused or could not say it.",
    OPTION_ROWS(rows),
};

/* ---- what each check is ---- */

/* What stands in for it, or what is lost without it; NULL where there is no box without it. */
static const struct {
    const char *name, *title, *without;
} words[DOCTOR_CHECKS] = {
    [PROBE_KERNEL] = {"kernel", "kernel", NULL},
    [PROBE_USERNS] = {"user-namespace", "user namespaces", NULL},
    [PROBE_USERNS_CAPS] = {"capabilities", "capabilities in them", NULL},
    [PROBE_IDS] = {"ids", "ids", NULL},
    [PROBE_NAMESPACES] = {"namespaces", "other namespaces", NULL},
    [PROBE_NETWORK] = {"network", "network namespace", NULL},
    [PROBE_PROC] = {"proc", "fresh /proc", NULL},
    [PROBE_DEVPTS] = {"devpts", "terminals (devpts)", NULL},
    [PROBE_OVERLAY] = {"overlay", "overlay", "only --root needs it"},
    [PROBE_IDMAP] = {"idmap", "idmapped mounts", "only root's --workspace and --mount need them"},
    [PROBE_EROFS] = {"erofs", "erofs images", "only --root IMAGE needs it"},
    [PROBE_SECCOMP] = {"seccomp", "system call filter", NULL},
    [PROBE_LANDLOCK] = {"landlock", "Landlock", "a second wall; the first ones hold without it"},
    [PROBE_CLOCKS] = {"clocks", "clocks of its own", "boxes see how long the host is up"},
    [PROBE_MEMFD] = {"memfd", "programs in memory", NULL},
    [PROBE_CGROUP] = {"cgroup", "limits by cgroups",
                      "rlimit: a watchdog stands in, and kills late"},
    [PROBE_PROCESS_LIMIT] = {"process-limit", "processes per box",
                             "only limits without cgroups need it"},
    [DOCTOR_CORES] = {"core-dumps", "core dumps", NULL},
    [DOCTOR_FILES] = {"open-files", "open files", NULL},
    [DOCTOR_DISKS] = {"disks", "disks (mkfs.ext4)", NULL},
    [DOCTOR_BOX] = {"box", "a box", NULL},
    [DOCTOR_NETWORK] = {"network-policy", "its network policy", NULL},
    [DOCTOR_SERVER] = {"server", "the server", NULL},
};

static void failure_say(struct doctor_check *check, const char *without,
                        const struct probe_result *result)
{
    const char *how = result->timed_out     ? "it did not end"
                      : result->signal != 0 ? strsignal(result->signal)
                      : result->errnum == FILTER_NO_ROOM
                          ? "the host's memory for compiled filters is used up"
                      : result->errnum != 0 ? strerror(result->errnum)
                                            : "it does not do what it should";

    if (result->errnum == 0 && result->signal == 0 && !result->timed_out &&
        result->found[0] != '\0')
        (void)snprintf(check->found, sizeof(check->found), "%s%s%s", result->found,
                       without != NULL ? "; " : "", without != NULL ? without : "");
    else
        (void)snprintf(check->found, sizeof(check->found), "%s: %s%s%s", result->step, how,
                       without != NULL ? "; " : "", without != NULL ? without : "");
}

void doctor_check_fill(struct doctor_check *check, enum probe_id id,
                       const struct probe_result *result)
{
    const char *without = words[id].without;

    *check = (struct doctor_check){.name = words[id].name, .title = words[id].title};
    switch (result->state) {
    case PROBE_WORKS:
    case PROBE_SKIPPED:
        check->state = result->state == PROBE_WORKS ? DOCTOR_YES : DOCTOR_UNTRIED;
        (void)snprintf(check->found, sizeof(check->found), "%s", result->found);
        break;
    case PROBE_PARTLY:
        check->state = DOCTOR_LESS;
        (void)snprintf(check->found, sizeof(check->found), "%s", result->found);
        break;
    case PROBE_FAILS:
        check->state = without != NULL ? DOCTOR_LESS : DOCTOR_NO;
        failure_say(check, without, result);
        break;
    }
}

void doctor_check_cores(struct doctor_check *check, const struct doctor_host *host)
{
    *check = (struct doctor_check){.name = words[DOCTOR_CORES].name,
                                   .title = words[DOCTOR_CORES].title};
    check->state = host->cores_to_socket ? DOCTOR_LESS : DOCTOR_YES;
    if (!host->cores_to_socket) {
        (void)snprintf(check->found, sizeof(check->found), "no socket takes them");
        return;
    }
    (void)snprintf(check->found, sizeof(check->found),
                   "the memory of what crashes in a box goes to a program of the host");
    (void)snprintf(check->cause, sizeof(check->cause),
                   "kernel.core_pattern begins with @: the kernel sends it to a socket, which no "
                   "limit of a process stops");
    (void)snprintf(check->remedy, sizeof(check->remedy),
                   "name a file, or a program (|), as root of the host");
    (void)snprintf(check->command, sizeof(check->command), "sysctl -w kernel.core_pattern=core");
}

void doctor_check_files(struct doctor_check *check, const struct doctor_host *host)
{
    *check = (struct doctor_check){
        .name = words[DOCTOR_FILES].name, .title = words[DOCTOR_FILES].title, .state = DOCTOR_YES};
    if (host->open_files < 0 || host->open_files >= (long)FILES_BOXES * FILES_BOX_MAX)
        return;
    check->state = DOCTOR_LESS;
    (void)snprintf(check->found, sizeof(check->found), "a few boxes can have all of the host's");
    (void)snprintf(check->cause, sizeof(check->cause),
                   "fs.file-max is %ld for the whole host, and a box may have %d open",
                   host->open_files, FILES_BOX_MAX);
    (void)snprintf(check->remedy, sizeof(check->remedy),
                   "raise it as root of the host: open files count in the memory limits of boxes");
    (void)snprintf(check->command, sizeof(check->command),
                   "sysctl -w fs.file-max=9223372036854775807");
}

void doctor_check_disks(struct doctor_check *check, bool mounts_images)
{
    char program[64];

    *check = (struct doctor_check){.name = words[DOCTOR_DISKS].name,
                                   .title = words[DOCTOR_DISKS].title};
    check->state = DOCTOR_YES;
    if (!mounts_images || program_find("mkfs.ext4", program, sizeof(program)))
        return;
    check->state = DOCTOR_NO;
    (void)snprintf(check->found, sizeof(check->found),
                   "it is not here; a sandbox that lives has to be ephemeral");
    (void)snprintf(check->cause, sizeof(check->cause),
                   "the disks of root's sandboxes are ext4 images, which mkfs.ext4 makes");
    (void)snprintf(check->remedy, sizeof(check->remedy), "install e2fsprogs");
    (void)snprintf(check->command, sizeof(check->command), "apt-get install e2fsprogs");
}

/* ---- finding out ---- */

/* Without a user namespace nothing in one can be tried, and so on upwards. */
static enum probe_id needs(enum probe_id id)
{
    switch (id) {
    case PROBE_IDS:
    case PROBE_USERNS_CAPS:
        return PROBE_USERNS;
    case PROBE_NAMESPACES:
    case PROBE_NETWORK:
    case PROBE_CLOCKS:
    case PROBE_PROCESS_LIMIT:
        return PROBE_USERNS_CAPS;
    case PROBE_PROC:
    case PROBE_DEVPTS:
    case PROBE_OVERLAY:
        return PROBE_NAMESPACES;
    default:
        return id;
    }
}

static bool can_try(const struct doctor *doctor, enum probe_id id, struct probe_result *result)
{
    enum probe_id other = needs(id);
    const struct doctor_check *check = &doctor->checks[other];

    if (other == id || check->state == DOCTOR_YES || check->state == DOCTOR_LESS)
        return true;
    *result = (struct probe_result){.state = PROBE_SKIPPED};
    (void)snprintf(result->found, sizeof(result->found), "not tried without %s", check->title);
    return false;
}

/* What was not tried because something else fails first, but is known to be in the way behind it: who
 * changes how a container starts wants to do so once. */
static void explain_ahead(struct doctor_check *check, enum probe_id id,
                          const struct doctor_host *host)
{
    struct probe_result result = {.state = PROBE_FAILS, .errnum = EPERM};
    bool in_engine = host->is_in[PLACE_DOCKER] || host->is_in[PLACE_PODMAN] ||
                     host->is_in[PLACE_KUBERNETES];

    if (id == PROBE_PROC && host->proc_is_masked) {
        doctor_explain(check, id, &result, host);
    } else if (id == PROBE_NAMESPACES && in_engine && strstr(host->confinement, "(enforce)")) {
        result.errnum = EACCES;
        doctor_explain(check, id, &result, host);
    }
}

/* One filter or setting is often in the way of many: it is explained once. */
static void explain_once(struct doctor *doctor, int id)
{
    struct doctor_check *check = &doctor->checks[id];

    for (int i = 0; i < id && check->cause[0] != '\0'; i++) {
        const struct doctor_check *other = &doctor->checks[i];

        if (strcmp(check->cause, other->cause) != 0 || strcmp(check->remedy, other->remedy) != 0)
            continue;
        (void)snprintf(check->cause, sizeof(check->cause), "as for %s above", other->title);
        check->remedy[0] = check->command[0] = '\0';
        return;
    }
}

static void probes_run(struct doctor *doctor)
{
    for (int i = 0; i < PROBE_COUNT; i++) {
        enum probe_id id = (enum probe_id)i;
        struct probe_result result;

        if (can_try(doctor, id, &result))
            probe_run(id, &result);
        doctor_check_fill(&doctor->checks[id], id, &result);
        doctor_explain(&doctor->checks[id], id, &result, &doctor->host);
        if (result.state == PROBE_SKIPPED)
            explain_ahead(&doctor->checks[id], id, &doctor->host);
        explain_once(doctor, i);
    }
}

static void verdict(struct doctor *doctor)
{
    unsigned weaker = 0;

    for (int i = 0; i < DOCTOR_BOX; i++)
        weaker += doctor->checks[i].state == DOCTOR_LESS || doctor->checks[i].state == DOCTOR_NO;
    doctor->exit_status = doctor->has_box && strcmp(doctor->level, "full") == 0 ? 0 : 1;
    if (!doctor->has_box)
        (void)snprintf(doctor->summary, sizeof(doctor->summary),
                       "No box can be made here as things are; what says no above is in the way.");
    else if (doctor->exit_status != 0)
        (void)snprintf(doctor->summary, sizeof(doctor->summary),
                       "Only a weaker box can be made here: cove run --allow-level %s.",
                       doctor->level);
    else if (doctor->checks[DOCTOR_SERVER].state == DOCTOR_NO) {
        doctor->exit_status = 1;
        (void)snprintf(doctor->summary, sizeof(doctor->summary),
                       "Boxes of level full can be made here, and cove run works; sandboxes that "
                       "live cannot: see the server above.");
    } else if (doctor->checks[DOCTOR_DISKS].state == DOCTOR_NO) {
        doctor->exit_status = 1;
        (void)snprintf(doctor->summary, sizeof(doctor->summary),
                       "Boxes of level full can be made here, and cove run works; sandboxes that "
                       "keep a disk cannot: see the disks above.");
    } else if (weaker == 0)
        (void)snprintf(doctor->summary, sizeof(doctor->summary), "All good.");
    else
        (void)snprintf(doctor->summary, sizeof(doctor->summary),
                       "Boxes of level full can be made here; %u %s above %s weaker than it could "
                       "be.",
                       weaker, weaker == 1 ? "thing" : "things", weaker == 1 ? "is" : "are");
}

static int doctor_run(struct doctor *doctor)
{
    _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct caller caller;
    struct utsname name;

    if (root < 0)
        return -1;
    doctor_host_read(&doctor->host, root);
    if (uname(&name) == 0) {
        (void)snprintf(doctor->host.release, sizeof(doctor->host.release), "%.63s", name.release);
        (void)snprintf(doctor->host.machine, sizeof(doctor->host.machine), "%.31s", name.machine);
    }
    probes_run(doctor);
    doctor_check_cores(&doctor->checks[DOCTOR_CORES], &doctor->host);
    doctor_check_files(&doctor->checks[DOCTOR_FILES], &doctor->host);
    caller_look(&caller);
    doctor_check_disks(&doctor->checks[DOCTOR_DISKS], caller.mounts);
    for (size_t i = DOCTOR_BOX; i < DOCTOR_CHECKS; i++)
        doctor->checks[i] = (struct doctor_check){.name = words[i].name, .title = words[i].title};
    doctor_try_box(doctor);
    doctor_try_server(doctor);
    verdict(doctor);
    return 0;
}

static int doctor_main(const struct cmd *cmd, int argc, char **argv)
{
    static struct doctor doctor; /* large, and zero */
    struct options_common options = {0};
    struct option_words left;
    int status;

    if (!options_begin(cmd->table, &options, argc, argv, &left, &status))
        return status;
    scope_obtain(argv); /* as cove run does: what is found holds for it */
    if (doctor_run(&doctor) < 0) {
        cmd_say("doctor: / cannot be opened: %s; start cove where it can", strerror(errno));
        return CMD_FAILED;
    }
    if ((options.json ? doctor_print_json(&doctor) : doctor_print_words(&doctor)) < 0) {
        cmd_say("standard output: the result could not be written: %s; give it more room",
                strerror(errno));
        return CMD_FAILED;
    }
    return doctor.exit_status;
}

const struct cmd cmd_doctor = {
    .name = "doctor",
    .summary = "say what of a box works on this host, what does not, and what to do",
    .run = doctor_main,
    .table = &table};
