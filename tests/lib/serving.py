"""A running `cove serve` of the test build, and clients of its API: nothing between the test and the bytes
but http.client."""
import contextlib
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

import pytest

import harness


NATIVE = harness.ROOT / "src" / "front" / "native"
USUAL = "[boxes]\npool = 1\n"


def routes_of_source():
    """Method and pattern of each route there is, in the order of the table. A route for any method and any path below
    it stands in the document as a GET of `{path}`."""
    text = (NATIVE / "routes.c").read_text()
    defined = dict(re.findall(r'#define (SANDBOX|PROCESS|FILES|KERNEL) (.*)', text))
    rows = re.findall(r'\{\{"([A-Z]+|\*)", ([^,]+),', text)
    assert len(rows) > 20

    def expand(pattern):
        for _ in range(3):
            for name, value in defined.items():
                pattern = re.sub(rf"\b{name}\b", lambda _, value=value: value, pattern)
        return "".join(re.findall(r'"([^"]*)"', pattern)).replace("/**", "/{path}")

    return [(method.replace("*", "GET"), expand(pattern)) for method, pattern in rows]


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Answer:
    def __init__(self, response, body):
        self.status = response.status
        self.headers = response.headers
        self.bytes = body

    @property
    def json(self):
        return json.loads(self.bytes)

    @property
    def code(self):
        """Of a problem, whose form is checked along the way."""
        assert self.headers["Content-Type"] == "application/problem+json", self
        problem = self.json
        assert problem["type"] == f"urn:cove:error:{problem['code']}", problem
        assert problem["status"] == self.status and problem["title"], problem
        return problem["code"]

    @property
    def refusal(self):
        return self.status, self.code

    def __repr__(self):
        return f"{self.status} {self.bytes[:600]!r}"


class Client:
    """One connection that is kept; over TCP if there is a port, else over the unix socket. One that is renewed is
    made again when the server has ended it between two requests, as it does when its clock is set ahead."""

    def __init__(self, path=None, port=None, key=None, timeout=60, renewed=False):
        timeout *= harness.PATIENCE
        self.connection = (UnixConnection(path, timeout) if port is None else
                           http.client.HTTPConnection("127.0.0.1", port, timeout=timeout))
        self.key = key
        self.renewed = renewed

    def send(self, method, path, body=None, headers=None, query=None):
        headers = dict(headers or {})
        if self.key is not None:
            headers.setdefault("Authorization", f"Bearer {self.key}")
        if body is not None and not isinstance(body, (bytes, str)) and not hasattr(body, "read"):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        if query:
            path += "?" + urllib.parse.urlencode(query, doseq=True)
        if self.renewed and self.connection.sock and select.select([self.connection.sock], [], [], 0)[0]:
            self.connection.close()
        self.connection.request(method, path, body, headers)

    def receive(self):
        response = self.connection.getresponse()
        return Answer(response, response.read())

    def ask(self, method, path, body=None, headers=None, query=None):
        self.send(method, path, body, headers, query)
        return self.receive()

    def get(self, path, **more):
        return self.ask("GET", path, **more)

    def post(self, path, body=None, **more):
        return self.ask("POST", path, body, **more)

    def delete(self, path, **more):
        return self.ask("DELETE", path, **more)

    def close(self):
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def one_for_all(config=USUAL, clock=False, in_world=False):
    """The fixtures of a file whose tests one server serves: `nothing_left`, for it is after the last of them
    that nothing may be left, which the server's end looks at; `serve`, maybe in the network of the file's `world`; and
    `api`, a client of it."""
    @pytest.fixture(autouse=True)
    def nothing_left():
        pass

    @pytest.fixture(scope="module")
    def serve(tmp_path_factory, request):
        place = tmp_path_factory.mktemp("serve")
        with request.getfixturevalue("world").serve(place) if in_world else Serve(place, config, clock=clock) as started:
            yield started

    @pytest.fixture
    def api(serve):
        with serve.client() as client:
            yield client

    return nothing_left, serve, api


class Lines:
    """An NDJSON stream that is being read."""

    def __init__(self, client, path, query=None):
        self.client = client
        client.send("GET", path, query=query)
        self.response = client.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        assert self.response.headers["Content-Type"] == "application/x-ndjson"

    def __iter__(self):
        return self

    def __next__(self):
        line = self.response.readline()
        if not line:
            raise StopIteration
        return json.loads(line)

    def until(self, kind):
        """All lines up to one of this type, that one included."""
        lines = []
        for line in self:
            lines.append(line)
            if line["type"] == kind:
                return lines
        raise AssertionError(f"the stream ended without a line of type {kind}: {lines[-3:]}")


def told(client):
    """All events so far. An engine that stood still meanwhile ends the answer before it says any of them."""
    return harness.wait_for(lambda: list(Lines(client, "/v1/events", {"from": 1, "for_ms": 300})), what="events")


