/* Names of users and groups: see parts.h. Our own reading of the files: libc's may ask services, which in
 * a box are whatever the box likes. The files are as hostile: regular, bounded, a line at a time. */
#include "box/tool/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ACCOUNTS_MAX (1U << 20)
#define NAMES_KEPT 256 /* by the lowest bits of the id */
#define NAME_SIZE 64

struct accounts {
    const char *path;
    size_t least; /* fields of a line */
    char *text;   /* NULL: was not read yet */
    struct {
        bool is_known;
        uint32_t id;
        char name[NAME_SIZE];
    } kept[NAMES_KEPT];
};

struct users {
    struct accounts users, groups;
};

struct users *users_new(void)
{
    struct users *users = calloc(1, sizeof(*users));

    if (users != NULL) {
        users->users.path = "/etc/passwd";
        users->groups.path = "/etc/group";
        users->users.least = 4;
        users->groups.least = 3;
    }
    return users;
}

static const char *text_of(struct accounts *accounts)
{
    _cleanup_close_ int fd = -1;
    struct stat st;
    ssize_t n = -1;

    if (accounts->text != NULL)
        return accounts->text;
    fd = open(accounts->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > ACCOUNTS_MAX)
        return "";
    accounts->text = malloc((size_t)st.st_size + 1);
    if (accounts->text == NULL)
        return "";
    n = fd_read_full(fd, accounts->text, (size_t)st.st_size);
    accounts->text[n < 0 ? 0 : n] = '\0';
    return accounts->text;
}

static bool parse_id(const char *text, size_t length, uint32_t *id)
{
    uint64_t value = 0;

    if (length == 0 || length > 10)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *id = (uint32_t)value;
    return value < UINT32_MAX;
}

struct line {
    const char *name;
    size_t name_length;
    uint32_t id;
};

/* Lines that are none are passed over. */
static bool next_line(const char **at, size_t least, struct line *line)
{
    while (**at != '\0') {
        const char *from = *at, *field[4] = {from, NULL, NULL, NULL};
        size_t length = strcspn(from, "\n"), fields = 1, lengths[4] = {0};

        *at += length + (from[length] == '\n');
        for (size_t i = 0; i < length; i++)
            if (from[i] != ':')
                lengths[fields - 1]++;
            else if (fields == 4)
                break;
            else
                field[fields++] = from + i + 1;
        if (fields < least || !parse_id(field[2], lengths[2], &line->id))
            continue;
        line->name = field[0];
        line->name_length = lengths[0];
        return true;
    }
    return false;
}

static const char *name_of(struct accounts *accounts, uint32_t id)
{
    typeof(accounts->kept[0]) *kept = &accounts->kept[id % NAMES_KEPT];
    const char *at = text_of(accounts);
    struct line line;

    if (kept->is_known && kept->id == id)
        return kept->name;
    kept->is_known = true;
    kept->id = id;
    kept->name[0] = '\0';
    while (next_line(&at, accounts->least, &line))
        if (line.id == id && line.name_length < sizeof(kept->name)) {
            memcpy(kept->name, line.name, line.name_length);
            kept->name[line.name_length] = '\0';
            break;
        }
    return kept->name;
}

const char *users_name(struct users *users, uint32_t uid)
{
    return users == NULL ? "" : name_of(&users->users, uid);
}

const char *users_group(struct users *users, uint32_t gid)
{
    return users == NULL ? "" : name_of(&users->groups, gid);
}

static bool id_of(struct accounts *accounts, const char *name, size_t length, uint32_t *id)
{
    const char *at = text_of(accounts);
    struct line line;

    if (parse_id(name, length, id))
        return true;
    while (next_line(&at, accounts->least, &line))
        if (line.name_length == length && memcmp(line.name, name, length) == 0) {
            *id = line.id;
            return true;
        }
    return false;
}

int users_find(struct users *users, const char *spec, uint32_t *uid, uint32_t *gid,
               struct error *err)
{
    size_t length = strcspn(spec, ":");
    const char *group = spec[length] == ':' ? spec + length + 1 : NULL;

    *uid = *gid = UINT32_MAX;
    if (length == 0 && (group == NULL || *group == '\0'))
        return fail(err, 0, "unknown_user",
                    "\"%.60s\" names no user; write USER, USER:GROUP or :GROUP", spec);
    if (length > 0 && (users == NULL || !id_of(&users->users, spec, length, uid)))
        return fail(err, 0, "unknown_user",
                    "there is no user %.*s in /etc/passwd; name one of those, or a number",
                    (int)(length > 60 ? 60 : length), spec);
    if (group != NULL && *group != '\0' &&
        (users == NULL || !id_of(&users->groups, group, strlen(group), gid)))
        return fail(err, 0, "unknown_user",
                    "there is no group %.60s in /etc/group; name one of those, or a number", group);
    return 0;
}

int users_find_group(struct users *users, const char *name, uint32_t *gid)
{
    return users != NULL && id_of(&users->groups, name, strlen(name), gid) ? 0 : -1;
}
