/* WebSockets: one that says again what it is told, one that says as much as it is asked for. */
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct talk {
    struct http_request *request;
    uv_timer_t timer;
    unsigned hold_ms; /* after each message */
    bool waits;       /* for room */
    bool is_careless;
    size_t left; /* messages to say */
    size_t size;
};

static void on_talk_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void talk_free(void *data)
{
    struct talk *talk = data;

    live_count--;
    uv_close((uv_handle_t *)&talk->timer, on_talk_closed);
}

static void on_closed(void *arg, unsigned code)
{
    (void)arg;
    closed_count++;
    closed_code = code;
}

static void on_resume(uv_timer_t *timer)
{
    struct talk *talk = timer->data;

    http_websocket_resume(talk->request);
}

/* "close CODE REASON", "abort", "stop"; anything else is said again. */
static bool on_message(void *arg, bool is_text, const void *data, size_t size)
{
    struct talk *talk = arg;
    const char *text = data;
    size_t waiting;

    if (text[size] != '\0') {
        abort();
    }
    if (is_text && strncmp(text, "close ", 6) == 0) {
        char *reason = NULL;
        unsigned code = (unsigned)strtoul(text + 6, &reason, 10);
        http_websocket_close(talk->request, code, *reason ? reason + 1 : NULL);
        return true;
    }
    if (is_text && strcmp(text, "abort") == 0) {
        http_abort(talk->request);
        return true;
    }
    if (is_text && strcmp(text, "stop") == 0) {
        http_stop(server);
        return true;
    }
    waiting = http_websocket_send(talk->request, is_text, data, size);
    most_waiting = waiting > most_waiting ? waiting : most_waiting;
    if (talk->hold_ms > 0) {
        uv_timer_start(&talk->timer, on_resume, talk->hold_ms, 0);
        return false;
    }
    talk->waits = waiting > backlog_bytes;
    return !talk->waits;
}

static void on_drained(void *arg)
{
    struct talk *talk = arg;

    if (talk->waits) {
        talk->waits = false;
        http_websocket_resume(talk->request);
    }
}

static struct talk *talk_new(struct http_request *request, void (*drained)(void *arg))
{
    struct talk *talk = calloc(1, sizeof(*talk));
    struct http_websocket_options options = {
        .message_bytes = number(request, "message_bytes", 0),
        .protocol = http_query(request, "protocol"),
        .message = on_message,
        .drained = drained,
        .closed = on_closed,
        .arg = talk,
    };
    struct error err;

    if (!talk) {
        abort();
    }
    talk->request = request;
    talk->hold_ms = (unsigned)number(request, "hold", 0);
    talk->is_careless = number(request, "careless", 0) != 0;
    live_count++;
    uv_timer_init(loop, &talk->timer);
    talk->timer.data = talk;
    http_set_data(request, talk, talk_free);
    http_add_header(request, "X-Extra", "there");
    if (http_websocket(request, &options, &err)) {
        if (http_is_websocket(request) && !options.protocol) {
            abort();
        }
        answer_text(request, 400, err.text);
        return NULL;
    }
    return talk;
}

void get_talk(struct http_request *request, void *data)
{
    (void)data;
    (void)talk_new(request, on_drained);
}

static void say_on(void *arg)
{
    struct talk *talk = arg;
    static char block[65536];

    memset(block, 's', sizeof(block));
    while (talk->left > 0) {
        size_t waiting = http_websocket_send(talk->request, false, block, talk->size);
        most_waiting = waiting > most_waiting ? waiting : most_waiting;
        talk->left--;
        if (waiting > backlog_bytes && !talk->is_careless) {
            return;
        }
    }
    http_websocket_close(talk->request, 1000, "that was all");
}

/* count= messages of size= bytes, then it closes. */
void get_source(struct http_request *request, void *data)
{
    size_t count = number(request, "count", 3), size = number(request, "size", 100);
    struct talk *talk = talk_new(request, say_on);

    (void)data;
    if (talk) {
        talk->left = count;
        talk->size = size;
        say_on(talk);
    }
}
