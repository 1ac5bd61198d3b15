/* cove-grep: lines that match a pattern, in files and below directories. See tool.h.
 *
 * A program of its own, with glibc and PCRE2, so that cove-tool stays small and starts fast. It reads files
 * in pieces into one buffer: a file that shrinks under a mapping would kill it. Files with a zero byte at
 * their beginning are no text and are passed over. */
#include "base/clock.h"
#include "base/glob.h"
#include "box/tool/parts.h"
#include "box/tool/pattern.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define BUFFER_FIRST (256U << 10)
#define BUFFER_MAX (16U << 20) /* a line that is longer is looked through in parts */
#define BINARY_LOOK 8192
#define LINE_SENT_MAX 16384
#define CONTEXT_MAX 1000
#define LINES_BETWEEN_LOOKS 4096
#define LITERAL_LEAST 3

struct grep {
    struct tool *tool;
    const struct options *options;
    struct pattern *pattern;
    const char *literal;
    size_t literal_size, rare; /* the byte of it that is least common */
    bool stays_in_line;
    uint64_t before, after, until_ns;
    unsigned operand;
    unsigned lines; /* since the clock was looked at */
    bool is_over;   /* the limit, or the time */
    char *data;
    size_t capacity;
};

/* A file, of which `data` is the part from `base` on. */
struct part {
    const char *path;
    uint64_t base;
    size_t size;
    bool is_last;  /* nothing follows */
    size_t at;     /* the beginning of the next line */
    size_t told;   /* up to here lines were told */
    uint64_t line; /* number of the line at `counted` */
    size_t counted;
    uint64_t after_left;
    uint64_t matches;
    bool is_over;
};

/* ---- its time ----
 *
 * PCRE2 bounds the steps from each byte on, and one step may go over all that is left of a line: on a long one a
 * match takes minutes. So the time ends a match wherever it is. */

static sigjmp_buf too_late;
static volatile sig_atomic_t is_matching, is_due;

static void on_time(int number)
{
    (void)number;
    is_due = 1;
    if (is_matching)
        siglongjmp(too_late, 1);
}

static void start_timer(uint64_t ms)
{
    struct itimerval timer = {.it_value = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000) * 1000}};
    struct sigaction action = {.sa_handler = on_time, .sa_flags = SA_RESTART};
    sigset_t alarm;

    (void)sigemptyset(&alarm);
    (void)sigaddset(&alarm, SIGALRM);
    (void)sigaction(SIGALRM, &action, NULL);
    (void)sigprocmask(SIG_UNBLOCK, &alarm, NULL);
    (void)setitimer(ITIMER_REAL, &timer, NULL);
}

/* As pattern_match(); does not return once the time is over. */
static int match_in_time(const struct grep *grep, const char *subject, size_t size, size_t start,
                         size_t *from, size_t *to, struct error *err)
{
    int got;

    is_matching = 1;
    if (is_due)
        siglongjmp(too_late, 1);
    got = pattern_match(grep->pattern, subject, size, start, from, to, err);
    is_matching = 0;
    return got;
}

/* ---- finding text ---- */

/* How common a byte is in text and code, roughly. */
static unsigned commonness(unsigned char c)
{
    static const char order[] = "etaoinsrlhdcumpfgybwvkxjqz";
    const char *at = c == '\0' ? NULL : strchr(order, c);

    if (c == ' ' || c == '\n')
        return 100;
    if (at != NULL)
        return 90 - 2 * (unsigned)(at - order);
    return c >= '0' && c <= '9' ? 40 : c >= 'A' && c <= 'Z' ? 30 : c < 0x80 ? 35 : 20;
}

static const char *find_literal(const struct grep *grep, const char *data, size_t size)
{
    const char *at = data + grep->rare, *end;

    if (size < grep->literal_size)
        return NULL;
    end = data + size - grep->literal_size + grep->rare + 1;
    while ((at = memchr(at, (unsigned char)grep->literal[grep->rare], (size_t)(end - at))) !=
           NULL) {
        if (memcmp(at - grep->rare, grep->literal, grep->literal_size) == 0)
            return at - grep->rare;
        if (++at == end)
            return NULL;
    }
    return NULL;
}

