/* The eraser of TypeScript: what each form becomes, byte for byte, what plain JavaScript keeps, what is
 * refused and where. That the results mean what TypeScript means is tried in tests/kernel. */
#include "kernel/js/typescript.h"

#include "check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Of the length that it says, without a NUL behind it. */
static int erase(const char *source, size_t length, struct typescript_output *out)
{
    char *copy = malloc(length == 0 ? 1 : length);
    int status;

    if (copy == NULL)
        abort();
    memcpy(copy, source, length);
    status = typescript_erase(copy, length, out);
    free(copy);
    return status;
}

static const struct {
    const char *source, *result;
} forms[] = {
    /* types */
    {"let a: number = 1;", "let a         = 1;"},
    {"let a!: A<B<C>>, b: D[];", "let a          , b     ;"},
    {"let a: A<B>= 1, b: A<B<C>>= 2", "let a      = 1, b         = 2"},
    {"let a: (x: number, ...y: any[]) => x is T = b",
     "let a                                     = b"},
    {"let a: new () => T, b: abstract new <A>(a: A) => B;",
     "let a             , b                             ;"},
    {"let a: {b: c; d?(): e, readonly [f: string]: g; new (): h; (): i} = j;",
     "let a                                                             = j;"},
    {"let a: {+readonly [K in keyof T as `a${K}`]-?: T[K]};",
     "let a                                               ;"},
    {"let a: A extends infer B extends C ? D : E = f",
     "let a                                      = f"},
    {"let a: (<B>() => B extends C ? 1 : 2) extends <B>() => B extends D ? 1 : 2 ? E : F;",
     "let a                                                                             ;"},
    {"let a: [b: C, d?: E, ...f: G[]] | -1 | \"x\" | `y${z}` | null;",
     "let a                                                      ;"},
    {"let a: typeof b.c<D> & keyof E & unique symbol & import('f', {with: {}}).G<H>;",
     "let a                                                                        ;"},
    {"let a: | A | B, b: & C;", "let a         , b     ;"},
    {"let a: this is string;", "let a                ;"},
    {"function f(a): asserts a is B {}", "function f(a)                 {}"},
    {"function f(a): asserts this {}", "function f(a)               {}"},
    {"let a: asserts, b: is, c: infer;", "let a         , b    , c       ;"},
    {"type A = B; let c", "            let c"},
    {"let \xc3\xa9: \"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\" = 1",
     "let \xc3\xa9   \xc2\xa0\xe2\x80\x83\xc2\xa0\xc2\xa0  = 1"},
    {"let a: B/* c\nd */ = 1 // e", "let a   /* c\nd */ = 1 // e"},
    {"let a: {b // c\r\n} = 1", "let a         \r\n  = 1"},

    /* expressions */
    {"a as B; a satisfies C; a as const; a! + b!.c![d!]",
     "a     ; a            ; a         ; a  + b .c [d ]"},
    {"a as B as any < d", "a             < d"},
    {"a as number < b, c as any | d && e", "a           < b, c            && e"},
    {"<A>b; <A><B>c.d();", "(  b); (  (  c.d()));"},
    {"() => <A>{b: c}", "() => (  {b: c})"},
    {"f<A>(b); new C<D>; new E<F>(g); h?.<I>(j); k<L>`m`; n<O>;",
     "f   (b); new C   ; new E   (g); h?.   (j); k   `m`; n   ;"},
    {"f(a<b, c>(d))", "f(a      (d))"},
    {"f<<T>(a: T) => T>(b)", "f                (b)"},
    {"const a = <T,>(b: T, c?: D, ...e: F[]): G => h;",
     "const a =     (b   , c    , ...e     )    => h;"},
    {"const a = <const T extends U = V>(b: T) => b;",
     "const a =                        (b   ) => b;"},
    {"async <A>(b: A): Promise<A> => b", "async    (b   )             => b"},
    {"a ? (b): c => d : e", "a ? (b)    => d : e"},
    {"a ? (b, c = 1): d => e : f", "a ? (b, c = 1)    => e : f"},
    {"a ? (b: C): D => e : f", "a ? (b   )    => e : f"},
    {"a ? (b) : (c: D) => e", "a ? (b) : (c   ) => e"},
    {"a ? (b) : c => (d) : e => f", "a ? (b)     => (d) : e => f"},
    {"(a, b?, {c, d: [e]}: F = {}, g = 1, ...h: I): J => k",
     "(a, b , {c, d: [e]}    = {}, g = 1, ...h   )    => k"},
    {"(this: A, b) => c; (this: A) => b", "(         b) => c; (       ) => b"},
    {"(a): ((b: C) => D) | (<E>(f: E) => E) => g", "(a)                                   => g"},
    {"({a(b: C): D {}, get e(): F { return 1 }, async *g<H>() {}, [i as J]: k, l})",
     "({a(b   )    {}, get e()    { return 1 }, async *g   () {}, [i     ]: k, l})"},

    /* what a line must not join */
    {"a = b as C\n(d)", "a = b ;   \n(d)"},
    {"a = b as C\n[d]", "a = b ;   \n[d]"},
    {"a = b as C\nd()", "a = b     \nd()"},
    {"a = b!\n(d)", "a = b \n(d)"},
    {"a\ntype B = C\n(d)", "a\n;         \n(d)"},
    {"a;\ntype B = C\n(d)", "a;\n          \n(d)"},
    {"class A { b = 1\npublic ['c'] = 2 }", "class A { b = 1\n;      ['c'] = 2 }"},
    {"class A { b = 1\ndeclare c: D\n['e'] = 2 }", "class A { b = 1\n;           \n['e'] = 2 }"},
    {"class A { get: B\nc() {} }", "class A { get;  \nc() {} }"},
    {"const a = (b): C<\nD\n> => e", "const a = (b     \n \n) => e"},
    {"async <\nA\n>(b) => c", "async (\n \n  b) => c"},
    {"return <\nA\n>b", "return (\n \n b)"},

    /* statements */
    {"for (const a: B of c as D) {} for (let e: F = 0; ; ) {}",
     "for (const a    of c     ) {} for (let e    = 0; ; ) {}"},
    {"try {} catch (e: unknown) {}", "try {} catch (e         ) {}"},
    {"function a(b): void\nfunction a(b, c?: D) {}",
     "                   \nfunction a(b, c    ) {}"},
    {"abstract class A<B> extends C<D> implements E, F<G> { abstract h(): void; i?: J; readonly k!: L = 1 }",
     "         class A    extends C                       {                     i    ;          k     = 1 }"},
    {"class A { [b: string]: any; static readonly [c: number]: D; private static async *e?<F>() {} }",
     "class A {                                                           static async *e    () {} }"},
    {"class A { constructor(private b: C, d = 1, readonly e?: F) { g() } }",
     "class A { b; e; constructor(        b   , d = 1,          e    ) { this.b = b; this.e = e; g() } }"},
    {"class A extends B { constructor(public c) { d; super(); e } }",
     "class A extends B { c; constructor(       c) { d; super(); this.c = c; e } }"},
    {"class A { abstract accessor b: C; accessor = 1 }",
     "class A {                         accessor = 1 }"},
    {"class A { accessor b: C = 1 }",
     "class A { get b() { return this.#b_accessor; } set b(value) { this.#b_accessor = value; } "
     "#b_accessor              = 1 }"},
    {"enum A { B, C = 5, D, 'e f' = B | C, G }",
     "var A; (function (A) {         A[A[\"B\"] = 0] = \"B\";       A[A[\"C\"] = 5] = \"C\";  A[A[\"D\"] = "
     "6] = \"D\";           A[A['e f'] = A.B | A.C] = 'e f';  A[A[\"G\"] = A['e f'] + 1] = \"G\";  "
     "})(A || (A = {})); "},
    {"const enum A { B = 'c', D = B }",
     "var A; (function (A) {                   A[\"B\"] = 'c';      A[\"D\"] = A.B; })(A || (A = {})); "},
    {"namespace A { export const b: C = 1; }",
     "var A; (function (A) {                     const b    = 1;; A.b = b; })(A || (A = {})); "},

    /* modules */
    {"import {a, type B, C} from 'd'; let e: C = a",
     "import {a,          } from 'd'; let e    = a"},
    {"import A, {b} from 'c'; let d: A = b", "import    {b} from 'c'; let d    = b"},
    {"import A, * as b from 'c'; let d: b.E = A", "import A         from 'c'; let d      = A"},
    {"import {A} from 'b'\nlet c: A", "                   \nlet c   "},
    {"import a = require('b'); import c = d.e; import type f = require('g')",
     "const  a = require('b'); var    c = d.e;                             "},
    {"export {type A, b, type as, type as as c, type as d, e as type}",
     "export {        b,                        type as d, e as type}"},
    {"interface A {} const b = 1; export {A, b}", "               const b = 1; export {   b}"},
    {"interface A {}\nexport default A", "              \n                "},
    {"export = a", "module.exports =         a"},
    {"export as namespace A;", "                      "},
};

