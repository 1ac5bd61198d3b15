// The API: what runs give, what stays, what is rejected.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");
const { createKernel, restoreKernel, run, Kernel, KernelError } = require("@cove/node");

const coded = (code) => (error) => error instanceof KernelError && error.code === code;

test("a run gives its value, its log and what it cost", async () => {
    const got = await run("console.log('a', 1); console.warn('b'); ({ x: [1, 'two', null] })");
    assert.deepEqual(got.value, { x: [1, "two", null] });
    assert.equal(got.type, "object");
    assert.equal(got.output, "{ x: [ 1, 'two', null ] }");
    assert.deepEqual(got.logs, [{ level: "log", text: "a 1" }, { level: "warn", text: "b" }]);
    assert.match(got.stderr, /b/);
    assert.equal(got.exitCode, 0);
    assert.equal(got.error, null);
    assert.equal(got.timedOut || got.oomKilled || got.isFinal || got.stateLost, false);
    assert.ok(got.cpuMs > 0 && got.wallMs > 0 && got.memoryBytes > 1e6);
});

test("an error is a result", async () => {
    const got = await run("\nnull.x", { filename: "mine.js" });
    assert.equal(got.error.kind, "error");
    assert.equal(got.error.name, "TypeError");
    assert.equal(got.error.line, 2);
    assert.match(got.error.stack, /mine\.js:2/);
    assert.equal(got.exitCode, 1);
    assert.equal(got.value, undefined);
    assert.equal((await run("process.exit(7)")).exitCode, 7);
    assert.equal((await run("await new Promise(() => {})")).error.kind, "deadlock");
    assert.equal((await run("})")).error.name, "SyntaxError");
});

test("values that JSON does not hold, and those that look like something else", async () => {
    const got = await run("10n ** 30n");
    assert.equal(got.type, "bigint");
    assert.equal(got.value, undefined);
    assert.match(got.output, /^1000000000000000000000000000000n$/);
    const own = (await run("JSON.parse('{\"__proto__\": {\"polluted\": 1}}')")).value;
    assert.equal({}.polluted, undefined);
    assert.equal(Object.getPrototypeOf(own), Object.prototype);
    assert.equal((await run("__finalAnswer__ = 5; 6")).isFinal, true);
    assert.equal((await run("'\\u{1f600}\\0é'.repeat(3)")).value, "\u{1f600}\0é".repeat(3));
});

test("TypeScript and modules", async () => {
    assert.equal((await run("enum A { B = 4 } const a: number = A.B; a", { language: "ts" })).value, 4);
    assert.equal((await run("let a: string = 'x'; a", { filename: "a.ts" })).value, "x");
    assert.equal((await run("let a: string = 'x'; a")).error.name, "SyntaxError");
    assert.equal((await run("import { join } from 'node:path'; export default join('a', 'b')", { module: true })).error, null);
});

test("state is kept in a kernel, and nowhere else", async () => {
    const one = await createKernel(), two = await createKernel();
    await one.run("let x = 1; globalThis.y = 2; Array.prototype.push = 'mine'");
    assert.equal((await one.run("x + y")).value, 3);
    assert.equal((await two.run("typeof x + typeof y + typeof [].push")).value, "undefinedundefinedfunction");
    assert.equal((await run("typeof x + typeof y + typeof [].push")).value, "undefinedundefinedfunction");
    await one.reset();
    assert.equal((await one.run("typeof x")).value, "undefined");
    const random = await Promise.all(Array.from({ length: 20 }, () => run("Math.random()")));
    assert.equal(new Set(random.map(({ value }) => value)).size, 20);
    one.dispose();
    two.dispose();
});

test("what one kernel is asked for is done in order", async () => {
    const kernel = await createKernel();
    const all = await Promise.all([
        kernel.run("let n = 1; await new Promise((done) => setTimeout(done, 30)); n"),
        kernel.run("n = n * 10 + 2"),
        kernel.run("n = n * 10 + 3"),
        kernel.reset(),
        kernel.run("typeof n"),
    ]);
    assert.deepEqual(all.map((one) => one?.value), [1, 12, 123, undefined, "undefined"]);
    kernel.dispose();
});

