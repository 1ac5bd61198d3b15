/* Making and ending boxes: see boxes.h. */
#include "keeper/boxes.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/kernel.h"
#include "base/tenancy.h"
#include "box/root.h"
#include "box/switches.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/vfs.h>

/* A box that takes longer than this to die is held up by its own CPU limit. */
#define HURRY_NS 20000000U
/* For one whose end could not be waited for otherwise. */
#define LOOK_NS 50000000U

#define PATH_SIZE 40

/* What a box is made of, with the places that the spec points to. */
struct recipe {
    struct box_spec spec;
    struct box_bind binds[KEEPER_MOUNTS_MAX];
    char paths[KEEPER_MOUNTS_MAX][PATH_SIZE];
    char root_path[PATH_SIZE];
    uint64_t root; /* generation of its name; 0: the host's; ZYGOTES_ROOT_EMPTY */
};

/* ---- what is asked for ---- */

/* A name leads to an fd, and to the same inode whatever becomes of its path. */
static void path_of(int fd, char path[PATH_SIZE])
{
    (void)snprintf(path, PATH_SIZE, "/proc/self/fd/%d", fd);
}

static bool may_have_host(const struct keeper *keeper, const char *tenant)
{
    return tenant[0] == '\0' || tenancy_has(keeper->config.host_tenants, tenant);
}

static int root_choose(const struct keeper *keeper, const struct keeper_make *make,
                       struct recipe *recipe, struct error *err)
{
    const char *name = make->root;
    const struct name *root;

    recipe->spec.root_kind = BOX_ROOT_HOST;
    if (strcmp(name, "host") == 0 && may_have_host(keeper, make->tenant)) {
        recipe->spec.own_root = true;
        return 0;
    }
    if (strcmp(name, KEEPER_ROOT_EMPTY) == 0) {
        recipe->spec.is_empty = true;
        recipe->root = ZYGOTES_ROOT_EMPTY;
        return 0;
    }
    root = names_find(&keeper->names, KEEPER_ROOT, name, make->tenant);
    if (root == NULL)
        return error_set(err, "unknown_root", 0,
                         "there is no root \"%s\": the operator registers one with cove root add",
                         name);
    path_of(root->fd, recipe->root_path);
    recipe->spec.root_kind = root->is_directory ? BOX_ROOT_DIR : BOX_ROOT_EROFS;
    recipe->spec.root_path = recipe->root_path;
    recipe->root = root->generation;
    return 0;
}

static int mounts_choose(struct keeper *keeper, const struct keeper_make *make,
                         struct recipe *recipe, struct error *err)
{
    for (size_t i = 0; i < make->mounts_count; i++) {
        const struct keeper_mount *asked = &make->mounts[i];
        const struct name *mount = names_find(&keeper->names, KEEPER_MOUNT, asked->name,
                                              make->tenant);
        const struct root_taken *taken;

        if (mount == NULL)
            return error_set(err, "unknown_mount", 0,
                             "there is no mount \"%s\": the operator registers one with cove mount "
                             "add",
                             asked->name);
        if (mounts_taken(keeper, make, i, mount->generation, &taken, err) < 0)
            return -1;
        path_of(mount->fd, recipe->paths[i]);
        recipe->binds[i] = (struct box_bind){
            .source = recipe->paths[i],
            .target = asked->target,
            .read_only = asked->read_only != 0 || mount->read_only,
            .taken = taken,
        };
    }
    recipe->spec.binds = recipe->binds;
    recipe->spec.binds_count = make->mounts_count;
    recipe->spec.apart = make->mounts_count > 0;
    return 0;
}

static bool allows_no_fresh_proc(const struct keeper *keeper)
{
    return strcmp(keeper->options.allow_level, "full") != 0;
}

static bool lacks_fresh_proc(const struct keeper *keeper)
{
    const struct box_spec spec = {
        .limits = {.memory_bytes = 64U << 20,
                   .pids = 16,
                   .disk_bytes = 1U << 20,
                   .disk_inodes = 64},
        .many_commands = true,
        .allow_no_fresh_proc = true,
    };
    struct error ignored;
    struct box *box;
    bool lacks;

    /* Where none can be made, whoever asks for one is told why. */
    if (!allows_no_fresh_proc(keeper) || box_create(&spec, &box, &ignored) < 0)
        return false;
    lacks = strcmp(box_level(box), "full") != 0;
    (void)box_destroy(box, NULL, &ignored);
    return lacks;
}

