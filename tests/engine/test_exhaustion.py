"""A host that has run out of something: disk, fds, processes, memory. New work is refused and told why,
running work goes on, what was acknowledged stays, and when there is room again all goes as before.

What is taken away is taken from this `cove serve` alone: a data directory on a small file system of its
own mount namespace, limits of its processes, a control group of its own."""
import base64
import contextlib
import os
import pathlib
import re
import resource
import select
import signal
import socket
import sqlite3
import time

import pytest

import harness
import serving
import terminals
from frames import frame
from harness import EXPECT
from sandboxes import EPHEMERAL, make, new_key, printed, start
from small_disk import SmallDisk, ext4_mount

SMALL = "[boxes]\npool = {pool}\nmemory = 128M\ndisk = 16M\nheadroom_disk = {headroom}\n"
COUNTS = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo $i; sleep 0.02; done"


def refused(answer, *codes):
    """By an error that says what is missing, and when to come back."""
    assert answer.status == 503 and answer.code in codes, answer
    assert int(answer.headers["Retry-After"]) >= 1
    assert len(answer.json["detail"]) > 20, answer
    return answer.json["detail"]


def read(client, process, size):
    """So many bytes of output, whenever they come."""
    said = b""
    deadline = time.monotonic() + 20 * harness.PATIENCE
    while len(said) < size:
        assert time.monotonic() < deadline, said[-100:]
        said = client.get(f"{process}/output").bytes
    return said


def goes_on(client, process):
    """Prints more than it has."""
    assert client.get(process).json["state"] == "running"
    before = client.get(process).json["stdout"]["bytes"]
    harness.wait_for(lambda: client.get(process).json["stdout"]["bytes"] > before,
                     30 * harness.PATIENCE, "more output")


def again(client):
    """All goes as it should, maybe after a moment."""
    def create():
        answer = client.post("/v1/sandboxes", EPHEMERAL)
        return answer if answer.status == 201 else None

    path = f"/v1/sandboxes/{harness.wait_for(create, 20 * harness.PATIENCE, 'a new sandbox').json['id']}"
    assert printed(client, path, "echo new") == "new\n"
    assert client.delete(path).status == 204


# ---- disk --------------------------------------------------------------------------------------

SMALL_DISKS = {"tmpfs": lambda directory: "mount -t tmpfs -o size=96m,mode=0755 tmpfs",
               "ext4": lambda directory: ext4_mount(directory, 96 << 20),
               "ext4 with blocks of root's": lambda directory: ext4_mount(directory, 96 << 20, reserved=5)}


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request, tmp_path):
    mount = SMALL_DISKS[request.param](tmp_path)
    with SmallDisk(tmp_path, mount, config=SMALL.format(pool=2, headroom="16M")) as started:
        yield started


def test_over_the_headroom_of_the_disk_new_sandboxes_are_refused_with_the_figure(small_disk):
    with small_disk.client() as client:
        path = make(client, name="old")
        process = start(client, path, COUNTS)
        small_disk.fill(left=8 << 20)
        detail = refused(client.post("/v1/sandboxes", EPHEMERAL), "capacity")
        left, kept = map(int, re.search(r"(\d+) MiB of disk, (\d+) are to stay free", detail).groups())
        assert left < kept == 16, detail
        assert printed(client, path, "echo on") == "on\n"
        goes_on(client, process)
        assert client.post(f"{path}/stop").status == 200
        refused(client.post(f"{path}/start"), "capacity")
        assert client.get(path).json["state"] == "stopped"
    small_disk.kill_engine()
    assert "disk_low" in small_disk.said(), "a server that starts says so"
    with small_disk.client() as client:
        small_disk.empty()
        assert client.post(f"{path}/start").status == 200
        again(client)


