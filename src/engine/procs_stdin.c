/* Standard input: what a client sends waits here, up to a limit, until the command reads.
 *
 * A write(2) could block: the pipe's description is init's, too, and who took that over can clear
 * O_NONBLOCK between any two calls of ours. vmsplice(2) would not, but leaves our own pages in the
 * box's pipe, and what lies in them later. So bytes are written to a pipe that nobody else has, and
 * move on by splice(2) with SPLICE_F_NONBLOCK. SIGPIPE has to be ignored.
 *
 * What goes to a terminal is frames. Our pipe is one of packets then, which splice(2) moves as a whole or
 * not at all: so whoever comes after us, should we be killed, begins with a frame, too. */
#include "engine/procs_parts.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef __clang__
/* The analyser of gcc 12 loses sight of a piece once it is in a list of its caller's. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

static void close_all(struct proc_stdin *input)
{
    struct procs *procs = input->proc->procs;
    struct error ignored;

    terminal_end(input->proc);
    watched_close(procs, &input->watched);
    fd_close(&input->ours[0]);
    fd_close(&input->ours[1]);
    if (input->is_open && procs->link != NULL && !input->proc->exit_heard)
        (void)link_close_stdin(procs->link, input->proc->number, &ignored);
    input->is_open = false;
}

void stdin_end(struct proc *proc, const struct error *err)
{
    struct proc_stdin *input = &proc->input;
    struct stdin_piece *piece;

    close_all(input);
    while ((piece = input->first) != NULL) {
        input->first = piece->next;
        piece->done(piece->arg, proc, err);
        free(piece);
    }
    input->waiting = 0;
    input->in_ours = 0;
}

/* ---- moving ---- */

static int open_ours(struct proc_stdin *input)
{
    int packets = input->proc->rows > 0 ? O_DIRECT : 0;

    return input->ours[0] >= 0 ? 0 : pipe2(input->ours, O_CLOEXEC | O_NONBLOCK | packets);
}

/* From the pieces into our pipe. */
static int fill(struct proc_stdin *input)
{
    for (struct stdin_piece *piece = input->first; piece != NULL; piece = piece->next) {
        ssize_t n;

        if (piece->used == piece->size)
            continue;
        n = write(input->ours[1], piece->data + piece->used, piece->size - piece->used);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -1;
        piece->used += (size_t)n;
        input->in_ours += (size_t)n;
        if (piece->used < piece->size)
            break;
    }
    return 0;
}

/* So much more is in the command's pipe; what is there as a whole is said. */
static void count(struct proc_stdin *input, size_t moved)
{
    struct stdin_piece *piece;

    input->in_ours -= moved;
    input->waiting -= moved;
    input->moved += moved;
    while ((piece = input->first) != NULL && input->moved >= piece->size) {
        input->moved -= piece->size;
        input->first = piece->next;
        piece->done(piece->arg, input->proc, NULL);
        free(piece);
    }
}

/* Some of it; -1 where it cannot go on now, errno says why. */
static ssize_t move(struct proc_stdin *input)
{
    ssize_t n;

    if (open_ours(input) < 0 || fill(input) < 0)
        return -1;
    do
        n = splice(input->ours[0], NULL, input->watched.fd, NULL, input->in_ours,
                   SPLICE_F_NONBLOCK);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        count(input, (size_t)n);
    return n;
}

static void say_closed(struct proc_stdin *input)
{
    static const struct error closed = {
        .code = "stdin_closed",
        .text = "the process has closed its standard input; nobody reads it any more"};

    stdin_end(input->proc, &closed);
}

static void pump(struct proc_stdin *input)
{
    struct procs *procs = input->proc->procs;
    size_t moved = 0;
    ssize_t n = 0;

    if (input->is_pumping)
        return;
    input->is_pumping = true;
    while (input->is_open && input->first != NULL && moved < PROCS_TURN_BYTES) {
        n = move(input);
        if (n <= 0)
            break;
        moved += (size_t)n;
    }
    input->is_pumping = false;
    if (!input->is_open || procs->is_closed)
        return;
    if (n < 0 && errno != EAGAIN) {
        say_closed(input);
    } else if (input->first != NULL) {
        if (!input->watched.is_set && watched_set(procs, &input->watched, EPOLLOUT) < 0)
            say_closed(input);
    } else {
        watched_unset(procs, &input->watched);
        fd_close(&input->ours[0]);
        fd_close(&input->ours[1]);
        if (input->close_after)
            close_all(input);
    }
}

static void on_event(struct watched *watched, uint32_t events)
{
    (void)events;
    pump((struct proc_stdin *)watched);
}

void stdin_open(struct proc *proc, int fd)
{
    struct proc_stdin *input = &proc->input;

    input->watched.act = on_event;
    watched_open(proc->procs, &input->watched, fd);
    input->is_open = true;
}

void stdin_settle(struct proc *proc)
{
    if (proc->input.is_open)
        pump(&proc->input);
    else if (proc->input.first != NULL)
        say_closed(&proc->input);
}

/* ---- verbs ---- */

/* An engine that has just started has it when the box has said what it holds: what is written waits. */
static bool is_due(const struct proc *proc)
{
    return proc->has_stdin && proc->awaits_table;
}

