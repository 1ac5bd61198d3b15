"""Terminals as a person sees them: the command line in tmux, which draws what it is told and types what we
tell it. Frames and bytes are in test_terminal.py."""
import json
import re
import shlex
import signal
import subprocess

import pytest

import harness
import serving
from scripted import commands


nothing_left, serve = serving.one_for_all()[:2]
env, cove = commands(TERM="xterm-256color", PS1="$ ", LC_ALL="C.UTF-8", HISTFILE="", LANG="C.UTF-8")


@pytest.fixture(scope="module")
def box(cove):
    made = cove("create", "screen", "--ephemeral", "--env", "PS1=in$ ")
    assert made.returncode == 0, made.stderr
    yield "screen"
    assert cove("rm", "screen").returncode == 0


class Screen:
    """A terminal with a shell in it, or what is to run in the shell's place."""

    def __init__(self, tmux, name, rows=24, columns=80):
        self.tmux = tmux
        self.name = name
        self.tmux("new-session", "-d", "-s", name, "-x", str(columns), "-y", str(rows),
                  "env", "PS1=$ ", "bash", "--norc", "--noprofile")
        self.sees(r"^\$$")

    def text(self):
        return self.tmux("capture-pane", "-p", "-t", self.name)

    def sees(self, pattern, seconds=30):
        """Until the screen as a whole has it, which is multi-line; the text."""
        held = []

        def is_there():
            held[:] = [self.text()]
            return re.search(pattern, held[0], re.MULTILINE)
        try:
            harness.wait_for(is_there, seconds * harness.PATIENCE, pattern)
        except AssertionError as error:
            raise AssertionError(f"{pattern!r} is not on the screen:\n{held[0]}") from error
        return held[0]

    def type(self, text):
        self.tmux("send-keys", "-t", self.name, "-l", text)

    def keys(self, *names):
        self.tmux("send-keys", "-t", self.name, *names)

    def line(self, text):
        self.type(text)
        self.keys("Enter")

    def resize(self, rows, columns):
        self.tmux("resize-window", "-t", self.name, "-x", str(columns), "-y", str(rows))

    def clear(self):
        self.keys("C-l")


@pytest.fixture
def screens(env, tmp_path):
    socket = tmp_path / "tmux"
    config = tmp_path / "tmux.conf"
    config.write_text("set -g status off\n", encoding="ascii")

    def tmux(*words):
        done = subprocess.run(["tmux", "-u", "-S", socket, "-f", config, *words],
                              capture_output=True, text=True, env=env, check=False,
                              timeout=60 * harness.PATIENCE)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    count = 0

    def make(**more):
        nonlocal count
        count += 1
        return Screen(tmux, f"s{count}", **more)

    yield make
    if count > 0:
        subprocess.run(["tmux", "-S", socket, "kill-server"], env=env, check=False,
                       capture_output=True, timeout=60)


@pytest.fixture
def screen(screens):
    return screens()


def process_in(cove, box, command):
    """The id of the newest process of that command line."""
    lines = cove("ps", box).stdout.decode().splitlines()[1:]
    return [line.split()[0] for line in lines if line.rstrip().endswith(command)][-1]


# ---- programs ----

def test_a_shell_with_job_control_and_its_exit_code(screen, box):
    screen.line(f"cove exec -it {box} -- bash --norc --noprofile")
    screen.sees(r"^in\$$")
    screen.line("sleep 1234")
    screen.sees(r"^in\$ sleep 1234\n\n")
    screen.line("")  # typed ahead, for the shell
    screen.keys("C-c")
    screen.sees(r"\^C\nin\$")
    screen.line("sh -c 'echo begun; exec cat'")
    screen.sees("^begun")
    screen.keys("C-z")
    screen.sees("Stopped")
    screen.line("jobs; fg")
    screen.sees(r"^sh -c 'echo begun; exec cat'$")
    screen.line("through cat")
    screen.sees(r"through cat\nthrough cat")
    screen.keys("C-d")
    screen.line("exit 42")
    screen.sees(r"^\$$")
    screen.line("echo status $?; stty -a | grep -c 'isig icanon iexten echo '")
    screen.sees(r"^status 42\n1$")


def test_an_editor_edits_and_saves(screen, cove, box):
    screen.line(f"cove exec -it {box} -- vim -u NONE -N /tmp/edited")
    screen.sees(r'"/tmp/edited" \[New\]|^~')
    screen.type("ifirst line")
    screen.keys("Enter")
    screen.type("zweite Zeile: äöü €")
    screen.keys("Escape")
    screen.type("ggyyP")
    screen.sees(r"^first line\nfirst line\nzweite Zeile: äöü €\n~")
    screen.resize(12, 60)
    screen.line(":set lines? columns?")
    screen.sees(r"lines=12\n\s*columns=60")
    screen.keys("Enter")
    screen.line(":wq")
    screen.sees(r"^\$$")
    assert cove("exec", box, "--", "cat", "/tmp/edited").stdout.decode() == (
        "first line\nfirst line\nzweite Zeile: äöü €\n")


