"""Entries 1 to 16 and 20 to 22 of the list of abuses: what can be used up. Each ends with a clear
result within the limits, and with a host that does not notice."""
import os
import pathlib
import select
import shutil
import signal
import struct
import subprocess
import time

import pytest

import harness
from harness import ATTACK_MOUNT, EXPECT, PATIENCE, SCALE, SOAK, attack, run, scaled

pytestmark = pytest.mark.wall

MIB = 1 << 20


@pytest.fixture(params=["plain", "system"])
def privileges(request):
    return ("--privileges", request.param)


# ---- processes ---------------------------------------------------------------------------------

def test_01_fork_bomb_stops_at_the_limit(privileges):
    _, values = attack(1, options=("--pids", 64, *privileges))
    assert 40 <= values["processes"] < 64


def test_01_shell_fork_bomb_ends_by_timeout():
    # The first shell forks but once, before there is a bomb that could leave it no room.
    result = run("bomb() { bomb | bomb & }; (bomb); exec sleep 60", "--pids", 100, "--timeout", "1s")
    assert result.report["timed_out"] and result.report["exit_code"] == 124
    assert result.seconds < 15 * PATIENCE


def test_01_fork_bomb_leaves_room_for_others():
    bomb = harness.start(["/attack/attack", 1, 4000, 60000], "--mount", ATTACK_MOUNT)
    try:
        assert b"processes" in bomb.stdout.readline()
        harness.check_host_healthy()
        assert run("echo fine").stdout == "fine\n"
    finally:
        harness.end(bomb)


def test_02_thread_bomb_stops_at_the_limit(privileges):
    _, values = attack(2, options=("--pids", 64, *privileges))
    assert 40 <= values["threads"] < 64


# ---- memory ------------------------------------------------------------------------------------

def out_of_memory(result, limit):
    """Killed for memory, and said so."""
    assert result.report["oom_killed"], result.report
    assert result.report["exit_code"] in (None, 137), result.report
    assert result.report["signal"] == "SIGKILL"
    assert result.report["peak_memory_bytes"] <= EXPECT.peak(limit)


def test_03_anonymous_memory_bomb(privileges):
    result, _ = attack(3, options=("--memory", "64M", *privileges), killed=True)
    out_of_memory(result, 64 * MIB)


def test_03_the_memory_limit_is_named_without_json():
    result = harness.run_plain(["/attack/attack", 3], "--mount", ATTACK_MOUNT, "--memory", "64M")
    assert result.code == 137
    lines = result.err.decode().splitlines()
    assert len(lines) == 1 and "64 MiB" in lines[0] and "--memory" in lines[0], lines


@pytest.mark.parametrize("kind", ["memfd", "sysv", "/dev/shm/bomb", "/tmp/bomb",
                                  "/home/user/bomb"])
def test_04_memory_by_other_names(kind):
    if kind == "memfd" and not EXPECT.has_cgroup:
        result = run(["/attack/attack", 4, kind], "--mount", ATTACK_MOUNT)
        assert "errno 9 after 0 MiB" in result.stdout  # no memfd came of it
        return
    if kind == "sysv" and not EXPECT.has_cgroup:
        result, _ = attack(4, kind)
        assert "0 MiB" in result.stdout and not result.report["oom_killed"]  # nor a segment
        return
    result, _ = attack(4, kind, options=("--memory", "64M", "--disk", "2G"), killed=True)
    out_of_memory(result, 64 * MIB)


def test_04_a_file_system_in_memory_stops_at_its_own_limit():
    _, values = attack(4, "/dev/shm/bomb", options=("--memory", "256M", "--disk", "32M"))
    assert 16 * MIB <= values["bytes"] <= 33 * MIB


def test_05_dirty_pages_are_charged_to_the_box(workspace):
    before = harness.memory_available()
    result, _ = attack(5, "/workspace/flood", 256,
                       options=("--memory", "64M", "--workspace", workspace))
    assert result.report["peak_memory_bytes"] <= 72 * MIB
    # Others use memory meanwhile; what was not given back stays away.
    harness.wait_for(lambda: harness.memory_available() > before - 256 * MIB,
                     60 * PATIENCE, "the memory of before")


# ---- disk --------------------------------------------------------------------------------------

def caps(root):
    """Before Linux 6.6 a tmpfs cannot be an image's upper directory: a loop device is, and /dev/shm
    beside it has a cap of its own."""
    return 2 if root == "image" and harness.kernel() < (6, 6) else 1


