// CoveSandbox: executeCommand, its environment and directory, its limits, and very much of it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { makeEngine } from "./helper.mjs";

const SECRET = "hunter2-never-told";
let engine, sandbox;

before(async () => {
    engine = await makeEngine();
    sandbox = engine.sandbox({ id: "commands" });
    await sandbox.start();
});
after(() => engine.end());

test("the command is the shell's, arguments are quoted, the result says all", async () => {
    const result = await sandbox.executeCommand("echo $((6*7));", ["echo", "it's", "$HOME", "", "a;b"]);
    assert.deepEqual(
        { ...result, executionTimeMs: typeof result.executionTimeMs },
        {
            success: true, exitCode: 0, stdout: "42\nit's $HOME  a;b\n", stderr: "", executionTimeMs: "number",
            killed: false, timedOut: false, stdoutTruncated: false, stderrTruncated: false, stdoutDroppedBytes: 0,
            stderrDroppedBytes: 0, command: "echo $((6*7)); echo 'it'\\''s' '$HOME' '' 'a;b'",
        },
    );
    const failed = await sandbox.executeCommand("echo out; echo err >&2; exit 3");
    assert.deepEqual([failed.success, failed.exitCode, failed.stdout, failed.stderr], [false, 3, "out\n", "err\n"]);
});

test("a line is for bash, and what any shell does the same is the same", async () => {
    const run = async (command, args, options) => {
        const { exitCode, stdout, stderr } = await sandbox.executeCommand(command, args, options);
        return [exitCode, stdout, stderr];
    };
    assert.deepEqual(await run("[[ a == a ]] && echo {1..3}"), [0, "1 2 3\n", ""]);
    assert.deepEqual(await run("echo -e", ["a\\tb"]), [0, "a\tb\n", ""]);
    assert.deepEqual(await run("cat", ["-", "/no such"]), [1, "", "cat: '/no such': No such file or directory\n"]);
    assert.deepEqual(await run("false"), [1, "", ""]);
    const [missing, , why] = await run("no-such-program", ["--version"]);
    assert.equal(missing, 127);
    assert.match(why, /no-such-program: .*not found/);
    for (const line of ["env", "env; true"]) {
        const names = (await run(line, [], { cwd: "/tmp", env: { A: "1" } }))[1].split("\n");
        assert.ok(names.includes("A=1") && names.includes("PWD=/tmp"), String(names));
    }
    await sandbox.writeFiles([{ path: "/root/bin/bare", content: "[[ -n $0 ]] && echo bash", mode: 0o755 }]);
    assert.deepEqual(await run("/root/bin/bare"), [0, "bash\n", ""]);
    await sandbox.writeFiles([{ path: "/root/rc", content: "greeting=hello\nls() { echo $greeting; }\n" }]);
    assert.deepEqual(await run("ls", [], { env: { BASH_ENV: "/root/rc" } }), [0, "hello\n", ""]);
});

test("a registered root is the sandbox's, and one that has no sh has bash all the same", async () => {
    const root = path.join(engine.dir, "of-bash");
    const libraries = execFileSync("ldd", ["/bin/bash"], { encoding: "utf8" }).match(/\/\S+/g);
    for (const file of ["/bin/bash", ...libraries]) {
        mkdirSync(path.join(root, path.dirname(file)), { recursive: true });
        copyFileSync(file, path.join(root, file));
    }
    execFileSync(engine.env.COVE_BIN, ["root", "add", "bash", root], { env: { ...process.env, COVE_URL: `unix:${engine.socket}` } });
    const own = engine.sandbox({ root: "bash" });
    assert.equal((await own.executeCommand("echo /bin/*")).stdout, "/bin/bash\n");
    assert.equal((await own.native.view()).root, "bash");
    for (const options of [{}, { onStdout() {} }]) {
        assert.equal((await own.executeCommand("true", [], options)).exitCode, 0);
        assert.equal((await own.executeCommand("no-such", ["x"], options)).exitCode, 127);
    }
});

test("the environment: the options' own, then the overlay, then the call's; undefined takes away", async () => {
    const own = engine.sandbox({ env: { A: "own", B: "own", C: "own" } });
    const print = async (env) => (await own.executeCommand('printf %s "$A $B $C ${D-none}"', [], { env })).stdout;
    assert.equal(await print(), "own own own none");
    own.setEnv((env) => ({ ...env, B: "overlay", C: "overlay", D: undefined }));
    assert.equal(await print({ C: "call" }), "own overlay call none");
    assert.equal(await print({ D: "", A: undefined }), " overlay overlay ");
    const handle = await own.processes.spawn('echo "$A $B $C"', { env: { C: "call" } });
    assert.equal((await handle.wait()).stdout, "own overlay call\n");
});

