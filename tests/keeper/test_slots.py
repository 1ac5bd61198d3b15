"""What a box has been lent, another has afterwards; and learns nothing of the one before."""
import errno
import os
import time

import pytest

import harness
import keepers
from keepers import Control, TABLES

# In the network of a box: a connection to itself, which leaves counters and a port in TIME_WAIT.
TALK = """python3 -c '
import socket
listener = socket.create_server(("127.0.0.1", 4711))
client = socket.create_connection(("127.0.0.1", 4711))
server, _ = listener.accept()
server.close(); client.close()
print("talked")'"""
LOOK = "grep lo: /proc/net/dev | tr -s ' 0\\n' ' '"


def test_a_network_that_was_used_is_not_used_again(keeper):
    engine = keeper.greeted()
    assert engine.boxed(TALK)[0] == "talked\n"
    for _ in range(4):
        assert engine.boxed(LOOK)[0].strip() == "lo:"
    assert engine.boxed(TALK)[0] == "talked\n"


# Each leaves something in one of its network's tables, and no packet goes.
IN_VAIN = """python3 -c '
import socket
for family, address in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        for _ in range(9):
            with socket.socket(family, kind) as any:
                print(any.connect_ex((address, 80)), end=" ")'"""


def test_what_a_box_dialled_in_vain_is_not_in_the_next(keeper):
    """No counter of a network says that somebody has been there: none is lent twice."""
    engine = keeper.greeted()
    new = engine.boxed(TABLES)[0]
    for _ in range(4):
        assert set(engine.boxed(IN_VAIN)[0].split()) == {str(errno.ENETUNREACH)}
        assert engine.boxed(TABLES)[0] == new
    assert engine.boxed(f"{IN_VAIN} >&2; {TABLES}")[0] != new, "nothing is left where it was"


@pytest.mark.parametrize("privileges,uid,port", [(keepers.SYSTEM, 0, 80), (keepers.PLAIN, None, 8080)])
def test_a_box_binds_its_ports(keeper, privileges, uid, port):
    engine = keeper.greeted()
    command = (f"python3 -c 'import socket; print(socket.create_server((\"\", {port}))"
               f".getsockname()[1])' 2>&1")
    assert engine.boxed(command, uid, privileges=privileges)[0] == f"{port}\n"


@pytest.mark.parametrize("privileges", [keepers.SYSTEM, keepers.PLAIN])
def test_few_connections_wait_at_a_socket(keeper, privileges):
    engine = keeper.greeted()
    path = "/proc/sys/net/core/somaxconn"
    # Before, only root makes a network in which the kernel has this number.
    expected = "512\n" if harness.EXPECT.is_root or harness.kernel() >= (6, 3) else ""
    assert engine.boxed(f"if [ -e {path} ]; then cat {path}; fi", privileges=privileges)[0] == expected


def test_what_a_box_wrote_is_not_in_the_next(keeper):
    engine = keeper.greeted()
    for _ in range(4):
        printed, _ = engine.boxed("ls -A /tmp /home/user /dev/shm; "
                           "touch /tmp/a /home/user/b /dev/shm/c; ipcmk -M 4096 >/dev/null 2>&1; "
                           "ipcs -m | grep -c 0x")
        # Where a watchdog counts memory there is none that is nobody's.
        segments = "1" if harness.EXPECT.has_cgroup else "0"
        assert printed.split() == ["/dev/shm:", "/home/user:", "/tmp:", segments], printed


def test_a_kill_for_memory_is_counted_once(keeper):
    engine = keeper.greeted()
    limit = keepers.limits(memory=64 << 20)
    hog = "python3 -c 'b = bytearray(256 << 20); print(len(b))'; echo survived"
    for _ in range(2):
        _, report = engine.boxed(hog, limit=limit)
        assert report["oom_kills"] >= 1
        _, report = engine.boxed("true", limit=limit)
        assert report["oom_kills"] == 0 and report["peak"] < 64 << 20


def test_cpu_time_is_the_boxs_own(keeper):
    engine = keeper.greeted()
    busy = "python3 -c 'import time\nwhile time.process_time() < 0.4: pass'"
    assert engine.boxed(busy)[1]["cpu_ns"] > 2 * 10 ** 8
    assert engine.boxed("true")[1]["cpu_ns"] < 2 * 10 ** 8


