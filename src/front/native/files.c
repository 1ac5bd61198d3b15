/* Calls on files: see files.h. What comes from a tool is printed here as text that is UTF-8 whatever the
 * names in the box are, and a problem's `detail` says which path it is about. */
#include "front/native/files.h"

#include "base/base64.h"
#include "base/utf8.h"
#include "front/native/problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- a call ---- */

/* Of what a call gathers: so little is charged to nobody, and more in steps. */
#define KEPT_FREE ((size_t)64 << 10)
#define KEPT_STEP ((size_t)256 << 10)

static void call_free(void *own)
{
    struct call *call = own;

    files_close(call->files);
    if (call->free_more != NULL)
        call->free_more(call);
    read_free(&call->owner);
    (void)native_keeps(call->job->native, &call->hold, 0);
    out_free(&call->kept);
    out_free(&call->errors);
    free(call->operand);
    free(call);
}

void *call_new(struct job *job, size_t size)
{
    struct call *call = job_own(job, size, call_free);

    if (call != NULL) {
        call->job = job;
        call->hold.tenant = job->caller.tenant;
    }
    return call;
}

static void leave(struct call *call)
{
    if (call->is_stream)
        stream_remove(&call->stream);
    call->is_stream = false;
    job_on_drain(call->job, NULL);
}

void call_abort(struct call *call)
{
    leave(call);
    job_abort(call->job);
}

static void gone(void *arg)
{
    call_abort(arg);
}

void call_problem(struct call *call, const struct error *err)
{
    if (call->is_stream)
        call_abort(call);
    else
        job_problem(call->job, err);
}

void call_answer(struct call *call)
{
    struct out *out;

    if (call->kept.has_failed) {
        job_fail(call->job, "capacity", "there is no memory for the answer now; ask for less");
        return;
    }
    out = job_out(call->job);
    out_raw(out, call->kept.data, call->kept.used);
    job_answer(call->job, 200);
}

void call_pump(struct call *call)
{
    struct files_item item;

    while (files_next(call->files, &item))
        if (call->take(call, &item) != CALL_ON)
            return;
}

static void news(void *arg)
{
    struct call *call = arg;

    if (!call->is_stream || (!call->stream.is_full && !call->stream.wants_turn))
        call_pump(call);
}

static void room(void *arg)
{
    struct call *call = arg;

    if (call->room != NULL)
        call->room(call);
}

/* Who has an answer already is cut off; who sends still is told why. */
static void evicted(void *arg, const struct error *err)
{
    struct call *call = arg;

    if (call->room == NULL)
        call_abort(call);
    else
        call_problem(call, err);
}

bool call_begin(struct call *call, const struct files_spec *spec,
                enum call_next (*take)(struct call *call, const struct files_item *item))
{
    static const struct files_calls calls = {.news = news, .room = room, .evicted = evicted};
    struct job *job = call->job;
    struct error err;

    files_close(call->files);
    call->take = take;
    free(call->operand);
    call->operand = spec->paths != NULL && spec->paths[0] != NULL ? strdup(spec->paths[0]) : NULL;
    call->files = engine_files(job->native->options.engine, &job->caller,
                               http_param(job->request, "id"), spec, &calls, call, &err);
    if (call->files == NULL) {
        job_problem(job, &err);
        return false;
    }
    http_on_gone(job->request, gone, call);
    return true;
}

/* ---- lines ---- */

static void more(struct stream *stream)
{
    call_pump((struct call *)stream);
}

bool call_stream(struct call *call, const char *content_type)
{
    if (!job_stream(call->job, content_type))
        return false;
    stream_add(&call->stream, call->job, true, more);
    call->is_stream = true;
    return true;
}

enum call_next call_send(struct call *call)
{
    return stream_send(&call->stream) ? CALL_ON : CALL_HOLD;
}

void call_finish(struct call *call)
{
    struct http_request *request = call->job->request;

    leave(call);
    http_finish(request);
}

/* ---- gathered ---- */

bool call_is_its_own(const struct call *call, const struct files_item *item)
{
    return item->kind == FILES_FAILED && !call->is_many &&
           (call->operand == NULL || strcmp(item->path, call->operand) == 0);
}

static void print_failed(struct out *out, const struct files_item *item)
{
    out_object(out, NULL);
    files_print_path(out, "path", item->path);
    files_print_error(out, &item->error);
    out_object_end(out);
}

static void print_gone(struct out *out, const struct files_item *item)
{
    out_object(out, NULL);
    files_print_path(out, "path", item->path);
    out_number(out, "count", item->end.count);
    out_number(out, "bytes", item->end.bytes);
    out_object_end(out);
}

