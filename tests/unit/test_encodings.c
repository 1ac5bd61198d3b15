/* Bytes as text: base64 there and back, in both alphabets, and hexadecimal, and every text that is refused; and which
 * bytes are UTF-8. */
#include "base/base64.h"
#include "base/hex.h"
#include "base/utf8.h"
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

static void test_characters_of_utf8(void)
{
    static const struct {
        const char *bytes;
        size_t size, whole;
        bool is_valid;
    } rows[] = {
        {"", 0, 0, true},
        {"abc", 3, 3, true},
        {"a\xC3\xA9", 3, 3, true},
        {"a\xC3", 2, 1, false},
        {"\xE2\x82\xAC", 3, 3, true},
        {"\xE2\x82", 2, 0, false},
        {"a\xE2", 2, 1, false},
        {"\xF0\x9F\x98\x80", 4, 4, true},
        {"x\xF0\x9F\x98", 4, 1, false},
        {"\xF0\x9F", 2, 0, false},
        {"\xC0\x80", 2, 2, false},         /* NUL, written longer than it is */
        {"\xE0\x80", 2, 2, false},         /* too, so nothing can complete it */
        {"\xED\xA0\x80", 3, 3, false},     /* a surrogate */
        {"\xF4\x90\x80\x80", 4, 4, false}, /* beyond Unicode */
        {"\xF5", 1, 1, false},
        {"\x80\x80\x80", 3, 3, false},
        {"\xFF", 1, 1, false},
        {"\xE2\x82\xAC\xE2", 4, 3, false},
    };
    /* For how many bytes one U+FFFD stands: the longest start of a character. */
    static const struct {
        const char *bytes;
        size_t count;
    } bad[] = {{"\xE2\x82", 2},
               {"\xE2\x82"
                "a",
                2},
               {"\xF0\x9F\x98", 3},
               {"\xF0\x9F\x98"
                "a",
                3},
               {"\xE0\x80\x80", 1},
               {"\xED\xA0\x80", 1},
               {"\xC3", 1},
               {"\xC3"
                "a",
                1},
               {"\xF4\x90\x80", 1},
               {"\x80\x80", 1},
               {"\xFFz", 1}};

    for (size_t i = 0; i < COUNT(rows); i++) {
        CHECK(utf8_whole(rows[i].bytes, rows[i].size) == rows[i].whole, "row %zu: %zu", i,
              utf8_whole(rows[i].bytes, rows[i].size));
        CHECK(utf8_is_valid(rows[i].bytes, rows[i].size) == rows[i].is_valid, "row %zu", i);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        size_t count = 0;

        CHECK(utf8_length(bad[i].bytes, strlen(bad[i].bytes), &count) == 0 && count == bad[i].count,
              "bad row %zu: %zu", i, count);
    }
    CHECK(utf8_inside("\x82\xAC"
                      "a",
                      3) == 2,
          "two bytes of a character that began before");
    CHECK(utf8_inside("\x80\x80\x80\x80", 4) == 3, "no character has more");
    CHECK(utf8_inside("a", 1) == 0, "none");
    CHECK(utf8_value("a", 1) == 'a' && utf8_value("\xC3\xA9", 2) == 0xe9 &&
              utf8_value("\xE2\x82\xAC", 3) == 0x20ac &&
              utf8_value("\xF4\x8F\xBF\xBF", 4) == 0x10ffff,
          "the numbers of characters");
}

int main(void)
{
    test_characters_of_utf8();
    test_hexadecimal_there_and_back();
    test_base64_has_one_text_for_the_same_bytes();
    test_base64_of_urls_has_no_padding();
    return check_finish();
}
