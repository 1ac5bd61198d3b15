// What an honest server never does, and what it seldom does: answers that break off, frames that are none. So it is
// played here, by a few lines that say byte for byte what is sent.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { createServer as createTcpServer } from "node:net";
import { text } from "node:stream/consumers";
import { after, before, test } from "node:test";
import { Cove, CoveError } from "../dist/esm/index.js";
import { until } from "./engine.mjs";

const code = (name) => (error) => error instanceof CoveError && error.code === name;

let server;
let cove;
/** What the next requests get, one after the other. */
let plan = [];
let asked = [];
let heard = [];
let upgrade;

before(async () => {
    server = createServer((request, response) => {
        if (request.url === "/healthz") return response.end("{}");
        asked.push(`${request.method} ${request.url}`);
        let body = "";
        request.setEncoding("utf8").on("data", (text) => (body += text));
        heard.push({ headers: request.headers, body: () => JSON.parse(body) });
        request.on("end", () => (plan.shift() ?? ((each) => each.writeHead(500).end()))(response));
    });
    server.on("upgrade", (request, socket) => {
        const accept = createHash("sha1").update(`${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
        socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
        socket.on("error", () => {});
        upgrade(socket);
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    cove = new Cove({ url: `http://127.0.0.1:${server.address().port}`, retryMs: 3000 });
});
after(() => {
    cove.close();
    server.closeAllConnections();
    server.close();
});

const json = (status, body, headers = {}) => (response) =>
    response.writeHead(status, { "Content-Type": status < 400 ? "application/json" : "application/problem+json", ...headers }).end(JSON.stringify(body));
const cut = (response) => response.socket.destroy();
const half = (response) => {
    response.writeHead(200, { "Content-Length": "100", "Content-Type": "application/json" });
    response.write("{");
    setTimeout(() => response.socket.destroy(), 5);
};
function expect(...steps) {
    plan = steps;
    asked = [];
    heard = [];
}

test("what may be repeated is, and nothing else", async () => {
    expect(cut, half, json(200, { ok: 1 }));
    assert.deepEqual(await cove.request("GET", "/v1/x"), { ok: 1 });
    assert.equal(asked.length, 3);

    expect(cut, json(200, {}));
    await assert.rejects(cove.request("POST", "/v1/x", { json: {} }), code("lost"));
    assert.equal(asked.length, 1);

    expect(cut, json(200, { ok: 2 }));
    assert.deepEqual(await cove.request("POST", "/v1/x", { json: {}, headers: { "Idempotency-Key": "k" } }), { ok: 2 });

    for (const problem of ["draining", "not_ready", "too_many_connections", "too_many_requests"]) {
        expect(json(503, { code: problem, status: 503 }), json(200, { ok: 3 }));
        assert.deepEqual(await cove.request("POST", "/v1/x", { json: {} }), { ok: 3 });
    }
    expect(json(503, { code: "capacity", status: 503, detail: "all is taken" }), json(200, {}));
    await assert.rejects(cove.request("POST", "/v1/x"), (error) => code("capacity")(error) && error.status === 503 && error.detail === "all is taken");
});

test("an error says once what to do: as its detail does, or as its kind does where the detail does not", async () => {
    for (const [detail, message] of [["no x is there; add one by y", "no x is there; add one by y"], ["no x is there", "no x is there; GET /v1/x lists them"]]) {
        expect(json(422, { code: "unknown_root", status: 422, detail, remedy: "GET /v1/x lists them" }));
        await assert.rejects(cove.request("POST", "/v1/x"), { code: "unknown_root", detail, message });
    }
});

test("patience has an end", async () => {
    const brief = new Cove({ url: cove.address ?? `http://127.0.0.1:${server.address().port}`, retryMs: 5000 });
    expect(json(200, {})); // who was never answered is given up sooner
    await brief.request("GET", "/v1/x");
    expect(...Array.from({ length: 100 }, () => cut));
    await assert.rejects(brief.request("GET", "/v1/x"), code("lost"));
    assert.ok(asked.length > 2);
    brief.close();
});

test("an answer that is none of cove's is said to be", async () => {
    expect((response) => response.writeHead(200, { "Content-Type": "text/html" }).end("<html>"));
    await assert.rejects(cove.version(), code("bad_answer"));
    expect((response) => response.writeHead(502).end("Bad Gateway"));
    await assert.rejects(cove.version(), (error) => code("bad_answer")(error) && error.status === 502);
});

test("a length that no memory has is no end of the caller's, and is not taken at its word", async () => {
    for (const length of [2 ** 52, 2 ** 53 - 1]) {
        expect((response) => {
            response.writeHead(200, { "Content-Length": String(length), "Content-Type": "application/json" });
            response.write(Buffer.alloc(20_000_000), () => response.socket.destroy());
        });
        await assert.rejects(cove.request("POST", "/v1/x"), code("lost"));
    }
});

test("a start that was cut is looked for by the caller's tag, and is not guessed", async () => {
    const process = (id, tag, started) => ({ id, tag, state: "running", started_at: new Date(Date.now() + started).toISOString(), ended_at: null });
    const { processes } = cove.sandbox("c0000000000000000000");
    const old = process("1", "mine", -3_600_000);
    expect(cut, json(200, { processes: [old, process("2", "mine", 0)] }));
    assert.equal((await processes.start({ argv: ["x"], tag: "mine" })).id, "2");
    expect(cut, json(200, { processes: [old] }));
    await assert.rejects(processes.start({ argv: ["x"], tag: "mine" }), code("lost"));
    expect(cut, json(200, { processes: [process("2", "mine", 0), process("3", "mine", 0)] }));
    await assert.rejects(processes.start({ argv: ["x"], tag: "mine" }), code("lost"));
    expect(cut, json(200, { processes: [process("4", "other", 0)] }), json(201, process("5", "mine", 0)));
    assert.equal((await processes.start({ argv: ["x"], tag: "mine" })).id, "5");
    // On record, but its box never heard of it.
    expect(cut, json(200, { processes: [{ ...process("6", "mine", 0), state: "lost", reason: "not_in_box" }] }), json(201, process("7", "mine", 0)));
    assert.equal((await processes.start({ argv: ["x"], tag: "mine" })).id, "7");
});

const PROCESS = {
    id: "1", state: "running", started_at: new Date(0).toISOString(), ended_at: null, timed_out: false, oom_killed: false, signal: null,
    exit_code: null, stdout: { from: 0, bytes: 0 }, stderr: { from: 0, bytes: 0 },
};
const EXITED = { ...PROCESS, state: "exited", exit_code: 0, ended_at: new Date().toISOString() };
const KILLED = { ...EXITED, exit_code: 137, signal: "SIGKILL" };
const RESULT = { process: EXITED, stdout: "", stderr: "", stdout_dropped_bytes: 0, stderr_dropped_bytes: 0 };

test("a tag that is of one command alone finds it, whatever the clocks say", async () => {
    const sandbox = cove.sandbox("c0000000000000000000");
    expect(cut, json(200, { processes: [{ ...PROCESS, tag: "mine" }] }));
    assert.equal((await sandbox.processes.start({ argv: ["x"], tag: "mine" }, { uniqueTag: true })).id, "1");
    expect(cut, json(200, { processes: [{ ...PROCESS, tag: "mine" }] }), json(200, EXITED));
    assert.equal((await sandbox.exec({ argv: ["x"], tag: "mine" }, { uniqueTag: true })).process.exit_code, 0);
    expect(cut, json(410, { code: "sandbox_gone", status: 410 }));
    await assert.rejects(sandbox.exec({ argv: ["x"] }), (error) => code("sandbox_gone")(error) && error.begun);
    expect(json(410, { code: "sandbox_gone", status: 410 }));
    await assert.rejects(sandbox.exec({ argv: ["x"] }), (error) => code("sandbox_gone")(error) && !error.begun);
});

test("over TCP a command outlives its connection, and a request that is still on its way is done once", async () => {
    const sandbox = cove.sandbox("c0000000000000000000");
    expect(cut, json(200, { processes: [] }), json(200, RESULT));
    await sandbox.exec({ argv: ["x"] });
    const sent = [heard[0], heard[2]];
    assert.ok(sent[0].headers["idempotency-key"]);
    assert.equal(sent[0].headers["idempotency-key"], sent[1].headers["idempotency-key"]);
    assert.deepEqual(sent[0].body(), sent[1].body());
    assert.equal(sent[0].body().detach_on_disconnect, true);
    expect(cut, json(200, { processes: [] }), json(201, PROCESS));
    await sandbox.processes.start({ argv: ["x"] });
    assert.ok(heard[0].headers["idempotency-key"]);
    assert.equal(heard[0].headers["idempotency-key"], heard[2].headers["idempotency-key"]);
    // Who wants it to end with its connection is not told that the command was killed by somebody.
    // Nor is one that no timeout would ever end left behind.
    for (const bound of [{ detach_on_disconnect: false }, { timeout_ms: 0 }]) {
        expect(cut, json(200, { processes: [{ ...KILLED, tag: "t" }] }), json(200, KILLED));
        const running = sandbox.exec({ argv: ["x"], tag: "t", ...bound }, { uniqueTag: true });
        await assert.rejects(running, (error) => code("lost")(error) && error.begun);
        assert.notEqual(heard[0].body().detach_on_disconnect, true);
    }
});

test("an abort is not forgotten because the first look fails", async () => {
    const sandbox = cove.sandbox("c0000000000000000000");
    const controller = new AbortController();
    let held;
    expect(
        (response) => ((held = response), controller.abort()),
        json(500, { code: "internal", status: 500 }),
        json(200, { processes: [{ ...PROCESS, tag: "t" }] }),
        json(200, PROCESS),
        (response) => (response.writeHead(204).end(), json(200, { ...RESULT, process: KILLED })(held)),
    );
    const result = await sandbox.exec({ argv: ["x"], tag: "t" }, { uniqueTag: true, signal: controller.signal, onAbort: "kill" });
    assert.equal(result.process.signal, "SIGKILL");
    assert.equal(asked[4], "DELETE /v1/sandboxes/c0000000000000000000/processes/1");
});

test("an abort that nobody hears keeps no program from ending", async () => {
    expect(json(201, PROCESS), (response) => {
        response.writeHead(200, { "Content-Type": "application/x-ndjson" });
        response.write(`${JSON.stringify({ type: "stdout", from: 0, to: 1, data: "eA==" })}\n`);
    });
    const script = `import(${JSON.stringify(new URL("../dist/esm/index.js", import.meta.url).href)}).then(async ({ Cove }) => {
        const cove = new Cove({ url: "http://127.0.0.1:${server.address().port}" });
        const controller = new AbortController();
        const options = { signal: controller.signal, onStdout: () => controller.abort() };
        await cove.sandbox("c0000000000000000000").exec({ argv: ["x"] }, options).catch((error) => console.log(error.code));
    })`;
    const child = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "inherit"], timeout: 30_000 });
    const ended = new Promise((resolve) => child.once("exit", (status, signal) => resolve([status, signal])));
    assert.equal(await text(child.stdout), "aborted\n");
    assert.deepEqual(await ended, [0, null]);
    assert.ok(asked.includes("GET /v1/sandboxes/c0000000000000000000/processes/1"), asked.join());
});

