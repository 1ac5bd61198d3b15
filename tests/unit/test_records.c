/* Records of sandboxes: what goes in comes out, what a client must not say is refused with the field's
 * name, and a damaged text of the store is never believed. */
#include "check.h"
#include "engine/record.h"

#include <stdlib.h>
#include <string.h>

static const struct box_limits usual = {
    .memory_bytes = 1ULL << 30, .pids = 1024, .disk_bytes = 2ULL << 30};
static const struct box_limits unbounded;

static struct sandbox_spec plain_spec(void)
{
    return (struct sandbox_spec){.privileges = BOX_SYSTEM, .disk_kind = KEEPER_PERSISTENT};
}

static struct record *new_of(const struct sandbox_spec *spec)
{
    struct record *record = NULL;
    struct error err;

    if (record_new(spec, "default", &usual, &unbounded, NULL, &record, &err) != 0)
        printf("%s: %s\n", err.code, err.text);
    if (record == NULL)
        abort();
    return record;
}

static void check_refused(const char *what, const struct sandbox_spec *spec, const char *field)
{
    struct record *record = NULL;
    struct error err = {0};

    CHECK(record_new(spec, "default", &usual, &unbounded, NULL, &record, &err) != 0, "%s", what);
    CHECK(strcmp(err.code, "bad_request") == 0, "%s: %s", what, err.code);
    CHECK(strstr(err.text, field) != NULL, "%s: %s", what, err.text);
    record_free(record);
}

/* ---- there and back ---- */

static struct record *full_record(void)
{
    static const char *const labels[] = {"a=1", "b=\xc3\xa9\"\\\n", NULL};
    static const char *const env[] = {"PATH=/bin", "EMPTY=", "TAB=\t", NULL};
    static const struct keeper_mount mounts[] = {
        {.name = "data", .target = "/data"}, {.name = "src", .target = "/src/x", .read_only = 1}};
    struct sandbox_spec spec = plain_spec();
    struct record *record;

    spec.name = "ein Name/mit \xe2\x82\xac";
    spec.labels = labels;
    spec.env = env;
    spec.root = "debian-12";
    spec.cwd = "/work";
    spec.user = "1000:1000";
    spec.hostname = "host-1";
    spec.limits = (struct box_limits){1 << 30, 1500, 99, 1 << 28, 5000};
    spec.mounts = mounts;
    spec.mounts_count = 2;
    spec.deadline_ms = 1900000000000;
    spec.idle_ms = 60000;
    spec.then = SANDBOX_THEN_STOP;
    record = new_of(&spec);
    strcpy(record->id, "c0abcdefghijklmnopqr");
    strcpy(record->disk, "d0abcdefghijklmnopqr");
    record->state = SANDBOX_ERROR;
    strcpy(record->reason, "start_failed");
    (void)error_set(&record->error, "bad_root", 0, "because");
    record->created_ms = 1;
    record->updated_ms = 2;
    record->serial = 3;
    return record;
}

static struct record *parsed(const char *text, struct error *err)
{
    struct record *record = NULL;

    return record_parse(text, strlen(text), &record, err) == 0 ? record : NULL;
}

static void check_there_and_back(void)
{
    struct record *record = full_record(), *copy = record_copy(record), *again;
    struct error err = {0};
    char *text = record_format(record, &err), *second, *third;

    again = text != NULL ? parsed(text, &err) : NULL;
    CHECK(again != NULL, "%s", err.text);
    if (again == NULL)
        return;
    second = record_format(again, &err);
    third = record_format(copy, &err);
    CHECK(strcmp(text, second) == 0, "%s\n%s", text, second);
    CHECK(strcmp(text, third) == 0, "of a copy");
    CHECK(again->mounts_count == 2 && again->mounts[1].read_only == 1 &&
              strcmp(again->mounts[1].target, "/src/x") == 0,
          "mounts");
    CHECK(again->limits.cpu_milli == 1500 && again->limits.disk_inodes == 5000, "limits");
    CHECK(again->state == SANDBOX_ERROR && again->then == SANDBOX_THEN_STOP, "choices");
    CHECK(strcmp(again->labels[1], "b=\xc3\xa9\"\\\n") == 0, "a label with everything in it");
    free(text);
    free(second);
    free(third);
    record_free(record);
    record_free(copy);
    record_free(again);
}

