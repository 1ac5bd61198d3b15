/* The network of sandboxes: whose sockets are asked for when, what the policy of each is, and what is known of
 * what went through.
 *
 * A box whose policy is "none" has no network at all: nothing is opened in it. Any other gets its two sockets of
 * the keeper before anybody hears that it runs, and a policy before anything of it is accepted. The sockets
 * outlive this engine, the policy is in the record: where neither is here, nothing goes anywhere. */
#include "base/fd.h"
#include "base/parse.h"
#include "engine/parts.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAVE_NS 1000000000ULL
#define SAVE_SOON_NS 20000000ULL /* while some wait for their turn */
#define SAVED_DIGITS 20

struct network {
    struct save save; /* first: while what it may carry in its life is bounded */
    struct sandbox *sandbox;
    struct net_box *box;    /* NULL: there is no network now */
    struct net_counts told; /* of the box, and added to the sums */
    struct net_counts sum;  /* of the boxes before it, since this engine began */
    uint64_t bytes_before;  /* of its life, before `box` */
    uint64_t bytes_saved;   /* that the file says */
    struct network_log log;
    /* While the keeper is asked. */
    int sockets[2];
    uint64_t listener; /* inode of the box's TCP socket; 0: none now */
    unsigned asked;
    struct error failure;
    network_done *done;
};

/* ---- the room ---- */

static void room_closed(void *arg)
{
    struct engine *engine = arg;

    engine->has_net = false;
    engine_free_if_done(engine);
}

int network_open_room(struct engine *engine, struct error *err)
{
    const struct net_options options = {
        .loop = engine->options.loop,
        .resolvers = engine->options.resolvers,
        .nat64 = engine->options.nat64,
        .private = engine->options.private,
        .proxy = engine->options.proxy,
        .proxy_names = engine->options.proxy_names,
    };

    saves_init(&engine->network_saves);
    if (net_open(&options, &engine->net, err) != 0)
        return -1;
    engine->has_net = true;
    return 0;
}

void network_close_room(struct engine *engine)
{
    if (engine->net != NULL)
        net_close(engine->net, room_closed, engine);
    engine->net = NULL;
}

bool network_is_wanted(const struct record *record)
{
    return policy_mode(record->policy) != POLICY_NONE;
}

/* ---- what is told of it ---- */

static bool has_address(const struct policy_address *address)
{
    static const struct policy_address none;

    return memcmp(address, &none, sizeof(none)) != 0;
}

static const char *event_type(const struct net_record *record)
{
    bool is_cut = strcmp(record->reason, "cut") == 0 || strcmp(record->reason, "limit") == 0;

    if (!record->allowed)
        return "network.denied";
    return is_cut || strcmp(record->reason, "allowed") == 0 ? "network.connected"
                                                            : "network.failed";
}

/* A name that was found is no event: what is dialled by it is. */
static void event_tell(struct sandbox *sandbox, const struct net_record *record)
{
    const char *type = event_type(record);
    const enum event_share share = strcmp(type, "network.connected") == 0 ? SHARE_WENT
                                                                          : SHARE_REFUSED;
    struct engine_event_traffic traffic = {
        .name = record->name,
        .rule = record->rule,
        .port = record->port,
        .lasted_ms = record->lasted_ms,
        .bytes_out = record->bytes_out,
        .bytes_in = record->bytes_in,
    };
    char address[POLICY_ADDRESS_TEXT];

    if (record->kind == NET_LOOKUP && record->allowed)
        return;
    if (has_address(&record->address)) {
        policy_address_text(&record->address, address);
        traffic.address = address;
    }
    shares_tell(sandbox, share, type, record->reason, &traffic);
}

static void recorded(void *arg, const struct net_record *record)
{
    struct sandbox *sandbox = arg;

    network_log_add(&sandbox->network->log, record);
    event_tell(sandbox, record);
}

/* ---- how much it was ---- */

static uint64_t bytes_used(const struct network *network)
{
    struct net_counts now = {0};

    if (network->box != NULL)
        net_box_count(network->box, &now);
    return network->bytes_before + now.bytes_out + now.bytes_in;
}

/* One that cannot be read says nothing: it is written in one piece, and not synced, so only a host that failed
 * can have left it so. */
