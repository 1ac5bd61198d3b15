"""What hostile code in a sandbox, or a hostile client, may try with the file routes: nothing of the host is
read or written, and nothing holds the engine up."""
import io
import os
import pathlib
import socket
import tarfile
import time
import urllib.parse

import pytest

import harness
import serving
from files import archive, Files, form, NOT_OF_A_FILE, OUT, outcome, VERBS, watched
from sandboxes import made

pytestmark = pytest.mark.wall

MIB = 1 << 20
RACE_S = 60 if os.environ.get("COVE_SOAK") else 2

nothing_left, _, _ = serving.one_for_all()


@pytest.fixture(scope="module")
def mounted(tmp_path_factory):
    """Two directories of the host that sandboxes of this file have: one to read, one to write."""
    top = tmp_path_factory.mktemp("mounted")
    for name in ("ro", "rw"):
        (top / name).mkdir()
    (top / "ro/file").write_text("given to read")
    (top / "ro/d").mkdir()
    (top / "ro/d/in").write_text("given to read")
    for path in (top, *top.rglob("*")):
        path.chmod(0o777)
    return top


@pytest.fixture(scope="module")
def serve(tmp_path_factory, mounted):
    config = f"[boxes]\npool = 1\n[mounts]\nro = {mounted}/ro:ro\nrw = {mounted}/rw\n"
    with serving.Serve(tmp_path_factory.mktemp("serve"), config=config) as started:
        yield started


@pytest.fixture(scope="module", params=["plain", "system"])
def box(serve, request):
    mounts = [{"name": name, "target": f"/mnt/{name}"} for name in ("ro", "rw")]
    with made(serve, privileges=request.param, mounts=mounts) as path:
        yield path


@pytest.fixture
def files(serve, box):
    with serve.client() as client:
        yield Files(client, box)


@pytest.fixture
def here(files):
    path = f"/tmp/{os.urandom(4).hex()}"
    assert files.post("mkdir", path=path).status == 200
    return path


def all_of(top):
    """What can be known of a directory of the host, and of what is in it."""
    known = {}
    for path in (top, *sorted(top.rglob("*"))):
        st = os.lstat(path)
        known[str(path)] = (st.st_mode, st.st_uid, st.st_gid, st.st_ino, st.st_nlink, st.st_size,
                            st.st_mtime_ns, st.st_ctime_ns,
                            os.listxattr(path, follow_symlinks=False),
                            path.read_bytes() if path.is_file() else None)
    return known


@pytest.fixture
def secret():
    """A file of the host that every user of it could read, write and remove, so that only the box's walls
    hide it."""
    top = pathlib.Path(f"/tmp/cove-secret-{os.urandom(6).hex()}")
    path = top / "secret"
    top.mkdir()
    top.chmod(0o777)
    path.write_text("of the host")
    path.chmod(0o666)
    before = all_of(top)
    yield path
    assert all_of(top) == before
    path.unlink()
    top.rmdir()


def refused(answer):
    assert answer.status in (403, 404, 409, 422), answer
    return answer.code


# ---- 24, 28: paths that lead out ---------------------------------------------------------------

def paths_to(secret, here):
    up = "../" * 40
    return {"absolute": str(secret), "dots": f"{here}/{up}{secret}", "link": f"{here}/absolute",
            "relative-link": f"{here}/relative", "above-link": f"{here}/above/secret",
            "self-root": f"/proc/self/root{secret}", "init-root": f"/proc/1/root{secret}",
            "thread-root": f"/proc/thread-self/root{secret}",
            "self-cwd": f"/proc/self/cwd/{up}{secret}", "init-cwd": f"/proc/1/cwd/{up}{secret}",
            "fd": f"/dev/fd/0/{up}{secret}", "magic": f"{here}/magic{secret}"}


