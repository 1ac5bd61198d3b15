/* Texts and names, also for those who have no guests in their process. */
#include "kernel/kernel.h"

#include <string.h>

bool kernel_text_is(struct kernel_text text, const char *word)
{
    return text.size == strlen(word) && memcmp(text.data, word, text.size) == 0;
}

const char *kernel_end_name(enum kernel_end end)
{
    static const char *const names[] = {"value",  "error", "deadlock", "cpu",    "wall",
                                        "memory", "stack", "trap",     "stopped"};

    return (size_t)end < sizeof(names) / sizeof(names[0]) ? names[end] : "unknown";
}
