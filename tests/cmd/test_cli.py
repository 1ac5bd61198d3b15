"""The commands over the native API, against a running `cove serve`: what a person types, and what comes
of it. What the pages of docs/ show is tried by test_docs.py."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import pytest

import harness
import serving
from scripted import commands, good


nothing_left, serve = serving.one_for_all()[:2]
env, cove = commands()


@pytest.fixture(scope="module")
def box(cove):
    """A sandbox for tests that leave nothing in it that others would see."""
    made = cove("create", "shared", "--ephemeral")
    assert made.returncode == 0, made.stderr
    yield "shared"
    assert cove("rm", "shared").returncode == 0


# ---- sandboxes -----------------------------------------------------------------------------------

def test_a_name_is_there_once(cove):
    first = good(cove("create", "once", "--ephemeral"))
    again = cove("create", "once", "--ephemeral")
    assert again.stdout.decode() == first and b"was there already" in again.stderr
    assert cove("create", "once").returncode == 125  # of another kind
    good(cove("rm", "once"))
    assert good(cove("create", "once", "--ephemeral")) != first
    good(cove("rm", "once"))


def test_ls_and_info_say_what_there_is(cove, box):
    assert any(line.endswith(" shared") for line in good(cove("ls")).splitlines())
    listed = json.loads(good(cove("ls", "--json")))["sandboxes"]
    mine = next(sandbox for sandbox in listed if sandbox["name"] == box)
    assert mine["id"] in good(cove("ls", "-q")).split()
    assert mine["id"] in good(cove("info", box)) and mine["id"] in good(cove("info", mine["id"]))
    assert json.loads(good(cove("info", f"name:{box}", "--json")))["id"] == mine["id"]


def test_a_name_of_any_letters_is_found(cove):
    name = "é /?#%&漢"
    good(cove("create", name, "--ephemeral"))
    assert f" {name}\n" in good(cove("ls"))
    assert good(cove("exec", name, "--", "echo", "x")) == "x\n"
    good(cove("rm", name))
    assert cove("create", "a\nb", "--ephemeral").returncode == 125


def test_limits_are_those_that_were_said(cove):
    made = json.loads(good(cove("create", "--json", "--ephemeral", "--memory", "128M", "--cpus", "0.5",
                                "--pids", "77", "--disk", "32M", "-e", "A=b=c", "-l", "k=v",
                                "-h", "there", "--privileges", "plain")))
    assert made["created"] is True and made["resources"]["memory_bytes"] == 128 << 20
    assert made["resources"]["cpus"] == 0.5 and made["resources"]["pids"] == 77
    assert good(cove("exec", made["id"], "--", "sh", "-c", "echo $A; hostname; id -u")) \
        .split()[:2] == ["b=c", "there"]
    good(cove("rm", made["id"]))


def test_a_stopped_sandbox_runs_nothing_until_it_is_started(cove):
    good(cove("create", "halted", "--ephemeral", "-l", "of=halted"))
    process = good(cove("exec", "-d", "halted", "--", "sleep", "600")).strip()
    good(cove("stop", "halted"))
    assert "stopped" in good(cove("ls", "--label", "of=halted"))
    assert cove("wait", "halted", process).returncode in (125, 137)
    refused = cove("exec", "halted", "--", "true")
    assert refused.returncode == 125 and b"cove start" in refused.stderr
    good(cove("start", "halted"))
    assert good(cove("exec", "halted", "--", "echo", "x")) == "x\n"
    good(cove("stop", "halted"))
    assert good(cove("exec", "--start", "halted", "--", "echo", "x")) == "x\n"
    good(cove("rm", "halted"))


def test_a_persistent_sandbox_keeps_its_disk(cove):
    good(cove("create", "kept"))
    good(cove("exec", "kept", "--", "sh", "-c", "echo x >/root/f"))
    good(cove("stop", "kept"))
    assert good(cove("exec", "--start", "kept", "--", "cat", "/root/f")) == "x\n"
    good(cove("rm", "kept"))


def test_commands_start_in_a_mount_at_workspace(cove, tmp_path):
    tmp_path.chmod(0o755)
    good(cove("mount", "add", "starting", tmp_path))
    good(cove("create", "starting", "--ephemeral", "-v", "starting:/workspace/:ro"))
    assert good(cove("exec", "starting", "--", "pwd")) == "/workspace\n"
    good(cove("create", "elsewhere", "--ephemeral", "-v", "starting:/workspace", "-w", "/tmp"))
    assert good(cove("exec", "elsewhere", "--", "pwd")) == "/tmp\n"
    good(cove("rm", "starting", "elsewhere"))
    good(cove("mount", "rm", "starting"))


def test_variables_come_from_files(cove, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"\xef\xbb\xbf# a comment\r\n\n  A=1 = 2 \r\nB='x'\nPASSED\nNOT_SET_HERE\nC=\nD=file\nE=one\n #F=3\r\nH=a\rb\r\nG=no end")
    two.write_text("E=two\n")
    words = ("-e", "D=option", "--env-file", one, "--env-file", two)
    expected = ["A=1 = 2 ", "B='x'", "C=", "D=option", "E=two", "G=no end", "H=a\rb", "PASSED=mine"]
    good(cove("create", "variables", "--ephemeral", *words, PASSED="mine"))
    show = ("sh", "-c", "env | grep '^[A-H]=\\|^PASSED\\|NOT_SET' | sort")
    assert good(cove("exec", "variables", *show)).rstrip("\n").split("\n") == expected
    good(cove("rm", "variables"))
    good(cove("create", "variables", "--ephemeral"))
    assert good(cove("exec", "variables", *words, *show, PASSED="mine")).rstrip("\n").split("\n") == expected
    assert good(cove("run", *words, *show, PASSED="mine")).rstrip("\n").split("\n") == expected
    assert good(cove("shell", "variables", *words, stdin=b"echo $E\n")) == "two\n"
    good(cove("rm", "variables"))


@pytest.mark.parametrize("text, says", [
    (b"A=1\n=secret\n", "line 2: the name"), (b"A B=secret\n", "line 1: there is a blank"),
    (b"A=1\n\nB=secret\0x\n", "line 3: it is no text"), (b"A=secret\n" + b"B=1\n" * 400_000, "more than 1M"), (None, "give a file"),
    ("/dev/zero", "more than 1M")], ids=["no name", "blank", "no text", "too long", "not there", "endless"])
def test_a_file_of_variables_that_is_none_is_refused(cove, tmp_path, text, says):
    file = tmp_path / "variables"
    if isinstance(text, str):
        file = text
    elif text is not None:
        file.write_bytes(text)
    for words in (("run", "--env-file", file, "true"), ("exec", "--env-file", file, "x", "true"),
                  ("create", "--env-file", file)):
        result = cove(*words)
        assert result.returncode == 125 and result.stderr.count(b"\n") == 1, result
        assert says in result.stderr.decode() and b"secret" not in result.stderr, result


# ---- exec ----------------------------------------------------------------------------------------

def test_output_comes_as_it_is_written_and_to_its_own_side(env, box):
    with subprocess.Popen([harness.COVE, "exec", box, "--", "sh", "-c", "echo one; echo two >&2; read x"],
                          env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"one\n" and running.stderr.readline() == b"two\n"
        assert running.wait(20) == 1  # there is no input


@pytest.mark.parametrize("words, status", [
    (("sh", "-c", "exit 7"), 7), (("sh", "-c", "kill -TERM $$"), 143), (("none-such",), 127),
    (("/etc/hostname",), 126),
])
def test_the_status_is_that_of_run(cove, box, words, status):
    assert cove("exec", box, "--", *words).returncode == status
    assert cove("run", "--", *words).returncode == status


@pytest.mark.parametrize("words, status, code", [
    (("sh", "-c", "exit 7"), 7, None), (("sh", "-c", "kill -TERM $$"), 143, None),
    (("--timeout", "100ms", "sleep", "60"), 124, None), (("none-such",), 127, "command_not_found"),
    (("/etc/hostname",), 126, "not_executable"), (("-w", "/none", "true"), 125, "bad_cwd"),
    (("-u", "none", "true"), 125, "user_not_found"), (("-d", "none-such"), 127, "command_not_found"),
    (("-t", "-w", "/none", "true"), 125, "bad_cwd"), (("--no-such-option", "true"), 125, "unknown_option"),
    (None, 125, "unknown_option"),  # before --json, behind the sandbox
    ((), 125, "bad_value"), (("-i", "cat"), 125, "bad_value")])
def test_exec_for_programs_prints_one_object_whatever_comes(cove, box, words, status, code):
    result = cove("exec", "--json", box, *words) if words is not None else cove("exec", box, "--bogus", "--json", "true")
    assert result.returncode == status, result
    said = json.loads(result.stdout)
    assert said.get("error", {}).get("code") == code, said
    if code is None:
        assert said["process"]["signal"] == ("SIGTERM" if status == 143 else None), said
    else:
        assert said["error"]["message"] and len(said) == 1, said


def test_exec_for_programs_says_so_where_there_is_no_sandbox_or_no_server(cove, tmp_path):
    result = cove("exec", "--json", "no-such-sandbox", "--", "true")
    assert (result.returncode, json.loads(result.stdout)["error"]["code"]) == (125, "sandbox_not_found")
    result = cove("exec", "--json", "x", "--", "true", COVE_URL=f"unix:{tmp_path}/none")
    assert result.returncode == 125 and json.loads(result.stdout)["error"]["message"], result


def test_exec_for_programs_whose_output_nobody_reads_ends_by_a_signal(env, box):
    with subprocess.Popen([harness.COVE, "exec", "--json", box, "--", "head", "-c", "500000", "/dev/zero"], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdout.read(1)
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == -signal.SIGTERM


def test_exec_for_programs_that_is_interrupted_says_so(cove, env, box):
    with subprocess.Popen([harness.COVE, "exec", "--json", box, "--", "sleep", "4321"], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        harness.wait_for(lambda: b"sleep 4321" in cove("ps", box).stdout, 30, "the command")
        running.send_signal(signal.SIGINT)
        assert json.loads(running.stdout.read())["error"]["code"] == "interrupted"
        assert running.wait(20) == 130
    harness.wait_for(lambda: not re.search(r" running .*sleep 4321", good(cove("ps", box))), 30, "its end")


def test_any_bytes_go_in_and_come_out(cove, box):
    data = os.urandom(3 << 20)
    for words in (("exec", "-i"), ("exec",)):
        result = cove(*words, box, "--", "cat", stdin=data)
        assert result.returncode == 0 and result.stdout == data
    assert cove("exec", "-n", box, "--", "cat", stdin=data).stdout == b""


def test_what_pours_comes_whole_on_both_sides(cove, box):
    result = cove("exec", box, "--", "sh", "-c",
                  "(seq 1000000; seq 1000000) & seq 2000000 >&2; wait; exit 3")
    assert result.returncode == 3
    assert result.stdout == "".join(f"{i}\n" for _ in range(2) for i in range(1, 1000001)).encode()
    assert result.stderr == "".join(f"{i}\n" for i in range(1, 2000001)).encode()


def test_input_that_nobody_reads_does_not_hold_up_the_end(cove, box):
    started = time.monotonic()
    assert good(cove("exec", "-i", box, "--", "echo", "x", stdin=b"a" * (8 << 20))) == "x\n"
    assert time.monotonic() - started < 10 * harness.PATIENCE


def test_user_directory_and_variables(cove, box):
    assert good(cove("exec", "-u", "nobody", "-w", "/tmp", "-e", "A=1", box, "--", "sh", "-c",
                     "id -un; pwd; echo $A")).split() == ["nobody", "/tmp", "1"]
    assert cove("exec", "-w", "/none", box, "--", "true").returncode == 125
    assert cove("exec", "-u", "none", box, "--", "true").returncode == 125


def test_interrupts_reach_the_command(env, box):
    script = "trap 'echo told; exit 5' INT; echo ready; while :; do sleep 0.1; done"
    with subprocess.Popen([harness.COVE, "exec", box, "--", "sh", "-c", script], env=env,
                          stdout=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"ready\n"
        running.send_signal(signal.SIGINT)
        assert running.stdout.read() == b"told\n" and running.wait(20) == 5


def test_a_second_interrupt_kills_what_takes_no_first(cove, env, box):
    script = "trap 'echo told' INT; trap '' TERM; echo ready; sleep 1234 & while :; do sleep 0.1; done"
    with subprocess.Popen([harness.COVE, "exec", box, "--", "sh", "-c", script], env=env,
                          stdout=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"ready\n"
        running.send_signal(signal.SIGINT)
        assert running.stdout.readline() == b"told\n"
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 137


def test_a_command_that_nobody_reads_ends(cove, env, box):
    result = subprocess.run(f"{harness.COVE} exec {box} -- yes | head -n 1", shell=True, env=env,
                            capture_output=True, timeout=60, check=True)
    assert result.stdout == b"y\n"
    harness.wait_for(lambda: not re.search(r"running .* yes$", good(cove("ps", box)), re.M), 30,
                     "the end of yes")


@pytest.fixture
def timed(tmp_path):
    """A server whose clock the test sets, with a sandbox; and what calls cove there."""
    with serving.Serve(tmp_path, clock=True) as started:
        own = {**os.environ, "COVE_URL": f"unix:{started.socket}"}

        def call(*words):
            return subprocess.run([harness.COVE, *words], env=own, capture_output=True, stdin=subprocess.DEVNULL,
                                  timeout=60 * harness.PATIENCE, check=False)
        call.env = own
        good(call("create", "left", "--ephemeral"))
        yield started.clock, call
        good(call("rm", "left"))


HUNG = "trap 'echo hung >>/tmp/hung' HUP; echo up; while :; do sleep 0.05; done"


def killed(call, *words):
    """A cove exec that was killed when its command was up."""
    with subprocess.Popen([harness.COVE, "exec", *words, "left", "--", "sh", "-c", HUNG], env=call.env,
                          stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as running:
        assert running.stdout.readline().strip() == b"up"
        running.kill()


def is_hung(call):
    return call("exec", "left", "--", "cat", "/tmp/hung").stdout


def runs(call):
    return b" running " in call("ps", "left").stdout


@pytest.mark.parametrize("words", [(), ("-t",), ("-it",)])
def test_a_command_whose_client_was_killed_is_hung_up_and_then_killed(timed, words):
    clock, call = timed
    killed(call, *words)
    for _ in range(4):
        clock.advance(2)
    assert is_hung(call) == b"" and runs(call)
    clock.until(lambda: is_hung(call) == b"hung\n", 10, "the hang-up")
    clock.advance(5)
    assert runs(call)
    clock.until(lambda: not runs(call), 10, "its end")
    # A terminal that ends with it may hang it up once more before it is gone.
    assert is_hung(call) == b"hung\n" or words and is_hung(call) == b"hung\nhung\n"


def test_a_client_that_comes_back_keeps_its_command(timed):
    clock, call = timed
    killed(call)
    clock.advance(5)
    path = "localhost/v1/sandboxes/name:left/processes/1/follow?ends_with_client=true"
    with subprocess.Popen(["curl", "-sN", "--unix-socket", call.env["COVE_URL"].removeprefix("unix:"), path],
                          stdout=subprocess.PIPE) as other:
        assert b"up" in other.stdout.readline()
        for _ in range(6):
            clock.advance(5)
        assert runs(call) and is_hung(call) == b"" and other.poll() is None
        other.kill()
    clock.until(lambda: not runs(call), 25, "its end")


def test_a_client_that_detaches_leaves_its_command(timed):
    clock, call = timed
    line = f"{harness.COVE} exec -it --detach-keys ctrl-a,d left -- sh -c 'read a; sleep 1000'"
    done = subprocess.run(["script", "-qec", line, "/dev/null"], input=b"x\n\x01d", env=call.env, capture_output=True,
                          timeout=60 * harness.PATIENCE, check=False)
    assert b"detached" in done.stdout, done
    for _ in range(6):
        clock.advance(5)
    assert runs(call)
    good(call("kill", "left", "1"))


def test_a_client_that_reads_slowly_keeps_its_command(timed):
    clock, call = timed
    with subprocess.Popen([harness.COVE, "exec", "left", "--", "sh", "-c", "trap 'exit 9' HUP; seq 3000000; echo all"],
                          env=call.env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as running:
        assert running.stdout.readline() == b"1\n"
        for _ in range(6):
            clock.advance(5)
        assert running.stdout.read().endswith(b"3000000\nall\n") and running.wait(30) == 0


# ---- processes -----------------------------------------------------------------------------------

def test_a_process_in_the_background(cove, box):
    process = good(cove("exec", "-d", box, "--", "sh", "-c", "echo out; echo err >&2; sleep 600")).strip()
    harness.wait_for(lambda: cove("logs", box, process).stdout == b"out\n", 30, "its output")
    harness.wait_for(lambda: cove("logs", box, process, "--stderr").stderr == b"err\n", 30, "its errors")
    assert cove("logs", box, process, "--tail-bytes", "2").stdout == b"t\n"
    assert re.search(rf"^{process} .* running ", good(cove("ps", box)), re.M)
    result = cove("wait", box, process, "--timeout", "200ms")
    assert result.returncode == 124 and b"still runs" in result.stderr
    good(cove("kill", box, process))
    assert cove("wait", box, process).returncode == 137
    assert cove("kill", box, process).returncode == 125
    assert cove("logs", box, process).stdout == b"out\n"  # kill of an ended one forgets nothing


def test_a_signal_is_no_kill(cove, box):
    process = good(cove("exec", "-d", box, "--", "sh", "-c",
                        "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done")).strip()
    harness.wait_for(lambda: cove("logs", box, process).stdout == b"ready\n", 30, "it is ready")
    good(cove("kill", box, process, "--signal", "TERM"))
    assert cove("wait", box, process).returncode == 9


def test_logs_follow_to_the_end(cove, env, box):
    process = good(cove("exec", "-d", box, "--", "sh", "-c", "echo 1; sleep 1; echo 2")).strip()
    assert good(cove("logs", "-f", box, process)) == "1\n2\n"
    assert good(cove("logs", "-f", box, process)) == "1\n2\n"


def test_a_command_outlives_the_engine_and_exec_goes_on(serve, env, box):
    script = "for i in $(seq 1 30); do echo $i; sleep 0.1; done; exit 4"
    with subprocess.Popen([harness.COVE, "exec", box, "--", "sh", "-c", script], env=env, bufsize=0,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"1\n"  # and nothing behind it: communicate() would not see that
        serve.kill_engine()
        rest, said = running.communicate(timeout=60)
    assert rest.split() == [b"%d" % i for i in range(2, 31)], said
    assert running.returncode == 4


# ---- keys, roots ---------------------------------------------------------------------------------

def test_a_key_opens_tcp_until_it_is_removed(serve, cove):
    secret = good(cove("key", "new", "test", "--scope", "read")).strip()
    tcp = {"COVE_URL": f"http://127.0.0.1:{serve.port}", "COVE_API_KEY": secret}
    good(cove("ls", **tcp))
    assert cove("create", **tcp).returncode == 125
    line = next(line for line in good(cove("key", "ls")).splitlines() if line.endswith(" test"))
    assert secret not in line
    good(cove("key", "rm", line.split()[0]))
    assert cove("ls", **tcp).returncode == 125


def test_a_root_is_registered_used_and_removed(cove, tmp_path):
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    busybox = root / "bin" / "busybox"
    busybox.write_bytes(pathlib.Path("/bin/busybox").read_bytes())
    busybox.chmod(0o755)
    good(cove("root", "add", "tiny", str(root)))
    assert re.search(rf"^tiny +\S+ +default +{root}$", good(cove("root", "ls")), re.M)
    assert "tiny" in json.loads(good(cove("root", "ls", "--json")))
    assert cove("root", "add", "tiny", str(root)).returncode == 125
    good(cove("create", "on-tiny", "--ephemeral", "--root", "tiny"))
    assert "busybox" in good(cove("exec", "on-tiny", "--", "/bin/busybox", "ls", "/bin"))
    good(cove("rm", "on-tiny"))
    good(cove("root", "rm", "tiny"))
    assert cove("create", "--root", "tiny").returncode == 125


def test_what_is_registered_is_for_the_tenants_that_are_named(cove, tmp_path):
    for words, tenants in (((), "default"), (("--tenant", "a", "--tenant=b"), "a,b"), (("--tenant", "b,c"), "b,c"),
                           (("--tenant", "*"), r"\*")):
        for kind in ("root", "mount"):
            good(cove(kind, "add", *words, "given", str(tmp_path)))
            assert re.search(rf"^given +- +{tenants} +{tmp_path}$", good(cove(kind, "ls")), re.M)
            good(cove(kind, "rm", "given"))


def test_a_directory_comes_to_a_sandbox_that_runs_and_leaves_it(cove, tmp_path):
    (tmp_path / "a").write_text("from outside\n")
    good(cove("mount", "add", "given", str(tmp_path)))
    good(cove("create", "takes", "--ephemeral", "--mountable"))
    result = cove("mount", "attach", "takes", "given:/with blank")
    if harness.EXPECT.is_root:
        assert good(result) == ""
        assert good(cove("exec", "takes", "--", "sh", "-c", "cat '/with blank/a'; echo x >'/with blank/b'")) == "from outside\n"
        assert "given at /with blank" in good(cove("info", "takes"))
        assert good(cove("mount", "detach", "takes", "/with blank")) == ""
    else:
        assert result.returncode == 125 and b"ordinary user" in result.stderr
    for words in (("attach", "takes", "given"), ("attach", "takes", "given:relative"), ("detach", "takes", "relative"),
                  ("detach", "takes", "/nothing"), ("attach", "takes", "none:/x"), ("attach", "none", "given:/x:ro")):
        result = cove("mount", *words)
        assert result.returncode == 125 and result.stderr.startswith(b"cove: "), words
    good(cove("rm", "takes"))
    good(cove("mount", "rm", "given"))


@pytest.mark.parametrize("words", [
    ("mount", "add", "--tenant", "", "x", "/usr"), ("mount", "add", "--tenant", "A", "x", "/usr"),
    ("mount", "add", "--tenant", "a" * 63, *["--tenant=" + "b" * 63] * 16, "x", "/usr"),
    ("root", "add", "Bad Name", "/usr"), ("root", "add", "x", "/none"), ("root", "rm", "none"),
    ("mount", "add", "x", "/etc/hostname"), ("mount", "add", "y" * 64, "/usr"),
])
def test_what_cannot_be_registered_is_refused(cove, words):
    result = cove(*words)
    assert result.returncode == 125 and result.stderr.startswith(b"cove: ")


# ---- an engine of one's own ----------------------------------------------------------------------

def test_an_engine_of_ones_own_starts_once_and_by_itself(tmp_path):
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "XDG_DATA_HOME": str(tmp_path / "data"),
           "XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}
    env.pop("COVE_URL", None)
    started = [subprocess.Popen([harness.COVE, "ls", "-q"], env=env, stderr=subprocess.PIPE)
               for _ in range(4)]
    try:
        for each in started:
            _, said = each.communicate(timeout=60)
            assert (each.returncode, said) == (0, b"")
        log = (runtime / "cove" / "serve.log").read_text()
        assert log.count("cove-engine ready") == 1, log
    finally:
        stop_keeper(runtime / "cove" / "cove.sock")


def test_an_engine_that_is_just_ending_is_followed_by_another(tmp_path):
    """It takes the connection, and is gone before it answers."""
    runtime = tmp_path / "runtime"
    (runtime / "cove").mkdir(parents=True, mode=0o700)
    runtime.chmod(0o700)
    path = runtime / "cove" / "cove.sock"
    env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "XDG_DATA_HOME": str(tmp_path / "data"),
           "XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}
    env.pop("COVE_URL", None)
    with socket.socket(socket.AF_UNIX) as ending:
        ending.bind(str(path))
        ending.listen()
        began = time.monotonic()
        client = subprocess.Popen([harness.COVE, "ls", "-q"], env=env, stderr=subprocess.PIPE)
        connection, _ = ending.accept()
        path.unlink()
    connection.close()
    try:
        _, said = client.communicate(timeout=60)
        assert (client.returncode, said) == (0, b"")
        assert time.monotonic() - began < 20 * harness.PATIENCE
    finally:
        stop_keeper(path)


def stop_keeper(path):
    """The keeper that listens there ends."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(path).encode() in words:
            harness.kill(int(entry.name), signal.SIGTERM)
            harness.wait_for(lambda: not entry.exists(), 30, "the end of the keeper")


def test_an_engine_that_does_not_start_says_why(tmp_path):
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    (tmp_path / "data" / "cove").mkdir(parents=True)
    (tmp_path / "data" / "cove" / "stranger").write_text("x")
    env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "XDG_DATA_HOME": str(tmp_path / "data"),
           "HOME": str(tmp_path)}
    env.pop("COVE_URL", None)
    started = time.monotonic()
    result = subprocess.run([harness.COVE, "ls"], env=env, capture_output=True, timeout=60, check=False)
    assert result.returncode == 125 and b"did not start" in result.stderr
    assert b"neither empty nor cove's" in result.stderr and b"serve.log" in result.stderr
    assert time.monotonic() - started < 15 * harness.PATIENCE
