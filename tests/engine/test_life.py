"""What a sandbox lives through, with a running engine: clients that meet, an engine that is killed at any
moment, a keeper that is, an end in order. What was acknowledged holds, states are true, nothing is left."""
import contextlib
import datetime
import http.client
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

import harness
import serving
from sandboxes import create as make, EPHEMERAL, path_of, run


@pytest.fixture
def serve(tmp_path):
    with serving.Serve(tmp_path, "[boxes]\npool = 2\nmemory = 256M\ndisk = 64M\n") as started:
        yield started


@pytest.fixture
def timed(tmp_path):
    """One whose clock the test sets."""
    with serving.Serve(tmp_path, clock=True) as started:
        yield started


def states_of(serve):
    """By id. To look at the list is no use of any sandbox."""
    with serve.client() as client:
        return {sandbox["id"]: sandbox["state"] for sandbox in all_of(client)}


def all_of(client):
    found, cursor = [], None
    while True:
        query = {"limit": 50, **({"cursor": cursor} if cursor else {})}
        page = client.get("/v1/sandboxes", query=query).json
        found += page["sandboxes"]
        cursor = page["next"]
        if not cursor:
            return found


# ---- whose turn it is -------------------------------------------------------------------------

def test_all_threads_of_the_engine_go_before_boxes(serve):
    engine = serve.engine_pid()
    threads = {int(thread) for thread in os.listdir(f"/proc/{engine}/task")}
    assert len(threads) > 1
    having = {(os.getpriority(os.PRIO_PROCESS, thread), harness.turn_ns(thread)) for thread in threads}
    assert having == {(os.getpriority(os.PRIO_PROCESS, engine), harness.turn_ns(engine))}


# ---- what the kernel counts by user ------------------------------------------------------------

def test_inotify_instances_are_a_sandboxs_own_where_root_serves(serve):
    begin = "python3 -c 'import ctypes, time\nlibc = ctypes.CDLL(None)\n"
    with serve.client() as client:
        taker, other = path_of(make(client)), path_of(make(client))
        took = client.post(f"{taker}/processes", {
            "command": f"{begin}n = 0\nwhile n < 5000 and libc.inotify_init1(0) >= 0: n += 1\n"
                       "print(n, flush=True)\ntime.sleep(1000)'"}).headers["Location"]
        assert int(harness.wait_for(lambda: client.get(f"{took}/output").bytes, what="all that it gets")) >= 100
        got = run(client, other, f"{begin}print(libc.inotify_init1(0) >= 0)'")["stdout"]
        assert got == f"{harness.EXPECT.is_root}\n"


# ---- clients that meet -------------------------------------------------------------------------

def test_of_many_creates_of_one_name_one_makes_it(serve):
    def create():
        with serve.client() as client:
            return make(client, name="one")

    made = serving.at_once(*[create] * 12)
    assert len({sandbox["id"] for sandbox in made}) == 1
    assert sum(sandbox["created"] for sandbox in made) == 1
    assert {sandbox["state"] for sandbox in made} == {"running"}


def test_verbs_that_meet_are_all_answered(serve):
    with serve.client() as client:
        path = path_of(make(client))

    def call(verb, body=None):
        def ask():
            with serve.client() as client:
                return client.ask(*verb.split(" "), body).status
        return ask

    for _ in range(harness.scaled(5, 2)):
        statuses = serving.at_once(*[call(f"POST {path}/stop"), call(f"POST {path}/start"),
                                     call(f"POST {path}/exec", {"command": "true", "start": True}),
                                     call(f"GET {path}"), call(f"POST {path}/stop"),
                                     call(f"POST {path}/start")])
        assert set(statuses) <= {200, 409}, statuses
    statuses = serving.at_once(*[call(f"POST {path}/start"), call(f"DELETE {path}"),
                                 call(f"DELETE {path}"), call(f"POST {path}/stop")])
    assert statuses[1] == statuses[2] == 204 and {statuses[0], statuses[3]} <= {200, 404, 410}
    with serve.client() as client:
        assert client.get(path).code == "sandbox_gone"


