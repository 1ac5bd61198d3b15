"""Mounts of boxes while a file system of the host does not answer: that holds up one change for a time, and neither other
boxes nor an upgrade. A change whose process was killed is found out to be done or not."""
import concurrent.futures
import contextlib
import os
import pathlib
import signal
import subprocess

import pytest

import harness
import serving
from sandboxes import EPHEMERAL, create, new_key, path_of, run

CHANGE_S, KILL_S = 10, 1  # of src/keeper/mounts.c
BELOW = "/mnt/silent/deep/given"


@pytest.fixture
def silent(tmp_path, request):
    """A file system that answers until it is told not to."""
    directory = tmp_path / "silent"
    directory.mkdir()
    more = [request.param] if hasattr(request, "param") else []
    with subprocess.Popen(["/usr/bin/python3", harness.BOX_TESTS / "hanging_files.py", directory, *more],
                          stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout.readline() == b"ready\n"
            yield server
        finally:
            server.kill()
            subprocess.run(["umount", "-l", directory], capture_output=True, check=False)


def started(tmp_path, more=""):
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "a").write_text("from outside\n")
    config = (f"[boxes]\npool = 0\nmemory = 256M\ndisk = 64M\n"
              f"[mounts]\nsilent = {tmp_path}/silent\ngiven = {tmp_path}/given\n{more}"
              "[mount_tenants]\nsilent = *\ngiven = *\n")
    return serving.Serve(tmp_path / "serve", config, clock=True)


@pytest.fixture
def serve(tmp_path, silent):
    assert silent
    with started(tmp_path) as serve:
        yield serve


def mount(serve, path, target="/mnt/given", name="given", key=None):
    with serve.tcp(key) if key else serve.client() as client:
        return client.post(f"{path}/mounts", {"name": name, "target": target, "read_only": True})


def unmount(serve, path, target="/mnt/given"):
    with serve.client() as client:
        return client.delete(f"{path}/mounts", query={"target": target})


def shown(serve, path):
    with serve.client() as client:
        return [mounted["target"] for mounted in client.get(path).json["mounts"]]


def prints(serve, path, command):
    with serve.client() as client:
        return run(client, path, command)["stdout"]


def made(serve, key=None):
    """A box that has the file system, and another one."""
    with serve.tcp(key) if key else serve.client() as client:
        paths = [path_of(create(client)) for _ in range(2)]
    assert mount(serve, paths[0], "/mnt/silent", "silent", key).status == 200
    return paths


