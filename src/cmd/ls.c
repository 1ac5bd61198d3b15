/* `cove ls`: the sandboxes there are. */
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/show.h"

#include <stdio.h>
#include <string.h>

#define PAGES_MAX 10000 /* a server may say for ever that there is more */
#define QUERY_MAX 4096

struct ls {
    struct options_common common;
    bool quiet;
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

static int take_quiet(void *into, const char *value, struct error *err)
{
    (void)value;
    (void)err;
    ((struct ls *)into)->quiet = true;
    return 0;
}

static const struct option_row rows[] = {
    {"state", "STATE", "all", "running, stopped, creating or error", take_state, 0},
    {"prefix", "TEXT", NULL, "those whose names begin so", take_prefix, 0},
    {"label", "KEY=VALUE", NULL, "those that have this label; repeatable", take_label, 'l'},
    {"quiet", NULL, NULL, "print ids alone, one a line", take_quiet, 'q'},
    {"json", NULL, NULL, "print them as the API has them", option_take_json, 0},
    {"help", NULL, NULL, "print this", option_take_help, 'h'},
};

static const struct option_table table = {
    .command = "ls",
    .head = "Usage: cove ls [options]\n"
            "\n"
            "Lists sandboxes: running and stopped ones.\n"
            "\n"
            "Options:\n",
    .tail = "",
    .rows = rows,
    .rows_count = sizeof(rows) / sizeof(rows[0]),
};

static void sandbox_show(struct show_table *table_shown, const struct doc *sandbox)
{
    char value[SHOW_VALUE_MAX];
    const struct doc *resources = doc_get(sandbox, "resources");
    uint64_t number;

    show_cell(table_shown, doc_text(sandbox, "id"));
    show_cell(table_shown, doc_text(sandbox, "state"));
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
    static const char *const headings[] = {"ID",        "STATE", "ROOT", "MEMORY",
                                           "PROCESSES", "AGE",   "NAME"};
    struct show_table shown;

    show_table_begin(&shown, ls->quiet ? 1 : sizeof(headings) / sizeof(headings[0]),
                     ls->quiet ? NULL : headings);
    for (size_t i = 0; i < doc_count(all); i++) {
        if (ls->quiet)
            show_cell(&shown, doc_text(doc_at(all, i), "id"));
        else
            sandbox_show(&shown, doc_at(all, i));
    }
    return show_table_print(&shown, err);
}

/* Fetches page after page into `all`. */
static int all_fetch(struct client *client, const struct ls *ls, struct doc *all, struct error *err)
{
    char path[QUERY_MAX + 1024];
    struct client_request request = {.path = path};

    (void)snprintf(path, sizeof(path), "/v1/sandboxes?limit=500%s", ls->query);
    for (int page_number = 0; page_number < PAGES_MAX; page_number++) {
        _cleanup_doc_ struct doc *page = NULL;
        const struct doc *sandboxes;
        const char *next;

        if (client_call(client, &request, &page, err) < 0)
            return -1;
        sandboxes = doc_get(page, "sandboxes");
        next = doc_text(page, "next");
        if (!doc_is_array(sandboxes))
            break;
        for (size_t i = 0; i < doc_count(sandboxes); i++)
            if (doc_add_copy(all, doc_at(sandboxes, i)) < 0)
                return option_no_memory(err);
        if (next == NULL || next[0] == '\0')
            return 0;
        (void)snprintf(path, sizeof(path), "/v1/sandboxes?limit=500%s&cursor=", ls->query);
        if (!wire_encode(path, sizeof(path), next))
            break;
    }
    return error_set(err, "bad_answer", 0,
                     "the server's list of sandboxes is none; check that COVE_URL leads to cove");
}

static int ls_run(const struct ls *ls, struct error *err)
{
    _cleanup_client_ struct client *client = NULL;
    _cleanup_doc_ struct doc *all = doc_new_array();
    _cleanup_doc_ struct doc *answer = NULL;

    if (client_open(&client, err) < 0 || all_fetch(client, ls, all, err) < 0)
        return -1;
    if (!ls->common.json)
        return all_show(ls, all, err);
    answer = doc_new();
    if (doc_set_copy(answer, "sandboxes", all) < 0)
        return option_no_memory(err);
    return doc_print(answer, err);
}

int cmd_ls(int argc, char **argv)
{
    struct ls ls = {0};
    struct option_words words;
    struct error err;
    int status;

    if (!options_begin(&table, &ls, argc, argv, &words, &status))
        return status;
    return ls_run(&ls, &err) < 0 ? api_fail(&err) : 0;
}
