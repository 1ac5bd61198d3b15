"""Hosts, images and limits that are out of the ordinary: each was a bug once."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

import harness
from harness import cove


@pytest.fixture
def small_root(tmp_path):
    """An image with a shell and nothing else."""
    (tmp_path / "root/bin").mkdir(parents=True)
    (tmp_path / "root/etc").mkdir()
    shutil.copy("/bin/busybox", tmp_path / "root/bin/sh")
    (tmp_path / "root").chmod(0o755)
    tmp_path.chmod(0o755)
    return tmp_path / "root"


def test_a_home_behind_a_link_keeps_no_image_from_running(small_root):
    (small_root / "home-real").mkdir()
    (small_root / "home").symlink_to("home-real")
    result = cove("run", "--root", small_root, "--", "sh", "-c", "echo here")
    assert (result.code, result.stdout) == (0, "here\n")


def test_a_device_in_the_place_of_an_accounts_file_is_not_opened(small_root):
    # /dev/kmsg: a reader without O_NONBLOCK would wait, one with it would get EAGAIN.
    os.mknod(small_root / "etc/passwd", 0o666 | 0o020000, os.makedev(1, 11))
    result = cove("run", "--root", small_root, "--", "sh", "-c", "echo here", limit=20)
    assert (result.code, result.stdout) == (0, "here\n")


def test_a_host_that_wants_memfds_without_exec():
    result = subprocess.run(
        ["unshare", "-pf", "--mount-proc", "sh", "-c",
         'echo 1 > /proc/sys/vm/memfd_noexec && exec "$0" run -- echo here', harness.COVE],
        capture_output=True, text=True, timeout=30)
    if "memfd_noexec" not in result.stderr:  # before Linux 6.3 there is no such setting
        assert (result.returncode, result.stdout) == (0, "here\n"), result.stderr


def test_a_limit_that_no_cgroup_keeps_is_kept_by_the_watchdog():
    memory = pathlib.Path("/sys/fs/cgroup/memory")
    if not memory.is_dir():  # on v2 the controllers cannot be taken away one by one
        return
    result = subprocess.run(
        ["unshare", "-m", "sh", "-c",
         'umount "$1" && exec "$0" run --json --memory 64M -- python3 -c "x = bytearray(1 << 30)"',
         harness.COVE, memory],
        capture_output=True, text=True, timeout=30)
    report = json.loads(result.stdout)
    assert (report["signal"], report["oom_killed"], report["limits"]) == ("SIGKILL", True, "rlimit")
    assert result.stderr == "" and len(report["warnings"]) == 1 and "limits=rlimit" in report["warnings"][0]


def test_a_disk_larger_than_any_is_refused():
    result = cove("run", "--disk", 2**64 - 1, "--", "true")
    assert result.code == 125 and "--disk" in result.stderr


def test_a_caller_with_few_fds_is_told_so():
    result = subprocess.run(["sh", "-c", 'ulimit -n 16; exec "$0" run -- true', harness.COVE],
                            capture_output=True, text=True, timeout=30)
    assert result.returncode == 125 and "ulimit -n" in result.stderr


def test_a_reader_that_stalls_does_not_outlive_the_timeout():
    read, write = os.pipe()
    started = time.monotonic()
    done = subprocess.run([harness.COVE, "run", "--tty", "--timeout", "1s", "--", "yes"],
                          stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.DEVNULL,
                          timeout=30)
    elapsed = time.monotonic() - started
    os.close(read)
    os.close(write)
    assert done.returncode == 124 and elapsed < 15 * harness.PATIENCE


def test_a_signal_right_after_the_first_output_reaches_the_command():
    for _ in range(harness.scaled(10, 3)):
        process = subprocess.Popen(
            [harness.COVE, "run", "--", "sh", "-c",
             "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 7
        process.stdout.close()


def test_kill_9_of_a_throttled_box_leaves_nothing():
    process = subprocess.Popen(
        [harness.COVE, "run", "--cpus", "0.1", "--pids", "400", "--", "sh", "-c",
         f"for i in $(seq {harness.scaled(250)}); do sleep 99 & done; echo ready; wait"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait()  # and the check after every test finds nothing left
