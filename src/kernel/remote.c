/* The engine's end of a worker: see remote.h.
 *
 * What was asked for and not answered is kept by its number. A frame that answers nothing, says what cannot be, or
 * is larger than it may be ends the worker: nothing is guessed, and there is no second try. */
#include "kernel/remote.h"

#include "base/fd.h"
#include "kernel/numbers.h"
#include "kernel/outgoing.h"
#include "kernel/proto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define IN_LEAST (16U << 10)     /* and so much is read ahead of a frame's end */
#define TURN_BYTES (1U << 20)    /* that are read before others have their turn */
#define IN_KEPT (256U << 10)     /* of what was read into, when its frames are gone */
#define ROOM_KEPT (1U << 20)     /* of another buffer that is empty */
#define WAITING_MAX (256U << 20) /* bytes for a worker that does not read */
#define ENTRIES_MAX 200000U      /* contexts and runs */
#define PENDING_MAX 64U          /* requests of one kind, of one context */
#define GRANT_BYTES_MAX (64U << 10)
#define FILENAME_BYTES_MAX 4096U

/* A context, or a run. */
struct entry {
    struct number number; /* first */
    bool is_run;
    bool
        is_over; /* a context that was dropped, or could not be made: only its answers are waited for */
    bool making;
    uint32_t resets, snapshots; /* that were asked for */
    /* Of a run. */
    uint32_t calls, cancels; /* in flight; cancels that are left to it */
    uint32_t last_call;
    bool has_called;
};

struct remote {
    int socket;
    struct numbers entries;
    struct outgoing out;
    uint8_t *in;
    size_t in_room, in_at, in_end;
    size_t frame; /* bytes of the frame whose event is out */
    bool is_ready, is_gone;
    uint64_t result_most;
    struct kernel_result result;
    struct kernel_log *logs;
    size_t logs_room;
};

/* ---- life ---- */

int remote_open(int socket, const struct remote_options *options, struct remote **out,
                struct error *err)
{
    struct remote *remote = calloc(1, sizeof(*remote));

    if (remote == NULL) {
        fd_close(&socket);
        return error_set(err, "no_memory", ENOMEM, "a kernel's worker");
    }
    remote->socket = socket;
    remote->result_most = options->result_bytes != 0 && options->result_bytes < PROTO_RESULT_MAX
                              ? options->result_bytes
                              : PROTO_RESULT_MAX;
    outgoing_open(&remote->out, socket);
    outgoing_begin(&remote->out, PROTO_HELLO, 0);
    wire_u32(remote->out.frame, PROTO_VERSION);
    wire_raw(remote->out.frame, options->key, sizeof(options->key));
    wire_u64(remote->out.frame, options->memory_bytes);
    wire_u64(remote->out.frame, remote->result_most);
    wire_end(remote->out.frame);
    if (outgoing_send(&remote->out, err) < 0) {
        remote_close(remote);
        return -1;
    }
    *out = remote;
    return 0;
}

void remote_close(struct remote *remote)
{
    struct number *entry;

    if (remote == NULL)
        return;
    while ((entry = numbers_any(&remote->entries)) != NULL) {
        numbers_remove(&remote->entries, entry);
        free(entry);
    }
    numbers_free(&remote->entries);
    outgoing_free(&remote->out);
    free(remote->in);
    free(remote->logs);
    fd_close(&remote->socket);
    free(remote);
}

void remote_closep(struct remote **remote)
{
    remote_close(*remote);
}

int remote_fd(const struct remote *remote)
{
    return remote->socket;
}

size_t remote_waiting(const struct remote *remote)
{
    return remote->out.waiting;
}

bool remote_wants_write(const struct remote *remote)
{
    return remote_waiting(remote) > 0 && !remote->is_gone;
}

/* Before a request is written. */
static int may_send(const struct remote *remote, struct error *err)
{
    if (remote->is_gone)
        return error_set(err, "kernel_gone", 0, "the kernel's worker has ended; start a new one");
    if (remote_waiting(remote) > WAITING_MAX)
        return error_set(err, "kernel_busy", 0,
                         "the kernel's worker does not keep up: %zu bytes wait for it; try again "
                         "later",
                         remote_waiting(remote));
    return 0;
}

/* ---- entries ---- */

static struct entry *entry_find(const struct remote *remote, uint64_t number, bool is_run)
{
    struct entry *entry = (struct entry *)(void *)numbers_find(&remote->entries, number);

