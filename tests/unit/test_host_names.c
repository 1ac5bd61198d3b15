/* The host's own resolvers: /etc/resolv.conf and /etc/hosts as they are, and as they come to be while we
 * run. In namespaces of its own, where those two are files of this test. */
#include "check.h"
#include "name_server.h"

#include "base/fd.h"
#include "base/set_clock.h"
#include "net/parts.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_AGAIN_NS (5 * 1000000000ULL) /* at the files: net/upstream.c */
#define HOSTS "10.1.2.3 onhost.example alias.example\n2001:db8::5 onhost.example\n"

static uv_loop_t loop;
static struct name_server first, second;
static int conf, hosts;

/* Made before: who has no id in the new namespace makes no file. */
static int file_over(char *path)
{
    int fd = mkostemp(path, O_CLOEXEC);

    CHECK(fd >= 0 && fchmod(fd, 0644) == 0, "%s", path);
    return fd;
}

static void write_file(int fd, const char *text)
{
    CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, text, strlen(text), 0) == (ssize_t)strlen(text),
          "cannot write");
}

static bool enter(void)
{
    char conf_path[] = "/tmp/cove-test-resolv-XXXXXX", hosts_path[] = "/tmp/cove-test-hosts-XXXXXX";
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    _cleanup_close_ int fd = -1;
    bool is_in;

    conf = file_over(conf_path);
    hosts = file_over(hosts_path);
    is_in = unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET) == 0 &&
            mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
            mount(conf_path, "/etc/resolv.conf", NULL, MS_BIND, NULL) == 0 &&
            mount(hosts_path, "/etc/hosts", NULL, MS_BIND, NULL) == 0;
    (void)unlink(conf_path);
    (void)unlink(hosts_path);
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return is_in && ioctl(fd, SIOCSIFFLAGS, &loopback) == 0;
}

struct result {
    bool is_done;
    enum dns_code code;
    size_t count;
    char address[POLICY_ADDRESS_TEXT]; /* the first */
};

static void on_done(void *arg, const struct policy_address *addresses, size_t count, uint32_t ttl_s,
                    enum dns_code code)
{
    struct result *result = arg;

    (void)ttl_s;
    *result = (struct result){.is_done = true, .code = code, .count = count};
    if (count > 0)
        policy_address_text(&addresses[0], result->address);
    uv_stop(&loop); /* a timer called: uv_run() would go on to wait for what may never come */
}

/* Each time for another box, so that nothing is known already. */
static struct result ask(struct resolver *resolver, const char *name)
{
    static char lanes[1024];
    static size_t used;
    struct result result = {0};

    (void)resolver_look(resolver, "tenant", &lanes[used++ % sizeof(lanes)], name, on_done, &result);
    while (!result.is_done)
        (void)uv_run(&loop, UV_RUN_ONCE);
    return result;
}

static void test_as_they_are(struct resolver *resolver)
{
    struct result result = ask(resolver, "any.example");

    CHECK(result.count == 2 && first.asked == 2, "%zu, %u", result.count, first.asked);
    result = ask(resolver, "onhost.example");
    CHECK(result.count == 2 && strcmp(result.address, "2001:db8::5") == 0, "%zu, %s", result.count,
          result.address);
    result = ask(resolver, "alias.example");
    CHECK(result.count == 1 && strcmp(result.address, "10.1.2.3") == 0, "%s", result.address);
    CHECK(first.asked == 2, "what is in /etc/hosts was asked for");
    /* "example" is in the search list, and "nx.example" no name with or without it. */
    result = ask(resolver, "nx");
    CHECK(result.code == DNS_NO_NAME && first.asked == 4, "%d, %u", (int)result.code, first.asked);
}

static void test_as_they_come_to_be(struct resolver *resolver)
{
    static char many[70000];
    struct result result;

    (void)snprintf(many, sizeof(many), "%s%0*d", HOSTS "#", (int)(sizeof(many) - sizeof(HOSTS) - 1),
                   0);
    write_file(hosts, many);
    write_file(conf, "nameserver 127.0.0.2\n");
    result = ask(resolver, "onhost.example");
    CHECK(strcmp(result.address, "2001:db8::1") != 0, "the files are read each time");
    set_clock_advance(LOOK_AGAIN_NS);
    uv_update_time(&loop);
    result = ask(resolver, "onhost.example");
    CHECK(second.asked == 2 && first.asked == 4, "%u, %u", second.asked, first.asked);
    CHECK(strcmp(result.address, "2001:db8::1") == 0, "a list that is too long was read: %s",
          result.address);
}

static void on_closed(void *arg)
{
    *(bool *)arg = true;
}

static void test_those_that_are_set(void)
{
    struct resolver *resolver = NULL;
    struct error err = {0};
    struct result result;
    unsigned asked = first.asked, asked_second = second.asked;
    bool is_closed = false;

    write_file(hosts, HOSTS);
    CHECK(resolver_open(&loop, "127.0.0.1", &resolver, &err) == 0, "%s", err.text);
    result = ask(resolver, "onhost.example");
    CHECK(strcmp(result.address, "2001:db8::1") == 0, "/etc/hosts was read: %s", result.address);
    CHECK(first.asked == asked + 2 && second.asked == asked_second, "another one was asked");
    resolver_close(resolver, on_closed, &is_closed);
    while (!is_closed)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

int main(void)
{
    struct resolver *resolver = NULL;
    bool is_closed = false;
    struct error err = {0};

    (void)setenv("HOSTALIASES", "/proc/self/fd/0", 1);
    (void)setenv("LOCALDOMAIN", "example", 1);
    CHECK(enter(), "no namespace");
    write_file(conf, "search example\noptions ndots:5\nnameserver 127.0.0.1\n");
    write_file(hosts, HOSTS);
    (void)uv_loop_init(&loop);
    CHECK(name_server_open(&loop, "127.0.0.1", 53, &first) == 0 &&
              name_server_open(&loop, "127.0.0.2", 53, &second) == 0,
          "no server");
    CHECK(resolver_open(&loop, NULL, &resolver, &err) == 0, "%s", err.text);
    test_as_they_are(resolver);
    test_as_they_come_to_be(resolver);
    test_those_that_are_set();
    resolver_close(resolver, on_closed, &is_closed);
    name_server_close(&first);
    name_server_close(&second);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(is_closed && uv_loop_close(&loop) == 0, "something is left in the loop");
    (void)close(conf);
    (void)close(hosts);
    return check_finish();
}
