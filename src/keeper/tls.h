/* The certificate and the key of the API: read here, for the key is the operator's and no engine may open it,
 * and looked at now and then, so that a renewed one needs nobody's word. What is in them only the engine
 * understands. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct keeper;

#define TLS_FILES 2 /* certificate, key */

struct tls_stamp {
    uint64_t device, inode, size;
    int64_t changed_ns, written_ns;
};

struct tls_watch {
    struct tls_stamp taken[TLS_FILES], seen[TLS_FILES]; /* when read; at the last look */
    bool has_failed;
    uint64_t next_ns, again_ns;
    struct error said; /* the last time, where it has failed */
};

/* Reads what the configuration names into a sealed memfd, which every engine gets; without such, there is
 * none. On an error the one before stays. */
int tls_read(struct keeper *keeper, struct error *err);

/* Reads them again when they have changed, and nothing changes them any more, and each minute where that
 * failed, which may have had another reason; when to be called again, 0 for never. */
uint64_t tls_tick(struct keeper *keeper, uint64_t now_ns);
