/* What sandboxes use: see usage.h. */
#include "cmd/usage.h"

#include "cmd/api.h"

#include <string.h>
#include <time.h>

#define ANSWER_MS 10000 /* one sandbox that does not answer must not hold up the others */
#define PATIENCE_S 10   /* with a server that says all the time that it is asked too often */

/* How long the server wants to be left alone; at least a second. */
static unsigned wait_s(const struct client *client)
{
    const char *text = client_header(client, "retry-after");
    unsigned seconds = 0;

    for (; text != NULL && *text >= '0' && *text <= '9' && seconds <= PATIENCE_S; text++)
        seconds = seconds * 10 + (unsigned)(*text - '0');
    return seconds == 0 ? 1 : seconds;
}

/* As client_call(), but does as it is told where it asks too often: for so many questions it may. */
static int patient_call(struct client *client, const struct client_request *request,
                        unsigned *patience_s, struct doc **answer, struct error *err)
{
    for (;;) {
        struct timespec pause = {0};
        unsigned wait;

        if (client_call(client, request, answer, err) == 0)
            return 0;
        wait = wait_s(client);
        if (strcmp(err->code, "too_many_requests") != 0 || wait > *patience_s)
            return -1;
        *patience_s -= wait;
        pause.tv_sec = (time_t)wait;
        (void)nanosleep(&pause, NULL);
    }
}

/* Whether the next sandbox would fare no better: no server, or none for who asks. */
static bool is_for_all(const struct error *err)
{
    static const char *const codes[] = {"bad_key", "no_key", "forbidden"};

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (strcmp(err->code, codes[i]) == 0)
            return true;
    return client_was_cut(err);
}

/* Adds what it uses. Where that cannot be known (it may be gone by now), nothing is added. */
static int one_fetch(struct client *client, struct doc *sandbox, unsigned *patience_s,
                     struct error *err)
{
    const char *state = doc_text(sandbox, "state");
    const char *id = doc_text(sandbox, "id");
    struct doc *usage = NULL;
    char path[API_PATH_MAX];
    const struct client_request request = {.path = path, .answer_ms = ANSWER_MS};

    if (state == NULL || id == NULL)
        return 0;
    if (api_sandbox_path(path, id, "/usage", err) < 0)
        return 0;
    if (patient_call(client, &request, patience_s, &usage, err) < 0)
        return is_for_all(err) ? -1 : 0;
    return usage == NULL || doc_set(sandbox, "usage", usage) == 0 ? 0 : option_no_memory(err);
}

int usage_fetch(struct client *client, bool all_tenants, struct doc **sandboxes, struct error *err)
{
    const char *path = all_tenants ? "/v1/sandboxes?limit=500&all_tenants=true"
                                   : "/v1/sandboxes?limit=500";
    unsigned patience_s = PATIENCE_S;

    if (api_list(client, path, "sandboxes", sandboxes, err) < 0)
        return -1;
    for (size_t i = 0; i < doc_count(*sandboxes); i++)
        if (one_fetch(client, doc_at_own(*sandboxes, i), &patience_s, err) < 0) {
            doc_freep(sandboxes);
            return -1;
        }
    return 0;
}
