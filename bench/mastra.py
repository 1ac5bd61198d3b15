"""The Mastra bench: what an agent's sandbox takes, by CoveSandbox and beside it by LocalSandbox of @mastra/core, without isolation and with
bubblewrap; all in one Node process, in turn.

usage: mastra.py BUILD_DIRECTORY
Prints a table for people and writes BUILD_DIRECTORY/bench/mastra.json. It only judges; what is measured is in mastra.mjs.
"""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import report
from report import Row, percentile

TOP = pathlib.Path(__file__).resolve().parent.parent
NODE = os.path.realpath(TOP / "js" / "node_modules" / ".bin" / "node")
MS = 1e-6  # from ns
PEERS = {"none": "LocalSandbox", "bwrap": "LocalSandbox, bwrap"}
OURS = {"cove": "CoveSandbox", "cove_local": "CoveLocalSandbox"}


def measure(build):
    raw = f"{build}/bench/mastra.raw"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(raw)
    directory = tempfile.mkdtemp(prefix="cove-bench-")
    environment = {name: value for name, value in os.environ.items() if name not in ("COVE_URL", "COVE_API_KEY")}
    try:
        subprocess.run([NODE, str(TOP / "bench" / "mastra.mjs"), raw, directory], check=True,
                       env={**environment, "COVE_BIN": f"{build}/cove", "NODE_ENV": "production"})
    finally:
        shutil.rmtree(directory)
    return report.read_series(raw)


def rows_of(series):
    def samples(name):
        return series[name].scaled(MS) if name in series else []

    def beside(name, floor, goals):
        for which, title in OURS.items():
            for peer, peer_title in PEERS.items():
                ours = samples(f"{name}.{which}")
                yield Row(f"{name}_{which}_vs_{peer}", title, "ms", ours, peer=peer_title, section=section,
                          peer_p50=percentile(samples(f"{name}.{peer}"), 50), floor_p50=floor,
                          goal=goals.get((which, peer)))
        yield Row(f"{name}_client", "@cove/client: exec, the floor", "ms", samples(f"{name}.client"), section=section)
        for peer, title in PEERS.items():
            yield Row(f"{name}_{peer}", title, "ms", samples(f"{name}.{peer}"), section=section)

    section = "executeCommand('true'), one after the other"
    yield from beside("one", percentile(samples("one.client"), 50),
                      {("cove", "none"): ("p50", "<=", 1.2), ("cove", "bwrap"): ("ratio", "<=", 1)})
    section = "200 x executeCommand('true') at once, until the last has exited"
    third = ("ratio", "<=", 1 / 3)
    yield from beside("together", percentile(samples("together.client"), 50),
                      {("cove", "none"): third, ("cove", "bwrap"): third})
    section = "start() of a new CoveSandbox"
    create = percentile(samples("start.create"), 50)
    yield Row("start", "with an engine running", "ms", samples("start.start"), section=section, floor_p50=create, goal=("p50", "<=", 5))
    yield Row("start_first", "the same, and its first command", "ms", samples("start.start_first"), section=section, floor_p50=create)
    yield Row("start_create", "@cove/client: create, the floor", "ms", samples("start.create"), section=section)
    yield Row("start_cold", "without one, which it starts", "ms", samples("start.cold"), section=section, goal=("p50", "<=", 100))


def main():
    build = os.path.realpath(sys.argv[1])
    report.print_machine()
    print("node:", subprocess.run([NODE, "--version"], check=True, capture_output=True, text=True).stdout.strip(), flush=True)
    rows = list(rows_of(measure(build)))
    print()
    report.print_table(rows)
    report.write_json(f"{build}/bench/mastra.json", rows)
    return 0 if all(row.met() is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
