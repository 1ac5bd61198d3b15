/* What the two files of probes share: nobody else includes this.
 *
 * A probe says each step before or after it takes it, so that a death still has a place. */
#pragma once

#include "box/probe.h"

#include <sys/types.h>

/* What is about to be done: stays, if it kills us. */
void probe_step(struct probe_result *result, const char *step);

/* Fails with the errno; returns false, for a chain of conditions. */
bool probe_fail(struct probe_result *result, int errnum);

/* Whether a call that returned this worked; if not, the step has failed with errno. */
bool probe_did(struct probe_result *result, long returned);

/* Names the step, takes it, and looks at what it returned. */
#define PROBE_TRY(result, step, call) (probe_step(result, step), probe_did(result, call))

/* fork(), and the child ends with us. */
pid_t probe_fork(void);

/* In probe_namespaces.c. */
void probe_try_userns(struct probe_result *result);
void probe_try_userns_caps(struct probe_result *result);
void probe_try_ids(struct probe_result *result);
void probe_try_namespaces(struct probe_result *result);
void probe_try_network(struct probe_result *result);
void probe_try_proc(struct probe_result *result);
void probe_try_devpts(struct probe_result *result);
void probe_try_overlay(struct probe_result *result);
void probe_try_idmap(struct probe_result *result);
void probe_try_erofs(struct probe_result *result);
void probe_try_clocks(struct probe_result *result);
void probe_try_process_limit(struct probe_result *result);
