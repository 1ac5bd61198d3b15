/* fetch() of kernels that run in workers: what their code asks for is asked for here, in the engine's loop.
 *
 * A worker can reach nothing; it says what its code wants, and may have been taken over when it does. So each
 * request is checked and judged here as if nobody had looked at it before: the method, the headers, the host by the
 * policy of the run, each address that came of its name, and that very address is dialled, by the engine's own proxy if
 * it has one. Each hop of a redirect is a request of its own. Nothing here blocks the loop, and all that a run or a tenant
 * may have at once, or at all, is bounded (kernel/fetch/fetch.h). What belongs to a run ends with it. */
#pragma once

#include "base/err.h"
#include "kernel/kernel.h"
#include "policy/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct net;
struct fetches;   /* of an engine */
struct fetch_run; /* of one run of a kernel */

/* Cheap: what it needs is loaded at the first request. `net` stays open until it is closed. */
int fetches_new(uv_loop_t *loop, struct net *net, struct fetches **out, struct error *err);
/* All runs were freed before. `closed` is called from the loop, when nothing of it is left there. */
void fetches_close(struct fetches *fetches, void (*closed)(void *arg), void *arg);

struct fetches_counts {
    uint32_t open;                              /* requests and answers, now */
    uint64_t all, refused, bytes_out, bytes_in; /* since it was made; refused by a policy */
};
void fetches_count(const struct fetches *fetches, struct fetches_counts *out);

/* How calls are answered: each once, unless its run was freed before. They may come from within fetch_run_take(),
 * and must not free a run themselves. Texts and bytes are borrowed for the call. */
struct fetch_answers {
    void (*settle)(void *arg, uint32_t call, const char *meta, size_t meta_size,
                   const uint8_t *bytes, size_t bytes_size); /* bytes NULL: none */
    void (*fail)(void *arg, uint32_t call, const char *code, const char *text);
    /* From within fetch_run_take(): the block of malloc() that the call's bytes lie in, given away. NULL, or no function:
     * they are copied. */
    void *(*give)(void *arg);
};

/* `hosts` are rules as of kernel_grants; NULL or empty: everything is denied. "bad_policy" names a rule that is
 * none. Runs of one tenant take turns, and tenants do. */
int fetch_run_new(struct fetches *fetches, const char *tenant, const char *const *hosts,
                  const struct fetch_answers *answers, void *arg, struct fetch_run **out,
                  struct error *err);
/* Nothing is answered any more, and its connections are closed. */
void fetch_run_free(struct fetch_run *run);

/* "fetch.start", "fetch.read" and "fetch.cancel" (which has no answer); false: it is none of these. The
 * needed parts of the call are copied, but for a large body, which is asked for by `give`. */
bool fetch_run_take(struct fetch_run *run, const struct kernel_call *call);
