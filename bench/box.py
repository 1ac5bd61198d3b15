"""The box bench: what a box costs, beside bubblewrap, crun and the floor, in one run.

usage: box.py BUILD_DIRECTORY
Runs the C programs, then prints a table for people and writes BUILD_DIRECTORY/bench/box.json.
It only judges; what is measured, and how, is in spawn.c and box.c.
"""
import os
import shutil
import subprocess
import sys
import tempfile

import peers
import report
from report import Row, percentile

HOT_ROUNDS = 40
HOT_BLOCK = 10
PACED_ROUNDS = 30
PAUSE_MS = 300
MS = 1e-6  # from ns


def race(work, build, name, rounds, block, pause_ms, become=(), with_crun=True):
    """Runs the contestants of the cold start against each other; their series by name. `become` are
    words before the command, for an ordinary user."""
    work = os.path.join(work, name)
    os.makedirs(work)
    for program in ("cove", "bench/true", "bench/spawn"):  # where everybody can read them
        shutil.copy(f"{build}/{program}", work)
    contestants = {
        "true": ["/bin/true"],
        "floor": ["@namespaces", f"{work}/true"],
        "cove": ["+2=/dev/null", f"{work}/cove", "run", "--", "/bin/true"],  # it says what is weaker
        "bwrap": peers.bwrap(work, ["/bin/true"]),
    }
    if with_crun and not become:
        contestants["crun"] = peers.crun(work, ["/bin/true"])
    words = []
    for contestant, command in contestants.items():
        words += [contestant, *command, ",,"]
    raw = f"{work}/raw"
    with open(raw, "wb"):
        os.chmod(raw, 0o666)
    subprocess.run([*become, f"{work}/spawn", raw, str(rounds), str(block), str(pause_ms), *words],
                   check=True, cwd=work)
    return report.read_series(raw)


def as_user(work, subids):
    """Words that make the command one of nobody's, to whom /etc/subuid and /etc/subgid give `subids`:
    in mounts of its own, so that the host's files stay as they are."""
    path = os.path.join(work, "subids" if subids else "no-subids")
    with open(path, "w", encoding="ascii") as file:
        file.write(subids)
    script = ('mount --bind "$0" /etc/subuid && mount --bind "$0" /etc/subgid && '
              'exec setpriv --reuid nobody --regid nogroup --clear-groups "$@"')
    return ["unshare", "-m", "sh", "-c", script, path]


def cold_rows(series, name, title, goal):
    """Net of what spawning /bin/true costs by itself, for everybody pays that."""
    true_ns = percentile(series["true"].samples, 50)
    against = [peer for peer in ("bwrap", "crun") if peer in series]
    net = {who: percentile(series[who].samples, 50) - true_ns for who in against}
    floor = percentile(series["floor"].samples, 50)
    cove = [sample - true_ns for sample in series["cove"].samples]
    rows = []
    for peer in against:
        rows.append(Row(
            name=f"{name}_vs_{peer}", text=f"cove run, net of /bin/true, beside {peer}", unit="ms",
            samples=[sample * MS for sample in cove], peer=f"{peer}, net of /bin/true",
            peer_p50=net[peer] * MS, floor_p50=floor * MS,
            goal=goal if peer == "bwrap" else None, section=title))
    for who, text in (("cove", "cove run -- /bin/true"), ("bwrap", "bwrap ... /bin/true"),
                      ("crun", "crun run, /bin/true"), ("true", "/bin/true"),
                      ("floor", "clone3 with 7 namespaces, static true")):
        if who not in series:
            continue
        rows.append(Row(name=f"{name}_gross_{who}", text=text, unit="ms",
                        samples=series[who].scaled(MS), section=title))
    return rows


def alive(work, build):
    """Runs box.c on a root that holds the static true and nothing else; its series by name."""
    root, empty = os.path.join(work, "root"), os.path.join(work, "empty")
    os.makedirs(root)
    os.makedirs(empty)
    os.chmod(root, 0o755)
    shutil.copy(f"{build}/bench/true", os.path.join(root, "true"))
    raw = f"{build}/bench/alive.raw"
    words = [f"{build}/bench/box", raw, root, f"{build}/bench/true", empty]
    with subprocess.Popen(words) as measuring:
        try:
            status = measuring.wait()
        except KeyboardInterrupt:
            measuring.wait()  # it removes the cgroups of its boxes
            raise
    if status != 0:
        raise subprocess.CalledProcessError(status, words)
    return report.read_series(raw)


