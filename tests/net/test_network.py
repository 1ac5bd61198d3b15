"""Whom a sandbox reaches: by its policy, through whatever happens to it and to the engine, and what is known of
it. Against real servers, in a world of their own (worlds.py)."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

import harness
import serving
import worlds
from dialling import DIAL, Held, is_late, no_name, QUICK, reaches, refused, Sandbox
from sandboxes import new_key

IS_ROOT = harness.EXPECT.is_root

@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with worlds.World(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture
def serve(world, tmp_path):
    with world.serve(tmp_path, "pool = 1\nmemory = 256M") as started:
        yield started


@pytest.fixture
def client(serve):
    with serve.client() as opened:
        yield opened


# ---- policies ----------------------------------------------------------------------------------

def test_who_says_nothing_reaches_the_public_internet(client, world):
    with Sandbox(client) as sandbox:
        assert sandbox.json["network"]["mode"] == "public"
        four, both, address = sandbox.dial("four.test:80", "both.test:443", f"{worlds.SERVER}:7")
        assert reaches(four, world.hello("four.test", worlds.SERVER, 80)) and reaches(both)
        assert reaches(address, f"hello {worlds.SERVER} 7")
        six, literal = sandbox.dial("six.test:80", f"[{worlds.SERVER6}]:7")
        assert reaches(six, world.hello("six.test", worlds.SERVER6, 80))
        assert reaches(literal, f"hello {worlds.SERVER6} 7")


def test_names_that_are_not_there_are_not_there(client):
    with Sandbox(client) as sandbox:
        answer = sandbox.dial("nowhere.test:80")[0]
        assert no_name(answer) if IS_ROOT else refused(answer), "a proxy may know more than DNS"


def test_without_a_policy_there_is_nothing(client, world):
    with Sandbox(client, network={"mode": "none"}) as sandbox:
        before = len(world.said())
        name, address, six = sandbox.dial("four.test:80", f"{worlds.SERVER}:80",
                                          f"[{worlds.SERVER6}]:80")
        assert refused(name, "gaierror") and refused(address, "OSError") and refused(six, "OSError")
        assert address[0] == six[0] == "OSError 101", "the network is unreachable"
        assert len(world.said()) == before
        assert sandbox.network()["open"] is False


def test_a_list_opens_what_it_names_and_nothing_else(client, world):
    with Sandbox(client, network={"allow": ["four.test:443", "*.wild.test"]}) as sandbox:
        assert sandbox.json["network"]["mode"] == "allow"
        before = len(world.said())
        name, port, other, address, apex = sandbox.dial(
            "four.test:443", "four.test:80", "other.test:443", f"{worlds.SERVER}:443", "wild.test:80")
        assert reaches(name, world.hello("four.test", worlds.SERVER, 443))
        assert refused(port) and no_name(other) and refused(address) and no_name(apex)
        assert reaches(sandbox.dial("deep.wild.test:80")[0])
        asked = [line for line in world.said()[before:] if "other" in line or " wild.test" in line]
        assert not asked, "what is refused is not even asked for"


def test_deny_goes_before_allow(client):
    with Sandbox(client, network={"mode": "public",
                                  "deny": ["bare.wild.test", worlds.OTHER, "four.test:80"]}) as sandbox:
        bare, wild, other, port, more = sandbox.dial(
            "bare.wild.test:80", "x.wild.test:80", "other.test:80", "four.test:80", "four.test:443")
        assert no_name(bare) and reaches(wild) and refused(other) and refused(port) and reaches(more)


def test_private_addresses_need_to_be_named_as_such(client):
    for network, opens in (({"mode": "public"}, False), ({"allow": ["private.test"]}, False),
                           ({"allow": ["private.test private=yes"]}, True),
                           ({"mode": "public", "allow": ["10.77.0.0/16:80"]}, True)):
        with Sandbox(client, network=network) as sandbox:
            answer = sandbox.dial("private.test:80")[0]
            assert reaches(answer) if opens else refused(answer), (network, answer)


def reloaded(serve, config):
    """A client of the next engine, which has read this."""
    serve.reload(config)
    return serve.client()


def ways_to_open(client, sandbox, rule):
    """All answers to who would reach something by this rule."""
    yield client.post("/v1/sandboxes", {"network": {"allow": [rule]}})
    yield sandbox.ask("PATCH", body={"network": {"allow": [rule]}})
    yield client.post("/v1/kernels", {"allowed_hosts": [rule]})
    yield client.post("/v1/kernels/run", {"code": "1", "allowed_hosts": [rule]})


def test_no_policy_opens_a_private_network_that_the_operator_does_not(world, tmp_path):
    target = f"{worlds.PRIVATE}:80"
    with world.serve(tmp_path) as serve, contextlib.ExitStack() as stack:
        older = stack.enter_context(Sandbox(stack.enter_context(serve.client()), network={"allow": ["10.77.0.0/16"]}))
        assert reaches(older.dial(target)[0])
        for bound, rules in (("10.88.0.0/16, fd01::/32", ("10.77.0.0/16", "10.0.0.0/8", target, "fd00::/8")),
                             ("none", ("private.test private=yes", "192.168.1.0/24"))):
            client = older.client = stack.enter_context(reloaded(serve, f"{world.config()}private = {bound}\n"))
            assert refused(older.dial(target)[0]), "the policy is older than the bound"
            for answer in (answer for rule in rules for answer in ways_to_open(client, older, rule)):
                assert answer.refusal == (403, "private_network"), answer
                assert f"[network] of cove.conf is {bound}" in answer.json["detail"], answer
                assert any(rule in answer.json["detail"] for rule in rules), answer
            with Sandbox(client, network={"allow": ["0.0.0.0/0", "*"]}) as sandbox:
                wide, public = sandbox.dial(target, f"{worlds.SERVER}:80")
                assert refused(wide) and reaches(public)
            if bound != "none" and IS_ROOT:  # a proxy that is told names refuses what it likes
                with Sandbox(client, network={"allow": ["private.test private=yes"]}) as sandbox:
                    assert refused(sandbox.dial("private.test:80")[0]), "a name leads where it likes"
            answer = client.post("/v1/kernels/run", {"code": f"await fetch('http://{worlds.PRIVATE}/')",
                                                     "allowed_hosts": ["0.0.0.0/0"]})
            assert worlds.PRIVATE in answer.json["error"]["message"], answer
        client = older.client = stack.enter_context(reloaded(serve, f"{world.config()}private = 10.77.0.2\n"))
        assert reaches(older.dial(target)[0])
        with Sandbox(client, network={"allow": [target, "private.test private=yes"]}) as sandbox:
            address, name = sandbox.dial(target, "private.test:80")
            assert reaches(address) and reaches(name)


@pytest.mark.parametrize("network", [
    {"mode": "public"}, {"allow": ["*", "0.0.0.0/0", "::/0"]},
    {"allow": ["*.test private=yes"]}])
def test_no_rule_and_no_name_opens_what_is_fixed(client, world, network):
    names = ["own", "meta", "loop", "loop6", "mapped", "nat"]
    with Sandbox(client, network=network) as sandbox:
        targets = [f"{name}.test:80" for name in names if IS_ROOT or name != "own"]
        before = len([line for line in world.said() if line.startswith("tcp")])
        literals = [f"{worlds.METADATA}:80", f"[::ffff:{worlds.METADATA}]:80",
                    "[64:ff9b::a9fe:a9fe]:80", "0.1.2.3:80", "198.18.200.200:80"]
        literals += [f"{worlds.OWN}:80"] if IS_ROOT else []
        for target, answer in zip(targets + literals, sandbox.dial(*targets, *literals)):
            assert not answer[0].startswith("hello"), (target, answer)
            assert answer[1] < QUICK * harness.PATIENCE, (target, answer)
        assert len([line for line in world.said() if line.startswith("tcp")]) == before
    with Sandbox(client) as sandbox:
        answer = sandbox.dial("mixed.test:80")[0]
        # Of several addresses those that may be; but which one a proxy would take nobody knows.
        assert reaches(answer, f"hello {worlds.SERVER} 80") if IS_ROOT else refused(answer)


def test_its_own_loopback_is_its_own(client):
    code = """
