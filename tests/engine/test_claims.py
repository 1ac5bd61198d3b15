"""Attacks on what many share: the pool, verbs that meet, init from within its box, and the walls between
tenants. Whoever tries gets a defined answer, and only his own."""
import contextlib
import http.client
import io
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import threading
import time

import pytest
import yaml

import harness
import serving
from sandboxes import EPHEMERAL, parent_of, make, new_key, run

nothing_left, serve, api = serving.one_for_all("[boxes]\npool = 8\nmemory = 128M\ndisk = 16M\n")


# ---- one box, two claims -----------------------------------------------------------------------

@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_of_fifty_creates_at_once_no_two_share_a_box(serve, privileges):
    # An ordinary user has ids for some sixty boxes, of which others may hold some.
    many = harness.scaled(50 if harness.EXPECT.is_root else 16, 10)

    def create(number):
        def ask():
            with serve.client() as client:
                path = make(client, privileges=privileges)
                first = run(client, path, f"cat /tmp/mark; echo {number} > /tmp/mark; "
                                          "readlink /proc/self/ns/pid /proc/self/ns/mnt")["stdout"]
                return path, first.split()
        return ask

    made = serving.at_once(*[create(number) for number in range(many)])
    assert len({path for path, _ in made}) == many
    for part in range(2):
        assert len({said[part] for _, said in made}) == many, "two have one namespace"
    assert all(len(said) == 2 for _, said in made), "somebody was there before"
    with serve.client() as client:
        for number, (path, _) in enumerate(made):
            assert run(client, path, "cat /tmp/mark")["stdout"] == f"{number}\n"
            assert client.delete(path).status == 204


def test_creates_and_engines_that_die_never_give_one_box_twice(serve):
    """The pool of the old engine is the new one's: what was claimed is not in it."""
    seen = set()
    for _ in range(harness.scaled(4, 2)):
        def create():
            with serve.client() as client, contextlib.suppress(OSError, http.client.HTTPException):
                path = make(client)
                return path, run(client, path, "cat /tmp/mark; echo x > /tmp/mark; "
                                               "readlink /proc/self/ns/pid")["stdout"]
            return None

        def kill():
            time.sleep(0.01)
            os.kill(serve.engine_pid(), signal.SIGKILL)

        *answers, _ = serving.at_once(*[create] * 12, kill)
        serve.wait_ready()
        for answer in filter(None, answers):
            assert "x" not in answer[1].split(), "somebody was there before"
            assert answer not in seen
            seen.add(answer)
    with serve.client() as client:
        for sandbox in client.get("/v1/sandboxes", query={"limit": 200}).json["sandboxes"]:
            assert client.delete(f"/v1/sandboxes/{sandbox['id']}").status == 204


# ---- bursts of one tenant ----------------------------------------------------------------------

@contextlib.contextmanager
def tenants(serve, api, *names):
    """A function for each that makes clients of that tenant, whose sandboxes and keys are deleted at the end."""
    keys = [new_key(api, tenant=name) for name in names]
    yield [lambda key=key: serving.Client(path=serve.socket, key=key["secret"]) for key in keys]
    for key in keys:
        with serving.Client(path=serve.socket, key=key["secret"]) as client:
            for sandbox in client.get("/v1/sandboxes", query={"limit": 200}).json["sandboxes"]:
                assert client.delete(f"/v1/sandboxes/{sandbox['id']}").status == 204
        assert api.delete(f"/v1/keys/{key['id']}").status == 204


def waiting(api, tenant):
    sample = f'cove_tenant_waiting_sandboxes{{tenant="{tenant}"}} '
    return sum(int(line.removeprefix(sample)) for line in api.get("/metrics").bytes.decode().splitlines()
               if line.startswith(sample))


PERSISTENT = {**EPHEMERAL, "disk_kind": "persistent"}


