/* Policies: made from texts, shared, and let go. A policy never changes, so a copy is one more reference to it;
 * the last one that goes frees it, in whatever thread that is. */
#include "policy/parts.h"

#include "base/fd.h"

#include <stdlib.h>
#include <string.h>

static const char *const modes[] = {
    [POLICY_NONE] = "none", [POLICY_ALLOW] = "allow", [POLICY_PUBLIC] = "public"};
#define MODES (sizeof(modes) / sizeof(modes[0]))

const char *policy_mode_name(enum policy_mode mode)
{
    return (size_t)mode < MODES ? modes[mode] : "none";
}

static int find_mode(const char *text, enum policy_mode *out)
{
    for (size_t i = 0; text != NULL && i < MODES; i++) {
        if (strcmp(text, modes[i]) == 0) {
            *out = (enum policy_mode)i;
            return 0;
        }
    }
    return -1;
}

/* ---- cuts ---- */

static int compare_ports(const void *a, const void *b)
{
    uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;

    return (first > second) - (first < second);
}

static uint16_t find_cut(const uint32_t *cuts, size_t count, uint32_t port)
{
    const uint32_t *found = bsearch(&port, cuts, count, sizeof(*cuts), compare_ports);

    return (uint16_t)(found - cuts);
}

static void cut_rules(struct rules *rules, const uint32_t *cuts, size_t count)
{
    for (size_t i = 0; i < rules->count; i++) {
        struct rule *rule = &rules->rules[i];

        rule->cut_low = find_cut(cuts, count, rule->port_low);
        rule->cut_end = find_cut(cuts, count, rule->port_high + 1U);
    }
}

static size_t gather_cuts(const struct rules *rules, uint32_t *cuts)
{
    for (size_t i = 0; i < rules->count; i++) {
        cuts[2 * i] = rules->rules[i].port_low;
        cuts[2 * i + 1] = rules->rules[i].port_high + 1U;
    }
    return 2 * rules->count;
}

/* Where ports begin to be another matter: policy_lookup() has to ask about no others. */
static void cut_ports(struct policy *policy)
{
    uint32_t cuts[CUTS_MAX + 1]; /* and the end of all ports */
    size_t count = 0, kept = 0;

    cuts[count++] = 1;
    cuts[count++] = 65536;
    count += gather_cuts(&policy->allow, cuts + count);
    count += gather_cuts(&policy->deny, cuts + count);
    qsort(cuts, count, sizeof(*cuts), compare_ports);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || cuts[kept - 1] != cuts[i])
            cuts[kept++] = cuts[i];
    cut_rules(&policy->allow, cuts, kept);
    cut_rules(&policy->deny, cuts, kept);
    policy->cuts = (uint16_t)(kept - 1); /* stretches: the last one ends */
}

/* ---- making ---- */

/* As many as a policy may have, and one: more are not counted. */
static size_t count_texts(const char *const *texts)
{
    size_t count = 0;

    while (texts != NULL && count <= POLICY_RULES_MAX && texts[count] != NULL)
        count++;
    return count;
}

static int make(enum policy_mode mode, const char *const *allow, size_t allow_count,
                const char *const *deny, size_t deny_count, struct policy **out, struct error *err)
{
    _cleanup_(policy_freep) struct policy *policy = NULL;

    if (mode == POLICY_NONE && allow_count + deny_count > 0)
        return error_set(
            err, "bad_policy", 0,
            "mode 'none' reaches nothing and takes no rules; leave the %s rules away, or "
            "take mode 'allow'",
            allow_count > 0 ? "allow" : "deny");
    if (allow_count + deny_count > POLICY_RULES_MAX)
        return error_set(
            err, "bad_policy", 0,
            "a policy has at most %d rules, allow and deny together; take *.NAME or a CIDR "
            "for several",
            POLICY_RULES_MAX);
    policy = calloc(1, sizeof(*policy));
    if (policy == NULL)
        return error_set(err, "no_memory", 0, "there is no memory for a policy");
    policy->mode = mode;
    atomic_init(&policy->references, 1);
    if (rules_parse(allow, allow_count, "allow", &policy->allow, err) < 0 ||
        rules_parse(deny, deny_count, "deny", &policy->deny, err) < 0)
        return -1;
    cut_ports(policy);
    *out = policy;
    policy = NULL;
    return 0;
}

int policy_new(const char *mode, const char *const *allow, const char *const *deny,
               struct policy **out, struct error *err)
{
    enum policy_mode found;

    if (find_mode(mode, &found) < 0)
        return error_set(
            err, "bad_policy", 0,
            "a policy has one of three modes: none, allow (what its allow rules name) or "
            "public (the public internet)");
    return make(found, allow, count_texts(allow), deny, count_texts(deny), out, err);
}

