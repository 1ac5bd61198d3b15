"""Disks of an ordinary user: watched directories, and the ids that are theirs as long as they are there."""
import contextlib
import fcntl
import os
import signal
import time

import pytest

import harness
import keepers
import serving
from keepers import Control, Keeper

DISK, OTHER = ("c0" + letter * 18 for letter in "de")
HOME = "/home/user"


def kept(disk=DISK, **more):
    return {"disk_kind": keepers.PERSISTENT, "disk": disk.encode(), **more}


@contextlib.contextmanager
def box_of(engine, disk=DISK, **more):
    """A box with that disk; its report is put into the dict at the end."""
    handle, control = engine.make(**kept(disk, **more))
    box = Control(control).wait_ready()
    box.report = {}
    try:
        yield box
    finally:
        box.close()
        box.report.update(engine.end(handle))


def boxed(engine, command, disk=DISK, **more):
    with box_of(engine, disk, **more) as box:
        return box.run(command)


def outer_id(engine, disk=DISK, **more):
    """As which id of the host the box's 0 appears."""
    return int(boxed(engine, "cat /proc/self/uid_map", disk, **more).split()[1])


def ephemeral_id(engine):
    handle, control = engine.make()
    box = Control(control).wait_ready()
    found = int(box.run("cat /proc/self/uid_map").split()[1])
    box.close()
    return handle, found


def use_up(engine):
    """Boxes with all ids that are left, or of who has very many, with many; {handle: id}"""
    made = {}
    while len(made) < 100:
        kind, _, body, fds = engine.ask(keepers.make)
        if kind == keepers.REFUSED:
            assert keepers.error_of(body)[0] == "capacity", keepers.error_of(body)
            return made
        handle = int.from_bytes(body[:8], "little")
        box = Control(fds[0]).wait_ready()
        made[handle] = int(box.run("cat /proc/self/uid_map").split()[1])
        box.close()
    return made


def disks(keeper):
    return sorted(path.name for path in (keeper.data / "disks").iterdir())


def ids_file(keeper, disk=DISK):
    return keeper.data / "disks" / disk / "ids"


def killed(keeper):
    """The keeper dies at once, as all of its processes do then."""
    keeper.process.kill()
    keeper.process.wait()
    keeper.__exit__()


# ---- whose the ids are -------------------------------------------------------------------------

def test_ids_are_the_same_for_life(stand_in, tmp_path):
    with Keeper(stand_in, tmp_path) as keeper:
        engine = keeper.greeted()
        first = outer_id(engine)
        assert harness.EXPECT.is_box_id(first)
        assert outer_id(engine, disk_new=0) == first
        assert str(first) in ids_file(keeper).read_text()
    keeper = Keeper(stand_in, tmp_path).start()
    _, control = keeper.greeted().make(**kept(disk_new=0))
    box = Control(control).wait_ready()
    assert int(box.run("cat /proc/self/uid_map").split()[1]) == first
    killed(keeper)
    with Keeper(stand_in, tmp_path) as second:
        assert outer_id(second.greeted(), disk_new=0) == first
    box.close()


