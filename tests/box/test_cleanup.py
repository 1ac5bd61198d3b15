"""After many runs, and after `kill -9` at any moment, nothing is left: no process, mount, cgroup of
any hierarchy, loop device, file, lock or IPC object. The fixture that looks after each test is in
conftest."""
import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import time

import pytest

import harness
from harness import SOAK, scaled

RUNS = scaled(10000 if SOAK else 200)
KILLS = scaled(200 if SOAK else 30, 5)


def kernel_state():
    """What a leak inside the kernel would show in."""
    def lines(path):
        return pathlib.Path(path).read_text(encoding="utf-8").splitlines()

    segments = [line.split() for line in lines("/proc/sysvipc/shm")[1:]]
    return {*(lines("/proc/self/mountinfo") if harness.EXPECT.is_root else ()),
            *(tuple(words[:2]) for words in segments)}


def cgroup_counts():
    """How many groups each v1 controller has, dying ones too; memory's die late."""
    with open("/proc/cgroups", encoding="ascii") as file:
        rows = [line.split() for line in file if not line.startswith("#")]
    return {name: int(count) for name, _, count, _ in rows if name != "memory"}


def test_many_runs_leave_nothing():
    before, groups, state = harness.host(), cgroup_counts(), kernel_state()
    for _ in range(RUNS):
        assert subprocess.run([harness.COVE, "run", "--", "/bin/true"], check=False,
                              stdin=subprocess.DEVNULL).returncode == 0
    harness.check_nothing_left(before)
    harness.wait_for(lambda: kernel_state() <= state, what="no mount and no segment that is new")
    harness.wait_for(lambda: all(count <= groups[name] + 50 for name, count in
                                 cgroup_counts().items()), what="the number of groups before")


def test_many_runs_at_once():
    boxes = [harness.start("echo $$; id -u") for _ in range(scaled(40, 8))]
    for box in boxes:
        output, errors = box.communicate(timeout=60 * harness.PATIENCE)
        assert (box.returncode, output.split()[1]) == (0, b"1000"), errors


def kill_at(command, options, delay):
    box = harness.start(command, *options, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(delay)
    box.kill()
    box.wait(timeout=10 * harness.PATIENCE)


KINDS = {
    "at once": (["true"], ()),
    "busy": ("while :; do :; done", ()),
    "forking": ("while :; do sleep 1 & done", ("--pids", "100")),
    "writing": ("cat /dev/zero > /tmp/zero", ("--disk", "64M", "--memory", "128M")),
    "output": ("cat /dev/zero", ("--json",)),
    "terminal": ("sleep 60", ("--tty",)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kill_9_at_random_moments_leaves_nothing(kind):
    command, options = KINDS[kind]
    random.seed(4711)
    for _ in range(max(KILLS // len(KINDS), scaled(5, 2))):
        kill_at(command, options, random.choice((random.uniform(0, 0.008), random.uniform(0, 0.1))))


def test_kill_9_at_every_early_moment_leaves_nothing():
    """In steps of a tenth of a millisecond through the making of a box."""
    for step in range(KILLS * 2):
        kill_at(["sleep", "60"], (), step * 0.0001 * (60 / KILLS / 2 if SOAK else 1))


def test_term_at_every_early_moment_leaves_nothing():
    for step in range(KILLS * 2):
        box = harness.start(["sleep", "60"])
        time.sleep(step * 0.0001)
        box.terminate()
        # Nothing may hold the pipes open either.
        box.communicate(timeout=10 * harness.PATIENCE)
        assert box.returncode in (143, -15), box.returncode


def test_kill_9_with_an_image_and_a_workspace(debian, workspace):
    for step in range(max(KILLS // 3, scaled(10, 3))):
        kill_at("while :; do echo x > /workspace/file; echo y > /usr/file; done",
                ("--root", debian, "--privileges", "system", "--workspace", workspace),
                step * 0.002)
    assert set(os.listdir(workspace)) <= {"file"}


def test_a_killed_guard_takes_the_box_with_it_or_not_but_leaves_nothing():
    """The guard is one of our own; when somebody kills it the box ends in an orderly way."""
    box = harness.start("echo ready; sleep 60", "--timeout", f"{3 if harness.SCALE == 1 else 20}s")
    assert box.stdout.readline() == b"ready\n"
    running = harness.processes()
    ours = [pid for pid in harness.children_of(box.pid)
            if running.get(pid, "").startswith("cove-guard")]
    assert len(ours) == 1
    inside = set(harness.box_processes(box))
    groups = []
    for path in harness.cgroups():
        with contextlib.suppress(OSError):  # somebody else's has gone meanwhile
            groups += [path] if inside & harness.group_members(path) else []
    os.kill(ours[0], signal.SIGKILL)
    box.wait(timeout=40 * harness.PATIENCE)
    _, errors = harness.end(box)
    assert box.returncode in (124, 125) and len(errors.splitlines()) <= 2
    for path in groups:  # the one moment in which nobody is left to clean up
        if os.path.exists(path) and os.access(os.path.dirname(path), os.W_OK):
            os.rmdir(path)


def test_a_killed_init_ends_the_box_with_an_error():
    box = harness.start("echo ready; sleep 60")
    assert box.stdout.readline() == b"ready\n"
    os.kill(harness.box_processes(box)[0], signal.SIGKILL)
    box.wait(timeout=40 * harness.PATIENCE)
    _, errors = harness.end(box)
    assert box.returncode in (125, 137) and len(errors.splitlines()) == 1, errors


def test_memory_of_the_host_comes_back():
    def held():
        """By file systems in memory, above all."""
        found, = re.findall(r"^Shmem: *(\d+) kB$", pathlib.Path("/proc/meminfo").read_text(encoding="ascii"), re.M)
        return int(found) * 1024

    before = held()
    for _ in range(scaled(5, 2)):
        harness.run("head -c 100M /dev/zero > /tmp/file; ls -la /tmp", "--memory", "256M")
    harness.wait_for(lambda: held() < before + (96 << 20), 60 * harness.PATIENCE, "the memory of before")


def test_an_unrelated_group_of_that_name_stays():
    """Only what a box made is removed: other groups beside are not cove's."""
    root = next((root for root in harness.cgroup_roots() if root.endswith("pids")), None)
    if root is None:
        root = harness.cgroup_roots()[0]
    group = os.path.join(root, f"coverage-{os.getpid()}")
    os.mkdir(group)
    try:
        harness.run("true")
        assert os.path.isdir(group)
    finally:
        os.rmdir(group)
