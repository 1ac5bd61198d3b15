"""A program that a user of openapi-python-client would write: it calls each operation once, with the functions and
models that were made of openapi.yaml. What the generator does not read (lines of JSON, archives, any server's answer)
comes as the bytes of the answer."""
import io
import os
import time

from cove_api.api.events import listen_events
from cove_api.api.files import (change_file_mode, change_file_owner, copy_file, find_files, list_files, make_directory,
                                make_symlink, move_file, read_file, read_file_attribute, read_tar, remove_file,
                                remove_file_attribute, search_files, stat_file, stat_files, watch_files, write_file,
                                write_file_attribute, write_files, write_tar)
from cove_api.api.host import (get_capacity, get_health, get_metrics, get_openapi, get_readiness, get_version,
                               list_roots)
from cove_api.api.kernels import (connect_kernels, create_kernel, delete_kernel, fork_kernel, get_kernel, list_kernels,
                                  reset_kernel, restore_kernel, run_in_kernel, run_kernel, snapshot_kernel)
from cove_api.api.keys import end_key, get_quota, list_keys, make_key, set_quota
from cove_api.api.ports import close_port, list_ports, open_port, open_tunnel, reach_port
from cove_api.api.processes import (attach_terminal, delete_process, exec_, follow_process, get_process,
                                    list_processes, read_output, signal_process, start_process, wait_process,
                                    write_stdin)
from cove_api.api.sandboxes import (change_sandbox, create_sandbox, delete_sandbox, get_network, get_sandbox,
                                    get_usage, list_sandboxes, mount_directory, start_sandbox, stop_sandbox,
                                    unmount_directory)
from cove_api.api.tokens import end_tokens, make_token, sign_url
from cove_api.client import AuthenticatedClient
from cove_api import models
from cove_api.types import File

client = AuthenticatedClient(base_url=os.environ["COVE_URL"], token=os.environ["COVE_API_KEY"])


def ask(module, *arguments, **more):
    """The answer of a call, which must be a success."""
    answer = module.sync_detailed(*arguments, client=client, **more)
    assert 200 <= answer.status_code < 300, (module.__name__, answer.status_code, answer.content)
    return answer


def call(module, *arguments, **more):
    """What it says, as the generator reads it."""
    return ask(module, *arguments, **more).parsed


def read(module, *arguments, **more):
    """The bytes of an answer of which the generator knows no type."""
    answer = client.get_httpx_client().request(**module._get_kwargs(*arguments, **more))
    assert answer.status_code == 200, (module.__name__, answer.status_code, answer.content)
    return answer.content


def refused(module, *arguments):
    """An upgrade, which httpx cannot ask for: the server says so."""
    assert module.sync_detailed(*arguments, client=client).status_code == 426, module.__name__


def same(is_, wanted):
    assert is_ == wanted, f"{is_!r} is not {wanted!r}"


def octets(data):
    return File(payload=io.BytesIO(data))


# ---- the host ----
same(call(get_health).status, "ok")
same(call(get_readiness).status, "ok")
assert "cove_sandboxes" in call(get_metrics)
same(call(get_version).api, "v1")
assert b"openapi: 3.1" in read(get_openapi)
same(call(list_roots).mounts, ["notes"])
call(get_capacity)

# ---- a sandbox ----
made = call(create_sandbox, idempotency_key="one", body=models.SandboxSpec(
    name="typed", labels=models.LabelsType0.from_dict({"made": "by"}),
    lifecycle=models.LifecycleSpecType0.from_dict({"idle_ms": 600000, "then": "stop"}),
    network=models.NetworkSpecType0.from_dict({"mode": "none"})))
assert made.created
box = made.id
same([each.id for each in call(list_sandboxes, label=["made=by"], limit=10).sandboxes], [box])
same(call(get_sandbox, box).state, "running")
changed = models.SandboxChange(lifecycle=models.LifecycleSpecType0(idle_ms=700000))
same(call(change_sandbox, box, body=changed).lifecycle.then, "stop")
call(stop_sandbox, box)
call(start_sandbox, box)
same(call(get_usage, box).state, "running")
same(call(get_network, box).policy.mode, "none")

# ---- commands ----
ran = call(exec_, box, body=models.ExecSpec(command="echo out", env=models.EnvType0.from_dict({"A": "b"})))
same((ran.stdout, ran.process.exit_code), ("out\n", 0))
cat = call(start_process, box, body=models.ProcessSpec(argv=["cat"], open_stdin=True)).id
same(len(call(list_processes, box).processes), 2)
same(call(get_process, box, cat).state, "running")
call(signal_process, box, cat, body=models.SignalSpec(signal="CONT"))
call(write_stdin, box, cat, body=octets(b"typed\n"), close=True)
same(call(wait_process, box, cat).exit_code, 0)
same(ask(read_output, box, cat).content, b"typed\n")
same([b'"exit"' in line for line in read(follow_process, box, cat).splitlines()], [False, True])
call(delete_process, box, cat)
terminal = call(start_process, box, body=models.ProcessSpec(argv=["cat"],
                                                           terminal=models.TerminalSize(rows=24, columns=80)))
