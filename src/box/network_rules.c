/* Writes the bytes that open and shut the network of a box (network.c), as C: routes for rtnetlink, rules for
 * nftables. It runs at build time, on the machine that builds, so that what runs as root links no library for
 * this and computes nothing: the bytes are the same for every box but for one port.
 *
 * usage: network_rules >network_rules.h */
#include "box/network.h"

#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <libnftnl/batch.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/table.h>
#include <linux/if_addr.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "both machines have the same netlink");

#define TABLE "cove"
#define LO 1 /* its index in every network namespace */
/* Marks: of what is ours, or is to be (and all that our sockets send: network.c), and of what a box says to
 * itself. */
#define LET_PASS 1
#define WITHIN 2
#define SIZE_MAX_OF_ALL 16384
#define OFFSET_SPORT 0
#define OFFSET_DPORT 2
#define OFFSET_UDP_CHECKSUM 6
#define OFFSET_TCP_FLAGS 13
#define TCP_SYN 0x02
#define TCP_ACK 0x10
#define OFFSET_DADDR4 16
#define OFFSET_DADDR6 24

static char bytes[SIZE_MAX_OF_ALL];
static uint16_t port; /* of the sockets, in network order */

static void *sure(void *made)
{
    if (made == NULL) {
        (void)fprintf(stderr, "network_rules: no memory\n");
        exit(1);
    }
    return made;
}

/* ---- expressions of a rule ---- */

static struct nftnl_expr *expr_add(struct nftnl_rule *rule, const char *name)
{
    struct nftnl_expr *expr = sure(nftnl_expr_alloc(name));

    nftnl_rule_add_expr(rule, expr);
    return expr;
}

static void compare(struct nftnl_rule *rule, const void *value, uint32_t size)
{
    struct nftnl_expr *expr = expr_add(rule, "cmp");

    nftnl_expr_set_u32(expr, NFTNL_EXPR_CMP_SREG, NFT_REG_1);
    nftnl_expr_set_u32(expr, NFTNL_EXPR_CMP_OP, NFT_CMP_EQ);
    nftnl_expr_set(expr, NFTNL_EXPR_CMP_DATA, value, size);
}

static void if_meta(struct nftnl_rule *rule, uint32_t key, uint32_t value, uint32_t size)
{
    struct nftnl_expr *expr = expr_add(rule, "meta");

    nftnl_expr_set_u32(expr, NFTNL_EXPR_META_KEY, key);
    nftnl_expr_set_u32(expr, NFTNL_EXPR_META_DREG, NFT_REG_1);
    compare(rule, &value, size);
}

static void if_protocol(struct nftnl_rule *rule, uint8_t protocol)
{
    if_meta(rule, NFT_META_L4PROTO, protocol, sizeof(protocol));
}

/* With a mask, unless that is NULL. */
static void if_payload(struct nftnl_rule *rule, uint32_t base, uint32_t offset, const void *mask,
                       const void *value, uint32_t size)
{
    static const char zeros[16];
    struct nftnl_expr *expr = expr_add(rule, "payload");

    nftnl_expr_set_u32(expr, NFTNL_EXPR_PAYLOAD_BASE, base);
    nftnl_expr_set_u32(expr, NFTNL_EXPR_PAYLOAD_OFFSET, offset);
    nftnl_expr_set_u32(expr, NFTNL_EXPR_PAYLOAD_LEN, size);
    nftnl_expr_set_u32(expr, NFTNL_EXPR_PAYLOAD_DREG, NFT_REG_1);
    if (mask != NULL) {
        expr = expr_add(rule, "bitwise");
        nftnl_expr_set_u32(expr, NFTNL_EXPR_BITWISE_SREG, NFT_REG_1);
        nftnl_expr_set_u32(expr, NFTNL_EXPR_BITWISE_DREG, NFT_REG_1);
        nftnl_expr_set_u32(expr, NFTNL_EXPR_BITWISE_LEN, size);
        nftnl_expr_set(expr, NFTNL_EXPR_BITWISE_MASK, mask, size);
        nftnl_expr_set(expr, NFTNL_EXPR_BITWISE_XOR, zeros, size);
    }
    compare(rule, value, size);
}

