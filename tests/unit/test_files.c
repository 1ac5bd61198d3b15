/* Files: what a verb is asked for as the words of its tool, and what a tool says as items. */
#include "check.h"
#include "engine/files_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void check_words(const struct files_spec *spec, const char *beneath, const char *expected)
{
    const char **argv;
    struct error err;
    char text[1024] = "";

    if (files_argv(spec, beneath, &argv, &err) != 0) {
        CHECK(false, "%s", err.text);
        return;
    }
    for (size_t i = 0; argv[i] != NULL; i++) {
        (void)strncat(text, i > 0 ? " " : "", sizeof(text) - strlen(text) - 1);
        (void)strncat(text, argv[i], sizeof(text) - strlen(text) - 1);
    }
    CHECK(strcmp(text, expected) == 0, "\"%s\" is not \"%s\"", text, expected);
    free(argv);
}

static void test_words(void)
{
    const char *const one[] = {"/a b", NULL}, *const two[] = {"from", "to", NULL};
    const char *const globs[] = {"*.c", "--depth", NULL};
    struct files_spec spec = files_spec(FILES_STAT, one);

    check_words(&spec, "", "stat -- /a b");
    check_words(&spec, "/home", "stat --beneath /home -- /a b");
    spec.recursive = true; /* it has none */
    spec.mode = 0644;
    check_words(&spec, "", "stat -- /a b");
    spec = files_spec(FILES_LIST, one);
    spec.depth = 0;
    spec.limit = 7;
    spec.after = "--limit";
    spec.globs = globs;
    spec.hides = true;
    check_words(&spec, "",
                "list --depth 0 --limit 7 --after --limit --glob *.c --glob --depth --hidden 0 -- "
                "/a b");
    spec = files_spec(FILES_CHMOD, one);
    spec.mode = 01755;
    check_words(&spec, "", "chmod --mode 1755 -- /a b");
    spec = files_spec(FILES_MOVE, two);
    spec.replace = true;
    check_words(&spec, "", "move --replace -- from to");
    spec = files_spec(FILES_SETXATTR, one);
    spec.name = "user.x";
    spec.value = "\0\xff";
    spec.value_size = 2;
    check_words(&spec, "", "setxattr --name user.x --value 00ff -- /a b");
    spec = files_spec(FILES_GREP, one);
    spec.pattern = "-x";
    spec.before = 1;
    spec.after_lines = 2;
    check_words(&spec, "", "grep --before 1 --after 2 --pattern -x --hidden 1 -- /a b");
}

