"""Terminals over the API: frames of a WebSocket, against a running `cove serve`. What a person sees is in
test_terminal_screen.py."""
import base64
import os
import random
import re
import signal
import subprocess

import pytest

import harness
import serving
from sandboxes import parent_of, made
from terminals import Refused, Watcher


nothing_left, serve, api = serving.one_for_all()


@pytest.fixture(scope="module")
def box(serve):
    with made(serve, privileges="system", resources={"pids": 1000}) as path:
        yield path.rsplit("/", 1)[1]


def begin(api, box, command, rows=24, columns=80, **more):
    answer = api.post(f"/v1/sandboxes/{box}/processes",
                      {"command": command, "terminal": {"rows": rows, "columns": columns}, **more})
    assert answer.status == 201, answer
    assert answer.json["terminal"] == {"rows": rows, "columns": columns}
    return answer.json["id"]


@pytest.fixture
def start(serve, box):
    """Starts a command on a terminal; what runs at the end is killed."""
    started = []

    def call(command, **more):
        with serve.client() as client:
            started.append(begin(client, box, command, **more))
        return started[-1]

    yield call
    with serve.client() as client:
        for process in started:
            if process_of(client, box, process)["state"] == "running":
                assert client.delete(f"/v1/sandboxes/{box}/processes/{process}").status == 204


def process_of(api, box, process):
    return api.get(f"/v1/sandboxes/{box}/processes/{process}").json


# ---- what it is ----

def test_a_terminal_is_one_and_its_end_is_that_of_the_command(serve, box, start):
    process = start("tty; stty size; echo $TERM; ps -o tty= -p $$; exit 7", rows=33, columns=111)
    with Watcher(serve, box, process) as watcher:
        ended = watcher.ends()
    lines = watcher.shown.decode().split("\r\n")
    assert re.fullmatch(r"/dev/pts/\d+", lines[0]) and lines[1:3] == ["33 111", "xterm-256color"]
    assert lines[3].strip() == lines[0].removeprefix("/dev/")
    assert ended["state"] == "exited" and ended["exit_code"] == 7, ended


@pytest.mark.parametrize("command,code,name", [
    ("kill -TERM $$", None, "SIGTERM"), ("kill -KILL $$", None, "SIGKILL"),
    ("exec /no/such", 127, None), ("exec /etc/passwd", 126, None), ("true", 0, None)])
def test_how_the_command_ends_is_told_as_it_was(serve, box, start, command, code, name):
    with Watcher(serve, box, start(command)) as watcher:
        ended = watcher.ends()
    assert (ended["exit_code"], ended["signal"]) == (code, name), ended


def test_a_program_that_is_not_there_is_said_on_the_terminal(serve, api, box):
    answer = api.post(f"/v1/sandboxes/{box}/processes",
                      {"argv": ["no-such-program"], "terminal": {"rows": 24, "columns": 80}})
    with Watcher(serve, box, answer.json["id"]) as watcher:
        assert watcher.ends()["exit_code"] == 127
    assert watcher.shown == b"cove: no-such-program: command not found\r\n"


def test_all_output_is_there_at_the_end(serve, box, start):
    """Also what the kernel would have thrown away with the end of the session."""
    process = start("stty -opost; seq 100000; nohup sleep 300 >/dev/null 2>&1 & seq 100001 200000")
    with Watcher(serve, box, process, **{"from": 0}) as watcher:
        assert watcher.ends()["exit_code"] == 0
    assert watcher.shown == "".join(f"{i}\n" for i in range(1, 200001)).encode()


def test_a_daemon_that_keeps_the_terminal_does_not_keep_the_result(serve, box, start):
    process = start("trap '' HUP; sh -c \"trap '' HUP; while :; do echo on; sleep 0.01; done\" & exit 3")
    with Watcher(serve, box, process) as watcher:
        assert watcher.ends()["exit_code"] == 3


def test_exec_says_where_terminals_are(api, box):
    answer = api.post(f"/v1/sandboxes/{box}/exec",
                      {"command": "true", "terminal": {"rows": 24, "columns": 80}})
    assert answer.refusal == (422, "no_terminal") and "/processes" in answer.json["detail"]


