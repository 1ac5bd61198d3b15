/* What the commands over the native API share: see api.h. */
#include "cmd/api.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "cmd/cmd.h"
#include "cmd/env_file.h"
#include "cmd/show.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ID_LENGTH 20
#define API_CURSOR_MAX 1024
#define AGAIN_MS 30000 /* how long a server that went away is looked for */
#define AGAIN_PAUSE_MS 200
#define REFUSED_PAUSE_MS 1000 /* where the server says that it is asked too much */
#define LIST_PAGES_MAX 10000
#define LIST_BYTES_MAX \
    (128U << 20) /* of their texts; a server may say for ever that there is more */

static bool looks_like_id(const char *word)
{
    return strlen(word) == ID_LENGTH && word[0] == 'c' &&
           strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789") == ID_LENGTH;
}

/* Adds what needs no encoding; false if it does not fit. */
static bool path_add(char path[API_PATH_MAX], const char *rest)
{
    size_t used = strlen(path);

    return snprintf(path + used, API_PATH_MAX - used, "%s", rest) < (int)(API_PATH_MAX - used);
}

static int bad_word(struct error *err, const char *what)
{
    return error_set(
        err, "bad_value", 0,
        "the name of a %s is empty or too long; cove ls and cove ps list what there is", what);
}

int api_sandbox_path(char path[API_PATH_MAX], const char *word, const char *rest, struct error *err)
{
    bool is_name = strncmp(word, "name:", 5) == 0;

    if (is_name)
        word += 5;
    (void)snprintf(path, API_PATH_MAX, "/v1/sandboxes/%s",
                   is_name || !looks_like_id(word) ? "name:" : "");
    if (word[0] == '\0' || !wire_encode(path, API_PATH_MAX, word) || !path_add(path, rest))
        return bad_word(err, "sandbox");
    return 0;
}

int api_path(char path[API_PATH_MAX], const char *above, const char *rest, struct error *err)
{
    path[0] = '\0';
    return path_add(path, above) && path_add(path, rest) ? 0 : bad_word(err, "sandbox");
}

int api_process_path(char path[API_PATH_MAX], const char *sandbox, const char *process,
                     struct error *err)
{
    if (api_path(path, sandbox, "/processes/", err) < 0)
        return -1;
    return process[0] != '\0' && wire_encode(path, API_PATH_MAX, process)
               ? 0
               : bad_word(err, "process");
}

/* What to do is said by the server in words of its API. Where the command line has a way of its own,
 * this is put in place of it. */
static const struct {
    const char *code, *remedy;
} remedies[] = {
    {"sandbox_outdated", "stop it with cove stop, then start it with cove start"},
    {"sandbox_stopped", "start it with cove start, or run the command with cove exec --start"},
    {"unknown_root", "cove root ls lists what there is, cove root add NAME PATH adds one"},
    {"unknown_mount", "cove mount ls lists what there is, cove mount add NAME PATH adds one"},
    {"sandbox_not_found", "cove ls lists what there is"},
    {"process_not_found", "cove ps SANDBOX lists what there is"},
    {"bad_key", "check COVE_API_KEY"},
    {"stdin_closed", "give a process input with cove exec -i"},
};

/* The API names what has a name by "name:NAME"; who types it says NAME. */
static size_t name_length(const char *text, const char **rest)
{
    const char *prefix = strstr(text, "'name:");

    *rest = prefix == NULL ? text : prefix + strlen("'name:");
    return prefix == NULL ? 0 : (size_t)(prefix - text) + 1;
}

int api_fail(const struct error *err)
{
    const char *rest;
    size_t before = name_length(err->text, &rest);

    for (size_t i = 0; i < sizeof(remedies) / sizeof(remedies[0]); i++) {
        if (strcmp(err->code, remedies[i].code) != 0)
            continue;
        cmd_say("%.*s%.*s; %s", (int)before, err->text, (int)strcspn(rest, ";"), rest,
                remedies[i].remedy);
        return CMD_FAILED;
    }
    return cmd_fail(err);
}

/* ---- processes ---- */

bool api_process_runs(const struct doc *process)
{
    const char *state = doc_text(process, "state");

    return state != NULL && (strcmp(state, "running") == 0 || strcmp(state, "starting") == 0);
}

