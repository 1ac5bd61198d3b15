/* Files: the frames of a tool. Whoever took over a box speaks in its place, so every size is checked
 * against what there is, every text has its end within its frame, and every path is one. Nothing here is
 * trusted further than to be shown to the one who asked. */
#include "engine/files_parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- payloads ---- */

struct cursor {
    const char *at;
    size_t left;
};

static bool take(struct cursor *cursor, void *into, size_t size)
{
    if (cursor->left < size)
        return false;
    memcpy(into, cursor->at, size);
    cursor->at += size;
    cursor->left -= size;
    return true;
}

/* A text with its NUL, of `most` bytes with it. */
static bool take_text(struct cursor *cursor, size_t most, const char **text)
{
    const char *end = memchr(cursor->at, '\0', cursor->left < most ? cursor->left : most);

    if (end == NULL)
        return false;
    *text = cursor->at;
    cursor->left -= (size_t)(end - cursor->at) + 1;
    cursor->at = end + 1;
    return true;
}

/* ---- each type ---- */

static bool take_entry(struct cursor *cursor, struct files_entry *entry)
{
    struct tool_entry raw;

    if (!take(cursor, &raw, sizeof(raw)) || !take_text(cursor, TOOL_PATH_MAX, &entry->path) ||
        !take_text(cursor, TOOL_PATH_MAX, &entry->target) ||
        !take_text(cursor, TOOL_NAME_MAX, &entry->user) ||
        !take_text(cursor, TOOL_NAME_MAX, &entry->group) || cursor->left != 0)
        return false;
    entry->operand = raw.operand;
    entry->mode = raw.mode;
    entry->uid = raw.uid;
    entry->gid = raw.gid;
    entry->depth = raw.depth;
    entry->size = raw.size;
    entry->inode = raw.inode;
    entry->links = raw.links;
    entry->modified_ns = raw.modified_ns;
    entry->changed_ns = raw.changed_ns;
    entry->accessed_ns = raw.accessed_ns;
    return raw.size <= INT64_MAX;
}

/* `entry` stands last in struct tool_begin, and its texts may follow it. */
static bool take_begin(struct cursor *cursor, struct files_item *item)
{
    struct tool_begin raw;

    if (cursor->left < sizeof(raw))
        return false;
    memcpy(&raw, cursor->at, sizeof(raw));
    cursor->at += offsetof(struct tool_begin, entry);
    cursor->left -= offsetof(struct tool_begin, entry);
    item->begin.size = raw.size;
    item->begin.offset = raw.offset;
    if (raw.size != UINT64_MAX && (raw.size > INT64_MAX || raw.offset > INT64_MAX))
        return false;
    if (cursor->left > sizeof(raw.entry))
        return take_entry(cursor, &item->entry);
    item->entry = (struct files_entry){
        .mode = raw.entry.mode,
        .uid = raw.entry.uid,
        .gid = raw.entry.gid,
        .size = raw.entry.size,
        .inode = raw.entry.inode,
        .links = raw.entry.links,
        .modified_ns = raw.entry.modified_ns,
        .changed_ns = raw.entry.changed_ns,
        .accessed_ns = raw.entry.accessed_ns,
        .path = "",
        .target = "",
        .user = "",
        .group = "",
    };
    return raw.entry.size <= INT64_MAX;
}

static bool take_match(struct cursor *cursor, struct files_item *item)
{
    struct tool_match raw;

    if (!take(cursor, &raw, sizeof(raw)) || !take_text(cursor, TOOL_PATH_MAX, &item->path))
        return false;
    item->match.line = raw.line;
    item->match.offset = raw.offset;
    item->match.column = raw.column;
    item->match.length = raw.length;
    item->match.column16 = raw.column16;
    item->match.length16 = raw.length16;
    item->match.is_cut = raw.is_cut != 0;
    item->match.is_context = raw.is_context != 0;
    item->match.text = cursor->at;
    item->match.size = cursor->left;
    return true;
}

static bool take_change(struct cursor *cursor, struct files_item *item)
{
    struct tool_change raw;

    if (!take(cursor, &raw, sizeof(raw)) || raw.kind < TOOL_CREATED || raw.kind > TOOL_UNWATCHED ||
        !take_text(cursor, TOOL_PATH_MAX, &item->path) ||
        !take_text(cursor, TOOL_PATH_MAX, &item->change.to))
        return false;
    item->change.sequence = raw.sequence;
    item->change.kind = raw.kind;
    item->change.is_directory = raw.is_directory != 0;
    return cursor->left == 0;
}

static bool take_attribute(struct cursor *cursor, struct files_item *item)
{
    if (!take_text(cursor, TOOL_NAME_MAX, &item->attribute.name))
        return false;
    item->attribute.value = cursor->at;
    item->attribute.size = cursor->left;
    return true;
}

