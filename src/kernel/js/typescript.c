/* The TypeScript eraser from outside: the source comes in, the parser runs over it, and what it blanked
 * and what it put in become the output; also the errors, and the notes on names.
 *
 * Insertions come in the order of their places, so that merging is one pass. No state outlives a call. */
#include "typescript.h"

#include "typescript_parts.h"

#include <stdlib.h>
#include <string.h>

static const char no_memory[] = "There is not enough memory to read this source.";

void ts_fail(struct ts_parser *p, uint32_t at, const char *sentence)
{
    if (!p->failed) {
        p->failed = true;
        p->failed_at = at;
        p->failure = sentence;
    }
    p->token = (struct ts_token){.kind = TOKEN_END, .start = p->token.start, .end = p->token.start};
}

void ts_fail_here(struct ts_parser *p, const char *sentence)
{
    ts_fail(p, p->token.start, sentence);
}

bool ts_grow(struct ts_parser *p, void **items, uint32_t *capacity, uint32_t count, size_t size)
{
    uint32_t wanted = *capacity == 0 ? 16 : *capacity * 2;
    void *grown;

    if (count < *capacity)
        return true;
    /* The guest has 32 bits. */
    grown = wanted > (1U << 31) / size ? NULL : realloc(*items, wanted * size);
    if (grown == NULL) {
        ts_fail_here(p, no_memory);
        return false;
    }
    *items = grown;
    *capacity = wanted;
    return true;
}

/* The bytes of a character beyond ASCII; 1 if it is none. */
static uint32_t wide_length(const struct ts_parser *p, uint32_t at, uint32_t end)
{
    uint32_t n = 1;

    while (n < 4 && at + n < end && (p->source[at + n] & 0xc0) == 0x80)
        n++;
    return n;
}

/* A character keeps its width in columns: beyond ASCII there are spaces of two and of three bytes, and
 * two of two bytes take the columns of a surrogate pair. Ends of lines stay. */
void ts_blank(struct ts_parser *p, uint32_t start, uint32_t end)
{
    static const char *const spaces[] = {"", " ", "\xc2\xa0", "\xe2\x80\x83", "\xc2\xa0\xc2\xa0"};

    if (p->failed)
        return;
    for (uint32_t i = start; i < end; i++) {
        uint32_t n;

        if (p->source[i] < 0x80) {
            if (p->source[i] != '\n' && p->source[i] != '\r')
                p->output[i] = ' ';
            continue;
        }
        n = wide_length(p, i, end);
        if (!ts_has_newline(p, i, i + 1))
            memcpy(p->output + i, spaces[n], n);
        i += n - 1;
    }
    p->gone = (struct ts_span){start, end};
}

uint32_t ts_reserve(struct ts_parser *p, uint32_t at)
{
    TS_PUSH(p, insertions, (struct ts_insertion){.at = at});
    return p->insertions.count - 1;
}

void ts_begin(struct ts_parser *p, uint32_t insertion)
{
    if (!p->failed)
        p->insertions.items[insertion].text = p->text.count;
}

static void add(struct ts_parser *p, const void *text, uint32_t length)
{
    if (p->text.count > 65536 + 32 * (uint64_t)p->length)
        ts_fail_here(p, "What these enums and namespaces become is too long: split the source.");
    while (!p->failed && p->text.capacity - p->text.count < length)
        (void)ts_grow(p, (void **)&p->text.items, &p->text.capacity, p->text.capacity, 1);
    if (p->failed || length == 0)
        return;
    memcpy(p->text.items + p->text.count, text, length);
    p->text.count += length;
}

void ts_add(struct ts_parser *p, const char *text)
{
    add(p, text, (uint32_t)strlen(text));
}

void ts_add_span(struct ts_parser *p, struct ts_span span)
{
    add(p, p->source + span.start, span.end - span.start);
}

