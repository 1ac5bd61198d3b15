#!/usr/bin/env python3
"""Makes a file part of a program: embed.py FILE NAME OUT.c defines NAME and NAME_size."""
import pathlib
import sys

source, name, target = sys.argv[1:]
data = pathlib.Path(source).read_bytes()
lines = [", ".join(map(str, data[at:at + 24])) for at in range(0, len(data), 24)]
pathlib.Path(target).write_text(
    f"#include \"front/native/parts.h\"\n\nconst unsigned char {name}[] = {{\n    "
    + ",\n    ".join(lines) + f"\n}};\nconst size_t {name}_size = {len(data)};\n")
