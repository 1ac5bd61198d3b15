/* The DNS of one box: questions out of its socket, or over TCP, and the answers to them.
 *
 * A question is decided by the policy before anything is asked of anybody: what is not allowed leaves
 * nothing outside. What is allowed is looked up, so that a name that does not exist is said not to; the
 * answer is the fake address of the name, and goes out once the name is on disk (one fdatasync() for all
 * that came meanwhile). What a box can say to the world by names is bounded by its rate of lookups
 * (net_limits) and by the number of names in its life (NET_NAMES_MAX).
 *
 * All of it is the box's to forge: each round reads so many questions, and who asks too much is told so at
 * first and then not read for a while. */
#include "net/parts.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#define BATCH 8      /* questions that are read in one round of the loop */
#define BURST_S 4U   /* seconds of the rate that may be asked at once */
#define REFUSALS 50  /* in a second, of questions beyond the rate; then nothing is read */
#define PAUSE_MS 100 /* for so long */
#define PENDING_MAX 512
#define ANSWER_TTL_S 60
#define SAID_MS 5000 /* the same refusal of the same name is one record in this time */
#define WHY_MAX 128
/* What a name that the policy refuses is answered with. */
#define DENIED DNS_NO_NAME

_Static_assert(DNS_UDP_MAX >= 12 + 260 + 28 + 11 + 6 + WHY_MAX, "every answer fits");

struct lookups_question {
    struct lookups *lookups;
    struct dns_question dns;
    /* To whom: a datagram's sender, and the address that it was sent to; or whoever asked. */
    struct sockaddr_in6 from;
    struct in6_pktinfo to;
    void (*answer)(void *arg, const uint8_t *packet, size_t size); /* NULL: it was a datagram */
    void *arg;                                                     /* of a datagram: the lookups */
    struct resolver_lookup *lookup;                                /* while it is looked up */
    uint32_t number; /* while it waits for its name to be on disk */
    TAILQ_ENTRY(lookups_question) link;
};

TAILQ_HEAD(questions, lookups_question);

struct lookups {
    struct net_box *box;
    uv_loop_t *loop;
    int udp;
    uv_poll_t *poll; /* NULL: not attached */
    uv_timer_t pause;
    bool is_syncing, cannot_sync, is_freed;
    uint32_t sync_number; /* the newest when it began */
    uint32_t synced;      /* names up to this one are on disk */
    struct rate rate, refusals;
    struct questions asked, unsynced;
    size_t pending;
    unsigned holds; /* by the loop */
    /* The last refusal that was recorded. */
    char said_name[POLICY_NAME_MAX];
    const char *said_reason;
    uint64_t said_ms;
    uint64_t limited_ms; /* when it was recorded last that there were too many */
};

/* ---- records ---- */

static void record(struct lookups *lookups, const char *name, const struct policy_verdict *verdict,
                   const struct policy_address *address)
{
    struct net_record line = {.kind = NET_LOOKUP,
                              .time_ms = clock_wall_ms(),
                              .name = name,
                              .allowed = verdict->allowed,
                              .reason = verdict->reason,
                              .rule = verdict->rule};

    if (address != NULL)
        line.address = *address;
    net_box_record(lookups->box, &line);
}

/* Clients ask for both families, and again: that is one. */
static void record_once(struct lookups *lookups, const char *name, bool is_allowed,
                        const char *reason, const char *rule)
{
    const struct policy_verdict verdict = {.allowed = is_allowed, .reason = reason, .rule = rule};
    uint64_t now = uv_now(lookups->loop);

    if (lookups->said_reason != NULL && now - lookups->said_ms < SAID_MS &&
        strcmp(lookups->said_reason, reason) == 0 && strcmp(lookups->said_name, name) == 0)
        return;
    lookups->said_ms = now;
    lookups->said_reason = reason; /* of the policy's codes, or ours: constants */
    (void)snprintf(lookups->said_name, sizeof(lookups->said_name), "%s", name);
    record(lookups, name, &verdict, NULL);
}

/* ---- answers ---- */

/* From the address that was asked, or the client takes it for somebody else's. One that cannot be sent
 * now is lost, as datagrams are. */
