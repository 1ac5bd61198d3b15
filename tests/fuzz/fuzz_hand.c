/* Any bytes as the hand-over of a keeper: taken or refused with a sentence, nothing leaks, no fd and no
 * process is touched, and what was taken holds to the bounds of the keeper's tables. */
#include "base/hand.h"
#include "fuzz.h"
#include "keeper/handover.h"
#include "keeper/keeper.h"

#include <stdlib.h>
#include <string.h>

static void look(const struct keeper *keeper)
{
    size_t boxes = 0;

    must(keeper->boxes.used <= BOXES_MAX && keeper->slots.table_used <= SLOTS_MAX &&
         keeper->names.table_used <= NAMES_MAX && keeper->listeners.api_count <= LISTENERS_MAX);
    for (size_t i = 0; i < keeper->boxes.used; i++) {
        const struct boxed *boxed = keeper->boxes.table[i];

        if (boxed == NULL)
            continue;
        boxes++;
        must(boxed->box != NULL && (boxed->handle & UINT32_MAX) == i &&
             (boxed->slot == NULL) == (boxed->zygote == NULL) &&
             strlen(boxed->owner) < sizeof(boxed->owner));
        must(boxed->slot == NULL || keeper->slots.table[boxed->slot->number] == boxed->slot);
        must(boxed->zygote == NULL || boxed->zygote->zygote != NULL);
    }
    must(boxes == keeper->boxes.count);
    for (size_t i = 0; i < keeper->names.table_used; i++)
        must(keeper->names.table[i].kind != 0 && keeper->names.table[i].path != NULL &&
             keeper->names.table[i].fd == -1 &&
             names_are_tenants(keeper->names.table[i].tenants, KEEPER_TENANTS_SIZE));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct keeper place; /* large, and most of it is never touched */
    struct keeper *keeper = &place;
    struct error err = {0};
    struct hand hand;

    memset(keeper, 0, sizeof(*keeper));
    hand_read(&hand, data, size, HANDOVER_FORMAT);
    hand.is_trial = true;
    handover_all(&hand, keeper);
    if (hand_end(&hand, &err) == 0)
        look(keeper);
    else
        must(err.code[0] != '\0' && err.text[0] != '\0');
    hand_free(&hand);
    handover_drop(keeper);
    return 0;
}
