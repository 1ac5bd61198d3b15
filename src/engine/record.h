/* What is kept of a sandbox, and its text in the store.
 *
 * A record is made from a client's wish (record_new, which checks it) or read from the store
 * (record_parse, which believes nothing: a disk may be damaged). It never changes in place: a change
 * is a copy that is committed and then takes its place. */
#pragma once

#include "engine/engine.h"

#define RECORD_TEXTS_BYTES (256U << 10) /* labels, and again env: all of them together */
#define RECORD_RULES_BYTES (128U << 10) /* of its network, all together */
#define RECORD_LABEL_MAX 1024
#define RECORD_PATH_MAX 4096
#define RECORD_USER_MAX 128

struct record {
    char id[KEEPER_ID_LENGTH + 4];
    char tenant[64];
    char disk[KEEPER_ID_LENGTH + 4]; /* of a persistent one */
    char root[KEEPER_NAME_MAX];
    char *name, *cwd, *user, *hostname; /* or NULL */
    char **labels, **env;               /* never NULL */
    enum box_privileges privileges;
    enum keeper_disk disk_kind;
    struct box_limits limits;
    struct keeper_mount *mounts;
    size_t mounts_count;
    /* Directories may be mounted to be written while it runs. */
    bool mountable;
    struct policy *policy;     /* never NULL */
    struct net_limits network; /* 0: as usual */
    struct record_port {
        uint16_t port, host_port; /* the latter is free on this host, as far as is known */
        bool is_public;
    } ports[ENGINE_PORTS_MAX]; /* in order */
    size_t ports_count;
    uint64_t deadline_ms, idle_ms;
    enum sandbox_then then;
    enum sandbox_state state;
    char reason[32];
    struct error error;
    uint64_t created_ms;
    uint64_t updated_ms; /* rises with each that is committed */
    uint64_t serial;     /* the order of creation */
    uint64_t tokens;     /* the generation of its tokens: those of another are void */
    uint64_t revision;   /* of the store; 0: not committed yet. Not in the text */
};

/* A sandbox to be, without id; "bad_request" with the field's name, or "bad_policy". `network` is the policy of
 * one that names none; NULL: none at all. */
int record_new(const struct sandbox_spec *spec, const char *tenant,
               const struct box_limits *defaults, const struct box_limits *most,
               const struct policy *network, struct record **out, struct error *err);
/* Fills in what a limit that is 0 means, of an engine's defaults: "bad_config" where it means nothing. */
int record_limits(struct box_limits *defaults, const struct box_limits *most, struct error *err);
/* A list that ends with NULL, and its texts; NULL is none. */
void record_texts_free(char **texts);
/* The policy "none". */
struct policy *record_no_network(void);
/* Of a root, a tenant or a mount: shorter than `max`. */
bool record_is_name(const char *name, size_t max);
/* What must hold of every record, a wish or one of the store: "bad_request". */
int record_check(const struct record *record, struct error *err);
struct record *record_copy(const struct record *record);
void record_free(struct record *record);
void record_freep(struct record **record);

/* NULL and "bad_request" if a text of it is not UTF-8. */
char *record_format(const struct record *record, struct error *err);
int record_parse(const char *text, size_t size, struct record **out, struct error *err);

int record_set_network(struct record *record, const struct sandbox_network *wish,
                       struct error *err);
/* Declares or removes it; "too_many_ports". */
int record_set_port(struct record *record, uint16_t port, uint16_t host_port, int is_public,
                    struct error *err);
void record_remove_port(struct record *record, uint16_t port);
/* As in a record; "bad_request". */
int record_check_mount(const struct keeper_mount *mount, struct error *err);
/* "bad_request" where there are too many. */
int record_add_mount(struct record *record, const struct keeper_mount *mount, struct error *err);
void record_remove_mount(struct record *record, const char *target);
int record_set_labels(struct record *record, const char *const *labels, struct error *err);
/* All that a deleted sandbox has no use for any more. */
void record_clear(struct record *record);
/* Of this sandbox alone, so that nobody learns from it how much others do; 0: not committed yet. */
uint64_t record_revision(const struct record *record);
void record_look(const struct record *record, struct sandbox_view *view);
