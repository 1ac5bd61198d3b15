/* Manifests, shared by all contexts that were given the same: most of a tenant's are, and thousands may live. */
#include "kernel/worker/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEPT 8U /* that nobody may be using */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct grants *kept[KEPT];
static unsigned next;

static void drop_one(struct grants *grants)
{
    if (grants == NULL || --grants->refs > 0)
        return;
    kernel_manifest_free(grants->manifest);
    free(grants);
}

void grants_share(struct grants *grants)
{
    (void)pthread_mutex_lock(&lock);
    grants->refs++;
    (void)pthread_mutex_unlock(&lock);
}

void grants_drop(struct grants *grants)
{
    (void)pthread_mutex_lock(&lock);
    drop_one(grants);
    (void)pthread_mutex_unlock(&lock);
}

static struct grants *find(const uint8_t *bytes, size_t size)
{
    struct grants *found = NULL;

    (void)pthread_mutex_lock(&lock);
    for (size_t i = 0; i < KEPT && found == NULL; i++)
        if (kept[i] != NULL && kept[i]->size == size && memcmp(kept[i]->bytes, bytes, size) == 0)
            found = kept[i];
    if (found != NULL)
        found->refs++;
    (void)pthread_mutex_unlock(&lock);
    return found;
}

static int parse(struct grants *grants, struct error *err)
{
    struct wire_reader reader = wire_reader(grants->bytes, grants->size);
    struct kernel_grants given;
    const char **room;
    int status;

    wire_read_grants(&reader, &given, &room);
    if (room == NULL)
        return error_set(err, "no_memory", ENOMEM, "a manifest");
    if (!wire_is_done(&reader))
        worker_die();
    status = kernel_manifest_new(&given, &grants->manifest, err);
    free(room);
    return status;
}

struct grants *grants_get(const uint8_t *bytes, size_t size, struct error *err)
{
    struct grants *grants = find(bytes, size);

    if (grants != NULL)
        return grants;
    grants = malloc(sizeof(*grants) + size);
    if (grants == NULL) {
        error_set(err, "no_memory", ENOMEM, "a manifest");
        return NULL;
    }
    *grants = (struct grants){.refs = 2, .size = size};
    memcpy(grants->bytes, bytes, size);
    if (parse(grants, err) < 0) {
        free(grants);
        return NULL;
    }
    (void)pthread_mutex_lock(&lock);
    drop_one(kept[next]);
    kept[next] = grants;
    next = (next + 1) % KEPT;
    (void)pthread_mutex_unlock(&lock);
    return grants;
}
