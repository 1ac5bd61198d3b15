"""Events as those who follow them see them: each tenant its own, in order, and over restarts."""
import json
import signal

import yaml

import harness
import serving
from sandboxes import make, new_key, run


nothing_left, serve, api = serving.one_for_all()


class Listening:
    """An open stream, from a number on."""

    def __init__(self, serve, start=0, key=None):
        self.client = serve.tcp(key) if key else serve.client()
        self.lines = serving.Lines(self.client, "/v1/events", {"from": start})

    def until(self, kind, **fields):
        """All lines up to one of this type with these fields, that one included."""
        seen = []
        for line in self.lines:
            seen.append(line)
            if line["type"] == kind and all(line[name] == fields[name] for name in fields):
                return seen
        raise AssertionError(f"the stream ended without {kind}: {seen[-3:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()


def test_every_event_that_there_is_is_told_and_documented(serve, api):
    key = new_key(api, tenant="team-all")
    with Listening(serve) as listening:
        with serve.tcp(key["secret"]) as client:
            path = make(client, resources={"memory_bytes": 64 << 20})
            sandbox = path.rsplit("/", 1)[1]
            run(client, path, "true")
            greedy = run(client, path, "head -c 200M /dev/zero | tail -c 190M | wc -c; exit ${PIPESTATUS[1]}")
            assert client.ask("PATCH", path, {"labels": {"a": "b"}}).status == 200
            token = client.post(f"{path}/tokens", {"verbs": ["look"]}).json
            assert client.delete(f"{path}/tokens").status == 204
            assert client.post(f"{path}/stop").status == 200
            assert client.post(f"{path}/start").status == 200
            assert client.delete(path).status == 204
        quota = {"sandboxes": 5}
        assert api.ask("PUT", "/v1/tenants/team-all/quota", quota).status == 200
        assert api.delete(f"/v1/keys/{key['id']}").status == 204
        seen = listening.until("key.ended", key=key["id"])
    kinds = [line["type"] for line in seen if line["tenant"] == "team-all"]
    wanted = ["sandbox.created", "process.started", "process.exited", "sandbox.changed",
              "token.created", "sandbox.changed", "sandbox.stopped", "sandbox.started",
              "sandbox.deleted", "quota.changed", "key.ended"]
    place = 0
    for kind in wanted:
        assert kind in kinds[place:], (kind, kinds)
        place = kinds.index(kind, place) + 1
    by_type = {line["type"]: line for line in seen if line["tenant"] == "team-all"}
    assert by_type["token.created"]["key"] == token["id"]
    assert by_type["token.created"]["sandbox"] == sandbox
    assert by_type["sandbox.changed"]["reason"] == "tokens_ended"
    if greedy["process"]["oom_killed"]:
        assert "process.oom" in kinds
    documented = (harness.ROOT / "docs" / "events.md").read_text()
    schema = yaml.safe_load((harness.ROOT / "src/front/native/openapi.yaml").read_text())
    described = schema["components"]["schemas"]["Event"]["properties"]["type"]["description"]
    for kind in {line["type"] for line in seen}:
        assert f"`{kind}`" in documented and kind in described, kind
    fields = set(schema["components"]["schemas"]["Event"]["required"])
    assert all(set(line) == fields for line in seen)


def test_a_command_that_memory_ran_out_for_is_told(serve, api):
    path = make(api, resources={"memory_bytes": 32 << 20})
    with Listening(serve) as listening:
        ended = run(api, path, "x=$(head -c 400M /dev/zero | tr '\\0' a); echo ${#x}")
        assert api.delete(path).status == 204
        kinds = [line["type"] for line in listening.until(
            "sandbox.deleted", sandbox=path.rsplit("/", 1)[1])]
    assert ("process.oom" in kinds) == ended["process"]["oom_killed"]
    if harness.EXPECT.is_root:
        assert ended["process"]["oom_killed"], ended


def test_who_heard_all_goes_on_after_a_restart_without_a_gap(serve, api):
    with Listening(serve) as listening:
        path = make(api)
        last = listening.until("sandbox.created", sandbox=path.rsplit("/", 1)[1])[-1]["sequence"]
    serve.kill_engine(signal.SIGTERM)
    with Listening(serve, last + 1) as listening, serve.client() as client:
        assert client.delete(path).status == 204
        seen = listening.until("sandbox.deleted", sandbox=path.rsplit("/", 1)[1])
    assert "gap" not in [line["type"] for line in seen]
    assert all(line["sequence"] > last for line in seen if line["type"] != "keepalive")


def test_after_a_crash_there_is_a_gap_and_what_was_written(serve, api):
    with Listening(serve) as listening:
        path = make(api)
        last = listening.until("sandbox.created", sandbox=path.rsplit("/", 1)[1])[-1]["sequence"]
        assert api.ask("PATCH", path, {"labels": {"a": "b"}}).status == 200
        changed = listening.until("sandbox.changed")[-1]
    # Written: a later request was committed behind it.
    assert api.ask("PATCH", path, {"labels": {"a": "c"}}).status == 200
    with serve.client() as client:
        harness.wait_for(lambda: client.get("/readyz").status == 200, 30 * harness.PATIENCE, "/readyz")
    serve.kill_engine()
    with Listening(serve, last + 1) as listening, serve.client() as client:
        assert client.delete(path).status == 204
        seen = listening.until("sandbox.deleted", sandbox=path.rsplit("/", 1)[1])
    assert seen[0]["type"] == "gap" and seen[0]["from"] == last + 1
    numbers = [line["sequence"] for line in seen if "sequence" in line]
    assert numbers == sorted(set(numbers)) and min(numbers) >= changed["sequence"]


def test_no_number_is_given_twice_whenever_the_engine_is_killed(tmp_path):
    told = []
    with serving.Serve(tmp_path, "[boxes]\npool = 0\n") as serve:
        for _ in range(4):
            with Listening(serve) as listening, serve.client() as client:
                new_key(client, tenant="anybody")
                told.append(listening.until("key.created")[-1]["sequence"])
                serve.kill_engine()  # what was told is not written yet
    assert told == sorted(set(told)), told


def test_a_loud_tenant_does_not_push_out_what_a_quiet_one_did(serve, api):
    quiet, loud = new_key(api, tenant="quiet"), new_key(api, tenant="loud")
    with serve.tcp(quiet["secret"]) as client, Listening(serve, key=quiet["secret"]) as listening:
        path = make(client)
        first = listening.until("sandbox.created")[-1]["sequence"]
    with serve.tcp(loud["secret"]) as client:
        noisy = make(client)
        for number in range(300):
            assert client.ask("PATCH", noisy, {"labels": {"n": str(number)}}).status == 200
        assert client.delete(noisy).status == 204
    with Listening(serve, first, key=quiet["secret"]) as listening:
        with serve.tcp(quiet["secret"]) as client:
            assert client.delete(path).status == 204
        seen = listening.until("sandbox.deleted")
    assert seen[0]["sequence"] == first and {line["tenant"] for line in seen} == {"quiet"}


def test_events_are_json_lines(serve, api):
    with serve.client() as client:
        client.send("GET", "/v1/events")
        response = client.connection.getresponse()
        path = make(api)
        assert api.delete(path).status == 204
        line = response.readline()
    assert line.endswith(b"\n") and json.loads(line)["sequence"] > 0
