// Files of a real sandbox: read, written, listed, searched, watched, as bytes and as streams.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { Readable } from "node:stream";
import { after, before, test } from "node:test";
import { CoveError } from "../dist/esm/index.js";
import { startEngine, until } from "./engine.mjs";

let engine;
let sandbox;
let files;

const code = (name) => (error) => error instanceof CoveError && error.code === name;

before(async () => {
    engine = await startEngine();
    sandbox = engine.cove.sandbox((await engine.cove.create({ name: "work" })).sandbox.id);
    files = sandbox.files;
});
after(() => engine?.end());

test("bytes are written and read", async () => {
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
    const entry = await files.write("/tmp/a/b/bytes", bytes, { mode: 0o640 });
    assert.equal(entry.size, 256);
    assert.equal(entry.mode, "0640");
    assert.deepEqual(await files.read("/tmp/a/b/bytes"), bytes);
    assert.deepEqual(await files.read("/tmp/a/b/bytes", { offset: 10, length: 5 }), bytes.subarray(10, 15));
    assert.equal((await files.write("/tmp/a/text", "héllo")).size, 6);
    assert.equal((await files.read("/tmp/a/text")).toString(), "héllo");
    assert.equal((await files.write("/tmp/a/empty", "")).size, 0);
    assert.equal((await files.read("/tmp/a/empty")).length, 0);
});

test("a large file is read in little more memory than it has", async () => {
    await sandbox.exec({ command: "head -c 100663296 /dev/urandom >/tmp/large" });
    const [sum] = (await sandbox.exec({ command: "sha256sum /tmp/large" })).stdout.split(" ");
    const script = `import(${JSON.stringify(new URL("../dist/esm/index.js", import.meta.url).href)}).then(async ({ Cove }) => {
        const files = new Cove({ engine: "private" }).sandbox(${JSON.stringify(sandbox.id)}).files;
        await files.read("/etc/passwd");
        const before = process.resourceUsage().maxRSS, bytes = await files.read("/tmp/large"), after = process.resourceUsage().maxRSS;
        console.log((await import("node:crypto")).createHash("sha256").update(bytes).digest("hex"), (after - before) * 1024 / bytes.length);
        process.exit(0); })`;
    const ran = spawnSync(process.execPath, ["-e", script], { env: process.env, encoding: "utf8", timeout: 60_000 });
    const [found, times] = ran.stdout.split(" ");
    assert.equal(found, sum, ran.stderr);
    assert.ok(Number(times) < 1.7, `${times} times its size: parts that were kept and put together at the end are twice that`);
    await files.remove("/tmp/large");
});

test("what is there already is not overwritten, or in part, as it was said", async () => {
    await assert.rejects(files.write("/tmp/a/text", "x", { overwrite: false }), code("file_exists"));
    assert.equal((await files.read("/tmp/a/text")).toString(), "héllo");
    await files.write("/tmp/a/text", "!", { append: true });
    await files.write("/tmp/a/text", "H", { offset: 0 });
    assert.equal((await files.read("/tmp/a/text")).toString(), "Héllo!");
    await assert.rejects(files.write("/tmp/no/where", "x", { parents: false }), code("file_not_found"));
});

test("streams, both ways, and large", async () => {
    const part = Buffer.alloc(1 << 20, "0123456789abcdef");
    async function* parts() {
        for (let i = 0; i < 100; i++) yield part;
    }
    assert.equal((await files.write("/tmp/large", parts())).size, 100 << 20);
    let bytes = 0;
    for await (const each of await files.readStream("/tmp/large")) bytes += each.length;
    assert.equal(bytes, 100 << 20);
    assert.equal((await files.write("/tmp/copy", Readable.from(["a", "b"]))).size, 2);
    // Whoever stops reading lets go of it.
    const stream = await files.readStream("/tmp/large");
    for await (const each of stream) {
        assert.ok(each.length > 0);
        break;
    }
    assert.equal(stream.destroyed, true);
    // One that breaks off is an error, not a short file.
    const broken = await files.readStream("/tmp/large");
    await assert.rejects(async () => {
        let isKilled = false;
        for await (const each of broken)
            if (each.length > 0 && !isKilled) {
                isKilled = true;
                await engine.kill();
            }
    }, code("lost"));
    await files.remove("/tmp/large");
});

