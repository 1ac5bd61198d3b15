// CoveSandbox with a server that it did not start: by its URL, with a key.
import assert from "node:assert/strict";
import { spawn, execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { CoveError } from "@cove/client";
import { CoveSandbox } from "@cove/mastra";
import { LocalFilesystem } from "@mastra/core/workspace";
import { freePort, until } from "../../client/test/engine.mjs";

const cove = process.env.COVE_BIN || fileURLToPath(new URL("../../../../build/cove", import.meta.url));
let dir, server, url, apiKey;

before(async () => {
    dir = mkdtempSync(path.join(tmpdir(), "cove-test-"));
    delete process.env.COVE_URL;
    const socket = path.join(dir, "cove.sock");
    const listen = `127.0.0.1:${await freePort()}`;
    server = spawn(cove, ["serve", "--listen", listen, "--socket", socket, "--data", path.join(dir, "data")], {
        stdio: ["ignore", "ignore", "inherit"],
        env: { ...process.env, XDG_CONFIG_HOME: dir },
    });
    url = `http://${listen}`;
    await until("it is ready", () => fetch(`${url}/readyz`).then((answer) => answer.ok, () => false));
    apiKey = execFileSync(cove, ["key", "new", "test"], { encoding: "utf8", env: { ...process.env, COVE_URL: `unix:${socket}` } }).trim();
});

after(async () => {
    server.kill("SIGTERM");
    if (server.exitCode === null) await new Promise((resolve) => server.once("exit", resolve));
    rmSync(dir, { recursive: true, force: true });
});

test("a sandbox of a server that a URL and a key lead to", async () => {
    const sandbox = new CoveSandbox({ url, apiKey, id: "far" });
    assert.equal((await sandbox.executeCommand("echo far")).stdout, "far\n");
    assert.equal(sandbox.cove.isPrivate(), false);
    const handle = await sandbox.processes.spawn("cd /tmp && echo served >page && exec python3 -m http.server 8000");
    const at = await sandbox.networking.getPortUrl(8000, { waitMs: 60_000 });
    assert.equal(await (await fetch(`${at}/page`)).text(), "served\n");
    await handle.kill();

    const other = new CoveSandbox({ url, apiKey });
    other.mounts.add({ "/mnt": new LocalFilesystem({ basePath: dir }) });
    await other.start();
    assert.equal(other.mounts.get("/mnt").state, "error");
    await Promise.all([sandbox._destroy(), other._destroy()]);
});

test("a wrong key is an error by its code, and is in no text", async () => {
    const wrong = "wrong-secret-key";
    const sandbox = new CoveSandbox({ url, apiKey: wrong });
    await assert.rejects(sandbox.start(), (error) => {
        assert.ok(error instanceof CoveError);
        assert.equal(error.code, "bad_key");
        assert.ok(!`${error.stack}${JSON.stringify(error)}`.includes(wrong));
        return true;
    });
    assert.equal(sandbox.status, "error");
    const info = await sandbox.getInfo();
    assert.ok(!JSON.stringify(info).includes(wrong));
});

test("a server that nobody answers at is an error that says so, after a while", async () => {
    const sandbox = new CoveSandbox({ url: "http://127.0.0.1:1", retryMs: 100 });
    await assert.rejects(sandbox.executeCommand("true"), { name: "CoveError", code: "unreachable" });
});
