/* See input_end.h. */
#include "box/tool/input_end.h"

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#define PAUSE_LEAST_NS 10000000ULL
#define PAUSE_DOUBLINGS 6U /* to 0.64 s */
/* About 7 and 12 seconds after the end. A shell that is told to ignore ends takes ten of them. */
#define TYPED_HANG_UP 16U
#define TYPED_KILL 24U
#define END_OF_TRANSMISSION '\x04'

void input_end_begin(struct input_end *end, uint64_t now_ns)
{
    if (!end->has_come)
        *end = (struct input_end){.has_come = true, .due_ns = now_ns};
}

static void type(int master, int slave)
{
    char key = END_OF_TRANSMISSION;
    struct termios modes;

    if (tcgetattr(slave, &modes) == 0 && modes.c_cc[VEOF] != _POSIX_VDISABLE)
        key = (char)modes.c_cc[VEOF];
    (void)!write(master, &key, 1); /* else the next one */
}

enum input_end_act input_end_look(struct input_end *end, int master, int slave, uint64_t now_ns)
{
    struct pollfd unread = {.fd = slave, .events = POLLIN};

    if (!end->has_come || now_ns < end->due_ns)
        return INPUT_END_NOTHING;
    end->due_ns = now_ns +
                  (PAUSE_LEAST_NS << (end->looks < PAUSE_DOUBLINGS ? end->looks : PAUSE_DOUBLINGS));
    end->looks++;
    /* Where nobody can look whether it was taken, once has to do. */
    if (poll(&unread, 1, 0) != 0 || (slave < 0 && end->typed > 0))
        return INPUT_END_NOTHING;
    type(master, slave);
    end->typed++;
    return end->typed == TYPED_HANG_UP ? INPUT_END_HANG_UP
           : end->typed == TYPED_KILL  ? INPUT_END_KILL
                                       : INPUT_END_NOTHING;
}