test("values of the environment are in no error and not with the engine", async () => {
    const own = engine.sandbox({ id: "secret", env: { TOKEN: SECRET } });
    for (const attempt of [
        () => own.executeCommand("true", [], { cwd: "/no/such" }),
        () => own.processes.spawn("true", { cwd: "/no/such" }),
        () => own.executeCommand("true", [], { env: { "NO=NAME": SECRET } }),
        () => own.executeCommand("true", [], { env: { TOKEN: `${SECRET}\0` } }),
    ])
        await assert.rejects(attempt(), (error) => {
            for (let each = error; each instanceof Error; each = each.cause)
                assert.ok(!`${each.stack} ${JSON.stringify({ ...each })}`.includes(SECRET), String(each));
            return true;
        });
    assert.ok(!JSON.stringify(await own.native.view()).includes(SECRET));
    assert.ok(!JSON.stringify(await own.native.processes.list()).includes(SECRET));
});

test("commands start in the working directory, which is made; a relative cwd is below it", async () => {
    const own = engine.sandbox({ workingDirectory: "/root/data/project" });
    assert.equal((await own.executeCommand("pwd; mkdir -p a/b")).stdout, "/root/data/project\n");
    assert.equal((await own.executeCommand("pwd", [], { cwd: "a/b" })).stdout, "/root/data/project/a/b\n");
    assert.equal((await own.executeCommand("pwd", [], { cwd: "/tmp" })).stdout, "/tmp\n");
    assert.equal((await (await own.processes.spawn("pwd", { cwd: "a" })).wait()).stdout, "/root/data/project/a\n");
    const home = (await sandbox.executeCommand("pwd; mkdir -p below")).stdout.trim();
    assert.equal((await sandbox.executeCommand("pwd", [], { cwd: "below" })).stdout, `${home}/below\n`);
    const bad = { name: "SandboxExecutionError", code: "EXECUTION_FAILED", message: /no\/such/ };
    await assert.rejects(sandbox.executeCommand("pwd", [], { cwd: "/no/such" }), bad);
    await assert.rejects(sandbox.processes.spawn("pwd", { cwd: "/no/such" }), bad);
});

test("another user owns the working directory that is made for it", async (t) => {
    if (!engine.hasUsers) return t.skip("this user has no ids to give to a sandbox");
    const own = engine.sandbox({ user: "nobody", workingDirectory: "/tmp/work" });
    const { stdout } = await own.executeCommand("id -un; touch mine && stat -c %U mine");
    assert.equal(stdout, "nobody\nnobody\n");
});

test("characters that come in parts are whole for who listens, and at the end what is broken is told", async () => {
    let seen = "";
    const command = String.raw`printf 'a\303'; sleep 0.2; printf '\244b\360\237'; sleep 0.2; printf '\230\200'; printf '\303'`;
    const result = await sandbox.executeCommand(command, [], {
        onStdout: (text) => (seen += text),
    });
    assert.equal(seen, "aäb😀\uFFFD");
    assert.equal(result.stdout, seen);
    assert.equal((await sandbox.executeCommand(command)).stdout, seen);
});

test("it answers when the command exits, whatever that left behind holds", async () => {
    const { stdout, executionTimeMs } = await sandbox.executeCommand("sleep 600 & echo started");
    assert.equal(stdout, "started\n");
    assert.ok(executionTimeMs < 60_000);
    const listened = await sandbox.executeCommand("sleep 600 & echo started", [], { onStdout: () => {} });
    assert.equal(listened.stdout, "started\n");
});

test("standard input is at its end", async () => {
    assert.equal((await sandbox.executeCommand("cat; read line; echo $?")).stdout, "1\n");
    assert.equal((await sandbox.executeCommand("cat; read line; echo $?", [], { onStdout() {} })).stdout, "1\n");
});

test("what a listener throws is the caller's, when the command has ended", async () => {
    let calls = 0;
    const throws = () => {
        calls++;
        throw new Error("mine");
    };
    await assert.rejects(sandbox.executeCommand("echo 1; sleep 0.2; echo 2; touch /tmp/ended", [], { onStdout: throws }), /^Error: mine$/);
    assert.equal(calls, 1);
    assert.equal((await sandbox.executeCommand("test -e /tmp/ended")).exitCode, 0);
});

test("a timeout is a result, kills all that was started, and says so; 0 is none", async () => {
    const stubborn = `trap '' TERM; (${engine.hasCgroups ? "setsid" : ""} sleep 987.25 &); echo before; sleep 987.25`;
    for (const listener of [undefined, () => {}]) {
        const result = await sandbox.executeCommand(stubborn, [], { timeout: 5_000, onStdout: listener });
        assert.deepEqual([result.success, result.exitCode, result.timedOut, result.killed], [false, 124, true, true]);
        assert.equal(result.stdout, "before\n");
        assert.match(result.stderr, /timed out after 5000ms/);
    }
    await engine.until(async () => (await sandbox.executeCommand("ps -e -o args | grep -c '[9]87.25'")).stdout.trim() === "0");
    const impatient = engine.sandbox({ timeout: 3_000 });
    assert.equal((await impatient.executeCommand("sleep 600")).exitCode, 124);
    assert.equal((await impatient.executeCommand("sleep 3.5; echo done", [], { timeout: 0 })).stdout, "done\n");
    await assert.rejects(impatient.executeCommand("true", [], { timeout: Number.NaN }), RangeError);
});

