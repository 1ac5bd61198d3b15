/* Executing a program by its name: see search.h. */
#include "box/search.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static const char *find_path(char *const env[])
{
    for (; *env != NULL; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

/* A text file without a first line that says what runs it is the shell's, as execvp has it. */
static void execute(char *file, char **argv, char *const env[])
{
    static char shell[] = "/bin/sh";

    (void)execve(file, argv, env);
    if (errno != ENOEXEC)
        return;
    argv[-1] = shell;
    argv[0] = file;
    (void)execve(shell, argv - 1, env);
}

void search_and_execute(char **argv, char *const env[])
{
    char *name = argv[0];
    const char *path = find_path(env);
    static char file[PATH_MAX];
    bool denied = false;

    errno = ENOENT;
    if (*name == '\0')
        return;
    if (strchr(name, '/') != NULL) {
        execute(name, argv, env);
        return;
    }
    for (;;) {
        size_t length = strcspn(path, ":");
        size_t name_length = strlen(name);

        if (length > 0 && length + 1 + name_length < sizeof(file)) {
            memcpy(file, path, length);
            file[length] = '/';
            memcpy(file + length + 1, name, name_length + 1);
            execute(file, argv, env);
            if (errno == EACCES)
                denied = true;
            else if (errno != ENOENT && errno != ENOTDIR)
                return;
        }
        if (path[length] == '\0')
            break;
        path += length + 1;
    }
    errno = denied ? EACCES : ENOENT;
}
