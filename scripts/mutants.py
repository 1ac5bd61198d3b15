#!/usr/bin/python3
"""Tries the tests: changes one line of a copy of the sources, and sees whether a test fails.

Half of the changes are written by hand, in tests/mutants/rows.toml: each is a fault that must never pass. The other
half is drawn from all rooms, the same for the same sources. tests/mutants/suites.toml says which tests are to find
what; a mutant is killed by the first that fails, and survives where none does. Results are kept in build/mutants:
a run that was ended goes on where it was. The copy lies there, too, and nothing else is changed.

usage: mutants.py [--room ROOM] [--only NAME] [--trust] [--baseline] | --check | --list
  --trust     takes over what was killed by tests of another state of the sources
  --baseline  only runs the steps of the rooms without a mutant
  --check     only looks whether each row still names exactly one place, and each step files that are there
  --list      says what would be run
"""
import argparse
import ctypes
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "mutants"
HOME = pathlib.Path(os.environ.get("BUILD", ROOT / "build")).absolute() / "mutants"
TREE = HOME / "tree"
RESULTS = HOME / "results.json"
JOBS = str(min(os.cpu_count() or 1, 4))

SEED = "cove"
DRAWN = 40
# The time that a step may take beyond three times what it takes without a mutant; where that is not known yet; and a build.
PATIENCE_S = 30
STEP_S, UNIT_S = 600, 150
BUILD_S = 1800

# Of another state of these a result says nothing.
DECIDES = ("src/", "tests/", "js/", "include/", "examples/", "meson", "scripts/build", "scripts/test-programs",
           "scripts/lane.py", "pytest.ini")

PR_SET_CHILD_SUBREAPER = 36


class Fault(Exception):
    """Something that whoever wrote a row, or runs this, has to mend."""


# ---- where things are: the blocks of a source, by name ----


@dataclasses.dataclass(frozen=True)
class Block:
    """A function, a table, a constant, or a section of a list."""
    path: str
    name: str
    start: int
    end: int
    is_function: bool = False


C_KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "defined"}
C_TABLE = re.compile(r"^[a-z].*?\b(\w+)(?:\[[^\]]*\])*\s*=")
C_CONSTANT = re.compile(r"^#define (\w+)")
C_TYPE = re.compile(r"^(?:static const )?(?:struct|enum|union) (\w+) \{")
SCRIPT_DEFINITIONS = [re.compile(text) for text in (
    r"^(\s*)(?:export )?(?:default )?(?:async )?function\*? (\w+)",
    r"^(\s*)(?:export )?(?:const|let) (\w+)\b",
    r"^(\s*)(?:export )?(?:abstract )?class (\w+)",
    r"^(\s+)(?:(?:public|private|protected|static|async|get|set|override) )*\*?(#?\w+)\s*[(<].*\{$")]
LIST_SECTION = re.compile(r"^(?:check (\w+)|\[(\w+)\])$")


def blocks_of_c(path, text):
    """By the layout that the formatter makes: what ends a definition stands at the start of a line."""
    lines = text.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    head = 0  # of the definition that may begin here
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("#"):
            last = at
            while lines[last].endswith("\\\n") and last + 1 < len(lines):
                last += 1
            constant = C_CONSTANT.match(line)
            if constant:
                yield Block(path, constant[1], offsets[at], offsets[last + 1])
            at = head = last + 1
            continue
        table, kind = C_TABLE.match(line), C_TYPE.match(line)
        if line == "{\n":
            named = re.search(r"\b(\w+)\(", re.sub(r"__attribute__\(\(.*?\)\)\)?", "", "".join(lines[head:at])))
            last = closing(lines, at, ("}",))
            if named:
                yield Block(path, named[1], offsets[head], offsets[last + 1], is_function=True)
            at = head = last + 1
        elif line[0] not in " \t\n/*}{" and (kind or (table and "(" not in line[:table.end()])):
            last = at if line.rstrip().endswith(";") else closing(lines, at, ("}",))
            also = kind and re.match(r"\} (\w+)(?:\[.*\])? = \{$", lines[last])
            if also:  # a type and its table in one
                last = closing(lines, last, ("}",))
                yield Block(path, also[1], offsets[at], offsets[last + 1])
            if not line.rstrip().endswith(("{", ";")) and "{" not in line:
                last = at
                while not lines[last].rstrip().endswith(";") and last + 1 < len(lines):
                    last += 1
            yield Block(path, (kind or table)[1], offsets[at], offsets[last + 1])
            at = head = last + 1
        else:
            if line == "\n" or line.rstrip().endswith((";", "*/")):
                head = at + 1
            at += 1


