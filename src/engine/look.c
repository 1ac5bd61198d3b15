/* Finding sandboxes: by id, by name, in pages.
 *
 * A sandbox of another tenant reads exactly as one that never was. */
#include "base/fd.h"
#include "engine/parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MOST 1000
#define LIST_USUAL 100

/* ---- one ---- */

/* A token sees its sandbox, and nothing beside it is there. */
static bool may_see(const struct engine_caller *caller, const char *tenant, const char *id)
{
    if (caller->sandbox[0] != '\0' && strcmp(caller->sandbox, id) != 0)
        return false;
    return (caller->scopes & ENGINE_OPERATOR) != 0 || strcmp(caller->tenant, tenant) == 0;
}

static struct sandbox *find_by_name(struct engine *engine, const struct engine_caller *caller,
                                    const char *name)
{
    char *key = engine_name_key(caller->tenant, name);
    struct sandbox *sandbox = map_get(&engine->names, key);

    free(key);
    return sandbox;
}

static int gone_set(struct error *err, const char *id)
{
    return error_set(err, "sandbox_gone", 0, "sandbox %s was deleted; make another one", id);
}

/* By its id: 1; 0 where no sandbox that this caller sees has or had that id; -1. */
static int find_by_id(struct engine *engine, const struct engine_caller *caller, const char *id,
                      struct sandbox **sandbox, struct error *err)
{
    _cleanup_(record_freep) struct record *gone = NULL;

    *sandbox = map_get(&engine->ids, id);
    if (*sandbox != NULL) {
        if (!may_see(caller, (*sandbox)->record->tenant, (*sandbox)->id))
            return 0;
        return (*sandbox)->record->state != SANDBOX_DELETED ? 1 : gone_set(err, id);
    }
    if (gone_find(engine, id, &gone, err) < 0)
        return -1;
    return gone != NULL && may_see(caller, gone->tenant, gone->id) ? gone_set(err, id) : 0;
}

/* An id wins over the same text as a name, also that of a sandbox that was deleted: else a name could be chosen
 * to get what is meant for another. */
struct sandbox *sandbox_find(struct engine *engine, const struct engine_caller *caller,
                             const char *id, struct error *err)
{
    bool by_name = strncmp(id, "name:", 5) == 0;
    struct sandbox *sandbox;
    int found = by_name ? 0 : find_by_id(engine, caller, id, &sandbox, err);

    if (found != 0)
        return found > 0 ? sandbox : NULL;
    sandbox = find_by_name(engine, caller, by_name ? id + 5 : id);
    if (sandbox != NULL && may_see(caller, sandbox->record->tenant, sandbox->id) &&
        sandbox->record->state != SANDBOX_DELETED)
        return sandbox;
    (void)error_set(err, "sandbox_not_found", 0,
                    "there is no sandbox '%.64s'; list those there are", id);
    return NULL;
}

/* Who may nothing at all is not told what is there. */
struct sandbox *sandbox_find_for(struct engine *engine, const struct engine_caller *caller,
                                 const char *id, enum engine_verb verb, struct error *err)
{
    struct sandbox *sandbox;

    if (caller->sandbox[0] == '\0' && engine_caller_may(caller, id, verb, err) != 0)
        return NULL;
    sandbox = sandbox_find(engine, caller, id, err);
    return sandbox != NULL && engine_caller_may(caller, sandbox->id, verb, err) == 0 ? sandbox
                                                                                     : NULL;
}

int engine_may(struct engine *engine, const struct engine_caller *caller, const char *id,
               enum engine_verb verb, struct error *err)
{
    return sandbox_find_for(engine, caller, id, verb, err) != NULL ? 0 : -1;
}

int engine_id_of(struct engine *engine, const struct engine_caller *caller, const char *id,
                 enum engine_verb verb, char found[ENGINE_ID_SIZE], struct error *err)
{
    const struct sandbox *sandbox = sandbox_find_for(engine, caller, id, verb, err);

    if (sandbox == NULL)
        return -1;
    (void)snprintf(found, ENGINE_ID_SIZE, "%s", sandbox->id);
    return 0;
}

void sandbox_look(const struct sandbox *sandbox, struct sandbox_view *view)
{
    record_look(sandbox->record, view);
    for (size_t i = 0; i < view->mounts_count; i++)
        if (view->mounts[i].read_only != 0 ||
            engine_named_is_read_only(sandbox->engine, KEEPER_MOUNT, view->mounts[i].name))
            view->mounts_read_only |= 1U << i;
    view->begun_ns = sandbox->begun_ns;
    view->boxed_ns = sandbox->boxed_ns;
    if (sandbox->procs != NULL)
        view->processes_running = procs_running(sandbox->procs);
}

