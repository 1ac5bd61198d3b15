/* What a kernel of a client may reach: checked once, and kept for as long as anything runs by it. */
#include "engine/kernels_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t list_count(const char *const *texts)
{
    size_t count = 0;

    while (texts != NULL && texts[count] != NULL)
        count++;
    return count;
}

char **texts_copy(const char *const *texts)
{
    size_t count = list_count(texts), size = (count + 1) * sizeof(char *);
    char **copy, *at;

    if (texts == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++)
        size += strlen(texts[i]) + 1;
    copy = engine_alloc(size);
    at = (char *)(copy + count + 1);
    for (size_t i = 0; i < count; i++) {
        copy[i] = at;
        at = stpcpy(at, texts[i]) + 1;
    }
    return copy;
}

/* There are no files where a worker is, and a client has none of this host anyway. */
static int no_paths(const struct kernel_grants *given, struct error *err)
{
    if (list_count(given->read_paths) + list_count(given->write_paths) == 0)
        return 0;
    return error_set(
        err, "bad_manifest", 0,
        "\"%s\" names paths of the host, which no client of the API may: use `cove js` "
        "or @cove/node, which run as yourself, or a sandbox",
        list_count(given->read_paths) > 0 ? "allowed_read_paths" : "allowed_write_paths");
}

static size_t list_bytes(const char *const *texts)
{
    size_t bytes = 0;

    for (; texts != NULL && *texts != NULL; texts++)
        bytes += strlen(*texts) + 1;
    return bytes;
}

/* They are kept for as long as the kernel is, and are shown with it in each list. */
static int size_check(const struct kernel_grants *given, const char *const *labels,
                      struct error *err)
{
    size_t bytes = list_bytes(given->hosts) + list_bytes(given->env) + list_bytes(given->tools) +
                   list_bytes(labels);

    if (bytes <= KERNELS_SPEC_MAX)
        return 0;
    return error_set(err, "bad_manifest", 0,
                     "the labels, hosts, variables and tools of a kernel have %zu bytes together, "
                     "and %u is the most: give it large values in its code",
                     bytes, KERNELS_SPEC_MAX);
}

int grants_new(struct engine *engine, const struct kernel_grants *given, const char *const *labels,
               struct grants **out, struct error *err)
{
    struct kernel_manifest *manifest;
    struct grants *grants;

    if (no_paths(given, err) != 0 || size_check(given, labels, err) != 0)
        return -1;
    if (kernel_manifest_new(given, &manifest, err) != 0) {
        if (strcmp(err->code, "no_memory") != 0)
            (void)snprintf(err->code, sizeof(err->code), "bad_manifest");
        return -1;
    }
    if (policy_bound_check(net_bound(engine->net), kernel_manifest_policy(manifest), err) != 0) {
        kernel_manifest_free(manifest);
        return -1;
    }
    grants = engine_alloc(sizeof(*grants));
    grants->holds = 1;
    grants->manifest = manifest;
    grants->labels = texts_copy(labels);
    grants->given = (struct kernel_grants){
        .hosts = (const char *const *)texts_copy(given->hosts),
        .env = (const char *const *)texts_copy(given->env),
        .tools = (const char *const *)texts_copy(given->tools),
        .cpu_ms = given->cpu_ms != 0 ? given->cpu_ms : KERNEL_CPU_MS_DEFAULT,
        .wall_ms = given->wall_ms != 0 ? given->wall_ms : KERNEL_WALL_MS_DEFAULT,
        .memory_bytes = given->memory_bytes != 0 ? given->memory_bytes : KERNEL_MEMORY_DEFAULT,
    };
    *out = grants;
    return 0;
}

struct grants *grants_hold(struct grants *grants)
{
    grants->holds++;
    return grants;
}

void grants_drop(struct grants *grants)
{
    if (grants == NULL || --grants->holds > 0)
        return;
    kernel_manifest_free(grants->manifest);
    free((void *)grants->labels);
    free((void *)(uintptr_t)grants->given.hosts);
    free((void *)(uintptr_t)grants->given.env);
    free((void *)(uintptr_t)grants->given.tools);
    free(grants);
}
