"""scripts/rooms.py finds what runs upwards between rooms and what runs in a circle, in includes and in objects. Each test
makes a tree of a few sources, which are compiled."""
import os
import pathlib
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
# Two files of a room that need each other, and one of a room above that needs one of them.
SOURCES = {"base/one.c": "int base_two(void); int base_one(void); int base_one(void) { return base_two(); }",
           "base/two.c": "int base_one(void); int base_two(void); int base_two(void) { return base_one(); }",
           "net/dial.c": "int base_one(void); int net_dial(void); int net_dial(void) { return base_one(); }"}
CIRCLE = "2 src/base/two.c\n"


class Tree:
    def __init__(self, top):
        self.top = top
        (top / "scripts").mkdir()
        shutil.copy(TOP / "scripts" / "rooms.py", top / "scripts")
        self.list_circles(CIRCLE)
        for name, text in SOURCES.items():
            self.write(name, text)

    def write(self, name, text):
        path = self.top / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def list_circles(self, text):
        (self.top / "scripts" / "circles.txt").write_text("# A comment.\n" + text)

    def build(self):
        build = self.top / "build"
        build.mkdir(exist_ok=True)
        lines = ["rule cc\n  command = cc -c $in -o $out\n"]
        lines += [f"build {source.name}.{number}.o: cc ../{source.relative_to(self.top)}\n"
                  for number, source in enumerate(sorted((self.top / "src").rglob("*.c")))]
        (build / "build.ninja").write_text("".join(lines))
        subprocess.run(["ninja", "--quiet"], cwd=build, check=True)

    def faults(self, *builds):
        done = subprocess.run([self.top / "scripts" / "rooms.py", *builds], cwd=self.top, capture_output=True, text=True,
                              check=False)
        assert done.stderr == "" and (done.returncode == 0) == (done.stdout == ""), done.stderr + done.stdout
        return done.stdout

    def faults_of_calls(self):
        self.build()
        return self.faults("build")


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_calls_downwards_and_a_circle_that_is_listed_are_no_faults(tree):
    assert tree.faults_of_calls() == "" and tree.faults() == ""


def test_an_include_of_a_room_above_is_a_fault(tree):
    tree.write("base/one.c", '#include "net/net.h"')
    assert tree.faults() == "src/base/one.c:1: base reaches up to net\n"


def test_a_symbol_of_a_room_above_is_a_fault(tree):
    """The declaration is the file's own: no include tells of it."""
    tree.write("base/up.c", "int net_dial(void); int base_up(void); int base_up(void) { return net_dial(); }")
    tree.list_circles(CIRCLE)
    said = tree.faults_of_calls()
    assert "src/base/up.c: needs net_dial of src/net/dial.c: base reaches up to net\n" in said
    assert tree.faults() == ""


def test_a_variable_of_a_room_above_is_a_fault(tree):
    tree.write("net/table.c", "int net_table[2] = {1, 2};")
    tree.write("base/up.c", "extern int net_table[2]; int base_up(void); int base_up(void) { return net_table[1]; }")
    assert "src/base/up.c: needs net_table of src/net/table.c" in tree.faults_of_calls()


def test_a_way_of_its_own_to_look_up_a_path_is_a_fault(tree):
    tree.write("net/open.c", "/* Not RESOLVE_BENEATH. */\nstruct open_how how = {.resolve = RESOLVE_IN_ROOT};")
    tree.write("base/fd.c", "long way = SYS_openat2 + RESOLVE_IN_ROOT;")
    assert tree.faults() == "src/net/open.c:2: calls openat2(2) by itself; call fd_open_below()\n"
    tree.write("net/open.c", "long call = SYS_openat2;")
    assert tree.faults() == "src/net/open.c:1: calls openat2(2) by itself; call fd_openat2(), which asks again\n"


def test_a_call_through_a_pointer_may_go_upwards(tree):
    tree.write("base/ring.c", "void (*base_ring)(void); void base_call(void); void base_call(void) { base_ring(); }")
    tree.write("net/hear.c", "extern void (*base_ring)(void); static void hear(void) {}\n"
                             "void net_hear(void); void net_hear(void) { base_ring = hear; }")
    assert tree.faults_of_calls() == ""


def test_a_circle_of_two_folders_is_a_fault(tree):
    """Though no file of it is in a circle of files, and both folders are of one room."""
    tree.write("net/pump.c", "int in_pump(void); int net_pump(void); int net_pump(void) { return in_pump(); }")
    tree.write("net/in/pump.c", "int in_pump(void); int in_pump(void) { return 1; }")
    assert tree.faults_of_calls() == ""
    tree.write("net/in/dial.c", "int net_dial(void); int in_dial(void); int in_dial(void) { return net_dial(); }")
    assert tree.faults_of_calls() == (
        "src/net/in/dial.c: needs net_dial of src/net/dial.c, in a circle of folders: src/net src/net/in\n"
        "src/net/pump.c: needs in_pump of src/net/in/pump.c, in a circle of folders: src/net src/net/in\n")


@pytest.mark.parametrize("table, said", [
    ("", "src/base/one.c src/base/two.c: 2 files need each other in a circle, which is in no line of circles.txt"),
    ("2 src/base/two.c\n2 src/base/one.c\n", "which is in several lines of circles.txt"),
    ("1 src/base/two.c\n", "src/base/two.c: its circle grew from 1 files to 2"),
    ("3 src/base/two.c\n", "src/base/two.c: its circle has 2 files; write that into circles.txt in place of 3"),
    (f"{CIRCLE}2 src/net/dial.c\n", "src/net/dial.c: is in no circle; take it out of circles.txt"),
])
def test_a_circle_that_the_table_says_otherwise_is_a_fault(tree, table, said):
    tree.list_circles(table)
    assert said in tree.faults_of_calls()


def test_a_name_that_two_programs_have_is_that_of_the_own_room(tree):
    tree.write("net/pipe.c", "int net_pipe(void); int net_pipe(void) { return 1; }")
    tree.write("cmd/pipe.c", "int net_pipe(void); int net_pipe(void) { return 2; }")
    tree.write("net/call.c", "int net_pipe(void); int net_call(void); int net_call(void) { return net_pipe(); }")
    assert tree.faults_of_calls() == ""
    tree.write("base/call.c", "int net_pipe(void); int base_call(void); int base_call(void) { return net_pipe(); }")
    assert "src/base/call.c: needs net_pipe of src/cmd/pipe.c" in tree.faults_of_calls()


def test_a_source_without_an_object_is_a_fault(tree):
    tree.build()
    tree.write("net/late.c", "int net_late(void); int net_late(void) { return 1; }")
    assert tree.faults("build").startswith("src/net/late.c: has no object, or an older one; build it in ")


def test_a_source_that_is_newer_than_its_object_is_a_fault(tree):
    tree.build()
    path = tree.top / "src/net/dial.c"
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 10**12))
    assert tree.faults("build").startswith("src/net/dial.c: has no object, or an older one; build it in ")


def test_a_build_that_is_not_there_is_a_fault(tree):
    assert "no build is there" in tree.faults("build")


def test_an_object_in_either_build_will_do(tree):
    tree.build()
    (tree.top / "build").rename(tree.top / "other")
    tree.write("net/late.c", "int net_late(void); int net_late(void) { return 1; }")
    assert "src/net/late.c" in tree.faults("other")
    tree.build()
    (tree.top / "build" / "dial.c.2.o").unlink()
    assert tree.faults("build", "other") == ""
    assert "src/net/dial.c" in tree.faults("build")
