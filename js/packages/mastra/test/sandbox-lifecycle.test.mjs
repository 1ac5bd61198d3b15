// CoveSandbox: what it is made with, how it starts, stops and goes, and what it says of itself.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { inspect } from "node:util";
import { Cove } from "@cove/client";
import { CoveSandbox } from "@cove/mastra";
import { MastraSandbox, SandboxNotReadyError, supportsNetworking, Workspace } from "@mastra/core/workspace";
import { makeEngine } from "./helper.mjs";

const NOWHERE = "http://127.0.0.1:1";
let engine;

before(async () => {
    engine = await makeEngine();
});
after(() => engine.end());

test("what is misspelt or contradicts itself is refused", () => {
    assert.throws(() => new CoveSandbox({ memory: 5 }), /no option "memory".*resources/s);
    assert.throws(() => new CoveSandbox({ resources: { ram: 5 } }), /resources.*no option "ram"/s);
    assert.throws(() => new CoveSandbox({ network: { hosts: [] } }), /no option "hosts"/);
    assert.throws(() => new CoveSandbox({ tier: "kernel" }), /tier "kernel" .*CoveCodeModeTransport/);
    assert.throws(() => new CoveSandbox({ network: "all" }), /"none", "public" or a policy/);
    assert.throws(() => new CoveSandbox({ lifecycle: { idleMs: 5 } }), /no option "idleMs"/);
    assert.throws(() => new CoveSandbox({ timeout: -1 }), RangeError);
    assert.throws(() => new CoveSandbox({ ports: ["3000"] }), /ports: "3000" is none; ports are numbers from 1 to 65535/);
    assert.throws(() => new CoveSandbox({ ports: 3000 }), /ports: 3000 is no list; write \[3000\]/);
    assert.throws(() => new CoveSandbox({ network: { allow: "example.com" } }), /network\.allow: "example\.com" is no list; write \["example\.com"\]/);
    for (const options of [
        { resources: { memory: NaN } }, { resources: { memory: Infinity } }, { resources: { disk: -1 } }, { resources: { cpus: NaN } },
        { resources: { cpus: 0 } }, { resources: { pids: Infinity } }, { resources: { pids: 1.5 } }, { lifecycle: { idle: NaN } },
        { lifecycle: { lifetime: NaN } }, { lifecycle: { lifetime: -1 } }, { ports: [NaN] }, { ports: [{ port: 65536 }] },
        ...["connections", "lookupsPerSecond", "bytesPerSecond", "bytes"].map((bound) => ({ network: { [bound]: NaN } })),
    ])
        assert.throws(() => new CoveSandbox(options), RangeError, JSON.stringify(Object.keys(Object.values(options)[0])));
    assert.throws(() => new CoveSandbox({ workingDirectory: "src" }), /must be absolute/);
    assert.throws(() => new CoveSandbox({ cove: new Cove({ url: NOWHERE }), url: NOWHERE }), /leave one of them out/);
});

test("nothing is asked of the server before it is started, nor for what it says of itself", async () => {
    const sandbox = new CoveSandbox({ url: NOWHERE, id: "far", env: { TOKEN: "hunter2" }, workingDirectory: "/root/work" });
    assert.ok(sandbox instanceof MastraSandbox);
    assert.ok(supportsNetworking(sandbox));
    const info = await sandbox.getInfo();
    assert.deepEqual(
        { id: info.id, provider: info.provider, status: info.status, mounts: info.mounts },
        { id: "far", provider: "cove", status: "pending", mounts: [] },
    );
    assert.ok(!JSON.stringify(info).includes("hunter2"));
    const clone = sandbox.clone({ id: "farther", workingDirectory: "/other", env: { A: "1" } });
    assert.equal(clone.id, "farther");
    assert.equal(clone.workingDirectory, "/other");
    assert.equal(clone.cove, sandbox.cove);
    assert.notEqual(sandbox.clone().id, "far");
    assert.throws(() => sandbox.native, SandboxNotReadyError);
    await clone._destroy();
    assert.equal(clone.status, "destroyed");
});

test("who prints it sees neither the key nor the environment", () => {
    const secret = "hunter2-never-told";
    const sandbox = new CoveSandbox({ url: NOWHERE, apiKey: secret, env: { TOKEN: secret } });
    for (const each of [sandbox, sandbox.clone(), sandbox.filesystem, sandbox.processes])
        assert.ok(!inspect(each, { depth: 5 }).includes(secret), inspect(each, { depth: 5 }));
});

