/* The inside of the tools, as cove-tool and cove-grep share it: what is said, places, walks, names of
 * users, options. Built with musl for one and with glibc for the other.
 *
 * A tool is a short-lived program of one thread. Its memory stays small whatever it meets, nothing in it
 * recurses by depth, and below an operand no link is ever followed. */
#pragma once

#include "base/err.h"
#include "base/fd.h"
#include "box/tool/tool.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* ---- options.c ---- */

#define TOOL_GLOBS_MAX 64
#define TOOL_SAID_NOT UINT64_MAX

struct options {
    const char *beneath;
    bool follow, no_follow, recursive, parents, replace, missing_ok;
    bool is_fixed, ignore_case, is_word, is_multiline;
    uint64_t depth, limit, offset, length, mode, before, after_lines, per_file, max_file_bytes;
    uint64_t time_limit_ms, strip, limit_bytes, limit_entries, hidden;
    const char *after, *owner, *name, *value, *pattern, *type;
    const char *globs[TOOL_GLOBS_MAX];
    unsigned globs_count;
    char **operands;
    unsigned operands_count;
};

/* Of argv after the verb; numbers that were not said are TOOL_SAID_NOT. */
int options_parse(int argc, char **argv, struct options *options, struct error *err);

/* ---- say.c: frames out ---- */

struct say {
    int fd;
    size_t used;
    uint64_t flushed_ns;
    uint64_t count, bytes; /* for TOOL_DONE */
    bool is_truncated;
    char data[2 * TOOL_FRAME_MAX];
};

