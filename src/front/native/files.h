/* What the files files*.c of this room share: a call on files as a request, its paths, how an entry looks.
 *
 * A call is its job's own: it goes with the answer, and with it the tool. So each `take` either says that
 * more may come, or answers and touches the call no more. */
#pragma once

#include "engine/files.h"
#include "front/native/parts.h"
#include "front/native/read.h"

#define FILES_LIST_DEFAULT 1000
#define FILES_LIST_MAX 10000
#define FILES_SEARCH_MS 10000
#define FILES_SEARCH_MAX_MS 60000
#define FILES_PLAIN_MS 120000 /* for what moves no bytes; a tool that somebody holds up is ended */
#define FILES_KEPT_MAX (4U << 20)   /* of a page, or what else is gathered */
#define FILES_GATHER_MAX (8U << 20) /* the same, of one thing for each of FILES_PATHS_MAX paths */
#define FILES_ERRORS_MAX 100        /* of what is below one path, in one answer */

enum call_next {
    CALL_ON,   /* the next one */
    CALL_HOLD, /* enough for now: call_pump() goes on */
    CALL_GONE, /* answered */
};

struct call {
    struct stream stream; /* first; in use if `is_stream` */
    struct job *job;
    struct files *files;
    enum call_next (*take)(struct call *call, const struct files_item *item);
    void (*room)(struct call *call); /* of those that send */
    void (*free_more)(void *own);
    const char *list_name; /* of what is gathered; NULL: "entries" */
    bool is_stream;
    bool has_cursor;
    bool is_many;      /* several operands: the answer has one thing for each */
    bool in_utf16;     /* where a match is, is said in these units, too */
    struct out kept;   /* what is gathered until all is there */
    struct hold hold;  /* of that */
    struct out errors; /* the same, of what is below the one operand */
    size_t errors_count;
    char *operand; /* the first, as it was asked for; NULL: there is none */
    size_t count;
    struct read_owner owner;   /* of the texts of the body */
    char path[FILES_PATH_MAX]; /* of the query */
    char last[FILES_PATH_MAX]; /* FILES_LIST: the cursor */
    uint64_t limit;
};

/* NULL, and it is answered. `size` is that of the caller's struct, which begins with a struct call. */
void *call_new(struct job *job, size_t size);
/* Runs the tool: `take` follows later; false: it is answered. */
bool call_begin(struct call *call, const struct files_spec *spec,
                enum call_next (*take)(struct call *call, const struct files_item *item));
void call_pump(struct call *call);
/* After more was gathered: false where the tenant's share has no room for it. */
bool call_keeps(struct call *call);
/* From now on the answer is lines; false: that was all, for only its header was asked for. */
bool call_stream(struct call *call, const char *content_type);
/* Sends what was printed; call_pump() goes on where that was too much. */
enum call_next call_send(struct call *call);
void call_finish(struct call *call); /* of a stream: complete */
void call_abort(struct call *call);
void call_problem(struct call *call, const struct error *err);
void call_answer(struct call *call); /* what was gathered, as JSON */

/* Whether it is the one path that was asked for that failed, and not something below it. */
bool call_is_its_own(const struct call *call, const struct files_item *item);

/* Gathers one thing for each operand, or the one there is; the answer at the end. */
enum call_next call_gather(struct call *call, const struct files_item *item);

/* ---- paths ---- */

/* "path" or "path_base64" of the query; `fallback` NULL: it is needed. */
int files_query_path(struct call *call, const char *fallback, struct error *err);
/* "0644": permissions, and what stands above them. */
bool files_mode(const char *text, uint64_t *mode);
/* What a body says of a path. */
struct files_path {
    const char *text;
    struct read_bytes bytes;
};
int files_body_path(const char *field, const struct files_path *path, struct read_owner *owner,
                    const char **out, struct error *err);
int files_paths_check(const char *const *paths, struct error *err);
/* Its bytes as they are named in an answer: text, and base64 where that is not all. */
void files_print_path(struct out *out, const char *key, const char *path);

/* ---- answers ---- */

void files_print_entry(struct out *out, const char *key, const struct files_entry *entry);
void files_print_fields(struct out *out, const struct files_entry *entry);
void files_print_error(struct out *out, const struct error *err);
