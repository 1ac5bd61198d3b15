"""What the command line says of itself: help, exit statuses, manual pages, and the completion of words in
real shells."""
import contextlib
import fcntl
import itertools
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time

import pytest

import harness
import scripted
import serving
from scripted import COVE, Server, answer, cove, failed, problem

nothing_left, serve, _ = serving.one_for_all()


def good(*words, **more):
    return scripted.good(cove(*words, **more))


COMMANDS = re.findall(r"^  ([a-z]+) ", good("help").split("Exit status")[0], re.M)
VERBS = {"root": ("add", "ls", "rm"), "mount": ("attach", "detach", "add", "ls", "rm"), "key": ("new", "ls", "rm"),
         "config": ("show", "check", "sample")}
ALL = [(name, *verb) for name in COMMANDS for verb in
       ([(verb,) for verb in VERBS[name]] if name in VERBS else [()])]


# ---- help ----------------------------------------------------------------------------------------

def test_there_are_the_commands_that_this_file_speaks_of():
    assert {"run", "exec", "top", "df", "events", "man", "completion"} <= set(COMMANDS)
    assert len(COMMANDS) == len(set(COMMANDS))


@pytest.mark.parametrize("words", ALL)
def test_every_command_has_help_that_fits_a_terminal(words):
    text = good(*words, "--help")
    assert text.startswith(f"Usage: cove {' '.join(words)} ") and "--help" in text
    assert max(map(len, text.splitlines())) <= 100
    assert good("help", *words) == text


# Those that print nothing where all goes well, and those whose output is a text for another program.
SILENT = {("rm",), ("root", "add"), ("root", "rm"), ("mount", "add"), ("mount", "rm"), ("mount", "attach"),
          ("mount", "detach"), ("key", "rm"), ("serve",), ("config", "check")}
TEXTS = {("help",), ("man",), ("completion",), ("server",), ("shell",), ("config", "sample")}


@pytest.mark.parametrize("words", ALL)
def test_every_command_that_prints_something_prints_it_for_programs_too(words):
    assert ("--json" in good(*words, "--help")) == (words not in SILENT | TEXTS)


def statuses(text):
    """{status: meaning} of the lines of a table."""
    return dict(re.findall(r"^ +(\d[-+\dN]*) {2,}(.*)$", text, re.M))


def test_exit_statuses_are_the_same_everywhere():
    shown = statuses(good("--help").split("Exit status")[1])
    assert len(shown) == 7 or len(shown) == 8
    page = (harness.ROOT / "docs" / "command-line.md").read_text()
    table = page.split("## Exit status")[1].split("##")[0]
    assert re.findall(r"^ {4}(\d.*)$", table, re.M) == re.findall(
        r"^ {2}(\d.*)$", good("--help").split("Exit status")[1].split("Try:")[0], re.M)
    manual = good("man").replace("\\-", "-")
    for meaning in shown.values():
        assert meaning in manual


@pytest.mark.parametrize("words, meant", [
    (("exce",), "cove exec"), (("lst",), "cove ls"), (("key", "lss"), "cove key ls"),
    (("ls", "--qiet"), "--quiet"), (("exec", "--tiemout", "1", "x", "true"), "--timeout"),
    (("man", "evnts"), "cove events"), (("help", "lgos"), "cove logs"), (("key", "nwe"), "cove key new"),
])
def test_a_misspelt_word_is_told_with_what_was_meant(words, meant):
    failed(cove(*words), "did you mean", meant)


@pytest.mark.parametrize("words, same", [
    (("list", "--help"), ("ls", "--help")), (("inspect", "--help"), ("info", "--help")),
    (("delete", "--help"), ("rm", "--help")), (("stats", "--help"), ("top", "--help")),
    (("run", "-it", "-v/tmp:/t", "--rm", "-m64m", "--workdir", "/t", "--name", "n", "--", "sh", "-c", "hostname; pwd"),
     ("run", "--tty", "--mount", "/tmp:/t", "--memory", "64M", "--cwd", "/t", "--hostname", "n", "--", "sh", "-c",
      "hostname; pwd")),
    (("run", "--mount", "src=/tmp,type=bind,dst=/t,readonly", "--init", "--pids-limit", "50", "-q", "--cpus", "1", "-u", "nobody",
      "sh", "-c", "id -u; touch /t/x 2>/dev/null || echo no"),
     ("run", "-v", "/tmp:/t:ro", "--pids", "50", "--cpus=1", "--user=nobody", "sh", "-c", "id -u; touch /t/x 2>/dev/null || echo no")),
    (("run", "-h", "there", "hostname"), ("run", "--hostname", "there", "hostname")),
    (("run", "-h"), ("run", "--help")), (("create", "-h"), ("create", "--help")), (("create", "x", "-h"), ("create", "--help")),
    (("exec", "-h"), ("exec", "--help")), (("run", "sh", "-c", "echo $0 $1", "x", "-h"), ("run", "echo", "x", "-h")),
    (("run", "--volume=/tmp:/t:ro", "--network", "none", "-w", "/t", "pwd"),
     ("run", "--mount=/tmp:/t:ro", "--net", "none", "--cwd", "/t", "pwd")),
])
def test_words_of_docker_mean_what_they_do_there(words, same):
    assert good(*words) == good(*same)


