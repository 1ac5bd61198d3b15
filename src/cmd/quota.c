/* `cove quota`: what tenants may use, and use. The API sets all of a quota at once; here what is not named stays. */
#include "base/parse.h"
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/show.h"

#include <stdio.h>
#include <string.h>

#define COUNT_MOST 1000000000

enum kind { COUNT, SIZE, CPUS };

static const struct {
    const char *name, *key, *heading;
    enum kind kind;
} limits[] = {
    {"sandboxes", "sandboxes", "SANDBOXES", COUNT},
    {"cpus", "cpus", "CPUS", CPUS},
    {"memory", "memory_bytes", "MEMORY", SIZE},
    {"disk", "disk_bytes", "DISK", SIZE},
    {"ports", "ports", "PORTS", COUNT},
    {"pids", "pids", "PIDS", COUNT},
    {"requests", "requests_per_second", "REQUESTS/S", COUNT},
};

#define LIMITS (sizeof(limits) / sizeof(limits[0]))

struct quota {
    struct options_common common;
    const char *values[LIMITS]; /* as they were written; NULL: not named */
};

#define VALUE(i) offsetof(struct quota, values) + (i) * sizeof(const char *)
static const struct option_row rows[] = {
    {"sandboxes", "NUMBER", NULL, "sandboxes, stopped ones too", NULL, 0, VALUE(0)},
    {"cpus", "NUMBER", NULL, "processors of those that run", NULL, 0, VALUE(1)},
    {"memory", "SIZE", NULL, "memory of those that run", NULL, 'm', VALUE(2)},
    {"disk", "SIZE", NULL, "disks, those of stopped sandboxes too", NULL, 0, VALUE(3)},
    {"ports", "NUMBER", NULL, "ports of the server's host; 0: as many as it gives any tenant", NULL,
     0, VALUE(4)},
    {"pids", "NUMBER", NULL, "processes and threads of those that run", NULL, 0, VALUE(5)},
    {"requests", "NUMBER", NULL, "requests a second", NULL, 0, VALUE(6)},
    OPTION_JSON("print what the API has of it; of all tenants a list"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "quota",
    .usage = "[TENANT]",
    .about =
        "Shows what a tenant may use and uses, or all tenants that have a key; with options sets\n"
        "what it may use of these, and leaves the rest as it is. 0 takes a limit away. It needs an\n"
        "operator's key, or the server's own socket. Other keys see the quota of their own tenant.",
    .notes = "SIZE is bytes, or has a K, M, G or T.",
    .examples = "cove quota team-a --sandboxes 20 --memory 64G\n"
                "cove quota",
    OPTION_ROWS(rows),
    .words = 1,
};

/* ---- setting ---- */

static int value_put(struct doc *body, size_t i, const char *value, struct error *err)
{
    uint64_t number = 0;
    uint32_t milli = 0;

    switch (limits[i].kind) {
    case COUNT:
        if (parse_count(limits[i].name, value, 0, COUNT_MOST, &number, err) < 0)
            return -1;
        return doc_set_number(body, limits[i].key, number);
    case SIZE:
        if (parse_size(limits[i].name, value, &number, err) < 0)
            return -1;
        return doc_set_number(body, limits[i].key, number);
    case CPUS:
        if (strcmp(value, "0") != 0 && parse_cpus(limits[i].name, value, &milli, err) < 0)
            return -1;
        return doc_set_real(body, limits[i].key, (double)milli / 1000);
    }
    return 0;
}

static bool is_setting(const struct quota *quota)
{
    for (size_t i = 0; i < LIMITS; i++)
        if (quota->values[i] != NULL)
            return true;
    return false;
}

/* All of the quota as it is, but for what the options name. */
static int quota_set(struct client *client, const char *path, const struct quota *quota,
                     struct doc **view, struct error *err)
{
    const struct doc *before = doc_get(*view, "quota");
    _cleanup_doc_ struct doc *body = doc_new();
    const struct client_request request = {.method = "PUT", .path = path, .json = body};

    if (body == NULL)
        return option_no_memory(err);
    for (size_t i = 0; i < LIMITS; i++) {
        const struct doc *old = doc_get(before, limits[i].key);

        *err = (struct error){.code = ""};
        if (quota->values[i] != NULL ? value_put(body, i, quota->values[i], err) < 0
                                     : old != NULL && doc_set_copy(body, limits[i].key, old) < 0)
            return err->code[0] != '\0' ? -1 : option_no_memory(err);
    }
    doc_free(*view);
    *view = NULL;
    return client_call(client, &request, view, err);
}

static int quota_get(struct client *client, const char *tenant, char path[API_PATH_MAX],
                     struct doc **view, struct error *err)
{
    const struct client_request request = {.path = path};

    (void)snprintf(path, API_PATH_MAX, "/v1/tenants/");
    if (tenant[0] == '\0' || !wire_encode(path, API_PATH_MAX - sizeof("/quota"), tenant))
        return error_set(err, "bad_value", 0,
                         "'%.80s' is no name of a tenant; cove key ls shows those that have keys",
                         tenant);
    (void)strcat(path, "/quota"); /* NOLINT(clang-analyzer-security.insecureAPI.strcpy): it fits */
    return client_call(client, &request, view, err);
}

/* ---- showing ---- */

static const char *value_text(const struct doc *values, size_t i, char text[SHOW_VALUE_MAX])
{
    uint64_t number = 0;

    if (limits[i].kind == CPUS) {
        (void)snprintf(text, SHOW_VALUE_MAX, "%g", doc_real(values, limits[i].key));
        return text;
    }
    (void)doc_number(values, limits[i].key, &number);
    if (limits[i].kind == SIZE)
        return show_size(number, text);
    (void)snprintf(text, SHOW_VALUE_MAX, "%llu", (unsigned long long)number);
    return text;
}

/* Requests are no amount that is used; a limit of 0 is none. */
static const char *used_text(const struct doc *view, size_t i, char text[SHOW_VALUE_MAX])
{
    return i + 1 < LIMITS ? value_text(doc_get(view, "used"), i, text) : NULL;
}

static const char *limit_text(const struct doc *view, size_t i, char text[SHOW_VALUE_MAX])
{
    return strcmp(value_text(doc_get(view, "quota"), i, text), "0") != 0 ? text : NULL;
}

static int one_show(const struct doc *view, struct error *err)
{
    static const char *const headings[] = {"LIMIT OF", "USED", "MOST"};
    struct show_table shown;

    show_table_begin(&shown, sizeof(headings) / sizeof(headings[0]), headings);
    for (size_t i = 0; i < LIMITS; i++) {
        char used[SHOW_VALUE_MAX], most[SHOW_VALUE_MAX];

        show_cell(&shown, limits[i].name);
        show_cell(&shown, used_text(view, i, used));
        show_cell(&shown, limit_text(view, i, most));
    }
    return show_table_print(&shown, err);
}

static int all_show(const struct doc *views, struct error *err)
{
    const char *headings[LIMITS + 1] = {"TENANT"};
    struct show_table shown;

    for (size_t i = 0; i < LIMITS; i++)
        headings[i + 1] = limits[i].heading;
    show_table_begin(&shown, LIMITS + 1, headings);
    for (size_t row = 0; row < doc_count(views); row++) {
        const struct doc *view = doc_at(views, row);

        show_cell(&shown, doc_text(view, "tenant"));
        for (size_t i = 0; i < LIMITS; i++) {
            char used[SHOW_VALUE_MAX], most[SHOW_VALUE_MAX], both[2 * SHOW_VALUE_MAX + 1];
            const char *of_used = used_text(view, i, used), *of_most = limit_text(view, i, most);

            (void)snprintf(both, sizeof(both), "%s%s%s", of_used != NULL ? of_used : "",
                           of_used != NULL && of_most != NULL ? "/" : "",
                           of_most != NULL ? of_most : "");
            show_cell(&shown, both[0] != '\0' ? both : NULL);
        }
    }
    return show_table_print(&shown, err);
}

static bool has_tenant(const struct doc *views, const char *tenant)
{
    for (size_t i = 0; i < doc_count(views); i++) {
        const char *name = doc_text(doc_at(views, i), "tenant");

        if (name != NULL && strcmp(name, tenant) == 0)
            return true;
    }
    return false;
}

static int view_add(struct client *client, struct doc *views, const char *tenant, struct error *err)
{
    char path[API_PATH_MAX];
    struct doc *view = NULL;

    if (has_tenant(views, tenant))
        return 0;
    if (quota_get(client, tenant, path, &view, err) < 0)
        return -1;
    return doc_add(views, view) < 0 ? option_no_memory(err) : 0;
}

/* The owner's own, and those that have keys. Without an operator's key it is that of the key's tenant alone. */
static int all_call(struct client *client, bool json, struct error *err)
{
    _cleanup_doc_ struct doc *keys = NULL, *views = doc_new_array();

    if (views == NULL)
        return option_no_memory(err);
    if (api_list(client, "/v1/keys", "keys", &keys, err) < 0 ||
        view_add(client, views, "default", err) < 0) {
        doc_freep(&keys);
        if (strcmp(err->code, "forbidden") != 0 || view_add(client, views, "-", err) < 0)
            return -1;
    }
    for (size_t i = 0; i < doc_count(keys); i++) {
        const char *tenant = doc_text(doc_at(keys, i), "tenant");

        if (tenant != NULL && view_add(client, views, tenant, err) < 0)
            return -1;
    }
    return json ? api_list_print("tenants", views, err) : all_show(views, err);
}

static int quota_call(struct client *client, void *into, const struct option_words *words,
                      struct error *err)
{
    const struct quota *quota = into;
    _cleanup_doc_ struct doc *view = NULL;
    char path[API_PATH_MAX];

    if (words->count == 0 && is_setting(quota))
        return error_set(err, "bad_value", 0, "missing argument: TENANT, whose quota is to be set");
    if (words->count == 0)
        return all_call(client, quota->common.json, err);
    if (quota_get(client, words->word[0], path, &view, err) < 0 ||
        (is_setting(quota) && quota_set(client, path, quota, &view, err) < 0))
        return -1;
    return quota->common.json ? doc_print(view, err) : one_show(view, err);
}

static int quota_run(const struct cmd *cmd, int argc, char **argv)
{
    struct quota quota = {0};

    return api_command(cmd, argc, argv, &quota, quota_call);
}

const struct cmd cmd_quota = {.name = "quota",
                              .summary = "show or set what tenants may use",
                              .run = quota_run,
                              .table = &table};
