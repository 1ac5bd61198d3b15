"""Tokens and signed URLs as those who hold one see them: for one sandbox, some verbs and a time."""
import http.client
import os
import stat
import subprocess
import urllib.parse

import pytest

import harness
import serving
from sandboxes import make, one_box
from terminals import Watcher

pytestmark = pytest.mark.wall


nothing_left, serve, api = serving.one_for_all(clock=True)
shared = one_box(name="shared")


def token(client, sandbox, *verbs, **more):
    answer = client.post(f"{sandbox}/tokens", {"verbs": verbs, **more})
    assert answer.status == 201, answer
    assert answer.headers["Cache-Control"] == "no-store"
    return answer.json


def forbidden(client, *requests):
    for method, path, *body in requests:
        assert client.ask(method, path, *body).code == "forbidden", (method, path, *body)


def test_a_token_does_what_it_says_and_no_more(serve, api, shared):
    made = token(api, shared, "look", "exec")
    assert made["verbs"] == ["look", "exec"] and made["id"].startswith("token:")
    with serve.tcp(made["token"]) as holder:
        assert holder.get(shared).json["id"] == made["sandbox"]
        assert holder.get("/v1/sandboxes/name:shared").status == 200
        answer = holder.post(f"{shared}/exec", {"command": "echo hello"})
        assert answer.status == 200 and answer.json["stdout"] == "hello\n"
        pid = answer.json["process"]["id"]
        assert holder.get(f"{shared}/processes/{pid}/output").status == 200
        assert holder.delete(f"{shared}/processes/{pid}").status == 204
        forbidden(holder, ("POST", f"{shared}/stop"), ("DELETE", shared), ("PATCH", shared, {"labels": {}}),
                  ("GET", "/v1/sandboxes"), ("POST", "/v1/sandboxes", {}), ("GET", "/v1/events"), ("GET", "/v1/keys"),
                  ("GET", "/v1/roots"), ("POST", f"{shared}/tokens", {"verbs": ["look"]}),
                  ("POST", f"{shared}/urls", {"method": "GET", "path": "/a"}), ("DELETE", f"{shared}/tokens"),
                  ("POST", "/v1/keys", {"label": "a", "scopes": ["read"]}))


def test_a_token_that_may_look_runs_nothing(serve, api, shared):
    with serve.tcp(token(api, shared, "look")["token"]) as holder:
        assert holder.get(f"{shared}/processes").status == 200
        forbidden(holder, ("POST", f"{shared}/exec", {"command": "true"}), ("POST", f"{shared}/processes", {"command": "true"}),
                  ("POST", f"{shared}/processes/1/signal", {"signal": "TERM"}), ("POST", f"{shared}/processes/1/stdin", b"x"))


def test_who_may_run_commands_may_not_start_the_sandbox_by_one(serve, api):
    path = make(api)
    assert api.post(f"{path}/stop").status == 200
    with serve.tcp(token(api, path, "exec")["token"]) as holder:
        assert holder.post(f"{path}/exec", {"command": "true", "start": True}).code == "forbidden"
        assert holder.post(f"{path}/exec", {"command": "true"}).code == "sandbox_stopped"
    with serve.tcp(token(api, path, "exec", "life")["token"]) as holder:
        assert holder.post(f"{path}/exec", {"command": "true", "start": True}).status == 200
    assert api.delete(path).status == 204


def test_another_sandbox_is_not_there(serve, api, shared):
    other = make(api, name="other")
    said = api.post(f"{other}/exec", {"command": "echo secret"},
                    headers={"Idempotency-Key": "of-the-other"})
    assert said.status == 200
    with serve.tcp(token(api, shared, "look", "exec", "life")["token"]) as holder:
        for path in (other, "/v1/sandboxes/name:other", "/v1/sandboxes/c0nothing"):
            assert holder.get(path).code == "sandbox_not_found"
            assert holder.get(f"{path}/processes").code == "sandbox_not_found"
            assert holder.post(f"{path}/stop").code == "sandbox_not_found"
        again = holder.post(f"{other}/exec", {"command": "echo secret"},
                            headers={"Idempotency-Key": "of-the-other"})
        assert again.code == "sandbox_not_found", "an answer that was kept is not given away"
    assert api.delete(other).status == 204