@contextlib.contextmanager
def mounting(serve, server, path, target=BELOW):
    """Mounts meanwhile; for what it was answered."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            yield pool.submit(mount, serve, path, target)
        except BaseException:
            server.kill()  # so that nothing is waited for
            raise


def mounters(serve):
    pids = harness.children_of(serve.process.pid)
    return [pid for pid in pids if harness.status_of(pid).get("Name") == "cove-mount"]


def boxes_of(serve):
    """Processes of those that no zygote makes, in their set-up or after it."""
    pids = harness.children_of(serve.process.pid)
    return [pid for pid in pids if harness.status_of(pid).get("Name") in ("cove-keeper", "cove-init")]


def take_too_long(serve, seconds=CHANGE_S):
    serve.clock.advance(seconds, awaits=("keeper",))


def mend(server):
    server.send_signal(signal.SIGCONT)
    server.terminate()
    server.wait()


def test_one_that_does_not_answer_holds_up_one_change_for_a_time(serve, silent):
    box, other = made(serve)
    silent.send_signal(signal.SIGUSR1)
    with mounting(serve, silent, box) as answer:
        assert silent.stdout.readline() == b"asked\n"
        assert mount(serve, other).status == 200 and unmount(serve, other).status == 204
        take_too_long(serve)
        take_too_long(serve, KILL_S)  # the kernel does not let go of it
        assert answer.result().code == "capacity" and "does not answer" in answer.result().json["detail"]
    assert shown(serve, box) == ["/mnt/silent"]
    assert "does not answer" in mount(serve, box).json["detail"]
    assert mount(serve, other).status == 200
    mend(silent)
    harness.wait_for(lambda: mount(serve, box).status == 200, what="the change to end")
    assert not mounters(serve) and prints(serve, box, "cat /mnt/given/a") == "from outside\n"


def test_an_upgrade_does_not_wait_for_one_that_hangs(serve, silent):
    box, other = made(serve)
    silent.send_signal(signal.SIGUSR1)
    old = serve.engine_pid()
    with mounting(serve, silent, box):
        assert silent.stdout.readline() == b"asked\n"
        serve.process.send_signal(signal.SIGHUP)
        harness.wait_for(lambda: "draining" in serve.said(), what="the engine to end")
        os.kill(old, signal.SIGKILL)  # it would wait for the answer
        harness.wait_for(lambda: serve.engine_pid() is None, what="its end")
        take_too_long(serve)
        take_too_long(serve, KILL_S)
    serve.wait_next_engine(old)
    assert mounters(serve) and "does not answer" in mount(serve, box).json["detail"]
    assert mount(serve, other).status == 200 and prints(serve, box, "echo well") == "well\n"
    mend(silent)
    harness.wait_for(lambda: mount(serve, box).status == 200, what="the change to end")
    assert not mounters(serve)


def test_those_that_hang_take_no_place_of_other_boxes(serve, silent):
    """Sixteen are changed at once, eight of one tenant."""
    _, other = made(serve)
    with serve.client() as client:
        keys = (None, new_key(client, tenant="another")["secret"])
    boxes = [(made(serve, key)[0], key) for key in keys for _ in range(8)]
    silent.send_signal(signal.SIGUSR1)
    with concurrent.futures.ThreadPoolExecutor(len(boxes)) as pool:
        answers = [pool.submit(mount, serve, box, BELOW, key=key) for box, key in boxes]
        try:
            harness.wait_for(lambda: len(mounters(serve)) == len(boxes), what="all to hang")
            take_too_long(serve)
            take_too_long(serve, KILL_S)
            assert {answer.result().code for answer in answers} == {"capacity"}
            assert len(mounters(serve)) == len(boxes) and mount(serve, other).status == 200
        finally:
            mend(silent)
    harness.wait_for(lambda: not mounters(serve), what="the changes to end")


def stopped(server):
    harness.wait_for(lambda: harness.status_of(server.pid)["State"].startswith("T"), what="it to stop")


@pytest.mark.parametrize("silent", ["given"], indirect=True)
def test_a_mount_made_by_a_killed_process_is_kept(serve, silent):
    """It has mounted it, and waits where it sees after it."""
    box, _ = made(serve)
    with mounting(serve, silent, box) as answer:
        stopped(silent)
        take_too_long(serve)
        assert answer.result().status == 200
    silent.send_signal(signal.SIGCONT)
    assert BELOW in shown(serve, box) and prints(serve, box, f"cat {BELOW}/a") == "from outside\n"
    assert unmount(serve, box, BELOW).status == 204 and prints(serve, box, "grep -c given /proc/self/mountinfo") == "0\n"


@pytest.mark.wall
@pytest.mark.parametrize("silent", ["given"], indirect=True)
def test_a_mount_that_a_killed_process_left_elsewhere_is_taken_away(serve, silent, tmp_path):
    """At the target or nowhere; what is above was moved before it had looked where its mount is."""
    (tmp_path / "given" / "x y" / "silent").mkdir(parents=True)
    with serve.client() as client:
        box = path_of(create(client))
    assert mount(serve, box).status == 200
    assert mount(serve, box, "/mnt/given/x y/silent", "silent").status == 200
    with mounting(serve, silent, box, "/mnt/given/x y/silent/deep/given") as answer:
        stopped(silent)
        (tmp_path / "given" / "x y").rename(tmp_path / "given" / "z z")
        take_too_long(serve)
        assert answer.result().code == "capacity"
    silent.send_signal(signal.SIGCONT)
    harness.wait_for(lambda: prints(serve, box, "grep -c deep/given /proc/self/mountinfo; true") == "0\n" and
                     not mounters(serve), what="it to be taken away")
    assert shown(serve, box) == ["/mnt/given", "/mnt/given/x y/silent"]


@pytest.mark.wall
@pytest.mark.parametrize("silent", ["given"], indirect=True)
def test_a_mount_that_comes_too_late_is_taken_away(serve, silent):
    """Nothing is mounted that is not shown."""
    box, _ = made(serve)
    with mounting(serve, silent, box) as answer:
        stopped(silent)
        silent.send_signal(signal.SIGUSR1)
        silent.send_signal(signal.SIGCONT)
        assert silent.stdout.readline() == b"asked\n"
        take_too_long(serve)
        take_too_long(serve, KILL_S)
        assert answer.result().code == "capacity"
    assert shown(serve, box) == ["/mnt/silent"]
    assert prints(serve, box, "grep -c given /proc/self/mountinfo") == "1\n", "nobody could look"
    silent.send_signal(signal.SIGUSR2)
    harness.wait_for(lambda: prints(serve, box, "grep -c given /proc/self/mountinfo") == "0\n" and not mounters(serve),
                     what="it to be taken away")


# ---- boxes that are made with it ---------------------------------------------------------------

SILENT = {"name": "silent", "target": "/mnt/silent", "read_only": True}
GIVEN = {"name": "given", "target": "/mnt/given", "read_only": True}
forgetful = pytest.mark.parametrize("silent", ["--forget"], indirect=True)


@contextlib.contextmanager
def asking(serve, server, count, ask):
    """Asks so many times at once; for what they were answered."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        try:
            yield [pool.submit(ask) for _ in range(count)]
        except BaseException:
            server.kill()  # so that nothing is waited for
            raise


