// CoveSandbox and the engine's own life: started when none runs, ended when idle, lost with all that ran in it.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { CoveSandbox } from "@cove/mastra";
import { startEngine, until } from "../../client/test/engine.mjs";

let engine;

before(async () => {
    engine = await startEngine({ connect: false });
});
after(() => engine.end());

test("a sandbox starts the engine that it needs, and finds its disk again when that was ended or killed", async () => {
    assert.equal(engine.keeper(), undefined);
    const outcomes = [];
    const sandbox = new CoveSandbox({ id: "survivor", engine: "private", onStart: ({ outcome }) => void outcomes.push(outcome) });
    const { stdout } = await sandbox.executeCommand("echo kept >/root/file; echo runs");
    assert.equal(stdout, "runs\n");
    assert.equal(sandbox.cove.isPrivate(), true);

    // As one that nobody asked anything for ten minutes.
    const first = engine.keeper();
    process.kill(first, "SIGTERM");
    await until("the engine ends", () => engine.keeper() === undefined);
    assert.equal((await sandbox.executeCommand("cat /root/file")).stdout, "kept\n");
    assert.notEqual(engine.keeper(), first);

    const handle = await sandbox.processes.spawn("sleep 600");
    await engine.killAll();
    assert.equal((await sandbox.executeCommand("cat /root/file")).stdout, "kept\n");
    assert.deepEqual(outcomes, ["created", "connected", "connected"]);
    assert.deepEqual([(await handle.wait()).killed, handle.exitCode], [true, 137]);

    // Only this object was lost: another one finds all.
    const again = new CoveSandbox({ id: "survivor", engine: "private" });
    assert.equal((await again.executeCommand("cat /root/file")).stdout, "kept\n");
    await again._destroy();
});