def closing(lines, at, ends, indent=""):
    while at + 1 < len(lines):
        at += 1
        if lines[at].startswith(tuple(indent + end for end in ends)):
            return at
    return at


def blocks_of_script(path, text):
    lines = text.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    for at, line in enumerate(lines):
        for definition in SCRIPT_DEFINITIONS:
            found = definition.match(line.rstrip("\n"))
            if found and found[2] not in C_KEYWORDS | {"catch", "function"}:
                is_whole = line.rstrip().endswith(";")
                last = at if is_whole else closing(lines, at, ("}", ")", "]"), found[1])
                yield Block(path, found[2], offsets[at], offsets[last + 1], is_function=True)
                break


def blocks_of_list(path, text):
    start, name = 0, None
    at = 0
    for line in text.splitlines(keepends=True):
        section = LIST_SECTION.match(line.strip())
        if section:
            if name:
                yield Block(path, name, start, at)
            start, name = at, section[1] or section[2]
        at += len(line)
    if name:
        yield Block(path, name, start, at)


READERS = {".c": blocks_of_c, ".h": blocks_of_c, ".ts": blocks_of_script, ".js": blocks_of_script,
           ".txt": blocks_of_list}


def tracked():
    """Lists the files of the copy: all that git knows or would take."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            check=True, capture_output=True).stdout.decode()
    return sorted(name for name in set(listed.split("\0")) if name and (ROOT / name).is_file())


def is_source(name):
    return name.startswith("src/") or re.match(r"js/packages/[^/]+/(src|lib)/", name) is not None


def room_of(path):
    return path.split("/")[1] if path.startswith("src/") else "js"


class Sources:
    """All sources, and their blocks by name."""

    def __init__(self, names):
        self.text, self.blocks = {}, {}
        for name in names:
            reader = READERS.get(pathlib.Path(name).suffix)
            if reader is None or not is_source(name):
                continue
            self.text[name] = (ROOT / name).read_text(encoding="utf-8")
            for block in reader(name, self.text[name]):
                self.blocks.setdefault(block.name, []).append(block)

    def find(self, function, before):
        """The one place of that text in a block of that name. How its words are broken into lines is no matter."""
        pattern = re.compile(r"\s+".join(re.escape(word) for word in before.split()))
        places = {(block.path, block.start + found.start(), block.start + found.end())
                  for block in self.blocks.get(function, [])
                  for found in pattern.finditer(self.text[block.path][block.start:block.end])}
        return sorted(places)


# ---- what is changed ----


@dataclasses.dataclass
class Mutant:
    """One change of one file."""
    name: str
    path: str
    start: int
    end: int
    before: str
    after: str
    function: str
    tests: tuple = ()
    is_drawn: bool = False

    @property
    def digest(self):
        said = [self.name, self.function, self.before, self.after]
        return hashlib.sha256("\0".join(said).encode()).hexdigest()[:16]

    @property
    def room(self):
        return room_of(self.path)


ROW_FIELDS = {"name": str, "function": str, "before": str, "after": str, "why": str, "tests": list}


def load(name):
    with open(DATA / name, "rb") as file:
        return tomllib.load(file)


def rows_read(sources):
    mutants, faults, names = [], [], set()
    for row in load("rows.toml").get("row", []):
        name = row.get("name", "?")
        wrong = [field for field in row if not isinstance(row[field], ROW_FIELDS.get(field, ()))]
        missing = [field for field in ROW_FIELDS if field not in row and field != "tests"]
        if wrong or missing or name in names:
            faults.append(f"{name}: " + (f"the field '{(wrong + missing)[0]}' is wrong or missing" if wrong + missing
                                         else "there are two rows of this name"))
            continue
        names.add(name)
        places = sources.find(row["function"], row["before"])
        if len(places) != 1:
            faults.append(f"{name}: in '{row['function']}' the text is there {len(places)} times, not once: mend "
                          f"the row: {' '.join(row['before'].split())}")
            continue
        path, start, end = places[0]
        mutants.append(Mutant(name, path, start, end, row["before"], row["after"], row["function"],
                              tuple(row.get("tests", ()))))
    return mutants, faults


# ---- what is drawn ----

# Texts, comments and characters are of no interest, and neither is a line that only says something.
HIDDEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|/\*.*?\*/|//[^\n]*', re.DOTALL)
SAYS = re.compile(r"\b(log_\w+|assert|_Static_assert|error_set|error_wrap|refuse\w*|bad|perror|f?printf|usage)\(|"
                  r"^\s*(#|case |default:|static const)|\(void\)")
# A call whose result nobody looks at and that only gives something back or tells of it.
GIVES_BACK = re.compile(r"(free|close|log|say|tell|print|notify|drop|unref|give|put_back|clear|reset)")

OPERATORS = [
    ("order", re.compile(r" < 0\b"), " >= 0"),
    ("edge", re.compile(r" < (?!0\b)"), " <= "),
    ("edge", re.compile(r" <= "), " < "),
    ("edge", re.compile(r" > "), " >= "),
    ("edge", re.compile(r" >= "), " > "),
    ("equal", re.compile(r" == "), " != "),
    ("equal", re.compile(r" != "), " == "),
    ("both", re.compile(r" && ?"), " || "),
    ("both", re.compile(r" \|\| ?"), " && "),
    ("result", re.compile(r"return -1;"), "return 0;"),
    ("result", re.compile(r"return false;"), "return true;"),
    ("result", re.compile(r"return true;"), "return false;"),
    ("not", re.compile(r"(?<=[ (])!(?=\w)"), ""),
    ("one", re.compile(r" \+ 1\b"), ""),
    ("one", re.compile(r" - 1\b"), ""),
    ("call", re.compile(r"^\s+[a-z]\w*\([^;{}]*\);$"), " ;"),
]


def blank(text):
    """The same with all that is no code made empty, of the same length."""
    return HIDDEN.sub(lambda found: re.sub(r"[^\n]", "\x01", found[0]), text)


def candidates(sources):
    """By room, in the order in which they are drawn: by a hash of function, line and operator, so that a change
    elsewhere moves none of them."""
    by_room = {}
    for name, blocks in sources.blocks.items():
        for block in blocks:
            if not block.is_function or not block.path.startswith("src/") or not block.path.endswith(".c"):
                continue
            text = sources.text[block.path][block.start:block.end]
            code = blank(text)
            body = code.index("\n{\n") + 3
            for line in re.finditer(r"[^\n]+", code[body:]):
                written = text[body + line.start():body + line.end()]
                if SAYS.search(written) or text.count(written) > 1:
                    continue
                for kind, pattern, after in OPERATORS:
                    for found in pattern.finditer(line[0]):
                        if kind == "call" and GIVES_BACK.search(written.split("(")[0]):
                            continue
                        if kind == "call" and not code[:body + line.start()].rstrip("\n\x01 ").endswith((";", "{", "}")):
                            continue
                        start, end = found.span()
                        mutated = written[:start] + after + written[end:]
                        key = "|".join((SEED, name, written.strip(), mutated.strip()))
                        order = hashlib.sha256(key.encode()).hexdigest()
                        place = block.start + body + line.start()
                        by_room.setdefault(room_of(block.path), []).append((order, Mutant(
                            f"drawn-{order[:8]}", block.path, place, place + len(written), written.strip(), mutated,
                            name, is_drawn=True)))
    return {room: [mutant for _, mutant in sorted(drawn, key=lambda pair: pair[0])]
            for room, drawn in by_room.items()}


def shares(sources):
    """How many of the drawn ones are whose: in proportion to lines, and each has one."""
    lines = {}
    for path, text in sources.text.items():
        if path.startswith("src/") and path.endswith(".c"):
            lines[room_of(path)] = lines.get(room_of(path), 0) + text.count("\n")
    left = DRAWN - len(lines)
    exact = {room: left * count / sum(lines.values()) for room, count in lines.items()}
    share = {room: 1 + int(value) for room, value in exact.items()}
    for room in sorted(exact, key=lambda room: int(exact[room]) - exact[room])[:DRAWN - sum(share.values())]:
        share[room] += 1
    return share


def same_read(drawn):
    """Changes that change nothing: each with its reason. What matches none any more is a fault, too."""
    known, faults = set(), []
    there = {(mutant.function, " ".join(mutant.before.split()), " ".join(mutant.after.split()))
             for mutants in drawn.values() for mutant in mutants}
    for row in load("same.toml").get("same", []):
        key = (row["function"], " ".join(row["before"].split()), " ".join(row["after"].split()))
        if key not in there or not row.get("why"):
            faults.append(f"same.toml: nothing in '{key[0]}' is drawn as '{key[2]}': remove the entry, or mend it")
        known.add(key)
    return known, faults


class Draw:
    """The drawn ones of each room. One that does not compile, or changes nothing, gives its place to the next."""

    def __init__(self, sources):
        self.all = candidates(sources)
        self.share = shares(sources)
        self.same, self.faults = same_read(self.all)

    def of(self, room, is_out):
        functions, left = set(), self.share.get(room, 0)
        for mutant in self.all.get(room, []):
            key = (mutant.function, " ".join(mutant.before.split()), " ".join(mutant.after.split()))
            if left == 0:
                return
            if mutant.function in functions or key in self.same or is_out(mutant):
                continue
            functions.add(mutant.function)
            left -= 1
            yield mutant


# ---- the copy ----


def digest_of(names):
    """Of all that can decide about a result."""
    digest = hashlib.sha256()
    for name in names:
        if not name.startswith(DECIDES) or name.startswith("tests/mutants/") or name == "scripts/mutants.py":
            continue
        digest.update(f"{name}\0".encode() + hashlib.sha256((ROOT / name).read_bytes()).digest())
    return digest.hexdigest()[:16]


def copy_update(names):
    """Only what differs is written, so that what was built of the rest stays. It also takes back a mutant that an
    ended run has left."""
    listing = HOME / "files"
    before = set(listing.read_text().split("\n")) if listing.exists() else set()
    for name in names:
        source, target = ROOT / name, TREE / name
        if target.is_symlink() or (target.exists() and source.is_symlink()):
            target.unlink()
        if source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(os.readlink(source))
            continue
        data = source.read_bytes()
        if not target.exists() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        target.chmod(source.stat().st_mode)
    for name in before - set(names) - {""}:
        (TREE / name).unlink(missing_ok=True)
    listing.write_text("\n".join(names))
    copy_share()


def copy_share():
    """Shares what tests need and nobody changes; setup.sh made it once for the sources beside."""
    build = HOME.parent
    (TREE / "build").mkdir(parents=True, exist_ok=True)
    for name in ("cache", "roots", "python", "python-api", "python-openapi", "vite", "typescript", "conformance"):
        link = TREE / "build" / name
        if name in ("cache", "roots"):
            (build / name).mkdir(exist_ok=True)
        if (build / name).exists() and not link.exists():
            link.symlink_to(build / name)
    modules = TREE / "js" / "node_modules"
    if (ROOT / "js" / "node_modules" / ".done").exists() and not (modules / ".done").exists():
        # Links to our own packages in it lead to those of the copy; the rest is the same files.
        shutil.rmtree(modules, ignore_errors=True)
        subprocess.run(["cp", "-al", ROOT / "js" / "node_modules", modules], check=True)


# ---- running something ----


def descendants():
    """All processes below this one: those of tests come to it when what started them has ended."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = pathlib.Path(f"/proc/{entry}/stat").read_text(errors="replace")
            except OSError:
                continue
            parents.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(entry))
    found, new = [], [os.getpid()]
    while new:
        new = [child for parent in new for child in parents.get(parent, [])]
        found += new
    return found


