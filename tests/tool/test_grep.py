"""Lines found by cove-grep: the same as GNU grep finds, and what it says of each."""
import errno
import os
import random
import subprocess
import time

import pytest
from tooling import GREP, fails, harness, run


def grep(*how, paths, **named):
    return run("grep", *how, paths=paths, program=GREP, **named)


def wrong(*how, paths):
    return fails("grep", *how, paths=paths, program=GREP)


def found(place, *how, paths=None):
    """(path below, line, text) of each match."""
    said = grep(*how, paths=paths or [place])
    return [(os.fsdecode(m.path)[len(str(place)) + 1:], m.line, m.text.decode("utf-8", "replace"))
            for m in said.matches if not m.is_context]


def test_what_is_said_of_a_match(place):
    (place / "file").write_text("nothing\n  héllo wörld 𝄞 hello\nlast hello")
    said = grep("--pattern", "hello", paths=[place / "file"])
    first, last = said.matches
    line = "  héllo wörld 𝄞 hello"
    assert (first.line, first.offset, first.text.decode()) == (2, 8, line)
    assert first.column == line.encode().index(b"hello") and first.length == 5
    assert first.column16 == len(line[:line.index("hello")].encode("utf-16-le")) // 2
    assert (last.line, last.column, last.text) == (3, 5, b"last hello")
    assert said.done.count == 2 and not first.is_context
    wide = grep("--pattern", "h.llo", paths=[place / "file"]).matches[0]
    assert (wide.column, wide.length, wide.length16) == (2, 6, 5)


def test_ways_of_looking(place):
    (place / "a").write_text("one.two\none two\nOne.Two\nxone.twox\n\n")
    lines = lambda *how: [line for _, line, _ in found(place, *how)]  # noqa: E731
    assert lines("--pattern", "one.two") == [1, 2, 4]
    assert lines("--pattern", "one.two", "--fixed") == [1, 4]
    assert lines("--pattern", "one.two", "--ignore-case") == [1, 2, 3, 4]
    assert lines("--pattern", "one.two", "--word") == [1, 2]
    assert lines("--pattern", "One.TWO", "--fixed", "--ignore-case", "--word") == [1, 3]
    assert lines("--pattern", "^$") == [5]
    assert lines("--pattern", "o*$") == [1, 2, 3, 4, 5]
    assert lines("--pattern", "\\Aone") == [1, 2]
    assert lines("--pattern", "two\\Z") == [1, 2]
    assert lines("--pattern", "(?<!x)one(?=\\s)") == [2]
    assert lines("--pattern", "[^a]two") == [1, 2, 4]
    assert lines("--pattern", "two\\s*one") == []
    assert lines("--pattern", "two\\none") == []
    assert lines("--pattern", "q|t?wo") == [1, 2, 3, 4]
    assert lines("--pattern", "(on|tw)e?o?") == [1, 2, 4]
    (place / "a").write_text("naïve\na ve\n")
    assert lines("--pattern", "a\\Wve") == lines("--pattern", "a[^\\w]ve") == [1, 2]
    assert lines("--pattern", "a\\Sve") == [1] and lines("--pattern", "a\\Dve") == [1, 2]
    assert lines("--pattern", "a\\\\Wve") == []


def test_context_is_told_once_and_in_order(place):
    (place / "f").write_text("".join(f"line {i}{' hit' if i in (3, 5, 20) else ''}\n" for i in range(1, 31)))
    said = grep("--pattern", "hit", "--before", "2", "--after", "3", paths=[place / "f"])
    assert [(m.line, bool(m.is_context)) for m in said.matches] == [
        (1, True), (2, True), (3, False), (4, True), (5, False), (6, True), (7, True), (8, True),
        (18, True), (19, True), (20, False), (21, True), (22, True), (23, True)]
    assert said.done.count == 3
    few = grep("--pattern", "hit", "--after", "1", "--per-file", "1", paths=[place / "f"])
    assert [m.line for m in few.matches] == [3, 4]
    limited = grep("--pattern", "hit", "--after", "9", "--limit", "2", paths=[place / "f"])
    assert limited.done.is_truncated and limited.done.count == 2


