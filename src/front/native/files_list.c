/* What is there: one entry, a directory, a search for names, a search for text. A list without end goes out
 * as lines, as fast as its reader takes them; a page is gathered first.
 *
 * A stream's header goes out with the first thing that is found: what fails before is a problem with a
 * status of its own, what fails later is said in the last line. */
#include "base/base64.h"
#include "base/utf8.h"
#include "front/native/body.h"
#include "front/native/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NDJSON "application/x-ndjson"
#define GLOBS_MAX 64       /* of a body */
#define QUERY_GLOBS_MAX 48 /* a query has 64 parts */
#define LINES_MAX 100      /* of context, on each side */

/* ---- one entry ---- */

HANDLER(files_stat)
{
    static const char *const known[] = {"path", "path_base64", "follow", "user", NULL};
    struct job *job = job_begin_for(request, ENGINE_FILES_READ);
    const char *paths[2] = {NULL};
    struct files_spec spec = files_spec(FILES_STAT, paths);
    struct call *call;
    struct error err;

    (void)data;
    if (job == NULL || !job_query(job, known))
        return;
    call = call_new(job, sizeof(*call));
    if (call == NULL)
        return;
    paths[0] = call->path;
    spec.user = http_query(request, "user");
    spec.timeout_ms = FILES_PLAIN_MS;
    if (files_query_path(call, NULL, &err) < 0 ||
        job_query_flag(job, "follow", &spec.follow, &err) < 0)
        job_problem(job, &err);
    else
        (void)call_begin(call, &spec, call_gather);
}

/* ---- what is found, as JSON ---- */

static void print_cut_text(struct out *out, const char *key, const void *text, size_t size)
{
    char name[32];

    out_quote(out, key);
    out_quoted(out, text, size);
    out_quote_end(out);
    if (utf8_is_valid(text, size))
        return;
    (void)snprintf(name, sizeof(name), "%s_base64", key);
    out_quote(out, name);
    out_quoted_base64(out, text, size);
    out_quote_end(out);
}

static void print_match(struct out *out, const struct files_item *item, bool in_utf16)
{
    bool is_match = !item->match.is_context;

    out_object(out, NULL);
    out_text(out, "type", is_match ? "match" : "context");
    files_print_path(out, "path", item->path);
    if (item->match.line > 0)
        out_number(out, "line", item->match.line);
    out_number(out, "offset", item->match.offset);
    if (is_match) {
        out_number(out, "column", item->match.column);
        out_number(out, "length", item->match.length);
    }
    if (is_match && in_utf16) {
        out_number(out, "column_utf16", item->match.column16);
        out_number(out, "length_utf16", item->match.length16);
    }
    print_cut_text(out, "text", item->match.text, item->match.size);
    if (item->match.is_cut)
        out_bool(out, "is_cut", true);
    out_object_end(out);
}

static void print_failed(struct out *out, const struct files_item *item)
{
    out_object(out, NULL);
    out_text(out, "type", "error");
    files_print_path(out, "path", item->path);
    files_print_error(out, &item->error);
    out_object_end(out);
}

static void print_item(struct out *out, const struct call *call, const struct files_item *item)
{
    if (item->kind == FILES_MATCH)
        print_match(out, item, call->in_utf16);
    else if (item->kind == FILES_FAILED)
        print_failed(out, item);
    else
        files_print_entry(out, NULL, &item->entry);
}

/* Why there may be more; NULL: that was all. */
static const char *why_truncated(const struct call *call, const struct files_item *item)
{
    if (!item->end.is_truncated)
        return NULL;
    return call->count >= call->limit ? "limit" : "timeout";
}

static void print_end(struct out *out, const struct call *call, const struct files_item *item)
{
    const char *reason = why_truncated(call, item);

    out_number(out, "count", call->count);
    out_bool(out, "truncated", reason != NULL);
    out_text_or_none(out, "reason", reason);
}

static bool counts(const struct files_item *item)
{
    return item->kind == FILES_ENTRY || (item->kind == FILES_MATCH && !item->match.is_context);
}

/* ---- as lines ---- */

static enum call_next end_lines(struct call *call, const struct files_item *item)
{
    struct out *out = job_out(call->job);

