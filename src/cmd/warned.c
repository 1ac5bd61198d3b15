/* Says once what holds of a host whatever is run there: a file beside the socket of this user's engine has what was said
 * since the machine was started. Where it cannot be had, all is said each time. */
#include "base/fd.h"
#include "cmd/client.h"
#include "cmd/cmd.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "warned"
#define FILE_MAX 16384 /* then it is begun anew */
#define BOOT_MAX 64
#define WARNING_MAX 1024

static bool was_said(const char *text)
{
    char boot[BOOT_MAX] = "", line[BOOT_MAX + WARNING_MAX], said[FILE_MAX + 1];
    _cleanup_close_ int dir = client_place(), file = -1;
    ssize_t size;

    if (dir >= 0)
        file = openat(dir, FILE_NAME,
                      O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (file < 0)
        return false;
    (void)fd_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    boot[strcspn(boot, "\n")] = '\0';
    (void)snprintf(line, sizeof(line), "%s %s\n", boot, text);
    size = fd_read_full(file, said, sizeof(said) - 1);
    said[size > 0 ? size : 0] = '\0';
    if (strncmp(said, boot, strlen(boot)) != 0 || size == FILE_MAX) {
        if (ftruncate(file, 0) < 0)
            return false;
    } else {
        const char *found = strstr(said, line);

        if (found != NULL && (found == said || found[-1] == '\n'))
            return true;
    }
    (void)fd_write_full(file, line, strlen(line));
    return false;
}

void cmd_warn_once(const char *text)
{
    if (cmd_warns() && !was_said(text))
        cmd_warn("%s", text);
}
