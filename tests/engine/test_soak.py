"""Mixed load for a while, with an engine that is killed again and again: at its end there are as many fds,
processes, mounts, control groups and loop devices as at its beginning, and the same memory.

`make soak` runs it for half an hour with two hundred kills, `make test` for some seconds."""
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

SECONDS = int(os.environ.get("COVE_SOAK_SECONDS", 1800 if harness.SOAK else 12))
KILLS = int(os.environ.get("COVE_SOAK_KILLS", 200 if harness.SOAK else 6))
WARM = SECONDS / 6
CLIENTS = 4
# What an allocator keeps or gives back in pages is no leak: of a process this small 5 % is less.
SLACK = 512 << 10
# The keeper keeps what boxes stood in for the next ones: not more than so many places besides those in
# use. How many there are of that is nobody's matter, so they are counted by themselves.
PLACES_KEPT = 64 + 2
# An ordinary user has ids for some sixty, and no such places.
AT_ONCE = 80 if harness.EXPECT.is_root else 30


# ---- load --------------------------------------------------------------------------------------

class Load(threading.Thread):
    """Makes, uses and deletes; what it was promised it asks for again."""

    def __init__(self, serve, number):
        super().__init__()
        self.serve, self.random = serve, random.Random(number)
        self.name_of = f"load-{number}-{{}}"
        self.ended = threading.Event()
        self.made, self.acts, self.wrong = {}, 0, []

    def check(self, holds, what):
        if not holds:
            self.wrong.append(str(what))

    def create(self, client):
        kind = self.random.choices(("ephemeral", "persistent"), (3, 1))[0]
        name = self.name_of.format(self.acts)
        answer = client.post("/v1/sandboxes", {
            "name": name, "disk_kind": kind, "privileges": self.random.choice(("plain", "system"))})
        self.check(answer.status in (200, 201), answer)
        if answer.status in (200, 201):
            self.made[name] = f"/v1/sandboxes/{answer.json['id']}"

    def execute(self, client, path):
        size = self.random.choice((10, 1000, 200000))
        answer = client.post(f"{path}/exec", {"command": f"head -c {size} /dev/zero | tr '\\0' x",
                                              "start": True})
        self.check(answer.status == 200, answer)
        if answer.status == 200 and answer.json["process"]["state"] == "exited":
            self.check(answer.json["stdout"] == "x" * size, f"{size} bytes: {answer}")

    def background(self, client, path):
        answer = client.post(f"{path}/processes", {"command": "seq 1 2000; sleep 0.1; seq 1 2000",
                                                   "start": True})
        self.check(answer.status == 201, answer)
        if answer.status != 201:
            return
        process = f"{path}/processes/{answer.json['id']}"
        if self.random.random() < 0.5:
            lines = list(serving.Lines(client, f"{process}/follow"))
            if not lines or lines[-1]["type"] != "exit":
                raise http.client.HTTPException("the engine died under it")
            ended = lines[-1]["process"]
        else:
            ended = client.get(f"{process}/wait", query={"timeout_ms": 30000}).json
        self.check((ended["state"], ended["exit_code"]) == ("exited", 0), ended)
        expected = b"".join(b"%d\n" % i for i in range(1, 2001)) * 2
        self.check(client.get(f"{process}/output").bytes == expected, f"output of {process}")
        self.check(client.delete(process).status == 204, "forget")

    def files(self, client, path):
        answer = client.post(f"{path}/exec", {
            "command": "for i in 1 2 3 4 5; do echo $i > /tmp/f$i; done; cat /tmp/f*; rm /tmp/f*",
            "start": True, "stdin": "y" * 1000})
        self.check(answer.status == 200, answer)

    def stop(self, client, path):
        answer = client.post(f"{path}/stop")
        self.check(answer.status == 200 and answer.json["state"] == "stopped", answer)

    def delete(self, client, name):
        path = self.made.pop(name)
        self.check(client.delete(path).status == 204, path)
        answer = client.get(path)
        self.check(answer.status == 410, answer)

    def act(self, client):
        choice = self.random.random()
        if len(self.made) < 2 or (choice < 0.2 and len(self.made) < 6):
            self.create(client)
            return
        name = self.random.choice(list(self.made))
        if choice < 0.45:
            self.delete(client, name)
        elif choice < 0.65:
            self.execute(client, self.made[name])
        elif choice < 0.8:
            self.files(client, self.made[name])
        elif choice < 0.9:
            self.background(client, self.made[name])
        else:
            self.stop(client, self.made[name])

    def session(self, client):
        while not self.ended.is_set() and not self.wrong:
            self.acts += 1
            self.act(client)

    def run(self):
        while not self.ended.is_set() and not self.wrong:
            try:
                with self.serve.client() as client:
                    self.session(client)
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)  # the engine died; the next one hears us
            except Exception as error:  # noqa: BLE001: told by the test
                self.wrong.append(repr(error))


