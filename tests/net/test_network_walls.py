"""The way out of a box: two sockets that its keeper has, and nothing else. Tests are the engine, and accept what
real boxes dial; what a box does about it changes nothing, and nothing of it is in the next box."""
import contextlib
import errno
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading

import pytest

import harness
import keepers
from dialling import script, TAMPER
from keepers import Control, TABLES

pytestmark = pytest.mark.wall

RESET_PORT = 9999  # of any address: the engine refuses it
PKTINFO = 50       # IPV6_PKTINFO
LINGER = struct.pack("ii", 1, 0)

class Outside(threading.Thread):
    """Who has the sockets: says what was dialled, and gives back what came; answers datagrams from where they
    were sent to."""

    def __init__(self, sockets):
        super().__init__(daemon=True)
        self.tcp, self.udp = sockets
        self.stop, self.end = os.pipe()
        self.dialled, self.asked = [], []

    def accept(self):
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            connection, peer = self.tcp.accept()
            address = connection.getsockname()[:2]
            self.dialled.append((*address, peer[0]))
            if address[1] == RESET_PORT:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
                connection.close()
            else:
                threading.Thread(target=self.serve, args=(connection, address), daemon=True).start()

    @staticmethod
    def serve(connection, address):
        with connection, contextlib.suppress(OSError):
            connection.setblocking(True)
            connection.sendall(f"{address[0]} {address[1]}: ".encode())
            while (data := connection.recv(65536)):
                connection.sendall(data)

    def answer(self):
        data, control, _, peer = self.udp.recvmsg(65536, 1024)
        for level, kind, value in control:
            if (level, kind) == (socket.IPPROTO_IPV6, PKTINFO):
                address = socket.inet_ntop(socket.AF_INET6, value[:16])
                self.asked.append(address)
                info = [(level, kind, value[:16] + bytes(4))]
                self.udp.sendmsg([data + b" to " + address.encode()], info, 0, peer)

    def run(self):
        while True:
            ready, _, _ = select.select([self.tcp, self.udp, self.stop], [], [])
            if self.stop in ready:
                return
            if self.tcp in ready:
                self.accept()
            if self.udp in ready:
                self.answer()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        os.close(self.end)
        self.join()
        os.close(self.stop)
        self.tcp.close()
        self.udp.close()


class Boxed:
    """A box, and who drives it."""

    def __init__(self, keeper, engine, cold=False, privileges=keepers.PLAIN, **more):
        self.keeper, self.engine = keeper, engine
        self.uid = 0 if privileges == keepers.SYSTEM else None
        if cold:
            register(keeper)
            more["mounts"] = [(b"given", b"/mnt/given", 1)]
        self.handle, control = engine.make(privileges=privileges, **more)
        self.control = Control(control)

    def ready(self):
        self.control.wait_ready()
        return self

    def sh(self, command):
        return self.control.run(command, self.uid)

    def python(self, text):
        """What it prints."""
        return self.sh(f"python3 - 2>&1 <<'END'\n{script(text)}\nEND")

    def shut(self):
        assert self.engine.ask(keepers.network, self.handle, keepers.SHUT)[0] == keepers.DONE

    def end(self):
        self.control.close()
        return self.engine.end(self.handle)


def register(keeper):
    """A mount, which no zygote makes."""
    directory = keeper.data.parent / "given"
    if not directory.exists():
        directory.mkdir()
        assert keeper.give(directory) == ""


@pytest.fixture(params=["slot", "cold"])
def cold(request):
    """An ordinary user's boxes are all made cold."""
    return request.param == "cold"


KINDS = pytest.mark.parametrize("privileges", [keepers.PLAIN, keepers.SYSTEM], ids=["plain", "system"])

UNREACHABLE = """
    print(tried(dial, V4, "192.0.2.1", 80), tried(dial, V6, "2001:db8::1", 80),
          tried(ask, V4, "198.18.0.1", 53), tried(ask, V6, "2001:db8::1", 53))
"""
NOWHERE = "ENETUNREACH ENETUNREACH ENETUNREACH ENETUNREACH\n"
REACHED = """
    print(tried(dial, V4, "192.0.2.1", 80), tried(ask, V4, "198.18.0.1", 53), sep=", ")
"""
THERE = "::ffff:192.0.2.1 80: hello, question to ::ffff:198.18.0.1\n"