import socket
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    with socket.create_server((host, 8080), family=family) as server:
        with socket.create_connection((host, 8080)) as one:
            two, _ = server.accept()
            two.sendall(b"mine"); print(one.recv(9).decode())
"""
    for mode in ("none", "public"):
        with Sandbox(client, network={"mode": mode}) as sandbox:
            assert sandbox.run("python3", "-c", code)["stdout"] == "mine\nmine\n"


def test_datagrams_are_refused_at_once(client):
    code = f"""
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
s.connect(("{worlds.SERVER}", 443))
began = time.monotonic()
try:
    s.send(b"quic")
    s.recv(9)
except OSError as error:
    print(type(error).__name__, time.monotonic() - began < {QUICK * harness.PATIENCE})
"""
    with Sandbox(client) as sandbox:
        done = [sandbox.run("python3", "-c", code)["stdout"] for _ in range(3)]
        assert set(done) <= {"ConnectionRefusedError True\n", "ConnectionRefusedError False\n"}, done
        assert "ConnectionRefusedError True\n" in done


# ---- where boxes come from ---------------------------------------------------------------------

@pytest.mark.parametrize("fields", [
    {}, {"hostname": "cold"}, {"privileges": "system"}, {"disk_kind": "persistent"},
    {"disk_kind": "persistent", "privileges": "system", "hostname": "cold"}])
def test_it_is_in_force_before_the_first_command(client, fields):
    """Of the pool, made by a zygote, and cold: twice each, so that one is ready for the second."""
    for _ in range(2):
        with Sandbox(client, network={"allow": ["four.test:80"]}, **fields) as sandbox:
            yes, no = sandbox.dial("four.test:80", "four.test:443")
            assert reaches(yes) and refused(no)


def test_many_at_once(serve):
    def one():
        with serve.client() as client, Sandbox(client) as sandbox:
            return sandbox.dial("four.test:80")[0]

    for answer in serving.at_once(*[one] * 8, seconds=120):
        assert reaches(answer)


def test_stop_and_start_keep_policy_and_names(client, world):
    """An address that stood for a name stands for it for ever."""
    look = ("python3", "-c", "import socket; print(socket.gethostbyname('four.test'), "
            "socket.gethostbyname('other.test'))")
    with Sandbox(client, disk_kind="persistent", network={"allow": ["four.test", "other.test"]}) as sandbox:
        first = sandbox.run(*look)["stdout"].split()
        assert first[0] != first[1]
        assert client.post(f"{sandbox.path}/stop").status == 200
        assert sandbox.network()["open"] is False
        assert client.post(f"{sandbox.path}/start").status == 200
        four, other = sandbox.dial(f"{first[0]}:80", f"{first[1]}:80")
        assert reaches(four, world.hello("four.test", worlds.SERVER, 80))
        assert reaches(other, world.hello("other.test", worlds.OTHER, 80))
        assert refused(sandbox.dial(f"{worlds.SERVER}:80")[0]), "and the policy with it"
        assert sandbox.run(*look)["stdout"].split() == first


# ---- changes -----------------------------------------------------------------------------------

def test_a_change_cuts_what_is_no_longer_allowed_and_leaves_the_rest(client):
    with Sandbox(client) as sandbox:
        held = Held(sandbox, "four.test:80", "other.test:80", f"{worlds.SERVER}:443")
        assert held.ask() == ["yes", "yes", "yes"]
        network = sandbox.set(allow=["four.test"])
        assert (network["mode"], network["allow"]) == ("allow", ["four.test"])
        assert held.ask() == ["yes", "no", "no"]
        yes, no = sandbox.dial("four.test:443", "other.test:443")
        assert reaches(yes) and not no[0].startswith("hello")
        sandbox.set(mode="public")
        assert held.ask() == ["yes", "no", "no"]
        assert reaches(sandbox.dial("other.test:443")[0])
        assert sandbox.set(connections=7) == {**network, "mode": "public", "allow": [],
                                              "connections": 7}
        assert held.ask() == ["yes", "no", "no"], "a bound changes nothing else"


def test_to_none_and_back(client):
    with Sandbox(client) as sandbox:
        held = Held(sandbox, "four.test:80")
        for _ in range(3):
            sandbox.set(mode="none")
            assert held.ask() == ["no"]
            address, name = sandbox.dial(f"{worlds.SERVER}:80", "four.test:80")
            assert refused(address, "OSError") and refused(name, "gaierror")
            sandbox.set(mode="public")
            assert reaches(sandbox.dial("four.test:80")[0])
    with Sandbox(client, network={"mode": "none"}) as sandbox:
        sandbox.set(allow=["four.test"])
        assert reaches(sandbox.dial("four.test:80")[0])


def test_what_is_stopped_is_changed_for_its_next_start(client):
    with Sandbox(client, disk_kind="persistent") as sandbox:
        assert client.post(f"{sandbox.path}/stop").status == 200
        sandbox.set(mode="none")
        assert client.post(f"{sandbox.path}/start").status == 200
        assert refused(sandbox.dial(f"{worlds.SERVER}:80")[0], "OSError")


def test_a_change_that_cannot_be_changes_nothing(client):
    with Sandbox(client, network={"allow": ["four.test"]}) as sandbox:
        for network, code in (({"allow": ["four.test:99999"]}, "bad_policy"),
                              ({"mode": "all"}, "bad_request"),
                              ({"allow": ["169.254.0.0/33"]}, "bad_policy"),
                              ({"deny": ["x.test"]}, "bad_policy")):
            answer = client.ask("PATCH", sandbox.path, {"network": network})
            assert answer.code == code and answer.status in (400, 422), answer
        assert reaches(sandbox.dial("four.test:80")[0])


# ---- engines that end --------------------------------------------------------------------------

def test_an_engine_that_is_killed_leaves_nothing_open_and_the_next_goes_on(world, tmp_path):
    with world.serve(tmp_path) as serve:
        with serve.client() as client:
            allowed = Sandbox(client, network={"allow": ["four.test"]})
            none = Sandbox(client, network={"mode": "none"})
            held = Held(allowed, "four.test:80")
            assert held.ask() == ["yes"]
        for _ in range(2):
            serve.kill_engine()
            with serve.client() as client:
                for sandbox in (allowed, none, held):
                    sandbox.client = client
                assert held.ask() == ["no"], "a connection is cut with the engine"
                assert allowed.network()["open"] is True
                yes, no, other = allowed.dial("four.test:80", f"{worlds.SERVER}:80", "other.test:80")
                assert reaches(yes) and refused(no) and no_name(other)
                assert refused(none.dial(f"{worlds.SERVER}:80")[0], "OSError")


def test_an_end_in_good_order_is_no_other(world, tmp_path):
    with world.serve(tmp_path) as serve:
        with serve.client() as client:
            sandbox = Sandbox(client)
            assert reaches(sandbox.dial("four.test:80")[0])
        serve.kill_engine(15)
        with serve.client() as client:
            sandbox.client = client
            assert reaches(sandbox.dial("four.test:80")[0])


def test_a_record_of_before_has_no_network(world, tmp_path):
    """What was made by a version that knew of none gets none."""
    with world.serve(tmp_path, "pool = 0\ndefault_network = none") as serve, serve.client() as client:
        with Sandbox(client) as sandbox:
            assert sandbox.json["network"] == {
                "mode": "none", "allow": [], "deny": [], "connections": None,
                "lookups_per_second": None, "bytes_per_second": None, "bytes": None}
            assert refused(sandbox.dial(f"{worlds.SERVER}:80")[0], "OSError")


# ---- bounds ------------------------------------------------------------------------------------

def test_a_bound_on_connections(client):
    with Sandbox(client, network={"mode": "public", "connections": 2}) as sandbox:
        held = Held(sandbox, "four.test:80", "four.test:443")
        assert refused(sandbox.dial(f"{worlds.SERVER}:7")[0])
        assert held.ask() == ["yes", "yes"]
        assert sandbox.records(reason="limit", port=7), sandbox.network()


SEND = r"""
import socket, sys
sent = 0
try:
    s = socket.create_connection(("four.test", 80), 20)
    s.recv(100)
    while sent < 4 << 20:
        s.sendall(b"x" * 65536)
        left = 65536
        while left:
            data = s.recv(left)
            if not data: raise OSError("ended")
            left -= len(data)
        sent += 65536
