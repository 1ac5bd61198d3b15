// RemoteSandboxKernel against an engine of its own: JavaScript and Python in a box, what stays, what is denied, what is ended.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { promisify } from "node:util";
import { createMastraSandbox, RemoteSandboxKernel } from "@cove/mastra/wasmagent";
import { startEngine, until } from "../../client/test/engine.mjs";

let own;
const kernels = [];

before(async () => {
    own = await startEngine();
    process.env.COVE_URL = own.cove.address;
});
after(async () => {
    await own.end();
});
afterEach(async () => {
    for (const kernel of kernels.splice(0)) await kernel[Symbol.asyncDispose]();
    assert.deepEqual(await boxes(), []); // nothing is left behind
});

function made(options) {
    const kernel = new RemoteSandboxKernel(options);
    kernels.push(kernel);
    return kernel;
}

async function boxes() {
    const found = [];
    for await (const box of own.cove.list()) if (box.labels["cove.for"] === "wasmagent") found.push(box);
    return found;
}

test("nothing is made before it is needed", async () => {
    const kernel = made();
    await kernel.reset();
    await kernel.reset();
    assert.equal((await boxes()).length, 0);
    await kernel[Symbol.asyncDispose]();
    await kernel[Symbol.asyncDispose]();
    await assert.rejects(kernel.run("1"), /disposed/);
    assert.throws(() => new RemoteSandboxKernel({ templat: "x" }), /"templat"/);
    assert.throws(() => new RemoteSandboxKernel({ url: "http://a", endpoint: "http://b" }), /give one/);
    await assert.rejects(made({ template: "no-such-root" }).run("1"), /no-such-root/);
});

test("a key of E2B that is still there keeps nobody from the engine of this machine", async () => {
    process.env.E2B_API_KEY = "e2b_0123";
    try {
        assert.equal((await made().run("1 + 1")).output, 2);
        assert.equal((await made({ apiKey: "e2b_0123" }).run("1 + 1")).output, 2);
        assert.equal((await made({ apiKey: "e2b_0123", endpoint: own.cove.address }).run("1 + 1")).output, 2);
    } finally {
        delete process.env.E2B_API_KEY;
    }
});

test("a server that is reached over TCP, by its key", async () => {
    const dir = await mkdtemp(join(tmpdir(), "cove-tcp-")), socket = join(dir, "cove.sock");
    const probe = createServer();
    await new Promise((done) => probe.listen(0, "127.0.0.1", done));
    const address = `127.0.0.1:${probe.address().port}`;
    await new Promise((done) => probe.close(done));
    const cove = process.env.COVE_BIN, server = spawn(cove, ["serve", "--listen", address, "--socket", socket, "--data", join(dir, "data")], { stdio: "ignore" });
    const ended = new Promise((done) => server.once("exit", done));
    try {
        const env = { ...process.env, COVE_URL: `unix:${socket}` };
        const secret = await until("the server answers", () => promisify(execFile)(cove, ["key", "new", "test"], { env }).then(({ stdout }) => stdout.trim(), () => {
            assert.equal(server.exitCode, null, "the server ended");
        }));
        const endpoint = `http://${address}`;
        assert.equal((await made({ endpoint, apiKey: secret }).run("6 * 7")).output, 42);
        await assert.rejects(made({ url: endpoint, apiKey: "e2b_0123" }).run("1"), /key/);
        process.env.E2B_API_KEY = secret;
        assert.equal((await made({ url: endpoint }).runCommand("echo $((6 * 7))")).stdout, "42\n");
        for (const kernel of kernels.splice(0)) await kernel[Symbol.asyncDispose]();
    } finally {
        delete process.env.E2B_API_KEY;
        server.kill("SIGTERM");
        await ended;
        await rm(dir, { recursive: true });
    }
});

