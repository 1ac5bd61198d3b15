/* See env_file.h. */
#include "cmd/env_file.h"

#include "base/fd.h"
#include "cmd/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX (1U << 20)
#define BLANKS " \t\v\f"

static int bad_line(const char *path, unsigned number, const char *cause, struct error *err)
{
    return error_set(err, "bad_value", 0, "--env-file %.200s: line %u: %s; write NAME=VALUE", path,
                     number, cause);
}

static int line_take(char *line, const char *path, unsigned number, env_file_set *set, void *into,
                     struct error *err)
{
    char *value;

    line += number == 1 && strncmp(line, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    line += strspn(line, BLANKS);
    if (line[0] == '\0' || line[0] == '#')
        return 0;
    value = strchr(line, '=');
    if (value != NULL)
        *value++ = '\0';
    if (line[0] == '\0')
        return bad_line(path, number, "the name of the variable is missing", err);
    if (strpbrk(line, BLANKS) != NULL)
        return bad_line(path, number, "there is a blank in the name of the variable", err);
    if (value == NULL)
        value = getenv(line);
    return value == NULL ? 0 : set(into, line, value, err);
}

static int lines_take(char *text, size_t size, const char *path, env_file_set *set, void *into,
                      struct error *err)
{
    char *rest = text, *line;

    for (unsigned number = 1; (line = strsep(&rest, "\n")) != NULL; number++) {
        size_t length = strlen(line);

        if (rest == NULL ? line + length != text + size : line + length + 1 != rest)
            return bad_line(path, number, "it is no text", err);
        if (length > 0 && line[length - 1] == '\r')
            line[length - 1] = '\0';
        if (line_take(line, path, number, set, into, err) < 0)
            return -1;
    }
    return 0;
}

int env_file_read(const char *path, env_file_set *set, void *into, struct error *err)
{
    _cleanup_free_ char *text = malloc(BYTES_MAX + 1);
    ssize_t size;

    if (text == NULL)
        return option_no_memory(err);
    /* A device may have no end. */
    size = fd_read_file(AT_FDCWD, path, text, BYTES_MAX + 1);
    if (size < 0 && errno == EFBIG)
        return option_bad_value(err, "env-file", path, "it has more than 1M",
                                "give a smaller file");
    if (size < 0)
        return option_bad_value(err, "env-file", path, strerror(errno),
                                "give a file that you may read; what a shell's <(...) opens does "
                                "not reach cove");
    return lines_take(text, (size_t)size, path, set, into, err);
}
