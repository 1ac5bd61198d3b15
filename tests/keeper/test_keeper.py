"""The keeper against an engine that was taken over, and against what ends keepers and engines."""
import errno
import fcntl
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import termios
import time

import pytest

import harness
import keepers
from keepers import Control, Keeper


ENGINE_FDS = "0,1,2,3,4,5,6,"
SHORT_NS = 100_000  # a turn of a processor


# ---- what an engine is given -------------------------------------------------------------------

def test_engine_has_its_fds_and_no_rights(keeper):
    facts = keeper.engine().facts
    assert facts["fds"] == ENGINE_FDS
    assert facts["COVE_LISTEN_FDS"] == "1" and facts["COVE_OWNER_UID"] == str(os.getuid())
    assert "SECRET" not in facts and "COVE_TEST_ENGINE" not in facts
    assert facts["no_new_privs"] == "1" and facts["deathsig"] == str(int(signal.SIGTERM))
    if harness.EXPECT.is_root:
        assert facts["uid"] != "0" and facts["gid"] != "0" and facts["groups"] == "0"
    status = harness.status_of(facts["pid"])
    assert all(int(status[name], 16) == 0 for name in ("CapPrm", "CapEff", "CapInh", "CapAmb"))
    assert int(status["SigBlk"], 16) == 0
    if harness.EXPECT.is_root:
        assert harness.status_of(keeper.process.pid)["CapEff"] != status["CapEff"]


def test_engine_has_short_turns_and_goes_before_boxes(keeper):
    engine = keeper.engine().facts["pid"]
    group = pathlib.Path(f"/proc/{engine}/autogroup")
    if harness.EXPECT.is_root and group.exists():  # a user may lower what is his, and not raise it
        assert group.read_text().split()[-1] == "-5"
    if harness.kernel() >= (6, 12):
        assert [harness.turn_ns(int(pid)) for pid in (engine, keeper.process.pid)] == [SHORT_NS, SHORT_NS]


