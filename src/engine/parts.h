/* What the files of the engine share; nobody outside this room includes it.
 *
 * Every sandbox has a queue of verbs, and one of them at a time is worked on: so no two changes of one
 * sandbox ever meet, and what is in flight (a request to the keeper, a commit) belongs to exactly one
 * verb. A sandbox is freed only when its queue is empty and it is deleted, hence a callback may keep
 * a plain pointer to it.
 *
 * Out of memory ends the process: the keeper starts the next one, boxes live on, and what was
 * acknowledged is on the disk. */
#pragma once

#include "base/clock.h"
#include "base/log.h"
#include "base/rate.h"
#include "base/sha256.h"
#include "engine/clock.h"
#include "engine/engine.h"
#include "engine/keeper_client.h"
#include "engine/map.h"
#include "engine/network_log.h"
#include "engine/record.h"
#include "store/store.h"

#include <sys/queue.h>

#define ENGINE_GONE_S (24 * 3600)
#define ENGINE_GONE_MAX 65536 /* ids of deleted sandboxes that are known; the oldest go first */
#define ENGINE_READY_MS 60000 /* a box that does not stand after this never will */

/* ---- verbs ---- */

enum verb_kind {
    VERB_CREATE,
    VERB_JOIN, /* a create of a name that is there or is being made */
    VERB_START,
    VERB_STOP,
    VERB_DELETE,
    VERB_CHANGE,
    VERB_PROCS,   /* somebody wants its processes, once it runs */
    VERB_FALL,    /* the box ended by itself */
    VERB_QUIET,   /* somebody wants its files: of one that is stopped, see quiet.c */
    VERB_HUSH,    /* nobody has wanted them for a while */
    VERB_CEASE,   /* the server ends: it is stopped, if it runs */
    VERB_NETWORK, /* this engine is new: its network is to be as its policy says */
    VERB_MOUNT,   /* mounts.c */
    VERB_UNMOUNT,
    VERB_KINDS,
};

enum change_field {
    CHANGE_LABELS = 1,
    CHANGE_DEADLINE = 2,
    CHANGE_IDLE = 4,
    CHANGE_THEN = 8,
    CHANGE_NETWORK = 32,
    CHANGE_PORTS = 64,
    CHANGE_TOKENS = 16, /* those there are become void; `record` says nothing of it */
};

struct port_change {
    uint16_t port;
    int is_public; /* -1: as it is */
    bool is_removed;
    uint16_t host_port;
};

/* box_turns.c: a place among the boxes that are made, or among the mounts of boxes that are changed; or a wait for one.
 * Zeroed, it is neither. */
enum box_turn_kind { BOX_TURN_MAKE, BOX_TURN_MOUNT, BOX_TURN_KINDS };
struct box_turn {
    TAILQ_ENTRY(box_turn) link;
    struct box_line *line;
    enum box_turn_kind kind;
    enum { BOX_TURN_NONE, BOX_TURN_WAITS, BOX_TURN_TAKEN } step;
    bool is_first;   /* ahead of those of its tenant that are not */
    uint64_t number; /* they come by it; 0 until it has waited */
    void (*go)(void *arg);
    void *arg;
};

struct verb {
    struct verb *next;
    enum verb_kind kind;
    bool with_start;        /* VERB_PROCS: start it first */
    char reason[32];        /* why it is stopped or deleted */
    struct record *record;  /* VERB_JOIN: what to make; VERB_CHANGE: what it becomes */
    uint64_t if_revision;   /* VERB_CHANGE */
    unsigned change_fields; /* of `record`: enum change_field */
    /* CHANGE_NETWORK; its texts are of `record`. */
    struct sandbox_network network;
    struct port_change port; /* CHANGE_PORTS */
    /* VERB_MOUNT; of VERB_UNMOUNT the target. */
    struct keeper_mount mount;
    struct box_turn turn;
    enum keeper_type mount_request;
    keeper_answered answered;
    union {
        engine_created created;
        engine_sandbox_done sandbox;
        engine_done plain;
        engine_procs_done procs;
    } done; /* NULL where nobody waits */
    void *arg;
};

enum sandbox_step {
    STEP_NONE,
    STEP_MAKE,    /* the keeper makes a box */
    STEP_READY,   /* the box is about to stand */
    STEP_COMMIT,  /* the store, and the claim of a box of the pool */
    STEP_END,     /* the keeper ends the box */
    STEP_NETWORK, /* the keeper opens or shuts its network */
    STEP_MOUNT,   /* the keeper mounts or unmounts in its box */
};

