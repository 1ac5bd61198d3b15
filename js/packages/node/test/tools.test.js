// Tools: functions of this side that code calls.
"use strict";

const assert = require("node:assert/strict");
const { AsyncLocalStorage, AsyncResource } = require("node:async_hooks");
const { test } = require("node:test");
const { setTimeout: sleep } = require("node:timers/promises");
const { createKernel, run } = require("@cove/node");

test("values go in and out, in parallel", async () => {
    let now = 0, most = 0;
    const tools = {
        async slow({ i }) {
            most = Math.max(most, ++now);
            await sleep(20);
            now--;
            return { i, list: [i, null, "x"] };
        },
        nothing() {},
        echo: (args) => args,
    };
    const got = await run("await Promise.all(Array.from({ length: 50 }, (_, i) => tools.slow({ i })))", { tools });
    assert.deepEqual(got.value[7], { i: 7, list: [7, null, "x"] });
    assert.equal(most, 50);
    assert.equal((await run("String(await tools.nothing())", { tools })).value, "undefined");
    assert.deepEqual((await run("await tools.echo()", { tools })).value, {});
    assert.deepEqual((await run("await callTool('echo', { a: 'é\\u{1f600}' })", { tools })).value, { a: "é\u{1f600}" });
    const large = "x".repeat(5e6);
    assert.equal((await run("(await tools.echo('x'.repeat(5e6))).length", { tools })).value, large.length);
});

test("errors are carried over", async () => {
    const tools = {
        sync() { throw new TypeError("of the tool"); },
        async coded() { throw Object.assign(new Error("with a code"), { code: "E_MINE" }); },
        text() { throw "only text"; },
        nothing() { throw undefined; },
        odd() { throw { get message() { throw new Error("no"); } }; },
        odder() { throw { message: "m", get code() { throw new Error("no"); } }; },
        oddest() { throw new Proxy({}, { get() { throw new Error("no"); } }); },
        cycle() { const o = {}; o.o = o; return o; },
        big: () => 1n,
        huge: () => "x".repeat(17 << 20),
    };
    const message = async (name) => (await run(`try { await tools.${name}() } catch (e) { e.code + ' ' + e.message }`, { tools })).value;
    assert.match(await message("sync"), /of the tool/);
    assert.equal(await message("coded"), "E_MINE with a code");
    assert.match(await message("text"), /only text/);
    assert.match(await message("nothing"), /undefined/);
    for (const name of ["odd", "oddest"]) assert.match(await message(name), /^ERR_TOOL .*no text/);
    assert.match(await message("odder"), /^ERR_TOOL /);
    assert.match(await message("cycle"), /circular/);
    assert.match(await message("big"), /BigInt/);
    assert.match(await message("huge"), /too large/);
    const uncaught = await run("await tools.coded()", { tools });
    assert.equal(uncaught.error.message, "with a code");
    assert.equal(uncaught.error.code, "E_MINE");
});

test("what is not granted is denied, and names what would allow it", async () => {
    const got = await run("await tools.other()", { tools: { one: () => 1 } });
    assert.match(got.error.message, /'other' is denied: .*`tools`/);
    assert.match((await run("await tools.constructor()", { tools: { one: () => 1 } })).error.message, /denied/);
    assert.match((await run("await tools.any()")).error.message, /denied/);
});

test("a tool may take long, and its run may be over before", async () => {
    let signal;
    const kernel = await createKernel({ tools: { async forever(args, context) {
        ({ signal } = context);
        await sleep(60000, undefined, { signal });
    } } });
    for (let tries = 0; signal === undefined && tries < 10; tries++) { // on a busy machine it may be over before
        const got = await kernel.run("await tools.forever()", { wallMs: 1000 });
        assert.equal(got.error.kind, "wall");
    }
    assert.equal(signal.aborted, true);
    assert.equal((await kernel.run("1 + 1")).value, 2);
    kernel.dispose();
});

test("a tool runs where its run was asked for", async () => {
    const storage = new AsyncLocalStorage();
    const tools = { who: () => storage.getStore() };
    const [a, b] = await Promise.all(["a", "b"].map((name) => storage.run(name, () => run("await tools.who()", { tools }))));
    assert.deepEqual([a.value, b.value], ["a", "b"]);
});

test("a tool may run kernels itself", async () => {
    const kernel = await createKernel({ tools: { deep: async ({ n }) => (await run(`${n} + 1`)).value } });
    assert.equal((await kernel.run("let n = 0; for (let i = 0; i < 20; i++) n = await tools.deep({ n }); n")).value, 20);
    kernel.dispose();
});

test("a tool cannot use the kernel that waits for it, be it by another one", async () => {
    let far;
    const near = await createKernel({ tools: {
        run: () => near.run("1"),
        reset: () => near.reset(),
        fork: () => near.fork(),
        snapshot: () => near.snapshot(),
        async round() { return (await far.run("try { await tools.back() } catch (e) { e.code }")).value; },
        async other() { return (await far.run("5")).value; },
        later() { go = AsyncResource.bind(() => near.run("6")); },
    } });
    let go;
    far = await createKernel({ tools: { back: () => near.run("1") } });
    for (const name of ["run", "reset", "fork", "snapshot"]) {
        assert.equal((await near.run(`try { await tools.${name}() } catch (e) { e.code }`)).value, "kernel_busy", name);
    }
    assert.equal((await near.run("await tools.round()")).value, "kernel_busy");
    assert.equal((await near.run("await tools.other()")).value, 5);
    // When the run is over its tool is free.
    await near.run("await tools.later()");
    assert.equal((await go()).value, 6);
    near.dispose();
    far.dispose();
});

test("a call that nobody waits for does no harm", async () => {
    let ended = 0;
    const kernel = await createKernel({ tools: { async late() { await sleep(30); ended++; } } });
    assert.equal((await kernel.run("tools.late(); 1")).value, 1);
    await sleep(60);
    assert.equal((await kernel.run("2")).value, 2);
    assert.equal(ended, 1);
    const flood = await kernel.run("const all = []; for (let i = 0; i < 3000; i++) all.push(tools.late().catch((e) => e.message)); "
        + "(await Promise.all(all)).filter(Boolean).length");
    assert.equal(flood.value, 3000 - 1024);
    kernel.dispose();
});
