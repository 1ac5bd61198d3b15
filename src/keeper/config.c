/* The configuration: see config.h. */
#include "keeper/config.h"

#include "base/conf.h"
#include "base/tenancy.h"
#include "keeper/listen.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define READ_ONLY ":ro"
#define LEVEL_FULL "full"
#define LEVEL_NO_FRESH_PROC "no-fresh-proc"

static uint32_t kind_of(const char *section)
{
    return section[0] == 'r' ? KEEPER_ROOT : KEEPER_MOUNT;
}

/* [roots] and [mounts] */
static int name_take(void *target, const char *section, const char *name, const char *value,
                     struct error *err)
{
    struct config *config = target;
    uint32_t kind = kind_of(section);
    struct config_name *entry = &config->names[config->names_count];
    size_t length = strlen(value), mark = strlen(READ_ONLY);

    if (config->names_count == NAMES_MAX)
        return error_set(err, "bad_config", 0, "more than %d roots and mounts", NAMES_MAX);
    if (strlen(name) >= KEEPER_NAME_MAX || !names_is_name(name, KEEPER_NAME_MAX))
        return error_set(
            err, "bad_config", 0,
            "\"%.80s\" is no name: a-z, 0-9, \".\", \"_\" and \"-\", not first \".\" or "
            "\"-\"",
            name);
    if (value[0] != '/')
        return error_set(err, "bad_config", 0, "%s needs an absolute path", name);
    entry->request = (struct names_request){.verb = NAMES_ADD, .kind = kind};
    if (kind == KEEPER_MOUNT && length > mark && strcmp(value + length - mark, READ_ONLY) == 0) {
        entry->request.read_only = 1;
        length -= mark;
    }
    (void)snprintf(entry->request.name, sizeof(entry->request.name), "%s", name);
    entry->path = strndup(value, length);
    if (entry->path == NULL)
        return error_set(err, "no_memory", ENOMEM, "cannot read the configuration");
    config->names_count++;
    return 0;
}

/* [root_tenants] and [mount_tenants], without the blanks beside the commas of "a, b". */
static int tenants_take(void *target, const char *section, const char *name, const char *value,
                        struct error *err)
{
    struct config *config = target;
    uint32_t kind = kind_of(section);
    struct config_tenants *entry = &config->tenants[config->tenants_count];
    size_t length = 0;

    for (size_t i = 0; i < config->tenants_count; i++)
        if (config->tenants[i].kind == kind && strcmp(config->tenants[i].name, name) == 0)
            return error_set(err, "bad_config", 0, "\"%.80s\" is there twice", name);
    if (config->tenants_count == sizeof(config->tenants) / sizeof(config->tenants[0]))
        return error_set(err, "bad_config", 0, "more than %d roots and mounts", NAMES_MAX);
    *entry = (struct config_tenants){.kind = kind};
    (void)snprintf(entry->name, sizeof(entry->name), "%s", name);
    for (; *value != '\0' && length < sizeof(entry->tenants) - 1; value++) {
        const char *next = value + strspn(value, " \t");
        bool is_beside = length == 0 || entry->tenants[length - 1] == ',' || *next == ',' ||
                         *next == '\0';

        if (next == value || !is_beside) /* a blank within a name is refused below */
            entry->tenants[length++] = *value;
    }
    if (*value != '\0' || !names_are_tenants(entry->tenants, sizeof(entry->tenants)))
        return error_set(
            err, "bad_config", 0,
            "%s needs names of tenants between commas, %d characters at most, or \"*\" "
            "for all of them",
            name, KEEPER_TENANTS_SIZE - 1);
    config->tenants_count++;
    return 0;
}

static const char *const log_formats[] = {"text", "json", NULL};
static const char *const socket_modes[] = {"0660", "0600", "0666", NULL};

static int listen_check(const char *value, struct error *err)
{
    struct sockaddr_storage address;
    unsigned length;
    bool is_loopback;

    return strcmp(value, "none") == 0
               ? 0
               : listen_address_parse(value, &address, &length, &is_loopback, err);
}

static int level_check(const char *value, struct error *err)
{
    if (strcmp(value, LEVEL_FULL) == 0 || strcmp(value, LEVEL_NO_FRESH_PROC) == 0)
        return 0;
    return error_set(err, "bad_config", 0,
                     "%.80s is no level to settle for: " LEVEL_FULL " or " LEVEL_NO_FRESH_PROC,
                     value);
}

/* A keeper that takes over may run in another directory. */
static int absolute_check(const char *value, struct error *err)
{
    return value[0] == '/'
               ? 0
               : error_set(err, "bad_config", 0, "%.80s is not an absolute path", value);
}

