/* A name server in the test's own loop: what it answers is told by the first letters of the name that
 * is asked for. It speaks UDP and TCP, and writes its packets by itself. */
#pragma once

#include <stdint.h>
#include <uv.h>

/* "v4..." has 192.0.2.1 alone, "v6..." 2001:db8::1 alone, any other both; TTL 300.
 * "zero..."   TTL 0, and another last byte each time
 * "nx..."     NXDOMAIN          "empty..."  no address        "fail..."  SERVFAIL
 * "slow..."   never answered    "half..."   AAAA never answered
 * "alias..."  behind eight CNAMEs, one with TTL 7
 * "ring..."   CNAMEs in a ring
 * "long..."   truncated over UDP; twenty addresses over TCP
 * "bad-X..."  an answer with a fault: see name_server.c
 * "mixed..."  the A is no such name, and there is an AAAA */
struct name_server {
    uv_poll_t udp, tcp;
    int udp_fd, tcp_fd;
    /* Questions: one that is sent once more, for we were slow, is the same one. */
    unsigned asked, asked_tcp;
    uint64_t lately[256]; /* a hash of each of them */
    unsigned lately_count;
    char address[32]; /* "ADDRESS:PORT" */
};

/* At that address, and at port 0 (any) or that one; 0, or -1. */
int name_server_open(uv_loop_t *loop, const char *address, uint16_t port,
                     struct name_server *server);
void name_server_close(struct name_server *server);
