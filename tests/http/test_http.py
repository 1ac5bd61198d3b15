"""What the HTTP room promises, by real clients and by bytes that no client sends.

Each test has a server of its own (tests/http/server.c, under the sanitizers), which must end well: a
finding, a leak or a handle that is left is a failure of the test that caused it.
"""
import contextlib
import fcntl
import http.client
import json
import os
import resource
import select
import signal
import socket
import struct
import termios
import time
from random import Random

import pytest
from clients import HELLO, PATIENCE, on_unix, read_all, read_until, status

# ---- requests and answers ----

def test_answers_and_keeps_the_connection(server):
    client = server.client()
    own = client.sock
    for _ in range(5):
        client.request("GET", "/hello")
        response = client.getresponse()
        assert (response.status, response.read()) == (200, b"hello\n")
        assert response.headers["Date"].endswith(" GMT")
        assert client.sock is own
    client.close()


def test_body_comes_back(server):
    for size in (0, 1, 1000, 300_000):
        body = os.urandom(size)
        assert server.get("/echo", "POST", body)[1] == body


def test_chunked_body_comes_back(server):
    parts = [os.urandom(size) for size in (1, 70_000, 3)]
    client = server.client()
    client.request("PUT", "/echo", iter(parts), {"Transfer-Encoding": "chunked"},
                   encode_chunked=True)
    assert client.getresponse().read() == b"".join(parts)


def test_curl_uploads_and_downloads(server, tmp_path):
    (tmp_path / "file").write_bytes(os.urandom(3_000_000))
    got = server.curl("/echo", "--data-binary", f"@{tmp_path}/file",
                      "-H", "Expect: 100-continue")
    assert got.stdout == (tmp_path / "file").read_bytes()
    assert len(server.curl("/stream?count=5000000").stdout) == 5_000_000


def test_pipelined_requests_are_answered_in_order(server):
    last = b"GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    mixed = (b"GET /later?ms=30 HTTP/1.1\r\nHost: x\r\n\r\n"
             b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
             b"PUT /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
             b"2\r\nde\r\n0\r\n\r\n")
    answer = server.raw(mixed + HELLO * 200 + last)
    bodies = [part.split(b"\r\n\r\n", 1)[1] for part in answer.split(b"HTTP/1.1 200 OK\r\n")[1:]]
    assert bodies == [b"later\n", b"abc", b"de"] + [b"hello\n"] * 201


def test_a_request_that_comes_byte_by_byte_is_answered(serve):
    server = serve()
    with server.connect() as client:
        for byte in (b"\r\nPOST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                     b"3;a=b\r\nabc\r\n0\r\nTrailer: 1\r\n\r\n"):
            client.send(bytes([byte]))
        assert read_until(client, b"abc").startswith(b"HTTP/1.1 200")
        client.sendall(HELLO)
        read_until(client, b"hello\n")


def test_however_requests_are_split_the_answers_are_the_same(server):
    random = Random(7)
    body = bytes(random.choices(b"u\r\n0", k=3000))
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:]))
    asked = [
        (HELLO, b"hello\n"),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\n" + body, body),
        (b"PUT /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked
         + b"0\r\n\r\n", body),
        (b"POST /upload?hold=1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
         + chunked + b"0\r\nA: b\r\n\r\n", b"%d" % body.count(b"u")),
        (b"GET /later?ms=1 HTTP/1.1\r\nHost: x\r\n\r\n", b"later\n"),
        (b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n",
         b"route_not_found: there is nothing at this path"),
    ]
    for _ in range(20):
        chosen = random.choices(asked, k=12)
        data = b"".join(request for request, _ in chosen)
        with server.connect() as client:
            while data:
                size = random.choice((1, 2, 3, 50, 700, 5000))
                client.sendall(data[:size])
                data = data[size:]
                time.sleep(random.choice((0, 0.0005)))
            answers = client.makefile("rb")
            for _, expected in chosen:
                length = 0
                while (line := answers.readline()) != b"\r\n":
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                assert answers.read(length) == expected


