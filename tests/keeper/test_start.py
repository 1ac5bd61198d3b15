"""A start that cannot come about ends at once and says why: by itself, to whoever wants a server of his own, to
`cove serve --check` and to `cove doctor`."""
import contextlib
import grp
import json
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile

import pytest

import harness
import scripted
import serving
from certificates import Authority
from sandboxes import new_key

PROGRAMS = ("cove", "cove-keeper", "cove-engine")
LIMIT = 20 * harness.PATIENCE  # a client waits longer for an engine that may still come


@pytest.fixture
def place(tmp_path):
    """Programs of its own, a home of its own and no configuration."""
    for name in PROGRAMS:
        shutil.copy2(harness.COVE.with_name(name), tmp_path / name)
    (tmp_path / "runtime").mkdir(mode=0o700)
    (tmp_path / "config" / "cove").mkdir(parents=True)
    return tmp_path


def cove(place, *words):
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(place / "runtime"), "HOME": str(place),
                   "XDG_DATA_HOME": str(place / "home"), "XDG_CONFIG_HOME": str(place / "config")}
    environment.pop("COVE_URL", None)
    return subprocess.run([place / "cove", *map(str, words)], env=environment, capture_output=True, text=True,
                          timeout=LIMIT, stdin=subprocess.DEVNULL, check=False)


def configure(place, text):
    path = place / "config" / "cove" / "cove.conf"
    path.write_text(text, encoding="utf-8")
    return path


def lose_libuv(place):
    """As where no package has it."""
    engine = place / "cove-engine"
    whole = engine.read_bytes()
    assert b"libuv.so.1\0" in whole
    engine.write_bytes(whole.replace(b"libuv.so.1\0", b"libno.so.1\0"))


def of_a_user(place):
    return f"{configure(place, '[boxes]' + chr(10) + 'memory = lots' + chr(10))}:2: memory: \"lots\""


def of_the_loader(place):
    lose_libuv(place)
    return "libno.so.1: cannot open shared object file"


def of_the_keeper(place):
    configure(place, "[serve]\nno_such_line = 1\n")
    return 'cove.conf:2: [serve] has no "no_such_line"'


CAUSES = [of_a_user, of_the_loader, of_the_keeper]


@pytest.mark.parametrize("cause", CAUSES)
def test_who_wants_a_server_hears_at_once_why_there_is_none(place, cause):
    why = cause(place)
    before = harness.host()
    result = cove(place, "ls")
    assert result.returncode == 125, result
    assert "your engine did not start" in result.stderr and why in result.stderr, result
    harness.check_nothing_left(before)


@pytest.mark.parametrize("cause", CAUSES)
def test_doctor_says_why_no_server_would_start(place, cause):
    why = cause(place)
    result = cove(place, "doctor", "--json")
    said = json.loads(result.stdout)
    server = next(check for check in said["checks"] if check["name"] == "server")
    assert server["state"] == "no" and why in server["found"], server
    assert result.returncode == said["exit_status"] == 1 and said["summary"] != "All good."


def test_a_library_that_is_missing_is_told_with_where_to_look(place):
    lose_libuv(place)
    served = cove(place, "serve", "--listen", "none", "--socket", place / "runtime" / "s", "--data", place / "data")
    assert served.returncode == 1
    assert "libno.so.1" in served.stderr and "cove doctor says what it lacks" in served.stderr.splitlines()[-1]
    ran = cove(place, "run", "--net", "public", "--", "true")
    assert ran.returncode == 125 and ran.stderr.endswith("cove doctor says what it lacks\n"), ran


def test_doctor_finds_that_a_server_would_start(place):
    said = json.loads(cove(place, "doctor", "--json").stdout)
    server = next(check for check in said["checks"] if check["name"] == "server")
    assert server["state"] == "yes", server
    assert not (place / "home").exists() and not list((place / "runtime").iterdir())


def serve(place, *words, config="[boxes]\npool = 0\n"):
    """A start that does not come about. The file has a name of its own."""
    path = place / "bad.conf"
    path.write_text(config, encoding="utf-8")
    return cove(place, "serve", "--data", place / "data", "--socket", place / "api.sock", "--config", path, *words)


