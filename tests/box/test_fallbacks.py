"""What older kernels lack, switched off in test builds: each fallback runs and holds the same
walls, or refuses with a sentence. A release has no such switch."""
import json
import os
import pathlib
import re
import subprocess

import pytest

import harness
from harness import attack, cove, run
from postures import layers_left, mounts_of, posture

FEATURES = ("landlock", "cgroup2", "idmap", "tmpfsxattr")

# Where all limits are cgroup v2's, nothing is left to fall back to.
HAS_V1 = any(not (pathlib.Path(root) / "cgroup.controllers").exists()
             for root in harness.cgroup_roots())


def features(*names):
    return [name for name in names if HAS_V1 or "cgroup2" not in name]



def has_switches():
    return b"COVE_TEST_OFF" in harness.COVE.read_bytes()


needs_switches = pytest.mark.skipif(
    not has_switches(), reason="the binary under test is a release, which has no switches")


@pytest.fixture
def off(monkeypatch):
    def switch(*features):
        monkeypatch.setenv("COVE_TEST_OFF", ",".join(features))
    return switch


def test_the_binary_under_test_has_the_switches_where_a_test_build_exists():
    """Else every test below would be passed over unnoticed."""
    built = (harness.BUILD / "test" / "cove").exists()
    assert has_switches() or not built or "COVE" in os.environ


@pytest.mark.skipif(not harness.RELEASE.exists(), reason="there is no release build beside")
def test_a_release_ignores_the_switch(off, busybox, workspace):
    assert b"COVE_TEST_OFF" not in harness.RELEASE.read_bytes()
    off(*FEATURES)
    result = cove("run", "--json", "--workspace", workspace, "--root", busybox, "--", "/bin/sh",
                  "-c",
                  "grep -c idmapped /proc/self/mountinfo", binary=harness.RELEASE)
    assert result.code == 0 and b'"stdout":"1' in result.out.replace(b" ", b""), (result.out,
                                                                                  result.err)


@needs_switches
def test_the_switches_do_something(off, workspace):
    """A switch that is misspelt here would test nothing."""
    off("idmap")
    assert cove("run", "--workspace", workspace, "--", "true").code == 125
    off("nothing-of-the-kind")
    assert cove("run", "--workspace", workspace, "--", "true").code == 0


@needs_switches
@pytest.mark.parametrize("feature", features("landlock", "cgroup2", "tmpfsxattr", "landlock,cgroup2"))
@pytest.mark.parametrize("entry", [29, 33, 39, 41, 42, 43, 46, 47, 57, 61])
def test_walls_hold_without(feature, entry, off):
    off(feature)
    attack(entry)


@needs_switches
def test_without_any_cgroup_there_is_a_watchdog(off):
    off("cgroup2")
    result = run("true", "--memory", "64M")
    has_cgroup = HAS_V1 and harness.EXPECT.is_root
    assert result.report["limits"] == ("cgroup" if has_cgroup else "rlimit")


@needs_switches
def test_what_is_weaker_is_said_once_and_can_be_silenced(off, tmp_path):
    """Once for each user and start of the machine, which is where the file of what was said lies."""
    off("freshproc")

    def said(*options, **env):
        done = subprocess.run([harness.COVE, "run", "--allow-level", "no-fresh-proc", *options, "--", "true"],
                              stdin=subprocess.DEVNULL, capture_output=True, check=True,
                              env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), **env}, timeout=60 * harness.PATIENCE)
        return done.stdout, done.stderr

    line = rb"cove: warning: level=no-fresh-proc .*; cove doctor says more\n"
    assert said("--no-warnings") == said(COVE_WARNINGS="none") == (b"", b"")
    assert said("--json")[1] == b"" and not (tmp_path / "cove").exists(), "who was told nothing is told later"
    assert re.fullmatch(line, said()[1])
    assert said() == (b"", b"")
    warned = tmp_path / "cove" / "warned"
    assert warned.stat().st_mode & 0o777 == 0o600
    warned.write_text("of-another-start " + warned.read_text(encoding="utf-8").split(" ", 1)[1], encoding="utf-8")
    assert re.fullmatch(line, said()[1]) and said() == (b"", b"")
    (tmp_path / "cove").chmod(0o755)  # others could write that it was said
    assert re.fullmatch(line, said()[1]) and re.fullmatch(line, said()[1])
    out, errors = said("--json")
    assert errors == b"" and ["level=no-fresh-proc" in each for each in json.loads(out)["warnings"]] == [True]


