"""`cove doctor`: says what is so, in words and in JSON alike, on this host and in surroundings that
take something away; and what its remedies promise comes true. surroundings/ sets them up, each for
one command and none for the host."""
import json
import pathlib
import re
import subprocess

import pytest

import harness
from harness import COVE, cove
from surround import NEEDED, Doctor, attack_within, within

# ---- the host ----------------------------------------------------------------------------------

def test_here_a_box_of_level_full_can_be_made_and_is():
    doctor = Doctor()
    assert doctor.json["level"] == "full" and doctor.json["exit_status"] == 0
    assert {"limits": "cgroup", "ids": "range", "disk": "hard"}.items() <= doctor.json.items()
    assert all(doctor.state(name) == "yes" for name in NEEDED), doctor.checks
    assert harness.run("true").report["level"] == doctor.json["level"]


@pytest.mark.parametrize("surrounding", ["", "read-only-cgroup.sh", "user.sh 0"])
def test_what_is_good_fits_on_one_screen(surrounding):
    """Each check is one line. Reasons and remedies, which come below theirs, stand for what is not good."""
    doctor = Doctor(*filter(None, [surrounding]))
    lines = doctor.words.stdout.splitlines()
    assert all(len(line) <= 100 for line in lines if not line.strip().startswith("$"))
    checks = [line for line in lines if line.startswith("  ") and not line.startswith(" " * 7)]
    assert len(checks) == len(doctor.json["checks"]) <= 24 - 4, lines
    below = [line for line in lines if line.startswith(" " * 7)]
    assert len(lines) == len(checks) + len(below) + 4, lines
    weaker = [check for check in doctor.json["checks"] if check["state"] in ("less", "no")]
    explained = [check for check in doctor.json["checks"] if check["cause"] or check["remedy"] or check["command"]]
    assert bool(below) == bool(explained) and bool(weaker) <= bool(explained), lines
    assert all(check in weaker or check["state"] == "-" for check in explained), explained
    things = "1 thing above is" if len(weaker) == 1 else f"{len(weaker)} things above are"
    assert doctor.json["summary"] == (f"Boxes of level full can be made here; {things} weaker than it could be."
                                      if weaker else "All good.")


@pytest.mark.parametrize("name", NEEDED)
def test_each_check_has_a_name_that_stays(name):
    names = [check["name"] for check in json.loads(cove("doctor", "--json").out)["checks"]]
    assert name in names and len(set(names)) == len(names)


@pytest.mark.parametrize("words", [["--jsn"], ["now"], ["--json", "x"], [""]])
def test_misuse_is_one_line_and_125(words):
    result = cove("doctor", *words)
    assert result.code == 125 and result.out == b"" and len(result.err.splitlines()) == 1
    assert b"cove doctor --help" in result.err or b"did you mean --json?" in result.err


@pytest.mark.parametrize("words", [["doctor", "--help"], ["doctor", "-h"], ["help", "doctor"]])
def test_help_says_what_the_verdict_means(words):
    result = cove(*words)
    assert result.code == 0
    for word in (b"no-fresh-proc", b"rlimit", b"slice", b"watched", b"Exit status"):
        assert word in result.out


def test_a_result_that_nobody_gets_is_an_error():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([COVE, "doctor"], stdout=full, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, timeout=60, check=False)
    assert done.returncode == 125 and len(done.stderr.splitlines()) == 1


# ---- surroundings in which there is no box -----------------------------------------------------

NO_BOX = {
    "a filter without user namespaces": (["seccomp.py no-userns"], "user-namespace", "seccomp"),
    "a filter that kills": (["seccomp.py kill"], "capabilities", "seccomp"),
    "a Docker container": (["docker.sh"], "user-namespace", "seccomp"),
    "no user namespace allowed": (["no-userns.sh"], "user-namespace",
                                  "user.max_user_namespaces is 0"),
    "no room for a filter": (["seccomp.py no-room"], "seccomp", "net.core.bpf_jit_limit"),
}


