"""Surroundings in which a box is weaker: `cove doctor` says which it will be, `cove run` makes that
one and no other, and the walls that are claimed stand."""
import json

import pytest

from harness import COVE
from surround import NEEDED, Doctor, attack_within, within

# The options that a box needs there, and what cove run then has: level, limits, ids.
WEAKER = {
    "a user without ids": (["user.sh 0"], [], "full", "rlimit", "single"),
    "a user with one range": (["user.sh 65536"], [], "full", "rlimit", "slice"),
    "a user with many": (["user.sh 1048576"], [], "full", "rlimit", "range"),
    "root with read-only cgroups": (["read-only-cgroup.sh"], [], "full", "rlimit", "range"),
    "root with a container's capabilities": (["capabilities.sh"], [], "full", "cgroup", "range"),
    "a masked /proc": (["masked-proc.sh"], ["--allow-level", "no-fresh-proc"], "no-fresh-proc",
                       "cgroup", "range"),
    "a user behind a masked /proc": (["masked-proc.sh", "user.sh 65536"],
                                     ["--allow-level", "no-fresh-proc"], "no-fresh-proc", "rlimit",
                                     "slice"),
    "a Docker container without its filter": (
        ["masked-proc.sh", "read-only-cgroup.sh", "capabilities.sh"],
        ["--allow-level", "no-fresh-proc"], "no-fresh-proc", "rlimit", "range"),
    "a Docker container without filter and masks": (
        ["read-only-cgroup.sh", "capabilities.sh"], [], "full", "rlimit", "range"),
}


@pytest.mark.parametrize("name", WEAKER)
def test_doctor_says_which_box_there_will_be(name):
    surrounding, _, level, limits, ids = WEAKER[name]
    doctor = Doctor(*surrounding)
    said = {key: doctor.json[key] for key in ("level", "limits", "ids", "disk")}
    assert said == {"level": level, "limits": limits, "ids": ids, "disk": "hard"}
    assert doctor.json["exit_status"] == (0 if level == "full" else 1)
    assert doctor.state("box") == ("yes" if level == "full" else "less")
    assert doctor.state("cgroup") == ("yes" if limits == "cgroup" else "less")
    assert doctor.state("ids") == ("less" if ids == "single" else "yes")
    assert doctor.state("proc") == ("yes" if level == "full" else "no")
    for check in NEEDED:
        assert check in ("proc", "box") or doctor.state(check) == "yes", doctor.checks[check]


@pytest.mark.parametrize("name", WEAKER)
def test_run_makes_the_box_that_doctor_says(name):
    surrounding, options, level, limits, ids = WEAKER[name]
    done = within(surrounding, COVE, "run", "--json", *options, "--", "true")
    report = json.loads(done.stdout)
    assert (report.get("exit_code"), report["level"], report["limits"], report["ids"]) == (
        0, level, limits, ids), done.stderr
    weaker = (level, limits) != ("full", "cgroup") or ids == "single"
    assert done.stderr == "" and len(report["warnings"]) == weaker, done


@pytest.mark.parametrize("name", [name for name in WEAKER if WEAKER[name][2] != "full"])
def test_a_weaker_level_is_never_had_unasked(name):
    done = within(WEAKER[name][0], COVE, "run", "--", "true")
    assert done.returncode == 125 and len(done.stderr.splitlines()) == 1
    assert "no-fresh-proc" in done.stderr and "cove doctor" in done.stderr


@pytest.mark.parametrize("name", WEAKER)
def test_the_walls_stand(name):
    surrounding, options, *_ = WEAKER[name]
    attack_within(surrounding, [29, 33, 39, 41, 42, 43, 44, 45, 46, 47, 57, 61], *options)


@pytest.mark.parametrize("count", [0, 65536, 1048576])
def test_root_of_a_users_box_cannot_look_into_init(count):
    """The owner of init's program is the box's root there, and must not count as one who may read
    it: the kernel would open init to the box."""
    attack_within([f"user.sh {count}"], 43, "--privileges", "system")


@pytest.mark.parametrize("name", WEAKER)
def test_a_fork_bomb_stops_at_the_limit(name):
    surrounding, options, *_ = WEAKER[name]
    attack_within(surrounding, 1, "--pids", 64, *options)


def test_who_may_not_come_back_from_the_network_of_a_box_sends_a_child():
    done = within(["root-of-userns.py"], COVE, "run", "--net", "public", "--", "true")
    assert done.returncode == 0, done
