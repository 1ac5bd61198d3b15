/* The frames between the engine and a worker: see proto.h. */
#include "kernel/proto.h"

#include <stdlib.h>
#include <string.h>

#define WIRE_LEAST 1024U
#define WORD_MAX (64U << 10) /* a grant; those of the environment are the longest */
#define STRING_MAX (1U << 20)
#define FILENAME_MAX_BYTES 4096U

/* ---- writing ---- */

void wire_free(struct wire *wire)
{
    free(wire->data);
    *wire = (struct wire){0};
}

/* Room for so many more; NULL: there is none. */
static uint8_t *wire_more(struct wire *wire, size_t size)
{
    size_t room = wire->room != 0 ? wire->room : WIRE_LEAST;
    uint8_t *data;

    if (wire->failed)
        return NULL;
    if (size > wire->room - wire->size) {
        while (room - wire->size < size)
            room *= 2;
        data = realloc(wire->data, room);
        if (data == NULL) {
            wire->failed = true;
            return NULL;
        }
        wire->data = data;
        wire->room = room;
    }
    data = wire->data + wire->size;
    wire->size += size;
    return data;
}

void wire_raw(struct wire *wire, const void *data, size_t size)
{
    uint8_t *into = wire_more(wire, size);

    if (into != NULL && size > 0)
        memcpy(into, data, size);
}

void wire_begin(struct wire *wire, enum proto_kind kind, uint64_t number)
{
    struct proto_head head = {.kind = (uint32_t)kind, .number = number};

    wire->begin = wire->size;
    wire_raw(wire, &head, sizeof(head));
}

void wire_end_before(struct wire *wire, size_t more)
{
    uint32_t size;

    if (wire->failed)
        return;
    size = (uint32_t)(wire->size - wire->begin - sizeof(struct proto_head) + more);
    memcpy(wire->data + wire->begin, &size, sizeof(size));
}

void wire_end(struct wire *wire)
{
    wire_end_before(wire, 0);
}

void wire_undo(struct wire *wire)
{
    wire->size = wire->begin;
    wire->failed = false;
}

void wire_u32(struct wire *wire, uint32_t value)
{
    wire_raw(wire, &value, sizeof(value));
}

void wire_u64(struct wire *wire, uint64_t value)
{
    wire_raw(wire, &value, sizeof(value));
}

void wire_bytes(struct wire *wire, const void *data, size_t size)
{
    wire_u32(wire, (uint32_t)size);
    wire_raw(wire, data, size);
}

void wire_string(struct wire *wire, const char *text)
{
    wire_bytes(wire, text, strlen(text) + 1);
}

static void wire_text(struct wire *wire, struct kernel_text text)
{
    wire_bytes(wire, text.data, text.size);
}

static void wire_list(struct wire *wire, const char *const *list)
{
    uint32_t count = 0;

    while (list != NULL && list[count] != NULL)
        count++;
    wire_u32(wire, count);
    for (uint32_t i = 0; i < count; i++)
        wire_string(wire, list[i]);
}

void wire_grants(struct wire *wire, const struct kernel_grants *grants)
{
    wire_list(wire, grants->hosts);
    wire_list(wire, grants->env);
    wire_list(wire, grants->tools);
    wire_list(wire, grants->argv);
    wire_u32(wire, grants->cpu_ms);
    wire_u32(wire, grants->wall_ms);
    wire_u64(wire, grants->memory_bytes);
}

void wire_source(struct wire *wire, const struct kernel_source *source)
{
    wire_u32(wire, (uint32_t)source->language);
    wire_u32(wire, source->module ? 1 : 0);
    wire_u32(wire, source->cpu_ms);
    wire_u32(wire, source->wall_ms);
    wire_string(wire, source->filename != NULL ? source->filename : "<run>");
    wire_bytes(wire, source->text, source->size);
}

void wire_call(struct wire *wire, const struct kernel_call *call)
{
    wire_u32(wire, call->id);
    wire_text(wire, call->op);
    wire_text(wire, call->meta);
    wire_bytes(wire, call->bytes, call->bytes_size);
}

enum {
    RESULT_LOST = 1,
    RESULT_VALUE = 2,
    RESULT_FINAL = 4,
    RESULT_VALUE_ERROR = 8,
    RESULT_ALL = 15
};
#define RESULT_TEXTS 9

/* In the order of the frame. */
static void result_texts(struct kernel_result *result, struct kernel_text *texts[RESULT_TEXTS])
{
    struct kernel_text *all[RESULT_TEXTS] = {&result->output,      &result->type,   &result->value,
                                             &result->value_error, &result->errors, &result->name,
                                             &result->message,     &result->stack,  &result->code};

    memcpy(texts, all, sizeof(all));
}

static uint32_t logs_of(const struct kernel_result *result)
{
    return result->logs_count < KERNEL_LOGS_MAX ? (uint32_t)result->logs_count : KERNEL_LOGS_MAX;
}

