"""Directories and files that turn into links while a verb works: nothing of what is outside is told, read
or changed.

Each verb has a tree of its own in which one process exchanges `swap` with `link` and `flip` with `flink`
all the time; the links lead to `outside`, where the names are the same, so that whoever follows one of them
does there what he should have done inside. Several verbs race side by side. What stands outside bears a
mark in its names, targets, content and attributes that nothing inside has, and inodes and owners of its
own."""
import concurrent.futures
import os
import shutil
import stat as stats
import subprocess
import sys
import tarfile
import threading
import time

import pytest
import conftest
from tooling import (APPEND, AT, FINISH, GREP, IS_ROOT, PARENTS, TOOL, archive_of, command, data, file, frame, harness,
                     member, parse)

pytestmark = pytest.mark.wall

RACE_S = 60 if harness.SOAK else 2
SIDE_BY_SIDE = 5
MARK = b"OUTER"
LINES = 20000
OWNER = 54321 if IS_ROOT else None
NEW_UID, NEW_GID = (7, 8) if IS_ROOT else (os.getuid(), os.getgid())
TO = f"{NEW_UID}:{NEW_GID}"
VALUE = ["--name", "user.mark", "--value", MARK.hex()]

SWAPPER = """
import ctypes, os, sys
swap = ctypes.CDLL(None).renameat2
places = [os.open(path, os.O_PATH) for path in sys.argv[1:]]
pairs = [(fd, a, b) for fd in places for a, b in ((b"swap", b"link"), (b"flip", b"flink"))]
while True:
    for fd, a, b in pairs:
        swap(fd, a, fd, b, 2)
"""


# As the swapper, but the directories come and go.
WALKER = """
import ctypes, os, sys
swap = ctypes.CDLL(None).renameat2
pairs = [(a, b) for path in map(os.fsencode, sys.argv[1:]) for a, b in (
    (path + b"/walk/swap", path + b"/walk/link"), (path + b"/walk/flip", path + b"/walk/flink"))]
while True:
    for a, b in pairs:
        swap(-100, a, -100, b, 2)
"""


class Tree:
    def __init__(self, top):
        self.inside, self.outside = top / "inside", top / "outside"
        self.inside.mkdir()
        self.outside.mkdir()
        self.fill_outside()
        (self.inside / "d").mkdir()
        (self.inside / "d/file").write_bytes(b"in")
        self.into_pair(self.inside)
        self.real = os.open(self.inside / "swap/d", os.O_PATH)  # whatever it is called at the time

    def fill_outside(self):
        """The names of inside, and some that only it has."""
        base = self.outside
        for name in ("d", "d/sub", "d/OUTER-empty", "sub"):
            (base / name).mkdir()
        for name in ("file", "d/file", "d/other", "d/sub/file", "d/OUTER-file", "OUTER-file", "sub/file"):
            (base / name).write_bytes(b"OUTER needle\n" * LINES)
            (base / name).chmod(0o640)
        (base / "d/OUTER-link").symlink_to("OUTER-target")
        for path in [base, *base.rglob("*")]:
            if OWNER is not None:
                os.chown(path, OWNER, OWNER, follow_symlinks=False)
            if not path.is_symlink():
                os.setxattr(path, "user.mark", MARK)

    def into_pair(self, at):
        (at / "swap/d/sub").mkdir(parents=True)
        (at / "swap/sub").mkdir()
        for name in ("file", "d/file", "d/other", "d/sub/file", "sub/file"):
            (at / "swap" / name).write_bytes(b"inner needle\n")
        (at / "link").symlink_to(self.outside)
        (at / "flip").write_bytes(b"inner needle\n")
        (at / "flink").symlink_to(self.outside / "d/file")
        for name in ("swap/d/file", "flip"):
            os.setxattr(at / name, "user.mark", b"inner")

    def refill(self):
        """What verbs take away; by an fd, for the way there is raced."""
        for name in ("file", "other"):
            fd = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o644, dir_fd=self.real)
            os.write(fd, b"inner needle\n")
            os.close(fd)
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self.real)
            os.setxattr(fd, "user.mark", b"inner")
            os.close(fd)
        for name in ("sub", "empty"):
            try:
                os.mkdir(name, dir_fd=self.real)
            except FileExistsError:
                pass
        shutil.rmtree(self.inside / "got", ignore_errors=True)
        try:
            os.unlink(self.inside / "got")
        except FileNotFoundError:
            pass

    def walked(self):
        """A tree whose pair a verb may remove, made anew for each round."""
        fresh, gone = self.inside / "fresh", self.inside / "gone"
        if (self.inside / "walk").exists():
            (self.inside / "walk").rename(gone)  # there nobody exchanges anything
            while gone.exists():  # but for the exchange that was under way
                shutil.rmtree(gone, ignore_errors=True)
        fresh.mkdir()
        self.into_pair(fresh)
        fresh.rename(self.inside / "walk")
        return self.inside / "walk"


