/* `cove exec`: one command in a sandbox that lives; its output as it comes, its end as our own.
 *
 * The command is started, then its log is followed: a server that is replaced meanwhile is found again
 * and nothing is lost. It is told of signals that we get over a connection of its own, since the first
 * is busy. A command whose output nobody reads any more is killed, as a pipe would do. */
#include "cmd/exec.h"

#include "base/fd.h"
#include "base/parse.h"
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/env_file.h"
#include "cmd/follow.h"
#include "cmd/terminal.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_ANSWER_MS 180000 /* with --start a box is made first */
#define SIGNAL_ANSWER_MS 5000

struct exec_options {
    struct options_common common;
    bool input, no_input, detach, start, tty;
    const char *cwd, *user, *tag, *detach_keys;
    struct terminal_keys keys;
    uint64_t timeout_ms; /* 0: none */
    struct api_pairs env;
};

struct exec {
    const struct exec_options *options;
    struct client *client;   /* starts, then follows */
    struct client *control;  /* signals; NULL: not needed yet */
    const char *word;        /* that names the sandbox */
    const char *sandbox;     /* its path in the API */
    char path[API_PATH_MAX]; /* of the process; "": it does not run yet */
    int signals;             /* signalfd */
    int early;               /* a signal that came before; 0: none */
    int endings;             /* how often we were told to end */
    pid_t feeder;            /* 0: none */
    bool feeder_failed;
};

/* ---- options ---- */

static int take_timeout(void *into, const char *value, struct error *err)
{
    return parse_duration("--timeout", value, &((struct exec_options *)into)->timeout_ms, err);
}

static int take_env(void *into, const char *value, struct error *err)
{
    return api_pairs_take(&((struct exec_options *)into)->env, "env", value, true, err);
}

static int take_env_file(void *into, const char *value, struct error *err)
{
    return api_pairs_file_take(&((struct exec_options *)into)->env, value, err);
}

