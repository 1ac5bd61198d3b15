/* `cove df`: the disk of each sandbox, all of them together, and what the server has left. */
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/show.h"
#include "cmd/usage.h"

#include <stdio.h>
#include <string.h>

struct df {
    struct options_common common;
    bool all_tenants;
};

static const struct option_row rows[] = {
    OPTION_ALL_TENANTS(struct df),
    OPTION_JSON(
        "print the sandboxes as the API has them, with `usage`, and the server's `capacity`"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "df",
    .about =
        "Shows how much each sandbox may write, and how much of it is used where that is known; then\n"
        "what is free where the server keeps its data, to who may know that. A persistent disk takes\n"
        "room of the server only as far as it is written; an ephemeral one is in memory.",
    OPTION_ROWS(rows),
};

static void size_cell(struct show_table *shown, bool is_known, uint64_t bytes)
{
    char text[SHOW_VALUE_MAX];

    show_cell(shown, is_known ? show_size(bytes, text) : NULL);
}

struct totals {
    uint64_t limits, used;
    bool is_unlimited, is_any_known;
};

static void sandbox_show(struct show_table *shown, const struct doc *sandbox, bool has_tenant,
                         struct totals *totals)
{
    const char *name = doc_text(sandbox, "name");
    uint64_t limit = 0;
    uint64_t used = 0;
    bool has_limit = doc_number(doc_get(sandbox, "resources"), "disk_bytes", &limit) && limit > 0;
    bool is_known = doc_number(doc_get(sandbox, "usage"), "disk_bytes", &used);

    if (has_tenant)
        show_cell(shown, doc_text(sandbox, "tenant"));
    show_cell(shown, name != NULL ? name : doc_text(sandbox, "id"));
    show_cell(shown, doc_text(sandbox, "disk_kind"));
    show_cell_state(shown, doc_text(sandbox, "state"));
    size_cell(shown, has_limit, limit);
    size_cell(shown, is_known, used);
    totals->is_unlimited = totals->is_unlimited || !has_limit;
    totals->is_any_known = totals->is_any_known || is_known;
    totals->limits += limit;
    totals->used += used;
}

static int sandboxes_show(const struct doc *sandboxes, bool has_tenant, struct error *err)
{
    static const char *const headings[] = {"TENANT", "NAME", "KIND", "STATE", "LIMIT", "USED"};
    size_t first = has_tenant ? 0 : 1;
    struct totals totals = {0};
    struct show_table shown;

    show_table_begin(&shown, sizeof(headings) / sizeof(headings[0]) - first, headings + first);
    for (size_t i = 0; i < doc_count(sandboxes); i++)
        sandbox_show(&shown, doc_at(sandboxes, i), has_tenant, &totals);
    if (has_tenant)
        show_cell(&shown, NULL);
    show_cell_in(&shown, SHOW_BOLD, "all");
    show_cell(&shown, NULL);
    show_cell(&shown, NULL);
    size_cell(&shown, !totals.is_unlimited, totals.limits);
    size_cell(&shown, totals.is_any_known, totals.used);
    return show_table_print(&shown, err);
}

static int capacity_show(const struct doc *capacity, struct error *err)
{
    char line[128];
    char all[SHOW_VALUE_MAX];
    char left[SHOW_VALUE_MAX];
    uint64_t bytes;
    uint64_t available;

    if (!doc_number(capacity, "disk_bytes", &bytes) ||
        !doc_number(capacity, "disk_available_bytes", &available))
        return 0;
    (void)snprintf(line, sizeof(line), "%s of %s are free where the server keeps its data\n",
                   show_size(available, left), show_size(bytes, all));
    return cmd_out(line, strlen(line), err);
}

static int both_print(const struct doc *sandboxes, const struct doc *capacity, struct error *err)
{
    _cleanup_doc_ struct doc *answer = doc_new();

    if (doc_set_copy(answer, "sandboxes", sandboxes) < 0 ||
        (capacity != NULL && doc_set_copy(answer, "capacity", capacity) < 0))
        return option_no_memory(err);
    return doc_print(answer, err);
}

static int df_call(struct client *client, void *options, const struct option_words *words,
                   struct error *err)
{
    const struct df *df = options;
    const struct client_request request = {.path = "/v1/capacity"};
    _cleanup_doc_ struct doc *sandboxes = NULL;
    _cleanup_doc_ struct doc *capacity = NULL;

    (void)words;
    if (usage_fetch(client, df->all_tenants, &sandboxes, err) < 0)
        return -1;
    /* A key of a tenant may not know it. */
    if (client_call(client, &request, &capacity, err) < 0 && strcmp(err->code, "forbidden") != 0)
        return -1;
    if (df->common.json)
        return both_print(sandboxes, capacity, err);
    return sandboxes_show(sandboxes, df->all_tenants, err) < 0 || capacity_show(capacity, err) < 0
               ? -1
               : 0;
}

static int df_run(const struct cmd *cmd, int argc, char **argv)
{
    struct df options = {.all_tenants = false};

    return api_command(cmd, argc, argv, &options, df_call);
}

const struct cmd cmd_df = {
    .name = "df", .summary = "show the disks of sandboxes", .run = df_run, .table = &table};
