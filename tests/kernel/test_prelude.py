"""The prelude: what it prints is what Node prints, case by case; and what is our own (results, the rule
of a REPL, errors, tools, fetch) is as documented. It runs natively here, without WebAssembly: see
prelude_driver.c."""
import hashlib
import json
import glob
import os
import subprocess

import pytest

import compare

ROOT = os.path.join(compare.HERE, "..", "..")
JS = os.path.join(ROOT, "src", "kernel", "js")
SOURCES = [os.path.join(JS, name) for name in ("natives.c", "natives_bytes.c", "natives_digest.c")] + \
    sorted(glob.glob(os.path.join(JS, "typescript*.c"))) + \
    [os.path.join(compare.HERE, name) for name in ("prelude_driver.c", "prelude_host.c")]
HEADERS = [os.path.join(JS, "natives.h"), os.path.join(JS, "adapt.py"), os.path.join(compare.HERE, "prelude_host.h")]


@pytest.fixture(scope="session")
def driver():
    """The driver, compiled once for each state of its sources and kept beside the build."""
    engine = os.environ.get("COVE_QUICKJS") or subprocess.run(
        [os.path.join(ROOT, "scripts", "kernel-inputs.sh")], capture_output=True, text=True, check=True).stdout.strip()
    cache = os.environ.get("COVE_CACHE", os.path.join(ROOT, "build", "cache"))
    os.makedirs(cache, exist_ok=True)
    inputs = hashlib.sha256(engine.encode())
    for path in SOURCES + HEADERS:
        with open(path, "rb") as file:
            inputs.update(file.read())
    program = os.path.join(cache, f"prelude-driver-{inputs.hexdigest()[:24]}")
    if not os.path.exists(program):
        adapted = f"{program}.{os.getpid()}.c"
        subprocess.run(["/usr/bin/python3", os.path.join(JS, "adapt.py"), os.path.join(engine, "quickjs.c"), adapted], check=True)
        libraries = [os.path.join(engine, f"{name}.c") for name in ("libregexp", "libunicode", "dtoa")]
        subprocess.run(["gcc", "-O1", "-w", "-D_GNU_SOURCE", "-DNDEBUG", "-funsigned-char", "-I", engine, "-o",
                        f"{program}.{os.getpid()}", adapted, *libraries, *SOURCES, "-lm", "-lpthread"], check=True)
        os.rename(f"{program}.{os.getpid()}", program)
        os.unlink(adapted)
    return program


# ---- as Node -----------------------------------------------------------------------------------

@pytest.mark.parametrize("name", compare.FILES)
def test_prints_what_node_prints(driver, tmp_path, name):
    cases = compare.cases(name)
    sources = [source for _, source in cases]
    if name in compare.ALONE:
        ours = compare.run_ours_alone(driver, sources, str(tmp_path))
    else:
        ours = compare.run_ours(driver, sources)
    wrong = []
    for (title, _), mine, node in zip(cases, ours, compare.as_node(name, str(tmp_path)), strict=True):
        wrong += [f"{title}: {text}" for text in compare.differences(mine, node)]
    assert not wrong, "\n".join(wrong)


# ---- our own -----------------------------------------------------------------------------------

def runs(driver, *sources, root=None, tools=(), env=None, options=None):
    """The results of several runs of one context."""
    request = {"configure": {"env": env or {}, "cwd": "/", "argv": ["one"], "tools": list(tools)}, "root": root,
               "runs": [{"source": source, "options": options or {}} for source in sources]}
    return compare.run_driver(driver, [request])[0]


def value(result):
    assert result["error"] is None, result["error"]
    return json.loads(result["value_json"]) if "value_json" in result else None


def texts(result):
    return [entry["text"] for entry in result["logs"]]


