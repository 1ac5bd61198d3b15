/* The keeper's table of requests, field by field, and what it makes of addresses and names. Whole
 * keepers are tested in tests/keeper. */
#include "check.h"
#include "keeper/build.h"
#include "keeper/keeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const char id[] = "c0aaaaaaaaaaaaaaaaaa";

static struct keeper_make whole(void)
{
    struct keeper_make make = {
        .head = {.type = KEEPER_MAKE, .id = 1},
        .root = "host",
        .owner = "c0aaaaaaaaaaaaaaaaaa",
        .tenant = "default",
        .disk_kind = KEEPER_EPHEMERAL,
        .hostname = "box",
        .limits = {.memory_bytes = 1U << 30, .pids = 64, .disk_bytes = 1U << 30, .disk_inodes = 64},
        .mounts_count = 1,
        .mounts[0] = {.name = "a", .target = "/mnt/a"},
    };

    return make;
}

static const char *fault(const void *request, size_t size, bool is_greeted)
{
    const char *found = request_fault(request, size, is_greeted);

    return found != NULL ? found : "";
}

static char *put(char *field, const char *text)
{
    return memcpy(field, text, strlen(text) + 1);
}

/* As the engine asks for its own helpers. */
static void make_empty(struct keeper_make *make)
{
    put(make->root, KEEPER_ROOT_EMPTY);
    put(make->owner, "");
    put(make->tenant, "");
    make->mounts_count = 0;
}

#define CHECK_MAKE(change, expected)                                         \
    do {                                                                     \
        struct keeper_make make = whole();                                   \
        change;                                                              \
        CHECK(strcmp(fault(&make, sizeof(make), true), expected) == 0, "%s", \
              fault(&make, sizeof(make), true));                             \
    } while (0)

static void test_make(void)
{
    CHECK_MAKE((void)0, "");
    CHECK_MAKE(make.head.id = 0, "a request without an id");
    CHECK_MAKE(make.privileges = 2, "privileges");
    CHECK_MAKE(memset(make.root, 'a', sizeof(make.root)), "root");
    CHECK_MAKE(put(make.root, "../a"), "root");
    CHECK_MAKE(make_empty(&make), "");
    CHECK_MAKE((make_empty(&make), make.mounts_count = 1), "root");
    CHECK_MAKE((make_empty(&make), put(make.owner, id)), "root");
    CHECK_MAKE((make_empty(&make), put(make.tenant, "default")), "tenant");
    CHECK_MAKE((make_empty(&make), make.privileges = BOX_SYSTEM), "root");
    CHECK_MAKE((make_empty(&make), make.disk_kind = KEEPER_PERSISTENT, put(make.disk, id)), "root");
    CHECK_MAKE(make.disk_kind = 0, "disk_kind");
    CHECK_MAKE(put(make.disk, id), "disk");
    CHECK_MAKE(make.disk_kind = KEEPER_PERSISTENT, "disk");
    CHECK_MAKE((make.disk_kind = KEEPER_PERSISTENT, put(make.disk, id)), "");
    CHECK_MAKE((make.disk_kind = KEEPER_PERSISTENT, put(make.disk, id), make.disk_new = 1), "");
    CHECK_MAKE((make.disk_kind = KEEPER_PERSISTENT, put(make.disk, id), make.disk_new = 2),
               "disk_new");
    CHECK_MAKE(make.disk_new = 1, "disk_new");
    CHECK_MAKE(put(make.owner, id + 1), "owner");
    CHECK_MAKE(put(make.owner, ""), "tenant");
    CHECK_MAKE(put(make.tenant, ""), "tenant");
    CHECK_MAKE((put(make.owner, ""), put(make.tenant, "")), "mounts_count");
    CHECK_MAKE((put(make.owner, ""), put(make.tenant, ""), make.mounts_count = 0), "");
    CHECK_MAKE(memset(make.tenant, 'a', sizeof(make.tenant)), "tenant");
    CHECK_MAKE(memset(make.owner, 'a', sizeof(make.owner)), "owner");
    CHECK_MAKE(put(make.hostname, "a/b"), "hostname");
    CHECK_MAKE(memset(make.hostname, 'a', 64), "");
    CHECK_MAKE(memset(make.hostname, 'a', 65), "hostname");
    CHECK_MAKE(make.limits.memory_bytes = (8U << 20) - 1, "memory");
    CHECK_MAKE(make.limits.memory_bytes = 8U << 20, "");
    CHECK_MAKE(make.limits.memory_bytes = (1ULL << 50) + 1, "memory");
    CHECK_MAKE(make.limits.pids = 0, "pids");
    CHECK_MAKE(make.limits.cpu_milli = 1024001, "cpu");
    CHECK_MAKE(make.limits.disk_bytes = 0, "disk");
    CHECK_MAKE(make.limits.disk_inodes = 63, "inodes");
    CHECK_MAKE(make.limits.pids = UINT32_MAX, "pids");
    CHECK_MAKE(make.limits.disk_bytes = 1ULL << 63, "disk");
    CHECK_MAKE(make.limits.disk_inodes = UINT64_MAX, "inodes");
    CHECK_MAKE(make.mounts_count = KEEPER_MOUNTS_MAX + 1, "mounts_count");
    CHECK_MAKE(make.mounts_count = UINT32_MAX, "mounts_count");
    CHECK_MAKE(make.mounts_count = 2, "name of a mount");
    CHECK_MAKE(make.mounts[0].read_only = 2, "read_only of a mount");
}

