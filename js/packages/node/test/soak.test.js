// After a great many runs the process holds what it held before. COVE_SOAK=1: a million of them.
"use strict";

const assert = require("node:assert/strict");
const { spawnSync } = require("node:child_process");
const path = require("node:path");
const { test } = require("node:test");

const isSoak = process.env.COVE_SOAK === "1";

test("many runs leave nothing behind", (t) => {
    const runs = isSoak ? 1000000 : 20000;
    const done = spawnSync(process.execPath, ["--expose-gc", path.join(__dirname, "soak.js"), String(runs)], { encoding: "utf8" });
    assert.equal(done.status, 0, done.stderr);
    const { first, last, ...rest } = JSON.parse(done.stdout);
    t.diagnostic(done.stdout);
    assert.ok(rest.runs >= runs);
    assert.ok(last.rssKiB - first.rssKiB < 32 * 1024, done.stdout);
    assert.ok(last.heapKiB - first.heapKiB < 8 * 1024, done.stdout);
    assert.ok(last.fds <= first.fds + 2, done.stdout);
    assert.ok(last.threads <= first.threads + 4, done.stdout);
    assert.ok(last.maps <= first.maps + 200, done.stdout);
});
