// What is published: all packages, packed and installed together where no script may run, work from both kinds of modules and with their
// types; on a system that has no sandboxes they load, and say what the ways out are. Nothing here is found by the workspace: the
// only thing that is lent to the project is @mastra/core, which is the user's own.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import ts from "typescript";

const top = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..", "..", "..");
const modules = path.join(top, "node_modules"), PLATFORM = `linux-${process.arch}`, PACKAGES = ["client", PLATFORM, "mastra", "node"];
const run = promisify(execFile);
let project, packed;

// No engine of the machine's, no cove of the build, none on PATH: what is installed has to do.
function environment() {
    const { COVE_URL, COVE_API_KEY, COVE_BIN, NODE_OPTIONS, NODE_TEST_CONTEXT, ...own } = process.env;
    return {
        ...own, PATH: "/usr/bin:/bin", XDG_RUNTIME_DIR: path.join(project, "run"),
        XDG_DATA_HOME: path.join(project, "data"), XDG_CONFIG_HOME: path.join(project, "config"),
    };
}

async function node(...words) {
    const { stdout } = await run(process.execPath, words, { cwd: project, encoding: "utf8", env: environment() });
    return stdout.trim();
}

const npm = (cwd, ...words) => execFileSync("npm", [...words, "--offline", "--no-audit", "--no-fund", "--loglevel=error"], { cwd, encoding: "utf8" });

before(() => {
    project = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "published-")));
    for (const name of ["run", "data", "config"]) fs.mkdirSync(path.join(project, name), { mode: 0o700 });
    packed = new Map(PACKAGES.map((name) => {
        const [{ filename, files }] = JSON.parse(npm(project, "pack", "--json", path.join(top, "packages", name)));
        return [name, { file: path.join(project, filename), names: files.map((file) => file.path) }];
    }));
    fs.writeFileSync(path.join(project, "package.json"), '{"private": true}');
    npm(project, "install", "--ignore-scripts", "--legacy-peer-deps", ...[...packed.values()].map(({ file }) => file));
    for (const name of ["@mastra", "@types"]) fs.symlinkSync(path.join(modules, name), path.join(project, "node_modules", name));
});

// The engine that a program here started: no other is executed from this project.
after(async () => {
    const ours = () => fs.readdirSync("/proc").filter((pid) => /^\d+$/.test(pid)).filter((pid) => {
        try {
            return fs.readlinkSync(`/proc/${pid}/exe`).startsWith(`${project}/`);
        } catch {
            return false;
        }
    });
    for (const pid of ours()) {
        try {
            process.kill(Number(pid), "SIGTERM");
        } catch {
            // It ended with another.
        }
    }
    for (let tries = 0; tries < 600 && ours().length > 0; tries++) await pause(50);
    assert.deepEqual(ours(), []);
    fs.rmSync(project, { recursive: true });
});

test("packages hold what they should, and no script that runs where they are installed", () => {
    const wanted = {
        client: /^(dist\/|(package\.json|README\.md|LICENSE)$)/, mastra: /^(dist\/|(package\.json|README\.md|LICENSE)$)/,
        node: /^((lib|prebuilds)\/|(package\.json|README\.md|LICENSE|THIRD-PARTY-LICENSES)$)/,
        [PLATFORM]: /^(bin\/(cove(-engine|-js|-keeper)?|lib(ssl|crypto)\.so\.3)|index\.(js|d\.ts)|package\.json|README\.md|LICENSE|THIRD-PARTY-LICENSES)$/,
    };
    for (const [name, { names }] of packed) {
        assert.deepEqual(names.filter((file) => !wanted[name].test(file)), [], name);
        for (const file of ["LICENSE", "README.md"]) assert.ok(names.includes(file), `${name}: ${file}`);
        const installed = path.join(project, "node_modules", "@cove", name);
        assert.ok(!fs.lstatSync(installed).isSymbolicLink(), name);
        const { scripts = {} } = JSON.parse(fs.readFileSync(path.join(installed, "package.json"), "utf8"));
        for (const script of ["preinstall", "install", "postinstall", "prepare"]) assert.equal(scripts[script], undefined, `${name}: ${script}`);
    }
    const licences = fs.readFileSync(path.join(project, "node_modules/@cove", PLATFORM, "THIRD-PARTY-LICENSES"), "utf8");
    for (const whose of ["Fabrice Bellard", "libuv1-dev", "libssl-dev", "libc-ares-dev", "libsqlite3-dev", "libcurl4-openssl-dev", "GNU LESSER GENERAL PUBLIC LICENSE"]) assert.ok(licences.includes(whose), whose);
});

