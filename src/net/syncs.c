/* What was noted is put to disk: fdatasync(), in libuv's pool, whose threads all tenants share. So few run at once,
 * and one of each tenant; the rest wait, tenant by tenant in turn. A tenant with a thousand boxes that all ask for
 * new names holds up another's work for one fdatasync(). */
#include "net/parts.h"

#include "base/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define AT_ONCE 2

struct sync {
    struct syncs *syncs;
    uv_fs_t request;
    int fd;
    char *tenant;
    syncs_done done;
    void *arg;
    TAILQ_ENTRY(sync) link;
};

TAILQ_HEAD(sync_list, sync);

struct syncs {
    uv_loop_t *loop;
    struct sync_list waiting, running;
    unsigned running_count;
    bool is_closed;
    void (*closed)(void *arg);
    void *closed_arg;
};

int syncs_open(uv_loop_t *loop, struct syncs **out, struct error *err)
{
    struct syncs *syncs = calloc(1, sizeof(*syncs));

    if (syncs == NULL)
        return error_set(err, "net_failed", ENOMEM, "cannot prepare the network of boxes");
    syncs->loop = loop;
    TAILQ_INIT(&syncs->waiting);
    TAILQ_INIT(&syncs->running);
    *out = syncs;
    return 0;
}

static void close_if_over(struct syncs *syncs)
{
    void (*closed)(void *arg) = syncs->closed;
    void *arg = syncs->closed_arg;

    if (!syncs->is_closed || syncs->running_count > 0)
        return;
    free(syncs);
    if (closed != NULL)
        closed(arg);
}

static void sync_end(struct sync *sync, int status)
{
    syncs_done done = sync->done;
    void *arg = sync->arg;

    fd_close(&sync->fd);
    free(sync->tenant);
    free(sync);
    done(arg, status);
}

void syncs_close(struct syncs *syncs, void (*closed)(void *arg), void *arg)
{
    struct sync *sync = NULL;

    while ((sync = TAILQ_FIRST(&syncs->waiting)) != NULL) {
        TAILQ_REMOVE(&syncs->waiting, sync, link);
        sync_end(sync, UV_ECANCELED);
    }
    syncs->is_closed = true;
    syncs->closed = closed;
    syncs->closed_arg = arg;
    close_if_over(syncs);
}

static bool has_running(const struct syncs *syncs, const char *tenant)
{
    const struct sync *sync = NULL;

    TAILQ_FOREACH(sync, &syncs->running, link)
    {
        if (strcmp(sync->tenant, tenant) == 0)
            return true;
    }
    return false;
}

static void start_some(struct syncs *syncs);

static void on_synced(uv_fs_t *request)
{
    struct sync *sync = request->data;
    struct syncs *syncs = sync->syncs;
    int status = (int)request->result;

    uv_fs_req_cleanup(request);
    TAILQ_REMOVE(&syncs->running, sync, link);
    /* Counted until it was told: what is told may ask for the next, or close. */
    sync_end(sync, status);
    syncs->running_count--;
    start_some(syncs);
    close_if_over(syncs);
}

/* A tenant that had its turn stands behind all others. */
static void line_up_again(struct syncs *syncs, const char *tenant)
{
    struct sync *last = TAILQ_LAST(&syncs->waiting, sync_list);
    struct sync *sync = TAILQ_FIRST(&syncs->waiting), *next;

    for (; sync != NULL; sync = next) {
        next = sync == last ? NULL : TAILQ_NEXT(sync, link);
        if (strcmp(sync->tenant, tenant) != 0)
            continue;
        TAILQ_REMOVE(&syncs->waiting, sync, link);
        TAILQ_INSERT_TAIL(&syncs->waiting, sync, link);
    }
}

static struct sync *first_of_all(const struct syncs *syncs)
{
    struct sync *sync = NULL;

    TAILQ_FOREACH(sync, &syncs->waiting, link)
    {
        if (!has_running(syncs, sync->tenant))
            return sync;
    }
    return NULL;
}

static void start_some(struct syncs *syncs)
{
    struct sync *sync = NULL;

    while (syncs->running_count < AT_ONCE && (sync = first_of_all(syncs)) != NULL) {
        TAILQ_REMOVE(&syncs->waiting, sync, link);
        TAILQ_INSERT_TAIL(&syncs->running, sync, link);
        syncs->running_count++;
        line_up_again(syncs, sync->tenant);
        sync->request.data = sync;
        /* It fails only without a callback. */
        if (uv_fs_fdatasync(syncs->loop, &sync->request, sync->fd, on_synced) < 0)
            abort();
    }
}

int syncs_ask(struct syncs *syncs, const char *tenant, int fd, syncs_done done, void *arg)
{
    struct sync *sync = calloc(1, sizeof(*sync));
    char *copy = strdup(tenant);

    if (sync == NULL || copy == NULL) {
        free(sync);
        free(copy);
        fd_close(&fd);
        return -1;
    }
    sync->syncs = syncs;
    sync->fd = fd;
    sync->tenant = copy;
    sync->done = done;
    sync->arg = arg;
    TAILQ_INSERT_TAIL(&syncs->waiting, sync, link);
    start_some(syncs);
    return 0;
}
