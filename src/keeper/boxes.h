/* The boxes that live, by handles that the keeper gave out.
 *
 * A handle is a place in the table and a generation, so that an old one names nothing. Nothing here
 * waits for a box to end, and nothing here reads what a box says: its control socket is handed on. */
#pragma once

#include "box/box.h"
#include "box/cgroup.h"
#include "box/network.h"
#include "box/root.h"
#include "keeper/loop.h"
#include "keeper/request.h"
#include "keeper/slots.h"
#include "keeper/zygotes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BOXES_MAX 16384
#define ID_SIZE (KEEPER_ID_LENGTH + 4)

struct keeper;

/* A directory that is mounted in a box. */
struct boxed_mount {
    struct keeper_mount is;
    /* What was registered under that name then. */
    uint64_t device, inode;
    /* 0: it is of the start, and not known. */
    uint64_t mount_id;
};

struct boxed {
    struct source source; /* its end; first member */
    struct keeper *keeper;
    struct box *box; /* NULL: gone, its report is to be sent */
    uint64_t handle;
    struct slot *slot;           /* of a zygote's box */
    struct zygote_entry *zygote; /* ... */
    char owner[ID_SIZE], disk[ID_SIZE];
    char tenant[KEEPER_NAME_MAX]; /* of its owner */
    uint64_t root;                /* generation of its name; 0: the host's; ZYGOTES_ROOT_EMPTY */
    bool is_ending, is_hurried;
    /* Whose the files of a mount are in there. */
    struct root_ids ids;
    /* Room for KEEPER_MOUNTS_MAX; NULL: it has none. */
    struct boxed_mount *mounts;
    size_t mounts_count;
    /* As long as its set-up is waited for (mounts.h); else NULL. */
    struct mount_change *setting_up;
    /* No set-id file can be made in it, so it may have mounts that it writes to. */
    bool forbids_set_id;
    struct network_sockets network; /* -1 where it never was open */
    bool network_is_open;
    /* Its init was killed for that (uncounted.c). */
    bool locks_exceeded, sockets_exceeded, files_exceeded;
    uint64_t memory_bytes; /* its limit; 0: none */
    uint64_t pids_most;    /* its own limit, while it is held below that (crowd.c); 0: it is not */
    int disk_fd; /* mount of its image, to ask what is written and to hold it; -1: none, or it is on its end */
    uint64_t ending_ns;
    uint32_t asked; /* by this request; 0: nobody waits for the end */
    struct keeper_report report;
};

struct boxes {
    struct boxed *table[BOXES_MAX];
    size_t used, count;
    size_t ending; /* not gone yet */
    size_t owed;   /* gone, and somebody waits to hear */
    uint32_t generations;
};

/* Of an error that passes when others have ended. */
bool boxes_is_want_of_room(const struct error *err);

/* Finds out whether boxes here get no /proc of their own, where that is allowed, and says so: one is made
 * to see. */
void boxes_find_level(struct keeper *keeper);

/* Whether the names that a checked request has are there. */
int boxes_check(struct keeper *keeper, const struct keeper_make *make, struct error *err);

/* Makes the box that a checked request asks for; `disk` is the one that is kept, borrowed, or NULL. An
 * error's code is the one for the client. */
int boxes_make(struct keeper *keeper, const struct keeper_make *make, const struct disk_kept *disk,
               struct boxed **out, struct error *err);

/* Notes what is mounted in it; false: there is no memory for that. */
bool boxes_note_mount(struct boxed *boxed, const struct boxed_mount *mount);

/* Whether a sandbox of this tenant may have a box that was made for none: its root is one of the tenant's. */
int boxes_check_claim(const struct keeper *keeper, const struct boxed *boxed, const char *tenant,
                      struct error *err);

/* What this handle names and is not on its end; or NULL. */
struct boxed *boxes_find(const struct boxes *boxes, uint64_t handle);

/* Tells whether what this handle names is there, on its end or not. */
bool boxes_is_there(const struct boxes *boxes, uint64_t handle);

/* The network of a box, open or shut from now on; its sockets are kept until the box ends. */
int boxes_network_open(struct boxed *boxed, struct error *err);
int boxes_network_shut(struct boxed *boxed, struct error *err);
/* A new socket in there: one to dial with, or one that tells what listens. */
int boxes_network_socket(struct boxed *boxed, bool dials, int *out, struct error *err);

void boxes_usage(const struct keeper *keeper, const struct boxed *boxed,
                 struct keeper_report *report);

/* Ends it; `asked` is the request that waits for that, or 0. */
void boxes_end(struct keeper *keeper, struct boxed *boxed, uint32_t asked);
void boxes_end_all(struct keeper *keeper);

/* After they were taken over: those on their end go on with that. */
void boxes_resume(struct keeper *keeper);

/* The engine that waited is gone: what was to be said to it is forgotten. */
void boxes_forget_engine(struct boxes *boxes);

/* A box that is gone was reported. */
void boxes_drop(struct boxes *boxes, struct boxed *boxed);

/* Looks after boxes that take long to end; when to be called again, 0 for never. */
uint64_t boxes_tick(struct keeper *keeper, uint64_t now_ns);
