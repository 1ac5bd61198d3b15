/* What changes files without moving bytes through the API: made, moved, copied, removed, their rights, their
 * attributes. One body that says which; each route has its table of what it takes. */
#include "front/native/files.h"
#include "front/native/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_MAX 65536      /* Linux: XATTR_SIZE_MAX */
#define ATTRIBUTES_MAX 10000 /* Linux: their names have 64 KiB together, each some bytes */

struct change_text {
    struct files_path path, from, to;
    const char *const *paths;
    const char *user, *owner, *mode, *target;
    bool recursive, parents, replace, missing_ok, follow;
};

#define AT(member) .at = offsetof(struct change_text, member)
// NOLINTBEGIN(bugprone-macro-parentheses): a member's name takes none
#define PATH(name_, member)                                                        \
    {.name = (name_), .kind = READ_TEXT, AT(member.text), .high = FILES_PATH_MAX}, \
    {                                                                              \
        .name = name_ "_base64", .kind = READ_BYTES, AT(member.bytes)              \
    }
// NOLINTEND(bugprone-macro-parentheses)
#define PATHS                                                                             \
    PATH("path", path),                                                                   \
    {                                                                                     \
        .name = "paths", .kind = READ_TEXTS, AT(paths), .low = 1, .high = FILES_PATHS_MAX \
    }
#define FLAG(name_, member)                            \
    {                                                  \
        .name = (name_), .kind = READ_BOOL, AT(member) \
    }
#define USER                                                               \
    {                                                                      \
        .name = "user", .kind = READ_LINE, AT(user), .low = 1, .high = 256 \
    }
#define MODE(needed)                                                                            \
    {                                                                                           \
        .name = "mode", .kind = READ_LINE, AT(mode), .low = 1, .high = 5, .is_needed = (needed) \
    }
#define END          \
    {                \
        .name = NULL \
    }

static const struct read_field stat_fields[] = {PATHS, USER, FLAG("follow", follow), END};
static const struct read_field mkdir_fields[] = {PATHS, USER, FLAG("parents", parents), MODE(false),
                                                 END};
static const struct read_field move_fields[] = {
    PATH("from", from),       PATH("to", to),           USER,
    FLAG("replace", replace), FLAG("parents", parents), END};
static const struct read_field copy_fields[] = {PATH("from", from),
                                                PATH("to", to),
                                                USER,
                                                FLAG("replace", replace),
                                                FLAG("parents", parents),
                                                FLAG("recursive", recursive),
                                                END};
static const struct read_field remove_fields[] = {PATHS, USER, FLAG("recursive", recursive),
                                                  FLAG("missing_ok", missing_ok), END};
static const struct read_field chmod_fields[] = {PATHS, USER, FLAG("recursive", recursive),
                                                 MODE(true), END};
static const struct read_field chown_fields[] = {
    PATHS,
    USER,
    FLAG("recursive", recursive),
    FLAG("follow", follow),
    {.name = "owner", .kind = READ_LINE, AT(owner), .low = 1, .high = 512, .is_needed = true},
    END};
static const struct read_field symlink_fields[] = {PATH("path", path),
                                                   USER,
                                                   {.name = "target",
                                                    .kind = READ_TEXT,
                                                    AT(target),
                                                    .low = 1,
                                                    .high = FILES_PATH_MAX - 1,
                                                    .is_needed = true},
                                                   END};

/* ---- what the body says, as what the tool is asked for ---- */

/* Operands: a pair, a list, or one. */
struct operands {
    const char *list[3];
};

static int read_operands(struct call *call, enum files_verb verb, const struct change_text *text,
                         struct operands *operands, struct files_spec *spec, struct error *err)
{
    spec->paths = operands->list;
    if (verb == FILES_MOVE || verb == FILES_COPY)
        return files_body_path("from", &text->from, &call->owner, &operands->list[0], err) < 0
                   ? -1
                   : files_body_path("to", &text->to, &call->owner, &operands->list[1], err);
    if (verb == FILES_SYMLINK) {
        operands->list[0] = text->target;
        return files_body_path("path", &text->path, &call->owner, &operands->list[1], err);
    }
    if (text->paths == NULL)
        return files_body_path("path", &text->path, &call->owner, &operands->list[0], err);
    if (text->path.text != NULL || text->path.bytes.data != NULL)
        return error_set(err, "bad_request", 0, "fields \"path\" and \"paths\" exclude each other");
    spec->paths = text->paths;
    call->is_many = true;
    return files_paths_check(text->paths, err);
}

static int read_change(struct call *call, const struct change_text *text, struct files_spec *spec,
                       struct operands *operands, struct error *err)
{
    if (text->mode != NULL && !files_mode(text->mode, &spec->mode))
        return error_set(err, "bad_request", 0,
                         "field \"mode\" must be permissions in octal, such as \"0755\"");
    spec->user = text->user;
    spec->owner = text->owner;
    spec->recursive = text->recursive;
    spec->parents = text->parents;
    spec->replace = text->replace;
    spec->missing_ok = text->missing_ok;
    spec->follow = text->follow;
    spec->no_follow = !text->follow;
    spec->timeout_ms = text->recursive ? 0 : FILES_PLAIN_MS;
    return read_operands(call, spec->verb, text, operands, spec, err);
}

