/* The engine's views as JSON. Every field is always there, null where there is nothing to say, but for
 * `reason` and `error`. */
#include "front/native/body.h"
#include "front/native/parts.h"

#include <stdio.h>
#include <string.h>

/* "KEY=VALUE" each: keys have no "=". */
void print_pairs(struct out *out, const char *key, const char *const *pairs)
{
    out_object(out, key);
    for (; pairs != NULL && *pairs != NULL; pairs++) {
        const char *end = strchr(*pairs, '=');
        char name[512];

        if (end == NULL || (size_t)(end - *pairs) >= sizeof(name))
            continue;
        memcpy(name, *pairs, (size_t)(end - *pairs));
        name[end - *pairs] = '\0';
        out_text(out, name, end + 1);
    }
    out_object_end(out);
}

/* 0: null. */
static void print_some(struct out *out, const char *key, uint64_t value)
{
    if (value == 0)
        out_null(out, key);
    else
        out_number(out, key, value);
}

static void print_resources(struct out *out, const struct box_limits *limits)
{
    out_object(out, "resources");
    print_some(out, "memory_bytes", limits->memory_bytes);
    if (limits->cpu_milli == 0)
        out_null(out, "cpus");
    else
        out_milli(out, "cpus", limits->cpu_milli);
    print_some(out, "pids", limits->pids);
    print_some(out, "disk_bytes", limits->disk_bytes);
    out_object_end(out);
}

static void print_mounts(struct out *out, const struct sandbox_view *view)
{
    out_array(out, "mounts");
    for (size_t i = 0; i < view->mounts_count; i++) {
        out_object(out, NULL);
        out_text(out, "name", view->mounts[i].name);
        out_text(out, "target", view->mounts[i].target);
        out_bool(out, "read_only", (view->mounts_read_only >> i & 1) != 0);
        out_object_end(out);
    }
    out_array_end(out);
}

static void print_ports(struct out *out, const struct sandbox_view *view)
{
    out_array(out, "ports");
    for (size_t i = 0; i < view->ports_count; i++) {
        out_object(out, NULL);
        out_number(out, "port", view->ports[i].port);
        out_bool(out, "public", view->ports[i].is_public);
        out_object_end(out);
    }
    out_array_end(out);
}

static void print_rules(struct out *out, const char *key, const char *const *rules)
{
    out_array(out, key);
    for (; rules != NULL && *rules != NULL; rules++)
        out_text(out, NULL, *rules);
    out_array_end(out);
}

void print_network(struct out *out, const char *key, const struct policy *policy,
                   const struct net_limits *limits)
{
    out_object(out, key);
    out_text(out, "mode", policy_mode_name(policy_mode(policy)));
    print_rules(out, "allow", policy_allow(policy));
    print_rules(out, "deny", policy_deny(policy));
    print_some(out, "connections", limits->connections);
    print_some(out, "lookups_per_second", limits->lookups_per_second);
    print_some(out, "bytes_per_second", limits->bytes_per_second);
    print_some(out, "bytes", limits->bytes);
    out_object_end(out);
}

static void print_error(struct out *out, const struct error *err)
{
    if (err->code[0] == '\0')
        return;
    out_object(out, "error");
    out_text(out, "code", err->code);
    out_text(out, "detail", err->text);
    out_object_end(out);
}

static void print_lifecycle(struct out *out, const struct sandbox_view *view)
{
    out_object(out, "lifecycle");
    out_time(out, "deadline", view->deadline_ms);
    print_some(out, "idle_ms", view->idle_ms);
    out_text(out, "then", view->then == SANDBOX_THEN_STOP ? "stop" : "kill");
    out_object_end(out);
}

static const char *shown_name(const struct sandbox_view *view)
{
    bool is_ours = view->name != NULL &&
                   strncmp(view->name, BODY_OUR_NAMES, strlen(BODY_OUR_NAMES)) == 0;

    return is_ours ? NULL : view->name;
}

void print_sandbox(struct out *out, const char *key, const struct sandbox_view *view,
                   const bool *created)
{
    out_object(out, key);
    out_text(out, "id", view->id);
    out_text(out, "name", shown_name(view));
    out_text(out, "tenant", view->tenant);
    print_pairs(out, "labels", view->labels);
    print_pairs(out, "env", view->env);
    out_text(out, "root", view->root != NULL ? view->root : "host");
    out_text(out, "privileges", view->privileges == BOX_SYSTEM ? "system" : "plain");
    out_text(out, "disk_kind", view->disk_kind == KEEPER_PERSISTENT ? "persistent" : "ephemeral");
    out_text(out, "cwd", view->cwd);
    out_text(out, "user", view->user);
    out_text(out, "hostname", view->hostname);
    print_resources(out, &view->limits);
    print_mounts(out, view);
    out_bool(out, "mountable", view->mountable);
    print_network(out, "network", view->policy, &view->network);
    print_ports(out, view);
    print_lifecycle(out, view);
    out_text(out, "state", sandbox_state_name(view->state));
    out_text(out, "reason", view->reason);
    print_error(out, &view->error);
    out_time(out, "created_at", view->created_ms);
    out_time(out, "updated_at", view->updated_ms);
    out_number(out, "revision", view->revision);
    out_number(out, "processes_running", view->processes_running);
    if (created != NULL)
        out_bool(out, "created", *created);
    out_object_end(out);
}

