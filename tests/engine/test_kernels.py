"""Kernels over the API: code that is run, contexts that keep their state, tools of the client over a WebSocket; and
the worker they are in, which has nothing and is easily replaced."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import select
import signal

import pytest

import harness
import serving
import terminals
from frames import frame
from sandboxes import new_key

CONFIG = """[boxes]
pool = 0
[kernels]
contexts = 600
memory = 1G
"""
nothing_left, serve, api = serving.one_for_all(CONFIG)


def run(api, code, path="/v1/kernels/run", **more):
    answer = api.post(path, {"code": code, **more})
    assert answer.status == 200, answer
    return answer.json


def value(api, code, path="/v1/kernels/run", **more):
    result = run(api, code, path, **more)
    assert result["error"] is None, result
    return result["value"]


def make(api, **manifest):
    answer = api.post("/v1/kernels", manifest)
    assert answer.status == 201, answer
    assert answer.headers["Location"] == f"/v1/kernels/{answer.json['id']}"
    return answer.headers["Location"]


@contextlib.contextmanager
def another_tenant(serve, api, *scopes, name="another"):
    key = new_key(api, *scopes, tenant=name)
    with serve.tcp(key["secret"]) as client:
        yield client
    assert api.delete(f"/v1/keys/{key['id']}").status == 204


# ---- runs ----

def test_a_run_is_answered_with_its_value_and_its_log(api):
    result = run(api, "console.log('a', 1); console.error('b'); ({n: [1, 2n > 1n]})")
    assert result["value"] == {"n": [1, True]} and result["type"] == "object"
    assert result["logs"] == [{"level": "log", "text": "a 1"}, {"level": "error", "text": "b"}]
    assert result["stderr"] == "b\n" or result["stderr"] == "b"
    assert (result["exit_code"], result["error"], result["is_final"]) == (0, None, False)
    assert 0 < result["cpu_ms"] <= result["wall_ms"] * 2 and result["memory_bytes"] > 1 << 20


def test_typescript_modules_and_file_names(api):
    assert value(api, "enum E { A = 4 } const n: number = E.A; n as number", language="ts") == 4
    assert value(api, "import path from 'node:path'; globalThis.ran = await path.join('a', 'b')",
                 module=True) is None
    thrown = run(api, "\n  null.x", filename="mine.js")["error"]
    assert (thrown["name"], thrown["line"]) == ("TypeError", 2) and "mine.js" in thrown["stack"]


def test_nothing_of_one_run_is_in_another(api):
    for _ in range(3):
        assert value(api, "globalThis.kept = 1; Array.prototype.evil = 2; 1") == 1
        assert value(api, "[typeof kept, [].evil === undefined]") == ["undefined", True]
    assert value(api, "Math.random()") != value(api, "Math.random()")
    assert value(api, "[process.env.A, typeof __env__]", env={"A": "b"}) == ["b", "object"]
    assert value(api, "process.env.A === undefined") is True


@pytest.mark.parametrize("code,limits,kind,status", [
    ("for (;;) {}", {"cpu_ms": 100}, "cpu", 124),
    ("'a'.repeat(2e5).indexOf('a'.repeat(1e5) + 'b'); for (;;) {}", {"cpu_ms": 100}, "cpu", 124),
    ("await new Promise(done => setTimeout(done, 60000))", {"wall_ms": 200}, "wall", 124),
    ("const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1))",
     {"memory_limit_bytes": 32 << 20}, "memory", 1),
    ("await new Promise(() => {})", {}, "deadlock", 1),
    ("(function f() { return f() + 1 })()", {}, "error", 1),
])
def test_limits_are_results(api, code, limits, kind, status):
    result = run(api, code, **limits)
    assert result["error"]["kind"] == kind and result["exit_code"] == status, result
    assert result["timed_out"] == (status == 124) and result["oom_killed"] == (kind == "memory")
    assert value(api, "1 + 1") == 2


def test_what_is_not_granted_is_denied_and_says_what_would_grant_it(api):
    fetched = run(api, "await fetch('http://example.com/')")
    assert "allowedHosts" in fetched["error"]["message"] and "example.com" in fetched["error"]["message"]
    tool = run(api, "await tools.add({})")
    assert "add" in tool["error"]["message"]
    read = run(api, "require('fs').readFileSync('/etc/passwd')")
    assert read["error"]["code"] == "EACCES" and "allowedReadPaths" in read["error"]["message"]


def test_what_the_engine_fetches_is_judged_by_it(serve, api):
    """The engine itself listens there, and no rule leads to it."""
    for host in ("127.0.0.1", "[::1]", "0.0.0.0", "169.254.169.254", "2130706433"):
        code = f"await fetch('http://{host}:{serve.port}/healthz')"
        result = run(api, f"try {{ {code}; 'got it' }} catch (why) {{ `${{why.message}} ${{why.cause?.message}}` }}",
                     allowed_hosts=["*"])
        assert "denied" in result["value"], result
    assert api.post("/v1/kernels/run", {"code": "1", "allowed_hosts": ["127.0.0.1"]}).code == "bad_manifest"


@pytest.mark.parametrize("body,status,code", [
    ({}, 400, "bad_request"),
    ({"code": 1}, 400, "bad_request"),
    ({"code": "1", "cpu_ms": 0}, 400, "bad_request"),
    ({"code": "1", "language": "python"}, 400, "bad_request"),
    ({"code": "1", "tools": ["a"]}, 400, "bad_request"),
    ({"code": "1", "allowed_read_paths": ["/etc"]}, 422, "bad_manifest"),
    ({"code": "1", "allowed_write_paths": ["/tmp"]}, 422, "bad_manifest"),
    ({"code": "1", "allowed_hosts": ["no/host"]}, 422, "bad_manifest"),
])
def test_wrong_requests_are_refused_and_nothing_runs(api, body, status, code):
    answer = api.post("/v1/kernels/run", body)
    assert answer.refusal == (status, code), answer
    if "allowed_read_paths" in body:
        assert "cove js" in answer.json["detail"]


def test_runs_go_on_at_once(serve):
    def one(number):
        with serve.client() as client:
            return value(client, f"await new Promise(done => setTimeout(done, 300)); {number}")

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        assert list(pool.map(one, range(20))) == list(range(20))


def test_a_run_of_a_client_that_is_gone_is_stopped(serve, api):
    client = serve.client()
    client.send("POST", "/v1/kernels/run",
                {"code": "await new Promise(done => setTimeout(done, 1e8))", "wall_ms": 80000000})
    with serve.tcp(serve.key) as operator:
        def runs():
            return int(re.search(r"^cove_kernel_runs (\d+)$", operator.get("/metrics").bytes.decode(),
                                 re.M)[1])

        harness.wait_for(lambda: runs() == 1, what="the run")
        client.close()
        harness.wait_for(lambda: runs() == 0, what="its end")


def test_the_same_request_is_not_run_again(api):
    headers = {"Idempotency-Key": "one"}
    first = api.post("/v1/kernels/run", {"code": "Math.random()"}, headers=headers)
    again = api.post("/v1/kernels/run", {"code": "Math.random()"}, headers=headers)
    assert again.headers["Idempotent-Replayed"] == "true" and first.json == again.json


def test_a_result_is_bounded_and_what_was_printed_gives_way(api):
    assert len(value(api, "'x'.repeat(3 << 20)")) == 3 << 20
    large = run(api, "console.log('a'); 'x'.repeat(9 << 20)")
    assert large["error"]["name"] == "RangeError" and "at most 8 MiB" in large["error"]["message"]
    assert large["value"] is None and large["logs_dropped"] == 1
    loud = run(api, "for (let i = 0; i < 100; i++) console.error('y'.repeat(1e5)); 42")
    assert (loud["value"], loud["error"]) == (42, None)
    assert 0 < len(loud["stderr"]) <= 4 << 20 and loud["logs_dropped"] > 0
    assert value(api, "1 + 1") == 2


# ---- contexts ----

def test_a_context_keeps_its_state(api):
    path = make(api, name="repl", labels={"for": "test"}, env={"A": "1"}, cpu_ms=1000)
    said = api.get(path).json
    assert (said["name"], said["labels"], said["env"]) == ("repl", {"for": "test"}, {"A": "1"})
    assert (said["state"], said["runs"], said["cpu_ms"]) == ("idle", 0, 1000)
    assert value(api, "const a = 40; let b = 1; function f() { return a + b }", f"{path}/run") is None
    assert value(api, "b++; f()", f"{path}/run") == 42
    assert run(api, "throw new Error('x')", f"{path}/run")["error"]["message"] == "x"
    assert value(api, "f()", f"{path}/run") == 42
    assert api.get(path).json["runs"] == 4 and api.get(path).json["memory_bytes"] > 0
    reset = api.post(f"{path}/reset")
    assert reset.status == 200 and reset.json["id"] == said["id"], reset
    assert value(api, "typeof f + process.env.A", f"{path}/run") == "undefined1"
    assert api.delete(path).status == 204
    gone = api.get(path)
    assert gone.refusal == (410, "kernel_gone") and "deleted" in gone.json["detail"]
    assert api.post(f"{path}/run", {"code": "1"}).code == "kernel_gone"
    assert api.delete(path).status == 204


def test_the_limit_of_a_run_is_tighter_and_the_context_is_kept(api):
    path = make(api)
    assert value(api, "globalThis.a = 5", f"{path}/run") == 5
    assert run(api, "for (;;) {}", f"{path}/run", cpu_ms=100)["error"]["kind"] == "cpu"
    assert value(api, "a", f"{path}/run") == 5
    assert api.post(f"{path}/run", {"code": "1", "env": {}}).code == "bad_request"
    assert api.delete(path).status == 204


def test_one_thing_at_a_time_and_a_delete_ends_it(serve, api):
    path = make(api)

    def long():
        with serve.client() as client:
            return run(client, "await new Promise(done => setTimeout(done, 1e8))", f"{path}/run",
                       wall_ms=80000000)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(long)
        harness.wait_for(lambda: api.get(path).json["state"] == "running", what="the run")
        for verb in ("run", "reset", "fork", "snapshot"):
            busy = api.post(f"{path}/{verb}", {"code": "1"} if verb == "run" else None)
            assert busy.refusal == (409, "kernel_busy"), busy
        assert api.delete(path).status == 204
        assert running.result()["error"]["kind"] == "stopped"


def test_forks_go_their_own_ways(api):
    path = make(api, tools=["a"])
    assert value(api, "let n = 1; n", f"{path}/run") == 1
    forked = api.post(f"{path}/fork")
    assert forked.status == 201 and forked.json["tools"] == ["a"], forked
    copy = forked.headers["Location"]
    assert value(api, "n += 10", f"{copy}/run") == 11
    assert value(api, "n += 1", f"{path}/run") == 2
    assert value(api, "n", f"{copy}/run") == 11
    assert value(api, "Math.random()", f"{copy}/run") != value(api, "Math.random()", f"{path}/run")
    for one in (path, copy):
        assert api.delete(one).status == 204


def test_the_list_has_pages(api):
    paths = [make(api, name=f"n{i}") for i in range(5)]
    names, cursor = [], None
    while True:
        page = api.get("/v1/kernels", query={"limit": 2, **({"cursor": cursor} if cursor else {})})
        assert page.status == 200 and len(page.json["kernels"]) <= 2, page
        names += [one["name"] for one in page.json["kernels"]]
        cursor = page.json["next"]
        if cursor is None:
            break
        assert int(cursor.split("-")[0], 16) > 1 << 32, "it counts the workers of all tenants"
    assert names == [f"n{i}" for i in range(5)]
    assert api.get("/v1/kernels", query={"cursor": "x"}).code == "bad_request"
    for path in paths:
        assert api.delete(path).status == 204


def test_hundreds_of_contexts_live_and_beyond_the_limit_none_is_made(api):
    paths = [make(api) for _ in range(500)]
    for i in range(0, 500, 50):
        assert value(api, f"globalThis.mine = {i}", f"{paths[i]}/run") == i
    for i in range(0, 500, 50):
        assert value(api, "mine", f"{paths[i]}/run") == i
    paths += [make(api) for _ in range(100)]
    full = api.post("/v1/kernels")
    assert full.refusal == (429, "too_many_kernels"), full
    for path in paths:
        assert api.delete(path).status == 204
    assert api.get("/v1/kernels").json == {"kernels": [], "next": None}


def test_what_is_kept_with_a_kernel_is_bounded(api):
    large = {f"k{i}": "v" * 4000 for i in range(16)}
    for wrong in ({"labels": large, "env": {"A": "x" * 2000}}, {"env": {"A": "x" * 66000}}):
        for path in ("/v1/kernels", "/v1/kernels/run"):
            if path.endswith("run"):
                wrong = {"code": "1", "env": {**wrong.get("labels", {}), **wrong["env"]}}
            refused = api.post(path, wrong)
            assert refused.refusal == (422, "bad_manifest"), refused
            assert "65536" in refused.json["detail"]
    path = make(api, labels=large)
    copy = api.post(f"{path}/fork")
    assert copy.json["labels"] == large
    assert api.delete(path).status == 204
    assert api.get(copy.headers["Location"]).json["labels"] == large
    assert api.delete(copy.headers["Location"]).status == 204


def test_a_kernel_that_nobody_uses_ends(tmp_path):
    with serving.Serve(tmp_path, CONFIG + "idle = 10m\n", clock=True) as serve, serve.client() as api:
        path = make(api)
        serve.clock.advance(599)
        assert api.get("/v1/kernels").json["kernels"][0]["id"] in path
        serve.clock.advance(1)
        harness.wait_for(lambda: api.get(path).status == 410, what="its end")
        assert "nobody has used it" in api.get(path).json["detail"]


# ---- snapshots ----

def restore(api, snapshot, manifest=None):
    headers = {"Content-Type": "application/octet-stream",
               **({"Cove-Manifest": manifest} if manifest else {})}
    return api.ask("POST", "/v1/kernels/restore", snapshot, headers)


def test_a_snapshot_is_restored_also_by_the_next_engine(tmp_path):
    with serving.Serve(tmp_path, CONFIG) as serve:
        with serve.client() as api:
            path = make(api, env={"A": "1"})
            assert value(api, "let n = 7; n", f"{path}/run") == 7
            snapshot = api.post(f"{path}/snapshot")
            assert snapshot.headers["Content-Type"] == "application/octet-stream"
            made = restore(api, snapshot.bytes, '{"name": "again", "cpu_ms": 50}')
            assert made.status == 201 and (made.json["name"], made.json["cpu_ms"]) == ("again", 50)
            assert value(api, "n += 1", f"{made.headers['Location']}/run") == 8
            assert value(api, "n", f"{path}/run") == 7
            mode = (serve.data / "engine" / "kernels.key").stat().st_mode
            assert mode & 0o7777 == 0o600
        serve.kill_engine()
        with serve.client() as api:
            lost = api.get(path)
            assert lost.refusal == (404, "kernel_not_found")
            assert "end with the engine" in lost.json["detail"]
            made = restore(api, snapshot.bytes)
            assert made.status == 201, made
            assert value(api, "n", f"{made.headers['Location']}/run") == 7
            with another_tenant(serve, api) as other:
                refused = restore(other, snapshot.bytes)
                assert refused.refusal == (422, "bad_snapshot"), refused


def test_what_was_changed_is_no_snapshot(api):
    path = make(api)
    assert value(api, "globalThis.a = 1", f"{path}/run") == 1
    snapshot = api.post(f"{path}/snapshot").bytes
    for wrong in (b"x", snapshot[:-1], snapshot + b"x", bytes([snapshot[0] ^ 1]) + snapshot[1:],
                  snapshot[:-1] + bytes([snapshot[-1] ^ 1]),
                  snapshot[:len(snapshot) // 2] + b"\xff" + snapshot[len(snapshot) // 2 + 1:]):
        refused = restore(api, wrong)
        assert refused.refusal == (422, "bad_snapshot"), refused
    assert restore(api, b"").code == "bad_snapshot"
    assert restore(api, snapshot, "{").code == "bad_request"
    assert restore(api, snapshot, '{"code": "1"}').code == "bad_request"
    assert [one["id"] for one in api.get("/v1/kernels").json["kernels"]] == [path.split("/")[-1]]
    assert api.delete(path).status == 204


def test_snapshots_on_their_way_in_are_a_share_of_each_tenant(serve, api):
    """One that never comes whole takes its room from its own tenant's, and gives it back."""
    path = make(api)
    snapshot = api.post(f"{path}/snapshot").bytes
    with another_tenant(serve, api) as other:
        mine = restore(other, b"x" * (1 << 20))
        assert mine.code == "bad_snapshot"
        with serve.client() as slow:
            slow.connection.connect()
            slow.connection.sock.sendall(b"POST /v1/kernels/restore HTTP/1.1\r\nHost: localhost\r\n"
                                         b"Content-Type: application/octet-stream\r\n"
                                         b"Content-Length: 67108864\r\n\r\n" + b"x" * (33 << 20))
            harness.wait_for(lambda: restore(api, snapshot).status == 503, what="its share")
            assert restore(other, snapshot).code == "bad_snapshot"
        harness.wait_for(lambda: restore(api, snapshot).status == 201, what="the room")
    for one in api.get("/v1/kernels").json["kernels"]:
        assert api.delete(f"/v1/kernels/{one['id']}").status == 204