@pytest.fixture
def led_out(files, here, secret):
    """Asks verbs of paths to what only the host has."""
    paths = paths_to(secret, here)
    st = os.lstat(secret)

    def lay():
        files.run(f"rm -rf {here}; mkdir -p {here}/own; cd {here}; echo ok >own/ok; "
                  f"ln -s {secret} absolute; ln -s {'../' * 40}{secret} relative; "
                  f"ln -s {secret.parent} above; ln -s /proc/1/root magic")

    def ask(name, way):
        answer = VERBS[name](files, paths[way], f"{here}/own")
        assert b"of the host" not in answer.bytes and b'"inode":%d,' % st.st_ino not in answer.bytes
        if answer.status == 200:
            lay()
        return answer
    lay()
    return ask


# What takes a link as the link it is, which is the box's own.
OF_A_LINK = {"stat", "copy-from", "copy-tree-from", "copy-to", "move-to", "move-from", "remove",
             "tar-out", "tar-onto", "list", "chown"}


@pytest.mark.parametrize("name", VERBS)
def test_no_path_leads_out(led_out, name):
    for way in paths_to("", ""):
        answer = led_out(name, way)
        if way in ("link", "relative-link") and answer.status == 200:
            assert name in OF_A_LINK or outcome(answer) is not None, (way, answer)
            continue
        assert outcome(answer) in ("file_not_found", "file_forbidden", "not_a_directory",
                                   "user_not_found", *(["file_exists"] if "link" in way else [])), (way, answer)


@pytest.mark.parametrize("name", VERBS)
def test_each_verb_does_what_it_is_asked_of_a_file_of_the_box(files, here, name):
    """Without which nothing above would tell anything."""
    files.run(f"cd {here}; mkdir own; echo ok >own/ok; echo real >file")
    answer = VERBS[name](files, f"{here}/file", f"{here}/own")
    is_root = files.run("id -u").strip() == "0"
    wrong = NOT_OF_A_FILE.get(name)
    if name == "chown" and not is_root:  # the ids of the box may be one alone
        assert outcome(answer) in ("file_forbidden", "user_not_found"), answer
        return
    assert outcome(answer) == wrong, answer
    assert wrong or answer.status in (200, 204, 206), answer


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

def test_a_race_of_links_wins_nothing(serve, files, here, secret):
    """A directory that is a link to / half of the time; whatever is answered is of the box."""
    files.run(f"mkdir -p {here}/own {here}/real{secret.parent}; echo ok >{here}/own/ok; "
              f"echo of the box >{here}/real{secret}")
    racer = files.client.post(f"{files.path}/processes", {
        "command": f"cd {here}; while :; do ln -sfn real swap; ln -sfn / swap; "
                   "rm swap; mkdir swap; rmdir swap; done"}).json["id"]
    st = os.lstat(secret)
    seen = {}

    def race(verbs):
        end = time.monotonic() + RACE_S
        with serve.client() as client:
            own = Files(client, files.path)
            while time.monotonic() < end or any(name not in seen for name in verbs):
                for name in verbs:
                    answer = VERBS[name](own, f"{here}/swap{secret}", f"{here}/own")
                    assert b"of the host" not in answer.bytes, (name, answer)
                    assert b'"inode":%d,' % st.st_ino not in answer.bytes, (name, answer)
                    # All that a box itself could answer whose other verbs make and remove what is there.
                    assert outcome(answer) in (None, "file_not_found", "not_a_directory", "file_exists",
                                               "is_a_directory", "directory_not_empty", "file_forbidden",
                                               "user_not_found"), (name, answer)
                    seen.setdefault(name, set()).add(outcome(answer))
                    own.put(f"{here}/real{secret}", b"of the box")
                    own.put(f"{here}/own/ok", b"ok")
        return True

    assert serving.at_once(*[lambda part=part: race(list(VERBS)[part::4]) for part in range(4)],
                           seconds=RACE_S + 60) == [True] * 4
    assert {"file_not_found", None} <= set().union(*seen.values()), seen
    files.client.delete(f"{files.path}/processes/{racer}")