void boxes_find_level(struct keeper *keeper)
{
    keeper->lacks_fresh_proc = lacks_fresh_proc(keeper);
    if (keeper->lacks_fresh_proc)
        keeper_say("level",
                   "no-fresh-proc, as is allowed: processes outside of a sandbox can be seen "
                   "in its /proc; cove doctor says more");
}

static int choose(struct keeper *keeper, const struct keeper_make *make, struct recipe *recipe,
                  struct error *err)
{
    if (root_choose(keeper, make, recipe, err) < 0 || mounts_choose(keeper, make, recipe, err) < 0)
        return -1;
    recipe->spec.privileges = (enum box_privileges)make->privileges;
    recipe->spec.hostname = make->hostname[0] != '\0' ? make->hostname : NULL;
    recipe->spec.limits = make->limits;
    recipe->spec.forbid_set_id = make->takes_mounts != 0;
    recipe->spec.many_commands = true;
    recipe->spec.keeps_network = true;
    recipe->spec.allow_no_fresh_proc = allows_no_fresh_proc(keeper);
    return 0;
}

int boxes_check(struct keeper *keeper, const struct keeper_make *make, struct error *err)
{
    struct recipe recipe = {0};

    return choose(keeper, make, &recipe, err);
}

int boxes_check_claim(const struct keeper *keeper, const struct boxed *boxed, const char *tenant,
                      struct error *err)
{
    if (boxed->root == 0 ? may_have_host(keeper, tenant)
                         : names_may_have(&keeper->names, boxed->root, tenant))
        return 0;
    return error_set(err, "unknown_root", 0, "the root of this box is not registered");
}

/* ---- the table ---- */

/* What else has them is the engine's to close. */
static void network_forget(struct boxed *boxed)
{
    fd_close(&boxed->network.tcp);
    fd_close(&boxed->network.udp);
}

static struct boxed *place_new(struct keeper *keeper, struct error *err)
{
    struct boxes *boxes = &keeper->boxes;
    struct boxed *boxed = NULL;
    size_t index = 0;

    /* From the end of what is used, where there is room most of the time. */
    if (boxes->count < boxes->used)
        while (boxes->table[index] != NULL)
            index++;
    else
        index = boxes->used;
    if (index < BOXES_MAX)
        boxed = calloc(1, sizeof(*boxed));
    if (boxed == NULL) {
        (void)error_set(err, "capacity", 0, "there is no room for one more box: end others first");
        return NULL;
    }
    if (index == boxes->used)
        boxes->used++;
    if (++boxes->generations == 0)
        boxes->generations = 1;
    boxed->handle = (uint64_t)boxes->generations << 32 | index;
    boxed->keeper = keeper;
    boxed->source.fd = -1;
    boxed->network.tcp = boxed->network.udp = boxed->disk_fd = -1;
    boxes->table[index] = boxed;
    boxes->count++;
    return boxed;
}

void boxes_drop(struct boxes *boxes, struct boxed *boxed)
{
    if (boxed->box == NULL && boxed->asked != 0)
        boxes->owed--;
    fd_close(&boxed->disk_fd);
    network_forget(boxed);
    free(boxed->mounts);
    boxes->table[boxed->handle & UINT32_MAX] = NULL;
    boxes->count--;
    while (boxes->used > 0 && boxes->table[boxes->used - 1] == NULL)
        boxes->used--;
    free(boxed);
}

static struct boxed *find(const struct boxes *boxes, uint64_t handle)
{
    size_t index = handle & UINT32_MAX;
    struct boxed *boxed = index < boxes->used ? boxes->table[index] : NULL;

    return boxed != NULL && boxed->handle == handle ? boxed : NULL;
}

struct boxed *boxes_find(const struct boxes *boxes, uint64_t handle)
{
    struct boxed *boxed = find(boxes, handle);

    return boxed != NULL && !boxed->is_ending ? boxed : NULL;
}

bool boxes_is_there(const struct boxes *boxes, uint64_t handle)
{
    return find(boxes, handle) != NULL;
}

/* ---- making ---- */

bool boxes_is_want_of_room(const struct error *err)
{
    int errnum = err->errnum;

    return strcmp(err->code, "capacity") == 0 || strcmp(err->code, "ids_used_up") == 0 ||
           errnum == EAGAIN || errnum == ENOMEM || errnum == EMFILE || errnum == ENFILE ||
           errnum == ENOSPC || errnum == ENOBUFS || errnum == EUSERS;
}

