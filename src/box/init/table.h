/* What init knows of the commands, and what of it the outside has not been told.
 *
 * Telling never waits: where the socket has no room, or nobody reads, what is to be said stays as bits
 * beside the commands, and init goes on reaping. A command that is held stays in the table, with the
 * outside's ends of its stdio, until it is acknowledged. One init, one table: static on purpose. */
#pragma once

#include "box/proto.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct command {
    uint32_t id;
    pid_t pid;
    int leaf;
    int32_t status;
    uint64_t cpu_ns;
    int fds[3];    /* the outside's ends of 0, 1, 2, or the terminal's master first; else -1 */
    bool is_there; /* else the slot is free */
    bool is_held, is_tty, has_ended;
    bool is_orphan; /* who asked for it is gone: nothing is said of it, and its id is free */
    uint8_t unsaid; /* enum table_words */
};

enum table_words { TABLE_BEGUN = 1, TABLE_ENTRY = 2, TABLE_EXITED = 4 };

struct command *table_find(uint32_t id);
struct command *table_find_running(pid_t pid);

/* A free slot, all zero but fds; or NULL. The caller sets is_there once it is one. */
struct command *table_slot(void);

/* One that is not held and no orphan yet; or NULL. */
struct command *table_find_brief(void);

/* Nobody hears of it any more; it is dropped when it has ended. */
void table_orphan(struct command *command);

/* Forgets a command and closes what was kept of it. */
void table_drop(struct command *command);

/* To be told when there is room. */
void table_say(struct command *command, enum table_words word);

/* An answer that is about no command of the table; takes `fd` (-1: none). At most one waits at a time,
 * which is why no request is taken before table_tell() is done. */
void table_answer(const void *packet, size_t size, int fd);

/* Who we are, for whoever asked with this id, and all that is held. */
void table_hello(uint32_t id, uint32_t version);

/* Tells what there is to tell. False if not all of it could be; then *room says whether the socket
 * polls writable when there is room, else it is to be tried again soon. */
bool table_tell(bool *room);
