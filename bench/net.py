"""The network bench: what the way out of a box costs, carries and delays, beside a veth pair, pasta and
slirp4netns, in one run.

usage: net.py BUILD_DIRECTORY
All is in network namespaces of its own: a server; an engine (`cove serve`) with a veth pair to it; a bare
namespace with one, the floor; the peers in the engine's. They end with the processes that hold them, however this
ends. Prints a table for people and writes BUILD_DIRECTORY/bench/net.json. It only judges; what is measured, and
how, is in net_peer.c, net_slot.c, net_create.c, net_pump.c and fair.c.
"""
import base64
import contextlib
import http.client
import json
import os
import random
import shutil
import socket
import subprocess
import time

import engine
import report
from report import Row, Series, percentile

SERVER, ENGINE = "203.0.113.2", "203.0.113.1"
FLOOR_SERVER, FLOOR = "198.51.100.2", "198.51.100.1"
PORT, NAME = "5001", "server.test"
RESOLVER = "198.18.0.1"
PROGRAM = "/tmp/net_peer"  # in sandboxes
BYTES = int(os.environ.get("COVE_BENCH_BYTES", str(1 << 30)))
ROUNDS = int(os.environ.get("COVE_BENCH_ROUNDS", "9"))
CREATES = 400
CONNECTS, PEER_CONNECTS, CONNECT_ROUNDS = 200, 10, 5
ASKS = 200
STARTS = 15
SANDBOXES = int(os.environ.get("COVE_BENCH_SANDBOXES", "1000"))
HELD = 4
SAMPLES = int(os.environ.get("COVE_BENCH_SAMPLES", "1500"))
WAIT_S = 120
PUBLIC = {"mode": "public"}
US, MS = 1e-3, 1e-6  # from ns


class Missing(Exception):
    """Something is not there, and the table says so."""


def wait_for(holds, what, seconds=WAIT_S):
    until = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > until:
            raise Missing(f"{what} is not there after {seconds} s")
        time.sleep(0.01)
    return found


def in_network(pid):
    return ["nsenter", f"--net=/proc/{pid}/ns/net"]


class World:
    """The namespaces, each held by a process that ends when its standard input does."""

    def __init__(self, build):
        self.peer = f"{build}/bench/net_peer"
        self.holders = []

    def hold(self):
        mine = os.readlink("/proc/self/ns/net")
        holder = subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE,
                                  stdout=subprocess.DEVNULL, preexec_fn=engine.die_with_parent)
        self.holders.append(holder)
        wait_for(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != mine, "a network namespace", 10)
        return holder.pid

    def link(self, one, name, address, other, other_name, other_address):
        ip = [*in_network(one), "ip"]
        subprocess.run([*ip, "link", "add", name, "type", "veth", "peer", "name", other_name,
                        "netns", str(other)], check=True)
        for pid, what, text in ((one, name, address), (other, other_name, other_address)):
            ip = [*in_network(pid), "ip"]
            subprocess.run([*ip, "address", "add", f"{text}/24", "dev", what], check=True)
            for device in ("lo", what):
                subprocess.run([*ip, "link", "set", device, "up"], check=True)
        subprocess.run([*in_network(one), "ip", "route", "add", "default", "via", other_address],
                       check=True)

    def __enter__(self):
        try:
            self.server, self.engine, self.floor = self.hold(), self.hold(), self.hold()
            self.link(self.engine, "inner", ENGINE, self.server, "outer", SERVER)
            self.link(self.floor, "inner", FLOOR, self.server, "floor", FLOOR_SERVER)
            self.servers = {address: self.serve(address) for address in (SERVER, FLOOR_SERVER)}
        except BaseException:
            self.__exit__()
            raise
        return self

    def serve(self, address):
        server = subprocess.Popen([*in_network(self.server), self.peer, "serve", address, PORT],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  preexec_fn=engine.die_with_parent)
        self.holders.append(server)
        if server.stdout.readline() != "ready\n":
            raise Missing("the server")
        return server

    def tell(self, command):
        """The server that boxes reach; its answer."""
        server = self.servers[SERVER]
        server.stdin.write(command + "\n")
        server.stdin.flush()
        return server.stdout.readline().split()

    def __exit__(self, *_):
        for holder in reversed(self.holders):
            holder.stdin.close()
            try:
                holder.wait(5)
            except subprocess.TimeoutExpired:
                holder.kill()
                holder.wait()