test("instructions say where commands start and what can be reached, and can be replaced", () => {
    const options = { url: NOWHERE, workingDirectory: "/root/work", network: "none" };
    const plain = new CoveSandbox(options).getInstructions();
    assert.match(plain, /"\/root\/work"/);
    assert.match(plain, /no network/);
    assert.equal(new CoveSandbox({ ...options, instructions: "Mine." }).getInstructions(), "Mine.");
    const instructions = ({ defaultInstructions }) => `${defaultInstructions} And mine.`;
    assert.equal(new CoveSandbox({ ...options, instructions }).getInstructions(), `${plain} And mine.`);
});

test("a start makes it, another object of the same id gets the same one", async () => {
    const first = engine.sandbox({ id: "same" });
    assert.deepEqual(await first.start(), { outcome: "created" });
    assert.equal(first.status, "running");
    await first.executeCommand("echo kept >/root/note");
    const second = engine.sandbox({ id: "same" });
    assert.deepEqual(await second.start(), { outcome: "connected" });
    assert.equal((await second.executeCommand("cat /root/note")).stdout, "kept\n");
    assert.equal(second.native.id, first.native.id);
    const view = await engine.cove.get("same");
    assert.equal(view.labels["mastra.id"], "same");
    const byId = engine.sandbox({ sandboxId: first.native.id });
    assert.deepEqual(await byId.start(), { outcome: "connected" });
    assert.equal(byId.native.id, first.native.id);
});

test("an id that is no name for the engine still leads to the same sandbox", async () => {
    const id = `thread\n${"ü".repeat(200)}`;
    const first = engine.sandbox({ id });
    await first.start();
    const second = engine.sandbox({ id });
    assert.deepEqual(await second.start(), { outcome: "connected" });
    assert.equal(second.native.id, first.native.id);
});

test("hooks come in order, with the outcome, when commands can run", async () => {
    const seen = [];
    const hook = (what) => async ({ sandbox, outcome }) => {
        const { stdout } = await sandbox.executeCommand("echo runs");
        seen.push(`${what} ${sandbox.status} ${outcome ?? "-"} ${stdout.trim()}`);
    };
    const sandbox = engine.sandbox({ id: "hooks", onStart: hook("start"), onStop: hook("stop"), onDestroy: hook("destroy") });
    await sandbox.executeCommand("true");
    await sandbox._stop();
    await sandbox.executeCommand("true");
    await sandbox._destroy();
    assert.deepEqual(seen, [
        "start running created runs",
        "stop stopping - runs",
        "start running connected runs",
        "destroy destroying - runs",
    ]);
    assert.equal(await engine.cove.find("hooks"), undefined);
    await assert.rejects(sandbox.start(), /destroyed/);
    await assert.rejects(sandbox.executeCommand("true"), SandboxNotReadyError);
});

test("a hook that throws fails the start, and the next start calls it again", async () => {
    let calls = 0;
    const sandbox = engine.sandbox({
        onStart: () => {
            if (++calls === 1) throw new Error("not yet");
        },
    });
    await assert.rejects(sandbox.start(), /onStart hook failed: not yet/);
    assert.equal(sandbox.status, "error");
    assert.deepEqual(await sandbox.start(), { outcome: "connected" });
    assert.equal(calls, 2);
});

test("of many starts at once, by one object or several, one makes it", async () => {
    const outcomes = [];
    const onStart = ({ outcome }) => void outcomes.push(outcome);
    const objects = Array.from({ length: 5 }, () => engine.sandbox({ id: "race", onStart }));
    const ids = await Promise.all(
        objects.flatMap((object) =>
            Array.from({ length: 4 }, async () => {
                await object.start();
                return object.native.id;
            }),
        ),
    );
    assert.equal(new Set(ids).size, 1);
    assert.deepEqual(outcomes.sort(), ["connected", "connected", "connected", "connected", "created"]);
});

