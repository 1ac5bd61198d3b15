/* Any bytes as a policy (the first line, which is also tried as the prefixes of translators), a name (the second), an address (the third, as text, and 16 bytes behind
 * it) and a port (two more). What is none is refused; what is one reads the same again; and whatever is written,
 * an address that no rule opens stays shut. Which those are is said here a second time, in another way. */
#include "fuzz.h"
#include "policy/parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- what no rule opens ---- */

static bool shut4(const uint8_t *b)
{
    uint32_t a = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];

    return b[0] == 0 || b[0] == 127 || b[0] >= 224 || a >> 16 == 0xa9fe || a == 0x646464c8 ||
           a == 0xa83f8110 || a >> 8 == 0xc00000 || a >> 8 == 0xc05863 || a >> 17 == 0xc612 >> 1;
}

static bool zeros(const uint8_t *b, size_t from, size_t to)
{
    while (from < to)
        if (b[from++] != 0)
            return false;
    return true;
}

static bool shut(const uint8_t *b)
{
    unsigned first = (unsigned)b[0] << 8 | b[1], second = (unsigned)b[2] << 8 | b[3];
    uint8_t client[4];

    for (size_t i = 0; i < 4; i++)
        client[i] = (uint8_t)~b[12 + i];
    if (zeros(b, 0, 8)) /* mapped, compatible, translated, or given to nobody */
        return !(zeros(b, 8, 12) || (zeros(b, 8, 10) && b[10] == 0xff && b[11] == 0xff) ||
                 (b[8] == 0xff && b[9] == 0xff && zeros(b, 10, 12))) ||
               shut4(b + 12);
    if (first == 0x64 && second == 0xff9b && zeros(b, 4, 12))
        return shut4(b + 12);
    if (first == 0x2002)
        return shut4(b + 2);
    if (first == 0x2001 && second == 0)
        return shut4(b + 4) || shut4(client);
    if ((first == 0xfd00 && second == 0x0ec2) ||
        (first == 0xfd63 && second == 0x6f76 && b[4] == 0x65))
        return !(first == 0xfd63 && b[5] != 0);
    return !((first >= 0x2000 && first < 0x4000) || (first >= 0xfc00 && first < 0xfe00) ||
             (first >= 0xfec0 && first < 0xff00));
}

/* ---- what must hold ---- */

static bool same_list(const char *const *a, const char *const *b)
{
    size_t i = 0;

    while (a[i] != NULL && b[i] != NULL && strcmp(a[i], b[i]) == 0)
        i++;
    return a[i] == NULL && b[i] == NULL;
}

static void check_verdict(const struct policy *policy, const struct policy_verdict *verdict)
{
    bool found = verdict->rule == NULL;

    must(verdict->reason != NULL && verdict->allowed == (strcmp(verdict->reason, "allowed") == 0));
    must(!verdict->allowed || policy_mode(policy) != POLICY_NONE);
    must(!verdict->allowed || verdict->rule != NULL || policy_mode(policy) == POLICY_PUBLIC);
    for (size_t i = 0; !found && policy_allow(policy)[i] != NULL; i++)
        found = verdict->allowed && verdict->rule == policy_allow(policy)[i];
    for (size_t i = 0; !found && policy_deny(policy)[i] != NULL; i++)
        found = !verdict->allowed && verdict->rule == policy_deny(policy)[i];
    must(found);
}

static bool is_address_rule(const struct policy *policy, const char *text)
{
    for (size_t i = 0; i < policy->allow.count; i++)
        if (policy->allow.rules[i].text == text)
            return policy->allow.rules[i].name == NULL;
    return false;
}

/* A policy, what its own texts make, and what denies all besides; NULL where that would be too many rules. */
struct trial {
    struct policy *policy, *again, *denies;
};

static void try_dial(const struct trial *trial, const char *name,
                     const struct policy_address *address, uint16_t port)
{
    const struct policy *policy = trial->policy, *denies = trial->denies;
    struct policy_verdict verdict = policy_dial(policy, name, address, port, POLICY_TCP, NULL, NULL,
                                                0);
    struct policy_verdict same = policy_dial(trial->again, name, address, port, POLICY_TCP, NULL,
                                             NULL, 0);

    check_verdict(policy, &verdict);
    must(verdict.allowed == same.allowed && strcmp(verdict.reason, same.reason) == 0);
    must(!verdict.allowed || !shut(address->bytes));
    /* What is decided by a name may be looked up. */
    if (verdict.allowed && name != NULL && !is_address_rule(policy, verdict.rule))
        must(policy_lookup(policy, name).allowed);
    must(!policy_dial(policy, name, address, port, POLICY_TCP, NULL, address, 1).allowed);
    must(denies == NULL ||
         !policy_dial(denies, name, address, port, POLICY_TCP, NULL, NULL, 0).allowed);
}

