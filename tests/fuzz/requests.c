/* The check of the engine's requests against any bytes: it never looks beyond them, and what it lets pass
 * is what request.h says.
 *
 * An entry for libFuzzer (clang -fsanitize=fuzzer); without it, main() tries files that are named, each
 * file of a directory that is named, which must be a whole request (the corpus, which a change of
 * request.h makes stale), and requests of its own with damage, always the same.
 * `fuzz_requests --write DIR` writes that corpus. */
#include "keeper/requests.h"
#include "keeper/build.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 200000
#define INPUT_MAX (sizeof(union keeper_request) + 64)
/* Stands in an input for the build, which is another one whenever a header changes. */
#define THIS_BUILD "this"

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

static void demand_target(const char *target, size_t size)
{
    demand(memchr(target, '\0', size) != NULL, "target");
    demand(target[0] == '/' && strstr(target, "/../") == NULL && strstr(target, "//") == NULL,
           "target");
    demand(strcmp(target, "/proc") != 0 && strncmp(target, "/proc/", 6) != 0, "target");
}

static void demand_mount(const struct keeper_mount *mount)
{
    demand_text(mount->name, sizeof(mount->name), NAME_LETTERS, "name of a mount");
    demand_target(mount->target, sizeof(mount->target));
}

static void demand_make(const struct keeper_make *make)
{
    demand_text(make->root, sizeof(make->root), NAME_LETTERS, "root");
    demand_text(make->owner, sizeof(make->owner), ID_LETTERS, "owner");
    demand_text(make->tenant, sizeof(make->tenant), NAME_LETTERS, "tenant");
    demand((make->owner[0] == '\0') == (make->tenant[0] == '\0'), "tenant");
    demand(make->owner[0] != '\0' || make->mounts_count == 0, "mounts of nobody");
    demand_text(make->disk, sizeof(make->disk), ID_LETTERS, "disk");
    demand(make->root[0] != '\0' && make->root[0] != '.' && make->root[0] != '-', "root");
    demand(make->privileges <= 1, "privileges");
    demand(make->limits.memory_bytes > 0 && make->limits.pids > 0, "limits");
    demand(make->limits.disk_bytes > 0 && make->limits.disk_inodes > 0, "limits");
    demand((make->disk_kind == KEEPER_PERSISTENT) == (make->disk[0] != '\0'), "disk");
    demand(make->mounts_count <= KEEPER_MOUNTS_MAX, "mounts");
    for (size_t i = 0; i < make->mounts_count; i++)
        demand_mount(&make->mounts[i]);
}

static void demand_legal(const union keeper_request *request, size_t size, bool is_greeted)
{
    demand(size >= sizeof(request->head) && request->head.id != 0, "head");
    demand(is_greeted == (request->head.type != KEEPER_HELLO), "order");
    demand(request->head.type >= KEEPER_HELLO && request->head.type <= KEEPER_CUT_DISK, "type");
    if (request->head.type == KEEPER_MAKE)
        demand_make(&request->make);
    if (request->head.type == KEEPER_CLAIM) {
        demand_text(request->claim.owner, sizeof(request->claim.owner), ID_LETTERS, "owner");
        demand_text(request->claim.tenant, sizeof(request->claim.tenant), NAME_LETTERS, "tenant");
        demand(request->claim.tenant[0] != '\0', "tenant");
    }
    if (request->head.type == KEEPER_ATTACH) {
        demand_text(request->attach.tenant, sizeof(request->attach.tenant), NAME_LETTERS, "tenant");
        demand(request->attach.tenant[0] != '\0', "tenant");
        demand_mount(&request->attach.mount);
    }
    if (request->head.type == KEEPER_DETACH)
        demand_target(request->detach.target, sizeof(request->detach.target));
    if (request->head.type == KEEPER_NETWORK)
        demand(request->network.what >= 1 && request->network.what <= KEEPER_NETWORK_DIAG, "what");
    if (request->head.type == KEEPER_DROP_DISK || request->head.type == KEEPER_WEIGH_DISK)
        demand_text(request->of_disk.disk, sizeof(request->of_disk.disk), ID_LETTERS, "disk");
}

