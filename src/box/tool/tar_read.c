/* Reading archives: see tar.h. Every length is checked against what is there before it is used; numbers that
 * do not fit, names with a NUL, records that do not add up end it. */
#include "box/tool/tar.h"

#include <string.h>

static int bad(struct error *err, const char *why)
{
    return error_set(err, "bad_archive", 0, "the archive cannot be read: %s%s", why,
                     strchr(why, ';') != NULL ? ""
                                              : "; send a tar that is whole and not compressed");
}

/* ---- numbers ---- */

/* Octal digits between blanks, or with the first bit set a number of base 256 of either sign. */
static int take_number(const char *field, size_t size, int64_t *value)
{
    const unsigned char *at = (const unsigned char *)field;
    uint64_t sum = 0;
    size_t i = 0;

    if ((at[0] & 0x80) != 0) {
        bool is_negative = (at[0] & 0x40) != 0;

        sum = is_negative ? UINT64_MAX << 6 | (at[0] & 0x3fU) : at[0] & 0x3fU;
        for (i = 1; i < size; i++) {
            if (is_negative ? sum >> 55 != UINT64_MAX >> 55 : sum >> 55 != 0)
                return -1;
            sum = sum << 8 | at[i];
        }
        *value = (int64_t)sum;
        return 0;
    }
    while (i < size && at[i] == ' ')
        i++;
    for (; i < size && at[i] >= '0' && at[i] <= '7'; i++)
        sum = sum << 3 | (at[i] - '0'); /* twelve digits fit */
    for (; i < size; i++)
        if (at[i] != ' ' && at[i] != '\0')
            return -1;
    *value = (int64_t)sum;
    return 0;
}

static int take_decimal(const char *text, uint64_t *value)
{
    uint64_t sum = 0;

    if (*text == '\0')
        return -1;
    for (; *text != '\0'; text++) {
        unsigned digit = (unsigned)(*text - '0');

        if (digit > 9 || sum > ((uint64_t)INT64_MAX - digit) / 10)
            return -1;
        sum = sum * 10 + digit;
    }
    *value = sum;
    return 0;
}

/* Seconds with a fraction, of either sign. */
static int take_time(char *text, int64_t *seconds, uint32_t *ns)
{
    bool is_negative = *text == '-';
    char *dot = strchr(text, '.');
    uint32_t part = 0, unit = 100000000;
    uint64_t whole;

    if (dot != NULL)
        *dot = '\0';
    if (take_decimal(text + is_negative, &whole) < 0)
        return -1;
    for (const char *at = dot == NULL ? "" : dot + 1; *at != '\0'; at++, unit /= 10) {
        if (*at < '0' || *at > '9')
            return -1;
        part += (uint32_t)(*at - '0') * unit;
    }
    *seconds = is_negative ? -(int64_t)whole : (int64_t)whole;
    *ns = part;
    if (is_negative && part > 0) {
        (*seconds)--;
        *ns = 1000000000 - part;
    }
    return 0;
}

/* ---- texts ---- */

static int keep(char to[TAR_PATH_MAX], const char *from, size_t size, struct error *err)
{
    if (size >= TAR_PATH_MAX)
        return bad(err, "a name in it is too long");
    if (memchr(from, '\0', size) != NULL)
        return bad(err, "a name in it has a zero byte");
    memcpy(to, from, size);
    to[size] = '\0';
    return 0;
}

/* A name that is too long to be one of this box is none. */
static void keep_name(char to[TAR_NAME_SIZE], const char *from, size_t size)
{
    if (size >= TAR_NAME_SIZE)
        size = 0;
    memcpy(to, from, size);
    to[size] = '\0';
}

/* ---- what stands before an entry ---- */

static int pass_over(struct tar_reader *reader, struct error *err)
{
    char passed[4096];
    uint64_t left = reader->left + reader->padding;

    while (left > 0) {
        size_t some = left < sizeof(passed) ? (size_t)left : sizeof(passed);
        int got = reader->source(reader->arg, passed, some, err);

        if (got != 0)
            return got < 0 ? -1 : bad(err, "it ends within an entry");
        left -= some;
    }
    reader->left = reader->padding = 0;
    return 0;
}

static void set_left(struct tar_reader *reader, uint64_t size)
{
    reader->left = size;
    reader->padding = (uint32_t)(-size % TAR_BLOCK);
}

/* All of what a header announces, which ends with a NUL of ours. */
static int take_text(struct tar_reader *reader, char *text, size_t text_size, uint64_t size,
                     struct error *err)
{
    int got = 0;

    if (size >= text_size)
        return bad(err, "a name or an extended header in it is too long");
    if (size > 0)
        got = reader->source(reader->arg, text, (size_t)size, err);
    if (got != 0)
        return got < 0 ? -1 : bad(err, "it ends within an entry");
    text[size] = '\0';
    set_left(reader, size);
    reader->left = 0;
    return pass_over(reader, err);
}

