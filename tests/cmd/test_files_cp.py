"""`cove cp`: files between the host and a sandbox, and what a hostile sandbox sends."""
import contextlib
import http.server
import io
import json
import os
import pathlib
import re
import select
import socketserver
import stat
import subprocess
import tarfile
import threading
import time

import pytest

import harness
import serving


nothing_left, serve = serving.one_for_all()[:2]


@pytest.fixture(scope="module")
def cove(serve):
    def call(*words, status=0, **more):
        result = subprocess.run([harness.COVE, *map(str, words)], capture_output=True,
                                env={**os.environ, "COVE_URL": f"unix:{serve.socket}"},
                                timeout=120 * harness.PATIENCE, check=False, **more)
        assert result.returncode == status, result
        return result
    return call


@pytest.fixture(scope="module")
def box(cove, serve):
    cove("create", "--privileges", "plain", "--ephemeral", "work")
    yield "work"
    cove("rm", "work")


@pytest.fixture
def here(cove, box):
    path = f"/tmp/{os.urandom(4).hex()}"
    cove("exec", box, "mkdir", path)
    return path


def tree_of(top):
    found = {}
    for directory, names, files in os.walk(top):
        for name in names + files:
            path = os.path.join(directory, name)
            entry = os.lstat(path)
            kind = stat.S_IFMT(entry.st_mode)
            what = (os.readlink(path) if stat.S_ISLNK(entry.st_mode) else
                    pathlib.Path(path).read_bytes() if stat.S_ISREG(entry.st_mode) else None)
            mode = None if stat.S_ISLNK(entry.st_mode) else stat.S_IMODE(entry.st_mode)
            found[os.path.relpath(path, top)] = (kind, mode, what)
    return found


@pytest.fixture
def tree(tmp_path):
    top = tmp_path / "tree"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "file").write_bytes(os.urandom(100000))
    (top / "a" / "b" / "run").write_bytes(b"#!/bin/sh\n")
    (top / "a" / "b" / "run").chmod(0o750)
    (top / "a" / ("n" * 200)).write_bytes(b"")
    (top / "a" / "link").symlink_to("../nowhere")
    os.utime(top / "a" / "file", (1000000000, 1000000000))
    return top


def test_a_file_goes_in_and_out(cove, box, here, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(300000))
    source.chmod(0o640)
    cove("cp", source, f"{box}:{here}/file")
    cove("cp", source, f"{box}:{here}")
    assert cove("exec", box, "stat", "-c", "%a", f"{here}/source").stdout.strip() == b"640"
    cove("cp", f"{box}:{here}/file", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert stat.S_IMODE((tmp_path / "back").stat().st_mode) == 0o640
    (tmp_path / "into").mkdir()
    cove("cp", f"{box}:{here}/file", f"{box}:{here}/source", tmp_path / "into")
    assert sorted(os.listdir(tmp_path / "into")) == ["file", "source"]


def test_standard_input_and_output_are_places(cove, box, here):
    data = os.urandom(200000)
    cove("cp", "-", f"{box}:{here}/piped", input=data)
    assert cove("cp", f"{box}:{here}/piped", "-").stdout == data
    archive = cove("cp", "-r", f"{box}:{here}", "-").stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        assert any(name.endswith("/piped") for name in opened.getnames())


def test_a_tree_goes_in_and_out_as_it_was(cove, box, here, tree, tmp_path):
    cove("cp", "-r", tree, f"{box}:{here}/new")
    cove("cp", tree, f"{box}:{here}")
    for name in ("new", "tree"):
        cove("cp", f"{box}:{here}/{name}", tmp_path / f"back-{name}")
        assert tree_of(tmp_path / f"back-{name}") == tree_of(tree)
    assert (tmp_path / "back-new" / "a" / "file").stat().st_mtime == 1000000000
    (tmp_path / "into").mkdir()
    cove("cp", "-r", f"{box}:{here}/new", tmp_path / "into")
    assert tree_of(tmp_path / "into" / "new") == tree_of(tree)


def test_a_sandbox_with_a_colon_in_its_name_takes_an_absolute_path(cove, tmp_path):
    cove("create", "--ephemeral", "a:b:c")
    (tmp_path / "x").write_text("here")
    for name in ("a:b:c", "name:a:b:c"):
        cove("cp", tmp_path / "x", f"{name}:/tmp/y:z")
        assert cove("cp", f"{name}:/tmp/y:z", "-").stdout == b"here"
    cove("rm", "a:b:c")


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_there_keeps_its_rights_and_the_umask_counts(cove, box, here, tmp_path):
    cove("exec", box, "sh", "-c", f"cd {here} && mkdir -p old/in new && echo x >file && echo y >old/f && "
         "chmod 0777 old old/in new file && touch -d @1000000000 new && chmod 0777 .")
    target = tmp_path / "target"
    (target / "old").mkdir(parents=True)
    (target / "old").chmod(0o750)
    target.chmod(0o700)
    before = target.stat().st_mode
    cove("cp", "-r", f"{box}:{here}/.", target, umask=0o027)
    assert target.stat().st_mode == before
    assert mode_of(target / "old") == 0o750 and (target / "old" / "f").read_text() == "y\n"
    assert [mode_of(target / name) for name in ("old/in", "new", "file")] == [0o750] * 3
    assert (target / "new").stat().st_mtime == 1000000000
    cove("cp", f"{box}:{here}/file", target / "single", umask=0o077)
    assert mode_of(target / "single") == 0o700
    cove("cp", "-r", f"{box}:{here}/new", tmp_path / "made", umask=0o022)
    assert mode_of(tmp_path / "made") == 0o755


@pytest.mark.parametrize("words, says", [
    (("a", "b"), "one side"), (("work:a", "work:b"), "one side"), (("only",), "missing"),
    (("/nothing/there", "work:/tmp"), "cannot be read"),
    (("work:/nothing/there", "."), "no such file"),
    (("/etc/hostname", "work:/nothing/"), "no such directory"),
    (("nobody-here:/x", "."), "sandbox"),
])
def test_mistakes_are_told(cove, box, tmp_path, words, says):
    result = cove("cp", *words, status=125, cwd=tmp_path)
    assert says in result.stderr.decode() and result.stderr.count(b"\n") == 1, result


def test_set_id_bits_devices_and_fifos_do_not_come_out(cove, box, here, tmp_path):
    cove("exec", box, "sh", "-c", f"cd {here}; mkdir d; echo 1 >d/s; chmod 6755 d/s; mkfifo d/f")
    result = cove("cp", "-r", f"{box}:{here}/d", tmp_path / "d", status=125)
    assert b"left out" in result.stderr
    assert stat.S_IMODE((tmp_path / "d" / "s").stat().st_mode) == 0o755
    assert os.listdir(tmp_path / "d") == ["s"]


def test_a_link_that_is_there_is_replaced_and_not_followed(cove, box, here, tmp_path):
    cove("exec", box, "sh", "-c", f"cd {here}; mkdir d; echo evil >d/x; mkdir d/sub; echo e >d/sub/y")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "outside").mkdir()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").symlink_to(victim)
    (tmp_path / "d" / "sub").symlink_to(tmp_path / "outside")
    cove("cp", "-r", f"{box}:{here}/d", tmp_path, status=125)
    assert victim.read_text() == "mine" and os.listdir(tmp_path / "outside") == []
    cove("cp", f"{box}:{here}/d/x", tmp_path / "d" / "x")
    assert victim.read_text() == "mine"
    assert not (tmp_path / "d" / "x").is_symlink()