int api_signal_number(const char *name)
{
    struct error ignored;
    uint64_t number;

    if (strncasecmp(name, "SIG", 3) == 0)
        name += 3;
    if (parse_count("signal", name, 1, 64, &number, &ignored) == 0)
        return (int)number;
    for (int i = 1; i < NSIG; i++) {
        const char *known = sigabbrev_np(i);

        if (known != NULL && strcasecmp(known, name) == 0)
            return i;
    }
    return 0;
}

int api_start_status(const char *code)
{
    return strcmp(code, "command_not_found") == 0 ? API_EXIT_NOT_FOUND
           : strcmp(code, "not_executable") == 0  ? API_EXIT_NOT_EXECUTABLE
                                                  : CMD_FAILED;
}

/* One that never ran, or whose end nobody knows. */
static int process_failed(const struct doc *process)
{
    const struct doc *error = doc_get(process, "error");
    const char *code = doc_text(error, "code");
    const char *text = doc_text(error, "detail");
    const char *reason = doc_text(process, "reason");
    char shown[ERROR_TEXT_MAX];

    if (text == NULL)
        text = doc_text(error, "message");
    if (text == NULL)
        text = reason != NULL ? reason : "the server does not say why";
    if (code == NULL)
        code = reason != NULL ? reason : "";
    show_escape(shown, sizeof(shown), text);
    cmd_say("the command did not end by itself: %s", shown);
    return api_start_status(code);
}

int api_process_status(const struct doc *process)
{
    const char *state = doc_text(process, "state");
    const char *signal_name = doc_text(process, "signal");
    uint64_t code;
    int number;

    if (state == NULL || strcmp(state, "exited") != 0)
        return process_failed(process);
    if (doc_true(process, "timed_out")) {
        cmd_say("the command was killed at its time limit; raise it with --timeout");
        return API_EXIT_TIMED_OUT;
    }
    if (doc_true(process, "oom_killed"))
        cmd_say("the command ran out of the sandbox's memory; make one with more by cove create "
                "--memory");
    if (signal_name != NULL) {
        number = api_signal_number(signal_name);
        return number > 0 ? API_EXIT_SIGNAL + number : CMD_FAILED;
    }
    if (doc_number(process, "exit_code", &code) && code <= 255)
        return (int)code;
    cmd_say("the server does not say with which status the command ended");
    return CMD_FAILED;
}

/* ---- values ---- */

void api_pairs_text(const struct doc *pairs, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (const char *key = doc_next_key(pairs, NULL); key != NULL && used < size;
         key = doc_next_key(pairs, key)) {
        const char *value = doc_text(pairs, key);

        used += (size_t)snprintf(text + used, size - used, "%s%s=%s", used == 0 ? "" : ",", key,
                                 value == NULL ? "" : value);
    }
}

int api_text(const struct doc *doc, const char *key, const char **text, struct error *err)
{
    *text = doc_text(doc, key);
    if (*text != NULL && (*text)[0] != '\0')
        return 0;
    return error_set(err, "bad_answer", 0,
                     "the server's answer lacks its %s; check that COVE_URL leads to cove", key);
}

static int pair_set(struct doc **object, const char *option, const char *name, const char *value,
                    struct error *err)
{
    if (*object == NULL)
        *object = doc_new();
    if (doc_set_text(*object, name, value) < 0)
        return error_set(err, "bad_value", 0,
                         "--%s %.200s: it is no UTF-8; a sandbox takes nothing else", option, name);
    return 0;
}

int api_pairs_take(struct api_pairs *pairs, const char *option, const char *value, bool passes,
                   struct error *err)
{
    size_t length = strcspn(value, "=");
    const char *content = value[length] == '=' ? value + length + 1 : NULL;
    char key[512];

    if (content == NULL && passes)
        content = getenv(value);
    /* What stands in a value may be a secret: no message repeats it. */
    if (length == 0 || length >= sizeof(key))
        return error_set(err, "bad_value", 0, "--%s: the name is missing; write --%s NAME=VALUE",
                         option, option);
    if (content == NULL)
        return option_bad_value(err, option, value,
                                passes ? "it is not set here, so there is nothing to pass on"
                                       : "its value is missing",
                                "write NAME=VALUE");
    (void)snprintf(key, sizeof(key), "%.*s", (int)length, value);
    return pair_set(&pairs->object, option, key, content, err);
}

