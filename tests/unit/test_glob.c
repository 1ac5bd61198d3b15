/* Globs: what matches what, what is none, and that no glob takes long. */
#include "base/glob.h"

#include "base/clock.h"
#include "check.h"

#include <string.h>

static const struct {
    const char *glob, *path;
    bool matches;
} cases[] = {
    {"*.c", "a.c", true},
    {"*.c", "dir/a.c", true}, /* without '/': the last part */
    {"*.c", "a.h", false},
    {"*.c", ".c", true},
    {"a*c", "abbc", true},
    {"a*c", "ab", false},
    {"?", "a", true},
    {"?", "", false},
    {"?", "\xc3\xa9", true},       /* a character of two bytes */
    {"?", "\xff", true},           /* a byte that is none */
    {"???", "\xed\xa0\x80", true}, /* a surrogate is none, either */
    {"?", "\xed\xa0\x80", false},
    {"??", "\xc3\xa9", false},
    {"?", "ab", false},
    {"a?b", "a/b", false},
    {"[abc]x", "bx", true},
    {"[!abc]x", "bx", false},
    {"[^abc]x", "dx", true},
    {"[a-c]", "b", true},
    {"[a-c]", "d", false},
    {"[]a]", "]", true},
    {"[a-]", "-", true},
    {"[\\]]", "]", true},
    {"a[/]b", "a/b", false},
    {"a[!x]b", "a/b", false},
    {"[\xc3\xa0-\xc3\xaf]", "\xc3\xa9", true},
    {"\\*", "*", true},
    {"\\*", "a", false},
    {"{a,b}", "a", true},
    {"{a,b}", "b", true},
    {"{a,b}", "c", false},
    {"{a,}x", "x", true},
    {"{a,b{c,d}}e", "bde", true},
    {"{a,b{c,d}}e", "be", false},
    {"*.{c,h}", "dir/a.h", true},
    {"{*.c,*.h}", "a.h", true},
    {"a,b}", "a,b}", true},
    {"{a}", "a", true},
    {"{}", "", true},
    {"/a", "a", true},
    {"/a", "b/a", false},
    {"a/b", "a/b", true},
    {"a/b", "x/a/b", false},
    {"a/*", "a/b", true},
    {"a/*", "a/b/c", false},
    {"**", "a/b/c", true},
    {"**/c", "c", true},
    {"**/c", "a/b/c", true},
    {"**/c", "a/bc", false},
    {"a/**", "a/b/c", true},
    {"a/**", "a", false},
    {"a/**/c", "a/c", true},
    {"a/**/c", "a/x/y/c", true},
    {"a/**/c", "ac", false},
    {"a**c", "axxc", true}, /* not a whole part: as one star */
    {"a**/c", "axx/y/c", false},
    {"**/{a,b}/**/*.c", "x/b/y/z.c", true},
    {"{**/a,b}", "x/y/a", true},
    {"**/**/**/a", "a", true},
    {"***", "a/b", true},
    {"a\nb", "a\nb", true},
};

static const char *const flawed[] = {
    "[a", "[", "[!]", "{a", "{a,{b}", "\\", "", "a\\", "{{{{{{{{{{{{{{{{{a}}}}}}}}}}}}}}}}}"};

static void takes_no_time(void)
{
    char glob[GLOB_MAX], path[4096];
    uint64_t started = clock_monotonic_ns();

    memset(path, 'a', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    for (size_t i = 0; i < sizeof(glob) - 1; i++)
        glob[i] = i % 2 == 0 ? '*' : 'a';
    glob[sizeof(glob) - 2] = 'b';
    glob[sizeof(glob) - 1] = '\0';
    CHECK(!glob_match(glob, path), "five hundred stars");
    memcpy(glob, "{*a,a*}{*a,a*}{*a,a*}{*a,a*}{*a,a*}{*a,a*}{*a,a*}{*a,a*}b", 58);
    CHECK(!glob_match(glob, path), "braces");
    /* Going back would take until the end of the world. */
    CHECK(clock_monotonic_ns() - started < 60ULL * 1000000000, "it took too long");
    memset(glob, 'a', sizeof(glob));
    glob[sizeof(glob) - 1] = '\0';
    CHECK(glob_flaw(glob) == NULL, "the longest is taken");
}

static void several(void)
{
    static const char *const globs[] = {"*.c", "!test*", "*.h"}, *const none[] = {"!x"};

    CHECK(globs_match(globs, 3, "a/b.c") == GLOBS_TAKEN, "one of them");
    CHECK(globs_match(globs, 3, "a/b.py") == GLOBS_PASSED, "none of them");
    CHECK(globs_match(globs, 3, "a/test.c") == GLOBS_EXCLUDED, "one that is excluded");
    CHECK(globs_match(none, 1, "a") == GLOBS_TAKEN, "only what is excluded is not taken");
    CHECK(globs_match(none, 1, "a/x") == GLOBS_EXCLUDED, "by its last part");
    CHECK(globs_match(NULL, 0, "a") == GLOBS_TAKEN, "no globs");
}

int main(void)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CHECK(glob_match(cases[i].glob, cases[i].path) == cases[i].matches, "\"%s\" and \"%s\"",
              cases[i].glob, cases[i].path);
    for (size_t i = 0; i < sizeof(flawed) / sizeof(flawed[0]); i++) {
        CHECK(glob_flaw(flawed[i]) != NULL, "\"%s\" is no glob", flawed[i]);
        CHECK(!glob_match(flawed[i], "a"), "\"%s\" matches nothing", flawed[i]);
    }
    takes_no_time();
    several();
    return check_finish();
}