    return entry != NULL && entry->is_run == is_run ? entry : NULL;
}

static void entry_free(struct remote *remote, struct entry *entry)
{
    numbers_remove(&remote->entries, &entry->number);
    free(entry);
}

static struct entry *entry_new(struct remote *remote, uint64_t number, bool is_run,
                               struct error *err)
{
    struct entry *entry;

    if (number == 0 || numbers_find(&remote->entries, number) != NULL) {
        error_set(err, "bad_number", 0, "the number %llu is taken, or none",
                  (unsigned long long)number);
        return NULL;
    }
    if (remote->entries.count >= ENTRIES_MAX) {
        error_set(err, "kernel_busy", 0,
                  "there are %u contexts and runs in this worker; drop some, or wait", ENTRIES_MAX);
        return NULL;
    }
    entry = calloc(1, sizeof(*entry));
    if (entry == NULL || numbers_add(&remote->entries, &entry->number, number) < 0) {
        free(entry);
        error_set(err, "no_memory", ENOMEM, "a kernel's context or run");
        return NULL;
    }
    entry->is_run = is_run;
    entry->making = !is_run;
    return entry;
}

/* The end of a request that made an entry: with -1 there is none. */
static int made(struct remote *remote, struct entry *entry, struct error *err)
{
    wire_end(remote->out.frame);
    if (outgoing_send(&remote->out, err) == 0)
        return 0;
    entry_free(remote, entry);
    return -1;
}

/* A context that stands, as far as is known here. */
static struct entry *context_find(const struct remote *remote, uint64_t context, struct error *err)
{
    struct entry *entry = entry_find(remote, context, false);

    if (entry != NULL && !entry->is_over)
        return entry;
    error_set(err, "not_found", 0, "there is no context %llu", (unsigned long long)context);
    return NULL;
}

/* ---- requests ---- */

static int list_check(const char *const *list, const char *what, struct error *err)
{
    size_t count = 0;

    for (; list != NULL && list[count] != NULL; count++)
        if (strlen(list[count]) >= GRANT_BYTES_MAX)
            return error_set(err, "bad_manifest", 0, "one of the %s is too long: at most %u bytes",
                             what, GRANT_BYTES_MAX);
    if (count > KERNEL_GRANTS_MAX)
        return error_set(err, "bad_manifest", 0, "%zu %s are too many: at most %u", count, what,
                         KERNEL_GRANTS_MAX);
    return 0;
}

static int grants_check(const struct kernel_grants *grants, struct error *err)
{
    if ((grants->read_paths != NULL && grants->read_paths[0] != NULL) ||
        (grants->write_paths != NULL && grants->write_paths[0] != NULL))
        return error_set(err, "bad_manifest", 0,
                         "there are no files where this kernel runs: leave out allowedReadPaths "
                         "and allowedWritePaths, or run it yourself with `cove js`");
    if (list_check(grants->hosts, "hosts", err) < 0 ||
        list_check(grants->env, "variables", err) < 0 ||
        list_check(grants->tools, "tools", err) < 0 ||
        list_check(grants->argv, "arguments", err) < 0)
        return -1;
    return 0;
}

int remote_new(struct remote *remote, uint64_t context, const struct kernel_grants *grants,
               struct error *err)
{
    struct entry *entry;

    if (may_send(remote, err) < 0 || grants_check(grants, err) < 0)
        return -1;
    entry = entry_new(remote, context, false, err);
    if (entry == NULL)
        return -1;
    outgoing_begin(&remote->out, PROTO_NEW, context);
    wire_grants(remote->out.frame, grants);
    return made(remote, entry, err);
}

/* The block goes behind its frame. */
static int restore(struct remote *remote, uint64_t context, const struct kernel_grants *grants,
                   struct outgoing_block *bytes, struct error *err)
{
    size_t size = bytes->wire.size;
    struct entry *entry;

