/* Who may reach what: which texts are rules, and what is decided of names and addresses. */
#include "policy/policy.h"

#include "base/clock.h"
#include "check.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static struct policy *make(const char *text)
{
    struct policy *policy = NULL;
    struct error err = {0};

    CHECK(policy_new_text(text, &policy, &err) == 0, "%s: %s", text, err.text);
    return policy;
}

static struct policy_address address_of(const char *text)
{
    struct policy_address address = {{0}};

    CHECK(policy_address_parse(text, &address) == 0, "%s is an address", text);
    return address;
}

/* ---- names ---- */

static const struct {
    const char *text, *normal; /* NULL: it is none */
} names[] = {
    {"example.com", "example.com"},
    {"Example.COM", "example.com"},
    {"example.com.", "example.com"},
    {"a", "a"},
    {"localhost", "localhost"},
    {"xn--bcher-kva.example", "xn--bcher-kva.example"},
    {"XN--BCHER-KVA.example", "xn--bcher-kva.example"},
    {"_dmarc.example.com", "_dmarc.example.com"},
    {"a_b.example.com", "a_b.example.com"},
    {"r3---sn-4g5e.example", "r3---sn-4g5e.example"},
    {"1.example", "1.example"},
    {"1e100.net", "1e100.net"},
    {"0xcafe.example", "0xcafe.example"},
    {"4u", "4u"},
    {"", NULL},
    {".", NULL},
    {"..", NULL},
    {"example.com..", NULL},
    {".example.com", NULL},
    {"a..b", NULL},
    {"-a.com", NULL},
    {"a-.com", NULL},
    {"a.-", NULL},
    {"a b", NULL},
    {"a\nb.com", NULL},
    {"a/b", NULL},
    {"a:b", NULL},
    {"a@b.com", NULL},
    {"*.example.com", NULL},
    {"a*.example.com", NULL},
    {"b\xc3\xbc"
     "cher.example",
     NULL},
    {"\xff.example", NULL},
    /* What programs read as an address. */
    {"127.0.0.1", NULL},
    {"2130706433", NULL},
    {"0x7f000001", NULL},
    {"0x7f.1", NULL},
    {"0177.0.0.1", NULL},
    {"127.1", NULL},
    {"0x", NULL},
    {"example.1", NULL},
    {"1.2.3.4.", NULL},
    {"[::1]", NULL},
};

static void check_names(void)
{
    char out[POLICY_NAME_MAX], again[POLICY_NAME_MAX], longest[300];
    struct error err;

    for (size_t i = 0; i < COUNT(names); i++) {
        int status = policy_name(names[i].text, out, &err);

        CHECK((status == 0) == (names[i].normal != NULL), "\"%s\"", names[i].text);
        if (status < 0) {
            CHECK(strcmp(err.code, "bad_name") == 0 && err.text[0] != '\0', "\"%s\"",
                  names[i].text);
            CHECK(out[0] == '\0', "\"%s\" leaves nothing", names[i].text);
            continue;
        }
        CHECK(names[i].normal != NULL && strcmp(out, names[i].normal) == 0, "\"%s\" is \"%s\"",
              names[i].text, out);
        CHECK(policy_name(out, again, &err) == 0 && strcmp(out, again) == 0, "\"%s\" stays", out);
    }
    CHECK(policy_name("b\xc3\xbc", out, &err) < 0 && strstr(err.text, "xn--") != NULL, "%s",
          err.text);

    for (size_t i = 0; i < sizeof(longest); i++)
        longest[i] = i % 2 == 0 ? 'a' : '.';
    longest[253] = '\0';
    CHECK(policy_name(longest, out, &err) == 0, "253 characters");
    longest[253] = '.';
    longest[254] = '\0';
    CHECK(policy_name(longest, out, &err) == 0 && strlen(out) == 253, "and a last dot");
    longest[254] = 'a';
    longest[255] = '\0';
    CHECK(policy_name(longest, out, &err) < 0, "255 characters");
    memset(longest, 'a', 64);
    memcpy(longest + 63, ".com", 5);
    CHECK(policy_name(longest, out, &err) == 0, "63 characters between dots");
    memset(longest, 'a', 64);
    memcpy(longest + 64, ".com", 5);
    CHECK(policy_name(longest, out, &err) < 0, "64 characters between dots");
}

/* ---- addresses ---- */

static const struct {
    const char *text, *normal;
} addresses[] = {
    {"192.0.2.1", "192.0.2.1"},
    {"0.0.0.0", "0.0.0.0"},
    {"::ffff:192.0.2.1", "192.0.2.1"},
    {"::FFFF:c000:0201", "192.0.2.1"},
    {"2001:DB8::1", "2001:db8::1"},
    {"2001:db8:0:0:0:0:0:1", "2001:db8::1"},
    {"::", "::"},
    {"192.0.2.01", NULL},
    {"192.0.2", NULL},
    {"192.0.2.256", NULL},
    {"0300.0.2.1", NULL},
    {"0xc0.0.2.1", NULL},
    {"3221225985", NULL},
    {"0xc0000201", NULL},
    {" 192.0.2.1", NULL},
    {"192.0.2.1 ", NULL},
    {"192.0.2.1/32", NULL},
    {"[2001:db8::1]", NULL},
    {"fe80::1%eth0", NULL},
    {"::ffff:192.0.2.01", NULL},
    {"2001:db8::1::2", NULL},
    {"", NULL},
};

static void check_addresses(void)
{
    for (size_t i = 0; i < COUNT(addresses); i++) {
        struct policy_address address;
        char out[POLICY_ADDRESS_TEXT] = "";
        int status = policy_address_parse(addresses[i].text, &address);

        CHECK((status == 0) == (addresses[i].normal != NULL), "\"%s\"", addresses[i].text);
        if (status < 0 || addresses[i].normal == NULL)
            continue;
        policy_address_text(&address, out);
        CHECK(strcmp(out, addresses[i].normal) == 0, "\"%s\" is \"%s\"", addresses[i].text, out);
    }
}

/* ---- rules ---- */

static const struct {
    const char *text, *normal;
} rules[] = {
    {"example.com", "example.com"},
    {"Example.com.:443", "example.com:443"},
    {"*.Example.com", "*.example.com"},
    {"*", "*"},
    {"*:443", "*:443"},
    {"* private=yes", "* private=yes"},
    {"example.com:8000-8999", "example.com:8000-8999"},
    {"example.com:443-443", "example.com:443"},
    {"example.com:1-65535", "example.com"},
    {"  db.corp:5432   private=yes  ", "db.corp:5432 private=yes"},
    {"db.corp protocol=tcp private=yes", "db.corp private=yes protocol=tcp"},
    {"192.0.2.1", "192.0.2.1"},
    {"192.0.2.1/32", "192.0.2.1"},
    {"192.0.2.1:22", "192.0.2.1:22"},
    {"10.0.0.0/8", "10.0.0.0/8"},
    {"10.0.0.0/8:5432", "10.0.0.0/8:5432"},
    {"0.0.0.0/0", "0.0.0.0/0"},
    {"192.0.0.0/2", "192.0.0.0/2"},
    {"198.16.0.0/14", "198.16.0.0/14"}, /* a part of it is fixed */
    {"128.0.0.0/1:80", "128.0.0.0/1:80"},
    {"::/0", "::/0"},
    {"::/1", "::/1"},
    {"2001:DB8::/32", "2001:db8::/32"},
    {"[2001:db8::]/32", "2001:db8::/32"},
    {"[2001:db8::]/32:443", "[2001:db8::]/32:443"},
    {"[2001:db8::1]:443", "[2001:db8::1]:443"},
    {"[2001:db8::1]", "2001:db8::1"},
    {"2001:db8::1:443", "2001:db8::1:443"}, /* one address, and no port */
    {"::ffff:10.0.0.1", "10.0.0.1"},
    {"fd00::/8", "fd00::/8"},
    {"fc00::/7", "fc00::/7"},
    {"100.64.0.0/10", "100.64.0.0/10"}, /* has a metadata address, which stays denied */
    {"168.63.0.0/16", "168.63.0.0/16"},
    {"203.0.113.7", "203.0.113.7"},
};

