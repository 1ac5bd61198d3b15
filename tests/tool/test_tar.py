"""Archives in and out: with GNU tar, bsdtar and Python on the other side, and hostile ones."""
import errno
import io
import os
import random
import subprocess
import tarfile
import time

import pytest
from tooling import FINISH, IS_ROOT, archive_of, data, fails, frame, harness, member, mode_of, run, tree_of

REALTIME_COARSE = 5
LONG = "long" * 40 + "/" + "name" * 60


def unpack(archive, *how, top, piece=1 << 20, **named):
    return run("tar-in", *how, paths=[top], stdin=data(archive, piece) + frame(FINISH), **named)


def refused(archive, top, *how, piece=1 << 20):
    return fails("tar-in", *how, paths=[top], stdin=data(archive, piece) + frame(FINISH))


def passed_tick():
    """What stands now is older than what is made from now on, by the clock of change times."""
    now = time.clock_gettime_ns(REALTIME_COARSE)
    harness.wait_for(lambda: time.clock_gettime_ns(REALTIME_COARSE) > now + 10**7, what="the clock")


@pytest.fixture
def source(place):
    """A tree with all that an archive can hold."""
    top = place / "source"
    top.mkdir()
    (top / "file").write_bytes(b"hello")
    (top / "big").write_bytes(os.urandom(300001))
    (top / "empty").write_bytes(b"")
    (top / "dir/in").mkdir(parents=True)
    (top / "dir/in/deep").write_bytes(b"deep")
    (top / "dir/in/deep").chmod(0o604)
    (top / LONG).parent.mkdir()
    (top / LONG).write_bytes(b"long")
    (top / "link").symlink_to("dir/in/deep")
    (top / "long-link").symlink_to("x" * 300)
    os.link(top / "file", top / "twin")
    os.mkfifo(top / "fifo", 0o640)
    (top / b"\xff\xfe odd\n".decode("utf-8", "surrogateescape")).write_bytes(b"odd")
    os.setxattr(top / "file", "user.note", b"binary\0\n=1")
    os.utime(top / "file", ns=(0, 1234567890_987654321))
    os.utime(top / "empty", ns=(0, -1500000000))
    (top / "dir").chmod(0o555)
    os.utime(top / "dir", ns=(0, 10**18))
    return top


def check_same(top, copy, twins=True):
    assert tree_of(copy) == tree_of(top)
    if twins:
        assert (copy / "twin").stat().st_ino == (copy / "file").stat().st_ino


# ---- out ----

def test_what_goes_out_comes_in_as_it_was(place, source):
    said = run("tar-out", paths=[source])
    (place / "copy").mkdir()
    for piece in (1 << 20, 777):
        unpack(said.data, top=place / "copy", piece=piece)
        copy = place / "copy/source"
        check_same(source, copy)
        assert (copy / "file").stat().st_mtime_ns == 1234567890_987654321
        assert (copy / "empty").stat().st_mtime_ns == -1500000000
        assert (copy / "dir").stat().st_mtime_ns == 10**18
        assert os.getxattr(copy / "file", "user.note") == b"binary\0\n=1"
    assert said.done.count == 14


@pytest.mark.parametrize("reader", [
    ["tar", "--xattrs", "-xpf", "-", "-C"], ["bsdtar", "-xpf", "-", "-C"], ["python"]],
    ids=["gnu", "bsdtar", "python"])
def test_others_read_what_we_write(place, source, reader):
    said = run("tar-out", paths=[source, source / "file"])
    (place / "copy").mkdir()
    if reader == ["python"]:
        with tarfile.open(fileobj=io.BytesIO(said.data)) as archive:
            archive.extractall(place / "copy")
    else:
        got = subprocess.run([*reader, place / "copy"], input=said.data, stderr=subprocess.PIPE,
                             check=True)
        assert b"Unexpected" not in got.stderr and b"lone" not in got.stderr
    check_same(source, place / "copy/source")
    # Named again, it is a link to what was there before.
    assert (place / "copy/file").read_bytes() == b"hello"
    assert (place / "copy/source/file").stat().st_mtime_ns // 1000 == 1234567890_987654


def test_names_in_an_archive_begin_with_what_was_named(place, source):
    def names(*how, cwd=None):
        with tarfile.open(fileobj=io.BytesIO(run("tar-out", *how[:-1], paths=[how[-1]],
                                                 cwd=cwd).data)) as archive:
            return archive.getnames()
    assert names(source / "dir") == ["dir", "dir/in", "dir/in/deep"]
    assert names(".", cwd=source / "dir") == [".", "./in", "./in/deep"]
    assert names(source / "link") == ["link"]
    assert names("--follow", source / "link") == ["link"]
    assert names(str(source) + "/dir/in/") == ["in", "in/deep"]


