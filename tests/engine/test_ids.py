"""An ordinary user has few ids: when boxes have them all, new work is refused and told why."""
import serving

EPHEMERAL = {"privileges": "plain", "disk_kind": "ephemeral"}
SMALL = "[boxes]\npool = 2\nmemory = 128M\ndisk = 16M\n"


def test_without_ids_left_new_sandboxes_are_refused_and_told_so(tmp_path):
    with serving.Serve(tmp_path, SMALL) as serve, serve.client() as client:
        paths = []
        while (answer := client.post("/v1/sandboxes", EPHEMERAL)).status == 201:
            paths.append(f"/v1/sandboxes/{answer.json['id']}")
            assert len(paths) < 2000
        assert (answer.status, answer.code) == (503, "capacity"), answer
        assert "/etc/subuid" in answer.json["detail"] and int(answer.headers["Retry-After"]) >= 1
        ran = client.post(f"{paths[0]}/exec", {"command": "echo on"})
        assert (ran.status, ran.json["stdout"]) == (200, "on\n"), ran
        for path in paths:
            assert client.delete(path).status == 204
        assert client.post("/v1/sandboxes", EPHEMERAL).status == 201
