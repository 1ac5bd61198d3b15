//// from and toString
for (const e of ["utf8", "hex", "base64", "base64url", "latin1", "ascii", "utf16le", "binary", "ucs2"]) console.log(e, Buffer.from("héllo€", "utf8").toString(e), Buffer.from("68656c6c6f", e).length);
//// from many things
console.log(Buffer.from([1, 2, 300, -1, "5", 1.9]), Buffer.from("abc"), Buffer.from(new Uint8Array([9, 8])), Buffer.from(new ArrayBuffer(4), 1, 2), Buffer.from(Buffer.from("x")), Buffer.from({ type: "Buffer", data: [1, 2] }), Buffer.from(new String("boxed")), Buffer.from({ length: 2, 0: 5, 1: 6 }), Buffer.from(new Uint16Array([258, 1])));
//// from errors
for (const v of [5, null, undefined, {}, Symbol("x"), () => 1, true]) { try { console.log(Buffer.from(v)); } catch (e) { console.log(e.name, e.code, e.message); } } try { Buffer.from("x", "nope"); } catch (e) { console.log(e.code, e.message); }
//// alloc
console.log(Buffer.alloc(3), Buffer.alloc(5, "ab"), Buffer.alloc(3, 1), Buffer.alloc(4, "YQ==", "base64"), Buffer.allocUnsafe(2).length); for (const v of [-1, "x", NaN, 1e20]) { try { Buffer.alloc(v); } catch (e) { console.log(e.name, e.code, e.message); } }
//// concat and lengths
console.log(Buffer.concat([Buffer.from("a"), Buffer.from("bc")]), Buffer.concat([Buffer.from("abc")], 2), Buffer.concat([Buffer.from("a")], 3), Buffer.byteLength("héllo"), Buffer.byteLength("YWJj", "base64"), Buffer.byteLength("ab", "hex"), Buffer.byteLength(new ArrayBuffer(3)), Buffer.isBuffer(Buffer.alloc(1)), Buffer.isBuffer(new Uint8Array(1)), Buffer.isEncoding("UTF-8"), Buffer.isEncoding("x"));
//// slices share memory
const b = Buffer.from("hello"); const s = b.slice(1, 3); s[0] = 65; console.log(b.toString(), s, b.subarray(-2), b.slice(-3, -1).toString(), b.slice(9), s instanceof Buffer, b.subarray(1) instanceof Buffer, b.buffer instanceof ArrayBuffer);
//// compare and equals
console.log(Buffer.compare(Buffer.from("a"), Buffer.from("b")), Buffer.from("b").compare(Buffer.from("a")), Buffer.from("a").equals(Buffer.from("a")), Buffer.from("ab").equals(new Uint8Array([97, 98])), [Buffer.from("c"), Buffer.from("a")].sort(Buffer.compare)); try { Buffer.from("a").equals("a"); } catch (e) { console.log(e.code, e.message); }
//// search
const q = Buffer.from("this is a buffer is"); console.log(q.indexOf("is"), q.indexOf("is", 3), q.lastIndexOf("is"), q.indexOf(Buffer.from("buf")), q.indexOf(97), q.includes("zz"), q.indexOf(""), q.indexOf("is", -4), q.lastIndexOf("is", 10), q.indexOf("6973", "hex"), q.includes("a", 9), q.indexOf("x", 100));
//// integers
const n = Buffer.alloc(8); console.log(n.writeUInt8(255, 0), n.writeInt8(-2, 1), n.writeUInt16BE(0x1234, 2), n.writeInt32LE(-5, 4), n, n.readUInt8(0), n.readInt8(1), n.readUInt16BE(2), n.readUInt16LE(2), n.readInt32LE(4), n.readUInt32BE(4), n.readUint8(0));
//// big integers and floats
const f = Buffer.alloc(16); f.writeBigInt64LE(-123456789012345n, 0); f.writeBigUInt64BE(0xffn, 8); console.log(f, f.readBigInt64LE(0), f.readBigUInt64BE(8)); f.writeDoubleBE(1.5, 0); f.writeFloatLE(2.25, 8); console.log(f.readDoubleBE(0), f.readFloatLE(8), f);
//// variable lengths
const v = Buffer.alloc(6); v.writeUIntBE(0x123456789abc, 0, 6); console.log(v, v.readUIntBE(0, 6), v.readUIntLE(0, 3), v.readIntBE(3, 3)); v.writeIntLE(-300, 0, 3); console.log(v, v.readIntLE(0, 3));
//// number errors
const z = Buffer.alloc(4); for (const g of [() => z.readUInt8(4), () => z.readUInt32LE(1), () => z.writeUInt8(256), () => z.writeInt8(-129), () => z.readUInt8("1"), () => z.readUInt8(1.5), () => z.writeUInt32BE(2 ** 32), () => Buffer.alloc(1).readUInt16LE(0), () => z.readUIntBE(0, 7), () => Buffer.alloc(8).writeBigInt64LE(2n ** 64n)]) { try { g(); console.log("ok"); } catch (e) { console.log(e.name, e.code, e.message); } }
//// write
const w = Buffer.alloc(8); console.log(w.write("abc"), w.write("xy", 3), w.write("ffff", 5, "hex"), w.write("longer than it", 6), w, w.write("é€", 0, 2), w.write("zz", 1, 1, "latin1"), w);
//// fill and copy
const c = Buffer.alloc(6); console.log(c.fill("ab"), c.fill(1, 2, 4), c.fill("é"), c.fill(0), Buffer.from("hello").copy(c, 1, 1, 4), c);
//// json and iteration
console.log(JSON.stringify(Buffer.from("hi")), [...Buffer.from("ab").entries()], [...Buffer.from("ab")], Buffer.from("abc").toJSON(), Buffer.from("abc").map((x) => x + 1), Buffer.from("abc").reverse().toString(), Buffer.from("abc").at(-1));
//// swap
console.log(Buffer.from([1, 2, 3, 4]).swap16(), Buffer.from([1, 2, 3, 4]).swap32(), Buffer.from([1, 2, 3, 4, 5, 6, 7, 8]).swap64()); try { Buffer.alloc(3).swap16(); } catch (e) { console.log(e.code, e.message); }
//// inspection
console.log(Buffer.alloc(60, 7), [Buffer.from("x")], { b: Buffer.alloc(0) }); const ex = Buffer.from("ab"); ex.foo = 1; console.log(ex);
//// base64 odd
console.log(Buffer.from("YWJj\nZGVm", "base64").toString(), Buffer.from("YW-_", "base64"), Buffer.from("YQ", "base64").toString(), Buffer.from("Y", "base64"), Buffer.from("a===b", "base64"), Buffer.from("zz", "hex"), Buffer.from("abc", "hex"), Buffer.from("\u0141", "latin1"), Buffer.from("é", "ascii"), Buffer.from([0xe9]).toString("ascii"));
//// toString ranges
const r = Buffer.from("hello world"); console.log(r.toString("utf8", 0, 5), r.toString("utf8", 6), r.toString(undefined, 2, 4), r.toString("hex", 0, 2), r.toString("utf8", 5, 2), r.toString("utf8", -3, 4));
//// malformed utf-8
console.log(JSON.stringify(Buffer.from([0xff, 65, 0xe2, 0x82]).toString()), Buffer.from("\ud800").toString("hex"));
//// module
const bm = require("buffer"); console.log(bm.Buffer === Buffer, typeof bm.constants.MAX_LENGTH, bm.isUtf8(Buffer.from("é")), bm.isAscii(Buffer.from("é")), bm.transcode(Buffer.from("é"), "utf8", "latin1"));
//// deprecated forms
console.log(new Buffer.from("a"), Buffer.of(1, 2), Buffer.copyBytesFrom(new Uint16Array([1, 2]), 1));