@pytest.mark.parametrize("words, says", [
    (("prune",), ["cove rm"]), (("mcp",), ["planned"]), (("fork", "x"), ["planned"]), (("snapshot",), ["planned"]),
    (("pause", "x"), ["planned", "cove stop"]), (("update", "x"), ["cove net"]), (("build", "."), ["cove root add"]),
    (("images",), ["cove root ls"]), (("pull", "debian"), ["cove root add"]), (("read",), ["cove cp"]),
    (("token",), ["/tokens"]), (("run", "-d", "true"), ["cove exec -d"]),
    (("run", "-p", "80:80", "true"), ["--port"]), (("create", "--image", "x"), ["cove root ls"]),
    (("logs", "--since", "1h", "x"), ["--tail"]),
    *((("run", option, "x", "true"), says) for option, says in (
        ("-p", ["--port"]), ("-P", ["--port"]), ("--entrypoint", ["cove run -- PROGRAM"]),
        ("--privileged", ["--privileges system"]), ("--cap-add", ["--privileges"]), ("--cap-drop=ALL", ["--privileges plain"]),
        ("--security-opt", ["--privileges"]), ("--device", ["no device"]), ("--gpus", ["planned"]),
        ("--restart", ["cove create"]), ("--pull", ["planned", "--root"]), ("--platform", ["processor"]),
        ("--read-only", [":ro"]), ("--tmpfs", ["--disk"]), ("--shm-size", ["--disk"]), ("--memory-swap", ["--memory"]),
        ("-c", ["--cpus"]), ("--cpuset-cpus", ["--cpus"]), ("--ulimit", ["--pids"]), ("--label", ["cove create"]),
        ("-l", ["cove create"]), ("--cidfile", ["cove create"]), ("--dns", ["--net"]), ("--add-host", ["--net"]),
        ("--pid", ["namespace"]), ("--group-add", ["--user"]), ("--sysctl", ["kernel"]))),
    *((("create", option, "x"), says) for option, says in (
        ("-i", ["cove exec -it"]), ("-t", ["cove exec -it"]), ("-it", ["cove exec -it"]), ("-p", ["--port"]),
        ("--entrypoint", ["cove exec"]), ("--privileged", ["--privileges system"]), ("--cap-add", ["--privileges"]),
        ("--device", ["no device"]), ("--gpus", ["planned"]), ("--restart", ["cove start"]), ("--pull", ["planned"]),
        ("--platform", ["processor"]), ("--read-only", [":ro"]), ("--tmpfs", ["--ephemeral"]), ("--image=x", ["planned"]))),
    (("exec", "--privileged", "x", "true"), ["cove create --privileges system"]),
])
def test_words_that_cove_does_not_have_are_answered_with_what_to_do(words, says):
    failed(cove(*words), "cove ", *says)


@pytest.mark.parametrize("image", ["debian:12", "ubuntu", "registry.example/some/image:1", "registry.example/some/image", "python@sha256:00"])
def test_the_name_of_an_image_is_told_from_a_command(image, tmp_path):
    result = cove("run", image, "bash")
    text = result.stderr.decode()
    assert result.returncode == 127 and text.count("\n") == 1, result
    assert text.startswith(f"cove: {image}: ") and "images by name are planned" in text and "--root DIR" in text
    (tmp_path / "my.app").mkdir()
    for word in ("no-such-program", "my.app/run", "./no:such", "/no/such:1", "bin/no.such"):
        assert b"image" not in cove("run", word, cwd=tmp_path).stderr


@pytest.mark.parametrize("words, says", [
    (("--mount", "type=volume,source=a,target=/b"), "type=bind"), (("--mount", "type=bind,source=/tmp"), "its target"),
    (("--mount", "type=bind,source=/tmp,target=/b,bind-propagation=shared"), "key"),
    (("--mount", "type=bind,source=/tmp:/etc,target=/b"), "in neither"), (("--network", "host"), "none, public")])