def test_a_full_screen_program_draws_and_quits(screen, box):
    screen.line(f"cove exec -it {box} -- htop")
    text = screen.sees(r"F10.?Quit")
    assert "CPU" in text and "Mem" in text and "htop" in text
    screen.resize(30, 100)
    harness.wait_for(lambda: screen.text().split("\n")[29].startswith("F1"), 30 * harness.PATIENCE,
                     "the last line at its new place")
    screen.keys("q")
    screen.sees(r"^\$$")


def test_python_reads_lines_and_edits_them(screen, box):
    screen.line(f"cove exec -it {box} -- /usr/bin/python3 -q")
    screen.sees(r"^>>>$")
    screen.line("x = 6")
    screen.type("print(x * 8)")
    screen.keys("Left", "BSpace")
    screen.type("7")
    screen.keys("Enter")
    screen.sees(r"^>>> print\(x \* 7\)\n42\n>>>$")
    screen.keys("C-d")
    screen.sees(r"^\$$")


def test_the_size_is_that_of_the_screen_and_goes_with_it(screen, box):
    screen.line(f"cove exec -it {box} -- bash --norc --noprofile")
    screen.sees(r"^in\$$")
    screen.line("stty size")
    screen.sees("^24 80$")
    screen.resize(40, 120)
    screen.line("stty size")
    screen.sees("^40 120$")
    screen.line("exit")
    screen.sees(r"^\$$")


# ---- coming and going ----

def test_one_detaches_comes_back_and_finds_the_screen(screen, cove, box):
    screen.line(f"cove exec -it {box} -- vim -u NONE -N")
    screen.sees("^~")
    screen.type("ikept on the screen")
    screen.keys("Escape")
    screen.sees("^kept on the screen")
    screen.keys("C-p", "C-q")
    text = screen.sees("detached; cove attach")
    process = re.search(rf"cove attach {box} (\d+) comes back", text)[1]
    screen.line("clear; stty -a | grep -c 'isig icanon iexten echo '")
    screen.sees(r"^1\n\$$")
    # By other keys, and on a screen of another size.
    screen.resize(16, 70)
    screen.line(f"cove attach {box} {process} --detach-keys ctrl-a,d")
    screen.sees(r"^kept on the screen\n(~\n)+")
    screen.type("onext line")
    screen.keys("Escape")
    screen.sees(r"^kept on the screen\nnext line\n~")
    screen.keys("C-a", "d")
    screen.sees("detached")
    screen.line(f"clear; cove attach {box} {process}; echo status $?")
    screen.sees(r"^kept on the screen\nnext line\n~")
    screen.line(":cq 5")
    screen.sees("^status 5$")


def test_two_see_the_same_and_one_may_only_look(screens, cove, box):
    one, two = screens(), screens()
    one.line(f"cove exec -it {box} -- bash --norc --noprofile -i")
    one.sees(r"^in\$$")
    process = process_in(cove, box, "bash --norc --noprofile -i")
    two.line(f"cove attach --read-only {box} {process}; echo looked $?")
    two.sees(r"^in\$")
    one.line("echo shown to both")
    one.sees("^shown to both")
    two.sees("^shown to both")
    two.line("echo not typed")
    one.line("echo end; exit 3")
    two.sees("^looked 3")
    one.sees(r"^\$$")
    assert "not typed" not in one.text()


def test_a_killed_engine_is_not_noticed(serve, screen, cove, box):
    screen.line(f"cove exec -it {box} -- vim -u NONE -N")
    screen.sees("^~")
    screen.type("ibefore")
    screen.keys("Escape")
    screen.sees("^before")
    serve.kill_engine(signal.SIGKILL)
    screen.type("oafter")
    screen.keys("Escape")
    screen.sees(r"^before\nafter\n~")
    serve.kill_engine(signal.SIGTERM)
    screen.type("oagain")
    screen.keys("Escape")
    screen.sees(r"^before\nafter\nagain\n~")
    screen.line(":cq 6")
    screen.sees(r"^\$$")
    screen.line("echo status $?")
    screen.sees("^status 6$")