static uint64_t bytes_read(struct sandbox *sandbox)
{
    _cleanup_close_ int dir = openat(sandbox->engine->sandboxes_dir, sandbox->id,
                                     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char text[SAVED_DIGITS + 2] = "";
    uint64_t bytes = 0;
    struct error err;

    if (dir < 0 || fd_read_file(dir, "traffic", text, sizeof(text)) <= 0)
        return 0;
    text[strcspn(text, "\n")] = '\0';
    return parse_count("traffic", text, 0, UINT64_MAX, &bytes, &err) == 0 ? bytes : 0;
}

/* So that a bound on all it may send is none of one engine's life. Whether the disk was asked. */
static bool bytes_save(struct network *network)
{
    const struct sandbox *sandbox = network->sandbox;
    uint64_t bytes = bytes_used(network);
    _cleanup_close_ int file = -1;
    char path[64], text[SAVED_DIGITS + 2];

    if (bytes == network->bytes_saved)
        return false;
    (void)snprintf(path, sizeof(path), "%s/traffic", sandbox->id);
    (void)snprintf(text, sizeof(text), "%0*" PRIu64 "\n", SAVED_DIGITS, bytes);
    file = openat(sandbox->engine->sandboxes_dir, path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
                  0600);
    if (file >= 0 && pwrite(file, text, SAVED_DIGITS + 1, 0) == SAVED_DIGITS + 1)
        network->bytes_saved = bytes;
    return true;
}

static bool save_one(struct save *one)
{
    return bytes_save((struct network *)one);
}

static void save_some(void *arg)
{
    struct engine *engine = arg;
    bool are_left = saves_turn(&engine->network_saves, save_one);

    if (engine->network_saves.count > 0)
        clock_set(engine->clock, &engine->network_save,
                  clock_monotonic_ns() + (are_left ? SAVE_SOON_NS : SAVE_NS), save_some, engine);
}

/* As its record says. */
static void save_later(struct network *network)
{
    struct engine *engine = network->sandbox->engine;

    if (network->box == NULL || network->sandbox->record->network.bytes == 0) {
        saves_remove(&engine->network_saves, &network->save);
        return;
    }
    saves_add(&engine->network_saves, &network->save);
    if (engine->network_save.place == 0)
        clock_set(engine->clock, &engine->network_save, clock_monotonic_ns() + SAVE_NS, save_some,
                  engine);
}

static void tally(struct sandbox *sandbox)
{
    struct network *network = sandbox->network;
    struct net_counts now;

    if (network == NULL || network->box == NULL)
        return;
    net_box_count(network->box, &now);
    spent_network(sandbox, &network->told, &now);
}

void network_tally(struct engine *engine)
{
    for (struct sandbox *sandbox = engine->oldest; sandbox != NULL; sandbox = sandbox->newer)
        tally(sandbox);
}

uint64_t network_listener(const struct sandbox *sandbox)
{
    return sandbox->network != NULL ? sandbox->network->listener : 0;
}

uint32_t network_open_now(const struct sandbox *sandbox)
{
    struct net_counts now = {0};

    if (sandbox->network != NULL && sandbox->network->box != NULL)
        net_box_count(sandbox->network->box, &now);
    return now.connections;
}

static struct net_counts counts_of(const struct network *network)
{
    struct net_counts now = {0};

    if (network->box != NULL)
        net_box_count(network->box, &now);
    now.connections_all += network->sum.connections_all;
    now.denied += network->sum.denied;
    now.lookups += network->sum.lookups;
    now.bytes_out += network->sum.bytes_out;
    now.bytes_in += network->sum.bytes_in;
    return now;
}

/* ---- it begins and ends ---- */

static struct network *network_of(struct sandbox *sandbox)
{
    struct network *network = sandbox->network;

    if (network != NULL)
        return network;
    network = engine_alloc(sizeof(*network));
    network->sandbox = sandbox;
    network_log_init(&network->log, shares_lines(sandbox->engine, sandbox->record->tenant),
                     shares_lines(sandbox->engine, ""));
    network->sockets[0] = network->sockets[1] = -1;
    network->bytes_before = network->bytes_saved = bytes_read(sandbox);
    sandbox->network = network;
    return network;
}

static int names_open_file(struct sandbox *sandbox, struct error *err)
{
    _cleanup_close_ int dir = sandbox_directory(sandbox, err);
    int file;

    if (dir < 0)
        return -1;
    file = openat(dir, "names", O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return error_set(err, "store_failed", errno, "cannot open the file sandboxes/%s/names",
                         sandbox->id);
    return file;
}

int network_take(struct sandbox *sandbox, int tcp, int udp, struct error *err)
{
    _cleanup_close_ int tcp_ours = tcp, udp_ours = udp;
    struct network *network = network_of(sandbox);
    const struct record *record = sandbox->record;
    struct stat st;
    struct net_box_options options = {
        .tenant = record->tenant,
        .limits = record->network,
        .bytes_used = network->bytes_before,
        .record = recorded,
        .arg = sandbox,
    };

    network->listener = fstat(tcp_ours, &st) == 0 ? st.st_ino : 0;
    options.names = names_open_file(sandbox, err);
    if (options.names < 0)
        return -1;
    options.policy = policy_copy(record->policy);
    if (options.policy == NULL)
        abort();
    network->told = (struct net_counts){0};
    if (net_box_new(sandbox->engine->net, &options, &network->box, err) != 0) {
        network->box = NULL;
        return -1;
    }
    net_box_attach(network->box, fd_take(&tcp_ours), fd_take(&udp_ours));
    save_later(network);
    return 0;
}

/* What was open is recorded, before it is counted for the last time. */
void network_end(struct sandbox *sandbox)
{
    struct network *network = sandbox->network;
    struct net_counts before;

    if (network == NULL || network->box == NULL)
        return;
    net_box_detach(network->box);
    tally(sandbox);
    before = counts_of(network);
    network->bytes_before = bytes_used(network);
    before.connections = 0;
    network->sum = before;
    net_box_free(network->box);
    network->box = NULL;
    save_later(network);
    if (sandbox->record->state != SANDBOX_DELETED)
        (void)bytes_save(network);
}

void network_free(struct sandbox *sandbox)
{
    struct network *network = sandbox->network;

    if (network == NULL)
        return;
    saves_remove(&sandbox->engine->network_saves, &network->save);
    if (network->box != NULL && sandbox->record->state != SANDBOX_DELETED)
        (void)bytes_save(network);
    if (network->box != NULL)
        net_box_free(network->box);
    network_log_free(&network->log);
    fd_close(&network->sockets[0]);
    fd_close(&network->sockets[1]);
    free(network);
    sandbox->network = NULL;
}

/* ---- the keeper's part ---- */

static void asked_all(struct sandbox *sandbox)
{
    struct network *network = sandbox->network;
    network_done *done = network->done;
    int tcp = fd_take(&network->sockets[0]), udp = fd_take(&network->sockets[1]);
    struct error err = network->failure;

    network->done = NULL;
    if (err.code[0] == '\0') {
        done(sandbox, network_take(sandbox, tcp, udp, &err) == 0 ? NULL : &err);
        return;
    }
    fd_close(&tcp);
    fd_close(&udp);
    done(sandbox, &err);
}

static void one_answered(struct sandbox *sandbox, int which, int fd, const struct error *err)
{
    struct network *network = sandbox->network;

    if (sandbox->engine->is_closing) {
        fd_close(&fd);
        return;
    }
    if (err != NULL)
        network->failure = *err;
    else
        network->sockets[which] = fd;
    if (--network->asked == 0)
        asked_all(sandbox);
}

static void tcp_answered(void *arg, const union keeper_answer *answer, int fd,
                         const struct error *err)
{
    (void)answer;
    one_answered(arg, 0, fd, err);
}

static void udp_answered(void *arg, const union keeper_answer *answer, int fd,
                         const struct error *err)
{
    (void)answer;
    one_answered(arg, 1, fd, err);
}

static void ask(struct sandbox *sandbox, enum keeper_network what, keeper_answered answered)
{
    union keeper_request request = {.network = {.box = sandbox->box, .what = what}};

    keeper_client_ask(sandbox->engine->keeper, KEEPER_NETWORK, &request, answered, sandbox);
}

void network_begin(struct sandbox *sandbox, network_done *done)
{
    struct network *network = network_of(sandbox);

    network->failure = (struct error){0};
    network->done = done;
    network->asked = 2;
    ask(sandbox, KEEPER_NETWORK_TCP, tcp_answered);
    ask(sandbox, KEEPER_NETWORK_UDP, udp_answered);
}

/* That there is no box any more is as good. */
static void shut_answered(void *arg, const union keeper_answer *answer, int fd,
                          const struct error *err)
{
    struct sandbox *sandbox = arg;
    network_done *done = sandbox->network->done;

    (void)answer;
    fd_close(&fd);
    if (sandbox->engine->is_closing)
        return;
    sandbox->network->done = NULL;
    if (err != NULL && strcmp(err->code, "no_box") == 0)
        err = NULL;
    done(sandbox, err);
}

static void policy_set(struct network *network)
{
    const struct record *record = network->sandbox->record;
    struct policy *policy = policy_copy(record->policy);

    if (policy == NULL)
        abort(); /* out of memory: see parts.h */
    net_box_set(network->box, policy, &record->network);
}

/* What is carried is to be as the record says in any state; what is not is opened when it runs. */
void network_apply(struct sandbox *sandbox, network_done *done)
{
    const struct record *record = sandbox->record;
    bool runs = sandbox->box != 0 && !sandbox->is_quiet && record->state == SANDBOX_RUNNING;
    struct network *network = sandbox->network;

    if (!runs && (network == NULL || network->box == NULL)) {
        done(sandbox, NULL);
        return;
    }
    network = network_of(sandbox);
    sandbox->step = STEP_NETWORK;
    if (network->box != NULL)
        policy_set(
            network); /* recorded as cut is what it does not allow, all of it if that is "none" */
    if (!network_is_wanted(record)) {
        network_end(sandbox); /* nothing gets out from here on; that it cannot get in follows */
        network->done = done;
        ask(sandbox, KEEPER_NETWORK_SHUT, shut_answered);
        return;
    }
    if (network->box == NULL) {
        network_begin(sandbox, done);
        return;
    }
    save_later(network);
    done(sandbox, NULL);
}

/* ---- an engine that is new ---- */

/* What is refused here leaves a box whose network nobody looks after: nothing gets out of it. */
static void taken_over(struct sandbox *sandbox, const struct error *err)
{
    if (err != NULL && strcmp(err->code, "keeper_lost") != 0 && strcmp(err->code, "no_box") != 0)
        log_say(LOG_LEVEL_ERROR, "network_failed",
                "sandbox %s has no network: %s; stop and start it", sandbox->id, err->text);
    sandbox_finish(sandbox, NULL);
}

/* Where the engine before us ended between the record that says "none" and the keeper's part, that is made up
 * for. */
void network_work(struct sandbox *sandbox)
{
    network_apply(sandbox, taken_over);
}

/* ---- looking ---- */

int engine_traffic(struct engine *engine, const struct engine_caller *caller, const char *id,
                   struct sandbox_traffic *traffic, struct error *err)
{
    struct sandbox *sandbox = sandbox_find_for(engine, caller, id, ENGINE_LOOK, err);
    const struct network *network;

    if (sandbox == NULL)
        return -1;
    *traffic = (struct sandbox_traffic){
        .policy = sandbox->record->policy,
        .limits = sandbox->record->network,
    };
    network = sandbox->network;
    if (network == NULL) {
        traffic->bytes_used = bytes_read(sandbox);
        return 0;
    }
    traffic->is_open = network->box != NULL;
    traffic->counts = counts_of(network);
    traffic->bytes_used = bytes_used(network);
    traffic->lines = network_log_count(&network->log);
    traffic->lines_left_out = network->log.gone;
    return 0;
}

int engine_traffic_each(struct engine *engine, const struct engine_caller *caller, const char *id,
                        size_t limit,
                        bool (*each)(void *arg, const struct net_record *line, uint64_t times),
                        void *arg, struct error *err)
{
    const struct sandbox *sandbox = sandbox_find_for(engine, caller, id, ENGINE_LOOK, err);

    if (sandbox == NULL)
        return -1;
    if (sandbox->network != NULL)
        network_log_each(&sandbox->network->log, limit, each, arg);
    return 0;
}
