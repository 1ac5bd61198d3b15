/* What the files of this room share: the native, a job for each request, and how it is answered.
 *
 * A job is the request's own: it goes when the request is answered. So each handler answers exactly
 * once, on every path, also when its client is gone (the answer then goes nowhere), and until then
 * whatever it asked the engine for may keep the job as its argument. */
#pragma once

#include "base/sha256.h"
#include "front/native/account.h"
#include "front/native/holds.h"
#include "front/native/idempotency.h"
#include "front/native/metrics.h"
#include "front/native/native.h"
#include "front/native/out.h"
#include "front/native/read.h"

#define NATIVE_BACKLOG (256U << 10) /* of a stream whose client does not read */
#define NATIVE_CHUNK 49152          /* read at once: a multiple of 3, for base64 */
#define NATIVE_KEPT_BYTES (256U << 10)
#define NATIVE_KEEPALIVE_MS 15000
#define BODIES_LARGE ((size_t)64 << 10)

struct reading;
struct stream;
struct watcher;

/* A piece of work beside the loop: beside.c. `work` is called by a thread, `done` from the loop; when the engine ends
 * maybe without the work, and with true. */
struct beside {
    TAILQ_ENTRY(beside) next; /* of those that wait, or of those that are worked on */
    struct native *native;
    char tenant[64]; /* its turn it is */
    void (*work)(struct beside *piece);
    void (*done)(struct beside *piece, bool is_closing);
    bool is_working;
    uv_work_t work_of;
};
struct besides {
    TAILQ_HEAD(beside_list, beside) waiting, working;
    size_t working_count;
    bool is_closing;
};

/* A tenant with streams. */
struct streamer {
    TAILQ_ENTRY(streamer) next, turn;
    TAILQ_HEAD(waiting_streams, stream) waiting; /* for a turn, the longest first */
    size_t streams;
    /* That its clients have still to take. */
    size_t bytes;
    char tenant[64];
};
TAILQ_HEAD(streamers, streamer);

struct native {
    struct native_options options;
    char **hosts;
    char *port_domain; /* or NULL */
    struct http_route *routes;
    bool is_draining;
    bool is_stopping; /* no next engine will know the commands */
    size_t jobs;
    struct job *waiting; /* those that a drain does not wait for */
    struct job *called;  /* those who were admitted */
    uv_timer_t *calls;   /* while there are some */
    struct out out;      /* what is being answered; only within one call */
    struct metrics metrics;
    size_t routes_count;
    struct http_server *server; /* to be counted; or NULL */
    struct account account;
    struct out account_out;
    struct once_table *once;
    struct stream *streams;
    struct streamers streamers,
        turning;  /* all tenants with streams; whose turn it is, the first one's */
    size_t turns; /* streams that wait for one */
    /* That clients of all streams have still to take. */
    size_t streamed;
    struct watcher *watchers; /* files_watch.c */
    struct besides besides;
    /* For the metrics: */
    uint64_t bodies_parsing, bodies_parsed, messages_parsed, results_printed, calls_printed;
    struct holds restoring; /* bytes of snapshots on their way in: kernels.c */
    struct holds told;      /* what waits for clients: kernels_connect.c */
    struct holds kept;      /* texts of commands, answers that are gathered: native_keeps() */
    struct holds watched;   /* changes that watches keep: native_watches() */
    uv_timer_t *timer;      /* of keepalives */
    uv_idle_t *idle;        /* while a stream wants its turn */
    char chunk[NATIVE_CHUNK];
};

#define HANDLER(name) void name(struct http_request *request, void *data)

struct job {
    struct native *native;
    struct http_request *request;
    struct engine_caller caller; /* no scopes at all where no key is needed */
    struct once *once;           /* its answer is kept for repetitions */
    struct once *waits_for;      /* it is a repetition itself */
    struct once_waiter waiter;
    struct reading *reading; /* of its body, where that is large */
    void *own;               /* of the handler */
    void (*free_own)(void *own);
    void (*drain)(struct job *job); /* while it is among native->waiting */
    struct job *next_waiting, *previous_waiting;
    bool is_called; /* it is among native->called */
    bool has_begun; /* that it stays is noted: account_began() */
    struct job *next_called, *previous_called;
    void (*then)(struct job *job, struct proc *proc); /* process_find() */
    uint64_t number;                                  /* of the handler, too */
    char id[32];                                      /* of the request */
    uint64_t began_ns;                                /* monotonic */
    const char *code;                                 /* of the problem it was answered with */
    char *why;                                        /* its text, where it is a fault; or NULL */
    /* That it made, or the sandbox that its path names; and the tenant or TENANT/KEY that it is about. */
    char sandbox[24], kernel[24], target[96];
    char own_id[ENGINE_ID_SIZE]; /* of the sandbox; of the handler, too */
    uint64_t reached_box;        /* that this is carried to; 0: none */
    struct job_step {
        const char *name;
        uint64_t begin_ns, end_ns; /* wall clock */
    } steps[2];                    /* that are worth a span of their own */
    size_t steps_count;
    bool is_first;      /* its command is the sandbox's first */
    bool has_url_token; /* its query has the parameter `token` */
};

