/* Bytes of a connection to a server, from and to a socket of this machine. */
#pragma once

#include "cmd/conn.h"

#include <stddef.h>

/* Carries both ways until both sides have said all, each of which may end its half before: 0, or -1 where the
 * server's side was cut. `first` came of it already, and is no more than CARRY_MAX. `fd` does not block; where it
 * is cut nobody is there to be told. */
#define CARRY_MAX 65536
int carry(struct conn *conn, const char *first, size_t first_size, int fd, struct error *err);