def test_a_delete_ends_what_runs(serve):
    with serve.client() as client:
        path = path_of(make(client))

    def execute():
        with serve.client() as client:
            return client.post(f"{path}/exec", {"command": "sleep 600"})

    def delete():
        with serve.client() as client:
            harness.wait_for(lambda: [process for process in client.get(f"{path}/processes").json["processes"]
                                      if process["state"] == "running"], what="the command")
            return client.delete(path)

    executed, deleted = serving.at_once(execute, delete, seconds=20)
    assert deleted.status == 204
    assert executed.status == 410 or executed.json["process"]["state"] == "lost", executed


def test_a_command_that_a_stop_ends_has_its_output_up_to_then(serve):
    with serve.client() as client:
        path = path_of(make(client))

    def execute():
        with serve.client() as client:
            return client.post(f"{path}/exec", {"command": "echo before; echo wrong >&2; sleep 600"})

    def stop():
        with serve.client() as client:
            harness.wait_for(lambda: client.get(f"{path}/processes/1/output", query={
                "stream": "stderr"}).bytes == b"wrong\n", what="its output")
            return client.post(f"{path}/stop")

    executed, stopped = serving.at_once(execute, stop, seconds=30)
    assert (stopped.status, stopped.json["state"], stopped.json["reason"]) == (200, "stopped", "stopped")
    assert executed.status == 200, executed
    answer = executed.json
    assert (answer["stdout"], answer["stderr"]) == ("before\n", "wrong\n")
    with serve.client() as client:
        for ended in (answer["process"], client.get(f"{path}/processes/1").json):
            assert {name: ended[name] for name in ("state", "exit_code", "signal", "timed_out", "reason")} == {
                "state": "lost", "exit_code": None, "signal": None, "timed_out": False, "reason": "stopped"}
        assert client.get(f"{path}/processes/1/output").bytes == b"before\n"
        assert client.get(f"{path}/processes/1/output", query={"stream": "stderr"}).bytes == b"wrong\n"
        assert client.post(f"{path}/exec", {"command": "true"}).code == "sandbox_stopped"


# ---- when its time is over ---------------------------------------------------------------------

IDLE_S = 600


def moment(line):
    return datetime.datetime.fromisoformat(line["time"].replace("Z", "+00:00")).timestamp()


def still_runs(serve, sandbox):
    """Also when another one has been made and ended, which is asked for after what would end it."""
    with serve.client() as client:
        assert client.delete(path_of(make(client))).status == 204
    assert states_of(serve)[sandbox["id"]] == "running"


def test_the_idle_limit_counts_from_the_end_of_the_last_command(tmp_path):
    """Nothing is asked of it meanwhile, for that would count, too: events tell what happens, and a file ends it."""
    config = f"{serving.USUAL}[mounts]\nhere = {tmp_path}\n"
    with serving.Serve(tmp_path, config, clock=True) as serve, serve.client() as client, serve.client() as other:
        sandbox = make(client, lifecycle={"idle_ms": IDLE_S * 1000, "then": "stop"},
                       mounts=[{"name": "here", "target": "/here", "read_only": True}])
        path = path_of(sandbox)
        lines = (line for line in serving.Lines(other, "/v1/events", {"from": 1})
                 if line.get("sandbox") == sandbox["id"])
        began = client.post(f"{path}/processes", {"command": "until test -e /here/go; do sleep 0.05; done"})
        assert began.status == 201
        serve.clock.advance(2 * IDLE_S)
        serve.clock.advance(IDLE_S - 100)
        still_runs(serve, sandbox)
        (tmp_path / "go").touch()
        ended = next(line for line in lines if line["type"] == "process.exited")
        serve.clock.advance(IDLE_S - 100)
        still_runs(serve, sandbox)
        serve.clock.advance(100)
        stopped = next(lines)
        assert (stopped["type"], stopped["reason"]) == ("sandbox.stopped", "idle"), stopped
        assert moment(stopped) - moment(ended) >= IDLE_S - 0.05
        now = client.get(path).json
        assert (now["state"], now["reason"]) == ("stopped", "idle")
        assert client.get(f"{path}/processes/1").json["exit_code"] == 0


def test_a_sandbox_is_idle_by_the_clock_of_the_machine(serve):
    with serve.client() as client, serve.client() as other:
        began = time.monotonic()
        path = path_of(make(client, lifecycle={"idle_ms": 1000, "then": "stop"}))
        lines = serving.Lines(other, "/v1/events", {"from": 1})
        assert lines.until("sandbox.stopped")[-1]["reason"] == "idle"
        assert 1 <= time.monotonic() - began < 20 * harness.PATIENCE
        assert client.get(path).json["reason"] == "idle"


