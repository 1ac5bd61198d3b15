"""How far a box gets beyond a limit, and for how long. Where a cgroup keeps it the answer is not at
all; where none can be had a watchdog ends what is too much within 100 ms of its crossing."""
import contextlib
import json
import math
import os
import signal
import subprocess
import threading
import time

import pytest

import harness
from harness import ATTACK_MOUNT, EXPECT, attack, run

MIB = 1 << 20
LATE_MS = 100 * harness.PATIENCE
KINDS = ["private", "shared", "segments", "memfd", "file", "unlinked"]


def bomb(kind, *options, limit=64, most=1024, busy=0):
    """The bomb's own account: (bytes, ns) of each step, and what came of it."""
    result = run(["/attack/attack", 65, kind, most, busy], "--mount", ATTACK_MOUNT, "--memory",
                 f"{limit}M", "--disk", "2G", "--timeout", "30s", *options)
    steps = [(line["bytes"], line["ns"]) for line in harness.attack_lines(result.stdout)
             if "bytes" in line]
    return result, steps


def late_ms(steps, limit):
    """From the first step beyond the limit to the last."""
    beyond = [ns for size, ns in steps if size > limit * MIB]
    return (beyond[-1] - beyond[0]) / 1e6 if beyond else 0


def is_in_time(measure):
    """Whether one try of three is. Somebody else's work on these CPUs can be what is late in one; a
    watchdog that is late is so in all."""
    return any(measure() <= LATE_MS for _ in range(3))