    if (may_send(remote, err) < 0 || grants_check(grants, err) < 0)
        return -1;
    if (size > PROTO_RESULT_MAX)
        return error_set(err, "too_large", 0, "a snapshot of %zu bytes is too large: at most %u",
                         size, PROTO_RESULT_MAX);
    /* One at a time of the largest: whoever takes in several keeps them all until the worker has read them. */
    if (remote_waiting(remote) + size > PROTO_BODY_MAX)
        return error_set(err, "kernel_busy", 0,
                         "the kernel's worker is taking %zu bytes still; restore this one later",
                         remote_waiting(remote));
    entry = entry_new(remote, context, false, err);
    if (entry == NULL)
        return -1;
    outgoing_begin(&remote->out, PROTO_RESTORE, context);
    wire_u32(remote->out.frame, (uint32_t)size);
    wire_grants(remote->out.frame, grants);
    wire_end_before(remote->out.frame, size);
    if (outgoing_send(&remote->out, err) < 0) {
        entry_free(remote, entry);
        return -1;
    }
    outgoing_add(&remote->out, bytes);
    return 0;
}

int remote_restore(struct remote *remote, uint64_t context, const struct kernel_grants *grants,
                   uint8_t *bytes, size_t size, struct error *err)
{
    struct outgoing_block *block = outgoing_block_new(bytes, size);

    if (block == NULL)
        (void)error_set(err, "no_memory", ENOMEM, "a request to a kernel's worker");
    else if (restore(remote, context, grants, block, err) == 0)
        return 0;
    free(block);
    free(bytes);
    return -1;
}

int remote_fork(struct remote *remote, uint64_t context, uint64_t copy, struct error *err)
{
    struct entry *entry;

    if (may_send(remote, err) < 0 || context_find(remote, context, err) == NULL)
        return -1;
    entry = entry_new(remote, copy, false, err);
    if (entry == NULL)
        return -1;
    outgoing_begin(&remote->out, PROTO_FORK, copy);
    wire_u64(remote->out.frame, context);
    return made(remote, entry, err);
}

/* One without a body, which `*pending` counts. */
static int ask(struct remote *remote, enum proto_kind kind, uint64_t context, uint32_t *pending,
               struct error *err)
{
    if (*pending >= PENDING_MAX)
        return error_set(err, "kernel_busy", 0,
                         "this context has %u such requests before it; wait until they are done",
                         PENDING_MAX);
    outgoing_begin(&remote->out, kind, context);
    wire_end(remote->out.frame);
    if (outgoing_send(&remote->out, err) < 0)
        return -1;
    (*pending)++;
    return 0;
}

int remote_reset(struct remote *remote, uint64_t context, struct error *err)
{
    struct entry *entry;

    if (may_send(remote, err) < 0 || (entry = context_find(remote, context, err)) == NULL)
        return -1;
    return ask(remote, PROTO_RESET, context, &entry->resets, err);
}

int remote_snapshot(struct remote *remote, uint64_t context, struct error *err)
{
    struct entry *entry;

    if (may_send(remote, err) < 0 || (entry = context_find(remote, context, err)) == NULL)
        return -1;
    return ask(remote, PROTO_SNAPSHOT, context, &entry->snapshots, err);
}

/* Nobody waits for anything of it any more. */
static void entry_settle(struct remote *remote, struct entry *entry)
{
    if (entry->is_over && !entry->making && entry->resets == 0 && entry->snapshots == 0)
        entry_free(remote, entry);
}

int remote_drop(struct remote *remote, uint64_t context, struct error *err)
{
    struct entry *entry;
    uint32_t none = 0;

    if (may_send(remote, err) < 0 || (entry = context_find(remote, context, err)) == NULL ||
        ask(remote, PROTO_DROP, context, &none, err) < 0)
        return -1;
    entry->is_over = true;
    entry_settle(remote, entry);
    return 0;
}

int remote_run(struct remote *remote, uint64_t run, uint64_t context,
               const struct kernel_grants *grants, const struct kernel_source *source,
               struct error *err)
{
    static const struct kernel_grants none;
    struct entry *entry;

    if (may_send(remote, err) < 0)
        return -1;
    if (context != 0 && context_find(remote, context, err) == NULL)
        return -1;
    if (grants == NULL)
        grants = &none;
    if (context == 0 && grants_check(grants, err) < 0)
        return -1;
    if (source->size > KERNEL_SOURCE_MAX ||
        (source->filename != NULL && strlen(source->filename) > FILENAME_BYTES_MAX))
        return error_set(err, "too_large", 0, "a source of %zu bytes is too large: at most %u",
                         source->size, KERNEL_SOURCE_MAX);
    entry = entry_new(remote, run, true, err);
    if (entry == NULL)
        return -1;
    outgoing_begin(&remote->out, PROTO_RUN, run);
    wire_u64(remote->out.frame, context);
    wire_source(remote->out.frame, source);
    if (context == 0)
        wire_grants(remote->out.frame, grants);
    return made(remote, entry, err);
}