/* Where from `from` on the next match may be; `to`: nowhere. */
static size_t find_next(struct grep *grep, size_t from, size_t to)
{
    const char *found;
    struct error ignored;
    size_t begin, end;
    int got;

    if (grep->literal != NULL) {
        found = find_literal(grep, grep->data + from, to - from);
        return found == NULL ? to : (size_t)(found - grep->data);
    }
    got = match_in_time(grep, grep->data + from, to - from, 0, &begin, &end, &ignored);
    /* What takes too many steps for all lines need not for one. */
    return got == 0 ? to : got < 0 ? from : from + begin;
}

static void count_lines(const struct grep *grep, struct part *part, size_t to)
{
    const char *at = grep->data + part->counted, *end = grep->data + to;

    while (at < end && (at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        part->line++;
        at++;
    }
    part->counted = to;
}

/* Units of UTF-16 that these bytes of UTF-8 are. */
static uint32_t units_of(const char *text, size_t size)
{
    uint32_t units = 0;

    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];

        units += (uint32_t)((c & 0xc0) != 0x80) + (c >= 0xf0);
    }
    return units;
}

/* ---- telling ---- */

struct hit {
    size_t begin, end;     /* the lines, without the last '\n' */
    size_t column, length; /* of the match in them */
    bool is_context;
};

static void tell(const struct grep *grep, struct part *part, const struct hit *hit)
{
    struct say *say = &grep->tool->say;
    const char *line = grep->data + hit->begin;
    size_t size = hit->end - hit->begin, path = strnlen(part->path, TOOL_PATH_MAX - 1);
    struct tool_match match = {.offset = part->base + hit->begin,
                               .column = (uint32_t)hit->column,
                               .length = (uint32_t)hit->length,
                               .is_context = hit->is_context};

    count_lines(grep, part, hit->begin);
    match.line = part->line;
    if (!hit->is_context) {
        match.column16 = units_of(line, hit->column);
        match.length16 = units_of(line + hit->column, hit->length);
    }
    if (size > LINE_SENT_MAX) {
        size = LINE_SENT_MAX;
        match.is_cut = 1;
    }
    say_begin(say, TOOL_MATCH, sizeof(match) + path + 1 + size);
    say_bytes(say, &match, sizeof(match));
    say_bytes(say, part->path, path);
    say_bytes(say, "", 1);
    say_bytes(say, line, size);
    part->told = hit->end + 1;
}

static size_t line_end(const struct grep *grep, const struct part *part, size_t from)
{
    const char *end = memchr(grep->data + from, '\n', part->size - from);

    return end == NULL ? part->size : (size_t)(end - grep->data);
}

/* Where the line begins that `at` is in, not before `least`. */
static size_t line_begin(const struct grep *grep, size_t at, size_t least)
{
    const char *begin = memrchr(grep->data + least, '\n', at - least);

    return begin == NULL ? least : (size_t)(begin - grep->data) + 1;
}

/* Lines from `from` on that stand behind a match, up to `to`. */
static void tell_after(const struct grep *grep, struct part *part, size_t from, size_t to)
{
    while (part->after_left > 0 && from < to) {
        size_t end = line_end(grep, part, from);

        tell(grep, part, &(struct hit){.begin = from, .end = end, .is_context = true});
        part->after_left--;
        from = end + 1;
    }
}

static void tell_before(const struct grep *grep, struct part *part, size_t to)
{
    size_t begin = to;

    for (uint64_t i = 0; i < grep->before && begin > part->told; i++)
        begin = line_begin(grep, begin - 1, part->told);
    while (begin < to) {
        size_t end = line_end(grep, part, begin);

        tell(grep, part, &(struct hit){.begin = begin, .end = end, .is_context = true});
        begin = end + 1;
    }
}

/* ---- searching ---- */

static bool is_late(struct grep *grep)
{
    grep->lines = 0;
    say_flush_late(&grep->tool->say);
    if (grep->until_ns != 0 && clock_monotonic_ns() > grep->until_ns)
        grep->is_over = true;
    return grep->is_over;
}

