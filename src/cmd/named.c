/* `cove root` and `cove mount`: the directories of the host that sandboxes may be given, by name.
 *
 * No server is asked to open a path, for who may name paths to it owns the host. What is registered is
 * opened here, with the rights of whoever runs this, and handed over to the keeper's own socket, which
 * hears root and the engine's owner alone. So it works beside the engine only, not from afar. */
#include "base/fd.h"
#include "box/proto.h"
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/mounting.h"
#include "cmd/show.h"
#include "keeper/names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define KEEPER_SOCKET "keeper.sock"
#define ANSWER_S 10
#define COLUMNS 4

/* What differs between the two commands. */
struct named_kind {
    uint32_t kind;   /* enum keeper_kind */
    const char *key; /* in the answer of the API */
};

struct named_options {
    struct options_common common;
    bool read_only;
    char tenants[KEEPER_TENANTS_SIZE]; /* between commas; empty: not said */
};

/* ---- the keeper's socket ---- */

/* It lies beside the server's. */
static int keeper_path(char path[WIRE_PATH_MAX], struct error *err)
{
    _cleanup_client_ struct client *client = NULL;
    const char *socket_path;
    char *slash;

    if (client_open(&client, err) < 0)
        return -1;
    socket_path = client_socket(client);
    if (socket_path == NULL)
        return error_set(
            err, "not_here", 0,
            "COVE_URL: what a server may show to sandboxes is said on its own host; run "
            "this there, without COVE_URL");
    (void)snprintf(path, WIRE_PATH_MAX, "%s", socket_path);
    slash = strrchr(path, '/');
    if ((size_t)(slash - path) + sizeof(KEEPER_SOCKET) + 1 > WIRE_PATH_MAX)
        return error_set(err, "bad_url", 0, "%s: the keeper's socket beside it has too long a path",
                         path);
    memcpy(slash + 1, KEEPER_SOCKET, sizeof(KEEPER_SOCKET));
    return 0;
}

static int keeper_connect(int *out, struct error *err)
{
    const struct timeval most = {.tv_sec = ANSWER_S};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = -1;
    struct ucred peer = {0};
    socklen_t size = sizeof(peer);

    if (keeper_path(name.sun_path, err) < 0)
        return -1;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(err, "socket", errno, "socket: the kernel refused it");
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
    if (connect(fd, (struct sockaddr *)&name, sizeof(name)) < 0)
        return error_set(err, "no_keeper", errno,
                         "%s: it cannot be reached; run this as root, or as who runs the engine",
                         name.sun_path);
    /* In a directory that others may write to, it could be anybody's. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ||
        (peer.uid != 0 && peer.uid != geteuid()))
        return error_set(err, "no_keeper", 0,
                         "%s: neither root nor you listen there, so nothing is handed over",
                         name.sun_path);
    *out = fd_take(&fd);
    return 0;
}

static int answer_receive(int keeper, struct names_answer *answer, int *list, struct error *err)
{
    int fds[PROTO_FDS_MAX];
    ssize_t n = proto_receive(keeper, answer, sizeof(*answer), fds, 0);

    *list = n >= 0 ? fd_take(&fds[0]) : -1;
    for (size_t i = 1; n >= 0 && i < PROTO_FDS_MAX; i++)
        fd_close(&fds[i]); /* none are meant */
    if (n == (ssize_t)sizeof(*answer))
        return 0;
    if (n == 0)
        return error_set(
            err, "forbidden", 0,
            "the keeper does not hear you; run this as root, or as who runs the engine");
    return error_set(err, "bad_answer", n < 0 ? errno : 0,
                     "the keeper's answer is none; is it of another version of cove?");
}

static int answer_take(const struct names_answer *answer, struct error *err)
{
    char text[ERROR_TEXT_MAX];

    if (answer->error.code[0] == '\0')
        return 0;
    *err = answer->error;
    err->code[sizeof(err->code) - 1] = err->text[sizeof(err->text) - 1] = '\0';
    show_escape(text, sizeof(text), err->text);
    memcpy(err->text, text, sizeof(text));
    return -1;
}