static void load(struct nftnl_rule *rule, const void *value, uint32_t size)
{
    struct nftnl_expr *expr = expr_add(rule, "immediate");

    nftnl_expr_set_u32(expr, NFTNL_EXPR_IMM_DREG, NFT_REG_1);
    nftnl_expr_set(expr, NFTNL_EXPR_IMM_DATA, value, size);
}

/* A port of a datagram, with its checksum. */
static void put_port(struct nftnl_rule *rule, uint32_t offset, uint16_t value)
{
    struct nftnl_expr *expr;

    load(rule, &value, sizeof(value));
    expr = expr_add(rule, "payload");
    nftnl_expr_set_u32(expr, NFTNL_EXPR_PAYLOAD_SREG, NFT_REG_1);
    nftnl_expr_set_u32(expr, NFTNL_EXPR_PAYLOAD_BASE, NFT_PAYLOAD_TRANSPORT_HEADER);
    nftnl_expr_set_u32(expr, NFTNL_EXPR_PAYLOAD_OFFSET, offset);
    nftnl_expr_set_u32(expr, NFTNL_EXPR_PAYLOAD_LEN, sizeof(value));
    nftnl_expr_set_u32(expr, NFTNL_EXPR_PAYLOAD_CSUM_TYPE, NFT_PAYLOAD_CSUM_INET);
    nftnl_expr_set_u32(expr, NFTNL_EXPR_PAYLOAD_CSUM_OFFSET, OFFSET_UDP_CHECKSUM);
}

static void take(struct nftnl_rule *rule)
{
    struct nftnl_expr *expr = expr_add(rule, "immediate");

    nftnl_expr_set_u32(expr, NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT);
    nftnl_expr_set_u32(expr, NFTNL_EXPR_IMM_VERDICT, NF_ACCEPT);
}

static void mark_as(struct nftnl_rule *rule, uint32_t mark)
{
    struct nftnl_expr *expr;

    load(rule, &mark, sizeof(mark));
    expr = expr_add(rule, "meta");
    nftnl_expr_set_u32(expr, NFTNL_EXPR_META_KEY, NFT_META_MARK);
    nftnl_expr_set_u32(expr, NFTNL_EXPR_META_SREG, NFT_REG_1);
    take(rule);
}

/* To our listener; the rest of the rule is not for what has no socket or another. */
static void intercept(struct nftnl_rule *rule)
{
    struct nftnl_expr *expr;

    load(rule, &port, sizeof(port));
    expr = expr_add(rule, "tproxy");
    nftnl_expr_set_u32(expr, NFTNL_EXPR_TPROXY_FAMILY, NFPROTO_UNSPEC);
    nftnl_expr_set_u32(expr, NFTNL_EXPR_TPROXY_REG_PORT, NFT_REG_1);
}

static void reject(struct nftnl_rule *rule, uint32_t type, uint8_t code)
{
    struct nftnl_expr *expr = expr_add(rule, "reject");

    nftnl_expr_set_u32(expr, NFTNL_EXPR_REJECT_TYPE, type);
    nftnl_expr_set_u8(expr, NFTNL_EXPR_REJECT_CODE, code);
}

/* ---- the rules ---- */

#define FIRST "first" /* before anything is decided of a packet that came over lo */
#define LAST "last"   /* before it gets to a socket */

typedef void (*rule_fill)(struct nftnl_rule *rule);