def test_values_of_docker_that_cove_does_not_have_are_answered_with_those_that_it_has(words, says):
    failed(cove("run", *words, "true"), says)
    failed(cove("create", *words, "x"), says)


@pytest.mark.parametrize("value, says", [
    ("./src:/work", "cove mount add src ./src registers it, then write src:/work"),
    ("/srv/My Files:/work:ro", "cove mount add data /srv/My Files registers it, then write data:/work:ro"),
    ("~/x:/work", "cove mount add x ~/x registers it, then write x:/work")])
def test_a_path_that_is_to_be_mounted_in_a_sandbox_is_told_how_to_get_a_name(value, says):
    failed(cove("create", "-v", value), "no path", says)


def test_what_is_missing_or_too_much_is_named():
    failed(cove("info"), "missing argument: SANDBOX (cove ls lists them);")
    failed(cove("exec", "x"), "missing argument: COMMAND;")
    failed(cove("cp", "x"), "missing argument: TARGET;")
    failed(cove("info", "a", "b"), "unexpected argument 'b'")


def test_a_value_that_a_switch_does_not_take_is_told_by_the_word_that_was_written():
    failed(cove("run", "--rm=true", "--", "true"), "--rm: it takes no value; write --rm alone")
    failed(cove("run", "--tty=yes", "--", "true"), "--tty: it takes no value; write --tty alone")


def test_what_is_near_to_nothing_is_told_where_to_look():
    failed(cove("frobnicate"), "cove help")
    failed(cove("key", "frobnicate"), "cove key --help")
    failed(cove("ls", "--frobnicate"), "cove ls --help")


def test_every_option_of_serve_is_known_to_the_keeper():
    for name, argument in re.findall(r"^  --([a-z-]+)( [A-Z:]+)?", good("serve", "--help"), re.M):
        value = {"log-format": "=text", "allow-level": "=full"}.get(name, "=x" if argument else "")
        result = subprocess.run([COVE.parent / "cove-keeper", f"--{name}{value}",
                                 "--help"], capture_output=True, timeout=30, check=False)
        assert result.returncode == 0, result


def test_version():
    said = json.loads(good("version", "--json"))
    assert good("--version") == f"cove {said['version']}\n"
    commit = f"commit   {said['commit']}, {said['commit_at']}\n" if "commit" in said else ""
    assert good("version").startswith(f"cove {said['version']}\n{commit}machine  {said['machine']}\nserver   ")
    assert said["machine"] == os.uname().machine
    failed(cove("version", "x"), "cove version --help")


# ---- manual pages --------------------------------------------------------------------------------

@pytest.mark.parametrize("page", good("man", "--list").split())
def test_manual_pages_are_without_a_fault(page, tmp_path):
    source = tmp_path / f"{page}.1"
    source.write_text(good("man", *page.split("-")[1:]))
    checked = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", source], capture_output=True,
                             timeout=30, text=True, check=False)
    # Of the manuals that are installed here it knows nothing, so "cove(1)" leads nowhere for it.
    faults = [line for line in checked.stdout.splitlines() if "referenced manual not found" not in line]
    assert faults == [], faults
    text = subprocess.run(["mandoc", "-T", "ascii", "-O", "width=100", source], capture_output=True,
                          timeout=30, check=True).stdout.decode()
    text = re.sub(".\b", "", text)
    for option in re.findall(r"^  (?:-., )?(--[a-z-]+)", good(*page.split("-")[1:], "--help"), re.M):
        assert option in text, (page, option)
    for line in re.findall(r"\b(?:cove [a-z]+ .*\|.*)$", good(*page.split("-")[1:], "--help"), re.M):
        assert line in text, line


def test_every_command_has_a_page():
    assert good("man", "--list").split() == ["cove", *(f"cove-{name}" for name in COMMANDS)]


def test_what_is_installed_is_what_cove_prints(tmp_path):
    subprocess.run([harness.ROOT / "scripts" / "install-words.sh", "/usr/share/man", "/usr/share", COVE],
                   env={**os.environ, "DESTDIR": str(tmp_path)}, check=True, timeout=60)
    assert (tmp_path / "usr/share/man/man1/cove-exec.1").read_text() == good("man", "exec")
    assert (tmp_path / "usr/share/man/man1/cove.1").read_text() == good("man")
    assert (tmp_path / "usr/share/man/man5/cove.conf.5").read_text() == good("man", "cove.conf")
    assert (tmp_path / "usr/share/doc/cove/cove.conf.sample").read_text() == good("config", "sample")
    for shell, path in (("bash", "bash-completion/completions/cove"),
                        ("zsh", "zsh/site-functions/_cove"),
                        ("fish", "fish/vendor_completions.d/cove.fish")):
        assert (tmp_path / "usr/share" / path).read_text() == good("completion", shell)


