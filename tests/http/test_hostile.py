"""Clients that mean harm, or are broken: what they hold is bounded, and others are served meanwhile."""
import ctypes
import resource
import select
import socket
import struct
import threading
import time

import pytest
from clients import HELLO, PATIENCE, read_all, read_until, status

SO_ATTACH_FILTER = 26
POST = "POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n"


@pytest.fixture(autouse=True)
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def send_some(client, data):
    """As much as the kernel takes at once."""
    client.setblocking(False)
    try:
        return client.send(data)
    except BlockingIOError:
        return 0


def close_all(clients):
    for client in clients:
        client.close()


def vanish(client):
    """The client's kernel drops all that comes and answers nothing, as after a power cut."""
    drop_all = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0), 8)  # BPF: return 0
    program = struct.pack("HxxxxxxP", 1, ctypes.addressof(drop_all))
    client.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


# ---- who holds much ----

def test_requests_sent_ahead_for_ever(serve):
    """Who sends them faster than they are answered, and takes the answers, waits in its own kernel."""
    server = serve("unix", lean=True)
    before = server.memory()
    clients = [server.connect() for _ in range(8)]
    sent, taken, block = 0, 0, HELLO * 2000
    deadline = time.monotonic() + 20
    while sent < 60_000_000 and time.monotonic() < deadline:
        for client in clients:
            sent += send_some(client, block)
            try:
                taken += len(client.recv(1 << 20))
            except BlockingIOError:
                pass
        if taken > 5_000_000:
            break
    assert taken > 1_000_000
    assert server.memory() - before < 10_000_000
    close_all(clients)


def test_requests_sent_ahead_by_who_takes_no_answers(serve):
    server = serve("unix", lean=True)
    before = server.memory()
    clients = [server.connect() for _ in range(100)]
    for _ in range(5):
        for client in clients:
            send_some(client, HELLO * 20_000)
        server.still()
    assert server.memory() - before < 100 * 70_000
    close_all(clients)


def test_requests_sent_ahead_while_one_is_answered(serve):
    server = serve("unix", lean=True)
    before = server.memory()
    clients = [server.connect() for _ in range(100)]
    for _ in range(5):
        for client in clients:
            send_some(client, b"GET /follow HTTP/1.1\r\nHost: x\r\n\r\n" + HELLO * 20_000)
        server.still()
    assert server.memory() - before < 100 * 90_000
    close_all(clients)
    server.until("live", 0)


