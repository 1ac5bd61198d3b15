/* The routes: one row each, in the order of openapi.yaml; and the native itself. A new route is a row
 * here, a handler in parts.h, and a path in openapi.yaml: a test compares the table with that. */
#include "front/native/parts.h"

#include <stdlib.h>
#include <string.h>

#define SANDBOX "/v1/sandboxes/{id}"
#define FILES SANDBOX "/files"
#define KERNEL "/v1/kernels/{id}"
#define PROCESS SANDBOX "/processes/{pid}"

static const struct native_route rows[] = {
    {{"GET", "/healthz", host_health, 0}, true},
    {{"GET", "/readyz", host_ready, 0}, true},
    {{"GET", "/metrics", metrics_page, 0}, false},
    {{"GET", "/v1/version", host_version, 0}, true},
    {{"GET", "/v1/openapi.yaml", host_openapi, 0}, true},
    {{"GET", "/v1/roots", host_roots, 0}, false},
    {{"GET", "/v1/capacity", capacity_get, 0}, false},
    {{"POST", "/v1/sandboxes", sandbox_create, 0}, false},
    {{"GET", "/v1/sandboxes", sandbox_list, 0}, false},
    {{"GET", SANDBOX, sandbox_get, 0}, false},
    {{"PATCH", SANDBOX, sandbox_patch, 0}, false},
    {{"DELETE", SANDBOX, sandbox_delete, 0}, false},
    {{"POST", SANDBOX "/start", sandbox_start, 0}, false},
    {{"POST", SANDBOX "/stop", sandbox_stop, 0}, false},
    {{"GET", SANDBOX "/usage", usage_get, 0}, false},
    {{"GET", SANDBOX "/network", network_get, 0}, false},
    {{"POST", SANDBOX "/mounts", mount_add, 0}, false},
    {{"DELETE", SANDBOX "/mounts", mount_remove, 0}, false},
    {{"GET", SANDBOX "/ports", port_list, 0}, false},
    {{"POST", SANDBOX "/ports", port_open, 0}, false},
    {{"DELETE", SANDBOX "/ports/{port}", port_close, 0}, false},
    {{"*", SANDBOX "/ports/{port}/**", port_reach, HTTP_STREAM_BODY}, false},
    {{"GET", SANDBOX "/tunnels/{port}", port_tunnel, HTTP_STREAM_BODY}, false},
    {{"POST", SANDBOX "/exec", run_exec, 0}, false},
    {{"POST", SANDBOX "/processes", run_start, 0}, false},
    {{"GET", SANDBOX "/processes", process_list, 0}, false},
    {{"GET", PROCESS, process_get, 0}, false},
    {{"DELETE", PROCESS, process_delete, 0}, false},
    {{"GET", PROCESS "/wait", process_wait, 0}, false},
    {{"GET", PROCESS "/output", process_output, 0}, false},
    {{"GET", PROCESS "/follow", process_follow, 0}, false},
    {{"GET", PROCESS "/terminal", process_terminal, 0}, false},
    {{"POST", PROCESS "/stdin", process_stdin, HTTP_STREAM_BODY}, false},
    {{"POST", PROCESS "/signal", process_signal, 0}, false},
    {{"POST", SANDBOX "/tokens", token_make, 0}, false},
    {{"DELETE", SANDBOX "/tokens", tokens_end, 0}, false},
    {{"POST", SANDBOX "/urls", token_sign, 0}, false},
    {{"GET", FILES, files_get, 0}, false},
    {{"PUT", FILES, files_put, HTTP_STREAM_BODY}, false},
    {{"POST", FILES, files_post, HTTP_STREAM_BODY}, false},
    {{"GET", FILES "/stat", files_stat, 0}, false},
    {{"POST", FILES "/stat", files_stat_many, 0}, false},
    {{"GET", FILES "/list", files_list, 0}, false},
    {{"POST", FILES "/mkdir", files_mkdir, 0}, false},
    {{"POST", FILES "/move", files_move, 0}, false},
    {{"POST", FILES "/copy", files_copy, 0}, false},
    {{"POST", FILES "/remove", files_remove, 0}, false},
    {{"POST", FILES "/chmod", files_chmod, 0}, false},
    {{"POST", FILES "/chown", files_chown, 0}, false},
    {{"POST", FILES "/symlink", files_symlink, 0}, false},
    {{"GET", FILES "/xattr", files_xattr_get, 0}, false},
    {{"PUT", FILES "/xattr", files_xattr_put, 0}, false},
    {{"DELETE", FILES "/xattr", files_xattr_delete, 0}, false},
    {{"POST", FILES "/find", files_find, 0}, false},
    {{"POST", FILES "/grep", files_grep, 0}, false},
    {{"GET", FILES "/watch", files_watch, 0}, false},
    {{"GET", SANDBOX "/tar", files_tar_get, 0}, false},
    {{"PUT", SANDBOX "/tar", files_tar_put, HTTP_STREAM_BODY}, false},
    {{"POST", "/v1/kernels/run", kernels_run_once, 0}, false},
    {{"POST", "/v1/kernels/restore", kernels_restore, HTTP_STREAM_BODY}, false},
    {{"GET", "/v1/kernels/connect", kernels_connect, 0}, false},
    {{"POST", "/v1/kernels", kernels_create, 0}, false},
    {{"GET", "/v1/kernels", kernels_list, 0}, false},
    {{"GET", KERNEL, kernels_get, 0}, false},
    {{"DELETE", KERNEL, kernels_delete, 0}, false},
    {{"POST", KERNEL "/run", kernels_run_in, 0}, false},
    {{"POST", KERNEL "/reset", kernels_reset, 0}, false},
    {{"POST", KERNEL "/fork", kernels_fork, 0}, false},
    {{"POST", KERNEL "/snapshot", kernels_snapshot, 0}, false},
    {{"GET", "/v1/events", events_stream, 0}, false},
    {{"POST", "/v1/keys", key_make, 0}, false},
    {{"GET", "/v1/keys", key_list, 0}, false},
    {{"DELETE", "/v1/keys/{id}", key_end, 0}, false},
    {{"GET", "/v1/tenants/{name}/quota", quota_get, 0}, false},
    {{"PUT", "/v1/tenants/{name}/quota", quota_put, 0}, false},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

const struct native_route *routes_row(size_t index)
{
    return index < ROWS ? &rows[index] : NULL;
}

/* As sent, without decoding: "/%68ealthz" needs a key. */
bool routes_path_is_open(const char *path)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].is_open && strcmp(rows[i].route.pattern, path) == 0)
            return true;
    return false;
}