static const struct option_row rows[] = {
    {"interactive", NULL, "a pipe or a file is, a terminal is not",
     "give the command our standard input, whatever that is; with --detach and --json it has none",
     NULL, 'i', offsetof(struct exec_options, input)},
    {"no-stdin", NULL, NULL,
     "give the command no input: for a loop of a shell that reads from a file or a pipe itself",
     NULL, 'n', offsetof(struct exec_options, no_input)},
    {"tty", NULL, "it has none",
     "give the command a terminal of the size of yours; with --interactive it is yours, and two keys "
     "detach from it",
     NULL, 't', offsetof(struct exec_options, tty)},
    {"detach-keys", "KEYS", TERMINAL_KEYS_USUAL,
     "the keys that detach, one after the other: ctrl-LETTER or a character; none", NULL, 0,
     offsetof(struct exec_options, detach_keys)},
    {"detach", NULL, NULL, "only start it and print its id, for cove logs, wait and kill", NULL,
     'd', offsetof(struct exec_options, detach)},
    {"env", "NAME[=VALUE]", "the sandbox's",
     "set a variable; without a value, pass yours on; repeatable", take_env, 'e', 0},
    ENV_FILE_ROW,
    {"cwd", "DIR", "the sandbox's", "directory to start in", NULL, 'w',
     offsetof(struct exec_options, cwd)},
    {"user", "USER[:GROUP]", "the sandbox's",
     "who runs the command, by name or number inside the sandbox", NULL, 'u',
     offsetof(struct exec_options, user)},
    {"timeout", "TIME", "none", "kill it with all it started after this long; exit 124",
     take_timeout, 0, 0},
    {"start", NULL, NULL, "start the sandbox first if it is stopped", NULL, 0,
     offsetof(struct exec_options, start)},
    {"tag", "TEXT", NULL, "a note for yourself, kept with the process", NULL, 0,
     offsetof(struct exec_options, tag)},
    OPTION_JSON(
        "print one JSON object: the result with the output, or the error; with --tty, which "
        "shows the output, the result at the end"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "exec",
    .usage = "SANDBOX [--] COMMAND [ARG...]",
    .about = "Runs a command in a sandbox, by its id or its name, and shows what it writes as it\n"
             "comes. Ctrl-C interrupts the command; a second one kills it with all it started.",
    .notes =
        "TIME is seconds, or has ms, s, m, h or d.\n"
        "If cove exec itself is killed, its command gets SIGHUP after 10 seconds, and with --json it is\n"
        "killed at once; with --detach it runs on.\n"
        "\n"
        "Exit status: the command's own; 128+N if signal N killed it; 124 at the timeout; 125 if\n"
        "cove itself failed; 126 if the command cannot be executed; 127 if it is not there.",
    .examples = "cove exec work -- sh -c 'id; pwd'\n"
                "cove exec -it work -- bash\n"
                "cove exec work -- tar x <files.tar\n"
                "cove exec -d work -- python3 -m http.server",
    OPTION_ROWS(rows),
    .words = 1,
    .words_least = 1,
    .command_follows = true,
    .json_errors = true,
};

/* ---- the request ---- */

static int terminal_set(struct doc *body)
{
    struct doc *size = doc_new();
    uint16_t rows_there, columns;
    int failed = 0;

    (void)terminal_size(&rows_there, &columns);
    failed |= doc_set_number(size, "rows", rows_there);
    failed |= doc_set_number(size, "columns", columns);
    return failed | doc_set(body, "terminal", size);
}

static int body_make(const struct exec_options *options, char *const *command, struct doc *body,
                     struct error *err)
{
    struct doc *argv = doc_new_array();
    int failed = 0;

    for (; *command != NULL; command++)
        failed |= doc_add_text(argv, *command);
    failed |= doc_set(body, "argv", argv);
    failed |= doc_set_text(body, "cwd", options->cwd);
    failed |= doc_set_text(body, "user", options->user);
    failed |= doc_set_text(body, "tag", options->tag);
    failed |= doc_set_number(body, "timeout_ms",
                             options->timeout_ms); /* 0: not the server's, none */
    failed |= api_pairs_set(body, "env", &options->env);
    if (options->start)
        failed |= doc_set_true(body, "start");
    if (options->tty)
        failed |= terminal_set(body);
    else if (options->input)
        failed |= doc_set_true(body, "open_stdin");
    if (failed != 0)
        return error_set(
            err, "bad_value", 0,
            "exec: a word is no UTF-8, and a sandbox takes nothing else; pass such bytes "
            "by standard input");
    return 0;
}

static int refused(const struct exec *exec, const struct error *err)
{
    options_error_print(&table, exec->options, err);
    (void)api_fail(err);
    return api_start_status(err->code);
}

/* ---- signals ---- */

static int signals_open(struct exec *exec, struct error *err)
{
    sigset_t taken;
    sigset_t blocked;

    (void)sigemptyset(&taken);
    (void)sigaddset(&taken, SIGCHLD);
    cmd_signals_add(&taken);
    blocked = taken;
    (void)sigaddset(&blocked, SIGPIPE);
    (void)sigprocmask(SIG_BLOCK, &blocked, NULL);
    exec->signals = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    if (exec->signals < 0)
        return error_set(err, "signals", errno, "signalfd: the kernel refused it; end something");
    return 0;
}

/* Tells the process of a signal, or with 0 kills all of it. What fails is not said: most often it has
 * just ended. */
static void process_tell(struct exec *exec, int number)
{
    _cleanup_doc_ struct doc *body = doc_new();
    struct error ignored;
    char path[API_PATH_MAX + 16];
    const struct client_request request = {.method = number == 0 ? "DELETE" : "POST",
                                           .path = path,
                                           .json = number == 0 ? NULL : body,
                                           .answer_ms = SIGNAL_ANSWER_MS};

    (void)snprintf(path, sizeof(path), "%s%s", exec->path, number == 0 ? "" : "/signal");
    if (exec->control == NULL && client_copy(exec->client, &exec->control, &ignored) < 0)
        return;
    if (number == 0 || doc_set_number(body, "signal", (uint64_t)number) == 0)
        (void)client_call(exec->control, &request, NULL, &ignored);
}

static void feeder_reap(struct exec *exec)
{
    int status;

    if (exec->feeder == 0 || waitpid(exec->feeder, &status, WNOHANG) != exec->feeder)
        return;
    exec->feeder = 0;
    if (status == 0)
        return;
    /* The command would wait for the rest, or take what it got for all. */
    exec->feeder_failed = true;
    process_tell(exec, 0);
}

/* The first is for the command, the second ends it whatever it does, the third ends us. */
static void signal_take(struct exec *exec, int number)
{
    if (cmd_signal_ends(number))
        exec->endings++;
    if (exec->endings > 2 || (exec->endings > 1 && exec->path[0] == '\0'))
        _exit(API_EXIT_SIGNAL + number);
    if (exec->path[0] == '\0')
        exec->early = number;
    else
        process_tell(exec, cmd_signal_ends(number) && exec->endings > 1 ? 0 : number);
}

static void signals_take(void *arg)
{
    struct exec *exec = arg;
    struct signalfd_siginfo info;

    while (read(exec->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            feeder_reap(exec);
        else
            signal_take(exec, (int)info.ssi_signo);
    }
}

/* ---- running ---- */

static int process_start(struct exec *exec, const struct doc *body, struct doc **process,
                         struct error *err)
{
    char path[API_PATH_MAX];
    const struct client_request request = {
        .method = "POST", .path = path, .json = body, .answer_ms = START_ANSWER_MS};
    const char *id;

    if (api_path(path, exec->sandbox, "/processes", err) < 0 ||
        client_call(exec->client, &request, process, err) < 0 ||
        api_text(*process, "id", &id, err) < 0)
        return -1;
    if (id[strspn(id, "0123456789")] != '\0' || strlen(id) > 20)
        return error_set(err, "bad_answer", 0, "the server gave the process an id that is none");
    return api_process_path(exec->path, exec->sandbox, id, err);
}

/* Follows the process to its end: the exit status. */
static int process_follow(struct exec *exec, struct error *err)
{
    _cleanup_doc_ struct doc *process = NULL;
    struct follow follow = {.client = exec->client,
                            .process = exec->path,
                            .is_own = true,
                            .watch_fd = exec->signals,
                            .watch_call = signals_take,
                            .watch_arg = exec};
    int result;

    if (exec->options->input &&
        exec_stdin_start(exec->client, exec->path, &exec->feeder, err) < 0) {
        process_tell(exec, 0);
        return api_fail(err);
    }
    if (exec->early != 0)
        process_tell(exec, exec->early);
    result = follow_run(&follow, &process, err);
    exec_stdin_end(&exec->feeder);
    if (result == 0)
        return exec->feeder_failed ? CMD_FAILED : api_process_status(process);
    if (!client_was_cut(err))
        process_tell(exec, 0); /* nobody would see what it does */
    return follow.is_unread ? API_EXIT_SIGNAL + SIGPIPE : api_fail(err);
}

static int detached_print(const struct exec_options *options, const struct doc *process,
                          struct error *err)
{
    char line[64];

    if (options->common.json)
        return doc_print(process, err);
    (void)snprintf(line, sizeof(line), "%.40s\n", doc_text(process, "id"));
    return cmd_print(line, strlen(line)) < 0 ? CMD_FAILED : 0;
}

/* On a terminal: it is started, and then we are attached to it like anybody else. */
static int exec_terminal(struct exec *exec, const struct doc *body, struct error *err)
{
    _cleanup_doc_ struct doc *process = NULL;
    struct terminal_options options = {.sandbox = exec->word,
                                       .path = exec->path,
                                       .keys = exec->options->keys,
                                       .takes_input = exec->options->input,
                                       .is_own = true,
                                       .json = exec->options->common.json,
                                       .has_from = true};

    if (process_start(exec, body, &process, err) < 0)
        return refused(exec, err);
    if (exec->options->detach)
        return detached_print(exec->options, process, err);
    options.process = doc_text(process, "id");
    return terminal_run(exec->client, &options, err);
}

static int exec_streams(struct exec *exec, const struct doc *body, struct error *err)
{
    _cleanup_doc_ struct doc *process = NULL;

    if (!exec->options->detach) {
        if (signals_open(exec, err) < 0)
            return api_fail(err);
        client_watch(exec->client, exec->signals, signals_take, exec);
    }
    if (process_start(exec, body, &process, err) < 0)
        return refused(exec, err);
    return exec->options->detach ? detached_print(exec->options, process, err)
                                 : process_follow(exec, err);
}

/* Of one whose result was to come with its end. */
static void json_signals_take(void *arg)
{
    struct exec *exec = arg;
    struct signalfd_siginfo info;
    struct error err;

    if (read(exec->signals, &info, sizeof(info)) != (ssize_t)sizeof(info) ||
        info.ssi_signo == SIGCHLD)
        return;
    (void)error_set(&err, "interrupted", 0,
                    "exec: it was told to end before the command had; the command is killed");
    (void)refused(exec, &err);
    _exit(API_EXIT_SIGNAL + (int)info.ssi_signo);
}

/* With --json: one request that lasts as long as the command, which is killed if we are. */
static int exec_json(struct exec *exec, const struct doc *body, struct error *err)
{
    _cleanup_doc_ struct doc *answer = NULL;
    char path[API_PATH_MAX];
    const struct client_request request = {
        .method = "POST", .path = path, .json = body, .answer_ms = UINT_MAX};
    sigset_t ending;

    (void)sigemptyset(&ending);
    if (signals_open(exec, err) < 0)
        return -1;
    client_watch(exec->client, exec->signals, json_signals_take, exec);
    if (api_path(path, exec->sandbox, "/exec", err) < 0 ||
        client_call(exec->client, &request, &answer, err) < 0)
        return refused(exec, err);
    /* From here on they end us as usual, also where nobody reads what we print. */
    cmd_signals_add(&ending);
    (void)sigprocmask(SIG_UNBLOCK, &ending, NULL);
    if (doc_print(answer, err) < 0)
        return api_fail(err);
    return api_process_status(doc_get(answer, "process"));
}

/* A pipe or a file that is our input is the command's, as of any program. A terminal is only by --interactive, and
 * /dev/null need not be carried. */
static bool stdin_is_piped(void)
{
    struct stat st;

    return fstat(STDIN_FILENO, &st) == 0 &&
           (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || S_ISREG(st.st_mode));
}

/* Whether what was said of the input and the keys can be. */
static int options_finish(struct exec_options *options, struct error *err)
{
    bool goes_with_input = !options->detach && (!options->common.json || options->tty);

    if (options->input && !goes_with_input)
        return error_set(err, "bad_value", 0,
                         "--interactive: it goes with --detach not at all, and with --json only on "
                         "a terminal; leave one out, or add --tty");
    if (options->input && options->no_input)
        return error_set(err, "bad_value", 0,
                         "--no-stdin: it is the opposite of --interactive; leave one out");
    if (goes_with_input && !options->tty && !options->no_input && stdin_is_piped())
        options->input = true;
    return terminal_keys_parse(options->detach_keys != NULL ? options->detach_keys
                                                            : TERMINAL_KEYS_USUAL,
                               &options->keys, err);
}

static int command_run(struct client *client, struct exec_options *options,
                       const struct option_words *words, char *const *argv, struct error *err)
{
    struct exec exec = {.options = options,
                        .client = client,
                        .word = words->word[0],
                        .sandbox = words->sandbox,
                        .signals = -1};
    _cleanup_doc_ struct doc *body = doc_new();
    int status;

    if (options_finish(options, err) < 0 || body_make(options, argv, body, err) < 0)
        return -1;
    if (options->tty)
        status = exec_terminal(&exec, body, err);
    else if (options->common.json && !options->detach)
        status = exec_json(&exec, body, err);
    else
        status = exec_streams(&exec, body, err);
    fd_close(&exec.signals);
    client_close(exec.control);
    return status;
}

static int exec_call(struct client *client, void *options, const struct option_words *words,
                     struct error *err)
{
    return command_run(client, options, words, words->rest, err);
}

static int exec_run(const struct cmd *cmd, int argc, char **argv)
{
    struct exec_options options = {0};
    int status = api_command(cmd, argc, argv, &options, exec_call);

    api_pairs_free(&options.env);
    return status;
}

const struct cmd cmd_exec = {.name = "exec",
                             .summary = "run a command in a sandbox",
                             .run = exec_run,
                             .table = &table,
                             .target = CMD_TARGET_SANDBOX};

/* ---- a shell ---- */

static const struct option_row shell_rows[] = {
    {"env", "NAME[=VALUE]", "the sandbox's",
     "set a variable; without a value, pass yours on; repeatable", take_env, 'e', 0},
    ENV_FILE_ROW,
    {"cwd", "DIR", "the sandbox's", "directory to start in", NULL, 'w',
     offsetof(struct exec_options, cwd)},
    {"user", "USER[:GROUP]", "the sandbox's",
     "whose shell it is, by name or number inside the sandbox", NULL, 'u',
     offsetof(struct exec_options, user)},
    {"start", NULL, NULL, "start the sandbox first if it is stopped", NULL, 0,
     offsetof(struct exec_options, start)},
    {"detach-keys", "KEYS", TERMINAL_KEYS_USUAL,
     "the keys that detach, one after the other: ctrl-LETTER or a character; none", NULL, 0,
     offsetof(struct exec_options, detach_keys)},
    OPTION_HELP,
};

static const struct option_table shell_table = {
    .command = "shell",
    .usage = "SANDBOX",
    .about =
        "Opens a shell in a sandbox, bash if it is there, else sh: cove exec -it with less to\n"
        "type. It runs a script that is piped to it.",
    .examples = "cove shell work\n"
                "echo 'cd /tmp && ls' | cove shell work",
    OPTION_ROWS(shell_rows),
    .words = 1,
    .words_least = 1,
};

static int shell_call(struct client *client, void *options, const struct option_words *words,
                      struct error *err)
{
    static char *const shell[] = {"sh", "-c", "command -v bash >/dev/null && exec bash; exec sh",
                                  NULL};

    return command_run(client, options, words, shell, err);
}

static int shell_run(const struct cmd *cmd, int argc, char **argv)
{
    struct exec_options options = {.input = true, .tty = isatty(STDIN_FILENO) == 1};
    int status = api_command(cmd, argc, argv, &options, shell_call);

    api_pairs_free(&options.env);
    return status;
}

const struct cmd cmd_shell = {.name = "shell",
                              .summary = "open a shell in a sandbox",
                              .run = shell_run,
                              .table = &shell_table,
                              .target = CMD_TARGET_SANDBOX};
