"""The posture of a command, compared with its exact expected value for each privilege profile, for
the first command of a box and for the next: capabilities, ids, namespaces, fds, mounts, limits,
environment, signals, groups. Any difference fails, also one that looks harmless."""
import json
import os
import pathlib
import re

import pytest

import harness
from harness import EXPECT
from postures import layers_left, mounts_of, posture

pytestmark = pytest.mark.wall

# ---- what must be so: the tables -----------------------------------------------------------------

# CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID NET_BIND_SERVICE SYS_CHROOT SETFCAP
SYSTEM_CAPS = "00000000800404fb"
NO_CAPS = "0" * 16

STATUS = {
    "plain": {"CapInh": NO_CAPS, "CapPrm": NO_CAPS, "CapEff": NO_CAPS, "CapBnd": NO_CAPS,
              "CapAmb": NO_CAPS, "NoNewPrivs": "1"},
    "system": {"CapInh": NO_CAPS, "CapPrm": SYSTEM_CAPS, "CapEff": SYSTEM_CAPS,
               "CapBnd": SYSTEM_CAPS, "CapAmb": NO_CAPS, "NoNewPrivs": "0"},
    "system, as user": {"CapInh": NO_CAPS, "CapPrm": NO_CAPS, "CapEff": NO_CAPS,
                        "CapBnd": SYSTEM_CAPS, "CapAmb": NO_CAPS, "NoNewPrivs": "0"},
}
STATUS_OF_ALL = {
    "Seccomp": "2", "Seccomp_filters": "1", "Umask": "0022", "TracerPid": "0", "Threads": "1",
    "SigPnd": NO_CAPS, "ShdPnd": NO_CAPS, "SigBlk": NO_CAPS, "SigIgn": NO_CAPS, "SigCgt": NO_CAPS,
    "PPid": "1",
}

IDS = {"plain": 1000, "system": 0, "system, as user": 1000}
HOMES = {"plain": "/home/user", "system": "/root", "system, as user": "/home/user"}
OPTIONS = {"plain": (), "system": ("--privileges", "system"),
           "system, as user": ("--privileges", "system", "--user", "user")}

# Soft and hard; -1 is unlimited, None is the caller's.
LIMITS = {"core": [1, 1], "nofile": [16384, 16384], "nproc": [1024, 1024],
          "memlock": [0, 0], "nice": [0, 0], "rtprio": [0, 0], "stack": None,
          "cpu": None,
          "fsize": None, "data": None, "rss": None, "as": None, "locks": None, "sigpending": [1024, 1024],
          "msgqueue": [0, 0], "rttime": None}

VALUES = {
    "fds": [0, 1, 2], "securebits": 0, "parent_death_signal": 0, "umask": 0o022, "parent": 1,
          "tty": 0,
    "policy": 0, "keyring": -1, "hostname": "box", "oom_score_adj": "200\n",
    "init_mem": 0, "init_cmdline": "cove-init",
    "max_user_namespaces": "0\n",
}


def status_expected(privileges):
    groups = " ".join(map(str, EXPECT.groups(IDS[privileges])))
    return {**STATUS[privileges], **STATUS_OF_ALL, "Groups": groups}


def values_expected(privileges):
    uid = IDS[privileges]
    return {**VALUES, "landlock_layers": layers_left(), "init_owner": EXPECT.init_owner(uid), "groups": EXPECT.groups(uid),
            "setgroups": "deny\n" if EXPECT.ids == "single" else "allow\n"}

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# What of the host's /etc is shown, where it is there. Nothing else of it is.
HOST_ETC = ("alternatives", "ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs",
            "pki/ca-trust/extracted", "crypto-policies", "ld.so.cache", "localtime", "services",
            "protocols", "fonts")
HOST_DIRECTORIES = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")

RO = "ro,nosuid,nodev"
DEVICE = "rw,nosuid,noexec"
VIEW = "ro,nosuid,nodev,noexec"


