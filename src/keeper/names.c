/* The registry: see names.h. A line of the file is
 *     root|mount NAME ro|rw DEVICE INODE TENANTS PATH
 * One without tenants is of an earlier version, and the usual one's. */
#include "keeper/names.h"

#include "base/fd.h"
#include "base/tenancy.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef __clang__
/* The analyser does not see that what a table holds stays there. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

#define FILE_NAME "names"
#define FILE_NEW "names.new"
#define FILE_MAX ((size_t)NAMES_MAX * (PATH_MAX + KEEPER_TENANTS_SIZE + 160))

static const char *const kinds[] = {NULL, "root", "mount"};

bool names_is_name(const char *text, size_t size)
{
    size_t length = strnlen(text, size);

    return length > 0 && length < size && text[0] != '.' && text[0] != '-' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789._-") == length;
}

bool names_are_tenants(const char *text, size_t size)
{
    char name[KEEPER_NAME_MAX];
    size_t length;

    if (memchr(text, '\0', size) == NULL)
        return false;
    if (strcmp(text, TENANCY_ALL) == 0)
        return true;
    for (;; text += length + 1) {
        length = strcspn(text, ",");
        if (length >= sizeof(name))
            return false;
        memcpy(name, text, length);
        name[length] = '\0';
        if (!names_is_name(name, sizeof(name)))
            return false;
        if (text[length] == '\0')
            return true;
    }
}

static bool is_plain_path(const char *path)
{
    if (path[0] != '/')
        return false;
    for (; *path != '\0'; path++)
        if ((unsigned char)*path < 0x20 || *path == 0x7f)
            return false;
    return true;
}

/* ---- the table ---- */

static struct name *entry_find(struct names *names, uint32_t kind, const char *name)
{
    for (size_t i = 0; i < names->table_used; i++)
        if (names->table[i].kind == kind && !names->table[i].is_removed &&
            strcmp(names->table[i].name, name) == 0)
            return &names->table[i];
    return NULL;
}

static bool is_for(const struct name *entry, const char *tenant)
{
    return entry->is_there && (tenant[0] == '\0' || tenancy_has(entry->tenants, tenant));
}

const struct name *names_find(const struct names *names, uint32_t kind, const char *name,
                              const char *tenant)
{
    const struct name *entry = entry_find((struct names *)(uintptr_t)names, kind, name);

    return entry != NULL && is_for(entry, tenant) ? entry : NULL;
}

bool names_may_have(const struct names *names, uint64_t generation, const char *tenant)
{
    for (size_t i = 0; i < names->table_used; i++)
        if (names->table[i].kind == KEEPER_ROOT && names->table[i].generation == generation)
            return is_for(&names->table[i], tenant);
    return false;
}

static struct name *entry_new(struct names *names)
{
    for (size_t i = 0; i < names->table_used; i++)
        if (names->table[i].kind == 0)
            return &names->table[i];
    return names->table_used < NAMES_MAX ? &names->table[names->table_used++] : NULL;
}

static void entry_drop(struct name *entry)
{
    fd_close(&entry->fd);
    free(entry->path);
    *entry = (struct name){.fd = -1};
}

/* What a name may lead to: a directory, or for a root a file that the box room will look into. */
static int look(const struct name *entry, int fd, struct stat *st, struct error *err)
{
    if (name_what(fd, "", st) < 0)
        return error_set(err, "bad_directory", errno, "cannot look at what is to be registered");
    if (S_ISDIR(st->st_mode) || (entry->kind == KEEPER_ROOT && S_ISREG(st->st_mode)))
        return 0;
    return error_set(err, "bad_directory", 0,
                     "only a directory can be registered, or an erofs image as a root");
}

/* ---- the file ---- */

static int line_write(FILE *file, const struct name *entry)
{
    return fprintf(file, "%s %s %s %u:%u %llu %s %s\n", kinds[entry->kind], entry->name,
                   entry->read_only ? "ro" : "rw", major(entry->device), minor(entry->device),
                   (unsigned long long)entry->inode, entry->tenants, entry->path);
}