/* A match is counted and told; false: that was the last that is wanted. */
static bool take(struct grep *grep, struct part *part, const struct hit *hit)
{
    struct say *say = &grep->tool->say;

    if (grep->options->limit != TOOL_SAID_NOT && say->count >= grep->options->limit) {
        say->is_truncated = true;
        grep->is_over = true;
        return false;
    }
    tell_before(grep, part, hit->begin);
    tell(grep, part, hit);
    say->count++;
    part->after_left = grep->after;
    return true;
}

/* The line from `begin` to `end`; -1 and `err`: the pattern takes too much. */
static int try_line(struct grep *grep, struct part *part, size_t begin, size_t end,
                    struct error *err)
{
    size_t from, to;
    int got;

    /* What a match stands behind, another file may have more of. */
    if (part->matches >= grep->options->per_file)
        return 0;
    got = match_in_time(grep, grep->data + begin, end - begin, 0, &from, &to, err);
    if (got <= 0)
        return got;
    part->matches++;
    return take(grep, part,
                &(struct hit){.begin = begin, .end = end, .column = from, .length = to - from})
               ? 1
               : 0;
}

/* All whole lines of the part. */
static int search_lines(struct grep *grep, struct part *part, struct error *err)
{
    while (part->at < part->size && !grep->is_over) {
        size_t begin = part->at, end;
        int got;

        if (part->matches >= grep->options->per_file && part->after_left == 0) {
            part->is_over = true;
            return 0;
        }
        if (grep->literal != NULL || grep->stays_in_line) {
            size_t to = find_next(grep, begin, part->size);

            begin = line_begin(grep, to, begin);
            tell_after(grep, part, part->at, begin);
            part->at = begin;
            if (begin == part->size || (to == part->size && !part->is_last))
                return 0;
        }
        end = line_end(grep, part, begin);
        if (end == part->size && !part->is_last)
            return 0;
        got = try_line(grep, part, begin, end, err);
        if (got < 0)
            return -1;
        if (got == 0)
            tell_after(grep, part, begin, end);
        part->at = end + 1;
        if (++grep->lines == LINES_BETWEEN_LOOKS && is_late(grep))
            return 0;
    }
    return 0;
}

/* The whole of a file at once: a match may go over lines. */
static int search_whole(struct grep *grep, struct part *part, struct error *err)
{
    size_t start = 0;

    while (start <= part->size && !grep->is_over && part->matches < grep->options->per_file) {
        size_t from, to, begin, end;
        int got = match_in_time(grep, grep->data, part->size, start, &from, &to, err);

        if (got < 0)
            return -1;
        if (got == 0)
            break;
        begin = line_begin(grep, from, 0);
        end = line_end(grep, part, to > from ? to - 1 : to);
        if (begin < part->told && part->matches > 0)
            begin = part->told < from ? part->told : from;
        tell_after(grep, part, part->told, begin);
        part->matches++;
        if (!take(grep, part,
                  &(struct hit){
                      .begin = begin, .end = end, .column = from - begin, .length = to - from}))
            break;
        start = end + 1;
        if (is_late(grep))
            break;
    }
    tell_after(grep, part, part->told, part->size);
    return 0;
}

/* ---- reading ---- */

/* What was looked through goes, but for the lines that may be told before a match. */
static void slide(const struct grep *grep, struct part *part)
{
    size_t keep = part->at;

    for (uint64_t i = 0; i < grep->before && keep > part->told; i++)
        keep = line_begin(grep, keep - 1, part->told);
    keep = keep < part->size ? keep : part->size;
    count_lines(grep, part, keep > part->counted ? keep : part->counted);
    memmove(grep->data, grep->data + keep, part->size - keep);
    part->base += keep;
    part->size -= keep;
    part->at -= keep;
    part->counted -= keep;
    part->told = part->told > keep ? part->told - keep : 0;
}

static bool grow(struct grep *grep)
{
    size_t capacity = grep->capacity * 2;
    char *data = capacity > BUFFER_MAX ? NULL : realloc(grep->data, capacity);

    if (data == NULL)
        return false;
    grep->data = data;
    grep->capacity = capacity;
    return true;
}

