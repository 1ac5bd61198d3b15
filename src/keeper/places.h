/* Directories: where the keeper finds what it kept, and where its sockets lie.
 *
 * One keeper per data directory: it holds a lock on it. What others could have put in our place
 * (a link, a directory of theirs in /tmp) is refused, never followed. */
#pragma once

#include "base/err.h"
#include "keeper/options.h"

#include <limits.h>
#include <stdbool.h>

struct places {
    int data;   /* DIR, locked */
    int engine; /* DIR/engine: the engine's own */
    int disks;  /* DIR/disks */
    bool is_system;
    char data_path[PATH_MAX];
    char socket_path[PATH_MAX]; /* of the API */
    char keeper_path[PATH_MAX]; /* keeper.sock, beside it */
    char config_path[PATH_MAX]; /* empty: there is none */
};

/* First: who this is, and where the configuration lies. */
int places_find(struct places *places, const struct options *options, struct error *err);

/* Where the sockets lie, or would: nothing is made. */
int places_find_socket(struct places *places, const struct options *options, struct error *err);

/* Where the data directory lies, or would: nothing is made. */
int places_find_data(struct places *places, const struct options *options, struct error *err);

int places_open(struct places *places, const struct options *options, struct error *err);
void places_close(struct places *places);
