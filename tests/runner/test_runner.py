"""scripts/test.py and scripts/lane.py keep what they promise of tests that hang, fail, or leave something behind. Each
test here is a whole run of one suite, whose tests it writes."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pytest

import harness

TOP = pathlib.Path(__file__).resolve().parents[2]
ENDS_IN_S = 60 * harness.PATIENCE


class Outcome:
    def __init__(self, done, build):
        self.status = done.returncode
        self.text = done.stdout
        self.last = done.stdout.splitlines()[-1]
        path = build / "flaky.json"
        self.flaky = [one["test"] for one in json.loads(path.read_text())] if path.exists() else []
        self.tested = (build / "tested").read_text() if (build / "tested").exists() else ""


@pytest.fixture
def runner():
    """Runs a file of tests as a suite would be run, and says how it ended. All lies in the build directory, which each
    lane sees, and not in a /tmp of its own."""
    build = pathlib.Path(tempfile.mkdtemp(prefix="runner-", dir=harness.BUILD))

    def run(text, *options, start=False, **more):
        (build / "test_it.py").write_text("import os, pathlib, subprocess, time\nimport pytest\n"
                                          f"HERE = pathlib.Path({str(build)!r})\n" + text)
        table = build / "suites.json"
        table.write_text(json.dumps([{"name": "made-up", "kind": "pytest", "what": [str(build / "test_it.py")], **more}]))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COVE_TEST_")}
        words = {"args": [TOP / "scripts" / "test.py", "--suites", table, "--patience", "1", *options], "cwd": TOP,
                 "text": True, "env": {**environment, "BUILD": str(build)}, "stderr": subprocess.STDOUT}
        if start:
            return subprocess.Popen(**words, stdout=subprocess.DEVNULL)
        return Outcome(subprocess.run(**words, stdout=subprocess.PIPE, timeout=ENDS_IN_S, check=False), build)

    run.build = build
    yield run
    shutil.rmtree(build)


FLAKY = """
def test_fails_once():
    seen = HERE / "seen{0}"
    was_there = seen.exists()
    seen.touch()
    assert was_there, "the first time"
"""


def test_all_pass(runner):
    said = runner("def test_a(): pass\ndef test_b(): pass\n")
    assert (said.status, said.last) == (0, "2 passed, 0 failed"), said.text
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=TOP, capture_output=True, text=True, check=True).stdout.strip()
    assert said.tested.startswith(head) and "passed: 2 passed, 0 failed" in said.tested


WEIGHT = """
def test_weight():
    groups = [pathlib.Path(group) for group in os.environ["COVE_TEST_GROUPS"].split(":")]
    found = [(group / name).read_text().strip() for group in groups for name in ("cpu.shares", "cpu.weight.nice")
             if (group / name).exists()]
    assert found and set(found) <= {"9537", "-10"}, found