def sweep():
    """Ends what a command has left, if it ran in no lane: first it gets the chance to clean up."""
    for number, wait_s in ((signal.SIGTERM, 3), (signal.SIGKILL, 3)):
        left = descendants()
        for pid in left:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        end = time.monotonic() + wait_s
        while left and time.monotonic() < end:
            try:
                while os.waitpid(-1, os.WNOHANG)[0] != 0:
                    pass
            except ChildProcessError:
                pass
            left = descendants()
            time.sleep(0.02)


def run(words, limit_s, log, environment=None, lane=None):
    """Runs a command in the copy, in a lane if it is a test; its exit status, or None where it took too long."""
    if lane:
        words = ["scripts/lane.py", *lane, "mutant", "--", *words]
    with open(log, "ab") as output:
        output.write(f"\n$ {shlex.join(map(str, words))}\n".encode())
        output.flush()
        process = subprocess.Popen([*map(str, words)], cwd=TREE, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True,
                                   env={**os.environ, **(environment or {})})
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            output.write(f"took more than {limit_s:.0f} s\n".encode())
            return None
        finally:
            if process.poll() is None:
                process.terminate()  # a lane ends with all that is in it, and removes its groups
                try:
                    process.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            sweep()


# ---- the tests ----

SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1",
              "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
