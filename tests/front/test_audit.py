"""The audit log: a line for every call, by whom, and what came of it; never a secret, never in the way."""
import contextlib
import json
import re
import socket
import time

import pytest

import harness
import serving
from sandboxes import make, new_key
from terminals import Watcher

BEGUN = {"time", "request_id", "tenant", "key", "peer", "method", "route", "sandbox", "kernel", "target",
         "phase"}
FIELDS = {"time", "request_id", "tenant", "key", "peer", "method", "route", "sandbox", "kernel", "target",
          "status", "code", "duration_ms"}


nothing_left, serve, api = serving.one_for_all()


def directory(serve):
    return serve.data / "engine" / "audit"


def files(serve):
    return sorted(directory(serve).iterdir())


def lines(serve):
    """All of them; none is torn but perhaps the one that is being written."""
    while True:
        with contextlib.suppress(FileNotFoundError):  # one has another name by now: from the beginning
            return [json.loads(line) for path in files(serve) if path.is_file()
                    for line in path.read_text(encoding="utf-8").split("\n")[:-1] if line]


def line_of(serve, request_id):
    found = harness.wait_for(
        lambda: [line for line in lines(serve)
                 if line.get("request_id") == request_id and "phase" not in line],
        30 * harness.PATIENCE, f"the line of {request_id}")
    assert len(found) == 1
    return found[0]


def noted(serve, answer):
    return line_of(serve, answer.headers["Cove-Request-Id"])


def test_every_call_has_its_line(serve, api):
    answer = api.post("/v1/sandboxes", {"privileges": "plain", "disk_kind": "ephemeral"})
    path, box = answer.headers["Location"], answer.json["id"]
    line = noted(serve, answer)
    assert set(line) == FIELDS
    assert (line["method"], line["route"], line["sandbox"], line["status"]) == (
        "POST", "/v1/sandboxes", box, 201)
    assert line["tenant"] == "default" and line["key"] == "socket" and line["code"] is None
    assert re.fullmatch(r"unix:[0-9]+", line["peer"]) and line["duration_ms"] > 0
    line = noted(serve, api.post(f"{path}/exec", {"command": "true"}))
    assert line["route"] == "/v1/sandboxes/{id}/exec" and line["sandbox"] == box
    line = noted(serve, api.post(f"{path}/exec", {"command": "true", "what": 1}))
    assert line["status"] == 400 and line["code"] == "bad_request"
    assert noted(serve, api.delete(path))["status"] == 204
    assert noted(serve, api.get("/v1/sandboxes"))["route"] == "/v1/sandboxes"


def test_a_line_has_the_sandboxs_id_whatever_it_was_called_by(serve, api):
    box = api.post("/v1/sandboxes", {"name": "called", "disk_kind": "ephemeral"}).json["id"]
    key = api.post("/v1/keys", {"label": "b", "tenant": "other", "scopes": ["read", "write"]}).json
    with serve.tcp(key["secret"]) as other:
        theirs = other.post("/v1/sandboxes", {"name": "called", "disk_kind": "ephemeral"}).json["id"]
        for client, its in ((api, box), (other, theirs)):
            assert noted(serve, client.post("/v1/sandboxes/name:called/exec", {"command": "true"}))["sandbox"] == its
            assert noted(serve, client.get("/v1/sandboxes/name:called"))["sandbox"] == its
            assert noted(serve, client.delete("/v1/sandboxes/name:called"))["sandbox"] == its
        assert noted(serve, other.get("/v1/sandboxes/name:called"))["sandbox"] == "name:called"
    assert api.delete(f"/v1/keys/{key['id']}").status == 204


def test_a_line_says_whose_quota_and_which_key(serve, api):
    answer = api.post("/v1/keys", {"label": "c", "tenant": "other", "scopes": ["read"]})
    key = answer.json["id"]
    assert noted(serve, answer)["target"] == f"other/{key}"
    assert noted(serve, api.ask("PUT", "/v1/tenants/other/quota", {"cpus": 1}))["target"] == "other"
    assert noted(serve, api.get("/v1/tenants/other/quota"))["target"] == "other"
    assert noted(serve, api.delete(f"/v1/keys/{key}"))["target"] == f"other/{key}"
    assert noted(serve, api.delete(f"/v1/keys/{key}"))["target"] is None
    assert api.ask("PUT", "/v1/tenants/other/quota", {}).status == 200


