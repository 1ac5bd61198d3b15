"""Floods from inside of a box (19, and 18 as far as it is the network): names, connections, and connections that say
nothing. Who makes one is told so, or waits; another tenant's names, connections and commands do not."""
import json
import os
import statistics
import textwrap
import threading
import time

import pytest

import harness
import serving
import worlds
from dialling import reaches, Sandbox

MIB = 1 << 20
NAMES = {**worlds.NAMES, "*.slow.test": None}
SECONDS = harness.scaled(4)

nothing_left, serve, client = serving.one_for_all(in_world=True)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with worlds.World(tmp_path_factory.mktemp("world"), NAMES) as made:
        yield made


def of_engine(serve):
    """Its memory, and its files."""
    pid = serve.engine_pid()
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        rss = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))
    return rss, len(os.listdir(f"/proc/{pid}/fd"))


class Neighbour:
    """Another tenant: runs commands, looks names up that nobody asked for before, and dials them, all the time while
    a block of code runs."""

    def __init__(self, serve):
        with serve.client() as operator:
            key = operator.post("/v1/keys", {"label": "next door", "tenant": "other", "scopes": ["read", "write"]})
        self.client = serving.Client(path=serve.socket, key=key.json["secret"])
        self.stop = threading.Event()
        self.calls, self.dials, self.execs, self.failure = 0, [], [], None
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        try:
            with self.client, Sandbox(self.client) as sandbox:
                while not self.stop.is_set() or self.calls < 3:
                    began = time.monotonic()
                    assert sandbox.run("true")["process"]["exit_code"] == 0
                    self.execs.append(time.monotonic() - began)
                    answer = sandbox.dial(f"n{id(self)}-{self.calls}.wild.test:80")[0]
                    assert reaches(answer)
                    self.dials.append(answer[1])
                    self.calls += 1
                    self.stop.wait(0.05)  # a sandbox may ask for so many names in a second
        except BaseException as failure:  # pylint: disable=broad-except
            self.failure = failure

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(120 * harness.PATIENCE)
        assert not self.thread.is_alive()
        assert self.failure is None, self.failure
        # A question that is lost is asked again after five seconds.
        assert max(self.dials) < 4.5 * harness.PATIENCE, self.dials
        assert max(self.execs) < 4.5 * harness.PATIENCE, self.execs
        for usual in map(statistics.median, (self.dials, self.execs)):
            assert usual < harness.PATIENCE, (self.dials, self.execs)


# Begins each: `name()` on the wire, `question()`, and as many processes as it likes.
BEGIN = r"""
import os, random, select, socket, struct, sys, time
until = time.monotonic() + float(sys.argv[1])
def name(text):
    return b"".join(bytes([len(part)]) + part.encode() for part in text.split(".")) + b"\0"
def question(text, kind=1):
    return struct.pack("!HHHHHH", random.randrange(65536), 0x100, 1, 0, 0, 0) + name(text) + struct.pack("!HH", kind, 1)
def forked(count, function):
    children = []
    for i in range(count):
        child = os.fork()
        if child == 0:
            try:
                function(i)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
"""

QUESTIONS = r"""
def pour(i):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(("198.18.0.1", 53))
    s.setblocking(False)
    count = 0
    while time.monotonic() < until:
        count += 1
        packet = (question(f"x{i}-{count}.wild.test"), question(f"{'y' * 60}{count % 999}.{'z' * 60}.denied.test", 16),
                  os.urandom(400), question("four.test", 28))[count % 4]
        try:
            s.send(packet)
        except OSError:
            time.sleep(0.001)
        if count % 64 == 0:
            try:
                while True: s.recv(512)
            except OSError: pass
def stream(i):
    while time.monotonic() < until:
        try:
            with socket.create_connection(("8.8.8.8", 53), 5) as s:
                while time.monotonic() < until:
                    packet = question(f"s{i}-{random.random()}.wild.test")
                    s.sendall((struct.pack("!H", len(packet)) + packet) * 20)
                    s.recv(65536)
        except OSError: pass
forked(4, lambda i: pour(i) if i < 3 else stream(i))
"""


def run(sandbox, script, seconds=SECONDS):
    return sandbox.output("python3", "-c", BEGIN + textwrap.dedent(script), str(seconds))


