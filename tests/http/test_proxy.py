"""The reverse proxy: real servers behind it, and such as lie."""
import asyncio
import hashlib
import http.server
import json
import os
import socket
import threading
import time

import harness
import pytest
import websockets
from clients import PATIENCE, on_unix, read_all, read_until, status


class Behind:
    """A server whose every connection is one call of `talk`, with the socket."""

    def __init__(self, talk):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.talk, self.heads = talk, []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client:
            client.settimeout(10 * PATIENCE)
            try:
                self.talk(client)
            except OSError:
                pass

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # else the thread could accept what comes to the next socket of this number
        self.thread.join()
        self.listener.close()


@pytest.fixture
def behind():
    made = []

    def make(talk):
        made.append(Behind(talk))
        return made[-1]

    yield make
    for each in made:
        each.close()


def says(*parts):
    """Reads one header, sends these, closes."""
    heads = []

    def talk(client):
        heads.append(read_until(client, b"\r\n\r\n"))
        for part in parts:
            client.sendall(part)

    talk.heads = heads
    return talk


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


def lines(head):
    return head.decode().split("\r\n\r\n")[0].split("\r\n")


def test_what_is_asked_arrives_byte_for_byte(server, behind):
    talk = says(OK)
    port = behind(talk).port
    answer, text = server.get(f"/proxy/own/{port}/a%2Fb//c?x=%41&y=+&&z", headers={
        "X-Secret": "key", "X-Mine": "v", "Connection": "X-Hop, keep-alive", "X-Hop": "1",
        "X-Forwarded-For": "1.2.3.4", "TE": "trailers", "Cookie": "a=b"})
    assert (answer.status, text) == (200, b"hi")
    head = lines(talk.heads[0])
    assert head[0] == "GET /a%2Fb//c?x=%41&y=+&&z HTTP/1.1"
    names = {line.split(":")[0].lower() for line in head[1:]}
    assert {"host", "x-mine", "cookie", "x-forwarded-proto"} <= names
    assert not names & {"x-secret", "x-hop", "te", "keep-alive"}
    assert "Connection: close" in head and "Host: localhost" in head
    assert not any("1.2.3.4" in line for line in head)
    assert answer.headers["Connection"] == "close"


