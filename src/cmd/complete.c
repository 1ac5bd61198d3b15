/* The completion of words: `cove completion SHELL` prints what a shell has to read, and that asks
 * `cove complete` at each key what the word could be.
 *
 * The tables of options answer, and for names the server, if one runs: quickly, or not at all. Nothing is
 * said on standard error, no server is started, and what a server calls a name goes to a shell only if
 * it can be a word there. */
#include "base/fd.h"
#include "box/switches.h"
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/show.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define PATIENCE_MS 1500
#define CANDIDATES_MAX 1000
#define FILES ":files\n" /* the shell's own completion of paths */

/* ---- what the shells read ---- */

static const char bash_script[] =
    "# Completion of cove for bash: source <(cove completion bash)\n"
    "_cove() {\n"
    "    local line\n"
    "    COMPREPLY=()\n"
    "    while IFS= read -r line; do\n"
    "        if [[ $line == :files ]]; then\n"
    "            compopt -o default 2>/dev/null\n"
    "            return\n"
    "        fi\n"
    "        printf -v line %q \"${line%%$'\\t'*}\"\n"
    "        COMPREPLY+=(\"$line\")\n"
    "    done < <(command cove complete -- \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n"
    "}\n"
    "complete -F _cove cove\n";

static const char zsh_script[] =
    "#compdef cove\n"
    "# Completion of cove for zsh: as _cove in a directory of $fpath, or source <(cove completion zsh)\n"
    "_cove() {\n"
    "    local line\n"
    "    local -a found shown\n"
    "    while IFS= read -r line; do\n"
    "        if [[ $line == :files ]]; then\n"
    "            _files\n"
    "            return\n"
    "        fi\n"
    "        found+=(\"${line%%$'\\t'*}\")\n"
    "        shown+=(\"${line/$'\\t'/  -- }\")\n"
    "    done < <(command cove complete -- \"${(@Q)words[2,CURRENT-1]}\" \"${(Q)PREFIX}\" 2>/dev/null)\n"
    "    (( $#found )) && compadd -l -d shown -a found\n"
    "}\n"
    "if [[ $funcstack[1] == _cove ]]; then\n"
    "    _cove \"$@\"\n"
    "else\n"
    "    compdef _cove cove\n"
    "fi\n";

static const char fish_script[] =
    "# Completion of cove for fish: cove completion fish | source\n"
    "function __cove_complete\n"
    "    set -l words (commandline -opc)\n"
    "    set -l last (commandline -ct)\n"
    "    set -e words[1]\n"
    "    set -l found (command cove complete -- $words \"$last\" 2>/dev/null)\n"
    "    if test \"$found\" = :files\n"
    "        __fish_complete_path \"$last\"\n"
    "    else if set -q found[1]\n"
    "        printf '%s\\n' $found\n"
    "    end\n"
    "end\n"
    "complete -c cove -f -a '(__cove_complete)'\n";

static const struct {
    const char *shell, *script;
} scripts[] = {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};
#define SCRIPTS_COUNT (sizeof(scripts) / sizeof(scripts[0]))

static const struct option_row plain_rows[] = {OPTION_HELP};

static const struct option_table completion_table = {
    .command = "completion",
    .usage = "SHELL",
    .about =
        "Prints what a shell needs to complete the words of cove: its commands, their options, and\n"
        "the names of sandboxes, of the server that runs. SHELL is bash, zsh or fish.",
    .examples = "source <(cove completion bash)\n"
                "cove completion fish | source",
    OPTION_ROWS(plain_rows),
    .words = 1,
    .words_least = 1,
};

static int completion_run(const struct cmd *cmd, int argc, char **argv)
{
    struct options_common options = {0};
    struct option_words words;
    int status;

    if (!options_begin(cmd->table, &options, argc, argv, &words, &status))
        return status;
    for (size_t i = 0; i < SCRIPTS_COUNT; i++)
        if (strcmp(words.word[0], scripts[i].shell) == 0)
            return cmd_print(scripts[i].script, strlen(scripts[i].script)) == 0 ? 0 : CMD_FAILED;
    cmd_say("completion: %s: for this shell there is none; choose bash, zsh or fish",
            words.word[0]);
    return CMD_FAILED;
}

const struct cmd cmd_completion = {.name = "completion",
                                   .summary = "print the completion of words for a shell",
                                   .run = completion_run,
                                   .table = &completion_table};

/* ---- candidates ---- */