@pytest.mark.parametrize("terminal", [{}, {"rows": 24}, {"rows": 0, "columns": 80}, 24,
                                      {"rows": 24, "columns": 10001},
                                      {"rows": 24, "columns": 80, "depth": 3}])
def test_a_size_that_is_none_is_refused(api, box, terminal):
    answer = api.post(f"/v1/sandboxes/{box}/processes", {"command": "true", "terminal": terminal})
    assert answer.refusal == (400, "bad_request")


def test_a_timeout_ends_all_of_it(serve, api, box, start):
    process = start("trap '' HUP INT TERM; while :; do sleep 0.1; done", timeout_ms=500)
    with Watcher(serve, box, process) as watcher:
        ended = watcher.ends()
    assert ended["timed_out"] and ended["exit_code"] == 124, ended


def test_its_limits_and_its_user_are_those_of_the_command(serve, box, start):
    process = start("id -un; ulimit -n; pwd; echo $A", user="nobody", cwd="/usr", env={"A": "b"},
                    limits={"open_files": 77})
    with Watcher(serve, box, process) as watcher:
        watcher.ends()
    assert watcher.shown == b"nobody\r\n77\r\n/usr\r\nb\r\n"


def test_stdin_of_the_request_is_typed(serve, box, start):
    process = start("read line; echo \"got $line\"", stdin="hello\n")
    with Watcher(serve, box, process) as watcher:
        assert watcher.ends()["exit_code"] == 0
    assert watcher.shown == b"hello\r\ngot hello\r\n"


# ---- typing ----

def until_in_front(api, box, command):
    """The only one of that command line is what the terminal's keys go to."""
    def is_there():
        answer = api.post(f"/v1/sandboxes/{box}/exec",
                          {"argv": ["pgrep", "-fx", "--", command]}).json
        pid = answer["stdout"].strip()
        return pid and "+" in api.post(f"/v1/sandboxes/{box}/exec",
                                       {"argv": ["ps", "-o", "stat=", "-p", pid]}).json["stdout"]
    harness.wait_for(is_there, 30 * harness.PATIENCE, f"{command} in front")


def test_what_is_typed_arrives_and_control_keys_are_signals(serve, api, box, start):
    with Watcher(serve, box, start("bash --norc --noprofile")) as watcher:
        watcher.type("sleep 1001\n")
        until_in_front(api, box, "sleep 1001")
        watcher.type("\x1a")
        at = watcher.sees("Stopped")
        watcher.type("bg; jobs\n")
        at = watcher.sees("Running", at)
        watcher.type("fg\n")
        until_in_front(api, box, "sleep 1001")
        watcher.type("\x03")
        watcher.type("echo status $?\n")
        watcher.sees("status 130\r\n", at)
        watcher.type("sleep 1001\n")
        until_in_front(api, box, "sleep 1001")
        watcher.type("\x1c")
        watcher.type("echo status $?; exit 3\n")
        watcher.sees("status 131\r\n")
        assert watcher.ends()["exit_code"] == 3


def test_a_command_that_is_stopped_without_a_shell_goes_on(serve, api, box, start):
    """Nobody could take it to the front again."""
    with Watcher(serve, box, start("exec sh -c 'trap \"echo went on\" CONT; echo up; exec 3<&0;"
                                   " while :; do read -r line <&3; echo \"got $line\"; done'")) as watcher:
        watcher.sees("up\r\n")
        watcher.type("\x1a")
        watcher.sees("went on\r\n")
        watcher.type("x\n")
        watcher.sees("got x\r\n")


def test_a_signal_goes_to_what_is_in_front(serve, box, start):
    with Watcher(serve, box, start("bash --norc --noprofile -i")) as watcher:
        watcher.type("sh -c 'trap \"exit 5\" USR1; echo u\"\"p; while :; do sleep 0.1; done'; echo is $?\n")
        watcher.sees("up\r\n")
        watcher.tell(type="signal", signal="USR1")
        watcher.sees("is 5\r\n")
        watcher.tell(type="signal", signal="WINDY")
        assert watcher.hears("error")["code"] == "bad_request"
        watcher.type("exit 0\n")
        assert watcher.ends()["exit_code"] == 0


