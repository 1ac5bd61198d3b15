"""Mixed load for a while, with an engine that is killed again and again. Whatever a client was told holds
after each kill: a sandbox is in the state that it was left in, a command that was started runs on, and
each byte that it printed is there. At its end there are as many fds, processes, mounts, control groups and
loop devices as at its beginning, and the same memory.

`make soak` runs it for half an hour with two hundred kills, `make test-all` for five minutes with forty. An engine
counts as killed under load where the clients had answers from it before."""
import contextlib
import dataclasses
import glob
import http.client
import os
import pathlib
import random
import signal
import threading
import time

import harness
import serving

SECONDS = int(os.environ.get("COVE_SOAK_SECONDS", 1800 if harness.SOAK else 20))
KILLS = int(os.environ.get("COVE_SOAK_KILLS", 200 if harness.SOAK else 10))
WARM = SECONDS / 6
CLIENTS = 4
# What is answered by an engine before it is killed.
ACTS_BEFORE_KILL = 2 * CLIENTS
# What an allocator keeps or gives back in pages is no leak: of a process this small 5 % is less. After a
# long day there is no such excuse.
SLACK = 0 if harness.SOAK else 512 << 10
# The keeper keeps what boxes stood in for the next ones: not more than so many places besides those in
# use. fill_pools() brings them to that number where it can, so that one group that is left over is seen.
PLACES_KEPT = 64
# An ordinary user has ids for some sixty, and no such places.
AT_ONCE = 80 if harness.EXPECT.is_root else 30


# ---- load --------------------------------------------------------------------------------------

@dataclasses.dataclass
class Owed:
    """What was promised of a process, by the id that was told."""
    id: str
    code: int
    stdout: bytes
    stderr: bytes
    has_ended: bool = False  # so it was told
    is_cut: bool = False  # the client stopped the sandbox under it


@dataclasses.dataclass
class Sandbox:
    """As its client, the only one, knows it. A verb that was not answered is asked for again."""
    path: str
    state: str
    verb: str | None = None  # asked for, and not yet answered
    owed: list = dataclasses.field(default_factory=list)


