"""What each verb of cove-tool does and refuses, alone on the host."""
import errno
import mmap
import os
import pathlib
import pwd
import socket
import stat
import subprocess
import time

import pytest
from tooling import (APPEND, AT, DIRECTORY, FINISH, IS_ROOT, NEW, PARENTS, TOOL, UNKNOWN, command,
                     data, fails, file, file_head, frame, harness, mode_of, parse, run, tree_of, write)


def special_files(place):
    os.mkfifo(place / "fifo")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(place / "socket"))
    return {"fifo": place / "fifo", "socket": place / "socket", "device": pathlib.Path("/dev/null"),
            "server": server}


# ---- stat ----

def test_stat_tells_what_lstat_does(place):
    path = place / "file"
    path.write_bytes(b"hello")
    path.chmod(0o640)
    (place / "link").symlink_to("file")
    said = run("stat", paths=[path, place / "link", place])
    first, link, top = said.entries
    st = os.lstat(path)
    assert (first.mode, first.size, first.inode, first.uid, first.links, first.modified_ns) == (
        st.st_mode, 5, st.st_ino, st.st_uid, 1, st.st_mtime_ns)
    assert first.user == pwd.getpwuid(os.geteuid()).pw_name.encode()
    assert first.path == os.fsencode(path) and first.target == b""
    assert stat.S_ISLNK(link.mode) and link.target == b"file" and link.operand == 1
    assert stat.S_ISDIR(top.mode) and top.operand == 2
    assert run("stat", "--follow", paths=[place / "link"]).entries[0].inode == st.st_ino


def test_stat_goes_on_after_one_that_is_not_there(place):
    said = run("stat", paths=[place / "no", place, "", "/" + "x" * 300, "a" * 5000], may_fail=True)
    assert [entry.operand for entry in said.entries] == [1]
    assert [(e.operand, e.errnum) for e in said.errors] == [
        (0, errno.ENOENT), (2, errno.ENOENT), (3, errno.ENAMETOOLONG), (4, errno.ENAMETOOLONG)]
    assert said.done and said.status == 0


def test_names_are_bytes(place):
    name = os.fsencode(place) + b"/\xff\xfe\n\x01 \\"
    write(file(name, b"x"))
    assert run("stat", paths=[name]).entries[0].path == name
    assert run("list", paths=[place]).paths == [name]
    assert run("read", paths=[name]).data == b"x"


# ---- list ----

def make_tree(place, names):
    for name in names:
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def below(place, paths):
    return [os.fsdecode(path)[len(str(place)) + 1:] for path in paths]


def test_list_is_in_order_and_as_deep_as_asked(place):
    make_tree(place, ["b", "a/x/deep", "a/y", "a.txt", ".hidden/in"])
    assert below(place, run("list", paths=[place]).paths) == [".hidden", "a", "a.txt", "b"]
    assert below(place, run("list", "--depth", "9", "--hidden", "0", paths=[place]).paths) == [
        "a", "a/x", "a/x/deep", "a/y", "a.txt", "b"]
    assert [e.depth for e in run("list", "--depth", "2", paths=[place]).entries] == [
        1, 2, 1, 2, 2, 1, 1]
    assert run("list", "--depth", "0", paths=[place]).paths == [os.fsencode(place)]
    assert run("list", paths=[place / "b"]).entries[0].depth == 0


def test_pages_of_a_list_hold_each_entry_once_though_others_come_and_go(quick):
    names = [f"d{i % 7}/e{i % 3}/f{i}" for i in range(200)]
    make_tree(quick, names)
    whole = run("list", "--depth", "5", paths=[quick]).paths
    got, after = [], []
    for number in range(1000):
        said = run("list", "--depth", "5", "--limit", "7", *after, paths=[quick])
        got += said.paths
        if not said.done.is_truncated:
            break
        # Before and behind, above and below where the list is: and one is removed where it stands.
        (quick / f"d{number % 7}" / f"new{number}").write_bytes(b"")
        if number % 3 == 0 and os.path.isfile(got[-1]):
            os.unlink(got[-1])
        after = ["--after", got[-1]]
    assert len(set(got)) == len(got)
    assert set(whole) <= set(got)


