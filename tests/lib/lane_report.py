"""A plugin of pytest, for scripts/test.py: it says of each test, as a line of JSON, that it starts and how it ended, and
ends a test that reaches its limit of time with the name of what it waited for.

COVE_TEST_REPORT is the file of lines, COVE_TEST_LIMIT_S the limit, COVE_TEST_DONE a file of tests that ran already."""
import json
import os
import pathlib
import signal
import time

import pytest

LIMIT_S = float(os.environ.get("COVE_TEST_LIMIT_S", "120"))
# After its limit a test has this long to clear up.
AFTERWARDS_S = 30


def waited_for(frame):
    """Returns what the innermost wait says that it is for, or else the innermost line of a test."""
    here = frame
    while here is not None:
        if here.f_code.co_name == "wait_for" and "what" in here.f_locals:
            return here.f_locals["what"]
        here = here.f_back
    while frame is not None:
        path = pathlib.Path(frame.f_code.co_filename)
        if "tests" in path.parts or "test" in path.parts:
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            text = lines[frame.f_lineno - 1].strip() if 0 < frame.f_lineno <= len(lines) else ""
            return f"{path.name}:{frame.f_lineno}: {text}"
        frame = frame.f_back
    return "something outside of the tests"


OVER_LIMIT = []  # said of the test that runs, also where it goes on


def on_limit(_number, frame):
    signal.setitimer(signal.ITIMER_REAL, AFTERWARDS_S)
    OVER_LIMIT.append(f"the test reached its limit of {LIMIT_S:g} s; it waited for {waited_for(frame)}")
    pytest.fail(OVER_LIMIT[-1])


class Report:
    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8")
        self.left_out = {}
        self.results = {}

    def say(self, **line):
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        if os.environ.get("COVE_TEST_REGISTRIES") != "1":
            far = [item for item in items if item.get_closest_marker("registry")]
            items[:] = [item for item in items if item not in far]
            config.left_out = getattr(config, "left_out", {})
            if far:
                config.left_out["it fetches from a package registry: make test-all runs it"] = len(far)
        done = os.environ.get("COVE_TEST_DONE")
        if done:
            ended = set(pathlib.Path(done).read_text(encoding="utf-8").splitlines())
            items[:] = [item for item in items if item.nodeid not in ended]

    def pytest_collection_finish(self, session):
        self.say(event="collected", tests=[[item.nodeid, item.get_closest_marker("wall") is not None]
                                           for item in session.items],
                 left_out=getattr(session.config, "left_out", {}))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        self.say(event="start", id=item.nodeid)
        started = time.monotonic()
        old = signal.signal(signal.SIGALRM, on_limit)
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
            self.say_end(item.nodeid, started)

    def say_end(self, name, started):
        """A test passed when its teardown passed, too: one that was interrupted has no report of that."""
        reached = OVER_LIMIT.copy()
        OVER_LIMIT.clear()
        reports = self.results.pop(name, {})
        bad = next((text for outcome, text in reports.values() if outcome != "passed"), None)
        if bad is None and reached:
            bad = reached[0]
        if bad is None and "teardown" not in reports:
            bad = f"it was interrupted after {', '.join(reports) or 'nothing'}"
        outcome, why = ("passed", "") if bad is None else ("failed", bad)
        self.say(event="end", id=name, outcome=outcome, why=why, seconds=round(time.monotonic() - started, 3))

    def pytest_runtest_logreport(self, report):
        """Notes each phase. A skipped test has failed, for setup installs all that tests need."""
        text = "" if report.passed else report.longreprtext or report.outcome
        self.results.setdefault(report.nodeid, {})[report.when] = (report.outcome, text)

    def pytest_collectreport(self, report):
        """A file that cannot be loaded has tests that nobody knows, and walls may be among them."""
        if report.failed:
            self.say(event="end", id=report.nodeid or "collection", outcome="failed", why=report.longreprtext, seconds=0,
                     wall=True)


def pytest_configure(config):
    path = os.environ.get("COVE_TEST_REPORT")
    if path:
        config.pluginmanager.register(Report(path), "lane-report")
