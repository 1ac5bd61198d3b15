/* `cove root` and `cove mount`: which directories of the host a sandbox may be given, by name.
 *
 * Listing is the server's; adding and removing is not. */
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/show.h"

#include <stdio.h>
#include <string.h>

static const struct option_row ls_rows[] = {
    {"json", NULL, NULL, "print them as the API has them", option_take_json, 0},
    {"help", NULL, NULL, "print this", option_take_help, 'h'},
};

static const struct option_table root_ls_table = {
    .command = "root ls",
    .head = "Usage: cove root ls [options]\n"
            "\n"
            "Lists the roots that cove create --root knows.\n"
            "\n"
            "Options:\n",
    .tail = "",
    .rows = ls_rows,
    .rows_count = sizeof(ls_rows) / sizeof(ls_rows[0]),
};

static const struct option_table mount_ls_table = {
    .command = "mount ls",
    .head = "Usage: cove mount ls [options]\n"
            "\n"
            "Lists the directories that cove create --mount knows.\n"
            "\n"
            "Options:\n",
    .tail = "",
    .rows = ls_rows,
    .rows_count = sizeof(ls_rows) / sizeof(ls_rows[0]),
};

static int names_show(const struct doc *names, struct error *err)
{
    struct show_table shown;

    show_table_begin(&shown, 1, NULL);
    for (size_t i = 0; i < doc_count(names); i++) {
        const char *text = doc_own_text(doc_at(names, i));

        show_cell(&shown, text != NULL ? text : doc_text(doc_at(names, i), "name"));
    }
    return show_table_print(&shown, err);
}

static int names_ls(const struct option_table *table, const char *kind, int argc, char **argv)
{
    _cleanup_client_ struct client *client = NULL;
    _cleanup_doc_ struct doc *answer = NULL;
    const struct client_request request = {.path = "/v1/roots"};
    struct options_common options = {0};
    struct option_words words;
    struct error err;
    int status;

    if (!options_begin(table, &options, argc, argv, &words, &status))
        return status;
    if (client_open(&client, &err) < 0 || client_call(client, &request, &answer, &err) < 0)
        return api_fail(&err);
    status = options.json ? doc_print(doc_get(answer, kind), &err)
                          : names_show(doc_get(answer, kind), &err);
    return status < 0 ? api_fail(&err) : 0;
}

static int root_ls(int argc, char **argv)
{
    return names_ls(&root_ls_table, "roots", argc, argv);
}

static int mount_ls(int argc, char **argv)
{
    return names_ls(&mount_ls_table, "mounts", argc, argv);
}

int cmd_root(int argc, char **argv)
{
    static const struct cmd verbs[] = {{"ls", "", root_ls, true}};

    return cmd_verb("root", "Usage: cove root ls\n", verbs, 1, argc, argv);
}

int cmd_mount(int argc, char **argv)
{
    static const struct cmd verbs[] = {{"ls", "", mount_ls, true}};

    return cmd_verb("mount", "Usage: cove mount ls\n", verbs, 1, argc, argv);
}
