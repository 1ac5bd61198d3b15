// @cove/node: kernels within this process. What is here checks and shapes; the addon runs, on threads of its own, and tells
// of results by the three functions at the end. What code does is a result; what the caller does wrong is an exception.
"use strict";

const { AsyncLocalStorage, AsyncResource } = require("node:async_hooks");

class KernelError extends Error {
    constructor(code, message) {
        super(message);
        this.name = "KernelError";
        this.code = code;
    }
}

function load() {
    const name = `${process.platform}-${process.arch}`;
    try {
        return require(`../prebuilds/${name}/cove.node`);
    } catch (error) {
        throw new KernelError("unsupported", error.code === "MODULE_NOT_FOUND"
            ? `@cove/node has no build for ${name}: it runs on Linux with glibc`
            : `@cove/node cannot be loaded here: ${error.message}`);
    }
}

// Where there is none this still loads, for the sake of who imports it among other things: the first kernel is refused.
let binding, refused;
try {
    binding = load();
} catch (error) {
    refused = error;
    binding = new Proxy({}, { get() { throw error; } });
}

// Flags of the addon's run() and of what it tells; how runs end, in the order of the addon's numbers.
const RUN_TYPESCRIPT = 1, RUN_MODULE = 2;
const IS_FINAL = 1, STATE_LOST = 2;
const [END_VALUE, , , END_CPU, END_WALL, END_MEMORY] = [0, 1, 2, 3, 4, 5];
const MS_MAX = 86400000, MEMORY_MAX = 2 ** 32;
const NOTHING = Object.freeze({});

// ---- what is asked for ----

function wrong(what, wanted) {
    return new KernelError("bad_value", `${what}: ${wanted}`);
}

function optionsOf(options) {
    if (options === undefined || options === null) return NOTHING;
    if (typeof options !== "object") throw wrong("options", "an object is needed");
    return options;
}

function numberOf(options, name, most) {
    const value = options[name];
    if (value === undefined || value === null) return 0;
    if (typeof value !== "number" || !(value > 0) || value > most) {
        throw wrong(name, `a number above 0 is needed, at most ${most}`);
    }
    return Math.ceil(value);
}

function textsOf(options, name) {
    const value = options[name];
    if (value === undefined || value === null) return [];
    if (!Array.isArray(value) || !value.every((text) => typeof text === "string")) throw wrong(name, "an array of strings is needed");
    return value;
}

function envOf({ env }) {
    if (env === undefined || env === null) return [];
    if (typeof env !== "object") throw wrong("env", "an object of strings is needed");
    return Object.entries(env).filter(([, value]) => value !== undefined).map(([name, value]) => {
        if (typeof value !== "string") throw wrong(`env.${name}`, "a string is needed");
        if (name === "" || name.includes("=")) throw wrong("env", `'${name}' is no name of a variable`);
        return `${name}=${value}`;
    });
}

function toolsOf({ tools }) {
    if (tools === undefined || tools === null) return undefined;
    if (typeof tools !== "object") throw wrong("tools", "an object of functions is needed");
    const found = new Map(Object.entries(tools));
    for (const [name, tool] of found) if (typeof tool !== "function") throw wrong(`tools.${name}`, "a function is needed");
    return found.size === 0 ? undefined : found;
}

function keyOf({ snapshotKey }) {
    if (snapshotKey === undefined || snapshotKey === null) return undefined;
    if (!(snapshotKey instanceof Uint8Array) || snapshotKey.length !== 32) throw wrong("snapshotKey", "32 bytes are needed (a Uint8Array)");
    return new Uint8Array(snapshotKey);
}

// What the manifest holds, as the addon reads it, and what stays here.
function grantsOf(options) {
    const tools = toolsOf(options), hosts = textsOf(options, "allowedHosts");
    const handle = binding.manifest({
        hosts,
        reads: textsOf(options, "allowedReadPaths"),
        writes: textsOf(options, "allowedWritePaths"),
        env: envOf(options),
        argv: textsOf(options, "argv"),
        tools: tools === undefined ? [] : [...tools.keys()],
        cpuMs: numberOf(options, "cpuMs", MS_MAX),
        wallMs: numberOf(options, "wallMs", MS_MAX),
        memoryBytes: numberOf(options, "memoryLimitBytes", MEMORY_MAX),
    });
    return { handle, tools, hosts: hosts.length > 0 };
}