def load(serve, seconds, kills=0):
    """All that clients do for so long; then nothing is there any more."""
    clients = [Load(serve, number) for number in range(CLIENTS)]
    end = time.monotonic() + seconds
    for client in clients:
        client.start()
    try:
        for left in range(kills, 0, -1):
            time.sleep(max(0, end - time.monotonic()) / left * random.uniform(0.6, 1.2))
            pid = harness.wait_for(serve.engine_pid, 20 * harness.PATIENCE, "an engine")
            os.kill(pid, signal.SIGKILL)
        while time.monotonic() < end and not any(client.wrong for client in clients):
            time.sleep(0.05)
    finally:
        for client in clients:
            client.ended.set()
        for client in clients:
            client.join(120 * harness.PATIENCE)
    wrong = [said for client in clients for said in client.wrong]
    assert not wrong, wrong[:5]
    assert all(client.acts > 5 for client in clients), [client.acts for client in clients]
    serve.wait_ready()
    with serve.client() as client:
        names = {name for load_ in clients for name in load_.made}
        found = everything(client)
        # One that an engine died of was acknowledged to nobody, and may be there.
        assert names <= {sandbox["name"] for sandbox in found}
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


def places(serve):
    """How many there are, by the control groups of this keeper, whose prefix its boxes tell."""
    if not harness.EXPECT.is_root:
        return 0
    prefixes = set()
    for pid in harness.children_of(serve.process.pid):
        try:
            text = pathlib.Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii")
        except OSError:
            continue
        prefixes |= {part.rsplit("-", 1)[0] for line in text.splitlines()
                     for part in line.split("/") if part.startswith("cove-k")}
    assert len(prefixes) == 1, prefixes
    return len({path.rsplit("/", 1)[1] for path in harness.cgroups()
                if path.rsplit("/", 1)[1].rsplit("-", 1)[0] in prefixes})


def loops_of(serve):
    return sum(str(serve.data) in pathlib.Path(path).read_text(errors="replace") for path in
               glob.glob("/sys/block/loop*/loop/backing_file") if os.path.exists(path))


def census(serve):
    keeper, engine = serve.process.pid, serve.engine_pid()
    seen = keeper if harness.EXPECT.is_root else "self"
    return Census(
        engine_fds=len(os.listdir(f"/proc/{engine}/fd")),
        keeper_fds=len(files_of(keeper)),
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
    """When the pools are full again and what ended is gone: the same at ten looks in a row."""
    seen, same = census(serve), 0
    deadline = time.monotonic() + 30 * harness.PATIENCE
    while same < 10:
        assert time.monotonic() < deadline, f"it does not come to rest: {seen}"
        time.sleep(0.05)
        now = census(serve)
        same, seen = (same + 1 if now == seen else 0), now
    assert places(serve) <= PLACES_KEPT + seen.processes, places(serve)
    return seen


def fill_pools(serve):
    """One of each kind, for an engine that is new knows of no kind; and all places that are kept."""
    with serve.client() as client:
        many = [client.post("/v1/sandboxes", {"disk_kind": "ephemeral"}) for _ in range(AT_ONCE)]
        for made in many:
            assert made.status == 201, made
            assert client.delete(f"/v1/sandboxes/{made.json['id']}").status == 204
        for kind in ("ephemeral", "persistent"):
            for privileges in ("plain", "system"):
                made = client.post("/v1/sandboxes", {"disk_kind": kind, "privileges": privileges})
                assert made.status == 201, made
                assert client.delete(f"/v1/sandboxes/{made.json['id']}").status == 204


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
