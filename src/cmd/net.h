/* A network policy as the command line has it, for the API. */
#pragma once

#include "base/err.h"
#include "cmd/doc.h"

/* "none", "public", "allow=RULE,RULE", "public,deny=RULE": the object that POST and PATCH take, to be freed.
 * `what` is how the option or word is called in errors. */
int net_policy(const char *what, const char *text, struct doc **out, struct error *err);
