"""Files of sandboxes that are stopped and keep their disk: a box stands for them, quietly."""
import io
import os
import pathlib
import subprocess
import tarfile

import pytest

import harness
import serving
from files import Files, form, NOT_OF_A_FILE, outcome, VERBS
from sandboxes import make


nothing_left, serve = serving.one_for_all("[boxes]\npool = 0\n", clock=True)[:2]


@pytest.fixture
def stopped(serve):
    with serve.client() as client:
        path = make(client, privileges="system", disk_kind="persistent")
        files = Files(client, path)
        assert files.put("/root/file", b"kept").status == 200
        assert client.post(f"{path}/stop").status == 200
        assert boxes(serve) == 0
        yield files
        assert client.delete(path).status == 204
        assert boxes(serve) == 0


def boxes(serve):
    count = 0
    for pid in harness.children_of(serve.process.pid):
        try:
            count += "cove-init" in pathlib.Path(f"/proc/{pid}/comm").read_text()
        except OSError:
            continue
    return count


def state(files):
    return files.client.get(files.path).json["state"]


def no_box(serve):
    harness.wait_for(lambda: boxes(serve) == 0, 30 * harness.PATIENCE, "the end of the box")


def stands(serve, stopped):
    """Whether it has one box, some seconds after which it is ended: between the two looks nothing may stand still."""
    assert stopped.stat("/root").status == 200
    count = boxes(serve)
    assert count <= 1
    return count == 1


def test_its_files_are_there_and_it_stays_stopped(stopped):
    assert stopped.get("/root/file").bytes == b"kept"
    assert stopped.put("/root/other", b"new").status == 200
    assert state(stopped) == "stopped"
    answer = stopped.client.post(f"{stopped.path}/exec", {"command": "true"})
    assert answer.code == "sandbox_stopped"


def test_a_start_takes_the_box_that_stands(serve, stopped):
    assert stopped.put("/tmp/mark", b"here").status == 200
    assert stopped.client.post(f"{stopped.path}/start").status == 200
    assert stopped.run("cat /tmp/mark /root/file") == "herekept"
    assert boxes(serve) == 1
    assert stopped.client.post(f"{stopped.path}/stop").status == 200


def test_the_box_ends_by_itself(serve, stopped):
    harness.wait_for(lambda: stands(serve, stopped), what="its box")
    serve.clock.advance(5)
    no_box(serve)
    assert state(stopped) == "stopped"
    assert stopped.get("/root/file").bytes == b"kept"


def test_a_stop_ends_the_box(serve, stopped):
    assert stopped.stat("/root").status == 200
    before = stopped.client.get(stopped.path).json["revision"]
    assert stopped.client.post(f"{stopped.path}/stop").status == 200
    assert boxes(serve) == 0
    assert stopped.client.get(stopped.path).json["revision"] == before


def test_a_box_that_stands_counts_as_one(serve, stopped):
    quota = stopped.client.get("/v1/tenants/default/quota").json
    idle = quota["used"]["memory_bytes"]

    def counts():
        assert stopped.stat("/root").status == 200
        return stopped.client.get("/v1/tenants/default/quota").json["used"]["memory_bytes"] > idle

    harness.wait_for(counts, what="its memory in the quota")


def test_a_restart_of_the_engine_ends_the_box(serve, stopped):
    assert stopped.stat("/root").status == 200
    serve.kill_engine()
    stopped.client.close()
    no_box(serve)
    assert stopped.get("/root/file").bytes == b"kept"


def test_many_calls_at_once_share_one_box(serve, stopped):
    def read():
        with serve.client() as client:
            return Files(client, stopped.path).get("/root/file").bytes

    assert serving.at_once(*[read] * 8) == [b"kept"] * 8
    assert boxes(serve) <= 1
    harness.wait_for(lambda: stands(serve, stopped), what="its box")


def test_a_delete_in_the_middle_of_a_download_ends_both(serve, stopped):
    assert stopped.put("/root/large", bytes(32 << 20)).status == 200
    with serve.client() as reader:
        reader.send("GET", f"{stopped.path}/files", query={"path": "/root/large"})
        response = reader.connection.getresponse()
        assert response.status == 200
        assert stopped.client.delete(stopped.path).status == 204
        with pytest.raises((ConnectionError, serving.http.client.IncompleteRead)):
            got = response.read()
            assert len(got) == 32 << 20, len(got)
            raise ConnectionError
    no_box(serve)