# ---- who may ----

def test_kernels_are_their_tenants(serve, api):
    path = make(api)
    with another_tenant(serve, api) as other:
        assert other.get(path).code == "kernel_not_found"
        for verb in ("run", "reset", "fork", "snapshot"):
            hidden = other.post(f"{path}/{verb}", {"code": "1"} if verb == "run" else None)
            assert hidden.refusal == (404, "kernel_not_found"), hidden
        assert other.delete(path).code == "kernel_not_found"
        assert other.get("/v1/kernels").json["kernels"] == []
        assert value(other, "1 + 1") == 2
    assert api.delete(path).status == 204
    assert api.get(path).code == "kernel_gone"
    with another_tenant(serve, api) as other:
        assert other.get(path).code == "kernel_not_found"


def test_who_only_reads_looks_and_no_more(serve, api):
    with another_tenant(serve, api, "read") as reader:
        assert reader.get("/v1/kernels").status == 200
        for path in ("/v1/kernels", "/v1/kernels/run", "/v1/kernels/restore"):
            assert reader.post(path).code == "forbidden"


# ---- tools ----

class Connection(terminals.Watcher):
    def __init__(self, serve, headers=(), port=None):
        self.open(serve, "/v1/kernels/connect", headers, port)
        self.heard = 0

    def next(self):
        self.until(lambda: len(self.said) > self.heard, "a message")
        self.heard += 1
        return self.said[self.heard - 1]

    def done(self, run="1"):
        message = self.next()
        assert message["type"] == "done" and message["run"] == run, message
        return message["result"]

    def run(self, code, run="1", **more):
        self.tell(type="run", run=run, code=code, **more)