except OSError:
    pass
print(sent)
"""


def test_a_bound_on_bytes_holds_for_its_life(world, tmp_path):
    with world.serve(tmp_path) as serve:
        with serve.client() as client:
            sandbox = Sandbox(client, network={"mode": "public", "bytes": 2 << 20})
            sent = int(sandbox.run("python3", "-c", SEND)["stdout"])
            assert sent <= 1 << 20, "both ways count"
            used = sandbox.network()["counts"]["bytes_used"]
            assert used >= (2 << 20) - (1 << 20)
            written = serve.data / "engine" / "sandboxes" / sandbox.id / "traffic"
            harness.wait_for(lambda: written.exists() and int(written.read_text() or 0) >= used // 2,
                             what="that it is written down")
        serve.kill_engine()
        with serve.client() as client:
            sandbox.client = client
            assert sandbox.network()["counts"]["bytes_used"] >= used // 2
            assert int(sandbox.run("python3", "-c", SEND)["stdout"]) <= 1 << 20
            sandbox.set(bytes=None)
            assert int(sandbox.run("python3", "-c", SEND)["stdout"]) == 4 << 20


PULL = r"""
import socket, sys, threading, time
with socket.create_connection(("four.test", 80), 20) as s:
    hello = s.recv(100)
    began = time.monotonic()
    sender = threading.Thread(target=s.sendall, args=(bytes(1 << 20),))
    sender.start()
    left = 1 << 20
    while left:
        left -= len(s.recv(left))
    sender.join()
    print(time.monotonic() - began)
