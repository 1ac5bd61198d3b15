// CoveSandbox: what becomes of an agent's work when the sandbox, or the engine, ends behind its back.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { makeEngine } from "./helper.mjs";

let engine;

before(async () => {
    engine = await makeEngine();
});
after(() => engine.end());

test("one that was deleted is made anew, once, and what was asked for is done there", async () => {
    const outcomes = [];
    const sandbox = engine.sandbox({ id: "deleted", onStart: ({ outcome }) => void outcomes.push(outcome) });
    await sandbox.executeCommand("touch /root/lost");
    await engine.cove.sandbox(sandbox.native.id).remove();
    const results = await Promise.all(Array.from({ length: 20 }, (_, i) => sandbox.executeCommand(`ls /root; echo ${i}`)));
    results.forEach(({ stdout }, i) => assert.equal(stdout, `${i}\n`));
    assert.deepEqual(outcomes, ["created", "created"]);
    assert.equal(sandbox.status, "running");

    await engine.cove.sandbox(sandbox.native.id).remove();
    const handle = await sandbox.processes.spawn("echo spawned; sleep 600");
    await engine.until(() => handle.stdout === "spawned\n");
    assert.equal(outcomes.length, 3);

    await engine.cove.sandbox(sandbox.native.id).remove();
    await sandbox.writeFiles([{ path: "/root/file", content: "written" }]);
    assert.equal((await sandbox.executeCommand("cat /root/file")).stdout, "written");
    assert.equal(outcomes.length, 4);
    // The process went with its sandbox, and says so.
    assert.deepEqual([(await handle.wait()).killed, handle.exitCode], [true, 137]);
    assert.match(handle.stderr, /sandbox/);
    assert.equal(await sandbox.processes.get("999"), undefined);
});

test("one that another object made anew is another one: its processes, its home and its mounts are looked at afresh", async () => {
    const first = engine.sandbox({ id: "remade" });
    const old = await first.processes.spawn("echo old; sleep 600");
    assert.equal(await first.resolvePath("x"), "/root/x");
    await engine.cove.sandbox(first.native.id).remove();
    assert.equal((await old.wait()).killed, true);
    const second = engine.sandbox({ id: "remade" });
    const fresh = await second.processes.spawn("echo new; exit 3");
    await fresh.wait();
    assert.equal(fresh.pid, old.pid);
    await first.executeCommand("true");
    assert.equal(first.native.id, second.native.id);
    const taken = await first.processes.get(old.pid);
    assert.deepEqual([taken.stdout, taken.exitCode], ["new\n", 3]);
});

test("one that was stopped is started again, with its disk", async () => {
    const outcomes = [];
    const sandbox = engine.sandbox({ id: "stopped", onStart: ({ outcome }) => void outcomes.push(outcome) });
    await sandbox.executeCommand("echo kept >/root/file");
    await engine.cove.sandbox(sandbox.native.id).stop();
    assert.equal((await sandbox.executeCommand("cat /root/file", [], { onStdout() {} })).stdout, "kept\n");
    assert.deepEqual(outcomes, ["created", "connected"]);
    const { pid } = await sandbox.processes.spawn("sleep 600");
    await engine.cove.sandbox(sandbox.native.id).stop();
    // To look at what ran does not need it to run.
    const { running, exitCode } = (await sandbox.processes.list()).find((each) => each.pid === pid);
    assert.deepEqual([running, exitCode], [false, 137]);
    assert.equal(outcomes.length, 2);
    await Promise.all([sandbox.processes.spawn("true"), sandbox.executeCommand("true"), sandbox.executeCommand("true")]);
    assert.equal(outcomes.length, 3);
});