@pytest.mark.parametrize("root", ["host", "image"])
def test_06_disk_fill_is_one_limit_for_all_places(root, debian):
    options = ("--disk", "32M", "--memory", "256M")
    if root == "image":
        options += ("--root", debian, "--privileges", "system")
    _, values = attack(6, options=options)
    assert 24 * MIB <= values["bytes"] <= caps(root) * 33 * MIB


@pytest.mark.parametrize("root", ["host", "image"])
def test_07_inode_fill_is_one_limit_for_all_places(root, debian):
    options = ("--disk", "256M,2000")
    if root == "image":
        options += ("--root", debian, "--privileges", "system")
    _, values = attack(7, options=options)
    assert 1500 <= values["files"] <= caps(root) * 2300


def test_08_huge_sparse_file_and_its_copy():
    _, values = attack(8, "/tmp", options=("--disk", "32M", "--memory", "256M"))
    assert values["bytes of it written"] <= 33 * MIB
    result = run("truncate -s 1T /tmp/a && cp --sparse=never /tmp/a /tmp/b; echo $?; "
                 "stat -c %b /tmp/b", "--disk", "32M", "--memory", "256M")
    status, blocks = result.stdout.split()
    assert status != "0" and int(blocks) * 512 <= 33 * MIB


# ---- fds, buffers, watches ---------------------------------------------------------------------

def test_09_fds_stop_at_the_limit_also_in_flight():
    _, values = attack(9)
    assert values["fds"] <= 16384
    assert values["fds in flight"] <= 40000
    with open("/proc/sys/fs/file-nr", encoding="ascii") as file:
        used, _, most = map(int, file.read().split())
    assert used < most / 2


@pytest.mark.parametrize("kind", ["pipe", "socket", "tcp", "udp"])
def test_10_buffers_are_charged_to_the_box(kind):
    result = run(["/attack/attack", 10, kind, 256], "--mount", ATTACK_MOUNT, "--memory", "64M")
    filled = [check["value"] for check in harness.attack_lines(result.stdout) if "value" in check]
    assert filled and max(filled) <= 80 * MIB
    if result.report["exit_code"] != 0:
        out_of_memory(result, 64 * MIB)


def test_11_watches_are_limited_and_only_the_boxs():
    def pending():
        """Signals and timers of this user, those of his boxes among them."""
        return int(harness.status_of(os.getpid())["SigQ"].split("/")[0])

    before = pending()
    box = harness.start(["/attack/attack", 11, 60000], "--mount", ATTACK_MOUNT)
    try:
        lines = [box.stdout.readline() for _ in range(10)]
        assert all(b'"walled": true' in line for line in lines), lines
        values = {check["check"]: check["value"] for check in harness.attack_lines(b"".join(lines).decode())
                  if "value" in check}
        most = 100 if harness.EXPECT.is_root else 4000  # of root's boxes they are each box's own
        assert 512 < values["posix timers"] <= 1024 and pending() - before < most
        # The host's own user still has all of its.
        script = "import ctypes; c = ctypes.CDLL(None); assert c.inotify_init1(0) >= 0"
        subprocess.run(["/usr/bin/python3", "-c", script], check=True)
        neighbour = run(["/usr/bin/python3", "-c", script])
        assert neighbour.report["exit_code"] == 0, neighbour.stderr
    finally:
        harness.end(box)


def test_12_terminals_are_limited_and_leave_some_for_others():
    box = harness.start(["/attack/attack", 12, 60000], "--mount", ATTACK_MOUNT)
    try:
        taken, = harness.attack_lines(box.stdout.readline().decode())
        assert taken["check"] == "terminals" and taken["value"] == 32
        for descriptor in os.openpty():
            os.close(descriptor)
        neighbour = run(["/usr/bin/python3", "-c", "import os; os.openpty()"])
        assert neighbour.report["exit_code"] == 0, neighbour.stderr
    finally:
        harness.end(box)


# ---- memory that no cgroup counts ----

def test_69_access_lists_are_short_and_flow_labels_are_not_there(privileges):
    attack(69, options=privileges)


def test_70_small_objects_that_nothing_counts_are_not_there(privileges):
    attack(70, options=privileges)