def test_which_files_are_looked_through(place):
    for name in ("a.c", "b.h", ".hidden.c", "dir/c.c", "node_modules/d.c", ".git/e.c"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("needle\n")
    (place / "binary").write_bytes(b"needle\0needle\n")
    (place / "late").write_bytes(b"x\n" * 5000 + b"needle\n\0")
    (place / "link").symlink_to("a.c")
    os.mkfifo(place / "fifo")
    names = lambda *how: [name for name, _, _ in found(place, "--pattern", "needle", *how)]  # noqa: E731
    assert names() == [".git/e.c", ".hidden.c", "a.c", "b.h", "dir/c.c", "late", "node_modules/d.c"]
    assert names("--hidden", "0", "--glob", "*.c", "--glob", "!node_modules") == ["a.c", "dir/c.c"]
    assert names("--glob", "*.{h,x}") == ["b.h"]
    assert names("--max-file-bytes", "7", "--glob", "late") == []
    assert found(place, "--pattern", "needle", paths=[place / "link"])
    assert wrong("--pattern", "x", paths=[place / "fifo"]).code == "not_regular"
    assert wrong("--pattern", "x", paths=[place / "no"]).errnum == errno.ENOENT


def test_bytes_that_are_no_text(place):
    (place / "latin").write_bytes(b"caf\xe9 needle\nx\xff\xfey\n")
    assert [m.line for m in grep("--pattern", "needle", paths=[place]).matches] == [1]
    assert [m.line for m in grep("--pattern", "x", paths=[place]).matches] == [2]
    assert [m.line for m in grep("--pattern", b"\xe9 n", paths=[place]).matches] == [1]
    assert [m.line for m in grep("--pattern", b"\xff.y", paths=[place]).matches] == [2]


@pytest.mark.parametrize("pattern", ["(", "[a", "a{2,1}", "(?<=a*)b", "\\", "*", "(?C1", "\\C"])
def test_a_pattern_that_is_none(place, pattern):
    failure = wrong("--pattern", pattern, paths=[place])
    assert failure.code == "bad_pattern" and failure.operand == -1 and "at byte" in failure.text
    assert fails("find", "--pattern", pattern, paths=[place], program=GREP).code == "bad_pattern"


def test_a_pattern_that_explodes_is_stopped_and_the_rest_goes_on(place):
    (place / "a").write_text("a" * 5000 + "b\n")
    (place / "b").write_text("aaa\n")
    said = grep("--pattern", "(a|aa)+$", paths=[place], may_fail=True)
    assert [m.path for m in said.matches] == [os.fsencode(place / "b")]
    assert [(e.code, e.path) for e in said.errors] == [("limit", os.fsencode(place / "a"))]


def test_time_is_limited(place):
    for number in range(4000):
        (place / f"f{number}").write_text("a" * 3000 + "b\n")
    started = time.monotonic()
    said = grep("--pattern", "(a|aa)+$", "--time-limit-ms", "15", paths=[place], may_fail=True)
    assert said.error is None and said.done.is_truncated and len(said.errors) < 4000
    assert time.monotonic() - started < 10 * harness.PATIENCE


@pytest.mark.parametrize("pattern, how", [
    ("(?=(a+))a*c", []), ("(?=(a+))a*c", ["--multiline"]), ("((?=a+)a)*?c", [])])
def test_time_is_limited_within_one_match(place, pattern, how):
    """Each of its steps goes over a million bytes. What was found before is told."""
    (place / "found").write_text("aac\n")
    (place / "long").write_text("a" * 1_000_000 + "\nc")
    started = time.monotonic()
    said = grep("--pattern", pattern, "--time-limit-ms", "500", *how, paths=[place / "found", place / "long"])
    assert said.done.is_truncated and said.done.count == 1
    assert [m.text for m in said.matches] == [b"aac"] and not said.errors
    assert time.monotonic() - started < 2 * harness.PATIENCE


def test_long_lines_and_large_files(quick):
    line = b"x" * 100000 + b"needle" + b"y" * 100000
    (quick / "long").write_bytes(line + b"\n" + b"short needle\n")
    first, second = grep("--pattern", "needle", paths=[quick / "long"]).matches
    assert first.is_cut and first.column == 100000 and len(first.text) == 16384
    assert (second.line, second.text) == (2, b"short needle")
    # Larger than any buffer, with matches across all the places where it is divided.
    content = b"".join(b"%d filler of some length, to and fro\n" % i if i % 5000 else b"needle %d\n" % i
                       for i in range(harness.scaled(800000, 50000)))
    (quick / "large").write_bytes(content)
    for how in (["needle"], ["n[e]edle"], ["needle\\d*", "--before", "1"], ["n[^x]edle"]):
        said = grep("--pattern", *how, paths=[quick / "large"])
        matches = [m for m in said.matches if not m.is_context]
        assert [(m.line, m.text) for m in matches] == [
            (i + 1, b"needle %d" % i) for i in range(0, harness.scaled(800000, 50000), 5000)]
        assert all(content[m.offset:m.offset + len(m.text)] == m.text for m in said.matches)
    # One line that nothing holds.
    (quick / "endless").write_bytes(b"z" * (40 << 20) + b"needle\nneedle\n")
    said = grep("--pattern", "needle", paths=[quick / "endless"])
    assert [m.line for m in said.matches] == [1, 2]


def test_a_match_of_several_lines(place):
    (place / "f").write_text("a\nbegin\nmiddle\nend\nz\nbegin end\n")
    said = grep("--multiline", "--pattern", "begin[^q]*?end", "--after", "1", paths=[place / "f"])
    assert [(m.line, m.text, bool(m.is_context)) for m in said.matches] == [
        (2, b"begin\nmiddle\nend", False), (5, b"z", True), (6, b"begin end", False)]
    assert [m.line for m in grep("--multiline", "--pattern", "^end$", paths=[place]).matches] == [4]


def test_find_by_a_pattern(place):
    for name in ("a1", "b2", "dir/a3"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("")
    said = run("find", "--pattern", "^(dir/)?a\\d$", paths=[place], program=GREP)
    assert [os.fsdecode(p)[len(str(place)) + 1:] for p in said.paths] == ["a1", "dir/a3"]


PATTERNS = ["a", "ab", "a.c", "a+b", "^a", "b$", "(ab|ba)c?", "[a-c]+d", "[^a]b", "a?b?c", "\\bab", "abc",
            "a{2}", "ab*c", "x|", "a.*b.*c", "b\\.c", "^a.*c$", "(a|b)\\w", "\\d", "a\\Wb", "[[:alpha:]]b",
            "d(?:e|f)", "(?i)AB", "a(?=b)", "ab\\b"]


def test_the_same_lines_as_gnu_grep(place):
    """Random text of few letters, so that everything happens."""
    rng = random.Random(11)
    for number in range(harness.scaled(12, 4)):
        size = rng.choice([0, 1, 50, 3000, 300000 if number < 2 else 5000])
        text = "".join(rng.choice("aabbccdef. x1\n\n") for _ in range(size))
        (place / f"f{number:02}").write_text(text)
    for pattern in PATTERNS:
        for how in ([], ["--ignore-case"], ["--word"]):
            flags = {"--ignore-case": "-i", "--word": "-w"}
            expected = subprocess.run(
                ["grep", "-PnHr", *(flags[h] for h in how), "-e", pattern, "."], cwd=place,
                env={"LC_ALL": "C", "PATH": os.environ["PATH"]}, stdout=subprocess.PIPE, check=False)
            got = sorted(f"./{name}:{line}:{text}" for name, line, text in
                         found(place, "--pattern", pattern, *how))
            lines = sorted(expected.stdout.decode().splitlines())
            if how == ["--word"]:
                # GNU tries shorter matches of the same place; ours are among its.
                assert set(got) <= set(lines), (pattern, how)
            else:
                assert got == lines, (pattern, how)


def test_beneath(place):
    (place / "in").mkdir()
    (place / "secret").write_text("needle\n")
    (place / "in/out").symlink_to("../secret")
    for path in ("out", "../secret", place / "secret"):
        assert wrong("--beneath", place / "in", "--pattern", "needle", paths=[path]).code == "outside"
    assert not grep("--beneath", place / "in", "--pattern", "needle", paths=["."]).matches
