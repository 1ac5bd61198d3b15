"""`cove run` as its help describes it: exit codes, output, terminals, signals, time and users."""
import errno
import fcntl
import json
import os
import pathlib
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

import harness
from harness import cove, end, run, run_plain, start

FIELDS = {"exit_code", "signal", "timed_out", "oom_killed", "stdout", "stderr",
          "stdout_dropped_bytes", "stderr_dropped_bytes", "wall_ms", "cpu_ms", "peak_memory_bytes",
          "level", "limits", "warnings", "ids", "disk", "disk_exceeded", "pids_exceeded"}


# ---- exit codes --------------------------------------------------------------------------------

@pytest.mark.parametrize("command, code", [
    ("true", 0), ("exit 7", 7), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137),
    ("kill -SEGV $$", 139),
])
def test_exit_code_passes_through(command, code):
    assert run_plain(command).code == code


def test_not_found_and_not_executable():
    for command, code in ((["no-such-program"], 127), (["/no/such/program"], 127),
                          (["/etc/passwd"], 126), (["/usr"], 126)):
        result = run_plain(command)
        assert result.code == code, (command, result)
        assert len(result.err.decode().splitlines()) == 1
        report = run(command)
        assert report.report["exit_code"] == code


def test_a_script_without_interpreter_line_is_the_shells(workspace):
    script = workspace / "script"
    script.write_text("echo from the script $1\n")
    script.chmod(0o755)
    assert run(["./script", "x"], "--workspace", workspace).stdout == "from the script x\n"
    script.write_text("#!/no/such/interpreter\n")
    assert run_plain(["./script"], "--workspace", workspace).code == 127


# ---- JSON --------------------------------------------------------------------------------------

