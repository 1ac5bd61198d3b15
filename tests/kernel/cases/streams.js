//// readable by data
const { Readable } = require("stream"); const r = Readable.from(["a", "b", "c"]); r.on("data", (d) => console.log("data", d)); r.on("end", () => console.log("end")); r.on("close", () => console.log("close"));
//// readable by iteration
const { Readable } = require("stream"); for await (const x of Readable.from([1, 2, 3])) console.log(x); for await (const x of Readable.from(Buffer.from("hello"))) console.log(x.toString()); for await (const x of new Readable({ read() { this.push("x"); this.push("y"); this.push(null); } })) console.log(x.toString());
//// readable push
const { Readable } = require("stream"); const r = new Readable({ read() {} }); r.setEncoding("utf8"); r.push("one"); r.push(Buffer.from([0xe2, 0x82])); r.push(Buffer.from([0xac])); r.push(null); let t = ""; for await (const c of r) t += c; console.log(t);
//// writable
const { Writable } = require("stream"); const got = []; const w = new Writable({ write(c, e, done) { got.push(c.toString()); setTimeout(done, 1); }, final(done) { got.push("final"); done(); } }); w.on("finish", () => console.log("finish", got)); w.write("a", () => console.log("written a")); w.write(Buffer.from("b")); w.end("c");
//// writable objects and errors
const { Writable } = require("stream"); const w = new Writable({ objectMode: true, write(c, e, done) { done(c.bad ? new Error("bad chunk") : null); } }); w.on("error", (e) => console.log("error", e.message)); w.on("close", () => console.log("close")); w.write({ ok: 1 }); w.write({ bad: 1 });
//// write after end
const { Writable } = require("stream"); const w = new Writable({ write(c, e, done) { done(); } }); w.on("error", (e) => console.log(e.code)); w.end(); w.write("x");
//// transform
const { Transform, PassThrough } = require("stream"); const up = new Transform({ transform(c, e, done) { done(null, c.toString().toUpperCase()); }, flush(done) { done(null, "!"); } }); up.on("data", (d) => console.log(d.toString())); up.on("end", () => console.log("end")); up.write("a"); up.write("b"); up.end(); const pt = new PassThrough(); pt.end("through"); for await (const x of pt) console.log(x.toString());
//// pipe
const { Readable, Writable } = require("stream"); Readable.from(["x", "y"]).pipe(new Writable({ objectMode: true, write(c, e, d) { console.log("got", c); d(); } })).on("finish", () => console.log("done"));
//// pipeline
const { pipeline } = require("stream/promises"); const { Readable, Transform, Writable } = require("stream"); const out = []; await pipeline(Readable.from(["a", "b"]), new Transform({ objectMode: true, transform(c, e, d) { d(null, c + c); } }), new Writable({ objectMode: true, write(c, e, d) { out.push(c); d(); } })); console.log(out); await pipeline(Readable.from([1, 2]), async function* (src) { for await (const x of src) yield x * 10; }, async (src) => { for await (const x of src) console.log(x); }); try { await pipeline(Readable.from(["q"]), new Transform({ transform(c, e, d) { d(new Error("broken")); } }), new Writable({ write(c, e, d) { d(); } })); } catch (e) { console.log(e.message); }
//// pipeline with a callback
const { pipeline, Readable, PassThrough } = require("stream"); const p = new PassThrough({ objectMode: true }); p.resume(); pipeline(Readable.from(["a"]), p, (e) => console.log("cb", e));
//// consumers and finished
const c = require("stream/consumers"), { Readable, finished } = require("stream"); console.log(await c.text(Readable.from(["a", "b"])), await c.json(Readable.from(['{"x":', "1}"])), await c.buffer(Readable.from([Buffer.from("z")]))); const r = Readable.from(["x"]); finished(r, (e) => console.log("finished", e)); r.resume();
//// helpers
const { Readable } = require("stream"); console.log(await Readable.from([1, 2, 3]).map((x) => x * 2).toArray(), await Readable.from([1, 2, 3]).filter((x) => x > 1).toArray()); await Readable.from([5]).forEach((x) => console.log(x));
//// readable event
const { Readable } = require("stream"); const r = Readable.from(["a", "b"]); r.on("readable", () => { let c; while ((c = r.read()) !== null) console.log("read", c); }); r.on("end", () => console.log("end"));
//// destroy
const { Readable } = require("stream"); const r = new Readable({ read() {} }); r.on("error", (e) => console.log(e.message)); r.on("close", () => console.log("closed", r.destroyed)); r.destroy(new Error("gone"));
//// string decoder
const { StringDecoder } = require("string_decoder"); const d = new StringDecoder("utf8"); console.log(d.write(Buffer.from([0xe2, 0x82])) === "", d.write(Buffer.from([0xac])), d.end(Buffer.from([0xe2])), new StringDecoder("hex").write(Buffer.from("a")));
//// readline
const rl = require("readline"), { Readable } = require("stream"); for await (const line of rl.createInterface({ input: Readable.from(["one\ntw", "o\r\nthree"]) })) console.log(JSON.stringify(line)); const i = rl.createInterface({ input: Readable.from(["x\ny\n"]) }); i.on("line", (l) => console.log("line", l)); i.on("close", () => console.log("close"));
//// classes
const s = require("stream"); console.log(new s.PassThrough() instanceof s.Readable, s.Stream === s, new s.Readable() instanceof require("events"), typeof s.Duplex);
//// string decoder by characters
const { StringDecoder } = require("string_decoder"); const bytes = Buffer.from([0xe2, 0x98, 0x83, 0xf0, 0x9f, 0x98, 0x80, 0x41]); for (const name of [undefined, null, "UTF-8", "base64", "base64url", "hex", "latin1", "binary", "ascii"]) { const d = new StringDecoder(name); console.log(d.encoding, JSON.stringify([...[...bytes].map((b) => d.write(Buffer.from([b]))), d.end()])); } for (const name of ["utf16le", "UCS2"]) { const d = new StringDecoder(name); const wide = Buffer.from("a\u{1f600}b", "utf16le"); console.log(d.encoding, JSON.stringify([...[...wide].map((b) => d.write(Buffer.from([b]))), d.end(), d.write(wide.subarray(0, 5)), d.end(wide.subarray(5, 7))])); }
//// string decoder refuses
const { StringDecoder } = require("string_decoder"); for (const name of ["utf9", 5]) { try { new StringDecoder(name); } catch (e) { console.log(e.code, e.message); } } for (const bad of [5, null, undefined, []]) { try { new StringDecoder().write(bad); } catch (e) { console.log(e.code, e.message); } } const d = new StringDecoder("base64"); console.log(d.write("text"), d.write(new Uint16Array([1, 2])), d.end(), d.end());