function codeOf(code) {
    if (typeof code !== "string") throw wrong("code", "a string is needed");
    return code;
}

function flagsOf({ language, filename, module }) {
    if (language !== undefined && language !== "js" && language !== "ts" && language !== "javascript" && language !== "typescript") {
        throw wrong("language", "'js' or 'ts' is needed");
    }
    if (filename !== undefined && (typeof filename !== "string" || filename.includes("\0"))) throw wrong("filename", "a string is needed");
    const isTypescript = language === undefined ? filename !== undefined && /\.[cm]?ts$/.test(filename) : language[0] === "t";
    const isModule = module === undefined ? filename !== undefined && /\.m[jt]s$/.test(filename) : module;
    return (isTypescript ? RUN_TYPESCRIPT : 0) | (isModule ? RUN_MODULE : 0);
}

function signalOf({ signal }) {
    if (signal === undefined || signal === null) return undefined;
    // Also one of another realm, or of a library.
    if (typeof signal !== "object" || typeof signal.aborted !== "boolean" || typeof signal.addEventListener !== "function") throw wrong("signal", "an AbortSignal is needed");
    return signal;
}

// ---- jobs: what the addon was asked for and has not told yet ----

const jobs = new Map();
let lastTicket = 0;

class Job {
    constructor(guest, resolve, reject) {
        this.guest = guest; // which would be collected with its kernel otherwise, and the run stopped
        this.resolve = resolve;
        this.reject = reject;
        this.run = undefined;
    }
}

function ticketNew() {
    do lastTicket = lastTicket === 0xffffffff ? 1 : lastTicket + 1;
    while (jobs.has(lastTicket));
    return lastTicket;
}

// `begin` hands the ticket to the addon.
function jobNew(guest, begin, extra) {
    return new Promise((resolve, reject) => {
        const job = new Job(guest, resolve, reject), ticket = ticketNew();
        if (extra !== undefined) extra(job, ticket);
        jobs.set(ticket, job);
        try {
            begin(ticket);
        } catch (error) {
            jobs.delete(ticket);
            if (job.run !== undefined) job.run.end();
            throw error;
        }
    });
}

// The run whose tool is at work, and from there outwards those that wait for it.
const within = new AsyncLocalStorage();

// A run that needs more of this side than its result: its tools, its requests, its signal.
class Run {
    constructor(guest, ticket, grants, signal) {
        this.guest = guest;
        this.ticket = ticket;
        this.grants = grants;
        this.signal = signal;
        this.fetches = undefined;
        this.controller = undefined;
        this.scope = grants.tools === undefined ? undefined : new AsyncResource("CoveRun");
        this.outer = within.getStore();
        this.isOver = false;
        this.onAbort = signal === undefined ? undefined : () => binding.stop(guest, ticket);
        if (signal !== undefined) signal.addEventListener("abort", this.onAbort, { once: true });
    }

    end() {
        this.isOver = true;
        if (this.signal !== undefined) this.signal.removeEventListener("abort", this.onAbort);
        if (this.fetches !== undefined) this.fetches.close();
        if (this.controller !== undefined) this.controller.abort(new KernelError("run_over", "the run is over"));
    }

    // Of what tools are given: aborted when the run is over.
    get context() {
        const run = this;
        return { get signal() { return (run.controller ??= new AbortController()).signal; } };
    }

    settle(call, json, bytes) { binding.settle(this.guest, this.ticket, call, json, bytes); }

    fail(call, error) {
        let code = "ERR_TOOL", message = "an error that has no text";
        // What was thrown may be anything, and throw when it is looked at.
        try {
            const isError = typeof error === "object" && error !== null, given = isError ? error.code : undefined;
            const text = isError ? error.message : undefined;
            message = text !== undefined ? `${text}` : `${error}`;
            if (typeof given === "string") code = given.slice(0, 31);
        } catch {
            // It stays as it is.
        }
        binding.fail(this.guest, this.ticket, call, code, message);
    }

