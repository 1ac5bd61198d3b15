/* The hand-over of a process to its next program: values one behind the other in a sealed memfd.
 *
 * One function per struct says what is handed on, and works in both directions, so that what is read
 * cannot be something else than what was written. Every value says its kind and every list its mark;
 * numbers and texts are bounded; an fd is named once, and is open. After the first thing that is wrong
 * nothing more is read, all that is asked for is 0, empty or -1, and hand_end() says what it was. It is
 * never guessed: what cannot be read is not taken over. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Beside the function that hands on a struct: whoever adds a field to that hands it on, or names it there as
 * one that is found anew, and then says its size again. A small one that fits into a gap is not noticed. */
#define HAND_COVERS(type, size) \
    _Static_assert(sizeof(type) == (size), "hand on what is new in " #type " or say why not")

#define HAND_SIZE_MAX (64U << 20)
#define HAND_FDS_MAX (1U << 20)

struct hand {
    bool is_reading;
    bool is_trial; /* of the form alone: no fd is looked at, and none is given out */
    unsigned char *data;
    size_t size, room, at;
    unsigned char *seen; /* a bit per fd */
    const char *wrong;   /* the first thing that is; NULL: none */
    size_t wrong_at;
};

/* To write. `format` is the reader's to know. */
void hand_begin(struct hand *hand, uint32_t format);
/* To read those bytes, which are borrowed. */
void hand_read(struct hand *hand, const void *data, size_t size, uint32_t format);
/* The last value is through: 0, or -1 with what went wrong. Frees all but what was written. */
int hand_end(struct hand *hand, struct error *err);
void hand_free(struct hand *hand);

/* What was written, in a sealed memfd; the fd, or -1. It and all fds in there then outlive execve();
 * hand_keep(false) takes that back. */
int hand_seal(const struct hand *hand, struct error *err);
void hand_keep(const struct hand *hand, int sealed, bool is_kept);

/* Maps what hand_seal() made; -1 for any other fd. */
int hand_open(int fd, const void **data, size_t *size, struct error *err);

/* ---- values ---- */

/* What follows is called so; four letters. */
void hand_mark(struct hand *hand, const char mark[4]);
void hand_u64(struct hand *hand, uint64_t *value, uint64_t most);
void hand_u32(struct hand *hand, uint32_t *value, uint32_t most);
void hand_bool(struct hand *hand, bool *value);
void hand_pid(struct hand *hand, int *pid); /* 0: none */
/* At most `size` - 1 bytes, without a NUL among them. */
void hand_text(struct hand *hand, char *text, size_t size);
/* The same in memory of its own, which is the caller's; NULL is none. */
void hand_string(struct hand *hand, char **text, size_t size);
/* -1, or an open fd, which is close-on-exec again once it is read. */
void hand_fd(struct hand *hand, int *fd);
bool hand_is_sound(const struct hand *hand);
/* Whoever reads finds something wrong that is not the form. */
void hand_fault(struct hand *hand, const char *what);
