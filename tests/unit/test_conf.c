/* The configuration: every type is read into its place, what is silent has its default, and whatever is
 * wrong is an error that names file, line and what is allowed, with nothing left behind. */
#include "base/conf.h"

#include "base/fd.h"
#include "check.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct settings {
    char *listen;
    char **hosts;
    uint64_t memory, keep_ms, pids;
    uint32_t cpus;
    bool insecure;
    int level;
    char roots[256]; /* "name=path;" each */
};

static int root_add(void *target, const char *section, const char *name, const char *value,
                    struct error *err)
{
    struct settings *settings = target;
    size_t used = strlen(settings->roots);

    CHECK(strcmp(section, "roots") == 0, "it is of [%s]", section);
    if (value[0] != '/')
        return error_set(err, "bad_value", 0, "%s: \"%s\" is not an absolute path", name, value);
    (void)snprintf(settings->roots + used, sizeof(settings->roots) - used, "%s=%s;", name, value);
    return 0;
}

static const char *const levels[] = {"error", "warn", "info", NULL};

#define AT(field) .offset = offsetof(struct settings, field)
static const struct conf_row table[] = {
    {"serve", "listen", CONF_TEXT, AT(listen), .fallback = "127.0.0.1:7070"},
    {"serve", "hosts", CONF_LIST, AT(hosts)},
    {"serve", "insecure_http", CONF_BOOL, AT(insecure)},
    {"serve", "level", CONF_CHOICE, AT(level), .fallback = "info", .choices = levels},
    {"serve", "data", .type = CONF_OTHER},
    {"boxes", "memory", CONF_SIZE, AT(memory), .fallback = "1G", .low = 1 << 20,
     .high = 1ULL << 40},
    {"boxes", "output_keep", CONF_DURATION, AT(keep_ms), .fallback = "24h"},
    {"boxes", "pids", CONF_COUNT, AT(pids), .fallback = "1024", .low = 1, .high = 4194304},
    {"boxes", "cpus", CONF_CPUS, AT(cpus), .fallback = "0"},
    {"roots", NULL, CONF_ANY, .any = root_add},
    {"keeper", NULL, .type = CONF_OTHER},
    {0},
};

static int parse(const char *text, struct settings *settings, struct error *err)
{
    memset(settings, 0, sizeof(*settings));
    return conf_parse(table, "cove.conf", text, strlen(text), settings, err);
}

static void check_defaults(void)
{
    static const char *const nothing[] = {"", "\n\n", "# only this",
                                          "  \t \n#\n[serve]\n[boxes]\r\n"};
    struct settings settings;
    struct error err;

    for (size_t i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++) {
        CHECK(parse(nothing[i], &settings, &err) == 0, "%s", err.text);
        CHECK(strcmp(settings.listen, "127.0.0.1:7070") == 0, "%s", settings.listen);
        CHECK(settings.hosts != NULL && settings.hosts[0] == NULL, "hosts are not an empty list");
        CHECK(settings.memory == 1ULL << 30 && settings.keep_ms == 86400000 &&
                  settings.pids == 1024 && settings.cpus == 0,
              "%" PRIu64 " %" PRIu64, settings.memory, settings.keep_ms);
        CHECK(!settings.insecure && settings.level == 2, "level %d", settings.level);
        conf_free(table, &settings);
        CHECK(settings.listen == NULL && settings.hosts == NULL && settings.memory == 0,
              "something is left after conf_free()");
        conf_free(table, &settings);
    }
}

static void check_values(void)
{
    struct settings settings;
    struct error err;

    CHECK(parse("[serve]\n"
                "listen=[::1]:8080\n"
                "  hosts =  a.example , b.example,c  # ours\n"
                "data = /anything, even = this\n"
                "insecure_http = yes\r\n"
                "level = warn\n"
                "[ boxes ]\n"
                "memory = 512M\n"
                "\toutput_keep\t=\t90s\n"
                "cpus = 1.5\n"
                "[keeper]\n"
                "whatever = x\n"
                "empty =\n"
                "[roots]\n"
                "alpine-3.20 = /srv/roots/a#b c\n"
                "[boxes]\n"
                "pids = 7\n"
                "[roots]\n"
                "deb=/srv/d = e",
                &settings, &err) == 0,
          "%s", err.text);
    CHECK(strcmp(settings.listen, "[::1]:8080") == 0, "%s", settings.listen);
    CHECK(strcmp(settings.hosts[0], "a.example") == 0 &&
              strcmp(settings.hosts[1], "b.example") == 0 && strcmp(settings.hosts[2], "c") == 0 &&
              settings.hosts[3] == NULL,
          "hosts: %s %s %s", settings.hosts[0], settings.hosts[1], settings.hosts[2]);
    CHECK(settings.insecure && settings.level == 1, "level %d", settings.level);
    CHECK(settings.memory == 512U << 20 && settings.keep_ms == 90000 && settings.pids == 7 &&
              settings.cpus == 1500,
          "memory %" PRIu64 ", cpus %" PRIu32, settings.memory, settings.cpus);
    CHECK(strcmp(settings.roots, "alpine-3.20=/srv/roots/a#b c;deb=/srv/d = e;") == 0, "%s",
          settings.roots);
    conf_free(table, &settings);
}

