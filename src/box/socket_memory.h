/* The kernel's memory behind the sockets of a box, as far as no cgroup counts it.
 *
 * A cgroup counts a socket (2 KB) and, where somebody reads from it, what waits there. It counts neither answers of
 * route netlink that nobody reads, nor error queues, nor connections that nobody has accepted, and each of these can be
 * hundreds of times as large as the socket. A box has one network namespace and cannot make another, so the tables of
 * one process show all of its sockets, also those that are on their way through a unix socket.
 *
 * The tables show no error queue of a TCP socket, and no UDP socket that is connected no more. Where a process has
 * these open, they are found; on their way through a unix socket nobody sees them. */
#pragma once

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* Measured on Linux 6.18: 2.8 KB where the client is gone, 4.4 KB where it has sent a byte and is half closed. */
#define SOCKET_MEMORY_WAITING 3000

/* Of the network namespace whose tables are in `tables`, a /proc/PID/net; ends early beyond `enough`. Datagrams that
 * wait are in it, too, and what one or two sockets of TCP hold is not. -1 with "socket_memory_failed" where a table
 * cannot be read or understood. */
int socket_memory_read(int tables, uint64_t enough, uint64_t *bytes, struct error *err);

/* The bytes in error queues and in datagrams that are not complete, by socket: each counts once, in whatever processes
 * it is open. Zeroes at the start. */
struct socket_memory_errors {
    uint64_t bytes;
    uint64_t *inodes; /* of all sockets that were looked at, by hash */
    size_t count, room;
};

/* Adds the sockets that the thread `tid`, in /proc/PID/task, has open, and ends early beyond `enough`. Waits for no
 * lock of a socket. A thread that is not its process's first takes Linux 6.9. -1 with "socket_memory_failed" where
 * the kernel does not let us look; a thread that has ended has none. */
int socket_memory_errors_add(struct socket_memory_errors *errors, int task, int tid,
                             uint64_t enough, struct error *err);

void socket_memory_errors_free(struct socket_memory_errors *errors);
