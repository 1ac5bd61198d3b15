/* A key's answer in the handshake of WebSocket: SHA-1 of it and a fixed text, in base64.
 *
 * It proves that the server meant WebSocket and is no secret; for nothing else may this SHA-1 be used. */
#include "http/frames.h"

#include "base/base64.h"

#include <string.h>

#define KEY_SIZE 24 /* of 16 bytes */
#define SUFFIX "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

static uint32_t turn(uint32_t word, unsigned by)
{
    return word << by | word >> (32 - by);
}

static void add_block(uint32_t sum[5], const unsigned char block[64])
{
    uint32_t words[80], a = sum[0], b = sum[1], c = sum[2], d = sum[3], e = sum[4];

    for (size_t i = 0; i < 80; i++) {
        if (i < 16) {
            words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
                       (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
        } else {
            words[i] = turn(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
        }
    }
    for (unsigned i = 0; i < 80; i++) {
        uint32_t mixed = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999U
                         : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1U
                         : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcU
                                  : (b ^ c ^ d) + 0xca62c1d6U;
        uint32_t next = turn(a, 5) + mixed + e + words[i];

        e = d;
        d = c;
        c = turn(b, 30);
        b = a;
        a = next;
    }
    sum[0] += a;
    sum[1] += b;
    sum[2] += c;
    sum[3] += d;
    sum[4] += e;
}

bool http_key_is_sane(const char *key)
{
    unsigned char bytes[18];

    return strlen(key) == KEY_SIZE && base64_decode(key, KEY_SIZE, bytes) == 16;
}

void http_key_answer(const char *key, char answer[29])
{
    uint32_t sum[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    /* 60 bytes and the mark behind them; their count of bits is alone in the second block. */
    unsigned char blocks[128] = {0}, bytes[20];

    memcpy(blocks, key, KEY_SIZE);
    memcpy(blocks + KEY_SIZE, SUFFIX, sizeof(SUFFIX) - 1);
    blocks[60] = 0x80;
    blocks[126] = 60 * 8 >> 8;
    blocks[127] = (60 * 8) & 0xff;
    add_block(sum, blocks);
    add_block(sum, blocks + 64);
    for (unsigned i = 0; i < 20; i++) {
        bytes[i] = (unsigned char)(sum[i / 4] >> (24 - 8 * (i % 4)));
    }
    base64_encode(bytes, sizeof(bytes), answer);
    answer[28] = '\0';
}
