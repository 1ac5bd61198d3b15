"""Each test has a server of its own, which must end well: a finding of the sanitizers, a leak or a handle
that is left is a failure of the test that caused it.
"""
import pytest
from clients import Server


@pytest.fixture
def serve(tmp_path):
    servers = []

    def start(kind="unix", lean=False, **limits):
        path = tmp_path / f"socket{len(servers)}" if kind == "unix" else None
        servers.append(Server(path, limits, lean))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(params=["unix", "tcp"])
def server(serve, request):
    return serve(request.param)
