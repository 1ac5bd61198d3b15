/* Turns at the disk, of what is written down again and again and may be a moment late: a few at a time, so that the
 * loop is never held up, however many there are. */
#include "engine/parts.h"

#define AT_ONCE 32U

void saves_init(struct saves *saves)
{
    *saves = (struct saves){.count = 0};
    TAILQ_INIT(&saves->all);
}

void saves_add(struct saves *saves, struct save *one)
{
    if (one->is_listed)
        return;
    one->is_listed = true;
    TAILQ_INSERT_TAIL(&saves->all, one, next);
    saves->count++;
}

void saves_remove(struct saves *saves, struct save *one)
{
    if (!one->is_listed)
        return;
    one->is_listed = false;
    TAILQ_REMOVE(&saves->all, one, next);
    saves->count--;
}

bool saves_turn(struct saves *saves, bool (*save)(struct save *one))
{
    unsigned written = 0;

    if (saves->left == 0)
        saves->left = saves->count;
    if (saves->left > saves->count) /* some have left */
        saves->left = saves->count;
    for (; saves->left > 0 && written < AT_ONCE; saves->left--) {
        struct save *one = TAILQ_FIRST(&saves->all);

        TAILQ_REMOVE(&saves->all, one, next);
        TAILQ_INSERT_TAIL(&saves->all, one, next);
        written += save(one);
    }
    return saves->left > 0;
}
