/* The engine: a child without rights, restarted whenever it ends, always with the same sockets.
 *
 * It is asked nothing, but has to be heard from time to time: one that hangs is killed. It asks (requests.c), and one that
 * asks for what it may not is killed. While answers wait for room in its socket, no further request of it is read: it can
 * only hold up itself. */
#pragma once

#include "box/ids.h"
#include "keeper/disks.h"
#include "keeper/loop.h"
#include "keeper/mounts.h"
#include "keeper/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct keeper;

/* One request, and what was under way meanwhile: boxes whose disks are opened, and mounts. */
#define PENDING_MAX (DISKS_OPENING_MAX + MOUNTS_CHANGING_MAX + 1)

/* How far the answer to KEEPER_HELLO has come. */
enum hello_stage { HELLO_NONE, HELLO_HOST, HELLO_NAMES, HELLO_BOXES, HELLO_DISKS, HELLO_DONE };

struct engine_child {
    /* as whom, and what it is given */
    uid_t uid;
    gid_t gid;
    bool drops_id; /* it has another id than the keeper */
    struct ids ids;
    int program;
    char program_path[4096];
    int config;  /* memfd; -1: no configuration */
    int headers; /* memfd: of the telemetry; -1: none */
    int tls;     /* memfd: see tls.h; -1: none */

    /* the one that runs */
    pid_t pid;                   /* 0: none */
    int pidfd, socket, requests; /* our ends of what request.h says */
    struct source ended, asks, hears;
    union keeper_request request; /* as much of it as has come */
    size_t request_used;
    uint64_t started_ns, restart_ns, backoff_ns;
    unsigned starts; /* since this program runs */
    bool beats;      /* it has come as far as to say that it lives */
    bool is_hung;    /* it was killed for it had not */
    bool is_first;   /* none has come as far since the keeper was started */
    uint64_t heard_ns, looked_ns;

    /* what it is to be told */
    bool is_greeted;
    bool has_new_tls;
    uint32_t hello_id;
    enum hello_stage stage;
    size_t stage_next;
    struct pending {
        union keeper_answer answer; /* that found no room */
        size_t size;
        uint64_t box;     /* one of whose sockets goes along; 0: none */
        uint32_t network; /* which (enum keeper_network); 0: its control socket */
        int made;         /* or one that is ours to close; -1 */
    } pending[PENDING_MAX];
    size_t pending_count;
};

/* Finds the program: the one beside ours. */
int engine_find(struct keeper *keeper, struct error *err);

/* Finds the program and the id, and gives the id what is the engine's. */
int engine_prepare(struct keeper *keeper, struct error *err);

/* Finds the id that it has, as the owner `had` of its directory had it. */
int engine_identify(struct keeper *keeper, uid_t had, struct error *err);

/* Has the program say whether it could start with what is read now, under its filter and in its view of the host,
 * and with nothing open that is anybody's. Waits for the answer; what is wrong is said in the engine's words. */
int engine_try(const struct keeper *keeper, struct error *err);

/* The same; all that it said lies in `said`: its warnings, as lines of a log, and as CODE: TEXT each fault. */
int engine_try_said(const struct keeper *keeper, char *said, size_t size, struct error *err);

/* Reads the configuration (again) into a sealed memfd, which every engine gets. */
int engine_config(struct keeper *keeper, struct error *err);

/* Reads the file that the configuration names for these, which must be its owner's alone. */
int engine_headers(struct keeper *keeper, struct error *err);

/* A copy that nobody can change, in place of the one that `into` was. */
int engine_seal(const void *text, size_t size, int *into, struct error *err);

/* There is another certificate than it was started with. */
void engine_tell_tls(struct keeper *keeper);

/* Something came of it. */
void engine_heard(struct keeper *keeper);

/* It is heard, or another one is on its way. */
bool engine_is_well(const struct keeper *keeper, uint64_t now_ns);

/* Between two beats of an engine, in milliseconds. */
unsigned engine_beat_ms(const struct keeper *keeper);

/* Starts it when it is time, and ends one that hangs; when to be called again, 0 for never. */
uint64_t engine_tick(struct keeper *keeper, uint64_t now_ns);

void engine_signal(struct keeper *keeper, int number);
void engine_close(struct keeper *keeper);

/* There is something to tell it: a box is gone, a name has changed. */
void engine_wake(struct keeper *keeper);

/* Answers; `box` (0: none) is the one whose control socket goes along. */
void engine_answer(struct keeper *keeper, const void *answer, size_t size, uint64_t box);

/* Answers with a socket of the box's network, which is open: enum keeper_network. */
void engine_answer_socket(struct keeper *keeper, uint32_t id, uint64_t box, uint32_t network);
/* The same with one that was made for this answer; taken. */
void engine_answer_made(struct keeper *keeper, uint32_t id, int made);

/* It did what no engine does: logged, and killed. */
void engine_punish(struct keeper *keeper, const char *why);

/* It closed one of its ends: so does one that ends, as it was told to. */
void engine_hung_up(struct keeper *keeper, const char *why);

/* ---- its start (engine_start.c) ---- */

/* Forks and executes it; its pid, or -1. `socket` and `requests` are its ends. */
pid_t engine_fork(struct keeper *keeper, int socket, int requests, struct error *err);

/* Its filter, on this process for good; -1 with errno. */
int engine_filter_load(void);