PROGRAMS = ["cove", "cove-keeper", "cove-engine", "cove-js", "src/box/cove-tool", "src/box/cove-grep",
            "src/box/libbox.a", "src/base/libbase.a"]
TEST_BUILD = {"BUILD": "build", "COVE_TOOL": "build/test/src/box/cove-tool", "COVE_GREP": "build/test/src/box/cove-grep"}
NODE = "js/node_modules/.bin/node"
PASSED, FAILED, UNBUILT = "passed", "failed", "unbuilt"


class Built:
    """Builds what a step needs when its turn comes, once for each mutant."""

    def __init__(self, log):
        self.log, self.built = log, {}

    def need(self, *words, **environment):
        if words not in self.built:
            self.built[words] = run(words, BUILD_S, self.log, environment) == 0
        return self.built[words]


def unit_of(name):
    """The program of a unit test, with its arguments, as Meson would start it, and what it is built of."""
    info = TREE / "build/asan/meson-info"
    for test in json.loads((info / "intro-tests.json").read_text()):
        if test["name"] == name:
            files = {target["id"]: target["filename"]
                     for target in json.loads((info / "intro-targets.json").read_text())}
            asan = TREE / "build/asan"
            needs = [os.path.relpath(file, asan) for key in test["depends"] for file in files.get(key, [])]
            if str(test["cmd"][0]).startswith(str(asan)):
                needs.append(os.path.relpath(test["cmd"][0], asan))
            return test["cmd"], test["env"], sorted(set(needs))
    raise Fault(f"suites.toml: there is no unit test '{name}'")