def test_a_directory_of_many_is_listed_in_order_in_little_memory(quick):
    count = harness.scaled(22000, 2000)
    word = "a-rather-long-name-so-that-they-do-not-all-fit-" * 4
    for number in range(count):
        os.close(os.open(quick / f"{word}{number * 7919 % count}", os.O_CREAT))
    path = quick / "out"
    with open(path, "wb") as out:
        # Of its own it has two megabytes.
        subprocess.run(["prlimit", f"--as={24 << 20}", *command("list", paths=[quick])], stdout=out,
                       check=True)
    names = parse(path.read_bytes(), 0).paths
    names.remove(os.fsencode(path))
    assert len(names) == count and names == sorted(names)


def test_list_takes_globs(place):
    make_tree(place, ["src/a.c", "src/a.h", "src/in/b.c", "node_modules/x.c", "c.py"])
    listed = lambda *globs: below(place, run(  # noqa: E731
        "list", "--depth", "9", *[word for glob in globs for word in ("--glob", glob)],
        paths=[place]).paths)
    assert listed("*.c") == ["node_modules/x.c", "src/a.c", "src/in/b.c"]
    assert listed("*.c", "!node_modules") == ["src/a.c", "src/in/b.c"]
    assert listed("src/**/*.{c,h}") == ["src/a.c", "src/a.h", "src/in/b.c"]
    assert listed("/src/*.[ch]") == ["src/a.c", "src/a.h"]
    assert listed("!src") == ["c.py", "node_modules", "node_modules/x.c"]


