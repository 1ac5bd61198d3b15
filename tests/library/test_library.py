"""libcove as its users have it: by pkg-config and the header that is installed, in programs of theirs."""
import json
import os
import pathlib
import re
import subprocess

import pytest

import harness

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = harness.BUILD / "src" / "lib"


def flags_of(*words, **more):
    return subprocess.run(["pkg-config", *words, "cove"], env={**os.environ, **more}, check=True,
                          capture_output=True, text=True).stdout.split()


def build(source, target, flags=None):
    """With what `cove.pc` says of a build that is not installed, or these. The tree may have been copied since,
    to where who runs the tests can read it."""
    if flags is None:
        flags = flags_of(f"--define-variable=prefix={harness.BUILD}", f"--define-variable=srcdir={harness.ROOT}",
                         "--cflags", "--libs", PKG_CONFIG_PATH=str(harness.BUILD / "meson-uninstalled"))
    subprocess.run(["gcc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pedantic",
                    "-Wno-overlength-strings", "-o", target, source, *flags, "-pthread"], check=True)
    return target


def run(*words, library=LIBRARY, **more):
    return subprocess.run(words, env={**os.environ, "LD_LIBRARY_PATH": str(library), "SECRET": "s"},
                          capture_output=True, text=True, timeout=120 * harness.PATIENCE, **more)


@pytest.fixture(autouse=True)
def nothing_left():
    before = harness.host()
    yield
    harness.check_nothing_left(before)


def test_the_example_runs_a_command(tmp_path):
    example = build(harness.ROOT / "examples" / "run_one.c", tmp_path / "run_one")
    said = run(example, "sh", "-c", "echo hi; exit 3")
    assert (said.returncode, said.stdout) == (0, "hi\n"), said
    assert said.stderr.startswith("exit code 3, signal 0;"), said
    assert run(example, "no-such-program").returncode == 125


@pytest.fixture
def installed(tmp_path):
    """As a package is made: below a directory that stands for its root. Where it is, and the prefix."""
    root = tmp_path / "root"
    build_directory = harness.BUILD
    prefix = subprocess.run(["meson", "introspect", "--buildoptions", build_directory], check=True,
                            capture_output=True, text=True).stdout
    prefix = next(option["value"] for option in json.loads(prefix) if option["name"] == "prefix")
    subprocess.run(["meson", "install", "-C", build_directory, "--no-rebuild", "--quiet"], check=True,
                   env={**os.environ, "DESTDIR": str(root)}, capture_output=True)
    return root, prefix


def is_found_by_pkg_config(tmp_path, installed):
    root, prefix = installed
    below = root / prefix.lstrip("/")
    described = next(below.rglob("cove.pc"))
    where = {"PKG_CONFIG_LIBDIR": str(described.parent), "PKG_CONFIG_SYSROOT_DIR": str(root)}
    flags = flags_of("--cflags", "--libs", **where)
    library = described.parent.parent
    assert f"-I{below}/include" in flags and f"-L{library}" in flags and "-lcove" in flags, flags
    version = subprocess.run([below / "bin" / "cove", "version"], check=True, capture_output=True,
                             text=True).stdout.split()[1]
    assert flags_of("--modversion", **where) == [version]
    example = build(harness.ROOT / "examples" / "run_one.c", tmp_path / "run_one", flags)
    needed = subprocess.run(["readelf", "-d", example], check=True, capture_output=True, text=True).stdout
    assert "[libcove.so.0]" in needed and (library / "libcove.so.0").exists()
    said = run(example, "sh", "-c", "echo hi; exit 3", library=library)
    assert (said.returncode, said.stdout) == (0, "hi\n"), said


def is_all_removed(installed):
    root, _ = installed
    assert sum(path.is_file() for path in root.rglob("*")) > 40
    subprocess.run([harness.ROOT / "scripts" / "uninstall.sh"], check=True, capture_output=True,
                   env={**os.environ, "DESTDIR": str(root), "BUILD": str(harness.BUILD)})
    assert [path for path in root.rglob("*") if not path.is_dir()] == []
    assert not list(root.rglob("cove")), "a directory of its own"