static bool can_use_zygote(const struct keeper *keeper, const struct recipe *recipe)
{
    if (!keeper->slots.is_open || recipe->spec.binds_count > 0 ||
        zygotes_is_unable(&keeper->zygotes, recipe->root))
        return false;
    /* It maps the owners of an image's files for each box, and its boxes keep their disk in tmpfs. */
    return recipe->spec.root_kind == BOX_ROOT_HOST ||
           (kernel_is_at_least(5, 19) &&
            (recipe->spec.disk != NULL || root_tmpfs_has_xattrs(&keeper->caller)));
}

static int make_by_zygote(struct keeper *keeper, const struct recipe *recipe, struct boxed *boxed,
                          struct error *err)
{
    struct zygote_entry *zygote = zygotes_find(&keeper->zygotes, recipe->root, &recipe->spec, err);
    struct zygote_slot lent;
    struct slot *slot;

    if (zygote == NULL ||
        slots_take(&keeper->slots, &recipe->spec.limits, recipe->spec.privileges, &slot, err) < 0)
        return -1;
    lent = (struct zygote_slot){
        .ids = &slot->ids, .cgroup = &slot->cgroup, .network = slot->network};
    if (zygote_box(zygote->zygote, &recipe->spec, &lent, &boxed->box, err) < 0) {
        slots_give(&keeper->slots, slot);
        if (!boxes_is_want_of_room(err))
            zygotes_retire(zygote);
        return -1;
    }
    boxed->slot = slot;
    boxed->zygote = zygote;
    zygote->boxes++;
    return 0;
}

/* A zygote may have been killed: a second one is tried. Where that cannot do it either, this host
 * lacks something, and the box is created without. What was made ahead is no reason to refuse. */
static int make(struct keeper *keeper, const struct recipe *recipe, struct boxed *boxed,
                struct error *err)
{
    bool tried = can_use_zygote(keeper, recipe);

    for (int tries = 0; tried && tries < 2; tries++) {
        bool wants_room;

        if (make_by_zygote(keeper, recipe, boxed, err) == 0)
            return 0;
        wants_room = boxes_is_want_of_room(err);
        if (wants_room && tries == 0 && slots_shed(&keeper->slots))
            continue;
        if (wants_room)
            return -1;
        keeper_say(err->code, "%s", err->text);
    }
    if (box_create(&recipe->spec, &boxed->box, err) < 0)
        return -1;
    if (tried)
        zygotes_mark_unable(&keeper->zygotes, recipe->root);
    return 0;
}

bool boxes_note_mount(struct boxed *boxed, const struct boxed_mount *mount)
{
    if (boxed->mounts == NULL)
        boxed->mounts = calloc(KEEPER_MOUNTS_MAX, sizeof(*boxed->mounts));
    if (boxed->mounts == NULL || boxed->mounts_count == KEEPER_MOUNTS_MAX ||
        switched_off("mountnotes"))
        return false;
    boxed->mounts[boxed->mounts_count++] = *mount;
    return true;
}

/* What mounts need to know of it. One that is not noted cannot be unmounted, and its target is nobody's else. */
static void note(const struct keeper *keeper, const struct keeper_make *make,
                 const struct recipe *recipe, struct boxed *boxed)
{
    const struct ids *ids = boxed->slot != NULL ? &boxed->slot->ids : box_ids(boxed->box);
    const struct box_user *user = box_default_user(boxed->box);

    boxed->ids = (struct root_ids){
        .first = ids->first, .count = ids->count, .user = user->uid, .group = user->gid};
    boxed->forbids_set_id = recipe->spec.forbid_set_id;
    for (size_t i = 0; i < make->mounts_count; i++) {
        const struct name *name = names_find(&keeper->names, KEEPER_MOUNT, make->mounts[i].name,
                                             make->tenant);

        boxed->forbids_set_id |= !recipe->binds[i].read_only;
        if (name != NULL)
            (void)boxes_note_mount(
                boxed, &(struct boxed_mount){make->mounts[i], name->device, name->inode, 0});
    }
}

