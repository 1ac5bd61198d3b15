/* Reading and writing frames of WebSocket (RFC 6455), as a server has to, and its handshake's answer.
 *
 * Functions over bytes that know no socket, so that a fuzzer can drive them. A message costs what has
 * arrived of it and never what was announced, into however many frames it is cut. What the RFC says
 * must not come ends the connection; no extension is known. */
#pragma once

#include "http/bytes.h"

#include <stdbool.h>
#include <stdint.h>

#define HTTP_CONTROL_MAX 125
/* A frame's header as a server writes it. */
#define HTTP_FRAME_HEAD_MAX 10

enum http_opcode {
    HTTP_OP_CONTINUED = 0,
    HTTP_OP_TEXT = 1,
    HTTP_OP_BINARY = 2,
    HTTP_OP_CLOSE = 8,
    HTTP_OP_PING = 9,
    HTTP_OP_PONG = 10,
};

enum http_close {
    HTTP_CLOSE_NORMAL = 1000,
    HTTP_CLOSE_AWAY = 1001,
    HTTP_CLOSE_PROTOCOL = 1002,
    HTTP_CLOSE_NO_CODE = 1005, /* never sent */
    HTTP_CLOSE_LOST = 1006,    /* never sent */
    HTTP_CLOSE_NOT_UTF8 = 1007,
    HTTP_CLOSE_POLICY = 1008,
    HTTP_CLOSE_TOO_LARGE = 1009,
    HTTP_CLOSE_FAILED = 1011,
    HTTP_CLOSE_LATER = 1013,
};

struct http_frames {
    size_t message_max;
    struct http_bytes message; /* what has come of it */
    unsigned char control[HTTP_CONTROL_MAX + 1];
    unsigned char head[14]; /* of the frame being read */
    unsigned head_have;
    bool is_within;  /* a frame, behind its head */
    bool is_final;   /* that frame */
    unsigned opcode; /* that frame's */
    unsigned kind;   /* of the message that is not whole: 0, TEXT or BINARY */
    bool is_given;   /* `message` was handed out */
    uint64_t left;   /* of the frame */
    uint64_t done;
};

enum http_frame {
    HTTP_FRAME_MORE,
    HTTP_FRAME_TEXT,
    HTTP_FRAME_BINARY,
    HTTP_FRAME_PING,
    HTTP_FRAME_PONG,
    HTTP_FRAME_CLOSE, /* `code` is what the client said, or 1005 */
    HTTP_FRAME_BAD,   /* `code` is what to close with; nothing may be read any more */
};

struct http_framed {
    const void *data; /* until the next call, or http_frames_forget(); followed by a NUL */
    size_t size;
    unsigned code;
};

/* Takes bytes from `*data`, which it moves on, up to the end of one frame. A zeroed struct with its limit
 * begins. */
enum http_frame http_frame_next(struct http_frames *frames, const char **data, size_t *size,
                                struct http_framed *out);
/* Lets go of the message that was handed out, if there is one. */
void http_frames_forget(struct http_frames *frames);
void http_frames_free(struct http_frames *frames);

/* The header of a frame that is a whole message; its size. */
size_t http_frame_head(unsigned char head[HTTP_FRAME_HEAD_MAX], unsigned opcode, uint64_t size);

/* A code that may stand in a closing frame. */
bool http_close_is_sane(unsigned code);

/* Whether it is 16 bytes in base64, as a client's key has to be. */
bool http_key_is_sane(const char *key);
/* What has to be answered to it, with its NUL. */
void http_key_answer(const char *key, char answer[29]);
