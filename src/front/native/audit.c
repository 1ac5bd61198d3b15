/* The audit files: see audit.h. The loop fills one buffer while the thread writes the other; between two
 * writes they change places, so nothing is shared while both are at work. */
#include "front/native/audit.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (1U << 20)
#define FLUSH_MS 100
#define NAME_SIZE 40

struct part {
    char *data;
    size_t used;
};

struct audit {
    struct audit_options options;
    uv_timer_t timer;
    uv_work_t work;
    struct part gathered, leaving;
    bool is_writing, is_closing;
    uint64_t lost;        /* lines: of the loop */
    uint64_t lost_told;   /* of these in the file */
    uint64_t said_second; /* of the last word about it in the log */
    /* Of the thread, while is_writing. */
    int fd;
    uint64_t size, begun_ms;
    unsigned failed_lines;
    int failed_errno;
};

/* ---- files; in the thread, or while there is none ---- */

static uint64_t birth_ms(int fd)
{
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &st) != 0 || (st.stx_mask & STATX_BTIME) == 0)
        return clock_wall_ms();
    return (uint64_t)st.stx_btime.tv_sec * 1000 + st.stx_btime.tv_nsec / 1000000;
}

/* A line that a crash cut off stays a line of its own. */
static int end_line(int fd, off_t size)
{
    char last = '\n';

    if (size > 0 && pread(fd, &last, 1, size - 1) != 1)
        return -1;
    return last == '\n' ? 0 : fd_write_full(fd, "\n", 1);
}

static int file_open(struct audit *audit)
{
    _cleanup_close_ int fd = openat(audit->options.directory, AUDIT_FILE,
                                    O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0 || end_line(fd, st.st_size) != 0)
        return -1;
    audit->size = (uint64_t)st.st_size;
    audit->begun_ms = birth_ms(fd);
    audit->fd = fd_take(&fd);
    return 0;
}

static void name_of(unsigned index, char name[NAME_SIZE])
{
    if (index == 0)
        (void)snprintf(name, NAME_SIZE, AUDIT_FILE);
    else
        (void)snprintf(name, NAME_SIZE, AUDIT_FILE ".%u", index);
}

/* The oldest first, so that a crash in between loses none but that. */
static void rotate(struct audit *audit)
{
    int dir = audit->options.directory;
    char from[NAME_SIZE], to[NAME_SIZE];

    fd_close(&audit->fd);
    if (audit->options.keep == 1)
        (void)unlinkat(dir, AUDIT_FILE, 0);
    for (unsigned index = audit->options.keep - 1; index > 0; index--) {
        name_of(index - 1, from);
        name_of(index, to);
        (void)renameat(dir, from, dir, to);
    }
}

static bool is_over(const struct audit *audit, size_t more)
{
    if (audit->size == 0)
        return false;
    if (audit->size + more > audit->options.file_bytes)
        return true;
    return audit->options.age_ms > 0 && clock_wall_ms() > audit->begun_ms + audit->options.age_ms;
}

static size_t line_size(const char *data, size_t size)
{
    const char *end = memchr(data, '\n', size);

    return end != NULL ? (size_t)(end - data) + 1 : size;
}

/* How many whole lines fit into what the file has left, the first in any case. */
static size_t fitting(const struct audit *audit, const char *data, size_t size)
{
    size_t fits = line_size(data, size);

    while (fits < size) {
        size_t next = line_size(data + fits, size - fits);

        if (audit->size + fits + next > audit->options.file_bytes)
            break;
        fits += next;
    }
    return fits;
}

/* Into the file, or the next one where the first line does not fit. Returns how much is written, 0: it
 * cannot be. */
static size_t write_some(struct audit *audit, const char *data, size_t size)
{
    size_t fits;

    if (audit->fd < 0 && file_open(audit) != 0)
        return 0;
    if (is_over(audit, line_size(data, size))) {
        rotate(audit);
        if (file_open(audit) != 0)
            return 0;
    }
    fits = fitting(audit, data, size);
    if (fd_write_full(audit->fd, data, fits) != 0)
        return 0;
    audit->size += fits;
    return fits;
}

static unsigned count_lines(const char *data, size_t size)
{
    unsigned count = 0;

    for (size_t at = 0; at < size; at += line_size(data + at, size - at))
        count++;
    return count;
}

static void write_part(struct audit *audit)
{
    struct part *part = &audit->leaving;
    size_t done = 0, some;

    while (done < part->used) {
        some = write_some(audit, part->data + done, part->used - done);
        if (some == 0) {
            audit->failed_errno = errno;
            audit->failed_lines = count_lines(part->data + done, part->used - done);
            /* Opened anew, so that what was written of a line is ended. */
            fd_close(&audit->fd);
            break;
        }
        done += some;
    }
    part->used = 0;
}

/* ---- the loop ---- */

static void flush(struct audit *audit);

static void on_timer(uv_timer_t *timer)
{
    flush(timer->data);
}

/* Where all go wrong there would be as many words in the log as lines are lost. */
static bool may_say(struct audit *audit)
{
    uint64_t second = clock_monotonic_ns() / 1000000000U + 1;

    if (second == audit->said_second)
        return false;
    audit->said_second = second;
    return true;
}

