/* The server that runs already, for whoever wants to signal it: a script of a package, or an operator where no service
 * manager knows its process id. */
#pragma once

#include "base/err.h"

#include <sys/types.h>

struct keeper;

/* Finds the keeper that listens where one with these options would. A bad value in
 * its configuration does not hide one at the usual place, or at --socket. */
int find_server(struct keeper *keeper, pid_t *pid, struct error *err);
