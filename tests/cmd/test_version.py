"""`cove version` tells of a build, and of the server; and a build learns of which commit it is."""
import json
import os
import re
import socket
import subprocess
import sys

import harness
import serving

COMMIT = harness.ROOT / "src" / "cmd" / "commit.py"


def said(source, output):
    subprocess.run([sys.executable, COMMIT, source, "a-machine", output], check=True, env={**os.environ, "TZ": "XYZ-9"})
    return dict(re.findall(r'^#define COVE_(\w+) "(.*)"$', output.read_text(encoding="ascii"), re.M))


def git(source, *words):
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, "-C", source, *words], check=True, capture_output=True, text=True,
                          env={**os.environ, "GIT_COMMITTER_DATE": "2026-03-01T01:00:00+0200"}).stdout.strip()


def test_a_build_knows_its_commit_and_is_made_anew_only_where_that_changes(tmp_path):
    source, output = tmp_path / "source", tmp_path / "commit.h"
    source.mkdir()
    git(source, "init", "--quiet")
    (source / "file").write_text("one\n", encoding="ascii")
    git(source, "add", "file")
    git(source, "commit", "--quiet", "-m", "one")
    git(source, "tag", "v9.9")  # no name for it
    commit = git(source, "rev-parse", "HEAD")
    clean = {"COMMIT": commit, "COMMIT_DATE": "2026-02-28T23:00:00Z", "MACHINE": "a-machine"}
    assert said(source, output) == clean
    os.utime(output, (1, 1))
    assert said(source, output) == clean and output.stat().st_mtime == 1
    (source / "file").write_text("two\n", encoding="ascii")
    assert said(source, output) == {**clean, "COMMIT": f"{commit}-dirty"}
    below = source / "below"  # an archive that was unpacked within another's repository
    below.mkdir()
    assert said(below, output) == {"COMMIT": "", "COMMIT_DATE": "", "MACHINE": "a-machine"}


def version(url, *words):
    done = subprocess.run([harness.COVE, "version", *words], env={**os.environ, "COVE_URL": url}, capture_output=True, text=True,
                          check=False, timeout=20 * harness.PATIENCE)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def test_the_version_of_the_server_is_said_where_one_runs(tmp_path):
    with serving.Serve(tmp_path) as serve:
        with serve.client() as client:
            there = client.get("/v1/version").json
        url = f"unix:{serve.socket}"
        assert version(url).splitlines()[-1] == f"server   {there['version']} at {url}"
        assert json.loads(version(url, "--json"))["server"] == {"address": url, "version": there["version"], "api": "v1"}
        tcp = f"http://127.0.0.1:{serve.port}"
        assert version(tcp).splitlines()[-1] == f"server   {there['version']} at {tcp}"
    assert version(url).splitlines()[-1] == "server   none runs"
    assert "server" not in json.loads(version(url, "--json"))


def test_a_server_that_cannot_be_asked_is_not_said_to_be_none():
    said = json.loads(version("ftp://x", "--json"))
    assert "server" not in said and "COVE_URL" in said["server_error"]
    assert version("ftp://x").splitlines()[-1] == f"server   {said['server_error']}"


def test_a_server_that_does_not_answer_holds_up_no_version(tmp_path):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        assert version(f"unix:{tmp_path}/s").splitlines()[-1] == "server   none runs"
