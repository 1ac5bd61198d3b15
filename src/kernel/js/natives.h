// What the prelude needs of C, as one object: clocks, bytes and text, digests, a look behind values
// that script cannot be fooled about, and evaluation. It runs inside the guest and is captured by
// the prelude when the image is built; user code never gets at it. It must reach nothing outside
// the guest: what leaves it goes through the host calls of guest.c.
#ifndef COVE_KERNEL_JS_NATIVES_H
#define COVE_KERNEL_JS_NATIVES_H

#include <stddef.h>
#include <stdint.h>

#include "quickjs.h"

// Gives the object. It also installs the module loader and the tracker of rejected promises on the runtime.
JSValue natives_new(JSContext *ctx);

// Fills `out` with random bytes. Whoever links this file defines it: the guest asks its host.
void natives_entropy(uint8_t *out, size_t length);

// Math.random takes a new seed before it is used again. Called in every new or forked instance,
// because copies of one image are identical twins.
void natives_reseed(void);

// Adds the conversions between bytes and text, and the digests, to the object.
int natives_add_bytes(JSContext *ctx, JSValueConst object);
int natives_add_digests(JSContext *ctx, JSValueConst object);

// The bytes of an ArrayBuffer or of any view of one, lent as long as the value lives and no script
// runs. Throws a TypeError and gives NULL for anything else.
uint8_t *natives_bytes(JSContext *ctx, JSValueConst value, size_t *length);

#endif
