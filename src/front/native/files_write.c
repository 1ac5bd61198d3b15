/* Files on their way in: one, several in a form, or a tar. What the client sends goes on as fast as the
 * tool takes it, and a file takes its name only when all of it has come; a request that ends early leaves
 * what was there before. */
#include "front/native/files.h"

#include "http/multipart.h"

#include "base/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ID_MAX 4294967294ULL

struct upload {
    struct call call; /* first */
    struct files_target target;
    struct http_multipart *form;
    bool in_file;
    bool is_held; /* a part of the form was told to wait */
};

static void upload_room(struct call *call)
{
    http_body_resume(call->job->request);
}

static void upload_free(void *own)
{
    struct upload *upload = own;

    http_multipart_free(upload->form);
}

/* ---- what the query says of a file ---- */

static int read_mode(const struct job *job, uint64_t *mode, struct error *err)
{
    const char *text = http_query(job->request, "mode");

    if (text == NULL)
        return 0;
    if (!files_mode(text, mode))
        return error_set(err, "bad_request", 0,
                         "query parameter \"mode\" must be permissions in octal, such as 0644");
    return 0;
}

/* By number: names are the box's, and "user" has the file made by whom it names. */
static int read_owner(const struct job *job, struct files_target *target, struct error *err)
{
    const char *text = http_query(job->request, "owner");
    const char *colon = text != NULL ? strchr(text, ':') : NULL;
    char uid[24] = "";

    if (text == NULL)
        return 0;
    (void)snprintf(uid, sizeof(uid), "%.*s",
                   (int)(colon != NULL && colon - text < 20 ? colon - text : 20), text);
    if (parse_count("query parameter \"owner\"", uid, 0, ID_MAX, &target->uid, err) == 0 &&
        (colon == NULL ||
         parse_count("query parameter \"owner\"", colon + 1, 0, ID_MAX, &target->gid, err) == 0))
        return 0;
    return error_set(
        err, "bad_request", 0,
        "query parameter \"owner\" must be UID or UID:GID; to have a user's name, send "
        "\"user\", who then writes it, or chown it");
}

static int read_flag(const struct job *job, const char *name, unsigned flag, bool value,
                     unsigned *flags, struct error *err)
{
    if (job_query_flag(job, name, &value, err) < 0)
        return -1;
    *flags |= value ? flag : 0;
    return 0;
}

static int read_target(struct upload *upload, struct error *err)
{
    struct files_target *target = &upload->target;
    const struct job *job = upload->call.job;
    const char *length = http_header(job->request, "Content-Length");
    struct error ignored;

    *target = (struct files_target){.path = upload->call.path,
                                    .mode = FILES_NOT_SAID,
                                    .uid = FILES_NOT_SAID,
                                    .gid = FILES_NOT_SAID,
                                    .size = FILES_NOT_SAID};
    if (read_mode(job, &target->mode, err) < 0 || read_owner(job, target, err) < 0 ||
        read_flag(job, "parents", FILES_PARENTS, true, &target->flags, err) < 0 ||
        read_flag(job, "append", FILES_APPEND, false, &target->flags, err) < 0 ||
        read_flag(job, "new", FILES_NEW, false, &target->flags, err) < 0 ||
        job_query_count(job, "offset", 0, INT64_MAX, &target->offset, err) < 0)
        return -1;
    if (http_query(job->request, "offset") != NULL)
        target->flags |= FILES_AT;
    if ((target->flags & FILES_AT) != 0 && (target->flags & (FILES_APPEND | FILES_NEW)) != 0)
        return error_set(err, "bad_request", 0,
                         "query parameter \"offset\" goes with neither \"append\" nor \"new\"");
    if (length != NULL)
        (void)parse_count("Content-Length", length, 0, INT64_MAX, &target->size, &ignored);
    return 0;
}

static struct upload *upload_begin(struct http_request *request, const char *const *known,
                                   bool needs_path)
{
    struct job *job = job_begin_for(request, ENGINE_FILES_WRITE);
    struct upload *upload;
    struct error err;

    if (job == NULL || !job_query(job, known) || !job_once(job, false))
        return NULL;
    upload = call_new(job, sizeof(*upload));
    if (upload == NULL)
        return NULL;
    upload->call.room = upload_room;
    upload->call.free_more = upload_free;
    if (!needs_path && http_query(request, "path") == NULL &&
        http_query(request, "path_base64") == NULL)
        return upload;
    if (files_query_path(&upload->call, NULL, &err) == 0)
        return upload;
    job_problem(job, &err);
    return NULL;
}

/* True, and the body may come; false, and it is answered. */
static bool upload_run(struct upload *upload, enum files_verb verb, const char *const *paths)
{
    struct call *call = &upload->call;
    struct files_spec spec = files_spec(verb, paths);
    const char *length;
    struct error err;

    spec.user = http_query(call->job->request, "user");
    if (verb == FILES_TAR_IN) {
        spec.owner = http_query(call->job->request, "owner");
        spec.parents = true;
        if (job_query_count(call->job, "strip", 0, 100, &spec.strip, &err) < 0 ||
            job_query_flag(call->job, "parents", &spec.parents, &err) < 0) {
            job_problem(call->job, &err);
            return false;
        }
    }
    if (!call_begin(call, &spec, call_gather))
        return false;
    length = http_header(call->job->request, "Content-Length");
    account_transfer(call->job, length != NULL ? strtoull(length, NULL, 10) : UINT64_MAX);
    return true;
}

/* ---- one file ---- */

static bool file_part(void *arg, const void *data, size_t size)
{
    struct upload *upload = arg;
    struct files *files = upload->call.files;

    if (size > 0)
        return files_put_data(files, data, size);
    (void)files_put_commit(files);
    (void)files_put_finish(files);
    return true;
}

