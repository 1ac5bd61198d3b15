"""Answers whose length is told, and what goes out of a pipe."""
import http.client
import subprocess
import time

import pytest
from clients import HELLO, read_all, read_until

PATTERN = bytes(i % 251 for i in range(65521))


def pattern(size):
    return (PATTERN * (size // len(PATTERN) + 1))[:size]


def test_a_sized_answer_has_its_length_and_keeps_the_connection(server):
    client = server.client()
    own = client.sock
    for size in (0, 1, 999, 100_000, 1_500_000):
        client.request("GET", f"/sized?length={size}")
        response = client.getresponse()
        body = response.read()
        assert response.headers["Content-Length"] == str(size) and client.sock is own
        assert "Transfer-Encoding" not in response.headers
        assert body == b"".join(pattern(i % 65521 + 1000)[i % 65521:i % 65521 + 1000]
                                for i in range(0, size, 1000))[:size]
    client.close()


def test_a_sized_answer_of_another_size_is_cut(server):
    for length, told in ((1000, 999), (1000, 0), (10, 1001)):
        with server.connect() as client:
            client.sendall(f"GET /sized?length={length}&bytes={told} HTTP/1.1\r\nHost: x\r\n\r\n"
                           .encode() + HELLO)
            answer = read_all(client)
        assert b"hello" not in answer
        size = len(answer.partition(b"\r\n\r\n")[2])
        assert size < length if told < length else size <= length
        server.until("live", 0)


def test_head_of_a_sized_answer(server):
    for target, length in (("/sized?length=12345&bytes=0", "12345"), ("/pipe?bytes=200000", "200000")):
        response, body = server.get(target, "HEAD")
        assert response.headers["Content-Length"] == length and body == b""
    server.until("live", 0)


def test_a_pipe_arrives_whole_and_keeps_the_connection(server):
    client = server.client()
    own = client.sock
    for size in (0, 1, 65536, 5_000_000):
        for chunked in (0, 1):
            client.request("GET", f"/pipe?bytes={size}&chunked={chunked}")
            response = client.getresponse()
            assert ("Content-Length" in response.headers) == (not chunked)
            assert response.read() == pattern(size) and client.sock is own
    client.close()
    server.until("live", 0)


def test_pipes_for_http_1_0(server):
    with server.connect() as client:
        client.sendall(b"GET /pipe?bytes=100000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        head = read_until(client, b"\r\n\r\n")
        assert b"Content-Length: 100000\r\n" in head and b"Connection: keep-alive\r\n" in head
        client.sendall(b"GET /pipe?bytes=100000&chunked=1 HTTP/1.0\r\n\r\n")
        answer = head.split(b"\r\n\r\n", 1)[1] + read_all(client)
    assert answer[:100_000] == pattern(100_000) and answer.endswith(pattern(100_000))


def test_a_pipe_that_holds_less_than_was_told_is_cut(server):
    """And nobody spins, or waits, for what a hostile writer does not write."""
    for chunked in (0, 1):
        client = server.client()
        client.request("GET", f"/pipe?bytes=1000&lie=5000&chunked={chunked}")
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            client.getresponse().read()
        client.close()
    server.until("live", 0)


def test_a_client_that_leaves_during_a_pipe(server):
    for size in (50_000_000, 1_000_000_000):
        before = server.stats()["gone"]
        client = server.connect()
        client.sendall(f"GET /pipe?bytes={size} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert len(client.recv(100_000)) > 0
        client.close()
        server.until("gone", before + 1)
    server.until("live", 0)


def test_a_slow_reader_of_a_pipe_holds_up_nobody_and_costs_nothing(server):
    before = server.memory()
    slow = []
    for _ in range(20):
        client = server.connect()
        client.sendall(b"GET /pipe?bytes=500000000 HTTP/1.1\r\nHost: x\r\n\r\n")
        client.recv(1)
        slow.append(client)
    for _ in range(20):
        assert server.get("/hello")[1] == b"hello\n"
    assert server.memory() - before < 20_000_000
    # It waits for room in the sockets, and for nothing else.
    def spent():
        fields = open(f"/proc/{server.process.pid}/stat", encoding="ascii").read().split()
        return int(fields[13]) + int(fields[14])
    def in_a_while():
        start = spent()
        time.sleep(0.5)
        return spent() - start
    assert any(in_a_while() < 25 for _ in range(4))
    for client in slow:
        client.close()
    server.until("live", 0)


def test_a_download_leaves_room_for_others(clear_server):
    """One takes all it can get, others have their answers between its turns."""
    server = clear_server
    with subprocess.Popen(["curl", "-sS", "-o", "/dev/null", *(["--unix-socket", server.path]
                           if server.path else []),
                           f"http://127.0.0.1:{server.port or 1}/pipe?bytes=20000000000"]) as curl:
        server.until("live", 1)
        client = server.client()
        for _ in range(100):
            client.request("GET", "/hello")
            assert client.getresponse().read() == b"hello\n"
        assert curl.poll() is None
        curl.terminate()
        client.close()
    server.until("live", 0)


def test_where_the_socket_takes_no_splice_it_is_copied(server):
    for chunked in (0, 1):
        assert server.get(f"/pipe?bytes=5000000&chunked={chunked}&copied=1")[1] == pattern(5_000_000)
    server.until("live", 0)
