/* What a request may call this host, and which page may have sent it.
 *
 * A page in a browser can send requests to 127.0.0.1, and by a name that it makes point there it can
 * read the answers (DNS rebinding); here that would be running code on this machine. So a name that
 * nobody gave to this host gets nothing, and neither does a page that did not come from it. */
#pragma once

#include <stdbool.h>

/* Is it a loopback name or address, or one of `hosts` (NULL-terminated or NULL; any case, with or
 * without a port; a port there must be the same)? NULL and what is malformed is not. */
bool origin_host_is_known(const char *host, const char *const *hosts);

/* Is the page of this Origin served under this Host? */
bool origin_is_host(const char *origin, const char *host);

/* Sec-Fetch-Site, which browsers add where they send no Origin; NULL where it is missing. */
bool origin_fetch_is_ours(const char *site);