@pytest.mark.parametrize("name", NO_BOX)
def test_where_there_is_no_box_the_cause_is_named(name):
    surrounding, first, cause = NO_BOX[name]
    doctor = Doctor(*surrounding)
    assert doctor.json["level"] == "none" and doctor.json["exit_status"] == 1
    assert doctor.json["limits"] is doctor.json["ids"] is doctor.json["disk"] is None
    assert doctor.state(first) == "no" and doctor.state("box") == "no"
    causes = [check["cause"] or "" for check in doctor.json["checks"]]
    assert any(cause in text for text in causes), causes
    for check in doctor.json["checks"]:
        if check["state"] == "no" and check["name"] != "box":
            assert check["cause"], check
            assert check["remedy"] or "above" in check["cause"], check


def test_where_there_is_no_box_the_line_that_starts_a_container_is_said():
    line = re.search(r"docker run -d .* cove$", (harness.ROOT / "docs" / "container.md").read_text(), re.M)[0]
    doctor = Doctor("no-userns.sh")
    assert doctor.json["container"] == line
    assert doctor.words.stdout.endswith(f"\n  $ {line}\n")
    assert Doctor().json["container"] is None


@pytest.mark.parametrize("name", [name for name in NO_BOX if "kills" not in name])
def test_run_names_the_cause_and_points_to_doctor(name):
    surrounding, _, cause = NO_BOX[name]
    done = within(surrounding, COVE, "run", "--", "true")
    assert done.returncode == 125 and len(done.stderr.splitlines()) == 1
    assert cause in done.stderr and done.stderr.endswith("see cove doctor\n")


def test_a_probe_that_is_killed_says_by_what():
    doctor = Doctor("seccomp.py kill")
    assert "Bad system call" in doctor.checks["capabilities"]["found"]


def test_what_would_be_in_the_way_next_is_said_too():
    """Who changes how a container starts wants to do so once."""
    doctor = Doctor("docker.sh")
    assert doctor.state("proc") == "-" and "masks parts of /proc" in doctor.cause("proc")
    assert doctor.state("cgroup") == "less" and "read-only" in doctor.cause("cgroup")


def test_in_a_box_doctor_says_that_it_is_in_one():
    mount = f"{COVE.parent}:/cove:ro"
    result = harness.run(["/cove/cove", "doctor", "--json"], "--mount", mount)
    said = json.loads(result.report["stdout"])
    assert [place["name"] for place in said["places"]] == ["cove"]
    assert said["level"] == "none" and result.report["exit_code"] == 1 and said["container"] is None
    assert any("a box makes no boxes" in (check["cause"] or "") for check in said["checks"])


def test_in_a_chroot_doctor_says_so(tmp_path):
    """Where the root is no mount, the kernel makes no user namespace."""
    root = tmp_path / "root"
    root.mkdir()
    # The chroot is a directory of a bind, with what cove needs bound below it.
    script = ('mkdir -p "$1/in/proc" "$1/in/usr" "$1/in/cove" "$1/in/tmp"; cd "$1/in"; '
              'mount --bind /proc proc; mount --rbind /usr usr; mount --bind "$2" cove; '
              'for link in bin lib lib64; do ln -s usr/$link $link; done; '
              'exec chroot "$1/in" /cove/cove doctor --json')
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", root, COVE.parent],
                          capture_output=True, text=True, timeout=60, check=False)
    said = json.loads(done.stdout)
    assert "chroot" in [place["name"] for place in said["places"]], done.stderr
    userns = {check["name"]: check for check in said["checks"]}["user-namespace"]
    assert userns["state"] == "no" and "chroot" in userns["cause"]


# ---- surroundings in which there is one, or a weaker one ----------------------------------------

def test_a_masked_proc_is_named_with_the_level_to_ask_for():
    doctor = Doctor("masked-proc.sh")
    assert doctor.state("proc") == "no" and "masks parts of /proc" in doctor.cause("proc")
    assert "--allow-level no-fresh-proc" in doctor.checks["proc"]["remedy"]
    assert doctor.json["exit_status"] == 1
    done = within(["masked-proc.sh"], COVE, "run", "--", "true")
    assert done.returncode == 125 and "cove doctor" in done.stderr


