"""Roots and mounts: registered by who may, kept, and never leading anywhere else."""
import os
import pathlib
import socket
import struct
import subprocess
import sys

import pytest

import harness
import keepers
from keepers import Control, Keeper


def directory_fd(path):
    path.mkdir(exist_ok=True)
    return os.open(path, os.O_PATH | os.O_DIRECTORY)


def register(keeper, name, path, kind=keepers.MOUNT, read_only=0, tenants=b""):
    path.mkdir(exist_ok=True)
    return keeper.give(path, name, kind, read_only, tenants)


def listed(keeper):
    code, _, entries = keeper.register(keepers.LIST)
    assert code == ""
    return {(kind, keepers.text(name)): (bool(read_only), bool(there), keepers.text(path))
            for kind, read_only, there, _, name, _, path in entries}


def named(engine):
    """The next thing that the engine is told unasked."""
    kind, request, body, _ = engine.receive()
    assert (kind, request) == (keepers.NAMED, 0)
    which, is_there, name, _, _ = keepers.NAMED_ENTRY.unpack(body)
    return which, keepers.text(name), bool(is_there)


def test_registered_removed_and_told(keeper, tmp_path):
    engine = keeper.greeted()
    assert register(keeper, b"one", tmp_path / "one", keepers.ROOT) == ""
    assert named(engine) == (keepers.ROOT, "one", True)
    assert register(keeper, b"two.x_y-z", tmp_path / "two", read_only=1) == ""
    assert named(engine) == (keepers.MOUNT, "two.x_y-z", True)
    assert listed(keeper) == {
        (keepers.ROOT, "one"): (False, True, str(tmp_path / "one")),
        (keepers.MOUNT, "two.x_y-z"): (True, True, str(tmp_path / "two"))}
    assert keeper.register(keepers.REMOVE, keepers.ROOT, b"one")[0] == ""
    assert named(engine) == (keepers.ROOT, "one", False)
    assert engine.refused(keepers.make, root=b"one") == "unknown_root"
    assert keeper.register(keepers.REMOVE, keepers.ROOT, b"one")[0] == "unknown_root"
    assert keeper.register(keepers.REMOVE, keepers.MOUNT, b"one")[0] == "unknown_mount"


def test_hello_names_them(keeper, tmp_path):
    keeper.engine()
    register(keeper, b"one", tmp_path / "one")
    _, names, _ = keeper.engines[0].hello()
    assert names == {(keepers.MOUNT, "one"): True}


@pytest.mark.parametrize("name", [b"", b".", b"..", b"-a", b"A", b"a/b", b"a b", b"a\n", b"\xc3\xa4",
                                  b"a" * 64])
def test_bad_names(keeper, tmp_path, name):
    assert register(keeper, name, tmp_path / "one") == "bad_name"
    assert not listed(keeper)


def test_a_name_is_there_once_and_host_is_taken(keeper, tmp_path):
    assert register(keeper, b"one", tmp_path / "one") == ""
    assert register(keeper, b"one", tmp_path / "two") == "name_conflict"
    assert register(keeper, b"one", tmp_path / "two", keepers.ROOT) == ""
    assert register(keeper, b"host", tmp_path / "two", keepers.ROOT) == "name_conflict"
    assert register(keeper, b"host", tmp_path / "two") == ""


