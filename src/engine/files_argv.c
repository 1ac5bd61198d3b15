/* Files: what a verb is asked for, as the arguments of its tool. One table says which verb takes what;
 * what a verb does not take is not said, so that no caller can pass an option through another's field. */
#include "engine/files_parts.h"

#include "base/hex.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIT(verb) (1U << (verb))
#define TEXT_OF(number) TEXT_OF_IT(number)
#define TEXT_OF_IT(number) #number

const struct files_row files_rows[FILES_VERBS] = {
    [FILES_STAT] = {"stat", false, false, true},
    [FILES_LIST] = {"list", false, false, true},
    [FILES_READ] = {"read", false, true, true},
    [FILES_WRITE] = {"write", true, false, false},
    [FILES_MKDIR] = {"mkdir", false, false, false},
    [FILES_MOVE] = {"move", false, false, false},
    [FILES_COPY] = {"copy", false, false, false},
    [FILES_REMOVE] = {"remove", false, false, false},
    [FILES_CHMOD] = {"chmod", false, false, false},
    [FILES_CHOWN] = {"chown", false, false, false},
    [FILES_SYMLINK] = {"symlink", false, false, false},
    [FILES_GETXATTR] = {"getxattr", false, false, true},
    [FILES_SETXATTR] = {"setxattr", false, false, false},
    [FILES_REMOVEXATTR] = {"removexattr", false, false, false},
    [FILES_TAR_OUT] = {"tar-out", false, true, true},
    [FILES_TAR_IN] = {"tar-in", true, false, false},
    [FILES_WATCH] = {"watch", true, false, true},
    [FILES_FIND] = {"find", false, false, true},
    [FILES_GREP] = {"grep", false, false, true},
};

enum kind { FLAG, NUMBER, OCTAL, TEXT };

#define SEARCH (BIT(FILES_FIND) | BIT(FILES_GREP))
#define FIELD(member) offsetof(struct files_spec, member)

static const struct {
    const char *option;
    enum kind kind;
    size_t at;
    unsigned verbs;
} options[] = {
    {"--follow", FLAG, FIELD(follow), BIT(FILES_STAT) | BIT(FILES_TAR_OUT)},
    {"--no-follow", FLAG, FIELD(no_follow), BIT(FILES_CHOWN)},
    {"--recursive", FLAG, FIELD(recursive),
     BIT(FILES_COPY) | BIT(FILES_REMOVE) | BIT(FILES_CHMOD) | BIT(FILES_CHOWN) | BIT(FILES_WATCH)},
    {"--parents", FLAG, FIELD(parents),
     BIT(FILES_MKDIR) | BIT(FILES_MOVE) | BIT(FILES_COPY) | BIT(FILES_TAR_IN)},
    {"--replace", FLAG, FIELD(replace), BIT(FILES_MOVE) | BIT(FILES_COPY)},
    {"--missing-ok", FLAG, FIELD(missing_ok), BIT(FILES_REMOVE)},
    {"--fixed", FLAG, FIELD(is_fixed), BIT(FILES_GREP)},
    {"--ignore-case", FLAG, FIELD(ignore_case), BIT(FILES_GREP)},
    {"--word", FLAG, FIELD(is_word), BIT(FILES_GREP)},
    {"--multiline", FLAG, FIELD(is_multiline), BIT(FILES_GREP)},
    {"--depth", NUMBER, FIELD(depth), BIT(FILES_LIST) | BIT(FILES_FIND)},
    {"--limit", NUMBER, FIELD(limit), BIT(FILES_LIST) | SEARCH},
    {"--offset", NUMBER, FIELD(offset), BIT(FILES_READ)},
    {"--length", NUMBER, FIELD(length), BIT(FILES_READ)},
    {"--mode", OCTAL, FIELD(mode), BIT(FILES_MKDIR) | BIT(FILES_CHMOD)},
    {"--before", NUMBER, FIELD(before), BIT(FILES_GREP)},
    {"--after", NUMBER, FIELD(after_lines), BIT(FILES_GREP)},
    {"--per-file", NUMBER, FIELD(per_file), BIT(FILES_GREP)},
    {"--max-file-bytes", NUMBER, FIELD(max_file_bytes), BIT(FILES_GREP)},
    {"--time-limit-ms", NUMBER, FIELD(time_limit_ms), SEARCH},
    {"--strip", NUMBER, FIELD(strip), BIT(FILES_TAR_IN)},
    {"--after", TEXT, FIELD(after), BIT(FILES_LIST)},
    {"--owner", TEXT, FIELD(owner), BIT(FILES_CHOWN) | BIT(FILES_TAR_IN)},
    {"--name", TEXT, FIELD(name),
     BIT(FILES_GETXATTR) | BIT(FILES_SETXATTR) | BIT(FILES_REMOVEXATTR)},
    {"--pattern", TEXT, FIELD(pattern), SEARCH},
    {"--type", TEXT, FIELD(type), BIT(FILES_FIND)},
};
#define OPTIONS (sizeof(options) / sizeof(options[0]))