# ---- what it is ---------------------------------------------------------------------------------

@KINDS
def test_what_is_dialled_comes_out_of_the_sockets(keeper, cold, privileges):
    engine = keeper.greeted()
    box = Boxed(keeper, engine, cold, privileges)
    with Outside(engine.network(box.handle)) as outside:
        printed = box.ready().python(f"""
            print(tried(dial, V4, "192.0.2.1", 443))
            print(tried(dial, V6, "2001:db8::1", 65535))
            print(tried(dial, V6, "::ffff:192.0.2.2", 1))
            print(tried(dial, V4, "169.254.169.254", 80))
            print(tried(dial, V4, "192.0.2.1", 53))
            print(tried(dial, V4, "192.0.2.1", 61000))
            print(tried(ask, V4, "8.8.8.8", 53))
            print(tried(ask, V6, "2001:db8::53", 53))
            # A reset may be there before the client has said that he says no more.
            print(*(tried(dial, family, at, {RESET_PORT}) in ("ECONNRESET", "ENOTCONN", "EPIPE")
                    for family, at in ((V4, "192.0.2.1"), (V6, "2001:db8::1"))))
            """)
        assert printed.splitlines() == [
            "::ffff:192.0.2.1 443: hello", "2001:db8::1 65535: hello", "::ffff:192.0.2.2 1: hello",
            "::ffff:169.254.169.254 80: hello", "::ffff:192.0.2.1 53: hello",
            "::ffff:192.0.2.1 61000: hello", "question to ::ffff:8.8.8.8",
            "question to 2001:db8::53", "True True"], printed
        assert {peer for _, _, peer in outside.dialled} == {"::ffff:198.19.255.254",
                                                            "fd63:6f76:6500:ffff::1"}
    box.end()


def test_without_it_there_is_no_way_out(keeper, cold):
    box = Boxed(keeper, keeper.greeted(), cold).ready()
    assert box.python(UNREACHABLE) == NOWHERE
    box.end()


def test_all_else_is_refused_at_once(keeper):
    engine = keeper.greeted()
    box = Boxed(keeper, engine, privileges=keepers.SYSTEM).ready()
    with Outside(engine.network(box.handle)) as outside:
        printed = box.python("""
            print(tried(ask, V4, "192.0.2.1", 443), tried(ask, V6, "2001:db8::1", 443))
            print(tried(ask, V4, "192.0.2.1", 61000), tried(ask, V4, "198.18.0.1", 5353))
            print(tried(ask, V4, "224.0.0.251", 5353), tried(ask, V6, "ff02::fb", 5353, 0, 1))
            print(tried(ask, V4, "255.255.255.255", 67) in ("EACCES", "ENETUNREACH"))
            def ping(family, protocol, address, kind):
                with socket.socket(family, DATAGRAM, protocol) as client:
                    client.settimeout(LIMIT)
                    client.connect((address, 0))
                    client.send(struct.pack("!BBHHH", kind, 0, 0, 0, 1))
                    return client.recv(100)
            def raw(family, kind, protocol):
                with socket.socket(family, kind, protocol) as client:
                    return "made"
            # By the right to have such a socket, or by what comes back.
            print(tried(ping, V4, 1, "192.0.2.1", 8) in ("EACCES", "EPERM", "EHOSTUNREACH"),
                  tried(ping, V6, 58, "2001:db8::1", 128) in ("EACCES", "EPERM"))
            for family, kind, protocol in ((V4, socket.SOCK_RAW, 1), (V4, socket.SOCK_RAW, 255),
                    (V6, socket.SOCK_RAW, 58), (socket.AF_PACKET, socket.SOCK_RAW, 0x300),
                    (socket.AF_PACKET, DATAGRAM, 0x300), (V4, STREAM, 132), (V4, STREAM, 262)):
                print(tried(raw, family, kind, protocol) in ("EPERM", "EACCES", "EPROTONOSUPPORT",
                      "EAFNOSUPPORT", "ESOCKTNOSUPPORT", "EINVAL"), end=" ")
            """).split("\n")
        assert printed[:4] == ["ECONNREFUSED ECONNREFUSED", "ECONNREFUSED ECONNREFUSED",
                               "ENETUNREACH ENETUNREACH", "True"], printed
        assert printed[4] == "True True" and printed[5].split() == ["True"] * 7, printed
        assert not outside.dialled and not outside.asked
    box.end()


