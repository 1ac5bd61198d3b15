/* What is left to a process that carries the network of one run, which may be an ordinary user's own: no file of his
 * but what it looks names up with, nothing written, and sockets of the internet alone. */
#pragma once

#include "base/err.h"

/* For good, and for threads that are begun later only. Where the kernel has no Landlock files are as its user has
 * them; all else that fails is an error. Needs PR_SET_NO_NEW_PRIVS. */
int confine(struct error *err);