static void check_defaults(void)
{
    struct sandbox_spec spec = plain_spec();
    struct record *record = new_of(&spec);

    CHECK(strcmp(record->root, "host") == 0, "the root");
    CHECK(record->limits.memory_bytes == usual.memory_bytes && record->limits.pids == 1024,
          "limits");
    CHECK(record->limits.disk_inodes == (2ULL << 30) / 8192, "inodes by the disk");
    record_free(record);
}

/* ---- what a client may say ---- */

static void check_wishes(void)
{
    static const char *const no_equals[] = {"novalue", NULL}, *const no_key[] = {"=v", NULL};
    static const char *const not_utf8[] = {"a=\xff\xfe", NULL};
    static char long_name[ENGINE_NAME_MAX + 2], long_label[RECORD_LABEL_MAX + 8];
    static const char *many[ENGINE_LABELS_MAX + 2], *const too_long[] = {long_label, NULL};
    struct sandbox_spec spec;

    memset(long_name, 'n', sizeof(long_name) - 1);
    memset(long_label, 'l', sizeof(long_label) - 1);
    long_label[1] = '=';
    for (size_t i = 0; i <= ENGINE_LABELS_MAX; i++)
        many[i] = "a=b";
#define REFUSED(what, field, set)          \
    do {                                   \
        spec = plain_spec();               \
        set;                               \
        check_refused(what, &spec, field); \
    } while (0)
    REFUSED("empty name", "name", spec.name = "");
    REFUSED("name of 257", "name", spec.name = long_name);
    REFUSED("line in a name", "name", spec.name = "a\nb");
    REFUSED("name that is not UTF-8", "UTF-8", spec.name = "a\xff");
    REFUSED("label without =", "labels", spec.labels = no_equals);
    REFUSED("label without key", "labels", spec.labels = no_key);
    REFUSED("label that is not UTF-8", "UTF-8", spec.labels = not_utf8);
    REFUSED("65 labels", "labels", spec.labels = many);
    REFUSED("long label", "labels", spec.labels = too_long);
    REFUSED("env without =", "env", spec.env = no_equals);
    REFUSED("relative cwd", "cwd", spec.cwd = "work");
    REFUSED("root with a slash", "root", spec.root = "../etc");
    REFUSED("root that begins with a point", "root", spec.root = ".x");
    REFUSED("hostname with a blank", "hostname", spec.hostname = "a b");
    REFUSED("hostname that begins with -", "hostname", spec.hostname = "-a");
    REFUSED("little memory", "memory_bytes", spec.limits.memory_bytes = 4096);
    REFUSED("much memory", "memory_bytes", spec.limits.memory_bytes = UINT64_MAX);
    REFUSED("many cpus", "cpus", spec.limits.cpu_milli = UINT32_MAX);
    REFUSED("many pids", "pids", spec.limits.pids = UINT32_MAX);
    REFUSED("no place for a command", "at least 2", spec.limits.pids = 1);
    REFUSED("much disk", "disk_bytes", spec.limits.disk_bytes = UINT64_MAX);
    REFUSED("no such privileges", "privileges", spec.privileges = (enum box_privileges)7);
    REFUSED("no such disk", "disk_kind", spec.disk_kind = (enum keeper_disk)0);
    REFUSED("no such then", "then", spec.then = (enum sandbox_then)9);
    REFUSED("many mounts", "mounts", spec.mounts_count = KEEPER_MOUNTS_MAX + 1);
#undef REFUSED
}

