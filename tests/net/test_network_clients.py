"""Programs that people use, as they are: each reaches what its sandbox's list names, and says at once why it does
not reach the rest. Against real servers of their kinds (drivers/services.py), and at the end against whatever the
machine itself installs from."""
import dataclasses
import getpass
import re
import subprocess
import time

import pytest

import harness
import sandboxes
import serving
import wares
import worlds

QUICK = 1.0 * harness.PATIENCE  # more than it needs anyway
DENIED = "other.test"           # is there, and no rule names it
ALLOWED = ["api.test:443", "git.test:443", "git.test:22", "index.test:443", "files.test:443", "npm.test:443",
           "apt.test:80", "db.test:5432"]

# Whom each of them trusts, and what it does at a start that is its own affair.
ENV = {"CURL_CA_BUNDLE": "/wares/ca.pem", "GIT_SSL_CAINFO": "/wares/ca.pem", "SSL_CERT_FILE": "/wares/ca.pem",
       "PIP_CERT": "/wares/ca.pem", "REQUESTS_CA_BUNDLE": "/wares/ca.pem", "NODE_EXTRA_CA_CERTS": "/wares/ca.pem",
       "npm_config_cafile": "/wares/ca.pem", "npm_config_update_notifier": "false", "npm_config_audit": "false",
       "npm_config_fund": "false", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_CACHE_DIR": "1",
       "HOME": "/tmp", "npm_config_cache": "/tmp/npm-cache"}
JAVA = ("java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp /wares -Djavax.net.ssl.trustStore=/wares/trust.p12"
        " -Djavax.net.ssl.trustStorePassword=changeit Client")
FETCH = "fetch(process.argv[1]).then(a => a.text()).then(t => process.stdout.write(t))"
REQUESTS = "import requests, sys; print(requests.get(sys.argv[1]).text)"
SSH = "ssh -o BatchMode=yes -i /tmp/key -o UserKnownHostsFile=/wares/known_hosts -F none"
APT = ("apt-get -q -o Dir::State=/tmp/apt -o Dir::Cache=/tmp/apt/cache -o Dir::Etc::SourceList=/tmp/apt/list"
       " -o Dir::Etc::SourceParts=- -o APT::Sandbox::User=root -o Acquire::Retries=0")


@dataclasses.dataclass
class Client:
    """What is typed, and what is then said: that it worked, that there is no such name, that the port is denied.
    Where a client would wait before it tries again, it is told not to, by its own option."""
    name: str
    host: str
    port: int
    typed: str
    said: str
    no_name: str
    no_port: str

    def typed_for(self, host, port):
        return (self.typed.replace("URL", f"https://{host}:{port}/hello").replace("HOST", host)
                .replace("PORT", str(port)))


HELLO = "hello api.test"
# The handshake is over before the engine refuses, or not quite.
RESET = "[Rr]eset|[Rr]efused|Couldn't connect"
CLIENTS = [
    Client("curl", "api.test", 443, "curl -sS URL", HELLO, "Could not resolve host: other.test", RESET),
    Client("git over https", "git.test", 443,
           "rm -rf a; git clone -q https://HOST:PORT/git/tinyware.git a && cat a/file", "tinyware of git",
           "Could not resolve host: other.test", RESET),
    Client("git over ssh", "git.test", 22,
           f"rm -rf b; GIT_SSH_COMMAND='{SSH}' git clone -q ssh://USER@HOST:PORTWARES/git/tinyware.git b && "
           "cat b/file", "tinyware of git", "Could not resolve hostname other.test", RESET),
    Client("pip", "index.test", 443,
           "rm -rf c; pip install -q --retries 1 --no-deps -i https://HOST:PORT/simple --target c tinyware && "
           "PYTHONPATH=c python3 -m tinyware", "tinyware of pip", "Name or service not known", RESET),
    Client("npm", "npm.test", 443,
           "rm -rf d; mkdir d && cd d && npm install --fetch-retries 0 --registry https://HOST:PORT/npm/ tinyware "
           "&& node node_modules/tinyware", "tinyware of npm", "ENOTFOUND other.test",
           "ECONNRESET|ECONNREFUSED"),
    Client("apt", "apt.test", 80,
           "rm -f *.deb; echo 'deb [trusted=yes] http://HOST:PORT/apt ./' >/tmp/apt/list; "
           f"{APT} update --error-on=any && {APT} download tinyware && dpkg-deb -f *.deb Description",
           "tinyware of apt", "Could not resolve 'other.test'", f"Connection failed|{RESET}"),
    Client("fetch of Node", "api.test", 443, f"node -e '{FETCH}' URL", HELLO, "ENOTFOUND other.test",
           "ECONNRESET|ECONNREFUSED|disconnected before"),
    Client("requests of Python", "api.test", 443, f"/usr/bin/python3 -c '{REQUESTS}' URL", HELLO,
           "Name or service not known", RESET),
    Client("HTTP of Go", "api.test", 443, "/wares/go-client URL", HELLO, "no such host", RESET),
    Client("HTTP of Java", "api.test", 443, f"{JAVA} URL", HELLO, "UnresolvedAddressException", RESET),
    Client("psql", "db.test", 5432, "psql -h HOST -p PORT -U client -d postgres -Atc \"select 'the answer is ' || 6 * 7\"",
           "the answer is 42", 'could not translate host name "other.test"',
           f"closed the connection|{RESET}"),
]

nothing_left, serve, _ = serving.one_for_all(in_world=True)


@pytest.fixture(scope="module")
def goods():
    return wares.make()


@pytest.fixture(scope="module")
def world(goods, tmp_path_factory):
    names = {name: [worlds.SERVER, worlds.SERVER6] for name in wares.NAMES}
    with worlds.World(tmp_path_factory.mktemp("world"), names, goods) as made:
        yield made


