// The host's half of the boundary, for the test driver alone: each operation of files that the
// prelude uses, below one directory; the tools `add`, `echo` and `fail`; and a web server that
// answers with what it was asked. It trusts its caller.
#include "prelude_host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_MOST 4096
#define OPEN_MOST 64

struct begun {
    int id;
    char op[32];
    JSValue meta, bytes;
};

static char root[PATH_MOST];
static struct begun open_calls[OPEN_MOST];
static int open_count, next_id = 1;
static JSValue stream_body;

void host_set_root(const char *directory)
{
    snprintf(root, sizeof(root), "%s", directory ? directory : "");
}

static const char *code_of(int number)
{
    switch (number) {
    case ENOENT:
        return "ENOENT";
    case EEXIST:
        return "EEXIST";
    case ENOTDIR:
        return "ENOTDIR";
    case EISDIR:
        return "EISDIR";
    case ENOTEMPTY:
        return "ENOTEMPTY";
    case EACCES:
        return "EACCES";
    case EBADF:
        return "EBADF";
    case EPERM:
        return "EPERM";
    default:
        return "EINVAL";
    }
}

static JSValue refuse(JSContext *ctx, const char *code, const char *message)
{
    JSValue error = JS_NewError(ctx);

    JS_SetPropertyStr(ctx, error, "code", JS_NewString(ctx, code));
    JS_DefinePropertyValueStr(ctx, error, "message", JS_NewString(ctx, message), JS_PROP_C_W_E);
    return JS_Throw(ctx, error);
}

static JSValue refuse_errno(JSContext *ctx)
{
    return refuse(ctx, code_of(errno), strerror(errno));
}

static JSValue answer(JSContext *ctx, JSValue meta, JSValue bytes)
{
    JSValue out = JS_NewObject(ctx);

    JS_SetPropertyStr(ctx, out, "meta", meta);
    JS_SetPropertyStr(ctx, out, "bytes", bytes);
    return out;
}

static int field_int(JSContext *ctx, JSValueConst meta, const char *name, int otherwise)
{
    JSValue value = JS_GetPropertyStr(ctx, meta, name);
    int result = otherwise;

    if (!JS_IsUndefined(value) && !JS_IsNull(value)) {
        JS_ToInt32(ctx, &result, value);
    }
    JS_FreeValue(ctx, value);
    return result;
}

static int place(JSContext *ctx, JSValueConst meta, const char *name, char *out)
{
    JSValue value = JS_GetPropertyStr(ctx, meta, name);
    const char *path = JS_ToCString(ctx, value);
    int result = root[0] && path && path[0] == '/' &&
                 snprintf(out, PATH_MOST, "%s%s", root, path) < PATH_MOST;

    JS_FreeCString(ctx, path);
    JS_FreeValue(ctx, value);
    return result;
}

static JSValue do_stat(JSContext *ctx, const char *path, JSValueConst meta)
{
    struct stat st = {0};
    JSValue out;

    if ((field_int(ctx, meta, "follow", 1) ? stat : lstat)(path, &st) < 0) {
        return refuse_errno(ctx);
    }
    out = JS_NewObject(ctx);
    JS_SetPropertyStr(ctx, out, "type",
                      JS_NewString(ctx, S_ISDIR(st.st_mode)   ? "directory"
                                        : S_ISLNK(st.st_mode) ? "symlink"
                                        : S_ISREG(st.st_mode) ? "file"
                                                              : "other"));
    JS_SetPropertyStr(ctx, out, "size", JS_NewInt64(ctx, st.st_size));
    JS_SetPropertyStr(ctx, out, "mode", JS_NewInt32(ctx, (int)st.st_mode));
    JS_SetPropertyStr(
        ctx, out, "mtime_ms",
        JS_NewFloat64(ctx, (double)st.st_mtim.tv_sec * 1e3 + (double)st.st_mtim.tv_nsec / 1e6));
    return answer(ctx, out, JS_UNDEFINED);
}

static JSValue do_list(JSContext *ctx, const char *path)
{
    DIR *dir = opendir(path);
    JSValue meta, list;
    struct dirent *entry;
    uint32_t count = 0;

    if (!dir) {
        return refuse_errno(ctx);
    }
    list = JS_NewArray(ctx);
    while ((entry = readdir(dir))) {
        JSValue one;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        one = JS_NewObject(ctx);
        JS_SetPropertyStr(ctx, one, "name", JS_NewString(ctx, entry->d_name));
        JS_SetPropertyStr(ctx, one, "type",
                          JS_NewString(ctx, entry->d_type == DT_DIR   ? "directory"
                                            : entry->d_type == DT_LNK ? "symlink"
                                                                      : "file"));
        JS_SetPropertyUint32(ctx, list, count++, one);
    }
    closedir(dir);
    meta = JS_NewObject(ctx);
    JS_SetPropertyStr(ctx, meta, "entries", list);
    return answer(ctx, meta, JS_UNDEFINED);
}