static int file_write(const struct names *names, struct error *err)
{
    int fd = openat(names->directory, FILE_NEW,
                    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool failed = file == NULL;

    for (size_t i = 0; !failed && i < names->table_used; i++)
        if (names->table[i].kind != 0 && !names->table[i].is_removed &&
            !names->table[i].is_configured)
            failed = line_write(file, &names->table[i]) < 0;
    failed = failed || fflush(file) != 0 || fsync(fd) < 0;
    if (file != NULL)
        failed |= fclose(file) != 0;
    else
        fd_close(&fd);
    if (failed || renameat(names->directory, FILE_NEW, names->directory, FILE_NAME) < 0 ||
        fsync(names->directory) < 0)
        return error_set(err, "names_failed", errno, "cannot write the list of names");
    return 0;
}

static struct name *entry_of(struct names *names, uint64_t generation)
{
    for (size_t i = 0; i < names->table_used; i++)
        if (names->table[i].kind != 0 && !names->table[i].is_removed &&
            names->table[i].generation == generation)
            return &names->table[i];
    return NULL;
}

static int no_path(struct error *err)
{
    return error_set(err, "bad_directory", 0,
                     "what is registered has no path here by which it could be found again");
}

/* The path may have become a link, or another directory: then a name that was registered leads nowhere. */
static int accept(struct name *entry, const struct name_found *found, int fd, struct stat *st,
                  struct error *err)
{
    struct error ignored;

    if (entry->is_configured) {
        if (fd < 0)
            return error_set(err, "name_lost", found->errnum, "cannot open %s", entry->path);
        return look(entry, fd, st, err) < 0 ? -1 : is_plain_path(found->path) ? 0 : no_path(err);
    }
    if (fd >= 0 && look(entry, fd, st, &ignored) == 0 && st->st_dev == entry->device &&
        st->st_ino == entry->inode)
        return 0;
    return error_set(err, "name_lost", 0, "%s is not what was registered; register it again",
                     entry->path);
}

void names_found(struct keeper *keeper, uint64_t generation, const struct name_found *found,
                 int *fd)
{
    struct name *entry = entry_of(&keeper->names, generation);
    char *path = entry != NULL && entry->is_configured ? strdup(found->path) : NULL;
    struct stat st = {0};
    struct error why;

    if (entry == NULL || entry->is_there || accept(entry, found, *fd, &st, &why) < 0) {
        if (entry != NULL && !entry->is_there)
            keeper_say("name_lost", "%s %s: %s", kinds[entry->kind], entry->name, why.text);
        free(path);
        return;
    }
    if (path != NULL) {
        free(entry->path);
        entry->path = path;
    }
    entry->fd = fd_take(fd);
    entry->device = st.st_dev;
    entry->inode = st.st_ino;
    entry->is_directory = S_ISDIR(st.st_mode);
    entry->is_there = true;
    entry->is_told = false;
}

void names_say_hangs(const struct keeper *keeper, uint64_t generation)
{
    const struct name *entry = entry_of((struct names *)(uintptr_t)&keeper->names, generation);

    if (entry != NULL)
        keeper_say("name_lost",
                   "%s %s: the file system of %s does not answer within %d s; it leads nowhere "
                   "until it does: mend it",
                   kinds[entry->kind], entry->name, entry->path, NAMES_FIND_MS / 1000);
}

/* Looks for all that are not there: those that were lost may be what they were. */
static void find_all(struct keeper *keeper)
{
    const struct names *names = &keeper->names;

    for (size_t i = 0; i < names->table_used; i++)
        if (names->table[i].kind != 0 && !names->table[i].is_removed && !names->table[i].is_there)
            name_find_begin(keeper, &names->table[i]);
    name_finds_wait(keeper);
}

/* What stands before the path; the path, or NULL. */
static const char *tenants_read(const char *text, struct name *entry)
{
    size_t length = strcspn(text, " ");

    if (text[0] == '/') {
        memcpy(entry->tenants, TENANCY_USUAL, sizeof(TENANCY_USUAL));
        return text;
    }
    if (text[length] == '\0' || length >= sizeof(entry->tenants))
        return NULL;
    memcpy(entry->tenants, text, length);
    return names_are_tenants(entry->tenants, sizeof(entry->tenants)) ? text + length + 1 : NULL;
}

static bool line_read(char *line, struct name *entry)
{
    char kind[8], name[KEEPER_NAME_MAX], mode[4];
    unsigned device_major, device_minor;
    unsigned long long inode;
    const char *path;
    int rest = 0;

    if (sscanf(line, "%7s %63s %3s %u:%u %llu %n", kind, name, mode, &device_major, // NOLINT
               &device_minor, &inode, &rest) != 6 ||
        rest == 0 || !names_is_name(name, sizeof(name)))
        return false;
    path = tenants_read(line + rest, entry);
    if (path == NULL || !is_plain_path(path))
        return false;
    for (uint32_t i = KEEPER_ROOT; i <= KEEPER_MOUNT; i++)
        if (strcmp(kind, kinds[i]) == 0)
            entry->kind = i;
    entry->read_only = strcmp(mode, "ro") == 0;
    entry->device = makedev(device_major, device_minor);
    entry->inode = (ino_t)inode;
    entry->path = strdup(path);
    memcpy(entry->name, name, sizeof(name));
    return entry->kind != 0 && entry->path != NULL && (entry->read_only || strcmp(mode, "rw") == 0);
}

static int file_read(struct names *names, struct error *err)
{
    _cleanup_free_ char *text = malloc(FILE_MAX);
    char *line, *rest = text;
    unsigned number = 0;

    if (text == NULL)
        return error_set(err, "no_memory", ENOMEM, "cannot read the list of names");
    if (fd_read_file(names->directory, FILE_NAME, text, FILE_MAX) < 0)
        return errno == ENOENT ? 0
                               : error_set(err, "names_failed", errno,
                                           "cannot read the list of names in the data directory");
    while ((line = strsep(&rest, "\n")) != NULL) {
        struct name entry = {.fd = -1}, *place;

        number++;
        if (line[0] == '\0')
            continue;
        place = entry_new(names);
        if (place == NULL || !line_read(line, &entry) ||
            entry_find(names, entry.kind, entry.name) != NULL) {
            free(entry.path);
            return error_set(err, "names_failed", 0,
                             "line %u of the list of names in the data directory is none of ours: "
                             "mend it, or remove the file and register anew",
                             number);
        }
        entry.generation = ++names->generations;
        *place = entry;
    }
    return 0;
}

void names_begin(struct names *names)
{
    *names = (struct names){.source.fd = -1};
    for (size_t i = 0; i < NAMES_MAX; i++)
        names->table[i].fd = -1;
    for (size_t i = 0; i < NAMES_CLIENTS_MAX; i++)
        names->clients[i] = (struct names_client){.socket = -1, .source.fd = -1};
}

int names_open(struct names *names, int directory, struct error *err)
{
    names_begin(names);
    names->directory = directory;
    return file_read(names, err);
}

void names_close(struct names *names)
{
    if (names->directory == 0)
        return; /* never opened */
    for (size_t i = 0; i < names->table_used; i++)
        entry_drop(&names->table[i]);
    for (size_t i = 0; i < NAMES_CLIENTS_MAX; i++)
        fd_close(&names->clients[i].socket);
}

/* ---- changing it ---- */

/* A place for a name that is not there yet; NULL. */
static struct name *entry_add(struct names *names, const struct names_request *request,
                              struct error *err)
{
    struct name *place = NULL;

    if (request->kind == KEEPER_ROOT && strcmp(request->name, "host") == 0)
        (void)error_set(err, "name_conflict", 0,
                        "the root \"host\" is the view of this machine; choose another name");
    else if (entry_find(names, request->kind, request->name) != NULL)
        (void)error_set(err, "name_conflict", 0, "there is a %s \"%s\" already: remove it first",
                        kinds[request->kind], request->name);
    else if ((place = entry_new(names)) == NULL)
        (void)error_set(err, "capacity", 0, "there are %d names already: remove some", NAMES_MAX);
    return place;
}

static void entry_set(struct names *names, struct name *entry, const struct names_request *request,
                      const struct stat *st)
{
    (void)snprintf(entry->name, sizeof(entry->name), "%s", request->name);
    (void)snprintf(entry->tenants, sizeof(entry->tenants), "%s",
                   request->tenants[0] != '\0' ? request->tenants : TENANCY_USUAL);
    entry->read_only = request->read_only != 0;
    entry->generation = ++names->generations;
    entry->is_there = st != NULL;
    if (st == NULL)
        return;
    entry->device = st->st_dev;
    entry->inode = st->st_ino;
    entry->is_directory = S_ISDIR(st->st_mode);
}

int names_add(struct keeper *keeper, const struct names_request *request, int fd, struct error *err)
{
    struct names *names = &keeper->names;
    struct name *place, entry = {.kind = request->kind, .fd = -1};
    struct name_found found;
    struct stat st;

    place = entry_add(names, request, err);
    if (place == NULL || look(&entry, fd, &st, err) < 0)
        return -1;
    entry.fd = name_find_given(keeper, fd, &found, err);
    if (entry.fd < 0)
        return -1;
    if (!is_plain_path(found.path) || (entry.path = strdup(found.path)) == NULL) {
        (void)no_path(err);
        entry_drop(&entry);
        return -1;
    }
    entry_set(names, &entry, request, &st);
    *place = entry;
    if (file_write(names, err) == 0)
        return 0;
    entry_drop(place);
    return -1;
}

int names_remove(struct names *names, uint32_t kind, const char *name, struct error *err)
{
    struct name *entry = entry_find(names, kind, name);

    if (entry == NULL)
        return error_set(err, kind == KEEPER_ROOT ? "unknown_root" : "unknown_mount", 0,
                         "there is no %s \"%s\"", kinds[kind], name);
    if (entry->is_configured)
        return error_set(err, "name_conflict", 0,
                         "\"%s\" is in the configuration: remove it there, and start again", name);
    entry->is_removed = true;
    if (file_write(names, err) < 0) {
        entry->is_removed = false;
        return -1;
    }
    /* Boxes that have it keep it: what they hold are mounts of their own. */
    entry->is_there = entry->is_told = false;
    return 0;
}

/* One that leads nowhere is there all the same, and says so. */
static int configure(struct keeper *keeper, const struct config_name *wanted, struct error *err)
{
    struct names *names = &keeper->names;
    struct name *place = entry_add(names, &wanted->request, err);

    if (place == NULL)
        return error_wrap(err, "%s", keeper->places.config_path);
    *place = (struct name){.kind = wanted->request.kind, .fd = -1, .is_configured = true};
    place->path = strdup(wanted->path);
    if (place->path == NULL) {
        *place = (struct name){.fd = -1};
        return error_set(err, "capacity", ENOMEM, "there is no memory for names");
    }
    entry_set(names, place, &wanted->request, NULL);
    return 0;
}

int names_configure(struct keeper *keeper, struct error *err)
{
    for (size_t i = 0; i < keeper->config.names_count; i++)
        if (configure(keeper, &keeper->config.names[i], err) < 0)
            return -1;
    find_all(keeper);
    return 0;
}

/* The zygote of a root goes on where that is what it was. */
static void keep_generation(struct name *now, const struct name *before)
{
    if (now->kind == before->kind && strcmp(now->name, before->name) == 0 && now->is_there &&
        before->is_there && now->device == before->device && now->inode == before->inode)
        now->generation = before->generation;
}

int names_can_configure_again(struct keeper *keeper, struct error *err)
{
    struct names *names = &keeper->names;

    for (size_t i = 0; i < names->table_used; i++)
        if (names->table[i].kind != 0 && names->table[i].is_configured)
            entry_drop(&names->table[i]);
    for (size_t i = 0; i < keeper->config.names_count; i++) {
        const struct names_request *wanted = &keeper->config.names[i].request;
        struct name *place = entry_add(names, wanted, err);

        if (place == NULL)
            return error_wrap(err, "%s", keeper->places.config_path);
        *place = (struct name){.kind = wanted->kind, .fd = -1, .is_configured = true};
        entry_set(names, place, wanted, NULL);
    }
    return 0;
}

void names_configure_again(struct keeper *keeper)
{
    struct names *names = &keeper->names;
    struct name before[NAMES_MAX];
    size_t count = 0;

    for (size_t i = 0; i < names->table_used; i++) {
        if (names->table[i].kind == 0 || !names->table[i].is_configured)
            continue;
        before[count++] = names->table[i];
        names->table[i] = (struct name){.fd = -1};
    }
    for (size_t i = 0; i < keeper->config.names_count; i++) {
        struct error err;

        if (configure(keeper, &keeper->config.names[i], &err) < 0)
            keeper_say(err.code, "%s", err.text);
    }
    find_all(keeper);
    for (size_t i = 0; i < names->table_used; i++)
        for (size_t j = 0; j < count; j++)
            keep_generation(&names->table[i], &before[j]);
    for (size_t i = 0; i < count; i++)
        entry_drop(&before[i]);
    name_finds_forget(keeper);
}
