/* Children that share memory with their maker: the one place with assembler.
 *
 * Sharing spares the copy of the page tables, twice: when the child is made and when it starts its
 * program. The child runs on a stack of its own. With CLONE_VFORK its maker sleeps meanwhile, so
 * the two never meet; without, the child must not touch what libc keeps (errno, too) and uses
 * spawn_raw(). */
#pragma once

#include <stdint.h>

struct clone_args;

/* Runs function(argument) in the child, on the stack that `args` names; the child's pid or -errno.
 *
 * The filter of a box refuses clone3 to everybody who does not pass the box's key in the two
 * argument registers that the call does not use; the kernel clears them before a program starts, so
 * no command ever sees them. Only clone3 can put a child into a cgroup as it is born. */
long spawn_clone3(struct clone_args *args, const uint32_t key[4], int (*function)(void *),
                  void *argument);

/* A system call that leaves errno alone: its result or -errno. */
long spawn_raw(long number, long a, long b, long c, long d);

/* What seccomp calls this machine (AUDIT_ARCH_...), for filters that are not generated. */
extern const uint32_t spawn_audit_arch;
