/* The hand-over of a keeper: see handover.h. One function per part, for both directions. */
#include "keeper/handover.h"

#include "base/fd.h"
#include "base/hand.h"
#include "keeper/keeper.h"

#include <stdlib.h>
#include <string.h>

static void hand_size(struct hand *hand, size_t *size, size_t most)
{
    uint64_t number = *size;

    hand_u64(hand, &number, most);
    *size = (size_t)number;
}

/* Which of a table's places an entry has. Read, it has to be one that is taken. */
static size_t hand_index(struct hand *hand, size_t index, size_t count)
{
    hand_size(hand, &index, count == 0 ? 0 : count - 1);
    if (count == 0)
        hand_fault(hand, "an entry of an empty table");
    return index;
}

/* An entry of its own in memory. */
static void *entry_new(struct hand *hand, size_t size)
{
    void *entry = hand_is_sound(hand) ? calloc(1, size) : NULL;

    if (entry == NULL)
        hand_fault(hand, "no memory");
    return entry;
}

/* ---- places, sockets, who listens to us ---- */

/* Not `config_path`, which is looked for again. */
HAND_COVERS(struct places, 4 * PATH_MAX + 16);

static void places_hand(struct hand *hand, struct places *places)
{
    hand_mark(hand, "plac");
    hand_fd(hand, &places->data);
    hand_fd(hand, &places->engine);
    hand_fd(hand, &places->disks);
    hand_bool(hand, &places->is_system);
    hand_text(hand, places->data_path, sizeof(places->data_path));
    hand_text(hand, places->socket_path, sizeof(places->socket_path));
    hand_text(hand, places->keeper_path, sizeof(places->keeper_path));
}

HAND_COVERS(struct listeners, LISTENERS_MAX * sizeof(int) + 16);

static void listeners_hand(struct hand *hand, struct listeners *listeners)
{
    hand_mark(hand, "list");
    hand_size(hand, &listeners->api_count, LISTENERS_MAX);
    for (size_t i = 0; i < listeners->api_count; i++)
        hand_fd(hand, &listeners->api[i]);
    hand_fd(hand, &listeners->keeper);
    hand_bool(hand, &listeners->made_socket);
}

/* Not `next_ns`: it is due. */
HAND_COVERS(struct notify, 24);

static void notify_hand(struct hand *hand, struct notify *notify)
{
    hand_mark(hand, "noti");
    hand_fd(hand, &notify->socket);
    hand_u64(hand, &notify->watchdog_ns, UINT64_MAX);
}

/* ---- names ---- */

/* Not `is_told`, for there is a new engine, and none that `is_removed`. */
HAND_COVERS(struct name, KEEPER_TENANTS_SIZE + 120);

static void name_hand(struct hand *hand, struct name *name)
{
    uint64_t device = name->device, inode = name->inode;

    hand_u32(hand, &name->kind, KEEPER_MOUNT);
    hand_text(hand, name->name, sizeof(name->name));
    hand_text(hand, name->tenants, sizeof(name->tenants));
    hand_string(hand, &name->path, PATH_MAX);
    hand_bool(hand, &name->read_only);
    hand_bool(hand, &name->is_there);
    hand_bool(hand, &name->is_directory);
    hand_bool(hand, &name->is_configured);
    hand_u64(hand, &name->generation, UINT64_MAX);
    hand_u64(hand, &device, UINT64_MAX);
    hand_u64(hand, &inode, UINT64_MAX);
    hand_fd(hand, &name->fd);
    name->device = (dev_t)device;
    name->inode = (ino_t)inode;
    if (hand->is_reading &&
        (name->kind == 0 || name->path == NULL || !names_is_name(name->name, sizeof(name->name)) ||
         !names_are_tenants(name->tenants, sizeof(name->tenants))))
        hand_fault(hand, "a name that is none");
    if (hand->is_reading && !hand->is_trial && name->is_there && name->fd < 0)
        hand_fault(hand, "a name that leads nowhere");
}

