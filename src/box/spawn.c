/* The one file with assembler: see spawn.h. */
#include "box/spawn.h"

#include <linux/audit.h>
#include <linux/sched.h>
#include <stddef.h>
#include <sys/syscall.h>

long spawn_clone3(struct clone_args *args, const uint32_t key[4], int (*function)(void *),
                  void *argument)
{
    uint64_t low = (uint64_t)key[1] << 32 | key[0];
    uint64_t high = (uint64_t)key[3] << 32 | key[2];

#if defined(__x86_64__)
    register long result __asm__("rax") = SYS_clone3;
    register struct clone_args *a0 __asm__("rdi") = args;
    register size_t a1 __asm__("rsi") = sizeof(*args);
    register uint64_t a2 __asm__("rdx") = low;
    register uint64_t a3 __asm__("r10") = high;
    register int (*run)(void *) __asm__("r8") = function;
    register void *with __asm__("r9") = argument;

    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %%r9, %%rdi\n\t"
                     "call *%%r8\n\t"
                     "mov %%eax, %%edi\n\t"
                     "mov %[leave], %%eax\n\t"
                     "syscall\n\t"
                     "hlt\n"
                     "1:"
                     : "+r"(result)
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(run),
                       "r"(with), [leave] "i"(SYS_exit)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long number __asm__("x8") = SYS_clone3;
    register long result __asm__("x0") = (long)args;
    register size_t a1 __asm__("x1") = sizeof(*args);
    register uint64_t a2 __asm__("x2") = low;
    register uint64_t a3 __asm__("x3") = high;
    register int (*run)(void *) __asm__("x4") = function;
    register void *with __asm__("x5") = argument;

    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, xzr\n\t"
                     "mov x0, x5\n\t"
                     "blr x4\n\t"
                     "mov x8, %[leave]\n\t"
                     "svc #0\n\t"
                     "brk #1\n"
                     "1:"
                     : "+r"(result)
                     : "r"(number), "r"(a1), "r"(a2), "r"(a3), "r"(run),
                       "r"(with), [leave] "i"(SYS_exit)
                     : "memory");
    return result;
#else
#error "cove's init knows x86_64 and aarch64"
#endif
}

long spawn_raw(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
    register long result __asm__("rax") = number;
    register long r0 __asm__("rdi") = a;
    register long r1 __asm__("rsi") = b;
    register long r2 __asm__("rdx") = c;
    register long r3 __asm__("r10") = d;

    __asm__ volatile("syscall"
                     : "+r"(result)
                     : "r"(r0), "r"(r1), "r"(r2), "r"(r3)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long nr __asm__("x8") = number;
    register long result __asm__("x0") = a;
    register long r1 __asm__("x1") = b;
    register long r2 __asm__("x2") = c;
    register long r3 __asm__("x3") = d;

    __asm__ volatile("svc #0" : "+r"(result) : "r"(nr), "r"(r1), "r"(r2), "r"(r3) : "memory");
    return result;
#endif
}

#if defined(__x86_64__)
const uint32_t spawn_audit_arch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
const uint32_t spawn_audit_arch = AUDIT_ARCH_AARCH64;
#endif