    out_object(out, NULL);
    if (item->error.code[0] != '\0') {
        out_text(out, "type", "failed");
        files_print_error(out, &item->error);
    } else {
        out_text(out, "type", "done");
        print_end(out, call, item);
    }
    out_object_end(out);
    out_raw(out, "\n", 1);
    (void)stream_send(&call->stream);
    call_finish(call);
    return CALL_GONE;
}

/* Before anything was found, what fails is the answer. */
static bool is_all_failed(const struct call *call, const struct files_item *item)
{
    return !call->is_stream && item->error.code[0] != '\0' &&
           (item->kind == FILES_END || call_is_its_own(call, item));
}

static enum call_next take_line(struct call *call, const struct files_item *item)
{
    struct out *out;

    if (is_all_failed(call, item)) {
        call_problem(call, &item->error);
        return CALL_GONE;
    }
    if (!call->is_stream && !call_stream(call, NDJSON))
        return CALL_GONE;
    if (item->kind == FILES_END)
        return end_lines(call, item);
    call->count += counts(item);
    out = job_out(call->job);
    print_item(out, call, item);
    out_raw(out, "\n", 1);
    return call_send(call);
}

/* ---- as one answer ---- */

static void keep_last(struct call *call, const struct files_item *item)
{
    if (item->kind == FILES_ENTRY)
        memcpy(call->last, item->entry.path, strlen(item->entry.path) + 1);
}

static void print_cursor(struct call *call, struct out *out, bool has_more)
{
    if (!has_more) {
        out_null(out, "next");
        return;
    }
    out_quote(out, "next");
    out_quoted_base64(out, call->last, strlen(call->last));
    out_quote_end(out);
}

static enum call_next end_page(struct call *call, const struct files_item *item)
{
    struct out *out = &call->kept;

    if (item->error.code[0] != '\0') {
        call_problem(call, &item->error);
        return CALL_GONE;
    }
    if (call->count == 0 && out->used == 0) {
        out_object(out, NULL);
        out_array(out, call->list_name);
    }
    out_array_end(out);
    if (strcmp(call->list_name, "entries") == 0 && call->has_cursor)
        print_cursor(call, out, item->end.is_truncated);
    else
        print_end(out, call, item);
    out_object_end(out);
    call_answer(call);
    return CALL_GONE;
}

/* A page ends early, with a cursor for what follows; what has none must be asked for as a stream. */
static enum call_next end_full(struct call *call)
{
    const struct files_item rest = {.kind = FILES_END, .end.is_truncated = true};

    if (call->has_cursor && call->last[0] != '\0')
        return end_page(call, &rest);
    job_fail(call->job, "too_many_files",
             "the answer is larger than %u MiB; ask for less, or for a stream",
             FILES_KEPT_MAX >> 20);
    return CALL_GONE;
}

static enum call_next take_page(struct call *call, const struct files_item *item)
{
    struct out *out = &call->kept;

    if (item->kind == FILES_END)
        return end_page(call, item);
    if (out->used > FILES_KEPT_MAX)
        return end_full(call);
    if (call->count == 0 && call_is_its_own(call, item)) {
        call_problem(call, &item->error);
        return CALL_GONE;
    }
    if (out->used == 0) {
        out_object(out, NULL);
        out_array(out, call->list_name);
    }
    call->count += counts(item);
    keep_last(call, item);
    print_item(out, call, item);
    if (call_keeps(call))
        return CALL_ON;
    job_fail_kept(call->job);
    return CALL_GONE;
}

/* ---- a directory ---- */

static bool wants_lines(const struct http_request *request)
{
    const char *accept = http_header(request, "Accept");

    return accept != NULL && strstr(accept, NDJSON) != NULL;
}

/* The cursor is the last path of the page before, which may be any bytes. */
static int read_cursor(struct call *call, struct error *err)
{
    const char *text = http_query(call->job->request, "cursor");
    char decoded[BASE64_SIZE(FILES_PATH_MAX) + 4];
    size_t size = text != NULL ? strlen(text) : 0;
    ptrdiff_t got;

    if (text == NULL)
        return 0;
    got = size <= BASE64_SIZE(FILES_PATH_MAX - 1) ? base64_decode(text, size, decoded) : -1;
    if (got <= 0 || got >= FILES_PATH_MAX || memchr(decoded, '\0', (size_t)got) != NULL)
        return error_set(err, "bad_request", 0,
                         "query parameter \"cursor\" must be the \"next\" of an earlier answer");
    memcpy(call->last, decoded, (size_t)got);
    call->last[got] = '\0';
    return 0;
}

