/* What the engine may ask of the keeper: a closed list of messages of a fixed size.
 *
 * Requests come through a pipe, one behind the other: no fd can come with them, and the keeper never has
 * to close one of the engine's, which can take as long as the engine likes. Answers go over a
 * SOCK_SEQPACKET, one packet each, with fds, and nothing comes back over that. No message carries a path
 * of the host, a uid or a pid: only names that the operator registered and handles that the keeper
 * gave out. Texts are NUL-terminated within their array and hold nothing but the characters named
 * here. The keeper checks every field and the state; the table of which request is legal when is in
 * requests.c. Both sides are of one build, which KEEPER_BUILD (build.py) tells apart, so this may change as
 * it likes. */
#pragma once

#include "base/err.h"
#include "box/box.h"

#include <signal.h>
#include <stdint.h>

/* A root that is always there and has nothing in it, for the engine's own helpers. It is no name that anybody
 * could register. */
#define KEEPER_ROOT_EMPTY ".empty"

#define KEEPER_NAME_MAX 64    /* of roots and mounts: [a-z0-9._-], not starting with "." or "-" */
#define KEEPER_ID_LENGTH 20   /* of sandboxes and disks: [a-z0-9] */
#define KEEPER_TARGET_MAX 256 /* a path in a box: absolute, without ".." */
#define KEEPER_MOUNTS_MAX 16
#define KEEPER_BUILD_MAX 64
#define KEEPER_TENANTS_SIZE 1024 /* of a list of tenants: see base/tenancy.h */

enum keeper_type {
    KEEPER_HELLO =
        1,       /* first, once: KEEPER_HOST, a KEEPER_NAMED each, a KEEPER_BOX each, KEEPER_DONE */
    KEEPER_MAKE, /* a box: KEEPER_MADE with its control socket, or KEEPER_REFUSED */
    KEEPER_CLAIM,     /* says whose a box of the pool is now: KEEPER_DONE */
    KEEPER_USAGE,     /* of a box: KEEPER_USED */
    KEEPER_END,       /* of a box, and wait: KEEPER_ENDED, when all of it is gone */
    KEEPER_DROP_DISK, /* of a sandbox that is no more: KEEPER_DONE */
    KEEPER_WEIGH_DISK, /* whether a box has it or not: KEEPER_USED, of which only `disk_bytes` is known */
    KEEPER_NETWORK, /* of a box: KEEPER_SOCKET with one of its two sockets, opened by the first that asks,
                     * and kept for the next engine; or with a new one, which is the engine's alone; or,
                     * shut: KEEPER_DONE */
    KEEPER_BEAT, /* its loop turns; a head only, with any id, and no answer */
    KEEPER_ATTACH, /* mounts what is registered into a box that runs: KEEPER_DONE, also where it has that already */
    KEEPER_DETACH, /* unmounts what it has there, from the start or since: KEEPER_DONE */
    KEEPER_DISK_ROOM, /* a head only: KEEPER_DISKS, of which only `free_bytes` and `left_bytes` are known */
    KEEPER_HOLD_DISK, /* of a box with a persistent one, which may grow by so much: KEEPER_DISKS */
    KEEPER_CUT_DISK, /* of a box that is ended next: nothing is written to it any more: KEEPER_DONE */

    KEEPER_HOST = 64,
    KEEPER_NAMED, /* a registered root or mount; also unasked (id 0), when one is added or removed */
    KEEPER_BOX,   /* a box that lives, with its control socket */
    KEEPER_DONE,
    KEEPER_REFUSED,
    KEEPER_MADE,
    KEEPER_USED,
    KEEPER_ENDED,
    KEEPER_DISK,   /* a persistent disk that is there */
    KEEPER_SOCKET, /* a head; its fd is a socket of a box's network */
    KEEPER_TLS,    /* a head, unasked; its fd is another certificate and key than COVE_TLS_FD was */
    KEEPER_DISKS,
};

enum keeper_kind { KEEPER_ROOT = 1, KEEPER_MOUNT };
enum keeper_disk { KEEPER_EPHEMERAL = 1, KEEPER_PERSISTENT };
enum keeper_network {
    KEEPER_NETWORK_TCP = 1,
    KEEPER_NETWORK_UDP,
    KEEPER_NETWORK_SHUT,
    KEEPER_NETWORK_DIAL, /* a new TCP socket in there, of both families; its network need not be open */
    KEEPER_NETWORK_DIAG, /* a new netlink socket in there, of NETLINK_SOCK_DIAG */
};

struct keeper_head {
    uint32_t type;
    uint32_t id; /* chosen by the engine, repeated in each answer; 0 is none */
};

struct keeper_hello {
    struct keeper_head head;
    char build[KEEPER_BUILD_MAX]; /* KEEPER_BUILD, of keeper/build.h */
};

struct keeper_mount {
    char name[KEEPER_NAME_MAX]; /* registered */
    char target[KEEPER_TARGET_MAX];
    uint32_t read_only; /* a mount that was registered read-only is so anyway */
    uint32_t pad;
};

struct keeper_make {
    struct keeper_head head;
    char root[KEEPER_NAME_MAX]; /* registered; "host" is the view of the host; KEEPER_ROOT_EMPTY */
    uint32_t privileges;        /* enum box_privileges */
    uint32_t disk_kind;         /* enum keeper_disk */
    char disk[KEEPER_ID_LENGTH + 4];  /* of a persistent one */
    char owner[KEEPER_ID_LENGTH + 4]; /* sandbox; empty: none yet, see KEEPER_CLAIM */
    char tenant[KEEPER_NAME_MAX]; /* of the sandbox, which may have what is its; empty: none yet */
    char hostname[65];
    char pad[3];
    uint32_t disk_new; /* made if it is not there; else one that is not there is "disk_lost" */
    struct box_limits limits;
    uint32_t mounts_count;
    /* Mounts that are written to may come with KEEPER_ATTACH: no set-id file can be made in it. */
    uint32_t takes_mounts;
    struct keeper_mount mounts[KEEPER_MOUNTS_MAX];
};

