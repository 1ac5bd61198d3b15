// CoveFilesystem beside the LocalFilesystem of @mastra/core: each case runs on both, and must come to the same, or to
// what the case says and why. Then what only one of them has: searches inside the sandbox, and a sandbox that ends.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { CoveFilesystem, CoveSandbox, createCoveWorkspace } from "@cove/mastra";
import * as core from "@mastra/core/workspace";
import { startEngine } from "../../client/test/engine.mjs";
import { cases } from "./filesystem-cases.mjs";
import { lines, patterns } from "./grep-cases.mjs";

const { FilesystemError, LocalFilesystem, UnsupportedGrepPatternError, Workspace, WorkspaceError, createWorkspaceTools } = core;
const run = promisify(execFile);
let engine, sandbox, temporary;

before(async () => {
    temporary = await mkdtemp(join(tmpdir(), "cove-test-"));
    engine = await startEngine();
    sandbox = new CoveSandbox({ cove: engine.cove, ephemeral: true });
});

after(async () => {
    await sandbox?._destroy();
    await engine?.end();
    await rm(temporary, { recursive: true, force: true });
});

/** A shell in the sandbox; what it prints. */
async function inSandbox(script, cwd) {
    const result = await sandbox.executeCommand(script, [], { cwd });
    assert.equal(result.exitCode, 0, `${script}\n${result.stderr}`);
    return result.stdout;
}

async function local(number, options) {
    const base = join(temporary, `${number}`);
    const fs = new LocalFilesystem({ contained: false, ...options, basePath: base });
    await LocalFilesystem.prototype.init.call(fs);
    return { fs, base, sh: async (script) => (await run("sh", ["-c", script], { cwd: base })).stdout };
}

async function ours(number, options) {
    const base = `/tmp/files/${number}`;
    await inSandbox(`mkdir -p ${base}`);
    return { fs: new CoveFilesystem({ ...options, sandbox, basePath: base }), base, sh: (script) => inSandbox(script, base) };
}

/** Without what is undefined: that is the same as not being there. */
function plain(value) {
    if (Array.isArray(value)) return value.map(plain);
    if (value?.constructor !== Object) return value;
    const there = Object.entries(value).filter(([, each]) => each !== undefined);
    return Object.fromEntries(there.map(([key, each]) => [key, plain(each)]));
}

/** What a case came to: its value, or its error by class and code. Those of the system have a code alone. */
async function outcomeOf(side, act) {
    try {
        return { value: plain(await act(side.fs, side)) };
    } catch (error) {
        if (error instanceof FilesystemError || error instanceof WorkspaceError)
            return { error: error.constructor.name, code: error.code };
        if (typeof error.syscall === "string") return { code: error.code };
        throw error;
    }
}

describe("beside LocalFilesystem", () => {
    cases.forEach(([name, ...rest], number) => {
        const options = typeof rest[0] === "function" ? {} : rest.shift();
        const [act, differs] = rest;
        test(name, async () => {
            const there = await outcomeOf(await local(number, options), act);
            const here = await outcomeOf(await ours(number, options), act);
            if (differs !== undefined) {
                assert.deepEqual(here, differs.ours, differs.why);
                assert.notDeepEqual(there, differs.ours, "LocalFilesystem does the same now: this case needs no reason any more");
            } else if (there.code !== undefined && there.error === undefined) {
                // An error of the system: ours is one of core's own, with the same code.
                assert.equal(here.code, there.code);
                assert.equal(new core[here.error]("x", "x", "x") instanceof FilesystemError, true);
            } else {
                assert.deepEqual(here, there);
            }
        });
    });
});

