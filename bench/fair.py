"""The fairness bench: what one tenant notices of another that moves files or output at full rate, floods the API,
holds what it can of the engine, or runs programs that take what they can of the host.

usage: fair.py BUILD_DIRECTORY
Starts an engine with a data directory of its own, and ends it however this ends. Prints a table for
people and writes BUILD_DIRECTORY/bench/fair.json. It only judges; what is measured is in fair.c.
"""
import contextlib
import os
import socket as socketlib
import subprocess

import engine
import report
from report import Row, percentile

SAMPLES = int(os.environ.get("COVE_BENCH_SAMPLES", "1000"))
MS = 1e-6  # from ns
NOISES = {
    "download": "downloads, two at once",
    "upload": "uploads, two at once",
    "output": "two commands that print without end, followed",
    "flood": "32 connections that list sandboxes",
    "flood_exec": "32 connections that run commands",
    "creates": "150 persistent creates at once, again and again",
    "events": "4,096 connections that listen to events",
    "bodies": "4,096 bodies that do not come",
    "strangers": "4,096 requests that do not end, of nobody",
    "messages": "200 messages of 4 MiB that lack a byte",
    "memory": "a box that takes all the memory it gets",
    "forks": "a fork bomb",
    "shared": "shared memory without a file",
    "locks": "POSIX locks without end",
    "unread": "TCP connections to itself that it does not read",
    "terminals": "terminals without end",
    "inotify": "inotify instances without end",
}
ASKED = os.environ.get("COVE_BENCH_NOISES", " ".join(["", "burst", *NOISES, ""])).split()
NOISES = {name: text for name, text in NOISES.items() if name in ASKED}
BEYOND = 1.5  # as many times what a process outside suffers
BURST_MS = 500


def measure(work, build):
    raw = f"{build}/bench/fair.raw"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(raw)
    with contextlib.closing(socketlib.create_server(("127.0.0.1", 0))) as found:
        port = found.getsockname()[1]
    with engine.serving(work, build, listen=f"127.0.0.1:{port}") as (_, socket):
        status = subprocess.run([f"{build}/bench/fair", raw, socket, str(port), str(SAMPLES)],
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

    def failures(name):
        return series[name].failures if name in series else None

    for what, end in (("/bin/true", ""), ("create", "_create")):
        section = f"a tenant's {what}, beside a vfork+exec outside"
        yield Row(f"fair_idle{end}", "while nobody else does anything", "ms", samples(f"idle{end}"), section=section,
                  failures=failures(f"idle{end}"), peer="outside", peer_p50=percentile(samples("idle_bare"), 50))
        for name, text in NOISES.items():
            yield Row(f"fair_{name}{end}", text, "ms", samples(f"{name}{end}"), section=section,
                      failures=failures(f"{name}{end}"), peer="outside",
                      peer_p50=percentile(samples(f"{name}_bare"), 50))
        section = f"how much more its p99 of {what} grows than that of what runs outside; the floor is how much that does"
        for name, text in NOISES.items():
            ours, floor = beside_idle(f"{name}{end}", f"idle{end}"), beside_idle(f"{name}_bare", "idle_bare")
            yield Row(f"fair_{name}{end}_beside_idle", text, "x", [ours / floor] if ours and floor else [],
                      section=section, floor_p50=floor, goal=("p50", "<=", BEYOND))
    if "burst" not in ASKED:
        return
    section = "a hundred creates at once"
    for kind in ("ephemeral", "persistent"):
        yield Row(f"fair_burst_{kind}", kind, "ms", samples(f"burst_{kind}"), section=section,
                  failures=failures(f"burst_{kind}"))
    last = [max(samples(f"burst_{kind}"), default=None) for kind in ("ephemeral", "persistent")]
    yield Row("fair_burst", "the last persistent one after the last ephemeral one", "ms",
              [last[1] - last[0]] if None not in last else [], section=section, goal=("p50", "<=", BURST_MS))


if __name__ == "__main__":
    engine.bench("fair", measure, rows_of)
