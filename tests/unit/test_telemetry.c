/* The end of telemetry where a name server never answers: who ends the engine waits for seconds at most.
 *
 * The resolver that libcurl finds here is this program's own, which hangs. */
#include "base/clock.h"
#include "check.h"
#include "front/native/telemetry.h"

#include <netdb.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static atomic_bool is_asked;

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **found)
{
    (void)name;
    (void)service;
    (void)hints;
    *found = NULL;
    is_asked = true;
    for (;;)
        (void)pause();
}

int main(void)
{
    struct telemetry_options options = {
        .endpoint = "http://collector.test:4318", .service = "cove", .version = "0", .headers = -1};
    struct telemetry_span span = {.name = "GET", .trace = {1}, .id = {1}};
    struct telemetry *telemetry;
    uint64_t before;
    struct error err;

    CHECK(telemetry_open(&options, &telemetry, &err) == 0, "%s", err.text);
    if (check_failed > 0)
        return check_finish();
    telemetry_add(telemetry, &span);
    while (!is_asked)
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    before = clock_monotonic_ns();
    telemetry_close(telemetry);
    CHECK(clock_monotonic_ns() - before < 30000000000U, "it took too long");
    return check_finish();
}