/* Each is refused by a sentence that begins with file and line and holds the word. */
static void check_refused(void)
{
    static const struct {
        const char *text, *where, *word;
    } rows[] = {
        {"[boxes]\nmemroy = 1G", "cove.conf:2: ", "memory, output_keep, pids, cpus"},
        {"\n\n[box]\n", "cove.conf:3: ", "serve, boxes, roots, keeper"},
        {"listen = x", "cove.conf:1: ", "before the first section"},
        {"[serve]\nlisten", "cove.conf:2: ", "NAME = VALUE"},
        {"[serve]\nlisten =", "cove.conf:2: ", "no value"},
        {"[serve]\nlisten = # none", "cove.conf:2: ", "no value"},
        {"[serve]\n= 3", "cove.conf:2: ", "letters, digits"},
        {"[serve]\nli sten = 3", "cove.conf:2: ", "letters, digits"},
        {"[serve", "cove.conf:1: ", "[NAME]"},
        {"[]", "cove.conf:1: ", "letters, digits"},
        {"[serve]]", "cove.conf:1: ", "letters, digits"},
        {"[serve] listen = 1", "cove.conf:1: ", "[NAME]"},
        {"[serve]\ninsecure_http = maybe", "cove.conf:2: ", "yes or no"},
        {"[serve]\nlevel = loud", "cove.conf:2: ", "error, warn, info"},
        {"[serve]\nhosts = a,,b", "cove.conf:2: ", "empty item"},
        {"[serve]\nhosts = a,", "cove.conf:2: ", "empty item"},
        {"[boxes]\nmemory = 1X", "cove.conf:2: ", "such as 512M"},
        {"[boxes]\nmemory = 1K", "cove.conf:2: ", "the least is 1048576 bytes"},
        {"[boxes]\nmemory = 2T", "cove.conf:2: ", "the most is"},
        {"[boxes]\npids = 0", "cove.conf:2: ", "from 1 to 4194304"},
        {"[boxes]\npids = -1", "cove.conf:2: ", "whole number"},
        {"[boxes]\ncpus = many", "cove.conf:2: ", "number of CPUs"},
        {"[boxes]\noutput_keep = soon", "cove.conf:2: ", "such as 90s"},
        {"[boxes]\npids = 3\n[serve]\n[boxes]\npids = 4", "cove.conf:5: ", "after line 2"},
        {"[roots]\na = relative", "cove.conf:2: ", "absolute path"},
        {"[roots]\na =", "cove.conf:2: ", "no value"},
        {"[serve]\nlisten = a\x1b[2J", "cove.conf:2: ", "control character"},
        {"[serve]\nlisten = a\rb", "cove.conf:2: ", "control character"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct settings settings;
        struct error err = {0};

        CHECK(parse(rows[i].text, &settings, &err) == -1, "\"%s\" was taken", rows[i].text);
        CHECK(strcmp(err.code, "bad_config") == 0, "code %s", err.code);
        CHECK(strncmp(err.text, rows[i].where, strlen(rows[i].where)) == 0, "%s", err.text);
        CHECK(strstr(err.text, rows[i].word) != NULL, "\"%s\" is not in: %s", rows[i].word,
              err.text);
        CHECK(settings.listen == NULL && settings.hosts == NULL && settings.memory == 0,
              "something is left after \"%s\"", rows[i].text);
        if (settings.listen != NULL)
            conf_free(table, &settings);
    }
}

static void check_bounds(void)
{
    static char text[CONF_SIZE_MAX + 2];
    struct settings settings = {0};
    struct error err;
    char name[CONF_NAME_MAX + 32];

    memset(text, 'x', sizeof(text));
    memcpy(text, "[roots]\na=/", 11);
    text[8 + CONF_LINE_MAX] = '\n';
    CHECK(conf_parse(table, "f", text, 8 + CONF_LINE_MAX, &settings, &err) == 0, "%s", err.text);
    conf_free(table, &settings);
    text[8 + CONF_LINE_MAX] = 'x';
    CHECK(conf_parse(table, "f", text, 8 + CONF_LINE_MAX + 1, &settings, &err) == -1 &&
              strstr(err.text, "4097 bytes") != NULL,
          "a line over the bound: %s", err.text);
    memset(text, '\n', sizeof(text));
    CHECK(conf_parse(table, "f", text, CONF_SIZE_MAX, &settings, &err) == 0, "%s", err.text);
    conf_free(table, &settings);
    CHECK(conf_parse(table, "f", text, CONF_SIZE_MAX + 1, &settings, &err) == -1 &&
              strstr(err.text, "256 KiB") != NULL,
          "a file over the bound: %s", err.text);
    CHECK(conf_parse(table, "f", "[serve]\0x", 9, &settings, &err) == -1, "a NUL was taken");
    (void)snprintf(name, sizeof(name), "[%0*d]", (int)CONF_NAME_MAX + 1, 7);
    CHECK(parse(name, &settings, &err) == -1 && strstr(err.text, "letters") != NULL, "%s",
          err.text);
}

static void check_read(void)
{
    _cleanup_close_ int fd = memfd_create("conf", MFD_CLOEXEC);
    _cleanup_close_ int dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    static const char text[] = "[boxes]\npids = 12\n";
    struct settings settings = {0};
    struct error err;

    CHECK(fd_write_full(fd, text, sizeof(text) - 1) == 0, "memfd");
    for (int i = 0; i < 2; i++) { /* the offset is at its end, and stays */
        CHECK(conf_read(table, "cove.conf", fd, &settings, &err) == 0 && settings.pids == 12, "%s",
              err.text);
        conf_free(table, &settings);
    }
    CHECK(ftruncate(fd, CONF_SIZE_MAX + 1) == 0, "ftruncate");
    CHECK(conf_read(table, "cove.conf", fd, &settings, &err) == -1 &&
              strstr(err.text, "256 KiB") != NULL,
          "%s", err.text);
    CHECK(conf_read(table, "/etc", dir, &settings, &err) == -1 && strstr(err.text, "/etc") != NULL,
          "%s", err.text);
}

struct told {
    size_t count;
    char text[4][ERROR_TEXT_MAX];
};

static void told_take(void *arg, const struct error *fault)
{
    struct told *told = arg;

    if (told->count < 4)
        (void)snprintf(told->text[told->count], ERROR_TEXT_MAX, "%s", fault->text);
    told->count++;
}

/* Nothing below a section that is not known is a fault of its own. */
static void check_all_faults(void)
{
    static const char text[] = "[boxes]\nmemory = lots\npids = 12\npids = 13\n"
                               "[nowhere]\nmemory = 1\n[serve]\nlevel = loud\n";
    static const char *const lines[] = {"cove.conf:2: memory: ", "cove.conf:4: pids is given again",
                                        "cove.conf:5: there is no section [nowhere]",
                                        "cove.conf:8: level: "};
    _cleanup_close_ int fd = memfd_create("conf", MFD_CLOEXEC);
    struct settings settings = {0};
    struct told told = {0};
    struct error err;

    CHECK(fd_write_full(fd, text, sizeof(text) - 1) == 0, "memfd");
    CHECK(conf_read_all(table, "cove.conf", fd, &settings, told_take, &told, &err) == -1 &&
              strcmp(err.text, told.text[0]) == 0 && strcmp(err.code, "bad_config") == 0 &&
              settings.hosts == NULL,
          "%s", err.text);
    CHECK(told.count == 4, "%zu faults", told.count);
    for (size_t i = 0; i < 4; i++)
        CHECK(strncmp(told.text[i], lines[i], strlen(lines[i])) == 0, "%s", told.text[i]);

    for (unsigned i = 0; i < 2 * CONF_FAULTS_MAX; i++)
        CHECK(pwrite(fd, "x\n", 2, 2 * (off_t)i) == 2, "memfd");
    told.count = 0;
    CHECK(conf_read_all(table, "cove.conf", fd, &settings, told_take, &told, &err) == -1 &&
              told.count == CONF_FAULTS_MAX,
          "%zu faults", told.count);
}

static void check_set(void)
{
    struct settings settings;
    struct error err;

    CHECK(parse("[serve]\nlisten = a:1\nhosts = a", &settings, &err) == 0, "%s", err.text);
    CHECK(conf_set(table, "--listen", "serve", "listen", "none", &settings, &err) == 0 &&
              strcmp(settings.listen, "none") == 0,
          "%s", err.text);
    CHECK(conf_set(table, "--hosts", "serve", "hosts", "b,c", &settings, &err) == 0 &&
              strcmp(settings.hosts[1], "c") == 0,
          "%s", err.text);
    CHECK(conf_set(table, "--memory", "boxes", "memory", "lots", &settings, &err) == -1 &&
              strncmp(err.text, "--memory: ", 10) == 0 && settings.memory == 1ULL << 30,
          "%s", err.text);
    CHECK(conf_set(table, "--root", "roots", "r", "/r", &settings, &err) == 0 &&
              strcmp(settings.roots, "r=/r;") == 0,
          "%s", settings.roots);
    CHECK(conf_set(table, "--x", "serve", "x", "1", &settings, &err) == -1, "x was taken");
    CHECK(conf_set(table, "--x", "x", "x", "1", &settings, &err) == -1, "[x] was taken");
    conf_free(table, &settings);
}

int main(void)
{
    check_defaults();
    check_values();
    check_refused();
    check_bounds();
    check_read();
    check_all_faults();
    check_set();
    return check_finish();
}
