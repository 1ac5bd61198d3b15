"""While a box takes all it can get of one thing, other processes of the host still get theirs."""
import ctypes
import os
import select
import socket
import struct
import subprocess

import pytest

import harness
from harness import PATIENCE

pytestmark = pytest.mark.wall

# Each goes on until it is refused, or has as much as it is given here, says which, and holds what it has. First what it
# may say: nothing, where the box was ended.
TAKES = {
    "memory": ("", "x = [bytearray(1 << 20) for _ in range(4096)]"),
    "shared memory": (" PermissionError",
                      "import mmap\nx = []\nfor _ in range(512):\n    x.append(mmap.mmap(-1, 1 << 20))\n"
                      "    x[-1].write(bytes(1 << 20))\n    x[-1].madvise(mmap.MADV_DONTNEED)"),
    "processes": ("BlockingIOError", "for _ in range(4096):\n    if os.fork() == 0:\n        time.sleep(60)"),
    "sockets": ("OSError", "import socket\nx = [socket.socket(family, kind) for _ in range(9999)\n"
                "     for family in (socket.AF_UNIX, socket.AF_INET) for kind in (1, 2)]"),
    "programs on sockets": ("PermissionError",
                            "import ctypes, socket, struct\n"
                            "program = ctypes.create_string_buffer(bytes((6, 0, 0, 0)) + bytes(4))\n"
                            "given = struct.pack('HxxxxxxP', 1, ctypes.addressof(program))\nx = []\n"
                            "for _ in range(9999):\n    x.append(socket.socket())\n"
                            "    x[-1].setsockopt(socket.SOL_SOCKET, 26, given)"),
    "AIO": ("AssertionError",
            "import ctypes\ncall = ctypes.CDLL(None).syscall\nx = []\nfor _ in range(4096):\n"
            "    x.append(ctypes.c_ulong())\n    assert call(SETUP, 4096, ctypes.byref(x[-1])) == 0"),
    "terminals": ("OSError", "x = [os.openpty() for _ in range(4096)]"),
    "unread bytes": ("all", "import socket\nlistener = socket.create_server(('127.0.0.1', 0))\nx = []\n"
                     "for _ in range(256):\n    one = socket.create_connection(listener.getsockname())\n"
                     "    x += [one, listener.accept()[0]]\n    one.setblocking(False)\n    try:\n"
                     "        while True:\n            one.send(bytes(1 << 16))\n"
                     "    except BlockingIOError:\n        pass"),
}
SYSTEM_CALLS = {"x86_64": {"io_setup": 206, "io_destroy": 207}, "aarch64": {"io_setup": 0, "io_destroy": 1}}[os.uname().machine]
FILTER = struct.pack("=HBBI", 6, 0, 0, 0x7fff0000)  # allow
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2


def load_a_filter():
    """In a process that goes with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    text = ctypes.create_string_buffer(FILTER)
    program = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", 1, ctypes.addressof(text)))
    child = os.fork()
    if child == 0:
        os._exit(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, MODE_FILTER, program))
    assert os.waitpid(child, 0)[1] == 0, "a filter of system calls"


def get_a_context():
    libc = ctypes.CDLL(None, use_errno=True)
    context = ctypes.c_ulong()
    if libc.syscall(SYSTEM_CALLS["io_setup"], 1, ctypes.byref(context)) != 0:
        # A kernel may have none at all.
        assert ctypes.get_errno() == 38, "a context of asynchronous I/O"
        return
    assert libc.syscall(SYSTEM_CALLS["io_destroy"], context) == 0


def speak():
    """Over TCP, to itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener, \
            socket.create_connection(listener.getsockname()) as one, listener.accept()[0] as other:
        one.sendall(bytes(1 << 16))
        one.shutdown(socket.SHUT_WR)
        assert len(b"".join(iter(lambda: other.recv(1 << 16), b""))) == 1 << 16


@pytest.mark.parametrize("thing", TAKES)
def test_what_one_box_takes_the_host_still_has(thing):
    expected, takes = TAKES[thing]
    script = (f"import os, sys, time\nSETUP = {SYSTEM_CALLS['io_setup']}\ntry:\n"
              + "".join(f"    {line}\n" for line in takes.splitlines())
              + "    said = 'all'\nexcept BaseException as e:\n    said = type(e).__name__\n"
              "os.write(1, said.encode() + b'\\n')\ntime.sleep(60)\n")
    box = harness.start(["/usr/bin/python3", "-c", script], "--memory", "256M", "--pids", "64",
                        "--timeout", "60s")
    try:
        assert select.select([box.stdout], [], [], 60 * PATIENCE)[0], "it takes and takes"
        assert box.stdout.readline().decode().strip() in expected.split(" "), (thing, expected)
        speak()
        load_a_filter()
        get_a_context()
        harness.check_host_healthy()
    finally:
        harness.end(box)


def test_inotify_instances_of_roots_boxes_are_each_boxs_own():
    """The kernel counts them against the maker of a box's namespace, too: all boxes, and the host's root, had 128."""
    begin = "import ctypes, time\nlibc = ctypes.CDLL(None)\n"
    takes = begin + ("taken = 0\nwhile taken < 5000 and libc.inotify_init1(0) >= 0:\n    taken += 1\n"
                     "print(taken, flush=True)\ntime.sleep(60)\n")
    asks = ["/usr/bin/python3", "-c", begin + "assert libc.inotify_init1(0) >= 0"]
    box = harness.start(["/usr/bin/python3", "-c", takes], "--timeout", "60s")
    try:
        assert select.select([box.stdout], [], [], 60 * PATIENCE)[0], "it takes and takes"
        assert int(box.stdout.readline()) >= 100
        neighbour = harness.run(asks)
        assert neighbour.report["exit_code"] == 0, neighbour.stderr
        subprocess.run(asks, check=True, timeout=60 * PATIENCE)
    finally:
        harness.end(box)
