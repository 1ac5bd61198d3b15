"""Disks that are kept: what was written is there in the next box, and nobody else's."""
import os
import pathlib
import signal
import struct

import pytest

import harness
import keepers
from keepers import Control, Keeper

DISK = "c0" + "d" * 18
# An image where it can be mounted, else a directory.
ENTRY = DISK + (".ext4" if harness.EXPECT.is_root else "")
KEPT = {"disk_kind": keepers.PERSISTENT, "disk": DISK.encode()}


def boxed(engine, command, uid=None, **more):
    """What a command prints in a box with that disk, which is ended then."""
    return engine.boxed(command, uid, **KEPT, **more)[0]


def images(keeper):
    return sorted(path.name for path in (keeper.data / "disks").iterdir())


@pytest.fixture
def image_root(tmp_path, keeper):
    """A root that is registered: a directory with one shell and its links."""
    root = tmp_path / "root"
    for name in ("bin", "etc", "tmp"):
        (root / name).mkdir(parents=True)
    (root / "bin/busybox").write_bytes(pathlib.Path("/bin/busybox").read_bytes())
    (root / "bin/busybox").chmod(0o755)
    for name in ("sh", "cat", "stat", "id", "dd", "mkdir", "chown", "rm", "ls"):
        (root / "bin" / name).symlink_to("busybox")
    assert keeper.give(root, b"small", keepers.ROOT) == ""
    return b"small"


@pytest.mark.parametrize("privileges,uid", [(keepers.PLAIN, None), (keepers.SYSTEM, 0)])
def test_home_of_the_hosts_view_is_kept(keeper, privileges, uid):
    engine = keeper.greeted()
    home = "/root" if privileges == keepers.SYSTEM else "/home/user"
    more = {"privileges": privileges, "uid": uid}
    assert boxed(engine, f"echo kept > {home}/file; cat {home}/file", **more) == "kept\n"
    again = boxed(engine, f"cat {home}/file; stat -c %u {home}/file", **more)
    assert again == f"kept\n{uid if uid is not None else 1000}\n"
    assert images(keeper) == [ENTRY]


def test_an_image_root_is_kept_whole(keeper, image_root):
    engine = keeper.greeted()
    more = {"privileges": keepers.SYSTEM, "uid": 0, "root": image_root}
    printed = boxed(engine, "mkdir /new; echo kept > /new/file; chown 7:8 /new/file; rm /bin/ls; "
                    "echo x > /etc/passwd; cat /new/file", **more)
    assert printed == "kept\n"
    again = boxed(engine, "cat /new/file; stat -c %u:%g /new/file; stat /bin/ls >/dev/null 2>&1 || "
                  "echo gone", **more)
    assert again == "kept\n7:8\ngone\n"


def test_a_cold_box_has_it_too(keeper, image_root, tmp_path):
    engine = keeper.greeted()
    given = tmp_path / "given"
    given.mkdir()
    assert keeper.give(given) == ""
    more = {"privileges": keepers.SYSTEM, "uid": 0, "root": image_root}
    assert boxed(engine, "echo kept > /file; cat /file", **more) == "kept\n"
    assert boxed(engine, "cat /file; stat -c %u /file; echo there > /mnt/given/file",
                 mounts=[(b"given", b"/mnt/given", 0)], **more) == "kept\n0\n"
    assert (given / "file").read_text() == "there\n"


@pytest.mark.parametrize("program,says", [("/dev/null", "install e2fsprogs"), ("/bin/false", "67108864 bytes")])
def test_a_mkfs_that_is_not_there_is_told_from_one_that_fails(stand_in, tmp_path, program, says):
    unmade = Keeper(stand_in, tmp_path)
    script = f'mount --bind {program} "$(command -v mkfs.ext4)"; exec "$@"'
    unmade.command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", *unmade.command]
    with unmade as keeper:
        kind, _, body, _ = keeper.greeted().ask(keepers.make, **KEPT)
        assert kind == keepers.REFUSED
        code, text = keepers.error_of(body)
        assert code == "disk_failed" and says in text and ("size" in text) == (program != "/dev/null"), text


def test_disk_has_an_end(keeper, image_root):
    engine = keeper.greeted()
    more = {"privileges": keepers.SYSTEM, "uid": 0, "root": image_root,
            "limit": keepers.limits(disk=16 << 20)}
    if not harness.EXPECT.is_root:  # its box ends there
        more.pop("uid")
        handle, control = engine.make(**KEPT, **more)
        box = Control(control).wait_ready()
        with box.start("dd if=/dev/zero of=/a bs=1M count=15; dd if=/dev/zero of=/b bs=1M count=15; "
                       "sleep 60", 0):
            assert box.has_ended(30)
        assert engine.end(handle)["disk_exceeded"]
        return
    printed = boxed(engine, "dd if=/dev/zero of=/file bs=1M count=64 2>&1; stat -c %s /file",
                    **more)
    assert "No space left" in printed
    assert int(printed.split()[-1]) < 16 << 20
    image = keeper.data / "disks" / (DISK + ".ext4")
    assert image.stat().st_size == 16 << 20


def test_a_disk_has_one_box(keeper):
    engine = keeper.greeted()
    handle, control = engine.make(**KEPT)
    assert engine.refused(keepers.make, **KEPT) == "disk_in_use"
    assert engine.refused(keepers.drop_disk, DISK) == "disk_in_use"
    os.close(control)
    # One that is asked for while the other ends waits for it.
    ending, making = engine.next_id(), engine.next_id()
    engine.send(keepers.end(ending, handle))
    engine.send(keepers.make(making, **KEPT))
    answers = {}
    for _ in range(2):
        kind, request, _, fds = engine.receive()
        answers[request] = kind
        for descriptor in fds:
            os.close(descriptor)
    assert answers == {ending: keepers.ENDED, making: keepers.MADE}