test("three times stopped and started: the disk stays, processes do not", async () => {
    const sandbox = engine.sandbox({ id: "cycles" });
    for (let cycle = 1; cycle <= 3; cycle++) {
        await sandbox.start();
        const handle = await sandbox.processes.spawn("sleep 600");
        const { stdout } = await sandbox.executeCommand("echo x >>/root/lines; echo x >>/tmp/lines; cat /root/lines /tmp/lines | wc -l");
        assert.equal(Number(stdout), 2 * cycle);
        await Promise.all([sandbox._stop(), sandbox._stop(), sandbox._stop()]);
        assert.equal(sandbox.status, "stopped");
        assert.equal((await engine.cove.get("cycles")).state, "stopped");
        const result = await handle.wait();
        assert.equal(result.success, false);
        assert.equal(result.killed, true);
    }
    assert.equal((await sandbox.executeCommand("cat /root/lines | wc -l")).stdout.trim(), "3");
});

test("start waits for a stop under way, and a stop for a start", async () => {
    const sandbox = engine.sandbox();
    const [, , , last] = await Promise.all([sandbox.start(), sandbox._stop(), sandbox.start(), sandbox._stop()]);
    assert.equal(last, undefined);
    await sandbox.executeCommand("true");
    assert.equal(sandbox.status, "running");
});

test("destroy() deletes it, from any object of the id that was started", async () => {
    const first = engine.sandbox({ id: "doomed" });
    await first.start();
    const second = engine.sandbox({ id: "doomed" });
    await second.start();
    await second._destroy();
    assert.equal(second.status, "destroyed");
    assert.equal(await engine.cove.find("doomed"), undefined);
    await first._destroy();
    assert.equal(first.status, "destroyed");
});

test("stop() and destroy() that do not go by the base class leave an object that goes on", async () => {
    const sandbox = engine.sandbox({ id: "direct" });
    await sandbox.executeCommand("echo kept >/root/file");
    await sandbox.stop();
    assert.equal((await sandbox.executeCommand("cat /root/file")).stdout, "kept\n");
    await sandbox.destroy();
    assert.equal((await sandbox.executeCommand("ls /root/file")).success, false);
});

test("what the options ask for is what it has, and what cannot be changed is refused, not ignored", async () => {
    const options = {
        id: "made",
        resources: { memory: "256M", cpus: 0.5, pids: 64, disk: 512 * 1024 * 1024 },
        network: { allow: ["example.com:443"] },
        lifecycle: { idle: 600_000 },
        labels: { team: "web" },
        ports: [8080, { port: 9090 }],
    };
    const sandbox = engine.sandbox(options);
    await sandbox.start();
    let view = await sandbox.native.view();
    assert.deepEqual(view.resources, { memory_bytes: 256 << 20, cpus: 0.5, pids: 64, disk_bytes: 512 << 20 });
    assert.equal(view.network.mode, "allow");
    assert.deepEqual({ idle_ms: view.lifecycle.idle_ms, then: view.lifecycle.then }, { idle_ms: 600_000, then: "stop" });
    assert.equal(view.labels.team, "web");
    assert.deepEqual(view.ports.map(({ port }) => port), [8080, 9090]);
    assert.equal((await sandbox.getInfo()).resources.memoryMB, 256);

    assert.deepEqual(await engine.sandbox(options).start(), { outcome: "connected" });
    await assert.rejects(
        engine.sandbox({ id: "made", resources: { memory: "1G" }, privileges: "plain" }).start(),
        /privileges system where plain is asked for, resources.memory .* use another id/,
    );
    await engine.sandbox({ id: "made", network: "none", lifecycle: { idle: 60_000, lifetime: 3_600_000, then: "kill" } }).start();
    view = await sandbox.native.view();
    assert.equal(view.network.mode, "none");
    assert.equal(view.lifecycle.idle_ms, 60_000);
    assert.equal(view.lifecycle.then, "kill");
    assert.ok(Date.parse(view.lifecycle.deadline) > Date.now());
    await sandbox._stop();
    await engine.sandbox({ id: "made", network: "public" }).start();
    view = await sandbox.native.view();
    assert.deepEqual([view.state, view.network.mode], ["running", "public"]);
});

test("who connects with other labels and ports changes and opens them, and leaves those of others", async () => {
    const first = engine.sandbox({ id: "relabelled", labels: { team: "web", stage: "test" }, ports: [8080] });
    await first.start();
    await engine.sandbox({ id: "relabelled", labels: { stage: "live", new: "yes" }, ports: [8080, { port: 9090, public: true }] }).start();
    const { labels, ports } = await first.native.view();
    assert.deepEqual([labels.team, labels.stage, labels.new, labels["mastra.id"]], ["web", "live", "yes", "relabelled"]);
    assert.deepEqual(ports.map((each) => [each.port, each.public]), [[8080, false], [9090, true]]);
});

