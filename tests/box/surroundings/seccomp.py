#!/usr/bin/env python3
"""Runs a command under a system call filter, as a container engine or a service manager puts one on.

  no-userns  user namespaces are refused, however they are asked for
  docker     what Docker documents that its default profile refuses to a container without
             CAP_SYS_ADMIN; the table is ours
  kill       unshare(2) is answered by a signal
  no-room    filters get the answer that they get when the host's memory for compiled BPF is used up
  FILE.json  the profile that lies there, in the form of Docker's own, for a container with Docker's
             capabilities: scripts/docker-profile.sh fetches one

usage: seccomp.py PROFILE COMMAND..."""
import ctypes
import errno
import functools
import json
import os
import pathlib
import platform
import re
import struct
import subprocess
import sys

KILL, ERRNO, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
LOAD, AND, EQUAL, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
OFFSET_NUMBER, OFFSET_ARCH, OFFSET_ARGS = 0, 4, 16
ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
DOCKER_ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}

NEWUSER = 0x10000000
# mount, cgroup, uts, ipc, user, pid, network
NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | NEWUSER | 0x20000000 | 0x40000000

# What the kernel guards by CAP_SYS_ADMIN and other capabilities that a container has not, or does not
# keep apart by namespace.
DOCKER_REFUSES = """
    acct add_key bpf clock_adjtime clock_settime delete_module fanotify_init finit_module fsconfig
    fsmount fsopen fspick init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl
    kexec_file_load kexec_load keyctl lookup_dcookie mount mount_setattr move_mount move_pages
    nfsservctl open_by_handle_at open_tree perf_event_open pivot_root quotactl quotactl_fd reboot
    request_key setdomainname sethostname setns settimeofday swapoff swapon sysfs syslog umount2
    unshare uselib userfaultfd ustat vhangup
""".split()
DOCKER_CAPABILITIES = {f"CAP_{name}" for name in """
    CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE NET_RAW SYS_CHROOT
    MKNOD AUDIT_WRITE SETFCAP
""".split()}
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)


@functools.cache
def numbers():
    """What the headers of this machine call each number."""
    text = subprocess.run(["gcc", "-dM", "-E", "-include", "sys/syscall.h", "-x", "c", "/dev/null"],
                          check=True, capture_output=True, text=True).stdout
    return {name: int(number) for name, number in
            re.findall(r"^#define __NR_(\w+) (\d+)$", text, re.MULTILINE)}


def instruction(code, value, if_true=0, if_false=0):
    return struct.pack("HBBI", code, if_true, if_false, value)


def refusal(number):
    return instruction(RETURN, ERRNO | number)


def rule(name, *body):
    """The body runs for this call; the number is loaded again behind it."""
    if name not in numbers():
        return b""
    body = b"".join(body) + instruction(LOAD, OFFSET_NUMBER)
    return instruction(EQUAL, numbers()[name], 0, len(body) // 8) + body


def refuse(name, number=errno.EPERM):
    return rule(name, refusal(number))


def refuse_flags(name, flags):
    """Refuses the call if its first argument has any of the flags."""
    return rule(name, instruction(LOAD, OFFSET_ARGS), instruction(AND, flags),
                instruction(EQUAL, 0, 1, 0), refusal(errno.EPERM))


def refuse_others(name, values):
    """Refuses the call unless its first argument is one of the values."""
    tests = b"".join(instruction(EQUAL, value, len(values) - i, 0)
                     for i, value in enumerate(values))
    return rule(name, instruction(LOAD, OFFSET_ARGS), tests, refusal(errno.EPERM))


def is_meant(includes, excludes):
    """Whether a rule is for a container here. Every kernel that cove runs on is newer than any that is named."""
    tests = {"caps": lambda caps: DOCKER_CAPABILITIES.issuperset(caps), "minKernel": lambda _: True,
             "arches": lambda arches: DOCKER_ARCHES[platform.machine()] in arches}
    return all(tests[key](value) for key, value in (includes or {}).items()) and \
        not any(tests[key](value) for key, value in (excludes or {}).items())


def verdict(action, number):
    return instruction(RETURN, {"SCMP_ACT_ALLOW": ALLOW, "SCMP_ACT_ERRNO": ERRNO | (number or 0)}[action])


def conditional(arguments, then):
    """`then`, where all conditions on 64-bit arguments hold; else what comes behind it."""
    program = then
    for argument in reversed(arguments):
        place = OFFSET_ARGS + 8 * argument["index"]
        value, operator = argument["value"], argument["op"]
        mask = 0xFFFFFFFFFFFFFFFF
        if operator == "SCMP_CMP_MASKED_EQ":
            mask, value = value, argument.get("valueTwo", 0)
        for offset, shift in ((0, 0), (4, 32)):
            part, bits, skip = value >> shift & 0xFFFFFFFF, mask >> shift & 0xFFFFFFFF, len(program) // 8
            if operator == "SCMP_CMP_LT" and offset == 0:
                test = instruction(AT_LEAST, part, skip, 0)
            elif operator in ("SCMP_CMP_EQ", "SCMP_CMP_MASKED_EQ", "SCMP_CMP_LT"):
                test = instruction(EQUAL, part, 0, skip)
            else:
                sys.exit(f"seccomp.py: the operator {operator} is unknown")
            if value >> 32 and operator == "SCMP_CMP_LT":
                sys.exit("seccomp.py: an order of 64-bit numbers is not known here")
            program = instruction(LOAD, place + offset) + instruction(AND, bits) + test + program
    return program


def profile_of(path):
    """A call is allowed where any rule for it says so; one that none allows gets the default."""
    said = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    bodies = {}
    for entry in said["syscalls"]:
        if is_meant(entry.get("includes"), entry.get("excludes")):
            for name in entry["names"]:
                then = verdict(entry["action"], entry.get("errnoRet"))
                bodies[name] = bodies.get(name, b"") + conditional(entry.get("args") or [], then)
    default = verdict(said["defaultAction"], said["defaultErrnoRet"])
    return b"".join(rule(name, body, default) for name, body in bodies.items()) + default


def profile(name):
    if name.endswith(".json"):
        return profile_of(name)
    if name == "no-userns":
        return (refuse_flags("clone", NEWUSER) + refuse_flags("unshare", NEWUSER) +
                refuse("clone3", errno.EPERM))
    if name == "docker":
        return (b"".join(refuse(call) for call in DOCKER_REFUSES) +
                refuse_flags("clone", NAMESPACES) + refuse("clone3", errno.ENOSYS) +
                refuse_others("personality", PERSONALITIES))
    if name == "kill":
        return rule("unshare", instruction(RETURN, KILL))
    if name == "no-room":
        return refuse("seccomp", 524)  # the kernel's ENOTSUPP, which it keeps from programs elsewhere
    sys.exit(f"seccomp.py: there is no profile '{name}'")


def load(program):
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(
        struct.pack("HP", len(program) // 8, ctypes.addressof(code)))
    # SECCOMP_SET_MODE_FILTER by prctl. No no_new_privs, which engines do not set either: root may.
    if os.geteuid() != 0 and libc.prctl(38, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if libc.prctl(22, 2, header, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def main():
    head = (instruction(LOAD, OFFSET_ARCH) +
            instruction(EQUAL, ARCHES[platform.machine()], 1, 0) + instruction(RETURN, KILL) +
            instruction(LOAD, OFFSET_NUMBER))
    load(head + profile(sys.argv[1]) + instruction(RETURN, ALLOW))
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
