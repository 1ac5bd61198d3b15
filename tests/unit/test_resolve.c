/* Names to addresses, against a real name server: what is answered, what is kept, whose turn it is, and
 * what servers of ill will bring about. */
#include "check.h"
#include "name_server.h"

#include "base/clock.h"
#include "base/set_clock.h"
#include "net/parts.h"

#include <stdlib.h>
#include <string.h>

#define PATIENCE_NS (60 * 1000000000ULL)

struct result {
    unsigned calls;
    enum dns_code code;
    size_t count;
    uint32_t ttl_s;
    unsigned place; /* in the order in which answers came */
    struct policy_address addresses[RESOLVED_MAX];
    struct resolver_lookup *lookup;
};

static uv_loop_t loop;
static struct name_server server;
static struct resolver *resolver;
static unsigned places;

static void on_done(void *arg, const struct policy_address *addresses, size_t count, uint32_t ttl_s,
                    enum dns_code code)
{
    struct result *result = arg;

    result->calls++;
    result->code = code;
    result->count = count;
    result->ttl_s = ttl_s;
    result->place = ++places;
    if (count > 0)
        memcpy(result->addresses, addresses, count * sizeof(*addresses));
    uv_stop(&loop); /* a timer called: uv_run() would go on to wait for what may never come */
}

static void look(struct result *result, const char *tenant, const void *lane, const char *name)
{
    memset(result, 0, sizeof(*result));
    result->lookup = resolver_look(resolver, tenant, lane, name, on_done, result);
}

static bool wait_for(const struct result *results, size_t count)
{
    uint64_t end = clock_monotonic_ns() + PATIENCE_NS;

    for (size_t i = 0; i < count; i++)
        while (results[i].calls == 0) {
            if (clock_monotonic_ns() > end)
                return false;
            (void)uv_run(&loop, UV_RUN_ONCE);
        }
    return true;
}

/* For what no server answers: the clock goes on by itself, in steps that leave all that is due its order. */
static bool wait_for_their_end(const struct result *results, size_t count)
{
    for (size_t i = 0, steps = 0; i < count; i++)
        while (results[i].calls == 0) {
            if (steps++ == 6000)
                return false;
            set_clock_advance(10 * UINT64_C(1000000));
            (void)uv_run(&loop, UV_RUN_NOWAIT);
        }
    return true;
}

static void ask(struct result *result, const void *lane, const char *name)
{
    look(result, "one", lane, name);
    CHECK(result->calls == 0, "%s: answered before it returned", name);
    CHECK(wait_for(result, 1), "%s: no answer", name);
    CHECK(result->calls == 1, "%s: answered %u times", name, result->calls);
}

static const char *text_of(const struct policy_address *address)
{
    static char text[POLICY_ADDRESS_TEXT];

    policy_address_text(address, text);
    return text;
}

static void test_answers(void)
{
    static const struct {
        const char *name;
        enum dns_code code;
        size_t count;
        uint32_t ttl_s;
        const char *first;
    } rows[] = {
        {"both.example", DNS_OK, 2, 60, "2001:db8::1"},
        {"v4.example", DNS_OK, 1, 60, "192.0.2.1"},
        {"v6.example", DNS_OK, 1, 60, "2001:db8::1"},
        {"alias.example", DNS_OK, 2, 7, "2001:db8::1"},
        {"long.example", DNS_OK, RESOLVED_MAX, 60, "2001:db8::1"},
        {"nx.example", DNS_NO_NAME, 0, 2, NULL},
        {"empty.example", DNS_OK, 0, 2, NULL},
        {"ring.example", DNS_OK, 0, 2, NULL},
        {"fail.example", DNS_FAILED, 0, 2, NULL},
        {"mixed.example", DNS_OK, 1, 60, "2001:db8::1"},
        {"zero.example", DNS_OK, 2, 0, NULL},
    };
    struct result result;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ask(&result, &loop, rows[i].name);
        CHECK(result.code == rows[i].code, "%s: %d", rows[i].name, (int)result.code);
        CHECK(result.count == rows[i].count, "%s: %zu", rows[i].name, result.count);
        CHECK(result.ttl_s == rows[i].ttl_s, "%s: %u", rows[i].name, result.ttl_s);
        CHECK(rows[i].first == NULL || strcmp(text_of(&result.addresses[0]), rows[i].first) == 0,
              "%s: %s", rows[i].name, text_of(&result.addresses[0]));
    }
    CHECK(server.asked_tcp == 2, "%u", server.asked_tcp);
}

