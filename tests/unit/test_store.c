/* The store's verbs: what is read was committed, a conflict changes nothing, answers and changes come in
 * order, and all of it holds over a restart. */
#include "store_env.h"

#include "base/clock.h"
#include "base/set_clock.h"
#include "check.h"

#include <inttypes.h>
#include <unistd.h>

static void check_put_and_get(struct env *env)
{
    struct store_value value;
    struct answer answer, second;
    struct error err;

    CHECK(store_revision(env->store) == 0, "a new store has a revision");
    CHECK(store_get(env->store, "a", &value, &err) == 0 && value.data == NULL, "a is there");
    answer = env_put(env, "a", "one", STORE_ANY);
    CHECK(answer_is(answer, "") && answer.revision == 1, "%s", answer.err.text);
    CHECK(store_get(env->store, "a", &value, &err) == 1 && strcmp(value.data, "one") == 0 &&
              value.size == 3 && value.revision == 1 && strcmp(value.key, "a") == 0,
          "%s", (const char *)value.data);
    store_value_free(&value);
    second = env_put(env, "a", "two", answer.revision);
    CHECK(answer_is(second, "") && second.revision == 2, "%s", second.err.text);
    answer = env_put(env, "a", NULL, STORE_ANY);
    CHECK(answer_is(answer, "") && answer.revision == 3, "%s", answer.err.text);
    CHECK(store_get(env->store, "a", &value, &err) == 0, "a is still there");
    answer = env_put(env, "a", NULL, STORE_ANY);
    CHECK(answer_is(answer, "") && answer.revision == 0,
          "nothing changed and has revision %" PRIu64, answer.revision);
    CHECK(store_revision(env->store) == 3, "%" PRIu64, store_revision(env->store));
}

static void check_conflicts(struct env *env)
{
    struct answer answer;

    CHECK(answer_is(env_put(env, "a", "one", 0), ""), "a new key");
    answer = env_put(env, "a", "two", 0);
    CHECK(answer_is(answer, "conflict") && answer.revision == 1 &&
              strstr(answer.err.text, "a is there"),
          "%s", answer.err.text);
    CHECK(answer_is(env_put(env, "a", "two", 1), ""), "the right revision");
    answer = env_put(env, "a", "three", 1);
    CHECK(answer_is(answer, "conflict") && answer.revision == 2 &&
              strstr(answer.err.text, "revision 2, not 1") != NULL,
          "%s", answer.err.text);
    CHECK(answer_is(env_put(env, "a", NULL, 1), "conflict"), "a delete of another revision");
    CHECK(answer_is(env_put(env, "a", NULL, 0), "conflict"), "a delete of what must not be there");
    CHECK(answer_is(env_put(env, "a", NULL, 2), ""), "a delete of the right revision");
    answer = env_put(env, "a", "four", 2);
    CHECK(answer_is(answer, "conflict") && answer.revision == 0, "%s", answer.err.text);
    CHECK(answer_is(env_put(env, "a", NULL, 3), "conflict"), "a delete of what is gone");
    CHECK(answer_is(env_put(env, "a", NULL, 0), ""),
          "a delete of what must not be there, and is not");
    CHECK(answer_is(env_put(env, "a", "x", UINT64_MAX - 1), "conflict"),
          "a revision of the far future");
    CHECK(store_revision(env->store) == 3, "conflicts took revisions: %" PRIu64,
          store_revision(env->store));
}

/* Asked for at once, they share a commit; each is judged by what those before it did. */
static void check_batch(struct env *env)
{
    struct answer answers[6] = {{0}};
    struct store_value value;
    struct error err;

    store_put(env->store, "a", "1", 1, 0, answer_take, &answers[0]);
    store_put(env->store, "a", "2", 1, 0, answer_take, &answers[1]);
    store_put(env->store, "a", "3", 1, STORE_ANY, answer_take, &answers[2]);
    store_put(env->store, "", "x", 1, STORE_ANY, answer_take, &answers[3]);
    store_put(env->store, "a", NULL, 0, STORE_ANY, answer_take, &answers[4]);
    store_put(env->store, "a", "5", 1, 0, answer_take, &answers[5]);
    CHECK(answers[3].count == 0, "an answer came before the call returned");
    CHECK(uv_loop_alive(&env->loop), "the loop of a store with writes that wait is not alive");
    env_wait(env);
    CHECK(answer_is(answers[0], "") && answer_is(answers[1], "conflict") &&
              answer_is(answers[2], "") && answer_is(answers[3], "store_failed") &&
              answer_is(answers[4], "") && answer_is(answers[5], ""),
          "%s %s %s %s %s %s", answers[0].code, answers[1].code, answers[2].code, answers[3].code,
          answers[4].code, answers[5].code);
    CHECK(store_get(env->store, "a", &value, &err) == 1 && strcmp(value.data, "5") == 0, "%s",
          (const char *)value.data);
    store_value_free(&value);
}

