// Whose turn it is: two threads, and more to do than they can.
"use strict";

process.env.COVE_KERNEL_THREADS = "2";

const assert = require("node:assert/strict");
const { test } = require("node:test");
const { createKernel, run } = require("@cove/node");

const LANES = 6, ROUNDS_MAX = 100;

// What waits for its time, beside lanes of endless loops that are renewed until it is over: it gets its turn before they give up.
async function beside(waiting) {
    let isOver = false, rounds = 0;
    const lane = async () => {
        for (; !isOver && rounds < LANES * ROUNDS_MAX; rounds++) await run("for (;;) {}", { cpuMs: 10 });
    };
    const lanes = Array.from({ length: LANES }, lane);
    const got = await waiting().finally(() => { isOver = true; });
    await Promise.all(lanes);
    assert.ok(rounds < LANES * ROUNDS_MAX, "its turn came when there was nothing else to do");
    return got;
}

test("limits of time hold while there is always somebody else to run", async () => {
    const got = await beside(() => run("await new Promise((done) => setTimeout(done, 1e6))", { wallMs: 50 }));
    assert.equal(got.error.kind, "wall");
});

test("timers go off while there is always somebody else to run", async () => {
    const got = await beside(() => run("for (let i = 0; i < 5; i++) await new Promise((done) => setTimeout(done, 5)); 7"));
    assert.equal(got.value, 7);
});

test("timers go off beside a kernel that has a long line of runs", async () => {
    const kernels = await Promise.all([createKernel({ cpuMs: 10 }), createKernel({ cpuMs: 10 })]);
    let left = 2 * ROUNDS_MAX;
    const all = kernels.flatMap((kernel) => Array.from({ length: ROUNDS_MAX }, () => kernel.run("for (;;) {}").then(() => { left--; })));
    assert.equal((await run("await new Promise((done) => setTimeout(done, 5)); 7")).value, 7);
    assert.ok(left > ROUNDS_MAX, `${left} runs were left`);
    await Promise.all(all);
    for (const kernel of kernels) kernel.dispose();
});

test("a run that has not begun is given up at once, by its signal or with its kernel", async () => {
    const [first, second, third] = await Promise.all([createKernel(), createKernel(), createKernel()]);
    let ended = 0;
    const busy = Array.from({ length: 2 }, () => run("for (;;) {}", { cpuMs: 1000 }).then(() => { ended++; }));
    const controller = new AbortController();
    const aborted = first.run("1", { signal: controller.signal }), after = first.run("2");
    const dropped = [second.run("1"), second.run("2"), second.snapshot(), second.fork()], kept = third.run("3");
    controller.abort();
    second.dispose();
    // All are looked at from now on: which of them is told first, nobody says.
    await Promise.all([assert.rejects(aborted, { name: "AbortError" }), ...dropped.map((one) => assert.rejects(one, { code: "kernel_disposed" }))]);
    assert.equal(ended, 0);
    // What stands behind it goes on.
    assert.deepEqual([(await after).value, (await kept).value], [2, 3]);
    await Promise.all(busy);
    assert.equal((await first.run("4")).value, 4);
    first.dispose();
    third.dispose();
});
