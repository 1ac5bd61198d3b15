"""A host that forbids a /proc of a box's own: the engine settles for that one only where it is told to, and
says so."""
import subprocess

import pytest

import harness
import serving
from sandboxes import Sandbox

CONFIG = "[boxes]\npool = 1\n"


def masked(monkeypatch, *arguments):
    """One where parts of /proc are masked; who is not root cannot mask them, so a switch refuses it."""
    serve = serving.Serve(*arguments)
    if harness.EXPECT.is_root:
        serve.command = [harness.BOX_TESTS / "surroundings/masked-proc.sh", *serve.command]
    else:
        monkeypatch.setenv("COVE_TEST_OFF", "freshproc")
    return serve


def test_unasked_there_are_no_weaker_sandboxes(tmp_path, monkeypatch):
    config = CONFIG + f"[mounts]\nhere = {tmp_path}:ro\n"
    with masked(monkeypatch, tmp_path, config) as serve, serve.client() as client:
        assert client.get("/v1/version").json["level"] == "full"
        # A zygote of root's makes a /proc all the same; boxes with mounts have none.
        refused = client.post("/v1/sandboxes", {
            "disk_kind": "ephemeral", "mounts": [{"name": "here", "target": "/mnt/here"}]})
        assert refused.refusal == (500, "sandbox_failed")
        assert "--allow-level no-fresh-proc" in refused.json["detail"]


@pytest.mark.parametrize("config,options", [
    (CONFIG, ("--allow-level", "no-fresh-proc")),
    (CONFIG + "[serve]\nallow_level = no-fresh-proc\n", ())])
def test_asked_for_they_are_made_and_said_to_be(tmp_path, monkeypatch, config, options):
    with masked(monkeypatch, tmp_path, config, options) as serve, serve.client() as client:
        host = client.get("/v1/version").json
        assert host["level"] == "no-fresh-proc"
        assert any("/proc" in warning for warning in host["warnings"]), host
        assert " warn keeper level no-fresh-proc" in serve.said()
        for kind in ("ephemeral", "persistent"):
            for privileges in ("plain", "system"):
                with Sandbox(client, disk_kind=kind, privileges=privileges) as sandbox:
                    assert sandbox.output("echo on >/proc/self/comm; echo on") == "on\n"


def test_a_reload_finds_the_level_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("COVE_TEST_OFF", "freshproc")
    weaker = "[serve]\nallow_level = no-fresh-proc\n"
    with serving.Serve(tmp_path, CONFIG) as serve:
        for config, level in ((CONFIG + weaker, "no-fresh-proc"), (CONFIG, "full")):
            with serve.client() as client:
                assert client.get("/v1/version").json["level"] != level
            serve.reload(config)
            with serve.client() as client:
                assert client.get("/v1/version").json["level"] == level
        assert serve.said().count(" warn keeper level no-fresh-proc") == 1


def test_where_it_is_not_needed_it_is_not_used(tmp_path):
    with serving.Serve(tmp_path, CONFIG, ("--allow-level", "no-fresh-proc")) as serve:
        with serve.client() as client:
            assert client.get("/v1/version").json["level"] == "full"
        assert " level no-fresh-proc" not in serve.said()


@pytest.mark.parametrize("word", ["none", "", "Full", "no-fresh-proc "])
def test_another_level_is_refused(tmp_path, word):
    said = subprocess.run([harness.COVE, "serve", "--data", tmp_path / "data", "--listen", "none",
                           "--allow-level", word], capture_output=True, text=True, timeout=60,
                          check=False)
    assert said.returncode == 1 and "no-fresh-proc" in said.stderr and "bad_config" in said.stderr