/* ---- the native ---- */

/* One block: pointers first. */
static char **copy_hosts(const char *const *hosts)
{
    size_t count = 0;
    size_t size = 0;
    char **list;
    char *at;

    for (; hosts != NULL && hosts[count] != NULL; count++)
        size += strlen(hosts[count]) + 1;
    list = malloc((count + 1) * sizeof(*list) + size);
    if (list == NULL)
        return NULL;
    at = (char *)(list + count + 1);
    for (size_t i = 0; i < count; i++) {
        list[i] = at;
        at = stpcpy(at, hosts[i]) + 1;
    }
    list[count] = NULL;
    return list;
}

int native_new(const struct native_options *options, struct native **out, struct error *err)
{
    struct native *native = calloc(1, sizeof(*native));

    if (native == NULL)
        return error_set(err, "no_memory", 0, "there is no memory for the native API");
    native->options = *options;
    native->options.hosts = NULL;
    native->routes = calloc(ROWS, sizeof(*native->routes));
    native->metrics.routes = calloc(ROWS + 1, sizeof(*native->metrics.routes));
    native->metrics.started_ms = job_wall_ms();
    native->routes_count = ROWS;
    native->once = once_table_new();
    native->hosts = copy_hosts(options->hosts);
    native->options.port_domain = NULL;
    native->port_domain = options->port_domain != NULL ? strdup(options->port_domain) : NULL;
    if (native->routes == NULL || native->metrics.routes == NULL || native->once == NULL ||
        metrics_open(native) < 0 || native->hosts == NULL ||
        (options->port_domain != NULL && native->port_domain == NULL)) {
        native_free(native);
        return error_set(err, "no_memory", 0, "there is no memory for the native API");
    }
    for (size_t i = 0; i < ROWS; i++)
        native->routes[i] = rows[i].route;
    besides_open(native);
    streams_open(native);
    *out = native;
    return 0;
}

void native_fill(struct native *native, struct http_options *http)
{
    http->routes = native->routes;
    http->routes_count = ROWS;
    http->data = native;
    http->limits.backlog_bytes = NATIVE_BACKLOG;
    http->limits.waiting_bytes = (size_t)engine_memory_kept();
    http->find_owner = admit_find_owner;
    http->admit = admit_request;
    http->handle = bodies_take;
    http->refuse = admit_refuse;
    http->over = account_over;
}

void native_count(struct native *native, struct http_server *server)
{
    native->server = server;
}

void native_stop(struct native *native)
{
    native->is_draining = native->is_stopping = true;
}

size_t native_busy(const struct native *native)
{
    return native->jobs;
}

void native_drain(struct native *native)
{
    native->is_draining = true;
    watchers_drain(native);
    while (native->waiting != NULL) {
        struct job *job = native->waiting;
        void (*drain)(struct job * job) = job->drain;

        job_on_drain(job, NULL);
        drain(job);
    }
}

void native_free(struct native *native)
{
    if (native == NULL)
        return;
    watchers_close(native);
    streams_close(native);
    callers_close(native);
    account_shares_forget(&native->account.shares);
    metrics_close(native);
    once_table_free(native->once);
    out_free(&native->out);
    out_free(&native->account_out);
    free(native->hosts);
    free(native->port_domain);
    free(native->routes);
    free(native->metrics.routes);
    free(native);
}
