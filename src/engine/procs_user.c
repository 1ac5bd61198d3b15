/* Who runs a command: names of the box, looked up in its own /etc/passwd and /etc/group.
 *
 * Both files are whatever the box made of them. Init opens them below the box's root; here they must
 * be regular files of a file system that answers, and no more than so many bytes are read. The
 * sandbox's own user is looked up once per box, ahead of the first command. */
#include "engine/procs_parts.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef __clang__
/* The analyser of gcc 12 loses sight of a text once it is in an array of its caller's. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

#define ACCOUNTS_MAX (256U << 10)
#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif
#ifndef CIFS_SUPER_MAGIC
#define CIFS_SUPER_MAGIC 0xFF534D42U
#endif
#ifndef SMB2_SUPER_MAGIC
#define SMB2_SUPER_MAGIC 0xFE534D42U
#endif

static const char *const paths[2] = {"/etc/passwd", "/etc/group"};

/* ---- reading ---- */

/* Files of these are made up as they are read, or come from afar: a read may take any time. */
static bool answers(int fd)
{
    static const unsigned long others[] = {
        PROC_SUPER_MAGIC, SYSFS_MAGIC,        CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
        FUSE_SUPER_MAGIC, NFS_SUPER_MAGIC,    CIFS_SUPER_MAGIC,   SMB2_SUPER_MAGIC,
        V9FS_MAGIC,       AUTOFS_SUPER_MAGIC, CEPH_SUPER_MAGIC,   DEVPTS_SUPER_MAGIC,
    };
    struct statfs fs;
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || fstatfs(fd, &fs) < 0)
        return false;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (((unsigned long)fs.f_type & 0xFFFFFFFFU) == others[i])
            return false;
    return true;
}

/* Empty where there is none that may be read; NULL where there is no memory. */
static void read_text(int fd, char **text)
{
    _cleanup_free_ char *room = malloc(ACCOUNTS_MAX + 1);
    size_t used = 0;
    ssize_t n = 1;

    free(*text);
    *text = NULL;
    if (room == NULL)
        return;
    if (fd >= 0 && answers(fd))
        while (used < ACCOUNTS_MAX && n > 0) {
            n = pread(fd, room + used, ACCOUNTS_MAX - used, (off_t)used);
            used += n > 0 ? (size_t)n : 0;
        }
    room[used] = '\0';
    *text = strdup(room); /* mostly much less */
}

/* ---- asking ---- */

static uint32_t next_id(struct procs *procs)
{
    if (++procs->next_open == 0)
        procs->next_open = 1;
    return procs->next_open;
}

static void accounts_free(struct accounts *accounts)
{
    for (int i = 0; i < 2; i++) {
        free(accounts->texts[i]);
        accounts->texts[i] = NULL;
        accounts->open[i] = 0;
    }
}

static int ask(struct procs *procs, struct accounts *accounts, struct error *err)
{
    accounts_free(accounts);
    for (int i = 0; i < 2; i++) {
        uint32_t id = next_id(procs);

        if (link_open_file(procs->link, id, paths[i], O_RDONLY, 0, err) < 0)
            return -1;
        accounts->open[i] = id;
    }
    return 0;
}

/* 1 if that was the last answer, 0 if not, -1 if it is none for these. */
static int take(struct accounts *accounts, uint32_t id, int fd)
{
    if (id != 0 && accounts->open[0] == id) {
        read_text(fd, &accounts->texts[0]);
        accounts->open[0] = 0;
    } else if (id != 0 && accounts->open[1] == id) {
        read_text(fd, &accounts->texts[1]);
        accounts->open[1] = 0;
    } else {
        return -1;
    }
    return accounts->open[0] == 0 && accounts->open[1] == 0;
}