static JSValue read_from(JSContext *ctx, int fd, size_t most, long long at)
{
    uint8_t *buffer = malloc(most + 1);
    size_t held = 0;
    ssize_t got = 1;
    JSValue bytes;

    while (held < most && got > 0) {
        got = at < 0 ? read(fd, buffer + held, most - held)
                     : pread(fd, buffer + held, most - held, (off_t)(at + (long long)held));
        held += got > 0 ? (size_t)got : 0;
    }
    if (got < 0) {
        free(buffer);
        return refuse_errno(ctx);
    }
    bytes = JS_NewUint8ArrayCopy(ctx, buffer, held);
    free(buffer);
    return answer(ctx, JS_NewObject(ctx), bytes);
}

static JSValue do_read_file(JSContext *ctx, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    JSValue result;

    if (fd < 0 || fstat(fd, &st) < 0) {
        return refuse_errno(ctx);
    }
    result = read_from(ctx, fd, (size_t)st.st_size, -1);
    close(fd);
    return result;
}

static JSValue write_to(JSContext *ctx, int fd, JSValueConst bytes, long long at)
{
    size_t length = 0;
    uint8_t *data = JS_GetUint8Array(ctx, &length, bytes);
    JSValue meta = JS_NewObject(ctx);
    ssize_t put = length == 0 ? 0
                  : at < 0    ? write(fd, data, length)
                              : pwrite(fd, data, length, (off_t)at);

    if (put < 0) {
        JS_FreeValue(ctx, meta);
        return refuse_errno(ctx);
    }
    JS_SetPropertyStr(ctx, meta, "written", JS_NewInt64(ctx, put));
    return answer(ctx, meta, JS_UNDEFINED);
}

static JSValue do_write_file(JSContext *ctx, const char *path, JSValueConst meta,
                             JSValueConst bytes)
{
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC;
    JSValue result;
    int fd;

    flags |= field_int(ctx, meta, "append", 0) ? O_APPEND : O_TRUNC;
    flags |= field_int(ctx, meta, "exclusive", 0) ? O_EXCL : 0;
    fd = open(path, flags, (mode_t)field_int(ctx, meta, "mode", 0666));
    if (fd < 0) {
        return refuse_errno(ctx);
    }
    result = write_to(ctx, fd, bytes, -1);
    close(fd);
    return result;
}

static JSValue do_open(JSContext *ctx, const char *path, JSValueConst meta)
{
    JSValue wanted = JS_GetPropertyStr(ctx, meta, "flags"), out;
    const char *text = JS_ToCString(ctx, wanted);
    int flags = O_CLOEXEC, fd;

    flags |= strchr(text, '+') ? O_RDWR : text[0] == 'r' ? O_RDONLY : O_WRONLY;
    flags |= text[0] == 'w' ? O_CREAT | O_TRUNC : text[0] == 'a' ? O_CREAT | O_APPEND : 0;
    flags |= strchr(text, 'x') ? O_EXCL : 0;
    JS_FreeCString(ctx, text);
    JS_FreeValue(ctx, wanted);
    fd = open(path, flags, (mode_t)field_int(ctx, meta, "mode", 0666));
    if (fd < 0) {
        return refuse_errno(ctx);
    }
    out = JS_NewObject(ctx);
    JS_SetPropertyStr(ctx, out, "fd", JS_NewInt32(ctx, fd));
    return answer(ctx, out, JS_UNDEFINED);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
    (void)st, (void)kind, (void)walk;
    return remove(path);
}

static JSValue done(JSContext *ctx, int result)
{
    return result < 0 ? refuse_errno(ctx) : answer(ctx, JS_NewObject(ctx), JS_UNDEFINED);
}

static JSValue with_path(JSContext *ctx, const char *op, JSValueConst meta, JSValueConst bytes)
{
    char path[PATH_MOST], to[PATH_MOST];

    if (!place(ctx, meta, "path", path)) {
        return refuse(ctx, "EACCES", "no path is granted; allowedReadPaths would allow it");
    }
    if (strcmp(op, "stat") == 0) {
        return do_stat(ctx, path, meta);
    } else if (strcmp(op, "list") == 0) {
        return do_list(ctx, path);
    } else if (strcmp(op, "read_file") == 0) {
        return do_read_file(ctx, path);
    } else if (strcmp(op, "write_file") == 0) {
        return do_write_file(ctx, path, meta, bytes);
    } else if (strcmp(op, "open") == 0) {
        return do_open(ctx, path, meta);
    } else if (strcmp(op, "mkdir") == 0) {
        return done(ctx, mkdir(path, (mode_t)field_int(ctx, meta, "mode", 0777)));
    } else if (strcmp(op, "remove") == 0) {
        return done(ctx, field_int(ctx, meta, "recursive", 0)
                             ? nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS)
                         : field_int(ctx, meta, "directory", 0) ? rmdir(path)
                                                                : unlink(path));
    } else if (strcmp(op, "rename") == 0 && place(ctx, meta, "to", to)) {
        return done(ctx, rename(path, to));
    }
    return refuse(ctx, "ENOSYS", op);
}

