"""What a program in a box is told of its machine: what --cpus and --memory gave it, so that
runtimes which size themselves by it do not die."""
import os
import pathlib
import re
import resource
import subprocess

import pytest

import harness
from harness import run

MIB = 1 << 20
NOFILE_MAX = 16384  # as src/box/inside.c has it


@pytest.mark.parametrize("cpus, expected",
                         [("1", 1), ("0.5", 1), (str(os.cpu_count()), os.cpu_count())])
def test_cpus(cpus, expected):
    script = ("nproc; python3 -c 'import os; print(os.cpu_count(), len(os.sched_getaffinity(0)))'; "
              "grep -c ^processor /proc/cpuinfo; grep -c '^cpu[0-9]' /proc/stat")
    result = run(script, "--cpus", cpus)
    numbers = result.stdout.split()
    assert numbers[0] == numbers[2] == str(expected), result.stdout
    assert numbers[3] == numbers[4] == str(expected), result.stdout


def test_cpus_by_default_are_all():
    assert run("nproc").stdout == f"{len(os.sched_getaffinity(0))}\n"


@pytest.mark.parametrize("memory, mib", [("256M", 256), ("1G", 1024), ("96M", 96)])
def test_memory(memory, mib):
    result = run("free -m; free -b; grep MemTotal /proc/meminfo", "--memory", memory)
    total = re.search(r"Mem:\s+(\d+)\s+(\d+)\s+(\d+)", result.stdout)
    assert abs(int(total.group(1)) - mib) <= 1, result.stdout
    assert f"MemTotal:       {mib * 1024:8} kB" in result.stdout
    swap = re.search(r"Swap:\s+(\d+)", result.stdout)
    assert int(swap.group(1)) == 0


def test_tools_that_read_it_do_not_stumble():
    for command in (["vmstat"], ["top", "-b", "-n", "1"], ["uptime"], ["ps", "aux"], ["w"],
                    ["free", "-h"], ["df", "-h"]):
        result = run(command, "--cpus", "1", "--memory", "256M")
        assert result.report["exit_code"] == 0, (command, result.stderr)


@pytest.mark.parametrize("memory, most", [("256M", 140), ("512M", 150)])
def test_a_jvm_sizes_its_heap_by_the_limit(memory, most):
    result = run("java -XX:+PrintFlagsFinal -version 2>/dev/null | grep -E ' MaxHeapSize '",
                 "--memory", memory)
    heap = int(re.search(r"=\s*(\d+)", result.stdout).group(1))
    assert 16 * MIB <= heap <= most * MIB, heap // MIB
    result = run("java -Xlog:os+container=info -version", "--memory", memory, "--cpus", "1")
    assert result.report["exit_code"] == 0 and not result.report["oom_killed"]


def test_a_jvm_counts_its_cpus():
    result = run("java -XshowSettings:system -version 2>&1 | grep -i 'CPU Count'; "
                 "java -XX:+PrintFlagsFinal -version 2>/dev/null | grep ActiveProcessorCount",
                 "--cpus", "1", "--memory", "512M")
    assert "Effective CPU Count: 1" in result.stdout, result.stdout


def test_node_is_told_the_limit():
    result = run(["node", "-p", "const os = require('os'); JSON.stringify([os.totalmem(), "
                  "os.availableParallelism(), process.constrainedMemory?.() ?? 0])"],
                 "--memory", "512M", "--cpus", "1")
    total, parallel, constrained = eval(result.stdout)  # a list of three numbers
    assert (total, parallel) == (512 * MIB, 1), result.stderr
    assert constrained in (0, 512 * MIB)


def test_node_does_not_die_of_its_heap():
    result = run(["node", "-e", "let a = []; for (let i = 0; i < 2e5; i++) a.push({i}); "
                  "console.log(a.length)"], "--memory", "256M")
    assert result.stdout == "200000\n", result.report


def test_the_boxs_own_cgroups_say_the_limits():
    script = "cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes cpu/cpu.cfs_quota_us pids/pids.max " \
             "2>/dev/null || cat memory.max cpu.max pids.max"
    result = run(script, "--memory", "128M", "--cpus", "0.5", "--pids", "77")
    assert result.stdout.split() in ([str(128 * MIB), "50000", "77"],
                                     [str(128 * MIB), "50000", "100000", "77"]), result.stdout


def test_nothing_else_of_sys_is_there():
    listing = run("ls /sys; ls /sys/fs; ls /sys/fs/cgroup").stdout.split()
    assert listing[:2] == ["fs", "cgroup"]
    assert set(listing[2:]) <= {"cpu", "cpuacct", "cpuset", "memory", "pids", "cpu,cpuacct"} or \
        "memory.max" in listing


def test_disk_is_what_df_says():
    result = run("df -B1 --output=size /tmp | tail -1; df --output=itotal /tmp | tail -1",
                 "--disk", "64M,5000")
    size, inodes = map(int, result.stdout.split())
    assert 64 * MIB <= size <= 66 * MIB and 5000 <= inodes <= 5300


def test_the_callers_soft_limit_of_fds_is_not_the_boxs():
    """Servers rarely raise it themselves, and the soft limit of a shell is small."""
    line = 'ulimit -Sn 1000; exec "$0" run -- sh -c "ulimit -Sn; ulimit -Hn"'
    done = subprocess.run(["sh", "-c", line, harness.COVE], capture_output=True, text=True, check=False,
                          timeout=60 * harness.PATIENCE)
    assert done.returncode == 0, done.stderr
    soft, hard = map(int, done.stdout.split())
    assert soft == hard == min(NOFILE_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def test_limits_of_two_boxes_are_their_own():
    first = harness.start("free -m | grep Mem; sleep 30", "--memory", "128M")
    try:
        assert first.stdout.readline().split()[1] == b"128"
        assert run("free -m | grep Mem", "--memory", "256M").stdout.split()[1] == "256"
    finally:
        harness.end(first)


def test_the_default_is_at_most_half_of_the_machine():
    total = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1))
    shown = int(run("grep MemTotal /proc/meminfo").stdout.split()[1])
    assert shown == min(2 << 20, total // 2) or abs(shown - total // 2) < 4
