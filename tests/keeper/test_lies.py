"""A box whose init was taken over: it says whatever it likes to the engine that runs everything else. It
harms its own sandbox, which ends; others are answered meanwhile, and the engine keeps its memory and fds.

Init's socket is taken from it as root alone can: to the user whose box it is the kernel gives no fd of a
process whose program he may not read. What the engine makes of it is the same code for both."""
import contextlib
import ctypes
import errno
import os
import random
import signal
import socket
import struct

import pytest

import harness
import serving
from sandboxes import parent_of, make, run

pytestmark = pytest.mark.wall


nothing_left, serve, api = serving.one_for_all("[boxes]\npool = 8\nmemory = 128M\ndisk = 16M\n")


HEAD = struct.Struct("=II")
STARTED, REFUSED, EXITED, WELCOME, ENTRY, TABLE_END, BEGUN, OPENED = 66, 67, 68, 69, 70, 71, 72, 73
EXIT = struct.Struct("=IIiIQ")  # as src/box/proto.h has it
HELD = struct.Struct("=IIiIIiQ")
CONTROL_FD = 3
PIDFD_GETFD = 438


def control_of(init):
    """Init's own end of its socket, as who has taken it over has it."""
    pidfd = os.pidfd_open(init)
    try:
        descriptor = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, pidfd, CONTROL_FD, 0)
        assert descriptor >= 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(pidfd)
    control = socket.socket(fileno=descriptor)
    assert control.family == socket.AF_UNIX and control.type & 0xf == socket.SOCK_SEQPACKET
    return control


def junk(number):
    return random.Random(number).randbytes(1 + number % 300), ()


def oversized(number):
    return HEAD.pack(number % 80, number) + bytes(60000), ()


def foreign_ends(number):
    return EXIT.pack(EXITED, number % 5000, 0, 0, 1), ()


def foreign_tables(number):
    kind = (ENTRY, BEGUN, TABLE_END, WELCOME)[number % 4]
    return HELD.pack(kind, number, 4711, 1, 0, 0, 0)[:HELD.size if kind in (ENTRY, BEGUN) else 16], ()


def heads(number):
    return HEAD.pack(64 + number % 12, number % 7), ()


def descriptors(number):
    return HELD.pack(BEGUN, number % 7, 4711, 0, 7, 0, 0), (0,) * (number % 17)


LIES = [junk, oversized, foreign_ends, foreign_tables, heads, descriptors]


def tell(control, lie, count, every, while_telling):
    """Sends so many, or as many as somebody takes; how many these were. `while_telling` is called each
    time that there is no room, and now and then."""
    null = os.open("/dev/null", os.O_RDONLY)
    try:
        for number in range(count):
            packet, fds = lie(number)
            while True:
                try:
                    socket.send_fds(control, [packet], [null] * len(fds), socket.MSG_DONTWAIT)
                    break
                except (BlockingIOError, OSError) as error:
                    if error.errno in (errno.EPIPE, errno.ECONNRESET):
                        return number
                    if error.errno not in (errno.EAGAIN, errno.ENOBUFS, errno.ETOOMANYREFS):
                        raise
                    while_telling()
            if number % every == 0:
                while_telling()
        return count
    finally:
        os.close(null)


def own_memory(pid):
    """In bytes, of its own."""
    return int(harness.status_of(pid)["RssAnon"].split()[0]) << 10


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_an_init_that_lies_harms_its_own_sandbox_alone(serve, api, lie):
    """What nobody asked for ends its box at the first word. What has the form of an answer does, too."""
    victim, other = make(api), make(api)
    for path in (victim, other):
        mark = "7361" if path == victim else "7362"
        assert api.post(f"{path}/processes", {"argv": ["sleep", mark]}).json["id"] == "1"
    init = harness.wait_for(lambda: parent_of(serve, b"7361"), what="the command")
    os.kill(init, signal.SIGSTOP)
    control = control_of(init)
    assert run(api, other, "echo before")["stdout"] == "before\n"
    engine = serve.engine_pid()
    descriptor_count = harness.at_rest(lambda: len(os.listdir(f"/proc/{engine}/fd")))
    before, answered = own_memory(engine), []

    def look():
        answered.append(run(api, other, "echo on")["stdout"])

    try:
        tell(control, lie, 20000, 1000, look)
        look()
        assert set(answered) == {"on\n"}
        assert serve.engine_pid() == engine, "the engine has ended"
        assert own_memory(engine) < before + (8 << 20), (before, own_memory(engine))
        harness.wait_for(lambda: api.get(victim).json["state"] == "stopped", what="its end")
        assert api.get(victim).json["reason"] == "box_ended"
        assert api.get(f"{victim}/processes/1").json["state"] in ("lost", "exited")
        assert api.get(f"{other}/processes/1").json["state"] == "running"
        assert api.delete(victim).status == 204
        assert api.get(victim).code == "sandbox_gone"
        harness.wait_for(lambda: len(os.listdir(f"/proc/{engine}/fd")) <= descriptor_count + 8,
                         what="its fds to be closed")
    finally:
        control.close()
    assert run(api, other, "echo after")["stdout"] == "after\n"
    assert api.delete(other).status == 204


def test_an_init_that_lies_to_the_next_engine_harms_its_own_sandbox_alone(serve, api):
    """It fills the socket before the engine asks it who it is, and goes on."""
    victim, other = make(api), make(api)
    for path, mark in ((victim, "7363"), (other, "7364")):
        assert api.post(f"{path}/processes", {"argv": ["sleep", mark]}).status == 201
    init = harness.wait_for(lambda: parent_of(serve, b"7363"), what="the command")
    os.kill(init, signal.SIGSTOP)
    control = control_of(init)
    old = serve.engine_pid()
    os.kill(old, signal.SIGKILL)
    try:
        # Until there is no room, or the next engine is there already and has had enough.
        with contextlib.suppress(BlockingIOError, ConnectionError):
            for number in range(100000):
                socket.send_fds(control, [foreign_ends(number)[0]], [], socket.MSG_DONTWAIT)
        serve.wait_ready()
        with serve.client() as client:
            engine = serve.engine_pid()
            before = own_memory(engine)
            tell(control, foreign_ends, 20000, 1000,
                 lambda: run(client, other, "echo on")["stdout"] == "on\n" or pytest.fail("no answer"))
            assert serve.engine_pid() == engine, "the engine has ended"
            assert own_memory(engine) < before + (8 << 20), (before, own_memory(engine))
            assert client.get(f"{other}/processes/1").json["state"] == "running"
            for path in (victim, other):
                assert client.delete(path).status == 204
    finally:
        control.close()
