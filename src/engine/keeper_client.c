/* See keeper_client.h. */
#include "engine/keeper_client.h"

#include "base/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READS_AT_ONCE 64 /* then the loop's other work has its turn */
#define FDS_MAX 4

struct pending {
    struct pending *next;
    uint32_t id;
    uint32_t wants; /* type of the answer */
    keeper_answered answered;
    void *arg;
};

struct unsent {
    struct unsent *next;
    size_t size, sent;
    union keeper_request request;
};

#define SLOTS 256
struct keeper_client {
    uv_poll_t poll, write_poll;
    uv_idle_t idle;       /* runs while what is pending must fail */
    int socket, requests; /* of answers; the pipe */
    const struct keeper_calls *calls;
    void *arg;
    struct pending *slots[SLOTS]; /* by id */
    size_t pending;
    uint32_t last_id;
    struct unsent *first, *last;
    bool is_lost, has_told;
    unsigned closing;
    struct error error;
};

static size_t request_size(enum keeper_type type)
{
    switch (type) {
    case KEEPER_HELLO:
        return sizeof(struct keeper_hello);
    case KEEPER_MAKE:
        return sizeof(struct keeper_make);
    case KEEPER_CLAIM:
        return sizeof(struct keeper_claim);
    case KEEPER_USAGE:
    case KEEPER_END:
    case KEEPER_CUT_DISK:
        return sizeof(struct keeper_of_box);
    case KEEPER_NETWORK:
        return sizeof(struct keeper_network_of);
    case KEEPER_DISK_ROOM:
        return sizeof(struct keeper_head);
    case KEEPER_HOLD_DISK:
        return sizeof(struct keeper_hold);
    case KEEPER_ATTACH:
        return sizeof(struct keeper_attach);
    case KEEPER_DETACH:
        return sizeof(struct keeper_detach);
    case KEEPER_DROP_DISK:
    case KEEPER_WEIGH_DISK:
        return sizeof(struct keeper_of_disk);
    default:
        abort();
    }
}

static uint32_t answer_type(enum keeper_type type, const union keeper_request *request)
{
    switch (type) {
    case KEEPER_NETWORK:
        return request->network.what == KEEPER_NETWORK_SHUT ? KEEPER_DONE : KEEPER_SOCKET;
    case KEEPER_MAKE:
        return KEEPER_MADE;
    case KEEPER_USAGE:
    case KEEPER_WEIGH_DISK:
        return KEEPER_USED;
    case KEEPER_END:
        return KEEPER_ENDED;
    case KEEPER_DISK_ROOM:
    case KEEPER_HOLD_DISK:
        return KEEPER_DISKS;
    default:
        return KEEPER_DONE;
    }
}

/* ---- what is pending ---- */

static struct pending **pending_find(struct keeper_client *client, uint32_t id)
{
    struct pending **at = &client->slots[id % SLOTS];

    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static void pending_answer(struct keeper_client *client, struct pending **at,
                           const union keeper_answer *answer, int fd, const struct error *err)
{
    struct pending *pending = *at;

    *at = pending->next;
    client->pending--;
    pending->answered(pending->arg, answer, fd, err);
    free(pending);
}

/* ---- lost ---- */

static void unsent_free(struct keeper_client *client)
{
    while (client->first != NULL) {
        struct unsent *unsent = client->first;

        client->first = unsent->next;
        free(unsent);
    }
    client->last = NULL;
}

static void fail_pending(uv_idle_t *idle)
{
    struct keeper_client *client = idle->data;

    for (size_t i = 0; i < SLOTS && client->closing == 0; i++)
        while (client->slots[i] != NULL && client->closing == 0)
            pending_answer(client, &client->slots[i], NULL, -1, &client->error);
    if (client->closing > 0 || client->pending > 0)
        return;
    (void)uv_idle_stop(idle);
    if (!client->has_told) {
        client->has_told = true;
        client->calls->lost(client->arg, &client->error);
    }
}

static void lose(struct keeper_client *client)
{
    if (client->is_lost)
        return;
    client->is_lost = true;
    (void)uv_poll_stop(&client->poll);
    (void)uv_poll_stop(&client->write_poll);
    unsent_free(client);
    (void)uv_idle_start(&client->idle, fail_pending);
}

static void lose_for(struct keeper_client *client, const char *what, int errnum)
{
    (void)error_set(&client->error, "keeper_lost", errnum,
                    "the keeper %s, so all boxes have ended; look at its log, and start what is "
                    "still needed again",
                    what);
    lose(client);
}

/* ---- reading ---- */

struct packet {
    union keeper_answer answer;
    size_t size;
    int fds[FDS_MAX];
    size_t fds_count;
    bool lacks_fds; /* this process had no room for what came with it */
};

static void packet_close(struct packet *packet)
{
    for (size_t i = 0; i < packet->fds_count; i++)
        fd_close(&packet->fds[i]);
}

static int fds_take(struct msghdr *message, struct packet *packet)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        size_t count;

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            return -1;
        count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (packet->fds_count == FDS_MAX)
                fd_close(&fd);
            else
                packet->fds[packet->fds_count++] = fd;
        }
    }
    return 0;
}

