/* The server that runs already, for whoever wants to tell it something: a script of a package, the service manager, or an
 * operator where none knows its process id. */
#pragma once

#include "base/err.h"

#include <sys/types.h>

struct keeper;

/* Finds the keeper that listens where one with these options would. A bad value in
 * its configuration does not hide one at the usual place, or at --socket. */
int find_server(struct keeper *keeper, pid_t *pid, struct error *err);

/* Ends the server, and waits until it has. */
int find_stop(struct keeper *keeper, pid_t *pid, struct error *err);

/* Has the server do what SIGHUP does, and waits until the next engine runs: what it is refused for is an error. 1: it is
 * of a version that cannot be waited for, and has been sent SIGHUP. */
int find_reload(struct keeper *keeper, pid_t *pid, struct error *err);