/* What a box makes happen, by kind; see shares.c. */
enum event_share { SHARE_WENT, SHARE_REFUSED, SHARE_PORTS, SHARES };

struct share_told {
    struct rate buckets[SHARES];
    uint64_t left_out[SHARES]; /* since one was told */
};

/* saves.c: what is to be written down again and again. */
struct save {
    TAILQ_ENTRY(save) next;
    bool is_listed;
};

struct saves {
    TAILQ_HEAD(save_list, save) all; /* whose turn is next first */
    size_t count, left;              /* `left` of this round */
};

/* disk_room.c: what is known of a disk. */
struct disk_weight {
    bool is_known, is_held; /* is_held: it can be */
    uint64_t used;          /* that its files take */
    uint64_t base_used,
        base_written; /* while room is short: as it was before that; UINT64_MAX: not known */
    uint64_t grown;   /* since then, or what it has still to write */
    bool is_told;     /* that it may grow no more */
};

struct sandbox {
    struct engine *engine;
    char id[KEEPER_ID_LENGTH + 4];
    char *name_key;                /* "TENANT/NAME", or NULL */
    struct sandbox *older, *newer; /* all, in order of creation */
    struct record *record;         /* as committed */
    struct procs *procs;           /* opened when first needed */
    struct network *network;       /* network.c; NULL: it never had one here */
    struct ports *ports;           /* ports.c; NULL: nobody has asked for any */
    uint64_t box;                  /* 0: none */
    uint32_t protocol;             /* its box speaks this version, which we do not; 0: we do */
    struct outdated *outdated;     /* until it ends */
    uint32_t oom_seen;             /* kills that were reported of this box */

    struct verb *active, *first, *last;
    enum sandbox_step step;
    bool is_doomed;                        /* a delete waits: what is going on gives up */
    bool is_stepping;                      /* inside sandbox_next() */
    bool is_buried;                        /* on its way to be freed */
    bool has_shed;                         /* the pool has given up its boxes for this one */
    bool from_pool;                        /* its box, until it is its own */
    bool has_lost;                         /* that box has ended before */
    struct box_turn turn;                  /* of STEP_MAKE */
    char spent_disk[KEEPER_ID_LENGTH + 4]; /* of that box; "": none */
    unsigned waits;                        /* answers that the step needs */
    struct error failure;
    struct record *next; /* what is being committed */
    void (*committed)(struct sandbox *sandbox, const struct error *err);

    /* Its box stands for its files only: the state is "stopped". */
    bool is_quiet;
    size_t files; /* calls of files.c that have not ended */
    struct alarm hush;

    struct alarm timer; /* READY while it starts, else deadline and idle limit */
    uint64_t touched_ns, begun_ns, boxed_ns;
    uint64_t timed_ns; /* when its time was over last, and something was done about it */

    struct share_told told;
    uint64_t cpu_ns, memory_bytes; /* of its box, as spent.c heard of it last */
    bool spent_unknown;            /* the box was there before this engine, and was not asked yet */
    struct disk_weight weight;     /* of its persistent disk */
};

/* ---- the engine ---- */

struct later {
    struct later *next;
    void (*call)(void *arg);
    void *arg;
};

struct gone {
    char id[KEEPER_ID_LENGTH]; /* no NUL */
    uint32_t at_s;
};

struct gone_ring {
    struct gone *all;
    size_t first, count;
};

struct box_turns;
struct dial;
struct files;
struct disk_room;
struct kernels;
struct network;
struct ports;
struct pool;
struct shares;
struct tenants;
struct events;
struct takeover;
struct tokens;

struct engine {
    struct engine_options options;
    struct store *store;
    struct keeper_client *keeper;
    struct clock *clock;
    struct tenants *tenants;
    struct events *events;
    struct tokens *tokens;
    struct spent *spent; /* spent.c */
    struct net *net;
    struct policy *policy; /* of a sandbox that names none */
    struct dial *dials;    /* dials.c: on their way */
    struct alarm ports_look;
    uint64_t ports_looked; /* listening.c: the serial of the sandbox that had its turn last; 0 */
    struct shares *shares; /* shares.c */
    struct turns *turns;   /* of the tenants: net/turns.h */
    struct saves network_saves;
    struct alarm network_save;
    struct pool *pool;
    struct box_turns *box_turns[BOX_TURN_KINDS];
    struct disk_room *disk_room; /* disk_room.c */
    struct kernels *kernels;     /* kernels.c */
    struct takeover *takeover;   /* while it opens */
    int sandboxes_dir;
    int programs[TOOL_PROGRAMS]; /* that run in boxes for us */

