// Kernels of a real engine: runs, contexts, and tools over the WebSocket.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { CoveError } from "../dist/esm/index.js";
import { startEngine } from "./engine.mjs";

let engine;
let kernels;

const code = (name) => (error) => error instanceof CoveError && error.code === name;

before(async () => {
    engine = await startEngine();
    kernels = engine.cove.kernels;
});
after(() => engine?.end());

test("a pristine run, and what fails in it", async () => {
    assert.equal((await kernels.run({ language: "ts", code: "const n: number = 6; n * 7" })).value, 42);
    const failed = await kernels.run({ code: "throw new TypeError('no')" });
    assert.equal(failed.error.name, "TypeError");
    assert.equal((await kernels.run({ code: "for (;;) {}", cpu_ms: 50 })).timed_out, true);
    await assert.rejects(kernels.run({ code: "1", allowed_read_paths: ["/etc"] }), code("bad_manifest"));
});

test("a kernel keeps its state, forks, and comes back from a snapshot", async () => {
    const kernel = await kernels.create({ name: "répl" });
    await kernel.run({ code: "let n = 41" });
    assert.equal((await kernel.run({ code: "n += 1" })).value, 42);
    const fork = await kernel.fork();
    assert.equal((await fork.run({ code: "n += 1" })).value, 43);
    const snapshot = await kernel.snapshot();
    const restored = await kernels.restore(snapshot, { name: "zurück" });
    assert.equal((await restored.run({ code: "n" })).value, 42);
    assert.equal((await restored.view()).name, "zurück");
    await kernel.reset();
    assert.equal((await kernel.run({ code: "typeof n" })).value, "undefined");
    const ids = [];
    for await (const each of kernels.list()) ids.push(each.id);
    assert.deepEqual(ids.sort(), [kernel.id, fork.id, restored.id].sort());
    for (const each of [kernel, fork, restored]) await kernels.kernel(each.id).remove();
    await assert.rejects(kernel.view(), code("kernel_gone"));
});

test("tools: one run with many calls, at once and in any order", async () => {
    const session = await kernels.connect();
    let now = 0;
    const { promise: allAreHere, resolve: open } = Promise.withResolvers();
    const result = await session.run(
        { code: "const all = await Promise.all(Array.from({length: 50}, (_, i) => tools.twice({ i }))); all.join()" },
        {
            twice: async ({ i }) => {
                if (++now === 50) open();
                await allAreHere;
                await new Promise((resolve) => setTimeout(resolve, 50 - i));
                return i * 2;
            },
        },
    );
    assert.equal(result.value, Array.from({ length: 50 }, (_, i) => i * 2).join());
    session.close();
});

test("what a tool throws or cannot say is an exception there", async () => {
    const session = await kernels.connect();
    const cycle = {};
    cycle.self = cycle;
    const result = await session.run(
        { code: "const said = []; for (const name of ['bad', 'cycle', 'nothing', 'wordless']) { try { said.push(await tools[name](1)) } catch (e) { said.push(e.message) } } said" },
        {
            bad: () => {
                throw new Error("it broke");
            },
            cycle: () => cycle,
            nothing: () => undefined,
            wordless: () => {
                throw Object.create(null);
            },
        },
    );
    assert.equal(result.value[0], "it broke");
    assert.match(result.value[1], /circular/);
    assert.equal(result.value[2], null);
    assert.match(result.value[3], /no error/);
    session.close();
});

test("large values go through, both ways", async () => {
    const session = await kernels.connect();
    for (const size of [125, 126, 65_535, 65_536, 1_000_000]) {
        const text = "x".repeat(size);
        const result = await session.run({ code: "const back = await tools.echo(await tools.text()); back.length" }, { text: () => text, echo: (args) => args });
        assert.equal(result.value, size);
    }
    session.close();
});

test("more runs than a connection has at once", async () => {
    const session = await kernels.connect();
    const results = await Promise.all(Array.from({ length: 150 }, (_, i) => session.run({ code: `await tools.same(${i})` }, { same: (args) => args })));
    assert.deepEqual(results.map((each) => each.value), Array.from({ length: 150 }, (_, i) => i));
    session.close();
});

test("a run in a kernel that stays, with its tools", async () => {
    const kernel = await kernels.create({ tools: ["add"] });
    const session = await kernels.connect();
    await session.runIn(kernel.id, { code: "let sum = await tools.add([1, 2])" }, { add: ([a, b]) => a + b });
    assert.equal((await session.runIn(kernel.id, { code: "sum" }, {})).value, 3);
    await assert.rejects(session.runIn("k0000000000000000000", { code: "1" }, {}), code("kernel_not_found"));
    await kernel.remove();
    session.close();
});

test("a run is given up; the others go on, until the connection ends", async () => {
    const session = await kernels.connect();
    const controller = new AbortController();
    const never = () => new Promise(() => {});
    const given = session.run({ code: "await tools.wait()" }, { wait: () => (controller.abort(), never()) }, { signal: controller.signal });
    await assert.rejects(given, code("aborted"));
    assert.equal((await session.run({ code: "1 + 1" }, {})).value, 2);
    let calls;
    const called = new Promise((resolve) => (calls = resolve));
    const cut = session.run({ code: "await tools.wait()" }, { wait: () => (calls(), never()) });
    const isCut = assert.rejects(cut, code("lost"));
    await called;
    session.close();
    await isCut;
    await assert.rejects(session.run({ code: "1" }, {}), code("lost"));
    await assert.rejects(kernels.connect({ signal: AbortSignal.abort() }), code("aborted"));
});

test("an engine that ends tells who waits for a run with tools, and the next connection works", async () => {
    const session = await kernels.connect();
    let calls;
    const called = new Promise((resolve) => (calls = resolve));
    const cut = assert.rejects(session.run({ code: "await tools.wait()" }, { wait: () => (calls(), new Promise(() => {})) }), code("lost"));
    await called;
    await engine.kill();
    await cut;
    const next = await kernels.connect();
    assert.equal((await next.run({ code: "await tools.one()" }, { one: () => 1 })).value, 1);
    next.close();
    assert.equal((await kernels.run({ code: "7" })).value, 7);
});