def test_a_burst_waits_its_turn_and_no_other_tenant_waits_behind_it(serve, api):
    with contextlib.ExitStack() as stack:
        noisy, quiet = stack.enter_context(tenants(serve, api, "noisy", "quiet"))
        clients = [stack.enter_context(noisy()) for _ in range(100)]
        for client in clients:
            client.send("POST", "/v1/sandboxes", PERSISTENT)
        with quiet() as client:
            for _ in range(3):
                path = make(client, **PERSISTENT)
                assert run(client, path, "echo hello")["stdout"] == "hello\n"
                assert client.delete(path).status == 204
        assert waiting(api, "noisy") > 0, "the other tenant waited for all of the burst"
        answers = [client.receive() for client in clients]
        assert {answer.status for answer in answers} == {201}, [answer for answer in answers if answer.status != 201]
        assert waiting(api, "noisy") == 0


def test_a_create_whose_client_leaves_gives_up_its_turn(serve, api):
    with contextlib.ExitStack() as stack:
        noisy, = stack.enter_context(tenants(serve, api, "noisy"))
        stay, leave = ([stack.enter_context(noisy()) for _ in range(60)] for _ in range(2))
        for client in [*stay, *leave]:
            client.send("POST", "/v1/sandboxes", PERSISTENT)
        for client in leave:
            client.close()
        assert {client.receive().status for client in stay} == {201}
        harness.wait_for(lambda: waiting(api, "noisy") == 0, what="the end of the line")
        with noisy() as client:
            there = client.get("/v1/sandboxes", query={"limit": 200}).json["sandboxes"]
        # The first of them may have had their turn before they left.
        assert len(stay) <= len(there) < len(stay) + len(leave) // 2


# ---- verbs that meet ---------------------------------------------------------------------------

def test_a_delete_in_the_middle_of_commands_answers_each_of_them(serve):
    for pause in (0, 0.002, 0.01, 0.05):
        with serve.client() as client:
            path = make(client)

        def execute(where=path):
            with serve.client() as client:
                answers = []
                while not answers or answers[-1].status == 200:
                    answers.append(client.post(f"{where}/exec", {"command": "echo whole; true"}))
                    if answers[-1].status == 200 and answers[-1].json["process"]["state"] != "exited":
                        assert answers[-1].json["process"]["state"] == "lost", answers[-1]
                        break
                return answers

        def delete(where=path, after=pause):
            time.sleep(after)
            with serve.client() as client:
                return client.delete(where).status

        *executed, deleted = serving.at_once(*[execute] * 6, delete, seconds=30)
        assert deleted == 204
        for answers in executed:
            for answer in answers[:-1]:
                assert answer.json["process"]["exit_code"] == 0 and \
                    answer.json["stdout"] == "whole\n", answer
            assert answers[-1].status == 200 or \
                answers[-1].code in ("sandbox_gone", "sandbox_stopped"), answers[-1]
        with serve.client() as client:
            assert client.get(path).code == "sandbox_gone"


def test_a_client_that_gives_up_during_create_leaves_one_sandbox_or_none(serve, api):
    for number in range(harness.scaled(12, 3)):
        name = f"given-up-{number}"
        client = serve.client()
        # A hostname of its own, so that the box is made for it and takes its time.
        client.send("POST", "/v1/sandboxes", {**EPHEMERAL, "name": name, "hostname": f"h{number}"})
        time.sleep(0.001 * number)
        client.close()
        made = api.post("/v1/sandboxes", {**EPHEMERAL, "name": name, "hostname": f"h{number}"})
        assert made.status in (200, 201), made
        same = [sandbox for sandbox in api.get("/v1/sandboxes", query={"name_prefix": name}).json[
            "sandboxes"] if sandbox["name"] == name]
        assert [sandbox["id"] for sandbox in same] == [made.json["id"]]
        path = f"/v1/sandboxes/{made.json['id']}"
        assert run(api, path, "hostname")["stdout"] == f"h{number}\n"
        assert api.delete(path).status == 204


def test_a_command_whose_time_is_over_before_its_sandbox_stands_is_ended_by_it(api):
    path = make(api, hostname="slow")
    assert api.post(f"{path}/stop").status == 200
    answer = run(api, path, "sleep 60", start=True, timeout_ms=1)
    assert answer["process"]["timed_out"], answer
    assert api.get(path).json["state"] == "running"
    assert api.delete(path).status == 204


