/* Processes on a terminal: the tool that holds it (box/tool/term.c), and what is said to that.
 *
 * All of it is a process like others, whose program is ours and whose input is frames; its output is the
 * terminal's, as it is. So nothing of a terminal is lost with an engine but its size. */
#include "engine/procs_parts.h"

#include "box/tool/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With its head no larger than any page: pipes keep packets of pages. */
#define FRAME_SIZE 4096
#define FRAME_DATA (FRAME_SIZE - sizeof(struct tool_head))
/* Between the two sizes of a redraw: a program that is told of both at once sees no change. */
#define REDRAW_MS 60

_Static_assert(TERMINAL_RESIZE_SIZE == sizeof(struct tool_head) + sizeof(struct tool_resize),
               "a frame of one size");
_Static_assert(TERMINAL_END_SIZE == sizeof(struct tool_head), "a frame that is a head alone");

const char **terminal_argv(const struct start *start)
{
    enum { OWN = 7, NUMBER = 8 };
    size_t count = 0, at = 0;
    const char **argv;
    char *numbers;

    while (start->argv[count] != NULL)
        count++;
    argv = calloc(1, (OWN + count) * sizeof(*argv) + 2 * (size_t)NUMBER);
    if (argv == NULL)
        return NULL;
    numbers = (char *)(argv + OWN + count);
    (void)snprintf(numbers, NUMBER, "%u", start->rows);
    (void)snprintf(numbers + NUMBER, NUMBER, "%u", start->columns);
    argv[at++] = "cove-tool";
    argv[at++] = "term";
    argv[at++] = numbers;
    argv[at++] = numbers + NUMBER;
    if (start->is_shell)
        argv[at++] = "--shell";
    argv[at++] = "--";
    /* Which shell there is the tool finds out. */
    for (size_t i = start->is_shell ? 2 : 0; i < count; i++)
        argv[at++] = start->argv[i];
    return argv;
}

size_t terminal_frames(char *to, const void *data, size_t size)
{
    const char *from = data;
    size_t used = 0;

    while (size > 0) {
        size_t part = size < FRAME_DATA ? size : FRAME_DATA;
        struct tool_head head = {.type = TOOL_DATA, .size = (uint32_t)part};

        if (to != NULL) {
            memcpy(to + used, &head, sizeof(head));
            memcpy(to + used + sizeof(head), from, part);
        }
        used += sizeof(head) + part;
        from += part;
        size -= part;
    }
    return used;
}

size_t terminal_frame_resize(char to[TERMINAL_RESIZE_SIZE], uint16_t rows, uint16_t columns)
{
    struct tool_head head = {.type = TOOL_RESIZE, .size = sizeof(struct tool_resize)};
    struct tool_resize resize = {.rows = rows, .columns = columns};

    memcpy(to, &head, sizeof(head));
    memcpy(to + sizeof(head), &resize, sizeof(resize));
    return TERMINAL_RESIZE_SIZE;
}

void terminal_frame_end(char to[TERMINAL_END_SIZE])
{
    struct tool_head head = {.type = TOOL_FINISH};

    memcpy(to, &head, sizeof(head));
}

void terminal_end(struct proc *proc)
{
    proc_alarm_drop(&proc->redraw);
}

static int check_terminal(const struct proc *proc, struct error *err)
{
    return proc->rows > 0
               ? 0
               : error_set(err, "no_terminal", 0,
                           "process %s has no terminal; start one with \"terminal\"", proc->id);
}

static int check(const struct proc *proc, uint16_t rows, uint16_t columns, struct error *err)
{
    if (check_terminal(proc, err) < 0)
        return -1;
    if (rows == 0 || rows > PROCS_TERMINAL_MAX || columns == 0 || columns > PROCS_TERMINAL_MAX)
        return error_set(err, "bad_request", 0, "a terminal has 1 to %d rows and columns",
                         PROCS_TERMINAL_MAX);
    return 0;
}

int proc_resize(struct proc *proc, uint16_t rows, uint16_t columns, struct error *err)
{
    if (check(proc, rows, columns, err) < 0 || stdin_resize(proc, rows, columns, err) < 0)
        return -1;
    terminal_end(proc);
    proc->rows = rows;
    proc->columns = columns;
    return 0;
}

int proc_input_end(struct proc *proc, struct error *err)
{
    return check_terminal(proc, err) < 0 ? -1 : stdin_finish(proc, err);
}

static void on_redraw(void *arg)
{
    struct proc *proc = arg;
    struct error ignored;

    (void)proc_resize(proc, proc->rows, proc->columns, &ignored);
}

int proc_redraw(struct proc *proc, uint16_t rows, uint16_t columns, struct error *err)
{
    uint16_t other = (uint16_t)(rows > 1 ? rows - 1 : rows + 1);

    if (check(proc, rows, columns, err) < 0 || stdin_resize(proc, other, columns, err) < 0)
        return -1;
    terminal_end(proc);
    proc->rows = rows;
    proc->columns = columns;
    proc->redraw = proc_alarm_set(proc->procs->loop, REDRAW_MS, on_redraw, proc);
    return 0;
}