def test_on_a_full_disk_what_runs_runs_on_and_nothing_that_was_acknowledged_is_lost(small_disk):
    with small_disk.client() as client:
        paths = [make(client, name=f"n{i}") for i in range(3)]
        process = start(client, paths[0], COUNTS)
        done = start(client, paths[1], "seq 1 5000; exit 7")
        assert client.get(f"{done}/wait").json["exit_code"] == 7
        output = client.get(f"{done}/output").bytes
        assert output == b"".join(b"%d\n" % i for i in range(1, 5001))
        small_disk.fill(left=0)
        assert small_disk.free() < 1 << 20
        refused(client.post("/v1/sandboxes", EPHEMERAL), "capacity")
        for _ in range(40):  # what is written down may still fit for a while
            answer = client.post(f"{paths[2]}/exec", {"command": "echo " + "x" * 4000})
            assert answer.status == 200 or refused(answer, "capacity", "journal_failed"), answer
        for i in range(20):
            labels = {f"l{n}": f"{i}" * 500 for n in range(30)}
            answer = client.ask("PATCH", paths[2], {"labels": labels})
            assert answer.status == 200 or refused(answer, "store_failed"), answer
        assert client.get(process).json["state"] == "running"
        goes_on(client, process)
        engine = small_disk.engine_pid()
        os.kill(engine, signal.SIGKILL)
        harness.wait_for(lambda: small_disk.engine_pid() not in (None, engine), what="an engine on a full disk")
    small_disk.empty()
    small_disk.wait_ready()
    with small_disk.client() as client:
        assert [client.get(f"/v1/sandboxes/name:n{i}").json["state"] for i in range(3)] == \
            ["running"] * 3
        assert client.get(done).json["exit_code"] == 7
        assert client.get(f"{done}/output").bytes == output
        goes_on(client, process)
        assert client.post(f"{process}/signal", {"signal": "KILL"}).status == 204
        assert client.get(f"{process}/wait").json["signal"] == "SIGKILL"
        again(client)


def fill_store(small_disk, client, path):
    small_disk.fill(left=0)

    def is_full(number):
        labels = {f"l{n}": f"{number}" * 500 for n in range(30)}
        return client.ask("PATCH", path, {"labels": labels}).status != 200
    assert any(is_full(number) for number in range(40)), "the store finds no more room"


@pytest.mark.wall
@pytest.mark.parametrize("small_disk", ["tmpfs"], indirect=True)
def test_on_a_full_disk_keys_and_tokens_are_ended(small_disk):
    with small_disk.client() as client:
        path = make(client)
        key = new_key(client)
        token = client.post(f"{path}/tokens", {"verbs": ["look"]}).json["token"]
        fill_store(small_disk, client, path)
        assert client.delete(f"{path}/tokens").status == 204
        assert client.delete(f"/v1/keys/{key['id']}").status == 204
    for secret in (token, key["secret"]):
        with small_disk.tcp(secret) as ended:
            assert ended.get(path).status == 401


@pytest.mark.parametrize("small_disk", SMALL_DISKS, indirect=True)
def test_on_a_full_disk_sandboxes_are_stopped_and_deleted_to_make_room(small_disk):
    with small_disk.client() as client:
        paths = [make(client, name=f"n{i}") for i in range(4)]
        fill_store(small_disk, client, paths[0])
        for path in paths[:2]:
            answer = client.post(f"{path}/stop")
            assert (answer.status, answer.json["state"]) == (200, "stopped"), answer
        for path in paths:
            assert client.delete(path).status == 204
        small_disk.empty()
        again(client)


def test_a_persistent_disk_that_no_longer_fits_the_host_is_an_error_of_its_sandbox(small_disk):
    persistent = {"privileges": "plain", "disk_kind": "persistent", "resources": {"disk_bytes": 64 << 20}}
    with small_disk.client() as client:
        path = make(client, **persistent)
        other = make(client)
        printed(client, path, "echo kept > /tmp/kept; sync")
        small_disk.fill(left=1 << 20)
        said = client.post(f"{path}/exec", {
            "command": "head -c 40000000 /dev/zero > /tmp/big; sync /tmp/big; echo $?", "timeout_ms": 20000})
        assert said.status == 200 or refused(said, "capacity"), said
        answer = client.post(f"{other}/exec", {"command": "echo on"})
        assert answer.status == 200 or refused(answer, "capacity"), answer
        small_disk.empty()
        assert client.post(f"{path}/stop").status == 200
        assert printed(client, path, "cat /tmp/kept", start=True) == "kept\n"
        again(client)


@pytest.mark.parametrize("headroom, refusal, words", [
    ("1G", (503, "capacity"), ["has less disk left than is to stay free"]),
    ("0", (400, "bad_request"), ["more than this host can give", "--disk", "[boxes]"])])
