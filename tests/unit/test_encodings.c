/* Bytes as text: base64 there and back, in both alphabets, and hexadecimal; and every text that is refused. */
#include "base/base64.h"
#include "base/hex.h"
#include "check.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void test_base64_has_one_text_for_the_same_bytes(void)
{
    /* Of RFC 4648, section 10. */
    static const char *const texts[] = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                        "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    static const char *const bad[] = {
        "a",    "ab",   "abc",      "ab=c", "a===", "====", "ab c", "ab\n=",    "ab-_",
        "YR==", "YWJ=", "YQ==YQ==", "Z",    "Zg=",  "Z===", "Z=g=", "Zg==Zg==", "Zm9\n"};
    char text[16], bytes[16];

    for (size_t size = 0; size < COUNT(texts); size++) {
        memset(text, '#', sizeof(text));
        base64_encode("foobar", size, text);
        CHECK(memcmp(text, texts[size], BASE64_SIZE(size)) == 0 && text[BASE64_SIZE(size)] == '#',
              "%zu bytes: %.16s", size, text);
        CHECK(base64_decode(text, BASE64_SIZE(size), text) == (ptrdiff_t)size &&
                  memcmp(text, "foobar", size) == 0,
              "%zu bytes, in place", size);
    }
    base64_encode("\xFB\xFF\xFE", 3, text);
    CHECK(memcmp(text, "+//+", 4) == 0, "%.4s", text);
    CHECK(base64_decode("AP8Q", 4, bytes) == 3 && memcmp(bytes, "\0\xff\x10", 3) == 0, "a NUL");
    for (size_t i = 0; i < COUNT(bad); i++)
        CHECK(base64_decode(bad[i], strlen(bad[i]), bytes) == -1, "\"%s\"", bad[i]);
}

static void test_base64_of_urls_has_no_padding(void)
{
    static const char *const texts[] = {"", "Zg", "Zm8", "Zm9v", "Zm9vYg", "Zm9vYmE", "Zm9vYmFy"};
    static const char *const bad[] = {"Z", "Zm9vY", "Zg==", "Zm8=", "Zh", "Zm9", "+/+/", "Zm 9"};
    char text[16], bytes[16];

    for (size_t size = 0; size < COUNT(texts); size++) {
        base64_url_encode("foobar", size, text);
        CHECK(strcmp(text, texts[size]) == 0, "%zu bytes: %s", size, text);
        CHECK(base64_url_decode(text, strlen(text), bytes) == (ptrdiff_t)size &&
                  memcmp(bytes, "foobar", size) == 0,
              "%zu bytes there and back", size);
    }
    base64_url_encode("\xFB\xFF\xFE", 3, text);
    CHECK(strcmp(text, "-__-") == 0, "%s", text);
    for (size_t i = 0; i < COUNT(bad); i++)
        CHECK(base64_url_decode(bad[i], strlen(bad[i]), bytes) == -1, "\"%s\"", bad[i]);
}

static void test_hexadecimal_there_and_back(void)
{
    static const char *const bad[] = {"",   "0",  "0g", "g0", " 0", "0x",
                                      "/0", ":0", "@0", "G0", "`0"};
    unsigned char bytes[256], got[256];
    char text[HEX_SIZE(256)];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)i;
    hex_encode(bytes, sizeof(bytes), text);
    CHECK(strlen(text) == 512 && memcmp(text, "000102", 6) == 0 &&
              strcmp(text + 506, "fdfeff") == 0,
          "%.6s...%s", text, text + 506);
    CHECK(hex_decode(text, sizeof(got), got) && memcmp(got, bytes, sizeof(got)) == 0, "all bytes");
    CHECK(hex_decode("aBfE", 2, got) && got[0] == 0xab && got[1] == 0xfe, "both cases");
    CHECK(hex_decode("zz", 0, got), "nothing is asked");
    hex_encode("", 0, text);
    CHECK(*text == '\0', "of nothing: %s", text);
    for (size_t i = 0; i < COUNT(bad); i++)
        CHECK(!hex_decode(bad[i], 1, got), "\"%s\"", bad[i]);
}

int main(void)
{
    test_hexadecimal_there_and_back();
    test_base64_has_one_text_for_the_same_bytes();
    test_base64_of_urls_has_no_padding();
    return check_finish();
}
