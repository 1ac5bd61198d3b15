/* Who may ask: the first key, keys of tenants, quotas, rates, and who hears of which events. */
#include "base/fd.h"
#include "base/list.h"
#include "base/sha256.h"
#include "check.h"
#include "engine/parts.h"
#include "rig.h"
#include "store/store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct engine_caller operator= {
    .tenant = "default", .key_id = "k0", .scopes = ENGINE_ALL};

/* ---- the first key ---- */

static void first_key(struct rig *rig, char secret[128])
{
    ssize_t size = fd_read_file(rig->dir, "operator.key", secret, 128);

    CHECK(size > 60, "operator.key has %zd bytes", size);
    secret[strcspn(secret, "\n")] = '\0';
}

/* Whether any file of the store has this text in it. */
static bool store_has(struct rig *rig, const char *text)
{
    int dir = openat(rig->dir, "store", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = list_open(dir, ".");
    const struct dirent *entry;
    char *bytes = malloc(8 << 20);
    bool has = false;
    unsigned files = 0;

    if (list == NULL || bytes == NULL)
        abort();
    while ((entry = readdir(list)) != NULL) {
        _cleanup_close_ int fd = openat(dir, entry->d_name, O_RDONLY | O_CLOEXEC);
        ssize_t size = entry->d_name[0] != '.' ? fd_read_full(fd, bytes, 8 << 20) : -1;

        files += size > 0;
        has |= size > 0 && memmem(bytes, (size_t)size, text, strlen(text)) != NULL;
    }
    CHECK(files > 0, "it has files");
    (void)closedir(list);
    fd_close(&dir);
    free(bytes);
    return has;
}

static bool has_begun(void *arg)
{
    return events_told(arg) > 0;
}

static void check_first_key(struct rig *rig)
{
    char secret[128], again[128], hash[SHA256_TEXT];
    struct sha256 sum;
    struct engine_caller caller;
    struct stat st;
    struct error err;

    first_key(rig, secret);
    CHECK(fstatat(rig->dir, "operator.key", &st, 0) == 0 && (st.st_mode & 0777) == 0600, "0600");
    CHECK(rig_until(rig, has_begun, rig->engine), "the first key is the first event");
    CHECK(engine_key_check(rig->engine, secret, &caller, &err) == 0 &&
              caller.scopes == ENGINE_ALL && strcmp(caller.tenant, "default") == 0,
          "it opens everything");
    rig_close(rig);
    rig_open(rig);
    first_key(rig, again);
    CHECK(strcmp(secret, again) == 0 && engine_key_check(rig->engine, again, &caller, &err) == 0,
          "the next engine has the same");
    rig_close(rig);
    sha256_begin(&sum);
    sha256_add(&sum, secret, strlen(secret));
    sha256_end(&sum, hash);
    CHECK(store_has(rig, hash) && !store_has(rig, secret + 5), "only its hash is kept");
}

/* ---- checking ---- */

static void check_wrong_keys(struct rig *rig)
{
    char secret[128], wrong[130], *endless = malloc(100000);
    struct engine_caller caller;
    struct error first, err;

    if (endless == NULL)
        abort();
    first_key(rig, secret);
    CHECK(rig_until(rig, has_begun, rig->engine), "the first key is the first event");
    CHECK(engine_key_check(rig->engine, "", &caller, &first) != 0 && IS_CODE(first, "bad_key"),
          "none");
    for (size_t i = 0; secret[i] != '\0'; i++) {
        (void)snprintf(wrong, sizeof(wrong), "%s", secret);
        wrong[i] ^= 1;
        CHECK(engine_key_check(rig->engine, wrong, &caller, &err) != 0 &&
                  strcmp(err.text, first.text) == 0,
              "wrong at %zu", i);
        wrong[i] = '\0';
        CHECK(engine_key_check(rig->engine, wrong, &caller, &err) != 0, "cut at %zu", i);
    }
    (void)snprintf(wrong, sizeof(wrong), "%sx", secret);
    CHECK(engine_key_check(rig->engine, wrong, &caller, &err) != 0, "longer");
    memset(endless, 'a', 99999);
    endless[99999] = '\0';
    CHECK(engine_key_check(rig->engine, endless, &caller, &err) != 0, "endless");
    free(endless);
}

/* ---- making and ending ---- */

static bool count_key(void *arg, const struct engine_key_view *key)
{
    (void)key;
    ++*(unsigned *)arg;
    return true;
}

static void check_keys(struct rig *rig)
{
    struct engine_caller a, b, caller;
    struct rig_key made, other;
    unsigned count = 0;
    struct error err;

    CHECK(
        rig_key_make(rig, &operator, "a", "for a", ENGINE_READ | ENGINE_WRITE | ENGINE_KEYS, &made),
        "%s", made.answer.error.text);
    CHECK(engine_key_check(rig->engine, made.secret, &a, &err) == 0 && strcmp(a.tenant, "a") == 0 &&
              strcmp(a.key_id, made.id) == 0,
          "it opens its tenant");
    CHECK(rig_key_make(rig, &operator, "b", "", ENGINE_KEYS, &other), "another tenant's");
    CHECK(engine_key_check(rig->engine, other.secret, &b, &err) == 0, "which opens");
    CHECK(!rig_key_make(rig, &a, "b", "", ENGINE_READ, &made) && IS(made.answer, "forbidden"),
          "not for another tenant");
    CHECK(!rig_key_make(rig, &a, NULL, "", ENGINE_OPERATOR, &made) && IS(made.answer, "forbidden"),
          "not more than one has");
    CHECK(!rig_key_make(rig, &b, NULL, "", ENGINE_READ, &made) && IS(made.answer, "forbidden"),
          "nor that");
    CHECK(!rig_key_make(rig, &operator, "a/b", "", ENGINE_READ, &made) &&
              IS(made.answer, "bad_request"),
          "a tenant that is no name");
    CHECK(!rig_key_make(rig, &operator, "a", "", 0, &made) && IS(made.answer, "bad_request"),
          "no scope");
    CHECK(!rig_key_make(rig, &operator, "a", "\xff", ENGINE_READ, &made) &&
              IS(made.answer, "bad_request"),
          "a label that is not UTF-8");
    CHECK(rig_key_make(rig, &a, NULL, "mine", ENGINE_READ, &made) && strcmp(made.tenant, "a") == 0,
          "one's own");
    engine_key_each(rig->engine, &a, count_key, &count);
    CHECK(count == 2, "a sees its two: %u", count);
    count = 0;
    engine_key_each(rig->engine, &rig_reader, count_key, &count);
    CHECK(count == 0, "who may not, sees none");
    count = 0;
    engine_key_each(rig->engine, &operator, count_key, &count);
    CHECK(count == 4, "the operator sees all: %u", count);
    CHECK(IS(rig_key_end(rig, &b, made.id), "key_not_found"), "another tenant's is not there");
    CHECK(IS(rig_key_end(rig, &a, "k1"), "key_not_found"), "nor one that never was");
    CHECK(!rig_key_end(rig, &a, made.id).failed, "ended");
    CHECK(engine_key_check(rig->engine, made.secret, &caller, &err) != 0, "and opens nothing");
    rig_close(rig);
    rig_open(rig);
    CHECK(engine_key_check(rig->engine, made.secret, &caller, &err) != 0, "nor after a restart");
    CHECK(engine_key_check(rig->engine, other.secret, &caller, &err) == 0 &&
              caller.scopes == ENGINE_KEYS,
          "the others do");
}

/* What a key of few rights may not do to others, nor many keys of one tenant. */
static void check_keys_of_a_tenant(struct rig *rig)
{
    struct engine_caller a, lesser;
    struct rig_key made, own;
    unsigned count = 0;
    struct error err;

    CHECK(rig_key_make(rig, &operator, "a", "", ENGINE_READ | ENGINE_WRITE | ENGINE_KEYS, &own),
          "a");
    CHECK(engine_key_check(rig->engine, own.secret, &a, &err) == 0, "%s", err.text);
    CHECK(rig_key_make(rig, &a, NULL, "", ENGINE_READ | ENGINE_KEYS, &made), "a lesser one");
    CHECK(engine_key_check(rig->engine, made.secret, &lesser, &err) == 0, "%s", err.text);
    CHECK(IS(rig_key_end(rig, &lesser, own.id), "forbidden"), "it does not end a greater one");
    CHECK(engine_key_check(rig->engine, own.secret, &a, &err) == 0, "which is still there");
    for (count = 2; count < 300 && rig_key_make(rig, &a, NULL, "", ENGINE_READ, &made); count++)
        ;
    CHECK(count == 256 && IS(made.answer, "quota"), "%u keys, %s", count, made.answer.error.code);
    CHECK(rig_key_make(rig, &operator, "a", "", ENGINE_READ, &made), "the operator may");
    CHECK(rig_key_make(rig, &operator, "b", "", ENGINE_READ, &made), "and others have room");
}

/* ---- quotas ---- */

static bool set_quota(struct rig *rig, const struct engine_caller *caller, const char *tenant,
                      const struct engine_quota *quota, struct answer *answer)
{
    *answer = (struct answer){0};
    engine_quota_set(rig->engine, caller, tenant, quota, rig_ended, answer);
    return rig_done(rig, answer);
}

static void check_quotas(struct rig *rig)
{
    struct engine_quota quota = {.sandboxes = 3, .memory_bytes = 128 << 20}, has, used;
    struct answer answer, made[3], seen;
    struct sandbox_spec spec = rig_spec(NULL);
    struct error err;

    CHECK(!set_quota(rig, &rig_caller, "default", &quota, &answer) && IS(answer, "forbidden"),
          "who is no operator sets none");
    CHECK(set_quota(rig, &operator, "default", &quota, &answer), "%s", answer.error.text);
    rig_made(rig, NULL, &made[0]);
    rig_made(rig, NULL, &made[1]);
    rig_create(rig, &spec, &seen);
    CHECK(rig_fails(rig, &seen, "quota") &&
              strstr(seen.error.text, "128M bytes of memory, has 128M and asks for 64M more"),
          "%s", seen.error.text);
    CHECK(rig_wait(rig, rig_stop(rig, made[0].id, &seen)), "what is stopped takes no memory");
    rig_made(rig, NULL, &made[2]);
    rig_start_it(rig, made[0].id, &seen);
    CHECK(rig_fails(rig, &seen, "quota"), "a start counts: %s", seen.error.code);
    CHECK(rig_look(rig, made[0].id, &seen) == SANDBOX_STOPPED, "it is only stopped");
    (void)rig_wait(rig, rig_stop(rig, made[1].id, &seen));
    rig_create(rig, &spec, &seen);
    CHECK(rig_fails(rig, &seen, "quota") && strstr(seen.error.text, "sandboxes"), "%s",
          seen.error.text);
    CHECK(engine_quota_get(rig->engine, &rig_caller, "default", &has, &used, &err) == 0 &&
              has.sandboxes == 3 && used.sandboxes == 3 && used.memory_bytes == 64 << 20,
          "what is used");
    CHECK(engine_quota_get(rig->engine, &rig_caller, "other", &has, &used, &err) != 0 &&
              IS_CODE(err, "forbidden"),
          "another tenant's is not for him");
    rig_close(rig);
    rig_open(rig);
    CHECK(engine_quota_get(rig->engine, &operator, "default", &has, &used, &err) == 0 &&
              has.memory_bytes == 128 << 20,
          "it is kept");
}

static void check_process_quota(struct rig *rig)
{
    struct engine_quota quota = {.pids = 300}, has, used;
    struct sandbox_spec spec = rig_spec(NULL);
    struct answer answer, first, second;
    struct error err;

    rig->options.most.pids = 250;
    rig_open(rig);
    CHECK(set_quota(rig, &operator, "default", &quota, &answer), "%s", answer.error.text);
    spec.limits.pids = 251;
    CHECK(rig_fails(rig, rig_create(rig, &spec, &first), "bad_request"), "more than one may have");
    spec.limits.pids = 200;
    CHECK(rig_done(rig, rig_create(rig, &spec, &first)), "%s", first.error.text);
    CHECK(rig_fails(rig, rig_create(rig, &spec, &second), "quota") &&
              strstr(second.error.text, "processes") != NULL,
          "two together have too many: %s", second.error.text);
    CHECK(engine_quota_get(rig->engine, &rig_caller, "default", &has, &used, &err) == 0 &&
              has.pids == 300 && used.pids == 200,
          "%u of %u are used", (unsigned)used.pids, (unsigned)has.pids);
    CHECK(rig_done(rig, rig_stop(rig, first.id, &answer)), "%s", answer.error.text);
    CHECK(rig_done(rig, rig_create(rig, &spec, &second)), "what is stopped has none: %s",
          second.error.text);
    rig_close(rig);
    rig->options.most.pids = 0;
    rig_open(rig);
    CHECK(engine_quota_get(rig->engine, &operator, "default", &has, &used, &err) == 0 &&
              has.pids == 300,
          "it is kept");
}

struct port_told {
    struct answer answer;
    struct sandbox_port port;
};

static void port_opened(void *arg, const struct sandbox_port *port, const struct error *err)
{
    struct port_told *told = arg;

    if (port != NULL)
        told->port = *port;
    rig_ended(&told->answer, err);
}

static struct answer *open_port(struct rig *rig, const char *id, uint16_t port,
                                struct port_told *told)
{
    *told = (struct port_told){0};
    engine_port_open(rig->engine, &rig_caller, id, port, -1, port_opened, told);
    return &told->answer;
}

static bool close_port(struct rig *rig, const char *id, uint16_t port)
{
    struct answer closed = {0};

    engine_port_close(rig->engine, &rig_caller, id, port, rig_ended, &closed);
    return rig_done(rig, &closed);
}

static void check_port_quota(struct rig *rig)
{
    struct engine_quota quota = {.ports = 3}, has, used;
    static const struct sandbox_port_wish ports[] = {{8000, false}, {8001, false}, {8002, false}};
    struct sandbox_spec spec = rig_spec(NULL);
    struct answer answer, first, second;
    struct port_told told[2];
    struct error err;

    rig->options.ports = 2;
    rig_open(rig);
    spec.ports = ports;
    spec.ports_count = 3;
    CHECK(rig_fails(rig, rig_create(rig, &spec, &first), "quota"), "more than the server's own");
    CHECK(set_quota(rig, &operator, "default", &quota, &answer), "%s", answer.error.text);
    spec.ports_count = 2;
    CHECK(rig_done(rig, rig_create(rig, &spec, &first)), "%s", first.error.text);
    CHECK(rig_fails(rig, rig_create(rig, &spec, &second), "quota") &&
              strstr(second.error.text, "ports") != NULL,
          "two sandboxes together have too many: %s", second.error.text);
    rig_made(rig, NULL, &second);
    /* Neither is written down when the other is asked for. */
    (void)open_port(rig, first.id, 9000, &told[0]);
    (void)open_port(rig, second.id, 9000, &told[1]);
    CHECK(rig_wait(rig, &told[0].answer) && rig_wait(rig, &told[1].answer), "both are answered");
    CHECK(!told[0].answer.failed && IS(told[1].answer, "quota"), "%s, %s",
          told[0].answer.error.text, told[1].answer.error.text);
    CHECK(rig_done(rig, open_port(rig, first.id, 9000, &told[0])), "one that is open is no more");
    CHECK(engine_quota_get(rig->engine, &rig_caller, "default", &has, &used, &err) == 0 &&
              has.ports == 3 && used.ports == 3,
          "%u of %u are used", (unsigned)used.ports, (unsigned)has.ports);
    CHECK(rig_done(rig, rig_stop(rig, first.id, &answer)), "what is stopped keeps its numbers");
    CHECK(rig_fails(rig, open_port(rig, second.id, 9000, &told[1]), "quota"), "so they count");
    CHECK(rig_done(rig, rig_start_it(rig, first.id, &answer)), "a start needs no more");
    CHECK(close_port(rig, first.id, 9000) &&
              rig_done(rig, open_port(rig, second.id, 9000, &told[1])),
          "what is closed is another's: %s", told[1].answer.error.text);
    rig_close(rig);
    rig_open(rig);
    CHECK(rig_fails(rig, open_port(rig, second.id, 9001, &told[1]), "quota"), "it is kept");
}

static void check_rate(struct rig *rig)
{
    struct engine_quota quota = {.requests_per_second = 20};
    struct answer answer;
    unsigned taken = 0, retry_ms = 0;
    uint64_t begun;
    struct error err;

    for (unsigned i = 0; i < 1000; i++)
        taken += engine_rate(rig->engine, &rig_caller, &retry_ms, &err) == 0;
    CHECK(taken == 1000, "no rate is no limit");
    begun = uv_hrtime();
    (void)set_quota(rig, &operator, "default", &quota, &answer);
    taken = 0;
    for (unsigned i = 0; i < 1000; i++)
        taken += engine_rate(rig->engine, &rig_caller, &retry_ms, &err) == 0;
    CHECK(taken >= 20 && taken <= 21 + 20 * (uv_hrtime() - begun) / 1000000000, "%u of 1000",
          taken);
    CHECK(IS_CODE(err, "too_many_requests") && retry_ms > 0 && retry_ms <= 51, "again in %u ms",
          retry_ms);
    CHECK(engine_rate(rig->engine, &rig_other, &retry_ms, &err) == 0, "others go on");
    rig_pass(rig, 120);
    CHECK(engine_rate(rig->engine, &rig_caller, &retry_ms, &err) == 0, "time passes");
}

/* ---- events ---- */

struct heard {
    uint64_t first, last;
    unsigned count, created, deleted, foreign, most; /* 0: it takes all */
    bool is_ordered, is_cut;
};

static bool hear(void *arg, const struct engine_event *event)
{
    struct heard *heard = arg;

    if (event == NULL) {
        heard->is_cut = true;
        return false;
    }
    heard->count++;
    heard->created += strcmp(event->type, "sandbox.created") == 0;
    heard->deleted += strcmp(event->type, "sandbox.deleted") == 0;
    heard->foreign += strcmp(event->tenant, "default") != 0;
    heard->is_ordered = heard->count == 1 || (heard->is_ordered && event->sequence > heard->last);
    if (heard->first == 0)
        heard->first = event->sequence;
    heard->last = event->sequence;
    return heard->most == 0 || heard->count < heard->most;
}

static bool heard_crowd(void *arg)
{
    const struct heard *heard = arg;

    return heard->created == 20 && heard->deleted == 20;
}

static bool heard_crowd_of_all(void *arg)
{
    return ((const struct heard *)arg)->foreign == 202;
}

static void check_events(struct rig *rig)
{
    struct heard mine = {0}, others = {0}, later = {0}, again = {0};
    struct engine_listener *listener, *other;
    struct answer made, gone;
    bool missed = true;

    listener = engine_listen(rig->engine, &rig_caller, 0, &missed, hear, &mine);
    CHECK(!missed, "nothing is missed");
    other = engine_listen(rig->engine, &rig_other, 0, &missed, hear, &others);
    for (unsigned i = 0; i < 20; i++) {
        rig_made(rig, NULL, &made);
        (void)rig_wait(rig, rig_delete(rig, made.id, &gone));
    }
    rig_turn(rig, 50);
    CHECK(mine.created == 20 && mine.deleted == 20 && mine.is_ordered, "%u, %u", mine.created,
          mine.deleted);
    CHECK(others.count == 0, "another tenant hears nothing");
    engine_unlisten(listener);
    engine_unlisten(other);
    rig_close(rig);
    rig_open(rig);
    listener = engine_listen(rig->engine, &rig_caller, mine.first, &missed, hear, &later);
    (void)rig_until(rig, heard_crowd, &later);
    CHECK(!missed && later.created == 20 && later.deleted == 20, "after a restart: %u, %u",
          later.created, later.deleted);
    rig_made(rig, NULL, &made);
    rig_turn(rig, 50);
    CHECK(later.created == 21 && later.is_ordered && later.last > mine.last, "and on");
    engine_unlisten(listener);
    (void)engine_listen(rig->engine, &rig_caller, later.last + 1000, &missed, hear, &again);
    CHECK(missed, "a number that was never given: something is missed");
    rig_turn(rig, 20);
    CHECK(again.count == 0, "and nothing invented");
}

static void check_listening_by_a_key(struct rig *rig)
{
    struct heard heard = {0}, others = {0};
    struct engine_caller caller, writer = rig_caller;
    struct engine_listener *listener, *other;
    struct rig_key made;
    struct error err;
    bool missed;

    writer.scopes = ENGINE_WRITE;
    CHECK(engine_listen(rig->engine, &writer, 0, &missed, hear, &heard) == NULL, "it may not read");
    CHECK(rig_key_make(rig, &operator, "default", "", ENGINE_READ, &made), "a key");
    CHECK(engine_key_check(rig->engine, made.secret, &caller, &err) == 0, "%s", err.text);
    listener = engine_listen(rig->engine, &caller, 0, &missed, hear, &heard);
    other = engine_listen(rig->engine, &rig_caller, 0, &missed, hear, &others);
    CHECK(!rig_key_end(rig, &operator, made.id).failed, "it ends");
    rig_turn(rig, 20);
    events_add(rig->engine, "test", "default", "none", NULL, NULL);
    rig_turn(rig, 20);
    CHECK(heard.is_cut && heard.count == 0, "who listened by it is cut off: %u", heard.count);
    CHECK(!others.is_cut && others.count == 2, "and nobody else, who hears of it: %u",
          others.count);
    engine_unlisten(listener);
    engine_unlisten(other);
}

#define OLD 20000U

static bool is_written(void *arg)
{
    return !events_pending(arg);
}

static bool heard_last(void *arg)
{
    const struct heard *heard = arg;

    return heard->last == OLD;
}

/* Far more than the ring holds: a part in each turn, and no more where the listener has enough. */
static void check_old_events(struct rig *rig)
{
    struct heard all = {0}, late = {0}, few = {.most = 3};
    struct engine_listener *listener;
    bool missed;

    CHECK(rig_until(rig, has_begun, rig->engine), "the first key is the first event");
    for (unsigned i = 1; i < OLD; i++)
        events_add(rig->engine, "test", "default", "none", NULL, NULL);
    CHECK(rig_until(rig, is_written, rig->engine), "written");
    listener = engine_listen(rig->engine, &rig_caller, 1, &missed, hear, &all);
    (void)uv_run(&rig->loop, UV_RUN_NOWAIT);
    CHECK(all.count > 0 && all.count <= 512, "%u in a turn", all.count);
    (void)rig_until(rig, heard_last, &all);
    CHECK(!missed && all.count == OLD && all.first == 1 && all.last == OLD && all.is_ordered,
          "%u, %u to %u", all.count, (unsigned)all.first, (unsigned)all.last);
    engine_unlisten(listener);
    listener = engine_listen(rig->engine, &rig_caller, OLD / 2, &missed, hear, &late);
    (void)rig_until(rig, heard_last, &late);
    CHECK(!missed && late.count == OLD / 2 + 1 && late.first == OLD / 2 && late.is_ordered,
          "%u from %u", late.count, (unsigned)late.first);
    engine_unlisten(listener);
    listener = engine_listen(rig->engine, &rig_caller, 700, &missed, hear, &few);
    rig_turn(rig, 100);
    CHECK(few.count == 3 && few.first == 700 && few.last == 702, "%u to %u", few.count,
          (unsigned)few.last);
    engine_unlisten(listener);
}

/* A tenant that makes as much noise as it can pushes nobody's history out but its own; and many tenants
 * that were heard of once are found again. */
static void check_histories(struct rig *rig)
{
    struct heard mine = {0}, late = {0}, some = {0};
    struct engine_caller caller = {.key_id = "k1", .scopes = ENGINE_READ};
    struct engine_listener *listener;
    bool missed;

    CHECK(rig_until(rig, has_begun, rig->engine), "the first key is the first event");
    for (unsigned i = 0; i < 10; i++)
        events_add(rig->engine, "test", "other", "none", NULL, NULL);
    for (unsigned i = 0; i < 100000; i++)
        events_add(rig->engine, "test", "default", "none", NULL, NULL);
    for (unsigned i = 0; i < 1000; i++) {
        (void)snprintf(caller.tenant, sizeof(caller.tenant), "t%u", i);
        events_add(rig->engine, "test", caller.tenant, "none", NULL, NULL);
        if (i % 100 == 0)
            CHECK(rig_until(rig, is_written, rig->engine), "written");
    }
    CHECK(rig_until(rig, is_written, rig->engine), "written");
    listener = engine_listen(rig->engine, &operator, 1, &missed, hear, &mine);
    CHECK(missed, "the history of all has an end, which is told");
    engine_unlisten(listener);
    (void)snprintf(caller.tenant, sizeof(caller.tenant), "other");
    listener = engine_listen(rig->engine, &caller, 1, &missed, hear, &late);
    rig_turn(rig, 100);
    CHECK(!missed && late.count == 10 && late.first == 1, "the quiet one has all: %u from %u",
          late.count, (unsigned)late.first);
    engine_unlisten(listener);
    (void)snprintf(caller.tenant, sizeof(caller.tenant), "t3");
    listener = engine_listen(rig->engine, &caller, 1, &missed, hear, &some);
    rig_turn(rig, 100);
    CHECK(!missed && some.count == 1, "one that was heard of once: %u", some.count);
    events_add(rig->engine, "test", "t3", "none", NULL, NULL);
    rig_turn(rig, 100);
    CHECK(some.count == 2 && some.last == some.first + 1, "and goes on where it was: %u after %u",
          (unsigned)some.last, (unsigned)some.first);
    engine_unlisten(listener);
}

static bool heard_two(void *arg)
{
    return ((const struct heard *)arg)->count >= 2;
}

/* No number says how much other tenants do: neither those that are given nor those after which nothing is missed. */
static void check_numbers_are_ones_own(struct rig *rig)
{
    struct heard mine = {0}, later = {0}, all = {0};
    struct engine_listener *listener;
    bool missed;

    CHECK(rig_until(rig, has_begun, rig->engine), "the first key is the first event");
    listener = engine_listen(rig->engine, &rig_caller, 0, &missed, hear, &mine);
    for (unsigned i = 0; i < 2; i++) {
        events_add(rig->engine, "test", "default", "none", NULL, NULL);
        for (unsigned j = 0; j < 100; j++)
            events_add(rig->engine, "test", "other", "none", NULL, NULL);
    }
    CHECK(rig_until(rig, heard_two, &mine), "heard: %u", mine.count);
    CHECK(mine.last == mine.first + 1, "%u after %u", (unsigned)mine.last, (unsigned)mine.first);
    engine_unlisten(listener);
    engine_unlisten(engine_listen(rig->engine, &rig_caller, mine.last + 2, &missed, hear, &later));
    CHECK(missed, "a number that this tenant was not given");
    rig_close(rig);
    rig_open(rig);
    engine_unlisten(engine_listen(rig->engine, &rig_caller, mine.last + 2, &missed, hear, &later));
    CHECK(missed, "nor by the engine before");
    listener = engine_listen(rig->engine, &rig_caller, mine.last + 1, &missed, hear, &later);
    CHECK(!missed, "after the last nothing is missed");
    for (unsigned i = 0; i < 2; i++) {
        events_add(rig->engine, "test", "other", "none", NULL, NULL);
        events_add(rig->engine, "test", "default", "none", NULL, NULL);
    }
    CHECK(rig_until(rig, heard_two, &later), "heard: %u", later.count);
    CHECK(later.first > mine.last && later.last == later.first + 1, "%u, %u after %u",
          (unsigned)later.first, (unsigned)later.last, (unsigned)mine.last);
    engine_unlisten(listener);
    listener = engine_listen(rig->engine, &operator, 1, &missed, hear, &all);
    (void)rig_until(rig, heard_crowd_of_all, &all);
    CHECK(!missed && all.is_ordered && all.foreign == 202, "an operator hears all in order: %u",
          all.foreign);
    engine_unlisten(listener);
}

/* After an end that was noted nothing is missing, also of who had heard all. After a crash nobody
 * knows: tests/front/test_events.py. */
static void check_ends_of_lives(struct rig *rig)
{
    struct heard heard = {0}, again = {0};
    struct engine_listener *listener;
    struct answer made;
    bool missed;

    listener = engine_listen(rig->engine, &rig_caller, 0, &missed, hear, &heard);
    rig_made(rig, NULL, &made);
    rig_turn(rig, 10);
    CHECK(heard.count > 0, "heard");
    engine_unlisten(listener);
    rig_close(rig);
    rig_open(rig);
    listener = engine_listen(rig->engine, &rig_caller, heard.last + 1, &missed, hear, &again);
    CHECK(!missed, "who heard all goes on");
    rig_made(rig, NULL, &made);
    rig_turn(rig, 10);
    CHECK(again.created == 1 && again.first > heard.last, "and hears what comes: %u", again.count);
    engine_unlisten(listener);
}

/* A listener that leaves in the middle of being told, and takes another one with it. */
struct leaver {
    struct engine_listener *self, *other;
    unsigned count;
};

static bool leave(void *arg, const struct engine_event *event)
{
    struct leaver *leaver = arg;

    (void)event;
    leaver->count++;
    engine_unlisten(leaver->self);
    engine_unlisten(leaver->other);
    return true;
}

static void check_leaving(struct rig *rig)
{
    struct leaver first = {.count = 0};
    struct heard heard = {0};
    struct answer made;
    bool missed;

    first.self = engine_listen(rig->engine, &rig_caller, 0, &missed, leave, &first);
    first.other = engine_listen(rig->engine, &rig_caller, 0, &missed, hear, &heard);
    rig_made(rig, NULL, &made);
    rig_made(rig, NULL, &made);
    rig_turn(rig, 50);
    CHECK(first.count == 1 && heard.count == 0, "%u, %u", first.count, heard.count);
}

int main(void)
{
    rig_run(check_first_key);
    rig_run(check_wrong_keys);
    rig_run(check_keys);
    rig_run(check_keys_of_a_tenant);
    rig_run(check_quotas);
    rig_run_unopened(check_process_quota);
    rig_run_unopened(check_port_quota);
    rig_run(check_rate);
    rig_run(check_events);
    rig_run(check_listening_by_a_key);
    rig_run(check_old_events);
    rig_run(check_histories);
    rig_run(check_numbers_are_ones_own);
    rig_run(check_ends_of_lives);
    rig_run(check_leaving);
    return check_finish();
}
