//// order of kinds
setTimeout(() => console.log("timeout"), 300); setImmediate(() => console.log("immediate")); process.nextTick(() => console.log("tick")); Promise.resolve().then(() => console.log("promise")); queueMicrotask(() => console.log("microtask")); console.log("sync");
//// ticks and promises nested
Promise.resolve().then(() => { console.log("p1"); process.nextTick(() => console.log("t in p")); Promise.resolve().then(() => console.log("p in p")); }); setTimeout(() => { process.nextTick(() => { console.log("t1"); process.nextTick(() => console.log("t2")); Promise.resolve().then(() => console.log("p2")); }); console.log("timeout"); }, 5);
//// timers by time
setTimeout(() => console.log("30"), 30); setTimeout(() => console.log("10"), 10); setTimeout(() => console.log("20"), 20); setTimeout(() => console.log("10b"), 10);
//// same delay keeps order
for (let i = 0; i < 5; i++) setTimeout(() => console.log(i), 3);
//// arguments of timers
setTimeout((...a) => console.log(a), 300, "x", 2, { y: 1 }); setImmediate((...a) => console.log(a), 1, 2); process.nextTick((...a) => console.log(a), "t");
//// clearing
const a = setTimeout(() => console.log("never"), 5); clearTimeout(a); const b = setImmediate(() => console.log("never")); clearImmediate(b); clearTimeout(undefined); clearTimeout(null); clearTimeout(99999); clearTimeout("x"); clearInterval(a); setTimeout(() => console.log("done"), 10);
//// clear by number
const n = +setTimeout(() => console.log("never"), 5); clearTimeout(n); setTimeout(() => console.log("end"), 10);
//// interval
let count = 0; const iv = setInterval(() => { console.log(++count); if (count === 3) clearInterval(iv); }, 2);
//// unref
setTimeout(() => console.log("never"), 5000).unref(); setTimeout(() => console.log("ok"), 5);
//// ref and hasRef
const t0 = setTimeout(() => {}, 1); console.log(t0.hasRef(), t0.unref().hasRef(), t0.ref().hasRef(), typeof t0[Symbol.toPrimitive]());
//// refresh
const t1 = setTimeout(() => console.log("refreshed"), 10); setTimeout(() => { t1.refresh(); setTimeout(() => console.log("between"), 6); }, 5);
//// throw in a timer
setTimeout(() => { throw new TypeError("in timer"); }, 1); setTimeout(() => console.log("never"), 50);
//// not a function
try { setTimeout("code", 1); } catch (e) { console.log(e.name, e.code, e.message); } try { queueMicrotask(5); } catch (e) { console.log(e.code); } try { process.nextTick(); } catch (e) { console.log(e.code); }
//// microtasks between timers
setTimeout(() => { console.log("a"); Promise.resolve().then(() => console.log("a micro")); }, 2); setTimeout(() => console.log("b"), 2);
//// immediates wait for the next turn
setImmediate(() => { console.log("1"); setImmediate(() => console.log("3")); process.nextTick(() => console.log("tick")); }); setImmediate(() => console.log("2"));
//// await ordering
async function f(n) { console.log("start", n); await null; console.log("end", n); } f(1); f(2); await f(3); console.log("after");
//// timers/promises
const { setTimeout: sleep, setImmediate: si, setInterval: every } = require("timers/promises"); console.log(await sleep(2, "v"), await si("w")); let k = 0; for await (const v of every(1, "tick")) { console.log(v); if (++k === 2) break; }
//// aborted sleep
const { setTimeout: sleep2 } = require("timers/promises"); const ac = new AbortController(); const p = sleep2(1000, null, { signal: ac.signal }); ac.abort(); try { await p; } catch (e) { console.log(e.name, e.code, e.message); }
//// promisified setTimeout
const util = require("util"); console.log(await util.promisify(setTimeout)(1, "value"));
//// negative and huge delays
setTimeout(() => console.log("neg"), -5); setTimeout(() => console.log("nan"), "abc"); setTimeout(() => console.log("str"), "3");
//// unhandled rejection
Promise.reject(new RangeError("nobody")); await new Promise((r) => setTimeout(r, 20)); console.log("never");
//// handled later in the same turn
const pr = Promise.reject(new Error("x")); pr.catch((e) => console.log("caught", e.message));
//// rejection of a plain value
process.on("unhandledRejection", (reason) => console.log("handler", reason)); Promise.reject(5); setTimeout(() => console.log("went on"), 5);
//// uncaughtException handler
process.on("uncaughtException", (e) => console.log("got", e.message)); setTimeout(() => { throw new Error("t"); }, 1); setTimeout(() => console.log("still"), 5);
//// timer inside a promise chain
Promise.resolve().then(() => new Promise((r) => setTimeout(() => r("slow"), 3))).then(console.log).finally(() => console.log("fin"));
//// Promise.all with timers
const wait = (ms, v) => new Promise((r) => setTimeout(r, ms, v)); console.log(await Promise.all([wait(6, 1), wait(2, 2), 3]), await Promise.race([wait(9, "s"), wait(1, "f")]), await Promise.allSettled([wait(1, 1), Promise.reject("no")]), await Promise.any([Promise.reject(1), wait(1, "any")]));
