/* What sandboxes use: the list of sandboxes with what the server counts of each, for top and df. */
#pragma once

#include "cmd/client.h"
#include "cmd/doc.h"

#include <stdbool.h>

/* All of them, or those of all tenants, to be freed; each with a member `usage`, if the server can say it. */
int usage_fetch(struct client *client, bool all_tenants, struct doc **sandboxes, struct error *err);