# ---- 26, 27: links and archives -----------------------------------------------------------------

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
    assert files.run(f"find {here} -type b -o -type c -o -perm /6000") == ""


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


@pytest.mark.parametrize("there", ["/dev/shm", "/mnt/rw"])
@pytest.mark.parametrize("what", ["file", "d"])
def test_what_moves_to_another_mount_is_there_whole_and_gone_here(files, here, mounted, there, what):
    files.run(f"cd {here}; mkdir -p d/sub; echo 1 >file; echo 1 >d/sub/file; chmod 750 d")
    name = os.urandom(4).hex()
    answer = files.post("move", **{"from": f"{here}/{what}", "to": f"{there}/{name}"})
    assert answer.status == 200 and answer.json["path"] == f"{there}/{name}", answer
    assert files.stat(f"{here}/{what}").code == "file_not_found"
    below = f"{there}/{name}" + ("/sub/file" if what == "d" else "")
    assert files.get(below).bytes == b"1\n"
    if there == "/mnt/rw":
        on_host = mounted / "rw" / name
        assert os.lstat(on_host).st_uid == os.lstat(mounted / "rw").st_uid
        assert oct(os.lstat(on_host).st_mode)[-3:] == ("750" if what == "d" else "644")
    back = files.post("move", **{"from": f"{there}/{name}", "to": f"{here}/back"})
    assert back.status == 200, back
    assert files.stat(f"{there}/{name}").code == "file_not_found"
    assert not (mounted / "rw" / name).exists()


@pytest.mark.parametrize("path", ["/mnt/ro/file", "/mnt/ro/d", "/mnt/ro/none", "/mnt/ro/d/none"])
def test_what_is_mounted_to_be_read_changes_by_no_verb(files, here, mounted, path):
    before = all_of(mounted / "ro")
    for name, ask in VERBS.items():
        files.run(f"rm -rf {here}; mkdir -p {here}/own; echo ok >{here}/own/ok")
        answer = ask(files, path, f"{here}/own")
        if answer.status in (200, 204, 206) and outcome(answer) is None:
            assert name in list(VERBS)[:14] + ["copy-from", "copy-tree-from"], (name, answer)
        else:
            assert outcome(answer) in ("file_forbidden", "file_not_found", "is_a_directory", "not_a_directory",
                                       "file_exists", "user_not_found"), (name, answer)
        assert files.get(f"{here}/own/ok").bytes == b"ok\n"  # also where it was not moved
    assert all_of(mounted / "ro") == before


def test_nothing_that_is_written_gets_a_set_id_bit(files, here):
    """Each way to a mode: none sets the bits, and what has none runs as who runs it."""
    for name, ask in {
            "put": lambda path: files.put(path, b"#!/bin/sh\nid -u\n", mode="6755"),
            "form": lambda path: files.client.ask("POST", f"{files.path}/files",
                                                  *form([(path, b"x")]), {"mode": "6755"}),
            "chmod": lambda path: (files.put(path, b"x"), files.post("chmod", path=path, mode="6755"))[1],
            "mkdir": lambda path: files.post("mkdir", path=path, mode="6755")}.items():
        assert outcome(ask(f"{here}/{name}")) == "file_forbidden", name
    answer = files.client.ask("PUT", f"{files.path}/tar", archive(
        ("file", *OUT), ("dir", tarfile.DIRTYPE, "", b"")), {}, {"path": here})
    assert answer.status == 200, answer
    assert files.stat(f"{here}/file").json["mode"] == "0755"
    assert files.stat(f"{here}/dir").json["mode"] == "0755"
    assert files.post("copy", **{"from": "/usr/bin/passwd", "to": f"{here}/passwd"}).status == 200
    assert files.stat(f"{here}/passwd").json["mode"] == "0755"
    assert files.run(f"find {here} -perm /6000") == ""


# ---- 31: what blocks ----------------------------------------------------------------------------

