"""The commands over the API against servers that are wrong, hostile or cut off: what is said then, with
which status, and that nothing is invented, shown raw or done twice."""
import base64
import contextlib
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import threading

import pytest

import harness
from scripted import COVE, CUT, Server, answer, chunked, cove, good, problem

ID = "c0abcdefghij01234567"
SANDBOX = {"id": ID, "name": "work", "state": "running", "root": "host", "privileges": "system",
           "disk_kind": "persistent", "labels": {"a": "b"}, "env": {"TOKEN": "secret"},
           "resources": {"memory_bytes": 1 << 29, "cpus": 1.5, "pids": 64, "disk_bytes": 1 << 30},
           "lifecycle": {"idle_ms": 600000, "then": "stop"}, "processes_running": 2,
           "created_at": "2026-01-01T00:00:00.000Z", "updated_at": "2026-01-01T00:00:00.000Z"}


def process(**more):
    return {"id": "1", "pid": 7, "command": "sh", "state": "exited", "exit_code": 0, "signal": None,
            "timed_out": False, "oom_killed": False, "started_at": "2026-01-01T00:00:00.000Z",
            "cpu_ms": 10, "stdout": {"from": 0, "bytes": 0}, "stderr": {"from": 0, "bytes": 0}, **more}


def line(**event):
    return json.dumps(event).encode() + b"\n"


def out(text, stream="stdout", start=0):
    return line(type=stream, **{"from": start}, data=base64.b64encode(text).decode())


def end(**more):
    return line(type="exit", process=process(**more))


@pytest.fixture(autouse=True)
def nothing_left():
    """No test of this file makes a box."""


@pytest.fixture
def server(tmp_path):
    made = []

    def make(script):
        made.append(Server(tmp_path / f"s{len(made)}.sock", script))
        return made[-1]

    yield make
    for each in made:
        each.close()


def failed(result, *words):
    """It failed by itself, in one line that has these words."""
    text = result.stderr.decode()
    assert result.returncode == 125, (result.returncode, text)
    assert text.startswith("cove: ") and text.count("\n") == 1, text
    for word in words:
        assert word in text, text


def shortly(value):
    return repr(value)[:40]


# ---- answers that are none -----------------------------------------------------------------------

@pytest.mark.parametrize("said", [
    b"", b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    answer(b"<html>"), answer(b"[1,2"), answer(b"\xff\xfe"), answer(b'{"a":1,"a":2}'),
    answer(b"[" * 100000), answer({"sandboxes": 5}), answer({}), answer([]), answer(b""),
    answer(b"<h1>404</h1>", 404), answer({"code": "no good code!"}, 500), answer(b"", 302),
    b"HTTP/1.1 101 Switching\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
], ids=shortly)
def test_an_answer_that_is_none_is_told_as_such(server, said):
    failed(cove("ls", env=server(lambda request: [said, CUT]).env))


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH_9.2\r\n", b"\x15\x03\x01\x00\x02\x02\x46", b"no"], ids=shortly)
def test_what_speaks_no_http_is_told_from_a_server_that_was_cut(server, said):
    failed(cove("ls", env=server(lambda request: [said, CUT]).env), "is no HTTP; check that COVE_URL")


def test_a_server_that_never_ends_its_head_or_body_is_left(server):
    def endless(request):
        return [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] + \
               [b"100000\r\n" + b" " * 0x100000 + b"\r\n"] * 80 + [CUT]
    failed(cove("ls", env=server(endless).env), "longer")


def test_a_list_that_says_for_ever_that_there_is_more_ends(server):
    made = server(lambda request: answer({"sandboxes": [], "next": "x"}))
    failed(cove("ls", env=made.env, limit=300))
    assert len(made.requests) <= 10001


def test_a_problem_is_told_with_what_to_do_and_nothing_of_it_steers(server):
    made = server(lambda request: problem(409, "quota", "too\x1b[2Jmany\u202e", remedy="Ask\n\u009b1m"))
    result = cove("ls", env=made.env)
    failed(result, "too\\x1b[2Jmany\\u{202e}; ask\\x0a\\x9b1m")
    assert b"\x1b" not in result.stderr


def test_remedies_are_those_of_the_command_line(server):
    made = server(lambda request: problem(409, "sandbox_stopped", "The sandbox is stopped",
                                          remedy="send start: true"))
    failed(cove("exec", "work", "--", "true", env=made.env), "cove start", "--start")


def test_no_server(tmp_path):
    failed(cove("ls", env={"COVE_URL": f"unix:{tmp_path}/none.sock"}), "none.sock", "cove serve, or correct COVE_URL")
    failed(cove("ls", env={"COVE_URL": "http://127.0.0.1:1"}), "127.0.0.1:1")
    failed(cove("ls", env={"COVE_URL": "https://127.0.0.1:1"}), "127.0.0.1:1")
    failed(cove("ls", env={"COVE_URL": "nonsense"}), "COVE_URL")


# ---- keys ----------------------------------------------------------------------------------------

