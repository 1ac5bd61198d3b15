/* `cove info`: all there is to say of one sandbox. */
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/show.h"

#include <stdio.h>
#include <string.h>

static const struct option_row rows[] = {
    OPTION_JSON("print it as the API has it"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "info",
    .usage = "SANDBOX",
    .about = "Says all there is to say of one sandbox. The values of its variables are left out;\n"
             "--json has them.",

    OPTION_ROWS(rows),
    .words = 1,
    .words_least = 1,
};

static void line(struct show_table *shown, const char *what, const char *text)
{
    if (text == NULL || text[0] == '\0')
        return;
    show_cell(shown, what);
    show_cell(shown, text);
}

static void line_text(struct show_table *shown, const char *what, const struct doc *doc,
                      const char *key)
{
    line(shown, what, doc_text(doc, key));
}

static void line_size(struct show_table *shown, const char *what, const struct doc *doc,
                      const char *key)
{
    char text[SHOW_VALUE_MAX];
    uint64_t bytes;

    if (doc_number(doc, key, &bytes))
        line(shown, what, bytes == 0 ? "no limit" : show_size(bytes, text));
}

static void line_number(struct show_table *shown, const char *what, const struct doc *doc,
                        const char *key)
{
    char text[SHOW_VALUE_MAX];
    uint64_t number;

    if (!doc_number(doc, key, &number))
        return;
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    line(shown, what, text);
}

static void resources_show(struct show_table *shown, const struct doc *resources)
{
    char text[SHOW_VALUE_MAX];
    double cpus = doc_real(resources, "cpus");

    line_size(shown, "memory", resources, "memory_bytes");
    (void)snprintf(text, sizeof(text), "%g", cpus);
    line(shown, "cpus", cpus > 0 ? text : "all");
    line_size(shown, "disk", resources, "disk_bytes");
    line_number(shown, "pids", resources, "pids");
}

static void mounts_show(struct show_table *shown, const struct doc *mounts)
{
    for (size_t i = 0; i < doc_count(mounts); i++) {
        const struct doc *mount = doc_at(mounts, i);
        const char *name = doc_text(mount, "name");
        const char *target = doc_text(mount, "target");
        char text[512];

        (void)snprintf(text, sizeof(text), "%s at %s%s", name == NULL ? "?" : name,
                       target == NULL ? "?" : target,
                       doc_true(mount, "read_only") ? ", read-only" : "");
        line(shown, "mount", text);
    }
}

static void env_show(struct show_table *shown, const struct doc *env)
{
    char text[1024] = "";
    size_t used = 0;

    for (const char *key = doc_next_key(env, NULL); key != NULL && used < sizeof(text);
         key = doc_next_key(env, key))
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", used == 0 ? "" : " ",
                                 key);
    line(shown, "variables", text);
}

static void lifecycle_show(struct show_table *shown, const struct doc *lifecycle)
{
    char text[SHOW_VALUE_MAX];
    uint64_t idle_ms;

    line_text(shown, "ends at", lifecycle, "deadline");
    if (doc_number(lifecycle, "idle_ms", &idle_ms) && idle_ms > 0)
        line(shown, "ends idle for", show_span(idle_ms, text));
    line_text(shown, "on expiry", lifecycle, "then");
}

static int sandbox_show(const struct doc *sandbox, struct error *err)
{
    struct show_table shown;
    char text[1024];

    show_table_begin(&shown, 2, NULL);
    line_text(&shown, "id", sandbox, "id");
    line_text(&shown, "name", sandbox, "name");
    line_text(&shown, "state", sandbox, "state");
    line_text(&shown, "because", sandbox, "reason");
    line_text(&shown, "error", doc_get(sandbox, "error"), "detail");
    line_text(&shown, "root", sandbox, "root");
    line_text(&shown, "privileges", sandbox, "privileges");
    line_text(&shown, "disk kind", sandbox, "disk_kind");
    resources_show(&shown, doc_get(sandbox, "resources"));
    mounts_show(&shown, doc_get(sandbox, "mounts"));
    line_text(&shown, "network", doc_get(sandbox, "network"), "mode");
    line_text(&shown, "user", sandbox, "user");
    line_text(&shown, "directory", sandbox, "cwd");
    line_text(&shown, "host name", sandbox, "hostname");
    env_show(&shown, doc_get(sandbox, "env"));
    api_pairs_text(doc_get(sandbox, "labels"), text, sizeof(text));
    line(&shown, "labels", text);
    lifecycle_show(&shown, doc_get(sandbox, "lifecycle"));
    line_number(&shown, "processes", sandbox, "processes_running");
    line_text(&shown, "created", sandbox, "created_at");
    line_text(&shown, "changed", sandbox, "updated_at");
    return show_table_print(&shown, err);
}

static int info_call(struct client *client, void *options, const struct option_words *words,
                     struct error *err)
{
    const struct options_common *common = options;
    _cleanup_doc_ struct doc *sandbox = NULL;
    const struct client_request request = {.path = words->sandbox};
    const char *id;

    if (client_call(client, &request, &sandbox, err) < 0 || api_text(sandbox, "id", &id, err) < 0)
        return -1;
    return common->json ? doc_print(sandbox, err) : sandbox_show(sandbox, err);
}

static int info_run(const struct cmd *cmd, int argc, char **argv)
{
    struct options_common options = {0};

    return api_command(cmd, argc, argv, &options, info_call);
}

const struct cmd cmd_info = {.name = "info",
                             .summary = "say all there is to say of a sandbox",
                             .run = info_run,
                             .table = &table,
                             .target = CMD_TARGET_SANDBOX};
