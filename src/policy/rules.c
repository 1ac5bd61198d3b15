/* The rules of one side, and which of them a name is under.
 *
 * Names are kept turned and sorted, so that all names below one lie together: a name is looked for from its
 * last label on, in a stretch that only gets smaller. Nothing is allocated, and no choice of rules or of names
 * makes it slow, as it could where they were hashed. */
#include "policy/parts.h"

#include "base/fd.h"

#include <stdlib.h>
#include <string.h>

/* By name, then by place: the order in which they were written. */
static int compare(const void *a, const void *b, void *rules_of)
{
    const struct rule *rules = rules_of;
    uint16_t first = *(const uint16_t *)a, second = *(const uint16_t *)b;
    int order = strcmp(rules[first].name, rules[second].name);

    return order != 0 ? order : (int)first - (int)second;
}

int rules_parse(const char *const *texts, size_t count, const char *side, struct rules *out,
                struct error *err)
{
    memset(out, 0, sizeof(*out));
    out->rules = calloc(count + 1, sizeof(*out->rules));
    out->texts = calloc(count + 1, sizeof(*out->texts));
    out->by_name = calloc(count + 1, sizeof(*out->by_name));
    if (out->rules == NULL || out->texts == NULL || out->by_name == NULL) {
        rules_free(out);
        return error_set(err, "no_memory", 0, "there is no memory for a policy of %zu rules",
                         count);
    }
    for (size_t i = 0; i < count; i++) {
        if (rule_parse(texts[i], side, &out->rules[i], err) < 0) {
            rules_free(out);
            return -1;
        }
        out->count++;
        out->texts[i] = out->rules[i].text;
        if (out->rules[i].name != NULL)
            out->by_name[out->names++] = (uint16_t)i;
    }
    qsort_r(out->by_name, out->names, sizeof(*out->by_name), compare, out->rules);
    return 0;
}

void rules_free(struct rules *rules)
{
    for (size_t i = 0; i < rules->count; i++)
        rule_free(&rules->rules[i]);
    freep(&rules->rules);
    freep(&rules->texts);
    freep(&rules->by_name);
    memset(rules, 0, sizeof(*rules));
}

/* A stretch of by_name whose names have the same first `known` bytes. */
struct stretch {
    size_t low, high, known;
};

/* How the name at a place of the stretch compares to all that begin as `name` does; 0: it is one of them. */
static int order(const struct rules *rules, const struct stretch *stretch, size_t place,
                 const char *name, size_t length)
{
    const char *there = rules->rules[rules->by_name[place]].name;

    return strncmp(there + stretch->known, name + stretch->known, length - stretch->known);
}

/* Where in the stretch the first one is that is not before them; `after`: that is behind them. */
static size_t edge(const struct rules *rules, const struct stretch *stretch, const char *name,
                   size_t length, bool after)
{
    size_t low = stretch->low, high = stretch->high;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int how = order(rules, stretch, middle, name, length);

        if (how < 0 || (how == 0 && after))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* To the names that begin with the first `length` bytes of `name`. Where rules are of deeper and deeper names both
 * ends mostly stay where they are. */
static void narrow(const struct rules *rules, struct stretch *stretch, const char *name,
                   size_t length)
{
    if (order(rules, stretch, stretch->high - 1, name, length) != 0)
        stretch->high = edge(rules, stretch, name, length, true);
    if (stretch->low < stretch->high && order(rules, stretch, stretch->low, name, length) != 0)
        stretch->low = edge(rules, stretch, name, length, false);
    stretch->known = length;
}

size_t rules_of_name(const struct rules *rules, const char *name, uint16_t found[POLICY_RULES_MAX])
{
    struct stretch stretch = {.high = rules->names};
    size_t length = strlen(name), count = 0;
    char turned[POLICY_NAME_MAX];

    name_turn(name, length, turned);
    /* First "*", whose name is "". */
    for (size_t end = 0; end <= length && stretch.low < stretch.high; end++) {
        if (end != 0 && end != length && turned[end] != '.')
            continue;
        narrow(rules, &stretch, turned, end);
        /* A name sorts before all others that begin with it. */
        for (; stretch.low < stretch.high; stretch.low++) {
            const struct rule *rule = &rules->rules[rules->by_name[stretch.low]];

            if (rule->name_length != end)
                break;
            if (rule->below == (end < length))
                found[count++] = rules->by_name[stretch.low];
        }
    }
    return count;
}