if harness.EXPECT.is_root:  # whose the build is, and with it the log of what was installed
    test_what_is_installed_is_found_by_pkg_config = is_found_by_pkg_config
    test_uninstall_removes_all_that_install_made = is_all_removed


def test_all_that_the_header_promises(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "file").write_text("kept")
    os.chmod(tmp_path, 0o755)
    embedder = build(HERE / "embedder.c", tmp_path / "embedder")
    ended = run(embedder, "-", str(tmp_path / "shared"))
    assert ended.returncode == 0, ended
    said = iter(ended.stdout.replace("\n]", "]").split("\nexit "))
    plain = "signal 0 timed_out 0 cancelled 0 oom 0 dropped 0"
    assert next(said) == f"exit 7 {plain} out [out] err [err]"
    assert next(said) == f"0 {plain} out [text] err []"
    assert next(said).startswith(f"0 {plain} out [hello C /home/user\n/tmp] err []")
    shared = next(said)
    assert "out [kept]" in shared and "Read-only" in shared, shared
    assert next(said).startswith("-1 signal 0 timed_out 1 cancelled 0 oom 0 dropped 0 out [begun]")
    assert next(said).startswith("-1 signal 0 timed_out 0 cancelled 1")
    tail = next(said)
    assert tail.startswith("0 signal 0") and "dropped 588883 out [9999\n100000" in tail, tail
    assert next(said).startswith("-1 signal 9 timed_out 0 cancelled 0 oom 1")
    segv = next(said).split("\n")
    assert segv[0].startswith("-1 signal 11"), segv
    assert segv[1].startswith("failed command_not_found: no-such-program is not in the box")
    assert segv[2].startswith("failed bad_value: argv names no command")
    assert segv[3].startswith("failed cwd_missing: the directory /no/such")
    assert next(said) == f"0 {plain} out [4194304] err []"
    assert next(said).split("\n") == [f"0 {plain} out [] err []", "threads 0 failures", "fds 0 mask 0", ""]


def test_the_example_runs_javascript(tmp_path):
    example = build(harness.ROOT / "examples" / "run_js.c", tmp_path / "run_js")
    said = run(example, "console.log('hi'); (await Promise.all([1, 2, 3].map((n) => tools.square(n)))).join()")
    assert (said.returncode, said.stdout) == (0, "hi\n1,4,9\n"), said
    said = run(example, "while (true) {}")
    assert said.returncode == 1 and "cpu: the run used up its 1000 ms" in said.stderr, said


def value(output, kind, json_of_it=None):
    return f"value [{output}] type [{kind}] value [{output if json_of_it is None else json_of_it}] thrown [: ] line 0 exit 0 lost 0 logs 0"


def thrown(message, line=0):
    return f"error [] type [] value [] thrown [{message}] line {line} exit 1 lost 0 logs 0"


