/* What copy, move and tar share: copying what one place holds to another, removing what came to nothing,
 * and what is known of files with several names. */
#pragma once

#include "box/tool/parts.h"

/* ---- remove.c ---- */

struct remove_told {
    bool is_recursive;
    uint64_t *count;
    uint64_t *bytes;   /* of files that had no other name; NULL: nobody wants to know */
    struct tool *tool; /* hears of each thing that stays; or NULL */
    unsigned operand;
};
int remove_place(const struct place *place, const char *path, const struct remove_told *told,
                 struct error *err);

/* ---- links.c: which file was met under which name; bounded, so that some may be forgotten ---- */

struct links;
struct links *links_new(void);
void links_free(struct links *links);
/* The path that it was met under, or NULL; then it is known from now on by `path`. */
const char *links_meet(struct links *links, const struct stat *st, const char *path);

/* ---- copy.c ---- */

/* Modes that the box does not let a file have lose their set-id bits. */
int copy_set_mode(int fd, mode_t mode);

/* A file, link, FIFO or, if `is_recursive`, tree, with modes, times, attributes, holes and, as far as it may,
 * owners. What is made under a temporary name takes its own when it is whole; `replaces` what is there. */
struct copy_how {
    struct tool *tool; /* count and bytes */
    const char *path;  /* of the source, for people */
    bool is_recursive, replaces;
};
int copy_place(const struct place *from, const struct place *to, const struct copy_how *how,
               struct error *err);
/* Renames, over what is there if it `replaces`. */
int copy_rename(const struct place *from, const struct place *to, bool replaces);