/* What our sockets answer comes from the port that was asked. */
static void an_answer(struct nftnl_rule *rule)
{
    if_meta(rule, NFT_META_MARK, LET_PASS, sizeof(uint32_t));
    if_protocol(rule, IPPROTO_UDP);
    if_payload(rule, NFT_PAYLOAD_TRANSPORT_HEADER, OFFSET_SPORT, NULL, &port, sizeof(port));
    put_port(rule, OFFSET_SPORT, htons(NETWORK_DNS_PORT));
    take(rule);
}

/* All else of our sockets: a box has no right to set a mark. */
static void marked(struct nftnl_rule *rule)
{
    if_meta(rule, NFT_META_MARK, LET_PASS, sizeof(uint32_t));
    take(rule);
}

static void loopback4(struct nftnl_rule *rule)
{
    static const unsigned char mask[4] = {255}, network[4] = {127};

    if_meta(rule, NFT_META_NFPROTO, NFPROTO_IPV4, 1);
    if_payload(rule, NFT_PAYLOAD_NETWORK_HEADER, OFFSET_DADDR4, mask, network, sizeof(network));
    mark_as(rule, WITHIN);
}

static void own4(struct nftnl_rule *rule)
{
    struct in_addr own;

    (void)inet_pton(AF_INET, NETWORK_OWN4, &own);
    if_meta(rule, NFT_META_NFPROTO, NFPROTO_IPV4, 1);
    if_payload(rule, NFT_PAYLOAD_NETWORK_HEADER, OFFSET_DADDR4, NULL, &own, sizeof(own));
    mark_as(rule, WITHIN);
}

static void to_address6(struct nftnl_rule *rule, const char *text)
{
    struct in6_addr own;

    (void)inet_pton(AF_INET6, text, &own);
    if_meta(rule, NFT_META_NFPROTO, NFPROTO_IPV6, 1);
    if_payload(rule, NFT_PAYLOAD_NETWORK_HEADER, OFFSET_DADDR6, NULL, &own, sizeof(own));
    mark_as(rule, WITHIN);
}

static void loopback6(struct nftnl_rule *rule)
{
    to_address6(rule, "::1");
}

static void own6(struct nftnl_rule *rule)
{
    to_address6(rule, NETWORK_OWN6);
}

static void a_question(struct nftnl_rule *rule)
{
    const uint16_t dns = htons(NETWORK_DNS_PORT);

    if_protocol(rule, IPPROTO_UDP);
    if_payload(rule, NFT_PAYLOAD_TRANSPORT_HEADER, OFFSET_DPORT, NULL, &dns, sizeof(dns));
    put_port(rule, OFFSET_DPORT, port);
    mark_as(rule, LET_PASS);
}

static void a_connection(struct nftnl_rule *rule)
{
    if_protocol(rule, IPPROTO_TCP);
    intercept(rule);
    mark_as(rule, LET_PASS);
}

/* Ours are not the box's: by its own addresses they are not there. */
static void ours_within(struct nftnl_rule *rule, uint8_t protocol)
{
    if_meta(rule, NFT_META_MARK, WITHIN, sizeof(uint32_t));
    if_protocol(rule, protocol);
    if_payload(rule, NFT_PAYLOAD_TRANSPORT_HEADER, OFFSET_DPORT, NULL, &port, sizeof(port));
}

static void our_listener(struct nftnl_rule *rule)
{
    ours_within(rule, IPPROTO_TCP);
    reject(rule, NFT_REJECT_TCP_RST, 0);
}

static void our_resolver(struct nftnl_rule *rule)
{
    ours_within(rule, IPPROTO_UDP);
    reject(rule, NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_PORT_UNREACH);
}

static void within(struct nftnl_rule *rule)
{
    if_meta(rule, NFT_META_MARK, WITHIN, sizeof(uint32_t));
    take(rule);
}

