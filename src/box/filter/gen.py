#!/usr/bin/env python3
"""Turns policy.txt into the seccomp programs of a box, as C source, at build time.

Loading a filter costs the kernel one run of it per system call number (it keeps a bitmap of the
numbers that are allowed whatever their arguments) and one compilation, so both the paths and the
program have to be short: a decision tree over ranges of numbers, balanced by a cost model.

It must never print a program that does not do what the table says. So it runs what it made, in a
small model of the kernel's interpreter, over all numbers and the interesting arguments, and fails
the build on any difference.
"""

import argparse
import dataclasses
import errno
import functools
import itertools
import pathlib
import random
import re
import shlex
import subprocess
import sys

ALLOW = 0x7FFF0000
USER_NOTIF = 0x7FC00000
ERRNO = 0x00050000
KILL_PROCESS = 0x80000000
RULES = {"allow": ALLOW, "ignore": ERRNO, "refuse": ERRNO | errno.EPERM, "absent": ERRNO | errno.ENOSYS,
         "ask": USER_NOTIF, "kill": KILL_PROCESS}

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FOREIGN = [0x40000003, 0x40000028, 0xC00000F3, 0, 0xFFFFFFFF]  # i386, arm, riscv64, nonsense
X32_BIT = 0x40000000

# struct seccomp_data, and the opcodes of classic BPF that are used.
NR, ARCH, ARGS = 0, 4, 16
LD, JEQ, JGE, JSET, AND, RET = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06

# The kernel knows the numbers below this one; they are what it runs the program for at load.
NUMBERS = 470
# Names that the headers know below this must be in the table: nothing is forgotten in silence.
# The gap holds numbers that x86_64 gives to calls of its own.
HORIZON, GAP = 470, range(335, 424)
# Pseudo names of the generic header.
NOT_CALLS = {"syscalls", "arch_specific_syscall"}
# What an instruction costs the kernel to check and compile, against one step of a run at load:
# 0.15 us and 7 ns were measured (Linux 6.18, x86_64).
COST_INSTRUCTION, COST_STEP = 20, 1

# Indexed by the flags of filter.h.
VARIANTS = ("plain", "no_setid", "watched", "watched_no_setid")

# Stand-ins for the key of a box, replaced at run time (filter.c); in so many checks at most.
KEY_PLACES = 3
KEYS = {f"key{i}": 0xC0DE0000 + i for i in range(4)}


class PolicyError(Exception):
    """The table is wrong, or cannot be compiled."""


@dataclasses.dataclass(frozen=True)
class Condition:
    """`word [& mask] == value`, or with no value: any bit of the mask."""
    word: int  # offset into struct seccomp_data
    mask: int
    value: int | None

    def holds(self, words):
        masked = words.get(self.word, 0) & self.mask
        return masked == self.value if self.value is not None else masked != 0


@dataclasses.dataclass
class Check:
    lines: list  # (conditions, rule)
    otherwise: str | None = None


@dataclasses.dataclass
class Policy:
    checks: dict
    calls: dict  # section -> name -> (number or None, rule, rule without set-id)


# ---- reading -----------------------------------------------------------------------------------

def parse_number(text):
    return KEYS[text] if text in KEYS else int(text, 0)


def parse_condition(text):
    match = re.fullmatch(r"arg([0-5])(\.high)? (?:& (\w+) )?(==|has) (\w+)", text.strip())
    if not match:
        raise PolicyError(f"cannot read the condition '{text.strip()}'")
    index, high, mask, operator, value = match.groups()
    word = ARGS + 8 * int(index) + (4 if high else 0)
    if operator == "has":
        if mask:
            raise PolicyError(f"'has' takes no second mask: '{text.strip()}'")
        return Condition(word, parse_number(value), None)
    return Condition(word, parse_number(mask) if mask else 0xFFFFFFFF, parse_number(value))


