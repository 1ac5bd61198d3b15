/* The engine's requests: see requests.h, and request.h for what they say. */
#include "keeper/requests.h"

#include "keeper/build.h"
#include "keeper/disk_hold.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MEMORY_LEAST (8ULL << 20)
#define BYTES_MOST (1ULL << 50)
#define DISK_LEAST (1ULL << 20)
#define INODES_LEAST 64
#define INODES_MOST 1000000000ULL
#define PIDS_MOST 4194304U /* the kernel's own PID_MAX_LIMIT */
#define CPU_MOST 1024000U
#define PART_MAX 255

/* ---- fields ---- */

static bool is_text(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

static bool is_id(const char *text, size_t size)
{
    return is_text(text, size) && strlen(text) == KEEPER_ID_LENGTH &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789") == KEEPER_ID_LENGTH;
}

static bool is_id_or_empty(const char *text, size_t size)
{
    return text[0] == '\0' || is_id(text, size);
}

static bool is_hostname(const char *text, size_t size)
{
    return is_text(text, size) && text[0] != '-' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") ==
               strlen(text);
}

/* In the one form that names a place, and not where the box has something of its own. */
static bool is_target(const char *text, size_t size)
{
    static const char *const kept[] = {"/proc", "/dev", "/sys"};

    if (!is_text(text, size) || text[0] != '/' || text[1] == '\0')
        return false;
    for (const char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return false;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        size_t length = strlen(kept[i]);

        if (strncmp(text, kept[i], length) == 0 && (text[length] == '/' || text[length] == '\0'))
            return false;
    }
    for (const char *part = text; *part != '\0';) {
        size_t length = strcspn(++part, "/");

        if (length == 0 || length > PART_MAX || (length == 1 && part[0] == '.') ||
            (length == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        part += length;
    }
    return true;
}

static bool is_within(uint64_t value, uint64_t least, uint64_t most)
{
    return value >= least && value <= most;
}

static const char *limits_fault(const struct box_limits *limits)
{
    if (!is_within(limits->memory_bytes, MEMORY_LEAST, BYTES_MOST))
        return "memory";
    if (limits->cpu_milli > CPU_MOST)
        return "cpu";
    if (!is_within(limits->pids, 1, PIDS_MOST))
        return "pids";
    if (!is_within(limits->disk_bytes, DISK_LEAST, BYTES_MOST))
        return "disk";
    return is_within(limits->disk_inodes, INODES_LEAST, INODES_MOST) ? NULL : "inodes";
}

static const char *mount_fault(const struct keeper_mount *mount)
{
    if (!names_is_name(mount->name, sizeof(mount->name)))
        return "name of a mount";
    if (!is_target(mount->target, sizeof(mount->target)))
        return "target of a mount";
    return mount->read_only > 1 ? "read_only of a mount" : NULL;
}

static const char *mounts_fault(const struct keeper_make *make)
{
    const char *fault = NULL;

    if (make->mounts_count > KEEPER_MOUNTS_MAX)
        return "mounts_count";
    for (size_t i = 0; i < make->mounts_count && fault == NULL; i++)
        fault = mount_fault(&make->mounts[i]);
    return fault;
}

/* ---- one check per type: the field that is wrong, or NULL ---- */

static const char *hello_fault(const union keeper_request *request)
{
    const struct keeper_hello *hello = &request->hello;

    return is_text(hello->build, sizeof(hello->build)) && strcmp(hello->build, KEEPER_BUILD) == 0
               ? NULL
               : "build";
}

static bool is_empty_root(const struct keeper_make *make)
{
    return is_text(make->root, sizeof(make->root)) && strcmp(make->root, KEEPER_ROOT_EMPTY) == 0;
}

static const char *make_fault(const union keeper_request *request)
{
    const struct keeper_make *make = &request->make;
    const char *fault;

    if (is_empty_root(make)) {
        /* Nobody's disk was made with it, and no mount has a place in it. */
        if (make->disk_kind != KEEPER_EPHEMERAL || make->mounts_count > 0 ||
            make->privileges != BOX_PLAIN || make->owner[0] != '\0')
            return "root";
    } else if (!names_is_name(make->root, sizeof(make->root))) {
        return "root";
    }
    if (make->privileges != BOX_PLAIN && make->privileges != BOX_SYSTEM)
        return "privileges";
    if (make->disk_kind != KEEPER_EPHEMERAL && make->disk_kind != KEEPER_PERSISTENT)
        return "disk_kind";
    if (make->disk_kind == KEEPER_PERSISTENT ? !is_id(make->disk, sizeof(make->disk))
                                             : make->disk[0] != '\0')
        return "disk";
    if (make->disk_new > (make->disk_kind == KEEPER_PERSISTENT))
        return "disk_new";
    if (make->takes_mounts > 1)
        return "takes_mounts";
    if (!is_id_or_empty(make->owner, sizeof(make->owner)))
        return "owner";
    /* With the one there is the other; for nobody there is no mount, which no claim would ask about. */
    if (make->owner[0] != '\0' ? !names_is_name(make->tenant, sizeof(make->tenant))
                               : make->tenant[0] != '\0')
        return "tenant";
    if (make->owner[0] == '\0' && make->mounts_count > 0)
        return "mounts_count";
    if (!is_hostname(make->hostname, sizeof(make->hostname)))
        return "hostname";
    fault = limits_fault(&make->limits);
    return fault != NULL ? fault : mounts_fault(make);
}

static const char *claim_fault(const union keeper_request *request)
{
    const struct keeper_claim *claim = &request->claim;

    if (!is_id(claim->owner, sizeof(claim->owner)))
        return "owner";
    return names_is_name(claim->tenant, sizeof(claim->tenant)) ? NULL : "tenant";
}

static const char *of_box_fault(const union keeper_request *request)
{
    (void)request; /* any number may be a handle */
    return NULL;
}

static const char *network_fault(const union keeper_request *request)
{
    const struct keeper_network_of *network = &request->network;

    return network->what >= KEEPER_NETWORK_TCP && network->what <= KEEPER_NETWORK_DIAG ? NULL
                                                                                       : "what";
}

/* "" would be no tenant yet, and may have all. */
static const char *attach_fault(const union keeper_request *request)
{
    const struct keeper_attach *attach = &request->attach;

    return names_is_name(attach->tenant, sizeof(attach->tenant)) ? mount_fault(&attach->mount)
                                                                 : "tenant";
}

static const char *detach_fault(const union keeper_request *request)
{
    const struct keeper_detach *detach = &request->detach;

    return is_target(detach->target, sizeof(detach->target)) ? NULL : "target of a mount";
}

static const char *beat_fault(const union keeper_request *request)
{
    (void)request; /* there is nothing in it */
    return NULL;
}

static const char *room_fault(const union keeper_request *request)
{
    (void)request; /* there is nothing in it */
    return NULL;
}

static const char *of_disk_fault(const union keeper_request *request)
{
    return is_id(request->of_disk.disk, sizeof(request->of_disk.disk)) ? NULL : "disk";
}

/* ---- what each does ---- */

static void done(struct keeper *keeper, uint32_t id)
{
    struct keeper_head answer = {.type = KEEPER_DONE, .id = id};

    engine_answer(keeper, &answer, sizeof(answer), 0);
}

static void refuse(struct keeper *keeper, uint32_t id, const struct error *error)
{
    struct keeper_refused answer = {.head = {.type = KEEPER_REFUSED, .id = id}, .error = *error};

    engine_answer(keeper, &answer, sizeof(answer), 0);
}

static struct boxed *find(struct keeper *keeper, uint32_t id, uint64_t handle)
{
    struct boxed *boxed = boxes_find(&keeper->boxes, handle);
    struct error err = {0};

    if (boxed == NULL) {
        (void)error_set(&err, "no_box", 0, "there is no such box any more");
        refuse(keeper, id, &err);
    }
    return boxed;
}

static void do_hello(struct keeper *keeper, const union keeper_request *request)
{
    struct engine_child *engine = &keeper->engine;

    for (size_t i = 0; i < keeper->names.table_used; i++)
        keeper->names.table[i].is_told = false;
    engine->is_greeted = true;
    engine->hello_id = request->head.id;
    engine->stage = HELLO_HOST;
    engine->stage_next = 0;
    notify_say(&keeper->notify, "READY=1");
}

void request_made(struct keeper *keeper, uint32_t id, const struct boxed *boxed)
{
    struct keeper_made answer = {.head = {.type = KEEPER_MADE, .id = id}, .box = boxed->handle};

    engine_answer(keeper, &answer, sizeof(answer), boxed->handle);
    engine_wake(keeper);
}

void request_make(struct keeper *keeper, const struct keeper_make *make,
                  const struct disk_kept *disk, struct error *err)
{
    uint32_t id = make->head.id;
    bool has_mounts = make->mounts_count > 0;
    struct boxed *boxed = NULL;
    bool failed = err->code[0] != '\0' || boxes_make(keeper, make, disk, &boxed, err) < 0;

    if (failed)
        refuse(keeper, id, err);
    else if (!has_mounts)
        request_made(keeper, id, boxed);
    if (has_mounts)
        mounts_set_up(keeper, id, failed ? NULL : boxed);
}

void request_open(struct keeper *keeper, const struct keeper_make *make)
{
    struct error err = {0};

    if (make->disk_kind == KEEPER_EPHEMERAL || disks_open(keeper, make, &err) < 0)
        request_make(keeper, make, NULL, &err);
}

static void do_make(struct keeper *keeper, const union keeper_request *request)
{
    const struct keeper_make *make = &request->make;
    struct error err = {0};

    if (make->disk_kind == KEEPER_EPHEMERAL && make->mounts_count == 0)
        request_make(keeper, make, NULL, &err);
    else if (boxes_check(keeper, make, &err) < 0 ||
             (make->mounts_count > 0 ? mounts_start(keeper, make, &err)
                                     : disks_open(keeper, make, &err)) < 0)
        refuse(keeper, make->head.id, &err);
}

static void do_claim(struct keeper *keeper, const union keeper_request *request)
{
    const struct keeper_claim *claim = &request->claim;
    struct boxed *boxed = find(keeper, claim->head.id, claim->box);
    struct error err = {0};

    if (boxed == NULL)
        return;
    if (boxed->owner[0] != '\0' && strcmp(boxed->owner, claim->owner) != 0) {
        (void)error_set(&err, "claimed", 0, "this box is another sandbox's already");
        refuse(keeper, claim->head.id, &err);
        return;
    }
    if (boxes_check_claim(keeper, boxed, claim->tenant, &err) < 0) {
        refuse(keeper, claim->head.id, &err);
        return;
    }
    memcpy(boxed->owner, claim->owner, sizeof(boxed->owner));
    memcpy(boxed->tenant, claim->tenant, sizeof(boxed->tenant));
    done(keeper, claim->head.id);
}

static void do_usage(struct keeper *keeper, const union keeper_request *request)
{
    const struct boxed *boxed = find(keeper, request->head.id, request->of_box.box);
    struct keeper_report answer = {.head = {.type = KEEPER_USED, .id = request->head.id}};

    if (boxed == NULL)
        return;
    answer.box = boxed->handle;
    boxes_usage(keeper, boxed, &answer);
    engine_answer(keeper, &answer, sizeof(answer), 0);
}

static void do_end(struct keeper *keeper, const union keeper_request *request)
{
    struct boxed *boxed = find(keeper, request->head.id, request->of_box.box);

    if (boxed != NULL)
        boxes_end(keeper, boxed, request->head.id);
}

static void do_drop_disk(struct keeper *keeper, const union keeper_request *request)
{
    struct error err = {0};

    if (disks_drop(keeper, request->of_disk.disk, &err) < 0)
        refuse(keeper, request->head.id, &err);
    else
        done(keeper, request->head.id);
}

static void do_weigh_disk(struct keeper *keeper, const union keeper_request *request)
{
    struct keeper_report answer = {.head = {.type = KEEPER_USED, .id = request->head.id}};

    answer.disk_bytes = disks_weigh(keeper, request->of_disk.disk);
    engine_answer(keeper, &answer, sizeof(answer), 0);
}

static void do_disk_room(struct keeper *keeper, const union keeper_request *request)
{
    struct keeper_disks answer = {.head = {.type = KEEPER_DISKS, .id = request->head.id}};

    disk_hold_left(keeper, &answer);
    engine_answer(keeper, &answer, sizeof(answer), 0);
}

static void do_hold_disk(struct keeper *keeper, const union keeper_request *request)
{
    const struct boxed *boxed = find(keeper, request->head.id, request->hold.box);
    struct keeper_disks answer = {.head = {.type = KEEPER_DISKS, .id = request->head.id},
                                  .free_bytes = UINT64_MAX,
                                  .left_bytes = UINT64_MAX};

    if (boxed == NULL)
        return;
    disk_hold(keeper, boxed, request->hold.most, &answer);
    engine_answer(keeper, &answer, sizeof(answer), 0);
}

static void do_cut_disk(struct keeper *keeper, const union keeper_request *request)
{
    const struct boxed *boxed = find(keeper, request->head.id, request->of_box.box);

    if (boxed == NULL)
        return;
    disk_cut(boxed);
    done(keeper, request->head.id);
}

static void do_network(struct keeper *keeper, const union keeper_request *request)
{
    const struct keeper_network_of *network = &request->network;
    struct boxed *boxed = find(keeper, network->head.id, network->box);
    bool shuts = network->what == KEEPER_NETWORK_SHUT;
    struct error err = {0};

    if (boxed == NULL)
        return;
    if (network->what >= KEEPER_NETWORK_DIAL) {
        int made = -1;

        if (boxes_network_socket(boxed, network->what == KEEPER_NETWORK_DIAL, &made, &err) < 0)
            refuse(keeper, network->head.id, &err);
        else
            engine_answer_made(keeper, network->head.id, made);
        return;
    }
    if ((shuts ? boxes_network_shut(boxed, &err) : boxes_network_open(boxed, &err)) < 0)
        refuse(keeper, network->head.id, &err);
    else if (shuts)
        done(keeper, network->head.id);
    else
        engine_answer_socket(keeper, network->head.id, boxed->handle, network->what);
}

/* Answered when it is done, unless it is refused at once. */
static void do_attach(struct keeper *keeper, const union keeper_request *request)
{
    const struct keeper_attach *attach = &request->attach;
    struct boxed *boxed = find(keeper, attach->head.id, attach->box);
    struct error err = {0};
    int begun;

    if (boxed == NULL)
        return;
    begun = mounts_attach(keeper, boxed, attach, &err);
    if (begun < 0)
        refuse(keeper, attach->head.id, &err);
    else if (begun == 0)
        done(keeper, attach->head.id);
}

static void do_detach(struct keeper *keeper, const union keeper_request *request)
{
    const struct keeper_detach *detach = &request->detach;
    struct boxed *boxed = find(keeper, detach->head.id, detach->box);
    struct error err = {0};

    if (boxed != NULL && mounts_detach(keeper, boxed, detach, &err) < 0)
        refuse(keeper, detach->head.id, &err);
}

void request_answer(struct keeper *keeper, uint32_t id, const struct error *err)
{
    if (err->code[0] != '\0')
        refuse(keeper, id, err);
    else
        done(keeper, id);
}

/* That something came is heard where it is read. */
static void do_beat(struct keeper *keeper, const union keeper_request *request)
{
    (void)request;
    keeper->engine.beats = true;
    keeper->engine.is_first = false;
}

/* ---- the table ---- */

enum when { BEFORE_HELLO, AFTER_HELLO };

static const struct row {
    uint32_t type;
    enum when when;
    size_t size;
    const char *(*fault)(const union keeper_request *request);
    void (*serve)(struct keeper *keeper, const union keeper_request *request);
} rows[] = {
    {KEEPER_HELLO, BEFORE_HELLO, sizeof(struct keeper_hello), hello_fault, do_hello},
    {KEEPER_MAKE, AFTER_HELLO, sizeof(struct keeper_make), make_fault, do_make},
    {KEEPER_CLAIM, AFTER_HELLO, sizeof(struct keeper_claim), claim_fault, do_claim},
    {KEEPER_USAGE, AFTER_HELLO, sizeof(struct keeper_of_box), of_box_fault, do_usage},
    {KEEPER_END, AFTER_HELLO, sizeof(struct keeper_of_box), of_box_fault, do_end},
    {KEEPER_DROP_DISK, AFTER_HELLO, sizeof(struct keeper_of_disk), of_disk_fault, do_drop_disk},
    {KEEPER_WEIGH_DISK, AFTER_HELLO, sizeof(struct keeper_of_disk), of_disk_fault, do_weigh_disk},
    {KEEPER_NETWORK, AFTER_HELLO, sizeof(struct keeper_network_of), network_fault, do_network},
    {KEEPER_ATTACH, AFTER_HELLO, sizeof(struct keeper_attach), attach_fault, do_attach},
    {KEEPER_DETACH, AFTER_HELLO, sizeof(struct keeper_detach), detach_fault, do_detach},
    {KEEPER_BEAT, AFTER_HELLO, sizeof(struct keeper_head), beat_fault, do_beat},
    {KEEPER_DISK_ROOM, AFTER_HELLO, sizeof(struct keeper_head), room_fault, do_disk_room},
    {KEEPER_HOLD_DISK, AFTER_HELLO, sizeof(struct keeper_hold), of_box_fault, do_hold_disk},
    {KEEPER_CUT_DISK, AFTER_HELLO, sizeof(struct keeper_of_box), of_box_fault, do_cut_disk},
};

static const struct row *row_find(uint32_t type)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].type == type)
            return &rows[i];
    return NULL;
}

