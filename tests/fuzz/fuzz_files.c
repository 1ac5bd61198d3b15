/* What a tool in a box may say of files, as whoever took the box over makes it up: no frame may crash us,
 * and every text that is read from one ends within it.
 *
 * An input is the verb, the type of a frame, and its payload. */
#include "engine/files_parts.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *begin, *end;

static void check_text(const char *text, size_t most)
{
    if (text == NULL)
        return;
    if (strlen(text) >= most)
        abort();
    if (*text != '\0' && (text < begin || text + strlen(text) >= end))
        abort();
}

static void check_entry(const struct files_entry *entry)
{
    check_text(entry->path, TOOL_PATH_MAX);
    check_text(entry->target, TOOL_PATH_MAX);
    check_text(entry->user, TOOL_NAME_MAX);
    check_text(entry->group, TOOL_NAME_MAX);
    if (entry->size > INT64_MAX)
        abort();
}

static void check_bytes(const void *bytes, size_t size)
{
    const char *at = bytes;

    if (size > 0 && (at < begin || at + size > end))
        abort();
}

static void check(const struct files_item *item)
{
    check_text(item->path, TOOL_PATH_MAX);
    if (memchr(item->error.text, '\0', sizeof(item->error.text)) == NULL ||
        memchr(item->error.code, '\0', sizeof(item->error.code)) == NULL)
        abort();
    switch (item->kind) {
    case FILES_ENTRY:
    case FILES_WROTE:
    case FILES_BEGIN:
        check_entry(&item->entry);
        break;
    case FILES_MATCH:
        check_bytes(item->match.text, item->match.size);
        break;
    case FILES_CHANGE:
        check_text(item->change.to, TOOL_PATH_MAX);
        if (item->change.kind < TOOL_CREATED || item->change.kind > TOOL_UNWATCHED)
            abort();
        break;
    case FILES_ATTRIBUTE:
        check_text(item->attribute.name, TOOL_NAME_MAX);
        check_bytes(item->attribute.value, item->attribute.size);
        break;
    case FILES_FAILED:
    case FILES_GONE:
    case FILES_END:
    case FILES_BYTES:
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct files_item item;
    enum files_verb verb;
    uint32_t type;
    char *payload;

    if (size < 2)
        return 0;
    verb = (enum files_verb)(data[0] % FILES_VERBS);
    type = data[1];
    data += 2;
    size -= 2;
    if (files_payload_max(verb, type) > TOOL_DATA_MAX)
        abort();
    if (size > files_payload_max(verb, type) || type == TOOL_DATA)
        return 0;
    payload = malloc(size > 0 ? size : 1); /* of its own, so that a sanitizer sees its end */
    if (payload == NULL)
        return 0;
    memcpy(payload, data, size);
    begin = payload;
    end = payload + size;
    if (files_parse(type, payload, size, &item) == 0)
        check(&item);
    free(payload);
    return 0;
}