def parse_policy(text):
    policy = Policy({}, {"all": {}, "x86_64": {}, "aarch64": {}})
    section, check = None, None
    for number, line in enumerate(text.splitlines(), 1):
        try:
            indented = line.startswith((" ", "\t"))
            line = line.split("#", 1)[0].strip()
            if not line:
                continue
            if not indented:
                check = None
            if check is not None:
                conditions, rule = (part.strip() for part in line.rsplit(":", 1))
                if check.otherwise is not None:
                    raise PolicyError("a line after 'otherwise' decides nothing")
                if conditions == "otherwise":
                    check.otherwise = rule
                else:
                    check.lines.append(
                        ([parse_condition(c) for c in conditions.split(" and ")], rule))
            elif line.startswith("check "):
                name = line.split()[1]
                if name in policy.checks or name in RULES:
                    raise PolicyError(f"a second check '{name}'")
                check = policy.checks[name] = Check([])
            elif match := re.fullmatch(r"\[(\w+)\]", line):
                section = policy.calls[match.group(1)]
            else:
                match = re.fullmatch(
                    r"(\w+)(?:@(\d+))?\s+(\w+)(?:\s+(\w+))?(?:\s+watched:(\w+))?", line)
                if not match or section is None:
                    raise PolicyError("neither a check, a section nor a system call")
                name, at, rule, no_setid, watched = match.groups()
                if any(name in calls for calls in policy.calls.values()):
                    raise PolicyError(f"a second line for '{name}'")
                no_setid = no_setid or rule
                section[name] = (int(at) if at else None, rule, no_setid, watched or rule,
                                 watched or no_setid)
        except (PolicyError, KeyError, ValueError) as err:
            raise PolicyError(f"line {number}: {err}") from err
    validate_rules(policy)
    return policy


def validate_rules(policy):
    for name, check in policy.checks.items():
        if check.otherwise is None:
            raise PolicyError(f"check '{name}' has no 'otherwise'")
    used = [rule for check in policy.checks.values()
            for rule in [check.otherwise, *(rule for _, rule in check.lines)]]
    used += [rule for calls in policy.calls.values() for _, *rules in calls.values()
             for rule in rules]
    for rule in used:
        if rule not in RULES and rule not in policy.checks and not hasattr(errno, rule):
            raise PolicyError(f"no rule and no check is called '{rule}'")
    for name in policy.checks:
        if name not in used:
            raise PolicyError(f"check '{name}' is not used")


def verdict_value(rule):
    return RULES[rule] if rule in RULES else ERRNO | getattr(errno, rule)


def header_numbers(compiler):
    """What the headers of the target say: name -> number."""
    run = subprocess.run([*compiler, "-E", "-dM", "-x", "c", "-"], text=True, check=True,
                         input="#include <asm/unistd.h>\n", stdout=subprocess.PIPE)
    macros = dict(re.findall(r"^#define (__NR\w*) (\w+)$", run.stdout, re.MULTILINE))
    numbers = {}
    for macro, value in macros.items():
        while value in macros:
            value = macros[value]
        if macro.startswith("__NR_") and value.isdigit():
            numbers[macro.removeprefix("__NR_")] = int(value)
    return {name: number for name, number in numbers.items() if name not in NOT_CALLS}


def resolve_numbers(policy, machine, header):
    """The table for one machine: number -> its rule in each of VARIANTS."""
    rules, names = {}, {}
    for name, (at, *each) in {**policy.calls["all"], **policy.calls[machine]}.items():
        known = header.get(name)
        if known is None and at is None:
            raise PolicyError(f"the headers for {machine} have no '{name}' and the table gives no "
                              "number")
        if known is not None and at is not None and known != at:
            raise PolicyError(f"'{name}' is {known} in the headers, {at} in the table")
        number = known if at is None else at
        if number in rules:
            raise PolicyError(f"'{name}' and '{names[number]}' are both {number}")
        rules[number], names[number] = tuple(each), name
    missing = sorted(name for name, number in header.items()
                     if number < HORIZON and number not in GAP and number not in rules)
    if missing:
        raise PolicyError("not in the table: " + ", ".join(missing))
    return rules


def rule_of_number(rules, machine, variant, number):
    if number in rules:
        return rules[number][variant]
    # A debugger skips a call by making its number -1: that is no x32 call.
    if machine == "x86_64" and X32_BIT <= number < 0xFFFFFFFF:
        return "kill"
    return "absent"


# ---- compiling ---------------------------------------------------------------------------------

class Assembler:
    """Instructions with labels; a label is a string, and jumps only go forward."""

    def __init__(self):
        self.code = []  # [opcode, k, label if true, label if false]
        self.labels = {}

    def place(self, label):
        if label in self.labels:
            raise PolicyError(f"label '{label}' twice")
        self.labels[label] = len(self.code)

    def emit(self, opcode, k, if_true=None, if_false=None):
        self.code.append((opcode, k, if_true, if_false))

    def link(self):
        program = []
        for at, (opcode, k, if_true, if_false) in enumerate(self.code):
            offsets = [0 if label is None else self.labels[label] - at - 1
                       for label in (if_true, if_false)]
            if not all(0 <= offset <= 255 for offset in offsets):
                raise PolicyError(f"instruction {at} jumps {offsets}: the program is too long")
            program.append((opcode, *offsets, k))
        return program