def text_of(lines, stream):
    return "".join(line["data"] for line in lines if line["type"] == stream)


class Clock:
    """How far the clocks of a server are ahead of the machine's: a file, whose form src/base/set_clock.c says."""

    # Nanoseconds ahead, and the number of the request; then for each program the number that it has run.
    WRITTEN = 16
    PROGRAMS = ("keeper", "engine")

    def __init__(self, path):
        self.path = path
        self.seconds = 0
        self.asked = 0
        self.path.write_bytes(bytes(self.WRITTEN + 8 * len(self.PROGRAMS)))

    def is_through(self, program):
        with open(self.path, "rb") as file:
            file.seek(self.WRITTEN + 8 * self.PROGRAMS.index(program))
            return int.from_bytes(file.read(8), "little") >= self.asked

    def advance(self, seconds, awaits=PROGRAMS):
        """Returns when these programs have run all that is due then. What that begins may still go on."""
        self.seconds += seconds
        self.asked += 1
        with open(self.path, "r+b", buffering=0) as file:
            file.write(int(self.seconds * 1e9).to_bytes(8, "little"))
            file.write(self.asked.to_bytes(8, "little"))
        for program in awaits:
            harness.wait_for(lambda program=program: self.is_through(program), 30 * harness.PATIENCE,
                             f"the {program}, whose clock was set ahead")

    def until(self, holds, within, what, step=1):
        """Goes on in steps until it holds; after so many seconds no further, but what is under way is waited for."""
        end = self.seconds + within
        while self.seconds < end and not holds():
            self.advance(step)
        return harness.wait_for(holds, 10 * harness.PATIENCE, what)


class Serve:
    """Runs one; used as a context, which stops it and checks that nothing is left. With a clock, the time of its
    keeper and engine is that one's."""

    def __init__(self, directory, config=USUAL, options=(), clock=False):
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.socket = directory / "api.sock"
        self.data = directory / "data"
        self.log = directory / "log"
        self.port = harness.free_port()
        self.config = directory / "cove.conf"
        self.config.write_text(config, encoding="utf-8")
        self.command = [harness.COVE, "serve", "--data", self.data, "--socket", self.socket,
                        "--listen", f"127.0.0.1:{self.port}", "--config", self.config, *options]
        self.clock = Clock(directory / "clock") if clock else None
        self.process = None
        self.before = None

    def said(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def key(self):
        return (self.data / "engine" / "operator.key").read_text(encoding="ascii").strip()

    def client(self, timeout=60):
        return Client(path=self.socket, timeout=timeout, renewed=self.clock is not None)

    def tcp(self, key=None, timeout=60):
        return Client(port=self.port, key=key, timeout=timeout, renewed=self.clock is not None)

    def is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"cove serve ended by itself:\n{self.said()}")
        try:
            with self.client(timeout=10) as client:
                return client.get("/readyz").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def wait_ready(self, seconds=30):
        harness.wait_for(self.is_ready, seconds * harness.PATIENCE, "/readyz")

    def heed(self):
        """Until it has read what was sent before over its socket: whoever comes later is accepted later."""
        with self.client() as client:
            assert client.get("/readyz").status == 200

    def engine_pid(self):
        """cove-engine, a child of the keeper that the process has become."""
        for pid in harness.children_of(self.process.pid):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/comm", encoding="ascii") as comm:
                    if comm.read().strip() == "cove-engine":
                        return pid
        return None

    def kill_engine(self, number=signal.SIGKILL):
        """As it may die at any moment; the keeper starts the next one."""
        old = self.engine_pid()
        assert old, "there is no engine to kill"
        os.kill(old, number)
        self.wait_next_engine(old)

    def wait_next_engine(self, old):
        harness.wait_for(lambda: self.engine_pid() not in (None, old), 60 * harness.PATIENCE, "the next engine")
        self.wait_ready()

    def reload(self, config=None):
        """Returns when the next engine serves, which has read this, or the file as it is; what the log says since."""
        old, before = self.engine_pid(), len(self.said())
        if config is not None:
            self.config.write_text(config, encoding="utf-8")
        self.process.send_signal(signal.SIGHUP)
        self.wait_next_engine(old)
        return self.said()[before:]

    def __enter__(self):
        self.before = harness.host()
        with open(self.log, "ab") as log:
            environment = {**os.environ, "COVE_TEST_CLOCK": str(self.clock.path)} if self.clock else None
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=environment)
        try:
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60 * harness.PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        harness.check_nothing_left(self.before)


def at_once(*functions, seconds=60):
    """Calls each in a thread of its own; their results in order."""
    results = [None] * len(functions)

    def call(index, function):
        results[index] = function()

    threads = [threading.Thread(target=call, args=item) for item in enumerate(functions)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds * harness.PATIENCE
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
        assert not thread.is_alive(), "a request was not answered"
    return results