static void test_kept(void)
{
    struct result first, second;
    unsigned asked;

    ask(&first, &server, "kept.example");
    asked = server.asked;
    ask(&second, &server, "kept.example");
    CHECK(server.asked == asked, "asked again");
    CHECK(second.count == 2 && second.code == DNS_OK, "%zu", second.count);
    ask(&second, &places, "kept.example");
    CHECK(server.asked == asked + 2, "another box sees what this one asked for");
    ask(&first, &server, "fail-kept.example");
    asked = server.asked;
    ask(&first, &server, "fail-kept.example");
    CHECK(server.asked == asked && first.code == DNS_FAILED, "a failure is asked again at once");
    ask(&first, &server, "zero-kept.example");
    asked = server.asked;
    ask(&second, &server, "zero-kept.example");
    CHECK(server.asked == asked + 2, "with TTL 0 it is asked for each time");
    CHECK(memcmp(&first.addresses[0], &second.addresses[0], 16) != 0, "and is what it is now");
}

static void test_two_who_ask_at_once(void)
{
    struct result results[20];
    unsigned asked = server.asked;

    for (size_t i = 0; i < 20; i++)
        look(&results[i], "one", &loop, i % 2 == 0 ? "zero-once.example" : "once.example");
    CHECK(wait_for(results, 20), "no answer");
    CHECK(server.asked == asked + 4, "%u questions", server.asked - asked);
    for (size_t i = 0; i < 20; i++)
        CHECK(results[i].calls == 1 && results[i].count == 2, "%zu", i);
}

/* All at once, for some run into their timeouts; the next tests go on meanwhile. */
static const char ill_kinds[] = "iqlcseonhx";
static struct result ill[sizeof(ill_kinds) + 1];

static void begin_servers_of_ill_will(void)
{
    char name[32];

    for (size_t i = 0; i < sizeof(ill_kinds) - 1; i++) {
        (void)snprintf(name, sizeof(name), "bad-%c.example", ill_kinds[i]);
        look(&ill[i], "ill", &ill_kinds[i], name);
    }
    look(&ill[sizeof(ill_kinds) - 1], "ill", &ill[0], "good.example");
    look(&ill[sizeof(ill_kinds)], "ill", &ill[1], "half.example");
}

static void end_servers_of_ill_will(void)
{
    const struct result *good = &ill[sizeof(ill_kinds) - 1], *half = good + 1;

    CHECK(wait_for_their_end(ill, sizeof(ill) / sizeof(ill[0])), "no answer");
    for (size_t i = 0; i < sizeof(ill_kinds) - 1; i++)
        CHECK(ill[i].calls == 1 && ill[i].count == 0, "bad-%c: %d, %zu addresses", ill_kinds[i],
              (int)ill[i].code, ill[i].count);
    CHECK(good->count == 2, "between them a good one");
    CHECK(half->count == 1 && half->code == DNS_OK, "one family is enough: %zu", half->count);
    CHECK(half->place < ill[0].place, "and is not waited for to the end");
}

#define FLOOD 10000

/* One box asks ten thousand names that nobody answers: others do not notice. */
static void test_turns(void)
{
    static struct result flood[FLOOD], others[3], crowd[40][30];
    static char lanes[40];
    unsigned failed = 0, waiting = 0;
    char name[32];

    for (int i = 0; i < FLOOD; i++) {
        (void)snprintf(name, sizeof(name), "slow%d.example", i);
        look(&flood[i], "flood", &flood, name);
    }
    for (int i = 0; i < 40 * 30; i++) {
        (void)snprintf(name, sizeof(name), "slow%d.example", i);
        look(&crowd[i / 30][i % 30], "crowd", &lanes[i / 30], name);
    }
    look(&others[0], "another", &others[0], "other.example");
    look(&others[1], "flood", &others[1], "other.example");
    look(&others[2], "crowd", &others[2], "other.example");
    CHECK(wait_for(others, 3), "no answer");
    for (int i = 0; i < 3; i++)
        CHECK(others[i].count == 2, "%d: %zu", i, others[i].count);
    for (int i = 0; i < FLOOD; i++) {
        failed += flood[i].calls == 1 && flood[i].code == DNS_FAILED;
        waiting += flood[i].calls == 0;
    }
    CHECK(waiting > 0, "the others waited for all of it");
    CHECK(failed + waiting == FLOOD && waiting <= 300, "%u failed, %u wait", failed, waiting);
    CHECK(wait_for_their_end(flood, FLOOD), "one was never answered");
    CHECK(wait_for_their_end(crowd[0], (size_t)40 * 30), "one of the crowd was never answered");
    for (int i = 0; i < FLOOD; i++)
        if (flood[i].calls != 1 || flood[i].code != DNS_FAILED)
            CHECK(false, "%d: %u, %d", i, flood[i].calls, (int)flood[i].code);
    /* What was given up may still be asked for; whoever comes now has his turn all the same. */
    ask(&others[0], &others[0], "later.example");
    CHECK(others[0].count == 2, "%zu", others[0].count);
}

