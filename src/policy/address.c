/* Addresses: what they say, what is wrapped in them, and which of them no rule opens.
 *
 * One table says what each part of both families is; the first row that has an address decides. What no row
 * names is reserved: of IPv6 only 2000::/3 is given out, and what is not yet known is not yet dialled. */
#include "policy/parts.h"

#include <arpa/inet.h>
#include <string.h>

#define MAPPED "\0\0\0\0\0\0\0\0\0\0\xff\xff"
#define MAPPED_SIZE 12
#define BITS_4 (8 * MAPPED_SIZE)

bool address_is_4(const struct policy_address *address)
{
    return memcmp(address->bytes, MAPPED, MAPPED_SIZE) == 0;
}

bool prefix_is_4(const struct prefix *prefix)
{
    return prefix->bits >= BITS_4 && address_is_4(&prefix->address);
}

static bool same_beginning(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;

    return memcmp(a, b, whole) == 0 &&
           (rest == 0 || ((a[whole] ^ b[whole]) & (0xff00U >> rest & 0xffU)) == 0);
}

bool prefix_has(const struct prefix *prefix, const struct policy_address *address)
{
    return same_beginning(prefix->address.bytes, address->bytes, prefix->bits) &&
           prefix_is_4(prefix) == address_is_4(address);
}

bool prefix_trim(struct prefix *prefix)
{
    struct policy_address was = prefix->address;

    for (unsigned i = 0; i < sizeof(was.bytes); i++) {
        unsigned left = prefix->bits > 8 * i ? prefix->bits - 8 * i : 0;

        if (left < 8)
            prefix->address.bytes[i] &= (uint8_t)(0xff00U >> left);
    }
    return memcmp(&was, &prefix->address, sizeof(was)) == 0;
}

/* ---- text ---- */

int policy_address_parse(const char *text, struct policy_address *out)
{
    struct policy_address address;

    /* Both functions take one spelling of IPv4 only: four decimal numbers without leading zeros. */
    if (inet_pton(AF_INET6, text, address.bytes) != 1) {
        memcpy(address.bytes, MAPPED, MAPPED_SIZE);
        if (inet_pton(AF_INET, text, address.bytes + MAPPED_SIZE) != 1)
            return -1;
    }
    *out = address;
    return 0;
}

void policy_address_text(const struct policy_address *address, char out[POLICY_ADDRESS_TEXT])
{
    if (address_is_4(address))
        (void)inet_ntop(AF_INET, address->bytes + MAPPED_SIZE, out, POLICY_ADDRESS_TEXT);
    else
        (void)inet_ntop(AF_INET6, address->bytes, out, POLICY_ADDRESS_TEXT);
}

/* ---- what is wrapped ---- */

/* How addresses that wrap one of IPv4 begin, and where in them it lies. */
static const struct wrapper {
    uint8_t begin[MAPPED_SIZE], size;
    uint8_t at, turned;
} wrappers[] = {
    {{0}, 12, 12, 0},                                  /* compatible (RFC 4291) */
    {{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 12, 12, 0}, /* translated, SIIT (RFC 2765) */
    {{0, 0x64, 0xff, 0x9b}, 12, 12, 0},                /* NAT64 (RFC 6052) */
    {{0x20, 0x02}, 2, 2, 0},                           /* 6to4 (RFC 3056) */
    {{0x20, 0x01, 0, 0}, 4, 4, 0},                     /* Teredo (RFC 4380): the server */
    {{0x20, 0x01, 0, 0}, 4, 12, 0xff},                 /* and the client, which decides */
};

void address_views(const struct policy_address *address, const struct policy_nat64 *nat64,
                   struct views *out)
{
    *out = (struct views){.count = 1, .of = {*address}};
    for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]) && out->count < POLICY_VIEWS_MAX;
         i++) {
        const struct wrapper *wrapper = &wrappers[i];
        struct policy_address *inner = &out->of[out->count];

        if (memcmp(address->bytes, wrapper->begin, wrapper->size) != 0)
            continue;
        memcpy(inner->bytes, MAPPED, MAPPED_SIZE);
        for (size_t j = 0; j < 4; j++)
            inner->bytes[MAPPED_SIZE + j] = address->bytes[wrapper->at + j] ^ wrapper->turned;
        out->count++;
    }
    if (nat64 != NULL && nat64_inner(nat64, address, &out->of[out->count], &out->is_translated))
        out->count++;
    out->decisive = out->count - 1;
}

