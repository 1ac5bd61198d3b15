/* The way out of a box's network namespace: there is none but two sockets that somebody outside holds.
 *
 * A namespace has `lo` and nothing else. Opened, it has routes by which every address there is belongs to `lo`,
 * and rules by which a TCP connection to any of them but the box's own comes out of one listening socket: what
 * getsockname() says of an accepted one is what the box dialled. A datagram to port 53 of any such address comes
 * out of the other; any other is refused at once (ICMP), and so is all that is neither TCP nor UDP. Who holds the
 * sockets decides, in user space; where nobody accepts, nothing gets anywhere.
 *
 * It is done from outside and before the box's first command: nothing in the box has a capability over its
 * network namespace, so it can neither see nor change the rules. The rules only say which socket gets what, and
 * refuse kindly: a box that could get around them would still find no way out. Needs no privilege but over that
 * namespace. */
#pragma once

#include "base/err.h"

/* Of both sockets, within; the next free one where a box has bound it before. A box sees neither: it dials, and
 * is answered from, the port that it asked for, and may bind port 53 itself. */
#define NETWORK_TCP_PORT 61000
#define NETWORK_DNS_PORT 53

/* What /etc/resolv.conf of a box names; any other address would do. */
#define NETWORK_RESOLVER "198.18.0.1"

/* The box's own addresses on `lo`, beside loopback: of the fake ranges (policy/policy.h), where no name gets to. */
#define NETWORK_OWN4 "198.19.255.254"
#define NETWORK_OWN6 "fd63:6f76:6500:ffff::1"

struct network_sockets {
    int tcp; /* listens on [::], both families, transparent, non-blocking */
    int udp; /* bound to [::], both families, tells and sets the address within (IPV6_RECVPKTINFO), non-blocking */
};

/* Opens the network namespace `network`. Where it belongs to a user namespace of ours and we are not root, a
 * process of ours enters both, and sends the sockets. "network_failed": twice, of the namespace that we are in, or
 * where the kernel lacks something. */
int network_open(int network, struct network_sockets *out, struct error *err);

/* Takes the routes away: from now on nothing gets as far as the sockets, which stay as they are (to remove the
 * rules as well takes the kernel ten milliseconds). Shut twice is no error. */
int network_shut(int network, struct error *err);

/* Gives them back, to the same sockets. */
int network_reopen(int network, struct error *err);
