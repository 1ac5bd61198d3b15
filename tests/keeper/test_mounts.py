"""Directories that come to boxes which run, and leave them again: by registered names, and only where the target is, whatever
the programs of the box do with it meanwhile."""
import collections
import contextlib
import os
import pathlib
import shutil
import time

import pytest

import harness
import keepers
from keepers import Control

pytestmark = pytest.mark.wall

ROOT_SYSTEM = {"privileges": keepers.SYSTEM}


@pytest.fixture
def given(tmp_path):
    directory = tmp_path / "given"
    directory.mkdir(mode=0o755)
    (directory / "a").write_text("from outside\n")
    return directory


@pytest.fixture
def image(tmp_path, keeper):
    """A root that is registered: one shell and its links."""
    root = tmp_path / "root"
    for name in ("bin", "etc", "tmp"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for name in ("sh", "cat", "grep", "ln", "ls", "mkdir", "mv", "rm", "rmdir"):
        (root / "bin" / name).symlink_to("busybox")
    assert keeper.give(root, b"small", keepers.ROOT) == ""
    return {"root": b"small"}


class Box:
    """One that is a sandbox's, in which commands run."""

    def __init__(self, engine, **more):
        self.engine = engine
        self.handle, control = engine.make(owner=keepers.OWNER.encode(), **more)
        self.control = Control(control).wait_ready()

    def ask(self, function, *arguments, **more):
        kind, _, body, fds = self.engine.ask(function, self.handle, *arguments, **more)
        assert kind in (keepers.DONE, keepers.REFUSED) and not fds, kind
        return "" if kind == keepers.DONE else keepers.error_of(body)[0]

    def attach(self, target="/mnt/given", name="given", read_only=1, **more):
        return self.ask(keepers.attach, name.encode(), target.encode(), read_only, **more)

    def detach(self, target="/mnt/given"):
        return self.ask(keepers.detach, target.encode())

    def run(self, command, uid=None):
        return self.control.run(command, uid)

    def end(self):
        self.control.close()
        self.engine.end(self.handle)


@pytest.fixture
def engine(keeper, given):
    assert keeper.give(given, b"given") == ""
    engine = keeper.greeted()
    return engine


def mounts_in(box, uid=None):
    """What is mounted, and with which options."""
    lines = [line.split() for line in box.run("cat /proc/self/mountinfo", uid).splitlines()]
    return {line[4]: set(line[5].split(",")) for line in lines}


@pytest.mark.parametrize("way", ["zygote", "cold"])
@pytest.mark.parametrize("privileges", [keepers.PLAIN, keepers.SYSTEM])
def test_mounted_and_unmounted_while_it_runs(engine, given, privileges, way):
    """Its owner's files are those of the box's user, it has the flags of one at the start, and nothing is left of it."""
    uid = 0 if privileges == keepers.SYSTEM else None
    mounts = [] if way == "zygote" else [(b"given", b"/mnt/first", 0)]
    box = Box(engine, privileges=privileges, mounts=mounts, takes_mounts=1)
    before = set(mounts_in(box, uid))
    assert box.attach("/mnt/deep/given", read_only=0) == ""
    assert box.run("cat /mnt/deep/given/a; echo inside >/mnt/deep/given/b; stat -c %u /mnt/deep/given/b; id -u",
                   uid).split("\n")[0] == "from outside"
    assert (given / "b").read_text() == "inside\n" and (given / "b").stat().st_uid == given.stat().st_uid
    now = mounts_in(box, uid)
    assert {"rw", "nosuid", "nodev"} <= now["/mnt/deep/given"]
    assert set(now) - before == {"/mnt", "/mnt/deep", "/mnt/deep/given"} - before
    assert box.attach("/mnt/deep/given", read_only=0) == ""  # it is so already
    assert len([line for line in box.run("cat /proc/self/mountinfo", uid).splitlines()
                if " /mnt/deep/given " in line]) == 1
    assert box.detach("/mnt/deep/given") == ""
    assert set(mounts_in(box, uid)) == before
    assert box.run("ls /mnt/deep/given; ls -d /mnt/deep/given", uid) == "/mnt/deep/given\n"
    assert box.detach("/mnt/deep/given") == "mount_not_found"
    if mounts:
        assert box.detach("/mnt/first") == "" and "/mnt/first" not in mounts_in(box, uid)
    box.end()
    assert (given / "a").read_text() == "from outside\n"


def test_an_image_takes_them_too(engine, image):
    box = Box(engine, **image, **ROOT_SYSTEM)
    assert box.attach() == ""
    assert box.run("cat /mnt/given/a", 0) == "from outside\n"
    assert "ro" in mounts_in(box, 0)["/mnt/given"]
    assert box.detach() == ""
    assert box.run("ls /mnt/given", 0) == ""
    box.end()


def test_read_only_stays_so(engine, keeper, given):
    """Asked for, or registered so: that cannot be asked away."""
    assert keeper.give(given, b"fixed", read_only=1) == ""
    box = Box(engine)
    assert box.attach() == box.attach("/mnt/fixed", "fixed", 0) == ""
    box.run("echo x >/mnt/given/new; echo x >/mnt/fixed/new; touch /mnt/given/a /mnt/fixed/a")
    assert sorted(path.name for path in given.iterdir()) == ["a"]
    box.end()


def test_no_set_id_file_comes_to_be_in_one(engine, given):
    """A box whose programs may make such files gets none to write to; one that was made for it may make none at all."""
    free = Box(engine, **ROOT_SYSTEM)
    assert free.attach(read_only=0) == "mount_refused"
    assert free.attach(read_only=1) == ""
    assert "set" in free.run("touch /tmp/x && chmod 4755 /tmp/x && test -u /tmp/x && echo set", 0)
    free.end()
    held = Box(engine, takes_mounts=1, **ROOT_SYSTEM)
    assert held.attach(read_only=0) == ""
    held.run("cp /bin/true /mnt/given/s; chmod 4755 /mnt/given/s; chmod 2755 /mnt/given/s", 0)
    assert (given / "s").stat().st_mode & 0o6000 == 0
    held.end()


@pytest.mark.parametrize("target", ["/proc/given", "/proc", "/sys/fs", "/dev/shm", "/", "/a/../../b", "relative", "/a//b",
                                    "/a/./b", "/" + "a" * 255])
def test_a_target_that_is_none_ends_the_engine(keeper, engine, target):
    handle, _ = engine.make(owner=keepers.OWNER.encode())
    engine.send(keepers.attach(engine.next_id(), handle, b"given", target.encode()))
    assert engine.receive() is None
    assert "target of a mount" in keeper.said()


def test_another_tenants_is_never_mounted(keeper, engine, given):
    assert keeper.give(given, b"theirs", tenants=b"team-b") == ""
    box = Box(engine)
    assert box.attach(name="theirs") == box.attach(name="nobodys") == "unknown_mount"
    assert box.attach(tenant=b"team-a") == "unknown_mount"
    assert box.attach(name="theirs", tenant=b"team-b") == ""
    box.end()
    engine.send(keepers.attach(engine.next_id(), 1, b"given", b"/mnt/a", tenant=b""))
    assert engine.receive() is None  # nobody's is everybody's


def test_a_box_of_no_sandbox_gets_none(engine):
    handle, control = engine.make()
    box = Control(control).wait_ready()
    assert engine.refused(keepers.attach, handle, b"given", b"/mnt/a") == "mount_refused"
    box.close()
    engine.end(handle)
    assert engine.refused(keepers.attach, handle, b"given", b"/mnt/a") == "no_box"


def test_a_box_that_does_not_stand_yet_gets_none(engine):
    """Its process may still be among the host's mounts. What is said to be mounted is there when it stands."""
    for _ in range(harness.scaled(20)):
        handle, control = engine.make(owner=keepers.OWNER.encode())
        kind, _, body, _ = engine.ask(keepers.attach, handle, b"given", b"/mnt/given", 1)
        assert kind == keepers.DONE or keepers.error_of(body)[0] == "box_not_ready"
        box = Control(control).wait_ready()
        is_there = "from outside" in box.run("cat /mnt/given/a")
        assert is_there == (kind == keepers.DONE)
        box.close()
        engine.end(handle)


def test_no_link_is_followed(engine, given):
    """Nor made a directory of: what lies behind it stays as it is."""
    box = Box(engine, **ROOT_SYSTEM)
    box.run("mkdir /mnt /real; ln -s /real /mnt/given; ln -s /real /link; echo x >/file", 0)
    assert box.attach() == box.attach("/link/deep") == box.attach("/file") == box.attach("/file/deep") == "mount_failed"
    assert box.run("ls /real; readlink /mnt/given", 0) == "/real\n"
    assert not [path for path in mounts_in(box, 0) if "given" in path or path.startswith(("/real", "/link"))]
    box.end()


RACES = {"host": 15, "image": 9}
SWAP_IMAGE = """
swap() {
    while :; do
        mv /race$1 /elsewhere$1; ln -s /proc /race$1; rm /race$1; mkdir /race$1; ln -s /etc /race$1/given
        rm /race$1/given; mkdir /race$1/given; mv /race$1/given /race$1/other; rmdir /race$1/other /elsewhere$1/given
        rmdir /elsewhere$1
    done
}
(for n in 1 2 3 4 5 6 7 8 9; do swap $n & done) >/dev/null 2>&1; echo begun; sleep 1000
"""
SWAP_HOST = """
cat >/tmp/swap.py <<'END'
import errno, os
pairs = [(f"/race{n}", f"/elsewhere{n}") for n in range(1, 16)]
for one, _ in pairs:
    os.mkdir(one)
print("begun", flush=True)
for one, other in pairs:
    for _ in range(10 ** 9):
        try:
            os.rename(one, other)
        except OSError as error:
            if error.errno == errno.EBUSY:
                break
        try:
            os.rename(other, one)
        except OSError:
            pass
END
python3 /tmp/swap.py & sleep 1000
"""


@pytest.mark.parametrize("root", ["host", "image"])
def test_programs_that_move_the_target_lead_it_nowhere(engine, given, root, image):
    """It is mounted at the target or nowhere, and what is above it is held."""
    box = Box(engine, **ROOT_SYSTEM, **(image if root == "image" else {}))
    with box.control.start(SWAP_IMAGE if root == "image" else SWAP_HOST, 0) as output:
        assert output.read(6) == b"begun\n"
    said, mounted = collections.Counter(), set()
    for number in [*range(1, RACES[root] + 1)] * 6:
        target = f"/race{number}/given"
        if target not in mounted:
            time.sleep(0.002)  # its programs come to this one
            answer = box.attach(target)
            said[answer] += 1
            mounted |= {target} if answer == "" else set()
    lines = [line.split() for line in pathlib.Path(f"/proc/{sleeper()}/mountinfo").read_text().splitlines()]
    assert set(said) <= {"", "mount_failed"}, said
    found = sorted(line[4] for line in lines if line[3].endswith("/given"))
    if root == "host":  # of an image the directories above may be moved
        assert found == sorted(mounted), said
        strays = {line[4] for line in lines if line[4].startswith(("/race", "/elsewhere"))} - mounted
        assert strays <= {f"/race{number}" for number in range(1, RACES[root] + 1)}
    assert len(found) == len(mounted) == said[""], said
    for target in mounted:
        answer = box.detach(target)
        assert answer in ("", "mount_busy") or root == "image" and answer == "mount_moved"
    box.control.close()
    box.engine.end(box.handle)
    assert (given / "a").exists()


def test_what_is_used_is_not_unmounted(engine, given):
    """So whoever is told that it is gone can rely on it; what its programs do with it is told as it is."""
    box = Box(engine, **ROOT_SYSTEM)
    assert box.attach() == ""
    output = box.control.start("cd /mnt/given; echo in; sleep 1000", 0)
    assert output.read(3) == b"in\n"
    assert box.detach() == "mount_busy"
    assert "/mnt/given" in pathlib.Path(f"/proc/{sleeper()}/mountinfo").read_text()
    os.kill(sleeper(), 9)
    harness.wait_for(lambda: box.detach() == "", what="it to be let go")
    output.close()
    box.engine.end(box.handle)
    assert (given / "a").exists()


def sleeper():
    """The pid of what sleeps in the box, once it does."""
    found = []

    def look():
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if path.read_bytes() == b"sleep\x001000\0":
                    found.append(int(path.parent.name))
        return found

    harness.wait_for(look, what="the sleep to begin")
    return found[0]


def test_what_was_moved_away_is_not_unmounted(keeper, engine, image, tmp_path):
    """In an image the directories above it may be renamed; another mount in its place is not taken for it."""
    other = tmp_path / "other"
    other.mkdir()
    assert keeper.give(other, b"other") == ""
    box = Box(engine, **image, **ROOT_SYSTEM)
    assert box.attach("/a/x") == box.attach("/b/x", "other") == ""
    box.run("mv /a /c; mv /b /a; mv /c /b", 0)
    assert box.detach("/a/x") == "mount_moved"
    assert "/a/x" in mounts_in(box, 0)
    box.run("mv /a /c; mv /b /a; mv /c /b", 0)
    assert box.attach("/d/x") == ""  # the same directory
    box.run("mv /a /c; mv /d /a; mv /c /d", 0)
    assert box.detach("/a/x") == "mount_moved" and {"/a/x", "/d/x"} <= set(mounts_in(box, 0))
    box.run("mv /a /c; mv /d /a; mv /c /d", 0)
    assert box.detach("/a/x") == box.detach("/b/x") == box.detach("/d/x") == ""
    box.end()


def test_a_name_that_leads_elsewhere_by_now_is_not_there_already(keeper, engine, tmp_path):
    """What is said to be mounted is what is registered."""
    box = Box(engine, **ROOT_SYSTEM)
    assert box.attach() == ""
    assert keeper.register(keepers.REMOVE, keepers.MOUNT, b"given")[0] == ""
    other = tmp_path / "other"
    other.mkdir()
    assert keeper.give(other, b"given") == ""
    assert box.attach() == "mount_conflict"
    assert box.detach() == box.attach() == "" and box.run("ls /mnt/given", 0) == ""
    box.end()


def test_what_is_above_one_is_held(engine):
    """As at the start: nothing else can be put in its place."""
    box = Box(engine, **ROOT_SYSTEM)
    assert box.attach("/one/two/given") == ""
    said = box.run("mv /one /other 2>&1; mv /one/two /one/other 2>&1; rmdir /one/two/given 2>&1", 0)
    assert said.count("busy") == 3, said
    for _ in range(5):
        assert box.detach("/one/two/given") == box.attach("/one/two/given") == ""
    assert box.run("grep -c ' /one' /proc/self/mountinfo", 0) == "3\n"
    box.end()


def stays_in(box, directory):
    """Leaves a program behind that stands there."""
    box.run(f"cd {directory} && sleep 1000 >/dev/null 2>&1 &", 0)


def held_in(box):
    return sorted(path for path in mounts_in(box, 0) if path.startswith("/one"))


def test_directories_above_a_mount_are_let_go_with_the_last_one_below(keeper, engine, given):
    """Or with what could not be mounted: else a box would gather mounts of the host's kernel."""
    assert keeper.give(given, b"other") == ""
    box = Box(engine, **ROOT_SYSTEM)
    assert box.attach("/one/two/given") == box.attach("/one/three/other", "other") == ""
    assert box.detach("/one/two/given") == ""
    assert held_in(box) == ["/one", "/one/three", "/one/three/other"]
    box.run("mv /one/two /one/four; touch /one/four/file", 0)
    assert box.attach("/one/four/file") == "mount_failed"
    assert held_in(box) == ["/one", "/one/three", "/one/three/other"]
    stays_in(box, "/one/three")
    assert box.detach("/one/three/other") == "" and held_in(box) == ["/one", "/one/three"]
    os.kill(sleeper(), 9)
    assert box.attach("/one/three/other", "other") == box.detach("/one/three/other") == ""
    assert held_in(box) == []
    box.end()


def test_directories_that_programs_keep_held_have_a_limit(engine):
    """A target of 255 bytes has 124 directories above it, and a program in the deepest keeps all of them."""
    box = Box(engine, **ROOT_SYSTEM)
    above = [f"/h{number:02}" + "/a" * 123 for number in range(20)]
    said = []
    for directory in above:
        said.append(box.attach(directory + "/g"))
        if said[-1]:
            break
        stays_in(box, directory)
        assert box.detach(directory + "/g") == ""
    assert said == [""] * 16 + ["mount_refused"]
    assert len(mounts_in(box, 0)) < 2048 + 100
    assert box.attach() == ""
    box.end()


def test_nothing_in_the_box_sees_who_mounts(engine, given):
    """No process of the outside comes to be in it."""
    box = Box(engine, **ROOT_SYSTEM)
    look = ("import os\nseen = set()\nwhile not os.path.exists('/mnt/given/stop'):\n    "
            "seen |= {open(f'/proc/{p}/comm').read().strip() for p in os.listdir('/proc') if p.isdigit()}\nprint(*sorted(seen))")
    output = box.control.start(f"python3 -c \"{look}\"", 0)
    for _ in range(20):
        assert box.attach() == box.detach() == ""
    (given / "stop").touch()
    assert box.attach() == ""
    assert set(output.read(4096).decode().split()) == {"memfd:cove-init", "python3", "sh"}
    output.close()
    box.end()


def test_an_end_meanwhile_leaves_nothing(keeper, engine):
    for _ in range(harness.scaled(10)):
        box = Box(engine)
        mounted, ended = engine.next_id(), engine.next_id()
        engine.send(keepers.attach(mounted, box.handle, b"given", b"/mnt/given", 1))
        engine.send(keepers.end(ended, box.handle))
        answers = {answered: kind for kind, answered, _, _ in (engine.receive(), engine.receive())}
        assert answers[ended] == keepers.ENDED and answers[mounted] in (keepers.DONE, keepers.REFUSED)
        box.control.close()
    harness.wait_for(lambda: "cove-mount" not in [harness.status_of(pid).get("Name") for pid in
                                                  harness.children_of(keeper.process.pid)], what="its processes to end")


def test_an_ordinary_users_keeper_refuses_it(keeper, given):
    """It has no right to mount for a box that is there; its boxes have what they were made with."""
    assert keeper.give(given, b"given") == ""
    box = Box(keeper.greeted(), mounts=[(b"given", b"/mnt/first", 1)])
    assert (box.attach() == box.detach("/mnt/first") == "mount_refused") == (not harness.EXPECT.is_root)
    assert box.run("cat /mnt/first/a 2>/dev/null") == ("" if harness.EXPECT.is_root else "from outside\n")
    box.end()


def test_another_engine_finds_what_the_one_before_mounted(keeper, given):
    assert keeper.give(given, b"given") == ""
    box = Box(keeper.greeted())
    assert box.attach() == ""
    os.kill(keeper.engines[0].pid, 9)
    box.engine = keeper.greeted()
    assert box.attach() == box.detach() == ""
    assert box.detach() == "mount_not_found"
    box.end()
