#!/usr/bin/env python3
"""Writes an archive of a container image, as docker load and podman load take it, from the layers that it is given.
usage: image-archive.py amd64|arm64 VERSION ARCHIVE LAYER..."""

import datetime
import hashlib
import io
import json
import os
import sys
import tarfile

SECOND = 10**9  # of durations, in nanoseconds


def config(arch, version, digests):
    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    return {
        "architecture": arch, "os": "linux", "created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "config": {
            "Entrypoint": ["/usr/bin/tini", "--", "/usr/local/libexec/cove/start-container"],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
            "WorkingDir": "/root", "ExposedPorts": {"7070/tcp": {}}, "Volumes": {"/var/lib/cove": {}},
            "StopSignal": "SIGTERM",
            "Labels": {"org.opencontainers.image.title": "cove", "org.opencontainers.image.version": version},
            # The unix socket has no TLS, whatever cove.conf says.
            "Healthcheck": {
                "Test": ["CMD", "curl", "-fsS", "-m", "5", "--unix-socket", "/run/cove/cove.sock", "http://localhost/readyz"],
                "Interval": 30 * SECOND, "Timeout": 10 * SECOND, "StartPeriod": 30 * SECOND, "Retries": 3},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }


def add(archive, name, size, content):
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o644, int(os.environ["SOURCE_DATE_EPOCH"])
    archive.addfile(member, content)


def add_text(archive, name, text):
    add(archive, name, len(text), io.BytesIO(text))


def main():
    arch, version, path, *layers = sys.argv[1:]
    digests = []
    for layer in layers:
        with open(layer, "rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    text = json.dumps(config(arch, version, digests), sort_keys=True).encode()
    name = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [f"cove:{version}", "cove:latest"],
                 "Layers": [f"{digest}/layer.tar" for digest in digests]}]
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for digest, layer in zip(digests, layers):
            with open(layer, "rb") as file:
                add(archive, f"{digest}/layer.tar", os.path.getsize(layer), file)
        add_text(archive, name, text)
        add_text(archive, "manifest.json", json.dumps(manifest).encode())


if __name__ == "__main__":
    main()
