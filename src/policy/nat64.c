/* NAT64 of a site's own: prefixes that the operator names, and the IPv4 addresses in what they have (RFC 6052).
 *
 * In 64:ff9b::/96 everybody knows where the IPv4 address is; a site may take any prefix of its own, of one of six
 * lengths. Only what a translator could be given is taken as a prefix, so that no line of a configuration opens what
 * is fixed. */
#include "policy/parts.h"

#include <stdlib.h>
#include <string.h>

#define IPV4_AT 12 /* in an address of ours */
#define ZEROS_AT 8 /* this byte is 0 in every prefix and every address (RFC 6052, 2.2) */

static struct prefix prefix_of(const struct policy_nat64_prefix *named)
{
    return (struct prefix){.address = named->address, .bits = named->bits};
}

bool nat64_inner(const struct policy_nat64 *nat64, const struct policy_address *address,
                 struct policy_address *inner, bool *is_exact)
{
    for (size_t i = 0; i < nat64->count; i++) {
        struct prefix prefix = prefix_of(&nat64->prefixes[i]);
        size_t at = prefix.bits / 8;

        if (!prefix_has(&prefix, address))
            continue;
        (void)policy_address_parse("0.0.0.0", inner);
        for (size_t j = 0; j < 4; j++) {
            at += at == ZEROS_AT;
            inner->bytes[IPV4_AT + j] = address->bytes[at++];
        }
        *is_exact = address->bytes[ZEROS_AT] == 0;
        for (; at < sizeof(address->bytes); at++)
            *is_exact = *is_exact && address->bytes[at] == 0;
        return true;
    }
    return false;
}

/* ---- text ---- */

static int refuse(const char *text, const char *why, struct error *err)
{
    return error_set(err, "bad_value", 0, "\"%.80s\" %s", text, why);
}

/* Where translators are: what is public or a site's own, 64:ff9b::/96 and 64:ff9b:1::/48. */
static bool may_be_translated(const struct prefix *prefix)
{
    const char *reason;
    enum address_kind kind = prefix_kind(prefix, &reason);

    return kind != ADDRESS_FIXED &&
           (kind != ADDRESS_WRAPPER || memcmp(prefix->address.bytes, "\0\x64\xff\x9b", 4) == 0);
}

static bool overlaps(const struct policy_nat64 *nat64, const struct prefix *prefix)
{
    for (size_t i = 0; i < nat64->count; i++) {
        struct prefix other = prefix_of(&nat64->prefixes[i]);

        if (prefix_has(&other, &prefix->address) || prefix_has(prefix, &other.address))
            return true;
    }
    return false;
}

static bool bits_read(const char *text, uint8_t *out)
{
    static const uint8_t lengths[] = {32, 40, 48, 56, 64, 96};
    char *end = NULL;
    unsigned long bits = *text >= '1' && *text <= '9' ? strtoul(text, &end, 10) : 0;

    if (bits == 0 || *end != '\0')
        return false;
    for (size_t i = 0; i < sizeof(lengths); i++) {
        *out = lengths[i];
        if (bits == lengths[i])
            return true;
    }
    return false;
}

static int prefix_add(void *into, const char *text, struct error *err)
{
    struct policy_nat64 *nat64 = into;
    struct prefix prefix;
    char address[POLICY_ADDRESS_TEXT];
    const char *slash = strchr(text, '/');
    size_t length = slash != NULL ? (size_t)(slash - text) : 0;

    if (length == 0 || length >= sizeof(address))
        return refuse(text, "is no prefix; write one like 2001:db8:64::/96", err);
    memcpy(address, text, length);
    address[length] = '\0';
    if (policy_address_parse(address, &prefix.address) < 0 || address_is_4(&prefix.address))
        return refuse(text, "is no IPv6 prefix; write one like 2001:db8:64::/96", err);
    if (!bits_read(slash + 1, &prefix.bits))
        return refuse(text, "has a length that NAT64 has not; it is 32, 40, 48, 56, 64 or 96", err);
    if (!prefix_trim(&prefix) || prefix.address.bytes[ZEROS_AT] != 0)
        return refuse(text, "has bits where a prefix of NAT64 has zeros; write the prefix alone",
                      err);
    if (!may_be_translated(&prefix))
        return refuse(text, "is reserved, and leads to no translator; write the site's own", err);
    if (overlaps(nat64, &prefix))
        return refuse(text, "overlaps another prefix; keep one of them", err);
    if (nat64->count == POLICY_NAT64_MAX)
        return refuse(text, "is one prefix too many; there may be 8", err);
    nat64->prefixes[nat64->count++] = (struct policy_nat64_prefix){.address = prefix.address,
                                                                   .bits = prefix.bits};
    return 0;
}

int policy_nat64_parse(const char *text, struct policy_nat64 *out, struct error *err)
{
    *out = (struct policy_nat64){.count = 0};
    return list_parse(text, prefix_add, out, err);
}
