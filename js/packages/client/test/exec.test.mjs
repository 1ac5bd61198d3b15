// Sandboxes and commands of a real engine: made, run, followed, written to, killed.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { CoveError } from "../dist/esm/index.js";
import { startEngine, until } from "./engine.mjs";

let engine;
let cove;
let sandbox;

const code = (name) => (error) => error instanceof CoveError && error.code === name;

before(async () => {
    engine = await startEngine();
    cove = engine.cove;
    sandbox = cove.sandbox((await cove.create({ name: "work", disk_kind: "ephemeral" })).sandbox.id);
});
after(() => engine?.end());

test("it found an engine of this user's own", async () => {
    assert.equal(cove.isPrivate(), true);
    assert.equal(cove.address, `unix:${engine.socket}`);
    assert.equal((await cove.version()).api, "v1");
});

test("create is get-or-create by name", async () => {
    const again = await cove.create({ name: "work", disk_kind: "ephemeral" });
    assert.equal(again.created, false);
    assert.equal(again.sandbox.id, sandbox.id);
    assert.equal((await cove.get("work")).id, sandbox.id);
    assert.equal((await cove.get(sandbox.id)).name, "work");
    assert.equal((await cove.find("work")).id, sandbox.id);
    assert.equal(await cove.find("nobody"), undefined);
    await assert.rejects(cove.get("nobody"), code("sandbox_not_found"));
    const all = [];
    for await (const each of cove.list({ name_prefix: "wo" })) all.push(each.id);
    assert.deepEqual(all, [sandbox.id]);
});

test("a command and its result", async () => {
    const result = await sandbox.exec({ command: "echo out; echo err >&2; exit 3" });
    assert.equal(result.stdout, "out\n");
    assert.equal(result.stderr, "err\n");
    assert.equal(result.process.exit_code, 3);
    assert.equal(result.process.state, "exited");
});

test("standard input: text, bytes, and what JSON cannot hold", async () => {
    assert.equal((await sandbox.exec({ argv: ["cat"] }, { stdin: "héllo" })).stdout, "héllo");
    const bytes = Buffer.from([0, 255, 1, 254]);
    const back = await sandbox.exec({ argv: ["cat"] }, { stdin: bytes });
    assert.deepEqual(Buffer.from(back.stdout_base64, "base64"), bytes);
    assert.equal((await sandbox.exec({ command: "wc -c" }, { stdin: "a\0b" })).stdout.trim(), "3");
});

test("a timeout is a result", async () => {
    const result = await sandbox.exec({ command: "echo before; sleep 60", timeout_ms: 5000 });
    assert.equal(result.process.timed_out, true);
    assert.equal(result.process.exit_code, 124);
    assert.equal(result.stdout, "before\n");
});

test("what cannot be begun is an error with its code", async () => {
    await assert.rejects(sandbox.exec({ argv: ["no-such-program"] }), code("command_not_found"));
    await assert.rejects(sandbox.exec({ command: "true", cwd: "/nowhere" }), code("bad_cwd"));
    await assert.rejects(sandbox.exec({ command: "true", nonsense: 1 }), (error) => error.code === "bad_request" && /nonsense/.test(error.message));
    await assert.rejects(cove.sandbox("c0000000000000000000").exec({ command: "true" }), code("sandbox_not_found"));
});

test("what fails after the command began says so", async () => {
    for (const listens of [undefined, () => {}]) {
        const other = cove.sandbox((await cove.create({ disk_kind: "ephemeral" })).sandbox.id);
        const running = other.exec(
            { command: "head -c 2000000 /dev/zero; >/tmp/printed; sleep 600" },
            { maxRetainedBytes: Infinity, onStdout: listens },
        );
        const outcome = running.then((result) => result.process.state, (error) => error);
        await until("it has printed", async () => (await other.exec({ command: "ls /tmp/printed 2>/dev/null" })).stdout !== "");
        await other.remove();
        const end = await outcome;
        if (end !== "lost") assert.ok(end instanceof CoveError && end.begun, String(end));
        await assert.rejects(other.exec({ command: "true" }), (error) => code("sandbox_gone")(error) && error.begun === false);
    }
});

test("a listener that throws ends the command, too", async () => {
    const running = sandbox.exec({ command: "echo one; sleep 605" }, { onStdout: () => { throw new Error("deaf"); } });
    await assert.rejects(running, /deaf/);
    await until("it is gone", async () => (await sandbox.exec({ command: "pgrep -fc 'sleep 60[5]'" })).stdout.trim() === "0");
});