def test_tools_are_called_in_parallel_and_answered_in_any_order(serve):
    with Connection(serve) as there:
        there.run("const all = await Promise.all([1, 2, 3].map(n => tools.twice({n}))); all",
                  tools=["twice"])
        calls = [there.next() for _ in range(3)]
        assert [(call["type"], call["run"], call["name"]) for call in calls] == [("call", "1", "twice")] * 3
        assert [call["args"] for call in calls] == [{"n": 1}, {"n": 2}, {"n": 3}]
        for call in reversed(calls):
            there.tell(type="result", run="1", call=call["call"], value=[2 * call["args"]["n"]])
        result = there.done()
        assert result["value"] == [[2], [4], [6]], result


def test_a_tool_that_fails_throws(serve):
    with Connection(serve) as there:
        there.run("try { await tools.a() } catch (error) { error.message }", tools=["a"])
        call = there.next()
        there.tell(type="error", run="1", call=call["call"], message="out of order")
        assert "out of order" in there.done()["value"]
        there.run("await tools.b()", tools=["a"])
        assert "'b' is denied" in there.done()["error"]["message"]


def test_large_and_deep_answers_of_tools(serve):
    deep = 1
    for _ in range(60):
        deep = [deep]
    large = [{"n": n} for n in range(50000)]
    with Connection(serve) as there:
        there.run("const [a, b] = await Promise.all([tools.a(), tools.b()]);"
                  "[JSON.stringify(a).length, b.length, b[49999].n]", tools=["a", "b"])
        calls = {call["name"]: call["call"] for call in (there.next(), there.next())}
        there.tell(type="result", run="1", call=calls["b"], value=large)
        there.tell(type="result", run="1", call=calls["a"], value=deep)
        assert there.done()["value"] == [121, 50000, 49999]