"""


def test_a_bound_on_bytes_a_second(client):
    """Two million bytes, both ways together, of which an eighth of a second's worth may go at once."""
    with Sandbox(client, network={"mode": "public", "bytes_per_second": 1 << 20}) as sandbox:
        assert float(sandbox.run("python3", "-c", PULL)["stdout"]) >= 1.5
        sandbox.set(bytes_per_second=None)
        done = sandbox.run("python3", "-c", PULL)
        assert done["process"]["exit_code"] == 0, done


# ---- what is known of it -----------------------------------------------------------------------

def test_the_log_says_what_was_tried_and_what_came_of_it(client, world):
    with Sandbox(client, network={"allow": ["four.test:80"]}) as sandbox:
        sandbox.dial("four.test:80", "four.test:443", "other.test:80", f"{worlds.SERVER}:7")
        went, = sandbox.records(kind="connection", verdict="allowed")
        assert (went["name"], went["address"], went["port"]) == ("four.test", worlds.SERVER, 80)
        assert went["bytes_out"] == len("ping\n") and went["rule"] == "four.test:80"
        assert went["bytes_in"] == len(world.hello("four.test", worlds.SERVER, 80) + "\nping\nbye\n")
        port = sandbox.records(kind="connection", port=443)[0]  # or two: who is refused early tries IPv4, too
        assert (port["name"], port["verdict"]) == ("four.test", "denied")
        literal, = sandbox.records(kind="connection", port=7)
        assert (literal["name"], literal["address"], literal["reason"]) == (None, worlds.SERVER, "no_rule")
        assert sandbox.records(kind="lookup", name="other.test", verdict="denied")
        assert sandbox.records(kind="lookup", name="four.test", verdict="allowed")
        whole = sandbox.network()
        assert whole["counts"]["bytes_out"] == 5 and whole["counts"]["denied"] >= 3
        assert whole["policy"]["allow"] == ["four.test:80"]
        last = sandbox.network(limit=1)
        assert last["records"] == whole["records"][-1:]
        assert last["left_out"] == len(whole["records"]) - 1
        assert client.get(f"{sandbox.path}/network", query={"limit": 257}).code == "bad_request"