# ---- completion ----------------------------------------------------------------------------------

SANDBOXES = {"sandboxes": [
    {"id": "c0abcdefghij01234567", "name": "work", "state": "running"},
    {"id": "c0abcdefghij01234568", "name": "wo rk;touch $(x)", "state": "stopped"},
    {"id": "c0abcdefghij01234569", "name": None, "state": "running"},
    {"id": "c0abcdefghij01234570", "name": "bad\x1b[2J", "state": "running"}], "next": None}
PROCESSES = {"processes": [{"id": "7", "command": "sleep 600"}, {"id": "12", "command": "a\tb\nc"}]}


@pytest.fixture
def server(tmp_path):
    def script(request):
        path = request.path.split("?")[0]
        known = {"/v1/sandboxes": SANDBOXES, "/v1/sandboxes/name:work/processes": PROCESSES,
                 "/v1/roots": {"roots": ["host", "debian"], "mounts": ["docs"]},
                 "/v1/keys": {"keys": [{"id": "k1", "label": "laptop"}]}}
        return answer(known[path]) if path in known else problem(404, "route_not_found", "no")

    made = Server(tmp_path / "s.sock", script)
    yield made
    made.close()


def candidates(*words, env=None):
    """Of a cove that takes its time: what is asked is what it finds."""
    env = {"COVE_TEST_OFF": "haste", **(env or {})}
    return [line.split("\t")[0] for line in good("complete", "--", *words, env=env).splitlines()]


@pytest.mark.parametrize("words, expected", [
    (("ex",), ["exec"]), (("key", ""), ["new", "ls", "rm"]), (("help", "ev"), ["events"]),
    (("run", "--work"), ["--workspace"]), (("run", "--privileges", "s"), ["system"]),
    (("run", "--privileges", "=", "p"), ["plain"]), (("create", "--then", ""), ["stop", "kill"]),
    (("run", "--workspace", ""), [":files"]), (("run", "--", ""), [":files"]),
    (("run", "ls", "--"), [":files"]), (("kill", "--signal", "TER"), ["TERM"]),
    (("completion", ""), ["bash", "zsh", "fish"]), (("nonsense", ""), []), (("root", "add", "x", ""),
                                                                            [":files"]),
    (("wait", "a", "b", ""), []), (("ls", ""), []), (("serve", "--data", ""), [":files"]),
])
def test_words_are_completed_without_a_server(words, expected, tmp_path):
    assert candidates(*words, env={"COVE_URL": f"unix:{tmp_path}/none"}) == expected


@pytest.mark.parametrize("words, expected", [
    (("exec", "wo"), ["work", "wo rk;touch $(x)"]),
    (("info", "c0"), ["c0abcdefghij01234569"]),
    (("stop", "a", "b", "work"), ["work"]),
    (("wait", "work", ""), ["7", "12"]), (("logs", "-f", "work", "1"), ["12"]),
    (("create", "--root", "de"), ["debian"]), (("mount", "rm", ""), ["docs"]),
    (("key", "rm", ""), ["k1"]), (("exec", "work", ""), [":files"]),
])
def test_names_are_completed_by_the_server_that_runs(server, words, expected):
    assert candidates(*words, env=server.env) == expected


def test_no_server_is_started_or_waited_for(tmp_path):
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    assert candidates("exec", "", env={"XDG_RUNTIME_DIR": str(runtime)}) in ([], candidates("exec", ""))
    assert list(runtime.iterdir()) == []
    silent = Server(tmp_path / "silent.sock", lambda request: [lambda: time.sleep(30)])
    started = time.monotonic()
    assert candidates("exec", "", env={**silent.env, "COVE_TEST_OFF": ""}) == []
    assert time.monotonic() - started < 10 * harness.PATIENCE
    silent.close()


def shell_env(tmp_path, server, **more):
    return {"PATH": f"{COVE.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "dumb",
            "LANG": "C.UTF-8", "COVE_TEST_OFF": "haste", **server.env, **more}