struct order {
    unsigned next;
    bool is_wrong;
};

struct numbered {
    struct order *order;
    unsigned number;
};

static void order_done(void *arg, uint64_t revision, const struct error *err)
{
    struct numbered *numbered = arg;

    if (numbered->number != numbered->order->next++ || revision != numbered->number + 1 ||
        err != NULL)
        numbered->order->is_wrong = true;
}

static void check_order(struct env *env)
{
    static struct numbered numbered[5000];
    struct order order = {0};
    struct heard heard = {.text = ""};
    struct error err;
    char key[32];

    for (unsigned i = 0; i < 5000; i++) {
        numbered[i] = (struct numbered){&order, i};
        (void)snprintf(key, sizeof(key), "key/%04u", i);
        store_put(env->store, key, key, strlen(key), 0, order_done, &numbered[i]);
    }
    env_wait(env);
    CHECK(order.next == 5000 && !order.is_wrong, "%u answers", order.next);
    CHECK(store_list(env->store, "key/", NULL, 10000, heard_each, &heard, &err) == 0 &&
              heard.count == 5000,
          "%u keys", heard.count);
}

static void check_list(struct env *env)
{
    struct error err;

    static const char *const keys[] = {"b/2", "a", "b/1", "b", "b/\xff", "b0", "b/10", "c/1"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        CHECK(answer_is(env_put(env, keys[i], "v", 0), ""), "%s", keys[i]);
    static const struct {
        const char *prefix, *after;
        size_t limit;
        const char *expected;
    } rows[] = {
        {"b/", NULL, 100, "b/1=v@3 b/10=v@7 b/2=v@1 b/\xff=v@5 "},
        {"b/", "b/1", 100, "b/10=v@7 b/2=v@1 b/\xff=v@5 "},
        {"b/", "b/1", 1, "b/10=v@7 "},
        {"b/", "b/\xff", 100, ""},
        {"b/", "a", 1, "b/1=v@3 "},
        {"b/", "z", 100, ""},
        {"b/", NULL, 0, ""},
        {"", NULL, 2, "a=v@2 b=v@4 "},
        {"", "b0", 100, "c/1=v@8 "},
        {"d", NULL, 100, ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct heard heard = {.text = ""};

        CHECK(store_list(env->store, rows[i].prefix, rows[i].after, rows[i].limit, heard_each,
                         &heard, &err) == 0 &&
                  strcmp(heard.text, rows[i].expected) == 0,
              "%s after %s: %s", rows[i].prefix, rows[i].after, heard.text);
    }
    struct heard stopped = {.most = 2};
    CHECK(store_list(env->store, "b/", NULL, 100, heard_each, &stopped, &err) == 0 &&
              stopped.count == 2,
          "%u after two", stopped.count);
}

/* A callback of a listing that lists, reads and writes. */
static bool nested_each(void *arg, const struct store_value *value)
{
    struct env *env = arg;
    struct heard heard = {.text = ""};
    struct store_value got;
    struct error err;
    uint64_t first, next;

    CHECK(store_list(env->store, "k", NULL, 10, heard_each, &heard, &err) == 0 && heard.count == 3,
          "%u", heard.count);
    CHECK(store_get(env->store, value->key, &got, &err) == 1, "%s", value->key);
    CHECK(store_read(env->store, "s", 0, 10, heard_each, &heard, &first, &next, &err) == 0, "%s",
          err.text);
    store_value_free(&got);
    store_put(env->store, value->key, NULL, 0, STORE_ANY, NULL, NULL);
    return true;
}

static void check_nested(struct env *env)
{
    struct heard heard = {.text = ""};
    struct error err;

    for (char key[] = "k1"; key[1] <= '3'; key[1]++)
        CHECK(answer_is(env_put(env, key, "v", 0), ""), "%s", key);
    CHECK(store_list(env->store, "k", NULL, 10, nested_each, env, &err) == 0, "%s", err.text);
    env_wait(env);
    CHECK(store_list(env->store, "k", NULL, 10, heard_each, &heard, &err) == 0 && heard.count == 0,
          "%s", heard.text);
}

static void check_bounds(struct env *env)
{
    static char big[STORE_VALUE_MAX + 1];
    char key[STORE_KEY_MAX + 2];
    struct answer answer = {0};
    struct store_value value;
    struct error err;

    for (size_t i = 0; i < sizeof(big); i++)
        big[i] = (char)(i * 7);
    memset(key, 'k', sizeof(key));
    key[STORE_KEY_MAX + 1] = '\0';
    CHECK(answer_is(env_put(env, key, "v", STORE_ANY), "store_failed"), "a key that is too long");
    CHECK(answer_is(env_put(env, "", "v", STORE_ANY), "store_failed"), "an empty key");
    CHECK(answer_is(env_lease(env, "l", key, 1), "store_failed"), "an owner that is too long");
    key[STORE_KEY_MAX] = '\0';
    store_put(env->store, key, big, STORE_VALUE_MAX, 0, answer_take, &answer);
    env_wait(env);
    CHECK(answer_is(answer, ""), "%s", answer.err.text);
    CHECK(store_get(env->store, key, &value, &err) == 1 && value.size == STORE_VALUE_MAX &&
              memcmp(value.data, big, STORE_VALUE_MAX) == 0,
          "%zu bytes", value.size);
    store_value_free(&value);
    answer = (struct answer){0};
    store_put(env->store, "big", big, STORE_VALUE_MAX + 1, 0, answer_take, &answer);
    env_wait(env);
    CHECK(answer_is(answer, "store_failed") && strstr(answer.err.text, "1048577 bytes") != NULL,
          "%s", answer.err.text);
    CHECK(answer_is(env_put(env, "empty", "", 0), ""), "an empty value");
    CHECK(store_get(env->store, "empty", &value, &err) == 1 && value.size == 0 &&
              value.data != NULL && *(char *)value.data == '\0',
          "an empty value is none");
    store_value_free(&value);
}

static unsigned queue_done, queue_refused;

static void queue_count(void *arg, uint64_t revision, const struct error *err)
{
    (void)arg;
    (void)revision;
    queue_done += err == NULL;
    queue_refused += err != NULL && strcmp(err->code, "store_failed") == 0;
}

/* A disk that is too slow must cost a bounded amount of memory. */
static void check_queue(struct env *env)
{
    static char big[STORE_VALUE_MAX];

    queue_done = queue_refused = 0;
    for (unsigned i = 0; i < 80; i++)
        store_put(env->store, "big", big, sizeof(big), STORE_ANY, queue_count, NULL);
    env_wait(env);
    CHECK(queue_done == 64 && queue_refused == 16, "%u done, %u refused", queue_done,
          queue_refused);
    CHECK(answer_is(env_put(env, "big", "small", STORE_ANY), ""), "later there is room again");
}

static void check_watch(struct env *env)
{
    struct heard all = {.text = ""}, some = {.text = ""}, late = {.text = ""};
    struct store_watch *watch_all, *watch_some, *watch_late;
    struct error err;

    CHECK(store_watch(env->store, "", 1, heard_change, &all, &watch_all, &err) == 0, "%s",
          err.text);
    (void)env_put(env, "a/1", "x", STORE_ANY);
    (void)env_put(env, "b/1", "y", STORE_ANY);
    (void)env_lease(env, "a/1", "me", 1000);
    CHECK(store_watch(env->store, "a/", 0, heard_change, &some, &watch_some, &err) == 0, "%s",
          err.text);
    CHECK(strcmp(some.text, "a/1=x@1 ") == 0, "%s", some.text);
    /* Asked for, but maybe not committed, or committed and not told yet. */
    store_put(env->store, "a/2", "p", 1, STORE_ANY, NULL, NULL);
    store_put(env->store, "a/2", "q", 1, 0, NULL, NULL);
    store_put(env->store, "a/1", NULL, 0, STORE_ANY, NULL, NULL);
    (void)usleep(20000);
    CHECK(store_watch(env->store, "a/", 4, heard_change, &late, &watch_late, &err) == 0, "%s",
          err.text);
    env_wait(env);
    CHECK(strcmp(all.text, "a/1=x@1 b/1=y@2 a/2=p@4 a/1!@5 ") == 0, "%s", all.text);
    CHECK(strcmp(some.text, "a/1=x@1 a/2=p@4 a/1!@5 ") == 0, "%s", some.text);
    CHECK(strcmp(late.text, "a/2=p@4 a/1!@5 ") == 0, "%s", late.text);
    store_unwatch(watch_some);
    (void)env_put(env, "a/3", "z", STORE_ANY);
    CHECK(some.count == 3 && all.count == 5, "%s; %s", some.text, all.text);
    store_unwatch(watch_all);
    store_unwatch(watch_late);
    CHECK(!uv_loop_alive(&env->loop), "a store that is idle keeps the loop alive");
}

static struct store_watch *first_watch, *second_watch;
static unsigned watch_calls;

/* The first one to hear of it ends both. */
static void watch_end_both(void *arg, const struct store_value *value)
{
    (void)arg;
    (void)value;
    watch_calls++;
    store_unwatch(first_watch);
    store_unwatch(second_watch);
}

static void check_unwatch_within(struct env *env)
{
    struct error err;

    watch_calls = 0;
    CHECK(store_watch(env->store, "", 1, watch_end_both, NULL, &first_watch, &err) == 0 &&
              store_watch(env->store, "", 1, watch_end_both, NULL, &second_watch, &err) == 0,
          "%s", err.text);
    (void)env_put(env, "a", "x", STORE_ANY);
    (void)env_put(env, "a", "x", STORE_ANY);
    CHECK(watch_calls == 1, "%u calls", watch_calls);
    /* While it is told of the past. */
    second_watch = NULL;
    CHECK(store_watch(env->store, "", 1, watch_end_both, NULL, &first_watch, &err) == 0, "%s",
          err.text);
    CHECK(watch_calls == 2, "%u calls", watch_calls);
}

static void check_watch_over_restart(struct env *env)
{
    struct heard heard = {.text = ""};
    struct store_watch *watch;
    struct error err;
    char key[32];

    (void)env_put(env, "a", "1", STORE_ANY);
    (void)env_put(env, "a", "2", STORE_ANY);
    (void)env_put(env, "b", "1", STORE_ANY);
    (void)env_put(env, "b", NULL, STORE_ANY);
    env_close(env);
    CHECK(env_open(env) == 0, "%s", env->err.text);
    CHECK(store_watch(env->store, "", 1, heard_change, &heard, &watch, &err) == 0, "%s", err.text);
    CHECK(strcmp(heard.text, "a=2@2 b!@4 ") == 0, "%s", heard.text);
    (void)env_put(env, "c", "1", STORE_ANY);
    CHECK(strcmp(heard.text, "a=2@2 b!@4 c=1@5 ") == 0, "%s", heard.text);
    store_unwatch(watch);
    for (unsigned i = 0; i < 10000; i++) {
        (void)snprintf(key, sizeof(key), "key/%u", i % 100);
        store_put(env->store, key, "v", 1, STORE_ANY, NULL, NULL);
    }
    env_wait(env);
    CHECK(store_revision(env->store) == 10005, "%" PRIu64, store_revision(env->store));
    for (unsigned i = 0; i < 2; i++) {
        struct heard late = {.text = ""};

        CHECK(store_watch(env->store, "", 5, heard_change, &late, &watch, &err) == -1 &&
                  strcmp(err.code, "compacted") == 0,
              "%s", err.code);
        CHECK(store_watch(env->store, "", 0, heard_change, &late, &watch, &err) == -1, "from 0");
        CHECK(store_watch(env->store, "key/", 6, heard_change, &late, &watch, &err) == 0, "%s",
              err.text);
        CHECK(late.count == 100, "%u changes", late.count);
        store_unwatch(watch);
        env_close(env);
        CHECK(env_open(env) == 0, "%s", env->err.text);
    }
}

static void check_lease(struct env *env)
{
    struct answer first, answer;

    first = env_lease(env, "leader", "one", 60000);
    CHECK(answer_is(first, "") && first.revision > 0, "%s", first.err.text);
    answer = env_lease(env, "leader", "two", 60000);
    CHECK(answer_is(answer, "conflict") && strstr(answer.err.text, "ms more") != NULL, "%s",
          answer.err.text);
    CHECK(answer_is(env_lease(env, "leader", "two", 0), "conflict"), "another gave it back");
    CHECK(answer_is(env_lease(env, "other", "two", 60000), ""), "another name");
    env_close(env);
    CHECK(env_open(env) == 0, "%s", env->err.text);
    CHECK(answer_is(env_lease(env, "leader", "two", 60000), "conflict"),
          "it did not hold over a restart");
    CHECK(answer_is(env_lease(env, "leader", "one", 600000), ""), "a renewal");
    set_clock_advance(590000 * 1000000ULL);
    CHECK(answer_is(env_lease(env, "leader", "two", 60000), "conflict"), "it has not run out");
    set_clock_advance(10000 * 1000000ULL);
    CHECK(answer_is(env_lease(env, "leader", "two", 60000), ""), "it has run out");
    CHECK(answer_is(env_lease(env, "leader", "two", 0), ""), "given back");
    /* By the clock of the machine. */
    CHECK(answer_is(env_lease(env, "leader", "one", 50), ""), "another");
    (void)usleep(60000);
    answer = env_lease(env, "leader", "two", 60000);
    CHECK(answer_is(answer, "") && answer.revision > first.revision, "%s", answer.err.text);
    CHECK(answer_is(env_lease(env, "leader", "one", 60000), "conflict"), "it has run out");
    CHECK(answer_is(env_lease(env, "leader", "two", 0), ""), "given back");
    CHECK(answer_is(env_lease(env, "leader", "one", UINT64_MAX), ""), "for ever");
    CHECK(answer_is(env_lease(env, "leader", "two", 1), "conflict"), "for ever is over");
}

static void check_stream(struct env *env)
{
    struct heard heard = {.text = ""};
    uint64_t first = 0, next = 0;
    struct error err;
    char text[32];

    CHECK(store_read(env->store, "log", 1, 10, heard_each, &heard, &first, &next, &err) == 0 &&
              first == 1 && next == 1 && heard.count == 0,
          "%" PRIu64 " to %" PRIu64, first, next);
    for (unsigned i = 1; i <= 8; i++) {
        struct answer answer;

        (void)snprintf(text, sizeof(text), "e%u", i);
        answer = env_publish(env, "log", text, 5);
        CHECK(answer_is(answer, "") && answer.revision == i, "%" PRIu64, answer.revision);
        (void)env_publish(env, "log2", "x", 100);
    }
    env_close(env);
    CHECK(env_open(env) == 0, "%s", env->err.text);
    CHECK(store_read(env->store, "log", 0, 100, heard_each, &heard, &first, &next, &err) == 0 &&
              first == 4 && next == 9,
          "%" PRIu64 " to %" PRIu64, first, next);
    CHECK(strcmp(heard.text, "log=e4@4 log=e5@5 log=e6@6 log=e7@7 log=e8@8 ") == 0, "%s",
          heard.text);
    heard = (struct heard){.text = ""};
    CHECK(store_read(env->store, "log", 6, 2, heard_each, &heard, &first, &next, &err) == 0, "%s",
          err.text);
    CHECK(strcmp(heard.text, "log=e6@6 log=e7@7 ") == 0, "%s", heard.text);
    CHECK(env_publish(env, "log", "e9", 0).revision == 9, "the sequence began anew");
    heard = (struct heard){.text = ""};
    CHECK(store_read(env->store, "log", 0, 100, heard_each, &heard, &first, &next, &err) == 0 &&
              first == 10 && next == 10 && heard.count == 0,
          "%" PRIu64 " to %" PRIu64 ": %s", first, next, heard.text);
    CHECK(env_publish(env, "log", "e10", UINT64_MAX).revision == 10, "a gap");
}

static void check_restart(struct env *env)
{
    struct store_value value;
    struct answer answer = {0};
    uint64_t revision;
    struct error err;

    (void)env_put(env, "a", "1", STORE_ANY);
    (void)env_put(env, "b", "1", STORE_ANY);
    (void)env_put(env, "b", NULL, STORE_ANY);
    revision = store_revision(env->store);
    for (unsigned i = 0; i < 3; i++) {
        env_close(env);
        CHECK(env_open(env) == 0, "%s", env->err.text);
        CHECK(store_revision(env->store) == revision, "it went back");
        answer = env_put(env, "c", "x", STORE_ANY);
        CHECK(answer.revision == revision + 1, "%" PRIu64, answer.revision);
        revision = answer.revision;
    }
    CHECK(store_get(env->store, "a", &value, &err) == 1 && value.revision == 1, "a is gone");
    store_value_free(&value);
    /* Closed while it waits: it is answered, and on the disk. */
    answer = (struct answer){0};
    store_put(env->store, "last", "x", 1, STORE_ANY, answer_take, &answer);
    store_close(env->store);
    CHECK(answer_is(answer, ""), "%u answers, %s", answer.count, answer.code);
    env->store = NULL;
    (void)uv_run(&env->loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&env->loop) == 0, "a handle is left");
    CHECK(env_open(env) == 0, "%s", env->err.text);
    CHECK(store_get(env->store, "last", &value, &err) == 1, "what was answered is not there");
    store_value_free(&value);
}

int main(void)
{
    env_run(check_put_and_get);
    env_run(check_conflicts);
    env_run(check_batch);
    env_run(check_order);
    env_run(check_list);
    env_run(check_nested);
    env_run(check_bounds);
    env_run(check_queue);
    env_run(check_watch);
    env_run(check_unwatch_within);
    env_run(check_watch_over_restart);
    env_run(check_lease);
    env_run(check_stream);
    env_run(check_restart);
    return check_finish();
}