static void end_one(struct call *call, const struct files_item *item)
{
    struct out *out = &call->kept;

    if (out->used == 0) {
        out_object(out, NULL);
        out_number(out, "count", item->end.count);
        out_number(out, "bytes", item->end.bytes);
    }
    if (call->errors_count > 0) {
        out_array(out, "errors");
        out_raw(out, call->errors.data, call->errors.used);
        out_array_end(out);
        out_number(out, "errors_count", call->errors_count);
        out->has_failed |= call->errors.has_failed;
    }
    out_object_end(out);
}

static void gather_end(struct call *call, const struct files_item *item)
{
    if (item->error.code[0] != '\0') {
        call_problem(call, &item->error);
        return;
    }
    if (call->is_many) {
        out_array_end(&call->kept);
        out_object_end(&call->kept);
    }
    if (!call->is_many)
        end_one(call, item);
    call_answer(call);
}

/* One thing for each of many; what failed, too. */
static enum call_next gather_many(struct call *call, const struct files_item *item)
{
    struct out *out = &call->kept;

    if (out->used > FILES_GATHER_MAX) {
        job_fail(call->job, "too_many_files",
                 "the answer is larger than %u MiB, and the rest was not done; give fewer paths "
                 "at once",
                 FILES_GATHER_MAX >> 20);
        return CALL_GONE;
    }
    if (item->kind == FILES_FAILED)
        print_failed(out, item);
    else if (item->kind == FILES_ENTRY || item->kind == FILES_WROTE)
        files_print_entry(out, NULL, &item->entry);
    else if (item->kind == FILES_GONE)
        print_gone(out, item);
    return CALL_ON;
}

/* The one there is; its object stays open until its end. What fails below it stops nothing. */
static enum call_next gather_one(struct call *call, const struct files_item *item)
{
    if (call_is_its_own(call, item)) {
        call_problem(call, &item->error);
        return CALL_GONE;
    }
    if (item->kind == FILES_FAILED && call->errors_count++ < FILES_ERRORS_MAX) {
        print_failed(&call->errors, item);
    } else if ((item->kind == FILES_ENTRY || item->kind == FILES_WROTE) && call->kept.used == 0) {
        out_object(&call->kept, NULL);
        files_print_fields(&call->kept, &item->entry);
    }
    return CALL_ON;
}

bool call_keeps(struct call *call)
{
    size_t used = call->kept.used;

    return used <= KEPT_FREE || used <= call->hold.bytes ||
           native_keeps(call->job->native, &call->hold, used + KEPT_STEP);
}

enum call_next call_gather(struct call *call, const struct files_item *item)
{
    struct out *out = &call->kept;

    if (call->is_many && out->used == 0) {
        out_object(out, NULL);
        out_array(out, call->list_name != NULL ? call->list_name : "entries");
    }
    if (item->kind == FILES_END) {
        gather_end(call, item);
        return CALL_GONE;
    }
    if ((call->is_many ? gather_many(call, item) : gather_one(call, item)) == CALL_GONE)
        return CALL_GONE;
    if (call_keeps(call))
        return CALL_ON;
    /* Some of it may be done, so it is no refusal that a client may repeat. */
    job_fail(call->job, "too_many_files",
             "answers of the tenant keep as much in memory as they may, and the rest was not done; "
             "give fewer paths at once");
    return CALL_GONE;
}

/* ---- paths ---- */

static int path_check(const char *what, const char *path, size_t size, struct error *err)
{
    if (size == 0)
        return error_set(err, "bad_request", 0,
                         "%s must not be empty; \".\" is where commands "
                         "start",
                         what);
    if (size >= FILES_PATH_MAX)
        return error_set(err, "name_too_long", 0,
                         "%s is longer than %d bytes; no system call "
                         "takes it",
                         what, FILES_PATH_MAX - 1);
    if (memchr(path, '\0', size) != NULL)
        return error_set(err, "bad_request", 0, "%s holds a NUL, which no path does", what);
    return 0;
}

int files_query_path(struct call *call, const char *fallback, struct error *err)
{
    const char *text = http_query(call->job->request, "path");
    const char *base64 = http_query(call->job->request, "path_base64");
    size_t size;

    if (text != NULL && base64 != NULL)
        return error_set(err, "bad_request", 0,
                         "query parameters \"path\" and \"path_base64\" exclude each other");
    if (text == NULL && base64 == NULL)
        text = fallback;
    if (text == NULL && base64 == NULL)
        return error_set(err, "bad_request", 0, "query parameter \"path\" is missing");
    size = strlen(text != NULL ? text : base64);
    if (base64 != NULL && size <= BASE64_SIZE(FILES_PATH_MAX - 1)) {
        char decoded[BASE64_SIZE(FILES_PATH_MAX - 1) + 4];
        ptrdiff_t got = base64_decode(base64, size, decoded);

        if (got < 0)
            return error_set(err, "bad_request", 0, "query parameter \"path_base64\" is no base64");
        size = (size_t)got;
        if (path_check("query parameter \"path_base64\"", decoded, size, err) < 0)
            return -1;
        memcpy(call->path, decoded, size);
    } else {
        if (path_check("query parameter \"path\"", text != NULL ? text : base64, size, err) < 0)
            return -1;
        memcpy(call->path, text != NULL ? text : base64, size);
    }
    call->path[size] = '\0';
    return 0;
}

