"""What hostile code in a sandbox, or a hostile client, may try with the file routes: nothing of the host is
read or written, and nothing holds the engine up."""
import io
import os
import pathlib
import socket
import sys
import tarfile
import time
import urllib.parse

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "box"))
sys.path.insert(0, str(HERE))
import harness  # noqa: E402
import serving  # noqa: E402
from test_files import Files, form  # noqa: E402

MIB = 1 << 20
RACE_S = 60 if os.environ.get("COVE_SOAK") else 2


@pytest.fixture(autouse=True)
def nothing_left():
    """One engine serves all tests of this file, so it is after the last that nothing may be left."""


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    with serving.Serve(tmp_path_factory.mktemp("serve")) as started:
        yield started


@pytest.fixture(scope="module", params=["plain", "system"])
def box(serve, request):
    with serve.client() as client:
        answer = client.post("/v1/sandboxes", {"privileges": request.param,
                                               "disk_kind": "ephemeral"})
        assert answer.status == 201, answer
    yield answer.headers["Location"]
    with serve.client() as client:
        assert client.delete(answer.headers["Location"]).status == 204


@pytest.fixture
def files(serve, box):
    with serve.client() as client:
        yield Files(client, box)


@pytest.fixture
def here(files):
    path = f"/tmp/{os.urandom(4).hex()}"
    assert files.post("mkdir", path=path).status == 200
    return path


@pytest.fixture
def secret():
    """A file of the host that every user of it could read, so that only the box's walls hide it."""
    path = pathlib.Path(f"/tmp/cove-secret-{os.urandom(6).hex()}")
    path.write_text("of the host")
    path.chmod(0o666)
    yield path
    assert path.read_text() == "of the host"
    path.unlink()


def refused(answer):
    assert answer.status in (403, 404, 409, 422), answer
    return answer.code


# ---- 24, 28: paths that lead out ---------------------------------------------------------------

def paths_to(secret, here):
    up = "../" * 40
    return [str(secret), f"{here}/{up}{secret}", f"{here}/absolute", f"{here}/relative",
            f"/proc/self/root{secret}", f"/proc/1/root{secret}", f"/proc/thread-self/root{secret}",
            f"/proc/self/cwd/{up}{secret}", f"/proc/1/cwd/{up}{secret}",
            f"/dev/fd/0/{up}{secret}", f"{here}/magic{secret}"]


def test_no_path_leads_out(files, here, secret):
    files.run(f"cd {here}; ln -s {secret} absolute; ln -s {'../' * 40}{secret} relative; "
              "ln -s /proc/1/root magic")
    for path in paths_to(secret, here):
        answer = files.get(path)
        assert answer.status != 200 or answer.bytes == b"evil", answer  # what we wrote into the box
        assert files.put(path, b"evil", parents="false").status in (200, 403, 404, 409), path
        refused(files.stat(path + "/x"))
        files.post("chmod", path=path, mode="0000")
        files.post("remove", path=path, recursive=True)
        files.client.get(f"{files.path}/tar", query={"path": path})
        files.list(path)
    body, headers = form([(path, b"evil") for path in paths_to(secret, here)])
    files.client.ask("POST", f"{files.path}/files", body, headers)
    refused(files.client.get(f"{files.path}/files/watch", query={"path": f"{here}/none"}))


def test_magic_links_show_the_box_and_not_the_host(files):
    own = files.run("hostname").strip()
    for path in ("/proc/self/root/etc/hostname", "/proc/1/root/etc/hostname"):
        answer = files.get(path)
        assert answer.status in (403, 404) or answer.bytes.decode().strip() == own, (path, answer)


def test_nothing_of_the_engine_is_seen_through_a_tool(files, serve):
    """What a tool has open is the pipes of its own call."""
    lists = files.list("/proc/self/fd")
    if lists.status == 200:
        targets = [entry.get("target", "") for entry in lists.json["entries"]]
        assert all(target.startswith(("pipe:", "/proc/", "/dev/null", "/memfd:", "anon_inode:"))
                   for target in targets), targets
    for path in ("/proc/self/environ", "/proc/self/cmdline"):
        answer = files.get(path)
        assert str(serve.data).encode() not in (answer.bytes or b"")


# ---- 25: a link that is swapped between a check and its use -----------------------------------------

