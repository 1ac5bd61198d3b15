// What a Mastra agent's sandbox takes, from Node: CoveSandbox and, in the same process and in turn, LocalSandbox without isolation and with
// bubblewrap. The floor is the same request by @cove/client alone. Writes series as report.py reads them.
// The engine is a private one in DIRECTORY, found through XDG_RUNTIME_DIR as any user's is.
// usage: node mastra.mjs RAW DIRECTORY
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import { setTimeout as pause } from "node:timers/promises";

const [raw, directory] = process.argv.slice(2);
const require = createRequire(new URL("../js/packages/mastra/package.json", import.meta.url));
const { CoveLocalSandbox, CoveSandbox } = require("@cove/mastra");
const { Cove } = require("@cove/client");
const { LocalSandbox } = require("@mastra/core/workspace");

const WARM = 100;
const BLOCKS = 40, BLOCK = 10; // as the box bench: the first of each block pays for its predecessor and is not counted
const TOGETHER = 200, ROUNDS = 9;
const STARTS = 60, COLD = 15;
const PACE_MS = 25; // between creates, so that the engine's pool has filled up again

function told(name, samples) {
    fs.appendFileSync(raw, `${name} ns 0 ${samples.join(" ")}\n`);
}

async function timed(work) {
    const before = process.hrtime.bigint();
    await work();
    return process.hrtime.bigint() - before;
}

function shuffled(list) {
    return list.map((item) => [Math.random(), item]).sort(([a], [b]) => a - b).map(([, item]) => item);
}

// ---- engines ----

function home(name) {
    const dir = path.join(directory, name);
    for (const [variable, below] of [["XDG_RUNTIME_DIR", "run"], ["XDG_DATA_HOME", "data"], ["XDG_CONFIG_HOME", "config"]]) {
        process.env[variable] = path.join(dir, below);
        fs.mkdirSync(process.env[variable], { recursive: true, mode: 0o700 });
    }
    return dir;
}

// The keeper of the engine that lives in this directory. Its socket is named on its command line, and on those of its children; it is the oldest.
function keeperOf(dir) {
    const socket = path.join(dir, "run", "cove", "cove.sock");
    const found = fs.readdirSync("/proc").filter((pid) => /^\d+$/.test(pid)).flatMap((pid) => {
        try {
            if (!fs.readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").includes(socket)) return [];
            return [[Number(fs.readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ")[19]), Number(pid)]];
        } catch {
            return []; // it has ended
        }
    });
    return found.sort(([a], [b]) => a - b)[0]?.[1];
}

async function ended(dir) {
    const keeper = keeperOf(dir);
    if (keeper !== undefined) process.kill(keeper, "SIGTERM");
    for (let tries = 0; keeperOf(dir) !== undefined; tries++) {
        if (tries > 3000) throw new Error(`the engine ${keeper} in ${dir} does not end`);
        await pause(10);
    }
}

// ---- what is measured ----

async function commands(contestants) {
    const samples = new Map(contestants.map(([name]) => [name, []]));
    for (const [, run] of contestants) for (let i = 0; i < WARM; i++) await run();
    for (let block = 0; block < BLOCKS; block++) {
        for (const [name, run] of shuffled(contestants)) {
            await run();
            for (let i = 0; i < BLOCK; i++) samples.get(name).push(await timed(run));
        }
    }
    for (const [name, all] of samples) told(`one.${name}`, all);
}

async function together(contestants) {
    const samples = new Map(contestants.map(([name]) => [name, []]));
    for (let round = -1; round < ROUNDS; round++) {
        for (const [name, run] of shuffled(contestants)) {
            const time = await timed(() => Promise.all(Array.from({ length: TOGETHER }, run)));
            if (round >= 0) samples.get(name).push(time);
        }
    }
    for (const [name, all] of samples) told(`together.${name}`, all);
}

// A new sandbox each time: made and started when start() resolves, and able to run a command.
async function starts(cove) {
    const samples = { start: [], start_first: [], create: [] };
    for (let i = -5; i < STARTS; i++) {
        await pause(PACE_MS);
        const sandbox = new CoveSandbox({ id: `start-${i + 5}` });
        const start = await timed(() => sandbox.start());
        const first = await timed(() => exits(sandbox));
        await sandbox._destroy();
        await pause(PACE_MS);
        let made;
        const create = await timed(async () => { made = await cove.create({ name: `create-${i + 5}` }); });
        await cove.sandbox(made.sandbox.id).remove();
        if (i < 0) continue;
        samples.start.push(start);
        samples.start_first.push(start + first);
        samples.create.push(create);
    }
    for (const [name, all] of Object.entries(samples)) told(`start.${name}`, all);
}

// On a machine on which this user never used cove: the engine is found missing, started and asked.
async function cold() {
    const samples = [];
    for (let i = 0; i < COLD; i++) {
        const dir = home(`cold-${i}`);
        const sandbox = new CoveSandbox({ id: "cold" });
        try {
            samples.push(await timed(() => sandbox.start()));
            await sandbox._destroy();
        } finally {
            await ended(dir);
        }
    }
    told("start.cold", samples);
}

async function exits(sandbox) {
    const { exitCode, stderr } = await sandbox.executeCommand("true");
    if (exitCode !== 0) throw new Error(`${sandbox.provider}: true exits with ${exitCode}: ${stderr}`);
}

async function local(isolation) {
    const sandbox = new LocalSandbox({ workingDirectory: path.join(directory, `local-${isolation}`), isolation });
    await sandbox._start();
    return sandbox;
}

const dir = home("warm");
try {
    const cove = new Cove(), box = new CoveSandbox({ id: "bench" });
    await box._start();
    const { sandbox: { id } } = await cove.create({ name: "floor" });
    const floor = cove.sandbox(id);
    const coveLocal = new CoveLocalSandbox({ workingDirectory: path.join(directory, "cove-local") });
    await coveLocal._start();
    const none = await local("none"), bwrap = await local("bwrap");
    const contestants = [
        ["cove", () => exits(box)],
        ["client", async () => { if ((await floor.exec({ command: "true" })).process.exit_code !== 0) throw new Error("client: true failed"); }],
        ["cove_local", () => exits(coveLocal)],
        ["none", () => exits(none)],
        ["bwrap", () => exits(bwrap)],
    ];
    await commands(contestants);
    await together(contestants);
    await starts(cove);
    await Promise.all([box._destroy(), floor.remove(), coveLocal._destroy()]);
    cove.close();
} finally {
    await ended(dir);
}
await cold();
process.exit(0);
