#!/usr/bin/env python3
"""Runs the tests. Each group of them has a lane of its own (scripts/lane.py), so that several run beside each other
and none sees another. A test that failed is run once more, alone, when all have ended: if it passes then, it is
listed as flaky, and more than three of those make the run red. A test with the mark `wall` has no second chance.

Things from outside the machine are made before: lanes have no network but their own.
The last line is "N passed, N failed". BUILD/tested says what was tested, and BUILD/flaky.json has each flaky test.

usage: test.py [--suite NAME]... [--rows N] [--list] [PYTEST-ARGUMENT...]
  With arguments of pytest, its suites alone run, with those arguments: test.py -k fork_bomb
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import datetime
import fcntl
import hashlib
import json
import os
import pathlib
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("BUILD", "build"))
BUILD = BUILD if BUILD.is_absolute() else TOP / BUILD
PYTEST = shlex.split(os.environ.get("PYTEST", "/usr/bin/python3 -m pytest"))
USER = "covetest"
IS_ROOT = os.geteuid() == 0
SOAK = os.environ.get("COVE_SOAK") == "1"

FLAKY_MAX = 3
STARTS_MAX = 5  # of a suite whose tests end its lane
LEFT = 90  # of lane.py, which left something
LIMIT_S = 120
# A lane that says nothing for so long is ended: a test's own limit comes before.
SILENCE_S = 300 if not SOAK else 7200


@dataclasses.dataclass
class Suite:
    name: str
    kind: str  # pytest, meson, node or lint
    what: list  # files and folders, or words for the runner
    env: dict = dataclasses.field(default_factory=dict)
    user: bool = False  # by the ordinary user
    ids: int | None = None  # so many ids has that user; as adduser gives them, if not said
    nice: int = 0  # below 0 where tests measure what the work of others would delay
    seconds: int = 60  # it took in the last run that somebody looked at: the longest begin first
    narrow: bool = True  # runs also where arguments of pytest choose tests
    outside: bool = False  # wants the network of the machine, and is run only where it is asked for
    long: bool = False  # runs with the full counts, or where it is asked for
    split: int = 1  # so many lanes share its files
    whole: str = ""  # the name of the suite that this is a part of
    unless_same: list = dataclasses.field(default_factory=list)  # files, without a change of which it need not run


def load_suites(path):
    """The table, with a row for each lane."""
    loaded = []
    for row in json.loads(path.read_text(encoding="utf-8")):
        env = {name: value.replace("BUILD/", f"{BUILD}/") for name, value in row.get("env", {}).items()}
        suite = Suite(**{**row, "env": env})
        loaded += [suite] if suite.split == 1 else parts_of(suite)
    return loaded


def node_files(suite):
    files = sorted(str(path.relative_to(TOP / "js")) for pattern in suite.what for path in (TOP / "js").glob(pattern)
                   if "world" not in path.parts)
    return files or sys.exit(f"test.py: no file is like {suite.what} of the suite {suite.name}")


def parts_of(suite):
    """Deals out the files of a suite, the large ones first, to and fro."""
    folder, *options = suite.what
    files = sorted((TOP / folder).glob("test_*.py"), key=lambda path: (-path.stat().st_size, path.name))
    hands = [[] for _ in range(suite.split)]
    for number, file in enumerate(files):
        turn, seat = divmod(number, suite.split)
        hands[seat if turn % 2 == 0 else -1 - seat].append(str(file.relative_to(TOP)))
    return [dataclasses.replace(suite, name=f"{suite.name}-{number}", whole=suite.name, what=[*sorted(hand), *options],
                                seconds=suite.seconds // suite.split) for number, hand in enumerate(hands, 1)]


def inputs_of(suite):
    """A hash of what a suite depends on that need not always run."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in suite.unless_same for path in TOP.glob(pattern)):
        digest.update(f"{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def is_same(suite):
    stamp = BUILD / "results" / f"{suite.name}.passed"
    return bool(suite.unless_same) and not SOAK and stamp.exists() and stamp.read_text() == inputs_of(suite)


@dataclasses.dataclass
class Test:
    suite: Suite
    name: str
    outcome: str  # passed, failed
    why: str = ""
    seconds: float = 0
    wall: bool = False

    @property
    def title(self):
        return f"{self.suite.name}: {self.name if len(self.name) < 200 else self.name[:160] + '...'}"


@dataclasses.dataclass
class Ended:
    """A suite, as it ended."""
    suite: Suite
    tests: list
    left_out: dict
    seconds: float
    cpu_s: float


# ---- one suite -----------------------------------------------------------------------------------

class Run:
    """The commands of one run: where they write, and what they are given."""

    def __init__(self, arguments, limit_s=LIMIT_S, silence_s=SILENCE_S, patience_s=15):
        self.arguments = arguments
        self.limit_s = limit_s
        self.silence_s = silence_s
        self.patience_s = patience_s
        # In the names of files, for the loop devices of all lanes stand in one list.
        self.mark = f"{os.getpid():x}"
        self.place = BUILD / "results"
        self.place.mkdir(parents=True, exist_ok=True)
        self.count = {}
        self.started = set()  # the programs that run
        self.lock = threading.Lock()

    def end(self):
        with self.lock:
            for process in self.started:
                process.terminate()

    def file(self, suite, end):
        """A new file, which the ordinary user may write if the suite is that user's."""
        path = self.place / f"{suite.name}.{end}"
        path.unlink(missing_ok=True)
        path.touch()
        return path

    def environment(self, suite, report, done=None):
        environment = {**os.environ, "BUILD": str(BUILD), "PYTHONPATH": str(TOP / "tests" / "lib"),
                       "COVE_TEST_LIMIT_S": str(self.limit_s), "COVE_TEST_REPORT": str(report), **suite.env}
        for name in ("COVE_URL", "COVE_API_KEY", "PYTEST_ADDOPTS"):
            environment.pop(name, None)
        if suite.kind == "node":
            for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
                environment.pop(name, None)
            environment.setdefault("COVE_BIN", str(BUILD / "cove"))
        if done:
            environment["COVE_TEST_DONE"] = str(done)
        return environment

    def command(self, suite, report, only=None):
        if suite.kind == "pytest":
            what = [only] if only else [*suite.what, *self.arguments]
            place = [f"--basetemp=/tmp/{suite.name}-{self.mark}"] if IS_ROOT else []
            return [*PYTEST, "-q", f"--rootdir={TOP}", "-c", str(TOP / "pytest.ini"), "-p", "lane_report", "-p",
                    "no:cacheprovider", *place, "--color=no", "--continue-on-collection-errors", *what]
        if suite.kind == "lint":
            return [str(TOP / "scripts" / "lint.sh"), *suite.what]
        if suite.kind == "meson":
            return ["meson", "test", "-C", str(BUILD / "asan"), "--no-rebuild", "--num-processes", "2", "--no-suite",
                    "none", *([only] if only else suite.what)]
        options = ["--test", "--test-concurrency=2", f"--test-timeout={2 * self.limit_s * 1000:.0f}",
                   f"--test-reporter={TOP / 'tests/lib/lane_report.mjs'}", f"--test-reporter-destination={report}",
                   "--test-reporter=spec", "--test-reporter-destination=stdout"]
        if only:
            file, _, name = only.partition("::")
            pattern = re.sub(r"[.*+?^${}()|\[\]\\/]", r"\\\g<0>", name)
            return ["node_modules/.bin/node", *options, f"--test-name-pattern=^{pattern}$", file]
        return ["node_modules/.bin/node", *options, *node_files(suite)]

    def in_lane(self, suite, command, report):
        if not IS_ROOT or suite.kind == "lint":
            return command
        whom = ["--user", USER] if suite.user else []
        whom += ["--host-network"] if suite.outside else []
        whom += ["--nice", str(suite.nice)] if suite.nice else []
        whom += ["--ids", str(suite.ids)] if suite.ids is not None else []
        return [str(TOP / "scripts" / "lane.py"), *whom, "--patience", str(self.patience_s), "--report", str(report),
                f"{suite.name}-{self.mark}", "--", *command]

    def execute(self, suite, only=None, done=None, end=""):
        """Runs a suite, or one test of it, to its end or until it is silent for too long. Returns the status, the
        lines that it reported, and what the lane said."""
        report = self.file(suite, f"{end}jsonl")
        lane = self.file(suite, f"{end}lane")
        log = self.place / f"{suite.name}.{end}log"
        if suite.user and IS_ROOT:
            shutil.chown(report, USER)
        if suite.kind == "meson":
            (BUILD / "asan/meson-logs/testlog.json").unlink(missing_ok=True)
        command = self.in_lane(suite, self.command(suite, report, only), lane)
        with open(log, "wb") as output:
            process = subprocess.Popen(command, cwd=TOP / "js" if suite.kind == "node" else TOP, stdout=output,
                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                       env=self.environment(suite, report, done), start_new_session=True)
        with self.lock:
            self.started.add(process)
        try:
            is_silent = self.watch(suite, process, report, log)
        finally:
            with self.lock:
                self.started.discard(process)
        lines = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
        if suite.kind == "meson":
            lines = self.meson_lines(suite)
        if suite.kind == "lint":
            lines = lint_lines(log)
        said = json.loads(lane.read_text() or "{}")
        return process.returncode, lines, said, is_silent, log

    def watch(self, suite, process, report, log):
        """Waits for the end. Returns whether it had to be ended, for it said nothing."""
        last, size = time.monotonic(), -1
        while True:
            try:
                process.wait(1)
                return False
            except subprocess.TimeoutExpired:
                pass
            now = report.stat().st_size + log.stat().st_size
            if now != size:
                last, size = time.monotonic(), now
                with self.lock:
                    self.count[suite.name] = report.read_bytes().count(b'"event": "end"')
            if time.monotonic() - last > self.silence_s and suite.kind != "lint":  # which speaks at its end
                if not IS_ROOT:
                    os.killpg(process.pid, signal.SIGTERM)
                process.terminate()
                process.wait()
                return True

    def meson_lines(self, suite):
        """Returns the tests that meson was to run, and how those ended that it noted."""
        listed = json.loads(subprocess.run(["meson", "introspect", "--tests", str(BUILD / "asan")], capture_output=True,
                                           text=True, check=True).stdout)
        kinds = {test["name"]: {name.split(":")[-1] for name in test["suite"]} for test in listed}
        lines = [{"event": "collected", "tests": [[name, "wall" in found] for name, found in kinds.items()
                                                  if suite.what[-1] in found]}]
        path = BUILD / "asan/meson-logs/testlog.json"
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            test = json.loads(line)
            name = test["name"].split(" / ")[-1]
            good = test["result"] in ("OK", "EXPECTEDFAIL")
            why = "" if good else f"{test['result']}\n{test.get('stdout', '')}\n{test.get('stderr', '')}"
            lines.append({"event": "end", "id": name, "outcome": "passed" if good else "failed", "why": why,
                          "seconds": test["duration"]})
        return lines

    def whole(self, suite):
        """All tests of a suite. One that takes the whole lane with it has failed; the others go on without it. Each
        test that was to run and did not, and each odd end, is a failure that no second run forgives."""
        started, stamp = time.monotonic(), self.place / f"{suite.name}.passed"
        inputs = inputs_of(suite)
        stamp.unlink(missing_ok=True)
        tests, walls, left_out, cpu_s, done = {}, {}, {}, 0.0, None
        for start in range(STARTS_MAX):
            status, lines, said, is_silent, log = self.execute(suite, done=done, end=f"{start}." if start else "")
            cpu_s += said.get("cpu_s", 0)
            running = None
            for line in lines:
                if line["event"] == "collected":
                    walls.update(line["tests"])
                    left_out = line.get("left_out") or left_out
                elif line["event"] == "start":
                    running = line["id"]
                elif line["event"] == "end":
                    running = None
                    if line["id"] not in tests or tests[line["id"]].outcome == "passed":
                        tests[line["id"]] = Test(suite, line["id"], line["outcome"], line["why"], line["seconds"],
                                                 walls.get(line["id"], line.get("wall", False)))
            if said.get("left"):
                tests["nothing is left"] = odd(suite, "nothing is left", "".join(
                    f"the lane was left with {name}\n" for name in said["left"]))
            if not running:
                break
            why = (f"it said nothing for {self.silence_s:g} s" if is_silent else
                   f"it ended all of its lane, with status {status}")
            tests[running] = Test(suite, running, "failed", f"{why}\n{tail(log)}", wall=walls.get(running, False))
            done = self.file(suite, "done")
            done.write_text("".join(f"{name}\n" for name in tests), encoding="utf-8")
            done.chmod(0o644)
        never = [name for name in walls if name not in tests]
        if never:
            tests["all run"] = odd(suite, "all run", f"{len(never)} tests did not run: {', '.join(never[:20])}\n{tail(log)}")
        if not tests and not (self.arguments and status == 5):
            tests["some run"] = odd(suite, "some run", f"no test ran; status {status}\n{tail(log)}")
        is_red = any(test.outcome == "failed" for test in tests.values())
        if (is_silent and not running) or status not in (0, 1, 5, LEFT) or (status not in (0, 5) and not is_red):
            tests["it ends well"] = odd(suite, "it ends well", f"it ended with status {status}" +
                                        (" after a long silence" if is_silent else "") + f"\n{tail(log)}")
        if suite.unless_same and not self.arguments and not any(test.outcome == "failed" for test in tests.values()):
            stamp.write_text(inputs)
        return Ended(suite, list(tests.values()), left_out, time.monotonic() - started, cpu_s)

    def again(self, test):
        """One test, alone. Whether it passed."""
        status, lines, said, _, _ = self.execute(test.suite, only=test.name, end="again.")
        ended = {line["id"]: line["outcome"] for line in lines if line["event"] == "end"}
        return (status == 0 and test.name in ended and not said.get("left") and
                all(outcome == "passed" for outcome in ended.values()))


def odd(suite, name, why):
    """Something that must hold of a suite as a whole, and does not."""
    return Test(suite, name, "failed", why, wall=True)


def lint_lines(log):
    """Each check is a test; nothing that it found goes away by itself."""
    text = log.read_text(encoding="utf-8", errors="replace")
    found = re.findall(r"^lint: (\w+): (clean|FAILED)", text, re.MULTILINE)
    return [{"event": "collected", "tests": [[name, True] for name, _ in found]}] + [
        {"event": "end", "id": name, "outcome": "passed" if said == "clean" else "failed", "seconds": 0,
         "why": "" if said == "clean" else text} for name, said in found]


def tail(path, count=25):
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-count:])


