/* Which box has a network when, with a keeper that the test plays: asked for before a sandbox runs, of boxes of
 * the pool ahead, again by the next engine, shut where the policy becomes "none", and nothing of a sandbox
 * whose policy is that. What goes through is tested where it does. */
#include "base/fd.h"
#include "check.h"
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASKED(rig) ((rig)->fake.counts[KEEPER_NETWORK])

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

static void check_create(struct rig *rig)
{
    struct answer none, public, bad;
    struct sandbox_spec spec = spec_of("bad", NULL);
    static const char *const rules[] = {"no name", NULL};

    made(rig, "none", NULL, &none);
    CHECK(ASKED(rig) == 0 && !is_open(rig, none.id), "without a policy nothing is asked for");
    CHECK(has_network(rig, none.id, POLICY_NONE) == 0, "and it is said so");
    made(rig, "public", "public", &public);
    CHECK(ASKED(rig) == 2 && is_open(rig, public.id), "both sockets: %u", ASKED(rig));
    CHECK(has_network(rig, public.id, POLICY_PUBLIC) == 1, "and it is said so");
    spec.network.allow = rules;
    CHECK(rig_fails(rig, rig_create(rig, &spec, &bad), "bad_policy"), "%s", bad.error.code);
    spec = spec_of("bad", NULL);
    spec.network.deny = rules;
    CHECK(rig_fails(rig, rig_create(rig, &spec, &bad), "bad_policy"), "%s", bad.error.code);
}