def test_what_verbs_did_while_it_was_stopped_is_there_when_it_starts(stopped):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("unpacked"))
    assert stopped.client.ask("PUT", f"{stopped.path}/tar", made.getvalue(), {},
                              {"path": "/root"}).json["count"] == 1
    body, headers = form([("/root/form", b"needle")])
    assert stopped.client.ask("POST", f"{stopped.path}/files", body, headers).status == 200
    assert stopped.post("chmod", path="/root/form", mode="0640").status == 200
    assert stopped.post("chown", path="/root/form", owner="1001:1002").status == 200
    assert stopped.post("copy", **{"from": "/root/form", "to": "/root/copy"}).status == 200
    assert stopped.post("move", **{"from": "/root/file", "to": "/root/moved"}).status == 200
    assert stopped.post("symlink", path="/root/link", target="moved").status == 200
    assert stopped.client.ask("PUT", f"{stopped.path}/files/xattr", b"v", {},
                              {"path": "/root/moved", "name": "user.a"}).status == 204
    assert stopped.post("grep", path="/root", pattern="needle", stream=False).json["count"] == 2
    assert len(stopped.post("find", path="/root", stream=False).json["entries"]) == 5
    assert state(stopped) == "stopped"
    assert stopped.client.post(f"{stopped.path}/start").status == 200
    assert stopped.run("cd /root; stat -c '%n %a %u:%g' form; cat copy link; ls unpacked") == (
        "form 640 1001:1002\nneedlekeptunpacked\n")
    assert stopped.client.get(f"{stopped.path}/files/xattr", query={
        "path": "/root/moved", "name": "user.a"}).bytes == b"v"
    assert stopped.client.post(f"{stopped.path}/stop").status == 200


# ---- all that can be asked of one that runs ----------------------------------------------------

@pytest.fixture(scope="module")
def asleep(serve):
    """One that is stopped for all of these: its box stands while they follow each other."""
    with serve.client() as client:
        answer = client.post("/v1/sandboxes", {"disk_kind": "persistent", "name": "asleep"})
        assert answer.status == 201, answer
        files = Files(client, answer.headers["Location"])
        assert client.post(f"{files.path}/stop").status == 200
        yield files
        assert state(files) == "stopped"
        assert client.delete(files.path).status == 204
        assert boxes(serve) == 0


@pytest.fixture
def here(asleep):
    path = f"/root/{os.urandom(4).hex()}"
    assert asleep.post("mkdir", path=f"{path}/own", parents=True).status == 200
    assert asleep.put(f"{path}/own/ok", b"ok").status == 200
    assert asleep.put(f"{path}/file", b"real").status == 200
    return path


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_works_on_a_stopped_sandbox(asleep, here, name):
    answer = VERBS[name](asleep, f"{here}/file", f"{here}/own")
    assert outcome(answer) == NOT_OF_A_FILE.get(name), answer
    assert state(asleep) == "stopped"


def test_tokens_and_urls_of_a_stopped_sandbox(serve, asleep, here):
    made = asleep.client.post(f"{asleep.path}/tokens", {
        "verbs": ["files_read", "files_write"], "path": here})
    assert made.status == 201, made
    with serve.tcp(made.json["token"]) as holder:
        theirs = Files(holder, asleep.path)
        assert theirs.get(f"{here}/file").bytes == b"real"
        assert theirs.put(f"{here}/new", b"1").status == 200
        assert theirs.list(here).status == 200
        assert theirs.get("/etc/passwd").code == "file_forbidden"
    urls = [asleep.client.post(f"{asleep.path}/urls", {"method": method, "path": f"{here}/new"}).json["url"]
            for method in ("PUT", "GET")]
    with serve.tcp() as anybody:
        put, get = (url[url.index("/v1/"):] for url in urls)
        assert anybody.ask("PUT", put, b"by url").status == 200
        assert anybody.get(get).bytes == b"by url"


def test_cp_of_a_stopped_sandbox(serve, asleep, here, tmp_path):
    def cove(*words):
        return subprocess.run([harness.COVE, *map(str, words)], check=True, capture_output=True,
                              env={**os.environ, "COVE_URL": f"unix:{serve.socket}"},
                              timeout=120 * harness.PATIENCE)
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/file").write_bytes(b"of the host")
    cove("cp", "-r", tmp_path / "tree", f"asleep:{here}/")
    assert asleep.get(f"{here}/tree/sub/file").bytes == b"of the host"
    cove("cp", f"asleep:{here}/file", tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == b"real"
    cove("cp", "-r", f"asleep:{here}", tmp_path / "all")
    assert (tmp_path / "all/tree/sub/file").read_bytes() == b"of the host"
    assert state(asleep) == "stopped"
