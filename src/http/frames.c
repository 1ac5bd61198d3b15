/* Frames of WebSocket: 2 to 14 bytes of header, then bytes that the client has masked.
 *
 * Nothing of a frame is believed before it is checked, and nothing is allocated for a byte that has not
 * come. The mask hides nothing: it keeps proxies from taking a message for a request. */
#include "http/frames.h"

#include "base/utf8.h"

#include <string.h>

/* A buffer that was larger is not kept for the next message. */
#define KEPT_MAX ((size_t)16 * 1024)

enum { FINAL = 0x80, RESERVED = 0x70, OPCODE = 0x0f, MASKED = 0x80, LENGTH = 0x7f };

static enum http_frame bad(struct http_framed *out, unsigned code)
{
    *out = (struct http_framed){.data = "", .code = code};
    return HTTP_FRAME_BAD;
}

static bool is_control(unsigned opcode)
{
    return opcode >= HTTP_OP_CLOSE;
}

static unsigned length_size(const struct http_frames *frames)
{
    unsigned length = frames->head[1] & LENGTH;

    return length == 127 ? 8 : length == 126 ? 2 : 0;
}

/* Bytes of the header that is being read, as far as that is known. */
static unsigned head_size(const struct http_frames *frames)
{
    return frames->head_have < 2 ? 2 : 2 + length_size(frames) + 4;
}

/* The first two bytes; 0, or what is wrong. */
static unsigned check_start(const struct http_frames *frames)
{
    unsigned opcode = frames->head[0] & OPCODE;
    unsigned length = frames->head[1] & LENGTH;
    bool is_final = frames->head[0] & FINAL;

    if ((frames->head[0] & RESERVED) || !(frames->head[1] & MASKED)) {
        return HTTP_CLOSE_PROTOCOL;
    }
    switch (opcode) {
    case HTTP_OP_CONTINUED:
        return frames->kind ? 0 : HTTP_CLOSE_PROTOCOL;
    case HTTP_OP_TEXT:
    case HTTP_OP_BINARY:
        return frames->kind ? HTTP_CLOSE_PROTOCOL : 0;
    case HTTP_OP_CLOSE:
    case HTTP_OP_PING:
    case HTTP_OP_PONG:
        return is_final && length <= HTTP_CONTROL_MAX ? 0 : HTTP_CLOSE_PROTOCOL;
    default:
        return HTTP_CLOSE_PROTOCOL;
    }
}

/* A whole header; 0, or what is wrong. */
static unsigned begin(struct http_frames *frames)
{
    unsigned more = length_size(frames);
    uint64_t length = more ? 0 : frames->head[1] & LENGTH;

    for (unsigned i = 0; i < more; i++) {
        length = length << 8 | frames->head[2 + i];
    }
    /* Each length has one form. */
    if ((more == 2 && length < 126) || (more == 8 && (length <= UINT16_MAX || length >> 63))) {
        return HTTP_CLOSE_PROTOCOL;
    }
    frames->opcode = frames->head[0] & OPCODE;
    frames->is_final = frames->head[0] & FINAL;
    frames->left = length;
    frames->done = 0;
    frames->is_within = true;
    memcpy(frames->head, frames->head + 2 + more, 4);
    frames->head_have = 0;
    if (is_control(frames->opcode)) {
        return 0;
    }
    if (frames->opcode != HTTP_OP_CONTINUED) {
        frames->kind = frames->opcode;
    }
    return length > frames->message_max - frames->message.size ? HTTP_CLOSE_TOO_LARGE : 0;
}

/* Reads on in the header; 0, or what is wrong. */
static unsigned read_head(struct http_frames *frames, const char **data, size_t *size)
{
    while (*size > 0 && frames->head_have < head_size(frames)) {
        unsigned code;

        frames->head[frames->head_have++] = (unsigned char)**data;
        (*data)++;
        (*size)--;
        code = frames->head_have == 2 ? check_start(frames) : 0;
        if (code) {
            return code;
        }
    }
    return frames->head_have >= 2 && frames->head_have == head_size(frames) ? begin(frames) : 0;
}

static void unmask(unsigned char *to, size_t size, const unsigned char mask[4], uint64_t at)
{
    unsigned char turned[8];
    uint64_t word, key;

    for (unsigned i = 0; i < 8; i++) {
        turned[i] = mask[(at + i) % 4];
    }
    memcpy(&key, turned, 8);
    for (; size >= 8; size -= 8, to += 8) {
        memcpy(&word, to, 8);
        word ^= key;
        memcpy(to, &word, 8);
    }
    for (size_t i = 0; i < size; i++) {
        to[i] ^= turned[i];
    }
}

