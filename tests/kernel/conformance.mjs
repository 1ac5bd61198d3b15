// What the engine does in our build, beside what the very same module does in Node's own WebAssembly: the image that
// each boots from the prelude's scripts, and each test of a published set (tests/conformance, pinned), by all that the guest
// says of its run. The host's functions are here once more, for code that nothing is granted to.
// usage: conformance.mjs DRIVER WASM IMAGE PRELUDE SET PARTS, where of PARTS parts of the set one is run
// Prints one line of JSON: {tests, both, neither, ended: [test], different: [[test, ours, node's]], image}; `both` is what passes
// in both, `ended` what our limits ended, which Node's would not.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";

const PAGE = 65536;
const DONE = 1, WAITS = 2; // what run() and step() return
const END = { told: 0, deadlock: 2, memory: 5, stack: 6, trap: 7 }; // as enum kernel_end, but for `told`
// Of struct guest_shared.
const AT = { interrupt: 4, seeded: 8, limit: 12, seed: 16, wait: 48, flags: 56, line: 60, column: 64, exit: 68, refused: 72,
  dropped: 80, texts: 84 };
const TEXTS = ["logs", "output", "type", "value", "value_error", "errors", "name", "message", "stack", "code"];

// ---- one engine in Node's WebAssembly ----

class Engine {
  constructor(module) {
    this.module = module;
    this.answer = { meta: Buffer.from("null"), bytes: null };
    this.instance();
  }

  instance() {
    const denied = (op) => ({ meta: Buffer.from(JSON.stringify({ code: "ENOSYS", message: `the host knows no call '${op}'` })), bytes: null });
    const text = (at, size) => Buffer.from(this.memory.buffer, at, size).toString();
    const call = (status) => (op, opSize, meta, metaSize, bytes, bytesSize, sizes) => {
      this.answer = denied(text(op, opSize));
      this.view().setUint32(sizes, this.answer.meta.length, true);
      this.view().setUint32(sizes + 4, 0xffffffff, true);
      return status;
    };
    const wasi = {
      clock_time_get: (clock, precision, at) => {
        const now = this.isMade ? (clock === 0 ? BigInt(Date.now()) * 1000000n : process.hrtime.bigint() - this.begun) : 0n;
        this.view().setBigUint64(at, now, true);
        return 0;
      },
      fd_close: () => 8, fd_fdstat_get: () => 8, fd_seek: () => 8, fd_write: () => 8,
    };
    const host = { call: call(1), begin: call(0), take: (meta) => Buffer.from(this.memory.buffer).set(this.answer.meta, meta) };
    this.exports = new WebAssembly.Instance(this.module, { host, wasi_snapshot_preview1: wasi }).exports;
    this.memory = this.exports.memory;
  }

  view() {
    return new DataView(this.memory.buffer);
  }

  put(bytes) {
    const at = this.exports.reserve(bytes.length + 1);
    const into = Buffer.from(this.memory.buffer);
    into.set(bytes, at);
    into[at + bytes.length] = 0;
    return at;
  }

  boot(scripts) {
    this.exports._initialize();
    if (this.exports.boot() < 0) throw new Error("it does not boot");
    this.shared = this.exports.shared_at();
    for (const [name, source] of scripts) {
      const at = this.put(Buffer.from(name)), text = this.put(source);
      if (this.exports.prelude(text, source.length, at) < 0) throw new Error(`${name} throws`);
    }
    this.exports.settle_down();
    this.gold = Buffer.from(Buffer.from(this.memory.buffer));
    this.isMade = true;
  }

  reset() {
    if (this.lost || this.memory.buffer.byteLength !== this.gold.length) {
      this.instance();
      if (this.memory.buffer.byteLength < this.gold.length)
        this.memory.grow((this.gold.length - this.memory.buffer.byteLength) / PAGE);
    }
    Buffer.from(this.memory.buffer).set(this.gold);
    this.lost = false;
    this.begun = process.hrtime.bigint();
    const view = this.view();
    view.setUint32(this.shared + AT.limit, this.limit, true);
    [1, 2, 3].forEach((byte, i) => view.setUint8(this.shared + AT.seed + i, byte));
    for (let i = 3; i < 32; i++) view.setUint8(this.shared + AT.seed + i, 0);
    view.setUint32(this.shared + AT.seeded, 1, true);
  }

  run(source, isModule) {
    this.reset();
    try {
      return this.told(this.steps(source, isModule));
    } catch (error) {
      this.lost = true;
      if (error instanceof RangeError) return this.end(END.stack);
      if (error instanceof WebAssembly.RuntimeError) return this.end(END.trap);
      throw error;
    }
  }