const char *print_signal(int number, char text[16])
{
    const char *name = sigabbrev_np(number);

    if (name != NULL)
        (void)snprintf(text, 16, "SIG%s", name);
    else
        (void)snprintf(text, 16, "SIG%d", number);
    return text;
}

static void print_end(struct out *out, const struct proc_view *view)
{
    bool has_exited = view->state == PROC_EXITED;
    char text[16];

    if (has_exited && view->signal == 0)
        out_signed(out, "exit_code", view->exit_code);
    else
        out_null(out, "exit_code");
    out_text(out, "signal",
             has_exited && view->signal != 0 ? print_signal(view->signal, text) : NULL);
    out_bool(out, "timed_out", view->timed_out);
    out_bool(out, "oom_killed", view->oom_killed);
    out_text_or_none(out, "reason", view->reason);
    if (view->state == PROC_FAILED)
        print_error(out, &view->failure);
}

void print_process(struct out *out, const char *key, const struct proc_view *view)
{
    static const char *const states[] = {"starting", "running", "exited", "failed", "lost"};
    static const char *const streams[] = {"stdout", "stderr"};

    out_object(out, key);
    out_text(out, "id", view->id);
    if (view->pid > 0)
        out_number(out, "pid", (uint64_t)view->pid);
    else
        out_null(out, "pid");
    out_text(out, "tag", view->tag);
    out_text(out, "command", view->command);
    out_text(out, "state", states[view->state]);
    print_end(out, view);
    out_time(out, "started_at", view->started_ms);
    out_time(out, "ended_at", view->ended_ms);
    out_number(out, "cpu_ms", view->cpu_ns / 1000000);
    if (view->has_terminal) {
        out_object(out, "terminal");
        out_number(out, "rows", view->rows);
        out_number(out, "columns", view->columns);
        out_object_end(out);
    } else {
        out_null(out, "terminal");
    }
    for (size_t i = 0; i < 2; i++) {
        out_object(out, streams[i]);
        out_number(out, "from", view->out_from[i]);
        out_number(out, "bytes", view->out_bytes[i]);
        out_object_end(out);
    }
    out_object_end(out);
}

void print_key(struct out *out, const struct engine_key_view *key, const char *secret)
{
    static const char *const scopes[] = {"read", "write", "keys", "operator"};

    out_object(out, NULL);
    out_text(out, "id", key->id);
    out_text(out, "tenant", key->tenant);
    out_text(out, "label", key->label);
    out_array(out, "scopes");
    for (size_t i = 0; i < 4; i++)
        if ((key->scopes & 1U << i) != 0)
            out_text(out, NULL, scopes[i]);
    out_array_end(out);
    out_time(out, "created_at", key->created_ms);
    out_text_or_none(out, "secret", secret);
    out_object_end(out);
}

void print_quota(struct out *out, const char *key, const struct engine_quota *quota)
{
    out_object(out, key);
    out_number(out, "sandboxes", quota->sandboxes);
    out_milli(out, "cpus", quota->cpu_milli);
    out_number(out, "memory_bytes", quota->memory_bytes);
    out_number(out, "disk_bytes", quota->disk_bytes);
    out_number(out, "ports", quota->ports);
    out_number(out, "pids", quota->pids);
    out_number(out, "requests_per_second", quota->requests_per_second);
    out_object_end(out);
}

static void print_traffic(struct out *out, const struct engine_event_traffic *traffic)
{
    if (traffic == NULL) {
        out_null(out, "traffic");
        return;
    }
    out_object(out, "traffic");
    out_text(out, "name", traffic->name);
    out_text(out, "address", traffic->address);
    print_some(out, "port", traffic->port);
    out_text(out, "rule", traffic->rule);
    out_number(out, "lasted_ms", traffic->lasted_ms);
    out_number(out, "bytes_out", traffic->bytes_out);
    out_number(out, "bytes_in", traffic->bytes_in);
    out_number(out, "left_out", traffic->left_out);
    out_object_end(out);
}

void print_event(struct out *out, const struct engine_event *event)
{
    out_object(out, NULL);
    out_number(out, "sequence", event->sequence);
    out_time(out, "time", event->time_ms);
    out_text(out, "type", event->type);
    out_text(out, "tenant", event->tenant);
    out_text(out, "sandbox", event->sandbox);
    out_text(out, "kernel", event->kernel);
    out_text(out, "process", event->process);
    out_text(out, "reason", event->reason);
    out_text(out, "key", event->key);
    print_traffic(out, event->traffic);
    out_object_end(out);
    out_raw(out, "\n", 1);
}
