"""The published packages where there is nothing: a Debian of its least packages, Node, and a project into which they were installed.

No library of the build machine is there, no mount, no /etc of it; the namespaces are new, and the network is the tests' own. The
project is installed outside, for npm is not part of it.
"""
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]
import certificates
import fetch_servers
import testroot
import worlds

MODULES = TOP / "node_modules"
PACKAGES = ("client", {"x86_64": "linux-x64", "aarch64": "linux-arm64"}[os.uname().machine], "mastra", "node")

# Runs in the new namespaces. What root's packages are installed into is closed to others, as /root is.
ENTER = """
set -eu
root=$1 modules=$2 tree=$3 authorities=$7
mount -t tmpfs -o mode=755 tmpfs "$tree"
mkdir "$tree/upper" "$tree/work" "$tree/root"
mount -t overlay -o "lowerdir=$root,upperdir=$tree/upper,workdir=$tree/work" overlay "$tree/root"
cd "$tree/root"
mkdir -p ".$modules" project
mount --rbind "$modules" ".$modules"
mount --bind "$4" project
mount --bind "$5" project/run-dir
touch usr/local/bin/node
mount --bind "$6" usr/local/bin/node
mkdir -p ".$(dirname "$authorities")"
install -m 644 project/ca.pem ".$authorities"
echo nameserver 203.0.113.2 >etc/resolv.conf
mount --rbind /dev dev
mount --rbind /sys sys
mount -t proc proc proc
mkdir old
pivot_root . old
umount -l /old
rmdir /old
cd /project
# Not executed in place of this shell, which as the first process of the namespace waits for those that nobody else waits for.
env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root AUTHORITIES="$authorities" XDG_RUNTIME_DIR=/project/run-dir node bare.mjs
"""

PROGRAM = """
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import tls from "node:tls";
import { promisify } from "node:util";
import { setTimeout as pause } from "node:timers/promises";
import { CoveFilesystem, CoveSandbox } from "@cove/mastra";
import { Cove } from "@cove/client";
import { run } from "@cove/node";

// Processes are seen in our own namespace alone: who else is here is ours.
const others = () => fs.readdirSync("/proc").filter((name) => /^[0-9]+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => { try { return /^(cove|cove-engine|cove-keeper)$/.test(fs.readFileSync(`/proc/${pid}/comm`, "utf8").trim()); } catch { return false; } });
assert.deepEqual(others(), []);
const sandbox = new CoveSandbox();
const result = await sandbox.executeCommand("sh", ["-c", "echo out; echo err >&2; id -u; exit 3"]);
assert.deepEqual([result.exitCode, result.stdout.split("\\n")[0], result.stderr], [3, "out", "err\\n"]);
const files = new CoveFilesystem({ sandbox });
await files.writeFile("a/b.txt", "x".repeat(100000));
assert.equal((await sandbox.executeCommand("wc", ["-c", "a/b.txt"])).stdout.trim(), "100000 a/b.txt");
assert.deepEqual((await files.readdir("a")).map(({ name }) => name), ["b.txt"]);
await sandbox._stop();
assert.equal((await sandbox.executeCommand("cat a/b.txt | wc -c")).stdout.trim(), "100000");
assert.equal((await run("6 * 7")).value, 42);
const cove = new Cove();
await cove.connect();
assert.ok(cove.isPrivate());

// The engine's own libcurl, and the authorities of this machine.
const fetched = async (url) => (await cove.kernels.run({ code: `(await (await fetch("${url}")).json()).path`, allowed_hosts: ["four.test"] }));
assert.equal((await fetched("http://four.test:8080/plain")).value, "/plain");
assert.equal((await fetched("https://four.test:8443/secret")).value, "/secret");
assert.match((await fetched("https://four.test:8444/foreign")).error.message, /can be trusted comes about: (?!.*install)/);

// The command line's own OpenSSL, from a kernel and to a server.
const cli = async (env, ...words) => (await promisify(execFile)("node_modules/.bin/cove", words, { env: { ...process.env, ...env } })).stdout;
const code = "const answer = await fetch('https://four.test:8443/from-cli'); (await answer.json()).path";
assert.equal((await cli({}, "js", "--allow-host", "four.test", "-e", code)).trim(), "/from-cli");
const key = fs.readFileSync("bare.both");
const front = tls.createServer({ key, cert: key }, (client) => client.pipe(net.connect(cove.address.slice("unix:".length))).pipe(client));
await new Promise((resolve) => front.listen(0, "127.0.0.1", resolve));
const list = await cli({ COVE_URL: `https://127.0.0.1:${front.address().port}` }, "ls", "--json");
assert.equal(JSON.parse(list).sandboxes.length, 1);
front.close();
fs.unlinkSync(process.env.AUTHORITIES);
assert.match((await fetched("https://four.test:8443/secret")).error.message, /can be trusted comes about: .*install ca-certificates$/);
await sandbox._destroy();
for (const pid of others()) try { process.kill(Number(pid), "SIGTERM"); } catch (error) { if (error.code !== "ESRCH") throw error; }
for (let tries = 0; tries < 600 && others().length > 0; tries++) await pause(50);
assert.deepEqual(others(), []);
console.log("all of it works");
process.exit(0);
"""


@pytest.fixture(scope="module")
def debian():
    return testroot.unpack("bareroot")


@pytest.fixture
def world(tmp_path):
    with worlds.World(tmp_path) as made:
        made.authority = certificates.Authority(made.directory / "ours")
        fetch_servers.start(made, *fetch_servers.make_certificates(made))
        yield made


@pytest.fixture
def project(tmp_path, world):
    """Only root may enter it: the engine, which has given that up by then, has to start all the same."""
    made = tmp_path / "project"
    made.mkdir(mode=0o700)
    npm = ["npm", "--offline", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run([*npm, "pack", *[str(TOP / "packages" / name) for name in PACKAGES]], cwd=made, check=True, capture_output=True)
    (made / "package.json").write_text('{"private": true}')
    subprocess.run([*npm, "install", "--ignore-scripts", "--legacy-peer-deps", *map(str, made.glob("*.tgz"))], cwd=made, check=True, capture_output=True)
    os.symlink(MODULES / "@mastra", made / "node_modules" / "@mastra")
    (made / "bare.mjs").write_text(PROGRAM)
    shutil.copy(world.authority.file, made / "ca.pem")
    shutil.copy(world.authority.certificate("bare", "IP:127.0.0.1"), made / "bare.both")
    (made / "run-dir").mkdir(mode=0o700)
    return made


@pytest.mark.parametrize("authorities", ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"], ids=["debian", "fedora"])
def test_bare(debian, project, world, tmp_path, authorities):
    libraries = {path.name for path in (debian / "usr" / "lib").rglob("lib*.so*")}
    assert not [name for name in libraries if name.startswith(("libuv.", "libssl.", "libcares.", "libsqlite3.", "libcurl"))]
    tree, run_dir = tmp_path / "tree", tmp_path / "run"
    tree.mkdir()
    run_dir.mkdir(mode=0o700)
    words = ["nsenter", f"--net=/proc/{world.inner}/ns/net", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", ENTER, "enter",
             debian, MODULES, tree, project, run_dir, os.path.realpath(MODULES / ".bin" / "node"), authorities]
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = process.communicate(timeout=600)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    log = run_dir / "cove" / "serve.log"
    assert process.returncode == 0 and out == "all of it works\n", out + err + (log.read_text() if log.exists() else "")