/* `fd`: sent with it, or -1. `*list`: what came with the answer, or -1. */
static int ask(const struct names_request *request, int fd, int *list, struct error *err)
{
    struct names_answer answer;
    _cleanup_close_ int keeper = -1;

    if (keeper_connect(&keeper, err) < 0)
        return -1;
    if (proto_send(keeper, request, sizeof(*request), NULL, 0, &fd, fd < 0 ? 0 : 1) < 0)
        return error_set(err, "no_keeper", errno, "the keeper takes no request");
    return answer_receive(keeper, &answer, list, err) < 0 ? -1 : answer_take(&answer, err);
}

/* Asks for one change. */
static int change(const struct named_kind *kind, enum names_verb verb, const char *name,
                  const struct named_options *options, int fd, struct error *err)
{
    struct names_request request = {
        .verb = verb, .kind = kind->kind, .read_only = options->read_only};
    _cleanup_close_ int list = -1; /* none is meant */

    if (strlen(name) >= sizeof(request.name))
        return error_set(err, "bad_name", 0, "%.64s...: a name has at most %zu characters", name,
                         sizeof(request.name) - 1);
    (void)snprintf(request.name, sizeof(request.name), "%s", name);
    memcpy(request.tenants, options->tenants, sizeof(request.tenants));
    return ask(&request, fd, &list, err);
}

/* ---- add, rm ---- */

static int path_open(const struct named_kind *kind, const char *path, int *out, struct error *err)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set(err, "bad_path", errno, "%.200s: you cannot open it", path);
    if (!S_ISDIR(st.st_mode) && (kind->kind != KEEPER_ROOT || !S_ISREG(st.st_mode)))
        return error_set(err, "bad_path", 0, "%.200s: it is no directory%s; name another", path,
                         kind->kind == KEEPER_ROOT ? " and no image" : "");
    *out = fd_take(&fd);
    return 0;
}

static int named_add(const struct cmd *cmd, int argc, char **argv)
{
    const struct named_kind *kind = cmd->more;
    struct named_options options = {0};
    struct option_words words;
    _cleanup_close_ int fd = -1;
    struct error err;
    int status;

    if (!options_begin(cmd->table, &options, argc, argv, &words, &status))
        return status;
    if (path_open(kind, words.word[1], &fd, &err) < 0 ||
        change(kind, NAMES_ADD, words.word[0], &options, fd, &err) < 0)
        return api_fail(&err);
    return 0;
}

static int named_rm(const struct cmd *cmd, int argc, char **argv)
{
    struct named_options options = {0};
    struct option_words words;
    struct error err;
    int status;

    if (!options_begin(cmd->table, &options, argc, argv, &words, &status))
        return status;
    return change(cmd->more, NAMES_REMOVE, words.word[0], &options, -1, &err) < 0 ? api_fail(&err)
                                                                                  : 0;
}

/* ---- ls ---- */

static void entry_show(struct show_table *shown, struct names_entry *entry)
{
    entry->name[sizeof(entry->name) - 1] = entry->path[sizeof(entry->path) - 1] = '\0';
    entry->tenants[sizeof(entry->tenants) - 1] = '\0';
    show_cell(shown, entry->name);
    show_cell(shown, entry->is_there == 0 ? "missing" : entry->read_only != 0 ? "read-only" : "-");
    show_cell(shown, entry->tenants);
    show_cell(shown, entry->path);
}

/* What the keeper knows: tenants and paths, too. */
static int keeper_ls(const struct named_kind *kind, struct show_table *shown, struct error *err)
{
    const struct names_request request = {.verb = NAMES_LIST};
    _cleanup_close_ int list = -1;
    struct names_entry entry;
    ssize_t n = 0;

    if (ask(&request, -1, &list, err) < 0)
        return -1;
    while ((n = fd_read_full(list, &entry, sizeof(entry))) == (ssize_t)sizeof(entry))
        if (entry.kind == kind->kind)
            entry_show(shown, &entry);
    return n == 0 ? 0 : error_set(err, "bad_answer", 0, "the keeper's list is cut off");
}