REFUSED = """
import socket, sys
for i in range(600):
    s = socket.socket(); s.settimeout(20)
    try:
        s.connect(("203.0.113.2", 1001 + i % int(sys.argv[1]))); s.recv(1)
    except OSError: pass
    s.close()
"""


def test_refusals_hide_no_connection(client):
    """Neither those that went before nor those that come after, in the log and in the events."""
    with Sandbox(client, network={"allow": ["four.test"]}) as sandbox:
        assert reaches(sandbox.dial("four.test:80")[0])
        sandbox.run("python3", "-c", REFUSED, "600")
        assert reaches(sandbox.dial("four.test:443")[0])
        whole = sandbox.network(limit=256)
        refusals = [record for record in whole["records"] if record["verdict"] == "denied"]
        assert len(refusals) == 64 and whole["left_out"] == 600 - 64 and whole["counts"]["denied"] == 600
        assert [record["port"] for record in whole["records"] if record["kind"] == "connection"
                and record["verdict"] == "allowed"] == [80, 443]
        told = [line for line in events_of(client, sandbox) if line["type"].startswith("network.")]
        assert [(line["traffic"]["port"], line["traffic"]["left_out"]) for line in told
                if line["type"] == "network.connected"] == [(80, 0), (443, 0)]
        assert 50 <= len([line for line in told if line["type"] == "network.denied"]) < 600, "not all of a flood"
        harness.wait_for(lambda: sandbox.dial(f"{worlds.SERVER}:7") and any(
            line["traffic"]["left_out"] for line in events_of(client, sandbox) if line["traffic"]),
            20 * harness.PATIENCE, "what was left out is told")


def test_the_same_refusal_is_one_line(client):
    with Sandbox(client, network={"allow": ["four.test"]}) as sandbox:
        sandbox.run("python3", "-c", REFUSED, "2")
        whole = sandbox.network(limit=256)
        assert [(record["port"], record["times"]) for record in whole["records"]] == [(1001, 300), (1002, 300)]
        assert whole["left_out"] == 0 and whole["counts"]["denied"] == 600
        assert reaches(sandbox.dial("four.test:80")[0])
        assert {record["times"] for record in sandbox.records(verdict="allowed")} == {1}


