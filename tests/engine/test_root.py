"""The root directory of a sandbox without a registered root: what is written there is the sandbox's own, lies on its
disk, lasts and counts as that does, and is nobody else's. What it shows of the host stays the host's."""
import contextlib
import os
import subprocess

import pytest

import harness
import serving
from files import Files
from sandboxes import make, new_key, printed, run, start

CONFIG = "[boxes]\npool = 2\nmemory = 256M\ndisk = 64M\n"
SYSTEM = {"privileges": "system"}
# However its box is made: of the pool or by a zygote, and cold, for its host name.
WAYS = {"ready": {}, "cold": {"hostname": "cold"}}

nothing_left, serve, api = serving.one_for_all(CONFIG)

WRITE = ("mkdir /workspace /app && echo hello >/hello.txt && echo x >/opt/x && echo x >/srv/x && echo x >/workspace/x "
         "&& echo x >/tmp/x && echo x >~/x")
READ = "cat /hello.txt /opt/x /srv/x /workspace/x /tmp/x ~/x; ls -d /app"
WRITTEN = "hello\n" + "x\n" * 5 + "/app\n"
# None of these is a wall's: the host's part is mounted, and the engine's files of the box lie elsewhere.
HOSTS = "for p in /usr /etc /dev /proc /sys; do mv $p /elsewhere; rm -d $p; touch $p/new; mv -T /app $p; done"


@pytest.fixture(params=["ephemeral", "persistent"])
def kind(request):
    return request.param


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_its_root_or_the_user_of_a_plain_one_writes_at_the_root(api, privileges, kind, way):
    path = make(api, privileges=privileges, disk_kind=kind, **WAYS[way])
    assert run(api, path, WRITE)["process"]["exit_code"] == 0
    assert printed(api, path, READ) == WRITTEN
    files = Files(api, path)
    assert files.put("/by-the-api/deep/file", b"hello").status == 200
    assert files.get("/by-the-api/deep/file").bytes == b"hello"
    assert files.post("move", **{"from": "/by-the-api", "to": "/tmp/moved"}).status == 200
    assert "hello.txt" in [entry["name"] for entry in files.list("/").json["entries"]]
    assert api.delete(path).status == 204


@pytest.mark.wall
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_what_is_the_hosts_stays_where_and_as_it_is(api, privileges, kind, way):
    path = make(api, privileges=privileges, disk_kind=kind, **WAYS[way])
    before = printed(api, path, "ls /usr /etc; stat -c %i /usr /etc/passwd /proc/version")
    said = run(api, path, f"mkdir /app; {HOSTS}")
    assert said["stderr"].count("busy") >= 10 and said["stderr"].count("Read-only") >= 3, said
    assert printed(api, path, "ls /usr /etc; stat -c %i /usr /etc/passwd /proc/version") == before
    flags = printed(api, path, "cut -d' ' -f5,6 /proc/self/mountinfo | grep -E '^/(usr|etc|dev|sys)[/ ]'")
    writable = [line.split()[0] for line in flags.splitlines() if "rw" in line.split()[1].split(",")]
    assert {path for path in writable if not path.startswith("/dev/")} == set(), writable
    assert api.delete(path).status == 204


def test_an_ephemeral_disk_keeps_it_until_it_stops(api):
    path = make(api, **SYSTEM)
    run(api, path, WRITE)
    assert api.post(f"{path}/stop").status == api.post(f"{path}/start").status == 200
    assert printed(api, path, "ls / /opt /srv /root /tmp | grep -E 'x|workspace|app|hello'; true") == ""
    assert api.delete(path).status == 204