test("JavaScript: values, logs, state, programs that return", async () => {
    const kernel = made();
    assert.deepEqual(await kernel.run("console.log('hello from a box', { a: 1 }); process.stdout.write('raw\\n'); console.log('two\\nlines')"), {
        output: undefined, logs: ["hello from a box { a: 1 }", "raw", "two\nlines"], isFinalAnswer: false,
    });
    assert.equal((await kernel.run("let n = 1; const f = () => ++n; f()")).output, 2);
    assert.equal((await kernel.run("let n = 40; f(); n")).output, 41);
    assert.equal((await kernel.run("await Promise.resolve(n) + 1")).output, 42);
    assert.equal((await kernel.run("const n = 'own'; return n + await Promise.resolve('!')")).output, "own!");
    assert.equal((await kernel.run("n")).output, 41);
    assert.equal((await kernel.run("new Promise((done) => setTimeout(() => done('later'), 5))")).output, "later");
    assert.deepEqual((await kernel.run("const os = await import('node:os'); 'import(x)'; [os.platform(), require('node:path').sep, 'not import (this)']")).output, ["linux", "/", "not import (this)"]);
    assert.deepEqual([(await kernel.run("NaN")).output, (await kernel.run("undefined")).output, (await kernel.run("null")).output, (await kernel.run("'é\\u{1f600}'")).output], [NaN, undefined, null, "é\u{1f600}"]);
    assert.deepEqual(await kernel.run("__finalAnswer__ = [1]; 2"), { output: [1], logs: [], isFinalAnswer: true });
    assert.deepEqual(await kernel.run("typeof __final_answer__"), { output: "undefined", logs: [], isFinalAnswer: false });
    const [box] = await boxes();
    await kernel.reset();
    assert.equal((await kernel.run("typeof n")).output, "undefined");
    assert.ok((await boxes()).every((one) => one.id !== box.id));
});

test("JavaScript: failures reject with what was thrown, and the state stays", async () => {
    const kernel = made();
    await kernel.run("globalThis.kept = 1");
    await assert.rejects(kernel.run("console.log('before'); throw new RangeError('too far')"), (error) => {
        assert.match(error.message, /^KernelError: too far/);
        assert.deepEqual([error.error.name, error.logs], ["RangeError", ["before"]]);
        return true;
    });
    for (const [code, said] of [["})", /KernelError: /], ["Promise.reject(new Error('late'))", /late/], ["throw 'text'", /text/], ["JSON.parse('{')", /JSON/], ["new Function('return 1; })(')", /KernelError/]]) {
        await assert.rejects(kernel.run(code), said, code);
    }
    for (const code of ["() => 1", "Symbol('x')", "const o = {}; o.o = o; o", "10n"]) await assert.rejects(kernel.run(code), /^Error: KernelSerializationError:/, code);
    await assert.rejects(kernel.run("setTimeout(() => { throw new Error('from a timer') }, 1); await new Promise((done) => setTimeout(done, 10000))"), /from a timer/);
    assert.equal((await kernel.run("kept")).output, 1);
    await assert.rejects(kernel.run("process.exit(7)"), /exit code 7/);
    assert.equal((await kernel.run("typeof kept")).output, "undefined");
});

test("Python: values, lines, state, final answers", async () => {
    const kernel = made({ actionLanguage: "pyodide" });
    assert.deepEqual(await kernel.run("import sys\nprint('a', 1)\nprint('b', file=sys.stderr)\nx = 20\nx * 2 + 2"), { output: 42, logs: ["a 1", "[stderr] b"], isFinalAnswer: false });
    assert.equal((await kernel.run("def f(y):\n    return x + y\nf(1)")).output, 21);
    assert.deepEqual(await kernel.run("__final_answer__ = {'a': None}\n5"), { output: { a: null }, logs: [], isFinalAnswer: true });
    assert.deepEqual(await kernel.run("'__final_answer__' in globals()"), { output: false, logs: [], isFinalAnswer: false });
    assert.deepEqual((await kernel.run("import os\n[dict(__env__), os.environ['A']]", { env: { A: "1" } })).output, [{ A: "1" }, "1"]);
    assert.deepEqual((await kernel.run("[__env__, os.environ.get('A')]")).output, [null, null]);
    assert.equal((await kernel.run("import asyncio\nawait asyncio.sleep(0, 'waited')")).output, "waited");
    await assert.rejects(kernel.run("1 / 0"), (error) => /division by zero/.test(error.message) && error.error.name === "ZeroDivisionError");
    await assert.rejects(kernel.run("f"), /^Error: KernelSerializationError:/);
    await assert.rejects(kernel.run("def"), /KernelError: .*invalid syntax/);
    assert.equal((await kernel.run("f(2)")).output, 22);
    assert.equal((await kernel.run("1 + 1", {}, { language: "javascript" })).output, 2);
    await assert.rejects(kernel.run("1", {}, { language: "cobol" }), /cobol/);
});