VALUES = [
    ("1+1", 2), ("'text'", "text"), ("null", None), ("true", True), ("({a: [1, {b: null}]})", {"a": [1, {"b": None}]}),
    ("let x = 5; x * 2", 10), ("const f = () => 7; f()", 7), ("if (true) { 3 } else { 4 }", 3), ("[1,2,3].map(x => x * 2)", [2, 4, 6]),
    ("await 5", 5), ("Promise.resolve(6)", 6), ("await Promise.all([1, Promise.resolve(2)])", [1, 2]), ("return 8", 8),
    ("if (1) return 'early'; 'late'", "early"), ("const y = await 1; return { y }", {"y": 1}), ("return await Promise.resolve(3)", 3),
    ("for (let i = 0; i < 3; i++) i", 2), ("new Date(0)", "1970-01-01T00:00:00.000Z"), ("await null; ({ v: 1 })", {"v": 1}),
    ("return { value: 1 }", {"value": 1}), ("await 1; return { value: 2 }", {"value": 2}), ("new Promise(r => setTimeout(r, 2, 'slow'))", "slow"),
    ("try { await Promise.reject(new Error('x')) } catch (e) { e.message }", "x"), ("'use strict'; 9", 9),
    ("import path from 'node:path'; path.join('a', 'b')", "a/b"), ("import { join, sep as s } from 'path'; import * as os from 'os'\nreturn [join('a', 'b'), s, os.platform()]", ["a/b", "/", "linux"]),
    ("import fs, { existsSync } from 'fs'; typeof fs.readFileSync + typeof existsSync", "functionfunction"),
    ("import {\n  join,\n  sep,\n} from 'node:path';\njoin('x', sep)", "x/"), ("const s = `\nimport nothing from 'x'`; s.length", 24),
    ("label: { break label; } 5", 5), ("__finalAnswer__ = 42; 1", 42), ("globalThis.__final_answer__ = 'f'", "f"), ("JSON.stringify({a: 1})", '{"a":1}'),
    ("function later() { return 1 } later()", 1), ("class C { v = 3 } new C().v", 3), ("async function f() { return 4 } f()", 4),
    ("const { await: w } = { await: 5 }; w", 5), ("process.argv.slice(2)", ["one"]), ("this === globalThis", True),
    ("require('sys') === require('util')", True),
]


@pytest.mark.parametrize("source, wanted", VALUES)
def test_the_value_of_a_run(driver, source, wanted):
    assert value(runs(driver, source)[0]) == wanted


def test_types_and_texts_of_values(driver):
    for source, kind, output in [("undefined", "undefined", "undefined"), ("() => 1", "function", "[Function (anonymous)]"), ("10n", "bigint", "10n"),
                                 ("new Map([[1, 2]])", "object", "Map(1) { 1 => 2 }"), ("NaN", "number", "NaN"), ("Symbol('s')", "symbol", "Symbol(s)"),
                                 ("'plain text'", "string", "plain text"), ("null", "null", "null")]:
        result = runs(driver, source)[0]
        assert (result["type"], result["output"], result["error"]) == (kind, output, None), source


@pytest.mark.parametrize("source", ["() => 1", "Symbol()", "const a = {}; a.a = a; a", "10n"])
def test_what_json_cannot_hold_says_so(driver, source):
    result = runs(driver, source)[0]
    assert result["error"] is None and "value_json" not in result
    assert result["value_error"].startswith("KernelSerializationError: ")


def test_declarations_of_earlier_runs_stay_and_may_be_made_again(driver):
    found = runs(driver, "let a = 1; const b = 2; var c = 3; function d() { return a } class E { v = 5 }", "a + b + c + d() + new E().v",
                 "const a = 10; let b = 20; class E { v = 50 }", "[a, b, d(), new E().v]", "let c = 30; c", "function a() { return 'f' } a()",
                 "var a = 'var'; a", "let d = 'let'; d", "await 1; const a = 'tla'", "a", "const { x, y: [z] } = { x: 1, y: [2] }; [x, z]",
                 "const x = 5; x", "return q = 1", "q", "const r = await 7; return r", "r")
    assert [value(found[i]) for i in (1, 3, 4, 5, 6, 7, 9, 10, 11, 13, 15)] == \
        [12, [10, 20, 10, 50], 30, "f", "var", "let", "tla", [1, 2], 5, 1, 7]


def test_a_constant_stays_constant_within_its_run(driver):
    found = runs(driver, "const k = 1; k", "k = 2", "k", "let k = 3; k = 4; k", "let undefined = 1", "let m = (() => { throw new Error('no') })()", "let m = 2; m",
                 "eval('var k')", "let twice; let twice")
    assert found[1]["error"]["name"] == "TypeError"
    assert [value(found[i]) for i in (2, 3, 6)] == [1, 4, 2]
    assert found[4]["error"]["name"] == "SyntaxError"
    assert found[7]["error"]["name"] == "SyntaxError"
    assert found[8]["error"]["name"] == "SyntaxError"