static int read_list(struct call *call, struct files_spec *spec, struct error *err)
{
    const struct job *job = call->job;
    bool hidden = true;

    spec->depth = 1;
    spec->user = http_query(job->request, "user");
    if (files_query_path(call, ".", err) < 0 || read_cursor(call, err) < 0 ||
        job_query_count(job, "depth", 0, 4096, &spec->depth, err) < 0 ||
        job_query_count(job, "limit", 1, FILES_NOT_SAID - 1, &call->limit, err) < 0 ||
        job_query_flag(job, "hidden", &hidden, err) < 0)
        return -1;
    if (!call->is_many && call->limit != FILES_NOT_SAID && call->limit > FILES_LIST_MAX)
        return error_set(err, "bad_request", 0,
                         "query parameter \"limit\" must be at most %d; a stream (Accept: " NDJSON
                         ") has no limit",
                         FILES_LIST_MAX);
    spec->hides = !hidden;
    spec->limit = call->limit;
    spec->after = call->last[0] != '\0' ? call->last : NULL;
    return 0;
}

HANDLER(files_list)
{
    static const char *const known[] = {"path", "path_base64", "depth", "limit", "cursor",
                                        "glob", "hidden",      "user",  NULL};
    struct job *job = job_begin_for(request, ENGINE_FILES_READ);
    bool is_stream = wants_lines(request);
    const char *paths[2] = {NULL}, *globs[QUERY_GLOBS_MAX + 1] = {NULL}, *name, *value;
    struct files_spec spec = files_spec(FILES_LIST, paths);
    struct call *call;
    struct error err;
    size_t count = 0;

    (void)data;
    if (job == NULL || !job_query_many(job, known, "glob"))
        return;
    call = call_new(job, sizeof(*call));
    if (call == NULL)
        return;
    for (size_t i = 0; http_query_at(request, i, &name, &value); i++)
        if (strcmp(name, "glob") == 0 && count++ < QUERY_GLOBS_MAX)
            globs[count - 1] = value;
    if (count > QUERY_GLOBS_MAX) {
        job_fail(job, "bad_request", "query parameter \"glob\" may be there %d times",
                 QUERY_GLOBS_MAX);
        return;
    }
    paths[0] = call->path;
    spec.globs = globs;
    call->limit = is_stream ? FILES_NOT_SAID : FILES_LIST_DEFAULT;
    call->list_name = "entries";
    call->has_cursor = true;
    if (read_list(call, &spec, &err) < 0)
        job_problem(job, &err);
    else
        (void)call_begin(call, &spec, is_stream ? take_line : take_page);
}

/* ---- searches ---- */

struct search_text {
    struct files_path path;
    const char *const *paths, *const *globs;
    const char *user, *pattern;
    int type;
    bool hidden, is_fixed, ignore_case, is_word, is_multiline, in_utf16, stream;
    uint64_t depth, limit, time_limit_ms, before, after, per_file, max_file_bytes;
};

#define AT(member) .at = offsetof(struct search_text, member)
#define COUNT(name_, member, low_, high_)                                               \
    {                                                                                   \
        .name = (name_), .kind = READ_COUNT, AT(member), .low = (low_), .high = (high_) \
    }
#define SHARED                                                                                   \
    {.name = "path", .kind = READ_TEXT, AT(path.text), .low = 1, .high = FILES_PATH_MAX},        \
        {.name = "path_base64", .kind = READ_BYTES, AT(path.bytes)},                             \
        {.name = "paths", .kind = READ_TEXTS, AT(paths), .low = 1, .high = FILES_PATHS_MAX},     \
        {.name = "globs", .kind = READ_TEXTS, AT(globs), .high = GLOBS_MAX},                     \
        {.name = "user", .kind = READ_LINE, AT(user), .low = 1, .high = 256},                    \
        {.name = "hidden", .kind = READ_BOOL, AT(hidden)},                                       \
        {.name = "stream", .kind = READ_BOOL, AT(stream)}, COUNT("limit", limit, 1, 1000000000), \
        COUNT("time_limit_ms", time_limit_ms, 1, FILES_SEARCH_MAX_MS)

static const char *const types[] = {"any", "file", "directory", "symlink", NULL};
static const char *const type_letters[] = {NULL, "f", "d", "l"};