refused(attach_terminal, box, terminal.id)

# ---- mounts ----
mounted = call(mount_directory, box, body=models.MountSpec(name="notes", target="/notes", read_only=True))
same(mounted.mounts[0].target, "/notes")
call(unmount_directory, box, target="/notes")

# ---- ports ----
call(start_process, box, body=models.ProcessSpec(
    command="cd /etc && python3 -m http.server 8080 --bind 127.0.0.1"))
while not any(port.listening for port in call(list_ports, box).ports):
    time.sleep(0.05)
assert call(open_port, box, body=models.PortSpec(port=8080)).open_
same(read(reach_port, box, 8080, "hostname"), b"box\n")
refused(open_tunnel, box, 8080)
call(close_port, box, 8080)

# ---- files ----
same(call(write_file, box, path="/tmp/a", body=octets(b"a line\n")).size, 7)
same(ask(read_file, box, path="/tmp/a").content, b"a line\n")
form = models.WriteFilesFilesBody(file=[File(payload=io.BytesIO(b"in a form"), file_name="formed")])
same(len(call(write_files, box, path="/tmp", body=form).files), 1)
same(call(stat_file, box, path="/tmp/a").type_, "file")
assert call(stat_files, box, body=models.StatFilesBody(paths=["/tmp/a", "/tmp/none"])).entries
assert call(list_files, box, path="/tmp", glob=["*"]).entries
call(make_directory, box, body=models.MakeDirectoryBody(path="/tmp/d/e", parents=True))
call(copy_file, box, body=models.CopyFileBody(from_="/tmp/a", to="/tmp/d/b"))
call(move_file, box, body=models.MoveFileBody(from_="/tmp/d/b", to="/tmp/d/c"))
call(change_file_mode, box, body=models.ChangeFileModeBody(path="/tmp/d/c", mode="0600"))
call(change_file_owner, box, body=models.ChangeFileOwnerBody(path="/tmp/d/c", owner="0:0"))
call(make_symlink, box, body=models.MakeSymlinkBody(path="/tmp/l", target="a"))
call(write_file_attribute, box, path="/tmp/a", name="user.origin", body=octets(b"here"))
same(ask(read_file_attribute, box, path="/tmp/a", name="user.origin").content, b"here")
call(remove_file_attribute, box, path="/tmp/a", name="user.origin")
same(len(call(find_files, box, body=models.FindFilesBody(path="/tmp", globs=["c"], stream=False)).entries), 1)
same(len(call(search_files, box, body=models.SearchFilesBody(path="/tmp", pattern="line", stream=False)).matches), 2)
assert b"watching" in read(watch_files, box, path="/tmp", for_ms=50)
tar = ask(read_tar, box, path=["/tmp/d"]).content
assert call(write_tar, box, path="/tmp/again", body=octets(tar)).count > 0
call(remove_file, box, body=models.RemoveFileBody(path="/tmp/d", recursive=True))

# ---- access ----
same(call(make_token, box, body=models.TokenSpec(verbs=[models.Verb.LOOK])).verbs, ["look"])
call(sign_url, box, body=models.UrlSpec(method=models.UrlSpecMethod.GET, path="/tmp/a"))
call(end_tokens, box)
key = call(make_key, body=models.KeySpec(label="made", scopes=[models.Scope.READ]))
assert key.id in [each.id for each in call(list_keys).keys]
call(end_key, key.id)
call(set_quota, "team", body=models.Quota(sandboxes=10))
same(call(get_quota, "team").quota.sandboxes, 10)

# ---- kernels ----
same(call(run_kernel, body=models.KernelRunSpec(code="6 * 7")).value, 42)
kernel = call(create_kernel, body=models.KernelSpec(name="typed")).id
same(len(call(list_kernels).kernels), 1)
same(call(run_in_kernel, kernel, body=models.KernelRunInSpec(code="globalThis.n = 1")).value, 1)
fork = call(fork_kernel, kernel).id
snapshot = ask(snapshot_kernel, kernel).content
call(restore_kernel, cove_manifest='{"name":"restored"}', body=octets(snapshot))
call(reset_kernel, kernel)
same(call(get_kernel, kernel).state, "idle")
call(delete_kernel, fork)
refused(connect_kernels)

# ---- the end ----
assert b"sandbox.created" in read(listen_events, from_=1, for_ms=300)
call(delete_sandbox, box)
