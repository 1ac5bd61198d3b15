/* Asking the name servers of the host, by c-ares: the one file that knows that library.
 *
 * Both families of a name are asked for at once. No search list, no aliases of the environment
 * (HOSTALIASES, LOCALDOMAIN) and no nsswitch: a box's name means the same whatever the engine was started
 * with. With the host's own resolvers (/etc/resolv.conf, looked at again every 5 s when it is needed) its
 * /etc/hosts comes first, as it does for programs of the host; resolvers that were set are all there is.
 * A channel is replaced after so many names, because it asks from one port as long as it is busy, and
 * whoever would forge an answer has to guess that. It never calls getaddrinfo(). */
#include "net/upstream.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/parse.h"

#include <ares.h>
#include <arpa/nameser.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>

#define RESOLV_CONF "/etc/resolv.conf"
#define HOSTS "/etc/hosts"
#define HOSTS_MAX \
    65536 /* it is read for each name, so a longer one (a list of what to block) is not */
#define HOSTS_TTL_S 5
#define LOOK_AGAIN_MS 5000
#define SERVERS_MAX 8
#define CHANNEL_NAMES 64 /* of one channel; then comes a new one, from another port */
#define CHANNELS_MAX 16  /* while old ones are busy: 150 KB each */
/* One server that does not answer costs 1 + 2 + 4 s; resolve.c gives up after 10. */
#define TRY_MS 1000
#define TRIES 3
#define EDNS_SIZE 1232

struct watch {
    uv_poll_t poll;
    struct upstream *upstream;
    struct upstream_channel *channel; /* not any more once it is closing */
    ares_socket_t fd;
    LIST_ENTRY(watch) link;
};

struct upstream_channel {
    struct upstream *upstream;
    ares_channel ares;
    unsigned asked, pending;
    bool is_retired;
    LIST_HEAD(channel_watches, watch) watches;
    LIST_ENTRY(upstream_channel) link;
};

struct upstream {
    uv_loop_t *loop;
    struct ares_addr_port_node servers[SERVERS_MAX];
    size_t server_count; /* 0: the host's */
    LIST_HEAD(upstream_channels, upstream_channel) channels;
    struct upstream_channel *current;
    size_t channel_count;
    struct stat conf; /* of /etc/resolv.conf, when the current channel was made */
    uint64_t looked_ms;
    bool uses_hosts;
    unsigned handles; /* open in the loop, and one for ourselves */
    void (*closed)(void *arg);
    void *arg;
};

/* ---- sockets ---- */

static void release(struct upstream *upstream)
{
    if (--upstream->handles > 0)
        return;
    upstream->closed(upstream->arg);
    ares_library_cleanup();
    free(upstream);
}

static void on_watch_closed(uv_handle_t *handle)
{
    struct watch *watch = handle->data;
    struct upstream *upstream = watch->upstream;

    free(watch);
    release(upstream);
}

static void on_socket(uv_poll_t *poll, int status, int events)
{
    struct watch *watch = poll->data;
    ares_socket_t fd = watch->fd; /* the watch may be gone after the first call */
    ares_channel ares = watch->channel->ares;

    if (status < 0)
        events = UV_READABLE | UV_WRITABLE;
    ares_process_fd(ares, (events & UV_READABLE) != 0 ? fd : ARES_SOCKET_BAD,
                    (events & UV_WRITABLE) != 0 ? fd : ARES_SOCKET_BAD);
}

static struct watch *watch_find(struct upstream_channel *channel, ares_socket_t fd)
{
    struct watch *watch;

    LIST_FOREACH(watch, &channel->watches, link)
    if (watch->fd == fd)
        return watch;
    return NULL;
}

static void watch_close(struct watch *watch)
{
    LIST_REMOVE(watch, link);
    uv_close((uv_handle_t *)&watch->poll, on_watch_closed);
}

static struct watch *watch_new(struct upstream_channel *channel, ares_socket_t fd)
{
    struct watch *watch = calloc(1, sizeof(*watch));

    if (watch == NULL || uv_poll_init(channel->upstream->loop, &watch->poll, fd) < 0) {
        free(watch);
        return NULL;
    }
    watch->poll.data = watch;
    watch->upstream = channel->upstream;
    watch->channel = channel;
    watch->fd = fd;
    LIST_INSERT_HEAD(&channel->watches, watch, link);
    channel->upstream->handles++;
    return watch;
}