def creating(serve, *mounts, key=None, **fields):
    def ask():
        with serve.tcp(key) if key else serve.client() as client:
            return client.post("/v1/sandboxes", {**EPHEMERAL, "mounts": mounts, **fields})
    return ask


def starting(serve, path):
    def ask():
        with serve.client() as client:
            return client.post(f"{path}/start")
    return ask


def others_go_on(serve, box):
    assert prints(serve, box, "echo well") == "well\n"
    for mounts in ([], [GIVEN]):
        with serve.client() as client:
            path = path_of(create(client, mounts=mounts))
            assert run(client, path, f"cat {GIVEN['target']}/a")["stdout"] == ("from outside\n" if mounts else "")
            assert client.delete(path).status in (202, 204)


@forgetful
def test_a_create_fails_after_a_time_and_holds_up_nobody(serve, silent):
    with serve.client() as client:
        box = path_of(create(client))
    silent.send_signal(signal.SIGUSR1)
    with asking(serve, silent, 1, creating(serve, GIVEN, SILENT)) as answers:
        assert silent.stdout.readline() == b"asked\n"
        others_go_on(serve, box)
        take_too_long(serve)
        take_too_long(serve, KILL_S)  # the kernel does not let go of it
        answer = answers[0].result()
    assert answer.code == "capacity" and "silent at /mnt/silent" in answer.json["detail"], answer.json
    assert "does not answer" in answer.json["detail"]
    others_go_on(serve, box)
    mend(silent)
    harness.wait_for(lambda: not mounters(serve), what="the process to end")


@forgetful
def test_a_start_fails_after_a_time_and_comes_when_it_answers_again(serve, silent):
    with serve.client() as client:
        box = path_of(create(client))
        kept = path_of(create(client, disk_kind="persistent", mounts=[SILENT]))
        assert client.post(f"{kept}/stop").status == 200
    silent.send_signal(signal.SIGUSR1)
    with asking(serve, silent, 1, starting(serve, kept)) as answers:
        assert silent.stdout.readline() == b"asked\n"
        others_go_on(serve, box)
        take_too_long(serve)
        take_too_long(serve, KILL_S)
        answer = answers[0].result()
    assert answer.code == "capacity" and "silent at /mnt/silent" in answer.json["detail"], answer.json
    silent.send_signal(signal.SIGUSR2)
    assert starting(serve, kept)().status == 200
    assert prints(serve, kept, "ls -d /mnt/silent") == "/mnt/silent\n"


@pytest.mark.parametrize("silent", ["deep"], indirect=True)
def test_a_set_up_fails_after_a_time_and_holds_up_nobody(serve, silent):
    """It has opened both, and waits on the way to the target of the second."""
    with serve.client() as client:
        box = path_of(create(client))
    with asking(serve, silent, 1, creating(serve, SILENT, {**GIVEN, "target": BELOW})) as answers:
        stopped(silent)
        others_go_on(serve, box)
        # And one of its own, which has ended.
        hanging = min(pid for pid in boxes_of(serve) if harness.status_of(pid).get("Name") == "cove-keeper")
        held = [os.readlink(fd) for fd in pathlib.Path(f"/proc/{hanging}/fd").iterdir()]
        assert not [path for path in held if str(serve.directory) in path], "it holds the keeper's files"
        take_too_long(serve)
        answer = answers[0].result()
    assert answer.code == "capacity" and "silent, given" in answer.json["detail"], answer.json
    others_go_on(serve, box)
    harness.wait_for(lambda: not boxes_of(serve), what="the end of the box")
    mend(silent)