test("runs wait beside each other without a thread each", async () => {
    const begun = performance.now();
    const all = await Promise.all(Array.from({ length: 100 }, (_, i) => run(`await new Promise((done) => setTimeout(done, 300)); ${i}`)));
    assert.deepEqual(all.map(({ value }) => value), Array.from({ length: 100 }, (_, i) => i));
    assert.ok(performance.now() - begun < 100 * 300 / 4, "they do not wait for each other");
});

test("the main thread goes on", async () => {
    let ticks = 0;
    const timer = setInterval(() => ticks++, 5);
    const got = await run("for (;;) {}", { cpuMs: 300 });
    clearInterval(timer);
    assert.equal(got.timedOut, true);
    assert.equal(got.exitCode, 124);
    assert.ok(ticks >= 3, `${ticks} turns of a timer`);
});

test("fork and snapshot", async () => {
    const snapshotKey = new Uint8Array(32).fill(7);
    const kernel = await createKernel({ snapshotKey, env: { A: "1" } });
    await kernel.run("let big = Array.from({ length: 5000 }, (_, i) => ({ i })); function f() { return big.length }");
    const fork = await kernel.fork();
    assert.ok(fork instanceof Kernel);
    await fork.run("big.pop()");
    assert.equal((await fork.run("f()")).value, 4999);
    assert.equal((await kernel.run("f()")).value, 5000);
    const bytes = await kernel.snapshot();
    assert.ok(bytes instanceof Uint8Array && !Buffer.isBuffer(bytes));
    const back = await restoreKernel(bytes, { snapshotKey });
    assert.equal((await back.run("f()")).value, 5000);
    await assert.rejects(restoreKernel(bytes), coded("bad_snapshot"));
    const changed = Buffer.from(bytes);
    changed[changed.length >> 1] ^= 1;
    await assert.rejects(restoreKernel(changed, { snapshotKey }), coded("bad_snapshot"));
    await assert.rejects(restoreKernel(new Uint8Array(3), { snapshotKey }), coded("bad_snapshot"));
    const usual = await createKernel();
    await usual.run("let q = 5");
    assert.equal((await (await restoreKernel(await usual.snapshot())).run("q")).value, 5);
    for (const one of [kernel, fork, back, usual]) one.dispose();
});

test("dispose stops what is under way", async () => {
    const kernel = await createKernel({ cpuMs: 60000, wallMs: 60000 });
    const runs = [kernel.run("for (;;) {}"), kernel.run("1"), kernel.snapshot()];
    setTimeout(() => kernel.dispose(), 20);
    await Promise.all(runs.map((one) => assert.rejects(one, coded("kernel_disposed"))));
    assert.equal(kernel.disposed, true);
    kernel.dispose();
    await assert.rejects(kernel.run("1"), coded("kernel_disposed"));
    await assert.rejects(kernel.fork(), coded("kernel_disposed"));
    const waiting = await createKernel();
    const never = waiting.run("await new Promise((done) => setTimeout(done, 20000))");
    setTimeout(() => waiting[Symbol.asyncDispose]?.() ?? waiting.dispose(), 20);
    await assert.rejects(never, coded("kernel_disposed"));
});