test("a stream that fails is written not at all", async () => {
    async function* broken() {
        yield "half";
        throw new Error("the disk that it is read from broke");
    }
    await assert.rejects(files.write("/tmp/broken", broken()), /broke/);
    await assert.rejects(files.stat("/tmp/broken"), code("file_not_found"));
});

test("a large body that is refused at its begin is refused with its code", async () => {
    const part = Buffer.alloc(1 << 20);
    async function* endless() {
        for (let i = 0; i < 10_000; i++) yield part;
    }
    await files.mkdir("/tmp/directory");
    await assert.rejects(files.write("/tmp/directory", endless()), code("is_a_directory"));
    await assert.rejects(files.write("/tmp/directory", Buffer.alloc(32 << 20)), code("is_a_directory"));
});

test("what it is, what is not there, what may not be", async () => {
    const entry = await files.stat("/tmp/a/text");
    assert.equal(entry.type, "file");
    await assert.rejects(files.read("/tmp/none"), (error) => code("file_not_found")(error) && error.status === 404);
    await assert.rejects(files.read("/tmp/a"), code("is_a_directory"));
    await assert.rejects(files.read("/tmp/a/text", { user: "nobody" }).then(() => files.write("/root/x", "", { user: "nobody" })), code("file_forbidden"));
    const many = await files.statMany(["/tmp/a/text", "/tmp/none"]);
    assert.equal(many[0].name, "text");
    assert.equal(many[1].error.code, "file_not_found");
    assert.deepEqual(await files.statMany([]), []);
});

test("many files in one request, whatever their names", async () => {
    const names = ["plain", 'a "quoted" name', "ünï cödé", "per%cent; filename=x", "back\\slash", "new's"];
    const outcome = await files.writeMany(names.map((name) => ({ path: `/tmp/many/${name}`, data: name })), { mode: "0600" });
    assert.deepEqual(outcome.map((each) => each.mode), names.map(() => "0600"));
    for (const name of names) assert.equal(String(await files.read(`/tmp/many/${name}`)), name);
    assert.deepEqual((await files.list("/tmp/many")).map((each) => each.name).sort(), [...names].sort());
    assert.deepEqual(await files.writeMany([]), []);
});

test("directories, links, moves, copies, modes, owners", async () => {
    await files.mkdir("/tmp/d/e", { parents: true, mode: 0o700 });
    await assert.rejects(files.mkdir("/tmp/d/e"), code("file_exists"));
    await files.symlink("/tmp/d/link", "../a/text");
    assert.equal((await files.stat("/tmp/d/link")).target, "../a/text");
    assert.equal((await files.stat("/tmp/d/link", { follow: true })).type, "file");
    await files.copy("/tmp/a/text", "/tmp/d/e/copy");
    await assert.rejects(files.copy("/tmp/a/text", "/tmp/d/e/copy"), code("file_exists"));
    await files.copy("/tmp/d", "/tmp/d2", { recursive: true });
    await files.move("/tmp/d2", "/tmp/d3");
    assert.deepEqual((await files.list("/tmp/d3", { depth: 5 })).map((each) => each.path).sort(), ["/tmp/d3/e", "/tmp/d3/e/copy", "/tmp/d3/link"]);
    assert.equal((await files.chmod("/tmp/d3/e/copy", 0o604)).mode, "0604");
    assert.equal((await files.chown("/tmp/d3/e/copy", "nobody")).user, "nobody");
    await assert.rejects(files.remove("/tmp/d3"), code("directory_not_empty"));
    assert.equal((await files.remove("/tmp/d3", { recursive: true })).count, 4);
    await assert.rejects(files.remove("/tmp/d3"), code("file_not_found"));
    assert.equal((await files.remove("/tmp/d3", { missingOk: true })).count, 0);
});

