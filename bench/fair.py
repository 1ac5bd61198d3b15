"""The fairness bench: what one tenant notices of another that moves files or output at full rate, or floods
the API.

usage: fair.py BUILD_DIRECTORY
Starts an engine with a data directory of its own, and ends it however this ends. Prints a table for
people and writes BUILD_DIRECTORY/bench/fair.json. It only judges; what is measured is in fair.c.
"""
import contextlib
import os
import subprocess

import engine
import report
from report import Row, percentile

SAMPLES = int(os.environ.get("COVE_BENCH_SAMPLES", "1500"))
MS = 1e-6  # from ns
NOISES = {
    "download": "downloads, two at once",
    "upload": "uploads, two at once",
    "output": "two commands that print without end, followed",
    "flood": "32 connections that list sandboxes",
    "flood_exec": "32 connections that run commands",
}


def measure(work, build):
    raw = f"{build}/bench/fair.raw"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(raw)
    with engine.serving(work, build) as (_, socket):
        status = subprocess.run([f"{build}/bench/fair", raw, socket, str(SAMPLES)],
                                check=False).returncode
    series = report.read_series(raw) if os.path.exists(raw) else {}
    return series, status == 0


def rows_of(series):
    def samples(name):
        return series[name].scaled(MS) if name in series else []

    def p99(name):
        return percentile(samples(name), 99)

    def beside_idle(name, idle):
        return p99(name) / p99(idle) if samples(name) and samples(idle) else None

    section = "a tenant's /bin/true, beside a vfork+exec of it outside"
    yield Row("fair_idle", "while nobody else does anything", "ms", samples("idle"), section=section,
              peer="outside", peer_p50=percentile(samples("idle_bare"), 50))
    for name, text in NOISES.items():
        yield Row(f"fair_{name}", text, "ms", samples(name), section=section, peer="outside",
                  peer_p50=percentile(samples(f"{name}_bare"), 50))
    section = "its p99, as many times that of idle; the floor is the same of what runs outside"
    for name, text in NOISES.items():
        ratio = beside_idle(name, "idle")
        yield Row(f"fair_{name}_beside_idle", text, "x", [ratio] if ratio else [], section=section,
                  floor_p50=beside_idle(f"{name}_bare", "idle_bare"), goal=("p50", "<=", 3))


if __name__ == "__main__":
    engine.bench("fair", measure, rows_of)