def library_of():
    """The library, which only builds without test switches have by default."""
    test = TREE / "build" / "test"
    targets = json.loads((test / "meson-info" / "intro-targets.json").read_text())
    return next(os.path.relpath(target["filename"][0], test) for target in targets
                if target["name"] == "cove" and target["type"] == "shared library")


def step_build(kind, words, built):
    """Builds what a step needs; true if that works."""
    ninja = ("ninja", "-C", "build/asan", "--quiet", "-j", JOBS)
    if kind == "unit":
        return built.need(*ninja, *unit_of(words[0])[2])
    if kind == "asan-http":
        return built.need(*ninja, "tests/http-server")
    if kind == "asan-fetch":
        return built.need(*ninja, "tests/fetch-driver")
    if kind == "library":
        return built.need("ninja", "-C", "build/test", "--quiet", "-j", JOBS, "all", library_of())
    if not built.need("ninja", "-C", "build/test", "--quiet", "-j", JOBS, *PROGRAMS):
        return False
    if kind != "node" and not any(word.startswith("js/") for word in words):
        return True
    return (built.need("scripts/build-addon.sh", BUILD="build/test") and
            built.need("scripts/build-js.sh"))


PYTEST = ["/usr/bin/python3", "-m", "pytest", "-q", "-x"]
LANE, LANE_OF_USER = ["--patience", "15"], ["--user", "covetest"]
KINDS = {
    "pytest": (PYTEST, TEST_BUILD),
    "user": ([*PYTEST, "-p", "no:cacheprovider", "--basetemp=/tmp/pytest"],
             {"BUILD": str(TREE / "build"), "PYTHONPATH": f"{TREE}/tests/lib"}),
    "asan-http": (PYTEST, {**SANITIZERS, **TEST_BUILD, "HTTP_SERVER": "build/asan/tests/http-server"}),
    "asan-fetch": (PYTEST, {**SANITIZERS, **TEST_BUILD, "FETCH_DRIVER": str(TREE / "build/asan/tests/fetch-driver")}),
    "library": (PYTEST, {"BUILD": "build/test"}),
    "node": ([NODE, "--test", "--test-concurrency=2", "--test-reporter=spec"],
             {"COVE_BIN": str(TREE / "build/test/cove"), "COVE_URL": "", "COVE_API_KEY": ""}),
}