def with_deadlines(client, seconds):
    """One that is deleted then, and one that is stopped; their paths."""
    return [path_of(make(client, lifecycle={"lifetime_ms": int(seconds * 1000), "then": then}))
            for then in ("kill", "stop")]


def test_a_deadline_that_passes_without_an_engine_is_honoured_by_the_next(timed):
    with timed.client() as client:
        killed, stopped = with_deadlines(client, 600)
        assert client.post(f"{stopped}/processes", {"command": "sleep 600"}).status == 201
    engine = timed.engine_pid()
    os.kill(timed.process.pid, signal.SIGSTOP)  # so that there is no next one yet
    try:
        os.kill(engine, signal.SIGKILL)
        timed.clock.advance(600, awaits=())
    finally:
        os.kill(timed.process.pid, signal.SIGCONT)
    timed.wait_next_engine(engine)
    with timed.client() as client:
        harness.wait_for(lambda: client.get(killed).status == 410, 20 * harness.PATIENCE, "its end")
        harness.wait_for(lambda: client.get(stopped).json["state"] == "stopped", 20 * harness.PATIENCE,
                         "its stop")
        assert client.get(stopped).json["reason"] == "deadline"
        assert client.get(f"{stopped}/processes/1").json["state"] == "lost"


def test_a_deadline_that_passes_without_a_server_is_honoured_by_the_next(tmp_path):
    """By the clock of the machine."""
    seconds = 1.5 * harness.PATIENCE
    with serving.Serve(tmp_path) as serve, serve.client() as client:
        killed, stopped = with_deadlines(client, seconds)
        over = time.time() + seconds
        kept = path_of(make(client, lifecycle={"lifetime_ms": 3600000}))
    harness.wait_for(lambda: time.time() > over, what="the deadline")
    with serving.Serve(tmp_path) as serve, serve.client() as client:
        harness.wait_for(lambda: client.get(killed).status == 410, 20 * harness.PATIENCE, "its end")
        assert client.get(stopped).json["state"] == client.get(kept).json["state"] == "stopped"
        answer = client.post(f"{stopped}/start")
        assert answer.code == "sandbox_stopped" and "deadline" in answer.json["detail"], answer
        assert client.post(f"{kept}/start").status == 200


@pytest.mark.skipif(not harness.RELEASE.exists(), reason="there is no release build beside")
def test_a_release_has_no_clock_that_is_set(tmp_path):
    """A test build would not start without the file."""
    for program in ("cove", "cove-keeper", "cove-engine"):
        assert b"COVE_TEST" not in harness.RELEASE.with_name(program).read_bytes()
    serve = serving.Serve(tmp_path, clock=True)
    serve.clock.path.unlink()
    serve.command[0] = harness.RELEASE
    with serve, serve.client() as client:
        assert client.get("/readyz").status == 200


# ---- what is kept ------------------------------------------------------------------------------

def test_a_stopped_sandbox_keeps_its_history_and_an_ephemeral_one_no_files(serve):
    with serve.client() as client:
        path = path_of(make(client))
        assert run(client, path, "echo kept > /tmp/f; echo said")["stdout"] == "said\n"
        stopped = client.post(f"{path}/stop").json
        assert (stopped["state"], stopped["reason"]) == ("stopped", "stopped")
        assert client.post(f"{path}/exec", {"command": "true"}).code == "sandbox_stopped"
        assert client.get(f"{path}/processes/1/output").bytes == b"said\n"
        started = client.post(f"{path}/start").json
        assert (started["state"], started["reason"]) == ("running", "started")
        assert run(client, path, "cat /tmp/f")["process"]["exit_code"] != 0
        assert client.get(f"{path}/processes/1").json["exit_code"] == 0