test("an append that was cut is sent again when nothing more of it has come for a while", async () => {
    const { files } = cove.sandbox("c0000000000000000000");
    for (const [there, sent] of [["123", [123456, 456]], ["123456", [123456]]]) {
        const puts = [];
        expect();
        const answer = (response) => {
            const { method, url } = response.req;
            if (method === "PUT") {
                puts.push({ at: performance.now(), ...heard.at(-1) });
                (puts.length === 1 ? cut : json(200, { size: 6 }))(response);
            } else if (url.includes("/files/stat?")) json(200, { size: puts.length === 0 ? 0 : there.length })(response);
            else response.end(there);
        };
        plan = { shift: () => answer };
        assert.equal((await files.write("/log", "123456", { append: true })).size, 6);
        assert.deepEqual(puts.map((put) => put.body()), sent);
        // The rest might have been on its way.
        if (puts.length > 1) assert.ok(puts[1].at - puts[0].at >= 900);
    }
});

test("close() ends what is idle, and not what goes on", async () => {
    const other = new Cove({ url: cove.address });
    await other.connect();
    let held;
    const arrived = new Promise((resolve) => expect((response) => ((held = response), resolve())));
    const running = other.request("GET", "/v1/x");
    await arrived;
    const { socket } = held;
    const ended = new Promise((resolve) => socket.once("close", resolve));
    other.close();
    json(200, { ok: 1 })(held);
    assert.deepEqual(await running, { ok: 1 });
    await ended;
});

