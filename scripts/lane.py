#!/usr/bin/env python3
"""Runs a command in a lane: a machine of its own as far as tests can tell. It has its own pid, mount, network and
ipc namespaces, its own /tmp, /run and /dev/shm, its own part of the ids that boxes get, and a cgroup in each
hierarchy, below which all its boxes lie. So groups of tests run beside each other, and what one of them leaves
behind is known to be its own: after the command, a process, mount, loop device or cgroup that stays is named,
and the exit status is 90.

The clone is found under its own path by everybody in the lane, also where it lies below a directory that only
its owner may enter. Where its files are its owner's alone, COVE_TEST_COPY names a copy for the lane, which
scripts/test.py makes.

usage: lane.py [--user NAME [--ids COUNT]] [--nice N] [--host-network] [--report FILE] NAME -- COMMAND...
"""

import argparse
import contextlib
import ctypes
import fcntl
import glob
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
LEFT = 90
# A box's guard needs a moment to go after its box.
PATIENCE_S = 15

libc = ctypes.CDLL(None, use_errno=True)
NEW_NS, NEW_IPC, NEW_PID, NEW_NET = 0x20000, 0x8000000, 0x20000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE, MS_NOSUID, MS_NODEV = 4096, 16384, 1 << 18, 2, 4
PR_SET_PDEATHSIG = 1

LOCKS = pathlib.Path("/run/lock/cove-lanes")  # of all lanes of the machine

# Ids of boxes: src/box/ids.h has the same bounds. Each lane has one part of them.
IDS_FIRST, IDS_END, ID_PARTS = 524288, 1879048192, 32
PART = (IDS_END - IDS_FIRST) // ID_PARTS // 65536 * 65536
# The ids of an ordinary user in a lane, as many as adduser gives. They lie beyond those that root's boxes have.
USER_IDS_FIRST, USER_IDS_COUNT = 2000000000, 65536


def check(result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def mount(source, target, kind=None, flags=0, options=None):
    words = [None if word is None else str(word).encode() for word in (source, target, kind, options)]
    check(libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]))


CONTROLLERS = {"cpu", "cpuset", "memory", "pids"}  # those that boxes want
INNER = "tests"  # the group of a lane's own processes, where that may not be the lane's


def build_directory():
    build = pathlib.Path(os.environ.get("BUILD", "build"))
    return build if build.is_absolute() else TOP / build


# ---- cgroups -------------------------------------------------------------------------------------

def grants(directory):
    """Whether a v2 group lets its children have the controllers that there are, or is of a hierarchy without any."""
    controls, granted = directory / "cgroup.controllers", directory / "cgroup.subtree_control"
    return not controls.exists() or CONTROLLERS & set(controls.read_text().split()) <= set(granted.read_text().split())


def own_groups():
    """The directory of this process in each hierarchy; in v2 the nearest above it below which groups can be made."""
    mounted = {}
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split()[:3]
        words = before.split()
        if kind == "cgroup2":
            mounted[""] = (words[4], words[3])
        elif kind == "cgroup":
            for word in options.split(","):
                mounted[word] = (words[4], words[3])
    found = []
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        place = mounted.get(names) or mounted.get(names.split(",", maxsplit=1)[0])
        if place is None:
            continue
        top, directory = pathlib.Path(place[0]), pathlib.Path(place[0], os.path.relpath(path, place[1]))
        while not grants(directory) and directory != top:
            directory = directory.parent
        if not grants(directory):
            sys.exit(f"lane: {directory} gives no group below it the controllers {' '.join(sorted(CONTROLLERS))}; write "
                     f"them to its cgroup.subtree_control")
        found.append(directory)
    return found


def make_groups(name):
    """The lane's own groups, and those of them, or below them, that its processes go into: in v2 a group with
    processes has no children with controllers."""
    made, entered = [], []
    for parent in own_groups():
        path = parent / name
        path.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if not (path / "cgroup.controllers").exists() and (path / setting).exists() and \
                    not (path / setting).read_text().strip():
                (path / setting).write_text((parent / setting).read_text())
        made.append(path)
        controls = path / "cgroup.controllers"
        wanted = CONTROLLERS & set(controls.read_text().split()) if controls.exists() else set()
        if wanted:
            (path / "cgroup.subtree_control").write_text(" ".join(f"+{word}" for word in sorted(wanted)))
            (path / INNER).mkdir()
        entered.append(path / INNER if wanted else path)
    return made, entered


def weigh(groups, nice):
    """Gives the lane's priority to its groups: the kernel compares nice values of processes within a group alone."""
    for path in groups:
        if (path / "cpu.weight.nice").exists():
            (path / "cpu.weight.nice").write_text(str(nice))
        elif (path / "cpu.shares").exists():
            (path / "cpu.shares").write_text(str(round(1024 * 1.25 ** -nice)))


def cpu_seconds(groups):
    """CPU time of all that ran in the lane."""
    for path in groups:
        with contextlib.suppress(OSError):
            return int((path / "cpuacct.usage").read_text()) / 1e9
    for path in groups:
        with contextlib.suppress(OSError, KeyError):
            said = dict(line.split() for line in (path / "cpu.stat").read_text().splitlines())
            return int(said["usage_usec"]) / 1e6
    return 0.0


