// CoveSandbox: background processes, their handles, their input, and how they outlive the program that started them.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { makeEngine } from "./helper.mjs";

let engine, sandbox;

before(async () => {
    engine = await makeEngine();
    sandbox = engine.sandbox({ id: "processes" });
    await sandbox.start();
});
after(() => engine.end());

test("a handle has the output, the exit code and one result, however often it is waited for", async () => {
    const chunks = [];
    const handle = await sandbox.processes.spawn("echo out; echo err >&2; exit 5", { onStdout: (text) => chunks.push(text) });
    assert.match(handle.pid, /^\d+$/);
    assert.equal(handle.command, "echo out; echo err >&2; exit 5");
    const [first, second] = await Promise.all([handle.wait(), handle.wait()]);
    assert.deepEqual(first, second);
    assert.deepEqual([first.exitCode, first.stdout, first.stderr, first.killed], [5, "out\n", "err\n", false]);
    assert.deepEqual([handle.exitCode, handle.stdout, chunks.join("")], [5, "out\n", "out\n"]);
    assert.equal(await handle.kill(), false);
    await assert.rejects(handle.sendStdin("x"), /exited with code 5/);
});

test("what runs is listed by the engine; what executeCommand ran is not", async () => {
    const handle = await sandbox.processes.spawn("sleep 600");
    await sandbox.executeCommand("echo nobody's");
    await sandbox.executeCommand("echo nobody's", [], { onStdout: () => {} });
    const listed = await engine.sandbox({ id: "processes" }).processes.list();
    assert.ok(listed.every(({ command }) => !command?.includes("nobody's")));
    const { running, command } = listed.find(({ pid }) => pid === handle.pid);
    assert.equal(running, true);
    assert.match(command, /sleep 600/);
    assert.equal(await sandbox.processes.kill(handle.pid), true);
    assert.equal(await sandbox.processes.kill(handle.pid), false);
    assert.equal(await sandbox.processes.get(handle.pid), undefined);
    assert.equal(await sandbox.processes.get("no such"), undefined);
    assert.equal(await sandbox.processes.get("123456"), undefined);
});

test("a sandbox in which nothing was started lists nothing, also when its home was looked for", async () => {
    const own = engine.sandbox();
    await own.filesystem.writeFile("relative", "x");
    assert.equal(await own.resolvePath("relative"), "/root/relative");
    assert.deepEqual(await own.processes.list(), []);
});

test("one that has exited is answered once, with its output", async () => {
    const handle = await sandbox.processes.spawn("echo once");
    await handle.wait();
    const found = (await sandbox.processes.list()).find(({ pid }) => pid === handle.pid);
    assert.deepEqual([found.running, found.exitCode], [false, 0]);
    assert.equal((await sandbox.processes.get(handle.pid)).stdout, "once\n");
    assert.equal(await sandbox.processes.get(handle.pid), undefined);
    assert.ok(!(await sandbox.processes.list()).some(({ pid }) => pid === handle.pid));
});

test("kill takes all that it started, also what left its group and does not listen", async () => {
    const handle = await sandbox.processes.spawn(
        `trap '' TERM; (trap '' TERM; ${engine.hasCgroups ? "setsid" : ""} sh -c 'sleep 765.5; true' &); echo up; sleep 765.5`,
    );
    await engine.until(() => handle.stdout === "up\n");
    assert.equal(await handle.kill(), true);
    const result = await handle.wait();
    assert.deepEqual([result.success, result.exitCode, result.killed, result.stdout], [false, 137, true, "up\n"]);
    await engine.until(async () => (await sandbox.executeCommand("ps -e -o args | grep -c '[7]65.5'")).stdout.trim() === "0");
});

