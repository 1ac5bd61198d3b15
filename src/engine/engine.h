/* The engine: the one model that every front shares. No word of HTTP, of JSON that clients send, or of
 * any vendor.
 *
 * All state of a sandbox that matters is in memory here and in the store; what a caller is told was
 * committed before. Verbs that take time answer by `done`, once, maybe before they return. A verb on
 * something that is going on already (a stop during a stop, a destroy during a start) waits for it or
 * overtakes it, as the table in sandbox.c says; it never fails for having come second. */
#pragma once

#include "base/err.h"
#include "base/histogram.h"
#include "engine/procs.h"
#include "keeper/request.h"
#include "net/net.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct engine;
struct sandbox; /* borrowed for the length of a call; keep the id */

#define ENGINE_NAME_MAX 256
#define ENGINE_LABELS_MAX 64
#define ENGINE_ENV_MAX 256

/* ---- who asks ---- */

enum engine_scope {
    ENGINE_READ = 1,     /* look at sandboxes, processes, output */
    ENGINE_WRITE = 2,    /* make, change, run, end them */
    ENGINE_KEYS = 4,     /* make and end keys of the own tenant */
    ENGINE_OPERATOR = 8, /* all tenants, quotas, roots; metrics */
    ENGINE_ALL = 15,
};

/* What may be done with one sandbox: a token names some of these, a scope stands for all of its kind. */
enum engine_verb {
    ENGINE_LOOK = 1, /* the sandbox, its processes, their output */
    ENGINE_EXEC = 2, /* start, write to, signal, kill processes; terminals */
    ENGINE_FILES_READ = 4,
    ENGINE_FILES_WRITE = 8,
    ENGINE_PORTS = 16, /* reach what listens in it */
    ENGINE_LIFE = 32,  /* start and stop it */
};

#define ENGINE_TOKEN_PATH_MAX 1024

struct engine_caller {
    char tenant[64];
    char key_id[24]; /* "socket" for a peer of the unix socket; "token:ID" of a token */
    unsigned scopes;
    /* Of a token: only this sandbox ("" of a key: all of the tenant), these verbs, and of its files what
     * lies below this absolute path ("": all), which the tools hold to (--beneath), links or not. */
    char sandbox[24];
    unsigned verbs;
    char path[ENGINE_TOKEN_PATH_MAX];
    uint16_t port; /* 0: all */
    /* Of a signed URL: this method of the files, at exactly this path; "": it is none. */
    char method[8];
    char signed_path[ENGINE_TOKEN_PATH_MAX];
    /* What ends it, for engine_caller_lives(); of a key only the first. */
    uint64_t keys_ended; /* how many had ended when it was looked at last */
    char maker[24];      /* key */
    uint64_t generation, expires_ms;
};

/* 0, or -1 "forbidden": whether he may do that with this sandbox. Every verb below asks it. */
int engine_caller_may(const struct engine_caller *caller, const char *sandbox_id,
                      enum engine_verb verb, struct error *err);

/* The same of a sandbox by its id or as "name:NAME", which has to be there. */
int engine_may(struct engine *engine, const struct engine_caller *caller, const char *id,
               enum engine_verb verb, struct error *err);
/* And says its id. */
#define ENGINE_ID_SIZE 24
int engine_id_of(struct engine *engine, const struct engine_caller *caller, const char *id,
                 enum engine_verb verb, char found[ENGINE_ID_SIZE], struct error *err);

/* The caller behind a secret; "bad_key" otherwise. Takes the same time for every wrong one. */
int engine_key_check(struct engine *engine, const char *secret, struct engine_caller *out,
                     struct error *err);

/* Whether the key or token he came by is still worth something. Cheap: for whoever stays, each second. Not
 * asked of a token's sandbox that is gone: whatever stays in it ends with it. */
bool engine_caller_lives(struct engine *engine, struct engine_caller *caller);

/* ---- tokens: what a key lends of itself, for one sandbox ---- */

#define ENGINE_TOKEN_USUAL_MS (3600ULL * 1000)
#define ENGINE_TOKEN_MOST_MS (30ULL * 24 * 3600 * 1000)
#define ENGINE_TOKEN_TEXT_MAX 2048

