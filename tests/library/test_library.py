"""libcove as its users have it: by pkg-config and the header that is installed, in programs of theirs."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "box"))
import harness  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = harness.BUILD / "src" / "lib"


def flags_of(*words, **more):
    return subprocess.run(["pkg-config", *words, "cove"], env={**os.environ, **more}, check=True,
                          capture_output=True, text=True).stdout.split()


def build(source, target, flags=None):
    """With what `cove.pc` says of a build that is not installed, or these."""
    if flags is None:
        flags = flags_of("--cflags", "--libs", PKG_CONFIG_PATH=str(harness.BUILD / "meson-uninstalled"))
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


if harness.EXPECT.is_root:  # whose the build is, and with it the log of what was installed
    test_what_is_installed_is_found_by_pkg_config = is_found_by_pkg_config


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
