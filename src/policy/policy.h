/* Who may reach what: one policy as a parsed object, and its verdicts. Pure code: no call of the system,
 * no clock, no name is looked up here.
 *
 * A policy has a mode and rules, written as texts. Modes: "none" (nothing at all), "allow" (what an allow
 * rule names), "public" (all of the public internet, and what allow rules name besides). A rule is
 *
 *     WHAT[:PORT[-PORT]][ private=yes][ protocol=tcp|udp]
 *
 * where WHAT is a name ("example.com": that name and no other), "*.example.com" (every name below it, at any
 * depth, and not example.com itself), "*" (any name), an address or a CIDR ("10.0.0.0/8", "[2001:db8::]/32",
 * brackets where a port follows or not). Names are compared in lower case, without a last dot, IDN as xn--; a
 * name that is no host name (RFC 1123, "_" allowed) is refused and matches nothing. Without a port all ports.
 *
 * What is decided of a connection, in this order:
 *   1. The fixed deny set, above every rule: loopback, "this host" (0/8), link-local, multicast, broadcast and
 *      reserved, cloud metadata (169.254.169.254, 100.100.100.200, 168.63.129.16, fd00:ec2::254, ...), the
 *      fake ranges that stand for names in a box (POLICY_FAKE_*), the host's own addresses, and all of these
 *      inside of IPv4-mapped, -compatible, NAT64, 6to4 and Teredo addresses, and of those of a site's own NAT64.
 *      The inner address is what allow rules are asked about; deny rules are asked about both.
 *   2. Deny rules: of the name, or of the address.
 *   3. Private ranges (RFC 1918, 100.64/10, fc00::/7, site-local): only by a CIDR rule, or by a name rule that
 *      says private=yes. Documentation ranges are not private.
 *   4. An allow rule of the name, or of the address; in mode public any public address.
 * A verdict names the rule or the part of the fixed set, in words for the log. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_RULES_MAX 1024 /* allow and deny together */
#define POLICY_RULE_TEXT_MAX 320
#define POLICY_NAME_MAX 254 /* with the NUL */

/* What a box gets in place of the addresses of names: 198.18.0.0/15 and fd63:6f76:6500::/48. */
#define POLICY_FAKE4 0xc6120000U
#define POLICY_FAKE4_BITS 15
#define POLICY_FAKE6 "\xfd\x63\x6f\x76\x65\x00"
#define POLICY_FAKE6_BITS 48

enum policy_mode { POLICY_NONE, POLICY_ALLOW, POLICY_PUBLIC };
enum policy_protocol { POLICY_TCP = 1, POLICY_UDP };

struct policy; /* never changes once it is made */

/* An address of either family: IPv4 as ::ffff:a.b.c.d in network order. */
struct policy_address {
    uint8_t bytes[16];
};

struct policy_verdict {
    bool allowed;
    /* A code: "allowed", "none", "no_rule", "denied", "private", "loopback", "link_local", "metadata", "host",
     * "multicast", "reserved", "fake", "bad_name". */
    const char *reason;
    const char
        *rule; /* the text of the rule that decided; NULL: none did. Of the policy, borrowed */
};

/* `allow` and `deny` are NULL-terminated, or NULL; "bad_policy" names the rule and what is wrong. */
int policy_new(const char *mode, const char *const *allow, const char *const *deny,
               struct policy **out, struct error *err);
/* One text, as of the command line and the configuration: "none", "public", or parts between ",":
 * "allow=RULE,RULE,...", "public,deny=RULE,RULE" : a part that begins with "allow=" or "deny=" begins a list that
 * goes on until the next such part. With allow= and without a mode, mode allow. */
int policy_new_text(const char *text, struct policy **out, struct error *err);
/* What code may fetch from: rules, "*" for all of the public internet besides; NULL or empty: nothing. */
int policy_new_hosts(const char *const *hosts, struct policy **out, struct error *err);
struct policy *policy_copy(const struct policy *policy);
void policy_free(struct policy *policy);
void policy_freep(struct policy **policy);

enum policy_mode policy_mode(const struct policy *policy);
const char *policy_mode_name(enum policy_mode mode);
/* As they were written, normalised; NULL-terminated, borrowed. */
const char *const *policy_allow(const struct policy *policy);
const char *const *policy_deny(const struct policy *policy);

/* The normal form of a host name; -1 where it is none ("bad_name"). */
int policy_name(const char *text, char out[POLICY_NAME_MAX], struct error *err);
/* An address as people write it (no octal, hex or short forms of IPv4: those are -1). */
int policy_address_parse(const char *text, struct policy_address *out);
#define POLICY_ADDRESS_TEXT 46
void policy_address_text(const struct policy_address *address, char out[POLICY_ADDRESS_TEXT]);

/* The prefixes by which this site's translators reach IPv4 (RFC 6052), besides the well-known 64:ff9b::/96: in which
 * addresses another one lies is nowhere to be read. */
#define POLICY_NAT64_MAX 8
struct policy_nat64 {
    size_t count;
    struct policy_nat64_prefix {
        struct policy_address address;
        uint8_t bits; /* 32, 40, 48, 56, 64 or 96 */
    } prefixes[POLICY_NAT64_MAX];
};
/* Of a text like "2001:db8:64::/96, fd00:64::/48"; "bad_value" quotes what is wrong. */
int policy_nat64_parse(const char *text, struct policy_nat64 *out, struct error *err);

/* The address, and those of IPv4 that are wrapped in it (NAT64, 6to4 ...): how many. `nat64` may be NULL. */
#define POLICY_VIEWS_MAX 4
size_t policy_views(const struct policy_address *address, const struct policy_nat64 *nat64,
                    struct policy_address out[POLICY_VIEWS_MAX]);

/* What of the private networks an operator lets any policy open: "any", "none", or networks between commas, as in
 * "10.1.0.0/16, fd00:1::/32". "bad_value" quotes what is wrong. */
#define POLICY_BOUND_MAX 64
struct policy_bound {
    bool is_any;
    size_t count;
    struct policy_network {
        struct policy_address address;
        uint8_t bits; /* of all 128 */
    } networks[POLICY_BOUND_MAX];
};
int policy_bound_parse(const char *text, struct policy_bound *out, struct error *err);
/* "private_network" names the first allow rule that could open nothing but what the bound does not. */
int policy_bound_check(const struct policy_bound *bound, const struct policy *policy,
                       struct error *err);
/* The verdict of policy_dial(), or "private" where the bound has not the address. `nat64` may be NULL. */
struct policy_verdict policy_bound_narrow(const struct policy_bound *bound,
                                          struct policy_verdict verdict,
                                          const struct policy_address *address,
                                          const struct policy_nat64 *nat64);

/* Whether a name may be looked up: whether some port of it may be reached as far as the name tells. */
struct policy_verdict policy_lookup(const struct policy *policy, const char *name);

/* Whether `address`:`port` may be dialled, for a client that asked for `name` (normal form), or for the address
 * itself (NULL). `own` are the host's addresses, or those of the views of this one that are. `nat64` may be NULL. */
struct policy_verdict policy_dial(const struct policy *policy, const char *name,
                                  const struct policy_address *address, uint16_t port,
                                  enum policy_protocol protocol, const struct policy_nat64 *nat64,
                                  const struct policy_address *own, size_t own_count);