/* c-ares says what it waits for; it closes a socket only after this said that it waits for nothing there. */
static void on_state(void *arg, ares_socket_t fd, int readable, int writable)
{
    struct upstream_channel *channel = arg;
    struct watch *watch = watch_find(channel, fd);

    if (readable == 0 && writable == 0) {
        if (watch != NULL)
            watch_close(watch);
        return;
    }
    if (watch == NULL)
        watch = watch_new(channel, fd);
    /* Without one the question runs into its timeout. */
    if (watch != NULL)
        (void)uv_poll_start(&watch->poll,
                            (readable != 0 ? UV_READABLE : 0) | (writable != 0 ? UV_WRITABLE : 0),
                            on_socket);
}

/* ---- channels ---- */

static int channel_init(struct upstream_channel *channel, struct upstream *upstream)
{
    char lookups[] = "b", nothing[] = "/dev/null";
    struct ares_options options = {
        .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | ARES_FLAG_EDNS,
        .timeout = TRY_MS,
        .tries = TRIES,
        .ndots = 1,
        .lookups = lookups,
        .ednspsz = EDNS_SIZE,
        .sock_state_cb = on_state,
        .sock_state_cb_data = channel,
        .resolvconf_path = nothing,
    };
    int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_NDOTS |
               ARES_OPT_LOOKUPS | ARES_OPT_DOMAINS | ARES_OPT_EDNSPSZ | ARES_OPT_SOCK_STATE_CB |
               ARES_OPT_NOROTATE;
    int status;

    if (upstream->server_count > 0)
        mask |= ARES_OPT_RESOLVCONF;
    status = ares_init_options(&channel->ares, &options, mask);
    if (status != ARES_SUCCESS || upstream->server_count == 0)
        return status;
    status = ares_set_servers_ports(channel->ares, upstream->servers);
    if (status != ARES_SUCCESS)
        ares_destroy(channel->ares);
    return status;
}

/* NULL: no memory, or no more files. */
static struct upstream_channel *channel_new(struct upstream *upstream)
{
    struct upstream_channel *channel = calloc(1, sizeof(*channel));
    int status;

    if (channel == NULL)
        return NULL;
    channel->upstream = upstream;
    LIST_INIT(&channel->watches);
    status = channel_init(channel, upstream);
    if (status != ARES_SUCCESS) {
        log_say(LOG_LEVEL_WARN, "resolver_failed", "cannot prepare to ask for names: %s",
                ares_strerror(status));
        free(channel);
        return NULL;
    }
    LIST_INSERT_HEAD(&upstream->channels, channel, link);
    upstream->channel_count++;
    return channel;
}