def test_what_a_policy_of_none_cuts_is_told_as_cut(client):
    with Sandbox(client) as sandbox:
        held = Held(sandbox, "four.test:80")
        assert held.ask() == ["yes"]
        sandbox.set(mode="none")
        assert held.ask() == ["no"]
        assert sandbox.records(kind="connection", port=80, reason="cut", verdict="allowed"), sandbox.network()
        assert [line["reason"] for line in events_of(client, sandbox)
                if line["type"] == "network.connected"] == ["cut"]


def events_of(client, sandbox):
    return [line for line in serving.told(client) if line.get("sandbox") == sandbox.id]


def test_events_tell_of_it(serve, world):
    with serve.client() as client, Sandbox(client, network={"allow": ["four.test:80"]}) as sandbox:
        sandbox.dial("four.test:80", f"{worlds.SERVER}:7")
        with serve.client() as other:
            found = {line["type"]: line for line in events_of(other, sandbox)}
        went, denied = found["network.connected"], found["network.denied"]
        assert went["traffic"] == {
            "name": "four.test", "address": worlds.SERVER, "port": 80, "rule": "four.test:80",
            "lasted_ms": went["traffic"]["lasted_ms"], "bytes_out": 5,
            "bytes_in": len(world.hello("four.test", worlds.SERVER, 80) + "\nping\nbye\n"),
            "left_out": 0}
        assert (denied["reason"], denied["traffic"]["address"]) == ("no_rule", worlds.SERVER)
        assert found["sandbox.created"]["traffic"] is None


def test_metrics_count_it(serve):
    def metric(name):
        with serve.client() as client:
            for line in client.get("/metrics").bytes.decode().splitlines():
                if line.startswith(name + " ") or line.startswith(name + "{tenant=\"default\"} "):
                    return float(line.rpartition(" ")[2])
        return 0

    names = ["cove_network_connections_total", "cove_network_denied_total",
             "cove_network_sent_bytes_total", "cove_network_received_bytes_total",
             "cove_tenant_network_sent_bytes_total", "cove_tenant_network_denied_total"]
    before = {name: metric(name) for name in names}
    with serve.client() as client, Sandbox(client, network={"allow": ["four.test:80"]}) as sandbox:
        sandbox.dial("four.test:80", f"{worlds.SERVER}:7")
        during = {name: metric(name) for name in names}
    after = {name: metric(name) for name in names}
    assert all(after[name] > before[name] for name in names), (before, after)
    assert all(after[name] >= during[name] for name in names), "never less, when the box is gone"
    assert after["cove_network_sent_bytes_total"] - before["cove_network_sent_bytes_total"] == 5


def test_who_may_look(serve):
    with serve.client() as client, Sandbox(client) as sandbox:
        key = new_key(client, tenant="other")["secret"]
        with serving.Client(path=serve.socket, key=key) as other:
            assert other.get(f"{sandbox.path}/network").code == "sandbox_not_found"
        token = client.post(f"{sandbox.path}/tokens", {"verbs": ["look"]}).json["token"]
        with serving.Client(path=serve.socket, key=token) as looker:
            assert looker.get(f"{sandbox.path}/network").status == 200
            assert looker.ask("PATCH", sandbox.path, {"network": {"mode": "none"}}).status == 403
        assert sandbox.network()["policy"]["mode"] == "public"


# ---- the command line --------------------------------------------------------------------------

def cove(serve, *words):
    return subprocess.run([harness.COVE, *words], capture_output=True, text=True, check=False,
                          env={"PATH": "/usr/bin:/bin", "COVE_URL": f"unix:{serve.socket}"})