def test_out_of_what_cannot_be_read_is_no_whole_archive(place, source):
    missing = run("tar-out", paths=[source, place / "no"], may_fail=True)
    assert missing.begin is None and missing.error.errnum == errno.ENOENT
    assert fails("tar-out", paths=["/dev/null"]).code == "not_regular"
    if not IS_ROOT:
        (source / "file").chmod(0)
        wrong = fails("tar-out", paths=[source])
        assert wrong.errnum == errno.EACCES and wrong.path == os.fsencode(source / "file")


# ---- in ----

@pytest.mark.parametrize("writer", [
    ["tar", "--format=gnu", "-cf", "-"], ["tar", "--format=pax", "--xattrs", "-cf", "-"],
    ["bsdtar", "--format=pax", "-cf", "-"], ["bsdtar", "--format=gnutar", "-cf", "-"],
    ["python", tarfile.GNU_FORMAT], ["python", tarfile.PAX_FORMAT]],
    ids=["gnu", "gnu-pax", "bsdtar-pax", "bsdtar-gnu", "python-gnu", "python-pax"])
def test_we_read_what_others_write(place, source, writer):
    if writer[0] == "python":
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=writer[1]) as archive:
            archive.add(source, "source")
        archive = out.getvalue()
    else:
        archive = subprocess.run([*writer, "source"], cwd=place, stdout=subprocess.PIPE,
                                 check=True).stdout
    (place / "copy").mkdir()
    unpack(archive, top=place / "copy")
    check_same(source, place / "copy/source")
    if "--xattrs" in writer:
        assert os.getxattr(place / "copy/source/file", "user.note") == b"binary\0\n=1"


def test_strip_owner_and_what_is_replaced(place):
    archive = archive_of(member("a", tarfile.DIRTYPE), member("a/b", tarfile.DIRTYPE),
                         member("a/b/file", content=b"new", uid=5, gid=6, uname="daemon"),
                         member("a/twin", tarfile.LNKTYPE, "a/b/file"))
    top = place / "top"
    (top / "b").mkdir(parents=True)
    (top / "b/file").symlink_to("/etc/passwd")
    unpack(archive, "--strip", "1", top=top)
    assert (top / "b/file").read_bytes() == b"new" and not (top / "b/file").is_symlink()
    assert (top / "twin").stat().st_ino == (top / "b/file").stat().st_ino
    assert (top / "b/file").stat().st_uid == (1 if IS_ROOT else os.geteuid())
    if IS_ROOT:
        unpack(archive, "--owner", "7:8", top=top)
        assert (top / "a/b/file").stat().st_uid == 7 and (top / "a").stat().st_gid == 8
    assert fails("tar-in", "--owner", "no-such-user", paths=[top],
                 stdin=data(archive) + frame(FINISH)).code == "unknown_user"
    assert fails("tar-in", paths=[place / "no"], stdin=frame(FINISH)).errnum == errno.ENOENT
    unpack(archive, "--parents", top=place / "no/there")
    assert (place / "no/there/a/b/file").exists()


def test_a_file_over_a_directory_and_back(place):
    (place / "a/b").mkdir(parents=True)
    assert refused(archive_of(member("a")), place).code == "is_directory"
    unpack(archive_of(member("x")), top=place)
    unpack(archive_of(member("x", tarfile.DIRTYPE)), top=place)
    assert (place / "x").is_dir()


def test_links_of_the_box_itself_are_followed_unless_beneath(place):
    top = place / "top"
    (top / "usr/bin").mkdir(parents=True)
    (top / "bin").symlink_to("usr/bin")
    (top / "abs").symlink_to(top / "usr")
    passed_tick()
    unpack(archive_of(member("bin", tarfile.DIRTYPE), member("bin/tool", content=b"x"),
                      member("abs/more", content=b"y")), top=top)
    assert (top / "usr/bin/tool").read_bytes() == b"x" and (top / "bin").is_symlink()
    assert (top / "usr/more").read_bytes() == b"y"
    wrong = refused(archive_of(member("bin/other")), top, "--beneath", top)
    assert wrong.code == "bad_archive" and not (top / "usr/bin/other").exists()