def test_72_no_directory_inherits_an_access_list_of_an_image(busybox, tmp_path):
    root, image = tmp_path / "root", tmp_path / "root.erofs"
    shutil.copytree(busybox, root, symlinks=True)
    (root / "listed").mkdir()
    (root / "listed").chmod(0o777)
    entries = [(1, 7, -1), *[(2, 7, uid) for uid in range(50)], (4, 7, -1), (16, 7, -1), (32, 7, -1)]
    text = struct.pack("I", 2) + b"".join(struct.pack("HHi", *entry) for entry in entries)
    os.setxattr(root / "listed", "system.posix_acl_default", text)
    subprocess.run(["mkfs.erofs", image, root], check=True, capture_output=True)
    attack(72, "/listed", options=("--root", image))


def test_73_sockets_have_no_error_queue_and_few_connections_wait(privileges):
    _, values = attack(73, options=privileges)
    # Before, the kernel has no such number in a namespace that no root of the host made.
    if harness.kernel() >= (6, 3):
        assert values["connections that may wait"] == 512


# ---- CPU ---------------------------------------------------------------------------------------

def test_13_cpu_spin_stays_within_its_share():
    result, values = attack(13, 2 if SCALE == 1 else 4, options=("--cpus", "0.5"))
    used = result.report["cpu_ms"] / result.report["wall_ms"]
    assert used <= EXPECT.cpus(0.5) * 1.15 + 0.1, f"{used:.2f} CPUs"
    assert values["CPUs after asking for all"] >= 1


def test_13_one_cpu_stays_one_whatever_is_asked_for():
    # Long enough that a box made slowly, and the first period at full speed, weigh little.
    result, values = attack(13, 1 if SCALE == 1 else 4, options=("--cpus", "1"))
    assert result.report["cpu_ms"] <= 1.15 * result.report["wall_ms"]
    roots = harness.cgroup_roots()
    if any("cpuset" in root for root in roots):
        assert values["CPUs after asking for all"] == 1


def test_14_locked_memory_and_huge_pages(privileges):
    attack(14, options=privileges)


# ---- output, and what is long ------------------------------------------------------------------

@pytest.mark.parametrize("descriptor, name", [(1, "stdout"), (2, "stderr")])
def test_15_gigabytes_of_output_keep_the_newest_bytes(descriptor, name):
    size = (10 << 30) if SOAK or descriptor == 1 else (1 << 30)
    size = size if SCALE == 1 else 64 * MIB
    result = run(["/attack/attack", 15, descriptor, size], "--mount", ATTACK_MOUNT,
                 "--output-limit", "1M", "--memory", "128M", limit=600)
    assert result.report["exit_code"] == 0
    kept = size - result.report[f"{name}_dropped_bytes"]
    assert MIB - 4 <= kept <= MIB
    assert "�" in result.report[name]
    assert result.report["peak_memory_bytes"] < 64 * MIB


def test_15_a_slow_reader_loses_nothing():
    size = scaled(8 * MIB, 2 * MIB)
    box = harness.start(["/attack/attack", 15, 1, size], "--mount", ATTACK_MOUNT)
    total = 0
    while data := os.read(box.stdout.fileno(), 100000):
        total += len(data)
        if total < MIB:
            time.sleep(0.01)
    assert (total, box.wait(timeout=10)) == (size, 0)
    harness.end(box)


def test_15_a_reader_that_is_gone_ends_the_box():
    box = harness.start("while :; do echo lots of text; done", "--timeout", "20s")
    os.read(box.stdout.fileno(), 100)
    box.stdout.close()
    assert box.wait(timeout=10) != 0
    box.stderr.close()


def test_16_long_arguments_and_environment():
    many = ["word"] * 20000
    result = run(["sh", "-c", "echo $#; echo ${#BIG}", "sh", *many], "--env", "BIG=" + "x" * 100000)
    assert result.stdout.split() == ["20000", "100000"]
    result = run(["sh", "-c", 'printf %s "$1" | wc -c', "sh", "y" * 131000])
    assert result.stdout.strip() == "131000"


def test_16_a_path_that_is_too_long_is_not_found():
    for path in ("/" + "x" * 300, "/" + "x/" * 2040, "x" * 5000):
        result = harness.run_plain([path])
        assert result.code in (126, 127), (result.code, result.err)
        assert len(result.err.decode().splitlines()) == 1


