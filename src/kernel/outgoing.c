/* Frames on their way to a worker: see outgoing.h. */
#include "kernel/outgoing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BLOCK_BYTES (256U << 10) /* of frames together */
#define ROOM_KEPT (1U << 20)     /* of a block that is empty */

static void block_free(struct outgoing *outgoing, struct outgoing_block *block)
{
    TAILQ_REMOVE(&outgoing->blocks, block, next);
    if (!block->is_taken && block->wire.data != NULL)
        explicit_bzero(block->wire.data, block->wire.room);
    wire_free(&block->wire);
    free(block);
}

void outgoing_open(struct outgoing *outgoing, int socket)
{
    *outgoing = (struct outgoing){.socket = socket};
    TAILQ_INIT(&outgoing->blocks);
}

void outgoing_free(struct outgoing *outgoing)
{
    while (!TAILQ_EMPTY(&outgoing->blocks))
        block_free(outgoing, TAILQ_FIRST(&outgoing->blocks));
    outgoing->waiting = 0;
}

void outgoing_flush(struct outgoing *outgoing)
{
    size_t left = OUTGOING_TURN;
    struct outgoing_block *block;

    while (left > 0 && (block = TAILQ_FIRST(&outgoing->blocks)) != NULL) {
        size_t size = block->wire.size - block->at;
        ssize_t sent;

        if (size == 0) {
            if (block == TAILQ_LAST(&outgoing->blocks, outgoing_blocks))
                return;
            block_free(outgoing, block);
            continue;
        }
        sent = send(outgoing->socket, block->wire.data + block->at, size < left ? size : left,
                    MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            if (errno != EAGAIN)
                outgoing_free(outgoing);
            return;
        }
        block->at += (size_t)sent;
        outgoing->waiting -= (size_t)sent;
        left -= (size_t)sent;
    }
}

/* Bytes that are sent give their room to those that follow. */
void outgoing_begin(struct outgoing *outgoing, enum proto_kind kind, uint64_t number)
{
    struct outgoing_block *block = TAILQ_LAST(&outgoing->blocks, outgoing_blocks);

    if (block != NULL && !block->is_taken && block->at == block->wire.size &&
        block->wire.room <= ROOM_KEPT)
        block->wire.size = block->at = 0;
    if (block == NULL || block->is_taken || block->wire.size >= BLOCK_BYTES) {
        block = calloc(1, sizeof(*block));
        if (block != NULL)
            TAILQ_INSERT_TAIL(&outgoing->blocks, block, next);
    }
    outgoing->no_room = (struct wire){.failed = true};
    outgoing->frame = block != NULL ? &block->wire : &outgoing->no_room;
    wire_begin(outgoing->frame, kind, number);
}

int outgoing_send(struct outgoing *outgoing, struct error *err)
{
    struct wire *frame = outgoing->frame;
    struct proto_head head;

    if (frame->failed) {
        wire_undo(frame);
        return error_set(err, "no_memory", ENOMEM, "a request to a kernel's worker");
    }
    memcpy(&head, frame->data + frame->begin, sizeof(head));
    if (head.size > PROTO_BODY_MAX) {
        wire_undo(frame);
        return error_set(err, "too_large", 0,
                         "this is too large for a kernel's worker: at most %u bytes",
                         PROTO_BODY_MAX);
    }
    outgoing->waiting += frame->size - frame->begin;
    outgoing_flush(outgoing);
    return 0;
}

struct outgoing_block *outgoing_block_new(uint8_t *bytes, size_t size)
{
    struct outgoing_block *block = calloc(1, sizeof(*block));

    if (block != NULL) {
        block->wire = (struct wire){.data = bytes, .size = size, .room = size};
        block->is_taken = true;
    }
    return block;
}

void outgoing_add(struct outgoing *outgoing, struct outgoing_block *block)
{
    TAILQ_INSERT_TAIL(&outgoing->blocks, block, next);
    outgoing->waiting += block->wire.size;
}
