/* `cove ls`: the sandboxes there are. */
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/show.h"

#include <stdio.h>
#include <string.h>

#define QUERY_MAX 4096

struct ls {
    struct options_common common;
    bool quiet, all_tenants;
    char query[QUERY_MAX];
};

/* Adds a filter to the query. */
static int filter_add(struct ls *ls, const char *name, const char *value, struct error *err)
{
    size_t used = strlen(ls->query);

    if (used + strlen(name) + 3 < sizeof(ls->query)) {
        (void)snprintf(ls->query + used, sizeof(ls->query) - used, "&%s=", name);
        if (wire_encode(ls->query, sizeof(ls->query) - 256, value))
            return 0;
    }
    return option_bad_value(err, name, value, "that is too long", "ask for less");
}

static int take_state(void *into, const char *value, struct error *err)
{
    return filter_add(into, "state", value, err);
}

static int take_prefix(void *into, const char *value, struct error *err)
{
    return filter_add(into, "name_prefix", value, err);
}

static int take_label(void *into, const char *value, struct error *err)
{
    if (strchr(value, '=') == NULL)
        return option_bad_value(err, "label", value, "its value is missing", "write KEY=VALUE");
    return filter_add(into, "label", value, err);
}

static const struct option_row rows[] = {
    {"state", "STATE", "all", "running, stopped, creating or error", take_state, 0, 0},
    {"prefix", "TEXT", NULL, "those whose names begin so", take_prefix, 0, 0},
    {"label", "KEY=VALUE", NULL, "those that have this label; repeatable", take_label, 'l', 0},
    OPTION_ALL_TENANTS(struct ls),
    {"quiet", NULL, NULL, "print ids alone, one a line", NULL, 'q', offsetof(struct ls, quiet)},
    OPTION_JSON("print them as the API has them"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "ls",
    .about = "Lists sandboxes: running and stopped ones.",

    OPTION_ROWS(rows),
};

static void sandbox_show(struct show_table *table_shown, const struct doc *sandbox, bool has_tenant)
{
    char value[SHOW_VALUE_MAX];
    const struct doc *resources = doc_get(sandbox, "resources");
    uint64_t number;

    if (has_tenant)
        show_cell(table_shown, doc_text(sandbox, "tenant"));
    show_cell(table_shown, doc_text(sandbox, "id"));
    show_cell_state(table_shown, doc_text(sandbox, "state"));
    show_cell(table_shown, doc_text(sandbox, "root"));
    show_cell(table_shown, doc_number(resources, "memory_bytes", &number) && number > 0
                               ? show_size(number, value)
                               : NULL);
    if (doc_number(sandbox, "processes_running", &number))
        show_cell_number(table_shown, number);
    else
        show_cell(table_shown, NULL);
    show_cell(table_shown, show_age(doc_text(sandbox, "created_at"), value));
    show_cell(table_shown, doc_text(sandbox, "name"));
}

static int all_show(const struct ls *ls, const struct doc *all, struct error *err)
{
    static const char *const headings[] = {"TENANT", "ID",        "STATE", "ROOT",
                                           "MEMORY", "PROCESSES", "AGE",   "NAME"};
    size_t first = ls->all_tenants ? 0 : 1;
    struct show_table shown;

    show_table_begin(&shown, ls->quiet ? 1 : sizeof(headings) / sizeof(headings[0]) - first,
                     ls->quiet ? NULL : headings + first);
    for (size_t i = 0; i < doc_count(all); i++) {
        if (ls->quiet)
            show_cell(&shown, doc_text(doc_at(all, i), "id"));
        else
            sandbox_show(&shown, doc_at(all, i), ls->all_tenants);
    }
    return show_table_print(&shown, err);
}

static int ls_call(struct client *client, void *options, const struct option_words *words,
                   struct error *err)
{
    const struct ls *ls = options;
    _cleanup_doc_ struct doc *all = NULL;
    char path[QUERY_MAX + 64];

    (void)words;
    (void)snprintf(path, sizeof(path), "/v1/sandboxes?limit=500%s%s",
                   ls->all_tenants ? "&all_tenants=true" : "", ls->query);
    if (api_list(client, path, "sandboxes", &all, err) < 0)
        return -1;
    return ls->common.json ? api_list_print("sandboxes", all, err) : all_show(ls, all, err);
}

static int ls_run(const struct cmd *cmd, int argc, char **argv)
{
    struct ls ls = {0};

    return api_command(cmd, argc, argv, &ls, ls_call);
}

const struct cmd cmd_ls = {
    .name = "ls", .summary = "list sandboxes", .run = ls_run, .table = &table};