def test_a_key_is_sent_and_shown_nowhere(server):
    made = server(lambda request: problem(401, "bad_key", "No valid key"))
    result = cove("ls", env={**made.env, "COVE_API_KEY": "k-123"})
    failed(result, "COVE_API_KEY")
    assert made.requests[0].headers["authorization"] == "Bearer k-123"
    assert b"k-123" not in result.stderr
    failed(cove("ls", env=made.env), "set COVE_API_KEY")
    assert "authorization" not in made.requests[-1].headers


def test_a_key_is_only_for_the_server_that_was_named(tmp_path):
    env = private_env(tmp_path)
    made = Server(tmp_path / "runtime" / "cove" / "cove.sock",
                  lambda request: answer({"status": "ok"}) if request.path == "/readyz"
                  else answer({"sandboxes": [SANDBOX], "next": None}))
    assert cove("ls", "-q", env={**env, "COVE_API_KEY": "k-123"}).returncode == 0
    assert made.requests and not any("authorization" in each.headers for each in made.requests)
    made.close()


def test_an_error_is_told_in_words_of_the_command_line(server):
    made = server(lambda request: problem(404, "sandbox_not_found",
                                          "there is no sandbox 'name:nope'; list those there are"))
    result = cove("info", "nope", env=made.env)
    failed(result, "there is no sandbox 'nope'; cove ls lists what there is")
    made = server(lambda request: problem(400, "bad_request", "query parameter \"x\" is unknown here",
                                          remedy="Correct what `detail` names; /v1/openapi.yaml"))
    result = cove("info", "nope", env=made.env)
    failed(result, "is unknown here")
    assert b"openapi" not in result.stderr


@pytest.mark.parametrize("key", ["a\r\nX: y", "a b", "\u00e9", "k" * 600])
def test_a_key_that_is_none_is_not_sent(server, key):
    made = server(lambda request: answer({}))
    failed(cove("ls", env={**made.env, "COVE_API_KEY": key}), "COVE_API_KEY")
    assert made.requests == []


def test_a_key_that_would_be_sent_in_the_open_is_told():
    for host, warns in (("0.0.0.0", True), ("127.0.0.1", False), ("[::1]", False)):
        result = cove("ls", env={"COVE_URL": f"http://{host}:1", "COVE_API_KEY": "k-123"})
        assert result.returncode == 125 and (b"unencrypted" in result.stderr) is warns


def quota_view(**quota):
    every = dict.fromkeys(("sandboxes", "memory_bytes", "disk_bytes", "ports", "pids", "requests_per_second"), 0)
    return {"tenant": "team", "quota": {**every, "cpus": 0.0, **quota}, "used": {**every, "cpus": 1.5, "memory_bytes": 3 << 30}}


def test_what_is_not_named_of_a_quota_stays(server):
    was = quota_view(sandboxes=5, pids=700, cpus=2.5, requests_per_second=50)
    made = server(lambda request: answer(was))
    good(cove("quota", "team", "--memory", "8G", "--sandboxes=0", "--cpus", "0.5", env=made.env))
    asked, put = made.requests
    assert (asked.method, asked.path) == ("GET", "/v1/tenants/team/quota")
    assert (put.method, put.path) == ("PUT", "/v1/tenants/team/quota")
    assert put.json() == {**was["quota"], "memory_bytes": 8 << 30, "sandboxes": 0, "cpus": 0.5}


def test_quotas_are_shown_of_one_tenant_or_of_all(server):
    def script(request):
        if request.path == "/v1/keys":
            return answer({"keys": [{"id": "k1", "tenant": name, "scopes": ["read"]} for name in ("te am", "default", "te am")]})
        name = {"/v1/tenants/default/quota": "default", "/v1/tenants/te%20am/quota": "te am"}[request.path]
        return answer({**quota_view(memory_bytes=8 << 30, requests_per_second=50), "tenant": name})

    made = server(script)
    lines = [line.split() for line in good(cove("quota", "default", env=made.env)).splitlines()]
    assert ["memory", "3G", "8G"] in lines and ["cpus", "1.5", "-"] in lines and ["requests", "-", "50"] in lines
    lines = good(cove("quota", env=made.env)).splitlines()
    assert len(lines) == 3 and all("3G/8G" in line and "50" in line for line in lines[1:])
    shown = json.loads(good(cove("quota", "--json", env=made.env)))["tenants"]
    assert [each["tenant"] for each in shown] == ["default", "te am"]


@pytest.mark.parametrize("words, says", [
    (("--pids", "5"), "TENANT"), (("", "--pids", "5"), "no name of a tenant"), (("team", "--memory", "lots"), "memory"),
    (("team", "--cpus", "-1"), "cpus"), (("team", "--pids", "1.5"), "pids")])
def test_a_quota_that_is_none_is_not_set(server, words, says):
    made = server(lambda request: answer(quota_view()))
    failed(cove("quota", *words, env=made.env), says)
    assert not any(request.method == "PUT" for request in made.requests)


def test_a_secret_is_all_of_standard_output(server):
    made = server(lambda request: answer({"id": "k1", "secret": "s3cret"}, 201))
    result = cove("key", "new", "ci", "--scope", "read", env=made.env)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"s3cret\n", b"")
    assert made.requests[0].json() == {"label": "ci", "scopes": ["read"]}


# ---- requests ------------------------------------------------------------------------------------

