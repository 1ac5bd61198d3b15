/* What this host does with an address, asked of the kernel's routes: by it no policy is led to the host itself.
 * Where the kernel does not tell, the address counts as the host's own. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct routes {
    int fd; /* of netlink; -1: it could not be had, and every address is the host's own */
    uint32_t asked;
};

void routes_open(struct routes *routes); /* leaves errno where there is no fd */
void routes_close(struct routes *routes);

/* Whether the kernel would deliver it to this host, or to all around it: an address of an interface, or one of a
 * route of type `local`, as load balancers and agents of clouds make them. IPv4 is ::ffff:a.b.c.d. */
bool routes_is_own(struct routes *routes, const uint8_t address[16]);