static bool take_gone(struct cursor *cursor, struct files_item *item)
{
    struct tool_gone raw;

    if (!take(cursor, &raw, sizeof(raw)) || !take_text(cursor, TOOL_PATH_MAX, &item->path))
        return false;
    item->operand = raw.operand;
    item->end.count = raw.count;
    item->end.bytes = raw.bytes;
    return cursor->left == 0;
}

static bool take_done(struct cursor *cursor, struct files_item *item)
{
    struct tool_done raw;

    if (!take(cursor, &raw, sizeof(raw)))
        return false;
    item->end.count = raw.count;
    item->end.bytes = raw.bytes;
    item->end.is_truncated = raw.is_truncated != 0;
    return cursor->left == 0;
}

/* ---- errors ---- */

/* Why a system call failed, and what to do about it: "PATH: CAUSE; REMEDY", or where the cause is none
 * without what was tried, "PATH: cannot DO IT: CAUSE; REMEDY". */
static const struct reason {
    int errnum;
    bool says_all;
    const char *code, *cause, *remedy;
} by_errno[] = {
    {ENOENT, true, "file_not_found", "there is no such file or directory",
     "check the path, or list what is there"},
    {ENODATA, true, "file_not_found", "it has no such attribute", "list those that it has"},
    {ELOOP, true, "file_not_found", "its links lead to each other without end",
     "name what they should lead to"},
    {EACCES, false, "file_forbidden", "the user may not",
     "ask as another one (\"user\"), such as root, or change permissions first"},
    {EPERM, false, "file_forbidden", "the user may not",
     "ask as another one (\"user\"), such as root"},
    {EROFS, false, "file_forbidden", "what is mounted there is read-only",
     "take another path: only the host's directories and read-only mounts cannot be changed"},
    {EXDEV, false, "file_forbidden", "it is on another file system", "copy it"},
    {ENOTDIR, true, "not_a_directory", "it is no directory", "name one"},
    {EISDIR, true, "is_a_directory", "it is a directory", "name a file"},
    {EEXIST, true, "file_exists", "something of that name is there already",
     "take another name, or replace or remove that"},
    {ENOTEMPTY, true, "directory_not_empty", "the directory is not empty",
     "remove it with all that is in it by \"recursive\": true"},
    {ENAMETOOLONG, true, "name_too_long", "the path is too long",
     "take names of at most 255 bytes, and 4095 in all"},
    {ENOSPC, false, "disk_full", "the disk is full",
     "remove what is not needed, or make a sandbox with a larger disk"},
    {EDQUOT, false, "disk_full", "the disk is full",
     "remove what is not needed, or make a sandbox with a larger disk"},
    {EBUSY, false, "file_busy", "it is in use, or something is mounted there", "end what uses it"},
    {ETXTBSY, false, "file_busy", "it runs as a program", "end that first"},
    {ENOMEM, false, "capacity", "there is no memory for it now",
     "end what is not needed in the sandbox"},
    {EMFILE, false, "capacity", "too many files are open", "ask again in a moment"},
    {ENFILE, false, "capacity", "too many files are open on the host", "ask again in a moment"},
    {EFBIG, false, "disk_full", "no file there may be that large",
     "write less, or make a sandbox with a larger disk"},
    {EOPNOTSUPP, false, "file_failed", "its file system cannot do that", "take another place"},
    {EIO, false, "file_failed", "the disk failed", "see to the disk of the host"},
};

/* What a tool calls its own reasons, as callers know them. */
static const struct {
    const char *word, *code;
} by_word[] = {
    {"not_regular", "not_regular"},
    {"is_directory", "is_a_directory"},
    {"is_a_directory", "is_a_directory"},
    {"not_a_directory", "not_a_directory"},
    {"bad_archive", "bad_archive"},
    {"bad_pattern", "bad_pattern"},
    {"timeout", "timeout"},
    {"limit", "too_many_files"},
    {"outside", "file_forbidden"},
    {"beneath", "file_forbidden"},
    {"range", "bad_range"},
    {"user_not_found", "user_not_found"},
    {"unknown_user", "user_not_found"},
    {"bad_option", "bad_request"},
    {"bad_input", "bad_request"},
    {"moved", "file_busy"},
    {"too_long", "too_many_files"},
    {"no_parent", "file_not_found"},
    {"exists", "file_exists"},
    {"unnamed", "file_busy"},
    {"no_room", "file_failed"},
    {"not_ours", "file_forbidden"},
};

static const struct reason *reason_of(int errnum)
{
    for (size_t i = 0; i < sizeof(by_errno) / sizeof(by_errno[0]); i++)
        if (by_errno[i].errnum == errnum)
            return &by_errno[i];
    return NULL;
}