def shown_of_host():
    """Directories and files of the host that are mounted; links are made as links."""
    paths = [pathlib.Path("/", name) for name in HOST_DIRECTORIES]
    paths += [pathlib.Path("/etc", name) for name in HOST_ETC]
    paths += sorted(pathlib.Path("/etc").glob("java-*"))
    return [str(path) for path in paths if path.exists() and not path.is_symlink()]


def own_cgroups():
    """Where the box's own groups are shown: (name, type)."""
    if not EXPECT.has_cgroup:
        return []
    shown = []
    v2 = False
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        kind, _, options = line.partition(" - ")[2].split()[:3]
        names = set(options.split(",")) & {"memory", "cpu", "cpuacct", "cpuset", "pids"}
        v2 = v2 or kind == "cgroup2"
        if kind == "cgroup" and names:
            order = [name for name in options.split(",") if name in names]
            shown.append(("/sys/fs/cgroup/" + ",".join(order), "cgroup"))
    return shown or ([("/sys/fs/cgroup", "cgroup2")] if v2 else [])


def expected_mounts(root, privileges):
    """Every mount of a box: target, type, flags."""
    nosuid = "" if privileges.startswith("system") else ",nosuid"
    if root == "host":
        mounts = [(path, None, RO) for path in shown_of_host()]
        # The root is the box's own only where somebody in it is root; what shows the host is mounted there.
        if privileges == "plain":
            mounts += [("/", "tmpfs", RO), ("/tmp", "tmpfs", "rw,nosuid,nodev"),
                       (HOMES[privileges], "tmpfs", "rw,nosuid,nodev")]
        else:
            mounts += [("/", "tmpfs", "rw,nosuid,nodev"), ("/etc", "tmpfs", RO), ("/dev", "tmpfs", RO)]
    else:
        mounts = [("/", "overlay", f"rw{nosuid},nodev"),
                  ("/dev", "tmpfs", "rw,nosuid,nodev,noexec"),
                  ("/etc/resolv.conf", "tmpfs", "rw,nosuid,nodev,noexec")]
    mounts += [(f"/dev/{name}", None, DEVICE)
               for name in ("null", "zero", "full", "random", "urandom", "tty")]
    if not EXPECT.has_cgroup:
        mounts += [("/dev/zero", None, DEVICE)]  # /dev/full, which nobody can map
    mounts += [("/dev/pts", "devpts", DEVICE), ("/dev/shm", "tmpfs", "rw,nosuid,nodev"),
               ("/proc", "proc", "rw,nosuid,nodev,noexec"), ("/proc/sys", "proc", VIEW),
               ("/sys", "tmpfs", RO), ("/attack", None, EXPECT.bind_flags)]
    mounts += [(f"/proc/{name}", "tmpfs", VIEW) for name in PROC_VIEW]
    mounts += [(path, kind, VIEW) for path, kind in own_cgroups()]
    return sorted(mounts)


# What of /proc is covered. /proc/cpuinfo only where --cpus says something.
PROC_VIEW = ("meminfo", "stat", "loadavg", "keys", "diskstats", "locks", "partitions", "pressure", "fs")

# ---- what is -------------------------------------------------------------------------------------


def status_of(posture_, key="status"):
    return dict(re.match(r"([^:]*):\s*(.*?)\s*$", line).groups()
                for line in posture_[key].splitlines())


@pytest.fixture(scope="module", params=[(root, privileges) for root in ("host", "image")
                                        for privileges in OPTIONS],
                ids=lambda param: " ".join(param))
def box(request):
    root, privileges = request.param
    options = OPTIONS[privileges]
    if root == "image":
        options += ("--root", request.getfixturevalue("debian"))
    return root, privileges, posture(*options)


def test_capabilities_privileges_signals_and_seccomp(box):
    _, privileges, found = box
    status = status_of(found)
    expected = status_expected(privileges)
    assert {key: status[key] for key in expected} == expected