  steps(source, isModule) {
    const name = Buffer.from("<run>\0"), size = source.length + 1 + name.length;
    const at = size <= this.inputMax ? this.shared + this.input : this.exports.reserve(size);
    Buffer.from(this.memory.buffer).set(Buffer.concat([source, Buffer.from([0]), name]), at);
    let state = this.exports.run(at, source.length, isModule ? 2 : 0, at + source.length + 1);
    while (state === WAITS) {
      const wait = this.view().getFloat64(this.shared + AT.wait, true);
      if (!(wait >= 0)) return END.deadlock;
      if (wait > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Math.ceil(wait));
      state = this.exports.step();
    }
    return state === DONE ? END.told : END.memory;
  }

  end(end) {
    const out = Buffer.alloc(4);
    out.writeUInt32LE(end);
    return out;
  }

  told(end) {
    const view = this.view(), numbers = Buffer.alloc(24), all = Buffer.from(this.memory.buffer), parts = [numbers];
    [AT.flags, AT.line, AT.column, AT.exit, AT.dropped].forEach((at, i) => numbers.writeUInt32LE(view.getUint32(this.shared + at, true), 4 + 4 * i));
    if (end !== END.told) return this.end(end);
    const found = {};
    TEXTS.forEach((name, i) => {
      const at = view.getUint32(this.shared + AT.texts + 8 * i, true), size = view.getUint32(this.shared + AT.texts + 8 * i + 4, true);
      const length = Buffer.alloc(4);
      found[name] = at + size <= all.length ? all.subarray(at, at + size) : Buffer.alloc(0);
      length.writeUInt32LE(found[name].length);
      parts.push(length, found[name]);
    });
    const hasError = (view.getUint32(this.shared + AT.flags, true) & 2) !== 0;
    if (hasError && view.getUint32(this.shared + AT.refused, true) !== 0 && (found.message.length === 0 ||
        (found.name.toString() === "InternalError" && found.message.toString() === "out of memory"))) return this.end(END.memory);
    return Buffer.concat(parts);
  }
}

// ---- the tests ----

// What a test names in its head.
function head(text) {
  const found = /\/\*---([\s\S]*?)---\*\//.exec(text)?.[1] ?? "";
  const list = (name) => (new RegExp(`^\\s*${name}:\\s*\\[([^\\]]*)\\]`, "m").exec(found)?.[1] ?? "").split(",").map((w) => w.trim()).filter(Boolean);
  const lines = (name) => (new RegExp(`^\\s*${name}:\\s*\\n((?:\\s+-\\s.*\\n?)*)`, "m").exec(found)?.[1] ?? "").split("\n")
    .map((line) => line.replace(/^\s*-\s*/, "").trim()).filter(Boolean);
  return { flags: [...list("flags"), ...lines("flags")], includes: [...list("includes"), ...lines("includes")],
    negative: /^\s*negative:/m.test(found) ? /^\s*type:\s*(\w+)/m.exec(found)?.[1] ?? "Error" : null };
}

// What a host gives to tests.
const HOST = `var print = (...all) => console.log(...all);
var $262 = { global: globalThis, gc() {}, evalScript: (text) => (0, eval)(text), createRealm() { throw new Error("no realms"); },
  detachArrayBuffer(buffer) { buffer.transfer(); }, agent: { start() { throw new Error("no agents"); } } };
`;

function* tests(set, parts) {
  const harness = (name) => fs.readFileSync(path.join(set, "harness", name), "utf8");
  const common = `${HOST}${harness("assert.js")}\n${harness("sta.js")}\n`;
  const files = fs.readdirSync(path.join(set, "test"), { recursive: true }).filter((name) => name.endsWith(".js") && !name.includes("_FIXTURE")).sort();
  for (const name of files) {
    if (createHash("sha256").update(name).digest().readUInt32BE() % parts !== 0) continue;
    const text = fs.readFileSync(path.join(set, "test", name), "utf8"), about = head(text);
    const is = (flag) => about.flags.includes(flag);
    const needs = [...about.includes, ...(is("async") ? ["doneprintHandle.js"] : [])].map(harness).join("\n");
    const source = is("raw") ? text : `${is("onlyStrict") ? '"use strict";\n' : ""}${common}${needs}\n${text}`;
    yield { name, source: Buffer.from(source), isModule: is("module"), isAsync: is("async"), negative: about.negative };
  }
}

function read(answer) {
  const out = { end: answer.readUInt32LE(0) };
  if (answer.length === 4) return out;
  let at = 24;
  out.flags = answer.readUInt32LE(4);
  for (const name of TEXTS) {
    const size = answer.readUInt32LE(at);
    out[name] = answer.toString("utf8", at + 4, at + 4 + size);
    at += 4 + size;
  }
  return out;
}

// A test whose value is the time says another one in each.
const today = new Date().toISOString().slice(0, 8);
const timeless = (answer) => answer.toString("latin1").replace(/\d{4}-\d\d-\d\dT[\d:.]{12}Z/g, (time) => (time.startsWith(today) ? "now" : time));
const isSame = (one, other) => one.equals(other) || timeless(one) === timeless(other);

