/* See kit.h. */
#include "kit.h"

#include "kernel/js/js.h"

#include "base/clock.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

_Noreturn static void give_up(const char *what, const struct error *err)
{
    printf("%s: %s\n", what, err->text);
    exit(1);
}

struct kernel_image *kit_image(void)
{
    static struct kernel_image *image;
    /* On another machine than the one that built it. */
    const char *path = getenv("KERNEL_TEST_IMAGE");
    struct error err;
    struct stat about;
    void *bytes;
    int fd;

    if (image != NULL)
        return image;
    if (path == NULL)
        path = KERNEL_TEST_IMAGE;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) < 0)
        exit(1);
    bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED ||
        image_read(&kernel_guest_js, bytes, (size_t)about.st_size, &image, &err) < 0)
        give_up(path, &err);
    (void)munmap(bytes, (size_t)about.st_size);
    (void)close(fd);
    return image;
}

struct kernel_manifest *kit_manifest(const struct kernel_grants *grants)
{
    struct kernel_manifest *manifest;
    struct error err;

    if (kernel_manifest_new(grants, &manifest, &err) < 0)
        give_up("manifest", &err);
    return manifest;
}

struct kernel_context *kit_context(const struct kernel_manifest *manifest)
{
    struct kernel_context *context;
    struct error err;

    if (kernel_context_new(kit_image(), manifest, NULL, &context, &err) < 0)
        give_up("context", &err);
    return context;
}

const struct kernel_result *kit_run(struct kernel_context *context, const char *source)
{
    return kit_run_within(context, source, 0);
}

const struct kernel_result *kit_run_within(struct kernel_context *context, const char *source,
                                           uint32_t cpu_ms)
{
    return kit_run_source(
        context, &(struct kernel_source){.text = source, .size = strlen(source), .cpu_ms = cpu_ms});
}

const struct kernel_result *kit_run_source(struct kernel_context *context,
                                           const struct kernel_source *source)
{
    enum kernel_status status;
    struct error err;

    if (kernel_run(context, source, &status, &err) < 0)
        give_up(source->text, &err);
    while (status == KERNEL_WAITS) {
        uint64_t ms = kernel_wait_ms(context);
        struct timespec wait = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

        (void)nanosleep(&wait, NULL);
        if (kernel_step(context, &status, &err) < 0)
            give_up(source->text, &err);
    }
    return kernel_result(context);
}

bool kit_is(struct kernel_text text, const char *wanted)
{
    return text.size == strlen(wanted) && memcmp(text.data, wanted, text.size) == 0;
}

bool kit_has(struct kernel_text text, const char *part)
{
    return text.size > 0 && memmem(text.data, text.size, part, strlen(part)) != NULL;
}
