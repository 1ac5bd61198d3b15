/* Any bytes as an archive: read or refused with a sentence, and what is read holds what tar.h promises. */
#include "box/tool/parts.h"
#include "box/tool/tar.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

struct source {
    const uint8_t *data;
    size_t left;
};

static int from_memory(void *arg, void *data, size_t size, struct error *err)
{
    struct source *source = arg;

    if (source->left == 0)
        return 1;
    if (size > source->left)
        return fail(err, 0, "bad_archive", "cut");
    memcpy(data, source->data, size);
    source->data += size;
    source->left -= size;
    return 0;
}

/* Sums are made right where they stand, or no change would ever come further than that. */
static void mend(uint8_t *data, size_t size)
{
    for (size_t at = 0; at + TAR_BLOCK <= size; at += TAR_BLOCK) {
        unsigned sum = 0;

        if (memcmp(data + at + 257, "ustar", 5) != 0)
            continue;
        memset(data + at + 148, ' ', 8);
        for (size_t i = 0; i < TAR_BLOCK; i++)
            sum += data[at + i];
        for (size_t i = 6; i-- > 0; sum >>= 3)
            data[at + 148 + i] = (uint8_t)('0' + (sum & 7));
        data[at + 154] = '\0';
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tar_reader reader;
    uint8_t *copy = malloc(size + 1);
    struct source source = {.data = copy, .left = size};
    struct error err = {0};
    int got;

    if (copy == NULL)
        abort();
    if (size > 0)
        memcpy(copy, data, size);
    mend(copy, size);
    tar_begin(&reader, from_memory, &source);
    while ((got = tar_next(&reader, &err)) > 0) {
        const struct tar_entry *entry = &reader.entry;
        size_t sum = 0;

        if (*entry->path == '\0' || strlen(entry->path) >= TAR_PATH_MAX ||
            strlen(entry->target) >= TAR_PATH_MAX || entry->mode > 07777 ||
            entry->modified_ns >= 1000000000 || (int64_t)entry->size < 0)
            abort();
        for (size_t i = 0; i < entry->attributes_count; i++) {
            sum += strlen(entry->attributes[i].name);
            for (size_t j = 0; j < entry->attributes[i].size; j++)
                sum += (unsigned char)entry->attributes[i].value[j];
        }
        if (sum == SIZE_MAX) /* never: but each byte was read */
            abort();
    }
    if (got < 0 && (err.text[0] == '\0' || err.code[0] == '\0'))
        abort();
    free(copy);
    return 0;
}