def test_closures_see_the_newest_declaration(driver):
    found = runs(driver, "let n = 1; const read = () => n", "let n = 2", "read()", "n = 3", "read()")
    assert [value(found[2]), value(found[4])] == [2, 3]


ERRORS = [
    ("throw new TypeError('bad')", "TypeError", "bad", 1), ("\n\nnull.x", "TypeError", None, 3), ("let x = ;", "SyntaxError", None, 1), ("1;\n2;\nlet (", "SyntaxError", None, 3),
    ("function f() {\n  throw new Error('in f');\n}\nf()", "Error", "in f", 2), ("await 1;\nthrow new RangeError('late')", "RangeError", "late", 2),
    ("undefinedName", "ReferenceError", None, 1), ("throw 'text'", "Error", "text", None), ("throw { a: 1 }", "Error", "{ a: 1 }", None), ("throw null", "Error", "null", None),
    ("Promise.reject(new Error('nobody')); 1", "Error", "nobody", 1), ("setTimeout(() => {\n  throw new Error('timer') }, 1); 5", "Error", "timer", 2),
    ("Promise.reject(7)", "Error", "7", None), ("await Promise.reject(new Error('r'))", "Error", "r", 1),
    ("class MyError extends Error { constructor(m) { super(m); this.name = 'MyError'; this.code = 'E_MINE' } }\nthrow new MyError('own')", "MyError", "own", 1),
    ("JSON.parse('{bad')", "SyntaxError", None, 1), ("export const = 1", "SyntaxError", None, 1), ("import x from 'not-there'; x", "Error", None, None),
    ("const f = () => f(); f()", "RangeError", None, 1), ("new Promise((_, no) => no(new URIError('u')))", "URIError", "u", 1),
]


@pytest.mark.parametrize("source, name, message, line", ERRORS)
def test_errors_say_name_message_and_line(driver, source, name, message, line):
    error = runs(driver, source)[0]["error"]
    assert error["name"] == name
    assert message is None or error["message"] == message
    assert error["line"] == line
    assert "cove:" not in error["stack"]


def test_a_stack_has_the_users_frames_and_file(driver):
    source = "function a() {\n  b();\n}\nconst b = () => {\n  [1].forEach(() => { throw new Error('deep') });\n};\na();"
    stack = runs(driver, source, options={"filename": "/app/agent.js"})[0]["error"]["stack"].split("\n")
    assert stack[0] == "Error: deep"
    assert "/app/agent.js:5:" in stack[1]
    assert any(line.strip().startswith("at a (/app/agent.js:2:") for line in stack)
    assert stack[-1].strip().startswith("at /app/agent.js:7:")


@pytest.mark.parametrize("source", ["await new Promise(() => {})", "new Promise(() => {})", "return new Promise(() => {})",
                                    "await Promise.all([1, new Promise(() => {})])", "for await (const x of { [Symbol.asyncIterator]() { return { next() { return new Promise(() => {}) } } } }) {}"])
def test_a_promise_that_nothing_can_settle_ends_at_once(driver, source):
    error = runs(driver, source)[0]["error"]
    assert error["name"] == "DeadlockError" and "never settle" in error["message"]


def test_a_run_waits_for_what_it_left_pending(driver):
    result = runs(driver, "setTimeout(() => console.log('late'), 5); 'value'")[0]
    assert value(result) == "value" and texts(result) == ["late"]


def test_levels_and_order_of_the_log(driver):
    result = runs(driver, "console.log('a', 1); console.warn('b'); console.error({c: 1}); console.info('d'); console.debug('e'); process.stdout.write('par'); process.stdout.write('tial\\nrest')")[0]
    assert [(entry["level"], entry["text"]) for entry in result["logs"]] == \
        [("log", "a 1"), ("warn", "b"), ("error", "{ c: 1 }"), ("info", "d"), ("debug", "e"), ("log", "partial"), ("log", "rest")]
    assert result["stderr"] == "b\n{ c: 1 }\n"


