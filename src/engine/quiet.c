/* Files of a sandbox that is stopped: its disk needs a box, so it gets one, quietly.
 *
 *   stopped -- a call on files --> KEEPER_MAKE -> the box stands -> the tool runs
 *           <-- HUSH_MS after the last call, a stop, a fall -- the box is ended
 *   a start takes the box that stands; a delete ends it; the engine after a crash ends it, too
 *
 * The record stays "stopped" all the while and nothing is written down: nobody but the tools can run
 * there, and who looks sees what he saw. Quotas count the box as any. */
#include "engine/files_parts.h"

#include <stdio.h>
#include <string.h>

#define HUSH_MS 5000 /* who looks at one file mostly looks at the next */

/* ---- making it ---- */

static int quiet_check(struct sandbox *sandbox, struct error *err)
{
    const struct record *record = sandbox->record;

    if (record->disk_kind != KEEPER_PERSISTENT || record->disk[0] == '\0')
        return error_set(err, "sandbox_stopped", 0,
                         "sandbox %s is %s (%s), and its disk is ephemeral: its files are gone; "
                         "start it to have new ones, or make sandboxes with a persistent disk",
                         sandbox->id, sandbox_state_name(record->state), record->reason);
    return start_check(sandbox, err);
}

void quiet_work(struct sandbox *sandbox)
{
    struct error err;

    if (sandbox->is_quiet) {
        sandbox_finish(sandbox, NULL);
        return;
    }
    sandbox->failure = (struct error){0};
    if (quiet_check(sandbox, &err) != 0)
        sandbox_finish(sandbox, &err);
    else
        start_make(sandbox);
}

/* ---- ending it ---- */

static void hushed(struct sandbox *sandbox, const struct keeper_report *report)
{
    bool is_full = report != NULL && report->disk_exceeded > 0;

    sandbox_detach(sandbox, is_full ? "disk_exceeded" : sandbox->record->reason);
    sandbox->is_quiet = false;
    clock_clear(sandbox->engine->clock, &sandbox->hush);
    sandbox_finish(sandbox, NULL);
}

void hush_work(struct sandbox *sandbox)
{
    bool is_wanted = sandbox->active->kind == VERB_HUSH && sandbox->files > 0;

    if (is_wanted)
        sandbox_finish(sandbox, NULL);
    else
        sandbox_end_box(sandbox, hushed);
}

static void rang(void *arg)
{
    struct sandbox *sandbox = arg;

    if (sandbox->is_quiet && sandbox->files == 0)
        sandbox_push(sandbox, verb_new(VERB_HUSH, NULL));
}

/* ---- who is there ---- */

void quiet_left(struct sandbox *sandbox)
{
    sandbox->files--;
    sandbox_touch(sandbox);
    if (sandbox->files == 0 && sandbox->is_quiet)
        clock_set(sandbox->engine->clock, &sandbox->hush,
                  clock_monotonic_ns() + HUSH_MS * 1000000ULL, rang, sandbox);
}

/* Whether the box can be used without waiting for a turn: this is the way of every call. */
static bool at_once(const struct sandbox *sandbox)
{
    return sandbox_is_steady(sandbox) && sandbox->first == NULL &&
           (sandbox->record->state == SANDBOX_RUNNING || sandbox->is_quiet);
}

void quiet_procs(struct sandbox *sandbox, engine_procs_done done, void *arg)
{
    struct verb *verb;
    struct error err;

    sandbox->files++;
    sandbox_touch(sandbox);
    if (at_once(sandbox)) {
        bool is_open = sandbox_open_procs(sandbox, &err) == 0;

        done(arg, is_open ? sandbox->procs : NULL, is_open ? NULL : &err);
        return;
    }
    verb = verb_new(VERB_QUIET, arg);
    verb->done.procs = done;
    sandbox_push(sandbox, verb);
}
