"""`cove js`: what is printed where, exit statuses, limits and grants, and what only shows where engine, natives, prelude
and eraser of types are together."""
import json
import os
import pathlib
import pty
import subprocess

import pytest

BUILD = pathlib.Path(os.environ.get("BUILD", "build"))
COVE = os.environ.get("COVE", str(BUILD / "test/cove"))


def js(*words, stdin="", cwd=None):
    return subprocess.run([os.path.abspath(COVE), "js", *words], input=stdin, capture_output=True, text=True,
                          timeout=120, cwd=cwd, check=False)


def result(*words, **more):
    done = js("--json", *words, **more)
    found = json.loads(done.stdout)
    assert done.stderr == "" and found["exit_code"] == done.returncode
    return found


@pytest.mark.parametrize("code, printed", [
    ("1 + 1", "2\n"),
    ("'text'", "text\n"),
    ("await Promise.resolve(7)", "7\n"),
    ("[1, 2].map((x) => x * 2).length", "2\n"),
])
def test_the_value_of_the_last_expression_is_printed(code, printed):
    done = js("-e", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


def test_the_examples_of_the_help_work(tmp_path):
    (tmp_path / "script.ts").write_text("const n: number = 7; n")
    _, _, examples = js("--help").stdout.partition("Examples:\n")
    found = [line.strip() for line in examples.splitlines() if line.strip() != ""]
    assert len(found) >= 3 and all(line.startswith("cove js ") for line in found)
    for line in found:
        done = subprocess.run(["sh", "-c", f"cove() {{ '{os.path.abspath(COVE)}' \"$@\"; }}; {line}"], cwd=tmp_path, capture_output=True,
                              text=True, timeout=120, check=False)
        assert done.returncode == 0 and done.stdout.strip() != "" and done.stderr == "", (line, done)


def test_the_log_goes_where_it_belongs():
    done = js("-e", "console.log('one'); console.error('two'); 'three'")
    assert (done.returncode, done.stdout, done.stderr) == (0, "one\nthree\n", "two\n")


def test_what_is_thrown_is_said_with_its_place():
    done = js("-e", "\nthrow new TypeError('bad')")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("Uncaught TypeError: bad\n") and ":2" in done.stderr


def test_a_file_standard_input_and_arguments(tmp_path):
    script = tmp_path / "script.js"
    script.write_text("2 * 21")
    assert js(str(script)).stdout == "42\n"
    assert js("-", stdin="'from stdin'").stdout == "from stdin\n"
    missing = js(str(tmp_path / "none.js"))
    assert missing.returncode == 125 and "none.js: the script cannot be read" in missing.stderr
    nothing = js()
    assert nothing.returncode == 125 and "cove js -e CODE" in nothing.stderr


def test_json_has_all_of_it():
    found = result("-e", "console.log('x'); ({a: [1, null, '\\u20ac']})")
    assert found["value"] == {"a": [1, None, "€"]}
    assert found["logs"] == [{"level": "log", "text": "x"}]
    assert found["error"] is None and not found["timed_out"] and not found["oom_killed"]
    assert found["cpu_ms"] > 0 and found["memory_bytes"] > 0
    found = result("-e", "throw new RangeError('far')")
    assert found["exit_code"] == 1
    assert (found["error"]["name"], found["error"]["message"]) == ("RangeError", "far")


def test_time_is_limited():
    found = result("--cpu-ms", "50", "-e", "while (true) {}")
    assert found["exit_code"] == 124 and found["timed_out"] and "--cpu-ms" in found["error"]["message"]
    found = result("--cpu-ms", "50", "-e", "'a'.repeat(2e5).indexOf('a'.repeat(1e5) + 'b')")
    assert found["exit_code"] == 124 and found["timed_out"]
    found = result("-e", "await new Promise(() => {})")
    assert found["exit_code"] == 1 and found["error"]["kind"] == "deadlock"


def test_numbers_as_keys_take_no_longer_than_strings():
    """With the engine's own hash all small numbers shared a few lists, and this took three seconds."""
    code = "const m = new Map(); for (let i = 0; i < 1e6; i++) m.set(i % 1024, 1 + (m.get(i % 1024) ?? 0)); m.get(7)"
    found = result("--cpu-ms", "1000", "-e", code)
    assert found["value"] == 977, found["error"]


def test_memory_that_a_text_needs_is_said():
    found = result("--memory", "64M", "-e", "'\\u0344'.repeat(3e6).normalize('NFD')")
    assert found["oom_killed"] and "out of memory" in found["error"]["message"]


def test_memory_is_limited():
    found = result("--memory", "32M", "-e", "const a = []; while (true) a.push(new ArrayBuffer(1 << 20))")
    assert found["exit_code"] == 1 and found["oom_killed"] and "memory" in found["error"]["message"]
    done = js("--memory", "1K", "-e", "1")
    assert done.returncode == 125 and "too little" in done.stderr


@pytest.mark.parametrize("words, said", [
    (["--cpu-ms", "0", "-e", "1"], "--cpu-ms"),
    (["--memory", "9G", "-e", "1"], "up to 4G"),
    (["--env", "X", "-e", "1"], "NAME=VALUE"),
    (["--allow-read", "/no/such/place", "-e", "1"], "/no/such/place"),
    (["-e", "1", "-e", "2"], "there is code already"),
])
def test_wrong_words_are_refused(words, said):
    done = js(*words)
    assert done.returncode == 125 and said in done.stderr and done.stdout == ""


def test_files_are_read_and_written_where_that_is_granted(tmp_path):
    file = tmp_path / "data.json"
    file.write_text('{"a": 1}')
    read = f"JSON.parse(require('fs').readFileSync('{file}', 'utf8')).a"
    assert js("--allow-read", str(tmp_path), "-e", read).stdout == "1\n"
    found = result("-e", read)
    assert found["error"]["code"] == "EACCES" and "--allow-read" in found["error"]["message"]
    write = f"require('fs').writeFileSync('{tmp_path}/new', 'text'); 1"
    assert "--allow-write" in result("--allow-read", str(tmp_path), "-e", write)["error"]["message"]
    assert js("--allow-write", str(tmp_path), "-e", write).returncode == 0
    assert (tmp_path / "new").read_text() == "text"
    (tmp_path / "lib.mjs").write_text("export const seven = 7")
    assert js("--allow-read", str(tmp_path), "-e", f"const m = await import('{tmp_path}/lib.mjs'); m.seven").stdout == "7\n"


def test_typescript(tmp_path):
    code = "enum E { A = 1, B }\ninterface I { a: E }\nclass P { constructor(readonly x: number) {} }\nconst v: I = { a: E.B };\n[v.a, new P(3).x, E[2]]"
    assert js("--ts", "-e", code).stdout == "[ 2, 3, 'B' ]\n"
    script = tmp_path / "script.ts"
    script.write_text(code + "\nthrow new Error('line six' as string)")
    assert f"{script}:6" in js(str(script)).stderr
    error = result("--ts", "-e", "\nconst a: = 1")["error"]
    assert (error["name"], error["line"], error["column"]) == ("SyntaxError", 2, 10)
    assert error["stack"].startswith("SyntaxError: ") and ":2:10" in error["stack"]


def test_random_numbers_are_of_this_run_alone():
    code = "[Math.random(), crypto.randomUUID(), crypto.getRandomValues(new Uint32Array(2)).join()].join(' ')"
    found = [js("-e", code).stdout.split() for _ in range(8)]
    assert all(len(set(column)) == 8 for column in zip(*found, strict=True))


def test_a_run_ends_where_it_says_so():
    done = js("-e", "process.on('exit', () => console.log('bye')); setTimeout(() => process.exit(3), 1); await new Promise(() => {})")
    assert done.returncode == 3
    done = js("-e", "try { process.exit(4) } finally { console.log('not this') } 5")
    assert (done.returncode, done.stdout) == (4, "")
    assert js("-e", "process.exitCode = 5; 'x'").returncode == 5


def test_no_host_is_reached_without_a_grant():
    found = result("-e", "await fetch('http://example.com:81/x')")
    assert found["error"]["code"] == "EACCES"
    assert "the host 'example.com' is denied" in found["error"]["message"] and "--allow-host example.com" in found["error"]["message"]
    assert "denied" in result("--allow-host", "example.org", "-e", "await fetch('https://example.com')")["error"]["message"]
    assert "loopback" in result("--allow-host", "*", "-e", "await fetch('http://127.0.0.1')")["error"]["message"]
    assert js("--allow-host", "not a rule", "-e", "1").returncode == 125


def test_a_terminal_is_asked_line_by_line():
    ours, theirs = pty.openpty()
    with subprocess.Popen([os.path.abspath(COVE), "js"], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        os.close(theirs)
        os.write(ours, b"let a = 20\nfunction f() {\nreturn a + 1\n}\nf() * 2\nlet a = 'again'; a\nthrow new Error('x')\na(\n\n'still here'\n\x04")
        out, err = (text.decode() for text in program.communicate(timeout=60))
    os.close(ours)
    assert program.returncode == 0
    assert out.replace("> ", "").replace("... ", "") == "42\nagain\nstill here\n\n", out
    assert "Uncaught Error: x" in err and "SyntaxError" in err
