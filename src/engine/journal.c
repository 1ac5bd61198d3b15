/* The journal of processes: see journal.h. */
#include "engine/journal.h"

#include "base/fd.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char name[] = "journal";
static const char name_new[] = "journal.new";

/* Below this nothing is gained by writing it anew. */
#define STALE_BYTES (1U << 20)

static const char *const states[] = {
    [PROC_EXITED] = "exited", [PROC_FAILED] = "failed", [PROC_LOST] = "lost"};

/* ---- texts ---- */

void journal_text_clean(char *to, size_t size, const char *from, bool one_line)
{
    const unsigned char *at = (const unsigned char *)from;
    size_t used = 0;

    while (*at != '\0') {
        size_t bad, length = utf8_length(at, strnlen((const char *)at, 4), &bad);

        if (used + (length > 0 ? length : 1) >= size)
            break;
        if (length == 0)
            to[used++] = '?';
        else if (one_line && (*at < 0x20 || *at == 0x7F))
            to[used++] = ' ';
        else {
            memcpy(to + used, at, length);
            used += length;
        }
        at += length > 0 ? length : 1;
    }
    to[used] = '\0';
}

/* ---- printing ---- */

struct printer {
    char *text;
    size_t used;
    bool overflows;
};

static void add_bytes(struct printer *printer, const char *bytes, size_t size)
{
    if (printer->overflows || size >= JOURNAL_LINE_MAX - printer->used) {
        printer->overflows = true;
        return;
    }
    memcpy(printer->text + printer->used, bytes, size);
    printer->used += size;
}

static void add(struct printer *printer, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void add(struct printer *printer, const char *fmt, ...)
{
    char part[128]; /* of names and numbers */
    va_list args;
    int length;

    va_start(args, fmt);
    length = vsnprintf(part, sizeof(part), fmt, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof(part))
        printer->overflows = true;
    else
        add_bytes(printer, part, (size_t)length);
}

static void add_text(struct printer *printer, const char *key, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    if (text == NULL)
        return;
    add(printer, ",\"%s\":\"", key);
    while (*at != '\0') {
        size_t bad, length = utf8_length(at, strnlen((const char *)at, 4), &bad);

        if (length == 0)
            add_bytes(printer, "?", 1);
        else if (*at < 0x20 || *at == 0x7F)
            add(printer, "\\u%04x", *at);
        else {
            if (*at == '"' || *at == '\\')
                add_bytes(printer, "\\", 1);
            add_bytes(printer, (const char *)at, length);
        }
        at += length > 0 ? length : 1;
    }
    add_bytes(printer, "\"", 1);
}

static void add_number(struct printer *printer, const char *key, uint64_t value)
{
    if (value != 0)
        add(printer, ",\"%s\":%llu", key, (unsigned long long)value);
}

static void add_flag(struct printer *printer, const char *key, bool is_set)
{
    if (is_set)
        add(printer, ",\"%s\":true", key);
}

static void print_start(struct printer *printer, const struct journal_line *line)
{
    add(printer, "{\"start\":%u", line->number);
    add_number(printer, "at", line->at_ms);
    add_number(printer, "until", line->until_ms);
    add_number(printer, "log", line->log_bytes);
    add_flag(printer, "stdin", line->has_stdin);
    add_number(printer, "rows", line->rows);
    add_number(printer, "columns", line->columns);
    add_text(printer, "tag", line->tag);
    add_text(printer, "command", line->command);
}

static void print_end(struct printer *printer, const struct journal_line *line)
{
    add(printer, "{\"end\":%u", line->number);
    add_text(printer, "state", states[line->state]);
    add_number(printer, "at", line->at_ms);
    add_number(printer, "pid", (uint64_t)line->pid);
    add_number(printer, "exit", (uint64_t)line->exit_code);
    add_number(printer, "signal", (uint64_t)line->signal);
    add_number(printer, "errno", (uint64_t)line->errnum);
    add_flag(printer, "timed_out", line->timed_out);
    add_flag(printer, "oom_killed", line->oom_killed);
    add_number(printer, "cpu_ns", line->cpu_ns);
    add_text(printer, "code", line->code);
    add_text(printer, "text", line->text);
}

size_t journal_line_print(const struct journal_line *line, char text[JOURNAL_LINE_MAX])
{
    struct printer printer = {.text = text};

    switch (line->kind) {
    case JOURNAL_START:
        print_start(&printer, line);
        break;
    case JOURNAL_END:
        print_end(&printer, line);
        break;
    case JOURNAL_TIMEOUT:
        add(&printer, "{\"timeout\":%u", line->number);
        break;
    case JOURNAL_FORGET:
        add(&printer, "{\"forget\":%u", line->number);
        break;
    case JOURNAL_NEXT:
        add(&printer, "{\"next\":%u", line->number);
        break;
    }
    add_bytes(&printer, "}\n", 2);
    return printer.overflows ? 0 : printer.used;
}

/* ---- parsing ---- */

struct reader {
    const json_t *object;
    bool is_wrong;
};

static uint64_t get_number(struct reader *reader, const char *key, uint64_t most)
{
    const json_t *value = json_object_get(reader->object, key);

    if (value == NULL)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > most) {
        reader->is_wrong = true;
        return 0;
    }
    return (uint64_t)json_integer_value(value);
}