static JSValue on_files(JSContext *ctx, const char *op, JSValueConst meta, JSValueConst bytes)
{
    int fd = field_int(ctx, meta, "fd", -1), at = field_int(ctx, meta, "position", -1);

    if (strcmp(op, "read") == 0) {
        return read_from(ctx, fd, (size_t)field_int(ctx, meta, "length", 0), at);
    } else if (strcmp(op, "write") == 0) {
        return write_to(ctx, fd, bytes, at);
    } else if (strcmp(op, "close") == 0) {
        return done(ctx, close(fd));
    }
    return with_path(ctx, op, meta, bytes);
}

static JSValue host_call(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    const char *op = JS_ToCString(ctx, argv[0]);
    JSValue result;

    (void)self;
    if (strcmp(op, "random") == 0) {
        uint8_t bytes[65536];
        size_t length = (size_t)field_int(ctx, argv[1], "length", 0);
        length = length > sizeof(bytes) ? sizeof(bytes) : length;
        if (getrandom(bytes, length, 0) < 0) {
            abort();
        }
        result = answer(ctx, JS_NewObject(ctx), JS_NewUint8ArrayCopy(ctx, bytes, length));
    } else if (strncmp(op, "fs.", 3) == 0) {
        result = on_files(ctx, op + 3, argv[1], argc > 2 ? argv[2] : JS_UNDEFINED);
    } else if (strcmp(op, "fetch.cancel") == 0) {
        result = answer(ctx, JS_NewObject(ctx), JS_UNDEFINED);
    } else {
        result = refuse(ctx, "ENOSYS", op);
    }
    JS_FreeCString(ctx, op);
    return result;
}

static JSValue host_begin(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    struct begun *one = &open_calls[open_count];
    const char *op = JS_ToCString(ctx, argv[0]);

    (void)self;
    if (open_count == OPEN_MOST) {
        JS_FreeCString(ctx, op);
        return refuse(ctx, "EAGAIN", "too many calls at once");
    }
    open_count++;
    snprintf(one->op, sizeof(one->op), "%s", op);
    JS_FreeCString(ctx, op);
    one->id = next_id++;
    one->meta = JS_DupValue(ctx, argv[1]);
    one->bytes = argc > 2 ? JS_DupValue(ctx, argv[2]) : JS_UNDEFINED;
    return JS_NewInt32(ctx, one->id);
}

JSValue host_new(JSContext *ctx)
{
    JSValue host = JS_NewObjectProto(ctx, JS_NULL);

    stream_body = JS_UNDEFINED;
    JS_SetPropertyStr(ctx, host, "call", JS_NewCFunction(ctx, host_call, "call", 3));
    JS_SetPropertyStr(ctx, host, "begin", JS_NewCFunction(ctx, host_begin, "begin", 3));
    return host;
}

// A tool: `add` gives the sum of a and b, `echo` its arguments, anything else fails.
static JSValue tool(JSContext *ctx, JSValueConst meta, int *ok)
{
    JSValue name = JS_GetPropertyStr(ctx, meta, "name");
    JSValue args = JS_GetPropertyStr(ctx, meta, "args"), out = JS_NewObject(ctx);
    const char *text = JS_ToCString(ctx, name);

    if (strcmp(text, "echo") == 0) {
        JS_SetPropertyStr(ctx, out, "value", JS_DupValue(ctx, args));
    } else if (strcmp(text, "add") == 0) {
        JS_SetPropertyStr(
            ctx, out, "value",
            JS_NewInt32(ctx, field_int(ctx, args, "a", 0) + field_int(ctx, args, "b", 0)));
    } else {
        *ok = 0;
        JS_SetPropertyStr(ctx, out, "name", JS_NewString(ctx, "ToolError"));
        JS_SetPropertyStr(ctx, out, "message", JS_NewString(ctx, "the tool failed"));
        JS_SetPropertyStr(ctx, out, "code", JS_NewString(ctx, "tool_failed"));
    }
    JS_FreeCString(ctx, text);
    JS_FreeValue(ctx, args);
    JS_FreeValue(ctx, name);
    return out;
}

