/* Streams as lines: see lines.h. "to" is the offset after the line's bytes, which nobody could tell from
 * its text: a byte that is no UTF-8 is three there. */
#include "front/native/lines.h"

#include "base/utf8.h"

#include <string.h>

static void print_data(const struct lines *lines, struct out *out, uint64_t from, const char *data,
                       size_t size)
{
    if (size == 0)
        return;
    out_object(out, NULL);
    out_text(out, "type", lines->stream);
    out_number(out, "from", from);
    out_number(out, "to", from + size);
    out_quote(out, "data");
    if (lines->is_base64)
        out_quoted_base64(out, data, size);
    else
        out_quoted(out, data, size);
    out_quote_end(out);
    out_object_end(out);
    out_raw(out, "\n", 1);
}

static void print_gap(const struct lines *lines, struct out *out, uint64_t from, uint64_t to)
{
    out_object(out, NULL);
    out_text(out, "type", "gap");
    out_text(out, "stream", lines->stream);
    out_number(out, "from", from);
    out_number(out, "to", to);
    out_object_end(out);
    out_raw(out, "\n", 1);
}

void lines_end(struct lines *lines, struct out *out)
{
    print_data(lines, out, lines->at - lines->held, lines->rest, lines->held);
    lines->held = 0;
}

/* What is left of a character whose beginning is in the gap belongs to the gap. */
static size_t add_gap(struct lines *lines, struct out *out, uint64_t from, const char *data,
                      size_t size)
{
    size_t inside = lines->is_base64 ? 0 : utf8_inside(data, size);

    lines_end(lines, out);
    print_gap(lines, out, lines->at, from + inside);
    lines->at = from + inside;
    return inside;
}

void lines_add(struct lines *lines, struct out *out, uint64_t from, char *data, size_t size)
{
    size_t whole;

    if (size == 0)
        return;
    if (from > lines->at) {
        size_t inside = add_gap(lines, out, from, data, size);

        data += inside;
        size -= inside;
    }
    if (lines->is_base64) {
        print_data(lines, out, lines->at, data, size);
        lines->at += size;
        return;
    }
    data -= lines->held;
    memcpy(data, lines->rest, lines->held);
    lines->at += size;
    size += lines->held;
    whole = utf8_whole(data, size);
    print_data(lines, out, lines->at - size, data, whole);
    lines->held = size - whole;
    memcpy(lines->rest, data + whole, lines->held);
}