describe("searches", () => {
    let both;

    before(async () => {
        const there = await local("grep", {});
        const here = await ours("grep", {});
        for (const { fs, sh } of [there, here]) {
            await fs.writeFile("lines.txt", lines.join("\n"));
            await fs.writeFile("src/deep/code.ts", 'import { a } from "b";\nexport function main(): void {}\n// TODO: it\n');
            await fs.writeFile("src/crlf.txt", "one\r\ntwo\r\nthree\r\n");
            await fs.writeFile("src/picture.png", "TODO\0");
            await fs.writeFile(".hidden/a.txt", "TODO hidden\n");
            await fs.writeFile("build/out.txt", "TODO built\n".repeat(3));
            await fs.writeFile("repeated.txt", "TODO again\nother\n".repeat(40));
            await fs.writeFile(".gitignore", "build/\n");
            await sh("ln -s ../lines.txt src/link.txt; ln -s src linked; mkdir .git; echo TODO >.git/config.txt");
        }
        const toolsOf = async (fs) => (await createWorkspaceTools(new Workspace({ filesystem: fs }))).mastra_workspace_grep;
        both = { there, here, thereTool: await toolsOf(there.fs), hereTool: await toolsOf(here.fs) };
    });

    /** Whether the engine answered it, and not core's own search. */
    async function native(act) {
        const { fs } = both.here;
        let answered = 0;
        fs.grep = async (options) => {
            const results = await CoveFilesystem.prototype.grep.call(fs, options);
            answered++;
            return results;
        };
        try {
            return { result: await act(), isNative: answered > 0 };
        } finally {
            delete fs.grep;
        }
    }

    /** In one order. Core's own search shows an empty line behind the last newline of a file, which is none. */
    const comparable = (text) => {
        const [summary, rule, ...rest] = text.split("\n");
        return [summary, rule, ...rest.filter((line) => !/:\d+- $/.test(line)).sort()];
    };

    async function same(input, isExpectedNative = true) {
        const there = await both.thereTool.execute(input, {});
        const { result: here, isNative } = await native(() => both.hereTool.execute(input, {}));
        assert.deepEqual(comparable(here), comparable(there), JSON.stringify(input));
        assert.equal(isNative, isExpectedNative, `${JSON.stringify(input)}: by the engine`);
    }

    for (const [pattern, isNative = true] of patterns)
        test(`/${pattern}/ finds what JavaScript finds`, async () => {
            await same({ pattern, path: "." }, isNative);
        });
    for (const [pattern] of patterns.filter(([, , ignoringCase]) => ignoringCase !== undefined))
        test(`/${pattern}/i finds what JavaScript finds`, async () => {
            await same({ pattern, path: ".", caseSensitive: false }, patterns.find(([one]) => one === pattern)[2]);
        });

    test("lines around", () => same({ pattern: "TODO|three", path: "src", contextLines: 1 }));
    test("lines around that overlap", () => same({ pattern: "o", path: "src/deep/..", contextLines: 3 }));
    test("at most so many of a file", () => same({ pattern: "TODO", path: ".", maxCount: 2 }));
    test("at most so many of a file, with lines around", () =>
        same({ pattern: "TODO", path: ".", maxCount: 2, contextLines: 2 }));
    test("hidden files", () => same({ pattern: "TODO", path: ".", includeHidden: true }));
    test("a hidden directory by its name", () => same({ pattern: "TODO", path: ".hidden" }));
    test("lines that are very long", async () => {
        const long = `${"é".repeat(30_000)}needle${"x".repeat(70_000)}end`;
        for (const { fs } of [both.there, both.here]) await fs.writeFile("long/a.txt", `short needle\n${long}\nneedle`);
        await same({ pattern: "needle", path: "long" });
        await same({ pattern: "end$", path: "long" });
        await same({ pattern: "needle(?!x)", path: "long" });
        const how = { caseSensitive: true, includeHidden: false };
        const [{ matches }] = await both.here.fs.grep({ pattern: "end$", path: "long", ...how });
        assert.deepEqual(matches, [{ line: 2, column: 100_006, text: long }]);
        for (const { fs } of [both.there, both.here]) await fs.rmdir("long", { recursive: true });
    });
    test("a glob", () => same({ pattern: "TODO", path: "src/**/*.ts" }));
    test("a file", () => same({ pattern: "TODO", path: "repeated.txt" }, false));
    test("nothing", () => same({ pattern: "nowhere at all", path: "." }));
    test("a directory that is not there", () => same({ pattern: "TODO", path: "none" }, false));
    test("a directory that git ignores", () => same({ pattern: "TODO built", path: "build", maxCount: 5 }));
    test("more than the limit, most of it ignored", async () => {
        for (const { fs } of [both.there, both.here]) await fs.writeFile("build/more.txt", "TODO built\n".repeat(3000));
        await same({ pattern: "TODO", path: "." }, false);
        for (const { fs } of [both.there, both.here]) await fs.deleteFile("build/more.txt");
    });
    test("more than the limit, all of it wanted", async () => {
        for (const { fs } of [both.there, both.here]) await fs.writeFile("many/more.txt", "many more\n".repeat(3000));
        const { result, isNative } = await native(() => both.hereTool.execute({ pattern: "many", path: "many" }, {}));
        assert.match(result, /^1000 matches across 1 file \(truncated at 1000\)/);
        assert.equal(isNative, false); // .gitignore might leave some out
        for (const { fs } of [both.there, both.here]) await fs.rmdir("many", { recursive: true });
    });

    test("walk says what readdir says", async () => {
        const { fs } = both.here;
        const walked = await fs.walk("src", { includeHidden: true });
        const read = await fs.readdir("src", { recursive: true });
        assert.deepEqual(walked, read.map((entry) => ({ ...entry, path: entry.name, name: entry.name.split("/").at(-1) })));
        const top = (await fs.walk(".", { maxDepth: 1 })).map((entry) => entry.path);
        assert.deepEqual(top, ["build", "lines.txt", "linked", "repeated.txt", "src"]);
        assert.deepEqual(await fs.walk(".", { maxDepth: 0 }), []);
        await assert.rejects(fs.walk("none"), core.DirectoryNotFoundError);
        await assert.rejects(fs.walk("lines.txt"), core.NotDirectoryError);
    });

    test("list_files says the same, by walk and without", async () => {
        const { here, there } = both;
        const list = async (fs, input) => {
            const tools = await createWorkspaceTools(new Workspace({ filesystem: fs }));
            return tools.mastra_workspace_list_files.execute(input, {});
        };
        for (const input of [
            { path: "." }, { path: ".", maxDepth: 9, showHidden: true }, { path: "src", maxDepth: 1 },
            { path: ".", pattern: "**/*.ts", maxDepth: 5 },
        ])
            assert.equal(await list(here.fs, input), await list(there.fs, input));
    });

    test("grep as it is called: columns are UTF-16, context is beside each match", async () => {
        const { fs } = both.here;
        await fs.writeFile("columns/a.txt", "one\n😀 é x\ntwo x\nthree\n");
        assert.deepEqual(
            await fs.grep({ pattern: "x", path: "columns", caseSensitive: true, includeHidden: false, contextLines: 1 }),
            [{
                path: "a.txt",
                matches: [
                    { line: 2, column: 5, text: "😀 é x", before: ["one"], after: ["two x"] },
                    { line: 3, column: 4, text: "two x", before: ["😀 é x"], after: ["three"] },
                ],
            }],
        );
        await assert.rejects(
            fs.grep({ pattern: "(a)\\1", path: ".", caseSensitive: true, includeHidden: false }),
            UnsupportedGrepPatternError,
        );
    });

    test("contained: a link that leads out is not searched", async () => {
        const { fs, sh } = await ours("contained-grep", { contained: true });
        await sh("echo 'root: inside' >in.txt; ln -s /etc/passwd out.txt; ln -s in.txt in2.txt");
        const found = await fs.grep({ pattern: "root", path: ".", caseSensitive: true, includeHidden: false });
        assert.deepEqual(found.map(({ path }) => path), ["in.txt", "in2.txt"]);
    });
});

