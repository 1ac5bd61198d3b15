/* What a network adds to a create that the pool answers: create and first command, with the policy "none" and
 * with "public", in turn.
 *
 * usage: net_create OUT SOCKET ROUNDS
 * Talks to a `cove serve` that bench/net.py has started and will end. */
#include "client.h"
#include "series.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAUSE_NS (25 * 1000000L) /* before and after each: the pool fills up again meanwhile */

static struct client client;

static _Noreturn void fail(const char *what)
{
    (void)fprintf(stderr, "bench: %s: the engine answers %d %s\n", what, client.status,
                  client.body);
    exit(1);
}

static void call(const char *method, const char *rest, const char *body, int status)
{
    char path[256];
    struct request request;

    (void)snprintf(path, sizeof(path), "/v1/sandboxes%s%s%s", rest != NULL ? "/" : "",
                   rest != NULL ? client.id : "", rest != NULL ? rest : "");
    request = request_new(method, path, body);
    if (client_call(&client, &request, NULL) != status)
        fail(method);
    request_free(&request);
}

static void pause_some(void)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};

    (void)nanosleep(&pause, NULL);
}

static void create_first(const char *spec, struct series *series)
{
    uint64_t begun;

    pause_some();
    begun = series_now_ns();
    call("POST", NULL, spec, 201);
    if (!client_text(&client, "id", client.id, sizeof(client.id)))
        fail("no sandbox");
    call("POST", "/exec", "{\"argv\":[\"/bin/true\"]}", 200);
    series_add(series, series_now_ns() - begun);
    pause_some();
    call("DELETE", "", NULL, 204);
}

int main(int argc, char **argv)
{
    size_t rounds = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
    FILE *out = rounds > 0 ? fopen(argv[1], "we") : NULL;
    struct series none, public;

    if (out == NULL)
        return 2;
    series_init(&none, "create_none", "ns", rounds);
    series_init(&public, "create_public", "ns", rounds);
    client_open(&client, argv[2]);
    for (size_t i = 0; i < rounds; i++) {
        create_first("{\"disk_kind\":\"ephemeral\",\"network\":{\"mode\":\"none\"}}", &none);
        create_first("{\"disk_kind\":\"ephemeral\",\"network\":{\"mode\":\"public\"}}", &public);
    }
    client_close(&client);
    return series_write(&none, out) == 0 && series_write(&public, out) == 0 && fclose(out) == 0 ? 0
                                                                                                : 1;
}