/* Takes what there is of the frame's bytes; 0, or what is wrong. */
static unsigned read_payload(struct http_frames *frames, const char **data, size_t *size)
{
    size_t part = *size < frames->left ? *size : (size_t)frames->left;
    unsigned char *to;

    if (part == 0) {
        return 0;
    }
    if (is_control(frames->opcode)) {
        to = frames->control + frames->done;
        memcpy(to, *data, part);
    } else {
        if (http_bytes_add(&frames->message, *data, part)) {
            return HTTP_CLOSE_FAILED;
        }
        to = (unsigned char *)frames->message.data + frames->message.size - part;
    }
    unmask(to, part, frames->head, frames->done);
    frames->done += part;
    frames->left -= part;
    *data += part;
    *size -= part;
    return 0;
}

bool http_close_is_sane(unsigned code)
{
    return (code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006) ||
           (code >= 3000 && code <= 4999);
}

static enum http_frame end_close(const struct http_frames *frames, struct http_framed *out)
{
    out->code = HTTP_CLOSE_NO_CODE;
    if (out->size == 0) {
        return HTTP_FRAME_CLOSE;
    }
    if (out->size == 1) {
        return bad(out, HTTP_CLOSE_PROTOCOL);
    }
    out->code = (unsigned)frames->control[0] << 8 | frames->control[1];
    if (!http_close_is_sane(out->code)) {
        return bad(out, HTTP_CLOSE_PROTOCOL);
    }
    if (!utf8_is_valid(frames->control + 2, out->size - 2)) {
        return bad(out, HTTP_CLOSE_NOT_UTF8);
    }
    return HTTP_FRAME_CLOSE;
}

static enum http_frame end_message(struct http_frames *frames, struct http_framed *out)
{
    unsigned kind = frames->kind;

    out->data = frames->message.size > 0 ? frames->message.data : "";
    out->size = frames->message.size;
    frames->kind = 0;
    frames->is_given = true;
    if (kind == HTTP_OP_TEXT && !utf8_is_valid(out->data, out->size)) {
        return bad(out, HTTP_CLOSE_NOT_UTF8);
    }
    return kind == HTTP_OP_TEXT ? HTTP_FRAME_TEXT : HTTP_FRAME_BINARY;
}

/* A frame is whole. */
static enum http_frame end(struct http_frames *frames, struct http_framed *out)
{
    frames->is_within = false;
    if (!is_control(frames->opcode)) {
        return frames->is_final ? end_message(frames, out) : HTTP_FRAME_MORE;
    }
    frames->control[frames->done] = '\0';
    out->data = frames->control;
    out->size = (size_t)frames->done;
    switch (frames->opcode) {
    case HTTP_OP_PING:
        return HTTP_FRAME_PING;
    case HTTP_OP_PONG:
        return HTTP_FRAME_PONG;
    default:
        return end_close(frames, out);
    }
}

void http_frames_forget(struct http_frames *frames)
{
    if (!frames->is_given) {
        return;
    }
    frames->is_given = false;
    frames->message.start = frames->message.size = 0;
    if (frames->message.capacity > KEPT_MAX) {
        http_bytes_free(&frames->message);
    }
}

enum http_frame http_frame_next(struct http_frames *frames, const char **data, size_t *size,
                                struct http_framed *out)
{
    *out = (struct http_framed){.data = ""};
    http_frames_forget(frames);
    while (*size > 0) {
        enum http_frame found;
        unsigned code = frames->is_within ? 0 : read_head(frames, data, size);

        if (code == 0 && frames->is_within) {
            code = read_payload(frames, data, size);
        }
        if (code) {
            return bad(out, code);
        }
        if (!frames->is_within || frames->left > 0) {
            return HTTP_FRAME_MORE;
        }
        found = end(frames, out);
        if (found != HTTP_FRAME_MORE) {
            return found;
        }
    }
    return HTTP_FRAME_MORE;
}

void http_frames_free(struct http_frames *frames)
{
    http_bytes_free(&frames->message);
}

size_t http_frame_head(unsigned char head[HTTP_FRAME_HEAD_MAX], unsigned opcode, uint64_t size)
{
    unsigned more = size > UINT16_MAX ? 8 : size > HTTP_CONTROL_MAX ? 2 : 0;

    head[0] = (unsigned char)(FINAL | opcode);
    head[1] = (unsigned char)(more == 8 ? 127 : more == 2 ? 126 : size);
    for (unsigned i = 0; i < more; i++) {
        head[2 + i] = (unsigned char)(size >> 8 * (more - 1 - i));
    }
    return 2 + more;
}