int boxes_make(struct keeper *keeper, const struct keeper_make *request,
               const struct disk_kept *disk, struct boxed **out, struct error *err)
{
    struct recipe recipe = {0};
    struct boxed *boxed;

    if (choose(keeper, request, &recipe, err) < 0)
        return -1;
    recipe.spec.disk = disk;
    boxed = place_new(keeper, err);
    if (boxed == NULL)
        return -1;
    if (make(keeper, &recipe, boxed, err) < 0) {
        boxes_drop(&keeper->boxes, boxed);
        if (boxes_is_want_of_room(err))
            (void)snprintf(err->code, sizeof(err->code), "capacity");
        return -1;
    }
    (void)snprintf(boxed->owner, sizeof(boxed->owner), "%s", request->owner);
    (void)snprintf(boxed->disk, sizeof(boxed->disk), "%s", request->disk);
    memcpy(boxed->tenant, request->tenant, sizeof(boxed->tenant));
    boxed->root = recipe.root;
    note(keeper, request, &recipe, boxed);
    boxed->memory_bytes = recipe.spec.limits.memory_bytes;
    if (disk != NULL && keeper->caller.mounts)
        boxed->disk_fd = fcntl(disk->fd, F_DUPFD_CLOEXEC, 3);
    *out = boxed;
    return 0;
}

/* ---- its network ---- */

static int network_of(const struct boxed *boxed)
{
    return boxed->slot != NULL ? boxed->slot->network : box_network(boxed->box);
}

int boxes_network_open(struct boxed *boxed, struct error *err)
{
    int network = network_of(boxed), opened;

    if (boxed->network_is_open)
        return 0;
    if (network < 0)
        return error_set(err, "network_failed", 0, "the box has failed before it had a network");
    opened = boxed->network.tcp < 0 ? network_open(network, &boxed->network, err)
                                    : network_reopen(network, err);
    boxed->network_is_open = opened == 0;
    return opened;
}

int boxes_network_shut(struct boxed *boxed, struct error *err)
{
    if (!boxed->network_is_open)
        return 0;
    if (network_shut(network_of(boxed), err) < 0)
        return -1;
    boxed->network_is_open = false;
    return 0;
}

int boxes_network_socket(struct boxed *boxed, bool dials, int *out, struct error *err)
{
    int network = network_of(boxed);

    if (network < 0)
        return error_set(err, "network_failed", 0, "the box has failed before it had a network");
    return network_socket(network, dials ? NETWORK_DIAL : NETWORK_DIAG, out, err);
}

/* ---- use ---- */

static void report_usage(struct keeper_report *report, const struct cgroup_usage *usage)
{
    report->usage_known = usage->known;
    report->oom_kills = usage->oom_kills > UINT32_MAX ? UINT32_MAX : (uint32_t)usage->oom_kills;
    report->cpu_ns = usage->cpu_ns;
    report->memory_bytes = usage->memory_bytes;
    report->peak_memory_bytes = usage->peak_memory_bytes;
}