def test_an_answer_that_cannot_be_taken_fails_its_call(serve):
    """Also such a one that is nested too deeply to be read, and no other call is answered by it."""
    def nested(depth):
        return "[" * depth + "]" * depth

    with Connection(serve) as there:
        there.run("const a = await tools.a(); const b = await tools.a().catch(why => why.message); [a, b]",
                  tools=["a"])
        call = there.next()["call"]
        deep = f'"type":"result","run":"1","call":{call}'
        for wrong in (call + 1, call + 1000):
            there.tell(type="result", run="1", call=wrong, value=1)
        there.send(terminals.TEXT, f'{{{deep},"value":[{nested(200)}, 1]}}'.encode())
        call = there.next()["call"]
        there.tell(type="result", run="1", call=call - 1, value=1)
        deep = f'"type":"result","run":"1","call":{call}'
        there.send(terminals.TEXT, f'{{{deep},"value":{nested(100000)}}}'.encode())
        assert there.next()["code"] == "bad_request"
        result = there.done()
        assert "deeper than" in result["value"][1], result["value"][1]


def test_runs_of_one_connection_go_on_at_once_and_are_stopped(serve):
    with Connection(serve) as there:
        for n in range(10):
            there.run(f"await tools.wait({n})", run=f"r{n}", tools=["wait"])
        calls = [there.next() for _ in range(10)]
        assert sorted(call["args"] for call in calls) == list(range(10))
        there.tell(type="stop", run="r0")
        assert there.done("r0")["error"]["kind"] == "stopped"
        for call in calls:
            there.tell(type="result", run=call["run"], call=call["call"], value=call["args"])
        ended = [there.next() for _ in range(9)]
        assert {one["run"]: one["result"]["value"] for one in ended} == {f"r{n}": n
                                                                         for n in range(1, 10)}


