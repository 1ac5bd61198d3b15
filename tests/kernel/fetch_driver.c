/* The engine's fetch() without an engine: runs and calls come as lines of JSON on standard input, answers go out so.
 *
 * usage: fetch-driver RESOLVERS [PROXY [names]]
 *   {"new": RUN, "tenant": NAME, "hosts": [RULE, ...]}       -> {"run": RUN, "error": TEXT or null}
 *   {"run": RUN, "call": N, "op": OP, "meta": {...}, "body": TEXT, "zeros": SIZE}
 *                    -> {"run", "call", "meta", "bytes" in hexadecimal}, or {"run", "call", "code", "text"}
 * With "drain": true a "fetch.read" is made again until the end, and what came is thrown away.
 *   {"free": RUN}, {"count": true}  -> {"open", "all", "refused", "bytes_out", "bytes_in", "fds", "gap_ms"}
 * `gap_ms` is the longest that the loop did not turn since it was last asked. At the end of the input all ends. */
#include "engine/fetch.h"
#include "net/net.h"

#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUNS 256
#define LINE_MAX_BYTES (1U << 20)
#define BEAT_MS 2
#define DRAINS (1U << 30) /* of a call's number */

static uv_loop_t loop;
static struct net *net;
static struct fetches *fetches;
static struct fetch_run *runs[RUNS];
static uv_pipe_t input;
static uv_timer_t beat;
static uv_check_t turn;
static uint64_t beat_ns, gap_ns;
static char *line;
static size_t line_size;

static void say(json_t *what)
{
    char *text = json_dumps(what, JSON_COMPACT);

    puts(text);
    fflush(stdout);
    free(text);
    json_decref(what);
}

static char drained[64]; /* the meta of its reads */
static uint32_t drained_call;
static int drained_run;

/* As a worker would: not from within the answer before. */
static void again_later(void *arg, uint32_t call)
{
    drained_call = call;
    drained_run = (int)(intptr_t)arg;
}

static void drain_on(void)
{
    struct kernel_call again = {
        .id = drained_call, .op = {"fetch.read", 10}, .meta = {drained, strlen(drained)}};

    drained_call = 0;
    if (again.id != 0)
        (void)fetch_run_take(runs[drained_run], &again);
}

static void settle(void *arg, uint32_t call, const char *meta, size_t meta_size,
                   const uint8_t *bytes, size_t bytes_size)
{
    char *hex = calloc(1, 2 * bytes_size + 1);
    json_t *value = json_loadb(meta, meta_size, JSON_DECODE_ANY, NULL);

    if ((call & DRAINS) != 0 && !json_is_true(json_object_get(value, "end"))) {
        json_decref(value);
        free(hex);
        again_later(arg, call);
        return;
    }
    for (size_t i = 0; i < bytes_size; i++)
        sprintf(hex + 2 * i, "%02x", bytes[i]);
    say(json_pack("{sisiso?ss}", "run", (int)(intptr_t)arg, "call", (int)(call & ~DRAINS), "meta",
                  value, "bytes", hex));
    free(hex);
}

static void fail(void *arg, uint32_t call, const char *code, const char *text)
{
    say(json_pack("{sisissss}", "run", (int)(intptr_t)arg, "call", (int)(call & ~DRAINS), "code",
                  code, "text", text));
}

static void run_new(int number, const json_t *what)
{
    static const struct fetch_answers answers = {.settle = settle, .fail = fail};
    const json_t *hosts = json_object_get(what, "hosts");
    const char *rules[300] = {0};
    struct error err = {0};
    int status;

    for (size_t i = 0; i < json_array_size(hosts) && i < 299; i++)
        rules[i] = json_string_value(json_array_get(hosts, i));
    status = fetch_run_new(fetches, json_string_value(json_object_get(what, "tenant")), rules,
                           &answers, (void *)(intptr_t)number, &runs[number], &err);
    say(json_pack("{siss?}", "run", number, "error", status < 0 ? err.text : NULL));
}

static void call_make(int number, const json_t *what)
{
    const char *op = json_string_value(json_object_get(what, "op"));
    const char *body = json_string_value(json_object_get(what, "body"));
    size_t zeros = (size_t)json_integer_value(json_object_get(what, "zeros"));
    char *meta = json_dumps(json_object_get(what, "meta"), JSON_ENCODE_ANY);
    char *bytes = zeros > 0 ? calloc(1, zeros) : body != NULL ? strdup(body) : NULL;
    size_t size = zeros > 0 ? zeros : body != NULL ? strlen(body) : 0;
    struct kernel_call call = {
        .id = (uint32_t)json_integer_value(json_object_get(what, "call")),
        .op = {op, strlen(op)},
        .meta = {meta, strlen(meta)},
        .bytes = (uint8_t *)bytes,
        .bytes_size = size,
    };

    if (json_is_true(json_object_get(what, "drain"))) {
        call.id |= DRAINS;
        snprintf(drained, sizeof(drained), "%s", meta);
    }
    if (!fetch_run_take(runs[number], &call))
        fail((void *)(intptr_t)number, call.id, "none", "it is no call of fetch()");
    free(bytes);
    free(meta);
}