test("input is written in order, and closed", async () => {
    const handle = await sandbox.processes.spawn("cat");
    const parts = Array.from({ length: 100 }, (_, i) => `${i} ä\n`);
    await Promise.all(parts.map((part) => handle.sendStdin(part)));
    await handle.closeStdin();
    assert.equal((await handle.wait()).stdout, parts.join(""));
    await assert.rejects(handle.closeStdin(), /exited/);
    const twice = await sandbox.processes.spawn("cat; sleep 600");
    await Promise.all([twice.closeStdin(), twice.closeStdin()]);
    await assert.rejects(twice.sendStdin("x"), { code: "stdin_closed" });
    await twice.kill();

    const piped = await sandbox.processes.spawn("tr a-z A-Z; echo end");
    piped.writer.write("through ");
    piped.writer.end("a pipe\n");
    const read = [];
    for await (const chunk of piped.reader) read.push(chunk);
    assert.equal(Buffer.concat(read).toString(), "THROUGH A PIPE\nend\n");

    const large = "x".repeat(3_000_000);
    const counted = await sandbox.processes.spawn("wc -c");
    await counted.sendStdin(large);
    await counted.closeStdin();
    assert.equal((await counted.wait()).stdout.trim(), String(large.length));
});

test("input that is ignored is at its end from the begin", async () => {
    const handle = await sandbox.processes.spawn("cat; echo end; exec sleep 600", { stdinMode: "ignore" });
    await engine.until(() => handle.stdout === "end\n");
    await assert.rejects(handle.sendStdin("x"), /does not have stdin/);
    await assert.rejects(handle.closeStdin(), /does not have stdin/);
    await handle.kill();
});

test("of a long output the newest is retained", async () => {
    const print = "head -c 3000000 /dev/zero | tr '\\0' x; printf end";
    const result = await (await sandbox.processes.spawn(print)).wait();
    assert.deepEqual([result.stdout.length, result.stdoutTruncated, result.stdoutDroppedBytes], [1048576, true, 3000003 - 1048576]);
    const few = await (await sandbox.processes.spawn(print, { maxRetainedBytes: 4 })).wait();
    assert.deepEqual([few.stdout, few.stdoutDroppedBytes], ["xend", 2999999]);
    await assert.rejects(sandbox.processes.spawn("true", { maxRetainedBytes: -1 }), RangeError);
});

test("a timeout ends it, and without one it has none", async () => {
    const handle = await sandbox.processes.spawn("echo up; sleep 600", { timeout: 5_000 });
    const result = await handle.wait();
    assert.deepEqual([result.exitCode, result.timedOut, result.stdout], [124, true, "up\n"]);
    assert.match(result.stderr, /timed out after 5000ms/);
});

test("one that was taken up and ran into its timeout says so, without a time that nobody told", async () => {
    const { id } = await sandbox.native.processes.start({ command: "echo up; sleep 600", timeout_ms: 1_000 });
    const taken = await sandbox.processes.get(id);
    const result = await taken.wait();
    assert.deepEqual([result.exitCode, result.timedOut], [124, true]);
    assert.match(result.stderr, /timed out$/);
});

test("a listener that throws is told of by wait(), when all that was printed is there", async () => {
    let calls = 0;
    const handle = await sandbox.processes.spawn("echo one; read x; echo two", {
        onStdout() {
            calls++;
            throw new Error("mine");
        },
    });
    await engine.until(() => calls === 1);
    await handle.sendStdin("\n");
    await assert.rejects(handle.wait(), /^Error: mine$/);
    assert.deepEqual([handle.stdout, handle.exitCode, calls], ["one\ntwo\n", 0, 2]);
});

test("kill() of one whose listener threw kills it, and says that it did", async () => {
    const handle = await sandbox.processes.spawn("echo one; sleep 600", {
        onStdout() {
            throw new Error("mine");
        },
    });
    await engine.until(() => handle.stdout === "one\n");
    assert.equal(await handle.kill(), true);
});

