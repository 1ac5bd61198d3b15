/* The end of what is typed at a terminal, where what is typed comes from a pipe or a file.
 *
 * A terminal has no end of input but a character that its program takes when it reads, and one that is typed while
 * the program still starts is lost as soon as that sets the modes of its terminal. So the character is typed
 * again, after a pause, whenever nothing waits to be read: a program that reads nothing gets it once. One that has
 * taken many of them and goes on, as an editor does, would wait for ever for keys that nobody types. Of that the
 * caller is told: to hang the terminal up, and at last to kill. Must never wait. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct input_end {
    bool has_come;
    /* How often it was looked whether the program still runs without keys, and what was typed then. */
    unsigned looks, typed;
    uint64_t due_ns;
};

enum input_end_act { INPUT_END_NOTHING, INPUT_END_HANG_UP, INPUT_END_KILL };

/* Says that the input has ended; again after keys that came all the same. */
void input_end_begin(struct input_end *end, uint64_t now_ns);

/* Types the character if it is due. The caller has passed on all else, and calls no later than `due_ns`. */
enum input_end_act input_end_look(struct input_end *end, int master, int slave, uint64_t now_ns);
