"""Registered directories that are mounted into a sandbox that is there, and unmounted: by its tenant, kept over stops and
engines, and shown as they are."""
import pytest

import harness
import serving
from sandboxes import made, make, new_key, printed, run, start

NOTES = {"name": "notes", "target": "/work/notes"}
READ_ONLY = {**NOTES, "read_only": True}

nothing_left = serving.one_for_all()[0]


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    directory = tmp_path_factory.mktemp("given")
    (directory / "notes").mkdir(mode=0o755)
    (directory / "notes" / "a").write_text("from outside\n")
    (directory / "theirs").mkdir()
    return directory


def config(given):
    return ("[boxes]\npool = 1\nmemory = 256M\ndisk = 64M\n"
            f"[mounts]\nnotes = {given}/notes\ntheirs = {given}/theirs\n[mount_tenants]\ntheirs = team-b\n")


@pytest.fixture(scope="module")
def serve(tmp_path_factory, given):
    with serving.Serve(tmp_path_factory.mktemp("serve"), config(given)) as started:
        yield started


@pytest.fixture
def api(serve):
    with serve.client() as client:
        yield client


@pytest.fixture
def box(serve):
    with made(serve, privileges="system") as path:
        yield path


def mount(client, path, **fields):
    return client.post(f"{path}/mounts", {**NOTES, **fields})


def unmount(client, path, target="/work/notes"):
    return client.delete(f"{path}/mounts", query={"target": target})


def shown(client, path):
    return client.get(path).json["mounts"]


@pytest.mark.wall
def test_one_that_cannot_be_noted_is_taken_away_again(tmp_path, given, monkeypatch):
    monkeypatch.setenv("COVE_TEST_OFF", "mountnotes")
    with serving.Serve(tmp_path, config(given)) as serve, serve.client() as api:
        path = make(api)
        assert mount(api, path, read_only=True).refusal == (503, "capacity") and shown(api, path) == []
        harness.wait_for(lambda: printed(api, path, "grep -c work/notes /proc/self/mountinfo; true") == "0\n",
                         what="it to be taken away")


def test_one_comes_and_goes_while_its_commands_run(api, box):
    revision = api.get(box).json["revision"]
    process = start(api, box, "until test -e /work/notes/a; do sleep 0.05; done; cat /work/notes/a")
    answer = mount(api, box, read_only=True)
    assert answer.status == 200 and answer.json["mounts"] == [READ_ONLY] and answer.json["revision"] > revision
    assert api.get(f"{process}/wait").json["exit_code"] == 0
    assert mount(api, box, read_only=True).json["revision"] == answer.json["revision"]  # it is so already
    assert unmount(api, box).status == 204 and shown(api, box) == []
    assert printed(api, box, "ls /work/notes") == ""
    assert unmount(api, box).code == "mount_not_found"


def test_a_change_is_told(api, box):
    mount(api, box, read_only=True)
    unmount(api, box)
    changes = [event["reason"] for event in serving.told(api)
               if event["type"] == "sandbox.changed" and box.endswith(event["sandbox"])]
    assert changes == ["mounts", "mounts"]


@pytest.mark.wall
def test_it_is_written_only_where_no_set_id_file_can_be_left(api, box, given):
    assert mount(api, box).code == "mount_refused"
    assert shown(api, box) == []
    path = make(api, privileges="system", mountable=True)
    assert mount(api, path).status == 200
    run(api, path, "echo x >/work/notes/b; cp /bin/true /work/notes/s; chmod 4755 /work/notes/s")
    assert (given / "notes" / "b").stat().st_uid == (given / "notes").stat().st_uid
    assert (given / "notes" / "s").stat().st_mode & 0o6000 == 0
    assert api.delete(path).status == 204