class Sandbox(sandboxes.Sandbox):
    def __init__(self, client, **fields):
        super().__init__(client, privileges="system", **fields)

    def try_it(self, typed, env=None):
        """(exit code, all that it said, seconds)."""
        began = time.monotonic()
        done = self.run("sh", "-c", typed, cwd="/tmp", env=env or {})
        return done["process"]["exit_code"], done["stdout"] + done["stderr"], time.monotonic() - began


@pytest.fixture(scope="module")
def sandbox(serve, goods):
    subprocess.run([harness.COVE, "mount", "add", "wares", goods / "given", "--read-only"], check=True,
                   env={"COVE_URL": f"unix:{serve.socket}"})
    with serve.client(timeout=120) as client, Sandbox(
            client, network={"allow": ALLOWED},
            mounts=[{"name": "wares", "target": "/wares", "read_only": True}]) as made:
        code, said, _ = made.try_it("install -m 600 /wares/client_key /tmp/key && "
                                  "mkdir -p /tmp/apt/lists/partial /tmp/apt/cache/archives/partial")
        assert code == 0, said
        yield made


def type_it(sandbox, goods, client, host, port):
    typed = (client.typed_for(host, port).replace("USER", getpass.getuser()).replace("WARES", str(goods)))
    return sandbox.try_it(typed, ENV)


def refused(sandbox, goods, client, host, port, words, worked):
    """It says why, and takes no longer than when it works; a machine that is busy has more tries."""
    for _ in range(3):
        code, said, took = type_it(sandbox, goods, client, host, port)
        assert code != 0 and re.search(words, said), said
        if took < worked + QUICK:
            return
        worked = max(worked, type_it(sandbox, goods, client, client.host, client.port)[2])
    raise AssertionError(f"{took:.2f} s, and {worked:.2f} s where it works:\n{said}")


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_it_works_where_it_may_and_says_at_once_where_not(sandbox, goods, client):
    code, said, worked = type_it(sandbox, goods, client, client.host, client.port)
    assert code == 0 and client.said in said, said
    refused(sandbox, goods, client, DENIED, client.port, client.no_name, worked)
    refused(sandbox, goods, client, client.host, client.port + 1, client.no_port, worked)


def test_git_pushes_both_ways(sandbox, goods):
    repository = f"ssh://{getpass.getuser()}@git.test{goods}/git/tinyware.git"
    code, said, _ = sandbox.try_it(f"""
        export GIT_SSH_COMMAND='{SSH}' && rm -rf e f g && git clone -q {repository} e && cd e &&
        git checkout -q -b pushed && head -c 3000000 /dev/urandom >big && git add big &&
        git -c user.name=a -c user.email=a@api.test commit -q -m Two && git push -q -f origin pushed &&
        git clone -q -b pushed https://git.test/git/tinyware.git ../f && cmp big ../f/big &&
        git -C ../f push -q -f origin pushed:again &&
        git clone -q -b again {repository} ../g && cmp big ../g/big && echo the same""", ENV)
    assert code == 0 and said.endswith("the same\n"), said


# ---- what the machine installs from --------------------------------------------------------------

REGISTRIES = {
    # Who says which hosts it asks, on the host; what is typed in the box; and what is there then.
    "pip": ("pip download -vvv --no-deps --no-cache-dir -d DIRECTORY idna 2>&1",
            "pip install -q --retries 1 --no-deps --no-cache-dir --target /tmp/lib idna && "
            "PYTHONPATH=/tmp/lib python3 -c 'import idna; print(idna.__name__)'", "idna"),
    "npm": ("npm config get registry",
            "cd /tmp && npm install --no-update-notifier --fetch-retries 0 is-odd && "
            "node -p 'require(\"is-odd\")(7)'", "true"),
    "apt": ("apt-get indextargets --format '$(REPO_URI)'",
            "cd /tmp && mkdir -p apt/lists/partial apt/cache/archives/partial && apt() { apt-get -q "
            "-o Dir::State=/tmp/apt -o Dir::Cache=/tmp/apt/cache -o APT::Sandbox::User=root "
            "-o Acquire::Retries=0 \"$@\"; } && apt update && apt download hello && "
            "dpkg-deb -f hello_*.deb Package", "hello"),
}


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """In the machine's own network, with its own names. A box sees nothing of /etc/apt but by a mount."""
    with serving.Serve(tmp_path_factory.mktemp("outside")) as started:
        subprocess.run([harness.COVE, "mount", "add", "sources", "/etc/apt", "--read-only"], check=True,
                       env={"COVE_URL": f"unix:{started.socket}"})
        yield started


@pytest.mark.registry
@pytest.mark.parametrize("name", REGISTRIES)
def test_what_the_machine_installs_from(outside, tmp_path, name):
    asked, typed, said = REGISTRIES[name]
    told = subprocess.run(asked.replace("DIRECTORY", str(tmp_path)), shell=True, text=True, cwd=tmp_path,
                          stdout=subprocess.PIPE, check=True).stdout
    hosts = sorted(set(re.findall(r"https?://([\w.-]+)", told)))
    assert hosts, told
    more = {"mounts": [{"name": "sources", "target": "/etc/apt", "read_only": True}]}
    with outside.client(timeout=180) as client:
        with Sandbox(client, network={"allow": hosts}, **more) as allowed:
            for _ in range(3):  # for what is beyond this machine may fail by itself
                code, what, _ = allowed.try_it(typed)
                if code == 0:
                    break
            assert code == 0 and said in what.split(), what
        with Sandbox(client, network={"allow": ["api.test"]}, **more) as denied:
            code, what, _ = denied.try_it(typed)
            assert code != 0, what
