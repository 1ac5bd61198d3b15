// Beside the rest of a process: WebAssembly's own traps, worker threads, fetch, crypto, child processes, and the end.
"use strict";

const assert = require("node:assert/strict");
const { execFile, execFileSync, spawnSync } = require("node:child_process");
const crypto = require("node:crypto");
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const { test } = require("node:test");
const { promisify } = require("node:util");
const { Worker } = require("node:worker_threads");
const { createKernel, run } = require("@cove/node");

const here = path.join(__dirname, "..");
const addon = path.join(here, "prebuilds", `${process.platform}-${process.arch}`, "cove.node");

// (memory 1 page), (func (param i32) (result i32) local.get 0, i32.load), exported as "f".
const MODULE = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 6, 1, 96, 1, 127, 1, 127, 3, 2, 1, 0, 5, 3, 1, 0, 1,
    7, 5, 1, 1, 102, 0, 0, 10, 9, 1, 7, 0, 32, 0, 40, 2, 0, 11]);

async function trapStillWorks() {
    const { instance } = await WebAssembly.instantiate(MODULE);
    for (let i = 0; i < 10; i++) {
        assert.equal(instance.exports.f(65532), 0);
        assert.throws(() => instance.exports.f(65533), WebAssembly.RuntimeError);
        assert.throws(() => instance.exports.f(-8), WebAssembly.RuntimeError);
    }
}

test("a trap of Node's own WebAssembly is an exception, before and after", async () => {
    assert.equal((await run("(function f() { f() })()")).error.name, "RangeError");
    await trapStillWorks();
    const kernel = await createKernel();
    await Promise.all([kernel.run("for (let i = 0; i < 1e6; i++);"), trapStillWorks()]);
    kernel.dispose();
});

test("the addon shows its entry, and takes nothing but the C library", () => {
    const names = execFileSync("nm", ["-D", "--defined-only", addon], { encoding: "utf8" }).trim().split("\n").map((line) => line.split(" ").at(-1));
    assert.deepEqual(names.sort(), ["napi_register_module_v1", "node_api_module_get_api_version_v1"]);
    const asked = execFileSync("nm", ["-D", "--undefined-only", addon], { encoding: "utf8" }).trim().split("\n").map((line) => line.trim().split(" ").at(-1));
    assert.deepEqual(asked.filter((name) => /^(uv_|SSL_|EVP_|_ZN2v8|_ZN4node|ares_|nghttp2_|inflate|deflate)/.test(name)), []);
    const needed = execFileSync("readelf", ["-d", addon], { encoding: "utf8" }).matchAll(/NEEDED.*\[(.*)\]/g);
    for (const [, name] of needed) assert.match(name, /^(libc|libpthread|librt|ld-linux.*)\.so\.[0-9]+$/);
});

const WORKER = `
const { parentPort, workerData } = require("node:worker_threads");
const { createKernel, run } = require(workerData.package);
const crypto = require("node:crypto");
(async () => {
    const kernel = await createKernel({ tools: { twice: ({ n }) => 2 * n } });
    let sum = 0;
    for (let i = 0; i < 200; i++) {
        sum += (await kernel.run("await tools.twice({ n: " + i + " })")).value;
        sum += (await run("1")).value;
        crypto.createHash("sha256").update("x" + i).digest();
    }
    const { instance } = await WebAssembly.instantiate(workerData.module);
    let traps = 0;
    for (let i = 0; i < 20; i++) try { instance.exports.f(65536 + i) } catch (error) { traps += error instanceof WebAssembly.RuntimeError }
    parentPort.postMessage({ sum, traps });
    if (workerData.stays) { run("for (;;) {}", { cpuMs: 60000, wallMs: 60000 }); kernel.run("await new Promise((done) => setTimeout(done, 60000))"); }
})();
`;

function worker(stays) {
    return new Worker(WORKER, { eval: true, workerData: { package: here, module: MODULE, stays } });
}

test("several worker threads, beside fetch and crypto", async () => {
    const server = http.createServer((request, response) => response.end("fine")).listen(0);
    const url = `http://127.0.0.1:${server.address().port}/`;
    const workers = Array.from({ length: 4 }, () => worker(false));
    const ends = workers.map((one) => new Promise((resolve, reject) => {
        let got;
        one.on("message", (message) => { got = message; });
        one.on("error", reject);
        one.on("exit", () => resolve(got));
    }));
    let isOver = false;
    const beside = (async () => {
        while (!isOver) {
            assert.equal(await (await fetch(url)).text(), "fine");
            crypto.pbkdf2Sync("a", "b", 100, 32, "sha256");
            await promisify(crypto.pbkdf2)("a", "b", 1000, 32, "sha256");
            assert.equal((await run("1 + 1")).value, 2);
        }
    })();
    for (const got of await Promise.all(ends)) assert.deepEqual(got, { sum: 199 * 200 + 200, traps: 20 });
    isOver = true;
    await beside;
    server.close();
    server.closeAllConnections();
    await trapStillWorks();
});

test("a worker thread may end while its runs are under way", async () => {
    for (let i = 0; i < 10; i++) {
        const one = worker(true);
        await new Promise((resolve, reject) => {
            one.on("message", resolve);
            one.on("error", reject);
        });
        // At some point of what it began after its message.
        await new Promise((resolve) => { setTimeout(resolve, 3 * i); });
        await one.terminate();
        assert.equal((await run("1 + 1")).value, 2);
    }
    await trapStillWorks();
});