def step_run(step, limit_s, built):
    """PASSED; FAILED, also where it hangs; or UNBUILT."""
    kind, *words = shlex.split(step)
    if kind != "unit" and kind not in KINDS:
        raise Fault(f"suites.toml: a step begins with unit, {', '.join(KINDS)}; not with '{kind}'")
    if not step_build(kind, words, built):
        return UNBUILT
    if kind == "unit":
        program, environment, _ = unit_of(words[0])
        environment = {**SANITIZERS, **environment, "MALLOC_PERTURB_": "85"}
        words = []
    else:
        program, environment = KINDS[kind]
    lane = LANE_OF_USER if kind == "user" else LANE
    # A test that fails by itself now and then, or is late on a busy host, must not pass for one that finds something.
    for _ in range(2):
        if run([*program, *words], limit_s, built.log, environment, lane) == 0:
            return PASSED
    return FAILED


class Suites:
    """Which steps are for which path: those of the longest prefix."""

    def __init__(self):
        self.steps = load("suites.toml")["suites"]

    def of(self, mutant):
        prefix = max((prefix for prefix in self.steps if (mutant.path + "/").startswith(prefix + "/")), key=len,
                     default=None)
        if prefix is None:
            raise Fault(f"suites.toml: no suite is for {mutant.path}")
        return list(dict.fromkeys([*mutant.tests, *self.steps[prefix]]))


# ---- a run ----


