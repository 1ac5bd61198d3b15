/* Tenants: their lists as an operator writes them ("default", "a,b", or "*" for all), and their shares of what all of
 * them have together. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define TENANCY_USUAL "default" /* of what is registered for nobody else */
#define TENANCY_ALL "*"

bool tenancy_has(const char *list, const char *tenant);

/* Whether a tenant that has `own` may have `more` where all have `all` of `most`: never more than a quarter of it, nor
 * than is then left for all others. So none takes the last of it, and a tenant that comes late always finds some. */
bool tenancy_may_have(uint64_t most, uint64_t all, uint64_t own, uint64_t more);
