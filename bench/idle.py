"""The idle bench: of what the memory consists that an idle sandbox takes.

usage: idle.py BUILD_DIRECTORY
Makes COVE_BENCH_IDLE sandboxes (500) at an engine of its own and prints, for one of them, by how much each line of
/proc/meminfo, each slab cache, and the memory of each kind of process is more than before. Then it makes what the
kernel keeps for a sandbox one by one, without cove: an empty cgroup in each hierarchy, and namespaces. These are the
floor. It judges nothing. On a machine that does other things it measures these.
"""
import concurrent.futures
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import sys
import tempfile
import time

import engine

COUNT = int(os.environ.get("COVE_BENCH_IDLE", "500"))
OBJECTS = 200  # of each kind of the floor
CONNECTIONS = 8
SETTLE_S = 3  # until the kernel has freed what it frees later
CACHES = 24  # that are named; the others are one line
PAGE = os.sysconf("SC_PAGE_SIZE")
OF_KERNEL = ("SUnreclaim", "SReclaimable", "Percpu", "KernelStack", "PageTables")
LINES = (*OF_KERNEL, "AnonPages", "Shmem")
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWNET = 0x2000000, 0x4000000, 0x8000000, 0x40000000


def meminfo():
    """In bytes. "files" is the page cache of disks, "other": pages that the kernel counts nowhere."""
    lines = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    found = {name: int(value.split()[0]) << 10 for name, value in lines.items()}
    files = found["Cached"] + found["Buffers"] - found["Shmem"]
    taken = {name: found[name] for name in LINES}
    counted = sum(taken.values()) + files + found["MemFree"]
    return {**taken, "other": found["MemTotal"] - counted, "available": -found["MemAvailable"]}


def slabs():
    found = {}
    for line in pathlib.Path("/proc/slabinfo").read_text().splitlines()[2:]:
        words = line.split()
        found[words[0]] = int(words[14]) * int(words[5]) * PAGE
    return found


def family(pid):
    yield pid
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from family(int(child))


def processes(keeper):
    """By name: how many, and the bytes that no other process has."""
    found = {}
    for pid in family(keeper):
        with contextlib.suppress(OSError):
            name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
            rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
            own = sum(int(line.split()[1]) << 10 for line in rollup if line.startswith("Private_"))
            count, all_own = found.get(name, (0, 0))
            found[name] = (count + 1, all_own + own)
    return found


def cgroups():
    return {words[0]: int(words[2]) for words in
            (line.split() for line in pathlib.Path("/proc/cgroups").read_text().splitlines()[1:])}


def look(keeper):
    time.sleep(SETTLE_S)
    return {"memory": meminfo(), "slabs": slabs(), "processes": processes(keeper), "cgroups": cgroups()}


def kib(amount, count):
    return f"{amount / count / 1024:9.1f}"


def print_difference(before, after, count):
    print(f"\nKiB of each of {count} idle sandboxes")
    for name, now in after["memory"].items():
        print(f"{kib(now - before['memory'][name], count)}  {name}")
    grown = sorted(((now - before["slabs"].get(name, 0), name) for name, now in after["slabs"].items()), reverse=True)
    print("slab caches")
    for amount, name in grown[:CACHES]:
        print(f"{kib(amount, count)}  {name}")
    print(f"{kib(sum(amount for amount, _ in grown[CACHES:]), count)}  the others")
    print("memory that only this process has, and how many of them there are for a sandbox")
    for name, (number, own) in sorted(after["processes"].items()):
        number_before, own_before = before["processes"].get(name, (0, 0))
        print(f"{kib(own - own_before, count)}  {name} ({(number - number_before) / count:.2f})")
    print("cgroups: " + ", ".join(f"{name} {(now - before['cgroups'].get(name, 0)) / count:.2f}"
                                  for name, now in after["cgroups"].items() if now > before["cgroups"].get(name, 0)))


# ---- sandboxes ----

class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def make(path, spec, count):
    connection = Connection(path)
    for _ in range(count):
        connection.request("POST", "/v1/sandboxes", json.dumps(spec), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 201:
            raise RuntimeError(body.decode())
    connection.close()


def make_all(path, spec, count):
    with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
        for done in [pool.submit(make, path, spec, count // CONNECTIONS) for _ in range(CONNECTIONS)]:
            done.result()
    return count // CONNECTIONS * CONNECTIONS


def measure(build, text, spec):
    work = tempfile.mkdtemp(prefix="cove-bench-")
    os.chmod(work, 0o755)
    try:
        with engine.serving(work, build) as (keeper, path):
            make_all(path, spec, 4 * CONNECTIONS)
            before = look(keeper.pid)
            made = make_all(path, spec, COUNT)
            print(f"\n== {text}", end="")
            print_difference(before, look(keeper.pid), made)
    finally:
        shutil.rmtree(work)


# ---- the floor ----

def unshare(flags):
    if LIBC.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def keep(namespace, flags):
    """One namespace, held by an fd alone."""
    back = os.open(f"/proc/self/ns/{namespace}", os.O_RDONLY)
    unshare(flags)
    held = os.open(f"/proc/self/ns/{namespace}", os.O_RDONLY)
    LIBC.setns(back, 0)
    os.close(back)
    return held


def print_floor(text, make_one, end=os.close):
    held = []
    before = meminfo()
    try:
        for number in range(OBJECTS):
            held.append(make_one(number))
        after = meminfo()
    finally:
        for one in held:
            end(one)
    taken = {name: after[name] - before[name] for name in OF_KERNEL}
    print(f"{kib(sum(taken.values()), OBJECTS)}  {text}: " + ", ".join(
        f"{name} {amount / OBJECTS / 1024:.1f}" for name, amount in taken.items()))


def hierarchies():
    """Those in which a box has a cgroup: where each is mounted."""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        words = set(options.split(","))
        if kind == "cgroup2" or (kind == "cgroup" and words & {"cpu", "cpuacct", "cpuset", "memory", "pids"}):
            yield pathlib.Path(place)


def print_floors():
    print(f"\n== the floor: KiB of each of {OBJECTS} that are made without cove")
    for place in hierarchies():
        def group(number, place=place):
            path = place / f"cove-bench-{os.getpid()}-{number}"
            path.mkdir()
            return path
        print_floor(f"an empty cgroup in {place}", group, pathlib.Path.rmdir)
    for name, flags in (("net", CLONE_NEWNET), ("ipc", CLONE_NEWIPC), ("uts", CLONE_NEWUTS),
                        ("cgroup", CLONE_NEWCGROUP)):
        print_floor(f"an empty {name} namespace", lambda _, name=name, flags=flags: keep(name, flags))


def main():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    build = os.path.abspath(sys.argv[1])
    measure(build, "network none, ephemeral", {"disk_kind": "ephemeral", "network": {"mode": "none"}})
    measure(build, "network public, ephemeral", {"disk_kind": "ephemeral", "network": {"mode": "public"}})
    print_floors()


if __name__ == "__main__":
    main()