static void send_answer(const struct lookups_question *question, const uint8_t *packet, size_t size)
{
    union {
        struct cmsghdr header;
        uint8_t bytes[CMSG_SPACE(sizeof(struct in6_pktinfo))];
    } control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = size};
    struct msghdr message = {.msg_name = (void *)(uintptr_t)&question->from,
                             .msg_namelen = sizeof(question->from),
                             .msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = IPPROTO_IPV6;
    header->cmsg_type = IPV6_PKTINFO;
    header->cmsg_len = CMSG_LEN(sizeof(question->to));
    memcpy(CMSG_DATA(header), &question->to, sizeof(question->to));
    (void)sendmsg(question->lookups->udp, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void answer_with(const struct lookups_question *question, enum dns_code code,
                        const uint8_t *address, size_t address_size, const char *why)
{
    uint8_t packet[DNS_UDP_MAX];
    size_t size = dns_answer(&question->dns, code, address, address_size, ANSWER_TTL_S, why, packet,
                             sizeof(packet));

    if (question->answer != NULL)
        question->answer(question->arg, packet, size);
    else if (size > 0)
        send_answer(question, packet, size);
}

static void question_free(struct lookups_question *question)
{
    question->lookups->pending--;
    free(question);
}

static void answer_number(const struct lookups_question *question, uint32_t number)
{
    uint8_t address[16];

    if (question->dns.type == DNS_A) {
        names_address4(number, address);
        answer_with(question, DNS_OK, address, 4, NULL);
    } else {
        names_address6(number, address);
        answer_with(question, DNS_OK, address, 16, NULL);
    }
}

/* ---- on disk ---- */

static void release(struct lookups *lookups)
{
    if (--lookups->holds == 0)
        free(lookups);
}

static void sync_some(struct lookups *lookups);
static void pause_reading(struct lookups *lookups);

/* Those whose names are on disk; with `has_failed` all others, too, for whom nothing more is done. An answer
 * may lead to lookups_forget(), so no pointer into the list is kept over it. */
static void answer_unsynced(struct lookups *lookups, bool has_failed)
{
    for (size_t left = lookups->pending; left > 0 && !TAILQ_EMPTY(&lookups->unsynced); left--) {
        struct lookups_question *question = TAILQ_FIRST(&lookups->unsynced);

        TAILQ_REMOVE(&lookups->unsynced, question, link);
        if (question->number > lookups->synced && !has_failed) {
            TAILQ_INSERT_TAIL(&lookups->unsynced, question, link);
            continue;
        }
        if (question->number <= lookups->synced)
            answer_number(question, question->number);
        else
            answer_with(question, DNS_FAILED, NULL, 0, "the name could not be written to disk");
        question_free(question);
    }
}

static void on_synced(void *arg, int status)
{
    struct lookups *lookups = arg;

    lookups->is_syncing = false;
    if (!lookups->is_freed && status == 0)
        lookups->synced = lookups->sync_number;
    if (!lookups->is_freed && status < 0) {
        /* The next call could say that all is well, and it would not be true. */
        lookups->cannot_sync = true;
        log_say(
            LOG_LEVEL_ERROR, "names_failed",
            "cannot write the names that a sandbox looked up: %s; it gets no new ones until the "
            "engine is restarted",
            uv_strerror(status));
    }
    if (!lookups->is_freed)
        answer_unsynced(lookups, status < 0);
    if (!lookups->is_freed)
        sync_some(lookups);
    release(lookups);
}

/* One at a time; what comes meanwhile is for the next. */
static void sync_some(struct lookups *lookups)
{
    const struct lookups_question *question = NULL;
    int fd;

    if (lookups->is_syncing || TAILQ_EMPTY(&lookups->unsynced))
        return;
    lookups->sync_number = lookups->synced;
    TAILQ_FOREACH(question, &lookups->unsynced, link)
    {
        if (question->number > lookups->sync_number)
            lookups->sync_number = question->number;
    }
    /* Of its own: the names may be closed before it is over. */
    fd = lookups->cannot_sync ? -1
                              : fcntl(names_fd(net_box_names(lookups->box)), F_DUPFD_CLOEXEC, 3);
    if (fd < 0 || syncs_ask(net_syncs(net_box_net(lookups->box)),
                            net_box_tenant(lookups->box)->name, fd, on_synced, lookups) < 0) {
        answer_unsynced(lookups, true);
        return;
    }
    lookups->is_syncing = true;
    lookups->holds++;
}

/* ---- deciding ---- */

/* Whether the policy lets the name be looked up; if not it was answered. */
static bool is_allowed(const struct lookups_question *question)
{
    struct lookups *lookups = question->lookups;
    const char *name = question->dns.name;
    struct policy_verdict verdict = {.reason = "bad_name"};
    char why[WHY_MAX];

    if (name[0] != '\0')
        verdict = policy_lookup(net_box_policy(lookups->box), name);
    if (verdict.allowed)
        return true;
    record_once(lookups, name, false, verdict.reason, verdict.rule);
    (void)snprintf(why, sizeof(why), "the network policy of this sandbox refuses it (%s)",
                   verdict.reason);
    answer_with(question, DENIED, NULL, 0, why);
    return false;
}

/* ---- what came of a lookup ---- */

static int take_name(struct lookups *lookups, const char *name, bool *is_new, struct error *err)
{
    struct names *names = net_box_names(lookups->box);
    struct net_tenant *tenant = net_box_tenant(lookups->box);
    int number;

    if (tenant->names_bytes > TENANT_NAMES_BYTES && names_look(names, name) == 0)
        return error_set(err, "names_full", 0,
                         "the sandboxes of this tenant have looked up so many names that they get "
                         "no more: delete some of them");
    number = names_take(names, name, is_new, err);
    net_box_count_names(lookups->box);
    return number;
}

/* The name has addresses: its number, which is made now if it is new. */
static void give_number(struct lookups_question *question, const struct policy_address *first)
{
    struct lookups *lookups = question->lookups;
    const char *name = question->dns.name;
    struct error err;
    bool is_new = false;
    int number = take_name(lookups, name, &is_new, &err);

    if (number < 0) {
        record_once(lookups, name, false, strcmp(err.code, "names_full") == 0 ? "limit" : "failed",
                    NULL);
        answer_with(question, DNS_FAILED, NULL, 0, err.text);
        question_free(question);
        return;
    }
    if (is_new) {
        struct policy_verdict verdict = policy_lookup(net_box_policy(lookups->box), name);

        record(lookups, name, &verdict, first);
    }
    if ((uint32_t)number <= lookups->synced) {
        answer_number(question, (uint32_t)number);
        question_free(question);
        return;
    }
    question->number = (uint32_t)number;
    TAILQ_INSERT_TAIL(&lookups->unsynced, question, link);
    sync_some(lookups);
}

static void on_looked_up(void *arg, const struct policy_address *addresses, size_t count,
                         uint32_t ttl_s, enum dns_code code)
{
    static const struct policy_address nowhere = {{0}};
    struct lookups_question *question = arg;
    struct lookups *lookups = question->lookups;

    (void)ttl_s; /* a fake address stays */
    TAILQ_REMOVE(&lookups->asked, question, link);
    question->lookup = NULL;
    if (!is_allowed(question)) { /* any more */
        question_free(question);
        return;
    }
    /* Behind a proxy there may be no resolver that knows the world: the proxy does, when it is dialled. */
    if ((code == DNS_OK && count > 0) || net_proxy_has_names(net_box_net(lookups->box))) {
        give_number(question, count > 0 ? &addresses[0] : &nowhere);
        return;
    }
    if (code == DNS_NO_NAME)
        record_once(lookups, question->dns.name, true, "no_such_name", NULL);
    answer_with(question, code, NULL, 0,
                code == DNS_FAILED ? "the resolvers of the host did not answer" : NULL);
    question_free(question);
}

/* ---- questions ---- */

static bool ends_with(const char *name, const char *end)
{
    size_t size = strlen(name), part = strlen(end);

    return size >= part && strcmp(name + size - part, end) == 0 &&
           (size == part || name[size - part - 1] == '.');
}

/* What needs neither the policy nor anybody else; true: it was answered. */
static bool answer_by_itself(const struct lookups_question *question, int wrong)
{
    static const uint8_t loopback4[4] = {127, 0, 0, 1}, loopback6[16] = {[15] = 1};
    const struct dns_question *dns = &question->dns;

    if (wrong != DNS_OK) {
        answer_with(question, (enum dns_code)wrong, NULL, 0, NULL);
        return true;
    }
    /* The box's own (RFC 6761). */
    if (ends_with(dns->name, "localhost")) {
        if (dns->type == DNS_A)
            answer_with(question, DNS_OK, loopback4, sizeof(loopback4), NULL);
        else
            answer_with(question, DNS_OK, dns->type == DNS_AAAA ? loopback6 : NULL,
                        sizeof(loopback6), NULL);
        return true;
    }
    /* Whose an address is, is nobody's to know: programs ask it for their logs, and wait for it. */
    if (ends_with(dns->name, "in-addr.arpa") || ends_with(dns->name, "ip6.arpa")) {
        answer_with(question, DNS_NO_NAME, NULL, 0, NULL);
        return true;
    }
    return false;
}

/* Takes the question, and answers it now or later. */
static void decide(struct lookups_question *question, int wrong)
{
    struct lookups *lookups = question->lookups;
    struct resolver_lookup *lookup;

    lookups->pending++;
    if (answer_by_itself(question, wrong) || !is_allowed(question)) {
        question_free(question);
        return;
    }
    /* Of other types there is nothing: what a name has beside addresses (MX, TXT, HTTPS) would tell where
     * else it is, or carry what the policy does not see. */
    if (question->dns.type != DNS_A && question->dns.type != DNS_AAAA) {
        answer_with(question, DNS_OK, NULL, 0, NULL);
        question_free(question);
        return;
    }
    if (lookups->pending > PENDING_MAX) {
        answer_with(question, DNS_FAILED, NULL, 0, "too many lookups are under way");
        question_free(question);
        return;
    }
    TAILQ_INSERT_TAIL(&lookups->asked, question, link);
    lookup = resolver_look(net_resolver(net_box_net(lookups->box)),
                           net_box_tenant(lookups->box)->name, net_box_lane(lookups->box),
                           question->dns.name, on_looked_up, question);
    if (lookup != NULL) /* or it was answered, and is gone */
        question->lookup = lookup;
}

/* Tells the sender `why`, or nothing (NULL: it was no question). Whoever goes on like this is not read
 * for a while: to throw away what he sends costs us time, too. */
static void refuse(struct lookups *lookups, const struct lookups_question *question,
                   const char *why)
{
    bool may_tell = rate_take(&lookups->refusals, REFUSALS, REFUSALS,
                              uv_now(lookups->loop) * 1000000);

    if (may_tell && why != NULL)
        answer_with(question, DNS_REFUSED, NULL, 0, why);
    else if (question->answer != NULL)
        question->answer(question->arg, NULL, 0);
    else if (!may_tell)
        pause_reading(lookups);
}

/* Whether one more may be asked; if not that was seen to. */
static bool has_turn(struct lookups *lookups, const struct lookups_question *question)
{
    const struct policy_verdict limit = {.reason = "limit"};
    uint64_t now = uv_now(lookups->loop);
    uint32_t rate = net_box_limits(lookups->box)->lookups_per_second;

    if (rate_take(&lookups->rate, rate, (uint64_t)rate * BURST_S, now * 1000000) &&
        tenant_may_look(net_box_tenant(lookups->box), now))
        return true;
    if (lookups->limited_ms == 0 || now - lookups->limited_ms >= SAID_MS) {
        lookups->limited_ms = now;
        record(lookups, question->dns.name, &limit, NULL);
    }
    refuse(lookups, question, "too many lookups");
    return false;
}

/* One question, whose sender `to_whom` says. */
static void take(struct lookups *lookups, const uint8_t *packet, size_t size,
                 const struct lookups_question *to_whom)
{
    struct lookups_question here = *to_whom, *question;
    int wrong = dns_parse(packet, size, &here.dns);

    here.lookups = lookups;
    if (wrong < 0) {
        refuse(lookups, &here, NULL);
        return;
    }
    if (!has_turn(lookups, &here))
        return;
    question = malloc(sizeof(*question));
    if (question == NULL) {
        answer_with(&here, DNS_FAILED, NULL, 0, NULL);
        return;
    }
    *question = here;
    decide(question, wrong);
}

void lookups_ask(struct lookups *lookups, const uint8_t *packet, size_t size,
                 void (*answer)(void *arg, const uint8_t *packet, size_t size), void *arg)
{
    const struct lookups_question to_whom = {.answer = answer, .arg = arg};

    take(lookups, packet, size, &to_whom);
}

static void forget_in(struct questions *questions, const void *arg)
{
    struct lookups_question *question = TAILQ_FIRST(questions), *next;

    for (; question != NULL; question = next) {
        next = TAILQ_NEXT(question, link);
        if (arg != NULL && question->arg != arg)
            continue;
        if (question->lookup != NULL)
            resolver_cancel(question->lookup);
        TAILQ_REMOVE(questions, question, link);
        question_free(question);
    }
}

void lookups_forget(struct lookups *lookups, const void *arg)
{
    forget_in(&lookups->asked, arg);
    forget_in(&lookups->unsynced, arg);
}

/* ---- the socket ---- */

static void on_readable(uv_poll_t *poll, int status, int events);

static void on_pause_over(uv_timer_t *timer)
{
    struct lookups *lookups = timer->data;

    if (lookups->poll != NULL)
        (void)uv_poll_start(lookups->poll, UV_READABLE, on_readable);
}

/* The kernel keeps a few and throws the rest away, which costs us nothing. */
static void pause_reading(struct lookups *lookups)
{
    if (lookups->poll == NULL)
        return;
    (void)uv_poll_stop(lookups->poll);
    (void)uv_timer_start(&lookups->pause, on_pause_over, PAUSE_MS, 0);
}

static bool find_asked(struct msghdr *message, struct in6_pktinfo *to)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header))
        if (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_PKTINFO &&
            header->cmsg_len == CMSG_LEN(sizeof(*to))) {
            memcpy(to, CMSG_DATA(header), sizeof(*to));
            return true;
        }
    return false;
}

