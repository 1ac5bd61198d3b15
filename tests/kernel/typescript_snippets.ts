// Each snippet is run as TypeScript emits it and as the eraser does; both must print the same.
enum Direction { Up, Down = 5, Left, Right = Down | 8, Label = "label" }
console.log(Direction, Direction.Up, Direction[5], Direction.Right, Direction.Label, Object.keys(Direction));
--- strings have no way back to their names
enum Text { A = "a", B = `b`, C = A, D = "x" + "y", E = Text.A + "z", F = ("q") }
console.log(Text, Object.keys(Text).length);
--- members of another enum
enum One { S = "s", N = 3 }
enum Two { A = One.S, B = One.N, C = One["N"] + 1, D }
console.log(Two);
--- computed members
const f = () => 7;
enum Computed { A = f(), B = "abc".length, C = 1 << 3, D, E = -1, F, G = ~2, H = 0x10, I, J = 1.5, K }
console.log(Computed);
--- an enum that is opened twice
enum Twice { A, B }
enum Twice { C = 2, D = B | C }
console.log(Twice);
--- names that are strings
enum Odd { "a b" = 1, 'c-d', ["e"], F = Odd["a b"] + 1, "default", 'quo"te' = 4 }
console.log(Odd);
--- a constant enum, and enums in blocks and functions
const enum Level { Low = 1, High }
function inner() { enum Local { X = 10, Y } { enum Local { Z } console.log(Local) } return Local; }
console.log(Level.High, inner());
--- members in expressions of members
enum Flags { None = 0, A = 1 << 0, B = 1 << 1, Both = A | B, All = (Both | 4) & ~None, Neg = -A }
console.log(Flags, Flags[3]);
--- a big member
enum Big { A = 9007199254740990, B }
console.log(Big);
--- a namespace
namespace Shapes {
  export const pi = 3, two: number = 2;
  const hidden = 5;
  export function area(r: number): number { return pi * r * r + hidden - hidden; }
  export class Circle { constructor(public r: number) {} area() { return area(this.r); } }
  export enum Kind { Round, Square }
  export namespace Deep { export const level = "deep"; }
  export let count = 0;
  export function bump() { count++; }
  interface Foo { x: number }
  export type Bar = Foo | null;
}
Shapes.bump(); Shapes.count += 5; Shapes.bump();
console.log(Shapes.area(1), new Shapes.Circle(2).area(), Shapes.Kind.Square, Shapes.Deep.level, Shapes.count, Object.keys(Shapes));
--- a namespace that is opened twice
namespace Open { export const x = 1; export function f() { return "f"; } }
namespace Open { export const y = x + 1, z = f(); }
console.log(Open.x, Open.y, Open.z);
--- a namespace of types is nothing
namespace Only { export interface A {} export type B = 1; namespace Inner { export type C = 2 } }
console.log(typeof globalThis["Only" as any]);
--- types first, values later
namespace Later { export type T = 1 }
namespace Later { export const v = 1 }
console.log(Later.v);
--- names with dots
namespace A.B.C { export const d = 4; export const e = d + 1; }
namespace A.B { export const f = C.d; }
console.log(A.B.C.d, A.B.C.e, A.B.f);
--- beside a class, a function and an enum
class Klass { static a = 1; }
namespace Klass { export const b = 2; }
function fun() { return 1; }
namespace fun { export const c = 3; }
enum Num { A }
namespace Num { export function parse(s: string) { return s.length as Num; } }
console.log(Klass.a, Klass.b, fun(), fun.c, Num.parse("xx"));
--- an alias of a member
namespace Outer { export namespace Inner { export const v = 9; export interface T {} } }
import Short = Outer.Inner;
import Type = Outer.Inner.T;
let typed: Type = {};
console.log(Short.v, typed);
--- a module by require
import fs = require("fs");
import path = require("path");
export = fs;
console.log(fs.name, path.join("a", "b"));
--- parameter properties
class Base { constructor(public name: string) { this.name += "!"; } }
class Derived extends Base {
  private extra = 1;
  constructor(readonly id: number, protected tag?: string, plain = 4, override readonly name = "n") {
    const before = plain + 1;
    super(tag ?? "none")
    console.log(before, this.id, this.tag, this.extra, this.name);
  }
}
console.log(new Derived(1, "t"), Object.keys(new Derived(2)));
--- a directive before parameter properties
class Strict { constructor(private x: number) { "use strict"; console.log(this.x, (function () { return this; })()); } }
new Strict(3);
--- casts
const o = <any>{ a: 1 }, f = () => <any>{ b: 2 }, g = <T,>(x: T) => x, h = <number>(<unknown>5);
<any>function () {};
console.log(o.a, f().b, g<string>("x"), h, (<any>o).a, -(<number>o.a), typeof <any>o);
--- a cast behind return, on the next line
function later() { return <
  number
>5; }
function later2() { return <T
>(x: T) => x; }
console.log(later(), later2()(6));
--- what a line must not join
const a = [3] as number[]
[0, 1].forEach((x) => console.log(x))
let b = a satisfies object
(function () { console.log("called") })()
let c = b!
console.log(c)
--- a type between lines
let value = 5
type Between = number
(value as Between)
interface Between2 {}
[value].map(console.log)
--- fields that must not join
class Lines {
  get: number
  foo() { return 1 }
  static: string
  *gen() { yield 1 }
  x = 1
  public ["y"] = 2
  z = 3
  readonly *gen2() { yield 2 }
  w = 4 as number
  ["v"] = 5
  declare q: number
  ["u"] = 6
  u2 = 1;
  [key: string]: unknown
  ["u3"] = 7
}
const lines = new Lines(); console.log(lines, Object.keys(lines), lines.foo(), [...lines.gen()], [...lines.gen2()]);
--- conditionals and arrows
const t = true, n = 5;
const p = t ? (n) : x => x;
const q = t ? (n): number => n + 1 : 0;
const r = t ? (x: number): x is 5 => x === 5 : null;
const s = t ? (n) : (y: number) => y;
const u = t ? async (x: number): Promise<number> => x : n;
const v = !t ? (n) : n ? (z) => z : 0;
console.log(p, q(1), r(5), s, typeof u, v(7));
--- less than, or type arguments
const i = 1, j = 2, k = 3;
function two(x: any, y: any) { return [x, y]; }
function id<T>(x?: T) { return x; }
console.log(two(i < j, k > (2)), i < j && k > i, id<string>("a"), id<Array<Array<number>>>([[1]]), (i < j) > false as any);
console.log(new Map<string, Set<number>>().size, new Set<number>, id<<T>(x: T) => T>((x) => x)(4), i<j, i << 2 > 1);
--- regular expressions
const re = /[/\]"'`]+/g, num = 10 / 2 / 1;
if (t2()) /x/.test("x");
function t2() { return /a/.test("a") } /b/.exec("b");
console.log("a/b".split(re), num, ((x) => { return x / 2 })(4) / 2, [1][0] / 2, `${"a/b".replace(/\//g, "|")}/${4 / 2}`);
label: for (const x of [1]) { if (x) { /c/.exec("c"); continue label } }
--- templates
const name2 = "n";
console.log(`a${name2 as string}b${`c${name2!}d${{ a: 1 }.a}`}e${(() => { return `}` })()}`, String.raw<any>`\n${1 as any}`);
--- assertions in odd places
let m: any = { a: { b: [1, 2] } };
(m as any).a = m.a as any; (<any>m).x = 1; m!.y = 2; m.a!.b![0]!++; m!.a!["b"]! [1]--; ++m!.y;
for (const e of m.a.b as number[]) console.log(e!);
for (let e = 0 as number; e < (2 as number); e++) console.log(e);
console.log(m satisfies object, m?.a!.b, m!?.a, m?.a?.["b"]!.length, (m as { a: any }).a.b, ([] as number[]).length);
--- destructuring and defaults
const { d1, d2: d3 = 4 as number, ...d4 }: { d1: number; d2?: number; [k: string]: any } = { d1: 1, z: 3 };
function destructure({ a, b = 2 }: { a: number; b?: number } = {} as any, [c, , e]: number[] = [1, 2, 3], ...rest: any[]): void { console.log(a, b, c, e, rest); }
destructure(undefined, undefined, 9); console.log(d1, d3, d4);
try { throw new Error("x") } catch (error: unknown) { console.log((error as Error).message) } finally { }
--- overloads
function over(x: string): string
function over(x: number): number
function over(x: any) { return x }
class Over { m(x: string): void; m(x: number): void; m(x: any) { console.log(x) } constructor(); constructor(x?: any) { } }
console.log(over(1), new Over().m(2));
--- this parameters
function withThis(this: { v: number }, x: number) { return this.v + x }
const withThis2 = function (this: { v: number }) { return this.v };
console.log(withThis.call({ v: 1 }, 2), withThis2.call({ v: 3 }), withThis.length);
--- words that are names, too
var type = 1, of = 2, as = 3, declare = 4, namespace = 5, module2 = 6, abstract = 7, readonly = 8, is = 9, keyof = 10, asserts = 11, satisfies = 12, infer = 13, async = 14, get = 15, set = 16, any = 17, number = 18, global = 19, from = 20;
type = 2; type
type T0 = number;
declare; abstract; namespace
console.log(type, of, as, declare, namespace, abstract, readonly, is, keyof, asserts, satisfies, infer, async, get, set, any, number, global, from);
console.log({ type, as, async, get, set, declare: 1, readonly: 2, get get() { return 1 }, async async() { }, set: 1 }, as as number, (type as any) as number, async < 3, async + 1);
class Words { type = 1; declare = 2; readonly = 3; static = 4; async = 5; abstract = 6; get = 7; set = 8; accessor = 9; override() { return 1 } public() { } static static = 1; static async() { } static get get() { return 2 } async *set2() { } }
console.log(new Words(), Words.static, Words.get);
--- generators and async
function* gen<T>(x: T): Generator<T> { const y = yield x as T; yield /re/.test("re") as any; yield* [1] as any; yield; return yield (y as any) }
console.log([...gen(1)]);
const arrows = [async <T>(x: T): Promise<T> => x, async (x?: number) => x!, async x => x, <T extends object>(x: T) => x, <const T,>(x: T): T => x];
console.log(arrows.length, typeof arrows[0](1).then);
async function wait(x: Promise<number>) { for await (const y of [x] as any) console.log(await y); return await <any>x }
wait(Promise.resolve(1));
--- arrows over lines
const far = (
  a: number,
): Promise<
  number