def test_a_command_without_memory_says_so_and_the_sandbox_runs_on(serve):
    with serve.client() as client:
        path = path_of(make(client))
        eats = "exec tail /dev/zero"  # one line without an end
        process = run(client, path, eats, timeout_ms=60000)["process"]
        if process["oom_killed"] or harness.EXPECT.has_cgroup:
            assert process["oom_killed"] and process["signal"] == "SIGKILL", process
            assert client.get(path).json["state"] == "running"
        else:  # a watchdog that comes late ends all of the box
            assert process["state"] == "lost", process
            assert client.get(path).json["reason"] == "oom"
        assert run(client, path, "echo on", start=True)["stdout"] == "on\n"
        kinds = [line["type"] for line in serving.told(client)]
        assert ("process.oom" in kinds) == process["oom_killed"]


def test_a_kill_for_memory_is_told_of_its_command_alone(serve):
    """Not of one that is killed later, by whomever, also where the next engine hears of it."""
    kills = "kill -KILL $$"
    with serve.client() as client:
        path = path_of(make(client))
        run(client, path, "tail /dev/zero; true", timeout_ms=60000)
        before = run(client, path, kills, start=True)["process"]
        assert before["signal"] == "SIGKILL"
        assert run(client, path, "exec tail /dev/zero", timeout_ms=60000)["process"]["state"] in ("exited", "lost")
        last = run(client, path, kills, start=True)["process"]
        assert last["signal"] == "SIGKILL" and not last["oom_killed"], last
    serve.kill_engine()
    with serve.client() as client:
        after = run(client, path, kills, start=True)["process"]
        assert after["signal"] == "SIGKILL" and not after["oom_killed"], after
        assert client.post(f"{path}/stop").json["reason"] == "stopped"


# ---- an engine that is killed ------------------------------------------------------------------

class Worker(threading.Thread):
    """Makes, uses and deletes; remembers what was acknowledged."""

    def __init__(self, serve, number):
        super().__init__()
        self.serve, self.number = serve, number
        self.random = random.Random(number)
        self.alive, self.gone, self.wrong = {}, set(), []
        self.end = threading.Event()
        self.names = 0
        self.acts = 0  # that were answered

    def act(self, client):
        choice = self.random.random()
        if choice < 0.4 or not self.alive:
            self.names += 1
            name = f"w{self.number}-{self.names}"
            answer = client.post("/v1/sandboxes", {**EPHEMERAL, "name": name})
            if answer.status == 503 and answer.code == "capacity":  # an ordinary user has few ids
                return
            assert answer.status in (200, 201), answer
            self.alive[name] = answer.json["id"]
            return
        name = self.random.choice(list(self.alive))
        path = f"/v1/sandboxes/{self.alive[name]}"
        if choice < 0.6:
            identity = self.alive.pop(name)  # after this it may be gone, whatever we hear
            assert client.delete(path).status == 204
            self.gone.add(identity)
        elif choice < 0.8:
            answer = client.post(f"{path}/exec", {"command": f"echo {name}", "start": True})
            if answer.status == 200 and answer.json["process"]["state"] == "exited":
                assert answer.json["stdout"] == f"{name}\n", answer
        else:
            answer = client.post(f"{path}/stop")
            assert answer.status != 200 or answer.json["state"] == "stopped", answer

    def run(self):
        while not self.end.is_set():
            try:
                with self.serve.client() as client:
                    while not self.end.is_set():
                        self.act(client)
                        self.acts += 1
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)  # the engine died; the next one hears us
            except Exception as error:  # noqa: BLE001: told by the test
                self.wrong.append(repr(error))
                return


def test_nothing_acknowledged_is_lost_when_the_engine_dies(serve):
    """Each engine has answered before it is killed."""
    workers = [Worker(serve, number) for number in range(4)]

    def acts():
        return sum(worker.acts for worker in workers)

    for worker in workers:
        worker.start()
    try:
        for _ in range(harness.scaled(12, 3)):
            seen = acts()
            harness.wait_for(lambda before=seen: acts() >= before + 8 or
                             any(worker.wrong for worker in workers), 60 * harness.PATIENCE, "load")
            time.sleep(random.uniform(0, 0.1))
            os.kill(serve.engine_pid(), signal.SIGKILL)
    finally:
        for worker in workers:
            worker.end.set()
        for worker in workers:
            worker.join(60 * harness.PATIENCE)
    serve.wait_ready()
    assert [worker.wrong for worker in workers] == [[]] * 4
    assert acts() > 50
    with serve.client() as client:
        there = {sandbox["id"]: sandbox for sandbox in all_of(client)}
        for worker in workers:
            for name, identity in worker.alive.items():
                assert there[identity]["name"] == name
                assert client.get(f"/v1/sandboxes/name:{name}").json["id"] == identity
            assert not worker.gone & set(there)
        for identity in there:
            path = f"/v1/sandboxes/{identity}"
            assert run(client, path, "echo on", start=True)["stdout"] == "on\n"
            assert client.delete(path).status == 204
        assert all_of(client) == []
    harness.wait_for(lambda: not os.listdir(serve.data / "engine" / "sandboxes"), what="no files")


