#!/usr/bin/python3
"""Types what README.md tells somebody to type whose machine is empty, into a root that was made for it.

The lines are those of its section "From an empty machine": what is not said there is not done here, but for
who goes on typing when a prompt has come. The tree is that of the last commit. Needs root, mmdebstrap, a way to
Debian's packages, some 3 GiB below TMPDIR, and minutes. Nothing of it stays.

usage: scripts/walk.py
"""
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent.parent
SECTION = "## From an empty machine\n"
PROMPT = "walk# "
LINE_S = 1800  # of the longest, which builds all of it on whatever machine this is

# In namespaces of its own. Not by chroot, in which no user namespace can be made. What is empty has no umount.
ENTER = """
import ctypes, os, subprocess, sys
os.chdir(sys.argv[1])
for words in (["--bind", ".", "."], ["--rbind", "/dev", "./dev"], ["--rbind", "/sys", "./sys"],
              ["-t", "proc", "proc", "./proc"]):
    subprocess.run(["mount", *words], check=True)
os.chdir(sys.argv[1])
os.mkdir("old")
subprocess.run(["pivot_root", ".", "old"], check=True)
if ctypes.CDLL(None).umount2(b"/old", 2) != 0:
    sys.exit("walk: the host is still there")
os.rmdir("/old")
os.chdir("/root/cove")
trusts = {name: "/etc/authorities.pem" for name in sys.argv[2:]}
os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "--noediting"],
          {**trusts, "HOME": "/root", "TERM": "dumb", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive",
           "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PS1": "walk# "})
"""


# A host behind a proxy of its own has an authority of its own, and says so in these variables.
AUTHORITIES = [name for name in ("PIP_CERT", "NODE_EXTRA_CA_CERTS") if os.environ.get(name)]


def lines_of_readme():
    text = (HERE / "README.md").read_text(encoding="utf-8")
    section = text.split(SECTION, 1)[1].split("\n## ", 1)[0]
    return [line[4:] for line in section.splitlines() if line.startswith("    ")]


def make_root(directory):
    root = directory / "root"
    subprocess.run(["mmdebstrap", "--quiet", "--mode=root", "--variant=apt", "bookworm", str(root)],
                   check=True)
    for name in ("resolv.conf", "hosts"):
        shutil.copy(f"/etc/{name}", root / "etc" / name)
    if AUTHORITIES:
        shutil.copy(os.environ[AUTHORITIES[0]], root / "etc" / "authorities.pem")
    tree = root / "root" / "cove"
    tree.mkdir()
    archive = subprocess.run(["git", "-C", str(HERE), "archive", "HEAD"], check=True,
                             stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    return root


class Terminal:
    def __init__(self, root):
        self.shown = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvp("unshare", ["unshare", "--mount", "--pid", "--fork", "--kill-child",
                                  "--propagation", "private", sys.executable, "-c", ENTER,
                                  str(root), *AUTHORITIES])

    def until(self, pattern, seconds):
        """What is shown from now on, until its end is this."""
        began = len(self.shown)
        until = time.monotonic() + seconds
        while not re.search(pattern + r"\Z", self.shown[began:]):
            if time.monotonic() > until:
                raise SystemExit(f"walk: no prompt after {seconds} s:\n{self.shown[began:]}")
            if not select.select([self.fd], [], [], 1)[0]:
                continue
            try:
                piece = os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                piece = ""
            if not piece:
                raise SystemExit(f"walk: the terminal ended:\n{self.shown[began:]}")
            sys.stdout.write(piece)
            sys.stdout.flush()
            self.shown += piece
        return self.shown[began:]

    def line(self, text, seconds=LINE_S):
        """Types it; what it showed, and whether a shell in a sandbox asks for the next one."""
        os.write(self.fd, text.encode() + b"\n")
        shown = self.until(r"(walk# |[$#] )(\x1b\[[0-9;?]*[a-z])*", seconds)
        return shown, not shown.endswith(PROMPT)

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def walk(root):
    terminal = Terminal(root)
    shown, inside, was_inside = "", False, False
    try:
        terminal.until(re.escape(PROMPT), 60)
        for line in lines_of_readme():
            shown, inside = terminal.line(line)
            was_inside = was_inside or inside
            if line.startswith("cat "):
                read = shown
            if not inside and "status 0" not in terminal.line("echo status $?", 60)[0]:
                raise SystemExit(f"\nwalk: this failed: {line}")
        if not was_inside:
            raise SystemExit("\nwalk: there was no shell in a sandbox")
        if "hello from root of box" not in read:
            raise SystemExit("\nwalk: the file that came out is another one")
    finally:
        terminal.end()


def main():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="cove-walk-"))
    try:
        walk(make_root(directory))
    finally:
        # Mounts were in a namespace that has ended; what is left is files.
        subprocess.run(["rm", "-rf", "--one-file-system", str(directory)], check=True)
    print("\nwalk: all that README.md says works on an empty machine")


if __name__ == "__main__":
    main()
