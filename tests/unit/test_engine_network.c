/* Which box has a network when, with a keeper that the test plays: asked for before a sandbox runs, of boxes of
 * the pool ahead, again by the next engine, shut where the policy becomes "none", and nothing of a sandbox
 * whose policy is that. What goes through is tested where it does. */
#include "check.h"
#include "rig.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ASKED(rig) ((rig).fake.counts[KEEPER_NETWORK])

static struct sandbox_spec spec_of(const char *name, const char *mode)
{
    struct sandbox_spec spec = rig_spec(name);

    spec.network.mode = mode;
    return spec;
}

static void made(struct rig *rig, const char *name, const char *mode, struct answer *answer)
{
    struct sandbox_spec spec = spec_of(name, mode);

    rig_create(rig, &spec, answer);
    CHECK(rig_wait(rig, answer) && !answer->failed, "%s: %s", name, answer->error.text);
}

static bool is_open(struct rig *rig, const char *id)
{
    const struct fake_box *box = fake_box_of(&rig->fake, id);

    return box != NULL && box->is_open;
}

/* What the engine says of it: 1, 0; -1 where it says nothing. */
static int has_network(struct rig *rig, const char *id, enum policy_mode mode)
{
    struct sandbox_traffic traffic;
    struct error err;

    if (engine_traffic(rig->engine, &rig_caller, id, &traffic, &err) != 0 ||
        policy_mode(traffic.policy) != mode)
        return -1;
    return traffic.is_open;
}

static void changes(struct rig *rig, const char *id, const struct sandbox_network *network,
                    struct answer *answer)
{
    struct sandbox_change change = {
        .deadline_ms = UINT64_MAX, .idle_ms = UINT64_MAX, .then = -1, .network = network};

    rig_change(rig, id, &change, answer);
    CHECK(rig_wait(rig, answer), "it is answered");
}

static const struct sandbox_network as_it_is = {.connections = UINT64_MAX,
                                                .lookups_per_second = UINT64_MAX,
                                                .bytes_per_second = UINT64_MAX,
                                                .bytes = UINT64_MAX};

static void check_create(void)
{
    struct rig rig;
    struct answer none, public, bad;
    struct sandbox_spec spec = spec_of("bad", NULL);
    static const char *const rules[] = {"no name", NULL};

    rig_start(&rig);
    rig_open(&rig);
    made(&rig, "none", NULL, &none);
    CHECK(ASKED(rig) == 0 && !is_open(&rig, none.id), "without a policy nothing is asked for");
    CHECK(has_network(&rig, none.id, POLICY_NONE) == 0, "and it is said so");
    made(&rig, "public", "public", &public);
    CHECK(ASKED(rig) == 2 && is_open(&rig, public.id), "both sockets: %u", ASKED(rig));
    CHECK(has_network(&rig, public.id, POLICY_PUBLIC) == 1, "and it is said so");
    spec.network.allow = rules;
    rig_create(&rig, &spec, &bad);
    CHECK(rig_wait(&rig, &bad) && strcmp(bad.error.code, "bad_policy") == 0, "%s", bad.error.code);
    spec = spec_of("bad", NULL);
    spec.network.deny = rules;
    rig_create(&rig, &spec, &bad);
    CHECK(rig_wait(&rig, &bad) && strcmp(bad.error.code, "bad_policy") == 0, "%s", bad.error.code);
    rig_end(&rig);
}

/* No sandbox runs whose network is not as its policy says. */
static void check_refused(void)
{
    struct rig rig;
    struct answer answer, stopped;
    struct sandbox_spec spec = spec_of("x", "public");

    rig_start(&rig);
    rig_open(&rig);
    rig.fake.refuse_networks = true;
    rig_create(&rig, &spec, &answer);
    CHECK(rig_wait(&rig, &answer) && strcmp(answer.error.code, "sandbox_failed") == 0, "%s",
          answer.error.code);
    CHECK(fake_boxes(&rig.fake) == 0, "its box is ended");
    CHECK(rig_look(&rig, "name:x", &answer) < 0, "and nothing is left");
    rig.fake.refuse_networks = false;
    made(&rig, "x", "public", &answer);
    rig_stop(&rig, answer.id, &stopped);
    CHECK(rig_wait(&rig, &stopped) && !stopped.failed, "stopped");
    CHECK(has_network(&rig, answer.id, POLICY_PUBLIC) == 0, "without a box it has none");
    rig.fake.refuse_networks = true;
    rig_start_it(&rig, answer.id, &stopped);
    CHECK(rig_wait(&rig, &stopped) && stopped.failed, "it does not start without");
    CHECK(fake_boxes(&rig.fake) == 0, "no box");
    rig.fake.refuse_networks = false;
    rig_start_it(&rig, answer.id, &stopped);
    CHECK(rig_wait(&rig, &stopped) && !stopped.failed && is_open(&rig, answer.id), "%s",
          stopped.error.text);
    rig_end(&rig);
}

