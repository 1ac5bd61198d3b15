// MD5, SHA-1 and SHA-2 over bytes that are all there: the prelude collects what comes in parts.
// Written plainly from the standards (RFC 1321, FIPS 180-4), because the guest links no library.
// It must not be used for anything that the host relies on.
#include <string.h>

#include "natives.h"

#define BLOCK_MAX 128

struct algorithm {
    const char *name;
    size_t block, state, length;
    void (*start)(void *state);
    void (*step)(void *state, const uint8_t *block);
    int is_little_endian;
};

static uint32_t rotate_left(uint32_t value, unsigned count)
{
    return value << count | value >> (32 - count);
}

static uint32_t rotate_right(uint32_t value, unsigned count)
{
    return value >> count | value << (32 - count);
}

static uint64_t rotate_right_64(uint64_t value, unsigned count)
{
    return value >> count | value << (64 - count);
}

static uint32_t load_32(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static void md5_start(void *opaque)
{
    static const uint32_t initial[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};

    memcpy(opaque, initial, sizeof(initial));
}

static void md5_step(void *opaque, const uint8_t *block)
{
    static const uint8_t shifts[4][4] = {
        {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    // floor(abs(sin(i + 1)) * 2^32)
    static const uint32_t sines[64] = {
        0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613,
        0xfd469501, 0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193,
        0xa679438e, 0x49b40821, 0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d,
        0x02441453, 0xd8a1e681, 0xe7d3fbc8, 0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed,
        0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a, 0xfffa3942, 0x8771f681, 0x6d9d6122,
        0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70, 0x289b7ec6, 0xeaa127fa,
        0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665, 0xf4292244,
        0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
        0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb,
        0xeb86d391};
    uint32_t *state = opaque, a = state[0], b = state[1], c = state[2], d = state[3], words[16];

    for (int i = 0; i < 16; i++) {
        const uint8_t *at = block + 4 * i;
        words[i] = (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
    }
    for (unsigned i = 0; i < 64; i++) {
        unsigned round = i / 16;
        uint32_t mix = round == 0   ? (b & c) | (~b & d)
                       : round == 1 ? (d & b) | (~d & c)
                       : round == 2 ? b ^ c ^ d
                                    : c ^ (b | ~d);
        unsigned word = round == 0 ? i : round == 1 ? 5 * i + 1 : round == 2 ? 3 * i + 5 : 7 * i;
        uint32_t sum = a + mix + sines[i] + words[word % 16];
        a = d;
        d = c;
        c = b;
        b += rotate_left(sum, shifts[round][i % 4]);
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

static void sha1_start(void *opaque)
{
    static const uint32_t initial[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};

    memcpy(opaque, initial, sizeof(initial));
}

static void sha1_step(void *opaque, const uint8_t *block)
{
    static const uint32_t constants[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t *state = opaque, words[80];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];

    for (int i = 0; i < 80; i++) {
        words[i] = i < 16 ? load_32(block + 4 * i)
                          : rotate_left(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16],
                                        1);
    }
    for (int i = 0; i < 80; i++) {
        int round = i / 20;
        uint32_t mix = round == 0   ? (b & c) | (~b & d)
                       : round == 2 ? (b & c) | (b & d) | (c & d)
                                    : b ^ c ^ d;
        uint32_t sum = rotate_left(a, 5) + mix + e + constants[round] + words[i];
        e = d;
        d = c;
        c = rotate_left(b, 30);
        b = a;
        a = sum;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

// The fractions of the cube roots of the first 80 primes; SHA-256 takes the upper halves of the
// first 64.
static const uint64_t roots[80] = {
    0x428a2f98d728ae22, 0x7137449123ef65cd, 0xb5c0fbcfec4d3b2f, 0xe9b5dba58189dbbc,
    0x3956c25bf348b538, 0x59f111f1b605d019, 0x923f82a4af194f9b, 0xab1c5ed5da6d8118,
    0xd807aa98a3030242, 0x12835b0145706fbe, 0x243185be4ee4b28c, 0x550c7dc3d5ffb4e2,
    0x72be5d74f27b896f, 0x80deb1fe3b1696b1, 0x9bdc06a725c71235, 0xc19bf174cf692694,
    0xe49b69c19ef14ad2, 0xefbe4786384f25e3, 0x0fc19dc68b8cd5b5, 0x240ca1cc77ac9c65,
    0x2de92c6f592b0275, 0x4a7484aa6ea6e483, 0x5cb0a9dcbd41fbd4, 0x76f988da831153b5,
    0x983e5152ee66dfab, 0xa831c66d2db43210, 0xb00327c898fb213f, 0xbf597fc7beef0ee4,
    0xc6e00bf33da88fc2, 0xd5a79147930aa725, 0x06ca6351e003826f, 0x142929670a0e6e70,
    0x27b70a8546d22ffc, 0x2e1b21385c26c926, 0x4d2c6dfc5ac42aed, 0x53380d139d95b3df,
    0x650a73548baf63de, 0x766a0abb3c77b2a8, 0x81c2c92e47edaee6, 0x92722c851482353b,
    0xa2bfe8a14cf10364, 0xa81a664bbc423001, 0xc24b8b70d0f89791, 0xc76c51a30654be30,
    0xd192e819d6ef5218, 0xd69906245565a910, 0xf40e35855771202a, 0x106aa07032bbd1b8,
    0x19a4c116b8d2d0c8, 0x1e376c085141ab53, 0x2748774cdf8eeb99, 0x34b0bcb5e19b48a8,
    0x391c0cb3c5c95a63, 0x4ed8aa4ae3418acb, 0x5b9cca4f7763e373, 0x682e6ff3d6b2b8a3,
    0x748f82ee5defb2fc, 0x78a5636f43172f60, 0x84c87814a1f0ab72, 0x8cc702081a6439ec,
    0x90befffa23631e28, 0xa4506cebde82bde9, 0xbef9a3f7b2c67915, 0xc67178f2e372532b,
    0xca273eceea26619c, 0xd186b8c721c0c207, 0xeada7dd6cde0eb1e, 0xf57d4f7fee6ed178,
    0x06f067aa72176fba, 0x0a637dc5a2c898a6, 0x113f9804bef90dae, 0x1b710b35131c471b,
    0x28db77f523047d84, 0x32caab7b40c72493, 0x3c9ebe0a15c9bebc, 0x431d67c49c100d4c,
    0x4cc5d4becb3e42b6, 0x597f299cfc657e2a, 0x5fcb6fab3ad6faec, 0x6c44198c4a475817};

static void sha256_start(void *opaque)
{
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memcpy(opaque, initial, sizeof(initial));
}

static void sha256_step(void *opaque, const uint8_t *block)
{
    uint32_t *state = opaque, words[64], now[8];

    memcpy(now, state, sizeof(now));
    for (int i = 0; i < 64; i++) {
        uint32_t early, late;
        if (i < 16) {
            words[i] = load_32(block + 4 * i);
            continue;
        }
        early = rotate_right(words[i - 15], 7) ^ rotate_right(words[i - 15], 18) ^
                words[i - 15] >> 3;
        late = rotate_right(words[i - 2], 17) ^ rotate_right(words[i - 2], 19) ^ words[i - 2] >> 10;
        words[i] = words[i - 16] + early + words[i - 7] + late;
    }
    for (int i = 0; i < 64; i++) {
        uint32_t e = now[4], a = now[0];
        uint32_t one = now[7] + (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)) +
                       ((e & now[5]) ^ (~e & now[6])) + (uint32_t)(roots[i] >> 32) + words[i];
        uint32_t two = (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) +
                       ((a & now[1]) ^ (a & now[2]) ^ (now[1] & now[2]));
        memmove(now + 1, now, 7 * sizeof(now[0]));
        now[4] += one;
        now[0] = one + two;
    }
    for (int i = 0; i < 8; i++) {
        state[i] += now[i];
    }
}

static void sha512_start(void *opaque)
{
    static const uint64_t initial[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                        0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                                        0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};

    memcpy(opaque, initial, sizeof(initial));
}

static void sha384_start(void *opaque)
{
    static const uint64_t initial[8] = {0xcbbb9d5dc1059ed8, 0x629a292a367cd507, 0x9159015a3070dd17,
                                        0x152fecd8f70e5939, 0x67332667ffc00b31, 0x8eb44a8768581511,
                                        0xdb0c2e0d64f98fa7, 0x47b5481dbefa4fa4};

    memcpy(opaque, initial, sizeof(initial));
}

static void sha512_step(void *opaque, const uint8_t *block)
{
    uint64_t *state = opaque, words[80], now[8];

    memcpy(now, state, sizeof(now));
    for (int i = 0; i < 80; i++) {
        uint64_t early, late;
        if (i < 16) {
            words[i] = (uint64_t)load_32(block + 8 * i) << 32 | load_32(block + 8 * i + 4);
            continue;
        }
        early = rotate_right_64(words[i - 15], 1) ^ rotate_right_64(words[i - 15], 8) ^
                words[i - 15] >> 7;
        late = rotate_right_64(words[i - 2], 19) ^ rotate_right_64(words[i - 2], 61) ^
               words[i - 2] >> 6;
        words[i] = words[i - 16] + early + words[i - 7] + late;
    }
    for (int i = 0; i < 80; i++) {
        uint64_t e = now[4], a = now[0];
        uint64_t one = now[7] +
                       (rotate_right_64(e, 14) ^ rotate_right_64(e, 18) ^ rotate_right_64(e, 41)) +
                       ((e & now[5]) ^ (~e & now[6])) + roots[i] + words[i];
        uint64_t two = (rotate_right_64(a, 28) ^ rotate_right_64(a, 34) ^ rotate_right_64(a, 39)) +
                       ((a & now[1]) ^ (a & now[2]) ^ (now[1] & now[2]));
        memmove(now + 1, now, 7 * sizeof(now[0]));
        now[4] += one;
        now[0] = one + two;
    }
    for (int i = 0; i < 8; i++) {
        state[i] += now[i];
    }
}

static const struct algorithm algorithms[] = {
    {"md5", 64, 4, 16, md5_start, md5_step, 1},
    {"sha1", 64, 4, 20, sha1_start, sha1_step, 0},
    {"sha256", 64, 4, 32, sha256_start, sha256_step, 0},
    {"sha384", 128, 8, 48, sha384_start, sha512_step, 0},
    {"sha512", 128, 8, 64, sha512_start, sha512_step, 0},
};

// The last blocks: a bit, zeroes, and the length in bits at the very end.
static void finish(const struct algorithm *with, void *state, const uint8_t *rest, size_t left,
                   uint64_t length)
{
    uint8_t block[2 * BLOCK_MAX] = {0};
    size_t counter = with->block / 8; // bytes of the length field
    size_t total = left + 1 + counter > with->block ? 2 * with->block : with->block;
    uint64_t bits = length * 8;

    if (left > 0) {
        memcpy(block, rest, left);
    }
    block[left] = 0x80;
    for (size_t i = 0; i < 8; i++) {
        uint8_t byte = (uint8_t)(bits >> (8 * i));
        block[with->is_little_endian ? total - 8 + i : total - 1 - i] = byte;
    }
    for (size_t at = 0; at < total; at += with->block) {
        with->step(state, block + at);
    }
}

static void output(const struct algorithm *with, const void *state, uint8_t *out)
{
    for (size_t i = 0; i < with->length; i++) {
        size_t word = i / with->state, byte = i % with->state;
        uint64_t value = with->state == 4 ? ((const uint32_t *)state)[word]
                                          : ((const uint64_t *)state)[word];
        size_t shift = with->is_little_endian ? byte : with->state - 1 - byte;
        out[i] = (uint8_t)(value >> (8 * shift));
    }
}

// digest(name, bytes) → bytes, or undefined for a name that it does not know.
static JSValue native_digest(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    uint64_t state[8] = {0};
    uint8_t out[64];
    size_t length = 0, at = 0;
    const uint8_t *bytes = natives_bytes(ctx, argv[1], &length);
    const char *name;
    const struct algorithm *with = NULL;

    (void)self, (void)argc;
    if (!bytes && JS_HasException(ctx)) {
        return JS_EXCEPTION;
    }
    name = JS_ToCString(ctx, argv[0]);
    if (!name) {
        return JS_EXCEPTION;
    }
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
        if (strcmp(algorithms[i].name, name) == 0) {
            with = &algorithms[i];
        }
    }
    JS_FreeCString(ctx, name);
    if (!with) {
        return JS_UNDEFINED;
    }
    with->start(state);
    for (; at + with->block <= length; at += with->block) {
        with->step(state, bytes + at);
    }
    finish(with, state, bytes ? bytes + at : NULL, length - at, length);
    output(with, state, out);
    return JS_NewUint8ArrayCopy(ctx, out, with->length);
}

static const JSCFunctionListEntry entries[] = {
    JS_CFUNC_DEF("digest", 2, native_digest),
};

int natives_add_digests(JSContext *ctx, JSValueConst object)
{
    return JS_SetPropertyFunctionList(ctx, object, entries, 1);
}
