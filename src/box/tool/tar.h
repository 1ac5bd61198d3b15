/* Archives: ustar with pax extensions, and GNU's long names, as a stream.
 *
 * The reader takes what GNU tar, bsdtar and Python write, and refuses by name what it cannot keep: it never
 * guesses. Nothing here touches a file. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK 512
#define TAR_PATH_MAX (32U << 10)      /* with its NUL */
#define TAR_EXTENDED_MAX (256U << 10) /* of one pax header */
#define TAR_ATTRIBUTES_MAX 64
#define TAR_NAME_SIZE 64 /* of a user or a group */

enum tar_type {
    TAR_FILE = '0',
    TAR_HARD_LINK = '1',
    TAR_SYMLINK = '2',
    TAR_CHARACTER = '3',
    TAR_BLOCK_DEVICE = '4',
    TAR_DIRECTORY = '5',
    TAR_FIFO = '6',
};

struct tar_attribute {
    const char *name;
    const char *value;
    size_t size;
};

struct tar_entry {
    enum tar_type type;
    uint32_t mode; /* 07777 at most */
    uint64_t uid, gid, size;
    int64_t modified_s;
    uint32_t modified_ns;
    char user[TAR_NAME_SIZE], group[TAR_NAME_SIZE];
    char *path, *target;
    struct tar_attribute attributes[TAR_ATTRIBUTES_MAX];
    size_t attributes_count;
};

/* What stands in a block of its own before each entry. */
struct tar_raw {
    char name[100], mode[8], uid[8], gid[8], size[12], modified[12], sum[8], type, target[100];
    char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct tar_raw) == TAR_BLOCK, "a header is a block");

/* ---- tar_read.c ---- */

/* Exactly `size` bytes, or -1 and `err`; 1: the input has ended, at its first byte. */
typedef int (*tar_source)(void *arg, void *data, size_t size, struct error *err);

struct tar_reader {
    tar_source source;
    void *arg;
    uint64_t left; /* of the entry's data: whoever takes of them counts down */
    uint32_t padding;
    struct tar_entry entry;
    char path[TAR_PATH_MAX], target[TAR_PATH_MAX];
    bool has_path, has_target; /* of a header before the entry's own */
    char extended[TAR_EXTENDED_MAX + 1];
};

void tar_begin(struct tar_reader *reader, tar_source source, void *arg);
/* 1: `entry` is the next one, until the call after it. 0: the archive's end. -1: "bad_archive", or what
 * the source said. */
int tar_next(struct tar_reader *reader, struct error *err);

/* ---- tar_write.c ---- */

/* What stands before the data of an entry, in blocks; how many bytes, or -1 where it cannot be said. */
#define TAR_HEADER_MAX (TAR_EXTENDED_MAX + 3 * TAR_BLOCK)
int tar_header(const struct tar_entry *entry, char header[TAR_HEADER_MAX], struct error *err);
