/* Commands that people know from elsewhere: another name of one of ours, or what to do in its place. They are
 * in no help and no completion, so that there is one name for one thing. */
#include "base/fd.h"
#include "cmd/cmd.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IMAGES \
    "cove has no images; cove root add NAME PATH registers a directory or an erofs image as a root"
#define PLANNED "planned, and not there yet; "

static const struct {
    const char *name;
    char *words[2];     /* what it is another name of */
    const char *answer; /* else */
} others[] = {
    {"list", {"ls"}, NULL},
    {"inspect", {"info", "--json"}, NULL},
    {"delete", {"rm"}, NULL},
    {"remove", {"rm"}, NULL},
    {"stats", {"top"}, NULL},
    {"prune", {NULL}, "cove rm $(cove ls -q --state stopped) deletes all that are stopped"},
    {"restart", {NULL}, "cove stop SANDBOX, then cove start SANDBOX"},
    {"update",
     {NULL},
     "cove net SANDBOX set POLICY changes the network; memory, CPUs and disk are chosen by cove create"},
    {"rename", {NULL}, "a name is chosen by cove create and stays"},
    {"pause",
     {NULL},
     PLANNED "cove stop SANDBOX ends what runs and keeps the disk, cove start lets it run again"},
    {"unpause", {NULL}, PLANNED "cove start SANDBOX lets a stopped one run again"},
    {"resume", {NULL}, PLANNED "cove start SANDBOX lets a stopped one run again"},
    {"fork", {NULL}, PLANNED "cove cp copies files between a sandbox and the host"},
    {"snapshot", {NULL}, PLANNED "a sandbox that is stopped keeps its disk"},
    {"commit", {NULL}, PLANNED "a sandbox that is stopped keeps its disk"},
    {"restore", {NULL}, PLANNED "a sandbox that is stopped keeps its disk"},
    {"template", {NULL}, PLANNED IMAGES},
    {"build", {NULL}, IMAGES},
    {"image", {NULL}, IMAGES},
    {"images", {NULL}, IMAGES ", and cove root ls lists them"},
    {"pull", {NULL}, IMAGES},
    {"push", {NULL}, IMAGES},
    {"volume", {NULL}, "cove mount add NAME PATH registers a directory for cove create --mount"},
    {"network", {NULL}, "cove net SANDBOX shows what a sandbox may reach, and changes it"},
    {"container", {NULL}, "cove ls lists sandboxes, and cove help lists the commands"},
    {"login",
     {NULL},
     "COVE_URL names the server and COVE_API_KEY is the key; cove key new makes one"},
    {"ssh", {NULL}, "cove shell SANDBOX opens a shell"},
    {"mcp", {NULL}, PLANNED "until then an agent's tool may call cove exec or the API"},
    {"dashboard", {NULL}, PLANNED "cove top and cove events show what happens"},
    {"read", {NULL}, "cove cp SANDBOX:PATH - prints a file"},
    {"write", {NULL}, "cove cp - SANDBOX:PATH writes standard input to a file"},
    {"token", {NULL}, "the API alone makes tokens: POST /v1/sandboxes/{id}/tokens"},
    {"url", {NULL}, "the API alone makes URLs: POST /v1/sandboxes/{id}/urls"},
    {"audit", {NULL}, "the server writes the audit log to a file; [audit] in cove.conf says where"},
};

int cmd_run_other(int argc, char **argv, bool *is_known)
{
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        _cleanup_free_ char **words = NULL;
        int count = 0;

        if (strcmp(argv[0], others[i].name) != 0)
            continue;
        *is_known = true;
        if (others[i].answer != NULL) {
            cmd_say("%s: cove has no such command; %s", argv[0], others[i].answer);
            return CMD_FAILED;
        }
        words = calloc((size_t)argc + 2, sizeof(*words));
        if (words == NULL)
            return cmd_overview(STDERR_FILENO);
        for (; count < 2 && others[i].words[count] != NULL; count++)
            words[count] = others[i].words[count];
        for (int word = 1; word <= argc; word++) /* with the NULL at the end */
            words[count + word - 1] = argv[word];
        return cmd_run_words(count + argc - 1, words);
    }
    *is_known = false;
    return CMD_FAILED;
}