class Results:
    """Results of mutants, by name, and of steps without a mutant."""

    def __init__(self, tree):
        self.tree = tree
        self.data = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"mutants": {}, "baseline": {}}

    def save(self):
        RESULTS.with_suffix(".new").write_text(json.dumps(self.data, indent=1, sort_keys=True))
        RESULTS.with_suffix(".new").rename(RESULTS)

    def of(self, mutant, trusts):
        known = self.data["mutants"].get(mutant.name)
        if known is None or known["digest"] != mutant.digest:
            return None
        if known["tree"] == self.tree or (trusts and known["end"] != "survived"):
            return known
        return None

    def is_broken(self, mutant):
        """Did not compile, with these very words of the source."""
        known = self.data["mutants"].get(mutant.name)
        return known is not None and known["digest"] == mutant.digest and known["end"] == "broken"

    def likely_first(self, mutant, steps):
        """Puts the step first that killed the mutant before."""
        by = self.data["mutants"].get(mutant.name, {}).get("by")
        return sorted(steps, key=lambda step: step != by)

    def keep(self, mutant, end, by, seconds):
        self.data["mutants"][mutant.name] = {"digest": mutant.digest, "tree": self.tree, "end": end, "by": by,
                                             "seconds": round(seconds, 1)}
        self.save()

    def baseline(self, step):
        known = self.data["baseline"].get(step)
        return known["seconds"] if known and known["tree"] == self.tree else None

    def keep_baseline(self, step, seconds):
        self.data["baseline"][step] = {"tree": self.tree, "seconds": round(seconds, 2)}
        self.save()


def say(text):
    print(text, flush=True)


def builds_set_up(log):
    for kind in ("test", "asan"):
        if (TREE / "build" / kind / "build.ninja").exists():
            continue
        say(f"setting up build/{kind} of the copy")
        if run(["scripts/build.sh", kind, f"build/{kind}"], BUILD_S, log, {"TARGETS": "build.ninja"}) != 0:
            raise Fault(f"the copy cannot be set up: see {log}")
    # Lanes have no network: the roots of boxes are there before.
    if run(["/usr/bin/python3", "-m", "testroot"], BUILD_S, log, {"PYTHONPATH": "tests/lib"}) != 0:
        raise Fault(f"the roots of boxes cannot be made: see {log}")


def baseline_run(step, results):
    """Without a mutant a step passes, or that it fails with one says nothing."""
    if results.baseline(step) is not None:
        return
    log = HOME / "baseline.log"
    kind, *words = shlex.split(step)
    for last in (False, True):
        built = Built(log)
        is_built = step_build(kind, words, built)
        begun = time.monotonic()
        if is_built and step_run(step, STEP_S, built) == PASSED:
            break
        if last or not is_built:
            raise Fault(f"without a mutant '{step}' fails: see {log}")
    results.keep_baseline(step, time.monotonic() - begun)
    say(f"baseline  {results.baseline(step):6.1f} s  {step}")


def mutant_try(mutant, steps, results):
    """How it ended, and by which step."""
    target = TREE / mutant.path
    original = target.read_bytes()
    text = original.decode()
    log = HOME / "logs" / f"{mutant.name}.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text(f"{mutant.path}, {mutant.function}\n- {mutant.before}\n+ {mutant.after}\n")
    built = Built(log)
    try:
        target.write_text(text[:mutant.start] + mutant.after + text[mutant.end:])
        for step in steps:
            usual = results.baseline(step)
            most = UNIT_S if step.startswith("unit ") else STEP_S
            ended = step_run(step, most if usual is None else 3 * usual + PATIENCE_S, built)
            if ended == UNBUILT:
                return "broken", step
            if ended == FAILED:
                break
        else:
            return "survived", None
    finally:
        target.write_bytes(original)
    # Each step has to have passed once without a mutant.
    baseline_run(step, results)
    return "killed", step


def chosen(arguments, rows, draw, results):
    """First those that were written by hand."""
    rooms = sorted({mutant.room for mutant in rows} | set(draw.share))
    if arguments.room is not None and arguments.room not in rooms:
        raise Fault(f"there is no room '{arguments.room}': {', '.join(rooms)}")
    wanted = [room for room in rooms if arguments.room in (None, room)]
    yield from (mutant for room in wanted for mutant in rows
                if mutant.room == room and arguments.only in (None, mutant.name))
    yield from (mutant for room in wanted for mutant in draw.of(room, results.is_broken)
                if arguments.only in (None, mutant.name))