@pytest.mark.parametrize("words", [(), ("--check",)])
@pytest.mark.parametrize("line,why", [
    ("[boxes]\nmemory = lots", '2: memory: "lots"'),
    ("[boxes]\ndefault_network = moon", "2: default_network: "),
    ("[network]\nproxy = moon", "2: proxy: "),
    ("[kernels]\ncontexts = 0", '2: contexts: "0"'),
    ("[serve]\nallow_level = none", "2: allow_level: none is no level"),
    ("[serve]\nsocket_group = nobody-has-this", "2: socket_group: this host has no group nobody-has-this"),
    ("[serve]\nsocket_mode = 0777", '2: socket_mode: "0777" is none of'),
])
def test_a_bad_value_is_named_with_its_file_and_line(place, words, line, why):
    result = serve(place, "--listen", "none", *words, config=f"{line}\n")
    assert result.returncode == 1 and f"{place}/bad.conf:{why}" in result.stderr, result
    assert not words or not (place / "data").exists()


@pytest.mark.parametrize("words", [(), ("--check",)])
def test_a_port_that_is_used_is_named(place, words):
    with socket.create_server(("127.0.0.1", 0)) as used:
        address = f"127.0.0.1:{used.getsockname()[1]}"
        result = serve(place, "--listen", address, *words)
    assert result.returncode == 1, result
    assert f"cannot listen on {address}" in result.stderr and "Address already in use" in result.stderr


def test_a_key_that_cannot_be_read_is_named(place):
    chain, key = place / "chain.pem", place / "key.pem"
    chain.write_text("no certificate\n", encoding="ascii")
    config = f"[serve]\ntls_certificate = {chain}\ntls_key = {key}\n"
    for words in (), ("--check",):
        result = serve(place, "--listen", "none", *words, config=config)
        assert result.returncode == 1 and f"cannot read tls_key {key}" in result.stderr, result


def test_a_certificate_that_cannot_be_used_is_named(place):
    chain, key = place / "chain.pem", place / "key.pem"
    for path in chain, key:
        path.write_text("nothing that PEM has\n", encoding="ascii")
    key.chmod(0o600)
    result = serve(place, "--check", "--listen", "none", config=f"[serve]\ntls_certificate = {chain}\ntls_key = {key}\n")
    assert result.returncode == 1 and "cove-keeper: bad_" in result.stderr and str(place) in result.stderr, result


def test_a_check_names_all_faults_of_a_file(place):
    """Those that the keeper finds and those of the engine's part, by line and each once."""
    config = ("[boxes]\nmemory = lots\n[serve]\nlisten = nowhere\nno_such_line = 1\ntls_key = here\n"
              "[network]\nproxy = moon\n[nowhere]\nmemory = 1\n")
    result = serve(place, "--check", config=config)
    assert result.returncode == 1, result
    lines = result.stderr.splitlines()
    begins = (':2: memory: "lots"', ":4: listen: ", ':5: [serve] has no "no_such_line"', ":6: tls_key: ", ":8: proxy: ",
              ":9: there is no section [nowhere]")
    assert len(lines) == len(begins), result.stderr
    for line, begin in zip(lines, begins):
        assert line.startswith(f"cove-keeper: bad_config: {place}/bad.conf{begin}"), result.stderr
    assert cove(place, "config", "check", "--config", place / "bad.conf").stderr == result.stderr


def test_a_check_names_all_faults_of_lines_that_are_wrong_together(place):
    chain = place / "chain.pem"
    result = serve(place, "--check", config=f"[serve]\ntls_certificate = {chain}\n[boxes]\nmost_memory = 16M\n"
                                            "most_disk = 16M\n[root_tenants]\none = *\n[mount_tenants]\ntwo = *\n")
    assert result.returncode == 1, result
    for fault in ("has tls_certificate and no tls_key", "[root_tenants] names one", "[mount_tenants] names two",
                  "memory is 1073741824", "disk is 2147483648"):
        assert result.stderr.count(fault) == 1, result.stderr
    assert len(result.stderr.splitlines()) == 5, result.stderr


def test_a_check_names_each_file_that_cannot_be_read(place):
    config = (f"[serve]\ntls_certificate = {place}/no.pem\ntls_key = {place}/no.key\n"
              f"[telemetry]\notlp_headers_file = {place}/no.headers\n")
    with socket.create_server(("127.0.0.1", 0)) as used:
        address = f"127.0.0.1:{used.getsockname()[1]}"
        result = serve(place, "--check", "--listen", address, config=config)
    assert result.returncode == 1, result
    for fault in (f"otlp_headers_file {place}/no.headers", f"tls_certificate {place}/no.pem",
                  f"cannot listen on {address}"):
        assert result.stderr.count(fault) == 1, result.stderr