def test_refused_calls_have_theirs(serve, api):
    with serve.tcp() as nobody:
        line = noted(serve, nobody.get("/v1/sandboxes"))
    assert line["status"] == 401 and line["code"] == "bad_key" and line["tenant"] is None
    assert line["peer"] == "127.0.0.1"
    line = noted(serve, api.get("/v1/nothing"))
    assert line["status"] == 404 and line["route"] is None
    line = noted(serve, api.get("/v1/sandboxes/c0nothing"))
    assert line["code"] == "sandbox_not_found" and line["sandbox"] == "c0nothing"


def test_a_key_is_shown_by_its_id(serve, api):
    made = api.post("/v1/keys", {"label": "a", "scopes": ["read"]}).json
    with serve.tcp(made["secret"]) as reader:
        assert noted(serve, reader.get("/v1/sandboxes"))["key"] == made["id"]
    assert api.delete(f"/v1/keys/{made['id']}").status == 204


def test_no_secret_and_no_body_is_in_it(serve, api):
    path = make(api, env={"PASSWORD": "hunter2-env"})
    token = api.post(f"{path}/tokens", {"verbs": ["look", "files_read"]}).json
    with serve.tcp(token["token"]) as holder:
        line = noted(serve, holder.get(path))
        assert line["key"] == token["id"] and line["sandbox"] == token["sandbox"]
        holder.get(f"{path}/files", query={"path": "/hunter2-path", "token": token["token"]})
    with serve.tcp("hunter2-key") as wrong:
        wrong.get("/v1/sandboxes/hunter2")
    last = api.post(f"{path}/exec", {"command": "cat", "stdin": "hunter2-stdin"},
                    headers={"Idempotency-Key": "hunter2-idempotency"})
    noted(serve, last)
    assert api.delete(path).status == 204
    text = "".join(file.read_text() for file in files(serve))
    assert serve.key not in text and "covetok_" not in text
    for secret in ("env", "path", "key", "stdin", "idempotency"):
        assert f"hunter2-{secret}" not in text


def test_it_is_for_the_engine_alone(serve):
    assert (directory(serve).stat().st_mode & 0o777) == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files(serve))


def test_a_flood_of_refusals_is_counted_and_not_written(serve):
    """Of each second a few have their line, however many seconds a slow machine takes for all of them."""
    before, begun = len(lines(serve)), time.monotonic()
    with serve.tcp("wrong") as nobody:
        for _ in range(1500):
            assert nobody.get("/v1/sandboxes").status == 401
    may = 10 * (time.monotonic() - begun + 2)

    def counted():
        with serve.tcp("wrong") as nobody:
            nobody.get("/v1/sandboxes")
        new = lines(serve)[before:]
        written = [line for line in new if line.get("status") == 401]
        return len(written) + sum(line.get("left_out", 0) for line in new) >= 1500

    with serve.tcp("wrong") as nobody:
        nobody.get("/v1/sandboxes")
    assert len([line for line in lines(serve)[before:] if line.get("status") == 401]) <= may
    harness.wait_for(counted, 30 * harness.PATIENCE, "the line that counts")