/* ---- one text ---- */

/* A text on its way to two lists. */
struct lists {
    const char *allow[POLICY_RULES_MAX + 1], *deny[POLICY_RULES_MAX + 1];
    size_t allow_count, deny_count;
    bool has_mode, has_list;
    enum policy_mode mode;
};

static char *trim(char *part)
{
    size_t length;

    part += strspn(part, " ");
    length = strlen(part);
    while (length > 0 && part[length - 1] == ' ')
        part[--length] = '\0';
    return part;
}

static int take_rule(struct lists *lists, bool denies, char *part, struct error *err)
{
    enum policy_mode mode;

    if (lists->allow_count + lists->deny_count == POLICY_RULES_MAX)
        return error_set(
            err, "bad_policy", 0,
            "a policy has at most %d rules, allow and deny together; take *.NAME or a CIDR "
            "for several",
            POLICY_RULES_MAX);
    /* Else it would be a rule for a host of that name. */
    if (find_mode(part, &mode) == 0)
        return error_set(
            err, "bad_policy", 0,
            "a policy's mode stands before its rules, and '%s' stands among them; write "
            "it first, as in public,deny=example.com",
            part);
    if (denies)
        lists->deny[lists->deny_count++] = part;
    else
        lists->allow[lists->allow_count++] = part;
    return 0;
}

static int take_mode(struct lists *lists, const char *part, struct error *err)
{
    if (find_mode(part, &lists->mode) < 0 || lists->mode == POLICY_ALLOW || lists->has_mode)
        return error_set(err, "bad_policy", 0,
                         "a policy begins with none, public or allow=RULE, once: as in "
                         "allow=example.com:443,10.0.0.0/8 or public,deny=example.com");
    lists->has_mode = true;
    return 0;
}

static int take_parts(struct lists *lists, char *text, struct error *err)
{
    bool denies = false;

    for (char *part; (part = strsep(&text, ",")) != NULL;) {
        part = trim(part);
        if (strncmp(part, "allow=", 6) == 0 || strncmp(part, "deny=", 5) == 0) {
            denies = part[0] == 'd';
            lists->has_list = true;
            part = trim(strchr(part, '=') + 1);
        }
        if ((lists->has_list ? take_rule(lists, denies, part, err) : take_mode(lists, part, err)) <
            0)
            return -1;
    }
    return 0;
}

int policy_new_text(const char *text, struct policy **out, struct error *err)
{
    _cleanup_free_ char *copy = strdup(text);
    _cleanup_free_ struct lists *lists = calloc(1, sizeof(*lists));

    if (copy == NULL || lists == NULL)
        return error_set(err, "no_memory", 0, "there is no memory for a policy");
    if (take_parts(lists, copy, err) < 0)
        return -1;
    if (!lists->has_mode && lists->allow_count == 0)
        return error_set(
            err, "bad_policy", 0,
            "this policy denies and allows nothing else; write public,deny=..., or add "
            "allow=RULE");
    return make(lists->has_mode ? lists->mode : POLICY_ALLOW, lists->allow, lists->allow_count,
                lists->deny, lists->deny_count, out, err);
}

/* ---- the rest ---- */

int policy_new_hosts(const char *const *hosts, struct policy **out, struct error *err)
{
    const char *rules[POLICY_RULES_MAX + 1];
    bool is_public = false;
    size_t count = 0;

    for (size_t i = 0; hosts != NULL && hosts[i] != NULL; i++) {
        if (strcmp(hosts[i], "*") == 0)
            is_public = true;
        else if (count < POLICY_RULES_MAX)
            rules[count++] = hosts[i];
        else
            return error_set(err, "bad_policy", 0, "a list of hosts has at most %u rules",
                             POLICY_RULES_MAX);
    }
    rules[count] = NULL;
    return policy_new(is_public ? "public" : count > 0 ? "allow" : "none", rules, NULL, out, err);
}

struct policy *policy_copy(const struct policy *policy)
{
    struct policy *same = (struct policy *)policy; /* but for the count nothing is written */

    atomic_fetch_add(&same->references, 1);
    return same;
}

void policy_free(struct policy *policy)
{
    if (policy == NULL || atomic_fetch_sub(&policy->references, 1) != 1)
        return;
    rules_free(&policy->allow);
    rules_free(&policy->deny);
    free(policy);
}

void policy_freep(struct policy **policy)
{
    policy_free(*policy);
    *policy = NULL;
}

enum policy_mode policy_mode(const struct policy *policy)
{
    return policy->mode;
}

const char *const *policy_allow(const struct policy *policy)
{
    return policy->allow.texts;
}

const char *const *policy_deny(const struct policy *policy)
{
    return policy->deny.texts;
}