def all_of(top):
    """Everything that can be known of what is there."""
    known = {}
    for path in [top, *sorted(top.rglob("*"))]:
        st = os.lstat(path)
        known[str(path)] = (st.st_mode, st.st_uid, st.st_gid, st.st_ino, st.st_nlink, st.st_size,
                            st.st_mtime_ns, st.st_ctime_ns,
                            {name: os.getxattr(path, name, follow_symlinks=False)
                             for name in os.listxattr(path, follow_symlinks=False)},
                            os.readlink(path) if stats.S_ISLNK(st.st_mode) else
                            path.read_bytes() if stats.S_ISREG(st.st_mode) else None)
    return known


def inodes_of(top):
    return {os.lstat(path).st_ino for path in [top, *top.rglob("*")]}


ARCHIVE = archive_of(member("swap/file", content=b"bad"), member("swap/d/file", content=b"bad"),
                     member("swap/d/sub", tarfile.DIRTYPE, mode=0o700), member("swap/d/new", content=b"bad"),
                     member("swap/d/hard", tarfile.LNKTYPE, "swap/d/other"),
                     member("swap/d/sym", tarfile.SYMTYPE, "x"), member("flip", content=b"bad"))
MORE = frame(FINISH)


def call(verb, *how, paths=(), stdin=b"", program=TOOL):
    return verb, how, paths, stdin, program