static bool get_flag(struct reader *reader, const char *key)
{
    const json_t *value = json_object_get(reader->object, key);

    if (value != NULL && !json_is_boolean(value))
        reader->is_wrong = true;
    return json_is_true(value);
}

static const char *get_text(struct reader *reader, const char *key, size_t most)
{
    const json_t *value = json_object_get(reader->object, key);

    if (value == NULL)
        return NULL;
    if (!json_is_string(value) || json_string_length(value) > most) {
        reader->is_wrong = true;
        return NULL;
    }
    return json_string_value(value);
}

static void get_state(struct reader *reader, struct journal_line *line)
{
    const char *state = get_text(reader, "state", 16);

    for (size_t i = 0; state != NULL && i < sizeof(states) / sizeof(states[0]); i++)
        if (states[i] != NULL && strcmp(states[i], state) == 0) {
            line->state = (enum proc_state)i;
            return;
        }
    reader->is_wrong = true;
}

static void get_rest(struct reader *reader, struct journal_line *line)
{
    line->at_ms = get_number(reader, "at", INT64_MAX);
    if (line->kind == JOURNAL_START) {
        line->until_ms = get_number(reader, "until", INT64_MAX);
        line->log_bytes = get_number(reader, "log", INT64_MAX);
        line->has_stdin = get_flag(reader, "stdin");
        line->rows = (uint16_t)get_number(reader, "rows", UINT16_MAX);
        line->columns = (uint16_t)get_number(reader, "columns", UINT16_MAX);
        line->tag = get_text(reader, "tag", PROCS_TAG_MAX);
        line->command = get_text(reader, "command", JOURNAL_COMMAND_MAX);
    } else if (line->kind == JOURNAL_END) {
        get_state(reader, line);
        line->pid = (pid_t)get_number(reader, "pid", INT32_MAX);
        line->exit_code = (int)get_number(reader, "exit", 255);
        line->signal = (int)get_number(reader, "signal", 127);
        line->errnum = (int)get_number(reader, "errno", 4095);
        line->timed_out = get_flag(reader, "timed_out");
        line->oom_killed = get_flag(reader, "oom_killed");
        line->cpu_ns = get_number(reader, "cpu_ns", INT64_MAX);
        line->code = get_text(reader, "code", ERROR_CODE_MAX - 1);
        line->text = get_text(reader, "text", ERROR_TEXT_MAX - 1);
    }
}

bool journal_line_parse(const char *text, size_t size, struct journal_line *line, void **hold)
{
    static const char *const kinds[] = {
        [JOURNAL_START] = "start",   [JOURNAL_END] = "end",   [JOURNAL_TIMEOUT] = "timeout",
        [JOURNAL_FORGET] = "forget", [JOURNAL_NEXT] = "next",
    };
    json_t *object = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    struct reader reader = {.object = object};

    *hold = NULL;
    memset(line, 0, sizeof(*line));
    for (size_t i = 0; json_is_object(object) && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (json_object_get(object, kinds[i]) == NULL)
            continue;
        line->kind = (enum journal_kind)i;
        line->number = (uint32_t)get_number(&reader, kinds[i], JOURNAL_NUMBER_MAX);
        break;
    }
    if (line->number > 0)
        get_rest(&reader, line);
    if (line->number == 0 || reader.is_wrong) {
        json_decref(object);
        return false;
    }
    *hold = object;
    return true;
}

void journal_line_free(void *hold)
{
    json_decref(hold);
}

/* ---- the file ---- */

static void take_line(const char *text, size_t size,
                      void (*take)(void *arg, const struct journal_line *line), void *arg)
{
    struct journal_line line;
    void *hold;

    if (!journal_line_parse(text, size, &line, &hold))
        return;
    take(arg, &line);
    journal_line_free(hold);
}