def test_the_size_changes_and_is_told(serve, api, box, start):
    process = start("trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done")
    with Watcher(serve, box, process) as watcher:
        at = watcher.sees("ready\r\n")
        watcher.tell(type="resize", rows=50, columns=132)
        watcher.sees("50 132\r\n", at)
        assert process_of(api, box, process)["terminal"] == {"rows": 50, "columns": 132}
        watcher.tell(type="resize", rows=0, columns=132)
        assert watcher.hears("error")["code"] == "bad_request"
        # Whoever attaches with a size of his own changes it, and sees all anew if it is the same.
        at = len(watcher.shown)
        with Watcher(serve, box, process, rows=50, columns=132) as other:
            other.sees("50 132\r\n")
            watcher.sees("50 132\r\n", at)


def test_a_paste_of_a_megabyte_arrives_as_it_is(serve, box, start):
    pasted = base64.b64encode(random.Random(1).randbytes(3 << 18))
    with Watcher(serve, box, start("stty raw -echo; echo ready; head -c 1048576 | md5sum")) as watcher:
        watcher.sees("ready")
        for at in range(0, len(pasted), 100000):
            watcher.type(pasted[at:at + 100000])
        watcher.ends()
    sum_of = subprocess.run(["md5sum"], input=pasted, capture_output=True, check=True).stdout[:32]
    assert sum_of in watcher.shown


def test_input_that_nobody_reads_keeps_no_size_and_no_signal_back(serve, box, start):
    process = start("stty raw -echo; trap 'stty size' WINCH; trap 'exit 9' TERM; echo ready;"
                    "while :; do sleep 0.05; done")
    with Watcher(serve, box, process) as watcher, Watcher(serve, box, process) as other:
        at = watcher.sees("ready")
        for _ in range(8):
            other.type("x" * 100000)
        watcher.tell(type="resize", rows=40, columns=100)
        watcher.sees("40 100", at)
        watcher.tell(type="signal", signal="TERM")
        assert watcher.ends()["exit_code"] == 9


def test_a_terminal_has_no_end_of_input(api, box, start):
    process = start("cat")
    answer = api.post(f"/v1/sandboxes/{box}/processes/{process}/stdin", "x\n", query={"close": "true"})
    assert answer.code == "bad_request" and "ctrl-D" in answer.json["detail"]
    assert api.post(f"/v1/sandboxes/{box}/processes/{process}/stdin", "\x04").status == 204
    answer = api.get(f"/v1/sandboxes/{box}/processes/{process}/wait", query={"timeout_ms": 60000})
    assert answer.json["exit_code"] == 0


def test_the_end_of_what_is_typed_is_told_until_it_is_heard(serve, box, start):
    process = start("echo on; sleep 0.3; stty raw; sleep 0.2; stty sane; read a; echo first; read a || read a || echo last")
    with Watcher(serve, box, process) as watcher:
        watcher.sees("on")
        watcher.type("x\n")
        watcher.tell(type="end")
        watcher.tell(type="end")
        assert watcher.ends()["exit_code"] == 0
    assert watcher.shown.endswith(b"last\r\n"), watcher.shown


def test_keys_after_the_end_of_what_was_typed_are_taken(serve, api, box, start):
    process = start("echo on; until [ -e /tmp/typed ]; do sleep 0.05; done; read a; echo got $a; read a; "
                    "echo then $a; read a; echo over")
    with Watcher(serve, box, process) as watcher:
        watcher.sees("on")
        watcher.tell(type="end")
        with Watcher(serve, box, process) as other:
            other.type("more\n")
            watcher.sees("more")  # the terminal has it, and echoes it
        assert api.post(f"/v1/sandboxes/{box}/exec", {"command": "touch /tmp/typed"}).status == 200
        watcher.sees("then more")
        assert process_of(api, box, process)["state"] == "running"
        watcher.tell(type="end")
        assert watcher.ends()["exit_code"] == 0