def ask_much(serve, count, path, status, key=None):
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    asked = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}\r\n".encode() * 100
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as client:
        client.connect(str(serve.socket))
        for _ in range(count // 100):
            client.sendall(asked)
            answered = b""
            while answered.count(b"HTTP/1.1 %d" % status) < 100:
                answered += client.recv(1 << 20)


@pytest.mark.wall
def test_refusals_of_a_tenant_hide_none_of_another(serve, api):
    loud, other = (new_key(api, tenant=f"refused-{name}")["secret"] for name in ("a", "b"))
    with serve.tcp(other) as quiet:
        for _ in range(4):
            ask_much(serve, 300, "/v1/sandboxes/none", 404, loud)
            answer = quiet.get("/v1/sandboxes/none")
            assert answer.status == 404
            noted(serve, answer)


def test_a_key_that_reads_much_has_its_share(serve, api):
    count, begun = 4000, time.monotonic()
    before = len(lines(serve))
    ask_much(serve, count, "/v1/kernels", 200)
    may = 1000 * (time.monotonic() - begun + 2)
    written = 0

    def counted():
        nonlocal written
        api.get("/v1/roots")
        new = lines(serve)[before:]
        written = sum(line.get("route") == "/v1/kernels" for line in new)
        return written + sum(line.get("left_out", 0) for line in new) >= count

    harness.wait_for(counted, 30 * harness.PATIENCE, "the line that counts")
    assert written <= may


def test_what_anybody_may_ask_has_no_line(serve, api):
    ids = set()
    with serve.tcp("wrong") as nobody:
        for path in ("/healthz", "/readyz", "/v1/version", "/v1/openapi.yaml"):
            ids.add(nobody.get(path).headers["Cove-Request-Id"])
    noted(serve, api.get("/v1/sandboxes"))
    assert not ids & {line.get("request_id") for line in lines(serve)}


def test_files_are_rotated_and_the_oldest_go(tmp_path):
    with serving.Serve(tmp_path, "[boxes]\npool = 0\n[audit]\nsize = 64K\nkeep = 3\n") as serve:
        with serve.client() as client:
            for _ in range(1500):
                client.get("/v1/sandboxes")
            time.sleep(1)  # for another second's share
            last = client.get("/v1/sandboxes")
        noted(serve, last)
        names = [path.name for path in files(serve)]
        assert names == ["audit.ndjson", "audit.ndjson.1", "audit.ndjson.2"]
        assert all(path.stat().st_size <= 65536 for path in files(serve))
        times = [line["time"] for index in (2, 1) for line in map(
            json.loads, (directory(serve) / f"audit.ndjson.{index}").read_text().splitlines())]
        assert times == sorted(times)


def test_files_that_were_kept_before_and_are_too_many_go(tmp_path):
    with serving.Serve(tmp_path, "[boxes]\npool = 0\n[audit]\nkeep = 3\n") as serve:
        for name in ("audit.ndjson.2", "audit.ndjson.3", "audit.ndjson.17", "audit.ndjson.old"):
            (directory(serve) / name).write_text("{}\n")
        serve.kill_engine()
        harness.wait_for(lambda: not (directory(serve) / "audit.ndjson.3").exists(),
                         30 * harness.PATIENCE, "the new engine to remove them")
        names = {path.name for path in files(serve)}
        assert {"audit.ndjson.2", "audit.ndjson.old"} <= names and "audit.ndjson.17" not in names


def test_a_drain_writes_what_was_gathered(tmp_path):
    with serving.Serve(tmp_path, "[boxes]\npool = 0\n") as serve:
        with serve.client() as client:
            ids = [client.get("/v1/sandboxes").headers["Cove-Request-Id"] for _ in range(20)]
    assert set(ids) <= {line["request_id"] for line in lines(serve)}


def test_what_cannot_be_written_is_counted_and_calls_go_on(tmp_path):
    with serving.Serve(tmp_path, "[boxes]\npool = 0\n") as serve:
        current = directory(serve) / "audit.ndjson"
        with serve.client() as client:
            client.get("/v1/sandboxes")
        harness.wait_for(current.exists, 30 * harness.PATIENCE, "the first line")
        current.rename(directory(serve) / "before")
        current.mkdir()
        serve.kill_engine()
        with serve.client() as client:
            for _ in range(20):
                assert client.get("/v1/sandboxes").status == 200
        harness.wait_for(lambda: "audit_failed" in serve.said(), 30 * harness.PATIENCE, "the log")
        current.rmdir()

        def told():
            with serve.client() as client:
                client.get("/v1/sandboxes")
            return current.exists() and [
                line for line in map(json.loads, current.read_text().splitlines()) if "lost" in line]

        assert harness.wait_for(told, 30 * harness.PATIENCE, "the count")[0]["lost"] >= 1


def test_without_one_there_is_none(tmp_path):
    with serving.Serve(tmp_path, "[boxes]\npool = 0\n[audit]\nlog = no\n") as serve:
        with serve.client() as client:
            assert client.get("/v1/version").headers["Cove-Request-Id"]
        assert not directory(serve).exists()


# ---- what stays --------------------------------------------------------------------------------

def begun(serve, route, of=None):
    """The lines with which requests of that route began; `of` one sandbox."""
    return [line for line in lines(serve) if line.get("phase") == "begun" and
            line["route"] == "/v1/" + route and of in (None, line["sandbox"])]


def wait_begun(serve, route, of, count=1):
    found = harness.wait_for(
        lambda: (found := begun(serve, route, of)) and len(found) >= count and found,
        20 * harness.PATIENCE, f"{count} begun of {route}")
    assert len(found) == count
    for line in found:
        assert set(line) == BEGUN and line["tenant"] == "default", line
    return found


def over(serve, request_id):
    return [line for line in lines(serve)
            if line.get("request_id") == request_id and "phase" not in line]


@pytest.fixture
def box(api):
    path = make(api)
    yield path.rsplit("/", 1)[1]
    assert api.delete(path).status in (204, 404)


TERMINAL = "sandboxes/{id}/processes/{pid}/terminal"
FOLLOW = "sandboxes/{id}/processes/{pid}/follow"


def start(client, box, **more):
    answer = client.post(f"/v1/sandboxes/{box}/processes", {"command": "sleep 1000", **more})
    assert answer.status == 201, answer
    return answer.json["id"]


def test_what_is_under_way_when_the_engine_is_killed_is_not_lost(tmp_path):
    with serving.Serve(tmp_path, "[boxes]\npool = 0\n") as serve:
        with serve.client() as client:
            path = make(client)
            box = path.rsplit("/", 1)[1]
            process = start(client, box, terminal={"rows": 24, "columns": 80})
            watcher = Watcher(serve, box, process)
            follower = serve.client()
            follower.send("GET", f"{path}/processes/{process}/follow")
            assert follower.connection.getresponse().status == 200
            asking = serve.client()
            asking.send("POST", f"{path}/exec", {"command": "sleep 1000"})
            ids = [wait_begun(serve, route, box)[0]["request_id"]
                   for route in (TERMINAL, FOLLOW, "sandboxes/{id}/exec")]
        serve.kill_engine()
        with serve.client() as client:
            noted(serve, client.get(path))
            assert not any(over(serve, request_id) for request_id in ids)
            assert client.delete(path).status == 204
        watcher.socket.close()
        for client in (follower, asking):
            client.close()


def test_terminals_and_streams_have_a_line_at_either_end(serve, api, box):
    process = start(api, box, terminal={"rows": 24, "columns": 80})
    watcher = Watcher(serve, box, process)
    line = wait_begun(serve, TERMINAL, box)[0]
    assert not over(serve, line["request_id"])
    watcher.close()
    line = line_of(serve, line["request_id"])
    assert line["status"] == 101 and line["sandbox"] == box and line["method"] == "GET"
    with serve.client() as follower:
        follower.send("GET", f"/v1/sandboxes/{box}/processes/{process}/follow")
        assert follower.connection.getresponse().status == 200
        line = wait_begun(serve, FOLLOW, box)[0]
    assert line_of(serve, line["request_id"])["status"] == 200
    with serve.client() as watching:
        watching.send("GET", f"/v1/sandboxes/{box}/files/watch", query={"path": "/tmp"})
        assert watching.connection.getresponse().status == 200
        line = wait_begun(serve, "sandboxes/{id}/files/watch", box)[0]
    assert line_of(serve, line["request_id"])["status"] == 200


def test_of_transfers_the_large_have_two_lines_and_the_small_one(serve, api, box):
    route, path = "sandboxes/{id}/files", f"/v1/sandboxes/{box}/files"
    large, lasting = set(), set()
    for size, is_large in ((1000, False), (3 << 20, True)):
        put = api.ask("PUT", path, bytes(size), query={"path": "/tmp/file"})
        assert put.status == 200
        wrote = noted(serve, put)
        assert (wrote["method"], wrote["route"], wrote["status"], wrote["sandbox"]) == (
            "PUT", "/v1/" + route, 200, box)
        got = api.get(path, query={"path": "/tmp/file"})
        assert len(got.bytes) == size
        read = noted(serve, got)
        assert read["method"] == "GET"
        large |= {line["request_id"] for line in (wrote, read) if is_large}
        # What lasts a second, on a machine that stands still, may have them, too.
        lasting |= {line["request_id"] for line in (wrote, read) if line["duration_ms"] > 900}
        found = [line["request_id"] for line in begun(serve, route, box)]
        assert len(found) == len(set(found)) and large <= set(found) <= large | lasting
    for answer, status in ((api.post(f"{path}/mkdir", {"path": "/tmp/new"}), 200),
                           (api.get(f"{path}/stat", query={"path": "/tmp/new"}), 200),
                           (api.get(f"{path}/list", query={"path": "/tmp"}), 200),
                           (api.get(f"{path}/stat", query={"path": "/tmp/no"}), 404)):
        assert answer.status == status, answer
        line = noted(serve, answer)
        assert line["status"] == status and line["route"].startswith("/v1/" + route + "/")
        assert line["sandbox"] == box and line["code"] == (None if status == 200 else answer.code)
    assert {line["request_id"] for line in begun(serve, route, box)} <= large | lasting