/* All whole lines; *whole gets how much of the file they are. A line that is too long is none. */
static int read_lines(int fd, void (*take)(void *arg, const struct journal_line *line), void *arg,
                      uint64_t *whole)
{
    const size_t room = (size_t)2 * JOURNAL_LINE_MAX;
    _cleanup_free_ char *text = malloc(room);
    uint64_t at = 0;
    size_t used = 0;
    bool is_long = false;
    ssize_t n;

    *whole = 0;
    if (text == NULL)
        return -1;
    while ((n = pread(fd, text + used, room - used, (off_t)(at + used))) != 0) {
        char *from = text, *end;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        used += (size_t)n;
        while ((end = memchr(from, '\n', used - (size_t)(from - text))) != NULL) {
            if (!is_long && end - from < JOURNAL_LINE_MAX)
                take_line(from, (size_t)(end - from), take, arg);
            is_long = false;
            from = end + 1;
            *whole = at + (uint64_t)(from - text);
        }
        if (from == text && used == room) {
            is_long = true;
            from = text + used;
        }
        used -= (size_t)(from - text);
        at += (uint64_t)(from - text);
        memmove(text, from, used);
    }
    return 0;
}

int journal_open(struct journal *journal, int directory,
                 void (*take)(void *arg, const struct journal_line *line), void *arg,
                 struct error *err)
{
    struct stat st;

    *journal = (struct journal){.directory = directory, .fd = -1};
    (void)unlinkat(directory, name_new, 0);
    journal->fd = openat(directory, name, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    if (journal->fd < 0 && errno == ENOENT)
        return 0;
    if (journal->fd < 0 || fstat(journal->fd, &st) < 0 ||
        read_lines(journal->fd, take, arg, &journal->size) < 0)
        goto failed;
    /* Else the next line would be glued to it. */
    if (journal->size < (uint64_t)st.st_size && ftruncate(journal->fd, (off_t)journal->size) < 0)
        goto failed;
    return 0;
failed:
    (void)error_set(err, "journal_failed", errno,
                    "cannot read the journal of the sandbox's processes; look at the disk");
    fd_close(&journal->fd);
    return -1;
}

void journal_close(struct journal *journal)
{
    fd_close(&journal->fd);
}

static int make(struct journal *journal)
{
    if (journal->fd < 0)
        journal->fd = openat(journal->directory, name,
                             O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return journal->fd < 0 ? -1 : 0;
}

int journal_add(struct journal *journal, const struct journal_line *line, struct error *err)
{
    char text[JOURNAL_LINE_MAX];
    size_t size = journal_line_print(line, text);
    ssize_t n;

    if (size == 0)
        return error_set(err, "capacity", EMSGSIZE, "a line of the journal does not fit");
    if (make(journal) < 0)
        return error_set(err, "capacity", errno,
                         "cannot make the journal of the sandbox's processes; free some disk");
    do
        n = write(journal->fd, text, size);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)size) {
        journal->size += size;
        return 0;
    }
    if (n >= 0) {
        (void)!ftruncate(journal->fd, (off_t)journal->size);
        errno = ENOSPC;
    }
    return error_set(err, "capacity", errno,
                     "cannot write the journal of the sandbox's processes; free some disk");
}

bool journal_is_stale(const struct journal *journal)
{
    return journal->size > STALE_BYTES && journal->size / 2 > journal->rewritten;
}

static int write_lines(int fd, bool (*next)(void *arg, struct journal_line *line), void *arg,
                       uint64_t *size)
{
    enum { ROOM = 16 * JOURNAL_LINE_MAX };
    _cleanup_free_ char *text = malloc(ROOM);
    struct journal_line line = {0};
    size_t used = 0;

    *size = 0;
    if (text == NULL)
        return -1;
    while (next(arg, &line)) {
        used += journal_line_print(&line, text + used);
        if (used > ROOM - JOURNAL_LINE_MAX) {
            if (fd_write_full(fd, text, used) < 0)
                return -1;
            *size += used;
            used = 0;
        }
        line = (struct journal_line){0};
    }
    *size += used;
    return fd_write_full(fd, text, used);
}

int journal_rewrite(struct journal *journal, bool (*next)(void *arg, struct journal_line *line),
                    void *arg, struct error *err)
{
    _cleanup_close_ int fd = openat(journal->directory, name_new,
                                    O_RDWR | O_APPEND | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                                    0600);
    uint64_t size;

    if (fd < 0 || write_lines(fd, next, arg, &size) < 0 ||
        renameat(journal->directory, name_new, journal->directory, name) < 0) {
        (void)error_set(err, "capacity", errno,
                        "cannot write the journal of the sandbox's processes anew; free some disk");
        (void)unlinkat(journal->directory, name_new, 0);
        journal->rewritten = journal->size; /* not again for each line */
        return -1;
    }
    fd_close(&journal->fd);
    journal->fd = fd_take(&fd);
    journal->size = journal->rewritten = size;
    return 0;
}

void journal_remove(struct journal *journal)
{
    fd_close(&journal->fd);
    (void)unlinkat(journal->directory, name, 0);
    (void)unlinkat(journal->directory, name_new, 0);
}
