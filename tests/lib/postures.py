"""A command in a box describes itself, by the attack program."""
import json
import os
import subprocess

import harness


def layers_left(is_confined=True):
    """As many layers of Landlock a command can still add: one less than the caller, for the box's own."""
    said = subprocess.run([harness.ATTACKS / "attack", "layers"], capture_output=True, text=True, check=True)
    version, layers = map(int, said.stdout.split())
    return layers - 1 if version >= 2 and is_confined else layers


def posture(*options, **more):
    result = harness.run(["/attack/attack", "posture"], "--mount", harness.ATTACK_MOUNT, *options,
                 env=dict(os.environ, LANG="C.UTF-8", TERM="xterm"), **more)
    return json.loads(result.stdout)


def mounts_of(posture_):
    found = []
    for line in posture_["mountinfo"].splitlines():
        before, _, after = line.partition(" - ")
        target, flags = before.split()[4:6]
        kind = after.split()[0]
        flags = ",".join(flag for flag in flags.split(",") if flag not in ("relatime", "noatime"))
        found.append((target, kind, flags))
    return sorted(found)