test("output as it comes", async () => {
    const seen = [];
    const result = await sandbox.exec(
        { command: "echo one; read line <&3 || true; echo two >&2; exit 4", timeout_ms: 30000 },
        {
            onStdout: (bytes) => seen.push(`out:${bytes}`),
            onStderr: (bytes) => seen.push(`err:${bytes}`),
        },
    );
    assert.equal(seen.filter((text) => text.startsWith("out:")).map((text) => text.slice(4)).join(""), "one\n");
    assert.equal(result.stdout, "one\n");
    assert.match(result.stderr, /two\n$/);
    assert.equal(result.process.exit_code, 4);
});

test("output comes before the command ends", async () => {
    let heard;
    const first = new Promise((resolve) => (heard = resolve));
    const running = sandbox.exec({ command: "echo ready; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo done" }, { onStdout: (bytes) => heard(String(bytes)) });
    assert.equal(await first, "ready\n");
    await sandbox.files.write("/tmp/go", "");
    assert.equal((await running).stdout, "ready\ndone\n");
});

test("large output: the newest of it, or all", async () => {
    const command = "yes 0123456789abcde | head -c 8000000";
    const some = await sandbox.exec({ command }, { maxRetainedBytes: 100 });
    assert.equal(Buffer.byteLength(some.stdout), 100);
    assert.equal(some.stdout_dropped_bytes, 8_000_000 - 100);
    const usual = await sandbox.exec({ command });
    assert.equal(usual.stdout.length, 1_048_576);
    const all = await sandbox.exec({ command }, { maxRetainedBytes: Infinity });
    assert.equal(all.stdout.length, 8_000_000);
    assert.equal(all.stdout_dropped_bytes, 0);
    let bytes = 0;
    const heard = await sandbox.exec({ command }, { maxRetainedBytes: 1000, onStdout: (part) => (bytes += part.length) });
    assert.equal(bytes, 8_000_000);
    assert.equal(heard.stdout, all.stdout.slice(-1000));
    assert.equal(heard.stdout_dropped_bytes, 8_000_000 - 1000);
    const none = await sandbox.exec({ command: "echo x" }, { maxRetainedBytes: 0 });
    assert.equal(none.stdout, "");
    assert.equal(none.stdout_dropped_bytes, 2);
});

test("what is cut off begins with a whole character, and what is no UTF-8 is exact", async () => {
    const text = "é".repeat(1000);
    for (const listens of [undefined, () => {}]) {
        const cut = await sandbox.exec({ command: `printf %s '${text}'` }, { maxRetainedBytes: 101, onStdout: listens });
        assert.equal(cut.stdout, "é".repeat(50));
        assert.equal(cut.stdout_dropped_bytes, 1900);
        const bytes = await sandbox.exec({ command: "printf 'a\\377b'" }, { onStdout: listens });
        assert.equal(bytes.stdout, "a\ufffdb");
        assert.equal(Buffer.from(bytes.stdout_base64, "base64").toString("latin1"), "a\u00ffb");
    }
});

for (const listens of [undefined, () => {}]) {
    const how = listens ? "started and followed" : "one request";
    test(`an abort kills the command, ${how}`, async () => {
        const file = `/tmp/abort-${listens ? 1 : 0}`;
        const controller = new AbortController();
        const running = sandbox.exec(
            { command: `echo $$ >${file}; sleep 600 & sleep 600` },
            { signal: controller.signal, onStdout: listens },
        );
        await until("it runs", async () => (await sandbox.exec({ command: `cat ${file} 2>/dev/null` })).stdout !== "");
        controller.abort(new Error("enough"));
        await assert.rejects(running, (error) => code("aborted")(error) && error.cause.message === "enough");
        await until("it is gone", async () => (await sandbox.exec({ command: "pgrep -c sleep" })).stdout.trim() === "0");
    });

    test(`an abort can give the result, ${how}`, async () => {
        const file = `/tmp/result-${listens ? 1 : 0}`;
        const controller = new AbortController();
        const running = sandbox.exec(
            { command: `echo began; >${file}; sleep 600` },
            { signal: controller.signal, onAbort: "kill", onStdout: listens },
        );
        await until("it runs", async () => (await sandbox.exec({ command: `ls ${file} 2>/dev/null` })).stdout !== "");
        controller.abort();
        const result = await running;
        assert.equal(result.stdout, "began\n");
        assert.equal(result.process.signal, "SIGKILL");
    });

    test(`an abort can give all of a large result, ${how}`, async () => {
        const file = `/tmp/large-${listens ? 1 : 0}`;
        const controller = new AbortController();
        const running = sandbox.exec(
            { command: `head -c 2000000 /dev/zero; >${file}; sleep 600` },
            { signal: controller.signal, onAbort: "kill", onStdout: listens, maxRetainedBytes: Infinity },
        );
        await until("it has printed", async () => (await sandbox.exec({ command: `ls ${file} 2>/dev/null` })).stdout !== "");
        controller.abort();
        const result = await running;
        assert.equal(result.stdout.length, 2_000_000);
        assert.equal(result.process.signal, "SIGKILL");
    });

    test(`an abort at any moment leaves nothing behind, ${how}`, async () => {
        for (let turn = 0; turn < 20; turn++) {
            const controller = new AbortController();
            const running = sandbox.exec({ command: "sleep 601" }, { signal: controller.signal, onStdout: listens });
            if (turn === 0) controller.abort();
            else setTimeout(() => controller.abort(), turn / 4);
            await assert.rejects(running, code("aborted"));
        }
        await until("all are gone", async () => (await sandbox.exec({ command: "pgrep -fc 'sleep 60[1]'" })).stdout.trim() === "0");
    });
}

