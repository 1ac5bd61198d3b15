/* A hostile program for the tour (examples/tour.sh): it tries to leave its box and says what came
 * of each attempt.
 *
 * One row of a table per attempt. An attempt that gets anywhere is printed as THROUGH and makes
 * the exit status 1, so that the tour cannot show a success that was none. Static, so that it runs
 * in a box with any root. It must do no harm where a wall is missing: nothing is written that
 * existed, and the addresses it calls are reserved for documentation. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024UL * 1024UL)

/* More than any limit the tour sets, and little enough not to hurt a host without walls. */
#define FORK_TRIES 2000
#define MEMORY_TRY (1024UL * MIB)
#define DISK_TRY (1024UL * MIB)
#define FILE_TRIES 100000

struct outcome {
    bool through;   /* the attempt worked: a wall is missing */
    char text[128]; /* what happened */
};

struct attempt {
    const char *title;
    void (*run)(struct outcome *outcome);
};

/* The usual case: a system call that has to fail. `result` is what it returned. */
static void expect_failure(struct outcome *outcome, long result)
{
    outcome->through = result >= 0;
    (void)snprintf(outcome->text, sizeof(outcome->text), "%s",
                   result >= 0 ? "it worked" : strerror(errno));
}

/* Where another failure would mean that the call got as far as its arguments. */
static void expect_refusal(struct outcome *outcome, long result)
{
    expect_failure(outcome, result);
    if (result < 0 && errno != EPERM && errno != ENOSYS)
        outcome->through = true;
}

static void expect_no_open(struct outcome *outcome, const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);

    expect_failure(outcome, fd);
    if (fd >= 0)
        (void)close(fd);
}

/* ---- files ---- */

/* Names in a directory that are not `expected`; a directory that is not there has none. */
static int strangers_in(const char *path, const char *expected)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    int count = 0;

    if (directory == NULL)
        return 0;
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, expected) != 0)
            count++;
    }
    (void)closedir(directory);
    return count;
}

static void read_shadow(struct outcome *outcome)
{
    expect_no_open(outcome, "/etc/shadow", O_RDONLY);
}

static void list_homes(struct outcome *outcome)
{
    int count = strangers_in("/root", "") + strangers_in("/home", "user") +
                strangers_in("/var/lib", "") + strangers_in("/srv", "");

    outcome->through = count > 0;
    (void)snprintf(outcome->text, sizeof(outcome->text), "%d names of the host", count);
}

static void write_usr(struct outcome *outcome)
{
    int fd = open("/usr/bin/cove-was-here", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);

    expect_failure(outcome, fd);
    if (fd >= 0) {
        (void)close(fd);
        (void)unlink("/usr/bin/cove-was-here");
    }
}

static void write_core_pattern(struct outcome *outcome)
{
    expect_no_open(outcome, "/proc/sys/kernel/core_pattern", O_WRONLY);
}

static void open_memory(struct outcome *outcome)
{
    expect_no_open(outcome, "/dev/mem", O_RDONLY);
}

static void make_device(struct outcome *outcome)
{
    long made = mknod("/tmp/disk", S_IFBLK | 0600, 0x0800);

    expect_failure(outcome, made);
    if (made == 0)
        (void)unlink("/tmp/disk");
}

static void climb_init_root(struct outcome *outcome)
{
    expect_no_open(outcome, "/proc/1/root/etc", O_RDONLY | O_DIRECTORY);
}

/* ---- processes ---- */

static void see_processes(struct outcome *outcome)
{
    DIR *directory = opendir("/proc");
    struct dirent *entry;
    int count = 0;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            count++;
    }
    if (directory != NULL)
        (void)closedir(directory);
    /* The box's init, this program, and a shell or two around it. */
    outcome->through = count > 4;
    (void)snprintf(outcome->text, sizeof(outcome->text), "%d seen, the box's own", count);
}

static void trace_init(struct outcome *outcome)
{
    expect_failure(outcome, ptrace(PTRACE_SEIZE, 1, 0, 0));
}

static void become_root(struct outcome *outcome)
{
    expect_failure(outcome, setuid(0));
}