/* What is in an error of ours: `code` may be "", and the text is as tool.h has it. Returns -1. */
int fail(struct error *err, int errnum, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

/* The parts of a frame follow each other: say_begin() with the payload's size, then say_bytes() of as
 * many. The program ends where nobody hears it any more. */
void say_begin(struct say *say, uint32_t type, size_t size);
void say_bytes(struct say *say, const void *data, size_t size);
void say_flush(struct say *say);
/* Flushes if nothing was for a while: for what takes long and says little. */
void say_flush_late(struct say *say);
/* A path that is longer than TOOL_PATH_MAX is cut. */
void say_error(struct say *say, int operand, const char *path, const struct error *err);
void say_done(struct say *say);

struct users;
struct entry {
    uint32_t operand, depth;
    const struct stat *st;
    const char *path, *target; /* target NULL: "" */
};
/* `type`: TOOL_ENTRY or TOOL_WROTE. */
void say_entry(struct say *say, struct users *users, uint32_t type, const struct entry *entry);
/* The frame of TOOL_BEGIN. */
void say_begin_bytes(struct say *say, const struct entry *entry, uint64_t size, uint64_t offset);

/* ---- hear.c: frames in ---- */

struct hear {
    int fd;
    uint64_t left; /* of the payload that was not read yet */
};

/* The head of the next frame, behind what is left of the last one; "input_ended" where there is none. */
int hear_head(struct hear *hear, uint32_t *type, uint32_t *size, struct error *err);
/* Exactly `size` bytes of the payload. */
int hear_bytes(struct hear *hear, void *data, size_t size, struct error *err);
/* Passes over what is left, to the next frame, which is TOOL_DATA: 1; or TOOL_FINISH: 0. */
int hear_data(struct hear *hear, struct error *err);
/* As much of it as one read gives, at most `size`. */
ssize_t hear_some(struct hear *hear, void *data, size_t size, struct error *err);

/* ---- users.c ---- */

/* As of /etc/passwd and /etc/group of the box, which are read once; "" where a number has no name. */
struct users *users_new(void);
const char *users_name(struct users *users, uint32_t uid);
const char *users_group(struct users *users, uint32_t gid);
/* USER, USER:GROUP, :GROUP; names or numbers. UINT32_MAX: not said. */
int users_find(struct users *users, const char *spec, uint32_t *uid, uint32_t *gid,
               struct error *err);
int users_find_group(struct users *users, const char *name, uint32_t *gid); /* -1: there is none */

/* ---- place.c ---- */

/* Where an operand is: a directory that is held open, and a name in it, "." where it is the directory
 * itself. No path is looked up twice. */
struct place {
    int dir;
    char name[TOOL_NAME_MAX];
    bool is_directory_asked; /* the path ended with a slash */
};
#define PLACE_NONE ((struct place){.dir = -1})
#define _cleanup_place_ _cleanup_(place_close)
void place_close(struct place *place);

enum place_flags {
    PLACE_FOLLOW = 1,  /* if it is a symbolic link: the place that it leads to, which may be free */
    PLACE_PARENTS = 2, /* directories that are missing are made */
};

struct places {
    int beneath; /* -1: anywhere */
    const char *prefix;
};
int places_open(struct places *places, const char *beneath, struct error *err);
int place_find(const struct places *places, const char *path, unsigned flags, struct place *place,
               struct error *err);
int place_stat(const struct place *place, struct stat *st, struct error *err);
/* A regular file, and nothing that blocks or acts when it is opened: "not_regular", "is_directory". */
int place_open_file(const struct place *place, int flags, struct stat *st, struct error *err);
/* "not_regular". */
int fail_not_regular(struct error *err);
int place_open_directory(const struct place *place, struct error *err);
/* O_PATH, whatever it is; never through a link. */
int place_open_path(const struct place *place, struct stat *st, struct error *err);
/* Gives the owner of a directory all rights to it, if that is who asks. */
void place_open_up(int dir, const char *name);
/* The link's target, cut to `size`; "" of what is none. */
void place_target(int dir, const char *name, const struct stat *st, char *target, size_t size);
/* "/proc/self/fd/N": for what has no call that takes an O_PATH fd. */
#define FD_PATH_MAX 32
void fd_path(int fd, char path[FD_PATH_MAX]);

/* ---- names.c: a directory in order, in bounded memory ---- */

#define NAMES_BYTES_MAX (4U << 20)

struct names {
    char *data; /* type, name, NUL; again and again */
    uint32_t *at;
    size_t used, capacity, count, slots, next;
    bool is_more; /* there are names behind the last one */
};

/* The first names behind `after` (NULL: from the first on) by bytes, as many as fit: whatever is made or
 * removed meanwhile, a name that stays is found exactly once by one call after the other. */
int names_read(struct names *names, int dir, const char *after, struct error *err);
/* NULL: no further one of this call. *type is of <dirent.h>. */
const char *names_next(struct names *names, uint8_t *type);
void names_free(struct names *names);

/* ---- walk.c ---- */

enum walk_kind {
    WALK_END,
    WALK_ENTRY,  /* something; a directory is entered next, unless walk_skip() */
    WALK_LEAVE,  /* a directory, after all in it */
    WALK_FAILED, /* `error`: of `path`, which is passed over */
};

struct walk_step {
    enum walk_kind kind;
    int dir;           /* the directory it is in */
    const char *name;  /* in that */
    const char *path;  /* for people: the operand, and what is below */
    const char *below; /* of `path`: what is below the operand */
    size_t path_length;
    unsigned depth; /* 1: in the operand itself */
    uint8_t type;   /* of <dirent.h>, never DT_UNKNOWN */
    struct error error;
};

struct walk;
struct walk_options {
    const char *path;  /* how the top is called */
    const char *after; /* below the top, what was the last entry; or NULL */
    unsigned depth_max;
    bool opens_up; /* what its owner may not read is made so: for removal */
};
/* Takes `top`. The top itself is no entry. In order: by bytes in each directory, a directory before
 * what is in it. */
struct walk *walk_new(int top, const struct walk_options *options, struct error *err);
void walk_free(struct walk *walk);
static inline void walk_freep(struct walk **walk)
{
    walk_free(*walk);
}
#define _cleanup_walk_ _cleanup_(walk_freep)
enum walk_kind walk_next(struct walk *walk, struct walk_step *step);
void walk_skip(struct walk *walk);

/* ---- the verbs ---- */

struct tool {
    struct options options;
    struct places places;
    struct users *users;
    const char *at; /* the path that an error of all is about */
    struct hear hear;
    struct say say;
};

/* Returns 0 where TOOL_DONE is due; -1 and `err`: that is the end of all. */
typedef int (*tool_verb)(struct tool *tool, struct error *err);
struct tool_row {
    const char *name;
    unsigned operands_min, operands_max;
    tool_verb run;
};
/* The whole of a program of these verbs; argv[0] is the verb. Returns its exit status. */
int tool_run(const struct tool_row *rows, int argc, char **argv);

/* ---- search.c ---- */

/* Whether it is one that is looked for: of what is below the operand. */
typedef bool (*search_accepts)(void *arg, const char *below);
int verb_list(struct tool *tool, struct error *err);
int search_find(struct tool *tool, search_accepts accepts, void *arg, struct error *err);
int search_globs_check(const struct options *options, struct error *err); /* "bad_pattern" */
uint64_t search_until(const struct options *options);                     /* 0: no limit of time */
bool search_is_hidden(const struct options *options, const char *name);

/* ---- run.c ---- */

/* The entry of a place, as TOOL_ENTRY or TOOL_WROTE. */
int tool_tell(struct tool *tool, uint32_t type, unsigned operand, const char *path,
              const struct place *place, struct error *err);
/* An error of one operand; others may go well. */
void tool_fail(struct tool *tool, unsigned operand, const char *path, const struct error *err);
/* By errno, why an owner could not be given. */
int tool_fail_owner(struct error *err, const char *what);
/* chmod(2) of what is held with O_PATH. */
int tool_chmod(int fd, mode_t mode);
/* A name that nobody has, for what takes its own when it is whole. */
void tool_temporary(char name[TOOL_NAME_MAX]);
