// RemoteSandboxKernel against an engine of its own: JavaScript and Python in a box, what stays, what is denied, what is ended.
import assert from "node:assert/strict";
import { execFile, execFileSync, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { promisify } from "node:util";
import { createMastraSandbox, RemoteSandboxKernel } from "@cove/mastra/wasmagent";
import { freePort, startEngine, until } from "../../client/test/engine.mjs";
import { Lines } from "../dist/esm/wasmagent/remote-lines.js";

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
    const dir = await mkdtemp(join(tmpdir(), "cove-test-")), socket = join(dir, "cove.sock"), cove = process.env.COVE_BIN;
    let server, ended, endpoint, secret;
    const env = { ...process.env, COVE_URL: `unix:${socket}` };
    const serve = async (address) => {
        server = spawn(cove, ["serve", "--listen", address, "--socket", socket, "--data", join(dir, "data")], { stdio: "ignore" });
        ended = new Promise((done) => server.once("exit", done));
        endpoint = `http://${address}`;
        [secret] = await until("the server answers or ends", () => promisify(execFile)(cove, ["key", "new", "test"], { env })
            .then(({ stdout }) => [stdout.trim()], () => server.exitCode !== null && []));
    };
    try {
        await serve(`127.0.0.1:${await freePort()}`);
        assert.ok(secret, "the server ended");
        assert.equal((await made({ endpoint, apiKey: secret }).run("6 * 7")).output, 42);
        await assert.rejects(made({ url: endpoint, apiKey: "e2b_0123" }).run("1"), /key/);
        process.env.E2B_API_KEY = secret;
        assert.equal((await made({ url: endpoint }).runCommand("echo $((6 * 7))")).stdout, "42\n");
        for (const kernel of kernels.splice(0)) await kernel[Symbol.asyncDispose]();

        // A server that has never heard of the box: that is as well as if it had removed it.
        const local = made({ url: `unix:${socket}` }), other = made({ url: `unix:${socket}` });
        for (const kernel of [local, other]) await kernel.run("globalThis.kept = 1");
        server.kill("SIGTERM");
        await ended;
        await rm(join(dir, "data"), { recursive: true });
        await serve(endpoint.slice("http://".length));
        assert.equal((await local.run("typeof kept")).output, "undefined");
        await other.reset();
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
    assert.deepEqual([(await kernel.run("NaN")).output, (await kernel.run("-0")).output, (await kernel.run("undefined")).output, (await kernel.run("null")).output, (await kernel.run("'é\\u{1f600}'")).output], [NaN, -0, undefined, null, "é\u{1f600}"]);
    assert.deepEqual(await kernel.run("__finalAnswer__ = [1]; 2"), { output: [1], logs: [], isFinalAnswer: true });
    assert.deepEqual(await kernel.run("typeof __final_answer__"), { output: "undefined", logs: [], isFinalAnswer: false });
    assert.deepEqual((await kernel.run("const fs = 1, text = 2, mark = 3, test = 4; [fs, text, mark, test]")).output, [1, 2, 3, 4]); // names of the driver's
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
    const tight = made({ timeoutMs: 3000 });
    await assert.rejects(tight.runCommand("sleep 1000"), /timed out/);
});

test("commands see what code made, and their end is a result", async () => {
    const kernel = made();
    assert.deepEqual(await kernel.runCommand("echo out; echo err >&2; exit 3"), { stdout: "out\n", stderr: "err\n", exitCode: 3 });
    await kernel.run("require('node:fs').writeFileSync('/tmp/made', 'by code')");
    assert.equal((await kernel.runCommand("cat /tmp/made")).stdout, "by code");
});