static void test_words(void)
{
    static const char *const names[] = {"", "/etc", "..", ".host", "-host", "Host", "a\nb"};
    static const char *const ids[] = {"abc", "AAAAAAAAAAAAAAAAAAAA", "../aaaaaaaaaaaaaaaaa",
                                      "aaaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaa/"};
    static const char *const hosts[] = {"a b", "-a"};
    static const uint32_t types[] = {KEEPER_DROP_DISK, KEEPER_WEIGH_DISK};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        CHECK_MAKE(put(make.root, names[i]), "root");
        CHECK_MAKE(put(make.mounts[0].name, names[i]), "name of a mount");
        CHECK_MAKE(put(make.tenant, names[i]), "tenant");
    }
    CHECK_MAKE(memset(make.mounts[0].name, 'a', sizeof(make.mounts[0].name)), "name of a mount");
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++)
        CHECK_MAKE(put(make.hostname, hosts[i]), "hostname");
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        struct keeper_claim claim = {.head = {.type = KEEPER_CLAIM, .id = 1}};

        CHECK_MAKE(put(make.owner, ids[i]), "owner");
        CHECK_MAKE((make.disk_kind = KEEPER_PERSISTENT, put(make.disk, ids[i])), "disk");
        CHECK(strcmp(fault(&claim, sizeof(claim), true), "owner") == 0, "a claim by nobody");
        put(claim.owner, ids[i]);
        CHECK(strcmp(fault(&claim, sizeof(claim), true), "owner") == 0, "%s", ids[i]);
        for (size_t of = 0; of < sizeof(types) / sizeof(types[0]); of++) {
            struct keeper_of_disk of_disk = {.head = {.type = types[of], .id = 1}};

            CHECK(strcmp(fault(&of_disk, sizeof(of_disk), true), "disk") == 0, "no disk");
            put(of_disk.disk, ids[i]);
            CHECK(strcmp(fault(&of_disk, sizeof(of_disk), true), "disk") == 0, "%s", ids[i]);
        }
    }
}

static void test_targets(void)
{
    static const char *const good[] = {"/a",     "/mnt/a b", "/...",     "/a/..b",
                                       "/procs", "/devices", "/\xc3\xa4"};
    static const char *const bad[] = {"",     "a",         "/",       "/a/",   "//a",
                                      "/.",   "/..",       "/a/../b", "/a/.",  "/proc",
                                      "/dev", "/dev/null", "/sys",    "/a\nb", "/a\x7f"};

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        CHECK_MAKE(put(make.mounts[0].target, good[i]), "");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_MAKE(put(make.mounts[0].target, bad[i]), "target of a mount");
    CHECK_MAKE(memset(make.mounts[0].target + 1, 'a', sizeof(make.mounts[0].target) - 1),
               "target of a mount");
}

