/* The last checks of `cove doctor`: a real box, and the rules of its network. See doctor.h.
 *
 * With the options that `cove run` has when none are given, in a child of its own: a box that hangs or
 * a maker that dies is a result here, too, and the guard cleans up behind it. */
#include "cmd/doctor.h"

#include "base/clock.h"
#include "base/fd.h"
#include "box/box.h"
#include "box/network.h"
#include "cmd/run_options.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define BOX_LIMIT_MS 20000U
#define BOX_COMMAND_ID 1

/* What the child tells. */
struct trial {
    bool done, has_network;
    char level[24], limits[24], ids[24], disk[24];
    struct error error, network_error;
};

/* Until the command has ended: 0 if it did so well. */
static int trial_wait(struct box *box, struct error *err)
{
    uint64_t until = clock_monotonic_ns() + BOX_LIMIT_MS / 2 * 1000000ULL;
    struct box_event event;
    int got;

    while (clock_monotonic_ns() < until) {
        struct pollfd ready = {.fd = box_fd(box), .events = POLLIN};

        (void)poll(&ready, 1, 100);
        while ((got = box_next(box, &event, err)) > 0) {
            if (event.kind == BOX_STARTED)
                fd_close(&event.tty);
            else if (event.kind == BOX_EXITED && event.status == 0)
                return 0;
            else if (event.kind == BOX_EXITED)
                return error_set(err, "box_failed", 0, "true did not end well in a box: status %d",
                                 event.status);
            else if (event.kind == BOX_REFUSED)
                return error_set(err, "box_failed", event.errnum, "true did not start in a box");
            else if (event.kind == BOX_GONE) {
                *err = event.error;
                return -1;
            }
        }
        if (got < 0)
            return -1;
    }
    return error_set(err, "box_failed", 0, "true did not end in a box within %u s",
                     BOX_LIMIT_MS / 2000);
}

static int trial_command(struct box *box, struct error *err)
{
    static const char *const argv[] = {"true", NULL};
    static const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
    struct box_command command = {.argv = argv, .env = env, .cwd = "/"};
    _cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct error gone;

    for (int i = 0; i < 3; i++)
        command.stdio[i] = null;
    if (box_exec(box, BOX_COMMAND_ID, &command, err) == 0)
        return trial_wait(box, err);
    /* If the box has gone already, it says why. */
    if (trial_wait(box, &gone) < 0)
        *err = gone;
    return -1;
}

/* As the engine does it for a box that has a network. */
static void trial_network(struct trial *trial, struct box *box)
{
    struct network_sockets sockets;

    trial->has_network = network_open(box_network(box), &sockets, &trial->network_error) == 0;
    fd_close(&sockets.tcp);
    fd_close(&sockets.udp);
}

static int trial_box(struct trial *trial, const struct box_spec *spec)
{
    struct box *box = NULL;
    struct error destroyed;
    int result;

    if (box_create(spec, &box, &trial->error) < 0)
        return -1;
    result = trial_command(box, &trial->error);
    if (result == 0)
        trial_network(trial, box);
    (void)snprintf(trial->level, sizeof(trial->level), "%s", box_level(box));
    (void)snprintf(trial->limits, sizeof(trial->limits), "%s", box_limits_kind(box));
    (void)snprintf(trial->ids, sizeof(trial->ids), "%s", box_ids_kind(box));
    (void)snprintf(trial->disk, sizeof(trial->disk), "%s", box_disk_kind(box));
    if (box_destroy(box, NULL, &destroyed) < 0 && result == 0) {
        trial->error = destroyed;
        result = -1;
    }
    return result;
}

static void trial_child(void *shared)
{
    static char run[] = "run", dashes[] = "--", command[] = "true";
    char *argv[] = {run, dashes, command, NULL};
    struct trial *trial = shared;
    struct run_options options;

    if (run_options_parse(&options, 3, argv, &trial->error) < 0)
        return;
    options.spec.keeps_network = true;
    trial->done = trial_box(trial, &options.spec) == 0;
    if (!trial->done && strcmp(trial->error.code, "no_fresh_proc") == 0) {
        options.spec.allow_no_fresh_proc = true;
        trial->done = trial_box(trial, &options.spec) == 0;
    }
    run_options_free(&options);
}

static void failure_say(struct doctor *doctor, int status, const struct trial *trial)
{
    struct doctor_check *check = &doctor->checks[DOCTOR_BOX];
    bool known = false;

    check->state = DOCTOR_NO;
    if (status == -1)
        (void)snprintf(check->found, sizeof(check->found), "it did not stand within %u s",
                       BOX_LIMIT_MS / 1000);
    else if (WIFSIGNALED(status))
        (void)snprintf(check->found, sizeof(check->found), "its maker was killed: %s",
                       strsignal(WTERMSIG(status)));
    else
        (void)snprintf(check->found, sizeof(check->found), "%s", trial->error.text);
    for (int i = 0; i < PROBE_COUNT; i++)
        known |= doctor->checks[i].state == DOCTOR_NO;
    if (known)
        (void)snprintf(check->remedy, sizeof(check->remedy), "see to what says no above, first");
}

static void network_say(struct doctor_check *check, const struct trial *trial)
{
    if (trial->has_network) {
        check->state = DOCTOR_YES;
        (void)snprintf(check->found, sizeof(check->found), "nftables with tproxy");
        return;
    }
    check->state = DOCTOR_LESS;
    (void)snprintf(check->found, sizeof(check->found), "no box gets a network: %.400s",
                   trial->network_error.text);
    (void)snprintf(
        check->remedy, sizeof(check->remedy),
        "load the kernel's modules nft_tproxy and nft_reject_inet, or take a kernel that "
        "has them");
}

void doctor_try_box(struct doctor *doctor)
{
    struct doctor_check *check = &doctor->checks[DOCTOR_BOX];
    struct trial *trial = probe_share(sizeof(*trial));
    int status;

    check->state = DOCTOR_NO;
    doctor->checks[DOCTOR_NETWORK].state = DOCTOR_UNTRIED;
    if (trial == NULL) {
        (void)snprintf(check->found, sizeof(check->found), "there is no memory to try it");
        return;
    }
    status = probe_in_child(trial_child, trial, BOX_LIMIT_MS);
    if (status == 0 && trial->done) {
        doctor->has_box = true;
        (void)snprintf(doctor->level, sizeof(doctor->level), "%s", trial->level);
        (void)snprintf(doctor->limits, sizeof(doctor->limits), "%s", trial->limits);
        (void)snprintf(doctor->ids, sizeof(doctor->ids), "%s", trial->ids);
        (void)snprintf(doctor->disk, sizeof(doctor->disk), "%s", trial->disk);
        check->state = strcmp(trial->level, "full") == 0 ? DOCTOR_YES : DOCTOR_LESS;
        (void)snprintf(check->found, sizeof(check->found), "was made, and true ran in it");
        network_say(&doctor->checks[DOCTOR_NETWORK], trial);
    } else {
        failure_say(doctor, status, trial);
    }
    probe_unshare(trial, sizeof(*trial));
}
