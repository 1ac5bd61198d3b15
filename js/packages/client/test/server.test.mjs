// Which server: by TCP with a key, by a socket's name, or none; and that nothing tells a key.
import assert from "node:assert/strict";
import { execFile, spawn, spawnSync } from "node:child_process";
import { chmodSync, cpSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import http from "node:http";
import { connect, createServer } from "node:net";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { inspect, promisify } from "node:util";
import { Cove, CoveError } from "../dist/esm/index.js";
import { freePort, startEngine, until } from "./engine.mjs";

const code = (name) => (error) => error instanceof CoveError && error.code === name;
const INDEX = new URL("../dist/esm/index.js", import.meta.url).href;
const DIST = fileURLToPath(new URL(".", INDEX));

let engine;
let server;
let port;
let secret;

before(async () => {
    engine = await startEngine();
    port = await freePort();
    server = spawn(
        engine.env.COVE_BIN,
        ["serve", "--private", "--listen", `127.0.0.1:${port}`, "--socket", `${engine.dir}/tcp.sock`, "--data", `${engine.dir}/tcp`],
        { stdio: "ignore" },
    );
    const local = new Cove({ url: `unix:${engine.dir}/tcp.sock` });
    await until("the server answers", () => local.connect().then(() => true, () => false));
    assert.equal(local.isPrivate(), false);
    secret = (await local.request("POST", "/v1/keys", { json: { label: "test", scopes: ["read", "write"] } })).secret;
    local.close();
});
after(async () => {
    server?.kill("SIGTERM");
    if (server) await until("the server ends", () => server.exitCode !== null);
    await engine?.end();
});

test("by TCP, with a key", async () => {
    const cove = new Cove({ url: `http://127.0.0.1:${port}`, apiKey: secret });
    await cove.connect();
    assert.equal(cove.isPrivate(), false);
    assert.equal(cove.address, `http://127.0.0.1:${port}`);
    const sandbox = cove.sandbox((await cove.create({ disk_kind: "ephemeral" })).sandbox.id);
    assert.equal((await sandbox.exec({ command: "echo far" })).stdout, "far\n");
    const results = await Promise.all(Array.from({ length: 100 }, () => sandbox.exec({ argv: ["true"] })));
    assert.equal(results.length, 100);
    const session = await cove.kernels.connect();
    assert.equal((await session.run({ code: "await tools.one()" }, { one: () => 1 })).value, 1);
    session.close();
    await assert.rejects(cove.registerMount("x", "/tmp"), code("not_private"));
    await sandbox.remove();
    cove.close();
});

test("by TCP, with no key and with a wrong one", async () => {
    for (const [apiKey, says] of [["cove_wrong", /not known here/], ["", /has no key/]]) {
        const cove = new Cove({ url: `http://127.0.0.1:${port}`, apiKey });
        await assert.rejects(cove.request("GET", "/v1/sandboxes"), (error) => {
            assert.match(error.message, says);
            return error.code === "bad_key" && error.message.endsWith("check apiKey, or COVE_API_KEY");
        });
        cove.close();
    }
});

test("a connection that something cuts costs a command nothing", async () => {
    const sockets = new Set();
    const between = createServer((near) => {
        const far = connect(port, "127.0.0.1");
        for (const socket of [near, far]) socket.on("error", () => {});
        near.pipe(far).pipe(near);
        near.on("close", () => far.destroy());
        far.on("close", () => near.destroy());
        sockets.add(near);
    });
    await new Promise((resolve) => between.listen(0, "127.0.0.1", resolve));
    const cut = () => sockets.forEach((socket) => socket.destroy());
    const direct = new Cove({ url: `http://127.0.0.1:${port}`, apiKey: secret });
    const cove = new Cove({ url: `http://127.0.0.1:${between.address().port}`, apiKey: secret });
    try {
        const { id } = (await direct.create({ disk_kind: "ephemeral" })).sandbox;
        const watcher = direct.sandbox(id);
        const sandbox = cove.sandbox(id);
        const ran = async (text) => (await watcher.exec({ command: `cat /tmp/ran 2>/dev/null` })).stdout === text;
        for (const [listens, text] of [[undefined, "x\n"], [() => {}, "x\nx\n"]]) {
            const command = "rm -f /tmp/go; echo x >>/tmp/ran; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo done";
            const running = sandbox.exec({ command }, { onStdout: listens });
            await until("it runs", () => ran(text));
            cut();
            await watcher.files.write("/tmp/go", "");
            const result = await running;
            assert.equal(result.stdout, "done\n");
            assert.equal(result.process.exit_code, 0);
            assert.ok(await ran(text));
        }
        const bound = sandbox.exec({ command: "echo y >/tmp/ran; sleep 606", detach_on_disconnect: false });
        await until("it runs", () => ran("y\n"));
        cut();
        await assert.rejects(bound, (error) => code("lost")(error) && error.begun);
        for (const onAbort of ["throw", "kill"]) {
            const controller = new AbortController();
            const given = sandbox.exec({ command: `echo ${onAbort} >/tmp/ran; sleep 606` }, { signal: controller.signal, onAbort });
            await until("it runs", () => ran(`${onAbort}\n`));
            controller.abort();
            if (onAbort === "throw") await assert.rejects(given, code("aborted"));
            else assert.equal((await given).process.signal, "SIGKILL");
            await until("it is gone", async () => (await watcher.exec({ command: "pgrep -fc 'sleep 60[6]'" })).stdout.trim() === "0");
        }
        await watcher.remove();
    } finally {
        cove.close();
        direct.close();
        cut();
        between.close();
    }
});

test("a wrong key is an error, and told nowhere", async () => {
    const key = "covekey-that-nobody-may-see";
    const cove = new Cove({ url: `http://127.0.0.1:${port}`, apiKey: key });
    const error = await cove.roots().then(
        () => assert.fail("it let us in"),
        (each) => each,
    );
    assert.equal(error.code, "bad_key");
    for (const text of [inspect(error, { depth: 9, showHidden: true }), inspect(cove, { depth: 9, showHidden: true }), JSON.stringify(cove)])
        assert.ok(!text.includes(key), text);
    assert.throws(() => new Cove({ url: `http://user:${key}@127.0.0.1:${port}`, nonsense: 1 }), (each) => !each.message.includes(key));
    const bad = new Cove({ url: `http://user:${key}@127.0.0.1:${port}` });
    await assert.rejects(bad.connect(), (each) => code("bad_option")(each) && !inspect(each, { depth: 9 }).includes(key));
    const broken = new Cove({ url: `http://127.0.0.1:${port}`, apiKey: `${key}\n` });
    await assert.rejects(broken.connect(), (each) => code("bad_option")(each) && !inspect(each, { depth: 9 }).includes(key));
});

test("the environment names the server, and its key goes to that one alone", async () => {
    const run = (env, options = "{}") =>
        spawnSync(
            process.execPath,
            ["-e", `import(${JSON.stringify(INDEX)}).then(async ({ Cove }) => { const cove = new Cove(${options}); await cove.roots(); console.log(cove.address, cove.isPrivate()); cove.close(); })`],
            { env: { ...process.env, ...env }, encoding: "utf8" },
        );
    const named = run({ COVE_URL: `http://127.0.0.1:${port}`, COVE_API_KEY: secret });
    assert.equal(named.stdout, `http://127.0.0.1:${port} false\n`, named.stderr);
    // With one's own engine a key of the environment would be a wrong one.
    const own = run({ COVE_URL: `http://127.0.0.1:${port}`, COVE_API_KEY: secret }, '{ engine: "private" }');
    assert.equal(own.stdout, `unix:${engine.socket} true\n`, own.stderr);
    const socket = run({ COVE_URL: `unix:${engine.socket}` });
    assert.equal(socket.stdout, `unix:${engine.socket} true\n`, socket.stderr);
});

test("a program that has done its work ends, though its connections are open", () => {
    const ran = spawnSync(
        process.execPath,
        ["-e", `import(${JSON.stringify(INDEX)}).then(async ({ Cove }) => { const cove = new Cove({ engine: "private" }); await cove.connect(); await cove.kernels.connect(); console.log("done"); })`],
        { env: process.env, encoding: "utf8", timeout: 30_000 },
    );
    assert.equal(ran.stdout, "done\n", ran.stderr);
    assert.equal(ran.status, 0);
});

test("nobody there, and nothing to start, is said", async () => {
    const away = new Cove({ url: "http://127.0.0.1:1", retryMs: 100 });
    await assert.rejects(away.connect(), (error) => code("unreachable")(error) && error.status === 0 && /127\.0\.0\.1/.test(error.message));
    const none = new Cove({ url: `unix:${engine.dir}/nobody.sock`, retryMs: 0 });
    await assert.rejects(none.connect(), code("unreachable"));
    await assert.rejects(new Cove({ url: "ftp://x" }).connect(), code("bad_option"));
    await assert.rejects(new Cove({ url: "unix:relative" }).connect(), code("bad_option"));
    assert.throws(() => new Cove({ engine: "none" }), code("bad_option"));
    assert.throws(() => new Cove({ engine: "private", url: "http://x" }), code("bad_option"));
    assert.throws(() => new Cove({ engine: "private", apiKey: "x" }), code("bad_option"));
    // With the system's engine it is heeded.
    if (!existsSync("/run/cove/cove.sock")) await assert.rejects(new Cove({ apiKey: "x" }).connect(), code("bad_option"));
    assert.throws(() => new Cove({ url: "http://x", apikey: "y" }), (error) => code("bad_option")(error) && /apikey/.test(error.message));
});

test("a program that is named and not there is an error, also while an engine runs that needs none", async () => {
    assert.equal(await engine.cove.connect(), undefined);
    await assert.rejects(new Cove({ engine: "private", bin: "/nowhere/cove" }).connect(), { code: "no_cove", message: /^bin: \/nowhere\/cove cannot be executed/ });
});

test("the program is named and not there, or fails, in one sentence", async () => {
    const { XDG_RUNTIME_DIR } = process.env;
    try {
        process.env.XDG_RUNTIME_DIR = `${engine.dir}/config`; // where nothing runs
        await assert.rejects(new Cove({ engine: "private", bin: "/nowhere/cove" }).connect(), (error) => code("no_cove")(error) && /\/nowhere\/cove/.test(error.message));
        const fails = (bin, message) => assert.rejects(new Cove({ engine: "private", bin }).connect(), (error) => {
            assert.match(error.message, message);
            return code("no_cove")(error) && !error.message.includes("\n");
        });
        await fails("/bin/false", /^\/bin\/false started no engine: it ended with status 1 and said nothing; .*set bin/);
        await fails("/bin/true", /^\/bin\/true started no engine: it ended with status 0 and said nothing; .*set bin/);
        await fails("/bin/echo", /^\/bin\/echo started no engine: .* said no address; /);
        await fails("/", /it is no file/);
        const bin = `${engine.dir}/cove`;
        writeFileSync(bin, "", { mode: 0o644 });
        await fails(bin, /^bin: .*\/cove cannot be executed: it is there, and this user may not execute it; chmod \+x/);
    } finally {
        process.env.XDG_RUNTIME_DIR = XDG_RUNTIME_DIR;
    }
});

test("a cove on PATH without its x bit, and a COVE_BIN that is something else, are named with the remedy", () => {
    const bin = `${engine.dir}/without-x`;
    mkdirSync(bin);
    writeFileSync(`${bin}/cove`, "#!/bin/sh\n", { mode: 0o644 });
    // Of a copy that finds no package beside it.
    const alone = `${engine.dir}/alone`;
    cpSync(DIST, alone, { recursive: true });
    writeFileSync(`${alone}/package.json`, '{"type": "module"}');
    const said = (env) => spawnSync(process.execPath, ["-e", `import(${JSON.stringify(`${alone}/index.js`)}).then(({ Cove }) => new Cove({ engine: "private" }).connect()).catch((error) => console.log(error.code, error.message))`],
        { env: { PATH: bin, XDG_RUNTIME_DIR: `${engine.dir}/config`, ...env }, encoding: "utf8" }).stdout;
    assert.match(said({}), /^no_cove .*\/without-x\/cove would start an engine, and cannot be executed: .*chmod \+x .*COVE_BIN.*\n$/);
    assert.match(said({ COVE_BIN: `${bin}/cove` }), /^no_cove COVE_BIN: .*cannot be executed: .*chmod \+x .*\n$/);
    assert.match(said({ COVE_BIN: "/bin/true" }), /^no_cove \/bin\/true started no engine: .*set COVE_BIN.*\n$/);
});

test("an XDG_RUNTIME_DIR that is not there is told, once, with the socket that is used instead", () => {
    const script = `import(${JSON.stringify(INDEX)}).then(async ({ Cove }) => { for (const _ of [1, 2]) await new Cove({ engine: "private", bin: "/bin/false" }).connect().catch(() => {}) })`;
    const warned = (runtime) => spawnSync(process.execPath, ["-e", script], { env: { PATH: "/usr/bin:/bin", XDG_RUNTIME_DIR: runtime }, encoding: "utf8" })
        .stderr.split("\n").filter((line) => line.includes("CoveWarning"));
    const [line, ...more] = warned(`${engine.dir}/nowhere`);
    assert.match(line, /XDG_RUNTIME_DIR: \S+\/nowhere is no directory of this user's, .*\/tmp\/cove-\d+\/cove\.sock; make the directory/);
    assert.deepEqual(more, []);
    assert.deepEqual(warned(`${engine.dir}/config`), []);
});

test("an engine that is started learns nothing of this program's environment that it does not need", async () => {
    const { readFileSync } = await import("node:fs");
    const bin = `${engine.dir}/print`;
    writeFileSync(bin, `#!/bin/sh\n/usr/bin/env >${bin}.txt\nexit 1\n`, { mode: 0o755 });
    const { XDG_RUNTIME_DIR } = process.env;
    Object.assign(process.env, { XDG_RUNTIME_DIR: `${engine.dir}/config`, COVE_API_KEY: "k1", OPENAI_API_KEY: "k2", COVE_LOG_FORMAT: "json" });
    try {
        await assert.rejects(new Cove({ engine: "private", bin }).connect(), code("no_cove"));
    } finally {
        process.env.XDG_RUNTIME_DIR = XDG_RUNTIME_DIR;
        for (const name of ["COVE_API_KEY", "OPENAI_API_KEY", "COVE_LOG_FORMAT"]) delete process.env[name];
    }
    const names = readFileSync(`${bin}.txt`, "utf8").trim().split("\n").map((line) => line.split("=")[0]);
    assert.ok(!names.some((name) => name.includes("KEY")), names.join());
    for (const name of ["PATH", "XDG_RUNTIME_DIR", "COVE_LOG_FORMAT"]) assert.ok(names.includes(name), name);
});

test("a directory for its socket that others can look into is not trusted", async () => {
    const { chmodSync } = await import("node:fs");
    const isRefused = (error) => code("no_cove")(error) && /others/.test(error.message);
    try {
        for (const mode of [0o755, 0o740, 0o720, 0o710, 0o704, 0o702, 0o701]) {
            chmodSync(`${engine.env.XDG_RUNTIME_DIR}/cove`, mode);
            await assert.rejects(new Cove({ engine: "private" }).connect(), isRefused, mode.toString(8));
        }
    } finally {
        chmodSync(`${engine.env.XDG_RUNTIME_DIR}/cove`, 0o700);
    }
});

test("on another system, without a server, the ways out are named", () => {
    const ran = spawnSync(
        process.execPath,
        [
            "-e",
            `Object.defineProperty(process, "platform", { value: "darwin" });
             import(${JSON.stringify(INDEX)}).then(({ Cove }) => new Cove().connect()).catch((error) => console.log(error.code, error.message))`,
        ],
        { env: process.env, encoding: "utf8" },
    );
    assert.match(ran.stdout, /^unsupported_platform .*darwin.*url and apiKey/);
    assert.equal(ran.stdout.trim().split("\n").length, 1);
});

test("by TLS, whose certificate is verified", async () => {
    const tlsPort = await freePort();
    const dir = `${engine.dir}/tls`;
    mkdirSync(dir, { mode: 0o700 });
    const made = spawnSync(
        "openssl",
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", `${dir}/key.pem`, "-out", `${dir}/cert.pem`],
        { encoding: "utf8" },
    );
    assert.equal(made.status, 0, made.stderr);
    writeFileSync(`${dir}/cove.conf`, `[serve]\ntls_certificate = ${dir}/cert.pem\ntls_key = ${dir}/key.pem\n`);
    const secure = spawn(
        engine.env.COVE_BIN,
        ["serve", "--private", "--listen", `127.0.0.1:${tlsPort}`, "--socket", `${dir}/cove.sock`, "--data", `${dir}/data`, "--config", `${dir}/cove.conf`],
        { stdio: "ignore" },
    );
    try {
        const local = new Cove({ url: `unix:${dir}/cove.sock` });
        await until("the server answers", () => local.connect().then(() => true, () => false));
        const key = (await local.request("POST", "/v1/keys", { json: { label: "tls", scopes: ["read", "write"] } })).secret;
        local.close();
        const script = `import(${JSON.stringify(INDEX)}).then(async ({ Cove }) => {
            const cove = new Cove({ url: "https://localhost:${tlsPort}", retryMs: 60000 });
            try {
                await cove.roots();
                const session = await cove.kernels.connect();
                console.log((await session.run({ code: "await tools.one()" }, { one: () => 1 })).value);
            } catch (error) { console.log(error.code, error.cause?.code) }
        })`;
        const run = (env) => spawnSync(process.execPath, ["-e", script], { env: { ...process.env, COVE_API_KEY: key, ...env }, encoding: "utf8" });
        assert.equal(run({ NODE_EXTRA_CA_CERTS: `${dir}/cert.pem` }).stdout, "1\n");
        assert.match(run({}).stdout, /^unreachable .*(SELF_SIGNED|UNABLE_TO)/);
    } finally {
        secure.kill("SIGTERM");
        await until("the server ends", () => secure.exitCode !== null);
    }
});

test("the environment's key goes to the environment's server alone", async () => {
    const heard = [];
    const server = http.createServer((request, response) => {
        heard.push(request.headers.authorization ?? request.headers["x-api-key"] ?? "none");
        response.setHeader("content-type", "application/json").end(`{"version":"0","api":"v1"}`);
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${server.address().port}`;
    try {
        process.env.COVE_API_KEY = "k1";
        for (const [named, apiKey] of [["", undefined], [url, undefined], ["http://127.0.0.1:9", undefined], ["http://127.0.0.1:9", "k2"]]) {
            process.env.COVE_URL = named;
            const cove = new Cove({ url, apiKey });
            await cove.request("GET", "/v1/roots");
            cove.close();
        }
        // Each asks first whether the server answers.
        const keys = ["k1", "k1", "none", "k2"].flatMap((key) => [key, key]);
        assert.deepEqual(heard.map((each) => each.replace("Bearer ", "")), keys);
    } finally {
        delete process.env.COVE_API_KEY;
        delete process.env.COVE_URL;
        server.close();
    }
});

test("the environment's key goes to the system's server where that is another user's, and without one it is passed by", {
    skip: process.getuid() !== 0 && "only root can be another user",
}, async () => {
    const heard = [], socket = `${engine.dir}/system.sock`;
    const server = http.createServer((request, response) => {
        heard.push(request.headers.authorization ?? "none");
        response.setHeader("content-type", "application/json").end(`{"version":"0","api":"v1"}`);
    });
    await new Promise((resolve) => server.listen(socket, resolve));
    chmodSync(socket, 0o666);
    chmodSync(engine.dir, 0o711);
    const script = `import(${JSON.stringify(INDEX)}).then(async ({ Cove }) => { const cove = new Cove();
        try { await cove.request("GET", "/v1/roots"); console.log(cove.address); } catch (error) { console.log(error.code); } cove.close(); })`;
    const run = (uid, env) => promisify(execFile)("unshare", ["--mount", "--propagation", "private", "sh", "-ec",
        'mount -t tmpfs run /run; mkdir /run/cove; touch /run/cove/cove.sock; mount --bind "$0" /run/cove/cove.sock; exec "$@"', socket,
        "setpriv", "--reuid", uid, "--clear-groups", process.execPath, "-e", script], { env: { PATH: process.env.PATH, COVE_BIN: "/bin/false", ...env } });
    try {
        for (const [uid, env, said, key] of [
            ["12345", { COVE_API_KEY: "k1" }, "unix:/run/cove/cove.sock", "Bearer k1"],
            ["0", { COVE_API_KEY: "k1" }, "unix:/run/cove/cove.sock", "none"],
            ["12345", {}, "no_cove"],
        ]) {
            heard.length = 0;
            assert.equal((await run(uid, env)).stdout.trim(), said);
            assert.deepEqual(new Set(heard), new Set(key ? [key] : []));
        }
    } finally {
        server.close();
    }
});

test("CommonJS has the same", () => {
    const ran = spawnSync(process.execPath, ["-e", `const { Cove } = require(${JSON.stringify(new URL("../dist/cjs/index.js", import.meta.url).pathname)}); new Cove({ engine: "private" }).version().then((v) => console.log(v.api))`], {
        env: process.env,
        encoding: "utf8",
    });
    assert.equal(ran.stdout, "v1\n", ran.stderr);
});
