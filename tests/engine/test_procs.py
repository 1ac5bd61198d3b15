"""The processes of a sandbox, on real boxes: every byte, every end, whoever is killed meanwhile. Each
scenario of driver_procs.c is one test, in a box of its own. Root runs them."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", "build"))
BUILD = BUILD if BUILD.is_absolute() else ROOT / BUILD
LIBRARIES = ["src/engine/libprocs.a", "src/box/libtools.a", "src/box/libbox.a", "src/net/libnet.a",
             "src/base/libbase.a"]
ALICE = "root:x:0:0::/home:/bin/sh\nalice:x:77:78::/:/bin/sh\n"


@pytest.fixture(scope="module")
def driver():
    """Built against the libraries of the test build."""
    build = BUILD / "test"
    sources = sorted((ROOT / "tests/engine").glob("driver_procs*.c"))
    target = BUILD / "drivers" / "procs"
    libraries = [build / name for name in LIBRARIES]
    target.parent.mkdir(exist_ok=True)
    if not target.exists() or any(path.stat().st_mtime > target.stat().st_mtime
                                  for path in [*sources, *libraries]):
        subprocess.run(["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror",
                        "-Isrc", "-Itests/unit", "-o", target, *sources, *libraries,
                        "-l:libjansson.a", "-luv"], check=True, cwd=ROOT)
    return target


@pytest.fixture
def run(driver, tmp_path):
    def drive(scenario, limit=120, **environment):
        directory = tmp_path / "sandbox"
        directory.mkdir(mode=0o700)
        done = subprocess.run([driver, directory, scenario], capture_output=True, text=True,
                              timeout=limit, stdin=subprocess.DEVNULL, check=False,
                              env=dict(os.environ, **environment))
        assert done.returncode == 0, done.stdout + done.stderr
        assert ", 0 failed" in done.stdout

    return drive


@pytest.fixture
def busybox(tmp_path):
    root = tmp_path / "root"
    for name in ("bin", "etc", "tmp", "usr/bin"):
        (root / name).mkdir(parents=True)
    program = (root / "bin/busybox")
    program.write_bytes(pathlib.Path("/bin/busybox").read_bytes())
    program.chmod(0o755)
    applets = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout
    for name in applets.split():
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").write_text(ALICE)
    (root / "etc/group").write_text("root:x:0:\nalice:x:78:\nstaff:x:79:bob,alice\n")
    return root


def test_both_streams_are_exact_to_the_byte(run):
    run("exact_bytes")


def test_how_a_command_ends_is_told_as_it_was(run):
    run("statuses")


def test_a_kill_that_was_not_ours_is_asked_about(run):
    run("out_of_memory")


def test_commands_run_as_the_user_they_name(run):
    run("users")


def test_a_root_without_bash_and_with_users_of_its_own(run, busybox):
    run("other_root", COVE_TEST_ROOT=str(busybox))


def test_account_files_of_the_box_neither_hang_nor_flood(run, busybox):
    run("hostile_accounts", COVE_TEST_ROOT=str(busybox))


def test_a_daemon_that_keeps_the_pipe_does_not_keep_the_result(run):
    run("daemon_keeps_pipe")


def test_a_daemon_that_floods_does_not_keep_the_result(run):
    run("daemon_floods")


def test_a_timeout_kills_the_tree_and_is_124(run):
    run("timeout_kills_tree")


def test_beyond_the_limit_the_oldest_output_goes_and_is_counted(run):
    run("gap_beyond_limit")


def test_the_output_of_all_shares_what_the_sandbox_may_have(run):
    run("shared_limit")


def test_a_full_disk_costs_the_oldest_output_and_no_command(run):
    run("disk_full")


def test_a_thousand_followers_read_the_same(run):
    run("thousand_followers")


def test_what_is_fed_comes_back(run):
    run("stdin_to_cat_and_back")


def test_a_stdin_that_nobody_reads_blocks_nobody(run):
    run("stdin_that_nobody_reads")


def test_no_byte_and_no_end_is_lost_over_twenty_kills_of_the_engine(run):
    run("killed_engine")


def test_a_timeout_and_the_numbers_survive_a_restart(run):
    run("restart_keeps_timeout")


def test_any_callback_may_close_everything(run):
    run("closed_in_callbacks")


def test_an_init_that_lies_harms_nobody_else(run):
    run("init_that_lies")


def test_what_ran_in_a_box_that_died_is_lost_and_says_why(run):
    run("box_dies")


def test_ended_processes_are_forgotten_in_time(run):
    run("ended_are_forgotten")


def test_a_thousand_ended_processes_are_kept(run):
    run("many_ended")


def test_floods_starve_nobody(run):
    run("floods_starve_nobody")


def test_true_after_true(run):
    run("true_after_true")


def test_a_tool_runs_and_says_how_it_ended(run):
    run("tools")


def test_a_cancelled_tool_is_killed_and_says_nothing_more(run):
    run("tools_cancelled")


def test_a_tool_in_a_box_that_is_full_of_processes(run):
    run("tools_without_pids")


def test_tools_of_a_killed_engine_are_killed_by_the_next(run):
    run("tools_of_killed_engine")