# ---- a server that a sandbox has taken over, or that never was one of ours --------------------------

def evil_archive(members):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, target, data in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, target, len(data)
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


@pytest.fixture
def liar(tmp_path):
    """Answers every question about files with what it was told."""
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            body = (b'{"path":"x","type":"directory"}' if "/files/stat" in self.path
                    else self.server.archive)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

        def get_request(self):
            return self.socket.accept()[0], ("liar", 0)

        def handle_error(self, *_):
            """Who is lied to hangs up."""

    path = tmp_path / "liar.sock"
    with Server(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()

        def copy(members, *, raw=None):
            server.archive = raw if raw is not None else evil_archive(members)
            target = tmp_path / "target"
            target.mkdir(exist_ok=True)
            return subprocess.run([harness.COVE, "cp", "-r", "x:d", target], capture_output=True,
                                  env={**os.environ, "COVE_URL": f"unix:{path}"},
                                  timeout=60 * harness.PATIENCE, check=False)
        copy.top = tmp_path
        yield copy
        server.shutdown()
        thread.join()


OUT = tarfile.REGTYPE, "", b"evil"


@pytest.mark.parametrize("members", [
    [("/tmp/cove-evil", *OUT)], [("d/../../evil", *OUT)], [("d/../evil", *OUT)],
    [("d/./../evil", *OUT)], [("../evil", *OUT)], [("d/a//../../evil", *OUT)],
    [("d/link", tarfile.SYMTYPE, "..", b""), ("d/link/evil", *OUT)],
    [("d/link", tarfile.SYMTYPE, "/tmp", b""), ("d/link/cove-evil", *OUT)],
    [("d/a", tarfile.SYMTYPE, "b", b""), ("d/b", tarfile.SYMTYPE, "..", b""), ("d/a/evil", *OUT)],
    [("d/hard", tarfile.LNKTYPE, "d/../../victim", b""), ("d/hard", *OUT)],
    [("d/hard", tarfile.LNKTYPE, "/etc/passwd", b"")],
    [("d/link", tarfile.SYMTYPE, "../victim", b""), ("d/hard", tarfile.LNKTYPE, "d/link", b"")],
])
def test_no_archive_writes_outside(liar, members):
    victim = liar.top / "victim"
    victim.write_text("mine")
    before = set(os.listdir(liar.top))
    result = liar(members)
    assert result.returncode == 125 and result.stderr.startswith(b"cove: "), result
    assert victim.read_text() == "mine" and victim.stat().st_nlink == 1
    assert set(os.listdir(liar.top)) - before <= {"target"}
    assert not os.path.exists("/tmp/cove-evil")
    for directory, _, files in os.walk(liar.top / "target"):
        assert "evil" not in files, directory


def test_a_link_that_the_archive_made_is_not_written_through(liar):
    victim = liar.top / "victim"
    victim.write_text("mine")
    result = liar([("d/x", tarfile.SYMTYPE, str(victim), b""), ("d/x", *OUT)])
    assert victim.read_text() == "mine", result
    assert (liar.top / "target" / "d" / "x").read_bytes() == b"evil"


@pytest.mark.parametrize("raw", [
    b"", b"x" * 511, b"x" * 1024, os.urandom(4096), b"\0" * 100,
    evil_archive([("d/x", tarfile.REGTYPE, "", b"x" * 5000)])[:3000],
], ids=lambda raw: f"{len(raw)} bytes")
def test_what_is_no_archive_is_refused(liar, raw):
    result = liar(None, raw=raw)
    assert result.returncode == 125 and result.stderr.startswith(b"cove: "), result
    assert [name for _, _, files in os.walk(liar.top / "target") for name in files] == []


# ---- what is shown and said of it --------------------------------------------------------------

def test_what_was_copied_is_said_for_programs(cove, box, here, tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 1000)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/b").write_bytes(b"y" * 50)
    done = cove("cp", "--json", "-r", tmp_path / "a", tmp_path / "tree", f"{box}:{here}")
    copied = json.loads(done.stdout)["copied"]
    assert [one["source"] for one in copied] == [str(tmp_path / "a"), str(tmp_path / "tree")]
    assert copied[0]["bytes"] == 1000 and copied[1]["bytes"] >= 50
    assert {one["target"] for one in copied} == {f"{box}:{here}"}
    done = cove("cp", "--json", f"{box}:{here}/a", tmp_path / "back")
    assert json.loads(done.stdout) == {"copied": [{"source": f"{box}:{here}/a", "bytes": 1000,
                                                   "target": str(tmp_path / "back")}]}
    (tmp_path / "tree/fifo").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "tree/fifo")
    done = cove("cp", "--json", "-r", tmp_path / "tree", f"{box}:{here}/again", status=125)
    assert json.loads(done.stdout)["left_out"] is True
    assert "--json" in cove("cp", "--json", f"{box}:{here}/a", "-", status=125).stderr.decode()


