/* A cgroup to make boxes in, for an ordinary user who has none. */
#pragma once

/* Where no cgroup can be made here but the user's systemd gives one away: becomes the same command in a
 * scope of its own, by systemd-run, and so does not return. Else returns at once; in that scope, after
 * having made room for boxes in it. `argv` is that of a command: its name and its words. */
void scope_obtain(char **argv);