# What is done in turn, round after round; "WALK" stands for a tree that is made anew.
RACES = {
    "stat": [call("stat", paths=["swap/d/file", "swap/d", "flip"])],
    "stat-follow": [call("stat", "--follow", paths=["swap/d/file", "flip", "swap"])],
    "list": [call("list", "--depth", "9", paths=["swap"]), call("list", paths=["swap/d/sub"])],
    "list-above": [call("list", "--depth", "9", paths=["."])],
    "find": [call("find", paths=["swap/d"]), call("find", "--type", "f", paths=["."])],
    "find-pattern": [call("find", "--pattern", "file", paths=["."], program=GREP),
                     call("find", "--pattern", "file", paths=["swap/d"], program=GREP)],
    "grep": [call("grep", "--pattern", "needle", paths=["."], program=GREP),
             call("grep", "--pattern", "needle", paths=["swap/d"], program=GREP),
             call("grep", "--pattern", "needle", paths=["flip"], program=GREP)],
    "usage": [call("usage", paths=["swap"])],
    "read": [call("read", paths=["swap/d/file"]), call("read", paths=["flip"])],
    "write": [call("write", stdin=file("swap/d/file", b"bad") + MORE),
              call("write", stdin=file("swap/d/new", b"bad") + MORE),
              call("write", stdin=file("flip", b"inner needle\n") + MORE)],
    "write-parents": [call("write", stdin=file("swap/d/made/deep/x", b"bad", flags=PARENTS) + MORE)],
    "write-in-place": [call("write", stdin=file("swap/d/file", b"bad", flags=AT) + MORE),
                       call("write", stdin=file("swap/d/file", b"bad", flags=APPEND) + MORE),
                       call("write", stdin=file("flip", b"bad", flags=APPEND) + MORE)],
    "write-owned": [call("write", stdin=file("swap/d/file", b"bad", uid=NEW_UID, gid=NEW_GID,
                                                mode=0o777) + MORE)],
    "mkdir": [call("mkdir", paths=["swap/d/new"]), call("mkdir", "--parents", paths=["swap/d/m/n"])],
    "symlink": [call("symlink", paths=["x", "swap/d/sym"])],
    "move-out-of": [call("move", "--replace", paths=["swap/d/file", "got"])],
    "move-into": [call("move", "--replace", paths=["d/file", "swap/d/other"]),
                  call("move", "--replace", paths=["swap/d/other", "d/file"])],
    "copy-out-of": [call("copy", "--replace", paths=["swap/d/file", "got"]),
                    call("copy", "--replace", paths=["flip", "got"])],
    "copy-tree": [call("copy", "--recursive", paths=["swap", "got"])],
    "copy-tree-above": [call("copy", "--recursive", paths=["WALK", "got"])],
    "copy-into": [call("copy", "--replace", paths=["d/file", "swap/d/file"]),
                  call("copy", "--recursive", "--replace", paths=["d", "swap/d/sub"])],
    "remove": [call("remove", paths=["swap/d/file"]),
               call("remove", "--recursive", paths=["swap/d/sub"])],
    "remove-tree": [call("remove", "--recursive", paths=["WALK"])],
    "chmod": [call("chmod", "--mode", "711", paths=["swap/d/file", "swap/d"]),
              call("chmod", "--mode", "611", paths=["flip"])],
    "chmod-tree": [call("chmod", "--recursive", "--mode", "700", paths=["swap"]),
                   call("chmod", "--recursive", "--mode", "700", paths=["WALK"])],
    "chown": [call("chown", "--owner", TO, paths=["swap/d/file", "flip"]),
              call("chown", "--no-follow", "--owner", TO, paths=["swap/d/file", "swap/d"])],
    "chown-tree": [call("chown", "--recursive", "--owner", TO, paths=["swap"]),
                   call("chown", "--recursive", "--owner", TO, paths=["WALK"])],
    "getxattr": [call("getxattr", paths=["swap/d/file"]),
                 call("getxattr", "--name", "user.mark", paths=["flip"])],
    "setxattr": [call("setxattr", "--name", "user.mark", "--value", "00", paths=["swap/d/file"]),
                 call("setxattr", "--name", "user.mark", "--value", "00", paths=["flip"])],
    "removexattr": [call("removexattr", "--name", "user.mark", paths=["swap/d/file"]),
                    call("removexattr", "--name", "user.mark", paths=["flip"])],
    "tar-out": [call("tar-out", paths=["swap"]), call("tar-out", paths=["swap/d"]),
                call("tar-out", "--follow", paths=["swap/d/file", "flip"])],
    "tar-out-above": [call("tar-out", paths=["WALK"])],
    "tar-in": [call("tar-in", paths=["."], stdin=data(ARCHIVE) + MORE),
               call("tar-in", paths=["swap/d"], stdin=data(archive_of(
                   member("file", content=b"bad"), member("sub/file", content=b"bad"))) + MORE)],
    "watch": [call("watch", paths=["swap"]), call("watch", "--recursive", paths=["."])],
}
# These never fail as a whole: what turned into a link is passed over, or told as one.
NEVER_REFUSED = {"list-above", "copy-tree", "copy-tree-above", "remove-tree", "tar-out-above",
                 "find", "find-pattern", "grep", "list"}