static void change(struct http_request *request, enum files_verb verb,
                   const struct read_field *fields)
{
    static const char *const no_query[] = {NULL};
    struct job *job = job_begin_for(request,
                                    verb == FILES_STAT ? ENGINE_FILES_READ : ENGINE_FILES_WRITE);
    struct change_text text = {.user = NULL};
    struct files_spec spec = files_spec(verb, NULL);
    struct operands operands = {{NULL}};
    struct call *call;
    struct error err;

    if (job == NULL || !job_query(job, no_query))
        return;
    call = call_new(job, sizeof(*call));
    if (call == NULL)
        return;
    if (read_object("a change of files", job_body(job), false, fields, &text, &call->owner, &err) <
            0 ||
        read_change(call, &text, &spec, &operands, &err) < 0)
        job_problem(job, &err);
    else if (job_once(job, true)) {
        http_body_done(request);
        (void)call_begin(call, &spec, call_gather);
    }
}

HANDLER(files_stat_many)
{
    (void)data;
    change(request, FILES_STAT, stat_fields);
}

HANDLER(files_mkdir)
{
    (void)data;
    change(request, FILES_MKDIR, mkdir_fields);
}

HANDLER(files_move)
{
    (void)data;
    change(request, FILES_MOVE, move_fields);
}

HANDLER(files_copy)
{
    (void)data;
    change(request, FILES_COPY, copy_fields);
}

HANDLER(files_remove)
{
    (void)data;
    change(request, FILES_REMOVE, remove_fields);
}

HANDLER(files_chmod)
{
    (void)data;
    change(request, FILES_CHMOD, chmod_fields);
}

HANDLER(files_chown)
{
    (void)data;
    change(request, FILES_CHOWN, chown_fields);
}

HANDLER(files_symlink)
{
    (void)data;
    change(request, FILES_SYMLINK, symlink_fields);
}

/* ---- attributes ---- */

static enum call_next take_value(struct call *call, const struct files_item *item)
{
    if (item->kind == FILES_ATTRIBUTE) {
        http_add_header(call->job->request, "X-Content-Type-Options", "nosniff");
        job_answer_bytes(call->job, 200, "application/octet-stream", item->attribute.value,
                         item->attribute.size);
        return CALL_GONE;
    }
    if (item->error.code[0] != '\0')
        call_problem(call, &item->error);
    else
        job_fail(call->job, "file_not_found", "%.300s: it has no such attribute", call->path);
    return CALL_GONE;
}

static enum call_next take_attributes(struct call *call, const struct files_item *item)
{
    struct out *out = &call->kept;

    if (item->error.code[0] != '\0') {
        call_problem(call, &item->error);
        return CALL_GONE;
    }
    if (out->used == 0) {
        out_object(out, NULL);
        out_array(out, "attributes");
    }
    if (item->kind == FILES_ATTRIBUTE) {
        if (call->count++ == ATTRIBUTES_MAX || out->used > FILES_KEPT_MAX) {
            job_fail(call->job, "too_many_files",
                     "the attributes are more than one answer holds; ask for each by its name");
            return CALL_GONE;
        }
        out_object(out, NULL);
        out_text(out, "name", item->attribute.name);
        out_quote(out, "value_base64");
        out_quoted_base64(out, item->attribute.value, item->attribute.size);
        out_quote_end(out);
        out_object_end(out);
        if (call_keeps(call))
            return CALL_ON;
        job_fail_kept(call->job);
        return CALL_GONE;
    }
    if (item->kind != FILES_END)
        return CALL_ON;
    out_array_end(out);
    out_object_end(out);
    call_answer(call);
    return CALL_GONE;
}

static enum call_next take_nothing(struct call *call, const struct files_item *item)
{
    if (item->error.code[0] != '\0')
        call_problem(call, &item->error);
    else if (item->kind != FILES_END)
        return CALL_ON;
    else
        job_answer_nothing(call->job);
    return CALL_GONE;
}

static void attribute(struct http_request *request, enum files_verb verb,
                      enum call_next (*take)(struct call *call, const struct files_item *item))
{
    static const char *const known[] = {"path", "path_base64", "name", "user", NULL};
    struct job *job = job_begin_for(request, verb == FILES_GETXATTR ? ENGINE_FILES_READ
                                                                    : ENGINE_FILES_WRITE);
    const char *paths[2] = {NULL};
    struct files_spec spec = files_spec(verb, paths);
    struct call *call;
    struct error err;

    if (job == NULL || !job_query(job, known) || !job_once(job, false))
        return;
    call = call_new(job, sizeof(*call));
    if (call == NULL)
        return;
    paths[0] = call->path;
    spec.name = http_query(request, "name");
    spec.user = http_query(request, "user");
    spec.timeout_ms = FILES_PLAIN_MS;
    if (verb == FILES_SETXATTR)
        spec.value = http_body(request, &spec.value_size);
    if (files_query_path(call, NULL, &err) < 0)
        job_problem(job, &err);
    else if (spec.value_size > VALUE_MAX)
        job_fail(job, "body_too_large", "an attribute has at most %d bytes", VALUE_MAX);
    else if (verb != FILES_GETXATTR &&
             (spec.name == NULL || *spec.name == '\0' || strlen(spec.name) > 255))
        job_fail(job, "bad_request", "query parameter \"name\" must be there, with 1 to 255 bytes");
    else
        (void)call_begin(call, &spec, spec.name == NULL ? take_attributes : take);
}

HANDLER(files_xattr_get)
{
    (void)data;
    attribute(request, FILES_GETXATTR, take_value);
}

HANDLER(files_xattr_put)
{
    (void)data;
    attribute(request, FILES_SETXATTR, take_nothing);
}

HANDLER(files_xattr_delete)
{
    (void)data;
    attribute(request, FILES_REMOVEXATTR, take_nothing);
}
