/* `cove top`: which sandboxes use what, the busiest first; on a terminal again and again.
 *
 * The terminal is given back as it was, whatever ends the command but SIGKILL. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/show.h"
#include "cmd/usage.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define ONCE_MS 500 /* between the two looks of which the share of the processor is made */
#define INTERVAL_MS 2000
#define INTERVAL_LEAST_MS 100
#define ROWS_USUAL 24

/* What a terminal is told: a screen of its own without a cursor, whose lines are cut at the edge. */
#define SCREEN_ENTER "\033[?1049h\033[?25l\033[?7l"
#define SCREEN_LEAVE "\033[?7h\033[?25h\033[?1049l"
#define SCREEN_HOME "\033[H"
#define LINE_REST "\033[K"
#define SCREEN_REST "\033[J"

struct top {
    struct options_common common;
    bool once, all_tenants;
    uint64_t interval_ms;
};

static int take_interval(void *into, const char *value, struct error *err)
{
    struct top *top = into;

    if (parse_duration("--interval", value, &top->interval_ms, err) < 0)
        return -1;
    return top->interval_ms >= INTERVAL_LEAST_MS
               ? 0
               : option_bad_value(err, "interval", value, "that is too often",
                                  "give 100ms or more");
}

static const struct option_row rows[] = {
    {"once", NULL, "if standard output is no terminal", "print one table and end", NULL, 0,
     offsetof(struct top, once)},
    {"interval", "TIME", "2s", "how often to look", take_interval, 'n', 0},
    OPTION_ALL_TENANTS(struct top),
    OPTION_JSON("print the sandboxes as the API has them, each with `usage`"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "top",
    .about =
        "Shows what sandboxes use, the busiest first: share of one processor, memory now and at the\n"
        "most, what is written on the disk, commands that run, processor time since the start. On a\n"
        "terminal it goes on until q or Ctrl-C. To look does not keep an idle sandbox alive.",
    OPTION_ROWS(rows),
};

/* ---- one look ---- */

struct look {
    uint64_t time_ns;
    struct doc *sandboxes;
};

static int look_take(struct client *client, const struct top *top, struct look *look,
                     struct error *err)
{
    look->time_ns = clock_monotonic_ns();
    return usage_fetch(client, top->all_tenants, &look->sandboxes, err);
}

/* A sandbox of a look with what it is sorted by. */
struct line {
    const struct doc *sandbox;
    double share; /* of one processor, in percent; below 0: unknown */
    uint64_t memory;
};

/* What it had used when it was looked at before. */
static bool cpu_before(const struct look *before, const char *id, uint64_t *cpu_ns)
{
    for (size_t i = 0; id != NULL && i < doc_count(before->sandboxes); i++) {
        const struct doc *sandbox = doc_at(before->sandboxes, i);
        const char *its = doc_text(sandbox, "id");

        if (its != NULL && strcmp(its, id) == 0)
            return doc_number(doc_get(sandbox, "usage"), "cpu_ns", cpu_ns);
    }
    return false;
}

static struct line line_of(const struct look *before, const struct look *now,
                           const struct doc *sandbox)
{
    struct line line = {.sandbox = sandbox, .share = -1};
    const struct doc *usage = doc_get(sandbox, "usage");
    uint64_t cpu_ns;
    uint64_t then_ns;

    (void)doc_number(usage, "memory_bytes", &line.memory);
    if (doc_number(usage, "cpu_ns", &cpu_ns) &&
        cpu_before(before, doc_text(sandbox, "id"), &then_ns) && cpu_ns >= then_ns &&
        now->time_ns > before->time_ns)
        line.share = 100.0 * (double)(cpu_ns - then_ns) / (double)(now->time_ns - before->time_ns);
    return line;
}

static int line_order(const void *one, const void *other)
{
    const struct line *a = one;
    const struct line *b = other;

    if (a->share != b->share)
        return a->share > b->share ? -1 : 1;
    return a->memory == b->memory ? 0 : a->memory > b->memory ? -1 : 1;
}

static void size_cell(struct show_table *shown, const struct doc *doc, const char *key)
{
    char text[SHOW_VALUE_MAX];
    uint64_t bytes;

    show_cell(shown, doc_number(doc, key, &bytes) ? show_size(bytes, text) : NULL);
}

static void line_show(struct show_table *shown, const struct line *line, bool has_tenant)
{
    const struct doc *usage = doc_get(line->sandbox, "usage");
    const char *name = doc_text(line->sandbox, "name");
    char text[SHOW_VALUE_MAX];
    uint64_t number;

    if (has_tenant)
        show_cell(shown, doc_text(line->sandbox, "tenant"));
    show_cell(shown, name != NULL ? name : doc_text(line->sandbox, "id"));
    show_cell_state(shown, doc_text(line->sandbox, "state"));
    (void)snprintf(text, sizeof(text), "%.1f%%", line->share);
    show_cell(shown, line->share < 0 ? NULL : text);
    size_cell(shown, usage, "memory_bytes");
    size_cell(shown, usage, "peak_memory_bytes");
    size_cell(shown, doc_get(line->sandbox, "resources"), "memory_bytes");
    size_cell(shown, usage, "disk_bytes");
    if (doc_number(line->sandbox, "processes_running", &number))
        show_cell_number(shown, number);
    else
        show_cell(shown, NULL);
    (void)snprintf(text, sizeof(text), "%.1fs", doc_real(usage, "cpu_ns") / 1e9);
    show_cell(shown, doc_number(usage, "cpu_ns", &number) ? text : NULL);
}

static int look_text(const struct top *top, const struct look *before, const struct look *now,
                     char **text, size_t *size, struct error *err)
{
    static const char *const headings[] = {"TENANT", "NAME",  "STATE", "CPU",      "MEMORY",
                                           "PEAK",   "LIMIT", "DISK",  "COMMANDS", "TIME"};
    size_t first = top->all_tenants ? 0 : 1;
    size_t count = doc_count(now->sandboxes);
    _cleanup_free_ struct line *lines = calloc(count + 1, sizeof(*lines));
    struct show_table shown;

    if (lines == NULL)
        return option_no_memory(err);
    for (size_t i = 0; i < count; i++)
        lines[i] = line_of(before, now, doc_at(now->sandboxes, i));
    qsort(lines, count, sizeof(*lines), line_order);
    show_table_begin(&shown, sizeof(headings) / sizeof(headings[0]) - first, headings + first);
    for (size_t i = 0; i < count; i++)
        line_show(&shown, &lines[i], top->all_tenants);
    return show_table_text(&shown, text, size, err);
}

static int once(struct client *client, const struct top *top, struct error *err)
{
    const struct timespec pause = {.tv_nsec = ONCE_MS * 1000000L};
    _cleanup_free_ char *text = NULL;
    struct look looks[2] = {{0}, {0}};
    size_t size = 0;
    int result = look_take(client, top, &looks[0], err);

    if (result == 0 && top->common.json) {
        result = api_list_print("sandboxes", looks[0].sandboxes, err);
    } else if (result == 0) {
        (void)nanosleep(&pause, NULL);
        result = look_take(client, top, &looks[1], err);
        if (result == 0)
            result = look_text(top, &looks[0], &looks[1], &text, &size, err);
        if (result == 0)
            result = cmd_out(text, size, err);
    }
    doc_free(looks[0].sandboxes);
    doc_free(looks[1].sandboxes);
    return result;
}

/* ---- again and again ---- */

struct screen {
    int signals;
    bool is_raw; /* put `saved` back */
    struct termios saved;
};

static int screen_enter(struct screen *screen, struct error *err)
{
    struct termios raw;
    sigset_t taken;

    (void)sigemptyset(&taken);
    cmd_signals_add(&taken);
    (void)sigaddset(&taken, SIGWINCH);
    (void)sigaddset(&taken, SIGTSTP); /* stopped, it would leave its screen behind */
    (void)sigprocmask(SIG_BLOCK, &taken, NULL);
    screen->signals = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    if (screen->signals < 0)
        return error_set(err, "signals", errno, "signalfd: the kernel refused it; end something");
    /* In the background it must not touch the terminal's ways. */
    if (tcgetpgrp(STDIN_FILENO) == getpgrp() && tcgetattr(STDIN_FILENO, &screen->saved) == 0) {
        raw = screen->saved;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        screen->is_raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    return cmd_out(SCREEN_ENTER, sizeof(SCREEN_ENTER) - 1, err);
}

static void screen_leave(struct screen *screen)
{
    (void)cmd_print(SCREEN_LEAVE, sizeof(SCREEN_LEAVE) - 1);
    if (screen->is_raw)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &screen->saved);
    fd_close(&screen->signals);
}

static size_t screen_rows(void)
{
    struct winsize size;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1 ? size.ws_row
                                                                           : ROWS_USUAL;
}

/* While a server is waited for: who wants to leave need not wait for it. */
static void screen_signal(void *arg)
{
    struct screen *screen = arg;
    struct signalfd_siginfo info;

    if (read(screen->signals, &info, sizeof(info)) == sizeof(info) &&
        cmd_signal_ends((int)info.ssi_signo)) {
        screen_leave(screen);
        _exit(0);
    }
}

/* As many lines as there is room for. */
static int screen_show(const char *text, struct error *err)
{
    _cleanup_free_ char *shown = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&shown, &size);

    if (out == NULL)
        return option_no_memory(err);
    (void)fputs(SCREEN_HOME, out);
    for (size_t left = screen_rows() - 1; left > 0 && *text != '\0'; left--) {
        size_t length = strcspn(text, "\n");

        (void)fprintf(out, "%.*s" LINE_REST "\n", (int)length, text);
        text += length + (text[length] == '\n' ? 1 : 0);
    }
    (void)fputs(SCREEN_REST, out);
    if (fclose(out) != 0)
        return option_no_memory(err);
    return cmd_out(shown, size, err);
}

