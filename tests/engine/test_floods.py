"""More than anybody needs, through the API: archives without end, connections that say little, readers that
take nothing. Each ends in a clear error, or holds up nobody but who does it."""
import contextlib
import io
import pathlib
import select
import socket
import sys
import tarfile
import threading
import time
import urllib.parse

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "box"))
sys.path.insert(0, str(HERE))
import harness  # noqa: E402
import serving  # noqa: E402
from test_files import Files  # noqa: E402

MIB = 1 << 20
SMALL = {"disk_bytes": 64 * MIB, "memory_bytes": 256 * MIB}


@pytest.fixture(autouse=True)
def nothing_left():
    """One engine serves all tests of this file, so it is after the last that nothing may be left."""


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    with serving.Serve(tmp_path_factory.mktemp("serve")) as started:
        yield started


@pytest.fixture
def api(serve):
    with serve.client() as client:
        yield client


@contextlib.contextmanager
def sandbox(serve, **more):
    with serve.client() as client:
        answer = client.post("/v1/sandboxes", {"privileges": "plain", "disk_kind": "ephemeral", **more})
        assert answer.status == 201, answer
        yield Files(client, answer.headers["Location"])
        client.close()
        assert client.delete(answer.headers["Location"]).status == 204


def rss(serve):
    with open(f"/proc/{serve.engine_pid()}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))


class Neighbour:
    """Another sandbox's client, who asks all the time while a block of code runs."""

    def __init__(self, serve):
        self.serve = serve
        self.stop = threading.Event()
        self.calls, self.slowest, self.failure = 0, 0, None
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        try:
            with sandbox(self.serve) as files:
                while not self.stop.is_set() or self.calls < 3:
                    started = time.monotonic()
                    assert files.put("/tmp/file", b"1" * 1000).status == 200
                    assert files.get("/tmp/file").bytes == b"1" * 1000
                    self.slowest = max(self.slowest, time.monotonic() - started)
                    self.calls += 1
        except BaseException as failure:  # pylint: disable=broad-except
            self.failure = failure

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(60 * harness.PATIENCE)
        assert not self.thread.is_alive()
        assert self.failure is None, self.failure
        assert self.slowest < 5 * harness.PATIENCE, self.slowest


# ---- 17: archives ------------------------------------------------------------------------------

def pour(serve, path, query, pieces, length=None):
    """Sends until there is an answer: that, and how much was sent."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60 * harness.PATIENCE)
        connection.connect(str(serve.socket))
        how = f"Content-Length: {length}" if length else "Transfer-Encoding: chunked"
        connection.sendall(f"PUT {path}/tar?{urllib.parse.urlencode(query)} HTTP/1.1\r\n"
                           f"Host: localhost\r\n{how}\r\n\r\n".encode())
        sent = 0
        for piece in pieces:
            if select.select([connection], [], [], 0)[0]:
                break
            try:
                connection.sendall(piece if length else b"%x\r\n%s\r\n" % (len(piece), piece))
            except (BrokenPipeError, ConnectionResetError):
                break
            sent += len(piece)
        else:
            if not length:
                connection.sendall(b"0\r\n\r\n")
        said = b""
        with contextlib.suppress(ConnectionResetError):
            while b"\r\n\r\n" not in said or b"}" not in said:
                more = connection.recv(65536)
                if not more:
                    break
                said += more
    assert said.startswith(b"HTTP/1.1 "), said
    return int(said.split()[1]), said, sent


def head_of(name, size=0, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.USTAR_FORMAT)


def zeros(total):
    piece = bytes(4 * MIB)
    for _ in range(total // len(piece)):
        yield piece


BOMB = 10000 * MIB


def a_large_file():
    yield head_of("zeros", 8191 * MIB)
    yield from zeros(BOMB)


def many_entries():
    for first in range(0, 1000000, 1000):
        yield b"".join(head_of(f"d{first}/f{i}") for i in range(1000))
    yield bytes(1024)


def many_directories():
    for first in range(0, 1000000, 1000):
        yield b"".join(head_of(f"d{first}-{i}", kind=tarfile.DIRTYPE) for i in range(1000))
    yield bytes(1024)


def padding_without_end():
    yield head_of("file")
    yield from zeros(BOMB)


BURSTS = {
    "a large file": (a_large_file, BOMB + 512, 507, b"disk_full", 1024 * MIB),
    "many entries": (many_entries, None, 507, b"disk_full", 256 * MIB),
    "many directories": (many_directories, None, 507, b"disk_full", 256 * MIB),
    "padding without end": (padding_without_end, BOMB + 512, 422, b"bad_archive", 64 * MIB),
}


@pytest.mark.parametrize("pieces, length, status, code, most", BURSTS.values(), ids=BURSTS)
def test_an_archive_that_bursts_is_refused_and_nobody_else_feels_it(serve, pieces, length, status, code,
                                                                    most):
    before = rss(serve)
    with sandbox(serve, resources=SMALL) as files, Neighbour(serve) as neighbour:
        assert files.post("mkdir", path="/tmp/in").status == 200
        got, said, sent = pour(serve, files.path, {"path": "/tmp/in"}, pieces(), length)
        assert got == status and code in said, said
        assert sent < most, "it is refused early"
        harness.wait_for(lambda: neighbour.calls > 3, 20 * harness.PATIENCE, "the neighbour")
        files.client.close()
        assert files.stat("/tmp/in").status == 200
        assert files.post("remove", path="/tmp/in", recursive=True).status == 200
        assert files.put("/tmp/file", bytes(MIB)).status == 200
    assert rss(serve) < before + 24 * MIB


def test_an_archive_of_more_entries_than_anybody_has_is_refused(serve):
    """The same name again and again takes no room; all names beyond the bound would."""
    count = 1000000 if harness.SOAK else 0
    if not count:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("huge"), io.BytesIO())
        whole = bytearray(made.getvalue())
        head = tarfile.TarInfo("huge")
        head.size = (1 << 40) + 1
        whole[:512] = head.tobuf(tarfile.GNU_FORMAT)
        pieces = iter([bytes(whole)])
    else:
        pieces = iter([head_of("same") * 1000] * (count // 1000 + 1))
    with sandbox(serve) as files:
        assert files.post("mkdir", path="/tmp/in").status == 200
        status, said, _ = pour(serve, files.path, {"path": "/tmp/in"}, pieces)
        assert status == 422 and b"too_many_files" in said, said


# ---- 18: connections ---------------------------------------------------------------------------

KINDS = {
    "silent": b"",
    "half a head": b"GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-Half: ",
    "half a line": b"GET /healthz",
    "kept after one request": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an answer that is not read": b"GET /v1/openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4,
    "a body that does not come": b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n"
                                 b"Content-Length: 100000\r\n\r\n{",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("text", KINDS.values(), ids=KINDS)
def test_a_flood_of_connections_takes_the_port_and_nothing_else(serve, text):
    """Many at once, each kept as long as it lasts; the unix socket, and what runs, go on."""
    before = rss(serve)
    connections = []
    count = 2000 if harness.SOAK else 600
    try:
        with Neighbour(serve) as neighbour:
            for _ in range(count):
                connection = socket.socket()
                connection.setblocking(False)
                connection.connect_ex(("127.0.0.1", serve.port))
                connections.append(connection)
            ready = time.monotonic() + 1
            pending = {connection.fileno(): connection for connection in connections}
            while pending and time.monotonic() < ready:
                for fd in select_writable(pending):
                    with contextlib.suppress(OSError):
                        pending[fd].send(text)
                    del pending[fd]
            assert len(pending) < count / 2, "the port took most of them"
            calls = neighbour.calls
            harness.wait_for(lambda: neighbour.calls >= calls + 20, 30 * harness.PATIENCE,
                             "calls over the unix socket")
            assert rss(serve) < before + 64 * MIB
    finally:
        for connection in connections:
            connection.close()

    def port_answers():
        try:
            with serve.tcp(serve.key, timeout=5) as client:
                return client.get("/v1/sandboxes").status == 200
        except OSError:
            return False
    harness.wait_for(port_answers, 30 * harness.PATIENCE, "the port")


def select_writable(pending):
    poll = select.poll()
    for fd in pending:
        poll.register(fd, select.POLLOUT)
    return [fd for fd, _ in poll.poll(100)]


def test_who_has_a_key_is_served_over_tcp_while_others_fill_the_port(serve):
    """Connections that never say a whole request give way to one that does."""
    connections = []
    try:
        for _ in range(600):
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", serve.port))
            connections.append(connection)
        def served():
            try:
                with serve.tcp(serve.key, timeout=5) as client:
                    return client.get("/v1/sandboxes").status == 200
            except OSError:
                return False
        harness.wait_for(served, 30 * harness.PATIENCE, "a request with a key")
    finally:
        for connection in connections:
            connection.close()