def test_tables(driver):
    found = runs(driver, "console.table([{ a: 1, b: 'x' }, { a: 2, c: true }])", "console.table(['one', { x: 1 }])", "console.table(new Map([['k', 1]]))",
                 "console.table([[1, 2], [3, 4]], ['0'])", "console.table(5)")
    assert texts(found[0])[0].split("\n") == [
        "┌─────────┬───┬─────┬──────┐", "│ (index) │ a │ b   │ c    │", "├─────────┼───┼─────┼──────┤", "│ 0       │ 1 │ 'x' │      │",
        "│ 1       │ 2 │     │ true │", "└─────────┴───┴─────┴──────┘"]
    assert texts(found[1])[0].split("\n")[3:5] == ["│ 0       │   │ 'one'  │", "│ 1       │ 1 │        │"]
    assert texts(found[2])[0].split("\n")[1] == "│ (iteration index) │ Key │ Values │"
    assert texts(found[3])[0].split("\n")[1::2] == ["│ (index) │ 0 │", "│ 0       │ 1 │", "└─────────┴───┘"]
    assert texts(found[4]) == ["5"]


def test_the_log_of_a_run_is_its_own(driver):
    found = runs(driver, "console.group('g'); console.log('one')", "console.log('two')", "throw new Error('x')", "console.log('three')")
    assert texts(found[0]) == ["g", "  one"] and texts(found[1]) == ["two"] and texts(found[3]) == ["three"]


def test_exit_ends_a_run_with_its_code(driver):
    for source, code, logs in [("console.log(1); process.exit(3); console.log(2)", 3, ["1"]), ("try { process.exit(4) } finally { console.log('no') }", 4, []),
                               ("setTimeout(() => process.exit(5), 1); await new Promise(() => {})", 5, []), ("process.exitCode = 6; 1", 6, []),
                               ("Promise.resolve().then(() => process.exit(7)).then(() => console.log('no')); Promise.resolve().then(() => console.log('no'))", 7, [])]:
        result = runs(driver, source)[0]
        assert (result["exit_code"], texts(result), result["error"]) == (code, logs, None), source
    assert runs(driver, "throw new Error()")[0]["exit_code"] == 1


def test_a_run_after_an_exit_or_a_failure_works(driver):
    found = runs(driver, "let k = 1; setTimeout(() => console.log('never'), 1); process.exit(0)", "k + 1", "throw new Error('x')", "k + 2",
                 "await new Promise(() => {})", "k + 3")
    assert [value(found[i]) for i in (1, 3, 5)] == [2, 3, 4]
    assert all(texts(result) == [] for result in found)


def test_final_answers_are_of_one_run(driver):
    found = runs(driver, "__finalAnswer__ = { a: 1 }; 'other'", "2", "__final_answer__ = undefined", "typeof __finalAnswer__")
    assert [result["is_final_answer"] for result in found] == [True, False, True, False]
    assert value(found[0]) == {"a": 1} and value(found[1]) == 2 and found[2]["type"] == "undefined" and value(found[3]) == "undefined"


# ---- env, tools, fetch, files ------------------------------------------------------------------

def test_env_is_frozen_and_process_env_is_a_copy(driver):
    found = runs(driver, "[__env__.KEY, process.env.KEY]", "'use strict'; try { __env__.KEY = 'x' } catch (e) { e.name }", "process.env.NEW = 5; [process.env.NEW, __env__.NEW]",
                 env={"KEY": "v"})
    assert [value(result) for result in found] == [["v", "v"], "TypeError", ["5", None]] or value(found[2]) == [5, None]
    assert runs(driver, "typeof __env__")[0]["output"] == "undefined"


def test_tools_are_called_in_parallel(driver):
    found = runs(driver, "await Promise.all([tools.add({ a: 1, b: 2 }), tools.echo({ x: [1, null] }), codemode.add({ a: 5, b: 5 })])", "await callTool('add', { a: 2, b: 2 })",
                 "await tools.fail({})", "try { await tools.nothing() } catch (e) { [e.name, e.message, e.code] }", "Object.keys(tools)", "await tools",
                 tools=["add", "echo", "fail"])
    assert value(found[0]) == [3, {"x": [1, None]}, 10]
    assert value(found[1]) == 4
    assert found[2]["error"]["name"] == "ToolError" and found[2]["error"]["message"] == "the tool failed" and found[2]["error"]["code"] == "tool_failed"
    assert value(found[3]) == ["ToolError", "the tool failed", "tool_failed"]
    assert value(found[4]) == ["add", "echo", "fail"]
    assert found[5]["error"] is None