def test_a_context_with_tools(serve, api):
    path = make(api, tools=["add"])
    context = path.split("/")[-1]
    alone = run(api, "await tools.add(1)", f"{path}/run")
    assert "/v1/kernels/connect" in alone["error"]["message"], alone
    with Connection(serve) as there:
        there.run("globalThis.sum = await tools.add([1, 2])", context=context)
        call = there.next()
        there.tell(type="result", run="1", call=call["call"], value=sum(call["args"]))
        assert there.done()["value"] == 3
        there.run("1", context=context, tools=["b"])
        assert there.next()["code"] == "bad_request"
        there.run("1", context="k" * 20)
        assert there.next()["code"] == "kernel_not_found"
    assert value(api, "sum", f"{path}/run") == 3
    assert api.delete(path).status == 204


def test_a_client_that_goes_away_takes_its_runs_with_it(serve, api):
    path = make(api, tools=["wait"])
    with Connection(serve) as there:
        there.run("await tools.wait()", context=path.split("/")[-1])
        there.next()
        assert api.get(path).json["state"] == "running"
    harness.wait_for(lambda: api.get(path).json["state"] == "idle", what="the end of the run")
    assert value(api, "1", f"{path}/run") == 1
    assert api.delete(path).status == 204


@pytest.mark.parametrize("message", [
    "", "x", "[]", "{}", '{"type":"run"}', '{"type":"run","run":"1"}', '{"type":"result"}',
    '{"type":"result","run":1,"call":1}', '{"type":"run","run":"1","code":"1","more":1}',
    '{"type":"result","run":"1","call":1,"value":}', '{"type":"stop","run":"1"}x', "\u0000",
    '{"type":"error","run":"1","call":-1}'])
def test_wrong_messages_are_answered_and_the_rest_goes_on(serve, message):
    with Connection(serve) as there:
        there.send(terminals.TEXT, message.encode())
        said = there.next()
        assert (said["type"], said["code"]) == ("error", "bad_request"), said
        there.send(terminals.BINARY, b"x")
        assert there.next()["code"] == "bad_request"
        there.tell(type="result", run="none", call=1, value=1)
        there.tell(type="stop", run="none")
        there.run("1 + 1")
        assert there.done()["value"] == 2


def test_no_more_runs_than_are_allowed(serve):
    with Connection(serve) as there:
        for n in range(65):
            there.run("await tools.wait()", run=f"{n}", tools=["wait"])
        said = [there.next() for _ in range(65)]
        assert [one["code"] for one in said if one["type"] == "error"] == ["too_many_runs"]
        there.run("1", run="0")
        assert there.next()["code"] == "bad_request"


