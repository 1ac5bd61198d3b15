/* Boots the JavaScript engine with its prelude and writes the image: run by the build, whose result is
 * embedded. The same sources make the same image, byte for byte.
 * usage: make-image IMAGE SCRIPT... */
#include "base/fd.h"
#include "kernel/parts.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *file_read(const char *path)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    char *text;

    if (fd < 0 || fstat(fd, &about) < 0)
        return NULL;
    text = malloc((size_t)about.st_size + 1);
    if (text == NULL || fd_read_full(fd, text, (size_t)about.st_size) != about.st_size) {
        free(text);
        return NULL;
    }
    text[about.st_size] = 0;
    return text;
}

int main(int argc, char **argv)
{
    const char **scripts = calloc(2 * (size_t)argc + 1, sizeof(*scripts));
    struct kernel_image *image;
    struct error err;
    int fd;

    if (argc < 3 || scripts == NULL)
        return fprintf(stderr, "usage: make-image IMAGE SCRIPT...\n"), 1;
    for (size_t i = 2; i < (size_t)argc; i++) {
        const char *slash = strrchr(argv[i], '/');
        char *name = NULL;

        /* By this name errors.js knows which frames of a stack are not the user's. */
        if (asprintf(&name, "cove:%s", slash != NULL ? slash + 1 : argv[i]) < 0)
            return perror(argv[i]), 1;
        scripts[2 * (i - 2)] = name;
        scripts[2 * (i - 2) + 1] = file_read(argv[i]);
        if (scripts[2 * (i - 2) + 1] == NULL)
            return perror(argv[i]), 1;
    }
    if (kernel_image_boot(scripts, &image, &err) < 0)
        return fprintf(stderr, "make-image: %s\n", err.text), 1;
    fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || image_write(image, fd, &err) < 0 || close(fd) < 0)
        return fprintf(stderr, "make-image: %s: it cannot be written\n", argv[1]), 1;
    kernel_image_free(image);
    for (size_t i = 0; scripts[i] != NULL; i++)
        free((char *)(uintptr_t)scripts[i]);
    free(scripts);
    return 0;
}
