"""What programs for wasmagent and for Code Mode fetch: world/wasmagent-fetch.test.mjs, in a network of its own, for no kernel reaches
loopback. By root alone, who makes networks."""
import pathlib

import pytest

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[3]
import certificates
import fetch_servers
import harness
import worlds

NODE = TOP / "js" / "node_modules" / ".bin" / "node"


@pytest.mark.skipif(not harness.EXPECT.is_root, reason="these tests make networks")
def test_fetch(tmp_path):
    with worlds.World(tmp_path) as world:
        world.authority = certificates.Authority(world.directory / "ours")
        fetch_servers.start(world, *fetch_servers.make_certificates(world))
        done = world.program(NODE, "--test", HERE / "world" / "wasmagent-fetch.test.mjs")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "\n# pass 0\n" not in done.stdout
