/* The hand-over of a keeper: what was written is what is read, and what is cut, changed, of another format
 * or not open is refused, whatever it names. Whole upgrades are in tests/keeper/test_upgrade.py. */
#include "base/fd.h"
#include "base/hand.h"
#include "check.h"
#include "keeper/handover.h"
#include "keeper/keeper.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct keeper *empty(void)
{
    struct keeper *keeper = calloc(1, sizeof(*keeper));

    if (keeper == NULL)
        abort();
    names_begin(&keeper->names);
    keeper->places = (struct places){.data = -1, .engine = -1, .disks = -1};
    keeper->listeners.keeper = keeper->notify.socket = keeper->engine.config =
        keeper->engine.headers = keeper->engine.tls = -1;
    keeper->slots.pool.lock = keeper->slots.home = keeper->slots.janitor = keeper->slots.host.v2 =
        -1;
    return keeper;
}

/* With one of each: fds are of /dev/null, which is as good as any to be handed on. */
static int any(void)
{
    return open("/dev/null", O_RDWR | O_CLOEXEC);
}

static struct keeper *full(void)
{
    struct keeper *keeper = empty();

    strcpy(keeper->program, "/usr/libexec/cove/cove-keeper");
    strcpy(keeper->ids_kind, "range");
    strcpy(keeper->places.data_path, "/var/lib/cove");
    keeper->places.data = any();
    keeper->places.engine = any();
    keeper->places.disks = any();
    keeper->listeners.api[0] = any();
    keeper->listeners.api_count = 1;
    keeper->listeners.keeper = any();
    keeper->slots.janitor = any();
    keeper->slots.janitor_pid = 77;
    keeper->slots.pool.taken[3] = 0x42;
    keeper->slots.pool.lock = any();
    keeper->names.table[0] = (struct name){.kind = KEEPER_ROOT,
                                           .is_there = true,
                                           .generation = 9,
                                           .fd = any(),
                                           .inode = 12345678901ULL,
                                           .name = "debian",
                                           .tenants = "default,team-a",
                                           .path = strdup("/srv/debian")};
    keeper->names.table_used = 2; /* the second was removed */
    keeper->engine.uid = 524288;
    keeper->engine.config = any();
    keeper->engine.headers = any();
    keeper->engine.tls = any();
    keeper->disks.sweeper.pid = 4711;
    keeper->mounts.table[3] = (struct mount_change){.pid = 4712,
                                                    .socket = any(),
                                                    .is_attach = true,
                                                    .box = 7,
                                                    .mount = {"notes", "/mnt/notes", 1, 0},
                                                    .inode = 12345678902ULL,
                                                    .mount_id = 99};
    keeper->disks.claims.lacks = true;
    disk_claims_add(&keeper->disks.claims, "c0eeeeeeeeeeeeeeeeee", any());
    disk_claims_add(&keeper->disks.claims, "c0dddddddddddddddddd", any());
    return keeper;
}

static void close_all(struct keeper *keeper)
{
    int *owned[] = {&keeper->places.data,      &keeper->places.engine,    &keeper->places.disks,
                    &keeper->listeners.api[0], &keeper->listeners.keeper, &keeper->slots.janitor,
                    &keeper->slots.pool.lock,  &keeper->engine.config,    &keeper->slots.home,
                    &keeper->slots.host.v2,    &keeper->notify.socket,    &keeper->engine.headers,
                    &keeper->engine.tls};

    for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
        fd_close(owned[i]);
    handover_drop(keeper);
    free(keeper);
}

static void write_all(struct hand *hand, struct keeper *keeper)
{
    struct error err;

    hand_begin(hand, HANDOVER_FORMAT);
    handover_all(hand, keeper);
    CHECK(hand_end(hand, &err) == 0, "%s", err.text);
}