def in_bash(tmp_path, server, *words):
    script = f"""source <(cove completion bash)
        COMP_WORDS=(cove {' '.join(map(repr, words))}); COMP_CWORD={len(words)}
        _cove; printf '%s\\n' "${{COMPREPLY[@]}}" """
    return subprocess.run(["bash", "--norc", "-c", script], env=shell_env(tmp_path, server),
                          capture_output=True, text=True, timeout=60 * harness.PATIENCE,
                          check=True).stdout.splitlines()


def test_bash_gets_words_that_are_one_word_each(tmp_path, server):
    assert in_bash(tmp_path, server, "ex") == ["exec"]
    assert in_bash(tmp_path, server, "exec", "--time") == ["--timeout"]
    assert in_bash(tmp_path, server, "exec", "wo") == ["work", "wo\\ rk\\;touch\\ \\$\\(x\\)"]


def test_fish_gets_words_and_what_they_are(tmp_path, server):
    def completed(line):
        return subprocess.run(["fish", "--no-config", "-c", f"cove completion fish | source; complete "
                               f"-C '{line}'"], env=shell_env(tmp_path, server), capture_output=True,
                              text=True, timeout=60 * harness.PATIENCE, check=True).stdout.splitlines()

    assert [line.split("\t") for line in completed("cove exe")] == [
        ["exec", "run a command in a sandbox"]]
    assert "work\trunning" in completed("cove exec wo")
    (tmp_path / "a-file").touch()
    assert any(line.startswith(f"{tmp_path}/a-file") for line in completed(f"cove run -- {tmp_path}/a"))


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, words, env, cwd):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            with contextlib.suppress(OSError):
                os.chdir(cwd)
                os.execvpe(words[0], [str(word) for word in words], env)
            os._exit(127)
        self.seen = ""

    def read(self):
        while select.select([self.fd], [], [], 0.1)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                return
            if not data:
                return
            self.seen += data.decode(errors="replace")

    def shows(self, pattern, seconds=30):
        def look():
            self.read()
            return re.search(pattern, self.seen)
        harness.wait_for(look, seconds * harness.PATIENCE, f"{pattern!r} on the terminal")
        return self.seen

    def type(self, text):
        self.seen = ""
        os.write(self.fd, text.encode())

    def wait(self, seconds=30):
        def ended():
            self.read()
            pid, self.status = os.waitpid(self.pid, os.WNOHANG)
            return pid != 0
        harness.wait_for(ended, seconds * harness.PATIENCE, "the end of the program")
        self.read()  # what it said last
        self.pid = 0
        return os.waitstatus_to_exitcode(self.status)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.mark.parametrize("shell, setup", [
    (("bash", "--norc", "-i"), "source <(cove completion bash)"),
    (("zsh", "-f", "-i"), "autoload -U compinit; compinit -u -D; source <(cove completion zsh)"),
])
def test_a_shell_at_a_terminal_completes(tmp_path, server, shell, setup):
    env = shell_env(tmp_path, server, PS1="$ ", PS2="", COLUMNS="200")
    with Terminal(shell, env, tmp_path) as terminal:
        terminal.type(f"{setup}; echo set-$((40+2))\n")
        terminal.shows("set-42")
        terminal.type("cove com\t")
        terminal.shows(r"cove completion\b")
        terminal.type("\x15cove wait work 1\t")
        terminal.shows(r"work 12\b")
        terminal.type("\x15exit\n")
        terminal.wait()


# ---- a terminal whose server does not read -----------------------------------------------------------

def frames_of(data):
    """(opcode, payload) of each frame of a client, all of them whole."""
    start = 0
    while start < len(data):
        head = data[start:start + 10]
        assert head[0] & 0x70 == 0 and head[0] & 0x80 and head[1] & 0x80 and head[1] & 0x7f < 126, head
        at, size = start + 6, head[1] & 0x7f
        payload = data[at:at + size]
        assert len(payload) == size
        yield head[0] & 15, bytes(byte ^ mask for byte, mask in zip(payload, itertools.cycle(head[2:6])))
        start = at + size


def fill(connection, ping):
    """Pings until the client, which cannot get rid of its answers, reads no more; how many."""
    count, left = 0, b""
    connection.settimeout(1)
    with contextlib.suppress(TimeoutError):
        while True:
            left = left or ping
            sent = connection.send(left)
            left = left[sent:]
            count += not left
    return count, left