def test_json_has_exactly_its_fields():
    result = cove("run", "--json", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert result.code == 3 and result.err == b"" and result.out.count(b"\n") == 1
    report = json.loads(result.out)
    assert set(report) == FIELDS
    assert (report["exit_code"], report["signal"]) == (3, None)
    assert (report["timed_out"], report["oom_killed"]) == (False, False)
    assert (report["stdout"], report["stderr"]) == ("out\n", "err\n")
    assert (report["stdout_dropped_bytes"], report["stderr_dropped_bytes"]) == (0, 0)
    assert 0 < report["wall_ms"] < 5000 and 0 <= report["cpu_ms"] < 5000
    assert 100_000 < report["peak_memory_bytes"] < 100 << 20
    assert report["level"] == "full"


def test_json_names_the_signal():
    for name, number in (("SIGTERM", 15), ("SIGKILL", 9), ("SIGUSR1", 10)):
        result = run(f"kill -{number} $$")
        assert result.report["signal"] == name and result.code == 128 + number
        assert result.report["exit_code"] in (None, 128 + number)


def test_json_of_invalid_utf8_loses_nothing():
    result = run(r"printf 'a\377b\303\251\342\202'; printf '\300\200' >&2")
    assert result.report["stdout"].startswith("a�bé�")
    assert "�" in result.report["stderr"]
    import base64
    assert base64.b64decode(result.report["stdout_base64"]) == b"a\xffb\xc3\xa9\xe2\x82"
    assert base64.b64decode(result.report["stderr_base64"]) == b"\xc0\x80"


def test_json_keeps_control_bytes_and_nul():
    assert run(r"printf 'a\000b\033[1m\177\r\n'").stdout == "a\0b\x1b[1m\x7f\r\n"


def test_output_limit_keeps_the_newest_bytes():
    result = run("seq 1 100000; seq 1 10 >&2", "--output-limit", "1000")
    whole = "".join(f"{number}\n" for number in range(1, 100001))
    assert result.stdout == whole[-1000:]
    assert result.report["stdout_dropped_bytes"] == len(whole) - 1000
    assert result.report["stderr_dropped_bytes"] == 0


def test_output_limit_does_not_cut_a_character():
    result = run("i=0; while [ $i -lt 1000 ]; do printf é; i=$((i+1)); done", "--output-limit",
                 "101")
    assert result.stdout == "é" * 50
    assert result.report["stdout_dropped_bytes"] == 2000 - 100


def test_json_measures_cpu_and_memory():
    result = run(["/usr/bin/python3", "-c",
                  "import time\nx = bytearray(50 << 20)\nx[::4096] = b'x' * len(x[::4096])\n"
                  "end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"])
    assert 290 <= result.report["cpu_ms"] <= 2000
    assert 50 << 20 <= result.report["peak_memory_bytes"] <= 120 << 20


# ---- when it returns ---------------------------------------------------------------------------

@pytest.mark.parametrize("json_option", [(), ("--json",)])
def test_it_returns_when_the_command_exits_not_its_children(json_option):
    result = cove("run", *json_option, "--", "sh", "-c", "sleep 30 & echo hi", limit=20)
    assert b"hi" in result.out and result.seconds < 15


def test_what_a_background_child_wrote_before_is_there():
    result = run("(echo early; touch /tmp/said; sleep 30) & until [ -e /tmp/said ]; do sleep 0.02; done; echo late")
    assert result.stdout == "early\nlate\n"


def test_timeout_ends_what_ignores_signals():
    took = []
    while not took or (took[-1] > 1.3 and len(took) < 10):
        time.sleep(0.5 * len(took))
        result = cove("run", "--json", "--timeout", "1s", "--", "sh", "-c", 'trap "" TERM; sleep 60')
        report = json.loads(result.out)
        assert result.code == 124 and report["timed_out"] and report["exit_code"] == 124
        took.append(result.seconds)
    assert min(took) >= 1.0 and took[-1] <= 1.3, took


def test_timeout_keeps_the_output_so_far():
    result = run("echo before; echo problem >&2; sleep 60; echo after", "--timeout", "10s")
    assert (result.stdout, result.stderr) == ("before\n", "problem\n")
    assert run_plain("sleep 60", "--timeout", "0.2s").code == 124


def test_timeout_that_is_not_reached():
    assert not run("true", "--timeout", "1h").report["timed_out"]


def test_init_and_guard_have_short_turns_and_programs_the_usual():
    """They run briefly, and somebody waits for it."""
    if harness.kernel() < (6, 12):
        return
    box = start("echo ready; sleep 30")
    try:
        assert box.stdout.readline() == b"ready\n"
        turns = {harness.status_of(pid)["Name"].removeprefix("memfd:"): harness.turn_ns(pid)
                 for pid in harness.children_of(box.pid)}
        assert turns.pop("cove-guard") == turns.pop("cove-init") == 100_000
        assert set(turns.values()) == {harness.turn_ns(os.getpid())}, turns
    finally:
        end(box)


# ---- stdio -------------------------------------------------------------------------------------

def test_stdin_passes_through():
    data = os.urandom(3 << 20)
    result = run_plain(["sha256sum"], send=data)
    import hashlib
    assert result.out.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert run("cat; echo end", send=b"words\n").stdout == "words\nend\n"


def test_stdin_from_a_file_is_that_file(tmp_path):
    path = tmp_path / "input"
    path.write_text("one\ntwo\n")
    with open(path, "rb") as file:
        result = run_plain("read first; echo got $first", stdin=file)
        assert result.out == b"got one\n"


def test_closed_stdin_is_empty():
    done = subprocess.run([harness.COVE, "run", "--", "cat"], capture_output=True, timeout=20,
                          preexec_fn=lambda: os.close(0), check=False)
    assert (done.returncode, done.stdout) == (0, b"")


def test_output_to_a_file_is_not_pumped(tmp_path):
    path = tmp_path / "output"
    with open(path, "wb") as file:
        box = start("echo a; echo b >&2", stdout=file, stderr=file)
        assert box.wait(timeout=10) == 0
    assert sorted(harness.without_warning(path.read_bytes()).split()) == [b"a", b"b"]


def test_stdout_and_stderr_stay_apart():
    result = run_plain("echo out; echo err >&2")
    assert (result.out, result.err) == (b"out\n", b"err\n")


def test_large_binary_output_is_complete():
    result = run_plain("head -c 5000000 /dev/urandom | tee /dev/stderr | cat")
    assert len(result.out) == 5000000 and result.err == result.out


# ---- signals -----------------------------------------------------------------------------------

def ready(command, *options):
    """A box whose command has said so, and whose shell has come to its next one: a shell loses
    signals while it forks."""
    box = start(command, *options)
    assert box.stdout.readline() == b"ready\n"
    sleeps(box)
    return box


def sleeps(box):
    harness.wait_for(lambda: any(harness.status_of(pid).get("Name") == "sleep" for pid in harness.box_processes(box)),
                     what="the command's sleep")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT,
                                    signal.SIGUSR1, signal.SIGUSR2])
