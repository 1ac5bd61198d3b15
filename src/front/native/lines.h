/* One stream of a process as lines of NDJSON: bytes go in as they come, lines come out.
 *
 * As text, a character is never in two lines: what is incomplete waits for its rest, or for a gap or the
 * end, which say that there is none. As base64 the bytes are exact. Pure: no word of HTTP or of
 * processes. */
#pragma once

#include "front/native/out.h"

struct lines {
    const char *stream; /* "stdout", "stderr" */
    bool is_base64;
    uint64_t at; /* the offset after what came in */
    size_t held; /* bytes before it that wait for the rest of their character */
    char rest[4];
};

/* Room that lines_add() needs before `data`. */
#define LINES_ROOM 4

/* `size` bytes at `data`, of offset `from`: later than expected is a gap. The LINES_ROOM bytes before `data`
 * are written to. */
void lines_add(struct lines *lines, struct out *out, uint64_t from, char *data, size_t size);

/* Nothing more comes: what waited will stay incomplete. */
void lines_end(struct lines *lines, struct out *out);
