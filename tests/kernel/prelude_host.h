// The host of the prelude's test driver: files below a directory, tools, and a scripted web server.
#ifndef COVE_TESTS_KERNEL_PRELUDE_HOST_H
#define COVE_TESTS_KERNEL_PRELUDE_HOST_H

#include "quickjs.h"

// The object `host` of the prelude: call and begin.
JSValue host_new(JSContext *ctx);

// The directory that the guest sees as "/". NULL denies every file.
void host_set_root(const char *directory);

// Answers the oldest begun call through share.settle; 0 where none is open.
int host_settle_one(JSContext *ctx, JSValue share);

#endif