def cpu_of(engine, handle):
    kind, _, body, _ = engine.ask(keepers.usage, handle)
    assert kind == keepers.USED
    return keepers.report_of(body)["cpu_ns"]


def test_a_throttled_box_ends_soon(keeper):
    """Processes die under their CPU limit, too, so it is lifted; the next box has it again."""
    engine = keeper.greeted()
    limit = keepers.limits(cpu=100, pids=200)
    for _ in range(2):
        handle, control = engine.make(limit=limit)
        box = Control(control).wait_ready()
        with box.start("for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; echo busy; wait") as output:
            assert output.readline() == b"busy\n"
        if harness.EXPECT.has_cgroup:  # half a second's part of what it may have: it has been held back
            harness.wait_for(lambda: cpu_of(engine, handle) > 5 * 10 ** 7, what="a box that is busy")
        started = time.monotonic()
        engine.end(handle)
        assert time.monotonic() - started < 8 * harness.PATIENCE
        box.close()


def test_nothing_of_the_keeper_is_in_a_box(keeper):
    engine = keeper.greeted()
    printed, _ = engine.boxed("ls /proc/self/fd; env; cat /proc/1/environ 2>/dev/null; "
                       "cat /proc/self/status | grep SigBlk")
    assert "SECRET" not in printed and "COVE" not in printed
    assert printed.split()[:4] == ["0", "1", "2", "3"]  # 3 is of ls itself
    assert printed.split()[-1].strip("0") == ""


def test_the_keeper_keeps_no_fds_of_boxes_that_ended(keeper):
    engine = keeper.greeted()
    descriptors = f"/proc/{keeper.process.pid}/fd"
    if not harness.EXPECT.is_root:
        return  # the kernel shows its user nothing of it, once it has made a box

    def settled():
        return harness.at_rest(lambda: len(os.listdir(descriptors)))

    def beside_one():
        """While there is one, two places are kept beside it; else that depends on how long the last took to end."""
        handle, control = engine.make()
        box = Control(control).wait_ready()
        count = settled()
        box.close()
        engine.end(handle)
        return count

    before = beside_one()
    for _ in range(harness.scaled(20)):
        engine.boxed("true")
    assert beside_one() <= before


def test_a_keeper_with_all_the_places_that_it_keeps_rests(keeper):
    """What it makes ahead for the kind that was wanted last is not what it removes for being too many: it
    did both in turns, for ever."""
    engine = keeper.greeted()
    # More than it keeps of one kind; an ordinary user has ids for fewer, and no places.
    many = [engine.make() for _ in range(70 if harness.EXPECT.is_root else 8)]
    for handle, control in many:
        Control(control).wait_ready().close()
        engine.end(handle)
    engine.boxed("true", 0, privileges=keepers.SYSTEM)

    def rests():
        before = harness.cpu_ticks(keeper.process.pid)
        time.sleep(0.5)
        return harness.cpu_ticks(keeper.process.pid) - before <= 2

    harness.wait_for(rests, 20 * harness.PATIENCE, "rest")


def test_many_at_once_are_refused_and_not_the_keepers_end(keeper):
    """Without fds it makes no box; with fds it does again."""
    engine = keeper.greeted()
    handle, control = engine.make()
    os.close(control)
    if not harness.EXPECT.is_root:
        return  # nor lets its user limit it
    used = max(map(int, os.listdir(f"/proc/{keeper.process.pid}/fd")))
    harness.subprocess.run(["prlimit", f"--nofile={used + 12}:", "--pid",
                            str(keeper.process.pid)], check=True)
    made = [handle]
    while True:
        kind, _, body, fds = engine.ask(keepers.make)
        if kind == keepers.REFUSED:
            break
        made.append(keepers.struct.unpack("=Q", body)[0])
        os.close(fds[0])
    assert keepers.error_of(body)[0] == "capacity", keepers.error_of(body)
    for handle in made:
        engine.end(handle)
    handle, control = engine.make()
    Control(control).wait_ready().close()
    engine.end(handle)