/* Each of them with a word that the error has to have. */
static const struct {
    const char *text, *word;
} flawed[] = {
    {"", "empty"},
    {"   ", "empty"},
    {"https://example.com", "URL"},
    {"example.com/path", "paths"},
    {"example.com/24", "paths"},
    {"a*.example.com", "*.example.com"},
    {"*example.com", "*.example.com"},
    {"*.*.com", "*.example.com"},
    {"*.", "empty"},
    {"**", "*.example.com"},
    {"example.*", "*.example.com"},
    {".example.com", "dots"},
    {"b\xc3\xbc"
     "cher.example",
     "xn--"},
    {"example.com:", "65535"},
    {"example.com:0", "65535"},
    {"example.com:65536", "65535"},
    {"example.com:443-", "65535"},
    {"example.com:-443", "65535"},
    {"example.com:0443", "65535"},
    {"example.com:+443", "65535"},
    {"example.com:https", "65535"},
    {"example.com:*", "all ports"},
    {"example.com:1-2-3", "65535"},
    {"example.com:9-1", ":1-9"},
    {"example.com:443:443", "address"},
    {"example.com,example.org", "letters"},
    {"user@example.com", "letters"},
    {"10.0.0.0/33", "0 to 32"},
    {"10.0.0.0/", "0 to 32"},
    {"10.0.0.0/-1", "0 to 32"},
    {"10.0.0.0/08", "0 to 32"},
    {"10.0.0.0/255.0.0.0", "0 to 32"},
    {"10.0.0.1/8", "10.0.0.0/8"},
    {"2001:db8::1/32", "2001:db8::/32"},
    {"2001:db8::/129", "0 to 128"},
    {"2001:db8::/32:443", "]/BITS:PORT"},
    {"[2001:db8::1", "']'"},
    {"[2001:db8::/32]:443", "[2001:db8::]/32:443"},
    {"[2001:db8::1]443", "/BITS"},
    {"[10.0.0.1]:22", "IPv6"},
    {"[example.com]:22", "IPv6"},
    {"[]", "IPv6"},
    {"fe80::1%eth0", "address"},
    {"10.0.0", "decimal"},
    {"0x0a000001", "decimal"},
    {"167772161", "decimal"},
    {"012.0.0.1", "decimal"},
    {"0x0a.0.0.0/8", "address"},
    {"443", "decimal"},
    {"example.com private=no", "private=yes"},
    {"example.com private", "private=yes"},
    {"example.com\tprivate=yes", "letters"},
    {"example.com PRIVATE=yes", "private=yes"},
    {"example.com private=yes private=yes", "twice"},
    {"example.com protocol=icmp", "tcp or udp"},
    {"example.com protocol=tcp protocol=tcp", "twice"},
    {"example.com example.org", "private=yes"},
    {"::ffff:0:0/90", "::"},
};

/* Of allow rules: what they would open is never opened. */
static const struct {
    const char *text, *word;
} vain[] = {
    {"example.com protocol=udp", "UDP"},
    {"10.0.0.0/8 protocol=udp", "UDP"},
    {"10.0.0.0/8 private=yes", "leave private=yes away"},
    {"127.0.0.1", "loopback"},
    {"127.0.0.0/8:5432", "loopback"},
    {"0.0.0.0", "loopback"},
    {"[::1]:80", "loopback"},
    {"::ffff:127.0.0.1", "loopback"},
    {"169.254.169.254", "metadata"},
    {"169.254.0.0/16", "link_local"},
    {"fd00:ec2::254", "metadata"},
    {"198.18.0.5", "fake"},
    {"fd63:6f76:6500::/48", "fake"},
    {"224.0.0.0/4", "multicast"},
    {"224.0.0.0/3", "multicast"}, /* all of its parts are fixed */
    {"255.255.255.255", "reserved"},
    {"ff02::1", "multicast"},
    {"fe80::/10", "link_local"},
    {"4000::/3", "reserved"},
    {"64:ff9b::808:808", "IPv4"},
    {"64:ff9b::/96", "IPv4"},
    {"2002::/16", "IPv4"},
    {"2001::/32", "IPv4"},
    {"::10.0.0.1", "IPv4"},
};

static int one_rule(const char *side, const char *text, struct policy **out, struct error *err)
{
    const char *const list[] = {text, NULL};
    bool allows = side[0] == 'a';

    return policy_new("public", allows ? list : NULL, allows ? NULL : list, out, err);
}

static void refused(const char *side, const char *text, const char *word)
{
    struct policy *policy = NULL;
    struct error err = {0};

    CHECK(one_rule(side, text, &policy, &err) < 0, "%s=%s is none", side, text);
    CHECK(policy == NULL, "%s=%s", side, text);
    CHECK(strcmp(err.code, "bad_policy") == 0, "%s=%s: %s", side, text, err.code);
    CHECK(strstr(err.text, word) != NULL, "%s=%s says %s", side, text, err.text);
    CHECK(strncmp(err.text, side, strlen(side)) == 0, "it says of which side: %s", err.text);
    for (const char *c = err.text; *c != '\0'; c++)
        CHECK(*c >= ' ' && *c <= '~', "it has control characters: %s", err.text);
    policy_free(policy);
}

static void check_rules(void)
{
    char longest[POLICY_RULE_TEXT_MAX + 1];

    for (size_t i = 0; i < COUNT(rules); i++) {
        struct policy *policy = NULL, *again = NULL;
        struct error err = {0};

        CHECK(one_rule("allow", rules[i].text, &policy, &err) == 0, "%s: %s", rules[i].text,
              err.text);
        if (policy == NULL)
            continue;
        CHECK(strcmp(policy_allow(policy)[0], rules[i].normal) == 0, "%s is %s", rules[i].text,
              policy_allow(policy)[0]);
        CHECK(policy_allow(policy)[1] == NULL && policy_deny(policy)[0] == NULL, "the lists end");
        CHECK(policy_new("public", policy_allow(policy), NULL, &again, &err) == 0, "%s: %s",
              rules[i].normal, err.text);
        CHECK(again != NULL && strcmp(policy_allow(again)[0], rules[i].normal) == 0, "%s stays",
              rules[i].normal);
        policy_free(again);
        policy_free(policy);
    }
    for (size_t i = 0; i < COUNT(flawed); i++) {
        refused("allow", flawed[i].text, flawed[i].word);
        if (strstr(flawed[i].text, " private=yes") == NULL)
            refused("deny", flawed[i].text, flawed[i].word);
    }
    for (size_t i = 0; i < COUNT(vain); i++) {
        struct policy *policy = NULL;
        struct error err = {0};

        refused("allow", vain[i].text, vain[i].word);
        if (strstr(vain[i].text, " private=yes") == NULL)
            CHECK(one_rule("deny", vain[i].text, &policy, &err) == 0, "deny=%s: %s", vain[i].text,
                  err.text);
        policy_free(policy);
    }
    refused("deny", "example.com private=yes", "leave it away");
    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    refused("allow", longest, "longer");
}

/* ---- policies ---- */

