/* What the files of files*.c and quiet.c share; nobody else includes it. */
#pragma once

#include "box/tool/tool.h"
#include "engine/files.h"
#include "engine/parts.h"

struct files_row {
    const char *name;
    bool takes_input;
    bool has_bytes; /* what it says must be read exactly: bytes stand between its frames */
    bool only_looks;
};
extern const struct files_row files_rows[FILES_VERBS];

/* As a block to be freed. */
int files_argv(const struct files_spec *spec, const char *beneath, const char ***out,
               struct error *err);

/* ---- files_parse.c: frames, as whoever took over a box may have made them ---- */

/* A payload of `size` bytes. -1: no tool of ours says that. FILES_BEGIN: `entry` and `begin`. */
int files_parse(uint32_t type, const char *payload, size_t size, struct files_item *item);
/* How large a payload of this type may be; 0: it is none that may come. */
size_t files_payload_max(enum files_verb verb, uint32_t type);

/* ---- quiet.c ---- */

/* The processes of a sandbox for a tool, also of one that is stopped and has a disk; until quiet_left(),
 * which each of these calls is followed by, it keeps the box that it got for it. */
void quiet_procs(struct sandbox *sandbox, engine_procs_done done, void *arg);
void quiet_left(struct sandbox *sandbox);
