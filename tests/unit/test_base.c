/* Small things of the ground floor: SHA-256 by the examples of FIPS 180-4, rates, and removing a tree that
 * somebody made to be hard to remove. */
#include "base/fd.h"
#include "base/rate.h"
#include "base/remove.h"
#include "base/sha256.h"
#include "check.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- SHA-256 ---- */

static const char *hash_of(const char *data, size_t size, size_t step)
{
    static char text[SHA256_TEXT];
    struct sha256 hash;

    sha256_begin(&hash);
    for (size_t at = 0; at < size; at += step)
        sha256_add(&hash, data + at, size - at < step ? size - at : step);
    sha256_end(&hash, text);
    return text;
}

static void check_sha256(void)
{
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    static const char million[] =
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
    static char as[1000000];
    static const size_t steps[] = {1, 3, 55, 56, 63, 64, 65, 119, 1000000};

    CHECK(strcmp(hash_of("", 0, 1),
                 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855") == 0,
          "of nothing");
    CHECK(strcmp(hash_of("abc", 3, 3),
                 "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == 0,
          "of one block");
    CHECK(strcmp(hash_of(two, 56, 56),
                 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1") == 0,
          "of two blocks");
    memset(as, 'a', sizeof(as));
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        CHECK(strcmp(hash_of(as, sizeof(as), steps[i]), million) == 0, "in steps of %zu", steps[i]);
}

/* Around each length at which the padding changes, whole and byte by byte. */
static void check_sha256_in_parts(void)
{
    char data[200], whole[SHA256_TEXT];

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)(i * 7);
    for (size_t size = 0; size <= sizeof(data); size++) {
        (void)snprintf(whole, sizeof(whole), "%s", hash_of(data, size, 200));
        CHECK(strcmp(whole, hash_of(data, size, 1)) == 0, "%zu bytes", size);
    }
}

/* ---- removing ---- */

static char top[] = "/tmp/cove-test-base-XXXXXX";
static int top_fd;

static void make(int dir, const char *name)
{
    _cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0);

    CHECK(fd >= 0, "%s", name);
}

static bool is_there(const char *name)
{
    struct stat st;

    return fstatat(top_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void check_simple_trees(void)
{
    CHECK(remove_tree(top_fd, "nothing") == 0, "what is not there");
    make(top_fd, "file");
    CHECK(remove_tree(top_fd, "file") == 0 && !is_there("file"), "a file");
    (void)mkdirat(top_fd, "kept", 0755);
    (void)!symlinkat("kept", top_fd, "link");
    CHECK(remove_tree(top_fd, "link") == 0 && is_there("kept"), "a link is not followed");
    (void)mkdirat(top_fd, "tree", 0755);
    (void)mkdirat(top_fd, "tree/d", 0755);
    (void)!symlinkat("../../kept", top_fd, "tree/d/link");
    (void)!symlinkat("/", top_fd, "tree/root");
    make(top_fd, "kept/file");
    make(top_fd, "tree/d/file");
    CHECK(remove_tree(top_fd, "tree") == 0 && !is_there("tree") && is_there("kept/file"),
          "links inside are not followed");
    CHECK(remove_tree(top_fd, "kept") == 0 && !is_there("kept"), "a directory");
}

/* A remover that was killed goes on until it notices. */
static void check_two_removers(void)
{
    int go[2], status;
    pid_t other;
    char name[32];

    (void)mkdirat(top_fd, "both", 0755);
    for (unsigned i = 0; i < 400; i++) {
        (void)snprintf(name, sizeof(name), "both/%u", i);
        (void)mkdirat(top_fd, name, 0755);
        (void)snprintf(name, sizeof(name), "both/%u/file", i);
        make(top_fd, name);
    }
    CHECK(pipe2(go, O_CLOEXEC) == 0, "a pipe");
    other = fork();
    if (other == 0) {
        (void)close(go[1]);
        (void)!read(go[0], name, 1);
        _exit(remove_tree(top_fd, "both") == 0 ? 0 : 1);
    }
    (void)close(go[0]);
    (void)close(go[1]); /* both begin */
    CHECK(remove_tree(top_fd, "both") == 0 && !is_there("both"), "this one");
    CHECK(waitpid(other, &status, 0) == other && status == 0, "the other");
}

/* Nobody but root reads a directory of mode 0; its owner may change that. */
static void check_modes(void)
{
    (void)mkdirat(top_fd, "closed", 0755);
    (void)mkdirat(top_fd, "closed/a", 0755);
    make(top_fd, "closed/a/file");
    (void)!fchmodat(top_fd, "closed/a", 0, 0);
    (void)!fchmodat(top_fd, "closed", 0500, 0);
    if (geteuid() == 0)
        CHECK(seteuid(65534) == 0 && remove_tree(top_fd, "closed") < 0 && seteuid(0) == 0,
              "somebody else's was removed");
    CHECK(remove_tree(top_fd, "closed") == 0 && !is_there("closed"), "a closed tree");
}

static void check_deep_trees(unsigned depth)
{
    int at = dup(top_fd);
    unsigned made = 0;

    for (; made < depth; made++) {
        int next;

        if (mkdirat(at, "deep", 0755) < 0)
            break;
        make(at, "file");
        next = openat(at, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)close(at);
        at = next;
    }
    (void)close(at);
    CHECK(made == depth, "made %u", made);
    CHECK(remove_tree(top_fd, "deep") == 0 && !is_there("deep"), "%u levels", depth);
    (void)unlinkat(top_fd, "file", 0);
}

/* Branches at each level, each too deep. */
static void check_many_deep_branches(void)
{
    int at;

    (void)mkdirat(top_fd, "wide", 0755);
    at = openat(top_fd, "wide", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int level = 0; level < 60; level++) {
        int next;

        for (int i = 0; i < 4; i++) {
            char name[32];

            (void)snprintf(name, sizeof(name), "%d", i);
            (void)mkdirat(at, name, 0700);
            (void)snprintf(name, sizeof(name), "%d/.remove-%d", i, i);
            make(at, name);
        }
        next = openat(at, "3", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)close(at);
        at = next;
    }
    (void)close(at);
    CHECK(remove_tree(top_fd, "wide") == 0 && !is_there("wide"), "branches");
}

/* ---- rates ---- */

#define SECOND 1000000000ULL

static unsigned taken(struct rate *rate, unsigned at_once, uint64_t now_ns)
{
    unsigned count = 0;

    while (count < 1000 && rate_take(rate, 2, at_once, now_ns))
        count++;
    return count;
}

static void check_rates(void)
{
    struct rate rate = {0};
    uint64_t now = 5 * SECOND;
    unsigned count = 0;

    CHECK(taken(&rate, 3, 1) == 3, "of zeros it is full");
    CHECK(taken(&rate, 3, now) == 3, "and after seconds again");
    CHECK(taken(&rate, 3, now + SECOND / 2 - 1) == 0, "the next is not there yet");
    CHECK(taken(&rate, 3, now + SECOND / 2) == 1, "it comes half a second later");
    CHECK(taken(&rate, 3, now + 1000 * SECOND) == 3, "no more than that at once");
    CHECK(taken(&rate, 9, now + 1001 * SECOND) == 2, "what is allowed at once may grow");
    CHECK(taken(&rate, 9, now + 9999 * SECOND) == 9 &&
              rate_left(&rate, 2, 9, now + 10001 * SECOND) == 4 &&
              rate_left(&rate, 2, 1, now + 10001 * SECOND) == 1,
          "or shrink");
    rate = (struct rate){0};
    for (uint64_t at = 0; at < 10 * SECOND; at += SECOND * 3 / 16)
        count += taken(&rate, 3, now + at);
    CHECK(count == 3 + 19, "time that passed between two is not lost: %u", count);
    CHECK(rate_left(&rate, 0, 1, now + 99 * SECOND) == 0, "none comes");
    CHECK(rate_left(&rate, UINT64_MAX, UINT64_MAX, UINT64_MAX) == UINT64_MAX, "the most there is");
}

/* Of a rate that no nanosecond divides, asked for at any time, there is never more than it says. */
static void check_a_rate_of_bytes(void)
{
    struct rate rate = {0};
    const uint64_t each = 300000007, burst = 1000;
    uint64_t sum = 0, start = SECOND, now = start;

    for (unsigned i = 0; i < 100000; i++) {
        uint64_t left = rate_left(&rate, each, burst, now);

        sum += left;
        rate.left -= left;
        now += 1000 + 100 * (i % 13);
    }
    CHECK(sum <= burst + (now - start) * each / SECOND, "%llu bytes", (unsigned long long)sum);
    CHECK(sum >= (now - start) / 100 * 99 * each / SECOND, "%llu bytes", (unsigned long long)sum);
}

int main(void)
{
    check_rates();
    check_a_rate_of_bytes();
    check_sha256();
    check_sha256_in_parts();
    if (mkdtemp(top) == NULL || (top_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        perror(top);
        return 1;
    }
    check_simple_trees();
    for (unsigned i = 0; i < 3; i++)
        check_two_removers();
    check_modes();
    check_deep_trees(10);
    check_deep_trees(17);
    check_deep_trees(3000);
    check_many_deep_branches();
    (void)close(top_fd);
    CHECK(rmdir(top) == 0, "%s is left", top);
    return check_finish();
}
