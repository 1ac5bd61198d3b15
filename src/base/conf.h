/* The configuration: `name = value` lines under `[section]`s, read into a struct by a table.
 *
 *     # a comment, at the start of a line or after a blank
 *     [boxes]
 *     memory = 1G
 *
 * The table says all there is: names, types, defaults. What it does not name is an error that gives
 * the file, the line and what is allowed. It must never take a file by half: on an error nothing is
 * left in the struct. */
#pragma once

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define CONF_SIZE_MAX (256U << 10) /* of a file */
#define CONF_LINE_MAX 4096U
#define CONF_FAULTS_MAX 100U /* that are told of one file */
#define CONF_NAME_MAX 64U    /* of a section or a name: letters, digits, ".", "_", "-" */

enum conf_type {
    CONF_TEXT = 1, /* char *; not empty */
    CONF_LIST, /* char **, NULL-terminated; between commas, empty is allowed; never NULL itself */
    CONF_SIZE, /* uint64_t, bytes */
    CONF_DURATION, /* uint64_t, ms; 0 is none */
    CONF_COUNT,    /* uint64_t */
    CONF_CPUS,     /* uint32_t, thousandths; 0 where `low` is 0 */
    CONF_BOOL,     /* bool: yes, no, true, false, on, off */
    CONF_CHOICE,   /* int: which of `choices` */
    CONF_ANY,      /* with `name` NULL: a section whose names are the file's own; calls `any` */
    CONF_OTHER, /* another program's: the name is known, the value not looked at. With `name` NULL
                      that holds for all of the section */
};

/* One line of a free-form section. Whether a name comes twice is for the callee to see; the error gets
 * file and line before it. */
typedef int (*conf_any)(void *target, const char *section, const char *name, const char *value,
                        struct error *err);

/* Tells whether a text means anything, for a room that would find out only later. It keeps nothing. */
typedef int (*conf_check)(const char *value, struct error *err);

/* {"boxes", "memory", CONF_SIZE, .offset = offsetof(struct settings, memory), .fallback = "1G"} */
struct conf_row {
    const char *section, *name;
    enum conf_type type;
    size_t offset;              /* into the struct */
    const char *fallback;       /* as one would write it; NULL: nothing, zero */
    uint64_t low, high;         /* of SIZE, DURATION, COUNT and CPUS; high 0: no bound */
    const char *const *choices; /* NULL-terminated */
    conf_any any;
    conf_check check; /* of TEXT; the error gets file, line and name before it */
};

/* A table ends with a row whose section is NULL. `what` is the name of the file, for errors
 * ("bad_config"). Every field of the table is set, to its default where the text is silent; on an
 * error all are freed and zero. `size` bytes need no NUL behind them. */
int conf_parse(const struct conf_row *table, const char *what, const char *text, size_t size,
               void *target, struct error *err);

/* The same from the start of an open file, whatever its offset: it may be shared, and is a memfd in
 * the engine. */
int conf_read(const struct conf_row *table, const char *what, int fd, void *target,
              struct error *err);

/* Hears of a fault of a file, as the error of the calls above would have it. */
typedef void (*conf_fault)(void *arg, const struct error *fault);

/* Looks for all faults of a file and not for the first alone: each that is found is told, in the order of the lines,
 * up to CONF_FAULTS_MAX. As conf_read() else; `err` gets the first one. */
int conf_read_all(const struct conf_row *table, const char *what, int fd, void *target,
                  conf_fault tell, void *arg, struct error *err);

/* One value from elsewhere, an option of the command line say, in a struct that was parsed before;
 * `what` names it in the error ("--listen"). */
int conf_set(const struct conf_row *table, const char *what, const char *section, const char *name,
             const char *value, void *target, struct error *err);

/* Frees texts and lists and leaves zeros; a struct of zeros is fine, too. */
void conf_free(const struct conf_row *table, void *target);