def test_others_are_served_while_a_disk_is_made(keeper):
    engine = keeper.greeted()
    first, second = engine.next_id(), engine.next_id()
    engine.send(keepers.make(first, **KEPT) + keepers.make(second))
    order = []
    for _ in range(2):
        kind, request, _, fds = engine.receive()
        assert kind == keepers.MADE
        order.append(request)
        os.close(fds[0])
    assert order == [second, first]


def test_dropped_disk_is_gone(keeper):
    engine = keeper.greeted()
    assert boxed(engine, "echo kept > /home/user/file") == ""
    assert engine.ask(keepers.drop_disk, DISK)[0] == keepers.DONE
    assert engine.ask(keepers.drop_disk, DISK)[0] == keepers.DONE
    harness.wait_for(lambda: images(keeper) == [], what="the image's end")
    assert boxed(engine, "cat /home/user/file 2>/dev/null || echo new") == "new\n"


def test_hello_names_the_disks_and_their_boxes(keeper):
    engine = keeper.greeted()
    handle, control = engine.make(**KEPT)
    os.close(control)
    os.kill(engine.pid, signal.SIGKILL)
    second = keeper.engine()
    _, _, boxes = second.hello()
    assert list(boxes) == [handle]
    os.close(boxes[handle][1])
    assert second.disks == {DISK}


def test_engine_that_dies_while_its_disk_is_made_leaves_no_box(keeper):
    engine = keeper.greeted()
    for _ in range(10):
        engine.send(keepers.make(engine.next_id(), **KEPT))
        os.kill(engine.pid, signal.SIGKILL)
        engine = keeper.engine()
        _, _, boxes = engine.hello()
        if not boxes:
            break
        # The disk was there before the engine had died.
        for handle, (_, control) in boxes.items():
            os.close(control)
            engine.end(handle)
        assert engine.ask(keepers.drop_disk, DISK)[0] == keepers.DONE
    assert not boxes
    handle, control = engine.make(**KEPT)
    os.close(control)
    engine.end(handle)
    harness.wait_for(lambda: images(keeper) == [ENTRY], what="the end of what was dropped")


def test_disk_of_a_killed_keeper_is_whole(stand_in, tmp_path):
    keeper = Keeper(stand_in, tmp_path).start()
    engine = keeper.greeted()
    handle, control = engine.make(**KEPT)
    box = Control(control).wait_ready()
    assert box.run("echo kept > /home/user/file; sync; cat /home/user/file") == "kept\n"
    keeper.process.kill()
    keeper.process.wait()
    keeper.__exit__()
    box.close()
    with Keeper(stand_in, tmp_path) as keeper:
        engine = keeper.greeted()
        assert boxed(engine, "cat /home/user/file") == "kept\n"


def test_half_made_disk_is_removed_at_the_start(stand_in, tmp_path):
    keeper = Keeper(stand_in, tmp_path)
    (keeper.data / "disks").mkdir(mode=0o700)
    for suffix in (".new", ".00000000.gone"):
        (keeper.data / "disks" / (DISK + suffix)).write_text("x")
    with keeper:
        keeper.greeted()
        harness.wait_for(lambda: images(keeper) == [], what="the end of both")


def test_disk_that_is_a_link_is_not_followed(keeper, tmp_path):
    """Only the keeper writes there; should it not be so, nothing is opened for it."""
    engine = keeper.greeted()
    (keeper.data / "disks" / ENTRY).symlink_to(tmp_path / "elsewhere")
    assert engine.refused(keepers.make, **KEPT) == "disk_failed"


def test_a_lost_disk_is_not_an_empty_one(keeper):
    engine = keeper.greeted()
    assert boxed(engine, "echo kept > /home/user/file") == ""
    image = keeper.data / "disks" / ENTRY
    aside = image.rename(keeper.data / "aside")
    assert engine.refused(keepers.make, **KEPT, disk_new=0) == "disk_lost"
    assert images(keeper) == []
    aside.rename(image)
    assert boxed(engine, "cat /home/user/file", disk_new=0) == "kept\n"


def test_a_disk_larger_than_what_it_lies_on_is_refused(keeper):
    engine = keeper.greeted()
    limit = keepers.limits(disk=1 << 49)
    assert engine.refused(keepers.make, **KEPT, limit=limit) == "capacity"
    assert images(keeper) == []


def test_a_box_that_is_refused_leaves_no_disk(keeper, tmp_path):
    """Its mount is removed while its disk is made."""
    directory = tmp_path / "given"
    directory.mkdir()
    engine = keeper.greeted()
    assert keeper.give(directory) == ""
    request = engine.next_id()
    engine.send(keepers.make(request, **KEPT, mounts=[(b"given", b"/mnt/given", 0)]))
    assert keeper.register(keepers.REMOVE, keepers.MOUNT, b"given")[0] == ""
    while (answer := engine.receive())[1] != request:
        assert answer[0] == keepers.NAMED
    if answer[0] == keepers.MADE:  # the disk was faster
        os.close(answer[3][0])
        engine.end(struct.unpack("=Q", answer[2])[0])
        assert engine.ask(keepers.drop_disk, DISK)[0] == keepers.DONE
    harness.wait_for(lambda: images(keeper) == [], what="the image's end")