/* No sandbox runs whose network is not as its policy says. */
static void check_refused(struct rig *rig)
{
    struct answer answer, stopped;
    struct sandbox_spec spec = spec_of("x", "public");

    rig->fake.refuse_networks = true;
    rig_create(rig, &spec, &answer);
    CHECK(rig_fails(rig, &answer, "sandbox_failed"), "%s", answer.error.code);
    CHECK(fake_boxes(&rig->fake) == 0, "its box is ended");
    CHECK(rig_look(rig, "name:x", &answer) < 0, "and nothing is left");
    rig->fake.refuse_networks = false;
    made(rig, "x", "public", &answer);
    CHECK(rig_done(rig, rig_stop(rig, answer.id, &stopped)), "stopped");
    CHECK(has_network(rig, answer.id, POLICY_PUBLIC) == 0, "without a box it has none");
    rig->fake.refuse_networks = true;
    rig_start_it(rig, answer.id, &stopped);
    CHECK(rig_wait(rig, &stopped) && stopped.failed, "it does not start without");
    CHECK(fake_boxes(&rig->fake) == 0, "no box");
    rig->fake.refuse_networks = false;
    rig_start_it(rig, answer.id, &stopped);
    CHECK(rig_done(rig, &stopped) && is_open(rig, answer.id), "%s", stopped.error.text);
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

static void check_change(struct rig *rig)
{
    struct answer box, answer;
    struct sandbox_network network = as_it_is;
    static const char *const rules[] = {"example.com:443", NULL};
    struct sandbox_view view;
    struct error err;
    unsigned asked;

    made(rig, "x", "none", &box);
    network.allow = rules;
    changes(rig, box.id, &network, &answer);
    CHECK(!answer.failed && is_open(rig, box.id), "it is opened: %s", answer.error.text);
    CHECK(has_network(rig, box.id, POLICY_ALLOW) == 1, "with that policy");
    asked = ASKED(rig);
    network = as_it_is;
    network.bytes = 1000;
    changes(rig, box.id, &network, &answer);
    CHECK(!answer.failed && ASKED(rig) == asked, "a bound changes nothing else");
    CHECK(engine_look(rig->engine, &rig_caller, box.id, &view, &err) == 0 &&
              view.network.bytes == 1000 && policy_mode(view.policy) == POLICY_ALLOW &&
              strcmp(policy_allow(view.policy)[0], rules[0]) == 0,
          "and is seen");
    network = as_it_is;
    network.mode = "none";
    changes(rig, box.id, &network, &answer);
    CHECK(!answer.failed && !is_open(rig, box.id), "it is shut: %s", answer.error.text);
    CHECK(has_network(rig, box.id, POLICY_NONE) == 0, "and nothing is carried");
    rig->fake.refuse_networks = true;
    network.mode = "public";
    changes(rig, box.id, &network, &answer);
    CHECK(answer.failed && has_network(rig, box.id, POLICY_PUBLIC) == 0, "refused is told");
    rig->fake.refuse_networks = false;
    changes(rig, box.id, &network, &answer);
    CHECK(!answer.failed && has_network(rig, box.id, POLICY_PUBLIC) == 1, "and tried again");
}

static bool is_gone(void *path)
{
    struct stat st;

    return stat(path, &st) != 0 && errno == ENOENT;
}

/* The next engine has the same policy in force before it says that it is there. */
static void check_restart(struct rig *rig)
{
    struct answer open, none, stopped;
    char path[128];
    struct stat st;

    made(rig, "open", "public", &open);
    made(rig, "none", "none", &none);
    made(rig, "stopped", "public", &stopped);
    CHECK(rig_wait(rig, rig_stop(rig, stopped.id, &none)), "stopped");
    (void)rig_look(rig, "name:none", &none);
    (void)snprintf(path, sizeof(path), "%s/sandboxes/%s/names", rig->path, open.id);
    CHECK(stat(path, &st) == 0 && S_ISREG(st.st_mode), "%s", path);
    rig_close(rig);
    rig->fake.counts[KEEPER_NETWORK] = 0;
    /* As if the engine before had ended between the record and this. */
    fake_box_of(&rig->fake, none.id)->is_open = true;
    rig_open(rig);
    CHECK(has_network(rig, open.id, POLICY_PUBLIC) == 1, "taken over");
    CHECK(!is_open(rig, none.id), "what is to have none has none");
    CHECK(ASKED(rig) == 3, "%u requests", ASKED(rig));
    CHECK(rig_done(rig, rig_delete(rig, open.id, &stopped)), "deleted");
    CHECK(rig_until(rig, is_gone, path), "its names go with it");
    rig_close(rig);
    rig->fake.refuse_networks = true;
    rig_open(rig);
    CHECK(has_network(rig, "name:none", POLICY_NONE) == 0,
          "one that is refused opens all the same");
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
static void check_pool(struct rig *rig)
{
    struct answer first, second, none;
    struct sandbox_spec spec = spec_of(NULL, "public");
    const struct fake_box *box;
    int fds;

    rig->options.pool = 2;
    rig_open(rig);
    made(rig, NULL, "public", &first);
    CHECK(rig_until(rig, pool_is_full, rig), "two stand ready");
    CHECK(ASKED(rig) == 6, "and are open: %u", ASKED(rig));
    fds = rig_fds();
    CHECK(rig_done(rig, rig_create(rig, &spec, &second)), "%s", second.error.text);
    box = fake_box_of(&rig->fake, second.id);
    /* Of this one: the next for the pool may be made meanwhile. */
    CHECK(box != NULL && box->networks == 2 && rig->fake.counts[KEEPER_CLAIM] == 1,
          "taken without a request");
    CHECK(has_network(rig, second.id, POLICY_PUBLIC) == 1, "and carried");
    made(rig, NULL, "none", &none);
    CHECK(!is_open(rig, none.id) && rig->fake.counts[KEEPER_CLAIM] == 1, "another kind");
    rig_turn(rig, 50);
    CHECK(rig_wait(rig, rig_delete(rig, second.id, &first)), "deleted");
    CHECK(fds > 0, "counted");
}

static void check_pool_refused(struct rig *rig)
{
    struct answer first;

    rig->options.pool = 2;
    rig_open(rig);
    rig_made(rig, NULL, &first);
    rig->fake.refuse_networks = true;
    rig_turn(rig, 20);
    rig->fake.refuse_networks = false;
    made(rig, "x", "public", &first);
    CHECK(is_open(rig, first.id), "made for it");
    rig->fake.refuse_networks = true;
    rig_turn(rig, 50);
    CHECK(has_network(rig, "name:x", POLICY_PUBLIC) == 1, "nothing of it is told");
}

/* The box of the pool has ended, and its sockets with it. */
static void check_pool_of_the_dead(struct rig *rig)
{
    struct answer first, second;
    struct sandbox_spec spec = spec_of(NULL, "public");

    rig->options.pool = 2;
    rig_open(rig);
    made(rig, NULL, "public", &first);
    CHECK(rig_until(rig, pool_is_full, rig), "two stand ready");
    for (struct fake_box *box = rig->fake.boxes; box != NULL; box = box->next)
        if (strcmp(box->owner, first.id) != 0)
            fake_box_dies(box);
    CHECK(rig_done(rig, rig_create(rig, &spec, &second)), "%s", second.error.text);
    CHECK(is_open(rig, second.id) && has_network(rig, second.id, POLICY_PUBLIC) == 1,
          "one is made in its place, with a network of its own");
}

static void check_others(struct rig *rig)
{
    struct answer box;
    struct sandbox_traffic traffic;
    struct error err;

    made(rig, "x", "public", &box);
    CHECK(engine_traffic(rig->engine, &rig_other, box.id, &traffic, &err) != 0 &&
              IS_CODE(err, "sandbox_not_found"),
          "another tenant sees nothing: %s", err.code);
    CHECK(engine_traffic(rig->engine, &rig_reader, box.id, &traffic, &err) == 0, "a reader reads");
}

static void check_default(struct rig *rig)
{
    struct answer box;
    struct policy *policy;
    struct error err;

    CHECK(policy_new_text("public,deny=example.com", &policy, &err) == 0, "%s", err.text);
    rig->options.network = policy;
    rig_open(rig);
    policy_free(policy);
    rig->options.network = NULL;
    made(rig, "x", NULL, &box);
    CHECK(has_network(rig, box.id, POLICY_PUBLIC) == 1, "who says nothing has the default");
    made(rig, "y", "none", &box);
    CHECK(has_network(rig, box.id, POLICY_NONE) == 0, "who says none has none");
}

/* ---- calls into a box ---- */

struct calls {
    unsigned asked, answered, refused;
};

static void called(void *arg, int socket, const struct error *err)
{
    struct calls *calls = arg;

    fd_close(&socket);
    calls->answered++;
    calls->refused += err != NULL && strcmp(err->code, "too_many_requests") == 0;
}

static bool all_answered(void *arg)
{
    const struct calls *calls = arg;

    return calls->answered == calls->asked;
}

static void call(struct rig *rig, const struct engine_caller *caller, const char *id, unsigned many,
                 struct calls *calls)
{
    for (unsigned i = 0; i < many; i++) {
        calls->asked++;
        engine_port_dial(rig->engine, caller, id, 80, called, calls);
    }
    CHECK(rig_until(rig, all_answered, calls), "each is answered once");
}

/* The keeper is everybody's: visitors of one sandbox do not have it to themselves. */
static void check_visitors(struct rig *rig)
{
    static const struct sandbox_port_wish open = {.port = 80, .is_public = true};
    struct sandbox_spec spec = spec_of("x", NULL);
    struct engine_caller visitor;
    struct calls calls = {0}, own = {0};
    struct answer box, stopped;
    uint64_t first;

    spec.ports = &open;
    spec.ports_count = 1;
    CHECK(rig_done(rig, rig_create(rig, &spec, &box)), "%s", box.error.text);
    CHECK(engine_port_is_public(rig->engine, box.id, 80, &visitor), "anybody may see it");
    rig->fake.refuse_networks = true;
    for (int i = 0; i < 20; i++)
        call(rig, &visitor, box.id, 100, &calls);
    CHECK(calls.refused > 0 && ASKED(rig) < 2000, "%u of 2000, %u asked", calls.refused,
          ASKED(rig));
    call(rig, &rig_caller, box.id, 100, &own);
    CHECK(own.refused == 0, "who has a key has his own turns");

    first = engine_port_box(rig->engine, box.id);
    rig->fake.refuse_networks = false;
    CHECK(rig_done(rig, rig_stop(rig, box.id, &stopped)), "%s", stopped.error.text);
    CHECK(first != 0 && engine_port_box(rig->engine, box.id) == 0, "its box is no more");
    CHECK(rig_done(rig, rig_start_it(rig, box.id, &stopped)), "%s", stopped.error.text);
    CHECK(engine_port_box(rig->engine, box.id) != 0 &&
              engine_port_box(rig->engine, box.id) != first,
          "it is another one");
    CHECK(engine_port_box(rig->engine, "c0nothing") == 0, "nobody has none");
}

/* ---- numbers of ports on this host ---- */

/* A network of this process' own, whose kernel has four numbers to give, and gives each that is free in its turn. */
static int network_make(void)
{
    _cleanup_close_ int fd = -1;
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};

    if (unshare(geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) < 0)
        return -1;
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo) < 0
               ? -1
               : fd_write_file(AT_FDCWD, "/proc/sys/net/ipv4/ip_local_port_range", "40000 40003");
}

