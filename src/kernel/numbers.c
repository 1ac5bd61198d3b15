/* A table by number: chains, as many as there are entries. The numbers are counted by whoever owns the
 * table, so that nobody else can make them collide. */
#include "kernel/numbers.h"

#include <stdlib.h>

#define LEAST 64U

static struct number **bucket_of(const struct numbers *numbers, uint64_t number)
{
    return &numbers->buckets[number & (numbers->buckets_count - 1)];
}

struct number *numbers_find(const struct numbers *numbers, uint64_t number)
{
    struct number *entry = numbers->buckets_count != 0 ? *bucket_of(numbers, number) : NULL;

    while (entry != NULL && entry->number != number)
        entry = entry->next;
    return entry;
}

static int grow(struct numbers *numbers)
{
    struct numbers more = {.buckets_count = numbers->buckets_count != 0 ? 2 * numbers->buckets_count
                                                                        : LEAST};

    more.buckets = calloc(more.buckets_count, sizeof(struct number *));
    if (more.buckets == NULL)
        return -1;
    for (size_t i = 0; i < numbers->buckets_count; i++)
        for (struct number *entry = numbers->buckets[i], *next; entry != NULL; entry = next) {
            struct number **bucket = bucket_of(&more, entry->number);

            next = entry->next;
            entry->next = *bucket;
            *bucket = entry;
        }
    free(numbers->buckets);
    numbers->buckets = more.buckets;
    numbers->buckets_count = more.buckets_count;
    return 0;
}

int numbers_add(struct numbers *numbers, struct number *entry, uint64_t number)
{
    struct number **bucket;

    if (numbers->count == numbers->buckets_count && grow(numbers) < 0)
        return -1;
    bucket = bucket_of(numbers, number);
    *entry = (struct number){number, *bucket};
    *bucket = entry;
    numbers->count++;
    return 0;
}

void numbers_remove(struct numbers *numbers, struct number *entry)
{
    struct number **at;

    if (entry->number == 0)
        return;
    for (at = bucket_of(numbers, entry->number); *at != entry; at = &(*at)->next)
        continue;
    *at = entry->next;
    *entry = (struct number){0};
    numbers->count--;
}

struct number *numbers_any(const struct numbers *numbers)
{
    if (numbers->count > 0)
        for (size_t i = 0; i < numbers->buckets_count; i++)
            if (numbers->buckets[i] != NULL)
                return numbers->buckets[i];
    return NULL;
}

void numbers_free(struct numbers *numbers)
{
    free(numbers->buckets);
    *numbers = (struct numbers){0};
}