/* A delete while the keeper is silent about it waits for it, and leaves nothing. */
static void check_lies(void)
{
    for (enum fake_lie lie = FAKE_SHORT; lie < FAKE_LIES; lie++) {
        struct rig rig;
        struct answer answer;
        struct sandbox_spec spec = spec_of("x", "public");

        rig_start(&rig);
        rig_open(&rig);
        rig.fake.lie_at = KEEPER_NETWORK;
        rig.fake.lie = lie;
        rig_create(&rig, &spec, &answer);
        CHECK(rig_wait(&rig, &answer) && answer.failed, "lie %d", (int)lie);
        rig_end(&rig);
    }
}

static void check_change(void)
{
    struct rig rig;
    struct answer box, answer;
    struct sandbox_network network = as_it_is;
    static const char *const rules[] = {"example.com:443", NULL};
    struct sandbox_view view;
    struct error err;
    unsigned asked;

    rig_start(&rig);
    rig_open(&rig);
    made(&rig, "x", "none", &box);
    network.allow = rules;
    changes(&rig, box.id, &network, &answer);
    CHECK(!answer.failed && is_open(&rig, box.id), "it is opened: %s", answer.error.text);
    CHECK(has_network(&rig, box.id, POLICY_ALLOW) == 1, "with that policy");
    asked = ASKED(rig);
    network = as_it_is;
    network.bytes = 1000;
    changes(&rig, box.id, &network, &answer);
    CHECK(!answer.failed && ASKED(rig) == asked, "a bound changes nothing else");
    CHECK(engine_look(rig.engine, &rig_caller, box.id, &view, &err) == 0 &&
              view.network.bytes == 1000 && policy_mode(view.policy) == POLICY_ALLOW &&
              strcmp(policy_allow(view.policy)[0], rules[0]) == 0,
          "and is seen");
    network = as_it_is;
    network.mode = "none";
    changes(&rig, box.id, &network, &answer);
    CHECK(!answer.failed && !is_open(&rig, box.id), "it is shut: %s", answer.error.text);
    CHECK(has_network(&rig, box.id, POLICY_NONE) == 0, "and nothing is carried");
    rig.fake.refuse_networks = true;
    network.mode = "public";
    changes(&rig, box.id, &network, &answer);
    CHECK(answer.failed && has_network(&rig, box.id, POLICY_PUBLIC) == 0, "refused is told");
    rig.fake.refuse_networks = false;
    changes(&rig, box.id, &network, &answer);
    CHECK(!answer.failed && has_network(&rig, box.id, POLICY_PUBLIC) == 1, "and tried again");
    rig_end(&rig);
}

/* The next engine has the same policy in force before it says that it is there. */
static void check_restart(void)
{
    struct rig rig;
    struct answer open, none, stopped;
    char path[128];
    struct stat st;

    rig_start(&rig);
    rig_open(&rig);
    made(&rig, "open", "public", &open);
    made(&rig, "none", "none", &none);
    made(&rig, "stopped", "public", &stopped);
    rig_stop(&rig, stopped.id, &none);
    CHECK(rig_wait(&rig, &none), "stopped");
    (void)rig_look(&rig, "name:none", &none);
    (void)snprintf(path, sizeof(path), "%s/sandboxes/%s/names", rig.path, open.id);
    CHECK(stat(path, &st) == 0 && S_ISREG(st.st_mode), "%s", path);
    rig_close(&rig);
    rig.fake.counts[KEEPER_NETWORK] = 0;
    /* As if the engine before had ended between the record and this. */
    fake_box_of(&rig.fake, none.id)->is_open = true;
    rig_open(&rig);
    CHECK(has_network(&rig, open.id, POLICY_PUBLIC) == 1, "taken over");
    CHECK(!is_open(&rig, none.id), "what is to have none has none");
    CHECK(ASKED(rig) == 3, "%u requests", ASKED(rig));
    rig_delete(&rig, open.id, &stopped);
    CHECK(rig_wait(&rig, &stopped) && !stopped.failed, "deleted");
    rig_turn(&rig, 50);
    CHECK(stat(path, &st) != 0 && errno == ENOENT, "its names go with it");
    rig_close(&rig);
    rig.fake.refuse_networks = true;
    rig_open(&rig);
    CHECK(has_network(&rig, "name:none", POLICY_NONE) == 0,
          "one that is refused opens all the same");
    rig_end(&rig);
}

/* And open. */
static bool pool_is_full(void *arg)
{
    const struct rig *rig = arg;
    struct engine_counts counts;

    engine_count(rig->engine, &counts);
    return counts.pool_ready == 2;
}

