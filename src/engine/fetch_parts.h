/* Between fetch.c, which decides what is asked for and when, and fetch_curl.c, which says it and hears the answer. */
#pragma once

#include "engine/fetch.h"
#include "kernel/fetch/fetch.h"

#include <sys/queue.h>

/* HTTP/1.1 in a loop, by libcurl, which fetch_curl.c alone calls. */
struct transfers;
int transfers_load(struct transfers **out, struct error *err); /* in any thread: it reads files */
void transfers_begin(struct transfers *transfers, uv_loop_t *loop);
/* None is left. `closed` is called from the loop; of what was never begun at once. */
void transfers_close(struct transfers *transfers, void (*closed)(void *arg), void *arg);

/* One request and its answer, on a socket that is connected. */
struct transfer {
    TAILQ_ENTRY(transfer) news_link, resume_link;
    struct transfers *transfers;
    void *curl, *lines; /* libcurl's */
    int fd;             /* until libcurl has it */
    bool has_news, is_added, is_paused, resumes;
    unsigned parts; /* of the body, since `news` was told */
    void (*news)(struct transfer *transfer, void *arg);
    void *arg;
    uint64_t heard_ms;

    bool has_head; /* `head` is whole but for its end */
    bool is_empty; /* and says that no body follows */
    bool is_over;  /* nothing comes any more; failed, or well */
    bool has_failed;
    struct error err;
    struct meta_text head;
    bool is_coded;
    unsigned headers;
    size_t head_bytes;
    unsigned status;
    size_t used;
    uint8_t data[FETCH_READ_BYTES]; /* of the body, that nobody took yet */
    const struct fetch_request *request;
    char why[256]; /* of libcurl */
};

/* Takes the fd. Request and body are borrowed until it is freed; `body` NULL: it has none. `news` is called from the
 * loop, never from within these functions, and may free it. */
int transfer_new(struct transfers *transfers, const struct fetch_request *request, const void *body,
                 size_t body_size, int fd, void (*news)(struct transfer *transfer, void *arg),
                 void *arg, struct transfer **out, struct error *err);
void transfer_taken(struct transfer *transfer); /* `data` is empty now: more may come */
void transfer_free(struct transfer *transfer);

/* Sets its error by a code of libcurl's, and `why` in that one's words. */
void transfer_explain(struct transfer *transfer, int code, const char *why);
