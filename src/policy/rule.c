/* One rule: from the text that somebody wrote to the struct that decides, and to its normal text.
 *
 * Whoever writes a rule that can never do what it says (a port of IPv6 without brackets, an address that no
 * rule opens, UDP) is told so here, where he can mend it, and not by a connection that fails. A rule is
 * never taken for another one than it looks like. */
#include "policy/parts.h"

#include "base/fd.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT_MAX 65535
#define SHOWN_MAX 100
#define PROTOCOLS_ALL (POLICY_TCP | POLICY_UDP)

/* A rule that is being read. */
struct reading {
    const char *whole, *side;
    bool allows;
    struct rule *rule;
    struct error *err;
};

static int refuse(const struct reading *reading, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));

static int refuse(const struct reading *reading, const char *fmt, ...)
{
    char why[ERROR_TEXT_MAX], shown[SHOWN_MAX];
    size_t length = strnlen(reading->whole, sizeof(shown) - 1);
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    memcpy(shown, reading->whole, length);
    shown[length] = '\0';
    for (size_t i = 0; i < length; i++)
        if (shown[i] < ' ' || shown[i] > '~')
            shown[i] = '?';
    return error_set(reading->err, "bad_policy", 0, "%s rule '%s': %s", reading->side, shown, why);
}

/* Digits only, without a leading zero. */
static bool number(const char *text, uint32_t max, uint32_t *out)
{
    size_t length = strlen(text);
    uint32_t value = 0;

    if (length == 0 || length > 5 || (text[0] == '0' && length > 1))
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint32_t)(text[i] - '0');
    }
    *out = value;
    return value <= max;
}

/* ---- ports and options ---- */

static int read_ports(const struct reading *reading, char *text)
{
    uint32_t low, high;
    char *dash = strchr(text, '-');

    if (dash != NULL)
        *dash = '\0';
    if (!number(text, PORT_MAX, &low) || !number(dash != NULL ? dash + 1 : text, PORT_MAX, &high) ||
        low == 0)
        return refuse(reading,
                      "behind the ':' stands a port from 1 to 65535, or two as in 8000-8999; "
                      "without it all ports are meant");
    if (low > high)
        return refuse(reading, "its ports end before they begin; write :%u-%u", high, low);
    reading->rule->port_low = (uint16_t)low;
    reading->rule->port_high = (uint16_t)high;
    return 0;
}

static int read_protocol(const struct reading *reading, const char *value)
{
    if (reading->rule->protocols != 0)
        return refuse(reading, "protocol= stands there twice; write it once");
    if (strcmp(value, "tcp") == 0)
        reading->rule->protocols = POLICY_TCP;
    else if (strcmp(value, "udp") == 0)
        reading->rule->protocols = POLICY_UDP;
    else
        return refuse(reading, "protocol= is tcp or udp");
    if (reading->allows && reading->rule->protocols == POLICY_UDP)
        return refuse(reading,
                      "no UDP but DNS is carried, so this opens nothing; leave protocol=udp "
                      "away where TCP is meant");
    return 0;
}

static int read_private(const struct reading *reading)
{
    if (!reading->allows)
        return refuse(reading,
                      "private=yes is of allow rules; this one denies the name whatever its "
                      "address is; leave it away");
    if (reading->rule->opens_private)
        return refuse(reading, "private=yes stands there twice; write it once");
    reading->rule->opens_private = true;
    return 0;
}

static int read_option(const struct reading *reading, const char *word)
{
    if (strncmp(word, "protocol=", 9) == 0)
        return read_protocol(reading, word + 9);
    if (strcmp(word, "private=yes") == 0)
        return read_private(reading);
    return refuse(reading, "behind the space only private=yes and protocol=tcp or udp may stand");
}

/* ---- what it is about ---- */

static int read_bits(const struct reading *reading, const char *text)
{
    struct prefix *prefix = &reading->rule->prefix, trimmed;
    bool four = address_is_4(&prefix->address);
    uint32_t bits;
    char shown[POLICY_ADDRESS_TEXT];

    if (!number(text, four ? 32 : 128, &bits))
        return refuse(
            reading, "behind the '/' stands how many bits of the address count, 0 to %d%s",
            four ? 32 : 128,
            four ? "" : "; with a port write [ADDRESS]/BITS:PORT, as in [2001:db8::]/32:443");
    prefix->bits = (uint8_t)(four ? bits + 96 : bits);
    trimmed = *prefix;
    if (prefix_trim(&trimmed))
        return 0;
    policy_address_text(&trimmed.address, shown);
    return refuse(reading,
                  "its address has more bits than the %u that count; write %s/%u, or leave the "
                  "/%u away if that one address is meant",
                  bits, shown, bits, bits);
}

