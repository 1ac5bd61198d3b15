/* The contexts of a worker, and whose turn it is.
 *
 * A frame is taken by the thread that read it, under the lock: what has to be heard while a guest runs (that it is to
 * stop) is done there, and what cannot be is refused. The rest goes into the box of its context; its owner does one
 * after the other (work.c). */
#include "kernel/worker/worker.h"

#include "base/clock.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define REST_NS 1000000000ULL /* idle for so long, then it gives back what it does not need */

/* ---- lists ---- */

void places_init(struct places *places)
{
    *places = (struct places){.last = &places->first};
}

static void list_add(struct places *places, struct place *place)
{
    place->list = places;
    place->link = (struct link_place){NULL, places->last};
    *places->last = place;
    places->last = &place->link.next;
}

void list_remove(struct place *place)
{
    if (place->list == NULL)
        return;
    *place->link.at = place->link.next;
    if (place->link.next != NULL)
        place->link.next->link.at = place->link.at;
    else
        place->list->last = place->link.at;
    place->list = NULL;
}

void make_ready(struct place *place)
{
    if (place->is_owned || place->list == &worker.ready)
        return;
    list_remove(place);
    list_add(&worker.ready, place);
}

/* It rests, if nothing is asked of it for a while. */
void make_idle(struct place *place)
{
    place->rest_ns = clock_monotonic_ns() + REST_NS;
    list_add(&worker.idle, place);
    io_timer(place->rest_ns);
}

struct place *places_next(void)
{
    struct place *place = worker.ready.first;

    if (place == NULL || worker.running >= worker.runners)
        return NULL;
    list_remove(place);
    place->is_owned = true;
    worker.running++;
    return place;
}

void places_expire(void)
{
    uint64_t now = clock_monotonic_ns(), next = 0;
    struct place *place, *after;

    worker.timer_ns = 0;
    for (place = worker.waiting.first; place != NULL; place = after) {
        after = place->link.next;
        if (place->wake_ns <= now) {
            place->step_due = true;
            make_ready(place);
        } else if (next == 0 || place->wake_ns < next) {
            next = place->wake_ns;
        }
    }
    /* These are in the order of their time. */
    while ((place = worker.idle.first) != NULL && place->rest_ns <= now) {
        place->rest_due = true;
        make_ready(place);
    }
    if (place != NULL && (next == 0 || place->rest_ns < next))
        next = place->rest_ns;
    io_timer(next);
}

/* ---- memory; under the lock ---- */

void held_set(struct place *place, uint64_t held)
{
    worker.held += held - place->held;
    place->held = held;
}

/* Whoever wants room for one more waits until this is done: it was promised. */
void free_begin(struct place *place)
{
    place->is_freeing = true;
    worker.freeing++;
}

void free_end(struct place *place)
{
    if (place->is_freeing)
        worker.freeing--;
    place->is_freeing = false;
    (void)pthread_cond_broadcast(&worker.freed);
}

/* ---- taking frames; under the lock ---- */

static struct place *place_of(struct number *number, size_t offset)
{
    return number != NULL ? (struct place *)(void *)((uint8_t *)number - offset) : NULL;
}

static struct place *context_place(uint64_t number)
{
    return place_of(numbers_find(&worker.contexts, number), offsetof(struct place, by_context));
}

static struct place *run_place(uint64_t number)
{
    return place_of(numbers_find(&worker.runs, number), offsetof(struct place, by_run));
}

static struct place *place_new(void)
{
    struct place *place = calloc(1, sizeof(*place));

    if (place != NULL) {
        place->last = &place->first;
        error_set(&place->error, "not_found", 0, "there is no such context");
        return place;
    }
    worker_die();
}

static struct place *place_new_context(uint64_t number)
{
    struct place *place = place_new();

    if (context_place(number) != NULL ||
        numbers_add(&worker.contexts, &place->by_context, number) < 0)
        worker_die();
    return place;
}

static void place_push(struct place *place, struct message *message)
{
    *place->last = message;
    place->last = &message->next;
    make_ready(place);
}

/* Says no to what a frame asks for. */
static void refuse(struct message *message, const char *code, const char *text)
{
    struct wire wire = {0};
    struct error err;

    error_set(&err, code, 0, "%s", text);
    io_failed(&wire,
              (enum proto_kind)(message->head.kind == PROTO_FORK ? (uint32_t)PROTO_NEW
                                                                 : message->head.kind),
              message->head.number, &err);
    io_send(&wire);
    wire_free(&wire);
    free(message);
}

static void refuse_unknown(struct message *message)
{
    refuse(message, "not_found", "there is no such context");
}

static void refuse_busy(struct message *message)
{
    refuse(message, "kernel_busy",
           "a run is under way in this context; wait until it is done, or stop it");
}

static void stop(struct place *place, enum kernel_end end)
{
    if (place->by_run.number == 0 || place->stop != KERNEL_END_VALUE)
        return;
    place->stop = end;
    if (place->context != NULL)
        kernel_interrupt(place->context, end);
}

static void take_run(struct message *message)
{
    struct wire_reader reader = wire_reader(message->body, message->head.size);
    uint64_t context = wire_read_u64(&reader);
    struct place *place = context != 0 ? context_place(context) : place_new();

    if (place == NULL) {
        refuse_unknown(message);
    } else if (place->by_run.number != 0) {
        refuse_busy(message);
    } else {
        place->is_single = context == 0;
        if (run_place(message->head.number) != NULL ||
            numbers_add(&worker.runs, &place->by_run, message->head.number) < 0)
            worker_die();
        place_push(place, message);
    }
}