def test_engine_may_write_its_own_directory_only(keeper):
    """An ordinary user's engine is that user, and sees what it sees."""
    engine = keeper.engine()
    same = os.readlink(f"/proc/{engine.pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
    assert same == (not harness.EXPECT.is_root)
    if same:
        return
    mounts = pathlib.Path(f"/proc/{engine.pid}/mountinfo").read_text().splitlines()
    writable = {line.split()[4] for line in mounts if "rw" in line.split()[5].split(",")}
    assert writable == {"/run/cove"}


def test_engine_is_one_process_and_has_no_terminal(keeper):
    """So killing it ends all of it, and it cannot type where the operator reads."""
    facts = keeper.engine().facts
    refused = {"fork", "clone", "execve", "unshare", "setns", "ptrace", "bpf", "keyctl", "mount",
               "sti", "flow", "unlock"}
    assert {name: int(facts[name]) for name in refused} == dict.fromkeys(refused, errno.EPERM)
    assert int(facts["clone3"]) == int(facts["io_uring"]) == errno.ENOSYS
    assert facts["get"] == "0" and facts["session"] == "1"


def test_keeper_cannot_be_looked_into(keeper):
    keeper.engine()
    if harness.EXPECT.is_root:
        assert os.stat(f"/proc/{keeper.process.pid}/mem").st_uid == 0
        assert harness.status_of(keeper.process.pid).get("Name") == "cove-keeper"


# ---- making and ending -------------------------------------------------------------------------

@pytest.mark.parametrize("privileges", [keepers.PLAIN, keepers.SYSTEM])
def test_box_is_made_and_ended(keeper, privileges):
    engine = keeper.greeted()
    handle, control = engine.make(privileges=privileges, owner=keepers.OWNER.encode())
    box = Control(control).wait_ready()
    kind, _, body, _ = engine.ask(keepers.usage, handle)
    assert kind == keepers.USED
    assert keepers.report_of(body)["known"] == harness.EXPECT.has_cgroup
    report = engine.end(handle)
    assert report["box"] == handle and report["oom_kills"] == 0
    assert report["cpu_ns"] < 10 ** 9
    assert box.has_ended()
    box.close()


def test_200_boxes_leave_nothing(keeper):
    engine = keeper.greeted()
    for _ in range(4):
        boxes = [engine.make() for _ in range(harness.scaled(50))]
        controls = [Control(control).wait_ready() for _, control in boxes]
        asked = {engine.next_id(): handle for handle, _ in boxes}
        for request, handle in asked.items():
            engine.send(keepers.end(request, handle))
        for _ in boxes:
            kind, request, body, _ = engine.receive()
            assert kind == keepers.ENDED
            assert keepers.report_of(body)["box"] == asked.pop(request)
        assert not asked
        for control in controls:
            assert control.has_ended()
            control.close()


def test_use_of_a_box_is_not_that_of_the_one_before(keeper):
    """Slots serve again; what is counted in them goes on."""
    engine = keeper.greeted()
    reports = []
    for seconds in (1, 0, 0, 0):
        handle, control = engine.make()
        box = Control(control).wait_ready()
        box.run(f"python3 -c 'import time\nwhile time.process_time() < {seconds}: pass'")
        box.close()
        reports.append(engine.end(handle))
    first, *others = (report["cpu_ns"] for report in reports)
    assert not harness.EXPECT.has_cgroup or first > 8 * 10 ** 8
    assert max(others) < 5 * 10 ** 8


def test_boxes_together_have_half_of_the_pending_signals(keeper):
    """What they may have in all is what their maker may; the rest is the host's."""
    keeper.greeted().make()
    limits = pathlib.Path(f"/proc/{keeper.process.pid}/limits").read_text(encoding="ascii")
    soft, hard = re.search(r"^Max pending signals +(\d+) +(\w+)", limits, re.M).groups()
    assert 0 < int(soft) and (hard == "unlimited" or int(soft) <= int(hard) // 2)


def test_end_of_a_box_that_died_by_itself(keeper):
    engine = keeper.greeted()
    handle, control = engine.make()
    box = Control(control).wait_ready()
    # A zygote is in a pid namespace of its own, and its boxes are below that.
    inits = [pid for pid in harness.children_of(keeper.process.pid)
             if len(harness.status_of(pid).get("NSpid", "").split()) == keepers.BOX_DEPTH]
    assert len(inits) == 1
    harness.kill(inits[0])
    assert box.has_ended()
    box.close()
    assert engine.end(handle)["box"] == handle


def test_boxes_with_other_limits(keeper):
    engine = keeper.greeted()
    for memory in (64 << 20, 128 << 20, 64 << 20):
        handle, control = engine.make(limit=keepers.limits(memory=memory, cpu=500, pids=32))
        Control(control).wait_ready().close()
        engine.end(handle)


def test_a_long_end_holds_up_nobody(keeper, tmp_path):
    """The end of many is asked for at once; a box that is asked for then is there before them."""
    directory = tmp_path / "given"
    directory.mkdir()
    engine = keeper.greeted()
    assert keeper.give(directory) == ""
    cold = [engine.make(mounts=[(b"given", b"/mnt/given", 0)]) for _ in range(5)]
    order = []
    engine.send(b"".join(keepers.end(engine.next_id(), handle) for handle, _ in cold) +
                keepers.make(engine.next_id()))
    for _ in range(6):
        kind, _, _, fds = engine.receive()
        if kind == keepers.NAMED:
            kind, _, _, fds = engine.receive()
        order.append(kind)
        for descriptor in fds:
            os.close(descriptor)
    assert sorted(order) == sorted([keepers.ENDED] * 5 + [keepers.MADE])
    assert order.index(keepers.MADE) < 5
    for _, control in cold:
        os.close(control)


@pytest.mark.wall
def test_two_boxes_with_mounts_have_two_numbers(keeper, tmp_path):
    """Mounts that are open are found by that: one may be read, and the other written to."""
    for name, read_only in ((b"read", 1), (b"written", 0)):
        (tmp_path / name.decode()).mkdir()
        assert keeper.give(tmp_path / name.decode(), name, read_only=read_only) == ""
    engine = keeper.greeted()
    number = engine.next_id()
    engine.send(b"".join(keepers.make(number, mounts=[(name, b"/mnt/a", 0)]) for name in (b"written", b"read")))
    said = {}
    while len(said) < 2:
        kind, answered, body, fds = engine.receive()
        if kind in (keepers.MADE, keepers.REFUSED):
            assert answered == number
            said[kind] = body
        for descriptor in fds:
            os.close(descriptor)
    assert keepers.error_of(said[keepers.REFUSED])[0] == "bad_request"


# ---- owners ------------------------------------------------------------------------------------

def test_claim(keeper):
    engine = keeper.greeted()
    handle, control = engine.make()
    os.close(control)
    assert engine.ask(keepers.claim, handle)[0] == keepers.DONE
    assert engine.ask(keepers.claim, handle)[0] == keepers.DONE
    assert engine.refused(keepers.claim, handle, "c0" + "b" * 18) == "claimed"


def test_stale_handles_are_refused(keeper):
    engine = keeper.greeted()
    handle, control = engine.make()
    os.close(control)
    engine.end(handle)
    other, control = engine.make()
    os.close(control)
    assert other != handle
    for wrong in (handle, 0, other + 1, other ^ 1 << 32, 2 ** 64 - 1, other & 0xffffffff):
        for function in (keepers.claim, keepers.usage, keepers.end):
            assert engine.refused(function, wrong) == "no_box"
    engine.end(other)


def test_end_is_asked_for_once(keeper):
    engine = keeper.greeted()
    handle, control = engine.make()
    os.close(control)
    first, second = engine.next_id(), engine.next_id()
    engine.send(keepers.end(first, handle))
    engine.send(keepers.end(second, handle))
    answers = {}
    for _ in range(2):
        kind, request, _, _ = engine.receive()
        answers[request] = kind
    assert answers == {first: keepers.ENDED, second: keepers.REFUSED}


# ---- an engine that was taken over -------------------------------------------------------------

GOOD_MAKE = keepers.make(7)


# One of each way to be refused; each field's own check is tried by tests/unit/test_keeper.c.
ILLEGAL = {
    "unknown type": keepers.HEAD.pack(keepers.CUT_DISK + 1, 7),
    "an answer": keepers.HEAD.pack(keepers.DONE, 7),
    "too long": GOOD_MAKE + b"\0" * 8,
    "much too long": GOOD_MAKE + b"\0" * 8192,
    "a long end": keepers.end(7, 1) + b"\0" * 8,
    "without an id": keepers.make(0),
    "a second hello": keepers.hello(7),
    "root a path": keepers.make(7, root=b"/etc"),
    "no memory": keepers.make(7, limit=keepers.limits(memory=0)),
    "17 mounts": keepers.make(7, count=17),
    "a mount that goes up": keepers.make(7, mounts=[(b"a", b"/mnt/../proc", 0)]),
    "a disk that is a path": keepers.drop_disk(7, "../names"),
    "no socket of a network": keepers.network(7, 1, 0),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_request_ends_the_engine(keeper, name):
    engine = keeper.greeted()
    engine.send(ILLEGAL[name])
    while (answer := engine.receive()) is not None:  # where a good request was before
        assert name in ("too long", "much too long", "a long end")
        for descriptor in answer[3]:
            os.close(descriptor)
    harness.wait_for(lambda: not os.path.exists(f"/proc/{engine.pid}"), what="the engine's end")
    assert "bad_engine" in keeper.said()
    assert keeper.greeted().make()


@pytest.mark.parametrize("begun", [b"", b"\1", GOOD_MAKE[:-1]])
def test_closed_pipe_ends_the_engine(keeper, begun):
    engine = keeper.greeted()
    engine.send(begun)
    os.close(engine.requests)
    engine.requests = None
    assert engine.receive() is None
    assert keeper.greeted().make()


def test_closed_socket_ends_the_engine(keeper):
    engine = keeper.greeted()
    engine.socket.close()
    harness.wait_for(lambda: not os.path.exists(f"/proc/{engine.pid}"), what="the engine's end")
    assert keeper.greeted().make()


def unread(pipe):
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


def test_request_in_pieces_is_one(keeper):
    engine = keeper.greeted()
    request = keepers.make(7)
    for piece in (request[:1], request[1:9], request[9:-1], request[-1:] + keepers.usage(8, 1)):
        engine.send(piece)
        harness.wait_for(lambda: unread(engine.requests) == 0, what="that the keeper reads a piece")
    kind, answered, _, fds = engine.receive()
    assert (kind, answered) == (keepers.MADE, 7)
    os.close(fds[0])
    assert engine.receive()[:2] == (keepers.REFUSED, 8)


@pytest.mark.parametrize("packet", [keepers.make(1), keepers.claim(1, 1), keepers.usage(1, 1),
                                    keepers.end(1, 1), keepers.drop_disk(1), keepers.weigh_disk(1),
                                    keepers.hello(1, b"another build"), keepers.hello(1, b"a" * 64),
                                    keepers.hello(0)])
def test_nothing_comes_before_hello(keeper, packet):
    engine = keeper.engine()
    engine.send(packet)
    assert engine.receive() is None
    assert "bad_engine" in keeper.said()


def test_no_fd_gets_in(keeper):
    """Whoever receives an fd closes it, and a socket's close may take as long as its owner likes."""
    engine = keeper.greeted()
    with open("/dev/null", "rb") as null, pytest.raises(BrokenPipeError):
        socket.send_fds(engine.socket, [keepers.make(7)], [null.fileno()])
    assert engine.make()


def boxes_of(engine):
    """The handles of all boxes, as a new engine is told."""
    boxes = engine.hello()[2]
    for _, control in boxes.values():
        os.close(control)
    return set(boxes)


def test_every_byte_of_a_request_may_be_anything(keeper):
    """Random damage is refused, served or ends the engine: whatever it is, it is said, and what is there is
    what was said."""
    chance = random.Random(4711)
    answers = {keepers.MAKE: {keepers.MADE: 1, keepers.REFUSED: 0}, keepers.CLAIM: {keepers.REFUSED: 0},
               keepers.USAGE: {keepers.REFUSED: 0}, keepers.DROP_DISK: {keepers.DONE: 0, keepers.REFUSED: 0}}
    engine = keeper.greeted()
    # After each end the keeper waits longer for the next engine: those that are ended most come less often.
    packets = [keepers.make(7)] * 4 + [keepers.usage(7, 1)] * 4 + [keepers.claim(7, 1), keepers.drop_disk(7)]
    used = len(keepers.make(7)) - 16 * keepers.MOUNT_ENTRY.size  # behind that are mounts that it has none of
    made, seen, ends = set(), set(), 0
    for _ in range(harness.scaled(60)):
        packet = bytearray(chance.choice(packets))
        for _ in range(chance.choice((1, 3, 30))):
            packet[chance.randrange(4, min(used, len(packet)))] = chance.randrange(256)
        kind, request = keepers.HEAD.unpack_from(packet)
        engine.send(bytes(packet))
        answer = engine.receive()
        seen.add(answer and answer[0])
        if answer is None:
            ends += 1
            assert keeper.said().count("bad_engine") == ends, keeper.said()
            engine = keeper.engine()
            assert boxes_of(engine) == made
            continue
        said, answered, body, fds = answer
        assert answered == request and answers[kind].get(said) == len(fds), (kind, answer)
        if said == keepers.MADE:
            made.add(struct.unpack("=Q", body)[0])
            os.close(fds[0])
        elif said == keepers.REFUSED:
            assert re.fullmatch("[a-z_]+", keepers.error_of(body)[0]), body
    assert {None, keepers.MADE, keepers.REFUSED} <= seen, seen
    made.add(engine.make()[0])
    os.kill(engine.pid, signal.SIGKILL)
    assert boxes_of(keeper.engine()) == made and keeper.is_alive()


def test_an_engine_that_does_not_listen_holds_up_itself_only(keeper):
    """Nothing grows for it, and the keeper still serves others."""
    engine = keeper.greeted()
    sent = 0
    with pytest.raises(BlockingIOError):
        for request in range(1, 100000):
            os.write(engine.requests, keepers.usage(request, 1))
            sent += 1
    assert keeper.register(keepers.LIST)[0] == ""
    for request in range(1, sent + 1):
        kind, answered, _, _ = engine.receive()
        assert (kind, answered) == (keepers.REFUSED, request)


def test_unknown_names_are_refused(keeper):
    engine = keeper.greeted()
    assert engine.refused(keepers.make, root=b"nobody") == "unknown_root"
    assert engine.refused(keepers.make, root=b"a" * 63) == "unknown_root"
    assert engine.refused(keepers.make, mounts=[(b"nobody", b"/mnt/a", 0)]) == "unknown_mount"
    persistent = {"disk_kind": keepers.PERSISTENT, "disk": keepers.OWNER.encode()}
    assert engine.refused(keepers.make, root=b"nobody", **persistent) == "unknown_root"


# ---- ends of engines and keepers ---------------------------------------------------------------

def test_a_new_engine_gets_the_boxes_back(keeper):
    engine = keeper.greeted()
    made = {engine.make(owner=owner)[0]: owner.decode()
            for owner in (b"", keepers.OWNER.encode(), b"")}
    claimed = list(made)[2]
    engine.ask(keepers.claim, claimed, "c0" + "b" * 18)
    made[claimed] = "c0" + "b" * 18
    os.kill(engine.pid, signal.SIGKILL)
    second = keeper.engine()
    _, _, boxes = second.hello()
    assert {handle: owner for handle, (owner, _) in boxes.items()} == made
    for handle, (_, control) in boxes.items():
        control = Control(control).wait_ready()  # what the first one did not read
        second.end(handle)
        assert control.has_ended()
        control.close()


def test_an_end_that_a_dead_engine_asked_for_is_nobodys_answer(keeper):
    engine = keeper.greeted()
    handles = [engine.make()[0] for _ in range(3)]
    for handle in handles:
        engine.send(keepers.end(engine.next_id(), handle))
    os.kill(engine.pid, signal.SIGKILL)
    second = keeper.engine()
    _, _, boxes = second.hello()
    kind, _, _, fds = second.ask(keepers.make)
    assert kind == keepers.MADE and not second.unasked
    os.close(fds[0])
    assert len(boxes) <= 3


def test_engine_is_restarted_slower_and_slower(keeper):
    moments = []
    for _ in range(5):
        engine = keeper.engine()
        moments.append(time.monotonic())
        os.kill(engine.pid, signal.SIGKILL)
    assert moments[1] - moments[0] < 5 * harness.PATIENCE
    keeper.engine()
    assert time.monotonic() - moments[-1] >= 0.1


@pytest.mark.parametrize("cold", [False, True])
def test_boxes_end_with_a_killed_keeper(stand_in, tmp_path, cold):
    keeper = Keeper(stand_in, tmp_path).start()
    directory = tmp_path / "given"
    directory.mkdir()
    engine = keeper.greeted()
    mounts = []
    if cold:
        assert keeper.give(directory, read_only=1) == ""
        mounts = [(b"given", b"/mnt/given", 0)]
    controls = []
    for _ in range(5):
        request = engine.next_id()
        engine.send(keepers.make(request, mounts=mounts))
        answer = engine.receive()
        if answer[0] == keepers.NAMED:
            answer = engine.receive()
        controls.append(Control(answer[3][0]).wait_ready())
    keeper.process.kill()
    keeper.process.wait()
    assert engine.receive() is None
    for control in controls:
        assert control.has_ended()
        control.close()
    keeper.__exit__()


def hold(engine):
    """Stops it; only then is another signal left for later."""
    os.kill(engine.pid, signal.SIGSTOP)
    harness.wait_for(lambda: harness.status_of(engine.pid)["State"].startswith("T"), what="its stop")


def test_engine_that_outlives_its_keeper_is_killed(stand_in, tmp_path):
    """It hears SIGTERM; the test's one is stopped, and hears nothing."""
    keeper = Keeper(stand_in, tmp_path).start()
    engine = keeper.greeted()
    hold(engine)
    keeper.process.kill()
    keeper.process.wait()
    harness.wait_for(lambda: not os.path.exists(f"/proc/{engine.pid}"), seconds=30,
                     what="the engine's end")
    keeper.__exit__()


def test_sigterm_ends_all_in_order(stand_in, tmp_path):
    keeper = Keeper(stand_in, tmp_path).start()
    engine = keeper.greeted()
    control = Control(engine.make()[1]).wait_ready()
    assert keeper.stop() == 0
    assert control.has_ended()
    control.close()
    assert not keeper.api.exists() and not keeper.api.with_name("keeper.sock").exists()
    keeper.__exit__()


def test_sigterm_reaches_the_engine_which_may_still_ask(stand_in, tmp_path):
    """stand_in dies of it; so this one holds it up and asks before."""
    keeper = Keeper(stand_in, tmp_path).start()
    engine = keeper.greeted()
    handle, control = engine.make()
    hold(engine)
    keeper.process.send_signal(signal.SIGTERM)
    harness.wait_for(lambda: not int(harness.status_of(keeper.process.pid)["ShdPnd"], 16), what="its reading")
    assert engine.end(handle)["box"] == handle
    os.close(control)
    os.kill(engine.pid, signal.SIGCONT)
    assert keeper.process.wait(20) == 0
    keeper.__exit__()


def test_private_keeper_ends_with_its_engine(stand_in, tmp_path):
    keeper = Keeper(stand_in, tmp_path, "--private").start()
    engine = keeper.greeted()
    assert engine.facts["COVE_PRIVATE"] == "1"
    engine.connection.send(b"\0")
    assert keeper.process.wait(20) == 0
    keeper.__exit__()


def test_a_first_engine_that_fails_ends_its_keeper(stand_in, tmp_path):
    """It would fail again and again, and whoever started the keeper would wait for it."""
    keeper = Keeper(stand_in, tmp_path).start()
    keeper.greeted().connection.send(b"\3")
    assert keeper.process.wait(20 * harness.PATIENCE) == 1
    keeper.__exit__()


def test_an_engine_that_has_served_is_restarted_however_it_ends(keeper):
    engine = keeper.greeted()
    engine.send(keepers.HEAD.pack(keepers.BEAT, 1))
    assert engine.refused(keepers.claim, 0) == "no_box"  # so that was read
    for _ in range(2):
        engine.connection.send(b"\3")
        engine = keeper.engine()
    assert "the engine has exited with status 3" in keeper.said()


# ---- one keeper per directory, and its sockets -------------------------------------------------

def fails(keeper, code):
    process = subprocess.run(keeper.command, env=keeper.environment, capture_output=True, text=True,
                             timeout=20, check=False)
    assert process.returncode == 1
    assert f"cove-keeper: {code}: " in process.stderr, process.stderr
    return process.stderr


def test_a_data_directory_has_one_keeper(keeper):
    keeper.engine()
    assert "another engine uses" in fails(keeper, "in_use")


def test_a_socket_that_is_listened_on_stays(keeper, stand_in, tmp_path):
    keeper.engine()
    other = tmp_path / "other"
    other.mkdir()
    second = Keeper(stand_in, other)
    second.command[4] = keeper.api
    assert "give a --socket in another directory" in fails(second, "in_use")
    assert keeper.api.exists()
    second.listener.close()


def test_a_stale_socket_is_removed(stand_in, tmp_path):
    for _ in range(2):
        keeper = Keeper(stand_in, tmp_path).start()
        keeper.greeted()
        keeper.process.kill()
        keeper.process.wait()
        assert keeper.api.exists()
        keeper.__exit__()
        harness.wait_for(lambda: not harness.status_of(keeper.engines[0].pid), what="its end")
    with Keeper(stand_in, tmp_path) as keeper:
        keeper.greeted()


@pytest.mark.parametrize("address", ["0.0.0.0:7171", "[::]:7171", "192.0.2.1:7171"])
def test_an_open_address_needs_a_word(stand_in, tmp_path, address):
    keeper = Keeper(stand_in, tmp_path, "--listen", address)
    assert "--insecure-http" in fails(keeper, "insecure")
    keeper.listener.close()


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1", "127.0.0.1:-1", "127.0.0.1:99999",
                                     "example.org:80", ":80", "[::1:80"])
def test_a_bad_address_is_told(stand_in, tmp_path, address):
    keeper = Keeper(stand_in, tmp_path, "--listen", address)
    process = subprocess.run(keeper.command, env=keeper.environment, capture_output=True, text=True,
                             timeout=20, check=False)
    assert process.returncode == 1 and "--listen" in process.stderr
    keeper.listener.close()


@pytest.mark.parametrize("host, family", [("127.0.0.1", socket.AF_INET), ("[::1]", socket.AF_INET6)])
def test_port_0_is_any_that_is_free_and_is_told(stand_in, tmp_path, host, family):
    with Keeper(stand_in, tmp_path, "--listen", f"{host}:0") as keeper:
        engine = keeper.engine()
        listener = socket.socket(fileno=os.dup(engine.more[1]))
        port = listener.getsockname()[1]
        assert listener.family == family and port > 0
        listener.close()
        harness.wait_for(lambda: f" and {host}:{port}" in keeper.said(), what="the address")


def test_tcp_socket_is_handed_on(stand_in, tmp_path):
    with Keeper(stand_in, tmp_path, "--listen", f"127.0.0.1:{(port := harness.free_port())}") as keeper:
        engine = keeper.engine()
        assert engine.facts["COVE_LISTEN_FDS"] == "2"
        os.kill(engine.pid, signal.SIGKILL)
        # Who connects between two engines waits for the next one.
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            second = keeper.engine()
            listener = socket.socket(fileno=os.dup(second.more[1]))
            listener.settimeout(5)
            assert listener.accept()[1] == client.getsockname()
            listener.close()


def test_configuration_is_handed_on_and_cannot_be_changed(stand_in, tmp_path):
    config = tmp_path / "cove.conf"
    config.write_text("# one\n")
    with Keeper(stand_in, tmp_path, "--config", config) as keeper:
        engine = keeper.engine()
        assert engine.facts["COVE_CONFIG_FD"] == "7"
        assert os.pread(engine.more[1], 100, 0) == b"# one\n"
        # Not by this fd, and not by one that is opened by it.
        with pytest.raises(OSError):
            os.write(engine.more[1], b"x")
        anew = os.open(f"/proc/self/fd/{engine.more[1]}", os.O_RDWR)
        for change in (lambda: os.write(anew, b"x"), lambda: os.ftruncate(anew, 0)):
            with pytest.raises(PermissionError):
                change()
        os.close(anew)
        config.write_text("# another\n")
        os.kill(keeper.process.pid, signal.SIGHUP)
        second = keeper.engine()  # the first is told to end
        assert "config_read" in keeper.said()
        assert os.pread(second.more[1], 100, 0) == b"# another\n"


def test_service_manager_hears_of_it(stand_in, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(10)
        more = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
        keeper = Keeper(stand_in, tmp_path, environment=more).start()
        assert manager.recv(100) == b"WATCHDOG=1"
        keeper.greeted()
        heard = set()
        while b"READY=1" not in heard or b"WATCHDOG=1" not in heard:
            heard.add(manager.recv(100))
        keeper.stop()
        while b"STOPPING=1" not in heard:
            heard.add(manager.recv(100))
        keeper.__exit__()


def test_sockets_of_the_service_manager_are_used(stand_in, tmp_path):
    """LISTEN_PID has to be the keeper's, so a shell becomes it."""
    keeper = Keeper(stand_in, tmp_path)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        keeper.command = ["/bin/bash", "-c", f'exec 3<&{listener.fileno()}; '
                          'exec env LISTEN_PID=$$ LISTEN_FDS=1 "$@"', "sh", *keeper.command]
        with open(keeper.log, "ab") as log:
            keeper.process = subprocess.Popen(keeper.command, env=keeper.environment, stderr=log,
                                              pass_fds=[listener.fileno()])
        engine = keeper.engine()
        given = socket.socket(fileno=os.dup(engine.more[0]))
        assert given.getsockname() == listener.getsockname()
        given.close()
        assert not keeper.api.exists()
        assert engine.facts["fds"] == ENGINE_FDS and "LISTEN_FDS" not in engine.facts
    keeper.__exit__()


@pytest.mark.parametrize("content", ["cove data 2\n", "", "something else"])
def test_data_of_another_version_is_refused(stand_in, tmp_path, content):
    keeper = Keeper(stand_in, tmp_path)
    (keeper.data / "FORMAT").write_text(content)
    fails(keeper, "bad_data")
    keeper.listener.close()


def test_a_directory_that_is_not_coves_is_refused(stand_in, tmp_path):
    keeper = Keeper(stand_in, tmp_path)
    (keeper.data / "FORMAT").unlink()
    fails(keeper, "bad_data")
    keeper.listener.close()


def test_a_run_directory_of_somebody_else_is_refused(stand_in, tmp_path):
    """/tmp/cove-UID may have been made by anybody; here it is a link."""
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    (runtime / "cove").symlink_to(tmp_path)
    keeper = Keeper(stand_in, tmp_path, "--private",
                    environment={"XDG_RUNTIME_DIR": str(runtime)})
    del keeper.command[3:5]
    fails(keeper, "no_directory")
    keeper.listener.close()