    async tool(call, json) {
        try {
            const { name, args } = JSON.parse(json);
            const tool = this.grants.tools.get(name);
            const value = await this.scope.runInAsyncScope(() => within.run(this, tool, args, this.context));
            this.settle(call, JSON.stringify({ value }));
        } catch (error) {
            this.fail(call, error);
        }
    }

    async fetch(call, op, json, bytes) {
        try {
            // Not before it is needed: http takes longer to load than all of this.
            this.fetches ??= new (require("./fetch.js").Fetches)(binding, this.grants.handle);
            const answer = op === "fetch.start" ? await this.fetches.start(JSON.parse(json), bytes) : await this.fetches.read(JSON.parse(json).stream);
            this.settle(call, JSON.stringify(answer.meta), answer.bytes);
        } catch (error) {
            this.fail(call, error);
        }
    }
}

// ---- kernels ----

const guests = new WeakMap(); // Kernel → {guest, grants, key, isDisposed}

function stateOf(kernel) {
    const state = guests.get(kernel);
    if (state === undefined) throw new TypeError("this is no Kernel");
    if (state.isDisposed) throw new KernelError("kernel_disposed", "the kernel was disposed of");
    return state;
}

// A tool that waits for its own kernel would wait for itself.
function freeStateOf(kernel) {
    const state = stateOf(kernel);
    for (let run = within.getStore(); run !== undefined; run = run.outer) {
        if (run.guest === state.guest && !run.isOver) throw new KernelError("kernel_busy", "this kernel runs and waits for a tool, which cannot use it");
    }
    return state;
}

function runIn(guest, grants, code, options) {
    const signal = signalOf(options), flags = flagsOf(options);
    const cpuMs = numberOf(options, "cpuMs", MS_MAX), wallMs = numberOf(options, "wallMs", MS_MAX);
    if (signal !== undefined && signal.aborted) throw signal.reason;
    const needsRun = signal !== undefined || grants.tools !== undefined || grants.hosts;
    return jobNew(guest, (ticket) => binding.run(guest, ticket, code, flags, options.filename, cpuMs, wallMs),
        needsRun ? (job, ticket) => { job.run = new Run(guest, ticket, grants, signal); } : undefined);
}

class Kernel {
    constructor(token, state) {
        if (token !== guests) throw new TypeError("kernels are made by createKernel()");
        guests.set(this, state);
    }

    async run(code, options) {
        const { guest, grants } = freeStateOf(this);
        return runIn(guest, grants, codeOf(code), optionsOf(options));
    }

    async reset() {
        const { guest } = freeStateOf(this);
        return jobNew(guest, (ticket) => binding.reset(guest, ticket));
    }

    async snapshot() {
        const { guest, key } = freeStateOf(this);
        return jobNew(guest, (ticket) => binding.snapshot(guest, ticket, key));
    }

    async fork() {
        const { guest, grants, key } = freeStateOf(this);
        let child;
        await jobNew(guest, (ticket) => { child = binding.fork(guest, ticket); });
        return new Kernel(guests, { guest: child, grants, key, isDisposed: false });
    }

    dispose() {
        const state = guests.get(this);
        if (state === undefined) throw new TypeError("this is no Kernel");
        if (!state.isDisposed) {
            state.isDisposed = true;
            binding.drop(state.guest);
        }
    }

    get disposed() { return guests.get(this).isDisposed; }
}
for (const [name, value] of [
    [Symbol.dispose, function dispose() { this.dispose(); }],
    [Symbol.asyncDispose, async function asyncDispose() { this.dispose(); }],
]) {
    if (name !== undefined) Object.defineProperty(Kernel.prototype, name, { value, writable: true, configurable: true });
}
Object.defineProperty(Kernel.prototype, Symbol.toStringTag, { value: "Kernel", configurable: true });

async function open(options, snapshot) {
    const given = optionsOf(options), grants = grantsOf(given), key = keyOf(given);
    const guest = binding.guest(grants.handle);
    await jobNew(guest, (ticket) => binding.open(guest, ticket, snapshot, key));
    return new Kernel(guests, { guest, grants, key, isDisposed: false });
}

function createKernel(options) { return open(options, undefined); }