static const char *code_of(const char *word, int errnum)
{
    const struct reason *reason = reason_of(errnum);

    for (size_t i = 0; *word != '\0' && i < sizeof(by_word) / sizeof(by_word[0]); i++)
        if (strcmp(by_word[i].word, word) == 0)
            return by_word[i].code;
    return reason != NULL ? reason->code : "file_failed";
}

/* What is wrong with a pattern is not so of a path. */
static bool is_of_path(const char *code, const char *path)
{
    return *path != '\0' && strcmp(code, "bad_pattern") != 0;
}

static void set_error(struct error *err, const struct tool_error *raw, int errnum, const char *path)
{
    const char *code = code_of(raw->code, errnum);
    const struct reason *reason = reason_of(errnum);
    const char *colon = is_of_path(code, path) ? ": " : "";
    const char *what = raw->text[0] != '\0' ? raw->text : "do it";

    path = *colon != '\0' ? path : "";
    if (raw->code[0] != '\0')
        (void)error_set(err, code, 0, "%.200s%s%s", path, colon, what);
    else if (reason == NULL)
        (void)error_set(err, code, errnum, "%.200s%scannot %s", path, colon, what);
    else if (reason->says_all)
        (void)error_set(err, code, 0, "%.200s%s%s; %s", path, colon, reason->cause, reason->remedy);
    else
        (void)error_set(err, code, 0, "%.200s%scannot %s: %s; %s", path, colon, what, reason->cause,
                        reason->remedy);
    err->errnum = errnum;
}

static bool take_error(struct cursor *cursor, struct files_item *item)
{
    struct tool_error raw;

    if (!take(cursor, &raw, sizeof(raw)) || !take_text(cursor, TOOL_PATH_MAX, &item->path) ||
        cursor->left != 0 || raw.operand < -1)
        return false;
    raw.code[sizeof(raw.code) - 1] = '\0';
    raw.text[sizeof(raw.text) - 1] = '\0';
    item->kind = raw.operand < 0 ? FILES_END : FILES_FAILED;
    item->operand = raw.operand < 0 ? 0 : (uint32_t)raw.operand;
    set_error(&item->error, &raw, raw.errnum > 0 && raw.errnum < 4096 ? raw.errnum : 0, item->path);
    return true;
}

/* ---- which may come ---- */

size_t files_payload_max(enum files_verb verb, uint32_t type)
{
    bool has_entries = verb != FILES_READ && verb != FILES_TAR_OUT && verb != FILES_WATCH;

    switch (type) {
    case TOOL_ENTRY:
        return has_entries ? TOOL_FRAME_MAX : 0;
    case TOOL_ERROR:
    case TOOL_DONE:
        return TOOL_FRAME_MAX;
    case TOOL_BEGIN:
        return files_rows[verb].has_bytes ? TOOL_FRAME_MAX : 0;
    case TOOL_DATA:
        return files_rows[verb].has_bytes ? TOOL_DATA_MAX : 0;
    case TOOL_MATCH:
        return verb == FILES_GREP ? TOOL_FRAME_MAX : 0;
    case TOOL_CHANGE:
        return verb == FILES_WATCH ? TOOL_FRAME_MAX : 0;
    case TOOL_ATTRIBUTE:
        return verb == FILES_GETXATTR ? TOOL_FRAME_MAX : 0;
    case TOOL_WROTE:
        return verb == FILES_WRITE ? TOOL_FRAME_MAX : 0;
    case TOOL_GONE:
        return verb == FILES_REMOVE ? TOOL_FRAME_MAX : 0;
    default:
        return 0;
    }
}

int files_parse(uint32_t type, const char *payload, size_t size, struct files_item *item)
{
    struct cursor cursor = {payload, size};
    bool is_fine = false;

    memset(item, 0, sizeof(*item));
    switch (type) {
    case TOOL_ENTRY:
    case TOOL_WROTE:
        item->kind = type == TOOL_ENTRY ? FILES_ENTRY : FILES_WROTE;
        is_fine = take_entry(&cursor, &item->entry);
        break;
    case TOOL_ERROR:
        is_fine = take_error(&cursor, item);
        break;
    case TOOL_DONE:
        item->kind = FILES_END;
        is_fine = take_done(&cursor, item);
        break;
    case TOOL_BEGIN:
        item->kind = FILES_BEGIN;
        is_fine = take_begin(&cursor, item);
        break;
    case TOOL_MATCH:
        item->kind = FILES_MATCH;
        is_fine = take_match(&cursor, item);
        break;
    case TOOL_CHANGE:
        item->kind = FILES_CHANGE;
        is_fine = take_change(&cursor, item);
        break;
    case TOOL_ATTRIBUTE:
        item->kind = FILES_ATTRIBUTE;
        is_fine = take_attribute(&cursor, item);
        break;
    case TOOL_GONE:
        item->kind = FILES_GONE;
        is_fine = take_gone(&cursor, item);
        break;
    default:
        break;
    }
    return is_fine ? 0 : -1;
}