struct engine_token_spec {
    unsigned verbs;     /* enum engine_verb */
    const char *path;   /* absolute; NULL: all */
    uint16_t port;      /* 0: all */
    const char *method; /* "GET" or "PUT": a signed URL of the file `path`; NULL */
    uint64_t lives_ms;  /* 0: ENGINE_TOKEN_USUAL_MS */
};
struct engine_token {
    char id[24]; /* as key_id shows it: "token:..." */
    char sandbox[24];
    char text[ENGINE_TOKEN_TEXT_MAX]; /* secret */
    uint64_t expires_ms;
};
/* Nobody lends what he has not, and no token makes tokens: "forbidden". engine_key_check() takes one. It
 * ends with its time, its sandbox, the key that made it, and engine_tokens_end(). */
bool engine_is_token(const char *secret); /* it is meant to be one, and no key */
bool engine_is_secret(const char *text);  /* it begins as a key or a token does */
int engine_token_make(struct engine *engine, const struct engine_caller *caller, const char *id,
                      const struct engine_token_spec *spec, struct engine_token *out,
                      struct error *err);

struct engine_quota { /* of a tenant; 0: none, of ports as many as the options say */
    uint64_t sandboxes, cpu_milli, memory_bytes, disk_bytes, ports, pids;
    uint32_t requests_per_second;
};

struct engine_key_view {
    const char *id, *tenant, *label;
    unsigned scopes;
    uint64_t created_ms;
};
typedef void (*engine_key_done)(void *arg, const struct engine_key_view *key, const char *secret,
                                const struct error *err);
void engine_key_make(struct engine *engine, const struct engine_caller *caller, const char *tenant,
                     const char *label, unsigned scopes, engine_key_done done, void *arg);
void engine_key_each(struct engine *engine, const struct engine_caller *caller,
                     bool (*each)(void *arg, const struct engine_key_view *key), void *arg);
typedef void (*engine_done)(void *arg, const struct error *err);
void engine_key_end(struct engine *engine, const struct engine_caller *caller, const char *id,
                    engine_done done, void *arg);
void engine_quota_set(struct engine *engine, const struct engine_caller *caller, const char *tenant,
                      const struct engine_quota *quota, engine_done done, void *arg);
int engine_quota_get(struct engine *engine, const struct engine_caller *caller, const char *tenant,
                     struct engine_quota *quota, struct engine_quota *used, struct error *err);
/* Counts one request against the tenant's rate: 0, or -1 "too_many_requests" and when to come back. */
int engine_rate(struct engine *engine, const struct engine_caller *caller, unsigned *retry_ms,
                struct error *err);

/* ---- sandboxes ---- */

enum sandbox_state {
    SANDBOX_CREATING,
    SANDBOX_RUNNING,
    SANDBOX_PAUSED, /* this and archived come with later rooms; no verb leads there yet */
    SANDBOX_STOPPED,
    SANDBOX_ARCHIVED,
    SANDBOX_ERROR,
    SANDBOX_DELETED,
};
const char *sandbox_state_name(enum sandbox_state state);

enum sandbox_then { SANDBOX_THEN_KILL, SANDBOX_THEN_STOP }; /* kill: it is deleted */

/* Whom it may reach, as a client says it: see policy/policy.h. Without `mode`, `allow` and `deny` the policy is
 * the engine's default, or as it is; `allow` alone is the mode "allow". A limit that is UINT64_MAX is as it
 * is, one that is 0 as usual. */
struct sandbox_network {
    const char *mode;
    const char *const *allow, *const *deny; /* NULL-terminated; or NULL */
    uint64_t connections, lookups_per_second, bytes_per_second, bytes;
};

#define ENGINE_PORTS_MAX 32 /* that are declared, of one sandbox */
struct sandbox_port_wish {
    uint16_t port;
    bool is_public;
};