struct keeper_claim {
    struct keeper_head head;
    uint64_t box;
    char owner[KEEPER_ID_LENGTH + 4];
    char tenant[KEEPER_NAME_MAX]; /* which may have the root of the box */
};

/* KEEPER_USAGE, KEEPER_END. */
struct keeper_of_box {
    struct keeper_head head;
    uint64_t box;
};

/* KEEPER_NETWORK; see box/network.h. */
struct keeper_network_of {
    struct keeper_head head;
    uint64_t box;
    uint32_t what; /* enum keeper_network */
    uint32_t pad;
};

struct keeper_attach {
    struct keeper_head head;
    uint64_t box;
    char tenant[KEEPER_NAME_MAX]; /* of its sandbox, which may have what is its */
    struct keeper_mount mount;
};

struct keeper_detach {
    struct keeper_head head;
    uint64_t box;
    char target[KEEPER_TARGET_MAX];
};

/* KEEPER_DROP_DISK, KEEPER_WEIGH_DISK. */
struct keeper_of_disk {
    struct keeper_head head;
    char disk[KEEPER_ID_LENGTH + 4];
};

struct keeper_hold {
    struct keeper_head head;
    uint64_t box;
    uint64_t most; /* UINT64_MAX: as its limit says */
};

union keeper_request {
    struct keeper_head head;
    struct keeper_hello hello;
    struct keeper_make make;
    struct keeper_claim claim;
    struct keeper_of_box of_box;
    struct keeper_of_disk of_disk;
    struct keeper_network_of network;
    struct keeper_attach attach;
    struct keeper_detach detach;
    struct keeper_hold hold;
};

/* ---- answers ---- */

struct keeper_host {
    struct keeper_head head;
    uint32_t cpus;
    uint32_t is_root;
    uint32_t protocol; /* of the init of boxes that are made from now on: see box/proto.h */
    uint32_t pad;
    uint64_t memory_bytes;
    char level[16], limits[8], ids[8], disk[8]; /* how strong boxes are here: see box.h */
    char tenants[KEEPER_TENANTS_SIZE];          /* that may have the root "host" */
    char warnings[4][480];                      /* empty: none */
};

struct keeper_named {
    struct keeper_head head;
    uint32_t kind;     /* enum keeper_kind */
    uint32_t is_there; /* 0: it was removed, or what it named is not what it was */
    char name[KEEPER_NAME_MAX];
    char tenants[KEEPER_TENANTS_SIZE]; /* to all others it is not there */
    uint32_t read_only;                /* whatever a sandbox asks for */
};

struct keeper_box {
    struct keeper_head head;
    uint64_t box;
    char owner[KEEPER_ID_LENGTH + 4];
    char disk[KEEPER_ID_LENGTH + 4];
    uint32_t protocol; /* that its init speaks */
    uint32_t pad;
};

/* KEEPER_MADE; its fd is the control socket. READY or what went wrong in there comes over that. */
struct keeper_made {
    struct keeper_head head;
    uint64_t box;
};

struct keeper_refused {
    struct keeper_head head;
    struct error error;
};

/* KEEPER_USED, KEEPER_ENDED. */
struct keeper_report {
    struct keeper_head head;
    uint64_t box;
    uint32_t usage_known;
    uint32_t oom_kills, pids_exceeded, disk_exceeded, locks_exceeded, sockets_exceeded;
    uint32_t files_exceeded, pad;
    uint64_t cpu_ns, memory_bytes, peak_memory_bytes;
    uint64_t disk_bytes; /* that it wrote; UINT64_MAX: nobody knows */
};

/* Of the file system that disks lie on, the bytes that are free and those that are left when all is written; of a disk, the
 * bytes that its own file system has given to files, and those of them that the host has for it. UINT64_MAX: nobody knows. */
struct keeper_disks {
    struct keeper_head head;
    uint64_t free_bytes, left_bytes, used_bytes, written_bytes;
    uint32_t is_held; /* it can be held here */
    uint32_t pad;
};

struct keeper_disk_there {
    struct keeper_head head;
    char disk[KEEPER_ID_LENGTH + 4];
};

union keeper_answer {
    struct keeper_head head;
    struct keeper_host host;
    struct keeper_named named;
    struct keeper_box box;
    struct keeper_made made;
    struct keeper_refused refused;
    struct keeper_report report;
    struct keeper_disk_there disk;
    struct keeper_disks disks;
};

/* An engine that has said KEEPER_BEAT once says it COVE_BEAT_MS (of its environment) after the last time;
 * where nothing at all is heard of it for so long it hangs, and is replaced. */
#define KEEPER_HANG_MS 30000
#define KEEPER_BEATS 6 /* in that time */

/* Of the engine: SIGTERM says that it ends, and boxes live on for the next one; this, that all ends and
 * boxes are to be stopped in order. */
#define KEEPER_STOP_SIGNAL SIGUSR1

/* The engine's fds when the keeper starts it: the others are closed. */
#define KEEPER_ENGINE_SOCKET 3   /* the answers */
#define KEEPER_ENGINE_STATE 4    /* directory that is the engine's: store, logs, keys */
#define KEEPER_ENGINE_REQUESTS 5 /* the pipe */
#define KEEPER_ENGINE_LISTEN 6   /* from here on COVE_LISTEN_FDS listening sockets, unix or TCP */
