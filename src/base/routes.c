/* See routes.h. */
#include "base/routes.h"

#include "base/fd.h"

#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

struct route_request {
    struct nlmsghdr header;
    struct rtmsg route;
    struct rtattr attribute;
    uint8_t address[16];
};

void routes_open(struct routes *routes)
{
    *routes = (struct routes){
        .fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE)};
}

void routes_close(struct routes *routes)
{
    fd_close(&routes->fd);
}

/* The type of what came back; -1: there is no such route; 0: it is no answer. */
static int route_type(const void *answer, size_t size, uint32_t number)
{
    struct nlmsghdr header;
    struct rtmsg route;

    if (size < sizeof(header))
        return 0;
    memcpy(&header, answer, sizeof(header));
    if (header.nlmsg_seq != number)
        return 0;
    if (header.nlmsg_type == NLMSG_ERROR)
        return -1;
    if (header.nlmsg_type != RTM_NEWROUTE || size < NLMSG_LENGTH(sizeof(route)))
        return 0;
    memcpy(&route, (const uint8_t *)answer + NLMSG_HDRLEN, sizeof(route));
    return route.rtm_type;
}

bool routes_is_own(struct routes *routes, const uint8_t address[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    bool four = memcmp(address, mapped, sizeof(mapped)) == 0;
    uint8_t size = four ? 4 : 16, answer[1024];
    struct route_request request = {
        .header = {.nlmsg_len = (uint32_t)(offsetof(struct route_request, address) + size),
                   .nlmsg_type = RTM_GETROUTE,
                   .nlmsg_flags = NLM_F_REQUEST,
                   .nlmsg_seq = ++routes->asked},
        .route = {.rtm_family = four ? AF_INET : AF_INET6, .rtm_dst_len = (uint8_t)(size * 8)},
        .attribute = {.rta_type = RTA_DST, .rta_len = (unsigned short)RTA_LENGTH(size)}};
    ssize_t n;
    int type = 0;

    memcpy(request.address, address + 16 - size, size);
    if (send(routes->fd, &request, request.header.nlmsg_len, MSG_DONTWAIT) < 0)
        return true;
    /* It answers before send() returns. */
    while (type == 0 && (n = recv(routes->fd, answer, sizeof(answer), MSG_DONTWAIT)) > 0)
        type = route_type(answer, (size_t)n, routes->asked);
    return type == 0 || type == RTN_LOCAL || type == RTN_BROADCAST || type == RTN_ANYCAST ||
           type == RTN_MULTICAST;
}