OWN = """
    import threading
    def echo(family, kind, at, to):
        with socket.socket(family, kind) as server, socket.socket(family, kind) as client:
            server.settimeout(LIMIT)
            client.settimeout(LIMIT)
            # A datagram is answered from where it was sent to only by who is bound there.
            server.bind((to if kind == DATAGRAM else at, 0))
            if kind == STREAM:
                server.listen()
            client.connect((to, server.getsockname()[1]))
            if kind == DATAGRAM:
                client.send(b"x")
                data, peer = server.recvfrom(10)
                server.sendto(data, peer)
            else:
                connection, peer = server.accept()
                connection.send(b"x")
                connection.close()
            return client.recv(10).decode()
    for kind in (STREAM, DATAGRAM):
        print(tried(echo, V4, kind, "127.0.0.1", "127.0.0.1"), tried(echo, V4, kind, "0.0.0.0", "127.9.9.9"),
              tried(echo, V4, kind, "0.0.0.0", "0.0.0.0"), tried(echo, V6, kind, "::1", "::1"),
              tried(echo, V6, kind, "::", "::ffff:127.0.0.1"))
        print(tried(echo, V4, kind, "0.0.0.0", "198.19.255.254"),
              tried(echo, V6, kind, "::", "fd63:6f76:6500:ffff::1"))
    # Nobody is there, and what intercepts is not seen either.
    for port in (1, 61000):
        print(*(tried(function, *address) for function in (dial, ask) for address in (
            (V4, "127.0.0.1", port), (V4, "127.5.5.5", port), (V6, "::1", port))))
"""


@pytest.mark.parametrize("is_open", [False, True], ids=["shut", "open"])
def test_a_box_talks_to_itself_as_ever(keeper, cold, is_open):
    engine = keeper.greeted()
    box = Boxed(keeper, engine, cold).ready()
    with contextlib.ExitStack() as stack:
        outside = is_open and stack.enter_context(Outside(engine.network(box.handle)))
        own = ["x x", "x x"] if is_open else ["ENETUNREACH ENETUNREACH",
                                              "EADDRNOTAVAIL EADDRNOTAVAIL"]
        refused = " ".join(["ECONNREFUSED"] * 6)
        assert box.python(OWN).splitlines() == ["x x x x x", own[0], "x x x x x", own[1],
                                                refused, refused]
        assert not is_open or (not outside.dialled and not outside.asked)
    box.end()


# ---- what a box can do about it -----------------------------------------------------------------

@KINDS
def test_nothing_in_a_box_changes_it(keeper, cold, privileges):
    engine = keeper.greeted()
    box = Boxed(keeper, engine, cold, privileges).ready()
    with Outside(engine.network(box.handle)):
        assert box.python(REACHED) == THERE
        assert box.python(TAMPER) == ""
        assert box.python(REACHED) == THERE
    box.end()


