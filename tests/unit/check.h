/* Checks that are counted, and a closing line: each unit test program includes this in one file.
 *
 * A check that fails prints where it stands and what did not hold; the program goes on. A program that is told to end,
 * for it took too long, prints its last check, and under a sanitizer where it stood. */
#pragma once

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static unsigned check_passed, check_failed;
static pid_t check_pid;
static const char *check_file = __FILE__; /* of the last check */
static int check_line;

void __sanitizer_print_stack_trace(void) __attribute__((weak));

static void check_stood(int number)
{
    signal(number, SIG_DFL);
    if (getpid() == check_pid) {
        alarm(2); /* it may hang in what is needed to print */
        dprintf(STDERR_FILENO, "ended after the check of %s:%d\n", check_file, check_line);
        if (__sanitizer_print_stack_trace)
            __sanitizer_print_stack_trace();
    }
    raise(number);
}

__attribute__((constructor)) static void check_start(void)
{
    check_pid = getpid();
    signal(SIGTERM, check_stood);
}

#define CHECK(condition, ...)                                              \
    do {                                                                   \
        check_file = __FILE__, check_line = __LINE__;                      \
        if (condition) {                                                   \
            check_passed++;                                                \
        } else {                                                           \
            check_failed++;                                                \
            printf("%s:%d: failed: %s: ", __FILE__, __LINE__, #condition); \
            printf(__VA_ARGS__);                                           \
            putchar('\n');                                                 \
        }                                                                  \
    } while (0)

/* Prints the closing line; what main() returns. No check at all is a failure, too. */
static inline int check_finish(void)
{
    printf("%u passed, %u failed\n", check_passed, check_failed);
    return check_failed > 0 || check_passed == 0;
}
