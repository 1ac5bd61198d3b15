/* See fetch.h: who asks for what, when it is his turn, and what he is told. What goes over the wire is
 * fetch_curl.c's; which address is dialled is decided by net, which gives a socket or none.
 *
 * Turns: runs that have requests waiting stand in a line of their tenant's, tenants in one of all. A tenant with ten
 * thousand requests waits for himself. */
#include "engine/fetch_parts.h"
#include "net/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifndef __clang__
/* The analyser does not see that what is in a list is not lost. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

/* Of one tenant, and of all: as FETCH_AT_ONCE and FETCH_OPEN_MAX are of a run. */
#define TENANT_AT_ONCE 64U
#define TENANT_OPEN_MAX 1024U
#define BODY_LARGE (256U << 10)
#define TENANT_BODIES_MAX (128ULL << 20) /* bytes that wait to be sent */
#define ALL_AT_ONCE 512U
#define TICK_MS 1000
/* A TLS connection begins with milliseconds of computing, in the loop that all share: so many a second, and at once. */
#define TENANT_TLS_MS 20U
#define TENANT_TLS_AT_ONCE 16U

enum fetch_state {
    FETCH_WAITS, /* for its turn */
    FETCH_DIALS,
    FETCH_ASKS, /* no answer has begun */
    FETCH_OPEN, /* its body is read */
};

struct fetch {
    TAILQ_ENTRY(fetch) link, waiting;
    struct fetch_run *run;
    uint32_t stream, call; /* that is to be answered; `has_call` */
    bool has_call;
    enum fetch_state state;
    struct fetch_request request;
    const void *body; /* NULL: none */
    void *body_block; /* that it lies in */
    size_t body_size;
    struct net_call *dial;
    struct transfer *transfer;
};

struct fetch_run {
    TAILQ_ENTRY(fetch_run) link, turn;
    struct fetches *fetches;
    struct tenant *tenant;
    struct policy *policy;
    struct net_box *box; /* from the first request on */
    struct fetch_answers answers;
    void *arg;
    TAILQ_HEAD(fetch_list, fetch) all, waiting;
    bool has_turn;
    unsigned at_once, open, count;
    uint64_t bytes_out, bytes_in;
    uint32_t last_stream;
};

struct tenant {
    TAILQ_ENTRY(tenant) link, turn;
    TAILQ_HEAD(run_turns, fetch_run) turns;
    bool has_turn;
    bool is_early;   /* for its next TLS connection */
    uint64_t tls_ms; /* until when those that it had would have taken, one after the other */
    unsigned runs, at_once, open;
    uint64_t bodies; /* bytes */
    char name[];
};

enum library { LIBRARY_NONE, LIBRARY_LOADS, LIBRARY_IS_HERE };

struct fetches {
    uv_loop_t *loop;
    struct net *net;
    struct transfers *transfers;
    enum library library;
    uv_work_t loading;
    struct transfers *loaded;
    struct error load_error;
    uv_timer_t tick, pace;
    TAILQ_HEAD(tenant_list, tenant) tenants;
    TAILQ_HEAD(tenant_turns, tenant) turns;
    TAILQ_HEAD(run_list, fetch_run) runs;
    unsigned at_once;
    struct fetches_counts counts;
    bool is_closing;
    unsigned handles;
    void (*closed)(void *arg);
    void *arg;
};

static void turns_go(struct fetches *fetches);

/* ---- turns ---- */

static void tenant_line_up(struct fetches *fetches, struct tenant *tenant)
{
    bool wants = !TAILQ_EMPTY(&tenant->turns) && tenant->at_once < TENANT_AT_ONCE &&
                 !tenant->is_early;

    if (wants && !tenant->has_turn)
        TAILQ_INSERT_TAIL(&fetches->turns, tenant, turn);
    else if (!wants && tenant->has_turn)
        TAILQ_REMOVE(&fetches->turns, tenant, turn);
    tenant->has_turn = wants;
}

static void line_up(struct fetch_run *run)
{
    struct tenant *tenant = run->tenant;
    bool wants = !TAILQ_EMPTY(&run->waiting) && run->at_once < FETCH_AT_ONCE;

    if (wants && !run->has_turn)
        TAILQ_INSERT_TAIL(&tenant->turns, run, turn);
    else if (!wants && run->has_turn)
        TAILQ_REMOVE(&tenant->turns, run, turn);
    run->has_turn = wants;
    tenant_line_up(run->fetches, tenant);
}

