/* When the boxes' sockets are to be counted: what /proc says, and how much more it has to be. */
#include "box/kernel_memory.h"

#include "check.h"

#include <stdint.h>

#define MIB (1ULL << 20)
#define SECOND 1000000000ULL

static void check_texts(void)
{
    static const char meminfo[] = "MemTotal:        1000000 kB\n"
                                  "MemFree:          100000 kB\n"
                                  "MemAvailable:     900000 kB\n"
                                  "Cached:           200000 kB\n"
                                  "SwapCached:          100 kB\n"
                                  "AnonPages:         50000 kB\n"
                                  "Slab:              70000 kB\n"
                                  "SReclaimable:      30000 kB\n"
                                  "SUnreclaim:        40000 kB\n";
    static const char zoneinfo[] = "Node 0, zone      DMA\n"
                                   "  pages free     2816\n"
                                   "  pagesets\n"
                                   "    cpu: 0\n"
                                   "              count:    10\n"
                                   "              high:     40\n"
                                   "    cpu: 1\n"
                                   "              count: 15\n"
                                   "  start_pfn:           1\n";

    CHECK(kernel_memory_of(meminfo, "", 4096) == 619900 << 10, "what has no name");
    CHECK(kernel_memory_of(meminfo, zoneinfo, 4096) == (619900 - 100) << 10,
          "less what each CPU has for itself");
    CHECK(kernel_memory_of("", zoneinfo, 4096) == 0, "a kernel that does not tell");
    CHECK(kernel_memory_of("MemTotal: 10 kB\nMemFree: 11 kB\n", "", 4096) == 0, "nonsense");
}

static void check_growth(void)
{
    struct growth memory = {0};
    const uint64_t most = KERNEL_MEMORY_GROWTH + 10 * KERNEL_MEMORY_BOX;

    CHECK(!kernel_memory_has_grown(&memory, 0, 10, SECOND), "nobody tells");
    CHECK(!kernel_memory_has_grown(&memory, 500 * MIB, 10, SECOND), "the first look");
    CHECK(!kernel_memory_has_grown(&memory, 500 * MIB + most - 1, 10, SECOND), "just not");
    CHECK(kernel_memory_has_grown(&memory, 500 * MIB + most, 10, SECOND), "it has grown");
    CHECK(!kernel_memory_has_grown(&memory, 500 * MIB + most, 11, SECOND), "with another box");
    CHECK(!kernel_memory_has_grown(&memory, 400 * MIB, 10, SECOND), "less than ever");
    CHECK(kernel_memory_has_grown(&memory, 400 * MIB + most, 10, SECOND), "and from there on");
}

static void check_pauses(void)
{
    struct growth memory = {0};
    const uint64_t much = 1000 * MIB;

    (void)kernel_memory_has_grown(&memory, 100 * MIB, 0, SECOND);
    CHECK(kernel_memory_has_grown(&memory, much, 0, SECOND), "due");
    growth_counted(&memory, true, true, 2 * SECOND);
    CHECK(kernel_memory_has_grown(&memory, much, 0, 2 * SECOND), "again when a box was ended");
    growth_counted(&memory, false, false, 3 * SECOND);
    CHECK(!kernel_memory_has_grown(&memory, much, 0, 13 * SECOND - 1), "a pause");
    CHECK(!kernel_memory_has_grown(&memory, 2 * much, 0, 4 * SECOND - 1), "a short one");
    CHECK(kernel_memory_has_grown(&memory, 2 * much, 0, 4 * SECOND), "when it grows");
    growth_counted(&memory, false, false, 4 * SECOND);
    CHECK(kernel_memory_has_grown(&memory, 2 * much, 0, 14 * SECOND),
          "again when not all were counted");
    growth_counted(&memory, true, false, 14 * SECOND);
    CHECK(!kernel_memory_has_grown(&memory, 2 * much, 0, 99 * SECOND), "it was not the boxes");
    CHECK(kernel_memory_has_grown(&memory, 2 * much + KERNEL_MEMORY_GROWTH, 0, 99 * SECOND),
          "until it has grown again");
}

static void check_host(void)
{
    uint64_t now = kernel_memory_read();

    CHECK(now > MIB && now < 1ULL << 50, "this host: %llu", (unsigned long long)now);
}

int main(void)
{
    check_texts();
    check_growth();
    check_pauses();
    check_host();
    return check_finish();
}