def test_tokens_end_with_time_revocation_key_and_sandbox(serve, api):
    path = make(api)
    key = api.post("/v1/keys", {"label": "maker", "scopes": ["read", "write"]}).json
    with serve.tcp(key["secret"]) as maker:
        of_key = token(maker, path, "look")["token"]
    brief = token(api, path, "look", expires_in_ms=1)["token"]
    one, two = (token(api, path, "look")["token"] for _ in range(2))

    def is_good(secret):
        with serve.tcp(secret) as holder:
            answer = holder.get(path)
        return answer.status == 200 or answer.code != "bad_key"

    harness.wait_for(lambda: not is_good(brief), 5 * harness.PATIENCE, "the end of its time")
    assert is_good(of_key) and is_good(one) and is_good(two)
    assert api.delete(f"/v1/keys/{key['id']}").status == 204
    assert not is_good(of_key) and is_good(one)
    assert api.delete(f"{path}/tokens").status == 204
    assert not is_good(one) and not is_good(two)
    three = token(api, path, "look")["token"]
    assert is_good(three)
    serve.kill_engine()
    assert is_good(three) and not is_good(one), "a restart changes nothing"
    api.close()
    assert api.delete(path).status == 204
    assert not is_good(three)


def rest_of(lines):
    """The types of what comes until the stream ends or is cut."""
    seen = []
    try:
        for line in lines:
            seen.append(line["type"])
    except (http.client.IncompleteRead, ConnectionError):
        seen.append("cut")
    return seen


TOKEN_S = 600


@pytest.mark.parametrize("how", ["time", "revocation", "key"])
def test_what_a_token_opened_ends_with_it(serve, api, shared, how):
    key = api.post("/v1/keys", {"label": "maker", "scopes": ["read", "write"]}).json
    command = {"command": "echo begun; exec sleep 1000"}
    quiet = api.post(f"{shared}/processes", command).json["id"]
    screen = api.post(f"{shared}/processes",
                      {**command, "terminal": {"rows": 24, "columns": 80}}).json["id"]
    with serve.tcp(key["secret"]) as maker:
        more = {"expires_in_ms": TOKEN_S * 1000} if how == "time" else {}
        made = token(maker, shared, "look", "exec", **more)["token"]
    header = [f"Authorization: Bearer {made}"]
    with serve.tcp(made, timeout=60 * harness.PATIENCE) as holder, \
            serve.tcp(key["secret"], timeout=60 * harness.PATIENCE) as maker, \
            Watcher(serve, shared.rsplit("/", 1)[1], screen, header) as watcher:
        watcher.sees("begun")
        watcher.type("kept back?")
        lines = serving.Lines(holder, f"{shared}/processes/{quiet}/follow")
        assert next(lines)["data"] == "begun\n"
        own = serving.Lines(maker, f"{shared}/processes/{quiet}/follow")
        if how == "revocation":
            assert api.delete(f"{shared}/tokens").status == 204
        elif how == "key":
            assert api.delete(f"/v1/keys/{key['id']}").status == 204
        else:
            serve.clock.advance(TOKEN_S)
        while watcher.closed is None:
            watcher.step()
        assert watcher.closed == 1008
        assert "exit" not in rest_of(lines)
        if how == "key":
            assert "exit" not in rest_of(own)
        else:
            assert api.post(f"{shared}/processes/{quiet}/signal", {"signal": "KILL"}).status == 204
            assert "exit" in rest_of(own), "the key itself has not ended"
    for process in (quiet, screen):
        api.post(f"{shared}/processes/{process}/signal", {"signal": "KILL"})