struct sandbox_spec {
    const char *name;          /* NULL: none */
    const char *const *labels; /* "key=value", NULL-terminated; NULL: none. So are env */
    const char *const *env;
    const char *root; /* registered; NULL: "host" */
    enum box_privileges privileges;
    enum keeper_disk disk_kind;
    const char *cwd, *user, *hostname;
    struct box_limits limits; /* 0 in any: the configured default */
    const struct keeper_mount *mounts;
    size_t mounts_count;
    /* A directory may be mounted to be written while it runs, so no set-id file can be made in it. */
    bool mountable;
    const struct sandbox_port_wish *ports; /* that are declared from the begin */
    size_t ports_count;
    struct sandbox_network network;
    uint64_t deadline_ms; /* wall clock; 0: none */
    uint64_t idle_ms;     /* no command runs and no call came for so long; 0: none */
    enum sandbox_then then;
};

struct sandbox_view {
    const char *id, *name, *tenant;
    const char *const *labels;
    const char *const *env;
    const char *root, *cwd, *user, *hostname;
    enum box_privileges privileges;
    enum keeper_disk disk_kind;
    struct box_limits limits;
    const struct keeper_mount *mounts;
    size_t mounts_count;
    /* A bit for each that is read-only: it is asked for so, or registered so. */
    uint32_t mounts_read_only;
    /* A directory may be mounted to be written while it runs, so no set-id file can be made in it. */
    bool mountable;
    const struct policy *policy;
    struct net_limits network; /* 0: as usual */
    struct sandbox_port_wish ports[ENGINE_PORTS_MAX];
    size_t ports_count;
    uint64_t deadline_ms, idle_ms;
    enum sandbox_then then;
    enum sandbox_state state;
    const char
        *reason; /* a code: created, started, stopped, deadline, idle, keeper_lost, oom, ... */
    struct error error; /* SANDBOX_ERROR */
    uint64_t created_ms, updated_ms, revision;
    size_t processes_running;
    uint64_t begun_ns, boxed_ns; /* monotonic: when its box was wanted last, and was there; 0 */
};

/* Codes: name_conflict, unknown_root, unknown_mount, bad_policy, quota, capacity, bad_request, sandbox_failed.
 * With a name it is get-or-create: `created` says which. */
typedef void (*engine_created)(void *arg, const struct sandbox_view *view, bool created,
                               const struct error *err);
void engine_create(struct engine *engine, const struct engine_caller *caller,
                   const struct sandbox_spec *spec, engine_created done, void *arg);
/* Nobody waits for the create with this `arg` any more. While it waits for its turn, it is given up, and `done` is
 * called later; else this does nothing. */
void engine_create_leave(struct engine *engine, const void *arg);

/* By id, or by name as "name:NAME". 0, or -1: "sandbox_not_found" (never was, or another tenant's, which
 * reads the same) or "sandbox_gone" (it was deleted; known for 24 h). */
int engine_look(struct engine *engine, const struct engine_caller *caller, const char *id,
                struct sandbox_view *view, struct error *err);

/* In order of creation, after the cursor (an opaque text of an earlier answer; NULL: from the start), at
 * most `limit`; `next` gets the cursor, empty at the end. */
struct sandbox_filter {
    const char *state, *name_prefix;
    const char *const *labels;
    bool all_tenants;
};
int engine_list(struct engine *engine, const struct engine_caller *caller,
                const struct sandbox_filter *filter, const char *cursor, size_t limit,
                bool (*each)(void *arg, const struct sandbox_view *view), void *arg, char next[64],
                struct error *err);

typedef void (*engine_sandbox_done)(void *arg, const struct sandbox_view *view,
                                    const struct error *err);
void engine_start_sandbox(struct engine *engine, const struct engine_caller *caller, const char *id,
                          engine_sandbox_done done, void *arg);
void engine_stop_sandbox(struct engine *engine, const struct engine_caller *caller, const char *id,
                         engine_sandbox_done done, void *arg);
void engine_delete_sandbox(struct engine *engine, const struct engine_caller *caller,
                           const char *id, engine_done done, void *arg);

/* All tokens of the sandbox that there are. */
void engine_tokens_end(struct engine *engine, const struct engine_caller *caller, const char *id,
                       engine_sandbox_done done, void *arg);

struct sandbox_change { /* pointers NULL, numbers UINT64_MAX: as it is */
    const char *const *labels;
    const struct sandbox_network *network; /* in force when it is answered */
    uint64_t deadline_ms, idle_ms;
    int then;             /* -1 */
    uint64_t if_revision; /* 0: whatever; else "revision_conflict" */
};
void engine_change_sandbox(struct engine *engine, const struct engine_caller *caller,
                           const char *id, const struct sandbox_change *change,
                           engine_sandbox_done done, void *arg);

