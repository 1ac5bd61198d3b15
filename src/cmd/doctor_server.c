/* The check of the server: `cove serve --check`, once as this user's own engine is started and, for root, once as the
 * system's is. See doctor.h. It makes nothing, and no server is started. */
#include "base/fd.h"
#include "base/hear.h"
#include "cmd/cmd.h"
#include "cmd/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_MS 20000U
#define PREFIX "cove-keeper: "

/* 0 where it could start; else what it said lies in `said`. */
static int ask(const char *keeper, char *const argv[], char *said, size_t size)
{
    int ends[2], status = -1;
    pid_t pid;

    said[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        (void)execv(keeper, argv);
        (void)dprintf(STDERR_FILENO, "%s: %s\n", keeper,
                      strerror(errno)); // NOLINT(concurrency-mt-unsafe)
        _exit(127);
    }
    (void)close(ends[1]);
    if (pid > 0) {
        hear_all(ends[0], said, size, LIMIT_MS);
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, &status, 0);
    }
    (void)close(ends[0]);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static int try(const char *keeper, bool is_private, char *said, size_t size)
{
    char name[] = "serve", check[] = "--check", private[] = "--private", listen[] = "--listen",
         none[] = "none";
    char *const argv[] = {name, check, is_private ? private : NULL, listen, none, NULL};

    return ask(keeper, argv, said, size);
}

void doctor_try_server(struct doctor *doctor)
{
    struct doctor_check *check = &doctor->checks[DOCTOR_SERVER];
    char keeper[PATH_MAX], engine[PATH_MAX], said[2048] = "";
    const char *line;
    struct error err;

    check->state = DOCTOR_UNTRIED;
    if (!doctor->has_box) {
        (void)snprintf(check->found, sizeof(check->found), "not tried without a box");
        return;
    }
    if (cmd_beside("cove-keeper", keeper, &err) < 0 ||
        cmd_beside("cove-engine", engine, &err) < 0) {
        (void)snprintf(check->found, sizeof(check->found), "not installed; cove run needs none");
        return;
    }
    if (try(keeper, true, said, sizeof(said)) == 0 &&
        (doctor->host.uid != 0 || try(keeper, false, said, sizeof(said)) == 0)) {
        check->state = DOCTOR_YES;
        (void)snprintf(check->found, sizeof(check->found), "could start, as it is configured");
        return;
    }
    check->state = DOCTOR_NO;
    line = strrchr(said, '\n');
    line = line != NULL ? line + 1 : said;
    if (strncmp(line, PREFIX, strlen(PREFIX)) == 0)
        line += strlen(PREFIX);
    (void)snprintf(check->found, sizeof(check->found), "%.470s",
                   line[0] != '\0' ? line : "it does not say whether it could start");
    (void)snprintf(check->remedy, sizeof(check->remedy),
                   "mend that; cove serve --check says whether it would start then");
}