static void take_fork(struct message *message)
{
    struct wire_reader reader = wire_reader(message->body, message->head.size);
    struct place *place = context_place(wire_read_u64(&reader));

    if (place == NULL) {
        refuse_unknown(message);
    } else if (place->by_run.number != 0) {
        refuse_busy(message);
    } else {
        /* Owned until it is made. */
        message->copy = place_new_context(message->head.number);
        message->copy->is_owned = true;
        place_push(place, message);
    }
}

static void take_stop(struct message *message)
{
    struct wire_reader reader = wire_reader(message->body, message->head.size);
    enum kernel_end end = (enum kernel_end)wire_read_u32(&reader, KERNEL_END_STOPPED);
    struct place *place = run_place(message->head.number);

    if (!wire_is_done(&reader) || (end != KERNEL_END_STOPPED && end != KERNEL_END_WALL))
        worker_die();
    if (place == NULL) {
        free(message);
        return;
    }
    stop(place, end);
    place_push(place, message);
}

static void take_of_context(struct message *message)
{
    struct place *place = context_place(message->head.number);

    if (place == NULL && message->head.kind == PROTO_DROP) {
        free(message);
    } else if (place == NULL) {
        refuse_unknown(message);
    } else if (message->head.kind == PROTO_SNAPSHOT && place->by_run.number != 0) {
        refuse_busy(message);
    } else {
        if (message->head.kind != PROTO_SNAPSHOT)
            stop(place, KERNEL_END_STOPPED);
        if (message->head.kind == PROTO_DROP) {
            numbers_remove(&worker.contexts, &place->by_context);
            free_begin(place);
        }
        place_push(place, message);
    }
}

static void take_hello(struct message *message)
{
    struct wire_reader reader = wire_reader(message->body, message->head.size);
    uint32_t version = wire_read_u32(&reader, UINT32_MAX);
    const uint8_t *key = wire_read_raw(&reader, KERNEL_KEY_BYTES);

    worker.memory_bytes = wire_read_u64(&reader);
    worker.result_bytes = wire_read_u64(&reader);
    if (worker.result_bytes == 0 || worker.result_bytes > PROTO_RESULT_MAX)
        worker.result_bytes = PROTO_RESULT_MAX;
    if (worker.is_greeted || version != PROTO_VERSION || !wire_is_done(&reader))
        worker_die();
    memcpy(worker.key, key, sizeof(worker.key));
    kernel_memory_bound(worker.memory_bytes);
    worker.is_greeted = true;
    explicit_bzero(message->body, message->head.size);
    free(message);
}

void places_take(struct message *message)
{
    struct place *place;

    if (!worker.is_greeted && message->head.kind != PROTO_HELLO)
        worker_die();
    switch (message->head.kind) {
    case PROTO_HELLO:
        take_hello(message);
        break;
    case PROTO_NEW:
    case PROTO_RESTORE:
        place_push(place_new_context(message->head.number), message);
        break;
    case PROTO_FORK:
        take_fork(message);
        break;
    case PROTO_RUN:
        take_run(message);
        break;
    case PROTO_STOP:
        take_stop(message);
        break;
    case PROTO_SETTLE:
    case PROTO_SETTLE_ERROR:
        place = run_place(message->head.number);
        if (place != NULL)
            place_push(place, message);
        else
            free(message); /* it ended meanwhile */
        break;
    default:
        take_of_context(message);
        break;
    }
}

/* ---- owning ---- */

enum next { NEXT_MESSAGE, NEXT_STEP, NEXT_NOTHING, NEXT_END };

/* What is to be done with it. With NEXT_NOTHING it is nobody's any more: it must not be touched. */
static enum next next_of(struct place *place, struct message **message)
{
    enum next next = NEXT_NOTHING;

    (void)pthread_mutex_lock(&worker.lock);
    *message = place->first;
    if (*message != NULL) {
        next = NEXT_MESSAGE;
        place->first = (*message)->next;
        if (place->first == NULL)
            place->last = &place->first;
    } else if (place->step_due) {
        next = NEXT_STEP;
    } else if (place->is_over) {
        next = NEXT_END;
    } else {
        place->is_owned = false;
        worker.running--;
        if (place->run != 0) {
            place->wake_ns = clock_monotonic_ns() + 1000000U * kernel_wait_ms(place->context);
            list_add(&worker.waiting, place);
            io_timer(place->wake_ns);
        } else if (place->context != NULL && !place->rest_due) {
            held_set(place, place->held < HELD_GUESS ? HELD_GUESS : place->held);
            make_idle(place);
        }
    }
    (void)pthread_mutex_unlock(&worker.lock);
    return next;
}

void place_work(struct place *place)
{
    struct message *message;
    enum next next;

    if (place->rest_due && place->context != NULL)
        work_rest(place);
    while ((next = next_of(place, &message)) != NEXT_NOTHING) {
        if (next == NEXT_END) {
            work_end(place);
            (void)pthread_mutex_lock(&worker.lock);
            worker.running--;
            (void)pthread_mutex_unlock(&worker.lock);
            return;
        }
        place->rest_due = false;
        if (next == NEXT_MESSAGE)
            work_message(place, message);
        else
            work_step(place);
        free(message);
    }
}