    struct keeper_host host;
    struct keeper_named *named;
    size_t named_count;

    struct map ids, names; /* names by "TENANT/NAME" */
    struct sandbox *oldest, *newest;
    struct files *files; /* calls that run */
    unsigned files_wide; /* of their pipes, those that are larger than usual */
    size_t count;
    uint64_t serial;      /* of the newest sandbox */
    uint64_t serial_zero; /* what it would be when the monotonic clock began */
    struct gone_ring gone;

    uv_idle_t idle; /* runs while something is put off */
    struct later *later_first, *later_last;
    struct alarm tick, beat;

    bool is_ready, is_draining, is_ceasing, is_lost, is_closing;
    bool is_marked;  /* that all ends */
    bool is_opening; /* until what a crash left is written down */
    size_t verbs;    /* in queues or in work */
    size_t removals; /* directories that are being removed */
    void (*opened)(void *arg, const struct error *err);
    void *opened_arg;
    void (*drained)(void *arg);
    void *drained_arg;
    void (*ceased)(void *arg); /* all that ran is stopped */
    void *ceased_arg;
    size_t ceasing; /* sandboxes that are not yet */
    bool will_settle, has_told, is_closed;
    bool has_net; /* and it is not closed */

    uint64_t pool_hits, pool_misses;
    uint64_t used_ns; /* when somebody last asked for anything */
    uint64_t capacity_read_ns, memory_read_ns, memory_trimmed_ns;
    uint64_t memory_used; /* of the engine itself, at memory_read_ns */
    struct engine_capacity capacity;
};

/* ---- spent.c ---- */

/* What its box said of itself, NULL: nothing; it has ended, if `is_end`. */
void spent_take(struct sandbox *sandbox, const struct keeper_report *report, bool is_end);
/* Asks all boxes, unless that was done a moment ago. */
void spent_look(struct engine *engine);
void spent_free(struct engine *engine);

/* Adds what is more in `now` than in `*seen`, which becomes that. */
void spent_network(struct sandbox *sandbox, struct net_counts *seen, const struct net_counts *now);
void spent_network_all(struct engine *engine, struct net_counts *out);

/* ---- network.c ---- */

typedef void network_done(struct sandbox *sandbox, const struct error *err);
int network_open_room(struct engine *engine, struct error *err);
void network_close_room(struct engine *engine);
bool network_is_wanted(const struct record *record);
/* Asks the keeper for both sockets of its box, and has what comes of them carried. `done` comes later, once. */
void network_begin(struct sandbox *sandbox, network_done *done);
/* The same with sockets that are there; taken. */
int network_take(struct sandbox *sandbox, int tcp, int udp, struct error *err);
/* Makes it as the record says, of a box that stands; `done` maybe at once. */
void network_apply(struct sandbox *sandbox, network_done *done);
void network_work(struct sandbox *sandbox); /* VERB_NETWORK */
/* Its box is no more: what is open is cut. */
void network_end(struct sandbox *sandbox);
void network_free(struct sandbox *sandbox);
uint64_t network_listener(const struct sandbox *sandbox); /* its inode; 0: not known */
uint32_t network_open_now(const struct sandbox *sandbox); /* connections */
/* Adds up what the boxes have carried since this was called last. */
void network_tally(struct engine *engine);

/* ---- saves.c ---- */
void saves_init(struct saves *saves);
void saves_add(struct saves *saves, struct save *one);
void saves_remove(struct saves *saves, struct save *one);
/* Has some written down, which each says of itself with true; true: some of this round are left for the next turn.
 * `save` adds and removes none. */
bool saves_turn(struct saves *saves, bool (*save)(struct save *one));

/* ---- shares.c ---- */

/* An event of what its box did, if that is not too much; `left_out` is filled in. */
void shares_tell(struct sandbox *sandbox, enum event_share share, const char *type,
                 const char *reason, const struct engine_event_traffic *traffic);
/* Of the logs of this tenant, or of all: "". */
struct log_room *shares_lines(struct engine *engine, const char *tenant);
/* The tenant's, in whose turns is done what its boxes keep ready. */
struct share *shares_turns(struct engine *engine, const char *tenant);
bool shares_texts_are_many(struct engine *engine, const char *tenant);
void shares_free(struct engine *engine); /* after all sandboxes */