static int resolve(const struct accounts *accounts, const char *name, struct box_user *user,
                   struct error *err)
{
    if (accounts->texts[0] == NULL || accounts->texts[1] == NULL)
        return error_set(err, "no_memory", ENOMEM, "cannot look up the user %.64s", name);
    if (user_find(accounts->texts[0], accounts->texts[1], name, user, err) == 0)
        return 0;
    (void)snprintf(err->code, sizeof(err->code), "user_not_found");
    return -1;
}

/* ---- the sandbox's own ---- */

static const char *default_name(const struct procs *procs)
{
    return procs->user != NULL ? procs->user : procs->is_system ? "root" : "user";
}

void user_prefetch(struct procs *procs)
{
    struct error ignored;

    if (procs->link == NULL || procs->user_state != USER_UNKNOWN)
        return;
    if (ask(procs, &procs->default_accounts, &ignored) == 0)
        procs->user_state = USER_ASKED;
}

void user_forget(struct procs *procs)
{
    accounts_free(&procs->default_accounts);
    procs->user_state = USER_UNKNOWN;
}

static struct start *find_due(struct procs *procs)
{
    struct start *start = procs->starts;

    while (start != NULL && !start->is_due)
        start = start->next;
    return start;
}

static void default_known(struct procs *procs)
{
    struct start *start;
    struct error err;
    bool is_known = resolve(&procs->default_accounts, default_name(procs), &procs->default_user,
                            &err) == 0;

    accounts_free(&procs->default_accounts);
    procs->user_state = USER_KNOWN;
    if (!is_known && procs->user != NULL && procs->is_system) {
        procs->user_state = USER_UNKNOWN; /* it may be there the next time */
    } else if (!is_known) {
        /* Init's own ids have no name in there; they run commands all the same. */
        procs->default_user = (struct box_user){
            .uid = procs->is_system ? 0 : (uid_t)-1, .home = "/", .shell = "/bin/sh"};
        is_known = true;
    }
    /* Those that wait now, and not what their ends may start. */
    for (start = procs->starts; start != NULL; start = start->next)
        start->is_due = start->is_default;
    while ((start = find_due(procs)) != NULL && !procs->is_closed) {
        start->as = procs->default_user;
        start_known(start, is_known ? NULL : &err);
    }
}

/* ---- commands ---- */

int user_want(struct start *start, struct error *err)
{
    struct procs *procs = start->procs;

    start->is_default = start->user == NULL ||
                        (procs->user != NULL && strcmp(start->user, procs->user) == 0);
    if (!start->is_default)
        return ask(procs, &start->accounts, err);
    if (procs->user_state == USER_KNOWN) {
        start->as = procs->default_user;
        return 1;
    }
    user_prefetch(procs);
    if (procs->user_state != USER_ASKED)
        return error_set(err, "capacity", 0, "the box takes no requests now; try again");
    return 0;
}

/* Where commands have init's ids, another name for the same may be said. */
static int check_same(const struct procs *procs, const struct start *start, struct error *err)
{
    const struct box_user *own = &procs->default_user;

    if (procs->is_system ||
        (procs->user_state == USER_KNOWN && start->as.uid == own->uid && start->as.gid == own->gid))
        return 0;
    return error_set(
        err, "user_not_found", 0,
        "%.64s cannot run commands: all of this sandbox are of one user; make one with "
        "privileges \"system\"",
        start->user);
}

static void named_known(struct start *start)
{
    struct error err;
    bool is_known = resolve(&start->accounts, start->user, &start->as, &err) == 0 &&
                    check_same(start->procs, start, &err) == 0;

    accounts_free(&start->accounts);
    start_known(start, is_known ? NULL : &err);
}

void user_opened(struct procs *procs, uint32_t id, int fd)
{
    int last = take(&procs->default_accounts, id, fd);

    if (last >= 0) {
        if (last > 0)
            default_known(procs);
        return;
    }
    for (struct start *start = procs->starts; start != NULL; start = start->next) {
        last = take(&start->accounts, id, fd);
        if (last > 0)
            named_known(start);
        if (last >= 0)
            return;
    }
}
