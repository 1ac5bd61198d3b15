"""A box that makes too many file locks is ended, and no other. The kernel tells only root how many there are."""

import pytest

import harness
import keepers
from keepers import Control

pytestmark = pytest.mark.wall

# Takes as many locks as it is told, 1,000 on a file; the lowest last, so that the kernel need not pass the others.
# After that it says every tenth of a second that it lives. With a second word a thread with open files of its own
# takes them, and the first thread ends.
LOCK = """import ctypes, fcntl, os, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def lock():
    if sys.argv[2:]:
        assert libc.unshare(0x400) == 0
    files = []
    for number in range(int(sys.argv[1]) // 1000):
        files.append(os.open(f"/dev/shm/{number}", os.O_RDWR | os.O_CREAT))
        for byte in reversed(range(1000)):
            fcntl.lockf(files[-1], fcntl.LOCK_EX, 1, 2 * byte)
    print("all", flush=True)
    while True:
        print(len(files), flush=True)
        time.sleep(0.1)
if sys.argv[2:]:
    threading.Thread(target=lock).start()
    libc.pthread_exit(None)
lock()
"""


# Takes as many locks as it is told of whole files that are mapped and open no more, and says so.
HIDE = """import ctypes, fcntl, os, sys, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for number in range(int(sys.argv[1])):
    file = os.open(f"/dev/shm/{number // 200}", os.O_RDWR | os.O_CREAT)
    fcntl.flock(file, fcntl.LOCK_SH)
    assert libc.mmap(None, 4096, 1, 1, file, 0) != ctypes.c_void_p(-1).value
    os.close(file)
print("all", flush=True)
time.sleep(60)
"""


def boxed(keeper, count, memory=64 << 20):
    engine = keeper.greeted()
    boxes = [engine.make(limit=keepers.limits(memory=memory)) for _ in range(count)]
    return engine, [handle for handle, _ in boxes], [Control(control).wait_ready() for _, control in boxes]


@pytest.mark.parametrize("how", ["", "thread"], ids=["by a process", "by a thread with files of its own"])
def test_a_box_with_too_many_file_locks_is_ended_and_its_neighbour_is_not(keeper, how):
    engine, handles, (neighbour, attacker) = boxed(keeper, 2)
    some = neighbour.start(f"exec python3 -c '{LOCK}' 9000")
    assert some.readline() == b"all\n"
    many = attacker.start(f"exec python3 -c '{LOCK}' 1000000 {how}")
    assert attacker.has_ended()
    printed = many.read()
    assert b"Traceback" not in printed and b"all" not in printed
    assert engine.end(handles[1])["locks_exceeded"] == 1
    some.read(65536)  # what it said meanwhile
    assert some.readline() and not neighbour.has_ended(0.01)
    assert engine.end(handles[0])["locks_exceeded"] == 0
    assert "locks_exceeded" in keeper.said()
    for each in (some, many, neighbour, attacker):
        each.close()


def test_the_box_that_holds_most_is_ended_where_all_hold_many(keeper):
    """Neither has too many for the host alone."""
    engine, handles, (first, second) = boxed(keeper, 2)
    some = first.start(f"exec python3 -c '{LOCK}' 20000")
    assert some.readline() == b"all\n"
    more = second.start(f"exec python3 -c '{LOCK}' 40000")
    assert second.has_ended()
    assert not first.has_ended(0.01)
    assert engine.end(handles[1])["locks_exceeded"] == 1
    assert engine.end(handles[0])["locks_exceeded"] == 0
    for each in (some, more, first, second):
        each.close()


def test_no_box_is_ended_for_locks_that_another_hides(keeper):
    """They are in the host's number, and no process shows them."""
    engine, handles, (neighbour, attacker) = boxed(keeper, 2, memory=128 << 20)
    some = neighbour.start(f"exec python3 -c '{LOCK}' 15000")
    assert some.readline() == b"all\n"
    hidden = attacker.start(f"exec python3 -c '{HIDE}' 60000")
    assert hidden.readline() == b"all\n"
    assert not neighbour.has_ended(2)
    assert engine.end(handles[0])["locks_exceeded"] == 0
    assert "locks_exceeded" not in keeper.said()
    for each in (some, hidden, neighbour, attacker):
        each.close()


ANONYMOUS = """import ctypes, errno, fcntl, os, select
poll = select.epoll()
for number in (os.eventfd(0), poll.fileno()):
    for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
        try:
            fcntl.lockf(number, kind | fcntl.LOCK_NB, 1, 4711)
            print("locked")
        except OSError as refused:
            print(errno.errorcode[refused.errno], end=" ")
        try:
            fcntl.flock(number, kind | fcntl.LOCK_NB)
            print("locked as a whole")
        except OSError as refused:
            print(errno.errorcode[refused.errno], end=" ")
"""


def test_no_box_locks_anonymous_files(keeper):
    """All anonymous files of the host share one inode: each close of one would pass all locks on it."""
    engine = keeper.greeted()
    printed, _ = engine.boxed(f"python3 -c '{ANONYMOUS}' 2>&1")
    assert set(printed.split()) == {"EAGAIN"}, printed


OPEN_FILE = """import errno, fcntl, struct
with open("/dev/shm/file", "w") as file:
    for command in (36, 37, 38):
        try:
            fcntl.fcntl(file, command, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0))
            print("locked")
        except OSError as refused:
            print(errno.errorcode[refused.errno], end=" ")
"""


def test_there_are_no_locks_of_open_files(keeper):
    """They outlive every fd of the file in a mapping, where nobody could count them."""
    engine = keeper.greeted()
    printed, _ = engine.boxed(f"python3 -c '{OPEN_FILE}' 2>&1")
    assert printed.split() == ["EINVAL"] * 3, printed


def test_the_keeper_serves_while_boxes_are_counted(keeper):
    """A counter that stands still is killed, and nobody waits for it."""
    engine, handles, (attacker, other) = boxed(keeper, 2)
    many = attacker.start(f"exec python3 -c '{LOCK}' 1000000")
    while not attacker.has_ended(0.01):
        kind, _, body, _ = engine.ask(keepers.usage, handles[1])
        assert kind == keepers.USED
    assert engine.end(handles[0])["locks_exceeded"] == 1
    assert engine.end(handles[1])["locks_exceeded"] == 0
    for each in (many, attacker, other):
        each.close()