static const struct {
    const char *text, *mode, *allow, *deny; /* joined by ' ' */
} policies[] = {
    {"none", "none", "", ""},
    {"public", "public", "", ""},
    {" public ", "public", "", ""},
    {"allow=example.com", "allow", "example.com", ""},
    {"allow=example.com:443,10.0.0.0/8", "allow", "example.com:443 10.0.0.0/8", ""},
    {"allow=example.com:443, 10.0.0.0/8", "allow", "example.com:443 10.0.0.0/8", ""},
    {"allow= example.com", "allow", "example.com", ""},
    {"public,deny=a.com,b.com", "public", "", "a.com b.com"},
    {"public,allow=10.0.0.0/8,deny=a.com", "public", "10.0.0.0/8", "a.com"},
    {"public,deny=a.com,allow=b.com,deny=c.com", "public", "b.com", "a.com c.com"},
    {"deny=a.com,allow=*.com", "allow", "*.com", "a.com"},
    {"", NULL, NULL, NULL},
    {"allow", NULL, NULL, NULL},
    {"allow=", NULL, NULL, NULL},
    {"deny=a.com", NULL, NULL, NULL},
    {"public,deny=", NULL, NULL, NULL},
    {"public,", NULL, NULL, NULL},
    {"public,public", NULL, NULL, NULL},
    {"public,none", NULL, NULL, NULL},
    {"none,allow=a.com", NULL, NULL, NULL},
    {"none,deny=a.com", NULL, NULL, NULL},
    {"allow=a.com,public", NULL, NULL, NULL},
    {"allow=a.com,,b.com", NULL, NULL, NULL},
    {"public,deny=a.com,none", NULL, NULL, NULL},
    {"Public", NULL, NULL, NULL},
    {"everything", NULL, NULL, NULL},
    {"example.com", NULL, NULL, NULL},
};

static void join(const char *const *list, char *out, size_t size)
{
    out[0] = '\0';
    for (size_t i = 0, used = 0; list[i] != NULL; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i > 0 ? " " : "", list[i]);
}

static void check_texts(void)
{
    for (size_t i = 0; i < COUNT(policies); i++) {
        struct policy *policy = NULL;
        struct error err = {0};
        char list[256];
        int status = policy_new_text(policies[i].text, &policy, &err);

        CHECK((status == 0) == (policies[i].mode != NULL), "\"%s\": %s", policies[i].text,
              err.text);
        if (status < 0)
            CHECK(strcmp(err.code, "bad_policy") == 0, "\"%s\": %s", policies[i].text, err.code);
        if (status < 0 || policies[i].mode == NULL)
            continue;
        CHECK(strcmp(policy_mode_name(policy_mode(policy)), policies[i].mode) == 0, "\"%s\"",
              policies[i].text);
        join(policy_allow(policy), list, sizeof(list));
        CHECK(strcmp(list, policies[i].allow) == 0, "\"%s\" allows %s", policies[i].text, list);
        join(policy_deny(policy), list, sizeof(list));
        CHECK(strcmp(list, policies[i].deny) == 0, "\"%s\" denies %s", policies[i].text, list);
        policy_free(policy);
    }
}

static void check_making(void)
{
    static const char *many[POLICY_RULES_MAX + 2];
    static char text[POLICY_RULES_MAX * 2 + 20];
    const size_t end = sizeof("allow=") - 1 + (size_t)POLICY_RULES_MAX * 2 - 1;
    const char *const one[] = {"a.com", NULL};
    struct policy *policy = NULL, *copy;
    struct error err = {0};

    CHECK(policy_new(NULL, NULL, NULL, &policy, &err) < 0, "no mode");
    CHECK(policy_new("", NULL, NULL, &policy, &err) < 0, "an empty mode");
    CHECK(policy_new("none", one, NULL, &policy, &err) < 0, "none with rules");
    CHECK(policy_new("allow", NULL, NULL, &policy, &err) == 0, "an empty list: %s", err.text);
    CHECK(!policy_lookup(policy, "a.com").allowed, "which allows nothing");
    policy_freep(&policy);
    CHECK(policy == NULL, "it is gone");
    policy_free(NULL);

    for (size_t i = 0; i < POLICY_RULES_MAX; i++)
        many[i] = "a.com";
    CHECK(policy_new("allow", many, NULL, &policy, &err) == 0, "as many rules as there may be");
    policy_freep(&policy);
    CHECK(policy_new("allow", many, one, &policy, &err) < 0, "one more, on the other side");
    many[POLICY_RULES_MAX] = "a.com";
    CHECK(policy_new("allow", many, NULL, &policy, &err) < 0 && strstr(err.text, "1024") != NULL,
          "one more: %s", err.text);
    memcpy(text, "allow=", 7);
    for (size_t i = 0; i < POLICY_RULES_MAX; i++)
        memcpy(text + 6 + 2 * i, "a,", 3);
    text[end] = '\0';
    CHECK(policy_new_text(text, &policy, &err) == 0, "as many in one text: %s", err.text);
    policy_freep(&policy);
    memcpy(text + end, ",a", 3);
    CHECK(policy_new_text(text, &policy, &err) < 0, "one more in one text");

    policy = make("allow=a.com");
    copy = policy_copy(policy);
    policy_free(policy);
    CHECK(policy_lookup(copy, "a.com").allowed, "a copy outlives what it was made of");
    policy_free(copy);
}

/* ---- which names may be looked up ---- */

static const struct {
    const char *policy, *name, *reason, *rule;
} lookups[] = {
    {"none", "example.com", "none", NULL},
    {"public", "example.com", "allowed", NULL},
    {"public", "EXAMPLE.com.", "allowed", NULL},
    {"public", "", "bad_name", NULL},
    {"public", "a..b", "bad_name", NULL},
    {"public", "127.0.0.1", "bad_name", NULL},
    {"public", "0x7f.1", "bad_name", NULL},
    {"allow=*", "a*b.com", "bad_name", NULL},
    {"allow=example.com", "example.com", "allowed", "example.com"},
    {"allow=example.com", "EXAMPLE.COM.", "allowed", "example.com"},
    {"allow=example.com", "www.example.com", "no_rule", NULL},
    {"allow=example.com", "xexample.com", "no_rule", NULL},
    {"allow=example.com", "example.com.evil.org", "no_rule", NULL},
    {"allow=example.com", "example.co", "no_rule", NULL},
    {"allow=example.com", "com", "no_rule", NULL},
    {"allow=*.a.com", "x.a.com", "allowed", "*.a.com"},
    {"allow=*.a.com", "x.y.a.com", "allowed", "*.a.com"},
    {"allow=*.a.com", "_x.a.com", "allowed", "*.a.com"},
    {"allow=*.a.com", "a.com", "no_rule", NULL},
    {"allow=*.a.com", "xa.com", "no_rule", NULL},
    {"allow=*.a.com", "x-a.com", "no_rule", NULL},
    {"allow=*.a.com", "x.a.com.org", "no_rule", NULL},
    {"allow=*.a.com,a.com", "a.com", "allowed", "a.com"},
    {"allow=*.a.com,x.a.com", "x.a.com", "allowed", "*.a.com"},
    {"allow=x.a.com,*.a.com", "x.a.com", "allowed", "x.a.com"},
    {"allow=*.com,*.a.com,b.a.com", "b.a.com", "allowed", "*.com"},
    {"allow=*", "anything.example", "allowed", "*"},
    {"allow=*", "local", "allowed", "*"},
    {"allow=xn--bcher-kva.example", "XN--bcher-kva.example", "allowed", "xn--bcher-kva.example"},
    /* A range of addresses lets nobody ask a resolver for names. */
    {"allow=10.0.0.0/8", "db.corp", "no_rule", NULL},
    {"allow=0.0.0.0/0,::/0", "example.com", "no_rule", NULL},
    {"public,deny=a.com", "a.com", "denied", "a.com"},
    {"public,deny=a.com", "x.a.com", "allowed", NULL},
    {"public,deny=*.a.com", "x.a.com", "denied", "*.a.com"},
    {"public,deny=*", "x.a.com", "denied", "*"},
    {"allow=*.a.com,deny=x.a.com", "x.a.com", "denied", "x.a.com"},
    {"allow=*.a.com,deny=x.a.com", "y.a.com", "allowed", "*.a.com"},
    {"allow=x.a.com,deny=*.a.com", "x.a.com", "denied", "*.a.com"},
    {"public,deny=*.com,a.com", "a.com", "denied", "*.com"},
    {"public,deny=a.com,*.com", "a.com", "denied", "a.com"},
    {"allow=a.com,deny=b.com", "b.com", "denied", "b.com"},
    {"allow=a.com,deny=b.com:22", "b.com", "no_rule", NULL},
    {"allow=a.com,deny=b.com:22-65535", "b.com", "no_rule", NULL},
    {"public", NULL, "bad_name", NULL},
    /* Some port is left, or none. */
    {"public,deny=a.com:443", "a.com", "allowed", NULL},
    {"allow=a.com:443,deny=a.com:443", "a.com", "denied", "a.com:443"},
    {"allow=a.com:443,deny=a.com:80", "a.com", "allowed", "a.com:443"},
    {"allow=a.com:440-450,deny=a.com:440-445,*.com:447-450", "a.com", "allowed", "a.com:440-450"},
    {"allow=a.com:440-450,deny=a.com:440-445,a.com:446-450", "a.com", "denied", "a.com:440-445"},
    {"allow=*:440-450,deny=a.com:1-444,a.com:445-65535", "a.com", "denied", "a.com:1-444"},
    {"public,deny=a.com:1-444,a.com:445-65535", "a.com", "denied", "a.com:1-444"},
    {"public,deny=a.com:1-443,a.com:445-65535", "a.com", "allowed", NULL},
    {"allow=a.com,deny=a.com protocol=udp", "a.com", "allowed", "a.com"},
    {"allow=a.com,deny=a.com protocol=tcp", "a.com", "denied", "a.com protocol=tcp"},
    {"allow=a.com:80,a.com:443,deny=*:80", "a.com", "allowed", "a.com:443"},
};

static bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static void check_lookups(void)
{
    for (size_t i = 0; i < COUNT(lookups); i++) {
        struct policy *policy = make(lookups[i].policy);
        struct policy_verdict verdict;

        if (policy == NULL)
            continue;
        verdict = policy_lookup(policy, lookups[i].name);
        CHECK(strcmp(verdict.reason, lookups[i].reason) == 0 &&
                  same_text(verdict.rule, lookups[i].rule),
              "%s: %s: %s by %s", lookups[i].policy,
              lookups[i].name != NULL ? lookups[i].name : "-", verdict.reason,
              verdict.rule != NULL ? verdict.rule : "none");
        CHECK(verdict.allowed == (strcmp(lookups[i].reason, "allowed") == 0), "%s: the verdict",
              lookups[i].policy);
        policy_free(policy);
    }
}

/* ---- what may be dialled ---- */

static const struct {
    const char *policy, *name, *address;
    uint16_t port;
    const char *reason, *rule;
} dials[] = {
    {"none", NULL, "192.0.2.1", 443, "none", NULL},
    {"none", "a.com", "127.0.0.1", 443, "none", NULL},
    {"public", NULL, "192.0.2.1", 443, "allowed", NULL},
    {"public", NULL, "198.51.100.1", 443, "allowed", NULL}, /* documentation is public */
    {"public", NULL, "203.0.113.1", 443, "allowed", NULL},
    {"public", NULL, "2001:db8::1", 443, "allowed", NULL},
    {"public", NULL, "8.8.8.8", 53, "allowed", NULL},
    {"public", "a.com", "2606:4700::1", 443, "allowed", NULL},
    {"public", NULL, "192.0.2.1", 0, "reserved", NULL},
    {"public", "A.COM.", "192.0.2.1", 1, "allowed", NULL},
    {"public", "a..b", "192.0.2.1", 443, "bad_name", NULL},
    {"public", "", "192.0.2.1", 443, "bad_name", NULL},
    {"allow=a.com", "a.com", "192.0.2.1", 443, "allowed", "a.com"},
    {"allow=a.com", NULL, "192.0.2.1", 443, "no_rule", NULL},
    {"allow=a.com", "b.com", "192.0.2.1", 443, "no_rule", NULL},
    {"allow=a.com:443", "a.com", "192.0.2.1", 443, "allowed", "a.com:443"},
    {"allow=a.com:443", "a.com", "192.0.2.1", 442, "no_rule", NULL},
    {"allow=a.com:443", "a.com", "192.0.2.1", 444, "no_rule", NULL},
    {"allow=a.com:80-90", "a.com", "192.0.2.1", 80, "allowed", "a.com:80-90"},
    {"allow=a.com:80-90", "a.com", "192.0.2.1", 90, "allowed", "a.com:80-90"},
    {"allow=a.com:80-90", "a.com", "192.0.2.1", 79, "no_rule", NULL},
    {"allow=a.com:80-90", "a.com", "192.0.2.1", 91, "no_rule", NULL},
    {"allow=a.com:65535", "a.com", "192.0.2.1", 65535, "allowed", "a.com:65535"},
    {"allow=*.a.com:22", "git.a.com", "192.0.2.1", 22, "allowed", "*.a.com:22"},
    {"allow=192.0.2.0/24", NULL, "192.0.2.255", 1, "allowed", "192.0.2.0/24"},
    {"allow=192.0.2.0/24", NULL, "192.0.3.0", 1, "no_rule", NULL},
    {"allow=192.0.2.0/25", NULL, "192.0.2.127", 1, "allowed", "192.0.2.0/25"},
    {"allow=192.0.2.0/25", NULL, "192.0.2.128", 1, "no_rule", NULL},
    {"allow=192.0.2.1", NULL, "::ffff:192.0.2.1", 1, "allowed", "192.0.2.1"},
    {"allow=2001:db8::/33", NULL, "2001:db8:7fff::1", 1, "allowed", "2001:db8::/33"},
    {"allow=2001:db8::/33", NULL, "2001:db8:8000::1", 1, "no_rule", NULL},
    /* A rule of one family is none of the other. */
    {"allow=::/0", NULL, "192.0.2.1", 1, "no_rule", NULL},
    {"allow=::/0", NULL, "10.0.0.1", 1, "private", NULL},
    {"allow=0.0.0.0/0", NULL, "2001:db8::1", 1, "no_rule", NULL},
    /* The address of a name may be allowed by its own rule. */
    {"allow=a.com:443,10.0.0.0/8:5432", "a.com", "10.1.2.3", 5432, "allowed", "10.0.0.0/8:5432"},
    /* Private. */
    {"public", NULL, "10.0.0.1", 443, "private", NULL},
    {"public", "a.com", "10.0.0.1", 443, "private", NULL},
    {"public", NULL, "172.16.0.1", 1, "private", NULL},
    {"public", NULL, "172.31.255.255", 1, "private", NULL},
    {"public", NULL, "172.32.0.1", 1, "allowed", NULL},
    {"public", NULL, "192.168.1.1", 1, "private", NULL},
    {"public", NULL, "100.64.0.1", 1, "private", NULL},
    {"public", NULL, "100.128.0.1", 1, "allowed", NULL},
    {"public", NULL, "fd12:3456::1", 1, "private", NULL},
    {"public", NULL, "fc00::1", 1, "private", NULL},
    {"public", NULL, "fec0::1", 1, "private", NULL},
    {"allow=*", "a.com", "10.0.0.1", 443, "private", NULL},
    {"allow=db.corp", "db.corp", "10.0.0.1", 5432, "private", NULL},
    {"allow=db.corp private=yes", "db.corp", "10.0.0.1", 5432, "allowed", "db.corp private=yes"},
    {"allow=db.corp private=yes", "db.corp", "fd12::1", 5432, "allowed", "db.corp private=yes"},
    {"allow=db.corp private=yes", "x.corp", "10.0.0.1", 5432, "private", NULL},
    {"allow=db.corp private=yes", NULL, "10.0.0.1", 5432, "private", NULL},
    {"allow=db.corp:5432 private=yes", "db.corp", "10.0.0.1", 22, "private", NULL},
    {"allow=db.corp,*.corp private=yes", "db.corp", "10.0.0.1", 22, "allowed",
     "*.corp private=yes"},
    {"allow=db.corp,10.0.0.0/8", "db.corp", "10.0.0.1", 5432, "allowed", "10.0.0.0/8"},
    {"public,allow=10.0.0.0/8", NULL, "10.0.0.1", 1, "allowed", "10.0.0.0/8"},
    {"public,allow=10.0.0.0/8:5432", NULL, "10.0.0.1", 1, "private", NULL},
    {"allow=fd12::/16", NULL, "fd12::1", 1, "allowed", "fd12::/16"},
    /* Deny rules above allow rules. */
    {"public,deny=a.com", "a.com", "192.0.2.1", 443, "denied", "a.com"},
    {"public,deny=a.com", "A.com.", "192.0.2.1", 443, "denied", "a.com"},
    {"public,deny=*.a.com", "x.y.a.com", "192.0.2.1", 443, "denied", "*.a.com"},
    {"public,deny=*.a.com", "a.com", "192.0.2.1", 443, "allowed", NULL},
    {"public,deny=a.com:22", "a.com", "192.0.2.1", 443, "allowed", NULL},
    {"public,deny=a.com:22", "a.com", "192.0.2.1", 22, "denied", "a.com:22"},
    {"public,deny=*:25", "a.com", "192.0.2.1", 25, "denied", "*:25"},
    {"public,deny=*:25", NULL, "192.0.2.1", 25, "allowed", NULL}, /* of names */
    {"public,deny=0.0.0.0/0:25,[::]/0:25", "a.com", "192.0.2.1", 25, "denied", "0.0.0.0/0:25"},
    {"public,deny=0.0.0.0/0:25,[::]/0:25", NULL, "2001:db8::1", 25, "denied", "[::]/0:25"},
    {"public,deny=192.0.2.0/24", "a.com", "192.0.2.1", 443, "denied", "192.0.2.0/24"},
    {"public,deny=a.com protocol=udp", "a.com", "192.0.2.1", 443, "allowed", NULL},
    {"allow=a.com,deny=a.com", "a.com", "192.0.2.1", 443, "denied", "a.com"},
    {"allow=10.0.0.0/8,deny=10.0.0.1", NULL, "10.0.0.1", 1, "denied", "10.0.0.1"},
    {"allow=10.0.0.0/8,deny=10.0.0.1", NULL, "10.0.0.2", 1, "allowed", "10.0.0.0/8"},
    {"allow=db.corp private=yes,deny=10.0.0.0/8", "db.corp", "10.0.0.1", 1, "denied", "10.0.0.0/8"},
    {"allow=192.0.2.7,192.0.2.0/24", NULL, "192.0.2.7", 1, "allowed", "192.0.2.7"},
    /* In any spelling. */
    {"public,deny=192.0.2.1", NULL, "64:ff9b::192.0.2.1", 1, "denied", "192.0.2.1"},
    {"public,deny=192.0.2.1", NULL, "2002:c000:201::1", 1, "denied", "192.0.2.1"},
    {"public,deny=2002::/16", NULL, "2002:c000:201::1", 1, "denied", "2002::/16"},
    {"public,deny=64:ff9b::/96", "a.com", "64:ff9b::192.0.2.1", 1, "denied", "64:ff9b::/96"},
    {"public", "a.com", "64:ff9b::192.0.2.1", 1, "allowed", NULL},
    {"public", NULL, "64:ff9b::10.0.0.1", 1, "private", NULL},
    {"public", NULL, "2002:0a00:1::1", 1, "private", NULL},
    {"public", NULL, "::10.0.0.1", 1, "private", NULL},
    {"public", NULL, "2001:0:0a00:1::3fff:fdfe", 1, "private", NULL},   /* Teredo: the server */
    {"public", NULL, "2001:0:c000:201::f5ff:fffe", 1, "private", NULL}, /* the client */
    {"public", NULL, "2001:0:c000:201::3fff:fdfe", 1, "allowed", NULL},
    {"allow=10.0.0.0/8", NULL, "64:ff9b::10.0.0.1", 1, "allowed", "10.0.0.0/8"},
    {"allow=192.0.2.1", NULL, "64:ff9b::192.0.2.1", 1, "allowed", "192.0.2.1"},
    {"allow=::/0", NULL, "64:ff9b::192.0.2.1", 1, "no_rule", NULL},
    /* The host's own addresses: 192.0.2.99 and 2001:db8::99, and 10.9.9.9. */
    {"public", NULL, "192.0.2.99", 22, "host", NULL},
    {"public", "a.com", "2001:db8::99", 22, "host", NULL},
    {"allow=a.com", "a.com", "::ffff:192.0.2.99", 22, "host", NULL},
    {"allow=192.0.2.99", NULL, "192.0.2.99", 22, "host", NULL},
    {"allow=10.0.0.0/8", NULL, "10.9.9.9", 22, "host", NULL},
    {"allow=a.com private=yes", "a.com", "64:ff9b::10.9.9.9", 22, "host", NULL},
    {"public", NULL, "2002:c000:263::1", 22, "host", NULL},
};

