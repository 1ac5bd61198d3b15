/* Finding what a path leads to. It may wait for a file system that does not answer, so a process of its own does that.
 *
 * All that are looked for at once have NAMES_FIND_MS in all. A name that is not found by then leads nowhere until its
 * process has found it, however late: a dead file server keeps up neither a start nor a reload nor the other names. */
#pragma once

#include "keeper/loop.h"

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#define NAMES_FIND_MS 2000
/* As many as there may be names, and as many that hang since earlier reloads. */
#define NAMES_FINDS_MAX 256

struct keeper;
struct name;

/* One that is looked for. */
struct name_find {
    struct source answered; /* first member */
    struct keeper *keeper;
    /* 0: none. */
    pid_t pid;
    int socket;
    /* Of its name, which may be gone meanwhile; 0: what a client has opened. */
    uint64_t generation;
};

/* An answer. */
struct name_found {
    int errnum;
    /* By which it is found again; empty: by none. */
    char path[PATH_MAX];
};

/* Looks at type and number, which never change: the kernel is asked and no server, once the path is walked. */
struct stat;
int name_what(int dir, const char *path, struct stat *st);

/* Begins to look for one of the table that is not there. */
void name_find_begin(struct keeper *keeper, const struct name *name);

/* Waits for all that were begun, as long as they have, and says which do not answer. */
void name_finds_wait(struct keeper *keeper);

/* Finds the path of what a client has opened: an fd of ours without rights, or -1. */
int name_find_given(struct keeper *keeper, int given, struct name_found *found, struct error *err);

/* After they were taken over: those that hang still. */
void name_finds_resume(struct keeper *keeper);

/* Ends those whose name is not there any more. */
void name_finds_forget(struct keeper *keeper);
