"""Builds the attack programs once, and holds every test to the same rule: the host is healthy after
it, and nothing of a box is left."""
import fcntl
import os
import pathlib
import shutil
import subprocess

import pytest

import harness

TEST_PROGRAMS = harness.ROOT / "scripts" / "test-programs.sh"


def is_older(target, sources):
    """What is not there cannot be newer: a guest has the programs only."""
    return not target.exists() or any(
        source.exists() and source.stat().st_mtime > target.stat().st_mtime for source in sources)


def build_attacks():
    """Static, so that they run in a box with any root."""
    harness.ATTACKS.mkdir(parents=True, exist_ok=True)
    sources = sorted((harness.HERE / "attacks").glob("*.c"))
    target = harness.ATTACKS / "attack"
    if not is_older(target, [*sources, harness.HERE / "attacks" / "attack.h"]):
        return
    subprocess.run([TEST_PROGRAMS, "attack", target], check=True)


@pytest.fixture(scope="session")
def commands():
    """Runs several commands in one box, through the library of the binary under test."""
    build = harness.COVE.parent
    libraries = [build / "src/box/libbox.a", build / "src/base/libbase.a"]
    source = harness.HERE / "drivers" / "commands.c"
    target = harness.ATTACKS.parent / "drivers" / f"commands-{build.name}"
    target.parent.mkdir(exist_ok=True)
    if is_older(target, [source, *libraries, harness.ROOT / "src/box/box.h"]):
        subprocess.run([TEST_PROGRAMS, "driver", target, build], check=True)

    def drive(profile, *words, limit=60, **more):
        environment = dict(os.environ, COVE_TEST_ATTACKS=str(harness.ATTACKS))
        return subprocess.run([target, profile, *map(str, words)], capture_output=True, text=True,
                              timeout=limit, stdin=subprocess.DEVNULL, env=environment, check=False,
                              **more)

    return drive


ROOT_PACKAGES = "sudo,passwd,procps,libcap2-bin"


def build_debian(target):
    """A small Debian root with apt, su and sudo, made once."""
    marker = target / ".cove-test-root"
    wanted = f"2 {ROOT_PACKAGES}"
    if marker.exists() and marker.read_text() == wanted:
        return
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(
        ["mmdebstrap", "--variant=apt", f"--include={ROOT_PACKAGES}", "--mode=root",
         "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
         "--dpkgopt=path-exclude=/usr/share/locale/*", "bookworm", str(target)],
        check=True, capture_output=True, timeout=300)
    subprocess.run(["chroot", target, "/usr/sbin/useradd", "-m", "-s", "/bin/bash", "-u", "1000",
                    "user"],
                   check=True, capture_output=True)
    sudoers = target / "etc" / "sudoers.d" / "user"
    sudoers.write_text("user ALL=(ALL) NOPASSWD: ALL\n")
    sudoers.chmod(0o440)
    marker.write_text(wanted)


def pytest_configure(config):
    del config
    harness.BUILD.mkdir(parents=True, exist_ok=True)
    with open(harness.BUILD / ".attacks.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build_attacks()


def pytest_report_header(config):
    del config
    return f"cove under test: {harness.COVE}"


@pytest.fixture(scope="session")
def last_look():
    """The host after the last test, which is the host before the next one."""
    return []


@pytest.fixture(autouse=True)
def host_is_as_before(last_look):
    before = last_look.pop() if last_look else harness.host()
    yield
    last_look.append(harness.check_nothing_left(before))
    harness.check_host_healthy()


@pytest.fixture(scope="session")
def debian():
    target = harness.BUILD / "testroot"
    with open(harness.BUILD / ".testroot.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build_debian(target)
    return target


@pytest.fixture(scope="session")
def busybox(tmp_path_factory):
    """A root of one program and its links: quick to make, and what an image may be at least."""
    root = tmp_path_factory.mktemp("covetest-busybox")
    for name in ("bin", "etc", "tmp", "usr/bin", "lower"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin" / "busybox")
    for name in ("sh", "ls", "cat", "id", "echo", "true", "sleep", "rm", "mkdir", "stat", "cp",
                 "touch", "find", "grep", "head", "wc", "env", "mount", "chmod", "ps", "kill"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "usr/bin/env").symlink_to("/bin/busybox")
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nuser:x:1000:\nstaff:x:50:user\n")
    (root / "tmp").chmod(0o1777)
    return root


@pytest.fixture(scope="session")
def erofs(busybox, tmp_path_factory):
    image = tmp_path_factory.mktemp("covetest-erofs") / "root.erofs"
    subprocess.run(["mkfs.erofs", str(image), str(busybox)], check=True, capture_output=True)
    return image


@pytest.fixture
def workspace(tmp_path):
    """A directory to bind: of the caller, who is root here."""
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def memory_before():
    return harness.memory_available()


def pytest_collection_modifyitems(items):
    """The long ones last, so that a broken build shows at once."""
    last = ("test_system", "test_real_work", "test_cleanup")
    items.sort(key=lambda item: pathlib.Path(item.fspath).stem in last)
