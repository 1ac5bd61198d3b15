/* A program of somebody's that runs boxes by libcove: each word of argv[1] is one thing it tries, and what
 * it saw is one line. It checks nothing: test_library.py does. */
#include <cove.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void say(int ran, const struct cove_result *result, const struct cove_error *error)
{
    if (ran < 0)
        printf("failed %s: %s\n", error->code, error->text);
    else
        printf(
            "exit %d signal %d timed_out %d cancelled %d oom %d dropped %llu out [%s] err [%s]\n",
            result->exit_code, result->signal, result->timed_out, result->cancelled,
            result->oom_killed, (unsigned long long)result->out_dropped, result->out, result->err);
}

static void run(struct cove_run *run)
{
    struct cove_result result;
    struct cove_error error;
    int ran = cove_run(run, &result, &error);

    say(ran, &result, &error);
    if (ran == 0)
        cove_result_free(&result);
}

static void shell(const char *line, struct cove_run *with)
{
    const char *const argv[] = {"sh", "-c", line, NULL};

    with->argv = argv;
    run(with);
}

static void *in_thread(void *failures)
{
    const char *const argv[] = {"sh", "-c", "echo $((6 * 7))", NULL};
    const struct cove_mount mounts[] = {{"/etc", "/m/a", 0},
                                        {"/usr/share", "/m/b", 0},
                                        {"/usr/lib", "/m/c", 0},
                                        {"/usr/bin", "/m/d", 0}};
    struct cove_run wanted = {.argv = argv, .cpu_milli = 500, .mounts = mounts, .mounts_count = 4};
    struct cove_result result;
    struct cove_error error;

    for (int i = 0; i < 5; i++) {
        if (cove_run(&wanted, &result, &error) < 0 || strcmp(result.out, "42\n") != 0)
            (*(int *)failures)++;
        cove_result_free(&result);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t ids[4];
    int failures[4] = {0};

    for (int i = 0; i < 4; i++)
        (void)pthread_create(&ids[i], NULL, in_thread, &failures[i]);
    for (int i = 0; i < 4; i++)
        (void)pthread_join(ids[i], NULL);
    printf("threads %d failures\n", failures[0] + failures[1] + failures[2] + failures[3]);
}

static int count_fds(void)
{
    int count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void big_input(void)
{
    static char bytes[4 << 20];
    struct cove_run with = {.input = bytes, .input_size = sizeof(bytes)};

    shell("wc -c", &with);
    shell("exec true", &with); /* nobody reads it */
}

int main(int argc, char **argv)
{
    const char *const env[] = {"GREETING=hello", "LANG=C", NULL};
    struct cove_mount mount = {.source = argc > 2 ? argv[2] : "", .target = "/data"};
    int fds = count_fds(), ends[2];
    sigset_t before, after;

    (void)pthread_sigmask(SIG_SETMASK, NULL, &before);
    if (argc < 3 || pipe(ends) < 0)
        return 2;
    shell("echo out; echo err >&2; exit 7", &(struct cove_run){0});
    shell("cat", &(struct cove_run){.input = "text", .input_size = 4});
    shell("echo $GREETING $LANG $SECRET$HOME; pwd", &(struct cove_run){.env = env, .cwd = "/tmp"});
    shell("cat /data/file; echo x > /data/file",
          &(struct cove_run){.mounts = &mount, .mounts_count = 1});
    shell("echo begun; sleep 100", &(struct cove_run){.timeout_ms = 10000});
    (void)!write(ends[1], "x", 1);
    shell("sleep 100", &(struct cove_run){.cancel_fd = ends[0]});
    shell("seq 1 100000", &(struct cove_run){.output_limit = 12});
    shell("exec tail /dev/zero", &(struct cove_run){.memory_bytes = 64 << 20});
    shell("kill -SEGV $$", &(struct cove_run){0});
    run(&(struct cove_run){.argv = (const char *const[]){"no-such-program", NULL}});
    run(&(struct cove_run){.argv = NULL});
    shell("true", &(struct cove_run){.cwd = "/no/such"});
    big_input();
    threads();
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &after);
    printf("fds %d mask %d\n", count_fds() - fds, memcmp(&before, &after, sizeof(before)) != 0);
    return 0;
}