static void on_pace(uv_timer_t *timer)
{
    struct fetches *fetches = timer->data;
    struct tenant *tenant = NULL;

    TAILQ_FOREACH(tenant, &fetches->tenants, link)
    {
        tenant->is_early = false;
        tenant_line_up(fetches, tenant);
    }
    turns_go(fetches);
}

/* Takes one of the tenant's, if there is one now. */
static bool may_secure(const struct fetches *fetches, struct tenant *tenant)
{
    uint64_t now = uv_now(fetches->loop);

    if (tenant->tls_ms < now)
        tenant->tls_ms = now;
    if (tenant->tls_ms >= now + (uint64_t)TENANT_TLS_AT_ONCE * TENANT_TLS_MS)
        return false;
    tenant->tls_ms += TENANT_TLS_MS;
    return true;
}

/* Whoever had his turn goes to the end of both lines. NULL: it was not his turn yet, and he stands aside. */
static struct fetch *next_take(struct fetches *fetches)
{
    struct tenant *tenant = TAILQ_FIRST(&fetches->turns);
    struct fetch_run *run = TAILQ_FIRST(&tenant->turns);
    struct fetch *fetch = TAILQ_FIRST(&run->waiting);

    if (fetch->request.is_tls && !may_secure(fetches, tenant)) {
        tenant->is_early = true;
        tenant_line_up(fetches, tenant);
        if (!uv_is_active((uv_handle_t *)&fetches->pace))
            (void)uv_timer_start(&fetches->pace, on_pace, TENANT_TLS_MS, 0);
        return NULL;
    }
    TAILQ_REMOVE(&fetches->turns, tenant, turn);
    TAILQ_REMOVE(&tenant->turns, run, turn);
    tenant->has_turn = run->has_turn = false;
    TAILQ_REMOVE(&run->waiting, fetch, waiting);
    run->at_once++;
    tenant->at_once++;
    fetches->at_once++;
    line_up(run);
    return fetch;
}

static void turn_over(struct fetch *fetch)
{
    if (fetch->state != FETCH_DIALS && fetch->state != FETCH_ASKS)
        return;
    fetch->run->at_once--;
    fetch->run->tenant->at_once--;
    fetch->run->fetches->at_once--;
    line_up(fetch->run);
}

/* ---- the end of one ---- */

static void body_drop(struct fetch *fetch)
{
    fetch->run->tenant->bodies -= fetch->body_size;
    free(fetch->body_block);
    fetch->body_block = NULL;
    fetch->body = NULL;
    fetch->body_size = 0;
}

static void fetch_free(struct fetch *fetch)
{
    struct fetch_run *run = fetch->run;

    if (fetch->transfer != NULL)
        transfer_free(fetch->transfer);
    net_call_free(fetch->dial);
    if (fetch->state == FETCH_WAITS)
        TAILQ_REMOVE(&run->waiting, fetch, waiting);
    turn_over(fetch);
    body_drop(fetch);
    TAILQ_REMOVE(&run->all, fetch, link);
    run->open--;
    run->tenant->open--;
    run->fetches->counts.open--;
    line_up(run);
    fetch_request_clear(&fetch->request);
    free(fetch);
}

/* Frees it; its call is told why. */
static void fetch_drop(struct fetch *fetch, const struct error *why)
{
    struct fetch_run *run = fetch->run;
    const struct error err = *why; /* may be the transfer's */
    uint32_t call = fetch->call;
    bool has_call = fetch->has_call;

    fetch_free(fetch);
    if (has_call)
        run->answers.fail(run->arg, call, err.code, err.text);
}

static void fetch_fail(struct fetch *fetch, const struct error *why)
{
    struct fetches *fetches = fetch->run->fetches;

    fetch_drop(fetch, why);
    turns_go(fetches);
}

/* ---- an answer ---- */

static void head_tell(struct fetch *fetch)
{
    struct transfer *transfer = fetch->transfer;
    struct fetch_run *run = fetch->run;
    bool is_whole = transfer->is_empty ||
                    (transfer->is_over && !transfer->has_failed && transfer->used == 0);
    struct meta_text head = transfer->head;
    uint32_t call = fetch->call;
    struct error err;

    fetch_head_end(&head, is_whole ? 0 : fetch->stream);
    transfer->head = (struct meta_text){0};
    if (head.failed) {
        (void)error_set(&err, "ENOMEM", ENOMEM, "an answer");
        free(head.data);
        fetch_fail(fetch, &err);
        return;
    }
    turn_over(fetch);
    fetch->state = FETCH_OPEN;
    fetch->has_call = false;
    if (is_whole)
        fetch_free(fetch);
    run->answers.settle(run->arg, call, head.data, head.size, NULL, 0);
    free(head.data);
    turns_go(run->fetches);
}