def test_a_command_does_not_notice_that_the_engine_dies(serve):
    with serve.client() as client:
        path = path_of(make(client))
        line = "for i in $(seq 1 60); do echo $i; sleep 0.05; done"
        process = client.post(f"{path}/processes", {"command": line}).json["id"]
    for _ in range(5):
        serve.kill_engine()
        with serve.client() as client:
            output = f"{path}/processes/{process}/output"
            said = client.get(output).bytes
            harness.wait_for(lambda client=client, said=said: client.get(output).bytes != said or
                             said.endswith(b"60\n"), what="more of it")
    with serve.client() as client:
        ended = client.get(f"{path}/processes/{process}/wait", query={"timeout_ms": 60000}).json
        assert (ended["state"], ended["exit_code"]) == ("exited", 0)
        said = client.get(f"{path}/processes/{process}/output").bytes.split()
        assert said == [str(i).encode() for i in range(1, 61)]


# ---- boxes of the pool that end ----------------------------------------------------------------

POOL = 4

# An ordinary user's boxes are other ids of his, and only who is such an id may end them.
KILL = """import os, signal, sys
maps = [tuple(map(int, line.split())) for line in open("/proc/self/uid_map")]
for pid in map(int, sys.argv[1:]):
    uid = os.stat(f"/proc/{pid}").st_uid
    if os.fork() == 0:
        os.setresuid(uid, uid, uid)
        os.kill(pid, signal.SIGKILL)
        os._exit(0)
    assert os.wait()[1] == 0
"""


def inits_of(serve):
    """The host pids of the inits of its boxes."""
    found = []
    for pid in harness.children_of(serve.process.pid):
        status = harness.status_of(pid)
        if status and status["Name"].endswith("cove-init"):
            found.append(pid)
    return found


def kill_all(pids):
    inside = [] if harness.EXPECT.is_root else ["unshare", "--map-root-user", "--map-auto"]
    subprocess.run([*inside, sys.executable, "-c", KILL, *map(str, pids)], check=True)
    harness.wait_for(lambda: all(harness.status_of(pid).get("State", "Z")[0] == "Z" for pid in pids),
                     20 * harness.PATIENCE, "their ends")


@pytest.mark.parametrize("kind", ["ephemeral", "persistent"])
def test_who_is_given_a_box_of_the_pool_that_has_ended_gets_another_one(tmp_path, kind):
    """The engine is stopped meanwhile, so that it hears of the ends and of the creates in any order."""
    config = f"[boxes]\npool = {POOL}\nmemory = 128M\ndisk = 64M\n"
    with serving.Serve(tmp_path, config) as serve, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(serve.client()) for _ in range(POOL + 2)]
        for client in clients:
            assert client.get("/readyz").status == 200
        for _ in range(3):
            made = make(clients[0], disk_kind=kind)
            assert clients[0].delete(path_of(made)).status == 204
            harness.wait_for(lambda: len(inits_of(serve)) == POOL, 20 * harness.PATIENCE, "the pool")
            engine = serve.engine_pid()
            os.kill(engine, signal.SIGSTOP)
            for client in clients:
                client.send("POST", "/v1/sandboxes", {**EPHEMERAL, "disk_kind": kind})
            kill_all(inits_of(serve))
            os.kill(engine, signal.SIGCONT)
            for client in clients:
                answer = client.receive()
                assert answer.status == 201, answer
                path = path_of(answer.json)
                assert run(client, path, "echo here")["stdout"] == "here\n"
                assert client.delete(path).status == 204
        assert "the box that was ready has ended" in serve.said()


# ---- an engine that hangs ----------------------------------------------------------------------

HANG_S = 3