def test_create_sends_what_was_said_and_nothing_else(server):
    made = server(lambda request: answer({**SANDBOX, "created": True}, 201))
    result = cove("create", "work", "--ephemeral", "--memory", "512M", "--cpus=1.5", "--pids", "64",
                  "--disk", "1G", "-e", "A=b=c", "--label", "k=v", "--idle", "10m", "--then", "kill",
                  "--mount", "data:/data:ro", "--mount", "src:/src", "-w", "/src", "-u", "root",
                  "--root", "debian", "--privileges", "plain", "--lifetime", "1h", env=made.env)
    assert (result.returncode, result.stdout, result.stderr) == (0, ID.encode() + b"\n", b"")
    assert made.requests[0].json() == {
        "name": "work", "root": "debian", "privileges": "plain", "disk_kind": "ephemeral",
        "cwd": "/src", "user": "root", "env": {"A": "b=c"}, "labels": {"k": "v"},
        "mounts": [{"name": "data", "target": "/data", "read_only": True},
                   {"name": "src", "target": "/src"}],
        "resources": {"memory_bytes": 1 << 29, "disk_bytes": 1 << 30, "pids": 64, "cpus": 1.5},
        "lifecycle": {"lifetime_ms": 3600000, "idle_ms": 600000, "then": "kill"}}
    cove("create", env=made.env)
    assert made.requests[1].json() == {}


def test_create_says_when_it_was_there(server):
    made = server(lambda request: answer({**SANDBOX, "created": False}))
    result = cove("create", "work", env=made.env)
    assert (result.returncode, result.stdout) == (0, ID.encode() + b"\n")
    assert b"was there already" in result.stderr


@pytest.mark.parametrize("there, asked, is_same", [
    ({"mode": "public"}, "public", True), ({"mode": "public"}, "none", False), ({"mode": "none"}, "public", False),
    ({"mode": "allow", "allow": ["a.example:443", "b.example"]}, "allow=a.example:443,b.example", True),
    ({"mode": "allow", "allow": ["a.example:443", "b.example"]}, "allow=a.example:443", False),
    ({"mode": "public", "deny": ["a.example"]}, "public,deny=b.example", False), (None, "none", False)])
def test_a_name_that_is_there_with_another_network_is_an_error(server, there, asked, is_same):
    made = server(lambda request: answer({**SANDBOX, "created": False, "network": there}))
    result = cove("create", "work", "--net", asked, env=made.env)
    if is_same:
        assert (result.returncode, result.stdout) == (0, ID.encode() + b"\n")
    else:
        failed(result, "work", "another network policy", "cove net work")
    assert cove("create", "work", env=made.env).returncode == 0


def test_a_name_may_be_an_option_too(server):
    made = server(lambda request: answer({**SANDBOX, "created": True}, 201))
    assert cove("create", "--name", "work", env=made.env).returncode == 0
    assert made.requests[0].json() == {"name": "work"}
    failed(cove("create", "--name", "a", "b", env=made.env), "leave one out")


def test_a_cut_create_is_repeated_once_by_its_key_and_a_cut_exec_is_not(server):
    made = server(lambda request: CUT and [CUT])
    failed(cove("create", env=made.env), "ended the connection")
    assert [request.headers["idempotency-key"] for request in made.requests] == \
           [made.requests[0].headers["idempotency-key"]] * 2
    made = server(lambda request: [CUT])
    failed(cove("exec", "work", "--", "true", env=made.env), "ended the connection")
    assert len(made.requests) == 1


def test_an_id_that_would_steer_a_terminal_is_refused(server):
    made = server(lambda request: answer({"id": "\x1b[2J", "created": True}, 201))
    failed(cove("create", env=made.env))
    made = server(lambda request: answer(process(id="../../x"), 201))
    failed(cove("exec", "-d", "work", "--", "true", env=made.env))


@pytest.mark.parametrize("words", [
    ("create", "--memory", "x"), ("create", "--mount", "data"), ("create", "--root", "/srv"),
    ("create", "a", "b"), ("create", "--then", "pause"), ("create", "--label", "x"),
    ("exec",), ("exec", "work"), ("exec", "work", "--"), ("exec", "-i", "-d", "work", "--", "true"),
    ("kill",), ("exec", "-ni", "work", "--", "true"), ("kill", "work", "1", "--signal", "NONE"), ("logs",), ("rm",), ("info", ""),
    ("key",), ("key", "x"), ("key", "new"), ("root", "x"), ("ls", "--nonsense"), ("wait",), ("logs", "work", "--tail", "4K"),
])
def test_bad_words_are_refused_before_any_server_is_asked(server, words):
    made = server(lambda request: answer({}))
    failed(cove(*words, env=made.env))
    assert made.connections == 0


@pytest.mark.parametrize("command", ["create", "ls", "info", "exec", "ps", "logs", "wait", "kill",
                                     "stop", "start", "rm", "key", "root", "mount"])
def test_every_command_has_help(command):
    text = cove("help", command)
    assert text.returncode == 0 and text.stdout.startswith(f"Usage: cove {command}".encode())
    assert text.stdout == cove(command, "--help").stdout
    assert max(map(len, text.stdout.decode().splitlines())) <= 100
    assert f"  {command} ".encode() in cove("help").stdout


# ---- tables --------------------------------------------------------------------------------------