static int take_long(char to[TAR_PATH_MAX], bool *has, struct tar_reader *reader, uint64_t size,
                     struct error *err)
{
    *has = true;
    return take_text(reader, to, TAR_PATH_MAX, size, err);
}

/* What the pax header says instead of the entry's own. */
struct said {
    bool has_size, has_time, has_uid, has_gid, has_user, has_group;
};

static int take_record(struct tar_reader *reader, struct said *said, const char *key, char *value,
                       size_t size, struct error *err)
{
    static const char attribute[] = "SCHILY.xattr.";
    struct tar_entry *entry = &reader->entry;
    int taken = 0;

    if (strcmp(key, "path") == 0) {
        reader->has_path = true;
        return keep(reader->path, value, size, err);
    }
    if (strcmp(key, "linkpath") == 0) {
        reader->has_target = true;
        return keep(reader->target, value, size, err);
    }
    if (strncmp(key, attribute, sizeof(attribute) - 1) == 0) {
        if (entry->attributes_count == TAR_ATTRIBUTES_MAX)
            return bad(err, "an entry has too many attributes");
        entry->attributes[entry->attributes_count++] = (struct tar_attribute){
            key + sizeof(attribute) - 1, value, size};
        return 0;
    }
    if (strncmp(key, "GNU.sparse.", 11) == 0)
        return bad(err, "it has sparse files; write it without --sparse");
    if (strcmp(key, "size") == 0)
        taken = take_decimal(value, &entry->size), said->has_size = true;
    else if (strcmp(key, "uid") == 0)
        taken = take_decimal(value, &entry->uid), said->has_uid = true;
    else if (strcmp(key, "gid") == 0)
        taken = take_decimal(value, &entry->gid), said->has_gid = true;
    else if (strcmp(key, "mtime") == 0)
        taken = take_time(value, &entry->modified_s, &entry->modified_ns), said->has_time = true;
    else if (strcmp(key, "uname") == 0)
        keep_name(entry->user, value, size), said->has_user = true;
    else if (strcmp(key, "gname") == 0)
        keep_name(entry->group, value, size), said->has_group = true;
    return taken < 0 ? bad(err, "a number in an extended header is none") : 0;
}

/* Records are "LENGTH KEY=VALUE\n", LENGTH that of all of it. */
static int take_records(struct tar_reader *reader, struct said *said, size_t size,
                        struct error *err)
{
    char *at = reader->extended, *end = at + size;

    while (at < end) {
        size_t length = 0, digits = 0;
        char *key, *equals;

        for (; at + digits < end && at[digits] >= '0' && at[digits] <= '9' && digits < 7; digits++)
            length = length * 10 + (size_t)(at[digits] - '0');
        key = at + digits + 1;
        if (digits == 0 || at[digits] != ' ' || length > (size_t)(end - at) ||
            length < digits + 4 || at[length - 1] != '\n')
            return bad(err, "an extended header is damaged");
        at += length;
        equals = memchr(key, '=', (size_t)(at - 1 - key));
        if (equals == NULL || memchr(key, '\0', (size_t)(equals - key)) != NULL)
            return bad(err, "an extended header is damaged");
        *equals = '\0';
        at[-1] = '\0';
        if (take_record(reader, said, key, equals + 1, (size_t)(at - 1 - (equals + 1)), err) < 0)
            return -1;
    }
    return 0;
}

/* ---- the entry ---- */

static bool is_sum_right(const struct tar_raw *raw)
{
    const unsigned char *bytes = (const unsigned char *)raw;
    int64_t sum = 0, sum_signed = 0, said;

    for (size_t i = 0; i < TAR_BLOCK; i++) {
        bool is_sum = i >= offsetof(struct tar_raw, sum) &&
                      i < offsetof(struct tar_raw, sum) + sizeof(raw->sum);

        sum += is_sum ? ' ' : bytes[i];
        sum_signed += is_sum ? ' ' : (signed char)bytes[i];
    }
    return take_number(raw->sum, sizeof(raw->sum), &said) == 0 &&
           (said == sum || said == sum_signed);
}

static bool is_zero(const struct tar_raw *raw)
{
    static const struct tar_raw zero;

    return memcmp(raw, &zero, sizeof(zero)) == 0;
}

static int fill_numbers(struct tar_entry *entry, const struct said *said, const struct tar_raw *raw,
                        uint64_t size, struct error *err)
{
    int64_t mode, uid, gid, modified;

    if (take_number(raw->mode, sizeof(raw->mode), &mode) < 0 ||
        take_number(raw->uid, sizeof(raw->uid), &uid) < 0 ||
        take_number(raw->gid, sizeof(raw->gid), &gid) < 0 ||
        take_number(raw->modified, sizeof(raw->modified), &modified) < 0)
        return bad(err, "a number in a header is none");
    entry->mode = (uint32_t)(mode & 07777);
    if (!said->has_uid)
        entry->uid = (uint64_t)uid;
    if (!said->has_gid)
        entry->gid = (uint64_t)gid;
    if (!said->has_time)
        entry->modified_s = modified;
    if (!said->has_size)
        entry->size = size;
    if (!said->has_user)
        keep_name(entry->user, raw->user, strnlen(raw->user, sizeof(raw->user)));
    if (!said->has_group)
        keep_name(entry->group, raw->group, strnlen(raw->group, sizeof(raw->group)));
    return 0;
}

