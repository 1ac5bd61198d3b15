// An engine that is killed and started again under a working program costs it time, and nothing else.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Cove, CoveError } from "../dist/esm/index.js";
import { startEngine, until } from "./engine.mjs";

let engine;
let cove;
let sandbox;

const code = (name) => (error) => error instanceof CoveError && error.code === name;
const count = async (file) => Number((await sandbox.exec({ command: `wc -l <${file} 2>/dev/null || echo 0` })).stdout);

before(async () => {
    engine = await startEngine();
    cove = engine.cove;
    sandbox = cove.sandbox((await cove.create({ name: "work" })).sandbox.id);
});
after(() => engine?.end());

for (const listens of [undefined, () => {}]) {
    const how = listens ? "followed" : "one request";
    const mark = `/tmp/ran-${listens ? 1 : 0}`;
    test(`a command that runs while the engine is killed goes on, and ran once (${how})`, async () => {
        const running = sandbox.exec(
            { command: `echo x >>${mark}; echo before; while [ ! -e ${mark}.go ]; do sleep 0.05; done; echo after; exit 5` },
            { onStdout: listens },
        );
        await until("it runs", async () => (await count(mark)) === 1);
        await engine.kill();
        await sandbox.files.write(`${mark}.go`, "");
        const result = await running;
        assert.equal(result.stdout, "before\nafter\n");
        assert.equal(result.process.exit_code, 5);
        assert.equal(await count(mark), 1);
    });

    test(`commands that are begun while it is killed run once each (${how})`, async () => {
        const file = `/tmp/each-${listens ? 1 : 0}`;
        let isOver = false;
        const killing = (async () => {
            for (let i = 0; i < 2; i++) {
                await new Promise((resolve) => setTimeout(resolve, 60 + 50 * i));
                await engine.kill();
            }
            isOver = true;
        })();
        let asked = 0;
        const worker = async () => {
            while (!isOver) {
                const number = asked++;
                const result = await sandbox.exec({ command: `echo ${number} >>${file}; echo ${number}` }, { onStdout: listens });
                assert.equal(result.stdout, `${number}\n`);
            }
        };
        await Promise.all([killing, ...Array.from({ length: 8 }, worker)]);
        const ran = (await sandbox.files.read(file)).toString().trim().split("\n").map(Number).sort((a, b) => a - b);
        assert.deepEqual(ran, Array.from({ length: asked }, (_, i) => i));
    });
}

test("standard input comes through once, whenever the engine is killed", async () => {
    for (let turn = 0; turn < 3; turn++) {
        const running = sandbox.exec({ command: "cat; sleep 0.2", timeout_ms: 60000 }, { stdin: `line ${turn}\n` });
        await new Promise((resolve) => setTimeout(resolve, turn * 3));
        await engine.kill();
        assert.equal((await running).stdout, `line ${turn}\n`);
    }
});

test("a follower goes on with the next byte", async () => {
    // However much comes at once, it runs whenever the engine is killed.
    const command = "for i in $(seq 1 400); do case $i in 190 | 300) while [ ! -e /tmp/more.$i ]; do sleep 0.05; done ;; esac; echo line $i; sleep 0.005; done";
    const process = await sandbox.processes.start({ command });
    let text = "";
    let kills = 0;
    for await (const each of sandbox.processes.follow(process.id)) {
        if (each.type !== "data") continue;
        text += each.data;
        if (kills < 2 && text.length > 800 * (kills + 1)) {
            await engine.kill();
            await sandbox.files.write(`/tmp/more.${[190, 300][kills++]}`, "");
        }
    }
    assert.equal(kills, 2);
    assert.equal(text, Array.from({ length: 400 }, (_, i) => `line ${i + 1}\n`).join(""));
});

test("a wait goes on", async () => {
    const process = await sandbox.processes.start({ command: "while [ ! -e /tmp/wait.go ]; do sleep 0.05; done; exit 7" });
    const waiting = sandbox.processes.wait(process.id);
    await engine.kill();
    await sandbox.files.write("/tmp/wait.go", "");
    assert.equal((await waiting).exit_code, 7);
});

test("files are written, moved and removed, whenever the engine is killed", async () => {
    let isOver = false;
    const killing = (async () => {
        for (let i = 0; i < 2; i++) {
            await new Promise((resolve) => setTimeout(resolve, 80));
            await engine.kill();
        }
        isOver = true;
    })();
    const turns = [];
    await sandbox.files.write("/root/tree/one", "one");
    const worker = async (_, number) => {
        for (let turn = 0; !isOver || turn === 0; turn++) {
            const path = `/root/${number}/${turn}`;
            await sandbox.files.write(path, `${turn}`, { overwrite: false });
            await sandbox.files.move(path, `${path}.moved`);
            assert.equal(String(await sandbox.files.read(`${path}.moved`)), `${turn}`);
            await sandbox.files.remove(`${path}.moved`);
            await sandbox.files.mkdir(`${path}.dir`);
            await sandbox.files.copy("/root/tree", `${path}.copy`, { recursive: true });
            await sandbox.files.copy("/root/tree/one", `${path}.copy/two`);
            await sandbox.files.copy("/root/tree/one", `${path}.copy/two`, { replace: true });
            assert.equal(String(await sandbox.files.read(`${path}.copy/two`)), "one");
            await sandbox.files.write(`/root/${number}.log`, `line ${turn}\n`, { append: true });
            turns[number] = turn + 1;
        }
    };
    await Promise.all([killing, ...Array.from({ length: 4 }, worker)]);
    for (const [number, count] of turns.entries()) {
        const lines = String(await sandbox.files.read(`/root/${number}.log`));
        assert.equal(lines, Array.from({ length: count }, (_, turn) => `line ${turn}\n`).join(""));
    }
});