@pytest.mark.parametrize("kind, count", [("deep", 4000), ("many", 100000)])
def test_16_deep_and_wide_directories_are_gone_at_once(kind, count):
    result, _ = attack(16, kind, scaled(count))
    assert result.seconds < 15 * PATIENCE


# ---- what stays behind -------------------------------------------------------------------------

def test_20_zombies():
    wanted = scaled(1000, 100)
    _, values = attack(20, "zombies", wanted, options=("--pids", 1100))
    assert values["zombies"] == wanted


@pytest.mark.parametrize("kind", ["daemon", "ignoring", "stopped"])
def test_20_daemons_die_with_the_command(kind):
    result, _ = attack(20, kind)
    assert result.seconds < 15 * PATIENCE


def test_20_a_command_that_stops_itself_ends_by_timeout():
    result = run("kill -STOP $$; echo no", "--timeout", "500ms")
    assert result.report["timed_out"] and result.stdout == ""
    assert result.seconds < 15 * PATIENCE


FREEZES_FOR = 3 if SCALE == 1 else 15  # seconds: it is found before


def frozen(root, file, word):
    """Freezes the processes of a box from outside, in a group of the test's: the box, the group."""
    box = harness.start("sleep 60", "--timeout", f"{FREEZES_FOR}s")
    harness.wait_for(lambda: any(comm(pid) == "sleep" for pid in harness.box_processes(box)),
                     what="the command")
    own = [group for group in harness.LANE_GROUPS if pathlib.Path(root) in pathlib.Path(group).parents]
    group = pathlib.Path(*own[:1] or [root]) / f"covetest-{os.getpid()}"
    group.mkdir()
    for pid in harness.box_processes(box):
        (group / "cgroup.procs").write_text(str(pid))
    (group / file).write_text(word)
    return box, group


def remove_group(group):
    harness.wait_for(lambda: not (group / "cgroup.procs").read_text(), what="an empty group")
    group.rmdir()


def comm(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def hierarchy(file, end=""):
    return next((root for root in harness.cgroup_roots()
                 if (pathlib.Path(root) / file).exists() and root.endswith(end)), None)


# What can freeze here: a host has one of them at least.
FREEZERS = {"v2": hierarchy("cgroup.controllers"), "v1": hierarchy("cgroup.procs", "freezer")}


@pytest.mark.parametrize("version", [name for name, root in FREEZERS.items() if root])
def test_20_frozen_at_destroy(version):
    file, freeze, thaw = {"v2": ("cgroup.freeze", "1", "0"),
                          "v1": ("freezer.state", "FROZEN", "THAWED")}[version]
    box, group = frozen(FREEZERS[version], file, freeze)
    try:
        if version == "v1":  # which dies when it thaws
            time.sleep(FREEZES_FOR + 0.5)
            (group / file).write_text(thaw)
        assert box.wait(timeout=10 * PATIENCE) == 124
    finally:
        (group / file).write_text(thaw)
        harness.end(box)
        remove_group(group)


def test_21_a_file_system_that_hangs(tmp_path):
    lasts = 5 if SCALE == 1 else 20  # seconds: it is read before
    directory = tmp_path / "hanging"
    directory.mkdir()
    server = subprocess.Popen(["/usr/bin/python3", harness.BOX_TESTS / "hanging_files.py", directory],
                              stdout=subprocess.PIPE)
    try:
        assert server.stdout.readline() == b"ready\n"
        box = harness.start(["cat", "/hanging/file"], "--mount", f"{directory}:/hanging",
                            "--timeout", f"{lasts}s")
        # A kernel that cannot map ids there refuses the box, and nothing is asked for.
        while not (is_asked := select.select([server.stdout], [], [], 0.1)[0]) and box.poll() is None:
            pass
        time.sleep(lasts + 2 if is_asked else 0)
        # The request is lost now; nothing else may be.
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=10 * PATIENCE)
        _, errors = box.communicate(timeout=20 * PATIENCE)
        assert box.returncode == (124 if is_asked else 125), errors
        if box.returncode == 125:  # a kernel that cannot map ids there
            assert len(errors.splitlines()) == 1 and b"hanging" in errors
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        subprocess.run(["umount", "-l", directory], capture_output=True, check=False)


def test_22_exec_storm():
    wanted = scaled(20000 if SOAK else 5000)
    _, values = attack(22, wanted, limit=300)
    assert values["programs run"] == wanted