/* Who is about to register one is heard afterwards. */
static void clients_hand(struct hand *hand, struct names *names)
{
    for (size_t i = 0; i < NAMES_CLIENTS_MAX; i++) {
        hand_fd(hand, &names->clients[i].socket);
        hand_u64(hand, &names->clients[i].since_ns, UINT64_MAX);
    }
}

/* Those whose file systems do not answer: they may do so in the next program. */
HAND_COVERS(struct name_find, 48);

static void finds_hand(struct hand *hand, struct names *names)
{
    size_t count = 0;

    for (size_t i = 0; i < NAMES_FINDS_MAX; i++)
        count += names->finds[i].pid > 0;
    hand_size(hand, &count, NAMES_FINDS_MAX);
    for (size_t i = 0; i < NAMES_FINDS_MAX && count > 0; i++) {
        if (!hand->is_reading && names->finds[i].pid == 0)
            continue;
        hand_pid(hand, &names->finds[i].pid);
        hand_fd(hand, &names->finds[i].socket);
        hand_u64(hand, &names->finds[i].generation, UINT64_MAX);
        count--;
    }
}

/* Not `directory`, which is places.data, and no source: all are watched anew. */
HAND_COVERS(struct names, NAMES_MAX * sizeof(struct name) +
                              NAMES_CLIENTS_MAX * sizeof(struct names_client) +
                              NAMES_FINDS_MAX * sizeof(struct name_find) + 48);
HAND_COVERS(struct names_client, 40);

static void names_hand(struct hand *hand, struct names *names)
{
    size_t count = 0;

    if (hand->is_reading)
        names_begin(names);
    for (size_t i = 0; i < names->table_used; i++)
        count += names->table[i].kind != 0 && !names->table[i].is_removed;
    hand_mark(hand, "name");
    hand_u64(hand, &names->generations, UINT64_MAX);
    hand_size(hand, &count, NAMES_MAX);
    if (hand->is_reading)
        names->table_used = count;
    for (size_t i = 0; i < names->table_used; i++)
        if (hand->is_reading || (names->table[i].kind != 0 && !names->table[i].is_removed))
            name_hand(hand, &names->table[i]);
    clients_hand(hand, names);
    finds_hand(hand, names);
}

/* ---- slots ---- */

/* Only those of boxes that live. They serve no second box, for which more would have to be handed on. */
static void slot_hand(struct hand *hand, struct slots *slots, struct slot *slot)
{
    ids_hand(hand, &slot->ids);
    hand_fd(hand, &slot->network);
    cgroup_hand(hand, &slot->cgroup, &slots->host);
    hand_u64(hand, &slot->begun.cpu_ns, UINT64_MAX);
    hand_u64(hand, &slot->begun.oom_kills, UINT64_MAX);
}

/* Not `privileges` and `limits`, which are for the next box. */
HAND_COVERS(struct slot, sizeof(struct ids) + sizeof(struct cgroup) + 80);

static struct slot *slot_read(struct hand *hand, struct slots *slots)
{
    uint32_t number = 0;
    struct slot *slot;

    hand_u32(hand, &number, SLOTS_MAX - 1);
    slot = entry_new(hand, sizeof(*slot));
    if (slot == NULL)
        return NULL;
    *slot = (struct slot){.number = number, .network = -1, .is_used = true, .is_worn = true};
    slot->cgroup.into = slot->cgroup.leaves = -1;
    slot_hand(hand, slots, slot);
    if (slots->table[number] != NULL)
        hand_fault(hand, "a slot of two boxes");
    if (!hand_is_sound(hand)) {
        fd_close(&slot->network);
        fd_close(&slot->cgroup.into);
        fd_close(&slot->cgroup.leaves);
        free(slot);
        return NULL;
    }
    slots->table[number] = slot;
    if (number >= slots->table_used)
        slots->table_used = number + 1;
    return slot;
}

/* Not the table, whose slots come with their boxes, and what is `wanted` next, and `anonymous`, whose copy the janitor has. */
HAND_COVERS(struct slots,
            SLOTS_MAX * sizeof(void *) + sizeof(struct ids_pool) + sizeof(struct cgroup_host) + 80);

