/* What the files kernels*.c of this room share: how a body says what a kernel may, and how a result looks. */
#pragma once

#include "engine/kernels.h"
#include "front/native/out.h"
#include "front/native/read.h"

#define KERNELS_TOOLS_MAX KERNEL_GRANTS_MAX

/* What bodies, the header of a restore, and messages say; their texts are of an owner. */
struct kernel_body {
    /* a manifest */
    const char *name;
    const char *const *labels, *const *hosts, *const *env, *const *tools;
    const char *const *read_paths, *const *write_paths;
    uint64_t cpu_ms, wall_ms, memory_bytes;
    /* a run */
    int language;
    struct read_bytes code;
    const char *filename;
    bool module;
    /* a message */
    int type;
    const char *id, *context, *message;
    uint64_t call;
};

/* Tables for read_object(), into a struct kernel_body. */
extern const struct read_field kernel_fields_make[]; /* name, labels, manifest */
extern const struct read_field
    kernel_fields_once[]; /* manifest, run; no tools, which nobody would answer */
extern const struct read_field kernel_fields_run[];     /* run, with tighter limits */
extern const struct read_field kernel_fields_message[]; /* of the WebSocket */

enum kernel_message {
    MESSAGE_RUN,
    MESSAGE_ERROR,
    MESSAGE_STOP
}; /* and "result", see kernels_connect.c */

void kernel_body_spec(const struct kernel_body *body, struct kernel_spec *spec);
/* `grants` outlives the spec. With a context nothing of a manifest may be said ("bad_request"). */
int kernel_body_run(const struct kernel_body *body, const char *context,
                    struct kernel_grants *grants, struct kernel_run_spec *spec, struct error *err);

void print_kernel(struct out *out, const char *key, const struct kernel_view *view);
void print_kernel_result(struct out *out, const char *key, const struct kernel_result *result);
/* JSON that somebody else made. False: it is none, and null is printed. */
bool print_json(struct out *out, const char *key, const char *json, size_t size);