def test_a_persistent_disk_keeps_it_over_stops_and_engines(tmp_path):
    paths = {}
    for turn in range(3):
        with serving.Serve(tmp_path, CONFIG) as own, own.client() as client:
            for way in WAYS:
                for privileges in ("plain", "system"):
                    if turn == 0:
                        paths[way, privileges] = make(client, privileges=privileges, disk_kind="persistent", **WAYS[way])
                        assert run(client, paths[way, privileges], WRITE)["process"]["exit_code"] == 0
                    path = paths[way, privileges]
                    assert printed(client, path, READ, start=True) == WRITTEN
                    assert client.post(f"{path}/stop").status == 200
                    assert Files(client, path).get("/hello.txt").bytes == b"hello\n"
                    assert client.post(f"{path}/start").status == 200
                    assert printed(client, path, READ) == WRITTEN
            if turn == 1:
                own.kill_engine()
                with own.client() as other:
                    for path in paths.values():
                        assert printed(other, path, READ) == WRITTEN


@pytest.mark.parametrize("way", WAYS)
def test_a_sandbox_starts_on_a_disk_that_it_has_filled(api, way):
    path = make(api, **SYSTEM, disk_kind="persistent", resources={"disk_bytes": 16 << 20}, **WAYS[way])
    run(api, path, "rmdir /srv /opt; rm /sbin; rm -rf /var /home")
    script = "import os, itertools\nfor n in itertools.count(): os.close(os.open(f'/{n}', os.O_CREAT | os.O_WRONLY))"
    if harness.EXPECT.is_root:  # what an ordinary user's has is looked after, and its box ended
        assert "No space left" in run(api, path, f'/usr/bin/python3 -c "{script}"')["stderr"]
    assert api.post(f"{path}/stop").status == api.post(f"{path}/start").status == 200
    if harness.EXPECT.is_root:
        assert run(api, path, "cd / && /usr/bin/find . -xdev -maxdepth 1 -name '[0-9]*' -delete")["process"]["exit_code"] == 0
    assert api.post(f"{path}/stop").status == api.post(f"{path}/start").status == 200
    assert printed(api, path, "ls -d /srv /opt; readlink /sbin") == "/opt\n/srv\nusr/sbin\n"
    assert api.delete(path).status == 204


@pytest.mark.parametrize("way", WAYS)
def test_a_plain_sandbox_does_not_lock_itself_out(api, way):
    path = make(api, privileges="plain", disk_kind="persistent", **WAYS[way])
    run(api, path, "chmod 0 /")
    assert api.post(f"{path}/stop").status == api.post(f"{path}/start").status == 200
    assert printed(api, path, "cd / && touch x && ls x") == "x\n"
    assert api.delete(path).status == 204


@pytest.mark.wall
@pytest.mark.parametrize("way", WAYS)
def test_what_is_written_there_counts_against_the_disk(api, kind, way):
    path = make(api, **SYSTEM, disk_kind=kind, resources={"disk_bytes": 32 << 20}, **WAYS[way])
    is_watched = kind == "persistent" and not harness.EXPECT.is_root
    said = api.post(f"{path}/exec", {"command": "head -c 100M /dev/zero >/big; stat -c %s /big; sleep 2"})
    if is_watched:
        harness.wait_for(lambda: api.get(path).json["reason"] == "disk_exceeded", what="its end")
    else:
        assert "No space left" in said.json["stderr"], said
        assert int(said.json["stdout"]) <= 34 << 20
    assert api.delete(path).status == 204


def test_a_file_that_is_larger_than_the_disk_finds_the_disk_full(serve, api, kind):
    path = make(api, **SYSTEM, disk_kind=kind, resources={"disk_bytes": 32 << 20})
    with serve.client() as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is answered before all of it is sent
            client.send("PUT", f"{path}/files", bytes(48 << 20), query={"path": "/app/big"})
        answer = client.receive()
    assert (answer.status, answer.code) == (507, "disk_full"), answer
    assert api.delete(path).status == 204