/* Waits for the next look; false: that was enough. */
static bool screen_wait(const struct screen *screen, uint64_t ms)
{
    uint64_t end_ns = clock_monotonic_ns() + ms * 1000000U;
    bool has_input = screen->is_raw;

    for (uint64_t now_ns = clock_monotonic_ns(); now_ns < end_ns; now_ns = clock_monotonic_ns()) {
        struct pollfd fds[2] = {{.fd = screen->signals, .events = POLLIN},
                                {.fd = has_input ? STDIN_FILENO : -1, .events = POLLIN}};
        uint64_t left_ms = (end_ns - now_ns) / 1000000U + 1;
        struct signalfd_siginfo info;
        char key;

        if (poll(fds, 2, left_ms > 3600000 ? 3600000 : (int)left_ms) <= 0)
            continue;
        if (fds[0].revents != 0 && read(screen->signals, &info, sizeof(info)) == sizeof(info))
            return !cmd_signal_ends((int)info.ssi_signo);
        if (fds[1].revents != 0) {
            has_input = read(STDIN_FILENO, &key, 1) == 1;
            if (has_input && (key == 'q' || key == 'Q'))
                return false;
        }
    }
    return true;
}

static int live(struct client *client, const struct top *top, struct error *err)
{
    struct screen screen = {.signals = -1};
    struct look before = {0};
    bool goes_on = true;
    int result = screen_enter(&screen, err);

    client_watch(client, screen.signals, screen_signal, &screen);
    while (result == 0 && goes_on) {
        _cleanup_free_ char *text = NULL;
        struct look now = {0};
        size_t size = 0;

        result = look_take(client, top, &now, err);
        if (result == 0)
            result = look_text(top, &before, &now, &text, &size, err);
        if (result == 0 && text != NULL)
            result = screen_show(text, err);
        /* The first look knows no shares: the second comes soon. */
        if (result == 0)
            goes_on = screen_wait(&screen, before.sandboxes == NULL ? ONCE_MS : top->interval_ms);
        doc_free(before.sandboxes);
        before = now;
    }
    doc_free(before.sandboxes);
    screen_leave(&screen);
    return result;
}

static int top_call(struct client *client, void *options, const struct option_words *words,
                    struct error *err)
{
    const struct top *top = options;

    (void)words;
    if (top->once || top->common.json || isatty(STDOUT_FILENO) != 1)
        return once(client, top, err);
    return live(client, top, err);
}

static int top_run(const struct cmd *cmd, int argc, char **argv)
{
    struct top top = {.interval_ms = INTERVAL_MS};

    return api_command(cmd, argc, argv, &top, top_call);
}

const struct cmd cmd_top = {
    .name = "top", .summary = "show what sandboxes use", .run = top_run, .table = &table};
