/* See mounting.h. */
#include "cmd/mounting.h"

#include "base/fd.h"
#include "cmd/api.h"
#include "cmd/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bad_key(const char *value, const char *cause, struct error *err)
{
    return option_bad_value(err, "mount", value, cause,
                            "write SRC:DST[:ro] or type=bind,source=SRC,target=DST[,readonly]");
}

/* The value of one of `names` in "NAME=VALUE", or NULL. */
static const char *key_value(const char *part, const char *const names[3])
{
    size_t length = strcspn(part, "=");

    for (size_t i = 0; i < 3 && names[i] != NULL; i++)
        if (strlen(names[i]) == length && strncmp(part, names[i], length) == 0)
            return part[length] == '=' ? part + length + 1 : "";
    return NULL;
}

static const char *const types[3] = {"type"};

static bool has_type(const char *value)
{
    const char *part = value;

    while (key_value(part, types) == NULL) {
        part = strchr(part, ',');
        if (part == NULL)
            return false;
        part++;
    }
    return true;
}

int mounting_spell(const char *value, char **out, struct error *err)
{
    static const char *const sources[3] = {"source", "src"},
                             *const targets[3] = {"target", "destination", "dst"},
                             *const protects[3] = {"readonly", "ro"};
    _cleanup_free_ char *copy = strdup(value);
    const char *source = NULL, *target = NULL, *found;
    bool read_only = false;
    char *rest = copy, *part;

    *out = NULL;
    if (copy == NULL)
        return option_no_memory(err);
    if (strchr(value, ',') == NULL || !has_type(value)) {
        *out = copy;
        copy = NULL;
        return 0;
    }
    while ((part = strsep(&rest, ",")) != NULL) {
        if ((found = key_value(part, types)) != NULL && strcmp(found, "bind") != 0)
            return bad_key(value, "only directories and files of the host can be mounted", err);
        if ((found = key_value(part, sources)) != NULL)
            source = found;
        else if ((found = key_value(part, targets)) != NULL)
            target = found;
        else if ((found = key_value(part, protects)) != NULL)
            read_only = strcmp(found, "false") != 0 && strcmp(found, "0") != 0;
        else if (key_value(part, types) == NULL)
            return bad_key(value, "it has a key that cove does not know", err);
    }
    if (source == NULL || target == NULL)
        return bad_key(value, "its source or its target is missing", err);
    if (strchr(source, ':') != NULL || strchr(target, ':') != NULL)
        return bad_key(value, "a ':' divides source and target, and can be in neither", err);
    return asprintf(out, "%s:%s%s", source, target, read_only ? ":ro" : "") < 0
               ? option_no_memory(err)
               : 0;
}

/* A path of the host, which a sandbox cannot be given: how to give it a name. Called where there are a source and a
 * target. */
static int path_refused(const char *option, const char *value, size_t size, struct error *err)
{
    const char *end = value + size, *name = end;
    char remedy[400];
    size_t length;

    while (name > value && name[-1] != '/')
        name--;
    length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");
    if (length == 0 || name + length != end || length > 64) {
        name = "data";
        length = strlen(name);
    }
    (void)snprintf(remedy, sizeof(remedy),
                   "cove mount add %.*s %.*s registers it, then write %.*s%.100s", (int)length,
                   name, (int)(size < 200 ? size : 200), value, (int)length, name, end);
    return option_bad_value(err, option, value,
                            "a sandbox takes the name of a registered directory, no path", remedy);
}

int mounting_parse(const char *option, const char *value, struct doc **out, struct error *err)
{
    _cleanup_doc_ struct doc *mount = doc_new();
    size_t name = strcspn(value, ":");
    size_t length = strlen(value);
    bool read_only = length > 3 && strcmp(value + length - 3, ":ro") == 0;
    char text[512];
    int failed = 0;

    if (read_only)
        length -= 3;
    while (length > name + 2 && value[length - 1] == '/') /* as with cove run */
        length--;
    if (name > 0 && value[name] == ':' && value[name + 1] == '/' &&
        (memchr(value, '/', name) != NULL || value[0] == '.' || value[0] == '~'))
        return path_refused(option, value, name, err);
    if (name == 0 || name >= length || value[name + 1] != '/' || length >= sizeof(text))
        return option_bad_value(
            err, option, value, "that is no mount of a sandbox",
            "write NAME:/TARGET or NAME:/TARGET:ro, with a NAME of cove mount ls");
    (void)snprintf(text, sizeof(text), "%.*s", (int)name, value);
    failed |= doc_set_text(mount, "name", text);
    (void)snprintf(text, sizeof(text), "%.*s", (int)(length - name - 1), value + name + 1);
    failed |= doc_set_text(mount, "target", text);
    if (read_only)
        failed |= doc_set_true(mount, "read_only");
    if (failed != 0)
        return option_bad_value(err, option, value, "it is no UTF-8", "use another path");
    *out = mount;
    mount = NULL;
    return 0;
}

static const struct option_row rows[] = {
    OPTION_HELP,
};

const struct option_table mount_attach_table = {
    .command = "mount attach",
    .usage = "SANDBOX MOUNT:/TARGET[:ro]",
    .about =
        "Mounts a registered directory in a sandbox, also while it runs; it stays over stops and\n"
        "starts. To be written, without :ro, it can come to a sandbox that was created with\n"
        "--mountable, or that is stopped.",
    .examples = "cove mount attach work notes:/notes:ro",
    OPTION_ROWS(rows),
    .words = 2,
    .words_least = 2,
};

const struct option_table mount_detach_table = {
    .command = "mount detach",
    .usage = "SANDBOX TARGET",
    .about =
        "Unmounts what is mounted at TARGET of a sandbox. While anything in there uses it, it\n"
        "stays: end that first.",
    .examples = "cove mount detach work /notes",
    OPTION_ROWS(rows),
    .words = 2,
    .words_least = 2,
};

static int attach_call(struct client *client, void *options, const struct option_words *words,
                       struct error *err)
{
    _cleanup_doc_ struct doc *mount = NULL, *answer = NULL;
    char path[API_PATH_MAX];
    struct client_request request = {.method = "POST", .path = path};

    (void)options;
    if (mounting_parse("mount attach", words->word[1], &mount, err) < 0 ||
        api_path(path, words->sandbox, "/mounts", err) < 0)
        return -1;
    request.json = mount;
    return client_call(client, &request, &answer, err);
}

static int detach_call(struct client *client, void *options, const struct option_words *words,
                       struct error *err)
{
    char path[API_PATH_MAX], rest[800] = "/mounts?target=";
    const struct client_request request = {.method = "DELETE", .path = path};

    (void)options;
    if (words->word[1][0] != '/' || !wire_encode(rest, sizeof(rest), words->word[1]))
        return option_bad_value(err, "mount detach", words->word[1], "that is no path of a mount",
                                "write it as cove info shows it, such as /notes");
    if (api_path(path, words->sandbox, rest, err) < 0)
        return -1;
    return client_call(client, &request, NULL, err);
}

int mount_attach(const struct cmd *cmd, int argc, char **argv)
{
    struct options_common options = {0};

    return api_command(cmd, argc, argv, &options, attach_call);
}

int mount_detach(const struct cmd *cmd, int argc, char **argv)
{
    struct options_common options = {0};

    return api_command(cmd, argc, argv, &options, detach_call);
}
