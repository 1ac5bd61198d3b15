"""Files of sandboxes that are stopped and keep their disk: a box stands for them, quietly. Only root's keeper
keeps disks."""
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "box"))
sys.path.insert(0, str(HERE))
import harness  # noqa: E402
import serving  # noqa: E402
from test_files import Files  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_left():
    """One engine serves all tests of this file, so it is after the last that nothing may be left."""


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    with serving.Serve(tmp_path_factory.mktemp("serve"), "[boxes]\npool = 0\n") as started:
        yield started


@pytest.fixture
def stopped(serve):
    with serve.client() as client:
        answer = client.post("/v1/sandboxes", {"disk_kind": "persistent"})
        assert answer.status == 201, answer
        path = answer.headers["Location"]
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
    assert stopped.stat("/root").status == 200
    assert boxes(serve) == 1
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
    assert stopped.stat("/root").status == 200
    assert stopped.client.get("/v1/tenants/default/quota").json["used"]["memory_bytes"] > idle


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
    assert boxes(serve) == 1


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
