/* Slots: the room of one guest's memory. 4 GiB of addresses and a guard behind them are reserved, so that
 * no index of the guest leads out of it; only what the guest has grown to can be touched.
 *
 * The image is mapped privately: what is not written stays shared by all. To put it back, the kernel is
 * asked which pages of the range are private by now (PAGEMAP_SCAN, since Linux 6.7), and these are copied from the image:
 * they stay where they are, and the next run faults on none of them. A fault costs two microseconds in a
 * virtual machine, and there are dozens in a run, so that this is ten times as fast as the fallback,
 * which drops the pages. A page becomes private by a fault: where the whole process had none since the last
 * time, they are those of the last time, and the kernel need not be asked. */
#include "kernel/parts.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* <linux/fs.h> of Debian 12 does not have these yet; they are the kernel's ABI. */
struct scan_region {
    uint64_t start, end, categories;
};
struct scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN _IOWR('f', 16, struct scan)
#define SCAN_FILE (1U << 2)
#define SCAN_PRESENT (1U << 3)
#define SCAN_SWAPPED (1U << 4)
#define SCAN_REGIONS 128

static pthread_once_t scan_once = PTHREAD_ONCE_INIT;
static int scan_fd = -1;
static bool faults_count; /* that the kernel counts them was seen */
static uint64_t forks;    /* a child is counted anew */
#define FAULTS_UNKNOWN UINT64_MAX

