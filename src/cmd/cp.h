/* `cove cp`: what its files share. cp.c parses and decides; cp_in.c brings files of the host into a sandbox,
 * cp_out.c the other way. */
#pragma once

#include "cmd/api.h"
#include "cmd/client.h"
#include "cmd/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CP_PATH_MAX 4096
#define CP_BLOCK (256U << 10)
#define CP_URL_MAX (API_PATH_MAX + 3 * CP_PATH_MAX + 512)

struct cp {
    struct options_common common; /* first */
    bool quiet;
    const char *user;

    struct client *client;
    bool has_warned; /* something was left out */

    uint64_t bytes, total, shown_ms, began_ms; /* progress; total UINT64_MAX: not known */
    const char *what;
    bool shows, has_shown;
    struct doc *copied; /* with --json: what was, one after the other */
    char block[CP_BLOCK];
};

/* One side of a copy. */
struct cp_place {
    bool is_box;
    char sandbox[300];      /* is_box */
    char path[CP_PATH_MAX]; /* "-": standard input or output */
};

/* The path of a route of its files, with the place's path and the user in the query; `more` follows, as it
 * is. */
int cp_url(const struct cp *cp, const struct cp_place *place, const char *route, const char *path,
           const char *more, char url[CP_URL_MAX], struct error *err);
/* What is at a path of the sandbox, links followed: 1, 0: nothing, -1. */
int cp_look(struct cp *cp, const struct cp_place *place, const char *path, bool *is_directory,
            struct error *err);
const char *cp_base(const char *path, char name[256]);

void cp_moved(struct cp *cp, size_t bytes);
void cp_progress_end(struct cp *cp);
/* Something is left out, and the exit status will say so. */
void cp_warn(struct cp *cp, const char *path, const char *why);

/* 0, or -1. */
int cp_in(struct cp *cp, const char *source, const struct cp_place *target, bool into,
          struct error *err);
int cp_out(struct cp *cp, const struct cp_place *source, const char *target, bool into,
           struct error *err);