test("a command that ran when its sandbox was ended has ended, and is not run again", async () => {
    const much = "head -c 2000000 /dev/zero | tr '\\0' x;";
    for (const [verb, onStdout, first = ""] of [
        ["stop", undefined], ["stop", () => {}], ["remove", undefined], ["remove", () => {}],
        // Of so much the rest is asked for when it has ended.
        ["stop", undefined, much], ["remove", undefined, much], ["remove", () => {}, much],
    ]) {
        let starts = 0;
        const sandbox = engine.sandbox({ onStart: () => void starts++ });
        await sandbox.start();
        const running = sandbox.executeCommand(`${first} touch /tmp/began; sleep 600`, [], { onStdout });
        await engine.until(async () => (await sandbox.native.exec({ command: "test -e /tmp/began" })).process.exit_code === 0);
        await engine.cove.sandbox(sandbox.native.id)[verb]();
        const outcome = await running.then((result) => result, (error) => error);
        assert.ok(outcome instanceof Error || (outcome.killed && !outcome.success), `${verb}: ${JSON.stringify(outcome)}`);
        assert.equal(starts, 1, verb);
        await sandbox._destroy();
    }
});

test("what this object stopped is not started by what was under way", async () => {
    const sandbox = engine.sandbox({ id: "quiet" });
    await sandbox.start();
    const running = Array.from({ length: 10 }, () => sandbox.executeCommand("sleep 600").catch((error) => error));
    await engine.until(async () => (await sandbox.native.view()).processes_running === 10);
    await sandbox._stop();
    for (const outcome of await Promise.all(running)) assert.notEqual(outcome.success, true);
    assert.equal(sandbox.status, "stopped");
    assert.equal((await engine.cove.get("quiet")).state, "stopped");
});

test("an error that is none of the sandbox's life stays an error", async () => {
    let starts = 0;
    const sandbox = engine.sandbox({ onStart: () => void starts++ });
    await assert.rejects(sandbox.executeCommand("true", [], { cwd: "/no/such" }));
    await assert.rejects(sandbox.native.processes.get("99"), { code: "process_not_found" });
    assert.equal(starts, 1);
});

test("an engine that is killed and started again under a working agent costs nothing but time", async () => {
    const sandbox = engine.sandbox({ id: "agent" });
    const ticker = await sandbox.processes.spawn("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo $i; sleep 0.02; done");
    const echo = await sandbox.processes.spawn("cat");
    const steps = 60;
    const engines = new Set();
    for (let i = 0; i < steps; i++) {
        if (i % 20 === 10) {
            engines.add(engine.pid());
            await engine.kill();
        }
        const [plain, listened, background] = await Promise.all([
            sandbox.executeCommand(`echo ${i} >>/root/plain; echo ${i}`),
            sandbox.executeCommand(`echo ${i} >>/root/listened; echo ${i}`, [], { onStdout() {} }),
            sandbox.processes.spawn(`echo ${i} >>/root/spawned; echo ${i}`).then((handle) => handle.wait()),
            sandbox.writeFiles([{ path: `/root/written/${i}`, content: `${i}\n` }]),
        ]);
        for (const { stdout } of [plain, listened, background]) assert.equal(stdout, `${i}\n`);
    }
    const expected = Array.from({ length: steps }, (_, i) => `${i}\n`).join("");
    for (const what of ["plain", "listened", "spawned"])
        assert.equal((await sandbox.executeCommand(`cat /root/${what}`)).stdout, expected, `each was ${what} once`);
    assert.equal((await sandbox.executeCommand("cd /root/written && cat $(ls | sort -n)")).stdout, expected);
    assert.equal(sandbox.status, "running");
    assert.equal(engines.add(engine.pid()).size, 4);

    await echo.sendStdin("still here\n");
    await engine.until(() => echo.stdout === "still here\n");
    const seen = ticker.stdout.length;
    await engine.until(() => ticker.stdout.length > seen);
    await ticker.kill();
    const lines = ticker.stdout.trim().split("\n");
    assert.deepEqual(lines, lines.map((_, i) => String(i + 1)), "no line is lost or there twice");
});
