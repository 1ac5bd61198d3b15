/* Zygotes: one per root and privileges, as long as the root is registered or boxes of it live.
 *
 * A zygote is the first process of its pid namespace, so its boxes end when it does: one whose root was
 * removed only makes no more. */
#pragma once

#include "box/zygote.h"
#include "keeper/names.h"

#define ZYGOTES_MAX 64
#define ZYGOTES_UNABLE 16
#define ZYGOTES_ROOT_EMPTY UINT64_MAX /* no name ever has that generation */

struct zygote_entry {
    struct zygote *zygote; /* NULL: unused */
    uint64_t root;         /* generation of its name; 0: the host's; ZYGOTES_ROOT_EMPTY */
    enum box_privileges privileges;
    size_t boxes;
    uint64_t last_used; /* a counter */
    bool is_retired;    /* makes no more boxes */
};

struct zygotes {
    struct zygote_entry table[ZYGOTES_MAX];
    uint64_t uses;
    struct {
        uint64_t root;
        bool is_set;
    } unable[ZYGOTES_UNABLE]; /* roots of which no zygote can make boxes here */
    size_t unable_next;
};

/* The one for boxes like `spec`, started if there is none; its `boxes` are counted by who makes them.
 * NULL where there is none and cannot be one. */
struct zygote_entry *zygotes_find(struct zygotes *zygotes, uint64_t root,
                                  const struct box_spec *spec, struct error *err);

/* It failed: no more boxes of it. */
void zygotes_retire(struct zygote_entry *entry);

/* No zygote can make boxes of this root: their file system cannot be idmapped, say. */
void zygotes_mark_unable(struct zygotes *zygotes, uint64_t root);
bool zygotes_is_unable(const struct zygotes *zygotes, uint64_t root);

/* One of its boxes is gone. */
void zygotes_give(struct zygote_entry *entry);

/* Ends those that nobody needs: of roots that are no more, and retired ones. */
void zygotes_tend(struct zygotes *zygotes, const struct names *names);
void zygotes_close(struct zygotes *zygotes);