static void note_failure(struct audit *audit)
{
    if (audit->failed_lines == 0)
        return;
    audit->lost += audit->failed_lines;
    audit->failed_lines = 0;
    if (may_say(audit))
        log_say(
            LOG_LEVEL_WARN, "audit_failed",
            "the audit log cannot be written: %s; %llu of its lines are lost so far; see to the "
            "disk of the data directory",
            strerror(audit->failed_errno), // NOLINT(concurrency-mt-unsafe)
            (unsigned long long)audit->lost);
}

static void write_work(uv_work_t *work)
{
    write_part(work->data);
}

static void written(uv_work_t *work, int status)
{
    struct audit *audit = work->data;

    (void)status;
    audit->is_writing = false;
    note_failure(audit);
    if (audit->gathered.used > 0)
        flush(audit);
}

static void swap(struct audit *audit)
{
    struct part part = audit->gathered;

    audit->gathered = audit->leaving;
    audit->leaving = part;
}

static void flush(struct audit *audit)
{
    if (audit->is_writing || audit->gathered.used == 0)
        return;
    swap(audit);
    audit->is_writing = true;
    audit->work.data = audit;
    if (uv_queue_work(audit->options.loop, &audit->work, write_work, written) != 0) {
        audit->is_writing = false;
        swap(audit); /* what was to leave goes with the next */
    }
}

static bool add(struct audit *audit, const char *line, size_t size)
{
    struct part *part = &audit->gathered;

    if (size + 1 > BUFFER_BYTES - part->used)
        return false;
    memcpy(part->data + part->used, line, size);
    part->data[part->used + size] = '\n';
    part->used += size + 1;
    return true;
}

/* That some are missing stands where they would have stood. */
static void tell_lost(struct audit *audit)
{
    char line[128], time[CLOCK_TEXT_SIZE];
    int size;

    if (audit->lost == audit->lost_told)
        return;
    clock_format(clock_wall_ms(), time);
    size = snprintf(line, sizeof(line), "{\"time\":\"%s\",\"lost\":%llu}", time,
                    (unsigned long long)(audit->lost - audit->lost_told));
    if (add(audit, line, (size_t)size))
        audit->lost_told = audit->lost;
}

void audit_add(struct audit *audit, const char *line, size_t size)
{
    tell_lost(audit);
    if (!add(audit, line, size)) {
        audit->lost++;
        if (may_say(audit))
            log_say(LOG_LEVEL_WARN, "audit_failed",
                    "the disk takes the audit log too slowly; %llu lines are lost so far",
                    (unsigned long long)audit->lost);
        return;
    }
    if (audit->gathered.used > BUFFER_BYTES / 2)
        flush(audit);
    else if (!audit->is_closing && !uv_is_active((uv_handle_t *)&audit->timer))
        (void)uv_timer_start(&audit->timer, on_timer, FLUSH_MS, 0);
}

uint64_t audit_lost(const struct audit *audit)
{
    return audit->lost;
}

/* ---- its life ---- */

/* Files beyond `keep`, of a time when more were kept: nothing would ever move them on. */
static void remove_beyond(const struct audit_options *options)
{
    int fd = openat(options->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    unsigned index;
    char name[NAME_SIZE];

    if (dir == NULL) {
        fd_close(&fd);
        return;
    }
    while ((entry = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe)
        if (strncmp(entry->d_name, AUDIT_FILE ".", sizeof(AUDIT_FILE)) != 0)
            continue;
        index = (unsigned)strtoul(entry->d_name + sizeof(AUDIT_FILE), NULL, 10);
        name_of(index, name);
        if (index >= options->keep && strcmp(name, entry->d_name) == 0)
            (void)unlinkat(options->directory, name, 0);
    }
    (void)closedir(dir);
}

int audit_open(const struct audit_options *options, struct audit **out, struct error *err)
{
    struct audit *audit = calloc(1, sizeof(*audit));

    if (audit != NULL) {
        audit->options = *options;
        audit->fd = -1;
        audit->gathered.data = malloc(BUFFER_BYTES);
        audit->leaving.data = malloc(BUFFER_BYTES);
    }
    if (audit == NULL || audit->gathered.data == NULL || audit->leaving.data == NULL) {
        int directory = options->directory;

        if (audit != NULL) {
            free(audit->gathered.data);
            free(audit->leaving.data);
        }
        free(audit);
        fd_close(&directory);
        return error_set(err, "no_memory", ENOMEM, "there is no memory for the audit log");
    }
    remove_beyond(options);
    (void)uv_timer_init(options->loop, &audit->timer);
    audit->timer.data = audit;
    *out = audit;
    return 0;
}

void audit_close(struct audit *audit)
{
    if (audit == NULL)
        return;
    audit->is_closing = true;
    flush(audit);
    uv_close((uv_handle_t *)&audit->timer, NULL);
}

void audit_free(struct audit *audit)
{
    if (audit == NULL)
        return;
    if (audit->gathered.used > 0) {
        swap(audit);
        write_part(audit);
        note_failure(audit);
    }
    fd_close(&audit->fd);
    fd_close(&audit->options.directory);
    free(audit->gathered.data);
    free(audit->leaving.data);
    free(audit);
}
