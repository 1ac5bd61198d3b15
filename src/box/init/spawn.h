/* clone3 with a stack of its own and the key that the filter asks for.
 *
 * Only clone3 can put a child into a cgroup as it is born. The filter refuses it to everybody who
 * does not pass the box's key in the two argument registers that the call does not use; the kernel
 * clears them before a program starts, so no command ever sees them. */
#pragma once

#include <stdint.h>

struct clone_args;

/* Runs function(argument) in the child, on the stack that `args` names; the child's pid or -errno.
 * With CLONE_VFORK it returns when the child has started its program or has ended. */
long spawn_clone3(struct clone_args *args, const uint32_t key[4], int (*function)(void *),
                  void *argument);