def test_signals_are_forwarded(number):
    name = number.name[3:]
    box = ready(f"trap 'echo caught; exit 5' {name}; echo ready; while :; do sleep 0.05; done")
    box.send_signal(number)
    output, _ = box.communicate(timeout=10)
    assert (box.returncode, output) == (5, b"caught\n")


def test_a_signal_that_is_not_caught_ends_the_command():
    for number in (signal.SIGTERM, signal.SIGINT):
        box = ready("echo ready; exec sleep 60")
        box.send_signal(number)
        assert box.wait(timeout=10) == 128 + number
        end(box)


def test_signals_reach_the_whole_group():
    box = ready("echo ready; sleep 60; echo never")
    box.send_signal(signal.SIGINT)
    output, _ = box.communicate(timeout=10)
    assert box.returncode == 130 and output == b""


def test_a_second_signal_kills_what_takes_no_first():
    for first, second in ((signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGHUP)):
        box = ready("trap 'echo told' INT TERM HUP; echo ready; while :; do sleep 0.05; done")
        box.send_signal(first)
        assert box.stdout.readline() == b"told\n"
        time.sleep(0.15)
        assert box.poll() is None
        box.send_signal(second)
        assert box.wait(timeout=10) == 128 + signal.SIGKILL
        end(box)


def test_a_signal_that_is_sent_twice_at_once_is_one():
    """As by a wrapper that passes on what its whole group got."""
    box = ready("trap 'sleep 0.5; echo told; exit 7' INT; echo ready; while :; do sleep 0.05; done")
    for _ in range(2):
        box.send_signal(signal.SIGINT)
        time.sleep(0.01)
    output, _ = box.communicate(timeout=10)
    assert (box.returncode, output) == (7, b"told\n")


def test_other_signals_are_passed_on_as_often_as_they_come():
    box = ready("trap 'echo told' USR1; echo ready; while :; do sleep 0.05; done")
    for _ in range(3):
        box.send_signal(signal.SIGUSR1)
        assert box.stdout.readline() == b"told\n"
        time.sleep(0.15)
    box.kill()
    end(box)


def test_a_signal_at_the_very_start_ends_it():
    for delay in (0, 0.0005, 0.001, 0.002, 0.004):
        box = start(["sleep", "60"])
        time.sleep(delay)
        box.terminate()
        assert box.wait(timeout=10) in (143, -15)
        end(box)


# ---- terminals ---------------------------------------------------------------------------------

class Terminal:
    """cove run --tty on a terminal of the test."""

    def __init__(self, command, *options, rows=31, columns=97):
        self.leader, follower = os.openpty()
        self.before = termios.tcgetattr(follower)
        self.resize(rows, columns)
        self.follower = follower
        self.process = subprocess.Popen(
            [str(harness.COVE), "run", "--tty", *options, "--", *harness.words(command)],
            stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.seen = b""

    def resize(self, rows, columns):
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text):
        os.write(self.leader, text)

    def expect(self, text, seconds=10):
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not come: {self.seen!r}"
            if select.select([self.leader], [], [], left)[0]:
                try:
                    self.seen += os.read(self.leader, 65536)
                except OSError as error:
                    assert error.errno == errno.EIO and text in self.seen, self.seen
        self.seen = self.seen.split(text, 1)[1]

    def finish(self):
        code = self.process.wait(timeout=10)
        after = termios.tcgetattr(self.follower)
        os.close(self.leader)
        os.close(self.follower)
        assert after == self.before, "the terminal was not restored"
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def test_tty_is_a_terminal_with_the_size_of_the_callers():
    with Terminal("tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo all; exit 4") as terminal:
        terminal.expect(b"/dev/pts/0")
        terminal.expect(b"31 97")
        terminal.expect(b"all")
        assert terminal.finish() == 4


def test_tty_follows_a_resize():
    with Terminal("trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done") as terminal:
        terminal.expect(b"ready")
        terminal.resize(40, 120)
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.expect(b"40 120")
        assert terminal.finish() == 0


def test_tty_control_c_is_the_boxs():
    with Terminal("trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.05; done") as terminal:
        terminal.expect(b"ready")
        sleeps(terminal.process)
        terminal.send(b"\x03")
        terminal.expect(b"interrupted")
        assert terminal.finish() == 3


