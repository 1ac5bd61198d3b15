"""What the keeper and the engine say to their operator, as JSON."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

import harness
import sandboxes
import serving


def lines(serve):
    return [json.loads(line) for line in serve.said().splitlines()]


@pytest.mark.parametrize("how", ["option", "configuration"])
def test_every_line_of_both_is_an_object(tmp_path, how):
    config = "[boxes]\npool = 0\n"
    if how == "configuration":
        config += "[serve]\nlog_format = json\n"
    options = ["--log-format", "json"] if how == "option" else []
    with serving.Serve(tmp_path, config, options) as serve:
        serve.kill_engine()
        serve.kill_engine(signal.SIGTERM)
    said = lines(serve)
    assert {line["part"] for line in said} == {"keeper", "cove-engine"}
    for line in said:
        assert {"time", "level", "part", "code", "text"} <= set(line)
        assert line["level"] in ("error", "warn", "info", "debug")
    codes = [line["code"] for line in said]
    assert codes.count("ready") == 3 and "engine_ended" in codes and "draining" in codes


def test_pairs_that_a_message_ends_with_are_fields(tmp_path):
    with serving.Serve(tmp_path, "[boxes]\npool = 0\n[serve]\nlog_format = json\n"
                       "[telemetry]\notlp_endpoint = http://127.0.0.1:1\n") as serve:
        with serve.client() as client:
            assert client.get("/v1/sandboxes").status == 200

        def failed():
            return [line for line in lines(serve) if line["code"] == "telemetry_failed"]

        line, *_ = harness.wait_for(failed, 20 * harness.PATIENCE, "a line with a pair")
    assert line["fields"] == {"status": "0"} and line["text"].endswith(" status=0")


def test_lines_of_the_start_itself_are_json_too(tmp_path):
    with serving.Serve(tmp_path, "[boxes]\npool = 0\n[serve]\nlog_format = json\n[mounts]\ngone = /gone/by/now\n") as serve:
        assert "name_lost" in [line["code"] for line in lines(serve)]


def failures(serve):
    """Of each request that failed for a fault of ours, by its id: what the log says of it."""
    said = [line["fields"] for line in lines(serve) if line["code"] == "request_failed"]
    return {fields["request"]: fields for fields in said}


def test_every_fault_of_ours_is_logged_with_its_cause_and_the_id_that_the_client_has(tmp_path):
    """More than one in a second, too: the log is where the cause of each can be found."""
    with serving.Serve(tmp_path, "[boxes]\npool = 0\n[serve]\nlog_format = json\n") as serve:
        kept = serve.data / "engine" / "sandboxes"
        with serve.client() as client, sandboxes.made(serve) as box:
            assert sandboxes.run(client, box, "echo secret-of-a-command")["stdout"] == "secret-of-a-command\n"
            process = sandboxes.start(client, box, "echo said", env={"KEY": "secret-of-an-environment"})
            client.get(f"{process}/wait")
            for each in kept.glob("*/*"):
                shutil.rmtree(each) if each.is_dir() else each.unlink()
            unreadable = [client.get(f"{process}/output") for _ in range(5)]
            unfound = client.get("/v1/sandboxes/c0000000000000000")
        for each in kept.iterdir():
            shutil.rmtree(each)
        os.rmdir(kept)
        with serve.client() as client:
            unwritten = client.post("/v1/sandboxes", sandboxes.EPHEMERAL)
        os.mkdir(kept)
        # A line may come after its answer.
        harness.wait_for(lambda: unwritten.headers["Cove-Request-Id"] in failures(serve), what="the line of the last one")
        said = failures(serve)
        text = serve.said()
    for answer in unreadable:
        assert answer.refusal == (500, "output_unreadable"), answer.json
        assert said[answer.headers["Cove-Request-Id"]]["why"] == answer.json["detail"]
    assert unwritten.refusal == (503, "store_failed")
    assert said[unwritten.headers["Cove-Request-Id"]]["why"] == unwritten.json["detail"]
    assert unfound.status == 404 and unfound.headers["Cove-Request-Id"] not in said
    assert "secret-of" not in text


def test_a_full_host_tells_its_figures_to_operators_and_the_log_alone(tmp_path):
    """They say what other tenants use."""
    with serving.Serve(tmp_path, "[boxes]\npool = 0\nheadroom_memory = 1000G\n[serve]\nlog_format = json\n") as serve, \
            serve.client() as client, serve.tcp(sandboxes.new_key(client)["secret"]) as tenant:
        seen = client.post("/v1/sandboxes", sandboxes.EPHEMERAL)
        repeated = tenant.ask("POST", "/v1/sandboxes", sandboxes.EPHEMERAL, headers={"Idempotency-Key": "k"})
        answers = [repeated, tenant.post("/v1/sandboxes", sandboxes.EPHEMERAL)]
        harness.wait_for(lambda: answers[-1].headers["Cove-Request-Id"] in failures(serve), what="the line of the last one")
        said = failures(serve)
    assert " are to stay free; " in seen.json["detail"], seen.json
    for answer in answers:
        assert answer.refusal == (503, "capacity"), answer
        detail = answer.json["detail"]
        assert "less memory left" in detail and "delete sandboxes" in detail, detail
        assert not any(letter.isdigit() for letter in detail), detail
        assert said[answer.headers["Cove-Request-Id"]]["why"].startswith(f"{detail} (the host has "), said


def test_refused_keys_are_logged_one_a_second_without_the_key(tmp_path):
    begin = time.monotonic()
    with serving.Serve(tmp_path, "[boxes]\npool = 0\n[serve]\nlog_format = json\n", clock=True) as serve:
        def refused():
            return [line for line in lines(serve) if line["code"] == "key_refused"]

        with serve.tcp("secret-of-nobody") as client:
            answers = [client.get("/v1/sandboxes") for _ in range(30)]
            assert {answer.refusal for answer in answers} == {(401, "bad_key")}
            said = harness.wait_for(refused, what="a line")
            assert len(said) <= 1 + (time.monotonic() - begin) // 1
            serve.clock.advance(1)
            assert client.get("/v1/sandboxes").refusal == (401, "bad_key")
            harness.wait_for(lambda: len(refused()) > len(said), what="a line of the next second")
        assert "secret-of" not in serve.said()
    fields = said[0]["fields"]
    assert said[0]["text"].startswith("GET of /v1/sandboxes: bad_key ") and fields["peer"].startswith("127.0.0.1")
    assert fields["why"] == answers[0].json["detail"] and fields["request"] == answers[0].headers["Cove-Request-Id"]


def test_another_format_is_refused():
    said = subprocess.run([harness.COVE, "serve", "--log-format", "xml"], capture_output=True,
                          text=True, check=False)
    assert said.returncode == 2 and "--log-format xml" in said.stderr