test("a signal that fired before starts nothing; one that fires kills, and what was printed is there", async () => {
    const before = await sandbox.executeCommand("touch /tmp/never", [], { abortSignal: AbortSignal.abort() });
    assert.deepEqual([before.success, before.exitCode, before.killed], [false, 137, true]);
    assert.equal((await sandbox.executeCommand("test -e /tmp/never")).exitCode, 1);

    const listened = new AbortController();
    const result = await sandbox.executeCommand("echo before; sleep 654.5", [], {
        abortSignal: listened.signal,
        onStdout: () => listened.abort(),
    });
    assert.deepEqual([result.success, result.exitCode, result.killed, result.stdout], [false, 137, true, "before\n"]);

    const quiet = new AbortController();
    const running = sandbox.executeCommand("echo before; touch /tmp/began; sleep 654.5", [], { abortSignal: quiet.signal });
    await engine.until(async () => (await sandbox.executeCommand("test -e /tmp/began")).success);
    quiet.abort();
    const killed = await running;
    assert.deepEqual([killed.success, killed.exitCode, killed.killed, killed.stdout], [false, 137, true, "before\n"]);
    await engine.until(async () => (await sandbox.executeCommand("ps -e -o args | grep -c '[6]54.5'")).stdout.trim() === "0");

    const late = new AbortController();
    assert.equal((await sandbox.executeCommand("echo done", [], { abortSignal: late.signal })).stdout, "done\n");
    late.abort();
});

test("a signal that fires after very much output gives what was printed", async () => {
    for (const onStdout of [undefined, () => {}]) {
        const abort = new AbortController();
        const running = sandbox.executeCommand("yes | head -c 3000000; touch /tmp/printed; sleep 654.5", [], {
            abortSignal: abort.signal, onStdout,
        });
        await engine.until(async () => (await sandbox.executeCommand("rm /tmp/printed 2>/dev/null")).success);
        abort.abort();
        const { killed, exitCode, stdout } = await running;
        assert.deepEqual([killed, exitCode, stdout.length], [true, 137, 3_000_000]);
    }
});

test("of much output the newest is retained, in whole characters, and what went is counted", async () => {
    const command = "head -c 300000 /dev/zero | tr '\\0' x; printf 'ääend'";
    for (const onStdout of [undefined, () => {}]) {
        const result = await sandbox.executeCommand(command, [], { maxRetainedBytes: 6, onStdout });
        assert.deepEqual([result.stdout, result.stdoutTruncated, result.stdoutDroppedBytes], ["äend", true, 300_002]);
        const none = await sandbox.executeCommand(command, [], { maxRetainedBytes: 0, onStdout });
        assert.deepEqual([none.stdout, none.stdoutTruncated, none.stdoutDroppedBytes], ["", true, 300_007]);
    }
    for (const maxRetainedBytes of [-1, 1.5, Number.NaN])
        await assert.rejects(sandbox.executeCommand("true", [], { maxRetainedBytes }), RangeError);
});

test("100 MB of output come whole", async () => {
    const bytes = 100_000_000;
    const command = `yes 0123456789abcde | head -c ${bytes}`;
    const { stdout, stdoutTruncated } = await sandbox.executeCommand(command);
    assert.equal(stdoutTruncated, false);
    assert.equal(stdout.length, bytes);
    assert.ok(stdout.startsWith("0123456789abcde\n0123"));
    let listened = 0;
    const { stdoutDroppedBytes } = await sandbox.executeCommand(command, [], {
        maxRetainedBytes: 1000,
        onStdout: (text) => (listened += text.length),
    });
    assert.equal(listened, bytes);
    assert.equal(stdoutDroppedBytes, bytes - 1000);
});

test("200 commands at once, each with its own answer", async () => {
    const results = await Promise.all(
        Array.from({ length: 200 }, (_, i) => sandbox.executeCommand(`echo ${i}; exit ${i % 7}`, [], i % 2 ? { onStdout() {} } : {})),
    );
    results.forEach((result, i) => assert.deepEqual([result.stdout, result.exitCode], [`${i}\n`, i % 7]));
});

test("a command that is killed by a signal has 128 and its number", async () => {
    for (const [signal, exitCode] of [["KILL", 137], ["TERM", 143], ["USR1", 138]]) {
        const result = await sandbox.executeCommand(`kill -${signal} $$`);
        assert.deepEqual([result.exitCode, result.killed], [exitCode, true]);
    }
});