struct opened {
    struct answer answer;
    uint16_t host_port;
};

static void opened(void *arg, const struct sandbox_port *port, const struct error *err)
{
    struct opened *opened = arg;

    opened->host_port = port != NULL ? port->host_port : 0;
    rig_ended(&opened->answer, err);
}

static uint16_t host_port_of(struct rig *rig, const char *id, uint16_t port)
{
    struct opened told = {0};

    engine_port_open(rig->engine, &rig_caller, id, port, -1, opened, &told);
    CHECK(rig_done(rig, &told.answer) && told.host_port != 0, "%s", told.answer.error.text);
    return told.host_port;
}

/* The URL of a stopped sandbox leads to no other. */
static void check_numbers_of_the_stopped(struct rig *rig)
{
    struct answer old, new, stopped;
    uint16_t kept;

    made(rig, "x", NULL, &old);
    made(rig, "y", NULL, &new);
    kept = host_port_of(rig, old.id, 80);
    CHECK(rig_done(rig, rig_stop(rig, old.id, &stopped)), "%s", stopped.error.text);
    for (uint16_t port = 1; port <= 3; port++)
        CHECK(host_port_of(rig, new.id, port) != kept, "port %u has %u", port, kept);
    CHECK(rig_done(rig, rig_start_it(rig, old.id, &stopped)) &&
              host_port_of(rig, old.id, 80) == kept,
          "it has its own again");
}

/* In a child, for all other checks are about this machine's network. */
static void check_numbers(void)
{
    int status = -1;
    pid_t child;

    (void)fflush(stdout);
    child = fork();
    if (child == 0) {
        check_failed = 0;
        CHECK(network_make() == 0, "a network: %s", strerror(errno));
        rig_run(check_numbers_of_the_stopped);
        (void)fflush(stdout);
        _exit(check_finish());
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "status %d", status);
}

int main(void)
{
    int fds = rig_fds();

    rig_run(check_create);
    rig_run(check_refused);
    check_lies();
    rig_run(check_change);
    rig_run(check_restart);
    rig_run_unopened(check_pool);
    rig_run_unopened(check_pool_refused);
    rig_run_unopened(check_pool_of_the_dead);
    rig_run(check_others);
    rig_run_unopened(check_default);
    rig_run(check_visitors);
    check_numbers();
    CHECK(rig_fds() <= fds + 2, "fds are left: %d, then %d", fds, rig_fds()); /* the loop's own */
    return check_finish();
}