static void check_targets(void)
{
    static const char *const bad[] = {"",      "/",    "data",  "/a/../b", "/..",    "/a/.",
                                      "/a//b", "/a/",  "/proc", "/proc/x", "/dev",   "/sys/fs",
                                      "/a\nb", "/./a", "/usr",  "/bin",    "/lib64", "/usr/sbin"};
    static const char *const good[] = {"/a",     "/a/b.c",       "/..a",       "/procx",
                                       "/a/...", "/tmp",         "/usr/local", "/usr/lib/x",
                                       "/etc",   "/usr/library", "/a/usr",     "/usrx"};
    struct sandbox_spec spec = plain_spec();
    struct keeper_mount mount = {.name = "data"};
    struct record *record, *again = NULL;
    struct error err;
    char *text;

    spec.mounts = &mount;
    spec.mounts_count = 1;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        (void)snprintf(mount.target, sizeof(mount.target), "%s", bad[i]);
        check_refused(bad[i], &spec, "target");
    }
    memset(mount.target, 'a', sizeof(mount.target));
    mount.target[0] = '/';
    check_refused("a target that does not end", &spec, "target");
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        (void)snprintf(mount.target, sizeof(mount.target), "%s", good[i]);
        record = new_of(&spec);
        CHECK(strcmp(record->mounts[0].target, good[i]) == 0, "%s", good[i]);
        record_free(record);
    }
    /* One that was made before it was refused is still a record. */
    record = new_of(&spec);
    (void)snprintf(record->id, sizeof(record->id), "c0aaaaaaaaaaaaaaaaaa");
    strcpy(record->mounts[0].target, "/usr");
    text = record_format(record, &err);
    CHECK(record_parse(text, strlen(text), &again, &err) == 0, "%s", err.text);
    free(text);
    record_free(record);
    record_free(again);
}

static void check_most(void)
{
    static const struct box_limits most = {.memory_bytes = 2ULL << 30, .cpu_milli = 2000};
    struct sandbox_spec spec = plain_spec();
    struct record *record = NULL;
    struct error err;

    CHECK(record_new(&spec, "t", &usual, &most, NULL, &record, &err) != 0 &&
              strstr(err.text, "cpus") != NULL,
          "all processors are more than two");
    spec.limits.cpu_milli = 2000;
    spec.limits.memory_bytes = (2ULL << 30) + 1;
    CHECK(record_new(&spec, "t", &usual, &most, NULL, &record, &err) != 0 &&
              strstr(err.text, "memory") != NULL,
          "a byte too many");
    spec.limits.memory_bytes--;
    CHECK(record_new(&spec, "t", &usual, &most, NULL, &record, &err) == 0, "as much as may be");
    record_free(record);
}

/* ---- what the store may hold after damage ---- */

#define GOOD                                                                                         \
    "\"id\":\"c0abcdefghijklmnopqr\",\"tenant\":\"t\",\"state\":\"running\",\"reason\":\"created\"," \
    "\"root\":\"host\",\"disk_kind\":\"ephemeral\",\"privileges\":\"plain\",\"then\":\"kill\""

static void check_network(void)
{
    static const char *const allow[] = {"example.com:443", "10.0.0.0/8", NULL};
    static const char *const deny[] = {"*.example.org", NULL};
    struct sandbox_spec spec = plain_spec();
    struct record *record, *again = NULL;
    struct sandbox_network none = {.mode = "none"}, wide = {.mode = NULL};
    char *rules = malloc(RECORD_RULES_BYTES);
    const char *many[] = {rules, NULL};
    struct error err;
    char *text;

    spec.network = (struct sandbox_network){
        .mode = "public", .allow = allow, .deny = deny, .connections = 7, .bytes = 1ULL << 40};
    record = new_of(&spec);
    (void)snprintf(record->id, sizeof(record->id), "c0aaaaaaaaaaaaaaaaaa");
    text = record_format(record, &err);
    CHECK(record_parse(text, strlen(text), &again, &err) == 0, "%s", err.text);
    CHECK(policy_mode(again->policy) == POLICY_PUBLIC &&
              strcmp(policy_allow(again->policy)[1], allow[1]) == 0 &&
              strcmp(policy_deny(again->policy)[0], deny[0]) == 0,
          "%s", text);
    CHECK(again->network.connections == 7 && again->network.bytes == 1ULL << 40, "%s", text);
    CHECK(again->network.lookups_per_second == 0 && again->network.bytes_per_second == 0, "usual");
    CHECK(record_set_network(again, &none, &err) == 0 && again->network.connections == 0, "none");
    free(text);
    text = record_format(again, &err);
    CHECK(strstr(text, "network") == NULL, "of none nothing is said: %s", text);
    memset(rules, 'a', RECORD_RULES_BYTES - 1);
    rules[RECORD_RULES_BYTES - 1] = '\0';
    wide.allow = many;
    CHECK(record_set_network(again, &wide, &err) != 0 && strcmp(err.code, "bad_policy") == 0,
          "a rule that is no rule");
    wide.connections = 65537;
    CHECK(record_set_network(again, &wide, &err) != 0 && strcmp(err.code, "bad_request") == 0,
          "more than may be");
    CHECK(policy_mode(again->policy) == POLICY_NONE, "what is refused changes nothing");
    free(text);
    free(rules);
    record_free(record);
    record_free(again);
}