def test_fetch_goes_to_the_host(driver):
    found = runs(driver, "const r = await fetch('https://api.test/a?b=1', { method: 'POST', headers: { 'X-K': 'v' }, body: JSON.stringify({ q: 1 }) }); [r.status, r.ok, r.url, r.headers.get('content-type'), await r.json()]",
                 "const s = await fetch('http://api.test/status/404'); [s.status, s.ok, s.statusText]",
                 "const parts = []; for await (const p of (await fetch('http://api.test/x')).body) parts.push(p.length); parts",
                 "try { await fetch('http://denied.test/') } catch (e) { [e.name, e.message, e.code] }",
                 "const c = new AbortController(); const p = fetch('http://api.test/'); c.abort(); (await p).status",
                 "const c2 = new AbortController(); const p2 = fetch('http://api.test/', { signal: c2.signal }); c2.abort(); try { await p2 } catch (e) { e.name }",
                 "const f = new FormData(); f.append('a', 'b'); (await (await fetch('http://api.test/', { method: 'POST', body: f })).json()).headers[0][1].split(';')[0]",
                 "const two = (await fetch('http://api.test/y')).clone(); (await two.text()).length > 10",
                 "await fetch('ftp://x/')")
    status, ok, url, kind, said = value(found[0])
    assert (status, ok, url, kind) == (200, True, "https://api.test/a?b=1", "application/json")
    assert said["method"] == "POST" and said["body"] == '{"q":1}'
    assert said["headers"] == [["content-type", "text/plain;charset=UTF-8"], ["x-k", "v"]]
    assert value(found[1]) == [404, False, "Said"]
    assert len(value(found[2])) > 1 and max(value(found[2])) == 16
    assert value(found[3]) == ["TypeError", "network access denied \u2014 host \"denied\" not in allowedHosts", "denied"]
    assert value(found[4]) == 200
    assert value(found[5]) == "AbortError"
    assert value(found[6]) == "multipart/form-data"
    assert value(found[7]) is True
    assert found[8]["error"]["name"] == "TypeError"


def test_files_without_a_grant_are_denied_with_the_remedy(driver):
    found = runs(driver, "require('fs').readFileSync('/etc/passwd')", "try { await __fs__.readFile('/x') } catch (e) { [e.code, e.message.includes('allowedReadPaths')] }",
                 "require('fs').existsSync('/etc')", "require('./x')")
    assert found[0]["error"]["code"] == "EACCES" and "allowedReadPaths" in found[0]["error"]["message"]
    assert value(found[1]) == ["EACCES", True]
    assert value(found[2]) is False
    assert found[3]["error"]["code"] == "MODULE_NOT_FOUND"


def test_the_older_file_interface(driver, tmp_path):
    found = runs(driver, "await __fs__.writeFile('/f.txt', 'h\u00e9'); await __fs__.readFile('/f.txt')", "Object.isFrozen(__fs__)", root=str(tmp_path))
    assert value(found[0]) == "h\u00e9" and value(found[1]) is True


def test_imports_of_files_at_the_top_of_a_run(driver, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "m.mjs").write_text("export const a = 1; export default function hi() { return 'hi' } export let n = 0; export const bump = () => ++n;")
    (tmp_path / "data.json").write_text('{"k": [1]}')
    found = runs(driver, "import hi, { a as first } from './lib/m.mjs';\nimport data from './data.json' with { type: 'json' };\n[hi(), first, data.k]", "[hi(), first]",
                 "import * as m from '/lib/m.mjs'; m.bump(); m.n", "export const q = 1; console.log(import.meta.url)", "const { default: d } = await import('./lib/m.mjs'); d()",
                 "import.meta.url", root=str(tmp_path))
    assert value(found[0]) == ["hi", 1, [1]]
    assert value(found[1]) == ["hi", 1]
    assert value(found[2]) == 1
    assert texts(found[3]) == ["file:///run.js"]
    assert value(found[4]) == "hi"


# ---- what user code cannot break ---------------------------------------------------------------

