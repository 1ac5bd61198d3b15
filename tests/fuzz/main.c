/* Runs the inputs of a corpus through a fuzz target, where no fuzzer is: each file of the directories
 * that are named, one after the other. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run(const char *directory, const char *name)
{
    static uint8_t data[1 << 16];
    char path[4096];
    FILE *file;
    size_t size;

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    file = fopen(path, "re");
    if (file == NULL)
        return -1;
    size = fread(data, 1, sizeof(data), file);
    (void)fclose(file);
    return LLVMFuzzerTestOneInput(data, size);
}

int main(int argc, char **argv)
{
    unsigned count = 0, failed = 0;

    for (int i = 1; i < argc; i++) {
        DIR *directory = opendir(argv[i]);
        const struct dirent *entry;

        while (directory != NULL && (entry = readdir(directory)) != NULL) {
            if (entry->d_name[0] == '.')
                continue;
            count++;
            failed += run(argv[i], entry->d_name) != 0;
        }
        if (directory != NULL)
            (void)closedir(directory);
    }
    printf("%u inputs, %u failed\n", count, failed);
    return failed > 0 || count == 0;
}