static void check_damaged(void)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "null",
        "\"text\"",
        "{}",
        "{" GOOD ",\"id\":\"c0abcdefghijklmnopqs\"}",
        "{" GOOD ",\"serial\":-1}",
        "{" GOOD ",\"serial\":\"1\"}",
        "{" GOOD ",\"serial\":99999999999999999999999}",
        "{" GOOD ",\"pids\":4294967296}",
        "{" GOOD ",\"labels\":{}}",
        "{" GOOD ",\"labels\":[1]}",
        "{" GOOD ",\"labels\":[\"x\"]}",
        "{" GOOD ",\"env\":[\"a=\\u0000b\"]}",
        "{" GOOD ",\"name\":7}",
        "{" GOOD ",\"name\":\"\"}",
        "{" GOOD ",\"cwd\":\"relative\"}",
        "{" GOOD ",\"mounts\":[{}]}",
        "{" GOOD ",\"mounts\":[7]}",
        "{" GOOD ",\"mounts\":7}",
        "{" GOOD ",\"mounts\":[{\"name\":\"a\",\"target\":\"/../x\"}]}",
        "{" GOOD ",\"hostname\":\"a b\"}",
        "{\"id\":\"short\",\"tenant\":\"t\",\"state\":\"running\",\"root\":\"host\",\"disk_kind\":"
        "\"ephemeral\",\"privileges\":\"plain\",\"then\":\"kill\"}",
        "{\"id\":\"c0abcdefghijklmnopqr\",\"tenant\":\"a/b\",\"state\":\"running\",\"root\":\"host\","
        "\"disk_kind\":\"ephemeral\",\"privileges\":\"plain\",\"then\":\"kill\"}",
        "{\"id\":\"c0abcdefghijklmnopqr\",\"tenant\":\"t\",\"state\":\"dancing\",\"root\":\"host\","
        "\"disk_kind\":\"ephemeral\",\"privileges\":\"plain\",\"then\":\"kill\"}",
    };
    struct error err;
    struct record *record = parsed("{" GOOD "}", &err);

    CHECK(record != NULL, "the good one: %s", err.text);
    record_free(record);
    record = parsed("{" GOOD ",\"of_a_later_version\":1}", &err);
    CHECK(record != NULL, "a field of a later version: %s", err.text);
    record_free(record);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        record = parsed(bad[i], &err);
        CHECK(record == NULL, "%s", bad[i]);
        CHECK(strcmp(err.code, "bad_record") == 0, "%s: %s", bad[i], err.code);
        record_free(record);
    }
}

/* Cut anywhere, and with any byte changed: refused, or sound; never a crash. */
static void check_torn(void)
{
    struct record *record = full_record(), *again;
    struct error err;
    char *text = record_format(record, &err);
    size_t size = strlen(text), refused = 0;

    for (size_t i = 0; i < size; i++) {
        again = NULL;
        refused += record_parse(text, i, &again, &err) != 0;
        record_free(again);
    }
    CHECK(refused == size, "%zu of %zu cuts are refused", refused, size);
    for (size_t i = 0; i < size; i++) {
        char was = text[i];

        for (unsigned bit = 0; bit < 8; bit++) {
            text[i] = (char)(was ^ (char)(1U << bit));
            again = NULL;
            if (record_parse(text, size, &again, &err) == 0)
                CHECK(strlen(again->id) == KEEPER_ID_LENGTH, "byte %zu", i);
            record_free(again);
        }
        text[i] = was;
    }
    free(text);
    record_free(record);
}

int main(void)
{
    check_there_and_back();
    check_defaults();
    check_wishes();
    check_targets();
    check_most();
    check_network();
    check_damaged();
    check_torn();
    return check_finish();
}
