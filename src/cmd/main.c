/* cove: the table of commands, and what must be true before any of them runs.
 *
 * What the caller left open beside its standard streams is closed here, first of all: a descriptor
 * that reached a box would be a door out of it. */
#include "base/fd.h"
#include "cmd/cmd.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int cmd_help(int argc, char **argv);

static const struct cmd commands[] = {
    {"run", "run one command in a fresh box", cmd_run, true},
    {"doctor", "say what of a box works on this host, what does not, and what to do", cmd_doctor,
     true},
    {"create", "make a sandbox that lives, or find the one with this name", cmd_create, true},
    {"ls", "list sandboxes", cmd_ls, true},
    {"info", "say all there is to say of a sandbox", cmd_info, true},
    {"exec", "run a command in a sandbox", cmd_exec, true},
    {"ps", "list the commands of a sandbox", cmd_ps, true},
    {"logs", "print what a command wrote", cmd_logs, true},
    {"wait", "wait for the end of a command", cmd_wait, true},
    {"kill", "kill a command with all it started, or send it a signal", cmd_kill, true},
    {"stop", "end what runs in sandboxes, and keep their disks", cmd_stop, true},
    {"start", "let stopped sandboxes run again", cmd_start, true},
    {"rm", "delete sandboxes", cmd_rm, true},
    {"root", "say which roots sandboxes may have", cmd_root, true},
    {"mount", "say which directories sandboxes may be given", cmd_mount, true},
    {"key", "make and end the keys of programs that use the server", cmd_key, true},
    {"serve", "run the server: the engine of sandboxes that live, behind an API", cmd_serve, true},
    {"help", "say what cove, or one of its commands, can do", cmd_help, false},
    {"version", "print the version", cmd_version, false},
};
#define COMMANDS_COUNT (sizeof(commands) / sizeof(commands[0]))

/* What stands before the command of this name in the list. */
static const char *heading_of(const char *name)
{
    if (strcmp(name, "run") == 0)
        return "\nWithout a server:\n";
    if (strcmp(name, "create") == 0)
        return "\nSandboxes that live, with a server that starts by itself:\n";
    if (strcmp(name, "help") == 0)
        return "\n";
    return "";
}

static int help_print(int fd)
{
    char text[4096];
    size_t used;

    used = (size_t)snprintf(text, sizeof(text),
                            "cove runs programs that nobody has read yet, where they can touch "
                            "nothing.\n\nUsage: cove COMMAND [...]\n");
    for (size_t i = 0; i < COMMANDS_COUNT; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s  %-9s %s\n",
                                 heading_of(commands[i].name), commands[i].name,
                                 commands[i].summary);
    used += (size_t)snprintf(text + used, sizeof(text) - used,
                             "\nTry:\n"
                             "  cove run -- sh -c 'id; ls /home'\n"
                             "  cove run --workspace . -- make\n"
                             "  cove help run\n");
    return fd_write_full(fd, text, used);
}

static int help_summary(const struct cmd *command)
{
    char text[256];
    int used = snprintf(text, sizeof(text), "Usage: cove %s\n\n%s\n", command->name,
                        command->summary);

    return cmd_print(text, (size_t)used);
}

static const struct cmd *command_find(const char *name)
{
    for (size_t i = 0; i < COMMANDS_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static int command_unknown(const char *name)
{
    const char *nearest = NULL;
    size_t best = (size_t)-1;

    for (size_t i = 0; i < COMMANDS_COUNT; i++) {
        size_t distance = cmd_distance(name, commands[i].name);

        if (distance < best) {
            best = distance;
            nearest = commands[i].name;
        }
    }
    if (nearest != NULL && cmd_is_near(name, best))
        cmd_say("%s: there is no such command; did you mean cove %s?", name, nearest);
    else
        cmd_say("%s: there is no such command; cove help lists them, cove run -- COMMAND runs one "
                "in a box",
                name);
    return CMD_FAILED;
}

static int cmd_help(int argc, char **argv)
{
    static char help_option[] = "--help";
    const struct cmd *command;

    if (argc < 2)
        return help_print(STDOUT_FILENO) == 0 ? 0 : CMD_FAILED;
    command = command_find(argv[1]);
    if (command == NULL)
        return command_unknown(argv[1]);
    if (command->has_help)
        return command->run(2, (char *[]){argv[1], help_option, NULL});
    return help_summary(command) == 0 ? 0 : CMD_FAILED;
}

/* A closed 0, 1 or 2 would be the next file that is opened, and the command would get that. */
static int stdio_fill(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            return fd_fill_stdio();
    return 0;
}

int main(int argc, char **argv)
{
    const struct cmd *command;
    const char *name;

    /* The keeper closes them itself, but for the sockets that a service manager gave it. */
    if (argc < 2 || strcmp(argv[1], "serve") != 0)
        (void)close_range(3, ~0U, 0);
    if (stdio_fill() < 0) {
        cmd_say("/dev/null: it cannot be opened in place of a closed standard stream; open 0, 1 "
                "and 2 before cove starts");
        return CMD_FAILED;
    }
    if (argc < 2) {
        (void)help_print(STDERR_FILENO);
        return CMD_FAILED;
    }
    name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0)
        name = "version";
    command = command_find(name);
    if (command == NULL)
        return command_unknown(name);
    return command->run(argc - 1, argv + 1);
}