NO_FILE = {
    **dict.fromkeys(["get", "get-range", "get-offset", "put", "put-append", "put-offset", "form", "grep"],
                    "not_regular"),
    "tar-in": "not_a_directory", "mkdir": "file_exists", "symlink": "file_exists",
    "setxattr": "file_forbidden", "removexattr": "file_forbidden",
}
# Where they differ: a fifo can be copied and replaced, a socket only replaced, a device of the box nothing.
OF_KIND = {
    "fifo": {},
    "link": {"chmod-tree": None},
    "socket": {"copy-from": "not_regular", "copy-tree-from": "not_regular"},
    **{device: {**dict.fromkeys(["copy-from", "copy-tree-from", "tar-out", "tar-out-follow", "move-from"],
                                "not_regular"),
                **dict.fromkeys(["tar-onto", "copy-to", "move-to", "chmod", "chmod-tree", "chown", "remove"],
                                "file_forbidden")}
       for device in ("/dev/zero", "/dev/full", "/dev/tty")},
}


# After which there is no more what there was, or `got` is there.
LAID_AGAIN = {"copy-from", "copy-tree-from", "tar-onto", "copy-to", "move-to", "move-from", "remove"}


@pytest.mark.parametrize("kind", OF_KIND)
def test_what_is_no_file_never_blocks(files, here, kind):
    """Each verb answers within seconds, and with one code: what each does of such a thing is known."""
    made = f"{here}/made"
    files.run(f"mkdir {here}/laid; cd {here}/laid; mkdir own; echo ok >own/ok; mkfifo fifo; ln -s fifo link; "
              f"python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind(\"socket\")'; "
              f"cp -a {here}/laid {made}")
    path = kind if kind.startswith("/") else f"{made}/{kind}"
    is_root = files.run("id -u").strip() == "0"
    for name, ask in VERBS.items():
        started = time.monotonic()
        answer = ask(files, path, f"{made}/own")
        assert time.monotonic() - started < 20 * harness.PATIENCE
        wrong = OF_KIND[kind].get(name, NO_FILE.get(name))
        if name == "chown" and not is_root:
            wrong = "user_not_found" if outcome(answer) == "user_not_found" else "file_forbidden"
        assert outcome(answer) == wrong, (name, answer)
        if name in LAID_AGAIN:
            files.run(f"rm -rf {made}; cp -a {here}/laid {made}")
    harness.wait_for(lambda: files.tools() == 0, what="the end of the tools")


def test_what_is_no_file_in_a_tree_never_blocks(files, here):
    files.run(f"cd {here}; mkdir -p tree/d; cd tree; mkfifo d/fifo; echo needle >d/file; "
              "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind(\"socket\")'")
    tree = f"{here}/tree"
    got = files.post("copy", **{"from": tree, "to": f"{here}/copy", "recursive": True})
    assert got.status == 200 and [one["error"]["code"] for one in got.json["errors"]] == ["not_regular"], got
    assert files.stat(f"{here}/copy/d/fifo").json["type"] == "fifo"
    assert files.get(f"{here}/copy/d/file").bytes == b"needle\n"
    assert files.post("grep", path=tree, pattern="needle", stream=False).json["count"] == 1
    tar = files.client.get(f"{files.path}/tar", query={"path": tree})
    with tarfile.open(fileobj=io.BytesIO(tar.bytes)) as opened:
        assert sorted(member.name.rpartition("/")[2] for member in opened) == ["d", "fifo", "file", "tree"]
    assert files.lines("find", path=tree)[-1]["type"] == "done"
    assert watched(files, tree, None).json["type"] == "watching"
    assert files.post("chmod", path=tree, mode="0700", recursive=True).status == 200
    assert files.post("remove", path=tree, recursive=True).json["count"] == 5
    for device in ("/dev/ptmx", "/dev/random", "/dev/console", "/dev/kmsg"):
        assert refused(files.get(device)) in ("not_regular", "file_not_found", "file_forbidden")


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