/* Mounts a registered directory in a sandbox, also while it runs, and keeps it for its next box; what is so already is
 * answered. Codes: unknown_mount; mount_conflict (something is mounted there, or below it); mount_refused (its programs
 * are in the way, this server may not, or it would be written and the sandbox is not `mountable`); bad_request. */
void engine_mount(struct engine *engine, const struct engine_caller *caller, const char *id,
                  const struct keeper_mount *mount, engine_sandbox_done done, void *arg);
/* Unmounts what is there, of the start or since. Codes: mount_not_found; mount_busy, while anything in the sandbox uses
 * it; mount_refused. */
void engine_unmount(struct engine *engine, const struct engine_caller *caller, const char *id,
                    const char *target, engine_sandbox_done done, void *arg);

/* Its processes, for a verb of procs.h, and a touch of its idle clock. `must_run`: "sandbox_stopped"
 * unless it runs, or "sandbox_outdated" where we do not speak to its box any more; with `start` it is started first. `done` gets NULL and the error else. */
typedef void (*engine_procs_done)(void *arg, struct procs *procs, const struct error *err);
void engine_procs(struct engine *engine, const struct engine_caller *caller, const char *id,
                  bool must_run, bool start, engine_procs_done done, void *arg);

/* What it uses now (usage.c). Of one that has no box, or on a host that does not count, nothing is
 * known but what is written on its disk. */
struct sandbox_usage {
    enum sandbox_state state;
    bool is_known;
    uint64_t cpu_ns, memory_bytes, peak_memory_bytes;
    uint64_t disk_bytes; /* UINT64_MAX: not known */
};
typedef void (*engine_used)(void *arg, const struct sandbox_usage *usage, const struct error *err);
void engine_usage(struct engine *engine, const struct engine_caller *caller, const char *id,
                  engine_used done, void *arg);

/* What its network is, and what went through it (network.c). The log is in memory: of each sandbox at most
 * ENGINE_NETWORK_LINES, and fewer where there are very many; see network_log.h. */
#define ENGINE_NETWORK_LINES 256
struct sandbox_traffic {
    const struct policy *policy;
    struct net_limits limits;
    bool is_open;             /* its box is there, and has a network */
    struct net_counts counts; /* since this engine began */
    uint64_t bytes_used;      /* in its life, both ways together */
    size_t lines;             /* that the log has */
    uint64_t lines_left_out;  /* older ones that it has no more */
};
int engine_traffic(struct engine *engine, const struct engine_caller *caller, const char *id,
                   struct sandbox_traffic *traffic, struct error *err);
/* The newest `limit` lines of the log, the oldest of them first. The same refusal is in it once: the latest, and how
 * many `times` that were. */
int engine_traffic_each(struct engine *engine, const struct engine_caller *caller, const char *id,
                        size_t limit,
                        bool (*each)(void *arg, const struct net_record *line, uint64_t times),
                        void *arg, struct error *err);

/* ---- ports: what listens in a sandbox (ports.c) ---- */

struct sandbox_port {
    uint16_t port;
    bool is_declared;
    bool is_public;     /* its page at a name of its own needs no key */
    bool is_listening;  /* something in the sandbox accepts on it */
    uint16_t host_port; /* of 127.0.0.1 of this host, where it can be reached; 0: it cannot now */
};

/* A connection to the sandbox's own loopback, which it has to run for; `socket` is the callee's. Codes:
 * sandbox_stopped, port_closed (nothing listens), too_many_connections, too_many_requests, port_failed. While it
 * lasts the sandbox is not idle, unless the caller is ENGINE_PUBLIC: engine_port_left() says that it has ended. */
typedef void (*engine_port_dialled)(void *arg, int socket, const struct error *err);
void engine_port_dial(struct engine *engine, const struct engine_caller *caller, const char *id,
                      uint16_t port, engine_port_dialled done, void *arg);