static bool is_among(const struct doc *names, const char *name)
{
    for (size_t i = 0; i < doc_count(names); i++) {
        const char *text = doc_own_text(doc_at(names, i));

        if (text != NULL && strcmp(text, name) == 0)
            return true;
    }
    return false;
}

/* The server tells a tenant its own names, and which mounts are read-only. */
static int server_ls(const struct named_kind *kind, bool json, struct show_table *shown,
                     struct error *err)
{
    _cleanup_client_ struct client *client = NULL;
    _cleanup_doc_ struct doc *answer = NULL;
    const struct client_request request = {.path = "/v1/roots"};
    const struct doc *names;

    if (client_open(&client, err) < 0 || client_call(client, &request, &answer, err) < 0)
        return -1;
    names = doc_get(answer, kind->key);
    if (!doc_is_array(names))
        return error_set(err, "bad_answer", 0,
                         "the server's list is none; check that COVE_URL leads to cove");
    if (json)
        return doc_print(names, err);
    for (size_t i = 0; i < doc_count(names); i++) {
        const char *text = doc_own_text(doc_at(names, i));
        bool is_read_only = text != NULL && kind->kind == KEEPER_MOUNT &&
                            is_among(doc_get(answer, "mounts_read_only"), text);

        show_cell(shown, text != NULL ? text : doc_text(doc_at(names, i), "name"));
        show_cell(shown, is_read_only ? "read-only" : NULL);
        for (size_t cell = 2; cell < COLUMNS; cell++)
            show_cell(shown, NULL);
    }
    return 0;
}

static int named_ls(const struct cmd *cmd, int argc, char **argv)
{
    static const char *const headings[COLUMNS] = {"NAME", "STATE", "TENANTS", "PATH"};
    struct named_options options = {0};
    struct option_words words;
    struct show_table shown;
    struct error err;
    int status = 0;

    if (!options_begin(cmd->table, &options, argc, argv, &words, &status))
        return status;
    show_table_begin(&shown, COLUMNS, headings);
    if (options.common.json || keeper_ls(cmd->more, &shown, &err) < 0) {
        show_table_free(&shown);
        show_table_begin(&shown, COLUMNS, headings);
        status = server_ls(cmd->more, options.common.json, &shown, &err);
    }
    if (status == 0 && !options.common.json)
        status = show_table_print(&shown, &err);
    else
        show_table_free(&shown);
    return status < 0 ? api_fail(&err) : 0;
}

/* ---- options ---- */

static int take_tenant(void *into, const char *value, struct error *err)
{
    char *tenants = ((struct named_options *)into)->tenants;
    size_t used = strlen(tenants);

    if (value[0] == '\0')
        return option_bad_value(err, "tenant", value, "it has no name", "name a tenant, or \"*\"");
    if (used + strlen(value) + 2 > KEEPER_TENANTS_SIZE)
        return option_bad_value(err, "tenant", value, "these are too many",
                                "let all have it, with --tenant '*'");
    (void)snprintf(tenants + used, KEEPER_TENANTS_SIZE - used, "%s%s", used > 0 ? "," : "", value);
    return 0;
}

#define OPTION_TENANT                                                                                \
    {                                                                                                \
        "tenant", "NAME", "default",                                                                 \
            "let sandboxes of this tenant have it, and no others; may be repeated, \"*\" is all of " \
            "them",                                                                                  \
            take_tenant, 0, 0                                                                        \
    }

static const struct option_row plain_rows[] = {
    OPTION_HELP,
};

static const struct option_row root_rows[] = {
    OPTION_TENANT,
    OPTION_HELP,
};

static const struct option_row mount_rows[] = {
    OPTION_TENANT,
    {"read-only", NULL, "each sandbox decides", "no sandbox may write to it", NULL, 0,
     offsetof(struct named_options, read_only)},
    OPTION_HELP,
};

