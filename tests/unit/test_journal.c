/* The journal of processes: what is written is read again, however hostile the texts; what was torn,
 * or is none of ours, changes nothing of the rest. */
#include "base/fd.h"
#include "check.h"
#include "engine/journal.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int directory;
static char path[64];

static struct {
    unsigned count, starts, ends;
    uint32_t last;
    char command[JOURNAL_COMMAND_MAX + 1];
} taken;

static void take(void *arg, const struct journal_line *line)
{
    (void)arg;
    taken.count++;
    taken.starts += line->kind == JOURNAL_START;
    taken.ends += line->kind == JOURNAL_END;
    taken.last = line->number;
    if (line->command != NULL)
        (void)snprintf(taken.command, sizeof(taken.command), "%s", line->command);
}

static void begin(void)
{
    char name[] = "/tmp/cove-test-journal-XXXXXX";

    if (mkdtemp(name) == NULL || (directory = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        abort();
    (void)snprintf(path, sizeof(path), "%s", name);
    (void)signal(SIGXFSZ, SIG_IGN);
}

static void put_file(const void *data, size_t size)
{
    _cleanup_close_ int fd = openat(directory, "journal", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                                    0600);

    if (fd < 0 || fd_write_full(fd, data, size) < 0)
        abort();
    memset(&taken, 0, sizeof(taken));
}

static off_t file_size(void)
{
    struct stat st;

    return fstatat(directory, "journal", &st, 0) == 0 ? st.st_size : -1;
}

static void reopen(struct journal *journal)
{
    struct error err;

    memset(&taken, 0, sizeof(taken));
    CHECK(journal_open(journal, directory, take, NULL, &err) == 0, "%s", err.text);
}

/* ---- one line ---- */

static void check_both_ways(const struct journal_line *line)
{
    char text[JOURNAL_LINE_MAX];
    size_t size = journal_line_print(line, text);
    struct journal_line read;
    void *hold;

    CHECK(size > 0 && text[size - 1] == '\n', "it does not fit");
    CHECK(memchr(text, '\n', size) == text + size - 1, "it is more than a line");
    CHECK(journal_line_parse(text, size - 1, &read, &hold), "%.*s", (int)size, text);
    CHECK(read.kind == line->kind && read.number == line->number && read.at_ms == line->at_ms,
          "%.*s", (int)size, text);
    CHECK(read.until_ms == line->until_ms && read.log_bytes == line->log_bytes &&
              read.has_stdin == line->has_stdin && read.rows == line->rows &&
              read.columns == line->columns,
          "%.*s", (int)size, text);
    CHECK((line->command == NULL) == (read.command == NULL), "command");
    CHECK(line->command == NULL ||
              (read.command != NULL && strcmp(read.command, line->command) == 0),
          "%.*s", (int)size, text);
    CHECK(line->tag == NULL || (read.tag != NULL && strcmp(read.tag, line->tag) == 0), "%.*s",
          (int)size, text);
    if (line->kind == JOURNAL_END)
        CHECK(read.state == line->state && read.exit_code == line->exit_code &&
                  read.signal == line->signal && read.timed_out == line->timed_out &&
                  read.oom_killed == line->oom_killed && read.cpu_ns == line->cpu_ns &&
                  read.pid == line->pid && read.errnum == line->errnum &&
                  (line->text == NULL || strcmp(read.text, line->text) == 0),
              "%.*s", (int)size, text);
    journal_line_free(hold);
}

static void check_lines(void)
{
    static char longest[JOURNAL_COMMAND_MAX];
    struct journal_line start = {.kind = JOURNAL_START, .number = 1, .at_ms = 1700000000123};
    struct journal_line end = {.kind = JOURNAL_END,
                               .number = JOURNAL_NUMBER_MAX,
                               .state = PROC_EXITED,
                               .exit_code = 255,
                               .pid = 4194304,
                               .cpu_ns = 1ULL << 60,
                               .timed_out = true,
                               .oom_killed = true};

    check_both_ways(&start);
    start.command = "echo \"a\" \\ \x01\x1f\x7f \t\n é \xf0\x9f\x98\x80 </script>";
    start.tag = "\",\"start\":7}\n{\"end\":1";
    start.has_stdin = true;
    start.rows = 24;
    start.columns = UINT16_MAX;
    start.until_ms = start.log_bytes = INT64_MAX;
    check_both_ways(&start);
    memset(longest, '\x01', sizeof(longest) - 1); /* six bytes each */
    start.command = longest;
    check_both_ways(&start);
    check_both_ways(&end);
    end.state = PROC_FAILED;
    end.code = "bad_cwd";
    end.text = "no \"directory\"";
    end.errnum = 2;
    check_both_ways(&end);
    end.state = PROC_LOST;
    end.signal = 9;
    check_both_ways(&end);
    check_both_ways(&(struct journal_line){.kind = JOURNAL_TIMEOUT, .number = 2});
    check_both_ways(&(struct journal_line){.kind = JOURNAL_FORGET, .number = 2});
    check_both_ways(&(struct journal_line){.kind = JOURNAL_NEXT, .number = 2});
}

static void check_clean(void)
{
    static const char *const texts[][2] = {
        {"plain", "plain"},
        {"a\nb\tc\x7f", "a b c "},
        {"\xff\xc3.\xc3\xa9", "??.\xc3\xa9"},
        {"\xed\xa0\x80", "???"},           /* half of a pair */
        {"\xc0\xaf\xe0\x80\xaf", "?????"}, /* longer than it need be */
        {"\xf4\x90\x80\x80", "????"},      /* above all */
        {"x\xf0\x9f\x98", "x???"},         /* cut */
    };
    char clean[64];

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        journal_text_clean(clean, sizeof(clean), texts[i][0], true);
        CHECK(strcmp(clean, texts[i][1]) == 0, "\"%s\" for the text %zu", clean, i);
    }
    journal_text_clean(clean, 4,
                       "aa\xc3\xa9"
                       "b",
                       true);
    CHECK(strcmp(clean, "aa") == 0, "cut within a character: %s", clean);
}

static void check_hostile_lines(void)
{
    static const char *const lines[] = {
        "",
        "{}",
        "[]",
        "[[[[[[[[[[[[[[[[",
        "null",
        "\"start\"",
        "{\"start\":0}",
        "{\"start\":-1}",
        "{\"start\":2147483648}",
        "{\"start\":99999999999999999999999}",
        "{\"start\":1.5}",
        "{\"start\":\"1\"}",
        "{\"start\":1,\"start\":2}",
        "{\"start\":1,\"at\":-5}",
        "{\"start\":1,\"tag\":7}",
        "{\"start\":1,\"stdin\":1}",
        "{\"start\":1,\"command\":\"a\\u0000b\"}",
        "{\"start\":1,\"command\":\"\xff\"}",
        "{\"start\":1} x",
        "{\"end\":1}",
        "{\"end\":1,\"state\":\"running\"}",
        "{\"end\":1,\"state\":7}",
        "{\"end\":1,\"state\":\"exited\",\"exit\":256}",
        "{\"end\":1,\"state\":\"exited\",\"signal\":128}",
        "{\"end\":1,\"state\":\"exited\",\"exit\":\"0\"}",
        "{\"end\":1,\"state\":\"failed\",\"code\":\"a code that is much longer than a code may be\"}",
        "{\"other\":1}",
        "{\"start\":1",
    };
    struct journal_line line;
    void *hold;

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        CHECK(!journal_line_parse(lines[i], strlen(lines[i]), &line, &hold) && hold == NULL,
              "taken: %s", lines[i]);
    /* As it comes from a newer version, with something more. */
    CHECK(journal_line_parse("{\"start\":1,\"new\":[1]}", 21, &line, &hold), "not taken");
    journal_line_free(hold);
}

/* Whatever a disk makes of a line: one byte changed, or cut anywhere. */
static void check_any_damage(void)
{
    static const char good[] =
        "{\"end\":12,\"state\":\"failed\",\"at\":17,\"exit\":1,\"timed_out\":"
        "true,\"code\":\"x\",\"text\":\"\\u00e9\\\\\"}";
    struct journal_line line;
    void *hold;
    unsigned taken_count = 0;

    for (size_t cut = 0; cut < sizeof(good) - 1; cut++) {
        CHECK(!journal_line_parse(good, cut, &line, &hold), "taken at %zu", cut);
    }
    for (unsigned i = 0; i < 200000; i++) {
        char bad[sizeof(good)];

        memcpy(bad, good, sizeof(good));
        for (long changes = random() % 3; changes >= 0; changes--)
            bad[(size_t)random() % (sizeof(good) - 1)] = (char)random();
        if (journal_line_parse(bad, sizeof(good) - 1, &line, &hold)) {
            taken_count++;
            CHECK(line.number > 0 && line.number <= JOURNAL_NUMBER_MAX && line.exit_code <= 255 &&
                      line.exit_code >= 0,
                  "%s", bad);
            journal_line_free(hold);
        }
    }
    CHECK(taken_count > 0, "all were thrown away");
}

/* ---- the file ---- */

static void check_torn(void)
{
    static const char two[] = "{\"start\":1,\"command\":\"a\"}\n{\"end\":1,\"state\":\"exited\"}\n";
    struct journal journal;
    struct error err;
    char text[256];

    for (size_t cut = 0; cut <= sizeof(two) - 1; cut++) {
        unsigned whole = cut == sizeof(two) - 1 ? 2 : cut >= 26 ? 1 : 0;

        put_file(two, cut);
        reopen(&journal);
        CHECK(taken.count == whole, "%u at %zu", taken.count, cut);
        CHECK(journal_add(&journal, &(struct journal_line){.kind = JOURNAL_NEXT, .number = 9},
                          &err) == 0,
              "%s", err.text);
        journal_close(&journal);
        reopen(&journal);
        CHECK(taken.count == whole + 1 && taken.last == 9, "%u after %zu", taken.count, cut);
        journal_close(&journal);
    }
    CHECK(fd_read_file(directory, "journal", text, sizeof(text)) == (ssize_t)sizeof(two) - 1 + 11,
          "what is there");
}

static void check_long_lines(void)
{
    static const char good[] = "{\"start\":5,\"command\":\"x\"}\n";
    size_t size = 200000;
    char *data = malloc(size + 100);
    struct journal journal;

    memset(data, 'a', size);
    data[JOURNAL_LINE_MAX] = '\n'; /* one too long by a byte; then one that is far too long */
    (void)snprintf(data + size, 100, "\n%s", good);
    put_file(data, size + sizeof(good));
    reopen(&journal);
    CHECK(taken.count == 1 && taken.last == 5, "%u", taken.count);
    CHECK(journal.size == size + sizeof(good), "%llu", (unsigned long long)journal.size);
    journal_close(&journal);
    memset(data, '\0', size);
    put_file(data, size);
    reopen(&journal);
    CHECK(taken.count == 0 && file_size() == 0, "zeros are no line");
    journal_close(&journal);
    free(data);
}

static uint32_t rewrite_to;

static bool next_line(void *arg, struct journal_line *line)
{
    uint32_t *at = arg;

    if (*at >= rewrite_to)
        return false;
    *line = (struct journal_line){.kind = JOURNAL_START, .number = ++*at, .command = "kept"};
    return true;
}

static void check_rewrite(void)
{
    struct journal journal;
    struct error err;
    uint32_t at = 0;

    put_file("", 0);
    reopen(&journal);
    while (!journal_is_stale(&journal))
        if (journal_add(&journal, &(struct journal_line){.kind = JOURNAL_START, .number = 1}, &err))
            abort();
    rewrite_to = 20000; /* more than one write */
    CHECK(journal_rewrite(&journal, next_line, &at, &err) == 0, "%s", err.text);
    CHECK(!journal_is_stale(&journal), "at once again");
    CHECK((off_t)journal.size == file_size(), "its size");
    CHECK(journal_add(&journal, &(struct journal_line){.kind = JOURNAL_NEXT, .number = 7}, &err) ==
              0,
          "%s", err.text);
    journal_close(&journal);
    reopen(&journal);
    CHECK(taken.count == 20001 && taken.starts == 20000 && taken.last == 7, "%u", taken.count);
    journal_remove(&journal);
    CHECK(file_size() < 0, "it is still there");
}

/* A disk that takes half of a line: it is as if none had been written. */
static void check_full(void)
{
    struct rlimit before, limit;
    struct journal journal;
    struct error err;
    struct journal_line line = {.kind = JOURNAL_START, .number = 3, .command = "cut"};

    put_file("{\"start\":1}\n", 12);
    reopen(&journal);
    (void)getrlimit(RLIMIT_FSIZE, &before);
    limit = (struct rlimit){.rlim_cur = 20, .rlim_max = before.rlim_max};
    (void)setrlimit(RLIMIT_FSIZE, &limit);
    CHECK(journal_add(&journal, &line, &err) < 0 && strcmp(err.code, "capacity") == 0, "written");
    (void)setrlimit(RLIMIT_FSIZE, &before);
    CHECK(file_size() == 12, "%lld", (long long)file_size());
    CHECK(journal_add(&journal, &line, &err) == 0, "%s", err.text);
    journal_close(&journal);
    reopen(&journal);
    CHECK(taken.count == 2 && strcmp(taken.command, "cut") == 0, "%u", taken.count);
    journal_remove(&journal);
}

int main(void)
{
    begin();
    check_lines();
    check_clean();
    check_hostile_lines();
    check_any_damage();
    check_torn();
    check_long_lines();
    check_rewrite();
    check_full();
    CHECK(rmdir(path) == 0, "something is left");
    return check_finish();
}
