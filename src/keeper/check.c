/* Whether all could start: see check.h. */
#include "keeper/check.h"

#include "keeper/build.h"
#include "keeper/keeper.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

int check_configuration(struct keeper *keeper, struct error *err)
{
    return engine_config(keeper, err) < 0 ||
                   config_read(keeper->engine.config, keeper->places.config_path, &keeper->config,
                               &keeper->options, err) < 0 ||
                   engine_headers(keeper, err) < 0
               ? -1
               : tls_read(keeper, err);
}

/* An engine of another build would be ended at its first word. Its bytes say what it is: a program is
 * not run as root to be asked. */
static int build_check(const struct keeper *keeper, struct error *err)
{
    static const char build[] = KEEPER_BUILD;
    const struct engine_child *engine = &keeper->engine;
    struct stat st;
    void *at = MAP_FAILED;
    bool is_ours = keeper->options.engine != NULL; /* a test's own */

    if (!is_ours && fstat(engine->program, &st) == 0 && st.st_size > 0)
        at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, engine->program, 0);
    if (at != MAP_FAILED) {
        is_ours = memmem(at, (size_t)st.st_size, build, sizeof(build)) != NULL;
        (void)munmap(at, (size_t)st.st_size);
    }
    return is_ours ? 0
                   : error_set(err, "other_build", 0,
                               "%s is of another build than cove-keeper: install both",
                               engine->program_path);
}

int check_engine(struct keeper *keeper, struct error *err)
{
    return engine_find(keeper, err) < 0 || build_check(keeper, err) < 0 ? -1
                                                                        : engine_try(keeper, err);
}

int check_start(struct keeper *keeper, struct error *err)
{
    /* Nobody has asked for the default address who has neither written a configuration nor named one. */
    bool listens = keeper->options.listen != NULL;

    caller_look(&keeper->caller);
    if (places_find(&keeper->places, &keeper->options, err) < 0 ||
        check_configuration(keeper, err) < 0 ||
        places_find_socket(&keeper->places, &keeper->options, err) < 0)
        return -1;
    listens = listens || keeper->places.config_path[0] != '\0';
    if (listens && listeners_try(&keeper->options, &keeper->places, err) < 0)
        return -1;
    if (keeper->caller.maps && keeper->caller.on_host && ids_open(&keeper->slots.pool, err) < 0)
        return -1;
    if (engine_identify(keeper, keeper->caller.uid, err) < 0 || check_engine(keeper, err) < 0)
        return -1;
    /* A path that leads nowhere is no reason not to start, and said in a line. */
    names_begin(&keeper->names);
    return names_configure(keeper, err);
}
