/* The network of a record, from what a client says of it: bounds that are in range, and a policy that is one. */
#include "engine/record.h"

#include <stdlib.h>
#include <string.h>

#define CONNECTIONS_MOST 65536
#define LOOKUPS_MOST 100000

struct policy *record_no_network(void)
{
    struct policy *policy = NULL;
    struct error err;

    (void)policy_new("none", NULL, NULL, &policy, &err);
    if (policy == NULL)
        abort(); /* out of memory: see parts.h */
    return policy;
}

static int set_bound(const char *what, uint64_t wish, uint64_t most, uint64_t *out,
                     struct error *err)
{
    if (wish == UINT64_MAX)
        return 0;
    if (wish > most)
        return error_set(err, "bad_request", 0, "network.%s: %llu is more than %llu", what,
                         (unsigned long long)wish, (unsigned long long)most);
    *out = wish;
    return 0;
}

static int set_bounds(struct net_limits *limits, const struct sandbox_network *wish,
                      struct error *err)
{
    uint64_t connections = limits->connections, lookups = limits->lookups_per_second;

    if (set_bound("connections", wish->connections, CONNECTIONS_MOST, &connections, err) != 0 ||
        set_bound("lookups_per_second", wish->lookups_per_second, LOOKUPS_MOST, &lookups, err) !=
            0 ||
        set_bound("bytes_per_second", wish->bytes_per_second, INT64_MAX, &limits->bytes_per_second,
                  err) != 0 ||
        set_bound("bytes", wish->bytes, INT64_MAX, &limits->bytes, err) != 0)
        return -1;
    limits->connections = (uint32_t)connections;
    limits->lookups_per_second = (uint32_t)lookups;
    return 0;
}

static int check_rules(const char *const *rules, size_t *bytes, struct error *err)
{
    for (; rules != NULL && *rules != NULL; rules++)
        *bytes += strlen(*rules) + 1;
    if (*bytes <= RECORD_RULES_BYTES)
        return 0;
    return error_set(err, "bad_policy", 0,
                     "network: the rules have more than the %u bytes that may be; take wildcards "
                     "or larger ranges",
                     RECORD_RULES_BYTES);
}

int record_set_network(struct record *record, const struct sandbox_network *wish, struct error *err)
{
    const char *mode = wish->mode;
    struct policy *policy;
    size_t bytes = 0;

    if (set_bounds(&record->network, wish, err) != 0 ||
        check_rules(wish->allow, &bytes, err) != 0 || check_rules(wish->deny, &bytes, err) != 0)
        return -1;
    if (mode == NULL && wish->allow == NULL && wish->deny == NULL)
        return 0;
    if (mode == NULL && wish->allow == NULL)
        return error_set(err, "bad_policy", 0,
                         "network.deny: a mode is needed beside it; say \"mode\": \"public\"");
    if (policy_new(mode != NULL ? mode : "allow", wish->allow, wish->deny, &policy, err) != 0)
        return -1;
    policy_free(record->policy);
    record->policy = policy;
    return 0;
}

/* ---- its ports ---- */

int record_set_port(struct record *record, uint16_t port, uint16_t host_port, int is_public,
                    struct error *err)
{
    struct record_port *ports = record->ports;
    size_t at = 0, count = record->ports_count;

    if (port == 0)
        return error_set(err, "bad_request", 0, "port: a number from 1 to 65535");
    while (at < count && ports[at].port < port)
        at++;
    if (at == count || ports[at].port != port) {
        if (count == ENGINE_PORTS_MAX)
            return error_set(err, "too_many_ports", 0,
                             "a sandbox has at most %d ports open to this host; close one first",
                             ENGINE_PORTS_MAX);
        memmove(&ports[at + 1], &ports[at], (count - at) * sizeof(*ports));
        ports[at] = (struct record_port){.port = port, .host_port = host_port};
        record->ports_count++;
    }
    if (is_public >= 0)
        ports[at].is_public = is_public > 0;
    return 0;
}

void record_remove_port(struct record *record, uint16_t port)
{
    struct record_port *ports = record->ports;

    for (size_t i = 0; i < record->ports_count; i++) {
        if (ports[i].port != port)
            continue;
        record->ports_count--;
        memmove(&ports[i], &ports[i + 1], (record->ports_count - i) * sizeof(*ports));
        return;
    }
}