def test_19_a_flood_of_questions(serve, client, world):
    with Sandbox(client, network={"allow": ["*.wild.test", "four.test"]}) as sandbox:
        memory, _ = of_engine(serve)
        began, before = time.monotonic(), len(world.said())
        with Neighbour(serve) as neighbour:
            run(sandbox, QUESTIONS)
            took = time.monotonic() - began
        lines = [line.split(" ") for line in world.said()[before:] if line.startswith("dns ")]
        asked = [line for line in lines if line[1][0] in "xs" or line[1] == "four.test"]
        # Two families each; as many as there may be, and no other.
        assert 0 < len(asked) <= 2 * (200 + 50 * (took + 1)), (len(asked), took)
        assert not [line for line in lines if "denied" in line[1] or line[2] not in ("A", "AAAA")]
        assert neighbour.calls >= 3
        assert sandbox.records(kind="lookup", reason="limit"), "it is told"
        assert of_engine(serve)[0] < memory + 32 * MIB
        harness.wait_for(lambda: sandbox.dial("after.wild.test:80")[0][0].startswith("hello"),
                         60 * harness.PATIENCE, "its own names, when it is over")


SLOW = r"""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("198.18.0.1", 53))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
codes = {}
def hear(seconds):
    while select.select([s], [], [], seconds)[0]:
        code = s.recv(512)[3] & 15
        codes[code] = codes.get(code, 0) + 1
for i in range(10000):
    s.send(question(f"name{i}.slow.test"))
    if i % 32 == 0:
        hear(0)
        time.sleep(0.005)
while time.monotonic() < until:
    hear(0.2)
print(sum(codes.values()), sorted(codes))
"""


@pytest.mark.parametrize("boxes", [1, 3])
def test_19_ten_thousand_names_that_nobody_answers(serve, client, boxes):
    memory, _ = of_engine(serve)
    clients = [serve.client() for _ in range(boxes)]

    def slow(own):
        with own, Sandbox(own, network={"allow": ["*.slow.test"], "lookups_per_second": 100000}) as sandbox:
            return run(sandbox, SLOW, 2 * SECONDS).split(" ")

    with Neighbour(serve) as neighbour:
        answers = serving.at_once(*[lambda own=own: slow(own) for own in clients], seconds=200)
    # A few are lost where the engine stands still and the boxes do not.
    assert sum(int(told) for told, *_ in answers) > 5000 * boxes, answers
    for told, *codes in answers:
        assert int(told) > 2500, answers
        assert set(json.loads("".join(codes))) <= {2, 5}, answers
    assert neighbour.calls >= 3
    assert of_engine(serve)[0] < memory + 64 * MIB


CONNECTIONS = r"""
def dial(i):
    targets = ((socket.gethostbyname('four.test'), 80), ("192.0.2.77", 80), ("127.0.0.1", 1), ("198.18.77.77", 80))
    while time.monotonic() < until:
        batch = []
        for k in range(64):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(targets[(i + k) % 4] if i % 2 else targets[0])
            batch.append(s)
        if i == 2:
            time.sleep(0.05)
        for s in batch:
            s.close()
forked(4, dial)
"""


def test_18_a_flood_of_connections(serve, client, world):
    """Begun and given up, to where it may and to where it may not."""
    with Sandbox(client, network={"mode": "allow", "allow": ["four.test"]}) as sandbox:
        memory, files = of_engine(serve)
        with Neighbour(serve) as neighbour:
            began = time.monotonic()
            code = BEGIN + CONNECTIONS
            sandbox.output("python3", "-c", code, str(SECONDS))
        assert neighbour.calls >= 3
        counts = sandbox.network()["counts"]
        assert counts["denied"] > 100, counts
        # Each costs the host a port for a minute: no box has more than its part of them.
        assert counts["connections_total"] <= 4096 + 100 * (time.monotonic() - began + 1), counts
        harness.wait_for(lambda: sandbox.network()["counts"]["connections"] == 0, 60 * harness.PATIENCE,
                         "none is left over")
        assert reaches(sandbox.dial("four.test:80")[0])
        assert of_engine(serve)[0] < memory + 64 * MIB
        harness.wait_for(lambda: of_engine(serve)[1] <= files + 300, 20 * harness.PATIENCE, "its files")


LORIS = r"""
resource = __import__("resource")
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held, refused = [], 0
for i in range(400):
    s = socket.socket()
    s.settimeout(20)
    try:
        s.connect((("four.test", 80), ("9.9.9.9", 53))[i % 2])
        s.send(b"\0")
        held.append(s)
    except OSError:
        refused += 1
while time.monotonic() < until:
    time.sleep(0.2)
    for s in held[:100]:
        try:
            s.send(b"\1")
        except OSError: pass
print(len(held), refused)
"""


def test_18_connections_that_say_nothing(serve, client):
    memory, _ = of_engine(serve)
    with Sandbox(client, network={"mode": "public"}) as sandbox:
        with Neighbour(serve) as neighbour:
            run(sandbox, LORIS)
        assert neighbour.calls >= 3
        assert sandbox.records(reason="limit"), "more than its share it gets not"
        assert of_engine(serve)[0] < memory + 32 * MIB
        harness.wait_for(lambda: sandbox.network()["counts"]["connections"] == 0, 60 * harness.PATIENCE,
                         "none is left over")
