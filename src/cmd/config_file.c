/* Where cove.conf lies, by the keeper's own rule: one name for both `struct options` keeps this apart. */
#include "cmd/config.h"
#include "keeper/options.h"
#include "keeper/places.h"

#include <stdio.h>

int config_find(const char *given, char path[PATH_MAX], struct error *err)
{
    const struct options options = {.config = given};
    struct places places;

    if (places_find(&places, &options, err) < 0)
        return -1;
    (void)snprintf(path, PATH_MAX, "%s", places.config_path);
    return 0;
}
