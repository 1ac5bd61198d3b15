"""What is written on the disk of a sandbox: known while it runs and, where the disk is kept, while it does
not; for root and for an ordinary user, whichever way the disk is made."""
import pytest

import harness
import keepers
import sandboxes
import serving

MIB = 1 << 20


@pytest.fixture
def serve(tmp_path):
    with serving.Serve(tmp_path, "[boxes]\nmemory = 256M\ndisk = 96M\n") as started:
        yield started


class Sandbox(sandboxes.Sandbox):
    def used(self):
        return self.ask("GET", "/usage").json["disk_bytes"]

    def wait(self, holds, what):
        seen = []

        def look():
            seen[:] = [self.used()]
            return seen[0] is not None and holds(seen[0])

        try:
            harness.wait_for(look, 30 * harness.PATIENCE, what)
        except AssertionError as error:
            raise AssertionError(f"{what}: it says {seen}") from error


@pytest.mark.parametrize("disk_kind", ["ephemeral", "persistent"])
def test_what_is_written_and_removed_is_seen(serve, disk_kind):
    with serve.client() as client:
        sandbox = Sandbox(client, disk_kind=disk_kind)
        sandbox.wait(lambda used: used < 8 * MIB, "a new disk")
        sandbox.output("head -c 24M /dev/zero >/tmp/a; head -c 8M /dev/zero >~/b")
        sandbox.wait(lambda used: 32 * MIB <= used < 44 * MIB, "32 MiB")
        sandbox.output("rm /tmp/a")
        sandbox.wait(lambda used: 8 * MIB <= used < 18 * MIB, "8 MiB")
        assert client.post(f"{sandbox.path}/stop").status == 200
        if disk_kind == "ephemeral":
            assert sandbox.used() == 0
        else:
            sandbox.wait(lambda used: 8 * MIB <= used < 26 * MIB, "8 MiB of a stopped one")
            assert client.post(f"{sandbox.path}/start").status == 200
            sandbox.wait(lambda used: 8 * MIB <= used < 18 * MIB, "8 MiB after a start")
        assert client.delete(sandbox.path).status == 204


def test_a_sparse_file_counts_for_what_it_has(serve):
    with serve.client() as client:
        for disk_kind in ("ephemeral", "persistent"):
            sandbox = Sandbox(client, disk_kind=disk_kind)
            sandbox.output("truncate -s 64M /tmp/sparse; head -c 4M /dev/zero >/tmp/real")
            sandbox.wait(lambda used: 4 * MIB <= used < 14 * MIB, "4 MiB")
            assert client.delete(sandbox.path).status == 204


def test_a_disk_that_is_not_there_is_not_known(keeper):
    engine = keeper.greeted()
    engine.send(keepers.weigh_disk(engine.next_id(), "c0" + "n" * 18))
    kind, _, body, fds = engine.receive()
    assert kind == keepers.USED and not fds
    assert keepers.report_of(body)["disk_bytes"] == (1 << 64) - 1


@pytest.mark.parametrize("disk_kind", ["ephemeral", "persistent"])
def test_after_the_engine_was_killed_it_is_known_still(serve, disk_kind):
    with serve.client() as client:
        sandbox = Sandbox(client, disk_kind=disk_kind)
        sandbox.output("head -c 16M /dev/zero >/tmp/a")
        sandbox.wait(lambda used: used >= 16 * MIB, "16 MiB")
    serve.kill_engine()
    with serve.client() as client:
        sandbox.client = client
        sandbox.wait(lambda used: 16 * MIB <= used < 26 * MIB, "16 MiB")
        assert client.delete(sandbox.path).status == 204