static void put_build(union keeper_request *request, size_t size)
{
    if (size == sizeof(request->hello) && request->head.type == KEEPER_HELLO &&
        memcmp(request->hello.build, THIS_BUILD, sizeof(THIS_BUILD)) == 0)
        memcpy(request->hello.build, KEEPER_BUILD, sizeof(KEEPER_BUILD));
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
    put_build(copy, size);
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

/* One of each request, and of MAKE one of each shape. */
static const struct seed {
    const char *name;
    uint32_t type;
    size_t size;
    uint32_t mounts;
    bool is_persistent;
} seeds[] = {
    {"hello", KEEPER_HELLO, sizeof(struct keeper_hello), 0, false},
    {"make", KEEPER_MAKE, sizeof(struct keeper_make), 0, false},
    {"make_mounts", KEEPER_MAKE, sizeof(struct keeper_make), 2, false},
    {"make_most", KEEPER_MAKE, sizeof(struct keeper_make), KEEPER_MOUNTS_MAX, false},
    {"make_persistent", KEEPER_MAKE, sizeof(struct keeper_make), 1, true},
    {"claim", KEEPER_CLAIM, sizeof(struct keeper_claim), 0, false},
    {"usage", KEEPER_USAGE, sizeof(struct keeper_of_box), 0, false},
    {"end", KEEPER_END, sizeof(struct keeper_of_box), 0, false},
    {"drop_disk", KEEPER_DROP_DISK, sizeof(struct keeper_of_disk), 0, false},
    {"weigh_disk", KEEPER_WEIGH_DISK, sizeof(struct keeper_of_disk), 0, false},
    {"network", KEEPER_NETWORK, sizeof(struct keeper_network_of), 0, false},
    {"attach", KEEPER_ATTACH, sizeof(struct keeper_attach), 0, false},
    {"detach", KEEPER_DETACH, sizeof(struct keeper_detach), 0, false},
    {"beat", KEEPER_BEAT, sizeof(struct keeper_head), 0, false},
    {"disk_room", KEEPER_DISK_ROOM, sizeof(struct keeper_head), 0, false},
    {"hold_disk", KEEPER_HOLD_DISK, sizeof(struct keeper_hold), 0, false},
    {"cut_disk", KEEPER_CUT_DISK, sizeof(struct keeper_of_box), 0, false},
};
#define SEEDS (sizeof(seeds) / sizeof(seeds[0]))

static void seed_make(const struct seed *seed, struct keeper_make *make)
{
    strcpy(make->root, "host");
    strcpy(make->owner, "c0aaaaaaaaaaaaaaaaaa");
    strcpy(make->tenant, "team-a");
    strcpy(make->hostname, "box.example");
    make->disk_kind = seed->is_persistent ? KEEPER_PERSISTENT : KEEPER_EPHEMERAL;
    if (seed->is_persistent) {
        strcpy(make->disk, "c0bbbbbbbbbbbbbbbbbb");
        make->disk_new = 1;
    }
    make->limits = (struct box_limits){1U << 30, 1000, 64, 1U << 30, 4096};
    make->mounts_count = seed->mounts;
    for (size_t i = 0; i < make->mounts_count; i++) {
        (void)snprintf(make->mounts[i].name, sizeof(make->mounts[i].name), "sources-%zu", i);
        (void)snprintf(make->mounts[i].target, sizeof(make->mounts[i].target), "/mnt/sources/%zu",
                       i);
        make->mounts[i].read_only = i % 2;
    }
}

static size_t seed_fill(const struct seed *seed, union keeper_request *request)
{
    memset(request, 0, sizeof(*request));
    request->head = (struct keeper_head){.type = seed->type, .id = 7};
    switch (seed->type) {
    case KEEPER_HELLO:
        strcpy(request->hello.build, THIS_BUILD);
        break;
    case KEEPER_MAKE:
        seed_make(seed, &request->make);
        break;
    case KEEPER_CLAIM:
        strcpy(request->claim.owner, "c0aaaaaaaaaaaaaaaaaa");
        strcpy(request->claim.tenant, "team-a");
        break;
    case KEEPER_NETWORK:
        request->network.box = 1ULL << 32 | 3;
        request->network.what = KEEPER_NETWORK_UDP;
        break;
    case KEEPER_ATTACH:
        request->attach.box = 1ULL << 32 | 3;
        strcpy(request->attach.tenant, "team-a");
        strcpy(request->attach.mount.name, "sources");
        strcpy(request->attach.mount.target, "/mnt/sources");
        break;
    case KEEPER_DETACH:
        request->detach.box = 1ULL << 32 | 3;
        strcpy(request->detach.target, "/mnt/sources");
        break;
    case KEEPER_DROP_DISK:
    case KEEPER_WEIGH_DISK:
        strcpy(request->of_disk.disk, "c0aaaaaaaaaaaaaaaaaa");
        break;
    default:
        request->of_box.box = 1ULL << 32 | 3;
        break;
    }
    return seed->size;
}

static void try_damaged(void)
{
    static const unsigned char likely[] = {0, 1, 2, 0xff, 0x7f, '.', '/', '-', 'a', 'A', '\n'};
    unsigned char bytes[INPUT_MAX];
    union keeper_request request;
    size_t size, damage = chance(6);

    size = seed_fill(&seeds[chance(SEEDS)], &request);
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

/* How many bytes; -1 where they cannot be read. */
static ssize_t read_file(const char *path, unsigned char bytes[INPUT_MAX])
{
    FILE *file = fopen(path, "rbe");
    size_t size;

    if (file == NULL) {
        perror(path);
        return -1;
    }
    size = fread(bytes, 1, INPUT_MAX, file);
    (void)fclose(file);
    return (ssize_t)size;
}

static int try_file(const char *path, bool must_pass)
{
    union {
        union keeper_request request;
        unsigned char bytes[INPUT_MAX];
    } input;
    ssize_t size = read_file(path, input.bytes);
    const char *fault = NULL;

    if (size < 0)
        return 1;
    (void)LLVMFuzzerTestOneInput(input.bytes, (size_t)size);
    put_build(&input.request, (size_t)size);
    if (must_pass)
        fault = request_fault(&input.request, (size_t)size,
                              input.request.head.type != KEEPER_HELLO);
    if (fault != NULL)
        (void)fprintf(stderr, "%s is no whole request (%s): write the corpus again with --write\n",
                      path, fault);
    return fault != NULL;
}

static int try_corpus(const char *path)
{
    DIR *dir = opendir(path);
    size_t files = 0;
    int failed = 0;

    if (dir == NULL)
        return try_file(path, false);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char file[4096];

        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        failed |= try_file(file, true);
        files++;
    }
    (void)closedir(dir);
    if (files < SEEDS)
        (void)fprintf(stderr, "%s: %zu files where there are %zu seeds\n", path, files, SEEDS);
    return failed | (files < SEEDS);
}

static int write_corpus(const char *path)
{
    for (size_t i = 0; i < SEEDS; i++) {
        union keeper_request request;
        size_t size = seed_fill(&seeds[i], &request);
        char name[4096];
        bool is_written;
        FILE *file;

        (void)snprintf(name, sizeof(name), "%s/%s", path, seeds[i].name);
        file = fopen(name, "wbe");
        if (file == NULL) {
            perror(name);
            return 1;
        }
        is_written = fwrite(&request, 1, size, file) == size;
        if (fclose(file) != 0 || !is_written) {
            perror(name);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    union keeper_request request;
    int failed = 0;

    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_corpus(argv[2]);
    for (int i = 1; i < argc; i++)
        failed |= try_corpus(argv[i]);
    for (int round = 0; round < ROUNDS; round++)
        try_damaged();
    /* What is whole passes: else nothing was tried. */
    for (size_t i = 0; i < SEEDS; i++) {
        size_t size = seed_fill(&seeds[i], &request);

        put_build(&request, size);
        demand(request_fault(&request, size, request.head.type != KEEPER_HELLO) == NULL, "nothing");
    }
    return failed;
}
#endif
