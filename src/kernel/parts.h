/* Declarations that the files of this room share. From below: thread.c (traps and limits), slot.c (memory), guest.h
 * (the machine code), image.c, calls.c (what the guest asks), context.c. */
#pragma once

#include "kernel/guest.h"
#include "kernel/kernel.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <wasm-rt.h>

#define KERNEL_WASM_PAGE 65536U
/* Behind the 4 GiB that an index can reach; scripts/split-wasm.py checks that no instruction adds more. */
#define KERNEL_SLOT_GUARD (64ULL << 20)
#define KERNEL_SLOT_BYTES ((4ULL << 30) + KERNEL_SLOT_GUARD)
#define KERNEL_POOL_MAX 256U /* slots of an image that are kept ready, unless it says less */

/* ---- thread.c ---- */

enum kernel_trap {
    TRAP_NONE,
    TRAP_MEMORY, /* beyond the guest's memory */
    TRAP_STACK,
    TRAP_CODE, /* an instruction that WebAssembly says traps */
    TRAP_CPU,
    TRAP_WALL,
    TRAP_STOP,
};

/* By which another thread ends what a context does: see thread_poke(). */
struct kernel_poke {
    pthread_mutex_t lock;
    struct thread *thread; /* that is in the guest */
    atomic_int trap;       /* TRAP_NONE: nobody asked */
};

/* An entry into a guest. */
struct kernel_entry {
    void (*work)(void *data);
    void *data;
    const uint8_t *slot;          /* a fault in here is the guest's */
    uint32_t *interrupt;          /* set when time is up, a moment before it is ended; NULL: not */
    struct kernel_poke *poke;     /* NULL: nobody can end it */
    uint64_t cpu_ns, wall_ns;     /* that are left; 0: no limit */
    uint64_t cpu_used, wall_used; /* out */
    enum kernel_trap interrupted; /* out: why `interrupt` was set, or TRAP_NONE */
};

/* Runs `work` on this thread's stack for guests. -1 only where the thread could not be prepared, or is
 * in a guest already. */
int thread_enter(struct kernel_entry *entry, enum kernel_trap *trap, struct error *err);

/* Around all that the host does for a guest while that is entered: in between nothing jumps. False: the
 * stack is too short for it; the guest has to be ended by thread_trap(). */
bool thread_host_begin(void);
void thread_host_end(void); /* jumps, if the limit was met meanwhile */
_Noreturn void thread_trap(enum kernel_trap trap);
/* Whether the guest's time is up: then the host, in the middle of a long work for it, stops. */
bool thread_is_due(void);
#define THREAD_PIECE (256U << 10) /* bytes to read, write or copy from look to look */

/* From any thread: what the guest does ends as at a limit; or what it does next. TRAP_NONE takes it back. */
void thread_poke(struct kernel_poke *poke, enum kernel_trap trap);

/* Gives back what a deep recursion touched of the stack. */
void thread_rest(void);

uint64_t thread_cpu_ns(void);

/* ---- slot.c ---- */

#define SLOT_PRIVATE_MAX 32U
struct slot_range {
    uint32_t at, size;
};

struct kernel_slot {
    struct kernel_slot *next;
    uint8_t *base;
    uint64_t opened; /* bytes from the base that can be touched */
    /* What was private when it was put back last, and how many faults the process had had. */
    bool private_known;
    uint32_t private_count;
    struct slot_range private[SLOT_PRIVATE_MAX];
    uint64_t faults;
    uint64_t grown; /* of these, what was not mapped of an image */
};

struct kernel_slot *slot_new(struct error *err);
void slot_free(struct kernel_slot *slot);
int slot_map(struct kernel_slot *slot, const struct kernel_image *image, struct error *err);
int slot_open(struct kernel_slot *slot, uint64_t size); /* as far as `size`; errno */
/* Puts the image's pages back; with -1 the slot is of no use any more. */
int slot_reset(struct kernel_slot *slot, const struct kernel_image *image);
/* Calls `each` with every range that may differ from the image, in order; until it returns not 0. */
int slot_changed(const struct kernel_slot *slot, const struct kernel_image *image,
                 int (*each)(void *data, uint64_t at, uint64_t size), void *data);
bool slot_can_scan(void);

/* ---- image.c ---- */

struct kernel_image {
    const struct kernel_guest *guest; /* of which it is */
    int fd;                           /* sealed memfd */
    const uint8_t *gold;              /* its pages */
    uint64_t size;
    uint32_t shared_at;
    uint8_t hash[32];
    bool hashed;
    bool configured; /* share.configure() was called before it was made */

    pthread_mutex_t lock;
    struct kernel_slot *ready; /* slots that equal the image */
    uint32_t ready_count, ready_max;
};

/* Copies this memory; pages of zeros take none. */
int image_new(const struct kernel_guest *guest, const uint8_t *memory, uint64_t size,
              uint32_t shared_at, struct kernel_image **out, struct error *err);
struct kernel_slot *image_slot_take(struct kernel_image *image, struct error *err);
/* Gives one back; it is put back to the image, unless `pristine` says that it is. */
void image_slot_give(struct kernel_image *image, struct kernel_slot *slot, bool pristine);
int image_hash(struct kernel_image *image, uint8_t hash[32]);

