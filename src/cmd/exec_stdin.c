/* Standard input of a command in a sandbox: see exec.h.
 *
 * A process of its own, because both reading here and writing there may block for ever, and what the
 * command prints is to be shown meanwhile. A piece that may have got there is never sent again: then
 * the command would read it twice. */
#include "base/fd.h"
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/exec.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE_MAX 65536

static ssize_t stdin_read(char *data, size_t size)
{
    for (;;) {
        ssize_t n = read(STDIN_FILENO, data, size);
        struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};

        if (n >= 0 || (errno != EAGAIN && errno != EINTR))
            return n;
        if (errno == EAGAIN)
            (void)poll(&fd, 1, -1);
    }
}

/* A command that has ended, or closed its input, wants no more: that is no failure. */
static bool is_over(const struct error *err)
{
    return strcmp(err->code, "stdin_closed") == 0 || strcmp(err->code, "process_ended") == 0 ||
           strcmp(err->code, "process_not_found") == 0 || strcmp(err->code, "sandbox_gone") == 0 ||
           strcmp(err->code, "sandbox_stopped") == 0;
}

static int pump(struct client *client, const char *path, struct error *err)
{
    char data[PIECE_MAX];
    char whole[API_PATH_MAX + 32];
    ssize_t n;

    do {
        struct client_request request = {
            .method = "POST", .path = whole, .bytes = data, .answer_ms = UINT_MAX};

        n = stdin_read(data, sizeof(data));
        if (n < 0)
            return error_set(err, "stdio", errno, "standard input: it cannot be read");
        request.size = (size_t)n;
        (void)snprintf(whole, sizeof(whole), "%s/stdin%s", path, n == 0 ? "?close=true" : "");
        if (client_call(client, &request, NULL, err) < 0)
            return is_over(err) ? 0 : -1;
    } while (n > 0);
    return 0;
}

int exec_stdin_start(const struct client *client, const char *path, pid_t *pid, struct error *err)
{
    _cleanup_client_ struct client *own = NULL;
    pid_t parent = getpid();

    if (client_copy(client, &own, err) < 0)
        return -1;
    *pid = fork();
    if (*pid < 0)
        return error_set(err, "fork", errno,
                         "fork: no process for the standard input; end something");
    if (*pid > 0)
        return 0;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    (void)close_range(3, ~0U,
                      0); /* what follows the command is not ours; `own` is not connected yet */
    if (pump(own, path, err) == 0)
        _exit(0);
    (void)error_wrap(err, "standard input");
    (void)api_fail(err);
    _exit(1);
}

void exec_stdin_end(pid_t *pid)
{
    if (*pid <= 0)
        return;
    (void)kill(*pid, SIGKILL);
    (void)waitpid(*pid, NULL, 0);
    *pid = 0;
}