# ---- all of them ---------------------------------------------------------------------------------

@contextlib.contextmanager
def ended_with(pool, run):
    """An interrupt ends all that the run has started, and nothing else begins."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        run.end()
        sys.exit("test.py: interrupted")


def run_all(run, chosen, rows, say):
    """The longest first, `rows` beside each other."""
    ended = []
    known = read_json(BUILD / "seconds.json", {})
    queue = sorted(chosen, key=lambda suite: -known.get(suite.name, suite.seconds))
    with concurrent.futures.ThreadPoolExecutor(rows) as pool, ended_with(pool, run):
        todo = {pool.submit(run.whole, suite): suite for suite in queue}
        while todo:
            done, _ = concurrent.futures.wait(todo, 30, concurrent.futures.FIRST_COMPLETED)
            for future in done:
                suite = todo.pop(future)
                one = outcome_of(future, suite)
                ended.append(one)
                failed = [test for test in one.tests if test.outcome == "failed"]
                say(f"{one.suite.name}: {len(one.tests) - len(failed)} passed" +
                    (f", {len(failed)} FAILED" if failed else "") + f" in {one.seconds:.0f} s")
                for test in failed:
                    say(f"  failed: {test.title}")
                known[one.suite.name] = round(one.seconds)
            if not done:
                with run.lock:
                    counts = dict(run.count)
                going = [f"{suite.name} {counts.get(suite.name, 0)}" for future, suite in todo.items() if future.running()]
                say("  running: " + ", ".join(going))
    if not run.arguments:
        (BUILD / "seconds.json").write_text(json.dumps(known, indent=1))
    return ended


def outcome_of(future, suite):
    try:
        return future.result()
    except (OSError, LookupError, ValueError, subprocess.SubprocessError) as error:
        return Ended(suite, [odd(suite, "it can be run", f"{type(error).__name__}: {error}")], {}, 0, 0)


def read_json(path, default):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return default


def run_again(run, failed, say):
    """The flaky ones of those that failed; each is run once, alone, until the run is red for certain."""
    flaky = []
    for test in sorted(failed, key=lambda test: not test.wall):
        if test.wall:
            say("a wall has failed; nothing is run again")
            break
        say(f"once more, alone: {test.title}")
        if not run.again(test):
            break
        flaky.append(test)
        if len(flaky) > FLAKY_MAX:
            break
    return flaky


def keep_flaky(flaky, commit):
    path = BUILD / "flaky.json"
    kept = read_json(path, [])
    kept += [{"test": test.title, "commit": commit, "when": now(), "why": test.why} for test in flaky]
    path.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return {test.title: sum(one["test"] == test.title for one in kept) for test in flaky}


def make_user():
    """The ordinary user of the tests, who stays."""
    try:
        pwd.getpwnam(USER)
    except KeyError:
        print(f"test.py: making the user {USER}, who stays")
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", USER], check=True)


def hold_alone():
    """Two runs would write to the same files."""
    BUILD.mkdir(parents=True, exist_ok=True)
    held = open(BUILD / ".test.lock", "w", encoding="ascii")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"test.py: another run uses {BUILD}; wait for its end, or set BUILD to another directory")
    return held


def copy_for_all():
    """A copy of the clone, where its files are not everybody's to read, as with a umask of 077; else None."""
    if all(path.stat().st_mode & 5 == 5 for path in (
            TOP, TOP / "tests" / "lib", TOP / "scripts" / "lane.py", BUILD / "cove") if path.exists()):
        return None
    copy = BUILD / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    left_out = [".git", "js/node_modules", "*.p", *(f"{BUILD.relative_to(TOP)}/{name}" for name in (
        "bench", "copy", "fuzz", "lanes", "lint", "mutants", "results", "vm"))]
    packed = subprocess.Popen(["tar", "-C", TOP, "-c", *(f"--exclude=./{name}" if "/" in name or name[0] == "." else
                                                         f"--exclude={name}" for name in left_out), "."],
                              stdout=subprocess.PIPE)
    subprocess.run(["tar", "-C", copy, "-x"], stdin=packed.stdout, check=True)
    if packed.wait() != 0:
        sys.exit(f"test.py: {TOP} could not be copied to {copy}")
    subprocess.run(["chmod", "-R", "a+rX", copy], check=True)
    return copy


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def commit_of():
    if not shutil.which("git"):
        return "none"

    def git(*words):
        return subprocess.run(["git", *words], cwd=TOP, capture_output=True, text=True, check=False)
    head = git("rev-parse", "HEAD").stdout.strip() or "none"
    return head + ("+changes" if git("status", "--porcelain").stdout.strip() else "")


