/* Roots and mounts that the operator registered: the only directories of the host that a box can be
 * given, and the engine knows them by name alone.
 *
 * `cove root add NAME PATH` opens the directory with its caller's own rights and hands it over on
 * keeper.sock, where only root and the keeper's own user are heard. The list is kept in DIR/names. What
 * is opened again at the next start must be the same inode, else the name leads nowhere.
 *
 * Each has a list of tenants. A sandbox of another one gets it no more than what was never registered: the
 * engine says whose sandbox a box is for, and is told the lists. */
#pragma once

#include "base/err.h"
#include "keeper/loop.h"
#include "keeper/names_find.h"
#include "keeper/request.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NAMES_MAX 128
#define NAMES_PATH_SHOWN 512

/* ---- keeper.sock: SOCK_SEQPACKET, one request a connection ---- */

enum names_verb {
    NAMES_ADD = 1, /* with an fd: the directory, or for a root the erofs image */
    NAMES_REMOVE,
    /* The answer comes with a memfd, of a names_entry each; 3 was a list in packets. */
    NAMES_LIST = 4,
    NAMES_RELOAD,   /* as SIGHUP; answered at once */
    NAMES_RELOADED, /* what came of the last one; UPGRADE_UNDER_WAY until it is known */
};

struct names_request {
    uint32_t verb;
    uint32_t kind; /* enum keeper_kind; of NAMES_ADD and NAMES_REMOVE */
    uint32_t read_only;
    uint32_t pad;
    char name[KEEPER_NAME_MAX];
    char tenants[KEEPER_TENANTS_SIZE]; /* with NAMES_ADD; empty: TENANCY_USUAL */
};

struct names_entry {
    uint32_t kind;
    uint32_t read_only;
    uint32_t is_there;
    uint32_t pad;
    char name[KEEPER_NAME_MAX];
    char tenants[KEEPER_TENANTS_SIZE];
    char path[NAMES_PATH_SHOWN]; /* cut where it is longer */
};

/* error.code is empty where it was done. */
struct names_answer {
    struct error error;
};

/* ---- the keeper's side ---- */

struct name {
    uint32_t kind; /* enum keeper_kind; 0: unused */
    bool read_only, is_there, is_directory;
    bool is_told;        /* the engine knows of it as it is */
    bool is_configured;  /* by cove.conf, and not in DIR/names */
    bool is_removed;     /* the engine is still to be told; then it is unused */
    uint64_t generation; /* never the same for two */
    int fd;              /* O_PATH */
    dev_t device;
    ino_t inode;
    char name[KEEPER_NAME_MAX];
    char tenants[KEEPER_TENANTS_SIZE];
    char *path;
};

struct names_client {
    struct source source;
    int socket;
    uint64_t since_ns;
};
#define NAMES_CLIENTS_MAX 8

struct names {
    struct name table[NAMES_MAX];
    size_t table_used; /* entries from here on were never used */
    uint64_t generations;
    int directory; /* DIR; borrowed */
    struct source source;
    struct names_client clients[NAMES_CLIENTS_MAX];
    struct name_find finds[NAMES_FINDS_MAX];
};

/* An empty table. */
void names_begin(struct names *names);
/* Reads DIR/names; names_configure() finds what is in there. */
int names_open(struct names *names, int directory, struct error *err);
void names_close(struct names *names);

bool names_is_name(const char *text, size_t size);
/* Names of tenants between commas, or "*". */
bool names_are_tenants(const char *text, size_t size);

/* Finds what stands under this name for this tenant and is there; NULL. "" is none yet, and may have all. */
const struct name *names_find(const struct names *names, uint32_t kind, const char *name,
                              const char *tenant);
/* Whether it may have the root of this generation, which is there. */
bool names_may_have(const struct names *names, uint64_t generation, const char *tenant);

/* What `fd` is open on; borrowed. */
int names_add(struct keeper *keeper, const struct names_request *request, int fd,
              struct error *err);
int names_remove(struct names *names, uint32_t kind, const char *name, struct error *err);

/* An answer to a name that was looked for, which takes the fd if it is what was registered. */
void names_found(struct keeper *keeper, uint64_t generation, const struct name_found *found,
                 int *fd);
void names_say_hangs(const struct keeper *keeper, uint64_t generation);

/* Adds those of cove.conf, and finds all. One whose path is not there leads nowhere. */
int names_configure(struct keeper *keeper, struct error *err);
/* Whether that could be done. Only for who is asked and ends: the table is of no use afterwards. */
int names_can_configure_again(struct keeper *keeper, struct error *err);
/* What it says now takes the place of what it said before, when no engine runs; what cannot be is logged. */
void names_configure_again(struct keeper *keeper);

/* Listens to clients. */
int names_serve(struct keeper *keeper, int listener, struct error *err);
/* To those that were taken over, too. */
int names_resume(struct keeper *keeper, struct error *err);