def test_clients_that_leave_anywhere_leave_nothing(server):
    random = Random(8)
    requests = [HELLO * 3, b"GET /follow HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET /stream?count=3000000 HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET /stream?count=5000&ms=1 HTTP/1.1\r\nHost: x\r\n\r\n",
                b"POST /upload?hold=2 HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n"
                + b"u" * 20000, b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"]
    for _ in range(300):
        client = server.connect()
        data = random.choice(requests)
        client.sendall(data[:random.randrange(1, len(data) + 1)])
        if random.random() < 0.3:
            time.sleep(0.002)
        if random.random() < 0.3:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    server.until("live", 0)


@on_unix
def test_head_has_the_header_of_get_and_no_body(server):
    with server.connect() as client:
        client.sendall(b"HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"Content-Length: 6\r\n" in read_until(client, b"\r\n\r\n")
        client.sendall(b"HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_until(client, b"\r\n\r\n").endswith(b"\r\n\r\n")
        client.sendall(HELLO)
        assert read_until(client, b"hello\n").startswith(b"HTTP/1.1 200")


@on_unix
def test_204_has_no_length(server):
    response, body = server.get("/nothing")
    assert (response.status, body, response.headers["Content-Length"]) == (204, b"", None)


def test_http_1_0(server):
    answer = server.raw(b"GET /hello HTTP/1.0\r\n\r\n")
    assert b"Connection: close\r\n" in answer and answer.endswith(b"\r\n\r\nhello\n")
    answer = server.raw(b"GET /stream?count=3 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert b"Transfer-Encoding" not in answer and answer.endswith(b"\r\n\r\nxxx")
    with server.connect() as client:
        for _ in range(2):
            client.sendall(b"GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert b"Connection: keep-alive\r\n" in read_until(client, b"hello\n")


@on_unix
def test_connection_close_closes(server):
    answer = server.raw(b"GET /hello HTTP/1.1\r\nHost: x\r\nConnection: foo, Close\r\n\r\n" + HELLO)
    assert answer.count(b"HTTP/1.1 ") == 1 and b"Connection: close\r\n" in answer


@on_unix
def test_no_route_and_no_method(server):
    assert server.get("/nowhere")[0].status == 404
    assert server.get("/hello/")[0].status == 404
    response, body = server.get("/echo", "DELETE")
    assert (response.status, response.headers["Allow"]) == (405, "POST, PUT")
    assert body.startswith(b"method_not_allowed: ")
    assert server.get("/hello", "POST", b"x" * 1000)[0].headers["Allow"] == "GET, HEAD"


@on_unix
def test_path_parameters_are_decoded(server):
    assert server.get("/param/a%2Fb/and/%c3%a4+.%25")[1].decode() == \
        "/param/a%2Fb/and/%c3%a4+.%25|a/b|ä+.%"
    assert server.get("/param//and/b")[0].status == 404
    assert server.get("/param/a/b/and/c")[0].status == 404


@on_unix
def test_broken_escapes_are_refused(server):
    for escape in ("%", "%2", "%zz", "%00", "a%0", "%ff", "%c0%af", "%ed%a0%80"):
        for target in (f"/param/{escape}/and/b", f"/query?a={escape}"):
            assert server.get(target)[0].status == 400, target


@on_unix
def test_query_is_decoded(server):
    assert server.get("/query?a=b%26c&&d&=e&a=f+g%3d")[1] == b"[a]=[b&c]\n[d]=[]\n[]=[e]\n[a]=[f g=]\n"
    assert server.get("/query?" + "a&" * 65)[0].status == 400


@on_unix
def test_fields_are_found_in_any_case(server):
    assert server.get("/field/x-THING", headers={"X-Thing": "  a b\t"})[1] == b"a b"
    assert server.get("/field/x-other")[0].status == 404


@on_unix
def test_absolute_target(server):
    assert status(server.raw(b"GET http://X:1/hello HTTP/1.1\r\nHost: x:1\r\n"
                             b"Connection: close\r\n\r\n")) == 200
    assert status(server.raw(b"GET http://y/hello HTTP/1.1\r\nHost: x\r\n\r\n")) == 400


def test_peer(serve, tmp_path):
    server = serve("unix")
    is_unix, uid, gid, pid, _, _ = server.get("/peer")[1].split()
    assert [int(part) for part in (is_unix, uid, gid, pid)] == \
        [1, os.getuid(), os.getgid(), os.getpid()]
    assert serve("tcp").get("/peer")[1].decode().endswith(" 1 127.0.0.1")


def test_admit_comes_before_handler_route_and_body(server):
    assert server.get("/nowhere", headers={"X-Deny": "yes"})[0].status == 401
    answer = server.raw(b"POST /echo HTTP/1.1\r\nHost: x\r\nX-Deny: yes\r\nContent-Length: 9\r\n"
                        b"Expect: 100-continue\r\n\r\n")
    assert status(answer) == 401
    assert server.get("/hello", headers={"X-Deny": "later"})[1] == b"later\n"


@on_unix
def test_an_answer_cannot_be_given_a_line_more(server):
    client = server.client()
    client.request("GET", "/evil")
    response = client.getresponse()
    names = [name.lower() for name, _ in response.getheaders()]
    assert sorted(names) == ["content-length", "date", "x-good"]
    assert response.read() == b"good"
    client.request("GET", "/hello")
    assert client.getresponse().read() == b"hello\n"


# ---- what is refused ----

REFUSED = {
    "two lengths": (400, b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
                         b"Content-Length: 3\r\n\r\nabc"),
    "a list of lengths": (400, b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\nabc"),
    "a signed length": (400, b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc"),
    "no length": (400, b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n"),
    "a length beyond all": (400, b"POST /echo HTTP/1.1\r\nHost: x\r\n"
                                 b"Content-Length: 99999999999999999999\r\n\r\n"),
    "length and coding": (400, b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
                               b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "two codings": (400, b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                         b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n"),
    "another coding": (501, b"POST /echo HTTP/1.1\r\nHost: x\r\n"
                            b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "a coding in 1.0": (400, b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "two hosts": (400, b"GET /hello HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n"),
    "no host": (400, b"GET /hello HTTP/1.1\r\n\r\n"),
    "two keys": (400, b"GET /hello HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\n"
                      b"Authorization: b\r\n\r\n"),
    "a folded line": (400, b"GET /hello HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n"),
    "a line that begins folded": (400, b"GET /hello HTTP/1.1\r\n Host: x\r\n\r\n"),
    "a space before the colon": (400, b"GET /hello HTTP/1.1\r\nHost : x\r\n\r\n"),
    "no colon": (400, b"GET /hello HTTP/1.1\r\nHost: x\r\nabc\r\n\r\n"),
    "no name": (400, b"GET /hello HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n"),
    "bare line feeds": (400, b"GET /hello HTTP/1.1\nHost: x\n\n"),
    "a bare line feed": (400, b"GET /hello HTTP/1.1\r\nHost: x\nA: b\r\n\r\n"),
    "a bare carriage return": (400, b"GET /hello HTTP/1.1\r\nHost: x\r\nA: b\rC: d\r\n\r\n"),
    "a NUL in a value": (400, b"GET /hello HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n"),
    "a NUL in a name": (400, b"GET /hello HTTP/1.1\r\nHost: x\r\nA\0B: c\r\n\r\n"),
    "a NUL in the target": (400, b"GET /hel\0lo HTTP/1.1\r\nHost: x\r\n\r\n"),
    "two spaces": (400, b"GET  /hello HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a tab": (400, b"GET\t/hello\tHTTP/1.1\r\nHost: x\r\n\r\n"),
    "no version": (400, b"GET /hello\r\nHost: x\r\n\r\n"),
    "a version to come": (505, b"PRI * HTTP/2.0\r\n\r\n"),
    "another version": (400, b"GET /hello HTTP/1.1x\r\nHost: x\r\n\r\n"),
    "no slash": (400, b"GET hello HTTP/1.1\r\nHost: x\r\n\r\n"),
    "bytes beyond ASCII": (400, b"GET /h\xc3\xa4 HTTP/1.1\r\nHost: x\r\n\r\n"),
    "two empty lines": (400, b"\r\n\r\n" + HELLO),
    "TLS": (400, b"\x16\x03\x01\x02\x00\x01\x00"),
    "another expectation": (417, b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: more\r\n\r\n"),
    "a negative chunk": (400, b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                              b"-1\r\na\r\n0\r\n\r\n"),
    "a chunk with 0x": (400, b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                             b"0x1\r\na\r\n0\r\n\r\n"),
    "a chunk too long": (400, b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                              b"1\r\nab\r\n0\r\n\r\n"),
    "a chunk beyond all": (400, b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                                b"\r\n10000000000000003\r\nabc\r\n"),
    "a chunk with line feeds": (400, b"POST /echo HTTP/1.1\r\nHost: x\r\n"
                                     b"Transfer-Encoding: chunked\r\n\r\n1\na\n0\n\n"),
    "a space behind a chunk's size": (400, b"POST /echo HTTP/1.1\r\nHost: x\r\n"
                                           b"Transfer-Encoding: chunked\r\n\r\n1 \r\na\r\n0\r\n\r\n"),
}


@on_unix
def test_refused(server):
    """And nothing that follows on the connection is taken for a request."""
    for what, (expected, data) in REFUSED.items():
        answer = server.raw(data + HELLO)
        assert status(answer) == expected, what
        assert answer.count(b"\r\nDate: ") == 1 and b"hello\n" not in answer, what
        assert b"Connection: close\r\n" in answer, what


# ---- limits ----

def test_a_header_beyond_the_limit(serve):
    server = serve("tcp", header_bytes=4096)
    assert server.get("/hello", headers={"A": "b" * 3500})[0].status == 200
    assert status(server.raw(HELLO[:-2] + b"A: " + b"b" * 5000 + b"\r\n\r\n")) == 431
    assert status(server.raw(b"GET /" + b"a" * 500_000)) == 431
    assert status(server.raw(HELLO[:-2] + b"A: b\r\n" * 100 + b"\r\n")) == 431


def test_a_header_that_comes_too_slowly(serve):
    """Each byte in time, all of them not: an inactivity limit would never see it."""
    server = serve("tcp", header_ms=400, idle_ms=60000)
    with server.connect() as client:
        started = time.monotonic()
        for byte in HELLO * 10:
            try:
                client.send(bytes([byte]))
            except OSError:
                break
            client.settimeout(0.05)
            try:
                answer = client.recv(1000)
                break
            except TimeoutError:
                continue
        assert status(answer) == 408
        assert 0.35 < time.monotonic() - started < 5 * PATIENCE  # it is not the limit for who is idle


def test_an_idle_connection_is_closed(serve):
    server = serve("tcp", idle_ms=300)
    for tries in range(5):
        with server.connect() as client:
            started = time.monotonic()
            try:
                client.sendall(HELLO)
                read_until(client, b"hello\n")
            except (AssertionError, ConnectionError):
                assert tries < 4  # on a machine that stood still it was idle before
                continue
            assert client.recv(10) == b""
            assert 0.2 < time.monotonic() - started < 2 * PATIENCE
            break
    with server.connect() as client:
        assert client.recv(10) == b""


def test_a_body_that_does_not_come(serve):
    server = serve("unix", body_ms=300)
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
    assert status(server.raw(head + b"a")) == 408
    assert server.raw(head.replace(b"echo", b"upload") + b"u") == b""
    server.until("live", 0)
    assert server.stats()["gone"] == 1


def test_a_body_beyond_the_limit_is_not_read(serve):
    server = serve("tcp", body_bytes=1000)
    started = time.monotonic()
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
    assert status(server.raw(head + b"Content-Length: 1000000000000\r\n"
                                    b"Expect: 100-continue\r\n\r\n")) == 413
    assert status(server.raw(head + b"Content-Length: 200000\r\n\r\n" + b"a" * 200_000)) == 413
    assert status(server.raw(head + b"Transfer-Encoding: chunked\r\n\r\n"
                             + b"190\r\n" + b"a" * 400 + b"\r\n190\r\n" + b"a" * 400
                             + b"\r\n190\r\n" + b"a" * 400 + b"\r\n")) == 413
    assert server.get("/echo", "POST", b"a" * 1000)[1] == b"a" * 1000
    assert server.curl("/echo", "--data-binary", "@-", "-o", "/dev/null", "-w", "%{http_code}",
                       input=b"a" * 3_000_000).stdout == b"413"
    assert time.monotonic() - started < 9


@on_unix
def test_get_takes_no_body(server):
    for method in (b"GET", b"HEAD"):
        for framing in (b"Content-Length: 9", b"Transfer-Encoding: chunked"):
            assert status(server.raw(method + b" /hello HTTP/1.1\r\nHost: x\r\n" + framing +
                                     b"\r\n\r\n")) == 413, (method, framing)


def test_all_bodies_together_have_a_limit(serve):
    server = serve("unix", held_bytes=100_000)
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n"
    for _ in range(3):
        with server.connect() as first:
            first.sendall(head + b"a" * 59_999)
            server.until("held", 59_999)
            response, text = server.get("/echo", "POST", b"b" * 60_000)
            assert response.status == 503 and b"capacity" in text
            first.sendall(b"a")
            read_until(first, b"a" * 60_000)
        assert server.get("/echo", "POST", b"c" * 60_000)[1] == b"c" * 60_000
        with server.connect() as leaves:
            leaves.sendall(head + b"d" * 50_000)
            server.until("held", 50_000)
        server.until("held", 0)


@pytest.mark.wall
def test_headers_of_requests_that_stay_count_to_their_owner(serve):
    server = serve("unix", held_bytes=1_000_000, body_bytes=100_000)

    def follow(stack, owner):
        client = stack.enter_context(server.connect())
        client.sendall(b"GET /follow HTTP/1.1\r\nHost: x\r\nX-Owner: %s\r\nX-Fill: %s\r\n\r\n" % (owner, b"a" * 20_000))
        return status(read_until(client, b"\r\n\r\n"))

    for _ in range(2):
        with contextlib.ExitStack() as stack:
            answers = [follow(stack, b"full") for _ in range(30)]
            assert 2 < answers.count(200) < 13 and answers[-1] == 429
            assert follow(stack, b"late") == 200
        server.until("held", 0)


def test_connections_beyond_the_limit_are_told(serve):
    server = serve("unix", connections=3)
    held = [server.connect() for _ in range(3)]
    for client in held:
        client.sendall(HELLO.replace(b"/hello", b"/follow"))
        read_until(client, b"\r\n\r\n")
    answer = server.raw(HELLO)
    assert status(answer) == 503 and b"Retry-After: 1\r\n" in answer
    assert b"too_many_connections" in answer
    held[0].close()
    deadline = time.monotonic() + 5 * PATIENCE
    while status(server.raw(HELLO.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))) != 200:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for client in held:
        client.close()


def test_who_only_connects_keeps_nobody_out(serve):
    server = serve("tcp", connections=3)
    asked = server.connect()
    asked.sendall(HELLO)
    read_until(asked, b"hello\n")
    crowd = [server.connect() for _ in range(200)]
    assert server.get("/hello")[1] == b"hello\n"
    asked.sendall(HELLO)
    read_until(asked, b"hello\n")
    for client in [asked, *crowd]:
        client.close()


def test_connections_of_tcp_take_no_place_of_the_unix_socket(serve):
    server = serve("unix", connections=2, tcp=1)
    crowd = [socket.create_connection(("127.0.0.1", server.port), 10) for _ in range(80)]
    for client in crowd[:10]:
        client.sendall(HELLO)
    server.still()
    assert server.get("/hello")[1] == b"hello\n"
    for client in crowd:
        client.close()


def test_far_more_connections_than_the_limit_only_wait(serve):
    server = serve("unix", connections=2)
    crowd = []
    for _ in range(200):
        client = server.connect()
        crowd.append(client)
    # They are accepted in the order in which they came.
    assert server.get("/hello")[1] == b"hello\n"
    fds = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    assert fds < 2 + 64 + 30
    for client in crowd:
        client.close()
    deadline = time.monotonic() + 5 * PATIENCE
    while True:
        with server.connect() as client:
            client.sendall(HELLO)
            if status(client.recv(1000)) == 200:
                break
        assert time.monotonic() < deadline
        time.sleep(0.02)


# ---- clients that leave ----

def test_a_client_that_leaves_while_nothing_is_written(server):
    for target in ("/follow", "/later?ms=60000"):
        before = server.stats()["gone"]
        client = server.connect()
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        server.until("live", 1)
        client.close()
        server.until("gone", before + 1)
        server.until("live", 0)


def test_a_client_that_vanishes_is_asked_after(serve):
    server = serve("tcp")
    with server.connect() as client:
        client.sendall(HELLO)
        read_until(client, b"hello\n")
        ports = [f":{port:04X}" for port in (server.port, client.getsockname()[1])]
        for _ in range(1000):
            timers = [fields[5] for fields in map(str.split, open("/proc/net/tcp", encoding="ascii"))
                      if fields[1].endswith(ports[0]) and fields[2].endswith(ports[1])]
            assert len(timers) == 1, timers
            if timers[0].startswith("02:"):
                break
            time.sleep(0.01)  # the client has read, and the server's kernel does not yet know
        assert timers[0].startswith("02:"), timers
        assert int(timers[0][3:], 16) <= 30 * 100


def test_a_client_that_is_reset(serve):
    server = serve("tcp")
    client = server.connect()
    client.sendall(b"GET /follow HTTP/1.1\r\nHost: x\r\n\r\n")
    server.until("followers", 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    server.until("gone", 1)


def test_a_client_that_leaves_with_requests_sent_ahead(server):
    """Unread bytes lie before the end: it must be seen all the same, where the kernel has room for them."""
    client = server.connect()
    client.sendall(b"GET /later?ms=60000 HTTP/1.1\r\nHost: x\r\n\r\n" + HELLO * 1500)
    server.until("live", 1)
    client.close()
    server.until("gone", 1)


def test_a_client_that_leaves_within_a_body(server):
    client = server.connect()
    client.sendall(b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nuu")
    server.until("live", 1)
    client.close()
    server.until("gone", 1)
    client = server.connect()
    client.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nuu")
    client.close()
    server.until("live", 0)


def test_a_client_that_leaves_while_its_body_is_held_back(server):
    client = server.connect()
    client.sendall(b"POST /upload?hold=60000 HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n")
    # No more than the kernel takes: on TCP the end of what it cannot deliver is not told either.
    client.sendall(b"u" * 40_000)
    server.until("live", 1)
    client.close()
    server.until("gone", 1)


def test_an_answer_to_nobody_goes_nowhere(server):
    client = server.connect()
    client.sendall(b"GET /stubborn HTTP/1.1\r\nHost: x\r\n\r\n")
    server.until("live", 1)
    client.close()
    assert server.stats()["live"] == 1
    server.process.send_signal(signal.SIGUSR1)
    server.until("live", 0)
    assert server.stats()["gone"] == 0


def test_a_client_that_shuts_down_its_side_has_what_is_answered_at_once(clear_server):
    server = clear_server
    with server.connect() as client:
        client.sendall(HELLO * 3 + b"GET /big?bytes=3000000 HTTP/1.1\r\nHost: x\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        server.still()
        answer = read_all(client)
    assert answer.count(b"hello\n") == 3 and answer.endswith(b"b" * 3_000_000)


# ---- streams ----

def test_each_write_arrives_at_once(server):
    with server.connect() as client:
        client.sendall(b"GET /follow HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"chunked\r\n" in read_until(client, b"\r\n\r\n")
        took = []
        for text in ("one", "two", "six", "ten"):
            started = time.monotonic()
            server.get("/publish", "POST", text)
            assert read_until(client, b"\r\n" + text.encode() + b"\r\n")
            took.append(time.monotonic() - started)
        assert min(took) < 0.2, took  # what is held back is late each time; else it is the machine
        server.get("/publish?finish=1", "POST", "three")
        assert read_until(client, b"0\r\n\r\n").endswith(b"5\r\nthree\r\n0\r\n\r\n")
        client.sendall(HELLO)
        read_until(client, b"hello\n")


def test_a_thousand_followers(serve):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    try:
        server = serve("unix")
        followers = []
        for _ in range(1000):
            client = server.connect()
            client.sendall(b"GET /follow HTTP/1.1\r\nHost: x\r\n\r\n")
            followers.append(client)
        server.until("followers", 1000)
        server.get("/publish", "POST", "to all")
        for client in followers:
            read_until(client, b"6\r\nto all\r\n")
        for client in followers[::2]:
            client.close()
        server.until("followers", 500)
        server.get("/publish?finish=1", "POST", "the end")
        for client in followers[1::2]:
            read_until(client, b"the end\r\n0\r\n\r\n")
            client.close()
        server.until("live", 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_slow_reader_holds_no_more_than_the_backlog(serve):
    server = serve("tcp", backlog_bytes=200_000)
    slow = server.connect()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    before = server.memory()
    slow.sendall(b"GET /stream?count=500000000 HTTP/1.1\r\nHost: x\r\n\r\n")
    for _ in range(5):
        assert slow.recv(4)
        waiting = server.still()["waiting"]
    assert 200_000 < waiting < 200_000 + 2 * 65536
    # The sanitizer keeps what was freed for a while.
    assert server.memory() - before < 30_000_000
    fast = server.curl("/stream?count=50000000", "-o", "/dev/null", "-w", "%{size_download}")
    assert fast.stdout == b"50000000"
    slow.close()
    server.until("live", 0)


@pytest.mark.parametrize("backlog_bytes", [100_000, 2_000_000])
def test_who_writes_on_all_the_same_loses_the_client(serve, backlog_bytes):
    server = serve("unix", backlog_bytes=backlog_bytes)
    slow = server.connect()
    slow.sendall(b"GET /stream?count=50000000&careless=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    server.until("live", 0)
    assert server.stats()["waiting"] < 4 * backlog_bytes
    assert not read_all(slow).endswith(b"0\r\n\r\n")
    slow.close()


def test_a_whole_answer_that_is_not_taken_is_dropped_in_time(serve):
    server = serve("unix", idle_ms=300)
    client = server.connect()
    client.sendall(b"GET /big?bytes=30000000 HTTP/1.1\r\nHost: x\r\n\r\n")
    cut = select.poll()
    cut.register(client, 0)
    assert cut.poll(10_000 * PATIENCE)
    assert len(read_all(client)) < 30_000_000
    client.close()


def test_a_whole_answer_that_is_taken_by_bits_is_dropped_in_time(serve):
    server = serve("unix", answer_ms=1000)
    with server.connect() as client:
        client.sendall(b"GET /big?bytes=30000000 HTTP/1.1\r\nHost: x\r\n\r\n")
        deadline = time.monotonic() + 10 * PATIENCE
        while client.recv(65536):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_an_aborted_answer_is_seen_to_be_broken(server):
    answer = server.curl("/abort")
    assert answer.returncode in (18, 56), answer
    client = server.client()
    client.request("GET", "/abort")
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        client.getresponse().read()
    assert server.curl("/abort?begin=0").returncode in (52, 56)


def test_an_aborted_answer_to_http_1_0_is_reset(serve):
    with serve("tcp").connect() as client:
        client.sendall(b"GET /abort HTTP/1.0\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            while client.recv(1000):
                pass


# ---- bodies in parts ----

def test_a_large_body_passes_through_in_flat_memory(server):
    before = server.memory()
    client = server.connect()
    client.sendall(b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 200000000\r\n\r\n")
    block = b"u" * 1_000_000
    for _ in range(200):
        client.sendall(block)
    assert read_until(client, b"200000000")
    assert server.memory() - before < 30_000_000
    client.close()


def test_a_body_that_is_held_back_waits_in_the_kernel(server):
    body = b"u" * 3_000_000
    client = server.client()
    client.request("POST", "/upload?hold=5", iter([body[:1_000_000], body[1_000_000:]]),
                   {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    assert client.getresponse().read() == b"3000000"
    client.request("POST", "/upload?hold=60000&now=1", body)
    assert client.getresponse().read() == b"3000000"
    client.request("POST", "/upload", b"")
    assert client.getresponse().read() == b"0"


def test_continue_is_said_when_the_body_is_wanted(server):
    for target in ("/upload", "/echo"):
        with server.connect() as client:
            client.sendall(f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                           "Expect: 100-Continue\r\n\r\n".encode())
            assert read_until(client, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.sendall(b"uu")
            assert status(read_until(client, b"\r\n\r\n")) == 200


def test_an_answer_before_the_end_of_the_body_arrives(server):
    client = server.connect()
    client.sendall(b"POST /upload?enough=1000 HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n")
    client.sendall(b"u" * 2_000_000)
    answer = read_all(client)
    assert b"Connection: close\r\n" in answer and answer.endswith(b"enough")
    client.close()


def test_a_body_in_many_small_chunks_is_handed_on_as_it_is_read(serve):
    """Not chunk by chunk: each part costs its reader as much as a large one."""
    server = serve()
    client = server.connect()
    client.sendall(b"POST /upload?parts=1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    server.until("live", 1)
    server.process.send_signal(signal.SIGSTOP)
    client.sendall(b"1\r\nu\r\n" * 10_000 + b"0\r\n\r\n")
    server.process.send_signal(signal.SIGCONT)
    answer = read_until(client, b" parts")
    assert int(answer.split(b"\r\n\r\n")[1].split()[0]) < 20, answer
    assert server.stats()["taken"] == 10_000
    client.close()


def test_a_broken_chunk_ends_a_streamed_body(server):
    answer = server.raw(b"POST /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                        b"1\r\nu\r\nx\r\n")
    assert answer == b""
    server.until("gone", 1)


# ---- turns ----

def test_all_who_ask_at_once_are_answered(serve):
    """Few are begun in a round of the loop; the others wait in line with what they have sent, and no time of
    theirs runs meanwhile."""
    server = serve("unix", header_ms=100)
    clients = [server.connect() for _ in range(60)]
    for client in clients:
        client.sendall(HELLO)
        assert read_until(client, b"hello\n")
    server.process.send_signal(signal.SIGSTOP)
    for number, client in enumerate(clients):
        client.sendall(HELLO * 3 if number % 2 else
                       b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nback")
    server.process.send_signal(signal.SIGCONT)
    for number, client in enumerate(clients):
        if number % 2:
            answers = read_until(client, b"hello\n")
            while answers.count(b"hello\n") < 3:
                answers += client.recv(65536)
        else:
            assert read_until(client, b"back").startswith(b"HTTP/1.1 200 ")
        client.close()
    server.until("live", 0)


def test_an_owner_does_not_wait_for_a_crowd_of_another_at_the_same_address(serve):
    """Nor where both send the first request of their connections, as a proxy's may be."""
    server = serve("tcp")
    crowd = [server.connect() for _ in range(200)]
    late = server.connect()
    sent = server.stats()["sent"]  # it has accepted all of them before that of this question
    server.process.send_signal(signal.SIGSTOP)
    for client in crowd:
        client.sendall(b"GET /hello HTTP/1.1\r\nHost: x\r\nX-Owner: a\r\n\r\n" + HELLO)
    late.sendall(b"GET /stats HTTP/1.1\r\nHost: x\r\nX-Owner: b\r\n\r\n")
    server.process.send_signal(signal.SIGCONT)
    sent = json.loads(read_until(late, b"}").split(b"\r\n\r\n")[1])["sent"] - sent
    answers = read_until(crowd[0], b"hello\n")
    assert sent < 50 * len(answers), "most of the crowd was answered before"
    crowd[0].close()
    for client in crowd[1:]:
        answers = read_until(client, b"hello\n")
        while answers.count(b"hello\n") < 2:
            answers += client.recv(65536)
        client.close()
    late.close()
    server.until("live", 0)


def test_a_newcomer_stands_behind_those_of_its_owner_that_wait(serve):
    server = serve("tcp")
    crowd = [server.connect() for _ in range(400)]
    late = server.connect()
    late.sendall(b"GET /hello HTTP/1.1\r\nHost: x\r\nX-Owner: a\r\n\r\n")
    read_until(late, b"hello\n")
    sent = server.stats()["sent"]
    server.process.send_signal(signal.SIGSTOP)
    for client in crowd:
        client.sendall(b"GET /hello HTTP/1.1\r\nHost: x\r\nX-Owner: a\r\n\r\n")
    server.process.send_signal(signal.SIGCONT)
    size = len(read_until(crowd[0], b"hello\n"))  # the others are in line by then
    late.sendall(b"GET /stats HTTP/1.1\r\nHost: x\r\nX-Owner: a\r\n\r\n")
    sent = json.loads(read_until(late, b"}").split(b"\r\n\r\n")[1])["sent"] - sent
    for client in (late, *crowd):
        client.close()
    assert sent >= len(crowd) * size, "it was begun before others"


@pytest.mark.parametrize("kind", ["unix", "tls"])
def test_bodies_of_one_owner_take_turns(serve, kind):
    """What is beyond its share of a round waits, and all of it comes."""
    server = serve(kind, turn_us=1)
    size, clients = 8000, [server.connect() for _ in range(60)]
    for client in clients:
        client.sendall(b"POST /upload HTTP/1.1\r\nHost: x\r\nX-Owner: a\r\nContent-Length: %d\r\n\r\nu" % (size + 1))
    server.until("taken", len(clients))
    assert server.flooded(clients, b"u" * size) < len(clients) * size / 4
    for client in clients:
        assert read_until(client, b"8001").startswith(b"HTTP/1.1 200 ")
        client.close()
    server.until("live", 0)


# ---- the end ----

def test_draining_finishes_what_is_begun(serve):
    server = serve("unix")
    idle, later, begun = server.connect(), server.connect(), server.connect()
    later.sendall(b"GET /stubborn HTTP/1.1\r\nHost: x\r\n\r\n" + HELLO)
    begun.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na")
    server.until("live", 1)
    assert server.get("/drain?ms=60000", "POST")[1] == b"draining\n"
    assert idle.recv(10) == b""
    with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
        server.connect()
    begun.sendall(b"bc")
    assert read_all(begun).endswith(b"Connection: close\r\n\r\nabc")
    server.process.send_signal(signal.SIGUSR1)
    answer = read_all(later)
    assert answer.endswith(b"later\n") and answer.count(b"HTTP/1.1 ") == 1
    assert b"drained" in server.ended()


def test_draining_does_not_wait_for_clients_that_stand_still(serve):
    server = serve("unix")
    clients = [server.connect() for _ in range(5)]
    clients[0].sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na")
    clients[1].sendall(b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na")
    for client, target in zip(clients[2:], ("stream?count=1000000000", "pipe?bytes=1000000000", "big?bytes=3000000")):
        client.sendall(f"GET /{target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert client.recv(4) == b"HTTP"
    server.until("live", 3)
    assert server.get("/drain?ms=600000", "POST")[1] == b"draining\n"
    assert b"drained" in server.ended()


def is_taken(client):
    """Waits until the server has read what it was sent: it can be asked nothing any more."""
    began = time.monotonic()
    while struct.unpack("i", fcntl.ioctl(client, termios.TIOCOUTQ, bytes(4)))[0] > 0:
        assert time.monotonic() < began + 20 * PATIENCE
        time.sleep(0.01)


@pytest.mark.parametrize("length,part", [("Transfer-Encoding: chunked", b"1\r\nb\r\n"),
                                         (f"Content-Length: {50 << 30}", b"b" * 20_000)])
def test_draining_does_not_wait_for_an_upload_that_will_not_end(serve, length, part):
    """One drips and says no end, another comes faster and is far too long."""
    server = serve("unix")
    client = server.connect()
    client.sendall(f"POST /upload HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n".encode() + part)
    server.until("live", 1)
    assert server.get("/drain?ms=600000", "POST")[1] == b"draining\n"
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 200 * PATIENCE:
            client.sendall(part)
            sent += 1
            time.sleep(0.1)
    assert sent < 200 * PATIENCE and b"drained" in server.ended()


def test_draining_waits_for_an_upload_that_goes_on(serve):
    server = serve("unix", clock=True)
    client, part = server.connect(), b"u" * 50_000
    client.sendall(f"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: {4 * len(part)}\r\n\r\n".encode())
    server.until("live", 1)
    assert server.get("/drain?ms=60000", "POST")[1] == b"draining\n"
    for _ in range(3):
        client.sendall(part)
        is_taken(client)
        server.advance(2.1)
    client.sendall(part)
    assert b"200 OK" in read_all(client)
    assert b"drained" in server.ended()


def test_draining_cuts_in_the_end(serve):
    server = serve("tcp")
    follower = server.connect()
    follower.sendall(b"GET /follow HTTP/1.1\r\nHost: x\r\n\r\n")
    server.until("followers", 1)
    started = time.monotonic()
    server.get("/drain?ms=300", "POST")
    assert not read_all(follower).endswith(b"0\r\n\r\n")
    assert 0.2 < time.monotonic() - started < 2 * PATIENCE
    assert b"drained" in server.ended()


def test_stopping_cuts_all_and_leaves_nothing(serve):
    server = serve("unix")
    clients = [server.connect() for _ in range(4)]
    for client, data in zip(clients, (HELLO[:20], b"GET /follow HTTP/1.1\r\nHost: x\r\n\r\n",
                                      b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\na",
                                      b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nu")):
        client.sendall(data)
    server.until("live", 2)
    server.stop()
    for client in clients:
        read_all(client)
        client.close()
