/* The table of commands: see table.h. */
#include "box/init/table.h"

#include "base/fd.h"

#include <errno.h>
#include <string.h>

static struct command commands[PROTO_COMMANDS_MAX];
static int commands_top; /* slots from here on were never used */
static int talkative;    /* commands with something unsaid */

static struct {
    union proto_answer packet;
    size_t size; /* 0: none waits */
    int fd;
} reply = {.fd = -1};
static bool owes_end; /* of the table */

struct command *table_find(uint32_t id)
{
    for (int i = 0; i < commands_top; i++)
        if (commands[i].is_there && !commands[i].is_orphan && commands[i].id == id)
            return &commands[i];
    return NULL;
}

struct command *table_find_running(pid_t pid)
{
    for (int i = 0; i < commands_top; i++)
        if (commands[i].is_there && !commands[i].has_ended && commands[i].pid == pid)
            return &commands[i];
    return NULL;
}

struct command *table_find_brief(void)
{
    for (int i = 0; i < commands_top; i++)
        if (commands[i].is_there && !commands[i].is_orphan && !commands[i].is_held)
            return &commands[i];
    return NULL;
}

struct command *table_slot(void)
{
    int i = 0;

    while (i < commands_top && commands[i].is_there)
        i++;
    if (i == PROTO_COMMANDS_MAX)
        return NULL;
    if (i == commands_top)
        commands_top++;
    commands[i] = (struct command){.fds = {-1, -1, -1}};
    return &commands[i];
}

static void close_fds(struct command *command)
{
    for (int i = 0; i < 3; i++)
        fd_close(&command->fds[i]);
}

static void said(struct command *command, unsigned words)
{
    if (command->unsaid == 0)
        return;
    command->unsaid &= (uint8_t)~words;
    if (command->unsaid == 0)
        talkative--;
}

void table_drop(struct command *command)
{
    said(command, ~0U);
    close_fds(command);
    command->is_there = false;
}

void table_orphan(struct command *command)
{
    said(command, ~0U);
    close_fds(command);
    command->is_orphan = true;
    if (command->has_ended)
        table_drop(command);
}

void table_say(struct command *command, enum table_words word)
{
    if (command->unsaid == 0)
        talkative++;
    command->unsaid |= (uint8_t)word;
}

void table_answer(const void *packet, size_t size, int fd)
{
    memcpy(&reply.packet, packet, size);
    reply.size = size;
    reply.fd = fd;
}

void table_hello(uint32_t id, uint32_t version)
{
    struct proto_welcome welcome = {.head = {.type = PROTO_WELCOME, .id = id}, .version = version};

    table_answer(&welcome, sizeof(welcome), -1);
    for (int i = 0; i < commands_top; i++)
        if (commands[i].is_there && commands[i].is_held)
            table_say(&commands[i], TABLE_ENTRY);
    owes_end = true;
}

/* ---- telling ---- */

static bool tell(const void *packet, size_t size, const int *fds, size_t count)
{
    return proto_send_now(PROTO_CONTROL_FD, packet, size, NULL, 0, fds, count) == 0;
}

static bool tell_reply(void)
{
    if (reply.size == 0)
        return true;
    if (!tell(&reply.packet, reply.size, &reply.fd, reply.fd >= 0 ? 1 : 0))
        return false;
    reply.size = 0;
    fd_close(&reply.fd);
    return true;
}

static bool tell_held(const struct command *command, enum proto_type type)
{
    struct proto_held held = {.head = {.type = type, .id = command->id}, .pid = command->pid};
    int fds[3];
    size_t count = 0;

    for (unsigned i = 0; i < 3; i++) {
        if (command->fds[i] < 0)
            continue;
        held.fds |= 1U << i;
        fds[count++] = command->fds[i];
    }
    if (command->is_tty)
        held.flags |= PROTO_HELD_TTY;
    if (command->has_ended) {
        held.flags |= PROTO_HELD_ENDED;
        held.status = command->status;
        held.cpu_ns = command->cpu_ns;
    }
    return tell(&held, sizeof(held), fds, count);
}

static bool tell_begun(struct command *command)
{
    struct proto_started started = {.head = {.type = PROTO_STARTED, .id = command->id},
                                    .pid = command->pid};

    if (command->is_held)
        return tell_held(command, PROTO_BEGUN);
    if (!tell(&started, sizeof(started), command->fds, command->is_tty ? 1 : 0))
        return false;
    close_fds(command);
    return true;
}

static bool tell_exited(const struct command *command)
{
    struct proto_exited exited = {.head = {.type = PROTO_EXITED, .id = command->id},
                                  .status = command->status,
                                  .cpu_ns = command->cpu_ns};

    return tell(&exited, sizeof(exited), NULL, 0);
}

static bool tell_of(struct command *command)
{
    if ((command->unsaid & TABLE_BEGUN) != 0) {
        if (!tell_begun(command))
            return false;
        said(command, TABLE_BEGUN);
    }
    if ((command->unsaid & TABLE_ENTRY) != 0) {
        if (!tell_held(command, PROTO_ENTRY))
            return false;
        /* An entry says the end, too. */
        said(command, TABLE_ENTRY | (command->has_ended ? TABLE_EXITED : 0U));
    }
    if ((command->unsaid & TABLE_EXITED) != 0) {
        if (!tell_exited(command))
            return false;
        said(command, TABLE_EXITED);
        if (!command->is_held)
            table_drop(command);
    }
    return true;
}

bool table_tell(bool *room)
{
    static const struct proto_head end = {.type = PROTO_TABLE_END};
    bool done = tell_reply();

    for (int i = 0; i < commands_top && done && talkative > 0; i++)
        if (commands[i].unsaid != 0)
            done = tell_of(&commands[i]);
    if (done && owes_end) {
        done = tell(&end, sizeof(end), NULL, 0);
        owes_end = !done;
    }
    *room = done || errno == EAGAIN;
    return done;
}