static void check_dials(void)
{
    struct policy_address own[3] = {address_of("192.0.2.99"), address_of("2001:db8::99"),
                                    address_of("10.9.9.9")};

    for (size_t i = 0; i < COUNT(dials); i++) {
        struct policy *policy = make(dials[i].policy);
        struct policy_address address = address_of(dials[i].address);
        struct policy_verdict verdict;

        if (policy == NULL)
            continue;
        verdict = policy_dial(policy, dials[i].name, &address, dials[i].port, POLICY_TCP, NULL, own,
                              COUNT(own));
        CHECK(strcmp(verdict.reason, dials[i].reason) == 0 &&
                  same_text(verdict.rule, dials[i].rule),
              "%s: %s %s:%d: %s by %s", dials[i].policy,
              dials[i].name != NULL ? dials[i].name : "-", dials[i].address, dials[i].port,
              verdict.reason, verdict.rule != NULL ? verdict.rule : "none");
        CHECK(verdict.allowed == (strcmp(dials[i].reason, "allowed") == 0), "%s", dials[i].policy);
        policy_free(policy);
    }
}

static void check_protocols(void)
{
    struct policy *policy = make("public,deny=a.com:53 protocol=udp");
    struct policy_address address = address_of("192.0.2.1");

    CHECK(strcmp(policy_dial(policy, "a.com", &address, 53, POLICY_UDP, NULL, NULL, 0).reason,
                 "denied") == 0,
          "UDP is denied");
    CHECK(policy_dial(policy, "a.com", &address, 53, POLICY_TCP, NULL, NULL, 0).allowed,
          "TCP is not");
    policy_free(policy);
    policy = make("allow=a.com protocol=tcp");
    CHECK(!policy_dial(policy, "a.com", &address, 443, POLICY_UDP, NULL, NULL, 0).allowed,
          "UDP is not");
    CHECK(policy_dial(policy, "a.com", &address, 443, POLICY_TCP, NULL, NULL, 0).allowed,
          "TCP is allowed");
    policy_free(policy);
}