def test_a_race_of_links_wins_nothing(files, here, secret):
    """A directory that is a link to / half of the time; whatever is answered is of the box."""
    files.run(f"mkdir -p {here}/real{secret.parent}; echo of the box >{here}/real{secret}")
    racer = files.client.post(f"{files.path}/processes", {
        "command": f"cd {here}; while :; do ln -sfn real swap; ln -sfn / swap; "
                   "rm swap; mkdir swap; rmdir swap; done"}).json["id"]
    end = time.monotonic() + RACE_S
    seen = set()
    path = f"{here}/swap{secret}"
    while time.monotonic() < end:
        answer = files.get(path)
        if answer.status == 200:
            assert b"of the host" not in answer.bytes
        seen.add(answer.status)
        files.put(path, b"evil", parents="false")
        files.post("remove", path=path)
        files.put(f"{here}/real{secret}", b"of the box")
        assert b"of the host" not in files.client.get(
            f"{files.path}/tar", query={"path": f"{here}/swap{secret.parent}"}).bytes[:MIB]
    assert 404 in seen or 409 in seen, seen
    files.client.delete(f"{files.path}/processes/{racer}")


# ---- 26, 27: links and archives -----------------------------------------------------------------

def archive(*members):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as opened:
        for name, kind, target, data in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size, member.mode = kind, target, len(data), 0o6755
            if kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
                member.devmajor, member.devminor = 1, 5
            opened.addfile(member, io.BytesIO(data))
    return made.getvalue()


OUT = tarfile.REGTYPE, "", b"evil"


@pytest.mark.parametrize("members", [
    [("../evil", *OUT)], [("a/../../evil", *OUT)], [("/tmp/evil-here", *OUT)],
    [("link", tarfile.SYMTYPE, "..", b""), ("link/evil", *OUT)],
    [("link", tarfile.SYMTYPE, "/tmp", b""), ("link/evil-here", *OUT)],
    [("hard", tarfile.LNKTYPE, "../outside", b"")], [("hard", tarfile.LNKTYPE, "/etc/passwd", b"")],
    [("device", tarfile.CHRTYPE, "", b"")], [("device", tarfile.BLKTYPE, "", b"")],
    [("n" * 256, *OUT)], [("/".join(["d" * 200] * 30), *OUT)],
])
def test_an_archive_unpacks_below_its_directory_or_not_at_all(files, here, members):
    files.put(f"{here}/outside", b"mine")
    answer = files.client.ask("PUT", f"{files.path}/tar", archive(*members), {},
                              {"path": f"{here}/into"})
    if answer.status != 200:
        assert answer.status in (403, 404, 409, 422), answer
    assert sorted(entry["name"] for entry in files.list(here).json["entries"]) in (
        ["into", "outside"], ["outside"])
    assert files.get(f"{here}/outside").bytes == b"mine"
    assert files.stat(f"{here}/outside").json["links"] == 1
    refused(files.stat("/tmp/evil-here"))
    for entry in files.list(f"{here}/into", depth=9).json.get("entries", []):
        assert "device" not in entry["type"], entry


@pytest.mark.parametrize("body", [
    pytest.param(b"", id="nothing"),
    pytest.param(b"x" * 512, id="a-block"),
    pytest.param(b"\0" * 511, id="not-a-block"),
    pytest.param(bytes(i * i * 7 % 251 for i in range(5000)), id="noise"),
    pytest.param(archive(("f", tarfile.REGTYPE, "", b"x" * 5000))[:2000], id="cut"),
])
def test_what_is_no_archive_is_refused(serve, files, here, body):
    with serve.client() as client:
        answer = client.ask("PUT", f"{files.path}/tar", body, {}, {"path": here})
        assert answer.status in (200, 422), answer
        if body:
            assert answer.code == "bad_archive"


# ---- 31: what blocks ----------------------------------------------------------------------------

def test_what_is_no_file_never_blocks(files, here):
    files.run(f"cd {here}; mkfifo fifo; mkdir d; mkfifo d/fifo; ln -s fifo link; "
              "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind(\"socket\")'")
    started = time.monotonic()
    for name in ("fifo", "socket", "link"):
        assert refused(files.get(f"{here}/{name}")) == "not_regular"
        assert files.put(f"{here}/{name}", b"x").status in (200, 409)
        # That made a file of it; what is none takes nothing at its end.
        files.run(f"cd {here}; rm -f {name}; mkfifo {name}")
        assert refused(files.put(f"{here}/{name}", b"x", append="true")) == "not_regular"
        files.run(f"cd {here}; rm -f {name}; mkfifo {name}")
    for device in ("/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/random"):
        assert refused(files.get(device)) in ("not_regular", "file_not_found", "file_forbidden")
    files.client.get(f"{files.path}/tar", query={"path": f"{here}/d"})
    assert files.lines("find", path=here)[-1]["type"] == "done"
    assert time.monotonic() - started < 30 * harness.PATIENCE


