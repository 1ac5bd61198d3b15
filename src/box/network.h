/* The way out of a box's network namespace: there is none but two sockets that somebody outside holds.
 *
 * A namespace has `lo` and nothing else. Opened, it has routes by which every address there is belongs to `lo`,
 * and rules by which a TCP connection to any of them but the box's own loopback comes out of one listening
 * socket: what getsockname() says of an accepted one is what the box dialled. A datagram to port 53 of any such
 * address comes out of the other; any other is refused at once (ICMP), and so is all that is neither TCP nor
 * UDP. Who holds the sockets decides, in user space; where nobody accepts, nothing gets anywhere.
 *
 * It is done from outside and before the box's first command: nothing in the box has a capability over its
 * network namespace, so it can neither see nor change the rules. Needs no privilege but over that namespace. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define NETWORK_TCP_PORT 61000 /* of the listener, within: a box that binds it before is refused below */
#define NETWORK_DNS_PORT 53

struct network_sockets {
    int tcp; /* listens on [::], both families, transparent, non-blocking */
    int udp; /* bound to [::]:53, both families, tells and sets the address within (IPV6_RECVPKTINFO) */
};

/* Opens the network of the box whose init is `pidfd`. `enters_users`: its owner is the box's user namespace and we
 * are not root (a process of ours enters both, and sends the sockets). Twice is an error ("network_failed"). */
int network_open(int pidfd, bool enters_users, struct network_sockets *out, struct error *err);

/* Takes routes and rules away again: from now on nothing gets as far as the sockets, which the caller closes. */
int network_shut(int pidfd, bool enters_users, struct error *err);