class Load(threading.Thread):
    """Makes, uses and deletes; what it was promised it asks for again."""

    def __init__(self, serve, number):
        super().__init__()
        self.serve, self.random = serve, random.Random(number)
        self.name_of = f"load-{number}-{{}}"
        self.ended = threading.Event()
        self.creating = None  # name and body, as long as it is not answered
        self.made, self.doomed, self.gone = {}, [], []
        self.acts, self.names, self.looked, self.wrong = 0, 0, 0, []

    def check(self, holds, what):
        if not holds:
            self.wrong.append(str(what))

    # -- what it does

    def create(self, client):
        if not self.creating:
            self.names += 1
            kind = self.random.choices(("ephemeral", "persistent"), (3, 1))[0]
            self.creating = {"name": self.name_of.format(self.names), "disk_kind": kind,
                             "privileges": self.random.choice(("plain", "system"))}
        answer = client.post("/v1/sandboxes", self.creating)
        self.check(answer.status in (200, 201), answer)
        if answer.status in (200, 201):
            # An engine that died in the middle of it may have left one that does not run.
            state = answer.json["state"]
            self.check(state == "running" or answer.status == 200, answer)
            name, self.creating = self.creating["name"], None
            self.made[name] = Sandbox(f"/v1/sandboxes/{answer.json['id']}", state)

    def execute(self, client, sandbox):
        size = self.random.choice((10, 1000, 200000))
        answer = client.post(f"{sandbox.path}/exec", {
            "command": f"head -c {size} /dev/zero | tr '\\0' x; echo {size} >&2; exit 7"})
        self.check(answer.status == 200, answer)
        if answer.status == 200:
            said = answer.json
            owed = Owed(said["process"]["id"], 7, b"x" * size, b"%d\n" % size, has_ended=True)
            self.check_end(said["process"], owed)
            self.check((said["stdout"], said["stderr"]) == ("x" * size, f"{size}\n"), f"{size} bytes: {answer}")
            self.owe(client, sandbox, owed)

    def background(self, client, sandbox):
        answer = client.post(f"{sandbox.path}/processes", {
            "command": "seq 1 2000; seq 1 500 >&2; sleep 0.3; seq 1 2000; echo last >&2; exit 3"})
        self.check(answer.status == 201, answer)
        if answer.status != 201:
            return
        numbers = b"".join(b"%d\n" % i for i in range(1, 2001))
        owed = Owed(answer.json["id"], 3, numbers * 2,
                    b"".join(b"%d\n" % i for i in range(1, 501)) + b"last\n")
        self.owe(client, sandbox, owed)
        choice = self.random.random()
        if choice < 0.3:
            self.follow(client, sandbox, owed)
        elif choice < 0.6:
            self.look(client, sandbox, owed)
        # Else it runs, and is looked at some time.

    def follow(self, client, sandbox, owed):
        try:
            lines = list(serving.Lines(client, f"{sandbox.path}/processes/{owed.id}/follow"))
        except ValueError:  # a line that is cut
            lines = []
        if not lines or lines[-1]["type"] != "exit":
            raise http.client.HTTPException("the engine died under it")
        owed.has_ended = True
        self.check_end(lines[-1]["process"], owed)
        for stream, expected in (("stdout", owed.stdout), ("stderr", owed.stderr)):
            self.check(serving.text_of(lines, stream).encode() == expected, f"{stream}, followed: {owed.id}")

    def files(self, client, sandbox):
        answer = client.post(f"{sandbox.path}/exec", {
            "command": "for i in 1 2 3 4 5; do echo $i > /tmp/f$i; done; cat /tmp/f*; rm /tmp/f*",
            "stdin": "y" * 1000})
        self.check(answer.status == 200, answer)

    def turn(self, client, sandbox, verb):
        """Stops or starts it. As soon as it is told to stop, what runs in it may end at any moment."""
        sandbox.verb = verb
        if verb == "stop":
            for owed in sandbox.owed:
                owed.is_cut |= not owed.has_ended
        answer = client.post(f"{sandbox.path}/{verb}")
        state = {"stop": "stopped", "start": "running"}[verb]
        self.check(answer.status == 200 and answer.json["state"] == state, answer)
        sandbox.verb, sandbox.state = None, state

    def delete(self, client, name):
        if name in self.made:
            self.doomed.append(self.made.pop(name))
        while self.doomed:
            path = self.doomed[-1].path
            answer = client.delete(path)
            # Of one that was asked for before and not answered, it may be the second time.
            self.check(answer.status in (204, 410), answer)
            answer = client.get(path)
            self.check(answer.status == 410, answer)
            self.gone.append(self.doomed.pop().path)

    # -- what it was promised

    def owe(self, client, sandbox, owed):
        """A few for each sandbox: the oldest is looked at, and forgotten."""
        sandbox.owed.append(owed)
        if len(sandbox.owed) > 4:
            self.look(client, sandbox, sandbox.owed[0])
            oldest = sandbox.owed.pop(0)
            answer = client.delete(f"{sandbox.path}/processes/{oldest.id}")
            self.check(answer.status == 204, answer)

    def check_end(self, process, owed):
        self.check((process["state"], process["exit_code"]) == ("exited", owed.code), process)

    def look(self, client, sandbox, owed):
        """Waits for its end, and compares all that it printed."""
        path = f"{sandbox.path}/processes/{owed.id}"
        answer = client.get(f"{path}/wait", query={"timeout_ms": 30000})
        self.check(answer.status == 200, answer)
        process = answer.json
        if owed.is_cut:
            self.check(process["state"] in ("exited", "lost"), process)
        else:
            self.check_end(process, owed)
        for stream, expected in (("stdout", owed.stdout), ("stderr", owed.stderr)):
            found = client.get(f"{path}/output", query={"stream": stream}).bytes
            holds = expected.startswith(found) if owed.is_cut else found == expected
            self.check(holds, f"{path}: {len(found)} bytes of {stream} where {len(expected)} are owed")
        owed.has_ended = True
        self.looked += 1

    def settle(self, client):
        """After an engine has died: what was not answered is asked for again, what was must hold."""
        if self.creating:
            self.create(client)
        self.delete(client, None)
        for sandbox in self.made.values():
            found = client.get(sandbox.path)
            self.check(found.status == 200, found)
            if sandbox.verb:
                self.turn(client, sandbox, sandbox.verb)
            else:
                self.check(found.json["state"] == sandbox.state, f"{sandbox.state} it was, now: {found}")
            for owed in sandbox.owed:
                self.look(client, sandbox, owed)
        for path in self.gone[-5:]:
            answer = client.get(path)
            self.check(answer.status == 410, answer)

    # -- its day

    def act(self, client):
        choice = self.random.random()
        if len(self.made) < 2 or (choice < 0.15 and len(self.made) < 6):
            self.create(client)
            return
        name = self.random.choice(list(self.made))
        sandbox = self.made[name]
        if choice < 0.3:
            self.delete(client, name)
        elif sandbox.state != "running":
            self.turn(client, sandbox, "start")
        elif choice < 0.5:
            self.execute(client, sandbox)
        elif choice < 0.6:
            self.files(client, sandbox)
        elif choice < 0.9:
            self.background(client, sandbox)
        else:
            self.turn(client, sandbox, "stop")

    def session(self, client):
        self.settle(client)
        while not self.ended.is_set() and not self.wrong:
            self.act(client)
            self.acts += 1

    def run(self):
        while not self.ended.is_set() and not self.wrong:
            try:
                with self.serve.client() as client:
                    self.session(client)
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)  # the engine died; the next one hears us
            except Exception as error:  # noqa: BLE001: told by the test
                self.wrong.append(repr(error))


