/* Listening sockets: made here and handed to every engine, so that a client that connects while one is
 * restarted just waits. The keeper accepts nothing on them but on its own (names.h). */
#pragma once

#include "base/err.h"
#include "keeper/options.h"
#include "keeper/places.h"

#include <stdbool.h>
#include <stddef.h>

#define LISTENERS_MAX 8

struct listeners {
    int api[LISTENERS_MAX];
    size_t api_count;
    int keeper;
    bool made_socket; /* the unix socket of the API is ours to remove */
};

/* Before anything is opened: closes what was left open for us but is none of socket activation's. */
void listen_close_strays(void);

/* Those of socket activation (LISTEN_FDS), or the ones that the options name. */
int listeners_open(struct listeners *listeners, const struct options *options,
                   const struct places *places, struct error *err);

/* Whether other machines reach one of them; and whether such may be served by what the options say now. */
bool listeners_are_open(const struct listeners *listeners);
int listeners_check(bool are_open, const struct options *options, struct error *err);

/* Whether the address that the options name can be listened on. Nothing is said of it while a server listens on the
 * socket, which then has both. */
int listeners_try(const struct options *options, const struct places *places, struct error *err);

/* Those of the configuration's names that the options now say otherwise than the sockets of the API are; `found` has
 * the path that the options say. None, where a service manager made them. */
#define LISTENERS_UNLIKE_MAX 4
size_t listeners_unlike(const struct listeners *listeners, const struct options *options,
                        const struct places *places, const struct places *found,
                        const char *names[LISTENERS_UNLIKE_MAX]);

/* Removes the sockets' files, too. */
void listeners_close(struct listeners *listeners, const struct places *places);

/* Tells whether a text is a group of this host, by its number or a name of /etc/group. */
int listen_group_check(const char *group, struct error *err);

/* The address on which a TCP socket listens: with port 0 the kernel chose one. */
#define LISTEN_TEXT_MAX 64
void listen_address_text(int fd, char text[LISTEN_TEXT_MAX]);

/* HOST:PORT, a numeric address or localhost; whether other machines reach it. */
struct sockaddr_storage;
int listen_address_parse(const char *text, struct sockaddr_storage *address, unsigned *length,
                         bool *is_loopback, struct error *err);