static struct result chained;

static void on_chain(void *arg, const struct policy_address *addresses, size_t count,
                     uint32_t ttl_s, enum dns_code code)
{
    struct result *victim = arg;

    if (victim->lookup != NULL)
        resolver_cancel(victim->lookup);
    victim->lookup = NULL;
    look(&chained, "one", &loop, "both.example");
    on_done(arg, addresses, count, ttl_s, code);
}

static struct result gone[60], victim, stays;

static void begin_cancelled(void)
{
    char name[32];

    ask(&stays, &loop, "both.example");
    for (int i = 0; i < 60; i++) { /* asked, waiting, and the first one due */
        (void)snprintf(name, sizeof(name), i == 0 ? "both.example" : "slow-c%d.example", i);
        look(&gone[i], "one", &loop, name);
    }
    look(&stays, "one", &loop, "slow-c7.example");
    for (int i = 0; i < 60; i++)
        resolver_cancel(gone[i].lookup);
    /* In a call of its own: another that is due at the same time, and a new one. */
    look(&victim, "one", &loop, "both.example");
    (void)resolver_look(resolver, "one", &loop, "both.example", on_chain, &victim);
    resolver_cancel(victim.lookup);
    victim.lookup = NULL;
    CHECK(wait_for(&victim, 1) && wait_for(&chained, 1), "no answer");
}

static void end_cancelled(void)
{
    CHECK(wait_for_their_end(&stays, 1), "no answer");
    CHECK(victim.calls == 1, "%u", victim.calls);
    CHECK(stays.code == DNS_FAILED, "%d", (int)stays.code);
    for (int i = 0; i < 60; i++)
        CHECK(gone[i].calls == 0, "%d", i);
}

static bool is_closed;

static void on_closed(void *arg)
{
    (void)arg;
    is_closed = true;
}

static void test_close(void)
{
    static struct result results[100];
    char name[32];

    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), i % 2 == 0 ? "slow-e%d.example" : "e%d.example", i);
        look(&results[i], "one", &results[i % 3], name);
    }
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    resolver_close(resolver, on_closed, NULL);
    name_server_close(&server);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(is_closed, "not closed");
    CHECK(uv_loop_close(&loop) == 0, "something is left in the loop");
}

static void test_settings(void)
{
    static const char *const bad[] = {
        "",     "example.com", "1.2.3",    "1.2.3.4:",  "1.2.3.4:0",  "1.2.3.4:65536",
        "[::1", "[::1]x",      "1.2.3.4,", "1.2.3.4 5", "0x7f.1.1.1", "[::1]:"};
    static const char *const good[] = {"1.2.3.4", "1.2.3.4:5353, ::1", "[2001:db8::1]:53",
                                       "2001:db8::1,[::1],127.0.0.1"};
    struct resolver *other;
    struct error err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK(resolver_open(&loop, bad[i], &other, &err) == -1, "\"%s\"", bad[i]);
        CHECK(strcmp(err.code, "bad_resolvers") == 0, "\"%s\": %s", bad[i], err.code);
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        is_closed = false;
        CHECK(resolver_open(&loop, good[i], &other, &err) == 0, "\"%s\": %s", good[i], err.text);
        resolver_close(other, on_closed, NULL);
        while (!is_closed)
            (void)uv_run(&loop, UV_RUN_ONCE);
    }
}

int main(void)
{
    struct error err = {0};

    (void)uv_loop_init(&loop);
    CHECK(name_server_open(&loop, "127.0.0.1", 0, &server) == 0, "no server");
    test_settings();
    /* As an environment that means harm would have it. */
    (void)setenv("LOCALDOMAIN", "nx.example", 1);
    (void)setenv("HOSTALIASES", "/dev/null", 1);
    (void)setenv("RES_OPTIONS", "ndots:9 attempts:9 timeout:90", 1);
    CHECK(resolver_open(&loop, server.address, &resolver, &err) == 0, "%s", err.text);
    test_answers();
    test_kept();
    test_two_who_ask_at_once();
    begin_servers_of_ill_will();
    begin_cancelled();
    test_turns();
    end_cancelled();
    end_servers_of_ill_will();
    test_close();
    return check_finish();
}