@pytest.mark.wall
def test_nobody_else_sees_it(serve, api, kind):
    """Neither while its sandbox is there, nor in the boxes that the pool makes and gives after it."""
    keys = [new_key(api, tenant=name) for name in ("here", "there")]
    with contextlib.ExitStack() as stack:
        one, other = [stack.enter_context(serving.Client(path=serve.socket, key=key["secret"])) for key in keys]
        beside = make(other, **SYSTEM, disk_kind=kind)
        path = make(one, **SYSTEM, disk_kind=kind)
        run(one, path, f"{WRITE}; rm /bin; ln -s /workspace /bin; chmod 777 /")
        look = "cat /hello.txt; ls / /opt /srv /root /tmp | grep -cE '^(x|app|workspace|hello.txt)$'; stat -c %a /"
        assert printed(other, beside, look) == "0\n755\n"
        assert one.delete(path).status == 204
        made = [make(other, **SYSTEM, disk_kind=kind) for _ in range(4)]
        for each in made:
            assert printed(other, each, look) == "0\n755\n"
            assert printed(other, each, "readlink /bin || true").strip() != "/workspace"
        for each in [beside, *made]:
            assert other.delete(each).status == 204
    for key in keys:
        assert api.delete(f"/v1/keys/{key['id']}").status == 204


# Says whose reads it hears of, once it is told to look. It reads its own file then.
WATCH = """python3 -c 'import ctypes, os, struct, time
libc, of = ctypes.CDLL(None), {}
os.close(os.open("/tmp/own", os.O_CREAT))
fd = libc.inotify_init1(os.O_NONBLOCK)
for path in ("/", "/etc", "/etc/hosts", "/usr/bin/env", "/dev", "/dev/null", "/tmp/own"):
    of[libc.inotify_add_watch(fd, path.encode(), 0x31)] = path
os.close(os.open("/tmp/ready", os.O_CREAT))
while not os.path.exists("/tmp/go"):
    time.sleep(0.01)
os.close(os.open("/tmp/own", os.O_RDONLY))
heard, at = os.read(fd, 65536), 0
while at < len(heard):
    wd, _, _, size = struct.unpack_from("iIII", heard, at)
    print(of.get(wd))
    at += 16 + size' >/tmp/heard; touch /tmp/over"""


@pytest.mark.wall
@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_a_watch_tells_nothing_of_what_another_tenant_reads(serve, api, privileges):
    keys = [new_key(api, tenant=name) for name in ("here", "there")]
    with contextlib.ExitStack() as stack:
        one, other = [stack.enter_context(serving.Client(path=serve.socket, key=key["secret"])) for key in keys]
        path, beside = make(one, privileges=privileges), make(other, privileges=privileges)
        start(one, path, WATCH)
        harness.wait_for(lambda: printed(one, path, "ls /tmp/ready") != "", 20 * harness.PATIENCE, "the watches")
        assert printed(other, beside, "cat /etc/hosts; ls / /etc /dev; env true </dev/null") != ""
        heard = printed(one, path, "touch /tmp/go; until [ -e /tmp/over ]; do sleep 0.01; done; cat /tmp/heard")
        assert heard.split() == ["/tmp/own", "/tmp/own"], heard
        for client, each in ((one, path), (other, beside)):
            assert client.delete(each).status == 204
    for key in keys:
        assert api.delete(f"/v1/keys/{key['id']}").status == 204


@pytest.mark.wall
@pytest.mark.parametrize("way", WAYS)
def test_links_that_it_leaves_there_lead_a_start_nowhere(api, way, tmp_path):
    """Its own root is built again on what it left, by nobody who goes where that points."""
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    for above in outside.parents:
        if os.access(above, os.W_OK) and above.owner() == tmp_path.owner():
            above.chmod(above.stat().st_mode | 0o055)
    path = make(api, **SYSTEM, disk_kind="persistent", **WAYS[way])
    program = ("import os, shutil\nfor name in 'home var opt srv mnt run root tmp bin lib64 x32'.split():\n"
               "    if os.path.islink('/' + name): os.unlink('/' + name)\n"
               "    else: shutil.rmtree('/' + name, ignore_errors=True)\n"
               f"    os.symlink('{outside}', '/' + name)\nprint(sorted(os.listdir('/')))")
    done = api.post(f"{path}/exec", {"argv": ["/usr/bin/python3", "-c", program], "cwd": "/"}).json
    assert done["process"]["exit_code"] == 0, done
    for _ in range(2):
        assert api.post(f"{path}/stop").status == api.post(f"{path}/start").status == 200
        answer = Files(api, path).stat("/home")
        assert (answer.json["type"], answer.json.get("target")) == ("symlink", str(outside)), answer
        assert os.listdir(outside) == []
    assert api.delete(path).status == 204


