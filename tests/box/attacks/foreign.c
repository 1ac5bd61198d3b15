/* What only one kind of processor has, for entries 48 and 50: ways to make a system call of another
 * architecture, whose numbers the filter does not read, and calls that set up the processor. All
 * that differs between machines is here; every other attack is the same on each. */
#include "attack.h"

#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_sigsys(int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
}

#if defined(__x86_64__)

static int call_i386(void *number)
{
    long result;

    __asm__ volatile("int $0x80" : "=a"(result) : "a"((long)(intptr_t)number) : "memory");
    return 0;
}

static int call_x32(void *number)
{
    (void)syscall(0x40000000L | (long)(intptr_t)number);
    return 0;
}

static void expect_sigsys(const char *what, int (*function)(void *), long number)
{
    int status = attack_child(function, (void *)(intptr_t)number);

    attack_check(what, is_sigsys(status), "status %#x", (unsigned)status);
}

void attack_foreign_calls(void)
{
    expect_sigsys("int 0x80: getpid", call_i386, 20);
    expect_sigsys("int 0x80: socketcall", call_i386, 102);
    expect_sigsys("int 0x80: vm86", call_i386, 166);
    expect_sigsys("x32: getpid", call_x32, 39);
    expect_sigsys("x32: ptrace", call_x32, 521);
}

void attack_processor(void)
{
    char buffer[16] = {0};

    REFUSED("modify_ldt", syscall(SYS_modify_ldt, 1, buffer, sizeof(buffer)), ENOSYS);
    REFUSED("iopl", syscall(SYS_iopl, 3), EPERM);
    REFUSED("ioperm", syscall(SYS_ioperm, 0x3f8UL, 1UL, 1), EPERM);
}

#elif defined(__aarch64__)

#include <elf.h>
#include <errno.h>
#include <sys/mman.h>

#define ARM32_ADDRESS 0x20000
#define NO_SUCH_PROGRAMS 99 /* our word for a kernel or a processor without 32-bit programs */

/* A process changes its architecture by starting a program of the other one. This one is 32-bit: it
 * makes one system call, the number of which is in its first instruction, and exits with 0. */
struct arm32_program {
    Elf32_Ehdr head;
    Elf32_Phdr load;
    uint32_t code[5];
};

static int call_arm32(void *number)
{
    struct arm32_program program = {
        .head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS32, ELFDATA2LSB,
                             EV_CURRENT},
                 .e_type = ET_EXEC,
                 .e_machine = EM_ARM,
                 .e_version = EV_CURRENT,
                 .e_entry = ARM32_ADDRESS + offsetof(struct arm32_program, code),
                 .e_phoff = offsetof(struct arm32_program, load),
                 .e_flags = EF_ARM_EABI_VER5,
                 .e_ehsize = sizeof(Elf32_Ehdr),
                 .e_phentsize = sizeof(Elf32_Phdr),
                 .e_phnum = 1},
        .load = {.p_type = PT_LOAD,
                 .p_vaddr = ARM32_ADDRESS,
                 .p_paddr = ARM32_ADDRESS,
                 .p_filesz = sizeof(program),
                 .p_memsz = sizeof(program),
                 .p_flags = PF_R | PF_X,
                 .p_align = 0x1000},
        .code = {0xe3a07000 | (uint32_t)(uintptr_t)number, /* mov r7, #number */
                 0xef000000,                               /* svc #0 */
                 0xe3a00000,                               /* mov r0, #0 */
                 0xe3a07001,                               /* mov r7, #1: exit */
                 0xef000000},
    };
    char name[] = "arm32", *argv[] = {name, NULL}, *env[] = {NULL};
    int fd = memfd_create(name, 0);

    if (fd < 0 || write(fd, &program, sizeof(program)) != (ssize_t)sizeof(program))
        return 1;
    (void)syscall(SYS_execveat, fd, "", argv, env, 0x1000); /* AT_EMPTY_PATH */
    return errno == ENOEXEC ? NO_SUCH_PROGRAMS : 2;
}

static void expect_sigsys(const char *what, uint32_t number)
{
    int status = attack_child(call_arm32, (void *)(uintptr_t)number);
    bool none = WIFEXITED(status) && WEXITSTATUS(status) == NO_SUCH_PROGRAMS;

    attack_check(what, is_sigsys(status) || none, "status %#x", (unsigned)status);
}

void attack_foreign_calls(void)
{
    expect_sigsys("AArch32: getpid", 20);
    expect_sigsys("AArch32: socketcall", 102);
    expect_sigsys("AArch32: mount", 21);
    REFUSED("the number of an x32 call", syscall(0x40000000L | 39), ENOSYS);
}

/* No call of this machine sets up the processor: what there is goes by personality(2) and is tried
 * for every machine alike. */
void attack_processor(void)
{
}

#endif
