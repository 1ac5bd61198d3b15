/* cove-engine: the rooms put together. It is started by cove-keeper, with the fds of keeper/request.h,
 * an unprivileged id and no way back; restarted by it when it dies; and ended by SIGTERM, after which
 * it answers what was asked and writes down what it knows. Boxes do not notice. Where all ends, the keeper
 * says so (KEEPER_STOP_SIGNAL), and what runs is stopped first.
 *
 * It must never be started by hand: without a keeper it makes nothing. */
#include "base/fd.h"
#include "base/log.h"
#include "base/parse.h"
#include "engine/engine.h"
#include "front/alone.h"
#include "front/certificate.h"
#include "front/native/native.h"
#include "front/settings.h"
#include "front/test_clock.h"
#include "http/http.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define LISTEN_MOST 16
#define DRAIN_MS 10000U      /* for requests that are being answered */
#define DRAIN_MOST_MS 20000U /* then the rest is cut */
/* All ends. Together these are less than what the keeper waits. */
#define STOP_GRACE_MS 2000U /* for what ends by itself */
#define STOP_LOOK_MS 20U    /* whether it has */
#define STOP_MOST_MS 12000U /* for sandboxes to stop */
#define STOP_DRAIN_MS 5000U /* for answers on their way */
#define STOP_DRAIN_MOST_MS 8000U
#define PRIVATE_IDLE_MS 600000U /* a private engine that nobody uses ends */
#define PRIVATE_LOOK_MS 15000U

struct program {
    uv_loop_t loop;
    uv_signal_t terminate, interrupt, stop;
    uv_timer_t timer;
    struct test_clock clock;
    struct settings settings;
    struct engine *engine;
    struct native *native;
    struct audit *audit;
    struct telemetry *telemetry;
    struct http_server *http;
    int listen[LISTEN_MOST];
    size_t listen_count;
    uid_t owner;
    int config, headers, tls;
    const char *config_path; /* for errors */
    uint64_t disk_bytes,
        disk_free; /* of the data directory, where it is only tried; 0: not known */
    unsigned beat_ms;
    uint64_t restarts; /* engines before this one, since the keeper began */
    bool is_private, is_ending, is_stopping;
    unsigned grace_ms; /* that is left */
    unsigned draining;
    int status;
};

/* ---- the end ---- */

static void drained(void *arg)
{
    struct program *program = arg;

    if (--program->draining == 0)
        uv_stop(&program->loop);
}

static void too_long(uv_timer_t *timer)
{
    uv_stop(timer->loop);
}

static void end(struct program *program, int status)
{
    if (program->is_ending)
        return;
    program->is_ending = true;
    program->status = status;
    program->draining = 1;
    (void)uv_timer_start(&program->timer, too_long,
                         program->is_stopping ? STOP_DRAIN_MOST_MS : DRAIN_MOST_MS, 0);
    if (program->native != NULL)
        native_drain(program->native);
    if (program->http != NULL) {
        program->draining++;
        http_drain(program->http, program->is_stopping ? STOP_DRAIN_MS : DRAIN_MS, drained,
                   program);
    }
    if (program->engine != NULL) {
        program->draining++;
        engine_drain(program->engine, drained, program);
    }
    drained(program);
}

static void told_to_end(uv_signal_t *handle, int number)
{
    struct program *program = handle->data;

    log_say(LOG_LEVEL_INFO, "draining",
            "signal %d: this engine ends for the next one; it begins nothing new, and sandboxes "
            "live on",
            number);
    if (!program->is_stopping)
        end(program, 0);
}

/* ---- the end of all ---- */

static void stop_done(void *arg)
{
    end(arg, 0);
}

/* Who follows the events hears of each stop before he is cut off. */
static void stop_tell(void *arg)
{
    struct program *program = arg;

    if (!program->is_ending)
        engine_drain(program->engine, stop_done, program);
}

/* What is not stopped by then ends with its box, and is found to have been meant to. */
static void stop_late(uv_timer_t *timer)
{
    log_say(LOG_LEVEL_WARN, "stop_slow",
            "not all sandboxes have stopped within %u s: they end with "
            "the keeper",
            STOP_MOST_MS / 1000);
    end(timer->data, 0);
}

