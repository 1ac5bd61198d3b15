"""WebSocket: by two clients that others wrote, and frame by frame what RFC 6455 asks of a server."""
import asyncio
import base64
import contextlib
import hashlib
import os
import signal
import socket
import ssl
import struct
import time

import pytest
import websockets
import wsproto
import wsproto.events
from clients import HELLO, PATIENCE, on_unix, read_all, read_until, status
from frames import BINARY, CLOSE, PING, PONG, TEXT, Frames, frame

KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def handshake(target="/talk", drop="", **fields):
    names = {"Host": "x", "Upgrade": "websocket", "Connection": "Upgrade",
             "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": KEY}
    names.update({name.replace("_", "-"): value for name, value in fields.items()})
    lines = [f"{name}: {value}" for name, value in names.items() if name != drop]
    return "\r\n".join([f"GET {target} HTTP/1.1", *lines, "", ""]).encode()


class Client(Frames):
    """Frames, with nothing that would mend them."""

    def __init__(self, server, target="/talk", ahead=b"", **fields):
        self.socket = server.connect()
        self.socket.sendall(handshake(target, **fields) + ahead)
        self.data = read_until(self.socket, b"\r\n\r\n")
        self.head, self.data = self.data.split(b"\r\n\r\n", 1)
        assert status(self.head) == 101, self.head

    def send(self, *frames):
        self.socket.sendall(b"".join(frames))

    def closing(self):
        """The code of the server's closing frame, after which it closes."""
        opcode, data = self.frame()
        assert opcode == CLOSE, (opcode, data)
        assert self.data + read_all(self.socket) == b""
        return int.from_bytes(data[:2], "big") if data else 1005

    def close(self):
        self.socket.close()


@pytest.fixture
def talk(server):
    clients = []

    def start(target="/talk", ahead=b"", **fields):
        clients.append(Client(server, target, ahead, **fields))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


# ---- the handshake ----

