/* Executing a program by its name, as a shell finds it. Allocates nothing: it runs in children that
 * share memory with their maker. */
#pragma once

/* argv[0] is looked up in the PATH of `env`. What stands before it, argv[-1], must be there and is
 * written where a text file needs a shell. Returns only where it failed: errno is ENOENT if nothing of
 * that name was found, else of the last that was. */
void search_and_execute(char **argv, char *const env[]);