def report(ended, flaky, commit, say):
    """Says all that there is to know of the run; the last line counts."""
    tests = [test for one in ended for test in one.tests]
    failed = [test for test in tests if test.outcome == "failed" and test not in flaky]
    say("")
    for test in failed:
        say(f"==== FAILED {test.title}" + ("; it is a wall, which is not tried a second time" if test.wall else "") +
            f"\n{test.why}\n")
    if flaky:
        times = keep_flaky(flaky, commit)
        for test in flaky:
            say(f"==== flaky: {test.title}: it failed, and passed alone" +
                (f"; {times[test.title]} times by now" if times[test.title] > 1 else "") + f"\n{test.why}\n")
    say(f"{'suite':<18}{'tests':>7}{'minutes':>9}{'CPU min':>9}")
    for one in sorted(ended, key=lambda one: -one.seconds):
        say(f"{one.suite.name:<18}{len(one.tests):>7}{one.seconds / 60:>9.1f}{one.cpu_s / 60:>9.1f}")
    reasons = {}
    for one in ended:
        for reason, count in one.left_out.items():
            reasons[reason] = reasons.get(reason, 0) + count
    if reasons:
        say(f"not run in some place: {sum(reasons.values())}")
        for reason, count in sorted(reasons.items(), key=lambda row: -row[1]):
            say(f"  {count:>4}  {reason}")
    for test in failed:
        say(f"failed: {test.title}")
    for test in flaky:
        say(f"flaky: {test.title}")
    if len(flaky) > FLAKY_MAX:
        say(f"{len(flaky)} flaky tests are more than {FLAKY_MAX}: they count as failed")
        failed += flaky
    return len(tests) - len(failed), len(failed)