def beside(serve):
    """Large calls, messages and results that threads have had."""
    with serve.tcp(serve.key) as operator:
        text = operator.get("/metrics").bytes.decode()
    return [int(re.search(rf"^cove_kernel_{name}_total (\d+)$", text, re.M)[1])
            for name in ("calls_printed", "messages_parsed", "results_printed")]


def test_large_messages_are_read_and_printed_by_threads_and_nothing_overtakes_them(serve):
    before = beside(serve)
    with Connection(serve) as there:
        there.run("let got = 0; const keep = one => got += one.length;"
                  "const all = [tools.a('x'.repeat(1 << 20)).then(keep), tools.b(1).then(keep)];"
                  "await Promise.all(all); 'y'.repeat(1 << 20) + got", tools=["a", "b"])
        large, small = there.next(), there.next()
        assert (large["name"], small["name"], small["args"]) == ("a", "b", 1)
        assert large["args"] == "x" * (1 << 20)
        there.tell(type="result", run="1", call=large["call"], value="z" * (3 << 20))
        there.tell(type="result", run="1", call=small["call"], value="z")
        there.run("2", run="2")
        results = {}
        for _ in range(2):
            message = there.next()
            results[message["run"]] = message["result"]["value"]
        assert results == {"1": "y" * (1 << 20) + str((3 << 20) + 1), "2": 2}
        there.run(f"'{'c' * 100_000}'.length")
        assert there.done()["value"] == 100_000
    assert beside(serve) == [before[0] + 1, before[1] + 2, before[2] + 1]


@pytest.mark.parametrize("large,value", [
    ('{"type":"result","run":"1","call":%d,"value":"' + "x" * 100_000, "the tool's answer is no JSON, or nested deeper than 1000"),
    ('{"type":"run","run":"2","code":"' + "x" * 100_000 + '","more":%d}', "on"),
    ('{"a":%d,' * 30_000, "on")])
def test_large_messages_that_are_wrong_are_answered_and_the_rest_goes_on(serve, large, value):
    """A call whose answer cannot be read ends with that."""
    with Connection(serve) as there:
        there.run("await tools.a().catch(why => why.message)", tools=["a"])
        call = there.next()["call"]
        there.send(terminals.TEXT, large.replace("%d", str(call)).encode())
        assert there.next()["code"] == "bad_request"
        there.tell(type="result", run="1", call=call, value="on")
        assert there.done()["value"] == value


def test_a_large_call_that_may_not_be_is_refused(serve):
    with Connection(serve) as there:
        there.run("const big = 'x'.repeat(1 << 20); const all = [];"
                  "for (const name of ['a', 'b']) all.push(await tools[name](big).catch(why => why.message)); all",
                  tools=["a"])
        call = there.next()
        assert call["name"] == "a"
        there.tell(type="result", run="1", call=call["call"], value=1)
        value = there.done()["value"]
        assert value[0] == 1 and "'b' is denied" in value[1]


def test_a_client_that_goes_away_while_threads_print_for_it_holds_up_nobody(serve, api):
    before = beside(serve)[2]
    clients = [Connection(serve) for _ in range(6)]
    for there in clients:
        there.run("'x'.repeat(3 << 20)")
        there.send(terminals.TEXT, b'{"type":"run","run":"2","code":"1' + b" " * (3 << 20) + b'"}')
    harness.wait_for(lambda: beside(serve)[2] > before, what="a result")
    for there in clients:
        there.__exit__(None, None, None)
    assert value(api, "'y'.repeat(3 << 20).length") == 3 << 20
    with Connection(serve) as there:
        there.run("'x'.repeat(3 << 20)")
        assert len(there.done()["value"]) == 3 << 20


def test_a_client_that_does_not_read_is_not_kept_for(serve, api):
    """What waits for it is bounded: its tools fail, and nobody else notices."""
    with Connection(serve) as there:
        there.run("const big = 'x'.repeat(1 << 20); let n = 0;"
                  "const all = Array.from({length: 60}, () => tools.a(big).catch(() => n++));"
                  "await Promise.all(all); n", tools=["a"])
        assert value(api, "1 + 1") == 2
        engine = serve.engine_pid()
        assert select.select([there.socket], [], [], 60 * harness.PATIENCE)[0], "no call"
        harness.at_rest(lambda: harness.cpu_ticks(engine))  # it has taken all that it takes
        calls = 0
        while True:
            message = there.next()
            if message["type"] == "done":
                break
            calls += 1
            there.tell(type="result", run="1", call=message["call"], value=None)
        assert calls + message["result"]["value"] == 60 and message["result"]["value"] > 0, message