def alive_rows(series, cold):
    """The numbers from within one process. bwrap's cold start is what the others have instead."""
    ms = {name: one.scaled(MS) for name, one in series.items() if one.unit == "ns"}
    p50 = {name: percentile(samples, 50) for name, samples in ms.items()}
    bwrap = percentile(cold["bwrap"].samples, 50) * MS
    floor = percentile(cold["floor"].samples, 50) * MS
    rows = [
        Row("zygote_create", "zygote create, overlay root", "ms", ms["create"],
            goal=("p50", "<=", 1), floor_p50=floor),
        Row("zygote_create_first_exec", "zygote create and first exec", "ms",
            ms["create_first_exec"], peer="bwrap ... /bin/true", peer_p50=bwrap, floor_p50=floor),
        Row("zygote_create_1000_mounts", "zygote create, 1,000 more mounts on the host", "ms",
            ms["create_many_mounts"], peer="without them", peer_p50=p50["create_few_mounts"],
            goal=("ratio", "<=", 1.05)),
        Row("destroy", "destroy", "ms", ms["destroy"]),
        Row("throughput", "create and destroy", "1/s", [1000 / cycle for cycle in ms["cycles"]],
            goal=("p50", ">=", 500)),
        Row("exec", "exec of a static true", "ms", ms["exec"], peer="vfork+exec outside",
            peer_p50=p50["exec_floor"], floor_p50=p50["exec_floor"], goal=("p50", "<=", 0.25)),
    ]
    for row in rows:
        row.section = "one box at a time"
    for count in (1000, 5000):
        at = f"{count:,} alive"
        megabytes = [sample / 1e6 for sample in series[f"memory_{count}"].samples]
        rows += [
            Row(f"zygote_create_{count}_alive", "zygote create", "ms", ms[f"create_{count}"],
                peer="with none alive", peer_p50=p50["create"],
                goal=("ratio", "<=", 1.2) if count == 5000 else None, section=at),
            Row(f"exec_{count}_alive", "exec in any of them", "ms", ms[f"exec_{count}"],
                peer="always in the same", peer_p50=p50[f"exec_beside_{count}"],
                floor_p50=p50["exec_floor"], section=at),
            Row(f"exec_first_{count}_alive", "first exec in any of them", "ms",
                ms[f"exec_first_{count}"], section=at),
            Row(f"idle_memory_{count}_alive", "memory of an idle box with its network", "MB",
                megabytes, goal=("p50", "<=", 0.5), section=at),
        ]
    rows.append(Row("destroy_5000_alive", "destroy, one after the other", "ms", ms["destroy_all"],
                    peer="with none beside", peer_p50=p50["destroy"], section="5,000 alive"))
    return rows


def measure(work, build, series, rows):
    """Fills `series` and `rows`, as far as it gets."""
    for name, rounds, block, pause_ms, title, goal in (
            ("cold_hot", HOT_ROUNDS, HOT_BLOCK, 0, "cold, back to back", ("ratio", "<=", 0.6)),
            ("cold_paced", PACED_ROUNDS, 1, PAUSE_MS, f"cold, {PAUSE_MS} ms apart", None)):
        found = race(work, build, name, rounds, block, pause_ms)
        rows += cold_rows(found, name, title, goal)
        series.update({f"{name} {who}": one for who, one in found.items()})
    for name, subids, title in (
            ("rootless_single", "", "cold, an ordinary user with one id, as bwrap has"),
            ("rootless_slice", "nobody:100000:65536\n",
             "cold, an ordinary user with 65,536 ids, through newuidmap")):
        found = race(work, build, name, HOT_ROUNDS, HOT_BLOCK, 0, as_user(work, subids))
        rows += cold_rows(found, name, title, ("ratio", "<=", 0.7))
        series.update({f"{name} {who}": one for who, one in found.items()})
    found = alive(work, build)
    rows += alive_rows(found, {who: series[f"cold_hot {who}"] for who in ("bwrap", "floor")})
    series.update(found)


def main():
    build = os.path.abspath(sys.argv[1])
    report.print_machine()
    work = tempfile.mkdtemp(prefix="cove-bench-")
    os.chmod(work, 0o755)
    series, rows, failed = {}, [], None
    try:
        measure(work, build, series, rows)
    except subprocess.CalledProcessError as error:
        failed = f"bench: {error.cmd[0]} failed, so what it measures is missing here"
    finally:
        shutil.rmtree(work)
    report.print_table(rows)
    report.print_success(series)
    report.write_json(f"{build}/bench/box.json", rows)
    if failed:
        sys.exit(failed)


if __name__ == "__main__":
    main()