def test_all_that_the_header_promises_of_kernels(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "file").write_text("kept")
    for path in (tmp_path, tmp_path / "shared"):
        os.chmod(path, 0o755)
    ended = run(build(HERE / "kernels.c", tmp_path / "kernels"), str(tmp_path / "shared"))
    assert ended.returncode == 0, ended
    assert ended.stdout.splitlines() == [
        # runs
        value("{ a: [ 1, 'b' ] }", "object", '{"a":[1,"b"]}'),
        thrown("TypeError: no", 2),
        value("undefined", "undefined", "").replace("logs 0", "logs 2"),
        value("7", "number"),
        value("1", "number"),
        "cpu [] type [undefined] value [] thrown [TimeoutError: the run used up its 20 ms of CPU time; allow more with cpuMs"
        " (--cpu-ms)] line 0 exit 1 lost 0 logs 0",
        thrown("DeadlockError: the run waits for a promise that can never settle: no timer, no request and no tool call"
               " is pending").replace("error", "deadlock", 1),
        value("", "").replace("exit 0", "exit 3"),
        thrown("Error: EACCES: permission denied, open '/etc/passwd': it is not granted; allow it with allowedReadPaths"
               " (--allow-read)", 1),
        thrown("TypeError: the host 'example.com' is denied: allow it with allowedHosts (--allow-host example.com)"),
        value("undefined", "string", '"undefined"'),
        "log 2 [w] errors [w",
        "]",
        "has_value 0 because [KernelSerializationError: BigInt are forbidden in JSON.stringify]",
        "code [E1]",
        # tools
        value('[{"x":"é"},2]', "string", r'"[{\"x\":\"é\"},2]"'),
        value("SyntaxError", "string", '"SyntaxError"'),
        thrown("Error: not today"),
        thrown("Error: this kernel runs and waits for a callback, which cannot use it"),
        thrown("Error: the host answered a tool with a response"),
        thrown("Error: the host gave no answer"),
        thrown("Error: the tool 'other' is denied: name it among the `tools` of this kernel", 1),
        thrown("Error: this kernel's host answers no tool"),
        # fetch
        value("201,1,2,POST http://some.test/a?b [text] content-type=text/plain;charset=UTF-8 x-a=é b", "string",
              '"201,1,2,POST http://some.test/a?b [text] content-type=text/plain;charset=UTF-8 x-a=é b"'),
        value("3000000", "number"),
        value("7", "number"),
        value("64 too many answers are open: read them or cancel them first", "string",
              '"64 too many answers are open: read them or cancel them first"'),
        thrown("TypeError: the host 'other.test' is denied: allow it with allowedHosts (--allow-host other.test)"),
        thrown("TypeError: the host 'other.test' is denied: allow it with allowedHosts (--allow-host other.test)"),
        thrown("TypeError: 10.0.0.1 port 80 for 'some.test' is denied (private): allow it with `hosts`, if a rule can"),
        thrown("TypeError: fetch failed: the host answered a request without a response"),
        "public 0",
        "other -1",
        "failed denied: 169.254.169.254 port 80 for 'some.test' is denied (metadata): allow it with `hosts`, if a rule can",
        thrown("TypeError: no host can be reached: the program that runs this kernel gave it no fetch function"
               " (struct cove_grants)"),
        # files
        value("kept", "string", '"kept"'),
        "failed bad_manifest: the path '/no/such/place' cannot be granted: No such file or directory",
        # copies
        value("1", "number"), value("2", "number"), value("12", "number"), value("22", "number"),
        "failed bad_snapshot: this snapshot cannot be restored: its signature is wrong: it was changed, or made with another key",
        # stops
        *3 * [thrown("Error: the run was stopped").replace("error", "stopped", 1).replace("type []", "type [undefined]")],
        value("5", "number"),
        "threads 0 failures",
        "own fault caught",
    ]
    assert (tmp_path / "shared" / "new").read_text() == "n"


def test_the_hosts_own_addresses_are_not_dialled(tmp_path):
    """In a network in which there is an address that could be anybody's."""
    kernels = build(HERE / "kernels.c", tmp_path / "kernels")
    done = run("unshare", "--map-root-user", "--net", "sh", "-ec", 'ip link set lo up; ip address add 203.0.113.9 dev lo; exec "$0" "$@"',
               kernels, "203.0.113.9", "203.0.113.10")
    denied = "failed denied: 203.0.113.9 port 80 for '{}' is denied (host): allow it with `hosts`, if a rule can"
    assert done.stdout.splitlines() == ["other 0", denied.format("203.0.113.9"), denied.format("some.test")], done


def test_it_links_libc_alone_and_shows_only_what_the_header_names():
    library = LIBRARY / "libcove.so"
    dynamic = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True)
    assert [line.split("[")[1] for line in dynamic.stdout.splitlines() if "NEEDED" in line] == ["libc.so.6]"]
    names = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True,
                           text=True).stdout
    header = (harness.ROOT / "include" / "cove.h").read_text()
    assert {line.split()[-1] for line in names.splitlines()} == set(re.findall(r"^COVE_API [^;(]*?(\w+)\(", header, re.M))
