/* `cove doctor`: what it finds out, as one struct from which its words and its JSON are both made.
 *
 * doctor_host.c reads where we are, doctor_explain.c says why a probe failed and what to do, and
 * doctor_print.c prints. None of them changes anything, and what a host lacks is never guessed from
 * where we are: places and settings only explain what a probe has seen fail. */
#pragma once

#include "base/err.h"
#include "box/probe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- where we are ---- */

enum doctor_place {
    PLACE_GVISOR,
    PLACE_WSL1,
    PLACE_WSL2,
    PLACE_COVE,
    PLACE_KUBERNETES,
    PLACE_PODMAN,
    PLACE_DOCKER,
    PLACE_LXC,
    PLACE_NSPAWN,
    PLACE_FLATPAK,
    PLACE_BUBBLEWRAP,
    PLACE_CONTAINER, /* one that says so and is none of these */
    PLACE_USERNS,    /* a user namespace of nobody known */
    PLACE_CHROOT,
};
#define PLACE_COUNT (PLACE_CHROOT + 1)

struct doctor_host {
    uid_t uid;
    bool is_in[PLACE_COUNT];
    char manager[32]; /* PLACE_CONTAINER: what it calls itself */
    char release[64], machine[32], program[256];
    bool has_seccomp; /* a filter is on us */
    bool no_new_privs;
    bool has_own_userns; /* not the one that the kernel begins with */
    bool proc_is_masked;
    char proc_mask[64]; /* one of the masks */
    bool cgroup_is_mounted, cgroup_is_read_only;
    bool has_systemd;
    long apparmor_restricts; /* each of the settings: -1 where there is none */
    long userns_clone;
    long userns_max;
    long memfd_noexec;
    long open_files;
    bool cores_to_socket;
    char confinement[64]; /* the security module's label of us; "" for none */
};

/* Reads it below `root`, an fd of "/". */
void doctor_host_read(struct doctor_host *host, int root);

/* "a Docker container". */
const char *doctor_place_words(const struct doctor_host *host, enum doctor_place place);
const char *doctor_place_name(enum doctor_place place);

/* ---- what was found ---- */

enum doctor_state { DOCTOR_YES, DOCTOR_LESS, DOCTOR_NO, DOCTOR_UNTRIED };

struct doctor_check {
    const char *name;  /* stable, for programs */
    const char *title; /* for people */
    enum doctor_state state;
    char found[ERROR_TEXT_MAX];
    char cause[320];
    char remedy[320];
    char command[480]; /* what to type, where that says it all */
};

#define DOCTOR_CORES PROBE_COUNT         /* where the memory of what crashes goes */
#define DOCTOR_FILES (PROBE_COUNT + 1)   /* how many files the host can have open */
#define DOCTOR_DISKS (PROBE_COUNT + 2)   /* what makes the disks of root's sandboxes */
#define DOCTOR_BOX (PROBE_COUNT + 3)     /* the box itself */
#define DOCTOR_NETWORK (PROBE_COUNT + 4) /* and its way out, which a policy rules */
#define DOCTOR_SERVER (PROBE_COUNT + 5)  /* of sandboxes that live */
#define DOCTOR_CHECKS (DOCTOR_SERVER + 1)

struct doctor {
    struct doctor_host host;
    struct doctor_check checks[DOCTOR_CHECKS];
    bool has_box;
    char level[24], limits[24], ids[24], disk[24]; /* "" where there is no box */
    char summary[160];
    int exit_status;
};

/* The name, title and state of a check, from its probe. */
void doctor_check_fill(struct doctor_check *check, enum probe_id id,
                       const struct probe_result *result);

/* Why it failed, and what to do: cause, remedy and command of the check. */
void doctor_explain(struct doctor_check *check, enum probe_id id, const struct probe_result *result,
                    const struct doctor_host *host);

/* Says where the memory of a program that crashes in a box goes. */
void doctor_check_cores(struct doctor_check *check, const struct doctor_host *host);

/* Says whether a few boxes can open all files that the host can have open. */
void doctor_check_files(struct doctor_check *check, const struct doctor_host *host);

/* Says whether sandboxes that live can have disks of their own here: only who mounts images needs a program for that. */
void doctor_check_disks(struct doctor_check *check, bool mounts_images);

/* Adds the cause, and where to ask further, to an error of a box that this host does not allow. Other
 * errors stay as they are. */
void doctor_hint(struct error *err);

/* Makes a box as `cove run` does, and runs a command in it. */
void doctor_try_box(struct doctor *doctor);

/* Has the server say whether it could start. */
void doctor_try_server(struct doctor *doctor);

/* The line that starts a container in which boxes of level full can be made; "" where nobody needs it, or
 * where no container is started. @cove/client says the same line, and docs/container.md explains it. */
#define DOCTOR_CONTAINER_LINE                                                                           \
    "docker run -d --pull never --name cove --privileged -p 127.0.0.1:7070:7070 -v cove:/var/lib/cove " \
    "-v \"$HOME/.cove:/run/cove-key\" cove"
const char *doctor_container_line(const struct doctor *doctor);

/* 0, or -1 (errno) if it could not be written. */
int doctor_print_words(const struct doctor *doctor);
int doctor_print_json(const struct doctor *doctor);
