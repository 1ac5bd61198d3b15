// Bytes and text: UTF-8, UTF-16, Latin-1, hex and Base64 both ways, comparing and searching. In C
// because a script's own loop over bytes costs fifty times as much. What is malformed is replaced
// as the encoding standard says, or refused where the caller asks for that; it must never be able
// to read outside what it was given.
#include <stdlib.h>
#include <string.h>

#include "natives.h"

uint8_t *natives_bytes(JSContext *ctx, JSValueConst value, size_t *length)
{
    static uint8_t nothing[1];
    uint8_t *data = NULL;
    size_t offset = 0, size = 0, held = 0;

    *length = 0;
    if (JS_GetTypedArrayType(value) >= 0) {
        JSValue buffer = JS_GetTypedArrayBuffer(ctx, value, &offset, &size, NULL);
        if (JS_IsException(buffer)) {
            return NULL;
        }
        data = JS_GetArrayBuffer(ctx, &held, buffer);
        JS_FreeValue(ctx, buffer);
        if (!data && JS_HasException(ctx)) {
            return NULL;
        }
        if (offset > held || size > held - offset) {
            JS_ThrowRangeError(ctx, "the view lies outside of its buffer");
            return NULL;
        }
        data = data ? data + offset : nothing;
    } else if (JS_IsArrayBuffer(value)) {
        data = JS_GetArrayBuffer(ctx, &size, value);
        if (!data && JS_HasException(ctx)) {
            return NULL;
        }
        data = data ? data : nothing;
    } else {
        JS_ThrowTypeError(ctx, "bytes expected: a Uint8Array or an ArrayBuffer");
        return NULL;
    }
    *length = size;
    return data;
}

// The part [argv[1], argv[2]) of the bytes argv[0]; without them all of it.
static const uint8_t *part(JSContext *ctx, int argc, JSValueConst *argv, size_t *length)
{
    size_t all = 0;
    int64_t from = 0, to;
    const uint8_t *bytes = natives_bytes(ctx, argv[0], &all);

    to = (int64_t)all;
    if (!bytes || (argc > 1 && !JS_IsUndefined(argv[1]) && JS_ToInt64(ctx, &from, argv[1]) < 0) ||
        (argc > 2 && !JS_IsUndefined(argv[2]) && JS_ToInt64(ctx, &to, argv[2]) < 0)) {
        return NULL;
    }
    from = from < 0 ? 0 : from > (int64_t)all ? (int64_t)all : from;
    to = to < from ? from : to > (int64_t)all ? (int64_t)all : to;
    *length = (size_t)(to - from);
    return bytes + from;
}

