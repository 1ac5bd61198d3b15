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

static const struct {
    const char *code;
    int errnums[4];
} by_errno[] = {
    {"file_not_found", {ENOENT, ELOOP, ENODATA}},
    {"file_forbidden", {EACCES, EPERM, EROFS, EXDEV}},
    {"not_a_directory", {ENOTDIR}},
    {"is_a_directory", {EISDIR}},
    {"file_exists", {EEXIST}},
    {"directory_not_empty", {ENOTEMPTY}},
    {"name_too_long", {ENAMETOOLONG}},
    {"disk_full", {ENOSPC, EDQUOT}},
    {"file_busy", {EBUSY, ETXTBSY}},
    {"capacity", {ENOMEM, EMFILE, ENFILE}},
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
};

static const char *code_of(const char *word, int errnum)
{
    for (size_t i = 0; *word != '\0' && i < sizeof(by_word) / sizeof(by_word[0]); i++)
        if (strcmp(by_word[i].word, word) == 0)
            return by_word[i].code;
    for (size_t i = 0; errnum > 0 && i < sizeof(by_errno) / sizeof(by_errno[0]); i++)
        for (size_t k = 0; k < 4; k++)
            if (by_errno[i].errnums[k] == errnum)
                return by_errno[i].code;
    return "file_failed";
}

void files_error(struct error *err, int errnum, const char *path, const char *what)
{
    const char *code = code_of("", errnum);

    (void)error_set(err, code, errnum, "%.200s%s%.160s", path, *path != '\0' ? ": " : "", what);
}

static bool take_error(struct cursor *cursor, struct files_item *item)
{
    struct tool_error raw;
    int errnum;

    if (!take(cursor, &raw, sizeof(raw)) || !take_text(cursor, TOOL_PATH_MAX, &item->path) ||
        cursor->left != 0 || raw.operand < -1)
        return false;
    raw.code[sizeof(raw.code) - 1] = '\0';
    raw.text[sizeof(raw.text) - 1] = '\0';
    errnum = raw.errnum > 0 && raw.errnum < 4096 ? raw.errnum : 0;
    item->kind = raw.operand < 0 ? FILES_END : FILES_FAILED;
    item->operand = raw.operand < 0 ? 0 : (uint32_t)raw.operand;
    (void)error_set(&item->error, code_of(raw.code, errnum), errnum, "%.200s%s%s", item->path,
                    *item->path != '\0' ? ": " : "",
                    raw.text[0] != '\0'   ? raw.text
                    : raw.code[0] != '\0' ? raw.code
                                          : "it failed");
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
    default:
        break;
    }
    return is_fine ? 0 : -1;
}