describe("on a disk of its own", () => {
    test("100 MB are written and read", async () => {
        const { fs, sh } = await ours("large", {});
        const large = Buffer.alloc(100 * 1024 * 1024);
        for (let at = 0; at < large.length; at += 4096) large.writeUInt32LE(at, at);
        await fs.writeFile("large", large);
        assert.equal((await fs.readFile("large")).equals(large), true);
        assert.equal((await sh("stat -c %s large")).trim(), `${large.length}`);
    });

    test("without a base: where commands start", async () => {
        const fs = new CoveFilesystem({ sandbox });
        await fs.writeFile("here", "1");
        assert.equal(await inSandbox("cat here"), "1");
        assert.equal(fs.basePath, undefined);
        assert.equal(fs.getInfo().metadata.basePath, (await inSandbox("pwd")).trim());
        assert.equal(await fs.readFile("~/here", { encoding: "utf-8" }), "1");
        assert.equal(await inSandbox("cat ~/here"), "1");
        assert.equal(sandbox.filesystem, sandbox.filesystem);
        assert.equal(await sandbox.filesystem.exists("here"), true);
    });

    test("a base that begins with ~", async () => {
        const fs = new CoveFilesystem({ sandbox, basePath: "~/project" });
        await fs.writeFile("a", "1");
        assert.equal(await inSandbox("cat ~/project/a"), "1");
    });

    test("options that do not exist are refused", () => {
        assert.throws(() => new CoveFilesystem({ sandbox, basepath: "/x" }), /there is no option "basepath"/);
        assert.throws(() => new CoveFilesystem({}), /needs the sandbox/);
    });

    test("options in the wrong place are refused", () => {
        assert.throws(() => createCoveWorkspace({ url: "http://localhost:1" }), /"url" is of the sandbox/);
        assert.throws(() => createCoveWorkspace({ basePath: "/x" }), /"basePath" is of the filesystem/);
        assert.throws(() => createCoveWorkspace({ sandbx: {} }), /createCoveWorkspace: there is no option "sandbx"; it takes sandbox, /);
        assert.throws(() => createCoveWorkspace({ sandbox: () => sandbox }), /make a Workspace itself/);
        assert.throws(() => createCoveWorkspace({ sandbox, mounts: {} }), /mounts/);
        for (const lsp of [true, { root: "/root" }])
            assert.throws(() => createCoveWorkspace({ sandbox, lsp }), /lsp looks for language servers.*leave it out/);
        assert.ok(createCoveWorkspace({ sandbox, lsp: false }));
    });

    test("a path that can be none", async () => {
        await assert.rejects(sandbox.filesystem.readFile("a\0b"), { code: "EINVAL" });
        await assert.rejects(sandbox.filesystem.writeFile("a\ud800b", "1"), { code: "EINVAL" });
    });

    test("a user who may not", async () => {
        const other = new CoveSandbox({ cove: engine.cove, ephemeral: true, user: "nobody" });
        try {
            await other.start();
            await other.native.files.write("/tmp/closed/a", "1", { user: "root", mode: "0600" });
            await assert.rejects(other.filesystem.readFile("/tmp/closed/a"), core.PermissionError);
            await assert.rejects(other.filesystem.writeFile("/tmp/closed/b", "1"), core.PermissionError);
            await assert.rejects(other.filesystem.writeFile("/etc/new", "1"), core.PermissionError);
            await assert.rejects(other.filesystem.deleteFile("/tmp/closed/a"), core.PermissionError);
            assert.equal(await other.filesystem.exists("/tmp/closed/a"), true);
        } finally {
            await other._destroy();
        }
    });

    test("it starts the sandbox, and a sandbox that is gone is made again", async () => {
        const mine = new CoveSandbox({ cove: engine.cove, ephemeral: true });
        const fs = new CoveFilesystem({ sandbox: mine, basePath: "/tmp/base" });
        try {
            await fs.writeFile("a", "1");
            assert.equal(mine.status, "running");
            await mine.native.remove();
            assert.deepEqual(await fs.readdir("."), []);
            await fs.writeFile("a", "2");
            assert.equal(await fs.readFile("a", { encoding: "utf-8" }), "2");
        } finally {
            await mine._destroy();
        }
    });

    test("a sandbox that was stopped has its files again", async () => {
        const mine = new CoveSandbox({ cove: engine.cove });
        try {
            await mine.filesystem.writeFile("kept", "1");
            await mine._stop();
            assert.equal(await mine.filesystem.readFile("kept", { encoding: "utf-8" }), "1");
            assert.equal(mine.status, "running");
        } finally {
            await mine._destroy();
        }
    });

    test("a sandbox whose disk is in memory has its base again", async () => {
        const mine = new CoveSandbox({ cove: engine.cove, ephemeral: true });
        const fs = new CoveFilesystem({ sandbox: mine, basePath: "/tmp/base/of/it" });
        try {
            await fs.writeFile("a", "1");
            await mine._stop();
            assert.deepEqual(await fs.readdir("."), []);
        } finally {
            await mine._destroy();
        }
    });

    test("the root as base", async () => {
        const fs = new CoveFilesystem({ sandbox, basePath: "/" });
        assert.ok((await fs.readdir(".")).some(({ name }) => name === "tmp"));
        assert.equal((await fs.stat("etc/passwd")).path, "etc/passwd");
        await fs.writeFile("tmp/of-root/a", "needle");
        assert.deepEqual((await fs.walk("tmp/of-root")).map(({ path }) => path), ["a"]);
        assert.equal((await fs.readdir("tmp", { recursive: true })).filter(({ name }) => name === "of-root/a").length, 1);
        const how = { caseSensitive: true, includeHidden: false };
        assert.equal((await fs.grep({ pattern: "needle", path: "/tmp/of-root", ...how })).length, 1);
    });

    test("what can only be removed or copied in part is an error", async () => {
        const mine = new CoveSandbox({ cove: engine.cove, ephemeral: true, user: "nobody", workingDirectory: "/tmp/w" });
        try {
            await mine.filesystem.writeFile("d/mine/a", "1");
            await mine.native.files.write("/tmp/w/d/closed/a", "1", { user: "root" });
            await mine.native.files.chmod("/tmp/w/d/closed", "0700", { user: "root" });
            await assert.rejects(mine.filesystem.copyFile("d", "e", { recursive: true }), core.PermissionError);
            await assert.rejects(mine.filesystem.rmdir("d", { recursive: true }), core.PermissionError);
            assert.equal(await mine.filesystem.exists("d/closed"), true);
        } finally {
            await mine._destroy();
        }
    });

    test("300 at once", async () => {
        const fs = new CoveFilesystem({ sandbox, basePath: "/tmp/many" });
        const names = Array.from({ length: 300 }, (_, i) => `${i % 7}/${i}`);
        await Promise.all(names.map((name) => fs.writeFile(name, name)));
        assert.deepEqual(await Promise.all(names.map((name) => fs.readFile(name, { encoding: "utf-8" }))), names);
        await Promise.all(names.map((name) => fs.deleteFile(name)));
        assert.equal((await fs.readdir(".", { recursive: true })).length, 7);
    });

    test("a directory that is copied into another one is whole over a restart of the engine", async () => {
        const fs = new CoveFilesystem({ sandbox, basePath: "/tmp/whole" });
        await fs.mkdir(".");
        await inSandbox("mkdir -p from/d to; for i in $(seq 200); do echo $i >from/d/$i; done", fs.basePath);
        const copied = fs.copyFile("from", "to", { recursive: true });
        await engine.kill();
        await copied;
        await inSandbox("diff -r from to", fs.basePath);
    });

    test("a file that is larger than any memory is refused; what is large and fits is read whole", async () => {
        const fs = new CoveFilesystem({ sandbox, basePath: "/tmp/large" });
        await fs.mkdir(".");
        await inSandbox("truncate -s 500G sparse; ln -s sparse link; head -c 20000000 /dev/zero | tr '\\0' x >large", fs.basePath);
        for (const name of ["sparse", "link"])
            await assert.rejects(fs.readFile(name), (error) => error instanceof FilesystemError && error.code === "EFBIG");
        assert.equal((await fs.readFile("large", { encoding: "utf-8" })).length, 20_000_000);
        await fs.deleteFile("sparse");
    });

    test("very many long lines are found, and told in part", async () => {
        const fs = new CoveFilesystem({ sandbox, basePath: "/tmp/long" });
        await fs.mkdir(".");
        await inSandbox("line=$(head -c 3000000 /dev/zero | tr '\\0' x); for i in $(seq 20); do echo \"needle $i $line\"; done >lines", fs.basePath);
        const [{ matches }] = await fs.grep({ path: ".", pattern: "needle" });
        assert.deepEqual(matches.map(({ line, column }) => [line, column]), Array.from({ length: 20 }, (_, i) => [i + 1, 0]));
        assert.ok(matches.reduce((sum, { text }) => sum + text.length, 0) < 45_000_000);
        assert.ok(matches[0].text.length > 3_000_000);
        await fs.deleteFile("lines");
    });

    test("an engine that is killed meanwhile costs nothing but the time", async () => {
        const fs = new CoveFilesystem({ sandbox, basePath: "/tmp/over" });
        const written = [];
        const write = async (i) => {
            await fs.writeFile(`${i}`, `${i}`, { overwrite: false });
            written.push(i);
            await fs.appendFile("log", `${i}\n`);
            await fs.copyFile(`${i}`, `copies/${i}`, { overwrite: false });
            await fs.copyFile(`${i}`, "last");
        };
        for (let i = 0; i < 10; i++) await write(i);
        const killed = engine.kill();
        for (let i = 10; i < 40; i++) await write(i);
        await killed;
        for (let i = 40; i < 50; i++) await write(i);
        assert.equal((await fs.readdir(".")).length, 53);
        assert.equal((await fs.readdir("copies")).length, 50);
        assert.equal(await fs.readFile("log", { encoding: "utf-8" }), written.map((i) => `${i}\n`).join(""));
        assert.equal(await fs.readFile("last", { encoding: "utf-8" }), "49");
        for (const i of written) assert.equal(await fs.readFile(`${i}`, { encoding: "utf-8" }), `${i}`);
    });

    test("skills of the workspace are read from the sandbox", async () => {
        const filesystem = new CoveFilesystem({ sandbox, basePath: "/tmp/skilled" });
        const workspace = new Workspace({ sandbox, filesystem, skills: ["skills"] });
        await workspace.filesystem.writeFile(
            "skills/greet/SKILL.md",
            "---\nname: greet\ndescription: Says hello\n---\nSay hello to everybody.\n",
        );
        assert.deepEqual((await workspace.skills.list()).map(({ name }) => name), ["greet"]);
        assert.match((await workspace.skills.get("greet")).instructions, /hello to everybody/);
    });

    test("as one of several filesystems of a workspace", async () => {
        const workspace = new Workspace({
            mounts: {
                "/box": new CoveFilesystem({ sandbox, basePath: "/tmp/mounted", contained: true }),
                "/host": new LocalFilesystem({ basePath: join(temporary, "mounted") }),
            },
        });
        const fs = workspace.filesystem;
        await fs.writeFile("/host/a.txt", "from outside");
        await fs.copyFile("/host/a.txt", "/box/d/a.txt");
        assert.equal(await inSandbox("cat /tmp/mounted/d/a.txt"), "from outside");
        await fs.moveFile("/box/d/a.txt", "/host/b.txt");
        assert.equal(await fs.readFile("/host/b.txt", { encoding: "utf-8" }), "from outside");
        assert.deepEqual((await fs.readdir("/box", { recursive: true })).map(({ name }) => name), ["d"]);
        assert.equal((await fs.stat("/box/d")).type, "directory");
    });

    test("two workspaces, each with its own sandbox, in one line", async () => {
        const one = createCoveWorkspace({ sandbox: { cove: engine.cove, ephemeral: true } });
        const other = createCoveWorkspace({
            sandbox: { cove: engine.cove, ephemeral: true },
            filesystem: { basePath: "/tmp/w", readOnly: true },
        });
        try {
            await one.init();
            await one.filesystem.writeFile("a.txt", "1");
            const { stdout } = await one.sandbox.executeCommand("cat a.txt");
            assert.equal(stdout, "1");
            assert.equal(await other.filesystem.exists("a.txt"), false);
            const tools = Object.keys(await createWorkspaceTools(one)).map((name) => name.replace("mastra_workspace_", ""));
            for (const tool of (
                "execute_command get_process_output kill_process read_file write_file edit_file list_files delete file_stat " +
                "mkdir grep"
            ).split(" "))
                assert.ok(tools.includes(tool), tool);
            assert.ok(!Object.keys(await createWorkspaceTools(other)).includes("mastra_workspace_write_file"));
        } finally {
            await one.destroy();
            await other.destroy();
        }
        assert.equal(one.sandbox.status, "destroyed");
        await assert.rejects(one.filesystem.readFile("a.txt"), core.FilesystemNotReadyError);
    });
});

