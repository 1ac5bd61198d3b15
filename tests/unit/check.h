/* What a unit test program needs: checks that are counted, and a closing line.
 *
 * A check that fails prints where it stands and what did not hold; the program goes on. A program that is told to end,
 * for it took too long, prints where it stood. One program includes this in one file. */
#pragma once

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static unsigned check_passed, check_failed;
static pid_t check_pid;

void __sanitizer_print_stack_trace(void) __attribute__((weak));

static void check_stood(int number)
{
    if (getpid() == check_pid && __sanitizer_print_stack_trace) {
        __sanitizer_print_stack_trace();
    }
    signal(number, SIG_DFL);
    raise(number);
}

__attribute__((constructor)) static void check_start(void)
{
    check_pid = getpid();
    signal(SIGTERM, check_stood);
}

#define CHECK(condition, ...)                                              \
    do {                                                                   \
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
