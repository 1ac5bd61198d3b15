/* Makes the boxes that are measured: see maker.h. */
#include "maker.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define NONE SIZE_MAX
#define ANSWER_TIMEOUT_MS 10000

/* The uid in the box that its init has: the plain profile's user. */
#define INIT_UID 1000

/* The defaults of `cove run`. */
static const struct box_limits limits = {
    .memory_bytes = 2ULL << 30,
    .pids = 1024,
    .disk_bytes = 1ULL << 30,
    .disk_inodes = 262144,
};

static _Noreturn void fail(const char *what)
{
    (void)fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static _Noreturn void fail_error(const char *what, const struct error *err)
{
    (void)fprintf(stderr, "bench: %s: %s\n", what, err->text);
    exit(1);
}

static struct box_spec make_spec(const struct maker *maker)
{
    return (struct box_spec){
        .root_kind = BOX_ROOT_DIR,
        .root_path = maker->root,
        .privileges = BOX_PLAIN,
        .limits = limits,
    };
}

/* ---- slots ---- */

/* An empty network namespace with lo up. This process is in it until it returns home. */
static int make_network(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    _cleanup_close_ int any = -1;
    int network;

    if (unshare(CLONE_NEWNET) < 0)
        fail("cannot make a network namespace");
    network = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (network < 0 || any < 0 || ioctl(any, SIOCSIFFLAGS, &request) < 0)
        fail("cannot prepare a network namespace");
    return network;
}

static void name_cgroup(char name[CGROUP_NAME_MAX], const char *prefix, size_t index)
{
    (void)snprintf(name, CGROUP_NAME_MAX, "%s-%zu", prefix, index);
}

static void make_cgroup(struct maker *maker, struct slot *slot)
{
    const struct cgroup_limits most = {
        .memory_bytes = limits.memory_bytes,
        .cpu_milli = limits.cpu_milli,
        .pids = limits.pids,
    };
    const uid_t owner = slot->ids.first + INIT_UID;
    struct error err = {0};
    char name[CGROUP_NAME_MAX];

    name_cgroup(name, maker->prefix, maker->slots_count);
    if (cgroup_make(&maker->host, name, &most, owner, owner, true, &slot->cgroup, &err) < 0)
        fail_error("cannot make cgroups", &err);
}

static void put_back(struct maker *maker, size_t index)
{
    maker->slots[index].next = maker->unused;
    maker->unused = index;
    maker->unused_count++;
}

void maker_fill(struct maker *maker, size_t count)
{
    _cleanup_close_ int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    struct error err = {0};

    if (home < 0)
        fail("cannot open the network namespace");
    while (maker->unused_count < count && maker->slots_count < maker->slots_room) {
        struct slot *slot = &maker->slots[maker->slots_count];

        if (ids_take(&maker->pool, &slot->ids, &err) < 0)
            fail_error("cannot take ids", &err);
        make_cgroup(maker, slot);
        slot->network = make_network();
        put_back(maker, maker->slots_count++);
    }
    if (setns(home, CLONE_NEWNET) < 0)
        fail("cannot return to the network namespace");
}

static size_t take_slot(struct maker *maker)
{
    size_t index = maker->unused;

    if (index == NONE) {
        errno = ENOSPC;
        fail("no unused slot");
    }
    maker->unused = maker->slots[index].next;
    maker->unused_count--;
    return index;
}

/* ---- boxes ---- */

void maker_open(struct maker *maker, const char *prefix, const char *root, size_t room)
{
    struct error err = {0};
    struct box_spec spec;

    *maker = (struct maker){.prefix = prefix, .root = root, .slots_room = room, .unused = NONE};
    maker->slots = calloc(room, sizeof(*maker->slots));
    maker->null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (maker->slots == NULL || maker->null < 0)
        fail("cannot prepare");
    spec = make_spec(maker);
    if (ids_open(&maker->pool, &err) < 0 || cgroup_probe(&maker->host, &err) < 0 ||
        zygote_start(&spec, &maker->zygote, &err) < 0)
        fail_error("cannot start a zygote", &err);
}

/* Waits for the box's next event, which must be of this kind. */
static struct box_event expect(struct box *box, enum box_event_kind kind)
{
    struct pollfd readable = {.fd = box_fd(box), .events = POLLIN};
    struct box_event event;
    struct error err = {0};
    int taken;

    while ((taken = box_next(box, &event, &err)) == 0)
        if (poll(&readable, 1, ANSWER_TIMEOUT_MS) == 0) {
            errno = ETIMEDOUT;
            fail("a box does not answer");
        }
    if (taken < 0)
        fail_error("cannot hear a box", &err);
    if (event.kind == BOX_GONE)
        fail_error("a box ended", &event.error);
    if (event.kind != kind) {
        errno = event.kind == BOX_REFUSED ? event.errnum : EPROTO;
        fail("a box did not do as told");
    }
    return event;
}

struct made maker_create(struct maker *maker)
{
    const struct box_spec spec = make_spec(maker);
    struct made made = {.slot = take_slot(maker)};
    const struct slot *slot = &maker->slots[made.slot];
    const struct zygote_slot lent = {
        .ids = &slot->ids,
        .cgroup = &slot->cgroup,
        .network = slot->network,
    };
    struct error err = {0};

    if (zygote_box(maker->zygote, &spec, &lent, &made.box, &err) < 0)
        fail_error("cannot create a box", &err);
    (void)expect(made.box, BOX_READY);
    return made;
}

void maker_settle(struct maker *maker, struct made made)
{
    struct slot *slot = &maker->slots[made.slot];

    cgroup_forget(&slot->cgroup);
    fd_close(&slot->network);
    slot->settled = true;
}

void maker_exec(struct maker *maker, struct box *box)
{
    static const char *const argv[] = {"/true", NULL}, *const env[] = {"PATH=/", NULL};
    const struct box_command command = {
        .argv = argv,
        .env = env,
        .cwd = "/",
        .stdio = {maker->null, maker->null, maker->null},
    };
    struct error err = {0};
    struct box_event event;

    if (box_exec(box, ++maker->commands, &command, &err) < 0)
        fail_error("cannot run a command", &err);
    (void)expect(box, BOX_STARTED);
    event = expect(box, BOX_EXITED);
    if (event.status != 0) {
        errno = EPROTO;
        fail("a command failed in its box");
    }
}

void maker_destroy(struct maker *maker, struct made made)
{
    struct error err = {0};

    if (box_destroy(made.box, NULL, &err) < 0)
        fail_error("cannot destroy a box", &err);
    if (!maker->slots[made.slot].settled)
        put_back(maker, made.slot);
}

void maker_close(struct maker *maker)
{
    struct error err = {0};
    char name[CGROUP_NAME_MAX];

    zygote_stop(maker->zygote);
    for (size_t i = 0; i < maker->slots_count; i++) {
        struct slot *slot = &maker->slots[i];

        name_cgroup(name, maker->prefix, i);
        if ((slot->settled ? cgroup_remove_named(&maker->host, name, &err)
                           : cgroup_remove(&slot->cgroup, &err)) < 0)
            fail_error("cannot remove cgroups", &err);
        fd_close(&slot->network);
        ids_release(&maker->pool, &slot->ids);
    }
    cgroup_host_close(&maker->host);
    ids_close(&maker->pool);
    (void)close(maker->null);
    free(maker->slots);
}

void maker_sweep(const char *prefix, size_t room)
{
    struct error err = {0};
    struct cgroup_host host;
    char name[CGROUP_NAME_MAX];

    if (cgroup_probe(&host, &err) < 0)
        fail_error("cannot remove cgroups", &err);
    for (size_t i = 0; i < room; i++) {
        name_cgroup(name, prefix, i);
        if (cgroup_remove_named(&host, name, &err) < 0)
            (void)fprintf(stderr, "bench: cannot remove cgroups: %s\n", err.text);
    }
    cgroup_host_close(&host);
}
