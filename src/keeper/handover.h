/* What a keeper hands to the next program of its process: all that lives on, and nothing that a start
 * finds out again.
 *
 * The engine has ended when it is written, so nobody is owed an answer. HANDOVER_FORMAT is another number
 * with every change of what is handed on, here or in box/handover.c, and of what the keeper says to its
 * guards and its janitor, who stay the programs that they were; a program that reads another format is
 * not taken, and then a restart is what upgrades. */
#pragma once

#include "base/err.h"

#include <stdbool.h>

#define HANDOVER_FORMAT 11

struct hand;
struct keeper;

/* In both directions. What is read stands in the tables of `keeper`, and nothing is done about it yet. */
void handover_all(struct hand *hand, struct keeper *keeper);

/* Frees what was read, and touches no process. */
void handover_drop(struct keeper *keeper);