async function restoreKernel(bytes, options) {
    if (!(bytes instanceof Uint8Array)) throw wrong("bytes", "the Uint8Array of a snapshot is needed");
    return open(options, Buffer.isBuffer(bytes) ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length) : bytes);
}

// ---- one run ----

let usual; // the manifest of a run that is given nothing

const OF_RUN = ["language", "filename", "module"];

// The usual case: code that is given nothing.
function isPlain(options) {
    for (const name in options) if (!OF_RUN.includes(name)) return false;
    return true;
}

async function run(code, options) {
    const text = codeOf(code);
    if (options === undefined || isPlain(optionsOf(options))) {
        const given = options ?? NOTHING;
        usual ??= grantsOf(NOTHING);
        return jobNew(undefined, (ticket) => binding.once(usual.handle, ticket, text, options === undefined ? 0 : flagsOf(given), given.filename));
    }
    const grants = grantsOf(options), flags = flagsOf(options), signal = signalOf(options);
    if (signal === undefined && grants.tools === undefined && !grants.hosts) {
        return jobNew(undefined, (ticket) => binding.once(grants.handle, ticket, text, flags, options.filename));
    }
    const guest = binding.guest(grants.handle);
    try {
        return await runIn(guest, grants, text, options);
    } finally {
        binding.drop(guest);
    }
}

// ---- what the addon tells ----

function exitCode(end, more) {
    if (end === END_VALUE) return more === undefined ? 0 : more.exitCode & 0xff;
    return end === END_CPU || end === END_WALL ? 124 : 1;
}

function onDone(ticket, end, flags, output, type, value, cpuMs, wallMs, memoryBytes, more) {
    const job = jobs.get(ticket);
    if (job === undefined) return;
    jobs.delete(ticket);
    const { run } = job;
    if (run !== undefined) {
        run.end();
        if (run.signal !== undefined && run.signal.aborted && (typeof end === "string" || END_NAMES[end] === "stopped")) {
            job.reject(run.signal.reason);
            return;
        }
    }
    if (typeof end === "string") {
        job.reject(new KernelError(end, flags));
        return;
    }
    if (end === undefined) {
        job.resolve(flags); // the bytes of a snapshot, or nothing
        return;
    }
    if (END_NAMES[end] === "stopped") {
        job.reject(new KernelError("kernel_disposed", "the kernel was disposed of while it ran"));
        return;
    }
    const result = {
        output,
        value: undefined,
        type: type || "undefined",
        logs: [],
        stderr: "",
        exitCode: exitCode(end, more),
        error: null,
        cpuMs,
        wallMs,
        timedOut: end === END_CPU || end === END_WALL,
        oomKilled: end === END_MEMORY,
        isFinal: (flags & IS_FINAL) !== 0,
        stateLost: (flags & STATE_LOST) !== 0,
        memoryBytes,
    };
    try {
        if (value !== undefined) result.value = JSON.parse(value);
    } catch (error) {
        result.valueError = `the value cannot be read: ${error.message}`;
    }
    if (more !== undefined) {
        result.logs = more.logs;
        result.stderr = more.stderr;
        if (more.error !== undefined) result.error = more.error;
        if (more.valueError !== undefined) result.valueError = more.valueError;
        if (more.logsDropped > 0) result.logsDropped = more.logsDropped;
    }
    job.resolve(result);
}

const END_NAMES = ["value", "error", "deadlock", "cpu", "wall", "memory", "stack", "trap", "stopped"];

function onCall(ticket, call, op, json, bytes) {
    const job = jobs.get(ticket);
    if (job === undefined || job.run === undefined) return;
    // What goes wrong there is told to the code; nothing of it may end the process.
    if (op === "tool") job.run.tool(call, json).catch(() => {});
    else if (op === "fetch.start" || op === "fetch.read") job.run.fetch(call, op, json, bytes).catch(() => {});
    else job.run.fail(call, new KernelError("ENOSYS", "nobody here can answer this call"));
}

function onCancel(ticket, stream) {
    const job = jobs.get(ticket);
    if (job === undefined || job.run === undefined || job.run.fetches === undefined) return;
    job.run.fetches.cancel(stream);
}

if (refused === undefined) binding.start(onDone, onCall, onCancel);

module.exports = { createKernel, restoreKernel, run, Kernel, KernelError };