test("each package says what it is for, whose it is and where it lies; of the project's home all say the same, or nothing", () => {
    const homes = PACKAGES.map((name) => {
        const { keywords, author, license, repository, homepage, bugs } = JSON.parse(fs.readFileSync(path.join(project, "node_modules/@cove", name, "package.json"), "utf8"));
        assert.ok(keywords.length >= 4 && keywords.includes("cove") && keywords.includes("sandbox"), name);
        assert.deepEqual([author, license, repository.type, repository.directory], ["The maintainers of cove", "Apache-2.0", "git", `js/packages/${name}`], name);
        return [repository.url, homepage, bugs?.url];
    });
    for (const home of homes) assert.deepEqual(home, homes[0]);
    assert.ok([0, 3].includes(homes[0].filter((url) => /^(git\+)?https:\/\//.test(url ?? "")).length), String(homes[0]));
});

test("of @mastra/core those versions are asked for that it was tested with, and what is for Linux alone may be missing", () => {
    const read = (file) => JSON.parse(fs.readFileSync(path.join(top, file), "utf8"));
    // Older ones have no start that can be given up, and file systems that cannot say what is text.
    const { version } = read("node_modules/mastra-core-oldest/package.json"), [major, minor] = version.split(".");
    assert.equal(read("node_modules/@mastra/core/package.json").version.split(".")[0], major);
    const { peerDependencies, dependencies, optionalDependencies } = read("packages/mastra/package.json");
    assert.deepEqual(peerDependencies, { "@mastra/core": `>=${version} <${Number(major) + 1}` });
    assert.ok(fs.readFileSync(path.join(top, "packages/mastra/README.md"), "utf8").includes(`\`@mastra/core\` ${major}.${minor} or later`));
    for (const name of ["client", "mastra"]) {
        for (const linux of ["@cove/linux-arm64", "@cove/linux-x64", "@cove/node"]) assert.equal(read(`packages/${name}/package.json`).dependencies?.[linux], undefined, `${name}: ${linux}`);
    }
    assert.deepEqual([Object.keys(dependencies), Object.keys(optionalDependencies)], [["@cove/client"], ["@cove/node"]]);
});

test("the client brings the programs of every machine, whose packages differ in its name alone", () => {
    const read = (name, file) => fs.readFileSync(path.join(top, "packages", name, file), "utf8");
    const { optionalDependencies } = JSON.parse(read("client", "package.json"));
    assert.deepEqual(optionalDependencies, { "@cove/linux-arm64": "0.1.0", "@cove/linux-x64": "0.1.0" });
    const arm64 = JSON.parse(read("linux-arm64", "package.json"));
    assert.deepEqual([arm64.version, arm64.os, arm64.cpu], [optionalDependencies[arm64.name], ["linux"], ["arm64"]]);
    for (const file of ["package.json", "index.js", "index.d.ts", "README.md", "LICENSE"]) {
        assert.equal(read("linux-arm64", file), read("linux-x64", file).replaceAll("linux-x64", "linux-arm64").replace("x86-64", "arm64").replace('"x64"', '"arm64"'), file);
    }
});

test("the programs need nothing but glibc and what lies beside them, and no newer one than is said", () => {
    const bin = path.join(project, "node_modules/@cove", PLATFORM, "bin");
    for (const name of fs.readdirSync(bin)) {
        const text = execFileSync("readelf", ["-dVW", path.join(bin, name)], { encoding: "utf8" });
        for (const [, library] of text.matchAll(/NEEDED.*\[(.*)\]/g)) assert.match(library, name === "libssl.so.3" ? /^(libc\.so\.6|libcrypto\.so\.3|ld-linux-aarch64\.so\.1)$/ : /^(lib[cm]\.so\.6|ld-linux-aarch64\.so\.1)$/, name);
        for (const [, version] of text.matchAll(/GLIBC_2\.(\d+)/g)) assert.ok(Number(version) <= 34, `${name}: glibc 2.${version}`);
    }
    assert.match(execFileSync(path.join(bin, "cove"), ["--version"], { encoding: "utf8" }), /^cove 0\./);
    assert.equal(fs.realpathSync(path.join(project, "node_modules/.bin/cove")), path.join(bin, "cove"));
});

// One engine serves both, started by the first.
const USE = (imports) => `${imports}
    (async () => {
        const sandbox = new CoveSandbox({ id: "published" });
        const { exitCode, stdout } = await sandbox.executeCommand("echo", ["from", "a box"]);
        const { value } = await run("6 * 7");
        const files = new CoveFilesystem({ sandbox });
        await files.writeFile("a.txt", "a file");
        console.log(JSON.stringify([exitCode, stdout, value, await files.readFile("a.txt", { encoding: "utf8" }),
            detectIsolation().available, typeof createMastraSandbox, new CoveError("a", "b").code, sandbox.cove instanceof Cove, path.basename(cove)]));
        await sandbox._destroy();
        process.exit(0);
    })();`;
const NAMES = {
    "@cove/mastra": "CoveFilesystem, CoveSandbox, detectIsolation", "@cove/mastra/wasmagent": "createMastraSandbox", "@cove/client": "Cove, CoveError",
    "@cove/node": "run", [`@cove/${PLATFORM}`]: "cove",
};
const USED = JSON.stringify([0, "from a box\n", 42, "a file", true, "function", "a", true, "cove"]);

test("from ES modules", async () => {
    const imports = Object.entries(NAMES).map(([name, what]) => `import { ${what} } from "${name}";`).join("\n");
    assert.equal(await node("--input-type=module", "-e", USE(`import path from "node:path";\n${imports}`)), USED);
});

test("from CommonJS", async () => {
    const imports = Object.entries(NAMES).map(([name, what]) => `const { ${what} } = require("${name}");`).join("\n");
    assert.equal(await node("--input-type=commonjs", "-e", USE(imports)), USED);
});

for (const platform of ["darwin", "win32"]) {
    test(`on ${platform} all of it loads, and what needs a server names the ways out`, async () => {
        const preload = path.join(project, `${platform}.mjs`);
        fs.writeFileSync(preload, `Object.defineProperty(process, "platform", { value: "${platform}" });`);
        const code = `
            const { CoveSandbox, CoveLocalSandbox } = await import("@cove/mastra");
            const { QuickJSKernel } = await import("@cove/mastra/wasmagent");
            const { Cove } = await import("@cove/client");
            const said = [];
            for (const start of [() => new CoveSandbox().start(), () => new CoveLocalSandbox().start(), () => new Cove().connect()]) {
                said.push(await start().then(() => "it starts", (error) => error.message));
            }
            const remote = await new Cove({ url: "http://127.0.0.1:1", apiKey: "k", retryMs: 1 }).connect().then(() => "", (error) => error.code);
            console.log(JSON.stringify({ said, remote, kernel: typeof QuickJSKernel }));
            process.exit(0);`;
        const { said, remote, kernel } = JSON.parse(await node("--import", preload, "--input-type=module", "-e", code));
        for (const text of said) {
            assert.match(text, /Linux/);
            assert.match(text, /\burl\b/);
            assert.doesNotMatch(text, /\n/);
        }
        assert.equal(remote, "unreachable");
        assert.equal(kernel, "function");
    });
}

const TYPED = `
import { Agent } from "@mastra/core/agent";
import { Workspace, type LocalSandboxOptions, type WorkspaceFilesystem, type WorkspaceSandbox } from "@mastra/core/workspace";
import type { SandboxProvider } from "@mastra/core/editor";
import { Cove, CoveError, type Process, type SandboxView } from "@cove/client";
import { CoveFilesystem, CoveLocalSandbox, CoveSandbox, coveSandboxProvider, createCoveWorkspace, type CoveLocalSandboxOptions } from "@cove/mastra";
import { QuickJSKernel, createMastraSandbox } from "@cove/mastra/wasmagent";
import { cove } from "@cove/${PLATFORM}";

// What Mastra's own types take, and options that may not be there.
declare const maybe: string | undefined;
declare const theirs: LocalSandboxOptions;
export const given: CoveLocalSandboxOptions = theirs;
export const sandboxes: WorkspaceSandbox[] = [
    new CoveSandbox({ id: maybe, workingDirectory: maybe, env: undefined, onStart: undefined, timeout: undefined }),
    new CoveLocalSandbox({ ...theirs, id: maybe, workingDirectory: maybe, onStop: undefined }),
];
export const files: WorkspaceFilesystem = new CoveFilesystem({ sandbox: new CoveSandbox(), basePath: maybe, readOnly: undefined, onInit: undefined });
export const workspace: Workspace = createCoveWorkspace({ sandbox: { url: maybe, apiKey: maybe }, filesystem: { basePath: maybe } });
export const provider: SandboxProvider<{ id?: string }> = coveSandboxProvider;

export async function all(): Promise<string> {
    const sandbox = new CoveSandbox({ id: "a", env: { A: "1" }, bin: cove });
    const filesystem = new CoveFilesystem({ sandbox });
    const workspace = new Workspace({ sandbox, filesystem });
    const agent = new Agent({ id: "a", name: "a", instructions: "", model: "a/b", workspace });
    const { exitCode, stdout } = await sandbox.executeCommand("true", [], { timeout: 1000, onStdout: (text: string) => text.length });
    const local = new CoveLocalSandbox({ workingDirectory: "/a", isolation: "bwrap", nativeSandbox: { allowNetwork: true } });
    const url: string | null = (await sandbox.networking?.getPortUrl(8000)) ?? null;
    const client: Cove = sandbox.cove;
    const view: SandboxView = await client.get("a");
    const processes: Process[] = await client.sandbox(view.id).processes.list();
    try {
        await client.sandbox(view.id).exec({ argv: ["true"] }, { signal: AbortSignal.timeout(1) });
    } catch (error) {
        if (error instanceof CoveError) return error.code + error.detail;
    }
    return agent.name + stdout + exitCode + local.workingDirectory + url + processes.length + typeof QuickJSKernel + typeof createMastraSandbox;
}
`;
const WRONG = [
    'import { CoveSandbox } from "@cove/mastra"; new CoveSandbox({ snapshot: "a" });',
    'import { CoveLocalSandbox } from "@cove/mastra"; new CoveLocalSandbox({ url: "http://a" });',
    'import { CoveFilesystem } from "@cove/mastra"; new CoveFilesystem({});',
    'import { Cove } from "@cove/client"; new Cove({ uri: "http://a" });',
    'import { Cove } from "@cove/client"; new Cove().sandbox("a").exec({ command: "a", timeout: 1 });',
    `import { cove } from "@cove/${PLATFORM}"; cove.nothing;`,
];

for (const exactOptionalPropertyTypes of [false, true]) test(`types: what is right compiles from both kinds of modules, what is wrong does not, and none of our own is wrong${
    exactOptionalPropertyTypes ? ", with exactOptionalPropertyTypes" : ""}`, async () => {
    const directory = path.join(project, exactOptionalPropertyTypes ? "typed-exactly" : "typed");
    fs.mkdirSync(directory);
    const files = { "good.mts": TYPED, "good.cts": TYPED };
    WRONG.forEach((code, i) => { files[`wrong${i}.mts`] = code; });
    for (const [name, code] of Object.entries(files)) fs.writeFileSync(path.join(directory, name), code);
    const program = ts.createProgram(Object.keys(files).map((name) => path.join(directory, name)), { strict: true, exactOptionalPropertyTypes, noEmit: true,
        target: ts.ScriptTarget.ES2023, module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext,
        lib: ["lib.es2023.d.ts"], types: ["node"], typeRoots: [path.join(project, "node_modules/@types")], skipLibCheck: false });
    assert.deepEqual(program.getConfigFileParsingDiagnostics().concat(program.getOptionsDiagnostics(), program.getGlobalDiagnostics()).map(({ messageText }) => messageText), []);
    // Those of others are read, and only what is said of ours counts.
    const ours = program.getSourceFiles().filter(({ fileName }) => !fileName.includes("node_modules") || fileName.includes("node_modules/@cove/"));
    const wrong = new Map();
    for (const file of ours) {
        for (const { messageText } of [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)]) {
            wrong.set(path.relative(directory, file.fileName), ts.flattenDiagnosticMessageText(messageText, "\n"));
        }
    }
    for (const name of ["client", PLATFORM, "mastra"]) assert.ok(ours.some(({ fileName }) => fileName.includes(`/@cove/${name}/`)), name);
    assert.deepEqual([...wrong.keys()].sort(), WRONG.map((_, i) => `wrong${i}.mts`), [...wrong.values()].join("\n"));
});

test("publint and attw find nothing", async () => {
    for (const [name, { file }] of packed) {
        for (const [said, program, ...words] of [[/All good!/, "publint/src/cli.js", "run", file, "--strict"],
            [/No problems found/, "@arethetypeswrong/cli/dist/index.js", file, "--no-color"]]) {
            const { stdout, stderr } = await run(process.execPath, [path.join(modules, program), ...words], { cwd: project, encoding: "utf8" }).catch((error) => error);
            assert.match(stdout, said, `${name}: ${program}: ${stdout}${stderr}`);
        }
    }
});

test("what was not built is not packed", () => {
    for (const [name, missing, remedy] of [["client", "dist", "build-js"], ["mastra", "dist", "build-js"], [PLATFORM, "bin", "build-platform"], [PLATFORM, "THIRD-PARTY-LICENSES", "build-platform"]]) {
        const from = path.join(top, "packages", name), to = fs.mkdtempSync(path.join(project, "unbuilt-"));
        fs.cpSync(from, to, { recursive: true, filter: (file) => path.relative(from, file).split(path.sep)[0] !== missing });
        assert.throws(() => execFileSync("npm", ["pack", "--offline"], { cwd: to, encoding: "utf8", stdio: "pipe" }), (error) => error.stderr.includes(`run scripts/${remedy}.sh first`));
    }
});
