/* Metrics: see metrics.h. */
#include "front/native/metrics.h"

#include "engine/kernels.h"
#include "front/native/parts.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* ---- counting ---- */

static void count_status(struct metrics_route *route, unsigned status)
{
    size_t i = 0;

    while (i < METRICS_STATUSES - 1 && route->of[i].status != status && route->of[i].count > 0)
        i++;
    route->of[i].status = i < METRICS_STATUSES - 1 ? status : 0;
    route->of[i].count++;
}

static size_t tenant_place(struct metrics *metrics, const char *tenant)
{
    size_t i = metrics->tenant_last;

    if (i >= metrics->tenants_count || strcmp(metrics->tenants[i].name, tenant) != 0)
        for (i = 0; i < metrics->tenants_count && strcmp(metrics->tenants[i].name, tenant) != 0;)
            i++;
    if (i == METRICS_TENANTS)
        return i;
    if (i == metrics->tenants_count) {
        (void)snprintf(metrics->tenants[i].name, sizeof(metrics->tenants[i].name), "%s", tenant);
        metrics->tenants_count++;
    }
    metrics->tenant_last = i;
    return i;
}

/* ---- rounds of the loop ---- */

static uint64_t thread_cpu_ns(void)
{
    struct timespec used;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

/* Its CPU, and not the time: what else the host does is no work of ours. */
static void turn_ended(uv_prepare_t *turn)
{
    struct metrics *metrics = turn->data;
    uint64_t now_ns = thread_cpu_ns();

    histogram_add(&metrics->turns, now_ns - metrics->turn_ns);
    metrics->turn_ns = now_ns;
}

static void turn_closed(uv_handle_t *handle)
{
    free(handle);
}

int metrics_open(struct native *native)
{
    struct metrics *metrics = &native->metrics;

    metrics->turn = malloc(sizeof(*metrics->turn));
    if (metrics->turn == NULL)
        return -1;
    metrics->turn_ns = thread_cpu_ns();
    (void)uv_prepare_init(native->options.loop, metrics->turn);
    uv_unref((uv_handle_t *)metrics->turn);
    metrics->turn->data = metrics;
    (void)uv_prepare_start(metrics->turn, turn_ended);
    return 0;
}

void metrics_close(struct native *native)
{
    if (native->metrics.turn != NULL)
        uv_close((uv_handle_t *)native->metrics.turn, turn_closed);
}

void metrics_moved(struct native *native, struct job *job)
{
    uint64_t received, sent;
    size_t place;

    if (job->caller.tenant[0] == '\0')
        return;
    place = tenant_place(&native->metrics, job->caller.tenant);
    http_moved(job->request, &received, &sent);
    native->metrics.tenants[place].received += received;
    native->metrics.tenants[place].sent += sent;
}

void metrics_over(struct native *native, const struct http_request *request, struct job *job,
                  unsigned status, uint64_t took_ns)
{
    struct metrics *metrics = &native->metrics;
    const struct http_route *route = http_route(request);
    size_t row = route != NULL ? (size_t)(route - native->routes) : native->routes_count;

    count_status(&metrics->routes[row], status);
    if (job == NULL || job->caller.tenant[0] == '\0')
        return;
    metrics->tenants[tenant_place(metrics, job->caller.tenant)].requests++;
    metrics_moved(native, job);
    if (route != NULL && route->handler == sandbox_create && status == 201)
        histogram_add(&metrics->create, took_ns);
    if (route != NULL && route->handler == run_exec && status == 200)
        histogram_add(job->is_first ? &metrics->first : &metrics->exec, took_ns);
}

/* ---- the page ---- */

static void say(struct out *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(struct out *out, const char *fmt, ...)
{
    char line[512];
    va_list args;
    int size;

    va_start(args, fmt);
    size = vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    out_raw(out, line, size < (int)sizeof(line) ? (size_t)size : sizeof(line) - 1);
}

static void begin(struct out *out, const char *name, const char *type, const char *help)
{
    say(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(struct out *out, const char *name, const char *type, const char *help,
                uint64_t value)
{
    begin(out, name, type, help);
    say(out, "%s %" PRIu64 "\n", name, value);
}

static void seconds(struct out *out, const char *name, uint64_t ns)
{
    say(out, "%s %" PRIu64 ".%09" PRIu64 "\n", name, ns / 1000000000, ns % 1000000000);
}

static void histogram(struct out *out, const char *name, const char *help,
                      const struct histogram *histogram)
{
    char text[96];
    uint64_t sum = 0;

    begin(out, name, "histogram", help);
    for (size_t i = 0; i < HISTOGRAM_BOUNDS; i++) {
        sum += histogram->counts[i];
        say(out, "%s_bucket{le=\"%s\"} %" PRIu64 "\n", name, histogram_bound(i), sum);
    }
    say(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, histogram->count);
    (void)snprintf(text, sizeof(text), "%s_sum", name);
    seconds(out, text, histogram->sum_ns);
    say(out, "%s_count %" PRIu64 "\n", name, histogram->count);
}

static void print_requests(struct out *out, const struct native *native)
{
    begin(out, "cove_http_requests_total", "counter",
          "Requests that are over, by route and status; status 0 got no answer.");
    for (size_t row = 0; row <= native->routes_count; row++) {
        const struct metrics_route *route = &native->metrics.routes[row];
        bool is_known = row < native->routes_count;

        for (size_t i = 0; i < METRICS_STATUSES && route->of[i].count > 0; i++)
            say(out,
                "cove_http_requests_total{method=\"%s\",route=\"%s\",status=\"%u\"} %" PRIu64 "\n",
                is_known ? native->routes[row].method : "",
                is_known ? native->routes[row].pattern : "", route->of[i].status,
                route->of[i].count);
    }
}

static void print_http(struct out *out, const struct native *native)
{
    struct http_counts counts = {0};

    if (native->server != NULL)
        http_count(native->server, &counts);
    print_requests(out, native);
    one(out, "cove_http_connections", "gauge", "Connections that are open.", counts.open);
    one(out, "cove_http_connections_total", "counter", "Connections that were accepted.",
        counts.accepted);
    one(out, "cove_http_received_bytes_total", "counter", "Bytes from clients.",
        counts.received_bytes);
    one(out, "cove_http_sent_bytes_total", "counter", "Bytes to clients.", counts.sent_bytes);
    one(out, "cove_http_bodies_parsing", "gauge",
        "Large JSON bodies that a thread parses, or that wait for one.", native->bodies_parsing);
    one(out, "cove_http_bodies_parsed_total", "counter",
        "Large JSON bodies that were given to a thread.", native->bodies_parsed);
    one(out, "cove_kernel_results_printed_total", "counter",
        "Large results of kernels that were given to a thread.", native->results_printed);
    one(out, "cove_kernel_calls_printed_total", "counter",
        "Large calls of tools that were given to a thread.", native->calls_printed);
    one(out, "cove_kernel_messages_parsed_total", "counter",
        "Large messages of clients that answer tools that were given to a thread.",
        native->messages_parsed);
    histogram(out, "cove_loop_turn_cpu_seconds",
              "CPU of each round of the engine's loop, in which nobody else is heard.",
              &native->metrics.turns);
    if (native->options.telemetry != NULL) {
        uint64_t sent, dropped;

        telemetry_count(native->options.telemetry, &sent, &dropped);
        one(out, "cove_spans_sent_total", "counter", "Spans that the collector took.", sent);
        one(out, "cove_spans_dropped_total", "counter", "Spans that it did not.", dropped);
    }
    if (native->options.audit != NULL)
        one(out, "cove_audit_lost_lines_total", "counter",
            "Lines of the audit log that could not be written.", audit_lost(native->options.audit));
}

static void print_engine(struct out *out, const struct engine_counts *counts)
{
    begin(out, "cove_sandboxes", "gauge", "Sandboxes by state.");
    for (unsigned state = 0; state < SANDBOX_DELETED; state++)
        say(out, "cove_sandboxes{state=\"%s\"} %zu\n",
            sandbox_state_name((enum sandbox_state)state), counts->sandboxes[state]);
    one(out, "cove_processes", "gauge", "Commands that run.", counts->processes);
    one(out, "cove_pool_hits_total", "counter", "Sandboxes that got a box that stood ready.",
        counts->pool_hits);
    one(out, "cove_pool_misses_total", "counter", "Sandboxes that a box was made for.",
        counts->pool_misses);
    one(out, "cove_pool_boxes", "gauge", "Boxes that stand ready.", counts->pool_ready);
    one(out, "cove_boxes_waiting", "gauge", "Boxes that wait for their turn to be made.",
        counts->boxes_waiting);
    one(out, "cove_network_connections", "gauge", "Connections of sandboxes that are open.",
        counts->network.connections);
    one(out, "cove_network_connections_total", "counter", "Connections that sandboxes asked for.",
        counts->network.connections_all);
    one(out, "cove_network_denied_total", "counter", "Connections and lookups that were refused.",
        counts->network.denied);
    one(out, "cove_network_lookups_total", "counter", "Names that sandboxes asked for.",
        counts->network.lookups);
    one(out, "cove_network_sent_bytes_total", "counter", "Bytes that sandboxes sent.",
        counts->network.bytes_out);
    one(out, "cove_network_received_bytes_total", "counter", "Bytes that sandboxes received.",
        counts->network.bytes_in);
    one(out, "cove_events_total", "counter", "Events that were told.", counts->events);
    histogram(out, "cove_store_commit_duration_seconds",
              "From asking for a write until the disk has it.", &counts->commits);
}

static void print_times(struct out *out, const struct metrics *metrics)
{
    histogram(out, "cove_create_duration_seconds", "Whole requests that made a sandbox.",
              &metrics->create);
    histogram(out, "cove_exec_duration_seconds",
              "Whole exec requests, the command's own time among it, but for first ones.",
              &metrics->exec);
    histogram(out, "cove_first_exec_duration_seconds",
              "The same of the first command of a sandbox.", &metrics->first);
}

/* Tenants' names have no character that a label would have to escape. */
static void use(struct out *out, const char *name, const char *tenant, uint64_t value)
{
    say(out, "%s{tenant=\"%s\"} %" PRIu64 "\n", name, tenant, value);
}

static void print_tenants(struct out *out, const struct native *native)
{
    struct engine_use uses[METRICS_TENANTS + 1];
    size_t count = engine_uses(native->options.engine, uses, METRICS_TENANTS + 1);

    begin(out, "cove_tenant_sandboxes", "gauge", "Sandboxes of a tenant.");
    for (size_t i = 0; i < count; i++)
        use(out, "cove_tenant_sandboxes", uses[i].tenant, uses[i].sandboxes);
    begin(out, "cove_tenant_running_sandboxes", "gauge", "Those of them that run.");
    for (size_t i = 0; i < count; i++)
        use(out, "cove_tenant_running_sandboxes", uses[i].tenant, uses[i].running);
    begin(out, "cove_tenant_waiting_sandboxes", "gauge",
          "Those that wait for their turn to get a box.");
    for (size_t i = 0; i < count; i++)
        use(out, "cove_tenant_waiting_sandboxes", uses[i].tenant, uses[i].waiting);
    begin(out, "cove_tenant_processes", "gauge", "Commands of a tenant that run.");
    for (size_t i = 0; i < count; i++)
        use(out, "cove_tenant_processes", uses[i].tenant, uses[i].processes);
    begin(out, "cove_tenant_memory_limit_bytes", "gauge", "What its running sandboxes may take.");
    for (size_t i = 0; i < count; i++)
        use(out, "cove_tenant_memory_limit_bytes", uses[i].tenant, uses[i].memory_bytes);
    begin(out, "cove_tenant_disk_limit_bytes", "gauge", "What its persistent disks may take.");
    for (size_t i = 0; i < count; i++)
        use(out, "cove_tenant_disk_limit_bytes", uses[i].tenant, uses[i].disk_bytes);
    if (strcmp(engine_host(native->options.engine)->limits, "cgroup") != 0)
        return;
    begin(out, "cove_tenant_memory_used_bytes", "gauge", "What its running sandboxes have.");
    for (size_t i = 0; i < count; i++)
        use(out, "cove_tenant_memory_used_bytes", uses[i].tenant, uses[i].memory_used_bytes);
}

/* Whoever is beyond the bound is in the last place of all. */
static const struct engine_spent *spent_at(const struct engine_spent *spent, size_t i)
{
    return &spent[i < ENGINE_SPENT_TENANTS && spent[i].tenant[0] != '\0' ? i
                                                                         : ENGINE_SPENT_TENANTS];
}

static void print_traffic(struct out *out, const struct engine_spent *spent, size_t count)
{
    static const struct {
        const char *name, *help;
        size_t at;
    } rows[] = {
        {"cove_tenant_network_connections_total",
         "Connections that a tenant's sandboxes asked for.",
         offsetof(struct net_counts, connections_all)},
        {"cove_tenant_network_denied_total", "Connections and lookups of them that were refused.",
         offsetof(struct net_counts, denied)},
        {"cove_tenant_network_lookups_total", "Names that they asked for.",
         offsetof(struct net_counts, lookups)},
        {"cove_tenant_network_sent_bytes_total", "Bytes that they sent.",
         offsetof(struct net_counts, bytes_out)},
        {"cove_tenant_network_received_bytes_total", "Bytes that they received.",
         offsetof(struct net_counts, bytes_in)},
    };

    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        begin(out, rows[row].name, "counter", rows[row].help);
        for (size_t i = 0; i < count; i++) {
            const struct engine_spent *one = spent_at(spent, i);
            uint64_t value;

            memcpy(&value, (const char *)&one->network + rows[row].at, sizeof(value));
            use(out, rows[row].name, one->tenant, value);
        }
    }
}

static void print_spent(struct out *out, const struct native *native)
{
    const struct engine_spent *spent;
    size_t count = engine_spent(native->options.engine, &spent);
    char name[128];

    begin(out, "cove_tenant_cpu_seconds_total", "counter",
          "Processor time of a tenant's sandboxes since this engine began.");
    for (size_t i = 0; i < count; i++) {
        const struct engine_spent *one = spent_at(spent, i);

        (void)snprintf(name, sizeof(name), "cove_tenant_cpu_seconds_total{tenant=\"%s\"}",
                       one->tenant);
        seconds(out, name, one->cpu_ns);
    }
    print_traffic(out, spent, count);
}

static void print_calls(struct out *out, const struct metrics *metrics)
{
    /* Those beyond have had a request, or there are none. */
    size_t count = metrics->tenants_count + (metrics->tenants[METRICS_TENANTS].requests > 0);

    begin(out, "cove_tenant_requests_total", "counter", "Requests by keys and tokens of a tenant.");
    for (size_t i = 0; i < count; i++)
        use(out, "cove_tenant_requests_total", metrics->tenants[i].name,
            metrics->tenants[i].requests);
    begin(out, "cove_tenant_received_bytes_total", "counter", "Bytes of these requests.");
    for (size_t i = 0; i < count; i++)
        use(out, "cove_tenant_received_bytes_total", metrics->tenants[i].name,
            metrics->tenants[i].received);
    begin(out, "cove_tenant_sent_bytes_total", "counter", "Bytes of their answers.");
    for (size_t i = 0; i < count; i++)
        use(out, "cove_tenant_sent_bytes_total", metrics->tenants[i].name,
            metrics->tenants[i].sent);
}

static void print_kernels(struct out *out, const struct native *native)
{
    struct kernel_counts counts;

    engine_kernel_count(native->options.engine, &counts);
    one(out, "cove_kernel_workers", "gauge",
        "Workers of kernels: one of each tenant that uses some.", counts.workers);
    one(out, "cove_kernels", "gauge", "Kernels that keep their state.", counts.contexts);
    one(out, "cove_kernel_runs", "gauge", "Runs that are under way.", counts.running);
    begin(out, "cove_kernel_runs_total", "counter", "Runs that have ended, by how.");
    for (unsigned end = 0; end < KERNEL_ENDS; end++)
        say(out, "cove_kernel_runs_total{end=\"%s\"} %" PRIu64 "\n",
            kernel_end_name((enum kernel_end)end), counts.runs[end]);
    say(out, "cove_kernel_runs_total{end=\"lost\"} %" PRIu64 "\n", counts.runs_lost);
    one(out, "cove_kernel_workers_lost_total", "counter",
        "Workers that ended while they were needed.", counts.workers_lost);
}

static uint64_t open_fds(void)
{
    DIR *list = opendir("/proc/self/fd");
    uint64_t count = 0;

    while (list != NULL && readdir(list) != NULL) // NOLINT(concurrency-mt-unsafe): a list of ours
        count++;
    if (list != NULL)
        (void)closedir(list);
    return count > 3 ? count - 3 : 0; /* itself, "." and ".." */
}

static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long size, pages = 0;

    if (file != NULL && fscanf(file, "%llu %llu", &size, &pages) != 2) // NOLINT(cert-err34-c)
        pages = 0;
    if (file != NULL)
        (void)fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void print_process_of_engine(struct out *out, const struct native *native)
{
    struct rusage used = {0};
    uint64_t ns, started = native->metrics.started_ms;

    (void)getrusage(RUSAGE_SELF, &used);
    ns = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000 +
         (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000;
    begin(out, "cove_build_info", "gauge", "1; the label says which version this is.");
    say(out, "cove_build_info{version=\"%s\"} 1\n", native->options.version);
    one(out, "cove_engine_restarts_total", "counter",
        "Engines that came after another since the keeper began.", native->options.restarts);
    begin(out, "process_start_time_seconds", "gauge",
          "When this engine began; a later one is a restart.");
    seconds(out, "process_start_time_seconds", started * 1000000);
    begin(out, "process_cpu_seconds_total", "counter", "Processor time of the engine.");
    seconds(out, "process_cpu_seconds_total", ns);
    one(out, "process_resident_memory_bytes", "gauge", "Memory of the engine.", resident_bytes());
    if (engine_memory_limit() != UINT64_MAX)
        one(out, "cove_engine_memory_limit_bytes", "gauge",
            "Memory of the engine from which on it begins nothing new.", engine_memory_limit());
    one(out, "process_open_fds", "gauge", "Files that the engine has open.", open_fds());
}

HANDLER(metrics_page)
{
    static const char *const no_query[] = {NULL};
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_OPERATOR);
    struct engine_counts counts;
    struct out *out;

    if (job == NULL || !job_query(job, no_query))
        return;
    out = job_out(job);
    engine_count(native->options.engine, &counts);
    print_process_of_engine(out, native);
    print_engine(out, &counts);
    print_times(out, &native->metrics);
    print_http(out, native);
    print_tenants(out, native);
    print_spent(out, native);
    print_kernels(out, native);
    print_calls(out, &native->metrics);
    job_answer_bytes(job, 200, CONTENT_TYPE, out->data, out->has_failed ? 0 : out->used);
}