def test_a_sandbox_whose_time_is_over_while_it_is_made_is_gone_or_stopped(api):
    for then, code in (("kill", "sandbox_gone"), ("stop", None)):
        for lifetime in (1, 3, 10):
            answer = api.post("/v1/sandboxes", {**EPHEMERAL, "hostname": "brief", "lifecycle": {
                "lifetime_ms": lifetime, "then": then}})
            if answer.status != 201:
                assert answer.code in ("sandbox_gone", "bad_request"), answer
                continue
            path = f"/v1/sandboxes/{answer.json['id']}"

            def is_over(where=path, kind=code):
                found = api.get(where)
                return found.code == kind if found.status != 200 else \
                    kind is None and found.json["state"] == "stopped"

            harness.wait_for(is_over, 30 * harness.PATIENCE, f"{then} after {lifetime} ms")
            assert api.delete(path).status == 204


# ---- init, from within -------------------------------------------------------------------------

@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_init_is_neither_killed_nor_stopped_from_within(api, privileges):
    path = make(api, privileges=privileges)
    said = run(api, path, "for s in KILL STOP TERM INT HUP QUIT SEGV ABRT USR1 USR2 ALRM TSTP CONT; do "
                          "kill -$s 1 2>/dev/null; done; kill -KILL -1 2>/dev/null; echo lives")
    assert said["process"]["state"] == "exited", said
    assert run(api, path, "echo on")["stdout"] == "on\n"
    sandbox = api.get(path).json
    assert (sandbox["state"], sandbox["reason"]) == ("running", "created")
    assert api.delete(path).status == 204


# Prints which Landlock the kernel has, and how many layers of it can still be added: there is room for 16.
LAYERS = """
import ctypes
kernel = ctypes.CDLL(None)
kernel.prctl(38, 1, 0, 0, 0)  # no_new_privs
print(kernel.syscall(444, None, 0, 1), end=" ")
ruleset, count = kernel.syscall(444, ctypes.byref(ctypes.c_uint64(1 << 6)), 8, 0), 0
while ruleset >= 0 and count < 64 and kernel.syscall(446, ruleset, 0) == 0:
    count += 1
print(count)
"""


@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_a_sandbox_has_its_layer_of_landlock(api, privileges):
    """That of the pool, which a zygote has made; tests/box/test_posture.py looks at those of `cove run`."""
    here = subprocess.run(["/usr/bin/python3", "-c", LAYERS], capture_output=True, text=True, check=True).stdout
    version, layers = map(int, here.split())
    path = make(api, privileges=privileges)
    said = api.post(f"{path}/exec", {"argv": ["/usr/bin/python3", "-c", LAYERS]}).json
    assert said["stdout"].split() == [str(version), str(layers - 1 if version >= 2 else layers)], said
    assert api.delete(path).status == 204


def test_a_box_whose_init_is_killed_stops_alone_and_says_so(serve, api):
    path, other = make(api), make(api)
    process = api.post(f"{path}/processes", {"argv": ["sleep", "7357"]}).json["id"]
    init = harness.wait_for(lambda: parent_of(serve, b"7357"), what="the command")
    assert "cove-init" in harness.status_of(init)["Name"], harness.status_of(init)
    os.kill(init, signal.SIGKILL)
    harness.wait_for(lambda: api.get(path).json["state"] == "stopped", 30 * harness.PATIENCE, "its end")
    assert api.get(path).json["reason"] == "box_ended"
    ended = api.get(f"{path}/processes/{process}").json
    assert (ended["state"], ended["exit_code"]) == ("lost", None)
    assert run(api, other, "echo on")["stdout"] == "on\n"
    assert run(api, path, "echo again", start=True)["stdout"] == "again\n"
    for each in (path, other):
        assert api.delete(each).status == 204


def test_a_box_whose_init_is_stopped_can_be_deleted_and_others_do_not_notice(serve, api):
    path, other = make(api), make(api)
    api.post(f"{path}/processes", {"argv": ["sleep", "7358"]})
    init = harness.wait_for(lambda: parent_of(serve, b"7358"), what="the command")
    os.kill(init, signal.SIGSTOP)
    with serve.client() as waiting:
        waiting.send("POST", f"{path}/exec", {"command": "echo on"})
        assert run(api, other, "echo on")["stdout"] == "on\n"
        assert api.get(path).json["state"] == "running"
        begun = time.monotonic()
        assert api.delete(path).status == 204
        assert time.monotonic() - begun < 20 * harness.PATIENCE
        assert waiting.receive().code in ("sandbox_gone", "sandbox_stopped")
    assert api.delete(other).status == 204