def test_headers_that_never_end(serve):
    server = serve("unix", lean=True, clock=True, header_ms=600_000)
    before = server.memory()
    clients = [server.connect() for _ in range(100)]
    for client in clients:
        client.sendall(b"GET /hello HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 30_000)
    server.still()
    assert server.memory() - before < 100 * 100_000
    # A byte now and then gains nothing.
    for _ in range(5):
        server.advance(110)
        for client in clients:
            send_some(client, b"x")
        server.still()
    assert not select.select(clients, [], [], 0)[0]
    server.advance(60)
    for client in clients:
        client.settimeout(10 * PATIENCE)
        assert status(read_all(client)) == 408
    close_all(clients)


def test_bodies_that_come_by_the_byte(serve):
    server = serve("unix", lean=True, clock=True, body_ms=600_000)
    before = server.memory()
    kept = [server.connect() for _ in range(100)]
    streamed = [server.connect() for _ in range(100)]
    for client in kept:
        client.sendall(POST.format("/echo", 4_000_000).encode())
    for client in streamed:
        client.sendall(POST.format("/upload", 4_000_000).encode())
    for count in range(1, 6):
        for client in kept + streamed:
            send_some(client, b"u")
        server.until("taken", 100 * count)
        server.still()
        assert not select.select(kept + streamed, [], [], 0)[0]
        server.advance(110)
    assert server.memory() - before < 200 * 30_000
    # All of a body that is kept has body_ms; one that is handed on has it for each part.
    server.advance(60)
    for client in kept:
        client.settimeout(10 * PATIENCE)
        assert status(read_all(client)) == 408
    assert server.stats()["live"] == 100
    server.advance(600)
    server.until("live", 0)
    close_all(kept + streamed)


@pytest.mark.parametrize("target", ["/stream?count=1000000000", "/pipe?bytes=1000000000", "/big?bytes=3000000"])
def test_readers_of_a_byte_now_and_then(serve, target):
    server = serve("unix", lean=True, backlog_bytes=100_000)
    before = server.memory()
    clients = [server.connect() for _ in range(10)]
    for client in clients:
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    for _ in range(3):
        for client in clients:
            assert client.recv(1)
        server.still()
    most = 5_000_000 if "big" in target else 350_000
    assert server.memory() - before < 10 * most
    close_all(clients)
    server.until("live", 0)


# ---- who holds up ----

def latency(server, seconds=0.7):
    times = []
    client = server.client()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        started = time.monotonic()
        client.request("GET", "/hello")
        client.getresponse().read()
        times.append(time.monotonic() - started)
    client.close()
    return sorted(times)[len(times) // 2]


def test_a_flood_does_not_starve_others(serve):
    """Loose, for machines are slow and busy: the turns are what keeps it far below."""
    server = serve("unix")
    idle = latency(server)
    stop, cut = threading.Event(), []

    def flood():
        client = server.connect()
        client.settimeout(10 * PATIENCE)
        block = HELLO * 500
        client.sendall(HELLO)
        size = len(read_until(client, b"hello\n"))
        while not stop.is_set():
            client.sendall(block)
            left = 500 * size
            while left > 0:
                part = client.recv(1 << 20)
                if not part:
                    cut.append(size)
                    return
                left -= len(part)
        client.close()

    crowd = [threading.Thread(target=flood) for _ in range(2)]
    for one in crowd:
        one.start()
    try:
        tries = [latency(server)]
        while tries[-1] >= 50 * idle + 0.05 and len(tries) < 5:
            tries.append(latency(server))
    finally:
        stop.set()
        for one in crowd:
            one.join()
    assert not cut and tries[-1] < 50 * idle + 0.05, (idle, tries)


# ---- who takes all places ----

def from_address(server, address):
    client = socket.socket()
    client.settimeout(10 * PATIENCE)
    client.bind((address, 0))
    client.connect(("127.0.0.1", server.port))
    return client


def test_a_crowd_from_one_address_keeps_no_other_out(serve):
    """They have all asked something, and stay."""
    server = serve("tcp", connections=100)
    crowd = []
    for _ in range(500):
        client = from_address(server, "127.0.0.1")
        client.setblocking(False)
        send_some(client, HELLO)
        crowd.append(client)
        if len(crowd) % 100 == 0:
            for other in ("127.0.0.2", "127.0.0.3"):
                with from_address(server, other) as client:
                    client.sendall(HELLO)
                    assert status(read_until(client, b"\r\n\r\n")) == 200
    # And one that is in stays in, while the crowd has more.
    stays = from_address(server, "127.0.0.4")
    for _ in range(20):
        stays.sendall(HELLO)
        assert read_until(stays, b"hello\n")
        crowd += [from_address(server, "127.0.0.1") for _ in range(20)]
    stays.close()
    close_all(crowd)


def ask(server, target, *fields):
    """From an address that all have, as behind a proxy; the connection, and the status of its answer."""
    client = from_address(server, "127.0.0.1")
    client.sendall("\r\n".join([f"GET {target} HTTP/1.1", "Host: x", *fields, "", ""]).encode())
    return client, status(read_until(client, b"\r\n\r\n"))


def test_a_crowd_that_is_served_is_not_thrown_out_for_its_own(serve):
    server = serve("tcp", connections=10)
    crowd = [ask(server, "/follow")[0] for _ in range(10)]
    late, answer = ask(server, "/hello")
    assert answer == 503
    assert not select.select(crowd, [], [], 0)[0]
    close_all([late, *crowd])


def test_an_owner_leaves_places_for_others(serve):
    """Half of all are the most for one owner, and a quarter of all are left for the next."""
    server = serve("tcp", connections=16)
    first = [ask(server, "/follow", "X-Owner: a") for _ in range(12)]
    assert [answer for _, answer in first] == 8 * [200] + 4 * [429]
    second = [ask(server, "/follow", "X-Owner: b") for _ in range(8)]
    assert [answer for _, answer in second] == 4 * [200] + 4 * [429]
    third, answer = ask(server, "/hello", "X-Owner: c")
    assert answer == 200
    third.close()
    assert not select.select([client for client, _ in first[:8] + second[:4]], [], [], 0)[0]
    close_all(client for client, _ in first[:3])
    server.until("followers", 9)
    again, answer = ask(server, "/follow", "X-Owner: a")
    assert answer == 200
    close_all([again, *(client for client, _ in first + second)])


def test_what_anybody_may_ask_leaves_places_for_its_owner(serve):
    server = serve("tcp", connections=16)
    crowd = [ask(server, "/follow", "X-Owner: a", "X-Public: 1") for _ in range(8)]
    assert [answer for _, answer in crowd].count(429) == 3
    owner, answer = ask(server, "/follow", "X-Owner: a")
    assert answer == 200
    close_all([owner, *(client for client, _ in crowd)])


def test_who_is_done_gives_his_place_away(serve):
    """Those of one owner, and strangers that were answered; the address is the newcomer's, too."""
    for owner in (["X-Owner: a"], []):
        server = serve("tcp", connections=10)
        crowd = [ask(server, "/hello", *owner)[0] for _ in range(10)]
        stays, answer = ask(server, "/hello", "X-Owner: b")
        assert answer == 200
        for _ in range(20):
            client, answer = ask(server, "/hello", *owner)
            assert answer == 200
            crowd.append(client)
        stays.sendall(HELLO)
        assert read_until(stays, b"hello\n")
        close_all([stays, *crowd])


def test_owners_that_do_not_read_keep_nobody_out(serve):
    server = serve("tcp", connections=10)
    crowd = [slow_reader(server, "127.0.0.1", 8_000_000, "X-Owner: a") for _ in range(10)]
    for client in crowd:
        assert client.recv(1)
    other, answer = ask(server, "/hello", "X-Owner: b")
    assert answer == 200
    close_all([other, *crowd])


def test_who_lingers_keeps_nobody_out(serve):
    """Each was answered before its body was read to its end; hundreds of them, and places for ten."""
    server = serve("tcp", connections=10)
    crowd = []
    for _ in range(600):
        client = from_address(server, "127.0.0.1")
        client.sendall(POST.format("/hello", 9).encode())
        assert status(read_until(client, b"\r\n\r\n")) == 405
        crowd.append(client)
    for address in ("127.0.0.1", "127.0.0.2"):
        with from_address(server, address) as other:
            other.sendall(HELLO)
            assert status(read_until(other, b"\r\n\r\n")) == 200
    close_all(crowd)


def slow_reader(server, address, size, *fields):
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.settimeout(10 * PATIENCE)
    client.bind((address, 0))
    client.connect(("127.0.0.1", server.port))
    client.sendall("\r\n".join([f"GET /big?bytes={size} HTTP/1.1", "Host: x", *fields, "", ""]).encode())
    return client


def test_who_does_not_read_keeps_no_other_out(serve):
    server = serve("tcp", connections=10)
    crowd = [slow_reader(server, "127.0.0.1", 8_000_000) for _ in range(10)]
    for client in crowd:
        assert client.recv(1)
    for address in ("127.0.0.2", "127.0.0.3"):
        with from_address(server, address) as other:
            other.sendall(HELLO)
            assert status(read_until(other, b"\r\n\r\n")) == 200
    close_all(crowd)


def test_answers_that_nobody_reads_have_a_bound_together(serve):
    server = serve("tcp", lean=True, waiting_bytes=20_000_000)
    one = slow_reader(server, "127.0.0.2", 8_000_000)
    assert one.recv(1)
    before = server.memory()
    crowd = [slow_reader(server, "127.0.0.1", 8_000_000) for _ in range(30)]
    assert server.get("/hello")[1] == b"hello\n"
    assert server.memory() - before < 80_000_000
    total = 1
    while total < 8_000_000:
        part = one.recv(1 << 20)
        assert part, "the one of another address was cut"
        total += len(part)
    close_all([one, *crowd])


@pytest.mark.parametrize("many, few", [
    (("127.0.0.1", "X-Owner: many"), ("127.0.0.1", "X-Owner: few")), (("127.0.0.2",), ("127.0.0.1",))],
    ids=["owners", "strangers"])
def test_the_answer_that_is_cut_is_of_the_one_for_whom_most_bytes_wait(serve, many, few):
    """Not of the one that has most connections; and of his it is the largest."""
    server = serve("tcp", waiting_bytes=20_000_000)
    kept = [slow_reader(server, many[0], 8_000_000, *many[1:]), slow_reader(server, few[0], 6_000_000, *few[1:])]
    for client in kept:
        assert client.recv(1)
    idle = [slow_reader(server, many[0], 1, *many[1:]) for _ in range(20)]
    crowd = [slow_reader(server, few[0], 8_000_000, *few[1:]) for _ in range(6)]
    for client in idle + crowd:
        assert client.recv(1)
    for client, left in zip(kept, (8_000_000, 6_000_000)):
        left -= len(read_until(client, b"\r\n\r\n").split(b"\r\n\r\n")[1])
        while left > 0:
            part = client.recv(1 << 20)
            assert part, f"it was cut {left} bytes before its end"
            left -= len(part)
    close_all(kept + idle + crowd)


def test_bodies_of_one_peer_leave_room_for_those_of_others(serve):
    server = serve("tcp", body_bytes=100_000, held_bytes=400_000)
    crowd = [from_address(server, "127.0.0.1") for _ in range(4)]
    for client in crowd:
        client.sendall(POST.format("/echo", 90_001).encode() + b"u" * 90_000)
    # Which of them stays is the network's affair.
    waiting, refused = set(crowd), 0
    while refused < 3:
        for client in select.select(waiting, [], [], 10 * PATIENCE)[0]:
            assert status(read_until(client, b"\r\n\r\n")) == 503
            waiting.discard(client)
            refused += 1
    # Of another address, or with a key.
    for address, line in (("127.0.0.2", "\r\n\r\n"), ("127.0.0.1", "\r\nX-Owner: b\r\n\r\n")):
        with from_address(server, address) as other:
            other.sendall(POST.format("/echo", 90_000).replace("\r\n\r\n", line).encode() + b"v" * 90_000)
            assert status(read_until(other, b"\r\n\r\n")) == 200
    close_all(crowd)


# ---- who is no more ----

@pytest.mark.parametrize("target", ["/stream?count=1000000000", "/pipe?bytes=1000000000"])
def test_a_client_that_vanishes_in_mid_stream(serve, target):
    """No end comes, no reset, no acknowledgement."""
    server = serve("unix", tcp=1, silent_ms=1000)
    client = socket.create_connection(("127.0.0.1", server.port), 10)
    client.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    client.recv(1000)
    vanish(client)
    server.until("gone", 1, limit=30 * PATIENCE)
    server.until("live", 0)
    client.close()


def test_a_websocket_that_vanishes(serve):
    server = serve("unix", tcp=1, ping_ms=200, pong_ms=500)
    client = socket.create_connection(("127.0.0.1", server.port), 10)
    client.sendall(b"GET /talk HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                   b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    assert status(read_until(client, b"\r\n\r\n")) == 101
    vanish(client)
    server.until("closed", 1, limit=30 * PATIENCE)
    assert server.stats()["code"] == 1006
    client.close()


def test_a_client_that_only_does_not_read_is_left_alone(serve):
    server = serve("unix", tcp=1, silent_ms=300)
    client = socket.create_connection(("127.0.0.1", server.port), 10)
    client.sendall(b"GET /stream?count=20000000 HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(3)
    assert server.stats()["gone"] == 0
    total = 0
    while total < 20_000_000:
        total += len(client.recv(1 << 20))
    client.close()


# ---- uploads ----

def test_a_body_that_is_held_back_is_not_late(serve):
    """The time is the client's, and not that in which nobody wants its bytes."""
    server = serve("unix", clock=True, body_ms=60_000)
    for framing in ("Content-Length: 2000000", "Transfer-Encoding: chunked"):
        client = server.connect()
        chunk = b"" if "Length" in framing else b"1e8480\r\n"
        client.sendall(f"POST /upload?hold=100000 HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n".encode())
        left = chunk + b"u" * 2_000_000 + (b"\r\n0\r\n\r\n" if chunk else b"")
        began = server.clock.seconds
        while not select.select([client], [], [], 0)[0]:
            assert server.clock.seconds < began + 10_000
            left = left[send_some(client, left):]
            server.advance(25)
        client.settimeout(10 * PATIENCE)
        assert not left and read_until(client, b"2000000") and server.clock.seconds >= began + 100
        client.close()


def test_a_body_with_pauses_is_taken_and_one_that_stops_is_not(serve):
    server = serve("unix", clock=True, body_ms=600_000)
    client = server.connect()
    client.sendall(POST.format("/upload", 8).encode())
    server.until("live", 1)
    for count in range(1, 9):
        server.advance(500)
        client.sendall(b"u")
        server.until("taken", count)
    assert read_until(client, b"\r\n\r\n8")
    client.sendall(POST.format("/upload", 8).encode() + b"u")
    server.until("taken", 9)
    server.advance(500)
    assert server.stats()["live"] == 1
    server.advance(110)
    assert read_all(client) == b""
    server.until("gone", 1)
    client.close()


def test_parts_of_a_large_body_are_large(server):
    """65536 at least where so much is there: /upload tells how many parts there were. It is not there where the
    client is kept from the CPU, hence the tries."""
    body = b"u" * 20_000_000
    most = len(body) // 65536
    tries = []
    while len(tries) < 5 and min(tries, default=most) >= most:
        client = server.connect()
        client.sendall(POST.format("/upload?parts=1", len(body)).encode())
        # Nothing is answered before all of it is there, and a TLS connection of Python is one thread's at a time.
        client.sendall(body)
        answer = read_until(client, b" parts")
        tries.append(int(answer.split(b"\r\n\r\n")[1].split()[0]))
        client.close()
    assert min(tries) < most, tries