def test_reattaching_after_a_kill_of_the_engine_shows_the_screen(serve, screens, cove, box):
    screen = screens()
    screen.line(f"cove exec -it {box} -- htop -d 100")
    screen.sees(r"F10.?Quit")
    screen.keys("C-p", "C-q")
    screen.sees("detached")
    serve.kill_engine(signal.SIGKILL)
    other = screens(rows=20, columns=90)
    other.line(f"cove attach {box} {process_in(cove, box, 'htop -d 100')}")
    other.sees(r"F10.?Quit")
    harness.wait_for(lambda: other.text().split("\n")[19].startswith("F1"), 30 * harness.PATIENCE,
                     "the last line where it is on this screen")
    other.keys("q")
    other.sees(r"^\$$")


def test_a_terminal_that_is_closed_hangs_up(env, cove, box, tmp_path):
    """As when the window is closed; and the terminal of the command hears of it."""
    socket = tmp_path / "tmux"
    line = (f"{harness.COVE} exec -it {box} -- sh -c "
            + shlex.quote("trap 'echo hung up >/tmp/hung; exit' HUP; echo up; while :; do sleep 0.05; done"))
    subprocess.run(["tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24",
                    line], env=env, check=True, timeout=60)
    harness.wait_for(lambda: "up" in subprocess.run(
        ["tmux", "-S", socket, "capture-pane", "-p"], env=env, capture_output=True, text=True,
        check=False).stdout, 30 * harness.PATIENCE, "the command")
    subprocess.run(["tmux", "-S", socket, "kill-server"], env=env, check=True, timeout=60)
    harness.wait_for(lambda: cove("exec", box, "--", "cat", "/tmp/hung").stdout == b"hung up\n",
                     30 * harness.PATIENCE, "the hang-up")


# ---- without a terminal of ours ----

def test_what_is_piped_is_typed(cove, box):
    done = cove("exec", "-it", box, "--", "sh", "-c", "stty -echo; tty; cat; echo end", stdin=b"a\nb\n")
    assert done.returncode == 0, done
    out = done.stdout.decode()
    assert out.startswith("/dev/pts/") or "\r\n/dev/pts/" in out, out
    assert out.endswith("end\r\n") and "a\r\nb\r\n" in out, out


def test_a_file_is_typed_as_a_pipe_is(cove, env, box, tmp_path):
    (tmp_path / "typed").write_bytes(b"a\nb\n")
    for path, shown in ((tmp_path / "typed", b"a\r\nb\r\nend\r\n"), ("/dev/null", b"end\r\n")):
        with open(path, "rb") as file:
            done = subprocess.run([harness.COVE, "exec", "-it", box, "--", "sh", "-c", "stty -echo; cat; echo end"],
                                  stdin=file, capture_output=True, env=env, timeout=60 * harness.PATIENCE, check=False)
        assert done.returncode == 0 and done.stdout.endswith(shown) and done.stderr == b"", done
    done = subprocess.run(f"{harness.COVE} exec -it {box} -- sh -c 'cat; echo end' <&-", shell=True, capture_output=True,
                          env=env, timeout=60 * harness.PATIENCE, check=False)
    assert done.returncode == 0 and done.stdout.endswith(b"end\r\n"), done


@pytest.mark.parametrize("words", [("bash",), ("bash", "--norc", "-i"), ("/usr/bin/python3", "-q"), ("sh",),
                                   ("sh", "-c", "sleep 0.4; stty raw -echo; sleep 0.1; stty sane; read a; read b; read c; exit 1"),
                                   ("bash", "-c", "exec bash --norc -i")])
def test_a_program_that_starts_slowly_gets_the_end_of_its_input(cove, box, words):
    for stdin in (b"", b"true\n"):
        done = cove("exec", "-it", box, "--", *words, stdin=stdin, limit=20)
        assert done.returncode in (0, 1), done
        done = cove("run", "-it", "--", *words, stdin=stdin, limit=20)
        assert done.returncode in (0, 1), done


def test_a_program_that_reads_no_keys_runs_on_after_the_end_of_its_input(cove, box):
    for line in (("exec", "-it", box), ("run", "-it")):
        done = cove(*line, "--", "sh", "-c", "sleep 2; read a || read a || echo no more", limit=20)
        assert done.returncode == 0 and done.stdout.endswith(b"no more\r\n"), done


def test_what_takes_no_keys_ends_with_the_second_interrupt(screen, cove, box):
    screen.line(f"cove exec -t {box} -- bash --norc --noprofile; echo status $?")
    screen.sees(r"^in\$")
    screen.keys("C-c")
    screen.sees(r"in\$.*\n(in\$)")
    screen.keys("C-c")
    screen.sees("status 130$")
    harness.wait_for(lambda: b" running " not in cove("ps", box).stdout, 30 * harness.PATIENCE, "the end of the shell")