/* JavaScript. */
static const char *const unchanged[] = {
    "f(a < b, c > d); a < b > c; a < b && c > (d); a<b>>c",
    "async < 3; async(a, b); async\n(c)",
    "a ? (b) : c => d",
    "a ? b ? (c) : d : (e) => f",
    "a ? b => (c) : d => e",
    "switch (a) { case (b): c => d; case e ? (f) : g: h }",
    "import {A} from 'b'; import C from 'd'; A; C",
    "import {never} from 'used'",
    "import type from 'a'; import type, {b} from 'c'",
    "",
    "#!/usr/bin/env node\n1",
    "a = b\n/c/g",
    "a = /[/\\]]/.exec(b) / c / d",
    "x = y => {}\n/z/.test(a)",
    "if (a) /b/.c; else /d/",
    "`a${`b${c}` + {d: 1}}e`; f`\\u${1}`",
    "a?.b?.[c]?.(d) ?? e?.5:1",
    "a?.5:1",
    "for (const a of b) {} for (var c in d) {} for await (let e of f) {}",
    "label: for (;;) { continue label }",
    "class A extends B { static #c = 1; static { } get d() { return #c in this } set d(e) {} async *[f]() {} 'g' = 1; 2 = 3 }",
    "async () => { await a; for await (const b of c) {} }",
    "function* a() { yield /b/; yield* c; yield\n/d/e; const f = yield }",
    "({a, b: {c = 1}, ...d} = e); [a, , b = 2, ...c] = d",
    "import a, {b as c, default as d} from 'e' with {type: 'json'}; export * as f from 'g'; export {a as default}; import('h'); import.meta.url",
    "type = 1; interface; declare\nx; namespace.a; module.exports = abstract; as; satisfies(a); is = keyof",
    "var async, of, get, set, type, from; async = of",
    "let as = 1; as\n= 2",
    "new.target; new a.b(c)(d); new (e())",
    "do a\nwhile (b) c",
    "a\n++b",
    "1..toString(); 1.e3; 0x1fn; 1_000.5e-3; .5",
    "'a\\\nb'; \"\\\"\"",
    "\\u0061bc; \\u{62}",
    "a /* b */ /c/ d // e",
    "x = a ? b : c ? d : e",
    "a <!b",
    "a\xc2\xa0+\xe2\x80\xa8_b",
    "export default (a) => b",
    "with (a) b",
    "class A { static async = 1; get; set; static; async\nb() {} }",
    "using a = b; await using c = d",
    "let {a} = b, [c] = d",
    "if (a) function b() {}",
    "var { a = 1 } = b; ({ a = 1 }) => a",
    "a = b ? (c, d) : e",
    "a = b ? ({c}) : d => e",
    "a => ({}) / 1",
    "x = function () {} / 1",
    "({}) / 1; a++ / 2; a[0] / 2; (a) / 2; this / 2",
    "return\n/a/g",
    "typeof /a/",
    "a = {} / 1",
    "{}\n/a/g",
};

