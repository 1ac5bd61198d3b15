/* See test_clock.h. The loop reads the news where it waits. The next turn takes the new time and runs the timers
 * that are due, and then comes here before it waits again: all of them have run. */
#include "front/test_clock.h"

#include "base/parse.h"
#include "base/set_clock.h"

#include <limits.h>
#include <stdlib.h>

static void heard(uv_poll_t *news, int status, int events)
{
    struct test_clock *clock = news->data;

    (void)status;
    (void)events;
    clock->asked = set_clock_heard();
}

static void turned(uv_prepare_t *prepare)
{
    const struct test_clock *clock = prepare->data;

    set_clock_ran(SET_CLOCK_ENGINE, clock->asked);
}

int test_clock_open(struct test_clock *clock, uv_loop_t *loop, struct error *err)
{
    const char *first = getenv("COVE_TEST_CLOCK_FD"); // NOLINT(concurrency-mt-unsafe): no thread
    uint64_t fd;

    if (first == NULL)
        return 0;
    if (parse_count("COVE_TEST_CLOCK_FD", first, 0, INT_MAX, &fd, err) != 0 ||
        set_clock_take((int)fd, err) != 0)
        return -1;
    clock->asked = set_clock_heard();
    if (uv_poll_init(loop, &clock->news, set_clock_news()) != 0 ||
        uv_prepare_init(loop, &clock->turned) != 0)
        return error_set(err, "bad_start", 0, "the loop cannot wait for a test's clock");
    clock->is_open = true;
    clock->news.data = clock->turned.data = clock;
    (void)uv_poll_start(&clock->news, UV_READABLE, heard);
    (void)uv_prepare_start(&clock->turned, turned);
    uv_unref((uv_handle_t *)&clock->news);
    uv_unref((uv_handle_t *)&clock->turned);
    return 0;
}

void test_clock_close(struct test_clock *clock)
{
    if (!clock->is_open)
        return;
    uv_close((uv_handle_t *)&clock->news, NULL);
    uv_close((uv_handle_t *)&clock->turned, NULL);
}