test("what a sandbox was made with is what another object finds, and other than that is refused", async (t) => {
    const made = { user: "nobody", hostname: "desk", root: "host", ephemeral: true };
    if (!engine.hasUsers) delete made.user;
    await engine.sandbox({ id: "settled", ...made }).start();
    const again = engine.sandbox({ id: "settled", ...made });
    assert.deepEqual(await again.start(), { outcome: "connected" });
    const { stdout } = await again.executeCommand("id -un; hostname");
    assert.equal(stdout, `${made.user ?? "root"}\ndesk\n`);
    for (const other of [{ user: "daemon" }, { hostname: "chair" }, { root: "other" }, { ephemeral: false }])
        await assert.rejects(
            engine.sandbox({ id: "settled", ...made, ...other }).start(),
            new RegExp(`${Object.keys(other)[0]} .* is asked for`),
        );
    assert.deepEqual(await engine.sandbox({ id: "settled" }).start(), { outcome: "connected" });
});

test("one without an id goes when nobody used it for long; one with an id, or with a life of its own, does not", async () => {
    const week = 7 * 24 * 3_600_000;
    const nameless = engine.sandbox();
    await nameless.start();
    const { then, deadline } = (await nameless.native.view()).lifecycle;
    assert.equal(then, "kill");
    assert.ok(Math.abs(Date.parse(deadline) - Date.now() - week) < 3_600_000, deadline);
    for (const options of [{ id: "named" }, { lifecycle: { then: "stop" } }, { lifecycle: { lifetime: 0 } }]) {
        const sandbox = engine.sandbox(options);
        await sandbox.start();
        assert.equal((await sandbox.native.view()).lifecycle.deadline, null);
    }
    const bounded = engine.sandbox({ id: "bounded", lifecycle: { lifetime: week } });
    await bounded.start();
    await engine.sandbox({ id: "bounded", lifecycle: { lifetime: Infinity } }).start();
    assert.equal((await bounded.native.view()).lifecycle.deadline, null);
});

test("a limit that the engine rounds is the same limit", async () => {
    for (const resources of [{ cpus: 1 / 3 }, { memory: 123_456_789 }, { disk: 123_456_789 }, { memory: "0.1G" }]) {
        const options = { id: JSON.stringify(resources), resources };
        assert.deepEqual(await engine.sandbox(options).start(), { outcome: "created" });
        assert.deepEqual(await engine.sandbox(options).start(), { outcome: "connected" });
    }
});

test("a start can be given up", async () => {
    const sandbox = engine.sandbox();
    await assert.rejects(sandbox.start({ abortSignal: AbortSignal.abort("enough") }), { name: "SandboxAbortError", code: "ABORTED" });
    await sandbox.start();
    assert.equal(sandbox.status, "running");
});

test("a start that one caller gives up goes on for the others; an abort is heard while a command waits for it", async () => {
    let gate;
    const opened = new Promise((resolve) => (gate = resolve));
    const sandbox = engine.sandbox({ onStart: () => opened });
    const giveUp = new AbortController();
    const first = sandbox.start({ abortSignal: giveUp.signal });
    const shared = sandbox.executeCommand("echo ran");
    const own = new AbortController();
    const given = sandbox.executeCommand("touch /tmp/given", [], { abortSignal: own.signal });
    giveUp.abort();
    await assert.rejects(first, { name: "SandboxAbortError" });
    own.abort();
    const { killed, exitCode } = await given;
    assert.deepEqual([killed, exitCode], [true, 137]);
    gate();
    assert.equal((await shared).stdout, "ran\n");
    assert.equal((await sandbox.executeCommand("test -e /tmp/given")).exitCode, 1);
});