def test_what_waits_for_a_tenants_clients_is_bounded(serve, api):
    """They read nothing: some are cut off, and another tenant's are not."""
    engine = serve.engine_pid()
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(Connection(serve)) for _ in range(12)]
        for there in slow:
            for n in range(2):
                there.run("'x'.repeat(3 << 20)", run=f"{n}")
        with another_tenant(serve, api) as other:
            there = stack.enter_context(Connection(serve, [f"Authorization: Bearer {other.key}"],
                                                   serve.port))
            there.run("'x'.repeat(3 << 20)")
            assert len(there.done()["value"]) == 3 << 20
        operator = stack.enter_context(serve.tcp(serve.key))
        harness.wait_for(lambda: b"cove_kernel_runs 0\n" in operator.get("/metrics").bytes,
                         what="the end of the runs")
        ends = []
        for there in slow:
            try:
                while there.closed is None and sum(one["type"] == "done" for one in there.said) < 2:
                    there.step()
                ends.append(there.closed)
            except (EOFError, ConnectionError):
                ends.append("cut")  # who has not read the farewell after five seconds
        assert {1008, "cut"} & set(ends) and serve.engine_pid() == engine, ends
    with Connection(serve) as there:
        there.run("'x'.repeat(3 << 20)")
        assert len(there.done()["value"]) == 3 << 20


def test_messages_of_a_tenant_that_do_not_end_are_bounded(serve, api):
    """Each lacks a byte of its 4 MiB: sixteen of them are a quarter of what all tenants have."""
    part = frame(terminals.TEXT, b"m" * ((4 << 20) - 1), length=(8, 4 << 20))
    with contextlib.ExitStack() as stack:
        crowd, other = (stack.enter_context(another_tenant(serve, api, name=name)) for name in ("crowd", "late"))
        slow = [stack.enter_context(Connection(serve, [f"Authorization: Bearer {crowd.key}"], serve.port))
                for _ in range(20)]
        for there in slow:
            with contextlib.suppress(ConnectionError):  # it has been closed
                there.socket.sendall(part)
        codes = {}

        def four_have_ended():
            for there in slow:
                if there not in codes and select.select([there.socket], [], [], 0)[0]:
                    opcode, data = there.frame()
                    if opcode == terminals.CLOSE:
                        codes[there] = int.from_bytes(data[:2], "big")
            return len(codes) >= 4

        def is_full():
            """More than four have ended where several were refused at once: others take their places."""
            more = stack.enter_context(Connection(serve, [f"Authorization: Bearer {crowd.key}"], serve.port))
            with contextlib.suppress(ConnectionError):
                more.socket.sendall(part)
            return crowd.post("/v1/kernels/run", {"code": f"'{'m' * 100_000}'.length"}).status == 503

        harness.wait_for(four_have_ended, what="the end of four")
        assert set(codes.values()) == {1013}
        # A body counts with them, once the engine has read what was sent, and another tenant has its own quarter.
        harness.wait_for(is_full, what="a quarter that is full")
        assert crowd.post("/v1/kernels/run", {"code": f"'{'m' * 100_000}'.length"}).refusal == (503, "capacity")
        there = stack.enter_context(Connection(serve, [f"Authorization: Bearer {other.key}"], serve.port))
        there.run(f"'{'m' * 100_000}'.length")
        assert there.done()["value"] == 100_000


def test_runs_over_a_connection_are_in_the_audit_log(alone):
    serve, api = alone
    path = make(api)
    log = serve.data / "engine" / "audit" / "audit.ndjson"

    def lines():
        said = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [line for line in map(json.loads, said) if line.get("phase") == "run"]

    with Connection(serve) as there:
        there.run("1", context=path.split("/")[-1])
        there.done()
        there.run("1", run="no", context="k" * 20)
        there.next()
        there.run("await tools.a()", run="left", tools=["a"])
        there.next()
    harness.wait_for(lambda: len(lines()) == 3, what="the lines")
    assert [(line["kernel"], line["end"], line["code"]) for line in lines()] == [
        (path.split("/")[-1], "value", None), ("k" * 20, None, "kernel_not_found"),
        (None, "left", None)]
    assert all(line["tenant"] and line["key"] and line["duration_ms"] >= 0 for line in lines())


def test_a_run_that_does_not_end_holds_up_no_reload(alone):
    """It is told so after 2 s, and what ends by itself is answered."""
    serve, api = alone
    old = serve.engine_pid()
    with serve.client() as other:
        api.send("POST", "/v1/kernels/run", {"code": "for (;;) {}", "cpu_ms": 600000, "wall_ms": 600000})
        other.send("POST", "/v1/kernels/run", {"code": "await new Promise(done => setTimeout(done, 1000)); 'on'"})
        with serve.client() as looks:
            harness.wait_for(lambda: b"\ncove_kernel_runs 2\n" in looks.get("/metrics").bytes, what="both runs")
        serve.process.send_signal(signal.SIGHUP)
        assert other.receive().json["value"] == "on"
        answer = api.receive()
        assert answer.refusal == (410, "kernel_gone") and "restart" in answer.json["detail"], answer
    serve.wait_next_engine(old)
    with serve.client() as again:
        assert value(again, "1 + 1") == 2


def test_who_may_not_run_may_not_connect(serve, api):
    with another_tenant(serve, api, "read") as reader:
        with pytest.raises(terminals.Refused) as refused:
            Connection(serve, [f"Authorization: Bearer {reader.key}"], serve.port)
        assert refused.value.code == "forbidden"
    assert api.get("/v1/kernels/connect").code == "upgrade_required"