struct files_spec files_spec(enum files_verb verb, const char *const *paths)
{
    struct files_spec spec = {.verb = verb, .paths = paths};

    for (size_t i = 0; i < OPTIONS; i++)
        if (options[i].kind == NUMBER || options[i].kind == OCTAL)
            *(uint64_t *)((char *)&spec + options[i].at) = FILES_NOT_SAID;
    return spec;
}

/* ---- the list, in one block: pointers first ---- */

struct list {
    const char **at;
    char *text;
    size_t count, size; /* while it is measured `at` is NULL */
};

static void add(struct list *list, const char *text)
{
    size_t size = strlen(text) + 1;

    if (list->at != NULL) {
        memcpy(list->text, text, size);
        list->at[list->count] = list->text;
        list->text += size;
    }
    list->count++;
    list->size += size;
}

static void add_option(struct list *list, const char *option, enum kind kind, const void *value)
{
    uint64_t number = kind == NUMBER || kind == OCTAL ? *(const uint64_t *)value : 0;
    const char *text = kind == TEXT ? *(const char *const *)value : NULL;
    char digits[32];

    if (kind == FLAG ? !*(const bool *)value
                     : (kind == TEXT ? text == NULL : number == FILES_NOT_SAID))
        return;
    add(list, option);
    if (kind == FLAG)
        return;
    if (kind != TEXT) {
        (void)snprintf(digits, sizeof(digits), kind == OCTAL ? "%" PRIo64 : "%" PRIu64, number);
        text = digits;
    }
    add(list, text);
}

static int add_value(struct list *list, const struct files_spec *spec, struct error *err)
{
    char *text = malloc(HEX_SIZE(spec->value_size));

    if (text == NULL)
        return error_set(err, "no_memory", 0, "there is no memory for the value now");
    hex_encode(spec->value, spec->value_size, text);
    add(list, "--value");
    add(list, text);
    free(text);
    return 0;
}

static int add_all(struct list *list, const struct files_spec *spec, const char *beneath,
                   struct error *err)
{
    bool searches = (BIT(spec->verb) & (SEARCH | BIT(FILES_LIST))) != 0;

    add(list, files_rows[spec->verb].name);
    if (*beneath != '\0') {
        add(list, "--beneath");
        add(list, beneath);
    }
    for (size_t i = 0; i < OPTIONS; i++)
        if ((options[i].verbs & BIT(spec->verb)) != 0)
            add_option(list, options[i].option, options[i].kind,
                       (const char *)spec + options[i].at);
    for (size_t i = 0; searches && spec->globs != NULL && spec->globs[i] != NULL; i++) {
        add(list, "--glob");
        add(list, spec->globs[i]);
    }
    if (searches) {
        add(list, "--hidden");
        add(list, spec->hides ? "0" : "1");
    }
    /* Disks have bounds of their own; a mount of the host's has none. */
    if (spec->verb == FILES_TAR_IN) {
        add(list, "--limit-entries");
        add(list, TEXT_OF(FILES_TAR_ENTRIES_MAX));
        add(list, "--limit-bytes");
        add(list, TEXT_OF(FILES_TAR_BYTES_MAX));
    }
    if (spec->verb == FILES_SETXATTR && add_value(list, spec, err) < 0)
        return -1;
    add(list, "--");
    for (size_t i = 0; spec->paths != NULL && spec->paths[i] != NULL; i++)
        add(list, spec->paths[i]);
    return 0;
}

int files_argv(const struct files_spec *spec, const char *beneath, const char ***out,
               struct error *err)
{
    struct list measured = {.at = NULL}, list;

    if (add_all(&measured, spec, beneath, err) < 0)
        return -1;
    list = (struct list){.at = malloc((measured.count + 1) * sizeof(char *) + measured.size)};
    if (list.at == NULL)
        return error_set(err, "no_memory", 0, "there is no memory for the request now");
    list.text = (char *)(list.at + measured.count + 1);
    if (add_all(&list, spec, beneath, err) < 0) {
        free(list.at);
        return -1;
    }
    list.at[list.count] = NULL;
    *out = list.at;
    return 0;
}
