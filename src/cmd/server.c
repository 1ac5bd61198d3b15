/* `cove server`: where the server is that the other commands use. It starts this user's own engine, as they do, so
 * that a program that speaks the API itself needs nothing else to begin. */
#include "cmd/api.h"
#include "cmd/client.h"
#include "cmd/cmd.h"
#include "cmd/options.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct server_options {
    struct options_common common;
    bool is_private;
};

static const struct option_row rows[] = {
    {"private", NULL, NULL, "your own engine, also where COVE_URL or the system's server is there",
     NULL, 0, offsetof(struct server_options, is_private)},
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "server",
    .about =
        "Prints the address of the server that cove uses: COVE_URL, else the system's socket, else that\n"
        "of your own engine, which is started if it does not run.",
    OPTION_ROWS(rows),
    .examples = "COVE_URL=$(cove server --private) cove ls\n"
                "curl --unix-socket \"$(cove server | cut -d: -f2)\" http://localhost/v1/sandboxes",
};

static int server_run(const struct cmd *cmd, int argc, char **argv)
{
    struct server_options options = {0};
    _cleanup_client_ struct client *client = NULL;
    struct option_words words;
    char line[WIRE_PATH_MAX + 16];
    const char *path;
    struct error err;
    int status;

    if (!options_begin(cmd->table, &options, argc, argv, &words, &status))
        return status;
    if ((options.is_private ? client_open_private(&client, &err) : client_open(&client, &err)) <
            0 ||
        client_connect(client, &err) < 0)
        return api_fail(&err);
    path = client_socket(client);
    if (path != NULL)
        (void)snprintf(line, sizeof(line), "unix:%s\n", path);
    else
        (void)snprintf(line, sizeof(line), "%s\n", getenv("COVE_URL"));
    return cmd_print(line, strlen(line)) == 0 ? 0 : CMD_FAILED;
}

const struct cmd cmd_server = {
    .name = "server",
    .summary = "print where the server is, and start your own if need be",
    .run = server_run,
    .table = &table};
