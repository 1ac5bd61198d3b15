"""`cove doctor` in a surrounding, heard both ways, and attacks in boxes that are made there.
surroundings/ sets each up for one command and none for the host; they nest."""
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile

import harness
from harness import COVE

SURROUNDINGS = harness.BOX_TESTS / "surroundings"

NEEDED = ("kernel", "user-namespace", "capabilities", "namespaces", "network", "proc", "devpts",
          "seccomp", "memfd", "box")


def within(surrounding, *command, limit=120):
    """Runs a command in a chain of surroundings, the outermost first: "user.sh 0" """
    words = [word for one in surrounding
             for word in (str(SURROUNDINGS / one.split()[0]), *one.split()[1:])]
    return subprocess.run([*words, *map(str, command)], capture_output=True, text=True,
                          timeout=limit, stdin=subprocess.DEVNULL, check=False)


class Doctor:
    """What cove doctor says there, both ways."""

    def __init__(self, *surrounding):
        self.words = within(surrounding, COVE, "doctor")
        done = within(surrounding, COVE, "doctor", "--json")
        assert done.stderr == "" and self.words.stderr == "", (done.stderr, self.words.stderr)
        self.json = json.loads(done.stdout)
        self.checks = {check["name"]: check for check in self.json["checks"]}
        assert done.returncode == self.words.returncode == self.json["exit_status"]
        # Two calls make two boxes, whose names are random.
        heard, spoken = (re.sub("cove-[0-9a-f]{16}", "cove-NAME", text) for text in
                         (" ".join(self.words.stdout.split()), self.spoken()))
        assert heard == spoken, "the words and the JSON differ"

    def spoken(self):
        """The words that the JSON amounts to."""
        said = self.json
        lines = [f"cove {said['cove']} on Linux {said['kernel']}, {said['machine']}, "
                 f"as uid {said['uid']}"]
        places = ", ".join(place["words"] for place in said["places"])
        lines.append(f"This is {places}." if places else
                     "No container and no other sandbox around it is recognised.")
        for check in said["checks"]:
            lines.append(f"{check['state']} {check['title']} {check['found'] or ''}")
            lines += [f"{word} {check[key]}" for word, key in
                      (("why:", "cause"), ("do:", "remedy"), ("$", "command")) if check[key]]
        verdict = f"level {said['level']}"
        if said["level"] != "none":
            verdict += f", limits {said['limits']}, ids {said['ids']}, disk {said['disk']}"
        container = ["A server in a container of its own has all, when this line starts it: $", said["container"]]
        text = " ".join([*lines, "cove run has here:", verdict, said["summary"], *(container if said["container"] else [])])
        return " ".join(text.split())

    def state(self, name):
        return self.checks[name]["state"]

    def cause(self, name):
        return self.checks[name]["cause"] or ""


@functools.cache
def attacks():
    """A directory with the attacks that every user of a surrounding may read: this tree need not be such."""
    directory = tempfile.TemporaryDirectory(prefix="covetest-attacks-")
    os.chmod(directory.name, 0o755)
    shutil.copy(harness.ATTACKS / "attack", directory.name)
    return directory


def attack_within(surrounding, entries, *options):
    """Runs entries of the attacks in one box that is made there; every wall must have held."""
    entries = entries if isinstance(entries, list) else [entries]
    done = within(surrounding, COVE, "run", "--mount", f"{attacks().name}:/attack:ro", *options, "--", "sh", "-c",
                  'for entry; do /attack/attack "$entry" || exit; done', "sh", *entries)
    checks = harness.attack_lines(done.stdout)
    tried = {check["entry"] for check in checks}
    assert tried == set(entries) and done.returncode == 0, (tried, done.returncode, done.stdout, done.stderr)
    through = [check for check in checks if not check["walled"]]
    assert not through, f"{len(through)} of {len(checks)} went through: {through[:8]}"
