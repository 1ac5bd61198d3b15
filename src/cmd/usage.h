/* What sandboxes use: the list of sandboxes with what the server counts of each, for top and df. */
#pragma once

#include "cmd/client.h"
#include "cmd/doc.h"

/* All of them, each with a member `usage` where it runs; to be freed. One that ends meanwhile has none. */
int usage_fetch(struct client *client, struct doc **sandboxes, struct error *err);
