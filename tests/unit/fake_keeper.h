/* The other end of the engine's socket, for tests that attack the engine from there: a keeper that
 * refuses, is silent, vanishes or lies, and boxes whose init does. It runs in the engine's own loop, so
 * that every interleaving is one that the test has chosen. */
#pragma once

#include "keeper/request.h"

#include <stdbool.h>
#include <uv.h>

enum fake_mood { FAKE_STANDS, FAKE_NEVER_STANDS, FAKE_FAILS, FAKE_DIES_STANDING };

enum fake_exec {
    FAKE_ENDS,       /* a command says what it has to, and ends */
    FAKE_RUNS,       /* it never ends */
    FAKE_NEVER_RUNS, /* nobody answers who asks for it */
};

enum fake_lie {
    FAKE_TRUTH,
    FAKE_SHORT,      /* a byte is missing */
    FAKE_LONG,       /* or one too many */
    FAKE_TYPE,       /* a type that is none */
    FAKE_OTHER_TYPE, /* an answer to something else */
    FAKE_ID,         /* an id that nobody asked with */
    FAKE_NO_FD,
    FAKE_FDS,  /* one more than there should be */
    FAKE_TEXT, /* a text that does not end */
    FAKE_LIES,
};

#define FAKE_HELD 16

struct fake_box {
    struct fake_box *next;
    struct fake *fake;
    uint64_t id;
    char owner[KEEPER_ID_LENGTH + 4], disk[KEEPER_ID_LENGTH + 4];
    char root[KEEPER_NAME_MAX];
    int init, control; /* the test's end, and a duplicate of the engine's */
    uv_poll_t *poll;
    unsigned execs;
    bool is_open;      /* its network */
    unsigned networks; /* requests for it */
    uint64_t used;     /* of its disk */
    uint64_t most;     /* that this may grow by, as was asked last */
};

struct fake {
    uv_loop_t *loop;
    int socket;
    uv_poll_t *poll;
    struct fake_box *boxes;
    uint64_t handles;
    char dropped[64][KEEPER_ID_LENGTH + 4]; /* disks, the first of them */
    char disks[8][KEEPER_ID_LENGTH + 4];    /* that it says there are */
    unsigned counts[16];                    /* requests by type */
    unsigned ended, dropped_count;

    enum fake_mood mood;
    unsigned refuse; /* the next so many makes */
    bool refuse_networks;
    /* Code of the refusal of mounts; NULL: they are done. */
    const char *refuse_mounts;
    /* It is an ordinary user's. */
    bool is_user;
    uint32_t vanish_at; /* a request of this type is its end */
    uint32_t silent_at; /* is not answered */
    bool holds;         /* makes wait until fake_release(); the first of them is first */
    struct keeper_make *held[FAKE_HELD];
    unsigned held_count;
    uint32_t ahead; /* versions of the init protocol that this keeper is later than its boxes */
    uint32_t lie_at;
    enum fake_lie lie;
    uint32_t oom_kills;              /* in reports */
    uint64_t free_bytes, left_bytes; /* where disks lie */
    bool holds_no_disk;
    enum fake_exec exec;
    int exit_status; /* of commands */
};

/* Tells the engine of a name, unasked: that it is there for these tenants. */
void fake_names(struct fake *fake, enum keeper_kind kind, const char *name, const char *tenants);
/* Serves the first make that it holds. */
void fake_release(struct fake *fake);
/* The engine's end of a new socket; boxes stay what they are. */
int fake_connect(struct fake *fake, uv_loop_t *loop);
void fake_vanish(struct fake *fake);
struct fake_box *fake_box_of(struct fake *fake, const char *owner);
size_t fake_boxes(const struct fake *fake);
/* Its init ends without having been told to. */
void fake_box_dies(struct fake_box *box);
/* Its init says `count` packets that are none. */
void fake_box_raves(struct fake_box *box, unsigned count);
void fake_stands(struct fake_box *box);
void fake_end(struct fake *fake);
