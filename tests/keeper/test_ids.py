"""An ordinary user has few ids: when boxes have them all, new work is refused and told why."""
import harness
import serving
from sandboxes import EPHEMERAL

SMALL = "[boxes]\npool = 2\nmemory = 128M\ndisk = 16M\n"


def test_without_ids_left_new_sandboxes_are_refused_and_told_so(tmp_path):
    with serving.Serve(tmp_path, SMALL) as serve, serve.client() as client:
        paths = []
        while (answer := client.post("/v1/sandboxes", EPHEMERAL)).status == 201:
            paths.append(f"/v1/sandboxes/{answer.json['id']}")
            assert len(paths) < 2000
        assert answer.refusal == (503, "capacity"), answer
        assert "/etc/subuid" in answer.json["detail"] and int(answer.headers["Retry-After"]) >= 1
        ran = client.post(f"{paths[0]}/exec", {"command": "echo on"})
        assert (ran.status, ran.json["stdout"]) == (200, "on\n"), ran
        for path in paths:
            assert client.delete(path).status == 204
        assert client.post("/v1/sandboxes", EPHEMERAL).status == 201


def slices():
    """How many boxes have ids of their own at once: see IDS_SLICE."""
    return sum(len(part) // 1025 for part in harness.EXPECT.parts)


def test_the_pool_gives_up_its_boxes_before_anybody_is_refused(tmp_path):
    """Persistent sandboxes, running and stopped, and ephemeral ones: together they have all ids."""
    with serving.Serve(tmp_path, SMALL) as serve, serve.client() as client:
        def create(kind):
            answer = client.post("/v1/sandboxes", {"privileges": "plain", "disk_kind": kind})
            return answer if answer.status != 201 else f"/v1/sandboxes/{answer.json['id']}"

        kept = [create("persistent") for _ in range(3)]
        assert client.post(f"{kept[0]}/stop").status == 200
        assert client.post(f"{kept[1]}/stop").status == 200
        paths = [create("persistent" if i % 8 == 0 else "ephemeral") for i in range(slices() - 3)]
        assert all(isinstance(path, str) for path in paths), paths
        assert len(set(paths + kept)) == slices()
        for kind in ("ephemeral", "persistent"):
            refused = create(kind)
            assert refused.refusal == (503, "capacity"), refused
        # A start needs none: those of its disk are its own.
        assert client.post(f"{kept[0]}/start").status == 200
        # Of many at once each gets one of those that come free.
        for path in paths[-6:]:
            assert client.delete(path).status == 204

        def one_more():
            with serve.client() as other:
                return other.post("/v1/sandboxes", EPHEMERAL).status

        assert serving.at_once(*[one_more] * 6) == [201] * 6
        assert create("ephemeral").status == 503