static int file_pair_set(void *into, const char *name, const char *value, struct error *err)
{
    return pair_set(into, "env-file", name, value, err);
}

int api_pairs_file_take(struct api_pairs *pairs, const char *path, struct error *err)
{
    return env_file_read(path, file_pair_set, &pairs->file, err);
}

int api_pairs_set(struct doc *object, const char *key, const struct api_pairs *pairs)
{
    const struct doc *const parts[] = {pairs->file, pairs->object};
    struct doc *all;
    int failed = 0;

    if (pairs->file == NULL && pairs->object == NULL)
        return 0;
    all = doc_new();
    for (size_t i = 0; i < 2; i++)
        for (const char *name = doc_next_key(parts[i], NULL); name != NULL;
             name = doc_next_key(parts[i], name))
            failed |= doc_set_text(all, name, doc_text(parts[i], name));
    return failed | doc_set(object, key, all);
}

void api_pairs_free(struct api_pairs *pairs)
{
    doc_freep(&pairs->object);
    doc_freep(&pairs->file);
}

/* ---- commands ---- */

static int process_newest(struct client *client, const char *sandbox, bool has_terminal,
                          char path[API_PATH_MAX], struct error *err)
{
    _cleanup_doc_ struct doc *processes = NULL;
    unsigned long long newest = 0;
    char id[32];

    if (api_path(path, sandbox, "/processes", err) < 0 ||
        api_list(client, path, "processes", &processes, err) < 0)
        return -1;
    for (size_t i = 0; i < doc_count(processes); i++) {
        const struct doc *process = doc_at(processes, i);
        const char *text = doc_text(process, "id");
        unsigned long long number = text == NULL ? 0 : strtoull(text, NULL, 10);
        uint64_t rows;

        if (!has_terminal || doc_number(doc_get(process, "terminal"), "rows", &rows))
            newest = number > newest ? number : newest;
    }
    if (newest == 0)
        return error_set(err, "process_not_found", 0, "nothing was started %sin this sandbox yet",
                         has_terminal ? "with a terminal " : "");
    (void)snprintf(id, sizeof(id), "%llu", newest);
    return api_process_path(path, sandbox, id, err);
}

/* The paths of what the words name; it holds them for as long as the command runs. */
struct target {
    char sandbox[API_PATH_MAX], process[API_PATH_MAX];
};

static int target_find(enum cmd_target kind, struct client *client, struct option_words *words,
                       struct target *target, struct error *err)
{
    if (kind == CMD_TARGET_NONE)
        return 0;
    if (api_sandbox_path(target->sandbox, words->word[0], "", err) < 0)
        return -1;
    words->sandbox = target->sandbox;
    if (kind == CMD_TARGET_SANDBOX)
        return 0;
    words->process = target->process;
    if (words->word[1] != NULL)
        return api_process_path(target->process, target->sandbox, words->word[1], err);
    return process_newest(client, target->sandbox, kind == CMD_TARGET_TERMINAL, target->process,
                          err);
}

int api_command(const struct cmd *cmd, int argc, char **argv, void *options, api_call *call)
{
    _cleanup_client_ struct client *client = NULL;
    struct option_words words;
    struct target target;
    struct error err;
    int status;

    if (!options_begin(cmd->table, options, argc, argv, &words, &status))
        return status;
    status = -1;
    if (client_open(&client, &err) == 0 &&
        target_find(cmd->target, client, &words, &target, &err) == 0)
        status = call(client, options, &words, &err);
    if (status >= 0)
        return status;
    options_error_print(cmd->table, options, &err);
    return api_fail(&err);
}

/* ---- streams, and what lasts ---- */

uint64_t api_now_ms(void)
{
    return clock_monotonic_ns() / 1000000;
}