# ---- watching ----

def test_several_watch_each_from_where_he_likes(serve, box, start):
    process = start("seq 1000; read line; echo after $line")
    with Watcher(serve, box, process, **{"from": 0}) as first:
        first.sees("1000\r\n")
        with Watcher(serve, box, process, tail=100) as second, \
                Watcher(serve, box, process, read_only="true") as third:
            second.hears("attached")
            # The replay begins with a line, and is no longer than was asked for.
            assert second.shown.decode().split("\r\n")[0] in map(str, range(900, 1000))
            assert len(second.shown) <= 100 and second.shown.endswith(b"\r\n1000\r\n")
            assert second.offset == len(first.shown)
            third.type("no")
            assert third.hears("error")["code"] == "forbidden"
            third.tell(type="resize", rows=5, columns=5)
            second.type("it\n")
            for watcher in (first, second, third):
                watcher.sees("after it\r\n")
                assert watcher.ends()["exit_code"] == 0
                assert process_of(serve.client(), box, process)["terminal"]["rows"] == 24
            assert first.shown == third.shown
            assert second.offset == first.offset == len(first.shown)


def test_one_detaches_and_goes_on_where_he_was(serve, box, start):
    process = start("stty -echo; echo 0; for i in 1 2 3; do read line; echo \"$i $line\"; done")
    with Watcher(serve, box, process) as watcher:
        watcher.sees("0\r\n")
        watcher.type("a\n")
        watcher.sees("1 a\r\n")
        offset = watcher.offset
        watcher.tell(type="detach")
        while watcher.closed is None:
            watcher.step()
        assert watcher.closed == 1000
    with Watcher(serve, box, process, **{"from": offset}) as watcher:
        watcher.type("b\n")
        watcher.sees("2 b\r\n")
        assert watcher.shown == b"2 b\r\n"
        watcher.socket.close()  # and this one just goes
    with Watcher(serve, box, process, **{"from": 0}) as watcher:
        watcher.type("c\n")
        watcher.ends()
        assert watcher.shown == b"0\r\n1 a\r\n2 b\r\n3 c\r\n"


def test_what_has_ended_is_shown_to_the_end(serve, api, box, start):
    process = start("echo all; exit 4")
    api.get(f"/v1/sandboxes/{box}/processes/{process}/wait")
    with Watcher(serve, box, process) as watcher:
        assert watcher.ends()["exit_code"] == 4
    assert watcher.shown == b"all\r\n"


def test_a_watcher_who_does_not_read_slows_nobody_and_is_told_a_gap(serve, api, box, start):
    process = start("stty -opost -echo; head -c 30000000 /dev/zero | tr '\\0' x; echo end; read line",
                    log_bytes=1 << 20)
    with Watcher(serve, box, process, **{"from": 0}) as slow, \
            Watcher(serve, box, process, **{"from": 0}) as quick:
        quick.sees("end")
        memory = engine_memory(serve)
        assert memory < 300 << 20, memory
        slow.until(lambda: slow.shown.endswith(b"end\n"), "end")
        gaps = [message for message in slow.said if message["type"] == "gap"]
        assert gaps, slow.said
        lost = sum(gap["to"] - gap["from"] for gap in gaps)
        assert len(slow.shown) + lost == 30000004 and len(slow.shown) < 20000000


