/* A table by number, of what its owner keeps: entries lie within his structs. It grows as it fills. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct number {
    uint64_t number; /* 0: it is in no table */
    struct number *next;
};

struct numbers {
    struct number **buckets;
    size_t buckets_count, count;
};

struct number *numbers_find(const struct numbers *numbers, uint64_t number);
/* -1: there is no memory. The number must not be there. */
int numbers_add(struct numbers *numbers, struct number *entry, uint64_t number);
void numbers_remove(struct numbers *numbers, struct number *entry); /* also one that is in none */
/* Any of them; NULL: it is empty. */
struct number *numbers_any(const struct numbers *numbers);
void numbers_free(struct numbers *numbers); /* not the entries */
