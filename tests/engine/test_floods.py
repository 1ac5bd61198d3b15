"""More than anybody needs, through the API: archives without end, connections that say little, readers that
take nothing. Each ends in a clear error, or holds up nobody but who does it."""
import contextlib
import fcntl
import http.client
import io
import os
import re
import select
import signal
import socket
import statistics
import tarfile
import threading
import time
import urllib.parse

import pytest

import harness
import serving
from files import Files
from sandboxes import made, new_key, parent_of, printed, start

MIB = 1 << 20
SMALL = {"disk_bytes": 64 * MIB, "memory_bytes": 256 * MIB}


nothing_left, serve, api = serving.one_for_all(clock=True)


@contextlib.contextmanager
def sandbox(serve, **more):
    with made(serve, **more) as path, serve.client() as client:
        yield Files(client, path)


def rss(serve):
    with open(f"/proc/{serve.engine_pid()}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))


class Neighbour:
    """Another sandbox's client, who asks all the time while a block of code runs."""

    def __init__(self, serve):
        self.serve = serve
        self.stop = threading.Event()
        self.calls, self.took, self.failure = 0, [], None
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        try:
            with sandbox(self.serve) as files:
                while not self.stop.is_set() or self.calls < 3:
                    started = time.monotonic()
                    assert files.put("/tmp/file", b"1" * 1000).status == 200
                    assert files.get("/tmp/file").bytes == b"1" * 1000
                    self.took.append(time.monotonic() - started)
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
        assert max(self.took) < 20 * harness.PATIENCE and statistics.median(self.took) < harness.PATIENCE, self.took


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
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
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


# ---- readers that take nothing -----------------------------------------------------------------

LARGE = "/tmp/large"
ROOMY = {"memory_bytes": 512 * MIB, "disk_bytes": 256 * MIB}


def slow(client, route, **query):
    """A download of which nothing is taken but its head."""
    client.send("GET", route, query=query or None)
    response = client.connection.getresponse()
    return response.status, response


def is_cut(response):
    """Whether it ends before it has gone on for longer than what lies in any buffer."""
    try:
        return len(response.read(64 * MIB)) < 64 * MIB
    except (http.client.IncompleteRead, ConnectionError):
        return True


def pipes_of(serve):
    """The sizes of the engine's pipes, as root sees them."""
    sizes = {}
    base = f"/proc/{serve.engine_pid()}/fd"
    for name in os.listdir(base):
        with contextlib.suppress(OSError):
            link = os.readlink(f"{base}/{name}")
            if link.startswith("pipe:") and link not in sizes:
                fd = os.open(f"{base}/{name}", os.O_RDONLY | os.O_NONBLOCK)
                sizes[link] = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
                os.close(fd)
    return list(sizes.values())


@pytest.fixture
def crowded(serve):
    """A sandbox with a large file, and its readers, who are let go at the end."""
    with sandbox(serve, resources=ROOMY) as files, contextlib.ExitStack() as readers:
        files.run(f"truncate -s 4G {LARGE}")
        yield files, readers


def test_slow_readers_lose_their_places_to_who_needs_them(serve, crowded):
    files, readers = crowded
    before, began = rss(serve), time.monotonic()
    url = files.client.post(f"{files.path}/urls", {"method": "GET", "path": LARGE}).json["url"]
    url = url[url.index("/v1/"):]
    urls = [slow(readers.enter_context(serve.tcp()), url) for _ in range(16)]
    assert {status for status, _ in urls} == {200}
    # The others have taken something after the first one's last.
    assert {len(response.read(2 * MIB)) for _, response in urls[1:]} == {2 * MIB}
    with serve.tcp() as anybody:
        answer = anybody.get(url)
        assert answer.status == 503 and answer.code == "capacity" and "share" in answer.json["detail"], answer
    assert files.stat("/tmp").status == 200, "the owner has the rest"
    own = [slow(readers.enter_context(serve.client()), f"{files.path}/files", path=LARGE)
           for _ in range(48)]
    assert {status for status, _ in own} == {200}
    drip = own[0][1]
    # To open them may have taken as long as one may take nothing.
    assert time.monotonic() - began > 9 or files.stat("/tmp").code == "capacity"
    stop, taken = threading.Event(), threading.Semaphore(0)

    def drips():
        while not stop.wait(0.05):
            assert len(drip.read(65536)) == 65536
            taken.release()
        return True

    def others():
        """Another tenant's, and the same one's in another sandbox, while all places are taken."""
        key = new_key(operator, tenant="other")
        for client in (serve.tcp(key["secret"]), serve.client()):
            with client:
                box = client.post("/v1/sandboxes", {"disk_kind": "ephemeral", "resources": ROOMY})
                theirs = Files(client, box.headers["Location"])
                theirs.run(f"truncate -s 200M {LARGE}")
                assert len(theirs.get(LARGE).bytes) == 200 * MIB
                assert theirs.put("/tmp/up", bytes(20 * MIB)).status == 200
                assert client.delete(theirs.path).status == 204
        return True

    def has_place():
        """After a second in which one of them has taken something."""
        while taken.acquire(blocking=False):
            pass
        assert taken.acquire(timeout=60 * harness.PATIENCE)
        return files.stat("/tmp").status == 200

    def owner():
        try:
            assert others()
            serve.clock.until(has_place, 20, "a place")
            assert len(files.get(LARGE, headers={"Range": "bytes=0-9999999"}).bytes) == 10000000
            assert files.put("/tmp/file", b"1").status == 200
            return True
        finally:
            stop.set()

    with serve.client() as operator:
        assert serving.at_once(drips, owner, seconds=90) == [True] * 2
    assert rss(serve) < before + 32 * MIB
    sizes = pipes_of(serve)
    assert sum(size >= MIB for size in sizes) <= 16 and sum(sizes) < 48 * MIB, sorted(sizes)
    assert len(drip.read(65536)) == 65536, "who takes a little at a time keeps his place"
    with serve.tcp() as anybody:
        status, _ = slow(anybody, url)
        assert status == 200, "the one that went was of those by the URL"
    cut = [is_cut(response) for _, response in urls]
    assert 1 <= sum(cut) <= 5 and cut[0], "those who had waited longest"


def test_watches_that_nobody_reads_go_first(serve, crowded):
    files, readers = crowded
    for _ in range(4):
        with serve.client() as client:
            client.send("GET", f"{files.path}/files/watch", query={"path": "/tmp"})
            assert client.connection.getresponse().readline()
    for _ in range(60):
        status, _ = slow(readers.enter_context(serve.client()), f"{files.path}/files", path=LARGE)
        assert status == 200
    for _ in range(3):  # and what is asked then needs no more than one place
        assert files.stat("/tmp").status == 200


def test_uploads_of_which_nothing_comes_give_way(serve, crowded):
    files, readers = crowded
    uploads = []

    def answered(seconds):
        sockets = [client.connection.sock for client in uploads]
        ready = select.select(sockets, [], [], seconds)[0]
        return [client for client in uploads if client.connection.sock in ready]

    # Until there is no place: then one of them is told so at once, not always the last.
    while not answered(1 if len(uploads) >= 64 else 0):
        assert len(uploads) < 80
        client = readers.enter_context(serve.client())
        query = urllib.parse.urlencode({"path": f"/tmp/up{len(uploads)}"})
        client.connection.putrequest("PUT", f"{files.path}/files?{query}")
        client.connection.putheader("Content-Length", "1000000")
        client.connection.endheaders()
        client.connection.send(b"x" * 1000)
        uploads.append(client)
    assert len(uploads) >= 64, [client.receive() for client in answered(0)]
    gone = []

    def has_given_way():
        for client in answered(0):
            answer = client.receive()
            assert answer.status == 503 and answer.code == "capacity", answer
            uploads.remove(client)
            gone.append(answer)
        return any("others needed the place" in answer.json["detail"] for answer in gone)

    serve.clock.until(lambda: files.stat("/tmp").status == 200, 20, "a place")
    harness.wait_for(has_given_way, 10 * harness.PATIENCE, "an upload that gave way")
    assert len(uploads) >= 60, "and few others did"
    for client in uploads:
        client.close()
    harness.wait_for(lambda: files.tools() == 0, 30 * harness.PATIENCE, "the end of the tools")
    assert files.run("ls -A /tmp").split() == ["large"], "nothing is left of what was not whole"


# ---- watches of what changes much --------------------------------------------------------------

def rounds_above(client, seconds):
    """Rounds of the engine's loop that took more CPU."""
    found = dict(re.findall(r'cove_loop_turn_cpu_seconds_bucket\{le="([^"]+)"\} (\d+)', client.get("/metrics").bytes.decode()))
    return int(found["+Inf"]) - int(found[seconds])


def test_watches_of_a_busy_directory_take_turns(serve, api):
    """Their tools have told of more than a round may take when the engine looks."""
    with contextlib.ExitStack() as stack:
        boxes = [stack.enter_context(made(serve)) for _ in range(2)]
        for box in boxes:
            printed(api, box, "mkdir /tmp/w; cd /tmp/w; seq 400 | xargs touch")
        watches = [serving.Lines(stack.enter_context(serve.client()), f"{box}/files/watch", {"path": "/tmp/w"})
                   for _ in range(60) for box in boxes]
        for watch in watches:
            assert next(watch)["type"] == "watching"
        before = rounds_above(api, "0.005")
        for number, box in enumerate(boxes):
            start(api, box, f"cd /tmp/w; sleep 0.2; seq 400 | xargs touch; seq 400 | xargs chmod 600; exec sleep 1234.{number}")
        engine = serve.engine_pid()
        os.kill(engine, signal.SIGSTOP)
        try:
            harness.wait_for(lambda: parent_of(serve, b"1234.0") and parent_of(serve, b"1234.1"), what="the end of the changes")
        finally:
            os.kill(engine, signal.SIGCONT)
        for watch in watches:
            for _ in range(400):
                next(watch)
        assert rounds_above(api, "0.005") == before


def test_followers_that_come_at_once_take_turns(serve, api):
    with made(serve) as path, contextlib.ExitStack() as stack:
        process = start(api, path, "head -c 3000000 /dev/zero | tr '\\0' '\\1'; exec sleep 1000")
        harness.wait_for(lambda: api.get(process).json["stdout"]["bytes"] == 3000000, what="all that it prints")
        clients = [stack.enter_context(contextlib.closing(socket.socket(socket.AF_UNIX))) for _ in range(300)]
        for client in clients:
            client.connect(str(serve.socket))
        before = rounds_above(api, "0.0025")
        engine = serve.engine_pid()
        os.kill(engine, signal.SIGSTOP)
        try:
            for client in clients:
                client.sendall(f"GET {process}/follow HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        finally:
            os.kill(engine, signal.SIGCONT)
        for client in clients:
            assert client.recv(12) == b"HTTP/1.1 200"
        assert rounds_above(api, "0.0025") - before < 20