def engine_memory(serve):
    with open(f"/proc/{serve.engine_pid()}/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) * 1024


def test_who_may_not_watch(serve, api, box, start):
    process = start("cat")
    answer = api.get(f"/v1/sandboxes/{box}/processes/{process}/terminal")
    assert answer.refusal == (426, "upgrade_required")
    assert answer.headers["Upgrade"] == "websocket"
    plain = api.post(f"/v1/sandboxes/{box}/processes", {"argv": ["sleep", "100"]}).json["id"]
    for port, headers, target, code in [
            (None, ["Origin: http://evil.example"], process, "forbidden_origin"),
            (serve.port, [], process, "bad_key"),
            (serve.port, ["Authorization: Bearer " + "0" * 64], process, "bad_key"),
            (serve.port, [f"Authorization: Bearer {serve.key}", "Origin: http://evil.example"],
             process, "forbidden_origin"),
            (None, [], "999999", "process_not_found"), (None, [], plain, "no_terminal")]:
        with pytest.raises(Refused) as refused:
            Watcher(serve, box, target, headers=headers, port=port)
        assert refused.value.code == code, (headers, refused.value)
    for query in ({"from": -1}, {"from": 1, "tail": 1}, {"rows": 10}, {"rows": 0, "columns": 1},
                  {"read_only": "maybe"}, {"color": "blue"}):
        with pytest.raises(Refused) as refused:
            Watcher(serve, box, process, **query)
        assert refused.value.code == "bad_request", query
    with Watcher(serve, box, process, port=serve.port,
                 headers=[f"Authorization: Bearer {serve.key}"]) as watcher:
        watcher.type("in\n")
        watcher.sees("in\r\nin\r\n")
    assert api.delete(f"/v1/sandboxes/{box}/processes/{plain}").status == 204


def test_a_key_that_reads_may_watch_and_not_type(serve, api, box, start):
    process = start("cat")
    key = api.post("/v1/keys", {"label": "eyes", "scopes": ["read"]}).json
    headers = [f"Authorization: Bearer {key['secret']}"]
    with pytest.raises(Refused) as refused:
        Watcher(serve, box, process, port=serve.port, headers=headers)
    assert refused.value.status == 403
    with Watcher(serve, box, process, port=serve.port, headers=headers, read_only="true") as watcher:
        watcher.type("no\n")
        assert watcher.hears("error")["code"] == "forbidden"
    assert api.delete(f"/v1/keys/{key['id']}").status == 204


# ---- what breaks ----

def test_a_box_that_kills_what_holds_its_terminal_has_a_clear_end(serve, box, start):
    with Watcher(serve, box, start("trap '' HUP; kill -9 $PPID; sleep 1000")) as watcher:
        ended = watcher.ends()
    assert (ended["state"], ended["signal"]) == ("exited", "SIGKILL")


def test_a_sandbox_that_stops_ends_its_terminals(serve, api):
    box = api.post("/v1/sandboxes", {"disk_kind": "ephemeral"}).json["id"]
    process = begin(api, box, "cat")
    with Watcher(serve, box, process) as watcher:
        watcher.type("x\n")
        watcher.sees("x\r\nx\r\n")
        assert api.post(f"/v1/sandboxes/{box}/stop").status == 200
        ended = watcher.ends()
        assert (ended["state"], ended["reason"]) == ("lost", "stopped"), ended
    assert api.delete(f"/v1/sandboxes/{box}").status == 204


def test_nobody_is_attached_before_the_terminal_takes_input(serve, api):
    """An engine that has just started has its record of a terminal, and the terminal when the box's init has
    answered. All that is typed until then waits, and so does the size, which goes first: the tool that holds the
    terminal is stopped, and so is the engine then, so it has no more than what fits into its pipe."""
    box = api.post("/v1/sandboxes", {"disk_kind": "ephemeral"}).json["id"]
    process = begin(api, box, "stty -echo; sleep 7365 & echo ready; read line; stty size; echo \"<$line>\"; "
                              "sleep 7366 & while read line; do stty size; echo \"<${line%%x*}>\"; done")
    shell = harness.wait_for(lambda: parent_of(serve, b"7365"), what="the command")
    tool = int(harness.status_of(shell)["PPid"])
    init = int(harness.status_of(tool)["PPid"])
    stopped = [init]
    with Watcher(serve, box, process) as watcher:
        watcher.sees("ready\r\n")
    os.kill(init, signal.SIGSTOP)
    try:
        serve.kill_engine()
        watcher = Watcher(serve, box, process, **{"from": 0, "rows": 33, "columns": 99})
        watcher.sees("ready\r\n")
        watcher.tell(type="signal", signal="WINDY")
        watcher.hears("error")
        assert len(watcher.said) == 1, watcher.said
        watcher.tell(type="resize", rows=34, columns=98)
        watcher.type("typed early\n" + 100000 * "x" + "\n")
        serve.heed()
        with serve.client() as other:
            other.send("POST", f"/v1/sandboxes/{box}/processes/{process}/stdin", b"by a request\n")
            serve.heed()
            watcher.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                watcher.step()
            watcher.socket.settimeout(60 * harness.PATIENCE)
            stopped += [tool, serve.engine_pid()]
            os.kill(tool, signal.SIGSTOP)
            os.kill(init, signal.SIGCONT)
            said = watcher.hears("attached")
            assert (said["rows"], said["columns"], said["from"]) == (34, 98, len("ready\r\n")), said
            os.kill(serve.engine_pid(), signal.SIGSTOP)
            os.kill(tool, signal.SIGCONT)
            harness.wait_for(lambda: parent_of(serve, b"7366"), what="the first line to be read")
            os.kill(serve.engine_pid(), signal.SIGCONT)
            watcher.sees("34 98\r\n<typed early>\r\n34 98\r\n<>\r\n34 98\r\n<by a request>\r\n")
            assert other.receive().status == 204
        assert [message["type"] for message in watcher.said] == ["error", "attached"], watcher.said
        watcher.close()
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    with serve.client() as fresh:
        assert fresh.delete(f"/v1/sandboxes/{box}").status == 204


def test_a_terminal_lives_through_kills_of_the_engine(serve, api, box, start):
    """And so does what is typed in frames that were half on their way."""
    process = start("stty raw -echo; echo ready; exec tr -d x")
    shown = b""
    watcher = Watcher(serve, box, process, **{"from": 0})
    watcher.sees("ready")
    watcher.hears("attached")
    for kill in range(5):
        for _ in range(20):
            watcher.type("x" * 50000)
        serve.kill_engine(signal.SIGTERM if kill == 4 else signal.SIGKILL)
        shown += watcher.shown
        watcher.close()
        watcher = Watcher(serve, box, process, **{"from": watcher.offset})
        watcher.hears("attached")
        watcher.tell(type="resize", rows=30 + kill, columns=90)
        watcher.type(f"kill {kill}\n")
        watcher.sees(f"kill {kill}\n")
    shown += watcher.shown
    # Not one byte of a frame's head was taken for a key.
    assert shown == b"ready\n" + b"".join(b"kill %d\n" % kill for kill in range(5)), shown[-200:]
    watcher.close()
    with serve.client() as fresh:
        assert process_of(fresh, box, process)["terminal"] == {"rows": 34, "columns": 90}


def test_an_engine_that_ends_in_good_order_says_so(serve, box, start):
    process = start("cat")
    with Watcher(serve, box, process) as watcher:
        os.kill(serve.engine_pid(), signal.SIGTERM)
        with pytest.raises(EOFError):
            while True:
                watcher.step()
        assert watcher.closed == 1001
    serve.wait_ready()
    with Watcher(serve, box, process) as watcher:
        watcher.type("there\n")
        watcher.sees("there\r\nthere\r\n")


def test_a_box_has_32_terminals_at_once_and_no_more(serve, api):
    with made(serve, resources={"pids": 1000}) as path:
        box = path.rsplit("/", 1)[1]
        processes = [begin(api, box, "read line; stty size; echo \"<$line>\"", rows=10 + i) for i in range(32)]
        watchers = [Watcher(serve, box, process) for process in processes]
        with Watcher(serve, box, begin(api, box, "echo one too many")) as watcher:
            assert watcher.ends()["exit_code"] == 126
            assert watcher.shown == (b"cove: all terminals of the box, or of the host, are taken; "
                                     b"end a command that has one, then start this one again\r\n")
        for i, watcher in enumerate(watchers):
            watcher.type(f"line {i}\n")
        for i, watcher in enumerate(watchers):
            assert watcher.ends()["exit_code"] == 0
            assert watcher.shown == f"line {i}\r\n{10 + i} 80\r\n<line {i}>\r\n".encode()
            watcher.close()
        with Watcher(serve, box, begin(api, box, "echo again")) as watcher:
            assert watcher.ends()["exit_code"] == 0 and watcher.shown == b"again\r\n"