def change(disk, script):
    """On a disk that no box has."""
    script = f"cd '{{}}' && {script}"
    if harness.EXPECT.is_root:
        place = disk.parent / "mounted"
        place.mkdir()
        subprocess.run(["mount", "-o", "loop", disk, place], check=True)
        try:
            subprocess.run(["sh", "-c", script.format(place)], check=True)
        finally:
            subprocess.run(["umount", place], check=True)
            place.rmdir()
    else:
        many = [] if harness.EXPECT.ids == "single" else ["--map-auto"]
        subprocess.run(["unshare", "--map-root-user", *many, "sh", "-c", script.format(disk / "files")], check=True)


def disk_of(own):
    disk, = [each for each in (own.data / "disks").iterdir() if each.suffix == ".ext4" or (each / "files").is_dir()]
    return disk


@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_a_start_that_was_killed_leaves_no_half_of_a_directory(tmp_path, privileges):
    """Killed when it had made a directory and not given it to its user, or when only half was in it."""
    with serving.Serve(tmp_path, CONFIG.replace("pool = 2", "pool = 0")) as own, own.client() as client:
        path = make(client, privileges=privileges, disk_kind="persistent")
        look = "stat -c '%n %U %a' /* /home/user /var/tmp | grep -v sys"
        whole = printed(client, path, look)
        for half in ("mkdir fresh", "mkdir -p fresh/user", "mkdir fresh && ln -s ../tmp fresh/tmp"):
            assert client.post(f"{path}/stop").status == 200
            change(disk_of(own), "rmdir root/srv root/home/user root/home && rm -r root/var && "
                                 f"{half} && chown -hR --reference=root fresh")
            assert client.post(f"{path}/start").status == 200
            assert printed(client, path, look) == whole
        assert client.post(f"{path}/stop").status == 200
        change(disk_of(own), "! ls -d fresh")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_a_disk_of_before_there_was_a_root_on_it_keeps_its_home_and_tmp(tmp_path, privileges, way):
    with serving.Serve(tmp_path, CONFIG.replace("pool = 2", "pool = 0")) as own, own.client() as client:
        path = make(client, privileges=privileges, disk_kind="persistent", **WAYS[way],
                    resources={"disk_bytes": 16 << 20})
        home = printed(client, path, "echo home >~/kept; echo tmp >/tmp/kept; printf %s ~")
        assert client.post(f"{path}/stop").status == 200
        # As it was made then; and full, but of an ordinary user, whose box would be ended.
        fill = "; cat /dev/zero >tmp/full; sync -f .; while mkdir tmp/$((n+=1)); do :; done"
        fill = fill if harness.EXPECT.is_root else ""
        change(disk_of(own), f"mv root{home} home && mv root/tmp tmp && rm -rf root{fill}")
        assert client.post(f"{path}/start").status == 200
        assert printed(client, path, "rm -rf /tmp/full /tmp/[0-9]*; cat ~/kept /tmp/kept; touch /x ~/x; stat -c %a /tmp") == "home\ntmp\n1777\n"
        assert client.post(f"{path}/stop").status == client.post(f"{path}/start").status == 200
        assert printed(client, path, "cat ~/kept /tmp/kept; ls -d /x") == "home\ntmp\n/x\n"
