"""libcove as its users have it: by pkg-config and the header that is installed, in programs of theirs."""
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "box"))
import harness  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = harness.BUILD / "src" / "lib"


def build(source, target):
    """With what `cove.pc` says of a build that is not installed."""
    path = {**os.environ, "PKG_CONFIG_PATH": str(harness.BUILD / "meson-uninstalled")}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "cove"], env=path, check=True,
                           capture_output=True, text=True).stdout.split()
    subprocess.run(["gcc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pedantic",
                    "-Wno-overlength-strings", "-o", target, source, *flags, "-pthread"], check=True)
    return target


def run(*words, **more):
    return subprocess.run(words, env={**os.environ, "LD_LIBRARY_PATH": str(LIBRARY), "SECRET": "s"},
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


def test_it_links_libc_alone_and_shows_only_what_the_header_names():
    library = LIBRARY / "libcove.so"
    dynamic = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True)
    assert [line.split("[")[1] for line in dynamic.stdout.splitlines() if "NEEDED" in line] == ["libc.so.6]"]
    names = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True,
                           text=True).stdout
    assert {line.split()[-1] for line in names.splitlines()} == {"cove_run", "cove_result_free", "cove_version"}
