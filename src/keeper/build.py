#!/usr/bin/env python3
"""Names the build of what keeper and engine say to each other, at build time: the version, and a digest of
the headers that give the messages their form. Nobody has to remember to raise a number, and a pair of
programs that were not built from the same headers is told apart at the first word."""
import hashlib
import pathlib
import sys

version, output, *headers = sys.argv[1:]
digest = hashlib.sha256()
for header in headers:
    digest.update(pathlib.Path(header).read_bytes() + b"\0")
pathlib.Path(output).write_text(
    "/* Made by src/keeper/build.py of the headers that shape the messages: see request.h. */\n"
    "#pragma once\n\n"
    f'#define KEEPER_BUILD "cove-keeper {version} {digest.hexdigest()[:24]}"\n', encoding="ascii")
