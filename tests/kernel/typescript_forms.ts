// Each line is compared on its own: what it becomes is the tree that TypeScript's output is.
class A { static accessor = 1; accessor; get; set; async; static; declare; readonly; abstract }
class B<in T, out U, in out V, const W> { static<T>() {} get<T>() {} async<T>() {} declare<T>() {} }
abstract class C { private static async *[Symbol.iterator]<T>(this: C): any {} ; static readonly #p?: number = 1; "quoted"?: string; 5!: number; [k]?: T = 1; get [x](): T { return 1 } ; override async m?(): Promise<void> {} }
export default class<T> extends D<T> {}
let f = function <T>(this: T, a?: T): a is T { return a! }, g = async function* <T>() {}
for (let i: number = 0, j = <any>1; i < (j as number); i++) ;
for (var k in <any>x) ;
let o = { async *f<T>() {}, get x(): T { return 1 }, set x(v: T) {}, async: 1, get: 2, set, [a as string]: 1, "b"<T>() {}, 1<T>() {}, async<T>() {}, get<T>() {}, await: 1, async get() {} };
x = y as any as T[]; x = y! as any; x = (y as any)!.z; x = y satisfies A as B; (x as any) = 1; [x as any] = y; ({ a: x as any } = y); (<any>x)++; (x as any)++; x!++; x! += 1; x![0]! = 1; (x!) = 2
delete (x as any).y; typeof x as any; void x as any; await x as any; -x as any; !x!; x as any ? 1 : 2; x as any instanceof y; x as any in y
a = b ? c as D : e as F; a = b ? (c as D) : (e as F); a = b ? (c) => d as E : (f): G => h; a = b ? c : (d) ? e : (f): g => h
a = b ? async (c): Promise<D> => e : async (f) => g; a = b ? (c, d) => e : f; a = b ? ({c}): D => e : f; a = b ? [(c): D => e] : f; a = b ? x((c): D => e) : f
a = b ? (c, d): E<F, G> => ({ h: i as J }) : k
a = (b as C) ? (d) : (e)
a = b ? (c ? (d) : e) : f
a = b ? c ? (d) : (e) : (f)
a = b ? (c) : d ? (e) : f => g
a = b ? <T,>(c: T): T => c : <T>d
a = b ?? (c) ; a = b ? .5 : (c)
if (a < b || c > (d)) e; if (a < b && c > d) e; a = b < c ? d : e > (f); a = b<c> ?? d; a = b<c>`x`; a = b<c>?.(d); a = b<c>; (b<c>) ; [b<c>]; f(b<c>, d); b<c>;
f(a<b, c>d); f(a<b, c>(d)); f(a<b>(c)); (a<b>c); a<b>-c; a<b>+c; a<b>!c; a<b>=c; a<b>>>c; x = a<b>
c
new A<B>; new A<B>(); new A<B>, c; new (a as any)<B>(); new (<any>A)(); new A!(); new a.b!.c<D>(e)
class D1 extends (E as any)<F> {} class D2 extends E.F<G> {} class D3 extends f<G>(h)<I> {} class D4 extends (class<T> {}) implements I {} class D5 implements A.B<C>, D {} 
label: while (1) { continue label } type: for (;;) break type
try {} catch ({ message }: any) {} try {} catch {} finally {}
export { a as b, type C, type D as E, f as default }; export * as ns from "x"; export type * as ns2 from "x"; import json from "x" with { type: "json" }; import def, { type T1, v1 } from "y"; v1
export import q = a.b; import type r = require("r"); import t = a.b.c; export declare const dd: number; export declare function ff(): void; export abstract class Abs2 {} export async function af<T>() {} export default interface II {}
export enum Ex { A = `x`.length as number, B = (A as number) + 1, "C" = 'a' }
type T2 = { [K in keyof T]: T[K] } | { readonly [K in A]+?: B; } | { -readonly [K in A as `x${K & string}`]-?: B } | { [key: string]: number, [Symbol.iterator](): any; get x(): number; set x(v); readonly: number; get: 1; set?: 2; new: 3; new(): T; <T>(): U; readonly readonly: 1; "a-b"?: c; 1: 2; async(): void; public: 1 };
type T3 = A extends B ? C extends D ? 1 : 2 : E extends F ? 3 : 4
type T4 = (new (...a: any[]) => T) | (abstract new () => U)[] | typeof import("x") | import("y").Z<1> | unique symbol | asserts | is
type T5 = [a: 1, b?: 2, ...c: 3[]] | [A?, ...B] | readonly [] | readonly string[] | (A | B)[] | A["b"]["c"][] | -1 | -1n | `a${B}c${`d${E}`}`
type T6<A extends B = C, const D extends E[] = [F]> = A extends (infer G extends H)[] ? G : A extends infer I extends J ? I : never
type T7 = (a: this, b?: typeof x.y.z, ...c: keyof D[]) => asserts a is E
function assertIsString(val: any): asserts val is string {} function isX(this: Y): this is X { return true } function as1(x): asserts x {}
var v = <T>(x) => x, w = <T extends U>(x: T): x is T => true, y1 = async <T>(x) => x, z1 = <const T>(x) => x, u1 = <T, U = T>(x) => x
let { a: aa = 1 as any, ...rest }: T = x, [b1 = <any>2, , ...c1]: U = y;
if (x) { type Local = 1; interface L2 {} enum Le { A } } else { declare let q: any }
switch (x) { case 1 as any: { type Y = 1 } default: type Z = 2; break; case (a): b; case a ? (b) : c: d; case (x as any): e }
function ov(): void; function ov(a?) {} export function ov2(): void; export function ov2(a?) {} 
let regex = a! / b! / c, re2 = (x as any) / 2 / 1, re3 = x! /2/ 1, re4 = [] as any[] / 2
var async2 = async; async = 1; let x2 = async (y), y2 = async(z: T) => z, z2 = async z => z
let u = a! ? b! : c!, t1 = a!.b?.c!.d![e!]!(f!)!, s1 = `${a!}${b as string}`
x = a < b ? c : d > (e); x = a < (b) > c; x = f < g, h > i; for (let i = 0; i < n; i++) { a<b }; if (a<b){} while (a<b&&c>d) {}
x = a<b>/c/d; x = a < b > /c/d; y = [a<b, c>d]; y = {a: b<c, d: e>f}; a<{b: c}>(d); a<[b, c]>(d); a<"b" | 1>(c); a<b[]>(c); a<(b: c) => d>(e); a<b.c>(d); a<typeof b>(c)
x = (a as b)<c; x = a as b & c; x = a as (b) | c; x = a as {b: c}; x = a as [b]; x = a as `b${c}`; x = a as new () => b; x = a as typeof b.c; x = a as import("b").c; x = a as b["c"]
x = (a, b as c); x = a as b, y = c; f(a as b, c as d); [a as b, c]; ({a: b as c, d}); `${a as b}`; a[b as c]; if (a as b) c; while (a as b); do ; while (a as b); throw a as b
function r() { return a as b } function r2() { return <a>b } function r3() { return (a): b => c } function* r4() { yield a as b; yield <a>b; yield (a): b => c; const x = (yield) as a; yield* a as b }
const fn = (a, b: c = d as e, {f, g}: {f: h; g: i} = j, [k]: l[] = [], ...m: n): o => p as q
const fn2 = ({a: {b, c = 1}, ...d}: e): f => {}, fn3 = ([a, [b], , ...c]: d) => e, fn4 = (a = (b: c) => d) => e, fn5 = (a = <b>c) => d, fn6 = (a = b ? c : d) => e, fn7 = (a = b as c) => d
const fn8 = (a: (b) => c, d: e) => f, fn9 = (a: (b | c)[], d?: (e) => f): (g) => h => i, fn10 = (a): a is b => c, fn11 = (a): asserts a is b => {}, fn12 = async (a): Promise<b> => {}, fn13 = (a): typeof a.b => c
const fn14 = (a): { b: c } => ({ b: d }), fn15 = (a): [b, c] => [d, e], fn16 = (a): b[] => [], fn17 = (a): `b${c}` => d, fn18 = (a): keyof b => c, fn19 = (a): b extends c ? d : e => f, fn20 = (a): new () => b => c
x = a ? (b): c => d : (e): f => g; x = a ? b : (c): d => e; x = a ? ((b): c => d) : e; x = a ? (b ? (c): d => e : f) : g; x = a ? (): b => c : d; x = a ? (...b): c => d : e; x = a ? ({b}) : ({c})
x = a ? (b) : (c); x = a ? (b) : [c]; x = a ? (b) : {c: d}; x = a ? (b)(c) : d; x = a ? (b).c : d; x = a ? (b) : c ? (d) : e; x = a ? (b, c) : d; x = a ? (b = 1) : c; x = a ? [b] : (c): d => e
x = a ? (b) : c => {}; x = a ? (b) : async c => d; x = a ? (b) : async (c) => d; x = a ? (b) : function () {}; x = a ? (b) : (c) => (d) ? e : f; x = a ? b => (c ? (d) : e) : f; x = a ? (b) : "c"; x = a ? (b) : 1; x = a ? (b) : null
abstract class P { constructor(private a, readonly b = 1, public c?: d, protected override e: f = g) {} private constructor2() {} protected get h(): i { return 1 } public static readonly j = 1; static override k() {} declare readonly l: m; abstract n?: o; public async *p() {} }
class Q { private; public = 1; protected() {} readonly: a; declare?: b; abstract!: c; static static: d; static async async() {} get get() { return 1 } set set(a) {} async *async2() {} static get static2(): e { return 1 } "constructor2"() {} static { this.x = 1 as any } }
class R<T> extends (S<T>)["x"] {} class U { a = <b>c; d = (e): f => g; h = i as j; k = async () => {}; l = function (this: U) {}; m?= 1; n!: o; p?: q = 1; static r: s = t; [u]: v; ["w"]?: x; 1: y; #z: a }
import { type default as D1, default as D2, type as T1, as as A1, type as as as2 } from "x"; D2; T1; A1; as2
import { type, from, type as as, type from as of } from "x"; as; type; from
import from from "x"; import type, { a } from "y"; import * as as from "z"; from; type; a; as
export { type, as, from, type x1, type as as2, type y1 as z1, as as default }; var as, from, type
enum E1 {} enum E2 { A, } enum E3 { "A" = 1, 'B' = "b", C = E3.A } const enum E4 { A = 1 << 2, B = A | 8 } declare enum E5 { A } export const enum E6 { A } declare const enum E7 { A }
var e1 = enum_; enum_: 1; var module = 1; module; namespace; global; declare; abstract; type; interface_
let global = 1, declare = 2, module2 = 3, require = 4; global.x = 1; declare.x = 2; require("x"); type.x; as.x; satisfies.x; is.x; abstract.x; namespace.x; module.x
