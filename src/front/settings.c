/* The table of cove.conf, as the engine sees it: see settings.h. A name that only the keeper looks at
 * is known here, so that a wrong one is found by both. */
#include "front/settings.h"

#include "base/conf.h"
#include "base/fd.h"
#include "base/log.h"
#include "net/net.h"
#include "policy/policy.h"

#include <stddef.h>
#include <string.h>

#define AT(member) .offset = offsetof(struct settings, member)

#define BYTES_MOST (1ULL << 50) /* of a sandbox: see engine/record.c */

static int check_nat64(const char *value, struct error *err)
{
    struct policy_nat64 ignored;

    return policy_nat64_parse(value, &ignored, err);
}

static int check_private(const char *value, struct error *err)
{
    struct policy_bound ignored;

    return policy_bound_parse(value, &ignored, err);
}

static int network_check(const char *value, struct error *err)
{
    _cleanup_(policy_freep) struct policy *policy = NULL;

    return policy_new_text(value, &policy, err);
}

static const struct conf_row table[] = {
    {"serve", "listen", CONF_OTHER, .fallback = NULL},
    {"serve", "socket", CONF_OTHER, .fallback = NULL},
    {"serve", "socket_group", CONF_OTHER, .fallback = NULL},
    {"serve", "socket_mode", CONF_OTHER, .fallback = NULL},
    {"serve", "data", CONF_OTHER, .fallback = NULL},
    {"serve", "allow_level", CONF_OTHER, .fallback = NULL},
    {"serve", "hosts", CONF_LIST, AT(hosts), .fallback = ""},
    {"serve", "log_format", CONF_OTHER, .fallback = NULL},
    {"serve", "engine_memory", CONF_OTHER, .fallback = NULL},
    {"serve", "tls_certificate", CONF_TEXT, AT(tls_certificate)},
    {"serve", "tls_key", CONF_TEXT, AT(tls_key)},
    {"serve", "insecure_http", CONF_BOOL, AT(insecure_http), .fallback = "no"},
    {"boxes", "pool", CONF_COUNT, AT(pool), .fallback = "4", .high = 1024},
    {"boxes", "cpus", CONF_CPUS, AT(cpus), .fallback = "0"},
    {"boxes", "memory", CONF_SIZE, AT(memory), .fallback = "1G", .low = 8U << 20,
     .high = BYTES_MOST},
    {"boxes", "disk", CONF_SIZE, AT(disk), .fallback = "2G", .low = 1U << 20, .high = BYTES_MOST},
    {"boxes", "pids", CONF_COUNT, AT(pids), .fallback = "1024", .low = 2, .high = 4194304},
    {"boxes", "most_memory", CONF_SIZE, AT(most_memory)},
    {"boxes", "most_cpus", CONF_CPUS, AT(most_cpus)},
    {"boxes", "most_disk", CONF_SIZE, AT(most_disk)},
    {"boxes", "most_pids", CONF_COUNT, AT(most_pids), .high = 4194304},
    {"boxes", "sandboxes", CONF_COUNT, AT(sandboxes), .fallback = "5000", .low = 1,
     .high = 1000000},
    {"boxes", "ports", CONF_COUNT, AT(ports), .fallback = "1024", .high = 1000000},
    {"boxes", "headroom_memory", CONF_SIZE, AT(headroom_memory), .fallback = "256M"},
    {"boxes", "headroom_disk", CONF_SIZE, AT(headroom_disk), .fallback = "512M"},
    {"boxes", "disk_overcommit", CONF_COUNT, AT(disk_overcommit), .fallback = "20", .low = 1,
     .high = 1000000},
    {"boxes", "output_keep", CONF_DURATION, AT(output_keep_ms), .fallback = "24h"},
    {"boxes", "default_network", CONF_TEXT, AT(default_network), .fallback = "public",
     .check = network_check},
    {"kernels", "contexts", CONF_COUNT, AT(kernels_contexts), .fallback = "1000", .low = 1,
     .high = 30000},
    {"kernels", "memory", CONF_SIZE, AT(kernels_memory), .fallback = "1G", .low = 64U << 20},
    {"kernels", "idle", CONF_DURATION, AT(kernels_idle_ms), .fallback = "24h", .low = 1000},
    {"network", "port_domain", CONF_TEXT, AT(port_domain)},
    {"network", "resolvers", CONF_TEXT, AT(resolvers), .check = net_resolvers_check},
    {"network", "nat64", CONF_TEXT, AT(nat64), .check = check_nat64},
    {"network", "private", CONF_TEXT, AT(private_networks), .fallback = "any",
     .check = check_private},
    {"network", "proxy", CONF_TEXT, AT(proxy), .check = net_proxy_check},
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
    {"root_tenants", NULL, CONF_OTHER, .fallback = NULL},
    {"mount_tenants", NULL, CONF_OTHER, .fallback = NULL},
    {.section = NULL},
};