"""


def test_a_suite_that_measures_goes_before_the_lanes_beside_it(runner):
    """Each lane has groups of its own, and the kernel compares nice values within a group alone."""
    said = runner(WEIGHT, nice=-10)
    assert (said.status, said.last) == (0, "1 passed, 0 failed"), said.text


def test_one_that_always_fails_makes_the_run_red(runner):
    said = runner("def test_a(): assert 1 == 2\ndef test_b(): pass\n")
    assert (said.status, said.last) == (1, "1 passed, 1 failed"), said.text
    assert "assert 1 == 2" in said.text and said.flaky == [] and "failed: 1 passed" in said.tested


def test_one_that_fails_once_is_flaky_and_the_run_is_green(runner):
    said = runner(FLAKY.format(""))
    assert (said.status, said.last) == (0, "1 passed, 0 failed"), said.text
    assert len(said.flaky) == 1 and said.flaky[0].endswith("test_fails_once") and "the first time" in said.text


def test_four_flaky_ones_make_the_run_red(runner):
    said = runner("\n".join(FLAKY.format(number).replace("fails_once", f"fails_{number}") for number in range(4)))
    assert (said.status, said.last) == (1, "0 passed, 4 failed") and len(said.flaky) == 4, said.text


def test_a_wall_that_fails_once_is_not_tried_again(runner):
    said = runner("pytestmark = pytest.mark.wall\n" + FLAKY.format(""))
    assert (said.status, said.last) == (1, "0 passed, 1 failed"), said.text
    assert said.flaky == [] and "not tried a second time" in said.text


def test_one_that_hangs_is_ended_with_the_name_of_its_wait(runner):
    said = runner("import harness\ndef test_a(): harness.wait_for(lambda: False, 3600, 'the moon')\n"
                  "def test_b(): time.sleep(3600)\ndef test_c(): pass\n", "--limit", "1")
    assert (said.status, said.last) == (1, "1 passed, 2 failed"), said.text
    assert "limit of 1 s; it waited for the moon" in said.text and "time.sleep(3600)" in said.text


def test_one_that_no_signal_reaches_fails_and_the_others_run(runner):
    hangs = "import signal\ndef test_a():\n    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\n    time.sleep(3600)\n"
    said = runner(hangs + "def test_b(): pass\n", "--limit", "1", "--silence", "4")
    assert (said.status, said.last) == (1, "1 passed, 1 failed"), said.text
    assert "it said nothing for 4" in said.text


def test_one_that_ends_the_whole_lane_fails_and_the_others_run(runner):
    said = runner("def test_a(): os._exit(3)\ndef test_b(): pass\n")
    assert (said.status, said.last) == (1, "1 passed, 1 failed"), said.text
    assert "it ended all of its lane" in said.text


def test_a_skipped_one_has_failed(runner):
    said = runner("@pytest.mark.skip\ndef test_a(): pass\n")
    assert (said.status, said.last) == (1, "0 passed, 1 failed"), said.text


@pytest.mark.parametrize("leaves, named", [
    ("subprocess.Popen(['sleep', '3600'], start_new_session=True)", "process "),
    ("subprocess.run(['mount', '-t', 'tmpfs', 'left', '/home'], check=True)", "mount /home"),
    ("(pathlib.Path(os.environ['COVE_TEST_GROUPS'].split(':')[0]) / 'left').mkdir()", "cgroup "),
], ids=["process", "mount", "cgroup"])
def test_what_is_left_behind_is_named_and_fails(runner, leaves, named):
    said = runner(f"def test_a(): {leaves}\n")
    assert (said.status, said.last) == (1, "1 passed, 1 failed"), said.text
    assert f"the lane was left with {named}" in said.text and said.flaky == []
    above = harness.LANE_GROUPS or harness.cgroup_roots()  # a guest is a lane itself
    groups = [path for group in above for path in pathlib.Path(group).rglob("lane-made-up-*")]
    assert above and groups == [], "the lane's own groups are left"


def test_what_is_left_out_is_counted_with_its_reason(runner):
    (runner.build / "conftest.py").write_text(
        "def pytest_collection_modifyitems(config, items):\n    items[:] = items[:1]\n"
        "    config.left_out = {'there is no moon': 1}\n")
    said = runner("def test_a(): pass\ndef test_b(): pass\n")
    assert said.last == "1 passed, 0 failed" and "not run in some place: 1" in said.text, said.text
    assert "there is no moon" in said.text


def test_an_empty_suite_is_no_success(runner):
    said = runner("")
    assert said.status == 1 and said.last == "0 passed, 1 failed", said.text


def test_a_clone_that_is_closed_to_others_is_tested_by_an_ordinary_user_all_the_same():
    """Below a directory of mode 0700, and made with a umask of 077."""
    with tempfile.TemporaryDirectory(prefix="runner-", dir=harness.BUILD) as above:
        clone = pathlib.Path(above) / "closed" / "clone"
        clone.parent.mkdir(mode=0o700)
        subprocess.run(["sh", "-c", 'set -e; umask 077; mkdir -p "$2/tests" "$2/build"; cp -r "$1/scripts" "$2"; '
                        'cp -r "$1/tests/lib" "$2/tests"; cp "$1/pytest.ini" "$2"; echo "#!/bin/true" >"$2/build/cove"; '
                        'chmod 700 "$2/build/cove"', "sh", TOP, clone], check=True)
        (clone / "tests" / "test_it.py").write_text(
            "import os, pathlib\nTOP = pathlib.Path(__file__).parents[1]\ndef test_it():\n    assert os.getuid() != 0\n"
            f"    assert str(TOP) == {str(clone)!r}\n    assert os.access(TOP / 'build/cove', os.X_OK)\n")
        (clone / "tests" / "test_it.py").chmod(0o600)
        table = [{"name": "made-up", "kind": "pytest", "what": ["tests/test_it.py"], "user": True}]
        (clone / "suites.json").write_text(json.dumps(table))
        done = subprocess.run([clone / "scripts" / "test.py", "--suites", clone / "suites.json"], cwd=clone, text=True,
                              env={**os.environ, "BUILD": str(clone / "build")}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=ENDS_IN_S, check=False)
        assert done.stdout.endswith("1 passed, 0 failed\n"), done.stdout
        assert "from a copy that all may read" in done.stdout


def test_a_file_that_loads_only_the_second_time_is_not_forgiven(runner):
    """Nobody knows which tests it has."""
    said = runner("seen = HERE / 'loaded'\nwas_there = seen.exists()\nseen.touch()\nassert was_there\ndef test_a(): pass\n")
    assert said.status == 1 and said.flaky == [], said.text


def test_what_does_not_run_is_red_whatever_else_fails_once(runner):
    """The second start of the suite collects nothing."""
    said = runner("seen = HERE / 'begun'\nif not seen.exists():\n    def test_a():\n        seen.touch()\n        os._exit(3)\n"
                  "    def test_b(): assert 0\n")
    assert said.status == 1 and "1 tests did not run" in said.text, said.text


def test_one_that_is_interrupted_has_not_passed(runner):
    said = runner("import signal\ndef test_a(): os.kill(os.getpid(), signal.SIGINT)\ndef test_b(): pass\n")
    assert said.status == 1, said.text


def test_one_that_goes_on_after_its_limit_has_failed(runner):
    said = runner("def test_a():\n    try:\n        time.sleep(60)\n    except BaseException:\n        pass\n", "--limit", "1")
    assert (said.status, said.last) == (1, "0 passed, 1 failed") and "limit of 1 s" in said.text, said.text


def test_an_interrupted_run_ends_its_lanes(runner):
    seen = runner.build / "begun"
    with runner("def test_a():\n    (HERE / 'begun').touch()\n    time.sleep(3600)\n", start=True) as process:
        harness.wait_for(seen.exists, what="the test")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) != 0
    harness.wait_for(lambda: not list(pathlib.Path("/sys/fs/cgroup").glob("*/**/lane-made-up-*")), what="the lane's end")


@pytest.mark.parametrize("text", [
    "describe('a', () => { throw new Error('x'); });", "describe('a', () => { test('b', () => {}); after(() => { throw new Error('x'); }); });",
    "import 'no-such-module';"], ids=["body", "after", "import"])
def test_a_group_of_nodes_tests_that_fails_by_itself_is_red(runner, text):
    where = TOP / "js" / "packages" / "client" / "test" / f"{runner.build.name}.test.mjs"
    where.write_text(f"import {{ after, describe, test }} from 'node:test';\n{text}\n")
    try:
        said = runner("", kind="node", what=[f"packages/client/test/{where.name}"])
    finally:
        where.unlink()
    assert said.status == 1 and said.flaky == [], said.text


def test_a_unit_test_that_is_ended_says_where_it_stood(tmp_path):
    (tmp_path / "it.c").write_text("""#include "check.h"
        __attribute__((noinline)) static void wait_for_what_never_comes(void)
        {
            puts("waiting");
            fflush(stdout);
            pause();
        }
        int main(void)
        {
            wait_for_what_never_comes();
            return check_finish();
        }""")
    subprocess.run(["gcc", "-g", "-fsanitize=address", "-I", TOP / "tests/unit", "-o", tmp_path / "it", tmp_path / "it.c"],
                   check=True)
    with subprocess.Popen([tmp_path / "it"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waiting\n"
        process.terminate()
        said = process.communicate(timeout=ENDS_IN_S)[1]
    assert process.returncode == -signal.SIGTERM and "in wait_for_what_never_comes" in said, said