def test_a_tree_of_four_thousand_levels_is_listed_copied_changed_and_removed(quick):
    depth = harness.scaled(4200, 300)
    at = os.open(quick, os.O_RDONLY)
    for level in range(depth):
        os.mkdir("dir", dir_fd=at)
        next_at = os.open("dir", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = next_at
    os.close(os.open("bottom", os.O_CREAT, dir_fd=at))
    os.close(at)
    said = run("list", "--depth", "100000", paths=[quick], may_fail=True)
    assert len(said.entries) + len(said.errors) == depth + 1
    assert {e.errnum for e in said.errors} <= {errno.ENAMETOOLONG}
    assert run("usage", paths=[quick]).done.count == depth + 2
    assert run("chmod", "--recursive", "--mode", "700", paths=[quick / "dir"]).done.count == depth + 1
    assert run("copy", "--recursive", paths=[quick / "dir", quick / "copy"]).done.count == depth + 1
    assert run("remove", "--recursive", paths=[quick / "dir"]).done.count == depth + 1
    assert run("remove", "--recursive", paths=[quick / "copy"]).done.count == depth + 1
    assert os.listdir(quick) == []


# ---- find ----

def test_find_takes_types_limits_and_many_places(place):
    make_tree(place, ["a/one.c", "a/two.c", "b/three.c", "b/.dot/four.c"])
    (place / "a/link.c").symlink_to("one.c")
    found = lambda *how: below(place, run(  # noqa: E731
        "find", *how, paths=[place / "a", place / "b"]).paths)
    assert found("--type", "f", "--hidden", "0") == ["a/one.c", "a/two.c", "b/three.c"]
    assert found("--type", "l") == ["a/link.c"]
    assert found("--type", "d") == ["b/.dot"]
    said = run("find", "--glob", "*.c", "--limit", "2", paths=[place / "a", place / "b"])
    assert said.done.is_truncated and said.done.count == 2
    assert not run("find", "--glob", "*.c", "--limit", "5", paths=[place]).done.is_truncated


# ---- read ----

def test_read_gives_what_was_asked_for(place):
    path = place / "file"
    content = os.urandom(harness.scaled(3 << 20, 1 << 16)) + b"end"
    path.write_bytes(content)
    said = run("read", paths=[path])
    assert said.data == content and said.begin.size == len(content)
    assert said.begin.entry.inode == path.stat().st_ino
    part = run("read", "--offset", "1000", "--length", "50", paths=[path])
    assert part.data == content[1000:1050] and part.begin.offset == 1000
    assert run("read", "--offset", str(len(content) - 3), paths=[path]).data == b"end"
    beyond = run("read", "--offset", str(len(content) + 10), paths=[path])
    assert beyond.data == b"" and beyond.begin.entry.size == len(content)
    (place / "link").symlink_to("file")
    assert run("read", paths=[place / "link"]).data == content
    (place / "empty").write_bytes(b"")
    assert run("read", paths=[place / "empty"]).begin.size == 0


def test_read_works_without_a_pipe(place):
    (place / "file").write_bytes(b"x" * 300000)
    with open(place / "out", "wb") as out:
        subprocess.run(command("read", paths=[place / "file"]), stdout=out, check=True)
    assert (place / "out").read_bytes().count(b"x" * 300000) == 1


def test_read_gives_files_that_the_kernel_makes_up():
    said = run("read", paths=["/proc/self/mounts"])
    assert said.data and said.begin.size == len(said.data)
    # More than fits in one piece: each of these is a mapping of its own.
    kept = [mmap.mmap(-1, 4096, prot=mmap.PROT_READ | (mmap.PROT_WRITE if i % 2 else 0))
            for i in range(400)]
    said = run("read", paths=[f"/proc/{os.getpid()}/smaps"])
    assert said.begin.size == UNKNOWN and len(said.data) > 128 << 10
    assert said.data.count(b"VmFlags") >= len(kept)
    part = run("read", "--offset", "131000", "--length", "200", paths=[f"/proc/{os.getpid()}/smaps"])
    assert len(part.data) == 200


def test_what_is_no_file_is_refused_and_nothing_blocks(place):
    special = special_files(place)
    for kind in ("fifo", "socket", "device"):
        assert fails("read", paths=[special[kind]], timeout=5).code == "not_regular"
        before = os.lstat(special[kind])
        wrong = fails("write", stdin=file(special[kind], b"x") + frame(FINISH), timeout=5)
        assert wrong.code == "not_regular" and wrong.operand == 0
        assert os.lstat(special[kind]).st_ino == before.st_ino
    assert fails("read", paths=[place]).code == "is_directory"
    assert fails("read", paths=[place / "no"]).errnum == errno.ENOENT
    assert fails("read", paths=[place / "no" / "no"]).errnum == errno.ENOENT
    (place / "loop").symlink_to("loop")
    assert fails("read", paths=[place / "loop"]).errnum == errno.ELOOP


def test_a_file_that_shrinks_while_it_is_read_is_not_taken_for_whole(place):
    path = place / "file"
    path.write_bytes(b"x" * (8 << 20))
    process = subprocess.Popen(command("read", paths=[path]), stdout=subprocess.PIPE)
    assert len(process.stdout.read(1000)) == 1000
    os.truncate(path, 2 << 20)
    rest = process.stdout.read()
    assert process.wait() == 1 and len(rest) < 8 << 20


# ---- write ----

def test_write_makes_a_file_with_the_usual_mode(place):
    content = os.urandom(harness.scaled(3 << 20, 1 << 18))
    said = write(file(place / "file", content), file(place / "small", b"y"))
    assert (place / "file").read_bytes() == content
    assert [(e.operand, e.size) for e in said.wrote] == [(0, len(content)), (1, 1)]
    mask = os.umask(0)
    os.umask(mask)
    assert mode_of(place / "file") == 0o666 & ~mask
    assert said.done.count == 2 and said.done.bytes == len(content) + 1
    assert sorted(os.listdir(place)) == ["file", "small"]


def test_write_from_what_is_no_pipe(place):
    (place / "input").write_bytes(file(place / "file", b"z" * 200000) + frame(FINISH))
    with open(place / "input", "rb") as source:
        subprocess.run(command("write"), stdin=source, stdout=subprocess.DEVNULL, check=True)
    assert (place / "file").read_bytes() == b"z" * 200000


def test_write_keeps_mode_and_owner_of_what_it_replaces(place):
    path = place / "file"
    path.write_bytes(b"old")
    path.chmod(0o4751)
    owner = (12, 34) if IS_ROOT else (os.geteuid(), os.getegid())
    if IS_ROOT:
        os.chown(path, *owner)
        path.chmod(0o4751)
    inode = path.stat().st_ino
    write(file(path, b"new"))
    st = path.stat()
    assert path.read_bytes() == b"new" and st.st_ino != inode
    assert (st.st_uid, st.st_gid) == owner and mode_of(path) == 0o751
    write(file(path, b"new", mode=0o600))
    assert mode_of(path) == 0o600


def test_a_link_is_written_through_and_stays(place):
    (place / "to").mkdir()
    (place / "to/file").write_bytes(b"old")
    (place / "link").symlink_to("to/other")
    (place / "to/other").symlink_to("../to/file")
    write(file(place / "link", b"new"))
    assert (place / "to/file").read_bytes() == b"new"
    assert (place / "link").is_symlink() and (place / "to/other").is_symlink()
    (place / "dangling").symlink_to("to/made")
    write(file(place / "dangling", b"made"))
    assert (place / "to/made").read_bytes() == b"made"


def test_write_flags(place):
    path = place / "file"
    path.write_bytes(b"0123456789")
    inode = path.stat().st_ino
    write(file(path, b"ab", flags=AT, offset=3))
    assert path.read_bytes() == b"012ab56789"
    write(file(path, b"end", flags=APPEND))
    write(file(path, b"E" * 100000, flags=APPEND))
    assert path.read_bytes() == b"012ab56789end" + b"E" * 100000
    assert path.stat().st_ino == inode
    write(file(place / "made", b"x", flags=AT, offset=5), file(place / "made2", b"x", flags=APPEND))
    assert (place / "made").read_bytes() == b"\0" * 5 + b"x"
    assert fails("write", stdin=file(path, b"", flags=NEW) + frame(FINISH)).errnum == errno.EEXIST
    write(file(place / "new", b"n", flags=NEW))
    deep = place / "a/b/c"
    assert fails("write", stdin=file(deep, b"") + frame(FINISH)).errnum == errno.ENOENT
    write(file(deep, b"deep", flags=PARENTS), file(place / "d/e", flags=DIRECTORY | PARENTS))
    assert deep.read_bytes() == b"deep" and (place / "d/e").is_dir()


def test_one_file_that_fails_does_not_hold_up_the_others(place):
    (place / "dir").mkdir()
    said = run("write", stdin=b"".join([
        file(place / "one", b"1"), file(place / "dir", b"x" * 100000), file(place / "no/no", b"x"),
        file(place / ("n" * 256), b"x"), file(place / "two", b"2")]) + frame(FINISH), may_fail=True)
    assert [e.operand for e in said.wrote] == [0, 4] and said.done
    assert [(e.operand, e.code, e.errnum) for e in said.errors] == [
        (1, "is_directory", errno.EISDIR), (2, "no_parent", errno.ENOENT),
            (3, "", errno.ENAMETOOLONG)]
    assert sorted(os.listdir(place)) == ["dir", "one", "two"]


@pytest.mark.parametrize("cut", ["head", "data", "commit", "finish"])
def test_an_input_that_ends_early_leaves_the_old_file_and_nothing_else(place, cut):
    path = place / "file"
    path.write_bytes(b"old")
    whole = {"head": file_head(path)[:-3], "data": file_head(path) + data(b"x" * 200000)[:-1],
             "commit": file_head(path) + data(b"new"), "finish": file(path, b"new")}[cut]
    wrong = fails("write", stdin=whole)
    assert wrong.code == "input_ended" and wrong.operand == -1
    assert path.read_bytes() == (b"new" if cut == "finish" else b"old")
    assert os.listdir(place) == ["file"]


def test_a_writer_that_is_killed_leaves_nothing(place):
    process = subprocess.Popen(command("write"), stdin=subprocess.PIPE)
    process.stdin.write(file_head(place / "file") + data(b"x" * 100000))
    process.stdin.flush()
    harness.wait_for(lambda: any(str(place) in os.readlink(f"/proc/{process.pid}/fd/{fd}")
                                 and os.stat(f"/proc/{process.pid}/fd/{fd}").st_size > 0
                                 for fd in os.listdir(f"/proc/{process.pid}/fd")),
                     what="the file")
    process.kill()
    process.wait()
    assert os.listdir(place) == []


def test_input_that_no_engine_sends_is_refused(place):
    for text in (frame(99), frame(64, b"short"), data(b"x"), file_head(place / "f") + frame(FINISH),
                 frame(64, b"\0" * 40 + b"noend"), b"\xff" * 64,
                 file_head(place / "f") + file_head(place / "f")):
        wrong = fails("write", stdin=text)
        assert wrong.code in ("bad_input", "input_ended") and wrong.operand == -1
    assert os.listdir(place) == []


def test_a_full_disk_is_told_and_leaves_the_old_file(place):
    program = f"""
set -e
mount -t tmpfs -o size=1m,nr_inodes=20 none {place}
printf old > {place}/file
{' '.join(command('write'))} > "$OUT"
cat {place}/file >&2
ls -A {place} >&2
"""
    stdin, out = (place.parent / (place.name + end) for end in (".in", ".out"))
    stdin.write_bytes(file(place / "file", b"x" * (3 << 20)) + file(place / "after", b"ok") +
                      frame(FINISH))
    with open(stdin, "rb") as source:
        got = subprocess.run(["unshare", *([] if IS_ROOT else ["-r"]), "-m", "sh", "-c", program],
                             stdin=source, stderr=subprocess.PIPE, check=True,
                             env={**os.environ, "OUT": str(out)})
    said = parse(out.read_bytes(), 0)
    stdin.unlink()
    out.unlink()
    assert got.stderr == b"oldafter\nfile\n"
    assert [(e.operand, e.errnum) for e in said.errors] == [(0, errno.ENOSPC)]
    assert [e.operand for e in said.wrote] == [1]


def test_thousands_of_small_files(quick):
    count = harness.scaled(3000, 200)
    text = b"".join(file(quick / f"f{i}", b"content %d" % i) for i in range(count)) + frame(FINISH)
    (quick / "in").write_bytes(text)
    assert write(*[file(quick / f"f{i}", b"content %d" % i) for i in range(count)]).done.count == count
    assert (quick / f"f{count - 1}").read_bytes() == b"content %d" % (count - 1)


def test_rights_are_those_of_the_user(place):
    path = place / "file"
    path.write_bytes(b"old")
    path.chmod(0o444)
    if IS_ROOT:
        write(file(path, b"new"))
        return
    assert fails("write", stdin=file(path, b"new") + frame(FINISH)).errnum == errno.EACCES
    assert path.read_bytes() == b"old"
    assert fails("write", stdin=file("/etc/passwd", b"x") + frame(FINISH)).errnum == errno.EACCES
    assert fails("read", paths=["/etc/shadow"]).errnum == errno.EACCES
    assert fails("chown", "--owner", "root", paths=[path]).errnum == errno.EPERM


# ---- mkdir, symlink ----

def test_mkdir(place):
    said = run("mkdir", "--mode", "1777", paths=[place / "a", place / "b/"])
    assert mode_of(place / "a") == 0o1777 and [e.operand for e in said.entries] == [0, 1]
    assert fails("mkdir", paths=[place / "a"]).errnum == errno.EEXIST
    assert fails("mkdir", paths=[place / "x/y"]).errnum == errno.ENOENT
    run("mkdir", "--parents", paths=[place / "x/y/z", place / "a"])
    (place / "file").write_bytes(b"")
    assert fails("mkdir", "--parents", paths=[place / "file"]).errnum == errno.EEXIST
    assert fails("mkdir", "--parents", paths=[place / "file/in"]).errnum == errno.ENOTDIR
    (place / "link").symlink_to("a")
    assert run("mkdir", "--parents", paths=[place / "link"]).entries[0].inode == (
        place / "a").stat().st_ino


def test_symlink(place):
    said = run("symlink", paths=["../anything at all", place / "link"])
    assert os.readlink(place / "link") == "../anything at all"
    assert said.entries[0].target == b"../anything at all"
    assert fails("symlink", paths=["x", place / "link"]).errnum == errno.EEXIST


# ---- move, copy ----

def test_move(place):
    make_tree(place, ["a/file", "b/other"])
    (place / "a/file").write_bytes(b"content")
    assert run("move", paths=[place / "a/file", place / "moved"]).entries[0].size == 7
    assert not (place / "a/file").exists()
    assert fails("move", paths=[place / "moved", place / "b/other"]).errnum == errno.EEXIST
    assert (place / "b/other").read_bytes() == b"" and (place / "moved").exists()
    run("move", "--replace", paths=[place / "moved", place / "b/other"])
    assert (place / "b/other").read_bytes() == b"content"
    assert fails("move", "--replace", paths=[place / "a", place / "b"]).errnum == errno.ENOTEMPTY
    assert fails("move", paths=[place / "b", place / "b/in"]).errnum == errno.EINVAL
    assert fails("move", paths=[place / "no", place / "x"]).errnum == errno.ENOENT
    run("move", "--parents", paths=[place / "b", place / "x/y/b"])
    assert (place / "x/y/b/other").exists()


def test_move_onto_another_file_system(place):
    other = pathlib.Path("/dev/shm") / place.name
    other.mkdir()
    try:
        make_tree(place, ["t/a/b", "t/c"])
        (place / "t/link").symlink_to("c")
        before = tree_of(place / "t")
        assert place.stat().st_dev != other.stat().st_dev
        run("move", paths=[place / "t", other / "t"])
        assert tree_of(other / "t") == before and os.listdir(place) == []
        run("move", paths=[other / "t/c", place / "c"])
        assert os.listdir(other) == ["t"] and (place / "c").is_file()
    finally:
        subprocess.run(["rm", "-rf", str(other)], check=True)


def test_copy_keeps_what_makes_up_a_tree(place):
    source = place / "source"
    make_tree(source, ["a/file", "a/twin", "b/ro"])
    (source / "a/file").write_bytes(b"x" * 10000)
    (source / "a/twin").unlink()
    os.link(source / "a/file", source / "a/twin")
    (source / "link").symlink_to("/nowhere/at all")
    os.mkfifo(source / "fifo", 0o620)
    with open(source / "sparse", "wb") as sparse:
        sparse.seek(64 << 20)
        sparse.write(b"end")
    (source / "b/ro").chmod(0o400)
    (source / "b").chmod(0o555)
    os.setxattr(source / "a/file", "user.note", b"\0binary")
    os.utime(source / "a/file", ns=(10**18 + 1, 10**18 + 2))
    os.utime(source / "a", ns=(10**18 + 3, 10**18 + 4))
    if IS_ROOT:
        os.chown(source / "link", 5, 6, follow_symlinks=False)
    said = run("copy", "--recursive", paths=[source, place / "copy"])
    copy = place / "copy"
    assert tree_of(copy) == tree_of(source)
    assert (copy / "a/file").stat().st_mtime_ns == 10**18 + 2
    assert (copy / "a").stat().st_mtime_ns == 10**18 + 4
    assert (copy / "a/twin").stat().st_ino == (copy / "a/file").stat().st_ino
    assert os.getxattr(copy / "a/file", "user.note") == b"\0binary"
    assert (copy / "sparse").stat().st_blocks < 1000
    assert said.done.count == 9 and said.entries[0].path == os.fsencode(copy)
    if IS_ROOT:
        assert os.lstat(copy / "link").st_uid == 5


def test_copy_refuses_and_leaves_nothing(place):
    make_tree(place, ["a/file", "b"])
    assert fails("copy", paths=[place / "a", place / "c"]).code == "is_directory"
    assert fails("copy", paths=[place / "b", place / "a/file"]).errnum == errno.EEXIST
    assert fails("copy", "--recursive", paths=[place / "a", place / "a/in"]).errnum == errno.EINVAL
    assert fails("copy", "--recursive", "--replace", paths=[place / "a", place / "b"]).errnum in (
        errno.ENOTDIR, errno.EEXIST)
    assert sorted(os.listdir(place)) == ["a", "b"] and os.listdir(place / "a") == ["file"]
    (place / "b").write_bytes(b"new")
    run("copy", "--replace", paths=[place / "b", place / "a/file"])
    assert (place / "a/file").read_bytes() == b"new"


# ---- remove ----

def test_remove(place):
    make_tree(place, ["a/b/c", "a/d", "keep/me"])
    (place / "a/link").symlink_to(place / "keep")
    (place / "top").symlink_to("keep")
    assert fails("remove", paths=[place / "a"]).errnum == errno.ENOTEMPTY
    (place / "a/b").chmod(0)
    (place / "a/d").write_bytes(b"hello\n")
    (place / "keep/me").write_bytes(b"stays")
    (place / "a/other").hardlink_to(place / "keep/me")
    said = run("remove", "--recursive", paths=[place / "a", place / "top"])
    assert said.done.count == 7 and os.listdir(place) == ["keep"]
    # What has another name has not gone.
    assert said.done.bytes == 6
    assert [(gone.operand, gone.count, gone.bytes) for gone in said.gone] == [
        (0, 6, 6), (1, 1, 0)]
    assert [gone.path for gone in said.gone] == [os.fsencode(place / "a"), os.fsencode(place / "top")]
    assert (place / "keep/me").exists()
    assert fails("remove", paths=[place / "a"]).errnum == errno.ENOENT
    assert [gone.count for gone in run("remove", "--missing-ok", paths=[place / "a"]).gone] == [0]
    for path in (f"{place}/keep/.", f"{place}/keep/..", "/"):
        assert fails("remove", "--recursive", paths=[path]).errnum == errno.EBUSY
    assert (place / "keep/me").exists()


# ---- chmod, chown ----

def test_chmod(place):
    make_tree(place, ["a/file", "outside"])
    (place / "outside").chmod(0o600)
    (place / "a/link").symlink_to("../outside")
    run("chmod", "--recursive", "--mode", "640", paths=[place / "a"])
    assert mode_of(place / "a") == 0o640
    run("chmod", "--mode", "750", paths=[place / "a"])
    assert mode_of(place / "a/file") == 0o640 and mode_of(place / "outside") == 0o600
    (place / "link").symlink_to("outside")
    run("chmod", "--mode", "444", paths=[place / "link"])
    assert mode_of(place / "outside") == 0o444
    assert fails("chmod", "--mode", "10000", paths=[place]).code == "bad_option"


def test_chown(place):
    path = place / "file"
    path.write_bytes(b"")
    me = pwd.getpwuid(os.geteuid())
    for owner in (me.pw_name, str(me.pw_uid), f"{me.pw_name}:{os.getegid()}", f":{os.getegid()}"):
        run("chown", "--owner", owner, paths=[path])
    assert fails("chown", "--owner", "nobody-of-that-name", paths=[path]).code == "unknown_user"
    assert fails("chown", "--owner", ":", paths=[path]).code == "unknown_user"
    if not IS_ROOT:
        return
    make_tree(place, ["a/b"])
    (place / "a/link").symlink_to("../file")
    run("chown", "--recursive", "--owner", "daemon:7", paths=[place / "a"])
    uid = pwd.getpwnam("daemon").pw_uid
    assert {os.lstat(place / name).st_uid for name in ("a", "a/b", "a/link")} == {uid}
    assert path.stat().st_uid == 0 and (place / "a").stat().st_gid == 7
    run("chown", "--no-follow", "--owner", "9", paths=[place / "a/link"])
    assert path.stat().st_uid == 0 and os.lstat(place / "a/link").st_uid == 9


# ---- extended attributes ----

def test_attributes(place):
    path = place / "file"
    path.write_bytes(b"")
    run("setxattr", "--name", "user.a", "--value", "00ff10", paths=[path])
    run("setxattr", "--name", "user.b", "--value", "", paths=[path])
    assert run("getxattr", paths=[path]).attributes.items() >= {
        b"user.a": b"\x00\xff\x10", b"user.b": b""}.items()
    assert run("getxattr", "--name", "user.a", paths=[path]).attributes == {b"user.a": b"\0\xff\x10"}
    run("removexattr", "--name", "user.a", paths=[path])
    assert fails("getxattr", "--name", "user.a", paths=[path]).errnum == errno.ENODATA
    assert fails("setxattr", "--name", "user.a", "--value", "0g", paths=[path]).code == "bad_option"
    assert fails("setxattr", "--name", "nonsense", "--value", "00", paths=[path]).errnum in (
        errno.ENOTSUP, errno.EPERM)


# ---- beneath ----

VERBS_OF_ONE = [("stat",), ("stat", "--follow"), ("list",), ("read",), ("usage",), ("find",), ("getxattr",),
                ("mkdir", "--parents"), ("remove", "--recursive"), ("chmod", "--mode", "600"),
                ("chown", "--owner", "0"), ("setxattr", "--name", "user.x", "--value", "00")]


@pytest.mark.parametrize("verb", VERBS_OF_ONE, ids=" ".join)
def test_beneath_holds(place, verb):
    outside, inside = place / "outside", place / "inside"
    make_tree(place, ["outside/secret/in", "inside/file"])
    (inside / "out").symlink_to("../outside")
    (inside / "absolute").symlink_to(outside)
    (inside / "sneaky").symlink_to("sub/../../outside")
    before = tree_of(outside)
    for path in ("out/secret", "../outside/secret", str(outside / "secret"), "absolute/secret",
                 "file/../../outside/secret", str(inside) + "/../outside", str(inside) + "side",
                 "out/secret/in", "sneaky/secret", "..", "/", "out/", "absolute/"):
        wrong = fails(verb[0], "--beneath", inside, *verb[1:], paths=[path])
        assert wrong.code == "outside" or wrong.errnum in (errno.ENOTDIR, errno.ENOENT), (path, wrong)
    assert tree_of(outside) == before


def test_beneath_lets_through_what_stays_below(place):
    make_tree(place, ["in/a/b/file", "in/c/x"])
    (place / "in/link").symlink_to("a/../c/../a/b")
    (place / "in/a/up").symlink_to("../c")
    for path in ("a/b/file", "link/file", "./a//b/./file", "a/up/../a/b/file",
                 place / "in/a/b/file", "a/b/../b/file"):
        assert run("stat", "--beneath", place / "in", paths=[path]).entries[0].size == 0
    assert run("list", "--beneath", place / "in", paths=[place / "in"]).done
    assert run("list", "--beneath", place / "in", paths=["."]).done
    run("write", "--beneath", place / "in", stdin=file("link/new/deep", b"x", flags=PARENTS) +
        frame(FINISH))
    assert (place / "in/a/b/new/deep").read_bytes() == b"x"
    assert fails("write", "--beneath", place / "in", stdin=file("../x", b"") + frame(FINISH)).code == (
        "outside")


@pytest.mark.parametrize("bound", ["work/in", "work/in/deep", "work/in/"])
@pytest.mark.parametrize("verb", VERBS_OF_ONE, ids=" ".join)
def test_a_bound_on_whose_way_a_link_stands_is_none(place, verb, bound):
    """Code in the box may put a link there at any time, to where the one who set the bound never meant."""
    make_tree(place, ["outside/secret", "outside/deep/secret", "work/in/deep/secret"])
    (place / "work/in").rename(place / "work/was")
    (place / "work/in").symlink_to(place / "outside")
    before = tree_of(place)
    for path in ("secret", place / bound / "secret", "."):
        wrong = fails(verb[0], "--beneath", f"{place}/{bound}", *verb[1:], paths=[path])
        assert wrong.code == "outside" and "is a link" in wrong.text, wrong
    wrong = fails("write", "--beneath", f"{place}/{bound}", stdin=file("new", b"x") + frame(FINISH))
    assert wrong.code == "outside"
    wrong = fails("stat", "--beneath", f"/proc/self/root{place}/outside", paths=["secret"])
    assert wrong.code == "outside"
    assert tree_of(place) == before


def test_a_bound_that_is_swapped_for_a_link_moves_nothing(place):
    """The bound, and a directory above it, are links half of the time."""
    make_tree(place, ["outside/in/secret", "real/in/secret"])
    (place / "outside/in/secret").write_bytes(b"SECRET")
    (place / "link").symlink_to("outside")
    (place / "real/link").symlink_to(place / "outside/in")
    (place / "real").rename(place / "up")
    before = tree_of(place / "outside")
    swapper = subprocess.Popen(["/usr/bin/python3", "-c", f"""
import os, ctypes
os.chdir({str(place)!r})
swap = ctypes.CDLL(None).renameat2
real = os.open("up", os.O_PATH)
while True:
    swap(-100, b"up", -100, b"link", 2)
    swap(real, b"in", real, b"link", 2)
"""])
    until = time.monotonic() + (60 if harness.SOAK else 2)
    good = refused = 0
    try:
        while time.monotonic() < until or not (good and refused):
            for said in (
                    run("read", "--beneath", place / "up/in", paths=["secret"], may_fail=True),
                    run("write", "--beneath", place / "up/in", may_fail=True,
                        stdin=file("new", b"x") + frame(FINISH)),
                    run("setxattr", "--beneath", place / "up/in", "--name", "user.x", "--value", "00",
                        paths=["secret"], may_fail=True)):
                assert b"SECRET" not in said.data
                good += said.done is not None and not said.errors
                refused += said.error is not None and said.error.code == "outside"
    finally:
        swapper.kill()
        swapper.wait()
    assert tree_of(place / "outside") == before
    assert os.listxattr(place / "outside/in/secret") == []


def test_options_that_nobody_knows_are_refused(place):
    for how in (["--nonsense"], ["--depth"], ["--depth", "x"], ["--depth", "99999999999999999999999"],
                ["--beneath", ""]):
        wrong = fails("list", *how, paths=[place])
        assert wrong.operand == -1
    assert subprocess.run([TOOL, "no-such-verb"], stdout=subprocess.DEVNULL, check=False).returncode == 1
    assert subprocess.run([TOOL], stdout=subprocess.DEVNULL, check=False).returncode == 1