HOSTILE = {
    "absolute": [member("/tmp/cove-evil")],
    "dots": [member("../evil")],
    "dots within": [member("a/../../evil")],
    "dots at the end": [member("a/..", tarfile.DIRTYPE)],
    "through its link": [member("l", tarfile.SYMTYPE, "../outside"), member("l/evil")],
    "through its absolute link": [member("l", tarfile.SYMTYPE, "/"), member("l/tmp/cove-evil")],
    "through two": [member("a", tarfile.SYMTYPE, "b"), member("b", tarfile.SYMTYPE, "../outside"),
                    member("a/evil")],
    "directory through its link": [member("l", tarfile.SYMTYPE, "../outside"),
                                   member("l/evil", tarfile.DIRTYPE)],
    "link to a link": [member("l", tarfile.SYMTYPE, "../outside"),
                       member("l/x", tarfile.SYMTYPE, "y")],
    "fifo through its link": [member("l", tarfile.SYMTYPE, "../outside"),
                              member("l/evil", tarfile.FIFOTYPE)],
    "hard link out": [member("h", tarfile.LNKTYPE, "../outside/secret")],
    "absolute hard link": [member("h", tarfile.LNKTYPE, "/etc/passwd")],
    "hard link through its link": [member("l", tarfile.SYMTYPE, "../outside"),
                                   member("h", tarfile.LNKTYPE, "l/secret")],
    "hard link to what was there": [member("h", tarfile.LNKTYPE, "old")],
    "device": [member("d", tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "block device": [member("d", tarfile.BLKTYPE, devmajor=8)],
    "unknown kind": [member("d", b"Z")],
    "sparse": [member("d", tarfile.GNUTYPE_SPARSE)],
}


@pytest.mark.parametrize("beneath", [False, True], ids=["bare", "beneath"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused_by_name_and_reach_nothing(place, name, beneath):
    top, outside = place / "top", place / "outside"
    top.mkdir()
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (top / "old").write_bytes(b"old")
    passed_tick()
    before = tree_of(outside)
    archive = archive_of(*HOSTILE[name], member("after", content=b"x"), format=tarfile.GNU_FORMAT)
    wrong = refused(archive, top, *(["--beneath", top] if beneath else []))
    assert wrong.code == "bad_archive" and wrong.operand == -1, wrong
    assert tree_of(outside) == before and not (top / "after").exists()
    assert (outside / "secret").stat().st_nlink == 1 and (top / "old").stat().st_nlink == 1
    assert not os.path.lexists("/tmp/cove-evil") and not os.path.lexists(place / "evil")


def test_a_link_may_be_replaced_by_what_is_then_gone_through(place):
    unpack(archive_of(member("l", tarfile.SYMTYPE, "/"), member("l", tarfile.DIRTYPE),
                      member("l/file", content=b"in")), top=place)
    assert (place / "l/file").read_bytes() == b"in" and not (place / "l").is_symlink()


def test_set_id_bits_come_only_with_their_owner(place):
    archive = archive_of(member("s", mode=0o6755, uid=0, gid=0, uname="root", gname="root"))
    unpack(archive, top=place)
    assert mode_of(place / "s") in ((0o6755,) if IS_ROOT else (0o6755, 0o755))
    assert (place / "s").stat().st_uid == os.geteuid()


def test_limits_end_it(place):
    archive = archive_of(*[member(f"f{i}", content=b"x" * 1000) for i in range(20)])
    assert refused(archive, place, "--limit-entries", "5").code == "limit"
    assert sorted(os.listdir(place)) == [f"f{i}" for i in range(5)]
    assert refused(archive, place, "--limit-bytes", "10500").code == "limit"
    assert len(os.listdir(place)) == 10
    bomb = member("bomb")[0]
    bomb.size = 1 << 50
    text = bomb.tobuf(format=tarfile.GNU_FORMAT)
    assert refused(text, place, "--limit-bytes", str(1 << 30)).code == "limit"
    wrong = refused(text + b"\0" * 5000, place)
    assert wrong.code == "bad_archive" and not (place / "bomb").exists()


def test_a_cut_archive_is_never_taken_for_whole(place):
    archive = archive_of(member("a", content=b"x" * 700), member("b", content=b"y"))
    archive = archive[:512 * 5 + 1024]
    unpack(archive, top=place)
    for cut in [*range(0, len(archive) - 1024, 97), len(archive) - 1024]:
        wrong = refused(archive[:cut], place)
        assert wrong.code == "bad_archive", (cut, wrong)
    cut = fails("tar-in", paths=[place], stdin=data(archive[:2000]))
    assert cut.code == "input_ended"


def test_nonsense_is_refused(place):
    rng = random.Random(7)
    archive = archive_of(member("a" * 150, content=b"x" * 700, mtime=1.5),
                         member("b", tarfile.SYMTYPE, "t" * 200), member("c", tarfile.DIRTYPE))
    for _ in range(harness.scaled(150, 10)):
        text = bytearray(archive[:512 * 14])
        for _ in range(rng.randrange(1, 4)):
            text[rng.randrange(len(text))] = rng.randrange(256)
        said = run("tar-in", "--beneath", place, paths=[place], stdin=data(bytes(text)) + frame(FINISH),
                   may_fail=True)
        assert said.done or said.error.code in ("bad_archive", "limit") or said.error.errnum
    for text in (b"x" * 512, b"\x1f\x8b" + b"\0" * 2000, b"PK\3\4" * 300):
        assert refused(text, place).code == "bad_archive"


def test_many_small_files_go_in_and_out(quick):
    count = harness.scaled(1000, 100)
    archive = archive_of(*[member(f"d{i % 30}/f{i}", content=b"%d" % i) for i in range(count)])
    assert unpack(archive, top=quick).done.count == count
    assert (quick / f"d{7}/f7").read_bytes() == b"7"
    assert run("tar-out", paths=[quick]).done.count == count + 31