void ts_add_number(struct ts_parser *p, uint64_t number)
{
    char digits[20];
    uint32_t i = sizeof(digits);

    do
        digits[--i] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    add(p, digits + i, (uint32_t)sizeof(digits) - i);
}

void ts_finish(struct ts_parser *p, uint32_t insertion)
{
    if (!p->failed)
        p->insertions.items[insertion].length = p->text.count - p->insertions.items[insertion].text;
}

void ts_insert(struct ts_parser *p, uint32_t at, const char *text)
{
    uint32_t insertion = ts_reserve(p, at);

    ts_begin(p, insertion);
    ts_add(p, text);
    ts_finish(p, insertion);
}

/* FNV-1a, with the scope first. */
static uint32_t hash_name(const struct ts_parser *p, uint32_t scope, struct ts_span name)
{
    uint32_t hash = (2166136261U ^ scope) * 16777619U;

    for (uint32_t i = name.start; i < name.end; i++)
        hash = (hash ^ p->source[i]) * 16777619U;
    return hash ^ (hash >> 15);
}

static bool is_same(const struct ts_parser *p, const struct ts_name *entry, uint32_t hash,
                    uint32_t scope, struct ts_span name)
{
    uint32_t length = name.end - name.start;

    return entry->tag == hash >> 16 && entry->scope == scope &&
           entry->text.end - entry->text.start == length &&
           memcmp(p->source + entry->text.start, p->source + name.start, length) == 0;
}

/* Where a name is, or would be. An entry is free while its text is empty. */
static struct ts_name *find_place(const struct ts_parser *p, uint32_t hash, uint32_t scope,
                                  struct ts_span name)
{
    uint32_t mask = p->names.capacity - 1, i = hash & mask;

    while (p->names.items[i].text.end > 0 && !is_same(p, &p->names.items[i], hash, scope, name))
        i = (i + 1) & mask;
    return &p->names.items[i];
}

static bool grow_names(struct ts_parser *p)
{
    uint32_t capacity = p->names.capacity == 0 ? 64 : p->names.capacity * 2;
    struct ts_name *old = p->names.items, *items = calloc(capacity, sizeof(*items));
    uint32_t old_capacity = p->names.capacity;

    if (items == NULL) {
        ts_fail_here(p, no_memory);
        return false;
    }
    p->names.items = items;
    p->names.capacity = capacity;
    for (uint32_t i = 0; i < old_capacity; i++)
        if (old[i].text.end > 0)
            *find_place(p, hash_name(p, old[i].scope, old[i].text), old[i].scope,
                        old[i].text) = old[i];
    free(old);
    return true;
}

const struct ts_name *ts_name_find(const struct ts_parser *p, uint32_t scope, struct ts_span name)
{
    const struct ts_name *entry;

    if (p->names.capacity == 0 || name.end == name.start)
        return NULL;
    entry = find_place(p, hash_name(p, scope, name), scope, name);
    return entry->text.end > 0 ? entry : NULL;
}

struct ts_name *ts_name(struct ts_parser *p, uint32_t scope, struct ts_span name)
{
    uint32_t hash = hash_name(p, scope, name);
    struct ts_name *entry;

    if (p->failed || name.end == name.start ||
        (p->names.count * 3 >= p->names.capacity * 2 && !grow_names(p)))
        return NULL;
    entry = find_place(p, hash, scope, name);
    if (entry->text.end == 0) {
        *entry = (struct ts_name){.text = name, .tag = (uint16_t)(hash >> 16), .scope = scope};
        p->names.count++;
    }
    return entry;
}

void ts_name_mark(struct ts_name *name, unsigned flags)
{
    name->flags = (uint16_t)(name->flags | flags);
}

void ts_note(struct ts_parser *p, unsigned flags)
{
    struct ts_name *name = ts_is(p, TOKEN_WORD) ? ts_name(p, 0, ts_span(p)) : NULL;

    /* What is said of other files uses nothing at run time. */
    if (name != NULL)
        ts_name_mark(name, p->ambient > 0 ? NAME_TYPE : flags);
}