def test_a_disk_that_cannot_be_made_is_refused_with_its_remedy(tmp_path, headroom, refusal, words):
    config = SMALL.format(pool=0, headroom=headroom)
    with SmallDisk(tmp_path, SMALL_DISKS["tmpfs"](tmp_path), config=config) as serve, serve.client() as client:
        persistent = {"disk_kind": "persistent", "resources": {"disk_bytes": 512 << 20}}
        answer = client.post("/v1/sandboxes", persistent)
        assert answer.refusal == refusal and all(word in answer.json["detail"] for word in words), answer.json


# ---- memory ------------------------------------------------------------------------------------

def test_over_the_headroom_of_memory_new_sandboxes_are_refused_with_the_figure(tmp_path):
    with serving.Serve(tmp_path, "[boxes]\npool = 2\n") as serve:
        with serve.client() as client:
            path = make(client, name="old")
            process = start(client, path, COUNTS)
        usual = serve.config.read_text(encoding="utf-8")
        serve.config.write_text("[boxes]\npool = 2\nheadroom_memory = 1000G\n",
                                encoding="utf-8")
        with reloaded(serve) as client:
            detail = refused(client.post("/v1/sandboxes", EPHEMERAL), "capacity")
            left, kept = map(int, re.search(r"(\d+) MiB of memory left, (\d+) are to stay free", detail).groups())
            assert kept == 1000 << 10, detail
            assert abs((left << 20) - harness.memory_available()) < harness.memory_available() / 4
            assert printed(client, path, "echo on") == "on\n"
            goes_on(client, process)
        serve.config.write_text(usual, encoding="utf-8")
        with reloaded(serve) as client:
            goes_on(client, process)
            again(client)


class Sender(terminals.Watcher):
    """Sends a message that does not end, one byte short of 4 MiB."""

    PART = frame(terminals.TEXT, b"m" * ((4 << 20) - 1), length=(8, 4 << 20))

    def __init__(self, serve, key):
        self.open(serve, "/v1/kernels/connect", [f"Authorization: Bearer {key}"], serve.port)

    def begin(self):
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(self.PART)

    def was_cut(self):
        if not select.select([self.socket], [], [], 0)[0]:
            return False
        try:
            return self.frame()[0] == terminals.CLOSE
        except (EOFError, ConnectionError):
            return True


def senders(serve, client):
    """As many as there is room for: a quarter is one tenant's."""
    for tenant in ("a", "b", "c", "d"):
        key = new_key(client, tenant=f"team-{tenant}")["secret"]
        for _ in range(16):
            yield Sender(serve, key)


def test_an_engine_that_uses_its_memory_begins_nothing_new(tmp_path):
    """What is under way goes on, and when its clients are gone all goes as before."""
    with serving.Serve(tmp_path, "[serve]\nengine_memory = 160M\n[boxes]\npool = 1\n") as serve, \
            serve.client() as client:
        engine = serve.engine_pid()
        limits = pathlib.Path(f"/proc/{engine}/limits").read_text(encoding="ascii")
        assert limits.split("Max data size")[1].split()[:2] == [str(320 << 20)] * 2
        path, other = make(client), make(client)
        process = start(client, path, COUNTS)
        with contextlib.ExitStack() as stack:
            tenant = stack.enter_context(serve.tcp(new_key(client)["secret"]))
            crowd = stack.enter_context(contextlib.ExitStack())
            with contextlib.suppress(terminals.Refused):
                for there in senders(serve, client):
                    crowd.enter_context(there).begin()
            harness.wait_for(lambda: tenant.get("/v1/sandboxes").status != 200, what="memory that is used")
            with pytest.raises(terminals.Refused) as why:
                crowd.enter_context(Sender(serve, new_key(client, tenant="team-e")["secret"]))
            assert (why.value.status, why.value.code) == (503, "capacity")
            assert "engine_memory" in refused(tenant.get("/v1/sandboxes"), "capacity")
            assert " MiB of 160)" in serve.said(), "the log has the figures"
            assert tenant.delete(other).status == 204
            assert client.get("/v1/sandboxes").status == 200, "an operator looks for the cause"
            assert b"\ncove_engine_memory_limit_bytes 167772160\n" in client.get("/metrics").bytes
            crowd.close()
            harness.wait_for(lambda: tenant.get("/v1/sandboxes").status == 200, what="memory that is free again")
        goes_on(client, process)
        again(client)
        assert serve.engine_pid() == engine


