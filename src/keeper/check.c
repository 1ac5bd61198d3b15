/* Whether all could start: see check.h. */
#include "keeper/check.h"

#include "base/fd.h"
#include "keeper/build.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
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

/* ---- all faults ---- */

#define ENGINE_SAYS_MAX (64U << 10) /* CONF_FAULTS_MAX lines, each an error, and its warnings */

/* By line, for two programs read the same file; those of no line come last. */
struct faults {
    const char *path;
    struct fault {
        unsigned line; /* 0: of none */
        struct error said;
    } all[2 * CONF_FAULTS_MAX];
    size_t count;
};

/* "PATH:LINE: ...", 0 for any other text. */
static unsigned line_of(const char *path, const char *text)
{
    size_t length = strlen(path);

    return length > 0 && strncmp(text, path, length) == 0 && text[length] == ':'
               ? (unsigned)strtoul(text + length + 1, NULL, 10)
               : 0;
}

static void fault_add(void *arg, const struct error *fault)
{
    struct faults *faults = arg;
    unsigned line = line_of(faults->path, fault->text);
    size_t at = faults->count;

    /* The other program has found these as well. */
    for (size_t i = 0; i < faults->count; i++)
        if ((line != 0 && faults->all[i].line == line) ||
            strcmp(faults->all[i].said.text, fault->text) == 0)
            return;
    if (faults->count == sizeof(faults->all) / sizeof(faults->all[0]))
        return;
    for (;
         at > 0 && line != 0 && (faults->all[at - 1].line == 0 || faults->all[at - 1].line > line);
         at--)
        faults->all[at] = faults->all[at - 1];
    faults->all[at] = (struct fault){.line = line, .said = *fault};
    faults->count++;
}

/* A line of an engine that was tried: CODE: TEXT is a fault, any other a warning. */
static void engine_line_take(struct faults *faults, const char *line)
{
    size_t code = strspn(line, "abcdefghijklmnopqrstuvwxyz_");
    struct error fault;

    if (code == 0 || code >= ERROR_CODE_MAX || strncmp(line + code, ": ", 2) != 0) {
        (void)fprintf(stderr, "%s\n", line);
        return;
    }
    (void)error_set(&fault, "", 0, "%s", line + code + 2);
    (void)snprintf(fault.code, sizeof(fault.code), "%.*s", (int)code, line);
    fault_add(faults, &fault);
}

static void engine_faults(struct keeper *keeper, struct faults *faults)
{
    _cleanup_free_ char *said = malloc(ENGINE_SAYS_MAX);
    struct error err;
    char *rest = NULL;

    if (said == NULL)
        (void)error_set(&err, "capacity", ENOMEM, "cannot try the engine");
    else if (engine_find(keeper, &err) == 0 && build_check(keeper, &err) == 0) {
        int failed = engine_try_said(keeper, said, ENGINE_SAYS_MAX, &err);
        bool is_ours = failed == 0 || strcmp(err.code, "no_engine") != 0;

        /* The loader's words are in the error. */
        for (char *line = is_ours ? strtok_r(said, "\n", &rest) : NULL; line != NULL;
             line = strtok_r(NULL, "\n", &rest))
            engine_line_take(faults, line);
        if (failed == 0)
            return;
    }
    fault_add(faults, &err);
}

static void start_faults(struct keeper *keeper, struct faults *faults)
{
    /* Nobody has asked for the default address who has neither written a configuration nor named one. */
    bool listens = keeper->options.listen != NULL, is_read;
    struct error err;

    if (places_find(&keeper->places, &keeper->options, &err) < 0 ||
        engine_config(keeper, &err) < 0) {
        fault_add(faults, &err);
        return;
    }
    is_read = config_read(keeper->engine.config, faults->path, &keeper->config, &keeper->options,
                          &err) == 0;
    if (!is_read && keeper->engine.config >= 0)
        config_faults(keeper->engine.config, faults->path, &keeper->config, fault_add, faults);
    if (!is_read)
        fault_add(faults, &err);
    if (is_read && places_find_data(&keeper->places, &keeper->options, &err) < 0)
        fault_add(faults, &err);
    if (is_read && engine_headers(keeper, &err) < 0)
        fault_add(faults, &err);
    if (is_read && tls_read(keeper, &err) < 0)
        fault_add(faults, &err);
    listens = listens || keeper->places.config_path[0] != '\0';
    if (is_read && (places_find_socket(&keeper->places, &keeper->options, &err) < 0 ||
                    (listens && listeners_try(&keeper->options, &keeper->places, &err) < 0)))
        fault_add(faults, &err);
    if ((keeper->caller.maps && keeper->caller.on_host &&
         ids_open(&keeper->slots.pool, &err) < 0) ||
        engine_identify(keeper, keeper->caller.uid, &err) < 0)
        fault_add(faults, &err);
    else
        engine_faults(keeper, faults);
    /* A path that leads nowhere is no reason not to start, and said in a line. */
    names_begin(&keeper->names);
    if (is_read && names_configure(keeper, &err) < 0)
        fault_add(faults, &err);
}

bool check_start(struct keeper *keeper)
{
    static struct faults faults;

    faults.path = keeper->places.config_path;
    caller_look(&keeper->caller);
    start_faults(keeper, &faults);
    for (size_t i = 0; i < faults.count; i++)
        (void)fprintf(stderr, "cove-keeper: %s: %s\n", faults.all[i].said.code,
                      faults.all[i].said.text);
    return faults.count == 0;
}
