/* Frames on their way to a worker, which wait where its socket does not take them. They are not moved, however many
 * there are. Some may have the key in them: their memory is cleared. */
#pragma once

#include "base/err.h"
#include "kernel/proto.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define OUTGOING_TURN (1U << 20) /* bytes that are sent before others have their turn */

/* Frames that are to be sent, or a part of one. */
struct outgoing_block {
    TAILQ_ENTRY(outgoing_block) next;
    struct wire wire;
    size_t at; /* sent */
    bool is_taken;
};

struct outgoing {
    int socket; /* borrowed */
    TAILQ_HEAD(outgoing_blocks, outgoing_block) blocks;
    size_t waiting; /* bytes in these */
    /* What outgoing_begin() began, to be written to. */
    struct wire *frame;
    /* In its place, where there is no memory for one. */
    struct wire no_room;
};

void outgoing_open(struct outgoing *outgoing, int socket);
void outgoing_free(struct outgoing *outgoing);

/* Begins a frame behind all others: `frame` is what it is written to. */
void outgoing_begin(struct outgoing *outgoing, enum proto_kind kind, uint64_t number);
/* Sends it, when it has its end; with -1 it is taken back. */
int outgoing_send(struct outgoing *outgoing, struct error *err);

/* Bytes that are sent from where they lie, behind the frame that was sent last; until outgoing_add() they and the block
 * are the caller's, to be freed. NULL: no memory. */
struct outgoing_block *outgoing_block_new(uint8_t *bytes, size_t size);
void outgoing_add(struct outgoing *outgoing, struct outgoing_block *block);

/* Sends as much as the socket takes now, up to a bound. It does not say that nobody hears it any more: whoever reads
 * finds out. */
void outgoing_flush(struct outgoing *outgoing);