def test_servers_of_a_box_are_no_way_around(keeper):
    """Whatever it binds, before or after, on all addresses or on the one that is dialled."""
    engine = keeper.greeted()
    box = Boxed(keeper, engine, privileges=keepers.SYSTEM).ready()
    with Outside(engine.network(box.handle)) as outside:
        printed = box.python("""
            servers = []
            def serve(family, kind, address):
                server = socket.socket(family, kind)
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind(address)
                if kind == STREAM:
                    server.listen()
                servers.append(server)
                return "bound"
            print(tried(serve, V4, STREAM, ("0.0.0.0", 443)), tried(serve, V4, STREAM, ("192.0.2.1", 444)),
                  tried(serve, V6, STREAM, ("::", 445)), tried(serve, V4, DATAGRAM, ("0.0.0.0", 53)),
                  tried(serve, V4, DATAGRAM, ("192.0.2.1", 53)), tried(serve, V6, DATAGRAM, ("::", 53)),
                  tried(serve, V4, DATAGRAM, ("0.0.0.0", 443)), tried(serve, V4, STREAM, ("0.0.0.0", 53)))
            print(tried(dial, V4, "192.0.2.1", 443), tried(dial, V4, "192.0.2.1", 444),
                  tried(dial, V6, "2001:db8::1", 445), tried(dial, V4, "192.0.2.1", 53), sep=", ")
            print(tried(ask, V4, "192.0.2.1", 53), tried(ask, V6, "2001:db8::1", 53),
                  tried(ask, V4, "192.0.2.1", 443), sep=", ")
            def itself():
                with socket.socket(V4, STREAM) as client:
                    client.settimeout(LIMIT)
                    client.bind(("192.0.2.7", 7777))
                    client.connect(("192.0.2.7", 7777))
                    return "met itself"
            print(tried(itself))
            """).splitlines()
        assert printed == [
            " ".join(["bound"] * 8),
            "::ffff:192.0.2.1 443: hello, ::ffff:192.0.2.1 444: hello, 2001:db8::1 445: hello, "
            "::ffff:192.0.2.1 53: hello",
            "question to ::ffff:192.0.2.1, question to 2001:db8::1, ECONNREFUSED",
            "ECONNREFUSED"], printed
        assert len(outside.dialled) == 4
    box.end()


def test_ports_that_a_box_has_bound_before_are_left_to_it(keeper):
    engine = keeper.greeted()
    box = Boxed(keeper, engine).ready()
    held = box.control.start("python3 -c 'import socket, time\nheld = [socket.create_server((\"127.0.0.1\", port)) "
                             "for port in range(61000, 61003)]\nprint(1, flush=True)\ntime.sleep(600)'")
    assert held.read(1) == b"1"
    with Outside(engine.network(box.handle)):
        assert second(box, REACHED) == THERE
    held.close()
    box.end()


def second(box, text):
    """Runs it beside what runs, as another command."""
    reading, writing = os.pipe()
    line = f"python3 - 2>&1 <<'END'\n{script(text)}\nEND"
    strings = b"".join(word.encode() + b"\0" for word in ("/", "/bin/sh", "-c", line, "PATH=/usr/bin:/bin"))
    packet = struct.pack("=IIIIIIIII128sHH", Control.EXEC, 2, 0, 3, 1, len(strings), 0, 0, 0, b"", 0, 0)
    with open("/dev/null", "rb") as null:
        socket.send_fds(box.control.socket, [packet + strings], [null.fileno(), writing, writing])
    os.close(writing)
    with open(reading, "rb") as output:
        return output.read().decode()


# ---- who holds it -------------------------------------------------------------------------------

def test_shut_it_leads_nowhere_at_once(keeper, cold):
    engine = keeper.greeted()
    box = Boxed(keeper, engine, cold).ready()
    box.shut()  # it is already
    for _ in range(2):
        with Outside(engine.network(box.handle)) as outside:
            assert box.python(REACHED) == THERE
            before = len(outside.dialled)
            box.shut()
            assert box.python(UNREACHABLE) == NOWHERE
            assert len(outside.dialled) == before
        box.shut()
    box.end()