test("a signal stops a run, wherever it is", async () => {
    const kernel = await createKernel({ cpuMs: 60000, wallMs: 60000 });
    await kernel.run("let kept = 1");
    for (const code of ["for (;;) {}", "await new Promise((done) => setTimeout(done, 20000))", "for (;;) await 0"]) {
        const controller = new AbortController();
        const begun = performance.now();
        setTimeout(() => controller.abort(new Error("enough")), 20);
        await assert.rejects(kernel.run(code, { signal: controller.signal }), /^Error: enough$/);
        assert.ok(performance.now() - begun < 10000);
        assert.equal((await kernel.run("kept")).value, 1);
    }
    // What does not look at it is left by force, and its state with it.
    await assert.rejects(kernel.run("'a'.repeat(2e5).indexOf('a'.repeat(1e5) + 'b')", { signal: AbortSignal.timeout(20) }), { name: "TimeoutError" });
    assert.equal((await kernel.run("1 + 1")).value, 2);
    await assert.rejects(run("1", { signal: AbortSignal.abort() }), { name: "AbortError" });
    await assert.rejects(run("for (;;) {}", { signal: AbortSignal.timeout(20) }), { name: "TimeoutError" });
    // One that waits for its turn.
    const controller = new AbortController();
    const first = kernel.run("await new Promise((done) => setTimeout(done, 50)); 1");
    const second = kernel.run("2", { signal: controller.signal }), third = kernel.run("3");
    controller.abort();
    await assert.rejects(second, { name: "AbortError" });
    assert.deepEqual([(await first).value, (await third).value], [1, 3]);
    // Of a run that is over it means nothing.
    const late = new AbortController();
    assert.equal((await kernel.run("4", { signal: late.signal })).value, 4);
    late.abort();
    assert.equal((await kernel.run("5")).value, 5);
    kernel.dispose();
});

test("mistakes are rejected, and say what is wrong", async () => {
    const bad = [
        [() => run(5), /code/],
        [() => run("1", { language: "python" }), /language/],
        [() => run("1", { cpuMs: -1 }), /cpuMs/],
        [() => run("1", { cpuMs: "5" }), /cpuMs/],
        [() => run("1", { memoryLimitBytes: 2 ** 40 }), /memoryLimitBytes/],
        [() => run("1", { signal: {} }), /signal/],
        [() => run("1", { env: { A: 5 } }), /env\.A/],
        [() => run("1", { env: { "A=B": "5" } }), /env/],
        [() => run("1", { tools: { a: 5 } }), /tools\.a/],
        [() => run("1", { allowedHosts: "example.com" }), /allowedHosts/],
        [() => createKernel({ snapshotKey: new Uint8Array(5) }), /snapshotKey/],
        [() => createKernel(5), /options/],
        [() => restoreKernel("text"), /bytes/],
    ];
    for (const [what, text] of bad) await assert.rejects(what, (error) => error.code === "bad_value" && text.test(error.message));
    await assert.rejects(createKernel({ allowedHosts: ["http://x/"] }), (error) => /http:/.test(error.message));
    await assert.rejects(createKernel({ allowedReadPaths: ["/nowhere/at/all"] }), /nowhere/);
    await assert.rejects(createKernel({ allowedReadPaths: ["relative"] }), /relative/);
    await assert.rejects(createKernel({ allowedReadPaths: ["/etc\0x"] }), /NUL/);
    await assert.rejects(createKernel({ memoryLimitBytes: 1000 }), /memory/);
    await assert.rejects(run(" ".repeat(17 << 20)), /too large/);
    assert.throws(() => new Kernel(), /createKernel/);
    assert.throws(() => Kernel.prototype.dispose.call({}), /no Kernel/);
});

test("files, by their grants", async (t) => {
    const fs = require("node:fs"), os = require("node:os"), path = require("node:path");
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), "kernel-"));
    t.after(() => fs.rmSync(dir, { recursive: true }));
    fs.writeFileSync(path.join(dir, "in.json"), '{"a": 1}');
    const grants = { allowedReadPaths: [dir], allowedWritePaths: [path.join(dir, "out.txt")], env: { DIR: dir } };
    assert.equal((await run("JSON.parse(require('fs').readFileSync(process.env.DIR + '/in.json', 'utf8')).a", grants)).value, 1);
    assert.equal((await run("require('fs').writeFileSync(process.env.DIR + '/out.txt', 'x')", grants)).error, null);
    assert.equal(fs.readFileSync(path.join(dir, "out.txt"), "utf8"), "x");
    const denied = await run("require('fs').readFileSync('/etc/passwd')", grants);
    assert.match(denied.error.message, /allowedReadPaths/);
});

test("ES modules see the same", async () => {
    const names = await import("@cove/node");
    assert.equal(names.run, run);
    assert.equal(names.createKernel, createKernel);
    assert.deepEqual(Object.keys(names).sort(), ["Kernel", "KernelError", "createKernel", "restoreKernel", "run"]);
});