bool api_goes_on(struct client *client, uint64_t heard_ms, const struct error *err)
{
    bool is_refused = strcmp(err->code, "too_many_requests") == 0;
    unsigned pause_ms = is_refused ? REFUSED_PAUSE_MS : AGAIN_PAUSE_MS;
    const struct timespec pause = {.tv_sec = pause_ms / 1000,
                                   .tv_nsec = (long)(pause_ms % 1000) * 1000000};

    client_abandon(client);
    if (!(is_refused || client_may_come_back(err)) || api_now_ms() - heard_ms > AGAIN_MS)
        return false;
    (void)nanosleep(&pause, NULL);
    return true;
}

static void stdout_watch(void *arg)
{
    struct pollfd fd = {.fd = STDOUT_FILENO};

    (void)arg;
    if (poll(&fd, 1, 0) <= 0 || (fd.revents & POLLERR) == 0)
        return;
    (void)signal(SIGPIPE, SIG_DFL);
    (void)raise(SIGPIPE);
    _exit(API_EXIT_SIGNAL + SIGPIPE); /* it is blocked */
}

void api_end_unread(struct client *client)
{
    struct stat st;

    /* Anything else could have something to read, which is not ours. */
    if (fstat(STDOUT_FILENO, &st) == 0 && S_ISFIFO(st.st_mode) &&
        (fcntl(STDOUT_FILENO, F_GETFL) & O_ACCMODE) == O_WRONLY)
        client_watch(client, STDOUT_FILENO, stdout_watch, NULL);
}

int api_line(const char *line, size_t size, struct doc **event, const char **type,
             struct error *err)
{
    if (size == 0)
        return 0;
    if (doc_parse(line, size, event, err) < 0)
        return -1;
    *type = doc_text(*event, "type");
    return *type != NULL ? 1
                         : error_set(err, "bad_answer", 0,
                                     "the server's stream is none of cove's; check that COVE_URL "
                                     "leads to cove");
}

/* ---- lists ---- */

static int bad_list(struct error *err, const char *key)
{
    return error_set(err, "bad_answer", 0,
                     "the server's list of %s is none; check that COVE_URL leads to cove", key);
}

/* One page: 1 if there is a further one, whose cursor is in `cursor`. */
static int page_fetch(struct client *client, const char *path, const char *key, struct doc *list,
                      char cursor[API_CURSOR_MAX], struct error *err)
{
    const struct client_request request = {.path = path};
    _cleanup_doc_ struct doc *page = NULL;
    const struct doc *items;
    const char *next;

    if (client_call(client, &request, &page, err) < 0)
        return -1;
    items = doc_get(page, key);
    next = doc_text(page, "next");
    if (!doc_is_array(items))
        return bad_list(err, key);
    for (size_t i = 0; i < doc_count(items); i++)
        if (doc_add_copy(list, doc_at(items, i)) < 0)
            return option_no_memory(err);
    if (next == NULL || next[0] == '\0')
        return 0;
    cursor[0] = '\0';
    return wire_encode(cursor, API_CURSOR_MAX, next) ? 1 : bad_list(err, key);
}

int api_list(struct client *client, const char *path, const char *key, struct doc **list,
             struct error *err)
{
    _cleanup_free_ char *whole = NULL;
    char cursor[API_CURSOR_MAX] = "";
    size_t bytes = 0;
    int result = 1;

    *list = doc_new_array();
    for (int pages = 0; result == 1 && pages < LIST_PAGES_MAX && bytes <= LIST_BYTES_MAX; pages++) {
        free(whole);
        whole = NULL;
        if (asprintf(&whole, "%s%s%s%s", path,
                     cursor[0] == '\0'           ? ""
                     : strchr(path, '?') == NULL ? "?"
                                                 : "&",
                     cursor[0] == '\0' ? "" : "cursor=", cursor) < 0) {
            whole = NULL;
            result = option_no_memory(err);
        } else {
            result = page_fetch(client, whole, key, *list, cursor, err);
            bytes += client_answer_bytes(client);
        }
    }
    if (result == 1)
        result = bad_list(err, key); /* it says for ever that there is more */
    if (result < 0)
        doc_freep(list);
    return result;
}

int api_list_print(const char *key, const struct doc *list, struct error *err)
{
    _cleanup_doc_ struct doc *answer = doc_new();

    if (doc_set_copy(answer, key, list) < 0)
        return option_no_memory(err);
    return doc_print(answer, err);
}