def tree_ranges(rules, machine, variant):
    """The 32-bit numbers as [first, rule] of maximal ranges with one rule."""
    edges = {0, NUMBERS, X32_BIT, 0xFFFFFFFF}
    edges |= {n + d for n in rules for d in (0, 1)}
    ranges = []
    for first in sorted(edges):
        rule = rule_of_number(rules, machine, variant, first)
        if not ranges or ranges[-1][1] != rule:
            ranges.append((first, rule))
    return ranges


class Tree:
    """The cheapest decision tree over ranges. A node splits an interval (JGE), or picks the single
    numbers out of an interval that has one rule otherwise (a chain of JEQ)."""

    CHAIN_MAX = 5

    def __init__(self, ranges):
        self.firsts = [first for first, _ in ranges]
        self.rules = [rule for _, rule in ranges]
        self.ends = self.firsts[1:] + [1 << 32]

    def steps(self, i, j):
        """How many of the numbers that the kernel tries are in ranges i..j-1."""
        return max(0, min(self.ends[j - 1], NUMBERS) - min(self.firsts[i], NUMBERS))

    def chain(self, i, j):
        """(background, ranges to pick out) or None."""
        wide = {self.rules[m] for m in range(i, j) if self.ends[m] - self.firsts[m] > 1}
        if len(wide) > 1:
            return None
        backgrounds = wide or set(self.rules[i:j])
        best = None
        for background in sorted(backgrounds):
            picks = [m for m in range(i, j) if self.rules[m] != background]
            if len(picks) <= self.CHAIN_MAX and (best is None or len(picks) < len(best[1])):
                best = (background, picks)
        return best

    @functools.lru_cache(maxsize=None)
    def best(self, i, j):
        """(cost, where to split; None for a leaf or a chain)."""
        if len(set(self.rules[i:j])) == 1:
            return 0, None
        options = []
        chain = self.chain(i, j)
        if chain:
            # All that is not picked walks the whole chain; a pick leaves it where it stands.
            count = len(chain[1])
            walked = count * self.steps(i, j) - sum(range(count))
            options.append((count * COST_INSTRUCTION + walked * COST_STEP, None))
        here = COST_INSTRUCTION + COST_STEP * self.steps(i, j)
        options += [(here + self.best(i, k)[0] + self.best(k, j)[0], k) for k in range(i + 1, j)]
        return min(options, key=lambda option: (option[0], option[1] or 0))

    def emit(self, asm, i, j, label):
        """Emits ranges i..j-1 at `label`; a leaf emits nothing."""
        asm.place(label)
        split = self.best(i, j)[1]
        if split is None:
            background, picks = self.chain(i, j)
            for at, pick in enumerate(picks):
                last = at == len(picks) - 1
                asm.emit(JEQ, self.firsts[pick], self.rules[pick], background if last else None)
            return
        labels = []
        for a, b in ((i, split), (split, j)):
            leaf = len(set(self.rules[a:b])) == 1
            labels.append(self.rules[a] if leaf else f"ranges {a}..{b}")
        asm.emit(JGE, self.firsts[split], labels[1], labels[0])
        for (a, b), child in zip(((i, split), (split, j)), labels):
            if child.startswith("ranges "):
                self.emit(asm, a, b, child)


def emit_check(asm, name, check):
    """A check as a block. What is in the accumulator is remembered, so that a word is loaded
    once where every way to an instruction has loaded it."""
    asm.place(name)
    held = {None}  # what A may hold on entry to a line: (word, mask)
    for at, (conditions, rule) in enumerate(check.lines):
        last = at == len(check.lines) - 1
        next_line = check.otherwise if last else f"{name} {at + 1}"
        leaving = set()
        for index, condition in enumerate(conditions):
            plain = condition.value is None or condition.mask == 0xFFFFFFFF
            wanted = (condition.word, 0xFFFFFFFF if plain else condition.mask)
            if held != {wanted}:
                if held != {(condition.word, 0xFFFFFFFF)}:
                    asm.emit(LD, condition.word)
                if not plain:
                    asm.emit(AND, condition.mask)
                held = {wanted}
            leaving.add(wanted)
            if_true = rule if index == len(conditions) - 1 else None
            if condition.value is None:
                asm.emit(JSET, condition.mask, if_true, next_line)
            else:
                asm.emit(JEQ, condition.value, if_true, next_line)
        held = leaving
        if not last:
            asm.place(next_line)