test("a list while others wait for what has ended meanwhile is whole", async () => {
    // Some end before the engine does, some while it is away, some after that.
    const commands = Array.from({ length: 16 }, (_, i) => `sleep 0.${200 + 10 * i}`);
    const started = await Promise.all(commands.map((command) => sandbox.processes.start({ command })));
    await sandbox.processes.wait(started[0].id);
    await engine.kill();
    const waits = started.map((each) => sandbox.processes.wait(each.id));
    const lists = await Promise.all(Array.from({ length: 4 }, () => sandbox.processes.list()));
    for (const list of lists) for (const each of started) assert.ok(list.some((other) => other.id === each.id));
    for (const each of await Promise.all(waits)) assert.equal(each.exit_code, 0);
});

test("watchers and listeners come back", async () => {
    const controller = new AbortController();
    const { signal } = controller;
    const changes = [];
    const types = [];
    let isWatching = false;
    const watching = (async () => {
        for await (const line of sandbox.files.watch("/root", { signal })) {
            if (line.type === "watching") isWatching = true;
            changes.push(line.type === "created" ? line.path : line.type);
        }
    })().catch(() => {});
    const from = 1;
    const listening = (async () => {
        for await (const event of cove.events({ from }, { signal })) types.push(`${event.type} ${event.sandbox}`);
    })().catch(() => {});
    await until("it watches", () => isWatching);
    await engine.kill();
    const made = await cove.create({ disk_kind: "ephemeral" });
    await until("its creation is heard of", () => types.includes(`sandbox.created ${made.sandbox.id}`));
    await cove.sandbox(made.sandbox.id).remove();
    // The watch itself ended with the engine; that something may be lost is told.
    await until("a change is heard of, or that some are lost", async () => {
        await sandbox.files.write(`/root/seen-${Date.now()}`, "");
        return changes.some((each) => each.includes("/root/seen-") || each === "gap");
    });
    controller.abort();
    await Promise.all([watching, listening]);
});

test("a new sandbox is made once, whenever the engine is killed", async () => {
    const before = [];
    for await (const each of cove.list()) before.push(each.id);
    const made = [];
    for (let turn = 0; turn < 2; turn++) {
        const making = cove.create({ disk_kind: "ephemeral" });
        await new Promise((resolve) => setTimeout(resolve, 3 * turn));
        await engine.kill();
        made.push((await making).sandbox.id);
    }
    const now = [];
    for await (const each of cove.list()) now.push(each.id);
    assert.deepEqual(now.sort(), [...before, ...made].sort());
    for (const id of made) await cove.sandbox(id).remove();
});

test("an engine that is replaced in good order says so, and is waited for", async () => {
    const command = "echo x >>/tmp/order; while [ ! -e /tmp/order.go ]; do sleep 0.05; done; echo done";
    const background = await sandbox.processes.start({ command });
    const all = [
        sandbox.exec({ command }),
        sandbox.exec({ command }, { onStdout: () => {} }),
        sandbox.processes.wait(background.id).then(() => sandbox.processes.output(background.id)).then((output) => ({ stdout: String(output.data) })),
    ];
    await until("all run", async () => (await count("/tmp/order")) === 3);
    await engine.upgrade();
    await sandbox.files.write("/tmp/order.go", "");
    assert.deepEqual((await Promise.all(all)).map((each) => each.stdout), ["done\n", "done\n", "done\n"]);
    assert.equal(await count("/tmp/order"), 3);
});

test("an abort is heard while the engine is away", async () => {
    const controller = new AbortController();
    const running = sandbox.exec({ command: "sleep 603" }, { signal: controller.signal });
    await until("it runs", async () => (await sandbox.processes.list()).some((each) => each.command?.includes("sleep 603")));
    await engine.kill();
    controller.abort();
    await assert.rejects(running, code("aborted"));
    await until("what no connection holds any more is killed", async () =>
        (await sandbox.processes.list()).every((each) => !each.command?.includes("sleep 603") || each.state === "exited"),
    );
});

test("an engine that is gone with all is started anew by the next call", async () => {
    await sandbox.files.write("/root/kept", "kept");
    await engine.killAll();
    assert.equal((await cove.get("work")).state, "stopped");
    await assert.rejects(sandbox.exec({ command: "true" }), code("sandbox_stopped"));
    assert.equal((await sandbox.exec({ command: "cat /root/kept", start: true })).stdout, "kept");
});

test("many calls at once start one engine", async () => {
    await engine.killAll();
    const views = await Promise.all(Array.from({ length: 50 }, () => cove.get("work")));
    assert.equal(new Set(views.map((each) => each.id)).size, 1);
    const other = new Cove({ engine: "private" });
    assert.equal((await other.get("work")).id, sandbox.id);
    other.close();
});