# ---- the worker ----

def workers(serve):
    """Host pids of what runs in boxes that have no user's process: an init and a worker."""
    found = []
    for pid in harness.children_of(serve.process.pid):
        with contextlib.suppress(OSError):
            status = dict(re.findall(r"^(\w+):\s*(.*)$", pathlib.Path(f"/proc/{pid}/status").read_text(),
                                     re.M))
            spaces = status.get("NSpid", "").split()  # none of one that has just ended
            if len(spaces) > 1 and spaces[-1] != "1":
                found.append(pid)
    return found


@pytest.fixture
def alone(tmp_path):
    """A server whose only worker is that of its operator."""
    with serving.Serve(tmp_path, CONFIG) as serve, serve.client() as api:
        yield serve, api


def worker(serve, api):
    assert value(api, "1 + 1") == 2
    found = workers(serve)
    assert len(found) == 1, found
    return found[0]


def test_a_worker_that_dies_is_replaced_and_its_contexts_are_gone(alone):
    serve, api = alone
    path = make(api)
    pid = worker(serve, api)

    def long():
        with serve.client() as client:
            return client.post(f"{path}/run", {"code": "await new Promise(d => setTimeout(d, 1e8))"})

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(long)
        harness.wait_for(lambda: api.get(path).json["state"] == "running", what="the run")
        os.kill(pid, signal.SIGKILL)
        ended = running.result()
    assert ended.refusal == (410, "kernel_gone") and "run it again" in ended.json["detail"]
    gone = api.get(path)
    assert gone.refusal == (410, "kernel_gone"), gone
    assert "worker" in gone.json["detail"] and "snapshot" in gone.json["detail"]
    assert value(api, "1 + 1") == 2
    harness.wait_for(lambda: len(workers(serve)) == 1 and workers(serve) != [pid], what="the next one")


def test_a_worker_has_nothing(alone):
    """Seen from outside: what it may, who it is, what it would find."""
    serve, api = alone
    pid = worker(serve, api)
    proc = pathlib.Path(f"/proc/{pid}")
    status = dict(re.findall(r"^(\w+):\s*(.*)$", (proc / "status").read_text(), re.M))
    assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1"
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    uids = set(status["Uid"].split())
    assert len(uids) == 1 and uids != {"0"} and uids != {str(os.getuid())}, uids
    if not harness.EXPECT.is_root:
        return
    for kind in ("net", "mnt", "pid", "user", "ipc", "uts", "cgroup"):
        assert os.readlink(proc / "ns" / kind) != os.readlink(f"/proc/self/ns/{kind}"), kind
    devices = [line.split(":")[0].strip() for line in (proc / "net/dev").read_text().splitlines()[2:]]
    assert devices == ["lo"]
    root = proc / "root"
    assert sorted(os.listdir(root)) == ["dev", "home", "proc", "root", "run", "sys", "tmp", "var"]
    for name in ("home/user", "root", "run", "tmp"):
        assert os.listdir(root / name) == [], name
    fds = {int(name): os.readlink(proc / "fd" / name) for name in os.listdir(proc / "fd")}
    assert all(place.startswith(("socket:", "/proc/", "anon_inode:", "/memfd:", "/dev/null"))
               for place in fds.values()), fds
    assert sum(place.startswith("socket:") for place in fds.values()) == 1, fds


def test_nobody_makes_a_sandbox_of_the_empty_root(api):
    for name in (".empty", "none"):
        refused = api.post("/v1/sandboxes", {"root": name})
        assert refused.refusal == (422, "unknown_root"), refused


def test_a_worker_counts_in_the_quota(serve, api):
    assert api.ask("PUT", "/v1/tenants/small/quota", {"memory_bytes": 512 << 20}).status == 200
    with another_tenant(serve, api, name="small") as other:
        full = other.post("/v1/kernels/run", {"code": "1"})
        assert full.refusal == (403, "quota"), full


def test_processors_of_a_worker_count_in_the_quota(serve, api):
    assert api.ask("PUT", "/v1/tenants/slow/quota", {"cpus": 0.5}).status == 200
    with another_tenant(serve, api, name="slow") as other:
        assert value(other, "1 + 1") == 2
        assert api.get("/v1/tenants/slow/quota").json["used"]["cpus"] == 0.5


def test_events_say_what_became_of_kernels(alone):
    serve, api = alone
    with serve.client() as listener:
        lines = serving.Lines(listener, "/v1/events")
        path = make(api)
        kernel = path.split("/")[-1]
        assert api.delete(path).status == 204
        heard = [(line["type"], line["kernel"]) for line in lines.until("kernel.deleted")]
        assert ("kernel.created", kernel) in heard and heard[-1] == ("kernel.deleted", kernel)
        path = make(api)
        os.kill(worker(serve, api), signal.SIGKILL)
        gone = lines.until("kernel.gone")[-1]
        assert (gone["kernel"], gone["reason"]) == (path.split("/")[-1], "worker_ended")