def test_keys_do_not_get_into_the_middle_of_a_pong(tmp_path):
    ping = bytes([0x89, 125]) + bytes(range(125))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        env = {"TERM": "xterm", "PATH": os.environ["PATH"],
               "COVE_URL": f"http://127.0.0.1:{listener.getsockname()[1]}"}
        with Terminal((COVE, "attach", "work", "1"), env, tmp_path) as terminal:
            listener.settimeout(30 * harness.PATIENCE)
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(30 * harness.PATIENCE)
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    piece = connection.recv(65536)
                    assert piece, "the client is gone"
                    head += piece
                connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                                   b"Upgrade: websocket\r\n\r\n")
                count, left = fill(connection, ping)
                terminal.type("keys")
                fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("4H", 40, 90, 0, 0))
                time.sleep(0.5)  # for what it must not do there is nothing to wait for
                size = b'{"type":"resize","rows":40,"columns":90}'
                data = bytearray()
                connection.settimeout(30 * harness.PATIENCE)
                sender = threading.Thread(target=connection.sendall, args=(left,))
                sender.start()
                count += bool(left)
                # Every frame has a head of six bytes.
                while len(data) < (6 + len(ping) - 2) * count + 6 + len("keys") + 6 + len(size):
                    piece = connection.recv(1 << 20)
                    assert piece, "the client is gone"
                    data += piece
                sender.join()
    said = list(frames_of(bytes(data)))
    assert [payload for opcode, payload in said if opcode == 10] == [bytes(range(125))] * count
    assert b"".join(payload for opcode, payload in said if opcode == 2) == b"keys"
    assert [payload for opcode, payload in said if opcode == 1] == [size]


# ---- colours -------------------------------------------------------------------------------------

def on_terminal(words, env, tmp_path):
    with Terminal((COVE, *words), {"TERM": "xterm", "PATH": os.environ["PATH"], **env},
                  tmp_path) as terminal:
        terminal.wait()
        return terminal.seen


def test_colours_are_for_terminals_that_want_them(tmp_path, server):
    assert "\x1b[" in on_terminal(["ls"], server.env, tmp_path)
    assert "\x1b[" in on_terminal(["lss"], server.env, tmp_path)
    for other in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_terminal(["ls"], {**server.env, **other}, tmp_path)
        assert "\x1b" not in on_terminal(["lss"], {**server.env, **other}, tmp_path)
    assert b"\x1b" not in cove("ls", env={**server.env, "TERM": "xterm"}).stdout


def test_nothing_of_others_steers_a_terminal(tmp_path):
    evil = "a\x1b]0;x\x07\u202eb\x9bc"
    listed = {"sandboxes": [{"id": evil, "name": evil, "state": evil, "root": evil,
                             "created_at": evil}], "processes": [{"id": evil, "command": evil}]}
    evil_server = Server(tmp_path / "evil.sock", lambda request: answer(listed) if "?" in request.path or
                         request.path.endswith("processes") else problem(404, "nope", evil))
    for words in (["ls"], ["ps", "x"], ["info", "x"], ["top", "--once"], ["ls", "--json"],
                  ["rm", f"x{evil}"]):
        seen = on_terminal(words, {**evil_server.env, "NO_COLOR": "1"}, tmp_path)
        assert not set(seen) & set("\x1b\x07\u202e\x9b"), seen
        assert "u202e" in seen.lower() or "u{202e}" in seen, seen
    evil_server.close()


# ---- top, df, events -----------------------------------------------------------------------------

def test_one_sandbox_that_cannot_be_asked_does_not_hide_the_others(tmp_path):
    asked = []

    def script(request):
        path = request.path.split("?")[0]
        asked.append(path)
        if path == "/v1/sandboxes":
            return answer({"sandboxes": [{"id": name, "name": name, "state": "running"}
                                         for name in ("bad", "busy", "fine")], "next": None})
        if path.endswith("bad/usage"):
            return problem(500, "internal", "it broke")
        if path.endswith("busy/usage") and asked.count(path) == 1:
            return problem(429, "too_many_requests", "slowly").replace(b"\r\n", b"\r\nRetry-After: 1\r\n", 1)
        if path.endswith("/usage"):
            return answer({"disk_bytes": 1048576})
        return problem(403, "forbidden", "no")

    server = Server(tmp_path / "s.sock", script)
    lines = [line.split() for line in good("df", env=server.env).splitlines()]
    assert [line[-1] for line in lines[1:4]] == ["-", lines[2][-1], lines[2][-1]] and lines[2][-1] != "-"
    server.close()
    server = Server(tmp_path / "t.sock", lambda request: script(request) if "/usage" not in request.path
                    else problem(403, "forbidden", "not yours"))
    failed(cove("df", env=server.env), "not yours")
    server.close()