/* Of a run that is over nothing needs to be said: it ended meanwhile. */
int remote_stop(struct remote *remote, uint64_t run, enum kernel_end end, struct error *err)
{
    if (may_send(remote, err) < 0)
        return -1;
    if (entry_find(remote, run, true) == NULL)
        return 0;
    outgoing_begin(&remote->out, PROTO_STOP, run);
    wire_u32(remote->out.frame, (uint32_t)end);
    wire_end(remote->out.frame);
    return outgoing_send(&remote->out, err);
}

static int settled(struct remote *remote, struct entry *entry, struct error *err)
{
    wire_end(remote->out.frame);
    if (outgoing_send(&remote->out, err) < 0)
        return -1;
    if (entry->calls > 0)
        entry->calls--;
    return 0;
}

int remote_settle(struct remote *remote, uint64_t run, uint32_t call, const char *meta,
                  size_t meta_size, const uint8_t *bytes, size_t bytes_size, struct error *err)
{
    struct entry *entry;

    if (may_send(remote, err) < 0)
        return -1;
    entry = entry_find(remote, run, true);
    if (entry == NULL)
        return 0;
    if (meta_size > KERNEL_META_MAX || bytes_size > PROTO_RESULT_MAX - KERNEL_META_MAX)
        return error_set(err, "too_large", 0, "the answer to a call of the host is too large");
    outgoing_begin(&remote->out, PROTO_SETTLE, run);
    wire_u32(remote->out.frame, call);
    wire_bytes(remote->out.frame, meta != NULL ? meta : "null",
               meta != NULL ? meta_size : strlen("null"));
    wire_u32(remote->out.frame, bytes != NULL ? 1 : 0);
    wire_bytes(remote->out.frame, bytes, bytes != NULL ? bytes_size : 0);
    return settled(remote, entry, err);
}

int remote_settle_error(struct remote *remote, uint64_t run, uint32_t call, const char *code,
                        const char *message, struct error *err)
{
    struct entry *entry;

    if (may_send(remote, err) < 0)
        return -1;
    entry = entry_find(remote, run, true);
    if (entry == NULL)
        return 0;
    if (strlen(code) >= ERROR_CODE_MAX || strlen(message) >= KERNEL_META_MAX / 8)
        return error_set(err, "too_large", 0, "the error of a call of the host is too large");
    outgoing_begin(&remote->out, PROTO_SETTLE_ERROR, run);
    wire_u32(remote->out.frame, call);
    wire_string(remote->out.frame, code);
    wire_string(remote->out.frame, message);
    return settled(remote, entry, err);
}

/* ---- what comes back ---- */

/* Each returns whether the frame may be: what it says was asked for, and it says it in full. */

static bool event_made(struct remote *remote, struct entry *entry, struct wire_reader *reader)
{
    if (entry == NULL || entry->is_run || (!entry->making && entry->resets == 0))
        return false;
    if (entry->making)
        entry->making = false;
    else
        entry->resets--;
    entry_settle(remote, entry);
    return wire_is_done(reader);
}

static bool event_snapshot(struct remote *remote, struct entry *entry, struct wire_reader *reader,
                           struct remote_event *event)
{
    struct kernel_text bytes = wire_read_bytes(reader, PROTO_RESULT_MAX);

    if (entry == NULL || entry->is_run || entry->snapshots == 0)
        return false;
    entry->snapshots--;
    entry_settle(remote, entry);
    event->bytes = (const uint8_t *)bytes.data;
    event->size = bytes.size;
    return wire_is_done(reader);
}

/* Their ids rise, however often they begin anew: no call comes twice. */
static bool event_call(struct entry *entry, struct wire_reader *reader, struct remote_event *event)
{
    wire_read_call(reader, &event->call);
    if (entry == NULL || !entry->is_run || entry->calls >= PROTO_CALLS_MAX ||
        (entry->has_called && (int32_t)(event->call.id - entry->last_call) <= 0))
        return false;
    entry->has_called = true;
    entry->last_call = event->call.id;
    entry->calls++;
    entry->cancels++;
    return wire_is_done(reader);
}

