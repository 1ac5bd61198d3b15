"""The kernels bench: how long a kernel takes, in C, through a worker process and from Node by the addon, beside other ways to run code
in a sandbox within Node; all on one core, in one run.

usage: kernels.py BUILD_DIRECTORY
Prints a table for people and writes BUILD_DIRECTORY/bench/kernels.json. It only judges; what is measured is in kernels.c, kernels_worker.c
and kernels_node.mjs.
"""
import contextlib
import os
import pathlib
import subprocess
import sys
import time

import report
from report import Row, percentile

TOP = pathlib.Path(__file__).resolve().parent.parent
CORE = ["taskset", "-c", os.environ.get("COVE_BENCH_CORE", "0")]
COLD = 15
PROCESSES = 100
US = 1e-3  # from ns
MS = 1e-6
PEERS = {"quickjs": "quickjs-emscripten", "isolated": "isolated-vm", "vm": "node:vm (no sandbox)"}
WORK = {"json": "JSON: 200 objects there and back", "regex": "regular expressions: 400 matches, replaced",
        "sort": "sort: 10,000 numbers by a function", "strings": "strings: 20,000 joined and split"}
# Of kernels.c: the beginning of a series' name, and what it has to meet.
GOALS = {"pristine_context_1_1": ("p50", "<=", 10), "through_a_worker_pristine": ("p50", "<=", 30), "live_contexts_KiB": ("p50", "<=", 120)}


def processes(words, count):
    """ns of each, from its start to its end."""
    times = []
    environment = {"PATH": os.environ["PATH"]}
    path = words[0]
    null = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, 1)]
    for _ in range(count):
        before = time.perf_counter_ns()
        pid = os.posix_spawn(path, words, environment, file_actions=actions)
        status = os.waitpid(pid, 0)[1]
        times.append(time.perf_counter_ns() - before)
        if status != 0:
            raise SystemExit(f"bench: {words}: status {status}")
    os.close(null)
    return times


def measure(build, node):
    peers, addon = f"{build}/kernels-peers", str(TOP / "js" / "packages" / "node")
    script = str(TOP / "bench" / "kernels_node.mjs")
    raw = {name: f"{build}/bench/kernels-{name}.raw" for name in ("c", "node")}
    for path in raw.values():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    sys.stdout.flush()
    for program in ("kernels", "kernels_worker"):
        subprocess.run([*CORE, f"{build}/bench/{program}"], check=True, env={**os.environ, "COVE_BENCH_RAW": raw["c"]})
    subprocess.run([*CORE, node, script, raw["node"], peers, addon], check=True)
    cold = {}
    for which in ("cove", *PEERS):
        cold[which] = [int(subprocess.run([*CORE, node, script, "--cold", which, peers, addon], check=True, capture_output=True,
                                          text=True).stdout) for _ in range(COLD)]
    os.sched_setaffinity(0, {int(CORE[-1])})
    whole = {"cove": processes([f"{build}/cove", "js", "-e", "1"], PROCESSES),
             "node": processes([node, "-e", "1"], COLD), "true": processes(["/bin/true"], PROCESSES)}
    return report.read_series(raw["c"]), report.read_series(raw["node"]), cold, whole


def rows_of_c(series):
    for name, one in series.items():
        goal = next((goal for prefix, goal in GOALS.items() if name.startswith(prefix)), None)
        if one.unit != "ns":
            yield Row(name, name.replace("_", " "), one.unit, [sample / 1000 for sample in one.samples], section="in C", goal=goal)
            continue
        samples = one.scaled(US)
        yield Row(name, name.replace("_", " "), "us", samples, section="in C", goal=goal)
        if name == "pristine_context_1_1":
            yield Row("rate", "  pristine contexts with a result", "/s", [len(samples) / sum(samples) * 1e6], section="in C",
                      goal=("p50", ">=", 100000))


def beside(name, text, unit, ours, peers, goal=None):
    """Ours, and each peer in a row of its own."""
    yield Row(f"node_{name}", "@cove/node", unit, ours, section=text, goal=goal)
    for which, (title, samples) in peers.items():
        yield Row(f"node_{name}_{which}", title, unit, samples, section=text, peer="@cove/node", peer_p50=percentile(ours, 50))


def rows_of_node(series, cold, whole):
    def samples(which, name):
        one = series.get(f"{which}.{name}")
        return one.scaled(US) if one else []

    def peers(name):
        return {which: (title, samples(which, name)) for which, title in PEERS.items()}

    yield from beside("once", "from Node: a pristine one, 1 + 1", "us", samples("cove", "once"), peers("once"), ("p50", "<=", 40))
    yield from beside("cold", "from Node: from before the import to the first value, in a new process", "ms",
                      [ns * MS for ns in cold["cove"]],
                      {which: (title, [ns * MS for ns in cold[which]]) for which, title in PEERS.items()})
    yield from beside("live", "from Node: in a live one, 1 + 1", "us", samples("cove", "live"), peers("live"))
    for name, text in WORK.items():
        yield from beside(name, f"from Node, live: {text}", "us", samples("cove", name), peers(name))
    floor = percentile([ns * MS for ns in whole["true"]], 50)
    section = "a whole process"
    yield Row("process_cove", "cove js -e 1", "ms", [ns * MS for ns in whole["cove"]], section=section, floor_p50=floor, goal=("p50", "<=", 5))
    yield Row("process_node", "node -e 1", "ms", [ns * MS for ns in whole["node"]], section=section, floor_p50=floor)


def main():
    build = os.path.realpath(sys.argv[1])
    node = os.path.realpath(TOP / "js" / "node_modules" / ".bin" / "node")
    report.print_machine()
    print("node:", subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout.strip(), flush=True)
    series, series_node, cold, whole = measure(build, node)
    rows = [*rows_of_c(series), *rows_of_node(series_node, cold, whole)]
    print()
    report.print_table(rows)
    report.write_json(f"{build}/bench/kernels.json", rows)
    return 0 if all(row.met() is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
