/* SHA-256 (FIPS 180-4), for names that say what a content is; and HMAC with it, for what must not be
 * forged. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32
#define SHA256_TEXT 65 /* in hexadecimal, with its end */

struct sha256 {
    uint32_t state[8];
    uint64_t length;
    uint8_t block[64];
};

void sha256_begin(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *data, size_t size);
void sha256_end(struct sha256 *hash, char text[SHA256_TEXT]);
void sha256_end_bytes(struct sha256 *hash, uint8_t bytes[SHA256_BYTES]);

void sha256_hmac(const uint8_t key[SHA256_BYTES], const void *data, size_t size,
                 uint8_t bytes[SHA256_BYTES]);