test("a clone is another sandbox with the same options", async () => {
    const sandbox = engine.sandbox({ env: { WHO: "original", TOO: "kept" }, resources: { pids: 50 }, workingDirectory: "/root/work" });
    const clone = engine.own(sandbox.clone({ id: "clone", env: { WHO: "clone" }, idleTimeoutMinutes: 5, actingUserId: "u1" }));
    const { stdout } = await clone.executeCommand('echo "$WHO $TOO"; pwd');
    assert.equal(stdout, "clone \n/root/work\n");
    const view = await clone.native.view();
    assert.equal(view.resources.pids, 50);
    assert.equal(view.lifecycle.idle_ms, 300_000);
    assert.equal(view.labels["mastra.acting-user"], "u1");
    assert.equal(sandbox.status, "pending");
    const again = engine.own(sandbox.clone({ sandboxId: view.id }));
    assert.deepEqual(await again.start(), { outcome: "connected" });
});

test("getPortUrl says where a server is, and neither starts nor makes anything", async () => {
    const sandbox = engine.sandbox({ id: "web" });
    assert.equal(await sandbox.networking.getPortUrl(8000), null);
    assert.equal(await engine.cove.find("web"), undefined);
    await sandbox.processes.spawn("mkdir -p /root/srv && cd /root/srv && echo hello >index.html && exec python3 -m http.server 8000");
    const url = await sandbox.networking.getPortUrl(8000, { waitMs: 60_000 });
    assert.match(url, /^http:\/\/127\.0\.0\.1:\d+$/);
    assert.equal(await (await fetch(`${url}/index.html`)).text(), "hello\n", "the URL comes when the server listens");
    assert.equal(await engine.sandbox({ id: "web" }).networking.getPortUrl(8000), url);
    await sandbox._stop();
    assert.equal(await sandbox.networking.getPortUrl(8000), null);
    assert.equal((await engine.cove.get("web")).state, "stopped");
    await assert.rejects(sandbox.networking.getPortUrl(0), RangeError);
});

test("getPortUrl of a port on which nothing listens waits as long as it is told to", async () => {
    const sandbox = engine.sandbox({});
    await sandbox.start();
    const begun = Date.now();
    const url = await sandbox.networking.getPortUrl(8000, { waitMs: 300 });
    assert.ok(Date.now() - begun >= 300, "it waited");
    assert.match(url, /^http:\/\/127\.0\.0\.1:\d+$/, "the port is open, so it has a URL");
    await assert.rejects(fetch(url), "nothing answers there");
    assert.equal(await sandbox.networking.getPortUrl(8000, { waitMs: 0 }), url);
    await assert.rejects(sandbox.networking.getPortUrl(8000, { waitMs: -1 }), /waitMs: -1/);
});

test("writeFiles: content, modes, relative paths, all or nothing of what is wrong, aborts", async () => {
    const sandbox = engine.sandbox({ workingDirectory: "/root/work" });
    const bytes = Buffer.from([0, 255, 128, 10]);
    await sandbox.writeFiles([
        { path: "/root/work/run.sh", content: "#!/bin/sh\necho ran\n", mode: 0o755 },
        { path: "sub/dir/bytes", content: bytes },
        { path: "/root/secret", content: "s", mode: 0o600 },
        { path: "/root/work/twice", content: "first" },
        { path: "/root/work/twice", content: "second" },
    ]);
    const { stdout } = await sandbox.executeCommand("./run.sh; stat -c %a run.sh /root/secret; cat twice; od -An -tx1 sub/dir/bytes");
    assert.equal(stdout, "ran\n755\n600\nsecond 00 ff 80 0a\n");
    for (const mode of [0, 0o1000, 1.5])
        await assert.rejects(
            sandbox.writeFiles([{ path: "/root/work/first", content: "" }, { path: "/root/work/other", content: "", mode }]),
            { code: "INVALID_ARGUMENT" },
        );
    await assert.rejects(
        sandbox.writeFiles([{ path: "/root/work/first", content: "" }], { abortSignal: AbortSignal.abort() }),
        { name: "SandboxAbortError" },
    );
    assert.equal((await sandbox.executeCommand("test -e /root/work/first")).exitCode, 1);
    await assert.rejects(sandbox.writeFiles([{ path: "/root/work/twice/below", content: "" }]), /twice/);
});

test("a workspace starts, stops and destroys it", async () => {
    const sandbox = engine.sandbox({ id: "owned" });
    const workspace = new Workspace({ sandbox });
    await workspace.init();
    assert.equal(sandbox.status, "running");
    assert.equal((await workspace.getInfo()).sandbox.status, "running");
    await workspace.destroy();
    assert.equal(sandbox.status, "destroyed");
    assert.equal(await engine.cove.find("owned"), undefined);
});