/* ---- ports.c ---- */

/* For what is declared without a port of the host: one that is free now. */
void ports_choose(const struct engine *engine, struct record *record);

/* Its box stands (`is_new`), or was there before this engine: what is declared is listened for, and what listens
 * in it is looked at from now on. */
void ports_begin(struct sandbox *sandbox, bool is_new);
void ports_end(struct sandbox *sandbox); /* its box is no more, or is not talked to */
void ports_free(struct sandbox *sandbox);
/* Its record has changed. */
void ports_apply(struct sandbox *sandbox);
bool ports_in_use(const struct sandbox *sandbox);
void ports_close_all(struct engine *engine); /* the engine ends; dials.c */

void *engine_alloc(size_t size); /* zeroed, or the process ends */
void engine_later(struct engine *engine, void (*call)(void *arg), void *arg);
char *engine_name_key(const char *tenant, const char *name);
/* A random id of [a-z0-9] that begins with `first`; size is with the NUL. */
void engine_id(char *id, size_t size, const char *first);
/* Something came to its end: perhaps all has, and the engine is drained or lost. */
void engine_settled(struct engine *engine);
void engine_free_if_done(struct engine *engine);
void engine_close_quiet(struct engine *engine);
int engine_accepts(const struct engine *engine, struct error *err);
/* For this tenant. */
bool engine_named_is(const struct engine *engine, enum keeper_kind kind, const char *name,
                     const char *tenant);
bool engine_named_is_read_only(const struct engine *engine, enum keeper_kind kind,
                               const char *name);
void engine_named_add(struct engine *engine, const struct keeper_named *named);

/* ---- takeover.c: what the store and the keeper have, when the engine starts ---- */
int takeover_load(struct engine *engine, struct error *err);
void takeover_begin(struct engine *engine);
void takeover_box(void *arg, const struct keeper_box *box, int fd);
void takeover_disk(void *arg, const char *disk);
void takeover_free(struct engine *engine);
void takeover_mark_stop(struct engine *engine); /* for the next start: a stop was meant */

/* ---- sandbox.c: the queue and the table ---- */
struct sandbox *sandbox_new(struct engine *engine, struct record *record); /* takes it */
struct sandbox *sandbox_find(struct engine *engine, const struct engine_caller *caller,
                             const char *id, struct error *err);
/* The same for whom may do that with it. */
struct sandbox *sandbox_find_for(struct engine *engine, const struct engine_caller *caller,
                                 const char *id, enum engine_verb verb, struct error *err);
void sandbox_fall(struct sandbox *sandbox, const char *reason); /* its box is no more */
void sandbox_push(struct sandbox *sandbox, struct verb *verb);  /* takes it */
struct verb *verb_new(enum verb_kind kind, void *arg);
/* Tells whether its box is used as ever: no verb is at work, or one that leaves its commands alone. */
bool sandbox_is_steady(const struct sandbox *sandbox);
void sandbox_finish(struct sandbox *sandbox, const struct error *err); /* the active verb */
void sandbox_commit(struct sandbox *sandbox, struct record *next,
                    void (*committed)(struct sandbox *sandbox, const struct error *err));
struct record *sandbox_next_record(const struct sandbox *sandbox, enum sandbox_state state,
                                   const char *reason);
int sandbox_open_procs(struct sandbox *sandbox, struct error *err);
int sandbox_attach(struct sandbox *sandbox, struct link *link, bool anew, struct error *err);
void sandbox_detach(struct sandbox *sandbox, const char *reason);
int sandbox_directory(struct sandbox *sandbox, struct error *err); /* of its files; to be closed */
void sandbox_look(const struct sandbox *sandbox, struct sandbox_view *view);
void sandbox_touch(struct sandbox *sandbox);
void sandbox_arm(struct sandbox *sandbox);                 /* deadline and idle limit */
uint64_t sandbox_deadline_ns(const struct record *record); /* from now; UINT64_MAX: there is none */
void sandbox_unlist(struct sandbox *sandbox);              /* no longer found by id or name */
void sandbox_abandon(struct sandbox *sandbox);
void sandbox_free_now(struct sandbox *sandbox);
void sandbox_event(struct sandbox *sandbox, const char *type);
void engine_remove_files(struct engine *engine, const char *name); /* of a sandbox */

