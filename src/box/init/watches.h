/* Watches of inotify that would tell of reads, added by init in the place of the box's programs. */
#pragma once

#include <stdint.h>

/* Answers the call that waits at the listener of the box's filter. The key is the box's: see filter/policy.txt. */
void watches_serve(int listener, const uint32_t key[4]);
