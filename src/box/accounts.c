/* The accounts of the host profile: see accounts.h. */
#include "box/accounts.h"

#include <stdio.h>

void accounts_passwd(char *text, size_t size, const char *shell)
{
    (void)snprintf(text, size,
                   "root:x:0:0:root:/root:%s\nuser:x:1000:1000:user:/home/user:%s\n"
                   "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
                   shell, shell);
}
