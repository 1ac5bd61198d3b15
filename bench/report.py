"""Statistics, the table for people and the JSON file: shared by all benches.

A bench makes Rows from the samples that the C programs wrote; this module decides nothing about
what is measured. A goal is met only by numbers: a row without samples fails its goal.
"""
import json
import os
import platform
import re
import sys
from dataclasses import dataclass, field


@dataclass
class Series:
    """The samples of one measurement, in `unit` as it was written."""
    unit: str
    failures: int
    samples: list

    def scaled(self, factor, less=0.0):
        return [sample * factor - less for sample in self.samples]


def read_series(path):
    """The series of a file that series_write() wrote, by name."""
    found = {}
    with open(path, encoding="ascii") as lines:
        for line in lines:
            name, unit, failures, *samples = line.split()
            found[name] = Series(unit, int(failures), [int(sample) for sample in samples])
    return found


def percentile(samples, percent):
    """Between the two nearest ranks, in proportion; None without samples."""
    if not samples:
        return None
    ordered = sorted(samples)
    at = (len(ordered) - 1) * percent / 100
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


@dataclass
class Row:
    """One published number. `goal` is ("p50", "p95", "p99" or "ratio", "<=" or ">=", number)."""
    name: str
    text: str
    unit: str
    samples: list
    peer: str = None
    peer_p50: float = None
    floor_p50: float = None
    goal: tuple = None
    section: str = ""
    failures: int = None  # of those whose samples these are; None: all rows together tell
    values: dict = field(default_factory=dict)

    def __post_init__(self):
        for percent in (50, 95, 99):
            self.values[f"p{percent}"] = percentile(self.samples, percent)
        p50 = self.values["p50"]
        self.ratio = p50 / self.peer_p50 if p50 is not None and self.peer_p50 else None

    def met(self):
        if self.goal is None:
            return None
        what, relation, limit = self.goal
        value = self.ratio if what == "ratio" else self.values[what]
        if value is None:
            return False
        return value <= limit if relation == "<=" else value >= limit

    def success(self):
        """The part that did not fail, of 1; None where it is not known."""
        tried = len(self.samples) + (self.failures or 0)
        return len(self.samples) / tried if self.failures is not None and tried else None

    def goal_text(self):
        if self.goal is None:
            return None
        what, relation, limit = self.goal
        return f"{what} {relation} {limit:g}" + ("" if what == "ratio" else f" {self.unit}")

    def as_json(self):
        return {"name": self.name, "unit": self.unit, **self.values, "n": len(self.samples),
                "success": self.success(),
                "peer": self.peer, "peer_p50": self.peer_p50, "floor_p50": self.floor_p50,
                "ratio": self.ratio, "goal": self.goal_text(), "met": self.met()}


def number(value):
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.3f}"


def percent(part):
    return "" if part is None else f"{100 * part:.4g}"


def print_table(rows):
    headings = ["", "unit", "p50", "p95", "p99", "n", "ok %", "peer", "peer p50", "floor p50", "ratio",
                "goal", "met"]
    lines = []
    section = None
    for row in rows:
        if row.section != section:
            section = row.section
            lines.append(section)
        met = {None: "", True: "yes", False: "NO"}[row.met()]
        lines.append(["  " + row.text, row.unit, *map(number, row.values.values()),
                      str(len(row.samples)), percent(row.success()), row.peer or "", number(row.peer_p50),
                      number(row.floor_p50), number(row.ratio), row.goal_text() or "", met])
    cells = [headings] + [line for line in lines if isinstance(line, list)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(headings))]
    left = {0, 1, 7, 11}
    for line in [headings] + lines:
        if isinstance(line, str):
            print(line)
            continue
        print("  ".join(cell.ljust(width) if i in left else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(line, widths))).rstrip())


def write_json(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        json.dump([row.as_json() for row in rows], out, indent=2)
        out.write("\n")


def cgroup_mounts():
    """How many hierarchies of v1 and of v2 are mounted."""
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        types = [line.split()[2] for line in mounts]
    return types.count("cgroup"), types.count("cgroup2")


def is_hybrid():
    return all(cgroup_mounts())


def cgroup_layout():
    v1, v2 = cgroup_mounts()
    if v1 and v2:
        return f"hybrid ({v1} hierarchies of v1 beside v2)"
    return "v2" if v2 else f"v1 ({v1} hierarchies)" if v1 else "none"


def print_machine():
    """What the numbers depend on. The load says whether somebody else was measured too."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = re.search(r"^model name\s*: (.*)$", info.read(), re.MULTILINE)
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        mount_count = len(mounts.readlines())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    print(f"machine: {model.group(1) if model else platform.machine()}, "
          f"{len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB, Linux {platform.release()}, "
          f"cgroups {cgroup_layout()}, {mount_count} mounts, load {load:.2f}")
    if load > 0.5:
        print("machine: it is not idle, so the numbers are worse than they should be")


def print_success(series):
    """What failed was not measured, and would be hidden by silence."""
    timed = {name: one for name, one in series.items() if one.unit == "ns"}
    tried = sum(len(one.samples) + one.failures for one in timed.values())
    failed = {name: one.failures for name, one in timed.items() if one.failures}
    rate = 100 * (1 - sum(failed.values()) / tried) if tried else 0
    print(f"success: {rate:.3f} % of {tried} runs"
          + "".join(f"; {name}: {count} failed" for name, count in failed.items()))
    sys.stdout.flush()
