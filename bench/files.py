"""The files bench: how fast files move through the API, beside `cp` and `grep` in the same sandbox.

usage: files.py BUILD_DIRECTORY
Starts an engine with a data directory of its own, and ends it however this ends. Prints a table for
people and writes BUILD_DIRECTORY/bench/files.json. It only judges; what is measured is in files.c.
"""
import contextlib
import os
import subprocess

import engine
import report
from report import Row, percentile

BYTES = int(os.environ.get("COVE_BENCH_BYTES", str(512 << 20)))
FILES = 10000
ROUNDS = int(os.environ.get("COVE_BENCH_ROUNDS", "7"))
MS = 1e-6  # from ns


def measure(work, build):
    raw = f"{build}/bench/files.raw"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(raw)
    with engine.serving(work, build) as (keeper, socket):
        status = subprocess.run([f"{build}/bench/files", raw, socket, str(keeper.pid), str(BYTES),
                                 str(FILES), str(ROUNDS)], check=False).returncode
    series = report.read_series(raw) if os.path.exists(raw) else {}
    return series, status == 0


def rows_of(series):
    def samples(name, factor=MS):
        return series[name].scaled(factor) if name in series else []

    def speed(name):
        return [BYTES / sample for sample in samples(name, 1)]  # bytes per ns are GB/s

    def p50(values):
        return percentile(values, 50)

    cp = speed("cp")
    size = f"{BYTES >> 20} MiB"
    beside_cp = [own / peer for own, peer in zip(speed("upload"), cp)]
    beside_grep = [own / peer for own, peer in zip(samples("grep"), samples("grep_peer"))]
    section = f"one file of {size}, unix socket, one connection"
    yield Row("download", "download", "GB/s", speed("download"), section=section,
              peer="cp in the sandbox", peer_p50=p50(cp), floor_p50=p50(cp), goal=("p50", ">=", 1))
    yield Row("upload", "upload", "GB/s", speed("upload"), section=section,
              peer="cp in the sandbox", peer_p50=p50(cp), floor_p50=p50(cp))
    yield Row("upload_beside_cp", "upload, as a part of cp", "x", beside_cp, section=section,
              goal=("p50", ">=", 0.3))
    yield Row("memory", "engine and its pipes, beside idle", "MB", samples("memory", 1e-6), section=section,
              goal=("p99", "<=", 16 * 1.048576))
    section = "many"
    yield Row("many", f"{FILES:,} small files, one request", "ms", samples("many"), section=section,
              peer="cp -r and rm -r in the sandbox", peer_p50=p50(samples("many_sh")),
              floor_p50=p50(samples("many_sh")), goal=("p50", "<=", 1000))
    yield Row("list", "100,000 entries listed", "ms", samples("list"), section=section)
    section = "searched: 50 MB, 500 files"
    yield Row("grep", "grep", "ms", samples("grep"), section=section, peer="grep -r in the sandbox",
              peer_p50=p50(samples("grep_peer")), floor_p50=p50(samples("grep_peer")))
    yield Row("grep_beside_grep", "grep, as many times grep -r", "x", beside_grep, section=section,
              goal=("p50", "<=", 2))
    section = "one call"
    yield Row("stat", "stat of one file", "ms", samples("stat"), section=section,
              peer="a shell's true", peer_p50=p50(samples("exec")), floor_p50=p50(samples("exec")))


if __name__ == "__main__":
    engine.bench("files", measure, rows_of)