static uint64_t faults(void)
{
    struct rusage usage;

    if (!faults_count || getrusage(RUSAGE_SELF, &usage) < 0)
        return FAULTS_UNKNOWN;
    /* Major ones, too: the image's page may have been swapped out. */
    return (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt + (forks << 48);
}

/* Private pages of the range, from `*from` on, which moves; how many regions, or -1. */
static int scan_next(uint64_t *from, uint64_t end, struct scan_region regions[SCAN_REGIONS])
{
    struct scan scan = {
        .size = sizeof(scan),
        .start = *from,
        .end = end,
        .vec = (uint64_t)(uintptr_t)regions,
        .vec_len = SCAN_REGIONS,
        .category_inverted = SCAN_FILE,
        .category_mask = SCAN_FILE,
        .category_anyof_mask = SCAN_PRESENT | SCAN_SWAPPED,
        .return_mask = SCAN_PRESENT,
    };
    int count = ioctl(scan_fd, SCAN, &scan);

    *from = scan.walk_end;
    return count;
}

/* Tried on three pages of a file, of which the second is written. */
static bool scan_works(void)
{
    const size_t page = 4096;
    struct scan_region regions[SCAN_REGIONS];
    _cleanup_close_ int file = memfd_create("kernel-probe", MFD_CLOEXEC);
    uint8_t *pages;
    uint64_t from, before;
    bool works;

    if (file < 0 || sysconf(_SC_PAGESIZE) != (long)page || ftruncate(file, (off_t)(3 * page)) < 0)
        return false;
    pages = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (pages == MAP_FAILED)
        return false;
    *(volatile uint8_t *)pages;
    faults_count = true;
    before = faults();
    *(volatile uint8_t *)(pages + page) = 1;
    faults_count = before != FAULTS_UNKNOWN && faults() > before;
    from = (uint64_t)(uintptr_t)pages;
    works = scan_next(&from, from + 3 * page, regions) == 1 &&
            regions[0].start == (uint64_t)(uintptr_t)(pages + page) &&
            regions[0].end == regions[0].start + page;
    (void)munmap(pages, 3 * page);
    return works;
}

static void scan_open(void)
{
    scan_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
#ifdef COVE_TEST_SWITCHES
    const char *off = getenv("COVE_TEST_OFF");

    if (off != NULL && strstr(off, "pagemap") != NULL)
        fd_close(&scan_fd);
#endif
    if (scan_fd >= 0 && !scan_works())
        fd_close(&scan_fd);
}

/* A file of the parent's memory is of no use to a child. */
static void scan_forked(void)
{
    forks++;
    if (scan_fd < 0)
        return;
    fd_close(&scan_fd);
    scan_open();
}

static void scan_begin(void)
{
    scan_open();
    (void)pthread_atfork(NULL, NULL, scan_forked);
}

bool slot_can_scan(void)
{
    (void)pthread_once(&scan_once, scan_begin);
    return scan_fd >= 0;
}

/* ---- slots ---- */

/* Of all slots of the process: what guests have grown to beyond what was mapped for them. */
static atomic_uint_fast64_t grown;
static uint64_t grown_max; /* 0: no bound */

void kernel_memory_bound(uint64_t bytes)
{
    grown_max = bytes;
}

uint64_t kernel_memory_grown(void)
{
    return atomic_load(&grown);
}

static void shrunk(struct kernel_slot *slot, uint64_t size)
{
    if (size > slot->grown)
        size = slot->grown;
    slot->grown -= size;
    (void)atomic_fetch_sub(&grown, size);
}

struct kernel_slot *slot_new(struct error *err)
{
    struct kernel_slot *slot = calloc(1, sizeof(*slot));

    if (slot == NULL) {
        error_set(err, "no_memory", ENOMEM, "a kernel's slot");
        return NULL;
    }
    slot->base = mmap(NULL, KERNEL_SLOT_BYTES, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slot->base == MAP_FAILED) {
        error_set(err, "no_room", errno,
                  "there are no 4 GiB of addresses left for one more kernel; end some, or raise "
                  "RLIMIT_AS");
        free(slot);
        return NULL;
    }
    /* What a guest holds may be a secret of its user. */
    (void)madvise(slot->base, KERNEL_SLOT_BYTES, MADV_DONTDUMP);
    return slot;
}

void slot_free(struct kernel_slot *slot)
{
    if (slot == NULL)
        return;
    (void)munmap(slot->base, KERNEL_SLOT_BYTES);
    shrunk(slot, slot->grown);
    free(slot);
}

int slot_open(struct kernel_slot *slot, uint64_t size)
{
    uint64_t more = size - slot->opened;

    if (size <= slot->opened)
        return 0;
    slot->grown += more;
    if (atomic_fetch_add(&grown, more) + more > grown_max && grown_max != 0)
        return shrunk(slot, more), errno = ENOMEM, -1;
    if (mprotect(slot->base + slot->opened, more, PROT_READ | PROT_WRITE) < 0)
        return shrunk(slot, more), -1;
    slot->opened = size;
    return 0;
}

/* Back to a reservation from `size` on. */
static int slot_close(struct kernel_slot *slot, uint64_t size)
{
    if (slot->opened <= size)
        return 0;
    if (mmap(slot->base + size, slot->opened - size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        return -1;
    (void)madvise(slot->base + size, slot->opened - size, MADV_DONTDUMP);
    shrunk(slot, slot->opened - size);
    slot->opened = size;
    return 0;
}

int slot_map(struct kernel_slot *slot, const struct kernel_image *image, struct error *err)
{
    slot->private_known = false;
    if (slot_close(slot, 0) < 0 ||
        mmap(slot->base, image->size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, image->fd, 0) == MAP_FAILED)
        return error_set(err, "no_room", errno,
                         "a kernel's image cannot be mapped; vm.max_map_count may be met");
    (void)madvise(slot->base, image->size, MADV_DONTDUMP);
    slot->opened = image->size;
    return 0;
}

struct put_back {
    struct kernel_slot *slot;
    const uint8_t *gold;
};

static int put_back(void *data, uint64_t at, uint64_t size)
{
    const struct put_back *to = data;
    struct kernel_slot *slot = to->slot;

    memcpy(slot->base + at, to->gold + at, size);
    if (slot->private_count < SLOT_PRIVATE_MAX)
        slot->private[slot->private_count] = (struct slot_range){(uint32_t)at, (uint32_t)size};
    slot->private_count++;
    return 0;
}

int slot_changed(const struct kernel_slot *slot, const struct kernel_image *image,
                 int (*each)(void *data, uint64_t at, uint64_t size), void *data)
{
    uint64_t base = (uint64_t)(uintptr_t)slot->base, from = base;
    struct scan_region regions[SCAN_REGIONS];
    int status;

    if (!slot_can_scan())
        return each(data, 0, image->size);
    while (from < base + image->size) {
        int count = scan_next(&from, base + image->size, regions);

        if (count < 0)
            return -1;
        for (int i = 0; i < count; i++) {
            status = each(data, regions[i].start - base, regions[i].end - regions[i].start);
            if (status != 0)
                return status;
        }
    }
    return 0;
}

int slot_reset(struct kernel_slot *slot, const struct kernel_image *image)
{
    struct put_back to = {slot, image->gold};
    uint64_t now;

    /* An image that could not be mapped again is not there to be put back. */
    if (slot->opened < image->size || slot_close(slot, image->size) < 0)
        return -1;
    if (!slot_can_scan())
        return madvise(slot->base, image->size, MADV_DONTNEED);
    /* Before the scan: what becomes private after it counts for the next time. */
    now = faults();
    if (slot->private_known && slot->faults == now) {
        for (uint32_t i = 0; i < slot->private_count; i++)
            memcpy(slot->base + slot->private[i].at, image->gold + slot->private[i].at,
                   slot->private[i].size);
        return 0;
    }
    slot->private_count = 0;
    slot->private_known = false;
    if (slot_changed(slot, image, put_back, &to) < 0)
        return -1;
    slot->private_known = now != FAULTS_UNKNOWN && slot->private_count <= SLOT_PRIVATE_MAX;
    slot->faults = now;
    return 0;
}
