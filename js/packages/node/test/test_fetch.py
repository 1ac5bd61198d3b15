"""fetch() of kernels in a Node process, which does the asking under the kernel's policy: world/fetch.test.mjs, in a network of its
own with http and https servers at addresses that are nobody's."""
import pathlib

import pytest

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[3]
import certificates
import fetch_servers
import harness
import worlds

NODE = TOP / "js" / "node_modules" / ".bin" / "node"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    assert harness.EXPECT.is_root, "these tests make networks"
    with worlds.World(tmp_path_factory.mktemp("world")) as made:
        made.authority = certificates.Authority(made.directory / "ours")
        fetch_servers.start(made, *fetch_servers.make_certificates(made))
        yield made


@pytest.mark.parametrize("trusts", [True, False])
def test_fetch(world, trusts):
    environment = [f"NODE_EXTRA_CA_CERTS={world.authority.file}"] if trusts else []
    done = world.program("env", "-u", "NODE_EXTRA_CA_CERTS", *environment, NODE, "--test", HERE / "world" / "fetch.test.mjs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n# pass 0\n" not in done.stdout