/* An allow rule for what no rule opens would be waited for in vain. */
static int check_reach(const struct reading *reading)
{
    const char *reason;

    if (!reading->allows)
        return 0;
    switch (prefix_kind(&reading->rule->prefix, &reason)) {
    case ADDRESS_FIXED:
        return refuse(reading,
                      "no rule opens this: it is denied to every box (%s); leave the rule away%s",
                      reason,
                      strcmp(reason, "loopback") != 0
                          ? ""
                          : ", and mount the socket file of a service of this host (network.md)");
    case ADDRESS_WRAPPER:
        return refuse(reading,
                      "such an address stands for an IPv4 address, and is decided as that one; "
                      "write the IPv4 address");
    default:
        break;
    }
    if (reading->rule->opens_private)
        return refuse(reading, "a rule with an address opens private addresses as it is; leave "
                               "private=yes away");
    return 0;
}

static int read_address(const struct reading *reading, const char *host, const char *bits)
{
    struct prefix *prefix = &reading->rule->prefix;

    if (policy_address_parse(host, &prefix->address) < 0)
        return refuse(reading, "this is no address; one is written as in 192.0.2.1, 10.0.0.0/8, "
                               "2001:db8::1 or, with a port, [2001:db8::]/32:443");
    prefix->bits = 128;
    if (bits != NULL && read_bits(reading, bits) < 0)
        return -1;
    return check_reach(reading);
}

static int read_name(const struct reading *reading, const char *host)
{
    struct rule *rule = reading->rule;
    char name[POLICY_NAME_MAX] = "";
    const char *flaw = NULL;

    rule->below = host[0] == '*' && (host[1] == '\0' || host[1] == '.');
    if (rule->below)
        host += host[1] == '.' ? 2 : 1;
    if (!rule->below || host[-1] == '.')
        flaw = name_flaw(host, name);
    if (flaw != NULL)
        return refuse(reading, "this is no host name: %s", flaw);
    rule->name_length = (uint8_t)strlen(name);
    rule->name = malloc((size_t)rule->name_length + 1);
    if (rule->name == NULL)
        return error_set(reading->err, "no_memory", 0, "there is no memory for a policy");
    name_turn(name, rule->name_length, rule->name);
    return 0;
}

/* [ADDRESS][/BITS][:PORTS] */
static int read_bracketed(const struct reading *reading, char *what)
{
    char *end = strchr(what, ']'), *bits = NULL, *ports = NULL;

    if (end == NULL)
        return refuse(reading, "its '[' has no ']'; write [2001:db8::1]:443");
    *end++ = '\0';
    if (strchr(what, ':') == NULL || strchr(what, '/') != NULL)
        return refuse(reading,
                      "between '[' and ']' stands one IPv6 address, as in [2001:db8::1]:443 or "
                      "[2001:db8::]/32:443");
    if (*end == '/') {
        *end++ = '\0';
        bits = end;
        end += strcspn(end, ":");
    }
    if (*end == ':') {
        *end++ = '\0';
        ports = end;
    } else if (*end != '\0') {
        return refuse(reading, "behind the ']' only /BITS and :PORT may stand");
    }
    if (ports != NULL && read_ports(reading, ports) < 0)
        return -1;
    return read_address(reading, what + 1, bits);
}

static int read_what(const struct reading *reading, char *what)
{
    char *colon = strchr(what, ':'), *slash = strchr(what, '/');
    struct policy_address address;

    if (strstr(what, "://") != NULL)
        return refuse(reading, "a rule is no URL; write the name and the port only, as in "
                               "example.com:443");
    if (what[0] == '[')
        return read_bracketed(reading, what);
    if (colon != NULL && strchr(colon + 1, ':') != NULL)
        colon = NULL; /* IPv6, all of it */
    else if (colon != NULL)
        *colon = '\0';
    if (slash != NULL && (colon == NULL || slash < colon))
        *slash = '\0';
    else
        slash = NULL;
    if (colon != NULL && read_ports(reading, colon + 1) < 0)
        return -1;
    if (strchr(what, ':') != NULL || policy_address_parse(what, &address) == 0)
        return read_address(reading, what, slash != NULL ? slash + 1 : NULL);
    if (slash != NULL)
        return refuse(reading,
                      "behind a name stands no '/': what is reached of a host is not decided by "
                      "paths; an address in front of it is written as in 10.0.0.0/8");
    return read_name(reading, what);
}