size_t policy_views(const struct policy_address *address, const struct policy_nat64 *nat64,
                    struct policy_address out[POLICY_VIEWS_MAX])
{
    struct views views;

    address_views(address, nat64, &views);
    memcpy(out, views.of, views.count * sizeof(*out));
    return views.count;
}

/* ---- what is what ---- */

struct row {
    struct prefix prefix;
    enum address_kind kind;
    const char *reason;
};

#define ROW_4(a, b, c, d, bits, kind, reason)                                                     \
    {                                                                                             \
        {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}}, BITS_4 + (bits)}, kind, reason \
    }
#define ROW_6(bits, kind, reason, ...)        \
    {                                         \
        {{{__VA_ARGS__}}, bits}, kind, reason \
    }

static const struct row rows[] = {
    /* This host (RFC 1122): Linux connects 0.0.0.0 to loopback. */
    ROW_4(0, 0, 0, 0, 8, ADDRESS_FIXED, "loopback"),
    ROW_4(127, 0, 0, 0, 8, ADDRESS_FIXED, "loopback"),
    ROW_4(169, 254, 169, 254, 32, ADDRESS_FIXED, "metadata"), /* most clouds */
    ROW_4(169, 254, 169, 253, 32, ADDRESS_FIXED, "metadata"), /* AWS: DNS */
    ROW_4(169, 254, 169, 123, 32, ADDRESS_FIXED, "metadata"), /* AWS: time */
    ROW_4(169, 254, 170, 2, 32, ADDRESS_FIXED, "metadata"),   /* AWS: credentials of tasks */
    ROW_4(169, 254, 170, 23, 32, ADDRESS_FIXED, "metadata"),  /* AWS: identities of pods */
    ROW_4(169, 254, 0, 23, 32, ADDRESS_FIXED, "metadata"),    /* Tencent */
    ROW_4(169, 254, 42, 42, 32, ADDRESS_FIXED, "metadata"),   /* Scaleway */
    ROW_4(169, 254, 0, 0, 16, ADDRESS_FIXED, "link_local"),
    ROW_4(100, 100, 100, 200, 32, ADDRESS_FIXED, "metadata"), /* Alibaba */
    ROW_4(168, 63, 129, 16, 32, ADDRESS_FIXED, "metadata"), /* Azure; a public address by number */
    ROW_4(192, 0, 0, 192, 32, ADDRESS_FIXED, "metadata"),   /* Oracle */
    ROW_4(192, 0, 0, 0, 24, ADDRESS_FIXED, "reserved"),     /* protocol assignments (RFC 6890) */
    ROW_4(192, 88, 99, 0, 24, ADDRESS_FIXED, "reserved"),   /* relays of 6to4, gone (RFC 7526) */
    ROW_4(198, 18, 0, 0, POLICY_FAKE4_BITS, ADDRESS_FIXED, "fake"),
    ROW_4(224, 0, 0, 0, 4, ADDRESS_FIXED, "multicast"),
    ROW_4(240, 0, 0, 0, 4, ADDRESS_FIXED, "reserved"), /* broadcast is of it */
    ROW_4(10, 0, 0, 0, 8, ADDRESS_PRIVATE, "private"),
    ROW_4(172, 16, 0, 0, 12, ADDRESS_PRIVATE, "private"),
    ROW_4(192, 168, 0, 0, 16, ADDRESS_PRIVATE, "private"),
    ROW_4(100, 64, 0, 0, 10, ADDRESS_PRIVATE,
          "private"), /* providers' (RFC 6598), overlay networks */
    ROW_4(0, 0, 0, 0, 0, ADDRESS_PUBLIC, NULL),

    ROW_6(127, ADDRESS_FIXED, "loopback", 0), /* :: and ::1 */
    ROW_6(96, ADDRESS_WRAPPER, NULL, 0),
    ROW_6(96, ADDRESS_WRAPPER, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff),
    ROW_6(96, ADDRESS_WRAPPER, NULL, 0, 0x64, 0xff, 0x9b),
    /* NAT64 of a site's own (RFC 8215): reserved, unless the operator says where in it the IPv4 address is. */
    ROW_6(48, ADDRESS_WRAPPER, NULL, 0, 0x64, 0xff, 0x9b, 0, 1),
    ROW_6(32, ADDRESS_WRAPPER, NULL, 0x20, 0x01, 0, 0),
    ROW_6(16, ADDRESS_WRAPPER, NULL, 0x20, 0x02),
    ROW_6(48, ADDRESS_FIXED, "reserved", 0x20, 0x01, 0, 2),    /* benchmarks (RFC 5180) */
    ROW_6(28, ADDRESS_FIXED, "reserved", 0x20, 0x01, 0, 0x10), /* ORCHID, both (RFC 4843, 7343) */
    ROW_6(28, ADDRESS_FIXED, "reserved", 0x20, 0x01, 0, 0x20),
    ROW_6(3, ADDRESS_PUBLIC, NULL, 0x20),
    ROW_6(32, ADDRESS_FIXED, "metadata", 0xfd, 0x00, 0x0e, 0xc2), /* AWS */
    ROW_6(128, ADDRESS_FIXED, "metadata", 0xfd, 0x20, 0, 0xce, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
          0x54), /* Google */
    ROW_6(128, ADDRESS_FIXED, "metadata", 0xfd, 0x00, 0, 0xc1, 0, 0, 0, 0, 0, 0, 0, 0, 0xa9, 0xfe,
          0xa9, 0xfe), /* Oracle */
    ROW_6(POLICY_FAKE6_BITS, ADDRESS_FIXED, "fake", 0xfd, 0x63, 0x6f, 0x76, 0x65, 0),
    ROW_6(7, ADDRESS_PRIVATE, "private", 0xfc),
    ROW_6(10, ADDRESS_PRIVATE, "private", 0xfe, 0xc0), /* site-local; fc00::/7 replaced it */
    ROW_6(10, ADDRESS_FIXED, "link_local", 0xfe, 0x80),
    ROW_6(8, ADDRESS_FIXED, "multicast", 0xff),
    ROW_6(0, ADDRESS_FIXED, "reserved", 0),
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

enum address_kind address_kind(const struct policy_address *address, const char **reason)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (!prefix_has(&rows[i].prefix, address))
            continue;
        *reason = rows[i].reason;
        return rows[i].kind;
    }
    *reason = "reserved"; /* never: the last row has all that is left */
    return ADDRESS_FIXED;
}

