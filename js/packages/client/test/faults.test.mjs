// An address that leads to no server: one sentence says what is wrong there, and what to do.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { createServer as createTlsServer } from "node:tls";
import { Cove } from "../dist/esm/index.js";

async function listening(t, server) {
    const sockets = new Set();
    server.on("connection", (socket) => sockets.add(socket.on("error", () => {})));
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    t.after(() => {
        sockets.forEach((socket) => socket.destroy());
        server.close();
    });
    return server.address().port;
}

function fails(url, code, says) {
    return assert.rejects(new Cove({ url, apiKey: "cove_none" }).connect(), (error) => {
        assert.equal(error.code, code, error.message);
        assert.match(error.message, says);
        assert.ok(!error.message.includes("\n"), error.message);
        return true;
    });
}

test("https to a server that speaks no TLS", async (t) => {
    const port = await listening(t, createServer((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")));
    await fails(`https://127.0.0.1:${port}`, "unreachable", /no TLS comes about \(EPROTO\); check the port.* begin the address with http$/);
});

test("a server that speaks no HTTP", async (t) => {
    const port = await listening(t, createServer((socket) => socket.end("SSH-2.0-other\r\n")));
    await fails(`http://127.0.0.1:${port}`, "bad_answer", /the answer is no HTTP .* of a cove server, and whether it has to begin with https$/);
});

test("a name that leads nowhere", async () => {
    await fails("http://nobody.invalid:7070", "unreachable", /the name of the server leads nowhere .*; check the address$/);
});

test("a certificate of other names", async (t) => {
    const dir = mkdtempSync(path.join(tmpdir(), "cove-faults-"));
    t.after(() => rmSync(dir, { recursive: true }));
    const [key, cert] = ["key", "cert"].map((name) => path.join(dir, name));
    const words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x -days 2".split(" ");
    const names = ["-addext", "subjectAltName=DNS:other.example.com", "-keyout", key, "-out", cert];
    execFileSync("openssl", [...words, ...names], { stdio: "ignore" });
    const port = await listening(t, createTlsServer({ key: readFileSync(key), cert: readFileSync(cert) }));
    // Node reads its authorities at its start.
    const program = `import { Cove } from ${JSON.stringify(new URL("../dist/esm/index.js", import.meta.url).href)};
        await new Cove({ url: "https://localhost:${port}", apiKey: "x" }).connect().catch((error) => console.log(error.message));`;
    const said = await new Promise((resolve, reject) =>
        execFile(process.execPath, ["--input-type=module", "-e", program], { env: { ...process.env, NODE_EXTRA_CA_CERTS: cert } },
            (error, out) => (error ? reject(error) : resolve(out))));
    assert.match(said, /its certificate is for other names .*; use one of them as the address\n$/);
});

test("a server that takes the connection and says nothing", async (t) => {
    const port = await listening(t, createServer(() => t.mock.timers.tick(30_000)));
    t.mock.timers.enable({ apis: ["setTimeout"] });
    await fails(`http://127.0.0.1:${port}`, "unreachable", /the server does not answer in 30 seconds; see whether it is busy/);
});