POLLUTE = """
for (const C of [Array, Object, String, Function, Map, Set, Promise, RegExp, Number, Date, Error, WeakMap, Uint8Array, Object.getPrototypeOf(Uint8Array)]) {
    for (const key of Reflect.ownKeys(C.prototype)) {
        if (key === 'constructor' || (C === Object && key === '__proto__') || (C === Function && typeof key === 'symbol')) continue;
        try { C.prototype[key] = function () { throw new Error('polluted ' + String(key)) } } catch {}
    }
    for (const key of Object.getOwnPropertyNames(C)) { try { C[key] = () => { throw new Error('polluted static') } } catch {} }
}
for (const N of [Math, JSON, Reflect]) for (const key of Object.getOwnPropertyNames(N)) { try { N[key] = () => { throw new Error('polluted') } } catch {} }
Object.defineProperty(Object.prototype, 'get', { get() { throw new Error('polluted get') }, configurable: true });
Object.defineProperty(Object.prototype, 'value', { set() { throw new Error('polluted value') }, get() { throw new Error('v') }, configurable: true });
for (let i = 0; i < 5; i++) Object.defineProperty(Array.prototype, i, { set() { throw new Error('polluted index') }, configurable: true });
"""


def test_replaced_builtins_break_nothing_of_the_prelude(driver):
    pollute = POLLUTE.replace("for (let i", "globalThis.kept = 1; for (let i")
    found = runs(driver, f"(() => {{ {pollute} }})(); 0", "console.log({ a: [1, 'x', { b: 1 }] }, new Map(), 5); 7", "({ deep: [1] })", "throw new TypeError('still told')",
                 "console.log('%s %d', 'a', 5)", "await new Promise((r) => setTimeout(r, 1)); 3", "new Promise(() => {})")
    assert found[1]["error"] is None and texts(found[1]) == ["{ a: [ 1, 'x', { b: 1 } ] } Map(0) {} 5"]
    assert found[1]["output"] == "7"
    assert found[2]["output"] == "{ deep: [ 1 ] }"
    assert found[3]["error"]["message"] == "still told"
    assert texts(found[4]) == ["a 5"]
    assert found[5]["output"] == "3"
    assert found[6]["error"]["name"] == "DeadlockError"


def test_nothing_of_the_prelude_is_reachable(driver):
    source = """
const seen = new Set(), bad = [];
const walk = (value, path) => {
    if ((typeof value !== 'object' && typeof value !== 'function') || value === null || seen.has(value) || path.length > 12) return;
    seen.add(value);
    for (const key of Reflect.ownKeys(value)) {
        const found = Object.getOwnPropertyDescriptor(value, key);
        if (['uncurry', 'evaluate', 'erase_types', 'begin', 'proxy_parts'].includes(key)) bad.push(path.concat(String(key)).join('.'));
        for (const part of [found.value, found.get, found.set]) walk(part, path.concat(String(key)));
    }
    walk(Object.getPrototypeOf(value), path.concat('__proto__'));
};
walk(globalThis, []);
for (const name of require('module').builtinModules) walk(require(name), [name]);
[bad, seen.size > 1000]
"""
    assert value(runs(driver, source)[0]) == [[], True]


def test_callers_and_handlers_give_no_way_in(driver):
    found = runs(driver, "Error.prepareStackTrace = (e, sites) => sites.map((s) => s.getFunction && s.getFunction()).filter(Boolean).length; const n = []; try { require('fs').readFileSync(5) } catch (e) { n.push(e.stack) }; Error.prepareStackTrace = undefined; n.length",
                 "Object.prototype.toJSON = () => 'x'; const t = await tools.echo({ a: 1 }); delete Object.prototype.toJSON; typeof t", tools=["echo"])
    assert value(found[0]) == 1 and found[1]["error"] is None


def test_contexts_do_not_see_each_other(driver):
    requests = [{"configure": {"env": {"S": "1"}}, "runs": [{"source": "globalThis.leak = 1; Array.prototype.leak = 2; process.env.X = 'y'; Math.random()"}]},
                {"configure": {}, "runs": [{"source": "[typeof leak, [].leak, process.env.X, process.env.S, Math.random()]"}]}]
    first, second = compare.run_driver(driver, requests)
    assert value(second[0])[:4] == ["undefined", None, None, None]
    assert value(second[0])[4] != value(first[0])


def test_random_numbers_are_fit_for_use(driver):
    found = value(runs(driver, "const n = Array.from({ length: 10000 }, Math.random); [Math.min(...n) >= 0, Math.max(...n) < 1, Math.abs(n.reduce((a, b) => a + b) / 10000 - 0.5) < 0.03, new Set(n).size]")[0])
    assert found == [True, True, True, 10000]
