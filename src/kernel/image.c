/* Images: the memory of an engine that has booted, in a sealed memfd that nothing can change any more, and
 * slots that are kept equal to it. */
#include "base/fd.h"
#include "base/sha256.h"
#include "kernel/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint8_t zeros[IMAGE_PAGE];

static bool page_is_zero(const uint8_t *page)
{
    return memcmp(page, zeros, IMAGE_PAGE) == 0;
}

/* Writes pages of `memory` that are not zero, in as few calls as there are gaps. */
static int pages_put(int fd, const uint8_t *memory, uint64_t size)
{
    uint64_t at = 0, begin;

    while (at < size) {
        if (page_is_zero(memory + at)) {
            at += IMAGE_PAGE;
            continue;
        }
        begin = at;
        while (at < size && !page_is_zero(memory + at))
            at += IMAGE_PAGE;
        if (pwrite(fd, memory + begin, at - begin, (off_t)begin) != (ssize_t)(at - begin))
            return -1;
    }
    return 0;
}

static int image_failed(struct kernel_image *image, struct error *err)
{
    error_set(err, "no_memory", errno, "a kernel's image cannot be made");
    kernel_image_free(image);
    return -1;
}

/* A box whose memory nobody but a watchdog counts has no memfds, and files in memory in their place. */
static int file_new(void)
{
    int fd = memfd_create("cove-kernel", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    return fd < 0 && errno == ENOSYS ? open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : fd;
}

/* Nobody writes to it any more. One that cannot be sealed has no name, and no other fd than ours. */
static int file_close(int *fd)
{
    char self[32];
    int reader;

    if (fcntl(*fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0)
        return 0;
    if (fcntl(*fd, F_GET_SEALS) != F_SEAL_SEAL) /* as a file has it */
        return -1;
    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", *fd);
    reader = open(self, O_RDONLY | O_CLOEXEC);
    if (reader < 0)
        return -1;
    fd_close(fd);
    *fd = reader;
    return 0;
}

/* With an empty memfd of this size. */
static struct kernel_image *image_begin(const struct kernel_guest *guest, uint64_t size,
                                        uint32_t shared_at)
{
    struct kernel_image *image = calloc(1, sizeof(*image));

    if (image == NULL)
        return NULL;
    *image = (struct kernel_image){.guest = guest,
                                   .size = size,
                                   .shared_at = shared_at,
                                   .gold = MAP_FAILED,
                                   .ready_max = KERNEL_POOL_MAX};
    (void)pthread_mutex_init(&image->lock, NULL);
    image->fd = file_new();
    if (image->fd < 0 || ftruncate(image->fd, (off_t)size) < 0) {
        kernel_image_free(image);
        return NULL;
    }
    return image;
}

static int image_seal(struct kernel_image *image)
{
    if (file_close(&image->fd) < 0)
        return -1;
    /* Private, for before Linux 6.7 what is sealed against writing cannot be mapped shared. */
    image->gold = mmap(NULL, image->size, PROT_READ, MAP_PRIVATE, image->fd, 0);
    return image->gold == MAP_FAILED ? -1 : 0;
}

int image_new(const struct kernel_guest *guest, const uint8_t *memory, uint64_t size,
              uint32_t shared_at, struct kernel_image **out, struct error *err)
{
    struct kernel_image *image = image_begin(guest, size, shared_at);

    if (image == NULL)
        return error_set(err, "no_memory", errno, "a kernel's image cannot be made");
    if (pages_put(image->fd, memory, size) < 0 || image_seal(image) < 0)
        return image_failed(image, err);
    *out = image;
    return 0;
}

void kernel_image_free(struct kernel_image *image)
{
    struct kernel_slot *next;

    if (image == NULL)
        return;
    for (struct kernel_slot *slot = image->ready; slot != NULL; slot = next) {
        next = slot->next;
        slot_free(slot);
    }
    if (image->gold != MAP_FAILED)
        (void)munmap((void *)(uintptr_t)image->gold, image->size);
    fd_close(&image->fd);
    (void)pthread_mutex_destroy(&image->lock);
    free(image);
}

void kernel_image_freep(struct kernel_image **image)
{
    kernel_image_free(*image);
}

size_t kernel_image_bytes(const struct kernel_image *image)
{
    return (size_t)image->size;
}

/* ---- slots ---- */

struct kernel_slot *image_slot_take(struct kernel_image *image, struct error *err)
{
    struct kernel_slot *slot;

    (void)pthread_mutex_lock(&image->lock);
    slot = image->ready;
    if (slot != NULL) {
        image->ready = slot->next;
        image->ready_count--;
    }
    (void)pthread_mutex_unlock(&image->lock);
    if (slot != NULL)
        return slot;
    slot = slot_new(err);
    if (slot != NULL && slot_map(slot, image, err) < 0) {
        slot_free(slot);
        return NULL;
    }
    return slot;
}

void image_slot_give(struct kernel_image *image, struct kernel_slot *slot, bool pristine)
{
    bool keep = image->ready_count < image->ready_max; /* about: it is looked at again below */

    if (keep && !pristine)
        keep = slot_reset(slot, image) == 0;
    if (keep) {
        (void)pthread_mutex_lock(&image->lock);
        keep = image->ready_count < image->ready_max;
        if (keep) {
            slot->next = image->ready;
            image->ready = slot;
            image->ready_count++;
        }
        (void)pthread_mutex_unlock(&image->lock);
    }
    if (!keep)
        slot_free(slot);
}

/* ---- as a file ---- */

/* What makes it this image and no other. */
static void hash_begin(struct sha256 *hash, uint64_t size, uint32_t shared_at)
{
    uint64_t numbers[3] = {GUEST_LAYOUT, shared_at, size};

    sha256_begin(hash);
    sha256_add(hash, numbers, sizeof(numbers));
}

int image_hash(struct kernel_image *image, uint8_t hash[32])
{
    struct sha256 sha;

    (void)pthread_mutex_lock(&image->lock);
    if (!image->hashed) {
        hash_begin(&sha, image->size, image->shared_at);
        for (uint64_t at = 0; at < image->size; at += IMAGE_PAGE) {
            if (page_is_zero(image->gold + at))
                continue;
            sha256_add(&sha, &at, sizeof(at));
            sha256_add(&sha, image->gold + at, IMAGE_PAGE);
        }
        sha256_end_bytes(&sha, image->hash);
        image->hashed = true;
    }
    memcpy(hash, image->hash, sizeof(image->hash));
    (void)pthread_mutex_unlock(&image->lock);
    return 0;
}

/* Where the pages begin in the file. */
static uint64_t pages_at(uint32_t count)
{
    uint64_t end = sizeof(struct image_head) + (uint64_t)count * sizeof(uint32_t);

    return (end + IMAGE_PAGE - 1) / IMAGE_PAGE * IMAGE_PAGE;
}

int image_write(struct kernel_image *image, int fd, struct error *err)
{
    struct image_head head = {.magic = IMAGE_MAGIC,
                              .layout = GUEST_LAYOUT,
                              .shared_at = image->shared_at,
                              .size = image->size};
    uint32_t number = 0;
    uint64_t to;

    (void)image_hash(image, head.hash);
    for (uint64_t at = 0; at < image->size; at += IMAGE_PAGE)
        head.pages_count += page_is_zero(image->gold + at) ? 0 : 1;
    to = pages_at(head.pages_count);
    for (uint64_t at = 0; at < image->size; at += IMAGE_PAGE) {
        uint32_t page = (uint32_t)(at / IMAGE_PAGE);

        if (page_is_zero(image->gold + at))
            continue;
        if (pwrite(fd, &page, sizeof(page), (off_t)(sizeof(head) + number * sizeof(page))) < 0 ||
            pwrite(fd, image->gold + at, IMAGE_PAGE, (off_t)(to + (uint64_t)number * IMAGE_PAGE)) <
                0)
            return error_set(err, "io", errno, "the image cannot be written");
        number++;
    }
    if (pwrite(fd, &head, sizeof(head), 0) < 0)
        return error_set(err, "io", errno, "the image cannot be written");
    return 0;
}

/* The pages lie one after the other, and mostly belong so: each such row is one write. */
static int pages_read(struct kernel_image *image, const uint32_t *numbers, const uint8_t *pages,
                      uint32_t count)
{
    uint32_t begin = 0, end;

    while (begin < count) {
        size_t size;

        for (end = begin + 1; end < count && numbers[end] == numbers[end - 1] + 1; end++)
            continue;
        if (numbers[end - 1] >= image->size / IMAGE_PAGE)
            return errno = EINVAL, -1;
        size = (size_t)(end - begin) * IMAGE_PAGE;
        if (pwrite(image->fd, pages + (size_t)begin * IMAGE_PAGE, size,
                   (off_t)numbers[begin] * IMAGE_PAGE) != (ssize_t)size)
            return -1;
        begin = end;
    }
    return 0;
}

int image_read(const struct kernel_guest *guest, const uint8_t *bytes, size_t size,
               struct kernel_image **out, struct error *err)
{
    struct image_head head;
    struct kernel_image *image;
    uint64_t to;

    if (size < sizeof(head))
        return error_set(err, "bad_image", 0, "this is no image of a kernel: it is too short");
    memcpy(&head, bytes, sizeof(head));
    to = pages_at(head.pages_count);
    if (memcmp(head.magic, IMAGE_MAGIC, sizeof(head.magic)) != 0 || head.layout != GUEST_LAYOUT ||
        head.size == 0 || head.size % KERNEL_WASM_PAGE != 0 || head.size > KERNEL_MEMORY_MAX ||
        size < to + (uint64_t)head.pages_count * IMAGE_PAGE ||
        head.shared_at > head.size - sizeof(struct guest_shared))
        return error_set(err, "bad_image", 0, "this is no image of a kernel of this version");
    image = image_begin(guest, head.size, head.shared_at);
    if (image == NULL)
        return error_set(err, "no_memory", errno, "a kernel's image cannot be made");
    if (pages_read(image, (const uint32_t *)(const void *)(bytes + sizeof(head)), bytes + to,
                   head.pages_count) < 0 ||
        image_seal(image) < 0)
        return image_failed(image, err);
    memcpy(image->hash, head.hash, sizeof(head.hash));
    image->hashed = true;
    *out = image;
    return 0;
}
