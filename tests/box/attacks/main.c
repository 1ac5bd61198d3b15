/* The program that attacks a box from inside: `attack ENTRY [WORD...]` runs the attacks of one
 * entry, `attack posture` prints what a command can see of itself, `attack layers` the version of
 * Landlock and how many layers of it a program can add, `attack holes` which calls it can make that
 * holes of the kernel needed. Exit status 0 when every wall held. */
#include "attack.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int entry, words_count, open_walls;
static char **words;

const char *attack_word(int index, const char *otherwise)
{
    return index < words_count ? words[index] : otherwise;
}

long attack_number(int index, long otherwise)
{
    return index < words_count ? strtol(words[index], NULL, 0) : otherwise;
}

static const char *errno_name(int error)
{
    static const struct {
        int number;
        const char *name;
    } names[] = {
        {EPERM, "EPERM"},
        {EACCES, "EACCES"},
        {ENOENT, "ENOENT"},
        {EROFS, "EROFS"},
        {ENOSYS, "ENOSYS"},
        {EINVAL, "EINVAL"},
        {EAGAIN, "EAGAIN"},
        {ENOMEM, "ENOMEM"},
        {ENOSPC, "ENOSPC"},
        {EMFILE, "EMFILE"},
        {ENFILE, "ENFILE"},
        {ESRCH, "ESRCH"},
        {EEXIST, "EEXIST"},
        {EXDEV, "EXDEV"},
        {ENXIO, "ENXIO"},
        {EIO, "EIO"},
        {EFAULT, "EFAULT"},
        {ENOTTY, "ENOTTY"},
        {ENODATA, "ENODATA"},
        {EOPNOTSUPP, "EOPNOTSUPP"},
        {EBUSY, "EBUSY"},
        {ENODEV, "ENODEV"},
        {ENOTDIR, "ENOTDIR"},
        {ETXTBSY, "ETXTBSY"},
        {EBADF, "EBADF"},
        {E2BIG, "E2BIG"},
        {ENETUNREACH, "ENETUNREACH"},
        {ECONNREFUSED, "ECONNREFUSED"},
        {EAFNOSUPPORT, "EAFNOSUPPORT"},
        {EPROTONOSUPPORT, "EPROTONOSUPPORT"},
        {ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"},
        {ETOOMANYREFS, "ETOOMANYREFS"},
        {EOVERFLOW, "EOVERFLOW"},
        {ENOBUFS, "ENOBUFS"},
        {ENOPROTOOPT, "ENOPROTOOPT"},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].number == error)
            return names[i].name;
    return strerror(error);
}

static void print_string(const char *text)
{
    (void)putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            (void)putchar('\\');
        if ((unsigned char)*text >= 0x20 && (unsigned char)*text < 0x7f)
            (void)putchar(*text);
    }
    (void)putchar('"');
}

void attack_check(const char *what, bool walled, const char *fmt, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, arguments);
    va_end(arguments);
    (void)printf("{\"entry\": %d, \"check\": ", entry);
    print_string(what);
    (void)printf(", \"result\": ");
    print_string(text);
    (void)printf(", \"walled\": %s}\n", walled ? "true" : "false");
    (void)fflush(stdout);
    open_walls += !walled;
}

void attack_value(const char *what, long long value)
{
    (void)printf("{\"entry\": %d, \"check\": ", entry);
    print_string(what);
    (void)printf(", \"value\": %lld, \"walled\": true}\n", value);
    (void)fflush(stdout);
}

void attack_refused(const char *what, long result, const int *errnos)
{
    int error = errno;
    bool expected = false;

    for (; *errnos != 0; errnos++)
        expected = expected || *errnos == error;
    if (result >= 0)
        attack_check(what, false, "it worked: %ld", result);
    else
        attack_check(what, expected, "%s", errno_name(error));
}

int attack_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);

    if (fd >= 0)
        (void)close(fd);
    return fd;
}

int attack_child(int (*function)(void *), void *argument)
{
    int status = -1;
    pid_t child = fork();

    if (child == 0)
        _exit(function(argument));
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return status;
}

bool attack_is_root(void)
{
    return geteuid() == 0;
}

static int run_table(const struct attack *table)
{
    int found = 0;

    for (; table->run != NULL; table++) {
        if (table->entry == entry) {
            table->run();
            found++;
        }
    }
    return found;
}

int main(int argc, char **argv)
{
    const struct attack *const tables[] = {
        resources_attacks,  bombs_attacks,  filesystem_attacks, proc_attacks,
        namespaces_attacks, calls_attacks,  processes_attacks,  leaks_attacks,
        overshoot_attacks,  hiding_attacks, watching_attacks};
    int found = 0;

    if (argc < 2) {
        (void)fprintf(
            stderr,
            "usage: attack ENTRY [WORD...] | attack posture | attack layers | attack holes\n");
        return 2;
    }
    if (strcmp(argv[1], "posture") == 0)
        return posture_print();
    if (strcmp(argv[1], "layers") == 0)
        return printf("%ld %d\n", syscall(SYS_landlock_create_ruleset, NULL, 0, 1),
                      posture_layers()) < 0;
    if (strcmp(argv[1], "holes") == 0)
        return holes_print();
    entry = atoi(argv[1]);
    words = argv + 2;
    words_count = argc - 2;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        found += run_table(tables[i]);
    if (found == 0) {
        (void)fprintf(stderr, "attack: there is no entry %s\n", argv[1]);
        return 2;
    }
    return open_walls == 0 ? 0 : 1;
}