def test_what_is_no_directory_is_refused(keeper, tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", "/dev/null"):
        assert keeper.give(path, b"one") == "bad_directory"
    reading, writing = os.pipe()
    assert keeper.register(keepers.ADD, keepers.ROOT, b"one", 0, reading)[0] == "bad_directory"
    os.close(reading)
    os.close(writing)
    gone = directory_fd(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert keeper.register(keepers.ADD, keepers.MOUNT, b"one", 0, gone)[0] == "bad_directory"
    os.close(gone)


def raw(keeper, packet, fds=()):
    with keeper.client() as client:
        socket.send_fds(client, [packet], list(fds))
        return keepers.error_of(client.recv(4096))[0]


def test_malformed_requests_are_refused_and_forgotten(keeper, tmp_path):
    keeper.engine()
    descriptor = directory_fd(tmp_path / "one")
    before = len(os.listdir(f"/proc/{keeper.process.pid}/fd"))
    good = keepers.REGISTER.pack(keepers.ADD, keepers.MOUNT, 0, 0, b"one", b"")
    for packet, fds in ((good[:-1], [descriptor]), (good + b"x", [descriptor]),
                        (good, []), (good, [descriptor] * 2),
                        (keepers.REGISTER.pack(9, keepers.MOUNT, 0, 0, b"one", b""), [descriptor]),
                        (keepers.REGISTER.pack(keepers.ADD, 3, 0, 0, b"one", b""), [descriptor]),
                        (keepers.REGISTER.pack(keepers.ADD, 1, 2, 0, b"one", b""), [descriptor]),
                        (keepers.REGISTER.pack(keepers.REMOVE, 1, 0, 0, b"one", b""), [descriptor])):
        assert raw(keeper, packet, fds) == "bad_request"
    os.close(descriptor)
    assert not listed(keeper)
    harness.wait_for(lambda: len(os.listdir(f"/proc/{keeper.process.pid}/fd")) <= before,
                     what="its fds to be closed")


def test_clients_that_say_nothing_hold_up_nobody(keeper):
    keeper.engine()
    clients = []
    for _ in range(20):
        clients.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        clients[-1].connect(str(keeper.api.with_name("keeper.sock")))
    assert listed(keeper) == {}
    for client in clients:
        client.close()


def test_only_root_and_the_owner_are_heard(keeper, tmp_path):
    """The socket's mode keeps others out; with that gone, the keeper still asks the kernel."""
    keeper.engine()
    path = keeper.api.with_name("keeper.sock")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o666)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == 0 and parent != pathlib.Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o055)
    script = (f"import socket, os\nos.setresgid(65534, 65534, 65534)\nos.setresuid(65534, 65534, "
              f"65534)\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
              f"s.settimeout(10)\ns.connect({str(path)!r})\n"
              f"try:\n    s.send({keepers.REGISTER.pack(keepers.LIST, 0, 0, 0, b'', b'')!r})\n"
              f"    print(len(s.recv(4096)))\nexcept OSError as error:\n    print(0)\n")
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                            timeout=20, check=True)
    assert result.stdout == "0\n"


def restarted(keeper, stand_in, directory):
    keeper.stop()
    keeper.__exit__()
    return Keeper(stand_in, directory)


def test_names_are_kept(stand_in, tmp_path):
    with Keeper(stand_in, tmp_path) as keeper:
        keeper.greeted()
        register(keeper, b"one", tmp_path / "with a space")
        before = listed(keeper)
        assert (keeper.data / "names").stat().st_mode & 0o777 == 0o600
        with restarted(keeper, stand_in, tmp_path) as second:
            second.greeted()
            assert listed(second) == before


@pytest.mark.parametrize("become", ["link", "other", "gone", "file"])
def test_a_name_never_leads_elsewhere(stand_in, tmp_path, become):
    """Whoever owns the directory above can swap it; the name then leads nowhere."""
    with Keeper(stand_in, tmp_path) as keeper:
        keeper.greeted()
        register(keeper, b"one", tmp_path / "one")
        keeper.stop()
        keeper.__exit__()
        (tmp_path / "one").rename(tmp_path / "away")
        if become == "link":
            (tmp_path / "one").symlink_to("/etc")
        elif become == "other":
            (tmp_path / "one").mkdir()
        elif become == "file":
            (tmp_path / "one").write_text("x")
        with Keeper(stand_in, tmp_path) as second:
            engine = second.engine()
            _, names, _ = engine.hello()
            assert names == {(keepers.MOUNT, "one"): False}
            assert "name_lost" in second.said()
            assert engine.refused(keepers.make, mounts=[(b"one", b"/mnt/a", 0)]) == "unknown_mount"


def test_a_living_name_is_the_inode_and_not_the_path(keeper, tmp_path):
    engine = keeper.greeted()
    register(keeper, b"one", tmp_path / "one")
    named(engine)
    (tmp_path / "one/file").write_text("right")
    (tmp_path / "one").rename(tmp_path / "away")
    (tmp_path / "one").mkdir()
    (tmp_path / "one/file").write_text("wrong")
    handle, control = engine.make(mounts=[(b"one", b"/mnt/one", 0)])
    box = Control(control).wait_ready()
    assert box.run("cat /mnt/one/file") == "right"
    box.close()
    engine.end(handle)


@pytest.mark.parametrize("registered,asked,writable", [(0, 0, True), (0, 1, False), (1, 0, False),
                                                       (1, 1, False)])
def test_what_is_registered_read_only_is_so(keeper, tmp_path, registered, asked, writable):
    engine = keeper.greeted()
    register(keeper, b"one", tmp_path / "one", read_only=registered)
    named(engine)
    handle, control = engine.make(mounts=[(b"one", b"/mnt/one", asked)])
    box = Control(control).wait_ready()
    box.run("echo x > /mnt/one/file")
    assert (tmp_path / "one/file").exists() == writable
    box.close()
    engine.end(handle)


