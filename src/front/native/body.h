/* What the bodies of requests say, as the engine's structs.
 *
 * Texts belong to `owner`: they live until read_free(). Ranges are checked here and nowhere else; what
 * only the engine can know (is there such a root, a user) is not. */
#pragma once

#include "engine/engine.h"
#include "front/native/read.h"

#define BODY_TIME_MAX_MS 315576000000ULL /* ten years: longer than that means "none" */
#define BODY_OUTPUT_DEFAULT (1U << 20)
#define BODY_OUTPUT_MAX (64U << 20)
#define BODY_TIMEOUT_DEFAULT_MS 300000

/* Names that begin with it are refused: they are ours, for sandboxes that are shown without one. */
#define BODY_OUR_NAMES "cove:"

struct body_sandbox {
    struct sandbox_spec spec;
    struct keeper_mount mounts[KEEPER_MOUNTS_MAX];
    struct sandbox_port_wish ports[ENGINE_PORTS_MAX];
    struct read_owner owner;
};
int body_sandbox(struct read_body from, uint64_t now_ms, struct body_sandbox *out,
                 struct error *err);

struct body_change {
    struct sandbox_change change;
    struct sandbox_network network;
    struct read_owner owner;
};
int body_change(struct read_body from, uint64_t now_ms, struct body_change *out, struct error *err);

struct body_process {
    struct proc_spec spec;
    struct read_bytes stdin_data;
    bool open_stdin; /* it stays open after stdin_data */
    bool start;      /* a sandbox that is stopped */
    bool detach;     /* the client's going away does not kill */
    uint64_t output_limit;
    struct read_owner owner;
};
/* `is_exec`: run and wait, where nobody could write to an open stdin. */
int body_process(struct read_body from, bool is_exec, struct body_process *out, struct error *err);

int body_signal(struct read_body from, int *signal_number, struct error *err);

struct body_key {
    const char *tenant; /* NULL: the caller's own */
    const char *label;
    unsigned scopes;
    struct read_owner owner;
};
int body_key(struct read_body from, struct body_key *out, struct error *err);

struct body_token {
    struct engine_token_spec spec;
    struct read_owner owner;
};
int body_token(struct read_body from, struct body_token *out, struct error *err);
/* Of a signed URL: `method` and `path` are there. */
int body_url(struct read_body from, struct body_token *out, struct error *err);

int body_quota(struct read_body from, struct engine_quota *quota, struct error *err);

/* Of a request that takes none: no bytes, or {}. */
int body_none(struct read_body from, struct error *err);

/* `is_public` -1: not said. */
int body_mount(struct read_body from, struct keeper_mount *mount, struct error *err);
int body_port(struct read_body from, uint16_t *port, int *is_public, struct error *err);

/* Words for the bits of enum engine_verb, in their order; NULL after the last. */
extern const char *const body_verbs[];

/* ---- what paths, queries and headers say ---- */

bool body_is_tenant(const char *name); /* 1 to 63 of [a-z0-9._-], not beginning with "." or "-" */

/* "TERM", "SIGTERM" or a number; 0 if it is no signal that can be sent. */
int body_signal_number(const char *name);