def test_a_check_warns_of_what_a_start_would_put_up_with(place):
    authority = Authority(place / "authority")
    authority.certificate("old", "DNS:localhost", days=0)
    files = (f"tls_certificate = {authority.directory}/old.pem", f"tls_key = {authority.directory}/old.key")
    (authority.directory / "old.key").chmod(0o600)
    config = "[serve]\n%s\n%s\n[mounts]\nmodels = %s/nothere\n" % (*files, place)
    result = serve(place, "--check", "--listen", "none", config=config)
    assert (result.returncode, result.stdout) == (0, ""), result
    assert "old.pem has expired" in result.stderr, result
    assert f"mount models: cannot open {place}/nothere" in result.stderr, result
    assert not (place / "data").exists()


def test_a_check_warns_of_limits_that_the_disk_does_not_have(place):
    """The engine would start, and refuse every sandbox."""
    disk = os.statvfs(place)
    mib = disk.f_blocks * disk.f_frsize >> 20
    low = serve(place, "--check", "--listen", "none", config="[boxes]\nheadroom_disk = 900T\n")
    assert (low.returncode, low.stdout) == (0, ""), low
    assert f"headroom_disk keeps {900 << 20} MiB free" in low.stderr and f"left of {mib}: no sandbox" in low.stderr, low
    large = serve(place, "--check", "--listen", "none", config="[boxes]\ndisk = 900T\n")
    assert (large.returncode, large.stdout) == (0, "") and len(large.stderr.splitlines()) == 1, large
    assert f"disk gives a sandbox {900 << 20} MiB" in large.stderr and f"of {mib} MiB, can give one" in large.stderr, large
    assert not (place / "data").exists()


def test_a_check_of_what_is_good_says_nothing_and_makes_nothing(place):
    listening = f"127.0.0.1:{harness.free_port()}"
    result = serve(place, "--listen", listening, "--check")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert not (place / "data").exists() and not (place / "api.sock").exists()


# ---- the process id of a server that runs ----

def test_the_process_id_of_a_server_is_printed_for_its_socket(place, tmp_path_factory):
    with serving.Serve(tmp_path_factory.mktemp("serve")) as server:
        for config in "", "[boxes]\nmemory = lots\n", "[nowhere]\n":
            result = cove(place, "serve", "--pid", "--socket", server.socket, "--config", configure(place, config))
            assert (result.returncode, result.stdout, result.stderr) == (0, f"{server.process.pid}\n", "")
        result = cove(place, "serve", "--pid", "--config", configure(place, f"[serve]\nsocket = {server.socket}\n"))
        assert (result.returncode, result.stdout) == (0, f"{server.process.pid}\n"), result


def test_a_server_is_stopped_and_waited_for(place, tmp_path_factory):
    with serving.Serve(tmp_path_factory.mktemp("serve")) as server:
        with server.client() as client:
            assert client.post("/v1/sandboxes", {"disk_kind": "ephemeral"}).status == 201
        # Its place is in the file, which is read each time that the server is asked for.
        config = configure(place, f"[serve]\nsocket = {server.socket}\ndata = {place}/data\n")
        result = cove(place, "serve", "--stop", "--config", config)
        assert server.process.poll() == 0, "it has ended before that is said"
        assert (result.returncode, result.stdout, result.stderr) == (
            0, f"process {server.process.pid} has ended, with its sandboxes\n", "")
        for word in "--stop", "--reload":
            result = cove(place, "serve", word, "--socket", server.socket)
            assert (result.returncode, result.stdout) == (1, "") and "no server can be reached at" in result.stderr, result


def test_a_reload_is_waited_for_and_what_it_is_refused_for_is_said(place, tmp_path_factory):
    with serving.Serve(tmp_path_factory.mktemp("serve")) as server:
        words = ("serve", "--reload", "--socket", server.socket)
        server.config.write_text("[boxes]\npool = 0\ndefault_network = none\n", encoding="utf-8")
        old = server.engine_pid()
        result = cove(place, *words)
        assert (result.returncode, result.stdout, result.stderr) == (
            0, f"process {server.process.pid} has read its configuration again\n", "")
        engine = server.engine_pid()
        assert engine not in (None, old), "the next engine runs before that is said"
        with server.client() as client:
            made = client.post("/v1/sandboxes", {"disk_kind": "ephemeral"})
            assert made.status == 201 and made.json["network"]["mode"] == "none", made.json
        for config, cause in (("[boxes]\nmemory = lots\n", f'{server.config}:2: memory: "lots" is no'),
                              ("[serve]\nlisten = nowhere\n", f"{server.config}:2: listen: ")):
            server.config.write_text(config, encoding="utf-8")
            result = cove(place, *words)
            assert (result.returncode, result.stdout) == (1, ""), result
            said = result.stderr
            assert said.startswith(f"cove-keeper: upgrade_refused: bad_config {cause}") and said.count("\n") == 1, said
            assert "all goes on as before" in said and server.engine_pid() == engine, said
            assert f" bad_config {cause}" in server.said(), "the log has it, too"
        server.config.write_text("[boxes]\npool = 0\n", encoding="utf-8")
        assert cove(place, *words).returncode == 0, "the refusal before it is forgotten"