/* What is wrong with it; "" for nothing. */
static const char *fault(const void *data, size_t size, bool is_trial, struct keeper **out)
{
    static struct error err;
    struct keeper *keeper = empty();
    struct hand hand;

    hand_read(&hand, data, size, HANDOVER_FORMAT);
    hand.is_trial = is_trial;
    handover_all(&hand, keeper);
    err = (struct error){0};
    (void)hand_end(&hand, &err);
    hand_free(&hand);
    if (out != NULL) {
        *out = keeper;
    } else {
        keeper->listeners.api[0] = keeper->listeners.api_count == 0 ? -1 : keeper->listeners.api[0];
        close_all(keeper);
    }
    return err.text;
}

static void test_what_is_written_is_read(void)
{
    struct keeper *before = full(), *after;
    struct hand hand;
    int fd = before->names.table[0].fd;

    write_all(&hand, before);
    CHECK(strcmp(fault(hand.data, hand.size, false, &after), "") == 0, "%s",
          fault(hand.data, hand.size, true, NULL));
    CHECK(after->slots.janitor == before->slots.janitor && after->slots.janitor_pid == 77 &&
              after->slots.pool.taken[3] == 0x42 && after->engine.uid == 524288 &&
              after->disks.sweeper.pid == 4711 && strcmp(after->program, before->program) == 0,
          "numbers, texts and fds");
    CHECK(after->names.table_used == 1 && after->names.table[0].fd == fd &&
              after->names.table[0].generation == 9 &&
              after->names.table[0].inode == 12345678901ULL &&
              strcmp(after->names.table[0].path, "/srv/debian") == 0 &&
              strcmp(after->names.table[0].name, "debian") == 0 &&
              strcmp(after->names.table[0].tenants, "default,team-a") == 0,
          "names");
    CHECK(after->mounts.table[0].pid == 4712 && after->mounts.table[1].pid == 0 &&
              after->mounts.table[0].socket == before->mounts.table[3].socket &&
              after->mounts.table[0].is_attach && after->mounts.table[0].box == 7 &&
              strcmp(after->mounts.table[0].mount.name, "notes") == 0 &&
              strcmp(after->mounts.table[0].mount.target, "/mnt/notes") == 0 &&
              after->mounts.table[0].mount.read_only == 1 &&
              after->mounts.table[0].inode == 12345678902ULL &&
              after->mounts.table[0].mount_id == 99,
          "a mount that hangs");
    CHECK(after->disks.claims.count == 2 && after->disks.claims.lacks &&
              disk_claims_find(&after->disks.claims, "c0dddddddddddddddddd") >= 0 &&
              disk_claims_find(&after->disks.claims, "c0dddddddddddddddddd") ==
                  disk_claims_find(&before->disks.claims, "c0dddddddddddddddddd"),
          "the ids of disks");
    CHECK(after->engine.headers == before->engine.headers && after->engine.headers >= 0, "headers");
    CHECK(after->engine.tls == before->engine.tls && after->engine.tls >= 0, "tls");
    /* The two have the same fds. */
    after->mounts.table[0].pid = 0;
    after->disks.claims.count = 0;
    after->names.table[0].fd = -1;
    handover_drop(after);
    free(after);
    hand_free(&hand);
    close_all(before);
}

static void test_what_is_cut_or_wrong_is_refused(void)
{
    struct keeper *before = full();
    struct hand hand;

    write_all(&hand, before);
    for (size_t size = 0; size < hand.size; size += size < 64 || size + 64 > hand.size ? 1 : 61)
        CHECK(fault(hand.data, size, true, NULL)[0] != '\0', "%zu bytes of %zu are taken", size,
              hand.size);
    hand.data[0] ^= 1;
    CHECK(strstr(fault(hand.data, hand.size, true, NULL), "no hand-over") != NULL, "magic");
    hand.data[0] ^= 1;
    hand.data[16] ^= 1; /* the format, behind the magic */
    CHECK(strstr(fault(hand.data, hand.size, true, NULL), "another format") != NULL, "format");
    hand.data[16] ^= 1;
    close_all(before); /* what is named is not open any more */
    CHECK(strstr(fault(hand.data, hand.size, false, NULL), "not open") != NULL, "closed fds");
    hand_free(&hand);
}

