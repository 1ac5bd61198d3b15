/* What no engine of ours ever calls: a system call filter of its own, loaded last before its program.
 *
 * A list of what is refused, for its libraries may call anything else. It keeps a taken-over engine one
 * process that ends when it is killed, away from the kernel's riskiest doors, and from the terminal that
 * the keeper was started on. The numbers are those of the machine that this is built for. */
#include "box/spawn.h"
#include "keeper/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* x32 has its own numbers from here on; elsewhere nothing has. */
#define NUMBERS_END 0x40000000U
#define PROGRAM_MAX 256

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, (what))
#define REFUSED(errnum) (SECCOMP_RET_ERRNO | (errnum))
/* Where it is not so, this many instructions are left out. */
#define UNLESS_EQUAL(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (skip))
/* The low half of an argument: both machines have it first. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arguments are read by their low half");

/* As if the kernel did not have them, so that libraries use what came before. */
static const int absent[] = {
    SYS_clone3, /* its flags lie behind a pointer */
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
};

static const int refused[] = {
#ifdef SYS_fork
    SYS_fork,
    SYS_vfork,
#endif
    /* Its program is executed by fd; whatever else is would be under this filter, too. */
    SYS_execve,
    /* other namespaces and views */
    SYS_unshare,
    SYS_setns,
    SYS_chroot,
    SYS_pivot_root,
    SYS_mount,
    SYS_umount2,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
#ifdef SYS_mount_setattr
    SYS_mount_setattr,
#endif
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    /* other processes */
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
#ifdef SYS_pidfd_getfd
    SYS_pidfd_getfd,
#endif
    /* the kernel's own workings */
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_quotactl,
    SYS_syslog,
};

static const struct sock_filter begin[] = {
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0), /* spawn_audit_arch, when it is loaded */
    RETURN(SECCOMP_RET_KILL_PROCESS),
    LOAD(nr),
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, NUMBERS_END, 0, 1),
    RETURN(SECCOMP_RET_KILL_PROCESS),
};

/* Each of these leaves with what it loaded only by a return. */
static const struct sock_filter end[] = {
    /* threads, no processes */
    UNLESS_EQUAL(SYS_clone, 4),
    LOAD(args[0]),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0),
    RETURN(REFUSED(EPERM)),
    RETURN(SECCOMP_RET_ALLOW),
    UNLESS_EQUAL(SYS_execveat, 4),
    LOAD(args[4]),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, AT_EMPTY_PATH, 1, 0),
    RETURN(REFUSED(EPERM)),
    RETURN(SECCOMP_RET_ALLOW),
    /* Of a terminal it may ask what stdio asks; of 0x54xx the rest types, stops and steals. */
    UNLESS_EQUAL(SYS_ioctl, 9),
    LOAD(args[1]),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x5401, 6, 0), /* TCGETS */
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x541b, 5, 0), /* FIONREAD */
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x5421, 4, 0), /* FIONBIO */
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x5451, 3, 0), /* FIOCLEX */
    BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff00),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x5400, 0, 1),
    RETURN(REFUSED(EPERM)),
    RETURN(SECCOMP_RET_ALLOW),
    RETURN(SECCOMP_RET_ALLOW),
};

struct program {
    struct sock_filter code[PROGRAM_MAX];
    unsigned short used;
};

static void add(struct program *program, const struct sock_filter *code, size_t count)
{
    for (size_t i = 0; i < count; i++)
        program->code[program->used++] = code[i];
}

static void add_refusals(struct program *program, const int *numbers, size_t count, int errnum)
{
    for (size_t i = 0; i < count; i++) {
        const struct sock_filter refusal[] = {
            UNLESS_EQUAL((unsigned)numbers[i], 1),
            RETURN(REFUSED((unsigned)errnum)),
        };

        add(program, refusal, 2);
    }
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
_Static_assert(COUNT(begin) + COUNT(end) + 2 * (COUNT(absent) + COUNT(refused)) <= PROGRAM_MAX,
               "the filter has room");

int engine_filter_load(void)
{
    struct program program = {.used = 0};
    struct sock_fprog loaded = {.filter = program.code};

    add(&program, begin, COUNT(begin));
    program.code[1].k = spawn_audit_arch;
    add_refusals(&program, absent, COUNT(absent), ENOSYS);
    add_refusals(&program, refused, COUNT(refused), EPERM);
    add(&program, end, COUNT(end));
    loaded.len = program.used;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0UL, &loaded);
}
