/* The fake addresses of names: one number for one name for ever, across reopening, torn lines, full disks
 * and full lists; and never a second name for a number. */
#include "check.h"

#include "base/fd.h"
#include "net/parts.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* A file without a name; opened again it is another open file, as after a restart. */
static int file_new(const char *text, size_t size)
{
    int fd = memfd_create("names", MFD_CLOEXEC);

    (void)fd_write_full(fd, text, size);
    return fd;
}

static int file_again(int fd)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_APPEND | O_CLOEXEC);
}

static off_t file_size(int fd)
{
    return lseek(fd, 0, SEEK_END);
}

static struct names *opened(int fd)
{
    struct names *names = NULL;
    struct error err = {0};

    CHECK(names_open(file_again(fd), &names, &err) == 0, "%s", err.text);
    return names;
}

static void test_numbers(void)
{
    _cleanup_close_ int fd = file_new("", 0);
    struct names *names = opened(fd);
    struct error err;
    bool is_new;

    CHECK(names_take(names, "a.example", &is_new, &err) == 2 && is_new, "the first is 2");
    CHECK(names_take(names, "b.example", &is_new, &err) == 3 && is_new, "then 3");
    CHECK(names_take(names, "a.example", &is_new, &err) == 2 && !is_new, "as before");
    CHECK(names_find(names, 0) == NULL && names_find(names, 1) == NULL, "nobody's");
    CHECK(names_find(names, 4) == NULL && names_find(names, UINT32_MAX) == NULL, "never given");
    CHECK(strcmp(names_find(names, 3), "b.example") == 0, "back");
    CHECK(names_look(names, "b.example") == 3 && names_look(names, "c.example") == 0, "by name");
    CHECK(names_take(names, "c\nd", &is_new, &err) == -1 &&
              names_take(names, "", &is_new, &err) == -1,
          "what is no name");
    names_close(names);
    names = opened(fd);
    CHECK(names_take(names, "c.example", &is_new, &err) == 4 && is_new, "goes on");
    CHECK(names_take(names, "b.example", &is_new, &err) == 3 && !is_new, "known");
    names_close(names);
}

/* The file cut at each place: what was whole stays, and the rest is as if it had never been. */
static void test_torn(void)
{
    static const char whole[] = "a.example\nbb.example\nccc.example\n";

    for (size_t size = 0; size < sizeof(whole); size++) {
        _cleanup_close_ int fd = file_new(whole, size);
        struct names *names = opened(fd);
        struct error err;
        bool is_new;
        int lines = 0;

        for (size_t i = 0; i < size; i++)
            lines += whole[i] == '\n';
        CHECK(names_take(names, "new.example", &is_new, &err) == 2 + lines && is_new, "at %zu",
              size);
        names_close(names);
        names = opened(fd);
        CHECK(names_look(names, "new.example") == (uint32_t)(2 + lines), "at %zu, again", size);
        CHECK(names_find(names, (uint32_t)(3 + lines)) == NULL, "at %zu, no more", size);
        names_close(names);
    }
}

static void test_damaged(void)
{
#define FILE_OF(text)          \
    {                          \
        text, sizeof(text) - 1 \
    }
    static const struct {
        const char *text;
        size_t size;
    } files[] = {
        FILE_OF("a.example\n\nb.example\n"),
        FILE_OF("a.example\nA.example\n"),
        FILE_OF("a.example\nb.example\na.example\n"),
        FILE_OF("a.ex\0ple\nb\n"),
        FILE_OF("a.example\nb c\n"),
        FILE_OF("a.example.\n"),
        FILE_OF("\n"),
    };

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        _cleanup_close_ int fd = file_new(files[i].text, files[i].size);
        struct names *names = NULL;
        struct error err = {0};

        CHECK(names_open(file_again(fd), &names, &err) == -1, "file %zu", i);
        CHECK(strcmp(err.code, "names_damaged") == 0, "file %zu: %s", i, err.code);
        CHECK(file_size(fd) == (off_t)files[i].size, "file %zu was changed", i);
    }
    {
        _cleanup_close_ int fd = file_new("a.example\n\0\0\0\0", 14);
        struct names *names = opened(fd);

        CHECK(names_look(names, "a.example") == 2 && file_size(fd) == 10, "zeros are no line");
        names_close(names);
    }
}

