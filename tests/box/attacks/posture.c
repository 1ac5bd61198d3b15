/* Everything a command can see of its own standing, as one JSON object, unjudged: the test holds
 * the expected values, so that a difference of any kind shows. */
#include "attack.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void print_text(const char *text)
{
    (void)putchar('"');
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;

        if (byte == '"' || byte == '\\')
            (void)printf("\\%c", byte);
        else if (byte < 0x20 || byte >= 0x7f)
            (void)printf("\\u%04x", byte);
        else
            (void)putchar(byte);
    }
    (void)putchar('"');
}

static void print_file(const char *key, const char *path)
{
    static char text[1 << 16];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t size = 0;
    ssize_t n = 0;

    while (fd >= 0 && size < sizeof(text) - 1 &&
           (n = read(fd, text + size, sizeof(text) - 1 - size)) > 0)
        size += (size_t)n;
    text[size] = '\0';
    (void)printf("\"%s\": ", key);
    if (fd < 0 || n < 0)
        (void)printf("null");
    else
        print_text(text);
    (void)printf(",\n");
    if (fd >= 0)
        (void)close(fd);
}

static void print_link(const char *key, const char *path)
{
    char text[4096];
    ssize_t n = readlink(path, text, sizeof(text) - 1);

    text[n < 0 ? 0 : n] = '\0';
    (void)printf("\"%s\": ", key);
    print_text(text);
    (void)printf(",\n");
}

static void print_limits(void)
{
    static const char *const names[] = {
        "cpu",     "fsize", "data",  "stack",      "core",     "rss",  "nproc",  "nofile",
        "memlock", "as",    "locks", "sigpending", "msgqueue", "nice", "rtprio", "rttime"};

    (void)printf("\"limits\": {");
    for (int i = 0; i < 16; i++) {
        struct rlimit limit = {0};

        (void)getrlimit(i, &limit);
        (void)printf("%s\"%s\": [%lld, %lld]", i == 0 ? "" : ", ", names[i],
                     limit.rlim_cur == RLIM_INFINITY ? -1LL : (long long)limit.rlim_cur,
                     limit.rlim_max == RLIM_INFINITY ? -1LL : (long long)limit.rlim_max);
    }
    (void)printf("},\n");
}

static void print_fds(void)
{
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    bool first = true;

    (void)printf("\"fds\": [");
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(directory))
            continue;
        (void)printf("%s%s", first ? "" : ", ", entry->d_name);
        first = false;
    }
    (void)printf("],\n");
    if (directory != NULL)
        (void)closedir(directory);
}

static void print_environment(void)
{
    (void)printf("\"environment\": [");
    for (char **at = environ; *at != NULL; at++) {
        (void)printf("%s", at == environ ? "" : ", ");
        print_text(*at);
    }
    (void)printf("],\n");
}

static void print_namespaces(void)
{
    static const char *const names[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char key[32], path[64];

        (void)snprintf(key, sizeof(key), "ns_%s", names[i]);
        (void)snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        print_link(key, path);
    }
}

static void print_ids(void)
{
    uid_t uids[3];
    gid_t gids[3], groups[64];
    int count = getgroups(64, groups);

    (void)getresuid(&uids[0], &uids[1], &uids[2]);
    (void)getresgid(&gids[0], &gids[1], &gids[2]);
    (void)printf("\"uids\": [%u, %u, %u],\n\"gids\": [%u, %u, %u],\n\"groups\": [", uids[0],
                 uids[1], uids[2], gids[0], gids[1], gids[2]);
    for (int i = 0; i < count; i++)
        (void)printf("%s%u", i == 0 ? "" : ", ", groups[i]);
    (void)printf("],\n");
}

static void print_init(void)
{
    struct stat init;

    /* Who owns the files of a process in /proc says whether it may be traced. */
    (void)printf("\"init_mem\": %d,\n", attack_open("/proc/1/mem", O_RDONLY) >= 0);
    (void)printf("\"init_owner\": %ld,\n",
                 stat("/proc/1/mem", &init) == 0 ? (long)init.st_uid : -1);
    print_file("init_status", "/proc/1/status");
    print_file("init_cmdline", "/proc/1/cmdline");
}

/* As many layers of Landlock this process can still add: the kernel has room for 16 in all (E2BIG). */
static int stack_layers(void *argument)
{
    const uint64_t handled = 1 << 6; /* LANDLOCK_ACCESS_FS_MAKE_CHAR */
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0);
    int count = 0;

    (void)argument;
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    while (ruleset >= 0 && count < 64 && syscall(SYS_landlock_restrict_self, ruleset, 0) == 0)
        count++;
    return ruleset >= 0 && errno == E2BIG ? count : 255;
}

int posture_layers(void)
{
    int status = attack_child(stack_layers, NULL);

    return WIFEXITED(status) && WEXITSTATUS(status) < 255 ? WEXITSTATUS(status) : -1;
}

int posture_print(void)
{
    char text[4096];
    mode_t mask = umask(0);

    (void)umask(mask);
    (void)printf("{");
    print_file("status", "/proc/self/status");
    print_file("mountinfo", "/proc/self/mountinfo");
    print_file("cgroup", "/proc/self/cgroup");
    print_file("oom_score_adj", "/proc/self/oom_score_adj");
    print_file("uid_map", "/proc/self/uid_map");
    print_file("gid_map", "/proc/self/gid_map");
    print_file("setgroups", "/proc/self/setgroups");
    print_file("max_user_namespaces", "/proc/sys/user/max_user_namespaces");
    print_file("net_dev", "/proc/net/dev");
    print_file("net_route", "/proc/net/route");
    print_limits();
    print_fds();
    print_environment();
    print_namespaces();
    print_ids();
    print_init();
    (void)printf("\"landlock_layers\": %d,\n", posture_layers());
    (void)printf("\"securebits\": %d,\n", prctl(PR_GET_SECUREBITS, 0, 0, 0, 0));
    (void)printf("\"parent_death_signal\": %d,\n",
                 (prctl(PR_GET_PDEATHSIG, text), *(int *)(void *)text));
    (void)printf(
        "\"umask\": %u,\n\"pid\": %d,\n\"parent\": %d,\n\"group\": %d,\n\"session\": %d,\n",
        (unsigned)mask, getpid(), getppid(), getpgrp(), getsid(0));
    (void)printf("\"tty\": %d,\n", attack_open("/dev/tty", O_RDWR) >= 0);
    (void)printf("\"nice\": %d,\n\"policy\": %ld,\n", getpriority(PRIO_PROCESS, 0),
                 syscall(SYS_sched_getscheduler, 0));
    (void)printf("\"keyring\": %ld,\n", syscall(SYS_keyctl, 0, -3, 0));
    (void)gethostname(text, sizeof(text));
    (void)printf("\"hostname\": ");
    print_text(text);
    (void)printf(",\n\"cwd\": ");
    print_text(getcwd(text, sizeof(text)) != NULL ? text : "?");
    (void)printf("}\n");
    return 0;
}