void engine_port_left(struct engine *engine, const char *id, bool is_public);
/* The box that is dialled now, which is another one after each start; 0: none. Whoever holds a connection to one
 * that is no more keeps what is left of it from being freed. */
uint64_t engine_port_box(struct engine *engine, const char *id);

/* Declares it, and listens for it on the loopback of this host, as long as the sandbox runs. `is_public` -1: as
 * it is. NULL in `done`: with the error. */
typedef void (*engine_port_done)(void *arg, const struct sandbox_port *port,
                                 const struct error *err);
void engine_port_open(struct engine *engine, const struct engine_caller *caller, const char *id,
                      uint16_t port, int is_public, engine_port_done done, void *arg);
void engine_port_close(struct engine *engine, const struct engine_caller *caller, const char *id,
                       uint16_t port, engine_done done, void *arg);
/* All that are declared or that something listens on, in order; looked at now. */
typedef void (*engine_ports_listed)(void *arg, const struct sandbox_port *ports, size_t count,
                                    const struct error *err);
void engine_ports_list(struct engine *engine, const struct engine_caller *caller, const char *id,
                       engine_ports_listed done, void *arg);
/* Of a sandbox of whatever tenant: whether anybody may see this port at its name; fills in a caller who may do
 * that and nothing else. */
#define ENGINE_PUBLIC "public" /* his key's id */
bool engine_port_is_public(struct engine *engine, const char *id, uint16_t port,
                           struct engine_caller *out);

/* ---- the host ---- */

/* What is left of it, where the engine's data lie; UINT64_MAX: nobody knows. */
/* "capacity" when the engine itself uses more than half of what it can get (RLIMIT_DATA): nothing new is begun then,
 * so that what is under way has the rest. */
int engine_memory_check(struct engine *engine, struct error *err);
uint64_t engine_memory_limit(void);
/* Of that, what may be kept of one kind for all tenants together: input, or texts of processes that have ended. */
uint64_t engine_memory_kept(void);
/* The figures behind "capacity". They say what other tenants use: for operators and the log alone. */
#define ENGINE_FIGURES_MAX 400
void engine_capacity_figures(struct engine *engine, char text[ENGINE_FIGURES_MAX]);

struct engine_capacity {
    uint64_t memory_available, disk_bytes, disk_available;
};
int engine_capacity(struct engine *engine, const struct engine_caller *caller,
                    struct engine_capacity *capacity, struct error *err);

const struct keeper_host *engine_host(const struct engine *engine);
/* Those that the caller's tenant may have; an operator is told all. */
void engine_named_each(struct engine *engine, const struct engine_caller *caller,
                       enum keeper_kind kind,
                       bool (*each)(void *arg, const char *name, bool is_read_only), void *arg);
bool engine_is_ready(const struct engine *engine, struct error *err); /* or what it waits for */

/* For how long nobody has asked for anything, while nothing runs; 0: something does, or somebody
 * listens. */
uint64_t engine_idle_ms(const struct engine *engine);

/* ---- numbers, for an operator's monitoring ---- */

struct engine_counts {
    size_t sandboxes[SANDBOX_DELETED + 1]; /* by state */
    size_t processes;                      /* that run */
    size_t pool_ready;
    size_t boxes_waiting; /* for their turn to be made */
    uint64_t pool_hits, pool_misses, events;
    struct net_counts network; /* of all sandboxes, since this engine began */
    struct histogram commits;  /* of the store */
};
void engine_count(struct engine *engine, struct engine_counts *out);

/* What each tenant has; those beyond `room` - 1 are one with the name "". How many there are. */
struct engine_use {
    char tenant[64];
    size_t sandboxes, running, processes;
    size_t waiting;                    /* for their turn to get a box */
    uint64_t memory_bytes, disk_bytes; /* limits: of running ones, of persistent disks */
    uint64_t memory_used_bytes;        /* of those that run, as they were asked last */
};
size_t engine_uses(struct engine *engine, struct engine_use *uses, size_t room);

/* Processor time and traffic of each tenant's boxes since this engine began: never less than before, and some seconds
 * old. Those that came first are apart; who is behind them is one with the name "", the last. To look has the
 * boxes asked again, for the next look. */