@pytest.mark.parametrize("asked", [b"\r\nGET %b", b"GET http://x%b"])
@on_unix
def test_what_stands_before_the_target_does_not_shift_it(server, behind, asked):
    talk = says(OK)
    port = behind(talk).port
    said = server.raw(asked % (b"/proxy/own/%d/hello?x=%%31" % port) + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status(said) == 200 and lines(talk.heads[0])[0] == "GET /hello?x=%31 HTTP/1.1"


@on_unix
def test_every_line_of_connection_counts(server, behind):
    talk = says(b"HTTP/1.1 200 OK\r\nConnection: X-One\r\nX-One: 1\r\nX-Two: 2\r\nX-Three: 3\r\n"
                b"Connection: a, x-two\r\nContent-Length: 2\r\n\r\nhi")
    port = behind(talk).port
    said = server.raw(b"GET /proxy/own/%d/ HTTP/1.1\r\nHost: x\r\nConnection: X-Four\r\n"
                      b"Connection: X-Five\r\nX-Four: 4\r\nX-Five: 5\r\nX-Six: 6\r\nConnection: close\r\n\r\n" % port).lower()
    assert b"x-three" in said and b"x-one" not in said and b"x-two" not in said
    asked = talk.heads[0].lower()
    assert b"x-six" in asked and b"x-four" not in asked and b"x-five" not in asked


@pytest.mark.parametrize("framed, body", [
    (b"Content-Length: 40", b"GET /other HTTP/1.1\r\nHost: other\r\n\r\n...."),
    (b"Transfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n")])
@on_unix
def test_what_says_where_a_body_ends_is_passed_on_in_any_case(server, behind, framed, body):
    """A body whose length is lost is a request, or an answer, of the sender's making."""
    named = b"Connection: Content-Length, Transfer-Encoding, Host, Trailer, close\r\n" + framed + b"\r\n"

    def talk(client):
        said = read_until(client, b"\r\n\r\n")
        while not said.endswith(body):
            said += client.recv(1000)
        heard.append(said)
        client.sendall(b"HTTP/1.1 200 OK\r\n" + named + b"\r\n" + body)

    heard = []
    port = behind(talk).port
    said = server.raw(b"POST /proxy/own/%d/ HTTP/1.1\r\nHost: x\r\n" % port + named + b"\r\n" + body)
    assert framed in heard[0] and b"\r\nHost: localhost\r\n" in heard[0]
    assert framed in said and said.endswith(body)


@on_unix
def test_an_upgrade_by_the_second_line_is_one(server, behind):
    talk = says(b"HTTP/1.1 101 Switching Protocols\r\nConnection: keep-alive\r\nUpgrade: x\r\n"
                b"Connection: upgrade\r\n\r\n")
    port = behind(talk).port
    said = server.raw(b"GET /proxy/own/%d/ HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nUpgrade: x\r\n"
                      b"Connection: Upgrade\r\n\r\n" % port)
    assert status(said) == 101 and b"Upgrade: x\r\n" in said
    assert b"Upgrade: x\r\n" in talk.heads[0] and b"Connection: Upgrade\r\n" in talk.heads[0]


@on_unix
def test_the_root_is_asked_for_by_a_slash(server, behind):
    talk = says(OK)
    port = behind(talk).port
    assert server.get(f"/proxy/own/{port}")[0].status == 404
    assert server.get(f"/proxy/own/{port}/")[0].status == 200
    assert talk.heads[0].startswith(b"GET / HTTP/1.1\r\n")


@on_unix
def test_every_method_passes(server, behind):
    talk = says(b"HTTP/1.1 204 No Content\r\n\r\n")
    port = behind(talk).port
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"):
        answer, _ = server.get(f"/proxy/own/{port}/", method)
        assert answer.status == 204 and talk.heads.pop().startswith(method.encode() + b" / "), method


@on_unix
def test_a_page_of_a_guest_sets_nothing_for_its_neighbours(server, behind):
    port = behind(says(b"HTTP/1.1 302 Found\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\nClear-Site-Data: *\r\n"
                       b"Service-Worker-Allowed: /\r\nAccept-CH: DPR\r\nOrigin-Trial: x\r\nSet-Login: logged-in\r\n"
                       b"Sec-Session-Registration: (ES256)\r\nLocation: /login?a\r\nContent-Length: 0\r\n\r\n")).port
    answer, _ = server.get(f"/proxy/guest/{port}/")
    assert answer.headers["Set-Cookie"] is None and answer.headers["Clear-Site-Data"] is None
    for name in ("Service-Worker-Allowed", "Accept-CH", "Origin-Trial", "Set-Login", "Sec-Session-Registration"):
        assert answer.headers[name] is None, name
    assert answer.headers["Content-Security-Policy"] == "sandbox"
    assert answer.headers["Location"] == f"/proxy/guest/{port}/login?a"
    assert answer.headers["X-Extra"] == "1"
    port = behind(says(b"HTTP/1.1 302 Found\r\nSet-Cookie: a=b\r\nLocation: //evil/x\r\n\r\n")).port
    answer, _ = server.get(f"/proxy/guest/{port}/")
    assert answer.headers["Location"] == "//evil/x"
    answer, _ = server.get(f"/proxy/own/{port}/")
    assert answer.headers["Set-Cookie"] == "a=b" and answer.headers["Content-Security-Policy"] is None


@on_unix
def test_a_server_sets_cookies_for_its_own_name_only(server, behind):
    """Below one domain there are the servers of others."""
    given = ["a=b; Domain=boxes.test; Path=/", "c=d;domain=boxes.test", "e=f; Secure;\t DOMAIN = .test ;HttpOnly",
             "g=h; Domain", "domain=x; SameSite=Lax", "i=j; Domainx=1", "k=l"]
    fields = "".join(f"Set-Cookie: {cookie}\r\n" for cookie in given)
    port = behind(says(b"HTTP/1.1 200 OK\r\nClear-Site-Data: \"cookies\"\r\n" + fields.encode() +
                       b"Content-Length: 0\r\n\r\n")).port
    answer, _ = server.get(f"/proxy/own/{port}/")
    assert answer.headers.get_all("Set-Cookie") == [
        "a=b; Path=/", "c=d", "e=f; Secure;HttpOnly", "g=h", "domain=x; SameSite=Lax", "i=j; Domainx=1", "k=l"]
    assert answer.headers["Clear-Site-Data"] is None


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(data), 100000):
            part = data[at:at + 100000]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


