/* The manifest: what code may reach, parsed once. Paths are opened here, so that a grant is of what lay there
 * when it was given; only what is below these descriptors is ever opened. */
#include "base/fd.h"
#include "kernel/meta.h"
#include "kernel/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* ---- paths ---- */

int path_normal(const char *path, char normal[PATH_MAX])
{
    size_t used = 0;

    if (path[0] != '/' || strlen(path) >= PATH_MAX)
        return -1;
    while (*path != 0) {
        size_t size;

        while (*path == '/')
            path++;
        size = strcspn(path, "/");
        if (size == 2 && memcmp(path, "..", 2) == 0) {
            while (used > 0 && normal[--used] != '/')
                continue;
        } else if (size > 0 && !(size == 1 && *path == '.')) {
            normal[used++] = '/';
            memcpy(normal + used, path, size);
            used += size;
        }
        path += size;
    }
    if (used == 0)
        normal[used++] = '/';
    normal[used] = 0;
    return 0;
}

bool path_is_proc(int fd)
{
    struct statfs about;

    return fstatfs(fd, &about) < 0 || about.f_type == PROC_SUPER_MAGIC;
}

static int grant_check(const struct grant *grant, const char *path, struct error *err)
{
    struct stat about;

    if (path_is_proc(grant->dir))
        return error_set(err, "bad_manifest", 0,
                         "the path '%s' cannot be granted: what /proc shows is this process itself",
                         path);
    if (grant->name != NULL && fstatat(grant->dir, grant->name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
        !S_ISREG(about.st_mode))
        return error_set(err, "bad_manifest", 0,
                         "the path '%s' cannot be granted: it is no directory and no file", path);
    return 0;
}

static int grant_open(struct grant *grant, const char *path, bool write, struct error *err)
{
    char normal[PATH_MAX], *slash;

    grant->dir = -1;
    if (path_normal(path, normal) < 0)
        return error_set(err, "bad_manifest", 0, "the path '%s' is not absolute, or too long",
                         path);
    grant->path = strdup(normal);
    if (grant->path == NULL)
        return error_set(err, "no_memory", ENOMEM, "a manifest");
    grant->dir = open(normal, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (grant->dir >= 0)
        return grant_check(grant, path, err);
    if (errno != ENOTDIR && !(errno == ENOENT && write))
        return error_set(err, "bad_manifest", errno, "the path '%s' cannot be granted", path);
    /* A file, that there is or that is to be: its directory and its name. */
    slash = strrchr(normal, '/');
    grant->name = strdup(slash + 1);
    *(slash == normal ? slash + 1 : slash) = 0;
    grant->dir = open(normal, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (grant->name == NULL || grant->dir < 0)
        return error_set(err, "bad_manifest", errno, "the path '%s' cannot be granted", path);
    return grant_check(grant, path, err);
}

static size_t count_of(const char *const *list)
{
    size_t count = 0;

    while (list != NULL && list[count] != NULL)
        count++;
    return count;
}

static int grants_open(const char *const *paths, bool write, struct grant **grants, size_t *count,
                       struct error *err)
{
    size_t wanted = count_of(paths);

    if (wanted == 0)
        return 0;
    *grants = calloc(wanted, sizeof(**grants));
    if (*grants == NULL)
        return error_set(err, "no_memory", ENOMEM, "a manifest");
    for (size_t i = 0; i < wanted; i++) {
        int status = grant_open(&(*grants)[i], paths[i], write, err);

        (*count)++;
        if (status < 0)
            return -1;
    }
    return 0;
}

static void grants_free(struct grant *grants, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fd_close(&grants[i].dir);
        free(grants[i].path);
        free(grants[i].name);
    }
    free(grants);
}

/* ---- what the prelude is told ---- */

static int env_put(struct meta_text *text, const char *const *env, struct error *err)
{
    meta_put(text, "{\"env\":{");
    for (size_t i = 0; i < count_of(env); i++) {
        const char *equals = strchr(env[i], '=');

        if (equals == NULL || equals == env[i])
            return error_set(err, "bad_manifest", 0, "'%s' is no variable: NAME=VALUE", env[i]);
        if (i > 0)
            meta_put(text, ",");
        meta_put_string(text, env[i], (size_t)(equals - env[i]));
        meta_put(text, ":");
        meta_put_string(text, equals + 1, strlen(equals + 1));
    }
    meta_put(text, "}");
    return 0;
}

static void list_put(struct meta_text *text, const char *name, const char *const *list)
{
    meta_put(text, ",\"");
    meta_put(text, name);
    meta_put(text, "\":[");
    for (size_t i = 0; i < count_of(list); i++) {
        if (i > 0)
            meta_put(text, ",");
        meta_put_string(text, list[i], strlen(list[i]));
    }
    meta_put(text, "]");
}

static int configuration_make(struct kernel_manifest *manifest, const struct kernel_grants *grants,
                              struct error *err)
{
    const char *paths[2 * KERNEL_GRANTS_MAX + 1];
    struct meta_text text = {0};
    size_t count = 0;

    if (count_of(grants->env) + count_of(grants->argv) + count_of(grants->tools) +
            manifest->reads_count + manifest->writes_count + count_of(grants->hosts) ==
        0)
        return 0;
    if (env_put(&text, grants->env, err) < 0) {
        free(text.data);
        return -1;
    }
    list_put(&text, "argv", grants->argv);
    list_put(&text, "tools", grants->tools);
    list_put(&text, "hosts", grants->hosts);
    for (size_t i = 0; i < manifest->reads_count; i++)
        paths[count++] = manifest->reads[i].path;
    paths[count] = NULL;
    list_put(&text, "reads", paths);
    count = 0;
    for (size_t i = 0; i < manifest->writes_count; i++)
        paths[count++] = manifest->writes[i].path;
    paths[count] = NULL;
    list_put(&text, "writes", paths);
    meta_put(&text, "}");
    if (text.failed)
        return error_set(err, "no_memory", ENOMEM, "a manifest");
    manifest->configuration = text.data;
    manifest->configuration_size = text.size;
    return 0;
}

static int tools_take(struct kernel_manifest *manifest, const char *const *tools, struct error *err)
{
    size_t count = count_of(tools);

    manifest->tools = calloc(count + 1, sizeof(*manifest->tools));
    if (manifest->tools == NULL)
        return error_set(err, "no_memory", ENOMEM, "a manifest");
    for (size_t i = 0; i < count; i++) {
        manifest->tools[i] = strdup(tools[i]);
        if (manifest->tools[i] == NULL)
            return error_set(err, "no_memory", ENOMEM, "a manifest");
        manifest->tools_count++;
    }
    return 0;
}

bool kernel_manifest_has_tool(const struct kernel_manifest *manifest, const char *name, size_t size)
{
    for (size_t i = 0; i < manifest->tools_count; i++)
        if (strlen(manifest->tools[i]) == size && memcmp(manifest->tools[i], name, size) == 0)
            return true;
    return false;
}

/* ---- all of it ---- */

static int limits_check(const struct kernel_grants *grants, struct error *err)
{
    const struct {
        const char *what;
        size_t count;
    } lists[] = {{"hosts", count_of(grants->hosts)},
                 {"read paths", count_of(grants->read_paths)},
                 {"write paths", count_of(grants->write_paths)},
                 {"variables", count_of(grants->env)},
                 {"tools", count_of(grants->tools)},
                 {"arguments", count_of(grants->argv)}};

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        if (lists[i].count > KERNEL_GRANTS_MAX)
            return error_set(err, "bad_manifest", 0, "%zu %s are too many: at most %u",
                             lists[i].count, lists[i].what, KERNEL_GRANTS_MAX);
    if (grants->cpu_ms > KERNEL_MS_MAX || grants->wall_ms > KERNEL_MS_MAX)
        return error_set(err, "bad_manifest", 0, "a limit of time is at most %u ms", KERNEL_MS_MAX);
    if (grants->memory_bytes > KERNEL_MEMORY_MAX)
        return error_set(err, "bad_manifest", 0, "the limit of memory is at most %llu bytes",
                         KERNEL_MEMORY_MAX);
    return 0;
}

static int manifest_fill(struct kernel_manifest *manifest, const struct kernel_grants *grants,
                         struct error *err)
{
    if (limits_check(grants, err) < 0 ||
        policy_new_hosts(grants->hosts, &manifest->policy, err) < 0 ||
        grants_open(grants->read_paths, false, &manifest->reads, &manifest->reads_count, err) < 0 ||
        grants_open(grants->write_paths, true, &manifest->writes, &manifest->writes_count, err) <
            0 ||
        tools_take(manifest, grants->tools, err) < 0 ||
        configuration_make(manifest, grants, err) < 0)
        return -1;
    manifest->cpu_ms = grants->cpu_ms != 0 ? grants->cpu_ms : KERNEL_CPU_MS_DEFAULT;
    manifest->wall_ms = grants->wall_ms != 0 ? grants->wall_ms : KERNEL_WALL_MS_DEFAULT;
    manifest->memory_bytes = grants->memory_bytes != 0 ? grants->memory_bytes
                                                       : KERNEL_MEMORY_DEFAULT;
    return 0;
}

int kernel_manifest_new(const struct kernel_grants *grants, struct kernel_manifest **out,
                        struct error *err)
{
    struct kernel_manifest *manifest = calloc(1, sizeof(*manifest));

    if (manifest == NULL)
        return error_set(err, "no_memory", ENOMEM, "a manifest");
    if (manifest_fill(manifest, grants, err) < 0) {
        kernel_manifest_free(manifest);
        return -1;
    }
    *out = manifest;
    return 0;
}

void kernel_manifest_free(struct kernel_manifest *manifest)
{
    if (manifest == NULL)
        return;
    policy_free(manifest->policy);
    grants_free(manifest->reads, manifest->reads_count);
    grants_free(manifest->writes, manifest->writes_count);
    for (size_t i = 0; i < manifest->tools_count; i++)
        free(manifest->tools[i]);
    free(manifest->tools);
    free(manifest->configuration);
    free(manifest);
}

void kernel_manifest_freep(struct kernel_manifest **manifest)
{
    kernel_manifest_free(*manifest);
}

const struct policy *kernel_manifest_policy(const struct kernel_manifest *manifest)
{
    return manifest->policy;
}