def test_the_next_engine_gets_the_same_sockets(keeper, cold):
    """What is dialled while there is none waits for it."""
    engine = keeper.greeted()
    box = Boxed(keeper, engine, cold).ready()
    for one in engine.network(box.handle):
        one.close()
    again = engine.network(box.handle)
    os.kill(engine.pid, signal.SIGKILL)
    for one in again:
        one.close()
    dials = """
        with socket.create_connection(("192.0.2.1", 80), LIMIT) as early:
            print("dialled", flush=True)
            early.sendall(b"hello\\n")
            early.shutdown(socket.SHUT_WR)
            print(early.makefile().read().strip(), tried(ask, V4, "198.18.0.1", 53), sep=", ")
    """
    output = box.control.start(f"python3 - 2>&1 <<'END'\n{script(dials)}\nEND")
    assert output.readline() == b"dialled\n"
    engine = keeper.engine()
    _, _, boxes = engine.hello()
    os.close(boxes[box.handle][1])
    box.engine = engine
    with Outside(engine.network(box.handle)):
        with output:
            assert output.read(len(THERE)) in (THERE.encode(), THERE.encode()[:len(THERE)])
        while box.control.receive()[0] != Control.EXITED:
            pass
    box.end()


def test_it_is_open_before_the_box_stands(keeper, cold):
    """Asked for as soon as there is a box: whatever runs in it later finds it so."""
    engine = keeper.greeted()
    for _ in range(harness.scaled(10)):
        box = Boxed(keeper, engine, cold)
        with Outside(engine.network(box.handle)):
            assert box.ready().python(REACHED) == THERE
        box.end()


def test_what_is_asked_wrong_is_refused(keeper):
    engine = keeper.greeted()
    box = Boxed(keeper, engine).ready()
    for what in (keepers.TCP, keepers.UDP, keepers.SHUT, keepers.DIAL, keepers.DIAG):
        assert engine.refused(keepers.network, box.handle + 1, what) == "no_box"
    handle = box.handle
    box.end()
    assert engine.refused(keepers.network, handle, keepers.TCP) == "no_box"
    engine.send(keepers.network(engine.next_id(), handle, keepers.DIAG + 1))
    assert engine.receive() is None
    harness.wait_for(lambda: "bad_engine" in keeper.said(), 10 * harness.PATIENCE, "the word")


# ---- what is left of it -------------------------------------------------------------------------

@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
def test_the_next_box_has_nothing_of_it(keeper, used):
    """The same place serves again, and its network does not."""
    engine = keeper.greeted()
    places, tables = [], set()

    def has_served_again():
        return not harness.EXPECT.is_root or len(set(places)) < len(places)

    # Which place serves is the keeper's choice: under load the first are all served by others.
    while len(places) < 6 or (not has_served_again() and len(places) < 30):
        box = Boxed(keeper, engine).ready()
        places.append(box.sh("cat /proc/self/uid_map"))
        tables.add(box.sh(TABLES))
        assert box.python(UNREACHABLE) == NOWHERE
        with Outside(engine.network(box.handle)):
            assert not used or box.python(REACHED) == THERE
        box.end()
    assert len(tables) == 1, tables
    assert has_served_again(), places


# ---- sockets into a box -------------------------------------------------------------------------

HELLO_OF = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    client, _ = server.accept()
    client.sendall(b"from the box")
    client.close()
"""


def made(engine, handle, what):
    """A socket in a box's network."""
    answer, _, body, fds = engine.ask(keepers.network, handle, what)
    assert answer == keepers.SOCKET and len(fds) == 1 and not body, keepers.error_of(body)
    family, kind = (socket.AF_INET6, socket.SOCK_STREAM) if what == keepers.DIAL else (
        socket.AF_NETLINK, socket.SOCK_RAW)
    found = socket.socket(fileno=fds[0])
    assert (found.family, found.type & ~socket.SOCK_NONBLOCK) == (family, kind)
    assert not os.get_blocking(found.fileno())
    found.settimeout(10 * harness.PATIENCE)
    return found


def serve_in(box):
    """A server in the box: its output, which ends with it, and its port."""
    held = box.control.start(f"exec python3 - <<'END'\n{HELLO_OF}\nEND")
    line = b""
    while not line.endswith(b"\n"):
        line += held.read(1)
    return held, int(line)


def dialled(client, port):
    """What a socket of DIAL hears there, or the error."""
    try:
        client.connect(("::ffff:127.0.0.1", port))
        return client.makefile().read()
    except OSError as error:
        return error.errno