/* What is there of the body, for who asked for it. */
static void body_tell(struct fetch *fetch)
{
    static const char more[] = "{\"end\":false}", last[] = "{\"end\":true}";
    struct transfer *transfer = fetch->transfer;
    struct fetch_run *run = fetch->run;
    size_t size = transfer->used;
    uint32_t call = fetch->call;
    struct error err;
    bool is_last;

    if (run->bytes_in + size > FETCH_IN_MAX) {
        (void)fetch_out_of("bytes of answers", FETCH_IN_MAX, &err);
        fetch_fail(fetch, &err);
        return;
    }
    if (size == 0 && transfer->has_failed) {
        fetch_fail(fetch, &transfer->err);
        return;
    }
    if (size == 0 && !transfer->is_over)
        return;
    run->bytes_in += size;
    run->fetches->counts.bytes_in += size;
    is_last = transfer->is_over && !transfer->has_failed;
    fetch->has_call = false;
    run->answers.settle(run->arg, call, is_last ? last : more,
                        is_last ? sizeof(last) - 1 : sizeof(more) - 1,
                        size > 0 ? transfer->data : NULL, size);
    if (is_last)
        fetch_free(fetch);
    else
        transfer_taken(transfer);
}

static void on_news(struct transfer *transfer, void *arg)
{
    struct fetch *fetch = arg;

    if (fetch->state == FETCH_ASKS) {
        if (transfer->has_head)
            head_tell(fetch);
        else if (transfer->is_over)
            fetch_fail(fetch, &transfer->err);
    } else if (fetch->has_call) {
        body_tell(fetch);
    }
}

/* ---- a request ---- */

static void unreached(struct fetch *fetch, const struct policy_verdict *verdict,
                      const char *failure)
{
    const char *host = fetch->request.authority;
    struct error err;

    if (failure == NULL) {
        fetch->run->fetches->counts.refused++;
        (void)fetch_denied(&fetch->request, verdict, true, &err);
    } else if (strcmp(failure, "no_such_name") == 0) {
        (void)error_set(&err, "ENOTFOUND", 0, "there is no host '%s'", fetch->request.host);
    } else if (strcmp(failure, "limit") == 0) {
        (void)error_set(
            &err, "EAGAIN", 0,
            "%s is not dialled: too many connections are open, or were made lately; try "
            "again later",
            host);
    } else {
        (void)error_set(&err, "ECONNREFUSED", 0, "%s cannot be reached", host);
    }
    fetch_fail(fetch, &err);
}

static void on_dialled(void *arg, int fd, const struct policy_verdict *verdict, const char *failure)
{
    struct fetch *fetch = arg;
    struct error err;

    if (fd < 0) {
        unreached(fetch, verdict, failure);
        return;
    }
    if (transfer_new(fetch->run->fetches->transfers, &fetch->request, fetch->body, fetch->body_size,
                     fd, on_news, fetch, &fetch->transfer, &err) < 0) {
        fetch_fail(fetch, &err);
        return;
    }
    fetch->state = FETCH_ASKS;
    fetch->run->fetches->counts.bytes_out += fetch->body_size;
}

static int box_open(struct fetch_run *run, struct error *err)
{
    struct net_box_options options = {.tenant = run->tenant->name, .names = -1};

    if (run->box != NULL)
        return 0;
    options.policy = policy_copy(run->policy);
    return net_box_new(run->fetches->net, &options, &run->box, err);
}

static void begin(struct fetch *fetch)
{
    const struct fetch_request *request = &fetch->request;
    struct fetch_run *run = fetch->run;
    struct error err;

    fetch->state = FETCH_DIALS;
    if (box_open(run, &err) == 0)
        fetch->dial = net_call_new(run->box, request->is_name ? request->host : NULL,
                                   &request->address, request->port, on_dialled, fetch);
    if (fetch->dial != NULL)
        return;
    (void)error_set(&err, "ENOMEM", ENOMEM, "a request to %s", request->authority);
    fetch_drop(fetch, &err);
}

