/* Our terminal as that of a process in a sandbox: what `cove exec -t` and `cove attach` do. */
#pragma once

#include "cmd/api.h"

#include <stdint.h>

#define TERMINAL_KEYS_MAX 16
#define TERMINAL_KEYS_USUAL "ctrl-p,ctrl-q"

/* What detaches: keys, one after the other. */
struct terminal_keys {
    char key[TERMINAL_KEYS_MAX];
    size_t count; /* 0: none does */
};

/* "ctrl-p,ctrl-q", "ctrl-a,d", or "none". */
int terminal_keys_parse(const char *text, struct terminal_keys *keys, struct error *err);

struct terminal_options {
    const char *sandbox, *process; /* as a person names them */
    const char *path;              /* of the process in the API */
    struct terminal_keys keys;
    bool takes_input; /* ours is passed on */
    bool only_looks;  /* neither input nor size */
    /* It was started for this: a hang-up of ours is one of its, and the end of our key is its end. */
    bool is_own;
    bool has_from; /* from the start, and not only what is left of it on the screen */
    bool json;     /* at the end what came of it is printed, behind what the terminal showed */
};

/* The size of ours: true; or what is usual: false, then there is none. */
bool terminal_size(uint16_t *rows, uint16_t *columns);

/* Until the process ends, or one detaches; the exit status. Whatever happens, our terminal is as it was. */
int terminal_run(struct client *client, const struct terminal_options *options, struct error *err);