/* 1: a packet. 0: none now, or the end. */
static int packet_read(struct keeper_client *client, struct packet *packet)
{
    char control[CMSG_SPACE(FDS_MAX * sizeof(int))];
    struct iovec part = {&packet->answer, sizeof(packet->answer)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    ssize_t size;

    memset(packet, 0, sizeof(*packet));
    do
        size = recvmsg(client->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (size < 0 && errno == EINTR);
    if (size < 0) {
        if (errno != EAGAIN)
            lose_for(client, "is not heard any more", errno);
        return 0;
    }
    if (size == 0) {
        lose_for(client, "is gone", 0);
        return 0;
    }
    packet->size = (size_t)size;
    packet->lacks_fds = (message.msg_flags & MSG_CTRUNC) != 0;
    if (fds_take(&message, packet) != 0 || (message.msg_flags & MSG_TRUNC) != 0) {
        packet_close(packet);
        lose_for(client, "sent a message of the wrong size", 0);
        return 0;
    }
    return 1;
}

static bool ends(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}
#define ENDS(array) ends(array, sizeof(array))

static bool is_host_sound(const struct keeper_host *host)
{
    bool sound = ENDS(host->level) && ENDS(host->limits) && ENDS(host->ids) && ENDS(host->disk) &&
                 ENDS(host->tenants);

    for (size_t i = 0; i < sizeof(host->warnings) / sizeof(host->warnings[0]); i++)
        sound = sound && ENDS(host->warnings[i]);
    return sound;
}

/* Size, number of fds and texts are what the type demands. */
static bool is_sound(const struct packet *packet)
{
    const union keeper_answer *answer = &packet->answer;
    size_t fds = 0, size = 0;
    bool texts = true;

    if (packet->size < sizeof(answer->head))
        return false;
    switch (answer->head.type) {
    case KEEPER_HOST:
        size = sizeof(answer->host);
        texts = is_host_sound(&answer->host);
        break;
    case KEEPER_NAMED:
        size = sizeof(answer->named);
        texts = ENDS(answer->named.name) && answer->named.name[0] != '\0' &&
                ENDS(answer->named.tenants);
        break;
    case KEEPER_BOX:
        size = sizeof(answer->box);
        fds = 1;
        texts = ENDS(answer->box.owner) && ENDS(answer->box.disk) && answer->box.box != 0;
        break;
    case KEEPER_DONE:
        size = sizeof(answer->head);
        break;
    case KEEPER_REFUSED:
        size = sizeof(answer->refused);
        texts = ENDS(answer->refused.error.code) && ENDS(answer->refused.error.text) &&
                answer->refused.error.code[0] != '\0';
        break;
    case KEEPER_MADE:
        size = sizeof(answer->made);
        fds = 1;
        texts = answer->made.box != 0;
        break;
    case KEEPER_SOCKET:
    case KEEPER_TLS:
        size = sizeof(answer->head);
        fds = 1;
        break;
    case KEEPER_USED:
    case KEEPER_ENDED:
        size = sizeof(answer->report);
        break;
    case KEEPER_DISKS:
        size = sizeof(answer->disks);
        break;
    case KEEPER_DISK:
        size = sizeof(answer->disk);
        texts = ENDS(answer->disk.disk);
        break;
    default:
        return false;
    }
    /* A box without its socket is ended by who asked for it; that is no reason to lose all others. */
    if (packet->lacks_fds &&
        (answer->head.type == KEEPER_MADE || answer->head.type == KEEPER_SOCKET ||
         answer->head.type == KEEPER_TLS))
        fds = packet->fds_count;
    return packet->size == size && packet->fds_count == fds && texts;
}

/* A socket that found no room here: as if it had not been given. */
static void refuse_without_fd(struct keeper_client *client, struct pending **at)
{
    struct error err;

    (void)error_set(&err, "capacity", EMFILE, "there is no room for the socket of a box's network");
    pending_answer(client, at, NULL, -1, &err);
}

/* Of an answer to HELLO that has more to come, and of what comes unasked. */
static bool told(struct keeper_client *client, struct packet *packet)
{
    const union keeper_answer *answer = &packet->answer;

    switch (answer->head.type) {
    case KEEPER_HOST:
        client->calls->host(client->arg, &answer->host);
        return true;
    case KEEPER_NAMED:
        client->calls->named(client->arg, &answer->named);
        return true;
    case KEEPER_BOX:
        client->calls->box(client->arg, &answer->box, fd_take(&packet->fds[0]));
        return true;
    case KEEPER_DISK:
        client->calls->disk(client->arg, answer->disk.disk);
        return true;
    case KEEPER_TLS:
        if (packet->fds_count > 0)
            client->calls->tls(client->arg, fd_take(&packet->fds[0]));
        return true;
    default:
        return false;
    }
}

static void packet_take(struct keeper_client *client, struct packet *packet)
{
    const union keeper_answer *answer = &packet->answer;
    struct pending **at = pending_find(client, answer->head.id);

    if (!is_sound(packet)) {
        lose_for(client, "sent a message that is not of this build", 0);
        return;
    }
    if (told(client, packet))
        return;
    if (*at == NULL) {
        lose_for(client, "answered what was not asked", 0);
        return;
    }
    if (answer->head.type == KEEPER_REFUSED) {
        pending_answer(client, at, NULL, -1, &answer->refused.error);
        return;
    }
    if (answer->head.type != (*at)->wants) {
        lose_for(client, "answered something else than was asked", 0);
        return;
    }
    if (answer->head.type == KEEPER_SOCKET && packet->fds_count == 0) {
        refuse_without_fd(client, at);
        return;
    }
    pending_answer(client, at, answer, packet->fds_count > 0 ? fd_take(&packet->fds[0]) : -1, NULL);
}

/* ---- writing ---- */

/* How much of it was sent; the rest not now, or it is lost. */
static size_t send_some(struct keeper_client *client, const void *bytes, size_t size)
{
    ssize_t sent;

    do
        sent = write(client->requests, bytes, size);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        return (size_t)sent;
    /* What it said before its end is still to be read, and then the end is. */
    if (errno != EAGAIN && errno != EPIPE && errno != ECONNRESET)
        lose_for(client, "cannot be told anything", errno);
    return 0;
}

static void send_unsent(struct keeper_client *client)
{
    while (client->first != NULL) {
        struct unsent *unsent = client->first;

        unsent->sent += send_some(client, (const char *)&unsent->request + unsent->sent,
                                  unsent->size - unsent->sent);
        if (unsent->sent < unsent->size)
            return;
        client->first = unsent->next;
        if (client->first == NULL)
            client->last = NULL;
        free(unsent);
    }
}

/* That nobody reads the pipe any more is the end, which the socket says, too. */
static void write_polled(uv_poll_t *poll, int status, int events)
{
    struct keeper_client *client = poll->data;

    (void)events;
    if (status == 0 && !client->is_lost)
        send_unsent(client);
    if (status != 0 || client->first == NULL)
        (void)uv_poll_stop(poll);
}

static void polled(uv_poll_t *poll, int status, int events)
{
    struct keeper_client *client = poll->data;
    struct packet packet;

    if (status != 0) {
        lose_for(client, "is not heard any more", -status);
        return;
    }
    (void)events;
    for (int i = 0; i < READS_AT_ONCE && !client->is_lost && client->closing == 0; i++) {
        if (packet_read(client, &packet) == 0)
            break;
        packet_take(client, &packet);
        packet_close(&packet);
    }
}

/* ---- the verbs ---- */

static void handle_closed(uv_handle_t *handle)
{
    struct keeper_client *client = handle->data;

    if (client->closing == 0 || --client->closing == 0)
        free(client);
}

int keeper_client_open(uv_loop_t *loop, int socket, int requests, const struct keeper_calls *calls,
                       void *arg, struct keeper_client **out, struct error *err)
{
    struct keeper_client *client = calloc(1, sizeof(*client));
    int failed;

    if (client == NULL)
        abort();
    *client = (struct keeper_client){
        .socket = socket, .requests = requests, .calls = calls, .arg = arg};
    client->poll.data = client->write_poll.data = client->idle.data = client;
    failed = uv_poll_init(loop, &client->poll, socket);
    if (failed == 0 && (failed = uv_poll_init(loop, &client->write_poll, requests)) != 0)
        uv_close((uv_handle_t *)&client->poll, handle_closed);
    else if (failed != 0)
        free(client);
    if (failed != 0) {
        fd_close(&socket);
        fd_close(&requests);
        return error_set(err, "keeper_lost", -failed,
                         "there is no keeper's socket and pipe; cove serve starts the engine");
    }
    (void)uv_idle_init(loop, &client->idle);
    (void)uv_poll_start(&client->poll, UV_READABLE, polled);
    *out = client;
    return 0;
}

static void keep_unsent(struct keeper_client *client, const union keeper_request *request,
                        size_t size, size_t sent)
{
    struct unsent *unsent = calloc(1, sizeof(*unsent));

    if (unsent == NULL)
        abort();
    unsent->size = size;
    unsent->sent = sent;
    memcpy(&unsent->request, request, size);
    if (client->last != NULL)
        client->last->next = unsent;
    else
        client->first = unsent;
    client->last = unsent;
    if (!client->is_lost && client->closing == 0)
        (void)uv_poll_start(&client->write_poll, UV_WRITABLE, write_polled);
}

void keeper_client_ask(struct keeper_client *client, enum keeper_type type,
                       union keeper_request *request, keeper_answered answered, void *arg)
{
    struct pending *pending = calloc(1, sizeof(*pending));
    size_t size = request_size(type), sent = 0;

    if (pending == NULL)
        abort();
    do
        client->last_id++;
    while (client->last_id == 0 || *pending_find(client, client->last_id) != NULL);
    request->head = (struct keeper_head){.type = type, .id = client->last_id};
    *pending = (struct pending){.next = client->slots[client->last_id % SLOTS],
                                .id = client->last_id,
                                .wants = answer_type(type, request),
                                .answered = answered,
                                .arg = arg};
    client->slots[client->last_id % SLOTS] = pending;
    client->pending++;
    if (client->is_lost) {
        (void)uv_idle_start(&client->idle, fail_pending);
        return;
    }
    if (client->first == NULL)
        sent = send_some(client, request, size);
    if (sent < size && !client->is_lost)
        keep_unsent(client, request, size, sent);
}

/* Where something waits to be sent, that will be heard as well. So few bytes go as a whole, or not. */
void keeper_client_beat(struct keeper_client *client)
{
    const struct keeper_head beat = {.type = KEEPER_BEAT, .id = 1};

    if (!client->is_lost && client->closing == 0 && client->first == NULL)
        (void)send_some(client, &beat, sizeof(beat));
}

size_t keeper_client_pending(const struct keeper_client *client)
{
    return client->pending;
}

void keeper_client_close(struct keeper_client *client)
{
    struct error err;

    client->closing = 3;
    unsent_free(client);
    (void)error_set(&err, "keeper_lost", 0, "the engine does not listen to the keeper any more");
    for (size_t i = 0; i < SLOTS; i++)
        while (client->slots[i] != NULL)
            pending_answer(client, &client->slots[i], NULL, -1, &err);
    uv_close((uv_handle_t *)&client->poll, handle_closed);
    uv_close((uv_handle_t *)&client->write_poll, handle_closed);
    uv_close((uv_handle_t *)&client->idle, handle_closed);
    fd_close(&client->socket);
    fd_close(&client->requests);
}