static void stop_look(uv_timer_t *timer)
{
    struct program *program = timer->data;
    bool is_busy = program->native != NULL && native_busy(program->native) > 0;

    if (is_busy && program->grace_ms >= STOP_LOOK_MS) {
        program->grace_ms -= STOP_LOOK_MS;
        return;
    }
    (void)uv_timer_start(timer, stop_late, STOP_MOST_MS, 0);
    engine_stop_all(program->engine, stop_tell, program);
}

/* New requests are refused and not left to wait, for no other engine comes; those at work have a moment
 * to end well, then all sandboxes are stopped, which is an answer to who waits for a command. */
static void stop(struct program *program)
{
    if (program->is_stopping)
        return;
    program->is_stopping = true;
    if (program->native != NULL)
        native_stop(program->native);
    if (program->is_ending && program->engine != NULL)
        engine_stop_all(program->engine, NULL, NULL);
    if (program->is_ending)
        return;
    if (program->engine == NULL) {
        end(program, 0);
        return;
    }
    engine_stop_mark(program->engine);
    program->grace_ms = STOP_GRACE_MS;
    (void)uv_timer_start(&program->timer, stop_look, 0, STOP_LOOK_MS);
}

static void told_to_stop(uv_signal_t *handle, int number)
{
    (void)number;
    log_say(LOG_LEVEL_INFO, "stopping", "all ends: what runs is stopped");
    stop(handle->data);
}

/* What was running is stopped, and says so on the disk. Nothing that a client asks for can be done. */
static void lost(void *arg)
{
    struct program *program = arg;

    program->status = 1;
    uv_stop(&program->loop);
}

static void look_whether_used(uv_timer_t *timer)
{
    struct program *program = timer->data;

    if (engine_idle_ms(program->engine) < PRIVATE_IDLE_MS)
        return;
    log_say(LOG_LEVEL_INFO, "idle", "nobody has used this private engine for %u minutes",
            PRIVATE_IDLE_MS / 60000);
    stop(program);
}

/* ---- the start ---- */

static int environment_number(const char *name, uint64_t most, uint64_t fallback, uint64_t *out,
                              struct error *err)
{
    const char *text = getenv(name); // NOLINT(concurrency-mt-unsafe): before any thread

    *out = fallback;
    return text == NULL ? 0 : parse_count(name, text, 0, most, out, err);
}

static int given_read(struct program *program, struct error *err)
{
    uint64_t count, owner, config, is_private, headers, tls, beat_ms;

    if (environment_number("COVE_LISTEN_FDS", LISTEN_MOST, 0, &count, err) != 0 ||
        environment_number("COVE_OWNER_UID", UINT32_MAX - 1, UINT64_MAX, &owner, err) != 0 ||
        environment_number("COVE_CONFIG_FD", INT32_MAX, UINT64_MAX, &config, err) != 0 ||
        environment_number("COVE_HEADERS_FD", INT32_MAX, UINT64_MAX, &headers, err) != 0 ||
        environment_number("COVE_TLS_FD", INT32_MAX, UINT64_MAX, &tls, err) != 0 ||
        environment_number("COVE_RESTARTS", UINT32_MAX, 0, &program->restarts, err) != 0 ||
        environment_number("COVE_BEAT_MS", UINT32_MAX, 0, &beat_ms, err) != 0 ||
        environment_number("COVE_PRIVATE", 1, 0, &is_private, err) != 0 ||
        environment_number("COVE_DISK_BYTES", INT64_MAX, 0, &program->disk_bytes, err) != 0 ||
        environment_number("COVE_DISK_FREE", INT64_MAX, 0, &program->disk_free, err) != 0 ||
        test_clock_open(&program->clock, &program->loop, err) != 0)
        return -1;
    if (owner == UINT64_MAX)
        return error_set(err, "bad_start", 0,
                         "COVE_OWNER_UID is missing: cove-engine is started by cove serve, not by "
                         "hand");
    program->owner = (uid_t)owner;
    program->config = config == UINT64_MAX ? -1 : (int)config;
    program->headers = headers == UINT64_MAX ? -1 : (int)headers;
    program->tls = tls == UINT64_MAX ? -1 : (int)tls;
    program->is_private = is_private != 0;
    program->beat_ms = (unsigned)beat_ms;
    program->listen_count = count;
    for (size_t i = 0; i < count; i++)
        program->listen[i] = KEEPER_ENGINE_LISTEN + (int)i;
    for (int fd = KEEPER_ENGINE_SOCKET; fd < KEEPER_ENGINE_LISTEN + (int)count; fd++)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
            return error_set(err, "bad_start", 0,
                             "fd %d is missing: cove-engine is started by cove serve, not by hand",
                             fd);
    program->config_path = getenv(
        "COVE_CONFIG"); // NOLINT(concurrency-mt-unsafe): before any thread
    if (program->config_path == NULL)
        program->config_path = "cove.conf";
    return settings_read(program->config, program->config_path, &program->settings, err);
}

