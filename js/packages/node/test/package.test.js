// What is published: it installs where no script may run, and its types say what it does.
"use strict";

const assert = require("node:assert/strict");
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { test } = require("node:test");

const here = path.join(__dirname, ".."), top = path.join(here, "..", "..");

function directory(t) {
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), "package-"));
    t.after(() => fs.rmSync(dir, { recursive: true }));
    return dir;
}

test("packed, installed without scripts, and run", (t) => {
    const dir = directory(t);
    const npm = (...words) => execFileSync("npm", [...words, "--offline", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: dir, encoding: "utf8" });
    const [{ files, filename }] = JSON.parse(npm("pack", "--json", here));
    const names = files.map((file) => file.path);
    assert.ok(names.some((name) => /^prebuilds\/linux-[a-z0-9]+\/cove\.node$/.test(name)), names.join());
    assert.deepEqual(names.filter((name) => !/^(lib|prebuilds)\/|^(package\.json|README\.md|LICENSE|THIRD-PARTY-LICENSES)$/.test(name)), []);
    assert.ok(names.includes("THIRD-PARTY-LICENSES"));
    assert.match(fs.readFileSync(path.join(here, "THIRD-PARTY-LICENSES"), "utf8"), /Fabrice Bellard[^]*Permission is hereby granted/);
    const manifest = require("../package.json");
    for (const name of ["preinstall", "install", "postinstall", "prepare"]) assert.equal(manifest.scripts[name], undefined);
    assert.equal(manifest.dependencies, undefined);
    fs.writeFileSync(path.join(dir, "package.json"), '{"private": true}');
    npm("install", "--ignore-scripts", path.join(dir, filename));
    assert.ok(!fs.lstatSync(path.join(dir, "node_modules", "@cove", "node")).isSymbolicLink());
    const node = (...words) => execFileSync(process.execPath, words, { cwd: dir, encoding: "utf8" }).trim();
    assert.equal(node("-e", "require('@cove/node').run('6 * 7').then(({ value }) => console.log(value))"), "42");
    assert.equal(node("--input-type=module", "-e", "import { run } from '@cove/node'; console.log((await run('6 * 7')).value)"), "42");
});

test("without its addon, or the licences of what is in it, it is not packed", (t) => {
    for (const missing of ["prebuilds", "THIRD-PARTY-LICENSES"]) {
        const dir = directory(t);
        fs.cpSync(here, dir, { recursive: true, filter: (from) => path.relative(here, from).split(path.sep)[0] !== missing });
        assert.throws(() => execFileSync("npm", ["pack", "--offline"], { cwd: dir, encoding: "utf8", stdio: "pipe" }), (error) => /run scripts\/build-addon\.sh first/.test(error.stderr));
        assert.deepEqual(fs.readdirSync(dir).filter((name) => name.endsWith(".tgz")), []);
    }
});

test("where there is no build it loads, and the first kernel is refused", () => {
    const code = `Object.defineProperty(process, "platform", { value: "darwin" });
        const { createKernel, run } = require(process.argv[1]);
        Promise.allSettled([run("1"), createKernel(), run("1", { cpuMs: 1 })]).then((all) => console.log(JSON.stringify(all.map(({ reason }) => [reason.name, reason.code, reason.message]))));`;
    const wanted = ["KernelError", "unsupported", `@cove/node has no build for darwin-${process.arch}: it runs on Linux with glibc`];
    assert.deepEqual(JSON.parse(execFileSync(process.execPath, ["-e", code, here], { encoding: "utf8" })), [wanted, wanted, wanted]);
});

test("the README's example says what comes of it", async () => {
    const lines = fs.readFileSync(path.join(here, "README.md"), "utf8").split("\n").filter((line) => line.startsWith("    ")).map((line) => line.slice(4));
    const code = lines.map((line) => {
        const found = /^(.*);\s*\/\/ (.*)$/.exec(line);
        return found === null ? line.replace(/^import .*/, "") : `assert.deepEqual(${found[1]}, ${found[2]});`;
    });
    assert.ok(code.filter((line) => line.startsWith("assert")).length >= 4);
    const { createKernel, run } = require("@cove/node");
    await new (Object.getPrototypeOf(async () => {}).constructor)("assert", "createKernel", "run", code.join("\n"))(assert, createKernel, run);
});