/* At most one for each call. */
static bool event_cancel(struct entry *entry, struct wire_reader *reader,
                         struct remote_event *event)
{
    event->call = (struct kernel_call){0};
    event->call.op = wire_read_bytes(reader, PROTO_OP_MAX);
    event->call.meta = wire_read_bytes(reader, KERNEL_META_MAX);
    if (entry == NULL || !entry->is_run || entry->cancels == 0)
        return false;
    entry->cancels--;
    return wire_is_done(reader);
}

static bool event_done(struct remote *remote, struct entry *entry, struct wire_reader *reader,
                       struct remote_event *event)
{
    if (entry == NULL || !entry->is_run)
        return false;
    entry_free(remote, entry);
    wire_read_result(reader, &remote->result, &remote->logs, &remote->logs_room);
    event->result = &remote->result;
    return wire_is_done(reader) && wire_result_size(event->result) <= remote->result_most;
}

static bool event_failed(struct remote *remote, struct entry *entry, struct wire_reader *reader,
                         struct remote_event *event)
{
    uint32_t kind = wire_read_u32(reader, PROTO_SETTLE_ERROR);

    wire_read_error(reader, &event->error);
    if (entry == NULL || entry->is_run != (kind == PROTO_RUN))
        return false;
    if (kind == PROTO_RUN) {
        event->of = REMOTE_DONE;
        entry_free(remote, entry);
    } else if (kind == PROTO_NEW && entry->making) {
        event->of = REMOTE_MADE;
        entry->making = false;
        entry->is_over = true;
        entry_settle(remote, entry);
    } else if (kind == PROTO_RESET && entry->resets > 0) {
        event->of = REMOTE_MADE;
        entry->resets--;
        entry_settle(remote, entry);
    } else if (kind == PROTO_SNAPSHOT && entry->snapshots > 0) {
        event->of = REMOTE_SNAPSHOT;
        entry->snapshots--;
        entry_settle(remote, entry);
    } else {
        return false;
    }
    return wire_is_done(reader);
}

static bool event_read(struct remote *remote, const struct proto_head *head, const uint8_t *body,
                       struct remote_event *event)
{
    struct wire_reader reader = wire_reader(body, head->size);
    struct entry *entry = (struct entry *)(void *)numbers_find(&remote->entries, head->number);

    *event = (struct remote_event){.number = head->number};
    if ((head->kind == PROTO_READY) == remote->is_ready)
        return false;
    switch (head->kind) {
    case PROTO_READY:
        remote->is_ready = true;
        event->kind = REMOTE_READY;
        return wire_is_done(&reader);
    case PROTO_MADE:
        event->kind = REMOTE_MADE;
        return event_made(remote, entry, &reader);
    case PROTO_BYTES:
        event->kind = REMOTE_SNAPSHOT;
        return event_snapshot(remote, entry, &reader, event);
    case PROTO_CALL:
        event->kind = REMOTE_CALL;
        return event_call(entry, &reader, event);
    case PROTO_CANCEL:
        event->kind = REMOTE_CANCEL;
        return event_cancel(entry, &reader, event);
    case PROTO_DONE:
        event->kind = REMOTE_DONE;
        return event_done(remote, entry, &reader, event);
    default:
        event->kind = REMOTE_FAILED;
        return event_failed(remote, entry, &reader, event);
    }
}

static int gone(struct remote *remote, struct remote_event *event)
{
    remote->is_gone = true;
    event->kind = REMOTE_GONE;
    event->number = 0;
    return 1;
}

static int bad(struct remote *remote, struct remote_event *event)
{
    *event = (struct remote_event){0};
    error_set(&event->error, "bad_worker", 0,
              "the kernel's worker said what it must not; it was given up");
    return gone(remote, event);
}

/* A frame that is there as a whole: 1, an event; 0: there is none. */
static int frame_take(struct remote *remote, struct remote_event *event)
{
    size_t there = remote->in_end - remote->in_at;
    struct proto_head head;

    if (there < sizeof(head))
        return 0;
    memcpy(&head, remote->in + remote->in_at, sizeof(head));
    if (!proto_head_is_sound(&head, true))
        return bad(remote, event);
    if (there < sizeof(head) + head.size)
        return 0;
    remote->frame = sizeof(head) + head.size;
    if (!event_read(remote, &head, remote->in + remote->in_at + sizeof(head), event))
        return bad(remote, event);
    return 1;
}

/* Gives what follows `end` a block of its own size, so that a small frame is never taken in a large one's. Returns the
 * block that it lay in; NULL: no memory, and nothing has changed. */
