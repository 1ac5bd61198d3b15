/* `cove ports`: the ports of a sandbox, those that are open to the server's host and those that something listens
 * on. */
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/show.h"

struct ports {
    struct options_common common;
};

static const struct option_row rows[] = {
    OPTION_JSON("print them as the API has them"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "ports",
    .usage = "SANDBOX",
    .about =
        "Lists the ports that something in a sandbox listens on, and those that are open to the\n"
        "server's host, each with the URL where it is.",
    .notes = "cove port SANDBOX PORT --open opens one; cove port SANDBOX PORT carries one to here.",
    .examples = "cove ports work",
    OPTION_ROWS(rows),
    .words = 1,
    .words_least = 1,
};

static void port_show(struct show_table *shown, const struct doc *port)
{
    bool is_open = doc_true(port, "open");
    uint64_t number = 0;

    (void)doc_number(port, "port", &number);
    show_cell_number(shown, number);
    show_cell_in(shown, doc_true(port, "listening") ? SHOW_GREEN : SHOW_DIM,
                 doc_true(port, "listening") ? "yes" : "no");
    show_cell(shown, !is_open ? "no" : doc_true(port, "public") ? "public" : "yes");
    show_cell(shown, doc_text(port, "url"));
    show_cell(shown, doc_text(port, "host"));
}

static int all_show(const struct doc *ports, struct error *err)
{
    static const char *const headings[] = {"PORT", "LISTENS", "OPEN", "URL", "HOST"};
    struct show_table shown;

    show_table_begin(&shown, sizeof(headings) / sizeof(headings[0]), headings);
    for (size_t i = 0; i < doc_count(ports); i++)
        port_show(&shown, doc_at(ports, i));
    return show_table_print(&shown, err);
}

static int ports_call(struct client *client, void *into, const struct option_words *words,
                      struct error *err)
{
    const struct ports *options = into;
    _cleanup_doc_ struct doc *answer = NULL;
    char path[API_PATH_MAX];
    const struct client_request request = {.path = path};

    if (api_path(path, words->sandbox, "/ports", err) < 0 ||
        client_call(client, &request, &answer, err) < 0)
        return -1;
    return options->common.json ? doc_print(answer, err) : all_show(doc_get(answer, "ports"), err);
}

static int ports_run(const struct cmd *cmd, int argc, char **argv)
{
    struct ports options = {.common = {.json = false}};

    return api_command(cmd, argc, argv, &options, ports_call);
}

const struct cmd cmd_ports = {.name = "ports",
                              .summary = "list the ports of a sandbox",
                              .run = ports_run,
                              .table = &table,
                              .target = CMD_TARGET_SANDBOX};