/* Refuses a default network that a sandbox would be refused. */
static int default_check(const char *path, const struct settings *settings, struct error *err)
{
    _cleanup_(policy_freep) struct policy *policy = NULL;
    struct policy_bound bound;
    struct error why;

    if (policy_new_text(settings->default_network, &policy, err) != 0 ||
        policy_bound_parse(settings->private_networks, &bound, err) != 0)
        return -1;
    if (policy_bound_check(&bound, policy, &why) == 0)
        return 0;
    return error_set(err, "bad_config", 0, "%s: [boxes] default_network: %.300s", path, why.text);
}

static int most_check(const char *path, const char *name, uint64_t usual, uint64_t most,
                      struct error *err)
{
    if (most == 0 || (usual > 0 && usual <= most))
        return 0;
    if (usual == 0)
        return error_set(err, "bad_config", 0,
                         "%s: [boxes] %s gives all of the host's, which is more than most_%s "
                         "allows: set %s, too",
                         path, name, name, name);
    return error_set(err, "bad_config", 0,
                     "%s: [boxes] %s is %llu, which is more than most_%s allows (%llu): raise the "
                     "one or lower the other",
                     path, name, (unsigned long long)usual, name, (unsigned long long)most);
}

/* Of two lines, which only together are wrong. Without `tell` the first fault ends it. */
static int pairs_check(const char *path, const struct settings *settings, conf_fault tell,
                       void *arg, struct error *err)
{
    const struct {
        const char *name;
        uint64_t usual, most;
    } pairs[] = {{"cpus", settings->cpus, settings->most_cpus},
                 {"memory", settings->memory, settings->most_memory},
                 {"disk", settings->disk, settings->most_disk},
                 {"pids", settings->pids, settings->most_pids},
                 {NULL, 0, 0}};
    int status = 0;

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if ((pairs[i].name != NULL
                 ? most_check(path, pairs[i].name, pairs[i].usual, pairs[i].most, err)
                 : default_check(path, settings, err)) == 0)
            continue;
        status = -1;
        if (tell == NULL)
            break;
        tell(arg, err);
    }
    return status;
}

int settings_read(int fd, const char *path, struct settings *settings, struct error *err)
{
    int failed = fd < 0 ? conf_parse(table, path, "", 0, settings, err)
                        : conf_read(table, path, fd, settings, err);

    if (failed == 0 && pairs_check(path, settings, NULL, NULL, err) != 0) {
        settings_free(settings);
        return -1;
    }
    return failed;
}

void settings_faults(int fd, const char *path, conf_fault tell, void *arg)
{
    struct settings settings = {0};
    struct error ignored;

    if (conf_read_all(table, path, fd, &settings, tell, arg, &ignored) == 0)
        (void)pairs_check(path, &settings, tell, arg, &ignored);
    settings_free(&settings);
}

/* The engine does the same in engine/capacity.c and disk_room.c. */
void settings_fit(const struct settings *settings, uint64_t disk_bytes, uint64_t disk_free)
{
    uint64_t headroom = settings->headroom_disk, usable = 0, most = disk_bytes;

    if (disk_bytes > headroom)
        usable = disk_bytes - headroom;
    if (usable < disk_bytes / settings->disk_overcommit)
        most = usable * settings->disk_overcommit;
    if (disk_free < headroom)
        log_say(LOG_LEVEL_WARN, "disk_low",
                "[boxes] headroom_disk keeps %llu MiB free, and the disk of the data directory has "
                "%llu MiB left of %llu: no sandbox would be made or started; make room there, or "
                "lower headroom_disk",
                (unsigned long long)headroom >> 20, (unsigned long long)disk_free >> 20,
                (unsigned long long)disk_bytes >> 20);
    if (settings->disk > most)
        log_say(
            LOG_LEVEL_WARN, "disk_small",
            "[boxes] disk gives a sandbox %llu MiB, and the disk of the data directory, of %llu "
            "MiB, can give one %llu: a sandbox that asks for no other size would be refused; "
            "lower disk, or use a larger one",
            (unsigned long long)settings->disk >> 20, (unsigned long long)disk_bytes >> 20,
            (unsigned long long)most >> 20);
}

void settings_free(struct settings *settings)
{
    conf_free(table, settings);
}
