"""A server with a route for each promise of the HTTP room (tests/http/server.c), and how to talk to it."""
import http.client
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import time

import pytest

import serving

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVER = os.environ.get("HTTP_SERVER", str(ROOT / "build/asan/tests/http-server"))
# Of every limit a test sets for itself: what is late on a slow, loaded machine is late and not wrong.
PATIENCE = int(os.environ.get("HTTP_PATIENCE", "6"))
# For a test of what is decided above the transport, as by the parsers: once is enough.
on_unix = pytest.mark.parametrize("server", ["unix"], indirect=True)
HELLO = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"


class Server:
    def __init__(self, where, limits, lean=False, tls=None, clock=None):
        """`tls`: a directory with the server's certificate and key; `clock`: a file, for its time to be set."""
        self.path = where
        self.tls = ssl.create_default_context(cafile=str(tls / "chain.pem")) if tls else None
        self.tls_file = tls / "chain.pem" if tls else None
        self.clock = serving.Clock(clock) if clock else None
        self.said = None
        self.process = subprocess.Popen(
            [SERVER, f"unix:{where}" if where else "tcp",
             *(f"{name}={value}" for name, value in limits.items())],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            # For its memory to be measured: the sanitizer keeps what was freed for a while.
            env={**os.environ, **({"HTTP_TLS": str(tls)} if tls else {}),
                 **({"COVE_TEST_CLOCK": str(clock)} if clock else {}),
                 "ASAN_OPTIONS": "quarantine_size_mb=1:thread_local_quarantine_size_kb=16"
                 if lean or tls else ""})
        self.port = int(self.process.stdout.readline().split()[1])

    def connect(self, timeout=10 * PATIENCE):
        if self.path:
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(timeout)
            client.connect(str(self.path))
        else:
            client = socket.create_connection(("127.0.0.1", self.port), timeout)
        if self.tls:
            client = self.tls.wrap_socket(client, server_hostname="localhost")
        return client

    def client(self):
        """The standard library's client, on this server's socket."""
        connection = http.client.HTTPConnection("x", timeout=10 * PATIENCE)
        connection.sock = self.connect()
        return connection

    def get(self, target, method="GET", body=None, headers=None):
        client = self.client()
        client.request(method, target, body, headers or {})
        response = client.getresponse()
        text = response.read()
        client.close()
        return response, text

    def stats(self):
        return json.loads(self.get("/stats")[1])

    def until(self, name, value, limit=5 * PATIENCE):
        """Waits until a number of /stats is what it must be; how long it took."""
        started = time.monotonic()
        while (stats := self.stats())[name] != value:
            assert time.monotonic() - started < limit, stats
            time.sleep(0.01)
        return time.monotonic() - started

    def still(self, limit=30 * PATIENCE):
        """Waits until it took and sent nothing between two looks, for others have their turns between these: it has
        done what it can as long as they neither send nor read. /stats then."""
        deadline = time.monotonic() + limit
        before = self.stats()
        while True:
            now = self.stats()
            # A look is less than this.
            if now["accepted"] == before["accepted"] + 1 and all(now[way] - before[way] < 1000
                                                                 for way in ("received", "sent")):
                return now
            assert time.monotonic() < deadline, (before, now)
            before = now

    def advance(self, seconds):
        """Its clock; returns when all has run that is due then."""
        self.clock.advance(seconds, ("engine",))

    def curl(self, target, *words, **more):
        where = ["--unix-socket", self.path] if self.path else []
        where += ["--cacert", self.tls_file] if self.tls else []
        return subprocess.run(["curl", "-sS", "--max-time", str(20 * PATIENCE), *where, *words,
                               f"http{'s' if self.tls else ''}://localhost:{self.port or 1}{target}"],
                              capture_output=True, timeout=30 * PATIENCE, check=False, **more)

    def raw(self, data, limit=10 * PATIENCE):
        """Sends bytes and reads until the server closes."""
        with self.connect(limit) as client:
            client.sendall(data)
            return read_all(client)

    def flooded(self, clients, data):
        """Each client sends this at once; how many bytes it read before it answered an owner who asked with them."""
        other = self.connect()
        before = self.stats()["received"]  # it has accepted all of them before that of this question
        self.process.send_signal(signal.SIGSTOP)
        for client in clients:
            client.sendall(data)
        other.sendall(b"GET /stats HTTP/1.1\r\nHost: x\r\nX-Owner: other\r\n\r\n")
        self.process.send_signal(signal.SIGCONT)
        stats = json.loads(read_until(other, b"}").split(b"\r\n\r\n")[1])
        other.close()
        return stats["received"] - before

    def memory(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def ended(self):
        """Waits until it has ended by itself; what it said."""
        if self.said is None:
            self.said, errors = self.process.communicate(timeout=20 * PATIENCE)
            assert self.process.returncode == 0 and not errors, errors.decode()
        return self.said

    def stop(self):
        if self.said is None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.ended()


def read_all(client):
    data = b""
    while True:
        try:
            part = client.recv(65536)
        except ConnectionResetError:
            return data
        if not part:
            return data
        data += part


def read_until(client, mark):
    data = b""
    while mark not in data:
        part = client.recv(65536)
        assert part, data
        data += part
    return data


def status(answer):
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer.split(b" ")[1])
