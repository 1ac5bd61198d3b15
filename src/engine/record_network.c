/* The network of a record, from what a client says of it: bounds that are in range, and a policy that is one. */
#include "engine/record.h"

#include <string.h>

#define CONNECTIONS_MOST 65536
#define LOOKUPS_MOST 100000

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