def test_tables_are_aligned_and_show_no_name_raw(server):
    evil = {**SANDBOX, "id": "c0zzzzzzzzzzzzzzzzzz", "name": "a\x1b]0;x\x07\n\u202eb", "state": "stopped"}
    made = server(lambda request: answer({"sandboxes": [SANDBOX, evil], "next": None}))
    result = cove("ls", env=made.env)
    head, first, second = result.stdout.decode().splitlines()
    assert head.split() == ["ID", "STATE", "ROOT", "MEMORY", "PROCESSES", "AGE", "NAME"]
    assert first.split()[:5] == [ID, "running", "host", "512M", "2"] and first.endswith(" work")
    assert second.endswith("a\\x1b]0;x\\x07\\x0a\\u{202e}b")
    assert head.index("STATE") == first.index("running") == second.index("stopped")
    assert cove("ls", "-q", env=made.env).stdout.decode().split() == [ID, evil["id"]]
    assert json.loads(cove("ls", "--json", env=made.env).stdout) == {"sandboxes": [SANDBOX, evil]}


def test_ls_goes_on_to_the_last_page(server):
    def script(request):
        is_last = "cursor=a%2Fb" in request.path
        return answer({"sandboxes": [SANDBOX], "next": None if is_last else "a/b"})
    made = server(script)
    result = cove("ls", "-q", "--label", "k=v w", "--state", "running", env=made.env)
    assert result.stdout.decode().split() == [ID, ID]
    assert "label=k%3Dv%20w" in made.requests[1].path and "state=running" in made.requests[1].path
    assert made.connections == 1


def test_info_shows_no_value_of_a_variable(server):
    made = server(lambda request: answer(SANDBOX))
    result = cove("info", "work", env=made.env)
    assert b"TOKEN" in result.stdout and b"secret" not in result.stdout
    assert made.requests[0].path == "/v1/sandboxes/name:work"
    assert json.loads(cove("info", ID, "--json", env=made.env).stdout) == SANDBOX
    assert made.requests[1].path == f"/v1/sandboxes/{ID}"


@pytest.mark.parametrize("command", ["ls", "ps", "info"])
@pytest.mark.parametrize("value", [None, 5, [], {}, "x", -1, 1e300, True])
def test_fields_of_other_types_are_passed_over(server, command, value):
    broken = dict.fromkeys([*SANDBOX, *process()], value)
    answers = {"ls": {"sandboxes": [broken, value]}, "ps": {"processes": [broken, value]},
               "info": {**broken, "id": ID}}
    made = server(lambda request: answer(answers[command]))
    result = cove(command, *([] if command == "ls" else ["work"]), env=made.env)
    assert result.returncode == 0, result.stderr


# ---- exec ----------------------------------------------------------------------------------------

def exec_script(*stream, started=None):
    def script(request):
        if request.method == "POST" and request.path.endswith("/processes"):
            return answer(started or process(state="running"), 201)
        if "/follow" in request.path:
            return list(stream)
        return answer(b"", 204)
    return script


def test_exec_streams_both_outputs_and_ends_as_the_command(server):
    made = server(exec_script(chunked(out(b"a\x00\xff"), out(b"e", "stderr"), line(type="keepalive"),
                                      line(type="later", x=1), out(b"b", start=3), end(exit_code=7))))
    result = cove("exec", "-e", "A=1", "-w", "/tmp", "-u", "root", "--timeout", "2s", "--start",
                  "work", "--", "sh", "-c", "x", env=made.env)
    assert (result.returncode, result.stdout, result.stderr) == (7, b"a\x00\xffb", b"e")
    assert made.requests[0].json() == {"argv": ["sh", "-c", "x"], "env": {"A": "1"}, "cwd": "/tmp",
                                       "user": "root", "timeout_ms": 2000, "start": True}


@pytest.mark.parametrize("how, status", [
    ({"exit_code": None, "signal": "SIGTERM"}, 143), ({"exit_code": 124, "timed_out": True}, 124),
    ({"state": "lost", "exit_code": None, "reason": "keeper_lost"}, 125),
    ({"state": "failed", "exit_code": None, "reason": "command_not_found"}, 127),
    ({"exit_code": None}, 125), ({"exit_code": 300}, 125),
])
def test_exec_ends_as_run_does(server, how, status):
    made = server(exec_script(chunked(end(**how))))
    assert cove("exec", "work", "--", "x", env=made.env).returncode == status


@pytest.mark.parametrize("code, status", [("command_not_found", 127), ("not_executable", 126),
                                          ("user_not_found", 125)])
def test_a_command_that_cannot_start_has_the_status_of_run(server, code, status):
    made = server(lambda request: problem(422, code, "no"))
    result = cove("exec", "work", "--", "x", env=made.env)
    assert result.returncode == status and result.stderr.startswith(b"cove: no")


def test_a_stream_that_is_cut_goes_on_where_it_was(server):
    streams = [[chunked(out(b"abc"), out(b"E", "stderr"), end=False), CUT], [CUT],
               problem(503, "draining", "wait"), problem(429, "too_many_requests", "wait"),
               chunked(out(b"def", start=3), end(exit_code=3))]

    def script(request):
        if "/follow" not in request.path:
            return answer(process(state="running"), 201)
        follows.append(request.path)
        return streams.pop(0)
    follows = []
    made = server(script)
    result = cove("exec", "work", "--", "x", env=made.env)
    assert (result.returncode, result.stdout, result.stderr) == (3, b"abcdef", b"E")
    assert "stdout_from=0&stderr_from=0" in follows[0]
    assert "stdout_from=3&stderr_from=1" in follows[-1]