static void test_errors(void)
{
    static const struct {
        int errnum;
        const char *word, *code;
    } cases[] = {
        {ENOENT, "", "file_not_found"},
        {EACCES, "", "file_forbidden"},
        {EROFS, "", "file_forbidden"},
        {ENOTDIR, "", "not_a_directory"},
        {EISDIR, "", "is_a_directory"},
        {EEXIST, "", "file_exists"},
        {ENOTEMPTY, "", "directory_not_empty"},
        {ENAMETOOLONG, "", "name_too_long"},
        {ENOSPC, "", "disk_full"},
        {EDQUOT, "", "disk_full"},
        {EFBIG, "", "disk_full"},
        {ETXTBSY, "", "file_busy"},
        {EIO, "", "file_failed"},
        {0, "not_regular", "not_regular"},
        {0, "bad_archive", "bad_archive"},
        {0, "bad_pattern", "bad_pattern"},
        {0, "sandbox_gone", "file_failed"},
        {-1, "", "file_failed"},
        {ENOENT, "not_regular", "not_regular"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char payload[sizeof(struct tool_error) + 3];
        struct tool_error error = {.operand = 0, .errnum = cases[i].errnum, .text = "open"};
        struct files_item item;

        (void)snprintf(error.code, sizeof(error.code), "%s", cases[i].word);
        memcpy(payload, &error, sizeof(error));
        memcpy(payload + sizeof(error), "/x", 3);
        CHECK(files_parse(TOOL_ERROR, payload, sizeof(payload), &item) == 0, "case %zu", i);
        CHECK(item.kind == FILES_FAILED && strcmp(item.error.code, cases[i].code) == 0,
              "case %zu is %s", i, item.error.code);
        CHECK(strncmp(item.error.text, "/x: ", 4) == 0 ||
                  strcmp(item.error.code, "bad_pattern") == 0,
              "%s", item.error.text);
        error.operand = -1;
        memcpy(payload, &error, sizeof(error));
        CHECK(files_parse(TOOL_ERROR, payload, sizeof(payload), &item) == 0 &&
                  item.kind == FILES_END && item.error.code[0] != '\0',
              "case %zu", i);
    }
}

static void check_sentence(int errnum, const char *word, const char *text, const char *expected)
{
    char payload[sizeof(struct tool_error) + 3];
    struct tool_error error = {.operand = 0, .errnum = errnum};
    struct files_item item;

    (void)snprintf(error.code, sizeof(error.code), "%s", word);
    (void)snprintf(error.text, sizeof(error.text), "%s", text);
    memcpy(payload, &error, sizeof(error));
    memcpy(payload + sizeof(error), "/x", 3);
    CHECK(files_parse(TOOL_ERROR, payload, sizeof(payload), &item) == 0, "%s", expected);
    CHECK(strcmp(item.error.text, expected) == 0, "\"%s\" is not \"%s\"", item.error.text,
          expected);
    CHECK(item.error.errnum == errnum, "%d", item.error.errnum);
}

/* The thing, the cause, the remedy. */
static void test_sentences(void)
{
    check_sentence(ENOENT, "", "open it",
                   "/x: there is no such file or directory; check the path, or list what is there");
    check_sentence(EROFS, "", "remove it",
                   "/x: cannot remove it: what is mounted there is read-only; take another path: "
                   "only the host's directories and read-only mounts cannot be changed");
    check_sentence(EINVAL, "", "open it", "/x: cannot open it: Invalid argument");
    check_sentence(0, "", "", "/x: cannot do it");
    check_sentence(ENOENT, "no_parent", "its own words; what to do",
                   "/x: its own words; what to do");
    check_sentence(0, "bad_pattern", "the pattern is wrong; mend it",
                   "the pattern is wrong; mend it");
}

static void test_gone(void)
{
    char payload[sizeof(struct tool_gone) + 3];
    struct tool_gone gone = {.operand = 2, .count = 3, .bytes = 6};
    struct files_item item;

    memcpy(payload, &gone, sizeof(gone));
    memcpy(payload + sizeof(gone), "/x", 3);
    CHECK(files_parse(TOOL_GONE, payload, sizeof(payload), &item) == 0, "a whole one");
    CHECK(item.kind == FILES_GONE && item.operand == 2 && item.end.count == 3 &&
              item.end.bytes == 6 && strcmp(item.path, "/x") == 0,
          "its fields");
    for (size_t size = 0; size < sizeof(payload); size++)
        CHECK(files_parse(TOOL_GONE, payload, size, &item) != 0, "of %zu bytes", size);
    CHECK(files_payload_max(FILES_REMOVE, TOOL_GONE) > 0, "remove says it");
    CHECK(files_payload_max(FILES_MOVE, TOOL_GONE) == 0, "nobody else does");
}

static void test_entries(void)
{
    static const char texts[] = "/x\0to\0user\0group";
    char payload[sizeof(struct tool_entry) + sizeof(texts)];
    struct tool_entry entry = {.operand = 3, .mode = 0120777, .size = 2, .modified_ns = -5};
    struct files_item item;

    memcpy(payload, &entry, sizeof(entry));
    memcpy(payload + sizeof(entry), texts, sizeof(texts));
    CHECK(files_parse(TOOL_ENTRY, payload, sizeof(payload), &item) == 0, "a whole one");
    CHECK(item.entry.operand == 3 && item.entry.modified_ns == -5 &&
              strcmp(item.entry.path, "/x") == 0 && strcmp(item.entry.target, "to") == 0 &&
              strcmp(item.entry.user, "user") == 0 && strcmp(item.entry.group, "group") == 0,
          "its fields");
    for (size_t size = 0; size < sizeof(payload); size++)
        CHECK(files_parse(TOOL_ENTRY, payload, size, &item) != 0, "of %zu bytes", size);
}

/* Which frames a verb may hear: each other ends the tool. */
static void test_which(void)
{
    CHECK(files_payload_max(FILES_READ, TOOL_ENTRY) == 0, "an entry is no answer to read");
    CHECK(files_payload_max(FILES_STAT, TOOL_BEGIN) == 0, "nor are bytes to stat");
    CHECK(files_payload_max(FILES_LIST, TOOL_DATA) == 0, "nor to list");
    CHECK(files_payload_max(FILES_WRITE, TOOL_FILE) == 0, "what is said to a tool comes from none");
    CHECK(files_payload_max(FILES_TAR_OUT, TOOL_DATA) == TOOL_DATA_MAX, "an archive is data");
    for (uint32_t type = 0; type < 256; type++)
        for (int verb = 0; verb < (int)FILES_VERBS; verb++)
            CHECK(files_payload_max((enum files_verb)verb, type) <= TOOL_DATA_MAX, "%u", type);
}

int main(void)
{
    test_words();
    test_errors();
    test_sentences();
    test_gone();
    test_entries();
    test_which();
    return check_finish();
}
