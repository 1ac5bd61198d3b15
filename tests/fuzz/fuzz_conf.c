/* Any bytes as a configuration: taken or refused with a sentence, nothing leaks, and what was taken holds
 * to the table's bounds. */
#include "base/conf.h"
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    char *listen;
    char **hosts;
    uint64_t memory, keep_ms, pids;
    uint32_t cpus;
    bool insecure;
    int level;
};

static int any(void *target, const char *section, const char *name, const char *value,
               struct error *err)
{
    (void)target;
    (void)section;
    if (*name == '\0' || *value == '\0' || strlen(name) > CONF_NAME_MAX)
        abort();
    return strcmp(name, "refuse") == 0 ? error_set(err, "bad_value", 0, "no") : 0;
}

static const char *const levels[] = {"error", "warn", NULL};

#define AT(field) .offset = offsetof(struct settings, field)
static const struct conf_row table[] = {
    {"serve", "listen", CONF_TEXT, AT(listen), .fallback = "127.0.0.1:7070"},
    {"serve", "hosts", CONF_LIST, AT(hosts), .fallback = "a,b"},
    {"serve", "insecure_http", CONF_BOOL, AT(insecure)},
    {"serve", "level", CONF_CHOICE, AT(level), .choices = levels},
    {"serve", "data", .type = CONF_OTHER},
    {"boxes", "memory", CONF_SIZE, AT(memory), .fallback = "1G", .low = 4096},
    {"boxes", "output_keep", CONF_DURATION, AT(keep_ms), .fallback = "24h"},
    {"boxes", "pids", CONF_COUNT, AT(pids), .fallback = "1", .low = 1, .high = 100},
    {"boxes", "cpus", CONF_CPUS, AT(cpus)},
    {"roots", NULL, CONF_ANY, .any = any},
    {"keeper", NULL, .type = CONF_OTHER},
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct settings settings;
    struct error err = {0};

    if (conf_parse(table, "f", (const char *)data, size, &settings, &err) < 0) {
        if (strncmp(err.text, "f:", 2) != 0 && strncmp(err.text, "f has", 5) != 0)
            abort();
        if (settings.listen != NULL || settings.hosts != NULL || err.code[0] == '\0')
            abort();
        return 0;
    }
    if (*settings.listen == '\0' || settings.memory < 4096 || settings.pids < 1 ||
        settings.pids > 100 || settings.level < 0 || settings.level > 1)
        abort();
    for (char **host = settings.hosts; *host != NULL; host++)
        if (**host == '\0')
            abort();
    conf_free(table, &settings);
    return 0;
}