def test_the_command_line_sets_and_shows(serve):
    made = cove(serve, "create", "--ephemeral", "--net", "allow=four.test:80,*.wild.test")
    assert made.returncode == 0, made.stderr
    with serve.client() as client:
        sandbox = Sandbox.__new__(Sandbox)
        sandbox.client, sandbox.id = client, made.stdout.strip()
        sandbox.path = f"/v1/sandboxes/{sandbox.id}"
        with sandbox:
            sandbox.dial("four.test:80", f"{worlds.SERVER}:7")
            shown = cove(serve, "net", sandbox.id)
            assert shown.returncode == 0, shown.stderr
            lines = [line.split() for line in shown.stdout.splitlines()]
            assert ["mode", "allow"] in lines and ["allow", "*.wild.test"] in lines
            assert [line for line in lines if line[1:4] == ["denied", "-", worlds.SERVER]], shown.stdout
            assert [line for line in lines if line[1:3] == ["allowed", "four.test"]], shown.stdout
            assert json.loads(cove(serve, "net", sandbox.id, "--json").stdout)["open"] is True
            assert cove(serve, "net", sandbox.id, "set", "public,deny=four.test", "--rate", "1M").returncode == 0
            policy = sandbox.network()["policy"]
            assert (policy["mode"], policy["deny"], policy["bytes_per_second"]) == (
                "public", ["four.test"], 1 << 20)
            assert cove(serve, "net", sandbox.id, "set", "none").returncode == 0
            assert refused(sandbox.dial(f"{worlds.SERVER}:80")[0], "OSError")
            for words in (["set", "all"], ["set"], ["get"], ["--rate", "1M"], ["set", "allow=no name"]):
                wrong = cove(serve, "net", sandbox.id, *words)
                assert wrong.returncode == 125 and wrong.stderr.startswith("cove: net"), (words, wrong)


def run_alone(world, *words, config=None):
    if IS_ROOT:
        return world.run(*words, config=config)
    home = world.directory / "config"
    (home / "cove").mkdir(parents=True, exist_ok=True)
    (home / "cove" / "cove.conf").write_text(config or "", encoding="utf-8")
    return subprocess.run([harness.COVE, "run", *words], capture_output=True, text=True, check=False,
                          env={**os.environ, "XDG_CONFIG_HOME": str(home)}, timeout=60 * harness.PATIENCE)


def dial_alone(world, words, *targets):
    """As Sandbox.dial()."""
    for _ in range(3):
        done = run_alone(world, *words, "--", "python3", "-c", DIAL, *targets)
        assert done.returncode == 0, done.stderr
        answers = [tuple(one) for one in json.loads(done.stdout)]
        if not any(map(is_late, answers)):
            break
    return answers


def test_a_run_has_the_network_that_it_is_given_and_no_other(world):
    port, other, literal, name = dial_alone(world, ["--net", "allow=four.test:80"], "four.test:443", "other.test:80",
                                            f"{worlds.SERVER}:80", "four.test:80")
    assert no_name(other) and refused(literal)
    if IS_ROOT:
        assert refused(port) and reaches(name, f"hello {worlds.SERVER} 80")
    for words in ([], ["--net", "none"]):
        assert refused(dial_alone(world, words, f"{worlds.SERVER}:80")[0], "OSError")


def test_a_run_with_a_network_ends_as_its_command_does(world):
    assert run_alone(world, "--net", "public", "--", "sh", "-c", "exit 7").returncode == 7
    assert run_alone(world, "--net", "public", "--timeout", "100ms", "--", "sleep", "100").returncode == 124
    missing = run_alone(world, "--net", "public", "--", "/nothing/there")
    assert missing.returncode == 127 and "no such command" in missing.stderr
    home = run_alone(world, "--net", "public", "--user", "nobody", "--", "pwd")
    assert home.returncode == 0 and home.stdout.strip(), home.stderr
    wrong = run_alone(world, "--net", "everything", "--", "true")
    assert wrong.returncode == 125 and wrong.stderr.startswith("cove: --net"), wrong.stderr


def test_a_run_has_the_resolvers_and_the_proxy_of_the_configuration(world):
    done = run_alone(world, "--net", "allow=four.test:80", "--", "python3", "-c", DIAL, "four.test:80",
                     config=world.config())
    assert done.returncode == 0, done.stderr
    assert reaches(tuple(json.loads(done.stdout)[0]), world.hello("four.test", worlds.SERVER, 80))
    for line, word in (("resolvers = nowhere", "nowhere"), ("resolver = 127.0.0.1", "cove.conf:2"),
                       ("nat64 = 2001:db8::/33", 'cove.conf:2: nat64: "2001:db8::/33"')):
        done = run_alone(world, "--net", "public", "--", "true", config=f"[network]\n{line}\n")
        assert done.returncode == 125 and word in done.stderr, done
    assert run_alone(world, "--", "true", config="[network]\nresolver = 127.0.0.1\n").returncode == 0


def test_addresses_behind_a_translator_that_the_operator_names_are_what_they_wrap(world):
    target = f"[{worlds.SERVER6}]:80"
    for line, is_public in (("nat64 = 2001:db8:78::/96", True), ("nat64 = fd00:64::/48, 2001:db8:77::/96", False)):
        done = run_alone(world, "--net", "public", "--", "python3", "-c", DIAL, target,
                         config=f"{world.config()}{line}\n")
        assert done.returncode == 0, done.stderr
        answer = tuple(json.loads(done.stdout)[0])
        assert reaches(answer, f"hello {worlds.SERVER6} 80") if is_public else refused(answer), (line, answer)