const GOOD = `
import { createKernel, restoreKernel, run, Kernel, KernelError, type RunResult, type Tools, type KernelOptions } from "@cove/node";

const tools: Tools = { add: async ({ a, b }: { a: number; b: number }) => a + b, wait: (_, { signal }) => signal.aborted };
const options: KernelOptions = { allowedHosts: ["a.test"], allowedReadPaths: ["/a"], allowedWritePaths: ["/b"], env: { A: "1" }, cpuMs: 1,
    wallMs: 1, memoryLimitBytes: 1, tools, snapshotKey: new Uint8Array(32) };

export async function all(): Promise<number> {
    await using kernel: Kernel = await createKernel(options);
    using other = await createKernel();
    const got: RunResult<number> = await kernel.run<number>("1", { language: "ts", filename: "a.ts", module: true, cpuMs: 1, wallMs: 1, signal: AbortSignal.timeout(1) });
    const text: string = got.output + got.type + got.stderr + (got.error?.stack ?? "") + (got.valueError ?? "") + got.logs.map((log) => log.level + log.text).join();
    const flags: boolean = got.timedOut || got.oomKilled || got.isFinal || got.stateLost || kernel.disposed;
    const bytes: Uint8Array = await kernel.snapshot();
    const copy: Kernel = await (await restoreKernel(bytes, options)).fork();
    await copy.reset();
    copy.dispose();
    try {
        await other.run("1");
    } catch (error) {
        if (error instanceof KernelError) return error.code.length;
    }
    const kind: "error" | "deadlock" | "cpu" | "wall" | "memory" | "stack" | "trap" | undefined = got.error?.kind;
    return got.value + got.exitCode + got.cpuMs + got.wallMs + got.memoryBytes + (await run("1", { allowedHosts: [] })).value + text.length + Number(flags) + (kind ?? "").length;
}
`;
const BAD = [
    'import { run } from "@cove/node"; run(5);',
    'import { run } from "@cove/node"; run("1", { cpuMs: "1" });',
    'import { run } from "@cove/node"; run("1", { language: "python" });',
    'import { createKernel } from "@cove/node"; createKernel({ tools: { a: 5 } });',
    'import { createKernel } from "@cove/node"; createKernel({ allowHosts: [] });',
    'import { Kernel } from "@cove/node"; new Kernel();',
    'import { run } from "@cove/node"; run("1").then((got) => got.nothing);',
];

test("types: what is right compiles, what is wrong does not", (t) => {
    const dir = directory(t);
    fs.symlinkSync(path.join(top, "node_modules"), path.join(dir, "node_modules"));
    const files = { "good.mts": GOOD, "good.cts": GOOD };
    BAD.forEach((code, i) => { files[`bad${i}.mts`] = code; });
    for (const [name, code] of Object.entries(files)) fs.writeFileSync(path.join(dir, name), code);
    fs.writeFileSync(path.join(dir, "tsconfig.json"), JSON.stringify({ compilerOptions: { strict: true, exactOptionalPropertyTypes: true, noEmit: true,
        target: "esnext", module: "nodenext", moduleResolution: "nodenext", lib: ["esnext"], types: ["node"], skipLibCheck: false } }));
    let said = "";
    try {
        execFileSync(process.execPath, [path.join(top, "node_modules", "typescript", "bin", "tsc"), "-p", dir], { cwd: dir, encoding: "utf8" });
    } catch (error) {
        said = error.stdout;
    }
    const wrong = new Set([...said.matchAll(/^([a-z0-9.]+)\(/gm)].map(([, name]) => name));
    assert.deepEqual([...wrong].sort(), BAD.map((_, i) => `bad${i}.mts`), said);
});
