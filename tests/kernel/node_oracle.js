// What Node itself prints: reads a JSON list of snippets from stdin, runs each in a worker of its
// own and prints a JSON list of {stdout, stderr, error}. A snippet may use await and return.
"use strict";
const { Worker } = require("node:worker_threads");

function one(source) {
    return new Promise((done) => {
        const worker = new Worker(
            `const { createRequire } = require("node:module");\n(async () => {\n${source}\n})()` +
            ".then((v) => { require('node:worker_threads').parentPort.postMessage(" +
            "typeof v === 'string' ? v : require('node:util').inspect(v)); })" +
            ".catch((e) => setImmediate(() => { throw e; }));",
            { eval: true, stdout: true, stderr: true, env: { A: "b" }, argv: [] });
        const result = { stdout: "", stderr: "", error: null, value: null };
        worker.stdout.on("data", (text) => { result.stdout += text; });
        worker.stderr.on("data", (text) => { result.stderr += text; });
        worker.on("message", (value) => { result.value = value; });
        worker.on("error", (error) => {
            result.error = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
        });
        worker.on("exit", () => setImmediate(() => done(result)));
    });
}

(async () => {
    let text = "";
    for await (const piece of process.stdin) text += piece;
    const sources = JSON.parse(text), out = [];
    let next = 0;
    // Two at a time: a worker takes longer to begin than most snippets take.
    const lane = async () => {
        for (let i = next++; i < sources.length; i = next++) out[i] = await one(sources[i]);
    };
    await Promise.all([lane(), lane()]);
    process.stdout.write(JSON.stringify(out));
})();
