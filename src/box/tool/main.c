/* cove-tool: one verb of the engine's, run inside a box as a command of it. See tool.h.
 *
 * Static and small, for it is started for every request. It has the rights of the user of the box who
 * runs it and no others, and must never be trusted by the engine with more than that. */
#include "box/tool/verbs.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} verbs[] = {
    {"term", term_main},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].run(argc - 1, argv + 1);
    return 2; /* the engine asks for nothing else */
}
