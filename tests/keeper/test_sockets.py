"""A box whose sockets hold much that no cgroup counts is ended, and no other."""

import time

import pytest

import harness
import keepers
from keepers import Control

pytestmark = pytest.mark.wall

# Fills sockets, in the way that it is told, until the kernel holds a few hundred MiB for them; then says "all".
HOARD = """import ctypes, socket, struct, sys
libc = ctypes.CDLL(None)
MUCH, BUFFER = 300 << 20, 1 << 30
kept = []
def held(one):
    return struct.unpack("9I", one.getsockopt(socket.SOL_SOCKET, 55, 36))[0]
def forget(one):
    libc.connect(one.fileno(), bytes(16), 16)

def answers():
    link = struct.pack("IHHIIBxHiII", 32, 18, 1, 0, 0, 0, 0, 1, 0, 0)
    one = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    try:
        for _ in range(400):
            one.send(link, socket.MSG_DONTWAIT)
    except OSError:
        pass
    kept.append(one)
    return held(one)

sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
sink.bind(("127.0.0.1", 0))
def copies():
    ask = [(socket.SOL_SOCKET, 37, struct.pack("I", 2))]
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    one.connect(sink.getsockname())
    before = -1
    while held(one) > before:
        before = held(one)
        one.sendmsg([bytes(60000)], ask)
    kept.append(one)
    return before

def hidden():
    much = copies()
    forget(kept[-1])
    return much

def waiting():
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    for _ in range(500):
        one.connect(listening.getsockname())
        forget(one)
    kept.append(listening)
    return 500 * 2800

def incomplete():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.connect(sink.getsockname())
    one.send(bytes(60000), socket.MSG_MORE)
    kept.append(one)
    return 60000

def incomplete_and_hidden():
    much = incomplete()
    forget(kept[-1])
    return much

much = 0
while much < MUCH:
    much += globals()[sys.argv[1]]()
print("all", flush=True)
libc.pause()
"""

# A program that means well: it uses many sockets, all that it can have waits at one, and it asks the kernel for
# addresses again and again. It says each time that it lives.
WORK = """import socket
pairs = []
for _ in range(100):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind(("127.0.0.1", 0))
    pairs.append(one)
listening = socket.create_server(("127.0.0.1", 0), backlog=512)
clients = [socket.create_connection(listening.getsockname()) for _ in range(512)]
while True:
    for one in pairs:
        for _ in range(50):
            one.sendto(bytes(1000), one.getsockname())
        for _ in range(40):
            one.recv(2000)
    assert socket.if_nameindex() and socket.getaddrinfo("localhost", 80)
    print("works", flush=True)
"""


def hoard_beside_work(keeper, how):
    engine = keeper.greeted()
    boxes = [engine.make(limit=keepers.limits(memory=64 << 20)) for _ in range(2)]
    neighbour, attacker = [Control(control).wait_ready() for _, control in boxes]
    work = neighbour.start(f"exec python3 -c '{WORK}' 2>&1")
    assert work.readline() == b"works\n"
    hoard = attacker.start(f"exec python3 -c '{HOARD}' {how} 2>&1")
    deadline = time.monotonic() + 60 * harness.PATIENCE
    while not attacker.has_ended(0.1):
        assert work.read(65536) and time.monotonic() < deadline
    assert hoard.read() in (b"", b"all\n")
    assert engine.end(boxes[1][0])["sockets_exceeded"] == 1
    work.read(65536)  # what it said meanwhile
    assert work.readline() == b"works\n" and not neighbour.has_ended(0.01)
    assert engine.end(boxes[0][0])["sockets_exceeded"] == 0
    assert "sockets_exceeded" in keeper.said()
    for each in (work, hoard, neighbour, attacker):
        each.close()


@pytest.mark.parametrize("how", ["answers", "copies", "incomplete", "waiting"])
def test_a_box_whose_sockets_hold_too_much_is_ended_and_its_neighbour_is_not(keeper, how):
    hoard_beside_work(keeper, how)


@pytest.mark.parametrize("how", ["hidden", "incomplete_and_hidden"])
def test_a_socket_that_no_table_shows_is_found_in_its_process(keeper, how):
    hoard_beside_work(keeper, how)
