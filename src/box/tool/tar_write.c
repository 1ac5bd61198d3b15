/* Writing archives: see tar.h. What a plain header can say stands there alone; only what it cannot say (long
 * names, parts of a second, large numbers, attributes) goes into an extended one before it. */
#include "box/tool/tar.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- records ---- */

struct records {
    char *text;
    size_t used, size;
    bool is_full;
};

/* "LENGTH KEY=VALUE\n": its own digits count, too. */
static void add(struct records *records, const char *key, const void *value, size_t value_size)
{
    size_t bare = strlen(key) + value_size + 3, length = bare + 1;
    int head;

    for (size_t digits = 1, limit = 10; length >= limit; limit *= 10)
        length = bare + ++digits;
    if (length + 1 > records->size - records->used) {
        records->is_full = true;
        return;
    }
    head = snprintf(records->text + records->used, records->size - records->used, "%zu %s=", length,
                    key);
    memcpy(records->text + records->used + head, value, value_size);
    records->used += length;
    records->text[records->used - 1] = '\n';
}

static void add_text(struct records *records, const char *key, const char *text)
{
    add(records, key, text, strlen(text));
}

static void add_number(struct records *records, const char *key, uint64_t number)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%" PRIu64, number);
    add_text(records, key, text);
}

static void add_time(struct records *records, const struct tar_entry *entry)
{
    int64_t seconds = entry->modified_s;
    uint32_t ns = entry->modified_ns;
    char text[48];

    if (seconds < 0 && ns > 0) {
        seconds++;
        ns = 1000000000 - ns;
    }
    (void)snprintf(text, sizeof(text), "%s%" PRIu64 ".%09" PRIu32, entry->modified_s < 0 ? "-" : "",
                   seconds < 0 ? -(uint64_t)seconds : (uint64_t)seconds, ns);
    add_text(records, "mtime", text);
}

/* ---- the plain header ---- */

#define OCTAL_7 07777777ULL
#define OCTAL_11 077777777777ULL

static void put_octal(char *field, size_t size, uint64_t value)
{
    for (size_t i = size - 1; i-- > 0; value >>= 3)
        field[i] = (char)('0' + (value & 7));
    field[size - 1] = '\0';
}

static void put_text(char *field, size_t size, const char *text)
{
    memcpy(field, text, strnlen(text, size));
}

/* Into name and prefix, where both take it; where not, what of it fits. */
static bool put_path(struct tar_raw *raw, const char *path)
{
    size_t length = strlen(path), cut;

    put_text(raw->name, sizeof(raw->name), path);
    if (length <= sizeof(raw->name))
        return true;
    for (cut = length - sizeof(raw->name) - 1; cut < length - 1 && path[cut] != '/'; cut++)
        ;
    if (cut == 0 || cut >= length - 1 || cut > sizeof(raw->prefix))
        return false;
    memset(raw->name, 0, sizeof(raw->name));
    memcpy(raw->prefix, path, cut);
    memcpy(raw->name, path + cut + 1, length - cut - 1);
    return true;
}

static void finish(struct tar_raw *raw)
{
    const unsigned char *bytes = (const unsigned char *)raw;
    uint64_t sum = 0;

    memcpy(raw->magic, "ustar", 6);
    memcpy(raw->version, "00", 2);
    memset(raw->sum, ' ', sizeof(raw->sum));
    for (size_t i = 0; i < sizeof(*raw); i++)
        sum += bytes[i];
    put_octal(raw->sum, 7, sum);
}

static void fill(struct tar_raw *raw, const struct tar_entry *entry, struct records *records)
{
    bool is_old = entry->modified_s < 0;
    char key[300];

    memset(raw, 0, sizeof(*raw));
    raw->type = (char)entry->type;
    if (!put_path(raw, entry->path))
        add_text(records, "path", entry->path);
    if (entry->target != NULL) {
        put_text(raw->target, sizeof(raw->target), entry->target);
        if (strlen(entry->target) > sizeof(raw->target))
            add_text(records, "linkpath", entry->target);
    }
    put_octal(raw->mode, sizeof(raw->mode), entry->mode & 07777);
    put_octal(raw->uid, sizeof(raw->uid), entry->uid > OCTAL_7 ? 0 : entry->uid);
    put_octal(raw->gid, sizeof(raw->gid), entry->gid > OCTAL_7 ? 0 : entry->gid);
    put_octal(raw->size, sizeof(raw->size), entry->size > OCTAL_11 ? 0 : entry->size);
    put_octal(raw->modified, sizeof(raw->modified),
              is_old ? 0 : (uint64_t)entry->modified_s & OCTAL_11);
    put_text(raw->user, sizeof(raw->user) - 1, entry->user);
    put_text(raw->group, sizeof(raw->group) - 1, entry->group);
    if (entry->uid > OCTAL_7)
        add_number(records, "uid", entry->uid);
    if (entry->gid > OCTAL_7)
        add_number(records, "gid", entry->gid);
    if (entry->size > OCTAL_11)
        add_number(records, "size", entry->size);
    if (is_old || entry->modified_ns > 0 || (uint64_t)entry->modified_s > OCTAL_11)
        add_time(records, entry);
    for (size_t i = 0; i < entry->attributes_count; i++) {
        (void)snprintf(key, sizeof(key), "SCHILY.xattr.%s", entry->attributes[i].name);
        add(records, key, entry->attributes[i].value, entry->attributes[i].size);
    }
    finish(raw);
}

int tar_header(const struct tar_entry *entry, char header[TAR_HEADER_MAX], struct error *err)
{
    struct records records = {.text = header + TAR_BLOCK, .size = TAR_EXTENDED_MAX};
    struct tar_raw own, extended;
    size_t size;

    fill(&own, entry, &records);
    if (records.is_full)
        return error_set(err, "limit", 0,
                         "keep its name and attributes in an archive: they are too long");
    if (records.used == 0) {
        memcpy(header, &own, sizeof(own));
        return TAR_BLOCK;
    }
    memset(&extended, 0, sizeof(extended));
    extended.type = 'x';
    put_text(extended.name, sizeof(extended.name), "././@PaxHeader");
    put_octal(extended.mode, sizeof(extended.mode), 0644);
    put_octal(extended.uid, sizeof(extended.uid), 0);
    put_octal(extended.gid, sizeof(extended.gid), 0);
    put_octal(extended.size, sizeof(extended.size), records.used);
    put_octal(extended.modified, sizeof(extended.modified), 0);
    finish(&extended);
    memcpy(header, &extended, sizeof(extended));
    size = (TAR_BLOCK + records.used + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    memset(header + TAR_BLOCK + records.used, 0, size - TAR_BLOCK - records.used);
    memcpy(header + size, &own, sizeof(own));
    return (int)(size + TAR_BLOCK);
}