def test_a_tool_that_somebody_stops_holds_up_nobody_else(serve, files, here):
    """A process of the same user stops every tool it sees: only those calls wait."""
    files.run(f"truncate -s 1G {here}/large")
    stopper = files.client.post(f"{files.path}/processes", {
        "command": "while :; do for p in /proc/[0-9]*; do read -r c <$p/cmdline 2>/dev/null; "
                   "case $(tr '\\0' ' ' <$p/cmdline 2>/dev/null) in cove-tool*) "
                   "kill -STOP ${p#/proc/};; esac; done; done"}).json["id"]
    stuck = serve.client()
    stuck.send("GET", f"{files.path}/files", query={"path": f"{here}/large"})
    with serve.client() as client:
        other = client.post("/v1/sandboxes", {"disk_kind": "ephemeral", "privileges": "plain"})
        theirs = Files(client, other.headers["Location"])
        for i in range(20):
            assert theirs.put("/tmp/file", b"1").status == 200
        assert client.delete(theirs.path).status == 204
    stuck.close()
    assert files.client.delete(f"{files.path}/processes/{stopper}").status == 204
    harness.wait_for(lambda: files.tools() == 0, 30 * harness.PATIENCE, "the end of the tools")


def test_code_that_takes_a_tools_place_is_not_believed(files, here):
    """What the box's own programs say never reaches a caller: the tool is not of the box's files."""
    # In the directory where tools begin, in one of PATH where that can be written, and in /tmp.
    files.run("for at in . /tmp /usr/local/bin; do for name in cove-tool cove-grep; do "
              "printf '#!/bin/sh\\necho of the box\\n' 2>/dev/null >$at/$name "
              "&& chmod 755 $at/$name; done; done; test -x /tmp/cove-tool")
    assert files.put(f"{here}/file", b"needle").status == 200
    assert files.get(f"{here}/file").bytes == b"needle"
    assert files.post("grep", path=here, pattern="needle", stream=False).json["count"] == 1
    files.run("rm -f ./cove-tool ./cove-grep /tmp/cove-tool /tmp/cove-grep; "
              "rm -f /usr/local/bin/cove-tool /usr/local/bin/cove-grep 2>/dev/null || true")


# ---- 17: bodies that never end ------------------------------------------------------------------

def test_a_body_that_drips_takes_no_memory_and_is_cut_when_its_client_goes(serve, files, here):
    sockets = []
    query = urllib.parse.urlencode({"path": f"{here}/drip"})
    for _ in range(20):
        drip = socket.socket(socket.AF_UNIX)
        drip.connect(str(serve.socket))
        drip.sendall(f"PUT {files.path}/files?{query} HTTP/1.1\r\nHost: localhost\r\n"
                     f"Content-Length: 1000000000\r\n\r\n".encode() + b"x" * 100)
        sockets.append(drip)
    assert files.put(f"{here}/other", b"1").status == 200
    for drip in sockets:
        drip.close()
    harness.wait_for(lambda: files.tools() == 0, 30 * harness.PATIENCE, "the end of the tools")
    assert [entry["name"] for entry in files.list(here).json["entries"]] == ["other"]


def test_an_engine_that_is_killed_in_the_middle_of_an_upload_leaves_the_old_file(serve, files, here):
    files.put(f"{here}/file", b"old")
    with serve.client() as client:
        query = urllib.parse.urlencode({"path": f"{here}/file"})
        client.connection.putrequest("PUT", f"{files.path}/files?{query}")
        client.connection.putheader("Content-Length", str(10 * MIB))
        client.connection.endheaders()
        client.connection.send(bytes(2 * MIB))
        harness.wait_for(lambda: files.tools() > 0, 20 * harness.PATIENCE, "the tool")
        serve.kill_engine()
    files.client.close()
    assert files.get(f"{here}/file").bytes == b"old"
    harness.wait_for(lambda: files.tools() == 0, 30 * harness.PATIENCE, "the end of the tool")
    assert files.get(f"{here}/file").bytes == b"old"


def test_a_hundred_thousand_entries_are_listed_in_flat_memory(serve, files, here):
    count = harness.scaled(100000)
    files.run(f"cd {here}; seq {count} | xargs touch")
    before = rss(serve)
    with serve.client() as client:
        client.send("GET", f"{files.path}/files/list", headers={"Accept": "application/x-ndjson"},
                    query={"path": here})
        response = client.connection.getresponse()
        lines = 0
        peak = 0
        while response.readline():
            lines += 1
            if lines % 10000 == 0:
                peak = max(peak, rss(serve))
    assert lines == count + 1 and peak < before + 16 * MIB, (lines, before, peak)


def rss(serve):
    with open(f"/proc/{serve.engine_pid()}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))