/* The file that holds an image: for the build, and what it embeds. */
struct image_head {
    char magic[8];
    uint32_t layout, shared_at;
    uint64_t size;
    uint32_t pages_count, unused; /* of 4096 bytes; their numbers follow, then, aligned, they */
    uint8_t hash[32];
};
#define IMAGE_MAGIC "COVEKIMG"
#define IMAGE_PAGE 4096U
int image_write(struct kernel_image *image, int fd, struct error *err);
int image_read(const struct kernel_guest *guest, const uint8_t *bytes, size_t size,
               struct kernel_image **out, struct error *err);

/* Boots a guest with scripts: the name and the text of each, NULL at the end. */
int image_boot(const struct kernel_guest *guest, const char *const *scripts,
               struct kernel_image **out, struct error *err);

/* ---- manifest.c ---- */

/* An absolute path without ".", "..", and double or last slashes; -1: it is none, or too long. */
int path_normal(const char *path, char normal[PATH_MAX]);
/* Whether this is of /proc, by whatever name it was opened; also where that cannot be told. */
bool path_is_proc(int fd);

struct grant {
    char *path; /* absolute, without . and .. */
    int dir;    /* the directory, or the one that the file lies in */
    char *name; /* of the file; NULL: it is a directory */
};

struct kernel_manifest {
    struct policy *policy;
    struct grant *reads, *writes;
    size_t reads_count, writes_count;
    char **tools;
    size_t tools_count;
    char *configuration; /* JSON for share.configure(); NULL: nothing to say */
    size_t configuration_size;
    uint32_t cpu_ms, wall_ms;
    uint64_t memory_bytes;
};

/* ---- paths.c ---- */

/* As open(), below `dir`: no link and no ".." leads out of it. EXDEV: it would, or into /proc. */
int path_open(int dir, const char *path, int flags, mode_t mode);
/* Whether a grant lets this be read, by whatever name: grants are compared by what they were opened as, for a link
 * leads into one by the text of another. `doubt`: what is said where it cannot be told. */
bool path_is_readable(const struct kernel_manifest *manifest, int dir, const char *name,
                      bool doubt);

/* ---- files.c: fs.*, by the manifest ---- */

struct files;
void files_freep(struct files **files);
int files_call(struct files **files, const struct kernel_manifest *manifest,
               const struct kernel_call *call, struct kernel_answer *answer, struct error *err);

/* ---- calls.c ---- */

struct pending {
    struct pending *next;
    struct kernel_call call;
    bool taken;
    char text[]; /* of the call */
};

void calls_drop(struct kernel_context *context);

/* ---- context.c ---- */

enum phase { PHASE_NEW, PHASE_IDLE, PHASE_WAITS, PHASE_LOST };

struct kernel_context {
    struct kernel_image *image;
    const struct kernel_manifest *manifest;
    struct kernel_slot *slot;
    const struct kernel_guest *guest;
    struct kernel_machine machine;
    enum phase phase;
    bool in_call; /* of the host */
    bool refused; /* the guest asked for more memory than it may have */
    struct kernel_poke poke;
    uint32_t shared_at, pages_max;

    uint64_t clock_base;                               /* monotonic time that is its zero */
    uint64_t cpu_limit, wall_limit, cpu_used, started; /* of the run */

    struct pending *calls, **calls_last;
    uint32_t calls_count, next_id;
    uint64_t calls_bytes; /* that the host keeps for them: no more than the memory of the guest */
    struct kernel_answer answer; /* for take() */
    kernel_answerer *answerer;
    void *answerer_data;
    struct files *files;

    struct kernel_result result;
    struct kernel_log *logs;
    size_t logs_room;
    char said[192]; /* why the host ended a run */
};

struct guest_shared *context_shared(const struct kernel_context *context);
/* The guest's bytes of this range, or NULL where it is not within its memory. */
uint8_t *context_memory(const struct kernel_context *context, uint32_t at, uint32_t size);
/* Copies into a block that the guest allocates, with a NUL; 0: it has no memory. Within an entry. */
uint32_t context_put(struct kernel_context *context, const void *data, uint32_t size);
/* In a slot that is given, without a manifest's settings: for what has to be filled by the caller. */
struct kernel_context *context_bare(struct kernel_image *image,
                                    const struct kernel_manifest *manifest,
                                    struct kernel_slot *slot, uint64_t size, struct error *err);
/* Gives back the room of a long log; the last run's is gone. */
void logs_rest(struct kernel_context *context);
/* Whether its state can be copied: no run is under way, and none was cut off. */
int context_is_whole(const struct kernel_context *context, struct error *err);
int context_seed(struct kernel_context *context, const uint8_t *entropy, struct error *err);

/* ---- snapshot.c ---- */

/* As kernel_snapshot(); one of more than `most` bytes is "too_large", before memory is taken for it. */
int snapshot_make(struct kernel_context *context, const uint8_t key[KERNEL_KEY_BYTES], size_t most,
                  uint8_t **bytes, size_t *size, struct error *err);
