/* The table of requests: what the engine may ask, when, and in which form. */
#pragma once

#include "keeper/request.h"

#include <stdbool.h>
#include <stddef.h>

struct keeper;

/* Why this is no request that an engine of ours would make now; NULL: it is one. Looks at `size` bytes
 * and at nothing else, so it can be tried with anything. */
const char *request_fault(const union keeper_request *request, size_t size, bool is_greeted);

/* The mounts of a checked MAKE are open, if it has any: its disk is next. */
void request_open(struct keeper *keeper, const struct keeper_make *make);

/* Makes the box of a checked MAKE and answers, one with mounts when its set-up is over. `disk` (of a persistent one) is
 * open, or `err` says why it is not; borrowed. */
struct error;
void request_make(struct keeper *keeper, const struct keeper_make *make,
                  const struct disk_kept *disk, struct error *err);

/* Answers a MAKE. */
struct boxed;
void request_made(struct keeper *keeper, uint32_t id, const struct boxed *boxed);

/* Answers a request that was under way: it is done, or `err` says why it is not. */
void request_answer(struct keeper *keeper, uint32_t id, const struct error *err);

/* Takes one request from the engine's pipe and does it; false where there is no whole one now. */
bool request_serve(struct keeper *keeper);