test("a box that is gone is replaced, whether its end was heard or not", async () => {
    const kernel = made();
    await kernel.run("globalThis.kept = 1");
    for (const what of ["heard", "not heard"]) {
        // Nothing is heard while this process waits for another one.
        const [{ id }] = await boxes();
        if (what === "heard") await own.cove.sandbox(id).remove();
        else execFileSync(process.env.COVE_BIN, ["rm", id], { stdio: "ignore" });
        assert.equal((await kernel.run("typeof kept; globalThis.kept = 1; typeof kept")).output, "number", what);
        assert.ok((await boxes()).every((box) => box.id !== id));
    }
    for (const box of await boxes()) await own.cove.sandbox(box.id).remove();
    assert.equal((await kernel.runCommand("echo back")).stdout, "back\n");
    for (const box of await boxes()) await own.cove.sandbox(box.id).remove();
    await kernel.reset();
});

test("an interpreter that ended between two runs is replaced, and it alone", async () => {
    const kernel = made(), python = { language: "python" };
    await kernel.run("globalThis.kept = 1");
    await kernel.run("kept = 1", {}, python);
    const [box] = await boxes(), [{ pid }] = await own.cove.sandbox(box.id).processes.list();
    execFileSync(process.env.COVE_BIN, ["exec", box.id, "sh", "-c", `kill -9 ${pid}; while kill -0 ${pid} 2>/dev/null; do :; done`], { stdio: "ignore" });
    assert.equal((await kernel.run("typeof kept")).output, "undefined");
    assert.equal((await kernel.run("kept", {}, python)).output, 1);
    assert.deepEqual((await boxes()).map(({ id }) => id), [box.id]);
});

test("a line comes in pieces, and none is longer than there is room for", () => {
    const lines = new Lines(), piece = Buffer.from("é".repeat(32)), began = performance.now(), got = [];
    for (let i = 0; i < 65536; i++) got.push(...lines.take(piece));
    got.push(...lines.take(Buffer.from("\n\nnext\nha")));
    assert.deepEqual(got.map((line) => line.length), [32 * 65536, 0, 4]);
    assert.ok(performance.now() - began < 10000); // it took minutes where each piece was put to all before it
    assert.deepEqual([...lines.take(Buffer.from("lf\n"))], ["half"]);
    const long = Buffer.alloc(2 ** 20, "x");
    for (let i = 0; i < 17; i++) assert.deepEqual([...lines.take(long)], []);
    assert.deepEqual([...lines.take(Buffer.from("\nafter\nx"))], [undefined, "after"]);
    lines.gap();
    assert.deepEqual([...lines.take(Buffer.from("the end of one\nwhole\n"))], ["whole"]);
});

test("what code prints and gives takes so much of its host's memory and no more", async () => {
    const kernel = made(), MAX = 16 * 1024 * 1024;
    assert.deepEqual(await kernel.run("process.stdout.write('x'.repeat(2 ** 25) + '\\n'); 1"), { output: 1, logs: ["[1 more entries did not fit into the log]"], isFinalAnswer: false });
    assert.deepEqual((await kernel.run("console.log('x'.repeat(2e7)); console.log('next')")).logs, ["[an entry of 20000000 characters did not fit into the log]", "next"]);
    await assert.rejects(kernel.run("globalThis.kept = 'x'.repeat(2 ** 25)"), /^Error: KernelSerializationError: the result is too long/);
    assert.equal((await kernel.run("kept.length")).output, 2 ** 25);
    await assert.rejects(kernel.run("throw new Error(kept)"), (error) => error.message.length < MAX);
    assert.equal((await kernel.run("'y'.repeat(2 ** 23)")).output.length, 2 ** 23);
    const python = { language: "python" };
    assert.deepEqual((await kernel.run("print('x' * 20000000)\nprint('next')", {}, python)).logs, ["[an entry of 20000000 characters did not fit into the log]", "next"]);
    await assert.rejects(kernel.run("'x' * 2 ** 25", {}, python), /KernelSerializationError: the result is too long/);
    await assert.rejects(kernel.run("for (let i = 0; i < 40; i++) console.log('x'.repeat(1e6)); throw new Error('the end')"), (error) => {
        assert.match(error.message, /the end/);
        assert.ok(error.logs.reduce((sum, text) => sum + text.length, 0) <= MAX + 100);
        assert.match(error.logs.at(-1), /^\[\d+ more entries did not fit into the log\]$/);
        return true;
    });
});