def compile_program(policy, rules, machine, variant):
    asm = Assembler()
    asm.emit(LD, ARCH)
    asm.emit(JEQ, AUDIT_ARCH[machine], None, "kill")
    asm.emit(LD, NR)
    ranges = tree_ranges(rules, machine, variant)
    tree = Tree(ranges)
    tree.emit(asm, 0, len(ranges), "tree")
    # A jump reaches 255 instructions, and not from the tree to the end of all: the tree has verdicts of its own.
    near = {label: f"{label} of the tree" for _, _, *labels in asm.code for label in labels
            if label is not None and label not in asm.labels and label not in policy.checks}
    asm.code = [(opcode, k, *(near.get(label, label) for label in labels)) for opcode, k, *labels in asm.code]
    for rule, label in near.items():
        asm.place(label)
        asm.emit(RET, verdict_value(rule))

    # Checks in the order in which they are first jumped to, what they name after them; then the
    # verdicts. Every jump goes forward.
    wanted = list(dict.fromkeys(label for _, _, *labels in asm.code for label in labels
                                if label in policy.checks))
    while wanted:
        name = wanted.pop(0)
        emit_check(asm, name, policy.checks[name])
        named = [rule for _, rule in policy.checks[name].lines] + [policy.checks[name].otherwise]
        wanted = [n for n in dict.fromkeys(named) if n in policy.checks] + wanted
        wanted = list(dict.fromkeys(n for n in wanted if n not in asm.labels))
    targets = dict.fromkeys(label for _, _, *labels in asm.code for label in labels
                            if label is not None and label not in asm.labels)
    for label in targets:
        asm.place(label)
        asm.emit(RET, verdict_value(label))
    return asm.link()


# ---- proving -----------------------------------------------------------------------------------

def run_program(program, words):
    """What the kernel's interpreter answers; None if it has to look at an argument that `words`
    does not have."""
    at = acc = 0
    while True:
        opcode, if_true, if_false, k = program[at]
        at += 1
        if opcode == LD:
            if k not in words:
                return None
            acc = words[k]
        elif opcode == AND:
            acc &= k
        elif opcode == JEQ:
            at += if_true if acc == k else if_false
        elif opcode == JGE:
            at += if_true if acc >= k else if_false
        elif opcode == JSET:
            at += if_true if acc & k else if_false
        elif opcode == RET:
            return k
        else:
            raise PolicyError(f"unknown opcode {opcode:#x}")


def expected(policy, rule, words):
    """What the table says, read line by line."""
    while rule in policy.checks:
        check = policy.checks[rule]
        rule = next((rule for conditions, rule in check.lines
                     if all(c.holds(words) for c in conditions)), check.otherwise)
    return verdict_value(rule)


def conditions_of(policy, rule):
    if rule not in policy.checks:
        return []
    check = policy.checks[rule]
    found = [c for conditions, _ in check.lines for c in conditions]
    for named in [check.otherwise, *(rule for _, rule in check.lines)]:
        found += conditions_of(policy, named)
    return found


def argument_sets(policy, rule):
    """Every argument word at the values that could make a difference: each constant, its
    neighbours, it with one more bit, each bit of a mask; the words that no condition names
    at 0 and at random."""
    pools = {}
    for condition in conditions_of(policy, rule):
        pool = pools.setdefault(condition.word, {0, 1, 0xFFFFFFFF})
        if condition.value is None:
            pool |= {1 << bit for bit in range(32)} | {condition.mask, ~condition.mask & 0xFFFFFFFF}
        else:
            value = condition.value
            pool |= {value, (value + 1) & 0xFFFFFFFF, (value - 1) & 0xFFFFFFFF,
                     value ^ 0x80000000, value ^ 0x10, value ^ 0x800}
    words = list(range(ARGS, ARGS + 48, 4))
    rest = [word for word in words if word not in pools]
    picker = random.Random(len(pools))
    for values in itertools.product(*(sorted(pool) for pool in pools.values())):
        for fill in (0, picker.getrandbits(32)):
            yield dict(zip(pools, values)) | dict.fromkeys(rest, fill)