# ---- many who listen ---------------------------------------------------------------------------

class Followers:
    """So many connections that read one stream each, all in this thread."""

    def __init__(self, serve, path, count):
        self.read = [bytearray() for _ in range(count)]
        self.selector = selectors.DefaultSelector()
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        for number in range(count):
            one = socket.socket(socket.AF_UNIX)
            harness.wait_for(lambda it=one: it.connect_ex(str(serve.socket)) == 0, what="a connection")
            one.sendall(request)
            one.setblocking(False)
            self.selector.register(one, selectors.EVENT_READ, number)

    def finish(self, seconds):
        deadline = time.monotonic() + seconds * harness.PATIENCE
        while self.selector.get_map():
            assert time.monotonic() < deadline, f"{len(self.selector.get_map())} have not heard the end"
            for key, _ in self.selector.select(1):
                data = key.fileobj.recv(1 << 18)
                self.read[key.data] += data
                if not data:
                    self.selector.unregister(key.fileobj)
                    key.fileobj.close()

    def close(self):
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()

    def texts(self):
        """What each was told of stdout, and whether of the end."""
        for data in self.read:
            response = http.client.HTTPResponse(
                type("Read", (), {"makefile": lambda _, *__, data=data: io.BytesIO(data)})())
            response.begin()
            assert response.status == 200, data[:300]
            lines = [json.loads(line) for line in response.read().splitlines()]
            assert lines[-1]["type"] == "exit" and lines[-1]["process"]["exit_code"] == 0, lines[-1]
            yield serving.text_of(lines, "stdout")


def test_a_thousand_followers_hear_the_same_while_another_sandbox_answers(serve, api):
    """They get their lines in turns; who asks for something else meanwhile is answered in between."""
    count = harness.scaled(1000, 50)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 256)), hard))
    path, other = make(api), make(api)
    process = api.post(f"{path}/processes", {
        "open_stdin": True, "command": "read begin; for i in 1 2 3; do seq 1 4000; sleep 0.8; done"}).json["id"]
    followers = Followers(serve, f"{path}/processes/{process}/follow", count)
    try:
        assert api.post(f"{path}/processes/{process}/stdin", b"\n").status in (200, 204)
        over = threading.Event()

        def read():
            try:
                followers.finish(120)
            finally:
                over.set()

        def execute():
            answered = 0
            with serve.client() as client:
                while not over.is_set():
                    assert run(client, other, "echo on")["stdout"] == "on\n"
                    answered += 1
            return answered

        _, answered = serving.at_once(read, execute, seconds=150)
        assert answered and answered >= 3, answered
        expected = "".join(f"{i}\n" for i in range(1, 4001)) * 3
        told = 0
        for text in followers.texts():
            assert text == expected, f"{len(text)} characters where {len(expected)} were printed"
            told += 1
        assert told == count
    finally:
        followers.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for each in (path, other):
        assert api.delete(each).status == 204


# ---- tenants -----------------------------------------------------------------------------------

NEVER = "c0aaaaaaaaaaaaaaaaaa"


def answer_of(answer, *ids):
    """All that a client sees, with the id that it named itself taken out."""
    body = answer.bytes
    for identity in ids:
        body = body.replace(identity.encode(), b"ID")
    headers = {name.lower(): value for name, value in answer.headers.items()
               if name.lower() not in ("date", "cove-request-id")}
    headers["content-length"] = str(len(body))
    return answer.status, headers, body


DOCUMENT = yaml.safe_load((serving.NATIVE / "openapi.yaml").read_text())
# What a body is where the document shows none, and what is named in a query.
BYTES = b"x"
QUERY = {"path": "/tmp/x", "name": "user.x", "target": "/notes"}
# Without these it is another request, which needs no sandbox to be refused.
UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
           "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}


def resolved(node):
    while "$ref" in node:
        reference, node = node["$ref"], DOCUMENT
        for part in reference.lstrip("#/").split("/"):
            node = node[part]
    return node