/* ---- gone.c: sandboxes that were deleted ---- */
void gone_init(struct gone_ring *ring);
void gone_free(struct gone_ring *ring);
struct gone gone_of(const char *id, uint64_t at_ms);
void gone_add(struct engine *engine, struct gone gone); /* in the order in which they went */
void gone_expire(struct engine *engine);
int gone_find(struct engine *engine, const char *id, struct record **out, struct error *err);

/* ---- outdated.c: boxes that can be ended and not be talked to ---- */
bool outdated_is(const struct engine *engine, uint32_t protocol);
void outdated_take(struct sandbox *sandbox, uint32_t protocol, int *fd); /* takes the fd */
void outdated_close(struct sandbox *sandbox);
int outdated_check(const struct sandbox *sandbox, struct error *err); /* -1 "sandbox_outdated" */

/* ---- box_turns.c ---- */
void box_turns_open(struct engine *engine);
void box_turns_close(struct engine *engine);
/* Calls `go` when it is this tenant's turn, maybe at once; "" is the pool. `is_first`: ahead of those of the tenant
 * that are not. When the engine closes, `go` is called and begins nothing. */
void box_turn_wait(struct engine *engine, enum box_turn_kind kind, struct box_turn *turn,
                   const char *tenant, bool is_first, void (*go)(void *arg), void *arg);
/* The box is made or refused, its mount is changed or not, or nobody waits for it any more. */
void box_turn_leave(struct engine *engine, struct box_turn *turn);
bool box_turns_has_line(const struct engine *engine, const char *tenant); /* it waits for some */
size_t box_turns_waiting(const struct engine *engine);

/* ---- start.c, stop.c: what the verbs do ---- */
void start_work(struct sandbox *sandbox);  /* VERB_CREATE, VERB_START, VERB_PROCS */
void start_ready(struct sandbox *sandbox); /* the box stands */
void start_give_up(struct sandbox *sandbox, const struct error *err);
void start_make(struct sandbox *sandbox); /* a box of its own */
/* Gives up while it waits for its turn; false where it does not wait. */
bool start_leave(struct sandbox *sandbox, const struct error *err);
int start_check(struct sandbox *sandbox, struct error *err);
void stop_work(struct sandbox *sandbox);   /* VERB_STOP */
void fall_work(struct sandbox *sandbox);   /* VERB_FALL */
void delete_work(struct sandbox *sandbox); /* VERB_DELETE */
void change_work(struct sandbox *sandbox); /* VERB_CHANGE */
void mount_work(struct sandbox *sandbox);  /* VERB_MOUNT */
void unmount_work(struct sandbox *sandbox);
void quiet_work(struct sandbox *sandbox); /* VERB_QUIET */
void hush_work(struct sandbox *sandbox);  /* VERB_HUSH, and what else ends a quiet box */
/* Ends the box; `ended` gets the report, or NULL where nobody knows. */
void sandbox_end_box(struct sandbox *sandbox,
                     void (*ended)(struct sandbox *sandbox, const struct keeper_report *report));
void sandbox_drop_disk(struct engine *engine, const char *disk);
/* `place`: the number of a turn that it takes over, or 0. */
void create_record(struct engine *engine, struct record *record, uint64_t place,
                   engine_created done, void *arg);

/* ---- pool.c ---- */
struct pool_box {
    struct link *link;
    uint64_t box;
    char disk[KEEPER_ID_LENGTH + 4];
    int tcp, udp; /* of its network, where the record wants one; else -1 */
};
/* Ends a box that nobody wants, and then drops its disk, if "" is not its name. */
void pool_discard(struct engine *engine, uint64_t box, const char *disk);
void pool_open(struct engine *engine);
/* A box that stands, for a record that asks for nothing special; false: there is none now. */
bool pool_take(struct engine *engine, const struct record *record, struct pool_box *out);
/* Ends all of its boxes, and those that are on their way; then calls `done`, later. False where there is
 * none, and nothing comes. */
bool pool_shed(struct engine *engine, void (*done)(void *arg), void *arg);
void pool_named(struct engine *engine, const struct keeper_named *named);
void pool_lost(struct engine *engine);
void pool_close(struct engine *engine);

size_t pool_ready(const struct engine *engine); /* boxes that stand */

