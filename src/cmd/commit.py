#!/usr/bin/env python3
"""Says of which commit a build is, at build time: its name, "-dirty" where files differ from it, and its date. All of it
follows from the commit, so that it can be built again to the same bytes. Sources that are no repository have neither,
and that of a directory above them is not theirs."""
import os
import pathlib
import subprocess
import sys

source, machine, output = sys.argv[1:]


def git(*words):
    try:
        return subprocess.run(["git", "-c", f"safe.directory={source}", "-C", source, *words], check=True,
                              capture_output=True, text=True, env={**os.environ, "TZ": "UTC0"}).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


is_ours = (pathlib.Path(source) / ".git").exists()
commit = git("describe", "--always", "--abbrev=40", "--dirty", "--exclude=*") if is_ours else ""
date = git("log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd") if commit else ""
text = ("/* Made by src/cmd/commit.py. A text that is not known is empty. */\n"
        "#pragma once\n\n"
        f'#define COVE_COMMIT "{commit}"\n#define COVE_COMMIT_DATE "{date}"\n#define COVE_MACHINE "{machine}"\n')
path = pathlib.Path(output)
if not path.exists() or path.read_text(encoding="ascii") != text:  # else nothing is compiled anew
    path.write_text(text, encoding="ascii")