static void turns_go(struct fetches *fetches)
{
    while (fetches->library == LIBRARY_IS_HERE && fetches->at_once < ALL_AT_ONCE &&
           !TAILQ_EMPTY(&fetches->turns)) {
        struct fetch *fetch = next_take(fetches);

        if (fetch != NULL)
            begin(fetch);
    }
}

/* ---- the library, at the first request ---- */

static void fetches_free(void *arg)
{
    struct fetches *fetches = arg;
    void (*closed)(void *arg) = fetches->closed;
    void *closed_arg = fetches->arg;
    struct tenant *tenant;

    while ((tenant = TAILQ_FIRST(&fetches->tenants)) != NULL) {
        TAILQ_REMOVE(&fetches->tenants, tenant, link);
        free(tenant);
    }
    free(fetches);
    closed(closed_arg);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct fetches *fetches = handle->data;

    if (--fetches->handles > 0)
        return;
    if (fetches->transfers != NULL)
        transfers_close(fetches->transfers, fetches_free, fetches);
    else
        fetches_free(fetches);
}

static void timers_close(struct fetches *fetches)
{
    fetches->handles = 2;
    uv_close((uv_handle_t *)&fetches->tick, on_timer_closed);
    uv_close((uv_handle_t *)&fetches->pace, on_timer_closed);
}

static void fail_all(struct fetches *fetches)
{
    struct fetch_run *run = NULL;

    TAILQ_FOREACH(run, &fetches->runs, link)
    {
        while (!TAILQ_EMPTY(&run->waiting))
            fetch_drop(TAILQ_FIRST(&run->waiting), &fetches->load_error);
    }
}

static void load(uv_work_t *work)
{
    struct fetches *fetches = work->data;

    if (transfers_load(&fetches->loaded, &fetches->load_error) < 0)
        fetches->loaded = NULL;
}

static void loaded(uv_work_t *work, int status)
{
    struct fetches *fetches = work->data;

    (void)status;
    fetches->transfers = fetches->loaded;
    fetches->library = fetches->loaded != NULL ? LIBRARY_IS_HERE : LIBRARY_NONE;
    if (fetches->loaded != NULL)
        transfers_begin(fetches->loaded, fetches->loop);
    if (fetches->is_closing)
        timers_close(fetches);
    else if (fetches->loaded == NULL)
        fail_all(fetches);
    else
        turns_go(fetches);
}

static void library_want(struct fetches *fetches)
{
    if (fetches->library != LIBRARY_NONE)
        return;
    fetches->library = LIBRARY_LOADS;
    fetches->loading.data = fetches;
    (void)uv_queue_work(fetches->loop, &fetches->loading, load, loaded); /* fails for no callback */
}

/* ---- time ---- */

static bool is_late(const struct fetch *fetch, uint64_t now)
{
    return fetch->transfer != NULL && fetch->has_call &&
           now - fetch->transfer->heard_ms > FETCH_SILENCE_MS;
}

static struct fetch *late_find(const struct fetch_run *run, uint64_t now)
{
    struct fetch *fetch = NULL;

    TAILQ_FOREACH(fetch, &run->all, link)
    {
        if (is_late(fetch, now))
            break;
    }
    return fetch;
}

static void on_tick(uv_timer_t *timer)
{
    struct fetches *fetches = timer->data;
    struct fetch_run *run = NULL;
    struct fetch *fetch;
    struct error err;

    TAILQ_FOREACH(run, &fetches->runs, link)
    {
        while ((fetch = late_find(run, uv_now(fetches->loop))) != NULL) {
            (void)error_set(&err, "ETIMEDOUT", 0, "%s says nothing any more",
                            fetch->request.authority);
            fetch_fail(fetch, &err);
        }
    }
    if (fetches->counts.open == 0)
        (void)uv_timer_stop(timer);
}

/* ---- calls ---- */

static int may_begin(const struct fetch_run *run, const struct kernel_call *call, struct error *err)
{
    const struct tenant *tenant = run->tenant;

    if (run->count >= FETCH_COUNT_MAX)
        return fetch_out_of("requests", FETCH_COUNT_MAX, err);
    if (run->open >= FETCH_OPEN_MAX)
        return error_set(err, "EMFILE", 0,
                         "%u requests and answers are open: read them or cancel them first",
                         FETCH_OPEN_MAX);
    if (tenant->open >= TENANT_OPEN_MAX || tenant->bodies + call->bytes_size > TENANT_BODIES_MAX)
        return error_set(err, "EAGAIN", 0,
                         "too many requests of this tenant's runs are open; try again later");
    if (run->bytes_out + call->bytes_size > FETCH_OUT_MAX)
        return fetch_out_of("bytes of requests", FETCH_OUT_MAX, err);
    return 0;
}