test("a thread may be the only one that ever loaded it", () => {
    const got = spawnSync(process.execPath, ["-e", `
        const { Worker } = require("node:worker_threads");
        const one = new Worker("const { run } = require(" + ${JSON.stringify(JSON.stringify(here))} + "); run('1').then(() => run('for (;;) {}'))", { eval: true });
        setTimeout(async () => {
            await one.terminate();
            const { instance } = await WebAssembly.instantiate(new Uint8Array(${JSON.stringify([...MODULE])}));
            try { instance.exports.f(-8) } catch (error) { console.log(error instanceof WebAssembly.RuntimeError) }
        }, 300);
    `], { encoding: "utf8" });
    assert.deepEqual([got.status, got.signal, got.stdout], [0, null, "true\n"], got.stderr);
});

const ends = async (code) => {
    const begun = performance.now();
    const got = spawnSync(process.execPath, ["-e", `const { createKernel, run } = require(${JSON.stringify(here)}); ${code}`], { encoding: "utf8", timeout: 60000 });
    return { status: got.status, signal: got.signal, out: got.stdout, error: got.stderr, ms: performance.now() - begun };
};

test("the process ends at once, whatever is under way", async () => {
    const LONG = "{ cpuMs: 60000, wallMs: 60000 }";
    const busy = `for (let i = 0; i < 8; i++) run("for (;;) {}", ${LONG}); run("await new Promise((done) => setTimeout(done, 50000))");`;
    for (const how of ["setTimeout(() => process.exit(5), 100)", "process.exit(5)", "setImmediate(() => { process.exitCode = 5; process.reallyExit(5) })"]) {
        const got = await ends(`${busy} ${how}`);
        assert.deepEqual([got.status, got.signal], [5, null], `${how}: ${got.error}`);
        assert.ok(got.ms < 20000, `${how}: ${got.ms} ms`);
    }
    const thrown = await ends(`${busy} setTimeout(() => { throw new Error("mine") }, 50)`);
    assert.equal(thrown.status, 1);
    assert.match(thrown.error, /mine/);
});

test("a run that is awaited keeps the process; a kernel does not", async () => {
    const waits = await ends('run("await new Promise((done) => setTimeout(done, 200)); 5").then(({ value }) => console.log(value))');
    assert.deepEqual([waits.status, waits.out], [0, "5\n"]);
    const kept = await ends('createKernel().then((kernel) => { globalThis.kernel = kernel; console.log("made") })');
    assert.deepEqual([kept.status, kept.out], [0, "made\n"]);
});

test("another Node: the system's own", () => {
    const got = spawnSync("node", [path.join(__dirname, "api.test.js")], { encoding: "utf8", env: { PATH: process.env.PATH } });
    assert.equal(got.status, 0, got.stdout);
    assert.match(got.stdout, /pass [1-9]/);
});

test("child processes can be started meanwhile", async () => {
    const kernel = await createKernel();
    const [got, { stdout }] = await Promise.all([kernel.run("let n = 0; for (let i = 0; i < 2e6; i++) n += i; n"),
        promisify(execFile)(process.execPath, ["-p", "6 * 7"])]);
    assert.equal(got.value, 1999999000000);
    assert.equal(stdout, "42\n");
    assert.equal((await kernel.run("n")).value, 1999999000000);
    kernel.dispose();
});

test("what is let go without dispose() is collected", async () => {
    const got = await ends(`
        require("node:v8").setFlagsFromString("--expose-gc");
        const gc = require("node:vm").runInNewContext("gc");
        const maps = () => require("node:fs").readFileSync("/proc/self/maps", "utf8").split("\\n").length;
        (async () => {
            const most = [];
            for (let round = 0; round < 6; round++) {
                for (let i = 0; i < 400; i++) await (await createKernel()).run("globalThis.x = 1");
                for (let i = 0; i < 5; i++) { gc(); await new Promise((done) => setTimeout(done, 20)); }
                most.push(maps());
            }
            console.log(JSON.stringify(most));
        })();
    `);
    assert.equal(got.status, 0, got.error);
    const maps = JSON.parse(got.out);
    assert.ok(maps.at(-1) < maps[1] + 400, `${maps} mappings`);
});

test("a run keeps its kernel, whoever else forgot it", async () => {
    const got = await ends(`
        require("node:v8").setFlagsFromString("--expose-gc");
        const gc = require("node:vm").runInNewContext("gc");
        (async () => {
            const all = Promise.all(await (async () => {
                const runs = [];
                for (let i = 0; i < 50; i++) runs.push((await createKernel()).run("await new Promise((done) => setTimeout(done, 300)); 1"));
                return runs;
            })());
            for (let i = 0; i < 5; i++) { gc(); await new Promise((done) => setTimeout(done, 20)); }
            console.log((await all).length);
        })();
    `);
    assert.deepEqual([got.status, got.out], [0, "50\n"], got.error);
});

test("fds are none of a child's", () => {
    for (const fd of fs.readdirSync("/proc/self/fd")) {
        let target;
        try {
            target = fs.readlinkSync(`/proc/self/fd/${fd}`);
        } catch {
            continue;
        }
        if (!/memfd:|pagemap/.test(target)) continue;
        const flags = /flags:\s*([0-7]+)/.exec(fs.readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"))[1];
        assert.ok((parseInt(flags, 8) & 0o2000000) !== 0, `${target} is closed by exec`);
    }
});