def remove_groups(groups):
    """With what is in them; their processes have ended."""
    for path in groups:
        for directory, _, _ in os.walk(path, topdown=False):
            for _ in range(100):
                try:
                    os.rmdir(directory)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.02)


# ---- the inside ----------------------------------------------------------------------------------

def lead_to(held):
    """Makes the clone and the build directory, which are held open, seen by everybody under their own paths: the lane's
    own /tmp may cover them, and a directory above them be closed to others. One of those is covered by an empty one
    that leads to them alone."""
    for path, descriptor in held.items():
        closed = [parent for parent in path.parents if parent.exists() and not parent.stat().st_mode & 1]
        if closed:
            mount("closed", closed[-1], "tmpfs", options="mode=755")
    for path, descriptor in held.items():
        if not path.exists():
            path.mkdir(parents=True)
            mount(f"/proc/self/fd/{descriptor}", path, flags=MS_BIND | MS_REC)
        os.close(descriptor)


def show_copy(copy):
    """Puts a copy that all may read in the place of the clone, but for what is written to and what only root wants."""
    kept = [path for path in (TOP / ".git", TOP / "js" / "node_modules", build_directory() / "results") if path.exists()]
    held = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in kept]
    mount(copy, TOP, flags=MS_BIND | MS_REC)
    for path, descriptor in zip(kept, held):
        path.mkdir(exist_ok=True)
        mount(f"/proc/self/fd/{descriptor}", path, flags=MS_BIND | MS_REC)
        os.close(descriptor)


def give_ids(part, user, count):
    """Boxes of root get ids that no file gives to anybody: all but this lane's part is given."""
    first = IDS_FIRST + part * PART
    given = [("cove-others", IDS_FIRST, first - IDS_FIRST), ("cove-others", first + PART, IDS_END - first - PART)]
    if user:
        whole = USER_IDS_COUNT if count is None else count
        given = [(user, USER_IDS_FIRST + part * USER_IDS_COUNT, whole)]
    text = "".join(f"{name}:{start}:{size}\n" for name, start, size in given if size)
    for name in ("subuid", "subgid"):
        file = pathlib.Path("/run", name)
        file.write_text(text)
        mount(file, pathlib.Path("/etc", name), flags=MS_BIND)


