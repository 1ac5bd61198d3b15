/* Two network namespaces, in which everything is real: that of the host, where the engine dials and where servers
 * answer (203.0.113.0/24 and 2001:db8::/32 are all its own, without being on an interface), and that of a box, where
 * every address leads to the sockets of the engine. The loop of the engine turns in the main thread; the test is
 * another one, and holds the ends of both sides. */
#pragma once

#include "net/net.h"
#include "net/parts.h"

#include <stdbool.h>
#include <stdint.h>

#define WORLD_PORT 7000

extern uv_loop_t *world_loop;

/* Runs `test` in a thread, and the loop until it returns. */
void world_run(void (*test)(void));
/* Calls it in the loop's thread, and waits for it. */
void world_call(void (*call)(void *arg), void *arg);

/* Both namespaces; 0 or -1. Before any thread. */
int world_make(void);

/* Addresses are texts. Ends have a time-out of a minute, so that what hangs fails. */
int world_listen(const char *address, uint16_t port); /* of the host */
int world_listen_box(uint16_t port);                  /* of the box: any address, both families */
int world_udp_box(void);                              /* the DNS of the box */
int world_dial(const char *address, uint16_t port);   /* by the box; -1: refused */
int world_dial_host(const char *address, uint16_t port);
int world_udp_dial(const char *address, uint16_t port); /* by the box */
int world_accept(int listener);
bool world_is_asked(int listener); /* somebody waits to be accepted */
/* A pair of TCP sockets of the host. */
void world_pair(int ends[2]);

/* The names of the world, asked for in the loop: it is a server on 127.0.0.1, of this port. */
uint16_t world_names(void);

/* `bytes` of a stream that depends on `seed` from `a` to `b`, and of another from `b` to `a`, at once; whether
 * all arrived, unchanged. */
bool world_exchange(int a, int b, size_t bytes, unsigned seed);
/* How an end ends: 0, or the error's number. What comes before is thrown away. */
int world_end_of(int fd);
/* The same of a dial that is accepted and reset, and closes it: connect() itself may have said so. */
int world_end_of_dial(int fd);
unsigned world_fds(void);