size_t wire_result_size(const struct kernel_result *result)
{
    struct kernel_result copy = *result;
    struct kernel_text *texts[RESULT_TEXTS];
    size_t size = 0;

    result_texts(&copy, texts);
    for (size_t i = 0; i < RESULT_TEXTS; i++)
        size += texts[i]->size;
    for (size_t i = 0; i < logs_of(result); i++)
        size += result->logs[i].text.size;
    return size;
}

bool wire_result(struct wire *wire, const struct kernel_result *result)
{
    struct kernel_result copy = *result;
    struct kernel_text *texts[RESULT_TEXTS];
    uint32_t logs = logs_of(result);

    result_texts(&copy, texts);
    if (wire_result_size(result) > PROTO_RESULT_MAX)
        return false;
    wire_u32(wire, (uint32_t)result->end);
    wire_u32(wire, (result->state_lost ? RESULT_LOST : 0U) |
                       (result->has_value ? RESULT_VALUE : 0U) |
                       (result->is_final ? RESULT_FINAL : 0U) |
                       (result->has_value_error ? RESULT_VALUE_ERROR : 0U));
    wire_u32(wire, result->line);
    wire_u32(wire, result->column);
    wire_u32(wire, (uint32_t)result->exit_code);
    wire_u64(wire, result->cpu_ns);
    wire_u64(wire, result->wall_ns);
    wire_u64(wire, result->memory_bytes);
    for (size_t i = 0; i < RESULT_TEXTS; i++)
        wire_text(wire, *texts[i]);
    wire_u32(wire, result->logs_dropped + (uint32_t)(result->logs_count - logs));
    wire_u32(wire, logs);
    for (uint32_t i = 0; i < logs; i++) {
        wire_u32(wire, (uint32_t)result->logs[i].level);
        wire_text(wire, result->logs[i].text);
    }
    return true;
}

void wire_error(struct wire *wire, const struct error *error)
{
    wire_u32(wire, (uint32_t)error->errnum);
    wire_string(wire, error->code);
    wire_string(wire, error->text);
}

/* ---- reading ---- */

struct wire_reader wire_reader(const void *data, size_t size)
{
    return (struct wire_reader){data, (const uint8_t *)data + size, false};
}

static void reader_fail(struct wire_reader *reader)
{
    reader->bad = true;
    reader->at = reader->end;
}

const uint8_t *wire_read_raw(struct wire_reader *reader, size_t size)
{
    const uint8_t *at = reader->at;

    if (size > (size_t)(reader->end - at)) {
        reader_fail(reader);
        return NULL;
    }
    reader->at += size;
    return at;
}

uint32_t wire_read_u32(struct wire_reader *reader, uint32_t most)
{
    const uint8_t *at = wire_read_raw(reader, sizeof(uint32_t));
    uint32_t value = 0;

    if (at != NULL)
        memcpy(&value, at, sizeof(value));
    if (value <= most)
        return value;
    reader_fail(reader);
    return 0;
}

uint64_t wire_read_u64(struct wire_reader *reader)
{
    const uint8_t *at = wire_read_raw(reader, sizeof(uint64_t));
    uint64_t value = 0;

    if (at != NULL)
        memcpy(&value, at, sizeof(value));
    return value;
}

struct kernel_text wire_read_bytes(struct wire_reader *reader, size_t most)
{
    uint32_t size = wire_read_u32(reader, most > UINT32_MAX ? UINT32_MAX : (uint32_t)most);
    const uint8_t *at = wire_read_raw(reader, size);

    return at != NULL ? (struct kernel_text){(const char *)at, size} : (struct kernel_text){"", 0};
}

const char *wire_read_string(struct wire_reader *reader, size_t most)
{
    struct kernel_text text = wire_read_bytes(reader, most + 1);

    if (text.size == 0 || memchr(text.data, 0, text.size) != text.data + text.size - 1) {
        reader_fail(reader);
        return "";
    }
    return text.data;
}

/* Into `list`, which has room for KERNEL_GRANTS_MAX and the end. */
static void read_list(struct wire_reader *reader, const char **list)
{
    uint32_t count = wire_read_u32(reader, KERNEL_GRANTS_MAX);

    for (uint32_t i = 0; i < count; i++)
        list[i] = wire_read_string(reader, WORD_MAX);
    list[count] = NULL;
}

void wire_read_grants(struct wire_reader *reader, struct kernel_grants *grants, const char ***room)
{
    const char **lists = calloc(4 * (size_t)(KERNEL_GRANTS_MAX + 1), sizeof(*lists));

    *grants = (struct kernel_grants){0};
    *room = lists;
    if (lists == NULL) {
        reader_fail(reader);
        return;
    }
    for (size_t i = 0; i < 4; i++)
        read_list(reader, lists + i * (KERNEL_GRANTS_MAX + 1));
    grants->hosts = lists;
    grants->env = lists + (KERNEL_GRANTS_MAX + 1);
    grants->tools = lists + 2 * (size_t)(KERNEL_GRANTS_MAX + 1);
    grants->argv = lists + 3 * (size_t)(KERNEL_GRANTS_MAX + 1);
    grants->cpu_ms = wire_read_u32(reader, UINT32_MAX);
    grants->wall_ms = wire_read_u32(reader, UINT32_MAX);
    grants->memory_bytes = wire_read_u64(reader);
}

