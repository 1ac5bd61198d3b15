/* The verdicts, in the order that policy.h gives: what is fixed, what is denied, what is private, what is allowed.
 * Each step asks about all forms of an address at once, so that no spelling of it is another address. */
#include "policy/parts.h"

#include <string.h>

static struct policy_verdict no(const char *reason, const struct rule *rule)
{
    return (struct policy_verdict){.reason = reason, .rule = rule != NULL ? rule->text : NULL};
}

static struct policy_verdict yes(const struct rule *rule)
{
    return (struct policy_verdict){
        .allowed = true, .reason = "allowed", .rule = rule != NULL ? rule->text : NULL};
}

/* The one that was written first. */
static const struct rule *first_of(const struct rules *rules, const uint16_t *found, size_t count)
{
    uint16_t first = 0;

    for (size_t i = 0; i < count; i++)
        if (i == 0 || found[i] < first)
            first = found[i];
    return count > 0 ? &rules->rules[first] : NULL;
}

/* ---- a name ---- */

/* How many rules cover each stretch of ports; the counts are differences to the stretch before. */
struct cover {
    int16_t change[CUTS_MAX + 1];
};

static void cover_ports(struct cover *cover, const struct policy *policy, const struct rules *rules,
                        const uint16_t *found, size_t count)
{
    memset(cover->change, 0, (policy->cuts + 1U) * sizeof(cover->change[0]));
    for (size_t i = 0; i < count; i++) {
        const struct rule *rule = &rules->rules[found[i]];

        if ((rule->protocols & POLICY_TCP) == 0)
            continue;
        cover->change[rule->cut_low]++;
        cover->change[rule->cut_end]--;
    }
}

/* The one that was written first of those that cover a stretch. */
static const struct rule *covering(const struct rules *rules, const uint16_t *found, size_t count,
                                   size_t cut)
{
    const struct rule *first = NULL;

    for (size_t i = 0; i < count; i++) {
        const struct rule *rule = &rules->rules[found[i]];

        if ((rule->protocols & POLICY_TCP) != 0 && cut >= rule->cut_low && cut < rule->cut_end &&
            (first == NULL || rule < first))
            first = rule;
    }
    return first;
}

struct policy_verdict policy_lookup(const struct policy *policy, const char *name)
{
    uint16_t allow[POLICY_RULES_MAX], deny[POLICY_RULES_MAX];
    size_t allow_count, deny_count, contested = 0;
    bool is_public = policy->mode == POLICY_PUBLIC, is_contested = false, denied_whole = true;
    struct cover allowed, denied;
    char normal[POLICY_NAME_MAX];
    int16_t allows = 0, denies = 0;

    if (policy->mode == POLICY_NONE)
        return no("none", NULL);
    if (name == NULL || name_flaw(name, normal) != NULL)
        return no("bad_name", NULL);
    allow_count = rules_of_name(&policy->allow, normal, allow);
    deny_count = rules_of_name(&policy->deny, normal, deny);
    if (deny_count == 0 && (is_public || allow_count > 0))
        return yes(first_of(&policy->allow, allow, allow_count));
    cover_ports(&allowed, policy, &policy->allow, allow, allow_count);
    cover_ports(&denied, policy, &policy->deny, deny, deny_count);
    for (size_t cut = 0; cut < policy->cuts; cut++) {
        allows = (int16_t)(allows + allowed.change[cut]);
        denies = (int16_t)(denies + denied.change[cut]);
        denied_whole = denied_whole && denies > 0;
        if (!is_public && allows == 0)
            continue;
        if (denies == 0)
            return yes(covering(&policy->allow, allow, allow_count, cut));
        if (!is_contested)
            contested = cut;
        is_contested = true;
    }
    if (is_contested || denied_whole)
        return no("denied", covering(&policy->deny, deny, deny_count, contested));
    return no("no_rule", NULL);
}

/* ---- an address ---- */

struct asked {
    const char *name; /* normal form, or NULL */
    const struct policy_address *addresses;
    size_t count;
    uint16_t port;
    enum policy_protocol protocol;
};

static bool address_matches(const struct rule *rule, const struct asked *asked)
{
    for (size_t i = 0; i < asked->count; i++)
        if (prefix_has(&rule->prefix, &asked->addresses[i]))
            return true;
    return false;
}

/* The first that was written of those that match; `private_only`: and that open a private address. */
static const struct rule *find(const struct rules *rules, const struct asked *asked,
                               bool private_only)
{
    uint16_t found[POLICY_RULES_MAX];
    size_t count = asked->name != NULL ? rules_of_name(rules, asked->name, found) : 0;
    size_t first = rules->count;

    for (size_t i = 0; i < count; i++) {
        const struct rule *rule = &rules->rules[found[i]];

        if (found[i] < first && rule_takes(rule, asked->port, asked->protocol) &&
            (!private_only || rule->opens_private))
            first = found[i];
    }
    for (size_t i = 0; i < first; i++) {
        const struct rule *rule = &rules->rules[i];

        if (rule->name == NULL && rule_takes(rule, asked->port, asked->protocol) &&
            address_matches(rule, asked))
            first = i;
    }
    return first < rules->count ? &rules->rules[first] : NULL;
}

/* Why no rule opens one of its forms; NULL: a rule may. */
static const char *fixed(const struct views *views, const struct policy_address *own,
                         size_t own_count, bool *is_private)
{
    const char *reason;

    for (size_t i = 0; i < views->count; i++) {
        enum address_kind kind = address_kind(&views->of[i], &reason);

        if (kind == ADDRESS_FIXED)
            return reason;
        if (kind == ADDRESS_WRAPPER && i == views->decisive)
            return "reserved"; /* nobody said where in it another one is */
        if (kind == ADDRESS_PRIVATE && !(i == 0 && views->is_translated))
            *is_private = true;
    }
    for (size_t i = 0; i < views->count; i++)
        for (size_t j = 0; j < own_count; j++)
            if (memcmp(&views->of[i], &own[j], sizeof(own[j])) == 0)
                return "host";
    return NULL;
}

struct policy_verdict policy_dial(const struct policy *policy, const char *name,
                                  const struct policy_address *address, uint16_t port,
                                  enum policy_protocol protocol, const struct policy_nat64 *nat64,
                                  const struct policy_address *own, size_t own_count)
{
    char normal[POLICY_NAME_MAX];
    const struct rule *rule;
    const char *reason;
    struct views views;
    struct asked asked;
    bool is_private = false;

    if (policy->mode == POLICY_NONE)
        return no("none", NULL);
    if (name != NULL && name_flaw(name, normal) != NULL)
        return no("bad_name", NULL);
    address_views(address, nat64, &views);
    reason = fixed(&views, own, own_count, &is_private);
    if (reason == NULL && port == 0)
        reason = "reserved";
    if (reason != NULL)
        return no(reason, NULL);

    asked = (struct asked){name != NULL ? normal : NULL, views.of, views.count, port, protocol};
    rule = find(&policy->deny, &asked, false);
    if (rule != NULL)
        return no("denied", rule);
    asked.addresses = &views.of[views.decisive];
    asked.count = 1;
    rule = find(&policy->allow, &asked, is_private);
    if (rule != NULL || (policy->mode == POLICY_PUBLIC && !is_private))
        return yes(rule);
    return no(is_private ? "private" : "no_rule", NULL);
}