def test_an_engine_that_gets_no_more_memory_loses_nothing(tmp_path):
    """Clients that are connected already fill it beyond what it can have: it cuts them off, or ends."""
    with serving.Serve(tmp_path, "[serve]\nengine_memory = 128M\n[boxes]\npool = 1\n") as serve:
        with serve.client() as client, contextlib.ExitStack() as stack:
            path = make(client)
            process = start(client, path, COUNTS)
            crowd = [stack.enter_context(there) for there in senders(serve, client)]
            for there in crowd:
                there.begin()
            harness.wait_for(lambda: any([there.was_cut() for there in crowd]), what="the end of a connection")
        serve.wait_ready()
        with serve.client() as client:
            harness.wait_for(lambda: client.get("/v1/sandboxes").status == 200, what="memory that is free again")
            goes_on(client, process)
            again(client)


@pytest.fixture
def two_tenants(tmp_path):
    """An engine that keeps 64 MiB for all, and clients of two tenants, which have a quarter of that each."""
    with serving.Serve(tmp_path, "[serve]\nengine_memory = 256M\n[boxes]\npool = 1\n") as serve, \
            serve.client() as operator, contextlib.ExitStack() as stack:
        yield (serve, *(stack.enter_context(serve.tcp(new_key(operator, tenant=name)["secret"]))
                        for name in ("team-full", "team-late")))


def memory_of(serve):
    return int(harness.status_of(serve.engine_pid())["VmRSS"].split()[0]) >> 10


def stays_fair(answer, other):
    assert answer.refusal == (429, "too_many_requests") and "of the tenant keep" in answer.json["detail"], answer
    path = make(other)
    assert printed(other, path, "wc -c", stdin="x" * (3 << 20)) == f"{3 << 20}\n"
    assert other.delete(path).status == 204


def test_input_that_commands_do_not_read_is_their_tenants(two_tenants):
    _, full, late = two_tenants
    path, text = make(full), "x" * ((4 << 20) - 1024)
    answers = [full.post(f"{path}/processes", {"command": "exec sleep 1000", "stdin": text}) for _ in range(8)]
    assert [answer.status for answer in answers].count(201) == 4
    stays_fair(answers[-1], late)
    process = answers[0].headers["Location"]
    assert full.post(f"{process}/stdin", text).refusal == (429, "too_many_requests")
    assert full.delete(process).status == 204, "it ends, and its input is forgotten"
    harness.wait_for(lambda: full.post(f"{path}/exec", {"command": "cat >/dev/null", "stdin": text}).status == 200,
                     what="room for another input")


def follow(stack, serve, secret, process):
    """The status of an answer without end, of which its client then reads nothing."""
    client = stack.enter_context(contextlib.closing(socket.socket(socket.AF_UNIX)))
    client.settimeout(20 * harness.PATIENCE)
    client.connect(str(serve.socket))
    client.sendall(f"GET {process}/follow HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n\r\n".encode())
    return int(client.recv(12).split()[1])


def test_what_clients_of_streams_do_not_read_is_their_tenants(two_tenants):
    """A tenant has 16 MiB, which some dozens of streams fill that are as much behind as each may be."""
    serve, full, late = two_tenants
    process = start(full, make(full), "head -c 3000000 /dev/zero | tr '\\0' '\\1'; exec sleep 1000")
    before = memory_of(serve)
    with contextlib.ExitStack() as stack:
        answers = [follow(stack, serve, full.key, process) for _ in range(150)]
        assert answers.count(200) >= 25, answers
        harness.wait_for(lambda: follow(stack, serve, full.key, process) == 429, what="a share that is used up")
        assert memory_of(serve) - before < 30
        refused = full.get(f"{process}/follow")
        assert refused.refusal == (429, "too_many_requests") and "of the tenant keep" in refused.json["detail"], refused
        content = full.get(f"{process.split('/processes')[0]}/files", query={"path": "/etc/hostname"})
        assert content.refusal == (429, "too_many_requests") and "Accept-Ranges" not in content.headers, content
        theirs = start(late, make(late), "seq 100000; exec sleep 1000")
        assert follow(stack, serve, late.key, theirs) == 200
        assert printed(full, process.split("/processes")[0], "echo on") == "on\n", "all else goes on"
    harness.wait_for(lambda: follow(stack, serve, full.key, process) == 200, what="room for another stream")


