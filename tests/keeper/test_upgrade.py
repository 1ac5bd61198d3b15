"""Upgrade in place: SIGHUP, and the program that lies at the keeper's path takes the process over, with all
boxes. Commands run on, clients that connect meanwhile wait, nothing grows; what cannot take over is
refused and all goes on; boxes of an init that is too old are ended, and nothing else."""
import contextlib
import http.server
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import threading
import time

import pytest

import harness
import keepers
import serving
from sandboxes import create as make, path_of, run, start

IS_ROOT = harness.EXPECT.is_root
SEEDS = harness.ROOT / "tests" / "fuzz" / "corpus" / "hand"
KEPT = {"disk_kind": "persistent"}
COLD = {"mounts": [{"name": "here", "target": "/mnt/here"}]}  # no zygote makes such a one
BOXES = "[boxes]\nmemory = 256M\ndisk = 64M\n"


class Installed(serving.Serve):
    """One whose programs are its own, to be replaced."""

    def __init__(self, directory, config=None, options=(), pool=1, clock=False):
        config = config or f"{BOXES}pool = {pool}\n[mounts]\nhere = {directory}\n"
        super().__init__(directory, config, options, clock)
        self.place = directory / "installed"
        self.install(self.place)
        self.command[0] = self.place / "cove"

    @staticmethod
    def install(place):
        place.mkdir(exist_ok=True)
        for name in ("cove", "cove-keeper", "cove-engine"):
            new = place / f".{name}"
            shutil.copy2(harness.COVE.with_name(name), new)
            new.rename(place / name)

    def replace(self, line, place=None):
        """The keeper's program is a script, which may become the real one. It is that from then on."""
        place = place or self.place
        real = self.directory / ("real" if place == self.place else "next")
        self.install(real)
        script = place / ".script"
        script.write_text(f"#!/bin/sh\nreal={real}/cove-keeper\n{line}\n", encoding="utf-8")
        script.chmod(0o755)
        script.rename(place / "cove-keeper")

    def count(self, code):
        return len(re.findall(rf" keeper {code} ", self.said()))

    def ask(self):
        self.process.send_signal(signal.SIGHUP)

    def upgrade(self):
        before, old = self.count("upgraded"), self.engine_pid()
        self.ask()
        harness.wait_for(lambda: self.count("upgraded") > before or self.process.poll() is not None,
                         60 * harness.PATIENCE, "the upgrade")
        self.wait_next_engine(old)

    def refused(self, passes=False):
        """What the log says of it, once the time for its answer has passed."""
        before = self.count("upgrade_refused")
        self.ask()
        if passes:
            harness.wait_for((self.directory / "asked").exists, what="the question")
            self.clock.advance(10, awaits=("keeper",))
        harness.wait_for(lambda: self.count("upgrade_refused") > before, 60 * harness.PATIENCE,
                         "the refusal")
        return self.said()


class Json(Installed):
    """The same with a log of JSON."""

    def count(self, code):
        return len(re.findall(rf'"code":\s*"{code}"', self.said()))


@pytest.fixture
def serve(tmp_path):
    with Installed(tmp_path, clock=True) as started:
        yield started


def output(client, process):
    answer = client.get(f"{process}/output", query={"stream": "stdout"})
    assert answer.status == 200, answer
    return answer.bytes.decode()


def wait_end(client, process):
    def ended():
        view = client.get(process).json
        return view if view["state"] not in ("starting", "running") else None
    return harness.wait_for(ended, 60 * harness.PATIENCE, "the end of a command")


def asked(serve, method, path, body=None):
    """Until the engine takes it: an answer that did not come, or "try again", is asked again."""
    for _ in range(600):
        with contextlib.suppress(OSError, serving.http.client.HTTPException):
            with serve.client() as client:
                answer = client.ask(method, path, body)
                if answer.status != 503:
                    return answer
        time.sleep(0.05 * harness.PATIENCE)
    raise AssertionError(f"{method} {path} was never answered")


# ---- what lives on -----------------------------------------------------------------------------