def test_an_engine_that_hangs_is_replaced_and_commands_go_on(tmp_path, monkeypatch):
    monkeypatch.setenv("COVE_TEST_HANG_MS", str(HANG_S * 1000))
    with serving.Serve(tmp_path) as serve:
        with serve.client() as client:
            path = path_of(make(client))
            line = "for i in $(seq 1 100); do echo $i; sleep 0.05; done"
            process = client.post(f"{path}/processes", {"command": line}).json["id"]
        engine = serve.engine_pid()
        os.kill(engine, signal.SIGSTOP)
        harness.wait_for(lambda: serve.engine_pid() not in (None, engine),
                         10 * HANG_S * harness.PATIENCE, "another engine")
        serve.wait_ready()
        assert " engine_hung " in serve.said()
        with serve.client() as client:
            ended = client.get(f"{path}/processes/{process}/wait").json
            assert (ended["state"], ended["exit_code"]) == ("exited", 0)
            said = client.get(f"{path}/processes/{process}/output").bytes.split()
            assert said == [str(i).encode() for i in range(1, 101)]
        assert serve.said().count(" engine_hung ") == 1


def test_an_engine_hangs_after_half_a_minute_and_not_before(timed):
    engine = timed.engine_pid()
    os.kill(engine, signal.SIGSTOP)
    for _ in range(5):
        timed.clock.advance(5, awaits=("keeper",))
    assert timed.engine_pid() == engine and " engine_hung " not in timed.said()
    for _ in range(2):
        timed.clock.advance(5, awaits=("keeper",))
    assert " engine_hung " in timed.said()
    timed.wait_next_engine(engine)


def test_a_machine_that_was_stopped_has_no_engine_that_hangs(timed):
    """Neither does one that has nothing to do."""
    engine, keeper = timed.engine_pid(), timed.process.pid
    for pid in (engine, keeper):
        os.kill(pid, signal.SIGSTOP)
    timed.clock.advance(60, awaits=())
    os.kill(keeper, signal.SIGCONT)
    timed.clock.advance(5, awaits=("keeper",))
    os.kill(engine, signal.SIGCONT)
    for _ in range(12):
        timed.clock.advance(5)
    assert timed.engine_pid() == engine and " engine_hung " not in timed.said()


# ---- a keeper that is killed; an end in order --------------------------------------------------

def test_when_the_keeper_dies_all_is_stopped_and_says_why(tmp_path):
    config = "[boxes]\npool = 2\nmemory = 256M\ndisk = 64M\n"
    with serving.Serve(tmp_path, config) as serve:
        with serve.client() as client:
            path = path_of(make(client, name="survivor"))
            assert run(client, path, "echo before")["stdout"] == "before\n"
            client.post(f"{path}/processes", {"command": "sleep 600"})
        engine = serve.engine_pid()
        serve.process.kill()
        serve.process.wait()
        harness.wait_for(lambda: not os.path.exists(f"/proc/{engine}"), 20 * harness.PATIENCE,
                         "the engine's end")
    with serving.Serve(tmp_path, config) as serve, serve.client() as client:
        sandbox = client.get("/v1/sandboxes/name:survivor").json
        assert (sandbox["state"], sandbox["reason"]) == ("stopped", "keeper_lost")
        processes = client.get(f"{path}/processes").json["processes"]
        assert [(p["state"], p["exit_code"]) for p in processes] == [("exited", 0), ("lost", None)]
        assert run(client, path, "echo after", start=True)["stdout"] == "after\n"


def test_it_ends_in_order_when_told_to(tmp_path):
    with serving.Serve(tmp_path) as serve, serve.client() as client:
        make(client, name="last")
        client.close()
        serve.process.terminate()
        assert serve.process.wait(30 * harness.PATIENCE) == 0
        assert "killed" not in serve.said(), serve.said()


# ---- many --------------------------------------------------------------------------------------

def test_many_come_and_go_and_leave_nothing(serve):
    def files():
        return len(os.listdir(f"/proc/{serve.engine_pid()}/fd"))

    many = harness.scaled(60, 5)
    with serve.client() as client:
        client.delete(path_of(make(client)))
        before = harness.at_rest(files)
        made = [make(client) for _ in range(many)]
        assert [sandbox["id"] for sandbox in all_of(client)] == [each["id"] for each in made]
        for sandbox in made:
            assert client.delete(path_of(sandbox)).status == 204
        harness.wait_for(lambda: files() <= before + 4, 10 * harness.PATIENCE, "its fds are closed")


