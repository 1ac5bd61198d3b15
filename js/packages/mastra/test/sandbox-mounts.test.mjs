// CoveSandbox: directories of this host in a sandbox of the private engine, as a workspace mounts them.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { CoveSandbox } from "@cove/mastra";
import { LocalFilesystem, MastraFilesystem, Workspace } from "@mastra/core/workspace";
import { makeEngine } from "./helper.mjs";

let engine;

before(async () => {
    engine = await makeEngine();
});
after(() => engine.end());

function directory(name, files = {}) {
    const basePath = path.join(engine.dir, `of-host-${name}`);
    mkdirSync(basePath, { mode: 0o777 });
    for (const file in files) writeFileSync(path.join(basePath, file), files[file]);
    return basePath;
}

const states = (sandbox) => Object.fromEntries([...sandbox.mounts.entries].map(([at, { state }]) => [at, state]));

test("the mounts of a workspace are in it, writable or not, and stay over stop, start and deletion", async () => {
    const data = directory("data", { "in.txt": "from the host\n" });
    const docs = directory("docs", { "doc.txt": "read me\n" });
    const sandbox = engine.sandbox({ id: "mounted" });
    const workspace = new Workspace({
        sandbox,
        mounts: {
            "/data": new LocalFilesystem({ basePath: data }),
            "/home/docs": new LocalFilesystem({ basePath: docs, readOnly: true }),
        },
    });
    await workspace.init();
    assert.deepEqual(states(sandbox), { "/data": "mounted", "/home/docs": "mounted" });
    const check = async () => {
        const { stdout } = await sandbox.executeCommand(
            "cat /data/in.txt /home/docs/doc.txt; echo out >>/data/out.txt; touch /home/docs/no 2>/dev/null || echo read-only",
        );
        assert.equal(stdout, "from the host\nread me\nread-only\n");
    };
    await check();
    await workspace.filesystem.writeFile("/data/later.txt", "by the file tools");
    assert.equal((await sandbox.executeCommand("cat /data/later.txt")).stdout, "by the file tools");
    await sandbox._stop();
    await check();
    await engine.cove.sandbox(sandbox.native.id).remove();
    await check();
    assert.equal(readFileSync(path.join(data, "out.txt"), "utf8"), "out\nout\nout\n");
    assert.deepEqual((await sandbox.getInfo()).mounts.map((each) => each.path), ["/data", "/home/docs"]);

    const again = engine.sandbox({ id: "mounted" });
    const other = new Workspace({ sandbox: again, mounts: { "/data": new LocalFilesystem({ basePath: data }) } });
    await other.init();
    assert.deepEqual(states(again), { "/data": "mounted" });

    await workspace.destroy();
    assert.deepEqual((await engine.cove.roots()).mounts, []);
    assert.equal(readFileSync(path.join(data, "in.txt"), "utf8"), "from the host\n");
});