/* ---- admit.c ---- */

bool admit_request(struct http_request *request, void *native);
/* Writes the tenant of the key in a header. False: there is none, or it is wrong, or in the URL. */
bool admit_find_owner(const struct http_request *request, char *name, size_t size, void *native);
/* That its caller, who is known now, may ask this often; from now on he is looked at. False: it is answered. */
bool admit_caller(struct job *job);
/* False, and it is answered, where the engine has no memory for more, but for what ends something. */
bool admit_memory_is_left(struct job *job);
void admit_refuse(struct http_request *request, unsigned status, const char *code,
                  const char *detail, void *native);

/* ---- ports.c ---- */

/* Whether it asks for a sandbox's port by its own name; then it is answered, now or later. */
bool ports_take_host(struct job *job);
/* Whoever asks without a key for a port by its path: true, and then it is the caller, where the port is public. */
bool ports_take_public(struct job *job);

/* ---- callers.c: whoever stays is looked at again, each second ---- */

bool callers_add(struct job *job);    /* false: there is no memory to do so */
void callers_remove(struct job *job); /* also one that was never added */
void callers_close(struct native *native);
/* Kills a process, if the caller's key or token has ended. */
void callers_end_with(struct job *job, struct proc *proc);

/* ---- beside.c: work in the loop's pool, in turns of tenants ---- */

void besides_open(struct native *native);
/* The piece stays until `done`. */
void beside_add(struct beside *piece, struct native *native, const char *tenant);
bool beside_cancel(struct beside *piece); /* false: it is worked on, and `done` follows */

/* ---- bodies.c: large bodies are parsed beside the loop ---- */

HANDLER(bodies_take); /* asks the route's handler, now or when the body was parsed */
struct read_body job_body(struct job *job);
void job_body_hash(struct job *job, char text[SHA256_TEXT]);
void job_body_free(struct job *job);

/* ---- job.c ---- */

/* The job that admit_request() made, if the caller has that scope; else NULL and it is answered. */
struct job *job_begin(struct http_request *request, unsigned scope);
/* The same for a route of one sandbox, the `{id}` of its pattern: tokens may do that, too. */
struct job *job_begin_for(struct http_request *request, enum engine_verb verb);
/* Charges what is kept in memory for a tenant's requests beyond their own bodies. False, and nothing is changed: its
 * share has no room for that. */
bool native_keeps(struct native *native, struct hold *hold, size_t bytes);
/* The same of what watches keep, which is apart: it goes only where more comes. */
bool native_watches(struct native *native, struct hold *hold, size_t bytes);
void job_fail_kept(struct job *job); /* so it is answered */
int job_new(struct native *native, struct http_request *request, struct job **out);

/* False, and it is answered, where the query has a name that is not in `known` (NULL-terminated), or has
 * one twice that is not "label". */
bool job_query(struct job *job, const char *const *known);
/* The same where `many` may be there several times. */
bool job_query_many(struct job *job, const char *const *known, const char *many);
/* A number of the query, `value` as it was where there is none; -1. */
int job_query_count(const struct job *job, const char *name, uint64_t low, uint64_t high,
                    uint64_t *value, struct error *err);
int job_query_flag(const struct job *job, const char *name, bool *value, struct error *err);
/* Which of `words`; -1 and an error if none. *value as it was where there is none. */
int job_query_word(const struct job *job, const char *name, const char *const *words, int *value,
                   struct error *err);

/* For what may wait for hours: has it ended by `drain` when the engine is about to end. NULL: it is about
 * to be answered by itself. */
void job_on_drain(struct job *job, void (*drain)(struct job *job));

/* Idempotency-Key: true to go ahead. False: it is a repetition, or the key is wrong, and everything else
 * happens by itself. `may` false: this request takes no such key. */
bool job_once(struct job *job, bool may);
bool job_has_waiters(const struct job *job);
/* Whether the client speaks TLS, with us or with the proxy in front of us. Who says so himself misleads nobody
 * but himself. */