test("a signal kills it, also when it fires while it is waited for; one that fired before starts nothing", async () => {
    const own = new AbortController();
    const handle = await sandbox.processes.spawn("echo up; sleep 600", { abortSignal: own.signal, onStdout: () => own.abort() });
    assert.deepEqual([(await handle.wait()).exitCode, handle.stdout], [137, "up\n"]);

    const waiting = new AbortController();
    const other = await sandbox.processes.spawn("sleep 600");
    setImmediate(() => waiting.abort());
    assert.equal((await other.wait({ abortSignal: waiting.signal })).killed, true);

    const never = await sandbox.processes.spawn("touch /tmp/never-spawned", { abortSignal: AbortSignal.abort() });
    assert.deepEqual([(await never.wait()).success, never.exitCode, await never.kill()], [false, 137, false]);
    assert.equal((await sandbox.executeCommand("test -e /tmp/never-spawned")).exitCode, 1);
});

/** Runs a program that is a client of its own, to its end. */
async function client(source) {
    const child = spawn(process.execPath, ["--input-type=module", "--eval", source], {
        cwd: fileURLToPath(new URL(".", import.meta.url)),
        env: { ...process.env, ...engine.env },
        stdio: ["ignore", "pipe", "inherit"],
    });
    let printed = "";
    child.stdout.on("data", (data) => (printed += data));
    const code = await new Promise((resolve) => child.on("close", resolve));
    assert.equal(code, 0);
    return JSON.parse(printed);
}

test("processes outlive the program that started them, and another one takes them up with their output", async () => {
    const { pids } = await client(`
        import { CoveSandbox } from "@cove/mastra";
        const sandbox = new CoveSandbox({ id: "taken-up", engine: "private" });
        const { processes } = sandbox;
        const server = await processes.spawn("echo up; printf '\\\\303'; while read line; do echo \\"got $line\\"; done");
        const long = await processes.spawn("head -c 2500000 /dev/zero | tr '\\\\0' x; echo end; sleep 600", { stdinMode: "ignore" });
        const done = await processes.spawn("echo done; exit 7");
        while (!server.stdout.includes("up") || !long.stdout.endsWith("end\\n")) await new Promise((r) => setTimeout(r, 10));
        await done.wait();
        console.log(JSON.stringify({ pids: [server.pid, long.pid, done.pid] }));
        process.exit(0);
    `);
    const again = engine.sandbox({ id: "taken-up" });
    const listed = await again.processes.list();
    assert.deepEqual(listed.map(({ pid, running }) => [pid, running]), pids.map((pid, i) => [pid, i < 2]));
    const [server, long, done] = await Promise.all(pids.map((pid) => again.processes.get(pid)));
    assert.equal(await again.processes.get(pids[0]), server);
    assert.deepEqual([done.exitCode, done.stdout], [7, "done\n"]);
    assert.equal(await again.processes.get(pids[2]), undefined);
    assert.deepEqual([long.exitCode, long.stdout.length, long.stdoutDroppedBytes], [undefined, 1048576, 2500004 - 1048576]);
    assert.ok(long.stdout.endsWith("xend\n"));
    // A character that was begun before is whole when the rest of it comes.
    assert.equal(server.stdout, "up\n");
    await server.sendStdin("one\n");
    await engine.until(() => server.stdout.includes("one"));
    assert.equal(server.stdout, "up\n\uFFFDgot one\n");
    assert.equal(await again.processes.kill(server.pid), true);
    assert.equal(await long.kill(), true);
    assert.equal((await server.wait()).exitCode, 137);
});

test("the tools' default ties a background process to the agent's signal, and null lets it go", async () => {
    const agent = new AbortController();
    const tied = await sandbox.processes.spawn("sleep 600", { abortSignal: agent.signal, stdinMode: "ignore" });
    const free = await sandbox.processes.spawn("sleep 600", { abortSignal: undefined, stdinMode: "ignore" });
    agent.abort();
    assert.equal((await tied.wait()).killed, true);
    assert.equal((await sandbox.native.processes.get(free.pid)).state, "running");
    await free.kill();
});
