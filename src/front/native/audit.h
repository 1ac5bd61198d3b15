/* Files of lines that are only ever added to: what was asked of this engine, by whom, and what came of it.
 *
 * Lines are gathered in memory and written by a thread of the loop's pool, 200 ms later at the latest, so
 * that no request waits for a disk. What does not fit, since the disk is full or slow, is counted, told in
 * the log and in the file when it takes lines again, and stops nobody. A killed engine loses what it
 * gathered last. It is whoever adds a line who sees to it that no secret is in it. */
#pragma once

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#define AUDIT_FILE "audit.ndjson" /* older ones: audit.ndjson.1 and so on */

struct audit_options {
    uv_loop_t *loop;
    int directory;       /* of the files; taken */
    uint64_t file_bytes; /* then the next one is begun */
    uint64_t age_ms;     /* the same; 0: never */
    unsigned keep;       /* files, with that which is written to */
};

struct audit;
int audit_open(const struct audit_options *options, struct audit **out, struct error *err);
/* One line, without its end. */
void audit_add(struct audit *audit, const char *line, size_t size);
uint64_t audit_lost(const struct audit *audit); /* lines, so far */
/* No more lines. The loop runs until all is written, and audit_free() writes what is left then. */
void audit_close(struct audit *audit);
void audit_free(struct audit *audit);