/* Nobody of ours listens (any more): else a listener of the box's own would have it. */
static void a_lost_connection(struct nftnl_rule *rule)
{
    const uint8_t mask = TCP_SYN | TCP_ACK, syn = TCP_SYN;

    if_protocol(rule, IPPROTO_TCP);
    if_payload(rule, NFT_PAYLOAD_TRANSPORT_HEADER, OFFSET_TCP_FLAGS, &mask, &syn, sizeof(syn));
    reject(rule, NFT_REJECT_TCP_RST, 0);
}

/* A reset, which the kernel sends without our mark. */
static void of_a_connection(struct nftnl_rule *rule)
{
    if_protocol(rule, IPPROTO_TCP);
    take(rule);
}

/* What is refused is told of by these. */
static void unreachable4(struct nftnl_rule *rule)
{
    const uint8_t type = 3;

    if_protocol(rule, IPPROTO_ICMP);
    if_payload(rule, NFT_PAYLOAD_TRANSPORT_HEADER, 0, NULL, &type, sizeof(type));
    take(rule);
}

static void error6(struct nftnl_rule *rule)
{
    const uint8_t mask = 0x80, error = 0;

    if_protocol(rule, IPPROTO_ICMPV6);
    if_payload(rule, NFT_PAYLOAD_TRANSPORT_HEADER, 0, &mask, &error, sizeof(error));
    take(rule);
}

/* As by somebody who has no such port: QUIC goes on by TCP at once. */
static void a_datagram(struct nftnl_rule *rule)
{
    if_protocol(rule, IPPROTO_UDP);
    reject(rule, NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_PORT_UNREACH);
}