void wire_read_source(struct wire_reader *reader, struct kernel_source *source)
{
    struct kernel_text text;

    *source = (struct kernel_source){0};
    source->language = (enum kernel_language)wire_read_u32(reader, KERNEL_TS);
    source->module = wire_read_u32(reader, 1) != 0;
    source->cpu_ms = wire_read_u32(reader, UINT32_MAX);
    source->wall_ms = wire_read_u32(reader, UINT32_MAX);
    source->filename = wire_read_string(reader, FILENAME_MAX_BYTES);
    text = wire_read_bytes(reader, KERNEL_SOURCE_MAX);
    source->text = text.data;
    source->size = text.size;
}

void wire_read_call(struct wire_reader *reader, struct kernel_call *call)
{
    struct kernel_text bytes;

    *call = (struct kernel_call){.id = wire_read_u32(reader, UINT32_MAX)};
    call->op = wire_read_bytes(reader, PROTO_OP_MAX);
    call->meta = wire_read_bytes(reader, KERNEL_META_MAX);
    bytes = wire_read_bytes(reader, PROTO_RESULT_MAX);
    call->bytes = (const uint8_t *)bytes.data;
    call->bytes_size = bytes.size;
    if (call->op.size == 0)
        reader_fail(reader);
}

static void read_logs(struct wire_reader *reader, struct kernel_result *result,
                      struct kernel_log **logs, size_t *logs_room)
{
    size_t count = wire_read_u32(reader, KERNEL_LOGS_MAX);

    /* Each is eight bytes at least: what is claimed is there, or nothing is allocated for it. */
    if (count > (size_t)(reader->end - reader->at) / 8)
        reader_fail(reader);
    if (reader->bad)
        return;
    if (count > *logs_room) {
        struct kernel_log *more = realloc(*logs, count * sizeof(*more));

        if (more == NULL) {
            reader_fail(reader);
            return;
        }
        *logs = more;
        *logs_room = count;
    }
    for (size_t i = 0; i < count; i++) {
        (*logs)[i].level = (enum kernel_level)wire_read_u32(reader, KERNEL_DEBUG);
        (*logs)[i].text = wire_read_bytes(reader, PROTO_RESULT_MAX);
    }
    result->logs = *logs;
    result->logs_count = count;
}

void wire_read_result(struct wire_reader *reader, struct kernel_result *result,
                      struct kernel_log **logs, size_t *logs_room)
{
    struct kernel_text *texts[RESULT_TEXTS];
    uint32_t flags;

    *result = (struct kernel_result){0};
    result->end = (enum kernel_end)wire_read_u32(reader, KERNEL_END_STOPPED);
    flags = wire_read_u32(reader, RESULT_ALL);
    result->state_lost = (flags & RESULT_LOST) != 0;
    result->has_value = (flags & RESULT_VALUE) != 0;
    result->is_final = (flags & RESULT_FINAL) != 0;
    result->has_value_error = (flags & RESULT_VALUE_ERROR) != 0;
    result->line = wire_read_u32(reader, UINT32_MAX);
    result->column = wire_read_u32(reader, UINT32_MAX);
    result->exit_code = (int32_t)wire_read_u32(reader, UINT32_MAX);
    result->cpu_ns = wire_read_u64(reader);
    result->wall_ns = wire_read_u64(reader);
    result->memory_bytes = wire_read_u64(reader);
    result_texts(result, texts);
    for (size_t i = 0; i < RESULT_TEXTS; i++)
        *texts[i] = wire_read_bytes(reader, PROTO_RESULT_MAX);
    result->logs_dropped = wire_read_u32(reader, UINT32_MAX);
    read_logs(reader, result, logs, logs_room);
}

/* A text of the other end's, which has room for its NUL. */
static void read_into(struct wire_reader *reader, char *text, size_t size)
{
    const char *from = wire_read_string(reader, size - 1);

    memcpy(text, from, strlen(from) + 1);
}

void wire_read_error(struct wire_reader *reader, struct error *error)
{
    *error = (struct error){.errnum = (int)wire_read_u32(reader, 4095)};
    read_into(reader, error->code, sizeof(error->code));
    read_into(reader, error->text, sizeof(error->text));
}

bool wire_is_done(const struct wire_reader *reader)
{
    return !reader->bad && reader->at == reader->end;
}

/* ---- heads ---- */

bool proto_head_is_sound(const struct proto_head *head, bool from_worker)
{
    if (head->size > PROTO_BODY_MAX)
        return false;
    if (from_worker)
        return head->kind >= PROTO_READY && head->kind <= PROTO_FAILED &&
               (head->kind == PROTO_READY) == (head->number == 0);
    return head->kind >= PROTO_HELLO && head->kind <= PROTO_SETTLE_ERROR &&
           (head->kind == PROTO_HELLO) == (head->number == 0);
}
