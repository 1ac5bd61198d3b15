/* `cove attach`: to the terminal of a process that runs, from wherever one left it. */
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/terminal.h"

#include <string.h>

struct attach {
    struct options_common common;
    bool only_looks;
    const char *detach_keys;
};

static const struct option_row rows[] = {
    {"read-only", NULL, NULL, "only look: neither keys nor the size of your terminal are passed on",
     NULL, 'r', offsetof(struct attach, only_looks)},
    {"detach-keys", "KEYS", TERMINAL_KEYS_USUAL,
     "the keys that detach, one after the other: ctrl-LETTER or a character; none", NULL, 0,
     offsetof(struct attach, detach_keys)},
    OPTION_JSON("print one JSON object with the process at the end"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "attach",
    .usage = "SANDBOX [PROCESS]",
    .about =
        "Shows the terminal of a process that was started with one (cove exec -t), the newest or the\n"
        "one with this id of cove ps, and passes on what is typed. Any number may be attached to the\n"
        "same.",
    .notes = "Exit status: that of the process when it ends; 0 when one detaches.",
    .examples = "cove exec -it work -- bash      # ctrl-p ctrl-q detaches\n"
                "cove attach work 6",
    OPTION_ROWS(rows),
    .words = 2,
    .words_least = 1,
};

static int attach_call(struct client *client, void *into, const struct option_words *words,
                       struct error *err)
{
    const struct attach *attach = into;
    struct terminal_options options = {.sandbox = words->word[0],
                                       .process = strrchr(words->process, '/') + 1,
                                       .path = words->process,
                                       .takes_input = !attach->only_looks,
                                       .only_looks = attach->only_looks,
                                       .json = attach->common.json};

    if (terminal_keys_parse(attach->detach_keys != NULL ? attach->detach_keys : TERMINAL_KEYS_USUAL,
                            &options.keys, err) < 0)
        return -1;
    return terminal_run(client, &options, err);
}

static int attach_run(const struct cmd *cmd, int argc, char **argv)
{
    struct attach attach = {0};

    return api_command(cmd, argc, argv, &attach, attach_call);
}

const struct cmd cmd_attach = {.name = "attach",
                               .summary = "come back to the terminal of a command",
                               .run = attach_run,
                               .table = &table,
                               .target = CMD_TARGET_TERMINAL};
