/* The private networks that an operator lets policies open: see policy.h.
 *
 * A policy is its tenant's and the bound is the operator's, so it is no part of a policy: what a rule may never open is
 * refused when the policy comes, and what an address turns out to be is judged once more when it is dialled, for a name
 * may lead anywhere and a policy may be older than the bound. */
#include "policy/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY "`private` below [network] of cove.conf"

static struct prefix prefix_of(const struct policy_network *network)
{
    return (struct prefix){.address = network->address, .bits = network->bits};
}

/* All of it. */
static bool bound_has(const struct policy_bound *bound, const struct prefix *prefix)
{
    for (size_t i = 0; i < bound->count; i++) {
        struct prefix network = prefix_of(&bound->networks[i]);

        if (network.bits <= prefix->bits && prefix_has(&network, &prefix->address))
            return true;
    }
    return bound->is_any;
}

/* ---- text ---- */

static int network_add(void *into, const char *text, struct error *err)
{
    struct policy_bound *bound = into;
    struct rule rule;
    const char *reason;
    int status = rule_parse(text, "allow", &rule, err);
    bool is_network = status == 0 && rule.name == NULL && rule.port_low == 1 &&
                      rule.port_high == UINT16_MAX &&
                      prefix_kind(&rule.prefix, &reason) == ADDRESS_PRIVATE;

    if (is_network && bound->count < POLICY_BOUND_MAX)
        bound->networks[bound->count++] = (struct policy_network){.address = rule.prefix.address,
                                                                  .bits = rule.prefix.bits};
    else if (is_network)
        status = error_set(err, "bad_value", 0,
                           "\"%.80s\" is one network too many; there may be %d", text,
                           POLICY_BOUND_MAX);
    else
        status = error_set(err, "bad_value", 0,
                           "\"%.80s\" is no private network; write any, none, or such as "
                           "10.1.0.0/16 between commas",
                           text);
    rule_free(&rule);
    return status;
}

int policy_bound_parse(const char *text, struct policy_bound *out, struct error *err)
{
    *out = (struct policy_bound){.is_any = strcmp(text, "any") == 0};
    if (out->is_any || strcmp(text, "none") == 0)
        return 0;
    return list_parse(text, network_add, out, err);
}

static void print(const struct policy_bound *bound, char *text, size_t size)
{
    (void)snprintf(text, size, bound->count == 0 ? "none" : "");
    for (size_t i = 0; i < bound->count; i++) {
        struct prefix network = prefix_of(&bound->networks[i]);
        char address[POLICY_ADDRESS_TEXT];
        size_t used = strlen(text);

        policy_address_text(&network.address, address);
        (void)snprintf(text + used, size - used, "%s%s/%d", i > 0 ? ", " : "", address,
                       network.bits - (prefix_is_4(&network) ? 96 : 0));
    }
}

/* ---- verdicts ---- */

int policy_bound_check(const struct policy_bound *bound, const struct policy *policy,
                       struct error *err)
{
    char allowed[160];
    const char *reason;

    for (size_t i = 0; i < policy->allow.count; i++) {
        const struct rule *rule = &policy->allow.rules[i];
        bool is_name = rule->name != NULL;

        if (is_name ? !rule->opens_private || bound->is_any || bound->count > 0
                    : prefix_kind(&rule->prefix, &reason) != ADDRESS_PRIVATE ||
                          bound_has(bound, &rule->prefix))
            continue;
        print(bound, allowed, sizeof(allowed));
        return error_set(
            err, "private_network", 0,
            "the rule \"%.100s\" opens a private network that the operator does not: " KEY " is %s",
            rule->text, allowed);
    }
    return 0;
}

struct policy_verdict policy_bound_narrow(const struct policy_bound *bound,
                                          struct policy_verdict verdict,
                                          const struct policy_address *address,
                                          const struct policy_nat64 *nat64)
{
    struct views views;
    const char *reason;

    if (!verdict.allowed || bound->is_any)
        return verdict;
    address_views(address, nat64, &views);
    for (size_t i = 0; i < views.count; i++) {
        struct prefix one = {.address = views.of[i], .bits = 128};

        if (address_kind(&views.of[i], &reason) == ADDRESS_PRIVATE &&
            !(i == 0 && views.is_translated) && !bound_has(bound, &one))
            return (struct policy_verdict){.allowed = false, .reason = reason};
    }
    return verdict;
}
