/* What all attacks share: how they say what came of an attempt.
 *
 * An attack runs inside a box and prints one line of JSON per check. What must have happened is
 * decided here, beside the attempt, with the exact errno where the wall is ours; what must not have
 * happened outside is for the test that started the box. An attack must do no harm where a wall is
 * missing: it asks for nothing whose success would change the host. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct attack {
    int entry; /* of the list of escapes and abuses; tests name it */
    void (*run)(void);
};

extern const struct attack resources_attacks[], bombs_attacks[], filesystem_attacks[],
    proc_attacks[], namespaces_attacks[], calls_attacks[], processes_attacks[], leaks_attacks[],
    overshoot_attacks[], hiding_attacks[], watching_attacks[];

/* The words after the entry on the command line, or the default. */
const char *attack_word(int index, const char *otherwise);
long attack_number(int index, long otherwise);

/* One check: walled or not, and what happened. */
void attack_check(const char *what, bool walled, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A number for the test to judge. */
void attack_value(const char *what, long long value);

/* A call that has to fail with one of `errnos` (0-terminated). */
void attack_refused(const char *what, long result, const int *errnos);

/* errno is 0 before the call, so that a forgotten one shows. */
#define REFUSED(what, call, ...)                                              \
    do {                                                                      \
        errno = 0;                                                            \
        long refused_result_ = (long)(call);                                  \
        attack_refused(what, refused_result_, (const int[]){__VA_ARGS__, 0}); \
    } while (0)

/* Opens for reading or writing, closes again: the fd, or -1. */
int attack_open(const char *path, int flags);

/* Runs `function` in a child: its wait status. */
int attack_child(int (*function)(void *), void *argument);

bool attack_is_root(void);

/* What only one kind of processor has (foreign.c): its system calls of other architectures, and
 * those that set up the processor itself. */
void attack_foreign_calls(void);
void attack_processor(void);

/* Writes the whole posture of this process as one JSON object (posture.c). */
int posture_print(void);

/* As many layers of Landlock a program here can still add; -1: it has none to add. */
int posture_layers(void);

/* Writes one JSON object for each call through which holes of the kernel were reached (holes.c). */
int holes_print(void);
