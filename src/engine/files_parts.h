/* What the files of files*.c and quiet.c share; nobody else includes it. */
#pragma once

#include "box/tool/tool.h"
#include "engine/files.h"
#include "engine/parts.h"
#include "net/turns.h"

#include <uv.h>

struct files_row {
    const char *name;
    bool takes_input;
    bool has_bytes; /* what it says must be read exactly: bytes stand between its frames */
    bool only_looks;
};
extern const struct files_row files_rows[FILES_VERBS];

#define FILES_BUFFER_BYTES ((size_t)2 * TOOL_FRAME_MAX)

/* A call. */
struct files {
    struct engine *engine; /* NULL: it has ended before us */
    struct files *next, *previous;
    char sandbox[KEEPER_ID_LENGTH + 4];
    enum files_verb verb;
    const char **argv;
    char *user;
    bool is_grep;
    uint64_t timeout_ms;
    struct files_calls calls;
    void *arg;
    /* Takes what comes in the tenant's turns. */
    struct task task;

    struct tool *tool;
    struct watch *output, *input;
    bool is_asking, is_closed; /* the queue of the sandbox has a verb of ours */
    bool has_started, has_ended, is_at_end, wants_news, is_over, is_put_off;
    struct error failure; /* why nothing, or nothing more, comes; "" as long as nobody knows */

    int ours[2];   /* bytes that came and are not taken */
    int frames[2]; /* what stands around them, on its way into `buffer` */
    bool has_begun, is_sized;
    unsigned turn;       /* items that were taken since others had their turn */
    uint64_t bytes_left; /* that stand bare, behind a frame */
    size_t start, used;  /* of `buffer` */

    int feed[2]; /* what goes */
    size_t in_feed;
    char *rest; /* what `feed` had no room for */
    size_t rest_at, rest_used, rest_room;
    bool is_broken, is_finished, wants_room;
    struct alarm patience; /* with a tool that tidies up */

    /* files_room.c */
    bool is_lent;             /* to who came by a token or a URL */
    bool is_left, is_evicted; /* nobody reads it now; its place is another's */
    uint64_t idle_ns; /* since when its client takes or gives nothing; 0: it is not up to him */
    int untaken;      /* of the bytes that were given away, when that was looked at last */
    unsigned wide;    /* pipes of more than the usual size */

    char buffer[FILES_BUFFER_BYTES];
};

/* One of the tool's pipes, as long as we have it. */
struct watch {
    uv_poll_t poll; /* first */
    struct files *files;
    int fd;
    bool is_set;
};

#define FILES_TURN_BYTES (512U << 10) /* moved at once: others want their turn */

/* ---- files.c ---- */
void files_watch_close(struct watch **watch);
void files_watch_stop(struct watch *watch);
void files_watch_set(struct watch *watch, int events, uv_poll_cb ready);
int files_open_pipe(struct files *files, int pipe[2], bool is_large); /* unless it is open */
void files_fail_tool(struct files *files, const char *what);          /* the tool, NAME, did that */
void files_put_off(struct files *files); /* what ends it, until the loop turns */

/* ---- files_input.c ---- */
void files_pump(struct files *files); /* the tool may take more */

/* ---- files_argv.c: as a block to be freed ---- */
int files_argv(const struct files_spec *spec, const char *beneath, const char ***out,
               struct error *err);

/* ---- files_room.c: places for tools, and room in pipes ---- */

#define FILES_LENT_MAX (PROCS_TOOLS_MAX / 4) /* that who holds tokens has of a sandbox's places */

/* Before a tool of this call is begun: where no place is left, one that its client does not use goes. */
int files_room_make(struct files *files, struct procs *procs, struct error *err);
void files_room_taken(struct files *files); /* its client has something to take, or may give */
void files_room_waits(struct files *files); /* it is not his turn */
/* Gives it the size that moves much at once, if its tenant has not enough of those. */
void files_room_widen(struct files *files, int pipe);
/* files.c: ends it, and tells who has it. */
void files_evict(struct files *files, const struct error *err);

/* ---- files_parse.c: frames, as whoever took over a box may have made them ---- */

/* A payload of `size` bytes. -1: no tool of ours says that. FILES_BEGIN: `entry` and `begin`. */
int files_parse(uint32_t type, const char *payload, size_t size, struct files_item *item);
/* How large a payload of this type may be; 0: it is none that may come. */
size_t files_payload_max(enum files_verb verb, uint32_t type);

/* ---- quiet.c ---- */

/* The processes of a sandbox for a tool, also of one that is stopped and has a disk; until quiet_left(),
 * which each of these calls is followed by, it keeps the box that it got for it. */
void quiet_procs(struct sandbox *sandbox, engine_procs_done done, void *arg);
void quiet_left(struct sandbox *sandbox);
