/* What `cove js` does when code calls fetch(): requests to the hosts that the manifest's policy allows.
 *
 * Each hop of a redirect is a request of its own, so that each is judged: the prelude follows it. A name is resolved
 * once, and what is dialled is the address that was judged. Never is anything sent before that, and no
 * certificate goes unverified. */
#pragma once

#include "kernel/kernel.h"

struct js_fetches;

/* For the calls of one context, whose answerer it becomes. */
int js_fetches_new(struct kernel_context *context, const struct kernel_manifest *manifest,
                   struct js_fetches **out, struct error *err);
void js_fetches_free(struct js_fetches *fetches);
void js_fetches_freep(struct js_fetches **fetches);

/* Begins what code asked for, settles what is done, and waits for the next of that for `ms` at most. */
int js_fetches_turn(struct js_fetches *fetches, uint64_t ms, struct error *err);
