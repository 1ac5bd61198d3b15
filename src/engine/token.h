/* The text of a token: what it claims, and a MAC over that, in letters that are legal in URLs and headers.
 *
 * Who presents one is hostile: the MAC is compared first, in constant time and over all bytes, and only
 * then a byte of the claims is looked at. There is one text for the same bytes. This knows no engine: it
 * says that a token was made under this key, never that it is still worth anything. */
#pragma once

#include "base/sha256.h"
#include "engine/engine.h"

#define TOKEN_PREFIX "covetok_"
#define TOKEN_ID_SIZE 17
/* Prefix, and base64 of the longest claims with their MAC. */
#define TOKEN_TEXT_MAX 2048

enum token_method { TOKEN_ANY, TOKEN_GET, TOKEN_PUT };

struct token_claims {
    char id[TOKEN_ID_SIZE];
    char tenant[64], sandbox[24];
    char key_id[24]; /* of its maker */
    unsigned verbs;  /* enum engine_verb */
    enum token_method method;
    char path[ENGINE_TOKEN_PATH_MAX];
    uint16_t port;
    uint64_t generation; /* of the sandbox's tokens */
    uint64_t expires_ms; /* wall clock */
};

bool token_is(const char *text); /* whether it is meant to be one, and no key */
void token_format(const uint8_t key[SHA256_BYTES], const struct token_claims *claims,
                  char text[TOKEN_TEXT_MAX]);
/* False: no token of this key. */
bool token_parse(const uint8_t key[SHA256_BYTES], const char *text, struct token_claims *claims);
/* The claims alone, after their MAC. */
bool token_claims_parse(const uint8_t *bytes, size_t size, struct token_claims *claims);
