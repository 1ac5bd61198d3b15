/* The journal of a sandbox's processes: a line of JSON for each start and each end, appended by one
 * write(2), so that what was told to somebody is known after a kill at any moment. It is not synced: what
 * is lost with the host's power is of processes that are lost then anyway (docs/states.md).
 *
 * It is read once, when the sandbox is opened. Commands and tags in it come from clients and boxes:
 * each line is limited, parsed whole and checked, and one that does not parse is passed over. A last
 * line that was cut is cut off. It never holds environment, input or output of a command. */
#pragma once

#include "engine/procs.h"

#include <stdbool.h>
#include <stdint.h>

#define JOURNAL_LINE_MAX 16384
#define JOURNAL_COMMAND_MAX 1024 /* bytes of a command, for people */
#define JOURNAL_NUMBER_MAX 0x7fffffffU

enum journal_kind {
    JOURNAL_START,
    JOURNAL_END,
    JOURNAL_TIMEOUT, /* it is being killed for having run too long */
    JOURNAL_FORGET,
    JOURNAL_NEXT, /* `number` is the next to be given */
};

struct journal_line {
    enum journal_kind kind;
    uint32_t number; /* of the process */
    uint64_t at_ms;  /* wall clock */
    /* JOURNAL_START */
    uint64_t until_ms; /* on the monotonic clock; 0: no timeout */
    uint64_t log_bytes;
    bool has_stdin;
    uint16_t rows, columns;    /* of its terminal; 0: it has none */
    const char *tag, *command; /* NULL: none */
    /* JOURNAL_END */
    enum proc_state state; /* PROC_EXITED, PROC_FAILED, PROC_LOST */
    pid_t pid;
    int exit_code, signal, errnum;
    bool timed_out, oom_killed;
    uint64_t cpu_ns;
    const char *code, *text; /* why it failed or was lost */
};

struct journal {
    int directory; /* borrowed */
    int fd;        /* -1: not made yet */
    uint64_t size;
    uint64_t rewritten; /* its size when it was written anew last */
};

/* Reads what is there; `take` gets each line that holds, in order. */
int journal_open(struct journal *journal, int directory,
                 void (*take)(void *arg, const struct journal_line *line), void *arg,
                 struct error *err);
void journal_close(struct journal *journal);

int journal_add(struct journal *journal, const struct journal_line *line, struct error *err);

/* Whether most of it is of processes that nobody remembers. */
bool journal_is_stale(const struct journal *journal);

/* Writes it anew with the lines that `next` gives until it says false; in its place once complete. */
int journal_rewrite(struct journal *journal, bool (*next)(void *arg, struct journal_line *line),
                    void *arg, struct error *err);

void journal_remove(struct journal *journal);

/* One line without its end, not terminated; false if it is none of ours. Texts in `line` live as long
 * as *hold, which journal_line_free() ends. */
bool journal_line_parse(const char *text, size_t size, struct journal_line *line, void **hold);
void journal_line_free(void *hold);

/* Writes `line` with its end into `text`: how long it is; 0 if it does not fit. */
size_t journal_line_print(const struct journal_line *line, char text[JOURNAL_LINE_MAX]);

/* Copies text as UTF-8 of at most `size` - 1 bytes: what is none becomes '?'. `one_line`: what moves
 * a terminal's cursor becomes a space. */
void journal_text_clean(char *to, size_t size, const char *from, bool one_line);
