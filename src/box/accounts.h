/* The accounts of the host profile: its synthetic /etc/passwd and /etc/group.
 *
 * Written into the box by its set-up child, and read by user.c to find who `--user` names. */
#pragma once

#include <stddef.h>

void accounts_passwd(char *text, size_t size, const char *shell);

#define ACCOUNTS_TTY 5U
#define ACCOUNTS_USER 1000U
#define ACCOUNTS_GROUP "root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n"