// One character from UTF-8: its bytes taken, or 0 where they are malformed, and then in `bad` how
// many of them one replacement stands for (the longest start of a well-formed sequence).
static size_t take(const uint8_t *at, size_t left, uint32_t *character, size_t *bad)
{
    uint8_t first = at[0], low = 0x80, high = 0xbf;
    size_t need;

    *bad = 1;
    if (first < 0x80) {
        *character = first;
        return 1;
    }
    if (first < 0xc2 || first > 0xf4) {
        return 0;
    }
    need = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    *character = first & (0x7fu >> need);
    low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : low;
    high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : high;
    for (size_t i = 1; i < need; i++) {
        if (i >= left || at[i] < low || at[i] > high) {
            *bad = i;
            return 0;
        }
        *character = *character << 6 | (at[i] & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    return need;
}

static int is_well_formed(const uint8_t *bytes, size_t length)
{
    uint32_t character;
    size_t bad;

    for (size_t at = 0; at < length;) {
        size_t taken = take(bytes + at, length - at, &character, &bad);
        if (taken == 0) {
            return 0;
        }
        at += taken;
    }
    return 1;
}

static JSValue decode_with_replacements(JSContext *ctx, const uint8_t *bytes, size_t length)
{
    uint16_t *units = js_malloc(ctx, (length + 1) * sizeof(*units));
    size_t count = 0;
    JSValue text;

    if (!units) {
        return JS_EXCEPTION;
    }
    for (size_t at = 0; at < length;) {
        uint32_t character = 0;
        size_t bad = 1, taken = take(bytes + at, length - at, &character, &bad);
        if (taken == 0) {
            units[count++] = 0xfffd;
            at += bad;
        } else if (character > 0xffff) {
            units[count++] = (uint16_t)(0xd7c0 + (character >> 10));
            units[count++] = (uint16_t)(0xdc00 + (character & 0x3ff));
            at += taken;
        } else {
            units[count++] = (uint16_t)character;
            at += taken;
        }
    }
    text = JS_NewStringUTF16(ctx, units, count);
    js_free(ctx, units);
    return text;
}

// utf8_decode(bytes, from, to, is_fatal) → text; undefined where it is malformed and that is fatal.
static JSValue native_utf8_decode(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    size_t length = 0;
    const uint8_t *bytes = part(ctx, argc, argv, &length);

    (void)self;
    if (!bytes) {
        return JS_EXCEPTION;
    }
    if (is_well_formed(bytes, length)) {
        return JS_NewStringLen(ctx, (const char *)bytes, length);
    }
    if (argc > 3 && JS_ToBool(ctx, argv[3]) > 0) {
        return JS_UNDEFINED;
    }
    return decode_with_replacements(ctx, bytes, length);
}

// A lone surrogate comes out of the engine as three bytes of its own; they become U+FFFD, which has
// three as well.
static JSValue native_utf8_encode(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    size_t length = 0;
    const char *text = JS_ToCStringLen(ctx, &length, argv[0]);
    JSValue result;
    uint8_t *out;

    (void)self, (void)argc;
    if (!text) {
        return JS_EXCEPTION;
    }
    result = JS_NewUint8ArrayCopy(ctx, (const uint8_t *)text, length);
    JS_FreeCString(ctx, text);
    if (JS_IsException(result) || !(out = natives_bytes(ctx, result, &length))) {
        return result;
    }
    for (uint8_t *at = out; length >= 3 && at <= out + length - 3; at++) {
        if (at[0] == 0xed && at[1] >= 0xa0) {
            memcpy(at, "\xef\xbf\xbd", 3);
            at += 2;
        }
    }
    return result;
}

static JSValue native_utf8_length(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    size_t length = 0;
    const char *text = JS_ToCStringLen(ctx, &length, argv[0]);

    (void)self, (void)argc;
    if (!text) {
        return JS_EXCEPTION;
    }
    JS_FreeCString(ctx, text);
    return JS_NewInt64(ctx, (int64_t)length);
}

// units_decode(bytes, from, to, kind): 0 Latin-1, 1 ASCII (the highest bit dropped), 2 UTF-16LE.
static JSValue native_units_decode(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    size_t length = 0;
    int32_t kind = 0;
    const uint8_t *bytes;
    uint16_t *units;
    JSValue text;

    (void)self;
    if (JS_ToInt32(ctx, &kind, argv[3]) < 0 || !(bytes = part(ctx, argc, argv, &length))) {
        return JS_EXCEPTION;
    }
    length = kind == 2 ? length / 2 : length;
    units = js_malloc(ctx, (length + 1) * sizeof(*units));
    if (!units) {
        return JS_EXCEPTION;
    }
    for (size_t i = 0; i < length; i++) {
        units[i] = kind == 2   ? (uint16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8)
                   : kind == 1 ? bytes[i] & 0x7f
                               : bytes[i];
    }
    text = JS_NewStringUTF16(ctx, units, length);
    js_free(ctx, units);
    return text;
}

// units_encode(text, kind) → bytes; a unit above 255 keeps its low byte in Latin-1.
static JSValue native_units_encode(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    size_t length = 0;
    int32_t kind = 0;
    const uint16_t *units;
    uint8_t *out;
    JSValue result;

    (void)self, (void)argc;
    if (JS_ToInt32(ctx, &kind, argv[1]) < 0 ||
        !(units = JS_ToCStringLenUTF16(ctx, &length, argv[0]))) {
        return JS_EXCEPTION;
    }
    out = js_malloc(ctx, 2 * length + 1);
    if (!out) {
        JS_FreeCStringUTF16(ctx, units);
        return JS_EXCEPTION;
    }
    for (size_t i = 0; i < length; i++) {
        if (kind == 2) {
            out[2 * i] = (uint8_t)units[i];
            out[2 * i + 1] = (uint8_t)(units[i] >> 8);
        } else {
            out[i] = (uint8_t)units[i];
        }
    }
    result = JS_NewUint8ArrayCopy(ctx, out, kind == 2 ? 2 * length : length);
    js_free(ctx, out);
    JS_FreeCStringUTF16(ctx, units);
    return result;
}

static JSValue native_hex_encode(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    static const char digits[] = "0123456789abcdef";
    size_t length = 0;
    const uint8_t *bytes = part(ctx, argc, argv, &length);
    char *out;
    JSValue text;

    (void)self;
    if (!bytes || !(out = js_malloc(ctx, 2 * length + 1))) {
        return JS_EXCEPTION;
    }
    for (size_t i = 0; i < length; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    text = JS_NewStringLen(ctx, out, 2 * length);
    js_free(ctx, out);
    return text;
}

static int hex_value(uint8_t digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

// As far as it is hex: what follows the first other character is left out.
static JSValue native_hex_decode(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    size_t length = 0, count = 0;
    const char *text = JS_ToCStringLen(ctx, &length, argv[0]);
    uint8_t *out = text ? js_malloc(ctx, length / 2 + 1) : NULL;
    JSValue result = JS_EXCEPTION;

    (void)self, (void)argc;
    if (out) {
        for (size_t i = 0; i + 1 < length; i += 2) {
            int high = hex_value((uint8_t)text[i]), low = hex_value((uint8_t)text[i + 1]);
            if (high < 0 || low < 0) {
                break;
            }
            out[count++] = (uint8_t)(high << 4 | low);
        }
        result = JS_NewUint8ArrayCopy(ctx, out, count);
    }
    js_free(ctx, out);
    JS_FreeCString(ctx, text);
    return result;
}

// base64_encode(bytes, from, to, is_url) → text; the URL form has no padding.
static JSValue native_base64_encode(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    int is_url = argc > 3 && JS_ToBool(ctx, argv[3]) > 0;
    const char *digits = is_url ? url : plain;
    size_t length = 0, count = 0;
    const uint8_t *bytes = part(ctx, argc, argv, &length);
    char *out;
    JSValue text;

    (void)self;
    if (!bytes || !(out = js_malloc(ctx, (length + 2) / 3 * 4 + 1))) {
        return JS_EXCEPTION;
    }
    for (size_t i = 0; i < length; i += 3) {
        size_t left = length - i;
        uint32_t bits = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                        (left > 2 ? bytes[i + 2] : 0u);
        for (size_t digit = 0; digit < 4; digit++) {
            if (digit <= left) {
                out[count++] = digits[bits >> (18 - 6 * digit) & 63];
            } else if (!is_url) {
                out[count++] = '=';
            }
        }
    }
    text = JS_NewStringLen(ctx, out, count);
    js_free(ctx, out);
    return text;
}

static int base64_value(uint8_t digit)
{
    if (digit >= 'A' && digit <= 'Z') {
        return digit - 'A';
    }
    if (digit >= 'a' && digit <= 'z') {
        return digit - 'a' + 26;
    }
    if (digit >= '0' && digit <= '9') {
        return digit - '0' + 52;
    }
    return digit == '+' || digit == '-' ? 62 : digit == '/' || digit == '_' ? 63 : -1;
}

// Either alphabet; what belongs to none is passed over, and padding ends it.
static JSValue native_base64_decode(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    size_t length = 0, count = 0;
    const char *text = JS_ToCStringLen(ctx, &length, argv[0]);
    uint8_t *out = text ? js_malloc(ctx, length / 4 * 3 + 4) : NULL;
    uint32_t bits = 0;
    unsigned held = 0;
    JSValue result = JS_EXCEPTION;

    (void)self, (void)argc;
    if (out) {
        for (size_t i = 0; i < length && text[i] != '='; i++) {
            int value = base64_value((uint8_t)text[i]);
            if (value < 0) {
                continue;
            }
            bits = bits << 6 | (uint32_t)value;
            held += 6;
            if (held >= 8) {
                held -= 8;
                out[count++] = (uint8_t)(bits >> held);
            }
        }
        result = JS_NewUint8ArrayCopy(ctx, out, count);
    }
    js_free(ctx, out);
    JS_FreeCString(ctx, text);
    return result;
}

// compare(a, b) → -1, 0 or 1.
static JSValue native_compare(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    size_t a_length = 0, b_length = 0;
    const uint8_t *a = natives_bytes(ctx, argv[0], &a_length);
    const uint8_t *b = a ? natives_bytes(ctx, argv[1], &b_length) : NULL;
    int order;

    (void)self, (void)argc;
    if (!b) {
        return JS_EXCEPTION;
    }
    order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    if (order == 0) {
        order = (a_length > b_length) - (a_length < b_length);
    }
    return JS_NewInt32(ctx, (order > 0) - (order < 0));
}

// index_of(bytes, wanted, from, is_backward) → where, or -1. `from` was put within the bytes.
static JSValue native_index_of(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    size_t length = 0, wanted_length = 0;
    int64_t from = 0;
    int is_backward = JS_ToBool(ctx, argv[3]);
    const uint8_t *bytes = natives_bytes(ctx, argv[0], &length);
    const uint8_t *wanted = bytes ? natives_bytes(ctx, argv[1], &wanted_length) : NULL;

    (void)self, (void)argc;
    if (!wanted || JS_ToInt64(ctx, &from, argv[2]) < 0) {
        return JS_EXCEPTION;
    }
    if (wanted_length > length || from < 0) {
        return JS_NewInt32(ctx, -1);
    }
    if (is_backward) {
        int64_t last = (int64_t)(length - wanted_length);
        for (int64_t at = from < last ? from : last; at >= 0; at--) {
            if (memcmp(bytes + at, wanted, wanted_length) == 0) {
                return JS_NewInt64(ctx, at);
            }
        }
        return JS_NewInt32(ctx, -1);
    }
    for (size_t at = (size_t)from; at + wanted_length <= length; at++) {
        if (wanted_length == 0 ||
            (bytes[at] == wanted[0] && memcmp(bytes + at, wanted, wanted_length) == 0)) {
            return JS_NewInt64(ctx, (int64_t)at);
        }
    }
    return JS_NewInt32(ctx, -1);
}

static const JSCFunctionListEntry entries[] = {
    JS_CFUNC_DEF("utf8_encode", 1, native_utf8_encode),
    JS_CFUNC_DEF("utf8_decode", 4, native_utf8_decode),
    JS_CFUNC_DEF("utf8_length", 1, native_utf8_length),
    JS_CFUNC_DEF("units_encode", 2, native_units_encode),
    JS_CFUNC_DEF("units_decode", 4, native_units_decode),
    JS_CFUNC_DEF("hex_encode", 3, native_hex_encode),
    JS_CFUNC_DEF("hex_decode", 1, native_hex_decode),
    JS_CFUNC_DEF("base64_encode", 4, native_base64_encode),
    JS_CFUNC_DEF("base64_decode", 1, native_base64_decode),
    JS_CFUNC_DEF("compare", 2, native_compare),
    JS_CFUNC_DEF("index_of", 4, native_index_of),
};

int natives_add_bytes(JSContext *ctx, JSValueConst object)
{
    return JS_SetPropertyFunctionList(ctx, object, entries,
                                      (int)(sizeof(entries) / sizeof(entries[0])));
}