struct batch {
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    struct sockaddr_in6 from[BATCH];
    union {
        struct cmsghdr header;
        uint8_t bytes[CMSG_SPACE(sizeof(struct in6_pktinfo)) + 64];
    } controls[BATCH];
    uint8_t packets[BATCH][DNS_QUESTION_MAX];
};

static int batch_read(struct batch *batch, int udp)
{
    memset(batch->messages, 0, sizeof(batch->messages));
    for (size_t i = 0; i < BATCH; i++) {
        struct msghdr *message = &batch->messages[i].msg_hdr;

        batch->parts[i] = (struct iovec){.iov_base = batch->packets[i],
                                         .iov_len = sizeof(batch->packets[i])};
        message->msg_name = &batch->from[i];
        message->msg_namelen = sizeof(batch->from[i]);
        message->msg_iov = &batch->parts[i];
        message->msg_iovlen = 1;
        message->msg_control = &batch->controls[i];
        message->msg_controllen = sizeof(batch->controls[i]);
    }
    return recvmmsg(udp, batch->messages, BATCH, MSG_DONTWAIT, NULL);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct lookups *lookups = poll->data;
    struct batch batch;
    int count = batch_read(&batch, lookups->udp);

    (void)status; /* what the socket has to say, it said just now */
    (void)events;
    for (int i = 0; i < count && lookups->poll == poll; i++) {
        struct msghdr *message = &batch.messages[i].msg_hdr;
        struct lookups_question to_whom = {.from = batch.from[i], .arg = lookups};

        if (message->msg_namelen == sizeof(batch.from[i]) &&
            (message->msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
            find_asked(message, &to_whom.to))
            take(lookups, batch.packets[i], batch.messages[i].msg_len, &to_whom);
    }
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct lookups *lookups = handle->data;

    free(handle);
    release(lookups);
}

void lookups_attach(struct lookups *lookups, int udp)
{
    uv_poll_t *poll = malloc(sizeof(*poll));

    lookups_detach(lookups);
    if (poll == NULL || uv_poll_init(lookups->loop, poll, udp) < 0) {
        log_say(LOG_LEVEL_ERROR, "lookups_failed",
                "a sandbox gets no names: no memory, or no file");
        free(poll);
        fd_close(&udp);
        return;
    }
    poll->data = lookups;
    lookups->holds++;
    lookups->poll = poll;
    lookups->udp = udp;
    (void)uv_poll_start(poll, UV_READABLE, on_readable);
}

void lookups_detach(struct lookups *lookups)
{
    if (lookups->poll == NULL)
        return;
    lookups_forget(lookups, lookups); /* the datagrams */
    (void)uv_timer_stop(&lookups->pause);
    uv_close((uv_handle_t *)lookups->poll, on_poll_closed);
    lookups->poll = NULL;
    fd_close(&lookups->udp);
}

/* ---- the whole ---- */

struct lookups *lookups_new(struct net_box *box)
{
    struct lookups *lookups = calloc(1, sizeof(*lookups));

    if (lookups == NULL)
        return NULL;
    lookups->box = box;
    lookups->loop = net_loop(net_box_net(box));
    lookups->udp = -1;
    lookups->synced = 1; /* what the file had may have been written and not synced */
    TAILQ_INIT(&lookups->asked);
    TAILQ_INIT(&lookups->unsynced);
    (void)uv_timer_init(lookups->loop, &lookups->pause);
    lookups->pause.data = lookups;
    lookups->holds = 1;
    return lookups;
}

static void on_timer_closed(uv_handle_t *handle)
{
    release(handle->data);
}

void lookups_free(struct lookups *lookups)
{
    if (lookups == NULL)
        return;
    lookups->is_freed = true;
    lookups_detach(lookups);
    forget_in(&lookups->asked, NULL);
    forget_in(&lookups->unsynced, NULL);
    uv_close((uv_handle_t *)&lookups->pause, on_timer_closed);
}