@pytest.mark.parametrize("is_open", [False, True], ids=["shut", "open"])
def test_who_dials_in_is_in_the_box_and_nowhere_else(keeper, cold, is_open):
    engine = keeper.greeted()
    box = Boxed(keeper, engine, cold).ready()
    with contextlib.ExitStack() as stack:
        if is_open:
            stack.enter_context(Outside(engine.network(box.handle)))
        held, port = serve_in(box)
        own = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        while own.getsockname()[1] == port:
            own = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        with made(engine, box.handle, keepers.DIAL) as client:
            assert dialled(client, port) == "from the box"
        with made(engine, box.handle, keepers.DIAL) as client:
            assert dialled(client, own.getsockname()[1]) == errno.ECONNREFUSED
        held.close()
    box.end()


def test_who_dials_in_late_reaches_no_other_box(keeper, cold):
    """The socket outlives its box, and is of its network: no later one is that."""
    engine = keeper.greeted()
    for _ in range(4):
        first = Boxed(keeper, engine, cold).ready()
        late = [made(engine, first.handle, keepers.DIAL) for _ in range(4)]
        first.end()
        for client in late:
            box = Boxed(keeper, engine, cold).ready()
            held, port = serve_in(box)
            with client:
                assert dialled(client, port) == errno.ECONNREFUSED
            with made(engine, box.handle, keepers.DIAL) as now:
                assert dialled(now, port) == "from the box"
            held.close()
            box.end()


# Asks all that listens by TCP (IPv4), and, where a port is named, to end that. [port, ...], or the error's number.
DIAG_ASK = """
import os, socket, struct, sys
fd, victim = map(int, sys.argv[1:])
diag = socket.socket(fileno=fd)
diag.settimeout(20)
def ask(kind, flags, port, states):
    request = struct.pack("=BBBBI", socket.AF_INET, 6, 0, 0, states)
    request += struct.pack("!HH", port, 0) + socket.inet_aton("127.0.0.1").ljust(16, b"\\0") + bytes(20)
    request += struct.pack("=II", 0xffffffff, 0xffffffff)
    diag.send(struct.pack("=IHHII", 16 + len(request), kind, flags, 1, 0) + request)
    while True:
        data = diag.recv(65536)
        while data:
            size, kind = struct.unpack_from("=IH", data)
            yield kind, data[16:size]
            if kind in (2, 3):
                return
            data = data[(size + 3) & ~3:]
if victim:
    for kind, body in ask(21, 5, victim, 0xffffffff):
        print(-struct.unpack_from("=i", body)[0])
else:
    print(*(struct.unpack_from("!H", body, 4)[0] for kind, body in ask(20, 0x301, 0, 1 << 10) if kind == 20))
"""


def diag(client, victim=0, **more):
    done = subprocess.run([sys.executable, "-c", DIAG_ASK, str(client.fileno()), str(victim)],
                                  pass_fds=[client.fileno()], capture_output=True, text=True, check=True, **more)
    return [int(word) for word in done.stdout.split()]


def test_who_asks_what_listens_is_told_of_the_box_and_ends_nothing(keeper, cold):
    engine = keeper.greeted()
    box = Boxed(keeper, engine, cold).ready()
    held, port = serve_in(box)
    with socket.create_server(("127.0.0.1", 0)), made(engine, box.handle, keepers.DIAG) as client:
        client.setblocking(True)
        assert diag(client) == [port]
        # The engine has no capability; an ordinary user's has its user's over a box of that user.
        if harness.EXPECT.is_root:
            assert diag(client, port, user=65534, group=65534, extra_groups=[]) == [errno.EPERM]
    with made(engine, box.handle, keepers.DIAL) as client:
        assert dialled(client, port) == "from the box"
    held.close()
    box.end()