def carrier_of(run):
    """The engine of a `cove run`, as soon as it is there."""
    def find():
        for pid in harness.children_of(run.pid):
            with contextlib.suppress(OSError):
                if "--alone" in pathlib.Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8"):
                    found.append(pid)
        return found

    found = []
    harness.wait_for(find, 60 * harness.PATIENCE, "who carries the network")
    return found[0]


def test_a_run_says_that_its_network_has_ended_and_goes_on():
    with subprocess.Popen([harness.COVE, "run", "--net", "public", "--", "sh", "-c", "echo on; read line; exit 7"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout.readline() == b"on\n"
        os.kill(carrier_of(run), signal.SIGKILL)
        while b"carried the network of this run, has ended" not in (line := run.stderr.readline()):
            assert line, "nothing was said"
        run.stdin.write(b"end\n")
        run.stdin.close()
        assert run.wait(60 * harness.PATIENCE) == 7
        assert b"has ended" not in run.stderr.read()


def test_a_run_hears_signals_and_its_time_while_its_network_is_not_there(tmp_path):
    """Whoever should carry it says nothing."""
    shutil.copy(harness.COVE, tmp_path / "cove")
    subprocess.run(["gcc", "-x", "c", "-o", tmp_path / "cove-engine", "-"], check=True,
                   input=b"#include <unistd.h>\nint main(void) { return pause(); }\n")
    command = [tmp_path / "cove", "run", "--net", "public"]
    with subprocess.Popen([*command, "--", "true"], stderr=subprocess.PIPE) as run:
        carrier = carrier_of(run)
        run.send_signal(signal.SIGINT)
        run.send_signal(signal.SIGTERM)
        assert run.wait(60 * harness.PATIENCE) == 128 + signal.SIGTERM
        assert b"told twice to end" in run.stderr.read()
    assert not pathlib.Path(f"/proc/{carrier}").exists()
    late = subprocess.run([*command, "--timeout", "200ms", "--", "true"], check=False, stderr=subprocess.DEVNULL,
                          timeout=60 * harness.PATIENCE)
    assert late.returncode == 124


def test_who_carries_the_network_of_a_run_has_no_rights_and_goes_with_it(world):
    run = subprocess.Popen([harness.COVE, "run", "--net", "public", "--", "sh", "-c", "echo on; sleep 100"],
                           stdout=subprocess.PIPE)
    assert run.stdout.readline() == b"on\n"
    try:
        engine = carrier_of(run)
        status = pathlib.Path(f"/proc/{engine}/status").read_text(encoding="ascii")
        if IS_ROOT:
            assert "Uid:\t65534\t65534\t65534\t65534" in status and "Gid:\t65534\t65534" in status
            assert {os.readlink(f"/proc/{engine}/fd/{number}") for number in range(3)} == {"/dev/null"}
            assert not pathlib.Path(f"/proc/{engine}/environ").read_bytes()
        else:  # nobody of its own user looks into it, either
            with pytest.raises(PermissionError):
                os.readlink(f"/proc/{engine}/fd/0")
        assert "CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status
        # Its own last wall (tests/unit/test_confine.c tries it) stands behind the engine's filter.
        filters = [int(line.split()[1]) for line in status.splitlines() if line.startswith("Seccomp_filters")]
        own = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
        inherited = [int(line.split()[1]) for line in own.splitlines() if line.startswith("Seccomp_filters")]
        assert [count - before for count, before in zip(filters, inherited)] in ([], [2]), status
    finally:
        run.kill()
        run.wait()
        run.stdout.close()
    def has_ended():
        try:
            return "State:\tZ" in pathlib.Path(f"/proc/{engine}/status").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            return True

    harness.wait_for(has_ended, 10 * harness.PATIENCE, "its end")


def test_time_does_not_run(client):
    """Nothing waits where nothing answers: a name that nobody answers holds up no other."""
    with Sandbox(client) as slow, Sandbox(client) as quick:
        look = slow.start("python3", "-c", "import socket; socket.gethostbyname('silent.test')")
        began = time.monotonic()
        assert reaches(quick.dial("four.test:80")[0])
        assert reaches(slow.dial("four.test:80")[0])
        assert time.monotonic() - began < 10 * harness.PATIENCE
        client.delete(look)