def test_ids_and_groups(box):
    _, privileges, found = box
    uid = IDS[privileges]
    assert (found["uids"], found["gids"], found["groups"]) == (
        [uid] * 3, [uid] * 3, EXPECT.groups(uid))
    for name in ("uid_map", "gid_map"):
        lines = list(zip(*[iter(map(int, found[name].split()))] * 3))
        assert {inside: count for inside, _, count in lines} == EXPECT.maps(uid)
        for inside, outside, count in lines:
            if inside == EXPECT.lent(uid):
                assert (outside, count) == (os.getuid(), 1)
            else:
                assert EXPECT.is_box_id(outside) and EXPECT.is_box_id(outside + count - 1)
            assert not EXPECT.is_root or outside % 65536 == 0


def test_values(box):
    _, privileges, found = box
    expected = {**values_expected(privileges), "nice": EXPECT.nice}
    assert {key: found[key] for key in expected} == expected


def test_session_and_process_group_are_the_commands_own(box):
    _, _, found = box
    assert found["session"] == found["group"] == found["pid"]


def test_limits(box):
    _, _, found = box
    import resource
    for name, expected in LIMITS.items():
        if expected is None:
            number = getattr(resource, f"RLIMIT_{name.upper()}", None)
            if number is None:
                continue
            expected = list(resource.getrlimit(number))
        assert found["limits"][name] == expected, name


def test_environment(box):
    _, privileges, found = box
    home = HOMES[privileges]
    user = "root" if IDS[privileges] == 0 else "user"
    assert sorted(found["environment"]) == sorted(
        [PATH, f"HOME={home}", f"USER={user}", "LANG=C.UTF-8", "TERM=xterm"])
    assert found["cwd"] == home


def test_mounts(box):
    root, privileges, found = box
    expected, actual = expected_mounts(root, privileges), mounts_of(found)
    assert [mount[0] for mount in actual] == [mount[0] for mount in expected]
    for (target, kind, flags), (_, wanted, wanted_flags) in zip(actual, expected):
        assert kind == (wanted or kind), target
        assert sorted(flags.split(",")) == sorted(wanted_flags.split(",")), target


def test_namespaces_are_all_others_than_the_hosts(box):
    _, _, found = box
    for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        assert found[f"ns_{name}"] != os.readlink(f"/proc/self/ns/{name}"), name
        assert re.fullmatch(rf"{name}:\[\d+\]", found[f"ns_{name}"])


def test_cgroups_show_the_boxs_own_as_their_root(box):
    _, _, found = box
    for line in found["cgroup"].splitlines():
        assert line.split(":", 2)[2] in ("/", "/init") or re.fullmatch(r"/c\d+",
                                                                       line.split(":", 2)[2])


def test_the_network_is_a_loopback_and_no_route(box):
    _, _, found = box
    assert [line.split(":")[0].strip() for line in found["net_dev"].splitlines()[2:]] == ["lo"]
    assert len(found["net_route"].splitlines()) == 1


def test_init_is_confined_as_its_commands_are(box):
    _, privileges, found = box
    status = status_of(found, "init_status")
    profile = "plain" if privileges == "plain" else "system"
    expected = dict(STATUS[profile], Seccomp="2", Seccomp_filters="1", TracerPid="0", Threads="1")
    assert {key: status[key] for key in expected} == expected
    assert status["Uid"].split() == [str(IDS[profile])] * 4


def test_the_hosts_own_groups_do_not_stay(box):
    """A caller with supplementary groups takes none of them along."""
    _, privileges, found = box
    if EXPECT.is_root:
        found = posture(extra_groups=[4, 24, 27])
    assert found["groups"] == EXPECT.groups(IDS[privileges])


@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_a_box_is_the_same_whatever_the_umask_of_its_caller(privileges):
    """Its nice value it hands on."""
    usual = posture("--privileges", privileges)
    found = posture("--privileges", privileges, umask=0o077, preexec_fn=lambda: os.nice(3))
    assert found["umask"] == usual["umask"] == 0o022
    assert found["nice"] == max(usual["nice"], min(os.getpriority(os.PRIO_PROCESS, 0) + 3, 19))
    vary = ("status", "init_status", "uid_map", "gid_map", "mountinfo", "cgroup", "nice")
    assert {key: value for key, value in found.items() if key not in vary and not key.startswith("ns_")} == \
        {key: value for key, value in usual.items() if key not in vary and not key.startswith("ns_")}
    assert mounts_of(found) == mounts_of(usual)