@pytest.mark.parametrize("text", ["nonsense\n", "root a rw 1:2 3\n", "root a rw 1:2 3 relative\n",
                                  "root ../a rw 1:2 3 /etc\n", "mount a rx 1:2 3 /etc\n",
                                  "root a rw 1:2 3 /etc\nroot a rw 1:2 3 /etc\n",
                                  "root a rw 1:2 3 a,,b /etc\n", "root a rw 1:2 3 a\n",
                                  f"root a rw 1:2 3 {'a' * 63},{'b' * 64} /etc\n",
                                  f"root a rw 1:2 3 {','.join(['a' * 63] * 17)} /etc\n"])
def test_a_list_that_is_none_is_told(stand_in, tmp_path, text):
    keeper = Keeper(stand_in, tmp_path)
    (keeper.data / "names").write_text(text)
    process = subprocess.run(keeper.command, env=keeper.environment, capture_output=True, text=True,
                             timeout=20, check=False)
    assert process.returncode == 1 and "names_failed" in process.stderr
    keeper.listener.close()


# ---- whose they are ----------------------------------------------------------------------------

def tenants_of(keeper):
    """As `cove mount ls` and the next engine are told."""
    return {(kind, keepers.text(name)): keepers.text(tenants)
            for kind, _, _, _, name, tenants, _ in keeper.register(keepers.LIST)[2]}


def refusal(engine, function, *arguments, **more):
    """(code, sentence)"""
    kind, _, body, fds = engine.ask(function, *arguments, **more)
    assert kind == keepers.REFUSED and not fds, kind
    return keepers.error_of(body)


def may_have(engine, tenant, **more):
    kind, _, body, fds = engine.ask(keepers.make, tenant=tenant, **more)
    if kind == keepers.REFUSED:
        assert keepers.error_of(body)[0] in ("unknown_root", "unknown_mount")
        return False
    os.close(fds[0])
    engine.end(struct.unpack("=Q", body)[0])
    return True


@pytest.mark.parametrize("listed_as,has", [
    (b"", {b"default"}), (b"default", {b"default"}), (b"team-a", {b"team-a"}),
    (b"team-b,team-a", {b"team-a", b"team-b"}), (b"*", {b"default", b"team-a", b"team-b"}), (b"team", set())])
def test_a_name_is_its_tenants_alone(keeper, tmp_path, listed_as, has):
    engine = keeper.greeted()
    small_root(tmp_path / "root")
    for kind in (keepers.MOUNT, keepers.ROOT):
        assert register(keeper, b"one", tmp_path / "root", kind, tenants=listed_as) == ""
        named(engine)
        assert tenants_of(keeper)[kind, "one"] == (listed_as.decode() or "default")
    for tenant in (b"default", b"team-a", b"team-b"):
        assert may_have(engine, tenant, mounts=[(b"one", b"/mnt/one", 0)]) == (tenant in has)
        assert may_have(engine, tenant, root=b"one") == (tenant in has)


def test_anothers_name_is_refused_as_one_that_never_was(keeper, tmp_path):
    engine = keeper.greeted()
    for kind in (keepers.MOUNT, keepers.ROOT):
        register(keeper, b"one", tmp_path / "one", kind, tenants=b"team-a")
        named(engine)
    for fields in (lambda name: {"mounts": [(name, b"/mnt/one", 0)]}, lambda name: {"root": name}):
        theirs = refusal(engine, keepers.make, tenant=b"team-b", **fields(b"one"))
        never = refusal(engine, keepers.make, tenant=b"team-b", **fields(b"nothing"))
        assert (theirs[0], theirs[1].replace('"one"', '"nothing"')) == never


@pytest.mark.parametrize("tenants", [b",", b"a,", b",a", b"a,,b", b"a b", b"A", b"*,a", b"-a", b"a\n", b"a/b",
                                     b"a" * 64, b"a" * 1024, b",".join([b"a" * 63] * 17)])
def test_a_list_of_tenants_that_is_none_is_refused(keeper, tmp_path, tenants):
    assert register(keeper, b"one", tmp_path / "one", tenants=tenants) == "bad_tenant"
    assert not listed(keeper)


def small_root(path):
    (path / "bin").mkdir(parents=True)
    (path / "bin/sh").write_bytes(pathlib.Path("/bin/busybox").read_bytes())
    (path / "bin/sh").chmod(0o755)
    return path


