"""Each test has a server of its own, which must end well: a finding of the sanitizers, a leak or a handle
that is left is a failure of the test that caused it.
"""
import subprocess

import pytest
from clients import Server


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    directory = tmp_path_factory.mktemp("certificate")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout",
                    directory / "key.pem", "-out", directory / "chain.pem"], check=True,
                   capture_output=True, timeout=60)
    return directory


@pytest.fixture
def serve(tmp_path, request):
    servers = []

    def start(kind="unix", lean=False, clock=False, **limits):
        path = tmp_path / f"socket{len(servers)}" if kind == "unix" else None
        servers.append(Server(path, limits, lean,
                              request.getfixturevalue("certificate") if kind == "tls" else None,
                              tmp_path / f"clock{len(servers)}" if clock else None))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(params=["unix", "tcp", "tls"])
def server(serve, request):
    return serve(request.param)


@pytest.fixture(params=["unix", "tcp"])
def clear_server(serve, request):
    """For clients that know no TLS, or do what there is none of in it: half a connection ends otherwise."""
    return serve(request.param)
