#!/usr/bin/env python3
"""Checks that no room reaches a room above it, and that what depends on the processor stays where it is.

The order of the floors is the list below; a header of a room that is not in it is an error, so a new room has to be
given its place here.

Without a build it reads includes. With one it reads the symbols that its objects define and need: no file may need one
of a room above, no folders may need each other in a circle, and files of one folder that do are counted in circles.txt.
A function that a lower room calls through a pointer is no symbol that it needs.
usage: rooms.py [BUILD_DIRECTORY...]
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
CIRCLES = TOP / "scripts" / "circles.txt"

FLOORS = ["base", "policy", "box", "kernel", "net", "disk", "keeper", "store", "engine", "http",
          "front", "mcp", "cmd",
          "lib"]
# Assembler and what the compiler says of the processor: in these files and no others.
OF_THE_PROCESSOR = {"src/box/embed.S", "src/box/spawn.c", "src/kernel/thread.c",
                    "src/kernel/worker/filter.c",
                    "tests/box/attacks/foreign.c",
                    "tests/unit/test_filter.c"}
# openat2() answers EAGAIN when something is renamed meanwhile: one function asks again, and the others call it. The
# few ways in which it may walk are named in fd.h; a box's init has the key of its filter to say beside it.
OF_OPENAT2 = {"SYS_openat2": ("call fd_openat2(), which asks again", {"src/base/fd.c", "src/box/probe.c"}),
              "RESOLVE_": ("call fd_open_below()", {"src/base/fd.c", "src/box/init/files.c", "src/box/init/watches.c"})}
COMMENT = re.compile(r"\s*(/\*|\*)")
PROCESSOR = re.compile(r"\b(__x86_64__|__i386__|__aarch64__|__arm__|__asm__|asm)\b")
# The Node addon, and the rooms that it is made of.
ADDON, OF_THE_ADDON = "js/packages/node/src", {"base", "policy", "kernel"}
# Of the guest alone, which scripts/build-kernel.sh compiles into one object; its first source stands for the others.
OF_THE_GUEST = {f"src/kernel/js/{name}.c" for name in
                ("guest", "heap", "natives", "natives_bytes", "natives_digest", "plain")}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z0-9_]+)/')


def check_processor(top):
    wrong = 0
    for room in ("src", "tests", "examples", "bench"):
        for path in sorted((top / room).rglob("*.[chS]")):
            name = str(path.relative_to(top))
            if name in OF_THE_PROCESSOR:
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if PROCESSOR.search(line) and not COMMENT.match(line) and not line.lstrip().startswith("#include"):
                    print(f"{name}:{number}: depends on the processor; that is for "
                          f"{', '.join(sorted(OF_THE_PROCESSOR))}")
                    wrong += 1
    return wrong


def check_openat2(top):
    wrong = 0
    for path in sorted((top / "src").rglob("*.[ch]")):
        name = str(path.relative_to(top))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for word, (remedy, may) in OF_OPENAT2.items():
                if word in line and name not in may and not COMMENT.match(line):
                    print(f"{name}:{number}: calls openat2(2) by itself; {remedy}")
                    wrong += 1
    return wrong


def room_of(source):
    return source.split("/")[1]


def folder_of(source):
    return source.rpartition("/")[0]


def objects_of(build):
    """Each object of the build, its source, and that by its name from the top: what a build makes lies in it as others here."""
    said = subprocess.run(["ninja", "-t", "compdb"], cwd=build, stdout=subprocess.PIPE, check=True)
    for entry in json.loads(said.stdout):
        file = pathlib.Path(os.path.normpath(build / entry["file"]))
        base = build if build in file.parents else TOP
        if entry["output"].endswith(".o") and base / "src" in file.parents:
            yield build / entry["output"], file, str(file.relative_to(base))


def fresh_objects(builds):
    """The source of each object that is not older than it; and the sources that have none."""
    lacking = {str(path.relative_to(TOP)) for path in (TOP / "src").rglob("*.c")} - OF_THE_GUEST
    found = {}
    for path, file, source in [one for build in builds for one in objects_of(build)]:
        lacking.add(source)
        if path.exists() and path.stat().st_mtime_ns >= file.stat().st_mtime_ns:
            found[str(path)] = source
    return found, sorted(lacking - set(found.values()))


def nearest(source, others):
    """Programs may each have a function of the same name: the one in the same folder is meant, else in the same room."""
    for is_near in (folder_of, room_of):
        near = {other for other in others if is_near(other) == is_near(source)}
        if near:
            return near
    return others


def needs_of(found):
    """By file, the files that define what it needs, each with one such symbol."""
    defines, needs = collections.defaultdict(set), collections.defaultdict(dict)
    said = subprocess.run(["nm", "-A", "-P", "-g", *found], stdout=subprocess.PIPE, text=True, check=True).stdout
    symbols = {(found[path], symbol, kind) for path, symbol, kind in
               (re.match(r"(.*): (\S+) (\S)", line).groups() for line in said.splitlines())}
    for source, symbol, kind in symbols:
        if kind not in "Uwv":
            defines[symbol].add(source)
    for source, symbol, kind in sorted(symbols):
        for other in nearest(source, defines[symbol]) - {source} if kind in "Uwv" else ():
            needs[source].setdefault(other, symbol)
    return needs


def circles_of(graph):
    """The sets of nodes of which each reaches each other one."""
    def reached(node):
        seen, left = set(), [node]
        while left:
            more = set(graph.get(left.pop(), ())) - seen
            seen |= more
            left += more
        return seen
    reach, told = {node: reached(node) for node in graph}, set()
    for node in sorted(graph):
        if node in reach[node] and node not in told:
            circle = {other for other in reach[node] if node in reach.get(other, ())}
            told |= circle
            yield circle


def faults_of_circles(circles, listed):
    """Faults between the circles that are there and a table of their sizes, by one file of each."""
    for circle in circles:
        names = sorted(circle & listed.keys())
        allowed = [listed.pop(name) for name in names]
        if len(names) != 1:
            yield (f"{' '.join(sorted(circle))}: {len(circle)} files need each other in a circle, "
                   f"which is {'in no line' if not names else 'in several lines'} of {CIRCLES.name}; break it")
        elif len(circle) > allowed[0]:
            yield (f"{names[0]}: its circle grew from {allowed[0]} files to {len(circle)}; "
                   f"break it: {' '.join(sorted(circle))}")
        elif len(circle) < allowed[0]:
            yield f"{names[0]}: its circle has {len(circle)} files; write that into {CIRCLES.name} in place of {allowed[0]}"
    for name in listed:
        yield f"{name}: is in no circle; take it out of {CIRCLES.name}"


def faults_of_calls(needs):
    folders = collections.defaultdict(set)
    for source, others in needs.items():
        for other, symbol in others.items():
            if FLOORS.index(room_of(other)) > FLOORS.index(room_of(source)):
                yield f"{source}: needs {symbol} of {other}: {room_of(source)} reaches up to {room_of(other)}"
            if folder_of(other) != folder_of(source):
                folders[folder_of(source)].add(folder_of(other))
    for circle in circles_of(folders):
        for source, others in needs.items():
            for other, symbol in others.items():
                if {folder_of(source), folder_of(other)} <= circle and folder_of(source) != folder_of(other):
                    yield f"{source}: needs {symbol} of {other}, in a circle of folders: {' '.join(sorted(circle))}"
    rows = [line.split() for line in CIRCLES.read_text().splitlines() if line and not line.startswith("#")]
    within = {source: [other for other in others if folder_of(other) == folder_of(source)]
              for source, others in needs.items()}
    yield from faults_of_circles(circles_of(within), {name: int(size) for size, name in rows})


def check_objects(builds):
    for build in builds:
        if not (build / "build.ninja").exists():
            print(f"{build}: no build is there; scripts/build.sh makes one")
            return 1
    found, lacking = fresh_objects(builds)
    for source in lacking:
        print(f"{source}: has no object, or an older one; build it in {' or '.join(map(str, builds))}")
    for source in sorted(OF_THE_GUEST & set(found.values())):
        print(f"{source}: has an object of its own; take it out of OF_THE_GUEST")
        lacking.append(source)
    if lacking:
        return 1
    faults = sorted(faults_of_calls(needs_of(found)))
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


def main():
    if len(sys.argv) > 1:
        return check_objects([pathlib.Path(name).resolve() for name in sys.argv[1:]])
    source = TOP / "src"
    wrong = check_processor(source.parent) + check_openat2(source.parent)
    for path in sorted(source.rglob("*.[ch]")):
        room = path.relative_to(source).parts[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            where = f"{path.relative_to(source.parent)}:{number}"
            other = found[1]
            if other not in FLOORS or room not in FLOORS:
                print(f"{where}: room '{other}' has no place in {pathlib.Path(__file__).name}")
                wrong += 1
            elif FLOORS.index(other) > FLOORS.index(room):
                print(f"{where}: {room} reaches up to {other}")
                wrong += 1
    for path in sorted((source.parent / ADDON).glob("*.[ch]")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = INCLUDE.match(line)
            if found and found[1] not in OF_THE_ADDON:
                print(f"{ADDON}/{path.name}:{number}: the addon reaches into {found[1]}")
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