def test_answers_that_are_gathered_are_their_tenants(two_tenants):
    serve, full, late = two_tenants
    path = make(full, resources={"cpus": 0.2, "memory_bytes": 256 << 20})
    printed(full, path, """python3 -c '
open("/tmp/a", "wb").write((b"\\1" * 16300 + b"\\n") * 41)
open("/tmp/b", "wb").write((b"a" * 15 + b"c\\n") * 200000)'""")
    # The second file takes the tool longer than it has, and the answer waits for it.
    search = {"paths": ["/tmp/a", "/tmp/b"], "pattern": r"\x01|^(a+)+(a+)+$", "stream": False, "limit": 1000000,
              "time_limit_ms": 8000}
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(serve.tcp(full.key)) for _ in range(10)]
        for client in crowd:
            client.send("POST", f"{path}/files/grep", search)
        refusals = [answer for answer in (client.receive() for client in crowd) if answer.status == 429]
        assert len(refusals) >= 5
        stays_fair(refusals[0], late)


def test_changes_that_nobody_reads_are_their_tenants(two_tenants):
    serve, full, late = two_tenants
    path, deep = make(full), "/tmp/w" + 14 * ("/" + 250 * "\1")
    enter = "import os; os.makedirs(\"/tmp/w\", exist_ok=True); os.chdir(\"/tmp/w\")"
    step = "d = chr(1) * 250; os.path.isdir(d) or os.mkdir(d); os.chdir(d)"
    printed(full, path, f"python3 -c '{enter}\nfor _ in range(14): {step}'")
    query = {"path_base64": base64.b64encode(deep.encode()).decode(), "recursive": "false"}
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(serve.tcp(full.key))
            client.connection.connect()
            client.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send("GET", f"{path}/files/watch", query=query)
            assert client.connection.sock.recv(1)
        before = memory_of(serve)
        rename = "os.rename(chr(2) * 240, chr(3) * 240); os.rename(chr(3) * 240, chr(2) * 240)"
        printed(full, path, f"python3 -c '{enter}\nfor _ in range(14): {step}\nopen(chr(2) * 240, \"w\")\n"
                            f"for _ in range(200): {rename}'")
        harness.wait_for(lambda: memory_of(serve) - before > 8, what="changes that are kept")
        with late_of(late) as process:
            goes_on(late, process)
        assert memory_of(serve) - before < 40, "20 watches keep 4 MiB each"


@contextlib.contextmanager
def late_of(client):
    path = make(client)
    yield start(client, path, COUNTS)
    assert client.delete(path).status == 204


@contextlib.contextmanager
def reloaded(serve):
    """The next engine, which has read what the file says now."""
    serve.reload()
    with serve.client() as client:
        yield client


# Whichever way a box is made: of the pool, cold (for its host name), with a disk; and what runs in each.
KINDS = {"7701": {}, "7702": {"hostname": "cold"}, "7703": {"disk_kind": "persistent"},
         "7704": {"privileges": "system"}}


def test_sockets_of_every_kind_of_box_have_the_same_bounds(tmp_path):
    show = "cd /proc/sys/net; cat ipv4/igmp_max_memberships ipv4/igmp_max_msf; cat core/optmem_max 2>/dev/null"
    with serving.Serve(tmp_path) as serve, serve.client() as client:
        for spec in KINDS.values():
            said = printed(client, make(client, **spec), show).split()
            # The last is the host's own before Linux 6.7, and not shown.
            assert said in (["4", "1", "20480"], ["4", "1"]), (spec, said)


def test_no_box_lowers_its_oom_score(tmp_path):
    scores = "199 0 -1 -900" if EXPECT.holds_scores else "-1 -900"
    lower = f"for score in {scores}; do {{ echo $score >/proc/self/oom_score_adj && echo $score; }} 2>/dev/null; done"
    with serving.Serve(tmp_path) as serve, serve.client() as client:
        for spec in KINDS.values():
            assert printed(client, make(client, **spec), f"{lower}; cat /proc/self/oom_score_adj") == "200\n", spec


def test_the_kernel_that_wants_memory_takes_a_box_before_engine_and_keeper(tmp_path):
    def score(pid):
        return int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text())

    def command(pid):
        with contextlib.suppress(OSError):  # it went meanwhile
            return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return []

    def parent(pid):
        return int(harness.status_of(pid)["PPid"])

    def sleeper(keeper, seconds):
        return next((pid for pid in harness.children_of(keeper) if command(pid)[:2] ==
                     [b"sleep", seconds.encode()]), None)

    with serving.Serve(tmp_path) as serve, serve.client() as client:
        keeper, engine = serve.process.pid, serve.engine_pid()
        assert score(keeper) <= score(engine)
        assert score(keeper) == score(engine) or score(keeper) <= -900
        for seconds, spec in KINDS.items():
            start(client, make(client, **spec), f"exec sleep {seconds}")
        for seconds, spec in KINDS.items():
            pid = harness.wait_for(lambda it=seconds: sleeper(keeper, it), what=f"sleep {seconds}")
            for one in (pid, parent(pid)):
                assert score(one) >= max(200, score(engine) + 1), (spec, command(one), score(one))