@pytest.fixture
def env(serve):
    return {"COVE_URL": f"unix:{serve.socket}"}


@pytest.fixture
def busy(env):
    """A sandbox in which a command uses the processor, and one that is stopped."""
    limit = 60 * harness.PATIENCE
    good("create", "busy", "--ephemeral", env=env, limit=limit)
    good("create", "still", "--ephemeral", env=env, limit=limit)
    good("exec", "-d", "busy", "--", "sh", "-c", "while :; do :; done", env=env, limit=limit)
    good("stop", "still", env=env, limit=limit)
    yield
    good("rm", "busy", "still", env=env, limit=limit)


def counts(serve):
    with serve.client() as client:
        return client.get("/v1/version").json["limits"] == "cgroup"


def test_usage_is_what_a_sandbox_uses(serve, busy):
    def used():
        with serve.client() as client:
            return client.get("/v1/sandboxes/name:busy/usage").json

    if not counts(serve):
        assert used() == {"state": "running", "cpu_ns": None, "memory_bytes": None,
                          "peak_memory_bytes": None, "disk_bytes": None}
        return
    first = used()
    harness.wait_for(lambda: used()["cpu_ns"] > first["cpu_ns"] + 10_000_000, 30 * harness.PATIENCE,
                     "time of the processor")
    assert 0 < first["memory_bytes"] <= used()["peak_memory_bytes"] < 1 << 30
    with serve.client() as client:
        still = client.get("/v1/sandboxes/name:still/usage").json
        assert still["state"] == "stopped" and still["cpu_ns"] is None
        assert client.get("/v1/sandboxes/name:none/usage").status == 404


def test_only_an_operator_sees_what_the_host_has_left(serve, env):
    secret = good("key", "new", "reader", "--scope", "read", env=env).strip()
    with serve.tcp(secret) as client:
        assert client.get("/v1/capacity").code == "forbidden"
    with serve.client() as client:
        left = client.get("/v1/capacity").json
    assert 0 < left["disk_available_bytes"] <= left["disk_bytes"]
    assert left["memory_available_bytes"] > 0
    url = {"COVE_URL": f"http://127.0.0.1:{serve.port}", "COVE_API_KEY": secret}
    assert "free where" in good("df", env=env) and "free where" not in good("df", env=url)
    assert "capacity" not in json.loads(good("df", "--json", env=url))


def test_a_tenant_sees_its_own_quota(serve, env):
    good("quota", "blue", "--sandboxes", "7", env=env)
    for scope in (["--scope", "read"], ["--scope", "read", "--scope", "keys"]):
        url = {"COVE_URL": f"http://127.0.0.1:{serve.port}",
               "COVE_API_KEY": good("key", "new", "eyes", "--tenant", "blue", *scope, env=env).strip()}
        lines = [line.split() for line in good("quota", env=url).splitlines()]
        assert [line[:2] for line in lines] == [["TENANT", "SANDBOXES"], ["blue", "0/7"]], lines
        assert ["sandboxes", "0", "7"] in [line.split() for line in good("quota", "blue", env=url).splitlines()]
        for words in (["red"], ["blue", "--sandboxes", "8"]):
            failed(cove("quota", *words, env=url), "operator")


def test_an_operator_lists_the_sandboxes_of_all_tenants(serve, env):
    limit = 60 * harness.PATIENCE
    url = {"COVE_URL": f"http://127.0.0.1:{serve.port}",
           "COVE_API_KEY": good("key", "new", "red", "--tenant", "red", env=env).strip()}
    good("create", "theirs", "--ephemeral", env=url, limit=limit)
    for command in ("ls", "top", "df"):
        lines = [line.split() for line in good(command, "--all-tenants", env=env, limit=limit).splitlines()]
        assert lines[0][0] == "TENANT" and [line[0] for line in lines if "theirs" in line] == ["red"], lines
        assert "theirs" not in good(command, env=env, limit=limit)
        failed(cove(command, "--all-tenants", env=url), "operator")
    good("rm", "theirs", env=url, limit=limit)


def test_top_shows_the_busiest_first(serve, busy, env):
    lines = good("top", env=env, limit=60 * harness.PATIENCE).splitlines()
    assert lines[0].split() == ["NAME", "STATE", "CPU", "MEMORY", "PEAK", "LIMIT", "DISK", "COMMANDS", "TIME"]
    assert lines[1].split()[:2] == ["busy", "running"] and lines[2].split()[:3] == ["still", "stopped", "-"]
    if counts(serve):
        assert float(lines[1].split()[2].rstrip("%")) > 0
    listed = {sandbox["name"]: sandbox for sandbox in json.loads(good("top", "--json", env=env))["sandboxes"]}
    assert listed["busy"]["usage"]["state"] == "running"
    assert listed["still"]["usage"]["state"] == "stopped" and listed["still"]["usage"]["cpu_ns"] is None