# ---- a second command ----------------------------------------------------------------------------

VARY = ("status", "init_status", "pid", "group", "session", "cgroup")


@pytest.mark.parametrize("profile", ["plain", "system"])
def test_the_second_command_stands_as_the_first(profile, commands):
    line = "exec /attack/attack posture"
    done = commands(profile, "exec", 1, line, "wait", 1, "exec", 2, line, "wait", 2)
    assert done.returncode == 0, done.stderr
    decoder = json.JSONDecoder()
    first, end = decoder.raw_decode(done.stdout)
    second, _ = decoder.raw_decode(done.stdout[end:].lstrip())
    assert {key: value for key, value in first.items() if key not in VARY} == \
        {key: value for key, value in second.items() if key not in VARY}
    expected = status_expected(profile)
    for found in (first, second):
        status = status_of(found)
        assert {key: status[key] for key in expected} == expected
        assert found["session"] == found["group"] == found["pid"]
        assert found["fds"] == [0, 1, 2] and found["uids"] == [IDS[profile]] * 3


@pytest.mark.parametrize("profile", ["plain", "system"])
def test_many_commands_leave_init_without_fds_and_zombies(profile, commands):
    words = [word for number in range(harness.scaled(60, 10)) for word in ("exec", number, "true", "wait", number)]
    script = "ps -e -o stat= | grep -c Z; cat /proc/1/status | grep FDSize; echo end"
    done = commands(profile, *words, "exec", 63, script, "wait", 63)
    assert done.returncode == 0, done.stderr
    zombies, size, end = done.stdout.split("\n")[:3]
    assert zombies == "0" and int(size.split()[1]) <= 128 and end == "end"


def test_killing_one_command_takes_its_daemons_and_spares_the_other(commands):
    # Without cgroup v2 there is no group of processes to kill by: daemons then end with the box.
    has_leaves = EXPECT.has_cgroup and any((pathlib.Path(root) / "cgroup.controllers").exists()
                     for root in harness.cgroup_roots())
    daemon = "(setsid sh -c '(trap \"\" TERM HUP; sleep 4711) & sleep 4712' &); sleep 4713"
    standing = "until [ $(pgrep -c -x -f 'sleep 471[123]') = 3 ]; do sleep 0.02; done"
    # They have been killed by then, but each has to run for it.
    gone = ("for i in $(seq 100); do pgrep -f 'sleep 471[123]' >/dev/null || break; sleep 0.1; done; "
            "pgrep -f 'sleep 471[123]' | wc -l")
    spared = "until [ -e /tmp/go ]; do sleep 0.02; done; echo alive"
    done = commands("plain", "exec", 1, daemon, "exec", 2, spared, "exec", 3, standing, "wait", 3,
                    "kill", 1, "wait", 1, "exec", 4, gone, "wait", 4,
                    "exec", 5, "touch /tmp/go", "wait", 5, "wait", 2)
    assert done.returncode == 0, done.stderr
    left, other = done.stdout.split()
    assert other == "alive" and (left == "0" or not has_leaves), (done.stdout, done.stderr)
    assert "1: signal 9" in done.stderr


def test_a_signal_reaches_the_group_of_its_command_only(commands):
    done = commands("plain", "exec", 1, "sleep 60 & wait", "exec", 2, "sleep 0.6; echo alive",
                    "sleep",
                    300, "signal", 1, 15, "wait", 1, "wait", 2)
    assert done.stdout == "alive\n" and "1: signal 15" in done.stderr, done.stderr


def test_one_command_cannot_harm_init_of_the_other(commands):
    done = commands("plain", "exec", 1,
                    "/attack/attack 46 > /dev/null; /attack/attack 47 > /dev/null",
                    "wait", 1, "exec", 2, "echo fine", "wait", 2)
    assert done.stdout == "fine\n", done.stderr