/* Fixed where both are. */
static enum address_kind halves_kind(const struct prefix *prefix, const char **reason)
{
    struct prefix half = *prefix;
    const char *ignored;

    half.bits++;
    if (prefix_kind(&half, reason) == ADDRESS_FIXED) {
        half.address.bytes[prefix->bits / 8] |= (uint8_t)(0x80U >> prefix->bits % 8);
        if (prefix_kind(&half, &ignored) == ADDRESS_FIXED)
            return ADDRESS_FIXED;
    }
    *reason = NULL;
    return ADDRESS_PUBLIC;
}

enum address_kind prefix_kind(const struct prefix *prefix, const char **reason)
{
    bool has_fixed = false;

    for (size_t i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];

        if (row->prefix.bits <= prefix->bits && prefix_has(&row->prefix, &prefix->address)) {
            if (row->kind == ADDRESS_PUBLIC && has_fixed)
                return halves_kind(prefix, reason);
            *reason = row->reason;
            return row->kind;
        }
        if (!prefix_has(prefix, &row->prefix.address))
            continue;
        /* A part of it is another matter. */
        if (row->kind <= ADDRESS_PRIVATE)
            break;
        has_fixed |= row->kind == ADDRESS_FIXED;
    }
    *reason = NULL;
    return ADDRESS_PUBLIC;
}
