"""What a watch tells, while things are made, moved and removed, slowly and in storms."""
import os
import pathlib
import random
import select
import shutil
import signal
import subprocess
import time

from tooling import CHANGE, DONE, FINISH, HEAD, IS_ROOT, command, fails, frame, harness, parse_change

CREATED, MODIFIED, REMOVED, MOVED, ATTRIBUTES, OVERFLOW, WATCHING, UNWATCHED = range(1, 9)


class Watch:
    def __init__(self, *how, path, preface=()):
        self.process = subprocess.Popen([*preface, *command("watch", *how, paths=[path])],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.path = os.fsencode(path)
        self.buffer = b""
        self.ended = None
        self.sequence = 0
        self.before = self.until(WATCHING)[:-1]

    def next(self, seconds):
        """The next frame, or None after so long."""
        deadline = time.monotonic() + seconds
        while True:
            if len(self.buffer) >= HEAD.size:
                kind, size = HEAD.unpack_from(self.buffer)
                if len(self.buffer) >= HEAD.size + size:
                    payload = self.buffer[HEAD.size:HEAD.size + size]
                    self.buffer = self.buffer[HEAD.size + size:]
                    if kind != CHANGE:
                        self.ended = kind
                        return kind
                    change = parse_change(payload)
                    self.sequence += 1
                    assert change.sequence == self.sequence
                    return change
            if not select.select([self.process.stdout], [], [], max(deadline - time.monotonic(), 0))[0]:
                return None
            text = self.process.stdout.read(1 << 16)
            assert text, "the watch ended"
            self.buffer += text

    def below(self, path):
        assert path.startswith(self.path)
        return os.fsdecode(path[len(self.path) + 1:])

    def until(self, kind, path=None):
        """All changes up to the one of that kind (and path)."""
        got = []
        deadline = time.monotonic() + 10 * harness.PATIENCE
        while time.monotonic() < deadline:
            change = self.next(1)
            if change is None:
                continue
            got.append(change)
            if change == kind if isinstance(change, int) else (
                    change.kind == kind and path in (None, self.below(change.path))):
                return got
        raise AssertionError(f"{kind} {path} did not come: {got}")

    def news(self, marker):
        """What was told since, as (kind, path); the marker's own are left out."""
        (pathlib.Path(os.fsdecode(self.path)) / marker).mkdir()
        return [(change.kind, self.below(change.path)) if change.kind != MOVED else
                (MOVED, self.below(change.path), self.below(change.to))
                for change in self.until(CREATED, marker)[:-1]]

    def end(self):
        self.process.stdin.write(frame(FINISH))
        self.process.stdin.close()
        while self.ended is None:
            self.next(1)
        assert self.ended == DONE
        self.process.stdout.close()
        assert self.process.wait() == 0


def test_each_kind_of_change_is_told_once(place):
    (place / "dir").mkdir()
    (place / "old").write_bytes(b"")
    watch = Watch("--recursive", path=place)
    (place / "file").write_bytes(b"x")
    assert watch.news("m1") == [(CREATED, "file"), (MODIFIED, "file")]
    (place / "old").chmod(0o600)
    assert watch.news("m2") == [(ATTRIBUTES, "old")]
    with Stopped(watch):  # both halves of it are there, then, however slow the machine is
        (place / "old").rename(place / "dir/new")
    assert watch.news("m3") == [(MOVED, "old", "dir/new")]
    with open(place / "dir/new", "ab") as out:
        out.write(b"x")
    assert watch.news("m4") == [(MODIFIED, "dir/new")]
    (place / "dir/new").unlink()
    assert watch.news("m5") == [(REMOVED, "dir/new")]
    os.symlink("/", place / "link")
    assert watch.news("m6") == [(CREATED, "link")]
    watch.end()


def test_directories_that_come_move_and_go_are_followed(place):
    (place / "a/b/c").mkdir(parents=True)
    outside = place.parent / (place.name + "-outside")
    (outside / "in").mkdir(parents=True)
    (outside / "in/file").write_bytes(b"")
    try:
        watch = Watch("--recursive", path=place)
        with Stopped(watch):
            (place / "a/b").rename(place / "z")
        (place / "z/c/file").write_bytes(b"")
        assert watch.news("m1") == [(MOVED, "a/b", "z"), (CREATED, "z/c/file")]
        outside.rename(place / "from")
        (place / "from/in/later").write_bytes(b"")
        news = watch.news("m2")
        assert sorted(news) == [(CREATED, "from"), (CREATED, "from/in"), (CREATED, "from/in/file"),
                                (CREATED, "from/in/later")]
        (place / "from").rename(outside)
        (outside / "in/unseen").write_bytes(b"")
        assert watch.news("m3") == [(REMOVED, "from")]
        shutil.rmtree(place / "z")
        assert watch.news("m4") == [(REMOVED, "z/c/file"), (REMOVED, "z/c"), (REMOVED, "z")]
        (place / "z").mkdir()
        (place / "z/again").write_bytes(b"")
        assert watch.news("m5") == [(CREATED, "z"), (CREATED, "z/again")]
        watch.end()
    finally:
        shutil.rmtree(outside, ignore_errors=True)


def test_a_watch_that_is_not_recursive_sees_its_own_directory_alone(place):
    (place / "dir").mkdir()
    watch = Watch(path=place)
    (place / "dir/file").write_bytes(b"")
    (place / "file").write_bytes(b"")
    assert watch.news("m") == [(CREATED, "file")]
    watch.end()


def test_a_file_can_be_watched(place):
    (place / "file").write_bytes(b"")
    watch = Watch(path=place / "file")
    (place / "file").write_bytes(b"x")
    assert [c.kind for c in watch.until(MODIFIED)][-1] == MODIFIED
    (place / "file").rename(place / "gone")
    watch.until(UNWATCHED)
    watch.until(DONE)
    assert watch.process.wait() == 0


def test_a_watch_ends_when_what_is_watched_goes(place):
    (place / "top/in").mkdir(parents=True)
    watch = Watch("--recursive", path=place / "top")
    shutil.rmtree(place / "top")
    watch.until(UNWATCHED)
    watch.until(DONE)
    assert watch.process.wait() == 0
    assert fails("watch", paths=[place / "top"]).errnum == 2


def test_a_watch_ends_with_its_input(place):
    watch = Watch("--recursive", path=place)
    watch.process.stdin.close()
    assert watch.until(DONE) and watch.process.wait() == 0


def test_what_is_made_while_a_tree_grows_is_never_missed(quick):
    """A storm of directories within directories: in the end, what is there was told, and once."""
    watch = Watch("--recursive", path=quick)
    rng = random.Random(3)
    directories = [quick]
    for number in range(harness.scaled(400, 40)):
        base = rng.choice(directories[-20:])
        new = base / f"d{number}"
        new.mkdir()
        directories.append(new)
        (new / "file").write_bytes(b"x")
    news = watch.news("marker")
    made = [path for kind, path in ((n[0], n[1]) for n in news) if kind == CREATED]
    there = {str(path.relative_to(quick)) for path in quick.rglob("*")} - {"marker"}
    assert set(made) == there
    assert len(made) == len(there)
    watch.end()


class Stopped:
    """The watch does not run, so that what happens meanwhile is there at once when it goes on."""

    def __init__(self, watch):
        self.pid = watch.process.pid

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)
        stat = pathlib.Path(f"/proc/{self.pid}/stat")
        harness.wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T",
                         10 * harness.PATIENCE, "the watch to stop")

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGCONT)


