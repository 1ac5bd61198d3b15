/* The table of cove.conf, as the engine sees it: see settings.h. A name that only the keeper looks at
 * is known here, so that a wrong one is found by both. */
#include "front/settings.h"

#include "base/conf.h"

#include <stddef.h>

#define AT(member) .offset = offsetof(struct settings, member)

static const struct conf_row table[] = {
    {"serve", "listen", CONF_OTHER, .fallback = NULL},
    {"serve", "socket", CONF_OTHER, .fallback = NULL},
    {"serve", "data", CONF_OTHER, .fallback = NULL},
    {"serve", "allow_level", CONF_OTHER, .fallback = NULL},
    {"serve", "hosts", CONF_LIST, AT(hosts), .fallback = ""},
    {"serve", "log_format", CONF_OTHER, .fallback = NULL},
    {"serve", "tls_certificate", CONF_TEXT, AT(tls_certificate)},
    {"serve", "tls_key", CONF_TEXT, AT(tls_key)},
    {"serve", "insecure_http", CONF_BOOL, AT(insecure_http), .fallback = "no"},
    {"boxes", "pool", CONF_COUNT, AT(pool), .fallback = "4", .high = 1024},
    {"boxes", "cpus", CONF_CPUS, AT(cpus), .fallback = "0"},
    {"boxes", "memory", CONF_SIZE, AT(memory), .fallback = "1G", .low = 8U << 20},
    {"boxes", "disk", CONF_SIZE, AT(disk), .fallback = "2G", .low = 1U << 20},
    {"boxes", "pids", CONF_COUNT, AT(pids), .fallback = "1024", .low = 1, .high = 4194304},
    {"boxes", "most_memory", CONF_SIZE, AT(most_memory)},
    {"boxes", "most_cpus", CONF_CPUS, AT(most_cpus)},
    {"boxes", "most_disk", CONF_SIZE, AT(most_disk)},
    {"boxes", "sandboxes", CONF_COUNT, AT(sandboxes), .fallback = "5000", .low = 1,
     .high = 1000000},
    {"boxes", "ports", CONF_COUNT, AT(ports), .fallback = "1024", .high = 1000000},
    {"boxes", "headroom_memory", CONF_SIZE, AT(headroom_memory), .fallback = "256M"},
    {"boxes", "headroom_disk", CONF_SIZE, AT(headroom_disk), .fallback = "512M"},
    {"boxes", "output_keep", CONF_DURATION, AT(output_keep_ms), .fallback = "24h"},
    {"boxes", "default_network", CONF_TEXT, AT(default_network), .fallback = "public"},
    {"kernels", "contexts", CONF_COUNT, AT(kernels_contexts), .fallback = "1000", .low = 1,
     .high = 30000},
    {"kernels", "memory", CONF_SIZE, AT(kernels_memory), .fallback = "1G", .low = 64U << 20},
    {"kernels", "idle", CONF_DURATION, AT(kernels_idle_ms), .fallback = "24h", .low = 1000},
    {"network", "port_domain", CONF_TEXT, AT(port_domain)},
    {"network", "resolvers", CONF_TEXT, AT(resolvers)},
    {"network", "proxy", CONF_TEXT, AT(proxy)},
    {"network", "proxy_names", CONF_BOOL, AT(proxy_names), .fallback = "no"},
    {"audit", "log", CONF_BOOL, AT(audit), .fallback = "yes"},
    {"audit", "size", CONF_SIZE, AT(audit_size), .fallback = "64M", .low = 64U << 10},
    {"audit", "age", CONF_DURATION, AT(audit_age_ms), .fallback = "0"},
    {"audit", "keep", CONF_COUNT, AT(audit_keep), .fallback = "10", .low = 1, .high = 1000},
    {"telemetry", "otlp_endpoint", CONF_TEXT, AT(otlp_endpoint)},
    {"telemetry", "otlp_headers_file", CONF_OTHER, .fallback = NULL},
    {"telemetry", "service_name", CONF_TEXT, AT(service_name), .fallback = "cove"},
    {"roots", NULL, CONF_OTHER, .fallback = NULL},
    {"mounts", NULL, CONF_OTHER, .fallback = NULL},
    {.section = NULL},
};

int settings_read(int fd, struct settings *settings, struct error *err)
{
    if (fd < 0)
        return conf_parse(table, "cove.conf", "", 0, settings, err);
    return conf_read(table, "cove.conf", fd, settings, err);
}

void settings_free(struct settings *settings)
{
    conf_free(table, settings);
}