/* Ends all that it was asked; never from within one of its calls. */
static void channel_free(struct upstream_channel *channel)
{
    struct upstream *upstream = channel->upstream;

    if (upstream->current == channel)
        upstream->current = NULL;
    LIST_REMOVE(channel, link);
    upstream->channel_count--;
    ares_destroy(channel->ares);
    while (!LIST_EMPTY(&channel->watches))
        watch_close(LIST_FIRST(&channel->watches));
    free(channel);
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* The host's files may have changed: whether the current channel was made of older ones. */
static bool is_outdated(struct upstream *upstream)
{
    struct stat conf = {0}, hosts = {0};
    bool is_first = upstream->looked_ms == 0, had_hosts, is_other;

    if (upstream->server_count > 0 ||
        (upstream->looked_ms != 0 && uv_now(upstream->loop) - upstream->looked_ms < LOOK_AGAIN_MS))
        return false;
    upstream->looked_ms = uv_now(upstream->loop);
    if (stat(RESOLV_CONF, &conf) < 0)
        memset(&conf, 0, sizeof(conf));
    is_other = !is_same_file(&conf, &upstream->conf);
    upstream->conf = conf;
    had_hosts = upstream->uses_hosts;
    upstream->uses_hosts = stat(HOSTS, &hosts) == 0 && S_ISREG(hosts.st_mode) &&
                           hosts.st_size <= HOSTS_MAX;
    if (hosts.st_size > HOSTS_MAX && (had_hosts || is_first))
        log_say(LOG_LEVEL_WARN, "hosts_too_long",
                "%s is longer than %d bytes, so sandboxes get no name from it", HOSTS, HOSTS_MAX);
    return is_other;
}

static struct upstream_channel *channel_current(struct upstream *upstream)
{
    struct upstream_channel *old = upstream->current;

    if (is_outdated(upstream) && old != NULL)
        old->is_retired = true;
    if (old != NULL && old->asked >= CHANNEL_NAMES && upstream->channel_count < CHANNELS_MAX)
        old->is_retired = true;
    if (old != NULL && !old->is_retired)
        return old;
    upstream->current = channel_new(upstream);
    return upstream->current;
}

/* ---- asking ---- */

static void half_over(struct upstream_half *half, enum dns_code code)
{
    struct upstream_ask *ask = half->ask;

    half->is_over = true;
    half->code = code;
    ask->pending--;
    ask->over(ask);
}

static enum dns_code code_of(int status)
{
    return status == ARES_SUCCESS || status == ARES_ENODATA ? DNS_OK
           : status == ARES_ENOTFOUND                       ? DNS_NO_NAME
                                                            : DNS_FAILED;
}

static void add(struct upstream_half *half, const void *address, size_t size, int ttl)
{
    struct policy_address *to = &half->addresses[half->count++];
    uint32_t ttl_s = ttl < 0 ? 0 : (uint32_t)ttl;

    memset(to, 0, sizeof(*to));
    if (size == 4)
        to->bytes[10] = to->bytes[11] = 0xff;
    memcpy(to->bytes + sizeof(to->bytes) - size, address, size);
    if (half->count == 1 || ttl_s < half->ttl_s)
        half->ttl_s = ttl_s;
}

static int parse_a(struct upstream_half *half, const unsigned char *packet, int size)
{
    struct ares_addrttl found[RESOLVED_MAX];
    int count = RESOLVED_MAX, status = ares_parse_a_reply(packet, size, NULL, found, &count);

    for (int i = 0; status == ARES_SUCCESS && i < count; i++)
        add(half, &found[i].ipaddr, 4, found[i].ttl);
    return status;
}

static int parse_aaaa(struct upstream_half *half, const unsigned char *packet, int size)
{
    struct ares_addr6ttl found[RESOLVED_MAX];
    int count = RESOLVED_MAX, status = ares_parse_aaaa_reply(packet, size, NULL, found, &count);

    for (int i = 0; status == ARES_SUCCESS && i < count; i++)
        add(half, &found[i].ip6addr, 16, found[i].ttl);
    return status;
}

static void on_answer(void *arg, int status, int timeouts, unsigned char *packet, int size)
{
    struct upstream_half *half = arg;

    (void)timeouts;
    half->ask->channel->pending--;
    if (status == ARES_SUCCESS)
        status = half == &half->ask->halves[0] ? parse_a(half, packet, size)
                                               : parse_aaaa(half, packet, size);
    half_over(half, code_of(status));
}

static void take_host(struct upstream_half *half, const struct hostent *host)
{
    for (char **at = host->h_addr_list; *at != NULL && half->count < RESOLVED_MAX; at++)
        add(half, *at, (size_t)host->h_length, HOSTS_TTL_S);
}

/* Whether the host's own list of hosts has the name, in either family. */
static bool ask_hosts(struct upstream_channel *channel, const char *name, struct upstream_ask *ask)
{
    static const int families[] = {AF_INET, AF_INET6};

    for (size_t i = 0; i < 2; i++) {
        struct hostent *host = NULL;

        if (ares_gethostbyname_file(channel->ares, name, families[i], &host) == ARES_SUCCESS)
            take_host(&ask->halves[i], host);
        if (host != NULL)
            ares_free_hostent(host);
    }
    return ask->halves[0].count + ask->halves[1].count > 0;
}

void upstream_ask(struct upstream *upstream, const char *name, struct upstream_ask *ask)
{
    struct upstream_channel *channel = channel_current(upstream);
    bool is_known;

    for (size_t i = 0; i < 2; i++)
        ask->halves[i] = (struct upstream_half){.ask = ask};
    ask->pending = 2;
    ask->channel = channel;
    is_known = channel != NULL && upstream->server_count == 0 && upstream->uses_hosts &&
               ask_hosts(channel, name, ask);
    if (channel == NULL || is_known) {
        half_over(&ask->halves[0], is_known ? DNS_OK : DNS_FAILED);
        half_over(&ask->halves[1], is_known ? DNS_OK : DNS_FAILED);
        return;
    }
    channel->asked++;
    channel->pending += 2;
    ares_query(channel->ares, name, ns_c_in, ns_t_a, on_answer, &ask->halves[0]);
    ares_query(channel->ares, name, ns_c_in, ns_t_aaaa, on_answer, &ask->halves[1]);
}

void upstream_tick(struct upstream *upstream)
{
    struct upstream_channel *channel = LIST_FIRST(&upstream->channels), *next;

    for (; channel != NULL; channel = next) {
        next = LIST_NEXT(channel, link);
        if (channel->pending > 0)
            ares_process_fd(channel->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
        if (channel->pending == 0 && channel != upstream->current)
            channel_free(channel);
    }
}

/* ---- the whole ---- */

/* "1.2.3.4", "1.2.3.4:53", "2001:db8::1", "[2001:db8::1]:53". */
static int parse_server(const char *text, struct ares_addr_port_node *out, struct error *err)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    char host[64];
    const char *colon = strrchr(text, ':'), *begin = text, *end = text + strlen(text);
    struct policy_address address;
    uint64_t port = 53;

    if (text[0] == '[') {
        begin = text + 1;
        end = strchr(text, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':'))
            return -1;
        colon = end[1] == ':' ? end + 1 : NULL;
    } else if (colon != NULL && colon == strchr(text, ':'))
        end = colon;
    else
        colon = NULL;
    if (colon != NULL && parse_count("the port", colon + 1, 1, 65535, &port, err) < 0)
        return -1;
    if ((size_t)(end - begin) >= sizeof(host))
        return -1;
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    if (policy_address_parse(host, &address) < 0)
        return -1;
    out->family = memcmp(address.bytes, mapped, sizeof(mapped)) == 0 ? AF_INET : AF_INET6;
    if (out->family == AF_INET)
        memcpy(&out->addr.addr4, address.bytes + 12, 4);
    else
        memcpy(&out->addr.addr6, address.bytes, 16);
    out->udp_port = out->tcp_port = (int)port;
    return 0;
}

