/* Between the files of this room. */
#pragma once

#include "base/err.h"
#include "policy/policy.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- address.c: what an address is ---- */

struct prefix {
    struct policy_address address; /* its host bits are 0 */
    uint8_t bits;                  /* of all 128: an IPv4 prefix has 96 more than is written */
};

bool address_is_4(const struct policy_address *address);
bool prefix_is_4(const struct prefix *prefix);
/* Never of the other family. */
bool prefix_has(const struct prefix *prefix, const struct policy_address *address);
/* Takes away the host bits; false: there were some. */
bool prefix_trim(struct prefix *prefix);

/* An address as it came, and the IPv4 addresses that are wrapped in it. */
struct views {
    size_t count;
    struct policy_address of[POLICY_VIEWS_MAX];
    size_t decisive;    /* which one a rule has to allow: the innermost */
    bool is_translated; /* by the site: that the first is private says nothing */
};
void address_views(const struct policy_address *address, const struct policy_nat64 *nat64,
                   struct views *out);

enum address_kind {
    ADDRESS_PUBLIC,
    ADDRESS_PRIVATE, /* by a CIDR rule, or a name's private=yes */
    ADDRESS_FIXED,   /* by no rule at all */
    ADDRESS_WRAPPER, /* what it wraps is asked for instead */
};
/* `reason` is a code of policy.h. */
enum address_kind address_kind(const struct policy_address *address, const char **reason);
/* The same of all that a prefix has: public where any of it can be reached by a rule. */
enum address_kind prefix_kind(const struct prefix *prefix, const char **reason);

/* ---- rule.c: lists in the configuration ---- */

/* Calls `add` for each of the words between commas, without the spaces around it, until one fails. */
int list_parse(const char *text, int (*add)(void *into, const char *word, struct error *err),
               void *into, struct error *err);

/* ---- nat64.c: what a site's own translators wrap ---- */

/* The IPv4 address in it; false: it is of none of these. *is_exact: nothing else is in it. */
bool nat64_inner(const struct policy_nat64 *nat64, const struct policy_address *address,
                 struct policy_address *inner, bool *is_exact);

/* ---- name.c ---- */

/* Why `text` is no host name, in words that end a sentence; NULL: it is one, and `out` its normal form. */
const char *name_flaw(const char *text, char out[POLICY_NAME_MAX]);
/* The bytes of a name from its end to its begin: names below one another then have a common beginning. */
void name_turn(const char *name, size_t length, char *out);

/* ---- rule.c: one rule ---- */

struct rule {
    char *text; /* as it was written, normalised */
    char *name; /* turned; "" for "*"; NULL: an address rule */
    struct prefix prefix;
    uint16_t port_low, port_high;
    uint16_t cut_low, cut_end; /* the same in cuts of the policy */
    uint8_t protocols;         /* bits of enum policy_protocol */
    uint8_t name_length;
    bool below; /* names below `name` */
    bool opens_private;
};

/* `side` is "allow" or "deny". */
int rule_parse(const char *text, const char *side, struct rule *out, struct error *err);
void rule_free(struct rule *rule);
bool rule_takes(const struct rule *rule, uint16_t port, enum policy_protocol protocol);

/* ---- rules.c: the rules of one side ---- */

struct rules {
    size_t count, names;
    struct rule *rules;
    const char **texts; /* of each, and NULL */
    uint16_t *by_name;  /* those with a name, sorted by it */
};

int rules_parse(const char *const *texts, size_t count, const char *side, struct rules *out,
                struct error *err);
void rules_free(struct rules *rules);
/* Which ones take a name of normal form; how many. */
size_t rules_of_name(const struct rules *rules, const char *name, uint16_t found[POLICY_RULES_MAX]);

/* ---- policy.c ---- */

/* Ports as stretches in which no rule begins or ends: two per rule, and the first. */
#define CUTS_MAX (2 * POLICY_RULES_MAX + 1)

struct policy {
    atomic_uint references;
    enum policy_mode mode;
    struct rules allow, deny;
    uint16_t cuts;
};
