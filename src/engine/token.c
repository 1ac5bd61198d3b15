/* The text of a token: see token.h. */
#include "engine/token.h"

#include "base/base64.h"

#include <stdlib.h>
#include <string.h>

#define VERSION 1
#define VERBS_ALL                                                                        \
    (ENGINE_LOOK | ENGINE_EXEC | ENGINE_FILES_READ | ENGINE_FILES_WRITE | ENGINE_PORTS | \
     ENGINE_LIFE)
#define BYTES_MAX ((TOKEN_TEXT_MAX - sizeof(TOKEN_PREFIX)) / 4 * 3)
/* Version, verbs, method, port, generation, expiry; lengths and texts. */
#define CLAIMS_MAX                                                                          \
    (1 + 1 + 1 + 2 + 8 + 8 + 4 + TOKEN_ID_SIZE + (size_t)64 + (size_t)24 + (size_t)24 + 2 + \
     ENGINE_TOKEN_PATH_MAX)
_Static_assert(CLAIMS_MAX + SHA256_BYTES <= BYTES_MAX, "the longest claims have room");

/* ---- the claims as bytes ---- */

struct bytes {
    uint8_t data[BYTES_MAX];
    size_t used;
};

static void put(struct bytes *bytes, uint64_t value, size_t size)
{
    while (size > 0)
        bytes->data[bytes->used++] = (uint8_t)(value >> 8 * --size);
}

static void put_text(struct bytes *bytes, const char *text, size_t length_size)
{
    size_t length = strlen(text);

    put(bytes, length, length_size);
    memcpy(bytes->data + bytes->used, text, length);
    bytes->used += length;
}

struct reader {
    const uint8_t *at, *end;
    bool is_bad;
};

static uint64_t get(struct reader *reader, size_t size)
{
    uint64_t value = 0;

    if ((size_t)(reader->end - reader->at) < size) {
        reader->is_bad = true;
        return 0;
    }
    while (size-- > 0)
        value = value << 8 | *reader->at++;
    return value;
}

static void get_text(struct reader *reader, size_t length_size, char *into, size_t room)
{
    size_t length = (size_t)get(reader, length_size);

    if (reader->is_bad || length >= room || length > (size_t)(reader->end - reader->at) ||
        memchr(reader->at, '\0', length) != NULL) {
        reader->is_bad = true;
        return;
    }
    memcpy(into, reader->at, length);
    into[length] = '\0';
    reader->at += length;
}

bool token_claims_parse(const uint8_t *bytes, size_t size, struct token_claims *claims)
{
    struct reader reader = {bytes, bytes + size, false};
    uint64_t method;

    memset(claims, 0, sizeof(*claims));
    if (get(&reader, 1) != VERSION)
        return false;
    claims->verbs = (unsigned)get(&reader, 1);
    method = get(&reader, 1);
    claims->port = (uint16_t)get(&reader, 2);
    claims->generation = get(&reader, 8);
    claims->expires_ms = get(&reader, 8);
    get_text(&reader, 1, claims->id, sizeof(claims->id));
    get_text(&reader, 1, claims->tenant, sizeof(claims->tenant));
    get_text(&reader, 1, claims->sandbox, sizeof(claims->sandbox));
    get_text(&reader, 1, claims->key_id, sizeof(claims->key_id));
    get_text(&reader, 2, claims->path, sizeof(claims->path));
    claims->method = (enum token_method)method;
    /* Without a sandbox it would be taken for a key. */
    return !reader.is_bad && reader.at == reader.end && method <= TOKEN_PUT &&
           claims->sandbox[0] != '\0' && claims->tenant[0] != '\0' &&
           (claims->verbs & ~(unsigned)VERBS_ALL) == 0;
}

static void claims_format(const struct token_claims *claims, struct bytes *bytes)
{
    put(bytes, VERSION, 1);
    put(bytes, claims->verbs, 1);
    put(bytes, claims->method, 1);
    put(bytes, claims->port, 2);
    put(bytes, claims->generation, 8);
    put(bytes, claims->expires_ms, 8);
    put_text(bytes, claims->id, 1);
    put_text(bytes, claims->tenant, 1);
    put_text(bytes, claims->sandbox, 1);
    put_text(bytes, claims->key_id, 1);
    put_text(bytes, claims->path, 2);
}

/* ---- the text ---- */

bool token_is(const char *text)
{
    return strncmp(text, TOKEN_PREFIX, strlen(TOKEN_PREFIX)) == 0;
}

void token_format(const uint8_t key[SHA256_BYTES], const struct token_claims *claims,
                  char text[TOKEN_TEXT_MAX])
{
    struct bytes bytes = {.used = 0};

    claims_format(claims, &bytes);
    sha256_hmac(key, bytes.data, bytes.used, bytes.data + bytes.used);
    memcpy(text, TOKEN_PREFIX, sizeof(TOKEN_PREFIX));
    base64_url_encode(bytes.data, bytes.used + SHA256_BYTES, text + strlen(TOKEN_PREFIX));
}

bool token_parse(const uint8_t key[SHA256_BYTES], const char *text, struct token_claims *claims)
{
    uint8_t bytes[TOKEN_TEXT_MAX], mac[SHA256_BYTES], difference = 0;
    size_t length = strnlen(text, TOKEN_TEXT_MAX), prefix = strlen(TOKEN_PREFIX);
    ptrdiff_t got;
    size_t size;

    if (!token_is(text) || length >= TOKEN_TEXT_MAX)
        return false;
    got = base64_url_decode(text + prefix, length - prefix, bytes);
    if (got <= SHA256_BYTES)
        return false;
    size = (size_t)got - SHA256_BYTES;
    sha256_hmac(key, bytes, size, mac);
    for (size_t i = 0; i < SHA256_BYTES; i++)
        difference |= (uint8_t)(mac[i] ^ bytes[size + i]);
    return difference == 0 && token_claims_parse(bytes, size, claims);
}