static int parse_servers(struct upstream *upstream, const char *text, struct error *err)
{
    char part[80];
    struct error why;

    while (text != NULL) {
        const char *comma = strchrnul(text, ',');
        size_t length;

        text += strspn(text, " ");
        length = comma > text ? (size_t)(comma - text) : 0;
        while (length > 0 && text[length - 1] == ' ')
            length--;
        if (upstream->server_count == SERVERS_MAX)
            return error_set(err, "bad_resolvers", 0, "more than %d resolvers are named",
                             SERVERS_MAX);
        memcpy(part, text, length < sizeof(part) ? length : 0);
        part[length < sizeof(part) ? length : 0] = '\0';
        if (parse_server(part, &upstream->servers[upstream->server_count], &why) < 0)
            return error_set(err, "bad_resolvers", 0,
                             "\"%.80s\" is no address of a resolver: write ADDRESS, ADDRESS:PORT "
                             "or [ADDRESS]:PORT, with a comma between two",
                             part);
        if (upstream->server_count > 0)
            upstream->servers[upstream->server_count - 1].next =
                &upstream->servers[upstream->server_count];
        upstream->server_count++;
        text = *comma == ',' ? comma + 1 : NULL;
    }
    return 0;
}

int net_resolvers_check(const char *text, struct error *err)
{
    _cleanup_free_ struct upstream *upstream = calloc(1, sizeof(*upstream));

    return upstream != NULL ? parse_servers(upstream, text, err)
                            : error_set(err, "no_memory", ENOMEM, "cannot read the resolvers");
}

int upstream_open(uv_loop_t *loop, const char *servers, struct upstream **out, struct error *err)
{
    struct upstream *upstream = calloc(1, sizeof(*upstream));
    int status;

    if (upstream == NULL)
        return error_set(err, "no_memory", ENOMEM, "cannot prepare to ask for names");
    upstream->loop = loop;
    upstream->handles = 1;
    LIST_INIT(&upstream->channels);
    if (parse_servers(upstream, servers, err) < 0) {
        free(upstream);
        return -1;
    }
    status = ares_library_init(ARES_LIB_INIT_ALL);
    if (status != ARES_SUCCESS) {
        free(upstream);
        return error_set(err, "resolver_failed", 0, "cannot prepare to ask for names: %s",
                         ares_strerror(status));
    }
    *out = upstream;
    return 0;
}

void upstream_close(struct upstream *upstream, void (*closed)(void *arg), void *arg)
{
    upstream->closed = closed;
    upstream->arg = arg;
    while (!LIST_EMPTY(&upstream->channels))
        channel_free(LIST_FIRST(&upstream->channels));
    release(upstream);
}