def test_commands_run_on_and_no_byte_of_their_output_is_lost(serve):
    lines = harness.scaled(30000)
    with serve.client() as client:
        paths = [path_of(make(client, **fields)) for fields in ({}, COLD, KEPT)]
        fast = f"i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo $i; done"
        processes = [start(client, path, fast) for path in paths for _ in range(2)]
        slow = start(client, paths[0], "for i in 1 2 3 4 5 6; do sleep 0.5; echo $i; done; exit 7")
    over, failures = threading.Event(), []

    def connect():
        """Whoever connects meanwhile waits, and is never turned away."""
        while not over.is_set():
            with serve.client() as other:
                try:
                    answer = other.get("/v1/sandboxes")
                except (ConnectionResetError, BrokenPipeError, serving.http.client.HTTPException):
                    continue  # it was on its way to the engine that ended
                except OSError as error:
                    failures.append(error)
                    return
                if answer.status != 200 and answer.code not in ("draining", "not_ready"):
                    failures.append(answer)

    threads = [threading.Thread(target=connect) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        serve.install(serve.place)  # the same, in new files
        serve.upgrade()
    over.set()
    for thread in threads:
        thread.join(60 * harness.PATIENCE)
        assert not thread.is_alive()
    assert not failures, failures
    with serve.client() as client:
        wanted = "".join(f"{i}\n" for i in range(1, lines + 1))
        for process in processes:
            assert wait_end(client, process)["exit_code"] == 0
            assert output(client, process) == wanted
        assert wait_end(client, slow)["exit_code"] == 7
        assert output(client, slow) == "1\n2\n3\n4\n5\n6\n"
        assert run(client, paths[0], "echo on")["stdout"] == "on\n"


def test_sandboxes_that_come_and_go_meanwhile_leave_nothing(serve):
    over, rounds = threading.Event(), []

    def churn(fields):
        while not over.is_set():
            made = asked(serve, "POST", "/v1/sandboxes",
                         {"privileges": "plain", "disk_kind": "ephemeral", **fields})
            assert made.status == 201, made
            gone = asked(serve, "DELETE", path_of(made.json))
            assert gone.status in (200, 204, 404, 410), gone
            rounds.append(1)

    threads = [threading.Thread(target=churn, args=[fields]) for fields in ({}, COLD, KEPT)]
    for thread in threads:
        thread.start()
    for _ in range(harness.scaled(6, 2)):
        serve.upgrade()
    over.set()
    for thread in threads:
        thread.join(120 * harness.PATIENCE)
        assert not thread.is_alive()
    assert rounds
    # An answer that was lost with its engine was asked again, so there may be some that nobody asked for.
    for sandbox in asked(serve, "GET", "/v1/sandboxes").json["sandboxes"]:
        asked(serve, "DELETE", path_of(sandbox))


def holdings(serve):
    """What the keeper has: fds by what they are, and children by name."""
    pid = serve.process.pid
    fds = []
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            fds.append(re.sub(r"\d+", "N", os.readlink(entry.path)))
    return sorted(fds), sorted(harness.status_of(child).get("Name", "") for child in harness.children_of(pid))


def children(serve, command):
    """Those that are called so, with all that they were given."""
    found = []
    for pid in harness.children_of(serve.process.pid):
        with contextlib.suppress(OSError):  # it went meanwhile
            if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() == command:
                found.append(pid)
    return found


def settled(serve, own):
    """What it has when it rests, and its groups, whose names begin as `own`."""
    return harness.at_rest(lambda: (holdings(serve), {path for path in harness.cgroups() if own in path}))


def own_group(serve, command):
    """What the names of this keeper's groups begin with."""
    for pid in children(serve, command):
        found = re.search(r"/(cove-k?[0-9a-f]+)", pathlib.Path(f"/proc/{pid}/cgroup").read_text())
        return found[1] if found else "no cgroup here"
    return None


def test_twenty_upgrades_leave_as_much_as_one(serve):
    with serve.client() as client:
        path = path_of(make(client, **KEPT))
        process = start(client, path, "exec sleep 4711")
        run(client, path, "echo before >/tmp/f")
    own = harness.wait_for(lambda: own_group(serve, b"sleep\x004711\0"), what="the command")
    serve.upgrade()
    (fds, names), groups = settled(serve, own)
    for _ in range(harness.scaled(20, 3)):
        serve.upgrade()
    (fds_then, names_then), groups_then = settled(serve, own)
    assert fds_then == fds
    assert names_then == names
    assert len(groups_then) == len(groups)
    assert groups or not harness.EXPECT.has_cgroup
    with serve.client() as client:
        assert client.get(process).json["state"] == "running"
        assert run(client, path, "cat /tmp/f")["stdout"] == "before\n"


def test_a_disk_that_is_kept_is_as_it_was(serve):
    with serve.client() as client:
        path = path_of(make(client, **KEPT))
        run(client, path, "echo kept >/tmp/f; sync")
    serve.upgrade()
    with serve.client() as client:
        assert run(client, path, "cat /tmp/f")["stdout"] == "kept\n"
        assert client.post(f"{path}/stop").status == 200
        assert client.post(f"{path}/start").status == 200
        assert run(client, path, "cat /tmp/f")["stdout"] == "kept\n"
        assert client.delete(path).status in (200, 204)


class Envious(threading.Thread):
    """Would have those ids, if it could have their locks only for a moment."""

    def __init__(self, places):
        super().__init__()
        self.over, self.got, self.tries, self.places = threading.Event(), [], 0, places

    def run(self):
        with keepers.open_ids_lock() as file:
            while not self.over.is_set():
                for place in self.places:
                    if keepers.is_free(file, place):
                        self.got.append(place)
                    self.tries += 1

    def __enter__(self):
        if self.places:
            self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        if self.places:
            self.join()


def test_nobody_gets_the_ids_of_disks_meanwhile_and_their_files_are_there(serve):
    def outer_id(client, path):
        return run(client, path, "cat /proc/self/uid_map")["stdout"].split()[1]

    with serve.client() as client:
        running, stopped = (path_of(make(client, **KEPT)) for _ in range(2))
        for path in (running, stopped):
            run(client, path, f"echo of {path} >/tmp/f; sync")
        before = [outer_id(client, path) for path in (running, stopped)]
        process = start(client, running, "exec sleep 4711")
        assert client.post(f"{stopped}/stop").status == 200
        # Those of the pool, which the next engine does not want, are nobody's to wait for.
        places = [place for first in keepers.ids_of_disks(serve.data) for place in first
                  if not IS_ROOT and str(first[0]) in before]
    assert IS_ROOT or harness.EXPECT.ids == "single" or len(places) == 4
    with Envious(places) as envious:
        for _ in range(3):
            serve.upgrade()
    assert not envious.got and (envious.tries > 100 or not places)
    assert "disk_ids" not in serve.said()
    with serve.client() as client:
        assert client.get(process).json["state"] == "running"
        assert client.post(f"{stopped}/start").status == 200
        assert client.post(f"{running}/stop").status == 200
        assert client.post(f"{running}/start").status == 200
        for path in (running, stopped):
            assert run(client, path, "cat /tmp/f")["stdout"] == f"of {path}\n"
        assert IS_ROOT or [outer_id(client, path) for path in (running, stopped)] == before
        # What is removed is somebody else's again, though another program locked it.
        for path in (running, stopped):
            assert client.delete(path).status == 204
    if places:
        with Envious(places) as envious:
            harness.wait_for(lambda: set(envious.got) == set(places), 30 * harness.PATIENCE,
                             "ids that are free")


def test_the_log_stays_json_and_the_collector_gets_the_headers(tmp_path):
    seen = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(self.headers["X-Team"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    headers = tmp_path / "headers"
    headers.write_text("X-Team: hunter2-one\n")
    headers.chmod(0o600)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        config = (f"{BOXES}[telemetry]\notlp_headers_file = {headers}\n"
                  f"otlp_endpoint = http://127.0.0.1:{collector.server_address[1]}/\n")
        with Json(tmp_path, config, ["--log-format", "json"]) as serve:
            for team in ("hunter2-one", "hunter2-two"):
                headers.write_text(f"X-Team: {team}\n")
                serve.upgrade()
                seen.clear()
                with serve.client() as client:
                    assert client.get("/v1/sandboxes").status == 200
                harness.wait_for(lambda: team in seen, 30 * harness.PATIENCE, "a span")
            # Others may read it now: that is refused before anything ends, and the old one holds.
            headers.chmod(0o644)
            assert "otlp_headers_file" in serve.refused()
            said = serve.said()
        collector.shutdown()
    assert "hunter2" not in said
    for line in said.splitlines():
        assert "message" in json.loads(line) or "text" in json.loads(line), line


def test_a_keeper_that_is_killed_after_an_upgrade_leaves_nothing(tmp_path):
    serve = Installed(tmp_path)
    with serve:
        with serve.client() as client:
            for fields in ({}, COLD, KEPT):
                start(client, path_of(make(client, **fields)), "sleep 4711")
        serve.upgrade()
        with serve.client() as client:
            make(client)
        serve.process.kill()
        serve.process.wait(10)
        harness.check_nothing_left(serve.before, 60 * harness.PATIENCE)


def test_a_private_engine_is_upgraded_and_not_ended(tmp_path):
    with Installed(tmp_path, options=["--private"]) as serve:
        with serve.client() as client:
            path = path_of(make(client))
        serve.upgrade()
        with serve.client() as client:
            assert run(client, path, "echo on")["stdout"] == "on\n"
        # Of its own accord it ends as here: in good order, and nothing is wrong with that.
        os.kill(serve.engine_pid(), signal.SIGTERM)
        assert serve.process.wait(60 * harness.PATIENCE) == 0
    assert " warn " not in serve.said()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_end_in_good_order_warns_of_nothing(tmp_path, number):
    with Installed(tmp_path) as serve:
        with serve.client() as client:
            make(client)
        serve.upgrade()
        serve.process.send_signal(number)
        assert serve.process.wait(60 * harness.PATIENCE) == 0
    assert " warn " not in serve.said()


def test_a_service_manager_hears_when_it_begins_and_when_it_is_done(tmp_path, monkeypatch):
    def heard(manager, what):
        seen = []
        while what not in (seen := seen + [manager.recv(200)])[-1]:
            pass
        return seen

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30 * harness.PATIENCE)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with Installed(tmp_path) as serve:
            heard(manager, b"READY=1")
            serve.upgrade()
            reloading = heard(manager, b"READY=1")
            assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", reloading[0]), reloading
            serve.replace("exit 1")
            serve.refused()
            assert heard(manager, b"READY=1")[0].startswith(b"RELOADING=1")


def test_zygotes_of_another_build_make_no_more_boxes(serve):
    def zygotes():
        return children(serve, b"cove-zygote\0")

    with serve.client() as client:
        path = path_of(make(client))
        # A child of one is called like it for a moment.
        old = harness.wait_for(lambda: len(found := zygotes()) == 1 and found, what="a zygote")
    serve.upgrade()
    with serve.client() as client:
        other = path_of(make(client))
        # The same programs.
        harness.wait_for(lambda: zygotes() == old, what="the same zygotes")
        client.delete(other)
    serve.replace('COVE_TEST_AHEAD=1 exec "$real" "$@"')
    serve.upgrade()
    with serve.client() as client:
        other = path_of(make(client))
        harness.wait_for(lambda: len(zygotes()) == 2 and set(old) < set(zygotes()), what="a second one")
        assert run(client, path, "echo on")["stdout"] == "on\n"
        client.delete(path)
        harness.wait_for(lambda: not set(old) & set(zygotes()), what="the end of the old zygote")
        assert run(client, other, "echo on")["stdout"] == "on\n"


def test_zygotes_of_another_build_that_have_no_boxes_end(tmp_path):
    with Installed(tmp_path, pool=0) as serve:
        with serve.client() as client:
            client.delete(path_of(make(client)))
        old = children(serve, b"cove-zygote\0")
        assert old
        serve.replace('COVE_TEST_AHEAD=1 exec "$real" "$@"')
        serve.upgrade()
        harness.wait_for(lambda: not set(old) & set(children(serve, b"cove-zygote\0")),
                         what="the end of the old zygote")


def test_the_hand_over_is_of_the_format_that_the_fuzzer_knows(tmp_path):
    """COVE_SEEDS names a directory, where root gets new ones."""
    found = tmp_path / "found"
    with Installed(tmp_path, pool=0) as serve:
        # The first upgrade runs the script, the second one is of the program that it became.
        serve.replace(f'[ -z "$COVE_HANDOVER" ] || cat "/proc/self/fd/${{COVE_HANDOVER#*:}}" >{found}; '
                      'exec "$real" "$@"')
        for name in ("none", "boxes"):
            if name == "boxes":
                with serve.client() as client:
                    for fields in (KEPT, {}, {"privileges": "system"}, COLD, COLD):
                        make(client, **fields)
            serve.upgrade()
            if "COVE_SEEDS" in os.environ:
                shutil.copy(found, pathlib.Path(os.environ["COVE_SEEDS"]) / name)
            assert found.read_bytes()[:20] == (SEEDS / name).read_bytes()[:20]


def test_mounts_of_before_are_unmounted_after_it(tmp_path):
    """Those of the start and those that came later; and others come, where no set-id file can be left as where one can."""
    one = {"name": "here", "target": "/later", "read_only": True}
    with Installed(tmp_path) as serve:
        with serve.client() as client:
            paths = [path_of(make(client, **fields)) for fields in ({}, COLD)]
            for path in paths:
                assert client.post(f"{path}/mounts", one).status == 200
        serve.upgrade()
        with serve.client() as client:
            for path in paths:
                assert client.delete(f"{path}/mounts", query={"target": "/later"}).status == 204
                assert run(client, path, "ls -A /later")["stdout"] == ""
                assert client.post(f"{path}/mounts", one).status == 200
                assert "installed" in run(client, path, "ls /later")["stdout"]
            written = {"name": "here", "target": "/written"}
            assert client.post(f"{paths[0]}/mounts", written).code == "mount_refused"
            assert client.post(f"{paths[1]}/mounts", written).status == 200
            assert client.delete(f"{paths[1]}/mounts", query={"target": "/mnt/here"}).status == 204


# ---- what is refused ---------------------------------------------------------------------------

def break_engine(serve):
    serve.replace('exec "$real" "$@"')
    (serve.directory / "real" / "cove-engine").write_bytes(b"\x7fELF of another build")


def break_config(serve):
    serve.config.write_text("[boxes]\npool = many\n[serve]\nno_such_line = 1\n", encoding="utf-8")


def add_line(serve, line):
    text = serve.config.read_text(encoding="utf-8")
    serve.config.write_text(f"{text}{line}\n", encoding="utf-8")


def lose_library(serve):
    serve.replace('exec "$real" "$@"')
    lose_libuv(serve.directory / "real")


def lose_libuv(place):
    """As where no package has it."""
    engine = place / "cove-engine"
    engine.write_bytes(engine.read_bytes().replace(b"libuv.so.1\0", b"libno.so.1\0"))


def configured(text):
    return lambda serve: serve.config.write_text(text, encoding="utf-8")


BROKEN = {
    "it exits": (lambda serve: serve.replace("exit 1"), "cannot take over"),
    "it hangs": (lambda serve: serve.replace(f"touch {serve.directory}/asked; sleep 4711 & sleep 4711"),
                 "has not said in time"),
    "it is killed": (lambda serve: serve.replace("kill -9 $$"), "has not said in time"),
    "another format": (lambda serve: serve.replace('exec "$real" --can-take 4711'), "other_format"),
    "what lives on": (lambda serve: serve.replace(
        'for last; do :; done; exec "$real" --can-take "${last%:*}:0"'), "bad_handover"),
    "no number": (lambda serve: serve.replace('exec "$real" --can-take x'), "other_format"),
    "another engine": (break_engine, "other_build"),
    "it is not there": (lambda serve: (serve.place / "cove-keeper").unlink(), "is not there"),
    "it may not be executed": (lambda serve: (serve.place / "cove-keeper").chmod(0o644),
                               "Permission denied"),
    "a configuration that is wrong": (break_config, "no_such_line"),
    "a value that only the engine knows": (configured("[boxes]\nmemory = lots\n"),
                                           'cove.conf:2: memory: "lots" is not '),
    "a policy": (configured("[boxes]\n\ndefault_network = moon\n"), "cove.conf:3: default_network: "),
    "a proxy": (configured("[network]\nproxy = ftp://host:1\n"), "cove.conf:2: proxy: "),
    "resolvers": (configured("[network]\nresolvers = 127.0.0.1,moon\n"),
                  'cove.conf:2: resolvers: "moon" is no address of a resolver'),
    "two values that do not fit": (configured("[boxes]\nmemory = 2G\nmost_memory = 1G\n"),
                                   "cove.conf: [boxes] memory is 2147483648, which is more than most_memory"),
    "an address": (configured("[serve]\nlisten = moon:1\n"), "cove.conf:2: listen: "),
    "a library that is missing": (lose_library, "libno.so.1: cannot open shared object file"),
    "a name that is taken": (lambda serve: add_line(serve, "[roots]\nhost = /"), "name_conflict"),
    "a name that is there twice": (lambda serve: add_line(serve, "here = /"), "name_conflict"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_take_over_is_refused_and_all_goes_on(serve, name):
    change, why = BROKEN[name]
    with serve.client() as client:
        path = path_of(make(client))
        process = start(client, path, "sleep 4711")
    engine, usual = serve.engine_pid(), serve.config.read_text(encoding="utf-8")
    change(serve)
    assert why in serve.refused(passes=name == "it hangs")
    assert serve.engine_pid() == engine
    with serve.client() as client:
        assert client.get(process).json["state"] == "running"
        assert run(client, path, "echo on")["stdout"] == "on\n"
    serve.config.write_text(usual, encoding="utf-8")
    serve.install(serve.place)
    serve.upgrade()
    with serve.client() as client:
        assert client.get(process).json["state"] == "running"
    assert serve.engine_pid() != engine


def test_a_program_that_lied_ends_with_all_boxes_and_leaves_nothing(tmp_path):
    """Nothing can be given back: the janitor and the guards see to it."""
    for line in ('[ "${*%--can-take*}" = "$*" ] || exec "$real" "$@"; exit 1',
                 # It reads another hand-over than was written.
                 '[ -z "$COVE_HANDOVER" ] || export COVE_HANDOVER=$$:2; exec "$real" "$@"',
                 '[ -z "$COVE_HANDOVER" ] || export COVE_HANDOVER=$$:0; '
                 '[ -z "$COVE_HANDOVER" ] || exec "$real" --no-such-option; exec "$real" "$@"'):
        with Installed(tmp_path) as serve:
            with serve.client() as client:
                for fields in ({}, COLD, KEPT):
                    start(client, path_of(make(client, **fields)), "sleep 4711")
            serve.replace(line)
            serve.ask()
            assert serve.process.wait(60 * harness.PATIENCE) != 0
            harness.check_nothing_left(serve.before, 60 * harness.PATIENCE)


def test_what_is_changed_while_it_is_asked_is_asked_again(serve):
    """The second SIGHUP counts: the first program would have been taken."""
    marks = serve.directory / "marks"
    serve.replace(f'echo asked >>{marks}; [ -e {marks}.go ] || sleep 4711; exec "$real" "$@"')
    serve.ask()
    harness.wait_for(lambda: marks.exists(), 20 * harness.PATIENCE, "the first question")
    serve.replace("exit 1")
    assert "cannot take over" in serve.refused()


@pytest.mark.parametrize("line,why", [("no_such_line = 1", 'no "no_such_line"'),
                                      ("allow_level = none", "none is no level"),
                                      ("hosts = a,,b", "has an empty item")])
def test_a_configuration_that_turns_bad_after_the_question_is_as_it_was(serve, line, why):
    with serve.client() as client:
        path = path_of(make(client, **COLD))
    usual, bad = serve.config.read_text(encoding="utf-8"), serve.directory / "bad"
    bad.write_text(f"{usual}[serve]\n{line}\n", encoding="utf-8")
    serve.replace(f'case "$*" in *--can-take*) "$real" "$@"; said=$?; cp {bad} {serve.config}; '
                  'exit $said; esac; exec "$real" "$@"')
    serve.upgrade()
    assert why in serve.said() and "what was read before holds on" in serve.said()
    for _ in range(2):
        with serve.client() as client:
            assert run(client, path, "echo on")["stdout"] == "on\n"
            for fields in ({}, COLD):
                assert run(client, path_of(make(client, **fields)), "echo new")["stdout"] == "new\n"
        assert "cannot take over" in serve.refused()
        serve.config.write_text(usual, encoding="utf-8")
        serve.upgrade()
        serve.config.write_text(f"{usual}[serve]\n{line}\n", encoding="utf-8")


def test_a_name_that_was_registered_is_not_taken_by_a_reload(serve):
    place = serve.directory / "registered"
    place.mkdir()
    environment = {**os.environ, "COVE_URL": f"unix:{serve.socket}"}
    harness.cove("mount", "add", "mine", place, binary=serve.place / "cove", env=environment)
    usual = serve.config.read_text(encoding="utf-8")
    add_line(serve, f"mine = {place}")
    assert "name_conflict" in serve.refused()
    serve.config.write_text(usual, encoding="utf-8")
    serve.upgrade()


def test_signals_in_any_order_end_well(serve):
    """SIGHUP at every moment of an upgrade, engines that die in the middle of it, and SIGTERM at last."""
    with serve.client() as client:
        path = path_of(make(client))
        process = start(client, path, "sleep 4711")
    chance = random.Random(4711)
    for _ in range(harness.scaled(60, 6)):
        serve.ask()
        time.sleep(chance.uniform(0, 0.05))
        engine = serve.engine_pid() if chance.random() < 0.3 else None
        with contextlib.suppress(ProcessLookupError):
            if engine is not None:
                os.kill(engine, signal.SIGKILL)
    serve.upgrade()
    # The last signal may be one to the next keeper, which then is replaced once more.
    assert asked(serve, "GET", process).json["state"] == "running"
    assert asked(serve, "POST", f"{path}/exec", {"command": "echo on"}).json["stdout"] == "on\n"
    serve.replace("sleep 4711 & sleep 4711")
    serve.ask()  # and its end comes while it waits for that


# ---- names -------------------------------------------------------------------------------------

def test_names_of_the_configuration_come_change_and_go(tmp_path):
    places = [tmp_path / name for name in ("one", "two", "three")]
    for place in places:
        place.mkdir()
        (place / "note").write_text(f"{place.name}\n")
    one, two, three = places
    boxes = f"{BOXES}pool = 0\n"

    def mounts(client):
        return sorted(client.get("/v1/roots").json["mounts"])

    def with_mount(client, name):
        return path_of(make(client, mounts=[{"name": name, "target": "/mnt/it"}]))

    def note(client, path):
        return run(client, path, "cat /mnt/it/note")["stdout"].strip()

    with Installed(tmp_path, f"{boxes}[mounts]\nstays = {one}\nchanges = {one}\ngoes = {two}\n") as serve:
        with serve.client() as client:
            had = {name: with_mount(client, name) for name in ("stays", "changes", "goes")}
        serve.config.write_text(f"{boxes}[mounts]\nstays = {one}\nchanges = {three}\ncomes = {two}\n",
                                encoding="utf-8")
        serve.upgrade()
        with serve.client() as client:
            assert [note(client, had[name]) for name in had] == ["one", "one", "two"]
            assert note(client, with_mount(client, "stays")) == "one"
            assert note(client, with_mount(client, "changes")) == "three"
            assert note(client, with_mount(client, "comes")) == "two"
            refused = client.post("/v1/sandboxes", {"disk_kind": "ephemeral", "privileges": "plain",
                                                    "mounts": [{"name": "goes", "target": "/mnt/it"}]})
            assert refused.code == "unknown_mount"
        serve.config.write_text(boxes, encoding="utf-8")
        serve.upgrade()
        with serve.client() as client:
            assert [note(client, had[name]) for name in had] == ["one", "one", "two"]
            refused = client.post("/v1/sandboxes", {"disk_kind": "ephemeral", "privileges": "plain",
                                                    "mounts": [{"name": "stays", "target": "/mnt/it"}]})
            assert refused.code == "unknown_mount"


def test_registered_names_outlive_it(serve):
    place = serve.directory / "registered"
    place.mkdir()
    cove = serve.place / "cove"
    harness.cove("mount", "add", "mine", place, binary=cove, env={
        **os.environ, "COVE_URL": f"unix:{serve.socket}"})
    serve.upgrade()
    with serve.client() as client:
        path = path_of(make(client, mounts=[{"name": "mine", "target": "/mnt/it"}]))
        run(client, path, "echo x >/mnt/it/f")
    assert (place / "f").read_text() == "x\n"
    harness.cove("mount", "rm", "mine", binary=cove, env={
        **os.environ, "COVE_URL": f"unix:{serve.socket}"})


# ---- versions of the init protocol -------------------------------------------------------------

def ahead(serve, versions):
    serve.replace(f'COVE_TEST_AHEAD={versions} exec "$real" "$@"')
    serve.upgrade()


def test_boxes_of_the_version_before_go_on(serve):
    with serve.client() as client:
        path = path_of(make(client))
        process = start(client, path, "for i in 1 2 3 4; do sleep 0.5; echo $i; done")
    ahead(serve, 1)
    with serve.client() as client:
        assert wait_end(client, process)["exit_code"] == 0
        assert output(client, process) == "1\n2\n3\n4\n"
        assert run(client, path, "echo on")["stdout"] == "on\n"
        new = path_of(make(client))
        assert run(client, new, "echo new")["stdout"] == "new\n"


def test_nothing_newer_is_said_to_a_box_of_the_version_before(tmp_path):
    """Its init is of that version: it knows no programs of ours, and would refuse them as faults."""
    serve = Installed(tmp_path)
    serve.replace('COVE_TEST_AHEAD=-1 exec "$real" "$@"')
    with serve:
        with serve.client() as client:
            path = path_of(make(client, **KEPT, name="old"))
            process = start(client, path, "echo before; exec cat", open_stdin=True)
            harness.wait_for(lambda: output(client, process) == "before\n", what="output")
            run(client, path, "echo kept >/tmp/f")
        serve.replace('unset COVE_TEST_AHEAD; exec "$real" "$@"', tmp_path / "real")
        serve.upgrade()
        assert " sandbox_outdated " not in serve.said()
        with serve.client() as client:
            terminal = {"command": "true", "terminal": {"rows": 24, "columns": 80}}
            for refused in (client.get(f"{path}/files", query={"path": "/tmp/f"}),
                            client.get(f"{path}/files/list", query={"path": "/tmp"}),
                            client.ask("PUT", f"{path}/files", b"x", query={"path": "/tmp/g"}),
                            client.post(f"{path}/files/mkdir", {"path": "/tmp/d"}),
                            client.post(f"{path}/processes", terminal)):
                assert refused.refusal == (409, "sandbox_outdated"), refused
                assert "stop it and start it again" in refused.json["detail"]
            # All else goes on.
            assert run(client, path, "cat /tmp/f")["stdout"] == "kept\n"
            assert output(client, process) == "before\n"
            assert client.post(f"{process}/stdin", b"more\n").status == 204
            harness.wait_for(lambda: output(client, process) == "before\nmore\n", what="output")
            assert client.post(f"{process}/signal", {"signal": "KILL"}).status in (200, 204)
            assert wait_end(client, process)["signal"] == "SIGKILL"
            assert client.post(f"{path}/stop").status == 200
            assert client.post(f"{path}/start").status == 200
            assert client.get(f"{path}/files", query={"path": "/tmp/f"}).bytes == b"kept\n"
            assert client.post(f"{path}/processes", terminal).status == 201


def test_boxes_two_versions_behind_can_be_stopped_and_the_answer_says_so(serve):
    with serve.client() as client:
        kept, other = (make(client, **KEPT, name=name) for name in ("kept", "other"))
        path = path_of(kept)
        process = start(client, path, "echo before; sleep 4711")
        harness.wait_for(lambda: output(client, process) == "before\n", what="output")
        run(client, path, "echo on disk >/tmp/f")
    ahead(serve, 2)
    assert " cove-engine sandbox_outdated " in serve.said()
    with serve.client() as client:
        for body in ({"command": "true"}, {"command": "true", "start": True}):
            refused = client.post(f"{path}/exec", body)
            assert refused.refusal == (409, "sandbox_outdated"), refused
            assert re.search(r"speaks version \d+, and this one speaks version \d+", refused.json["detail"])
        assert client.post(f"{path}/processes", {"command": "true"}).code == "sandbox_outdated"
        for asked_for in ("/files", "/files/stat", "/files/list", "/files/watch"):
            refused = client.get(f"{path}{asked_for}", query={"path": "/tmp"})
            assert refused.refusal == (409, "sandbox_outdated"), refused
        # It is looked at and listed, and so is what it did.
        assert client.get(path).json["state"] == "running"
        assert len(client.get("/v1/sandboxes").json["sandboxes"]) == 2
        view = client.get(process).json
        assert (view["state"], view["reason"]) == ("lost", "sandbox_outdated"), view
        assert output(client, process) == "before\n"
        assert client.post(f"{process}/signal", {"signal": "TERM"}).code == "sandbox_outdated"
        # Stopped and started it is as any; and one may be deleted as it is.
        assert client.post(f"{path}/stop").status == 200
        assert client.get(path).json["state"] == "stopped"
        assert client.post(f"{path}/start").status == 200
        assert run(client, path, "echo on")["stdout"] == "on\n"
        assert run(client, path, "cat /tmp/f")["stdout"] == "on disk\n"
        assert client.delete(path_of(other)).status in (200, 204)


def test_an_outdated_box_that_ends_by_itself_is_heard_of(serve):
    with serve.client() as client:
        path = path_of(make(client))
        start(client, path, "exec sleep 4712")
        inside = harness.wait_for(lambda: children(serve, b"sleep\x004712\0"), what="the command")
        ahead(serve, 2)
    init = int(harness.status_of(inside[0])["PPid"])
    with serve.client() as client:
        assert client.get(path).json["state"] == "running"
        os.kill(init, signal.SIGKILL)
        view = harness.wait_for(lambda: (view := client.get(path).json)["state"] == "stopped" and view,
                                what="the end of the sandbox")
        assert view["reason"] == "box_ended"
