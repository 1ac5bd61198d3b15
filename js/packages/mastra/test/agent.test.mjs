// A real Agent of @mastra/core in a workspace that has one cove sandbox and nothing else: a scripted model calls every
// tool of the workspace, and what the tools answer is what an agent would read.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { CoveFilesystem, CoveSandbox, createCoveWorkspace } from "@cove/mastra";
import { Agent } from "@mastra/core/agent";
import { Mastra } from "@mastra/core/mastra";
import { Workspace } from "@mastra/core/workspace";
import { startEngine } from "../../client/test/engine.mjs";
import { ScriptedModel } from "./model.mjs";

const TRIES = 600;
let engine;

before(async () => {
    engine = await startEngine();
});
after(() => engine?.end());

const tool = (name) => `mastra_workspace_${name}`;

/**
 * Plays `calls` one by one and gives all answers. Each is [tool, input], or a function of the last answer that makes
 * one; `{ call, until }` is called again until its answer matches.
 */
async function play(workspace, calls, how = "generate") {
    const answers = [];
    let at = -1;
    let tries = 0;
    let current;
    const model = new ScriptedModel([
        ([last]) => {
            const until = calls[at]?.until;
            if (at < 0 || until === undefined || until.test(last) || ++tries === TRIES) {
                if (at >= 0) answers.push(last);
                at++;
                if (at === calls.length) return { text: "done" };
                const call = Object.hasOwn(calls[at], "call") ? calls[at].call : calls[at];
                current = typeof call === "function" ? call(last) : call;
            }
            return { calls: [[tool(current[0]), current[1]]], again: true };
        },
    ]);
    const agent = new Agent({ id: "worker", name: "worker", instructions: "Work.", model, workspace });
    const maxSteps = calls.length + TRIES;
    let text;
    const events = [];
    if (how === "generate") {
        ({ text } = await agent.generate("go", { maxSteps }));
    } else {
        const stream = await agent.stream("go", { maxSteps });
        for await (const chunk of stream.fullStream) events.push(chunk);
        text = await stream.text;
    }
    assert.equal(text, "done");
    return { answers, model, events };
}

const pidOf = (answer) => /PID: ([^)]+)\)/.exec(answer)[1];

