//// path
const p = require("path"); console.log(p.join("/a", "..", "b", "./c", "d/"), p.join(), p.join("", ""), p.join("a", "", "..", ".."), p.normalize("/a/b/../../../c//d/"), p.normalize(""), p.normalize("./a/.."), p.isAbsolute("/x"), p.isAbsolute(""), p.resolve("/a", "b", "../c"), p.resolve("/a", "/b"), p.relative("/a/b/c", "/a/d"), p.relative("/a", "/a"), p.relative("/a/b", "/"), p.sep, p.delimiter);
//// path parts
const p2 = require("node:path"); for (const x of ["/a/b.txt", "a", "", "/", "a/b/", ".bashrc", "a.b.c", "/x/.hid", "..", "a.", "//a//", "/a"]) console.log(JSON.stringify(x), p2.dirname(x), p2.basename(x), p2.extname(x), p2.parse(x)); console.log(p2.basename("a.txt", ".txt"), p2.basename("a.txt", "a.txt"), p2.format({ dir: "/d", name: "n", ext: "e" }), p2.format({ root: "/", base: "b" }));
//// path errors
try { require("path").join(1); } catch (e) { console.log(e.name, e.code, e.message); } try { require("path").basename(null); } catch (e) { console.log(e.message); }
//// EventEmitter
const EE = require("events"); const e = new EE(); e.on("x", (...a) => console.log("1", a)); e.prependListener("x", () => console.log("0")); e.once("x", () => console.log("once")); console.log(e.emit("x", 1, 2), e.emit("x"), e.emit("none"), e.listenerCount("x"), e.eventNames(), e.rawListeners("x").length); const f = () => {}; e.on("y", f); e.off("y", f); console.log(e.listenerCount("y")); e.removeAllListeners(); console.log(e.eventNames());
//// EventEmitter newListener and errors
const { EventEmitter: E2 } = require("events"); const n = new E2(); n.on("newListener", (t) => console.log("new", t)); n.on("removeListener", (t) => console.log("removed", t)); const g = () => {}; n.on("a", g); n.off("a", g); try { n.emit("error", new Error("boom")); } catch (x) { console.log(x.message); } try { n.emit("error", "text"); } catch (x) { console.log(x.code, x.message); } try { n.on("a", 5); } catch (x) { console.log(x.code, x.message); }
//// events once and on
const ev = require("events"); const em = new ev(); setTimeout(() => em.emit("go", 1, 2), 1); console.log(await ev.once(em, "go")); setTimeout(() => { em.emit("d", 1); em.emit("d", 2); }, 1); let c = 0; for await (const v of ev.on(em, "d")) { console.log(v); if (++c === 2) break; } setTimeout(() => em.emit("error", new Error("bad")), 1); try { await ev.once(em, "z"); } catch (x) { console.log(x.message); }
//// extending EventEmitter
class My extends require("events") { constructor() { super(); this.v = 1; } } const my = new My(); my.on("q", function () { console.log(this === my, this.v); }); my.emit("q"); console.log(my instanceof require("events").EventEmitter);
//// util.format
const util = require("util"); console.log(util.format("%s %d %j", "a", 1, { b: 2 }), util.format("a", "b", { c: 1 }), util.format("%%s"), util.format(1, 2), util.format("%s", "x", "y"), util.inspect("str"), util.isDeepStrictEqual({ a: [1] }, { a: [1] }));
//// util.promisify and callbackify
const { promisify, callbackify } = require("util"); console.log(await promisify((a, cb) => cb(null, a + 1))(1)); try { await promisify((cb) => cb(new Error("no")))(); } catch (x) { console.log(x.message); } callbackify(async (x) => x * 2)(4, (err, v) => console.log(err, v)); callbackify(async () => { throw new Error("cb"); })((err) => console.log(err.message)); try { promisify(5); } catch (x) { console.log(x.code); }
//// util.types
const { types } = require("util"); console.log(types.isPromise(Promise.resolve()), types.isRegExp(/x/), types.isDate({}), types.isMap(new Map()), types.isProxy(new Proxy({}, {})), types.isAsyncFunction(async () => {}), types.isGeneratorFunction(function* () {}), types.isNativeError(new TypeError()), types.isTypedArray(new Uint8Array()), types.isUint8Array(Buffer.alloc(1)), types.isAnyArrayBuffer(new ArrayBuffer(1)), types.isBoxedPrimitive(Object(1)), types.isSet([]));
//// util misc
const u = require("util"); function A() {} function B() {} u.inherits(A, B); console.log(new A() instanceof B, A.super_ === B, u.stripVTControlCharacters("\u001b[31mred\u001b[0m"), u.stripVTControlCharacters(u.styleText("red", "x")), u.types === require("util/types"), u.inspect.custom, u.toUSVString("a\ud800"), new u.TextEncoder() instanceof TextEncoder);
//// util.parseArgs
const { parseArgs } = require("util"); console.log(parseArgs({ args: ["-v", "--name", "x", "--n=5", "pos"], options: { verbose: { type: "boolean", short: "v" }, name: { type: "string" }, n: { type: "string" } }, allowPositionals: true }));
//// deep equality
const d = require("util").isDeepStrictEqual; console.log(d([1, 2], [1, 2]), d({ a: 1, b: 2 }, { b: 2, a: 1 }), d(NaN, NaN), d(0, -0), d(new Date(1), new Date(1)), d(/a/g, /a/i), d(new Map([[{ a: 1 }, 1]]), new Map([[{ a: 1 }, 1]])), d(new Set([[1]]), new Set([[1]])), d(new Set([1, 2]), new Set([2, 1])), d([1, , 3], [1, undefined, 3]), d({}, Object.create(null)), d(new Uint8Array([1]), new Uint8Array([1])), d(new Uint8Array([1]), new Int8Array([1])), d(new Error("a"), new Error("a")), d(Object("a"), Object("a")), d({ [Symbol.for("s")]: 1 }, { [Symbol.for("s")]: 2 }), d(1, "1"), d(null, undefined), d([], {}), d(() => {}, () => {}));
//// deep equality of cycles
const c1 = { a: 1 }; c1.me = c1; const c2 = { a: 1 }; c2.me = c2; console.log(require("util").isDeepStrictEqual(c1, c2), require("util").isDeepStrictEqual(c1, { a: 1, me: { a: 1 } }));
//// assert passes
const as = require("assert"); as(1); as.ok(true); as.equal(1, "1"); as.strictEqual(1, 1); as.deepEqual({ a: 1 }, { a: "1" }); as.deepStrictEqual([1, { b: 2 }], [1, { b: 2 }]); as.notEqual(1, 2); as.notStrictEqual(1, "1"); as.notDeepStrictEqual({ a: 1 }, { a: "1" }); as.throws(() => { throw new TypeError("bad thing"); }, TypeError); as.throws(() => { throw new Error("bad thing"); }, /bad/); as.throws(() => { throw new Error("x"); }, { message: "x" }); as.doesNotThrow(() => {}); await as.rejects(Promise.reject(new Error("r")), /r/); await as.doesNotReject(async () => {}); as.match("abc", /b/); as.doesNotMatch("abc", /z/); as.ifError(null); console.log("all passed");
//// assert failures
const at = require("assert"); for (const f of [() => at.strictEqual(1, 2), () => at.equal(1, 2), () => at.fail(), () => at.fail("why"), () => at.notStrictEqual(1, 1), () => at.notEqual(1, 1), () => at.throws(() => {}), () => at.throws(() => {}, TypeError), () => at.ifError(new Error("q")), () => at.match("abc", /z/), () => at.ok(false, "said"), () => at.deepStrictEqual({ a: 1 }, { a: 2 }), () => at.deepStrictEqual([1, 2, 3], [1, 2, 4]), () => at.strictEqual(NaN, 0), () => at.doesNotThrow(() => { throw new Error("t"); }), () => at.strictEqual(1, 2, new TypeError("mine"))]) { try { f(); console.log("?"); } catch (x) { console.log(x.name, x.code, x.operator, x.generatedMessage, x.message); } }
//// assert rejects
const ar = require("assert"); try { await ar.rejects(Promise.resolve(1)); } catch (x) { console.log(x.message); } try { ar.throws(() => { throw new Error("a"); }, TypeError); } catch (x) { console.log(x.message.split("\n")[0]); } console.log(ar.strict.equal === ar.strictEqual, require("assert").strict === require("assert/strict"), new ar.AssertionError({ message: "m", actual: 1, expected: 2, operator: "o" }).message);
//// url module
const url = require("url"); console.log(url.fileURLToPath("file:///a%20b/c"), url.pathToFileURL("/a b#?").href, url.URL === URL, url.format(new URL("http://u:p@x/a?b#c"), { auth: false, fragment: false }), url.resolve("http://a/b/c", "../d"), url.domainToASCII("español.com"), url.domainToUnicode("xn--espaol-zwa.com")); try { url.fileURLToPath("http://x"); } catch (x) { console.log(x.code); }
//// url.parse
const up = require("url").parse("http://user:pw@host.com:8080/p/a?q=1&r=2#h"); console.log(up.protocol, up.auth, up.host, up.port, up.hostname, up.hash, up.search, up.query, up.pathname, up.path, up.href); console.log(require("url").parse("/a/b?x=1", true).query.x, require("url").format({ protocol: "https", hostname: "h", port: 1, pathname: "/p", query: { a: 1 } }));
//// querystring
const qs = require("querystring"); console.log(qs.parse("a=1&b=2&a=3&c=%20x+y&d"), qs.stringify({ a: [1, 2], b: "x y", c: true, d: null, e: undefined, f: "é&=" }), qs.escape("a b/ü"), qs.unescape("%41%zz"));
//// crypto hashes
const cr = require("crypto"); for (const a of ["md5", "sha1", "sha256", "sha384", "sha512"]) console.log(a, cr.createHash(a).update("hello").update(Buffer.from(" world")).digest("hex"), cr.createHmac(a, "key").update("data").digest("base64")); console.log(cr.createHash("sha256").digest("base64url"), cr.createHash("sha256").update("x".repeat(1000)).digest(), cr.createHmac("sha256", "k".repeat(200)).update("").digest("hex"));
//// crypto lengths around a block
const ch = require("crypto"); for (const n of [0, 1, 55, 56, 57, 63, 64, 65, 111, 112, 113, 127, 128, 129, 1000]) console.log(n, ch.createHash("sha1").update("a".repeat(n)).digest("hex").slice(0, 12), ch.createHash("sha512").update("a".repeat(n)).digest("hex").slice(0, 12), ch.createHash("md5").update("a".repeat(n)).digest("hex").slice(0, 12), ch.createHash("sha256").update("a".repeat(n)).digest("hex").slice(0, 12));
//// crypto rest
const cx = require("crypto"); console.log(cx.randomBytes(8).length, cx.randomUUID().length, cx.randomInt(5) < 5, cx.randomInt(3, 4), cx.timingSafeEqual(Buffer.from("a"), Buffer.from("a")), cx.pbkdf2Sync("pw", "salt", 10, 20, "sha256").toString("hex"), cx.getHashes().includes("sha256"), cx.webcrypto.subtle === crypto.subtle || true); try { cx.createHash("nope"); } catch (x) { console.log(x.message); } const h = cx.createHash("md5").update("a"); h.digest(); try { h.update("b"); } catch (x) { console.log(x.code, x.message); } try { cx.timingSafeEqual(Buffer.from("a"), Buffer.from("ab")); } catch (x) { console.log(x.code); } const base = cx.createHash("sha1").update("a"); const cp = base.copy(); console.log(base.update("b").digest("hex"), cp.digest("hex"));
//// process
console.log(process.platform, process.env.A, process.env.NOPE, typeof process.pid, process.argv.length, typeof process.hrtime.bigint(), process.hrtime().length, process.uptime() >= 0, Object.keys(process.memoryUsage()).sort(), typeof process.version, process.exitCode); process.env.X = "1"; console.log(process.env.X); delete process.env.X; console.log("X" in process.env);
//// process.stdout
process.stdout.write("partial "); process.stdout.write("line\n"); process.stdout.write("two\nlines\n"); console.log("log"); process.stderr.write("err\n"); process.stdout.write("no end\n");
//// process.on exit
process.on("exit", (code) => console.log("exit", code)); console.log("body");
//// process.exit
console.log("before"); setTimeout(() => console.log("never"), 1); try { process.exit(0); } catch (e) { console.log("never"); } finally { console.log("never"); }
//// process.exit in async
async function f2() { await 1; console.log("in"); try { process.exit(); } catch { console.log("never"); } } f2(); await new Promise(() => {}); console.log("never");
//// os
const os = require("os"); console.log(os.EOL === "\n", typeof os.cpus().length, os.platform(), os.type(), typeof os.tmpdir(), typeof os.totalmem(), os.endianness());
//// builtins
console.log(require("fs") === require("node:fs"), require("fs").promises === require("fs/promises"), require("path").posix === require("path"), require("module").isBuiltin("fs"), require("module").isBuiltin("nope"), typeof require("timers").setTimeout, require("buffer").Buffer === Buffer, require("process") === process, require("util").TextDecoder === TextDecoder, require("console") === console || true);
//// require errors
try { require("./nope"); } catch (e) { console.log(e.code, e.message.split("\n")[0]); } try { require("not-there"); } catch (e) { console.log(e.code, e.message.split("\n")[0]); } try { require(""); } catch (e) { console.log(e.code); } try { require(5); } catch (e) { console.log(e.code); } try { await import("nope-pkg"); } catch (e) { console.log(e.code, e.message.split(" imported")[0]); }
//// dynamic import of builtins
const fsm = await import("fs"); console.log(typeof fsm.default.readFileSync, typeof fsm.readFileSync, fsm.default === require("fs")); const { join } = await import("node:path"); console.log(join("a", "b")); const evm = await import("events"); console.log(typeof evm.default, typeof evm.EventEmitter);
//// errors have V8's text in stacks
function outer() { inner(); } function inner() { throw new TypeError("deep"); } try { outer(); } catch (e) { const lines = e.stack.split("\n"); console.log(lines[0], /^ {4}at inner \(/.test(lines[1]), /^ {4}at outer \(/.test(lines[2])); } const o = {}; Error.captureStackTrace(o); console.log(typeof o.stack, o.stack.split("\n")[0]); console.log(Error.stackTraceLimit, Object.keys(new Error("x")), "stack" in new Error("x"));
//// captureStackTrace in a class
class AppError extends Error { constructor(m) { super(m); this.name = this.constructor.name; Error.captureStackTrace(this, this.constructor); } } try { throw new AppError("custom"); } catch (e) { console.log(e.stack.split("\n")[0].replace("AppError", "Error"), e.name, e instanceof AppError, String(e)); }
//// thrown values
throw new TypeError("thrown");
//// global names
console.log(["setTimeout", "URL", "TextEncoder", "structuredClone", "atob", "crypto", "fetch", "Headers", "Request", "Response", "FormData", "Blob", "File", "AbortController", "AbortSignal", "EventTarget", "Event", "ReadableStream", "WritableStream", "TransformStream", "Buffer", "process", "performance", "queueMicrotask", "setImmediate", "global", "console", "Intl", "DOMException", "WeakRef", "FinalizationRegistry", "SharedArrayBuffer", "Atomics"].filter((n) => typeof globalThis[n] === "undefined"));
//// language
console.log([3, 1, 2].toSorted(), [1, 2, 3].at(-1), Object.groupBy ? "g" : "g", "a-b".replaceAll("-", "+"), [1, [2, [3]]].flat(Infinity), structuredClone(1n), 2n ** 64n, 0.1 + 0.2, (25).toString(36), parseInt("0x1f"), [..."a😀"].length, "x".padStart(3, "ab"), /(?<y>\d{4})/.exec("in 2024").groups.y, [1, 2, 3].findLast((x) => x < 3), Math.max(...[1, 5, 3]), new Set([1]).has(1), Number("1_0"), JSON.stringify({ a: [undefined, () => 1], d: new Date(0) }));
//// labels and closures
outer2: for (let i = 0; i < 3; i++) { for (let j = 0; j < 3; j++) { if (j === 1) continue outer2; if (i === 2) break outer2; console.log(i, j); } } const fns = []; for (let i = 0; i < 3; i++) fns.push(() => i); console.log(fns.map((f) => f()));
//// generators and destructuring
function* fib() { let [a, b] = [0, 1]; for (;;) { yield a; [a, b] = [b, a + b]; } } const [x0, , x2, ...rest] = [1, 2, 3, 4, 5]; const { q = 5, ...others } = { w: 1, e: 2 }; const out = []; for (const v of fib()) { if (v > 50) break; out.push(v); } console.log(out, x0, x2, rest, q, others);
//// dates in UTC
console.log(new Date(2024, 0, 15, 10, 30).toISOString(), new Date("2024-02-30").getTime(), new Date("2024-01-15T10:00:00+02:00").toISOString(), new Date(0).toString(), new Date(0).toDateString(), new Date(0).toUTCString(), Date.UTC(2020, 1), new Date("Jan 5, 2024 10:00").toISOString(), new Date(2024, 1, 29).getDay(), new Date(0).getTimezoneOffset(), Date.parse("2024-01-01"), JSON.stringify(new Date(NaN)));
//// tty
const tty = require("tty"); console.log(tty.isatty(1), tty.isatty("x"), typeof tty.ReadStream, typeof tty.WriteStream);
//// random fill
const c = require("crypto"); const b = Buffer.alloc(8); c.randomFillSync(b, 4, 2); console.log(b.subarray(0, 4), b.subarray(6)); for (const args of [[5], [b, 9], [b, 4, 5], [b, "x"], [b, 0, -1]]) { try { c.randomFillSync(...args); } catch (e) { console.log(e.code, e.message); } } await new Promise((done) => c.randomFill(new Uint32Array(2), (error, filled) => { console.log(error, filled.length); done(); })); await new Promise((done) => c.randomFill(b, 6, 2, (error, filled) => { console.log(error, filled === b); done(); }));