@needs_switches
@pytest.mark.parametrize("feature", features("landlock", "cgroup2", "tmpfsxattr"))
def test_limits_hold_without(feature, off):
    off(feature)
    _, values = attack(1, options=("--pids", "64"))
    assert values["processes"] < 64
    result, _ = attack(3, options=("--memory", "64M"), killed=True)
    assert result.report["oom_killed"]
    _, values = attack(6, options=("--disk", "32M", "--memory", "256M"))
    assert values["bytes"] <= 33 << 20


@needs_switches
@pytest.mark.parametrize("feature", features("landlock", "cgroup2", "tmpfsxattr"))
def test_image_roots_work_without(feature, off, debian, erofs):
    off(feature)
    script = "rm -r /usr/share/bash-completion /etc/apt; mkdir /etc/apt; echo x > /etc/new; ls /etc/apt; cat /etc/new"
    result = run(script, "--root", debian, "--privileges", "system")
    assert (result.report["exit_code"], result.stdout) == (0, "x\n"), result.stderr
    assert not (debian / "etc/new").exists() and (debian / "etc/apt").exists()
    assert run(["/bin/ls", "/lower"], "--root", erofs).report["exit_code"] == 0


@needs_switches
def test_disk_and_inodes_are_capped_on_the_loop_device_too(off, debian):
    """Twice, for /dev/shm is a file system of its own beside it."""
    off("tmpfsxattr")
    options = ("--root", debian, "--privileges", "system", "--memory", "512M")
    _, values = attack(6, options=(*options, "--disk", "48M"))
    assert values["bytes"] <= 2 * 49 << 20
    _, values = attack(7, options=(*options, "--disk", "64M,2000"))
    assert values["files"] <= 2 * 2300


@needs_switches
def test_the_loop_device_goes_with_a_killed_cove(off, debian):
    off("tmpfsxattr")
    before = harness.host()
    for step in range(harness.scaled(8, 3)):
        box = harness.start("sleep 60", "--root", debian, "--privileges", "system",
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            box.wait(timeout=0.004 * step)
        except subprocess.TimeoutExpired:
            box.kill()
            box.wait()
    harness.check_nothing_left(before)


@needs_switches
def test_a_workspace_that_cannot_be_mapped_is_refused_with_the_remedy(off, workspace):
    off("idmap")
    (workspace / "file").write_text("x")
    result = cove("run", "--workspace", workspace, "--", "true")
    text = result.err.decode()
    assert result.code == 125 and len(text.splitlines()) == 1
    assert str(workspace) in text and ("map" in text or "Linux" in text), text
    assert (workspace / "file").stat().st_uid == os.getuid(), "never chown"


@needs_switches
def test_an_image_whose_ids_cannot_be_mapped(off, debian):
    """It works where the range can be the image's, or is refused in one line; it is never
    changed."""
    off("idmap")
    before = (debian / "etc/passwd").stat()
    result = cove("run", "--root", debian, "--privileges", "system", "--", "sh", "-c",
                  "echo x >> /etc/passwd; true")
    assert result.code in (0, 125)
    if result.code == 125:
        assert len(result.err.splitlines()) == 1
    after = (debian / "etc/passwd").stat()
    assert (before.st_uid, before.st_size, before.st_mtime) == (after.st_uid, after.st_size,
                                                                after.st_mtime)


@needs_switches
@pytest.mark.parametrize("feature", features("landlock", "cgroup2", "landlock,cgroup2"))
def test_ending_works_without(feature, off):
    off(feature)
    result = run('trap "" TERM; (setsid sleep 60 &); sleep 60', "--timeout", "500ms")
    assert result.report["timed_out"] and result.seconds < 15 * harness.PATIENCE
    for step in range(harness.scaled(10, 3)):
        box = harness.start("sleep 60", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            box.wait(timeout=0.001 * step)
        except subprocess.TimeoutExpired:
            box.kill()
            box.wait()


@needs_switches
def test_posture_is_the_same_without_landlock_and_v2_but_for_its_layer(off):
    whole = posture()
    off(*features("landlock", "cgroup2"))
    without = posture()
    vary = ("status", "init_status", "uid_map", "gid_map", "mountinfo", "cgroup")
    for key in whole:
        if key not in (*vary, "landlock_layers") and not key.startswith("ns_"):
            assert whole[key] == without[key], key
    assert whole["landlock_layers"] == layers_left()
    assert without["landlock_layers"] == layers_left(is_confined=False)
    assert mounts_of(whole) == mounts_of(without)