test("one that comes after the start is there: while it runs, where that can be, or in a sandbox that nobody used", async () => {
    const filesystem = new LocalFilesystem({ basePath: directory("late", { a: "late\n" }) });
    const fresh = engine.sandbox();
    await fresh.start();
    assert.deepEqual(await fresh.mount(filesystem, "/mnt/late"), { success: true, mountPath: "/mnt/late" });
    assert.equal((await fresh.executeCommand("cat /mnt/late/a")).stdout, "late\n");

    const used = engine.sandbox({ id: "used" });
    await used.executeCommand("echo precious >/root/file");
    const { success, mountPath, error } = await used.mount(filesystem, "/mnt//late/");
    assert.deepEqual({ success, mountPath }, { success: false, mountPath: "/mnt/late" });
    assert.match(error, /^\/mnt\/late: make a sandbox with mountable: true: [^;]*$/);
    assert.ok(error.split(" ").length < 40, error);
    // As the engine of an ordinary user says it, which mounts nothing later.
    used.cove.version = async () => ({ disk: "watched" });
    const late = await used.mount(filesystem, "/mnt/late").finally(() => delete used.cove.version);
    assert.match(late.error, /^\/mnt\/late: mount it before anything is done in the sandbox, .*: the engine is not root's, and mounts nothing/);
    assert.deepEqual(states(used), { "/mnt/late": "error" });
    assert.equal((await used.executeCommand("cat /root/file")).stdout, "precious\n");

    const readOnly = new LocalFilesystem({ basePath: filesystem.basePath, readOnly: true });
    const { native } = used;
    assert.deepEqual(await used.mount(readOnly, "/mnt/late"), { success: true, mountPath: "/mnt/late" });
    assert.deepEqual(states(used), { "/mnt/late": "mounted" });
    assert.equal(used.native, native);
    assert.equal((await used.executeCommand("cat /mnt/late/a /root/file; touch /mnt/late/b || echo no")).stdout, "late\nprecious\nno\n");

    const mountable = engine.sandbox({ mountable: true });
    const server = await mountable.processes.spawn("until test -e /mnt/late/a; do sleep 0.05; done; echo written >/mnt/late/b");
    assert.deepEqual(await mountable.mount(filesystem, "/mnt/late"), { success: true, mountPath: "/mnt/late" });
    assert.equal((await server.wait()).exitCode, 0);
    assert.equal(readFileSync(path.join(filesystem.basePath, "b"), "utf8"), "written\n");

    const pending = engine.sandbox();
    assert.deepEqual(await pending.mount(filesystem, "/mnt/late"), { success: true, mountPath: "/mnt/late" });
    assert.equal(pending.status, "running");
});

test("a directory goes out of a sandbox, whether it was used or not; while a command uses it that is said", async () => {
    const a = new LocalFilesystem({ basePath: directory("out-a", { a: "a\n" }) });
    const b = new LocalFilesystem({ basePath: directory("out-b", { b: "b\n" }) });
    const sandbox = engine.sandbox();
    assert.ok((await sandbox.mount(a, "/mnt/a")).success && (await sandbox.mount(b, "/mnt/b")).success);
    await sandbox.unmount("/mnt/a");
    assert.deepEqual(states(sandbox), { "/mnt/b": "mounted" });
    assert.equal((await sandbox.executeCommand("ls -d /mnt/a 2>/dev/null; cat /mnt/b/b")).stdout, "b\n");
    const inside = await sandbox.processes.spawn("cd /mnt/b && echo in && exec sleep 1000");
    await engine.until(() => inside.stdout === "in\n");
    await assert.rejects(sandbox.unmount("/mnt/b"), { name: "MountError", message: /\/mnt\/b.*a program uses it/ });
    assert.deepEqual(states(sandbox), { "/mnt/b": "mounted" });
    assert.equal((await sandbox.executeCommand("cat /mnt/b/b")).stdout, "b\n");
    await inside.kill();
    const { native } = sandbox;
    await sandbox.unmount("/mnt/b");
    assert.deepEqual(states(sandbox), {});
    assert.equal(sandbox.native, native);
    assert.equal((await sandbox.executeCommand("ls -d /mnt/b")).stdout, "");
    await sandbox.unmount("/mnt/elsewhere");
});

test("what is under way while a sandbox is made anew for a mount waits, and several mounts are all there", async () => {
    const a = new LocalFilesystem({ basePath: directory("a", { a: "a\n" }) });
    const b = new LocalFilesystem({ basePath: directory("b", { b: "b\n" }) });
    const sandbox = engine.sandbox();
    await sandbox.start();
    const mounts = [sandbox.mount(a, "/mnt/a"), sandbox.mount(b, "/mnt/b")];
    await engine.until(() => sandbox.status === "running");
    assert.deepEqual((await Promise.all(mounts)).map(({ success }) => success), [true, true]);
    const late = sandbox.mount(new LocalFilesystem({ basePath: directory("c") }), "/mnt/c");
    const results = await Promise.all(
        Array.from({ length: 10 }, (_, i) => sandbox.executeCommand(`echo ${i} >>/root/all; cat /mnt/a/a /mnt/b/b`)),
    );
    for (const { stdout } of results) assert.equal(stdout, "a\nb\n");
    const outcome = await late;
    assert.ok(outcome.success || /mountable: true/.test(outcome.error), JSON.stringify(outcome));
    assert.equal((await sandbox.executeCommand("wc -l </root/all")).stdout, "10\n");
});

test("a mount that fails half-way leaves a sandbox that runs, for commands that waited, too", async () => {
    const sandbox = engine.sandbox();
    await sandbox.start();
    let waiting;
    // Refused once, when the one before is removed already.
    sandbox.cove.create = async () => {
        delete sandbox.cove.create;
        waiting = sandbox.executeCommand("echo ran");
        throw new Error("there is no room");
    };
    const refused = await sandbox.mount(new LocalFilesystem({ basePath: directory("refused") }), "/mnt/refused");
    assert.deepEqual(refused, { success: false, mountPath: "/mnt/refused", error: "there is no room" });
    assert.equal(sandbox.status, "running");
    assert.equal((await waiting).stdout, "ran\n");
});

test("one that another object took up, or wrote a file to, is not made anew", async () => {
    const filesystem = () => new LocalFilesystem({ basePath: directory(`shared-${Math.random()}`) });
    const maker = engine.sandbox({ id: "shared" });
    await maker.start();
    const other = engine.sandbox({ id: "shared" });
    await other.writeFiles([{ path: "/root/precious", content: "kept" }]);
    assert.match((await maker.mount(filesystem(), "/mnt/late")).error, /mountable: true/);
    assert.equal(maker.native.id, other.native.id);
    assert.equal((await maker.executeCommand("cat /root/precious")).stdout, "kept");

    // Also where the other one comes while a hook decides.
    const hooked = engine.sandbox({ id: "hooked" });
    hooked.mounts.add({ "/mnt/late": filesystem() });
    hooked.mounts.setOnMount(async () => {
        await engine.sandbox({ id: "hooked" }).writeFiles([{ path: "/root/precious", content: "kept" }]);
    });
    await hooked.start();
    assert.deepEqual(states(hooked), { "/mnt/late": "error" });
    assert.equal((await hooked.executeCommand("cat /root/precious")).stdout, "kept");
});

test("with an id too a hook's yes makes it anew; one whose maker ended before it did is finished by the next", async () => {
    const filesystem = new LocalFilesystem({ basePath: directory("yes", { a: "yes\n" }) });
    const sandbox = engine.sandbox({ id: "yes" });
    sandbox.mounts.add({ "/mnt/yes": filesystem });
    sandbox.mounts.setOnMount(() => undefined);
    await sandbox.start();
    assert.deepEqual(states(sandbox), { "/mnt/yes": "mounted" });
    assert.equal((await sandbox.executeCommand("cat /mnt/yes/a")).stdout, "yes\n");

    const view = await sandbox.native.view();
    await sandbox.native.update({ labels: { ...view.labels, "mastra.state": "remade" } });
    const next = engine.sandbox({ id: "yes" });
    assert.deepEqual(await next.start(), { outcome: "created" });
    assert.notEqual(next.native.id, view.id);
});

test("a mount is not taken to be in a sandbox that another object made without it", async () => {
    const first = engine.sandbox({ id: "bare" });
    first.mounts.add({ "/mnt/data": new LocalFilesystem({ basePath: directory("bare") }) });
    await first.start();
    assert.deepEqual(states(first), { "/mnt/data": "mounted" });
    await engine.cove.sandbox(first.native.id).remove();
    await engine.sandbox({ id: "bare" }).executeCommand("true");
    await first.executeCommand("true");
    assert.deepEqual(states(first), { "/mnt/data": "error" });
    assert.match(first.mounts.get("/mnt/data").error, /mountable: true/);
});

test("a hook decides before anything is to be seen in the sandbox", async () => {
    const shown = new LocalFilesystem({ basePath: directory("shown", { a: "shown\n" }) });
    const hidden = new LocalFilesystem({ basePath: directory("hidden", { a: "hidden\n" }) });
    const sandbox = engine.sandbox();
    const workspace = new Workspace({
        sandbox,
        mounts: { "/mnt/shown": shown, "/mnt/hidden": hidden },
        onMount: ({ mountPath }) => (mountPath === "/mnt/hidden" ? false : undefined),
    });
    await workspace.init();
    assert.deepEqual(states(sandbox), { "/mnt/shown": "mounted", "/mnt/hidden": "unsupported" });
    const { stdout } = await sandbox.executeCommand("cat /mnt/shown/a; cat /mnt/hidden/a 2>/dev/null || echo none");
    assert.equal(stdout, "shown\nnone\n");
    await engine.cove.sandbox(sandbox.native.id).remove();
    assert.equal((await sandbox.executeCommand("cat /mnt/shown/a; ls /mnt")).stdout, "shown\nshown\n");
});

test("what cannot be mounted is told by its state, and the sandbox runs", async () => {
    class Bucket extends MastraFilesystem {
        id = "bucket";
        name = "Bucket";
        provider = "s3";
        status = "ready";
        constructor() {
            super({ name: "Bucket" });
        }
        getMountConfig() {
            return { type: "s3" };
        }
    }
    const gone = directory("gone");
    const filesystem = new LocalFilesystem({ basePath: gone });
    rmSync(gone, { recursive: true });
    const sandbox = engine.sandbox();
    sandbox.mounts.add({ "/mnt/bucket": new Bucket(), "/mnt/gone": filesystem });
    assert.equal((await sandbox.executeCommand("echo runs")).stdout, "runs\n");
    assert.deepEqual(states(sandbox), { "/mnt/bucket": "error", "/mnt/gone": "error" });
    assert.match(sandbox.mounts.get("/mnt/bucket").error, /Unsupported mount type: s3/);
    assert.match(sandbox.mounts.get("/mnt/gone").error, /gone: it cannot be mounted at \/mnt\/gone: there is no such directory$/);
    const project = new LocalFilesystem({ basePath: directory("over") });
    for (const at of ["/usr", "/usr/lib/", "/bin"]) {
        const { success, error } = await sandbox.mount(project, at);
        assert.ok(!success && /hide the sandbox's programs/.test(error), error);
    }
    assert.equal((await sandbox.executeCommand("echo runs")).stdout, "runs\n");
});

test("no server but the private engine takes a directory of this host", async () => {
    const sandbox = engine.own(new CoveSandbox({ url: `unix:${engine.link}` }));
    sandbox.mounts.add({ "/mnt/data": new LocalFilesystem({ basePath: directory("far") }) });
    await sandbox.start();
    assert.match(sandbox.mounts.get("/mnt/data").error, /private engine.*engine: "private"/);
});