test("an abort kills one command, though others have its tag", async () => {
    const tag = "shared";
    const other = await sandbox.processes.start({ argv: ["sleep", "600"], tag });
    for (const onAbort of ["throw", "kill"]) {
        const controller = new AbortController();
        const running = sandbox.exec({ command: "sleep 604", tag }, { signal: controller.signal, onAbort });
        await until("it runs", async () => (await sandbox.exec({ command: "pgrep -fc 'sleep 60[4]'" })).stdout.trim() !== "0");
        controller.abort();
        if (onAbort === "throw") await assert.rejects(running, code("aborted"));
        else assert.equal((await running).process.signal, "SIGKILL");
        await until("it is gone", async () => (await sandbox.exec({ command: "pgrep -fc 'sleep 60[4]'" })).stdout.trim() === "0");
    }
    assert.equal((await sandbox.processes.get(other.id)).state, "running");
    await sandbox.processes.kill(other.id);
});

test("a signal that is aborted already begins nothing", async () => {
    await assert.rejects(sandbox.exec({ command: "echo x >/tmp/never" }, { signal: AbortSignal.abort() }), code("aborted"));
    await assert.rejects(sandbox.files.stat("/tmp/never"), code("file_not_found"));
});

test("processes: started, followed, fed, signalled, killed, forgotten", async () => {
    const { processes } = sandbox;
    const cat = await processes.start({ argv: ["cat"], open_stdin: true, tag: "my cat" });
    assert.equal(cat.tag, "my cat");
    await processes.stdin(cat.id, "one\n");
    await processes.stdin(cat.id, Buffer.from("two\n"));
    const parts = [];
    let end;
    for await (const each of processes.follow(cat.id)) {
        if (each.type === "data") {
            parts.push(each.data);
            if (Buffer.concat(parts).length === 8) await processes.closeStdin(cat.id);
        } else if (each.type === "exit") end = each.process;
    }
    assert.equal(String(Buffer.concat(parts)), "one\ntwo\n");
    assert.equal(end.exit_code, 0);
    await assert.rejects(processes.stdin(cat.id, "more"), code("process_ended"));

    const output = await processes.output(cat.id, { offset: 4 });
    assert.deepEqual([String(output.data), output.from, output.next, output.ended], ["two\n", 4, 8, true]);

    const sleeper = await processes.start({ argv: ["sleep", "600"] });
    assert.equal((await processes.wait(sleeper.id, { timeoutMs: 0 })).state, "running");
    await assert.rejects(processes.forget(sleeper.id), code("process_running"));
    await processes.signal(sleeper.id, "TERM");
    assert.equal((await processes.wait(sleeper.id)).signal, "SIGTERM");
    assert.equal(await processes.kill(sleeper.id), false);
    assert.equal((await processes.get(sleeper.id)).state, "exited");
    await processes.forget(sleeper.id);
    await assert.rejects(processes.get(sleeper.id), code("process_not_found"));

    const tree = await processes.start({ command: "trap '' TERM; setsid sleep 602 & wait" });
    assert.equal(await processes.kill(tree.id), true);
    await until("all of it is gone", async () => (await sandbox.exec({ command: "pgrep -fc 'sleep 60[2]'" })).stdout.trim() === "0");
    assert.ok((await processes.list()).some((each) => each.id === tree.id));
});

test("a follower that stops listening ends its connection, not the process", async () => {
    const { processes } = sandbox;
    const ticker = await processes.start({ command: "while echo tick; do sleep 0.05; done" });
    for await (const each of processes.follow(ticker.id)) if (each.type === "data") break;
    assert.equal((await processes.get(ticker.id)).state, "running");
    const controller = new AbortController();
    await assert.rejects(async () => {
        for await (const each of processes.follow(ticker.id, { signal: controller.signal })) if (each.type === "data") controller.abort();
    }, code("aborted"));
    await processes.kill(ticker.id);
});

