"""Tokens and signed URLs as those who hold one see them: for one sandbox, some verbs and a time."""
import pathlib
import stat
import sys
import urllib.parse

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "box"))
sys.path.insert(0, str(HERE))
import harness  # noqa: E402
import serving  # noqa: E402
from test_api import make  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_left():
    """One engine serves all tests of this file, so it is after the last that nothing may be left."""


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    with serving.Serve(tmp_path_factory.mktemp("serve")) as started:
        yield started


@pytest.fixture
def api(serve):
    with serve.client() as client:
        yield client


@pytest.fixture(scope="module")
def shared(serve):
    with serve.client() as client:
        path = make(client, name="shared")
    yield path
    with serve.client() as client:
        assert client.delete(path).status == 204


def token(client, path, *verbs, **more):
    answer = client.post(f"{path}/tokens", {"verbs": verbs, **more})
    assert answer.status == 201, answer
    assert answer.headers["Cache-Control"] == "no-store"
    return answer.json


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
        assert holder.post(f"{shared}/stop").code == "forbidden"
        assert holder.delete(shared).code == "forbidden"
        assert holder.ask("PATCH", shared, {"labels": {}}).code == "forbidden"
        assert holder.get("/v1/sandboxes").code == "forbidden"
        assert holder.post("/v1/sandboxes", {}).code == "forbidden"
        assert holder.get("/v1/events").code == "forbidden"
        assert holder.get("/v1/keys").code == "forbidden"
        assert holder.get("/v1/roots").code == "forbidden"
        assert holder.post(f"{shared}/tokens", {"verbs": ["look"]}).code == "forbidden"
        assert holder.post(f"{shared}/urls", {"method": "GET", "path": "/a"}).code == "forbidden"
        assert holder.delete(f"{shared}/tokens").code == "forbidden"
        assert holder.post("/v1/keys", {"label": "a", "scopes": ["read"]}).code == "forbidden"


def test_a_token_that_may_look_runs_nothing(serve, api, shared):
    with serve.tcp(token(api, shared, "look")["token"]) as holder:
        assert holder.get(f"{shared}/processes").status == 200
        assert holder.post(f"{shared}/exec", {"command": "true"}).code == "forbidden"
        assert holder.post(f"{shared}/processes", {"command": "true"}).code == "forbidden"
        assert holder.post(f"{shared}/processes/1/signal", {"signal": "TERM"}).code == "forbidden"
        assert holder.post(f"{shared}/processes/1/stdin", b"x").code == "forbidden"


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
        for method, path in (("GET", shared), ("GET", f"{shared}/processes"),
                             ("POST", f"{shared}/exec"), ("PUT", f"{shared}/files?path=/tmp/a"),
                             ("GET", f"{shared}/files?path=/tmp/b"),
                             ("GET", f"{shared}/files?path=/tmp/a&user=root")):
            assert holder.ask(method, path).code == "forbidden", (method, path)


def test_no_token_is_in_the_log(serve, api, shared):
    made = token(api, shared, "look")["token"]
    with serve.tcp(made) as holder:
        assert holder.get(shared).status == 200
    with serve.tcp(made[:-2]) as holder:
        assert holder.get(shared).code == "bad_key"
    assert "covetok_" not in serve.said()