/* ---- what no rule opens ---- */

static const struct {
    const char *address, *reason;
} denied[] = {
    {"127.0.0.1", "loopback"},
    {"127.255.255.254", "loopback"},
    {"0.0.0.0", "loopback"},
    {"0.1.2.3", "loopback"},
    {"::", "loopback"},
    {"::1", "loopback"},
    {"::2", "loopback"}, /* 0.0.0.2 */
    {"169.254.169.254", "metadata"},
    {"169.254.169.253", "metadata"},
    {"169.254.169.123", "metadata"},
    {"169.254.170.2", "metadata"},
    {"169.254.170.23", "metadata"},
    {"169.254.0.23", "metadata"},
    {"169.254.42.42", "metadata"},
    {"169.254.0.1", "link_local"},
    {"169.254.255.255", "link_local"},
    {"100.100.100.200", "metadata"},
    {"168.63.129.16", "metadata"},
    {"192.0.0.192", "metadata"},
    {"192.0.0.1", "reserved"},
    {"192.88.99.1", "reserved"},
    {"198.18.0.1", "fake"},
    {"198.19.255.255", "fake"},
    {"224.0.0.1", "multicast"},
    {"239.255.255.255", "multicast"},
    {"240.0.0.1", "reserved"},
    {"255.255.255.255", "reserved"},
    {"fd00:ec2::254", "metadata"},
    {"fd00:ec2::23", "metadata"},
    {"fd20:ce::254", "metadata"},
    {"fd00:c1::a9fe:a9fe", "metadata"},
    {"fd63:6f76:6500::2", "fake"},
    {"fd63:6f76:6500:ffff::2", "fake"},
    {"fe80::1", "link_local"},
    {"febf::1", "link_local"},
    {"fe80::a9fe:a9fe", "link_local"},
    {"ff02::1", "multicast"},
    {"ff0e::1", "multicast"},
    {"100::1", "reserved"},
    {"1::1", "reserved"},
    {"4000::1", "reserved"},
    {"5f00::1", "reserved"},
    {"e000::1", "reserved"},
    {"fe00::1", "reserved"},
    {"2001:2::1", "reserved"},
    {"2001:10::1", "reserved"},
    {"2001:2f::1", "reserved"},
    /* The same in IPv4-mapped, -compatible, -translated, NAT64, 6to4, Teredo. */
    {"::ffff:127.0.0.1", "loopback"},
    {"::ffff:169.254.169.254", "metadata"},
    {"::ffff:a9fe:a9fe", "metadata"},
    {"::ffff:100.100.100.200", "metadata"},
    {"::127.0.0.1", "loopback"},
    {"::169.254.169.254", "metadata"},
    {"::168.63.129.16", "metadata"},
    {"::198.18.0.2", "fake"},
    {"::ffff:0:127.0.0.1", "loopback"},
    {"::ffff:0:169.254.169.254", "metadata"},
    {"64:ff9b::127.0.0.1", "loopback"},
    {"64:ff9b::0.0.0.0", "loopback"},
    {"64:ff9b::169.254.169.254", "metadata"},
    {"64:ff9b::a9fe:a9fe", "metadata"},
    {"64:ff9b::6464:64c8", "metadata"},
    {"64:ff9b::198.18.0.2", "fake"},
    {"64:ff9b::224.0.0.1", "multicast"},
    {"64:ff9b:1::169.254.169.254", "reserved"},
    {"64:ff9b:1:a9fe:a9:fe00::", "reserved"},
    {"64:ff9b:1::8.8.8.8", "reserved"},
    {"64:ff9b:2::8.8.8.8", "reserved"},
    {"64:ff9b::1:8.8.8.8", "reserved"}, /* beside the /96 */
    {"2002:7f00:1::", "loopback"},
    {"2002:7f00:1::1", "loopback"},
    {"2002:a9fe:a9fe::a9fe:a9fe", "metadata"},
    {"2002:0:1::1", "loopback"},
    {"2002:a83f:8110::1", "metadata"},
    {"2001:0:c000:201::80ff:fffe", "loopback"}, /* Teredo: the client, turned over */
    {"2001:0:c000:201::5601:5601", "metadata"},
    {"2001:0:7f00:1::3fff:fdfe", "loopback"}, /* the server */
    {"2001:0:a9fe:a9fe::3fff:fdfe", "metadata"},
};

static void check_denied(void)
{
    static const char *const widest[] = {
        "public",
        "public,allow=*,* private=yes,0.0.0.0/0,::/0",
        "allow=*,* private=yes,0.0.0.0/0,::/0",
        "allow=a.com private=yes,0.0.0.0/1,128.0.0.0/1,::/1,8000::/1,2000::/3,fc00::/7",
        "public,allow=100.64.0.0/10,168.63.0.0/16,192.0.0.0/16,fd00::/8,a.com private=yes",
    };

    for (size_t i = 0; i < COUNT(widest); i++) {
        struct policy *policy = make(widest[i]);

        for (size_t j = 0; policy != NULL && j < COUNT(denied); j++) {
            struct policy_address address = address_of(denied[j].address);
            static const char *const asked[] = {NULL, "a.com"};
            static const uint16_t ports[] = {1, 53, 80, 443, 65535};

            for (size_t n = 0; n < COUNT(asked) * COUNT(ports); n++) {
                struct policy_verdict verdict = policy_dial(
                    policy, asked[n % 2], &address, ports[n / 2], POLICY_TCP, NULL, NULL, 0);

                CHECK(!verdict.allowed && strcmp(verdict.reason, denied[j].reason) == 0 &&
                          verdict.rule == NULL,
                      "%s: %s: %s", widest[i], denied[j].address, verdict.reason);
            }
        }
        policy_free(policy);
    }
}

/* ---- translators of a site's own ---- */

static const char *const nat64_wrong[][2] = {
    {"", "is no prefix"},
    {"2001:db8::", "is no prefix"},
    {"/96", "is no prefix"},
    {"2001:db8::/96,", "is no prefix"},
    {"2001:db8::/96 2001:db9::/96", "has a length"},
    {"192.0.2.0/24", "is no IPv6 prefix"},
    {"::ffff:192.0.2.0/96", "is no IPv6 prefix"},
    {"example.com/96", "is no IPv6 prefix"},
    {"2001:db8::/33", "has a length"},
    {"2001:db8::/128", "has a length"},
    {"2001:db8::/0", "has a length"},
    {"2001:db8::/096", "has a length"},
    {"2001:db8::/+96", "has a length"},
    {"2001:db8::/96x", "has a length"},
    {"2001:db8::/18446744073709551712", "has a length"},
    {"2001:db8::1/96", "has bits"},
    {"2001:db8:0:1::/48", "has bits"},
    {"2001:db8:0:0:100::/96", "has bits"}, /* byte 8 */
    {"::/96", "is reserved"},
    {"::/32", "is reserved"},
    {"ff0e::/96", "is reserved"},
    {"fe80::/64", "is reserved"},
    {"fd00:ec2::/96", "is reserved"},
    {"fd63:6f76:6500::/48", "is reserved"},
    {"64:ff9b::/32", "is reserved"},
    {"64:ff9b:2::/48", "is reserved"},
    {"2002::/32", "is reserved"},
    {"2001::/32", "is reserved"},
    {"2001:db8::/32,2001:db8:1::/96", "overlaps"},
    {"2001:db8:1::/96,2001:db8::/32", "overlaps"},
    {"fd01::/96,fd02::/96,fd03::/96,fd04::/96,fd05::/96,fd06::/96,fd07::/96,fd08::/96,fd09::/96",
     "one prefix too many"},
};

