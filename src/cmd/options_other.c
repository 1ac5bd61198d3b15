/* Options that people know from docker: another name of one of ours, a word that changes nothing here, or what to do
 * in its place. None of it is in a help, so that there is one name for one thing; a name of a table's own comes first. */
#include "cmd/options.h"

#include <stdio.h>
#include <string.h>

#define RUN " run "
#define CREATE " create "
#define MAKES " run create " /* a box */

#define EXEC_IT \
    "cove create makes a sandbox, and cove exec -it NAME -- COMMAND runs a command there on a terminal"
#define IMAGES "images by name are planned; --root takes "
#define RUN_PORT \
    "nothing listens for a box of cove run; cove create --port NUMBER opens a port of a sandbox"
#define CPUS "--cpus NUMBER is how much CPU it has; none is kept for it"
#define MEMORY "--memory SIZE is the limit, and swap counts"
#define OWN_NAMESPACES "a box shares no namespace with the host or with another box; leave it out"
#define OWN_NAMES "the server resolves names for a box, by the policy of --net"
#define LIMITS "--memory, --pids, --cpus and --disk are the limits of a box"
#define SETUP \
    "--privileges plain has no capability, system has what apt, su and sudo need; there is no other"

static const struct option_other others[] = {
    {NULL, "volume", 0, "mount", NULL},
    {NULL, "network", 0, "net", NULL},
    {NULL, "workdir", 0, "cwd", NULL},
    {NULL, "pids-limit", 0, "pids", NULL},
    {RUN, "name", 0, "hostname", NULL},
    {RUN, "interactive", 'i', "", NULL},
    {RUN, "rm", 0, "", NULL},
    {RUN, "quiet", 'q', "", NULL},
    {MAKES, "init", 0, "", NULL}, /* each box has one */
    {CREATE, "detach", 'd', "", NULL},
    {" rm ", "volumes", 'v', "", NULL},
    {" cp ", "recursive", 'r', "", NULL},
    {" ls ps ", "all", 'a', "", NULL},
    {RUN, "detach", 'd', NULL,
     "a box ends with its command; cove create NAME makes a sandbox that stays, and cove exec -d NAME "
     "-- COMMAND starts a command there"},
    {RUN, "restart", 0, NULL,
     "a box ends with its command; cove create NAME makes a sandbox that stays"},
    {CREATE, "restart", 0, NULL,
     "no command is started again by itself; cove start NAME starts a sandbox that was stopped"},
    {RUN, "publish", 'p', NULL, RUN_PORT},
    {RUN, "publish-all", 'P', NULL, RUN_PORT},
    {RUN, "expose", 0, NULL, RUN_PORT},
    {CREATE, "publish", 'p', NULL,
     "--port NUMBER opens a port, and cove ports says where it is reached"},
    {CREATE, "publish-all", 'P', NULL,
     "--port NUMBER opens a port, and cove ports says where it is reached"},
    {CREATE, "expose", 0, NULL,
     "--port NUMBER opens a port, and cove ports says where it is reached"},
    {RUN, "privileged", 0, NULL, "--privileges system makes the command root in its box"},
    {CREATE, "privileged", 0, NULL, "--privileges system makes its commands root inside"},
    {" exec ", "privileged", 0, NULL,
     "cove create --privileges system makes the commands of a sandbox root inside"},
    {MAKES, "cap-add", 0, NULL, SETUP},
    {MAKES, "cap-drop", 0, NULL, SETUP},
    {MAKES, "security-opt", 0, NULL, SETUP},
    {MAKES, "device", 0, NULL, "no device of the host comes into a box"},
    {MAKES, "gpus", 0, NULL, "GPUs are planned; no device of the host comes into a box"},
    {RUN, "image", 0, NULL, IMAGES "a directory or an erofs image"},
    {CREATE, "image", 0, NULL,
     IMAGES
     "what cove root ls lists, and cove root add NAME DIR registers a directory or an erofs image"},
    {RUN, "pull", 0, NULL, IMAGES "a directory or an erofs image"},
    {CREATE, "pull", 0, NULL, IMAGES "what cove root ls lists"},
    {MAKES, "platform", 0, NULL,
     "a box runs the programs of this machine's processor; leave it out"},
    {MAKES, "runtime", 0, NULL, "cove makes the box itself; leave it out"},
    {RUN, "entrypoint", 0, NULL, "the command is the program: cove run -- PROGRAM ARG..."},
    {CREATE, "entrypoint", 0, NULL, "cove exec NAME -- PROGRAM ARG... starts one"},
    {RUN, "read-only", 0, NULL,
     "/ is read-only but to --privileges system, and --mount SRC:DST:ro protects a mount"},
    {CREATE, "read-only", 0, NULL, "--mount NAME:/TARGET:ro protects a mount"},
    {RUN, "tmpfs", 0, NULL,
     "all that a command writes outside its mounts is held in memory already, within --disk"},
    {CREATE, "tmpfs", 0, NULL, "--ephemeral holds all that is written in memory, within --disk"},
    {MAKES, "shm-size", 0, NULL, "/dev/shm has as much as --disk and --memory give"},
    {MAKES, "cpu-shares", 'c', NULL, CPUS},
    {MAKES, "cpu-quota", 0, NULL, CPUS},
    {MAKES, "cpu-period", 0, NULL, CPUS},
    {MAKES, "cpuset-cpus", 0, NULL, CPUS},
    {MAKES, "memory-swap", 0, NULL, MEMORY},
    {MAKES, "memory-reservation", 0, NULL, MEMORY},
    {MAKES, "ulimit", 0, NULL, LIMITS},
    {MAKES, "storage-opt", 0, NULL, LIMITS},
    {MAKES, "sysctl", 0, NULL, "a box changes no setting of the kernel; leave it out"},
    {RUN, "label", 'l', NULL, "a box that ends with its command has none; cove create has --label"},
    {RUN, "cidfile", 0, NULL, "a box that ends with its command has no id; cove create prints one"},
    {CREATE, "cidfile", 0, NULL, "the id is printed: cove create >FILE"},
    {MAKES, "dns", 0, NULL, OWN_NAMES},
    {MAKES, "add-host", 0, NULL, OWN_NAMES},
    {MAKES, "link", 0, NULL, "boxes do not reach each other; a port is reached from the host"},
    {MAKES, "ip", 0, NULL,
     "a box has no address that others reach; a port is reached from the host"},
    {MAKES, "pid", 0, NULL, OWN_NAMESPACES},
    {MAKES, "ipc", 0, NULL, OWN_NAMESPACES},
    {MAKES, "uts", 0, NULL, OWN_NAMESPACES},
    {MAKES, "userns", 0, NULL, OWN_NAMESPACES},
    {MAKES, "cgroupns", 0, NULL, OWN_NAMESPACES},
    {MAKES, "group-add", 0, NULL, "--user USER:GROUP names the group"},
    {MAKES, "volumes-from", 0, NULL, "each box names its own mounts: --mount"},
    {MAKES, "log-driver", 0, NULL, "cove logs prints what commands of a sandbox wrote"},
    {CREATE, "interactive", 'i', NULL, EXEC_IT},
    {CREATE, "tty", 't', NULL, EXEC_IT},
    {CREATE, "rm", 0, NULL, "--idle TIME --then kill deletes a sandbox that nothing runs in"},
    {" logs ", "timestamps", 't', NULL, "cove events tells when a command began and ended"},
    {" logs ", "since", 0, NULL, "--tail LINES prints the newest lines"},
};

static bool is_of(const struct option_other *other, const char *command)
{
    char word[32];

    (void)snprintf(word, sizeof(word), " %.28s ", command);
    return other->commands == NULL || strstr(other->commands, word) != NULL;
}

const struct option_other *option_other_find(const struct option_table *table, const char *word)
{
    size_t length = word[1] == '-' ? strcspn(word + 2, "=") : 1;

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (is_of(&others[i], table->command) &&
            option_is_called(others[i].name, others[i].letter, word, length))
            return &others[i];
    return NULL;
}