static void slots_hand(struct hand *hand, struct slots *slots)
{
    hand_mark(hand, "slot");
    hand_bool(hand, &slots->is_open);
    ids_pool_hand(hand, &slots->pool);
    cgroup_host_hand(hand, &slots->host);
    hand_text(hand, slots->prefix, sizeof(slots->prefix));
    hand_fd(hand, &slots->home);
    hand_fd(hand, &slots->janitor);
    hand_pid(hand, &slots->janitor_pid);
}

/* ---- zygotes ---- */

/* Not `boxes`, which are counted, and `last_used`. */
HAND_COVERS(struct zygote_entry, 48);

static void zygote_entry_hand(struct hand *hand, struct zygote_entry *entry)
{
    uint32_t privileges = entry->privileges;

    zygote_hand(hand, &entry->zygote);
    hand_u64(hand, &entry->root, UINT64_MAX);
    hand_u32(hand, &privileges, BOX_SYSTEM);
    hand_bool(hand, &entry->is_retired);
    entry->privileges = (enum box_privileges)privileges;
}

/* Not `uses` and those that are `unable`, which is found out again. */
HAND_COVERS(struct zygotes, ZYGOTES_MAX * sizeof(struct zygote_entry) + 272);

static void zygotes_hand(struct hand *hand, struct zygotes *zygotes)
{
    uint64_t programs = zygote_programs(), theirs = programs;
    size_t count = 0;

    for (size_t i = 0; i < ZYGOTES_MAX; i++)
        count += zygotes->table[i].zygote != NULL;
    hand_mark(hand, "zygo");
    hand_u64(hand, &theirs, UINT64_MAX);
    hand_size(hand, &count, ZYGOTES_MAX);
    for (size_t i = 0; i < ZYGOTES_MAX && count > 0; i++) {
        struct zygote_entry *entry = &zygotes->table[i];

        if (!hand->is_reading && entry->zygote == NULL)
            continue;
        zygote_entry_hand(hand, entry);
        entry->is_retired = entry->is_retired || theirs != programs;
        count--;
    }
}

/* ---- boxes ---- */

/* Places of the zygotes are counted as they were written: one behind the other. */
static size_t zygote_number(const struct zygotes *zygotes, const struct zygote_entry *entry)
{
    size_t number = 0;

    for (size_t i = 0; i < ZYGOTES_MAX && &zygotes->table[i] != entry; i++)
        number += zygotes->table[i].zygote != NULL;
    return number;
}

static size_t zygotes_count(const struct zygotes *zygotes)
{
    return zygote_number(zygotes, NULL);
}

/* Not when its end began and who is told of it: that is begun again for nobody. None is held below its limit of
 * processes: crowd_free() comes before. Nor why it is ended: that it ends is told. None is being set up: the engine that
 * waited has ended. */
HAND_COVERS(struct boxed, sizeof(struct keeper_report) + KEEPER_NAME_MAX + 224);
HAND_COVERS(struct boxed_mount, sizeof(struct keeper_mount) + 24);
HAND_COVERS(struct keeper_mount, KEEPER_NAME_MAX + KEEPER_TARGET_MAX + 8);

static void mount_hand(struct hand *hand, struct boxed_mount *mount)
{
    hand_text(hand, mount->is.name, sizeof(mount->is.name));
    hand_text(hand, mount->is.target, sizeof(mount->is.target));
    hand_u32(hand, &mount->is.read_only, 1);
    hand_u64(hand, &mount->device, UINT64_MAX);
    hand_u64(hand, &mount->inode, UINT64_MAX);
    hand_u64(hand, &mount->mount_id, UINT64_MAX);
}