static struct box_limits defaults_of(const struct settings *settings)
{
    return (struct box_limits){.memory_bytes = settings->memory,
                               .cpu_milli = settings->cpus,
                               .pids = (uint32_t)settings->pids,
                               .disk_bytes = settings->disk};
}

/* Where nobody says: memory and processors are for all, but a few boxes of any number would have every id of a
 * process that the host has. */
#define PIDS_MOST_USUAL 8192

static struct box_limits most_of(const struct settings *settings)
{
    uint64_t pids = settings->pids > PIDS_MOST_USUAL ? settings->pids : PIDS_MOST_USUAL;

    return (struct box_limits){
        .memory_bytes = settings->most_memory,
        .cpu_milli = settings->most_cpus,
        .pids = (uint32_t)(settings->most_pids > 0 ? settings->most_pids : pids),
        .disk_bytes = settings->most_disk};
}

/* One that cannot be used is no reason to serve nobody: the unix socket goes on, and so does the certificate
 * that there was. Clear text is never the way out. */
static void certify(struct program *program, int fd)
{
    struct http_certificate *certificate = NULL;
    struct error err;

    if (program->http == NULL || fd < 0 || program->settings.tls_certificate == NULL)
        fd_close(&fd);
    else if (certificate_read(fd, &program->settings, &certificate, &err) != 0)
        log_say(LOG_LEVEL_ERROR, err.code, "%s", err.text);
    else {
        http_certify(program->http, certificate);
        log_say(LOG_LEVEL_INFO, "certificate_read",
                "tls_certificate %s: who connects from now on sees it",
                program->settings.tls_certificate);
    }
}

/* Before there is a server it waits, and the last one counts. */
static void told_tls(void *arg, int fd)
{
    struct program *program = arg;

    if (program->http == NULL) {
        fd_close(&program->tls);
        program->tls = fd;
    } else {
        certify(program, fd);
    }
}

static int serve(struct program *program, struct error *err)
{
    struct native_options native = {
        .loop = &program->loop,
        .engine = program->engine,
        .version = COVE_VERSION,
        .hosts = (const char *const *)program->settings.hosts,
        .port_domain = program->settings.port_domain,
        .audit = program->audit,
        .telemetry = program->telemetry,
        .restarts = program->restarts,
        .owner = program->owner,
    };
    struct http_options http = {.is_tls = program->settings.tls_certificate != NULL};

    if (native_new(&native, &program->native, err) != 0)
        return -1;
    native_fill(program->native, &http);
    if (http_start(&program->loop, &http, &program->http, err) != 0)
        return -1;
    certify(program, fd_take(&program->tls));
    native_count(program->native, program->http);
    for (size_t i = 0; i < program->listen_count; i++)
        if (http_listen(program->http, program->listen[i], err) != 0)
            return -1;
    return 0;
}

/* Only now anybody is listened to: who connects before waits. */
static void opened(void *arg, const struct error *err)
{
    struct program *program = arg;
    struct error why;

    if (err != NULL) {
        log_say(LOG_LEVEL_ERROR, err->code, "%s", err->text);
        end(program, 1);
        return;
    }
    if (program->is_ending || program->is_stopping)
        return;
    if (serve(program, &why) != 0) {
        log_say(LOG_LEVEL_ERROR, why.code, "%s", why.text);
        end(program, 1);
        return;
    }
    log_say(LOG_LEVEL_INFO, "ready", "version %s", COVE_VERSION);
    if (program->is_private)
        (void)uv_timer_start(&program->timer, look_whether_used, PRIVATE_LOOK_MS, PRIVATE_LOOK_MS);
}

static void catch_signal(struct program *program, uv_signal_t *handle, uv_signal_cb told,
                         int number)
{
    (void)uv_signal_init(&program->loop, handle);
    handle->data = program;
    (void)uv_signal_start(handle, told, number);
}