/* Keepers that were written down by the program that had HANDOVER_FORMAT first, with boxes and without. A
 * change of what is handed on is another format: where these are refused, raise it, and have
 * tests/keeper/test_upgrade.py make new ones. */
static void test_what_was_written_once_is_read(const char *corpus, const char *name, size_t boxes)
{
    static char data[65536];
    struct keeper *keeper;
    char path[PATH_MAX];
    const char *wrong;
    ssize_t size;

    (void)snprintf(path, sizeof(path), "%s/%s", corpus, name);
    size = fd_read_file(AT_FDCWD, path, data, sizeof(data));
    CHECK(size > 0, "cannot read %s", path);
    wrong = fault(data, size > 0 ? (size_t)size : 0, true, &keeper);
    CHECK(wrong[0] == '\0', "%s: %s", path, wrong);
    CHECK(keeper->boxes.count == boxes, "%s: %zu boxes", path, keeper->boxes.count);
    close_all(keeper);
}

static void test_numbers_texts_and_fds_are_bounded(void)
{
    struct hand hand;
    struct error err;
    uint64_t number = 8;
    char text[] = "abcd", *none = NULL;
    int twice = any();

    hand_begin(&hand, 1);
    hand_u64(&hand, &number, 7);
    CHECK(hand_end(&hand, &err) < 0 && strstr(err.text, "too large") != NULL, "%s", err.text);
    hand_free(&hand);
    hand_begin(&hand, 1);
    hand_text(&hand, text, 4);
    CHECK(hand_end(&hand, &err) < 0 && strstr(err.text, "too long") != NULL, "%s", err.text);
    hand_free(&hand);
    hand_begin(&hand, 1);
    hand_fd(&hand, &twice);
    hand_fd(&hand, &twice);
    CHECK(hand_end(&hand, &err) < 0 && strstr(err.text, "twice") != NULL, "%s", err.text);
    hand_free(&hand);
    hand_begin(&hand, 1);
    hand_string(&hand, &none, 10);
    number = 7;
    hand_u64(&hand, &number, 7);
    CHECK(hand_end(&hand, &err) == 0, "%s", err.text);
    hand_free(&hand);
    fd_close(&twice);
}

static void test_only_what_is_sealed_is_opened(void)
{
    struct keeper *keeper = full();
    _cleanup_close_ int loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    _cleanup_close_ int sealed = -1;
    const void *data;
    struct hand hand;
    struct error err;
    size_t size;

    write_all(&hand, keeper);
    CHECK(fd_write_full(loose, hand.data, hand.size) == 0, "a memfd");
    CHECK(hand_open(loose, &data, &size, &err) < 0, "one that can still be changed");
    CHECK(hand_open(STDIN_FILENO, &data, &size, &err) < 0, "no memfd");
    sealed = hand_seal(&hand, &err);
    CHECK(sealed >= 0 && hand_open(sealed, &data, &size, &err) == 0, "%s", err.text);
    CHECK(size == hand.size && memcmp(data, hand.data, size) == 0, "other bytes");
    (void)munmap((void *)(uintptr_t)data, size);
    hand_keep(&hand, sealed, true);
    CHECK(fcntl(sealed, F_GETFD) == 0 && fcntl(keeper->slots.janitor, F_GETFD) == 0 &&
              fcntl(keeper->names.table[0].fd, F_GETFD) == 0,
          "not kept over execve()");
    hand_keep(&hand, sealed, false);
    CHECK(fcntl(sealed, F_GETFD) == FD_CLOEXEC &&
              fcntl(keeper->slots.janitor, F_GETFD) == FD_CLOEXEC,
          "kept where there was none");
    hand_free(&hand);
    close_all(keeper);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    test_what_is_written_is_read();
    test_what_is_cut_or_wrong_is_refused();
    test_what_was_written_once_is_read(argv[1], "boxes", 5);
    test_what_was_written_once_is_read(argv[1], "none", 0);
    test_numbers_texts_and_fds_are_bounded();
    test_only_what_is_sealed_is_opened();
    return check_finish();
}