def test_told_to_end_it_stops_what_runs_and_says_why(tmp_path):
    """Who waits is answered, what was printed and written is there at the next start, and why it stopped."""
    with serving.Serve(tmp_path) as serve, contextlib.ExitStack() as stack:
        client, follow, wait, held, short, events = (stack.enter_context(serve.client())
                                                     for _ in range(6))
        path = path_of(make(client, name="told", disk_kind="persistent"))
        assert run(client, path, "echo kept > ~/file; echo so")["stdout"] == "so\n"
        process = client.post(f"{path}/processes", {"command": "echo first; sleep 600"}).json["id"]
        lines = serving.Lines(follow, f"{path}/processes/{process}/follow")
        assert next(lines)["data"] == "first\n"
        told = serving.Lines(events, "/v1/events")
        held.send("POST", f"{path}/exec", {"command": "echo begun; sleep 600", "tag": "held"})
        wait.send("GET", f"{path}/processes/{process}/wait")

        def is_begun(tag):
            found = client.get(f"{path}/processes").json["processes"]
            return any(p["tag"] == tag and p["stdout"]["bytes"] >= len("begun\n") for p in found)

        def is_draining():
            try:
                return client.post(f"{path}/stop?x=1").code == "draining"
            except (OSError, http.client.HTTPException):
                return serve.engine_pid() is None  # it has drained meanwhile
        harness.wait_for(lambda: is_begun("held"), 20 * harness.PATIENCE, "the command's output")
        short.send("POST", f"{path}/exec", {"command": "echo begun; sleep 0.3; echo done", "tag": "short"})
        harness.wait_for(lambda: is_begun("short"), 20 * harness.PATIENCE, "the short command")
        serve.process.terminate()
        harness.wait_for(is_draining, what="the refusal of new ones")
        assert short.receive().json["stdout"] == "begun\ndone\n"
        ended = held.receive().json
        assert ended["process"]["state"] == "lost" and ended["stdout"] == "begun\n", ended
        assert ended["process"]["reason"] == "server_stopped", ended
        assert lines.until("exit")[-1]["process"]["state"] == "lost"
        assert wait.receive().json["reason"] == "server_stopped"
        stops = [line for line in told.until("sandbox.stopped") if line["type"] == "sandbox.stopped"]
        assert [stop["reason"] for stop in stops] == ["server_stopped"]
        assert serve.process.wait(50 * harness.PATIENCE) == 0
    assert " warn " not in serve.said(), serve.said()
    with serving.Serve(tmp_path) as serve, serve.client() as client:
        sandbox = client.get("/v1/sandboxes/name:told").json
        assert (sandbox["state"], sandbox["reason"]) == ("stopped", "server_stopped")
        assert client.get(f"{path}/processes/{process}/output").bytes == b"first\n"
        said = run(client, path, "cat ~/file", start=True)
        assert said["stdout"] == "kept\n", said


def waiting_to_be_written(directory):
    """Files of which something has no place on the disk yet, as the file system says itself."""
    inside = [] if harness.EXPECT.is_root else ["unshare", "--map-root-user", "--map-auto"]
    command = "find %s -type f -exec filefrag -v {} +" % directory
    said = subprocess.run([*inside, "sh", "-c", command], stdout=subprocess.PIPE, text=True,
                          check=False).stdout
    assert "File size" in said, said
    return [line for line in said.splitlines() if "delalloc" in line]


def test_what_is_persistent_is_written_when_it_ends(tmp_path):
    """An image when its mount ends, of a small disk, too, which has no journal; a directory by the keeper."""
    disks = tmp_path / "data" / "disks"
    with serving.Serve(tmp_path, "[boxes]\npool = 0\nmemory = 128M\ndisk = 64M\n") as serve:
        with serve.client() as client:
            for size in (64 << 20, 256 << 20) * 3:
                path = path_of(make(client, disk_kind="persistent", resources={"disk_bytes": size}))
                run(client, path, "dd if=/dev/urandom of=~/file bs=1M count=24 2>&1")
        serve.process.terminate()
        assert serve.process.wait(50 * harness.PATIENCE) == 0
        assert not waiting_to_be_written(disks)