/* Reads on; false: something is wrong with the file, as errno says. */
static bool fill(struct grep *grep, struct part *part, int fd)
{
    while (part->size < grep->capacity && !part->is_last) {
        ssize_t n = read(fd, grep->data + part->size, grep->capacity - part->size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        part->is_last = n == 0;
        part->size += (size_t)n;
    }
    return true;
}

static int search_fd(struct grep *grep, struct part *part, int fd, struct error *err)
{
    bool is_multiline = grep->options->is_multiline;

    for (bool is_first = true;; is_first = false) {
        if (!fill(grep, part, fd))
            return fail(err, errno, "", "read it");
        if (is_first &&
            memchr(grep->data, '\0', part->size < BINARY_LOOK ? part->size : BINARY_LOOK) != NULL)
            return 0;
        if (is_multiline && !part->is_last) {
            if (!grow(grep))
                return fail(
                    err, 0, "limit",
                    "it has more than %u bytes to be searched at once; leave \"multiline\" out",
                    BUFFER_MAX);
            continue;
        }
        if ((is_multiline ? search_whole : search_lines)(grep, part, err) < 0)
            return -1;
        if (part->is_last || grep->is_over || part->is_over)
            return 0;
        slide(grep, part);
        if (part->size < grep->capacity)
            continue;
        /* One line, and its context, fill all. */
        if (!grow(grep)) {
            part->is_last = true;
            if (search_lines(grep, part, err) < 0)
                return -1;
            part->is_last = false;
            part->at = part->at < part->size ? part->at : part->size;
            slide(grep, part);
            if (part->size == grep->capacity)
                part->told = part->at = part->size, slide(grep, part);
        }
    }
}

static void search_file(struct grep *grep, const struct place *place, const char *path)
{
    struct part part = {.path = path, .line = 1};
    _cleanup_close_ int fd = -1;
    struct error err = {0};
    struct stat st;

    /* Not place_open_file(): what is met is opened at once, and looked at then. */
    fd = openat(place->dir, place->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        if (errno == ENOENT || errno == ENXIO || errno == ELOOP)
            return;
        (void)fail(&err, errno, "", "open it");
    } else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > grep->options->max_file_bytes ||
               search_fd(grep, &part, fd, &err) == 0) {
        return;
    }
    say_error(&grep->tool->say, (int)grep->operand, path, &err);
}

static void search_below(struct grep *grep, struct walk *walk)
{
    const struct options *options = grep->options;
    struct walk_step step;
    struct place place;

    for (enum walk_kind kind; !grep->is_over && (kind = walk_next(walk, &step)) != WALK_END;) {
        enum globs_answer answer;

        if (kind == WALK_FAILED && step.error.errnum != ENOENT)
            say_error(&grep->tool->say, (int)grep->operand, step.path, &step.error);
        if (kind != WALK_ENTRY || (step.type != DT_REG && step.type != DT_DIR))
            continue;
        answer = globs_match(options->globs, options->globs_count, step.below);
        if (search_is_hidden(options, step.name) || answer == GLOBS_EXCLUDED) {
            walk_skip(walk);
            continue;
        }
        if (step.type == DT_DIR || answer != GLOBS_TAKEN)
            continue;
        place.dir = step.dir;
        (void)strncpy(place.name, step.name, sizeof(place.name) - 1);
        place.name[sizeof(place.name) - 1] = '\0';
        search_file(grep, &place, step.path);
        if (is_late(grep))
            return;
    }
}

static int search_operand(struct grep *grep, const char *path, struct error *err)
{
    struct walk_options how = {.path = path, .depth_max = UINT_MAX};
    _cleanup_place_ struct place place = PLACE_NONE;
    _cleanup_walk_ struct walk *walk = NULL;
    struct stat st;
    int top;

    if (place_find(&grep->tool->places, path, PLACE_FOLLOW, &place, err) < 0 ||
        place_stat(&place, &st, err) < 0)
        return -1;
    if (S_ISREG(st.st_mode)) {
        search_file(grep, &place, path);
        return 0;
    }
    if (!S_ISDIR(st.st_mode))
        return fail_not_regular(err);
    top = place_open_directory(&place, err);
    if (top < 0)
        return -1;
    if (grep->options->depth <= UINT_MAX)
        how.depth_max = (unsigned)grep->options->depth;
    walk = walk_new(top, &how, err);
    if (walk == NULL)
        return -1;
    search_below(grep, walk);
    return 0;
}

