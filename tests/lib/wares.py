"""What the servers of a world give away, and what their clients are made of: certificates of an authority of its
own, a package for pip, npm and apt each, repositories, keys, a client in Go and one in Java. Made once, and again
when this file is newer; every name in it is one that nobody has."""
import base64
import fcntl
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import zipfile

import harness

NAMES = ["api.test", "git.test", "index.test", "files.test", "npm.test", "apt.test", "db.test"]
GO = shutil.which("go", path=os.environ["PATH"] + ":/usr/local/go/bin")
CLIENTS = harness.ROOT / "tests" / "net" / "drivers" / "clients"
VERSION = "1.0"
SSHD = """
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/client_key.pub
PermitRootLogin yes
PasswordAuthentication no
StrictModes no
UsePAM no
PidFile none
"""


def run(*command, **more):
    subprocess.run(list(map(str, command)), check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **more)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def certificates(top, names):
    """The clients' `ca.pem`; the servers' `server.pem`."""
    new = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-sha256"]
    given, key = top / "given", top / "ca.key"
    run(*new, "-x509", "-days", "3650", "-subj", "/CN=An authority of tests", "-keyout", key, "-out",
        given / "ca.pem", "-addext", "keyUsage=critical,keyCertSign,cRLSign", stderr=subprocess.DEVNULL)
    run(*new, "-subj", "/CN=A server of tests", "-keyout", top / "server.key", "-out", top / "request.pem",
        stderr=subprocess.DEVNULL)
    said = write(top / "extensions", "basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\nsubjectAltName=" +
                 ",".join(f"DNS:{name}" for name in names) + "\n")
    run("openssl", "x509", "-req", "-days", "3650", "-sha256", "-in", top / "request.pem", "-CA",
        given / "ca.pem", "-CAkey", key, "-CAcreateserial", "-extfile", said, "-out", top / "server.pem",
        stderr=subprocess.DEVNULL)
    run("keytool", "-importcert", "-noprompt", "-alias", "tests", "-file", given / "ca.pem", "-keystore",
        given / "trust.p12", "-storetype", "PKCS12", "-storepass", "changeit", stderr=subprocess.DEVNULL)


def for_pip(www):
    """An index, whose file another host has."""
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        info = f"tinyware-{VERSION}.dist-info"
        archive.writestr("tinyware.py", 'print("tinyware of pip")\n')
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tinyware\nVersion: {VERSION}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
                         "Tag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"tinyware.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    name = f"tinyware-{VERSION}-py3-none-any.whl"
    write(www / "files" / name, wheel.getvalue())
    write(www / "simple" / "tinyware" / "index.html",
          f'<!DOCTYPE html><a href="https://files.test/files/{name}">{name}</a>\n')


def for_npm(www):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in (("package.json", json.dumps({"name": "tinyware", "version": "1.0.0"})),
                           ("index.js", 'console.log("tinyware of npm")\n')):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    write(www / "npm" / "files" / "tinyware-1.0.0.tgz", packed.getvalue())
    digest = base64.b64encode(hashlib.sha512(packed.getvalue()).digest()).decode()
    write(www / "npm" / "tinyware" / "index.json", json.dumps({
        "name": "tinyware", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {
            "name": "tinyware", "version": "1.0.0", "dist": {
                "tarball": "https://npm.test/npm/files/tinyware-1.0.0.tgz", "integrity": f"sha512-{digest}"}}}}))


def for_apt(top, www):
    control = f"Package: tinyware\nVersion: {VERSION}\nArchitecture: all\nMaintainer: tests <tests@apt.test>\n" \
              "Description: tinyware of apt\n"
    tree = top / "deb"
    write(tree / "DEBIAN" / "control", control)
    file = f"tinyware_{VERSION}_all.deb"
    (www / "apt").mkdir(parents=True)
    run("dpkg-deb", "--root-owner-group", "--build", tree, www / "apt" / file)
    data = (www / "apt" / file).read_bytes()
    packages = (control + f"Filename: ./{file}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
                "\n").encode()
    write(www / "apt" / "Packages", packages)
    write(www / "apt" / "Release", "Suite: tests\nSHA256:\n"
          f" {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n")


def for_git(top):
    """With one commit; whoever comes may push."""
    work, bare = top / "work", top / "git" / "tinyware.git"
    bare.parent.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(top), "GIT_CONFIG_NOSYSTEM": "1"}
    author = ["-c", "user.name=tests", "-c", "user.email=tests@git.test"]
    run("git", "init", "-q", "-b", "main", work, env=env)
    write(work / "file", "tinyware of git\n")
    run("git", "-C", work, "add", "file", env=env)
    run("git", *author, "-C", work, "commit", "-q", "-m", "One", env=env)
    run("git", "clone", "-q", "--bare", work, bare, env=env)


def for_ssh(top):
    for key in (top / "host_key", top / "client_key"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tests", "-f", key)
    write(top / "sshd_config", SSHD.format(directory=top))
    given = top / "given"
    write(given / "client_key", (top / "client_key").read_bytes())
    write(given / "known_hosts", "git.test " + (top / "host_key.pub").read_text(encoding="ascii"))


def programs(top):
    """Go compiles its whole library first: that is done once for all users."""
    env = {"PATH": os.environ["PATH"], "HOME": str(top), "GOCACHE": str(harness.MADE / "go-cache"),
           "GOTOOLCHAIN": "local", "GO111MODULE": "off", "CGO_ENABLED": "0"}
    run("javac", "-d", top / "given", CLIENTS / "Client.java")
    source, target, there = CLIENTS / "client.go", top / "given" / "go-client", harness.BUILD / "wares/given/go-client"
    whole = harness.BUILD / "wares/done"  # written last
    if whole.exists() and there.exists() and whole.stat().st_mtime > there.stat().st_mtime > source.stat().st_mtime:
        shutil.copy(there, target)
        return
    run(GO, "build", "-o", target, source, env=env, cwd=top)


def make():
    """The directory; below it, `given` is what clients get."""
    top = harness.MADE / "wares"
    with open(harness.MADE / ".wares.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_in(top)
    return top


def make_in(top):
    newest = max(path.stat().st_mtime for path in [pathlib.Path(__file__), *CLIENTS.iterdir()])
    done = top / "done"
    if done.exists() and done.stat().st_mtime > newest:
        return
    shutil.rmtree(top, ignore_errors=True)
    (top / "given").mkdir(parents=True)
    certificates(top, NAMES + ["*.example.com", "example.com"])
    for_pip(top / "www")
    for_npm(top / "www")
    for_apt(top, top / "www")
    for_git(top)
    for_ssh(top)
    programs(top)
    for path in [top, *(top / "given").iterdir()]:
        path.chmod(0o755 if path.is_dir() or path.name == "go-client" else 0o644)
    write(done, "")


if __name__ == "__main__":
    make()