test("200 commands at once", async () => {
    const results = await Promise.all(Array.from({ length: 200 }, (_, i) => sandbox.exec({ argv: ["echo", String(i)] })));
    assert.deepEqual(results.map((each) => each.stdout.trim()), Array.from({ length: 200 }, (_, i) => String(i)));
});

test("stop and start, and what a stopped sandbox answers", async () => {
    const other = cove.sandbox((await cove.create({ name: "other" })).sandbox.id);
    await other.exec({ command: "echo kept >/root/note" });
    assert.equal((await other.stop()).state, "stopped");
    await assert.rejects(other.exec({ command: "true" }), code("sandbox_stopped"));
    assert.equal((await other.exec({ command: "cat /root/note", start: true })).stdout, "kept\n");
    assert.equal((await other.start()).state, "running");
    await other.update({ labels: { a: "b" } });
    assert.deepEqual((await other.view()).labels, { a: "b" });
    assert.equal((await other.usage()).state, "running");
    await other.remove();
    await other.remove();
    await assert.rejects(other.view(), code("sandbox_gone"));
});

test("events tell what happens", async () => {
    const controller = new AbortController();
    const heard = [];
    const listening = (async () => {
        for await (const event of cove.events({ from: 1 }, { signal: controller.signal })) {
            heard.push(event.type);
            if (event.type === "sandbox.created" && event.sandbox === sandbox.id) return;
        }
    })();
    await listening;
    assert.ok(heard.includes("sandbox.created"));
    controller.abort();
});

test("ports: what listens is opened, and reached", async () => {
    const server = await sandbox.processes.start({
        argv: ["python3", "-c", "import http.server; http.server.test(HandlerClass=http.server.SimpleHTTPRequestHandler, port=8123, bind='127.0.0.1')"],
        cwd: "/tmp",
    });
    await until("it listens", async () => (await sandbox.ports.list()).some((each) => each.port === 8123 && each.listening));
    assert.equal(await sandbox.ports.url(8123), null);
    const { url } = await sandbox.ports.open(8123);
    assert.equal(await sandbox.ports.url(8123), url);
    assert.equal((await fetch(url)).status, 200);
    await sandbox.ports.close(8123);
    assert.equal(await sandbox.ports.url(8123), null);
    await sandbox.processes.kill(server.id);
});

test("a directory of the host is registered, once or again, and given to a sandbox", async () => {
    const { closeSync, mkdirSync, openSync, renameSync, writeFileSync, rmSync } = await import("node:fs");
    const path = `${engine.dir}/a directory`;
    mkdirSync(path);
    writeFileSync(`${path}/note`, "from outside");
    await cove.registerMount("notes", path, { readOnly: true });
    await cove.registerMount("notes", path, { readOnly: true });
    await assert.rejects(cove.registerMount("notes", path), code("mount_failed"));
    await assert.rejects(cove.registerMount("notes", engine.dir, { readOnly: true }), code("mount_failed"));
    const reader = cove.sandbox((await cove.create({ disk_kind: "ephemeral", mounts: [{ name: "notes", target: "/notes" }] })).sandbox.id);
    assert.equal((await reader.exec({ command: "cat /notes/note" })).stdout, "from outside");
    const later = { name: "notes", target: "/later/notes", read_only: true };
    if (process.getuid() === 0) {
        assert.deepEqual((await reader.mount(later)).mounts.at(-1), later);
        assert.equal((await reader.exec({ command: "cat /later/notes/note" })).stdout, "from outside");
        await reader.unmount("/later/notes");
        assert.equal((await reader.exec({ command: "ls /later/notes" })).stdout, "");
        await assert.rejects(reader.unmount("/later/notes"), code("mount_not_found"));
    } else {
        await assert.rejects(reader.mount(later), code("mount_refused"));
    }
    await reader.remove();
    rmSync(path, { recursive: true });
    mkdirSync(path);
    await cove.registerMount("notes", path, { readOnly: true });
    await cove.unregisterMount("notes");
    // By the descriptor by which it is open, also if that is for its path alone; the path can lead elsewhere by then.
    const open = openSync(path, 0o10000000);
    renameSync(path, `${path} moved`);
    mkdirSync(path);
    await cove.registerMount("notes", open, { readOnly: true });
    await cove.registerMount("notes", open, { readOnly: true });
    await assert.rejects(cove.registerMount("notes", path, { readOnly: true }), code("mount_failed"));
    closeSync(open);
    assert.equal((await cove.registeredMounts()).find(({ name }) => name === "notes").path, `${path} moved`);
    await cove.unregisterMount("notes");
    assert.deepEqual((await cove.roots()).mounts, []);
});
