/* The output of one stream of a process: a sparse file in which a byte stands at its offset in the
 * stream, so that the file itself says all that there is to know after a kill.
 *
 * Bytes come by splice(2) from the pipe: either they are in the file or they are still in the pipe.
 * What is dropped is always the oldest: the file begins with a hole that ends at a multiple of
 * LOG_ALIGN, or at its end. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* No file system in use has larger blocks: only whole blocks can be punched out. */
#define LOG_ALIGN 65536U

struct proc_log {
    int directory; /* borrowed */
    int fd;        /* -1: closed, or not made */
    bool is_made;
    bool is_dropping; /* the disk is full: up to the next multiple of LOG_ALIGN */
    char name[24];
    uint64_t from, bytes;
};

void log_init(struct proc_log *log_file, int directory, uint32_t number, int stream);

/* Finds what a predecessor left. */
void log_recover(struct proc_log *log_file);

enum log_state {
    LOG_MORE,  /* there may be more in the pipe */
    LOG_EMPTY, /* the pipe is empty */
    LOG_ENDED, /* and nobody holds its other end */
    LOG_LATER, /* we are out of something (fds); try again later */
};

/* Moves up to `most` bytes from the pipe into the file. Never blocks. */
enum log_state log_pump(struct proc_log *log_file, int pipe, size_t most);

/* Moves what is in the pipe to nowhere. */
enum log_state log_discard(int pipe, size_t most);

/* Punches out at least LOG_ALIGN and about `bytes` of the oldest; false if there is not as much. */
bool log_trim(struct proc_log *log_file, uint64_t bytes);

/* All of it: where nothing can be punched out, that is the oldest. */
void log_drop(struct proc_log *log_file);

ssize_t log_read(struct proc_log *log_file, uint64_t offset, void *data, size_t size,
                 uint64_t *from, struct error *err);
void log_close(struct proc_log *log_file); /* opened again when it is used */
void log_remove(struct proc_log *log_file);