def kill_under_load(serve, clients, kills, end):
    """So many engines until then, or a little later: each has answered before it is killed."""
    def acts():
        return sum(client.acts for client in clients)

    for left in range(kills, 0, -1):
        time.sleep(max(0, end - time.monotonic()) / left * random.uniform(0.6, 1.2))
        before = acts()
        harness.wait_for(lambda seen=before: acts() >= seen + ACTS_BEFORE_KILL or
                         any(client.wrong for client in clients), 60 * harness.PATIENCE, "load")
        if any(client.wrong for client in clients):
            return
        os.kill(harness.wait_for(serve.engine_pid, 20 * harness.PATIENCE, "an engine"), signal.SIGKILL)


def load(serve, seconds, kills=0):
    """All that clients do for so long; then nothing is there any more."""
    clients = [Load(serve, number) for number in range(CLIENTS)]
    end = time.monotonic() + seconds
    for client in clients:
        client.start()
    try:
        kill_under_load(serve, clients, kills, end)
        last = end + 60 * harness.PATIENCE
        while not any(client.wrong for client in clients) and (
                time.monotonic() < end or (min(client.acts for client in clients) <= 5 and time.monotonic() < last)):
            time.sleep(0.05)
    finally:
        for client in clients:
            client.ended.set()
        for client in clients:
            client.join(120 * harness.PATIENCE)
    assert not any(client.is_alive() for client in clients), "a client hangs"
    serve.wait_ready()
    with serve.client() as client:
        for each in clients:
            if not each.wrong:
                each.settle(client)
        wrong = [said for each in clients for said in each.wrong]
        assert not wrong, wrong[:5]
        assert all(each.acts > 5 for each in clients), [each.acts for each in clients]
        assert sum(each.looked for each in clients) >= kills, "nobody has looked at what it was owed"
        names = {name for each in clients for name in each.made}
        found = everything(client)
        assert names == {sandbox["name"] for sandbox in found}
        for sandbox in found:
            assert client.delete(f"/v1/sandboxes/{sandbox['id']}").status == 204
        assert not everything(client)


def everything(client):
    return client.get("/v1/sandboxes", query={"limit": 500}).json["sandboxes"]


# ---- what is there -----------------------------------------------------------------------------

@dataclasses.dataclass
class Census:
    engine_fds: int
    keeper_fds: int
    groups: int
    processes: int
    mounts: int
    loops: int
    files: int
    disks: list


def files_of(pid):
    """What its fds are, but for those of places that are kept for boxes. Of an ordinary user's keeper, which
    was one memory with children that became somebody else, the kernel tells nothing."""
    if not harness.EXPECT.is_root:
        return []
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            continue
    return [name for name in found
            if name != "/" and not name.startswith("net:[") and "/cove-k" not in name]


