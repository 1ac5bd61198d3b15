/* Lists and shares of tenants: see tenancy.h. */
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

bool tenancy_may_have(uint64_t most, uint64_t all, uint64_t own, uint64_t more)
{
    uint64_t left = most - all - more;

    return all <= most && more <= most - all && own + more <= (left < most / 4 ? left : most / 4);
}