# ---- contestants: each runs the client's words, and gives its series back ------------------------

def parse(text):
    found = {}
    for line in text.splitlines():
        name, unit, failures, *samples = line.split()
        found[name] = Series(unit, int(failures), [int(sample) for sample in samples])
    return found


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=600)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Api:
    def __init__(self, path):
        self.path = path

    def ask(self, method, path, body=None):
        connection = UnixConnection(self.path)  # one that is kept is closed while others are measured
        with contextlib.closing(connection):
            connection.request(method, path, json.dumps(body) if body is not None else None,
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
        if answer.status // 100 != 2:
            raise Missing(f"{method} {path}: the engine answers {answer.status} {data.decode()}")
        return json.loads(data) if data else None

    def sandbox(self, **more):
        made = self.ask("POST", "/v1/sandboxes",
                        {"disk_kind": "ephemeral", "network": PUBLIC, **more})
        return made["id"]

    def run(self, sandbox, **body):
        done = self.ask("POST", f"/v1/sandboxes/{sandbox}/exec", {"timeout_ms": 600000, **body})
        if done["process"]["exit_code"] != 0:
            raise Missing(f"a command in a sandbox fails: {done}")
        return done["stdout"]

    def bring(self, sandbox, program):
        with open(program, "rb") as file:
            text = base64.b64encode(file.read()).decode()
        self.run(sandbox, command=f"cat >{PROGRAM} && chmod 755 {PROGRAM}", stdin_base64=text)

    def start(self, sandbox, *words):
        self.ask("POST", f"/v1/sandboxes/{sandbox}/processes", {"argv": [PROGRAM, *words]})

    def delete(self, sandbox):
        self.ask("DELETE", f"/v1/sandboxes/{sandbox}")


def outside(*before):
    def run(words):
        return subprocess.run([*before, *words], check=True, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.DEVNULL, timeout=30).stdout
    return run


def pasta(*words):
    # Root is given up for nobody otherwise, who has no right to what it needs here.
    return ["pasta", "--config-net", "--no-map-gw", "--runas", "0:0", "-q", "--", *words]


@contextlib.contextmanager
def slirp(world):
    """A bare namespace with it; what enters that, and the ns until it was ready."""
    holder = subprocess.Popen([*in_network(world.engine), "unshare", "-n", "cat"], stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, preexec_fn=engine.die_with_parent)
    ready, tell = os.pipe()
    program = None
    try:
        theirs = os.readlink(f"/proc/{world.engine}/ns/net")
        mine = os.readlink("/proc/self/ns/net")
        wait_for(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") not in (mine, theirs),
                 "a network namespace", 10)
        begun = time.monotonic_ns()
        program = subprocess.Popen(
            [*in_network(world.engine), "slirp4netns", "--configure", "--mtu=65520", f"--ready-fd={tell}",
             str(holder.pid), "tap0"], pass_fds=[tell], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=engine.die_with_parent)
        os.close(tell)
        tell = None
        if os.read(ready, 1) != b"1":
            raise Missing("slirp4netns does not get ready")
        yield in_network(holder.pid), time.monotonic_ns() - begun
    finally:
        for end in (ready, tell):
            if end is not None:
                os.close(end)
        if program is not None:
            program.kill()
            program.wait()
        holder.stdin.close()
        holder.wait()


class Contest:
    """Who takes part; who cannot says why, and is missing in the table."""

    def __init__(self, series):
        self.series = series
        self.who = {}
        self.missing = []

    def add(self, name, address, run, program):
        self.who[name] = (address, run, program)

    def fails(self, name, error):
        self.who.pop(name, None)
        self.missing.append(f"{name} does not run here: {error}")

    def turn(self, words_of):
        """Each once, in an order drawn anew."""
        for name in random.sample(list(self.who), len(self.who)):
            address, run, program = self.who[name]
            try:
                for key, more in parse(run([program, *words_of(name, address)])).items():
                    have = self.series.setdefault(key, Series(more.unit, 0, []))
                    have.samples += more.samples
                    have.failures += more.failures
            except (subprocess.SubprocessError, OSError) as error:
                if name not in ("pasta", "slirp4netns"):
                    raise
                self.fails(name, error)


# ---- what is measured ----------------------------------------------------------------------------

def compete(world, api, series):
    contest = Contest(series)
    sandbox = api.sandbox()
    api.bring(sandbox, world.peer)
    contest.add("box", SERVER, lambda words: api.run(sandbox, argv=words), PROGRAM)
    contest.add("veth", FLOOR_SERVER, outside(*in_network(world.floor)), world.peer)
    contest.add("pasta", SERVER, outside(*in_network(world.engine), *pasta()), world.peer)
    with contextlib.ExitStack() as stack:
        try:
            enter, _ = stack.enter_context(slirp(world))
            contest.add("slirp4netns", SERVER, outside(*enter), world.peer)
        except (Missing, OSError) as error:
            contest.fails("slirp4netns", error)
        for way in ("send", "receive"):
            size = {"pasta": BYTES // 8, "slirp4netns": BYTES // 8}
            for _ in range(ROUNDS):
                contest.turn(lambda name, address, way=way, size=size: (
                    way, address, PORT, f"{way}_{name}", str(size.get(name, BYTES)), "1"))
        for name in ("pasta", "slirp4netns"):
            for way in ("send", "receive"):
                if f"{way}_{name}" in series:
                    series[f"{way}_{name}"].samples = [
                        8 * sample for sample in series[f"{way}_{name}"].samples]
        for _ in range(CONNECT_ROUNDS):
            contest.turn(lambda name, address: (
                "connect", address, PORT, f"connect_{name}",
                str(CONNECTS if name in ("box", "veth") else PEER_CONNECTS)))
    series.update(parse(api.run(sandbox, argv=[PROGRAM, "ask", RESOLVER, NAME, "ask", str(ASKS)])))
    api.delete(sandbox)
    return contest.missing


def time_starts(world, series):
    """Until a command runs in a network that is ready, and has ended."""
    ways = {"start_pasta": [*in_network(world.engine), *pasta("true")],
            "start_floor": [*in_network(world.engine), "unshare", "-U", "-r", "-n", "true"]}
    for _ in range(STARTS):
        for name, words in ways.items():
            one = series.setdefault(name, Series("ns", 0, []))
            begun = time.monotonic_ns()
            try:
                done = subprocess.run(words, check=False, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, timeout=20).returncode == 0
            except (OSError, subprocess.TimeoutExpired):
                done = False
            if done:
                one.samples.append(time.monotonic_ns() - begun)
            else:
                one.failures += 1
        one = series.setdefault("start_slirp4netns", Series("ns", 0, []))
        try:
            with slirp(world) as (_, took):
                one.samples.append(took)
        except (Missing, OSError):
            one.failures += 1


def engine_of(keeper):
    with open(f"/proc/{keeper.pid}/task/{keeper.pid}/children", encoding="ascii") as children:
        for pid in children.read().split():
            with open(f"/proc/{pid}/comm", encoding="ascii") as comm:
                if comm.read().strip() == "cove-engine":
                    return pid
    raise Missing("there is no engine")


def memory_of(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def fill(world, keeper, api, series):
    """Many sandboxes with connections, all of them answering. What stops it before is said."""
    made, said = [], None
    pid = engine_of(keeper)
    try:
        for _ in range(SANDBOXES):
            sandbox = api.sandbox(resources={"memory_bytes": 64 << 20})
            made.append(sandbox)
            api.bring(sandbox, world.peer)
            api.start(sandbox, "hold", SERVER, PORT, str(HELD))
    except (Missing, OSError) as error:
        said = f"{len(made)} sandboxes of {SANDBOXES}: {error}"

    def held(count):
        return int(world.tell("count")[0]) >= count
    with contextlib.suppress(Missing):
        wait_for(lambda: held(len(made)), "the first connection of each")
    before = int(world.tell("count")[0])
    memory, free = memory_of(pid), available()
    world.tell("go")
    with contextlib.suppress(Missing):
        wait_for(lambda: held(HELD * len(made)), "the connections of all")
    asked = int(world.tell("count")[0])
    more = max(asked - before, 1)
    series["held_sandboxes"] = Series("1", 0, [len(made)])
    series["held_engine"] = Series("bytes", 0, [max(memory_of(pid) - memory, 0) // more])
    series["held_all"] = Series("bytes", 0, [max(free - available(), 0) // more])
    series["held_fds"] = Series("1", 0, [len(os.listdir(f"/proc/{pid}/fd"))])
    for _ in range(3):
        asked, answered, took = map(int, world.tell("ping"))
        series.setdefault("held_answers", Series("1", 0, [])).samples.append(answered)
        series.setdefault("held_ping", Series("ns", 0, [])).samples.append(took)
    for sandbox in made:
        api.delete(sandbox)
    return said


def available():
    with open("/proc/meminfo", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def beside(world, build, work, path, api, series):
    """Another tenant's commands while nobody does anything, and while one sends as fast as it can."""
    noisy = api.sandbox()
    api.bring(noisy, world.peer)
    for name in ("quiet_idle", "quiet_noise"):
        if name == "quiet_noise":
            for way in range(2):
                api.start(noisy, "send", SERVER, PORT, f"noise{way}", "0", "1")
        raw = f"{work}/fair.raw"
        subprocess.run([f"{build}/bench/fair", raw, path, path, str(SAMPLES), name], check=True)
        series.update(report.read_series(raw))
    api.delete(noisy)


def measure(work, build):
    series, said, complete = {}, [], True
    raw = f"{work}/net.raw"
    for words in (["net_slot", raw, str(CREATES)], ["net_pump", raw, "5"]):
        subprocess.run([f"{build}/bench/{words[0]}", *words[1:]], check=True)
        series.update(report.read_series(raw))
    config = f"{work}/cove.conf"
    with open(config, "w", encoding="ascii") as out:
        out.write(f"[network]\nresolvers = {SERVER}\n")
    with World(build) as world, \
         engine.serving(work, build, in_network(world.engine), ["--config", config]) as (keeper, path):
        api = Api(path)
        subprocess.run([f"{build}/bench/net_create", raw, path, str(CREATES)], check=True)
        series.update(report.read_series(raw))
        for step in (lambda: compete(world, api, series),
                     lambda: time_starts(world, series),
                     lambda: beside(world, build, work, path, api, series),
                     lambda: fill(world, keeper, api, series)):
            try:
                told = step()
                said += [told] if isinstance(told, str) else told or []
            except (Missing, OSError, subprocess.SubprocessError) as error:
                print(f"bench: {error}")
                complete = False
    for line in said:
        print(f"net: {line}")
    return series, complete


# ---- how it is judged ----------------------------------------------------------------------------

def rows_of(series):
    table = engine.Table(series)

    def difference(one, other, factor):
        first, second = (percentile(table.samples(name, factor), 50) for name in (one, other))
        return [first - second] if first is not None and second is not None else []

    def gigabits(name):
        return [BYTES * 8 / sample for sample in series[name].samples] if name in series else []

    table.section = f"create with a network, beside one without (medians of {CREATES}, in turn)"
    table.time("net_fresh", "a network namespace, and its way out", "slot_opened",
               peer="a network namespace", peer_p50=table.p50("slot_plain"))
    table.add("net_fresh_added", "what is added", "ms", difference("slot_opened", "slot_plain", MS),
              of="slot_opened", goal=("p50", "<=", 0.8))
    table.time("net_create", "create and /bin/true, from the pool, public", "create_public",
               peer="the same with none", peer_p50=table.p50("create_none"))
    table.add("net_create_added", "what is added", "ms", difference("create_public", "create_none", MS),
              of="create_public", goal=("p50", "<=", 0.1))
    table.section = "start of each"
    table.time("start_open", "the way out of a box", "slot_open")
    table.time("start_shut", "shut", "slot_shut")
    table.time("start_reopen", "opened again", "slot_reopen")
    table.time("start_veth", "a veth pair, by netlink", "slot_veth")
    table.time("start_pasta", "pasta -- true", "start_pasta", peer="unshare -Urn true",
               peer_p50=table.p50("start_floor"))
    table.time("start_slirp4netns", "slirp4netns, until it is ready", "start_slirp4netns")
    table.section = f"one connection, {BYTES >> 20} MiB at a time, in turn"
    for way, text in (("send", "out of"), ("receive", "into")):
        floor = percentile(gigabits(f"{way}_veth"), 50)
        for name, what in (("veth", "a bare namespace, veth"), ("box", "a box"), ("pasta", "pasta"),
                           ("slirp4netns", "slirp4netns")):
            table.add(f"{way}_{name}", f"{text} {what}", "Gbit/s", gigabits(f"{way}_{name}"),
                      of=f"{way}_{name}",
                      **({} if name == "veth" else {"peer": "veth", "peer_p50": floor}),
                      **({"goal": ("ratio", ">=", 0.8)} if name == "box" else {}))
    for name, text in (("direct", "on loopback, direct"), ("pumped", "on loopback, through the pump")):
        table.add(f"pump_{name}", text, "Gbit/s",
                  [8 * (1 << 30) / sample for sample in series[f"pump_{name}"].samples]
                  if f"pump_{name}" in series else [], of=f"pump_{name}")
    table.section = "a connection"
    for name, what in (("veth", "a bare namespace, veth"), ("box", "a box"), ("pasta", "pasta"),
                       ("slirp4netns", "slirp4netns")):
        for suffix, text in (("", "until connected"), ("_first", "until a byte is back")):
            table.add(f"connect_{name}{suffix}", f"{what}, {text}", "us",
                      table.samples(f"connect_{name}{suffix}", US), of=f"connect_{name}{suffix}",
                      **({} if name == "veth" else {
                          "peer": "veth", "peer_p50": percentile(
                              table.samples(f"connect_veth{suffix}", US), 50)}))
    table.add("connect_added", "what a box adds until connected", "us",
              difference("connect_box", "connect_veth", US), of="connect_box", goal=("p50", "<=", 100))
    table.add("connect_first_added", "what a box adds until a byte is back", "us",
              difference("connect_box_first", "connect_veth_first", US), of="connect_box_first")
    table.add("ask", "a name that is known, asked in a box", "us", table.samples("ask", US), of="ask")
    table.section = f"{SANDBOXES:,} sandboxes with {HELD} connections each"
    table.add("held_sandboxes", "sandboxes", "1", table.samples("held_sandboxes", 1),
              goal=("p50", ">=", SANDBOXES))
    table.add("held_answers", "connections that answer", "1", table.samples("held_answers", 1),
              goal=("p50", ">=", SANDBOXES * HELD))
    table.add("held_ping", "until the last of them has", "ms", table.samples("held_ping", MS))
    table.add("held_engine", "memory of each, engine (Pss)", "kB", table.samples("held_engine", 1e-3))
    table.add("held_all", "memory of each, all with the kernel's (MemAvailable)", "kB",
              table.samples("held_all", 1e-3))
    table.add("held_fds", "fds of the engine", "1", table.samples("held_fds", 1))
    table.section = "another tenant's /bin/true, beside a vfork+exec of it outside"
    for name, text in (("quiet_idle", "while nobody does anything"),
                       ("quiet_noise", "while one sends at full rate")):
        table.time(name, text, name, peer="outside", peer_p50=table.p50(f"{name}_bare"))

    def beside_idle(suffix):
        p99 = [percentile(table.samples(f"{name}{suffix}"), 99) for name in ("quiet_noise", "quiet_idle")]
        return p99[0] / p99[1] if None not in p99 else None
    ratio = beside_idle("")
    table.rows.append(Row("quiet_beside_idle", "its p99, as many times that of idle", "x",
                          [ratio] if ratio else [], section=table.section,
                          floor_p50=beside_idle("_bare"), goal=("p50", "<=", 3)))
    return table.rows


if __name__ == "__main__":
    if shutil.which("ip") is None:
        raise SystemExit("bench: ip is missing: install iproute2")
    engine.bench("net", measure, rows_of)
