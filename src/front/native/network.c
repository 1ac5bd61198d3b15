/* GET /v1/sandboxes/{id}/network: whom a sandbox may reach, and what came of what it tried. */
#include "front/native/parts.h"

#define LINES_USUAL 100

static void print_counts(struct out *out, const struct sandbox_traffic *traffic)
{
    const struct net_counts *counts = &traffic->counts;

    out_object(out, "counts");
    out_number(out, "connections", counts->connections);
    out_number(out, "connections_total", counts->connections_all);
    out_number(out, "denied", counts->denied);
    out_number(out, "lookups", counts->lookups);
    out_number(out, "bytes_out", counts->bytes_out);
    out_number(out, "bytes_in", counts->bytes_in);
    out_number(out, "bytes_used", traffic->bytes_used);
    out_object_end(out);
}

static bool has_address(const struct policy_address *address)
{
    for (size_t i = 0; i < sizeof(address->bytes); i++)
        if (address->bytes[i] != 0)
            return true;
    return false;
}

static bool print_line(void *arg, const struct net_record *line, uint64_t times)
{
    struct out *out = arg;
    char address[POLICY_ADDRESS_TEXT];

    out_object(out, NULL);
    out_time(out, "time", line->time_ms);
    out_text(out, "kind", line->kind == NET_LOOKUP ? "lookup" : "connection");
    out_text(out, "name", line->name);
    if (has_address(&line->address)) {
        policy_address_text(&line->address, address);
        out_text(out, "address", address);
    } else {
        out_null(out, "address");
    }
    if (line->kind == NET_LOOKUP)
        out_null(out, "port");
    else
        out_number(out, "port", line->port);
    out_text(out, "verdict", line->allowed ? "allowed" : "denied");
    out_text(out, "reason", line->reason);
    out_text(out, "rule", line->rule);
    out_number(out, "times", times);
    out_number(out, "lasted_ms", line->lasted_ms);
    out_number(out, "bytes_out", line->bytes_out);
    out_number(out, "bytes_in", line->bytes_in);
    out_object_end(out);
    return !out->has_failed;
}

HANDLER(network_get)
{
    static const char *const known[] = {"limit", NULL};
    struct native *native = data;
    struct job *job = job_begin_for(request, ENGINE_LOOK);
    struct sandbox_traffic traffic;
    uint64_t limit = LINES_USUAL;
    struct error err;
    struct out *out;

    if (job == NULL || !job_query(job, known))
        return;
    if (job_query_count(job, "limit", 0, ENGINE_NETWORK_LINES, &limit, &err) < 0 ||
        engine_traffic(native->options.engine, &job->caller, http_param(request, "id"), &traffic,
                       &err) < 0) {
        job_problem(job, &err);
        return;
    }
    out = job_out(job);
    out_object(out, NULL);
    print_network(out, "policy", traffic.policy, &traffic.limits);
    out_bool(out, "open", traffic.is_open);
    print_counts(out, &traffic);
    out_array(out, "records");
    if (engine_traffic_each(native->options.engine, &job->caller, http_param(request, "id"),
                            (size_t)limit, print_line, out, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    out_array_end(out);
    out_number(out, "left_out",
               traffic.lines_left_out + (traffic.lines > limit ? traffic.lines - limit : 0));
    out_object_end(out);
    job_answer(job, 200);
}