/* Of which nothing is left. */
static const char *const erased[] = {
    "export type A<T> = {b: T}; export interface C extends D<E>, F {}",
    "declare const a: B; declare function c(): void; declare global { var d }",
    "declare module Foo.Bar { export = x; } declare module 'y'; declare global { var z: 1 }",
    "declare module 'a' { export default b; import c from 'd' }",
    "namespace A { type B = 1 } namespace C.D { }",
    "import type A from 'b'; import type {C} from 'd'; import type * as E from 'f'",
    "export type {A} from 'b'; export type * from 'c'; export type * as d from 'e'",
};

static const struct {
    const char *source, *sentence;
    unsigned line, column;
} errors[] = {
    {"let a: = 1", "A type was expected", 1, 8},
    {"let a\nlet b: {c: d", "';', ',' or a new line", 2, 13},
    {"a = 'b\n'", "not closed on its line", 1, 5},
    {"\n\n`a", "template string is not closed", 3, 1},
    {"\xc3\xa9\xc3\xa9 /* a", "comment is not closed", 1, 3},
    {"a = /b\n/", "regular expression is not closed", 1, 5},
    {"@a class B {}", "Decorators are not supported", 1, 1},
    {"class A { @b c }", "Decorators are not supported", 1, 11},
    {"export @a class B {}", "Decorators are not supported", 1, 8},
    {"class A { b(@c d) {} }", "Decorators are not supported", 1, 13},
    {"enum A { B = 'c', D }", "needs a value", 1, 19},
    {"enum A { 1 }", "plain name or a string", 1, 10},
    {"class A extends B { constructor(private c) { d } }", "needs super()", 1, 48},
    {"class A { a(private b) {} }", "Only a constructor's parameter", 1, 21},
    {"namespace A { export const {b} = c }", "only one by one", 1, 28},
    {"namespace A { export {b} }", "Only a declaration", 1, 22},
    {"(a: b)", "'=>' was expected", 1, 6},
    {"f(a b)", "',' or ')'", 1, 5},
    {"a b", "';' or a new line", 1, 3},
    {"export a", "A declaration was expected", 1, 8},
    {"declare a = 1", "A declaration was expected", 1, 9},
    {"if (a) type B = C", "cannot be declared here", 1, 18},
    {"a\r\nb\rc d", "';' or a new line", 3, 3},
    {"\x01", "This character cannot stand here", 1, 1},
    {"class A { static accessor ['b'] = 1 }", "needs a plain name", 1, 27},
};