def test_what_pours_is_fetched_raw_and_in_order(server):
    text = os.urandom(1 << 20)

    def script(request):
        if "/follow" in request.path:
            start = int(request.path.split("stdout_from=")[1].split("&")[0])
            piece = text[start:start + 40000]
            return chunked(*([out(piece, start=start)] if piece else [out(b"end", "stderr"), end()]))
        if "/output" in request.path:
            if "stream=stderr" in request.path:
                return answer(b"", headers="Cove-From: 0\r\n")
            start = int(request.path.split("offset=")[1].split("&")[0])
            return answer(text[start:start + 500000], headers=f"Cove-From: {start}\r\n")
        return answer(process(state="running"), 201)
    made = server(script)
    result = cove("exec", "work", "--", "x", env=made.env)
    assert result.returncode == 0 and result.stdout == text and result.stderr == b"end"
    assert len(made.requests) < 15


@pytest.mark.parametrize("bad", [
    b"{}\n", b"nonsense\n", line(type="stdout"), line(type="stdout", data="Zg=="),
    line(type="stdout", data="Z", **{"from": 0}), line(type="stdout", data=5, **{"from": 0}),
    line(type="stdout", data="Zg==", **{"from": -1}), line(type="exit"),
    out(b"abc") + out(b"abc"), line(type="gap", stream="x", to=1, **{"from": 0}), line(type="gap", stream="stdout", to=0, **{"from": 5}),
    b"a" * (5 << 20) + b"\n",
], ids=shortly)
def test_a_stream_that_is_none_ends_with_an_error_and_the_command(server, bad):
    made = server(exec_script(chunked(bad), CUT))
    failed(cove("exec", "work", "--", "x", env=made.env))
    assert made.requests[-1].method == "DELETE"


def test_a_gap_is_told(server):
    made = server(exec_script(chunked(line(type="gap", stream="stdout", to=10, **{"from": 0}),
                                      out(b"x", start=10), end())))
    result = cove("exec", "work", "--", "x", env=made.env)
    assert result.stdout == b"x" and b"10 bytes" in result.stderr and result.returncode == 0


def test_input_is_sent_in_order_and_closed_once(server):
    sent = []

    def ends():
        return [request for request in sent if "close=true" in request.path]

    def is_over():
        """The end was told twice, or its connection was closed."""
        return len(ends()) > 1 or any(request in made.last for request in ends())

    def wait_until_over():
        with contextlib.suppress(AssertionError):  # the test looks at it in its own thread
            harness.wait_for(is_over, 20 * harness.PATIENCE)

    def script(request):
        if "/stdin" in request.path:
            sent.append(request)
            return answer(b"", 204)
        if "/follow" in request.path:
            return [chunked(out(b"x"), end=False), wait_until_over,
                    b"%x\r\n%s\r\n0\r\n\r\n" % (len(end()), end())]
        return answer(process(state="running"), 201)
    made = server(script)
    data = os.urandom(300000)
    result = cove("exec", "-i", "work", "--", "cat", stdin=data, env=made.env)
    assert result.returncode == 0 and result.stdout == b"x"
    assert b"".join(request.body for request in sent) == data
    assert is_over() and ends() == sent[-1:]
    assert made.requests[0].json()["open_stdin"] is True


def test_input_that_is_not_wanted_is_no_failure_and_one_that_is_lost_kills(server):
    done = threading.Event()

    def script(code, status):
        def say(request):
            if request.method == "DELETE":
                done.set()
                return answer(b"", 204)
            if "/stdin" in request.path:
                return problem(409, code, "no")
            if "/follow" in request.path:
                done.wait(1 if status == 0 else 20)
                return chunked(end())
            return answer(process(state="running"), 201)
        return say
    assert cove("exec", "-i", "work", "--", "x", stdin=b"a",
                env=server(script("stdin_closed", 0)).env).returncode == 0
    failed(cove("exec", "-i", "work", "--", "x", stdin=b"a", env=server(script("forbidden", 1)).env),
           "standard input")
    assert done.is_set()


@pytest.mark.parametrize("words", [("exec", "-n", "work", "--", "true"), ("exec", "-d", "work", "--", "true"),
                                   ("exec", "--json", "work", "--", "true")])
def test_a_loop_of_a_shell_keeps_its_input(server, words):
    said = exec_script(chunked(end()))
    made = server(lambda request: answer({"process": process()}) if request.path.endswith("/exec") else said(request))
    loop = f"while read x; do {COVE} {' '.join(words)}; done"
    subprocess.run(["sh", "-c", loop], input=b"1\n2\n3\n", env={**os.environ, **made.env}, check=True,
                   timeout=30)
    started = [request for request in made.requests if request.path.endswith(("/processes", "/exec"))]
    assert len(started) == 3 and not any("open_stdin" in request.json() for request in started)