static void test_order_and_sizes(void)
{
    struct keeper_hello hello = {.head = {.type = KEEPER_HELLO, .id = 1}, .build = KEEPER_BUILD};
    struct keeper_of_box of_box = {.head = {.type = KEEPER_END, .id = 1}};
    struct keeper_head head = {.type = KEEPER_END, .id = 1};
    struct keeper_make make = {.head = {.type = KEEPER_END, .id = 1}};

    CHECK(strcmp(fault(&hello, sizeof(hello), false), "") == 0, "a hello");
    CHECK(strcmp(fault(&hello, sizeof(hello), true), "a second hello") == 0, "a second hello");
    CHECK(strcmp(fault(&of_box, sizeof(of_box), true), "") == 0, "an end");
    CHECK(strcmp(fault(&of_box, sizeof(of_box), false), "a request before hello") == 0, "early");
    CHECK(fault(&head, sizeof(head), true)[0] != '\0', "too short");
    CHECK(fault(&make, sizeof(make), true)[0] != '\0', "too long");
    CHECK(fault(&head, 3, true)[0] != '\0', "no head");
    CHECK(fault(&head, 0, true)[0] != '\0', "nothing");
    for (uint32_t type = 0; type < 256; type++) {
        head.type = type;
        CHECK((fault(&head, sizeof(head), true)[0] == '\0') ==
                  (type == KEEPER_BEAT || type == KEEPER_DISK_ROOM),
              "type %u", type);
    }
    head.type = UINT32_MAX;
    CHECK(fault(&head, sizeof(head), true)[0] != '\0', "a type beyond");
    head.type = KEEPER_BEAT;
    CHECK(fault(&head, sizeof(head), false)[0] != '\0', "a beat before hello");
    hello.build[0] = 'x';
    CHECK(strcmp(fault(&hello, sizeof(hello), false), "build") == 0, "another build");
    memset(hello.build, 'c', sizeof(hello.build));
    CHECK(strcmp(fault(&hello, sizeof(hello), false), "build") == 0, "a build without end");
}

static void test_network(void)
{
    struct keeper_network_of network = {.head = {.type = KEEPER_NETWORK, .id = 1}};

    for (uint32_t what = 0; what < 8; what++) {
        bool is_one = what >= KEEPER_NETWORK_TCP && what <= KEEPER_NETWORK_DIAG;

        network.what = what;
        CHECK(strcmp(fault(&network, sizeof(network), true), is_one ? "" : "what") == 0, "what %u",
              what);
    }
    network.what = UINT32_MAX;
    CHECK(fault(&network, sizeof(network), true)[0] != '\0', "no such thing");
    network.what = KEEPER_NETWORK_TCP;
    CHECK(fault(&network, sizeof(network), false)[0] != '\0', "before hello");
    CHECK(fault(&network, sizeof(network) - 1, true)[0] != '\0', "too short");
}

static void test_mounts(void)
{
    struct keeper_attach attach = {.head = {.type = KEEPER_ATTACH, .id = 1},
                                   .tenant = "default",
                                   .mount = {.name = "notes", .target = "/notes"}};
    struct keeper_detach detach = {.head = {.type = KEEPER_DETACH, .id = 1}, .target = "/notes"};
    static const char *const targets[] = {"/proc", "/sys/x", "/dev", "/", "", "notes", "/a/../b"};

    CHECK(strcmp(fault(&attach, sizeof(attach), true), "") == 0, "an attach");
    CHECK(strcmp(fault(&detach, sizeof(detach), true), "") == 0, "a detach");
    CHECK(fault(&attach, sizeof(attach), false)[0] != '\0', "before hello");
    for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
        (void)snprintf(attach.mount.target, sizeof(attach.mount.target), "%s", targets[i]);
        (void)snprintf(detach.target, sizeof(detach.target), "%s", targets[i]);
        CHECK(strcmp(fault(&attach, sizeof(attach), true), "target of a mount") == 0, "at %s",
              targets[i]);
        CHECK(strcmp(fault(&detach, sizeof(detach), true), "target of a mount") == 0, "from %s",
              targets[i]);
    }
    (void)snprintf(attach.mount.target, sizeof(attach.mount.target), "/notes");
    attach.mount.read_only = 2;
    CHECK(strcmp(fault(&attach, sizeof(attach), true), "read_only of a mount") == 0, "2");
    attach.mount.read_only = 1;
    attach.tenant[0] = '\0';
    CHECK(strcmp(fault(&attach, sizeof(attach), true), "tenant") == 0, "nobody's");
    (void)snprintf(attach.tenant, sizeof(attach.tenant), "default");
    attach.mount.name[0] = '/';
    CHECK(strcmp(fault(&attach, sizeof(attach), true), "name of a mount") == 0, "a path");
}

static void test_addresses(void)
{
    static const struct {
        const char *text;
        int parsed; /* -1: refused; else whether it is loopback */
    } cases[] = {{"127.0.0.1:7070", 1},
                 {"127.255.0.1:1", 1},
                 {"localhost:80", 1},
                 {"[::1]:80", 1},
                 {"0.0.0.0:80", 0},
                 {"[::]:80", 0},
                 {"10.0.0.1:80", 0},
                 {"[::ffff:127.0.0.1]:80", 0},
                 {"::1:80", -1},
                 {"127.0.0.1", -1},
                 {"127.0.0.1:", -1},
                 {"127.0.0.1:0", 1},
                 {"127.0.0.1:65536", -1},
                 {":80", -1},
                 {"[::1:80", -1},
                 {"[]:80", -1},
                 {"example.org:80", -1},
                 {"", -1},
                 {":", -1}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sockaddr_storage address;
        struct error err;
        unsigned length;
        bool is_loopback = false;
        int parsed = listen_address_parse(cases[i].text, &address, &length, &is_loopback, &err);

        CHECK((parsed < 0 ? -1 : is_loopback) == cases[i].parsed, "%s", cases[i].text);
    }
}