static void fill_names(struct tar_reader *reader, const struct tar_raw *raw)
{
    size_t name = strnlen(raw->name, sizeof(raw->name));
    size_t prefix = memcmp(raw->magic, "ustar", 6) == 0 ? strnlen(raw->prefix, sizeof(raw->prefix))
                                                        : 0;
    size_t target = strnlen(raw->target, sizeof(raw->target));

    if (!reader->has_path) {
        memcpy(reader->path, raw->prefix, prefix);
        if (prefix > 0)
            reader->path[prefix++] = '/';
        memcpy(reader->path + prefix, raw->name, name);
        reader->path[prefix + name] = '\0';
    }
    if (!reader->has_target) {
        memcpy(reader->target, raw->target, target);
        reader->target[target] = '\0';
    }
}

static int fill_type(struct tar_reader *reader, const struct tar_raw *raw, struct error *err)
{
    struct tar_entry *entry = &reader->entry;
    size_t length = strlen(reader->path);

    switch (raw->type) {
    case '\0':
    case '0':
    case '7':
        entry->type = length > 0 && reader->path[length - 1] == '/' ? TAR_DIRECTORY : TAR_FILE;
        break;
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
        entry->type = (enum tar_type)raw->type;
        break;
    case 'S':
        return bad(err, "it has sparse files; write it without --sparse");
    default:
        return bad(err, "it has an entry of a kind that is not known");
    }
    if (length == 0)
        return bad(err, "an entry has no name");
    if ((entry->type == TAR_HARD_LINK || entry->type == TAR_SYMLINK) && reader->target[0] == '\0')
        return bad(err, "a link in it leads nowhere");
    return 0;
}

static int fill(struct tar_reader *reader, const struct said *said, const struct tar_raw *raw,
                uint64_t size, struct error *err)
{
    struct tar_entry *entry = &reader->entry;

    fill_names(reader, raw);
    entry->path = reader->path;
    entry->target = reader->target;
    if (fill_type(reader, raw, err) < 0 || fill_numbers(entry, said, raw, size, err) < 0)
        return -1;
    if (entry->type != TAR_FILE)
        entry->size = 0; /* whatever it says: only files have data */
    set_left(reader, entry->size);
    return 1;
}

void tar_begin(struct tar_reader *reader, tar_source source, void *arg)
{
    reader->source = source;
    reader->arg = arg;
    reader->left = reader->padding = 0;
}

static int take_header(struct tar_reader *reader, struct tar_raw *raw, int64_t *size,
                       struct error *err)
{
    int got = reader->source(reader->arg, raw, sizeof(*raw), err);

    if (got != 0)
        return got < 0 ? -1 : bad(err, "it has no end");
    if (is_zero(raw))
        return 0;
    if (!is_sum_right(raw))
        return bad(err, "a header is damaged, or this is no tar archive");
    if (take_number(raw->size, sizeof(raw->size), size) < 0 || *size < 0)
        return bad(err, "a number in a header is none");
    return 1;
}

int tar_next(struct tar_reader *reader, struct error *err)
{
    struct said said = {0};
    struct tar_raw raw;
    int64_t size = 0;

    if (pass_over(reader, err) < 0)
        return -1;
    memset(&reader->entry, 0, sizeof(reader->entry));
    reader->has_path = reader->has_target = false;
    for (;;) {
        int got = take_header(reader, &raw, &size, err);

        if (got <= 0)
            return got;
        switch (raw.type) {
        case 'L':
            got = take_long(reader->path, &reader->has_path, reader, (uint64_t)size, err);
            break;
        case 'K':
            got = take_long(reader->target, &reader->has_target, reader, (uint64_t)size, err);
            break;
        case 'x':
            reader->entry.attributes_count = 0; /* they lie in the text of the last one */
            got = take_text(reader, reader->extended, sizeof(reader->extended), (uint64_t)size,
                            err);
            if (got == 0)
                got = take_records(reader, &said, (size_t)size, err);
            break;
        case 'g': /* of all that follow; comments of who wrote it, mostly */
        case 'V': /* the name of a tape */
            set_left(reader, (uint64_t)size);
            got = pass_over(reader, err);
            break;
        default:
            return fill(reader, &said, &raw, (uint64_t)size, err);
        }
        if (got < 0)
            return -1;
    }
}