static void test_full_of_long_ones(void)
{
    _cleanup_close_ int fd = file_new("", 0);
    struct names *names = opened(fd);
    struct error err = {0};
    char name[128];
    bool is_new;
    unsigned count = 0;

    do {
        (void)snprintf(name, sizeof(name), "n%050u.%060u.example", count, count);
    } while (names_take(names, name, &is_new, &err) > 0 && ++count < NET_NAMES_MAX);
    CHECK(strcmp(err.code, "names_full") == 0 && count > 1000, "%u, %s", count, err.code);
    CHECK(names_size(names) <= NET_NAMES_BYTES &&
              names_take(names, "short.example", &is_new, &err) != 0,
          "%zu", names_size(names));
    names_close(names);
}

static void test_full(void)
{
    _cleanup_close_ int fd = file_new("", 0);
    struct names *names = opened(fd);
    struct error err = {0};
    char name[32];
    bool is_new;
    int wrong = 0;

    for (int i = 0; i < NET_NAMES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "n%d.example", i);
        wrong += names_take(names, name, &is_new, &err) != 2 + i;
    }
    CHECK(wrong == 0, "%d", wrong);
    CHECK(names_take(names, "one.more", &is_new, &err) == -1 && strcmp(err.code, "names_full") == 0,
          "%s", err.code);
    CHECK(names_take(names, "n7.example", &is_new, &err) == 9 && !is_new, "those that are there");
    names_close(names);
    names = opened(fd);
    CHECK(names_look(names, "n16383.example") == 2 + NET_NAMES_MAX - 1, "the last of them");
    CHECK(names_take(names, "one.more", &is_new, &err) == -1, "still full");
    names_close(names);
    (void)fd_write_full(fd, "one.more\n", 9);
    CHECK(names_open(file_again(fd), &names, &err) == -1, "one too many");
}

/* A disk that takes half a line: the half is taken back, and the number goes to whoever comes next. */
static void test_disk_full(void)
{
    char path[] = "/tmp/cove-test-names-XXXXXX";
    _cleanup_close_ int fd = mkostemp(path, O_CLOEXEC);
    struct rlimit was, limit;
    struct names *names;
    struct error err = {0};
    bool is_new;

    (void)unlink(path);
    CHECK(fd >= 0, "no file");
    names = opened(fd);
    CHECK(names_take(names, "a.example", &is_new, &err) == 2, "%s", err.text);
    (void)signal(SIGXFSZ, SIG_IGN);
    (void)getrlimit(RLIMIT_FSIZE, &was);
    limit = was;
    limit.rlim_cur = 15;
    (void)setrlimit(RLIMIT_FSIZE, &limit);
    CHECK(names_take(names, "longer.example", &is_new, &err) == -1 && !is_new, "written?");
    CHECK(strcmp(err.code, "names_failed") == 0, "%s", err.code);
    CHECK(names_look(names, "longer.example") == 0 && names_find(names, 3) == NULL, "forgotten");
    CHECK(names_take(names, "a.example", &is_new, &err) == 2, "those that are there");
    (void)setrlimit(RLIMIT_FSIZE, &was);
    CHECK(file_size(fd) == 10, "%lld", (long long)file_size(fd));
    CHECK(names_take(names, "b.example", &is_new, &err) == 3 && is_new, "%s", err.text);
    names_close(names);
    names = opened(fd);
    CHECK(names_look(names, "b.example") == 3 && names_look(names, "longer.example") == 0, "after");
    names_close(names);
}

static void test_addresses(void)
{
    struct policy_address address;
    char text[POLICY_ADDRESS_TEXT];
    uint32_t number = 0;

    memset(&address, 0, sizeof(address));
    address.bytes[10] = address.bytes[11] = 0xff;
    names_address4(258, address.bytes + 12);
    policy_address_text(&address, text);
    CHECK(strcmp(text, "198.18.1.2") == 0, "%s", text);
    CHECK(names_number(&address, &number) && number == 258, "%u", number);
    names_address4((1U << 17) - 1, address.bytes + 12);
    CHECK(names_number(&address, &number) && number == (1U << 17) - 1, "198.19.255.255");
    names_address6(258, address.bytes);
    policy_address_text(&address, text);
    CHECK(strcmp(text, "fd63:6f76:6500::102") == 0, "%s", text);
    CHECK(names_number(&address, &number) && number == 258, "%u", number);
    static const char *const others[] = {
        "198.17.255.255",      "198.20.0.0",          "8.8.8.8",     "::1", "fd63:6f76:6500:1::102",
        "fd63:6f76:6501::102", "fd63:6f76:6500::2:0", "::198.18.0.2"};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        CHECK(policy_address_parse(others[i], &address) == 0, "%s", others[i]);
        CHECK(!names_number(&address, &number), "%s is none", others[i]);
    }
}

int main(void)
{
    test_numbers();
    test_torn();
    test_damaged();
    test_full();
    test_full_of_long_ones();
    test_disk_full();
    test_addresses();
    return check_finish();
}