# ---- fds ---------------------------------------------------------------------------------------

def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class FewFiles(serving.Serve):
    """Whose processes may have so many fds, and no right to allow themselves more."""

    def __init__(self, directory, files):
        super().__init__(directory)
        self.files = files
        self.command = ["prlimit", f"--nofile={files}:{files}", "setpriv", "--bounding-set", "-sys_resource", "--",
                        *self.command]

    @contextlib.contextmanager
    def engine_has(self, spare):
        """So many: clients that say nothing take all others."""
        with contextlib.ExitStack() as held:
            while open_files(self.engine_pid()) < self.files - spare:
                client = held.enter_context(self.client())
                client.connection.connect()
                harness.wait_for(lambda: not self.waiting(), what="a client")
            yield

    def waiting(self):
        """Who is not yet accepted: such a connection has no inode."""
        rows = pathlib.Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()
        return [row for row in rows if row.endswith(f" 0 {self.socket}")]


@pytest.fixture
def few_files(tmp_path):
    with FewFiles(tmp_path, 90) as started:
        yield started


@pytest.mark.parametrize("spare", [2, 9])
def test_an_engine_without_fds_refuses_new_sandboxes_and_what_runs_runs_on(few_files, spare):
    with few_files.client() as client:
        path = make(client, name="old")
        process = start(client, path, COUNTS)
        goes_on(client, process)
        engine = few_files.engine_pid()
        with few_files.engine_has(spare):
            answers = [client.post("/v1/sandboxes", EPHEMERAL) for _ in range(12)]
            told = [answer for answer in answers if answer.status != 201]
            assert told, "there were fds for all of them"
            for answer in told:
                refused(answer, "capacity", "store_failed")
            goes_on(client, process)
            assert client.get(path).json["state"] == "running"
        assert few_files.engine_pid() == engine, few_files.said()
        made = [answer.json["id"] for answer in answers if answer.status == 201]
        assert {sandbox["id"] for sandbox in client.get("/v1/sandboxes").json["sandboxes"]} == \
            {*made, path.rsplit("/", 1)[1]}
        for identity in made:
            there = f"/v1/sandboxes/{identity}"
            assert printed(client, there, "echo on") == "on\n"
            assert client.delete(there).status == 204
        goes_on(client, process)
        assert printed(client, path, "echo on") == "on\n"
        again(client)


def test_an_engine_without_fds_refuses_commands_or_runs_them_and_keeps_their_output(few_files):
    with few_files.client() as client:
        path = make(client)
        process = start(client, path, COUNTS)
        goes_on(client, process)
        engine = few_files.engine_pid()
        with few_files.engine_has(4):
            started = [client.post(f"{path}/processes", {"command": "echo said; sleep 0.3"})
                       for _ in range(8)]
            for answer in started:
                assert answer.status == 201 or refused(answer, "capacity"), answer
            goes_on(client, process)
        assert few_files.engine_pid() == engine, few_files.said()
        for answer in started:
            if answer.status == 201:
                one = f"{path}/processes/{answer.json['id']}"
                assert client.get(f"{one}/wait").json["exit_code"] == 0
                assert client.get(f"{one}/output").bytes == b"said\n"
        assert printed(client, path, "echo on") == "on\n"
        again(client)


def test_clients_wait_for_an_engine_without_fds_and_are_served_when_there_are_some(few_files):
    with few_files.client() as late:
        with few_files.engine_has(0):
            late.send("GET", "/healthz")
            harness.wait_for(few_files.waiting, what="a client that is not accepted")
        assert late.receive().status == 200


@contextlib.contextmanager
def fewer_files(pid, spare):
    """Leaves a process so many fds more than it has."""
    usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd in os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1 + spare, usual[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)


