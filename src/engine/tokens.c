/* Tokens: what a key lends of itself, for one sandbox, some verbs and a time.
 *
 * Nothing of a token is kept: it says itself what it may, under a HMAC whose key only the engine has. So
 * making one costs no commit, and it is worth nothing where anything of what it names has ended: its time,
 * its sandbox, the key that made it, or the generation of the sandbox's tokens. It must never become a way
 * to anything that its maker could not do. */
#include "engine/parts.h"

#include <string.h>

/* ---- what a caller may ---- */

static const char *verb_name(enum engine_verb verb)
{
    switch (verb) {
    case ENGINE_LOOK:
        return "look";
    case ENGINE_EXEC:
        return "exec";
    case ENGINE_FILES_READ:
        return "files_read";
    case ENGINE_FILES_WRITE:
        return "files_write";
    case ENGINE_PORTS:
        return "ports";
    case ENGINE_LIFE:
        return "life";
    }
    return "?";
}

int engine_caller_may(const struct engine_caller *caller, const char *sandbox_id,
                      enum engine_verb verb, struct error *err)
{
    unsigned reads = ENGINE_LOOK | ENGINE_FILES_READ;

    if (caller->sandbox[0] == '\0')
        return caller_may(caller, (verb & ~reads) == 0 ? ENGINE_READ : ENGINE_WRITE, err);
    if (strcmp(caller->sandbox, sandbox_id) != 0)
        return error_set(err, "forbidden", 0, "this token is for another sandbox");
    if (((unsigned)verb & ~caller->verbs) != 0)
        return error_set(err, "forbidden", 0,
                         "this token has not the verb '%s'; ask whoever made it for one that has",
                         verb_name(verb));
    return 0;
}