/* Each sandbox takes some: its links, logs and clients. */
static void files_allow(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void work_nothing(uv_work_t *work)
{
    (void)work;
}

static void worked_nothing(uv_work_t *work, int status)
{
    (void)status;
    free(work);
}

/* The loop's threads are made with its first work, and where that fails libuv ends the process: here,
 * where the next engine tries again, and not in the middle of what clients asked for. */
static int threads_make(struct program *program, struct error *err)
{
    uv_work_t *work = calloc(1, sizeof(*work));

    if (work == NULL || uv_queue_work(&program->loop, work, work_nothing, worked_nothing) != 0) {
        free(work);
        return error_set(err, "no_memory", ENOMEM, "cannot make the engine's threads");
    }
    return 0;
}

static int audit_begin(struct program *program, struct error *err)
{
    struct audit_options options = {
        .loop = &program->loop,
        .file_bytes = program->settings.audit_size,
        .age_ms = program->settings.audit_age_ms,
        .keep = (unsigned)program->settings.audit_keep,
    };

    if (mkdirat(KEEPER_ENGINE_STATE, "audit", 0700) != 0 && errno != EEXIST)
        return error_set(err, "store_failed", errno,
                         "cannot make the directory 'audit' in the engine's own");
    options.directory = openat(KEEPER_ENGINE_STATE, "audit",
                               O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (options.directory < 0)
        return error_set(err, "store_failed", errno,
                         "cannot open the directory 'audit' in the engine's own");
    return audit_open(&options, &program->audit, err);
}

/* Without traces everything else goes on. */
static void telemetry_begin(struct program *program)
{
    const struct telemetry_options options = {
        .endpoint = program->settings.otlp_endpoint,
        .service = program->settings.service_name,
        .version = COVE_VERSION,
        .headers = program->headers,
    };
    struct error err;

    if (options.endpoint == NULL)
        fd_close(&program->headers);
    else if (telemetry_open(&options, &program->telemetry, &err) != 0)
        log_say(LOG_LEVEL_ERROR, err.code, "%s", err.text);
}

static int start(struct program *program, struct error *err)
{
    const struct settings *settings = &program->settings;
    _cleanup_(policy_freep) struct policy *network = NULL;
    struct engine_options options = {
        .loop = &program->loop,
        .keeper = KEEPER_ENGINE_SOCKET,
        .keeper_requests = KEEPER_ENGINE_REQUESTS,
        .directory = KEEPER_ENGINE_STATE,
        .tls = told_tls,
        .lost = lost,
        .arg = program,
    };

    if (given_read(program, err) != 0 ||
        policy_new_text(settings->default_network, &network, err) != 0 ||
        threads_make(program, err) != 0)
        return -1;
    options.network = network;
    options.resolvers = settings->resolvers;
    options.nat64 = settings->nat64;
    options.private = settings->private_networks;
    options.proxy = settings->proxy;
    options.proxy_names = settings->proxy_names;
    options.defaults = defaults_of(settings);
    options.most = most_of(settings);
    options.headroom_memory_bytes = settings->headroom_memory;
    options.headroom_disk_bytes = settings->headroom_disk;
    options.disk_overcommit = settings->disk_overcommit;
    options.pool = settings->pool;
    options.sandboxes = settings->sandboxes;
    options.ports = settings->ports;
    options.kernels_contexts = settings->kernels_contexts;
    options.kernels_memory = settings->kernels_memory;
    options.kernels_idle_ms = settings->kernels_idle_ms;
    options.beat_ms = program->beat_ms;
    options.output_keep_ms = settings->output_keep_ms;
    if (settings->audit && audit_begin(program, err) != 0)
        return -1;
    /* Who could look into this process, or read what a crash leaves, had the key. */
    if (settings->tls_certificate != NULL)
        (void)prctl(PR_SET_DUMPABLE, 0);
    telemetry_begin(program);
    /* The keeper is to see the end of us, not that of a socket while we still write. */
    (void)fcntl(KEEPER_ENGINE_SOCKET, F_DUPFD_CLOEXEC, KEEPER_ENGINE_LISTEN);
    (void)fcntl(KEEPER_ENGINE_REQUESTS, F_DUPFD_CLOEXEC, KEEPER_ENGINE_LISTEN);
    return engine_open(&options, &program->engine, opened, program, err);
}

/* From here on nobody listens to these any more, and by default they would kill us half way: a terminal
 * sends them to the group, and the keeper once more. */
static void signals_block(void)
{
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, KEEPER_STOP_SIGNAL);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

static void close_all(struct program *program)
{
    signals_block();
    if (program->native != NULL)
        native_count(program->native, NULL);
    if (program->http != NULL)
        http_stop(program->http);
    if (program->native != NULL)
        native_settle(program->native);
    uv_close((uv_handle_t *)&program->timer, NULL);
    uv_close((uv_handle_t *)&program->terminate, NULL);
    uv_close((uv_handle_t *)&program->interrupt, NULL);
    uv_close((uv_handle_t *)&program->stop, NULL);
    test_clock_close(&program->clock);
    /* For the threads that were there before. */
    (void)signal(SIGTERM, SIG_IGN);            // NOLINT(cert-err33-c)
    (void)signal(SIGINT, SIG_IGN);             // NOLINT(cert-err33-c)
    (void)signal(KEEPER_STOP_SIGNAL, SIG_IGN); // NOLINT(cert-err33-c)
    (void)uv_run(&program->loop, UV_RUN_NOWAIT);
    engine_close(program->engine);
    if (program->native != NULL)
        native_free(program->native);
    audit_close(program->audit);
    (void)uv_run(&program->loop, UV_RUN_DEFAULT);
    audit_free(program->audit);
    telemetry_close(program->telemetry);
    (void)uv_loop_close(&program->loop);
    settings_free(&program->settings);
}

/* As the keeper reads it. */
static void fault_say(void *arg, const struct error *fault)
{
    (void)arg;
    (void)dprintf(STDERR_FILENO, "%s: %s\n", fault->code, fault->text);
}

/* Whether an engine could start with what the keeper gives. The answer is the status, and for the keeper, on
 * standard error, lines of the log, one for each fault of the configuration, and a last one that has the first fault.
 * Nothing is opened, and no state is touched. */
static int check(struct program *program)
{
    struct http_certificate *certificate = NULL;
    struct error err;
    int failed;

    log_start("cove-engine", LOG_LEVEL_INFO);
    failed = given_read(program, &err);
    if (failed == 0 && program->settings.tls_certificate != NULL && program->tls >= 0) {
        (void)prctl(PR_SET_DUMPABLE, 0);
        failed = certificate_read(fd_take(&program->tls), &program->settings, &certificate, &err);
        http_certificate_free(certificate);
    } else if (failed != 0 && program->config_path != NULL && program->config >= 0)
        settings_faults(program->config, program->config_path, fault_say, NULL);
    if (failed == 0 && program->disk_bytes > 0)
        settings_fit(&program->settings, program->disk_bytes, program->disk_free);
    settings_free(&program->settings);
    if (failed != 0)
        fault_say(NULL, &err);
    return failed != 0;
}

static bool is_json_wanted(void)
{
    const char *format = getenv("COVE_LOG_FORMAT"); // NOLINT(concurrency-mt-unsafe): no thread yet

    return format != NULL && strcmp(format, "json") == 0;
}

int main(int argc, char **argv)
{
    struct program program = {.config = -1, .headers = -1, .tls = -1};
    struct error err;

    if (argc == 3 && strcmp(argv[1], "--alone") == 0)
        return alone_run(argv[2]);
    if (argc == 2 && strcmp(argv[1], "--check") == 0)
        return check(&program);
    log_start("cove-engine", LOG_LEVEL_INFO);
    log_use_json(is_json_wanted());
    (void)prctl(PR_SET_NAME, "cove-engine"); /* executed by fd, it has none */
    (void)signal(SIGPIPE, SIG_IGN);          // NOLINT(cert-err33-c)
    (void)signal(SIGHUP, SIG_IGN); // NOLINT(cert-err33-c): nothing is read anew while it runs
    files_allow();
    if (uv_loop_init(&program.loop) != 0)
        return 1;
    (void)uv_timer_init(&program.loop, &program.timer);
    program.timer.data = &program;
    catch_signal(&program, &program.terminate, told_to_end, SIGTERM);
    catch_signal(&program, &program.interrupt, told_to_end, SIGINT);
    catch_signal(&program, &program.stop, told_to_stop, KEEPER_STOP_SIGNAL);
    if (start(&program, &err) != 0) {
        log_say(LOG_LEVEL_ERROR, err.code, "%s", err.text);
        program.status = 1;
    } else {
        (void)uv_run(&program.loop, UV_RUN_DEFAULT);
    }
    close_all(&program);
    return program.status;
}
