/* `cove events`: what happens to sandboxes, a line each, as it happens.
 *
 * The stream has no end of its own. One that is cut is gone on with after the last event that came, and
 * what is not known any more by then is said to be missing. */
#include "base/parse.h"
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/show.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct events {
    struct options_common common;
    uint64_t from; /* the next that is wanted; 0: what comes */
};

static int take_from(void *into, const char *value, struct error *err)
{
    return parse_count("--from", value, 0, INT64_MAX, &((struct events *)into)->from, err);
}

static const struct option_row rows[] = {
    {"from", "NUMBER", "what happens from now on",
     "begin with this event, as far back as they are kept; 1 is the first", take_from, 0, 0},
    OPTION_JSON("print the lines of the API, one object each"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "events",
    .about = "Shows what happens to sandboxes and their commands, as it happens, until it is\n"
             "interrupted: number, time, what, sandbox, command, why.",
    .examples = "cove events --from 1\n"
                "cove events --json | jq 'select(.type == \"sandbox.stopped\")'",
    OPTION_ROWS(rows),
};

/* " NAME:PORT" of what went out, or would have. */
static size_t traffic_show(char *line, size_t size, const struct doc *traffic)
{
    const char *name = doc_text(traffic, "name");
    char shown[300];
    uint64_t port;

    if (name == NULL)
        name = doc_text(traffic, "address");
    if (name == NULL)
        return 0;
    show_escape(shown, sizeof(shown), name);
    if (doc_number(traffic, "port", &port))
        return (size_t)snprintf(line, size, " %s:%" PRIu64, shown, port);
    return (size_t)snprintf(line, size, " %s", shown);
}

static int event_show(const struct doc *event, uint64_t sequence, struct error *err)
{
    static const char *const keys[] = {"time", "type", "sandbox", "process", "reason"};
    static const int widths[] = {24, 18, 20, 4, 0};
    char line[1024];
    size_t used = (size_t)snprintf(line, sizeof(line), "%-6" PRIu64, sequence);

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const char *text = doc_text(event, keys[i]);
        char shown[128];

        show_escape(shown, sizeof(shown), text == NULL ? "-" : text);
        used += (size_t)snprintf(line + used, sizeof(line) - used, " %-*s", widths[i], shown);
    }
    used += traffic_show(line + used, sizeof(line) - used, doc_get(event, "traffic"));
    line[used++] = '\n';
    return cmd_out(line, used, err);
}

static int event_take(struct events *events, const char *line, size_t size, struct error *err)
{
    _cleanup_doc_ struct doc *event = NULL;
    uint64_t sequence;
    const char *type;
    int result;

    result = api_line(line, size, &event, &type, err);
    if (result <= 0)
        return result;
    if (strcmp(type, "gap") == 0 && !events->common.json)
        cmd_warn("some events are not kept any more, and left out here");
    if (strcmp(type, "traffic_gap") == 0 && !events->common.json)
        cmd_warn("some events of networks and ports are not kept any more, and left out here");
    if (doc_number(event, "sequence", &sequence)) {
        if (sequence < INT64_MAX)
            events->from = sequence + 1;
        if (!events->common.json)
            return event_show(event, sequence, err);
    }
    return events->common.json && strcmp(type, "keepalive") != 0 ? doc_print_line(event, err) : 0;
}

/* One connection: always -1. */
static int listen_once(struct client *client, struct events *events, uint64_t *heard_ms,
                       struct error *err)
{
    char path[64];
    const struct client_request request = {.path = path};

    (void)snprintf(path, sizeof(path), "/v1/events?from=%" PRIu64, events->from);
    if (client_start(client, &request, err) < 0)
        return -1;
    for (;;) {
        char *line;
        size_t size;
        int result = client_line(client, &line, &size, err);

        if (result == 0)
            return error_set(err, "cut", 0, "the server ended the stream of events");
        if (result < 0 || event_take(events, line, size, err) < 0)
            return -1;
        *heard_ms = api_now_ms();
    }
}

static int events_call(struct client *client, void *options, const struct option_words *words,
                       struct error *err)
{
    uint64_t heard_ms = api_now_ms();

    (void)words;
    api_end_unread(client);
    do
        (void)listen_once(client, options, &heard_ms, err);
    while (api_goes_on(client, heard_ms, err));
    return -1;
}

static int events_run(const struct cmd *cmd, int argc, char **argv)
{
    struct events events = {.from = 0};

    return api_command(cmd, argc, argv, &events, events_call);
}

const struct cmd cmd_events = {.name = "events",
                               .summary = "show what happens to sandboxes, as it happens",
                               .run = events_run,
                               .table = &table};