def set_up(temporary, part, user, count, host_network):
    check(libc.unshare(NEW_NS | NEW_IPC | (0 if host_network else NEW_NET)))
    mount(None, "/", flags=MS_REC | MS_PRIVATE)
    held = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (TOP, build_directory())}
    # Under an address of its own, for the loop devices of all lanes stand in one list.
    mount(temporary, "/tmp", flags=MS_BIND)
    resolver = pathlib.Path("/etc/resolv.conf").read_bytes() if host_network and \
        str(pathlib.Path("/etc/resolv.conf").resolve()).startswith("/run/") else None
    mount("run", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    pathlib.Path("/run/lock").mkdir(mode=0o1777)
    if resolver is not None:
        pathlib.Path("/run/resolv.conf").write_bytes(resolver)
        mount("/run/resolv.conf", "/etc/resolv.conf", flags=MS_BIND)
    mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | 8)
    lead_to(held)
    if os.environ.get("COVE_TEST_COPY"):
        show_copy(os.environ["COVE_TEST_COPY"])
    if os.path.exists("/etc/subuid") or user:
        for name in ("/etc/subuid", "/etc/subgid"):
            if not os.path.exists(name):
                raise OSError(2, f"{name} is missing; install the package uidmap")
        give_ids(part, user, count)
    if not host_network:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def plain_environment(user):
    """Returns the variables of a user who has just logged in, and those of ours that say how to test."""
    kept = ("BUILD", "PYTHONPATH", "COVE", "HTTP_SERVER", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LC_", "LANG")
    environment = {name: value for name, value in os.environ.items() if name.startswith(kept)}
    entry = pwd.getpwnam(user)
    environment.update(HOME=entry.pw_dir, USER=user, LOGNAME=user, SHELL=entry.pw_shell,
                       PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                       COVE_TEST_MADE=str(build_directory() / "made" / user), PYTHONDONTWRITEBYTECODE="1")
    return environment


def become(user):
    entry = pwd.getpwnam(user)
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def execute(command, user, nice):
    os.umask(0o022)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    environment = dict(os.environ)
    if user:
        environment = plain_environment(user)
        become(user)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        print(f"lane: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        os._exit(127)


# ---- things that are left --------------------------------------------------------------------------------

def processes():
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if pid != "1":
            with contextlib.suppress(OSError):
                words = pathlib.Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                name = pathlib.Path("/proc", pid, "comm").read_text().strip()
                found[int(pid)] = f"process {pid} ({name}: {words.strip()[:120]})"
    return found


def mounts():
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return {line.split()[0]: f"mount {line.split()[4]}" for line in lines}


def groups_below(groups):
    return {str(path): f"cgroup {path}" for group in groups for path in group.glob("*/") if path.name != INNER}


def loops(token):
    """Those whose file lies in the lane's /tmp."""
    found = {}
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            file = pathlib.Path(path).read_text().strip()
            if token in file:
                found[path, file] = f"loop device /dev/{path.split('/')[3]} of {file}"
    return found


def reap():
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def left_behind(groups, token, mounts_before):
    """One line for each thing that is there and should not be."""
    reap()
    new = {key: text for key, text in mounts().items() if key not in mounts_before}
    return [*processes().values(), *new.values(), *groups_below(groups).values(), *loops(token).values()]


def first_process(command, options, groups, temporary, part):
    """PID 1 of the lane: sets it up, runs the command, reaps, and looks at what it left. Returns the status and the
    lines."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    set_up(temporary, part, options.user, options.ids, options.host_network)
    if options.user:
        made = pathlib.Path(plain_environment(options.user)["COVE_TEST_MADE"])
        made.mkdir(parents=True, exist_ok=True)
        shutil.chown(made, options.user, pwd.getpwnam(options.user).pw_gid)
    os.environ.update(COVE_TEST_LANE=options.name, COVE_TEST_GROUPS=":".join(map(str, groups)))
    before = mounts()
    child = os.fork()
    if child == 0:
        execute(command, options.user, options.nice)
    status = None
    while status is None:
        pid, ended = os.wait()
        if pid == child:
            status = os.waitstatus_to_exitcode(ended)
    deadline = time.monotonic() + options.patience
    while (left := left_behind(groups, f"/tmp/{options.name}/", before)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return (128 - status if status < 0 else status), left


# ---- the outside ---------------------------------------------------------------------------------

def take_part():
    """The number of a part of the ids that nobody else on this machine has now, and what holds it."""
    while True:
        for number in range(ID_PARTS):
            held = open(LOCKS / str(number), "w", encoding="ascii")
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return number, held
            held.close()
        time.sleep(1)


def read_arguments():
    parser = argparse.ArgumentParser(description="runs a command in a lane of its own",
                                     usage="lane.py [options] NAME -- COMMAND...")
    parser.add_argument("--user", help="run it as this ordinary user, who is made if missing and stays")
    parser.add_argument("--ids", type=int, help="how many ids the user has in /etc/subuid; as adduser gives them, "
                                                "if not said")
    parser.add_argument("--nice", type=int, default=0,
                        help="its priority; 0, if not said. One lane of the machine at a time has one below 0")
    parser.add_argument("--host-network", action="store_true", help="keep the network of the host")
    parser.add_argument("--report", type=pathlib.Path, help="where what was left and the CPU time are written, as JSON")
    parser.add_argument("--patience", type=float, default=PATIENCE_S,
                        help="seconds that things may take to go after the command")
    parser.add_argument("name")
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


def make_user(name):
    try:
        pwd.getpwnam(name)
    except KeyError:
        print(f"lane: making the user {name}, who stays", file=sys.stderr)
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", name], check=True)


def run(options):
    part, held = take_part()
    places = build_directory() / "lanes"
    places.mkdir(parents=True, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=f"{options.name}-", dir=places)
    os.chmod(temporary, 0o1777)
    groups, entered = make_groups(f"lane-{options.name}-{os.getpid()}")
    weigh(groups, options.nice)
    reading, writing = os.pipe()
    check(libc.unshare(NEW_PID))
    child = os.fork()
    if child == 0:
        os.close(reading)
        for group in entered:
            (group / "cgroup.procs").write_text("0")
        status, left = 1, []
        try:
            status, left = first_process(options.command, options, groups, temporary, part)
        except OSError as error:
            print(f"lane: {options.name} cannot be set up: {error}", file=sys.stderr)
        os.write(writing, json.dumps({"status": status, "left": left}).encode())
        os._exit(0)
    os.close(writing)
    # To end this ends the lane: its first process takes all others with it.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.kill(child, signal.SIGKILL))
    with open(reading, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    said = json.loads(text) if text else {"status": 137, "left": []}
    said["cpu_s"] = round(cpu_seconds(groups), 2)
    remove_groups(groups)
    shutil.rmtree(temporary, ignore_errors=True)
    held.close()
    return said


def main():
    options = read_arguments()
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.geteuid() != 0:
        sys.exit("lane: only root makes lanes; run the command by itself, or the lane with sudo")
    if options.user:
        make_user(options.user)
    LOCKS.mkdir(parents=True, exist_ok=True)
    with open(LOCKS / "first", "w", encoding="ascii") as turn:
        if options.nice < 0:  # two that go before all others would not
            fcntl.flock(turn, fcntl.LOCK_EX)
        said = run(options)
    for line in said["left"]:
        print(f"lane: {options.name} has left {line}", file=sys.stderr)
    if options.report:
        options.report.write_text(json.dumps(said))
    sys.exit(said["status"] or (LEFT if said["left"] else 0))


if __name__ == "__main__":
    main()