const char *request_fault(const union keeper_request *request, size_t size, bool is_greeted)
{
    const struct row *row;

    if (size < sizeof(request->head))
        return "a request without a head";
    row = row_find(request->head.type);
    if (row == NULL)
        return "a request of an unknown type";
    if (size != row->size)
        return "a request of a wrong size";
    if (request->head.id == 0)
        return "a request without an id";
    if (row->when != (is_greeted ? AFTER_HELLO : BEFORE_HELLO))
        return is_greeted ? "a second hello" : "a request before hello";
    return row->fault(request);
}

/* How much of the request whose first bytes these are is to be there; 0: there is no such request. */
static size_t size_wanted(const union keeper_request *request, size_t used)
{
    const struct row *row;

    if (used < sizeof(request->head))
        return sizeof(request->head);
    row = row_find(request->head.type);
    return row != NULL ? row->size : 0;
}

/* 1: a whole request is there. 0: not now. */
static int take(struct keeper *keeper)
{
    struct engine_child *engine = &keeper->engine;
    size_t wanted;

    while ((wanted = size_wanted(&engine->request, engine->request_used)) > engine->request_used) {
        ssize_t n = read(engine->requests, (char *)&engine->request + engine->request_used,
                         wanted - engine->request_used);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n <= 0) {
            engine_hung_up(keeper, "it has closed its pipe");
            return 0;
        }
        engine->request_used += (size_t)n;
        engine_heard(keeper);
    }
    return 1;
}

bool request_serve(struct keeper *keeper)
{
    struct engine_child *engine = &keeper->engine;
    union keeper_request request;
    const char *fault;
    size_t size;

    if (engine->requests < 0 || take(keeper) == 0)
        return false;
    request = engine->request;
    size = engine->request_used;
    engine->request = (union keeper_request){0};
    engine->request_used = 0;
    fault = request_fault(&request, size, engine->is_greeted);
    if (fault != NULL) {
        engine_punish(keeper, fault);
        return false;
    }
    row_find(request.head.type)->serve(keeper, &request);
    return true;
}
