//// primitives
console.log(1, -0, 1.5, NaN, Infinity, 10n, true, null, undefined, Symbol("a"), Symbol(), "s");
//// strings nested
console.log(["a", "it's", 'say "hi"', `both ' and "`, "all ' \" `", "tab\t nl\n bs\\ nul\0 del\x7f esc\x1b", "é", "日本"]);
//// lone surrogates
console.log(["\ud83d", "\ude00x", "😀"]);
//// long string in object
console.log({ a: "x".repeat(100), b: "y".repeat(200) });
//// multi-line string in object
console.log({ a: "line one\nline two that is rather long, so that it does not fit into one line of eighty\nline three" });
//// short multi-line string
console.log({ a: "a\nb" }, ["c\nd"]);
//// empty
console.log({}, [], new Map(), new Set(), "", function () {}, () => {}, class {}, Object.create(null));
//// nesting
console.log({ a: { b: { c: { d: 1 } } } }, [[[[1]]]], { a: [{ b: { c: [1] } }] });
//// depth with class and null prototype
class Foo { constructor() { this.x = { y: { z: { w: 1 } } }; } }
console.log(new Foo(), { a: { b: { c: new Foo(), d: Object.create(null), e: new Map(), f: new Map([[1, 2]]), g: [], h: [1] } } });
//// circular
const a = { name: "a" }; a.self = a; a.list = [a, { a }]; console.log(a);
//// circular twice
const a1 = {}; const b1 = { a1 }; a1.b1 = b1; a1.me = a1; b1.me = b1; console.log(a1, b1);
//// circular map
const m1 = new Map(); m1.set("me", m1); m1.set(m1, 1); console.log(m1);
//// array with holes
console.log([1, , 3], [, ,], [undefined, null], new Array(3), [1, , , 4, ,]);
//// array extra keys
const r1 = [1, 2, 3]; r1.foo = "bar"; r1["a b"] = 1; r1[-1] = 2; console.log(r1);
//// long array of numbers
console.log(Array.from({ length: 120 }, (_, i) => i * 3));
//// array of 7 and 27 numbers
console.log([1, 2, 3, 4, 5, 6, 7], Array.from({ length: 27 }, (_, i) => i));
//// array of strings
console.log(["apple", "banana", "cherry", "date", "elderberry", "fig", "grape", "honeydew melon"]);
//// array of 101 strings
console.log(Array.from({ length: 101 }, (_, i) => "item" + i));
//// array of mixed
console.log([1, "a", { b: 1 }, [2], null, undefined, true, () => {}, Symbol("x"), 5n]);
//// array of objects
console.log([{ id: 1, name: "one" }, { id: 2, name: "two" }, { id: 3, name: "three" }]);
//// many objects
console.log(Array.from({ length: 10 }, (_, i) => ({ id: i, name: "name" + i, tags: ["a", "b"] })));
//// object of many keys
console.log(Object.fromEntries(Array.from({ length: 30 }, (_, i) => ["key" + i, i])));
//// object just below and above the line
console.log({ aaaaaaaaaaaaaaa: 1, bbbbbbbbbbbbbbbbbb: 2, cccccccccccccccccc: 3, ddddd: 4 }, { aaaaaaaaaaaaaaa: 1, bbbbbbbbbbbbbbbbbb: 2, cccccccccccccccccc: 3, dddddd: 4 }, { aaaaaaaaaaaaaaa: 1, bbbbbbbbbbbbbbbbbb: 2, cccccccccccccccccc: 3, ddddddddddddd: 4 });
//// keys
console.log({ "a-b": 1, 1: 2, valid_id: 3, $x: 4, "": 5, "with space": 6, [Symbol("s")]: 7, [Symbol.iterator]: 8, "it's": 9, über: 1 });
//// getters and setters
console.log({ get a() { return 1; }, set b(v) {}, get c() { return 1; }, set c(v) {} });
//// non-enumerable
console.log(Object.defineProperty({ a: 1 }, "hidden", { value: 2, enumerable: false }));
//// functions
function named() {} async function af() {} function* g() {} async function* ag() {} const arrow = () => 1; console.log(named, af, g, ag, arrow, [named, arrow], Math.max);
//// functions with properties
function fp() {} fp.x = 1; fp.y = { z: 2 }; console.log(fp, [fp]);
//// classes
class A {} class B extends A {} class C { static x = 1; } console.log(A, B, C, [A, B], class extends A {}, class { static name = 5; });
//// instances
class P1 { constructor() { this.a = 1; } } class P2 extends P1 {} class P3 { get x() { return 1; } } console.log(new P1(), new P2(), new P3(), new (class {})(), new (class X { #p = 1; q = 2; })());
//// toStringTag
class T1 { get [Symbol.toStringTag]() { return "Tagged"; } } console.log(new T1(), { [Symbol.toStringTag]: "own" }, Object.create({ [Symbol.toStringTag]: "proto" }));
//// null prototype
const np = Object.create(null); np.a = 1; console.log(np, Object.create(Object.create(null)), Object.create({}), Object.create({ constructor: 5 }));
//// prototype chains
function Old() { this.v = 1; } Old.prototype.m = function () {}; console.log(new Old(), Object.create(new Old()), Object.setPrototypeOf({ a: 1 }, null), Object.setPrototypeOf([1], null));
//// map and set
console.log(new Map([["a", 1], ["b", { c: 2 }]]), new Set([1, "x", { y: 1 }]), new Map([[{ k: 1 }, new Set([1])]]), new Map([[NaN, -0]]));
//// big map and set
console.log(new Set(Array.from({ length: 30 }, (_, i) => i)), new Map(Array.from({ length: 12 }, (_, i) => ["key number " + i, i])));
//// more than 100 in set and map
console.log(new Set(Array.from({ length: 102 }, (_, i) => i)), new Map(Array.from({ length: 101 }, (_, i) => [i, i])));
//// subclassed map, set, array, promise
class MM extends Map {} class SS extends Set {} class AA extends Array {} class PP extends Promise {} console.log(new MM([[1, 2]]), new SS([1]), AA.from([1, 2]), new AA(), PP.resolve(1));
//// extra keys on map and set
const mx = new Map([[1, 2]]); mx.x = 1; const sx = new Set(); sx.y = 2; console.log(mx, sx);
//// weak
console.log(new WeakMap(), new WeakSet());
//// dates
console.log(new Date(0), new Date(NaN), [new Date(86400000)], { d: new Date(1e12) });
//// date with key
const dk = new Date(0); dk.x = 1; console.log(dk);
//// regexps
console.log(/a/g, [/b\/c/imsuy], Object.assign(/x/, { y: 1 }));
//// errors without frames
const e1 = new Error("boom"); e1.stack = "Error: boom"; console.log(e1, [e1], { e1 });
//// error message and class
const e2 = new TypeError("bad"); e2.stack = undefined; console.log(String(e2), `${new RangeError("r")}`);
//// error with frames
console.log(new Error("plain")); console.log([new TypeError("in list")]); console.log({ e: new RangeError("in object") });
//// error with keys
const e3 = new Error("with keys"); e3.code = "E_X"; e3.info = { a: 1 }; console.log(e3);
//// error subclass
class MyError extends Error {} console.log(new MyError("mine"));
//// error subclass with name
class Named extends Error { constructor(m) { super(m); this.name = "Named"; } } console.log(new Named("n"));
//// error subclass with proto name
class Named2 extends Error {} Named2.prototype.name = "Other"; console.log(new Named2("n"));
//// error with cause
console.log(new Error("outer", { cause: new TypeError("inner") }));
//// error with plain cause
console.log(new Error("outer", { cause: "because" }), new Error("o", { cause: { a: 1 } }));
//// aggregate error
console.log(new AggregateError([new Error("one"), new TypeError("two")], "several"));
//// error with empty message
console.log(new Error(), new Error(""));
//// error with multi-line message
console.log(new Error("first\nsecond"));
//// error deep in an object
console.log({ a: { b: { c: new Error("deep") } } });
//// promises
console.log(Promise.resolve(5), Promise.resolve({ a: 1 }), new Promise(() => {})); const pr = Promise.reject(3); pr.catch(() => {}); console.log(pr, [Promise.resolve()]);
//// proxies
console.log(new Proxy({ a: 1 }, {}), new Proxy([1, 2], {}), new Proxy(function f() {}, {}), new Proxy({ x: 1 }, { get() { throw new Error("trap"); }, ownKeys() { throw new Error("trap"); } }));
//// typed arrays
console.log(new Uint8Array([1, 2, 3]), new Float64Array(2), new BigInt64Array([1n, -2n]), new Uint8Array(0), new Int16Array(120));
//// array buffers
console.log(new ArrayBuffer(3), new Uint8Array([1, 2, 255]).buffer, new DataView(new ArrayBuffer(2)), new ArrayBuffer(0), new ArrayBuffer(120));
//// boxed
console.log(new Number(3), new String("abc"), new Boolean(false), Object(5n), Object(Symbol("q")), new Number(-0), Object.assign(new String("xy"), { k: 1 }));
//// arguments
(function () { console.log(arguments, [arguments]); })(1, "two"); (function () { console.log(arguments); })();
//// global things
console.log(Math, JSON, Reflect, Symbol, globalThis === global);
//// symbols as keys
console.log({ [Symbol("a b")]: 1, [Symbol()]: 2, [Symbol.for("reg")]: 3 });
//// iterators of generators
function* gen() { yield 1; } console.log(gen(), (async function* () {})());
//// nested arrays
console.log([[1, 2], [3, 4]], [[[]]], [[[[]]]], [[[{}]]], [[[[1]]]]);
//// matrix
console.log(Array.from({ length: 8 }, (_, i) => Array.from({ length: 8 }, (_, j) => i * j)));
//// long numbers list
console.log([1234567, 2345678, 3456789, 4567890, 5678901, 6789012, 7890123, 8901234, 9012345]);
//// numbers with decimals
console.log([1.5, 2.25, 3.125, 4, 5, 6, 7, 8.8, 9.99, 10.1]);
//// bigints in list
console.log([1n, 22n, 333n, 4444n, 5n, 6n, 7n]);
//// many short strings
console.log("the quick brown fox jumps over the lazy dog and runs away from it".split(" "));
//// characters
console.log([..."abcdefghijklmnopqrstuvwxyz"]);
//// booleans
console.log(Array(20).fill(true), Array(30).fill(null), Array(10).fill(undefined));
//// three levels on one line
console.log({ a: { b: { c: {} } } }, { a: { b: { c: { } }, d: [1, 2] } }, { x: [{ y: { } }] });
//// compact 3
console.log({ a: { b: { c: 1 } }, d: { e: { f: [1, 2, 3] } }, g: "text", h: [{ i: { j: 1 } }] });
//// response like
console.log({ status: 200, data: { users: [{ id: 1, name: "Alice", email: "alice@example.com", roles: ["admin", "user"] }, { id: 2, name: "Bob", email: "bob@example.com", roles: [] }], total: 2 }, headers: { "content-type": "application/json" } });
//// custom inspect
const inspectSymbol = Symbol.for("nodejs.util.inspect.custom"); console.log({ [inspectSymbol]() { return "CUSTOM"; } }, [{ [inspectSymbol]() { return { a: 1 }; } }], { x: { [inspectSymbol](depth, options) { return `d${depth} ${typeof options.stylize}`; } } });
//// custom inspect with lines
console.log({ x: { [Symbol.for("nodejs.util.inspect.custom")]() { return "one\ntwo"; } } });
//// format specifiers
console.log("%s is %d years and %i, %f, %j %o %O %%", "Bob", 42.5, 42.9, "3.5x", { a: 1 }, [1], { b: { c: {} } }, "extra", { x: 1 });
//// format odd
console.log("%s", null, undefined, 5n, Symbol("s"), -0); console.log("%d", "0x10", "abc", 5n, {}, Symbol("q")); console.log("100%", "a"); console.log("%", 1); console.log("%x", 1); console.log("%s"); console.log("a%sb%sc", 1); console.log("%i %f", "12.9abc", "1e3");
//// format %s with objects
class HasText { toString() { return "text of it"; } } console.log("%s %s %s %s %s", new HasText(), { a: { b: 1 } }, [1, [2, [3]]], new Date(0), new Error("err").message, () => 1);
//// format %o of function
console.log("%o", { f: 1, g: [1, 2, { h: 3 }] });
//// format %c
console.log("%cstyled", "color: red", "x");
//// first argument not a string
console.log(5, "%s", "x"); console.log({ a: 1 }, "%d", 3);
//// util.inspect options
const util = require("util"); console.log(util.inspect({ a: { b: { c: { d: 1 } } } }, { depth: 0 }), util.inspect({ a: { b: { c: { d: { e: 1 } } } } }, { depth: null }), util.inspect({ a: 1, b: [1, 2] }, { compact: false }), util.inspect({ a: { b: 1 }, c: 2 }, { compact: true }), util.inspect([3, 1, 2], { maxArrayLength: 1 }), util.inspect("x".repeat(20), { maxStringLength: 5 }), util.inspect({ b: 1, a: 2 }, { sorted: true }));
//// util.inspect hidden
const util2 = require("util"); console.log(util2.inspect([1], { showHidden: true }), util2.inspect(Object.defineProperty({}, "h", { value: 1 }), { showHidden: true }), util2.inspect({ get a() { return 5; } }, { getters: true }), util2.inspect(new Proxy({ a: 1 }, {}), { showProxy: true }), util2.inspect(1234567.89, { numericSeparator: true }), util2.inspect(123456789, { numericSeparator: true }));
//// util.inspect breakLength
const util3 = require("util"); console.log(util3.inspect({ a: "x".repeat(30), b: "y".repeat(30), c: 3 }, { breakLength: 40 }), util3.inspect({ a: "x".repeat(30), b: "y".repeat(30), c: 3 }, { breakLength: Infinity }), util3.inspect({ a: "x".repeat(40), b: "y".repeat(40), c: { d: 1 } }));
//// util.inspect colors
const util4 = require("util"); console.log(JSON.stringify(util4.inspect({ a: 1, b: "x", c: null, d: undefined, e: true, f: Symbol("s"), g: 5n, h: [new Date(0), /x/], i() {} }, { colors: true })));
//// class with static and symbol
class K { static a = 1; static [Symbol("t")] = 2; static m() {} } console.log(K, { K });
//// object with method
console.log({ method() {}, arrow: () => {}, async am() {}, *gm() {}, get x() { return 1; }, ["computed" + 1]() {} });
//// undefined values
console.log({ a: undefined, b: null }, [undefined, , null]);
//// nested map
console.log(new Map([["outer", new Map([["inner", new Map([["deep", new Map([["deeper", 1]])]])]])]]));
//// set of arrays
console.log(new Set([[1, 2], [3, 4]]), new Set(["a", "b"]), [new Set([1])], { s: new Set() });
//// long key value
console.log({ description: "A fairly long description of something that goes past the limit of a line", short: 1 });
//// url-like strings
console.log({ url: "https://example.com/path?query=1&other=2#hash", list: ["https://example.com/1", "https://example.com/2"] });
//// deep arrays of objects
console.log({ list: [{ a: { b: { c: 1 } } }, [[["x"]]]] });
//// console.dir
console.dir({ a: { b: { c: { d: { e: 1 } } } } }, { depth: 0 }); console.dir([1, "x"]); console.dir({ a: { b: { c: { d: { e: 1 } } } } }, { depth: null });
//// console group
console.group("G1"); console.log("in\nside"); console.group(); console.warn("deep"); console.groupEnd(); console.log({ a: 1, b: "x".repeat(80) }); console.groupEnd(); console.groupEnd(); console.log("out");
//// console count
console.count(); console.count("x"); console.count(); console.countReset(); console.count(); console.count(undefined); console.count(null);
//// console assert
console.assert(true, "no"); console.assert(false, "yes %s", 1); console.assert(false); console.assert(0, { a: 1 }); console.assert(false, "a", "b");
//// console levels
console.info("i"); console.debug("d"); console.warn("w"); console.error("e"); console.log(); console.error();
//// console empty and undefined
console.log(undefined); console.log(""); console.log(" "); console.log(null, undefined); console.log("a\nb", "c");