def request_of(method, pattern):
    """What a client sends there, from the document's own example: (body, headers, query)."""
    item = DOCUMENT["paths"][pattern]
    named = {resolved(one)["name"] for one in
             [*item.get("parameters", []), *item[method.lower()].get("parameters", [])]}
    query = {name: value for name, value in QUERY.items() if name in named}
    headers = {}
    if pattern.endswith("/terminal"):
        headers = dict(UPGRADE)
    elif "/tunnels/" in pattern:
        headers = {"Connection": "Upgrade", "Upgrade": "tcp"}
    if "requestBody" not in item[method.lower()]:
        return None, headers, query
    kind, content = next(iter(resolved(item[method.lower()]["requestBody"])["content"].items()))
    if kind == "application/json":
        return content["example"], headers, query
    headers["Content-Type"] = kind + ("; boundary=b" if kind.startswith("multipart") else "")
    return BYTES, headers, query


SANDBOX = "/v1/sandboxes/{id}"
REQUESTS = [(method, pattern.removeprefix(SANDBOX).replace("{pid}", "1").replace("{port}", "80"),
             *request_of(method, pattern))
            for method, pattern in serving.routes_of_source() if pattern.startswith(SANDBOX)]
REQUESTS.append(("POST", "/exec", {"command": "true", "start": True}, {}, {}))


def test_of_anothers_sandbox_a_tenant_hears_what_it_hears_of_one_that_never_was(serve, api):
    mine, theirs = new_key(api, "read", "write", "keys", tenant="team-mine"), new_key(api, "read", "write", "keys", tenant="team-theirs")
    with serve.tcp(theirs["secret"]) as owner, serve.tcp(mine["secret"]) as stranger:
        alive, gone, stopped = make(owner, name="secret"), make(owner), make(owner)
        for path in (alive, gone, stopped):
            assert owner.post(f"{path}/processes", {"command": "echo private; sleep 600"}).status == 201
        assert owner.delete(gone).status == 204
        assert owner.post(f"{stopped}/stop").status == 200
        before = owner.get(alive).bytes
        for method, tail, body, headers, query in REQUESTS:
            def ask(path, what=(method, tail, body, headers, query)):
                verb, end, sent, more, asked = what
                return stranger.ask(verb, f"{path}{end}", sent, headers=more, query=asked)

            never = ask(f"/v1/sandboxes/{NEVER}")
            # Else something else was wrong with it, and nothing would be tried.
            assert never.code == "sandbox_not_found", f"{method} {tail}: {never}"
            for path in (alive, gone, stopped):
                identity = path.rsplit("/", 1)[1]
                other = ask(path)
                assert answer_of(other, identity, NEVER) == answer_of(never, identity, NEVER), \
                    f"{method} {tail}"
            for prefix in ("name:", ""):
                by_name = [ask(f"/v1/sandboxes/{prefix}{name}") for name in ("secret", "nobody")]
                assert answer_of(by_name[0], "secret", "nobody") == \
                    answer_of(by_name[1], "secret", "nobody"), f"{method} {tail} by name"
        assert owner.get(alive).bytes == before, "a stranger has changed it"
        assert owner.get(f"{alive}/processes/1").json["state"] == "running"
        assert owner.get(f"{alive}/processes/1/output").bytes == b"private\n"
        # The name is everybody's own.
        assert make(stranger, name="secret") != alive
        assert len(stranger.get("/v1/sandboxes").json["sandboxes"]) == 1
        for query in ({"name_prefix": "sec"}, {"state": "running"}):
            listed = stranger.get("/v1/sandboxes", query=query).json["sandboxes"]
            assert {sandbox["tenant"] for sandbox in listed} == {"team-mine"}
        assert stranger.get("/v1/sandboxes", query={"all_tenants": "true"}).code == "forbidden"
        # A cursor of another's list leads nowhere else.
        page = owner.get("/v1/sandboxes", query={"limit": 1}).json
        if page["next"]:
            answer = stranger.get("/v1/sandboxes", query={"limit": 50, "cursor": page["next"]})
            assert answer.status == 400 or \
                {sandbox["tenant"] for sandbox in answer.json["sandboxes"]} <= {"team-mine"}
        for client in (owner, stranger):
            for sandbox in client.get("/v1/sandboxes").json["sandboxes"]:
                assert client.delete(f"/v1/sandboxes/{sandbox['id']}").status == 204


