// From Node: kernels by the addon, and beside them in the same process what npm has: quickjs-emscripten, isolated-vm, and node:vm,
// which is no sandbox. Writes series as report.py reads them.
// usage: node kernels_node.mjs RAW PEERS ADDON        all of it
//        node kernels_node.mjs --cold WHICH PEERS ADDON   from before its import to its first value, in this new process, in ns
import { createRequire } from "node:module";
import fs from "node:fs";
import vm from "node:vm";

const WORK = {
    json: ["JSON.parse(JSON.stringify(Array.from({length: 200}, (_, i) => ({id: i, name: 'user' + i,"
        + " tags: ['a', 'b', String(i)], at: {x: i * 1.5}})))).filter((o) => o.id % 2).length", 100, 300],
    regex: ["(() => { let s = ''; for (let i = 0; i < 400; i++) s += 'user' + i + '@example.com, ';"
        + " return s.match(/([a-z]+\\d+)@([a-z]+)\\.com/g).length + s.replace(/(\\w+)@(\\w+)/g, '$2 at $1').length })()", 400 + 7690, 300],
    sort: ["Array.from({length: 10000}, (_, i) => (i * 7919) % 10007).sort((a, b) => a - b)[5]", 5, 100],
    strings: ["(() => { let s = ''; for (let i = 0; i < 20000; i++) s += i + ','; return s.split(',').length })()", 20001, 100],
};

function loaders(peers, addon) {
    const require = createRequire(`${peers}/`);
    return {
        cove: async () => {
            const { createKernel, run } = createRequire(import.meta.url)(addon);
            const kernel = await createKernel();
            return {
                once: async (code) => (await run(code)).value,
                live: async (code) => (await kernel.run(code)).value,
            };
        },
        quickjs: async () => {
            const quickjs = await require("quickjs-emscripten").getQuickJS();
            const evaluate = (context, code) => {
                const handle = context.unwrapResult(context.evalCode(code));
                const value = context.dump(handle);
                handle.dispose();
                return value;
            };
            const live = quickjs.newContext();
            return {
                once: async (code) => {
                    const context = quickjs.newContext();
                    const value = evaluate(context, code);
                    context.dispose();
                    return value;
                },
                live: async (code) => evaluate(live, code),
            };
        },
        isolated: async () => {
            const ivm = require("isolated-vm");
            const isolate = new ivm.Isolate({ memoryLimit: 128 }), context = await isolate.createContext();
            return {
                once: async (code) => {
                    const one = new ivm.Isolate({ memoryLimit: 128 });
                    const value = await (await one.createContext()).eval(code);
                    one.dispose();
                    return value;
                },
                live: async (code) => context.eval(code),
            };
        },
        vm: async () => {
            const context = vm.createContext({});
            return {
                once: async (code) => vm.runInContext(code, vm.createContext({})),
                live: async (code) => vm.runInContext(code, context),
            };
        },
    };
}

function check(what, value, wanted) {
    if (wanted !== undefined && value !== wanted) throw new Error(`${what}: ${value}, not ${wanted}`);
}

async function series(out, name, work, code, wanted, count, warm) {
    const samples = [];
    for (let i = 0; i < warm; i++) check(name, await work(code), wanted);
    for (let i = 0; i < count; i++) {
        const before = process.hrtime.bigint();
        const value = await work(code);
        samples.push(process.hrtime.bigint() - before);
        check(name, value, wanted);
    }
    fs.appendFileSync(out, `${name} ns 0 ${samples.join(" ")}\n`);
}

async function cold(which, peers, addon) {
    const load = loaders(peers, addon)[which];
    const before = process.hrtime.bigint();
    const { once } = await load();
    check(which, await once("1 + 1"), 2);
    console.log(String(process.hrtime.bigint() - before));
    process.exit(0);
}

async function all(out, peers, addon) {
    const counts = { cove: 20000, quickjs: 3000, isolated: 300, vm: 1000 };
    for (const [which, load] of Object.entries(loaders(peers, addon))) {
        const { once, live } = await load();
        await series(out, `${which}.once`, once, "1 + 1", 2, counts[which], Math.min(2000, counts[which]));
        await series(out, `${which}.live`, live, "1 + 1", 2, 5000, 2000);
        for (const [name, [code, wanted, count]] of Object.entries(WORK)) await series(out, `${which}.${name}`, live, code, name === "regex" ? undefined : wanted, count, 20);
    }
    process.exit(0);
}

const [first, ...rest] = process.argv.slice(2);
await (first === "--cold" ? cold(...rest) : all(first, ...rest));
