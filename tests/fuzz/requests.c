/* The check of the engine's requests against any bytes: it never looks beyond them, and what it lets pass
 * is what request.h says.
 *
 * An entry for libFuzzer (clang -fsanitize=fuzzer); without it, main() tries files that are named, or
 * requests of its own with damage, always the same. */
#include "keeper/requests.h"
#include "keeper/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 200000
#define INPUT_MAX (sizeof(union keeper_request) + 64)

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void demand(bool holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "let pass: %s\n", what);
    abort();
}

/* What must hold of a text whatever it is for; checked by other means than the check's own. */
static void demand_text(const char *text, size_t size, const char *letters, const char *what)
{
    const void *end = memchr(text, '\0', size);

    demand(end != NULL, what);
    for (const char *at = text; *at != '\0'; at++)
        demand(strchr(letters, *at) != NULL, what);
}

#define ID_LETTERS "abcdefghijklmnopqrstuvwxyz0123456789"
#define NAME_LETTERS ID_LETTERS "._-"

static void demand_make(const struct keeper_make *make)
{
    demand_text(make->root, sizeof(make->root), NAME_LETTERS, "root");
    demand_text(make->owner, sizeof(make->owner), ID_LETTERS, "owner");
    demand_text(make->disk, sizeof(make->disk), ID_LETTERS, "disk");
    demand(make->root[0] != '\0' && make->root[0] != '.' && make->root[0] != '-', "root");
    demand(make->privileges <= 1, "privileges");
    demand(make->limits.memory_bytes > 0 && make->limits.pids > 0, "limits");
    demand(make->limits.disk_bytes > 0 && make->limits.disk_inodes > 0, "limits");
    demand((make->disk_kind == KEEPER_PERSISTENT) == (make->disk[0] != '\0'), "disk");
    demand(make->mounts_count <= KEEPER_MOUNTS_MAX, "mounts");
    for (size_t i = 0; i < make->mounts_count; i++) {
        const struct keeper_mount *mount = &make->mounts[i];

        demand_text(mount->name, sizeof(mount->name), NAME_LETTERS, "name of a mount");
        demand(memchr(mount->target, '\0', sizeof(mount->target)) != NULL, "target");
        demand(mount->target[0] == '/' && strstr(mount->target, "/../") == NULL &&
                   strstr(mount->target, "//") == NULL,
               "target");
        demand(strcmp(mount->target, "/proc") != 0 && strncmp(mount->target, "/proc/", 6) != 0,
               "target");
    }
}

static void demand_legal(const union keeper_request *request, size_t size, bool is_greeted)
{
    demand(size >= sizeof(request->head) && request->head.id != 0, "head");
    demand(is_greeted == (request->head.type != KEEPER_HELLO), "order");
    demand(request->head.type >= KEEPER_HELLO && request->head.type <= KEEPER_BEAT, "type");
    if (request->head.type == KEEPER_MAKE)
        demand_make(&request->make);
    if (request->head.type == KEEPER_CLAIM)
        demand_text(request->claim.owner, sizeof(request->claim.owner), ID_LETTERS, "owner");
    if (request->head.type == KEEPER_DROP_DISK)
        demand_text(request->drop_disk.disk, sizeof(request->drop_disk.disk), ID_LETTERS, "disk");
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    /* Of exactly that size, so that a sanitizer sees one byte too many. */
    void *copy = malloc(size > 0 ? size : 1);

    if (copy == NULL || size > INPUT_MAX) {
        free(copy);
        return 0;
    }
    memcpy(copy, data, size);
    for (int is_greeted = 0; is_greeted < 2; is_greeted++)
        if (request_fault(copy, size, is_greeted != 0) == NULL)
            demand_legal(copy, size, is_greeted != 0);
    free(copy);
    return 0;
}

#ifndef FUZZER
static unsigned long long chance_state = 4711;

static size_t chance(size_t below)
{
    chance_state = chance_state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (size_t)(chance_state >> 33) % below;
}

static size_t seed(union keeper_request *request)
{
    static const size_t sizes[] = {sizeof(struct keeper_hello),  sizeof(struct keeper_make),
                                   sizeof(struct keeper_claim),  sizeof(struct keeper_of_box),
                                   sizeof(struct keeper_of_box), sizeof(struct keeper_drop_disk),
                                   sizeof(struct keeper_head)};
    size_t which = chance(7);

    memset(request, 0, sizeof(*request));
    request->head = (struct keeper_head){.type = (uint32_t)which + 1, .id = 7};
    switch (request->head.type) {
    case KEEPER_HELLO:
        strcpy(request->hello.build, KEEPER_BUILD);
        break;
    case KEEPER_MAKE:
        strcpy(request->make.root, "host");
        strcpy(request->make.owner, "c0aaaaaaaaaaaaaaaaaa");
        strcpy(request->make.hostname, "box.example");
        request->make.disk_kind = KEEPER_EPHEMERAL;
        request->make.limits = (struct box_limits){1U << 30, 1000, 64, 1U << 30, 4096};
        request->make.mounts_count = (uint32_t)chance(3);
        for (size_t i = 0; i < KEEPER_MOUNTS_MAX; i++) {
            strcpy(request->make.mounts[i].name, "sources");
            strcpy(request->make.mounts[i].target, "/mnt/sources");
        }
        break;
    case KEEPER_CLAIM:
        strcpy(request->claim.owner, "c0aaaaaaaaaaaaaaaaaa");
        break;
    case KEEPER_DROP_DISK:
        strcpy(request->drop_disk.disk, "c0aaaaaaaaaaaaaaaaaa");
        break;
    default:
        break;
    }
    return sizes[which];
}

static void try_damaged(void)
{
    static const unsigned char likely[] = {0, 1, 2, 0xff, 0x7f, '.', '/', '-', 'a', 'A', '\n'};
    unsigned char bytes[INPUT_MAX];
    union keeper_request request;
    size_t size, damage = chance(6);

    size = seed(&request);
    memset(bytes, 'a', sizeof(bytes));
    memcpy(bytes, &request, size);
    for (; damage > 0; damage--)
        bytes[chance(chance(2)    ? size
                     : 128 < size ? 128
                                  : size)] = chance(2) ? likely[chance(sizeof(likely))]
                                                       : (unsigned char)chance(256);
    if (chance(8) == 0)
        size = chance(size + 64);
    (void)LLVMFuzzerTestOneInput(bytes, size);
}

static int try_file(const char *path)
{
    unsigned char bytes[INPUT_MAX];
    FILE *file = fopen(path, "rbe");
    size_t size;

    if (file == NULL) {
        perror(path);
        return 1;
    }
    size = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    return LLVMFuzzerTestOneInput(bytes, size);
}

int main(int argc, char **argv)
{
    union keeper_request request;
    int failed = 0;

    for (int i = 1; i < argc; i++)
        failed |= try_file(argv[i]);
    for (int round = 0; argc < 2 && round < ROUNDS; round++)
        try_damaged();
    /* What is whole passes: else nothing was tried. */
    for (int round = 0; round < 100; round++) {
        size_t size = seed(&request);

        demand(request_fault(&request, size, request.head.type != KEEPER_HELLO) == NULL, "nothing");
    }
    return failed;
}
#endif