@pytest.mark.parametrize("privileges", ["plain", "system"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_ends_within_100_ms_of_its_limit(kind, privileges):
    def measure():
        result, steps = bomb(kind, "--privileges", privileges)
        assert result.report["oom_killed"] and result.report["signal"] == "SIGKILL", result.report
        assert steps[-1][0] >= 40 * MIB, "killed before its limit"
        is_within = result.report["peak_memory_bytes"] <= EXPECT.peak(64 * MIB)
        assert is_within or not EXPECT.has_cgroup, result.report
        return late_ms(steps, 64) if is_within else math.inf

    refused = {"memfd": 38, "segments": 38, "shared": 12}  # musl makes ENOMEM of mmap's EPERM
    if kind in refused and not EXPECT.has_cgroup:
        result, steps = bomb(kind, "--privileges", privileges)
        assert steps == [] and f"errno {refused[kind]}\"" in result.stdout  # what nobody can count is not there
        return
    assert is_in_time(measure)


def test_a_bomb_among_busy_processes_ends_as_soon():
    def measure():
        result, steps = bomb("private", "--pids", "100", busy=60)
        assert result.report["oom_killed"]
        return late_ms(steps, 64)

    assert is_in_time(measure)


@pytest.mark.parametrize("kind", ["leader", "tables", "groups", "mappings"])
def test_memory_that_hides_is_found(kind):
    result, _ = attack(68, kind, 64, options=("--memory", "64M", "--timeout", "30s", "--privileges",
                                              "system"), killed=True)
    assert result.report["oom_killed"], result.report


@pytest.mark.parametrize("kind", ["anonymous", "zero"])
def test_shared_memory_that_no_process_has_mapped_in_is_counted(kind):
    if not EXPECT.has_cgroup:
        return  # there is none
    result, _ = attack(68, kind, 64, options=("--memory", "64M", "--timeout", "30s"), killed=True)
    assert result.report["oom_killed"], result.report


@pytest.mark.parametrize("kind", ["many-files", "many-mappings"])
def test_what_the_kernel_keeps_of_files_and_mappings_is_counted(kind):
    if EXPECT.has_cgroup:
        return  # they are charged
    result, _ = attack(68, kind, options=("--memory", "32M", "--timeout", "30s"), killed=True)
    assert result.report["oom_killed"], result.report


def test_memory_that_nobody_can_count_is_not_there():
    if not EXPECT.has_cgroup:
        attack(68, "pinned")


def test_a_box_ends_with_its_watchdog():
    if EXPECT.has_cgroup:
        return
    box = harness.start("echo ready; sleep 30")
    try:
        assert box.stdout.readline() == b"ready\n"
        guard, = (pid for pid in harness.children_of(box.pid)
                  if harness.status_of(pid).get("Name") == "cove-guard")
        harness.kill(guard)
        assert box.wait(20) == 125
    finally:
        harness.end(box)


def test_starting_programs_near_the_limit_kills_nobody():
    """Between vfork and exec a process is there twice, with all it has."""
    script = ("import subprocess; x = bytearray(b'x') * (45 << 20)\n"
              "for i in range(100): subprocess.run(['/bin/true'], check=True)\nprint('all')")
    result = run(["/usr/bin/python3", "-c", script], "--memory", "80M")
    assert result.stdout == "all\n" and not result.report["oom_killed"], result.report


WAITS = """
import os, subprocess
x = bytearray(b'x') * (45 << 20)
os.mkfifo('/tmp/it')
for i in range({times}):
    subprocess.Popen(['sh', '-c', 'sleep {seconds}; echo here > /tmp/it'])
    os.posix_spawn('/bin/cat', ['cat'], {{}}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, '/tmp/it', 0, 0)])
    os.wait(), os.wait()
"""


def run_what_waits(times, seconds):
    """Each child waits before its exec for who opens its standard input; on a busy machine it would be for a CPU."""
    return run(["/usr/bin/python3", "-c", WAITS.format(times=times, seconds=seconds)], "--memory", "80M")


def test_a_child_that_waits_before_its_exec_kills_nobody():
    result = run_what_waits(1, 1)
    assert result.stdout == "here\n" and not result.report["oom_killed"], result.report


def test_who_waits_again_and_again_is_not_borne_for_ever():
    """For each by itself there would be the time."""
    if EXPECT.has_cgroup:
        return  # which counts what both have once
    assert run_what_waits(4, 3).report["oom_killed"]


# Its child goes beyond the limit and is killed. It keeps its memory until its tracer lets it end, as one does that waits
# for a processor.
SLOW_TO_DIE = """
import ctypes, os, signal, sys, time
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
TRACEME, CONT, SETOPTIONS, TRACEEXIT, EVENT_EXIT = 0, 7, 0x4200, 0x40, 6
child = os.fork()
if child == 0:
    ptrace(TRACEME, 0, None, None)
    os.kill(os.getpid(), signal.SIGSTOP)
    held = bytearray(int(sys.argv[1]) << 20)
    time.sleep(60)
    os._exit(0)
os.waitpid(child, 0)
assert ptrace(SETOPTIONS, child, None, TRACEEXIT) == 0
assert ptrace(CONT, child, None, None) == 0
_, status = os.waitpid(child, 0)
assert status >> 16 == EVENT_EXIT, hex(status)
time.sleep(float(sys.argv[2]))
ptrace(CONT, child, None, None)
_, status = os.waitpid(child, 0)
print("killed" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL else hex(status))
"""


def test_one_that_is_slow_to_die_takes_nobody_with_it():
    """In one try of three: on a busy host it may be slower than anybody bears."""
    said = []
    for _ in range(3):
        done = run(["/usr/bin/python3", "-c", SLOW_TO_DIE, "96", "0.1"], "--memory", "64M")
        if done.stdout == "killed\n" and done.report["exit_code"] == 0:
            return
        said.append((done.report, done.stderr))
    raise AssertionError(said)


def test_one_that_does_not_die_ends_its_box():
    if EXPECT.has_cgroup:
        return  # which takes the memory of what it killed
    done = run(["/usr/bin/python3", "-c", SLOW_TO_DIE, "96", "20"], "--memory", "64M")
    assert done.report["exit_code"] != 0 and done.stdout == "" and done.seconds < 15, (done.report, done.stderr)


def test_what_stays_beyond_the_limit_without_growing_ends_too():
    """A child that never comes to its exec, which may be one that waits for a CPU, and may not be."""
    if EXPECT.has_cgroup:
        return  # which counts what both have once
    script = ("import ctypes, time; libc = ctypes.CDLL(None); x = bytearray(b'x') * (45 << 20)\n"
              "if libc.vfork() == 0: time.sleep(30)")
    result = run(["/usr/bin/python3", "-c", script], "--memory", "80M")
    assert result.report["oom_killed"] and 4 < result.seconds < 15 * harness.PATIENCE, (result.seconds, result.report)


# ---- as seen from outside ----------------------------------------------------------------------

def grew_above(box, measure, limit):
    """For how long what is measured of a box's processes still grew above the limit, in ms, until the
    box ends, where it came back below the longest of these times; and the most there was. What is killed
    takes the kernel its time to take down, but it takes nothing more. A look at all processes takes time, too, on a
    busy host more than the limit itself: what counts is what is certain, from the end of the look that found too much
    to the begin of the last one before there was more."""
    since, highest, most, longest, last = None, 0, 0, 0, 0
    while box.poll() is None:
        began = time.monotonic()
        found = measure(box)
        if found <= limit:
            since = None
        elif since is None:
            since, highest = time.monotonic(), found
        elif found > highest:
            highest, longest = found, max(longest, last - since)
        most, last = max(most, found), began
    return longest * 1000, most


def anonymous_bytes(box):
    return sum(int(harness.status_of(pid).get("RssAnon", "0 kB").split()[0]) * 1024
               for pid in harness.box_processes(box))


@pytest.mark.parametrize("kind", ["processes", "pair"])
def test_many_processes_of_20_mib_and_two_that_grow_together_stay_within_the_limit_too(kind):
    def measure():
        box = harness.start(["/attack/attack", 65, kind, 1024], "--mount", ATTACK_MOUNT,
                            "--memory", "128M", "--timeout", "5s")
        try:
            above, most = grew_above(box, anonymous_bytes, 128 * MIB)
            return above if most <= EXPECT.peak(128 * MIB) else math.inf
        finally:
            harness.end(box)

    assert is_in_time(measure)


@pytest.mark.parametrize("privileges, entry", [("plain", 1), ("system", 1), ("system", 66)])
def test_a_fork_bomb_ends_within_100_ms_of_its_limit(privileges, entry):
    """Of one user it never comes that far. Each user of a system box has a count of its own in the
    kernel, so one process of each is for the watchdog."""
    users = EXPECT.count - 1 if EXPECT.count > 1 else 1
    count = min(users, 1000) if entry == 66 else 2000

    def measure():
        box = harness.start(["/attack/attack", entry, 3000, count], "--mount", ATTACK_MOUNT,
                            "--pids", "100", "--privileges", privileges, "--timeout", "3s")
        try:
            return grew_above(box, lambda box: len(harness.box_processes(box)), 101)[0]
        finally:
            harness.end(box)

    assert is_in_time(measure)


# ---- what is no bomb ---------------------------------------------------------------------------

@pytest.mark.parametrize("kind", ["private", "shared"])
def test_memory_that_forks_share_counts_once(kind):
    """Nine processes of 40 MiB that are the same 40 MiB, in a box of 64."""
    if kind == "shared" and not EXPECT.has_cgroup:
        return  # there it has none, but in files
    result, _ = attack(67, 40, 8, kind, 1, options=("--memory", "64M", "--pids", "64"))
    assert not result.report["oom_killed"]


def survives_a_watchdog_that_is_held_up():
    """What grows still may be killed for it, so it counts from when all are there."""
    box = harness.start(["/attack/attack", 67, 40, 8, "private", 3], "--mount", ATTACK_MOUNT, "--memory", "64M",
                        "--pids", "64")
    try:
        guard = harness.wait_for(lambda: [pid for pid in harness.children_of(box.pid)
                                          if harness.status_of(pid).get("Name") == "cove-guard"], what="the guard")[0]
        harness.wait_for(lambda: len(harness.box_processes(box)) >= 10 or box.poll() is not None,
                         what="what nothing is added to")
        time.sleep(0.1)  # for a look at all of them
        while box.poll() is None:
            for number, seconds in ((signal.SIGSTOP, 0.15), (signal.SIGCONT, 0.1)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(guard, number)
                time.sleep(seconds)
        return box.returncode == 0
    finally:
        harness.end(box)


def test_a_watchdog_that_is_held_up_kills_nobody_for_it():
    """A look that took too long knows only what there is at most. One that is held up by others while these grow
    is none of this test's: it is wrong where it is so in all tries."""
    assert EXPECT.has_cgroup or any(survives_a_watchdog_that_is_held_up() for _ in range(3))


def test_a_mapped_file_counts_once():
    script = ("import mmap, os, time; f = open('/tmp/f', 'w+b'); f.truncate(40 << 20); "
              "m = mmap.mmap(f.fileno(), 0); m[:] = b'x' * (40 << 20)\n"
              "for i in range(4):\n if os.fork() == 0: sum(m[::4096]); time.sleep(1); os._exit(0)\n"
              "print([os.wait()[1] for i in range(4)])")
    result = run(["/usr/bin/python3", "-c", script], "--memory", "110M")
    assert result.stdout == "[0, 0, 0, 0]\n" and not result.report["oom_killed"], result.report


def test_a_program_that_stays_below_its_limit_lives():
    result, steps = bomb("private", limit=96, most=80)
    assert len(steps) == 80 and result.report["signal"] is None, result.report
    assert not result.report["oom_killed"]


def test_a_box_of_many_processes_below_its_limit_lives():
    result = run("for i in $(seq 80); do sleep 1 & done; wait; echo all", "--pids", "100")
    assert result.stdout == "all\n" and result.report["signal"] is None, result.report


# ---- what cove says of it ----------------------------------------------------------------------

def test_what_is_weaker_is_said_in_one_line_or_in_json(tmp_path):
    fresh = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}  # nothing has been said yet
    plain, done = (subprocess.run([harness.COVE, "run", *words, "--", "true"], capture_output=True, check=False,
                                  timeout=20, text=True, env=fresh) for words in ((), ("--json",)))
    report = json.loads(done.stdout)
    assert {name: report[name] for name in EXPECT.said} == EXPECT.said
    assert report["level"] == "full"
    lines = plain.stderr.splitlines()
    assert len(lines) == len(report["warnings"]) == (1 if EXPECT.warns else 0), (lines, report)
    assert done.stderr == "" and all(line.endswith(said) for line, said in zip(lines, report["warnings"]))
    for name in ("limits=rlimit", "ids=single"):
        assert (name in plain.stderr) == (name.split("=")[1] in EXPECT.said.values())


def test_two_watched_boxes_do_not_count_each_other():
    others = [harness.start(["/attack/attack", 67, 40, 1, "private", 3], "--mount", ATTACK_MOUNT,
                            "--memory", "64M") for _ in range(3)]
    try:
        results = []
        threads = [threading.Thread(target=lambda: results.append(bomb("private", most=48)))
                   for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [len(steps) for _, steps in results] == [48, 48]
    finally:
        ended = [harness.end(other) or other.returncode for other in others]
        assert all(b'"walled": true' in output or not output for output, _ in ended)
