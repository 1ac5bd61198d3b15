/* See event_traffic.h. One block each, texts behind the numbers: there are many of them. */
#include "engine/event_traffic.h"

#include "engine/parts.h"

#include <stdlib.h>
#include <string.h>

struct event_traffic {
    unsigned holders;
    struct engine_event_traffic is; /* its texts follow */
};

static char *text_put(char **at, const char *text)
{
    char *put = *at;

    if (text == NULL)
        return NULL;
    *at = stpcpy(put, text) + 1;
    return put;
}

static size_t text_room(const char *text)
{
    return text != NULL ? strlen(text) + 1 : 0;
}

struct event_traffic *event_traffic_new(const struct engine_event_traffic *given)
{
    struct event_traffic *traffic = engine_alloc(sizeof(*traffic) + text_room(given->name) +
                                                 text_room(given->address) +
                                                 text_room(given->rule));
    char *at = (char *)(traffic + 1);

    traffic->holders = 1;
    traffic->is = *given;
    traffic->is.name = text_put(&at, given->name);
    traffic->is.address = text_put(&at, given->address);
    traffic->is.rule = text_put(&at, given->rule);
    return traffic;
}

void event_traffic_hold(struct event_traffic *traffic)
{
    traffic->holders++;
}

void event_traffic_free(struct event_traffic *traffic)
{
    if (traffic != NULL && --traffic->holders == 0)
        free(traffic);
}

const struct engine_event_traffic *event_traffic_look(const struct event_traffic *traffic)
{
    return &traffic->is;
}

/* ---- as JSON ---- */

static void set_text(json_t *object, const char *key, const char *text)
{
    if (text != NULL)
        (void)json_object_set_new(object, key, json_string(text));
}

static void set_number(json_t *object, const char *key, uint64_t number)
{
    if (number > 0)
        (void)json_object_set_new(object, key, json_integer((json_int_t)number));
}

json_t *event_traffic_format(const struct event_traffic *held)
{
    const struct engine_event_traffic *traffic = &held->is;
    json_t *object = json_object();

    set_text(object, "name", traffic->name);
    set_text(object, "address", traffic->address);
    set_text(object, "rule", traffic->rule);
    set_number(object, "port", traffic->port);
    set_number(object, "lasted_ms", traffic->lasted_ms);
    set_number(object, "bytes_out", traffic->bytes_out);
    set_number(object, "bytes_in", traffic->bytes_in);
    set_number(object, "left_out", traffic->left_out);
    return object;
}

static uint64_t get_number(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

struct event_traffic *event_traffic_parse(const json_t *object)
{
    const struct engine_event_traffic traffic = {
        .name = json_string_value(json_object_get(object, "name")),
        .address = json_string_value(json_object_get(object, "address")),
        .rule = json_string_value(json_object_get(object, "rule")),
        .port = (uint16_t)get_number(object, "port"),
        .lasted_ms = get_number(object, "lasted_ms"),
        .bytes_out = get_number(object, "bytes_out"),
        .bytes_in = get_number(object, "bytes_in"),
        .left_out = get_number(object, "left_out"),
    };

    return json_is_object(object) ? event_traffic_new(&traffic) : NULL;
}
