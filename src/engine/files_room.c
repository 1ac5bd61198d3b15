/* Places of tools, and room in their pipes: see files.h.
 *
 * A sandbox has PROCS_TOOLS_MAX places, and whoever reads nothing of what he asked for holds one as long as he
 * likes. So a call that finds none takes that of the client who has waited for nothing but himself the
 * longest, and who came by a token has but a share. Nobody loses a place while nobody else wants it.
 *
 * All pipes are the engine's user's, to whom Linux gives 64 MiB of them before new ones are small: so only a
 * few of each tenant are larger than usual. */
#include "engine/files_parts.h"

#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>

#define IDLE_NS (10ULL * 1000000000) /* a slow line takes something within that */
#define WIDE_BYTES (1 << 20)
#define WIDE_OF_TENANT 16
#define WIDE_OF_ALL 48

void files_room_taken(struct files *files)
{
    files->idle_ns = clock_monotonic_ns();
    files->untaken = -1;
}

void files_room_waits(struct files *files)
{
    files->idle_ns = 0;
}

void files_leave(struct files *files, bool is_left)
{
    files->is_left = is_left;
}

void files_hold(struct files *files, bool is_held)
{
    if (!is_held)
        files_room_waits(files);
    else if (files->idle_ns == 0)
        files_room_taken(files);
}

/* ---- places ---- */

/* What is on its way to a slow client gets less, also while he has not all of it. */
static void look(struct files *files, uint64_t now)
{
    int untaken = 0;

    if (files->idle_ns == 0 || files->ours[0] < 0 || ioctl(files->ours[0], FIONREAD, &untaken) < 0)
        return;
    if (files->untaken >= 0 && untaken != files->untaken)
        files->idle_ns = now;
    files->untaken = untaken;
}

/* Whether it is up to its client alone that it holds a place. */
static bool is_idle(const struct files *files, uint64_t now)
{
    bool waits_for_input = files->in_feed == 0 && files->rest_at == files->rest_used;

    if (files->is_left)
        return true;
    if (files->idle_ns == 0 || now - files->idle_ns < IDLE_NS)
        return false;
    return !files_rows[files->verb].takes_input || waits_for_input;
}

/* Left ones before all others, then who has waited longest. */
static bool is_before(const struct files *a, const struct files *b)
{
    if (b == NULL || a->is_left != b->is_left)
        return b == NULL || a->is_left;
    return a->idle_ns < b->idle_ns;
}

int files_room_make(struct files *files, struct procs *procs, struct error *err)
{
    static const struct error gone = {
        .code = "capacity",
        .text = "nothing was taken or sent for a while, and others needed the place; ask again"};
    uint64_t now = clock_monotonic_ns();
    struct files *idle = NULL;
    size_t lent = 0;
    bool is_full;

    if (procs_tools(procs) < FILES_LENT_MAX)
        return 0;
    for (struct files *at = files->engine->files; at != NULL; at = at->next) {
        if (at->tool == NULL || at->is_evicted || strcmp(at->sandbox, files->sandbox) != 0)
            continue;
        lent += at->is_lent;
        look(at, now);
        if ((at->is_lent || !files->is_lent) && at->has_started && is_idle(at, now) &&
            is_before(at, idle))
            idle = at;
    }
    is_full = procs_tools(procs) >= PROCS_TOOLS_MAX;
    if (!is_full && (!files->is_lent || lent < FILES_LENT_MAX))
        return 0;
    if (idle != NULL) {
        files_evict(idle, &gone);
        return 0;
    }
    if (is_full)
        return 0; /* procs_tool() says so */
    return error_set(err, "capacity", 0,
                     "%d requests by tokens and signed URLs work in the sandbox, and that is their "
                     "share; try again when one of them is done",
                     FILES_LENT_MAX);
}

/* ---- pipes ---- */

static const char *tenant_of(const struct files *files)
{
    const struct sandbox *sandbox = map_get(&files->engine->ids, files->sandbox);

    return sandbox != NULL ? sandbox->record->tenant : "";
}

void files_room_widen(struct files *files, int pipe)
{
    struct engine *engine = files->engine;
    unsigned of_tenant = 0;

    if (engine->files_wide >= WIDE_OF_ALL)
        return;
    if (engine->files_wide >= WIDE_OF_TENANT)
        for (const struct files *at = engine->files; at != NULL; at = at->next)
            of_tenant += at->wide > 0 && strcmp(tenant_of(at), tenant_of(files)) == 0 ? at->wide
                                                                                      : 0;
    if (of_tenant >= WIDE_OF_TENANT || fcntl(pipe, F_SETPIPE_SZ, WIDE_BYTES) < 0)
        return;
    files->wide++;
    engine->files_wide++;
}