> => a as any;
const far2 = async <
  T
>(x: T) => x;
const far3 = (a: number): { a: number
} => ({ a });
console.log(far(1), far2.length, far3(2));
--- accessor fields
class Acc { accessor x: number = 1; static accessor s = 2; accessor #p?: string = "p"; accessor y!: number; p() { return this.#p; } }
const acc = new Acc(); acc.x++; Acc.s++; console.log(acc.x, Acc.s, acc.p(), acc.y, Object.keys(acc));
--- labels, sequences and commas
a1: { b1: for (; ;) { break a1 } }
let s1 = (1, 2) as number, s2 = [1, , 2] as any[], s3 = ((x: number, y?: number) => x, 5);
console.log(s1, s2, s3, void 0 as any, (s1 as any, s2 as any));
switch (s1 as number) { case 2 as number: console.log("two"); break; case (s1): default: console.log("none") }
--- keywords as members
const keys = { class: 1, enum: 2, type: 3, function: 4, new: 5, import: 6, as: 7, default: 8 };
console.log(keys.class, keys.enum!, keys.type as number, keys?.new, keys.import + keys.as, keys.default < 9);
--- a class in an expression
const Ex = class <T> extends (class { z?: number } as any)<T> implements Object { private a?: T; b!: number; static { console.log("static" as string) } };
console.log(new Ex(), new (class { constructor(readonly x = 1) { } })(), new class { y = <any>1 }());
--- abstract classes
abstract class Abs { abstract a: number; abstract get g(): number; abstract m(): void; protected abstract readonly q?: string; n() { return 1 } }
class Con extends Abs { a = 1; get g() { return 2 } m() { } q = "q"; declare static z: number }
console.log(new Con(), new Con().n());
--- definite and optional
let def!: number, def2: string | undefined, def3!: { a: number };
def = 1; def2 = "x"; def3 = { a: 1 };
console.log(def, def2, def3!.a!);
--- ambient declarations are nothing
declare const amb: number; declare let amb2: string, amb3: number; declare function ambF(x: number): void;
declare class AmbC { x: number; constructor(private y: number); m(): void; static [k: string]: any }
declare namespace AmbN { const x: number; function f(): void; namespace Deep { let y } export { x } }
declare module "amb" { export default function f(): void; export const x: number; import y from "z"; }
declare global { interface Array<T> { amb(): T } var ambV: number }
declare enum AmbE { A, B = 2 } declare const enum AmbE2 { C = "c" } declare abstract class AmbA { abstract x(): void } declare type AmbT = 1; declare interface AmbI { }
console.log(typeof globalThis["AmbC" as any], typeof AmbE2);
