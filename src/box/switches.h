/* Test builds can switch off what a kernel may lack, to run the fallbacks: COVE_TEST_OFF=idmap,...
 * Two are no kernel's: without "haste" what hurries for a human takes its time, for a machine that is slow; without
 * "mountnotes" there is no memory to note a mount.
 * Release builds have no such switch: no environment variable makes a box weaker. */
#pragma once

#include <stdbool.h>

#ifdef COVE_TEST_SWITCHES
#include <stdlib.h>
#include <string.h>

static inline bool switched_off(const char *what)
{
    const char *off = getenv("COVE_TEST_OFF");
    size_t length = strlen(what);

    while (off != NULL && *off != '\0') {
        if (strncmp(off, what, length) == 0 && (off[length] == ',' || off[length] == '\0'))
            return true;
        off = strchr(off, ',');
        off = off != NULL ? off + 1 : NULL;
    }
    return false;
}

/* As if this were so many versions of the init protocol later: COVE_TEST_AHEAD. With -1 the boxes that are
 * made are of the version before. */
static inline unsigned switched_ahead(void)
{
    const char *ahead = getenv("COVE_TEST_AHEAD");

    return ahead != NULL ? (unsigned)strtol(ahead, NULL, 10) : 0;
}
#else
static inline unsigned switched_ahead(void)
{
    return 0;
}

static inline bool switched_off(const char *what)
{
    (void)what;
    return false;
}
#endif