@pytest.mark.parametrize("options", [[], ["-t"]])
def test_a_command_that_cove_exec_shows_ends_with_the_key(serve, api, shared, options):
    key = api.post("/v1/keys", {"label": "leaver", "scopes": ["read", "write"]}).json
    env = {**os.environ, "COVE_URL": f"http://127.0.0.1:{serve.port}", "COVE_API_KEY": key["secret"]}
    words = ["exec", *options, "--tag", "shown", shared.rsplit("/", 1)[1], "--", "sh", "-c", "echo begun; exec sleep 1000"]
    background = api.post(f"{shared}/processes", {"command": "exec sleep 1000"}).json["id"]
    with serve.tcp(key["secret"]) as leaver:
        lines = serving.Lines(leaver, f"{shared}/processes/{background}/follow")
        with subprocess.Popen([harness.COVE, *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as shown:
            assert shown.stdout.readline().strip() == b"begun"
            assert api.delete(f"/v1/keys/{key['id']}").status == 204
            assert shown.wait() == 125 and (options or b"key" in shown.stderr.read())
        assert "exit" not in rest_of(lines)

    def signals():
        return {each["signal"] for each in api.get(f"{shared}/processes").json["processes"] if each["tag"] == "shown"}
    # A client on a terminal may hear of its key before the command is reaped.
    harness.wait_for(lambda: signals() == {"SIGKILL"}, what="the end of what was shown")
    assert api.get(f"{shared}/processes/{background}").json["state"] == "running", "that was to run in the background"
    assert api.delete(f"{shared}/processes/{background}").status == 204


def test_a_key_that_reads_ends_no_process_by_its_own_end(serve, api, shared):
    process = api.post(f"{shared}/processes", {"command": "exec sleep 1000"}).json["id"]
    key = api.post("/v1/keys", {"label": "reader", "scopes": ["read"]}).json
    with serve.tcp(key["secret"]) as reader:
        for ends in ("ends_with_key", "ends_with_client"):
            refused = reader.get(f"{shared}/processes/{process}/follow", query={ends: "true"})
            assert refused.refusal == (403, "forbidden")
    assert api.delete(f"/v1/keys/{key['id']}").status == 204
    assert api.delete(f"{shared}/processes/{process}").status == 204


def test_nobody_lends_what_he_has_not(serve, api, shared):
    key = api.post("/v1/keys", {"label": "reader", "scopes": ["read"]}).json
    with serve.tcp(key["secret"]) as reader:
        assert token(reader, shared, "look", "files_read")
        for verb in ("exec", "files_write", "ports", "life"):
            assert reader.post(f"{shared}/tokens", {"verbs": [verb]}).code == "forbidden"
        assert reader.post(f"{shared}/urls", {"method": "PUT", "path": "/a"}).code == "forbidden"
    assert api.delete(f"/v1/keys/{key['id']}").status == 204


@pytest.mark.parametrize("body", [
    {}, {"verbs": []}, {"verbs": ["operator"]}, {"verbs": ["look"], "port": 0},
    {"verbs": ["look"], "expires_in_ms": 31 * 86400000}, {"verbs": ["look"], "path": "a"},
    {"verbs": ["look"], "path": "/a/../b"}, {"verbs": ["look"], "more": 1}])
def test_a_wrong_wish_is_refused(api, shared, body):
    assert api.post(f"{shared}/tokens", body).code == "bad_request"


def test_a_forged_token_is_refused(serve, api, shared):
    made = token(api, shared, "look")["token"]
    for wrong in (made[:-1], made + "A", made.replace("covetok_", "covetok_A"),
                  made[:40] + ("A" if made[40] != "A" else "B") + made[41:], "covetok_"):
        with serve.tcp(wrong) as holder:
            assert holder.get(shared).code == "bad_key"


def test_the_key_of_all_tokens_is_for_the_engine_alone(serve):
    mode = (serve.data / "engine" / "token.key").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600 and (mode & stat.S_IFREG) != 0


# ---- in URLs -----------------------------------------------------------------------------------

def test_a_token_stands_in_no_url_but_of_files_and_terminals(serve, api, shared):
    made = token(api, shared, "look", "files_read")["token"]
    with serve.tcp() as anybody:
        assert anybody.get(shared, query={"token": made}).code == "bad_key"
        assert anybody.get("/v1/sandboxes", query={"token": made}).code == "bad_key"
    assert api.get(shared, query={"token": made}).code == "bad_request"


def test_a_signed_url_is_absolute_where_the_host_is_known(serve, api, shared):
    made = api.post(f"{shared}/urls", {"method": "GET", "path": "/tmp/a b"})
    assert made.status == 201
    url = urllib.parse.urlsplit(made.json["url"])
    assert url.scheme == "" and url.path == f"{shared}/files"
    query = urllib.parse.parse_qs(url.query)
    assert query["path"] == ["/tmp/a b"] and query["token"][0].startswith("covetok_")
    with serve.tcp(serve.key) as client:
        made = client.post(f"{shared}/urls", {"method": "PUT", "path": "/tmp/a"})
        assert made.json["url"].startswith(f"http://127.0.0.1:{serve.port}{shared}/files?path=/tmp/a&")


def test_a_signed_url_is_no_token_for_anything_else(serve, api, shared):
    url = api.post(f"{shared}/urls", {"method": "GET", "path": "/tmp/a"}).json["url"]
    secret = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)["token"][0]
    with serve.tcp(secret) as holder:
        forbidden(holder, ("GET", shared), ("GET", f"{shared}/processes"), ("POST", f"{shared}/exec"),
                  ("PUT", f"{shared}/files?path=/tmp/a"), ("GET", f"{shared}/files?path=/tmp/b"),
                  ("GET", f"{shared}/files?path=/tmp/a&user=root"))


def url_of(client, path, method, file, **more):
    made = client.post(f"{path}/urls", {"method": method, "path": file, **more})
    assert made.status == 201, made
    return made.json["url"]


def test_a_signed_url_reads_or_writes_its_file_and_no_other(serve, api, shared):
    with serve.tcp(serve.key) as client:
        put = url_of(client, shared, "PUT", "/tmp/a file").partition(f":{serve.port}")[2]
        get = url_of(client, shared, "GET", "/tmp/a file").partition(f":{serve.port}")[2]
    with serve.tcp() as anybody:
        assert anybody.ask("PUT", put, b"hello").status in (200, 201)
        answer = anybody.get(get)
        assert answer.status == 200 and answer.bytes == b"hello"
        assert anybody.ask("HEAD", get).status == 200
        assert anybody.get(get, headers={"Range": "bytes=1-2"}).bytes == b"el"
        forbidden(anybody, ("GET", put), ("PUT", get, b"other"), ("GET", get.replace("a%20file", "b")),
                  ("GET", get + "&user=root"), ("PUT", put + "&mode=0777", b"x"))
        assert anybody.get(get[:-1]).code == "bad_key"
    assert api.post(f"{shared}/exec", {"command": "cat '/tmp/a file'"}).json["stdout"] == "hello"


def test_a_link_in_a_signed_files_place_leads_nowhere(serve, api, shared):
    run = {"command": "mkdir -p /tmp/in /tmp/out; echo secret >/tmp/out/s; ln -sf ../out/s /tmp/in/l"}
    assert api.post(f"{shared}/exec", run).json["process"]["exit_code"] == 0
    with serve.tcp(serve.key) as client:
        url = url_of(client, shared, "GET", "/tmp/in/l").partition(f":{serve.port}")[2]
    with serve.tcp() as anybody:
        answer = anybody.get(url)
        assert answer.status >= 400 and b"secret" not in answer.bytes


def test_a_key_in_a_url_is_refused(serve, shared):
    with serve.tcp() as anybody:
        answer = anybody.get(f"{shared}/files", query={"path": "/etc/passwd", "token": serve.key})
        assert answer.code == "bad_key"


def test_a_token_of_files_holds_to_its_verb_and_its_path(serve, api, shared):
    run = {"command": "mkdir -p /tmp/mine /tmp/other; echo mine >/tmp/mine/a; echo no >/tmp/other/a;"
                      " ln -sf ../other/a /tmp/mine/l; ln -sf /tmp/other /tmp/mine/d"}
    assert api.post(f"{shared}/exec", run).json["process"]["exit_code"] == 0
    reads = token(api, shared, "files_read", path="/tmp/mine")["token"]

    def read(client, path, **more):
        return client.get(f"{shared}/files", query={"path": path, **more})

    with serve.tcp(reads) as holder:
        assert read(holder, "/tmp/mine/a").bytes == b"mine\n"
        for path in ("/tmp/other/a", "/tmp/mine/l", "/tmp/mine/d/a", "/tmp/mine/../other/a",
                     "/etc/passwd", "/tmp"):
            answer = read(holder, path)
            assert answer.status >= 400 and b"no\n" not in answer.bytes, (path, answer)
        assert holder.ask("PUT", f"{shared}/files", b"x",
                          query={"path": "/tmp/mine/b"}).code == "forbidden"
        assert holder.get(shared).code == "forbidden", "it may not look"
    with serve.tcp() as anybody:
        assert read(anybody, "/tmp/mine/a", token=reads).bytes == b"mine\n"
    with serve.tcp(token(api, shared, "files_write", path="/tmp/mine")["token"]) as holder:
        assert holder.ask("PUT", f"{shared}/files", b"new",
                          query={"path": "/tmp/mine/b"}).status in (200, 201)
        for path in ("/tmp/other/b", "/tmp/mine/d/b", "/tmp/mine/l"):
            answer = holder.ask("PUT", f"{shared}/files", b"x", query={"path": path})
            if path != "/tmp/mine/l":  # a rename replaces the link itself
                assert answer.status >= 400, path
        assert read(holder, "/tmp/mine/a").code == "forbidden"
    said = api.post(f"{shared}/exec", {"command": "cat /tmp/other/*; ls /tmp/other"}).json["stdout"]
    assert said == "no\na\n"


def test_a_token_gets_no_answer_that_was_given_to_another_caller(serve, api, shared):
    repeated = {"Idempotency-Key": "of-the-first"}
    body = {"path": "/etc/passwd"}
    assert api.ask("POST", f"{shared}/files/stat", body, repeated).status == 200
    assert api.ask("POST", f"{shared}/files/stat", body, repeated).headers["Idempotent-Replayed"] == "true"
    token = api.post(f"{shared}/tokens", {"verbs": ["files_read"], "path": "/tmp/x"}).json["token"]
    with serve.tcp(token) as bound:
        assert bound.ask("POST", f"{shared}/files/stat", body, repeated).refusal == (409, "idempotency_conflict")


def test_code_in_the_box_moves_no_bound(serve, api):
    """What a token or a URL is bound to becomes a link to elsewhere, once it was made."""
    box = make(api, privileges="system", disk_kind="ephemeral")

    def run(command):
        said = api.post(f"{box}/exec", {"command": command}).json
        assert said["process"]["exit_code"] == 0, said
        return said["stdout"]

    run("mkdir -p /tmp/work/in/deep /tmp/out/deep; for at in work/in work/in/deep out out/deep; do "
        "echo of $at >/tmp/$at/file; done")
    holder = token(api, box, "files_read", "files_write", path="/tmp/work/in/deep")["token"]
    with serve.tcp(serve.key) as client:
        get, put = (url_of(client, box, method, "/tmp/work/in/file").partition(f":{serve.port}")[2]
                    for method in ("GET", "PUT"))
    with serve.tcp() as anybody, serve.tcp(holder) as bound:
        deep = {"path": "/tmp/work/in/deep/file"}
        assert anybody.get(get).bytes == b"of work/in\n"
        assert bound.get(f"{box}/files", query=deep).bytes == b"of work/in/deep\n"
        run("mv /tmp/work/in /tmp/was; ln -s /tmp/out /tmp/work/in")
        before = run("find /tmp/out -ls; cat /tmp/out/file /tmp/out/deep/file")
        for ask in (lambda: anybody.get(get), lambda: anybody.ask("PUT", put, b"evil"),
                    lambda: bound.get(f"{box}/files", query=deep),
                    lambda: bound.ask("PUT", f"{box}/files", b"evil", query=deep),
                    lambda: bound.get(f"{box}/files/list", query={"path": "/tmp/work/in/deep"}),
                    lambda: bound.post(f"{box}/files/remove", deep),
                    lambda: bound.get(f"{box}/tar", query={"path": "/tmp/work/in/deep"}),
                    lambda: bound.post(f"{box}/files/find", {"path": "/tmp/work/in/deep"}),
                    lambda: bound.post(f"{box}/files/grep", {"path": "/tmp/work/in/deep",
                                                             "pattern": "of"})):
            answer = ask()
            assert answer.status == 403 and answer.code == "file_forbidden", answer
            assert b"of out" not in answer.bytes
        assert run("find /tmp/out -ls; cat /tmp/out/file /tmp/out/deep/file") == before
        run("rm /tmp/work/in; mv /tmp/was /tmp/work/in")
        assert anybody.get(get).bytes == b"of work/in\n"
    assert api.delete(box).status == 204


def test_no_token_is_in_the_log(serve, api, shared):
    made = token(api, shared, "look")["token"]
    with serve.tcp(made) as holder:
        assert holder.get(shared).status == 200
    with serve.tcp(made[:-2]) as holder:
        assert holder.get(shared).code == "bad_key"
    assert "covetok_" not in serve.said()