/* Large bodies are not copied: that would take milliseconds, in which nobody else is heard. */
static int body_take(struct fetch *fetch, const struct kernel_call *call, struct error *err)
{
    const struct fetch_run *run = fetch->run;

    if (call->bytes_size >= BODY_LARGE && run->answers.give != NULL)
        fetch->body_block = run->answers.give(run->arg);
    if (fetch->body_block != NULL) {
        fetch->body = call->bytes;
    } else {
        fetch->body = fetch->body_block = malloc(call->bytes_size + 1);
        if (fetch->body == NULL)
            return error_set(err, "ENOMEM", ENOMEM, "a request");
        if (call->bytes_size > 0)
            memcpy(fetch->body_block, call->bytes, call->bytes_size);
    }
    fetch->body_size = call->bytes_size;
    return 0;
}

static int fetch_fill(struct fetch *fetch, const struct kernel_call *call, struct error *err)
{
    struct policy_verdict verdict;

    if (fetch_request_parse(call, &fetch->request, err) < 0)
        return -1;
    verdict = fetch->request.is_name ? policy_lookup(fetch->run->policy, fetch->request.host)
                                     : (struct policy_verdict){.allowed = true};
    if (!verdict.allowed) {
        fetch->run->fetches->counts.refused++;
        return fetch_denied(&fetch->request, &verdict, true, err);
    }
    if (!fetch_has_body(&fetch->request, call))
        return 0;
    return body_take(fetch, call, err);
}

static int start_take(struct fetch_run *run, const struct kernel_call *call, struct error *err)
{
    struct fetches *fetches = run->fetches;
    struct fetch *fetch;

    if (may_begin(run, call, err) < 0)
        return -1;
    run->count++;
    fetches->counts.all++;
    fetch = calloc(1, sizeof(*fetch));
    if (fetch == NULL)
        return error_set(err, "ENOMEM", ENOMEM, "a request");
    *fetch = (struct fetch){.run = run, .call = call->id, .has_call = true};
    if (fetch_fill(fetch, call, err) < 0) {
        fetch_request_clear(&fetch->request);
        free(fetch);
        return -1;
    }
    fetch->stream = ++run->last_stream;
    run->bytes_out += fetch->body_size;
    run->tenant->bodies += fetch->body_size;
    run->open++;
    run->tenant->open++;
    fetches->counts.open++;
    TAILQ_INSERT_TAIL(&run->all, fetch, link);
    TAILQ_INSERT_TAIL(&run->waiting, fetch, waiting);
    line_up(run);
    if (!uv_is_active((uv_handle_t *)&fetches->tick))
        (void)uv_timer_start(&fetches->tick, on_tick, TICK_MS, TICK_MS);
    library_want(fetches);
    turns_go(fetches);
    return 0;
}

static struct fetch *stream_find(struct fetch_run *run, const struct kernel_call *call)
{
    uint32_t stream = fetch_stream(call);
    struct fetch *fetch = NULL;

    TAILQ_FOREACH(fetch, &run->all, link)
    {
        if (fetch->stream == stream && fetch->state == FETCH_OPEN)
            break;
    }
    return fetch;
}

static int read_take(struct fetch_run *run, const struct kernel_call *call, struct error *err)
{
    struct fetch *fetch = stream_find(run, call);

    if (fetch == NULL || fetch->has_call)
        return error_set(err, "EBADF", 0, "there is no answer of this number to be read");
    fetch->call = call->id;
    fetch->has_call = true;
    fetch->transfer->heard_ms = uv_now(run->fetches->loop);
    body_tell(fetch);
    return 0;
}

static void cancel_take(struct fetch_run *run, const struct kernel_call *call)
{
    struct fetch *fetch = stream_find(run, call);
    struct error err;

    if (fetch == NULL)
        return;
    (void)error_set(&err, "ECANCELED", 0, "the request was cancelled");
    fetch_fail(fetch, &err);
}

bool fetch_run_take(struct fetch_run *run, const struct kernel_call *call)
{
    struct error err;
    int status = 0;

    if (kernel_text_is(call->op, "fetch.start"))
        status = start_take(run, call, &err);
    else if (kernel_text_is(call->op, "fetch.read"))
        status = read_take(run, call, &err);
    else if (kernel_text_is(call->op, "fetch.cancel"))
        cancel_take(run, call);
    else
        return false;
    if (status < 0)
        run->answers.fail(run->arg, call->id, err.code, err.text);
    return true;
}