class Race:
    def __init__(self, name, tree):
        self.name, self.tree = name, tree
        self.good = self.refused = 0
        self.outer = inodes_of(tree.outside)

    def do(self, verb, how, paths, stdin, program):
        tree, where = self.tree, []
        for path in paths:
            if path == "WALK":
                tree.walked()
                path = "walk"
            where.append(path)
        asked = command(verb, "--beneath", tree.inside, *how, paths=where, program=program)
        if verb == "watch":
            output, status = self.watch(asked)
        else:
            got = subprocess.run(asked, input=stdin, stdout=subprocess.PIPE, cwd=tree.inside, check=False,
                                 timeout=60 * harness.PATIENCE)
            output, status = got.stdout, got.returncode
        assert status in (0, 1), (asked, status)
        assert MARK not in output, (asked, output[max(output.index(MARK) - 300, 0):][:600])
        said = parse(output, status)
        for entry in said.entries + said.wrote + ([said.begin.entry] if said.begin else []):
            assert entry.inode not in self.outer, (asked, entry)
            assert entry.uid != OWNER, (asked, entry)
        assert MARK not in b"".join(said.attributes.values())
        if verb == "usage" and said.done:
            assert said.done.bytes < LINES * len(MARK), (asked, said.done)
        if said.errors or said.error:
            self.refused += 1
        else:
            self.good += 1

    def watch(self, asked):
        """Something changes outside all the time; see stir()."""
        process = subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   cwd=self.tree.inside)
        time.sleep(0.02)
        output, _ = process.communicate(frame(FINISH), timeout=60 * harness.PATIENCE)
        return output, process.returncode

    def check_inside(self):
        for path in [*self.tree.inside.rglob("*")]:
            if path.is_symlink():
                continue
            assert path.lstat().st_ino not in self.outer, path
            assert not path.is_file() or MARK not in path.read_bytes(), path
            assert MARK.decode() not in path.name, path

    def run(self, seconds):
        until = time.monotonic() + seconds
        rounds = 0
        # So long as not both sides were met, a slow machine goes on.
        while time.monotonic() < until or (rounds < 2000 and not self.is_fair()):
            for one in RACES[self.name]:
                self.tree.refill()
                self.do(*one)
            rounds += 1
        return rounds

    def is_fair(self):
        return self.good > 0 and (self.refused > 0 or self.name in NEVER_REFUSED)


def stir(path, stop):
    while not stop.wait(0.001):
        with open(path, "ab") as log:
            log.write(b"x")


def compete(names, top):
    """Those verbs at once, each in a thread; what became of each by its name."""
    trees = {}
    for name in names:
        (top / name).mkdir()
        trees[name] = Tree(top / name)
    stop = threading.Event()
    stirrers = []
    if "watch" in names:
        log = trees["watch"].outside / "d/OUTER-log"
        log.write_bytes(b"")
        stirrers.append(threading.Thread(target=stir, args=(log, stop)))
    before = {name: all_of(tree.outside) for name, tree in trees.items()}
    walks = [tree for name, tree in trees.items()
             if any("WALK" in paths for _, _, paths, _, _ in RACES[name])]
    swapper = subprocess.Popen([sys.executable, "-c", SWAPPER,
                                *[str(tree.inside) for tree in trees.values()]])
    walkers = [subprocess.Popen([sys.executable, "-c", WALKER, *[str(tree.inside) for tree in walks]])
               ] if walks else []
    for stirrer in stirrers:
        stirrer.start()
    races = {name: Race(name, tree) for name, tree in trees.items()}
    try:
        with concurrent.futures.ThreadPoolExecutor(len(names)) as threads:
            done = {name: threads.submit(race.run, RACE_S) for name, race in races.items()}
    finally:
        stop.set()
        for process in (swapper, *walkers):
            process.kill()
            process.wait()
        for stirrer in stirrers:
            stirrer.join()
    after = {name: all_of(tree.outside) for name, tree in trees.items()}
    if "watch" in names:
        for known in (before["watch"], after["watch"]):
            del known[str(log)]
    return {name: (races[name], done[name], before[name], after[name]) for name in names}


@pytest.fixture(scope="module")
def raced(request):
    """All that were chosen, some at a time."""
    chosen = [item.callspec.params["name"] for item in request.session.items
              if item.fspath == request.node.fspath and hasattr(item, "callspec")]
    made = conftest.directory(os.environ.get("COVE_TEST_MADE", "/tmp"))
    top = next(made)
    results = {}
    for at in range(0, len(chosen), SIDE_BY_SIDE):
        results |= compete(chosen[at:at + SIDE_BY_SIDE], top)
    yield results
    for _ in made:
        pass


@pytest.mark.parametrize("name", RACES)
def test_who_swaps_what_is_there_for_a_link_gets_nothing_from_outside(raced, name):
    race, done, before, after = raced[name]
    rounds = done.result()  # or what it failed with
    assert before == after
    race.check_inside()
    assert race.is_fair(), (rounds, race.good, race.refused)