def test_tty_has_job_control_and_echo():
    with Terminal(["bash", "--norc", "-i"]) as terminal:
        terminal.expect(b"$ ")
        # In two words, for what is typed is shown, too.
        terminal.send(b"sh -c 'echo go''ing; exec sleep 60'\r")
        terminal.expect(b"going")
        terminal.send(b"\x1a")
        terminal.expect(b"Stopped")
        terminal.send(b"jobs; echo $((6*7))\r")
        terminal.expect(b"42")
        terminal.send(b"exit\r")
        terminal.send(b"exit 9\r")
        terminal.process.wait(timeout=10)
        assert terminal.finish() == 9


def test_tty_end_of_file():
    with Terminal("echo ready; cat; echo done") as terminal:
        terminal.expect(b"ready")
        terminal.send(b"hello\r")
        terminal.expect(b"hello\r\nhello")
        terminal.send(b"\x04")
        terminal.expect(b"done")
        assert terminal.finish() == 0


def test_tty_is_restored_when_cove_is_ended():
    with Terminal("echo ready; sleep 60") as terminal:
        terminal.expect(b"ready")
        sleeps(terminal.process)
        terminal.process.terminate()
        assert terminal.finish() == 143


def test_tty_without_a_terminal_still_gives_one_to_the_command():
    result = run_plain("tty; cat; echo done", "--tty", send=b"")
    assert b"/dev/pts/0" in result.out and result.code == 0


def test_a_terminal_of_the_caller_is_never_passed_in():
    leader, follower = os.openpty()
    try:
        box = start("test -t 0 || echo none; test -t 1 || echo none; tty", stdin=follower,
                    stdout=follower, stderr=follower)
        box.wait(timeout=10)
        output = b""
        while b"not a tty" not in output and select.select([leader], [], [], 10)[0]:
            output += os.read(leader, 4096)
    finally:
        os.close(leader)
        os.close(follower)
    assert output.count(b"none") == 2 and b"not a tty" in output, output


# ---- users, environment, names -------------------------------------------------------------------

def test_default_user_and_home():
    assert run("id -u; id -g; id -un; echo $HOME; pwd").stdout.split() == [
        "1000", "1000", "user", "/home/user", "/home/user"]
    assert run("id -u; id -un; echo $HOME", "--privileges", "system").stdout.split() == [
        "0", "root", "/root"]


@pytest.mark.parametrize("user, uid, gid", [
    ("nobody", "65534", "65534"), ("1000", "1000", "1000"), ("321", "321", None),
    ("user:tty", "1000", "5"), ("user:77", "1000", "77"), ("12:34", "12", "34")])
def test_user_option(user, uid, gid):
    result = run("id -u; id -g", "--user", user)
    assert result.stdout.split()[0] == uid
    assert gid is None or result.stdout.split()[1] == gid


def test_environment_is_exactly_what_was_asked_for():
    environment = dict(os.environ, COVE_SECRET="1", PASSED="yes", LANG="C.UTF-8", TERM="xterm")
    result = run(["env", "-0"], "--env", "A=1", "--env", "PASSED", "--env", "EMPTY=",
                 "--env", "MULTI=a=b\nc", env=environment)
    assert sorted(result.stdout.strip("\0").split("\0")) == sorted([
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/home/user",
        "USER=user", "LANG=C.UTF-8", "TERM=xterm", "A=1", "PASSED=yes", "EMPTY=", "MULTI=a=b\nc"])


def test_environment_can_replace_the_defaults():
    result = run(["sh", "-c", "echo $HOME $USER; greet"], "--env", "HOME=/tmp", "--env", "USER=me",
                 "--env", "PATH=/nowhere:/usr/bin:/bin")
    assert result.stdout == "/tmp me\n"


def test_a_hostile_terminal_name_is_not_passed_on():
    environment = dict(os.environ, TERM="x" * 200, LANG="../../evil")
    result = run(["env"], env=environment)
    assert "x" * 200 not in result.stdout and "evil" not in result.stdout


def test_hostname():
    assert run("hostname; cat /etc/hostname; getent hosts box.example | wc -l", "--hostname",
               "box.example").stdout.split() == ["box.example", "box.example", "1"]
    assert run(["hostname"]).stdout == "box\n"


def test_cwd(workspace):
    (workspace / "sub").mkdir()
    assert run(["pwd"], "--workspace", workspace).stdout == "/workspace\n"
    assert run(["pwd"], "--workspace", workspace, "--cwd",
               "/workspace/sub").stdout == "/workspace/sub\n"
    assert run(["pwd"], "--cwd", "/usr/bin").stdout == "/usr/bin\n"