test("what the manifest grants", async () => {
    const kernel = made({ capabilities: { env: { A: "kernel" } } });
    assert.deepEqual((await kernel.run("[__env__.A, __env__.B, Object.isFrozen(__env__)]", { env: { B: "run" } })).output, ["kernel", "run", true]);
    const caught = "await fetch('http://evil.example:8080/').catch((error) => error.message)";
    for (const allowedHosts of [[], ["api.example.com"], ["evil.example:80"]]) {
        assert.equal((await kernel.run(caught, { allowedHosts })).output, 'network access denied — host "evil.example:8080" not in allowedHosts');
    }
    const [box] = await boxes();
    assert.deepEqual((await own.cove.get(box.id)).network.allow, ["evil.example:80"]);
    assert.equal((await kernel.run("await __fs__.writeFile('/tmp/mine', 'x').catch((error) => error.code)")).output, "EACCES");
    assert.equal((await kernel.run("await __fs__.writeFile('/tmp/mine', 'x'); await __fs__.readFile('/tmp/mine')", { allowedPaths: ["/tmp"] })).output, "x");
    await assert.rejects(kernel.run("1", { memoryLimitBytes: 1 << 20 }), /memoryLimitBytes.*reset/);
});

test("a run that takes too long is ended, by the lower limit", async () => {
    const kernel = made();
    await kernel.run("globalThis.kept = 1");
    await assert.rejects(kernel.run("console.log('began'); while (true) {}", { cpuMs: 300 }), (error) => error.timedOut && /timed out/.test(error.message));
    assert.equal((await kernel.run("typeof kept")).output, "undefined");
    const result = await createMastraSandbox({ kernel }).execute("await new Promise((done) => setTimeout(done, 3600000))", { timeout: 300 });
    assert.equal(result.exitCode, 1);
    assert.match(result.stderr, /timed out/);
    const tight = made({ timeoutMs: 300 });
    await assert.rejects(tight.runCommand("sleep 1000"), /timed out/);
});

test("commands see what code made, and their end is a result", async () => {
    const kernel = made();
    assert.deepEqual(await kernel.runCommand("echo out; echo err >&2; exit 3"), { stdout: "out\n", stderr: "err\n", exitCode: 3 });
    await kernel.run("require('node:fs').writeFileSync('/tmp/made', 'by code')");
    assert.equal((await kernel.runCommand("cat /tmp/made")).stdout, "by code");
});

test("a box that is gone is replaced", async () => {
    const kernel = made();
    await kernel.run("globalThis.kept = 1");
    const all = await boxes();
    for (const box of all) await own.cove.sandbox(box.id).remove();
    assert.equal((await kernel.run("typeof kept")).output, "undefined");
    const again = await boxes();
    for (const box of again) await own.cove.sandbox(box.id).remove();
    assert.equal((await kernel.runCommand("echo back")).stdout, "back\n");
});

test("an engine that is killed and comes back costs nothing but the time", async () => {
    const kernel = made();
    await kernel.run("globalThis.kept = 1");
    const running = kernel.run("console.log('began'); await new Promise((done) => setTimeout(done, 1500)); ++kept");
    await own.kill();
    assert.deepEqual(await running, { output: 2, logs: ["began"], isFinalAnswer: false });
    await own.kill();
    assert.equal((await kernel.run("++kept")).output, 3);
});
