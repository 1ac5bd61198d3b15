/* Into a box: a listener of the host whose connections are carried to sockets that somebody else makes, and single
 * pairs. Whoever makes them knows what may be reached; nothing is decided here. Each forward takes turns with the
 * boxes as one of them. */
#include "net/carry.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* ---- a pair ---- */

struct net_pair {
    struct share share;
    struct pump *pump;
    void (*over)(void *arg);
    void *arg;
};

static void on_pair_over(void *arg, enum pump_end end, const struct pump_counts *counts)
{
    struct net_pair *pair = arg;
    void (*over)(void *arg) = pair->over;
    void *over_arg = pair->arg;

    (void)end;
    (void)counts;
    share_leave(&pair->share);
    free(pair);
    if (over != NULL)
        over(over_arg);
}

struct net_pair *net_pair_new(struct net *net, int client, int server, const void *first,
                              size_t first_size, void (*over)(void *arg), void *arg)
{
    struct net_pair *pair = calloc(1, sizeof(*pair));

    if (pair == NULL) {
        pump_reset(&client);
        pump_reset(&server);
        return NULL;
    }
    pair->over = over;
    pair->arg = arg;
    share_init(&pair->share, net_turns(net));
    pair->pump = pump_new(&(struct pump_options){.share = &pair->share,
                                                 .pipes = net_pipes(net),
                                                 .client = client,
                                                 .server = server,
                                                 .first = first,
                                                 .first_size = first_size,
                                                 .over = on_pair_over,
                                                 .arg = pair});
    if (pair->pump == NULL) {
        free(pair);
        return NULL;
    }
    return pair;
}

void net_pair_cut(struct net_pair *pair)
{
    pump_cut(pair->pump);
    share_leave(&pair->share);
    free(pair);
}

/* ---- a listener ---- */

struct carried {
    TAILQ_ENTRY(carried) next;
    struct net_forward *forward;
    uint64_t number;
    int client;        /* until there is a pump */
    struct pump *pump; /* NULL: its other end is awaited */
};
TAILQ_HEAD(carried_list, carried);

struct net_forward {
    struct watch watch;
    struct task accepting;
    struct alarm again; /* when there were no fds */
    struct share share;
    struct net *net;
    int listener;
    uint32_t connections, count;
    uint64_t number;
    struct carried_list waiting, pumping;
    void (*connect)(void *arg, uint64_t number);
    void *arg;
};

static void carried_free(struct carried *carried)
{
    struct net_forward *forward = carried->forward;

    TAILQ_REMOVE(carried->pump != NULL ? &forward->pumping : &forward->waiting, carried, next);
    if (carried->pump != NULL)
        pump_cut(carried->pump);
    pump_reset(&carried->client);
    forward->count--;
    free(carried);
}

static void on_carried(void *arg, enum pump_end end, const struct pump_counts *counts)
{
    struct carried *carried = arg;

    (void)end;
    (void)counts;
    TAILQ_REMOVE(&carried->forward->pumping, carried, next);
    carried->forward->count--;
    free(carried);
}

void net_forward_connected(struct net_forward *forward, uint64_t number, int socket)
{
    struct carried *carried;

    TAILQ_FOREACH(carried, &forward->waiting, next)
    {
        // cppcheck-suppress uninitvar ; it does not see that the list sets it
        if (carried->number == number)
            break;
    }
    if (carried == NULL || socket < 0) {
        fd_close(&socket);
        if (carried != NULL)
            carried_free(carried);
        return;
    }
    carried->pump = pump_new(&(struct pump_options){.share = &forward->share,
                                                    .pipes = net_pipes(forward->net),
                                                    .client = fd_take(&carried->client),
                                                    .server = socket,
                                                    .over = on_carried,
                                                    .arg = carried});
    if (carried->pump == NULL) {
        carried_free(carried);
        return;
    }
    TAILQ_REMOVE(&forward->waiting, carried, next);
    TAILQ_INSERT_TAIL(&forward->pumping, carried, next);
}

static void take(struct net_forward *forward, int client)
{
    struct carried *carried = NULL;

    if (forward->count < forward->connections && net_has_room())
        carried = calloc(1, sizeof(*carried));
    if (carried == NULL) {
        pump_reset(&client);
        return;
    }
    *carried = (struct carried){.forward = forward, .number = ++forward->number, .client = client};
    TAILQ_INSERT_TAIL(&forward->waiting, carried, next);
    forward->count++;
    forward->connect(forward->arg, carried->number); /* may free all of it */
}

/* One in each turn. */
static void run(struct task *task)
{
    struct net_forward *forward = (struct net_forward *)((char *)task -
                                                         offsetof(struct net_forward, accepting));
    int fd = accept4(forward->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0) {
        task_ready(&forward->accepting);
        take(forward, fd);
        return;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        turns_alarm(net_turns(forward->net), &forward->again, ALARM_SOON);
    else if (errno != EAGAIN && errno != EINVAL && errno != EBADF)
        task_ready(&forward->accepting); /* that one connection was none */
}

static void on_again(struct alarm *alarm)
{
    struct net_forward *forward = (struct net_forward *)((char *)alarm -
                                                         offsetof(struct net_forward, again));

    task_ready(&forward->accepting);
}

static void note(struct watch *watch, uint32_t events)
{
    struct net_forward *forward = (struct net_forward *)watch;

    (void)events;
    task_ready(&forward->accepting);
}

int net_forward_new(struct net *net, int listener, uint32_t connections,
                    void (*connect)(void *arg, uint64_t number), void *arg,
                    struct net_forward **out, struct error *err)
{
    struct net_forward *forward = calloc(1, sizeof(*forward));

    if (forward == NULL) {
        fd_close(&listener);
        return error_set(err, "net_failed", ENOMEM, "cannot forward connections to a box");
    }
    *forward = (struct net_forward){.watch.note = note,
                                    .again.ring = on_again,
                                    .net = net,
                                    .listener = listener,
                                    .connections = connections,
                                    .connect = connect,
                                    .arg = arg};
    TAILQ_INIT(&forward->waiting);
    TAILQ_INIT(&forward->pumping);
    share_init(&forward->share, net_turns(net));
    forward->accepting = (struct task){.share = &forward->share, .run = run};
    if (fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) | O_NONBLOCK) < 0 ||
        turns_watch(net_turns(net), listener, EPOLLIN, &forward->watch) < 0) {
        (void)error_set(err, "net_failed", errno, "cannot forward connections to a box");
        fd_close(&forward->listener);
        free(forward);
        return -1;
    }
    *out = forward;
    return 0;
}

bool net_forward_is_used(const struct net_forward *forward)
{
    return !TAILQ_EMPTY(&forward->waiting) || !TAILQ_EMPTY(&forward->pumping);
}

void net_forward_free(struct net_forward *forward)
{
    while (!TAILQ_EMPTY(&forward->waiting))
        carried_free(TAILQ_FIRST(&forward->waiting));
    while (!TAILQ_EMPTY(&forward->pumping))
        carried_free(TAILQ_FIRST(&forward->pumping));
    task_drop(&forward->accepting);
    turns_calm(net_turns(forward->net), &forward->again);
    turns_unwatch(net_turns(forward->net), forward->listener);
    fd_close(&forward->listener);
    share_leave(&forward->share);
    free(forward);
}
