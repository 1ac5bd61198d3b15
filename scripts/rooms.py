#!/usr/bin/env python3
"""Checks that no room includes a room above it, and that what depends on the processor stays where
it is.

The order of the floors is the list below; a header of a room that is not in it is an error, so a
new room has to be given its place here.
"""

import pathlib
import re
import sys

FLOORS = ["base", "policy", "box", "kernel", "net", "disk", "keeper", "store", "engine", "http",
          "front", "mcp", "cmd",
          "lib"]
# Assembler and what the compiler says of the processor: in these files and no others.
OF_THE_PROCESSOR = {"src/box/embed.S", "src/box/spawn.c", "src/kernel/thread.c",
                    "src/kernel/worker/filter.c",
                    "tests/box/attacks/foreign.c",
                    "tests/unit/test_filter.c"}
# openat2() answers EAGAIN when something is renamed meanwhile: one function asks again, and the others call it.
OF_OPENAT2 = {"src/base/fd.c", "src/box/probe.c"}
PROCESSOR = re.compile(r"\b(__x86_64__|__i386__|__aarch64__|__arm__|__asm__|asm)\b")
# The Node addon, and the rooms that it is made of.
ADDON, OF_THE_ADDON = "js/packages/node/src", {"base", "policy", "kernel"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z0-9_]+)/')


def check_processor(top):
    wrong = 0
    for room in ("src", "tests", "examples", "bench"):
        for path in sorted((top / room).rglob("*.[chS]")):
            name = str(path.relative_to(top))
            if name in OF_THE_PROCESSOR:
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if PROCESSOR.search(line) and not line.lstrip().startswith(("/*", "*", "#include")):
                    print(f"{name}:{number}: depends on the processor; that is for "
                          f"{', '.join(sorted(OF_THE_PROCESSOR))}")
                    wrong += 1
    return wrong


def check_openat2(top):
    wrong = 0
    for path in sorted((top / "src").rglob("*.[ch]")):
        name = str(path.relative_to(top))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if "SYS_openat2" in line and name not in OF_OPENAT2:
                print(f"{name}:{number}: calls openat2(2) itself; call fd_openat2(), which asks again")
                wrong += 1
    return wrong


def main():
    source = pathlib.Path(__file__).resolve().parent.parent / "src"
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
