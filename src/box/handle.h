/* What a `struct box` is, for the two files that make one: box.c (cold) and zygote.c. */
#pragma once

#include "box/box.h"
#include "box/guard.h"
#include "box/ids.h"
#include "box/link_parts.h"
#include "box/plan.h"

#define BOX_MAGIC 0xb0c5b0c5U
#define BOX_WARNINGS_MAX 4
#define BOX_WARNING_MAX 480

struct box {
    uint32_t magic;
    struct link link; /* its `control` is -1 before and after */
    int pidfd;        /* of init; -1 once it is known to be gone */
    int network;      /* its namespace, where that is kept; else -1 */
    int settling; /* where the child says which, and ends with its set-up; -1: it has been heard */
    struct box_user user;
    enum box_privileges privileges;
    uint32_t protocol; /* that its init was told to speak */
    bool is_ending;    /* its init was sent SIGKILL */

    const struct cgroup *lent; /* of a zygote's box: its leaves are removed at the end */

    /* Cold boxes own these; those of a zygote have them lent by whoever runs the zygote. */
    struct guard guard;
    char group[32]; /* name of its cgroups */
    struct ids_pool pool;
    struct ids ids;
    bool ids_are_lent; /* by the disk that is kept */
    bool cold;

    bool is_stale; /* level no-fresh-proc */
    bool is_watched;
    bool disk_watched;
    bool one_id; /* commands keep the only user there is */

    char warnings[BOX_WARNINGS_MAX][BOX_WARNING_MAX];
    size_t warnings_count;
};

/* The parts of a plan that come from the spec alone; the user must be known. */
int box_plan_fill(const struct box_spec *spec, const struct box_user *user, struct plan *plan,
                  struct error *err);

/* The shell of the host profile's accounts. */
void box_choose_shell(const struct box_spec *spec, char *shell, size_t size);

/* A sealed memfd with one of the programs that run inside. */
int box_program(const char *name, const unsigned char *start, const unsigned char *end,
                struct error *err);

/* Sends init its configuration. */
int box_send_config(int control, const struct plan *plan, bool leaf_limits, struct error *err);