static void check_forms(void)
{
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const char *source = forms[i].source, *result = forms[i].result;
        struct typescript_output out;
        int status = erase(source, strlen(source), &out);

        CHECK(status == 0, "%s: %u:%u: %s", source, out.line, out.column, out.message);
        if (status == 0)
            CHECK(out.length == strlen(out.text) && strcmp(out.text, result) == 0,
                  "%s\n   is %s\nwanted %s", source, out.text, result);
        typescript_output_clear(&out);
    }
}

static void check_unchanged(void)
{
    for (size_t i = 0; i < sizeof(unchanged) / sizeof(unchanged[0]); i++) {
        struct typescript_output out;
        int status = erase(unchanged[i], strlen(unchanged[i]), &out);

        CHECK(status == 0 && strcmp(out.text, unchanged[i]) == 0, "%s\n   is %s", unchanged[i],
              status == 0 ? out.text : out.message);
        typescript_output_clear(&out);
    }
}

static void check_erased(void)
{
    for (size_t i = 0; i < sizeof(erased) / sizeof(erased[0]); i++) {
        struct typescript_output out;
        int status = erase(erased[i], strlen(erased[i]), &out);

        CHECK(status == 0 && out.length == strlen(erased[i]) &&
                  strspn(out.text, " \n") == out.length,
              "%s\n   is %s", erased[i], status == 0 ? out.text : out.message);
        typescript_output_clear(&out);
    }
}

