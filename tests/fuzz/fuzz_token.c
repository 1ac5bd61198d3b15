/* Any bytes as a token's text, and as its claims behind a MAC that is right: taken or refused, and what was
 * taken is a sandbox's and has one text. The first byte says which. */
#include "engine/token.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t key[SHA256_BYTES] = "the key of nobody";

static void try_claims(const uint8_t *data, size_t size)
{
    struct token_claims claims, again;
    char text[TOKEN_TEXT_MAX];

    if (!token_claims_parse(data, size, &claims))
        return;
    must(claims.sandbox[0] != '\0' && claims.verbs <= 63 && claims.method <= TOKEN_PUT);
    token_format(key, &claims, text);
    must(token_parse(key, text, &again) && memcmp(&claims, &again, sizeof(claims)) == 0);
}

static void try_text(const uint8_t *data, size_t size)
{
    struct token_claims claims;
    char *text = malloc(size + 1), whole[TOKEN_TEXT_MAX];

    if (text == NULL)
        return;
    memcpy(text, data, size);
    text[size] = '\0';
    if (token_parse(key, text, &claims)) {
        token_format(key, &claims, whole);
        must(strcmp(text, whole) == 0);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > 65536)
        return 0;
    if (data[0] == 't')
        try_text(data + 1, size - 1);
    else
        try_claims(data + 1, size - 1);
    return 0;
}