void ts_note_declared(struct ts_parser *p, struct ts_span span, unsigned flags)
{
    struct ts_name *name = ts_name(p, flags == NAME_DECLARED ? p->scope : 0, span);

    if (name != NULL)
        ts_name_mark(name, flags);
}

/* Copies the output with the insertions at their places. */
static int merge(const struct ts_parser *p, struct typescript_output *out)
{
    size_t length = p->length;
    uint32_t from = 0;
    char *to;

    for (uint32_t i = 0; i < p->insertions.count; i++)
        length += p->insertions.items[i].length;
    out->text = to = malloc(length + 1);
    if (to == NULL)
        return -1;
    for (uint32_t i = 0; i < p->insertions.count; i++) {
        const struct ts_insertion *insertion = &p->insertions.items[i];
        if (insertion->length == 0)
            continue;
        memcpy(to, p->output + from, insertion->at - from);
        to += insertion->at - from;
        from = insertion->at;
        memcpy(to, p->text.items + insertion->text, insertion->length);
        to += insertion->length;
    }
    memcpy(to, p->output + from, p->length - from);
    to[p->length - from] = '\0';
    out->length = length;
    return 0;
}

static void locate(const char *source, size_t length, size_t at, struct typescript_output *out)
{
    out->line = out->column = 1;
    for (size_t i = 0; i < at && i < length; i++) {
        if (source[i] == '\n' ||
            (source[i] == '\r' && (i + 1 >= length || source[i + 1] != '\n'))) {
            out->line++;
            out->column = 1;
        } else if (((uint8_t)source[i] & 0xc0) != 0x80 && source[i] != '\r') {
            out->column++;
        }
    }
}

static int refuse(struct typescript_output *out, const char *sentence)
{
    size_t length = strlen(sentence);

    if (length >= sizeof(out->message))
        length = sizeof(out->message) - 1;
    memcpy(out->message, sentence, length);
    out->message[length] = '\0';
    return -1;
}

static void parse(struct ts_parser *p)
{
    p->scope = p->scopes = SCOPE_FILE;
    p->may_try = 65536 + 16 * (uint64_t)p->length;
    if (p->length >= 2 && p->source[0] == '#' && p->source[1] == '!')
        while (p->position < p->length && p->source[p->position] != '\n')
            p->position++;
    ts_next(p);
    while (!ts_is(p, TOKEN_END))
        (void)ts_statement(p);
    if (!p->failed)
        ts_modules_finish(p);
}

static void clear(struct ts_parser *p)
{
    free(p->output);
    free(p->names.items);
    free(p->insertions.items);
    free(p->text.items);
    free(p->specifiers.items);
    free(p->modules.items);
    free(p->collected.items);
    free(p->exports.items);
    free(p->angles.items);
}

int typescript_erase(const char *source, size_t length, struct typescript_output *out)
{
    struct ts_parser p = {.source = (const uint8_t *)source, .length = (uint32_t)length};
    int status = -1;

    *out = (struct typescript_output){.line = 1, .column = 1};
    if (length > TYPESCRIPT_SOURCE_MAX)
        return refuse(out, "This source is longer than 64 MiB: split it.");
    p.output = malloc(length + 1);
    if (p.output == NULL)
        return refuse(out, no_memory);
    if (length > 0)
        memcpy(p.output, source, length);
    p.output[length] = '\0';

    parse(&p);
    if (p.failed) {
        locate(source, length, p.failed_at, out);
        (void)refuse(out, p.failure);
    } else if (p.insertions.count == 0) {
        out->text = (char *)p.output;
        out->length = length;
        p.output = NULL;
        status = 0;
    } else {
        status = merge(&p, out) < 0 ? refuse(out, no_memory) : 0;
    }
    clear(&p);
    return status;
}

void typescript_output_clear(struct typescript_output *out)
{
    free(out->text);
    out->text = NULL;
    out->length = 0;
}
