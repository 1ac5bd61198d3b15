/* See alone.h. Nothing is kept: the names of this box are in a file without a name. Whoever started this hears one
 * byte 1 when the policy is in force, else what is wrong; when he is gone, so are we. Before a byte of the box or of
 * the internet is read nothing is left to us but what it takes: see confine.h. */
#include "front/alone.h"

#include "base/fd.h"
#include "front/confine.h"
#include "front/settings.h"
#include "net/net.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#define FD_TCP 3 /* see cmd/run_net.c */
#define FD_UDP 4
#define FD_LINK 5
#define FD_CONFIG 6 /* cove.conf, where there is one */

struct alone {
    uv_loop_t loop;
    uv_poll_t link;
    int config; /* -1: none */
    struct settings settings;
    struct net *net;
    struct net_box *box;
};

static void link_over(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events; /* he says nothing, so it is his end */
    uv_stop(poll->loop);
}

/* The resolvers and the proxy are those of an engine that would be started here. */
static int settings_take(struct alone *alone, struct error *err)
{
    struct error why;
    int result = settings_read(alone->config, "cove.conf", &alone->settings, &why);

    fd_close(&alone->config);
    if (result == 0)
        return 0;
    return error_set(err, "bad_config", 0, "cannot use its settings: %.300s", why.text);
}

static int begin(struct alone *alone, const char *text, struct error *err)
{
    struct net_options options = {.loop = &alone->loop};
    struct net_box_options box = {.tenant = "run"};
    int tcp = FD_TCP, udp = FD_UDP;

    if (settings_take(alone, err) != 0 || policy_new_text(text, &box.policy, err) != 0)
        return -1;
    options.resolvers = alone->settings.resolvers;
    options.nat64 = alone->settings.nat64;
    options.proxy = alone->settings.proxy;
    options.proxy_names = alone->settings.proxy_names;
    if (net_open(&options, &alone->net, err) != 0 || confine(err) != 0) {
        policy_free(box.policy);
        return -1;
    }
    box.names = memfd_create("names", MFD_CLOEXEC);
    if (box.names < 0) {
        policy_free(box.policy);
        return error_set(err, "network_failed", errno, "has no memory for names");
    }
    if (net_box_new(alone->net, &box, &alone->box, err) != 0)
        return -1;
    net_box_attach(alone->box, tcp, udp);
    (void)uv_poll_init(&alone->loop, &alone->link, FD_LINK);
    (void)uv_poll_start(&alone->link, UV_READABLE | UV_DISCONNECT, link_over);
    return 0;
}

static void allow_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int alone_run(const char *policy)
{
    static const char ready = 1;
    static struct alone alone;
    struct error err;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)prctl(PR_SET_DUMPABLE, 0);
    for (int fd = FD_TCP; fd <= FD_LINK; fd++)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
            return 1;
    /* Before anything else has its number. */
    alone.config = fcntl(FD_CONFIG, F_SETFD, FD_CLOEXEC) == 0 ? FD_CONFIG : -1;
    allow_files();
    if (uv_loop_init(&alone.loop) != 0)
        return 1;
    if (begin(&alone, policy, &err) != 0) {
        (void)send(FD_LINK, err.text, strlen(err.text), MSG_NOSIGNAL);
        return 1;
    }
    if (send(FD_LINK, &ready, 1, MSG_NOSIGNAL) != 1)
        return 1;
    (void)uv_run(&alone.loop, UV_RUN_DEFAULT);
    return 0; /* what is open ends with us */
}
