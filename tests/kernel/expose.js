// For the tests of the boundary: run after the prelude, so that what user code never gets at lies open to it.
(function (host, native, share) {
    "use strict";

    Object.defineProperty(globalThis, "host", { value: { call: share.call, begin: share.begin }, configurable: true });
    Object.defineProperty(globalThis, "native", { value: native, configurable: true });
})