/* ---- kernel ---- */

static void mount_something(struct outcome *outcome)
{
    long mounted = mount("none", "/tmp", "tmpfs", 0, NULL);

    expect_failure(outcome, mounted);
    if (mounted == 0)
        (void)umount("/tmp");
}

/* In a child: a namespace that is gained must not change what follows. */
static void new_namespace(struct outcome *outcome)
{
    pid_t child = fork();
    int status = 0;

    if (child == 0)
        _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : errno);
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status)) {
        expect_failure(outcome, -1);
        return;
    }
    errno = WEXITSTATUS(status);
    expect_failure(outcome, errno == 0 ? 0 : -1);
}

static void leave_chroot(struct outcome *outcome)
{
    expect_failure(outcome, chroot("/tmp"));
}

static void load_module(struct outcome *outcome)
{
    expect_refusal(outcome, syscall(SYS_init_module, "", 0UL, ""));
}

static void load_bpf(struct outcome *outcome)
{
    char attributes[128] = {0};

    expect_refusal(outcome, syscall(SYS_bpf, 5, attributes, sizeof(attributes)));
}

static void open_io_uring(struct outcome *outcome)
{
    char parameters[256] = {0};

    expect_refusal(outcome, syscall(SYS_io_uring_setup, 8, parameters));
}

/* Asks for the name of the thread's keyring: nothing is changed. */
static void open_keyring(struct outcome *outcome)
{
    expect_refusal(outcome, syscall(SYS_keyctl, 0, -1, 0));
}

/* An unknown command: the kernel looks at the capability first, and does nothing after. */
static void restart_machine(struct outcome *outcome)
{
    expect_refusal(outcome, syscall(SYS_reboot, 0xfee1dead, 672274793, 0x12345678, NULL));
}

/* The upper half of the request is ignored by the kernel; filters that compare all 64 bits of it
 * have been passed this way. */
static void push_keys(struct outcome *outcome)
{
    expect_refusal(outcome, syscall(SYS_ioctl, 0, 0x100000000UL | TIOCSTI, "x"));
}

/* ---- network ---- */

static void connect_to(struct outcome *outcome, const char *address, unsigned short port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    long result;

    (void)inet_pton(AF_INET, address, &to.sin_addr);
    result = fd < 0 ? -1 : connect(fd, (struct sockaddr *)&to, sizeof(to));
    /* A connection that is under way has found a route. */
    if (result < 0 && errno == EINPROGRESS)
        result = 0;
    expect_failure(outcome, result);
    if (fd >= 0)
        (void)close(fd);
}

static void connect_out(struct outcome *outcome)
{
    connect_to(outcome, "192.0.2.1", 443);
}

static void connect_metadata(struct outcome *outcome)
{
    connect_to(outcome, "169.254.169.254", 80);
}

static void open_family(struct outcome *outcome, int family, int type)
{
    int fd = socket(family, type | SOCK_CLOEXEC, 0);

    expect_failure(outcome, fd);
    if (fd >= 0)
        (void)close(fd);
}

static void open_packet(struct outcome *outcome)
{
    open_family(outcome, AF_PACKET, SOCK_RAW);
}

static void open_vsock(struct outcome *outcome)
{
    open_family(outcome, 40, SOCK_STREAM);
}

/* ---- bombs ---- */

static void fork_bomb(struct outcome *outcome)
{
    static pid_t children[FORK_TRIES];
    int count = 0, errnum = 0;

    while (count < FORK_TRIES) {
        pid_t child = fork();

        if (child == 0) {
            (void)pause();
            _exit(0);
        }
        if (child < 0) {
            errnum = errno;
            break;
        }
        children[count++] = child;
    }
    for (int i = 0; i < count; i++) {
        (void)kill(children[i], SIGKILL);
        (void)waitpid(children[i], NULL, 0);
    }
    outcome->through = count == FORK_TRIES;
    (void)snprintf(outcome->text, sizeof(outcome->text), "stopped at %d processes: %s", count,
                   errnum != 0 ? strerror(errnum) : "it worked");
}

