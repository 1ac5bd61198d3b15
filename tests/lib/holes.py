"""Public holes of the kernel, by the calls that they need: tests/box/holes.toml, and the page that is made of it."""
import tomllib

import harness

PLACES = ("box", "docker", "userns")

HEAD = """\
# Known holes of the kernel

Made by `tests/lib/holes.py` of `tests/box/holes.toml`: change that, and make this page anew.

A box shares the kernel of its host, so a hole of the kernel can be a way out of it. But a program reaches a hole only
by the calls that lead there, and a box refuses most calls that few programs need. This page takes {count} public holes
from 2022 on that are local privilege escalations: a program that uses them is public, or those who found or mended
them say that one is possible. It says of each whether a program can make all calls that it needs:

| | reaches |
| --- | --- |
| in a box | {box} of {count} |
| in a container of Docker, with its default filter and capabilities, without user namespaces | {docker} of {count} |
| in a plain user namespace, `unshare -Urn` | {userns} of {count} |

That does not say whether the kernel has the hole: all of them are mended in kernels of today, so keep yours new. It
says what the next hole of the same part of the kernel would be worth.

`tests/box/test_known_holes.py` makes each call in each of the three places, and fails where the answer is not the one
below. A call counts as made when nothing refuses it before the part of the kernel that had the hole, also where the
kernel of the test was built without that part. The program first makes itself all namespaces that it is allowed to.

Docker's filter is version 0.3.0 of its authors' Go module `github.com/moby/profiles/seccomp`. Older ones let more
through, 0.1.0 `AF_ALG` for one. AppArmor, which Docker adds where the host has it, was not there. In the user namespace
`bpf` is refused by `kernel.unprivileged_bpf_disabled`, as is usual today; `perf_event_open` and io_uring are allowed,
as Linux has it, and some distributions refuse them.

## The calls that a box can make, and why

These calls stay, each for a reason. The next hole behind one of them is one of every sandbox that shares a kernel, so
mutually hostile tenants need a virtual machine around cove.

"""

AFTER = """
On a kernel that has Dirty Pipe, CVE-2022-0847, a box could write to the files of the host's `/usr` that it sees
read-only, and to layers that other boxes share: that needs no call but `splice`.

"""


def load():
    with open(harness.BOX_TESTS / "holes.toml", "rb") as file:
        return tomllib.load(file)


def reached(hole, calls, place):
    return all(calls[name][place] == "open" for name in hole[2])


def table(*rows):
    head, *others = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "| --- " * len(rows[0]) + "|", *others]) + "\n"


def said(answer):
    return "can" if answer == "open" else f"refused, {answer}"


def render():
    data = load()
    calls = {call["name"]: call for call in data["call"]}
    known = data["holes"]["known"]
    counts = {place: sum(reached(hole, calls, place) for hole in known) for place in PLACES}
    needing = {name: [hole[0] for hole in known if name in hole[2] and reached(hole, calls, "box")] for name in calls}
    return "".join([
        HEAD.format(count=len(known), **counts),
        table(("call", "why it stays", "holes"), *(
            (call["shown"], call["why"], ", ".join(needing[name])) for name, call in calls.items() if "why" in call)),
        AFTER,
        "## The calls\n\n",
        table(("call", "box", "Docker", "user namespace"), *(
            (call["shown"], *(said(call[place]) for place in PLACES)) for call in calls.values())),
        "\n## The holes\n\n",
        table(("hole", "part of the kernel", "cause", "needs", "box", "Docker", "user namespace"), *(
            (hole[0], hole[1], hole[3], "; ".join(calls[name]["shown"] for name in hole[2]),
             *("yes" if reached(hole, calls, place) else "no" for place in PLACES)) for hole in known)),
    ])


if __name__ == "__main__":
    print(render(), end="")