static void boxed_mounts_hand(struct hand *hand, struct boxed *boxed)
{
    size_t count = boxed->mounts_count;

    hand_size(hand, &count, KEEPER_MOUNTS_MAX);
    for (size_t i = 0; i < count && hand_is_sound(hand); i++) {
        struct boxed_mount mount = {0};

        if (!hand->is_reading)
            mount = boxed->mounts[i];
        mount_hand(hand, &mount);
        if (hand->is_reading && !boxes_note_mount(boxed, &mount))
            hand_fault(hand, "no memory");
    }
}

static void boxed_hand(struct hand *hand, struct keeper *keeper, struct boxed *boxed)
{
    struct zygotes *zygotes = &keeper->zygotes;
    bool is_cold = boxed->slot == NULL;
    size_t zygote = is_cold ? 0 : zygote_number(zygotes, boxed->zygote);

    hand_text(hand, boxed->owner, sizeof(boxed->owner));
    hand_text(hand, boxed->disk, sizeof(boxed->disk));
    hand_text(hand, boxed->tenant, sizeof(boxed->tenant));
    hand_u64(hand, &boxed->root, UINT64_MAX);
    hand_bool(hand, &boxed->is_ending);
    hand_fd(hand, &boxed->network.tcp);
    hand_fd(hand, &boxed->network.udp);
    hand_fd(hand, &boxed->disk_fd);
    hand_bool(hand, &boxed->network_is_open);
    hand_u64(hand, &boxed->memory_bytes, UINT64_MAX);
    hand_u32(hand, &boxed->ids.first, UINT32_MAX);
    hand_u32(hand, &boxed->ids.count, IDS_COUNT);
    hand_u32(hand, &boxed->ids.user, UINT32_MAX);
    hand_u32(hand, &boxed->ids.group, UINT32_MAX);
    hand_bool(hand, &boxed->forbids_set_id);
    boxed_mounts_hand(hand, boxed);
    hand_bool(hand, &is_cold);
    if (!is_cold && hand->is_reading) {
        boxed->slot = slot_read(hand, &keeper->slots);
        zygote = hand_index(hand, 0, zygotes_count(zygotes));
    } else if (!is_cold) {
        hand_u32(hand, &boxed->slot->number, SLOTS_MAX - 1);
        slot_hand(hand, &keeper->slots, boxed->slot);
        (void)hand_index(hand, zygote, zygotes_count(zygotes));
    }
    if (hand->is_reading && !is_cold && hand_is_sound(hand)) {
        boxed->zygote = &zygotes->table[zygote];
        boxed->zygote->boxes++;
    }
    box_hand(hand, &boxed->box, is_cold || boxed->slot == NULL ? NULL : &boxed->slot->cgroup);
}

static void boxed_read(struct hand *hand, struct keeper *keeper)
{
    struct boxes *boxes = &keeper->boxes;
    struct boxed *boxed = entry_new(hand, sizeof(*boxed));
    size_t index;

    if (boxed == NULL)
        return;
    boxed->keeper = keeper;
    boxed->source.fd = -1;
    boxed->network.tcp = boxed->network.udp = boxed->disk_fd = -1;
    hand_u64(hand, &boxed->handle, UINT64_MAX);
    index = boxed->handle & UINT32_MAX;
    if (index >= BOXES_MAX || boxes->table[index] != NULL)
        hand_fault(hand, "a handle that is none");
    if (!hand_is_sound(hand)) {
        free(boxed);
        return;
    }
    boxes->table[index] = boxed;
    boxes->count++;
    if (index >= boxes->used)
        boxes->used = index + 1;
    boxed_hand(hand, keeper, boxed);
}

/* Not those that are `ending` and `owed`, which are counted. */
HAND_COVERS(struct boxes, BOXES_MAX * sizeof(void *) + 40);

static void boxes_hand(struct hand *hand, struct keeper *keeper)
{
    struct boxes *boxes = &keeper->boxes;
    size_t count = boxes->count - boxes->owed; /* those are gone, and an engine is to hear of it */

    hand_mark(hand, "boxe");
    hand_u32(hand, &boxes->generations, UINT32_MAX);
    hand_size(hand, &count, BOXES_MAX);
    for (size_t i = 0; hand->is_reading && hand_is_sound(hand) && i < count; i++)
        boxed_read(hand, keeper);
    for (size_t i = 0; !hand->is_reading && i < boxes->used; i++) {
        struct boxed *boxed = boxes->table[i];

        if (boxed == NULL || boxed->box == NULL)
            continue;
        hand_u64(hand, &boxed->handle, UINT64_MAX);
        boxed_hand(hand, keeper, boxed);
    }
}