// The web server: https://denied... is refused; /status/N answers N; anything else answers 200 with
// a JSON text that says what was asked. The body comes in pieces of 16 bytes.
static JSValue fetch_start(JSContext *ctx, JSValueConst meta, JSValueConst bytes, int *ok)
{
    JSValue url = JS_GetPropertyStr(ctx, meta, "url"), out = JS_NewObject(ctx), headers, pair, said;
    const char *text = JS_ToCString(ctx, url), *path = strstr(text, "/status/");
    size_t length = 0;

    if (strstr(text, "://denied")) {
        *ok = 0;
        JS_SetPropertyStr(ctx, out, "name", JS_NewString(ctx, "TypeError"));
        JS_SetPropertyStr(ctx, out, "code", JS_NewString(ctx, "denied"));
        JS_SetPropertyStr(ctx, out, "message",
                          JS_NewString(ctx,
                                       "network access denied \xe2\x80\x94 host \"denied\" not "
                                       "in allowedHosts"));
    } else {
        said = JS_NewObject(ctx);
        JS_SetPropertyStr(ctx, said, "method", JS_GetPropertyStr(ctx, meta, "method"));
        JS_SetPropertyStr(ctx, said, "url", JS_DupValue(ctx, url));
        JS_SetPropertyStr(ctx, said, "headers", JS_GetPropertyStr(ctx, meta, "headers"));
        if (!JS_IsUndefined(bytes)) {
            uint8_t *data = JS_GetUint8Array(ctx, &length, bytes);
            JS_SetPropertyStr(ctx, said, "body", JS_NewStringLen(ctx, (char *)data, length));
        }
        JS_FreeValue(ctx, stream_body);
        stream_body = JS_JSONStringify(ctx, said, JS_UNDEFINED, JS_UNDEFINED);
        JS_FreeValue(ctx, said);
        headers = JS_NewArray(ctx);
        pair = JS_NewArray(ctx);
        JS_SetPropertyUint32(ctx, pair, 0, JS_NewString(ctx, "Content-Type"));
        JS_SetPropertyUint32(ctx, pair, 1, JS_NewString(ctx, "application/json"));
        JS_SetPropertyUint32(ctx, headers, 0, pair);
        JS_SetPropertyStr(ctx, out, "status", JS_NewInt32(ctx, path ? atoi(path + 8) : 200));
        JS_SetPropertyStr(ctx, out, "statusText", JS_NewString(ctx, path ? "Said" : "OK"));
        JS_SetPropertyStr(ctx, out, "url", JS_DupValue(ctx, url));
        JS_SetPropertyStr(ctx, out, "headers", headers);
        JS_SetPropertyStr(ctx, out, "redirected", JS_FALSE);
        JS_SetPropertyStr(ctx, out, "stream", JS_NewInt32(ctx, 7));
    }
    JS_FreeCString(ctx, text);
    JS_FreeValue(ctx, url);
    return out;
}

static JSValue fetch_read(JSContext *ctx, JSValue *bytes)
{
    JSValue out = JS_NewObject(ctx);
    size_t length = 0;
    const char *text = JS_ToCStringLen(ctx, &length, stream_body);
    size_t piece = length > 16 ? 16 : length;

    *bytes = JS_NewUint8ArrayCopy(ctx, (const uint8_t *)text, piece);
    JS_FreeValue(ctx, stream_body);
    stream_body = JS_NewStringLen(ctx, text + piece, length - piece);
    JS_SetPropertyStr(ctx, out, "end", JS_NewBool(ctx, length == piece));
    JS_FreeCString(ctx, text);
    return out;
}

int host_settle_one(JSContext *ctx, JSValue share)
{
    struct begun one = open_calls[0];
    JSValue meta, bytes = JS_UNDEFINED, function, arguments[4];
    int ok = 1;

    if (open_count == 0) {
        return 0;
    }
    open_count--;
    memmove(open_calls, open_calls + 1, (size_t)open_count * sizeof(one));
    if (strcmp(one.op, "tool") == 0) {
        meta = tool(ctx, one.meta, &ok);
    } else if (strcmp(one.op, "fetch.start") == 0) {
        meta = fetch_start(ctx, one.meta, one.bytes, &ok);
    } else {
        meta = fetch_read(ctx, &bytes);
    }
    function = JS_GetPropertyStr(ctx, share, "settle");
    arguments[0] = JS_NewInt32(ctx, one.id);
    arguments[1] = JS_NewBool(ctx, ok);
    arguments[2] = meta;
    arguments[3] = bytes;
    JS_FreeValue(ctx, JS_Call(ctx, function, JS_UNDEFINED, 4, arguments));
    JS_FreeValue(ctx, function);
    JS_FreeValue(ctx, meta);
    JS_FreeValue(ctx, bytes);
    JS_FreeValue(ctx, one.meta);
    JS_FreeValue(ctx, one.bytes);
    return 1;
}