bool job_is_tls(const struct job *job);

/* An empty text to print an answer into. */
struct out *job_out(struct job *job);

/* Answers; the job is gone. */
void job_answer(struct job *job, unsigned status); /* what was printed, as JSON */
void job_answer_made(struct job *job, unsigned status, const char *location);
/* The same of a text that was printed elsewhere, and is taken. */
void job_answer_taken(struct job *job, unsigned status, struct out *out);
void job_answer_nothing(struct job *job); /* 204 */
void job_answer_bytes(struct job *job, unsigned status, const char *content_type, const void *data,
                      size_t size);
/* The same of bytes in a block of malloc(), which is taken. Nothing is kept of it for repetitions: for a request that takes
 * no key for that. */
void job_answer_block(struct job *job, unsigned status, const char *content_type, void *block,
                      size_t start, size_t size);
void job_problem(struct job *job, const struct error *err);
void job_fail(struct job *job, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Begins an answer in parts; what it is kept for repetitions is that it was too large. False: that was all
 * of it, for only the header was asked for (HEAD); the job is gone. */
bool job_stream(struct job *job, const char *content_type);
/* The same with another status, and a length unless that is UINT64_MAX. */
bool job_stream_sized(struct job *job, unsigned status, const char *content_type, uint64_t length);
void job_abort(struct job *job);

/* The code of `err`, or what it is among those of problem.c, printed and sent. */
void problem_answer(struct native *native, struct http_request *request, unsigned status,
                    const char *code, const char *detail, unsigned retry_after_s);

uint64_t job_wall_ms(void);
void job_step(struct job *job, const char *name, uint64_t begin_ns, uint64_t end_ns);
/* What the monotonic clock said then, as the wall clock says it. */
uint64_t job_wall_ns(uint64_t monotonic_ns);

/* ---- streams.c: answers without end ---- */

struct stream {
    struct stream *next, *previous;
    TAILQ_ENTRY(stream) turn;  /* while it wants one */
    struct streamer *streamer; /* NULL, as there was no memory: it takes no turns */
    struct job *job;
    void (*more)(struct stream *stream);
    void (*end)(struct stream *stream);
    uint64_t written_ms, end_ms; /* monotonic; 0: it has no end */
    size_t turn_bytes;
    /* Bytes that its client had still to take when that was looked at last. */
    size_t waiting;
    bool has_keepalive, is_full, wants_turn;
    /* It has something to send, and its tenant no room for it. */
    bool is_held;
};
/* After job_stream(). `more` is called when stream_send() was false and one may go on; streams have turns, and so have
 * tenants with streams. */
void stream_add(struct stream *stream, struct job *job, bool has_keepalive,
                void (*more)(struct stream *stream));
void stream_remove(struct stream *stream);
/* `for_ms` of the query: how long the client wants to listen; 0: it does not say. */
int stream_query(const struct job *job, uint64_t *for_ms, struct error *err);
/* After stream_add(): `end`, which finishes the answer, is called after so long; 0: never. */
void stream_end_after(struct stream *stream, uint64_t for_ms, void (*end)(struct stream *stream));
/* False while what waits for clients of the tenant's streams is its share of what may: then none begins. */
bool streams_may_begin(const struct job *job);
/* Sends what was printed since job_out(). False: the client, or clients of the tenant, have enough to read, or others have
 * their turn now; `more` follows. */
bool stream_send(struct stream *stream);
/* There is something to send: `more` is called now, or, if the tenant has more than a few streams, in its turn, or when
 * the client has read. */
void stream_news(struct stream *stream);
/* The same as stream_send() where so much was sent otherwise, after which so much waits to be written. */
bool stream_sent(struct stream *stream, size_t size, size_t waiting);
void streams_open(struct native *native);
void streams_close(struct native *native);

/* ---- pull.c: an answer that is read from a process's log, in one piece or in parts ---- */

struct pull {
    struct stream stream; /* first */
    struct job *job;
    /* Prints the next part; 1: there is more, 0: that was all, -1: it is there no more. */
    int (*step)(struct pull *pull, struct proc *proc, struct out *out);
    char process[PROCS_ID_MAX];
    bool is_asking, is_gone;
    char last;        /* byte that was sent: what is printed is one text over all parts */
    struct error why; /* of a step that failed by an error */
};
/* Answers with why a step failed, of what nothing was sent yet. */
void pull_fail(const struct pull *pull, struct job *job, const char *process);
void pull_begin(struct pull *pull, struct job *job, struct proc *proc, const char *content_type,
                int (*step)(struct pull *pull, struct proc *proc, struct out *out));

/* ---- print.c ---- */

void print_pairs(struct out *out, const char *key, const char *const *pairs);
void print_sandbox(struct out *out, const char *key, const struct sandbox_view *view,
                   const bool *created);
void print_network(struct out *out, const char *key, const struct policy *policy,
                   const struct net_limits *limits);
void print_process(struct out *out, const char *key, const struct proc_view *view);
void print_key(struct out *out, const struct engine_key_view *key, const char *secret);
void print_quota(struct out *out, const char *key, const struct engine_quota *quota);
void print_event(struct out *out, const struct engine_event *event);
const char *print_signal(int number, char text[16]);

/* ---- the handlers, by file; the table is in routes.c ---- */

/* host.c */
HANDLER(host_health);
HANDLER(host_ready);
HANDLER(host_version);
HANDLER(host_openapi);
HANDLER(host_roots);
/* metrics.c */
HANDLER(metrics_page);
/* sandboxes.c */
HANDLER(sandbox_create);
HANDLER(sandbox_list);
HANDLER(sandbox_get);
HANDLER(sandbox_patch);
HANDLER(sandbox_delete);
HANDLER(sandbox_start);
HANDLER(sandbox_stop);
/* usage.c */
HANDLER(usage_get);
HANDLER(capacity_get);
/* network.c */
HANDLER(network_get);
/* Answers with the sandbox, as it is now. */
void sandbox_answer(void *arg, const struct sandbox_view *view, const struct error *err);
/* mounts.c */
HANDLER(mount_add);
HANDLER(mount_remove);
HANDLER(port_list);
HANDLER(port_open);
HANDLER(port_close);
HANDLER(port_reach);
HANDLER(port_tunnel);
/* run.c */
HANDLER(run_exec);
HANDLER(run_start);
/* processes.c */
HANDLER(process_list);
HANDLER(process_get);
HANDLER(process_wait);
HANDLER(process_stdin);
HANDLER(process_signal);
HANDLER(process_delete);
/* output.c, follow.c */
HANDLER(process_output);
HANDLER(process_follow);
/* terminal.c */
HANDLER(process_terminal);
/* events.c */
HANDLER(events_stream);
/* tokens.c */
HANDLER(token_make);
HANDLER(token_sign);
HANDLER(tokens_end);
/* kernels.c */
HANDLER(kernels_run_once);
HANDLER(kernels_create);
HANDLER(kernels_list);
HANDLER(kernels_get);
HANDLER(kernels_delete);
HANDLER(kernels_run_in);
HANDLER(kernels_reset);
HANDLER(kernels_fork);
HANDLER(kernels_snapshot);
HANDLER(kernels_restore);
/* kernels_connect.c */
HANDLER(kernels_connect);
/* files_read.c */
HANDLER(files_get);
HANDLER(files_tar_get);
/* files_write.c */
HANDLER(files_put);
HANDLER(files_post);
HANDLER(files_tar_put);
/* files_list.c */
HANDLER(files_stat);
HANDLER(files_list);
HANDLER(files_find);
HANDLER(files_grep);
/* files_watch.c */
HANDLER(files_watch);
/* files_change.c */
HANDLER(files_stat_many);
HANDLER(files_mkdir);
HANDLER(files_move);
HANDLER(files_copy);
HANDLER(files_remove);
HANDLER(files_chmod);
HANDLER(files_chown);
HANDLER(files_symlink);
HANDLER(files_xattr_get);
HANDLER(files_xattr_put);
HANDLER(files_xattr_delete);
/* keys.c */
HANDLER(key_make);
HANDLER(key_list);
HANDLER(key_end);
HANDLER(quota_get);
HANDLER(quota_put);

/* files_watch.c: those that nobody reads any more */
void watchers_drain(struct native *native);
void watchers_close(struct native *native);

/* ---- routes.c ---- */

struct native_route {
    struct http_route route;
    bool is_open; /* needs no key */
};
const struct native_route *routes_row(size_t index); /* NULL after the last */
bool routes_path_is_open(const char *path);

/* ---- processes.c ---- */

/* The process of the path, for a handler that needs one: `then` is called with it, or it is answered. */
void process_find(struct job *job, void (*then)(struct job *job, struct proc *proc));
/* Keeps `own` with the job; NULL, and it is answered, without memory. */
void *job_own(struct job *job, size_t size, void (*free_own)(void *own));

extern const unsigned char native_openapi[];
extern const size_t native_openapi_size;