HANDLER(files_put)
{
    static const char *const known[] = {"path",   "path_base64", "mode", "owner", "parents",
                                        "offset", "append",      "new",  "user",  NULL};
    static const char *const none[] = {NULL};
    struct upload *upload = upload_begin(request, known, true);
    struct error err;

    (void)data;
    if (upload == NULL)
        return;
    if (read_target(upload, &err) < 0) {
        job_problem(upload->call.job, &err);
        return;
    }
    if (!upload_run(upload, FILES_WRITE, none))
        return;
    (void)files_put_target(upload->call.files, &upload->target);
    http_on_body(request, file_part, upload);
}

/* ---- a tar ---- */

static bool tar_part(void *arg, const void *data, size_t size)
{
    struct upload *upload = arg;

    if (size > 0)
        return files_put_data(upload->call.files, data, size);
    (void)files_put_finish(upload->call.files);
    return true;
}

static void take_tar(struct upload *upload)
{
    /* As of a form: where commands start, if it does not say. */
    const char *const paths[] = {*upload->call.path != '\0' ? upload->call.path : ".", NULL};

    if (upload_run(upload, FILES_TAR_IN, paths))
        http_on_body(upload->call.job->request, tar_part, upload);
}

HANDLER(files_tar_put)
{
    static const char *const known[] = {"path",    "path_base64", "strip", "owner",
                                        "parents", "user",        NULL};
    struct upload *upload = upload_begin(request, known, true);

    (void)data;
    if (upload != NULL)
        take_tar(upload);
}

/* ---- a form: its parts of the name "file" are files, and their filename is where each goes ---- */

static int form_begin(void *arg, const struct http_multipart_part *part, struct error *err)
{
    struct upload *upload = arg;
    struct files_target *target = &upload->target;
    const char *below = upload->call.path;
    char *into = upload->call.last;
    bool is_relative = part->filename == NULL || part->filename[0] != '/';
    int length;

    upload->in_file = part->name != NULL && strcmp(part->name, "file") == 0;
    if (!upload->in_file)
        return error_set(err, "bad_request", 0,
                         "part \"%.64s\" is unknown; files come in parts named \"file\"",
                         part->name != NULL ? part->name : "");
    if (part->filename == NULL || part->filename[0] == '\0')
        return error_set(err, "bad_request", 0,
                         "part \"file\" has no filename; it is the path where the file goes");
    length = snprintf(into, FILES_PATH_MAX, "%s%s%s", is_relative ? below : "",
                      is_relative && *below != '\0' ? "/" : "", part->filename);
    if (length < 0 || length >= FILES_PATH_MAX)
        return error_set(err, "name_too_long", 0,
                         "the filename of a part is longer than %d bytes; no system call takes it",
                         FILES_PATH_MAX - 1);
    target->path = into;
    upload->is_held = !files_put_target(upload->call.files, target) || upload->is_held;
    return 0;
}

static int form_data(void *arg, const void *data, size_t size, struct error *err)
{
    struct upload *upload = arg;

    (void)err;
    if (upload->in_file)
        upload->is_held = !files_put_data(upload->call.files, data, size);
    return 0;
}

static int form_end(void *arg, struct error *err)
{
    struct upload *upload = arg;

    (void)err;
    if (upload->in_file)
        upload->is_held = !files_put_commit(upload->call.files);
    upload->in_file = false;
    return 0;
}

static bool form_part(void *arg, const void *data, size_t size)
{
    struct upload *upload = arg;
    struct error err;

    upload->is_held = false;
    if ((size > 0 ? http_multipart_feed(upload->form, data, size, &err)
                  : http_multipart_end(upload->form, &err)) < 0) {
        job_problem(upload->call.job, &err);
        return false;
    }
    if (size == 0)
        (void)files_put_finish(upload->call.files);
    return !upload->is_held;
}

static void take_form(struct upload *upload)
{
    static const struct http_multipart_calls calls = {
        .begin = form_begin, .data = form_data, .end = form_end};
    static const char *const none[] = {NULL};
    const char *type = http_header(upload->call.job->request, "Content-Type");
    struct error err;

    upload->target.size = FILES_NOT_SAID;
    upload->call.is_many = true;
    upload->call.list_name = "files";
    upload->form = http_multipart_new(type, &calls, upload, &err);
    if (upload->form == NULL) {
        job_problem(upload->call.job, &err);
        return;
    }
    if (upload_run(upload, FILES_WRITE, none))
        http_on_body(upload->call.job->request, form_part, upload);
}

HANDLER(files_post)
{
    static const char *const known[] = {"path",    "path_base64", "mode", "owner",
                                        "parents", "strip",       "user", NULL};
    const char *type = http_header(request, "Content-Type");
    bool is_tar = type != NULL && strncasecmp(type, "application/x-tar", 17) == 0;
    bool is_form = type != NULL && strncasecmp(type, "multipart/form-data", 19) == 0;
    struct upload *upload = upload_begin(request, known, false);
    uint64_t strip = 0;
    struct error err;

    (void)data;
    if (upload == NULL)
        return;
    if (read_target(upload, &err) < 0 ||
        job_query_count(upload->call.job, "strip", 0, 100, &strip, &err) < 0)
        job_problem(upload->call.job, &err);
    else if (is_tar)
        take_tar(upload);
    else if (!is_form)
        job_fail(upload->call.job, "bad_request",
                 "the body must be multipart/form-data, its parts named \"file\", or "
                 "application/x-tar; a single file is sent by PUT");
    else
        take_form(upload);
}
