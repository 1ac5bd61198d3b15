/* Files on their way out: one as it is, or many as a tar. The bytes go from the tool's pipe to the client's
 * socket without passing through our memory, and only as fast as he takes them.
 *
 * What the header promised and cannot be kept (the file shrank, the tool was killed) cuts the connection,
 * so that nobody takes a part for the whole. */
#include "front/native/files.h"

#include "http/range.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TAG_MAX 64
#define TAR_PATHS_MAX 60 /* a query has 64 parts */

struct download {
    struct call call; /* first */
    bool has_begun, has_range;
    uint64_t offset, length; /* asked for by the query */
    const char *user;
    const char *paths[TAR_PATHS_MAX + 1];
};

/* ---- what its header says ---- */

static void entry_tag(const struct files_entry *entry, char tag[TAG_MAX])
{
    (void)snprintf(tag, TAG_MAX, "\"%" PRIx64 "-%" PRIx64 "-%" PRIx64 "\"", entry->inode,
                   (uint64_t)entry->modified_ns, entry->size);
}

static void add_modified(struct http_request *request, int64_t ns)
{
    time_t seconds = (time_t)(ns / 1000000000);
    struct tm parts;
    char text[40];

    if (gmtime_r(&seconds, &parts) != NULL &&
        strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts) > 0)
        http_add_header(request, "Last-Modified", text);
}

/* RFC 6266: the name for those who know only ASCII, and as it is. */
static void add_disposition(struct http_request *request, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    char text[1200] = "attachment; filename=\"";
    size_t used = strlen(text);

    for (const char *at = name; *at != '\0' && used < 300; at++)
        text[used++] = (char)(*at > 0x20 && *at < 0x7f && *at != '"' && *at != '\\' && *at != '%'
                                  ? *at
                                  : '_');
    used += (size_t)snprintf(text + used, sizeof(text) - used, "\"; filename*=UTF-8''");
    for (const char *at = name; *at != '\0' && used < sizeof(text) - 4; at++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%%%02X", (unsigned char)*at);
    http_add_header(request, "Content-Disposition", text);
}

static void add_entry(struct http_request *request, const struct files_entry *entry)
{
    char text[128], tag[TAG_MAX];

    entry_tag(entry, tag);
    http_add_header(request, "ETag", tag);
    add_modified(request, entry->modified_ns);
    (void)snprintf(text, sizeof(text), "mode=%04o; uid=%u; gid=%u; mtime=%" PRId64 ".%09" PRId64,
                   entry->mode & 07777U, entry->uid, entry->gid, entry->modified_ns / 1000000000,
                   entry->modified_ns % 1000000000 < 0 ? 0 : entry->modified_ns % 1000000000);
    http_add_header(request, "Cove-Entry", text);
}

/* These bytes are a box's: no browser shall see a page in them. */
static void add_safety(struct http_request *request)
{
    http_add_header(request, "X-Content-Type-Options", "nosniff");
    http_add_header(request, "Cache-Control", "private, no-cache");
}

static void add_range(struct http_request *request, const struct files_item *item)
{
    char text[96];

    (void)snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, item->begin.offset,
                   item->begin.offset + item->begin.size - 1, item->entry.size);
    http_add_header(request, "Content-Range", text);
}

/* ---- one file ---- */

static enum call_next refuse_range(struct call *call, uint64_t size)
{
    char text[48];

    (void)snprintf(text, sizeof(text), "bytes */%" PRIu64, size);
    http_add_header(call->job->request, "Content-Range", text);
    job_fail(call->job, "bad_range", "%.300s: it has %" PRIu64 " bytes, and none in that range",
             call->path, size);
    return CALL_GONE;
}

static enum call_next begin_file(struct download *download, const struct files_item *item)
{
    struct http_request *request = download->call.job->request;
    const char *known = http_header(request, "If-None-Match");
    bool is_part = download->has_range && item->begin.size != UINT64_MAX;
    char tag[TAG_MAX];
    bool is_known;

    if (is_part && item->begin.size == 0)
        return refuse_range(&download->call, item->entry.size);
    entry_tag(&item->entry, tag);
    is_known = known != NULL && (strcmp(known, "*") == 0 || strstr(known, tag) != NULL);
    if (!is_known && !streams_may_begin(download->call.job)) {
        job_fail_kept(download->call.job);
        return CALL_GONE;
    }
    add_entry(request, &item->entry);
    if (is_known) {
        job_answer_bytes(download->call.job, 304, NULL, "", 0);
        return CALL_GONE;
    }
    add_safety(request);
    add_disposition(request, download->call.path);
    http_add_header(request, "Accept-Ranges", "bytes");
    if (is_part)
        add_range(request, item);
    download->has_begun = true;
    account_transfer(download->call.job, item->begin.size);
    return job_stream_sized(download->call.job, is_part ? 206 : 200, "application/octet-stream",
                            item->begin.size)
               ? CALL_ON
               : CALL_GONE;
}

static void sent(void *arg)
{
    call_pump(arg);
}

/* With its first bytes: before them it may turn out that what was named is not there. */
static bool begin_tar(struct download *download)
{
    struct job *job = download->call.job;

    if (!download->call.is_many || download->has_begun)
        return true;
    if (!streams_may_begin(job)) {
        job_fail_kept(job);
        return false;
    }
    download->has_begun = true;
    account_began(job);
    add_safety(job->request);
    return job_stream(job, "application/x-tar");
}

