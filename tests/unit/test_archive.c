/* Archives: what is written is read as it was, at the edges of what a header can say. */
#include "box/tool/parts.h"
#include "box/tool/tar.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>

struct source {
    const char *data;
    size_t size, at;
};

static int from_memory(void *arg, void *data, size_t size, struct error *err)
{
    struct source *source = arg;

    (void)err;
    if (source->at == source->size)
        return 1;
    if (size > source->size - source->at)
        return fail(err, 0, "input_ended", "cut");
    memcpy(data, source->data + source->at, size);
    source->at += size;
    return 0;
}

static char header[TAR_HEADER_MAX + 2 * TAR_BLOCK];
static struct tar_reader reader;

static void round_trip(const struct tar_entry *entry, int least)
{
    struct error err = {0};
    int size = tar_header(entry, header, &err), got;
    struct source source = {.data = header};
    const struct tar_entry *is = &reader.entry;

    CHECK(size >= least && size % TAR_BLOCK == 0, "%s: %d bytes", entry->path, size);
    if (size < 0)
        return;
    memset(header + size, 0, (size_t)2 * TAR_BLOCK);
    source.size = (size_t)size + (size_t)2 * TAR_BLOCK;
    tar_begin(&reader, from_memory, &source);
    got = tar_next(&reader, &err);
    CHECK(got == 1, "%s", err.text);
    if (got != 1)
        return;
    CHECK(strcmp(is->path, entry->path) == 0, "the path %s", is->path);
    CHECK(entry->target == NULL || strcmp(is->target, entry->target) == 0, "the target");
    CHECK(is->type == entry->type && is->mode == entry->mode, "type and mode");
    CHECK(is->uid == entry->uid && is->gid == entry->gid, "owners");
    CHECK(is->size == entry->size, "the size %llu", (unsigned long long)is->size);
    CHECK(is->modified_s == entry->modified_s && is->modified_ns == entry->modified_ns,
          "the time %lld.%u", (long long)is->modified_s, is->modified_ns);
    CHECK(strcmp(is->user, entry->user) == 0 && strcmp(is->group, entry->group) == 0, "names");
    CHECK(is->attributes_count == entry->attributes_count, "attributes");
    for (size_t i = 0; i < is->attributes_count && i < entry->attributes_count; i++)
        CHECK(is->attributes[i].size == entry->attributes[i].size &&
                  memcmp(is->attributes[i].value, entry->attributes[i].value,
                         is->attributes[i].size) == 0,
              "the attribute %s", is->attributes[i].name);
    reader.left = reader.padding = 0;
    CHECK(tar_next(&reader, &err) == 0, "then it ends");
}

static void lengths(void)
{
    static char path[TAR_PATH_MAX], target[TAR_PATH_MAX];

    for (size_t length = 1; length < TAR_PATH_MAX; length += length < 300 ? 1 : 997) {
        struct tar_entry entry = {
            .type = TAR_SYMLINK, .mode = 0777, .path = path, .target = target};

        memset(path, 'p', length);
        path[length] = '\0';
        memset(target, 't', length);
        target[length] = '\0';
        round_trip(&entry, TAR_BLOCK);
        for (size_t i = 7; i < length - 1; i += 50)
            path[i] = '/';
        round_trip(&entry, TAR_BLOCK);
    }
}

static void numbers(void)
{
    static const int64_t times[] = {
        0, 1, -1, 077777777777, 0100000000000, -62135596800, INT64_MAX / 4};
    static const uint64_t sizes[] = {0, 1, 077777777777, 0100000000000, INT64_MAX};
    static char path[] = "file";
    struct tar_entry entry = {.type = TAR_FILE, .path = path, .user = "user", .group = "group"};

    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        entry.modified_s = times[i];
        entry.modified_ns = 0;
        round_trip(&entry, TAR_BLOCK);
        entry.modified_ns = 999999999;
        round_trip(&entry, 3 * TAR_BLOCK);
    }
    entry.modified_s = 0;
    entry.modified_ns = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        entry.size = sizes[i];
        round_trip(&entry, TAR_BLOCK);
    }
    entry.size = 0;
    for (uint64_t id = 1; id < UINT32_MAX; id = id * 8 - 1) {
        entry.uid = id;
        entry.gid = id + 1;
        entry.mode = (uint32_t)(id & 07777);
        round_trip(&entry, TAR_BLOCK);
    }
}

static void attributes(void)
{
    static char path[] = "file", value[TAR_EXTENDED_MAX];
    struct tar_entry entry = {.type = TAR_FILE, .path = path};
    struct error err;

    for (size_t i = 0; i < 5; i++)
        entry.attributes[i] = (struct tar_attribute){"user.a", value, i == 0 ? 0 : 8UL << (2 * i)};
    entry.attributes_count = 5;
    value[3] = '\n';
    value[5] = '=';
    round_trip(&entry, 3 * TAR_BLOCK);
    /* Where a record's own length gets a digit more. */
    entry.attributes_count = 1;
    for (size_t size = 60; size < 1100; size++) {
        entry.attributes[0].size = size;
        round_trip(&entry, 3 * TAR_BLOCK);
    }
    entry.attributes[0].size = sizeof(value);
    CHECK(tar_header(&entry, header, &err) < 0, "too much for one header");
}

int main(void)
{
    lengths();
    numbers();
    attributes();
    return check_finish();
}