static const struct conf_row rows[] = {
    {.section = "serve",
     .name = "listen",
     .type = CONF_TEXT,
     .offset = offsetof(struct config, listen),
     .check = listen_check},
    {.section = "serve",
     .name = "socket",
     .type = CONF_TEXT,
     .offset = offsetof(struct config, socket)},
    {.section = "serve",
     .name = "socket_group",
     .type = CONF_TEXT,
     .offset = offsetof(struct config, socket_group),
     .check = listen_group_check},
    {.section = "serve",
     .name = "socket_mode",
     .type = CONF_CHOICE,
     .offset = offsetof(struct config, socket_mode),
     .fallback = "0660",
     .choices = socket_modes},
    {.section = "serve",
     .name = "data",
     .type = CONF_TEXT,
     .offset = offsetof(struct config, data)},
    {.section = "serve",
     .name = "allow_level",
     .type = CONF_TEXT,
     .offset = offsetof(struct config, allow_level),
     .check = level_check},
    {.section = "serve",
     .name = "insecure_http",
     .type = CONF_BOOL,
     .offset = offsetof(struct config, insecure_http)},
    {.section = "serve",
     .name = "log_format",
     .type = CONF_CHOICE,
     .offset = offsetof(struct config, log_format),
     .fallback = "text",
     .choices = log_formats},
    {.section = "serve",
     .name = "tls_certificate",
     .type = CONF_TEXT,
     .offset = offsetof(struct config, tls_certificate),
     .check = absolute_check},
    {.section = "serve",
     .name = "tls_key",
     .type = CONF_TEXT,
     .offset = offsetof(struct config, tls_key),
     .check = absolute_check},
    {.section = "serve",
     .name = "engine_memory",
     .type = CONF_SIZE,
     .offset = offsetof(struct config, engine_memory),
     .low = 128U << 20},
    {.section = "serve", .name = "hosts", .type = CONF_OTHER},
    {.section = "boxes", .type = CONF_OTHER},
    {.section = "kernels", .type = CONF_OTHER},
    {.section = "network", .type = CONF_OTHER},
    {.section = "audit", .type = CONF_OTHER},
    {.section = "telemetry",
     .name = "otlp_headers_file",
     .type = CONF_TEXT,
     .offset = offsetof(struct config, otlp_headers_file)},
    {.section = "telemetry", .name = "otlp_endpoint", .type = CONF_OTHER},
    {.section = "telemetry", .name = "service_name", .type = CONF_OTHER},
    {.section = "roots", .type = CONF_ANY, .any = name_take},
    {.section = "mounts", .type = CONF_ANY, .any = name_take},
    {.section = "root_tenants", .type = CONF_ANY, .any = tenants_take},
    {.section = "mount_tenants", .type = CONF_ANY, .any = tenants_take},
    {0},
};

static void fill(const char **option, const char *value)
{
    if (*option == NULL)
        *option = value;
}

static void forget(struct config *config)
{
    conf_free(rows, config);
    while (config->names_count > 0)
        free(config->names[--config->names_count].path);
    config->tenants_count = 0;
    memcpy(config->host_tenants, TENANCY_ALL, sizeof(TENANCY_ALL));
}

static int check_tls(const char *path, const struct config *config, struct error *err)
{
    const char *certificate = config->tls_certificate, *key = config->tls_key;

    if ((certificate == NULL) == (key == NULL))
        return 0;
    return error_set(err, "bad_config", 0,
                     "%s: [serve] has %s and no %s: TLS needs both, each the path of a PEM file",
                     path, certificate != NULL ? "tls_certificate" : "tls_key",
                     certificate != NULL ? "tls_key" : "tls_certificate");
}

static char *tenants_of(struct config *config, const struct config_tenants *entry)
{
    if (entry->kind == KEEPER_ROOT && strcmp(entry->name, "host") == 0)
        return config->host_tenants;
    for (size_t i = 0; i < config->names_count; i++)
        if (config->names[i].request.kind == entry->kind &&
            strcmp(config->names[i].request.name, entry->name) == 0)
            return config->names[i].request.tenants;
    return NULL;
}

/* After all is read: whose a name is may stand before it. Without `tell` the first fault ends it. */
static int give_tenants(const char *path, struct config *config, conf_fault tell, void *arg,
                        struct error *err)
{
    int status = 0;

    for (size_t i = 0; i < config->tenants_count; i++) {
        const struct config_tenants *entry = &config->tenants[i];
        const char *kind = entry->kind == KEEPER_ROOT ? "root" : "mount";
        char *into = tenants_of(config, entry);

        if (into != NULL) {
            memcpy(into, entry->tenants, sizeof(entry->tenants));
            continue;
        }
        status = error_set(err, "bad_config", 0, "%s: [%s_tenants] names %s, which [%ss] does not",
                           path, kind, entry->name, kind);
        if (tell == NULL)
            break;
        tell(arg, err);
    }
    return status;
}

void config_faults(int fd, const char *path, struct config *config, conf_fault tell, void *arg)
{
    struct error fault;

    forget(config);
    if (conf_read_all(rows, path, fd, config, tell, arg, &fault) == 0) {
        if (check_tls(path, config, &fault) < 0)
            tell(arg, &fault);
        (void)give_tenants(path, config, tell, arg, &fault);
    }
    forget(config);
}

int config_read(int fd, const char *path, struct config *config, struct options *options,
                struct error *err)
{
    const struct options given = *options;

    forget(config);
    if (fd >= 0 &&
        (conf_read(rows, path, fd, config, err) < 0 || check_tls(path, config, err) < 0 ||
         give_tenants(path, config, NULL, NULL, err) < 0)) {
        forget(config);
        return -1;
    }
    fill(&options->listen, config->listen);
    fill(&options->listen, OPTIONS_LISTEN_DEFAULT);
    fill(&options->socket, config->socket);
    fill(&options->socket_group, config->socket_group);
    options->socket_mode = (const unsigned[]){0660, 0600, 0666}[config->socket_mode];
    fill(&options->data, config->data);
    fill(&options->allow_level, config->allow_level);
    fill(&options->allow_level, LEVEL_FULL);
    options->insecure_http |= config->insecure_http;
    options->has_tls = config->tls_certificate != NULL;
    options->log_json = options->log_format != NULL ? strcmp(options->log_format, "json") == 0
                                                    : config->log_format == 1;
    if (level_check(options->allow_level, err) == 0)
        return 0;
    *options = given; /* nothing borrowed from what is freed */
    forget(config);
    return -1;
}