def test_a_box_that_is_ready_is_no_way_to_anothers_root(keeper, tmp_path):
    """It is made for nobody, and claimed for a tenant."""
    engine = keeper.greeted()
    register(keeper, b"small", small_root(tmp_path / "root"), keepers.ROOT, tenants=b"team-a")
    named(engine)
    handle, control = engine.make(root=b"small")
    Control(control).wait_ready().close()
    assert engine.refused(keepers.claim, handle, keepers.OWNER, b"team-b") == "unknown_root"
    assert keeper.register(keepers.REMOVE, keepers.ROOT, b"small")[0] == ""
    named(engine)
    assert engine.refused(keepers.claim, handle, keepers.OWNER, b"team-a") == "unknown_root"
    engine.end(handle)
    register(keeper, b"small", tmp_path / "root", keepers.ROOT, tenants=b"team-b")
    named(engine)
    handle, control = engine.make(root=b"small")
    os.close(control)
    assert engine.ask(keepers.claim, handle, keepers.OWNER, b"team-b")[0] == keepers.DONE
    engine.end(handle)


def test_tenants_are_kept_and_lists_of_before_are_the_usual_ones(stand_in, tmp_path):
    with Keeper(stand_in, tmp_path) as keeper:
        keeper.greeted()
        register(keeper, b"one", tmp_path / "with a space", tenants=b"team-a,team-b")
        register(keeper, b"two", tmp_path / "with a space")
        register(keeper, b"all", tmp_path / "with a space", tenants=b"*")
        before = tenants_of(keeper)
        assert before == {(keepers.MOUNT, "one"): "team-a,team-b", (keepers.MOUNT, "two"): "default",
                          (keepers.MOUNT, "all"): "*"}
        with restarted(keeper, stand_in, tmp_path) as second:
            engine = second.greeted()
            assert tenants_of(second) == before and engine.tenants == before
            assert may_have(engine, b"team-b", mounts=[(b"one", b"/mnt/one", 0)])
            second.stop()
            kept = second.data / "names"
            kept.write_text(kept.read_text().replace(" team-a,team-b /", " /").replace(" default /", " /"))
            with restarted(second, stand_in, tmp_path) as third:
                engine = third.greeted()
                assert engine.tenants == {(keepers.MOUNT, "one"): "default", (keepers.MOUNT, "two"): "default",
                                          (keepers.MOUNT, "all"): "*"}
                assert not may_have(engine, b"team-b", mounts=[(b"one", b"/mnt/one", 0)])
                assert may_have(engine, b"default", mounts=[(b"one", b"/mnt/one", 0)])


def test_removed_root_keeps_its_boxes(keeper, tmp_path):
    engine = keeper.greeted()
    register(keeper, b"one", small_root(tmp_path / "root"), keepers.ROOT)
    named(engine)
    handle, control = engine.make(root=b"one")
    box = Control(control).wait_ready()
    assert keeper.register(keepers.REMOVE, keepers.ROOT, b"one")[0] == ""
    named(engine)
    assert box.run("echo alive") == "alive\n"
    box.close()
    engine.end(handle)


def test_many_names_are_listed_with_long_lists_of_tenants(keeper, tmp_path):
    tenants = ",".join(f"tenant-{number}" for number in range(90))
    for number in range(128):
        assert register(keeper, b"n%d" % number, tmp_path / "one", tenants=tenants.encode()) == ""
    assert register(keeper, b"more", tmp_path / "one") == "capacity"
    entries = keeper.register(keepers.LIST)[2]
    assert [keepers.text(entry[5]) for entry in entries] == [tenants] * 128
    shown = subprocess.run([harness.COVE, "mount", "ls"], capture_output=True, text=True, check=True,
                           env=os.environ | {"COVE_URL": f"unix:{keeper.api}"}).stdout.splitlines()
    assert [line.split()[0] for line in shown[1:]] == [f"n{number}" for number in range(128)]
    engine = keeper.engine()
    _, names, _ = engine.hello()
    assert len(names) == 128


def configured(stand_in, tmp_path, text):
    config = tmp_path / "cove.conf"
    config.write_text(text)
    return Keeper(stand_in, tmp_path, "--config", config)