static void memory_bomb(struct outcome *outcome)
{
    size_t *touched = mmap(NULL, sizeof(*touched), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = 0;
    pid_t child;

    if (touched == MAP_FAILED) {
        expect_failure(outcome, -1);
        return;
    }
    child = fork();
    if (child == 0) {
        for (; *touched < MEMORY_TRY; *touched += MIB) {
            char *piece = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                               0);

            if (piece == MAP_FAILED)
                _exit(1);
            memset(piece, 'x', MIB);
        }
        _exit(0);
    }
    if (child > 0)
        (void)waitpid(child, &status, 0);
    outcome->through = child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    (void)snprintf(outcome->text, sizeof(outcome->text), "%s at %zu MiB",
                   outcome->through      ? "it worked"
                   : WIFSIGNALED(status) ? "killed"
                                         : "refused",
                   *touched / MIB);
    (void)munmap(touched, sizeof(*touched));
}

static void disk_fill(struct outcome *outcome)
{
    static char block[MIB];
    size_t written = 0;
    int fd = open("/tmp/fill", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ssize_t n = -1;

    memset(block, 'x', sizeof(block));
    while (fd >= 0 && written < DISK_TRY && (n = write(fd, block, sizeof(block))) > 0)
        written += (size_t)n;
    outcome->through = written >= DISK_TRY;
    (void)snprintf(outcome->text, sizeof(outcome->text), "stopped at %zu MiB: %s", written / MIB,
                   n < 0 ? strerror(errno) : "it worked");
    if (fd >= 0)
        (void)close(fd);
    (void)unlink("/tmp/fill");
}

static void inode_fill(struct outcome *outcome)
{
    char path[64];
    int count = 0, errnum = 0;

    (void)mkdir("/tmp/many", 0700);
    for (; count < FILE_TRIES; count++) {
        int fd;

        (void)snprintf(path, sizeof(path), "/tmp/many/%d", count);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) {
            errnum = errno;
            break;
        }
        (void)close(fd);
    }
    for (int i = 0; i < count; i++) {
        (void)snprintf(path, sizeof(path), "/tmp/many/%d", i);
        (void)unlink(path);
    }
    (void)rmdir("/tmp/many");
    outcome->through = count == FILE_TRIES;
    (void)snprintf(outcome->text, sizeof(outcome->text), "stopped at %d files: %s", count,
                   errnum != 0 ? strerror(errnum) : "it worked");
}

static const struct attempt attempts[] = {
    {"read the host's passwords", read_shadow},
    {"list other people's directories", list_homes},
    {"plant a program in /usr/bin", write_usr},
    {"take over the host's core dumps", write_core_pattern},
    {"open the machine's memory", open_memory},
    {"make a disk device", make_device},
    {"climb out by the init's root", climb_init_root},
    {"leave by chroot", leave_chroot},
    {"see the host's processes", see_processes},
    {"trace the box's init", trace_init},
    {"become root", become_root},
    {"mount a file system", mount_something},
    {"make a user namespace", new_namespace},
    {"load a kernel module", load_module},
    {"load a BPF program", load_bpf},
    {"open an io_uring", open_io_uring},
    {"look into the kernel's keyring", open_keyring},
    {"restart the machine", restart_machine},
    {"type into your terminal", push_keys},
    {"call home", connect_out},
    {"ask the cloud for its credentials", connect_metadata},
    {"listen to the network", open_packet},
    {"talk to the hypervisor", open_vsock},
    {"fork bomb", fork_bomb},
    {"memory bomb", memory_bomb},
    {"fill the disk", disk_fill},
    {"use up all inodes", inode_fill},
};

static double now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

int main(void)
{
    int through = 0;

    for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++) {
        struct outcome outcome = {0};
        double started = now_ms();

        attempts[i].run(&outcome);
        (void)printf("  %-34s %-7s %-52s %7.2f ms\n", attempts[i].title,
                     outcome.through ? "THROUGH" : "walled", outcome.text, now_ms() - started);
        (void)fflush(stdout);
        through += outcome.through;
    }
    return through == 0 ? 0 : 1;
}