static void try_name(const char *name, bool *is_name)
{
    char normal[POLICY_NAME_MAX], again[POLICY_NAME_MAX];
    struct error err;

    *is_name = policy_name(name, normal, &err) == 0;
    if (!*is_name) {
        must(err.text[0] != '\0' && normal[0] == '\0');
        return;
    }
    must(policy_name(normal, again, &err) == 0 && strcmp(normal, again) == 0);
    for (const char *c = normal; *c != '\0'; c++)
        must((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || strchr("-_.", *c) != NULL);
}

static void try_address(const char *text, struct policy_address *out)
{
    struct policy_address again;
    char normal[POLICY_ADDRESS_TEXT];

    if (policy_address_parse(text, out) < 0)
        memset(out, 0, sizeof(*out));
    policy_address_text(out, normal);
    must(policy_address_parse(normal, &again) == 0 && memcmp(&again, out, sizeof(again)) == 0);
}

/* Takes the policy. */
static struct trial make_trial(struct policy *policy)
{
    static const char *const everything[] = {"0.0.0.0/0", "::/0", NULL};
    struct trial trial = {.policy = policy};
    struct error err;

    must(policy_new(policy_mode_name(policy_mode(policy)), policy_allow(policy),
                    policy_deny(policy), &trial.again, &err) == 0);
    must(same_list(policy_allow(policy), policy_allow(trial.again)));
    must(same_list(policy_deny(policy), policy_deny(trial.again)));
    must(policy_new("public", policy_allow(policy), everything, &trial.denies, &err) == 0 ||
         strcmp(err.code, "bad_policy") == 0);
    return trial;
}

static void free_trial(struct trial *trial)
{
    policy_free(trial->policy);
    policy_free(trial->again);
    policy_free(trial->denies);
}

static void try_all(const struct trial *trial, const char *name, const char *text,
                    const uint8_t *rest, size_t size)
{
    struct policy_address address, raw = {{0}};
    struct policy_verdict verdict = policy_lookup(trial->policy, name);
    uint16_t port = 443;
    bool is_name;

    if (size >= sizeof(raw))
        memcpy(&raw, rest, sizeof(raw));
    if (size >= sizeof(raw) + 2)
        port = (uint16_t)(rest[sizeof(raw)] << 8 | rest[sizeof(raw) + 1]);
    try_name(name, &is_name);
    check_verdict(trial->policy, &verdict);
    must(!verdict.allowed || is_name);
    try_address(text, &address);
    try_dial(trial, name, &address, port);
    try_dial(trial, NULL, &address, port);
    try_dial(trial, name, &raw, port);
    try_dial(trial, NULL, &raw, port);
}

/* What a translator makes the metadata address of, written here a second time: byte 8 stays zero. */
static void try_nat64(const struct policy *widest, const char *text,
                      const struct policy_address *address)
{
    static const uint8_t metadata[] = {169, 254, 169, 254};
    struct policy_nat64 nat64;
    struct error err;

    if (policy_nat64_parse(text, &nat64, &err) < 0) {
        must(strcmp(err.code, "bad_value") == 0 && err.text[0] != '\0');
        return;
    }
    must(nat64.count > 0 && nat64.count <= POLICY_NAT64_MAX);
    must(!shut(address->bytes) || (address->bytes[0] == 0 && address->bytes[1] == 0x64) ||
         !policy_dial(widest, NULL, address, 443, POLICY_TCP, &nat64, NULL, 0).allowed);
    for (size_t i = 0; i < nat64.count; i++) {
        struct policy_address inside = nat64.prefixes[i].address;

        for (unsigned j = 0; j < sizeof(metadata); j++) {
            unsigned at = nat64.prefixes[i].bits / 8 + j;

            inside.bytes[at < 8 || nat64.prefixes[i].bits == 96 ? at : at + 1] = metadata[j];
        }
        must(!policy_dial(widest, NULL, &inside, 443, POLICY_TCP, &nat64, NULL, 0).allowed);
    }
}

/* A line, ended; NULL behind the last. */
static char *take_line(char **at)
{
    char *line = *at, *end = line != NULL ? strchr(line, '\n') : NULL;

    *at = end != NULL ? end + 1 : NULL;
    if (end != NULL)
        *end = '\0';
    return line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* For addresses that were never listed: whatever an input allows, this allows more. */
    static const char everything[] =
        "public,allow=* private=yes,0.0.0.0/0,::/0,2000::/3,fc00::/7,100.64.0.0/10";
    static struct trial widest;
    char *text = malloc(size + 1), *at = text;
    const char *policy_text, *name, *address;
    struct policy_address dialled;
    struct policy *policy = NULL;
    struct error err = {0};

    must(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    policy_text = take_line(&at);
    name = take_line(&at);
    address = take_line(&at);
    if (name == NULL || address == NULL || at == NULL)
        name = address = at = text + size;
    if (policy_new_text(policy_text, &policy, &err) < 0) {
        must(policy == NULL && strcmp(err.code, "bad_policy") == 0 && err.text[0] != '\0');
    } else {
        struct trial trial = make_trial(policy);

        try_all(&trial, name, address, (const uint8_t *)at, (size_t)(text + size - at));
        free_trial(&trial);
    }
    if (widest.policy == NULL) {
        must(policy_new_text(everything, &policy, &err) == 0);
        widest = make_trial(policy);
    }
    try_all(&widest, name, address, (const uint8_t *)at, (size_t)(text + size - at));
    if (policy_address_parse(address, &dialled) == 0)
        try_nat64(widest.policy, policy_text, &dialled);
    free(text);
    return 0;
}