def test_one_that_only_looks_leaves_with_an_interrupt(screen, cove, box):
    process = cove("exec", "-dt", box, "--", "sh", "-c", "echo looked at; exec sleep 600").stdout.decode().strip()
    screen.line(f"cove attach --read-only {box}; echo status $?")
    screen.sees("looked at")
    screen.keys("C-c")
    screen.sees("status 130$")
    assert cove("kill", box, process).returncode == 0


def test_a_shell_opens_on_a_terminal_and_takes_a_script(screen, cove, box):
    screen.line(f"cove shell {box}")
    screen.sees(r"^in\$|[#$] ?$")
    screen.line("echo sum $((40 + 2)); exit 3")
    screen.sees("^sum 42$")
    screen.line("echo status $?")
    screen.sees("^status 3$")
    done = cove("shell", box, "-w", "/tmp", stdin=b"pwd; exit 4\n")
    assert (done.returncode, done.stdout) == (4, b"/tmp\n"), done


def test_a_terminal_without_input(cove, box):
    done = cove("exec", "-t", box, "--", "sh", "-c", "tty; stty size; exit 9")
    assert done.returncode == 9 and re.fullmatch(rb"/dev/pts/\d+\r\n24 80\r\n", done.stdout), done


def test_started_and_left_for_later(cove, box):
    process = cove("exec", "-dt", box, "--", "sh", "-c", "read line; echo got $line; exit 4")
    assert process.returncode == 0, process
    done = cove("attach", box, process.stdout.decode().strip(), stdin=b"it\n")
    assert done.returncode == 4 and done.stdout == b"it\r\ngot it\r\n", done


def test_who_has_no_terminal_leaves_the_size_alone(cove, box):
    """Not even for the moment that has a program draw itself anew."""
    script = ("trap 'echo resized' WINCH; stty -echo; stty rows 30 columns 99; echo on; "
              "read line; stty size; read line; stty size")
    process = cove("exec", "-dt", box, "--", "sh", "-c", script).stdout.decode().strip()
    harness.wait_for(lambda: b"on" in cove("logs", box, process).stdout, 30 * harness.PATIENCE, "on")
    done = cove("attach", box, process, stdin=b"a\nb\n")
    assert done.returncode == 0 and done.stdout.endswith(b"on\r\n30 99\r\n30 99\r\n"), done


@pytest.mark.parametrize("words,text", [
    (("exec", "-i", "--json", "screen", "--", "true"), b"--json"),
    (("exec", "-it", "--detach-keys", "ctrl-", "screen", "--", "true"), b"--detach-keys"),
    (("attach", "--detach-keys", "ab", "screen", "1"), b"--detach-keys"),
    (("attach", "screen", "999999"), b"999999"), (("exec", "-xt", "screen", "--", "true"), b"-xt")])
def test_what_cannot_be_is_said(cove, box, words, text):
    done = cove(*words)
    assert done.returncode == 125 and text in done.stderr and done.stderr.count(b"\n") == 1, done


def test_who_has_no_terminal_is_told_what_to_do(cove, box):
    process = cove("exec", "-d", box, "--", "sleep", "1000").stdout.decode().strip()
    done = cove("attach", box, process)
    assert done.returncode == 125 and b"no terminal" in done.stderr, done
    assert cove("kill", box, process).returncode == 0
    done = cove("exec", "-it", box, "--", "no-such-program")
    assert done.returncode == 127 and b"command not found" in done.stdout, done


def last_object(done):
    return json.loads(done.stdout.decode().splitlines()[-1])


def test_what_came_of_it_is_said_at_the_end(cove, box):
    done = cove("exec", "-t", "--json", box, "--", "sh", "-c", "echo shown; exit 5")
    assert done.returncode == 5 and done.stdout.startswith(b"shown\r\n"), done
    result = last_object(done)
    assert result["process"]["exit_code"] == 5 and result["detached"] is False
    process = cove("exec", "-dt", box, "--", "sh", "-c", "read line; kill -TERM $$").stdout.decode().strip()
    done = cove("attach", "--json", box, process, stdin=b"\n")
    assert done.returncode == 128 + signal.SIGTERM, done
    assert last_object(done)["process"]["id"] == process
    assert last_object(done)["process"]["signal"] == "SIGTERM"


def test_who_detaches_is_told_from_what(cove, box, screen):
    screen.line("cove exec -it --json screen -- sh")
    screen.sees(r"^in\$")
    screen.keys("C-p", "C-q")
    screen.sees(r'"detached": true')
    process = json.loads(cove("ps", "--json", box).stdout)["processes"][-1]["id"]
    assert f'"id": "{process}"' in screen.text()
    done = cove("kill", "--json", box, process)
    assert done.returncode == 0 and json.loads(done.stdout)["id"] == process, done
