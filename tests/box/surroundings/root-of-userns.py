#!/usr/bin/env python3
"""Runs a command as root of a user namespace that has all ids of the host, in the host's own network: there it may enter
the network of a box, and not come back. So a user's container engine leaves it, given all rights and the host's network.
usage: root-of-userns.py COMMAND..."""
import ctypes
import os
import sys

CLONE_NEWUSER = 0x10000000

made, made_end = os.pipe()
mapped, mapped_end = os.pipe()
pid = os.fork()
if pid == 0:
    if ctypes.CDLL(None).unshare(CLONE_NEWUSER) != 0:
        sys.exit("root-of-userns.py: no user namespace")
    os.write(made_end, b"x")
    os.read(mapped, 1)
    os.execvp(sys.argv[1], sys.argv[1:])
os.read(made, 1)
for name in ("uid_map", "gid_map"):
    with open(f"/proc/{pid}/{name}", "w", encoding="ascii") as file:
        file.write("0 0 2000000000")
os.write(mapped_end, b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)
