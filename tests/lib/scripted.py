"""A server that says exactly what a test wants it to, right or wrong: raw bytes on a unix socket."""
import contextlib
import json
import os
import socket
import subprocess
import threading

import pytest

import harness
from harness import COVE


def cove(*words, limit=30, stdin=b"", env=None, cwd=None):
    """Runs a command of cove to its end."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("COVE_", "XDG_"))}
    return subprocess.run([COVE, *words], capture_output=True, **given(stdin), timeout=limit,
                          env={**environment, **(env or {})}, cwd=cwd, check=False)


def given(stdin):
    """Standard input with these bytes; without any there is none, for cove passes on whatever is piped to it."""
    return {"input": stdin} if stdin else {"stdin": subprocess.DEVNULL}


class Request:
    def __init__(self, head, body):
        line, *headers = head.decode("latin-1").split("\r\n")
        self.method, self.path, self.version = line.split(" ")
        self.headers = {name.lower(): value.strip() for name, value in
                        (header.split(":", 1) for header in headers if header)}
        self.body = body

    def json(self):
        return json.loads(self.body)


def read_request(connection, buffer):
    while b"\r\n\r\n" not in buffer:
        piece = connection.recv(65536)
        if not piece:
            return None, buffer
        buffer += piece
    head, buffer = buffer.split(b"\r\n\r\n", 1)
    request = Request(head, b"")
    length = int(request.headers.get("content-length", "0"))
    while len(buffer) < length:
        piece = connection.recv(65536)
        if not piece:
            return None, buffer
        buffer += piece
    request.body = buffer[:length]
    return request, buffer[length:]


def answer(body=b"", status=200, headers=""):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return (f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n").encode() + body


def chunked(*pieces, end=True):
    text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    for piece in pieces:
        text += b"%x\r\n%s\r\n" % (len(piece), piece)
    return text + (b"0\r\n\r\n" if end else b"")


def problem(status, code, detail, **more):
    return answer({"type": f"urn:cove:error:{code}", "title": code, "status": status, "code": code,
                   "detail": detail, **more}, status)


def good(result):
    assert (result.returncode, result.stderr) == (0, b""), result
    return result.stdout.decode()


def failed(result, *words):
    text = result.stderr.decode()
    assert result.returncode == 125 and text.count("\n") == 1 and result.stdout == b"", result
    for word in words:
        assert word in text, text


def commands(**more):
    """The fixtures `env` and `cove` of a file: what its `serve` is reached with, and a call of the program with it."""
    @pytest.fixture(scope="module")
    def env(serve):
        return {**os.environ, "COVE_URL": f"unix:{serve.socket}", "PATH": f"{COVE.parent}:{os.environ['PATH']}", **more}

    @pytest.fixture(scope="module")
    def call(env):
        return lambda *words, stdin=b"", limit=60, **more: subprocess.run(
            [COVE, *map(str, words)], capture_output=True, **given(stdin), timeout=limit * harness.PATIENCE,
            env={**env, **more}, check=False)

    return env, call


class Listening:
    """Gives each connection that comes to take(), in a thread of its own."""

    def __init__(self, listener):
        self.listener = listener
        self.connections = 0
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections += 1
                threading.Thread(target=self.take, args=(connection,), daemon=True).start()

    def close(self):
        """Only when the thread that accepts has ended is it closed: else that thread could have been about to accept,
        and take what comes to the next socket that gets the same number."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()


CUT = object()  # close the connection here


class Server(Listening):
    """`script(request)` returns what to send: bytes, or a list of bytes and CUT. `last` has the last request of each
    connection that its client has ended."""

    def __init__(self, path, script):
        self.path = str(path)
        self.script = script
        self.requests = []
        self.last = []
        self.env = {"COVE_URL": f"unix:{self.path}"}
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen(16)
        super().__init__(listener)

    def take(self, connection):
        buffer, last = b"", None
        with connection, contextlib.suppress(OSError):
            while True:
                request, buffer = read_request(connection, buffer)
                if request is None:
                    self.last.append(last)
                    return
                self.requests.append(request)
                last = request
                said = self.script(request)
                for piece in said if isinstance(said, list) else [said]:
                    if piece is CUT:
                        return
                    if callable(piece):
                        piece()
                    else:
                        connection.sendall(piece)