def test_names_of_the_configuration(stand_in, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one/file").write_text("there")
    text = (f"[roots]\nsmall = {tmp_path}/one\n[mounts]\none = {tmp_path}/one:ro\n"
            f"gone = {tmp_path}/gone\n")
    with configured(stand_in, tmp_path, text) as keeper:
        engine = keeper.engine()
        _, names, _ = engine.hello()
        assert names == {(keepers.ROOT, "small"): True, (keepers.MOUNT, "one"): True,
                         (keepers.MOUNT, "gone"): False}
        assert listed(keeper)[keepers.MOUNT, "one"] == (True, True, str(tmp_path / "one"))
        assert keeper.register(keepers.REMOVE, keepers.MOUNT, b"one")[0] == "name_conflict"
        assert register(keeper, b"one", tmp_path / "two") == "name_conflict"
        assert register(keeper, b"two", tmp_path / "two") == ""
        assert "one" not in (keeper.data / "names").read_text().split()
        named(engine)
        handle, control = engine.make(mounts=[(b"one", b"/mnt/one", 0)])
        box = Control(control).wait_ready()
        assert box.run("cat /mnt/one/file; echo x 2>&1 >/mnt/one/file").startswith("there")
        assert (tmp_path / "one/file").read_text() == "there"
        box.close()
        engine.end(handle)


def test_tenants_of_the_configuration(stand_in, tmp_path):
    (tmp_path / "one").mkdir()
    # The tenants of a name may stand before it; the view of the host is everybody's unless it is somebody's.
    text = (f"[mount_tenants]\none = team-a,\t team-b\n[root_tenants]\nsmall = *\nhost = team-a\n"
            f"[roots]\nsmall = {tmp_path}/one\n[mounts]\none = {tmp_path}/one\ntwo = {tmp_path}/one:ro\n")
    with configured(stand_in, tmp_path, text) as keeper:
        engine = keeper.greeted()
        assert engine.tenants == tenants_of(keeper) == {
            (keepers.ROOT, "small"): "*", (keepers.MOUNT, "one"): "team-a,team-b", (keepers.MOUNT, "two"): "default"}
        assert may_have(engine, b"team-a", mounts=[(b"one", b"/mnt/one", 0)])
        assert not may_have(engine, b"team-a", mounts=[(b"two", b"/mnt/one", 0)])
        assert may_have(engine, b"team-a") and not may_have(engine, b"team-b")
        never, host = (refusal(engine, keepers.make, tenant=b"team-b", root=root) for root in (b"nothing", b"host"))
        assert (host[0], host[1].replace('"host"', '"nothing"')) == never
        handle, control = engine.make()
        os.close(control)
        assert engine.refused(keepers.claim, handle, keepers.OWNER, b"team-b") == "unknown_root"
        assert engine.ask(keepers.claim, handle, keepers.OWNER, b"team-a")[0] == keepers.DONE
        engine.end(handle)


@pytest.mark.parametrize("text,what", [
    ("[serve]\nnonsense = 1\n", ":2"), ("[roots]\nHost = /etc\n", "Host"),
    ("[roots]\nhost = /etc\n", "host"), ("[roots]\na = etc\n", "absolute"),
    ("[mounts]\na = /etc\na = /usr\n", "already"), ("[nonsense]\n", "nonsense"),
    ("[mount_tenants]\na = x\n", "[mounts] does not"),
    ("[mounts]\na = /etc\n[root_tenants]\na = x\n", "[roots] does not"),
    ("[mounts]\na = /etc\n[mount_tenants]\na = x, *\n", "names of tenants"),
    ("[mounts]\na = /etc\n[mount_tenants]\na = Big\n", "names of tenants"),
    ("[mounts]\na = /etc\n[mount_tenants]\na = x y\n", "names of tenants"),
    (f"[mounts]\na = /etc\n[mount_tenants]\na = {'a' * 60}{', a' * 482}\n", "names of tenants"),
    ("[mounts]\na = /etc\n[mount_tenants]\na = x\na = y\n", "twice")])
def test_bad_configuration_is_told(stand_in, tmp_path, text, what):
    keeper = configured(stand_in, tmp_path, text)
    process = subprocess.run(keeper.command, env=keeper.environment, capture_output=True, text=True,
                             timeout=20, check=False)
    assert process.returncode == 1 and what in process.stderr, process.stderr
    keeper.listener.close()


def test_command_line_comes_before_the_configuration(stand_in, tmp_path):
    text = ("[serve]\nlisten = 0.0.0.0:7171\nsocket = /nonexistent/socket\ndata = /nonexistent\n"
            "hosts = a, b\n[boxes]\npool = 3\n")
    with configured(stand_in, tmp_path, text) as keeper:
        assert keeper.engine().facts["COVE_LISTEN_FDS"] == "1"


def test_configuration_says_where_to_listen(stand_in, tmp_path):
    keeper = configured(stand_in, tmp_path, "[serve]\nlisten = 0.0.0.0:7171\n")
    del keeper.command[5:7]
    process = subprocess.run(keeper.command, env=keeper.environment, capture_output=True, text=True,
                             timeout=20, check=False)
    assert process.returncode == 1 and "--insecure-http" in process.stderr
    keeper.listener.close()