def verify_program(program, policy, rules, machine, variant):
    """Raises on the first difference between the program and the table; how many were compared."""
    if len(program) > 4096:
        raise PolicyError("the kernel takes 4096 instructions")
    compared = 0
    numbers = [*range(1024), 0x3FFFFFFF, *range(X32_BIT, X32_BIT + 1024), 0x7FFFFFFF, 0x80000000,
               0xFFFFFFFE, 0xFFFFFFFF]
    for number in numbers:
        base = {NR: number, ARCH: AUDIT_ARCH[machine]}
        for arch in FOREIGN:
            if run_program(program, {NR: number, ARCH: arch}) != KILL_PROCESS:
                raise PolicyError(f"number {number} of architecture {arch:#x} is not killed")
            compared += 1
        rule = rule_of_number(rules, machine, variant, number)
        if rule not in policy.checks:
            # Also that no argument is looked at: only then is it in the kernel's bitmap.
            if run_program(program, base) != verdict_value(rule):
                raise PolicyError(f"number {number} is not '{rule}'")
            compared += 1
            continue
        for arguments in argument_sets(policy, rule):
            words = base | arguments
            got, want = run_program(program, words), expected(policy, rule, words)
            if got != want:
                raise PolicyError(f"number {number} ({rule}) answers {got:#x}, not {want:#x}, to "
                                  f"{arguments}")
            compared += 1
    return compared


# ---- writing -----------------------------------------------------------------------------------

def key_places(program):
    """Where the stand-ins are: for each check that compares with the key, the place of each word.
    The last of fewer than KEY_PLACES is there again."""
    by_word = []
    for key in KEYS.values():
        found = [at for at, (opcode, _, _, k) in enumerate(program) if opcode == JEQ and k == key]
        if not 0 < len(found) <= KEY_PLACES or sum(k == key for *_, k in program) != len(found):
            raise PolicyError(f"a key must stand in the program, and at most {KEY_PLACES} times")
        by_word.append(found + found[-1:] * (KEY_PLACES - len(found)))
    return list(zip(*by_word))


def format_source(machine, programs):
    lines = ["/* Made by gen.py from policy.txt: change those. */",
             '#include "box/filter/table.h"', "",
             f"#ifndef __{machine}__", f"#error made for {machine}", "#endif"]
    for name, program in programs.items():
        lines += ["", f"static const struct sock_filter program_{name}[] = {{"]
        lines += [f"    {{0x{opcode:02x}, {if_true}, {if_false}, 0x{k:08x}}},"
                  for opcode, if_true, if_false, k in program]
        lines += ["};"]
    lines += ["", "const struct filter_variant filter_variants[FILTER_VARIANTS] = {"]
    for name, program in programs.items():
        places = ", ".join("{" + ", ".join(map(str, place)) + "}" for place in key_places(program))
        lines += [f"    {{program_{name}, sizeof(program_{name}) / sizeof(program_{name}[0]), "
                  f"{{{places}}}}},"]
    lines += ["};", ""]
    lines += [f'_Static_assert(sizeof(program_{name}) / sizeof(program_{name}[0]) <= FILTER_MAX, '
              f'"FILTER_MAX");' for name in programs]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", choices=sorted(AUDIT_ARCH), required=True)
    parser.add_argument("--cc", default="cc", help="the target's compiler, with its options")
    parser.add_argument("--policy", type=pathlib.Path,
                        default=pathlib.Path(__file__).with_name("policy.txt"))
    parser.add_argument("--stats", action="store_true", help="say how long the programs are")
    parser.add_argument("output", type=pathlib.Path)
    options = parser.parse_args()
    try:
        policy = parse_policy(options.policy.read_text(encoding="utf-8"))
        rules = resolve_numbers(policy, options.machine, header_numbers(shlex.split(options.cc)))
        programs = {}
        for variant, name in enumerate(VARIANTS):
            program = compile_program(policy, rules, options.machine, variant)
            compared = verify_program(program, policy, rules, options.machine, variant)
            programs[name] = program
            if options.stats:
                print(f"{name}: {len(program)} instructions, {compared} answers compared")
        options.output.write_text(format_source(options.machine, programs), encoding="utf-8")
    except (PolicyError, OSError, subprocess.CalledProcessError) as err:
        sys.exit(f"gen.py: {err}")


if __name__ == "__main__":
    main()
