/* cove-engine without an engine: it carries the network of one box, for `cove run --net`. */
#pragma once

/* Its exit status. Fds 3 and 4 are the box's sockets, 5 is whose end is ours. */
int alone_run(const char *policy);