# ---- roots and mounts of the host, which are tenants' --------------------------------------------

def operate(serve, *words):
    """What only the operator may, at the keeper's socket."""
    done = harness.cove(*words, env={**os.environ, "COVE_URL": f"unix:{serve.socket}"})
    assert done.code == 0, done.err


def give(serve, kind, name, place, tenant):
    operate(serve, kind, "add", "--tenant", tenant, name, place)


@pytest.fixture
def shared(serve):
    """A directory of the host that is a mount and a root of a tenant, with its tenant's client and a stranger's."""
    place = serve.directory / "shared"
    place.mkdir()
    (place / "note").write_text("private\n")
    give(serve, "mount", "shared", place, "team-mine")
    give(serve, "root", "shared", place, "team-mine")
    with serve.client() as client:
        keys = [new_key(client, tenant=tenant)["secret"] for tenant in ("team-mine", "team-theirs")]
    try:
        with serve.tcp(keys[0]) as owner, serve.tcp(keys[1]) as stranger:
            yield place, owner, stranger
    finally:
        for kind in ("mount", "root"):
            operate(serve, kind, "rm", "shared")
        for each in place.iterdir():
            each.unlink()
        place.rmdir()


def mounted(name):
    return {"mounts": [{"name": name, "target": "/mnt/it"}]}


@pytest.mark.wall
def test_of_anothers_root_or_mount_a_tenant_hears_what_it_hears_of_one_that_never_was(serve, api, shared):
    place, owner, stranger = shared
    assert stranger.get("/v1/roots").json == {"roots": [], "mounts": [], "mounts_read_only": []}
    for client in (owner, api):
        assert client.get("/v1/roots").json == {"roots": ["shared"], "mounts": ["shared"], "mounts_read_only": []}
    for fields in ({"root": "shared"}, mounted("shared")):
        never = json.loads(json.dumps(fields).replace("shared", "nobody"))
        for more in ({}, {"name": "a-name"}, {"disk_kind": "persistent"}):
            theirs, nobodys = (stranger.post("/v1/sandboxes", {**EPHEMERAL, **more, **asked})
                               for asked in (fields, never))
            assert theirs.refusal in ((422, "unknown_root"), (422, "unknown_mount"))
            assert answer_of(theirs, "shared") == answer_of(nobodys, "nobody")
    assert stranger.get("/v1/sandboxes").json["sandboxes"] == []
    path = make(owner, **mounted("shared"))
    assert run(owner, path, "cat /mnt/it/note; echo mine > /mnt/it/f")["stdout"] == "private\n"
    assert (place / "f").read_text() == "mine\n"
    assert owner.delete(path).status == 204


def test_a_mount_that_was_registered_read_only_is_shown_so(serve, api, shared):
    place, owner, stranger = shared
    operate(serve, "mount", "add", "--read-only", "--tenant", "team-mine", "looked-at", place)
    try:
        assert owner.get("/v1/roots").json["mounts_read_only"] == ["looked-at"]
        assert stranger.get("/v1/roots").json["mounts_read_only"] == []
        path = make(owner, mounts=[{"name": "looked-at", "target": "/mnt/it"}, {"name": "shared", "target": "/mnt/other"}])
        assert [each["read_only"] for each in owner.get(path).json["mounts"]] == [True, False]
        url = {**os.environ, "COVE_URL": f"http://127.0.0.1:{serve.port}", "COVE_API_KEY": owner.key}
        listed = {line.split()[0]: line.split()[1] for line in harness.cove("mount", "ls", env=url).out.decode().splitlines()}
        assert listed == {"NAME": "STATE", "looked-at": "read-only", "shared": "-"}
        assert owner.delete(path).status == 204
    finally:
        operate(serve, "mount", "rm", "looked-at")


