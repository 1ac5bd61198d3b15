#!/usr/bin/env python3
"""Splits what wasm2c made into parts that compilers can work on side by side, and makes the few
changes that the runtime (src/kernel) builds on:

- An indirect call passes the caller's own instance. All entries of the table are of one module, so that
  one table, which nothing writes to any more, serves all instances.
- No access may lie further behind its index than the guard behind a slot is wide: it is checked here, for
  the offset is a constant of each instruction.

It fails where the output does not look as it was known to look.
usage: split-wasm.py INPUT.c DIRECTORY PARTS
"""

import pathlib
import re
import sys

# KERNEL_SLOT_GUARD of src/kernel/parts.h less the widest access.
OFFSET_MAX = (64 << 20) - 16

# Its parameters may go on over lines, until one that ends with "{" or, of a declaration, with ";".
FUNCTION = re.compile(r"^static \w+ w2c_\w+\(Z_\w+_instance_t\*")
TABLE = re.compile(r"instance->(w2c_T\d+)\.data\[w2c_\w+\]\.module_instance")
ACCESS = re.compile(r"\b[if](?:32|64)_(?:load|store)\w*\(&instance->w2c_memory, ")
PLACE = re.compile(r"\(u64\)\(w2c_\w+\)(?: \+ (\d+)u?)?[,)]")


def stop(why):
    sys.exit(f"split-wasm.py: {why}")


def check(line):
    """Every access to the memory is an index of 32 bits and a small constant."""
    for found in ACCESS.finditer(line):
        place = PLACE.match(line, found.end())
        if not place:
            stop(f"this access to the memory is not understood: {line}")
        if int(place[1] or 0) > OFFSET_MAX:
            stop(f"this access goes over the guard behind a slot: {line}")


def main():
    source, target, count = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    text = source.read_text()
    if "instance->w2c_memory.data" in text or "w2c_M" in text:
        stop("the memory is used in a way that is not known")
    text = TABLE.sub("instance", text)
    lines = text.splitlines()
    if ".module_instance" in text:
        stop("an indirect call does not look as it was known to look")

    # All before this line is macros and inline functions, which every part needs.
    begin = next((i for i, line in enumerate(lines) if line.startswith("static bool s_module_")), 0)
    if not begin:
        stop("the beginning is not found")
    shared, rest, functions = lines[:begin], [], []
    at = begin
    while at < len(lines):
        line = lines[at]
        if not FUNCTION.match(line):
            types = re.match(r"^static (u32 func_types\[\d+\]);$", line)
            if types:
                shared.append(f"extern {types[1]};")
                line = f"{types[1]};"
            rest.append(line)
            at += 1
            continue
        head = next(i for i in range(at, at + 9) if lines[i].endswith((";", "{")))
        declared = lines[head].endswith(";")
        end = head if declared else lines.index("}", at)
        body = lines[at:end + 1]
        body[0] = body[0][len("static "):]
        if declared:
            shared.extend(body)
        else:
            for one in body:
                check(one)
            functions.append(body)
        at = end + 1
    if len(functions) < 100:
        stop(f"only {len(functions)} functions were found")

    (target / "shared.h").write_text("\n".join(shared) + "\n")
    (target / "module.c").write_text('#include "shared.h"\n' + "\n".join(rest) + "\n")
    # In their order, for neighbours call each other.
    share = sum(map(len, functions)) // count + 1
    parts, size = [[] for _ in range(count)], 0
    for body in functions:
        parts[size // share].extend(body)
        size += len(body)
    for number, part in enumerate(parts):
        (target / f"part{number}.c").write_text('#include "shared.h"\n' + "\n".join(part) + "\n")


if __name__ == "__main__":
    main()