struct answer {
    const char *prefix;  /* what was typed of the word */
    const char *sandbox; /* the first word of the command; NULL: none yet */
    FILE *out;
    size_t count;
};

/* One candidate, if it begins as was typed. What a shell would take for several words, or a terminal for
 * a command, is left out. */
static void offer(struct answer *answer, const char *word, const char *what)
{
    char shown[1024];

    if (word == NULL || strncmp(word, answer->prefix, strlen(answer->prefix)) != 0 ||
        answer->count >= CANDIDATES_MAX)
        return;
    show_escape(shown, sizeof(shown), word);
    if (word[0] == '\0' || word[0] == ':' || word[0] == '-' || strcmp(shown, word) != 0)
        return;
    answer->count++;
    show_escape(shown, sizeof(shown), what == NULL ? "" : what);
    (void)fprintf(answer->out, "%s\t%.80s\n", word, shown);
}

/* ---- names that a server knows ---- */

/* It must not hold up who types: in time, or not at all. */
static void out_of_time(int number)
{
    (void)number;
    _exit(0);
}

static void be_quick(void)
{
    const struct itimerval most = {
        .it_value = {.tv_sec = PATIENCE_MS / 1000, .tv_usec = PATIENCE_MS % 1000 * 1000L}};

    if (switched_off("haste")) /* what is tested are the words: a slow machine gets them too */
        return;
    (void)signal(SIGALRM, out_of_time);
    (void)setitimer(ITIMER_REAL, &most, NULL);
}

/* The list at `key` of the answer to GET path; each of its members is offered by its `name`. */
static void offer_list(struct answer *answer, const char *path, const char *key, const char *name,
                       const char *what)
{
    _cleanup_client_ struct client *client = NULL;
    _cleanup_doc_ struct doc *list = NULL;
    struct error ignored;

    be_quick();
    if (client_open_running(&client) < 0 || api_list(client, path, key, &list, &ignored) < 0)
        return;
    for (size_t i = 0; i < doc_count(list); i++) {
        const struct doc *item = doc_at(list, i);
        const char *text = doc_own_text(item);

        offer(answer, text != NULL ? text : doc_text(item, name), doc_text(item, what));
    }
}

static void offer_sandboxes(struct answer *answer)
{
    _cleanup_client_ struct client *client = NULL;
    _cleanup_doc_ struct doc *list = NULL;
    struct error ignored;

    be_quick();
    if (client_open_running(&client) < 0 ||
        api_list(client, "/v1/sandboxes?limit=500", "sandboxes", &list, &ignored) < 0)
        return;
    for (size_t i = 0; i < doc_count(list); i++) {
        const struct doc *sandbox = doc_at(list, i);
        const char *name = doc_text(sandbox, "name");

        offer(answer, name != NULL ? name : doc_text(sandbox, "id"), doc_text(sandbox, "state"));
    }
}

static void offer_processes(struct answer *answer)
{
    char path[API_PATH_MAX];
    struct error ignored;

    if (answer->sandbox != NULL &&
        api_sandbox_path(path, answer->sandbox, "/processes", &ignored) == 0)
        offer_list(answer, path, "processes", "id", "command");
}

static void offer_roots(struct answer *answer)
{
    offer_list(answer, "/v1/roots", "roots", "name", "");
}

static void offer_mounts(struct answer *answer)
{
    offer_list(answer, "/v1/roots", "mounts", "name", "");
}

static void offer_keys(struct answer *answer)
{
    offer_list(answer, "/v1/keys", "keys", "id", "label");
}

/* ---- names that cove knows ---- */

static void offer_commands(struct answer *answer)
{
    for (size_t i = 0; i < cmd_rows_count; i++)
        offer(answer, cmd_rows[i].cmd->name, cmd_rows[i].cmd->summary);
}

static void offer_shells(struct answer *answer)
{
    for (size_t i = 0; i < SCRIPTS_COUNT; i++)
        offer(answer, scripts[i].shell, NULL);
}

static void offer_signals(struct answer *answer)
{
    for (int i = 1; i < NSIG; i++)
        offer(answer, sigabbrev_np(i), sigdescr_np(i));
}

static void offer_files(struct answer *answer)
{
    (void)fputs(FILES, answer->out);
}

/* "plain|system": the words themselves. */
static void offer_choices(struct answer *answer, const char *choices)
{
    while (*choices != '\0') {
        size_t length = strcspn(choices, "|");
        char word[64];

        (void)snprintf(word, sizeof(word), "%.*s", (int)length, choices);
        offer(answer, word, NULL);
        choices += length + (choices[length] == '|' ? 1 : 0);
    }
}

