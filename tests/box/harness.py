"""Runs boxes for the tests: one call per box, the attack program, and a look at the host before and
after. Nothing here decides what must hold; tests do."""
import dataclasses
import glob
import json
import os
import pathlib
import re
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("BUILD", "build"))
BUILD = BUILD if BUILD.is_absolute() else ROOT / BUILD
SOAK = os.environ.get("COVE_SOAK") == "1"

# For machines that are emulated: divides how often and how much, never a limit that a wall is.
SCALE = int(os.environ.get("COVE_TEST_SCALE", "1"))
# How much longer may be waited there for what must not hang.
PATIENCE = 1 if SCALE == 1 else 10


def scaled(count, least=1):
    return max(count // SCALE, least)


# The ids that boxes of root run with outside.
IDS_FIRST, IDS_LAST = 524288, 1879048191

ATTACKS = BUILD / "attacks"

# Tells our boxes from those of somebody else who uses cove on this host meanwhile.
MARK = f"COVE_TEST_MARK={os.getpid()}"
os.environ.update([MARK.split("=")])


def find_cove():
    """The binary under test: with the test switches, where both are built."""
    named = os.environ.get("COVE")
    if named:
        path = pathlib.Path(named)
        return path if path.is_absolute() else ROOT / path
    for path in (BUILD / "test" / "cove", BUILD / "cove"):
        if path.exists():
            return path
    return BUILD / "cove"


COVE = find_cove()
RELEASE = BUILD / "cove"


@dataclasses.dataclass
class Result:
    code: int  # of cove itself
    out: bytes
    err: bytes
    seconds: float
    report: dict | None  # what --json printed

    @property
    def stdout(self):
        return self.report["stdout"] if self.report else self.out.decode(errors="replace")

    @property
    def stderr(self):
        return self.report["stderr"] if self.report else self.err.decode(errors="replace")


def words(command):
    """A string is the shell's, a list is a command."""
    return ["sh", "-c", command] if isinstance(command, str) else list(map(str, command))


def cove(*arguments, limit=60, binary=None, stdin=subprocess.DEVNULL, send=None, **more):
    """Runs cove itself. `limit` is for a cove that hangs, which is a failure."""
    started = time.monotonic()
    if send is not None:
        more["input"] = send
    else:
        more["stdin"] = stdin
    done = subprocess.run(
        [str(binary or COVE), *map(str, arguments)], capture_output=True, timeout=limit, **more)
    return Result(done.returncode, done.stdout, done.stderr, time.monotonic() - started, None)


def run(command, *options, **more):
    """cove run --json; the box must have come to be."""
    result = cove("run", "--json", *options, "--", *words(command), **more)
    try:
        result.report = json.loads(result.out)
    except ValueError:
        raise AssertionError(
            f"no JSON from cove run {options}: exit {result.code}, {result.out!r}, {result.err!r}"
        ) from None
    assert "exit_code" in result.report, (result.report, result.err)
    return result


def run_plain(command, *options, **more):
    """cove run without --json: the command's output is cove's."""
    return cove("run", *options, "--", *words(command), **more)


def start(command, *options, binary=None, **more):
    """cove run in the background."""
    more.setdefault("stdin", subprocess.DEVNULL)
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen(
        [str(binary or COVE), "run", *map(str, options), "--", *words(command)], **more)


def end(process, limit=30):
    """Ends a cove of start(); cove has to leave nothing whichever way."""
    if process.poll() is None:
        process.terminate()
    try:
        return process.communicate(timeout=limit)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


ATTACK_MOUNT = f"{ATTACKS}:/attack:ro"


def attack_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def attack(entry, *arguments, options=(), killed=False, limit=60):
    """Runs the attacks of one entry in a box: the checks, by name; every wall must have held."""
    result = run(["/attack/attack", str(entry), *map(str, arguments)], "--mount", ATTACK_MOUNT,
                 *options, limit=limit)
    checks = attack_lines(result.stdout)
    through = [check for check in checks if not check["walled"]]
    assert not through, f"{len(through)} of {len(checks)} went through: {through[:8]}"
    if not killed:
        assert checks, result.report
        assert result.report["exit_code"] == 0, result.report
    values = {check["check"]: check.get("value") for check in checks}
    return result, values


# ---- the host ----------------------------------------------------------------------------------

def kernel():
    """(major, minor) of the running kernel."""
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


def cgroup_roots():
    """Where cgroups are mounted: every v1 hierarchy and v2."""
    roots = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] in ("cgroup", "cgroup2"):
            roots.append(before.split()[4])
    return roots


def cgroups():
    """Groups of boxes, wherever they are."""
    found = set()
    for root in cgroup_roots():
        for path, names, _ in os.walk(root):
            for name in list(names):
                if name.startswith("cove-"):
                    found.add(os.path.join(path, name))
                    names.remove(name)
    return found


NAME_AND_UID = re.compile(rb"Name:\t(.*)\n(?:.*\n)*?Uid:\t(\d+)")