static void check_errors(void)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        struct typescript_output out;
        int status = erase(errors[i].source, strlen(errors[i].source), &out);

        CHECK(status < 0 && out.text == NULL && out.line == errors[i].line &&
                  out.column == errors[i].column && strstr(out.message, errors[i].sentence) != NULL,
              "%s: %d, %u:%u: %s", errors[i].source, status, out.line, out.column, out.message);
        typescript_output_clear(&out);
    }
}

/* What is repeated: deep ones are refused, long ones are not, and none overflows the stack. */
static const struct {
    const char *piece;
    bool refused;
} repeated[] = {
    {"(", true},
    {"[", true},
    {"{a:", true},
    {"`${", true},
    {"x=>", true},
    {"<T>", true},
    {"if(a)b;else ", true},
    {"class A extends ", true},
    {"a<[a<", true},
    {"function f(){", true},
    {"namespace a{", true},
    {"a?(b):c=>", true},
    {"let a:(", true},
    {"let a:b<", true},
    {"declare ", true},
    {"a<", true},
    {"a<b,", true},
    {"async<", true},
    {"a?(b):", true},
    {"a:", true},
    {"a.b", false},
    {"a<b>", false},
    {"let a:b|c;", false},
    {"a;type b=c\n", false},
    {"enum E{A,B}\n", false},
    {"if(a)b;else c;", false},
    {"a as b;", false},
    {"import {a} from 'b';", false},
};

#define REPEATED_LENGTH 100000

static void check_repeated(void)
{
    for (size_t i = 0; i < sizeof(repeated) / sizeof(repeated[0]); i++) {
        size_t piece = strlen(repeated[i].piece), length = 0;
        char *source = malloc(REPEATED_LENGTH);
        struct typescript_output out;
        int status;

        if (source == NULL)
            abort();
        for (; length + piece <= REPEATED_LENGTH; length += piece)
            memcpy(source + length, repeated[i].piece, piece);
        status = erase(source, length, &out);
        CHECK((status < 0) == repeated[i].refused, "%s: %d, %u:%u: %s", repeated[i].piece, status,
              out.line, out.column, out.message);
        typescript_output_clear(&out);
        free(source);
    }
}

/* Every beginning of every source ends, and reads no byte too far. */
static void check_beginnings(void)
{
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        size_t whole = strlen(forms[i].source);
        bool placed = true;

        for (size_t length = 0; length < whole; length++) {
            struct typescript_output out;
            if (erase(forms[i].source, length, &out) < 0)
                placed = placed && out.line >= 1 && out.column >= 1 && out.column <= length + 1;
            typescript_output_clear(&out);
        }
        CHECK(placed, "%s", forms[i].source);
    }
}

/* A NUL in the source is a character like another, and ends nothing. */
static void check_nul(void)
{
    struct typescript_output out;

    CHECK(erase("'\0'; a as b", 11, &out) == 0 && out.length == 11 &&
              memcmp(out.text, "'\0'; a     ", 11) == 0,
          "%s", out.message);
    typescript_output_clear(&out);
    CHECK(erase("a\0b", 3, &out) < 0 && out.column == 2, "%u: %s", out.column, out.message);
    typescript_output_clear(&out);
}

int main(void)
{
    check_forms();
    check_unchanged();
    check_erased();
    check_errors();
    check_repeated();
    check_beginnings();
    check_nul();
    return check_finish();
}
