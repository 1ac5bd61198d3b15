/* The keeper: the one privileged process. What it holds, and what its files are for.
 *
 * It makes boxes for the engine, which is a child of its own without rights, and outlives it. It reads
 * typed requests of the engine (request.h) and of `cove root add` (names.h), and no byte that a client
 * or a box wrote. It must hold against an engine that was taken over: whatever the engine says, a box
 * stays a box, and no name leads where the operator did not point it. */
#pragma once

#include "base/log.h"
#include "box/caller.h"
#include "keeper/boxes.h"
#include "keeper/config.h"
#include "keeper/crowd.h"
#include "keeper/disks.h"
#include "keeper/engine.h"
#include "keeper/listen.h"
#include "keeper/loop.h"
#include "keeper/mounts.h"
#include "keeper/names.h"
#include "keeper/notify.h"
#include "keeper/options.h"
#include "keeper/places.h"
#include "keeper/requests.h"
#include "keeper/slots.h"
#include "keeper/tls.h"
#include "keeper/uncounted.h"
#include "keeper/upgrade.h"
#include "keeper/zygotes.h"

#include <limits.h>
#include <stdbool.h>

struct keeper {
    struct caller caller;
    struct options options;
    struct config config;
    struct loop loop;
    struct places places;
    struct listeners listeners;
    struct names names;
    struct slots slots;
    struct zygotes zygotes;
    struct boxes boxes;
    struct crowd crowd;
    struct disks disks;
    struct mounts mounts;
    struct uncounted uncounted;
    struct engine_child engine;
    struct notify notify;
    struct upgrade upgrade;
    struct tls_watch tls;
    char ids_kind[8];       /* which boxes get here: see box.h */
    char program[PATH_MAX]; /* ours, where it is installed: what lies there takes over */
    char **arguments;       /* as we were started */
    bool lacks_fresh_proc;
    struct source signals;
    int signal_fd;
    bool is_stopping;
    bool has_ended;  /* the engine, for good */
    bool has_failed; /* it has never started */
    uint64_t stop_deadline_ns;
};

/* For the operator: what is wrong, and what is worth knowing. */
#define keeper_say(code, ...) log_say(LOG_LEVEL_WARN, code, __VA_ARGS__)
#define keeper_note(code, ...) log_say(LOG_LEVEL_INFO, code, __VA_ARGS__)

/* The lesser of two moments; 0 is never. */
static inline uint64_t keeper_sooner(uint64_t one, uint64_t other)
{
    if (one == 0 || other == 0)
        return one == 0 ? other : one;
    return one < other ? one : other;
}
