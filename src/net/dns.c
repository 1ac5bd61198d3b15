/* What is on the wire of DNS: a question is read, an answer with at most one record is written.
 *
 * Pure code over bytes that a hostile box made: every length is checked before it is believed, a name in
 * a question has no pointers, and where one is only passed over it is never followed. An answer repeats
 * the question as it came (clients check its letters' case) and fits into 512 bytes always, so nothing
 * is ever cut off. */
#include "net/parts.h"

#include <string.h>

#define HEADER 12
#define LABEL_MAX 63
#define RECORDS_MAX 16 /* behind the question; a client sends one, of EDNS */
#define TYPE_OPT 41
#define CLASS_IN 1
#define OPTION_ERROR 15 /* RFC 8914 */
#define ERROR_OTHER 0
#define ERROR_PROHIBITED 18
#define ERROR_TEXT 128
#define EDNS_SIZE 1232 /* what we say that we take */

#define FLAG_ANSWER 0x8000U
#define FLAG_WANTED 0x0100U /* recursion; and that it is there: */
#define FLAG_HAVE 0x0080U
#define FLAG_UNCHECKED 0x0010U
#define OPCODE 0x7800U
#define EDNS_OK 0x8000U /* DNSSEC wanted; repeated (RFC 3225) */

struct reader {
    const uint8_t *packet;
    size_t size, at;
};

static bool read16(struct reader *reader, uint16_t *out)
{
    if (reader->size - reader->at < 2)
        return false;
    *out = (uint16_t)(reader->packet[reader->at] << 8 | reader->packet[reader->at + 1]);
    reader->at += 2;
    return true;
}

static bool skip(struct reader *reader, size_t size)
{
    if (reader->size - reader->at < size)
        return false;
    reader->at += size;
    return true;
}

/* A name of a record, which is of no interest: a pointer ends it. */
static bool skip_name(struct reader *reader, bool *is_root)
{
    size_t begin = reader->at;

    while (reader->at < reader->size) {
        uint8_t length = reader->packet[reader->at];

        if (length >= 0xc0)
            return skip(reader, 2);
        if (length > LABEL_MAX || reader->at - begin > sizeof(((struct dns_question *)0)->wire))
            return false;
        reader->at += 1;
        if (length == 0) {
            *is_root = reader->at - begin == 1;
            return true;
        }
        if (!skip(reader, length))
            return false;
    }
    return false;
}