@pytest.mark.parametrize("leave", ["q", "\x03"])
def test_top_on_a_terminal_goes_on_until_it_is_left(busy, env, tmp_path, leave):
    with Terminal((COVE, "top", "-n", "200ms"), {"TERM": "xterm", "PATH": os.environ["PATH"], **env},
                  tmp_path) as terminal:
        terminal.shows(r"(?s)(?:\x1b\[H.*busy.*){3}")
        seen = terminal.seen
        terminal.type(leave)
        assert terminal.wait() == 0
        assert seen.startswith("\x1b[?1049h") and terminal.seen.endswith("\x1b[?1049l")


def test_df_shows_limits_and_their_sum(serve, busy, env):
    lines = good("df", env=env).splitlines()
    assert lines[0].split() == ["NAME", "KIND", "STATE", "LIMIT", "USED"]
    assert lines[1].split()[:3] == ["busy", "ephemeral", "running"]
    assert lines[-2].split()[0] == "all"
    whole = json.loads(good("df", "--json", env=env))
    assert {"sandboxes", "capacity"} == set(whole)


@contextlib.contextmanager
def running(*words, env):
    """A command that has no end of its own; the lines that it prints."""
    with subprocess.Popen([COVE, *words], env={**os.environ, **env}, stdout=subprocess.PIPE,
                          text=True) as process:
        try:
            yield iter(process.stdout.readline, "")
        finally:
            process.kill()


def test_events_are_shown_as_they_happen_and_over_a_restart(serve, env):
    limit = 60 * harness.PATIENCE
    with running("events", "--from", "1", env=env) as told, \
            running("events", "--from", "1", "--json", env=env) as lines:
        sandbox = good("create", "seen", "--ephemeral", env=env, limit=limit).strip()
        assert any(sandbox in line and "sandbox.created" in line for line in told)
        serve.kill_engine()
        good("rm", "seen", env=env, limit=limit)
        assert any(sandbox in line and "sandbox.deleted" in line for line in told)
        numbers = []
        for event in map(json.loads, lines):
            if "sequence" in event:
                numbers.append(event["sequence"])
            if event["type"] == "sandbox.deleted" and event["sandbox"] == sandbox:
                break
        assert numbers == sorted(set(numbers))


def test_who_follows_ends_with_who_reads(env):
    """Not with the next line, which may never come."""
    limit = 60 * harness.PATIENCE
    good("create", "quiet", "--ephemeral", env=env, limit=limit)
    good("exec", "-d", "quiet", "--", "sh", "-c", "echo once; sleep 600", env=env, limit=limit)
    for words in (["events", "--from", "1"], ["logs", "-f", "quiet"], ["logs", "-f", "--json", "quiet"]):
        with subprocess.Popen([COVE, *words], env={**os.environ, **env}, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout.readline() != b""
                process.stdout.close()
                assert process.wait(30 * harness.PATIENCE) == -signal.SIGPIPE
            finally:
                process.kill()
    good("rm", "quiet", env=env, limit=limit)


def test_logs_for_programs_are_lines_of_the_api(env):
    limit = 60 * harness.PATIENCE
    good("create", "talks", "--ephemeral", env=env, limit=limit)
    cove("exec", "talks", "--", "sh", "-c", "echo a; echo é >&2; exit 3", env=env, limit=limit)
    said = [json.loads(line) for line in good("logs", "--json", "talks", env=env).splitlines()]
    assert {(line["type"], line["data"]) for line in said[:-1]} == {("stdout", "a\n"), ("stderr", "é\n")}
    assert said[-1]["type"] == "exit" and said[-1]["process"]["exit_code"] == 3
    process = good("exec", "-d", "talks", "--", "sh", "-c", "echo b; sleep 600", env=env).strip()
    harness.wait_for(lambda: good("logs", "talks", process, env=env) == "b\n", 30 * harness.PATIENCE, "b")
    said = [json.loads(line) for line in good("logs", "--json", "talks", process, env=env).splitlines()]
    assert [(line["type"], line["from"], line["to"]) for line in said] == [("stdout", 0, 2)]
    good("rm", "talks", env=env, limit=limit)