@pytest.mark.parametrize("spare", [0, 8])
def test_a_keeper_without_fds_refuses_boxes_and_those_there_are_run_on(tmp_path, spare):
    with serving.Serve(tmp_path, "[boxes]\npool = 1\n") as serve, serve.client() as client:
        path = make(client)
        process = start(client, path, COUNTS)
        with fewer_files(serve.process.pid, spare):
            answers = [client.post("/v1/sandboxes", {**EPHEMERAL, "disk_kind": kind})
                       for kind in ("ephemeral", "persistent") * 8]
            told = [answer for answer in answers if answer.status != 201]
            assert told, "there were fds for all of them"
            for answer in told:
                refused(answer, "capacity")
            assert printed(client, path, "echo on") == "on\n"
            goes_on(client, process)
            engine = serve.engine_pid()
            os.kill(engine, signal.SIGKILL)
            harness.wait_for(lambda: serve.engine_pid() != engine, what="the end of the engine")
        serve.wait_ready()
        with serve.client() as client_of_the_next:
            goes_on(client_of_the_next, process)
            again(client_of_the_next)


@pytest.mark.parametrize("command", ["sleep 1000", "sleep 1000 & sleep 1000 </dev/null &"],
                         ids=["that run", "that left something behind"])
def test_commands_of_a_tenant_leave_files_for_those_of_others(tmp_path, command):
    with FewFiles(tmp_path, 200) as serve, serve.client() as operator:
        path = make(operator)
        answers = [operator.post(f"{path}/processes", {"command": command}) for _ in range(80)]
        told = [answer for answer in answers if answer.status != 201]
        assert 10 < len(told) < 65, "about half of the files are a tenant's"
        assert "of the tenant" in refused(told[0], "capacity")
        with serve.client() as late:
            late.key = new_key(operator, tenant="team-late")["secret"]
            other = make(late)
            for _ in range(5):
                start(late, other, "sleep 1000")


# ---- processes ---------------------------------------------------------------------------------

class Group:
    """A control group of this test in the hierarchy that counts processes."""

    def __init__(self):
        of_us = next((line.split(":")[2] for line in pathlib.Path(
            "/proc/self/cgroup").read_text().splitlines() if "pids" in line.split(":")[1].split(",")), None)
        roots = [root for root in harness.cgroup_roots() if root.rsplit("/", 1)[1] == "pids"]
        assert of_us is not None and roots, "no hierarchy counts processes"
        self.path = pathlib.Path(f"{roots[0]}{of_us}") / f"test-pids-{os.getpid()}"

    def __enter__(self):
        self.path.mkdir()
        return self

    def __exit__(self, *_):
        harness.wait_for(self.remove, 20 * harness.PATIENCE, "the group's end")

    def remove(self):
        try:
            self.path.rmdir()
        except OSError:
            return False
        return True

    @property
    def count(self):
        return int((self.path / "pids.current").read_text())

    def settle(self):
        """Until all that comes and goes in the beginning has."""
        counts = []

        def is_settled():
            counts.append(self.count)
            return len(counts) > 100 and len(set(counts[-100:])) == 1
        harness.wait_for(is_settled, 60 * harness.PATIENCE, "a number of processes that stays")

    def allow(self, most):
        (self.path / "pids.max").write_text(str(most))


def test_without_processes_what_runs_runs_on_and_new_work_is_refused(tmp_path):
    with Group() as group:
        serve = serving.Serve(tmp_path, "[boxes]\npool = 1\n")
        serve.command = ["sh", "-ec", f"echo $$ > {group.path}/cgroup.procs; exec \"$@\"", "sh",
                         *serve.command]
        with serve, serve.client() as client:
            path = make(client)
            process = start(client, path, "while read line; do echo $line; done", open_stdin=True)
            group.settle()
            assert group.count > 4, "it is not in its group"
            group.allow(group.count)
            answers = [client.post("/v1/sandboxes", EPHEMERAL) for _ in range(6)]
            told = [answer for answer in answers if answer.status != 201]
            assert len(told) >= 4, "a box without a process"
            for answer in told:
                refused(answer, "capacity")
            answer = client.post(f"{path}/exec", {"command": "echo on"})
            assert answer.status == 429 and answer.code == "too_many_processes", answer
            assert client.post(f"{process}/stdin", b"still\n").status == 204
            assert read(client, process, 6) == b"still\n"
            group.allow("max")
            assert printed(client, path, "echo on") == "on\n"
            again(client)