/* What the file system of an image has is known at once; what its file takes, when it is written out. */
static uint64_t disk_bytes(const struct keeper *keeper, const struct boxed *boxed)
{
    uint64_t bytes = UINT64_MAX;
    struct statfs fs;

    if (boxed->disk_fd >= 0 && fstatfs(boxed->disk_fd, &fs) == 0)
        return (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
    if (boxed->disk[0] != '\0')
        return disks_weigh(keeper, boxed->disk);
    return box_files(boxed->box, &keeper->slots.host, &bytes) == 0 ? bytes : UINT64_MAX;
}

void boxes_usage(const struct keeper *keeper, const struct boxed *boxed,
                 struct keeper_report *report)
{
    struct cgroup_usage usage = {0};

    if (boxed->slot != NULL)
        slots_usage(boxed->slot, &usage);
    else
        (void)box_usage(boxed->box, &keeper->slots.host, &usage);
    report_usage(report, &usage);
    report->disk_bytes = disk_bytes(keeper, boxed);
}

/* ---- the end ---- */

static void report_end(const struct boxed *boxed, const struct box_report *said,
                       struct keeper_report *report)
{
    struct cgroup_usage usage = {.known = said->usage_known,
                                 .oom_kills = said->oom_kills > 0 ? said->oom_kills
                                                                  : said->oom_killed,
                                 .cpu_ns = said->cpu_ns,
                                 .peak_memory_bytes = said->peak_memory_bytes};

    if (boxed->slot != NULL)
        slots_usage(boxed->slot, &usage);
    usage.memory_bytes = 0;
    report_usage(report, &usage);
    report->pids_exceeded = said->pids_exceeded;
    report->disk_exceeded = said->disk_exceeded;
    report->locks_exceeded = boxed->locks_exceeded;
    report->sockets_exceeded = boxed->sockets_exceeded;
    report->files_exceeded = boxed->files_exceeded;
    report->disk_bytes = UINT64_MAX;
    report->box = boxed->handle;
}

static void finish(struct keeper *keeper, struct boxed *boxed)
{
    struct box_report said = {0};
    struct error err;

    loop_remove(&keeper->loop, &boxed->source);
    if (box_destroy(boxed->box, &said, &err) < 0)
        keeper_say(err.code, "%s", err.text);
    boxed->box = NULL;
    report_end(boxed, &said, &boxed->report);
    if (boxed->slot != NULL)
        slots_give(&keeper->slots, boxed->slot);
    if (boxed->zygote != NULL)
        zygotes_give(boxed->zygote);
    boxed->slot = NULL;
    keeper->boxes.ending--;
    if (boxed->asked == 0) {
        boxes_drop(&keeper->boxes, boxed);
        return;
    }
    keeper->boxes.owed++;
    engine_wake(keeper);
}

static void end_ready(struct source *source, uint32_t events);

static void end_step(struct keeper *keeper, struct boxed *boxed)
{
    struct error ignored;
    int fd;

    if (box_end(boxed->box, &fd) == 1) {
        finish(keeper, boxed);
        return;
    }
    if (boxed->source.fd == fd)
        return;
    loop_remove(&keeper->loop, &boxed->source);
    /* Where it fails, boxes_tick() looks. */
    (void)loop_add(&keeper->loop, &boxed->source, fd, EPOLLIN, end_ready, boxed, &ignored);
}

static void end_ready(struct source *source, uint32_t events)
{
    struct boxed *boxed = source->owner;

    (void)events;
    end_step(boxed->keeper, boxed);
}

void boxes_end(struct keeper *keeper, struct boxed *boxed, uint32_t asked)
{
    mounts_box_ends(boxed);
    boxed->is_ending = true;
    boxed->asked = asked;
    network_forget(boxed);
    fd_close(&boxed->disk_fd); /* the disk is waited for until nobody has it */
    boxed->ending_ns = clock_monotonic_ns();
    keeper->boxes.ending++;
    end_step(keeper, boxed);
}

void boxes_end_all(struct keeper *keeper)
{
    for (size_t i = keeper->boxes.used; i-- > 0;)
        if (i < keeper->boxes.used && keeper->boxes.table[i] != NULL &&
            !keeper->boxes.table[i]->is_ending)
            boxes_end(keeper, keeper->boxes.table[i], 0);
}

void boxes_resume(struct keeper *keeper)
{
    for (size_t i = keeper->boxes.used; i-- > 0;)
        if (i < keeper->boxes.used && keeper->boxes.table[i] != NULL &&
            keeper->boxes.table[i]->is_ending)
            boxes_end(keeper, keeper->boxes.table[i], 0);
}

void boxes_forget_engine(struct boxes *boxes)
{
    for (size_t i = boxes->used; i-- > 0;) {
        struct boxed *boxed = i < boxes->used ? boxes->table[i] : NULL;

        if (boxed == NULL || !boxed->is_ending)
            continue;
        if (boxed->box == NULL)
            boxes_drop(boxes, boxed);
        else
            boxed->asked = 0;
    }
}

uint64_t boxes_tick(struct keeper *keeper, uint64_t now_ns)
{
    struct boxes *boxes = &keeper->boxes;
    uint64_t next = 0;

    for (size_t i = boxes->ending > 0 ? boxes->used : 0; i-- > 0;) {
        struct boxed *boxed = i < boxes->used ? boxes->table[i] : NULL;

        if (boxed == NULL || !boxed->is_ending || boxed->box == NULL)
            continue;
        if (!boxed->is_hurried && now_ns - boxed->ending_ns >= HURRY_NS) {
            boxed->is_hurried = true;
            box_hurry(boxed->box);
            if (boxed->slot != NULL)
                boxed->slot->is_worn = true; /* it has no limit any more */
        }
        if (boxed->source.fd < 0)
            next = keeper_sooner(next, now_ns + LOOK_NS);
        else if (!boxed->is_hurried)
            next = keeper_sooner(next, boxed->ending_ns + HURRY_NS);
        if (boxed->source.fd < 0)
            end_step(keeper, boxed);
    }
    return next;
}
