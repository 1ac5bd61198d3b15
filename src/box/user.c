/* Users of a box: see user.h. */
#include "box/user.h"

#include "base/fd.h"
#include "box/accounts.h"
#include "box/sys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ACCOUNTS_MAX (1U << 20)
#define FIELDS_MAX 7
#define ID_MAX 65535 /* a box has as many ids */

/* One line of passwd or group: `fields` of them, each ended. */
struct line {
    char text[1024];
    char *field[FIELDS_MAX];
    size_t fields;
};

/* Takes the next line of `at`; lines that are too long, or have too few fields, are passed over. */
static bool next_line(const char **at, size_t least, struct line *line)
{
    while (**at != '\0') {
        size_t length = strcspn(*at, "\n");
        const char *from = *at;
        char *rest = line->text;

        *at += length + ((*at)[length] == '\n');
        if (length >= sizeof(line->text))
            continue;
        memcpy(line->text, from, length);
        line->text[length] = '\0';
        line->fields = 0;
        while (line->fields < FIELDS_MAX && rest != NULL)
            line->field[line->fields++] = strsep(&rest, ":");
        if (line->fields >= least)
            return true;
    }
    return false;
}

static bool parse_id(const char *text, uint32_t *id)
{
    unsigned long value = 0;

    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (unsigned long)(*text - '0');
        if (value > ID_MAX)
            return false;
    }
    *id = (uint32_t)value;
    return true;
}

static void copy(char *to, size_t size, const char *from)
{
    (void)snprintf(to, size, "%s", from);
}

static int find_account(const char *passwd, const char *name, struct box_user *user,
                        struct error *err)
{
    bool numeric = parse_id(name, &user->uid);
    struct line line;
    uint32_t uid, gid;

    while (next_line(&passwd, 7, &line)) {
        if (!parse_id(line.field[2], &uid) || !parse_id(line.field[3], &gid))
            continue;
        if (numeric ? uid != user->uid : strcmp(line.field[0], name) != 0)
            continue;
        user->uid = uid;
        user->gid = gid;
        copy(user->name, sizeof(user->name), line.field[0]);
        copy(user->home, sizeof(user->home), line.field[5][0] == '/' ? line.field[5] : "/");
        copy(user->shell, sizeof(user->shell), line.field[6][0] == '/' ? line.field[6] : "/bin/sh");
        return 0;
    }
    if (!numeric)
        return error_set(err, "unknown_user", 0,
                         "the box has no user %s; name one of its /etc/passwd, or a number", name);
    user->gid = user->uid;
    copy(user->home, sizeof(user->home), user->uid == 1000 ? "/home/user" : "/");
    copy(user->shell, sizeof(user->shell), "/bin/sh");
    return 0;
}

static int find_group(const char *group, const char *name, gid_t *gid, struct error *err)
{
    struct line line;

    if (parse_id(name, gid))
        return 0;
    while (next_line(&group, 3, &line))
        if (strcmp(line.field[0], name) == 0 && parse_id(line.field[2], gid))
            return 0;
    return error_set(err, "unknown_user", 0,
                     "the box has no group %s; name one of its /etc/group, or a number", name);
}

static bool is_member(const char *members, const char *name)
{
    size_t length = strlen(name);

    while (*members != '\0') {
        size_t part = strcspn(members, ",");

        if (part == length && strncmp(members, name, length) == 0)
            return true;
        members += part + (members[part] == ',');
    }
    return false;
}

static void find_groups(const char *group, struct box_user *user)
{
    struct line line;
    uint32_t gid;

    if (user->name[0] == '\0')
        return;
    while (user->groups_count < BOX_GROUPS_MAX && next_line(&group, 4, &line))
        if (is_member(line.field[3], user->name) && parse_id(line.field[2], &gid))
            user->groups[user->groups_count++] = gid;
}

int user_find(const char *passwd, const char *group, const char *spec, struct box_user *user,
              struct error *err)
{
    const char *colon = strchr(spec, ':');
    char name[256];
    int length = colon != NULL ? (int)(colon - spec) : (int)strlen(spec);

    memset(user, 0, sizeof(*user));
    if (length == 0 || (size_t)length >= sizeof(name))
        return error_set(err, "unknown_user", 0,
                         "\"%s\" names no user; give NAME, UID, NAME:GROUP or UID:GID", spec);
    (void)snprintf(name, sizeof(name), "%.*s", length, spec);
    if (find_account(passwd, name, user, err) < 0)
        return -1;
    if (colon != NULL)
        return find_group(group, colon + 1, &user->gid, err);
    find_groups(group, user);
    return 0;
}

/* Looked at before it is opened: to open a device node can be an act of its own. */
static int open_regular(int root, const char *path)
{
    _cleanup_close_ int at = fd_open_below(root, path, O_PATH, 0, FD_IN_ROOT);
    char self[64];
    struct stat st;

    if (at < 0 || fstat(at, &st) < 0 || !S_ISREG(st.st_mode))
        return -1;
    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", at);
    return open(self, O_RDONLY | O_CLOEXEC);
}

/* The text of a file of the root, empty where there is none; NULL on error. */
static char *read_account_file(int root, const char *path, struct error *err)
{
    _cleanup_close_ int fd = open_regular(root, path);
    char *text = calloc(1, ACCOUNTS_MAX + 1);
    ssize_t n = 0;

    if (text == NULL) {
        (void)error_set(err, "no_memory", ENOMEM, "cannot read %s of the root", path);
        return NULL;
    }
    if (fd >= 0)
        n = fd_read_full(fd, text, ACCOUNTS_MAX);
    if (n < 0) {
        (void)error_set(err, "bad_root", errno, "cannot read %s of the root", path);
        free(text);
        return NULL;
    }
    text[n] = '\0';
    return text;
}

int user_resolve(int root, const char *shell, const char *spec, struct box_user *user,
                 struct error *err)
{
    _cleanup_free_ char *passwd = NULL, *group = NULL;
    char synthetic[512];

    if (root < 0) {
        accounts_passwd(synthetic, sizeof(synthetic), shell);
        return user_find(synthetic, ACCOUNTS_GROUP, spec, user, err);
    }
    passwd = read_account_file(root, "etc/passwd", err);
    if (passwd == NULL)
        return -1;
    group = read_account_file(root, "etc/group", err);
    if (group == NULL)
        return -1;
    return user_find(passwd, group, spec, user, err);
}