static enum call_next end_bytes(struct download *download, const struct files_item *item)
{
    struct call *call = &download->call;

    if (item->error.code[0] != '\0' && !download->has_begun)
        call_problem(call, &item->error);
    else if (item->error.code[0] != '\0')
        call_abort(call);
    else if (begin_tar(download))
        http_finish(call->job->request);
    return CALL_GONE;
}

static enum call_next take_bytes(struct call *call, const struct files_item *item)
{
    struct download *download = (struct download *)call;

    switch (item->kind) {
    case FILES_BEGIN:
        return call->is_many ? CALL_ON : begin_file(download, item);
    case FILES_BYTES:
        if (!begin_tar(download))
            return CALL_GONE;
        http_write_pipe(call->job->request, item->bytes.pipe, item->bytes.size, sent, call);
        return CALL_HOLD;
    case FILES_END:
    case FILES_FAILED:
        return end_bytes(download, item);
    default:
        return CALL_ON;
    }
}

static void begin_read(struct download *download)
{
    const char *const paths[] = {download->call.path, NULL};
    struct files_spec spec = files_spec(FILES_READ, paths);

    spec.user = download->user;
    if (download->offset > 0)
        spec.offset = download->offset;
    spec.length = download->length;
    call_begin(&download->call, &spec, take_bytes);
}

/* ---- a range of it: what it is of is known when its size is ---- */

static enum call_next take_size(struct call *call, const struct files_item *item)
{
    struct download *download = (struct download *)call;
    struct http_request *request = call->job->request;
    const char *condition = http_header(request, "If-Range");
    struct http_range range;
    char tag[TAG_MAX];

    if (item->kind != FILES_ENTRY) {
        call_problem(call, &item->error);
        return CALL_GONE;
    }
    entry_tag(&item->entry, tag);
    /* What is no file has no bytes to ask for: the tool says so. */
    if (S_ISREG(item->entry.mode) && (condition == NULL || strcmp(condition, tag) == 0)) {
        switch (http_range_parse(http_header(request, "Range"), item->entry.size, &range)) {
        case HTTP_RANGE_PART:
            download->has_range = true;
            download->offset = range.offset;
            download->length = range.length;
            break;
        case HTTP_RANGE_NONE:
            return refuse_range(call, item->entry.size);
        default:
            break;
        }
    }
    begin_read(download);
    return CALL_GONE;
}

static void begin_size(struct download *download)
{
    const char *const paths[] = {download->call.path, NULL};
    struct files_spec spec = files_spec(FILES_STAT, paths);

    spec.user = download->user;
    spec.follow = true;
    spec.timeout_ms = FILES_PLAIN_MS;
    call_begin(&download->call, &spec, take_size);
}

HANDLER(files_get)
{
    static const char *const known[] = {"path", "path_base64", "offset", "length", "user", NULL};
    struct job *job = job_begin_for(request, ENGINE_FILES_READ);
    struct download *download;
    struct error err;

    (void)data;
    if (job == NULL || !job_query(job, known))
        return;
    download = call_new(job, sizeof(*download));
    if (download == NULL)
        return;
    download->length = FILES_NOT_SAID;
    download->user = http_query(request, "user");
    if (files_query_path(&download->call, NULL, &err) < 0 ||
        job_query_count(job, "offset", 0, INT64_MAX, &download->offset, &err) < 0 ||
        job_query_count(job, "length", 0, INT64_MAX, &download->length, &err) < 0)
        job_problem(job, &err);
    else if (http_header(request, "Range") != NULL && download->offset == 0 &&
             download->length == FILES_NOT_SAID)
        begin_size(download);
    else
        begin_read(download);
}

/* ---- many, as a tar ---- */

HANDLER(files_tar_get)
{
    static const char *const known[] = {"path", "follow", "user", NULL};
    struct job *job = job_begin_for(request, ENGINE_FILES_READ);
    struct download *download;
    struct files_spec spec;
    const char *name, *value;
    struct error err;
    size_t count = 0;

    (void)data;
    if (job == NULL || !job_query_many(job, known, "path"))
        return;
    download = call_new(job, sizeof(*download));
    if (download == NULL)
        return;
    for (size_t i = 0; http_query_at(request, i, &name, &value); i++)
        if (strcmp(name, "path") == 0 && count++ < TAR_PATHS_MAX)
            download->paths[count - 1] = value;
    if (count > TAR_PATHS_MAX)
        count = 0;
    spec = files_spec(FILES_TAR_OUT, download->paths);
    spec.user = http_query(request, "user");
    download->call.is_many = true;
    for (size_t i = 0; i < count; i++)
        if (download->paths[i][0] == '\0' || strlen(download->paths[i]) >= FILES_PATH_MAX)
            count = 0;
    if (count == 0)
        job_fail(job, "bad_request",
                 "query parameter \"path\" must be there, once for each of at most %d things, with "
                 "1 to %d bytes",
                 TAR_PATHS_MAX, FILES_PATH_MAX - 1);
    else if (job_query_flag(job, "follow", &spec.follow, &err) < 0)
        job_problem(job, &err);
    else
        call_begin(&download->call, &spec, take_bytes);
}
