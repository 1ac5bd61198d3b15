/* Growth of the kernel's memory: see kernel_memory.h. */
#include "box/kernel_memory.h"

#include "base/fd.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAUSE_NS 1000000000ULL
/* Where it has hardly grown since the last count, which could not end or ended a box. */
#define LONG_PAUSE_NS 10000000000ULL
#define MEMINFO_SIZE 8192

/* Each CPU has some lines in each zone. */
#define ZONEINFO_SIZE (4U << 20)

/* The number behind this word, which begins a line, or 0. `*text` moves behind it, or to the end. */
static uint64_t number_after(const char **text, const char *word)
{
    const char *at = *text;

    while ((at = strstr(at, word)) != NULL) {
        const char *before = at;

        at += strlen(word);
        while (before > *text && before[-1] == ' ')
            before--;
        if (before == *text || before[-1] == '\n') {
            *text = at;
            return strtoull(at, NULL, 10);
        }
    }
    *text += strlen(*text);
    return 0;
}

static uint64_t named(const char *meminfo, const char *name)
{
    return number_after(&meminfo, name) << 10;
}

uint64_t kernel_memory_of(const char *meminfo, const char *zoneinfo, size_t page)
{
    static const char *const names[] = {
        "MemFree:",      "Buffers:",     "Cached:",     "SwapCached:",    "AnonPages:",
        "SReclaimable:", "KernelStack:", "PageTables:", "SecPageTables:", "Percpu:",
        "Hugetlb:",      "Zswap:",       "Balloon:",
    };
    uint64_t all = named(meminfo, "MemTotal:"), taken = 0;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        taken += named(meminfo, names[i]);
    while (*zoneinfo != '\0')
        taken += number_after(&zoneinfo, "count:") * page;
    return taken < all ? all - taken : 0;
}

uint64_t kernel_memory_read(void)
{
    _cleanup_free_ char *zoneinfo = malloc(ZONEINFO_SIZE);
    char meminfo[MEMINFO_SIZE];

    if (zoneinfo == NULL ||
        fd_read_file(AT_FDCWD, "/proc/meminfo", meminfo, sizeof(meminfo)) <= 0 ||
        fd_read_file(AT_FDCWD, "/proc/zoneinfo", zoneinfo, ZONEINFO_SIZE) <= 0)
        return 0;
    return kernel_memory_of(meminfo, zoneinfo, (size_t)sysconf(_SC_PAGESIZE));
}

bool kernel_memory_has_grown(struct growth *memory, uint64_t now, size_t boxes, uint64_t now_ns)
{
    uint64_t pause = now >= memory->begun + KERNEL_MEMORY_GROWTH / 2 ? PAUSE_NS : LONG_PAUSE_NS;

    return growth_is_due(memory, now, KERNEL_MEMORY_GROWTH + boxes * KERNEL_MEMORY_BOX, pause,
                         now_ns);
}