def all_run(arguments, rows, draw, suites, results):
    killed, unknown, survivors = 0, 0, []
    again = True
    seen = set()
    log = HOME / "setup.log"
    while again:  # a drawn one that did not compile is replaced by another
        again = False
        mutants = [mutant for mutant in chosen(arguments, rows, draw, results) if mutant.name not in seen]
        wanted = [mutant for mutant in mutants if results.of(mutant, arguments.trust) is None]
        if wanted or arguments.baseline:
            builds_set_up(log)
        if arguments.baseline:
            for step in dict.fromkeys(step for mutant in mutants for step in suites.of(mutant)):
                baseline_run(step, results)
            return 0, 0, []
        for mutant in mutants:
            known = results.of(mutant, arguments.trust)
            begun = time.monotonic()
            if known is None:
                try:
                    end, by = mutant_try(mutant, results.likely_first(mutant, suites.of(mutant)), results)
                except Fault as fault:  # the others can be tried all the same
                    say(f"unknown   {mutant.room:7} {mutant.name}: {fault}")
                    seen.add(mutant.name)
                    unknown += 1
                    continue
                results.keep(mutant, end, by, time.monotonic() - begun)
                known = results.of(mutant, False)
            if known["end"] == "broken":
                if mutant.is_drawn:
                    again = True
                    continue
                say(f"unknown   {mutant.room:7} {mutant.name}: it does not compile: see {HOME}/logs/{mutant.name}.log")
                seen.add(mutant.name)
                unknown += 1
                continue
            seen.add(mutant.name)
            killed += known["end"] == "killed"
            if known["end"] == "survived":
                survivors.append(mutant)
            by = f"by {known['by']}" if known["by"] else f"{mutant.path}: {' '.join(mutant.after.split())}"
            say(f"{known['end']:8}  {known['seconds']:6.1f} s  {mutant.room:7} {mutant.name}  {by}")
    return killed, unknown, survivors


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--room")
    parser.add_argument("--only")
    parser.add_argument("--trust", action="store_true")
    parser.add_argument("--baseline", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    names = tracked()
    sources = Sources(names)
    rows, faults = rows_read(sources)
    draw, suites = Draw(sources), Suites()
    faults += draw.faults
    steps = [step for mutant in rows for step in suites.of(mutant)] + sum(suites.steps.values(), [])
    faults += sorted({f"'{step}': there is no {word}" for step in steps for word in shlex.split(step)[1:]
                      if "/" in word and not (ROOT / word).exists()})
    if faults:
        raise Fault("\n".join(faults))
    if arguments.check:
        say(f"mutants: {len(rows)} rows, {sum(draw.share.values())} drawn")
        return 0
    if os.geteuid() != 0 and not arguments.list:
        raise Fault("the tests of boxes want root: run it as root")
    HOME.mkdir(parents=True, exist_ok=True)
    results = Results(digest_of(names))
    if arguments.list:
        for mutant in chosen(arguments, rows, draw, results):
            say(f"{mutant.room:7} {mutant.name}  {mutant.path} {mutant.function}: "
                f"{' '.join(mutant.before.split())} -> {' '.join(mutant.after.split())}")
        return 0
    lock = open(HOME / ".lock", "w", encoding="ascii")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Fault(f"another run is at work in {HOME}") from None
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    copy_update(names)
    killed, unknown, survivors = all_run(arguments, rows, draw, suites, results)
    say(f"{killed} killed, {len(survivors)} survived" + (f", {unknown} unknown" if unknown else ""))
    return 1 if survivors or unknown else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Fault as fault:
        sys.exit(f"mutants: {fault}")
    except KeyboardInterrupt:
        sys.exit(130)
