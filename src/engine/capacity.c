/* Whether the host has room for one more box. What is asked for counts less than what is left: memory
 * that a sandbox may use is not reserved, and most never use it. */
#include "base/clock.h"
#include "base/fd.h"
#include "engine/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* A sandbox takes a handful, and who asks for one is to be told so. */
#define FDS_HEADROOM 24
#define KEEP_NS 100000000ULL /* a figure is good for this long: 0.1 s */
#define KEPT_MOST (256ULL << 20)
#define TRIM_NS 1000000000ULL

static uint64_t memory_read(void)
{
    char text[4096];
    const char *line;

    if (fd_read_file(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) < 0)
        return UINT64_MAX;
    line = strstr(text, "MemAvailable:");
    if (line == NULL)
        return UINT64_MAX;
    return (uint64_t)strtoull(line + strlen("MemAvailable:"), NULL, 10) << 10;
}

static void capacity_read(struct engine *engine)
{
    uint64_t now = clock_monotonic_ns();
    struct statvfs disk;

    if (engine->capacity_read_ns != 0 && now - engine->capacity_read_ns < KEEP_NS)
        return;
    engine->capacity_read_ns = now;
    engine->capacity = (struct engine_capacity){memory_read(), UINT64_MAX, UINT64_MAX};
    if (fstatvfs(engine->options.directory, &disk) == 0) {
        engine->capacity.disk_bytes = (uint64_t)disk.f_blocks * disk.f_frsize;
        engine->capacity.disk_available = (uint64_t)disk.f_bavail * disk.f_frsize;
    }
}

static int room(const char *what, const char *remedy, uint64_t available, uint64_t headroom,
                struct error *err)
{
    if (available >= headroom)
        return 0;
    return error_set(err, "capacity", 0,
                     "this host has less %s left than is to stay free; %s, or ask again later",
                     what, remedy);
}

int capacity_check(struct engine *engine, struct error *err)
{
    if (!fd_are_left(FDS_HEADROOM))
        return error_set(err, "capacity", EMFILE,
                         "less than %d files can still be opened by the engine; stop or delete "
                         "sandboxes, or allow it more (LimitNOFILE=)",
                         FDS_HEADROOM);
    capacity_read(engine);
    if (room("memory", "stop or delete sandboxes", engine->capacity.memory_available,
             engine->options.headroom_memory_bytes, err) != 0)
        return -1;
    return room("disk", "delete sandboxes, or make room below the data directory",
                engine->capacity.disk_available, engine->options.headroom_disk_bytes, err);
}

/* ---- room for stops and deletes on a full disk ---- */

void capacity_keep_room(struct engine *engine)
{
    struct error err;

    if (store_keep_room(engine->store, &err) < 0)
        log_say(
            LOG_LEVEL_WARN, "no_reserve",
            "there is no room for %u MiB that keep stops and deletes possible on a full disk: %s",
            STORE_ROOM >> 20, err.text);
}

void capacity_begin(struct engine *engine)
{
    if (capacity_disk_is_low(engine))
        log_say(LOG_LEVEL_WARN, "disk_low",
                "the host's disk has %llu MiB left below the data directory, and %llu are to stay "
                "free (headroom_disk), so no sandbox is made or started; delete sandboxes, or make "
                "room there",
                (unsigned long long)engine->capacity.disk_available >> 20,
                (unsigned long long)engine->options.headroom_disk_bytes >> 20);
    /* Earlier versions kept their room in a file. */
    (void)unlinkat(engine->options.directory, "reserve", 0);
    capacity_keep_room(engine);
}

/* ---- the engine's own memory ---- */

uint64_t engine_memory_limit(void)
{
    struct rlimit data;

    if (getrlimit(RLIMIT_DATA, &data) < 0 || data.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return data.rlim_cur / 2;
}

uint64_t engine_memory_kept(void)
{
    uint64_t quarter = engine_memory_limit() / 4;

    return quarter < KEPT_MOST ? quarter : KEPT_MOST;
}

/* Without pages of files, which cost nothing. */
static uint64_t memory_used(void)
{
    unsigned long long size, resident, shared;
    char text[256];

    if (fd_read_file(AT_FDCWD, "/proc/self/statm", text, sizeof(text)) < 0 ||
        sscanf(text, "%llu %llu %llu", &size, &resident, &shared) != 3) // NOLINT(cert-err34-c)
        return 0;
    return (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

int engine_memory_check(struct engine *engine, struct error *err)
{
    uint64_t now = clock_monotonic_ns(), limit = engine_memory_limit();

    if (engine->memory_read_ns == 0 || now - engine->memory_read_ns >= KEEP_NS) {
        engine->memory_read_ns = now;
        engine->memory_used = memory_used();
        /* The allocator keeps what is freed, so that it would be refused for ever. */
        if (engine->memory_used >= limit && now - engine->memory_trimmed_ns >= TRIM_NS) {
            engine->memory_trimmed_ns = now;
            (void)malloc_trim(0);
            engine->memory_used = memory_used();
        }
    }
    if (engine->memory_used < limit)
        return 0;
    return error_set(err, "capacity", 0,
                     "the engine uses as much memory as it may (engine_memory), and begins nothing "
                     "new; close connections, or ask again later");
}

bool capacity_disk_is_low(struct engine *engine)
{
    capacity_read(engine);
    return engine->capacity.disk_available < engine->options.headroom_disk_bytes;
}

struct figure {
    char text[24];
};

static struct figure figure(uint64_t bytes)
{
    struct figure figure = {"?"};

    if (bytes != UINT64_MAX)
        (void)snprintf(figure.text, sizeof(figure.text), "%llu", (unsigned long long)(bytes >> 20));
    return figure;
}

void engine_capacity_figures(struct engine *engine, char text[ENGINE_FIGURES_MAX])
{
    capacity_read(engine);
    (void)snprintf(
        text, ENGINE_FIGURES_MAX,
        "the host has %s MiB of memory left, %s are to stay free; %s MiB of disk, %s are "
        "to stay free; disks are promised %s MiB of %s; the engine has %zu sandboxes of %zu, and uses %s MiB of %s",
        figure(engine->capacity.memory_available).text,
        figure(engine->options.headroom_memory_bytes).text,
        figure(engine->capacity.disk_available).text,
        figure(engine->options.headroom_disk_bytes).text, figure(disk_room_promised(engine)).text,
        figure(disk_room_most(engine)).text, engine->count, engine->options.sandboxes,
        figure(memory_used()).text, figure(engine_memory_limit()).text);
}

void capacity_look(struct engine *engine, struct engine_capacity *capacity)
{
    capacity_read(engine);
    *capacity = engine->capacity;
}