def is_locked(disk):
    try:
        fcntl.flock(disk, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def test_whoever_gets_the_disk_of_a_killed_keeper_gets_its_ids(stand_in, tmp_path):
    """The guard of its box lets go of both, of the disk last."""
    with Keeper(stand_in, tmp_path) as keeper:
        outer_id(keeper.greeted())
    places = [place for first in keepers.ids_of_disks(keeper.data) for place in first]
    held = []
    for _ in range(10):
        keeper = Keeper(stand_in, tmp_path).start()
        _, control = keeper.greeted().make(**kept(disk_new=0))
        box = Control(control).wait_ready()
        disk = os.open(keeper.data / "disks" / DISK / "files", os.O_RDONLY | os.O_DIRECTORY)
        keeper.process.kill()
        keeper.process.wait()
        with keepers.open_ids_lock() as ids_lock:
            while is_locked(disk):
                continue
            held += [place for place in places if not keepers.is_free(ids_lock, place)]
        os.close(disk)
        killed(keeper)
        box.close()
    assert held == []


def test_nobody_else_gets_them(keeper):
    """Neither while the disk has no box, nor when there are no others left."""
    engine = keeper.greeted()
    first = outer_id(engine)
    made = use_up(engine)
    assert first not in made.values() and len(set(made.values())) == len(made)
    assert outer_id(engine, disk_new=0) == first
    if len(made) < 100:
        assert engine.refused(keepers.make, **kept(OTHER)) == "capacity"
        assert disks(keeper) == [DISK]
        # Dropped, they are somebody's again.
        assert engine.ask(keepers.drop_disk, DISK)[0] == keepers.DONE
        assert ephemeral_id(engine)[1] == first
    for handle in made:
        engine.end(handle)


def test_ids_that_are_not_given_any_more_are_no_others(keeper):
    engine = keeper.greeted()
    first = outer_id(engine)
    whole = ids_file(keeper).read_text()
    for text in (whole.replace(str(first), "2000"), whole.replace(str(first), f"0{first}"),
                 whole.replace("slice" if harness.EXPECT.ids == "slice" else "range", "single"),
                 whole.replace("range", "slice") if harness.EXPECT.ids == "range" else
                 whole.replace("slice", "range"),
                 whole.replace("disk 1", "disk 2"), whole + "x", whole[:-1], "", "\0" * 300):
        ids_file(keeper).write_text(text)
        kind, _, body, _ = engine.ask(keepers.make, **kept(disk_new=0))
        assert kind == keepers.REFUSED, text
        code, sentence = keepers.error_of(body)
        assert code == "disk_ids" and "remove the sandbox" in sentence or "run it as" in sentence, text
    ids_file(keeper).unlink()
    assert engine.refused(keepers.make, **kept(disk_new=0)) == "disk_ids"
    ids_file(keeper).symlink_to("/etc/passwd")
    assert engine.refused(keepers.make, **kept(disk_new=0)) == "disk_ids"
    ids_file(keeper).unlink()
    ids_file(keeper).write_text(whole)
    assert outer_id(engine, disk_new=0) == first


def test_two_keepers_never_lend_the_same_ids(stand_in, tmp_path):
    """Two data directories whose disks say the same: as of a copy. One box at a time."""
    places = [tmp_path / name for name in ("one", "two")]
    for place in places:
        place.mkdir()
    with Keeper(stand_in, places[0]) as one:
        engine = one.greeted()
        first = outer_id(engine)
        copy = places[1] / "copy"
        (copy / "files").mkdir(parents=True)
        (copy / "files").chmod(0o777)
        (copy / "ids").write_text(ids_file(one).read_text())
        with Keeper(stand_in, places[1]) as two:
            other = two.greeted()
            assert outer_id(other, OTHER) != first
            copy.rename(two.data / "disks" / DISK)
            assert other.refused(keepers.make, **kept(disk_new=0)) == "disk_in_use"
            assert outer_id(engine, disk_new=0) == first
            assert engine.ask(keepers.drop_disk, DISK)[0] == keepers.DONE
            assert outer_id(other, disk_new=0) == first


def test_a_disk_is_not_given_to_a_box_that_would_change_owners(keeper, tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    engine = keeper.greeted()
    assert keeper.give(given) == ""
    assert boxed(engine, f"echo x > {HOME}/file") == ""
    mounts = [(b"given", b"/mnt/given", 0)]
    assert engine.refused(keepers.make, **kept(mounts=mounts, disk_new=0)) == "disk_ids"
    assert boxed(engine, f"cat {HOME}/file") == "x\n"
    command = f"cat {HOME}/file 2>/dev/null; echo y > {HOME}/file; echo y > /mnt/given/file"
    assert boxed(engine, command, OTHER, mounts=mounts) == ""
    assert boxed(engine, command, OTHER, mounts=mounts, disk_new=0) == "y\n"
    assert (given / "file").stat().st_uid == os.getuid()


# ---- the limit ---------------------------------------------------------------------------------

SMALL = {"limit": keepers.limits(disk=16 << 20, inodes=2000)}


def overfill(engine, command, disk=DISK, **more):
    """The box ends by it, and says why; the host is as it was."""
    with box_of(engine, disk, **{**SMALL, **more}) as box:
        with box.start(command + "; sleep 100"):
            assert box.has_ended(60), command
    assert box.report["disk_exceeded"], command
    harness.check_host_healthy()


def test_the_limit_holds_over_a_stop_and_deleting_helps(keeper):
    engine = keeper.greeted()
    block = "head -c 10M /dev/zero >"
    assert boxed(engine, f"{block} {HOME}/a; stat -c %s {HOME}/a", **SMALL) == f"{10 << 20}\n"
    overfill(engine, f"{block} {HOME}/b")
    # It is over its limit now. That does not end the next box, but more does, however soon it comes.
    overfill(engine, f"{block} {HOME}/c")
    overfill(engine, f"sleep 2; {block} {HOME}/d")
    printed = boxed(engine, f"sleep 1; rm {HOME}/*; sleep 1; {block} {HOME}/a; sleep 1; ls {HOME}",
                    **SMALL)
    assert printed == "a\n"
    overfill(engine, f"{block} {HOME}/b")


@pytest.mark.parametrize("name,command", {
    "many files": "cd; i=0; while :; do i=$((i+1)); : > $i; done",
    "many links to nothing": "python3 -c 'import os\nfor i in range(10**7): os.symlink(\"x\", f\"/tmp/{i}\")'",
    "one large file": "fallocate -l 15M /tmp/a; fallocate -l 15M /tmp/b",
    "large files": "i=0; while :; do i=$((i+1)); head -c 1M /dev/zero > /tmp/$i; done",
    "files without a name": "exec 3>/tmp/a 4>/tmp/b 5>/tmp/c; rm /tmp/*; head -c 9M /dev/zero >&3;"
                            "head -c 9M /dev/zero >&4; head -c 9M /dev/zero >&5",
    "a deep tree": "cd; python3 -c 'import os\nfor i in range(10**5): os.mkdir(\"d\"); os.chdir(\"d\")'",
    "the home and /tmp": f"head -c 9M /dev/zero > {HOME}/a; head -c 9M /dev/zero > /tmp/a",
}.items())
def test_what_fills_a_disk_ends_its_box(keeper, name, command):
    engine = keeper.greeted()
    overfill(engine, f"export HOME={HOME}; {command}")
    assert engine.ask(keepers.drop_disk, DISK)[0] == keepers.DONE
    harness.wait_for(lambda: disks(keeper) == [], 60 * harness.PATIENCE, f"the end of {name}")


# made() is a file without a name, whose fd is kept or not.
HIDE = """import ctypes, mmap, os, threading, time
keep = []
def made(name="x", size=9 << 20):
    path = "HOME/" + name
    os.makedirs(os.path.dirname(path), exist_ok=True)
    f = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(f, b"x" * size)
    os.unlink(path)
    return f
def mapped(name="x", **how):
    for _ in range(3):
        f = made(name)
        keep.append(mmap.mmap(f, 9 << 20, **how))
        # The module has a copy of the fd, which it would keep.
        for number in range(3, 64):
            try: os.close(number)
            except OSError: pass
"""


@pytest.mark.parametrize("name,command", {
    "mapped to be read": "mapped(prot=mmap.PROT_READ)",
    "mapped for itself": "mapped(flags=mmap.MAP_PRIVATE)",
    "mapped by a long name": "mapped('/'.join(['y' * 250] * 3))",
    "fds of a thread": "def other():\n"
                       " if ctypes.CDLL(None).unshare(0x400): os._exit(9)\n"
                       " for _ in range(3): made()\n"
                       " time.sleep(100)\n"
                       "threading.Thread(target=other).start()",
    "fds of a thread without the first": "def other():\n"
                                         " time.sleep(1)\n"
                                         " for _ in range(3): made()\n"
                                         " time.sleep(100)\n"
                                         "threading.Thread(target=other).start()\n"
                                         "ctypes.CDLL(None).syscall(60, 0)",
}.items())
def test_files_without_a_name_cannot_hide(keeper, name, command):
    script = (HIDE + command + "\ntime.sleep(100)").replace("HOME", HOME).replace("'", '"')
    overfill(keeper.greeted(), f"python3 -c '{script}'")


def test_a_file_that_threads_share_counts_once(keeper):
    command = ("for _ in range(5): threading.Thread(target=time.sleep, args=(3,)).start()\n"
               "keep.append(mmap.mmap(made(), 9 << 20))\ntime.sleep(2)\nprint('lives')")
    script = (HIDE + command).replace("HOME", HOME).replace("'", '"')
    assert boxed(keeper.greeted(), f"python3 -c '{script}'", **SMALL) == "lives\n"


def test_a_disk_that_is_far_over_its_limit_is_not_started(keeper):
    """Else a burst at each start would add up."""
    engine = keeper.greeted()
    assert boxed(engine, f"for i in $(seq 20); do fallocate -l 15M {HOME}/$i; done",
                 limit=keepers.limits(disk=1 << 30, inodes=2000)) == ""
    handle, control = engine.make(**kept(disk_new=0, **SMALL))
    _, _, said = Control(control).receive()
    assert said[4:].startswith(b"disk_exceeded\0") and b"remove the sandbox" in said, said
    engine.end(handle)


def test_what_takes_no_room_does_not_count(keeper):
    """Sparse files; memory that is shared has a name in /proc that ends like that of a deleted file."""
    engine = keeper.greeted()
    share = ("import mmap, os, time\nm = mmap.mmap(-1, 40 << 20)\nm.write(b'x' * (40 << 20))\n"
             "f = os.memfd_create('x')\nos.truncate(f, 40 << 20)\n"
             "n = mmap.mmap(f, 40 << 20)\nn.write(b'x' * (40 << 20))\n"
             "s = os.open('/dev/shm', os.O_TMPFILE | os.O_RDWR)\nos.write(s, b'x' * (8 << 20))\n"
             "time.sleep(2)\nprint('lives')")
    if not harness.EXPECT.has_cgroup:  # there it has no memfd, and shares no memory without a file
        share = share.replace("mmap(-1, 40 << 20)", "mmap(-1, 40 << 20, mmap.MAP_PRIVATE)"
                              ).replace("os.memfd_create('x')", "os.open('/dev/shm/y', os.O_CREAT | os.O_RDWR)"
                              ).replace("40 << 20", "8 << 20")
    printed = boxed(engine, f"for i in 1 2 3 4 5 6 7 8; do truncate -s 15M /tmp/$i; done; "
                    f"python3 -c \"{share}\"", **SMALL)
    assert printed == "lives\n"


def test_a_box_ends_with_whoever_watches_its_disk(keeper):
    engine = keeper.greeted()
    with box_of(engine) as box:
        with box.start("sleep 100"):
            guards = harness.children_of(keeper.process.pid)
            watchers = [pid for guard in guards for pid in harness.children_of(guard)
                        if harness.status_of(pid).get("Name") == "cove-disk"]
            assert len(watchers) == 1, watchers
            with contextlib.suppress(PermissionError):  # it is root of the box
                os.kill(watchers[0], signal.SIGKILL)
                assert box.has_ended()
                return
        inside = f"kill -9 {watchers[0]}"
        assert "No such process" in box.run(f"{inside} 2>&1 || true")


# ---- removal -----------------------------------------------------------------------------------

def large(engine, disk=DISK):
    """Files of several ids, modes that keep their owner out, and many."""
    script = ("cd; python3 -c 'import os\n"
              "for i in range(60):\n os.mkdir(str(i))\n"
              " for k in range(100): open(f\"{i}/{k}\", \"w\").close()\n"
              " os.symlink(\"/etc\", f\"{i}/link\")\n os.chmod(str(i), 0)\n'; echo done")
    more = {"limit": keepers.limits(inodes=20000), "privileges": keepers.SYSTEM}
    with box_of(engine, disk, **more) as box:
        assert box.run("export HOME=/root; mkdir -p /tmp/a; chown 5:6 /tmp/a; " + script, 0) == "done\n"


def test_a_keeper_that_is_killed_while_a_disk_is_removed_leaves_nothing(stand_in, tmp_path):
    for pause in (0, 0.02, 0.1):
        keeper = Keeper(stand_in, tmp_path).start()
        engine = keeper.greeted()
        large(engine)
        engine.send(keepers.drop_disk(engine.next_id(), DISK))
        time.sleep(pause)
        killed(keeper)
        with Keeper(stand_in, tmp_path) as second:
            engine = second.greeted()
            if DISK in disks(second):
                assert engine.ask(keepers.drop_disk, DISK)[0] == keepers.DONE
            harness.wait_for(lambda: disks(second) == [], 30 * harness.PATIENCE, "the end of it")


def test_removal_stays_in_the_disk_and_holds_nobody_up(stand_in, tmp_path):
    """A tree that is as deep as somebody had time for, and a link out of it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("stays")
    keeper = Keeper(stand_in, tmp_path)
    gone = keeper.data / "disks" / f"{DISK}.00000000.gone"
    (gone / "files").mkdir(parents=True)
    os.symlink(outside, gone / "files" / "link")
    (keeper.data / "disks").chmod(0o700)
    here = os.open(gone / "files", os.O_RDONLY)
    for _ in range(harness.scaled(2000)):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with keeper:
        engine = keeper.greeted()
        assert boxed(engine, "echo on") == "on\n"
        harness.wait_for(lambda: disks(keeper) == [DISK], 60 * harness.PATIENCE, "the end of it")
    assert (outside / "file").read_text() == "stays"


def test_a_disk_that_was_not_finished_is_none(stand_in, tmp_path):
    keeper = Keeper(stand_in, tmp_path)
    half = keeper.data / "disks" / f"{DISK}.new" / "files"
    half.mkdir(parents=True)
    (keeper.data / "disks").chmod(0o700)
    with keeper:
        engine = keeper.greeted()
        assert engine.refused(keepers.make, **kept(disk_new=0)) == "disk_lost"
        assert disks(keeper) == []
        assert boxed(engine, "echo on") == "on\n"


# ---- through the engine ------------------------------------------------------------------------

CONFIG = "[boxes]\npool = 1\nmemory = 128M\ndisk = 16M\nheadroom_disk = 64M\n"


@pytest.mark.parametrize("privileges,home", [("plain", HOME), ("system", "/root")])
def test_a_sandbox_outlives_whatever_runs_it(tmp_path, privileges, home):
    """A reboot is a keeper that is killed, and another one, later."""
    with serving.Serve(tmp_path, CONFIG) as serve, serve.client() as client:
        made = client.post("/v1/sandboxes", {"name": "work", "privileges": privileges}).json
        path = f"/v1/sandboxes/{made['id']}"
        command = f"echo 1 > {home}/file; echo 2 > /tmp/file; chmod 700 {home} /tmp/file"
        assert client.post(f"{path}/exec", {"command": command}).json["process"]["exit_code"] == 0
        serve.kill_engine()
        serve.process.kill()
        serve.process.wait()
    with serving.Serve(tmp_path, CONFIG) as serve, serve.client() as client:
        # Those of the pool are dropped, which a new engine does.
        found = client.get(path).json
        assert (found["state"], found["reason"]) == ("stopped", "keeper_lost"), found
        ran = client.post(f"{path}/exec", {"command": f"cat {home}/file /tmp/file", "start": True})
        assert ran.json["stdout"] == "1\n2\n", ran
        assert client.delete(path).status == 204
        harness.wait_for(lambda: len(os.listdir(serve.data / "disks")) <= 1, what="the disk's end")


def test_a_sandbox_that_fills_its_disk_says_so_and_can_be_saved(tmp_path):
    with serving.Serve(tmp_path, CONFIG) as serve, serve.client() as client:
        made = client.post("/v1/sandboxes", {"privileges": "system"}).json
        path = f"/v1/sandboxes/{made['id']}"
        fill = "for i in 1 2 3; do head -c 9M /dev/zero > /root/$i; done; sleep 100"
        client.post(f"{path}/exec", {"command": fill})
        harness.wait_for(lambda: client.get(path).json["state"] == "stopped", what="its end")
        assert client.get(path).json["reason"] == "disk_exceeded"
        ran = client.post(f"{path}/exec", {"command": "rm /root/*; sleep 1; ls -A /root | wc -l",
                                           "start": True})
        assert ran.json["stdout"] == "0\n", ran
        assert client.get(path).json["state"] == "running"
        assert client.delete(path).status == 204


def test_a_write_that_a_full_disk_ends_says_so_and_not_that_it_may_be_sent_again(tmp_path):
    with serving.Serve(tmp_path, CONFIG) as serve, serve.client() as client, serve.client() as other:
        made = client.post("/v1/sandboxes", {"privileges": "system"}).json
        path = f"/v1/sandboxes/{made['id']}"
        other.send("PUT", f"{path}/files", b"half", {"Content-Length": "8"}, {"path": "/root/half"})
        harness.wait_for(lambda: "cove-tool" in client.post(f"{path}/exec", {"command": "cat /proc/[0-9]*/comm"}).json["stdout"],
                         what="its tool")
        client.post(f"{path}/exec", {"command": "for i in 1 2 3; do head -c 9M /dev/zero > /root/$i; done; sleep 100"})
        answer = other.receive()
        assert (answer.status, answer.code) == (507, "disk_full"), answer
        harness.wait_for(lambda: client.get(path).json["reason"] == "disk_exceeded", what="its end")


def test_the_host_says_that_disks_are_watched(tmp_path):
    with serving.Serve(tmp_path, CONFIG) as serve, serve.client() as client:
        host = client.get("/v1/version").json
        assert host["disk"] == "watched" and any("kept" in said for said in host["warnings"])