static int check(const struct proc *proc, size_t size, struct error *err)
{
    if (proc->procs == NULL || proc->is_hidden)
        return error_set(err, "process_not_found", 0, "process %s is no more", proc->id);
    if (proc->has_ended || proc->exit_heard)
        return error_set(err, "process_ended", 0, "process %s has ended", proc->id);
    if (procs_link_check(proc->procs, err) < 0)
        return -1;
    if ((!proc->input.is_open && !is_due(proc)) || proc->input.close_after)
        return error_set(err, "stdin_closed", 0,
                         "the standard input of process %s is closed, or never was open", proc->id);
    if (proc->input.waiting + size > PROCS_STDIN_MAX)
        return error_set(err, "capacity", 0,
                         "process %s has not read what waits for it; send the rest later",
                         proc->id);
    return 0;
}

/* Room for so many bytes, in no list yet. */
static struct stdin_piece *piece_new(size_t size, procs_done done, void *arg, struct error *err)
{
    struct stdin_piece *piece = malloc(sizeof(*piece) + size);

    if (piece == NULL) {
        (void)error_set(err, "no_memory", ENOMEM, "cannot keep what is sent to a process");
        return NULL;
    }
    *piece = (struct stdin_piece){.done = done, .arg = arg, .size = size};
    return piece;
}

static void piece_add(struct proc_stdin *input, struct stdin_piece *piece)
{
    if (input->first == NULL)
        input->first = piece;
    else
        input->last->next = piece;
    input->last = piece;
    input->waiting += piece->size;
}

static int append(struct proc_stdin *input, const void *data, size_t size, procs_done done,
                  void *arg, struct error *err)
{
    bool framed = input->proc->rows > 0;
    struct stdin_piece *piece = piece_new(framed ? terminal_frames(NULL, data, size) : size, done,
                                          arg, err);

    if (piece == NULL)
        return -1;
    if (framed)
        (void)terminal_frames(piece->data, data, size);
    else
        memcpy(piece->data, data, size);
    piece_add(input, piece);
    return 0;
}

static void told(void *arg, struct proc *proc, const struct error *err)
{
    (void)arg;
    (void)proc;
    (void)err; /* it has ended */
}

/* One that waits already is changed: so there is never more than one beside what moves. */
static int put_resize(struct proc_stdin *input, uint16_t rows, uint16_t columns, struct error *err)
{
    struct stdin_piece *before = NULL, *next, *piece;

    for (piece = input->first; piece != NULL; piece = piece->next)
        if (piece->is_resize && piece->used == 0) {
            (void)terminal_frame_resize(piece->data, rows, columns);
            return 0;
        }
    piece = piece_new(TERMINAL_RESIZE_SIZE, told, NULL, err);
    if (piece == NULL)
        return -1;
    piece->is_resize = true;
    (void)terminal_frame_resize(piece->data, rows, columns);
    for (next = input->first; next != NULL && next->used > 0; next = next->next)
        before = next;
    piece->next = next;
    if (before == NULL)
        input->first = piece;
    else
        before->next = piece;
    if (next == NULL)
        input->last = piece;
    input->waiting += piece->size;
    return 0;
}

int stdin_resize(struct proc *proc, uint16_t rows, uint16_t columns, struct error *err)
{
    struct procs *procs = proc->procs;

    if (check(proc, 0, err) < 0 || put_resize(&proc->input, rows, columns, err) < 0)
        return -1;
    procs_enter(procs);
    pump(&proc->input);
    procs_leave(procs);
    return 0;
}

int stdin_finish(struct proc *proc, struct error *err)
{
    struct proc_stdin *input = &proc->input;
    struct procs *procs = proc->procs;
    struct stdin_piece *piece;

    if (check(proc, 0, err) < 0)
        return -1;
    if (input->first != NULL && input->last->is_end)
        return 0;
    piece = piece_new(TERMINAL_END_SIZE, told, NULL, err);
    if (piece == NULL)
        return -1;
    piece->is_end = true;
    terminal_frame_end(piece->data);
    piece_add(input, piece);
    procs_enter(procs);
    pump(input);
    procs_leave(procs);
    return 0;
}

void proc_stdin_write(struct proc *proc, const void *data, size_t size, procs_done done, void *arg)
{
    struct procs *procs = proc->procs;
    struct error err;

    if (check(proc, size, &err) < 0 ||
        (size > 0 && append(&proc->input, data, size, done, arg, &err) < 0)) {
        done(arg, proc, &err);
        return;
    }
    if (size == 0) {
        done(arg, proc, NULL);
        return;
    }
    procs_enter(procs);
    pump(&proc->input);
    procs_leave(procs);
}

int proc_stdin_close(struct proc *proc, struct error *err)
{
    if (check(proc, 0, err) < 0)
        return -1;
    if (proc->rows > 0)
        return error_set(
            err, "bad_request", 0,
            "a terminal has no end of input; write what its user would type, as ctrl-D "
            "(byte 4)");
    proc->input.close_after = true;
    if (proc->input.first == NULL && proc->input.is_open)
        close_all(&proc->input);
    return 0;
}
