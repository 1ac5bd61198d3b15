/* What sandboxes use: see usage.h. */
#include "cmd/usage.h"

#include "cmd/api.h"

#include <string.h>

/* Adds what it uses. That it is gone by now is no error. */
static int one_fetch(struct client *client, struct doc *sandbox, struct error *err)
{
    const char *state = doc_text(sandbox, "state");
    const char *id = doc_text(sandbox, "id");
    struct doc *usage = NULL;
    char path[API_PATH_MAX];
    const struct client_request request = {.path = path};

    if (state == NULL || id == NULL || strcmp(state, "running") != 0)
        return 0;
    if (api_sandbox_path(path, id, "/usage", err) < 0)
        return -1;
    if (client_call(client, &request, &usage, err) < 0)
        return strncmp(err->code, "sandbox_", 8) == 0 ? 0 : -1;
    return usage == NULL || doc_set(sandbox, "usage", usage) == 0 ? 0 : option_no_memory(err);
}

int usage_fetch(struct client *client, struct doc **sandboxes, struct error *err)
{
    if (api_list(client, "/v1/sandboxes?limit=500", "sandboxes", sandboxes, err) < 0)
        return -1;
    for (size_t i = 0; i < doc_count(*sandboxes); i++)
        if (one_fetch(client, doc_at_own(*sandboxes, i), err) < 0) {
            doc_freep(sandboxes);
            return -1;
        }
    return 0;
}
