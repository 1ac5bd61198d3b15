/* What sandboxes use: the list of sandboxes with what the server counts of each, for top and df. */
#pragma once

#include "cmd/client.h"
#include "cmd/doc.h"

/* All of them, to be freed; each with a member `usage`, if the server can say it. */
int usage_fetch(struct client *client, struct doc **sandboxes, struct error *err);
