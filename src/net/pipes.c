/* The pipes that pumps borrow: few, whatever the number of connections. One that is idle holds none. One whose
 * reader does not read may keep what is on its way in a pipe, but no share has more than its part of them; whoever
 * gets none copies, which is slower and holds nothing either. */
#include "net/pump.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* What a pipe takes: the more, the fewer calls. All of them together stay below what an ordinary user may have
 * (/proc/sys/fs/pipe-user-pages-soft: 64 MiB); where it is less, a pipe is as large as pipes are. */
#define PIPE_BYTES (256 << 10)

struct pipes {
    struct {
        int fds[2];
    } all[PUMP_PIPES];
    unsigned free[PUMP_PIPES]; /* a stack: the one used last is in the cache */
    unsigned free_count;
    char scratch[PIPES_SCRATCH];
};

int pipes_open(struct pipes **out, struct error *err)
{
    struct pipes *pipes = calloc(1, sizeof(*pipes));

    if (pipes == NULL)
        return error_set(err, "net_failed", ENOMEM, "cannot carry the connections of boxes");
    for (unsigned i = 0; i < PUMP_PIPES; i++) {
        pipes->all[i].fds[0] = pipes->all[i].fds[1] = -1;
        pipes->free[i] = PUMP_PIPES - 1 - i;
    }
    pipes->free_count = PUMP_PIPES;
    *out = pipes;
    return 0;
}

void pipes_close(struct pipes *pipes)
{
    for (unsigned i = 0; i < PUMP_PIPES; i++) {
        fd_close(&pipes->all[i].fds[0]);
        fd_close(&pipes->all[i].fds[1]);
    }
    free(pipes);
}

int pipes_borrow(struct pipes *pipes, struct share *share)
{
    unsigned pipe;

    if (pipes->free_count == 0 || share->pipes >= PUMP_PIPES_SHARE)
        return -1;
    pipe = pipes->free[pipes->free_count - 1];
    if (pipes->all[pipe].fds[0] < 0) {
        if (pipe2(pipes->all[pipe].fds, O_CLOEXEC | O_NONBLOCK) < 0)
            return -1;
        (void)fcntl(pipes->all[pipe].fds[1], F_SETPIPE_SZ, PIPE_BYTES);
    }
    pipes->free_count--;
    share->pipes++;
    return (int)pipe;
}

void pipes_return(struct pipes *pipes, struct share *share, int pipe, bool is_empty)
{
    if (!is_empty) {
        fd_close(&pipes->all[pipe].fds[0]);
        fd_close(&pipes->all[pipe].fds[1]);
    }
    pipes->free[pipes->free_count++] = (unsigned)pipe;
    share->pipes--;
}

int pipes_in(const struct pipes *pipes, int pipe)
{
    return pipes->all[pipe].fds[1];
}

int pipes_out(const struct pipes *pipes, int pipe)
{
    return pipes->all[pipe].fds[0];
}

char *pipes_scratch(struct pipes *pipes)
{
    return pipes->scratch;
}