static void count_say(void)
{
    struct fetches_counts counts;
    DIR *all = opendir("/proc/self/fd");
    int fds = 0;

    if (all == NULL)
        abort();
    while (readdir(all) != NULL)
        fds++;
    closedir(all);
    fetches_count(fetches, &counts);
    say(json_pack("{sIsIsIsIsIsisI}", "open", (json_int_t)counts.open, "all",
                  (json_int_t)counts.all, "refused", (json_int_t)counts.refused, "bytes_out",
                  (json_int_t)counts.bytes_out, "bytes_in", (json_int_t)counts.bytes_in, "fds", fds,
                  "gap_ms", (json_int_t)(gap_ns / 1000000)));
    gap_ns = 0;
}

static int number_of(const json_t *what, const char *key)
{
    const json_t *value = json_object_get(what, key);
    json_int_t number = json_integer_value(value);

    return json_is_integer(value) && number > 0 && number < RUNS ? (int)number : 0;
}

static void heard(const char *text, size_t size)
{
    json_t *what = json_loadb(text, size, JSON_ALLOW_NUL, NULL);
    int number;

    if ((number = number_of(what, "new")) > 0)
        run_new(number, what);
    else if ((number = number_of(what, "run")) > 0)
        call_make(number, what);
    else if ((number = number_of(what, "free")) > 0) {
        fetch_run_free(runs[number]);
        runs[number] = NULL;
    } else
        count_say();
    json_decref(what);
}

static void on_fetches_closed(void *arg)
{
    (void)arg;
    net_close(net, NULL, NULL);
}

static void on_input(uv_stream_t *stream, ssize_t size, const uv_buf_t *into)
{
    char *end;

    (void)into;
    if (size < 0) {
        uv_close((uv_handle_t *)stream, NULL);
        uv_close((uv_handle_t *)&beat, NULL);
        uv_close((uv_handle_t *)&turn, NULL);
        for (int i = 0; i < RUNS; i++)
            fetch_run_free(runs[i]);
        fetches_close(fetches, on_fetches_closed, NULL);
        return;
    }
    line_size += (size_t)size;
    while ((end = memchr(line, '\n', line_size)) != NULL) {
        heard(line, (size_t)(end - line));
        line_size -= (size_t)(end + 1 - line);
        memmove(line, end + 1, line_size);
    }
}

static void on_room(uv_handle_t *handle, size_t wanted, uv_buf_t *into)
{
    (void)handle;
    (void)wanted;
    *into = uv_buf_init(line + line_size, (unsigned)(LINE_MAX_BYTES - line_size));
}

static void on_turn(uv_check_t *check)
{
    (void)check;
    drain_on();
}

static void on_beat(uv_timer_t *timer)
{
    uint64_t now = uv_hrtime();

    (void)timer;
    if (beat_ns > 0 && now - beat_ns > gap_ns)
        gap_ns = now - beat_ns;
    beat_ns = now;
}

int main(int argc, char **argv)
{
    struct net_options options = {.loop = &loop,
                                  .resolvers = argc > 1 ? argv[1] : NULL,
                                  .proxy = argc > 2 ? argv[2] : NULL,
                                  .proxy_names = argc > 3};
    struct error err = {0};

    signal(SIGPIPE, SIG_IGN);
    line = malloc(LINE_MAX_BYTES);
    if (uv_loop_init(&loop) != 0 || net_open(&options, &net, &err) < 0 ||
        fetches_new(&loop, net, &fetches, &err) < 0) {
        fprintf(stderr, "fetch-driver: %s\n", err.text);
        return 1;
    }
    uv_pipe_init(&loop, &input, 0);
    uv_pipe_open(&input, 0);
    uv_read_start((uv_stream_t *)&input, on_room, on_input);
    uv_check_init(&loop, &turn);
    uv_check_start(&turn, on_turn);
    uv_timer_init(&loop, &beat);
    uv_timer_start(&beat, on_beat, BEAT_MS, BEAT_MS);
    uv_run(&loop, UV_RUN_DEFAULT);
    free(line);
    return uv_loop_close(&loop) == 0 ? 0 : 1;
}