static void anything(struct nftnl_rule *rule)
{
    reject(rule, NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
}

static const struct {
    const char *chain;
    rule_fill fill;
} rules[] = {
    {FIRST, an_answer},
    {FIRST, marked},
    {FIRST, loopback4},
    {FIRST, own4},
    {FIRST, loopback6},
    {FIRST, own6},
    {FIRST, a_question},
    {FIRST, a_connection},
    {LAST, marked},
    {LAST, our_listener},
    {LAST, our_resolver},
    {LAST, within},
    {LAST, a_lost_connection},
    {LAST, of_a_connection},
    {LAST, unreachable4},
    {LAST, error6},
    {LAST, a_datagram},
    {LAST, anything},
};
#define RULES (sizeof(rules) / sizeof(rules[0]))

static const struct {
    const char *name;
    uint32_t hook;
    int32_t priority;
} chains[] = {{FIRST, NF_INET_PRE_ROUTING, -150}, {LAST, NF_INET_LOCAL_IN, 0}};

/* ---- messages ---- */

static size_t used;
static uint32_t sequence;

static struct nlmsghdr *begin(uint16_t type, uint16_t flags)
{
    return nftnl_nlmsg_build_hdr(bytes + used, type, NFPROTO_INET, flags, ++sequence);
}

static void end(const struct nlmsghdr *head)
{
    used += (head->nlmsg_len + 3U) & ~(size_t)3;
    if (used > sizeof(bytes) / 2) {
        (void)fprintf(stderr, "network_rules: too much\n");
        exit(1);
    }
}

static void put_batch(uint16_t type)
{
    struct nlmsghdr *head = mnl_nlmsg_put_header(bytes + used);
    struct nfgenmsg *what = mnl_nlmsg_put_extra_header(head, sizeof(*what));

    head->nlmsg_type = type;
    head->nlmsg_flags = NLM_F_REQUEST;
    head->nlmsg_seq = ++sequence;
    what->res_id = htons(NFNL_SUBSYS_NFTABLES);
    end(head);
}

static void put_table(uint16_t type, uint16_t flags)
{
    struct nftnl_table *table = sure(nftnl_table_alloc());
    struct nlmsghdr *head = begin(type, flags);

    nftnl_table_set_str(table, NFTNL_TABLE_NAME, TABLE);
    nftnl_table_nlmsg_build_payload(head, table);
    nftnl_table_free(table);
    end(head);
}

static void put_chain(size_t number)
{
    struct nftnl_chain *chain = sure(nftnl_chain_alloc());
    struct nlmsghdr *head = begin(NFT_MSG_NEWCHAIN, NLM_F_CREATE);

    nftnl_chain_set_str(chain, NFTNL_CHAIN_TABLE, TABLE);
    nftnl_chain_set_str(chain, NFTNL_CHAIN_NAME, chains[number].name);
    nftnl_chain_set_str(chain, NFTNL_CHAIN_TYPE, "filter");
    nftnl_chain_set_u32(chain, NFTNL_CHAIN_HOOKNUM, chains[number].hook);
    nftnl_chain_set_s32(chain, NFTNL_CHAIN_PRIO, chains[number].priority);
    nftnl_chain_set_u32(chain, NFTNL_CHAIN_POLICY, NF_ACCEPT);
    nftnl_chain_nlmsg_build_payload(head, chain);
    nftnl_chain_free(chain);
    end(head);
}

static void put_rule(size_t number)
{
    struct nftnl_rule *rule = sure(nftnl_rule_alloc());
    bool is_last = number + 1 == RULES;
    struct nlmsghdr *head = begin(NFT_MSG_NEWRULE,
                                  NLM_F_CREATE | NLM_F_APPEND | (is_last ? NLM_F_ACK : 0));

    nftnl_rule_set_str(rule, NFTNL_RULE_TABLE, TABLE);
    nftnl_rule_set_str(rule, NFTNL_RULE_CHAIN, rules[number].chain);
    nftnl_rule_set_u32(rule, NFTNL_RULE_FAMILY, NFPROTO_INET);
    rules[number].fill(rule);
    nftnl_rule_nlmsg_build_payload(head, rule);
    nftnl_rule_free(rule);
    end(head);
}

static void rules_open(void)
{
    used = sequence = 0;
    put_batch(NFNL_MSG_BATCH_BEGIN);
    put_table(NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL);
    for (size_t i = 0; i < sizeof(chains) / sizeof(chains[0]); i++)
        put_chain(i);
    for (size_t i = 0; i < RULES; i++)
        put_rule(i);
    put_batch(NFNL_MSG_BATCH_END);
}

static void rules_shut(void)
{
    used = sequence = 0;
    put_batch(NFNL_MSG_BATCH_BEGIN);
    put_table(NFT_MSG_DELTABLE, NLM_F_ACK);
    put_batch(NFNL_MSG_BATCH_END);
}

/* ---- routes ---- */

static void put_address(uint16_t type, uint16_t flags, unsigned char family)
{
    struct nlmsghdr *head = mnl_nlmsg_put_header(bytes + used);
    struct ifaddrmsg *what = mnl_nlmsg_put_extra_header(head, sizeof(*what));
    size_t size = family == AF_INET ? sizeof(struct in_addr) : sizeof(struct in6_addr);
    unsigned char own[16];

    head->nlmsg_type = type;
    head->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    head->nlmsg_seq = ++sequence;
    *what = (struct ifaddrmsg){.ifa_family = family,
                               .ifa_prefixlen = (unsigned char)(8 * size),
                               .ifa_flags = family == AF_INET6 ? IFA_F_NODAD : 0,
                               .ifa_index = LO};
    (void)inet_pton(family, family == AF_INET ? NETWORK_OWN4 : NETWORK_OWN6, own);
    mnl_attr_put(head, IFA_LOCAL, size, own);
    mnl_attr_put(head, IFA_ADDRESS, size, own);
    end(head);
}

static struct nlmsghdr *route_begin(uint16_t type, uint16_t flags, unsigned char family,
                                    unsigned char kind, unsigned char length)
{
    struct nlmsghdr *head = mnl_nlmsg_put_header(bytes + used);
    struct rtmsg *what = mnl_nlmsg_put_extra_header(head, sizeof(*what));

    head->nlmsg_type = type;
    head->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    head->nlmsg_seq = ++sequence;
    *what = (struct rtmsg){.rtm_family = family,
                           .rtm_dst_len = length,
                           .rtm_table = RT_TABLE_LOCAL,
                           .rtm_protocol = RTPROT_STATIC,
                           .rtm_scope = family == AF_INET && kind == RTN_LOCAL ? RT_SCOPE_HOST
                                                                               : RT_SCOPE_UNIVERSE,
                           .rtm_type = kind};
    return head;
}

/* Every address is our own; what the box says comes from one that it has. */
static void put_all(uint16_t type, uint16_t flags, unsigned char family)
{
    struct nlmsghdr *head = route_begin(type, flags, family, RTN_LOCAL, 0);
    unsigned char own[16];

    (void)inet_pton(family, family == AF_INET ? NETWORK_OWN4 : NETWORK_OWN6, own);
    mnl_attr_put_u32(head, RTA_OIF, LO);
    mnl_attr_put(head, RTA_PREFSRC,
                 family == AF_INET ? sizeof(struct in_addr) : sizeof(struct in6_addr), own);
    end(head);
}

/* Multicast, broadcast and what is reserved: to nobody, as without a network, for no ICMP tells of it. */
static void put_nobody(uint16_t type, uint16_t flags, unsigned char family)
{
    static const unsigned char from4[4] = {224}, from6[16] = {255};
    bool is4 = family == AF_INET;
    struct nlmsghdr *head = route_begin(type, flags, family, RTN_THROW, is4 ? 3 : 8);

    mnl_attr_put(head, RTA_DST, is4 ? sizeof(from4) : sizeof(from6), is4 ? from4 : from6);
    end(head);
}

static void routes_open(unsigned char family)
{
    used = sequence = 0;
    put_address(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, family);
    put_nobody(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, family);
    put_all(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, family);
}

static void routes_shut(unsigned char family)
{
    used = sequence = 0;
    put_all(RTM_DELROUTE, 0, family);
    put_nobody(RTM_DELROUTE, 0, family);
    put_address(RTM_DELADDR, 0, family);
}

/* ---- as C ---- */

static void write_bytes(const char *name)
{
    (void)printf("static const unsigned char %s[] = {", name);
    for (size_t i = 0; i < used; i++)
        (void)printf("%s0x%02x,", i % 16 == 0 ? "\n    " : " ", (unsigned char)bytes[i]);
    (void)printf("\n};\n\n");
}

/* Where the port stands: where two that have no byte in common make a difference. */
static void write_ports(void)
{
    static char other[SIZE_MAX_OF_ALL];
    size_t size;

    port = 0xa5a5;
    rules_open();
    size = used;
    memcpy(other, bytes, used);
    memset(bytes, 0, sizeof(bytes));
    port = 0x5a5a;
    rules_open();
    if (used != size)
        exit(1);
    (void)printf("/* Of both sockets' port, in network order. */\n"
                 "static const unsigned short network_rules_ports[] = {");
    for (size_t i = 0; i + 1 < used; i++)
        if (bytes[i] != other[i] && bytes[i + 1] != other[i + 1])
            (void)printf(" %zu,", i++);
    (void)printf(" };\n\n");
}

int main(void)
{
    (void)printf("/* Made by network_rules.c. */\n#pragma once\n\n"
                 "#define NETWORK_MARK %u\n\n",
                 (unsigned)LET_PASS);
    write_ports();
    write_bytes("network_rules_open");
    rules_shut();
    write_bytes("network_rules_shut");
    routes_open(AF_INET);
    write_bytes("network_routes4_open");
    routes_shut(AF_INET);
    write_bytes("network_routes4_shut");
    routes_open(AF_INET6);
    write_bytes("network_routes6_open");
    routes_shut(AF_INET6);
    write_bytes("network_routes6_shut");
    return ferror(stdout) != 0 || fflush(stdout) != 0;
}