/* Each address has 192.0.2.33 in it as RFC 6052 shows it in its table 2.4, or another one at the same place. */
static const struct {
    const char *nat64, *policy, *address, *reason, *rule;
} translated[] = {
    {"2001:db8::/32", "public", "2001:db8:c000:221::", "allowed", NULL},
    {"2001:db8::/32", "public", "2001:db8:a9fe:a9fe::", "metadata", NULL},
    {"2001:db8:100::/40", "public", "2001:db8:1c0:2:21::", "allowed", NULL},
    {"2001:db8:100::/40", "public", "2001:db8:10a:0:1::", "private", NULL},
    {"2001:db8:100::/40", "public", "2001:db8:17f:0:1::", "loopback", NULL},
    {"2001:db8:122::/48", "public", "2001:db8:122:c000:2:2100::", "allowed", NULL},
    {"2001:db8:122::/48", "public", "2001:db8:122:c0a8:1:100::", "private", NULL},
    {"2001:db8:122::/48", "public", "2001:db8:122:a9fe:a9:fe00::", "metadata", NULL},
    {"2001:db8:122:300::/56", "public", "2001:db8:122:3c0:0:221::", "allowed", NULL},
    {"2001:db8:122:300::/56", "public", "2001:db8:122:30a:0:1::", "private", NULL},
    {"2001:db8:122:300::/56", "public", "2001:db8:122:3a9:fe:a9fe::", "metadata", NULL},
    {"2001:db8:122:344::/64", "public", "2001:db8:122:344:c0:2:2100::", "allowed", NULL},
    {"2001:db8:122:344::/64", "public", "2001:db8:122:344:a:0:100::", "private", NULL},
    {"2001:db8:122:344::/64", "public", "2001:db8:122:344:a9:fea9:fe00::", "metadata", NULL},
    {"2001:db8:122:344::/96", "public", "2001:db8:122:344::192.0.2.33", "allowed", NULL},
    {"2001:db8:122:344::/96", "public", "2001:db8:122:344::10.0.0.1", "private", NULL},
    {"2001:db8:122:344::/96", "public", "2001:db8:122:344::127.0.0.1", "loopback", NULL},
    {"2001:db8:122:344::/96", "public", "2001:db8:122:344::192.0.2.99", "host", NULL},
    {"2001:db8:122:344::/96", "allow=2001:db8::/32", "2001:db8:122:344::192.0.2.33", "no_rule",
     NULL},
    {"2001:db8:122:344::/96", "allow=192.0.2.0/24", "2001:db8:122:344::192.0.2.33", "allowed",
     "192.0.2.0/24"},
    {"2001:db8:122:344::/96", "allow=10.0.0.0/8", "2001:db8:122:344::10.0.0.1", "allowed",
     "10.0.0.0/8"},
    {"2001:db8:122:344::/96", "public,deny=192.0.2.33", "2001:db8:122:344::192.0.2.33", "denied",
     "192.0.2.33"},
    {"2001:db8:122:344::/96", "public,deny=2001:db8::/32", "2001:db8:122:344::192.0.2.33", "denied",
     "2001:db8::/32"},
    {"2001:db8:122:344::/96", "public", "2001:db8:122:345::10.0.0.1", "allowed", NULL}, /* beside */
    /* Private as such: what a translator makes of it counts, and of nothing but what is for one. */
    {"fd00:64::/96", "public", "fd00:64::192.0.2.33", "allowed", NULL},
    {"fd00:64::/96", "public", "fd00:64::10.0.0.1", "private", NULL},
    {"fd00:64::/96", "public", "fd00:64:0:0:0:1:c000:221", "private", NULL},
    {"fd00:64::/64", "public", "fd00:64::c0:2:2100:0", "allowed", NULL},
    {"fd00:64::/64", "public", "fd00:64::c0:2:2100:1", "private", NULL},
    {"fd00:64::/64", "public", "fd00:64::1c0:2:2100:0", "private", NULL},
    {"fd00::/32", "public", "fd00:0:a9fe:a9fe::", "metadata", NULL},
    {"64:ff9b:1::/48", "public", "64:ff9b:1:c000:2:2100::", "allowed", NULL},
    {"64:ff9b:1::/48", "public", "64:ff9b:1:a9fe:a9:fe00::", "metadata", NULL},
    {"64:ff9b:1:fffe::/96", "public", "64:ff9b:1:fffe::10.0.0.1", "private", NULL},
    {"64:ff9b:1:fffe::/96", "public", "64:ff9b:1:ffff::8.8.8.8", "reserved", NULL},
    {"64:ff9b::/96", "public", "64:ff9b::10.0.0.1", "private", NULL},
    {"fd01::/96, 2001:db8:122:344::/96 ,fd02::/96", "public", "fd02::10.0.0.1", "private", NULL},
};

static void check_translated(void)
{
    struct policy_address own = address_of("192.0.2.99");
    struct policy_nat64 nat64;
    struct error err;

    for (size_t i = 0; i < COUNT(nat64_wrong); i++) {
        CHECK(policy_nat64_parse(nat64_wrong[i][0], &nat64, &err) < 0, "%s", nat64_wrong[i][0]);
        CHECK(strcmp(err.code, "bad_value") == 0 && strstr(err.text, nat64_wrong[i][1]) != NULL,
              "%s: %s", nat64_wrong[i][0], err.text);
    }
    for (size_t i = 0; i < COUNT(translated); i++) {
        struct policy *policy = make(translated[i].policy);
        struct policy_address address = address_of(translated[i].address);
        struct policy_verdict verdict;

        CHECK(policy_nat64_parse(translated[i].nat64, &nat64, &err) == 0, "%s", err.text);
        verdict = policy_dial(policy, NULL, &address, 443, POLICY_TCP, &nat64, &own, 1);
        CHECK(strcmp(verdict.reason, translated[i].reason) == 0 &&
                  same_text(verdict.rule, translated[i].rule) &&
                  verdict.allowed == (strcmp(verdict.reason, "allowed") == 0),
              "%s: %s: %s: %s by %s", translated[i].nat64, translated[i].policy,
              translated[i].address, verdict.reason, verdict.rule != NULL ? verdict.rule : "none");
        policy_free(policy);
    }
}

/* ---- what the operator opens of private networks ---- */

static const char *const bound_wrong[] = {
    "",           "all",         "8.8.8.8",     "0.0.0.0/0",       "10.0.0.0/7", "10.1/16",
    "10.1.0.0/8", "10.0.0.1:80", "intern.test", "none,10.0.0.0/8", "any,any",    "169.254.0.0/16",
    "127.0.0.1",  "10.0.0.0/8,", "::/0"};

