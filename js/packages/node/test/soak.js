// Many runs of all kinds, beside worker threads, fetch and crypto; what the process holds afterwards is what it held after the first
// of them. Prints one line of JSON. usage: node --expose-gc soak.js RUNS
"use strict";

const crypto = require("node:crypto");
const fs = require("node:fs");
const http = require("node:http");
const { Worker, isMainThread, parentPort, workerData } = require("node:worker_threads");
const { createKernel, run } = require("@cove/node");

const AT_ONCE = 16;
const PART = 1000; // runs between two of the other things

async function pristine(i) {
    const got = await run(`globalThis.x = ${i}; x + 1`);
    if (got.value !== i + 1) throw new Error(`run ${i}: ${JSON.stringify(got)}`);
}

async function many(count, kernel) {
    let next = 0;
    const lane = async () => {
        while (next < count) {
            const i = next++;
            if (i % 10 !== 0) await pristine(i);
            else if (i % 50 !== 0) await kernel.run(`console.log(${i}); ({ i: ${i} })`);
            else if (i % 100 !== 0) await kernel.run(`await tools.twice({ n: ${i} })`);
            else if (i % 200 !== 0) await run("throw new Error('mine')");
            else {
                const fork = await kernel.fork();
                await fork.run("globalThis.y = 'y'.repeat(1000)");
                fork.dispose();
            }
        }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, lane));
}

const make = () => createKernel({ tools: { twice: ({ n }) => 2 * n } });

function inThread(count) {
    return new Promise((resolve, reject) => {
        const worker = new Worker(__filename, { workerData: count });
        worker.on("error", reject);
        worker.on("exit", resolve);
    });
}

function held() {
    for (let i = 0; i < 3; i++) globalThis.gc();
    const status = fs.readFileSync("/proc/self/status", "utf8");
    return {
        rssKiB: Number(/VmRSS:\s*([0-9]+)/.exec(status)[1]),
        anonKiB: Number(/RssAnon:\s*([0-9]+)/.exec(status)[1]),
        heapKiB: Math.round(process.memoryUsage().heapUsed / 1024),
        fds: fs.readdirSync("/proc/self/fd").length,
        threads: Number(/Threads:\s*([0-9]+)/.exec(status)[1]),
        maps: fs.readFileSync("/proc/self/maps", "utf8").split("\n").length,
    };
}

async function round(url, count, kernel) {
    await Promise.all([many(count * 0.9, kernel), inThread(count * 0.1), (async () => {
        for (let i = 0; i < 5; i++) {
            if (await (await fetch(url)).text() !== "fine") throw new Error("fetch");
            await new Promise((resolve, reject) => { crypto.pbkdf2("a", "b", 500, 32, "sha256", (error) => (error ? reject(error) : resolve())); });
        }
    })()]);
}

async function main(runs) {
    const server = http.createServer((request, response) => response.end("fine")).listen(0, "127.0.0.1");
    await new Promise((resolve) => { server.on("listening", resolve); });
    const url = `http://127.0.0.1:${server.address().port}/`;
    const kernel = await make();
    const part = Math.min(PART * 10, runs / 4);
    let done = 0;
    const step = async () => {
        await round(url, part, kernel);
        done += part;
    };
    const begun = performance.now();
    do await step();
    while (done < runs / 10 && done < 100000);
    const first = held();
    while (done < runs) await step();
    await new Promise((resolve) => { setTimeout(resolve, 300); });
    const last = held();
    kernel.dispose();
    server.close();
    server.closeAllConnections();
    console.log(JSON.stringify({ runs: done, seconds: Math.round((performance.now() - begun) / 100) / 10, first, last }));
}

if (isMainThread) main(Number(process.argv[2]));
else make().then((kernel) => many(workerData, kernel)).then(() => parentPort.close());