FORKS = """
import os, sys, time
ours, theirs = os.pipe()
made = 0
try:
    while made < int(sys.argv[1]):
        if os.fork() == 0:
            os.close(theirs)
            os.read(ours, 1)
            os._exit(0)
        made += 1
except OSError:
    pass
print(made, flush=True)
time.sleep(int(sys.argv[2]))
"""


def test_boxes_with_most_processes_get_no_more_before_the_host_has_none(tmp_path, monkeypatch):
    """As on a host that can have 2,000 more than it has now."""
    if not harness.EXPECT.has_cgroup:
        return  # a watchdog bounds each box alone
    monkeypatch.setenv("COVE_TEST_OFF", "pids")
    with serving.Serve(tmp_path, "[boxes]\npool = 0\n") as serve, serve.client() as client:
        small = make(client, resources={"pids": 2000})
        large = make(client, resources={"pids": 6000})
        bomb = start(client, large, f"exec python3 -c '{FORKS}' 5900 1000")
        assert 1000 < int(read(client, bomb, 4)) < 5000
        assert b"many_processes" in serve.log.read_bytes()
        assert printed(client, small, f"python3 -c '{FORKS}' 40 0") == "40\n"
        assert int(printed(client, small, f"python3 -c '{FORKS}' 1500 0")) < 1500, "its share alone"
        assert client.delete(large).status == 204
        harness.wait_for(lambda: printed(client, small, f"python3 -c '{FORKS}' 1500 0") == "1500\n",
                         what="its own limit again")
        again(client)


# ---- the host is started again -----------------------------------------------------------------

def power_off(serve):
    """All at once, so that none writes down that the other is gone."""
    pids = [serve.engine_pid(), serve.process.pid]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)
    serve.process.wait()


OTHER_BOOT = "11111111-2222-4333-8444-555555555555"


def booted_again(tmp_path, config):
    """The next start, on a host that was started again: of root's, the kernel says so. Who may not mount
    has been on another one before: that is in the store."""
    serve = serving.Serve(tmp_path, config)
    if harness.EXPECT.is_root:
        other = tmp_path / "boot_id"
        other.write_text(OTHER_BOOT + "\n")
        serve.command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec",
                         f"mount --bind {other} /proc/sys/kernel/random/boot_id; exec \"$@\"", "sh",
                         *serve.command]
        return serve
    with contextlib.closing(sqlite3.connect(serve.data / "engine" / "store" / "store.db")) as store:
        (before,) = store.execute("SELECT value FROM kv WHERE key = 'host/identity'").fetchone()
        boot, _, keeper = bytes(before).partition(b" ")
        assert len(boot) == len(OTHER_BOOT), before
        store.execute("UPDATE kv SET value = ? WHERE key = 'host/identity'",
                      (OTHER_BOOT.encode() + b" " + keeper,))
        store.commit()
    return serve


def test_after_a_reboot_sandboxes_are_stopped_and_have_their_disks(tmp_path):
    config = "[boxes]\npool = 1\nmemory = 256M\ndisk = 64M\n"
    with serving.Serve(tmp_path, config) as serve, serve.client() as client:
        kept = make(client, name="kept", disk_kind="persistent")
        fleeting = make(client, name="fleeting")
        for path in (kept, fleeting):
            assert printed(client, path, "echo before > /tmp/f; sync; echo said") == "said\n"
        process = start(client, kept, "sleep 600")
        stopped = make(client, name="stopped")
        assert client.post(f"{stopped}/stop").status == 200
        power_off(serve)
    with booted_again(tmp_path, config) as serve, serve.client() as client:
        for path, reason in ((kept, "host_reboot"), (fleeting, "host_reboot"), (stopped, "stopped")):
            sandbox = client.get(path).json
            assert (sandbox["state"], sandbox["reason"]) == ("stopped", reason), sandbox
        lost = client.get(process).json
        assert (lost["state"], lost["exit_code"]) == ("lost", None)
        assert client.get(f"{kept}/processes/1/output").bytes == b"said\n"
    # Once more on the host as it is, for a hidden file in /proc is none that a box may have.
    with serving.Serve(tmp_path, config) as serve, serve.client() as client:
        assert client.get(kept).json["reason"] == "host_reboot"
        assert printed(client, kept, "cat /tmp/f", start=True) == "before\n"
        assert printed(client, fleeting, "cat /tmp/f 2>/dev/null; echo none", start=True) == "none\n"
        for path in (kept, fleeting, stopped):
            assert client.delete(path).status == 204
