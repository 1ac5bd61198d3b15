/* Entries 3 to 7, 15 and 16: memory, disk and output. What stops them is a limit of the box, so
 * most of these end by being killed, or by ENOSPC. */
#include "attack.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1024UL * 1024UL)

/* Without a wall the bomb ends here. */
#define MOST (1024UL * MIB)

static void anonymous(void)
{
    for (size_t size = 0; size < MOST; size += MIB) {
        char *at = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (at == MAP_FAILED)
            break;
        memset(at, 'x', MIB);
    }
    attack_check("1 GiB of memory", false, "it is there");
}

/* ---- 4: memory by other names ---- */

static void write_until(int fd, const char *what)
{
    static char block[MIB];
    unsigned long written = 0;
    int error = 0;

    memset(block, 'x', sizeof(block));
    while (written < MOST) {
        ssize_t n = write(fd, block, sizeof(block));

        if (n < 0) {
            error = errno;
            break;
        }
        written += (unsigned long)n;
    }
    attack_value("bytes", (long long)written);
    attack_check(what, error == ENOSPC || error == ENOMEM, "errno %d after %lu MiB", error,
                 written / MIB);
}

static void fill_file(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    write_until(fd, path);
}

static void shared_memory(void)
{
    int count = 0;

    for (; count < (int)(MOST / MIB / 16); count++) {
        int id = shmget(IPC_PRIVATE, 16 * MIB, IPC_CREAT | 0600);
        char *at = id < 0 ? (char *)-1 : shmat(id, NULL, 0);

        if (at == (char *)-1)
            break;
        memset(at, 'x', 16 * MIB);
        (void)shmdt(at);
    }
    attack_check("1 GiB of shared memory", count < (int)(MOST / MIB / 16), "%d MiB", count * 16);
}

static void other_memory(void)
{
    const char *kind = attack_word(0, "memfd");

    if (strcmp(kind, "memfd") == 0)
        write_until(memfd_create("bomb", MFD_CLOEXEC), "memfd");
    else if (strcmp(kind, "sysv") == 0)
        shared_memory();
    else
        fill_file(kind);
}

/* ---- 5 to 7 ---- */

static void dirty_pages(void)
{
    const char *path = attack_word(0, "/workspace/flood");
    unsigned long most = (unsigned long)attack_number(1, 256) * MIB, written = 0;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    static char block[MIB];

    while (written < most && write(fd, block, sizeof(block)) == (ssize_t)sizeof(block))
        written += sizeof(block);
    attack_check("dirty pages", fsync(fd) == 0 && written == most, "%lu MiB", written / MIB);
    (void)close(fd);
    (void)unlink(path);
}

static void fill_disk(void)
{
    static const char *const places[] = {"/tmp", "/home/user", "/dev/shm", "/root", "/var", "/usr"};
    static char block[65536];
    unsigned long long all = 0;
    int error = 0;

    memset(block, 'x', sizeof(block));
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && all < 4 * MOST; i++) {
        char path[64];
        ssize_t n;
        int fd;

        (void)snprintf(path, sizeof(path), "%s/fill", places[i]);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        while (fd >= 0 && all < 4 * MOST && (n = write(fd, block, sizeof(block))) > 0)
            all += (unsigned long long)n;
        if (fd >= 0)
            error = errno;
    }
    attack_value("bytes", (long long)all);
    attack_check("the last write", error == ENOSPC, "errno %d", error);
}

static void fill_inodes(void)
{
    static const char *const places[] = {"/tmp", "/home/user", "/dev/shm", "/root"};
    long made = 0, most = attack_number(0, 500000);
    int error = 0;

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        for (long j = 0; made < most; j++, made++) {
            char path[64];
            int fd;

            (void)snprintf(path, sizeof(path), "%s/f%ld", places[i], j);
            fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
            if (fd < 0) {
                error = errno == EACCES || errno == ENOENT || errno == EROFS ? error : errno;
                break;
            }
            (void)close(fd);
        }
    }
    attack_value("files", made);
    attack_check("the last file", error == ENOSPC, "errno %d", error);
}

/* ---- 15: output ---- */

static void flood_output(void)
{
    int fd = (int)attack_number(0, 1);
    unsigned long long wanted = strtoull(attack_word(1, "1048576"), NULL, 0), written = 0;
    static unsigned char block[1 << 18];

    for (size_t i = 0; i < sizeof(block); i++)
        block[i] = (unsigned char)(i * 7);
    while (written < wanted) {
        ssize_t n = write(fd, block,
                          wanted - written < sizeof(block) ? wanted - written : sizeof(block));

        if (n <= 0)
            _exit(3);
        written += (unsigned long long)n;
    }
    _exit(0);
}

/* ---- 16: long and deep ---- */

static void deep_directories(void)
{
    long depth = attack_number(1, 4000), made = 0;

    if (chdir("/tmp") < 0)
        return;
    for (; made < depth; made++)
        if (mkdir("directory-with-a-long-name-below-another", 0700) < 0 ||
            chdir("directory-with-a-long-name-below-another") < 0)
            break;
    attack_check("directories below each other", made == depth, "%ld: %d", made, errno);
}

static void many_entries(void)
{
    long wanted = attack_number(1, 100000), made = 0;
    char path[64];

    (void)mkdir("/tmp/many", 0700);
    for (; made < wanted; made++) {
        int fd;

        (void)snprintf(path, sizeof(path), "/tmp/many/%ld", made);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            break;
        (void)close(fd);
    }
    attack_check("entries of a directory", made == wanted, "%ld: %d", made, errno);
}

static void long_things(void)
{
    const char *kind = attack_word(0, "deep");

    if (strcmp(kind, "deep") == 0)
        deep_directories();
    else if (strcmp(kind, "many") == 0)
        many_entries();
    else
        attack_value("words", attack_number(1, 0));
}

const struct attack bombs_attacks[] = {
    {3, anonymous},   {4, other_memory},  {5, dirty_pages},  {6, fill_disk},
    {7, fill_inodes}, {15, flood_output}, {16, long_things}, {0, NULL},
};
