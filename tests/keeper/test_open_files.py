"""A box whose processes have too many files open together is ended, and no other."""

import time

import pytest

import harness
import keepers
from keepers import Control

pytestmark = pytest.mark.wall

# Processes of so many files each, which are their own; then "all", and every tenth of a second that it lives.
OPEN = """import os, sys, time
processes, files = int(sys.argv[1]), int(sys.argv[2])
for number in range(processes):
    reading, writing = os.pipe()
    if os.fork() == 0:
        kept = [os.eventfd(0) for _ in range(files)]
        os.write(writing, b"r")
        time.sleep(60)
        os._exit(0)
    assert os.read(reading, 1) == b"r"
    os.close(reading)
    os.close(writing)
print("all", flush=True)
while True:
    print("lives", flush=True)
    time.sleep(0.1)
"""

# 12 processes that share 12,000 files.
SHARE = """import os, time
kept = [os.eventfd(0) for _ in range(12000)]
for number in range(11):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
print("all", flush=True)
while True:
    print("lives", flush=True)
    time.sleep(0.1)
"""


def boxed(keeper, count):
    engine = keeper.greeted()
    boxes = [engine.make(limit=keepers.limits(memory=1 << 30, pids=600)) for _ in range(count)]
    return engine, [handle for handle, _ in boxes], [Control(control).wait_ready() for _, control in boxes]


def test_a_box_with_too_many_open_files_is_ended_and_no_other(keeper):
    """Neither one of 500 processes with 20 files each, nor one whose processes share what they have."""
    engine, handles, (many, sharing, attacker) = boxed(keeper, 3)
    works = [many.start(f"exec python3 -c '{OPEN}' 500 20 2>&1"), sharing.start(f"exec python3 -c '{SHARE}' 2>&1")]
    for work in works:
        assert work.readline() == b"all\n"
    hoard = attacker.start(f"exec python3 -c '{OPEN}' 6 16000 2>&1")
    deadline = time.monotonic() + 60 * harness.PATIENCE
    while not attacker.has_ended(0.1):
        assert time.monotonic() < deadline, hoard.read(65536)
        assert all(work.read(65536) for work in works)
    assert engine.end(handles[2])["files_exceeded"] == 1
    for work in works:
        work.read(65536)  # what it said meanwhile
        assert work.readline().endswith(b"lives\n")
    for box, handle in ((many, handles[0]), (sharing, handles[1])):
        assert not box.has_ended(0.01)
        assert engine.end(handle)["files_exceeded"] == 0
    said = keeper.said()
    assert said.count("files_exceeded") == 1 and "more open files than any box may" in said
    for each in (*works, hoard, many, sharing, attacker):
        each.close()
