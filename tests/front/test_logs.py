"""What the keeper and the engine say to their operator, as JSON."""
import json
import signal
import subprocess

import pytest

import harness
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


def test_another_format_is_refused():
    said = subprocess.run([harness.COVE, "serve", "--log-format", "xml"], capture_output=True,
                          text=True, check=False)
    assert said.returncode == 2 and "--log-format xml" in said.stderr