def main():
    parser = argparse.ArgumentParser(description="runs the tests", epilog="what is not an option of this is pytest's")
    parser.add_argument("--suite", action="append", help="this one alone; may be repeated")
    parser.add_argument("--suites", type=pathlib.Path, default=TOP / "tests" / "suites.json", help="another table of suites")
    # Tests wait for a third of their time. More than eight beside each other are late for their own limits.
    parser.add_argument("--rows", type=int, default=int(os.environ.get("ROWS", min(8, 2 * len(os.sched_getaffinity(0))))),
                        help="lanes beside each other; two for each processor, if not said")
    parser.add_argument("--limit", type=float, default=LIMIT_S if not SOAK else 7200, help="seconds that a test may take")
    parser.add_argument("--silence", type=float, default=SILENCE_S, help="seconds after which a silent lane is ended")
    parser.add_argument("--patience", type=float, default=15, help="seconds that what a suite leaves has to go")
    parser.add_argument("--list", action="store_true", help="the names of the suites")
    options, arguments = parser.parse_known_args()
    arguments = [word for word in arguments if word != "--"]
    if any("/" in word and (TOP / word.partition("::")[0]).exists() for word in arguments):
        parser.error("a suite has its files; choose suites by --suite, and tests by -k")
    table = load_suites(options.suites)
    if options.list:
        print("\n".join(suite.name for suite in table))
        return 0
    def is_asked_for(suite):
        if not options.suite:
            return not suite.outside and (SOAK or not suite.long)
        return suite.name in options.suite or suite.whole in options.suite

    unknown = set(options.suite or ()) - {name for suite in table for name in (suite.name, suite.whole)}
    if unknown:
        parser.error(f"there is no suite {' or '.join(sorted(unknown))}; --list names them")
    chosen = [suite for suite in table if is_asked_for(suite)]
    chosen = [suite for suite in chosen if IS_ROOT or not suite.user]
    same = [suite for suite in chosen if not options.suite and is_same(suite)]
    chosen = [suite for suite in chosen if suite not in same]
    if arguments:
        chosen = [suite for suite in chosen if suite.kind == "pytest" and suite.narrow]
    if not IS_ROOT:
        print("as an ordinary user: no lanes, one suite after the other, and what is root's is left out")
        options.rows = 1

    def say(text):
        print(text, flush=True)

    alone = hold_alone()
    shutil.rmtree(BUILD / "lanes", ignore_errors=True)  # of runs that were killed
    started, commit = time.monotonic(), commit_of()
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=1:strict_string_checks=1")
    os.environ.setdefault("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")
    if any(suite.user for suite in chosen):
        make_user()
    copy = copy_for_all() if IS_ROOT else None
    if copy:
        say("the files of this clone are their owner's alone: the tests run from a copy that all may read")
        os.environ["COVE_TEST_COPY"] = str(copy)
    run = Run(arguments, options.limit, options.silence, options.patience)
    say(f"{len(chosen)} suites in {options.rows} rows; what they print is in {run.place}")
    for suite in same:
        say(f"{suite.name}: it passed, and nothing that it depends on is new")
    ended = run_all(run, chosen, options.rows, say)
    flaky = run_again(run, [test for one in ended for test in one.tests if test.outcome == "failed"], say)
    passed, failed = report(ended, flaky, commit, say)
    minutes = (time.monotonic() - started) / 60
    say(f"{minutes:.1f} minutes, {sum(one.cpu_s for one in ended) / 60:.1f} of CPU in the lanes")
    if not (options.suite or arguments):
        (BUILD / "tested").write_text(f"{commit} {minutes:.1f} minutes, {'failed' if failed else 'passed'}: "
                                      f"{passed} passed, {failed} failed, {len(flaky)} flaky\n", encoding="utf-8")
    alone.close()
    say(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