/* ---- its normal text ---- */

static int write_text(const struct reading *reading)
{
    struct rule *rule = reading->rule;
    char what[POLICY_NAME_MAX + 8], name[POLICY_NAME_MAX], bits[8] = "", ports[16] = "";
    bool all_ports = rule->port_low == 1 && rule->port_high == PORT_MAX;

    if (rule->name != NULL) {
        name_turn(rule->name, rule->name_length, name);
        (void)snprintf(what, sizeof(what), "%s%s%s", rule->below ? "*" : "",
                       rule->below && name[0] != '\0' ? "." : "", name);
    } else {
        char address[POLICY_ADDRESS_TEXT];
        bool four = prefix_is_4(&rule->prefix), brackets = !four && !all_ports;

        policy_address_text(&rule->prefix.address, address);
        (void)snprintf(what, sizeof(what), "%s%s%s", brackets ? "[" : "", address,
                       brackets ? "]" : "");
        if (rule->prefix.bits < 128)
            (void)snprintf(bits, sizeof(bits), "/%d", rule->prefix.bits - (four ? 96 : 0));
    }
    if (!all_ports && rule->port_low == rule->port_high)
        (void)snprintf(ports, sizeof(ports), ":%u", rule->port_low);
    else if (!all_ports)
        (void)snprintf(ports, sizeof(ports), ":%u-%u", rule->port_low, rule->port_high);
    if (asprintf(&rule->text, "%s%s%s%s%s", what, bits, ports,
                 rule->opens_private ? " private=yes" : "",
                 rule->protocols == POLICY_TCP   ? " protocol=tcp"
                 : rule->protocols == POLICY_UDP ? " protocol=udp"
                                                 : "") < 0) {
        rule->text = NULL;
        return error_set(reading->err, "no_memory", 0, "there is no memory for a policy");
    }
    return 0;
}

int rule_parse(const char *text, const char *side, struct rule *out, struct error *err)
{
    struct reading reading = {
        .whole = text, .side = side, .allows = side[0] == 'a', .rule = out, .err = err};
    char copy[POLICY_RULE_TEXT_MAX], *what, *word, *rest;
    size_t length = strnlen(text, sizeof(copy));

    memset(out, 0, sizeof(*out));
    out->port_low = 1;
    out->port_high = PORT_MAX;
    if (length == sizeof(copy))
        return refuse(&reading,
                      "it is longer than %d bytes; write one rule for each name or address",
                      POLICY_RULE_TEXT_MAX - 1);
    memcpy(copy, text, length + 1);
    what = strtok_r(copy, " ", &rest);
    if (what == NULL)
        return refuse(&reading, "it is empty; write a name as example.com:443, or an address");
    while ((word = strtok_r(NULL, " ", &rest)) != NULL)
        if (read_option(&reading, word) < 0)
            return -1;
    if (read_what(&reading, what) < 0 || write_text(&reading) < 0) {
        rule_free(out);
        return -1;
    }
    if (out->protocols == 0)
        out->protocols = PROTOCOLS_ALL;
    return 0;
}

void rule_free(struct rule *rule)
{
    freep(&rule->text);
    freep(&rule->name);
    rule->text = rule->name = NULL;
}

bool rule_takes(const struct rule *rule, uint16_t port, enum policy_protocol protocol)
{
    return port >= rule->port_low && port <= rule->port_high && (rule->protocols & protocol) != 0;
}

int list_parse(const char *text, int (*add)(void *into, const char *word, struct error *err),
               void *into, struct error *err)
{
    _cleanup_free_ char *copy = strdup(text);
    char *rest = copy;

    if (copy == NULL)
        return error_set(err, "no_memory", 0, "there is no memory for a list");
    for (char *word; (word = strsep(&rest, ",")) != NULL;) {
        size_t length;

        word += strspn(word, " ");
        length = strlen(word);
        while (length > 0 && word[length - 1] == ' ')
            word[--length] = '\0';
        if (add(into, word, err) < 0)
            return -1;
    }
    return 0;
}
