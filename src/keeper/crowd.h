/* Processes and threads: the host has so many ids for all, and a box's own limit is for bursts. Where boxes together come
 * near to what the host has, those that have more than an equal share get no more, until others end.
 *
 * So some boxes that fork without end take half of the ids of the host at most, and neither the host nor a box that has
 * few hears of it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct keeper;

struct crowd {
    uint64_t most; /* of the whole host, from which on boxes are held */
    uint64_t next_ns;
    bool is_held;
};

void crowd_open(struct crowd *crowd);

/* Does what is due; when to come again, 0: when there are boxes. */
uint64_t crowd_tick(struct keeper *keeper, uint64_t now_ns);

/* Every box has its own limit again: before somebody takes over who does not know it. */
void crowd_free(struct keeper *keeper);
