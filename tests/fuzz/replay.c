/* Calls a fuzz entry with each file that is named, or lies in a directory that is named: the corpus stays
 * a test where no fuzzer is built. To be of use without one, it then tries each input again with
 * single bytes changed and with its end cut off. COVE_TEST_SCALE divides how often, for emulated machines. */
#include "base/fd.h"
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INPUT_MAX (1U << 16)
#ifndef CHANGES /* of each file; fewer where an input takes milliseconds */
#define CHANGES 2000
#endif

static unsigned long long inputs;

static void try_one(const uint8_t *data, size_t size)
{
    /* A copy of exactly its size, so that one byte too far is seen. */
    uint8_t *copy = malloc(size == 0 ? 1 : size);

    if (copy == NULL)
        abort();
    if (size > 0)
        memcpy(copy, data, size);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    inputs++;
}

static unsigned long changes(void)
{
    const char *scale = getenv("COVE_TEST_SCALE");
    unsigned long by = scale == NULL ? 1 : strtoul(scale, NULL, 10);

    return by > 1 ? 1 + CHANGES / by : CHANGES;
}

static void try_changed(uint8_t *data, size_t size)
{
    static const uint8_t odd[] = {0,   '\n', '\r', ' ',  '#',  '=', '[',
                                  ']', ',',  '"',  0x7f, 0x80, 0xff};
    uint64_t state = 0x9e3779b97f4a7c15U + size;

    try_one(data, size);
    for (unsigned long i = changes(); i > 0 && size > 0; i--) {
        uint8_t *at, was;

        state = state * 6364136223846793005U + 1442695040888963407U;
        at = &data[(state >> 33) % size];
        was = *at;
        *at = odd[(state >> 20) % sizeof(odd)];
        try_one(data, size);
        *at = was;
        try_one(data, (state >> 33) % size);
    }
}

static int try_file(int dir, const char *name)
{
    static uint8_t data[INPUT_MAX];
    _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : fd_read_full(fd, data, sizeof(data));

    if (n < 0) {
        perror(name);
        return -1;
    }
    try_changed(data, (size_t)n);
    return 0;
}

static int try_directory(const char *path)
{
    DIR *dir = opendir(path);
    int status = 0;

    if (dir == NULL)
        return try_file(AT_FDCWD, path);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.' && try_file(dirfd(dir), entry->d_name) < 0)
            status = -1;
    (void)closedir(dir);
    return status;
}

int main(int argc, char **argv)
{
    int status = 0;

    for (int i = 1; i < argc; i++)
        if (try_directory(argv[i]) < 0)
            status = -1;
    printf("%llu inputs\n", inputs);
    return status < 0 || inputs == 0;
}