class Slow:
    """A server that sends a file of four parts, one more each time that it is told to."""

    def __init__(self, path, has_length):
        self.go = [threading.Event() for _ in range(3)]
        self.begun = threading.Event()
        slow = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                if "/files/stat" in self.path:
                    body = b'{"path":"/x","type":"file"}'
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                    return
                self.send_response(200)
                if has_length:
                    self.send_header("Content-Length", "4096")
                else:
                    self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for go in [None, *slow.go]:
                    if go:
                        go.wait(60 * harness.PATIENCE)
                    self.wfile.write(b"x" * 1024 if has_length else b"400\r\n" + b"x" * 1024 + b"\r\n")
                    slow.begun.set()
                if not has_length:
                    self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_):
                pass

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

            def get_request(self):
                return self.socket.accept()[0], ("slow", 0)

        self.server = Server(str(path), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for go in self.go:
            go.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.parametrize("has_length", [True, False])
@pytest.mark.parametrize("on_terminal", [True, False])
def test_progress_is_shown_on_a_terminal_with_its_share_where_that_is_known(tmp_path, has_length,
                                                                            on_terminal):
    shown = b""
    ours, theirs = os.openpty() if on_terminal else os.pipe()
    with Slow(tmp_path / "slow.sock", has_length) as slow:
        copying = subprocess.Popen([harness.COVE, "cp", "box:/x", tmp_path / "x"], stderr=theirs,
                                   env={**os.environ, "COVE_URL": f"unix:{tmp_path}/slow.sock"})
        os.close(theirs)
        assert slow.begun.wait(60 * harness.PATIENCE)
        for go in slow.go:
            time.sleep(0.3)  # it shows what came, but five times a second at most
            go.set()
            if on_terminal and go is not slow.go[-1]:
                assert select.select([ours], [], [], 60 * harness.PATIENCE)[0], shown
                shown += os.read(ours, 4096)
        with contextlib.suppress(OSError):  # a terminal whose other end is closed
            while piece := os.read(ours, 4096):
                shown += piece
        assert copying.wait(60 * harness.PATIENCE) == 0
    os.close(ours)
    assert (tmp_path / "x").stat().st_size == 4096
    if not on_terminal:
        assert shown == b""
        return
    shares = [int(share) for share in re.findall(rb"(\d+)%", shown)]
    assert b"K" in shown and shown.endswith(b"\r\x1b[K"), shown
    if has_length:
        assert shares and shares == sorted(shares) and shares[-1] in (50, 75, 100), shown
        assert re.search(rb"/x  \dK of 4K  \d+%  \S+/s", shown), shown
    else:
        assert not shares and b" of " not in shown, shown
