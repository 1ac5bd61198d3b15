// What a RemoteSandboxKernel runs in its box for JavaScript: a process of the box's own Node that evaluates what comes on its
// standard input, one JSON object a line, and keeps what was declared. Node's inspector evaluates, within the process and with
// no port: it alone takes a second `let x` and an `await` at the top. Lines of standard output that begin with the mark are for
// the host; all others are what the code printed.

/** Read by node in the box: `node -e DRIVER MARK`. */
export const NODE_DRIVER = `"use strict";
const { Session } = require("node:inspector");
const { format } = require("node:util");
const nodePath = require("node:path");
const fs = require("node:fs");
const mark = process.argv[1], out = process.stdout.write.bind(process.stdout);
const session = new Session();
session.connect();
const post = (method, about) => new Promise((resolve, reject) => session.post(method, about, (error, got) => (error ? reject(error) : resolve(got))));
const tell = (frame) => out("\\n" + mark + JSON.stringify(frame) + "\\n");
let may = { hosts: [], reads: [], writes: [] }, final, isFinal = false, failRun, idle;

for (const level of ["log", "info", "warn", "error", "debug"]) console[level] = (...args) => { tell({ log: format(...args) }); };
for (const name of ["__finalAnswer__", "__final_answer__"]) {
    Object.defineProperty(globalThis, name, { configurable: true, get: () => final, set(value) { final = value; isFinal = true; } });
}
Object.assign(globalThis, { require: require("node:module").createRequire(process.cwd() + "/run.js") });
Object.defineProperty(globalThis, "__cove_import__", { value: (name, more) => import(/^\\.{0,2}\\//.test(name) ? require("node:url").pathToFileURL(nodePath.resolve(name)).href : name, more) });

// ---- what the manifest grants; the engine keeps the network, and there is nothing of the host in the box ----

function below(path, list, option) {
    const full = nodePath.resolve(String(path));
    if (list.some((one) => full === one || full.startsWith(one === "/" ? one : one + "/"))) return full;
    const error = new Error("EACCES: permission denied, open '" + full + "': it is not granted; allow it with " + option);
    error.code = "EACCES";
    throw error;
}
globalThis.__fs__ = Object.freeze({
    async readFile(path) { return fs.readFileSync(below(path, may.reads, "allowedReadPaths"), "utf8"); },
    async writeFile(path, data) { fs.writeFileSync(below(path, may.writes, "allowedWritePaths"), data); },
});

function isNamed(url, rule) {
    const found = /^(.*?)(?::(\\d+)(?:-(\\d+))?)?(?: .*)?$/.exec(rule), name = found[1].toLowerCase();
    if (found[2] !== undefined) {
        const port = Number(url.port || (url.protocol === "https:" ? 443 : 80));
        if (port < Number(found[2]) || port > Number(found[3] ?? found[2])) return false;
    }
    return name === "*" || name.includes("/") || (name.startsWith("*.") ? url.hostname.endsWith(name.slice(1)) : url.hostname === name);
}
const ask = globalThis.fetch;
globalThis.fetch = async function fetch(input, init) {
    try {
        return await ask(input, init);
    } catch (cause) {
        let url;
        try { url = new URL(input?.url ?? String(input)); } catch { throw cause; }
        if (!/^https?:$/.test(url.protocol) || may.hosts.some((rule) => isNamed(url, rule))) throw cause;
        const error = new Error('network access denied \\u2014 host "' + url.host + '" not in allowedHosts', { cause });
        Object.defineProperty(error, "name", { value: "CapabilityDenied", writable: true, configurable: true });
        throw error;
    }
};

// ---- evaluating ----

// import() is not there for what an inspector evaluates: it is written as a call of ours, outside of texts and comments.
function withImports(code) {
    if (!/\\bimport\\s*\\(/.test(code)) return code;
    return code.replace(/\\/\\/[^\\n]*|\\/\\*[^]*?\\*\\/|'(?:\\\\[^]|[^'\\\\\\n])*'|"(?:\\\\[^]|[^"\\\\\\n])*"|\`(?:\\\\[^]|[^\`\\\\])*\`|(?<![.\\w$])import(?=\\s*\\()/g,
        (found) => (found === "import" ? "__cove_import__" : found));
}

let handed;
Object.defineProperty(globalThis, "__cove_hand__", { value: (value) => { handed = value; } });
async function valueOf(remote) {
    if (remote.objectId === undefined) {
        if (remote.unserializableValue === undefined) return remote.value;
        return remote.type === "bigint" ? BigInt(remote.unserializableValue.slice(0, -1)) : Number(remote.unserializableValue);
    }
    await post("Runtime.callFunctionOn", { objectId: remote.objectId, functionDeclaration: "function () { 'use strict'; __cove_hand__(this); }" });
    const value = handed;
    handed = undefined;
    return value;
}

async function evaluate(code) {
    const text = withImports(code);
    const once = (expression) => post("Runtime.evaluate", { expression: expression + "\\n//# sourceURL=agent-step.js", replMode: true, awaitPromise: true });
    let got = await once(text);
    // A program that returns is the body of a function.
    const wrong = got.exceptionDetails, description = wrong?.exception?.description ?? "";
    if (wrong && description.startsWith("SyntaxError: Illegal return") && !(wrong.stackTrace?.callFrames ?? []).some((frame) => frame.url === "agent-step.js")) {
        got = await once("(async () => {" + text + "\\n})()");
    }
    if (got.exceptionDetails) throw got.exceptionDetails.exception ? await valueOf(got.exceptionDetails.exception) : new Error(got.exceptionDetails.text);
    return await valueOf(got.result);
}

function written(value) {
    if (typeof value === "function" || typeof value === "symbol") return { serialization: "a " + typeof value + " cannot be given as a result" };
    if (typeof value === "number" && !Number.isFinite(value)) return { number: String(value) };
    try {
        return { json: JSON.stringify(value) };
    } catch (error) {
        return { serialization: error.message };
    }
}

function errorOf(error) {
    try {
        if (error instanceof Error) return { name: String(error.name), message: String(error.message), stack: String(error.stack) };
        return { name: "Error", message: typeof error === "string" ? error : format(error) };
    } catch {
        return { name: "Error", message: "an error that has no text" };
    }
}

async function run(request) {
    clearTimeout(idle);
    may = request;
    final = undefined;
    isFinal = false;
    const own = Object.keys(request.env).length === 0 ? undefined : Object.freeze({ ...request.env });
    Object.defineProperty(globalThis, "__env__", { value: own, writable: false, configurable: true });
    const failed = new Promise((resolve, reject) => { failRun = reject; });
    try {
        const value = await Promise.race([evaluate(request.code), failed]);
        tell({ id: request.id, ...written(isFinal ? final : value), isFinal });
    } catch (error) {
        tell({ id: request.id, error: errorOf(error) });
    }
    failRun = undefined;
}
for (const event of ["uncaughtException", "unhandledRejection"]) process.on(event, (error) => (failRun ?? ((late) => tell({ log: errorOf(late).message })))(error));

// ---- requests ----

// One whose end did not come is asked again, on a line of its own: what is no whole line, or was heard before, is passed over.
let text = "", last = Promise.resolve(), heard = 0;
function take(line) {
    let request;
    try { request = JSON.parse(line); } catch { return; }
    if (request.id <= heard) return;
    heard = request.id;
    last = last.then(() => run(request)).then(rest);
}
const rest = () => { clearTimeout(idle); idle = setTimeout(() => process.exit(0), 3600000).unref(); };
rest();
process.stdin.setEncoding("utf8");
process.stdin.on("data", (piece) => {
    text += piece;
    for (let end = text.indexOf("\\n"); end >= 0; end = text.indexOf("\\n")) {
        take(text.slice(0, end));
        text = text.slice(end + 1);
    }
});
process.stdin.on("end", () => process.exit(0));
tell({ ready: true });
`;