# As a keeper was that knew no such request.
EARLIER = """
import ctypes, os, pathlib, signal, socket, sys
ctypes.CDLL(None).prctl(15, b"cove-keeper")
signal.signal(signal.SIGHUP, lambda *_: os._exit(7))
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as there:
    there.bind(sys.argv[1])
    there.listen()
    print("listening", flush=True)
    while True:
        client = there.accept()[0]
        if client.recv(4096):
            client.send((0).to_bytes(4, "little") + b"bad_request".ljust(32, b"\\0") + bytes(480))
        client.close()
"""


def test_a_server_of_an_earlier_version_is_sent_the_signal(place):
    with subprocess.Popen([sys.executable, "-c", EARLIER, place / "keeper.sock"], stdout=subprocess.PIPE) as earlier:
        assert earlier.stdout.readline() == b"listening\n"
        result = serve(place, "--reload")
        assert earlier.wait(LIMIT) == 7
    assert (result.returncode, result.stderr) == (0, "") and "earlier version and was sent SIGHUP" in result.stdout, result


def test_a_server_is_found_though_the_file_names_another_socket_since(open_place):
    """As root's server at its usual place; `socket` holds from the next start on."""
    server = serving.Serve(open_place)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(open_place), "XDG_CONFIG_HOME": str(open_place)}
    (open_place / "cove").mkdir(mode=0o700)
    server.socket = open_place / "cove" / "cove.sock"
    server.command[server.command.index("--socket") + 1] = server.socket
    server.command.append("--private")
    (open_place / "cove" / "cove.conf").write_text(f"[serve]\nsocket = {open_place}/other.sock\n", encoding="utf-8")
    with server:
        result = subprocess.run([harness.COVE, "serve", "--private", "--pid"], env=environment, capture_output=True, text=True,
                                timeout=LIMIT, check=False)
        assert (result.returncode, result.stdout, result.stderr) == (0, f"{server.process.pid}\n", "")


def test_another_process_is_never_taken_for_the_server(place):
    """Its number is for SIGHUP and SIGTERM."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(str(place / "other.sock"))
        other.listen()
        (place / "keeper.sock").symlink_to(place / "other.sock")
        for word in "--pid", "--stop", "--reload":
            result = serve(place, word)
            assert (result.returncode, result.stdout) == (1, ""), result
            assert f"process {os.getpid()} at {place}/keeper.sock is no server of cove" in result.stderr


def test_where_no_server_runs_the_socket_is_named(place):
    result = serve(place, "--pid")
    assert (result.returncode, result.stdout) == (1, ""), result
    assert f"no server can be reached at {place}/keeper.sock" in result.stderr and "start cove serve" in result.stderr
    assert not (place / "data").exists()


# ---- the unix socket ----

GROUP = "daemon" if harness.EXPECT.is_root else str(os.getegid())


@pytest.fixture
def open_place():
    """Where anybody may look, so that the socket itself is what lets in."""
    place = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def status_as(groups, socket_path, *words):
    """What another user of the host is answered; None where it cannot connect."""
    done = subprocess.run(["setpriv", "--reuid", "12345", "--regid", "12345", *groups, "curl", "-s", "-o", "/dev/null",
                           "-w", "%{http_code}", "--unix-socket", socket_path, *words, "http://localhost/v1/sandboxes"],
                          capture_output=True, text=True, timeout=LIMIT, check=False)
    return int(done.stdout) or None


@pytest.mark.parametrize("mode", ["0660", "0600", "0666"])
def test_the_socket_has_the_group_and_the_mode_of_the_configuration(open_place, mode):
    config = f"[serve]\nsocket_group = {GROUP}\nsocket_mode = {mode}\n[boxes]\npool = 0\n"
    with serving.Serve(open_place, config) as server:
        said = server.socket.stat()
        assert stat.S_IMODE(said.st_mode) == int(mode, 8)
        assert said.st_gid == (grp.getgrnam(GROUP).gr_gid if harness.EXPECT.is_root else os.getegid())
        if not harness.EXPECT.is_root:
            return  # only root can be another user
        with server.client() as operator:
            key = f"Authorization: Bearer {new_key(operator)['secret']}"
        member, stranger = ["--groups", GROUP], ["--clear-groups"]
        assert status_as(member, server.socket) == (403 if mode != "0600" else None), "a group is no key"
        assert status_as(member, server.socket, "-H", key) == (200 if mode != "0600" else None)
        assert status_as(stranger, server.socket, "-H", key) == (200 if mode == "0666" else None)


def test_a_reload_names_what_holds_from_the_next_start_only(open_place):
    def config(port, mode):
        return f"[serve]\nlisten = 127.0.0.1:{port}\nsocket_mode = {mode}\n[boxes]\npool = 0\n"

    server = serving.Serve(open_place)
    server.config.write_text(config(server.port, "0600"), encoding="utf-8")
    at = server.command.index("--listen")
    del server.command[at:at + 2]

    with server:
        said = server.reload()
        assert "config_read" in said and "config_waits" not in said, "nothing has changed"
        assert " config_waits listen, socket_mode: " in server.reload(config(harness.free_port(), "0660"))
        assert " config_waits listen, socket_mode: " in server.reload(), "they wait still"
        assert "config_waits" not in server.reload(config(server.port, "0600"))


def cove_as(groups, socket_path, env, *words):
    """The same for a command that finds the system's socket."""
    script = ("mount -t tmpfs run /run; mkdir /run/cove; touch /run/cove/cove.sock; mount --bind \"$0\" /run/cove/cove.sock; "
              "exec \"$@\"")
    return subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, socket_path,
                           "setpriv", "--reuid", "12345", "--regid", "12345", *groups, harness.COVE, *words],
                          env={"PATH": os.environ["PATH"], **env}, capture_output=True, text=True, timeout=LIMIT, check=False)