def processes(test=lambda uid, comm: IDS_FIRST <= uid <= IDS_LAST or comm.startswith("cove")):
    """Processes with an id of the boxes' range, and cove's own. Runs around each test, so it reads
    no more than it must."""
    found = {}
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        try:
            with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
                match = NAME_AND_UID.match(file.read(4096))
        except OSError:
            continue
        if match and test(int(match[2]), match[1].decode(errors="replace")):
            found[int(pid)] = match[1].decode(errors="replace")
    return found


def mounts():
    return {line.split(" ", 1)[1] for line in
            pathlib.Path("/proc/self/mountinfo").read_text().splitlines()}


def loops():
    found = set()
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        try:
            found.add((path, pathlib.Path(path).read_text().strip()))
        except OSError:
            continue
    return found


def files():
    """Files that cove could have left: by name where others write too."""
    found = {path for pattern in ("/tmp/*cove*", "/dev/shm/*cove*", "/var/tmp/*cove*")
             for path in glob.glob(pattern) if "covetest" not in path and "bench" not in path}
    return found | {path for path in glob.glob("/run/cove/*") if not path.endswith("/ids.lock")}


def locks():
    """Locks on the file of id ranges."""
    try:
        inode = os.stat("/run/cove/ids.lock").st_ino
    except OSError:
        return set()
    return {" ".join(line.split()[1:]) for line in
            pathlib.Path("/proc/locks").read_text().splitlines()
            if line.split()[-3].endswith(f":{inode}")}


@dataclasses.dataclass
class Host:
    processes: dict
    cgroups: set
    mounts: set
    loops: set
    files: set
    locks: set


def host():
    return Host(processes(), cgroups(), mounts(), loops(), files(), locks())


def is_foreign(pid):
    """Whether a living cove that none of our tests started is this process or above it."""
    for _ in range(64):
        try:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
            environment = pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace")
        except OSError:
            return True  # it went meanwhile
        if MARK in environment.split("\0"):
            return False
        if environment and stat.split(" ", 1)[1].startswith(FOREIGN):
            return True
        pid = int(stat.rpartition(")")[2].split()[1])
        if pid <= 1:
            return False
    return False


FOREIGN = ("(cove", "(bench", "(box", "(test_")


def foreign_group(path):
    """A group of a foreign box: somebody foreign is in it."""
    try:
        members = [int(pid) for path_, _, names in os.walk(path) if "cgroup.procs" in names
                   for pid in pathlib.Path(path_, "cgroup.procs").read_text().split()]
    except OSError:
        return True
    return any(is_foreign(pid) for pid in members) or "bench" in path


def left_since(before):
    """What is there now and was not before, as {kind: things}; and what is there now."""
    now = host()
    new = {pid: name for pid, name in now.processes.items() if pid not in before.processes}
    left = {"processes": {(pid, name) for pid, name in new.items() if not is_foreign(pid)}}
    for kind in ("cgroups", "mounts", "loops", "files", "locks"):
        left[kind] = getattr(now, kind) - getattr(before, kind)
    left["cgroups"] = {path for path in left["cgroups"] if not foreign_group(path)}
    if len(new) > len(left["processes"]):
        left["locks"] = set()  # a lock does not say whose it is
    return {kind: things for kind, things in left.items() if things}, now


def check_nothing_left(before, seconds=5 * PATIENCE):
    """Everything must be gone. A guard may need a moment; a leak stays, and is the same one at
    every look, which boxes of others that come and go are not. Returns the last look."""
    deadline = time.monotonic() + seconds
    left, now = left_since(before)
    while left:
        if time.monotonic() > deadline:
            raise AssertionError(f"left on the host: {left}")
        time.sleep(0.05)
        new, now = left_since(before)
        left = {kind: {thing for thing in things if thing in new.get(kind, ())}
                for kind, things in left.items()}
        left = {kind: things for kind, things in left.items() if things}
    return now


def check_host_healthy():
    """The host can fork, allocate, write and open terminals."""
    started = time.monotonic()
    subprocess.run(["/bin/true"], check=True, timeout=10)
    block = bytearray(scaled(64 << 20, 4096))
    block[::4096] = b"x" * len(block[::4096])
    leader, follower = os.openpty()
    os.close(leader)
    os.close(follower)
    available = memory_available()
    assert available > 512 << 20, f"{available >> 20} MiB left on the host"
    assert time.monotonic() - started < 10 * PATIENCE


def memory_available():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("/proc/meminfo has no MemAvailable")


def wait_for(condition, seconds=10, what="the condition"):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come within {seconds} s")


def children_of(pid):
    """All descendants of a process, as host pids."""
    parents = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            text = pathlib.Path(path).read_text()
            parents.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(
                int(text.split(" ", 1)[0]))
        except (OSError, ValueError, IndexError):
            continue
    found, todo = [], [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found


def box_processes(process):
    """Host pids of what runs inside the box of a start()ed cove: the ids of its range."""
    found = []
    for pid in children_of(process.pid):
        try:
            text = pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        if IDS_FIRST <= int(fields["Uid"].split()[0]) <= IDS_LAST:
            found.append(pid)
    return found


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
