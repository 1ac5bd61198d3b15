"""Runs boxes for the tests: one call per box, the attack program, and a look at the host before and
after. Nothing here decides what must hold; tests do."""
import collections
import contextlib
import ctypes
import dataclasses
import functools
import glob
import json
import math
import os
import pathlib
import pwd
import random
import re
import signal
import socket
import struct
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOX_TESTS = ROOT / "tests" / "box"
BUILD = pathlib.Path(os.environ.get("BUILD", "build"))
BUILD = BUILD if BUILD.is_absolute() else ROOT / BUILD
SOAK = os.environ.get("COVE_SOAK") == "1"

# For machines that are emulated: divides how often and how much, never a limit that a wall is.
SCALE = int(os.environ.get("COVE_TEST_SCALE", "1"))
# How much longer may be waited there for what must not hang.
PATIENCE = 1 if SCALE == 1 else 10


def scaled(count, least=1):
    return max(count // SCALE, least)


# Where tests keep what they make once: programs, and roots of boxes that belong to who runs them.
MADE = pathlib.Path(os.environ.get("COVE_TEST_MADE", BUILD))
ATTACKS = MADE / "attacks"

# Of the lane that the tests run in (scripts/lane.py): its name, and the cgroups below which all its boxes are.
# Without one, as in a guest, the machine is the lane.
LANE = os.environ.get("COVE_TEST_LANE")
LANE_GROUPS = [path for path in os.environ.get("COVE_TEST_GROUPS", "").split(":") if path]

# What starts the tests may ignore these (nohup, a job in the background), and boxes would inherit it.
for ignored in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(ignored, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
# Boxes, whose ids are others, have to read what tests make.
os.umask(0o022)


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


def leave_out(config, items, reason_of):
    """Takes the tests away that have a reason not to run here; the end of a whole run counts them by it."""
    reasons = {id(item): reason_of(item) for item in items}
    gone = [item for item in items if reasons[id(item)]]
    items[:] = [item for item in items if not reasons[id(item)]]
    config.hook.pytest_deselected(items=gone)
    config.left_out = getattr(config, "left_out", {})
    for item in gone:
        reason = reasons[id(item)]
        config.left_out[reason] = config.left_out.get(reason, 0) + 1


# ---- who runs the tests, and what a box of theirs has ------------------------------------------

def given_ids(path):
    """The ids that a file like /etc/subuid gives to us."""
    names = (str(os.getuid()), pwd.getpwuid(os.getuid()).pw_name)
    lines = pathlib.Path(path).read_text().splitlines() if os.path.exists(path) else ()
    fields = [line.split(":") for line in lines]
    return [range(int(first), int(first) + int(count)) for name, first, count in fields
            if name in names]


class Expect:
    """What must hold differs with the caller, and all of that is here. `cove run` says which ids and
    limits it had, and what it says is held against what follows from it."""

    is_root = os.geteuid() == 0
    # Of root: what no file of the host gives to anybody.
    root_ids = range(524288, 1879048192)

    @functools.cached_property
    def said(self):
        report = json.loads(cove("run", "--json", "--", "true").out)
        return {name: report[name] for name in ("level", "limits", "ids", "disk")}

    @property
    def ids(self):
        return self.said["ids"]

    @property
    def has_cgroup(self):
        return self.said["limits"] == "cgroup"

    @property
    def nice(self):
        """The caller's own. Where a watchdog has to be in time, a box comes after it."""
        own = os.getpriority(os.PRIO_PROCESS, 0)
        return own if self.has_cgroup else max(own, 10)

    @functools.cached_property
    def holds_scores(self):
        """A box takes back no oom_score_adj that was set with CAP_SYS_RESOURCE, which root may lack."""
        return int(status_of("self")["CapEff"], 16) >> 24 & 1 == 1

    @property
    def warns(self):
        return not self.has_cgroup or self.ids == "single"

    @functools.cached_property
    def parts(self):
        """Host ids that boxes may have, but for the caller's own."""
        return [self.root_ids] if self.is_root else given_ids("/etc/subuid")

    @property
    def count(self):
        """Ids that a box has, from 0 on."""
        return {"range": 65536, "slice": 1024, "single": 1}[self.ids]

    def is_box_id(self, uid):
        return any(uid in part for part in self.parts)

    def lent(self, uid, bind=True, image=False):
        """The id inside that is the caller's own outside, of a box whose user is `uid`."""
        if self.is_root:
            return None
        if bind or self.ids == "single":
            return uid
        return 0 if image else None

    def maps(self, uid, **more):
        """The lengths of the parts of an id map, by where they begin inside."""
        lent = self.lent(uid, **more)
        if self.ids == "single":
            return {lent: 1}
        parts = {0: self.count} if self.ids == "range" else {0: self.count, 65534: 1}
        if lent is None:
            return parts
        found = {lent: 1}
        for first, count in parts.items():
            if first <= lent < first + count:
                pieces = {first: lent - first, lent + 1: first + count - lent - 1}
                found.update((at, size) for at, size in pieces.items() if size > 0)
            else:
                found[first] = count
        return found

    def init_owner(self, uid):
        """As which the files of init in /proc appear, of a box with a bind. Init is nobody's there,
        but where the caller owns its program and is an id of the box: then root's of the box, if
        it has one."""
        return 65534 if self.is_root or (self.ids == "single" and uid != 0) else 0

    def groups(self, gid):
        """Whoever has one id cannot give up groups."""
        if self.ids != "single":
            return []
        return [gid if group == os.getgid() else 65534 for group in os.getgroups()]

    @property
    def bind_flags(self):
        """Root has owners mapped in the mount; others are the owner."""
        return "ro,nosuid,nodev" + (",idmapped" if self.is_root else "")

    def cpus(self, asked):
        """Without a cgroup a box has whole CPUs."""
        return asked if self.has_cgroup else math.ceil(asked)

    def peak(self, limit):
        """The most that a box of this limit ever has: a watchdog comes a moment later."""
        return limit + (8 << 20 if self.has_cgroup else 200 << 20)


EXPECT = Expect()


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
        [str(binary or COVE), *map(str, arguments)], capture_output=True, timeout=limit * PATIENCE, **more)
    return Result(done.returncode, done.stdout, without_warning(done.stderr),
                  time.monotonic() - started, None)


# What cove says on stderr of a box that is weaker than elsewhere; a test of its own looks at it.
WARNING = re.compile(rb"^cove: warning: .*(limits|ids)=.*; cove doctor says more\n", re.MULTILINE)


def without_warning(errors):
    return WARNING.sub(b"", errors, count=1)


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
        output, errors = process.communicate(timeout=limit * PATIENCE)
        return output, errors and without_warning(errors)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


ATTACK_MOUNT = f"{ATTACKS}:/attack:ro"


def attack_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def attack(entry, *arguments, options=(), killed=False, limit=60, **more):
    """Runs the attacks of one entry in a box: the checks, by name; every wall must have held."""
    result = run(["/attack/attack", str(entry), *map(str, arguments)], "--mount", ATTACK_MOUNT,
                 *options, limit=limit, **more)
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
    for root in LANE_GROUPS or cgroup_roots():
        for path, names, _ in os.walk(root):
            for name in list(names):
                if name.startswith("cove-"):
                    found.add(os.path.join(path, name))
                    names.remove(name)
    return found


def status_of(pid):
    """/proc/PID/status by its names, or nothing where it is gone. Runs around each test for all
    processes, so it reads no more than it must."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            text = file.read(4096).decode(errors="replace")
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in
            (line.partition(":") for line in text.splitlines())}


def is_boxed(status):
    """Of a pid namespace below ours, and with an id that a box of ours can have."""
    uid = int(status["Uid"].split()[0])
    spaces = status.get("NSpid", "").split()  # none of one that has just ended
    return EXPECT.is_box_id(uid) or (not EXPECT.is_root and uid == os.getuid() and len(spaces) > 1)


def processes():
    """Processes of boxes, and cove's own."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        status = status_of(pid)
        if "Uid" in status and (is_boxed(status) or status["Name"].startswith("cove") and
                                (EXPECT.is_root or int(status["Uid"].split()[0]) == os.getuid())):
            found[int(pid)] = status["Name"]
    return found


def mounts():
    """Of the host, where only root can leave any."""
    if not EXPECT.is_root:
        return set()
    return {line.split(" ", 1)[1] for line in
            pathlib.Path("/proc/self/mountinfo").read_text().splitlines()}


def loops():
    """Those of the lane have their file in its /tmp. One over memory has no name that tells: it goes with the
    processes and mounts that hold it."""
    found = set()
    if not EXPECT.is_root:
        return found
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        try:
            file = pathlib.Path(path).read_text().strip()
        except OSError:
            continue
        if LANE is None or f"/tmp/{LANE}/" in file:
            found.add((path, file))
    return found


def files():
    """Files that cove could have left: by name where others write too."""
    found = {path for pattern in ("/tmp/*cove*", "/dev/shm/*cove*", "/var/tmp/*cove*")
             for path in glob.glob(pattern) if not re.search("covetest|cove-test-|bench", path)}
    kept = {path for path in found if re.fullmatch(r"/tmp/cove-\d+", path)}
    inner = {path for place in (lock_directory(), *kept) for path in glob.glob(f"{place}/*")}
    return found - kept | {path for path in inner if not path.endswith(("/ids.lock", "/warned"))}


def lock_directory():
    """Where the boxes of one user agree about their ids; it stays. So does what they were warned of."""
    if EXPECT.is_root:
        return "/run/cove"
    run_directory = f"/run/user/{os.getuid()}"
    return f"{run_directory}/cove" if os.path.isdir(run_directory) else f"/tmp/cove-{os.getuid()}"


def locks():
    """Locks on the file of id ranges."""
    try:
        file = os.stat(f"{lock_directory()}/ids.lock")
    except OSError:
        return set()
    name = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    return {" ".join(line.split()[1:]) for line in
            pathlib.Path("/proc/locks").read_text().splitlines() if line.split()[-3] == name}


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


def group_members(path):
    return {int(pid) for path_, _, names in os.walk(path) if "cgroup.procs" in names
            for pid in pathlib.Path(path_, "cgroup.procs").read_text(encoding="ascii").split()}


def left_since(before):
    """What is there now and was not before, as {kind: things}; and what is there now."""
    now = host()
    left = {"processes": {(pid, name) for pid, name in now.processes.items() if pid not in before.processes}}
    for kind in ("cgroups", "mounts", "loops", "files", "locks"):
        left[kind] = getattr(now, kind) - getattr(before, kind)
    return {kind: things for kind, things in left.items() if things}, now


def check_nothing_left(before, seconds=15 * PATIENCE):
    """Everything must be gone; a guard may need a moment. Returns the last look."""
    deadline = time.monotonic() + seconds
    left, now = left_since(before)
    while left:
        if time.monotonic() > deadline:
            raise AssertionError(f"left on the host: {left}")
        time.sleep(0.05)
        left, now = left_since(before)
    return now


def check_host_healthy():
    """The host can fork, allocate, write and open terminals."""
    started = time.monotonic()
    subprocess.run(["/bin/true"], check=True, timeout=60 * PATIENCE)
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


GIVEN_PORTS = collections.deque(maxlen=64)


def free_port():
    """From below those that the kernel gives to whoever asks for none: nobody takes it until it is listened at. One
    that was given lately may be taken in a network that is not ours, which a probe does not see."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as given:
        end = max(int(given.read().split()[0]), 16384)
    for _ in range(1000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            port = random.randrange(end // 2, end)
            probe.bind(("127.0.0.1", port))
            if port not in GIVEN_PORTS:
                GIVEN_PORTS.append(port)
                return port
    raise AssertionError("no port is free")


def wait_for(condition, seconds=30 * PATIENCE, what="the condition"):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come within {seconds} s")


def at_rest(look, seconds=30 * PATIENCE):
    """What is the same at ten looks in a row: what is made ahead is made by then."""
    seen = []

    def rests():
        time.sleep(0.1)
        seen.append(look())
        return len(seen) >= 10 and all(one == seen[-1] for one in seen[-10:])
    wait_for(rests, seconds, "rest")
    return seen[-1]


def cpu_ticks(pid):
    """The CPU time of a process, which its user sees, too."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))


def turn_ns(pid):
    """How long the turns of a processor are that a process asked for; where it asked for none, the usual."""
    attr = ctypes.create_string_buffer(48)
    getattr_number = {"x86_64": 315, "aarch64": 275}[os.uname().machine]
    assert ctypes.CDLL(None).syscall(getattr_number, pid, attr, 48, 0) == 0
    return struct.unpack_from("Q", attr, 24)[0]


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
    """Host pids of what runs inside the box of a start()ed cove; none before its init does."""
    found = []
    for pid in children_of(process.pid):
        status = status_of(pid)
        spaces = status.get("NSpid", "").split()  # none of one that has just ended
        if len(spaces) > 1 and status["Name"] != COVE.name:
            found.append(pid)
    return found


def give_away(path):
    """Makes a file somebody else's: an id that is no box's and not the caller's."""
    if EXPECT.is_root:
        os.chown(path, 4711, 4711)
    else:  # the very last id is in no slice
        last = len(EXPECT.parts[0]) - 1
        subprocess.run(["unshare", "--map-root-user", "--map-auto", "chown", f"{last}:{last}", path],
                       check=True)
    assert os.lstat(path).st_uid not in (0, os.getuid())
    return os.lstat(path).st_uid


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