int engine_look(struct engine *engine, const struct engine_caller *caller, const char *id,
                struct sandbox_view *view, struct error *err)
{
    struct sandbox *sandbox;

    sandbox = sandbox_find_for(engine, caller, id, ENGINE_LOOK, err);
    if (sandbox == NULL)
        return -1;
    sandbox_look(sandbox, view);
    return 0;
}

/* ---- many ---- */

static bool has_labels(const struct record *record, const char *const *labels)
{
    for (size_t i = 0; labels != NULL && labels[i] != NULL; i++) {
        bool found = false;

        for (size_t j = 0; record->labels[j] != NULL && !found; j++)
            found = strcmp(record->labels[j], labels[i]) == 0;
        if (!found)
            return false;
    }
    return true;
}

static bool is_wanted(const struct sandbox *sandbox, const struct engine_caller *caller,
                      const struct sandbox_filter *filter)
{
    const struct record *record = sandbox->record;

    if (record->state == SANDBOX_DELETED)
        return false;
    if (filter == NULL)
        return strcmp(record->tenant, caller->tenant) == 0;
    if (!filter->all_tenants && strcmp(record->tenant, caller->tenant) != 0)
        return false;
    if (filter->state != NULL && strcmp(filter->state, sandbox_state_name(record->state)) != 0)
        return false;
    if (filter->name_prefix != NULL && filter->name_prefix[0] != '\0' &&
        (record->name == NULL ||
         strncmp(record->name, filter->name_prefix, strlen(filter->name_prefix)) != 0))
        return false;
    return has_labels(record, filter->labels);
}

/* A cursor is the serial number of the last sandbox that was shown, and stays good when that one is
 * deleted. */
static int cursor_parse(const char *cursor, uint64_t *serial, struct error *err)
{
    char *end;

    *serial = 0;
    if (cursor == NULL || *cursor == '\0')
        return 0;
    errno = 0;
    *serial = strtoull(cursor + 1, &end, 36);
    if (*cursor != 's' || cursor[1] == '-' || cursor[1] == ' ' || end == cursor + 1 ||
        *end != '\0' || errno != 0)
        return error_set(err, "bad_request", 0,
                         "cursor: it is none that this engine gave; begin without one");
    return 0;
}

static void cursor_format(uint64_t serial, char next[64])
{
    char digits[20];
    size_t length = 0, at = 0;

    do {
        digits[length++] = "0123456789abcdefghijklmnopqrstuvwxyz"[serial % 36];
        serial /= 36;
    } while (serial > 0);
    next[at++] = 's';
    while (length > 0)
        next[at++] = digits[--length];
    next[at] = '\0';
}

static int list_check(const struct engine_caller *caller, const struct sandbox_filter *filter,
                      struct error *err)
{
    if (caller_may(caller, ENGINE_READ, err) != 0)
        return -1;
    if (filter != NULL && filter->all_tenants)
        return caller_may(caller, ENGINE_OPERATOR, err);
    return 0;
}

int engine_list(struct engine *engine, const struct engine_caller *caller,
                const struct sandbox_filter *filter, const char *cursor, size_t limit,
                bool (*each)(void *arg, const struct sandbox_view *view), void *arg, char next[64],
                struct error *err)
{
    struct sandbox *sandbox = engine->oldest;
    uint64_t after, last = 0;
    struct sandbox_view view;

    next[0] = '\0';
    if (list_check(caller, filter, err) != 0 || cursor_parse(cursor, &after, err) != 0)
        return -1;
    if (limit == 0)
        limit = LIST_USUAL;
    if (limit > LIST_MOST)
        limit = LIST_MOST;
    while (sandbox != NULL && sandbox->record->serial <= after)
        sandbox = sandbox->newer;
    for (; sandbox != NULL; sandbox = sandbox->newer) {
        if (!is_wanted(sandbox, caller, filter))
            continue;
        if (limit == 0) { /* there is one more */
            cursor_format(last, next);
            return 0;
        }
        sandbox_look(sandbox, &view);
        last = sandbox->record->serial;
        limit--;
        if (!each(arg, &view)) {
            cursor_format(last, next);
            return 0;
        }
    }
    return 0;
}