@pytest.mark.wall
def test_a_sandbox_has_no_mount_again_that_was_taken_from_its_tenant(serve, shared):
    """It goes on with what it has. Neither a start, a command that starts it, nor a look at its files is a way back."""
    place, owner, stranger = shared
    path = make(owner, disk_kind="persistent", **mounted("shared"))
    operate(serve, "mount", "rm", "shared")
    give(serve, "mount", "shared", place, "team-theirs")
    assert owner.get("/v1/roots").json["mounts"] == []
    assert stranger.get("/v1/roots").json["mounts"] == ["shared"]
    assert run(owner, path, "cat /mnt/it/note")["stdout"] == "private\n"
    assert owner.post(f"{path}/stop").status == 200
    for refused in (owner.post(f"{path}/start"), owner.post(f"{path}/exec", {"command": "true", "start": True}),
                    owner.get(f"{path}/files", query={"path": "/mnt/it/note"})):
        assert refused.refusal == (422, "unknown_mount")
    assert owner.get(path).json["state"] == "stopped"
    serve.kill_engine()
    with serve.tcp(owner.key) as client:
        assert client.post(f"{path}/start").refusal == (422, "unknown_mount")
        operate(serve, "mount", "rm", "shared")
        give(serve, "mount", "shared", place, "*")
        assert client.post(f"{path}/start").status == 200
        assert run(client, path, "cat /mnt/it/note")["stdout"] == "private\n"
        assert client.delete(path).status == 204


def test_keys_and_quotas_of_another_tenant_are_as_if_they_were_not(serve, api):
    mine, theirs = new_key(api, "read", "write", "keys", tenant="team-mine"), new_key(api, "read", "write", "keys", tenant="team-theirs")
    with serve.tcp(mine["secret"]) as stranger, serve.tcp(theirs["secret"]) as owner:
        assert {key["tenant"] for key in stranger.get("/v1/keys").json["keys"]} == {"team-mine"}
        never = theirs["id"][:-4] + ("0000" if not theirs["id"].endswith("0000") else "1111")
        other = stranger.delete(f"/v1/keys/{theirs['id']}")
        assert other.code == "key_not_found"
        assert answer_of(other, theirs["id"], never) == \
            answer_of(stranger.delete(f"/v1/keys/{never}"), theirs["id"], never)
        assert owner.get("/v1/sandboxes").status == 200, "a stranger has ended the key"
        for method, body in (("GET", None), ("PUT", {"sandboxes": 1})):
            there = stranger.ask(method, "/v1/tenants/team-theirs/quota", body)
            nowhere = stranger.ask(method, "/v1/tenants/team-nobody/quota", body)
            assert there.code == "forbidden"
            assert answer_of(there, "team-theirs", "team-nobody") == \
                answer_of(nowhere, "team-theirs", "team-nobody")
        assert stranger.ask("PUT", "/v1/tenants/team-mine/quota", {"sandboxes": 0}).code == "forbidden"


def test_events_of_another_tenant_are_not_heard_from_any_number(serve, api):
    mine, theirs = new_key(api, "read", "write", "keys", tenant="team-mine"), new_key(api, "read", "write", "keys", tenant="team-theirs")
    with serve.tcp(mine["secret"]) as listener, serve.tcp(theirs["secret"]) as owner, \
            serve.tcp(mine["secret"]) as other:
        lines = serving.Lines(listener, "/v1/events", {"from": 1})
        path = make(owner)
        run(owner, path, "true")
        assert owner.delete(path).status == 204
        own = make(other)
        seen = []
        for line in lines:
            seen.append(line)
            if line.get("sandbox") == own.rsplit("/", 1)[1]:
                break
        assert path.rsplit("/", 1)[1] not in {line.get("sandbox") for line in seen}
        assert {line.get("tenant", "team-mine") for line in seen} == {"team-mine"}
        assert other.delete(own).status == 204


def test_one_idempotency_key_of_two_tenants_is_two(serve, api):
    mine, theirs = new_key(api, "read", "write", "keys", tenant="team-mine"), new_key(api, "read", "write", "keys", tenant="team-theirs")
    paths = []
    for key in (mine, theirs):
        with serve.tcp(key["secret"]) as client:
            made = client.post("/v1/sandboxes", EPHEMERAL, headers={"Idempotency-Key": "the-same"})
            assert made.status == 201 and "Idempotent-Replayed" not in made.headers
            assert made.json["tenant"] == key["tenant"]
            paths.append(made.headers["Location"])
            assert client.delete(paths[-1]).status == 204
    assert paths[0] != paths[1]
