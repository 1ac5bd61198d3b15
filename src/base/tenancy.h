/* Lists of tenants as an operator writes them: "default", "a,b", or "*" for all. */
#pragma once

#include <stdbool.h>

#define TENANCY_USUAL "default" /* of what is registered for nobody else */
#define TENANCY_ALL "*"

bool tenancy_has(const char *list, const char *tenant);
