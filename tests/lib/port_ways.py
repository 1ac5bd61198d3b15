"""Sandboxes with servers in them, and the ways to these from outside: what the tests of ports share."""
import contextlib
import http.client
import os
import pathlib
import signal
import socket
import subprocess

import pytest

import guest_servers as guest
import harness
import sandboxes
import serving

DOMAIN = "boxes.test"
CONFIG = f"[boxes]\npool = 1\nmemory = 512M\n[network]\nport_domain = {DOMAIN}\n"
SECONDS = 60 * harness.PATIENCE


class Sandbox(sandboxes.Sandbox):
    """Each of its requests has a connection of its own, so that the engine may end meanwhile."""

    def __init__(self, serve, **spec):
        self.serve = serve
        super().__init__(serve.client(), **spec)

    def __exit__(self, *_):
        super().__exit__()
        self.client.close()

    def ask(self, method, rest="", body=None, **more):
        with self.serve.client() as client:
            return client.ask(method, self.path + rest, body, **more)

    def said(self, process):
        with self.serve.client() as client:
            return client.get(f"{process}/output").bytes.decode(errors="replace")

    def wait_said(self, process, word):
        harness.wait_for(lambda: word in self.said(process), SECONDS, word)

    def serves(self):
        process = self.start("python3", "-c", pathlib.Path(guest.__file__).read_text(encoding="utf-8"))
        self.wait_said(process, "ready")
        return process

    def open(self, port, **more):
        answer = self.ask("POST", "/ports", {"port": port, **more})
        assert answer.status == 200, answer
        return answer.json

    def close(self, port):
        return self.ask("DELETE", f"/ports/{port}")

    def ports(self):
        answer = self.ask("GET", "/ports")
        assert answer.status == 200, answer
        return {port["port"]: port for port in answer.json["ports"]}

    def host_port(self, port):
        return int(self.open(port)["url"].rpartition(":")[2])


def environment(serve, **more):
    return {**os.environ, "COVE_URL": f"unix:{serve.socket}", **more}


def over_http(serve):
    return {"COVE_URL": f"http://127.0.0.1:{serve.port}", "COVE_API_KEY": serve.key}


def cove(serve, *words, **more):
    done = subprocess.run([harness.COVE, *map(str, words)], env=environment(serve, **more), text=True,
                          capture_output=True, timeout=SECONDS, check=False)
    return done


class Forward:
    """A `cove port` that runs; `port` is where it listens."""

    def __init__(self, serve, sandbox, port, *words, **more):
        self.process = subprocess.Popen(
            [harness.COVE, "port", sandbox, str(port), "--listen", "0", *words],
            env=environment(serve, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline().strip()
        assert line.startswith("127.0.0.1:"), (line, self.process.poll() and self.process.stderr.read())
        self.port = int(line.rpartition(":")[2])

    def __enter__(self):
        return self

    def end(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(SECONDS) == -signal.SIGINT
        said = self.process.stderr.read()
        self.process.stderr.close()
        self.process.stdout.close()
        return said

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end()


@contextlib.contextmanager
def by_listener(box, port):
    yield box.host_port(port)


@contextlib.contextmanager
def by_command(box, port):
    with Forward(box.serve, box.id, port) as forward:
        yield forward.port


@contextlib.contextmanager
def by_command_over_http(box, port):
    with Forward(box.serve, box.id, port, **over_http(box.serve)) as forward:
        yield forward.port


STREAMS = [by_listener, by_command, by_command_over_http]


def connect(port):
    opened = socket.create_connection(("127.0.0.1", port), SECONDS)
    opened.settimeout(SECONDS)
    return opened


def read_all(opened):
    said = b""
    while data := opened.recv(1 << 16):
        said += data
    return said


class Way:
    """To an HTTP server in a box: where to connect, and what to say."""

    def __init__(self, port, prefix="", **headers):
        self.port, self.prefix, self.headers = port, prefix, headers

    def ask(self, path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        connection.request(method, self.prefix + path, body, {**self.headers, **headers},
                           encode_chunked=hasattr(body, "__next__"))
        return connection, connection.getresponse()

    def get(self, path, *words, **headers):
        connection, answer = self.ask(path, *words, **headers)
        with contextlib.closing(connection):
            return serving.Answer(answer, answer.read())


@contextlib.contextmanager
def web_by_listener(box, port):
    yield Way(box.host_port(port))


@contextlib.contextmanager
def web_by_path(box, port):
    yield Way(box.serve.port, f"{box.path}/ports/{port}", Authorization=f"Bearer {box.serve.key}")


def named(box, port, **headers):
    return Way(box.serve.port, Host=f"{port}-{box.id}.{DOMAIN}:{box.serve.port}", **headers)


@contextlib.contextmanager
def web_by_name(box, port):
    yield named(box, port, **{"X-Cove-Token": box.serve.key})


@contextlib.contextmanager
def web_by_command(box, port):
    with by_command(box, port) as host_port:
        yield Way(host_port)


WEBS = [web_by_listener, web_by_path, web_by_name, web_by_command]


def one_box():
    """The fixture `box` of a file: one sandbox for its tests, in which all servers run."""
    @pytest.fixture(scope="module")
    def box(serve):
        with Sandbox(serve) as made:
            made.guest = made.serves()
            yield made

    return box


def token(box, *verbs, **more):
    answer = box.ask("POST", "/tokens", {"verbs": verbs, **more})
    assert answer.status == 201, answer
    return answer.json["token"]


def is_closed(port):
    try:
        connect(port).close()
    except ConnectionRefusedError:
        return True
    return False


def echoes(port):
    with connect(port) as opened:
        opened.sendall(b"x")
        return opened.recv(1) == b"x"


LISTEN = """
import socket, sys
held = []
for text in sys.stdin:
    what, family, host, ports = text.split()
    first, _, last = ports.partition("-")
    for port in range(int(first or 0), int(last or first or 0) + 1) if what == "open" else ():
        s = socket.socket({"4": socket.AF_INET, "6": socket.AF_INET6}[family])
        if family == "6":
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((host, port))
        s.listen()
        held.append(s)
    if what == "close":
        [s.close() for s in held]
        held = []
    print("done", text.strip(), flush=True)
"""


class Listener:
    def __init__(self, sandbox):
        self.sandbox, self.process = sandbox, sandbox.start("python3", "-c", LISTEN, open_stdin=True)

    def tell(self, text):
        self.sandbox.type(self.process, f"{text}\n")
        self.sandbox.wait_said(self.process, f"done {text}")


def raw(port, text):
    """A connection on which this was said."""
    opened = connect(port)
    opened.sendall(text.encode())
    return opened


def is_cut(opened):
    """Whether also its other half has ended, which only who sends hears."""
    try:
        opened.sendall(b"x")
    except ConnectionError:
        return True
    return False


STAYS = """
import socket, threading
def stay(one):
    one.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
    while one.recv(100):
        pass
    one.close()
server = socket.create_server(("127.0.0.1", 7000))
while True:
    threading.Thread(target=stay, args=(server.accept()[0],), daemon=True).start()
"""

# A client's first words of a WebSocket.
SWITCH = ("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