/* What a bound says of a policy ("" where it may be), and of an address that the policy opens. */
static const struct {
    const char *bound, *policy, *rule, *address, *reason;
} bounded[] = {
    {"any", "allow=10.0.0.0/8", "", "10.1.2.3", "allowed"},
    {"none", "allow=10.0.0.0/8", "10.0.0.0/8", "10.1.2.3", "private"},
    {"none", "public", "", "8.8.8.8", "allowed"},
    {"none", "allow=*,allow=10.1.0.0/16:80", "10.1.0.0/16:80", "10.1.2.3", "private"},
    {"none", "allow=a.test private=yes", "a.test private=yes", "10.1.2.3", "private"},
    {"none", "allow=0.0.0.0/0", "", "192.168.1.1", "private"},
    {"none", "allow=0.0.0.0/0", "", "9.9.9.9", "allowed"},
    {"10.1.0.0/16", "allow=10.1.2.0/24,10.1.0.0/16", "", "10.1.255.255", "allowed"},
    {"10.1.0.0/16", "allow=10.0.0.0/8", "10.0.0.0/8", "10.2.0.0", "private"},
    {"10.1.0.0/16", "allow=a.test private=yes", "", "10.2.0.1", "private"},
    {"10.1.0.0/16", "allow=a.test private=yes", "", "10.1.0.1", "allowed"},
    {"10.1.0.0/16", "allow=0.0.0.0/0", "", "::ffff:10.2.0.1", "private"},
    {"10.1.0.0/16", "allow=0.0.0.0/0", "", "64:ff9b::10.2.0.1", "private"},
    {"10.1.0.0/16", "allow=0.0.0.0/0", "", "64:ff9b::10.1.0.1", "allowed"},
    {"192.168.7.7 , fd00:1::/32", "allow=192.168.7.7,[fd00:1:2::]/48:443", "", "fd00:1:2::1",
     "allowed"},
    {"192.168.7.7,fd00:1::/32", "allow=fd00::/16", "fd00::/16", "fd00:2::1", "private"},
    {"10.0.0.0/8", "public,deny=10.0.0.0/8", "", "10.0.0.1", "denied"},
};

static void check_bounds(void)
{
    struct policy_bound bound;
    struct error err;

    for (size_t i = 0; i < COUNT(bound_wrong); i++)
        CHECK(policy_bound_parse(bound_wrong[i], &bound, &err) < 0 &&
                  strcmp(err.code, "bad_value") == 0,
              "\"%s\" is a bound", bound_wrong[i]);
    for (size_t i = 0; i < COUNT(bounded); i++) {
        struct policy *policy = make(bounded[i].policy);
        struct policy_address address = address_of(bounded[i].address);
        struct policy_verdict verdict;
        int status;

        CHECK(policy_bound_parse(bounded[i].bound, &bound, &err) == 0, "%s", err.text);
        status = policy_bound_check(&bound, policy, &err);
        if (bounded[i].rule[0] == '\0')
            CHECK(status == 0, "%s: %s: %s", bounded[i].bound, bounded[i].policy, err.text);
        else
            CHECK(status < 0 && strcmp(err.code, "private_network") == 0 &&
                      strstr(err.text, bounded[i].rule) != NULL,
                  "%s: %s", bounded[i].bound, bounded[i].policy);
        verdict = policy_dial(policy, "a.test", &address, 443, POLICY_TCP, NULL, NULL, 0);
        if (strstr(bounded[i].policy, "*") != NULL)
            verdict = policy_dial(policy, NULL, &address, 80, POLICY_TCP, NULL, NULL, 0);
        verdict = policy_bound_narrow(&bound, verdict, &address, NULL);
        CHECK(strcmp(verdict.reason, bounded[i].reason) == 0 &&
                  verdict.allowed == (strcmp(verdict.reason, "allowed") == 0),
              "%s: %s: %s: %s", bounded[i].bound, bounded[i].policy, bounded[i].address,
              verdict.reason);
        policy_free(policy);
    }
}

/* ---- against a slow way to the same ---- */

static bool takes_name(const char *rule, const char *name)
{
    size_t length = strlen(name), below;

    if (rule[0] != '*')
        return strcmp(rule, name) == 0;
    if (rule[1] == '\0')
        return true;
    below = strlen(rule + 1);
    return length > below && strcmp(name + length - below, rule + 1) == 0;
}

static uint32_t next(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(*state >> 33) % below;
}

#define NAME_SIZE 64

static void random_name(uint64_t *state, char *out)
{
    static const char *const labels[] = {"a", "b", "aa", "ab", "a-b", "a_b", "com"};
    uint32_t count = 1 + next(state, 4);
    size_t used = 0;

    for (uint32_t i = 0; i < count; i++)
        used += (size_t)snprintf(out + used, NAME_SIZE - used, "%s%s", i > 0 ? "." : "",
                                 labels[next(state, COUNT(labels))]);
}

static void finds_the_same(void)
{
    uint64_t state = 7;

    for (size_t round = 0; round < 60; round++) {
        static char texts[POLICY_RULES_MAX][80];
        static const char *list[POLICY_RULES_MAX + 1];
        size_t count = 1 + next(&state, round % 2 == 0 ? 8 : POLICY_RULES_MAX - 1);
        struct policy *policy = NULL;
        struct error err = {0};

        for (size_t i = 0; i < count; i++) {
            char name[NAME_SIZE];

            random_name(&state, name);
            (void)snprintf(texts[i], sizeof(texts[i]), "%s%s", next(&state, 2) == 0 ? "*." : "",
                           name);
            list[i] = texts[i];
        }
        list[count] = NULL;
        CHECK(policy_new("allow", list, NULL, &policy, &err) == 0, "%s", err.text);
        for (size_t i = 0; policy != NULL && i < 200; i++) {
            struct policy_verdict verdict;
            const char *expected = NULL;
            char name[NAME_SIZE];

            random_name(&state, name);
            for (size_t j = 0; j < count && expected == NULL; j++)
                if (takes_name(texts[j], name))
                    expected = texts[j];
            verdict = policy_lookup(policy, name);
            CHECK(verdict.allowed == (expected != NULL) && same_text(verdict.rule, expected),
                  "%s: %s, not %s", name, verdict.rule != NULL ? verdict.rule : "none",
                  expected != NULL ? expected : "none");
        }
        policy_free(policy);
    }
}

/* The widest: as many rules as there may be, a name of as many labels as there may be, nothing that matches early.
 * What a decision takes is printed; the bound is one that only another way of deciding would break. */
static void takes_no_time(void)
{
    static char texts[POLICY_RULES_MAX][300];
    static const char *allow[POLICY_RULES_MAX + 1];
    struct policy_address address = address_of("2001:db8::1");
    struct policy *policy = NULL;
    struct error err = {0};
    char name[POLICY_NAME_MAX];
    uint64_t started, taken;
    size_t rounds = 2000;

    for (size_t i = 0; i < 253; i++)
        name[i] = i % 2 == 0 ? 'a' : '.';
    name[253] = '\0';
    for (size_t i = 0; i < POLICY_RULES_MAX; i++) {
        allow[i] = texts[i];
        if (i < 512)
            (void)snprintf(texts[i], sizeof(texts[i]), "2001:db8:%zx::/48", i + 1);
        else
            (void)snprintf(texts[i], sizeof(texts[i]), "*%s:%zu", name + 253 - 2 * (i % 126 + 1),
                           i);
    }
    CHECK(policy_new("allow", allow, NULL, &policy, &err) == 0, "%s", err.text);
    started = clock_monotonic_ns();
    for (size_t i = 0; policy != NULL && i < rounds; i++) {
        CHECK(!policy_dial(policy, name, &address, 443, POLICY_TCP, NULL, &address, 0).allowed,
              "allowed");
        CHECK(policy_lookup(policy, name).allowed, "not looked up");
    }
    taken = clock_monotonic_ns() - started;
    printf("a decision of %d rules takes %llu ns\n", POLICY_RULES_MAX,
           (unsigned long long)(taken / (2 * rounds)));
    CHECK(taken < 60ULL * 1000000000, "it took too long");
    policy_free(policy);
}

int main(void)
{
    check_names();
    check_addresses();
    check_rules();
    check_texts();
    check_making();
    check_lookups();
    check_dials();
    check_protocols();
    check_denied();
    check_translated();
    check_bounds();
    finds_the_same();
    takes_no_time();
    return check_finish();
}
