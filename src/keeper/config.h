/* The keeper's part of cove.conf: where to listen, and names of roots and mounts, and whose they are. The
 * engine reads the rest from the same text. */
#pragma once

#include "base/conf.h"
#include "base/err.h"
#include "keeper/names.h"
#include "keeper/options.h"

/* A line of [roots] or [mounts]. */
struct config_name {
    struct names_request request; /* its kind, name, read_only and tenants */
    char *path;
};

/* A line of [root_tenants] or [mount_tenants]. */
struct config_tenants {
    uint32_t kind;
    char name[KEEPER_NAME_MAX];
    char tenants[KEEPER_TENANTS_SIZE];
};

struct config {
    char *listen, *socket, *socket_group, *data, *allow_level;
    int socket_mode; /* which of 0660, 0600, 0666 */
    char *otlp_headers_file;
    char *tls_certificate, *tls_key; /* both or none, absolute paths */
    int log_format;                  /* 1: JSON */
    bool insecure_http;
    uint64_t engine_memory; /* 0: by the host's */
    struct config_name names[NAMES_MAX];
    size_t names_count;
    struct config_tenants tenants[NAMES_MAX + 1];
    size_t tenants_count;
    char host_tenants[KEEPER_TENANTS_SIZE]; /* that may have the root "host" */
};

/* Reads the text that `fd` is open on; -1: there is none. What the command line said stays. The options
 * borrow from `config` from there on; on an error they are as they were, and `config` is empty. */
int config_read(int fd, const char *path, struct config *config, struct options *options,
                struct error *err);

/* Tells all faults of the text, and not the first alone. `config` is empty then. */
void config_faults(int fd, const char *path, struct config *config, conf_fault tell, void *arg);
