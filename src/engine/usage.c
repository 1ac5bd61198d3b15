/* What a sandbox uses now, as its cgroups count it; and what the host has left.
 *
 * The keeper is asked each time, for nothing is counted here. It is no call that keeps an idle sandbox
 * alive: who only looks must not change what he sees. */
#include "base/fd.h"
#include "engine/parts.h"

#include <stdlib.h>
#include <string.h>

struct asking {
    struct engine *engine;
    char sandbox[KEEPER_ID_LENGTH + 4];
    engine_used done;
    void *arg;
};

static void used(void *arg, const union keeper_answer *answer, int fd, const struct error *err)
{
    struct asking asking = *(struct asking *)arg;
    const struct sandbox *sandbox = map_get(&asking.engine->ids, asking.sandbox);
    struct sandbox_usage usage = {.state = sandbox == NULL ? SANDBOX_DELETED
                                                           : sandbox->record->state,
                                  .disk_bytes = UINT64_MAX};

    fd_close(&fd);
    free(arg);
    if (err != NULL && strcmp(err->code, "no_box") != 0) {
        asking.done(asking.arg, NULL, err);
        return;
    }
    if (err == NULL)
        usage.disk_bytes = answer->report.disk_bytes;
    /* No box: it has just ended, or is stopped, and uses nothing. */
    if (err == NULL && answer->report.usage_known != 0) {
        usage.is_known = true;
        usage.cpu_ns = answer->report.cpu_ns;
        usage.memory_bytes = answer->report.memory_bytes;
        usage.peak_memory_bytes = answer->report.peak_memory_bytes;
    }
    asking.done(asking.arg, &usage, NULL);
}

void engine_usage(struct engine *engine, const struct engine_caller *caller, const char *id,
                  engine_used done, void *arg)
{
    union keeper_request request = {0};
    struct sandbox_usage nothing;
    bool is_boxed;
    struct sandbox *sandbox;
    struct asking *asking;
    struct error err;

    if ((sandbox = sandbox_find_for(engine, caller, id, ENGINE_LOOK, &err)) == NULL) {
        done(arg, NULL, &err);
        return;
    }
    is_boxed = sandbox->box != 0;
    if (!is_boxed && sandbox->record->disk[0] == '\0') {
        nothing = (struct sandbox_usage){.state = sandbox->record->state};
        done(arg, &nothing, NULL);
        return;
    }
    asking = engine_alloc(sizeof(*asking));
    *asking = (struct asking){.engine = engine, .done = done, .arg = arg};
    memcpy(asking->sandbox, sandbox->id, sizeof(asking->sandbox));
    if (is_boxed)
        request.of_box.box = sandbox->box;
    else
        memcpy(request.of_disk.disk, sandbox->record->disk, sizeof(request.of_disk.disk));
    keeper_client_ask(engine->keeper, is_boxed ? KEEPER_USAGE : KEEPER_WEIGH_DISK, &request, used,
                      asking);
}

int engine_capacity(struct engine *engine, const struct engine_caller *caller,
                    struct engine_capacity *capacity, struct error *err)
{
    if (caller_may(caller, ENGINE_OPERATOR, err) != 0)
        return -1;
    capacity_look(engine, capacity);
    return 0;
}