static void test_names(void)
{
    static const char *const good[] = {"a", "0", "_a", "a.b-c_d", "host"};
    static const char *const bad[] = {"", ".", "..", ".a", "-a", "A", "a/b", "a b", "a\n"};

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        CHECK(names_is_name(good[i], 64), "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(!names_is_name(bad[i], 64), "%s", bad[i]);
    CHECK(!names_is_name("abcd", 4), "without an end");
}

static void test_hanging(void)
{
    static struct keeper keeper;

    CHECK(engine_beat_ms(&keeper) * KEEPER_BEATS == KEEPER_HANG_MS, "some beats may be lost");
}

/* ---- a certificate that cannot be read for a while ---- */

static void file_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    bool is_written = file != NULL && fputs(text, file) >= 0;

    if (file != NULL)
        is_written = fclose(file) == 0 && is_written;
    CHECK(is_written, "%s", path);
}

static unsigned lines_said(int log)
{
    char text[8192] = "";
    ssize_t length = pread(log, text, sizeof(text) - 1, 0);
    unsigned lines = 0;

    for (ssize_t i = 0; i < length; i++)
        lines += text[i] == '\n';
    return lines;
}

/* What fails for another reason than the files is tried again each minute, and said once. */
static void test_tls(void)
{
    static struct keeper keeper = {.engine.tls = -1};
    char directory[] = "/tmp/cove-test-tls-XXXXXX", certificate[64], key[64], text[32] = "";
    const uint64_t second = 1000000000, minute = 60 * second;
    struct rlimit all = {0}, none = {0};
    int log = memfd_create("log", MFD_CLOEXEC), before = dup(STDERR_FILENO);
    struct error err;

    CHECK(mkdtemp(directory) != NULL && getrlimit(RLIMIT_NOFILE, &all) == 0, "a place");
    (void)snprintf(certificate, sizeof(certificate), "%s/chain.pem", directory);
    (void)snprintf(key, sizeof(key), "%s/key.pem", directory);
    file_write(certificate, "one\n");
    file_write(key, "secret\n");
    CHECK(chmod(key, 0600) == 0, "its mode");
    keeper.config.tls_certificate = certificate;
    keeper.config.tls_key = key;
    CHECK(tls_read(&keeper, &err) == 0 && keeper.engine.tls >= 0, "%s", err.text);
    file_write(certificate, "two\n");
    none.rlim_max = all.rlim_max;
    CHECK(dup2(log, STDERR_FILENO) == STDERR_FILENO, "a log");
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0, "no fds");
    (void)tls_tick(&keeper, minute);
    (void)tls_tick(&keeper, minute + 2 * second);
    CHECK(keeper.tls.has_failed && lines_said(log) == 1, "it is said: %u", lines_said(log));
    (void)tls_tick(&keeper, 2 * minute + 2 * second);
    CHECK(keeper.tls.has_failed && lines_said(log) == 1, "and once: %u", lines_said(log));
    CHECK(setrlimit(RLIMIT_NOFILE, &all) == 0, "fds");
    (void)tls_tick(&keeper, 2 * minute + 4 * second);
    CHECK(keeper.tls.has_failed, "not before its time");
    (void)tls_tick(&keeper, 3 * minute + 2 * second);
    CHECK(!keeper.tls.has_failed && lines_said(log) == 1, "it is read");
    CHECK(dup2(before, STDERR_FILENO) == STDERR_FILENO, "as it was");
    CHECK(pread(keeper.engine.tls, text, sizeof(text), 0) == 12 && strcmp(text, "two\n") == 0 &&
              strcmp(text + 5, "secret\n") == 0,
          "both");
    (void)unlink(certificate);
    (void)unlink(key);
    (void)rmdir(directory);
    (void)close(keeper.engine.tls);
    (void)close(before);
    (void)close(log);
}

int main(void)
{
    test_tls();
    test_hanging();
    test_make();
    test_words();
    test_targets();
    test_order_and_sizes();
    test_network();
    test_mounts();
    test_addresses();
    test_names();
    return check_finish();
}