def test_on_an_overlay_only_the_workspace_is_missing():
    doctor = Doctor("overlay.sh")
    assert doctor.json["level"] == "full" and doctor.json["exit_status"] == 0
    assert doctor.state("idmap") == "less" and "cannot map owners" in doctor.cause("idmap")
    done = within(["overlay.sh"], COVE, "run", "--workspace", ".:ro", "--", "cat", "old")
    assert (done.returncode, done.stdout) == (0, "old\n"), done.stderr
    done = within(["overlay.sh"], COVE, "run", "--workspace", ".", "--", "true")
    assert done.returncode == 125 and "idmapped" in done.stderr


@pytest.mark.parametrize("entry", [29, 33, 39, 41, 42, 43])
def test_the_walls_stand_on_an_overlay(entry):
    attack_within(["overlay.sh"], entry)


def test_a_root_without_capabilities_has_all_that_a_box_needs():
    """What only root of the host uses is not tried, and not missed."""
    doctor = Doctor("capabilities.sh")
    assert all(doctor.state(name) == "yes" for name in NEEDED if name != "box"), doctor.checks
    assert doctor.state("idmap") == doctor.state("erofs") == "-"


@pytest.mark.parametrize("surrounding", [[], ["user.sh 1048576"]])
def test_the_rules_of_a_network_are_tried(surrounding):
    doctor = Doctor(*surrounding)
    assert doctor.state("network-policy") == "yes", doctor.checks["network-policy"]


def test_read_only_cgroups_are_named():
    doctor = Doctor("read-only-cgroup.sh")
    assert doctor.state("cgroup") == "less" and "read-only" in doctor.cause("cgroup")
    assert doctor.state("process-limit") == "yes"


def test_without_mkfs_root_is_told_what_its_sandboxes_lack():
    doctor = Doctor("no-mkfs.sh")
    assert doctor.state("disks") == "no" and doctor.checks["disks"]["title"] == "disks (mkfs.ext4)"
    assert doctor.checks["disks"]["command"] == "apt-get install e2fsprogs"
    assert doctor.json["exit_status"] == 1 and "keep a disk cannot" in doctor.json["summary"]
    assert doctor.json["level"] == "full" and doctor.state("box") == "yes"


def test_a_user_is_not_told_of_mkfs_which_no_sandbox_of_a_user_needs():
    assert "disks" not in Doctor("no-mkfs.sh", "user.sh 1048576").checks


@pytest.mark.parametrize("count, state, kind", [(0, "less", "single"), (1024, "less", "single"),
                                                (1025, "yes", "slice"), (65536, "yes", "slice"),
                                                (1048576, "yes", "range")])
def test_the_ids_of_a_user_are_what_etc_subuid_gives(count, state, kind):
    doctor = Doctor(f"user.sh {count}")
    assert doctor.state("ids") == state
    assert doctor.checks["ids"]["found"].startswith(kind)
    if state == "less":
        assert "/etc/subuid" in doctor.cause("ids")
        assert doctor.checks["ids"]["command"].startswith("usermod --add-subuids ")


def test_a_user_has_all_that_needs_no_root():
    doctor = Doctor("user.sh 1048576")
    for name in NEEDED:
        assert name == "box" or doctor.state(name) == "yes", doctor.checks[name]
    assert doctor.state("idmap") == doctor.state("erofs") == "-"


def test_a_user_without_a_group_of_his_own_is_told_how_to_get_one():
    doctor = Doctor("user.sh 1048576")
    assert doctor.state("cgroup") == "less" and doctor.cause("cgroup")
    assert doctor.checks["cgroup"]["remedy"]


def test_the_host_is_left_as_it_was():
    """The files that a surrounding lies over, and the settings it makes, are seen by it alone."""
    paths = [pathlib.Path(path) for path in
             ("/etc/subuid", "/etc/subgid", "/etc/passwd", "/etc/group",
              "/proc/sys/user/max_user_namespaces")]
    before = [path.read_text() if path.exists() else None for path in paths]
    for surrounding in ("user.sh 65536", "no-userns.sh", "masked-proc.sh", "read-only-cgroup.sh"):
        within([surrounding], "/bin/true")
    assert before == [path.read_text() if path.exists() else None for path in paths]
