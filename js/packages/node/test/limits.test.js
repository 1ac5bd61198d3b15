// Every attack ends within its limit and as a result, beside a main thread that goes on; the next run works.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");
const { createKernel, run } = require("@cove/node");

const CPU = {
    "endless loop": "for (;;) {}",
    "loop of microtasks": "for (;;) await 0",
    "regular expression": "/^(a+)+$/.test('a'.repeat(40) + 'b')",
    "indexOf": "'a'.repeat(2e5).indexOf('a'.repeat(1e5) + 'b')",
    "indexOf of an array": "Array.prototype.indexOf.call({ length: 4294967295 }, 99)",
    "JSON.stringify": "const a = []; for (let i = 0; i < 1e3; i++) a.push('x'.repeat(1e3)); for (;;) JSON.stringify(a)",
    "BigInt": "let n = 3n; for (;;) n = (n * n) % (2n ** 400000n)",
    "sort": "for (;;) Array.from({ length: 1e5 }, Math.random).sort()",
};
const MEMORY = {
    "array": "const a = []; for (;;) a.push(new Array(1000).fill(1))",
    "string": "const a = []; for (let i = 0; ; i++) a.push(`${i}`.repeat(1e5))",
    "typed array": "const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1))",
    "map": "const m = new Map(); for (let i = 0; ; i++) m.set(i, 'x' + i)",
    "closures": "let f = () => 0; const all = []; for (;;) { const g = f; f = () => g(); all.push(f) }",
};
const STACK = {
    "function": "(function f() { f() })()",
    "getter": "const o = { get x() { return this.x } }; o.x",
    "toString": "const o = { toString() { return '' + this } }; '' + o",
    "JSON": "let a = []; for (let i = 0; i < 2e4; i++) a = [a]; JSON.stringify(a)",
    "proxy": "let p = {}; for (let i = 0; i < 1e5; i++) p = new Proxy(p, {}); p.x",
};

/** The least time that code took until its limit, of some tries: a busy machine may be late to stop it. */
async function leastCpuMs(enough, look) {
    let least = Infinity;
    for (let tries = 0; tries < 5 && least >= enough; tries++) least = Math.min(least, (await look()).cpuMs);
    return least;
}

test("limits of time", async () => {
    const kernel = await createKernel({ cpuMs: 100, wallMs: 60000 });
    for (const [name, code] of Object.entries(CPU)) {
        const least = await leastCpuMs(200, async () => {
            const got = await kernel.run(code);
            assert.equal(got.error.kind, "cpu", name);
            assert.equal(got.timedOut, true, name);
            assert.match(got.error.message, /cpuMs/);
            return got;
        });
        assert.ok(least < 200, `${name}: ${least} ms of 100`);
        assert.equal((await kernel.run("1 + 1")).value, 2, name);
    }
    kernel.dispose();
});

test("a limit of a run is tighter than its kernel's", async () => {
    const kernel = await createKernel({ cpuMs: 10000 });
    assert.ok((await leastCpuMs(500, () => kernel.run("for (;;) {}", { cpuMs: 50 }))) < 500);
    const got = await kernel.run("await new Promise((done) => setTimeout(done, 60000))", { wallMs: 50 });
    assert.equal(got.error.kind, "wall");
    assert.equal(got.exitCode, 124);
    kernel.dispose();
});

test("limits of memory", async () => {
    for (const [name, code] of Object.entries(MEMORY)) {
        const got = await run(code, { memoryLimitBytes: 32 << 20, cpuMs: 20000 });
        assert.equal(got.oomKilled, true, `${name}: ${JSON.stringify(got.error)}`);
        assert.match(got.error.message, /memoryLimitBytes/);
        assert.ok(got.memoryBytes <= 32 << 20, name);
    }
});

test("limits of recursion", async () => {
    const kernel = await createKernel();
    for (const [name, code] of Object.entries(STACK)) {
        const got = await kernel.run(code);
        assert.ok(got.error === null || ["RangeError", "InternalError"].includes(got.error.name), `${name}: ${JSON.stringify(got.error)}`);
        assert.equal((await kernel.run("1 + 1")).value, 2, name);
    }
    kernel.dispose();
});

test("promises", async () => {
    const kernel = await createKernel({ cpuMs: 200, memoryLimitBytes: 32 << 20 });
    assert.equal((await kernel.run("await new Promise(() => {})")).error.kind, "deadlock");
    const flood = await kernel.run("(function f() { Promise.resolve().then(f); Promise.resolve().then(f) })(); await new Promise(() => {})");
    assert.ok(["cpu", "memory"].includes(flood.error.kind), flood.error.kind);
    assert.equal((await kernel.run("1 + 1")).value, 2);
    kernel.dispose();
});

test("many at once, of which half never end by themselves", async () => {
    const all = await Promise.all(Array.from({ length: 60 }, (_, i) => i % 2 === 0 ? run("for (;;) {}", { cpuMs: 20 }) : run(`${i}`)));
    all.forEach((got, i) => assert.equal(i % 2 === 0 ? got.error.kind : got.value, i % 2 === 0 ? "cpu" : i));
});
