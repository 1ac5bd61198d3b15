/* What the engine and a worker say to each other: frames on a stream, each a head and a body of numbers and
 * texts in a fixed order. Both ends are of one build, on one machine.
 *
 * Whoever reads takes nothing for granted: sizes are bounded before memory is taken for them, each value is
 * checked where it is read, and after the first that is wrong nothing more is read. */
#pragma once

#include "kernel/kernel.h"

#define PROTO_VERSION 3U
#define PROTO_BODY_MAX (65U << 20) /* of a frame */
#define PROTO_RESULT_MAX \
    (64U << 20) /* bytes of all texts of a result, of a call, or of a snapshot */
#define PROTO_OP_MAX 64U
#define PROTO_CALLS_MAX 1024U /* of a run, in flight */

enum proto_kind {
    /* To the worker; the number is the context's or the run's. */
    PROTO_HELLO = 1,    /* version, key, memory_bytes, result_bytes; once, first */
    PROTO_NEW,          /* grants */
    PROTO_FORK,         /* of the copy; u64: the context */
    PROTO_RESET,        /* */
    PROTO_DROP,         /* */
    PROTO_SNAPSHOT,     /* */
    PROTO_RESTORE,      /* u32: how many bytes, grants, these bytes */
    PROTO_RUN,          /* u64: the context or 0, source, with 0 grants */
    PROTO_STOP,         /* u32: an enum kernel_end */
    PROTO_SETTLE,       /* u32: the call, meta, u32: whether there are bytes, bytes */
    PROTO_SETTLE_ERROR, /* u32: the call, code, message */
    /* From it. */
    PROTO_READY = 64,
    PROTO_MADE,
    PROTO_BYTES,  /* of a snapshot */
    PROTO_CALL,   /* u32: the call, op, meta, bytes */
    PROTO_CANCEL, /* op, meta */
    PROTO_DONE,   /* result */
    PROTO_FAILED, /* u32: which request, u32: errno, code, text */
};

struct proto_head {
    uint32_t size; /* of the body */
    uint32_t kind;
    uint64_t number;
};

/* ---- writing ---- */

/* Frames, one behind the other. Where there is no memory `failed` is set and stays so. */
struct wire {
    uint8_t *data;
    size_t size, room;
    size_t begin; /* of the frame that is being written */
    bool failed;
};

void wire_free(struct wire *wire);
void wire_begin(struct wire *wire, enum proto_kind kind, uint64_t number);
void wire_end(struct wire *wire);
/* The same of one of which so many bytes follow elsewhere. */
void wire_end_before(struct wire *wire, size_t more);
/* Takes back the frame that was begun. */
void wire_undo(struct wire *wire);
void wire_u32(struct wire *wire, uint32_t value);
void wire_u64(struct wire *wire, uint64_t value);
void wire_raw(struct wire *wire, const void *data, size_t size);
void wire_bytes(struct wire *wire, const void *data, size_t size);
void wire_string(struct wire *wire, const char *text);
void wire_grants(struct wire *wire, const struct kernel_grants *grants); /* without paths */
void wire_source(struct wire *wire, const struct kernel_source *source);
void wire_call(struct wire *wire, const struct kernel_call *call);
/* Bytes of all its texts that go into a frame. */
size_t wire_result_size(const struct kernel_result *result);
/* False, and nothing of it: its texts are more than PROTO_RESULT_MAX. */
bool wire_result(struct wire *wire, const struct kernel_result *result);
void wire_error(struct wire *wire, const struct error *error);

/* ---- reading ---- */

/* Of one body, which is borrowed. After what is wrong all values are 0 or empty. */
struct wire_reader {
    const uint8_t *at, *end;
    bool bad;
};

struct wire_reader wire_reader(const void *data, size_t size);
uint32_t wire_read_u32(struct wire_reader *reader, uint32_t most);
uint64_t wire_read_u64(struct wire_reader *reader);
const uint8_t *wire_read_raw(struct wire_reader *reader, size_t size);
struct kernel_text wire_read_bytes(struct wire_reader *reader, size_t most);
/* Ends with a NUL, and has none before. */
const char *wire_read_string(struct wire_reader *reader, size_t most);
/* Lists are of `room`, which has to be freed. */
void wire_read_grants(struct wire_reader *reader, struct kernel_grants *grants, const char ***room);
void wire_read_source(struct wire_reader *reader, struct kernel_source *source);
void wire_read_call(struct wire_reader *reader, struct kernel_call *call);
/* The logs are of `*logs`, which grows and has to be freed. */
void wire_read_result(struct wire_reader *reader, struct kernel_result *result,
                      struct kernel_log **logs, size_t *logs_room);
void wire_read_error(struct wire_reader *reader, struct error *error);
/* Whether all was right, and nothing is left. */
bool wire_is_done(const struct wire_reader *reader);

/* Whether a body of this size can be of this kind at all. */
bool proto_head_is_sound(const struct proto_head *head, bool from_worker);
