"""Each test has a server of its own, which must end well: a finding of the sanitizers, a leak or a handle
that is left is a failure of the test that caused it.
"""
import pytest
from clients import Server


@pytest.fixture
def serve(tmp_path):
    servers = []

    def start(kind="unix", **limits):
        servers.append(Server(tmp_path / "socket" if kind == "unix" else None, limits))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(params=["unix", "tcp"])
def server(serve, request):
    return serve(request.param)
