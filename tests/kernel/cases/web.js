//// URL parts
const u = new URL("https://user:pa%20ss@sub.Example.COM:8080/p/a/t/h/../x?query=string&a=1#hash"); console.log(u.href, u.origin, u.protocol, u.username, u.password, u.host, u.hostname, u.port, u.pathname, u.search, u.hash); console.log(u);
//// URL relative
for (const [i, b] of [["../x", "http://a/b/c/d"], ["?q", "http://a/b/c"], ["#h", "http://a/b?x"], ["//h/p", "https://a/b"], ["/abs", "http://a/b/c"], ["", "http://a/b?c#d"], [".", "http://a/b/c"], ["..", "http://a/b/c/d"], ["http:x", "http://a/b/c"], ["a/./b/../c", "http://h/"], ["\\x\\y", "http://h/a"], ["mailto:x@y", "http://h"]]) console.log(new URL(i, b).href);
//// URL special cases
for (const i of ["http://EXAMPLE.com:80/", "https://x:443", "http://x:0080/", "http://[::1]:3000/", "http://[2001:DB8::0:1]/", "http://192.168.0.1/", "http://0x7f.1/", "http://256/", "file:///C:/a/../b", "file://host/p", "data:text/plain,hi there", "javascript:alert(1)", "blob:https://a.com/x", "http://a b@c/", "http://x/ä?ö#ü", "http://x/%zz", "http://x/a b?c d#e f", "  http://x/ ", "http://x\t/y\n", "HTTP://X/Y", "foo://Bar/baz", "foo:bar", "http://x?", "http://x#", "http://x/?#", "ws://x:80", "http://münchen.de/", "http://日本.jp/", "http://x/'\"<>`{}|", "http://faß.de", "http://a.b.c.", "http://x/a//b", "http://x/../..", "http://x/%2e%2e/a", "non-special://h/../a", "http://u@h", "http://:p@h", "http://h:65535", "http://1.2.3", "http://0/"]) { try { console.log(i.trim(), "→", new URL(i).href, new URL(i).origin); } catch (e) { console.log(i, e.code); } }
//// URL invalid
for (const i of ["", "x", "http://", "http://a:b/", "http://a:99999/", "//x", "http://[::1", "http://a b/", "http://1.2.3.256/", "http://x:-1", "http://%00/", "http://a^b/"]) { try { console.log(new URL(i).href); } catch (e) { console.log(e.name, e.code, e.message, e.input); } }
//// URL setters
const v = new URL("http://a.com/x"); v.protocol = "https"; v.host = "b.com:81"; v.pathname = "y z?"; v.search = "q=1 2"; v.hash = "h h"; v.username = "u@"; v.password = "p:"; console.log(v.href); v.port = ""; v.search = ""; v.hash = ""; v.hostname = "c.org"; console.log(v.href); v.port = "443"; console.log(v.href); v.port = "70000"; v.port = "x"; v.host = ""; console.log(v.href); v.href = "http://new/"; console.log(v.href); try { v.href = "bad"; } catch (e) { console.log(e.code); }
//// URL search params live
const w = new URL("http://x/?a=1&b=2"); w.searchParams.append("c", "3 4"); w.searchParams.delete("a"); console.log(w.href, w.search); w.search = "?z=9"; console.log([...w.searchParams], w.searchParams.get("z")); w.searchParams.delete("z"); console.log(w.href);
//// URL statics and json
console.log(URL.canParse("http://x"), URL.canParse("x"), URL.canParse("x", "http://y"), JSON.stringify({ u: new URL("http://x/y") }), String(new URL("http://q")), `${new URL("a", "http://b")}`);
//// URLSearchParams from things
console.log(new URLSearchParams("?a=1&b=2&a=3").getAll("a"), new URLSearchParams({ x: 1, y: "z w" }).toString(), new URLSearchParams([["a", "b"], ["c", "d&e=f"]]).toString(), new URLSearchParams(new Map([["m", 1]])).toString(), new URLSearchParams("a=b%20c+d&e&=f&%zz=1&ü=ä").toString());
//// URLSearchParams methods
const p = new URLSearchParams("b=2&a=1&b=3"); p.sort(); console.log(p.toString(), p.size, p.has("a"), p.has("b", "3"), p.get("none")); p.set("b", "9"); console.log(`${p}`); p.delete("b", "9"); p.forEach((v, k) => console.log(k, v)); console.log([...p.keys()], [...p.values()], [...p.entries()], p); console.log(new URLSearchParams("x=1&y=2"), new URLSearchParams());
//// URLSearchParams errors
try { new URLSearchParams([["a"]]); } catch (e) { console.log(e.code, e.message); } try { new URLSearchParams().get(); } catch (e) { console.log(e.code, e.message); }
//// form encoding
console.log(new URLSearchParams({ t: "a b+c*d~e!f'g(h)i-j_k.l/m?n&o=p%q\u20ac\ud83d" }).toString());
//// TextEncoder
const te = new TextEncoder(); console.log(te.encode("héllo €😀"), te.encoding, te.encode(), te.encode("\ud800x"), te.encodeInto("a€b", new Uint8Array(3)));
//// TextDecoder
const td = new TextDecoder(); console.log(td.decode(new Uint8Array([104, 105])), td.decode(new Uint8Array([0xef, 0xbb, 0xbf, 65])), td.encoding, td.fatal, td.decode(), new TextDecoder("utf-16le").decode(new Uint8Array([104, 0, 61, 216, 0, 222])), new TextDecoder("latin1").encoding, new TextDecoder("latin1").decode(new Uint8Array([233, 65])));
//// TextDecoder malformed
const bad = [[0xff], [0xc0, 0x80], [0xe2, 0x82], [0xf0, 0x9f, 0x98], [0xed, 0xa0, 0x80], [0x80, 65], [0xe2, 65, 66], [0xf4, 0x90, 0x80, 0x80]]; for (const b of bad) console.log(JSON.stringify(new TextDecoder().decode(new Uint8Array(b)))); try { new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array([255])); } catch (e) { console.log(e.name, e.code); } try { new TextDecoder("nope"); } catch (e) { console.log(e.name, e.code, e.message); }
//// TextDecoder stream
const ts = new TextDecoder(); console.log([ts.decode(new Uint8Array([0xe2]), { stream: true }), ts.decode(new Uint8Array([0x82, 0xac, 0xf0]), { stream: true }), ts.decode(new Uint8Array([0x9f, 0x98, 0x80]), { stream: true }), ts.decode()]);
//// TextDecoder views
console.log(new TextDecoder().decode(new DataView(new Uint8Array([97, 98, 99]).buffer, 1)), new TextDecoder().decode(new Uint8Array([97, 98]).buffer), new TextDecoder("UTF8").encoding);
//// atob and btoa
console.log(btoa("hello\xff"), atob("aGVsbG8="), atob(" aGVs bG8 "), btoa(""), atob("")); for (const x of ["a", "a=", "ab=c", "a*b="]) { try { console.log(atob(x)); } catch (e) { console.log(e.name, e.message); } } try { btoa("€"); } catch (e) { console.log(e.name, e.code); }
//// structuredClone
const o = { a: 1, d: new Date(5), r: /x/gi, m: new Map([[1, { z: 1 }]]), s: new Set([1, "2"]), u: new Uint8Array([1, 2]), n: null, un: undefined, b: 10n, arr: [1, , 3], nested: { deep: { er: true } }, f: new Float64Array([1.5]), box: new Number(3) }; o.self = o; const c = structuredClone(o); console.log(c, c !== o, c.self === c, c.m.get(1) !== o.m.get(1));
//// structuredClone of errors
const er = structuredClone(new TypeError("msg", { cause: { a: 1 } })); console.log(er instanceof TypeError, er.message, er.cause, er.name);
//// structuredClone refuses
for (const x of [() => 1, Symbol("s"), { f() {} }, Promise.resolve(), new WeakMap()]) { try { structuredClone(x); console.log("ok?"); } catch (e) { console.log(e.name, e.code, e instanceof DOMException); } }
//// structuredClone transfer
const ab = new ArrayBuffer(8); const moved = structuredClone({ ab }, { transfer: [ab] }); console.log(ab.byteLength, moved.ab.byteLength); const shared = new Uint8Array(4); const two = structuredClone([shared, shared]); console.log(two[0] === two[1], structuredClone({ a: shared.subarray(1, 3) }).a);
//// structuredClone of classes and getters
class P { constructor() { this.x = 1; } get y() { return 2; } m() {} } console.log(structuredClone(new P()), structuredClone({ get g() { return 5; } }), structuredClone(Object.create({ inherited: 1 })), structuredClone([1, 2]).constructor === Array);
//// events
const t = new EventTarget(); const log = []; t.addEventListener("x", (e) => log.push(["a", e.type, e.target === t, e.cancelable])); t.addEventListener("x", { handleEvent(e) { log.push(["b", this !== t]); } }); const once = () => log.push("once"); t.addEventListener("x", once, { once: true }); t.addEventListener("x", once, { once: true }); console.log(t.dispatchEvent(new Event("x", { cancelable: true })), t.dispatchEvent(new Event("x"))); console.log(log);
//// preventDefault and stop
const t2 = new EventTarget(); t2.addEventListener("x", (e) => { e.preventDefault(); e.stopImmediatePropagation(); }); t2.addEventListener("x", () => console.log("never")); const ev = new Event("x", { cancelable: true }); console.log(t2.dispatchEvent(ev), ev.defaultPrevented); console.log(new CustomEvent("c", { detail: { a: 1 } }).detail);
//// remove listener
const t3 = new EventTarget(); const h = () => console.log("no"); t3.addEventListener("x", h); t3.removeEventListener("x", h); t3.dispatchEvent(new Event("x")); const sig = new AbortController(); t3.addEventListener("y", () => console.log("no"), { signal: sig.signal }); sig.abort(); t3.dispatchEvent(new Event("y")); console.log("done");
//// abort
const ac = new AbortController(); ac.signal.addEventListener("abort", (e) => console.log("ev", e.type)); ac.signal.onabort = () => console.log("on"); console.log(ac.signal.aborted); ac.abort(); ac.abort("again"); console.log(ac.signal.aborted, ac.signal.reason.name, ac.signal.reason.message, ac.signal.reason.code); try { ac.signal.throwIfAborted(); } catch (e) { console.log(e.name); }
//// abort statics
console.log(AbortSignal.abort("why").reason, AbortSignal.abort().reason.name); const a1 = new AbortController(); const any = AbortSignal.any([a1.signal, AbortSignal.timeout(10000)]); any.addEventListener("abort", () => console.log("any", any.reason)); a1.abort("r"); try { new AbortSignal(); } catch (e) { console.log(e.name); } console.log(a1, a1.signal);
//// abort timeout
setTimeout(() => {}, 100); const at = AbortSignal.timeout(5); await new Promise((r) => at.addEventListener("abort", r)); await new Promise((r) => setTimeout(r, 1)); console.log(at.reason.name, at.aborted);
//// crypto
console.log(crypto.randomUUID().length, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()), crypto.getRandomValues(new Uint8Array(4)).length); for (const alg of ["SHA-1", "SHA-256", "SHA-384", "SHA-512"]) console.log(Buffer.from(await crypto.subtle.digest(alg, new TextEncoder().encode("abc"))).toString("hex")); try { await crypto.subtle.digest("MD5", new Uint8Array(1)); } catch (e) { console.log(e.name); } try { crypto.getRandomValues(new Float32Array(1)); } catch (e) { console.log(e.name); } try { crypto.getRandomValues(new Uint8Array(65537)); } catch (e) { console.log(e.name); }
//// crypto hmac
const key = await crypto.subtle.importKey("raw", new TextEncoder().encode("key"), { name: "HMAC", hash: "SHA-256" }, false, ["sign", "verify"]); const sg = await crypto.subtle.sign("HMAC", key, new TextEncoder().encode("data")); console.log(Buffer.from(sg).toString("hex"), await crypto.subtle.verify("HMAC", key, sg, new TextEncoder().encode("data")), key.type, key.extractable, key.usages);
//// performance
const start = performance.now(); console.log(typeof start, performance.now() >= start, performance.timeOrigin > 1e12);
//// Headers
const hd = new Headers({ "Content-Type": "a/b", "X-One": "1" }); hd.append("x-one", "2"); hd.append("Set-Cookie", "a=1"); hd.append("set-cookie", "b=2"); console.log(hd.get("X-ONE"), hd.get("nope"), hd.has("content-type"), [...hd], hd.getSetCookie()); hd.delete("x-one"); hd.set("A", " v "); hd.forEach((v, k) => console.log(k, v)); console.log([...new Headers([["q", "1"]]).keys()], [...new Headers(hd).values()]);
//// Headers errors
for (const f of [() => new Headers({ "a b": "1" }), () => new Headers().set("a", "x\ny"), () => new Headers([["a"]]), () => new Headers(null)]) { try { f(); console.log("ok"); } catch (e) { console.log(e.name); } }
//// Request
const rq = new Request("http://x.com/a", { method: "post", body: JSON.stringify({ a: 1 }), headers: { "content-type": "application/json" } }); console.log(rq.method, rq.url, rq.headers.get("content-type"), rq.bodyUsed, await rq.json(), rq.bodyUsed); for (const f of [() => new Request("bad"), () => new Request("http://x", { method: "GET", body: "x" }), () => new Request("http://u:p@x"), () => new Request("http://x", { method: "TRACE" })]) { try { f(); console.log("ok"); } catch (e) { console.log(e.name); } }
//// Request body types
for (const b of ["text", new URLSearchParams("a=1"), new Blob(["x"], { type: "t/x" }), new Uint8Array([1]), new FormData()]) console.log(new Request("http://x", { method: "POST", body: b }).headers.get("content-type")?.replace(/boundary=.*/, "boundary"));
//// Response
const rs = new Response("héllo", { status: 201, statusText: "Made", headers: { a: "b" } }); console.log(rs.status, rs.ok, rs.statusText, rs.headers.get("content-type"), rs.type, rs.url, rs.redirected, await rs.clone().text(), (await rs.arrayBuffer()).byteLength, rs.bodyUsed); try { await rs.text(); } catch (e) { console.log(e.name); } const js = Response.json({ a: [1] }, { status: 202 }); console.log(js.headers.get("content-type"), js.status, await js.json()); console.log(Response.error().type, Response.redirect("http://a/b", 301).headers.get("location")); try { new Response("x", { status: 204 }); } catch (e) { console.log(e.name); } try { new Response("", { status: 99 }); } catch (e) { console.log(e.name); } console.log(await new Response().text(), new Response().body, (await new Response(new Blob(["q"], { type: "a/b" })).blob()).type);
//// Response bad json
try { await new Response("{bad").json(); } catch (e) { console.log(e.name); } console.log(await new Response(new Uint8Array([0xef, 0xbb, 0xbf, 65])).text());
//// Blob
const bl = new Blob(["abc", new Uint8Array([100]), new Blob(["e"])], { type: "Text/Plain" }); console.log(bl.size, bl.type, await bl.text(), await bl.slice(1, 3).text(), await bl.slice(-2).text(), bl.slice(0, 1, "x/y").type, bl); console.log((await bl.arrayBuffer()).byteLength); const parts = []; for await (const c of bl.stream()) parts.push(...c); console.log(parts); const fl = new File(["x"], "n.txt", { type: "a/b", lastModified: 5 }); console.log(fl.name, fl.size, fl.lastModified, fl instanceof Blob);
//// FormData
const fd = new FormData(); fd.append("a", "1"); fd.append("a", 2); fd.set("b", new Blob(["x"], { type: "t/t" }), "f.txt"); console.log(fd.get("a"), fd.getAll("a"), fd.has("b"), fd.get("b").name, [...fd.keys()]); fd.delete("a"); console.log([...fd].length); const back = await new Response(fd).formData(); console.log(back.get("b").name, back.get("b").type, await back.get("b").text()); console.log((await new Response(new URLSearchParams("q=1&w=2")).formData()).get("w"));
//// ReadableStream
const st = new ReadableStream({ start(c) { c.enqueue(1); c.enqueue(2); c.close(); } }); const rd = st.getReader(); console.log(st.locked, await rd.read(), await rd.read(), await rd.read()); try { st.getReader(); } catch (e) { console.log(e.name); } rd.releaseLock(); console.log(st.locked);
//// ReadableStream iteration
let i = 0; for await (const v of new ReadableStream({ pull(c) { c.enqueue(i++); if (i === 4) c.close(); } })) console.log(v); let cancelled; const cs = new ReadableStream({ pull(c) { c.enqueue("x"); }, cancel(r) { cancelled = r; } }); for await (const v of cs) break; console.log(cancelled, cs.locked); const es = new ReadableStream({ start(c) { c.error(new Error("bad")); } }); try { for await (const v of es); } catch (e) { console.log(e.message); }
//// ReadableStream tee and from
const [x1, x2] = new ReadableStream({ start(c) { c.enqueue("a"); c.enqueue("b"); c.close(); } }).tee(); const all = async (s) => { const o = []; for await (const v of s) o.push(v); return o; }; console.log(await all(x1), await all(x2), await all(ReadableStream.from(["p", "q"])), await all(ReadableStream.from((async function* () { yield 1; yield 2; })())));
//// pipes
const up = new TransformStream({ transform(c, k) { k.enqueue(c.toUpperCase()); }, flush(k) { k.enqueue("!"); } }); const got = []; await ReadableStream.from(["a", "b"]).pipeThrough(up).pipeTo(new WritableStream({ write(c) { got.push(c); }, close() { got.push("end"); } })); console.log(got); const dec = []; for await (const v of new Blob(["héé"]).stream().pipeThrough(new TextDecoderStream())) dec.push(v); console.log(dec);
//// stream of a response
const rst = new Response(new ReadableStream({ start(c) { c.enqueue(new TextEncoder().encode("one ")); c.enqueue(new TextEncoder().encode("two")); c.close(); } })); console.log(await rst.text()); const bb = new Response("abc").body; console.log(bb instanceof ReadableStream, await new Response(bb).text());
//// fetch of data
const fr = await fetch("data:text/plain;base64,aGVsbG8="); console.log(fr.status, await fr.text(), fr.headers.get("content-type")); console.log(await (await fetch("data:application/json,{\"a\":1}")).json());
//// fetch refused
try { await fetch("not a url"); } catch (e) { console.log(e.name, e.message); } try { await fetch("http://x/", { signal: AbortSignal.abort("stop") }); } catch (e) { console.log(e); }
//// toString tags
console.log([new URL("http://x"), new URLSearchParams(), new Headers(), new AbortController(), new TextEncoder(), new Blob([]), new FormData(), new Response(), new Request("http://x"), new ReadableStream(), crypto, new Event("x")].map((x) => Object.prototype.toString.call(x)).join(" "));
//// DOMException
const de = new DOMException("m", "AbortError"); console.log(de.name, de.message, de.code, de instanceof Error, String(de), DOMException.ABORT_ERR); console.log(typeof structuredClone, typeof queueMicrotask, typeof atob);
//// arguments that are not there
for (const call of [() => btoa(), () => atob(), () => URL.parse()]) { try { console.log(call()); } catch (e) { console.log(e.name, e.message); } }
//// parameters that change while they are read
const p = new URLSearchParams("a=1&b=2&c=3"); p.forEach((v, k) => { console.log(k, v); if (k === "a") p.delete("b"); if (k === "c" && !p.has("d")) p.append("d", "4"); }); const u = new URL("http://x/?a=1&b=2"); u.searchParams.forEach((v, k) => { console.log(k, v); u.search = "?y=1&z=2"; });
//// cookies in one line
const h = new Headers([["cookie", "a=1"], ["cookie", "b=2"], ["x", "1"], ["x", "2"]]); console.log(h.get("cookie"), h.get("x"), [...h]);
