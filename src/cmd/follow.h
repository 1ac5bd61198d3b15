/* The output of a process as it comes, to standard output and standard error, up to its end.
 *
 * A server that goes away in the middle is looked for again, and goes on where it was: nothing is
 * shown twice, and what the server no longer has is said to be missing. */
#pragma once

#include "base/err.h"
#include "cmd/client.h"
#include "cmd/doc.h"

#include <stdbool.h>
#include <stdint.h>

struct follow {
    struct client *client;
    const char *process; /* its path */
    uint64_t from[2];    /* offsets of stdout and stderr to go on from */
    bool is_left_out[2];
    int watch_fd; /* -1: none; served while a reader is waited for, as by client_watch() */
    void (*watch_call)(void *arg);
    void *watch_arg;
    /* The process is ours, and ends when our key does, and when we are lost. */
    bool is_own;
    bool is_json; /* the server's own lines, instead of what they hold */
    bool has_end; /* as far as here, not to the end of the process */
    uint64_t end[2];
    bool is_behind; /* much more is there than the stream brings at once */
    bool is_unread; /* nobody reads our output any more: the error says so, too */
};

/* `*process` gets the Process that has ended, to be freed; with `has_end` it may be NULL. */
int follow_run(struct follow *follow, struct doc **process, struct error *err);

/* Whether all that was asked for by `has_end` is there. */
bool follow_is_at_end(const struct follow *follow);

/* Writes what is there of one stream, up to the offset `end`: raw, and many times as fast. */
int follow_fetch(struct follow *follow, int stream, uint64_t end, struct error *err);

/* Puts `from` of a stream, whose end is at the offset `end`, to the first of its newest `lines`, or leaves it
 * where there are no more. */
int follow_tail(struct follow *follow, int stream, uint64_t end, uint64_t lines, struct error *err);

/* Writes to standard output (0) or standard error (1), however slowly it is read. */
int follow_write(struct follow *follow, int stream, const char *data, size_t size,
                 struct error *err);
