/* Growth of a number of the host's that boxes make grow: when it is much more than before, somebody counts what each box
 * has of it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct growth {
    /* Since the last count of all boxes; 0: none yet. */
    uint64_t least;
    /* The last count: how much there was then, when it ended (0: no pause after it). */
    uint64_t begun, counted_ns;
};

/* Tells whether boxes are to be counted, for there is so much `now` (0: nobody tells), which is `most` more than the least,
 * and the last count is `pause_ns` ago. */
bool growth_is_due(struct growth *growth, uint64_t now, uint64_t most, uint64_t pause_ns,
                   uint64_t now_ns);

/* A count has ended. After one that ended a box, the next one need not wait. After one of all boxes that ended none, the
 * growth is not theirs, and what there was when it began is the new least. */
void growth_counted(struct growth *growth, bool all, bool ended, uint64_t now_ns);