/* ---- runs and tenants ---- */

static bool tenant_is_idle(const struct fetches *fetches, const struct tenant *tenant)
{
    return tenant->runs == 0 && tenant->tls_ms <= uv_now(fetches->loop);
}

/* Its record is kept until it says nothing any more, or a run for each request would be a way around its bounds. */
static void tenants_forget(struct fetches *fetches)
{
    struct tenant *tenant = TAILQ_FIRST(&fetches->tenants), *next;

    for (; tenant != NULL; tenant = next) {
        next = TAILQ_NEXT(tenant, link);
        if (!tenant_is_idle(fetches, tenant))
            continue;
        TAILQ_REMOVE(&fetches->tenants, tenant, link);
        free(tenant);
    }
}

static struct tenant *tenant_join(struct fetches *fetches, const char *name)
{
    size_t size = strlen(name) + 1;
    struct tenant *tenant = NULL;

    TAILQ_FOREACH(tenant, &fetches->tenants, link)
    {
        if (strcmp(tenant->name, name) == 0) {
            tenant->runs++;
            return tenant;
        }
    }
    tenant = calloc(1, sizeof(*tenant) + size);
    if (tenant == NULL)
        return NULL;
    memcpy(tenant->name, name, size);
    tenant->runs = 1;
    TAILQ_INIT(&tenant->turns);
    TAILQ_INSERT_HEAD(&fetches->tenants, tenant, link);
    return tenant;
}

static void tenant_leave(struct fetches *fetches, struct tenant *tenant)
{
    tenant->runs--;
    tenants_forget(fetches);
}

int fetch_run_new(struct fetches *fetches, const char *tenant, const char *const *hosts,
                  const struct fetch_answers *answers, void *arg, struct fetch_run **out,
                  struct error *err)
{
    struct fetch_run *run = calloc(1, sizeof(*run));

    if (run == NULL)
        return error_set(err, "no_memory", ENOMEM, "cannot prepare the network of a kernel");
    *run = (struct fetch_run){.fetches = fetches, .answers = *answers, .arg = arg};
    TAILQ_INIT(&run->all);
    TAILQ_INIT(&run->waiting);
    if (policy_new_hosts(hosts, &run->policy, err) < 0) {
        free(run);
        return -1;
    }
    run->tenant = tenant_join(fetches, tenant);
    if (run->tenant == NULL) {
        policy_free(run->policy);
        free(run);
        return error_set(err, "no_memory", ENOMEM, "cannot prepare the network of a kernel");
    }
    TAILQ_INSERT_TAIL(&fetches->runs, run, link);
    *out = run;
    return 0;
}

void fetch_run_free(struct fetch_run *run)
{
    struct fetches *fetches;

    if (run == NULL)
        return;
    fetches = run->fetches;
    while (!TAILQ_EMPTY(&run->all))
        fetch_free(TAILQ_FIRST(&run->all));
    TAILQ_REMOVE(&fetches->runs, run, link);
    if (run->box != NULL)
        net_box_free(run->box);
    tenant_leave(fetches, run->tenant);
    policy_free(run->policy);
    free(run);
    turns_go(fetches);
}

/* ---- all ---- */

int fetches_new(uv_loop_t *loop, struct net *net, struct fetches **out, struct error *err)
{
    struct fetches *fetches = calloc(1, sizeof(*fetches));

    if (fetches == NULL)
        return error_set(err, "no_memory", ENOMEM, "cannot prepare the network of kernels");
    fetches->loop = loop;
    fetches->net = net;
    TAILQ_INIT(&fetches->tenants);
    TAILQ_INIT(&fetches->turns);
    TAILQ_INIT(&fetches->runs);
    (void)uv_timer_init(loop, &fetches->tick);
    (void)uv_timer_init(loop, &fetches->pace);
    fetches->tick.data = fetches->pace.data = fetches;
    *out = fetches;
    return 0;
}

void fetches_close(struct fetches *fetches, void (*closed)(void *arg), void *arg)
{
    fetches->closed = closed;
    fetches->arg = arg;
    fetches->is_closing = true;
    if (fetches->library != LIBRARY_LOADS)
        timers_close(fetches);
}

void fetches_count(const struct fetches *fetches, struct fetches_counts *out)
{
    *out = fetches->counts;
}