/* Opened ahead, for who wants one; who wants none is not given one that was opened. */
static void check_pool(void)
{
    struct rig rig;
    struct answer first, second, none;
    struct sandbox_spec spec = spec_of(NULL, "public");
    unsigned asked;
    int fds;

    rig_start(&rig);
    rig.options.pool = 2;
    rig_open(&rig);
    made(&rig, NULL, "public", &first);
    CHECK(rig_until(&rig, pool_is_full, &rig), "two stand ready");
    CHECK(ASKED(rig) == 6, "and are open: %u", ASKED(rig));
    fds = rig_fds();
    asked = ASKED(rig);
    rig.fake.silent_at = KEEPER_MAKE; /* the next one of the pool asks for its network, too */
    rig_create(&rig, &spec, &second);
    CHECK(rig_wait(&rig, &second) && !second.failed, "%s", second.error.text);
    CHECK(ASKED(rig) == asked && rig.fake.counts[KEEPER_CLAIM] == 1, "taken without a request");
    rig.fake.silent_at = 0;
    CHECK(has_network(&rig, second.id, POLICY_PUBLIC) == 1, "and carried");
    made(&rig, NULL, "none", &none);
    CHECK(!is_open(&rig, none.id) && rig.fake.counts[KEEPER_CLAIM] == 1, "another kind");
    rig_turn(&rig, 50);
    rig_delete(&rig, second.id, &first);
    CHECK(rig_wait(&rig, &first), "deleted");
    CHECK(fds > 0, "counted");
    rig_end(&rig);
}

static void check_pool_refused(void)
{
    struct rig rig;
    struct answer first;

    rig_start(&rig);
    rig.options.pool = 2;
    rig_open(&rig);
    rig_made(&rig, NULL, &first);
    rig.fake.refuse_networks = true;
    rig_turn(&rig, 20);
    rig.fake.refuse_networks = false;
    made(&rig, "x", "public", &first);
    CHECK(is_open(&rig, first.id), "made for it");
    rig.fake.refuse_networks = true;
    rig_turn(&rig, 50);
    CHECK(has_network(&rig, "name:x", POLICY_PUBLIC) == 1, "nothing of it is told");
    rig_end(&rig);
}

/* The box of the pool has ended, and its sockets with it. */
static void check_pool_of_the_dead(void)
{
    struct rig rig;
    struct answer first, second;
    struct sandbox_spec spec = spec_of(NULL, "public");

    rig_start(&rig);
    rig.options.pool = 2;
    rig_open(&rig);
    made(&rig, NULL, "public", &first);
    CHECK(rig_until(&rig, pool_is_full, &rig), "two stand ready");
    for (struct fake_box *box = rig.fake.boxes; box != NULL; box = box->next)
        if (strcmp(box->owner, first.id) != 0)
            fake_box_dies(box);
    rig_create(&rig, &spec, &second);
    CHECK(rig_wait(&rig, &second) && !second.failed, "%s", second.error.text);
    CHECK(is_open(&rig, second.id) && has_network(&rig, second.id, POLICY_PUBLIC) == 1,
          "one is made in its place, with a network of its own");
    rig_end(&rig);
}

static void check_others(void)
{
    struct rig rig;
    struct answer box;
    struct sandbox_traffic traffic;
    struct error err;

    rig_start(&rig);
    rig_open(&rig);
    made(&rig, "x", "public", &box);
    CHECK(engine_traffic(rig.engine, &rig_other, box.id, &traffic, &err) != 0 &&
              strcmp(err.code, "sandbox_not_found") == 0,
          "another tenant sees nothing: %s", err.code);
    CHECK(engine_traffic(rig.engine, &rig_reader, box.id, &traffic, &err) == 0, "a reader reads");
    rig_end(&rig);
}

static void check_default(void)
{
    struct rig rig;
    struct answer box;
    struct policy *policy;
    struct error err;

    CHECK(policy_new_text("public,deny=example.com", &policy, &err) == 0, "%s", err.text);
    rig_start(&rig);
    rig.options.network = policy;
    rig_open(&rig);
    policy_free(policy);
    rig.options.network = NULL;
    made(&rig, "x", NULL, &box);
    CHECK(has_network(&rig, box.id, POLICY_PUBLIC) == 1, "who says nothing has the default");
    made(&rig, "y", "none", &box);
    CHECK(has_network(&rig, box.id, POLICY_NONE) == 0, "who says none has none");
    rig_end(&rig);
}

int main(void)
{
    int fds;

    (void)signal(SIGPIPE, SIG_IGN);
    fds = rig_fds();
    check_create();
    check_refused();
    check_lies();
    check_change();
    check_restart();
    check_pool();
    check_pool_refused();
    check_pool_of_the_dead();
    check_others();
    check_default();
    CHECK(rig_fds() <= fds + 2, "fds are left: %d, then %d", fds, rig_fds()); /* the loop's own */
    return check_finish();
}