static const struct read_field find_fields[] = {
    SHARED,
    COUNT("depth", depth, 0, 4096),
    {.name = "type", .kind = READ_WORD, AT(type), .words = types},
    {.name = "pattern", .kind = READ_TEXT, AT(pattern), .low = 1, .high = 4096},
    {.name = NULL},
};

static const struct read_field grep_fields[] = {
    SHARED,
    {.name = "pattern", .kind = READ_TEXT, AT(pattern), .low = 1, .high = 65536, .is_needed = true},
    {.name = "fixed", .kind = READ_BOOL, AT(is_fixed)},
    {.name = "ignore_case", .kind = READ_BOOL, AT(ignore_case)},
    {.name = "word", .kind = READ_BOOL, AT(is_word)},
    {.name = "multiline", .kind = READ_BOOL, AT(is_multiline)},
    {.name = "utf16", .kind = READ_BOOL, AT(in_utf16)},
    COUNT("before", before, 0, LINES_MAX),
    COUNT("after", after, 0, LINES_MAX),
    COUNT("per_file", per_file, 1, 1000000000),
    COUNT("max_file_bytes", max_file_bytes, 1, INT64_MAX),
    {.name = NULL},
};

static void search_spec(const struct search_text *text, struct files_spec *spec)
{
    spec->user = text->user;
    spec->pattern = text->pattern;
    spec->globs = text->globs;
    spec->type = type_letters[text->type];
    spec->hides = !text->hidden;
    spec->is_fixed = text->is_fixed;
    spec->ignore_case = text->ignore_case;
    spec->is_word = text->is_word;
    spec->is_multiline = text->is_multiline;
    spec->depth = text->depth;
    spec->limit = text->limit;
    spec->time_limit_ms = text->time_limit_ms;
    spec->before = text->before;
    spec->after_lines = text->after;
    spec->per_file = text->per_file;
    spec->max_file_bytes = text->max_file_bytes;
    /* Its own clock ends it; this is for one that somebody holds up. */
    spec->timeout_ms = text->time_limit_ms + 10000;
}

static int search_paths(struct call *call, struct search_text *text, const char *single[2],
                        struct files_spec *spec, struct error *err)
{
    spec->paths = single;
    if (text->paths == NULL && text->path.text == NULL && text->path.bytes.data == NULL)
        text->path.text = ".";
    if (text->paths == NULL)
        return files_body_path("path", &text->path, &call->owner, &single[0], err);
    if (text->path.text != NULL || text->path.bytes.data != NULL)
        return error_set(err, "bad_request", 0, "fields \"path\" and \"paths\" exclude each other");
    spec->paths = text->paths;
    call->is_many = text->paths[0] != NULL && text->paths[1] != NULL;
    return files_paths_check(text->paths, err);
}

static void search(struct http_request *request, enum files_verb verb,
                   const struct read_field *fields, const char *list_name)
{
    static const char *const no_query[] = {NULL};
    struct job *job = job_begin_for(request, ENGINE_FILES_READ);
    struct search_text text = {.hidden = true,
                               .stream = true,
                               .limit = FILES_LIST_DEFAULT,
                               .time_limit_ms = FILES_SEARCH_MS,
                               .depth = FILES_NOT_SAID,
                               .before = FILES_NOT_SAID,
                               .after = FILES_NOT_SAID,
                               .per_file = FILES_NOT_SAID,
                               .max_file_bytes = FILES_NOT_SAID};
    const char *single[2] = {NULL};
    struct files_spec spec = files_spec(verb, NULL);
    struct call *call;
    struct error err;

    if (job == NULL || !job_query(job, no_query) || !job_once(job, false))
        return;
    call = call_new(job, sizeof(*call));
    if (call == NULL)
        return;
    if (read_object("a search", job_body(job), false, fields, &text, &call->owner, &err) < 0 ||
        search_paths(call, &text, single, &spec, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    http_body_done(request);
    search_spec(&text, &spec);
    call->limit = text.limit;
    call->list_name = list_name;
    call->in_utf16 = text.in_utf16;
    (void)call_begin(call, &spec, text.stream ? take_line : take_page);
}

HANDLER(files_find)
{
    (void)data;
    search(request, FILES_FIND, find_fields, "entries");
}

HANDLER(files_grep)
{
    (void)data;
    search(request, FILES_GREP, grep_fields, "matches");
}