test("what ends before a connection is secure was not sent", async () => {
    const rude = createTcpServer((socket) => socket.on("error", () => {}).once("data", () => socket.destroy()));
    await new Promise((resolve) => rude.listen(0, "127.0.0.1", resolve));
    const away = new Cove({ url: `https://127.0.0.1:${rude.address().port}`, retryMs: 100 });
    await assert.rejects(away.request("POST", "/v1/x", { json: {} }), code("unreachable"));
    rude.close();
});

// ---- frames ----

function frame(byte, data, { mask = false, size = data.length } = {}) {
    const head = size < 126 ? Buffer.from([byte, size]) : Buffer.alloc(size < 65_536 ? 4 : 10);
    if (size >= 126) {
        head[0] = byte;
        head[1] = size < 65_536 ? 126 : 127;
        if (size < 65_536) head.writeUInt16BE(size, 2);
        else head.writeBigUInt64BE(BigInt(size), 2);
    }
    if (mask) head[1] |= 0x80;
    return Buffer.concat([head, data]);
}
const DONE = Buffer.from(JSON.stringify({ type: "done", run: "1", result: { value: "ü" } }));

async function runOver(say) {
    upgrade = say;
    const session = await cove.kernels.connect();
    try {
        return await session.run({ code: "1" }, {});
    } finally {
        session.close();
    }
}