def tree_told_and_queued(place, change):
    """What a watch tells where `change(directory)` happens in a directory that it watches, which it finds
    again within a new one: there it is listed as it has become, and only then comes what the kernel has
    queued of it."""
    (place / "old/a").mkdir(parents=True)
    watch = Watch("--recursive", path=place)
    with Stopped(watch):
        (place / "new").mkdir()
        (place / "old").rename(place / "new/it")
        change(place / "new/it")
    news = watch.news("m1")
    assert news[:2] == [(CREATED, "new"), (CREATED, "new/it")]
    assert news.count((REMOVED, "old")) == 1
    return watch, [told for told in news[2:] if told != (REMOVED, "old")]


def test_a_directory_that_a_listing_told_is_not_listed_again(place):
    watch, news = tree_told_and_queued(place, lambda it: (it / "b/c/d").mkdir(parents=True))
    assert news == [(CREATED, "new/it/a"), (CREATED, "new/it/b"), (CREATED, "new/it/b/c"),
                    (CREATED, "new/it/b/c/d")]
    (place / "new/it/b/c/d/later").write_bytes(b"")
    assert watch.news("m2") == [(CREATED, "new/it/b/c/d/later")]
    watch.end()


def test_a_name_that_a_listing_told_is_told_again_when_it_was_made_again(place):
    def change(it):
        (it / "a").rmdir()
        (it / "a/b").mkdir(parents=True)
        (it / "a/b/file").write_bytes(b"")
    watch, news = tree_told_and_queued(place, change)
    # As it is, then what is queued: that it went, and was made again.
    there = [(CREATED, "new/it/a"), (CREATED, "new/it/a/b"), (CREATED, "new/it/a/b/file")]
    assert news == [*there, (REMOVED, "new/it/a"), *there]
    watch.end()


def test_more_than_the_queue_holds_is_told_as_lost_and_watching_goes_on(quick):
    limit = int(pathlib.Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 20000:
        raise AssertionError("the host's queue is too long for this test")
    watch = Watch("--recursive", path=quick)
    os.kill(watch.process.pid, signal.SIGSTOP)
    for number in range(limit // 2 + 100):
        path = quick / f"f{number}"
        path.mkdir()
        path.rmdir()
    (quick / "new/deep").mkdir(parents=True)
    os.kill(watch.process.pid, signal.SIGCONT)
    watch.until(OVERFLOW)
    (quick / "new/deep/file").write_bytes(b"")
    watch.until(CREATED, "new/deep/file")
    watch.end()


def test_a_directory_that_cannot_be_read_is_told(place):
    if IS_ROOT:
        # Whom modes keep out.
        preface = ["setpriv", "--reuid", "65534", "--clear-groups"]
        place.chmod(0o755)
    else:
        preface = []
    (place / "closed").mkdir()
    (place / "closed").chmod(0)
    watch = Watch("--recursive", path=place, preface=preface)
    assert [(c.kind, watch.below(c.path)) for c in watch.before] == [(UNWATCHED, "closed")]
    watch.end()