@pytest.mark.wall
def test_another_tenants_directory_is_none(serve, api, box):
    for name in ("theirs", "nobodys", "Notes/.."):
        assert mount(api, box, name=name, read_only=True).code == "unknown_mount"
    key = new_key(api, tenant="team-b")
    with serve.tcp(key["secret"]) as theirs:
        assert mount(theirs, box, name="theirs").code == unmount(theirs, box).code == "sandbox_not_found"
        own = make(theirs, privileges="system")
        assert mount(theirs, own, name="theirs", read_only=True).status == 200
        assert mount(theirs, own, read_only=True, target="/x").code == "unknown_mount"
        assert theirs.delete(own).status == 204
    with serve.tcp(new_key(api, "read")["secret"]) as reader:
        assert mount(reader, box, read_only=True).code == unmount(reader, box).code == "forbidden"


@pytest.mark.wall
@pytest.mark.parametrize("target", ["/proc", "/proc/x", "/dev/shm", "/sys", "/", "/a/../b", "relative", "/a//b", "/a/./b", ""])
def test_a_target_that_is_none_is_refused(api, box, target):
    assert mount(api, box, target=target, read_only=True).code == "bad_request"
    assert unmount(api, box, target).code == "mount_not_found"


@pytest.mark.wall
def test_links_of_its_programs_lead_nowhere(api, box):
    run(api, box, "ln -s /etc /work")
    answer = mount(api, box, read_only=True)
    assert answer.code == "mount_refused" and "symlink" in answer.json["detail"], answer
    assert shown(api, box) == []
    assert "notes" not in printed(api, box, "cat /proc/self/mountinfo; ls /etc")


def test_two_do_not_meet(api, box):
    assert mount(api, box, read_only=True).status == 200
    assert mount(api, box, read_only=False).code == "mount_conflict"
    assert mount(api, box, target="/work", read_only=True).code == "mount_conflict"
    assert mount(api, box, target="/work/notes/deep", read_only=True).code == "mount_refused"  # it cannot be made there
    assert shown(api, box) == [READ_ONLY]


def test_what_is_used_stays(api, box):
    mount(api, box, read_only=True)
    process = start(api, box, "cd /work/notes && echo there && sleep 1000")
    harness.wait_for(lambda: api.get(f"{process}/output").bytes == b"there\n", what="it to be used")
    assert unmount(api, box).code == "mount_busy"
    assert shown(api, box) == [READ_ONLY] and printed(api, box, "cat /work/notes/a") == "from outside\n"
    assert api.delete(process).status in (200, 204)
    harness.wait_for(lambda: unmount(api, box).status == 204, what="it to be let go")


def test_it_is_kept_over_stops(api):
    path = make(api, disk_kind="persistent", privileges="system")
    assert mount(api, path, read_only=True).status == 200
    assert api.post(f"{path}/stop").json["mounts"] == [READ_ONLY]
    assert api.post(f"{path}/start").status == 200
    assert printed(api, path, "cat /work/notes/a") == "from outside\n"
    api.post(f"{path}/stop")
    assert unmount(api, path).status == 204
    assert mount(api, path, target="/other").status == 200  # to be written, for its next box is made for that
    assert api.post(f"{path}/start").json["mounts"] == [{**NOTES, "target": "/other", "read_only": False}]
    assert printed(api, path, "ls /work/notes; cat /other/a && touch /other/new && echo written") == "from outside\nwritten\n"
    assert unmount(api, path, "/other").status == 204  # what was there from the start
    assert api.delete(path).status == 204


def test_it_is_kept_over_engines(tmp_path, given):
    with serving.Serve(tmp_path, config(given)) as own:
        with own.client() as client:
            path = make(client, privileges="system")
            mount(client, path, read_only=True)
        own.kill_engine()
        own.wait_ready()
        with own.client() as client:
            assert shown(client, path) == [READ_ONLY] and printed(client, path, "cat /work/notes/a") == "from outside\n"
            assert unmount(client, path).status == 204 and printed(client, path, "ls /work/notes") == ""


def test_a_repeated_request_is_answered_as_the_first(api, box):
    headers = {"Idempotency-Key": "mount-once"}
    first = api.post(f"{box}/mounts", READ_ONLY, headers=headers)
    assert first.status == 200 and unmount(api, box).status == 204
    again = api.post(f"{box}/mounts", READ_ONLY, headers=headers)
    assert again.json == first.json and shown(api, box) == []
