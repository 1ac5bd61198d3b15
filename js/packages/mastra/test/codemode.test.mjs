// Code Mode by core's own createCodeMode, on kernels: programs, tools, what is printed, limits.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { after, before, describe, test } from "node:test";
import { createCodeMode, createTool } from "@mastra/core/tools";
import { z } from "zod";
import { CoveCodeModeTransport } from "@cove/mastra";
import { startEngine } from "../../client/test/engine.mjs";

const observe = { span: (name, work) => work(), log() {} };

function tool(id, execute, inputSchema = z.any()) {
    return createTool({ id, description: `The tool ${id}`, inputSchema, execute });
}

let own;
before(async () => { own = await startEngine(); });
after(async () => { await own.end(); });

for (const [name, where] of [["kernels of this process", () => ({})], ["kernels of a server", () => ({ cove: own.cove })]]) describe(name, () => {
    function mode(tools = {}, config = {}, options = {}) {
        const made = createCodeMode({ tools, ...config }, new CoveCodeModeTransport({ ...where(), ...options }));
        return { ...made, run: (code, context = {}) => made.tool.execute({ code }, { observe, ...context }) };
    }

    test("a TypeScript program returns its value and what it printed", async () => {
        const { run } = mode();
        assert.deepEqual(await run("interface A { n: number }\nconst a: A = { n: 6 };\nconsole.log('n is', a.n); console.error('x');\nreturn { n: a.n * 7 };"),
            { success: true, result: { n: 42 }, logs: ["n is 6", "x"] });
        assert.deepEqual(await run("console.info(1) // a comment at the end"), { success: true, result: undefined, logs: ["1"] });
        assert.equal((await run("return await new Promise<number>((done) => setTimeout(() => done(3), 5))")).result, 3);
        assert.equal((await run("return null")).result, null);
    });

    test("tools are called by the names of the instructions, any number in one run", async () => {
        let there = 0, runs = 0, open;
        const all = new Promise((resolve) => { open = resolve; });
        const square = tool("square-of", async ({ n }) => {
            if (++there === 40) open();
            await all; // none is answered before all are asked
            return { square: n * n };
        }, z.object({ n: z.number() }));
        const count = tool("count", async () => ++runs);
        const { run, instructions } = mode({ square, count });
        assert.match(instructions, /external_square_of\(/);
        const got = await run(`
            await external_count();
            const all = await Promise.all(Array.from({ length: 40 }, (_, n) => external_square_of({ n })));
            let sum = 0;
            for (const { square } of all) sum += square;
            for (let i = 0; i < 100; i++) await external_count();
            return sum;`);
        assert.deepEqual(got, { success: true, result: 20540, logs: [] });
        assert.equal(runs, 101); // each call once: the program was run once
    });

    test("a tool that fails throws in the program, by its name and message", async () => {
        class OddError extends Error { name = "OddError"; }
        const { run } = mode({
            odd: tool("odd", async () => { throw new OddError("by the tool"); }),
            strict: tool("strict", async ({ n }) => n, z.object({ n: z.number() })),
            cycle: tool("cycle", async () => { const o = {}; o.o = o; return o; }),
            nothing: tool("nothing", async () => undefined),
        });
        assert.deepEqual((await run("try { await external_odd({}) } catch (error) { return [error.name, error.message] }")).result, ["OddError", "by the tool"]);
        const { success, error } = await run("\n\nawait external_odd({});");
        assert.equal(success, false);
        assert.equal(error.name, "OddError");
        assert.equal(error.message, "by the tool");
        assert.match((await run("await external_strict({ n: 'x' })")).error.message, /n/);
        assert.match((await run("await external_cycle({})")).error.message, /circular/i);
        assert.deepEqual((await run("return typeof await external_nothing({})")).result, "undefined");
    });

    test("only the tools of the list are there", async () => {
        const { run } = mode({ one: tool("one", async () => 1) });
        assert.deepEqual((await run("return [typeof external_one, typeof external_two]")).result, ["function", "undefined"]);
        assert.match((await run("return await callTool('t1', {})")).error.message, /denied/);
        assert.match((await run("await external_two({})")).error.message, /external_two/);
    });

    test("an error has its name and the line of the program", async () => {
        const { run } = mode();
        assert.deepEqual((await run("throw new RangeError('first')")).error, { message: "first", name: "RangeError", line: 1 });
        assert.deepEqual((await run("const a: number = 1;\n\nfunction f() {\n  throw new TypeError('fifth' + a);\n}\nf();")).error, { message: "fifth1", name: "TypeError", line: 4 });
        const wrong = await run("const a = 1;\nconst b = ;\nreturn a;");
        assert.equal(wrong.error.name, "SyntaxError");
        assert.equal(wrong.error.line, 2);
        const logged = await run("console.log('before');\nnull.x;");
        assert.deepEqual([logged.logs, logged.error.line], [["before"], 2]);
    });

    test("nothing but the tools is within reach", async () => {
        const { run } = mode();
        assert.match((await run("return require('node:fs').readFileSync('/etc/passwd', 'utf8')")).error.message, /not granted/);
        assert.match((await run("return await fetch('https://example.com')")).error.message, /denied/);
        assert.match((await run("return require('node:child_process').execSync('id')")).error.message, /child_process/);
        await run("globalThis.left = 1; Array.prototype.push = null");
        assert.deepEqual((await run("return [typeof left, typeof [].push]")).result, ["undefined", "function"]);
    });

    test("a program ends at its time, also while it waits for a tool", async () => {
        const { run } = mode({ slow: tool("slow", async () => { await sleep(60000, undefined, { ref: false }); }) }, { timeout: 5000 });
        await Promise.all(["while (true) {}", "await external_slow({})", "await new Promise((done) => setTimeout(done, 60000))"].map(async (code) => {
            const got = await run(`console.log('began');\n${code}`);
            assert.equal(got.success, false);
            assert.deepEqual([got.error.name, got.error.message, got.logs], ["TimeoutError", "Code Mode execution timed out after 5000ms", ["began"]], code);
        }));
        assert.equal((await run("await new Promise(() => {})")).error.name, "DeadlockError");
    });

    test("limits of memory and of CPU time", async () => {
        const small = mode({}, {}, { memoryLimitBytes: 16 << 20, cpuMs: 20000 });
        const brief = mode({}, {}, { cpuMs: 200 });
        assert.match((await small.run("const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1))")).error.message, /memory/);
        assert.match((await brief.run("while (true) {}")).error.message, /CPU time/);
        assert.throws(() => new CoveCodeModeTransport({ cpums: 1 }), /"cpums"/);
    });

    test("an abort ends the program; before it begins nothing runs", async () => {
        let calls = 0;
        const controller = new AbortController();
        const { run } = mode({ stop: tool("stop", async () => { calls++; controller.abort(); await sleep(60000, undefined, { ref: false }); }) });
        const aborted = { success: false, logs: [], error: { message: "Code Mode execution was aborted", name: "AbortError" } };
        assert.deepEqual(await run("await external_stop({})", { abortSignal: controller.signal }), aborted);
        assert.equal(calls, 1);
        assert.deepEqual(await run("await external_stop({})", { abortSignal: controller.signal }), aborted);
        assert.equal(calls, 1);
    });

    test("values that cannot be given, and programs that end themselves", async () => {
        const { run } = mode();
        assert.deepEqual((await run("return () => 1")).error, { name: "SerializationError", message: "a function cannot be returned: return what JSON can hold" });
        assert.equal((await run("const o: any = {}; o.o = o; return o")).error.name, "SerializationError");
        assert.equal((await run("return 10n")).error.name, "SerializationError");
        assert.deepEqual((await run("console.log('x'); process.exit(0)")), { success: false, logs: ["x"], error: { message: "Program exited without returning a result", name: "NoResultError" } });
    });

    test("tracing hears of each call", async () => {
        const heard = [];
        const log = (level, message, data) => heard.push([message, data.tool]);
        const { run } = mode({ one: tool("one", async () => 1), bad: tool("bad", async () => { throw new Error("no"); }) });
        await run("await external_one({}); await external_bad({}).catch(() => {})", { observe: { span: (name, work) => work(), log } });
        assert.deepEqual(heard, [["code-mode external call", "one"], ["code-mode external result", "one"], ["code-mode external call", "bad"], ["code-mode external result", "bad"]]);
    });

    test("it runs within an agent's tool call, with no sandbox", async () => {
        const transport = new CoveCodeModeTransport(where());
        assert.equal(transport.requiresSandbox, false);
        const direct = await transport.run({ program: "return await external_a_b({ x: 1 })", toolIds: ["a.b"], dispatch: async (id, args) => ({ id, args }), timeout: 5000 });
        assert.deepEqual(direct, { success: true, result: { id: "a.b", args: { x: 1 } }, logs: [] });
        await assert.rejects(transport.run({ program: "1", toolIds: ["a.b", "a-b"], dispatch: async () => 1, timeout: 5000 }), /both external_a_b/);
    });
});

test("where a server is given, it is given once", async () => {
    assert.throws(() => new CoveCodeModeTransport({ cove: own.cove, url: own.cove.address }), /leave them out/);
    assert.throws(() => new CoveCodeModeTransport({ apiKey: "k" }), /url/);
    const { tool: made } = createCodeMode({ tools: {} }, new CoveCodeModeTransport({ url: own.cove.address }));
    assert.equal((await made.execute({ code: "return 1" }, { observe })).result, 1);
});