int files_body_path(const char *field, const struct files_path *path, struct read_owner *owner,
                    const char **out, struct error *err)
{
    const char *data = path->text != NULL ? path->text : path->bytes.data;
    size_t size = path->text != NULL ? strlen(path->text) : path->bytes.size;
    char what[64], *room;

    (void)snprintf(what, sizeof(what), "field \"%s\"", field);
    if (path->text != NULL && path->bytes.data != NULL)
        return error_set(err, "bad_request", 0,
                         "fields \"%s\" and \"%s_base64\" exclude each other", field, field);
    if (data == NULL)
        return error_set(err, "bad_request", 0, "field \"%s\" is missing", field);
    if (path_check(what, data, size, err) < 0)
        return -1;
    room = read_room(owner, size + 1);
    if (room == NULL)
        return error_set(err, "no_memory", 0, "there is no memory for this request now");
    memcpy(room, data, size);
    room[size] = '\0';
    *out = room;
    return 0;
}

int files_paths_check(const char *const *paths, struct error *err)
{
    for (size_t i = 0; paths[i] != NULL; i++)
        if (path_check("each of field \"paths\"", paths[i], strlen(paths[i]), err) < 0)
            return -1;
    return 0;
}

/* ---- answers ---- */

bool files_mode(const char *text, uint64_t *mode)
{
    size_t length = strlen(text);

    if (length == 0 || length > 5 || strspn(text, "01234567") != length)
        return false;
    *mode = strtoull(text, NULL, 8);
    return *mode <= 07777;
}

void files_print_path(struct out *out, const char *key, const char *path)
{
    size_t size = strlen(path);
    char name[32];

    out_text(out, key, path);
    if (utf8_is_valid(path, size))
        return;
    (void)snprintf(name, sizeof(name), "%s_base64", key);
    out_quote(out, name);
    out_quoted_base64(out, path, size);
    out_quote_end(out);
}

static const char *type_name(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "symlink";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    case S_IFCHR:
        return "character_device";
    case S_IFBLK:
        return "block_device";
    default:
        return "unknown";
    }
}

static void permissions(uint32_t mode, char text[11])
{
    static const char types[] = "?pc?d?b?-?l?s???";
    static const char bits[] = "rwxrwxrwx";

    text[0] = types[(mode & S_IFMT) >> 12];
    for (unsigned i = 0; i < 9; i++)
        text[1 + i] = (mode & (0400U >> i)) != 0 ? bits[i] : '-';
    if ((mode & S_ISUID) != 0)
        text[3] = text[3] == 'x' ? 's' : 'S';
    if ((mode & S_ISGID) != 0)
        text[6] = text[6] == 'x' ? 's' : 'S';
    if ((mode & S_ISVTX) != 0)
        text[9] = text[9] == 'x' ? 't' : 'T';
    text[10] = '\0';
}

/* Before 1970 is shown as its first millisecond: the API's times are counts. */
static void print_time(struct out *out, const char *key, int64_t ns)
{
    out_time(out, key, ns < 1000000 ? 1 : (uint64_t)ns / 1000000);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

void files_print_fields(struct out *out, const struct files_entry *entry)
{
    char mode[8], text[11];

    (void)snprintf(mode, sizeof(mode), "%04o", entry->mode & 07777U);
    permissions(entry->mode, text);
    files_print_path(out, "path", entry->path);
    out_text(out, "name", base_name(entry->path));
    out_text(out, "type", type_name(entry->mode));
    out_number(out, "size", entry->size);
    out_text(out, "mode", mode);
    out_text(out, "permissions", text);
    out_number(out, "uid", entry->uid);
    out_number(out, "gid", entry->gid);
    out_text_or_none(out, "user", *entry->user != '\0' ? entry->user : NULL);
    out_text_or_none(out, "group", *entry->group != '\0' ? entry->group : NULL);
    print_time(out, "modified_at", entry->modified_ns);
    print_time(out, "changed_at", entry->changed_ns);
    print_time(out, "accessed_at", entry->accessed_ns);
    out_number(out, "inode", entry->inode);
    out_number(out, "links", entry->links);
    if (*entry->target != '\0')
        files_print_path(out, "target", entry->target);
}

void files_print_entry(struct out *out, const char *key, const struct files_entry *entry)
{
    out_object(out, key);
    files_print_fields(out, entry);
    out_object_end(out);
}

void files_print_error(struct out *out, const struct error *err)
{
    const struct problem *problem = problem_of(err->code);

    out_object(out, "error");
    out_text(out, "code", problem->code);
    out_number(out, "status", problem->status);
    out_text(out, "title", problem->title);
    out_text(out, "detail", err->text);
    out_object_end(out);
}
