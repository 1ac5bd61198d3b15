// What a RemoteSandboxKernel runs in its box for JavaScript: a process of the box's own Node that evaluates what comes on its
// standard input, one JSON object a line, and keeps what was declared. Node's inspector evaluates, within the process and with
// no port: it alone takes a second `let x` and an `await` at the top. Lines of standard output that begin with the mark are for
// the host; all others are what the code printed. What this needs after the code began it has taken before: what the code makes
// of JSON and of other things that are everybody's is its own affair.
import { TEXT_MAX } from "./remote-lines.js";

/** Read by node in the box: `node -e DRIVER`, and then `{"mark": MARK}` on a line of its standard input. */
export const NODE_DRIVER = `(() => {
"use strict"; // in a function: what the code declares may have any name
const { Session } = require("node:inspector");
const { format } = require("node:util");
const nodePath = require("node:path");
const fs = require("node:fs");
const { pathToFileURL } = require("node:url");
const { JSON: { parse, stringify }, Object: { keys, freeze, is, defineProperty }, Error, String, Number, BigInt, Promise, URL, setTimeout, clearTimeout } = globalThis;
const { isFinite } = Number, { byteLength } = Buffer, { resolve: resolvePath } = nodePath, { readFileSync, writeFileSync } = fs;
const method = (of, name) => Function.prototype.call.bind(of.prototype[name]);
const indexOf = method(String, "indexOf"), slice = method(String, "slice"), startsWith = method(String, "startsWith"), endsWith = method(String, "endsWith");
const replace = method(String, "replace"), test = method(RegExp, "test"), exec = method(RegExp, "exec"), some = method(Array, "some");
const includes = method(String, "includes"), toLowerCase = method(String, "toLowerCase");
for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true); // what nobody takes yet would be kept in memory
const out = process.stdout.write.bind(process.stdout), exit = process.exit.bind(process);
const session = new Session();
session.connect();
const post = (method, about) => new Promise((resolve, reject) => session.post(method, about, (error, got) => (error ? reject(error) : resolve(got))));
const TEXT_MAX = ${TEXT_MAX};
let mark;
// No toJSON of the code's is asked.
function tell(frame) {
    let text = stringify(frame);
    if (byteLength(text) > TEXT_MAX - 256) {
        const few = { __proto__: null };
        if (frame.id === undefined) few.log = "[an entry of " + frame.log.length + " characters did not fit into the log]";
        else {
            few.id = frame.id;
            if (frame.error === undefined) few.serialization = "the result is too long: it takes more than " + TEXT_MAX + " bytes";
            else few.error = { __proto__: null, name: slice(frame.error.name, 0, 256), message: slice(frame.error.message, 0, 65536) };
        }
        text = stringify(few);
    }
    out("\\n" + mark + text + "\\n");
}
let may = { hosts: [], reads: [], writes: [] }, final, isFinal = false, failRun, idle;

for (const level of ["log", "info", "warn", "error", "debug"]) console[level] = (...args) => { tell({ __proto__: null, log: format(...args) }); };
for (const name of ["__finalAnswer__", "__final_answer__"]) {
    Object.defineProperty(globalThis, name, { configurable: true, get: () => final, set(value) { final = value; isFinal = true; } });
}
Object.assign(globalThis, { require: require("node:module").createRequire(process.cwd() + "/run.js") });
Object.defineProperty(globalThis, "__cove_import__", { value: (name, more) => import(test(/^\\.{0,2}\\//, name) ? pathToFileURL(resolvePath(name)).href : name, more) });

// ---- what the manifest grants; the engine keeps the network, and there is nothing of the host in the box ----

function below(path, list, option) {
    const full = resolvePath(String(path));
    if (some(list, (one) => full === one || startsWith(full, one === "/" ? one : one + "/"))) return full;
    const error = new Error("EACCES: permission denied, open '" + full + "': it is not granted; allow it with " + option);
    error.code = "EACCES";
    throw error;
}
globalThis.__fs__ = Object.freeze({
    async readFile(path) { return readFileSync(below(path, may.reads, "allowedReadPaths"), "utf8"); },
    async writeFile(path, data) { writeFileSync(below(path, may.writes, "allowedWritePaths"), data); },
});

function isNamed(url, rule) {
    const found = exec(/^(.*?)(?::(\\d+)(?:-(\\d+))?)?(?: .*)?$/, rule), name = toLowerCase(found[1]);
    if (found[2] !== undefined) {
        const port = Number(url.port || (url.protocol === "https:" ? 443 : 80));
        if (port < Number(found[2]) || port > Number(found[3] ?? found[2])) return false;
    }
    return name === "*" || includes(name, "/") || (startsWith(name, "*.") ? endsWith(url.hostname, slice(name, 1)) : url.hostname === name);
}
const ask = globalThis.fetch;
globalThis.fetch = async function fetch(input, init) {
    try {
        return await ask(input, init);
    } catch (cause) {
        let url;
        try { url = new URL(input?.url ?? String(input)); } catch { throw cause; }
        if (!test(/^https?:$/, url.protocol) || some(may.hosts, (rule) => isNamed(url, rule))) throw cause;
        const error = new Error('network access denied \\u2014 host "' + url.host + '" not in allowedHosts', { cause });
        defineProperty(error, "name", { value: "CapabilityDenied", writable: true, configurable: true });
        throw error;
    }
};

// ---- evaluating ----

// import() is not there for what an inspector evaluates: it is written as a call of ours, outside of texts and comments.
function withImports(code) {
    if (!test(/\\bimport\\s*\\(/, code)) return code;
    return replace(code, /\\/\\/[^\\n]*|\\/\\*[^]*?\\*\\/|'(?:\\\\[^]|[^'\\\\\\n])*'|"(?:\\\\[^]|[^"\\\\\\n])*"|\`(?:\\\\[^]|[^\`\\\\])*\`|(?<![.\\w$])import(?=\\s*\\()/g,
        (found) => (found === "import" ? "__cove_import__" : found));
}

let handed;
Object.defineProperty(globalThis, "__cove_hand__", { value: (value) => { handed = value; } });
async function valueOf(remote) {
    if (remote.objectId === undefined) {
        if (remote.unserializableValue === undefined) return remote.value;
        return remote.type === "bigint" ? BigInt(slice(remote.unserializableValue, 0, -1)) : Number(remote.unserializableValue);
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
    if (wrong && startsWith(description, "SyntaxError: Illegal return") && !some(wrong.stackTrace?.callFrames ?? [], (frame) => frame.url === "agent-step.js")) {
        got = await once("(async () => {" + text + "\\n})()");
    }
    if (got.exceptionDetails) throw got.exceptionDetails.exception ? await valueOf(got.exceptionDetails.exception) : new Error(got.exceptionDetails.text);
    return await valueOf(got.result);
}

function written(value) {
    if (typeof value === "function" || typeof value === "symbol") return { serialization: "a " + typeof value + " cannot be given as a result" };
    if (typeof value === "number" && !isFinite(value)) return { number: String(value) };
    if (is(value, -0)) return { number: "-0" };
    try {
        return { json: stringify(value) };
    } catch (error) {
        return { serialization: errorOf(error).message };
    }
}

function errorOf(error) {
    try {
        if (error instanceof Error) return { __proto__: null, name: String(error.name), message: String(error.message), stack: String(error.stack) };
        return { __proto__: null, name: "Error", message: typeof error === "string" ? error : format(error) };
    } catch {
        return { __proto__: null, name: "Error", message: "an error that has no text" };
    }
}

async function run(request) {
    clearTimeout(idle);
    may = request;
    final = undefined;
    isFinal = false;
    const own = keys(request.env).length === 0 ? undefined : freeze({ ...request.env });
    defineProperty(globalThis, "__env__", { value: own, writable: false, configurable: true });
    try {
        const { value } = await new Promise((resolve, reject) => {
            failRun = reject;
            (async () => {
                try {
                    resolve({ __proto__: null, value: await evaluate(request.code) });
                } catch (error) {
                    reject(error);
                }
            })();
        });
        tell({ __proto__: null, id: request.id, ...written(isFinal ? final : value), isFinal });
    } catch (error) {
        tell({ __proto__: null, id: request.id, error: errorOf(error) });
    }
    failRun = undefined;
}
for (const event of ["uncaughtException", "unhandledRejection"]) process.on(event, (error) => (failRun ?? ((late) => tell({ __proto__: null, log: errorOf(late).message })))(error));

// ---- requests ----

// One whose end did not come is asked again, on a line of its own: what is no whole line, or was heard before, is passed over.
let text = "", last, heard = 0;
async function next(before, request) {
    await before;
    await run(request);
    rest();
}
function take(line) {
    let request;
    try { request = parse(line); } catch { return; }
    if (mark === undefined && typeof request.mark === "string") {
        mark = request.mark;
        tell({ __proto__: null, ready: true });
    }
    if (!(request.id > heard)) return;
    heard = request.id;
    last = next(last, request);
}
const rest = () => { clearTimeout(idle); idle = setTimeout(() => exit(0), 3600000).unref(); };
rest();
process.stdin.setEncoding("utf8");
process.stdin.on("data", (piece) => {
    text += piece;
    for (let end = indexOf(text, "\\n"); end >= 0; end = indexOf(text, "\\n")) {
        const line = slice(text, 0, end);
        text = slice(text, end + 1);
        take(line);
    }
});
process.stdin.on("end", () => exit(0));
})();
`;