def test_what_is_piped_is_for_the_command_and_nothing_else_is(server, tmp_path):
    made = server(exec_script(chunked(end())))
    (tmp_path / "file").write_bytes(b"of a file")

    def opened(**stdin):
        subprocess.run([COVE, "exec", "work", "--", "true"], env={**os.environ, **made.env}, check=True, timeout=30,
                       **stdin)
        # The process that carries the input may still ask when its command has ended.
        starts = [request for request in made.requests if request.path.endswith("/processes")]
        return starts[-1].json().get("open_stdin", False)

    assert opened(input=b"piped")
    with open(tmp_path / "file", "rb") as file:
        assert opened(stdin=file)
    assert not opened(stdin=subprocess.DEVNULL)
    ours, theirs = os.openpty()
    assert not opened(stdin=theirs)
    os.close(ours)
    os.close(theirs)


def test_interrupts_reach_the_command_and_the_second_kills_it(server):
    told, killed = threading.Event(), threading.Event()
    signals = []

    def script(request):
        if request.path.endswith("/signal"):
            signals.append(request.json()["signal"])
            told.set()
            return answer(b"", 204)
        if request.method == "DELETE":
            killed.set()
            return answer(b"", 204)
        if "/follow" in request.path:
            ready.set()
            return [chunked(out(b"x"), end=False), lambda: killed.wait(20),
                    b"%x\r\n%s\r\n0\r\n\r\n" % ((len(last)), last)]
        return answer(process(state="running"), 201)
    ready = threading.Event()
    last = end(exit_code=None, signal="SIGKILL")
    made = server(script)
    with subprocess.Popen([COVE, "exec", "work", "--", "x"], env={**os.environ, **made.env},
                          stdout=subprocess.PIPE) as running:
        assert ready.wait(10)
        running.send_signal(signal.SIGINT)
        assert told.wait(10)
        running.send_signal(signal.SIGINT)
        assert killed.wait(10)
        assert running.wait(10) == 137
    assert signals == [2]


def test_a_server_that_hangs_can_be_left(server):
    release = threading.Event()
    made = server(lambda request: [lambda: release.wait(30)])
    with subprocess.Popen([COVE, "exec", "work", "--", "x"], env={**os.environ, **made.env}) as running:
        harness.wait_for(lambda: made.requests, what="a request")
        running.send_signal(signal.SIGINT)
        # Two that nobody has taken are one. It has taken it, and waits again.
        harness.wait_for(lambda: re.search(r"^State:\tS[^$]*^ShdPnd:.*[014589cd]$",
                                           pathlib.Path(f"/proc/{running.pid}/status").read_text(), re.M),
                         what="that it takes the signal")
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        assert running.wait(10) == 130
    release.set()


def test_a_command_that_nobody_reads_is_killed(server):
    killed = threading.Event()

    def script(request):
        if request.method == "DELETE":
            killed.set()
            return answer(b"", 204)
        if "/follow" in request.path:
            return [chunked(*[out(b"y" * 30000, start=i * 30000) for i in range(50)], end=False),
                    lambda: killed.wait(20), CUT]
        return answer(process(state="running"), 201)
    made = server(script)
    with subprocess.Popen([COVE, "exec", "work", "--", "yes"], env={**os.environ, **made.env},
                          stdout=subprocess.PIPE) as running:
        assert len(running.stdout.read(10)) == 10
        running.stdout.close()
        assert killed.wait(10)
        assert running.wait(10) == 141


def test_exec_json_is_the_answer_as_it_is(server):
    said = {"process": process(exit_code=4), "stdout": "x", "stderr": ""}
    made = server(lambda request: answer(said))
    result = cove("exec", "--json", "work", "--", "x", env=made.env)
    assert result.returncode == 4 and json.loads(result.stdout) == said
    assert made.requests[0].path == "/v1/sandboxes/name:work/exec"


# ---- logs, kill, wait ----------------------------------------------------------------------------

UPGRADE = b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


def frame(opcode, data, first=0x80, second=0):
    size = len(data)
    if size < 126:
        return bytes([first | opcode, second | size]) + data
    return bytes([first | opcode, second | 127]) + size.to_bytes(8, "big") + data


def said(**message):
    return frame(1, json.dumps(message).encode())


def terminal(server, *frames):
    """What becomes of `cove attach` to a server that says this."""
    return cove("attach", "work", "1", env=server(lambda request: [UPGRADE, *frames, CUT]
                                                  if request.method == "GET" else answer(b"")).env)


def test_a_terminal_is_shown_to_its_end(server):
    big = b"x" * 200000
    done = terminal(server, said(type="attached", **{"from": 7}, rows=1, columns=1),
                    frame(9, b"there?"), frame(2, b"one "), frame(2, b""), frame(2, big),
                    said(type="gap", **{"from": 10, "to": 30}), said(type="new in a later version"),
                    said(type="error", code="capacity", detail="\x1b[31m"), frame(2, b" two"),
                    said(type="exit", process=process(exit_code=7)), frame(8, b"\x03\xe8"))
    assert done.returncode == 7 and done.stderr == b"", done
    assert done.stdout == (b"one " + big +
                           b"\r\n[cove: 20 bytes of what was shown are not kept any more]\r\n two")


