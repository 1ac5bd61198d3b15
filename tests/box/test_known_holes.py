"""Whether a program can make the calls that public holes of the kernel need: in a box, under Docker's default profile
and in a plain user namespace. holes.toml says what must come of each, and docs/known-holes.md is made of that."""
import errno
import json
import pathlib
import re
import subprocess

import pytest

import harness
import holes
import surround
from harness import EXPECT

pytestmark = pytest.mark.wall

CALLS = {call["name"]: call for call in holes.load()["call"]}
KNOWN = holes.load()["holes"]["known"]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def answers(text):
    """By call: "open", or the name of the errno."""
    lines = [json.loads(line) for line in text.splitlines()]
    assert all(line["answer"] in ("made", "lacking", "refused") for line in lines), lines
    return {line["probe"]: errno.errorcode[line["errno"]] if line["answer"] == "refused" else "open" for line in lines}


def expected(place):
    """With one of the names that Python has for a number."""
    return {name: call[place] if call[place] == "open" else errno.errorcode[getattr(errno, call[place])]
            for name, call in CALLS.items()}


def answers_of(*command):
    done = subprocess.run([*map(str, command), pathlib.Path(surround.attacks().name, "attack"), "holes"],
                          capture_output=True, text=True, timeout=60 * harness.PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return answers(done.stdout)


@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_a_box_makes_exactly_the_calls_that_the_table_says(privileges):
    result = harness.run(["/attack/attack", "holes"], "--mount", harness.ATTACK_MOUNT, "--privileges", privileges)
    assert answers(result.stdout) == expected("box")


def test_a_user_namespace_makes_the_calls_that_the_table_says():
    found, wanted = answers_of(*(NOBODY if EXPECT.is_root else []), "unshare", "-Urn"), expected("userns")
    for name, call in CALLS.items():
        setting, _, value = call.get("setting", "").partition("=")
        path = pathlib.Path("/proc/sys", setting.replace(".", "/"))
        # A host may be stricter, and a kernel be built without the call.
        if found[name] == "ENOSYS" or setting and path.exists() and path.read_text().strip() != value:
            del found[name], wanted[name]
    assert found == wanted


def test_dockers_default_profile_makes_the_calls_that_the_table_says():
    fetched = subprocess.run([harness.ROOT / "scripts/docker-profile.sh"], capture_output=True, text=True, check=False)
    assert fetched.returncode == 0, fetched.stderr + "run scripts/build-tests.sh, which has a network"
    found = answers_of("unshare", "--mount", "--net", "--ipc", "--uts", surround.SURROUNDINGS / "seccomp.py",
                       fetched.stdout.strip(), surround.SURROUNDINGS / "capabilities.sh")
    assert found == expected("docker")


def test_every_hole_needs_calls_that_are_tried_and_every_call_is_needed():
    needed = [name for hole in KNOWN for name in hole[2]]
    assert set(needed) == set(CALLS) and all(hole[2] for hole in KNOWN)
    names = [hole[0] for hole in KNOWN]
    assert len(names) == len(set(names)) >= 30
    assert all(re.fullmatch(r"CVE-202[2-9]-\d{4,5}", name) for name in names)


def test_every_call_that_a_box_can_make_has_a_reason():
    assert {name for name, call in CALLS.items() if "why" in call} == \
        {name for name, call in CALLS.items() if call["box"] == "open"}


def test_the_page_is_what_the_table_says():
    page = harness.ROOT / "docs/known-holes.md"
    assert page.read_text(encoding="utf-8") == holes.render(), \
        "make it anew: PYTHONPATH=tests/lib python3 -m holes >docs/known-holes.md"