test("a message in parts, with a ping between them, byte by byte", async () => {
    const at = DONE.indexOf(Buffer.from("ü")) + 1; // within a character
    let pong;
    const result = await runOver(async (socket) => {
        socket.on("data", (data) => {
            if (data[0] === 0x8a) pong = data;
        });
        const bytes = Buffer.concat([frame(0x01, DONE.subarray(0, at)), frame(0x89, Buffer.from("hi")), frame(0x80, DONE.subarray(at))]);
        await new Promise((resolve) => socket.once("data", resolve)); // the run was asked for
        for (const byte of bytes) {
            socket.write(Buffer.from([byte]));
            await new Promise((resolve) => setImmediate(resolve));
        }
    });
    assert.equal(result.value, "ü");
    assert.notEqual((await until("the pong", () => pong))[1] & 0x80, 0);
});

test("what no server may send ends the connection", async () => {
    const bad = {
        masked: frame(0x81, Buffer.concat([Buffer.alloc(4), DONE]), { mask: true, size: DONE.length }),
        reserved: frame(0xc1, DONE),
        binary: frame(0x82, DONE),
        unknown: frame(0x83, DONE),
        "a part of nothing": frame(0x80, DONE),
        "a message within a message": Buffer.concat([frame(0x01, DONE), frame(0x81, DONE)]),
        "a ping in parts": frame(0x09, Buffer.from("x")),
        "a long ping": frame(0x89, Buffer.alloc(126)),
        "too large": frame(0x81, Buffer.alloc(0), { size: 65 * 1024 * 1024 }),
    };
    for (const [what, bytes] of Object.entries(bad))
        await assert.rejects(runOver((socket) => socket.once("data", () => socket.write(bytes))), (error) => code("lost")(error) && /1002/.test(error.message), what);
    await assert.rejects(runOver((socket) => socket.once("data", () => socket.write(frame(0x81, Buffer.from("no json"))))), code("lost"));
    await assert.rejects(runOver((socket) => socket.once("data", () => socket.write(frame(0x81, Buffer.from("null"))))), code("lost"));
    await assert.rejects(runOver((socket) => socket.once("data", () => socket.write(frame(0x88, Buffer.concat([Buffer.from([0x03, 0xe9]), Buffer.from("restart")]))))), (error) => code("lost")(error) && /1001.*restart/.test(error.message));
    await assert.rejects(runOver((socket) => socket.once("data", () => socket.destroy())), code("lost"));
});

test("a run that waits for its turn can be given up", async () => {
    upgrade = (socket) => socket.resume();
    const session = await cove.kernels.connect();
    const running = Array.from({ length: 64 }, () => session.run({ code: "1" }, {}).catch((error) => error));
    const controller = new AbortController();
    const waiting = session.run({ code: "1" }, {}, { signal: controller.signal });
    const last = session.run({ code: "1" }, {}).catch((error) => error);
    await new Promise((resolve) => setImmediate(resolve));
    controller.abort();
    await assert.rejects(waiting, code("aborted"));
    session.close();
    for (const error of await Promise.all([...running, last])) assert.ok(code("lost")(error));
});