/* Letters, digits, "-" and "_": a "." or a NUL within a label would read as another name than it is. */
static bool is_host_letter(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* The question's name, as it came and as a text; the text is empty where it is no host name. */
static bool read_name(struct reader *reader, struct dns_question *out)
{
    char text[sizeof(out->wire) + 1];
    size_t begin = reader->at, used = 0;
    bool is_host = true;
    struct error err;

    for (;;) {
        uint8_t length;

        if (reader->at == reader->size)
            return false;
        length = reader->packet[reader->at++];
        if (length == 0)
            break;
        if (length > LABEL_MAX || reader->size - reader->at < length ||
            reader->at + length - begin >= 255)
            return false;
        for (size_t i = 0; i < length; i++) {
            text[used++] = (char)reader->packet[reader->at + i];
            is_host = is_host && is_host_letter(reader->packet[reader->at + i]);
        }
        text[used++] = '.';
        reader->at += length;
    }
    out->wire_size = reader->at - begin;
    memcpy(out->wire, reader->packet + begin, out->wire_size);
    text[used > 0 ? used - 1 : 0] = '\0';
    if (!is_host || used == 0 || policy_name(text, out->name, &err) < 0)
        out->name[0] = '\0';
    return true;
}

/* One record behind the question; of EDNS it is noted what the client takes. */
static int read_record(struct reader *reader, struct dns_question *out)
{
    uint16_t type, class, high, low, length;
    bool is_root = false;

    if (!skip_name(reader, &is_root) || !read16(reader, &type) || !read16(reader, &class) ||
        !read16(reader, &high) || !read16(reader, &low) || !read16(reader, &length) ||
        !skip(reader, length))
        return DNS_BAD_FORMAT;
    if (type != TYPE_OPT)
        return DNS_OK;
    if (!is_root || out->has_edns)
        return DNS_BAD_FORMAT;
    out->has_edns = true;
    out->edns_flags = low & EDNS_OK;
    out->size_max = class < DNS_UDP_MAX ? DNS_UDP_MAX : class;
    return (high & 0xffU) == 0 ? DNS_OK : DNS_BAD_VERSION;
}

int dns_parse(const uint8_t *packet, size_t size, struct dns_question *out)
{
    struct reader reader = {.packet = packet, .size = size};
    uint16_t questions, answers, authorities, more;
    unsigned records;
    int code = DNS_OK;

    memset(out, 0, sizeof(*out));
    out->size_max = DNS_UDP_MAX;
    if (size < HEADER || !read16(&reader, &out->id) || !read16(&reader, &out->flags) ||
        !read16(&reader, &questions) || !read16(&reader, &answers) ||
        !read16(&reader, &authorities) || !read16(&reader, &more))
        return -1;
    /* Who answers an answer can be made to talk to himself. */
    if ((out->flags & FLAG_ANSWER) != 0)
        return -1;
    if ((out->flags & OPCODE) != 0)
        return DNS_NOT_DONE;
    records = (unsigned)answers + authorities + more;
    if (questions != 1 || records > RECORDS_MAX)
        return DNS_BAD_FORMAT;
    if (!read_name(&reader, out) || !read16(&reader, &out->type) || !read16(&reader, &out->class)) {
        out->wire_size = 0; /* is not repeated */
        return DNS_BAD_FORMAT;
    }
    for (unsigned i = 0; i < records; i++) {
        int now = read_record(&reader, out);

        if (now == DNS_BAD_FORMAT)
            return now;
        if (now != DNS_OK)
            code = now;
    }
    if (code == DNS_OK && out->class != CLASS_IN)
        return DNS_NOT_DONE;
    return code;
}

struct writer {
    uint8_t *out;
    size_t room, at;
};

/* What does not fit is noticed at the end: dns_answer(). */
static void put(struct writer *writer, const void *data, size_t size)
{
    if (size > 0 && writer->at <= writer->room && writer->room - writer->at >= size)
        memcpy(writer->out + writer->at, data, size);
    writer->at += size;
}

static void put16(struct writer *writer, unsigned value)
{
    const uint8_t bytes[] = {(uint8_t)(value >> 8), (uint8_t)value};

    put(writer, bytes, sizeof(bytes));
}

static void put_address(struct writer *writer, const uint8_t *address, size_t size, uint32_t ttl)
{
    put16(writer, 0xc000U | HEADER); /* the question's name */
    put16(writer, size == 4 ? DNS_A : DNS_AAAA);
    put16(writer, CLASS_IN);
    put16(writer, ttl >> 16);
    put16(writer, ttl & 0xffffU);
    put16(writer, (unsigned)size);
    put(writer, address, size);
}

static void put_edns(struct writer *writer, const struct dns_question *question, enum dns_code code,
                     const char *why)
{
    size_t text = why != NULL ? strnlen(why, ERROR_TEXT) : 0;

    put(writer, "", 1);
    put16(writer, TYPE_OPT);
    put16(writer, EDNS_SIZE);
    put16(writer, (unsigned)code >> 4 << 8); /* the code's upper bits, and version 0 */
    put16(writer, question->edns_flags);
    put16(writer, why != NULL ? (unsigned)text + 6 : 0);
    if (why == NULL)
        return;
    put16(writer, OPTION_ERROR);
    put16(writer, (unsigned)text + 2);
    put16(writer, code == DNS_REFUSED ? ERROR_PROHIBITED : ERROR_OTHER);
    put(writer, why, text);
}

size_t dns_answer(const struct dns_question *question, enum dns_code code, const uint8_t *address,
                  size_t address_size, uint32_t ttl, const char *why, uint8_t *out, size_t room)
{
    struct writer writer = {.out = out, .room = room};
    bool has_address = address != NULL && question->wire_size > 0;

    put16(&writer, question->id);
    put16(&writer, FLAG_ANSWER | FLAG_HAVE |
                       (question->flags & (OPCODE | FLAG_WANTED | FLAG_UNCHECKED)) |
                       ((unsigned)code & 0xfU));
    put16(&writer, question->wire_size > 0);
    put16(&writer, has_address);
    put16(&writer, 0);
    put16(&writer, question->has_edns);
    if (question->wire_size > 0) {
        put(&writer, question->wire, question->wire_size);
        put16(&writer, question->type);
        put16(&writer, question->class);
    }
    if (has_address)
        put_address(&writer, address, address_size, ttl);
    if (question->has_edns)
        put_edns(&writer, question, code, why);
    return writer.at <= room ? writer.at : 0;
}
