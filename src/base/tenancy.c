/* Lists of tenants: see tenancy.h. */
#include "base/tenancy.h"

#include <string.h>

bool tenancy_has(const char *list, const char *tenant)
{
    size_t length = strlen(tenant);

    if (strcmp(list, TENANCY_ALL) == 0)
        return true;
    for (size_t part; *list != '\0'; list += part + (list[part] == ',')) {
        part = strcspn(list, ",");
        if (part == length && memcmp(list, tenant, length) == 0)
            return true;
    }
    return false;
}