@pytest.fixture
def echo():
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made.server_address[1]
    made.shutdown()
    made.server_close()


CHUNKED = ["-H", "Transfer-Encoding: chunked"]


@pytest.mark.parametrize("server, words", [
    ("unix", []), ("unix", ["-H", "Expect: 100-continue"]), ("unix", CHUNKED), ("tcp", CHUNKED), ("tls", CHUNKED)],
    indirect=["server"])
def test_large_bodies_pass_both_ways(server, echo, tmp_path, words):
    data = os.urandom(20 << 20)
    (tmp_path / "in").write_bytes(data)
    done = server.curl(f"/proxy/own/{echo}/", "--data-binary", f"@{tmp_path}/in", *words)
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


def test_memory_stays_flat_where_the_client_does_not_read(serve, behind):
    server = serve("tcp", lean=True)
    stop, said = threading.Event(), []

    def talk(client):
        read_until(client, b"\r\n\r\n")
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not stop.is_set():
            said.append(client.send(b"x" * 65536))

    port = behind(talk).port
    before = server.memory()
    with server.connect() as client:
        client.sendall(b"GET /proxy/own/%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        harness.wait_for(lambda: said, what="what the other server says")
        harness.at_rest(lambda: len(said))
        assert server.memory() - before < 4 << 20
        read_until(client, b"xxx")
    stop.set()
    server.until("live", 0)


def test_a_stream_arrives_as_it_comes(server, behind):
    go = threading.Event()

    def talk(client):
        read_until(client, b"\r\n\r\n")
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        assert go.wait(10 * PATIENCE)
        client.sendall(b"data: 2\n\n")

    port = behind(talk).port
    with server.connect() as client:
        client.sendall(b"GET /proxy/own/%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        assert b"data: 1" in read_until(client, b"data: 1\n\n")
        go.set()
        assert read_all(client).endswith(b"data: 2\n\n")


def test_who_has_said_all_hears_the_answer(clear_server, behind):
    server = clear_server
    def talk(client):
        read_until(client, b"\r\n\r\n")
        while client.recv(1000):
            pass
        client.sendall(OK)

    port = behind(talk).port
    with server.connect() as client:
        client.sendall(b"GET /proxy/own/%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        client.shutdown(socket.SHUT_WR)
        assert read_all(client).endswith(b"hi")


def test_a_websocket_passes(serve):
    server = serve("tcp")

    async def run():
        async def echo(websocket):
            async for message in websocket:
                await websocket.send(message)

        async with websockets.serve(echo, "127.0.0.1", 0) as there:
            port = there.sockets[0].getsockname()[1]
            async with websockets.connect(f"ws://127.0.0.1:{server.port}/proxy/own/{port}/x") as client:
                for size in (1, 1000, 500000):
                    await client.send("y" * size)
                    assert await client.recv() == "y" * size

    asyncio.run(run())


def test_a_tunnel_carries_bytes_and_half_an_end_each_way(server, behind):
    def talk(client):
        assert client.recv(5) == b"hello"
        client.sendall(b"said")
        client.shutdown(socket.SHUT_WR)
        data = b""
        while part := client.recv(65536):
            data += part
        talk.heard.append(len(data))
        heard.set()

    talk.heard, heard = [], threading.Event()
    port = behind(talk).port
    with server.connect() as client:
        client.sendall(b"GET /proxy/tunnel/%d/ HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\n"
                       b"hello" % port)
        head = read_until(client, b"\r\n\r\n")
        assert status(head) == 101 and b"Upgrade: tcp\r\n" in head
        assert head.split(b"\r\n\r\n")[1] + read_all(client) == b"said"
        for _ in range(10):
            client.sendall(b"x" * 100000)
        client.shutdown(socket.SHUT_WR)
        server.until("live", 0)
    assert heard.wait(10 * PATIENCE) and talk.heard == [1000000]


def test_bytes_of_ports_take_turns(serve, behind):
    """Both ways: what comes of the server back, too, and nothing is lost."""
    def talk(client):
        while data := client.recv(65536):
            client.sendall(data)

    server = serve(turn_us=1)
    target = b"GET /proxy/tunnel/%d/ HTTP/1.1\r\nHost: x\r\nX-Owner: a\r\n" % behind(talk).port
    clients = [server.connect() for _ in range(40)]
    for client in clients:
        client.sendall(target + b"Connection: upgrade\r\nUpgrade: tcp\r\n\r\n")
        read_until(client, b"\r\n\r\n")
    data = b"q" * 20_000
    assert server.flooded(clients, data) < len(clients) * len(data) / 4
    for client in clients:
        assert len(read_until(client, data)) == len(data)
        client.close()


@on_unix
def test_an_upgrade_that_nobody_asked_for_is_none(server, behind):
    port = behind(says(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")).port
    assert server.get(f"/proxy/own/{port}/")[0].status == 502


@on_unix
def test_interim_answers_pass(server, behind):
    port = behind(says(b"HTTP/1.1 103 Early Hints\r\nSet-Cookie: a=b\r\nLink: </a>\r\nX-Any: 1\r\n\r\n" + OK)).port
    answer = server.raw(b"GET /proxy/own/%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
    assert answer.startswith(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n")


@on_unix
def test_interim_answers_have_an_end(server, behind):
    """Else a client that reads them waits for ever, and so does what it is for."""
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    port = behind(says(hint * 32 + OK)).port
    answer = server.raw(b"GET /proxy/own/%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
    assert answer.count(b" 103 ") == 32 and answer.endswith(b"hi")
    port = behind(says(hint * 33 + OK)).port
    answer = server.raw(b"GET /proxy/own/%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
    assert answer.count(b" 103 ") == 32 and b" 200 " not in answer


@pytest.mark.parametrize("kind", ["own", "guest"])
@on_unix
def test_a_server_tells_what_stands_before_us_nothing(server, behind, kind):
    """A front takes these as its own server's word: it would send a file of its host, or ask another server."""
    names = ["X-Accel-Redirect", "x-accel-buffering", "X-Accel-Any", "X-Sendfile", "X-SENDFILE-TEMPORARY", "X-Sendfile2",
             "X-LIGHTTPD-send-file", "X-LIGHTTPD-send-tempfile", "X-Reproxy-URL", "X-REPROXY-FILE", "X-LiteSpeed-Location",
             "X-LiteSpeed-Purge", "Surrogate-Control"]
    fields = "".join(f"{name}: /etc/passwd\r\n" for name in names)
    port = behind(says(b"HTTP/1.1 200 OK\r\nX-Acceleration: 1\r\nX-Send: 2\r\n" + fields.encode() +
                       b"Content-Length: 0\r\n\r\n")).port
    answer, _ = server.get(f"/proxy/{kind}/{port}/")
    assert (answer.headers["X-Acceleration"], answer.headers["X-Send"]) == ("1", "2")
    assert not [name for name in names if name in answer.headers]


@on_unix
def test_a_contradictory_end_is_not_passed_on(server, behind):
    for framing in (b"Content-Length: 2\r\nContent-Length: 40", b"Content-Length: 2\r\nTransfer-Encoding: chunked"):
        port = behind(says(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\nhi")).port
        said = server.raw(b"GET /proxy/own/%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        names = [line.split(":")[0].lower() for line in lines(said)]
        assert status(said) == 502 and names.count("content-length") == 1 and "transfer-encoding" not in names, framing


@pytest.mark.parametrize("answer", [
    b"204 No Content\r\nTransfer-Encoding: chunked", b"204 No Content\r\nContent-Length: 5",
    b"205 Reset Content\r\nContent-Length: 5", b"103 Early Hints\r\nTransfer-Encoding: chunked",
    b"100 Continue\r\nContent-Length: 5"])
@on_unix
def test_an_answer_without_a_body_that_names_one_is_not_passed_on(server, behind, answer):
    port = behind(says(b"HTTP/1.1 " + answer + b"\r\n\r\n0\r\n\r\n" + OK)).port
    said = server.raw(b"GET /proxy/own/%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
    assert status(said) == 502 and said.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("method, answer", [
    (b"GET", b"204 No Content\r\nX-Any: 1"), (b"GET", b"204 No Content\r\nContent-Length: 0"),
    (b"GET", b"304 Not Modified\r\nContent-Length: 5"), (b"GET", b"304 Not Modified\r\nTransfer-Encoding: chunked"),
    (b"GET", b"304 Not Modified\r\nX-Any: 1"), (b"HEAD", b"200 OK\r\nContent-Length: 5"),
    (b"HEAD", b"200 OK\r\nTransfer-Encoding: chunked"), (b"HEAD", b"404 Not Found\r\nX-Any: 1")])
@pytest.mark.parametrize("is_late", [False, True])
@on_unix
def test_nothing_passes_behind_an_answer_without_a_body(server, behind, method, answer, is_late):
    """What its header says passes; what follows could be another answer to whom it reaches."""
    got = threading.Event()

    def talk(client):
        read_until(client, b"\r\n\r\n")
        client.sendall(b"HTTP/1.1 " + answer + b"\r\n\r\n" + (b"" if is_late else b"hello" + OK))
        if is_late:
            assert got.wait(10 * PATIENCE)
            client.sendall(b"hello" + OK)

    port = behind(talk).port
    with server.connect() as client:
        client.sendall(method + b" /proxy/own/%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        said = read_until(client, b"\r\n\r\n")
        got.set()
        said += read_all(client)
    assert said.startswith(b"HTTP/1.1 " + answer + b"\r\n") and said.endswith(b"Connection: close\r\n\r\n")
    assert said.count(b"HTTP/1.1") == 1


NO_HTTP = [
    b"", b"hello\r\n\r\n", b"HTTP/2 200 OK\r\n\r\n", b"HTTP/1.1 2x0 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nA b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", b"HTTP/1.1 200 OK\r\nA: \x00\r\n\r\n", b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 200 OK\nSet-Cookie: a=b\n\n", b"HTTP/1.1 200 OK\r\nA:b\rSet-Cookie: c\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 300 + b"\r\n", b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70000 + b"\r\n\r\n",
    b"HTTP/1.1 099 OK\r\n\r\n"]


@on_unix
def test_who_speaks_no_http_is_not_passed_on(server, behind):
    for answer in NO_HTTP:
        port = behind(says(answer)).port
        said = server.raw(b"GET /proxy/guest/%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        assert status(said) == 502 and b"Set-Cookie" not in said, answer


def test_a_request_behind_one_that_was_passed_on_is_the_servers(server, behind):
    """Nobody else answers on that connection, and nobody is told that it could go on."""
    done = threading.Event()

    def talk(client):
        seen = read_until(client, b"\r\n\r\n")
        while b"GET /stats" not in seen:
            seen += client.recv(1000)
        client.sendall(OK)
        done.set()

    port = behind(talk).port
    answer = server.raw(b"GET /proxy/own/%d/ HTTP/1.1\r\nHost: x\r\n\r\nGET /stats HTTP/1.1\r\nHost: x\r\n\r\n" % port)
    assert done.is_set() and answer.count(b"HTTP/1.1") == 1 and b"Connection: close" in answer


def test_a_client_that_goes_lets_the_server_go(server, behind):
    ended = threading.Event()

    def talk(client):
        read_until(client, b"\r\n\r\n")
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                client.sendall(b"x" * 1000)
                time.sleep(0.01)
        except OSError:
            ended.set()

    port = behind(talk).port
    with server.connect() as client:
        client.sendall(b"GET /proxy/own/%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        read_until(client, b"xxx")
    assert ended.wait(10 * PATIENCE)
    server.until("live", 0)


def test_a_server_that_stops_in_the_middle_leaves_no_whole_answer(server, behind):
    def talk(client):
        read_until(client, b"\r\n\r\n")
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")

    port = behind(talk).port
    done = server.curl(f"/proxy/own/{port}/")
    assert done.returncode in (18, 56), done
    assert json.loads(server.get("/stats")[1])["live"] == 0


def test_a_header_that_drips_holds_nobody_who_has_left(serve, behind):
    server = serve("unix", tcp=1, silent_ms=100)
    over = threading.Event()

    def talk(client):
        read_until(client, b"\r\n\r\n")
        try:
            client.sendall(b"HTTP/1.1 200 OK\r\nX-Drip: ")
            while True:
                client.sendall(b"x")
                time.sleep(0.01)
        except OSError:
            over.set()

    port = behind(talk).port
    with socket.create_connection(("127.0.0.1", server.port), 10) as client:
        client.sendall(b"GET /proxy/own/%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        client.shutdown(socket.SHUT_WR)
        assert over.wait(30 * PATIENCE)