def test_the_handshake(server, talk):
    head = talk().head.decode()
    proof = base64.b64encode(hashlib.sha1(
        f"{KEY}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()
    assert head.startswith("HTTP/1.1 101 Switching Protocols\r\n")
    lines = head.split("\r\n")
    for line in (f"Sec-WebSocket-Accept: {proof}", "Upgrade: websocket", "Connection: Upgrade",
                 "X-Extra: there"):
        assert lines.count(line) == 1
    assert "close" not in head and "Content-Length" not in head and "Extensions" not in head


def answered(server, data):
    """The header of the answer to a handshake."""
    with server.connect() as client:
        client.sendall(data)
        return read_until(client, b"\r\n\r\n")


@on_unix
def test_handshakes_that_are_right(server):
    for fields in ({"Upgrade": "h2c, WebSocket"}, {"Connection": "keep-alive, UPGRADE"},
                   {"Connection": "keep-alive,Upgrade"},
                   {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}):
        assert status(answered(server, handshake(**fields))) == 101, fields


WRONG_HANDSHAKES = [
    {"drop": "Upgrade"}, {"drop": "Connection"}, {"drop": "Sec-WebSocket-Version"},
    {"drop": "Sec-WebSocket-Key"}, {"drop": "Host"},
    {"Upgrade": "websockets"}, {"Connection": "Upgraded"}, {"Sec-WebSocket-Version": "8"},
    {"Sec-WebSocket-Version": "13, 8"}, {"Sec-WebSocket-Key": "dGhlIHNhbXBsZQ=="},
    {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZ==="}, {"Sec-WebSocket-Key": "!" * 22 + "=="},
    {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZR=="}, {"Content-Length": "5"}]


@on_unix
def test_handshakes_that_are_not(server):
    for fields in WRONG_HANDSHAKES:
        head = answered(server, handshake(**fields))
        assert status(head) in (400, 413), fields
        assert "Sec-WebSocket-Version" not in fields or b"Sec-WebSocket-Version: 13\r\n" in head, fields
        server.until("live", 0)


@on_unix
def test_only_a_get_of_http_1_1(server):
    for line in (b"POST /talk HTTP/1.1", b"GET /talk HTTP/1.0", b"HEAD /talk HTTP/1.1"):
        head = answered(server, handshake().replace(b"GET /talk HTTP/1.1", line))
        assert status(head) in (400, 405), line


@on_unix
def test_the_protocol_is_one_that_was_offered(server):
    for offered, code in (("tty", 101), ("a, tty", 101), ("ttyx", 400), (None, 400)):
        fields = {"Sec-WebSocket-Protocol": offered} if offered else {}
        head = answered(server, handshake("/talk?protocol=tty", **fields))
        assert status(head) == code
        assert (b"Sec-WebSocket-Protocol: tty\r\n" in head) == (code == 101)


def test_what_is_sent_ahead_of_the_answer_is_read(talk):
    client = talk(ahead=frame(TEXT, b"early") + frame(BINARY, b"bird"))
    assert client.frame() == (TEXT, b"early")
    assert client.frame() == (BINARY, b"bird")


# ---- messages ----

def test_messages_of_each_form_of_length(talk):
    client = talk()
    for size in (0, 1, 125, 126, 127, 65535, 65536, 65537, 1 << 20):
        for opcode, data in ((TEXT, b"*" * size), (BINARY, os.urandom(size))):
            client.send(frame(opcode, data))
            assert client.frame() == (opcode, data)


def test_a_message_in_however_many_pieces(talk):
    client = talk()
    data = frame(TEXT, b"one ", False) + frame(PING, b"within") + frame(0, b"", False) + \
        frame(0, "zwö".encode(), False) + frame(PONG, b"unasked") + frame(0, b"")
    for step in (len(data), 1, 2, 3, 7):
        for at in range(0, len(data), step):
            client.send(data[at:at + step])
            if step < 3:
                time.sleep(0.0005)
        assert client.frame() == (PONG, b"within")
        assert client.frame() == (TEXT, "one zwö".encode())


@on_unix
def test_a_character_may_lie_in_two_frames(talk):
    client = talk()
    data = "κόσμε€😀".encode()
    client.send(*(frame(0 if i else TEXT, data[i:i + 1], False) for i in range(len(data))),
                frame(0, b""))
    assert client.frame() == (TEXT, data)


def test_pings_are_answered_with_what_they_bring(talk):
    client = talk()
    for data in (b"", b"hello", b"\x00\xff\xfe" * 41):
        client.send(frame(PING, data))
        assert client.frame() == (PONG, data)
    client.send(*(frame(PING, str(i).encode()) for i in range(10)))
    assert [client.frame() for _ in range(10)] == [(PONG, str(i).encode()) for i in range(10)]


BROKEN = {
    "a reserved bit": (frame(TEXT, b"x", reserved=4), 1002),
    "another one": (frame(TEXT, b"x", reserved=1), 1002),
    "a reserved bit of a ping": (frame(PING, b"", reserved=2), 1002),
    **{f"opcode {i}": (frame(i, b"x"), 1002) for i in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    "no mask": (frame(TEXT, b"x", masked=False), 1002),
    "a ping without mask": (frame(PING, b"x", masked=False), 1002),
    "a close without mask": (frame(CLOSE, b"\x03\xe8", masked=False), 1002),
    "a ping too large": (frame(PING, b"x" * 126), 1002),
    "a close too large": (frame(CLOSE, b"\x03\xe8" + b"x" * 124), 1002),
    "a ping in pieces": (frame(PING, b"x", False), 1002),
    "a continuation of nothing": (frame(0, b"x"), 1002),
    "a message within a message": (frame(TEXT, b"x", False) + frame(TEXT, b"y"), 1002),
    "a length in a longer form": (frame(TEXT, b"x", length=(2, 1)), 1002),
    "a length in the longest form": (frame(TEXT, b"x" * 126, length=(8, 126)), 1002),
    "a length of 64 bits": (frame(BINARY, b"x", length=(8, 1 << 63)), 1002),
    "far too long": (frame(BINARY, b"x", length=(8, (1 << 63) - 1)), 1009),
    "too long": (frame(BINARY, b"x", length=(8, (1 << 20) + 1)), 1009),
    "too long in two": (frame(BINARY, b"x", False) + frame(0, b"", length=(8, 1 << 20)), 1009),
    "no UTF-8": (frame(TEXT, b"\xce\xba\xed\xa0\x80"), 1007),
    "half a character": (frame(TEXT, b"\xce", False) + frame(0, b""), 1007),
    "an overlong form": (frame(TEXT, b"\xc0\xaf"), 1007),
    "beyond Unicode": (frame(TEXT, b"\xf4\x90\x80\x80"), 1007),
}


def ends_with(server, client, data, code):
    """The client hears the code, and so does the handler."""
    closed = server.stats()["closed"]
    client.send(data)
    assert client.closing() == code, data
    server.until("closed", closed + 1)
    assert server.stats()["code"] == code, data
    server.until("live", 0)


@on_unix
def test_what_must_end_it(server, talk):
    for data, code in BROKEN.values():
        ends_with(server, talk(), data, code)


def test_what_must_end_it_does_so_on_each_transport(server, talk):
    ends_with(server, talk(), *BROKEN["no mask"])


# ---- closing ----

@on_unix
def test_the_clients_code_is_sent_back(server, talk):
    for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999):
        ends_with(server, talk(), frame(CLOSE, struct.pack(">H", code) + "tschüß".encode()), code)


@on_unix
def test_codes_that_must_not_be_sent(server, talk):
    for code in (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535):
        ends_with(server, talk(), frame(CLOSE, struct.pack(">H", code)), 1002)


@on_unix
def test_closing_frames_of_odd_form(server, talk):
    for data, code in ((b"", 1005), (b"\x03", 1002), (b"\x03\xe8\xff", 1007),
                       (b"\x03\xe8" + b"r" * 123, 1000)):
        ends_with(server, talk(), frame(CLOSE, data), code)


def test_nothing_after_a_close_is_taken(server, talk):
    client = talk()
    client.send(frame(TEXT, b"before"), frame(CLOSE, b"\x03\xe8"), frame(TEXT, b"after"),
                frame(PING, b"after"))
    assert client.frame() == (TEXT, b"before")
    assert client.closing() == 1000
    assert server.stats()["closed"] == 1


def test_the_server_closes(server, talk):
    client = talk()
    client.send(frame(TEXT, b"close 4321 enough"))
    assert client.frame() == (CLOSE, struct.pack(">H", 4321) + b"enough")
    # What still comes is read up to the answer, and not heard.
    client.send(frame(TEXT, b"close 1000"), frame(PING, b"?"), frame(CLOSE, struct.pack(">H", 4321)))
    assert read_all(client.socket) == b""
    server.until("live", 0)
    assert server.stats()["code"] == 4321


@on_unix
def test_the_servers_frame_is_right_whatever_it_is_asked(talk):
    for asked, said in (("close 5 x", 1011), ("close 1000 " + "ä" * 100, 1000), ("close 1000", 1000)):
        client = talk()
        client.send(frame(TEXT, asked.encode()))
        opcode, data = client.frame()
        assert opcode == CLOSE and int.from_bytes(data[:2], "big") == said and len(data) <= 125
        assert data[2:].decode() in asked


def test_a_client_that_does_not_close_is_cut(serve):
    server = serve("unix", pong_ms=300)
    client = Client(server)
    client.send(frame(TEXT, b"close 1000 now"))
    client.frame()
    assert read_all(client.socket) == b""
    client.close()
    server.until("live", 0)
    assert server.stats()["code"] == 1006


def test_a_client_that_leaves(server, talk):
    for target in ("/talk", "/talk?hold=60000"):
        before = server.stats()["closed"]
        client = talk(target)
        client.send(frame(TEXT, b"x"))
        assert client.frame() == (TEXT, b"x")
        client.close()
        server.until("closed", before + 1)
        assert server.stats()["code"] == 1006
    server.until("live", 0)


def test_a_close_right_before_the_end_is_heard(server, talk):
    client = talk()
    client.send(*(frame(TEXT, b"x") for _ in range(2000)), frame(CLOSE, b"\x0f\xa0"))
    client.socket.shutdown(socket.SHUT_WR)
    server.until("closed", 1)
    assert server.stats()["code"] == 4000


def test_the_handler_cuts_it(server, talk):
    client = talk()
    client.send(frame(TEXT, b"abort"))
    assert read_all(client.socket) == b""
    server.until("closed", 1)
    assert server.stats()["code"] == 1006


def test_draining_says_going_away(serve):
    server = serve("unix")
    client = Client(server)
    server.get("/drain?ms=5000", "POST")
    assert client.frame() == (CLOSE, b"\x03\xe9the server is shutting down")
    client.send(frame(CLOSE, b"\x03\xe9"))
    assert read_all(client.socket) == b""
    client.close()
    assert server.ended() == b"drained\n"


def test_stopping_within_a_message(serve):
    server = serve("unix")
    clients = [Client(server) for _ in range(3)]
    clients[0].send(frame(TEXT, b"stop"), frame(TEXT, b"more"))
    for client in clients:
        assert read_all(client.socket) == b""
        client.close()
    server.ended()


# ---- who does not read, does not answer, or does too much ----

def test_what_waits_has_a_limit(serve):
    server = serve("unix", backlog_bytes=200_000)
    client = Client(server, "/source?count=100&size=60000")
    assert 200_000 < server.still()["waiting"] < 200_000 + 60_100
    for _ in range(100):
        assert client.frame() == (BINARY, b"s" * 60_000)
    assert client.frame() == (CLOSE, b"\x03\xe8that was all")
    assert server.stats()["waiting"] < 200_000 + 60_100, "nor did more wait when it read"
    client.close()
    careless = Client(server, "/source?count=1000&size=60000&careless=1")
    server.until("live", 0)
    assert server.stats()["code"] == 1006
    careless.close()


def test_what_is_said_again_is_held_back_when_nobody_reads(serve):
    """The client's own messages wait in its kernel, and none is lost."""
    server = serve("unix", backlog_bytes=100_000)
    client = Client(server)
    client.socket.settimeout(0.3)
    data = frame(BINARY, b"m" * 50_000)
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 10_000:
            part = data
            while part:
                part = part[client.socket.send(part):]
            sent += 1
    assert sent < 100
    client.socket.settimeout(10 * PATIENCE)
    for _ in range(sent):
        assert client.frame() == (BINARY, b"m" * 50_000)
    client.close()


def test_held_messages_wait(server, talk):
    client = talk("/talk?hold=20")
    started = time.monotonic()
    client.send(*(frame(TEXT, str(i).encode()) for i in range(10)))
    assert [client.frame()[1] for _ in range(10)] == [str(i).encode() for i in range(10)]
    assert time.monotonic() - started > 9 * 0.02


def test_of_pings_that_come_at_once_the_newest_is_answered(serve):
    server = serve()
    client = Client(server)
    server.process.send_signal(signal.SIGSTOP)
    client.send(*(frame(PING, b"%d" % number) for number in range(200)))
    server.process.send_signal(signal.SIGCONT)
    pongs = 1
    while client.frame() != (PONG, b"199"):
        pongs += 1
    assert pongs < 40
    client.close()


def test_frames_of_one_owner_take_turns(serve):
    server = serve(turn_us=1)
    clients = [Client(server, X_Owner="a") for _ in range(60)]
    messages = frame(TEXT, b"m") * 1000
    assert server.flooded([client.socket for client in clients], messages) < 60 * len(messages) / 4
    for client in clients:
        assert all(client.frame() == (TEXT, b"m") for _ in range(1000))
        client.close()


def test_pings_for_ever_fill_no_memory(server, talk):
    before = server.memory()
    client = talk()
    client.socket.settimeout(0.3)
    pings = frame(PING, b"p" * 125) * 1000
    sent = 0
    try:
        while sent < 200_000_000:
            sent += client.socket.send(pings)
            if sent > 20_000_000:
                break
    except TimeoutError:
        pass
    assert server.memory() - before < 20_000_000
    client.close()
    server.until("live", 0)


def test_a_message_costs_what_has_come_of_it(server, talk):
    before = server.memory()
    clients = [talk("/talk?message_bytes=100000000") for _ in range(20)]
    for client in clients:
        client.send(frame(BINARY, b"x", length=(8, 90_000_000)))
        client.send(frame(BINARY, b"x"))
    # Single bytes in frames of their own.
    piece = frame(0, b"y", False) * 1000
    other = talk()
    other.send(frame(TEXT, b"y", False))
    for _ in range(200):
        other.send(piece)
    other.send(frame(0, b"y"))
    assert other.frame() == (TEXT, b"y" * 200_002)
    assert server.memory() - before < 20_000_000


def test_messages_of_one_owner_leave_room_for_those_of_others(serve):
    """A quarter is one owner's. The address is the same, as behind a proxy."""
    server = serve("tcp", body_bytes=100_000, held_bytes=400_000)
    first, second, third, other = (Client(server, X_Owner=owner) for owner in "aaab")
    part = frame(BINARY, b"m" * 90_000, False)
    first.send(part)
    server.until("held", 90_000)
    second.send(part)
    assert second.frame() == (CLOSE, b"\x03\xf5the messages of other connections take all the room for them; "
                              b"send it again")
    assert read_all(second.socket) == b""
    other.send(part)
    server.until("held", 180_000)
    for client in (first, other):
        client.send(frame(0, b"!"))
        assert client.frame() == (BINARY, b"m" * 90_000 + b"!")
    server.until("held", 0)
    # Nothing stays charged, of a client that goes either.
    third.send(part)
    server.until("held", 90_000)
    third.socket.close()
    server.until("held", 0)
    for client in (first, second, other):
        client.close()


def test_many_owners_do_not_take_all_the_room_for_messages(serve):
    """Each has a quarter, and no more than is left for all others; but each has one."""
    server = serve("tcp", body_bytes=20_000, held_bytes=400_000)
    clients, held = [], 0
    for owner, fit in (*zip("abcd", (5, 5, 5, 3)), *((owner, 1) for owner in "ef")):
        for _ in range(fit):
            clients.append(Client(server, X_Owner=owner))
            clients[-1].send(frame(BINARY, b"m" * 19_000, False))
            held += 19_000
            server.until("held", held)
        if fit > 1:
            with contextlib.closing(Client(server, X_Owner=owner)) as one_more:
                one_more.send(frame(BINARY, b"m" * 19_000, False))
                assert one_more.frame()[0] == CLOSE
    for client in clients:
        client.close()


def test_a_message_counts_until_the_next_is_taken(serve):
    server = serve("unix", body_bytes=100_000, held_bytes=400_000)
    client = Client(server, "/talk?hold=300000", X_Owner="a")
    client.send(frame(BINARY, b"m" * 90_000))
    assert client.frame() == (BINARY, b"m" * 90_000)
    assert server.stats()["held"] == 90_000
    client.close()
    server.until("held", 0)


def test_a_message_that_was_taken_costs_nothing(serve):
    server = serve("unix", lean=True)
    before = server.memory()
    clients = [Client(server) for _ in range(40)]
    for client in clients:
        client.send(frame(BINARY, b"m" * 1_000_000))
        assert client.frame() == (BINARY, b"m" * 1_000_000)
    assert server.memory() - before < 20_000_000
    for client in clients:
        client.close()


def without_pings(client):
    while (frame_of := client.frame()) == (PING, b""):
        pass
    return frame_of


def test_a_message_is_whole_in_time(serve):
    server = serve("unix", clock=True, body_ms=600_000, ping_ms=250_000, pong_ms=2_000_000)
    client, quick = Client(server), Client(server)
    client.send(frame(TEXT, b"a", False))
    quick.send(frame(TEXT, b"a", False), frame(0, b"b"))
    assert quick.frame() == (TEXT, b"ab")
    server.still()
    for _ in range(2):
        server.advance(299)
        # That it goes on does not help.
        client.send(frame(0, b"b", False))
        assert server.still()["closed"] == 0
    server.advance(3)
    assert without_pings(client) == (CLOSE, b"\x03\xf0the message took too long to arrive")
    assert server.stats()["closed"] == 1
    client.close()
    quick.send(frame(TEXT, b"c"))
    assert without_pings(quick) == (TEXT, b"c")
    quick.close()


def test_who_answers_no_ping_is_gone(serve):
    server = serve("tcp", clock=True, ping_ms=250_000, pong_ms=600_000)
    lively, mute = Client(server), Client(server)

    def asked():
        server.advance(250)
        assert lively.frame() == (PING, b"")
        lively.send(frame(PONG))
        return server.still()["closed"]

    # Asked at 250 s, and cut within a ping of the 600 s that it has for the answer.
    assert [asked() for _ in range(3)] == [0, 0, 0]
    while asked() == 0:
        assert server.clock.seconds <= 250 + 600 + 250
    assert mute.frame() == (PING, b"") and server.stats()["code"] == 1006
    for _ in range(5):
        asked()
    assert server.stats()["live"] == 1
    lively.close()
    mute.close()


def test_a_flood_of_messages_leaves_room_for_others(server, talk):
    client = talk()
    client.socket.settimeout(None)
    flood = frame(TEXT, b"") * 100_000
    client.socket.setblocking(False)
    for _ in range(50):
        try:
            client.socket.send(flood)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            try:
                client.socket.recv(1 << 20)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
        assert server.get("/hello")[1] == b"hello\n"


# ---- clients that others wrote ----

def address(server):
    if server.path:
        return websockets.unix_connect
    return lambda path, uri, **more: websockets.connect(uri.replace("//x/", f"//127.0.0.1:{path}/"), **more)


def test_the_websockets_package(clear_server):
    server = clear_server
    async def use():
        connect = address(server)
        async with connect(server.path or server.port, "ws://x/talk", max_size=None) as client:
            assert client.extensions == []
            for message in ("", "text", "ü" * 10_000, b"", os.urandom(100_000), os.urandom(1 << 20)):
                await client.send(message)
                assert await client.recv() == message
            await client.send(iter(["in ", "many ", "pieces"]))
            assert await client.recv() == "in many pieces"
            await asyncio.wait_for(await client.ping(b"there?"), 10)
            await client.close(4000, "done")
        async with connect(server.path or server.port, "ws://x/talk") as client:
            await client.send("close 4001 you")
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await client.recv()
            assert closed.value.rcvd.code == 4001 and closed.value.rcvd.reason == "you"

    asyncio.run(use())
    server.until("closed", 2)
    assert server.stats()["code"] == 4001


def test_the_wsproto_package(server):
    client = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
    received, accepted, answered = b"", False, False
    with server.connect() as channel:
        channel.sendall(client.send(wsproto.events.Request(host="x", target="/talk")))
        while client.state is not wsproto.connection.ConnectionState.CLOSED:
            client.receive_data(channel.recv(65536) or None)
            for event in client.events():
                if isinstance(event, wsproto.events.AcceptConnection):
                    accepted = True
                    channel.sendall(client.send(wsproto.events.BytesMessage(b"\0" * 70_000)))
                elif isinstance(event, wsproto.events.BytesMessage):
                    received += event.data
                    if event.message_finished:
                        channel.sendall(client.send(wsproto.events.Ping(b"p")))
                elif isinstance(event, wsproto.events.Pong):
                    answered = True
                    channel.sendall(client.send(wsproto.events.CloseConnection(1000, "bye")))
                elif isinstance(event, wsproto.events.CloseConnection):
                    assert event.code == 1000
    assert accepted and answered and received == b"\0" * 70_000


def test_many_at_once(serve):
    server = serve("unix")

    async def use():
        clients = [await websockets.unix_connect(server.path, "ws://x/talk") for _ in range(100)]
        for turn in range(3):
            await asyncio.gather(*(client.send(f"{turn} {i}") for i, client in enumerate(clients)))
            assert await asyncio.gather(*(client.recv() for client in clients)) == \
                [f"{turn} {i}" for i in range(100)]
        await asyncio.gather(*(client.close() for client in clients))

    asyncio.run(use())
    server.until("closed", 100)
    assert server.raw(HELLO.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")).endswith(b"hello\n")