describe("what an agent is told that takes / for the workspace", () => {
    const failure = (promise) => promise.then(() => "no error", (error) => (error instanceof core.PermissionError ? error.message : String(error)));

    test("a path is named where something of it is there, contained or not, as LocalFilesystem has it", async () => {
        for (const contained of [true, false]) {
            const { fs, base } = await ours(`hint-${contained}`, { contained });
            // Not contained, the root of the sandbox can be written to, but not the directories that are the host's.
            const [top, outside] = contained ? ["src", ["/hello.txt", "/etc/passwd", "/../hello.txt"]] : ["etc", ["/usr/x"]];
            await fs.writeFile(`${top}/app.ts`, "x");
            assert.match(await failure(fs.writeFile(`/${top}/app.ts`, "y")), new RegExp(`use a relative path like "${top}/app\\.ts"`));
            assert.match(await failure(fs.mkdir(`//${top}/new/deep`)), new RegExp(`use a relative path like "${top}/new/deep"`));
            for (const path of outside)
                assert.match(await failure(fs.writeFile(path, "y")), contained ? /use a path relative to the workspace root, without a leading "\/"/ : /system directories are read-only/, path);
            assert.equal(await fs.readFile(`${top}/app.ts`, { encoding: "utf8" }), "x");
            if (contained) assert.match(await failure(fs.readFile("/src/app.ts")), /use a relative path like "src\/app\.ts"/);
            else assert.equal(await failure(fs.writeFile("/src/app.ts", "y")), "no error");
            // Of what is inside and cannot be written there is no better path.
            await inSandbox("mkdir locked; chmod 0 locked; id -u", base);
            if ((await inSandbox("id -u")).trim() !== "0") assert.doesNotMatch(await failure(fs.writeFile(`${base}/locked/x`, "y")), /relative/);
        }
    });
});

test("files of a sandbox that was destroyed are not ready, and nothing is logged", async () => {
    const own = new CoveSandbox({ cove: engine.cove, ephemeral: true });
    const fs = new CoveFilesystem({ sandbox: own });
    const logged = [];
    const log = (...words) => logged.push(words);
    fs.__setLogger({ debug() {}, info() {}, warn: log, error: log, trackException: log });
    await fs.writeFile("a", "x");
    const workspace = new Workspace({ sandbox: own, filesystem: fs });
    await workspace.destroy();
    for (const call of [() => fs.readFile("a"), () => fs.writeFile("a", "y"), () => fs.exists("a")])
        await assert.rejects(call(), { name: "FilesystemNotReadyError", code: "ENOTREADY" });
    assert.deepEqual(logged, []);
});