def test_the_end_of_the_command_is_that_of_attach(server):
    """Whatever the server does with its connection then."""
    over = threading.Event()
    made = server(lambda request: [UPGRADE, said(type="exit", process=process(exit_code=7)), over.wait])
    done = cove("attach", "work", "1", env=made.env)
    over.set()
    assert done.returncode == 7, done


@pytest.mark.parametrize("frames", [
    [frame(2, b"x", first=0)], [frame(2, b"x", first=0xc0)], [frame(2, b"x", second=0x80)],
    [frame(3, b"x")], [frame(9, b"x" * 200)], [bytes([0x82, 127]) + (1 << 40).to_bytes(8, "big")],
    [bytes([0x82, 127]) + b"\xff" * 8], [frame(1, b"no JSON")], [frame(1, b"[]")], [frame(1, b"{}")],
    [frame(8, b"\x03\xf3")], [frame(8, b"")]])
def test_a_server_that_speaks_no_websocket_of_ours_is_left(server, frames):
    failed(terminal(server, *frames), "")


def test_a_terminal_goes_on_with_the_next_byte(server):
    asked = []

    def script(request):
        asked.append(request.path)
        if len(asked) == 1:
            return [UPGRADE, frame(2, b"old"), said(type="attached", **{"from": 50}, rows=1, columns=1),
                    frame(2, b"abc"), CUT]
        if len(asked) == 2:
            return [UPGRADE, said(type="attached", **{"from": 53}, rows=1, columns=1),
                    frame(2, b"de"), frame(8, b"\x03\xe9"), CUT]
        return [UPGRADE, frame(2, b"f"), said(type="exit", process=process(exit_code=3)), CUT]

    done = cove("attach", "work", "1", env=server(script).env)
    assert done.returncode == 3 and done.stdout == b"oldabcdef", done
    assert [path.partition("from=")[2] for path in asked] == ["", "53", "55"]


