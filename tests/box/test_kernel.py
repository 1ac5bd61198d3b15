"""Entries 39 to 51 and 53 to 56 of the list of escapes: the kernel's interfaces. Each attack judges
its own errno; what must be so outside is asked here."""
import hashlib
import os
import pathlib
import subprocess
import sys

import pytest

import harness
from harness import EXPECT, attack, run

pytestmark = pytest.mark.wall


@pytest.fixture(params=["plain", "system", "image"])
def box(request):
    """Where an attack runs: both profiles on the host's root, and `system` on an image's."""
    if request.param == "image":
        return ("--root", request.getfixturevalue("debian"), "--privileges", "system")
    return ("--privileges", request.param)


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def sysctls():
    paths = [pathlib.Path("/proc/sys", name) for name in
             ("kernel/core_pattern", "kernel/modprobe", "kernel/sysrq")]
    return [path.read_text() for path in paths if path.exists()]


def test_39_writes_to_proc_sys_and_what_starts_programs(box):
    before = sysctls()
    attack(39, options=box)
    assert sysctls() == before


def test_40_reads_of_kernel_memory_and_logs(box):
    attack(40, options=box)


def test_41_cgroups_cannot_be_mounted_written_or_left(box):
    before = set(harness.cgroup_roots())
    attack(41, options=box)
    assert set(harness.cgroup_roots()) == before


def test_42_mounts_and_chroot(box):
    attack(42, options=box)


def test_43_new_namespaces_and_joining(box):
    attack(43, options=box)


def test_44_nested_user_namespace(box):
    attack(44, options=box)


def test_45_keyrings_bpf_uring(box):
    attack(45, options=box)


def test_45_keys_of_a_caller_are_not_in_the_box():
    """The session keyring of the process that runs cove does not come along."""
    add_key, session = 248, -3
    if os.uname().machine == "aarch64":
        add_key = 217
    script = (f"import ctypes, os, sys; c = ctypes.CDLL(None); "
              f"k = c.syscall({add_key}, b'user', b'covetest', b'secret', 6, {session}); "
              "assert k > 0, k; os.execv(sys.argv[1], sys.argv[1:])")
    done = subprocess.run(
        [sys.executable, "-c", script, str(harness.COVE), "run", "--", "cat", "/proc/keys"],
        capture_output=True, check=False, timeout=20 * harness.PATIENCE)
    assert done.returncode == 0, done.stderr
    assert b"covetest" not in done.stdout and done.stdout == b""


def test_46_init_cannot_be_traced_read_or_replaced(box):
    attack(46, options=box)


@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_46_one_user_of_a_box_may_debug_its_own(privileges):
    result = run("strace -o /tmp/trace -f true && grep -c execve /tmp/trace", "--privileges",
                 privileges)
    assert result.report["exit_code"] == 0, result.stderr


def test_71_no_program_is_spared_when_memory_is_short(box):
    # It gets below what it has only where its maker could not forbid it, and never below its maker's own.
    attack(71, "199" if EXPECT.holds_scores else "-1", options=box)


def test_47_signals_to_init(box):
    attack(47, options=box)


def test_47_killing_everybody_ends_the_command_and_the_box(box):
    result, values = attack(47, "everybody", options=box, killed=True)
    assert "about to kill everybody" in values
    # It sends both, and either may come first.
    assert result.report["signal"] in ("SIGTERM", "SIGKILL") and result.report["exit_code"] is None
    assert not result.report["oom_killed"] and not result.report["timed_out"]


def test_48_foreign_and_unknown_system_calls(box):
    attack(48, options=box)


def test_49_terminals_cannot_be_typed_into_or_stolen(box):
    attack(49, options=box)


def test_50_the_processor(box):
    attack(50, options=box)


def test_51_the_machine(box):
    name = os.uname().nodename
    attack(51, options=box)
    assert os.uname().nodename == name


def test_53_limits_cannot_be_raised(box):
    attack(53, options=box)


def test_53_a_full_box_takes_no_processes_from_its_neighbour():
    """RLIMIT_NPROC counts within a user namespace, and no two boxes share ids."""
    full = harness.start(["/attack/attack", 1, 4000, 60000], "--mount", harness.ATTACK_MOUNT,
                         "--pids", "200")
    try:
        assert b"processes" in full.stdout.readline()
        result = run("for i in 1 2 3 4 5 6 7 8; do sleep 1 & done; echo fine", "--pids", "200")
        assert result.stdout == "fine\n"
    finally:
        harness.end(full)


def test_54_a_crash_leaves_no_core(box, workspace):
    before = {path.name for directory in ("/tmp", "/var/lib/systemd/coredump", ".")
              for path in pathlib.Path(directory).glob("*core*")}
    attack(54, options=(*box, "--workspace", workspace))
    after = {path.name for directory in ("/tmp", "/var/lib/systemd/coredump", ".")
             for path in pathlib.Path(directory).glob("*core*")}
    assert list(workspace.iterdir()) == [] and after <= before


def test_54_no_core_reaches_a_helper_of_the_host():
    """A core_pattern that starts a program ignores a limit of 0, but not one of 1, which stays."""
    result = run("ulimit -c 0; bash -c 'ulimit -c unlimited'; grep core /proc/self/limits")
    assert result.stdout.split()[4:6] == ["1", "1"], result.stdout


def test_55_memory_of_read_only_mappings(box):
    path = "/usr/bin/env"
    before = digest(path)
    attack(55, path, options=box)
    assert digest(path) == before


def test_56_page_cache_of_a_shared_layer(box):
    """Hashed on the host and from a second box afterwards."""
    path = "/usr/bin/env" if "--root" not in box else "/attack/attack"
    outside = path if "--root" not in box else harness.ATTACKS / "attack"
    before = digest(outside)
    attack(56, path, options=box)
    assert digest(outside) == before
    second = run(["sha256sum", path], "--mount", harness.ATTACK_MOUNT, *box)
    assert second.stdout.split()[0] == before
