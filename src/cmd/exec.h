/* What the parts of `cove exec` share: exec.c starts a command and follows it, exec_stdin.c feeds it. */
#pragma once

#include "base/err.h"
#include "cmd/client.h"

#include <sys/types.h>

/* Starts a process of ours that sends our standard input to that of the process at `path`, and its end
 * too. It exits with 0 when that is done or the command takes no more, else it has said why. */
int exec_stdin_start(const struct client *client, const char *path, pid_t *pid, struct error *err);

/* Ends it if it still runs. */
void exec_stdin_end(pid_t *pid);