test("code that changes what everybody uses, or that finds the mark, harms itself alone", async () => {
    const kernel = made();
    assert.doesNotMatch((await kernel.run("process.argv.join(' ') + require('node:fs').readFileSync('/proc/self/cmdline', 'latin1')")).output, /cove-[0-9a-f]{24}/);
    const broken = "JSON.stringify = () => 'x'; JSON.parse = null; for (const name of ['indexOf', 'slice', 'startsWith']) String.prototype[name] = () => -1; " +
        "Promise.prototype.then = Object.keys = process.exit = process.stdout.write = null; globalThis.Promise = globalThis.Error = globalThis.setTimeout = null; 5";
    assert.equal((await kernel.run(broken)).output, 5);
    assert.equal((await kernel.run("6")).output, 6);
    await kernel.reset();
    const forged = `
        const { _write } = process.stdout;
        let found;
        process.stdout._write = function (chunk, encoding, done) {
            found ??= /cove-\\w+ /.exec(String(chunk))?.[0];
            return _write.call(this, chunk, encoding, done);
        };
        console.log("first");
        process.stdout.write("x".repeat(100000) + "\\n");
        console.log("then");
        for (const text of ["no JSON", "null", "7", '{"log": 1}', '{"id": 1, "error": null}', '{"id": 1, "error": {"name": 1}}']) process.stdout.write("\\n" + found + text + "\\n");
        typeof found`;
    assert.deepEqual(await kernel.run(forged), { output: "string", logs: ["first", "x".repeat(100000), "then"], isFinalAnswer: false });
    assert.equal((await kernel.run("'and on'")).output, "and on");
    const python = { language: "python" };
    assert.equal((await kernel.run("import json, os, select, sys\njson.dumps = lambda *a, **k: 'x'\njson.loads = os.read = select.select = os.environ = None\n' '.join(sys.argv)", {}, python)).output, "run.py");
    assert.equal((await kernel.run("6", {}, python)).output, 6);
});

test("a box lives longer than the run that goes on in it, and not much longer", async () => {
    const kernel = made(), left = async () => Date.parse((await boxes())[0].lifecycle.deadline) - Date.now();
    await kernel.run("globalThis.kept = 1");
    await until("the box has its time again", async () => await left() > 3600000);
    const running = kernel.run("const fs = require('node:fs'); while (!fs.existsSync('/tmp/go')) await new Promise((done) => setTimeout(done, 20)); kept");
    await until("the box has little time left", async () => await left() < 60000);
    await own.cove.sandbox((await boxes())[0].id).files.write("/tmp/go", "");
    assert.equal((await running).output, 1);
    await kernel.run("1");
    await until("the box has its time again", async () => await left() > 3600000);

    // Of a program that was killed nobody ends the run.
    const program = `import { RemoteSandboxKernel } from "@cove/mastra/wasmagent"; const kernel = new RemoteSandboxKernel({ timeoutMs: 3000 }); for (;;) await kernel.run("await new Promise((done) => setTimeout(done, 3600000))").catch(() => {});`;
    await kernel.reset();
    const child = spawn(process.execPath, ["--input-type=module", "-e", program], { cwd: new URL("..", import.meta.url), stdio: "ignore" });
    const ended = new Promise((done) => child.once("exit", (code, signal) => done(signal)));
    await until("its box has little time left", async () => {
        child.kill("SIGSTOP"); // or the run is over before it is killed
        if ((await boxes()).length === 1 && await left() < 60000) return true;
        child.kill("SIGCONT");
        return false;
    });
    child.kill("SIGKILL");
    assert.equal(await ended, "SIGKILL");
    await until("its box has ended", async () => (await boxes()).length === 0);
});

test("what is missing of a command's output is told", async () => {
    const { stdout, stderr, exitCode } = await made({ timeoutMs: 60000 }).runCommand("head -c 70000000 /dev/zero; echo err >&2");
    assert.deepEqual([stdout.length, stderr, exitCode], [67108864, "err\n\n[the first 2891136 bytes of stdout are not here: the last 67108864 are]\n", 0]);
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