test("find and grep", async () => {
    await files.writeMany([
        { path: "/tmp/s/one.txt", data: "alpha\nbeta TODO\n" },
        { path: "/tmp/s/sub/two.md", data: "é TODO\n" },
        { path: "/tmp/s/.hidden", data: "TODO\n" },
    ]);
    const found = await files.find("/tmp/s", { type: "file", hidden: false });
    assert.deepEqual(found.items.map((each) => each.path).sort(), ["/tmp/s/one.txt", "/tmp/s/sub/two.md"]);
    assert.equal(found.truncated, false);
    const cut = await files.find("/tmp/s", { limit: 1 });
    assert.deepEqual([cut.items.length, cut.truncated, cut.reason], [1, true, "limit"]);
    const matches = await files.grep(["/tmp/s"], { pattern: "TODO", hidden: false, utf16: true });
    assert.deepEqual(
        matches.items.map((each) => [each.path, each.line, each.column_utf16]).sort(),
        [["/tmp/s/one.txt", 2, 5], ["/tmp/s/sub/two.md", 1, 2]],
    );
    await assert.rejects(files.grep("/tmp/s", { pattern: "(a" }), code("bad_pattern"));
    await assert.rejects(files.find("/tmp/none"), code("file_not_found"));
});

test("a page is not all of a large directory, but the list is", async () => {
    await sandbox.exec({ command: "mkdir /tmp/wide && cd /tmp/wide && seq 1 12000 | xargs touch" });
    assert.equal((await files.list("/tmp/wide")).length, 12_000);
});

test("more calls than a sandbox works on at once wait for their turn", async () => {
    const all = await Promise.all(Array.from({ length: 300 }, (_, i) => files.write(`/tmp/turn/${i}`, String(i))));
    assert.equal(all.length, 300);
    const back = await Promise.all(Array.from({ length: 300 }, (_, i) => files.read(`/tmp/turn/${i}`)));
    assert.deepEqual(back.map(String), Array.from({ length: 300 }, (_, i) => String(i)));
});

test("what changes is told", async () => {
    const controller = new AbortController();
    const seen = [];
    const watching = (async () => {
        for await (const line of files.watch("/tmp/a", { recursive: true, signal: controller.signal })) seen.push(`${line.type} ${line.path}`);
    })();
    await until("it watches", () => seen.length > 0);
    await files.write("/tmp/a/new", "x");
    await until("it is told", () => seen.some((each) => each.includes("/tmp/a/new")));
    controller.abort();
    await assert.rejects(watching, code("aborted"));
});

test("tars, out and in", async () => {
    const parts = [];
    for await (const part of await files.readTar(["/tmp/s"])) parts.push(part);
    const counts = await files.writeTar("/tmp/untar", Buffer.concat(parts));
    assert.ok(counts.count >= 4);
    assert.equal((await files.find("/tmp/untar", { type: "file" })).items.length, 3);
    const again = await files.writeTar("/tmp/untar2", await files.readTar(["/tmp/s"]));
    assert.equal(again.count, counts.count);
});

test("a sandbox that is stopped shows its files", async () => {
    await files.write("/root/kept", "kept");
    await sandbox.stop();
    assert.equal(String(await files.read("/root/kept")), "kept");
    await sandbox.start();
});

test("an abort is heard, also of what waits", async () => {
    await assert.rejects(files.read("/tmp/a/text", { signal: AbortSignal.abort() }), code("aborted"));
    const controller = new AbortController();
    async function* slow() {
        yield "begin";
        await new Promise((resolve) => setTimeout(resolve, 20));
        controller.abort();
        await new Promise((resolve) => setTimeout(resolve, 20));
        yield "end";
    }
    await assert.rejects(files.write("/tmp/slow", slow(), { signal: controller.signal }), code("aborted"));
    await assert.rejects(files.stat("/tmp/slow"), code("file_not_found"));
});