/* ---- mounts that are being changed ---- */

/* Not `read_only`, for it is under way, nor `due_ns` and `is_killed`: all others were waited for. Nobody is `asked`, and no
 * box is made any more: one whose set-up hangs is on its end. */
HAND_COVERS(struct mount_change, sizeof(struct source) + 2 * sizeof(void *) +
                                     sizeof(struct boxed_mount) + KEEPER_NAME_MAX + 48);

static void change_hand(struct hand *hand, struct mount_change *change)
{
    struct boxed_mount mount = {change->mount, change->device, change->inode, change->mount_id};

    hand_pid(hand, &change->pid);
    hand_fd(hand, &change->socket);
    hand_u64(hand, &change->box, UINT64_MAX);
    hand_bool(hand, &change->is_attach);
    hand_text(hand, change->tenant, sizeof(change->tenant));
    mount_hand(hand, &mount);
    change->mount = mount.is;
    change->device = mount.device;
    change->inode = mount.inode;
    change->mount_id = mount.mount_id;
}

/* Only those that hang are there when it is for good: their processes are to be reaped still, and may have done it. */
static void changes_hand(struct hand *hand, struct mounts *mounts)
{
    size_t count = 0;

    hand_mark(hand, "moun");
    for (size_t i = 0; i < MOUNTS_ALL_MAX; i++)
        count += mounts->table[i].pid > 0;
    hand_size(hand, &count, MOUNTS_ALL_MAX);
    for (size_t i = 0; i < MOUNTS_ALL_MAX && count > 0; i++)
        if (hand->is_reading || mounts->table[i].pid > 0) {
            change_hand(hand, &mounts->table[i]);
            count--;
        }
}

/* ---- disks ---- */

HAND_COVERS(struct disk_claim, 28);

static void claim_hand(struct hand *hand, struct disk_claim *claim)
{
    hand_text(hand, claim->disk, sizeof(claim->disk));
    hand_fd(hand, &claim->lock);
    if (hand->is_reading &&
        (!disk_is_dir_name(claim->disk) || (!hand->is_trial && claim->lock < 0)))
        hand_fault(hand, "ids of no disk");
}

HAND_COVERS(struct disk_claims, 32);

/* Locks that guards have copies of cannot be taken anew, and nobody may have the ids of a disk for a
 * moment in between. */
static void claims_hand(struct hand *hand, struct disk_claims *claims)
{
    size_t count = claims->count;

    hand_bool(hand, &claims->lacks);
    hand_size(hand, &count, IDS_SLOTS);
    if (hand->is_reading && count > 0) {
        claims->table = entry_new(hand, count * sizeof(*claims->table));
        claims->room = claims->table == NULL ? 0 : count;
    }
    for (size_t i = 0; i < count && hand_is_sound(hand); i++) {
        if (hand->is_reading)
            claims->table[claims->count++].lock = -1;
        claim_hand(hand, &claims->table[i]);
    }
}

/* Not who waits for a disk, which no engine does now, and `sweeps_again`: it does. */
HAND_COVERS(struct disks, DISKS_OPENING_MAX * sizeof(struct opening) + 72);

/* Its processes are dying, or sweep, and are to be reaped. */
static void disks_hand(struct hand *hand, struct disks *disks)
{
    hand_mark(hand, "disk");
    for (size_t i = 0; i < DISKS_OPENING_MAX; i++)
        hand_pid(hand, &disks->table[i].child.pid);
    hand_pid(hand, &disks->sweeper.pid);
    hand_u32(hand, &disks->dropped, UINT32_MAX);
    claims_hand(hand, &disks->claims);
}