@pytest.mark.parametrize("what", [keepers.DIAL, keepers.DIAG], ids=["dial", "diag"])
def test_who_does_not_read_leaves_no_socket_in_the_keeper(keeper, what):
    if not harness.EXPECT.is_root:
        return  # the kernel shows its user nothing of it, once it has made a box

    def held():
        return len(os.listdir(f"/proc/{keeper.process.pid}/fd"))

    engine = keeper.greeted()
    box = Boxed(keeper, engine).ready()
    made(engine, box.handle, what).close()
    before = harness.at_rest(held)
    request = keepers.network(engine.next_id(), box.handle, what)
    os.set_blocking(engine.requests, False)

    def reads_no_more():
        try:
            while True:
                os.write(engine.requests, request)
        except BlockingIOError:
            return not select.select([], [engine.requests], [], 0.2)[1]

    harness.wait_for(reads_no_more, 20 * harness.PATIENCE, "a full pipe")
    assert held() <= before + 2, (held(), before)  # the one that waits, and none behind it
    os.kill(engine.pid, signal.SIGKILL)
    engine = keeper.greeted()
    harness.wait_for(lambda: held() <= before, 10 * harness.PATIENCE, "the fds")
    engine.end(box.handle)
    box.control.close()


def test_the_keeper_keeps_no_socket_of_a_box_that_ended(keeper, cold):
    if not harness.EXPECT.is_root:
        return  # the kernel shows its user nothing of it, once it has made a box
    engine = keeper.greeted()

    def settled():
        return harness.at_rest(lambda: len(os.listdir(f"/proc/{keeper.process.pid}/fd")))

    counts = []
    for _ in range(3):
        for _ in range(harness.scaled(8)):
            box = Boxed(keeper, engine, cold)
            for one in engine.network(box.handle):
                one.close()
            box.ready().end()
        one = Boxed(keeper, engine, cold).ready()  # beside it as many places are kept each time
        counts.append(settled())
        one.end()
    assert counts[2] <= counts[0], counts


def test_an_upgrade_keeps_it_open(keeper, cold):
    engine = keeper.greeted()
    box = Boxed(keeper, engine, cold).ready()
    for one in engine.network(box.handle):
        one.close()
    keeper.process.send_signal(signal.SIGHUP)
    engine = keeper.engine(30)  # the first is told to end
    _, _, boxes = engine.hello()
    os.close(boxes[box.handle][1])
    box.engine = engine
    with Outside(engine.network(box.handle)):
        assert box.python(REACHED) == THERE
        box.shut()
        assert box.python(UNREACHABLE) == NOWHERE
    box.end()


# ---- names --------------------------------------------------------------------------------------

def test_the_hosts_view_names_the_resolver(keeper, cold):
    box = Boxed(keeper, keeper.greeted(), cold).ready()
    assert box.sh("cat /etc/resolv.conf") == "nameserver 198.18.0.1\n"
    box.end()


RESOLV = {
    "a file": lambda etc: (etc / "resolv.conf").write_text("nameserver 127.0.0.53\n", encoding="ascii"),
    "a link to nowhere": lambda etc: (etc / "resolv.conf").symlink_to("../run/systemd/resolve/stub-resolv.conf"),
    "none": lambda etc: None,
    "no etc": lambda etc: etc.rmdir(),
}


@pytest.mark.parametrize("kind", RESOLV)
@KINDS
def test_an_image_gets_the_resolver_whatever_it_has(keeper, tmp_path, kind, privileges):
    root = tmp_path / "root"
    for name in ("bin", "etc", "tmp"):
        (root / name).mkdir(parents=True)
    (root / "bin/sh").write_bytes(harness.pathlib.Path("/bin/busybox").read_bytes())
    (root / "bin/sh").chmod(0o755)
    (root / "bin/cat").symlink_to("sh")
    RESOLV[kind](root / "etc")
    assert keeper.give(root, b"small", keepers.ROOT) == ""
    before = sorted(root.rglob("*"))
    box = Boxed(keeper, keeper.greeted(), privileges=privileges, root=b"small").ready()
    assert box.sh("cat /etc/resolv.conf") == "nameserver 198.18.0.1\n"
    box.end()
    assert sorted(root.rglob("*")) == before
