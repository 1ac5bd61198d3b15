/* What cove.conf says to the engine. The keeper reads the same file for its own part. */
#pragma once

#include "base/conf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct settings {
    char *port_domain;               /* NULL: sandboxes have no names of their own */
    char **hosts;                    /* what a request may call this host, beside loopback */
    char *tls_certificate, *tls_key; /* where they lie; the keeper reads them. NULL: no TLS */
    bool insecure_http;              /* the keeper's: checked where it binds */
    uint64_t pool, pids, most_pids, sandboxes, ports;
    uint64_t memory, disk, most_memory, most_disk;
    uint32_t cpus, most_cpus; /* thousandths; 0: all, or no bound */
    uint64_t headroom_memory, headroom_disk, disk_overcommit;
    uint64_t output_keep_ms;
    uint64_t kernels_contexts, kernels_memory; /* of each tenant */
    uint64_t kernels_idle_ms;
    char *default_network;   /* policy of a sandbox that names none, as of policy_new_text() */
    char *resolvers, *proxy; /* NULL: the host's; none */
    char *nat64; /* prefixes of this site's own, as of policy_nat64_parse(); NULL: none */
    char *private_networks; /* that policies may open, as of policy_bound_parse() */
    bool proxy_names;
    char *otlp_endpoint; /* NULL: no traces */
    char *service_name;
    bool audit;
    uint64_t audit_size, audit_age_ms, audit_keep;
};

/* From the text that `fd` has; -1: all by default. `path` names it in errors. "bad_config". Every room
 * takes what it takes: a reload must not end in an engine that cannot start. */
int settings_read(int fd, const char *path, struct settings *settings, struct error *err);
/* Tells all faults of the text, and not the first alone. */
void settings_faults(int fd, const char *path, conf_fault tell, void *arg);
/* Warns in the log where what is set does not fit the disk of the data directory, so that sandboxes would be refused. */
void settings_fit(const struct settings *settings, uint64_t disk_bytes, uint64_t disk_free);
void settings_free(struct settings *settings);
