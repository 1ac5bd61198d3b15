/* What an event of the network has besides: kept once for the histories that have the event, and as JSON in
 * the store. */
#pragma once

#include "engine/engine.h"

#include <jansson.h>

struct event_traffic;
struct event_traffic *event_traffic_new(const struct engine_event_traffic *given);
void event_traffic_hold(struct event_traffic *traffic);
void event_traffic_free(struct event_traffic *traffic); /* when nobody holds it any more; or NULL */
const struct engine_event_traffic *event_traffic_look(const struct event_traffic *traffic);
json_t *event_traffic_format(const struct event_traffic *traffic);
struct event_traffic *event_traffic_parse(const json_t *object); /* NULL: it is none */
