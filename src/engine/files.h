/* Files of a sandbox: each verb is a tool that runs in its box (box/tool/tool.h), so that no path, link
 * or race in there leads out; here its frames are parsed, as hostile, and its bytes are moved. No word of
 * HTTP.
 *
 * A call is pulled: `news` says that something can be taken, files_next() takes it, and who does not take
 * holds the tool back. Bytes of files never pass through our memory on their way out: they lie in a pipe
 * of ours. A stopped sandbox that keeps its disk gets a box for it, quietly: see quiet.c. */
#pragma once

#include "engine/engine.h"

#define FILES_PATHS_MAX 10000         /* of one call */
#define FILES_PATH_MAX 4096           /* with its NUL */
#define FILES_TAR_ENTRIES_MAX 1000000 /* that one archive unpacks */
#define FILES_TAR_BYTES_MAX 1099511627776
#define FILES_NOT_SAID UINT64_MAX

struct files;

enum files_verb {
    FILES_STAT,
    FILES_LIST,
    FILES_READ,
    FILES_WRITE,
    FILES_MKDIR,
    FILES_MOVE,
    FILES_COPY,
    FILES_REMOVE,
    FILES_CHMOD,
    FILES_CHOWN,
    FILES_SYMLINK,
    FILES_GETXATTR,
    FILES_SETXATTR,
    FILES_REMOVEXATTR,
    FILES_TAR_OUT,
    FILES_TAR_IN,
    FILES_WATCH,
    FILES_FIND,
    FILES_GREP,
};
#define FILES_VERBS (FILES_GREP + 1)

/* Only what the verb has of these counts; numbers are FILES_NOT_SAID and pointers NULL where nothing was
 * said. files_spec() makes one in which nothing is. Borrowed for the length of the call. */
struct files_spec {
    enum files_verb verb;
    const char *const *paths; /* operands, NULL-terminated; of FILES_SYMLINK target and path */
    const char *user;         /* NULL: the sandbox's */
    uint64_t timeout_ms;      /* 0: none; then the error "timeout" */
    bool follow, no_follow, recursive, parents, replace, missing_ok;
    bool is_fixed, ignore_case, is_word, is_multiline;
    bool hides; /* names that begin with a dot are passed over */
    uint64_t depth, limit, offset, length, mode, before, after_lines, per_file, max_file_bytes;
    uint64_t time_limit_ms, strip;
    const char *after; /* a path: what comes behind it in order */
    const char *owner, *name, *pattern, *type;
    const char *const *globs;
    const void *value; /* FILES_SETXATTR */
    size_t value_size;
};
struct files_spec files_spec(enum files_verb verb, const char *const *paths);

/* ---- what comes ---- */

enum files_kind {
    FILES_ENTRY,     /* `entry` */
    FILES_WROTE,     /* `entry`: a file stands where it should */
    FILES_FAILED,    /* `operand`, `path`, `error`: that one could not be done, others may */
    FILES_BEGIN,     /* `begin`: bytes follow */
    FILES_BYTES,     /* `bytes`: until the next files_next() they are the taker's */
    FILES_MATCH,     /* `match` */
    FILES_CHANGE,    /* `change` */
    FILES_ATTRIBUTE, /* `attribute` */
    FILES_GONE, /* `path`, `operand`, `end`: that one is there no more, and so much went with it */
    FILES_END,  /* `end`; or `error`, if its code is not "" */
};

struct files_entry {
    uint32_t operand, mode, uid, gid, depth;
    uint64_t size, inode, links;
    int64_t modified_ns, changed_ns, accessed_ns;
    const char *path, *target, *user, *group; /* target "" of what is no link */
};

struct files_item {
    enum files_kind kind;
    struct error error;       /* FILES_FAILED, FILES_END */
    const char *path;         /* FILES_FAILED, FILES_MATCH, FILES_CHANGE, FILES_GONE */
    uint32_t operand;         /* FILES_FAILED, FILES_GONE */
    struct files_entry entry; /* FILES_ENTRY, FILES_WROTE, FILES_BEGIN */
    union {
        struct {
            uint64_t size; /* UINT64_MAX: nobody knows */
            uint64_t offset;
        } begin;
        struct {
            int pipe; /* nobody else has it */
            size_t size;
        } bytes;
        struct {
            uint64_t line, offset;
            uint32_t column, length, column16, length16;
            bool is_cut, is_context;
            const char *text;
            size_t size;
        } match;
        struct {
            uint64_t sequence;
            uint32_t kind; /* enum tool_change_kind */
            bool is_directory;
            const char *to; /* where it moved, or "" */
        } change;
        struct {
            const char *name;
            const void *value;
            size_t size;
        } attribute;
        struct {
            uint64_t count, bytes;
            bool is_truncated;
        } end;
    };
};

/* ---- a call ----
 *
 * Codes of errors: those of engine_procs() and procs_tool(), file_not_found, file_forbidden,
 * not_a_directory, is_a_directory, not_regular, file_exists, directory_not_empty, name_too_long,
 * disk_full, file_busy, file_failed, bad_archive, bad_pattern, timeout; sandbox_failed where a tool said
 * what no tool of ours says. */

struct files_calls {
    void (*news)(
        void *arg); /* files_next() has something; not called again before it had nothing */
    void (*room)(void *arg); /* what was put is on its way: more may be put */
    /* Its place went to another, as its client took or gave nothing for long, or as it was left: nothing more
     * comes but files_close(), of which this is the time. */
    void (*evicted)(void *arg, const struct error *err);
};

/* NULL, and `err`: nothing was begun. Neither call comes from within this or another verb. */
struct files *engine_files(struct engine *engine, const struct engine_caller *caller,
                           const char *sandbox, const struct files_spec *spec,
                           const struct files_calls *calls, void *arg, struct error *err);

/* The next one; texts last until the call after it. False: there is nothing now. FILES_END is the last. */
bool files_next(struct files *files, struct files_item *item);

/* Nobody reads it for now: it is the first whose place goes to another. */
void files_leave(struct files *files, bool is_left);
/* Who takes all that comes and keeps it for a reader: the reader takes nothing now. */
void files_hold(struct files *files, bool is_held);

/* At any time: what still runs is killed, and no call comes any more. */
void files_close(struct files *files);

/* ---- input, of FILES_WRITE, FILES_TAR_IN; all are taken, but after `false` more only at `room` ---- */

enum files_target_flags {
    FILES_PARENTS = 1, /* missing directories are made */
    FILES_AT = 2,      /* in place, from `offset` on; else the file is replaced as a whole */
    FILES_APPEND = 4,
    FILES_NEW = 8,
};

struct files_target {
    const char *path;
    uint64_t mode, uid, gid; /* FILES_NOT_SAID: as it was, or usual */
    unsigned flags;
    uint64_t offset, size; /* size: FILES_NOT_SAID where nobody knows */
};

bool files_put_target(struct files *files, const struct files_target *target);
bool files_put_data(struct files *files, const void *data, size_t size);
bool files_put_commit(struct files *files); /* without it the target stays as it was */
bool files_put_finish(struct files *files); /* no more input */
