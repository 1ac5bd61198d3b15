/* What a unit test program needs: checks that are counted, and a closing line.
 *
 * A check that fails prints where it stands and what did not hold; the program goes on. One program
 * includes this in one file. */
#pragma once

#include <stdio.h>

static unsigned check_passed, check_failed;

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