def test_a_command_sends_its_key_over_the_systems_socket_where_that_is_anothers(open_place):
    own = pathlib.Path("/tmp/cove-12345")  # where a private engine would have its socket, if it were closed to others
    own.mkdir(mode=0o755, exist_ok=True)
    with serving.Serve(open_place, f"[serve]\nsocket_group = {GROUP}\nsocket_mode = 0660\n[boxes]\npool = 0\n") as server:
        with server.client() as operator:
            key = {"COVE_API_KEY": new_key(operator)["secret"]}
            assert operator.post("/v1/sandboxes", {"disk_kind": "ephemeral", "name": "found"}).status == 201
        member = ["--groups", GROUP]
        said = cove_as(member, server.socket, key, "ls")
        assert said.returncode == 0 and "found" in said.stdout, said
        assert "COVE_API_KEY" in cove_as(member, server.socket, {"COVE_API_KEY": "cove_wrong"}, "ls").stderr
        said = cove_as(member, server.socket, {"COVE_URL": "unix:/run/cove/cove.sock"}, "ls")
        assert said.returncode == 125 and "COVE_API_KEY" in said.stderr, said
        for groups, env in ((member, {}), (["--clear-groups"], key)):
            assert str(own) in cove_as(groups, server.socket, env, "ls").stderr, "a private engine is what others have"
    own.rmdir()


@contextlib.contextmanager
def private_engine(answer):
    """The socket of that user's own, where this is what is answered."""
    own = pathlib.Path("/tmp/cove-12345")
    own.mkdir(mode=0o700, exist_ok=True)
    with contextlib.closing(scripted.Server(own / "cove.sock", lambda _: scripted.answer(answer))):
        for path in (own, own / "cove.sock"):
            os.chown(path, 12345, 12345)
        yield
    shutil.rmtree(own)


def test_names_are_completed_by_the_server_that_the_command_would_ask(open_place):
    with (serving.Serve(open_place, f"[serve]\nsocket_group = {GROUP}\nsocket_mode = 0660\n[boxes]\npool = 0\n") as server,
          private_engine({"sandboxes": [{"id": "c0", "name": "own"}]})):
        with server.client() as operator:
            key = {"COVE_API_KEY": new_key(operator)["secret"]}
            assert operator.post("/v1/sandboxes", {"disk_kind": "ephemeral", "name": "found"}).status == 201
        for env, name in (({}, "own"), (key, "found")):
            said = cove_as(["--groups", GROUP], server.socket, {"COVE_TEST_OFF": "haste", **env}, "complete", "--", "exec", "")
            assert [line.split("\t")[0] for line in said.stdout.splitlines()] == [name], said