/* ---- the verbs ---- */

static struct pattern *take_pattern(const struct options *options, struct error *err)
{
    const struct pattern_how how = {.text = options->pattern,
                                    .is_fixed = options->is_fixed,
                                    .ignores_case = options->ignore_case,
                                    .is_word = options->is_word};

    return pattern_new(&how, err);
}

static uint64_t context_of(uint64_t asked)
{
    return asked == TOOL_SAID_NOT ? 0 : asked < CONTEXT_MAX ? asked : CONTEXT_MAX;
}

/* What is looked for first; nothing where the pattern itself is as fast, for a short one is everywhere. */
static void choose_literal(struct grep *grep)
{
    grep->stays_in_line = pattern_stays_in_line(grep->pattern);
    grep->literal = pattern_literal(grep->pattern, &grep->literal_size);
    if (grep->stays_in_line && grep->literal_size < LITERAL_LEAST)
        grep->literal = NULL;
    for (size_t i = 1; grep->literal != NULL && i < grep->literal_size; i++)
        if (commonness((unsigned char)grep->literal[i]) <
            commonness((unsigned char)grep->literal[grep->rare]))
            grep->rare = i;
}

static void search_all(struct grep *grep, struct error *err)
{
    struct tool *tool = grep->tool;

    for (unsigned i = 0; i < tool->options.operands_count && !grep->is_over; i++) {
        grep->operand = i;
        if (search_operand(grep, tool->options.operands[i], err) < 0)
            tool_fail(tool, i, tool->options.operands[i], err);
    }
    if (grep->is_over)
        tool->say.is_truncated = true; /* by time: what was found is an answer, too */
}

/* A match was left in the middle: of what it held nothing is touched any more. */
static _Noreturn void end_late(struct tool *tool)
{
    tool->say.is_truncated = true;
    say_done(&tool->say);
    say_flush(&tool->say);
    _exit(0);
}

static int verb_grep(struct tool *tool, struct error *err)
{
    static struct grep grep;

    grep.tool = tool;
    grep.options = &tool->options;
    grep.before = context_of(tool->options.before);
    grep.after = context_of(tool->options.after_lines);
    if (tool->options.pattern == NULL)
        return fail(err, 0, "bad_option", "a search needs --pattern");
    if (search_globs_check(&tool->options, err) < 0)
        return -1;
    grep.pattern = take_pattern(&tool->options, err);
    if (grep.pattern == NULL)
        return -1;
    choose_literal(&grep);
    grep.capacity = BUFFER_FIRST;
    grep.data = malloc(grep.capacity);
    if (grep.data == NULL)
        return fail(err, ENOMEM, "", "search");
    if (sigsetjmp(too_late, 1) != 0)
        end_late(tool);
    grep.until_ns = search_until(&tool->options);
    if (grep.until_ns != 0)
        start_timer(tool->options.time_limit_ms);
    search_all(&grep, err);
    return 0;
}

static bool path_accepted(void *arg, const char *below)
{
    struct error ignored;
    size_t from, to;

    return pattern_match(arg, below, strlen(below), 0, &from, &to, &ignored) > 0;
}

static int verb_find(struct tool *tool, struct error *err)
{
    static struct pattern *pattern; /* as long as the program */

    if (tool->options.pattern != NULL) {
        pattern = take_pattern(&tool->options, err);
        if (pattern == NULL)
            return -1;
    }
    return search_find(tool, pattern == NULL ? NULL : path_accepted, pattern, err);
}

static const struct tool_row rows[] = {
    {"grep", 1, UINT_MAX, verb_grep},
    {"find", 1, UINT_MAX, verb_find},
    {NULL, 0, 0, NULL},
};

int main(int argc, char **argv)
{
    return tool_run(rows, argc - 1, argv + 1);
}