@pytest.mark.wall
@forgetful
def test_a_tenant_has_few_that_hang_and_others_mount_meanwhile(serve, silent):
    """Sixteen of one tenant: changes of boxes that run, and creates."""
    with serve.client() as client:
        keys = [new_key(client, tenant=tenant)["secret"] for tenant in ("many", "other")]
    boxes = [made(serve, keys[0])[0] for _ in range(8)]
    with serve.tcp(keys[1]) as client:
        other = path_of(create(client))
    silent.send_signal(signal.SIGUSR1)
    changes = iter(boxes)
    for ask in (lambda: mount(serve, next(changes), BELOW, key=keys[0]), creating(serve, SILENT, key=keys[0])):
        hanging = len(mounters(serve))
        with asking(serve, silent, 8, ask) as answers:
            harness.wait_for(lambda: len(mounters(serve)) == hanging + 8, what="all to hang")
            assert mount(serve, other, key=keys[1]).status == 200 and unmount(serve, other).status == 204
            take_too_long(serve)
            take_too_long(serve, KILL_S)
            assert {answer.result().code for answer in answers} == {"capacity"}
    refused = creating(serve, GIVEN, key=keys[0])()
    assert refused.code == "capacity" and "16 mounts of this tenant" in refused.json["detail"], refused.json
    assert len(mounters(serve)) == 16
    assert creating(serve, GIVEN, key=keys[1])().status == 201 and mount(serve, other, key=keys[1]).status == 200
    mend(silent)
    harness.wait_for(lambda: not mounters(serve), what="them to end")
    assert creating(serve, GIVEN, key=keys[0])().status == 201


# ---- names that lead there ---------------------------------------------------------------------

INSIDE = {"name": "inside", "target": "/mnt/inside", "read_only": True}


def finders(serve):
    pids = harness.children_of(serve.process.pid)
    return [pid for pid in pids if harness.status_of(pid).get("Name") == "cove-name"]


def test_a_start_does_not_wait_for_it_and_the_name_comes_when_it_answers(tmp_path, silent):
    silent.send_signal(signal.SIGUSR1)
    with started(tmp_path, f"inside = {tmp_path}/silent/deep/given\n") as serve:
        with serve.client() as client:
            box = path_of(create(client))
        assert "does not answer" in serve.said() and len(finders(serve)) == 1
        assert creating(serve, INSIDE)().code == "unknown_mount"
        assert creating(serve, GIVEN)().status == 201
        silent.send_signal(signal.SIGUSR2)
        harness.wait_for(lambda: creating(serve, INSIDE)().status == 201, what="the name to lead there")
        assert not finders(serve) and prints(serve, box, "echo well") == "well\n"


def test_a_reload_does_not_wait_for_it(tmp_path, silent):
    with started(tmp_path, f"inside = {tmp_path}/silent/deep/given\n") as serve:
        with serve.client() as client:
            box = path_of(create(client))
        assert creating(serve, INSIDE)().status == 201
        silent.send_signal(signal.SIGUSR1)
        for _ in range(2):
            old = serve.engine_pid()
            serve.process.send_signal(signal.SIGHUP)
            harness.wait_for(lambda old=old: serve.engine_pid() not in (None, old), 20 * harness.PATIENCE,
                             "the next engine")
            serve.wait_ready()
        assert prints(serve, box, "echo well") == "well\n" and len(finders(serve)) == 2
        assert creating(serve, GIVEN)().status == 201 and creating(serve, INSIDE)().code == "unknown_mount"
        silent.send_signal(signal.SIGUSR2)
        harness.wait_for(lambda: creating(serve, INSIDE)().status == 201, what="the name to lead there")
        assert not finders(serve)


@pytest.mark.wall
@forgetful
def test_a_name_that_was_registered_anew_meanwhile_gives_no_rights(tmp_path, serve, silent):
    """The old name led to the open directory, and the new one would say whether it may be written to."""
    def cove(*words):
        done = harness.cove("mount", *words, env={**os.environ, "COVE_URL": f"unix:{serve.socket}"})
        assert done.code == 0, done.err
    cove("add", "moving", tmp_path / "silent", "--read-only")
    silent.send_signal(signal.SIGUSR1)
    with asking(serve, silent, 1, creating(serve, {"name": "moving", "target": "/mnt/moving"})) as answers:
        assert silent.stdout.readline() == b"asked\n"
        cove("rm", "moving")
        cove("add", "moving", tmp_path / "given")
        silent.send_signal(signal.SIGUSR2)
        answer = answers[0].result()
    assert answer.code == "unknown_mount" and "registered anew" in answer.json["detail"], answer.json