describe("an agent with one cove sandbox", () => {
    let workspace;

    before(() => {
        const sandbox = new CoveSandbox({ cove: engine.cove, ephemeral: true, workingDirectory: "/tmp/work" });
        workspace = new Workspace({ sandbox, filesystem: new CoveFilesystem({ sandbox }) });
    });
    after(() => workspace.destroy());

    test("it has every tool, and is told where it is", async () => {
        const { model } = await play(workspace, [["file_stat", { path: "." }]]);
        const { prompt, tools } = model.asked[0];
        assert.deepEqual(
            tools.map((name) => name.replace("mastra_workspace_", "")).sort(),
            [
                "delete", "edit_file", "execute_command", "file_stat", "get_process_output", "grep", "kill_process", "list_files",
                "mkdir", "read_file", "write_file",
            ],
        );
        const system = prompt.filter((message) => message.role === "system").map((message) => message.content).join("\n");
        assert.match(system, /isolated Linux sandbox/);
        assert.match(system, /File tools work on the disk of the sandbox/);
        assert.match(system, /"\/tmp\/work"/);
    });

    test("it writes a program, runs it, reads the failure and fixes it", async () => {
        const program =
            'sum() {\n    echo $(($1 - $2))\n}\n[ "$(sum 2 3)" = 5 ] || { echo "sum is $(sum 2 3)" >&2; exit 1; }\necho fine\n';
        const { answers } = await play(workspace, [
            ["mkdir", { path: "src/lib" }],
            ["write_file", { path: "src/sum.sh", content: program }],
            ["execute_command", { command: "sh src/sum.sh" }],
            ["read_file", { path: "src/sum.sh" }],
            ["edit_file", { path: "src/sum.sh", old_string: "$1 - $2", new_string: "$1 + $2" }],
            ["execute_command", { command: "sh sum.sh && pwd", cwd: "/tmp/work/src" }],
            ["list_files", { path: ".", maxDepth: 3 }],
            ["grep", { pattern: "sum\\(\\)|fine", path: "src", contextLines: 0 }],
            ["file_stat", { path: "src/sum.sh" }],
            ["execute_command", { command: "seq 1 500 | tail -3" }],
            ["read_file", { path: "src/sum.sh", offset: 2, limit: 1, showLineNumbers: false }],
            ["delete", { path: "src", recursive: true }],
            ["file_stat", { path: "src/sum.sh" }],
            ["read_file", { path: "src/sum.sh" }],
        ]);
        const [made, wrote, failed, read, edited, fine, listed, found, stat, tail, line, deleted, missing, unread] = answers;
        assert.equal(made, "Created directory src/lib");
        assert.equal(wrote, `Wrote ${program.length} bytes to src/sum.sh`);
        assert.match(failed, /sum is -1/);
        assert.match(failed, /Exit code: 1/);
        assert.match(read, /2→    echo \$\(\(\$1 - \$2\)\)/);
        assert.match(edited, /Replaced 1 occurrence in src\/sum\.sh \(lines 2\)/);
        assert.equal(fine, "fine\n/tmp/work/src\n");
        assert.equal(listed, ".\nsrc\n\tlib\n\tsum.sh\n\n2 directories, 1 file");
        assert.match(found, /^2 matches across 1 file\n/);
        assert.match(found, /src\/sum\.sh:1:1: sum\(\) \{/);
        assert.match(found, /src\/sum\.sh:5:6: echo fine/);
        assert.match(stat, /Type: file Size: \d+ bytes Modified: \d{4}-/);
        assert.match(tail, /\n498\n499\n500\n$/);
        assert.match(line, /src\/sum\.sh \(lines 2-2 of 6, \d+ bytes\)\n    echo \$\(\(\$1 \+ \$2\)\)/);
        assert.equal(deleted, "Deleted src");
        assert.equal(missing, "src/sum.sh: not found");
        assert.match(unread, /File not found: src\/sum\.sh/);
    });

    test("it starts something in the background, reads what it prints, and kills it", async () => {
        let pid;
        const { answers } = await play(workspace, [
            ["execute_command", { command: "echo ready; echo problem >&2; echo $$ >pid; exec sleep 600", background: true }],
            { call: (started) => ["get_process_output", { pid: (pid = pidOf(started)) }], until: /ready[^]*problem\n/ },
            ["execute_command", { command: "until [ -s pid ]; do sleep 0.01; done; kill -0 $(cat pid) && echo alive" }],
            () => ["kill_process", { pid }],
            ["execute_command", { command: "kill -0 $(cat pid) 2>/dev/null || echo gone" }],
            () => ["kill_process", { pid }],
            ["execute_command", { command: "sleep 0.05; echo at last; exit 3", background: true }],
            (started) => ["get_process_output", { pid: pidOf(started), wait: true }],
            ["get_process_output", { pid: "4711" }],
        ]);
        assert.match(answers[0], /^Started background process \(PID: /);
        assert.equal(answers[1], "stdout:\nready\n\n\nstderr:\nproblem\n");
        assert.equal(answers[2], "alive\n");
        assert.match(answers[3], new RegExp(`^Process ${pid} has been killed\\.`));
        assert.match(answers[3], /ready/);
        assert.equal(answers[4], "gone\n");
        assert.match(answers[5], /was not found or had already exited/);
        assert.match(answers[7], /at last/);
        assert.match(answers[7], /Exit code: 3/);
        assert.match(answers[8], /No background process found with PID 4711/);
    });

    test("what a command changed since it was read is not written over", async () => {
        const { answers } = await play(workspace, [
            ["write_file", { path: "notes.txt", content: "one\n" }],
            ["read_file", { path: "notes.txt" }],
            ["execute_command", { command: "sleep 0.01; echo two >>notes.txt" }],
            ["write_file", { path: "notes.txt", content: "mine\n" }],
            ["read_file", { path: "notes.txt" }],
            ["write_file", { path: "notes.txt", content: "mine\n" }],
            ["write_file", { path: "notes.txt", content: "again\n", overwrite: false }],
            ["execute_command", { command: "cat notes.txt" }],
        ]);
        assert.match(answers[3], /modified externally/);
        assert.match(answers[4], /2→two/);
        assert.match(answers[5], /^Wrote 5 bytes/);
        assert.match(answers[6], /already exists/);
        assert.equal(answers[7], "mine\n");
    });

    test("what commands write tools read, and the other way round: text, pictures, programs", async () => {
        const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
        const { answers, model } = await play(workspace, [
            ["execute_command", { command: `echo ${png} | base64 -d >picture; cp picture picture.png` }],
            ["execute_command", { command: "cp /bin/true program; printf 'caf\\303\\251\\n' >text" }],
            ["read_file", { path: "picture.png" }],
            ["read_file", { path: "picture" }],
            ["read_file", { path: "program" }],
            ["read_file", { path: "/tmp/work/text" }],
            ["write_file", { path: "/tmp/elsewhere/a", content: "here" }],
            ["execute_command", { command: "cat /tmp/elsewhere/a" }],
        ]);
        assert.match(JSON.stringify(model.asked[3].prompt), new RegExp(png.replaceAll("+", "\\+").slice(0, 60)));
        assert.match(answers[4], /binary file not readable as text/);
        assert.match(answers[5], /café/);
        assert.equal(answers[7], "here");
    });

    test("its output streams", async () => {
        const command = "for i in 1 2 3; do echo line $i; done; echo oops >&2";
        const { answers, events } = await play(workspace, [["execute_command", { command }]], "stream");
        const data = (type) => events.filter((event) => event.type === type).map((event) => event.data);
        assert.equal(data("data-sandbox-stdout").map((each) => each.output).join(""), "line 1\nline 2\nline 3\n");
        assert.equal(data("data-sandbox-stderr").map((each) => each.output).join(""), "oops\n");
        assert.equal(data("data-sandbox-exit")[0].exitCode, 0);
        assert.match(answers[0], /line 3/);
    });

    test("a command beyond its time is told as such, and the agent goes on", async () => {
        const { answers } = await play(workspace, [
            ["execute_command", { command: "echo begun; sleep 600", timeout: 5 }],
            ["execute_command", { command: "echo on" }],
        ]);
        assert.match(answers[0], /begun/);
        assert.match(answers[0], /Exit code: 124/);
        assert.equal(answers[1], "on\n");
    });

    test("a sandbox that is deleted meanwhile is made again", async () => {
        const { answers } = await play(workspace, [
            ["write_file", { path: "a.txt", content: "1" }],
            ["execute_command", { command: "cat a.txt" }],
        ]);
        assert.equal(answers[1], "1");
        await workspace.sandbox.native.remove();
        const again = await play(workspace, [
            ["list_files", { path: "." }],
            ["write_file", { path: "b.txt", content: "2" }],
            ["execute_command", { command: "ls; cat b.txt" }],
        ]);
        assert.match(again.answers[0], /0 directories, 0 files/);
        assert.equal(again.answers[2], "b.txt\n2");
    });

    test("a background process outlives the agent where the workspace says so", async () => {
        const mine = createCoveWorkspace({
            sandbox: { cove: engine.cove, ephemeral: true },
            tools: { mastra_workspace_execute_command: { backgroundProcesses: { abortSignal: null } } },
        });
        try {
            const { answers } = await play(mine, [["execute_command", { command: "echo up; exec sleep 600", background: true }]]);
            const pid = pidOf(answers[0]);
            const later = await play(mine, [{ call: ["get_process_output", { pid }], until: /up/ }]);
            assert.equal(later.answers[0].trim(), "up");
            assert.equal((await mine.sandbox.processes.list()).find((each) => each.pid === pid).running, true);
        } finally {
            await mine.destroy();
        }
    });
});

test("with a Mastra: its shutdown stops the sandbox, and the next call starts it with its files", async () => {
    const workspace = createCoveWorkspace({ sandbox: { cove: engine.cove } });
    const model = new ScriptedModel([
        { calls: [[tool("write_file"), { path: "kept.txt", content: "kept" }]] },
        { calls: [[tool("execute_command"), { command: "cat kept.txt" }]] },
        { text: "done" },
    ]);
    const agent = new Agent({ id: "worker", name: "worker", instructions: "Work.", model, workspace });
    const mastra = new Mastra({ agents: { worker: agent }, workspace, logger: false });
    try {
        assert.equal((await mastra.getAgent("worker").generate("go", { maxSteps: 5 })).text, "done");
        await mastra.shutdown();
        assert.equal((await workspace.sandbox.native.view()).state, "stopped");
        assert.equal(await workspace.filesystem.readFile("kept.txt", { encoding: "utf-8" }), "kept");
        assert.equal(workspace.sandbox.status, "running");
    } finally {
        await workspace.destroy();
    }
});

test("a workspace in one line, with nothing said at all, finds or starts the engine", async () => {
    const workspace = createCoveWorkspace();
    try {
        const { answers } = await play(workspace, [
            ["write_file", { path: "hello.txt", content: "hello" }],
            ["execute_command", { command: "cat hello.txt" }],
        ]);
        assert.equal(answers[1], "hello");
    } finally {
        await workspace.destroy();
        workspace.sandbox.cove.close();
    }
});