function passes(test, result) {
  if (result.end !== 0) return false;
  const thrown = (result.flags & 2) !== 0;
  if (test.negative) return thrown && result.name === test.negative;
  return !thrown && (!test.isAsync || (result.logs.includes("Test262:AsyncTestComplete") && !result.logs.includes("Test262:AsyncTestFailure")));
}

// ---- both ----

// Answers of the driver, in the order of the requests.
class Driver {
  constructor(program) {
    this.child = spawn(program, { stdio: ["pipe", "pipe", "inherit"] });
    this.had = Buffer.alloc(0);
    this.wants = [];
    this.child.stdout.on("data", (piece) => {
      this.had = Buffer.concat([this.had, piece]);
      for (let size; this.wants.length > 0 && (size = this.wants[0].size(this.had)) > 0;) {
        this.wants.shift().done(this.had.subarray(0, size));
        this.had = this.had.subarray(size);
      }
    });
    this.child.on("exit", () => this.wants.forEach((want) => want.failed(new Error("the driver ended"))));
  }

  next(size) {
    return new Promise((done, failed) => this.wants.push({ size, done, failed }));
  }

  async begin() {
    return JSON.parse(await this.next((had) => had.indexOf(10) + 1));
  }

  run(test) {
    this.child.stdin.write(`${test.isModule ? 1 : 0} ${test.source.length}\n`);
    this.child.stdin.write(test.source);
    return this.next((had) => (had.length >= 4 && had.length >= 4 + had.readUInt32LE(0) ? 4 + had.readUInt32LE(0) : 0));
  }
}

// The image file of our build: struct image_head, the pages' numbers, and they.
function imageRead(file) {
  const bytes = fs.readFileSync(file), size = Number(bytes.readBigUInt64LE(16)), count = bytes.readUInt32LE(24), all = Buffer.alloc(size);
  const pages = Math.ceil((64 + 4 * count) / 4096) * 4096;
  for (let i = 0; i < count; i++) bytes.copy(all, bytes.readUInt32LE(64 + 4 * i) * 4096, pages + 4096 * i, pages + 4096 * (i + 1));
  return all;
}

async function main([program, wasm, image, prelude, set, parts]) {
  const driver = new Driver(program), about = await driver.begin();
  const scripts = fs.readFileSync(path.join(prelude, "order"), "utf8").split("\n").filter((line) => line && !line.startsWith("#"));
  const worker = new Worker(new URL(import.meta.url), { resourceLimits: { stackSizeMb: 200 },
    workerData: { wasm, about, scripts: scripts.map((name) => [`cove:${name}`, path.join(prelude, name)]) } });
  const waiting = [];
  worker.on("message", (message) => waiting.shift()(message));
  worker.on("error", (error) => { throw error; });
  const hear = () => new Promise((done) => waiting.push(done));
  const gold = Buffer.from(await hear());
  const ours = imageRead(image);
  const report = { tests: 0, both: 0, neither: 0, ended: [], different: [],
    image: gold.equals(ours) ? "same" : `${gold.length} and ${ours.length} bytes, from ${gold.findIndex?.((byte, i) => byte !== ours[i])} on` };
  const one = async (test) => {
    const mine = (await driver.run(test)).subarray(4);
    report.tests++;
    if (mine.length === 4 && [3, 4].includes(mine.readUInt32LE(0))) return report.ended.push(test.name);
    worker.postMessage({ source: test.source, isModule: test.isModule });
    const theirs = Buffer.from(await hear());
    if (!isSame(mine, theirs)) report.different.push([test.name, read(mine), read(theirs)]);
    else report[passes(test, read(mine)) ? "both" : "neither"]++;
    if (process.env.COVE_LIST_FAILURES && !passes(test, read(mine))) console.error(test.name, JSON.stringify(read(mine)).slice(0, 300));
  };
  // A few at a time, so that neither waits for the other.
  const all = tests(set, Number(parts)), lane = async () => {
    for (const test of all) await one(test);
  };
  const lanes = Array.from({ length: 8 }, () => ({ next: lane }));
  await Promise.all(lanes.map((each) => each.next()));
  driver.child.stdin.end();
  await worker.terminate();
  console.log(JSON.stringify(report));
}

function work({ wasm, about, scripts }) {
  const engine = new Engine(new WebAssembly.Module(fs.readFileSync(wasm)));
  engine.boot(scripts.map(([name, file]) => [name, fs.readFileSync(file)]));
  Object.assign(engine, { input: about.input, inputMax: 8192, limit: about.limit });
  if (engine.shared !== about.shared) throw new Error("the shared part lies elsewhere");
  parentPort.postMessage(engine.gold);
  parentPort.on("message", ({ source, isModule }) => parentPort.postMessage(engine.run(Buffer.from(source), isModule)));
}

if (isMainThread) await main(process.argv.slice(2));
else work(workerData);