static const struct option_row ls_rows[] = {
    OPTION_JSON("print the names as the API has them"),
    OPTION_HELP,
};

/* ---- root ---- */

static const struct named_kind roots = {.kind = KEEPER_ROOT, .key = "roots"};

static const struct option_table root_add = {
    .command = "root add",
    .usage = "NAME PATH",
    .about = "Lets sandboxes have PATH, a directory or an erofs image, as their root: cove create\n"
             "--root NAME. It stays untouched by them. You must be root, or run the engine\n"
             "yourself.",
    OPTION_ROWS(root_rows),
    .words = 2,
    .words_least = 2,
};

static const struct option_table root_ls = {
    .command = "root ls",
    .about =
        "Lists the roots that cove create --root knows. Their paths are shown to root and to who\n"
        "runs the engine.",
    OPTION_ROWS(ls_rows),
};

static const struct option_table root_rm = {
    .command = "root rm",
    .usage = "ROOT",
    .about = "Lets no further sandbox have this root. The directory stays as it is.",
    OPTION_ROWS(plain_rows),
    .words = 1,
    .words_least = 1,
};

static const struct cmd root_verbs[] = {
    {.name = "add",
     .summary = "let sandboxes have a directory or an image as their root",
     .run = named_add,
     .table = &root_add,
     .more = &roots},
    {.name = "ls",
     .summary = "list the roots there are",
     .run = named_ls,
     .table = &root_ls,
     .more = &roots},
    {.name = "rm",
     .summary = "let no further sandbox have one",
     .run = named_rm,
     .table = &root_rm,
     .more = &roots},
};

const struct cmd cmd_root = {.name = "root",
                             .summary = "say which roots sandboxes may have",
                             .verbs = root_verbs,
                             .verbs_count = sizeof(root_verbs) / sizeof(root_verbs[0])};

/* ---- mount ---- */

static const struct named_kind mounts = {.kind = KEEPER_MOUNT, .key = "mounts"};

static const struct option_table mount_add = {
    .command = "mount add",
    .usage = "NAME PATH",
    .about =
        "Lets sandboxes have the directory PATH in them: cove create --mount NAME:/TARGET. What\n"
        "they write there is written to it. You must be root, or run the engine yourself.",
    OPTION_ROWS(mount_rows),
    .words = 2,
    .words_least = 2,
};

static const struct option_table mount_ls = {
    .command = "mount ls",
    .about =
        "Lists the directories that cove create --mount knows. Their paths are shown to root and\n"
        "to who runs the engine.",
    OPTION_ROWS(ls_rows),
};

static const struct option_table mount_rm = {
    .command = "mount rm",
    .usage = "MOUNT",
    .about = "Lets no further sandbox have this directory. What is in it stays as it is.",
    OPTION_ROWS(plain_rows),
    .words = 1,
    .words_least = 1,
};

static const struct cmd mount_verbs[] = {
    {.name = "attach",
     .summary = "mount one in a sandbox, also while it runs",
     .run = mount_attach,
     .table = &mount_attach_table,
     .target = CMD_TARGET_SANDBOX},
    {.name = "detach",
     .summary = "unmount one in a sandbox",
     .run = mount_detach,
     .table = &mount_detach_table,
     .target = CMD_TARGET_SANDBOX},
    {.name = "add",
     .summary = "let sandboxes have a directory in them",
     .run = named_add,
     .table = &mount_add,
     .more = &mounts},
    {.name = "ls",
     .summary = "list the directories there are",
     .run = named_ls,
     .table = &mount_ls,
     .more = &mounts},
    {.name = "rm",
     .summary = "let no further sandbox have one",
     .run = named_rm,
     .table = &mount_rm,
     .more = &mounts},
};

const struct cmd cmd_mount = {
    .name = "mount",
    .summary = "say which directories sandboxes may be given, and give them",
    .verbs = mount_verbs,
    .verbs_count = sizeof(mount_verbs) / sizeof(mount_verbs[0])};
