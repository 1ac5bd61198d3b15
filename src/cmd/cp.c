/* `cove cp`: files from the host into a sandbox, and back.
 *
 * Names are as in cp(1), and one side has the name of a sandbox before it. What a sandbox sends is nobody's
 * word for anything: it lands below the place that was named and nowhere else. */
#include "cmd/cp.h"

#include "base/clock.h"
#include "base/fd.h"
#include "cmd/cmd.h"
#include "cmd/show.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHOW_MS 200

static const struct option_row rows[] = {
    {"user", "USER[:GROUP]", "the sandbox's",
     "who reads and writes there, by name or number inside the sandbox", NULL, 'u',
     offsetof(struct cp, user)},
    {"quiet", NULL, NULL, "show no progress", NULL, 'q', offsetof(struct cp, quiet)},
    OPTION_JSON("print one JSON object with each source, and how many bytes it was"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "cp",
    .usage = "SOURCE... TARGET",
    .about =
        "Copies files and whole directories between the host and a sandbox, which stands before its\n"
        "path: work:/tmp/x.\n"
        "A path of a sandbox that does not begin with \"/\" begins where its commands start. A\n"
        "TARGET that is a directory gets what is copied below it. \"-\" is standard input or output.\n"
        "A sandbox that is stopped and keeps its disk need not be started.",
    .notes =
        "Permissions and times are kept, owners and set-id bits are not. What comes out gets no right\n"
        "that the umask withholds, and a directory that is there already keeps its own. Links stay\n"
        "links, and none is followed where files of a sandbox are written. A path of the host with a\n"
        "colon in it is written as ./a:b; a sandbox with a colon in its name takes an absolute path.\n",
    .examples = "  cove cp report.csv work:/tmp/\n"
                "  cove cp src work:src\n"
                "  cove cp work:/var/log logs\n"
                "  cove cp work:out.png - | display\n",
    OPTION_ROWS(rows),
    .words_least = 2,
    .many = true,
};

/* ---- progress ---- */

void cp_moved(struct cp *cp, size_t bytes)
{
    char moved[SHOW_VALUE_MAX], rate[SHOW_VALUE_MAX], all[SHOW_VALUE_MAX], share[80] = "", name[60];
    uint64_t now;

    cp->bytes += bytes;
    if (!cp->shows)
        return;
    now = clock_monotonic_ns() / 1000000;
    if (now - cp->shown_ms < SHOW_MS)
        return;
    cp->shown_ms = now;
    cp->has_shown = true;
    show_escape(name, sizeof(name), cp->what);
    /* A file may grow while it is read: then there is no share that would not be a lie. */
    if (cp->total != UINT64_MAX && cp->bytes <= cp->total)
        (void)snprintf(share, sizeof(share), " of %s  %u%%", show_size(cp->total, all),
                       (unsigned)(100.0 * (double)cp->bytes / (double)cp->total));
    (void)fprintf(stderr, "\r\033[K%s  %s%s  %s/s", name, show_size(cp->bytes, moved), share,
                  show_size(cp->bytes * 1000 / (now - cp->began_ms + 1), rate));
}

void cp_progress_end(struct cp *cp)
{
    if (cp->has_shown)
        (void)fputs("\r\033[K", stderr);
    cp->has_shown = false;
}

void cp_warn(struct cp *cp, const char *path, const char *why)
{
    char shown[300];

    cp_progress_end(cp);
    show_escape(shown, sizeof(shown), path);
    cmd_say("%s: left out: %s", shown, why);
    cp->has_warned = true;
}

/* ---- places ---- */

/* The colon behind the name of a sandbox: that before an absolute path, for a name may have colons, too; else
 * the first. */
static const char *place_colon(const char *name)
{
    const char *slash = strchr(name, '/');

    return slash != NULL && slash > name && slash[-1] == ':' ? slash - 1 : strchr(name, ':');
}

/* As scp(1): what has a colon before any slash names a sandbox. */
static int place_parse(const char *word, struct cp_place *place, struct error *err)
{
    size_t skip = strncmp(word, "name:", 5) == 0 ? 5 : 0;
    const char *colon = place_colon(word + skip);
    size_t length = colon != NULL ? (size_t)(colon - word) : 0;
    const char *path = word;

    place->is_box = colon != NULL && word[0] != '.' && word[0] != '/' && length > skip &&
                    memchr(word, '/', length) == NULL;
    if (place->is_box) {
        if (length >= sizeof(place->sandbox))
            return error_set(err, "bad_value", 0, "%.40s...: no sandbox has a name that long",
                             word);
        memcpy(place->sandbox, word, length);
        place->sandbox[length] = '\0';
        path = colon[1] != '\0' ? colon + 1 : ".";
    }
    if (strlen(path) >= sizeof(place->path) || *path == '\0')
        return error_set(err, "bad_value", 0, "%.60s: a path has 1 to %d bytes", word,
                         CP_PATH_MAX - 1);
    (void)snprintf(place->path, sizeof(place->path), "%s", path);
    return 0;
}

int cp_url(const struct cp *cp, const struct cp_place *place, const char *route, const char *path,
           const char *more, char url[CP_URL_MAX], struct error *err)
{
    size_t used;

    if (api_sandbox_path(url, place->sandbox, route, err) < 0)
        return -1;
    used = strlen(url);
    (void)snprintf(url + used, CP_URL_MAX - used, "?path=");
    if (!wire_encode(url, CP_URL_MAX, path))
        return error_set(err, "bad_value", 0, "the path is too long for a request");
    if (cp->user != NULL) {
        used = strlen(url);
        (void)snprintf(url + used, CP_URL_MAX - used, "&user=");
        if (!wire_encode(url, CP_URL_MAX, cp->user))
            return error_set(err, "bad_value", 0, "--user: no user has a name that long");
    }
    used = strlen(url);
    if ((size_t)snprintf(url + used, CP_URL_MAX - used, "%s", more) >= CP_URL_MAX - used)
        return error_set(err, "bad_value", 0, "the path is too long for a request");
    return 0;
}

int cp_look(struct cp *cp, const struct cp_place *place, const char *path, bool *is_directory,
            struct error *err)
{
    static char url[CP_URL_MAX];
    struct client_request request = {.path = url};
    _cleanup_doc_ struct doc *entry = NULL;
    const char *type;

    if (cp_url(cp, place, "/files/stat", path, "&follow=true", url, err) < 0)
        return -1;
    if (client_call(cp->client, &request, &entry, err) < 0)
        return strcmp(err->code, "file_not_found") == 0 ? 0 : -1;
    type = doc_text(entry, "type");
    *is_directory = type != NULL && strcmp(type, "directory") == 0;
    return 1;
}

/* The last part of a path, without slashes at its end; "" where it has none of its own. */
const char *cp_base(const char *path, char name[256])
{
    size_t end = strlen(path), start;

    while (end > 0 && path[end - 1] == '/')
        end--;
    for (start = end; start > 0 && path[start - 1] != '/';)
        start--;
    (void)snprintf(name, 256, "%.*s", (int)(end - start), path + start);
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        name[0] = '\0';
    return name;
}

/* ---- the command ---- */

/* As they were named on the command line. */
static int place_set(struct doc *doc, const char *key, const struct cp_place *place)
{
    char text[sizeof(place->sandbox) + CP_PATH_MAX + 1];

    (void)snprintf(text, sizeof(text), "%s%s%s", place->is_box ? place->sandbox : "",
                   place->is_box ? ":" : "", place->path);
    return doc_set_text(doc, key, text);
}

static int copied_add(const struct cp *cp, const struct cp_place *source,
                      const struct cp_place *target)
{
    struct doc *one = doc_new();
    int failed = 0;

    failed |= place_set(one, "source", source);
    failed |= place_set(one, "target", target);
    failed |= doc_set_number(one, "bytes", cp->bytes);
    return doc_add(cp->copied, one) | failed;
}

static int copy_one(struct cp *cp, const struct cp_place *source, const struct cp_place *target,
                    bool into, struct error *err)
{
    int status;

    cp->what = source->path;
    cp->began_ms = cp->shown_ms = clock_monotonic_ns() / 1000000;
    cp->bytes = 0;
    cp->total = UINT64_MAX;
    status = source->is_box ? cp_out(cp, source, target->path, into, err)
                            : cp_in(cp, source->path, target, into, err);
    cp_progress_end(cp);
    if (status >= 0 && cp->copied != NULL && copied_add(cp, source, target) < 0)
        return option_no_memory(err);
    return status;
}

/* Whether what is copied goes below the target, as it is a directory. */
static int target_is_directory(struct cp *cp, const struct cp_place *target, bool *into,
                               struct error *err)
{
    bool has_slash = target->path[strlen(target->path) - 1] == '/';
    struct stat st;
    int there;

    *into = false;
    if (strcmp(target->path, "-") == 0)
        return 0;
    if (target->is_box) {
        there = cp_look(cp, target, target->path, into, err);
        if (there < 0)
            return -1;
    } else {
        there = stat(target->path, &st) == 0;
        *into = there && S_ISDIR(st.st_mode);
    }
    if (has_slash && !*into)
        return error_set(err, "not_a_directory", 0, "%.300s: there is no such directory; make it",
                         target->path);
    return 0;
}

static int check_words(const struct cp_place *places, size_t count, struct error *err)
{
    const struct cp_place *target = &places[count - 1];

    for (size_t i = 0; i + 1 < count; i++)
        if (places[i].is_box == target->is_box)
            return error_set(err, "bad_value", 0,
                             "one side must be a path of a sandbox, such as work:/tmp, and the "
                             "other one of the host; between two sandboxes, copy by \"-\": cove cp "
                             "a:x - | cove cp - b:x");
    return 0;
}

static int copy_all(struct cp *cp, const struct cp_place *places, size_t count, struct error *err)
{
    const struct cp_place *target = &places[count - 1];
    bool into = false, has_failed = false;

    if (target_is_directory(cp, target, &into, err) < 0)
        return -1;
    if (count > 2 && !into)
        return error_set(err, "not_a_directory", 0,
                         "%.300s: it is no directory, and several things are to be copied there",
                         target->path);
    for (size_t i = 0; i + 1 < count; i++) {
        if (copy_one(cp, &places[i], target, into, err) == 0)
            continue;
        if (count == 2)
            return -1;
        (void)cmd_fail(err);
        has_failed = true;
    }
    return has_failed || cp->has_warned ? CMD_FAILED : 0;
}

/* What came of it, also where not all could be copied. */
static int copy_and_print(struct cp *cp, const struct cp_place *places, size_t count,
                          struct error *err)
{
    _cleanup_doc_ struct doc *answer = doc_new();
    int status;

    cp->copied = doc_new_array();
    status = copy_all(cp, places, count, err);
    if (doc_set(answer, "copied", cp->copied) < 0 ||
        (cp->has_warned && doc_set_true(answer, "left_out") < 0))
        return option_no_memory(err);
    cp->copied = NULL;
    return status >= 0 && doc_print(answer, err) < 0 ? -1 : status;
}

static int cp_call(struct client *client, void *options, const struct option_words *words,
                   struct error *err)
{
    static struct cp_place places[256];
    struct cp *cp = options;
    size_t count = 0;

    cp->client = client;
    cp->shows = !cp->quiet && isatty(STDERR_FILENO) == 1;
    for (; words->rest[count] != NULL; count++) {
        if (count == sizeof(places) / sizeof(places[0]))
            return error_set(err, "bad_value", 0,
                             "those are too many at once; copy the directory they are in");
        if (place_parse(words->rest[count], &places[count], err) < 0)
            return -1;
    }
    if (check_words(places, count, err) < 0)
        return -1;
    if (!cp->common.json)
        return copy_all(cp, places, count, err);
    if (strcmp(places[count - 1].path, "-") == 0)
        return error_set(err, "bad_value", 0,
                         "--json: standard output is where the file goes; leave one out");
    return copy_and_print(cp, places, count, err);
}

static int cp_run(const struct cmd *cmd, int argc, char **argv)
{
    static struct cp cp;

    return api_command(cmd, argc, argv, &cp, cp_call);
}

const struct cmd cmd_cp = {.name = "cp",
                           .summary = "copy files between the host and a sandbox",
                           .run = cp_run,
                           .table = &table};