/* ---- the engine: as whom the next one runs ---- */

/* Not the one that ran, the first, which none is any more, and the program, which is found again. */
HAND_COVERS(struct engine_child,
            sizeof(union keeper_request) + PENDING_MAX * sizeof(struct pending) + 4328);

static void engine_hand(struct hand *hand, struct engine_child *engine)
{
    hand_mark(hand, "engi");
    hand_u32(hand, &engine->uid, UINT32_MAX);
    hand_u32(hand, &engine->gid, UINT32_MAX);
    hand_bool(hand, &engine->drops_id);
    ids_hand(hand, &engine->ids);
    hand_fd(hand, &engine->config);
    hand_fd(hand, &engine->headers);
    hand_fd(hand, &engine->tls);
}

/* ---- all ---- */

/* Not `caller`, `options`, `config`, `loop`, `arguments`, `lacks_fresh_proc`, `crowd`, the signals and what is under
 * way: a program begins with these. */
HAND_COVERS(struct keeper,
            sizeof(struct options) + sizeof(struct config) + sizeof(struct loop) +
                sizeof(struct places) + sizeof(struct listeners) + sizeof(struct names) +
                sizeof(struct slots) + sizeof(struct zygotes) + sizeof(struct boxes) +
                sizeof(struct disks) + sizeof(struct mounts) + sizeof(struct engine_child) +
                sizeof(struct notify) + sizeof(struct upgrade) + sizeof(struct tls_watch) +
                sizeof(struct uncounted) + sizeof(struct crowd) + PATH_MAX + 84);

void handover_all(struct hand *hand, struct keeper *keeper)
{
    hand_text(hand, keeper->program, sizeof(keeper->program));
    hand_text(hand, keeper->ids_kind, sizeof(keeper->ids_kind));
    places_hand(hand, &keeper->places);
    listeners_hand(hand, &keeper->listeners);
    notify_hand(hand, &keeper->notify);
    names_hand(hand, &keeper->names);
    slots_hand(hand, &keeper->slots);
    zygotes_hand(hand, &keeper->zygotes);
    boxes_hand(hand, keeper);
    changes_hand(hand, &keeper->mounts);
    disks_hand(hand, &keeper->disks);
    engine_hand(hand, &keeper->engine);
    if (hand->is_reading && !hand->is_trial &&
        (keeper->places.data < 0 || keeper->places.engine < 0 || keeper->places.disks < 0 ||
         keeper->listeners.keeper < 0 || keeper->slots.janitor < 0))
        hand_fault(hand, "what no keeper can do without is missing");
}

void handover_drop(struct keeper *keeper)
{
    for (size_t i = 0; i < keeper->names.table_used; i++) {
        fd_close(&keeper->names.table[i].fd);
        free(keeper->names.table[i].path);
    }
    for (size_t i = 0; i < keeper->boxes.used; i++) {
        if (keeper->boxes.table[i] != NULL && keeper->boxes.table[i]->box != NULL)
            box_drop(keeper->boxes.table[i]->box);
        if (keeper->boxes.table[i] != NULL)
            free(keeper->boxes.table[i]->mounts);
        free(keeper->boxes.table[i]);
    }
    for (size_t i = 0; i < NAMES_FINDS_MAX; i++)
        if (keeper->names.finds[i].pid > 0)
            fd_close(&keeper->names.finds[i].socket);
    for (size_t i = 0; i < MOUNTS_ALL_MAX; i++)
        if (keeper->mounts.table[i].pid > 0)
            fd_close(&keeper->mounts.table[i].socket);
    for (size_t i = 0; i < keeper->slots.table_used; i++)
        free(keeper->slots.table[i]);
    for (size_t i = 0; i < ZYGOTES_MAX; i++)
        if (keeper->zygotes.table[i].zygote != NULL)
            zygote_drop(keeper->zygotes.table[i].zygote);
    for (size_t i = 0; i < keeper->disks.claims.count; i++)
        fd_close(&keeper->disks.claims.table[i].lock);
    free(keeper->disks.claims.table);
}