def groups(serve):
    """The control groups of this keeper, whose prefix its boxes tell, in all hierarchies: of boxes, of the
    pool, and of the places that are kept."""
    if not harness.EXPECT.is_root:
        return []
    prefixes = set()
    for pid in harness.children_of(serve.process.pid):
        try:
            text = pathlib.Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii")
        except OSError:
            continue
        prefixes |= {part.rsplit("-", 1)[0] for line in text.splitlines()
                     for part in line.split("/") if part.startswith("cove-k")}
    assert len(prefixes) == 1, prefixes
    return [path for path in harness.cgroups()
            if path.rsplit("/", 1)[1].rsplit("-", 1)[0] in prefixes]


def is_used(group):
    try:
        return bool(harness.group_members(group))
    except OSError:
        return False  # it went meanwhile


def places_unused(serve):
    """Those kept for the next boxes: none whose box took long to end, which is the machine's doing."""
    names = {True: set(), False: set()}
    for path in groups(serve):
        names[is_used(path)].add(path.rsplit("/", 1)[1])
    return len(names[False] - names[True])


def loops_of(serve):
    count = 0
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it went meanwhile
            count += str(serve.data) in pathlib.Path(path).read_text(errors="replace")
    return count


def census(serve):
    keeper, engine = serve.process.pid, serve.engine_pid()
    seen = keeper if harness.EXPECT.is_root else "self"
    return Census(
        engine_fds=len(os.listdir(f"/proc/{engine}/fd")),
        keeper_fds=len(files_of(keeper)),
        groups=sum(is_used(path) for path in groups(serve)),
        processes=len(harness.children_of(keeper)),
        mounts=len(pathlib.Path(f"/proc/{seen}/mountinfo").read_text().splitlines()),
        loops=loops_of(serve),
        files=sum(len(files) for _, _, files in os.walk(serve.data / "engine" / "sandboxes")),
        disks=sorted(name.partition(".")[2] for name in os.listdir(serve.data / "disks")))


def memory(pid):
    """Of its own, in bytes; what it shares with others (its program) does not count."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no RssAnon")


def settled(serve):
    """When the pools are full again and what ended is gone."""
    seen = harness.at_rest(lambda: census(serve))
    assert places_unused(serve) <= PLACES_KEPT, places_unused(serve)
    return seen


def fill_pools(serve):
    """One of each kind, for an engine that is new knows of no kind; then more at once than places are kept,
    so that of these there are as many as there ever are."""
    with serve.client() as client:
        for kind in ("ephemeral", "persistent"):
            for privileges in ("plain", "system"):
                made = client.post("/v1/sandboxes", {"disk_kind": kind, "privileges": privileges})
                assert made.status == 201, made
                assert client.delete(f"/v1/sandboxes/{made.json['id']}").status == 204
        for _ in range(5 if harness.EXPECT.is_root else 1):
            many = [client.post("/v1/sandboxes", {"disk_kind": "ephemeral"}) for _ in range(AT_ONCE)]
            for made in many:
                assert made.status == 201, made
                assert client.delete(f"/v1/sandboxes/{made.json['id']}").status == 204
            if harness.at_rest(lambda: places_unused(serve)) >= PLACES_KEPT:
                break


def is_about(before, now):
    return abs(now - before) <= max(before * 0.05, SLACK)


def test_after_a_long_day_all_is_as_it_was(tmp_path):
    config = "[boxes]\npool = 2\nmemory = 128M\ndisk = 16M\nheadroom_disk = 64M\n"
    with serving.Serve(tmp_path, config) as serve:
        load(serve, WARM, kills=1)
        fill_pools(serve)
        before, keeper = settled(serve), memory(serve.process.pid)
        load(serve, SECONDS - 3 * WARM, kills=KILLS)
        fill_pools(serve)
        after = settled(serve)
        assert after == before, f"before {before}, after {after}"
        assert is_about(keeper, memory(serve.process.pid)), (keeper, memory(serve.process.pid))
        # The last engine began a moment ago: it is to be warm, too.
        load(serve, WARM)
        fill_pools(serve)
        engine_pid, warm, engine = serve.engine_pid(), settled(serve), memory(serve.engine_pid())
        load(serve, WARM)
        fill_pools(serve)
        assert settled(serve) == warm
        assert serve.engine_pid() == engine_pid, serve.said()
        print("memory", keeper, memory(serve.process.pid), engine, memory(engine_pid), before)
        assert is_about(engine, memory(engine_pid)), (engine, memory(engine_pid))
        assert is_about(keeper, memory(serve.process.pid)), (keeper, memory(serve.process.pid))