/* What a word in capitals stands for, by how it begins. */
static const struct {
    const char *name;
    void (*offer)(struct answer *answer);
} kinds[] = {
    {"SANDBOX", offer_sandboxes}, {"PROCESS", offer_processes}, {"ROOT", offer_roots},
    {"MOUNT", offer_mounts},      {"KEY-ID", offer_keys},       {"COMMAND", offer_commands},
    {"SHELL", offer_shells},      {"SIGNAL", offer_signals},    {"DIR", offer_files},
    {"PATH", offer_files},        {"FILE", offer_files},        {"SRC", offer_files},
};

static void offer_kind(struct answer *answer, const char *name)
{
    if (name[0] >= 'a' && name[0] <= 'z') {
        offer_choices(answer, name);
        return;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strncmp(name, kinds[i].name, strlen(kinds[i].name)) == 0) {
            kinds[i].offer(answer);
            return;
        }
}

/* ---- where the word stands ---- */

static void offer_options(struct answer *answer, const struct option_table *table)
{
    for (size_t i = 0; i < table->rows_count; i++) {
        char word[OPTION_NAME_MAX];

        (void)snprintf(word, sizeof(word), "--%s", table->rows[i].name);
        if (strncmp(word, answer->prefix, strlen(answer->prefix)) == 0)
            (void)fprintf(answer->out, "%s\t%.80s\n", word, table->rows[i].help);
    }
}

/* The last word of a command with options. */
static void offer_word(struct answer *answer, const struct option_table *table, int argc,
                       char **argv)
{
    const struct option_row *open = NULL; /* its value comes next */
    const char *last = argv[argc - 1];
    bool ended = false;
    bool in_command = false;
    size_t count = 0;
    char name[OPTION_NAME_MAX];

    for (int i = 1; i < argc - 1 && !in_command; i++) {
        const char *value = NULL;

        if (open != NULL) {
            if (strcmp(argv[i], "=") != 0) /* bash splits there */
                open = NULL;
        } else if (!ended && option_is_one(argv[i])) {
            open = option_find(table, argv[i], &value);
            if (open != NULL && (open->argument == NULL || value != NULL))
                open = NULL;
        } else if (!ended && strcmp(argv[i], "--") == 0) {
            ended = true;
        } else {
            answer->sandbox = count++ == 0 ? argv[i] : answer->sandbox;
            in_command = table->command_follows && count > table->words;
        }
    }
    if (strcmp(last, "=") == 0)
        answer->prefix = "";
    if (open != NULL)
        offer_kind(answer, open->argument);
    else if (!ended && last[0] == '-' && !in_command)
        offer_options(answer, table);
    else if (table->command_follows && count >= table->words)
        offer_files(answer); /* what the words of a command are, it knows */
    else {
        option_usage_word(table->usage, count, name);
        offer_kind(answer, name);
    }
}

/* argv: the words after `cove`, of which the last is being typed. */
static void offer_all(struct answer *answer, int argc, char **argv)
{
    const struct cmd *cmd = argc > 1 ? cmd_find(argv[0]) : NULL;

    if (argc == 1) {
        offer_commands(answer);
        return;
    }
    if (cmd != NULL && cmd->verbs != NULL) {
        if (argc == 2) {
            for (size_t i = 0; i < cmd->verbs_count; i++)
                offer(answer, cmd->verbs[i].name, cmd->verbs[i].summary);
            return;
        }
        cmd = cmd_find_verb(cmd, argv[1]);
        argc--;
        argv++;
    }
    if (cmd != NULL && cmd->table != NULL)
        offer_word(answer, cmd->table, argc, argv);
}

static int complete_run(const struct cmd *cmd, int argc, char **argv)
{
    _cleanup_free_ char *text = NULL;
    size_t size = 0;
    struct answer answer = {.prefix = ""};

    (void)cmd;
    if (argc < 3 || strcmp(argv[1], "--") != 0)
        return CMD_FAILED;
    answer.out = open_memstream(&text, &size);
    if (answer.out == NULL)
        return CMD_FAILED;
    answer.prefix = argv[argc - 1];
    offer_all(&answer, argc - 2, argv + 2);
    if (fclose(answer.out) != 0)
        return CMD_FAILED;
    return cmd_print(text, size) == 0 ? 0 : CMD_FAILED;
}

const struct cmd cmd_complete = {
    .name = "complete", .summary = "what a word can become", .run = complete_run};