def test_a_detach_of_which_the_server_has_not_heard_is_no_success(server):
    made = server(lambda request: [UPGRADE, said(type="attached", **{"from": 0}, rows=1, columns=1), frame(2, b"ready")])
    ours, its = pty.openpty()
    with subprocess.Popen([COVE, "attach", "work", "1"], env={**os.environ, **made.env}, stdin=its, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as attach:
        assert attach.stdout.read(5) == b"ready"
        os.write(ours, b"\x10\x11")
        said_of_it = attach.communicate(timeout=20)[1]
    os.close(ours)
    os.close(its)
    assert attach.returncode == 125 and b"cove ps work shows whether" in said_of_it and b"detached;" not in said_of_it


def test_a_server_without_terminals_says_why(server):
    done = cove("attach", "work", "1",
                env=server(lambda _: problem(404, "route_not_found", "there is no such path")).env)
    failed(done, "no such path")
    failed(cove("attach", "work", "1", env=server(lambda _: answer({})).env), "WebSocket")


def test_logs_prints_what_is_there_of_the_newest_process(server):
    text = b"0123456789" * 5000

    def script(request):
        if request.path.endswith("/processes"):
            return answer({"processes": [process(id="9"), process(id="10"), process(id="x")]})
        if "/output" not in request.path:
            return answer(process(id="10", stdout={"from": 0, "bytes": 50000},
                                  stderr={"from": 0, "bytes": 3}))
        if "stream=stderr" in request.path:
            return answer(b"err", headers="Cove-From: 0\r\n")
        start = int(request.path.split("offset=")[1].split("&")[0])
        return answer(text[start:start + 20000], headers=f"Cove-From: {start}\r\n")
    made = server(script)
    result = cove("logs", "work", env=made.env)
    assert (result.returncode, result.stdout, result.stderr) == (0, text, b"err")
    assert "/processes/10" in made.requests[1].path
    result = cove("logs", "work", "--stdout", "--tail-bytes", "7", env=made.env)
    assert (result.stdout, result.stderr) == (b"3456789", b"")


@pytest.mark.parametrize("text", [b"".join(b"%d %s\n" % (i, b"x" * (i % 3000)) for i in range(200)),
                                  b"one\ntwo\nno end", b"\n\n\n", b"", b"alone"])
@pytest.mark.parametrize("first", [0, 2])
def test_logs_print_the_newest_lines_of_what_is_kept(server, text, first):
    def script(request):
        if "/output" not in request.path:
            return answer(process(stdout={"from": first, "bytes": len(text)}))
        query = dict(part.split("=") for part in request.path.partition("?")[2].split("&"))
        at = max(int(query["offset"]), first)
        return answer(text[at:at + int(query["limit"])], headers=f"Cove-From: {at}\r\n")
    first = min(first, len(text))
    made = server(script)
    lines = text[first:].splitlines(keepends=True)
    for count in ("0", "1", "2", "150", "100000", "all"):
        result = cove("logs", "work", "1", "--tail", count, env=made.env)
        wanted = lines if count == "all" else lines[len(lines) - min(int(count), len(lines)):]
        assert (result.returncode, result.stdout, result.stderr) == (0, b"".join(wanted), b""), count


@pytest.mark.parametrize("words, path", [
    (("wait", "work"), "/processes/10/wait"), (("kill", "work"), "/processes/10"),
    (("kill", "work", "-s", "TERM"), "/processes/10/signal"), (("attach", "work"), "/processes/9/terminal")])
def test_without_a_process_the_newest_is_meant(server, words, path):
    """Of those with a terminal, for attach."""
    shown = [process(id="9", terminal={"rows": 24, "columns": 80}), process(id="10", state="running"),
             process(id="2", terminal={"rows": 24, "columns": 80})]

    def script(request):
        if request.path.endswith("/processes"):
            return answer({"processes": shown})
        if "/terminal" in request.path:
            return [UPGRADE, said(type="exit", process=process()), CUT]
        return answer(process(id="10", state="exited" if "/wait" in request.path else "running"))
    made = server(script)
    result = cove(*words, env=made.env)
    assert result.returncode == 0, result
    assert made.requests[-1].path.partition("?")[0].endswith(path)
    failed(cove(*words, env=server(lambda request: answer({"processes": []})).env), "nothing was started")


def test_logs_that_promise_more_than_they_give_end(server):
    def script(request):
        if "/output" in request.path:
            return answer(b"", headers="Cove-From: 0\r\n")
        return answer(process(stdout={"from": 0, "bytes": 1 << 62}))
    result = cove("logs", "work", "1", env=server(script).env)
    assert (result.returncode, result.stdout) == (0, b"")


@pytest.mark.parametrize("words", [["exec", "work", "--", "true"], ["logs", "work", "1", "--follow"]])
def test_output_of_which_nothing_is_kept_is_said_to_be_missing(server, words):
    """As with a full disk: no line tells of it, and what was said to be missing before is not said again."""
    def script(request):
        if "/follow" in request.path:
            lines = line(type="gap", stream="stderr", **{"from": 0, "to": 70})
            return answer(lines + end(exit_code=3, stdout={"from": 600000, "bytes": 600000}, stderr={"from": 70, "bytes": 70}))
        return answer(process(state="running", exit_code=None))
    result = cove(*words, env=server(script).env)
    assert result.stdout == b"" and (result.returncode == 3) == (words[0] == "exec"), result
    assert result.stderr.count(b"600000 bytes of the command's standard output are not kept") == 1, result
    assert result.stderr.count(b"standard error") == 1, result


def test_kill_ends_what_runs_and_forgets_nothing_that_ended(server):
    state = {"now": "running"}
    made = server(lambda request: answer(process(state=state["now"])) if request.method == "GET"
                  else answer(b"", 204))
    assert cove("kill", "work", "1", env=made.env).returncode == 0
    assert made.requests[-1].method == "DELETE"
    state["now"] = "exited"
    failed(cove("kill", "work", "1", env=made.env), "ended already")
    assert made.requests[-1].method == "GET"
    assert cove("kill", "work", "1", "-s", "hup", env=made.env).returncode == 0
    assert made.requests[-1].json() == {"signal": 1}


def test_wait_goes_on_until_the_end_and_has_its_status(server):
    states = ["running", "running", "exited"]
    made = server(lambda request: answer(process(state=states.pop(0), exit_code=9)))
    assert cove("wait", "work", "1", env=made.env).returncode == 9
    made = server(lambda request: answer(process(state="running")))
    result = cove("wait", "work", "1", "--timeout", "100ms", env=made.env)
    assert result.returncode == 124 and b"still runs" in result.stderr


def test_rm_goes_on_after_one_that_is_not_there(server):
    made = server(lambda request: problem(404, "sandbox_not_found", "none") if "name:b" in request.path
                  else answer(b"", 204))
    result = cove("rm", "a", "b", "c", env=made.env)
    assert result.returncode == 125 and len(made.requests) == 3
    assert b"cove ls" in result.stderr
    result = cove("rm", "-f", "a", "b", "c", env=made.env)
    assert (result.returncode, result.stderr) == (0, b"") and len(made.requests) == 6
    failed(cove("rm", "-f", "a", env=server(lambda request: problem(403, "forbidden", "no")).env), "no")


# ---- the private engine --------------------------------------------------------------------------

def private_env(tmp_path, mode=0o700):
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    (runtime / "cove").mkdir(mode=mode)
    os.chmod(runtime / "cove", mode)
    return {"XDG_RUNTIME_DIR": str(runtime), "XDG_DATA_HOME": str(tmp_path / "data"),
            "HOME": str(tmp_path)}


def test_a_private_engine_that_runs_is_used(tmp_path):
    env = private_env(tmp_path)
    made = Server(tmp_path / "runtime" / "cove" / "cove.sock",
                  lambda request: answer({"status": "ok"}) if request.path == "/readyz"
                  else answer({"sandboxes": [SANDBOX], "next": None}))
    assert cove("ls", "-q", env=env).stdout.decode() == ID + "\n"
    made.close()


@pytest.mark.parametrize("mode", [0o777, 0o750, 0o711])
def test_a_directory_that_others_can_use_is_no_place_for_an_engine(tmp_path, mode):
    failed(cove("ls", env=private_env(tmp_path, mode)), "not safe")


def test_a_link_is_no_place_for_an_engine(tmp_path):
    env = private_env(tmp_path)
    (tmp_path / "runtime" / "cove").rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "runtime" / "cove").symlink_to(tmp_path / "elsewhere")
    failed(cove("ls", env=env), "directory")