def test_a_directory_at_workspace_is_where_the_command_starts(workspace):
    (workspace / "file").write_text("x")
    assert run("pwd; ls", "-v", f"{workspace}:/workspace").stdout == "/workspace\nfile\n"
    assert run(["pwd"], "-v", f"{workspace}:/workspace:ro", "-v", f"{workspace}:/data").stdout == "/workspace\n"
    assert run(["pwd"], "-v", f"{workspace}:/workspace", "-w", "/tmp").stdout == "/tmp\n"
    assert run(["pwd"], "-v", f"{workspace}:/workspace/sub").stdout == "/home/user\n"
    assert run(["pwd"], "-v", f"{workspace / 'file'}:/workspace").stdout == "/home/user\n"


def test_files_of_other_ids_can_be_deleted_outside(workspace):
    """As docs/verbs/run.md says."""
    system = ("--workspace", workspace, "--privileges", "system")
    run("mkdir mine others && echo x >mine/f && echo x >others/f && chown -R 1000:1000 others && chmod 700 others", *system)
    (workspace / "mine" / "f").unlink()
    if os.geteuid() != 0:
        with pytest.raises(PermissionError):
            (workspace / "others" / "f").unlink()
        subprocess.run(["unshare", "--map-auto", "-r", "rm", "-rf", workspace / "others"], check=True)
    else:
        (workspace / "others" / "f").unlink()
        (workspace / "others").rmdir()
    assert [path.name for path in workspace.iterdir()] == ["mine"]


def test_options_in_both_spellings(workspace):
    result = run_plain(["pwd"], f"--workspace={workspace}", "--memory=64M", "--cwd=/tmp")
    assert result.out == b"/tmp\n"


def test_a_workspace_named_relatively_and_through_a_link(workspace):
    (workspace / "file").write_text("x")
    link = workspace.parent / "link"
    link.symlink_to(workspace)
    for name in ("workspace", "./workspace", "link", "workspace/."):
        assert run(["ls"], "--workspace", name, cwd=workspace.parent).stdout == "file\n"


def test_image_roots(busybox, erofs):
    for root in (busybox, erofs):
        result = run(["/bin/sh", "-c", "id -u; ls /; echo x > /tmp/y; cat /tmp/y; ls /dev /proc/1"],
                     "--root", root)
        assert result.report["exit_code"] == 0, result.stderr
        assert result.stdout.startswith("1000\n") and "x" in result.stdout.split()
    assert not (busybox / "tmp/y").exists()


def test_groups_of_an_images_user(busybox):
    assert run(["/bin/id", "-G"], "--root", busybox).stdout.split() == ["1000", "50"]


# ---- help --------------------------------------------------------------------------------------

def test_help_lists_every_option_with_its_default():
    result = cove("run", "--help")
    text = result.out.decode()
    assert result.code == 0 and result.err == b""
    for option in ("root", "workspace", "mount", "cwd", "user", "env", "hostname", "privileges",
                   "memory", "cpus", "pids", "disk", "timeout", "output-limit", "net", "tty",
                   "json",
                   "help"):
        assert f"--{option}" in text
    for default in ("2G", "1024", "1G", "262144", "8M", "none", "plain", "set-id"):
        assert default in text
    assert max(map(len, text.splitlines())) <= 100
    assert b"run" in cove("--help").out


def test_version():
    for word, more in (("version", rb"(commit   .+\n)?machine  .+\nserver   .+\n"), ("--version", b"")):
        result = cove(word)
        assert result.code == 0 and re.fullmatch(rb"cove \d+\.\d+\.\d+\n" + more, result.out)


def test_it_links_libc_only_and_starts_quickly():
    listing = subprocess.run(["readelf", "-d", harness.RELEASE], capture_output=True, text=True,
                             check=True).stdout
    # The loader itself is no library that would have to be found; arm64 names it for its canary.
    needed = [name for name in re.findall(r"NEEDED.*\[(.*)\]", listing)
              if not name.startswith("ld-linux-")]
    assert needed == ["libc.so.6"]
    assert "BIND_NOW" in listing or "NOW" in listing
    times = []
    for _ in range(20):
        started = time.monotonic()
        subprocess.run([harness.RELEASE, "--version"], check=True, capture_output=True)
        times.append(time.monotonic() - started)
    assert sorted(times)[2] < 0.02
    assert pathlib.Path(harness.RELEASE).stat().st_size < 4 << 20