static uint8_t *room_renew(struct remote *remote, size_t end)
{
    size_t rest = remote->in_end - end, room = IN_LEAST;
    uint8_t *before = remote->in, *in;

    while (room < rest)
        room *= 2;
    in = malloc(room);
    if (in == NULL)
        return NULL;
    memcpy(in, before + end, rest);
    remote->in = in;
    remote->in_room = room;
    remote->in_at = 0;
    remote->in_end = rest;
    return before;
}

/* Lets go of the frame whose event was out. */
static void frame_drop(struct remote *remote)
{
    size_t rest = remote->in_end - remote->in_at - remote->frame;

    remote->in_at += remote->frame;
    remote->frame = 0;
    if (remote->in_room > IN_KEPT && rest > 0)
        free(room_renew(remote, remote->in_at));
    if (rest > 0)
        return;
    remote->in_at = 0;
    remote->in_end = 0;
    if (remote->in_room > IN_KEPT) {
        free(remote->in);
        remote->in = NULL;
        remote->in_room = 0;
    }
    if (remote->logs_room > ROOM_KEPT / sizeof(*remote->logs)) {
        free(remote->logs);
        remote->logs = NULL;
        remote->logs_room = 0;
    }
}

/* Room to read into: it doubles with what is there, whatever a head claims. */
static int room_make(struct remote *remote)
{
    size_t there = remote->in_end - remote->in_at;
    size_t room = remote->in_room != 0 ? 2 * remote->in_room : IN_LEAST;
    uint8_t *more;

    if (remote->in_end < remote->in_room)
        return 0;
    if (remote->in_at > 0 && there <= remote->in_room / 2) {
        memmove(remote->in, remote->in + remote->in_at, there);
        remote->in_at = 0;
        remote->in_end = there;
        return 0;
    }
    /* Of a large one its pages are moved, not its bytes. */
    more = realloc(remote->in, room);
    if (more == NULL)
        return -1;
    remote->in = more;
    remote->in_room = room;
    return 0;
}

/* So much of `most` is read at once: what is missing of a frame, and a little of the next. */
static size_t read_most(const struct remote *remote, size_t most)
{
    size_t there = remote->in_end - remote->in_at, frame = sizeof(struct proto_head);
    size_t room = remote->in_room - remote->in_end;
    struct proto_head head;

    if (there >= sizeof(head)) {
        memcpy(&head, remote->in + remote->in_at, sizeof(head));
        frame += head.size;
    }
    frame += IN_LEAST;
    if (most > frame - there)
        most = frame - there;
    return room < most ? room : most;
}

void *remote_take(struct remote *remote)
{
    void *taken = room_renew(remote, remote->in_at + remote->frame);

    if (taken != NULL)
        remote->frame = 0;
    return taken;
}

struct remote_kept *remote_keep(struct remote *remote)
{
    struct remote_kept *kept = malloc(sizeof(*kept));
    void *bytes = kept != NULL ? remote_take(remote) : NULL;

    if (bytes == NULL) {
        free(kept);
        return NULL;
    }
    *kept = (struct remote_kept){bytes, remote->logs};
    remote->logs = NULL;
    remote->logs_room = 0;
    return kept;
}

void remote_kept_free(struct remote_kept *kept)
{
    free(kept->bytes);
    free(kept->logs);
    free(kept);
}

int remote_next(struct remote *remote, struct remote_event *event)
{
    size_t read = 0;

    if (remote->is_gone)
        return 0;
    frame_drop(remote);
    outgoing_flush(&remote->out);
    for (;;) {
        ssize_t got;
        int taken = frame_take(remote, event);

        if (taken != 0)
            return taken;
        *event = (struct remote_event){0};
        if (read >= TURN_BYTES)
            return 0;
        if (room_make(remote) < 0) {
            error_set(&event->error, "no_memory", ENOMEM, "what a kernel's worker says");
            return gone(remote, event);
        }
        got = recv(remote->socket, remote->in + remote->in_end,
                   read_most(remote, TURN_BYTES - read), MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return 0;
        if (got <= 0) {
            error_set(&event->error, "kernel_gone", got < 0 ? errno : 0,
                      "the kernel's worker has ended, and its contexts with it");
            return gone(remote, event);
        }
        remote->in_end += (size_t)got;
        read += (size_t)got;
    }
}