/* ---- tenants.c, quotas.c ---- */
int tenants_open(struct engine *engine, struct error *err);
void tenants_close(struct engine *engine);
int caller_may(const struct engine_caller *caller, unsigned scope, struct error *err);
/* Whether a key of this id is there that may do this for the tenant; one of the unix socket always is. */
bool tenants_key_lives(const struct engine *engine, const char *key_id, const char *tenant);
bool tenants_caller_lives(const struct engine *engine, struct engine_caller *caller);
int tenant_name_check(const char *tenant, struct error *err);
void quotas_load(struct engine *engine, const struct store_value *value);
struct quotas *quotas_new(void);
void quotas_free(struct quotas *quotas);
struct quotas *engine_quotas(struct engine *engine);
/* Whether `record` may be made (`is_new`) or started beside what the tenant has. */
int quota_check(struct engine *engine, const struct record *record, bool is_new, struct error *err);
/* Whether the tenant may have so many more ports of this host. */
int quota_check_ports(struct engine *engine, const char *tenant, uint64_t more, struct error *err);
/* The same of a worker of kernels. */
int quota_check_worker(struct engine *engine, const char *tenant, uint64_t memory_bytes,
                       uint64_t cpu_milli, struct error *err);
/* Of processors, of bytes of disk; 0: there is no bound. */
uint64_t quota_cpu(struct engine *engine, const char *tenant);
uint64_t quota_disk(struct engine *engine, const char *tenant);

/* ---- tokens.c ---- */
int tokens_open(struct engine *engine, struct error *err);
void tokens_close(struct engine *engine);
int token_check(struct engine *engine, const char *text, struct engine_caller *out,
                struct error *err);
/* ---- kernels.c ---- */
void kernels_open(struct engine *engine);
void kernels_lost(struct engine *engine, const char *why); /* all workers are gone, or are to go */
void kernels_drain(struct engine *engine);
void kernels_close(struct engine *engine); /* and the room of the network, behind what they fetch */
bool kernels_are_used(const struct engine *engine);
/* What the tenant's worker may take; 0: it has none. */
uint64_t kernels_memory_of(const struct engine *engine, const char *tenant);
uint64_t kernels_cpu_of(const struct engine *engine, const char *tenant);

/* ---- secret.c ---- */

/* Key of what is called `of`, kept in this file of the directory. */
int secret_open(int dir, const char *name, const char *of, uint8_t key[SHA256_BYTES],
                struct error *err);

/* ---- files.c ---- */
void files_end_all(struct engine *engine); /* who has one has it still, and nothing comes of it */

/* ---- capacity.c ---- */
int capacity_check(struct engine *engine, struct error *err);
/* Keeps room in the store while there is some on the disk, for the records of stops and deletes alone: else nothing
 * could be deleted on a full disk any more, and so no room be made. Stops leave half of it to deletes. */
void capacity_keep_room(struct engine *engine);
void capacity_begin(struct engine *engine); /* the same, and says whether the disk is nearly full */
bool capacity_disk_is_low(struct engine *engine);
void capacity_look(struct engine *engine, struct engine_capacity *capacity);

/* ---- disk_room.c ---- */
void disk_room_open(struct engine *engine);
void disk_room_close(struct engine *engine);
void disk_room_wake(struct sandbox *sandbox); /* its box may write from now on */
/* Of a disk that was found full: says so where that is the host's. */
void disk_room_explain(const struct engine *engine, const char *sandbox, struct error *err);
/* Whether a new sandbox's disk may be promised beside what is promised already. */
int disk_room_check(struct engine *engine, const struct record *record, struct error *err);
uint64_t disk_room_promised(const struct engine *engine); /* to all persistent disks */
uint64_t disk_room_most(struct engine *engine); /* that may be; UINT64_MAX: nobody knows */

/* ---- events.c ---- */
int events_open(struct engine *engine, struct error *err);
void events_close(struct engine *engine);
void events_flush(struct engine *engine);
void events_end_key(struct engine *engine, const char *key_id); /* who listens by it is cut off */
bool events_has_listener(const struct engine *engine);
bool events_pending(const struct engine *engine);
uint64_t events_told(const struct engine *engine);
void events_end(struct engine *engine); /* all is told; before the store is closed */
void events_add_key(struct engine *engine, const char *type, const char *tenant,
                    const char *sandbox, const char *key_id);
void events_add(struct engine *engine, const char *type, const char *tenant, const char *sandbox,
                const char *process, const char *reason);
void events_add_kernel(struct engine *engine, const char *type, const char *tenant,
                       const char *kernel, const char *reason);
void events_add_traffic(struct engine *engine, const char *type, const char *tenant,
                        const char *sandbox, const char *reason,
                        const struct engine_event_traffic *traffic);