#define ENGINE_SPENT_TENANTS 100
struct engine_spent {
    char tenant[64];
    uint64_t cpu_ns;
    struct net_counts network; /* but for how many connections there are now */
};
size_t engine_spent(struct engine *engine, const struct engine_spent **tenants);

/* ---- events: what happened, in order ---- */

struct engine_event_traffic {          /* of a connection or a lookup; see struct net_record */
    const char *name, *address, *rule; /* or NULL */
    uint16_t port;                     /* 0: a lookup */
    uint64_t lasted_ms, bytes_out, bytes_in;
    uint64_t
        left_out; /* so many of its kind before this one were not told, for they came too fast */
};
struct engine_event {
    uint64_t sequence;
    uint64_t time_ms;
    const char *type; /* sandbox.created, sandbox.started, sandbox.stopped, ... process.exited */
    const char *tenant, *sandbox, *process, *reason; /* or NULL */
    const char *kernel;                              /* of kernel.*; or NULL */
    const char *key;                                 /* the id of a key, or of a token; or NULL */
    const struct engine_event_traffic *traffic;      /* of network.* and port.*; or NULL */
};
/* From `sequence` on (0: only what comes); "gap" in *missed if some are gone. `event` is false where it
 * took this one not, and can take no more: it is called no more, and who goes on listens anew. It is
 * called with NULL, and then no more, when the caller's key has ended. NULL: he may not read. */
struct engine_listener;
struct engine_listener *engine_listen(struct engine *engine, const struct engine_caller *caller,
                                      uint64_t sequence, bool *missed,
                                      bool (*event)(void *arg, const struct engine_event *event),
                                      void *arg);
/* Only of what boxes did (`traffic`) some from its `sequence` on are gone. */
bool engine_listener_missed_traffic(const struct engine_listener *listener);
void engine_unlisten(struct engine_listener *listener);

/* ---- its life ---- */

struct engine_options {
    uv_loop_t *loop;
    int keeper, keeper_requests;                         /* socket and pipe; taken */
    int directory;                                       /* the engine's own; taken */
    struct box_limits defaults, most;                    /* of a sandbox that names none; of any */
    uint64_t headroom_memory_bytes, headroom_disk_bytes; /* below: 503 "capacity" */
    uint64_t
        disk_overcommit; /* so many times what there is may be promised to disks; 0: any number */
    const struct policy *network; /* of a sandbox that names none; NULL: none. Copied */
    const char *resolvers, *nat64, *private, *proxy; /* see net/net.h; or NULL */
    bool proxy_names;
    size_t pool;      /* ready boxes of each root that is used; 0: none */
    size_t sandboxes; /* at most, in all */
    uint64_t ports;   /* of this host, for a tenant whose quota does not say; 0: any number */
    uint64_t kernels_contexts, kernels_memory; /* of each tenant; 0: as kernels.h has it */
    uint64_t kernels_idle_ms;                  /* the same */
    uint64_t output_keep_ms;                   /* 24 h */
    unsigned beat_ms; /* how often the keeper is told that this loop turns; 0: never */
    void (*tls)(void *arg, int fd); /* the keeper's certificate is another now; taken. NULL: none */
    void (*lost)(void *arg);        /* the keeper is gone: all boxes ended, records say so; exit */
    void *arg;
};
/* `done` when the store was read, the keeper's boxes are taken over and new ones may come. */
int engine_open(const struct engine_options *options, struct engine **out,
                void (*done)(void *arg, const struct error *err), void *arg, struct error *err);

/* No more new work; `done` when all that was acknowledged is on the disk. Boxes live on with the
 * keeper. */
void engine_drain(struct engine *engine, void (*done)(void *arg), void *arg);

/* The server ends, and all boxes with it: no more new work, and all that runs is stopped, when what is asked
 * of it now is done, with the reason "server_stopped". That a stop was meant is on the disk before: what is
 * not stopped when this process ends gets the same reason at the next start. `done`, if it is not NULL,
 * when all are stopped, perhaps before this returns. Once. */
void engine_stop_mark(
    struct engine *engine); /* that this will come: whoever is killed before was to end */
void engine_stop_all(struct engine *engine, void (*done)(void *arg), void *arg);
void engine_close(struct engine *engine);
