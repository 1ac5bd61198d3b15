/* Drives one box by links, as an engine does that may be killed at any moment: what one link did not
 * hear, the next one must.
 *
 *   links plain|system WORD...
 *
 *   start ID KIND LINE          link_exec of /bin/sh -c LINE, and nothing is heard yet; KIND is pipes,
 *                               nostdin, tty, given, or nowhere: pipes, in a directory that is not there
 *   limits MEMORY FILE CPU FILES  of the commands from here on
 *   many FIRST COUNT LINE       starts so many, pipes and all, and hears nothing
 *   heed KIND ID                hears and prints events up to this one
 *   again                       the link and all our fds go, a next one says hello
 *   table                       hears up to the end of the table
 *   read ID STREAM, write ID TEXT, shut ID   of pipes and terminals; read goes on to the end
 *   close ID STREAM             ours, and init is not told
 *   ack ID, kill ID, signal ID NUMBER, open ID FLAGS PATH, sleep MS
 *   still                       waits until nothing runs in the box but its init, and hears nothing
 *
 * A socket that is the box's as long as this program runs stands for the keeper. */
#include "box/link.h"

#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define IDS 1024
#define PATIENCE_MS 60000

static const char *const environment[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", NULL};

static struct box *box;
static struct link *box_link;
static struct link_limits limits;
static int kept[IDS][3];
static int at_rest; /* processes below us when nothing runs */

static int fail(const char *what, const struct error *err)
{
    (void)fflush(stdout);
    (void)fprintf(stderr, "links: %s: %s: %s\n", what, err->code, err->text);
    return 1;
}

static const char *const kinds[] = {
    [LINK_READY] = "ready",   [LINK_HELLO] = "hello",   [LINK_ENTRY] = "entry",
    [LINK_TABLE_END] = "end", [LINK_STARTED] = "start", [LINK_REFUSED] = "refused",
    [LINK_EXITED] = "exited", [LINK_OPENED] = "opened", [LINK_GONE] = "gone"};

static void print_status(int status)
{
    if (WIFSIGNALED(status))
        printf(" signal %d", WTERMSIG(status));
    else
        printf(" exit %d", WEXITSTATUS(status));
}

/* "wrr": for what each is open; "-": none. In capitals where it would make us wait. */
static void print_fds(const int fds[3])
{
    putchar(' ');
    for (int i = 0; i < 3; i++) {
        int flags = fds[i] >= 0 ? fcntl(fds[i], F_GETFL) : -1;
        const char *modes = flags >= 0 && (flags & O_NONBLOCK) == 0 ? "RWX" : "rwx";

        putchar(flags < 0 ? '-' : modes[flags & O_ACCMODE]);
    }
}

static void print_file(const struct link_event *event)
{
    char text[65] = "";
    struct stat st;

    if (event->errnum != 0) {
        printf(" %s", strerror(event->errnum));
        return;
    }
    (void)fstat(event->fds[0], &st);
    (void)!read(event->fds[0], text, sizeof(text) - 1);
    text[strcspn(text, "\n")] = '\0';
    printf(" %s %o %s",
           S_ISREG(st.st_mode)    ? "file"
           : S_ISFIFO(st.st_mode) ? "fifo"
                                  : "other",
           st.st_mode & 07777U, text);
    print_fds(event->fds);
    (void)close(event->fds[0]);
}

static void keep(const struct link_event *event)
{
    for (int i = 0; i < 3; i++) {
        fd_close(&kept[event->id % IDS][i]);
        kept[event->id % IDS][i] = event->fds[i];
    }
}

static void print_event(const struct link_event *event)
{
    printf("%s %u", kinds[event->kind], event->id);
    if (event->kind == LINK_STARTED || event->kind == LINK_ENTRY) {
        print_fds(event->fds);
        keep(event);
        printf("%s%s", event->is_tty ? " tty" : "", event->pid > 1 ? "" : " without pid");
    }
    if (event->kind == LINK_ENTRY && !event->has_ended)
        printf(" running");
    if (event->kind == LINK_EXITED || event->has_ended)
        print_status(event->status);
    if (event->kind == LINK_REFUSED)
        printf(" step %d: %s", event->step, strerror(event->errnum));
    if (event->kind == LINK_OPENED)
        print_file(event);
    if (event->kind == LINK_GONE)
        printf(" %s", event->error.code);
    putchar('\n');
}

static int heed(const char *kind, unsigned id, struct error *err)
{
    struct link_event event;
    int got;

    for (;;) {
        struct pollfd wait = {.fd = link_fd(box_link), .events = POLLIN};

        if (poll(&wait, 1, PATIENCE_MS) == 0)
            return error_set(err, "silent", 0, "no %s %u", kind, id);
        while ((got = link_next(box_link, &event, err)) > 0) {
            print_event(&event);
            if (strcmp(kinds[event.kind], kind) == 0 && event.id == id)
                return 0;
            if (event.kind == LINK_GONE)
                return error_set(err, event.error.code, 0, "%s", event.error.text);
        }
        if (got < 0)
            return -1;
    }
}

static int open_link(struct error *err)
{
    int control = box_control_dup(box, err);

    return control < 0 ? -1 : link_open(control, &box_link, err);
}

static int again(struct error *err)
{
    link_close(box_link);
    box_link = NULL;
    for (int id = 0; id < IDS; id++)
        for (int i = 0; i < 3; i++)
            fd_close(&kept[id][i]);
    return open_link(err) < 0 ? -1 : link_hello(box_link, err);
}

static int start(unsigned id, const char *kind, const char *line, struct error *err)
{
    const char *const argv[] = {"/bin/sh", "-c", line, NULL};
    struct link_command command = {.argv = argv,
                                   .env = environment,
                                   .cwd = "/tmp",
                                   .stdio = LINK_PIPES,
                                   .fds = {0, 1, 2},
                                   .rows = 24,
                                   .columns = 80,
                                   .limits = limits};

    if (strcmp(kind, "tty") == 0)
        command.stdio = LINK_TTY;
    if (strcmp(kind, "given") == 0)
        command.stdio = LINK_GIVEN;
    if (strcmp(kind, "nowhere") == 0)
        command.cwd = "/nowhere";
    command.no_stdin = strcmp(kind, "nostdin") == 0;
    (void)fflush(stdout);
    return link_exec(box_link, id, &command, err);
}

static int start_many(char **words, struct error *err)
{
    unsigned first = (unsigned)atoi(words[1]), count = (unsigned)atoi(words[2]);

    for (unsigned id = first; id < first + count; id++)
        if (start(id, "nostdin", words[3], err) < 0)
            return -1;
    return 0;
}

static void pause_ms(long ms)
{
    (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* To the end of it, or until nothing more comes for a while. */
static int read_all(unsigned id, int stream, struct error *err)
{
    int fd = kept[id % IDS][stream];
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    char text[4096];
    ssize_t n = 0;

    printf("read %u ", id);
    while (poll(&wait, 1, PATIENCE_MS) > 0 && (n = read(fd, text, sizeof(text))) > 0)
        for (ssize_t i = 0; i < n; i++)
            if (text[i] != '\r')
                putchar(text[i] == '\n' ? '|' : text[i]);
    printf("%s\n", n == 0 && wait.revents != 0 ? " END" : "");
    return fd < 0 ? error_set(err, "no_stream", 0, "command %u has no such stream", id) : 0;
}

/* How many processes are below us. */
static int count_below(void)
{
    static pid_t pids[65536], parents[65536];
    int count = 0, below = 0;
    DIR *directory = opendir("/proc");
    struct dirent *entry;

    while (directory != NULL && (entry = readdir(directory)) != NULL && count < 65536) {
        char path[32], text[512] = "", state;
        int fd;

        (void)snprintf(path, sizeof(path), "/proc/%.16s/stat", entry->d_name);
        fd = atoi(entry->d_name) > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (fd < 0)
            continue;
        (void)!read(fd, text, sizeof(text) - 1);
        (void)close(fd);
        pids[count] = atoi(entry->d_name);
        if (strrchr(text, ')') != NULL &&
            sscanf(strrchr(text, ')'), ") %c %d", &state, &parents[count]) == 2)
            count++;
    }
    if (directory != NULL)
        (void)closedir(directory);
    for (int i = 0; i < count; i++) {
        pid_t at = pids[i];

        for (int depth = 0; depth < 64 && at > 1 && at != getpid(); depth++) {
            int j = 0;

            while (j < count && pids[j] != at)
                j++;
            at = j < count ? parents[j] : 0;
        }
        below += at == getpid() && pids[i] != getpid();
    }
    return below;
}

/* At two looks in a row: one of them may miss whose parent ends at that moment. */
static int wait_still(struct error *err)
{
    for (int waited = 0, still = 0; waited < PATIENCE_MS; waited += 50) {
        still = count_below() <= at_rest ? still + 1 : 0;
        if (still == 2)
            return 0;
        pause_ms(50);
    }
    return error_set(err, "busy", 0, "%d processes, and not %d", count_below(), at_rest);
}

static int open_file(unsigned id, const char *flags, const char *path, struct error *err)
{
    uint64_t how = strcmp(flags, "r") == 0       ? O_RDONLY
                   : strcmp(flags, "path") == 0  ? O_PATH
                   : strcmp(flags, "write") == 0 ? O_WRONLY
                                                 : O_RDWR | O_CREAT;

    return link_open_file(box_link, id, path, how, (how & O_CREAT) != 0 ? 06750 : 0, err);
}

struct word {
    const char *name;
    int words; /* with its arguments */
};

static int act(char **words, int *took, struct error *err)
{
    static const struct word known[] = {{"start", 4}, {"limits", 5}, {"many", 4},  {"heed", 3},
                                        {"again", 1}, {"table", 1},  {"read", 3},  {"write", 3},
                                        {"shut", 2},  {"ack", 2},    {"kill", 2},  {"signal", 3},
                                        {"open", 4},  {"sleep", 2},  {"close", 3}, {"still", 1}};
    const char *name = words[0];
    unsigned id;

    *took = 0;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(name, known[i].name) == 0)
            *took = known[i].words;
    for (int i = 0; i < *took; i++)
        if (words[i] == NULL)
            *took = 0;
    if (*took == 0)
        return error_set(err, "bad_word", 0, "%s is no word, or has too few behind it", name);
    id = *took > 1 ? (unsigned)atoi(words[1]) : 0;
    if (strcmp(name, "start") == 0)
        return start(id, words[2], words[3], err);
    if (strcmp(name, "many") == 0)
        return start_many(words, err);
    if (strcmp(name, "heed") == 0)
        return heed(words[1], (unsigned)atoi(words[2]), err);
    if (strcmp(name, "again") == 0)
        return again(err);
    if (strcmp(name, "table") == 0)
        return heed("end", 0, err);
    if (strcmp(name, "read") == 0)
        return read_all(id, atoi(words[2]), err);
    if (strcmp(name, "ack") == 0)
        return link_ack(box_link, id, err);
    if (strcmp(name, "kill") == 0)
        return link_kill(box_link, id, err);
    if (strcmp(name, "signal") == 0)
        return link_signal(box_link, id, atoi(words[2]), err);
    if (strcmp(name, "open") == 0)
        return open_file(id, words[2], words[3], err);
    if (strcmp(name, "write") == 0)
        return fd_write_full(kept[id % IDS][0], words[2], strlen(words[2]));
    if (strcmp(name, "close") == 0)
        fd_close(&kept[id % IDS][atoi(words[2]) % 3]);
    if (strcmp(name, "shut") == 0) {
        fd_close(&kept[id % IDS][0]);
        return link_close_stdin(box_link, id, err);
    }
    if (strcmp(name, "still") == 0)
        return wait_still(err);
    if (strcmp(name, "sleep") == 0)
        pause_ms((long)id);
    if (strcmp(name, "limits") == 0)
        limits = (struct link_limits){.memory_bytes = strtoull(words[1], NULL, 10),
                                      .file_bytes = strtoull(words[2], NULL, 10),
                                      .cpu_seconds = (uint32_t)atoi(words[3]),
                                      .open_files = (uint32_t)atoi(words[4])};
    return 0;
}

int main(int argc, char **argv)
{
    const char *bound = getenv("COVE_TEST_BIND"); /* a directory that is written to */
    struct box_bind bind = {.source = bound, .target = "/bound"};
    struct box_spec spec = {
        .root_kind = BOX_ROOT_HOST,
        .binds = &bind,
        .binds_count = bound != NULL ? 1 : 0,
        .many_commands = true,
        .limits = {.memory_bytes = 512ULL << 20,
                   .pids = 1024,
                   .disk_bytes = 64 << 20,
                   .disk_inodes = 4096},
    };
    struct box_report report;
    struct error err = {0};
    int status = 0;

    if (argc < 3)
        return 2;
    memset(kept, 0xff, sizeof(kept));
    spec.privileges = strcmp(argv[1], "system") == 0 ? BOX_SYSTEM : BOX_PLAIN;
    if (box_create(&spec, &box, &err) < 0)
        return fail("create", &err);
    if (open_link(&err) < 0 || heed("ready", 0, &err) < 0)
        status = fail("ready", &err);
    at_rest = count_below();
    for (int i = 2, took; i < argc && status == 0; i += took)
        if (act(argv + i, &took, &err) < 0)
            status = fail(argv[i], &err);
    link_close(box_link);
    if (box_destroy(box, &report, &err) < 0)
        return fail("destroy", &err);
    return status;
}
