"""The engine bench: what sandboxes cost those who ask `cove serve` for them, beside bubblewrap, crun and
the floors, in one run.

usage: engine.py BUILD_DIRECTORY
Starts an engine with a data directory of its own, and ends it however this ends. Then prints a table
for people and writes BUILD_DIRECTORY/bench/engine.json. It only judges; what is measured, and how, is
in engine.c and spawn.c.
"""
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import box
import report
from report import Row, percentile

IDLE = int(os.environ.get("COVE_BENCH_IDLE", "2000"))
PERSISTENT_IDLE = max(IDLE // 10, 10)
PACE_MS = 15  # before and after each: the pool fills up again meanwhile
PERSISTENT_PACE_MS = 75
PEER_ROUNDS, PEER_BLOCK = 15, 10
START_S = 15
END_S = 60
PR_SET_PDEATHSIG = 1
MS = 1e-6  # from ns


def die_with_parent():
    """In the child: if this script is killed, the keeper ends in order, and with it all its boxes."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def serving(work, build, before=(), options=(), listen="none"):
    """An engine with the usual settings; its process, and its socket. `before`: the words of a program that
    executes it."""
    socket = f"{work}/cove.sock"
    log = f"{work}/log"
    with open(log, "wb") as out:
        keeper = subprocess.Popen(
            [*before, f"{build}/cove", "serve", "--data", f"{work}/data", "--socket", socket,
             "--listen", listen, *options],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=die_with_parent)
    try:
        until = time.monotonic() + START_S
        while not os.path.exists(socket) and keeper.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        if not os.path.exists(socket):
            raise subprocess.CalledProcessError(keeper.poll() or 1, ["cove serve"])
        yield keeper, socket
    finally:
        if keeper.poll() is None:
            keeper.terminate()
        try:
            keeper.wait(END_S)
        except subprocess.TimeoutExpired:
            keeper.kill()  # its janitor removes what is left
            keeper.wait()
        show_warnings(log)


def show_warnings(log):
    """What the engine found wrong while it was measured: a number may be one of something that failed."""
    with open(log, encoding="utf-8", errors="replace") as lines:
        warnings = [line for line in lines if " warn " in line or " error " in line]
    for line in warnings[:10]:
        print("engine says: " + line.rstrip())
    if len(warnings) > 10:
        print(f"engine says: {len(warnings) - 10} lines more")


def measure(work, build):
    """Runs engine.c; its series by name, as far as it got."""
    raw = f"{build}/bench/engine.raw"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(raw)
    with serving(work, build) as (keeper, socket):
        words = [f"{build}/bench/engine", raw, socket, str(keeper.pid), f"{build}/bench/true", work,
                 str(PACE_MS), str(PERSISTENT_PACE_MS), str(IDLE), str(PERSISTENT_IDLE)]
        status = subprocess.run(words, check=False).returncode
    series = report.read_series(raw) if os.path.exists(raw) else {}
    return series, status == 0


def race(work, build):
    """The peers, and what they said if crun cannot be one."""
    try:
        return box.race(work, build, "peers", PEER_ROUNDS, PEER_BLOCK, 0), None
    except subprocess.CalledProcessError:
        shutil.rmtree(f"{work}/peers")
    return (box.race(work, build, "peers", PEER_ROUNDS, PEER_BLOCK, 0, with_crun=False),
            "peers: crun does not run here, so it is missing")


class Table:
    """Rows from series: a series that is missing makes a row without samples, which meets no goal."""

    def __init__(self, series):
        self.series = series
        self.rows = []
        self.section = ""

    def samples(self, name, factor=MS):
        return self.series[name].scaled(factor) if name in self.series else []

    def p50(self, name):
        return percentile(self.samples(name), 50)

    def add(self, name, text, unit, samples, of=None, **more):
        """`of` is the series whose failures count."""
        self.rows.append(Row(name, text, unit, samples, section=self.section,
                             failures=self.series[of].failures if of in self.series else None, **more))

    def time(self, name, text, of, **more):
        self.add(name, text, "ms", self.samples(of), of=of, **more)

    def rate(self, name, text, of, **more):
        self.add(name, text, "1/s", [1000 / sample for sample in self.samples(of)], of=of, **more)

    def megabytes(self, name, text, of, **more):
        self.add(name, text, "MB", self.samples(of, 1e-6), of=of, **more)


def both(*values):
    return sum(values) if all(value is not None for value in values) else None


def first_rows(table):
    table.section = f"create, one every {2 * PACE_MS} ms and what it takes, from a pool of the usual size"
    floor = both(table.p50("create_first_spawn"), table.p50("create_first_write"))
    table.time("create", "create, ephemeral", "create", peer="write 4 KiB and fdatasync",
               peer_p50=table.p50("create_first_write"), floor_p50=table.p50("create_first_write"))
    for peer, goal in (("bwrap", ("p50", "<=", 1.5)), ("crun", ("p99", "<=", 10))):
        table.time(f"create_first_vs_{peer}", "create and /bin/true in it", "create_first",
                   peer=f"{peer} ... /bin/true", peer_p50=table.p50(peer), floor_p50=floor, goal=goal)
    table.section = f"create, persistent, one every {2 * PERSISTENT_PACE_MS} ms and what it takes"
    floor = both(table.p50("persistent_spawn"), table.p50("persistent_write"))
    table.time("persistent_create", "create", "persistent_create", peer="write 4 KiB and fdatasync",
               peer_p50=table.p50("persistent_write"), floor_p50=table.p50("persistent_write"),
               goal=("p50", "<=", 5))
    table.time("persistent_create_first", "create and /bin/true in it", "persistent_create_first",
               peer="bwrap ... /bin/true", peer_p50=table.p50("bwrap"), floor_p50=floor)


def exec_rows(table):
    table.section = "exec, one connection"
    floor = table.p50("exec_floor")
    table.time("exec", "static true", "exec", peer="vfork+exec outside", peer_p50=floor,
               floor_p50=floor, goal=("p50", "<=", 0.6))
    dynamic = table.p50("exec_dynamic_floor")
    table.time("exec_dynamic", "/bin/true", "exec_dynamic", peer="vfork+exec outside",
               peer_p50=dynamic, floor_p50=dynamic)
    table.add("exec_dynamic_net", "/bin/true, net of vfork+exec outside", "ms",
              [sample - (dynamic or 0) for sample in table.samples("exec_dynamic")],
              of="exec_dynamic", floor_p50=dynamic, goal=("p50", "<=", 0.3))
    table.rate("exec_rate", "static true, one after the other", "exec_windows",
               goal=("p50", ">=", 3000))
    table.section = "exec, 4 connections to 4 sandboxes"
    table.rate("exec_rate_together", "static true", "exec_windows_together")


def throughput_rows(table):
    table.section = "create and destroy"
    table.rate("throughput", "both, 8 connections", "cycles", goal=("p50", ">=", 500))
    table.time("burst", "100 at once, until the last answer", "burst", goal=("p99", "<=", 1000))
    table.time("burst_each", "100 at once, each answer", "burst_each")


def alive_rows(table):
    table.section = f"{IDLE:,} idle, ephemeral"
    table.megabytes("idle_memory", "memory of each (of MemAvailable)", "memory_ephemeral",
                    goal=("p50", "<=", 0.5))
    table.megabytes("idle_memory_engine", "of it, keeper and engine (Pss)",
                    "server_memory_ephemeral")
    table.megabytes("idle_memory_kernel", "of it, the kernel's slabs (SUnreclaim)",
                    "slab_memory_ephemeral")
    table.megabytes("idle_memory_floor", "slabs of an empty memory cgroup, the floor",
                    "slab_memory_group")
    table.time("exec_alive", "static true, in one beside them", "exec_alive",
               peer="before they were there", peer_p50=table.p50("exec_alone"),
               floor_p50=table.p50("exec_alive_floor"), goal=("ratio", "<=", 1.1))
    table.time("exec_first_alive", "first command of any of them", "exec_first_alive")
    table.rate("fill", "made, 16 connections", "fill_ephemeral")
    table.rate("empty", "deleted, 16 connections", "empty_ephemeral")
    table.section = f"{PERSISTENT_IDLE:,} idle, persistent"
    table.megabytes("persistent_idle_memory", "memory of each (of MemAvailable)",
                    "memory_persistent", goal=("p50", "<=", 0.8))
    table.megabytes("persistent_idle_memory_engine", "of it, keeper and engine (Pss)",
                    "server_memory_persistent")
    table.megabytes("persistent_idle_memory_kernel", "of it, the kernel's slabs (SUnreclaim)",
                    "slab_memory_persistent")
    table.rate("persistent_fill", "made, 16 connections", "fill_persistent")
    table.rate("persistent_empty", "deleted, 16 connections", "empty_persistent")


def peer_rows(table):
    table.section = "the peers, back to back"
    for who, text in (("cove", "cove run -- /bin/true"), ("bwrap", "bwrap ... /bin/true"),
                      ("crun", "crun run, /bin/true"), ("true", "/bin/true, vfork+exec"),
                      ("floor", "clone3 with 7 namespaces, static true")):
        if who in table.series:
            table.time(f"peer_{who}", text, who)


def end(number, _frame):
    sys.exit(128 + number)


def bench(name, measure_all, rows_of):
    """All of a bench but what is measured and how it is judged."""
    build = os.path.abspath(sys.argv[1])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, end)
    report.print_machine()
    work = tempfile.mkdtemp(prefix="cove-bench-")
    os.chmod(work, 0o755)
    try:
        series, is_complete = measure_all(work, build)
    finally:
        shutil.rmtree(work)
    rows = list(rows_of(series))
    report.print_table(rows)
    report.print_success(series)
    report.write_json(f"{build}/bench/{name}.json", rows)
    if not is_complete:
        sys.exit(f"bench: {name} failed, so what it measures is missing here")


def measure_beside_peers(work, build):
    peers, missing = race(work, build)
    if missing:
        print(missing)
    series, is_complete = measure(work, build)
    return {**series, **peers}, is_complete


def rows_of_all(series):
    table = Table(series)
    for add in (first_rows, exec_rows, throughput_rows, alive_rows, peer_rows):
        add(table)
    return table.rows


if __name__ == "__main__":
    bench("engine", measure_beside_peers, rows_of_all)
